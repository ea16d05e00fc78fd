"""Optimizer state: the inventory of training state, before and after sharding, and what offloading it costs.

    M = P(b_w + b_g + b_m + b_o) + A + O

P parameters; b_w, b_g, b_m, b_o bytes a parameter of stored weights, gradients, separate master weights and moments
(all that the optimizer remembers beside them); A bytes of activations kept for the backward pass; O bytes of other
live workspace. "Optimizer state" is b_m and b_o together: what only the update touches.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real

from memtier import checks, models, recipes, tiers
from memtier.inventory import Inventory
from memtier.layout import SHARDED, STAGES, Layout, padded_rows, rows
from memtier.recipes import CLASSES


def inventory(model, *, recipe, activations: float = 0, other: float = 0) -> Inventory:
    """Training state before sharding: M = P(b_w + b_g + b_m + b_o) + A + O.

    model: a Model (exact, tensor by tensor, with torch's 4-byte step counters) or a parameter count P.
    recipe: a Recipe or its name. activations, other: bytes A and O, 0 or more.
    Raises ValueError for an unknown recipe, and for a count where the recipe needs shapes.

    >>> inventory(70e9, recipe="bf16-adam").total
    1120000000000
    """
    model, recipe = models.resolve(model), recipes.get(recipe)
    checks.not_negative("activations", checks.single("activations", activations))
    checks.not_negative("other", checks.single("other", other))
    state = _by_tensor(model, recipe) if isinstance(model, models.Model) else _by_count(model, recipe)
    extras = {name: nbytes for name, nbytes in (("activations", activations), ("other", other)) if nbytes}
    return _present(state | extras, f"{recipe.title}, one copy")


def per_gpu(model, *, recipe, gpus=None, stage: int | None = None, layout: Layout | None = None,
            rank: int | str = "max", padded: bool = False, gathered: bool = False) -> Inventory:
    """Training state on one GPU under ZeRO, before activations.

    Give either gpus (one sharding group of that size) and stage, or a Layout, whose tensor and pipeline must be 1.
    Stage 0 replicates everything, 1 shards master weights and moments, 2 also gradients, 3 also weights
    (arXiv:1910.02054).

    A parameter count gives the average, P·b/W for what is sharded; gpus may then be a numpy array.
    A Model gives the rows that FSDP2 really puts on a rank: rank="max" (the fullest), a rank's number, or "average".
    No rank has more rows than rank 0. Yet under 8-bit Adam the fullest can be another one, since a shard below 4,096
    elements keeps its moments in fp32, at nearly four times the bytes.
    padded=True counts the storage behind the rows: ⌈d/W⌉ rows of weights and gradients on every rank, and W times as
    many for what is gathered.
    gathered=True adds what stage 3 has whole while a layer runs: the root group (embedding, final norm, head), which
    FSDP2 keeps gathered from the forward to the end of the backward pass, and the largest layer. It needs a Model.

    Raises ValueError naming argument, value and what is allowed.
    """
    model, recipe = models.resolve(model), recipes.get(recipe)
    checks.flag("padded", padded)
    checks.flag("gathered", gathered)
    shards, zero = _sharding(gpus, stage, layout, arrays=not isinstance(model, models.Model))
    checks.single("rank", rank)
    if isinstance(rank, str) or not isinstance(model, models.Model):
        checks.one_of("rank", rank, ("max", "average"))
    whole = isinstance(model, models.Model)
    if whole and rank != "average":
        held = (_perhaps_fullest(model, recipe, shards) if rank == "max"
                else [checks.whole("rank", rank, least=0, most=shards - 1)])
        each = [_by_tensor(model, recipe, shards=shards, rank=rank, sharded=SHARDED[zero], padded=padded)
                for rank in held]
        state = max(each, key=lambda state: sum(state.values()))
    else:
        if padded:
            raise ValueError("padded is True; an average has no padding, so choose a model, by a known name or a "
                             "config.json, and the fullest rank or one by its number")
        one_copy = _by_tensor(model, recipe) if whole else _by_count(model, recipe)
        state = {name: nbytes / shards if name in SHARDED[zero] else nbytes for name, nbytes in one_copy.items()}
    if gathered:
        state |= _gathered(model, recipe, zero, shards if padded else 1)
    return _present(state, f"{recipe.title}, ZeRO-{zero} over {shards} GPUs, one GPU")


def gpus_needed(model, *, recipe, stage: int = 3, limit: float, gathered: bool = False) -> int:
    """The smallest number of GPUs whose fullest one needs at most `limit` bytes of state.

    A count uses the average; a Model the rows of the fullest rank. limit: bytes, above 0.
    More GPUs never need more on the fullest rank, with one exception: adam-8bit keeps shards below 4,096 elements in
    fp32, so there a tensor can take up to 24,440 bytes more as its shard shrinks. The answer is then a number that is
    enough where one fewer is not; a smaller one further down may be enough as well.
    Raises ValueError where no number is enough, because what stays on the fullest GPU exceeds the limit by itself.

    >>> gpus_needed(405e9, recipe="bf16-adam", stage=3, limit=100e9)
    65
    """
    checks.positive("limit", checks.single("limit", limit))
    checks.one_of("stage", stage, STAGES)

    def need(gpus: int) -> float:
        return per_gpu(model, recipe=recipe, gpus=gpus, stage=stage, gathered=gathered).total

    # The fullest then holds one row of each tensor. Even under 8-bit Adam nobody holds less: with master weights, two
    # rows take more than 2 * (4 + 2) bytes an element of a row, and one row at most 4 + 8.
    least = need(2**60)
    if least > limit:
        raise ValueError(f"limit is {checks.brief(limit)} bytes; under stage {stage} {least:,.0f} bytes stay on every "
                         "GPU, however many there are")
    enough = 1
    while need(enough) > limit:
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:  # what one fewer does not reach
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if need(middle) <= limit else (middle, enough)
    return enough


@dataclass(frozen=True)
class Traffic:
    """Bytes each state class has read and written in one training step."""

    read: Inventory
    written: Inventory


def traffic(model, *, recipe, micro_batches: int = 1) -> Traffic:
    """What one training step reads and writes of each state class, wherever that class lives.

    Weights are read by the forward and by the backward pass of every micro-batch and written once, by the update; a
    frozen base is only read. Where no separate master weights are stored, the update reads the trained weights as well.
    Gradients are written by every micro-batch, read back to be added to from the second on, and read by the update.
    Master weights and moments are read once and written once. Derived from the Adam update
    (arXiv:1412.6980, algorithm 1); caches between HBM and the arithmetic are not counted.
    """
    checks.whole("micro_batches", micro_batches)
    state = inventory(model, recipe=recipe)
    reads = {"weights": 2 * micro_batches, "gradients": micro_batches, "master weights": 1, "optimizer": 1}
    writes = {"gradients": micro_batches, "master weights": 1, "optimizer": 1}
    held = [name for name in CLASSES if name in state]
    trained, started_from = _trained_weights(model, recipe), _masterless_weights(model, recipe)
    read = {name: reads[name] * state[name] + (started_from if name == "weights" else 0) for name in held}
    written = {name: trained if name == "weights" else writes[name] * state[name] for name in held}
    return Traffic(Inventory(read, "read in one step"), Inventory(written, "written in one step"))


@dataclass(frozen=True)
class Offload:
    """What offloading the optimizer moves, and how long that takes. Bytes and seconds of one training step.

    down, up: bytes from the GPUs to the memory and back, over all links. down_seconds, up_seconds: what the links take
    for them. landing_seconds, leaving_seconds: what the memory takes to write what comes down and to read what goes up.
    memory_bytes: bytes that the update reads and writes in the memory, whoever computes it. update_seconds: how long
    the memory takes for them where the CPU computes it; 0 where the GPU does, since then they cross the link.
    needed, capacity: bytes that have to stay in the memory, and bytes it has; fits: whether they do.
    """

    update: str
    needed: float
    capacity: float
    down: float
    up: float
    down_seconds: float
    up_seconds: float
    landing_seconds: float
    leaving_seconds: float
    memory_bytes: float
    update_seconds: float
    overlap: float

    @property
    def link_seconds(self) -> float:
        """What the links take in both directions, one after the other."""
        return self.down_seconds + self.up_seconds

    @property
    def crossing_seconds(self) -> tuple[float, float]:
        """(down, up): in each direction the slower of the links and of the memory at their end."""
        return max(self.down_seconds, self.landing_seconds), max(self.up_seconds, self.leaving_seconds)

    @property
    def memory_seconds(self) -> float:
        """How long the memory is busy with memory_bytes."""
        return self.update_seconds if self.update == "cpu" else self.landing_seconds + self.leaving_seconds

    @property
    def exposed_seconds(self) -> float:
        """What the step waits: the part of the crossing that overlap does not hide, then the CPU's update."""
        return (1 - self.overlap) * sum(self.crossing_seconds) + self.update_seconds

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity


def offload(model, *, recipe, link, memory, update: str = "cpu", overlap: float = 0.0, links: int = 1,
            memories: int = 1) -> Offload:
    """Offload master weights and moments to a slower memory: what crosses the link, and what waits.

    update="cpu": the CPU computes the update beside them (ZeRO-Offload, arXiv:2101.06840). Gradients go down, new
    weights come up; master weights and moments never cross. The memory carries the update instead: gradients, master
    weights and moments read, master weights, moments and weights written. A recipe without master weights updates its
    stored weights: the CPU then holds and reads those in their place.
    update="gpu": the GPU computes the update, so master weights and moments cross up and then down again.

    link: a Link, its name, or bytes a second in one direction. memory: a Tier or its name; it is read at its read rate
    and written at its write rate, and where it is slower than the links, it sets their pace.
    overlap: the fraction of the crossing hidden behind something else, 0 to 1: gradients behind the backward pass,
    weights behind the update of those that follow or behind the next forward pass. The update itself is not hidden.
    links: GPUs that each have such a link and carry an equal share. memories: host memories of that kind, likewise.
    Raises ValueError naming argument, value and what is allowed; also for a recipe that trains nothing, and where the
    memory has no known capacity, read rate or write rate.
    """
    model, recipe = models.resolve(model), recipes.get(recipe)
    checks.one_of("update", update, ("cpu", "gpu"))
    checks.fraction("overlap", overlap)
    checks.whole("links", links)
    checks.whole("memories", memories)
    if not recipe.trains:
        raise ValueError(f"recipe is {recipe.name!r}; it trains nothing, so there is no optimizer to offload: choose a "
                         "recipe that trains")
    rate = checks.positive("link", link) if isinstance(link, Real) else tiers.link(link, or_rate=True).rate
    tier = tiers.get(memory, argument="memory")
    if tier.capacity is None:
        raise ValueError(f"memory is {tier.name!r}; the ledger has no capacity for it, so choose another tier")
    for way in ("read", "write"):
        tier.rate(way, "memory")
    state = inventory(model, recipe=recipe)
    kept = state.get("master weights", 0) + state.get("optimizer", 0)
    gradients, weights = state.get("gradients", 0), _trained_weights(model, recipe)
    if update == "cpu":
        started_from = _masterless_weights(model, recipe)
        down, up, needed = gradients, weights, kept + gradients + started_from
        reads, writes = gradients + kept + started_from, kept + weights
    else:
        down, up, needed = kept, kept, kept
        reads, writes = kept, kept

    def busy(nbytes, time) -> float:
        return time(nbytes, streams=memories) if nbytes else 0.0

    return Offload(
        update=update,
        needed=needed,
        capacity=tier.capacity * memories,
        down=down,
        up=up,
        down_seconds=tiers.transfer_time(down, rate, streams=links),
        up_seconds=tiers.transfer_time(up, rate, streams=links),
        landing_seconds=busy(down, tier.write_time),
        leaving_seconds=busy(up, tier.read_time),
        memory_bytes=reads + writes,
        update_seconds=busy(reads, tier.read_time) + busy(writes, tier.write_time) if update == "cpu" else 0.0,
        overlap=overlap,
    )


def _trained_weights(model, recipe) -> float:
    """Bytes of stored weights that an update rewrites: all of them; with a frozen base the adapters' alone."""
    model, recipe = models.resolve(model), recipes.get(recipe)
    if not recipe.trains:
        return 0
    if recipe.adapters is None:
        return recipe.weights * (model.parameters if isinstance(model, models.Model) else model)
    return recipe.weights * sum(tensor.numel for tensor, trained in recipe.tensors(model) if trained)


def _masterless_weights(model, recipe) -> float:
    """Bytes of stored weights that an update starts from, for want of separate master weights; else 0."""
    recipe = recipes.get(recipe)
    return 0 if recipe.master else _trained_weights(model, recipe)


def _by_count(parameters, recipe) -> dict:
    """P·b of each class for a bare parameter count."""
    if recipe.needs_shapes:
        raise ValueError(f"recipe is {recipe.name!r}; what it holds depends on the tensors' shapes, which a parameter "
                         "count does not tell, so choose a model: a known name or a config.json")
    return {name: parameters * each for name, each in recipe.by_class.items()}


def _by_tensor(model, recipe, *, shards=1, rank=0, sharded=frozenset(), padded=False) -> dict:
    """Bytes of each class on one rank, summed over the tensors; FSDP2's rows for the classes that are sharded."""
    total = dict.fromkeys((*CLASSES, "step counters"), 0)
    for (shape, part, trained), times in _alike(model, recipe):
        first, rest = shape[0], math.prod(shape[1:])
        mine = rows(first, shards, rank)
        stored = padded_rows(first, shards) if padded else mine

        def elements(name, held, first=first, rest=rest):
            return rest * (held if name in sharded else first)

        total["weights"] += times * recipe.weights * elements("weights", stored)
        if trained:
            total["gradients"] += times * recipe.gradients * elements("gradients", stored)
            total["master weights"] += times * recipe.master * elements("master weights", mine)
            total["optimizer"] += times * recipe.optimizer_bytes(shape, part, mine if "optimizer" in sharded else None)
            total["step counters"] += times * recipe.counter_bytes(shape, part)
    return total


def _perhaps_fullest(model, recipe, shards: int) -> list[int]:
    """Ranks of which one is the fullest, the lowest first.

    Rows never increase from a rank to the next, and of more rows no rule remembers less, except that of 8-bit blocks.
    There every rank is tried at which a tensor's rows change: the first with fewer rows, and the first with none.
    """
    if recipe.rule != "8-bit blocks":
        return [0]
    changes = {0}
    for (shape, _, _), _ in _alike(model, recipe):
        last_full = shape[0] // padded_rows(shape[0], shards)
        changes |= {last_full, last_full + 1}
    return sorted(rank for rank in changes if rank < shards)


@lru_cache(maxsize=64)
def _alike(model, recipe) -> tuple:
    """((shape, part, trained), how many) of a run's tensors. Layers repeat them: the 723 of a 70B model are 7 kinds."""
    return tuple(Counter((tensor.shape, tensor.part, trained) for tensor, trained in recipe.tensors(model)).items())


def _gathered(model, recipe, zero: int, shards: int) -> dict:
    """What stage 3 holds whole while a layer runs: the root group and the largest layer."""
    if not isinstance(model, models.Model):
        raise ValueError("gathered is True; the size of a layer is not known from a parameter count, so "
                         "choose a model: a known name or a config.json")
    if zero != 3:
        raise ValueError(f"gathered is True; only stage 3 gathers weights, stage {zero} keeps them whole")
    units: dict = {}
    for tensor, _ in recipe.tensors(model):
        # What is gathered is a view of shards · ⌈d/shards⌉ rows: with one shard, just the tensor's own.
        stored = shards * padded_rows(tensor.shape[0], shards) * math.prod(tensor.shape[1:])
        units[tensor.unit] = units.get(tensor.unit, 0) + recipe.gathered * stored
    root = units.pop("root")
    return {"gathered root": root, "gathered layer": max(units.values())}


def _sharding(gpus, stage, layout, arrays: bool):
    """(size of the sharding group, stage), from either way of saying it."""
    if layout is not None:
        if gpus is not None or stage is not None:
            raise ValueError(f"layout is {checks.brief(layout)}, with gpus {checks.brief(gpus)} and stage "
                             f"{checks.brief(stage)}; give a layout, or gpus and a stage")
        if not isinstance(layout, Layout):
            raise ValueError(f"layout is {checks.brief(layout)}; it must be a Layout")
        for name in ("tensor", "pipeline"):
            if getattr(layout, name) != 1:
                raise ValueError(f"layout has {name}={getattr(layout, name)}; it must be 1: this divides one copy of"
                                 " the state over data parallel GPUs only")
        return layout.shard, layout.zero
    if gpus is None or stage is None:
        raise ValueError(f"gpus is {checks.brief(gpus)} and stage is {checks.brief(stage)}; give both, or a layout")
    checks.one_of("stage", stage, STAGES)
    if arrays and hasattr(gpus, "min"):
        return checks.positive("gpus", gpus), stage
    return checks.whole("gpus", gpus), stage


def _present(state: dict, title: str) -> Inventory:
    """An Inventory of the classes that hold anything."""
    return Inventory({name: nbytes for name, nbytes in state.items()
                      if (nbytes.max() if hasattr(nbytes, "max") else nbytes)}, title)
