"""Questions on the KV cache. Every answer, right or wrong, is computed by the functions the chapter explains.

Each question has a draw function: the numbers of a round, and beside them, as words, what its texts say about them.
"""

from dataclasses import replace

from memtier import kv_cache, models, tiers, units, weights
from memtier.live.question import Misconception, Question
from memtier.units import format_bytes, format_rate, format_time

EFFICIENCY = 0.4  # of the GPUs' FLOP/s, in every question that recomputes
CARD = 80 * units.GB


def _without_groups(model: models.Model) -> models.Model:
    """The model as if every query head had keys and values of its own."""
    return replace(model, kv_heads=model.heads)


def _stored(v, model=None, **other) -> int:
    asked = {"tokens": v["tokens"], "dtype": v.get("dtype", "bf16")} | other
    return kv_cache.stored(model or models.get(v["model"]), **asked)


def _tokens(count: int) -> str:
    return f"{count:,}"


# Bytes


def _draw_token(random) -> dict:
    v = {"model": random.choice(("llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen2.5-7b",
                                 "qwen2.5-72b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b")),
         "dtype": random.choice(("bf16", "fp8"))}
    model = models.get(v["model"])
    return v | {"layers": model.layers, "kv_heads": model.kv_heads, "heads": model.heads, "d": model.head_dim,
                "each": weights.get(v["dtype"]).bits // 8, "answer": format_bytes(_token(v))}


def _token(v, model=None) -> int:
    return kv_cache.bytes_per_token(model or models.get(v["model"]), dtype=v["dtype"])


per_token = Question(
    name="kv_cache.per_token",
    title="What one token leaves behind",
    draw=_draw_token,
    prompt="{model} has {layers} layers, {heads} query heads, {kv_heads} key and value heads, {d} numbers a head. The "
           "KV cache is in {dtype}. **How many bytes does each token add?** (Leave scales aside.)",
    unit="bytes",
    answer=_token,
    misconceptions=(
        Misconception(lambda v: _token(v, _without_groups(models.get(v["model"]))),
                      "You counted {heads} heads. Only the {kv_heads} key and value heads are kept: query heads share "
                      "them in groups."),
        Misconception(lambda v: _token(v) / 2, "Half of it: keys and values are both kept."),
        Misconception(lambda v: _token(v) / models.get(v["model"]).layers,
                      "That is one layer. Each of the {layers} layers keeps its own."),
        Misconception(lambda v: 2 * _token(v), "Twice too much: look at the bytes of a number in {dtype}."),
    ),
    hints=(
        "How many numbers does one layer keep of a token? Then all layers, then bytes.",
        "2 · layers · key and value heads · numbers a head · bytes a number.",
    ),
    solution="2 · {layers} · {kv_heads} · {d} · {each}: **{answer}** a token. The {heads} query heads do not appear.",
)


def _draw_prefixes(random) -> dict:
    v = {"model": random.choice(("llama-3.1-70b", "llama-3.1-8b", "llama-3.1-405b", "qwen2.5-72b", "mixtral-8x7b")),
         "count": random.choice((10_000, 5_000, 20_000, 50_000)), "tokens": 1024 * random.choice((2, 4, 8))}
    model = models.get(v["model"])
    return v | {"many": f"{v['count']:,}", "long": _tokens(v["tokens"]), "each": format_bytes(_stored(v)),
                "layers": model.layers, "kv_heads": model.kv_heads, "d": model.head_dim, "heads": model.heads,
                "token": format_bytes(kv_cache.bytes_per_token(model)), "total": format_bytes(_prefixes(v)),
                "nodes": f"{-(-_prefixes(v) // tiers.get('h100-node-dram').capacity):.0f}",
                "memory": format_bytes(tiers.get("h100-node-dram").capacity)}


def _prefixes(v, model=None) -> int:
    return kv_cache.prefixes(model or v["model"], count=v["count"], tokens=v["tokens"]).total


prefixes = Question(
    name="kv_cache.prefixes",
    title="A day's popular prefixes",
    draw=_draw_prefixes,
    prompt="A service wants to keep the KV cache of a day's popular prefixes in CPU memory: {many} distinct ones of "
           "{long} tokens each, for {model} ({layers} layers, {heads} query heads, {kv_heads} key and value heads of "
           "{d} numbers, bf16). **How much CPU memory is that?**",
    unit="bytes",
    answer=_prefixes,
    misconceptions=(
        Misconception(lambda v: _prefixes(v, _without_groups(models.get(v["model"]))),
                      "You counted the query heads. What is kept belongs to the {kv_heads} key and value heads."),
        Misconception(lambda v: _prefixes(v) / 2, "Half of it: keys and values are both kept."),
        Misconception(_stored, "That is one prefix. There are {many}, and no two are alike."),
        Misconception(lambda v: 2 * _prefixes(v), "Twice too much: these are 2-byte numbers, not 4."),
        Misconception(lambda v: v["count"] * v["tokens"] * 4,
                      "Those are the prefixes' tokens at 4 bytes each. Their keys and values are what costs."),
    ),
    hints=(
        "Bytes a token first: keys and values, of all layers.",
        "A token adds {token}. How many tokens are there in all?",
    ),
    solution="A token adds {token}, a prefix of {long} tokens {each}. {many} of them: **{total}**. A node of eight "
             "H100 has {memory} of CPU memory, so this takes {nodes}: a reason for NVMe, or a store that all share.",
)


def _draw_window(random) -> dict:
    v = {"model": random.choice(("mistral-7b", "phi-3-mini-4k")), "users": random.choice((1, 4, 8))}
    v["tokens"] = 1024 * random.choice((16, 24, 32) if v["model"] == "mistral-7b" else (3, 4))  # as far as it goes
    model = models.get(v["model"])
    return v | {"long": _tokens(v["tokens"]), "who": "One user has" if v["users"] == 1 else f"{v['users']} users have",
                "each": "" if v["users"] == 1 else " each", "window": _tokens(model.windows[0]),
                "kept": _tokens(model.windows[0] - 1), "layers": model.layers, "kv_heads": model.kv_heads,
                "d": model.head_dim, "full": format_bytes(_windowed(v, windows=False)),
                "answer": format_bytes(_windowed(v)), "by": 2 * model.layers * model.kv_heads * model.head_dim * 2}


def _windowed(v, **other) -> int:
    model = models.get(v["model"])
    held = kv_cache.inventory(model, batch=v["users"], sequence=v["tokens"], **other)
    return held.total - held.get("counters", 0)


window = Question(
    name="kv_cache.window",
    title="A sliding window",
    draw=_draw_window,
    prompt="{model} looks back over a sliding window of {window} tokens in all of its {layers} layers ({kv_heads} key "
           "and value heads of {d} numbers, bf16). {who} {long} tokens{each}. **How large is the KV cache?**",
    unit="bytes",
    answer=_windowed,
    misconceptions=(
        Misconception(lambda v: _windowed(v, windows=False),
                      "That is the full context. What has left the window is never read again, so it is not kept."),
        Misconception(lambda v: _windowed(v) / 2, "Half of it: keys and values are both kept."),
        Misconception(lambda v: _windowed(v) // models.get(v["model"]).layers, "That is one of {layers} layers."),
    ),
    hints=(
        "Which tokens can the next one still see?",
        "{kept} tokens a user, however long the context has become.",
    ),
    solution="A token adds {by:,} bytes, and {kept} of them are kept a user (the next token is the last in the window "
             "of {window}): **{answer}**. With full attention it would be {full}.",
)


SHARED = {"int8": "an fp16 scale", "mxfp8": "an 8-bit scale", "mxfp4": "an 8-bit scale", "nvfp4": "an 8-bit scale"}


def _draw_quantised(random) -> dict:
    v = {"model": random.choice(("llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "mixtral-8x7b", "qwen2.5-72b")),
         "dtype": random.choice(list(SHARED)), "tokens": 1024 * random.choice((32, 64, 128))}
    used = weights.get(v["dtype"])
    return v | {"long": _tokens(v["tokens"]), "plain": format_bytes(_stored(v, dtype="bf16")), "bits": used.bits,
                "group": used.group, "shared": SHARED[v["dtype"]], "more": used.scale,
                "answer": format_bytes(_stored(v)), "times": f"{16 / (8 * used.bytes_each):.2f}",
                "each": f"{8 * used.bytes_each:g}"}


quantised = Question(
    name="kv_cache.quantised",
    title="Fewer bits, and their scales",
    draw=_draw_quantised,
    tolerance=0.01,
    prompt="In bf16 the KV cache of {long} tokens of {model} is {plain}. It is now kept in numbers of {bits} bits, "
           "where each {group} of them along a head share {shared}. **How large is it?**",
    unit="bytes",
    answer=_stored,
    misconceptions=(
        Misconception(lambda v: _stored(v, dtype="bf16") * v["bits"] / 16,
                      "You counted the numbers alone. Their scales are bytes too."),
        Misconception(lambda v: _stored(v, dtype="bf16"), "That is what it was before."),
    ),
    hints=(
        "How many bits does a number cost when its part of the scale is counted?",
        "{bits} + {more}/{group} bits instead of 16.",
    ),
    solution="{bits} + {more}/{group} = {each} bits a number: {times} times smaller than {plain}, **{answer}**.",
)


# Users


def _draw_users(random) -> dict:
    v = {"model": random.choice(("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-72b", "mixtral-8x7b")),
         "tokens": 1024 * random.choice((8, 16, 32)), "gpus": 8, "headroom": 0.1}
    held, room = weights.inventory(v["model"]).total, v["gpus"] * CARD
    free = room * (1 - v["headroom"]) - held
    return v | {"long": _tokens(v["tokens"]), "weights": format_bytes(held, digits=4), "room": format_bytes(room),
                "token": f"{kv_cache.bytes_per_token(v['model']):,}", "free": format_bytes(free, digits=4),
                "each": format_bytes(_stored(v), digits=4), "answer": f"{_fitting(v):,}"}


def _fitting(v, **other) -> int:
    asked = {"limit": CARD, "headroom": v["headroom"], "gpus": v["gpus"], "sequence": v["tokens"]} | other
    return kv_cache.users(v["model"], **asked)


users_that_fit = Question(
    name="kv_cache.users_that_fit",
    title="Users that fit",
    draw=_draw_users,
    prompt="{model}, bf16, {weights} of weights, {token} bytes of KV cache a token. It runs on eight GPUs of 80 GB, of "
           "which 10 % are kept free. **How many users with {long} tokens each fit into HBM?**",
    unit="count",
    answer=_fitting,
    misconceptions=(
        Misconception(lambda v: int(v["gpus"] * CARD * (1 - v["headroom"]) // _stored(v)),
                      "You forgot the weights. They have to be there for anybody to be served."),
        Misconception(lambda v: _fitting(v, headroom=0), "You filled the last byte. 10 % are to stay free."),
        Misconception(lambda v: kv_cache.users_to_pass(v["model"], sequence=v["tokens"]),
                      "That is the user with whom the cache passes the weights, a different question."),
    ),
    hints=(
        "What is left of {room} for the cache?",
        "90 % of {room} without {weights}: {free}.",
    ),
    solution="Left for the cache: 0.9 · {room} − {weights} = {free}. A user takes {each}. So **{answer}** fit.",
)


def _draw_estimate(random) -> dict:
    v = {"model": random.choice(("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen2.5-72b", "mixtral-8x7b",
                                 "qwen3-8b")),
         "tokens": 1024 * random.choice((4, 8, 16))}
    return v | {"long": _tokens(v["tokens"]), "weights": format_bytes(weights.inventory(v["model"]).total, digits=2),
                "token": format_bytes(kv_cache.bytes_per_token(v["model"]), digits=1),
                "each": format_bytes(_stored(v), digits=2), "answer": f"{_passing(v):,}"}


def _passing(v) -> int:
    return kv_cache.users_to_pass(v["model"], sequence=v["tokens"])


estimate = Question(
    name="kv_cache.estimate",
    title="One figure, no tool",
    draw=_draw_estimate,
    prompt="In your head: {model} has {weights} of weights and keeps about {token} a token. Each user has {long} "
           "tokens. **With about which user does the KV cache pass the weights?** Within 25 % is right.",
    unit="count",
    tolerance=0.25,
    answer=_passing,
    misconceptions=(
        Misconception(lambda v: 10 * _passing(v), "A power of ten too many."),
        Misconception(lambda v: round(_passing(v) / 10), "A power of ten too few."),
        Misconception(lambda v: 2 * _passing(v), "Twice too many: the bytes a token are those of keys and values "
                                                 "together."),
    ),
    hints=(
        "What does one user bring? Thousands of tokens times a fraction of a megabyte is gigabytes.",
        "A user brings some {each}.",
    ),
    solution="{long} · {token} is about {each} a user. {weights} ÷ {each}: user **{answer}**, give or take.",
)


# Where blocks live


PLACES = {
    "drive": "HBM, NVMe, CPU memory",
    "chip": "SRAM, L2, HBM",
    "right": "HBM, CPU memory, NVMe or a shared store",
    "network": "CPU memory, a shared store, HBM",
}


def _draw_places(random) -> dict:
    v = {"model": random.choice(("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen3-8b")),
         "tokens": random.choice((16, 256, 4096))}
    hbm, memory, drive, store = (format_time(kv_cache.fetch_time(v["model"], tokens=v["tokens"], source=place))
                                 for place in kv_cache.places())
    return v | {"long": _tokens(v["tokens"]), "nbytes": format_bytes(_stored(v)), "hbm": hbm, "memory": memory,
                "drive": drive, "store": store, "sram": format_bytes(tiers.get("h100-sram").capacity)}


three_places = Question(
    name="kv_cache.three_places",
    title="Three places",
    draw=_draw_places,
    prompt="{long} tokens of {model} are {nbytes} of KV cache. A serving system gives such blocks **three places to "
           "live. Which, from fastest to slowest?**",
    kind="choice",
    options=PLACES,
    answer=lambda v: "right",
    misconceptions=(
        Misconception(lambda v: "drive", "Two are the wrong way round. What reaches the GPU faster, the CPU's memory "
                                         "or a drive behind it?"),
        Misconception(lambda v: "chip", "SRAM and L2 hold what a kernel works on this microsecond. All of an H100's "
                                        "shared memory is {sram}; nothing is kept there."),
        Misconception(lambda v: "network", "Nothing below HBM is faster than HBM, where attention reads the cache."),
    ),
    hints=(
        "Start where attention reads from, and go down the ladder a rung at a time.",
        "The slowest of the three has the most room, and other replicas may reach it.",
    ),
    solution="HBM, CPU memory, NVMe or a shared store. For these {nbytes}: {hbm} to read in HBM, {memory} from CPU "
             "memory over PCIe 5, {drive} from a local drive, {store} from S3 over all of one instance's network. Hot "
             "blocks, warm blocks, cold or shared prefixes.",
)


NEEDED = {"llama-3.1-8b": 1, "qwen3-8b": 1, "llama-3.1-70b": 4, "qwen2.5-72b": 4, "llama-3.1-405b": 16}  # H100, in bf16


def _draw_even(random) -> dict:
    v = {"model": random.choice(list(NEEDED)), "tokens": 1024 * random.choice((2, 4, 8, 16))}
    v["gpus"] = NEEDED[v["model"]] * random.choice((1, 2))
    speed = tiers.accelerator("h100-sxm").flops
    return v | {"long": _tokens(v["tokens"]), "on": f"{v['gpus']} H100" if v["gpus"] > 1 else "one H100",
                "speed": f"{speed / 1e12:g} TFLOP/s", "size": units.format_count(weights.active(v["model"])),
                "nbytes": format_bytes(_stored(v)), "time": format_time(_again(v)), "answer": format_rate(_even(v))}


def _again(v, **other) -> float:
    asked = {"tokens": v["tokens"], "gpus": v["gpus"], "efficiency": EFFICIENCY} | other
    return kv_cache.recompute_time(v["model"], **asked)


def _even(v, **other) -> float:
    asked = {"tokens": v["tokens"], "gpus": v["gpus"], "efficiency": EFFICIENCY} | other
    return kv_cache.break_even_bandwidth(v["model"], **asked)


break_even = Question(
    name="kv_cache.break_even",
    title="The speed that breaks even",
    draw=_draw_even,
    prompt="A prefix of {long} tokens of {model} ({size} parameters, {nbytes} of KV cache) can be fetched, or computed "
           "again on {on} ({speed} a GPU, of which 40 % is reached). Leave attention's own FLOPs and all latency out. "
           "**At which bandwidth does fetching take just as long?**",
    unit="bytes/s",
    answer=_even,
    misconceptions=(
        Misconception(lambda v: _even(v, efficiency=1.0), "You let the GPUs reach all of their FLOP/s, not 40 %."),
        Misconception(lambda v: _even(v) / 3, "You seem to have 6 FLOPs a parameter: that is training. A forward pass "
                                              "has 2."),
        Misconception(lambda v: _even(v) * 2, "Half the FLOPs: a parameter costs a multiplication and an addition."),
    ),
    hints=(
        "Two FLOPs a parameter and token. How long does that take?",
        "Computing takes {time}. In that time {nbytes} must arrive.",
    ),
    solution="2 · {size} · {long} FLOPs take {time} on {on} at 40 %. {nbytes} in that time is **{answer}**. The length "
             "cancels: both sides grow with it.",
)

FROM = {"memory": ("CPU memory over PCIe 5, 63 GB/s", "pcie5-x16"), "drive": ("one NVMe drive, 14 GB/s", "micron-9550"),
        "s3": ("S3 over all of the instance's network, 12.5 GB/s after 150 ms", "s3"),
        "connection": ("S3 over one connection, 87.5 MB/s after 150 ms", "s3-connection")}


def _draw_worth(random) -> dict:
    model, gpus = random.choice((("llama-3.1-8b", 1), ("llama-3.1-8b", 8), ("llama-3.1-70b", 8),
                                 ("llama-3.1-405b", 16)))
    v = {"model": model, "tokens": 1024 * random.choice((1, 4, 16, 64)), "gpus": gpus}
    lines = [f"- {words}: {format_time(_fetched(v, name))}, {'worth it' if name in _worth(v) else 'not'}"
             for name, (words, _) in FROM.items()]
    return v | {"long": _tokens(v["tokens"]), "on": {1: "one H100", 8: "eight H100", 16: "sixteen H100"}[gpus],
                "nbytes": format_bytes(_stored(v)), "time": format_time(_again(v)), "lines": "\n".join(lines)}


def _fetched(v, name: str) -> float:
    return kv_cache.fetch_time(v["model"], tokens=v["tokens"], source=FROM[name][1])


def _worth(v) -> frozenset:
    return frozenset(name for name in FROM if _fetched(v, name) < _again(v))


worth_fetching = Question(
    name="kv_cache.worth_fetching",
    title="Fetch or recompute",
    draw=_draw_worth,
    prompt="The cache of a prefix of {long} tokens of {model} is {nbytes}. Computing it again takes {time} on {on} at "
           "40 % of the FLOP/s, attention's own FLOPs left out. **From which of these places is it fetched faster than "
           "that?**",
    kind="multiple",
    options={name: words for name, (words, _) in FROM.items()},
    answer=_worth,
    misconceptions=(
        Misconception(lambda v: frozenset(FROM), "Not from all of them. Add the wait for the first byte to bytes over "
                                                 "bandwidth, one by one."),
        Misconception(lambda v: frozenset(), "From some it is. {nbytes} over the fastest of these take a moment."),
        Misconception(lambda v: _worth(v) ^ {"s3"}, "Look at S3's whole network again: a wait of 150 ms, then 12.5 GB "
                                                    "each second."),
        Misconception(lambda v: _worth(v) ^ {"drive"}, "Look at the drive again: {nbytes} over 14 GB/s."),
    ),
    hints=(
        "Time is latency plus bytes over bandwidth. Which of them stay under {time}?",
        "{nbytes} over 14 GB/s is the drive's time. Go up and down from there.",
    ),
    solution="Computing takes {time}. Fetching {nbytes} takes:\n\n{lines}",
)


def _draw_hits(random) -> dict:
    v = {"model": "llama-3.1-70b", "tokens": 1024 * random.choice((4, 8, 16)), "gpus": random.choice((4, 8)),
         "hbm": random.choice((0.2, 0.3)), "memory": random.choice((0.3, 0.4, 0.5))}
    hit, miss = _fetched(v, "memory"), _again(v)
    return v | {"long": _tokens(v["tokens"]), "hit": format_time(hit), "miss": format_time(miss),
                "first": f"{100 * v['hbm']:.0f} %", "second": f"{100 * v['memory']:.0f} %",
                "rest": f"{100 * (1 - v['hbm'] - v['memory']):.0f} %", "answer": format_time(_mean(v))}


def _mean(v) -> float:
    shares = v["hbm"], v["memory"], 1 - v["hbm"] - v["memory"]
    return kv_cache.mean_time(shares, (0, _fetched(v, "memory"), _again(v)))


mean_time = Question(
    name="kv_cache.mean_time",
    title="What hits are worth",
    draw=_draw_hits,
    prompt="Requests begin with prefixes of {long} tokens. {first} of them find the prefix's cache in HBM, at no cost; "
           "{second} in CPU memory, {hit} away; the others compute it, {miss}. **How long does a request wait for its "
           "prefix on average?**",
    unit="s",
    answer=_mean,
    misconceptions=(
        Misconception(lambda v: (_fetched(v, "memory") + _again(v)) / 3,
                      "You took each of the three as often as the others. Weigh each time by its share."),
        Misconception(lambda v: v["memory"] * _fetched(v, "memory"), "You left out the misses, the dearest of all."),
        Misconception(lambda v: (1 - v["hbm"] - v["memory"]) * _again(v),
                      "You left out the fetches from CPU memory. They are fast, not free."),
        Misconception(_again, "That is what a miss costs. Most requests are spared it."),
    ),
    hints=(
        "Share times time, added up. The shares have to add up to 1.",
        "{rest} of the requests compute their prefix.",
    ),
    solution="{second} · {hit} + {rest} · {miss} = **{answer}**. Most of it is the misses: what is worth having "
             "is more hits, more than faster ones.",
)


# What went wrong, and what to do

CAUSES = {
    "windows": "the cache ignores the model's sliding windows",
    "heads": "keys and values are kept once for every query head",
    "fp32": "the cache is kept in fp32",
    "reserved": "each user is given room for the longest context allowed",
}
LONGEST = 32_768  # tokens a user may have, in the diagnosis


def _seen(v, cause: str) -> int:
    """Bytes that a tool shows if this is the cause."""
    model = models.get(v["model"])
    asked = {"batch": v["users"], "sequence": LONGEST if cause == "reserved" else v["tokens"],
             "dtype": "fp32" if cause == "fp32" else "bf16"}
    model = _without_groups(model) if cause == "heads" else model
    held = kv_cache.inventory(model, windows=cause != "windows", **asked)
    return held.without("counters").total if "counters" in held else held.total


def _draw_diagnose(random) -> dict:
    name = random.choice(("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "mistral-7b"))
    windowed = name == "mistral-7b"
    v = {"model": name, "users": random.choice((4, 8, 16)),
         "tokens": 1000 * random.choice((20, 24, 28) if windowed else (6, 9, 12)),
         "fault": random.choice(("windows", "heads", "fp32") if windowed else ("heads", "fp32", "reserved"))}
    model, others = models.get(name), [cause for cause in CAUSES if cause != v["fault"]]
    lines = [f"- {CAUSES[cause]}: {format_bytes(_seen(v, cause))}" for cause in others]
    return v | {"long": _tokens(v["tokens"]), "most": _tokens(LONGEST), "heads": model.heads,
                "kv_heads": model.kv_heads,
                "look": f"a sliding window of {model.windows[0]:,} tokens" if windowed else "full attention",
                "predicted": format_bytes(_seen(v, "")), "shown": format_bytes(_seen(v, v["fault"])),
                "ratio": f"{_seen(v, v['fault']) / _seen(v, ''):.2f}", "what": CAUSES[v["fault"]],
                "lines": "\n".join(lines)}


diagnose = Question(
    name="kv_cache.diagnose",
    title="Which factor is wrong?",
    draw=_draw_diagnose,
    prompt="{model} has {heads} query heads, {kv_heads} key and value heads and {look}. {users} users have {long} "
           "tokens each, of at most {most}. You predicted {predicted} of KV cache in bf16; the server holds {shown}. "
           "**What happened?**",
    kind="choice",
    options=CAUSES,
    answer=lambda v: v["fault"],
    misconceptions=tuple(
        Misconception(lambda v, cause=cause: cause,
                      lambda v, cause=cause: f"With that it would hold {format_bytes(_seen(v, cause))}.")
        for cause in CAUSES),
    hints=(
        "Divide what is there by what was predicted. Which of the four changes the cache by that factor?",
        "It is {ratio} times what you predicted.",
    ),
    solution="{ratio} times {predicted} is {shown}, so {what}. The others would give:\n\n{lines}",
)


PLANS = {
    "plain": "everything in bf16, as it is",
    "cache": "the KV cache in fp8",
    "weights": "the weights in int4 with scales",
    "both": "the KV cache in fp8 and the weights in int4 with scales",
    "more": "everything in bf16; a second node, and all sixteen GPUs share one copy of the weights",
    "idle": "everything in bf16; half of the users are just reading, and their caches wait in CPU memory",
}
SETTINGS = {"plain": {}, "cache": {"dtype": "fp8"}, "weights": {"weights_dtype": "int4"},
            "both": {"dtype": "fp8", "weights_dtype": "int4"}, "more": {"gpus": 16}, "idle": {}}


def _holds(v, plan: str) -> int:
    """Users that a plan serves."""
    return _fitting(v, **SETTINGS[plan]) * (2 if plan == "idle" else 1)


def _enough(v) -> frozenset:
    return frozenset(plan for plan in PLANS if _holds(v, plan) >= v["users"])


def _draw_design(random) -> dict:
    v = {"model": random.choice(("llama-3.1-70b", "qwen2.5-72b")), "gpus": 8, "headroom": 0.1,
         "tokens": 16_384, "users": random.choice((90, 110, 140, 175))}
    lines = [f"- {words}: {_holds(v, plan)} users, {'enough' if plan in _enough(v) else 'too few'}"
             for plan, words in PLANS.items()]
    return v | {"long": _tokens(v["tokens"]), "weights": format_bytes(weights.inventory(v["model"]).total),
                "each": format_bytes(_stored(v)), "need": format_bytes(v["users"] * _stored(v)),
                "lines": "\n".join(lines)}


design = Question(
    name="kv_cache.design",
    title="Several that work, defend one",
    draw=_draw_design,
    prompt="{model} is to serve {users} users with {long} tokens each. There is a node of eight GPUs with 80 GB, of "
           "which 10 % stay free; weights are {weights} in bf16, a user's cache {each}. **Which of these plans serve "
           "them all?** Then choose one of them and defend it in a sentence.",
    kind="multiple",
    options=PLANS,
    answer=_enough,
    misconceptions=(
        Misconception(lambda v: frozenset(PLANS), "Not all of them. In bf16, as it is, the cache is {need}."),
        Misconception(lambda v: _enough(v) ^ {"weights"}, "Look at the weights in int4 again: what they free, against "
                                                          "what the cache needs."),
        Misconception(lambda v: _enough(v) ^ {"cache"}, "Look at the fp8 cache again: it halves every user's part."),
        Misconception(lambda v: _enough(v) ^ {"more"}, "Look at the second node again: it brings 640 GB and needs no "
                                                       "second copy of the weights."),
        Misconception(lambda v: _enough(v) ^ {"idle"}, "Look again at the idle half: only the other half has to fit."),
    ),
    hints=(
        "For each plan: what is left for the cache, and what does one user take?",
        "As it is: 0.9 · 640 GB − {weights}, divided by {each}.",
    ),
    solution="Users that each plan serves:\n\n{lines}\n\nMore than one works, so bytes do not decide. Fewer bits "
             "cost accuracy, to be measured on your own task, and fewer bits of the weights free a fixed amount only. "
             "A second node costs money and lets layers talk over a slower link. CPU memory costs a fetch at each "
             "turn, and works only while enough users are idle. A good defence names what the choice costs.",
)
