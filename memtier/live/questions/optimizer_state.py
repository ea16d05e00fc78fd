"""Questions on optimizer state. Every answer, right or wrong, is computed by the functions the chapter explains.

Each question has a draw function: the numbers of a round, and beside them, as words, what its texts say about them.
"""

import math
from functools import cache

from memtier import checkpoints, layout, models, optimizer_state, recipes, tiers, units
from memtier.inventory import Inventory
from memtier.live.course import BILLION
from memtier.live.question import Misconception, Question
from memtier.units import format_bytes, format_count, format_rate, format_time

RECIPE = "bf16-adam"


def _state(v, recipe=RECIPE) -> Inventory:
    return optimizer_state.inventory(v["parameters"], recipe=recipe)


def _per_gpu(v, **other) -> float:
    asked = {name: v[name] for name in ("gpus", "stage")} | other
    return optimizer_state.per_gpu(v["parameters"], recipe=RECIPE, **asked).total


def _kept(state: Inventory) -> float:
    """Bytes of the optimizer's part: master weights and moments."""
    return state["master weights"] + state["optimizer"]


def _listed(words) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


# What one copy of the state takes


def _draw_sixteen(random) -> dict:
    v = {"parameters": random.choice((2, 3, 5, 9, 12, 20, 30, 50, 90, 110)) * BILLION}
    state = _state(v)
    return v | {"size": format_count(v["parameters"]), "total": format_bytes(state.total),
                "served": format_bytes(state["weights"])}


sixteen = Question(
    name="optimizer_state.sixteen",
    title="The sixteen bytes",
    draw=_draw_sixteen,
    prompt="A model of {size} parameters is trained with mixed-precision Adam: weights and gradients in bf16, an fp32 "
           "master copy, two moments in fp32. **How much training state is that**, one copy, before activations?",
    unit="bytes",
    answer=lambda v: _state(v).total,
    misconceptions=(
        Misconception(lambda v: _state(v, "inference").total,
                      "Those are the weights alone: what serving keeps. Training adds four more numbers to each."),
        Misconception(lambda v: _kept(_state(v)),
                      "You have 12 bytes a parameter. Either 4 are missing (a master weight, or one of the two "
                      "moments), or you counted the optimizer's part alone."),
        Misconception(lambda v: _state(v).total - _state(v)["gradients"],
                      "You have 14 bytes a parameter, a checkpoint's. Gradients need not be saved, but held."),
        Misconception(lambda v: _state(v, "bf16-adam-fp32-grads").total,
                      "You have 18 bytes a parameter. That is right for fp32 gradients; here they are in bf16."),
        Misconception(lambda v: _state(v)["optimizer"], "Those are the two moments alone."),
    ),
    hints=(
        "List what is kept for one parameter, five numbers, with 2 bytes for bf16 and 4 for fp32.",
        "Weight, gradient, master weight, first moment, second moment. Add their bytes, then multiply.",
    ),
    solution="Weight 2, gradient 2, master weight 4, moments 4 + 4: 16 bytes a parameter. {size} × 16 bytes = "
             "**{total}**. Serving keeps {served} of it.",
)


STORED = {
    "bf16-adam-fp32-grads": "weights in bf16, gradients in fp32, an fp32 master copy and Adam's two moments in fp32",
    "bf16-adam-two-grads": "weights in bf16, gradients in bf16 and also their sum in fp32, an fp32 master copy and "
                           "Adam's two moments in fp32",
    "bf16-moments": "weights and gradients in bf16, an fp32 master copy and Adam's two moments in bf16",
    "deepseek-v3": "weights in bf16, gradients in fp32, an fp32 master copy and Adam's two moments in bf16",
    "sgd-momentum": "weights and gradients in bf16, an fp32 master copy and one momentum in fp32",
}


def _draw_recipe(random) -> dict:
    v = {"parameters": random.choice((4, 6, 10, 15, 25, 40, 60, 100)) * BILLION,
         "recipe": random.choice(list(STORED))}
    recipe, state = recipes.get(v["recipe"]), _state(v, v["recipe"])
    return v | {"size": format_count(v["parameters"]), "stored": STORED[v["recipe"]],
                "total": format_bytes(state.total), "each": f"{recipe.per_parameter:g}",
                "weights": f"{recipe.weights:g}", "gradients": f"{recipe.gradients:g}",
                "master": f"{recipe.master:g}", "optimizer": f"{recipe.optimizer:g}"}


