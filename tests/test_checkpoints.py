import pytest

from memtier import checkpoints, tiers


def test_a_resumable_checkpoint_of_seventy_billion():
    saved = checkpoints.inventory(70e9, recipe="bf16-adam")
    assert saved.total == 14 * 70e9 == 0.98e12
    assert "gradients" not in saved
    assert checkpoints.inventory(70e9, recipe="bf16-adam", contents="weights").total == 140e9


@pytest.mark.parametrize(("to", "writers", "seconds"), [(20e9, 1, 49.0), (500e9, 1, 1.96), (30e9, 64, 0.5104)])
def test_write_times(to, writers, seconds):
    assert checkpoints.write_time(0.98e12, to=to, writers=writers) == pytest.approx(seconds, rel=1e-3)


def test_writers_multiply_a_node_local_tier_and_not_a_shared_one():
    local, shared = tiers.get("micron-9550"), tiers.get("tectonic")
    assert checkpoints.write_time(1e12, to=local, writers=8) == pytest.approx(1e12 / (8 * local.write), rel=1e-5)
    assert checkpoints.write_time(1e12, to="tectonic", writers=8) == pytest.approx(1e12 / shared.write, rel=1e-5)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: checkpoints.inventory(70e9, recipe="bf16-adam", contents="all"), "contents is 'all'"),
    (lambda: checkpoints.write_time(-1, to=1e9), "nbytes is -1"),
    (lambda: checkpoints.write_time(1, to=0), "to is 0"),
    (lambda: checkpoints.write_time(1, to=1e9, writers=0), "writers is 0"),
    (lambda: checkpoints.write_time(1, to="floppy"), "floppy"),
])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
