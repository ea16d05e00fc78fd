"""Weights: their bytes by part and by format, the GPUs that hold them, and the time that reading them takes.

    bytes = Σ over tensors of (elements + scales)        seconds a step = max(bytes / bandwidth, FLOPs / FLOP/s)

A format of few bits is more than its bits: the scales that turn its codes back into numbers are bytes too. Block
formats store whole blocks, so a row that a block does not divide is rounded up, row by row.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real

from memtier import checks, models, tiers
from memtier.inventory import Inventory

ALONG = ("row", "tile", "tensor")


@dataclass(frozen=True)
class Format:
    """How the numbers of a tensor are stored.

    bits: of one number. group: how many numbers share a scale, None where a whole row does (if there is a scale).
    along: "row", groups run along each row, the last dimension; "tile", squares of group × group numbers of a matrix;
    "tensor", along the flattened matrix. scale, zero: bits of a group's scale and of its zero point.
    padded: the last group of a row is stored whole. again: this many scales share one more fp32 scale.
    once: bytes once a matrix (a scale, a table of values). source: who stores it that way.
    """

    name: str
    title: str
    bits: int
    source: str
    group: int | None = None
    scale: int = 0
    zero: int = 0
    along: str = "row"
    padded: bool = False
    again: int | None = None
    once: int = 0

    def __post_init__(self):
        checks.whole("bits", self.bits)
        checks.one_of("along", self.along, ALONG)
        checks.flag("padded", self.padded)
        if self.group is not None or self.along != "row" or self.padded or self.again is not None:
            checks.whole("group", self.group)
        if self.again is not None:
            checks.whole("again", self.again)
        for name in ("scale", "zero", "once"):
            checks.whole(name, getattr(self, name), least=0)

    @property
    def bytes_each(self) -> float:
        """Bytes a number, scales included, of a large matrix whose rows the groups divide.

        What is stored once a matrix or once a row does not count.

        >>> FORMATS["mxfp4"].bytes_each, FORMATS["nvfp4"].bytes_each
        (0.53125, 0.5625)
        """
        if self.group is None:
            return self.bits / 8
        sharing = self.group**2 if self.along == "tile" else self.group
        again = 32 / self.again if self.again else 0
        return (self.bits + (self.scale + self.zero + again) / sharing) / 8

    def elements(self, shape: tuple[int, ...]) -> int:
        """Bytes of the numbers themselves, with the padding of their last blocks; each row starts on a whole byte."""
        matrices, rows, width = self._rows(shape)
        if self.padded:
            width = _ceil(width, self.group) * self.group
        return matrices * rows * _ceil(width * self.bits, 8)

    def scales(self, shape: tuple[int, ...]) -> int:
        """Bytes of the scales, zero points and tables that belong to the tensor."""
        matrices, rows, width = self._rows(shape)
        if self.along == "tile":
            rows = _ceil(rows, self.group)
        groups = 1 if self.group is None else _ceil(width, self.group)
        again = 4 * _ceil(groups, self.again) if self.again else 0
        return matrices * (rows * (_ceil(groups * self.scale, 8) + _ceil(groups * self.zero, 8) + again) + self.once)

    def _rows(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """How many matrices (each expert is one), rows in each, and numbers in a row."""
        matrices, height, width = math.prod(shape[:-2]), math.prod(shape[-2:-1]), shape[-1]
        return (matrices, 1, height * width) if self.along == "tensor" else (matrices, height, width)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape: elements + scales.

        >>> FORMATS["nvfp4"].nbytes((4096, 4096)) / 4096**2    # the 4 bytes of the matrix's own scale are the rest
        0.5625002384185791
        """
        return self.elements(shape) + self.scales(shape)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


_MX = "OCP Microscaling Formats (MX) v1.0, 2023-09: blocks of 32 share an 8-bit power of two"
_BNB = "bitsandbytes 0.50.2: blocks of 64 along the flattened matrix share an fp32 maximum; Dettmers et al., 2023, " \
       "arXiv:2305.14314"

