"""The questions on training data: those the course must have, with the answers it promises, and that they can be
answered at all: one hop is at its limit, more than one plan works."""

import pytest

from memtier import live, training_data
from memtier.live.questions import training_data as declared

SEEDS = range(60)


def rounds(question):
    """(values, right answer) of every seed."""
    return [(values, question.answer(values)) for values in map(question.values, SEEDS)]


def test_the_tasks_that_must_be_there_are_there():
    named = {"ids", "reads", "images", "half", "depth", "diagnose", "design", "resume", "video"}
    assert {f"training_data.{name}" for name in named} <= set(live.names())


def test_fifteen_trillion_tokens_of_llama_3():
    asked = {"tokens": 15 * 10**12, "vocabulary": 128_256, "each": 4}
    assert declared.ids.answer(asked) == 60e12
    assert "You took 2 bytes an id" in declared.ids.check(asked, 30e12).say


def test_half_of_the_set_in_the_cache():
    asked = {"share": 0.5}
    assert declared.half.answer(asked) == pytest.approx(0.153, abs=5e-4)
    assert "That is what a pinned part would give" in declared.half.check(asked, 0.5).say


def test_what_llama_3_405b_reads():
    asked = {"parameters": 405 * 10**9, "gpus": 16384, "flops": 400 * 10**12}
    assert declared.reads.answer(asked) == pytest.approx(10.8e6, rel=2e-3)
    assert "the forward pass alone" in declared.reads.check(asked, 3 * declared.reads.answer(asked)).say


def test_eight_gpus_on_images():
    assert declared.images.answer({"gpus": 8, "rate": 2500, "nbytes": 150_000}) == 3e9


def test_what_starves_is_the_one_line_at_its_limit():
    limits = {"in flight": "in flight", "network": "the node's network", "prefix": "requests a second",
              "drive": "Micron", "cpu": "samples a second"}
    found = set()
    for values, fault in rounds(declared.diagnose):
        starved = declared._starved(values)
        found.add(fault)
        assert limits[fault] in starved.slowest.limit, values
        loads = sorted(hop.load for hop in starved.hops)
        assert loads[-1] > 1.2, values
        # Nothing else is at its limit: at the rate that comes through, the second busiest hop has room.
        others = [hop for hop in starved.hops if hop is not starved.slowest and hop.limit != starved.slowest.limit]
        assert max(hop.load for hop in others) * (1 - starved.stall) < 0.95, values
    assert found == set(declared.FAULTS)


def test_more_than_one_plan_works_and_not_all_do():
    found = [plans for _, plans in rounds(declared.design)]
    assert all({"shards", "pinned"} <= plans and not plans & {"objects", "few"} for plans in found)
    assert len(set(found)) == 2  # the LRU cache is enough at some rates and not at others


def test_a_shuffle_buffer_is_part_of_the_position():
    asked = {"shuffle": "buffer", **dict.fromkeys(("how", "needed"), ""), "why": "what has been read but not used"}
    assert "buffer" in declared.resume.answer(asked)
    assert not declared.resume.check(asked, declared.resume.answer(asked) - {"buffer"}).right


def test_a_fixed_order_with_a_saved_generator_needs_no_seed():
    """What reads in a fixed order and draws with a generator whose state is saved never asks for the seed again."""
    asked = {"shuffle": "buffer", **dict.fromkeys(("how", "needed", "why"), "")}
    assert declared.resume.check(asked, frozenset({"position", "digest", "buffer"})).right
    told = declared.resume.check(asked, frozenset({"position", "digest", "buffer", "seed"}))
    assert not told.right
    assert "decides nothing any more" in told.say
    drawn = asked | {"shuffle": "drawn"}
    assert "cannot be drawn again" in declared.resume.check(drawn, frozenset({"position", "digest"})).say


def test_an_lru_cache_that_is_enough_and_left_out_is_told_so():
    """8 × 2,000 images of 150 KB are 2.4 GB/s. 84.7 % of them is 2.03; 32 requests of 72.6 MB/s bring 2.32 GB/s."""
    enough = {"gpus": 8, "each": 2000}
    assert "lru" in declared.design.answer(enough)
    said = declared.design.check(enough, declared.design.answer(enough) - {"lru"}).say
    assert "answers only 15.3 % of the reads, and that is enough here. 2.32 GB/s can come" in said
    assert "2.03 GB/s are asked" in said
    short = {"gpus": 8, "each": 2500}
    assert "lru" not in declared.design.answer(short)
    said = declared.design.check(short, declared.design.answer(short) | {"lru"}).say
    assert "not half of them. 2.54 GB/s are still asked of the store, and only 2.32 GB/s can come" in said


def test_the_cost_is_that_of_the_requests():
    asked = {"images": 10**9, "epochs": 10, "times": "10 times"}
    assert declared.cost.answer(asked) == training_data.request_price(10**10) == pytest.approx(4000)
