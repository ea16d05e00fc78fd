"""The formulas against tensors that really exist: a model on meta, matrices in every format, bitsandbytes' own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier import models, weights
from memtier.lab import weights as lab

# Relative rounding error of normally distributed numbers: what a format's mantissa allows, with room.
ERRORS = {"fp32": 0, "bf16": 0.003, "fp16": 0.0005, "fp8": 0.04, "fp8-tiles": 0.04, "mxfp8": 0.04, "mxfp6": 0.04,
          "int8": 0.01, "int8-rows": 0.015, "int4": 0.13, "mxfp4": 0.14, "nvfp4": 0.12}  # fmt: skip


@pytest.mark.parametrize("name", ["llama-3.1-405b", "gpt2", "pythia-6.9b", "deepseek-v3", "qwen1.5-moe-a2.7b"])
def test_whole_models_on_meta(name):
    router = "fp32" if models.get(name).family in weights.FP32_ROUTERS else None
    assert lab.on_meta(name) == weights.inventory(name, router=router)
    assert weights.inventory(name).total == 2 * models.get(name).parameters


def test_routers_in_fp32_are_the_only_difference():
    held = lab.on_meta("deepseek-v2-lite")
    assert held.without("router") == weights.inventory("deepseek-v2-lite").without("router")
    assert held["router"] == 2 * weights.inventory("deepseek-v2-lite")["router"]


def test_on_meta_takes_a_config_or_its_file(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(models.get("gpt2").config_json, "utf-8")
    expected = weights.inventory("gpt2", dtype="fp32")
    assert lab.on_meta(file, dtype="fp32") == lab.on_meta(models.get("gpt2").config, dtype="fp32") == expected
    with pytest.raises(ValueError, match="dtype is 'int8'; it must be one of fp32, bf16, fp16"):
        lab.on_meta("gpt2", dtype="int8")


def test_every_format_can_be_stored():
    assert set(lab.STORABLE) == set(ERRORS) == {name for name in weights.FORMATS if not name.startswith("nf4")}


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(lab.STORABLE), st.integers(1, 140), st.integers(1, 300), st.integers(0, 99))
def test_bytes_are_the_formulas(dtype, rows, width, seed):
    matrix = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    stored = lab.store(matrix, dtype)
    assert stored.nbytes == weights.FORMATS[dtype].nbytes((rows, width))
    restored = stored.restore()
    assert restored.shape == matrix.shape
    assert restored.isfinite().all()


@pytest.mark.parametrize("dtype", lab.STORABLE)
def test_numbers_come_back_rounded(dtype):
    matrix = torch.randn(129, 384, generator=torch.Generator().manual_seed(0)) * 0.02
    for numbers in (matrix, 1000 * matrix, matrix.abs(), torch.zeros(3, 40)):
        restored = lab.store(numbers, dtype).restore()
        assert (restored - numbers).norm() <= ERRORS[dtype] * numbers.norm()
        again = lab.store(restored, dtype).restore()  # what has been rounded can be stored again as it is
        assert (again - restored).norm() <= 0.2 * ERRORS[dtype] * numbers.norm()


def test_exact_numbers_stay_exact():
    four, six = torch.cat([lab.FP4, -lab.FP4]), torch.cat([lab.FP6, -lab.FP6])
    assert torch.equal(lab.store(four.repeat(3, 2), "mxfp4").restore(), four.repeat(3, 2))
    assert torch.equal(lab.store(2.0**-9 * six[None], "mxfp6").restore(), 2.0**-9 * six[None])
    assert torch.equal(lab.store(four[None] * 2.0**5, "mxfp4").restore(), four[None] * 2.0**5)
    codes = torch.arange(-127, 128.0)[None, :128]
    assert torch.equal(lab.store(codes, "int8").restore(), codes)
    nibbles = torch.arange(16.0)[None] - 5
    assert torch.equal(lab.store(nibbles, "int4").restore(), nibbles)


def test_floating_point_tables_are_those_of_the_formats():
    def value(code, exponent_bits, mantissa_bits):
        exponent, mantissa = code >> mantissa_bits, code & 2**mantissa_bits - 1
        bias = 2 ** (exponent_bits - 1) - 1
        if exponent == 0:
            return mantissa / 2**mantissa_bits * 2 ** (1 - bias)
        return (1 + mantissa / 2**mantissa_bits) * 2 ** (exponent - bias)

    assert lab.FP4.tolist() == [value(code, 2, 1) for code in range(8)]
    assert lab.FP6.tolist() == [value(code, 2, 3) for code in range(32)]


@given(st.sampled_from([4, 6, 8]), st.integers(1, 4), st.integers(1, 40), st.integers(0, 99))
def test_packing_loses_nothing(bits, rows, width, seed):
    codes = torch.randint(2**bits, (rows, width), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
    packed = lab.pack(codes, bits)
    assert packed.untyped_storage().nbytes() == rows * -(-width * bits // 8)
    assert torch.equal(lab.unpack(packed, bits, width), codes)


def test_what_cannot_be_stored():
    with pytest.raises(ValueError, match="dtype is 'nf4'; it must be one of"):
        lab.store(torch.zeros(2, 2), "nf4")
    for tensor in (torch.zeros(3), torch.full((2, 2), float("nan"))):
        with pytest.raises(ValueError, match="it must be a matrix of finite numbers"):
            lab.store(tensor, "int8")


@pytest.mark.parametrize("shape", [(64, 64), (100, 130), (3, 5), (512, 257)])
def test_bitsandbytes_nf4(shape):
    functional = pytest.importorskip("bitsandbytes.functional")
    for name, double in (("nf4", False), ("nf4-double", True)):
        packed, state = functional.quantize_4bit(torch.randn(shape), blocksize=64, quant_type="nf4",
                                                 compress_statistics=double)
        tensors = [packed, state.absmax, state.code]
        tensors += [state.state2.absmax, state.state2.code, state.offset] if double else []
        assert sum(each.numel() * each.element_size() for each in tensors) == weights.FORMATS[name].nbytes(shape)


def test_one_layer_in_three_precisions():
    small = {"model_type": "qwen2", "vocab_size": 64, "hidden_size": 96, "intermediate_size": 200,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    found = lab.one_layer(small, dtypes=("bf16", "int8", "mxfp4", "nvfp4"), layer=1)
    assert [each.dtype for each in found] == ["bf16", "int8", "mxfp4", "nvfp4"]
    assert [each.measured for each in found] == [each.predicted for each in found]
    assert found[0].measured > 1.8 * found[1].measured > 3 * found[2].measured
    assert [each.error <= ERRORS[each.dtype] for each in found] == [True] * 4
    with pytest.raises(ValueError, match="layer is 2; it must be a whole number from 0 to 1"):
        lab.one_layer(small, layer=2)


def test_experts_of_one_layer():
    small = {"model_type": "mixtral", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 40,
             "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 3}
    for each in lab.one_layer(small, dtypes=("fp8", "mxfp6", "nvfp4")):
        assert each.measured == each.predicted