FORMATS = {each.name: each for each in (
    Format("fp32", "32-bit floating point", 32, "IEEE 754"),
    Format("bf16", "bfloat16", 16, "one number, 2 bytes"),
    Format("fp16", "16-bit floating point", 16, "IEEE 754"),
    Format("fp8", "8-bit floating point, one fp32 scale a matrix", 8,
           "Micikevicius et al., 2022, arXiv:2209.05433", once=4),
    Format("fp8-tiles", "8-bit floating point, an fp32 scale for each 128 × 128 tile", 8,
           "DeepSeek-V3, 2024, arXiv:2412.19437, section 3.3", group=128, scale=32, along="tile"),
    Format("int8", "8-bit integers, an fp16 scale for each 128 of a row", 8,
           "symmetric groups, as GPTQ's, arXiv:2210.17323", group=128, scale=16),
    Format("int8-rows", "8-bit integers, an fp32 scale a row", 8,
           "LLM.int8(), Dettmers et al., 2022, arXiv:2208.07339", scale=32),
    Format("int4", "4-bit integers, an fp16 scale and a 4-bit zero point for each 128 of a row", 4,
           "AWQ, Lin et al., 2023, arXiv:2306.00978; GPTQ, arXiv:2210.17323", group=128, scale=16, zero=4),
    Format("nf4", "4-bit NormalFloat, an fp32 scale for each 64, a table of 16 values", 4, _BNB,
           group=64, scale=32, along="tensor", once=64),
    Format("nf4-double", "4-bit NormalFloat, its scales in 8 bits again, by 256", 4, _BNB,
           group=64, scale=8, along="tensor", again=256, once=64 + 1024 + 4),
    Format("mxfp8", "MXFP8: blocks of 32", 8, _MX, group=32, scale=8, padded=True),
    Format("mxfp6", "MXFP6: blocks of 32", 6, _MX, group=32, scale=8, padded=True),
    Format("mxfp4", "MXFP4: blocks of 32", 4, _MX, group=32, scale=8, padded=True),
    Format("nvfp4", "NVFP4: blocks of 16, an 8-bit floating-point scale each and an fp32 scale a matrix", 4,
           "NVIDIA, Introducing NVFP4, 2025-06", group=16, scale=8, padded=True, once=4),
)}

KEPT = ("embedding", "norms", "router", "head")  # parts that usually stay in bf16 when the rest is quantised
PLAIN = ("fp32", "bf16", "fp16")  # formats of one number at a time, for every part alike
FP32_ROUTERS = ("deepseek_v2", "deepseek_v3")  # families whose routers transformers 5.24.0 holds in fp32


def get(name: "str | Format", argument: str = "dtype") -> Format:
    """The format of this name; a Format is given back. argument: what messages call it.

    Raises ValueError for a name that is not in FORMATS.
    """
    return name if isinstance(name, Format) else FORMATS[checks.one_of(argument, name, FORMATS)]


def inventory(model, *, dtype="bf16", keep: Iterable[str] | None = None, kept="bf16", router=None) -> Inventory:
    """Bytes of the weights by part.

    model: a Model (exact, tensor by tensor), or a parameter count (everything in dtype, one entry "weights").
    dtype: a Format or its name. keep: parts that are stored as `kept` instead; left out, none for a PLAIN dtype and
    KEPT for the others. Tensors of one dimension (biases, norms) are always kept when dtype is not plain.
    router: the format of the routers, where they have one of their own: transformers holds those of the families in
    FP32_ROUTERS in "fp32", whatever it is asked for. A tied head is the embedding, once.
    Raises ValueError for an unknown format or part, and for keep with a count, which has no parts.

    >>> inventory("llama-3.1-8b").total
    16060522496
    """
    model, dtype, kept, keep = models.resolve(model), get(dtype), get(kept, "kept"), _kept_parts(dtype, keep)
    router = None if router is None else get(router, "router")
    if not isinstance(model, models.Model):
        if keep and keep != KEPT:
            raise ValueError(f"keep is {checks.brief(keep)}; a parameter count has no parts, so name a model or give"
                             " its config.json")
        return Inventory({"weights": _whole(model * dtype.bytes_each)}, f"weights in {dtype.name}, scales included")
    total = dict.fromkeys(models.PARTS, 0)
    for (shape, part), times in _alike(model):
        used = router if router and part == "router" else _format(shape, part, dtype, keep, kept)
        total[part] += times * used.nbytes(shape)
    total = {part: nbytes for part, nbytes in total.items() if nbytes}
    return Inventory(total, f"weights of {model.name} in {dtype.name}")


