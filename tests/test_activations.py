"""The formulas of activations: against arithmetic done by hand, published tables, and what must hold for any model."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import small_models

from memtier import activations, models
from memtier.lab import cells
from memtier.layout import Layout
from memtier.models import Model

LLAMA = "llama-3.1-8b"


def _total(kept):
    return sum(each.nbytes for each in kept)


def test_a_llama_block_is_the_closed_form():
    """n[16h + 8 + 4d(A + K) + 4A + 8f]: 411,320,320 bytes for Llama-3.1-8B at 2,048 tokens."""
    n, h, d, heads, kv_heads, f = 2048, 4096, 128, 32, 8, 14336
    block = activations.block(LLAMA, sequence=n)
    assert _total(block) == n * (16 * h + 8 + 4 * d * (heads + kv_heads) + 4 * heads + 8 * f) == 411_320_320


def test_eager_attention_adds_the_square():
    b, s, heads, kv_heads, d = 1, 2048, 32, 8, 128
    fused = _total(activations.block(LLAMA, sequence=s))
    eager = _total(activations.block(LLAMA, sequence=s, stack="hf-eager"))
    grouped = 4 * s * d * (heads + kv_heads) + 4 * s * heads
    assert eager - fused == 8 * s * heads * d + 6 * b * heads * s * s - grouped


def test_the_mask_costs_its_square_and_the_grouping():
    b, s, heads, kv_heads, d = 2, 512, 32, 8, 128
    how = {"batch": b, "sequence": s}
    plain = _total(activations.block(LLAMA, **how))
    masked = _total(activations.block(LLAMA, stack="hf-sdpa-masked", **how))
    assert masked - plain == 2 * b * s * s + 2 * 2 * b * s * d * (heads - kv_heads)


def test_a_window_costs_a_mask_only_when_the_sequence_reaches_it():
    window = models.get("mistral-7b").windows[0]
    kinds = {s: {each.kind for each in activations.block("mistral-7b", sequence=s)} for s in (window - 1, window)}
    assert "attention mask" not in kinds[window - 1]
    assert "attention mask" in kinds[window]


def test_a_gpt2_block_is_the_closed_form():
    """16nh + 8n + 10nf, and 4nA for fused or 2bAs² for eager attention, without dropout."""
    n, h, heads, f = 1024, 768, 12, 3072
    for stack, attention in (("hf-sdpa", 4 * n * heads), ("hf-eager", 2 * heads * n * n)):
        block = activations.block("gpt2", sequence=n, stack=stack, dropout=False)
        assert _total(block) == 16 * n * h + 8 * n + 10 * n * f + attention


def test_the_base_holds_logits_and_loss():
    s, h, d, vocab = 2048, 4096, 128, 128256
    base = [kept for unit, kept in activations.tensors(LLAMA, sequence=s) if unit == "root"]
    assert _total(base) == 8 * s + 4 * s * d + 6 * s * h + 4 * s + 2 * s * h + 4 * s * vocab + 8 * (s + 1) + 4


def test_full_recomputation_keeps_the_layers_inputs():
    s, h, d, layers = 8192, 4096, 128, 32
    base = _total(kept for unit, kept in activations.tensors(LLAMA, sequence=s) if unit == "root")
    assert activations.saved(LLAMA, sequence=s, recompute="full").total == base - 4 * s * d + layers * 2 * s * h


def test_selective_keeps_the_products_with_weights():
    s, h, d, heads, kv_heads, f = 256, 4096, 128, 32, 8, 14336
    how = {"sequence": s, "batch": 2}
    gap = (activations.saved(LLAMA, recompute="selective", **how).total
           - activations.saved(LLAMA, recompute="full", **how).total)
    products = d * (heads + 2 * kv_heads) + h + 2 * f + h
    assert gap == 32 * (2 * 512 * products + 2 * 512 * d * heads + 4 * 512 * heads)


def test_live_and_loss_peak_are_the_closed_forms():
    s, vocab = 2048, 128256
    kept = activations.saved(LLAMA, sequence=s).total
    assert activations.live(LLAMA, sequence=s).total == kept + 4
    moments = activations.moments(LLAMA, sequence=s)
    assert moments["loss"].total == kept + 4 + 6 * s * vocab
    assert moments["loss backward"].total == kept + 4 + 4 + 8 * s * vocab - 8 * (s + 1) - 4
    assert activations.peak(LLAMA, sequence=s) == max(moments.values(), key=lambda each: each.total)


@pytest.mark.parametrize(("family", "name"), sorted(cells.published().items()))
def test_every_published_model_has_an_answer_on_every_stack(family, name):
    for stack in activations.stacks(name):
        totals = [activations.saved(name, sequence=512, stack=stack, recompute=each).total
                  for each in ("full", "selective", "none")]
        assert totals == sorted(totals), "recomputing more keeps less"


def test_mixtures_of_experts_name_their_implementation():
    with pytest.raises(ValueError, match=r"stack is 'hf-sdpa'.*hf-sdpa-grouped.*how experts are run"):
        activations.saved("mixtral-8x7b")
    with pytest.raises(ValueError, match="it has no experts"):
        activations.saved(LLAMA, stack="hf-sdpa-grouped")
    with pytest.raises(ValueError, match="eager attention only"):
        activations.saved("gemma-2-9b", stack="hf-sdpa")
    with pytest.raises(ValueError, match="depends on their tokens"):
        activations.peak("mixtral-8x7b", stack="hf-sdpa-loop")


@pytest.mark.parametrize(("change", "message"), [
    ({"batch": 0}, "batch is 0"),
    ({"sequence": 1}, "sequence is 1"),
    ({"sequence": 2.0}, "sequence is 2.0"),
    ({"dtype": "fp8"}, "dtype is 'fp8'"),
    ({"stack": "flash"}, "stack is 'flash'"),
    ({"recompute": "half"}, "recompute is 'half'"),
    ({"dropout": 0.1}, "dropout is 0.1"),
    ({"layout": Layout(tensor=2)}, "layout has tensor=2; for stack 'hf-sdpa' it must be 1"),
    ({"layout": Layout(pipeline=2)}, "layout has pipeline=2"),
    ({"layout": 8}, "layout is 8; it must be a Layout"),
])
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        activations.saved(LLAMA, **change)


@pytest.mark.parametrize("change", [{"output_router_logits": True}, {"router_jitter_noise": 0.1},
                                    {"gradient_checkpointing": True}])
def test_what_is_not_derived_is_refused(change):
    config = models.get("mixtral-8x7b").config | change
    with pytest.raises(ValueError, match=next(iter(change))):
        activations.saved(config, stack="hf-sdpa-grouped")


def test_an_unknown_choice_of_experts_is_refused():
    config = models.get("deepseek-v2-lite").config | {"topk_method": "noaux_tc"}
    with pytest.raises(ValueError, match="topk_method is 'noaux_tc'"):
        activations.saved(config, stack="hf-sdpa-grouped")


def test_a_bare_count_is_refused():
    with pytest.raises(ValueError, match="8,000,000,000"):
        activations.saved(8e9)


@pytest.mark.parametrize("answer", [
    lambda model: activations.peak(model, sequence=16, recompute="selective"),
    lambda model: activations.saved(model, sequence=16, recompute="selective"),
    lambda model: activations.tensors(model, sequence=16, recompute="selective"),
    lambda model: activations.flops_recomputed(model, sequence=16),
])
def test_a_models_tensors_are_not_gone_through_once_a_layer(answer, monkeypatch):
    # With 10,000 layers that would be a billion tensors to look at.
    asked, tensors = [], Model.tensors
    monkeypatch.setattr(Model, "tensors", lambda model: asked.append(model.layers) or tensors(model))
    for layers in (2, 40):
        answer(models.from_config({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 9,
                                   "intermediate_size": 5, "num_hidden_layers": layers}))
    assert 1 <= asked.count(40) == asked.count(2)


def test_gpt2_has_learnt_positions():
    with pytest.raises(ValueError, match="sequence is 1025"):
        activations.saved("gpt2", sequence=1025)


@settings(max_examples=40, deadline=None)
@given(model=small_models(), batch=st.integers(1, 4), sequence=st.integers(2, 64),
       stack=st.sampled_from(activations.ATTENTION), recompute=st.sampled_from(activations.RECOMPUTE))
def test_inventories_add_up(model, batch, sequence, stack, recompute):
    how = {"batch": batch, "sequence": sequence, "stack": stack, "recompute": recompute}
    kept = activations.tensors(model, **how)
    inventory = activations.saved(model, **how)
    assert inventory.total == _total(each for _, each in kept)
    assert {unit for unit, _ in kept} == {"root", *range(model.layers)}
    live = activations.live(model, **how).total
    assert inventory.total < live < activations.peak(model, **how).total


def test_a_dict_a_file_and_a_name_are_one_model(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(models.get(LLAMA).config), encoding="utf-8")
    totals = {activations.saved(each, sequence=64).total for each in (LLAMA, models.get(LLAMA).config, path)}
    assert len(totals) == 1


# Formulas from paper.


def _gpt3(**how):
    """GPT-3's shapes, at which 5as/h is 80 (Korthikanti et al., section 4.2.2)."""
    config = {"model_type": "gpt2", "n_embd": 12288, "n_head": 96, "n_layer": 96, "n_positions": 2048}
    return activations.saved(config, sequence=2048, **how)