recipe = Question(
    name="optimizer_state.recipe",
    title="Another recipe",
    draw=_draw_recipe,
    prompt="Someone trains {size} parameters and keeps {stored}. **How much training state is that**, one copy, before "
           "activations?",
    unit="bytes",
    answer=lambda v: _state(v, v["recipe"]).total,
    misconceptions=(
        Misconception(lambda v: _state(v).total,
                      "That is 16 bytes a parameter. Sixteen is one recipe; read again what this one keeps."),
        Misconception(lambda v: _state(v, v["recipe"])["weights"], "Those are the weights alone."),
        Misconception(lambda v: _state(v, v["recipe"]).total - _state(v, v["recipe"])["gradients"],
                      "The gradients are missing. They do not outlive the step, but the update finds them there."),
    ),
    hints=(
        "Write the four terms of the bracket: weights + gradients + master weights + optimizer, in bytes a parameter.",
        "The weights are {weights} bytes a parameter and the gradients {gradients}.",
    ),
    solution="{weights} + {gradients} + {master} + {optimizer} = {each} bytes a parameter. {size} × {each} bytes = "
             "**{total}**.",
)


# Billions of parameters whose GPUs are a number of one significant figure, the precision that the question promises.
ESTIMATED = (100, 150, 200, 250, 300, 350, 400, 450, 500, 1000)


def _draw_estimate(random) -> dict:
    v = {"parameters": random.choice(ESTIMATED) * BILLION, "limit": 80 * units.GB}
    return v | {"size": format_count(v["parameters"]), "card": format_bytes(v["limit"]), "gpus": f"{_needed(v):,}"}


def _needed(v, limit=None, gathered=False) -> int:
    return _gpus(v["model"] if "model" in v else v["parameters"], limit or v["limit"], gathered)


@cache
def _gpus(model, limit: float, gathered: bool) -> int:
    return optimizer_state.gpus_needed(model, recipe=RECIPE, stage=3, limit=limit, gathered=gathered)


estimate = Question(
    name="optimizer_state.estimate",
    title="One figure, no tool",
    draw=_draw_estimate,
    prompt="In your head: **about how many {card} GPUs does the state of {size} parameters fill**, with "
           "mixed-precision Adam, cut as finely as you like? One significant figure is enough.",
    unit="count",
    tolerance=0.2,
    answer=_needed,
    misconceptions=(
        Misconception(lambda v: math.ceil(_state(v)["weights"] / v["limit"]),
                      "That is enough for the weights: 2 bytes, not 16."),
        Misconception(lambda v: 10 * _needed(v), "A power of ten too many."),
        Misconception(lambda v: math.ceil(_needed(v) / 10), "A power of ten too few."),
    ),
    hints=(
        "How many parameters, with all that belongs to them, fit on one GPU?",
        "80 ÷ 16: five billion parameters a GPU.",
    ),
    solution="One {card} GPU holds the state of 80 ÷ 16 = 5 billion parameters. {size} ÷ 5 billion = **{gpus}**. Keep "
             "the five: it answers most such questions on the spot.",
)


# Who holds what

CLASSES = {"weights": "weights", "gradients": "gradients", "master weights": "master weights",
           "optimizer": "Adam's two moments", "activations": "activations"}


def _draw_stages(random) -> dict:
    v = {"stage": random.choice((1, 2, 3))}
    divided = [words for name, words in CLASSES.items() if name in layout.SHARDED[v["stage"]]]
    return v | {"before": v["stage"] - 1, "divided": _listed(divided)}


stages = Question(
    name="optimizer_state.stages",
    title="What a stage shards",
    draw=_draw_stages,
    prompt="Mixed-precision Adam, ZeRO **stage {stage}**. **Which of these are divided** among the data-parallel GPUs, "
           "so that each holds only its part between steps?",
    kind="multiple",
    options=CLASSES,
    answer=lambda v: layout.SHARDED[v["stage"]],
    misconceptions=(
        Misconception(lambda v: layout.SHARDED[v["stage"]] - {"master weights"},
                      "Nearly: the master weights belong to the optimizer's part, with the moments. 12 bytes, not 8."),
        Misconception(lambda v: layout.SHARDED[v["stage"]] | {"activations"},
                      "No ZeRO stage divides activations: each GPU has those of its own samples already."),
        Misconception(lambda v: layout.SHARDED[v["stage"] - 1],
                      "That is stage {before}. Each stage adds a class to the one before."),
        Misconception(lambda v: (layout.SHARDED[3] - layout.SHARDED[v["stage"]]) | {"activations"},
                      "That is what this stage leaves whole: just the other way round."),
    ),
    hints=(
        "Each stage adds to the stage before it.",
        "The order: what only the update needs; what is summed over the GPUs anyway; what every layer needs.",
    ),
    solution="Stage {stage} divides {divided}. In order: stage 1 master weights and moments (12 bytes a parameter), "
             "stage 2 also gradients (14), stage 3 also weights (16), which it must gather layer by layer.",
)


