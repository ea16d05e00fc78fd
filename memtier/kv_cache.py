"""KV cache: its bytes by token, sequence and user; the blocks it lives in; whether to fetch it or compute it again.

    bytes = 2 · layers · batch · K · tokens · d · e

2 for keys and values, K key and value heads, d numbers a head, e bytes a number. Latent attention (DeepSeek) keeps
kv_rank + rope_dim numbers a token and layer instead of 2·K·d; a layer with a sliding window of W keeps W − 1 tokens.
Seen equal, to the byte, to transformers 5.24.0's own caches in every family of models.FAMILIES.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memtier import checks, models, tiers, weights
from memtier.inventory import Inventory
from memtier.weights import Format

CACHES = ("dynamic", "static")
COUNTER = 8  # bytes: transformers keeps one int64 in each static layer and in each layer with a window
MOST_TOKENS = 2**40  # of a sequence, in searches for a length
MOST_ITEMS = 10**6  # of a cache's popularity or trace: some seconds


# Bytes


def bytes_per_token(model, *, dtype="bf16", position: int | None = None) -> int:
    """Bytes that one more token of one sequence adds.

    model: a Model, or what models.resolve takes; a parameter count has no shapes and is refused. dtype: a Format or
    its name. position: the token's number, from 1; left out, far beyond every window, where only layers with full
    attention still grow (so 0 for a model that has none).

    >>> bytes_per_token("llama-3.1-70b"), bytes_per_token("deepseek-v3"), bytes_per_token("mistral-7b", position=1)
    (327680, 70272, 131072)
    """
    model, dtype = weights.shaped(model), _format(dtype)
    at = MOST_TOKENS if position is None else weights.within("position", checks.whole("position", position), model)
    growing = sum(times * (_kept(window, at) > _kept(window, at - 1)) for window, times in _windows(model, True))
    each = sum(dtype.nbytes((heads, width)) - dtype.once for _, heads, width in vectors(model))
    return growing * each


def inventory(model, *, batch: int = 1, sequence: int = 8192, dtype="bf16", cache: str = "dynamic",
              last: int | None = None, windows: bool = True) -> Inventory:
    """Bytes of the KV cache of `batch` sequences of `sequence` tokens each.

    Entries: "keys" and "values" (or "latents" and "rotary keys") of layers with full attention; "window keys" and
    "window values" of layers with a sliding window; "scales" of a quantised dtype; "counters", 8 bytes in each static
    layer and in each layer with a window. Entries of 0 bytes are left out.

    cache: "dynamic" grows token by token; "static" has room for `sequence` tokens from the start, and for W in a layer
    with a window.
    last: tokens of the last call of the model. A dynamic layer with a window keeps W − 1 tokens, but they are a view:
    behind them lie those of before and those of the last call, min(sequence − last, W − 1) + last. Give last=sequence
    for a cache just prefilled, last=1 while decoding; left out, the W − 1 tokens alone are counted.
    windows=False: what a DynamicCache() made without the model's config does, it ignores windows and keeps everything.
    dtype: a Format or its name, one scale (if any) for each run of numbers along a head; "fp8" is transformers'
    QuantizedCache("fp8", config): a byte a number and one fp32 scale for a layer's keys and one for its values.
    Raises ValueError naming argument, value and what is allowed; of a gpt2, for more tokens than it has positions.

    >>> inventory("llama-3.1-8b", sequence=8192).total
    1073741824
    """
    model, dtype = weights.shaped(model), _format(dtype)
    checks.whole("batch", batch)
    weights.within("sequence", checks.whole("sequence", sequence), model)
    checks.one_of("cache", cache, CACHES)
    checks.flag("windows", windows)
    if last is not None:
        checks.whole("last", last, most=sequence)
    if cache == "static" and (last is not None or not windows):
        raise ValueError(f"cache is 'static', with last {checks.brief(last)} and windows {windows}; both are for"
                         " dynamic caches")
    total: dict = {}
    for window, times in _windows(model, windows):
        tokens = _tokens(window, sequence, cache, last)
        for name, heads, width in vectors(model):
            shape = (batch * heads * tokens, width)
            entry = name if window is None else f"window {name}"
            total[entry] = total.get(entry, 0) + times * dtype.elements(shape)
            total["scales"] = total.get("scales", 0) + times * dtype.scales(shape)
        if cache == "static" or window is not None:
            total["counters"] = total.get("counters", 0) + times * COUNTER
    order = sorted(total, key=lambda name: name in ("scales", "counters"))  # these two after the rest
    return Inventory({name: total[name] for name in order if total[name]},
                     f"KV cache of {model.name}, {batch} × {sequence:,} tokens in {dtype.name}")


def _format(dtype) -> Format:
    """The format, if its scales lie along a head's numbers, so that one token can be added to it."""
    dtype = weights.get(dtype)
    if dtype.along != "row":
        raise ValueError(f"dtype is {dtype.name!r}; it must be a format whose scales lie along a row, since a cache "
                         f"grows by rows, such as {', '.join(weights.PLAIN)}, fp8, int8, int4, mxfp8, nvfp4")
    return dtype


