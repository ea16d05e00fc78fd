"""The questions on the KV cache: those the course must have, with the answers it promises, and that they can be
answered at all: one cause explains what is seen, more than one plan works."""

from memtier import kv_cache, live
from memtier.live.questions import kv_cache as declared

SEEDS = range(60)


def rounds(question):
    """(values, right answer) of every seed."""
    return [(values, question.answer(values)) for values in map(question.values, SEEDS)]


def test_the_tasks_that_must_be_there_are_there():
    named = {"prefixes", "three_places", "window", "users_that_fit", "break_even", "diagnose", "estimate", "design"}
    assert {f"kv_cache.{name}" for name in named} <= set(live.names())


def test_the_days_popular_prefixes():
    """10,000 distinct prefixes of 4k tokens on the 70B model."""
    asked = {"model": "llama-3.1-70b", "count": 10_000, "tokens": 4096}
    assert declared.prefixes.answer(asked) == 10_000 * 4096 * 327_680
    wrong = declared.prefixes.check(asked | {"heads": 64, "kv_heads": 8}, 10_000 * 4096 * 2_621_440)
    assert "You counted the query heads" in wrong.say


def test_a_sliding_window_of_mistral_at_32k():
    asked = {"model": "mistral-7b", "tokens": 32_768, "users": 1}
    assert round(declared.window.answer(asked) / 1e9, 2) == 0.54
    full = kv_cache.inventory("mistral-7b", sequence=32_768, windows=False).total
    assert round(full / 1e9, 2) == 4.29
    assert "That is the full context" in declared.window.check(asked, full).say


def test_only_one_cause_explains_what_the_server_holds():
    for values, cause in rounds(declared.diagnose):
        seen = {each: declared._seen(values, each) for each in ("", *declared.CAUSES)}
        others = [nbytes for each, nbytes in seen.items() if each != cause]
        assert all(abs(nbytes / seen[cause] - 1) > 0.02 for nbytes in others), values


def test_more_than_one_plan_works_and_not_all_do():
    for _, plans in rounds(declared.design):
        assert 2 <= len(plans) < len(declared.PLANS)
        assert "plain" not in plans
    assert len({plans for _, plans in rounds(declared.design)}) >= 3


def test_from_some_place_fetching_pays_and_from_another_it_does_not():
    found = {places for _, places in rounds(declared.worth_fetching)}
    assert len(found) >= 3
    assert all("memory" in places and "connection" not in places for places in found)


def test_two_nodes_hold_one_copy_of_the_weights_in_the_plan_and_say_so():
    """One copy over 16 GPUs leaves room for 188 users of 70B; a copy on each node, as in the chapter, for 2 · 81."""
    asked = {"model": "llama-3.1-70b", "tokens": 16_384, "headroom": 0.1, "gpus": 8, "users": 175}
    assert declared._holds(asked, "more") == 188
    assert 2 * declared._holds(asked, "plain") == 162
    assert "all sixteen GPUs share one copy of the weights" in declared.PLANS["more"]


def test_a_prefix_of_405b_is_computed_without_attentions_own_flops_and_the_question_says_so():
    """8.4 s for 65,536 tokens on sixteen GPUs at 40 %; with attention it would be 11.2 s."""
    asked = {"model": "llama-3.1-405b", "tokens": 65_536, "gpus": 16}
    assert round(declared._again(asked), 1) == 8.4
    assert round(declared._again(asked, attention=True), 1) == 11.2
    assert "attention's own FLOPs left out" in declared.worth_fetching.prompt


def test_in_every_round_most_of_the_mean_wait_is_the_misses_but_not_always_nearly_all():
    shares = {(1 - v["hbm"] - v["memory"]) * declared._again(v) / declared._mean(v)
              for v, _ in rounds(declared.mean_time)}
    assert 0.7 < min(shares) < 0.85
    assert "Most of it is the misses" in declared.mean_time.solution