def _draw_on_each(random) -> dict:
    v = {"parameters": random.choice((10, 14, 20, 32, 40, 70, 120)) * BILLION,
         "gpus": random.choice((8, 16, 32, 64, 128)), "stage": random.choice((1, 2))}
    state, divided = _state(v), layout.SHARDED[v["stage"]]
    whole = sum(state[name] for name in state if name not in divided)
    shared = state.total - whole
    return v | {"size": format_count(v["parameters"]), "other": 3 - v["stage"], "whole": format_bytes(whole),
                "names": _listed([name for name in state if name not in divided]), "shared": format_bytes(shared),
                "part": format_bytes(shared / v["gpus"]), "total": format_bytes(_per_gpu(v))}


on_each_gpu = Question(
    name="optimizer_state.on_each_gpu",
    title="On each GPU",
    draw=_draw_on_each,
    prompt="{size} parameters, mixed-precision Adam at 16 bytes, ZeRO-{stage} over {gpus} GPUs. **How much state is on "
           "each GPU?**",
    unit="bytes",
    answer=_per_gpu,
    misconceptions=(
        Misconception(lambda v: _per_gpu(v, stage=3),
                      "You divided everything. Stage {stage} leaves a part whole on every GPU."),
        Misconception(lambda v: _per_gpu(v, stage=0), "That is the whole state. This stage does divide a part of it."),
        Misconception(lambda v: _per_gpu(v, stage=3 - v["stage"]),
                      "That is stage {other}. What happens to the gradients?"),
        Misconception(lambda v: _per_gpu(v) + _state(v)["master weights"] * (1 - 1 / v["gpus"]),
                      "You kept the master weights whole. They are divided with the moments: 12 bytes, not 8."),
    ),
    hints=(
        "Which of 2 + 2 + 4 + 8 bytes does stage {stage} divide by {gpus}?",
        "What stays whole is {whole}.",
    ),
    solution="Whole on every GPU: {names}, {whole}. Divided: {shared} ÷ {gpus} = {part}. Together **{total}**. However "
             "many GPUs you add, it never falls below {whole}.",
)


