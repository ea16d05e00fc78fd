"""The explorers of weights say and draw what memtier.weights gives. test_explorers.py holds what all must."""

import json

import pytest

from memtier import kv_cache, live, models, tiers, units, weights

PRECISION, DECODE = live.get("weights.precision"), live.get("weights.decode")


def view(explorer, **values):
    return explorer.view(**explorer.defaults | values)


def size(nbytes):
    return units.format_bytes(nbytes, digits=4)


# Formats and GPUs


@pytest.mark.parametrize("dtype", sorted(weights.FORMATS))
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b", "gpt2"])
def test_a_format_takes_what_the_formula_gives(model, dtype):
    shown = view(PRECISION, model=model, dtype=dtype)
    held = weights.by_format(model, dtype=dtype)
    assert f"{model} in {dtype}: {size(held.total)} of weights" in shown.say
    bars = {row[0]: dict(zip(shown.figures[0].header[1:], row[1:], strict=True)) for row in shown.figures[0].rows}
    chosen = bars[f"{dtype} (chosen)"]
    assert chosen["numbers"] == size(held[dtype])
    assert chosen["total"] == size(held.total)
    if "scales" in held:
        assert chosen["scales"] == size(held["scales"])
    if "kept in bf16" in held:
        assert f"{size(held['kept in bf16'])}. The other matrices" in shown.note
        assert ("router" in shown.note) == (model == "qwen3-30b-a3b")
        assert ("head" in shown.note) == (model != "gpt2")  # gpt2's head is its embedding


def test_four_bits_are_not_a_quarter():
    assert "6.028 GB of weights, 2.66 times less than in bf16" in view(PRECISION, model="llama-3.1-8b",
                                                                       dtype="nvfp4").say
    assert "234.3 GB of weights, 3.46 times less" in view(PRECISION, dtype="nvfp4").say
    assert "shrink 3.56 times" in view(PRECISION, dtype="nvfp4").note
    assert "2.00 times as much as in bf16" in view(PRECISION, dtype="fp32").say


@pytest.mark.parametrize(("gpus", "dtype", "words"), [
    (8, "bf16", "They do not fit on 8 × NVIDIA H100 SXM of 80 GB; 11 are enough."),
    (11, "bf16", "They fit on 11 × NVIDIA H100 SXM, 73.79 GB on each."),
    (8, "fp8", "They fit on 8 × NVIDIA H100 SXM, 51.26 GB on each; 6 are enough."),
    (1, "nvfp4", "They do not fit on one NVIDIA H100 SXM of 80 GB; 3 are enough."),
])
def test_gpus_that_hold_405b(gpus, dtype, words):
    assert words in view(PRECISION, gpus=gpus, dtype=dtype).say


def test_the_line_of_what_gpus_hold_is_drawn_where_bars_can_be_compared_beside_it():
    assert view(PRECISION).figures[0].header[-1] == "8 × 80 GB"
    assert view(PRECISION, free=0.25).figures[0].header[-1] == "8 × 80 GB, 25 % kept free"
    assert view(PRECISION, model="llama-3.1-8b").figures[0].header[-1] == "total"


def test_gpus_needed_are_those_of_the_formula():
    for free, gpu in ((0, "h100-sxm"), (0.3, "b200")):
        limit = tiers.accelerator(gpu).memory.capacity
        shown = view(PRECISION, free=free, gpu=gpu, dtype="mxfp8")
        needed = {row[0].removesuffix(" (chosen)"): row[1] for row in shown.figures[1].rows}
        assert {"bf16", "nvfp4", "mxfp8"} < set(needed)
        for dtype, gpus in needed.items():
            assert int(gpus) == weights.gpus_needed("llama-3.1-405b", limit=limit, headroom=free, dtype=dtype)


def test_everything_may_be_stored_in_the_format():
    shown = view(PRECISION, model="llama-3.1-8b", dtype="nvfp4", everything=True)
    assert size(weights.inventory("llama-3.1-8b", dtype="nvfp4", keep=()).total) in shown.say
    assert "In bf16 stay norms and biases" in shown.note


def test_a_count_is_in_the_format_throughout_and_says_so():
    shown = view(PRECISION, model=70 * 10**9, dtype="nvfp4")
    assert "70 billion parameters in nvfp4: 39.38 GB" in shown.say
    assert "choose a model" in shown.note
    assert "choose a model" not in view(PRECISION, model=70 * 10**9).note