def by_format(model, *, dtype, keep: Iterable[str] | None = None, kept="bf16") -> Inventory:
    """The same bytes by what they are: numbers in dtype (padding included), their scales, and what is kept.

    Arguments as for `inventory`, but a Model is needed. A dtype without scales has no entry for them.
    """
    model, dtype, kept, keep = shaped(model), get(dtype), get(kept, "kept"), _kept_parts(dtype, keep)
    total = {dtype.name: 0, "scales": 0, f"kept in {kept.name}": 0}
    for (shape, part), times in _alike(model):
        used = _format(shape, part, dtype, keep, kept)
        if used is dtype:
            total[dtype.name] += times * dtype.elements(shape)
            total["scales"] += times * dtype.scales(shape)
        else:
            total[f"kept in {kept.name}"] += times * used.nbytes(shape)
    return Inventory({name: nbytes for name, nbytes in total.items() if nbytes},
                     f"weights of {model.name} in {dtype.name}")


def gpus_needed(model, *, limit: float, headroom: float, dtype="bf16", keep: Iterable[str] | None = None) -> int:
    """The smallest number of GPUs that together hold the weights, divided evenly.

    limit: bytes of one GPU. headroom: the share of it, 0 to below 1, left for KV cache, activations and workspace.
    Even division is the best case: tensor parallelism repeats what it cannot divide, and asks for a number that
    divides the heads.

    >>> gpus_needed("llama-3.1-405b", limit=80e9, headroom=0.2)
    13
    """
    checks.positive("limit", checks.single("limit", limit))
    if checks.fraction("headroom", checks.single("headroom", headroom)) == 1:
        raise ValueError("headroom is 1; it must be below 1, or no room is left for weights")
    needed = inventory(model, dtype=dtype, keep=keep).total / (1 - headroom) / limit
    return max(1, math.ceil(checks.not_negative("weights / limit", needed)))


# What a token reads


def distinct_experts(experts: int, per_token: int, batch: int) -> float:
    """How many experts of a layer at least one of `batch` tokens is sent to, expected: E·(1 − (1 − k/E)^batch).

    A token leaves an expert out with probability 1 − k/E, and all tokens do with that to the power of batch. This
    assumes that every expert is as likely as another and that tokens choose independently. Real routers are uneven,
    and neighbouring tokens alike, so they read fewer.

    >>> round(distinct_experts(256, 8, 32), 1)
    163.3
    """
    checks.whole("experts", experts)
    checks.whole("per_token", per_token, most=experts)
    checks.whole("batch", batch)
    return experts * (1 - (1 - per_token / experts) ** batch)


def read(model, *, batch: int = 1, dtype="bf16", keep: Iterable[str] | None = None, kept="bf16",
         lookup: str = "whole") -> Inventory:
    """Bytes of weights that one decoding step reads for `batch` sequences, by part.

    Everything but routed experts is read once, however many sequences there are: that is why batching pays. Of the
    routed experts those that some token is sent to are read: `distinct_experts` of them, an expectation (exactly
    experts_per_token of them at batch 1). lookup: "whole" counts the embedding as read whole, as the usual estimate
    does; "rows" counts the one row a token that is looked up (a tied embedding is still read whole, as the head).
    """
    checks.one_of("lookup", lookup, ("whole", "rows"))
    checks.whole("batch", batch)
    model, keep = models.resolve(model), _kept_parts(dtype, keep)
    held = dict(inventory(model, dtype=dtype, keep=keep, kept=kept).items())
    if not isinstance(model, models.Model):
        return Inventory(held, f"weights read in a step of {batch}")
    if "experts" in held:
        if model.experts_per_token is None:
            raise ValueError("num_experts_per_tok is null; it must be a whole number to know what a token reads")
        if batch == 1:
            held["experts"] = _whole(held["experts"] * model.experts_per_token, model.experts)
        else:
            held["experts"] *= distinct_experts(model.experts, model.experts_per_token, batch) / model.experts
    if lookup == "rows":
        tables = [each.shape for each in model.tensors() if each.part == "embedding"]  # and gpt2's learnt positions
        used = get(kept, "kept") if "embedding" in keep else get(dtype)
        held["embedding"] = sum(used.nbytes((height if model.tied and not place else min(batch, height), width))
                                for place, (height, width) in enumerate(tables))
    return Inventory(held, f"weights of {model.name} read in a step of {batch}")