def _layers(inventory, layers=96):
    """Bytes a layer: what is not the embedding, the head and the loss."""
    return sum(nbytes for name, nbytes in inventory.items()
               if name not in ("embedding dropout", "head input", "logits")) / layers


@pytest.mark.parametrize(("stack", "recompute", "factor"), [
    ("megatron", "none", lambda t: 10 + 24 / t + 80 / t),
    ("megatron-sp", "none", lambda t: 34 / t + 80 / t),
    ("megatron", "selective", lambda t: 10 + 24 / t),
    ("megatron-sp", "selective", lambda t: 34 / t),
    ("megatron", "full", lambda t: 2),
])
@pytest.mark.parametrize("tensor", [1, 8])
def test_korthikanti_table_2(stack, recompute, factor, tensor):
    """arXiv:2205.05198, Table 2, with 5as/h = 80 for GPT-3."""
    sbh = 2048 * 12288
    found = _layers(_gpt3(stack=stack, recompute=recompute, layout=Layout(tensor=tensor)))
    assert found == pytest.approx(sbh * factor(tensor), rel=1e-12)


def test_korthikanti_selective_saves_seventy_percent():
    """The paper's section 5: 70 % of GPT-3's activation memory."""
    whole, selective = (_layers(_gpt3(stack="megatron", recompute=each)) for each in ("none", "selective"))
    assert 1 - selective / whole == pytest.approx(0.70, abs=0.005)


