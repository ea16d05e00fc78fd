"""Questions on training data. Every answer, right or wrong, is computed by the functions the chapter explains.

Each question has a draw function: the numbers of a round, and beside them, as words, what its texts say about them.
"""

from memtier import evidence, models, tiers, training_data, units
from memtier.live.course import BILLION, DAY, TRILLION
from memtier.live.question import Misconception, Question
from memtier.live.text import percent
from memtier.units import format_bytes, format_count, format_rate, format_time

CONNECTION = tiers.get("s3-connection")
DRIVE = tiers.get("micron-9550")
GETS = evidence.get("object.s3.gets").quantity
SHARD = 64 * units.MB


# Bytes


def _draw_ids(random) -> dict:
    v = {"tokens": random.choice((1, 2, 3, 5, 8, 12, 15)) * TRILLION,
         "model": random.choice(("llama-3.1-8b", "qwen2.5-7b", "gemma-2-9b", "gpt2", "mistral-7b"))}
    vocabulary, each = models.get(v["model"]).vocab, training_data.bytes_per_token(v["model"])
    return v | {"size": format_count(v["tokens"]), "vocabulary": vocabulary, "words": f"{vocabulary:,}", "each": each,
                "why": "all of them fit into uint16" if each == 2 else "some are 65,536 or more, so it takes uint32",
                "total": format_bytes(training_data.text(v["tokens"], vocabulary=vocabulary).total)}


ids = Question(
    name="training_data.ids",
    title="Tokens on disk",
    draw=_draw_ids,
    prompt="A corpus of {size} tokens is stored as token ids. The vocabulary has {words} tokens. **How large is it on "
           "disk**, in the smallest unsigned type of 2, 4 or 8 bytes that holds every id?",
    unit="bytes",
    answer=lambda v: training_data.text(v["tokens"], vocabulary=v["vocabulary"]).total,
    misconceptions=(
        Misconception(lambda v: v["tokens"] * (6 - v["each"]),
                      lambda v: "You took {} bytes an id. 2 bytes count from 0 to 65,535; compare that with the "
                                "vocabulary.".format(6 - v["each"])),
        Misconception(lambda v: v["tokens"] * training_data.TOKEN_IN_BATCH,
                      "Those are the 8 bytes of an int64 in a batch. On disk an id needs fewer."),
        Misconception(lambda v: v["tokens"], "One byte counts to 255 only; this vocabulary is larger."),
    ),
    hints=(
        "How many different numbers do 2 bytes hold? Is the vocabulary larger?",
        "Tokens times bytes of an id, nothing else: compression would come on top.",
    ),
    solution="Ids run from 0 to one less than {words}: {why}. {size} × {each} bytes = **{total}**.",
)


def _draw_video(random) -> dict:
    v = {"hours": random.choice((10, 20, 50, 200, 500)) * 1000, "rate": random.choice((2, 4, 5, 8)) * units.MB}
    total = _video(v)
    return v | {"time": f"{v['hours']:,}", "mbits": v["rate"] // units.MB, "total": format_bytes(total),
                "hour": format_bytes(total / v["hours"]), "tokens": format_count(total / training_data.UINT32)}


def _video(v) -> float:
    return training_data.clip(v["hours"] * 3600, bit_rate=v["rate"], frames=1).stored


video = Question(
    name="training_data.video",
    title="Video, in one figure",
    draw=_draw_video,
    prompt="Estimate, without a tool and to one figure: **how many bytes are {time} hours of video** at {mbits} Mb/s?",
    unit="bytes",
    tolerance=0.25,
    answer=_video,
    misconceptions=(
        Misconception(lambda v: 8 * _video(v), "A factor of 8: the rate is given in bits."),
        Misconception(lambda v: _video(v) / 60, "A factor of 60: an hour has 3,600 seconds."),
    ),
    hints=(
        "How many bytes a second is that? An hour has 3,600 seconds, take 4,000 if you like.",
        "One hour is some {hour}.",
    ),
    solution="{mbits} Mb/s over 8 bits, times 3,600 s: {hour} an hour. Times {time}: **{total}**. As token ids of 4 "
             "bytes the same bytes would be {tokens} tokens of text.",
)


# What a run reads


