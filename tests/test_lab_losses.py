"""Three ways to a loss: the same number, the same gradients, and the bytes memtier.activations says each one takes."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from memtier import activations  # noqa: E402
from memtier.lab import activations as lab  # noqa: E402
from memtier.lab import cells  # noqa: E402

CONFIG = {"model_type": "llama", "vocab_size": 1999, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2}
HOW = {"batch": 2, "sequence": 48}


pytestmark = pytest.mark.usefixtures("quiet_torch")


def _step(loss, chunks, tied):
    how = HOW | {"dtype": "fp32", "loss": loss, "chunks": chunks}
    with lab.built(CONFIG | {"tie_word_embeddings": tied}, real=True, **how) as (network, inputs):
        end = network(**inputs).loss
        end.backward()
        return end.item(), [parameter.grad for parameter in network.parameters()]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("chunks", [1, 5])
@pytest.mark.parametrize("loss", ["chunked", "fused"])
def test_the_loss_and_the_gradients_are_the_same(loss, chunks, tied):
    value, gradients = _step(loss, chunks, tied)
    expected, true = _step("dense", 1, tied)
    assert value == pytest.approx(expected, rel=1e-5)
    for gradient, other in zip(gradients, true, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("loss", "chunks", "dtype", "tied"), [
    ("dense", 1, "bf16", False), ("chunked", 1, "fp32", False), ("chunked", 2, "bf16", True),
    ("chunked", 2, "fp32", True), ("chunked", 7, "bf16", False), ("chunked", 7, "fp32", True),
    ("fused", 1, "bf16", True), ("fused", 7, "fp32", False), ("fused", 200, "bf16", True)])
def test_bytes_of_each_loss(loss, chunks, dtype, tied):
    config, how = CONFIG | {"tie_word_embeddings": tied}, HOW | {"dtype": dtype, "loss": loss, "chunks": chunks}
    measured = lab.saved(config, real=True, **how)
    assert lab.compare(activations.tensors(config, **how), measured) == []
    step = lab.live(config, real=True, **how)
    assert activations.live(config, **how).total == step.after
    assert activations.peak(config, **how).total == pytest.approx(step.peak, rel=0.001)
    # Head and loss alone, beside the same step without them.
    whole = activations.saved(config, **how).total
    kept = activations.logits(config, **how)["kept"].total
    others = whole - kept
    dense = activations.logits(config, **HOW, dtype=dtype)["kept"].total
    assert others == activations.saved(config, **HOW, dtype=dtype).total - dense


@pytest.mark.parametrize("family", ["gpt2", "phi3", "mixtral"])
def test_other_families(family):
    cell = next(cells.usual(family, 1, seed=5))
    for loss in ("chunked", "fused"):
        how = cell.how | {"loss": loss, "chunks": 3}
        step = lab.live(cell.config, real=True, **how)
        assert activations.live(cell.config, **how).total == step.after, str(cell)
        assert activations.peak(cell.config, **how).total == pytest.approx(step.peak, rel=0.001), str(cell)


def test_a_fused_loss_has_no_logits_to_keep():
    """Llama-3.1-8B at 8,192 tokens: 4.2 GB of log-probabilities, or the head's gradient of 1.05 GB and nothing more."""
    n, h, vocab = 8192, 4096, 128256
    found = {loss: activations.logits("llama-3.1-8b", loss=loss, chunks=16) for loss in activations.LOSSES}
    assert found["dense"]["kept"].total == 2 * n * h + 4 * n * vocab + 8 * (n + 1) + 4
    assert found["chunked"]["kept"].total == 2 * n * h + 8 * (n + 1)
    assert found["fused"]["kept"].total == 2 * n * h + 2 * vocab * h
    assert found["dense"]["forward"].total - found["dense"]["kept"].total == 6 * n * vocab
    assert found["chunked"]["forward"].total - found["chunked"]["kept"].total == 8 * (n // 16) * vocab
    assert found["fused"]["backward"].total == found["fused"]["kept"].total
    again = [activations.flops_recomputed("llama-3.1-8b", sequence=n, recompute="none", loss=loss)
             for loss in activations.LOSSES]
    assert again == [0, 2 * n * vocab * h, 0]


@pytest.mark.parametrize(("change", "message"), [
    ({"loss": "liger"}, "loss is 'liger'; it must be one of dense, chunked, fused"),
    ({"loss": "fused", "chunks": 0}, "chunks is 0"),
    ({"loss": "fused", "model": "gemma-2-9b", "stack": "hf-eager"}, "which caps its logits, it must be 'dense'"),
    ({"loss": "fused", "model": "gpt2", "stack": "megatron"}, "for stack 'megatron' it must be 'dense'"),
])
def test_bad_losses_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        activations.saved(**{"model": CONFIG, "sequence": 64} | change)
