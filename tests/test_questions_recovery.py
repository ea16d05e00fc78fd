"""The questions on recovery: what they say of the numbers they draw."""

import re

import pytest

from memtier.live.questions import recovery as declared

SEEDS = range(60)


def test_failures_are_said_in_three_digits():
    """256 GPUs of three years for ten days meet 2.34; the solution once said 2.33790 and the like."""
    for values in map(declared.how_many.values, SEEDS):
        said = re.search(r"\*\*([\d.,]+)\*\*", declared.how_many.say(declared.how_many.solution, values))[1]
        assert len(said.replace(".", "").replace(",", "").lstrip("0").rstrip("0")) <= 3
        exact = values["gpus"] * values["days"] / 365 / values["years"]
        assert float(said.replace(",", "")) == pytest.approx(exact, rel=5e-3)
        assert declared.how_many.check(values, exact).right
