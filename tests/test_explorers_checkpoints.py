"""What the explorer of checkpoints says: the queue of the chapter's first story, and the ways out of it."""

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


def test_a_job_that_waits_for_the_drives_waits_longer():
    assert "waited 1.7 % of its time" in view("the job waits for the drives").say