def _reads(v, **other) -> float:
    """Bytes a second of a run, ids of 4 bytes."""
    asked = {"model": v["parameters"], "gpus": v["gpus"], "flops": v["flops"]} | other
    return training_data.UINT32 * training_data.tokens_per_second(asked.pop("model"), **asked)


def _draw_reads(random) -> dict:
    v = {"parameters": random.choice((8, 30, 70, 120, 180)) * BILLION,
         "gpus": random.choice((64, 256, 512, 1024, 2048)),
         "flops": random.choice((320, 350, 400, 430)) * 10**12}
    tokens = _reads(v) / training_data.UINT32
    return v | {"size": format_count(v["parameters"]), "reached": v["flops"] // 10**12, "cluster": f"{v['gpus']:,}",
                "tokens": format_count(tokens), "answer": format_rate(_reads(v)),
                "each": f"{6 * v['parameters']:.3g}"}


reads = Question(
    name="training_data.reads",
    title="What a run reads",
    draw=_draw_reads,
    prompt="{size} parameters are trained on {cluster} GPUs, each of which reaches {reached} TFLOP/s. Token ids are "
           "stored in 4 bytes. **How many bytes a second does the whole run read?**",
    unit="bytes/s",
    answer=_reads,
    misconceptions=(
        Misconception(lambda v: _reads(v, what="forward"),
                      "You counted the forward pass alone. With the backward pass it is 6 FLOPs a parameter and "
                      "token."),
        Misconception(lambda v: _reads(v) / 2, "You took 2 bytes an id. These need 4."),
        Misconception(lambda v: 2 * _reads(v), "You took the 8 bytes of an int64 in a batch; stored are 4."),
        Misconception(lambda v: _reads(v) * v["gpus"],
                      "Every GPU reads its own part of the batch. You let each of them read all of it."),
        Misconception(lambda v: _reads(v) / v["gpus"], "That is what one GPU reads."),
    ),
    hints=(
        "How many operations does a token take in training? How many does the cluster do in a second?",
        "6 FLOPs a parameter: {each} a token. Tokens a second times 4 bytes.",
    ),
    solution="A token takes 6 × {size} FLOPs. {cluster} GPUs at {reached} TFLOP/s get through {tokens} tokens a "
             "second, 4 bytes each: **{answer}**. That is all the storage has to send, whatever the corpus weighs.",
)


def _images(v, gpus=None, each=None) -> float:
    return (gpus or v["gpus"]) * v["rate"] * (each or v["nbytes"])


def _draw_images(random) -> dict:
    v = {"gpus": random.choice((4, 8, 16)), "rate": random.choice((1000, 1500, 2000, 2500, 3000)),
         "nbytes": random.choice((100, 120, 150, 200)) * units.KB}
    return v | {"size": format_bytes(v["nbytes"]), "speed": f"{v['rate']:,}", "all": f"{v['gpus'] * v['rate']:,}",
                "answer": format_rate(_images(v)), "connections": tiers.streams_needed(_images(v), CONNECTION.read)}


images = Question(
    name="training_data.images",
    title="Images for a node",
    draw=_draw_images,
    prompt="A node has {gpus} GPUs. Each of them trains on {speed} images a second, stored as files of {size}. **What "
           "must its storage deliver?**",
    unit="bytes/s",
    answer=_images,
    misconceptions=(
        Misconception(lambda v: _images(v, gpus=1), "That is one GPU. The node has {gpus}."),
        Misconception(lambda v: _images(v) * 8, "That is bits a second."),
        Misconception(lambda v: _images(v) / 8, "The sizes are in bytes already; there is nothing to divide by 8."),
        Misconception(lambda v: _images(v, each=training_data.image(1, element=4).batched),
                      "You counted decoded images in fp32. Storage sends them compressed; only the last hop carries "
                      "that."),
    ),
    hints=(
        "Bytes a second = samples a second × bytes of a sample. Of which GPUs?",
        "The node takes {all} images a second.",
    ),
    solution="{all} images a second × {size} = **{answer}**: {connections} connections to S3 at their best, and more "
             "than all the text that Llama 3 405B read on 16,384 GPUs.",
)


# Waiting


