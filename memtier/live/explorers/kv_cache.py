"""Explorers of the KV cache: how much there is and where it lives, and whether to fetch it or compute it again."""

from functools import lru_cache

from memtier import drawing, evidence, kv_cache, models, tiers, units, weights
from memtier.drawing import BYTE_TICKS, TIME_TICKS, Axis
from memtier.kv_cache import Place
from memtier.live.controls import Choice, ModelChoice, Slider, Toggle
from memtier.live.course import fitting
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import several

EIGHT, SEVENTY = "llama-3.1-8b", "llama-3.1-70b"
CONTEXTS = tuple(1024 * each for each in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
PREFIXES = tuple(16 * 2**n for n in range(17))  # 16 tokens, one block, to a million
GPUS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
FORMATS = {"bf16": "bf16", "fp8": "fp8", "int8": "int8 with scales", "int4": "int4 with scales",
           "nvfp4": "NVFP4 with scales"}
HEADROOM = 0.1  # of the HBM, for activations and workspace
NODE = 8  # GPUs that share one node's memory and drives
ACCELERATORS = {name: tiers.accelerator(name).title for name in tiers.accelerators()}


def _size(nbytes: float) -> str:
    return units.format_bytes(nbytes)


def _users_say(count: int) -> str:
    return f"{count:,} user{'' if count == 1 else 's'}"


# How much, and where


def _spread(users: int, each: int, rooms) -> list[tuple[str, int, float | None]]:
    """(tier, users whose cache is there, bytes of room); the fastest tier is filled first, the last takes the rest."""
    found = []
    for name, room in rooms:
        here = users if room is None else min(users, max(0, int(room // each)))
        found.append((name, here, room))
        users -= here
    return found


def _users(context, users, model, dtype, weights_dtype, gpus, gpu, headroom, guess=None) -> View:
    limit, nodes = tiers.accelerator(gpu).memory.capacity, -(-gpus // NODE)
    model = models.resolve(model)
    context, length = fitting(model, context)
    each = kv_cache.stored(model, tokens=context, dtype=dtype)
    held, total = weights.inventory(model, dtype=weights_dtype).total, each * users
    asked = {"sequence": context, "dtype": dtype}
    fit = kv_cache.users(model, limit=limit, headroom=headroom, gpus=gpus, weights_dtype=weights_dtype, **asked)
    passes = kv_cache.users_to_pass(model, nbytes=held, **asked)
    memory = f"{gpus} × {_size(limit)} of HBM" if gpus > 1 else f"{_size(limit)} of HBM"
    say = (f"{model.name}, {_users_say(users)} of {several(context, 'token')}: {_size(total)} of KV cache beside "
           f"{_size(held)} of weights; the cache passes them with user {passes:,}. ")
    free = gpus * limit * (1 - headroom) - held
    say += (f"{_users_say(fit)} fit{'s' if fit == 1 else ''} into {memory}." if free >= 0
            else f"The weights alone do not fit into {memory}.")
    mark = guess and (guess * each, f"your guess: user {guess:,}")
    bar = drawing.bars([("weights", {"weights": held}), (f"KV cache of {_users_say(users)}", {"KV cache": total})],
                       "The cache against the weights", say, limit=(gpus * limit, memory), guess=mark)
    counts = [round(10 ** (step / 4)) for step in range(17)]
    low, high = min(each, held) / 2, max(counts[-1] * each, gpus * limit, held) * 2
    level = {"weights": held, "HBM left for it": free if free > low else 0}
    curve = drawing.lines(
        [("KV cache", [(n, n * each) for n in counts]),
         *((name, [(1, nbytes), (counts[-1], nbytes)]) for name, nbytes in level.items() if nbytes)],
        Axis("users", 1, counts[-1], lambda n: f"{n:,.0f}", tuple((10**n, f"{10**n:,}") for n in range(5))),
        Axis("bytes", low, high, _size, BYTE_TICKS), "More users, more cache",
        f"Bytes of KV cache against users: it passes the weights with user {passes:,}.",
        points=[("here", users, total)], strong="KV cache", height=220,
        guess=mark and (guess, *mark))
    rooms = (("HBM", max(0.0, free)), ("CPU memory", nodes * tiers.get("h100-node-dram").capacity),
             ("local NVMe", nodes * tiers.get("h100-node-nvme").capacity), ("shared store", None))
    homes = drawing.dots(
        [(f"{name}: {_users_say(here)}", {"KV cache": here * each or None, "room for it": room or None})
         for name, here, room in _spread(users, each, rooms) if here or room],
        Axis("bytes", 1e7, 1e17, _size, BYTE_TICKS), "Where it lives: the fastest tier is filled first",
        f"Of {_users_say(users)}, {min(users, fit):,} can be served from HBM; the others wait below.")
    whose = "a node of eight H100" if nodes == 1 else f"{nodes} nodes of eight H100 each"
    return View((bar, curve, homes), say,
                f"{_size(each)} a user. {100 * headroom:.0f} % of the HBM is kept free for activations and workspace; "
                f"memory and drives are those of {whose}. {length}".rstrip())


def _passing(values) -> int:
    return kv_cache.users_to_pass(values["model"], sequence=values["context"], dtype=values["dtype"],
                                  nbytes=weights.inventory(values["model"], dtype=values["weights_dtype"]).total)


_NODE = {"model": SEVENTY, "gpus": NODE}

users = Explorer(
    name="kv_cache.users",
    title="KV cache against weights and HBM",
    intro="Every user brings a cache that grows with the conversation; the weights are there once. What does not fit "
          "into HBM waits in the tiers below.",
    controls=(
        Slider("context", "Tokens each user has", 1024, CONTEXTS[-1], 8192, CONTEXTS, "count"),
        Slider("users", "Users", 1, 10_000, 8, "log", "count"),
        ModelChoice("model", "Model", EIGHT, counts=False),
        Choice("dtype", "KV cache in", FORMATS, "bf16", more=True, open=False),
        Choice("weights_dtype", "Weights in", {name: FORMATS[name] for name in ("bf16", "fp8", "int4")}, "bf16",
               more=True, open=False),
        Slider("gpus", "GPUs", 1, GPUS[-1], 1, GPUS, "count", more=True),
        Choice("gpu", "GPU", ACCELERATORS, "h100-sxm", more=True),
        Slider("headroom", "HBM kept free", 0, 0.5, HEADROOM, tuple(n / 20 for n in range(11)), "share", more=True),
    ),
    more="More: precision, GPUs, headroom",
    view=_users,
    presets={
        "yours: 8B on one": {},
        "70B on a node, 16 users": _NODE | {"users": 16},
        "the 53rd user": _NODE | {"users": 53},
        "long context: four at 128k": _NODE | {"context": 131072, "users": 4},
        "a thousand at 8k": _NODE | {"users": 1000},
        "the same in fp8": _NODE | {"users": 1000, "dtype": "fp8"},
    },
    predict=Prediction(
        "The weights of Llama-3.1-70B are **141 GB** in bf16. Users come, each with 8,192 tokens of context. With "
        "**which user** does the KV cache become larger than the weights?",
        truth=_passing,
        values=_NODE | {"context": 8192, "users": 53, "dtype": "bf16", "weights_dtype": "bf16"},
        low=1, high=10_000, unit="count",
        lesson=lambda values: f"With 128k tokens each it is user {_passing(values | {'context': 131072})}. The weights "
                              "are a fixed cost; the cache is what grows."),
)


# Fetch or recompute


def _place(name: str, title: str, source, fact: str | None = None) -> Place:
    """Where a cache is fetched from: a tier or link, or its latency with a rate measured elsewhere."""
    rate, latency = weights.source_rate(source)
    return Place(name, title, evidence.get(fact).quantity if fact else rate, latency)


PLACES = {each.name: each for each in (
    _place("hbm", "HBM, read once", "h100-sxm"),
    _place("c2c", "CPU memory of a Grace, over C2C", "nvlink-c2c"),
    _place("pcie", "CPU memory over PCIe 5", "pcie5-x16"),
    _place("pcie-measured", "PCIe 5, measured", "pcie5-x16", "link.pcie5-x16.host-to-device"),
    _place("pcie-vllm", "… as vLLM's offload was seen", "pcie5-x16", "link.pcie5-x16.kv-offload"),
    _place("3fs", "3FS, one client's peak", 1.0, "pfs.three-fs.kv-read"),
    _place("nvme", "one local NVMe drive", "micron-9550"),
    _place("s3", "S3, all of one instance's network", "s3"),
    _place("s3-connection", "S3, one connection", "s3-connection"),
)}
TIMES = Axis("time", 1e-6, 1e5, units.format_time, TIME_TICKS)


def _recompute(tokens, model, gpus, efficiency, attention) -> float:
    return kv_cache.recompute_time(model, tokens=tokens, gpus=gpus, efficiency=efficiency, attention=attention)


_stored = lru_cache(kv_cache.stored)  # the same few lengths are asked for again at each touch
_length = lru_cache(kv_cache.break_even_length)


def _seconds(place: Place, tokens, model, dtype, links) -> float:
    return tiers.transfer_time(_stored(model, tokens=tokens, dtype=dtype), place.rate, place.latency, links)


def _fetch(tokens, source, gpus, efficiency, model, dtype, links, attention, guess=None) -> View:
    model = models.resolve(model)
    tokens, most = fitting(model, tokens)
    time, place, nbytes = units.format_time, PLACES[source], _stored(model, tokens=tokens, dtype=dtype)
    again = _recompute(tokens, model, gpus, efficiency, attention)
    fetched = {name: _seconds(each, tokens, model, dtype, links) for name, each in PLACES.items()}
    asked = {"efficiency": efficiency, "gpus": gpus, "attention": attention, "dtype": dtype}
    even = kv_cache.break_even_bandwidth(model, tokens=tokens, **asked)
    length = _length(model, source=place, streams=links, **asked)
    on = f"{gpus} GPU{'' if gpus == 1 else 's'}"
    are = "is" if tokens == 1 else "are"
    say = (f"{several(tokens, 'token')} of {model.name} {are} {_size(nbytes)}: {time(fetched[source])} to fetch "
           f"({place.title}), {time(again)} to compute again on {on} at {100 * efficiency:.0f} %. ")
    say += ("Fetch. " if fetched[source] < again else "Recompute. ") + f"They break even at {units.format_rate(even)}."
    dots = drawing.dots(
        [(("→ " if name == source else "") + each.title, {"fetched": fetched[name]}) for name, each in PLACES.items()],
        TIMES, f"Time to fetch {several(tokens, 'token')}", say, limit=(again, f"computed again: {time(again)}"),
        guess=guess and (nbytes / guess, f"your guess: {units.format_rate(guess)}"))
    lengths = [each for each in PREFIXES[::2] if fitting(model, each)[0] == each]
    if len(lengths) < 2:  # a model of few learnt positions
        lengths = sorted({1, tokens})
    curves = [("fetched", [(n, _seconds(place, n, model, dtype, links)) for n in lengths]),
              ("computed again", [(n, _recompute(n, model, gpus, efficiency, attention)) for n in lengths])]
    ends = [seconds for _, curve in curves for _, seconds in curve]
    across = len(lengths) > 1 and drawing.lines(
        curves, Axis("tokens of the prefix", lengths[0], lengths[-1], lambda n: f"{n:,.0f}",
                     tuple((n, f"{n:,}") for n in (16, 256, 4096, 65536, 1048576))),
        Axis("time", min(ends) / 2, max(ends) * 2, time, TIME_TICKS), "Shorter and longer prefixes",
        f"Time against the length of the prefix, fetched and computed again. {say}",
        points=[("fetched", tokens, fetched[source])], height=220)
    note = f"{_fetch_note(length, links, attention, model, gpus)} {most}"
    return View((dots, across) if across else dots, say, note.rstrip())


def _fetch_note(length: int | None, links: int, attention: bool, model, gpus: int) -> str:
    if length is None:
        note = "From here no prefix is fetched faster than it is computed."
    elif length == 1:
        note = "From here every prefix is fetched faster than it is computed."
    else:
        note = f"From here prefixes of {length:,} tokens and more are fetched faster than they are computed."
    note += " " + ("Attention's own FLOPs are counted." if attention else
                   "Attention's own FLOPs, which grow with the square of the length, are left out.")
    note += f" Each place is read over {links:,} links side by side." if links > 1 else ""
    held, room = weights.inventory(model).total, gpus * tiers.accelerator("h100-sxm").memory.capacity
    if held > room:
        note += (f" But {_size(held)} of weights do not fit into {_size(room)}: the time to compute is that of GPUs "
                 "with the room.")
    return note


fetch = Explorer(
    name="kv_cache.fetch",
    title="Fetch or recompute",
    intro="The keys and values of a prefix lie in some tier. They can be fetched from there, or computed again from "
          "the prefix's tokens.",
    controls=(
        Slider("tokens", "Prefix, tokens", 16, PREFIXES[-1], 4096, PREFIXES, "count"),
        Choice("source", "Fetched from", {name: each.title for name, each in PLACES.items()}, "pcie-measured",
               open=False),
        Slider("gpus", "GPUs computing", 1, GPUS[-1], 1, GPUS, "count"),
        Slider("efficiency", "Share of their FLOP/s reached", 0.05, 1, 0.4, tuple(n / 20 for n in range(1, 21)),
               "share", more=True),
        ModelChoice("model", "Model", EIGHT, more=True, counts=False),
        Choice("dtype", "KV cache in", FORMATS, "bf16", more=True, open=False),
        Slider("links", "Links or connections side by side", 1, 256, 1, tuple(2**n for n in range(9)), "count",
               more=True),
        Toggle("attention", "Count attention's own FLOPs", more=True),
    ),
    more="More: efficiency, model, precision, links",
    view=_fetch,
    presets={
        "yours: 8B, one GPU": {},
        "70B, eight GPUs": _NODE,
        "from one S3 connection": _NODE | {"source": "s3-connection"},
        "from all of S3's network": _NODE | {"source": "s3"},
        "the same, 64k": _NODE | {"source": "s3", "tokens": 65536},
        "DeepSeek-V3's latents": _NODE | {"source": "s3", "model": "deepseek-v3"},
    },
    predict=Prediction(
        "Eight H100 at 40 % of their FLOP/s compute the cache of a 4,096-token prefix of Llama-3.1-70B in **0.18 s**. "
        "**How fast must a link be** for fetching that cache to take just as long?",
        truth=lambda values: kv_cache.break_even_bandwidth(
            values["model"], tokens=values["tokens"], gpus=values["gpus"], efficiency=values["efficiency"],
            dtype=values["dtype"], attention=values["attention"]),
        values=_NODE | {"tokens": 4096, "efficiency": 0.4, "dtype": "bf16", "attention": False, "links": 1},
        low=1e7, high=1e12, unit="bytes/s",
        lesson="A prefix ten times as long has ten times the bytes and ten times the FLOPs: the same speed breaks "
               "even. Only a latency, and attention's own FLOPs, left out here, make the length matter."),
)
