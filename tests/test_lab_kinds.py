"""All six kinds in one small run of torch: the bytes chapter 0 predicts are the bytes torch holds."""

import pytest

pytest.importorskip("torch", reason="the lab measures with torch: pip install -r requirements.txt")

from memtier import checkpoints, kinds, models, optimizer_state
from memtier.lab import kinds as lab


@pytest.mark.parametrize(("batch", "sequence"), [(2, 64), (3, 17)])
def test_what_can_be_predicted_is_equal_to_the_byte(batch, sequence):
    measured, model = lab.one_small_run(batch=batch, sequence=sequence), models.from_config(lab.CONFIG)
    state = optimizer_state.inventory(model, recipe="fp32-adam")
    tokens = batch * sequence
    assert measured["weights"] == state["weights"]
    assert measured["optimizer"] == state["optimizer"] + state["step counters"]
    assert measured["training data"] == 2 * tokens
    assert measured["KV cache"] == 2 * model.layers * model.kv_heads * model.head_dim * 4 * tokens
    saved = checkpoints.inventory(model, recipe="fp32-adam").total
    assert saved < measured["checkpoint"] < 1.003 * saved


def test_activations_grow_with_the_tokens_and_the_state_does_not():
    short, long = (lab.one_small_run(batch=1, sequence=sequence) for sequence in (32, 64))
    assert 1.9 * short["activations"] < long["activations"] < 2.1 * short["activations"]
    assert all(short[name] == long[name] for name in ("weights", "optimizer"))


def test_every_kind_is_there_and_a_second_run_gives_the_same():
    measured = lab.one_small_run()
    assert set(measured) == {kind.part for kind in kinds.KINDS}
    assert lab.one_small_run() == measured


@pytest.mark.parametrize("bad", [{"batch": 0}, {"sequence": 1.5}])
def test_bad_input_is_named(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is"):
        lab.one_small_run(**bad)