def _draw_depth(random) -> dict:
    v = {"rate": random.choice((1, 2, 3, 5)) * units.GB, "request": random.choice((4, 8, 16, 32)) * units.MB}
    return v | {"speed": format_rate(v["rate"]), "size": format_bytes(v["request"]),
                "latency": format_time(CONNECTION.latency), "each": format_rate(CONNECTION.read),
                "transfer": format_time(v["request"] / CONNECTION.read), "answer": f"{_depth(v):,}",
                "one": format_time(CONNECTION.latency + v["request"] / CONNECTION.read),
                "second": f"{v['rate'] / v['request']:.4g}", "memory": format_bytes(_depth(v) * v["request"])}


def _depth(v, latency=None, bandwidth=None) -> int:
    return training_data.prefetch_depth(v["rate"], request=v["request"],
                                        latency=CONNECTION.latency if latency is None else latency,
                                        bandwidth=bandwidth or CONNECTION.read)


depth = Question(
    name="training_data.depth",
    title="How many in flight",
    draw=_draw_depth,
    prompt="A node needs {speed} from object storage. It asks for {size} at a time. The first byte of an answer takes "
           "{latency}, then its connection carries {each}. **How many requests must be under way at the same time?**",
    unit="count",
    answer=_depth,
    misconceptions=(
        Misconception(lambda v: _depth(v, bandwidth=1e15),
                      "You hid the latency, but not the transfer: a connection is slow as well."),
        Misconception(lambda v: _depth(v, latency=0),
                      "You divided the two rates. That would do if the first byte came at once."),
        Misconception(lambda v: -(-v["rate"] // v["request"]),
                      "That is how many arrive in a second. Each of them is under way for longer, or shorter, than "
                      "that."),
    ),
    hints=(
        "How long is one request under way? How many must arrive in a second? Little's law multiplies the two.",
        "One takes {latency} + {transfer}.",
    ),
    solution="{second} requests have to arrive each second, and each is under way for {latency} + {transfer} = {one}: "
             "**{answer}** at the same time, with {memory} of memory for what they bring.",
)


def _draw_stall(random) -> dict:
    v = {"load": random.choice((150, 200, 250)) / 1000, "step": random.choice((20, 30, 35)) / 1000,
         "depth": random.choice((2, 3))}
    return v | {"fetch": format_time(v["load"]), "compute": format_time(v["step"]), "answer": percent(_stall(v)),
                "every": format_time(v["load"] / v["depth"])}


def _stall(v, **other) -> float:
    return training_data.stall_fraction(v["step"], v["load"], **{"depth": v["depth"]} | other)


stall = Question(
    name="training_data.stall",
    title="How long it waits",
    draw=_draw_stall,
    prompt="A request brings the data for {compute} of computing, {fetch} after it was sent. While the GPU computes, "
           "{depth} requests are always under way. **Which share of its time does the GPU wait?**",
    unit="share",
    answer=_stall,
    misconceptions=(
        Misconception(lambda v: _stall(v, depth=0),
                      "That is without prefetching: ask, wait, compute. Here the next request is already under way."),
        Misconception(lambda v: 1 - _stall(v), "That is the share in which it computes."),
        Misconception(lambda v: 0.0, "Prefetching hides a wait only if requests come back as fast as they are used."),
    ),
    hints=(
        "How often does a request come back? How long does the GPU need for what it brings?",
        "One comes back every {every}.",
    ),
    solution="One request comes back every {every}, and the GPU is done with it in {compute}. It waits 1 − {compute} / "
             "{every} = **{answer}** of the time.",
)


# The cache


def _draw_half(random) -> dict:
    v = {"share": random.choice((0.3, 0.4, 0.5, 0.6, 0.7, 0.8))}
    return v | {"cached": percent(v["share"]), "answer": percent(_hits(v)), "rest": f"{1 - v['share']:.1f}",
                "part": f"{v['share']:.1f}"}


def _hits(v, policy="lru") -> float:
    return training_data.cache_hits(v["share"], policy=policy)


half = Question(
    name="training_data.half",
    title="A part of the set in the cache",
    draw=_draw_half,
    prompt="The cache on NVMe holds {cached} of the shards. When it is full, the least recently used shard leaves. "
           "Each epoch reads every shard once, in a new random order. **Which share of the reads does it answer**, "
           "from the second epoch on?",
    unit="share",
    answer=_hits,
    misconceptions=(
        Misconception(lambda v: v["share"],
                      "That is what a pinned part would give. Here, shards that are still to come are pushed out by "
                      "others that will not be needed for an epoch."),
        Misconception(lambda v: 0.0, "It would be none if every epoch had the same order. With a new order, a shard "
                                     "read late in one epoch may come early in the next."),
        Misconception(lambda v: v["share"] ** 2, "The two epochs are independent, but the cache is not filled at "
                                                 "random: it holds what was read last."),
    ),
    hints=(
        "A shard read at x of one epoch and at y of the next: which share of the set was read in between?",
        "It is still there if x(1 − y) is at least {rest}, for x and y uniform between 0 and 1.",
    ),
    solution="φ + (1 − φ)·ln(1 − φ) with φ = {part}: {part} + {rest} · ln {rest} = **{answer}**. A pinned part answers "
             "{cached}.",
)


def _draw_fetched(random) -> dict:
    v = {"nbytes": random.choice((2, 5, 10, 20)) * units.TB, "share": random.choice((0.6, 0.7, 0.75, 0.8)),
         "epochs": random.choice((3, 5, 10)), "policy": random.choice(("lru", "pinned"))}
    what = "the least recently used shard leaves" if v["policy"] == "lru" else "what is in stays, and nothing leaves"
    return v | {"size": format_bytes(v["nbytes"]), "cached": percent(v["share"]), "what": what,
                "hits": percent(_hits(v, v["policy"])), "answer": format_bytes(_fetched(v)),
                "later": v["epochs"] - 1}


def _fetched(v, policy=None, first=1) -> float:
    """Bytes the store sends: the first epoch whole, of the others what the cache does not answer."""
    missed = 1 - _hits(v, policy or v["policy"])
    return v["nbytes"] * (first + (v["epochs"] - 1) * missed) if first else v["nbytes"] * v["epochs"] * missed


fetched = Question(
    name="training_data.fetched",
    title="What the store still sends",
    draw=_draw_fetched,
    prompt="A set of {size} is read for {epochs} epochs, each in a new random order. {cached} of it fit into the "
           "cache, which is empty at first; when it is full, {what}. **How many bytes does the store send in all?**",
    unit="bytes",
    answer=_fetched,
    misconceptions=(
        Misconception(lambda v: _fetched(v, policy="pinned" if v["policy"] == "lru" else "lru"),
                      "That is the other way to run the cache. What happens here when it is full?"),
        Misconception(lambda v: _fetched(v, first=0), "The cache is empty at first: the first epoch comes whole."),
        Misconception(lambda v: v["nbytes"] * v["epochs"], "That is without the cache."),
        Misconception(lambda v: v["nbytes"], "Only a cache that holds the whole set sends the store home after one "
                                             "epoch."),
    ),
    hints=(
        "The first epoch is special. Which share of the reads hits in the others?",
        "From the second epoch on {hits} of the reads hit.",
    ),
    solution="The first epoch: {size}. In each of the {later} others {hits} hit, and the rest is sent again. Together "
             "**{answer}**.",
)


def _draw_wear(random) -> dict:
    v = {"rate": random.choice((1, 2, 3, 4)) * units.GB, "share": random.choice((0, 0.25, 0.5))}
    written = _written(v)
    return v | {"speed": format_rate(v["rate"]), "hits": percent(v["share"]), "life": format_bytes(DRIVE.endurance),
                "drive": DRIVE.title, "day": format_bytes(written * DAY), "answer": format_time(_wear(v))}


def _written(v) -> float:
    return v["rate"] * (1 - v["share"])


def _wear(v, rate=None) -> float:
    return DRIVE.endurance / (rate or _written(v))


wear = Question(
    name="training_data.wear",
    title="What the cache costs the drive",
    draw=_draw_wear,
    prompt="A node reads {speed} of training data, day and night. {hits} of the reads are answered by the shard cache "
           "on its {drive}; everything else is fetched, written to the cache and then read. The drive may be written "
           "with {life} in its life. **How long does it last?**",
    unit="s",
    answer=_wear,
    misconceptions=(
        Misconception(lambda v: _wear(v, 2 * v["rate"] - v["share"] * v["rate"]),
                      "Reading does not wear flash out. Count what is written."),
        Misconception(lambda v: _wear(v) * 8, "A factor of 8: all of it is in bytes."),
        Misconception(lambda v: DRIVE.capacity / _written(v), "That is the time to fill it once. How often may it be "
                                                              "filled?"),
    ),
    hints=(
        "What is written each second? Only what the cache did not have.",
        "{day} are written in a day.",
    ),
    solution="{day} are written each day. Of {life} that lasts **{answer}**. A cache that keeps what it has is written "
             "once, and then only read.",
)


# Requests and money


def _draw_cost(random) -> dict:
    v = {"images": random.choice((1, 2, 5, 10)) * BILLION, "epochs": random.choice((2, 3, 10))}
    price = evidence.get("price.s3-standard.gets")
    shards = training_data.requests(v["images"] * 150 * units.KB, request=SHARD)
    return v | {"count": format_count(v["images"]), "price": price.amount, "date": price.date,
                "answer": f"{_cost(v):,.6g}", "shards": format_count(shards * v["epochs"]),
                "less": f"{training_data.request_price(shards * v['epochs']):.3g}",
                "times": "twice" if v["epochs"] == 2 else f"{v['epochs']} times"}


def _cost(v, price="price.s3-standard.gets") -> float:
    return training_data.request_price(v["images"] * v["epochs"], price=price)


cost = Question(
    name="training_data.cost",
    title="A request for each image",
    draw=_draw_cost,
    prompt="{count} images lie in object storage, an object for each. All are read {times}. A GET costs {price} "
           "({date}). **What do the requests cost**, in US dollars?",
    answer=_cost,
    misconceptions=(
        Misconception(lambda v: _cost(v) / v["epochs"], "That is one epoch. They are read {times}."),
        Misconception(lambda v: _cost(v, "price.s3-standard.puts"), "That is the price of a PUT. Reading is a GET."),
        Misconception(lambda v: _cost(v) / 1000, "You divided by a thousand twice."),
    ),
    hints=(
        "How many requests are there? What does one of them cost?",
        "A million requests cost $0.40 at that price.",
    ),
    solution="One request an image, {count} read {times}, at {price}: **{answer}** dollars. In shards of 64 MB (150 KB "
             "an image) it would be {shards} requests, ${less}.",
)


# Backwards, and design

FAULTS = {
    "in flight": "too few requests in flight",
    "network": "the node's network is too slow",
    "prefix": "one prefix takes no more requests a second",
    "drive": "the NVMe drive cannot keep up",
    "cpu": "the CPU cannot decode as fast",
}
HEALTHY = {"request": SHARD, "in_flight": 256, "network": units.parse_rate("100 Gb/s"), "nvme": "micron-9550",
           "prepared": 60_000, "requests_per_second": GETS}


def _faulty(v) -> dict:
    change = {"in flight": {"in_flight": v["few"]}, "network": {"network": units.parse_rate("10 Gb/s")},
              "prefix": {"request": v["nbytes"], "in_flight": 8192}, "drive": {"nvme": "micron-9200"},
              "cpu": {"prepared": v["slow"]}}
    return HEALTHY | change[v["fault"]]


def _starved(v) -> training_data.Pipeline:
    return training_data.pipeline(training_data.image(v["nbytes"]), rate=v["rate"], **_faulty(v))


def _draw_diagnose(random) -> dict:
    v = {"fault": random.choice(list(FAULTS)), "nbytes": random.choice((150, 180)) * units.KB,
         "rate": random.choice((32_000, 36_000, 40_000)), "few": random.choice((4, 8, 16)),
         "slow": random.choice((5_000, 8_000, 12_000))}
    seen, how = _starved(v), _faulty(v)
    flow, drive = seen.delivered * v["nbytes"], tiers.get(how["nvme"])
    lines = [f"- in flight: {how['in_flight']:,} requests of {format_bytes(how['request'])}",
             f"- requests a second: {flow / how['request']:,.0f}, on one prefix",
             f"- network: {format_rate(flow)} of {format_rate(how['network'])}",
             f"- drive ({drive.title}): writes {format_rate(flow)} of {format_rate(drive.write)}, "
             f"reads as much of {format_rate(drive.read)}",
             f"- CPU: {percent(seen.delivered / how['prepared'])} busy"]
    return v | {"wanted": f"{v['rate']:,}", "size": format_bytes(v["nbytes"]), "wait": percent(seen.stall),
                "lines": "\n".join(lines), "what": FAULTS[v["fault"]], "got": format_rate(flow),
                "gets": f"{GETS:,}", "each": format_rate(flow / how["in_flight"]),
                "most": format_rate(how["request"] / (CONNECTION.latency + how["request"] / CONNECTION.read))}


diagnose = Question(
    name="training_data.diagnose",
    title="Which hop starves them?",
    draw=_draw_diagnose,
    prompt="Eight GPUs could use {wanted} images of {size} a second. They wait {wait} of the time. Nothing is cached "
           "yet. On the node you see:\n\n{lines}\n\nA prefix takes {gets} requests a second; a request takes 150 ms "
           "until its first byte, then 87.5 MB/s. **What starves the GPUs?**",
    kind="choice",
    options=FAULTS,
    answer=lambda v: v["fault"],
    misconceptions=(
        Misconception(lambda v: "in flight", "Then each request would bring what a connection can: divide the rate by "
                                             "the requests in flight and compare."),
        Misconception(lambda v: "network", "Then the network would carry all it can."),
        Misconception(lambda v: "prefix", "Then the requests a second would be at what a prefix takes."),
        Misconception(lambda v: "drive", "Then the drive would write or read all it can."),
        Misconception(lambda v: "cpu", "Then the CPU would be fully busy."),
    ),
    hints=(
        "A hop that starves the others is at its own limit. Go down the list: which of them is?",
        "If nothing is at its limit, somebody is not asking often enough.",
    ),
    solution="{got} come through: {what}. That line of the list is at its limit, and every other one has room. The "
             "requests in flight bring {each} each; at most, one brings {most}.",
)


PLANS = {
    "objects": "an object for each image, 256 requests in flight",
    "few": "shards of 64 MB, 8 in flight",
    "shards": "shards of 64 MB, 64 in flight",
    "lru": "shards of 64 MB, 32 in flight, half of the set in an LRU cache",
    "pinned": "shards of 64 MB, 32 in flight, half of the set pinned on NVMe",
}


def _plan(v, plan: str) -> training_data.Pipeline:
    """The pipeline under a plan, from the second epoch on."""
    how = {"objects": {"request": 150 * units.KB, "in_flight": 256},
           "few": {"in_flight": 8}, "shards": {"in_flight": 64},
           "lru": {"in_flight": 32, "hits": training_data.cache_hits(0.5)},
           "pinned": {"in_flight": 32, "hits": training_data.cache_hits(0.5, policy="pinned")}}[plan]
    return training_data.pipeline(training_data.image(150 * units.KB), rate=v["gpus"] * v["each"],
                                  requests_per_second=GETS, **{"request": SHARD} | how)


def _feeding(v) -> frozenset:
    return frozenset(plan for plan in PLANS if _plan(v, plan).stall == 0)


def _with_lru(v) -> dict:
    """What the LRU cache of half of the set answers, what it leaves to the store, and what that can send."""
    store = _plan(v, "lru").hops[0]
    return {"hits": percent(training_data.cache_hits(0.5)), "less": format_rate(store.needed),
            "most": format_rate(store.available)}


def _draw_design(random) -> dict:
    v = {"gpus": 8, "each": random.choice((1000, 1500, 2000, 2500, 3000))}
    lines = [f"- {words}: {format_rate(_plan(v, plan).hops[0].available)} from the store, needed "
             f"{format_rate(_plan(v, plan).hops[0].needed)}, {'enough' if plan in _feeding(v) else 'not enough'}"
             for plan, words in PLANS.items()]
    return v | {"speed": f"{v['each']:,}", "lines": "\n".join(lines),
                "rate": format_rate(v["gpus"] * v["each"] * 150e3)}


design = Question(
    name="training_data.design",
    title="Several that feed it, defend one",
    draw=_draw_design,
    prompt="Eight GPUs train on {speed} images of 150 KB a second each, for many epochs, in a new random order every "
           "epoch. A request takes 150 ms until its first byte, then 87.5 MB/s; a prefix takes 5,500 requests a "
           "second. **Which of these plans keep the GPUs fed** from the second epoch on? Then choose one and defend it "
           "in a sentence.",
    kind="multiple",
    options=PLANS,
    answer=_feeding,
    misconceptions=(
        Misconception(lambda v: _feeding(v) ^ {"lru"},
                      lambda v: "Look at the LRU cache again: " + (
                          "it answers only {hits} of the reads, and that is enough here. {most} can come from the "
                          "store, and only {less} are asked of it." if "lru" in _feeding(v) else
                          "half of the set answers {hits} of the reads, not half of them. {less} are still asked of "
                          "the store, and only {most} can come.").format(**_with_lru(v))),
        Misconception(lambda v: _feeding(v) | {"objects"},
                      "A request for 150 KB is under way for 152 ms. 256 of them bring less than you think."),
        Misconception(lambda v: _feeding(v) ^ {"pinned"},
                      "Look at the pinned half again: the store has to send only the other one."),
        Misconception(lambda v: _feeding(v) | {"few"},
                      "Eight requests of 64 MB bring eight times what one connection carries, less the wait."),
    ),
    hints=(
        "For each plan: what must the store send after the cache has answered, and what do the requests in flight "
        "bring?",
        "The node needs {rate}. A request of 64 MB is under way for 0.88 s.",
    ),
    solution="What the requests in flight can bring, against what the cache leaves to fetch:\n\n{lines}\n\nMore than "
             "one may work. Shards without a cache cost 4.1 GB of memory for what is in flight and a full read of the "
             "set every epoch; the pinned half costs room on NVMe, halves what the store sends, and writes the drive "
             "only once. A good defence names what the choice costs.",
)


# Going on

SAVED = {
    "position": "the epoch, and how many samples of it have been used",
    "seed": "the seed that the order is drawn from",
    "digest": "the checksum of the manifest",
    "buffer": "what is in the shuffle buffer, and its generator's state",
    "workers": "the number of workers",
    "cache": "what is in the shard cache",
}
SHUFFLES = {
    "drawn": ("The order of an epoch is drawn from a seed and the number of the epoch, before it begins.",
              "Seed, dataset and position give the order again."),
    "buffer": ("Samples are read in a fixed order into a buffer of 10,000; each one used is drawn from it at random, "
               "and another takes its place.",
               "What has been read but not used is in the buffer: without it those samples are lost or come twice."),
}


def _to_save(v) -> frozenset:
    """Of a fixed order no seed is needed: what is drawn from the buffer next, its generator's state decides."""
    return frozenset({"position", "digest", "buffer" if v["shuffle"] == "buffer" else "seed"})


def _draw_resume(random) -> dict:
    v = {"shuffle": random.choice(list(SHUFFLES))}
    how, why = SHUFFLES[v["shuffle"]]
    return v | {"how": how, "why": why,
                "needed": "; ".join(words for name, words in SAVED.items() if name in _to_save(v))}


resume = Question(
    name="training_data.resume",
    title="Going on in the middle of an epoch",
    draw=_draw_resume,
    prompt="A run is killed in the middle of an epoch and goes on from its checkpoint, perhaps with other hardware. "
           "{how} **What about the data must be in the checkpoint**, so that every sample still comes exactly once an "
           "epoch, in the same order, and from the same data?",
    kind="multiple",
    options=SAVED,
    answer=_to_save,
    misconceptions=(
        Misconception(lambda v: frozenset(SAVED), "Not all of it: what can be fetched or chosen again need not be "
                                                  "saved."),
        Misconception(lambda v: _to_save(v) | {"cache"}, "The cache holds copies, checked when they are read. It may "
                                                         "be lost."),
        Misconception(lambda v: _to_save(v) | {"workers"}, "Who fetches a shard does not decide which sample comes "
                                                           "next."),
        Misconception(lambda v: _to_save(v) - {"digest"}, "If somebody has replaced the dataset meanwhile, the same "
                                                          "position means other samples. How would the run know?"),
        Misconception(lambda v: _to_save(v) ^ {"buffer"}, "{why}"),
        Misconception(lambda v: _to_save(v) ^ {"seed"}, lambda v: (
            "Without its seed the order cannot be drawn again." if v["shuffle"] == "drawn" else
            "Here the order of reading is fixed, and the generator's state is saved with the buffer: the seed it began "
            "with decides nothing any more.")),
    ),
    hints=(
        "Which of these decide what the next sample is?",
        "Ask of each: if it were lost, or different, would the run see other samples?",
    ),
    solution="{needed}. {why} The cache and the workers only decide how fast a sample comes.",
)
