"""Checkpoints: what a run must save to go on, which rank writes what, how long it takes, and what has to wait.

    checkpoints.inventory(70e9, recipe="bf16-adam").total                    # 0.98 TB
    checkpoints.write_time(0.98e12, to="tectonic")                           # seconds
    checkpoints.drain(interval=30, stages=[Stage("NVMe", 0.5), Stage("object storage", 49)], duration=3600)

A checkpoint here is a durable copy from which a run can start again. Recomputing activations in the backward pass is
called checkpointing as well; it saves nothing that outlives the step (see memtier.activations).
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

from memtier import checks, models, optimizer_state, recipes, tiers, weights
from memtier.inventory import Inventory
from memtier.layout import Layout, stages
from memtier.models import Model

CONTENTS = ("resumable", "without copy", "weights")
DAY = 86400  # seconds


def inventory(model, *, recipe, contents: str = "resumable") -> Inventory:
    """Bytes of one checkpoint, written once for the whole job, however many ranks share the writing.

    contents="resumable": weights, master weights and optimizer state, so that training continues as if nothing had
    happened; gradients are not saved, they are made afresh. For bf16-adam that is 2 + 4 + 8 = 14 bytes a parameter.
    contents="without copy": the weights are left out where master weights can be rounded to them again: 12 bytes.
    contents="weights": the weights alone, enough to serve the model: 2 bytes.
    Raises ValueError for an unknown recipe or contents.

    >>> inventory(70e9, recipe="bf16-adam").total
    980000000000
    """
    checks.one_of("contents", contents, CONTENTS)
    model, recipe = models.resolve(model), recipes.get(recipe)
    state = optimizer_state.inventory(model, recipe=recipe)
    return Inventory(_kept(state, contents), f"{contents} checkpoint, {recipe.title}")


class Count(NamedTuple):
    """How a source counts a checkpoint. per_parameter: bytes. of: what they are. source: who counts so."""

    per_parameter: int
    of: str
    source: str


# All are right about what they count; a size without its count says little.
COUNTS = (
    Count(14, "bf16 weights, fp32 master weights, two fp32 moments",
          "this course; MLPerf Storage v2.0, checkpointing: 2 for the model and 12 for the optimizer"),
    Count(12, "fp32 master weights and two fp32 moments; bf16 weights are made from them",
          "Universal Checkpointing, USENIX ATC 2025: 12 times the parameter count; GEMINI, SOSP 2023"),
    Count(12, "fp32 weights and two fp32 moments, what torch.distributed.checkpoint writes for FSDP2 with AdamW",
          "measured, torch 2.13.0"),
    Count(16, "the same 14 with bf16 gradients, which a restart does not need", "ZeRO, arXiv:1910.02054, section 3"),
    Count(2, "bf16 weights alone: enough to serve, not to resume", "every published model"),
)


def per_rank(model, *, recipe, layout: Layout, stage: int | str = "max", contents: str = "resumable",
             spread: bool = True) -> Inventory:
    """What one rank writes when the job is split over data, tensor and pipeline parallel ranks.

    stage: a pipeline stage's number from 0, or "max", the one that writes most. A stage holds its layers; the first
    also the embedding, the last the final norm and the head (tied heads are held on both ends). A count has no layers:
    its stages are taken as equal.
    Tensor parallelism divides what a stage holds by layout.tensor (the few norms that each rank keeps whole, some
    0.01 %, are divided as well). spread=True: the data parallel ranks, replicate · shard of them, write an equal part
    each, as sharded checkpoints do. spread=False: the first of them writes it all.
    With zero=3 and neither tensor nor pipeline ranks, a Model's rank 0 writes the rows that FSDP2 puts there.
    Raises ValueError for bad arguments, and for a recipe that depends on tensors' shapes when stages are cut.
    """
    checks.one_of("contents", contents, CONTENTS)
    checks.flag("spread", spread)
    if not isinstance(layout, Layout):
        raise ValueError(f"layout is {checks.brief(layout)}; it must be a Layout")
    if not isinstance(stage, str) or stage != "max":
        checks.whole("stage", stage, least=0, most=layout.pipeline - 1)
    model, recipe = models.resolve(model), recipes.get(recipe)
    title = f"{contents} checkpoint, one rank of {layout.world}"
    if isinstance(model, Model) and layout.zero == 3 and spread and layout.tensor == layout.pipeline == 1:
        state = optimizer_state.per_gpu(model, recipe=recipe, layout=layout)
        return Inventory(_kept(state, contents), title) * (1 / layout.replicate)
    ranks = layout.tensor * (layout.replicate * layout.shard if spread else 1)
    if isinstance(model, Model) and layout.pipeline > 1:
        held = stage_parameters(model, pipeline=layout.pipeline)
        model = max(held) if isinstance(stage, str) else held[stage]
    else:
        ranks *= layout.pipeline
    one_copy = inventory(model, recipe=recipe, contents=contents)
    return Inventory({name: nbytes / ranks for name, nbytes in one_copy.items()}, title)


def stage_parameters(model, *, pipeline: int) -> tuple[int, ...]:
    """Parameters that each of `pipeline` stages holds, first stage first; see `per_rank` for who holds what.

    Raises ValueError for fewer layers than stages, and for a count, which has no layers.
    """
    model = weights.shaped(model, "a count has no layers")
    checks.whole("pipeline", pipeline, most=model.layers)
    in_layer, before, after = [0] * model.layers, 0, 0
    for tensor in model.tensors():
        if tensor.unit != "root":
            in_layer[tensor.unit] += tensor.numel
        elif tensor.part == "embedding":
            before += tensor.numel
        else:
            after += tensor.numel
    if model.tied and pipeline > 1:
        after += sum(tensor.numel for tensor in model.tensors() if tensor.part == "embedding"
                     and tensor.shape == (model.vocab, model.hidden))
    held, first = [], 0
    for layers in stages(model.layers, pipeline):
        held.append(sum(in_layer[first:first + layers]))
        first += layers
    held[0] += before
    held[-1] += after
    return tuple(held)


def write_time(nbytes: float, *, to, writers: int = 1) -> float:
    """Seconds to write nbytes to a tier, a tier's name, or a rate in bytes a second.

    writers: nodes that write at once, each an equal share. They multiply a rate and a node-local tier such as NVMe;
    a shared tier's figure is already the aggregate, so it stays as it is.
    Raises ValueError for bad arguments and for a tier whose write rate the ledger does not know.

    >>> round(write_time(0.98e12, to=30e9, writers=64), 2)
    0.51
    """
    checks.not_negative("nbytes", nbytes)
    checks.whole("writers", writers)
    if isinstance(to, Real):
        return tiers.transfer_time(nbytes, checks.positive("to", to), streams=writers)
    tier = tiers.get(to, argument="to", or_rate=True)
    return tier.write_time(nbytes, streams=1 if tier.shared else writers, argument="to")


# What waits


class Stage(NamedTuple):
    """One tier on the way down. name: of the tier. seconds: to write one version to it.

    every: seconds between the versions it takes, 0 for each one that the tier above has.
    """

    name: str
    seconds: float
    every: float = 0.0


class Span(NamedTuple):
    """A version being written: `start` and `end` in seconds since the run began."""

    version: int
    start: float
    end: float


@dataclass(frozen=True)
class Drain:
    """What happened while versions went down the tiers.

    saves: when each version was frozen. stalls: seconds the job waited, by version; the last one may reach past the
    end. written: stage name → Spans, in order, those that begin within the duration. waiting: stage name → versions due
    there and not begun at the end. skipped: stage name → versions passed over for a newer one.
    """

    duration: float
    saves: tuple[float, ...]
    stalls: tuple[float, ...]
    written: Mapping[str, tuple[Span, ...]]
    waiting: Mapping[str, int]
    skipped: Mapping[str, int]

    @property
    def stalled(self) -> float:
        """Seconds the job waited in all, within the duration."""
        return sum(min(stall, self.duration - asked) for asked, stall in zip(self.saves, self.stalls, strict=True))

    def newest(self, name: str, at: float) -> int | None:
        """The newest version that counts in stage `name` at time `at`; None where there is none yet."""
        spans = self.written[checks.one_of("name", name, self.written)]
        done = bisect_right(spans, checks.not_negative("at", at), key=lambda span: span.end)  # one after the other
        return spans[done - 1].version if done else None

    def at_risk(self, name: str, at: float) -> float:
        """Seconds of the run that are lost when, at time `at`, only stage `name` is left."""
        version = self.newest(name, at)
        return at if version is None else at - self.saves[version]

    def most_at_risk(self, name: str) -> float:
        """The most seconds of the run that were ever lost if only stage `name` was left.

        What would be lost grows with the clock, and falls when a version is complete: it is most just before, or at
        the end.
        """
        spans = self.written[checks.one_of("name", name, self.written)]
        before = [0.0, *(self.saves[span.version] for span in spans)]
        risks = [span.end - saved for span, saved in zip(spans, before, strict=False) if span.end <= self.duration]
        return max([*risks, self.at_risk(name, self.duration)])


def drain(*, interval: float, stages: Sequence[Stage], duration: float, snapshot: float = 0.0, buffers: int = 1,
          asynchronous: bool = True, keep: str = "all") -> Drain:
    """Follow every version of a run down its tiers: what stalls the job, what does not, and what piles up.

    interval: seconds of work between two saves. stages: tiers in order, fastest first; each reads from the one above.
    snapshot: seconds to freeze the state in CPU memory, during which the job waits.
    asynchronous=True: the job waits for the snapshot alone, and for a free buffer: `buffers` snapshots fit in CPU
    memory, and one is free again when the first stage has written it. False: it waits for the first stage to finish.
    keep="all": a stage writes every version due, in order, so a slow one falls ever further behind.
    keep="newest": a free stage takes the newest version due and passes over the older ones.
    Each stage writes one version at a time. Raises ValueError naming argument, value and what is allowed.
    """
    checks.positive("interval", checks.single("interval", interval))
    checks.positive("duration", checks.single("duration", duration))
    checks.not_negative("snapshot", checks.single("snapshot", snapshot))
    checks.whole("buffers", buffers)
    checks.flag("asynchronous", asynchronous)
    checks.one_of("keep", keep, ("all", "newest"))
    stages = _stages(stages)
    checks.at_most("duration / interval", duration / interval, 100_000)
    saves, stalls, first = _save(interval, stages[0], duration, snapshot, buffers, asynchronous)
    written, waiting, skipped = {stages[0].name: first}, {stages[0].name: 0}, {stages[0].name: 0}
    for stage in stages[1:]:
        done, waiting[stage.name], skipped[stage.name] = _pass_on(first, saves, stage, duration, keep)
        written[stage.name] = first = done
    return Drain(duration, tuple(saves), tuple(stalls), written, waiting, skipped)


def _stages(stages: Sequence[Stage]) -> list[Stage]:
    """The tiers of `drain`, checked."""
    found: list[Stage] = []
    for each in checks.items("stages", stages, "Stages"):
        if not isinstance(each, tuple) or not 2 <= len(each) <= 3:
            raise ValueError(f"stages has {checks.brief(each)}; it must be a Stage: a name, and seconds")
        found.append(stage := Stage(*each))
        if not isinstance(stage.name, str) or stage.name in [other.name for other in found[:-1]]:
            raise ValueError(f"stages has the name {checks.brief(stage.name)}; it must be a text, and each stage's own")
        named = checks.brief(stage.name, str)
        for check, what, value in ((checks.positive, "seconds", stage.seconds),
                                   (checks.not_negative, "every", stage.every)):
            check(f"stages: {what} of {named}", checks.single(f"stages: {what} of {named}", value))
    if not found:
        raise ValueError("stages is empty; it must name at least one tier")
    return found


def backlog(*, interval: float, seconds: float, duration: float) -> int:
    """Versions that wait for, or are in, a tier that takes `seconds` each, when one comes every `interval` seconds.

    After `duration`: as many as came, less as many as it could finish: ⌊duration/interval⌋ − ⌊duration/seconds⌋, and
    never below 0. The first second of waiting is not counted; `drain` follows each version.

    >>> backlog(interval=30, seconds=49, duration=3600)
    47
    """
    for name, value in (("interval", interval), ("seconds", seconds), ("duration", duration)):
        checks.positive(name, checks.single(name, value))
    for name, value in (("interval", interval), ("seconds", seconds)):
        checks.not_negative(f"duration / {name}", duration / value)
    return max(0, int(duration // interval) - int(duration // seconds))


def written_each_day(nbytes: float, *, interval: float) -> float:
    """Bytes a day that saving nbytes every `interval` seconds writes."""
    return checks.not_negative("nbytes", nbytes) * DAY / checks.positive("interval", interval)


def drive_life(nbytes: float, *, interval: float, endurance: float, drives: int = 1) -> float:
    """Seconds until drives that share the writing of nbytes every `interval` seconds have used up their rating.

    endurance: bytes one drive is rated for over its life (TBW). Writes are taken as they come; what the drive itself
    writes beside them is in the maker's rating. Infinite where nothing is written. Raises ValueError for bad arguments.
    """
    for name, value in (("nbytes", nbytes), ("interval", interval), ("endurance", endurance)):
        checks.single(name, value)
    checks.positive("endurance", endurance)
    each = written_each_day(nbytes, interval=interval) / checks.whole("drives", drives)
    return endurance / each * DAY if each else math.inf


def _kept(state: Inventory, contents: str) -> dict:
    """The classes of a state that a checkpoint holds."""
    classes = [name for name in state if name != "gradients"]
    if contents == "weights":
        classes = ["weights"]
    elif contents == "without copy" and "master weights" in state:
        classes.remove("weights")
    return {name: state[name] for name in classes}


def _save(interval, stage, duration, snapshot, buffers, asynchronous):
    """When versions are frozen, what the job waits for each, and the first stage's Spans."""
    saves, stalls, spans, now = [], [], [], 0.0
    while now + interval <= duration:
        asked = now + interval
        # A buffer is free when the version that used it, `buffers` before this one, is written.
        free = spans[-buffers].end if asynchronous and len(spans) >= buffers else asked
        began = max(asked, free)
        frozen = began + snapshot
        start = max(frozen, spans[-1].end if spans else 0.0)
        span = Span(len(saves), start, start + stage.seconds)
        now = frozen if asynchronous else span.end
        saves.append(asked)
        stalls.append(now - asked)
        spans.append(span)
    return saves, stalls, tuple(spans)


def _pass_on(above: Iterable[Span], saves: Sequence[float], stage: Stage, duration: float, keep: str):
    """Spans of a lower stage, versions that still wait at the end, and versions passed over."""
    due, last = [], -math.inf
    for span in above:  # those whose turn it is by this stage's own schedule
        if saves[span.version] - last >= stage.every:
            due.append(span)
            last = saves[span.version]
    spans, now, skipped, index = [], 0.0, 0, 0
    while index < len(due):
        start = max(now, due[index].end)
        if keep == "newest":
            ready = index
            while ready + 1 < len(due) and due[ready + 1].end <= start:
                ready += 1
            skipped += ready - index
            index = ready
        if start >= duration:
            break
        spans.append(Span(due[index].version, start, start + stage.seconds))
        now = start + stage.seconds
        index += 1
    return tuple(spans), sum(span.end <= duration for span in due[index:]), skipped
