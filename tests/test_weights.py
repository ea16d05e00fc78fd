"""Bytes of weights by part and format, and what reading them costs: published figures, torch's counts, properties."""

import doctest
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import small_models

from memtier import models, tiers, weights
from memtier.weights import FORMATS, Format

BLOCKED = [name for name in FORMATS if name not in weights.PLAIN]
shapes = st.lists(st.integers(1, 300), min_size=1, max_size=3).map(tuple)
formats = st.sampled_from(sorted(FORMATS))


def test_the_examples_in_the_docstrings():
    failed, attempted = doctest.testmod(weights)
    assert attempted > 8
    assert failed == 0


# Formats


@pytest.mark.parametrize(
    ("name", "each"),
    [
        # OCP MX v1.0: 32 numbers and one byte of scale; NVFP4: 16 numbers and one byte.
        ("mxfp8", 1.03125), ("mxfp6", 0.78125), ("mxfp4", 0.53125), ("nvfp4", 0.5625),
        ("fp32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 1), ("int8-rows", 1),
        ("int8", 1 + 2 / 128), ("int4", 0.5 + 2.5 / 128), ("fp8-tiles", 1 + 4 / 128**2),
        ("nf4", 0.5 + 4 / 64), ("nf4-double", 0.5 + 1 / 64 + 4 / (64 * 256)),
    ],
)  # fmt: skip
def test_bytes_a_number(name, each):
    assert FORMATS[name].bytes_each == each


def test_double_quantisation_saves_what_qlora_says():
    # Dettmers et al., 2023, section 3: from 0.5 to 0.127 bits a parameter.
    assert (FORMATS["nf4"].bytes_each - 0.5) * 8 == 0.5
    assert (FORMATS["nf4-double"].bytes_each - 0.5) * 8 == pytest.approx(0.127, abs=0.0005)


def test_four_bits_are_not_a_quarter():
    assert 2 / FORMATS["nvfp4"].bytes_each == pytest.approx(3.56, abs=0.005)


@given(formats, st.integers(1, 20), st.integers(1, 8))
def test_where_blocks_divide_only_what_is_once_a_matrix_is_added(name, blocks, rows):
    form = FORMATS[name]
    sharing = 16384 if form.along == "tensor" else 256  # two of the largest groups; for "tensor", 256 groups
    height = 128 * rows if form.along == "tile" else rows
    shape = (height, sharing * blocks)
    row_scales = height * form.scale // 8 if form.group is None else 0
    assert form.nbytes(shape) == form.bytes_each * math.prod(shape) + form.once + row_scales


@given(formats, shapes)
def test_a_format_never_takes_less_than_its_bits(name, shape):
    form = FORMATS[name]
    assert form.elements(shape) * 8 >= math.prod(shape) * form.bits
    assert form.nbytes(shape) == form.elements(shape) + form.scales(shape) >= form.bytes_each * math.prod(shape) - 1e-6


@given(formats, st.integers(1, 5), st.integers(1, 80), st.integers(1, 300))
def test_experts_are_matrices_of_their_own(name, experts, rows, width):
    form = FORMATS[name]
    assert form.nbytes((experts, rows, width)) == experts * form.nbytes((rows, width))


@given(formats, shapes)
def test_a_wider_row_never_takes_less(name, shape):
    form = FORMATS[name]
    assert form.nbytes(shape) <= form.nbytes((*shape[:-1], shape[-1] + 1))


def test_rows_are_rounded_one_by_one():
    # 33 numbers are two blocks of MXFP4: 2 · 17 bytes, in each of three rows
    assert FORMATS["mxfp4"].nbytes((3, 33)) == 3 * 2 * 17
    # 17 are two blocks of NVFP4, and the matrix has one fp32 scale
    assert FORMATS["nvfp4"].nbytes((3, 17)) == 3 * 2 * 9 + 4
    # 129 4-bit codes are 65 bytes, two groups have 4 bytes of scales and one byte of two zero points
    assert FORMATS["int4"].nbytes((3, 129)) == 3 * (65 + 4 + 1)
    # 129 × 129 lie in four tiles of 128 × 128
    assert FORMATS["fp8-tiles"].nbytes((129, 129)) == 129**2 + 4 * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 0}, "bits is 0"),
        ({"along": "column"}, "along is 'column'; it must be one of row, tile, tensor"),
        ({"group": 0}, "group is 0"),
        ({"along": "tile", "group": None}, "group is None"),
        ({"scale": -8}, "scale is -8"),
        ({"once": 1.5}, "once is 1.5"),
    ],
)
def test_a_format_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Format(**{"name": "mine", "title": "mine", "bits": 4, "source": "mine"} | changes)