def test_a_readers_own_model_is_counted():
    own = models.get("qwen2.5-7b").config
    for explorer, words in ((PRECISION, size(weights.inventory("qwen2.5-7b").total)),
                            (DECODE, f"{weights.decode('qwen2.5-7b').tokens_per_second:.0f} tokens/s")):
        raw = {control.name: control.write(control.default) for control in explorer.controls}
        raw["model"] = {"choice": "own", "config": json.dumps(own)}
        assert words in json.loads(live.answer(json.dumps({"name": explorer.name, "values": raw})))["say"]


def test_the_predictions_give_the_numbers_they_start_from():
    eight, step = weights.inventory("llama-3.1-8b"), weights.decode("llama-3.1-8b")
    assert f"takes **{size(eight.total)}** in bf16" in PRECISION.predict.prompt
    lesson = PRECISION.predict.lesson(PRECISION.defaults | PRECISION.predict.values)
    assert lesson.startswith("A quarter would be 4.02 GB.")
    assert "13 % of the parameters" in lesson
    assert f"**{step.tokens_per_second:.0f} tokens/s**" in DECODE.predict.prompt
    assert f"a step takes {units.format_time(step.seconds, digits=2)}" in DECODE.predict.prompt


# One step


def test_the_moment_of_chapter_2():
    for batch, rate in ((1, "At most 209 tokens/s."), (32, "At most 6,675 tokens/s, 209 for each of 32 sequences.")):
        said = view(DECODE, batch=batch).say
        assert "reading takes 4.79 ms" in said
        assert "memory sets the pace" in said
        assert rate in said
        assert said.endswith("Computing takes as long from batch 296 on.")
    assert "arithmetic sets the pace" in view(DECODE, batch=296).say
    assert DECODE.predict.truth(DECODE.defaults | DECODE.predict.values) == 6675


@pytest.mark.parametrize("chosen", [
    {"batch": 48, "dtype": "fp8", "gpus": 4, "gpu": "h200-sxm", "model": "llama-3.1-70b"},
    {"batch": 8, "context": 32768, "model": "gemma-3-1b"},
    {"batch": 128, "model": "deepseek-v3", "gpus": 24, "dtype": "mxfp4"},
])
def test_a_step_is_what_the_formula_gives(chosen):
    context, asked = chosen.get("context", 0), {name: chosen[name] for name in ("batch", "dtype", "gpus")
                                                if name in chosen}
    kv = kv_cache.inventory(chosen["model"], batch=1, sequence=context).total if context else 0
    step = weights.decode(chosen["model"], accelerator=chosen.get("gpu", "h100-sxm"), kv=kv, **asked)
    shown = view(DECODE, **chosen)
    assert f"reading takes {units.format_time(step.memory_seconds)}" in shown.say
    assert f"computing {units.format_time(step.compute_seconds)}" in shown.say
    assert f"At most {step.tokens_per_second:,.0f} tokens/s" in shown.say
    lanes = shown.figures[0].rows
    assert [row[1] for row in lanes] == ["weights", *(["KV cache"] if kv else []), "computing"]
    assert lanes[-1][3] == units.format_time(step.compute_seconds)
    assert ("Experts that are read" in shown.note) == (chosen["model"] == "deepseek-v3")


def test_a_long_cache_keeps_memory_in_front():
    shown = view(DECODE, batch=32, context=8192)
    assert "No batch changes that: each sequence brings a KV cache" in shown.say
    assert "At most 2,126 tokens/s" in shown.say
    assert "do not fit" not in shown.note
    assert "of weights and KV cache do not fit into 80 GB" in view(DECODE, batch=128, context=8192).note
    assert "812 GB" not in view(DECODE).note
    assert "811.7 GB of weights do not fit into 80 GB" in view(DECODE, model="llama-3.1-405b").note
    assert "its KV cache is left out" in view(DECODE, model=8 * 10**9, context=8192).note


def test_both_curves_are_those_of_the_formula():
    shown = view(DECODE, dtype="nvfp4")
    for name, batch, rate in shown.figures[1].rows:
        if name in ("all together", "each sequence"):
            step = weights.decode("llama-3.1-8b", batch=int(batch.replace(",", "")), dtype="nvfp4")
            expected = step.tokens_per_second if name == "all together" else 1 / step.seconds
            assert float(rate.replace(",", "")) == pytest.approx(expected, rel=0.01)