def test_sequence_parallelism_and_selective_recomputation_save_five_times():
    """Korthikanti et al., abstract and section 5: together 5x less; GPT-3 and MT-NLG 530B, 8 GPUs a layer."""
    for hidden, heads in ((12288, 96), (20480, 128)):
        config = {"model_type": "gpt2", "n_embd": hidden, "n_head": heads, "n_layer": 96, "n_positions": 2048}
        how = {"sequence": 2048, "layout": Layout(tensor=8)}
        plain = _layers(activations.saved(config, stack="megatron", **how))
        both = _layers(activations.saved(config, stack="megatron-sp", recompute="selective", **how))
        assert plain / both == pytest.approx(5, abs=0.5)


@pytest.mark.parametrize(("hidden", "heads", "layers", "published"), [
    (12288, 96, 96, 0.027), (20480, 128, 105, 0.016)])
def test_korthikantis_flops_of_selective_recomputation_are_three_times_too_many(hidden, heads, layers, published):
    """Section 5 gives 2.7 % and 1.6 %: that is s/6h over 1 + s/6h, attention's share of forward and backward pass. Only
    its forward part, a third, is computed again: 0.9 % and 0.5 %.
    """
    config = {"model_type": "gpt2", "n_embd": hidden, "n_head": heads, "n_layer": layers, "n_positions": 2048}
    again = activations.flops_recomputed(config, sequence=2048, stack="hf-eager", recompute="selective")
    # Appendix A: 72BLsh²(1 + s/6h + v/12hL), here without the last term, the head's
    step = 72 * layers * 2048 * hidden**2 * (1 + 2048 / (6 * hidden))
    assert 3 * again / step == pytest.approx(published, abs=0.0005)
    assert again / step == pytest.approx(published / 3, abs=0.0003)


def test_korthikantis_times_show_a_second_forward_pass():
    """Table 4, a layer of the 22B model in ms: full recomputation adds one forward pass, selective a part of it that is
    larger than its share of the FLOPs, because softmax and dropout move bytes and multiply nothing."""
    forward, backward, full, selective = 7.7, 11.9, 19.5, 13.2
    config = {"model_type": "gpt2", "n_embd": 6144, "n_head": 64, "n_layer": 1, "n_positions": 2048}
    how = {"sequence": 2048, "batch": 4, "stack": "hf-eager"}
    whole, part = (activations.flops_recomputed(config, recompute=each, **how) for each in ("full", "selective"))
    assert (full - backward) / forward == pytest.approx(1, abs=0.02)
    assert part / whole < 0.09 < (selective - backward) / forward < 0.2


