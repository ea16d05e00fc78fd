"""Explorers of optimizer state: what each GPU holds, and what offloading moves."""

from functools import cache

from memtier import drawing, models, optimizer_state, recipes, tiers, units
from memtier.drawing import Axis
from memtier.live.controls import Choice, ModelChoice, Slider, Toggle
from memtier.live.course import SEVENTY
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import number, percent, several

GPUS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384)
SWEEP = tuple(2**n for n in range(15))  # GPUs at which the curves are drawn
RECIPES = {name: recipes.get(name).title for name in recipes.names()}


def _size(nbytes: float) -> str:
    """Four digits, so that 281.6 GB can be told from 282.1 GB."""
    return units.format_bytes(nbytes, digits=4)


def _titled(model) -> str:
    return model.name if isinstance(model, models.Model) else several(units.format_count(model), "parameter")


@cache
def _curves(model, recipe: str, rank: str, gathered: bool, here: int) -> list:
    """(stage, [(GPUs, bytes on one), …]) for the four stages, stage 3 with what it gathers, at `here` GPUs among them.

    Counted as the point on them is, which therefore lies on its curve.
    """
    return [(f"ZeRO-{stage}", [(gpus, optimizer_state.per_gpu(model, recipe=recipe, gpus=gpus, stage=stage, rank=rank,
                                                              gathered=gathered and stage == 3).total)
                               for gpus in sorted({*SWEEP, here})]) for stage in (0, 1, 2, 3)]


@cache
def _needed(model, recipe: str, stage: int, limit: float, gathered: bool) -> str:
    """How many GPUs are enough, or why none are, as the end of a sentence."""
    try:
        gpus = optimizer_state.gpus_needed(model, recipe=recipe, stage=stage, limit=limit, gathered=gathered)
    except ValueError:
        least = optimizer_state.per_gpu(model, recipe=recipe, gpus=2**60, stage=stage, gathered=gathered).total
        where = "the fullest one" if isinstance(model, models.Model) else "each"
        return f"no number of GPUs is enough, since {_size(least)} stay on {where}"
    return "one GPU is enough" if gpus == 1 else f"{gpus:,} GPUs are enough"


def _per_gpu(model, stage, gpus, layer, recipe, gpu, rows, guess=None) -> View:
    model, limit = models.resolve(model), tiers.accelerator(gpu).memory.capacity
    real = isinstance(model, models.Model) and rows == "max"
    gathered = layer and stage == 3 and isinstance(model, models.Model)
    held = optimizer_state.per_gpu(model, recipe=recipe, gpus=gpus, stage=stage, gathered=gathered,
                                   rank="max" if real else "average")
    on, memory = f"on {gpus:,} GPU{'s' if gpus > 1 else ''}", units.format_bytes(limit)
    whose = "the fullest GPU" if real and gpus > 1 else "each GPU" if gpus > 1 else "it"
    fits = (f"which fits into {memory} of HBM" if held.total <= limit
            else f"{number(held.total / limit)} times its {memory} of HBM")
    say = (f"{_titled(model)}, ZeRO-{stage} {on}: {_size(held.total)} of state on {whose}"
           f"{' while a layer runs' if gathered else ''}, {fits}; {_needed(model, recipe, stage, limit, gathered)}.")
    bar = drawing.bars([(f"ZeRO-{stage} {on}", held)], f"State on {whose}", say, limit=(limit, f"{memory} of HBM"),
                       guess=guess and (guess, f"your guess: {units.format_bytes(guess)}"), say=_size)
    curves = _curves(model, recipe, "max" if real else "average", gathered, gpus)
    top = max(total for _, curve in curves for _, total in curve)
    least = min(limit / 100, held.total / 1.5)
    curves = [(name, [(n, total) for n, total in curve if total >= least] or curve[:1]) for name, curve in curves]
    spread = drawing.lines(
        curves, Axis("GPUs", 1, SWEEP[-1], lambda n: f"{n:,.0f}", tuple((n, f"{n:,}") for n in (1, 8, 64, 512, 4096))),
        Axis("bytes on the fullest GPU" if real else "bytes on each GPU, average", least, max(top, limit) * 2.5, _size),
        "The same state on more GPUs", "State on a GPU against the number of GPUs, for the four stages"
        f"{', ZeRO-3 with what it gathers' if gathered else ''}. {say}",
        points=[("here", gpus, held.total)], limit=(limit, f"{memory} of HBM"),
        strong=f"ZeRO-{stage}", height=240)
    return View((bar, spread), say, _per_gpu_note(model, stage, layer, held if gathered else None))