def read_time(model, *, source, batch: int = 1, dtype="bf16", keep: Iterable[str] | None = None, streams: int = 1,
              lookup: str = "whole") -> float:
    """Seconds to read what one decoding step needs of the weights, once.

    source: an accelerator's name (its memory), a tier's, a link's, one of those objects, or bytes/s.
    streams: so many of them side by side, each with an equal part.

    >>> round(1e3 * read_time("llama-3.1-8b", source="h100-sxm"), 1)    # milliseconds
    4.8
    """
    checks.whole("streams", streams)
    rate, latency = source_rate(source)
    nbytes = read(model, batch=batch, dtype=dtype, keep=keep, lookup=lookup).total
    return tiers.transfer_time(nbytes, rate, latency, streams)


def source_rate(source) -> tuple[float, float]:
    """(bytes/s, seconds of latency) of what is read from; a latency that no source gives counts as 0.

    source: the name of an accelerator (its memory), a tier or a link, one of those objects, or bytes/s.
    Raises ValueError for an unknown name, and for a tier without a known read rate.
    """
    if isinstance(source, Real):
        return checks.positive("source", source), 0.0
    found = tiers.find(source, or_rate=True)
    if isinstance(found, tiers.Link):
        return found.rate, found.latency or 0.0
    tier = found.memory if isinstance(found, tiers.Accelerator) else found
    return tier.rate("read", "source"), tier.latency or 0.0


@dataclass(frozen=True)
class Decode:
    """One decoding step, a token for each of `batch` sequences: the roofline's two times; overlap is taken as perfect.

    read: bytes by part, with "KV cache" where some was given. flops: operations.
    memory_seconds: to read them; compute_seconds: to do them.
    """

    batch: int
    read: Inventory
    flops: float
    memory_seconds: float
    compute_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self) -> str:
        """What sets the pace: "memory" or "compute"."""
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of all sequences together; a ceiling, since nothing else is counted."""
        return self.batch / self.seconds


def decode(model, *, accelerator="h100-sxm", batch: int = 1, gpus: int = 1, dtype="bf16",
           keep: Iterable[str] | None = None, kv: float = 0, flops: float | None = None,
           lookup: str = "whole") -> Decode:
    """The fastest that one decoding step can be: weights and KV cache read once, two FLOPs a parameter and token.

    kv: bytes of KV cache that each sequence reads (kv_cache.inventory(...).total), 0 to leave them out.
    gpus: accelerators that divide bytes and FLOPs evenly; what they say to each other is left out.
    flops: FLOP/s of one accelerator; left out, its dense bf16 rate, since weights in few bits are usually turned back
    into bf16 before they are multiplied. FLOPs count the parameters a token passes; attention's own are left out.

    >>> step = decode("llama-3.1-8b", batch=32)
    >>> round(1e3 * step.seconds, 1), round(step.tokens_per_second)
    (4.8, 6675)
    """
    accelerator = tiers.accelerator(accelerator)
    checks.whole("gpus", gpus)
    checks.not_negative("kv", checks.single("kv", kv))
    flops = accelerator.flops if flops is None else checks.positive("flops", checks.single("flops", flops))
    weights = read(model, batch=batch, dtype=dtype, keep=keep, lookup=lookup)
    checks.not_negative("batch · kv", batch * kv)
    everything = weights + Inventory({"KV cache": batch * kv}) if kv else weights
    work = tiers.flops(active(model), batch)
    return Decode(batch=batch, read=everything, flops=work,
                  memory_seconds=everything.total / (source_rate(accelerator)[0] * gpus),
                  compute_seconds=work / (flops * gpus))


def memory_bound_until(model, *, accelerator="h100-sxm", dtype="bf16", keep: Iterable[str] | None = None,
                       kv: float = 0, flops: float | None = None, lookup: str = "whole") -> int | None:
    """The smallest batch at which computing takes as long as reading: where decoding stops being memory bound.

    Without a KV cache and experts it is the accelerator's ridge point times bytes a parameter over 2.
    None where no batch gets there, because each sequence's own KV cache takes longer to read than its FLOPs to do.

    >>> memory_bound_until("llama-3.1-8b")
    296
    """

    keep = _kept_parts(dtype, keep)

    def computing(batch: int) -> bool:
        step = decode(model, accelerator=accelerator, batch=batch, dtype=dtype, keep=keep, kv=kv, flops=flops,
                      lookup=lookup)
        return step.compute_seconds >= step.memory_seconds

    if not computing(_MOST_SEQUENCES):
        return None
    return first(computing, most=_MOST_SEQUENCES)


_MOST_SEQUENCES = 2**40


def first(true_from, most: int) -> int:
    """The smallest whole number, 1 or more, at which `true_from` is true, where it stays true from there up to most."""
    low, high = 0, 1
    while high < most and not true_from(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if true_from(middle) else (middle, high)
    return high


def active(model) -> int:
    """Parameters that one token passes through: a count itself, a Model's active_parameters."""
    model = models.resolve(model)
    return model.active_parameters if isinstance(model, models.Model) else model