def test_megatrons_own_script_agrees():
    """NVIDIA/Megatron-LM, theoretical_memory_usage.py @00caa53: s·b·h(18 + 4·f/h)/TP a layer, for f = 4h the 34 of
    sequence parallelism with selective recomputation; 4sbh(1 + V/h) of head and logits where there is no pipeline;
    s·b·h(10 + 24/t) without sequence parallelism, to which the script adds 5 % of its own.
    """
    s, h, tensor, vocab = 2048, 12288, 8, 51200
    config = {"model_type": "gpt2", "n_embd": h, "n_head": 96, "n_layer": 96, "n_positions": s, "vocab_size": vocab}
    how = {"sequence": s, "recompute": "selective", "layout": Layout(tensor=tensor)}
    divided = activations.saved(config, stack="megatron-sp", **how)
    assert _layers(divided) == pytest.approx(s * h * (18 + 4 * 4) / tensor)
    assert divided["head input"] + divided["logits"] == pytest.approx(4 * s * h * (1 + vocab / h) / tensor)
    assert _layers(activations.saved(config, stack="megatron", **how)) == pytest.approx(s * h * (10 + 24 / tensor))


def test_the_first_stage_of_a_pipeline_keeps_as_much():
    """Section 4.2.3: p micro-batches in flight on L/p layers; section 4.3: the embedding's dropout p times, no head."""
    for stack in activations.MEGATRON:
        one, many = (_gpt3(stack=stack, layout=Layout(tensor=8, pipeline=stages)) for stages in (1, 16))
        assert _layers(many) == _layers(one)
        assert many["embedding dropout"] == 16 * one["embedding dropout"]
        assert "logits" not in many
    with pytest.raises(ValueError, match="layout has pipeline=7; it must divide the layers, which are 96"):
        _gpt3(stack="megatron", layout=Layout(pipeline=7))


def test_sequence_parallelism_is_the_stacks_name():
    divided = Layout(tensor=8, sequence_parallel=True)
    assert _gpt3(stack="megatron-sp", layout=divided) == _gpt3(stack="megatron-sp", layout=Layout(tensor=8))
    with pytest.raises(ValueError, match="with sequence parallelism the stack is 'megatron-sp'"):
        _gpt3(stack="megatron", layout=divided)


def test_megatron_takes_no_other_dtype():
    with pytest.raises(ValueError, match="dtype is 'fp32'"):
        _gpt3(stack="megatron", dtype="fp32")
    with pytest.raises(ValueError, match="layout has tensor=7; it must divide the attention heads, which are 96"):
        _gpt3(stack="megatron", layout=Layout(tensor=7))


def test_the_five_term_estimate():
    """Its 81.5 million numbers for a Llama-3.1-8B layer at 2,048 tokens are 17 % below torch's bytes at that length and
    163 % above at 8,192: it has attention's square, which fused attention does not keep."""
    estimate = activations.five_term(LLAMA, sequence=2048)
    assert estimate.total == 32 * (5 * 2048 * 4096 + 2 * 32 * 2048**2 + 2 * 2048 * 14336)
    for sequence, error in ((2048, -0.17), (8192, 1.63)):
        torch = activations.saved(LLAMA, sequence=sequence).total
        assert activations.five_term(LLAMA, sequence=sequence).total / torch - 1 == pytest.approx(error, abs=0.005)


def test_recomputed_flops():
    """A Llama layer again, without its last product: 2n(p − fh), and attention's 4As²d."""
    s, h, d, heads, kv_heads, f, layers = 1024, 4096, 128, 32, 8, 14336, 32
    weights = h * d * (2 * heads + 2 * kv_heads) + 3 * h * f
    attention = 4 * heads * s * s * d
    assert activations.flops_recomputed(LLAMA, sequence=s) == layers * (2 * s * (weights - f * h) + attention)
    assert activations.flops_recomputed(LLAMA, sequence=s, recompute="selective") == 0
    eager = activations.flops_recomputed(LLAMA, sequence=s, recompute="selective", stack="hf-eager")
    assert eager == layers * attention
    assert activations.flops_recomputed(LLAMA, sequence=s, recompute="none") == 0