def _draw_more(random) -> dict:
    v = {"parameters": BILLION, "gpus": random.choice((8, 16)), "more": random.choice((128, 256, 512, 1024)),
         "stage": random.choice((1, 2))}
    before, after = _per_gpu(v) / BILLION, _per_gpu(v, gpus=v["more"]) / BILLION
    return v | {"before": f"{before:.4g}", "after": f"{after:.4g}", "fall": f"{100 * (1 - after / before):.3g} %",
                "times": v["more"] // v["gpus"]}


more_gpus = Question(
    name="optimizer_state.more_gpus",
    title="What more GPUs buy",
    draw=_draw_more,
    prompt="A run with mixed-precision Adam moves from {gpus} to {more} GPUs under ZeRO-{stage}. **By what share does "
           "the state on each GPU fall?** (The size of the model is not needed. Why not?)",
    unit="share",
    tolerance=0.04,
    answer=lambda v: 1 - _per_gpu(v, gpus=v["more"]) / _per_gpu(v),
    misconceptions=(
        Misconception(lambda v: 1 - v["gpus"] / v["more"],
                      "That would hold if everything were divided. What does this stage leave whole?"),
        Misconception(lambda v: _per_gpu(v, gpus=v["more"]) / _per_gpu(v),
                      "That is what is left, not by how much it falls."),
        Misconception(lambda v: _per_gpu(v) / _per_gpu(v, gpus=v["more"]) - 1,
                      "You compared with the smaller number; a fall is a share of what there was before."),
    ),
    hints=(
        "Write both as bytes a parameter: whole part + divided part ÷ GPUs.",
        "On {gpus} GPUs it is {before} bytes a parameter.",
    ),
    solution="In bytes a parameter, {before} on {gpus} GPUs and {after} on {more}: a fall of **{fall}** for {times} "
             "times the GPUs. The number of parameters cancels. What the stage leaves whole does not shrink.",
)


def _draw_needed(random) -> dict:
    v = {"parameters": random.choice((236, 314, 405, 480, 671, 1000)) * BILLION,
         "limit": random.choice((60, 70, 80, 100)) * units.GB}
    total = _state(v).total
    return v | {"size": format_count(v["parameters"]), "room": format_bytes(v["limit"]), "total": format_bytes(total),
                "ratio": f"{total / v['limit']:.2f}", "needed": f"{_needed(v):,}"}


gpus_needed = Question(
    name="optimizer_state.gpus_needed",
    title="How many GPUs",
    draw=_draw_needed,
    prompt="A model of {size} parameters trains with mixed-precision Adam under FSDP (ZeRO-3). **What is the smallest "
           "number of GPUs** that keeps the state on each at or below {room}? Count the state alone, nothing gathered.",
    unit="count",
    tolerance=0,
    answer=_needed,
    misconceptions=(
        Misconception(lambda v: math.ceil(_state(v)["weights"] / v["limit"]),
                      "Enough for the weights, so for serving. Training keeps more."),
        Misconception(lambda v: math.ceil(_kept(_state(v)) / v["limit"]),
                      "You divided the optimizer's 12 bytes. Weights and gradients need room as well."),
        Misconception(lambda v: _needed(v) - 1, "One too few: you rounded down. The last bytes need a place as well."),
        Misconception(lambda v: _needed(v, limit=v["limit"] / units.GB * units.GiB),
                      "You took the limit in GiB. It is given in GB, which are 7 % smaller."),
    ),
    hints=(
        "How large is the whole state, at 16 bytes a parameter?",
        "Divide {total} by {room}, and think about which way to round.",
    ),
    solution="The state is {size} × 16 bytes = {total}. Divided by {room} that is {ratio}, so **{needed}** GPUs. That "
             "is before activations, and before anything is gathered.",
)


# Here rows are so even that FSDP2's fullest rank and the calculation by hand give the same number of GPUs.
RUNNING = (("llama-3.1-70b", 30), ("llama-3.1-70b", 40), ("llama-3.1-70b", 50), ("llama-3.1-405b", 80),
           ("llama-3.1-405b", 100), ("llama-3.1-405b", 120), ("qwen2.5-72b", 30), ("qwen2.5-72b", 50))


def _gathered(v) -> tuple[float, float]:
    """Bytes of the root group and of the largest layer, whole."""
    running = optimizer_state.per_gpu(v["model"], recipe=RECIPE, gpus=1, stage=3, gathered=True)
    return running["gathered root"], running["gathered layer"]


def _draw_running(random) -> dict:
    name, gigabytes = random.choice(RUNNING)
    v = {"model": name, "limit": gigabytes * units.GB, "parameters": models.get(name).parameters}
    root, layer = _gathered(v)
    return v | {"size": f"{v['parameters']:,}", "room": format_bytes(v["limit"]), "root": format_bytes(root),
                "layer": format_bytes(layer), "left": format_bytes(v["limit"] - root - layer),
                "total": format_bytes(_state(v).total), "needed": f"{_needed(v, gathered=True):,}",
                "resting": f"{_needed(v):,}"}


gpus_running = Question(
    name="optimizer_state.gpus_running",
    title="How many GPUs, with a layer running",
    draw=_draw_running,
    prompt="`{model}` has {size} parameters. Gathered in bf16, its root group (embedding, final norm, head) takes "
           "{root} and its largest layer {layer}. Mixed-precision Adam under FSDP2. **How many GPUs keep each at or "
           "below {room} while a layer runs**, before activations?",
    unit="count",
    tolerance=0,
    answer=lambda v: _needed(v, gathered=True),
    misconceptions=(
        Misconception(_needed, "Enough for the state at rest. What is gathered has to fit beside it, and it does not "
                               "shrink with more GPUs."),
        Misconception(lambda v: _needed(v, limit=v["limit"] - _gathered(v)[1]),
                      "You counted the layer. The root group stays gathered from the forward to the end of the "
                      "backward pass: count it too."),
        Misconception(lambda v: _needed(v, limit=v["limit"] - _gathered(v)[0]),
                      "You counted the root. A layer must be whole to run: count it too."),
        Misconception(lambda v: _needed(v, gathered=True) - 1, "One too few: you rounded down."),
    ),
    hints=(
        "What is gathered is the same on every GPU. Take it from the limit first.",
        "For the shard that leaves {left}.",
    ),
    solution="Take what is gathered from the limit: {room} − {root} − {layer} = {left} for the shard. The state, 16 "
             "bytes a parameter, is {total}; divided and rounded up: **{needed}** GPUs. By the state alone it would be "
             "{resting}.",
)


def _uneven() -> list[tuple[int, int]]:
    """Rows and ranks whose last rank holds neither the even share nor as many as the first."""
    return [(count, ranks) for ranks in (4, 6, 8) for count in range(ranks + 1, 8 * ranks)
            if layout.rows(count, ranks, ranks - 1) not in (count // ranks, layout.padded_rows(count, ranks))]


def _draw_rows(random) -> dict:
    count, ranks = random.choice(_uneven())
    held = [layout.rows(count, ranks, rank) for rank in range(ranks)]
    return {"rows": count, "ranks": ranks, "last": ranks - 1, "first": held[0], "held": ", ".join(map(str, held)),
            "answer": held[-1]}


rows = Question(
    name="optimizer_state.rows",
    title="Rows of a rank",
    draw=_draw_rows,
    prompt="FSDP2 shards a matrix of {rows} rows over {ranks} ranks. **How many of its rows does the last one**, rank "
           "{last}, **hold?**",
    unit="count",
    tolerance=0,
    answer=lambda v: layout.rows(v["rows"], v["ranks"], v["last"]),
    misconceptions=(
        Misconception(lambda v: v["rows"] // v["ranks"],
                      "That would be an even spread. FSDP2 gives every rank the same rounded-up number in turn, until "
                      "no rows are left."),
        Misconception(lambda v: layout.padded_rows(v["rows"], v["ranks"]),
                      "That is what the first ranks hold, and what every rank has room for. By the last rank the rows "
                      "have run out."),
    ),
    hints=(
        "How many rows does rank 0 get? Divide and round up.",
        "Each rank in turn gets that many. How many are left for the last?",
    ),
    solution="{rows} ÷ {ranks}, rounded up, is {first}. Dealt out in turn, the ranks hold {held}: the last one "
             "**{answer}**.",
)


def _of_fault(v, fault: str) -> float:
    """What the tool shows, in the G it counts in, when this is what happened."""
    state = _state(v, "bf16-adam-fp32-grads" if fault == "gradients" else RECIPE)
    whole = {"weights", {"whole gradients": "gradients", "whole master": "master weights"}.get(fault)}
    nbytes = sum(each if name in whole else each / v["gpus"] for name, each in state.items())
    return nbytes / (units.GiB if fault == "GiB" else units.GB)


FAULTS = {
    "gradients": "the gradients are kept in fp32, not in bf16",
    "whole gradients": "the gradients are not divided: it is ZeRO-1, not ZeRO-2",
    "whole master": "the master weights are not divided",
    "GiB": "nothing is missing: the tool counts in GiB",
}


def _draw_diagnose(random) -> dict:
    v = {"parameters": random.choice((7, 8, 12, 13, 15)) * BILLION, "gpus": random.choice((4, 8, 16)), "stage": 2,
         "fault": random.choice(list(FAULTS))}
    predicted, seen = _per_gpu(v) / units.GB, _of_fault(v, v["fault"])
    others = [f"- {words}: {_of_fault(v, fault):.1f} G" for fault, words in FAULTS.items() if fault != v["fault"]]
    return v | {"size": format_count(v["parameters"]), "predicted": f"{predicted:.1f}", "seen": f"{seen:.1f}",
                "each": f"{abs(seen - predicted) * units.GB / v['parameters']:.3g}", "others": "\n".join(others),
                "what": FAULTS[v["fault"]], "direction": "more" if seen > predicted else "less"}


diagnose = Question(
    name="optimizer_state.diagnose",
    title="Predicted and seen",
    draw=_draw_diagnose,
    prompt="{size} parameters, mixed-precision Adam at 16 bytes, ZeRO-2 over {gpus} GPUs: you predicted **{predicted} "
           "GB** of state on each. After the first step, with no activation left, the tool shows **{seen} G**. **What "
           "explains it?**",
    kind="choice",
    options=FAULTS,
    answer=lambda v: v["fault"],
    misconceptions=tuple(
        Misconception(lambda v, fault=fault: fault,
                      lambda v, fault=fault: f"With that, the tool would show {_of_fault(v, fault):.1f} G.")
        for fault in FAULTS),
    hints=(
        "Turn the difference into bytes a parameter. Which class has so many, and is it whole on the GPU or divided?",
        "It shows {each} bytes a parameter {direction} than you predicted.",
    ),
    solution="Predicted: 2P + 14P/{gpus} = {predicted} GB. Seen: {seen}. That fits: {what}. The others would "
             "show:\n\n{others}",
)


PLANS = {
    "1": "ZeRO-1 over all GPUs",
    "2": "ZeRO-2 over all GPUs",
    "3": "ZeRO-3 over all GPUs",
    "hybrid": "ZeRO-3 inside two groups of half the GPUs each (hybrid sharding)",
    "offload": "ZeRO-2 over all GPUs, master weights and moments in CPU memory",
}


def _plan(v, plan: str) -> float:
    """Bytes of state on each GPU under a plan."""
    if plan == "hybrid":
        groups = layout.Layout(replicate=2, shard=v["gpus"] // 2, zero=3)
        return optimizer_state.per_gpu(v["parameters"], recipe=RECIPE, layout=groups).total
    stage = 2 if plan == "offload" else int(plan)
    state = optimizer_state.per_gpu(v["parameters"], recipe=RECIPE, gpus=v["gpus"], stage=stage)
    return (state.without("master weights", "optimizer") if plan == "offload" else state).total


def _fitting(v, room: float) -> frozenset:
    return frozenset(plan for plan in PLANS if _plan(v, plan) <= room)


def _draw_design(random) -> dict:
    v = {"parameters": random.choice((18, 20, 24, 30)) * BILLION, "gpus": random.choice((32, 64)),
         "free": random.choice((15, 25)) * units.GB, "limit": 80 * units.GB}
    room = v["limit"] - v["free"]
    lines = [f"- {words}: {format_bytes(_plan(v, plan))}, {'fits' if plan in _fitting(v, room) else 'does not fit'}"
             for plan, words in PLANS.items()]
    return v | {"size": format_count(v["parameters"]), "card": format_bytes(v["limit"]),
                "spare": format_bytes(v["free"]), "room": format_bytes(room), "lines": "\n".join(lines),
                "weights": format_bytes(_state(v)["weights"])}


design = Question(
    name="optimizer_state.design",
    title="Several that work, defend one",
    draw=_draw_design,
    prompt="{size} parameters, mixed-precision Adam at 16 bytes, {gpus} GPUs of {card}. You want {spare} of each GPU "
           "free for activations and for what is gathered. **Which of these plans fit?** Then choose one of them and "
           "defend it in a sentence.",
    kind="multiple",
    options=PLANS,
    answer=lambda v: _fitting(v, v["limit"] - v["free"]),
    misconceptions=(
        Misconception(lambda v: frozenset(PLANS), "Not all of them: check what each leaves whole on every GPU."),
        Misconception(lambda v: frozenset({"3"}), "It fits, and leaves the most room. But it is not the only one."),
        Misconception(lambda v: frozenset({"3", "hybrid", "1"}), "ZeRO-1 keeps the gradients whole: 4 bytes a "
                                                                 "parameter on every GPU, however many there are."),
    ),
    hints=(
        "For each plan: what is whole on every GPU, and what is divided by how many?",
        "The state may take at most {room} of each GPU; whole weights alone are {weights}.",
    ),
    solution="State on each GPU, of which at most {room} may be used:\n\n{lines}\n\nMore than one works, so bytes do "
             "not decide. ZeRO-3 over all GPUs leaves the most room and gathers every layer over the slowest link. Two "
             "groups hold twice as much on each GPU and gather inside a group, where links are faster. Whole weights "
             "need no gathering at all; offload pays in link time and CPU memory traffic in every step. A good defence "
             "names what the choice costs.",
)


# Saving it and moving it


def _saved(v) -> float:
    return checkpoints.inventory(v["parameters"], recipe=RECIPE).total


def _written(v, nbytes: float) -> float:
    return checkpoints.write_time(nbytes, to=v["rate"], writers=v["writers"])


def _draw_checkpoint(random) -> dict:
    v = {"parameters": random.choice((30, 70, 120, 180, 405)) * BILLION, "writers": random.choice((8, 16, 32, 64)),
         "rate": random.choice((5, 10, 20, 30)) * units.GB}
    return v | {"size": format_count(v["parameters"]), "each": format_rate(v["rate"]), "saved": format_bytes(_saved(v)),
                "together": format_rate(v["writers"] * v["rate"]), "time": format_time(_written(v, _saved(v)))}


checkpoint = Question(
    name="optimizer_state.checkpoint",
    title="Saving it",
    draw=_draw_checkpoint,
    prompt="{size} parameters, mixed-precision Adam. {writers} nodes save one resumable checkpoint together, each "
           "writing to its own NVMe drives at {each}. **How long does it take?**",
    unit="s",
    answer=lambda v: _written(v, _saved(v)),
    misconceptions=(
        Misconception(lambda v: _written(v, _state(v).total),
                      "You saved the gradients too. The next backward pass makes new ones: 14 bytes a parameter "
                      "suffice."),
        Misconception(lambda v: checkpoints.write_time(_saved(v), to=v["rate"]),
                      "That is one node writing everything. Each writes only its share."),
        Misconception(lambda v: _written(v, _state(v)["weights"]),
                      "Those are the weights alone, enough to serve from. The run could not go on from them."),
        Misconception(lambda v: _written(v, _kept(_state(v))),
                      "You saved master weights and moments, 12 bytes. Counted as usual, the bf16 weights are saved "
                      "too: 14."),
    ),
    hints=(
        "What must be saved so that the run goes on as if nothing had happened? What can be made again?",
        "The checkpoint is {saved}, written once for the whole job.",
    ),
    solution="Weights, master weights and moments: 2 + 4 + 8 = 14 bytes a parameter, {saved} in all. {writers} nodes "
             "at {each} write {together} together: **{time}**.",
)


def _offload(v, **other) -> optimizer_state.Offload:
    asked = {"link": v.get("link", "pcie5-x16"), "memory": v.get("memory", "grace-lpddr5x")} | other
    return optimizer_state.offload(v["parameters"], recipe=RECIPE, **asked)


def _draw_link(random) -> dict:
    v = {"parameters": random.choice((7, 13, 30, 70, 100, 180)) * BILLION,
         "link": random.choice(("nvlink-c2c", "pcie4-x16", "pcie5-x16"))}
    by_gpu, by_cpu, link = _offload(v, update="gpu"), _offload(v), tiers.link(v["link"])
    return v | {"size": format_count(v["parameters"]), "what": link.title, "rate": format_rate(link.rate),
                "state": format_bytes(by_gpu.up), "once": format_time(by_gpu.up_seconds),
                "gradients": format_bytes(by_cpu.down), "weights": format_bytes(by_cpu.up),
                "down": format_time(by_cpu.down_seconds), "up": format_time(by_cpu.up_seconds),
                "busy": format_time(by_cpu.link_seconds)}


offload_link = Question(
    name="optimizer_state.offload_link",
    title="Offload, as the question is usually put",
    draw=_draw_link,
    prompt="The optimizer state of a model of {size} parameters, its fp32 master weights and Adam's two moments, "
           "crosses {what} once, in one direction, at {rate}. **How long does that take?**",
    unit="s",
    answer=lambda v: _offload(v, update="gpu").up_seconds,
    misconceptions=(
        Misconception(lambda v: tiers.transfer_time(_state(v).total, tiers.link(v["link"]).rate),
                      "You moved all 16 bytes. Weights and gradients stay on the GPU; the optimizer's part is 12."),
        Misconception(lambda v: _offload(v, update="gpu").link_seconds,
                      "That is there and back. The question asks for one direction."),
        Misconception(lambda v: tiers.transfer_time(_state(v)["optimizer"], tiers.link(v["link"]).rate),
                      "Those are the moments. The fp32 master weights belong to what is offloaded as well."),
        Misconception(lambda v: 8 * _offload(v, update="gpu").up_seconds,
                      "A factor of 8: the rate is in bytes a second already, not in bits."),
    ),
    hints=(
        "Bytes first: how many of the 16 are the optimizer's?",
        "Time = bytes ÷ bytes a second. The latency of the link does not matter for so many bytes.",
    ),
    solution="4 + 8 = 12 bytes a parameter are {state}. Divided by {rate}: **{once}**, one way. And if the CPU "
             "computes the update, none of it crosses.",
)

offload_cpu = Question(
    name="optimizer_state.offload_cpu",
    title="What really crosses",
    draw=_draw_link,
    prompt="The master weights and moments of {size} parameters live in CPU memory, and **the CPU computes the "
           "update**. Gradients and weights are bf16. The link is {what}, {rate} in each direction. **How long is the "
           "link busy in a step**, one direction after the other?",
    unit="s",
    answer=lambda v: _offload(v).link_seconds,
    misconceptions=(
        Misconception(lambda v: _offload(v, update="gpu").link_seconds,
                      "You sent the state up and back down. With the update on the CPU it never leaves CPU memory."),
        Misconception(lambda v: _offload(v, update="gpu").up_seconds,
                      "You sent the state over the link. With the update on the CPU it never crosses."),
        Misconception(lambda v: _offload(v).down_seconds,
                      "That is one direction. Gradients go down and new weights come up."),
    ),
    hints=(
        "What does the CPU need for the update that it does not have? What does the GPU need back?",
        "Each of the two is 2 bytes a parameter.",
    ),
    solution="Gradients go down, {gradients}, and weights come up, {weights}: {down} + {up} = **{busy}**. The state, "
             "{state}, stays where it is.",
)


def _draw_memory(random) -> dict:
    v = {"parameters": random.choice((7, 13, 30, 70, 120)) * BILLION,
         "memory": random.choice(("grace-lpddr5x", "epyc-genoa-ddr5"))}
    moved, memory = _offload(v), tiers.get(v["memory"])
    return v | {"size": format_count(v["parameters"]), "what": memory.title, "rate": format_rate(memory.read),
                "traffic": format_bytes(moved.memory_bytes), "time": format_time(moved.update_seconds)}


offload_memory = Question(
    name="optimizer_state.offload_memory",
    title="What the CPU's memory carries",
    draw=_draw_memory,
    prompt="The CPU computes the update of mixed-precision Adam for {size} parameters, beside the state: bf16 "
           "gradients come in, bf16 weights go out, master weights and moments are fp32. Its memory ({what}) moves "
           "{rate}. **How long does the update take** if nothing but this memory limits it?",
    unit="s",
    answer=lambda v: _offload(v).update_seconds,
    misconceptions=(
        Misconception(lambda v: _offload(v).update_seconds / 2,
                      "You have 14 bytes a parameter, one direction. What is updated is written again."),
        Misconception(lambda v: tiers.transfer_time(_kept(_state(v)), tiers.get(v["memory"]).read),
                      "You read the state once. It is written back, and gradients and weights use the same memory."),
        Misconception(lambda v: tiers.transfer_time(2 * _kept(_state(v)), tiers.get(v["memory"]).read),
                      "You have the state, read and written. Gradients are read and weights written as well."),
        Misconception(lambda v: tiers.transfer_time(_state(v).total, tiers.get(v["memory"]).read),
                      "That is the size of the state. How often is each part read, and how often written?"),
    ),
    hints=(
        "Make two lists, what the update reads and what it writes, in bytes a parameter.",
        "Read: gradient, master weight, moments. Written: master weight, moments, and the new bf16 weight.",
    ),
    solution="Read 2 + 4 + 8 = 14, written 4 + 8 + 2 = 14: 28 bytes a parameter, {traffic}. At {rate}: **{time}**. "
             "Placing data places computation.",
)


# What gets written

ITEMS = {"weights": "the weights of the model", "gradients": "the gradients", "master weights": "the master weights",
         "optimizer": "Adam's moments", "vocabulary": "the tokenizer's vocabulary", "archive": "an archival checkpoint"}
RUNS = {"bf16-adam": "pre-trained, all of its parameters", "lora": "fine-tuned with LoRA, its own weights frozen"}
WHY = {"bf16-adam": "In training the update rewrites every weight; only serving leaves them as they are.",
       "lora": "A frozen weight is read in every pass and never written; the adapters are what changes."}


def _rewritten(v) -> frozenset:
    return _written_by(v["run"])


@cache
def _written_by(recipe: str) -> frozenset:
    """What an ordinary step writes. In a LoRA run the weights written are the adapters', not the model's own."""
    written = optimizer_state.traffic(models.get("llama-3.2-1b"), recipe=recipe).written
    frozen = {"weights"} if recipes.get(recipe).adapters else set()
    return frozenset(name for name in ITEMS if written.get(name) and name not in frozen)


def _draw_written(random) -> dict:
    v = {"run": random.choice(list(RUNS))}
    return v | {"what": RUNS[v["run"]], "why": WHY[v["run"]],
                "rewritten": _listed([words for name, words in ITEMS.items() if name in _rewritten(v)])}


write_active = Question(
    name="optimizer_state.write_active",
    title="Write-active",
    draw=_draw_written,
    prompt="A model is {what}. **Which of these are rewritten in every ordinary training step?**",
    kind="multiple",
    options=ITEMS,
    answer=_rewritten,
    misconceptions=(
        Misconception(lambda v: frozenset(ITEMS) - _rewritten(v),
                      "Just the other way round: those are the ones that stay as they are."),
        Misconception(lambda v: _rewritten(v) | {"archive"},
                      "An archival checkpoint is nearly as large as the state, but it is written once and then only "
                      "read."),
        Misconception(lambda v: _rewritten(v) | {"vocabulary"},
                      "The vocabulary is read all day, but it was written once, before the run."),
        Misconception(lambda v: _rewritten(v) - {"gradients"},
                      "Gradients do not last, but they are written: by every micro-batch."),
        Misconception(lambda v: _rewritten(v) ^ {"weights"}, "{why}"),
    ),
    hints=(
        "Ask of each: does the backward pass or the update change it?",
        "How often something is read says nothing about how often it is written.",
    ),
    solution="Rewritten in every step: {rewritten}. {why} The vocabulary was written before the run, an archive when "
             "it was saved. So size and read bandwidth alone cannot say whether a tier suits a class.",
)
