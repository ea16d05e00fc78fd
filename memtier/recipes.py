"""Recipe: how a training run stores each class of state, in bytes a parameter and, where shapes matter, by tensor.

The four symbols of the course's formula M = P(b_w + b_g + b_m + b_o) + A + O live here:
b_w weights, b_g gradients, b_m separate master weights, b_o the moments, all that the optimizer remembers beside them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real

from memtier import checks

CLASSES = ("weights", "gradients", "master weights", "optimizer")  # of training state, in every inventory
STEP_COUNTER = 4  # bytes: torch.optim keeps one fp32 scalar "step" for each parameter tensor
BLOCK = 256  # elements that share one fp32 scale in bitsandbytes 0.50's 8-bit optimizers
LEAST_8BIT = 4096  # elements: smaller tensors keep fp32 state there
RULES = ("elementwise", "8-bit blocks", "adafactor", "muon")  # how b_o follows from a tensor; the first needs no shape


@dataclass(frozen=True)
class LoRA:
    """Low-rank adapters on a frozen base: each target matrix [out, in] gains A [rank, in] and B [out, rank].

    targets: endings of the names of the matrices that get adapters. Source: Hu et al., 2021, arXiv:2106.09685.
    Raises ValueError for a rank below 1, and for targets that are not a list of names.
    """

    rank: int = 16
    targets: tuple[str, ...] = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")

    def __post_init__(self):
        checks.whole("rank", self.rank)
        what = "endings of names, such as 'q_proj.weight'"
        targets = checks.items("targets", self.targets, what)
        if not targets or not all(isinstance(each, str) and each for each in targets):
            raise ValueError(f"targets is {checks.brief(self.targets)}; it must be a list of {what}")
        object.__setattr__(self, "targets", targets)  # a list too can then be looked up, as a recipe must be


@dataclass(frozen=True)
class Recipe:
    """Bytes a parameter of each state class.

    weights (b_w), gradients (b_g), master (b_m): bytes a parameter of what is stored between steps; 0 where absent.
    optimizer (b_o): bytes a parameter, or None where it depends on each tensor's shape (then `rule` says how).
    gathered: bytes a parameter of the copy that a layer computes with when ZeRO-3 gathers it.
    counters: whether every trained tensor also has a 4-byte step counter, as torch.optim keeps it.
    adapters: a LoRA when the base is frozen and only adapters are trained.
    source: who counts it this way.
    Raises ValueError naming argument, value and what is allowed.
    """

    name: str
    title: str
    weights: float
    gradients: float
    master: float
    optimizer: float | None
    source: str
    rule: str = "elementwise"
    gathered: float = 2
    counters: bool = True
    adapters: LoRA | None = None

    def __post_init__(self):
        for name in ("name", "title", "source"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is {checks.brief(getattr(self, name))}; it must be a text")
        for name in ("weights", "gradients", "master", "gathered"):
            _each(name, getattr(self, name))
        checks.one_of("rule", self.rule, RULES)
        by_shape = self.rule != RULES[0]
        if by_shape and self.optimizer is not None:
            raise ValueError(f"optimizer is {checks.brief(self.optimizer)}; it must be None with the rule "
                             f"{self.rule!r}, which tells it from a tensor's shape")
        if not by_shape:
            _each("optimizer", self.optimizer)
        checks.flag("counters", self.counters)
        if not isinstance(self.adapters, LoRA | None):
            raise ValueError(f"adapters is {checks.brief(self.adapters)}; it must be a LoRA, or None where all "
                             "weights are trained")

    @property
    def trains(self) -> bool:
        """Whether there are gradients, and so an update; serving has neither."""
        return self.gradients > 0

    @property
    def needs_shapes(self) -> bool:
        """True where a bare parameter count cannot give the answer."""
        return self.optimizer is None or self.adapters is not None

    @property
    def by_class(self) -> dict[str, float]:
        """b_w, b_g, b_m and b_o in bytes. Raises ValueError for a recipe whose state depends on shapes."""
        if self.needs_shapes:
            raise ValueError(f"recipe is {self.name!r}; its bytes a parameter depend on the tensors' shapes, so there "
                             "is no one number: ask what a model needs, by a known name or a config.json")
        return dict(zip(CLASSES, (self.weights, self.gradients, self.master, self.optimizer), strict=True))

    @property
    def per_parameter(self) -> float:
        """b_w + b_g + b_m + b_o in bytes. Raises ValueError for a recipe whose state depends on shapes."""
        return sum(self.by_class.values())

    def optimizer_bytes(self, shape: tuple[int, ...], part: str, rows: int | None = None) -> int:
        """Bytes the optimizer remembers for one trained tensor, without its step counter.

        shape: the whole tensor's shape. part: what it is ("embedding", "attention", …).
        rows: how many of its first dimension's rows are held here; all of them when None.
        """
        local = shape if rows is None else (rows, *shape[1:])
        if self.rule == "8-bit blocks":
            return _eight_bit(math.prod(local))
        if self.rule == "adafactor":
            return _adafactor(local)
        if self.rule == "muon":
            return math.prod(local) * (4 if _is_hidden_matrix(shape, part) else 8)
        return math.prod(local) * self.optimizer

    def counter_bytes(self, shape: tuple[int, ...], part: str) -> int:
        """Bytes of the step counter kept for one trained tensor; each rank that has the tensor has one."""
        if not self.counters or (self.rule == "muon" and _is_hidden_matrix(shape, part)):
            return 0
        return STEP_COUNTER

    def tensors(self, model) -> Iterator[tuple]:
        """(tensor, trained) for every tensor a run with this recipe holds: the model's, then the adapters'."""
        for tensor in model.tensors():
            yield tensor, self.adapters is None
        if self.adapters is not None:
            yield from ((tensor, True) for tensor in _adapters(model, self.adapters))


def _each(name: str, value) -> float:
    """Return value if it is one number of bytes a parameter, 0 or more."""
    checks.not_negative(name, value)
    if not isinstance(value, Real):  # an array would pass as well
        raise ValueError(f"{name} is {checks.brief(value)}; it must be a number, 0 or more")
    return value


def _eight_bit(elements: int) -> int:
    """Two moments of 1 byte each and an fp32 scale a block of 256; small tensors stay fp32 (bitsandbytes 0.50.2).

    Its two tables of 256 fp32 codes, 2 KiB for the whole model, are left out.
    """
    if elements < LEAST_8BIT:
        return 8 * elements
    return 2 * (elements + 4 * math.ceil(elements / BLOCK))


def _adafactor(shape: tuple[int, ...]) -> int:
    """fp32 row and column means for tensors of two or more dimensions, else one fp32 value an element.

    torch.optim.Adafactor keeps row_var [..., rows, 1] and col_var [..., 1, columns]. Source: arXiv:1804.04235.
    """
    if len(shape) < 2:
        return 4 * math.prod(shape)
    *outer, rows, columns = shape
    return 4 * math.prod(outer) * (rows + columns)


def _is_hidden_matrix(shape: tuple[int, ...], part: str) -> bool:
    """Whether Muon takes the tensor; AdamW takes the rest.

    torch.optim.Muon refuses all but two-dimensional tensors, and its documentation leaves embeddings and the head
    to AdamW.
    """
    return len(shape) == 2 and part not in ("embedding", "head")


def _adapters(model, lora: LoRA) -> Iterator:
    """The two adapter tensors of every target matrix.

    Raises ValueError when no name of the model matches, and for one that is no matrix.
    """
    targets = [tensor for tensor in model.tensors() if tensor.name.endswith(lora.targets)]
    given = f"targets is {checks.brief(lora.targets)}"
    if not targets:
        raise ValueError(f"{given}; {model.name} has no such tensor, it ends its names with "
                         + ", ".join(sorted({".".join(tensor.name.split(".")[-2:]) for tensor in model.tensors()})))
    for tensor in targets:
        if len(tensor.shape) != 2:
            raise ValueError(f"{given}; it must name matrices, and {tensor.name} of {model.name} is "
                             + " × ".join(map(str, tensor.shape)))
        out, into = tensor.shape
        stem = tensor.name.removesuffix(".weight")
        yield type(tensor)(f"{stem}.lora_A.weight", (lora.rank, into), tensor.part, tensor.unit)
        yield type(tensor)(f"{stem}.lora_B.weight", (out, lora.rank), tensor.part, tensor.unit)


_ZERO = "ZeRO, Rajbhandari et al., 2020, arXiv:1910.02054, section 3.1"
_TORCH = "torch.optim, torch 2.13.0: one fp32 tensor for each moment"

RECIPES = {recipe.name: recipe for recipe in (
    Recipe("inference", "bf16 weights only, nothing to train", 2, 0, 0, 0, "weights in bf16", counters=False),
    Recipe("fp32-adam", "pure fp32 Adam", 4, 4, 0, 8, _TORCH, gathered=4),
    Recipe("bf16-adam", "bf16 mixed-precision Adam", 2, 2, 4, 8, _ZERO),
    Recipe("bf16-adam-fp32-grads", "bf16 mixed-precision Adam, fp32 gradients", 2, 4, 4, 8,
           "Megatron-LM, theoretical_memory_usage.py: 18 bytes without a distributed optimizer"),
    Recipe("bf16-adam-two-grads", "bf16 mixed-precision Adam, bf16 gradients and an fp32 sum of them", 2, 6, 4, 8,
           "DeepSpeed's BF16_Optimizer with fp32 gradient accumulation: 20 bytes"),
    Recipe("fsdp2-adam", "FSDP2 mixed precision: fp32 shards, bf16 while a layer runs", 4, 4, 0, 8,
           "torch 2.13.0, fully_shard with MixedPrecisionPolicy(param_dtype=bfloat16)"),
    Recipe("bf16-moments", "bf16 mixed-precision Adam, bf16 moments", 2, 2, 4, 4,
           "the mixed-precision recipe with both moments stored in bf16"),
    Recipe("deepseek-v3", "bf16 moments, fp32 master weights and gradients", 2, 4, 4, 4,
           "DeepSeek-V3 technical report, 2024, arXiv:2412.19437, section 3.3"),
    Recipe("adam-8bit", "8-bit Adam: two 1-byte moments, scales for blocks of 256", 2, 2, 4, None,
           "bitsandbytes 0.50.2, blockwise; Dettmers et al., 2021, arXiv:2110.02861",
           rule="8-bit blocks", counters=False),
    Recipe("sgd-momentum", "SGD with momentum", 2, 2, 4, 4, _TORCH, counters=False),
    Recipe("lion", "Lion: one momentum", 2, 2, 4, 4, "Chen et al., 2023, arXiv:2302.06675", counters=False),
    Recipe("adafactor", "Adafactor: row and column statistics", 2, 2, 4, None,
           "torch.optim.Adafactor, torch 2.13.0; Shazeer and Stern, 2018, arXiv:1804.04235", rule="adafactor"),
    Recipe("muon", "Muon for hidden matrices, AdamW for the rest", 2, 2, 4, None,
           "torch.optim.Muon and AdamW, torch 2.13.0; one momentum instead of two moments", rule="muon"),
    Recipe("lora", "LoRA, rank 16 on the attention projections, base frozen in bf16", 2, 2, 4, 8,
           "Hu et al., 2021, arXiv:2106.09685", adapters=LoRA()),
)}


def names() -> tuple[str, ...]:
    """The names `get` knows."""
    return tuple(RECIPES)


def get(recipe: str | Recipe) -> Recipe:
    """The recipe of that name; a Recipe is passed through. Raises ValueError listing the known names."""
    if isinstance(recipe, Recipe):
        return recipe
    return RECIPES[checks.one_of("recipe", recipe, RECIPES)]
