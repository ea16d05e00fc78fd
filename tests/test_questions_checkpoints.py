"""The questions on checkpoints: that their answers are those of the run they describe."""

import pytest

from memtier import checkpoints
from memtier.checkpoints import Stage
from memtier.live.questions import checkpoints as declared


def waiting(interval, seconds, asynchronous):
    """Versions not in shared storage after two hours, each one followed."""
    run = checkpoints.drain(interval=interval, duration=7200, asynchronous=asynchronous,
                            stages=[Stage("drives", 1), Stage("shared storage", seconds)])
    return len(run.saves) - sum(span.end <= 7200 for span in run.written["shared storage"])


@pytest.mark.parametrize("seed", range(10))
def test_what_piles_up_is_what_a_job_that_does_not_wait_leaves(seed):
    """Where the job stops for the second, 20 s and 90 s leave 263, which was marked wrong: so the prompt says that it
    does not."""
    values = declared.queue.values(seed)
    assert "in the background: the job does not wait" in declared.queue.say(declared.queue.prompt, values)
    counted = waiting(values["interval"], values["seconds"], asynchronous=True)
    assert declared.queue.check(values, counted).right


def test_a_job_that_waits_leaves_fewer():
    assert waiting(20, 90, asynchronous=True) == pytest.approx(280, abs=1)
    assert waiting(20, 90, asynchronous=False) == pytest.approx(263, abs=1)
