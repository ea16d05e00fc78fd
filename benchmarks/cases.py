"""Which configurations benchmarks/accuracy.py compares: a published model of every family, and small ones of odd sizes."""

from collections.abc import Iterator
from dataclasses import dataclass

from memtier import activations, models
from memtier.lab import cells

SMALL = 9  # small models of each family
SEED = 3  # of their random sizes; soak/activations.log has others
SELECTIVE = ("llama-3.2-1b", "qwen2.5-7b")  # full-size models measured through a whole step, which takes a minute each

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
    """Its stacks in turn, recomputed, two short odd sequences, one long sequence, fp32.

    Fake tensors run experts neither in a loop nor in fp32. The largest model, DeepSeek-V3, is run twice only.
    """
    stacks = [stack for stack in activations.stacks(name) if not stack.endswith("loop")]
    first = stacks[0]
    if family == "deepseek_v3":
        yield _published(name, stack=first)
        yield _published(name, stack=first, recompute="full")
        return
    for stack in stacks:
        if not (stack.endswith("batched") and stack != stacks[1]):
            yield _published(name, stack=stack)
    yield _published(name, stack=first, recompute="full")
    yield _published(name, stack=first, batch=2, sequence=513)
    if family != "gpt2":  # it has learnt 1,024 positions
        yield _published(name, stack=first, sequence=min(4096, models.get(name).positions))
    if family not in cells.SPARSE:
        yield _published(name, stack=first, batch=2, sequence=513, dtype="fp32")
    if name in SELECTIVE:
        yield _published(name, stack=first, sequence=512, recompute="selective")


def _takes_selective(number: int, cell: cells.Cell) -> bool:
    """Every third small cell is recomputed selectively; what a loop over experts keeps depends on its tokens."""
    return number % 3 == 2 and not cell.how["stack"].endswith("loop")