def vectors(model: models.Model) -> tuple[tuple[str, int, int], ...]:
    """(name, heads, numbers a head) of the two things a layer keeps of each token."""
    if model.kv_rank is not None:
        return ("latents", 1, model.kv_rank), ("rotary keys", 1, model.rope_dim)
    return ("keys", model.kv_heads, model.head_dim), ("values", model.kv_heads, model.value_dim)


def _windows(model: models.Model, windows: bool) -> list[tuple[int | None, int]]:
    """(window, number of layers that have it); None for full attention, which comes first."""
    counts = Counter(window if windows else None for window in model.windows)
    return sorted(counts.items(), key=lambda entry: entry[0] or 0)


def _kept(window: int | None, sequence: int) -> int:
    """Tokens a dynamic layer shows: all, or the W − 1 that the next token can still see.

    A window of 1 needs none, but transformers 5.24.0 then keeps all of them: it slices from −W + 1, which is 0.
    """
    return sequence if window is None or window == 1 else min(sequence, window - 1)


def _tokens(window: int | None, sequence: int, cache: str, last: int | None) -> int:
    """Tokens a layer of this kind has in memory."""
    if cache == "static":
        return sequence if window is None else min(sequence, window)
    if last is None:
        return _kept(window, sequence)
    return _kept(window, sequence - last) + last


# Blocks


