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
