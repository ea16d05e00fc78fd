"""Explorers of weights: what a format takes and which GPUs hold it; how fast a decoding step can be at best."""

from memtier import drawing, kv_cache, models, tiers, units, weights
from memtier.drawing import Axis
from memtier.inventory import Inventory
from memtier.live.controls import Choice, ModelChoice, Slider, Toggle
from memtier.live.course import fitting
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import number, percent, several

FORMATS = {name: f"{name}, {8 * each.bytes_each:.4g} bits a number" for name, each in weights.FORMATS.items()}
COMPARED = ("fp32", "bf16", "fp8", "mxfp6", "nvfp4", "mxfp4", "int4")  # whose GPUs are drawn side by side
ACCELERATORS = {name: tiers.accelerator(name).title for name in tiers.accelerators()
                if tiers.accelerator(name).memory.read}
GPUS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 296, 384, 512, 768, 1024, 2048, 4096)
CONTEXTS = (0, *(2**n for n in range(8, 18)))


def _size(nbytes: float) -> str:
    return units.format_bytes(nbytes, digits=4)


def _titled(model) -> str:
    return model.name if isinstance(model, models.Model) else several(units.format_count(model), "parameter")


def _several(count: int, title: str) -> str:
    return title if count == 1 else f"{count:,} × {title}"


def _number(value: float) -> str:
    """Tokens a second: whole from 100 on, three digits below."""
    return f"{value:,.0f}" if value >= 100 else number(value)


# What a format takes


def _parts(model, dtype: str, everything: bool) -> Inventory:
    """Bytes of the numbers, of their scales, and of what stays in bf16; a count has no parts that could stay."""
    if isinstance(model, models.Model):
        held = weights.by_format(model, dtype=dtype, keep=() if everything else None)
        return Inventory({"numbers" if name == dtype else name: nbytes for name, nbytes in held.items()})
    each = weights.get(dtype)
    numbers = model * each.bits / 8
    return Inventory({"numbers": numbers, "scales": model * each.bytes_each - numbers})


def _marked(name: str, dtype: str) -> str:
    return f"{name} (chosen)" if name == dtype else name


def _precision(model, dtype, gpus, gpu, free, everything, guess=None) -> View:
    model, accelerator = models.resolve(model), tiers.accelerator(gpu)
    limit = accelerator.memory.capacity
    held = {name: _parts(model, name, everything) for name in dict.fromkeys(("bf16", *COMPARED, dtype))}
    keep = () if everything or not isinstance(model, models.Model) else None
    needed = {name: weights.gpus_needed(model, limit=limit, headroom=free, dtype=name, keep=keep) for name in held}
    chosen, room, memory = held[dtype], gpus * limit * (1 - free), units.format_bytes(limit)
    card = _several(gpus, accelerator.title) if gpus > 1 else f"one {accelerator.title}"
    less = "" if dtype == "bf16" else f", {held['bf16'].total / chosen.total:.2f} times less than in bf16"
    if chosen.total > held["bf16"].total:
        less = f", {chosen.total / held['bf16'].total:.2f} times as much as in bf16"
    each = f", {_size(chosen.total / gpus)} on each" if gpus > 1 else ""
    fits = f"They fit on {card}{each}" if chosen.total <= room else f"They do not fit on {card} of {memory}"
    enough = "" if needed[dtype] == gpus else f"; {needed[dtype]:,} {'is' if needed[dtype] == 1 else 'are'} enough"
    say = f"{_titled(model)} in {dtype}: {_size(chosen.total)} of weights{less}. {fits}{enough}."
    rows = [(_marked(name, dtype), held[name]) for name in dict.fromkeys(("bf16", "fp8", "nvfp4", dtype))]
    room_label = f"{gpus} × {memory}" + (f", {percent(free)} kept free" if free else "")
    # A line far beyond the bars would leave them too small to compare: then the sentence alone says that they fit.
    limit_line = (room, room_label) if room <= 4 * max(each.total for _, each in rows) else None
    bar = drawing.bars(rows, f"Weights of {_titled(model)}", say, limit=limit_line, say=_size,
                       guess=guess and (guess, f"your guess: {units.format_bytes(guess)}"))
    shown = {name: count for name, count in needed.items() if name in COMPARED or name == dtype}
    axis = Axis("GPUs needed", 0.9, 1.3 * max(*shown.values(), gpus), lambda count: f"{count:,.0f}")
    which = drawing.dots([(_marked(name, dtype), {"GPUs needed": count})
                          for name, count in sorted(shown.items(), key=lambda each: -held[each[0]].total)],
                         axis, f"How many {accelerator.title} hold them", say, limit=(gpus, f"you have {gpus}"))
    return View((bar, which), say, _precision_note(model, chosen, dtype, everything))


