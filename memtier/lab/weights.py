"""Weights in torch: a whole model counted on the meta device, and one layer really stored in each format.

The measured side of memtier.weights. Formats that a CPU has no arithmetic for are emulated, but their bytes are real:
codes packed bit by bit into tensors, scales in tensors beside them, counted by storage. Seen with torch 2.13.0.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from memtier import checks, models, weights
from memtier.inventory import Inventory

PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FP8 = torch.float8_e4m3fn
FP8_MOST = torch.finfo(FP8).max  # 448
# The eight magnitudes of FP4 (E2M1) and the 32 of FP6 (E2M3), in the order of their codes.
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FP6 = torch.tensor([m / 8 for m in range(8)] + [(1 + m / 8) * 2**e for e in range(3) for m in range(8)])
# Of parts by names in transformers; the first that fits.
PART_NAMES = (
    ("head", ("lm_head", "embed_out")),
    ("embedding", ("embed_tokens", "embed_in", "wte", "wpe")),
    ("norms", ("norm", ".ln_")),
    ("experts", (".experts.",)),
    ("router", (".gate.", "shared_expert_gate")),
    ("attention", ("attn", "attention")),
    ("mlp", ("mlp",)),
)


def on_meta(config: Mapping | str | Path, *, dtype: str = "bf16") -> Inventory:
    """Bytes by part of the model that transformers builds from a config, which takes no memory on the meta device.

    config: a config.json's content, its path, or a name of models' registry. dtype: "fp32", "bf16" or "fp16", as asked
    of transformers, which holds a few parts in fp32 all the same (weights.FP32_ROUTERS).
    """
    checks.one_of("dtype", dtype, PLAIN)
    if isinstance(config, (str, Path)):
        config = models.get(config).config if config in models.names() else json.loads(Path(config).read_text("utf-8"))
    total = dict.fromkeys(models.PARTS, 0)
    keys = dict(config)
    settings = CONFIG_MAPPING[keys.pop("model_type")](**keys)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(settings, dtype=PLAIN[dtype])
    for name, parameter in model.named_parameters():
        part = next(part for part, endings in PART_NAMES if any(each in name for each in endings))
        total[part] += parameter.numel() * parameter.element_size()
    return Inventory({part: nbytes for part, nbytes in total.items() if nbytes}, f"torch, on meta, in {dtype}")


@dataclass(frozen=True)
class Stored:
    """One tensor in a format: the torch tensors that hold it. `restore` gives its numbers back, rounded."""

    dtype: str
    shape: tuple[int, ...]
    tensors: dict[str, torch.Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes of the storages, each once."""
        storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in self.tensors.values()}
        return sum(storages.values())

    def restore(self) -> torch.Tensor:
        """The numbers in fp32."""
        return _RESTORE[self.dtype](self).reshape(self.shape)


def store(tensor: torch.Tensor, dtype: str) -> Stored:
    """Store a matrix in a format: round its numbers, pack their codes, keep their scales.

    dtype: a name of weights.FORMATS, except the "nf4" ones, which are bitsandbytes' own to make.
    Raises ValueError for another name, and for a tensor that is not a matrix of finite numbers.
    """
    checks.one_of("dtype", dtype, STORABLE)
    if tensor.ndim != 2 or not tensor.isfinite().all():
        raise ValueError(f"tensor has the shape {tuple(tensor.shape)}; it must be a matrix of finite numbers")
    return Stored(dtype, tuple(tensor.shape), _STORE[dtype](tensor.float(), weights.get(dtype)))


@dataclass(frozen=True)
class Layer:
    """One layer's tensors in one format. measured: bytes of torch's storages; predicted: by memtier.weights.

    error: of the restored numbers, root mean square over that of the numbers themselves.
    """

    dtype: str
    measured: int
    predicted: int
    error: float


def one_layer(model="llama-3.2-1b", *, dtypes: Iterable[str] = ("bf16", "int8", "mxfp4"), layer: int = 0,
              seed: int = 0) -> tuple[Layer, ...]:
    """Store one layer of random weights in each of `dtypes`; vectors (norms, biases) stay in bf16.

    model: what models.resolve takes, with shapes. Takes some seconds and 1 GB for a layer of 60 million parameters.
    """
    model = weights.shaped(model)
    checks.whole("layer", layer, least=0, most=model.layers - 1)
    tensors = [tensor for tensor in model.tensors() if tensor.unit == layer]
    found = []
    for dtype in dtypes:
        checks.one_of("dtypes", dtype, STORABLE)
        generator = torch.Generator().manual_seed(seed)
        measured = predicted = 0
        wrong = right = 0.0
        for tensor in tensors:
            used = dtype if len(tensor.shape) > 1 else "bf16"
            predicted += weights.get(used).nbytes(tensor.shape)
            numbers = torch.randn(tensor.shape, generator=generator) * 0.02
            for matrix in numbers.reshape(-1, *tensor.shape[-2:]) if len(tensor.shape) > 1 else [numbers[None]]:
                kept = store(matrix, used)
                measured += kept.nbytes
                wrong += (kept.restore() - matrix).square().sum().item()
                right += matrix.square().sum().item()
        found.append(Layer(dtype, measured, predicted, math.sqrt(wrong / right)))
    return tuple(found)


