"""What the explorer of checkpoints says: the queue of the chapter's first story, and the ways out of it."""

import re
from itertools import pairwise

import pytest

from memtier import live
from memtier.checkpoints import backlog

DRAIN = live.get("checkpoints.drain")


def view(preset=None, **values):
    return DRAIN.view(**DRAIN.defaults | dict(DRAIN.presets[preset] if preset else {}) | values)


def test_every_30_s_leaves_47_checkpoints_46_tb_behind():
    said = view("every 30 s").say
    assert "waited 0.1 % of its time. Shared storage, 49 s each, finished 72; 47 newer ones, 46.1 TB, are not" in said
    assert "Lose every node now, and 24 min of work are gone" in said
    truth = DRAIN.predict.truth(DRAIN.defaults | dict(DRAIN.predict.values))
    assert truth == backlog(interval=30, seconds=49, duration=3600) * 980e9


def test_passing_over_older_ones_keeps_the_copy_young():
    passed_over = view("every 30 s, older ones passed over")
    assert "passed over 45 older versions" in passed_over.note
    assert "Lose every node now, and 1.94 min of work are gone" in passed_over.say


@pytest.mark.parametrize("preset", ["every 10 minutes", "every 30 s above 500 GB/s"])
def test_a_tier_that_keeps_pace_has_them_all(preset):
    assert "; it has them all." in view(preset).say


def peaks(figure):
    """How often the curve of a drawing rises."""
    points = re.search(r'<polyline points="([^"]+)"', figure.svg)[1].split()
    levels = [-float(point.split(",")[1]) for point in points]
    return sum(later > earlier for earlier, later in pairwise(levels))


def test_each_save_of_the_opening_view_is_drawn():
    """Five saves of 49 s in an hour. Looked at once a minute, four of them were missed."""
    assert peaks(view().figures[1]) == 5


def test_no_peak_of_a_long_run_is_missed():
    """A day of saves, one every two minutes: too many to draw them all, but none stands alone longer than its 49 s."""
    curve = re.search(r'<polyline points="([^"]+)"', view(interval=120, hours=86400).figures[1].svg)[1].split()
    levels = [float(point.split(",")[1]) for point in curve]
    assert 100 < len(levels) <= 125
    assert set(levels[1:-1]) == {min(levels)}


def test_nobody_waits_longer_than_the_run():
    """98.9 % by hand: see tests/test_checkpoints.py. It was said to be "more time than there is"."""
    for values in ({}, {"asynchronous": False}):
        said = view(interval=10, local=1e9, nodes=1, **values)
        assert "and waited 99 % of its time" in said.say
        assert all(span.endswith(" min") for span in re.findall(r'text-anchor="end" font-weight="600">([^<]+)<',
                                                                said.figures[0].svg))


def test_the_timeline_shows_the_same_saves_on_every_lane():
    shown = view("every 30 s").figures[0]
    assert shown.title == "The first 8 saves"
    assert [name for name, _ in shown.legend] == [f"save {n}" for n in range(1, 9)]
    assert [sum(lane.startswith(row[0]) for row in shown.rows) for lane in
            ("the job waits", "local NVMe, 510 ms each", "shared storage, 49 s each")] == [8, 8, 8]
    assert view(interval=3600, hours=3600.5).figures[0].title == "The first save"


def test_a_guess_beyond_the_plot_says_so_away_from_now():
    html = view("every 30 s", guess=1e15).figures[1].svg
    assert "your guess: 1 PB, above this" in html
    assert '<svg aria-hidden="true" x="50%"' in html
    assert "above this" not in view("every 30 s", guess=1e12).figures[1].svg


def test_a_job_that_waits_for_the_drives_waits_longer():
    assert "waited 1.7 % of its time" in view("the job waits for the drives").say