def _per_gpu_note(model, stage: int, layer: bool, running) -> str:
    """What the figures leave unsaid. running: the inventory of a GPU on which a layer runs, else None."""
    if layer and not running:
        return ("Stage 3 alone gathers weights; under this stage every GPU has them whole already." if stage != 3 else
                "How large a layer is cannot be known from a parameter count: choose a model.")
    if running:
        at_rest = running.without("gathered root", "gathered layer").total
        return ("Gathered whole: the root (embedding, last norm, head) through the step, and one layer after the "
                f"other. {model.name} has {units.format_count(model.parameters, 4)} parameters; at rest its state is "
                f"{_size(at_rest)} here.")
    return "State only: activations and workspace come on top."


def _bought(values) -> str:
    """What going from 8 GPUs to those of the prediction saves."""
    on_8, now = (optimizer_state.per_gpu(values["model"], recipe=values["recipe"], gpus=gpus, stage=values["stage"])
                 for gpus in (8, values["gpus"]))
    return (f"So it is under ZeRO-1 on {values['gpus']} GPUs: {values['gpus'] // 8} times the GPUs took off only "
            f"{percent(1 - now.total / on_8.total, 2)}, since weights and gradients, "
            f"{_size(now['weights'] + now['gradients'])}, stay whole on each.")


per_gpu = Explorer(
    name="optimizer_state.per_gpu",
    title="Training state on each GPU",
    intro="Weights, gradients, master weights and moments, divided by ZeRO over any number of GPUs.",
    controls=(
        ModelChoice("model", "Model", SEVENTY),
        Choice("stage", "ZeRO stage", {0: "0", 1: "1", 2: "2", 3: "3"}, 1),
        Slider("gpus", "GPUs", 1, GPUS[-1], 8, GPUS, "count"),
        Toggle("layer", "Run a layer: add what stage 3 gathers", more=True),
        Choice("recipe", "Recipe", RECIPES, "bf16-adam", more=True),
        Choice("gpu", "GPU", {name: tiers.accelerator(name).title for name in tiers.accelerators()}, "h100-sxm",
               more=True),
        Choice("rows", "Count", {"max": "the fullest GPU, as FSDP2 shards rows", "average": "the average GPU"}, "max",
               more=True, open=False),
    ),
    more="More: a running layer, recipe, GPU",
    view=_per_gpu,
    presets={
        "70B on 8, ZeRO-1": {},
        "70B on 64, ZeRO-1": {"gpus": 64},
        "70B on 512, ZeRO-1": {"gpus": 512},
        "70B on 512, ZeRO-3": {"gpus": 512, "stage": 3},
        "ZeRO-3, layer running": {"model": "llama-3.1-70b", "gpus": 512, "stage": 3, "layer": True},
        "yours: 8B on one": {"model": "llama-3.1-8b", "gpus": 1, "stage": 0},
    },
    predict=Prediction(
        "Under ZeRO-1, 70 billion parameters take **385 GB** on each of 8 GPUs. You buy 64 times as many: 512. "
        "How much is left on each?",
        truth=lambda values: optimizer_state.per_gpu(values["model"], recipe=values["recipe"], gpus=values["gpus"],
                                                     stage=values["stage"]).total,
        values={"model": SEVENTY, "stage": 1, "gpus": 512, "recipe": "bf16-adam", "layer": False},
        low=1e9, high=1e12, unit="bytes", lesson=_bought),
)


_C2C = tiers.link("nvlink-c2c")
LINKS = {name: f"{title}, {units.format_rate(tiers.link(name).rate)}"
         for name, title in (("pcie4-x16", "PCIe 4 x16"), ("pcie5-x16", "PCIe 5 x16"),
                             ("pcie6-x16", "PCIe 6 x16"), ("nvlink-c2c", "C2C one way"))}  # short: a list is narrow