def paged(model, *, lengths: Iterable[int], block: int = 16, dtype="bf16") -> Inventory:
    """Bytes of sequences of these lengths in blocks of `block` tokens: "tokens", and "rest of blocks", allocated only.

    The rest is at most block − 1 tokens a sequence and layer. A layer with a window has the blocks that its last
    W − 1 tokens lie in, so up to two are partly used. Source: Kwon et al., 2023, arXiv:2309.06180.
    """
    checks.whole("block", block)

    def allocated(window: int | None, length: int) -> int:
        before = length - _kept(window, length)  # tokens that have left the window
        return (-(-length // block) - before // block) * block

    return _held(model, lengths, dtype, allocated, "rest of blocks", f"in blocks of {block}")


def reserved(model, *, lengths: Iterable[int], limit: int, dtype="bf16") -> Inventory:
    """Bytes when each sequence is given one piece of memory for `limit` tokens: "tokens", and "reserved, unused".

    What servers did before paging. Raises ValueError for a length above the limit.
    """
    checks.whole("limit", limit)
    lengths = _lengths(lengths)
    if lengths and max(lengths) > limit:
        raise ValueError(f"lengths has {checks.brief(max(lengths))}; it must be at most limit, which is"
                         f" {checks.brief(limit)}")
    return _held(model, lengths, dtype, lambda window, length: _kept(window, limit), "reserved, unused",
                 f"in one piece of {limit:,} each")


def _lengths(lengths) -> tuple[int, ...]:
    return tuple(checks.whole("lengths", length) for length in checks.items("lengths", lengths, "tokens of sequences"))


def _held(model, lengths, dtype, allocated, rest: str, how: str) -> Inventory:
    """Bytes of the tokens kept, and the rest of what is allocated for them; `allocated` counts a layer's tokens."""
    model, dtype = weights.shaped(model), _format(dtype)
    each = sum(dtype.nbytes((heads, width)) - dtype.once for _, heads, width in vectors(model))
    used = room = 0
    for length, times in Counter(_lengths(lengths)).items():
        weights.within("lengths", length, model)
        for window, layers in _windows(model, True):
            used += times * layers * _kept(window, length)
            room += times * layers * allocated(window, length)
    return Inventory({"tokens": used * each, rest: (room - used) * each}, f"KV cache of {model.name}, {how}")


# Users


def users(model, *, limit: float, headroom: float, gpus: int = 1, sequence: int = 8192, dtype="bf16",
          weights_dtype="bf16", block: int | None = None) -> int:
    """How many sequences of `sequence` tokens fit beside the weights; 0 where not even one does.

    limit: bytes of one GPU. headroom: the share of it, 0 to 1, kept free for activations and workspace. gpus: they
    divide weights and cache evenly, which is the best case: tensor parallelism over more GPUs than there are key and
    value heads repeats those, and latents on every GPU. block: tokens of a block, if the cache is paged.

    >>> users("llama-3.1-70b", limit=80e9, gpus=8, headroom=0.1, sequence=8192)
    162
    """
    checks.positive("limit", checks.single("limit", limit))
    checks.fraction("headroom", checks.single("headroom", headroom))
    checks.whole("gpus", gpus)
    checks.whole("sequence", sequence)
    model, weights_dtype = weights.shaped(model), weights.get(weights_dtype, "weights_dtype")
    room = checks.positive("gpus · limit", gpus * limit) * (1 - headroom)
    free = room - weights.inventory(model, dtype=weights_dtype).total
    return max(0, int(free // _one_user(model, sequence, dtype, block)))


def users_to_pass(model, *, nbytes: float | None = None, sequence: int = 8192, dtype="bf16") -> int:
    """The user with whom the KV cache is first larger than nbytes; left out, than the model's bf16 weights.

    >>> users_to_pass("llama-3.1-70b", sequence=8192), users_to_pass("llama-3.1-70b", sequence=131072)
    (53, 4)
    """
    nbytes = weights.inventory(model).total if nbytes is None else checks.not_negative("nbytes", nbytes)
    checks.single("nbytes", nbytes)
    return int(nbytes // _one_user(model, sequence, dtype, None)) + 1


def prefixes(model, *, count: int, tokens: int, shared: int = 0, dtype="bf16") -> Inventory:
    """Bytes to keep `count` distinct prefixes of `tokens` tokens, of which the first `shared` are the same in all.

    The shared tokens are stored once; a layer with a window keeps only what the next token can still see.

    >>> prefixes("llama-3.1-70b", count=10_000, tokens=4_096).total / 1e12
    13.4217728
    """
    model = weights.shaped(model)
    checks.whole("count", count)
    weights.within("tokens", checks.whole("tokens", tokens), model)
    checks.whole("shared", shared, least=0, most=tokens)
    once = inventory(model, sequence=shared, dtype=dtype).total if shared else 0
    own = inventory(model, sequence=tokens - shared, dtype=dtype).total if tokens > shared else 0
    return Inventory({"shared, once": once, "own": count * own} if shared else {"own": count * own},
                     f"{count:,} prefixes of {tokens:,} tokens")


def _one_user(model, sequence: int, dtype, block: int | None) -> int:
    if block is None:
        return inventory(model, sequence=sequence, dtype=dtype).total
    weights.within("sequence", sequence, model)
    return paged(model, lengths=[sequence], block=block, dtype=dtype).total


# Fetch or recompute


@dataclass(frozen=True)
class Place:
    """Where a block of KV cache can live, seen from the accelerator.

    rate: bytes/s on the whole way, the slowest part of it. latency: seconds, of all parts that say one, together.
    capacity: bytes, None where no source says. everyone: whether other replicas reach it too.
    Raises ValueError for a rate not above 0, a latency below 0, and an everyone that is neither True nor False.
    """

    name: str
    title: str
    rate: float
    latency: float
    capacity: float | None = None
    everyone: bool = False

    def __post_init__(self):
        checks.positive("rate", checks.single("rate", self.rate))
        checks.not_negative("latency", checks.single("latency", self.latency))
        if self.capacity is not None:
            checks.positive("capacity", checks.single("capacity", self.capacity))
        checks.flag("everyone", self.everyone)


def places(*, accelerator="h100-sxm", memory="epyc-genoa-ddr5", drive="micron-9550", store="s3") -> tuple[Place, ...]:
    """Where a block can live, fastest first: the accelerator's memory, the CPU's, a local drive, a shared store.

    accelerator, memory, drive, store: names of them in the ledger, or objects. All but the first pass the
    accelerator's link to its host, at the link's specified rate. Raises ValueError for what has no known rate.
    """
    accelerator = tiers.accelerator(accelerator)
    if accelerator.host_link is None:
        raise ValueError(f"accelerator is {checks.brief(accelerator.name)}; the ledger has no link to its host, so"
                         " choose another")
    link = tiers.link(accelerator.host_link)
    rate, latency = weights.source_rate(accelerator)
    found = [Place("HBM", accelerator.memory.title, rate, latency, accelerator.memory.capacity)]
    for name, argument, tier in (("CPU memory", "memory", memory), ("NVMe", "drive", drive),
                                 ("shared store", "store", store)):
        tier = tiers.get(tier, argument=argument)
        rate, latency = tier.rate("read", argument), tier.latency or 0.0
        found.append(Place(name, tier.title, min(rate, link.rate), latency + (link.latency or 0.0), tier.capacity,
                           everyone=name == "shared store"))
    return tuple(found)


def prefill_flops(model, *, tokens: int, prefix: int = 0, attention: bool = False) -> int:
    """FLOPs to compute the keys and values of `tokens` tokens that follow `prefix` tokens already cached.

    2 for each parameter that a token passes, as tiers.flops counts. attention=True adds what the sum leaves out: each
    token's queries times the keys it sees, and the weighted sum of their values, 2 · heads · (head_dim + value_dim)
    for each such pair; a token sees those before it and itself, as far as the layer's window reaches.
    """
    checks.whole("tokens", tokens)
    checks.whole("prefix", prefix, least=0)
    model = weights.shaped(model) if checks.flag("attention", attention) else models.resolve(model)
    weights.within("prefix and tokens together" if prefix else "tokens", prefix + tokens, model)
    flops = tiers.FLOPS_EACH["forward"] * weights.active(model) * tokens
    if attention:
        pairs = sum(times * (_pairs(prefix + tokens, window) - _pairs(prefix, window))
                    for window, times in _windows(model, True))
        flops += 2 * model.heads * (model.head_dim + model.value_dim) * pairs
    return flops


def _pairs(tokens: int, window: int | None) -> int:
    """Σ min(i, W) for i from 1 to tokens: how many tokens the first `tokens` tokens see in all."""
    within = tokens if window is None else min(tokens, window)
    return within * (within + 1) // 2 + (tokens - within) * within


def recompute_time(model, *, tokens: int, efficiency: float, accelerator="h100-sxm", gpus: int = 1, prefix: int = 0,
                   attention: bool = False) -> float:
    """Seconds to compute the cache of `tokens` tokens: FLOPs / (gpus · FLOP/s · efficiency).

    efficiency: the share of the dense bf16 rate that is reached, above 0 to 1. It has no default, since it decides the
    answer; for orientation, Llama 3's training reached 0.38 to 0.43 (arXiv:2407.21783, table 4). gpus share the work
    evenly.

    >>> round(recompute_time("llama-3.1-70b", tokens=4096, gpus=8, efficiency=0.4), 2)
    0.18
    """
    checks.positive("efficiency", checks.fraction("efficiency", checks.single("efficiency", efficiency)))
    speed = checks.whole("gpus", gpus) * tiers.accelerator(accelerator).flops * efficiency
    return prefill_flops(model, tokens=tokens, prefix=prefix, attention=attention) / speed


def stored(model, *, tokens: int, dtype="bf16") -> int:
    """Bytes of one sequence's cache as it is moved and stored: keys, values and scales, without counters."""
    model = weights.shaped(model)
    weights.within("tokens", checks.whole("tokens", tokens), model)
    held = inventory(model, sequence=tokens, dtype=dtype)
    return held.total - held.get("counters", 0)


def fetch_time(model, *, tokens: int, source, latency: float | None = None, streams: int = 1, dtype="bf16") -> float:
    """Seconds to fetch the cache of a sequence: latency + bytes / (bandwidth · streams).

    source: a Place, the name of an accelerator, a tier or a link, one of those objects, or bytes/s. latency: seconds,
    instead of the source's own (0 where no source gives one).

    >>> round(fetch_time("llama-3.1-70b", tokens=4096, source="s3-connection"), 1)
    15.5
    """
    rate, own = _rate(source)
    own = own if latency is None else checks.not_negative("latency", checks.single("latency", latency))
    checks.positive("streams", checks.single("streams", streams))
    return tiers.transfer_time(stored(model, tokens=tokens, dtype=dtype), rate, own, streams)


@dataclass(frozen=True)
class Way:
    """A way to have a sequence's cache: fetched from a place, or computed again (name "recompute"). Seconds."""

    name: str
    title: str
    seconds: float


def ways(model, *, tokens: int, efficiency: float, accelerator="h100-sxm", gpus: int = 1, links: int = 1,
         attention: bool = False, dtype="bf16", where: Sequence[Place] | None = None) -> tuple[Way, ...]:
    """All ways to have the cache of `tokens` tokens, fastest first; what stands behind "recompute" is better computed.

    where: Places; left out, `places` of the accelerator. gpus compute together; links fetch side by side, each an equal
    part from memory or a drive of its own, but a place that everyone shares is read over one. In HBM nothing is
    fetched: its time is that of reading the cache once.
    """
    found = [Way("recompute", "computed again", recompute_time(model, tokens=tokens, efficiency=efficiency, gpus=gpus,
                                                               accelerator=accelerator, attention=attention))]
    checks.whole("links", links)
    for place in places(accelerator=accelerator) if where is None else checks.items("where", where, "Places"):
        if not isinstance(place, Place):
            raise ValueError(f"where has {checks.brief(place)}; it must be a list of Places, as places() gives them")
        streams = 1 if place.everyone else links
        found.append(Way(place.name, place.title,
                         fetch_time(model, tokens=tokens, source=place, streams=streams, dtype=dtype)))
    return tuple(sorted(found, key=lambda way: way.seconds))


def break_even_bandwidth(model, *, tokens: int, efficiency: float, latency: float = 0.0, accelerator="h100-sxm",
                         gpus: int = 1, attention: bool = False, dtype="bf16") -> float | None:
    """Bytes/s at which fetching takes exactly as long as recomputing; faster than that, fetch.

    Both grow with the length, so without latency and attention's own FLOPs it is the same at every length: bytes a
    token over seconds a token. None where the latency alone is longer than recomputing.

    >>> round(break_even_bandwidth("llama-3.1-70b", tokens=4096, gpus=8, efficiency=0.4) / 1e9, 1)
    7.3
    """
    checks.not_negative("latency", checks.single("latency", latency))
    left = recompute_time(model, tokens=tokens, efficiency=efficiency, accelerator=accelerator, gpus=gpus,
                          attention=attention) - latency
    return stored(model, tokens=tokens, dtype=dtype) / left if left > 0 else None


def break_even_length(model, *, source, efficiency: float, latency: float | None = None, streams: int = 1,
                      accelerator="h100-sxm", gpus: int = 1, attention: bool = False, dtype="bf16") -> int | None:
    """The shortest prefix, in tokens, that is fetched faster than it is recomputed.

    Only a latency makes short prefixes worth recomputing; attention's own FLOPs (attention=True), which grow with the
    square of the length, make long ones worth fetching even over a slow link. None where no prefix up to MOST_TOKENS
    is, or up to the positions that a gpt2 has learnt. Source, latency, streams as in `fetch_time`.
    """

    model = weights.shaped(model)
    most = weights.longest(model) or MOST_TOKENS

    def fetched(tokens: int) -> bool:
        recompute = recompute_time(model, tokens=tokens, efficiency=efficiency, accelerator=accelerator, gpus=gpus,
                                   attention=attention)
        fetch = fetch_time(model, tokens=tokens, source=source, latency=latency, streams=streams, dtype=dtype)
        return fetch < recompute

    # recompute − fetch is convex in the length and not above 0 at length 0, so it turns positive once, if at all
    return weights.first(fetched, most=most) if fetched(most) else None


def _rate(source) -> tuple[float, float]:
    return (source.rate, source.latency) if isinstance(source, Place) else weights.source_rate(source)


# Hits


def zipf(items: int, exponent: float = 1.0) -> tuple[float, ...]:
    """How often each of `items` items is asked for, most popular first, as shares: proportional to rank^−exponent.

    items: at most MOST_ITEMS. Raises ValueError naming argument, value and what is allowed.
    """
    checks.whole("items", items, most=MOST_ITEMS)
    checks.not_negative("exponent", checks.single("exponent", exponent))
    raw = [rank**-exponent for rank in range(1, items + 1)]
    total = math.fsum(raw)
    return tuple(each / total for each in raw)


def hit_rate(popularity: Sequence[float], *, capacity: int, policy: str = "lru") -> float:
    """The share of requests that find their item in a cache of `capacity` items, all of one size, once it is warm.

    popularity: how often each item is asked for (any scale). Requests are independent of one another: the independent
    reference model, in which nothing is asked for twice in a row more often than chance has it.
    policy="best" keeps the most popular items, the most that any policy reaches in this model: exact.
    policy="lru" drops the item not used for longest, by Che's approximation (Che, Tung, Wang, 2002): all items leave
    after the same time T without a request, with T such that Σ(1 − e^(−pT)) = capacity; then hits are
    Σ p·(1 − e^(−pT)). Within 0.01 of simulation in the cases tested, 300 and 1,000 items of Zipf popularity.
    """
    shares = _shares(popularity)
    checks.whole("capacity", capacity, least=0)
    checks.one_of("policy", policy, ("lru", "best"))
    asked = [share for share in shares if share > 0]
    if capacity >= len(asked):
        return 1.0
    if policy == "best" or capacity == 0:
        return math.fsum(sorted(asked, reverse=True)[:capacity])
    time = _stay(asked, capacity)
    return math.fsum(share * -math.expm1(-share * time) for share in asked)


def _shares(popularity: Iterable[float]) -> list[float]:
    given = checks.items("popularity", popularity, "how often each item is asked for")
    checks.at_most("items of popularity", len(given), MOST_ITEMS)
    total = math.fsum(checks.not_negative("popularity", checks.single("popularity", each)) for each in given)
    if total <= 0:
        raise ValueError(f"popularity is {checks.brief(popularity)}; it must have an item that is asked for")
    return [each / total for each in given]


def _stay(shares: list[float], capacity: int) -> float:
    """T in requests: how long an item stays without being asked for. The number held grows with T, so halve."""

    def held(time: float) -> float:
        return math.fsum(-math.expm1(-share * time) for share in shares)

    low, high = 0.0, float(capacity)
    while held(high) < capacity:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < capacity else (low, middle)
    return (low + high) / 2


def served(popularity: Sequence[float], *, capacities: Sequence[int], policy: str = "lru") -> tuple[float, ...]:
    """The share of requests that each tier answers, fastest tier first, and last the share that no tier does.

    capacities: items a tier holds. What falls out of one tier moves to the next, so the first n tiers together are one
    cache of their capacities together; arguments otherwise as for `hit_rate`.
    """
    popularity = tuple(_shares(popularity))
    shares, before, room = [], 0.0, 0
    for capacity in checks.items("capacities", capacities, "whole numbers"):
        room += checks.whole("capacities", capacity, least=0)
        upto = hit_rate(popularity, capacity=room, policy=policy)
        shares.append(max(0.0, upto - before))
        before = max(before, upto)
    return (*shares, 1.0 - before)


def mean_time(shares: Sequence[float], seconds: Sequence[float]) -> float:
    """Mean seconds of a request: Σ share · seconds, with the tiers in `served`'s order, recomputing last."""
    shares, seconds = checks.items("shares", shares, "shares"), checks.items("seconds", seconds, "seconds")
    if len(shares) != len(seconds):
        raise ValueError(f"shares has {len(shares)} entries and seconds has {len(seconds)}; they must have as many")
    for share, time in zip(shares, seconds, strict=True):
        checks.fraction("shares", checks.single("shares", share))
        checks.not_negative("seconds", checks.single("seconds", time))
    return math.fsum(share * time for share, time in zip(shares, seconds, strict=True))


def reuse_distances(trace: Iterable) -> Counter:
    """How far apart uses of the same item are: {distinct other items in between: how often}, None for first uses.

    The distribution says what LRU does on this trace at every capacity at once (Mattson et al., 1970). trace: items of
    any kind that can be a dict's key, in the order of their uses, at most MOST_ITEMS. Raises ValueError for another.
    """
    uses = tuple(trace) if isinstance(trace, str) else checks.items("trace", trace, "uses of items")
    checks.at_most("uses in trace", len(uses), MOST_ITEMS)
    # A Fenwick tree over the uses counts those that are their item's latest: one for each item used since then.
    tree, latest = [0] * (len(uses) + 1), {}
    distances: Counter = Counter()

    def add(at: int, value: int) -> None:
        while at < len(tree):
            tree[at] += value
            at += at & -at

    def upto(at: int) -> int:
        total = 0
        while at:
            total += tree[at]
            at -= at & -at
        return total

    for at, item in enumerate(uses, 1):
        try:
            before = latest.get(item)
        except TypeError:
            raise ValueError(f"trace has {checks.brief(item)}; its items must be what can be a dict's key") from None
        if before is None:
            distances[None] += 1
        else:
            distances[len(latest) - upto(before)] += 1
            add(before, -1)
        add(at, 1)
        latest[item] = at
    return distances


def reuse_hit_rate(distances: Counter, *, capacity: int) -> float:
    """The share of a trace's requests that hit an LRU cache of `capacity` items: those with fewer others in between.

    distances: as `reuse_distances` gives them. Exact for that trace, first uses counted as misses.

    >>> reuse_hit_rate(reuse_distances("abcabc"), capacity=3), reuse_hit_rate(reuse_distances("abcabc"), capacity=2)
    (0.5, 0.0)
    """
    checks.whole("capacity", capacity, least=0)
    if not isinstance(distances, Mapping):
        raise ValueError(f"distances is {checks.brief(distances)}; it must be as reuse_distances gives them")
    for between, times in distances.items():
        if between is not None:
            checks.whole("distances", between, least=0)
        checks.whole("distances", times, least=0)
    total = sum(distances.values())
    if total <= 0:
        raise ValueError(f"distances is {checks.brief(distances)}; it must have a request")
    return sum(times for between, times in distances.items() if between is not None and between < capacity) / total
