"""The questions on weights agree with memtier.weights and with sums done by hand. test_questions.py holds the rest."""

import math

import pytest

from memtier import live, tiers, weights
from memtier.live.questions import weights as declared
from memtier.units import GB

QUESTIONS = [each for each in vars(declared).values() if isinstance(each, live.Question)]


def rounds(question):
    return [question.values(seed) for seed in range(30)]


def test_the_tasks_that_must_be_there_are_there():
    names = {question.name.split(".")[1] for question in QUESTIONS}
    assert names == {"layer", "blocks", "diagnose", "gpus_needed", "experts", "estimate", "turn", "design"}
    assert {question.kind for question in QUESTIONS} == {"numeric", "choice", "multiple"}


def test_a_layer_counted_by_hand():
    for v in rounds(declared.layer):
        h, f, d = v["h"], v["f"], v["d"]
        assert declared.layer.answer(v) == 2 * h * v["a"] * d + 2 * h * v["k"] * d + 3 * h * f + 2 * h


def test_blocks_by_hand():
    bits = {"nvfp4": 4 + 8 / 16, "mxfp4": 4 + 8 / 32, "nf4": 4 + 32 / 64}
    for v in rounds(declared.blocks):
        assert declared.blocks.answer(v) == pytest.approx(v["inside"] * bits[v["dtype"]] / 8 + 2 * v["outside"])


@pytest.mark.parametrize(("cause", "seen"), [("scales", 4.5), ("kept", 5.5), ("both", 5.9375), ("GiB", 4e9 / 2**30)])
def test_what_the_tool_shows(cause, seen):
    v = {"inside": 7 * 10**9, "outside": 10**9}
    assert declared._seen(v, cause) == pytest.approx(seen)


def test_gpus_by_hand_and_every_belief_leads_elsewhere():
    cases = declared._telling()
    assert len(cases) >= 12
    for v in cases:
        nbytes = v["parameters"] * (2 if v["dtype"] == "bf16" else 1)
        assert declared.gpus_needed.answer(v) == math.ceil(nbytes / (80 * GB * (1 - v["headroom"])))
        beliefs = [belief.value(v) for belief in declared.gpus_needed.misconceptions]
        assert declared.gpus_needed.answer(v) not in beliefs


def test_a_mixture_by_hand():
    v = {"experts": 8, "per_token": 2, "each": 3 * 10**9, "shared": 2 * 10**9}
    assert declared.experts.answer(v) == 52 * 10**9
    assert "You multiplied the name" in declared.experts.check(v, 80 * 10**9).say
    assert "what one token reads" in declared.experts.check(v, 16 * 10**9).say


def test_the_turn_is_the_ridge_times_bytes_over_two():
    for v in rounds(declared.turn):
        gpu = tiers.accelerator(v["gpu"])
        exact = gpu.flops / gpu.memory.read * weights.get(v["dtype"]).bytes_each / 2
        assert exact <= declared.turn.answer(v) < exact + 1.001


def test_estimates_by_hand():
    v = {"parameters": 8 * 10**9, "gpu": "h100-sxm", "dtype": "bf16"}
    assert declared.estimate.answer(v) == round(3.35e12 / 16e9)
    assert declared.estimate.check(v, 200).right
    assert "memory sets the pace" in declared.estimate.check(v, round(989e12 / 16e9)).say


def test_several_designs_work_and_not_all():
    for v in rounds(declared.design):
        works = declared.design.answer(v)
        assert 2 <= len(works) < len(declared.PLANS)
        for plan in works:
            nbytes, rate = declared._plan(v, plan)
            assert nbytes + v["free"] <= 80 * GB
            assert rate >= v["rate"]