def shaped(model, why: str = "shapes are needed here") -> models.Model:
    """The Model, where shapes are needed. Raises ValueError for a bare parameter count, saying why."""
    model = models.resolve(model)
    if not isinstance(model, models.Model):
        raise ValueError(f"model is the parameter count {model:,}; {why}, so name a model or give its config.json")
    return model


def longest(model) -> int | None:
    """Tokens of the longest sequence that a model can be given at all: the positions a gpt2 has learnt, else None.

    Its table has no row for a later one. Rotary positions go on for ever, however little a model has seen of them.
    """
    return model.positions if isinstance(model, models.Model) and model.family == "gpt2" else None


def within(argument: str, tokens: int, model) -> int:
    """Return tokens, if the model can be given so many (see `longest`). Raises ValueError if it cannot."""
    most = longest(model)
    if most is not None and tokens > most:
        raise ValueError(f"{argument} is {checks.brief(tokens)}; {model.name} has learnt {most:,} position"
                         f"{'' if most == 1 else 's'}, so it must be at most that")
    return tokens


def _kept_parts(dtype, keep) -> tuple[str, ...]:
    if keep is None:
        return () if get(dtype).name in PLAIN else KEPT
    if isinstance(keep, str) and keep in models.PARTS:
        raise ValueError(f"keep is {keep!r}; it must be a list of parts, such as [{keep!r}]")
    return tuple(checks.one_of("keep", part, models.PARTS) for part in checks.items("keep", keep, "parts"))


@lru_cache(maxsize=64)
def _alike(model: models.Model) -> tuple:
    """((shape, part), how many) of a model's tensors. Layers repeat them: the 723 of a 70B model are 7 kinds."""
    return tuple(Counter((tensor.shape, tensor.part) for tensor in model.tensors()).items())


def _format(shape: tuple[int, ...], part: str, dtype: Format, keep, kept: Format) -> Format:
    """How a tensor is stored: vectors and the parts to keep as `kept`, all else in dtype."""
    if part in keep or (len(shape) == 1 and dtype.name not in PLAIN):
        return kept
    return dtype


def _whole(number, divisor: int = 1):
    """number / divisor, as an int where that is exact."""
    if isinstance(number, int) and number % divisor == 0:
        return number // divisor
    number /= divisor
    return int(number) if number == int(number) else number