# Codes of a few bits, packed into bytes


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Rows of codes below 2**bits as rows of bytes, the lowest bits first; each row starts on a whole byte."""
    each = 8 // math.gcd(bits, 8)  # so many codes fill whole bytes
    words = torch.nn.functional.pad(codes.int(), (0, -codes.shape[1] % each)).unflatten(1, (-1, each))
    word = sum(words[..., place] << bits * place for place in range(each))
    packed = torch.stack([word >> 8 * place & 255 for place in range(bits * each // 8)], -1).to(torch.uint8)
    return packed.flatten(1)[:, : math.ceil(codes.shape[1] * bits / 8)].clone()


def unpack(packed: torch.Tensor, bits: int, width: int) -> torch.Tensor:
    """The inverse of pack: the first `width` codes of each row."""
    each = 8 // math.gcd(bits, 8)
    size = bits * each // 8
    words = torch.nn.functional.pad(packed.int(), (0, -packed.shape[1] % size)).unflatten(1, (-1, size))
    word = sum(words[..., place] << 8 * place for place in range(size))
    codes = torch.stack([word >> bits * place & 2**bits - 1 for place in range(each)], -1)
    return codes.flatten(1)[:, :width].to(torch.uint8)


def _encode(numbers: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Codes of the nearest magnitudes of the grid, the sign above them."""
    nearest = torch.bucketize(numbers.abs(), (grid[1:] + grid[:-1]) / 2)
    return nearest + len(grid) * (numbers < 0)


def _decode(codes: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    codes = codes.long()
    return grid[codes % len(grid)] * torch.where(codes < len(grid), 1.0, -1.0)


# Formats, each with its way in and its way out


def _blocks(matrix: torch.Tensor, size: int) -> torch.Tensor:
    """[rows, blocks, size], the last block of each row filled up with zeros."""
    padded = torch.nn.functional.pad(matrix, (0, -matrix.shape[1] % size))
    return padded.reshape(len(matrix), -1, size)


def _flat(blocks: torch.Tensor, width: int) -> torch.Tensor:
    """Rows of blocks as rows of numbers, the filling left off."""
    return blocks.flatten(1)[:, :width].contiguous()


def _store_plain(matrix, layout):
    return {"numbers": matrix.to(PLAIN[layout.name])}


def _restore_plain(stored):
    return stored.tensors["numbers"].float()


def _store_fp8(matrix, layout):
    scale = (matrix.abs().amax() / FP8_MOST).clamp(min=torch.finfo(torch.float32).tiny)
    return {"numbers": (matrix / scale).to(FP8), "scale": scale}


def _restore_fp8(stored):
    return stored.tensors["numbers"].float() * stored.tensors["scale"]


def _spread(scales: torch.Tensor, size: int, shape) -> torch.Tensor:
    """A scale for each tile as a scale for each number."""
    return scales.repeat_interleave(size, 0).repeat_interleave(size, 1)[: shape[0], : shape[1]]


def _store_tiles(matrix, layout):
    height, width = (-size % layout.group for size in matrix.shape)
    tiles = torch.nn.functional.pad(matrix.abs(), (0, width, 0, height))
    tiles = tiles.unflatten(1, (-1, layout.group)).unflatten(0, (-1, layout.group))
    scales = (tiles.amax((1, 3)) / FP8_MOST).clamp(min=torch.finfo(torch.float32).tiny)
    return {"numbers": (matrix / _spread(scales, layout.group, matrix.shape)).to(FP8), "scales": scales}


def _restore_tiles(stored):
    size = weights.get(stored.dtype).group
    return stored.tensors["numbers"].float() * _spread(stored.tensors["scales"], size, stored.shape)


def _store_int8(matrix, layout):
    groups = _blocks(matrix, layout.group or matrix.shape[1])
    kind = torch.float16 if layout.scale == 16 else torch.float32
    scales = (groups.abs().amax(-1) / 127).to(kind).clamp(min=torch.finfo(kind).tiny)
    codes = (groups / scales.float()[..., None]).round().clamp(-127, 127).to(torch.int8)
    return {"codes": _flat(codes, matrix.shape[1]), "scales": scales}


def _restore_int8(stored):
    size = weights.get(stored.dtype).group or stored.shape[1]
    groups = _blocks(stored.tensors["codes"].float(), size)
    return _flat(groups * stored.tensors["scales"].float()[..., None], stored.shape[1])


def _store_int4(matrix, layout):
    """Codes 0 to 15 stand for scale · (code − zero); a group's range is stretched to hold 0, so that zero fits."""
    groups = _blocks(matrix, layout.group)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).half().clamp(min=torch.finfo(torch.float16).tiny)
    zeros = (-low / scales.float()).round().clamp(0, 15)
    codes = ((groups / scales.float()[..., None]).round() + zeros[..., None]).clamp(0, 15)
    return {"codes": pack(_flat(codes, matrix.shape[1]), 4), "scales": scales, "zeros": pack(zeros, 4)}


