"""What the explorers of recovery say: the chapter's moments, in words a reader can check."""

import pytest

from memtier import live, recovery
from memtier.live.explorers.recovery import DAY, ONE_GPU

INTERVAL, FAILURES = (live.get(f"recovery.{name}") for name in ("interval", "failures"))


def view(explorer, preset=None, **values):
    return explorer.view(**explorer.defaults | dict(explorer.presets[preset] if preset else {}) | values)


@pytest.mark.parametrize(("preset", "words"), [
    ("49 s, every 30 min", "Saving every 30 min loses 10.8 % of the time"),
    ("49 s, every 10 min", "Saving every 10 min loses 10.9 % of the time"),
    ("49 s, at the best", "The best interval is 17.4 min, which loses 9.39 %"),
    ("half a second, at the best", "Saving every 1.78 min loses 0.958 % of the time"),
])
def test_what_an_interval_costs(preset, words):
    assert words in view(INTERVAL, preset).say


def test_the_guess_is_held_against_youngs_rule():
    truth = INTERVAL.predict.truth(INTERVAL.defaults | dict(INTERVAL.predict.values))
    assert truth == pytest.approx(recovery.interval(49, 54 * DAY / 419), rel=1e-3)
    assert truth / 60 == pytest.approx(17.4, abs=0.05)


@pytest.mark.parametrize(("preset", "words"), [
    ("one node for a month", "every 264 days, on average 0.114 times in 30 days"),
    ("512 GPUs for a month", "every 4.12 days, on average 7.27 times in 30 days"),
    ("Llama 3's 54 days", "on average 419 times in 54 days. With a save every 30 min that costs 105 h of 1,296 h"),
    ("131,072 GPUs for a month", "on average 1,862 times in 30 days"),
])
def test_rare_times_many(preset, words):
    said = view(FAILURES, preset).say
    assert words in said
    assert "each failing once in 2,112 days (5.8 years)" in said


def test_512_gpus_for_a_month_meet_7_3_failures():
    truth = FAILURES.predict.truth(FAILURES.defaults | dict(FAILURES.predict.values))
    assert truth == pytest.approx(7.3, abs=0.05)
    assert truth == float(f"{512 * 30 * DAY / ONE_GPU:.3g}") == 7.27
    assert "It is **7.27**" in FAILURES.predict.reveal(1, FAILURES.defaults | dict(FAILURES.predict.values))


def test_no_tick_stands_under_the_words_of_the_opening_view():
    """264 days for eight GPUs: its words stood on those of the tick of 100 days."""
    drawn = view(FAILURES).html.split("<table")[0]
    assert "here: 264 days" in drawn
    assert ">100 days<" not in drawn
    assert ">10 days<" in drawn
    assert ">100 days<" in view(FAILURES, gpus=4096).html


@pytest.mark.parametrize("guess", [0.01, 1, 1000])
@pytest.mark.parametrize("interval", [10, 4 * 3600])
def test_any_guess_and_any_interval_can_be_drawn(guess, interval):
    assert "one interval" in view(FAILURES, gpus=512, interval=interval, guess=guess).html