def test_a_format_of_ones_own():
    mine = Format("int2", "two bits, fp16 scale for 64", 2, "an example", group=64, scale=16)
    assert mine.bytes_each == 0.25 + 2 / 64
    assert weights.inventory(64e9, dtype=mine).total == 18e9


# By part


@pytest.mark.parametrize("name", models.names())
def test_plain_formats_are_bytes_times_parameters(name):
    model = models.get(name)
    for dtype, each in (("fp32", 4), ("bf16", 2), ("fp16", 2)):
        held = weights.inventory(name, dtype=dtype)
        assert dict(held) == {part: each * count for part, count in model.parts().items()}


@pytest.mark.parametrize("dtype", BLOCKED)
def test_what_stays_in_bf16(dtype):
    model = models.get("qwen3-30b-a3b")
    held, plain = weights.inventory(model, dtype=dtype), weights.inventory(model)
    for part in weights.KEPT:
        assert held[part] == plain[part]
    assert held["experts"] < 0.52 * plain["experts"]
    everything = weights.inventory(model, dtype=dtype, keep=())
    assert everything["norms"] == plain["norms"]  # vectors are never quantised
    assert everything["head"] < 0.52 * plain["head"]
    kept = weights.inventory(model, dtype=dtype, keep=["experts"], kept="fp32")
    assert kept["experts"] == 2 * plain["experts"]


def test_biases_stay_in_bf16():
    gpt2 = models.get("gpt2")  # every matrix has a bias
    biases = sum(each.numel for each in gpt2.tensors() if each.part == "mlp" and each.name.endswith("bias"))
    matrices = [each.shape for each in gpt2.tensors() if each.part == "mlp" and each.name.endswith("weight")]
    assert biases == 12 * (3072 + 768)
    assert weights.inventory(gpt2, dtype="mxfp4")["mlp"] == sum(map(FORMATS["mxfp4"].nbytes, matrices)) + 2 * biases


@settings(max_examples=40)
@given(small_models(), formats, st.lists(st.sampled_from(models.PARTS), unique=True))
def test_parts_and_formats_add_up_to_the_same(model, dtype, keep):
    by_part = weights.inventory(model, dtype=dtype, keep=keep)
    assert by_part.total == weights.by_format(model, dtype=dtype, keep=keep).total
    expected = dict.fromkeys(model.parts(), 0)
    for tensor in model.tensors():
        plain = tensor.part in keep or (len(tensor.shape) == 1 and dtype not in weights.PLAIN)
        expected[tensor.part] += FORMATS["bf16" if plain else dtype].nbytes(tensor.shape)
    assert dict(by_part) == expected


def test_by_format():
    shown = weights.by_format("llama-3.1-8b", dtype="nvfp4")
    assert list(shown) == ["nvfp4", "scales", "kept in bf16"]
    assert shown["scales"] == shown["nvfp4"] // 8 + 4 * 7 * 32  # a byte for 16 codes, 4 bytes for each of 224 matrices
    assert list(weights.by_format("llama-3.1-8b", dtype="bf16")) == ["bf16"]


def test_a_count():
    assert weights.inventory(70e9).total == 140e9
    assert weights.inventory("70B", dtype="mxfp4").total == 70e9 * 0.53125
    with pytest.raises(ValueError, match="a parameter count has no parts"):
        weights.inventory(70e9, dtype="mxfp4", keep=["head"])
    with pytest.raises(ValueError, match="model is the parameter count 70,000,000,000; shapes are needed here"):
        weights.by_format(70e9, dtype="mxfp4")


def test_bad_formats_and_parts():
    with pytest.raises(ValueError, match="dtype is 'fp5'; it must be one of fp32, bf16"):
        weights.inventory("gpt2", dtype="fp5")
    with pytest.raises(ValueError, match="keep is 'bias'; it must be one of embedding"):
        weights.inventory("gpt2", keep=["bias"])
    with pytest.raises(ValueError, match=r"keep is 'head'; it must be a list of parts, such as \['head'\]"):
        weights.inventory("gpt2", keep="head")


# GPUs