def _restore_int4(stored):
    scales, size = stored.tensors["scales"].float(), weights.get(stored.dtype).group
    zeros = unpack(stored.tensors["zeros"], 4, scales.shape[1]).float()
    codes = _blocks(unpack(stored.tensors["codes"], 4, stored.shape[1]).float(), size)
    return _flat((codes - zeros[..., None]) * scales[..., None], stored.shape[1])


def _store_mx(matrix, layout):
    """A block's scale is the power of two that brings its largest number into the range of the element format."""
    blocks = _blocks(matrix, layout.group)
    largest = blocks.abs().amax(-1)
    most = {8: 8, 6: 2, 4: 2}[layout.bits]  # exponent of the largest number of FP8 E4M3, FP6 E2M3 and FP4 E2M1
    # frexp's mantissa lies in [1/2, 1), so a number's exponent is one less than frexp's
    exponents = torch.where(largest > 0, largest.frexp().exponent - 1 - most, -127).clamp(-127, 127)
    scaled = blocks * torch.exp2(-exponents.float())[..., None]
    scales = (exponents + 127).to(torch.uint8)  # E8M0: an exponent, biased by 127
    if layout.bits == 8:
        return {"numbers": scaled.clamp(-FP8_MOST, FP8_MOST).to(FP8).flatten(1), "scales": scales}
    codes = _encode(scaled, FP6 if layout.bits == 6 else FP4)
    return {"codes": pack(codes.flatten(1), layout.bits), "scales": scales}


def _restore_mx(stored):
    layout, scales = weights.get(stored.dtype), stored.tensors["scales"]
    width = scales.shape[1] * layout.group
    if layout.bits == 8:
        numbers = stored.tensors["numbers"].float()
    else:
        codes = unpack(stored.tensors["codes"], layout.bits, width)
        numbers = _decode(codes, FP6 if layout.bits == 6 else FP4)
    blocks = numbers.reshape(len(scales), -1, layout.group) * torch.exp2(scales.float() - 127)[..., None]
    return _flat(blocks, stored.shape[1])


def _store_nvfp4(matrix, layout):
    """A block's scale is FP8, in units of one fp32 scale that brings the largest of them to the top of FP8's range."""
    blocks = _blocks(matrix, layout.group)
    whole = (matrix.abs().amax() / (FP8_MOST * FP4[-1])).clamp(min=torch.finfo(torch.float32).tiny)
    scales = (blocks.abs().amax(-1) / FP4[-1] / whole).to(FP8)
    each = (scales.float() * whole).clamp(min=torch.finfo(torch.float32).tiny)
    codes = _encode(blocks / each[..., None], FP4)
    return {"codes": pack(codes.flatten(1), 4), "scales": scales, "scale": whole}


def _restore_nvfp4(stored):
    scales = stored.tensors["scales"].float() * stored.tensors["scale"]
    size = weights.get(stored.dtype).group
    blocks = _decode(unpack(stored.tensors["codes"], 4, scales.shape[1] * size), FP4).reshape(len(scales), -1, size)
    return _flat(blocks * scales[..., None], stored.shape[1])


_STORE = dict.fromkeys(PLAIN, _store_plain) | {
    "fp8": _store_fp8, "fp8-tiles": _store_tiles, "int8": _store_int8, "int8-rows": _store_int8, "int4": _store_int4,
    "mxfp8": _store_mx, "mxfp6": _store_mx, "mxfp4": _store_mx, "nvfp4": _store_nvfp4,
}  # fmt: skip
_RESTORE = dict.fromkeys(PLAIN, _restore_plain) | {
    "fp8": _restore_fp8, "fp8-tiles": _restore_tiles, "int8": _restore_int8, "int8-rows": _restore_int8,
    "int4": _restore_int4, "mxfp8": _restore_mx, "mxfp6": _restore_mx, "mxfp4": _restore_mx, "nvfp4": _restore_nvfp4,
}  # fmt: skip
STORABLE = tuple(_STORE)  # names of weights.FORMATS
