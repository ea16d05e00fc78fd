"""FlashAttention's arithmetic against the paper's statements (arXiv:2205.14135), and what torch keeps without it."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import activations, flash_attention, models, units
from memtier.lab import activations as lab

A100 = 192 * units.KiB  # SRAM of one streaming multiprocessor, as the paper gives it (section 2.1)


def test_the_examples_in_the_docstrings():
    assert doctest.testmod(flash_attention).failed == 0


@given(head_dim=st.integers(1, 256), numbers=st.integers(1, 10**6))
def test_block_sizes_of_algorithm_1(head_dim, numbers):
    """Line 1: Bc = ⌈M/4d⌉ and Br = min(⌈M/4d⌉, d). Each of the four blocks is then about a quarter of SRAM at most."""
    numbers = max(numbers, head_dim)
    found = flash_attention.tile(head_dim=head_dim, sram=2 * numbers)
    assert 4 * head_dim * (found.columns - 1) < numbers <= 4 * head_dim * found.columns
    assert found.rows == min(found.columns, head_dim)
    assert found.columns * head_dim < numbers / 4 + head_dim
    assert found.rows * found.columns <= found.columns * head_dim


def test_a_tile_can_be_too_large():
    """The paper's sizes are right up to a constant: for heads of 128 the scores no longer fit beside four blocks."""
    assert flash_attention.tile(head_dim=64, sram=A100).fits
    assert not flash_attention.tile(head_dim=128, sram=A100).fits


def _by_hand(n, d, columns):
    """Algorithm 1, a loop at a time, in numbers."""
    moved = n * d + 2 * n  # line 2: O, ℓ and m are written
    for start in range(0, n, columns):
        moved += 2 * min(columns, n - start) * d  # line 6: K and V
        moved += 2 * n * d + 2 * n  # line 8: Q, O, ℓ, m
        moved += n * d + 2 * n  # lines 12 and 13: O, ℓ, m
    return moved


@given(n=st.integers(1, 5000), head_dim=st.integers(1, 128), numbers=st.integers(128, 100_000))
def test_traffic_is_the_algorithms_taken_literally(n, head_dim, numbers):
    found = flash_attention.traffic(sequence=n, head_dim=head_dim, sram=2 * numbers)
    columns = flash_attention.tile(head_dim=head_dim, sram=2 * numbers).columns
    assert found.flash == 2 * _by_hand(n, head_dim, columns)
    assert found.standard == 2 * (4 * n * head_dim + 4 * n * n)


def test_theorem_2():
    """Standard attention Θ(Nd + N²), FlashAttention Θ(N²d²/M), for d ≤ M ≤ Nd: so in proportion, for large N."""
    how = {"sequence": 2**17, "head_dim": 64, "sram": A100}
    base = flash_attention.traffic(**how)
    longer = flash_attention.traffic(**how | {"sequence": 2**18})
    assert longer.standard / base.standard == pytest.approx(4, rel=0.01)
    assert longer.flash / base.flash == pytest.approx(4, rel=0.01)
    larger = flash_attention.traffic(**how | {"sram": 2 * A100})
    assert larger.standard == base.standard
    assert larger.flash / base.flash == pytest.approx(1 / 2, rel=0.01)
    wider = flash_attention.traffic(**how | {"head_dim": 128})
    assert wider.flash / base.flash == pytest.approx(4, rel=0.02)
    # d² is many times smaller than M, hence the fewer accesses
    assert base.ratio > 5


def test_figure_2_counts_both_passes_and_more():
    """Figure 2 (left): 40.3 GB and 4.4 GB for GPT-2 medium at 1,024 tokens, 16 heads of 64, batch 64, forward and
    backward with dropout on an A100. The forward pass alone must lie below both, its ratio in the order of their 9."""
    found = flash_attention.traffic(sequence=1024, head_dim=64, sram=A100, heads=16, batch=64)
    assert found.standard == pytest.approx(9.1e9, rel=0.01)
    assert found.flash == pytest.approx(1.6e9, rel=0.03)
    assert found.standard < 40.3e9
    assert found.flash < 4.4e9
    assert 40.3 / 4.4 / 2 < found.ratio < 40.3 / 4.4


def test_what_is_not_written():
    found = flash_attention.not_written("llama-3.1-8b", sequence=8192)
    assert found == 32 * flash_attention.not_written("llama-3.1-8b", sequence=8192, layer=7)
    assert dict(found) == dict.fromkeys(("scores", "probabilities"), 32 * 2 * 32 * 8192**2)
    assert flash_attention.written_instead("llama-3.1-8b", sequence=8192) == 32 * 4 * 32 * 8192


@pytest.mark.parametrize("batch", [1, 2])
def test_torch_keeps_the_probabilities_only_without_it(batch):
    """GPT-2 in fp32 keeps what the paper's P is, where attention is eager, and one statistic a row where it is fused:
    measured with torch, to the byte. (S is written too, but nothing keeps it.)"""
    pytest.importorskip("torch")
    config = models.get("gpt2").config | {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 96, "vocab_size": 100}
    how = {"batch": batch, "sequence": 96, "dtype": "fp32", "dropout": False}

    def probabilities(stack):
        return sum(kept.nbytes for kept in lab.saved(config, stack=stack, real=True, **how)
                   if kept.shape[-2:] == (96, 96) or kept.shape[-2:] == (4, 96))

    whole = flash_attention.not_written(config, batch=batch, sequence=96, dtype="fp32")
    assert probabilities("hf-eager") == whole["probabilities"]
    assert probabilities("hf-sdpa") == flash_attention.written_instead(config, batch=batch, sequence=96)
    assert activations.saved(config, stack="hf-eager", **how)["attention probabilities"] == whole["probabilities"]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: flash_attention.tile(head_dim=0, sram=A100), "head_dim is 0"),
    (lambda: flash_attention.tile(head_dim=128, sram=255), "sram is 255; it must be a whole number, 256 or more"),
    (lambda: flash_attention.tile(head_dim=128, sram=A100, dtype="fp8"), "dtype is 'fp8'"),
    (lambda: flash_attention.traffic(sequence=0, head_dim=64, sram=A100), "sequence is 0"),
    (lambda: flash_attention.traffic(sequence=8, head_dim=64, sram=A100, heads=0), "heads is 0"),
    (lambda: flash_attention.not_written(8e9), "model is the parameter count 8,000,000,000"),
    (lambda: flash_attention.not_written("gpt2", layer=12), "layer is 12"),
    (lambda: flash_attention.written_instead("gpt2", batch=0), "batch is 0"),
])
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