@given(st.sampled_from(["llama-3.1-8b", "llama-3.1-405b", 70e9]), st.sampled_from([24e9, 80e9, 141e9]),
       st.floats(0, 0.9), formats)
def test_the_smallest_number_of_gpus(model, limit, headroom, dtype):
    gpus = weights.gpus_needed(model, limit=limit, headroom=headroom, dtype=dtype)
    total, room = weights.inventory(model, dtype=dtype).total, limit * (1 - headroom)
    assert gpus * room >= total * (1 - 1e-12)
    assert gpus == 1 or (gpus - 1) * room < total


def test_gpus_that_hold_405b():
    assert weights.gpus_needed("llama-3.1-405b", limit=80e9, headroom=0) == 11
    assert weights.gpus_needed("llama-3.1-405b", limit=80e9, headroom=0.1, dtype="fp8") == 6
    assert weights.gpus_needed("llama-3.1-405b", limit=80e9, headroom=0.1, dtype="nvfp4") == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 0, "headroom": 0}, "limit is 0"),
        ({"limit": 80e9, "headroom": 1}, "headroom is 1; it must be below 1"),
        ({"limit": 80e9, "headroom": 1.5}, "headroom is 1.5; it must be a number from 0 to 1"),
    ],
)
def test_gpus_needed_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        weights.gpus_needed("gpt2", **arguments)


# Decoding


def test_the_moment_of_chapter_2():
    one, many = weights.decode("llama-3.1-8b"), weights.decode("llama-3.1-8b", batch=32)
    assert round(1e3 * one.seconds, 1) == round(1e3 * many.seconds, 1) == 4.8
    assert (round(one.tokens_per_second), round(many.tokens_per_second)) == (209, 6675)
    h100 = tiers.accelerator("h100-sxm")
    assert round(tiers.ridge_point(h100.flops, h100.memory.read)) == 295
    assert weights.memory_bound_until("llama-3.1-8b") == 296  # the first whole batch beyond 295.2
    assert weights.decode("llama-3.1-8b", batch=295).bound == "memory"
    assert weights.decode("llama-3.1-8b", batch=296).bound == "compute"


def test_fewer_bytes_a_weight_are_compute_bound_sooner():
    batches = [weights.memory_bound_until("llama-3.1-8b", dtype=dtype) for dtype in ("bf16", "fp8", "nvfp4")]
    assert batches == sorted(batches, reverse=True)
    assert weights.memory_bound_until(70e9, dtype="fp8") == 148


def test_a_long_cache_keeps_decoding_memory_bound():
    assert weights.memory_bound_until("llama-3.1-8b", kv=131072 * 8192) is None
    step = weights.decode("llama-3.1-8b", batch=2**20, kv=131072 * 8192)
    assert step.bound == "memory"
    assert step.read["KV cache"] == 2**20 * 131072 * 8192


@given(st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", 8e9]), st.sampled_from(["bf16", "fp8", "mxfp4"]),
       st.sampled_from([0, 1e6]), st.sampled_from(["whole", "rows"]))
def test_memory_bound_until_is_the_turning_point(model, dtype, kv, lookup):
    asked = {"dtype": dtype, "kv": kv, "lookup": lookup}
    batch = weights.memory_bound_until(model, **asked)
    here, before = (weights.decode(model, batch=each, **asked) for each in (batch, batch - 1))
    assert here.compute_seconds >= here.memory_seconds
    assert before.compute_seconds < before.memory_seconds


def test_gpus_share_and_rates_count():
    one, eight = (weights.decode("llama-3.1-70b", gpus=gpus, batch=4) for gpus in (1, 8))
    assert one.seconds == pytest.approx(8 * eight.seconds)
    assert weights.decode("llama-3.1-70b", flops=1e12).compute_seconds == pytest.approx(2 * 70_553_706_496 / 1e12)


