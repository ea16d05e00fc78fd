"""Which configurations benchmarks/accuracy.py compares: a published model of every family, small ones of odd sizes."""

from collections.abc import Iterator
from dataclasses import dataclass

from memtier import activations, models
from memtier.lab import cells

SMALL = 8  # small models of each family
SEED = 3  # of their random sizes; soak/activations.log has others
SELECTIVE = (1, 3, 5)  # of each family's small models, those recomputed selectively; together they have all stacks

# The twelve with which this comparison began: without dropout, as most calculators think of training.
FIRST = (
    ("gpt2", 1, 1024, "hf-eager", "none"),
    ("gpt2-xl", 1, 1024, "hf-eager", "none"),
    ("gpt2-xl", 1, 1024, "hf-sdpa", "none"),
    ("gpt2-xl", 1, 1024, "hf-eager", "full"),
    ("llama-3.2-1b", 2, 4096, "hf-sdpa", "none"),
    ("llama-3.1-8b", 1, 2048, "hf-sdpa", "none"),
    ("llama-3.1-8b", 1, 8192, "hf-sdpa", "none"),
    ("llama-3.1-8b", 1, 8192, "hf-sdpa", "full"),
    ("llama-3.1-8b", 1, 2048, "hf-eager", "none"),
    ("qwen2.5-7b", 1, 4096, "hf-sdpa", "none"),
    ("llama-3.1-70b", 1, 8192, "hf-sdpa", "none"),
    ("llama-3.1-70b", 1, 8192, "hf-sdpa", "full"),
)


@dataclass(frozen=True)
class Case:
    """One configuration: a model and how it is run.

    name: of the registry, or "small llama 3". how: batch, sequence, stack, recompute, dtype and dropout, as
    activations.saved takes them. real: measure it with real tensors, not with fake ones.
    """

    name: str
    config: dict
    how: dict
    real: bool = False


def all() -> Iterator[Case]:
    """Every case, each once: the first twelve, the published models, the small ones."""
    for name, batch, sequence, stack, recompute in FIRST:
        yield _published(name, batch=batch, sequence=sequence, stack=stack, recompute=recompute, dropout=False)
    for family, name in cells.published().items():
        yield from _family(family, name)
    for family in models.FAMILIES:
        for number, cell in enumerate(cells.cells(family, SMALL, SEED)):
            how = cell.how | ({"recompute": "selective"} if _takes_selective(number, cell) else {})
            yield Case(f"small {family} {number}", cell.config, how, real=True)


def _published(name: str, **how) -> Case:
    default = {"batch": 1, "sequence": 1024, "stack": "hf-sdpa", "recompute": "none", "dtype": "bf16", "dropout": True}
    return Case(name, models.get(name).config, default | how)


def _family(family: str, name: str) -> Iterator[Case]:
    """Each way of attention, two odd sequences, recomputed, a long sequence, fp32.

    Fake tensors run experts neither in a loop nor in fp32. The largest model, DeepSeek-V3, is run twice only.
    """
    stacks = [stack for stack in activations.stacks(name) if not stack.endswith(("loop", "batched"))]
    first = stacks[0]
    yield _published(name, stack=first)
    yield _published(name, stack=first, recompute="full")
    if family == "deepseek_v3":
        return
    for stack in stacks[1:]:
        sizes = {"batch": 2, "sequence": 513} if "masked" in stack else {}
        yield _published(name, stack=stack, **sizes)
    if family != "gpt2":  # it has learnt 1,024 positions
        yield _published(name, stack=first, sequence=min(4096, models.get(name).positions))
    if family not in cells.SPARSE:
        yield _published(name, stack=first, batch=2, sequence=513, dtype="fp32")


def _takes_selective(number: int, cell: cells.Cell) -> bool:
    """What a loop over experts keeps for selective recomputation depends on its tokens."""
    return number in SELECTIVE and not cell.how["stack"].endswith("loop")
