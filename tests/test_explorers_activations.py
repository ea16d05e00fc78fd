"""What the explorers of activations say and draw is what the formulas give."""

import json

import pytest

from memtier import activations, live, models, units
from memtier.live.explorers import activations as declared

SAVED, SEQUENCE = live.get("activations.saved"), live.get("activations.sequence")


def view(explorer, **values):
    return explorer.view(**explorer.defaults | values)


def size(nbytes):
    return units.format_bytes(nbytes, digits=4)


def test_the_moment_of_the_chapter():
    before, after = view(SAVED), view(SAVED, recompute="full")
    assert "57.12 GB wait for the backward pass, less than the GPU's 80 GB" in before.say
    assert "6.619 GB wait" in after.say
    assert "12 % of 57.12 GB; 68 % of what is kept lies outside the layers" in after.say
    assert "119 TFLOP a second time" in after.say
    assert SAVED.predict.truth(SAVED.defaults | SAVED.predict.values) == 6_618_775_564
    assert "68 % of that lies outside the layers" in SAVED.predict.lesson(SAVED.defaults | SAVED.predict.values)


@pytest.mark.parametrize("name", [name for name in models.names() if models.get(name).layers < 60])
@pytest.mark.parametrize("recompute", activations.RECOMPUTE)
def test_parts_add_up_to_what_is_kept(name, recompute):
    model = models.get(name)
    for stack in activations.stacks(model):
        how = {"batch": 2, "sequence": 64, "stack": stack, "recompute": recompute}
        parts = declared.by_part(model, **how)
        assert parts.total == activations.saved(model, **how).total
        assert set(parts) <= {*declared.PARTS, declared.OUTSIDE}


def test_layers_recomputed_keep_their_inputs_alone():
    parts = declared.by_part("llama-3.1-8b", batch=1, sequence=8192, stack="hf-sdpa", recompute="full")
    assert dict(parts) == {"inputs of layers": 2 * 32 * 8192 * 4096, declared.OUTSIDE: 4_471_291_916}


@pytest.mark.parametrize(("values", "stack"), [
    ({"attention": "eager"}, "hf-eager"),
    ({"attention": "sdpa-masked"}, "hf-sdpa-masked"),
    ({"model": "mixtral-8x7b"}, "hf-sdpa-grouped"),
    ({"model": "mixtral-8x7b", "attention": "eager"}, "hf-eager-grouped"),
    ({"model": "gemma-2-9b"}, "hf-eager"),
])
def test_the_stack_is_named_and_counted(values, stack):
    model = values.get("model", "llama-3.1-8b")
    kept = activations.saved(model, sequence=8192, stack=stack)
    shown = view(SAVED, **values)
    assert f"{stack}: {size(kept.total)} wait" in shown.say
    assert ("with hf-eager only" in shown.note) == (model == "gemma-2-9b")


def test_what_is_kept_is_drawn_beside_what_would_be():
    shown = view(SAVED, recompute="full", batch=2, dtype="fp32", sequence=1024).figures
    full, none = (activations.saved("llama-3.1-8b", batch=2, sequence=1024, dtype="fp32", recompute=each).total
                  for each in ("full", "none"))
    assert [row[0] for row in shown.rows] == ["recompute full", "nothing recomputed"]
    assert [row[-2] for row in shown.rows] == [size(full), size(none)]


def test_a_loss_in_pieces_takes_most_of_what_recomputation_left():
    kept = activations.saved("llama-3.1-8b", sequence=8192, recompute="full", loss="chunked").total
    assert f"{size(kept)} wait" in view(SAVED, recompute="full", loss="chunked").say


def test_capped_logits_are_computed_at_once():
    assert "caps its logits" in view(SAVED, model="gemma-2-9b", loss="fused").note
    assert view(SAVED, model="gemma-2-9b", loss="fused").say == view(SAVED, model="gemma-2-9b").say


def test_a_sequence_longer_than_learnt_positions_is_cut():
    assert "gpt2, 1 × 1,024 tokens" in view(SAVED, model="gpt2").say
    assert "learnt 1,024 positions" in view(SAVED, model="gpt2").note
    assert "1 × 512 tokens doubled to 1,024" in view(SEQUENCE, model="gpt2", sequence=4096).say


def test_doubling_is_two_times_fused_and_three_and_a_half_written_out():
    say = view(SEQUENCE, sequence=4096).say
    assert "fused (SDPA) 28.56 GB become 57.12 GB, 2.00 times" in say
    assert "written out (eager) 133.2 GB become 472.6 GB, 3.55 times" in say
    assert f"{SEQUENCE.predict.truth(SEQUENCE.defaults | SEQUENCE.predict.values):.2f}" == "3.55"
    assert view(SEQUENCE, sequence=4096, recompute="full").say.count("2.00 times") == 2


def test_the_curves_are_those_of_the_formulas():
    drawn = view(SEQUENCE).figures
    shown = {(row[0], row[1]): row[2] for row in drawn.rows}
    long = 131_072
    assert shown["fused (SDPA)", f"{long:,}"] == size(activations.saved("llama-3.1-8b", sequence=long).total)
    assert shown["written out (eager)", f"{long:,}"] == size(
        activations.saved("llama-3.1-8b", sequence=long, stack="hf-eager").total)
    assert shown["five-term estimate", f"{long:,}"] == size(activations.five_term("llama-3.1-8b", sequence=long).total)
    assert "fused" not in view(SEQUENCE, model="gemma-2-9b").say  # it runs with attention written out only


def test_a_readers_own_model_is_counted():
    own = models.get("llama-3.2-1b").config
    values = {control.name: control.write(control.default) for control in SAVED.controls}
    values["model"] = {"choice": "own", "config": json.dumps(own)}
    say = json.loads(live.answer(json.dumps({"name": SAVED.name, "values": values})))["say"]
    assert size(activations.saved(models.from_config(own), sequence=8192).total) in say


def test_a_loss_in_pieces_repeats_the_heads_product_and_its_baseline_is_named():
    """2nVh = 2 · 8,192 · 128,256 · 4,096 = 8.6 TFLOP beside the layers' 118.7; 52.92 GB without all logits at once."""
    head = 2 * 8192 * 128_256 * 4096
    layers = activations.flops_recomputed("llama-3.1-8b", sequence=8192)
    assert (round(head / 1e12, 1), round(layers / 1e12, 1)) == (8.6, 118.7)
    say = view(SAVED, recompute="full", loss="chunked").say
    assert "computes 127 TFLOP a second time" in say  # 118.7 + 8.6
    assert "of 52.92 GB with the loss in pieces and nothing recomputed" in say
    assert size(activations.saved("llama-3.1-8b", sequence=8192, loss="chunked").total) == "52.92 GB"
    assert "computes 8.61 TFLOP a second time" in view(SAVED, loss="chunked").say
    fused = view(SAVED, recompute="full", loss="fused").say
    assert "with a fused loss and nothing recomputed" in fused
    assert "119 TFLOP" in fused


def test_the_growth_is_said_in_three_digits():
    values = SEQUENCE.defaults | SEQUENCE.predict.values
    assert "It is **3.55**" in SEQUENCE.predict.reveal(5, values)


def test_a_guess_near_the_truth_does_not_hide_its_dot():
    """The diamond of 5 times lies over the dot of 3.55 times: the dot is drawn after it."""
    figure = view(SEQUENCE, **SEQUENCE.predict.values, guess=5).figures.html
    assert figure.index('d="M0-8 8 0') < figure.index("<circle")