@pytest.mark.parametrize(
    ("source", "seconds"),
    [("h100-sxm", 0.0421), ("h100-hbm", 0.0421), ("pcie5-x16", 2.24), ("micron-9550", 10.08), (88e6, 1603.5)],
)
def test_reading_70b_once(source, seconds):
    assert weights.read_time("llama-3.1-70b", source=source) == pytest.approx(seconds, rel=2e-3)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: weights.inventory("gpt2", keep=5), "keep is 5; it must be a list of parts"),
    (lambda: weights.inventory("gpt2", kept="fp5"), "kept is 'fp5'; it must be one of fp32"),
    (lambda: weights.inventory("gpt2", router="fp5"), "router is 'fp5'; it must be one of fp32"),
    (lambda: weights.by_format("gpt2", dtype="fp8", kept="fp5"), "kept is 'fp5'"),
    (lambda: weights.source_rate(np.bool_(True)), "source is np.True_"),
    (lambda: weights.inventory(1e9, keep=["head"]), "so name a model or give its config.json"),
])
def test_messages_name_the_readers_own_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_rate_may_be_of_any_kind_of_number():
    for rate in (10**9, 1e9, np.int64(10**9), Fraction(10**9)):
        assert weights.source_rate(rate) == (10**9, 0)


def test_sources_that_cannot_be_read():
    with pytest.raises(ValueError, match="source is 'h100-node-dram'; the ledger has no read rate"):
        weights.source_rate("h100-node-dram")
    with pytest.raises(ValueError, match="source is 'h1000'; it must be bytes a second as a number, or the name of"):
        weights.source_rate("h1000")
    with pytest.raises(ValueError, match="source is 0"):
        weights.source_rate(0)
    assert weights.source_rate(tiers.link("pcie5-x16")) == (63e9, 0.0)
    assert weights.source_rate(tiers.accelerator("h100-sxm")) == weights.source_rate(tiers.get("h100-hbm"))


@given(st.integers(1, 40), st.integers(1, 40))
def test_streams_share_the_reading(streams, batch):
    one, many = (weights.read_time(8e9, source=1e9, batch=batch, streams=each) for each in (1, streams))
    assert one == pytest.approx(streams * many)


# Experts


@pytest.mark.parametrize(("experts", "per_token", "batch"), [(4, 2, 1), (4, 2, 2), (4, 1, 3), (5, 3, 2), (3, 3, 2)])
def test_distinct_experts_by_enumeration(experts, per_token, batch):
    choices = list(itertools.combinations(range(experts), per_token))
    sizes = [len(set().union(*tokens)) for tokens in itertools.product(choices, repeat=batch)]
    assert weights.distinct_experts(experts, per_token, batch) == pytest.approx(sum(sizes) / len(sizes))


@pytest.mark.parametrize("name", [name for name in models.names() if models.get(name).experts])
def test_one_token_reads_the_active_parameters(name):
    model = models.get(name)
    assert weights.read(name).total == 2 * model.active_parameters
    whole = weights.inventory(name)
    reads = [weights.read(name, batch=batch)["experts"] for batch in (1, 2, 16, 10**6)]
    assert reads == sorted(reads)
    assert reads[-1] == pytest.approx(whole["experts"])
    for batch in (1, 7):
        assert weights.read(name, batch=batch).without("experts") == whole.without("experts")


def test_looking_up_rows():
    untied, tied, gpt2 = models.get("llama-3.1-8b"), models.get("llama-3.2-1b"), models.get("gpt2")
    assert weights.read(untied, batch=3, lookup="rows")["embedding"] == 3 * 4096 * 2
    assert weights.read(untied, batch=10**6, lookup="rows")["embedding"] == 2 * untied.parts()["embedding"]
    assert weights.read(tied, batch=3, lookup="rows") == weights.inventory(tied)
    # a tied table is read as the head, of the learnt positions only the tokens' own
    assert weights.read(gpt2, batch=3, lookup="rows")["embedding"] == 2 * (50257 + 3) * 768
    assert weights.read(8e9, lookup="rows").total == 16e9
    with pytest.raises(ValueError, match="lookup is 'none'; it must be one of whole, rows"):
        weights.read(untied, lookup="none")


def test_a_configuration_that_does_not_say_how_many_experts():
    config = json.loads(models.get("qwen3-30b-a3b").config_json) | {"num_experts_per_tok": None}
    with pytest.raises(ValueError, match="num_experts_per_tok is null"):
        weights.read(models.from_config(config))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1), "experts is 0"),
        ((4, 5, 1), "per_token is 5; it must be a whole number from 1 to 4"),
        ((4, 2, 0), "batch is 0"),
    ],
)
def test_distinct_experts_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        weights.distinct_experts(*arguments)


@given(st.integers(1, 10**6), st.integers(1, 10**7))
def test_first_finds_the_turning_point(turn, most):
    assert weights.first(lambda number: number >= turn, most=most) == (turn if turn <= most else most)