def _precision_note(model, chosen: Inventory, dtype: str, everything: bool) -> str:
    each, notes = weights.get(dtype), []
    if not isinstance(model, models.Model) and dtype not in weights.PLAIN:
        notes.append("A parameter count has no parts, so everything is counted in this format: choose a model to see "
                     "what stays in bf16.")
    if "kept in bf16" in chosen:
        parts = ("norms and biases",) if everything else [part for part in weights.KEPT if part in model.parts()]
        notes.append(f"In bf16 stay {', '.join(parts)}: {_size(chosen['kept in bf16'])}. The other matrices shrink "
                     f"{2 / each.bytes_each:.2f} times.")
    if chosen.get("scales", 0) > 0.001 * chosen.total:
        notes.append(f"{_size(chosen['scales'])} are scales, {percent(chosen.share('scales'))} of the bytes.")
    notes.append("Weights alone, divided evenly: KV cache and workspace come on top, and tensor parallelism usually "
                 "wants a power of two.")
    return " ".join(notes)


def _not_a_quarter(values) -> str:
    plain, stored = weights.inventory(values["model"]), weights.by_format(values["model"], dtype=values["dtype"])
    tables = (plain["embedding"] + plain["head"]) / plain.total
    return (f"A quarter would be {units.format_bytes(plain.total / 4)}. Each block of 16 numbers has a scale of its "
            f"own, {units.format_bytes(stored['scales'])} in all, and embedding and head, {100 * tables:.0f} % of the "
            "parameters, stay in bf16.")


precision = Explorer(
    name="weights.precision",
    title="Weights by format, and the GPUs that hold them",
    intro="The same numbers in fewer bits. Scales and the parts that stay in bf16 are counted, tensor by tensor.",
    controls=(
        ModelChoice("model", "Model", "llama-3.1-405b"),
        Choice("dtype", "Format", FORMATS, "bf16", open=False),
        Slider("gpus", "GPUs", 1, GPUS[-1], 8, GPUS, "count"),
        Choice("gpu", "GPU", ACCELERATORS, "h100-sxm", more=True, open=False),
        Slider("free", "Kept free on each GPU", 0, 0.5, 0, tuple(n / 20 for n in range(11)), "share", more=True),
        Toggle("everything", "Store embedding, router and head in it too", more=True),
    ),
    more="More: another GPU, room kept free, what stays in bf16",
    view=_precision,
    presets={
        "405B in bf16 on 8": {},
        "405B in FP8": {"dtype": "fp8"},
        "405B in NVFP4 on 3": {"dtype": "nvfp4", "gpus": 3},
        "8B in NVFP4 on one": {"model": "llama-3.1-8b", "dtype": "nvfp4", "gpus": 1},
        "DeepSeek-V3 as trained": {"model": "deepseek-v3", "dtype": "fp8-tiles"},
    },
    predict=Prediction(
        "Llama-3.1-8B takes **16.06 GB** in bf16, 16 bits a number. Its matrices are now stored in NVFP4, which is "
        "called a 4-bit format. How many bytes does the whole model take?",
        truth=lambda values: weights.inventory(values["model"], dtype=values["dtype"]).total,
        values={"model": "llama-3.1-8b", "dtype": "nvfp4", "gpus": 1, "everything": False},
        low=1e9, high=1e11, unit="bytes",
        lesson=_not_a_quarter),
)


# How fast a step can be


def _cache(model, context: int) -> tuple[float, str]:
    """Bytes of KV cache that each sequence reads, 0 for a count, which has no shapes; and a note on them."""
    if not context:
        return 0, "Without KV cache; give each sequence a context to add its own."
    if not isinstance(model, models.Model):
        return 0, "A parameter count has no shapes, so its KV cache is left out: choose a model."
    context, note = fitting(model, context)
    return kv_cache.inventory(model, batch=1, sequence=context).total, note