ADVERTISED = "nvlink-c2c, both ways"
LINKS[ADVERTISED] = f"C2C as sold, {units.format_rate(_C2C.facts['both directions'].quantity)}"
MEMORIES = {name: f"{tiers.get(name).title}, {units.format_bytes(tiers.get(name).capacity)}"
            for name in tiers.names("CPU DRAM")
            if tiers.get(name).capacity and tiers.get(name).read and tiers.get(name).write}
TRAINED = {name: title for name, title in RECIPES.items() if recipes.get(name).trains}


def _rate(link: str) -> float:
    return _C2C.facts["both directions"].quantity if link == ADVERTISED else tiers.link(link).rate


def _offload(link, update, overlap, model, recipe, memory, links, memories, guess=None) -> View:
    model, time, tier = models.resolve(model), units.format_time, tiers.get(memory)
    moved = optimizer_state.offload(model, recipe=recipe, link=_rate(link), memory=memory, update=update,
                                    overlap=overlap, links=links, memories=memories)
    state = optimizer_state.inventory(model, recipe=recipe)
    stay = {name: state[name] for name in ("master weights", "optimizer") if name in state}
    if update == "cpu":
        if not recipes.get(recipe).master:  # the update then starts from the stored weights
            stay = {"weights": moved.needed - sum(stay.values()) - state["gradients"]} | stay
        stay["gradients"] = state["gradients"]
        crossing = {"gradients": moved.down, "weights": moved.up}
        what = (f"{_size(moved.down)} of gradients go down in {time(moved.down_seconds)}, {_size(moved.up)} of weights "
                f"come up in {time(moved.up_seconds)}, and the CPU's memory moves {_size(moved.memory_bytes)} in "
                f"{time(moved.update_seconds)}")
        slower = (f", after {time(moved.landing_seconds)} for writing those gradients and before "
                  f"{time(moved.leaving_seconds)} for reading those weights")
    else:
        crossing = {"state, up": moved.up, "state, down": moved.down}
        words = " and ".join({"optimizer": "moments"}.get(name, name) for name in stay)
        what = (f"{_size(moved.up)} of {words} come up in {time(moved.up_seconds)} and go down again in "
                f"{time(moved.down_seconds)}")
        slower = (f" over the link, but the host memory takes {time(moved.leaving_seconds)} to read them and "
                  f"{time(moved.landing_seconds)} to write them")
    held_up = sum(moved.crossing_seconds) > moved.link_seconds
    fits = f"{_size(moved.needed)} {'fit' if moved.fits else 'do not fit'} into {_size(moved.capacity)} of host memory"
    say = f"Each step {what}{slower if held_up else ''}; the step waits {time(moved.exposed_seconds)}. {fits}."
    across = drawing.bars([("both ways", crossing)], "What crosses the link in a step", say,
                          guess=guess and (guess, f"your guess: {units.format_bytes(guess)}"))
    stays = drawing.bars([("offloaded", stay)], "What has to stay in host memory", fits,
                         limit=(moved.capacity, f"{units.format_bytes(moved.capacity)} there"))
    when = drawing.timeline(_lanes(moved), "One update", say)
    return View((across, stays, when), say, _offload_note(link, tier, moved))


def _lanes(moved: optimizer_state.Offload) -> list:
    """The update on a time axis, and beside it what the GPU computes while something of it is hidden.

    What crosses first is hidden behind the backward pass, which ends when the waiting begins. What crosses last is
    hidden behind the CPU's update, as far as that reaches, and then behind the next forward pass.
    """
    down, up = moved.crossing_seconds
    if moved.update == "cpu":
        first, last = down, up
        begins = max(down, down + moved.update_seconds - moved.overlap * up)
        lanes = [("link, down to the CPU", [("gradients", 0, down)]),
                 ("CPU memory, the update", [("optimizer", down, moved.update_seconds)]),
                 ("link, up to the GPU", [("weights", begins, up)])]
    else:
        first, last, begins = up, down, up
        lanes = [("link, up to the GPU", [("state, up", 0, up)]),
                 ("link, down to the CPU", [("state, down", up, down)])]
    waits = moved.overlap * first
    until = waits + moved.exposed_seconds
    if moved.overlap:
        computes = [("backward pass", 0, waits)]
        if begins + last > until * (1 + 1e-9):
            computes.append(("next forward pass", until, begins + last - until))
        # Colours follow the order of lanes: here neither pass has that of what crosses.
        lanes.insert(len(lanes) if moved.update == "cpu" else 0, ("GPU, at work meanwhile", computes))
    return [*lanes, ("what the step waits for it", [("waiting", waits, moved.exposed_seconds)])]


