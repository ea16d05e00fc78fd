"""The six kinds of data in an AI system: what each holds, where it lives, who writes and reads it.

Chapter 0 introduces them; a chapter and a module of its own take each one apart.
"""

from dataclasses import dataclass
from html import escape

from memtier import checks, drawing, tiers, units
from memtier.table import Table


@dataclass(frozen=True)
class Kind:
    """One of the six kinds.

    part: the name its bytes have in an Inventory. holds: what it is. home: the rung where it naturally lives.
    stops: further rungs where it can be kept or passes through, from fast to slow. needs_hbm: whether the work that
    uses it is slow unless it is in HBM. grows_with: what its bytes are proportional to. written, read: by whom, and
    how often. lives: for how long. if_lost: what losing it costs. remember: three sentences.
    """

    name: str
    part: str
    holds: str
    home: str
    stops: tuple[str, ...]
    needs_hbm: bool
    grows_with: str
    written: str
    read: str
    lives: str
    if_lost: str
    remember: tuple[str, str, str]

    def __str__(self) -> str:
        """What it is, where, for how long, and the three sentences to remember."""
        facts = [f"{title}: {_text(getattr(self, field))}" for field, title in COLUMNS.items()]
        return "\n".join([self.name, *facts, *(f"- {sentence}" for sentence in self.remember)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same as a card."""
        facts = "".join(f'<dt style="font-weight:600">{title}</dt><dd style="margin:0">{escape(_text(value))}</dd>'
                        for title, value in ((COLUMNS[field], getattr(self, field)) for field in COLUMNS))
        remember = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.remember)
        return (f'<div class="mt-kind" style="border-left:.4em solid {drawing.colour(self.part)};padding-left:1em">'
                f'<dl style="display:grid;grid-template-columns:auto 1fr;gap:.1em 1em;margin:0">{facts}</dl>'
                '<p style="font-weight:600;margin:.6em 0 .2em">Three things to remember</p>'
                f'<ol style="margin:0">{remember}</ol></div>')


# The fields of Kind that a table or a card shows, and what they are called there.
COLUMNS = {"holds": "what it is", "home": "home", "stops": "also found in", "grows_with": "grows with",
           "written": "written", "read": "read", "lives": "lives", "if_lost": "if it is lost"}


KINDS = (
    Kind(
        name="activations",
        part="activations",
        holds="what the forward pass computes and the backward pass needs again",
        home="HBM",
        stops=("SRAM", "L2", "CPU DRAM"),
        needs_hbm=False,
        grows_with="batch × sequence × layers × width",
        written="by every layer of the forward pass",
        read="by the same layer of the backward pass, last layer first",
        lives="a part of one training step",
        if_lost="this step is computed again",
        remember=(
            "They grow with batch and sequence, so the same model fits at one batch size and not at another.",
            "They need not be kept: what is dropped can be computed again, FLOPs spent to save HBM.",
            "They are gone when the step is over: saving an activation is not saving a run.",
        ),
    ),
    Kind(
        name="weights",
        part="weights",
        holds="the numbers the model has learned",
        home="HBM",
        stops=("CPU DRAM", "NVMe", "parallel file system", "object storage"),
        needs_hbm=True,
        grows_with="parameters × bytes a parameter",
        written="by the optimizer once a training step; never while serving",
        read="by every forward and backward pass; all of them for every step of decoding",
        lives="as long as the model is trained or served",
        if_lost="they are loaded again from a checkpoint",
        remember=(
            "They need HBM to run fast, because every decoding step reads them all.",
            "In bf16 they take 2 bytes a parameter: 140 GB for 70 billion.",
            "Serving only reads them, so copies can be shared, dropped and loaded again.",
        ),
    ),
    Kind(
        name="KV cache",
        part="KV cache",
        holds="the keys and values of the tokens read so far, kept so that they are not computed again",
        home="HBM",
        stops=("CPU DRAM", "CXL", "NVMe", "parallel file system"),
        needs_hbm=True,
        grows_with="context × concurrent users",
        written="once for each token, at the end of what is there",
        read="in full, for every new token of that user",
        lives="as long as the conversation or its shared prefix may go on",
        if_lost="the prompt is read again, which costs FLOPs and the user's time",
        remember=(
            "It grows while the model is in use, and with long contexts or many users it exceeds the weights.",
            "It needs HBM while its user is served; between two questions it can wait in CPU memory or on NVMe.",
            "A stored block is never changed, so users with the same prefix can share it.",
        ),
    ),
    Kind(
        name="optimizer state",
        part="optimizer",
        holds="what the optimizer remembers of each parameter: an fp32 master copy and, for Adam, two moments",
        home="HBM",
        stops=("CPU DRAM", "CXL", "NVMe"),
        needs_hbm=False,
        grows_with="parameters × bytes of state a parameter",
        written="all of it, by the update, once a training step",
        read="all of it, by the update, once a training step",
        lives="the whole training run",
        if_lost="the run cannot go on as before; it goes back to a checkpoint",
        remember=(
            "It is most of the training state: 12 of 16 bytes a parameter in mixed-precision Adam; serving keeps none.",
            "Every step rewrites it all, so its tier needs write bandwidth and endurance, not only room.",
            "It is used once a step, so it can be sharded or pushed down a tier, and the update can go with it.",
        ),
    ),
    Kind(
        name="checkpoints",
        part="checkpoint",
        holds="enough of the run, consistent at one step, to go on after a failure",
        home="object storage",
        stops=("CPU DRAM", "NVMe", "parallel file system"),
        needs_hbm=False,
        grows_with="parameters × bytes of saved state × how many are kept",
        written="by every rank its own shard, every so many steps",
        read="by every rank, after a failure or to serve the model",
        lives="minutes on NVMe, years in object storage",
        if_lost="all work since the checkpoint before it",
        remember=(
            "A resumable checkpoint holds 14 bytes a parameter in mixed-precision Adam; one to serve from holds 2.",
            "How fast you can write it sets how often you can afford to, and so what a failure costs.",
            "It is written to a near tier first and then drained downwards, so that the accelerators need not wait.",
        ),
    ),
    Kind(
        name="training data",
        part="training data",
        holds="what the model learns from: tokenised text, images, video",
        home="object storage",
        stops=("HBM", "CPU DRAM", "NVMe", "parallel file system"),
        needs_hbm=False,
        grows_with="tokens × bytes a token, or samples × bytes a sample",
        written="once, when the corpus is filtered and tokenised",
        read="streamed in shuffled shards, once an epoch",
        lives="years",
        if_lost="it is fetched, filtered and tokenised again",
        remember=(
            "The corpus stays in object storage; shards of it are streamed through NVMe and CPU memory.",
            "Text is small, 15 trillion tokens of 4 bytes are 60 TB; images and video are not.",
            "It is fetched ahead of need, so that the accelerator never waits.",
        ),
    ),
)


def get(name: str) -> Kind:
    """The kind of that name. Raises ValueError listing the six names."""
    checks.one_of("name", name, names())
    return next(kind for kind in KINDS if kind.name == name)


def names() -> tuple[str, ...]:
    """The six names, in the course's order."""
    return tuple(kind.name for kind in KINDS)


def on(rung: str) -> tuple[tuple[Kind, bool], ...]:
    """The kinds found on a rung, each with whether the rung is its home. Raises ValueError listing the rungs."""
    checks.one_of("rung", rung, tiers.RUNGS)
    return tuple((kind, kind.home == rung) for kind in KINDS if rung in (kind.home, *kind.stops))


def ladder() -> drawing.Figure:
    """The ladder from fast to slow with the kinds on it: solid where a kind is at home, dashed where it also stops."""
    rows = []
    for tier in tiers.ladder():
        rung = tier.rung if tier.status == "shipping" else f"{tier.rung} ({tier.status})"
        # Without a capacity the figure is one stream's, so say whose.
        about = [units.format_bytes(tier.capacity) if tier.capacity else tier.title]
        about += [units.format_rate(tier.read) + (" for all" if tier.shared else "")] if tier.read else []
        rows.append((rung, " · ".join(about), [(kind.name, kind.part, home) for kind, home in on(tier.rung)]))
    homes = "; ".join(f"{kind.name} in {kind.home}" for kind in KINDS)
    return drawing.shelves(rows, title="Where the six kinds live", solid="at home here", dashed="kept here, or passing",
                           description=f"The ladder from the fastest rung to the slowest. At home: {homes}.")


def table(*columns: str) -> Table:
    """The six kinds side by side. columns: fields of Kind, any of COLUMNS; all of them when none is named.

    Raises ValueError for another column.
    """
    for column in columns:
        checks.one_of("columns", column, COLUMNS)
    columns = columns or tuple(COLUMNS)
    return Table("The six kinds", ("kind", *(COLUMNS[column] for column in columns)),
                 tuple((kind.name, *(_text(getattr(kind, column)) for column in columns)) for kind in KINDS))


def _text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value)