def _decode(batch, model, dtype, gpu, gpus, context, guess=None) -> View:
    model, accelerator = models.resolve(model), tiers.accelerator(gpu)
    kv, cached = _cache(model, context)
    asked = {"accelerator": accelerator, "dtype": dtype, "kv": kv}
    step = weights.decode(model, batch=batch, gpus=gpus, **asked)
    until = weights.memory_bound_until(model, **asked)
    time, each = units.format_time, step.tokens_per_second / batch
    turn = f"Computing takes as long from batch {until:,} on." if until is not None else (
        "No batch changes that: each sequence brings a KV cache that takes longer to read than its arithmetic to do.")
    pace = "memory sets the pace" if step.bound == "memory" else "arithmetic sets the pace"
    everyone = "" if batch == 1 else f", {_number(each)} for each of {batch:,} sequences"
    say = (f"{_titled(model)} in {dtype} on {_several(gpus, accelerator.title)}: reading takes "
           f"{time(step.memory_seconds)}, computing {time(step.compute_seconds)}, so {pace}. At most "
           f"{_number(step.tokens_per_second)} tokens/s{everyone}. {turn}")
    cache = step.memory_seconds * step.read.share("KV cache") if "KV cache" in step.read else 0.0
    reading = [("weights", 0.0, step.memory_seconds - cache)]
    if cache:
        reading.append(("KV cache", step.memory_seconds - cache, cache))
    lanes = [("memory reads", reading), ("arithmetic units compute", [("computing", 0.0, step.compute_seconds)])]
    when = drawing.timeline(lanes, "One step", say)
    steps = [weights.decode(model, batch=number, gpus=gpus, **asked) for number in BATCHES]
    together = [(each.batch, each.tokens_per_second) for each in steps]
    alone = [(each.batch, 1 / each.seconds) for each in steps]
    roof = step.batch / step.compute_seconds
    rate = Axis("tokens a second, at most", min(each for _, each in alone) / 3, 3 * max(roof, guess or 0), _number)
    mark = guess and (batch, guess, f"your guess: {_number(guess)}")
    ceiling = drawing.lines(
        [("all together", together), ("each sequence", alone)],
        Axis("sequences in the step", 1, BATCHES[-1], lambda n: f"{n:,.0f}",
             tuple((n, f"{n:,}") for n in (1, 4, 16, 64, 256, 1024, 4096))),
        rate, "Tokens a second against the batch",
        f"Both ceilings against the number of sequences, which share one reading of the weights. {say}",
        points=[("here", batch, step.tokens_per_second)], limit=(roof, f"all it can compute: {_number(roof)}"),
        guess=mark)
    return View((when, ceiling), say, _decode_note(model, step, accelerator, gpus, cached, dtype))


def _decode_note(model, step, accelerator, gpus: int, cached: str, dtype: str) -> str:
    ridge = tiers.ridge_point(accelerator.flops, accelerator.memory.read)
    intensity = tiers.intensity(step.flops, step.read.total)
    notes = [f"Intensity: {number(intensity)} FLOPs a byte; the ridge of an {accelerator.title} is at {number(ridge)}."]
    held = weights.inventory(model, dtype=dtype).total + step.read.get("KV cache", 0)
    room, what = gpus * accelerator.memory.capacity, "weights and KV cache" if "KV cache" in step.read else "weights"
    if held > room:
        notes.append(f"But {_size(held)} of {what} do not fit into {units.format_bytes(room)}: the times are those of "
                     "a memory that had the room.")
    notes.append(cached)
    if isinstance(model, models.Model) and model.experts:
        notes.append("Experts that are read: as many as that many tokens reach, if each is as likely as another.")
    return " ".join(filter(None, notes))


def _shared(values) -> str:
    one, many = (weights.decode(values["model"], batch=batch) for batch in (1, values["batch"]))
    return (f"Reading the weights takes {units.format_time(many.memory_seconds)}, for {many.batch} sequences as for "
            f"one, and computing {units.format_time(many.compute_seconds)} instead of "
            f"{units.format_time(one.compute_seconds)}, in the shadow of it.")


decode = Explorer(
    name="weights.decode",
    title="One decoding step",
    intro="Each step writes one token for every sequence and reads the weights once for all of them.",
    controls=(
        Slider("batch", "Sequences (batch)", 1, BATCHES[-1], 1, BATCHES, "count"),
        ModelChoice("model", "Model", "llama-3.1-8b"),
        Choice("dtype", "Format", FORMATS, "bf16", open=False),
        Choice("gpu", "GPU", ACCELERATORS, "h100-sxm", more=True, open=False),
        Slider("gpus", "GPUs that divide the work", 1, GPUS[-1], 1, GPUS, "count", more=True),
        Slider("context", "Tokens of context each sequence has", 0, CONTEXTS[-1], 0, CONTEXTS, "count", more=True),
    ),
    more="More: GPU, several of them, a KV cache",
    view=_decode,
    presets={
        "one user": {},
        "32 users": {"batch": 32},
        "296 users": {"batch": 296},
        "32 users in NVFP4": {"batch": 32, "dtype": "nvfp4"},
        "32 users with 8k of context": {"batch": 32, "context": 8192},
        "Mixtral, 32 users on 2": {"model": "mixtral-8x7b", "batch": 32, "gpus": 2},
    },
    predict=Prediction(
        "One user of Llama-3.1-8B on an H100 gets at most **209 tokens/s**: a step takes 4.8 ms, nearly all of it "
        "reading weights. Now **32 users** share each step. How many tokens a second do they get, all together?",
        truth=lambda values: round(weights.decode(values["model"], batch=values["batch"],
                                                  dtype=values["dtype"]).tokens_per_second),
        values={"model": "llama-3.1-8b", "dtype": "bf16", "batch": 32, "gpu": "h100-sxm", "gpus": 1, "context": 0},
        low=100, high=100_000, unit="count", lesson=_shared),
)