def _offload_note(link: str, tier, moved) -> str:
    notes = []
    if link == ADVERTISED:
        notes.append(f"{units.format_rate(_rate(link))} is both directions together: one direction has "
                     f"{units.format_rate(_C2C.rate)}, of which {units.format_rate(_C2C.rate_measured)} were measured.")
    elif tiers.link(link).rate_measured:
        notes.append(f"Measured over this link, one way: {units.format_rate(tiers.link(link).rate_measured)}.")
    if link != ADVERTISED and tiers.link(link).status == "announced":
        notes.append("This link is announced.")
    if moved.overlap:
        behind = ("gradients go down behind the backward pass, weights come up while the CPU still updates others, and "
                  "behind the next forward pass. The update is counted as not hidden." if moved.update == "cpu" else
                  "the state comes up behind the backward pass and goes down behind the next forward pass.")
        notes.append(f"{100 * moved.overlap:.0f} % of the link's time is hidden: {behind}")
    rates = units.format_rate(tier.read) + ("" if tier.read == tier.write
                                            else f" read, {units.format_rate(tier.write)} written")
    through = ("" if moved.update == "cpu" else
               f" The update moves {_size(moved.memory_bytes)} through it, {units.format_time(moved.memory_seconds)}.")
    return " ".join([*notes, f"{tier.title}: {rates}.{through}"])


offload = Explorer(
    name="optimizer_state.offload",
    title="Offloading the optimizer",
    intro="Master weights and moments live in the CPU's memory. What crosses the link in a step depends on who "
          "computes the update.",
    controls=(
        Choice("link", "Link between CPU and GPU", LINKS, ADVERTISED, open=False),
        Choice("update", "The update is computed by", {"gpu": "the GPU", "cpu": "the CPU"}, "gpu"),
        Slider("overlap", "Link time hidden", 0, 1, 0, "linear", "share"),
        ModelChoice("model", "Model", SEVENTY, more=True),
        Choice("recipe", "Recipe", TRAINED, "bf16-adam", more=True),
        Choice("memory", "Host memory", MEMORIES, "grace-lpddr5x", more=True, open=False),
        Slider("links", "GPUs, each with its own link", 1, 1024, 1, SWEEP[:11], "count", more=True),
        Slider("memories", "Host memories", 1, 256, 1, SWEEP[:9], "count", more=True),
    ),
    more="More: model, recipe, memory, several links",
    view=_offload,
    presets={
        "as the question is usually put": {},
        "the same over PCIe 5": {"link": "pcie5-x16"},
        "what really crosses": {"link": "nvlink-c2c", "update": "cpu"},
        "what really crosses, PCIe 5": {"link": "pcie5-x16", "update": "cpu"},
        "four Graces, four links": {"link": "nvlink-c2c", "update": "cpu", "links": 4, "memories": 4},
    },
    predict=Prediction(
        "70 billion parameters have **840 GB** of master weights and moments. They live in CPU memory, and the "
        "CPU computes the update there. How many bytes cross the link in one step, both ways together?",
        truth=lambda values: sum(getattr(optimizer_state.offload(
            values["model"], recipe=values["recipe"], link=_rate(values["link"]), memory=values["memory"],
            update=values["update"]), way) for way in ("down", "up")),
        values={"link": "pcie5-x16", "update": "cpu", "model": SEVENTY, "recipe": "bf16-adam"},
        low=1e9, high=1e13, unit="bytes",
        lesson="So it is when the CPU updates 70 billion parameters: gradients go down and new weights come up; the "
               "state itself never crosses. What the update costs instead is traffic in the CPU's own memory."),
)
