"""A training loop under failures: goodput as computed, weights as if nothing had happened."""

import pytest

from memtier import recovery
from memtier.lab import recovery as lab


def test_failures_cost_time_and_no_weights():
    calm = lab.train(300, interval=25)
    assert (calm.ticks, calm.failures, calm.saves, calm.goodput) == (300, 0, 11, 1.0)
    stormy = lab.train(300, interval=25, write=2, restart=3, mtbf=40, seed=3)
    assert stormy.failures > 3
    assert stormy.goodput < 0.9
    assert stormy.weights == calm.weights
    assert lab.train(300, interval=25, write=2, restart=3, mtbf=40, seed=3) == stormy


def test_weights_without_enough_steps_differ():
    assert lab.train(300, interval=25).weights != lab.train(299, interval=25).weights


def test_observed_goodput_is_the_predicted_within_its_noise():
    """Nine runs an interval; four standard errors leave one in 15,000 outside, were the errors normal."""
    mtbf, write = 60, 2
    seen = lab.sweep((4, 16, 60), mtbf=mtbf, write=write, restart=3, steps=600, runs=9)
    assert [each.observed for each in seen] == [pytest.approx(each.predicted, abs=4 * each.noise) for each in seen]
    assert all(each.noise < 0.05 for each in seen)
    assert all(each.failures > 50 for each in seen)
    # Near the computed optimum of 15.5 ticks is the best of the three, by more than the noise.
    assert recovery.interval(write, mtbf) == pytest.approx(15.5, abs=0.1)
    best = max(seen, key=lambda each: each.observed)
    assert best.interval == 16
    assert all(best.observed - each.observed > 2 * each.noise for each in seen if each is not best)


def test_the_table_has_a_line_an_interval():
    seen = lab.sweep((5, 10), mtbf=50, write=1, steps=50, runs=2)
    text = lab.table(seen).splitlines()
    assert [line.split()[0] for line in text] == ["interval", "5", "10"]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: lab.train(0, interval=1), "steps is 0"),
    (lambda: lab.train(10, interval=0), "interval is 0"),
    (lambda: lab.train(10, interval=1, mtbf=0), "mtbf is 0"),
    (lambda: lab.sweep((5,), mtbf=50, write=1, runs=1), "runs is 1; it must be a whole number, 2 or more"),
])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_run_killed_by_hand_goes_on_as_if_nothing_had_happened(tmp_path):
    calm = lab.start(tmp_path / "calm", until=60, pause=0).wait()
    assert list(calm.losses) == list(range(1, 61))
    assert calm.came_from is None
    run = lab.start(tmp_path / "killed", until=60, pause=0.02).reached(35)
    run.kill()
    assert run.was_killed
    assert 35 <= max(run.losses) < 60
    newest = lab.places(tmp_path / "killed")[0].complete()[0]
    (tmp_path / "killed" / "local" / newest / "__0_0.distcp").write_bytes(b"torn")
    again = lab.start(tmp_path / "killed", ranks=1, until=60, pause=0).wait()
    assert again.passed_over
    assert again.came_from[0] in (10, 20, 30)
    assert run.losses | again.losses == calm.losses
    assert not again.was_killed
