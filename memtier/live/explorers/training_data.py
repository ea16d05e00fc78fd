"""Explorers of training data: what a run reads, where its pipeline starves, and what a shard cache is worth."""

from memtier import drawing, evidence, models, tiers, training_data, units
from memtier.drawing import RATE_TICKS, Axis
from memtier.live.controls import Choice, ModelChoice, Slider
from memtier.live.course import DAY
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import percent, several
from memtier.training_data import Sample

CONNECTION = tiers.get("s3-connection")
INSTANCE = tiers.get("s3")
DRIVE = tiers.get("micron-9550")
HOME_LINE = units.parse_rate("100 Mb/s")  # a round figure, for scale
GETS = evidence.get("object.s3.gets").quantity  # requests a second, a prefix
LLAMA = {name: evidence.get(f"data.llama3-405b.{name}").quantity for name in ("gpus", "rate")}
IMAGE = training_data.image(evidence.get("data.resnet50.sample").quantity)
IMAGES_EACH = 2500  # images a second and GPU, the course's round figure


def _whole_percent(share: float) -> str:
    """For an axis, with the course's space."""
    return f"{100 * share:.0f} %"


# What a run reads

RATES = Axis("bytes a second", 1e3, 1e14, units.format_rate, RATE_TICKS)
IDS = {"own": "as its vocabulary needs", "2": "2 bytes, uint16", "4": "4 bytes, uint32"}


def _id_bytes(model, ids: str) -> int:
    """Bytes of a stored id; for a bare count, which has no vocabulary, those of a large one."""
    if ids != "own":
        return int(ids)
    return training_data.bytes_per_token(model) if isinstance(model, models.Model) else training_data.UINT32


def _tokens(model, gpus: int, reached: float) -> float:
    return training_data.tokens_per_second(model, gpus=gpus, flops=reached * 1e12)


def _demand(model, gpus, reached, ids, tokens, guess=None) -> View:
    model = models.resolve(model)
    each, speed = _id_bytes(model, ids), _tokens(model, gpus, reached)
    rate, images = speed * each, gpus * IMAGES_EACH * IMAGE.stored
    name = model.name if isinstance(model, models.Model) else several(units.format_count(model), "parameter")
    on = f"{gpus:,} GPU{'s' if gpus > 1 else ''}"
    corpus = tokens * each
    say = (f"{name} on {on}: {several(units.format_count(speed), 'token')} a second, {units.format_rate(rate)} in all. "
           f"{units.format_count(tokens)} tokens are {units.format_bytes(corpus)} and last "
           f"{units.format_time(tokens / speed)}.")
    rows = [(f"this run: text for {on}", {"rate": rate}),
            (f"images for {on}", {"rate": images}),
            ("a home line of 100 Mb/s", {"rate": HOME_LINE}),
            ("one connection to S3", {"rate": CONNECTION.read}),
            ("one instance's network", {"rate": INSTANCE.read}),
            ("one NVMe drive, reading", {"rate": DRIVE.read})]
    speeds = drawing.dots(rows, RATES, "What the run reads, beside what can carry it", say,
                          guess=guess and (guess, f"your guess: {units.format_rate(guess)}"))
    node = evidence.get("node.h100-8.nvme")
    disk = drawing.bars([(f"as ids of {each} bytes", {"training data": corpus})], "The corpus",
                        f"{units.format_bytes(corpus)} as ids of {each} bytes.",
                        limit=(node.quantity, f"{node.amount} of NVMe in a node"))
    note = (f"Images: {units.format_bytes(IMAGE.stored)} each, {IMAGES_EACH:,} a second for each GPU, a round figure. "
            "All GPUs together; every token is read once.")
    if ids == "own" and not isinstance(model, models.Model):
        note += f" A parameter count has no vocabulary: {training_data.UINT32} bytes a token are taken."
    return View((speeds, disk), say, note)


_GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
_RUN = {"model": "llama-3.1-405b", "gpus": LLAMA["gpus"], "reached": LLAMA["rate"] / 1e12}

demand = Explorer(
    name="training_data.demand",
    title="What a run reads",
    intro="A run reads tokens as fast as its GPUs can learn from them. Choose a model, a cluster, and the TFLOP/s that "
          "each GPU really reaches.",
    controls=(
        ModelChoice("model", "Model", "llama-3.1-8b"),
        Slider("gpus", "GPUs", 1, _GPUS[-1], 8, _GPUS, "count"),
        Slider("reached", "TFLOP/s reached", 10, 2000, 400, "log"),
        Choice("ids", "A stored token id", IDS, "own", more=True, open=False),
        Slider("tokens", "Tokens of the corpus", 10**9, 10**14, 15 * 10**12, "log", "count", more=True),
    ),
    more="More: bytes of an id, size of the corpus",
    view=_demand,
    presets={
        "yours: 8B on one": {"gpus": 1},
        "the cluster: 70B on 64": {"model": "llama-3.1-70b", "gpus": 64},
        "Llama 3 405B": _RUN,
        "the same ids in 2 bytes": _RUN | {"ids": "2"},
        "GPT-2's vocabulary": {"model": "gpt2"},
    },
    predict=Prediction(
        "Llama 3 405B was trained on 16,384 GPUs, 400 TFLOP/s each. A token takes 6 FLOPs a parameter, and its id "
        "4 bytes. How many **bytes a second does the whole cluster read**?",
        truth=lambda values: _tokens(values["model"], values["gpus"], values["reached"]) * _id_bytes(
            models.resolve(values["model"]), values["ids"]),
        values=_RUN | {"ids": "own"}, low=1e5, high=1e12, unit="bytes/s",
        lesson="Less than a home line of 100 Mb/s carries: a token brings 4 bytes and takes 2.4 trillion operations. "
               "Images for the same GPUs are another matter."),
)


# The pipeline

VIDEO = {"seconds": 10, "bit_rate": 5e6, "frames": 32}  # a round figure: 10 s at 5 Mb/s, of which 32 frames are used
VOLUME = {name: evidence.get(f"data.unet3d.{name}").quantity for name in ("sample", "decoded", "rate")}
EIGHT_B = models.get("llama-3.1-8b")
# What is read, and how many a second each GPU uses.
SAMPLES = {
    "image": (IMAGE, IMAGES_EACH),
    "text": (training_data.sequence(8192, vocabulary=EIGHT_B), _tokens(EIGHT_B, 1, LLAMA["rate"] / 1e12) / 8192),
    "volume": (Sample("a medical volume", VOLUME["sample"], VOLUME["decoded"]), VOLUME["rate"]),
    "video": (training_data.clip(**VIDEO), 40),
}
KINDS = {"image": "images", "text": "text for 8B", "volume": "medical volumes", "video": "video", "own": "your own …"}
DEPTHS = tuple(sorted({round(2 ** (n / 2)) for n in range(27)}))  # requests in flight at which the curve is drawn
PERCENTS = {"ticks": tuple((n / 4, _whole_percent(n / 4)) for n in range(5)), "log": False}
IN_FLIGHT = Axis("requests in flight", 1, DEPTHS[-1], "{:,.0f}".format,
                 tuple((n, f"{n:,}") for n in (1, 8, 64, 512, 4096)))
COMPUTING = Axis("time the GPUs compute", 0, 1.05, _whole_percent, **PERCENTS)
FLOW = Axis("bytes a second", 1e4, 1e13, units.format_rate, RATE_TICKS)


def _sample(sample: str, own_size: float, own_rate: float) -> tuple[Sample, float]:
    return SAMPLES[sample] if sample in SAMPLES else (Sample("a sample of yours", own_size, own_size), own_rate)


def _depth(what: Sample, rate: float, request: float, cached: float) -> int:
    """Requests in flight that bring what is not cached; one at the least."""
    fetched = rate * what.stored * (1 - cached)
    return training_data.prefetch_depth(fetched, request=request, latency=CONNECTION.latency,
                                        bandwidth=CONNECTION.read) if fetched else 1


def _pipeline(sample, request, in_flight, cached, gpus, prepared, prefixes, drives, own_size, own_rate,
              guess=None) -> View:
    what, each = _sample(sample, own_size, own_rate)
    asked = {"rate": gpus * each, "request": request, "hits": cached, "gpus": gpus, "drives": drives,
             "requests_per_second": GETS * prefixes, "prepared": prepared * gpus}
    here = training_data.pipeline(what, in_flight=in_flight, **asked)
    wanted, starving = units.format_rate(here.rate * what.stored), here.slowest
    want, get, them = ("s want", "get", "them") if gpus > 1 else (" wants", "gets", "it")
    say = f"{gpus:,} GPU{want} {several(units.format_count(here.rate), 'sample')} a second, {wanted}, and {get} "
    if here.stall > 0.0005:
        say += f"{percent(1 - here.stall)} of it. What starves {them}: {starving.name} ({starving.limit})."
    else:
        say += f"it. The busiest hop, {starving.name}, is at {percent(starving.load)}."
    depth = _depth(what, here.rate, request, cached)
    say += f" By Little's law the store needs {depth:,} request{'s' if depth > 1 else ''} in flight."
    hops = drawing.dots([(hop.name, {"needed": hop.needed, "available": hop.available}) for hop in here.hops], FLOW,
                        "Bandwidth at each hop of one node", say)
    curve = [(q, 1 - training_data.pipeline(what, in_flight=q, **asked).stall) for q in DEPTHS]
    reach = drawing.lines([("time the GPUs compute", curve)], IN_FLIGHT, COMPUTING, "What more requests in flight buy",
                          say, points=[("here", in_flight, 1 - here.stall)], height=200,
                          guess=guess and (guess, 1.0, f"your guess: {guess:,}"))
    return View((hops, reach), say, _pipeline_note(here, request, in_flight, drives))


def _pipeline_note(here, request, in_flight, drives) -> str:
    fetched = here.hops[0].needed * (1 - here.stall)  # bytes a second from the store, and so into the cache
    note = (f"In flight: {units.format_bytes(in_flight * request)} of memory. "
            f"{several(units.format_count(fetched / request), 'request')} a second; the store takes {GETS:,} a prefix.")
    if fetched:
        lasts = drives * DRIVE.endurance / fetched
        note += (f" The cache writes {units.format_bytes(fetched * DAY)} a day; drives rated for "
                 f"{units.format_bytes(DRIVE.endurance)} would last {units.format_time(lasts)}.")
    return note


_SHARD, _OBJECT = 64e6, IMAGE.stored

pipeline = Explorer(
    name="training_data.pipeline",
    title="The pipeline, and where it starves",
    intro="One node's data on its way: object storage, local NVMe, CPU memory, HBM. A hop that needs more than it has "
          "starves all that come after it.",
    controls=(
        Choice("sample", "What is read", KINDS, "image", open=False),
        Slider("request", "Bytes in each request", 4e3, 1e9, _SHARD, "log", "bytes"),
        Slider("in_flight", "Requests in flight", 1, DEPTHS[-1], 4, tuple(2**n for n in range(14)), "count"),
        Slider("cached", "Reads that the cache on NVMe answers", 0, 1, 0, "linear", "share", more=True),
        Slider("gpus", "GPUs in the node", 1, 16, 8, tuple(range(1, 17)), "count", more=True),
        Slider("prepared", "Samples a second the CPU prepares, each GPU", 1, 100_000, 5000, "log", "count", more=True),
        Slider("prefixes", "Prefixes the objects are spread over", 1, 64, 1, tuple(2**n for n in range(7)), "count",
               more=True),
        Slider("drives", "NVMe drives", 1, 8, 1, tuple(range(1, 9)), "count", more=True),
        Slider("own_size", "Your own: bytes of a sample", 1e3, 1e9, 1e6, "log", "bytes", more=True),
        Slider("own_rate", "Your own: samples a second, each GPU", 0.01, 100_000, 100, "log", more=True),
    ),
    more="More: cache, GPUs, CPU, prefixes, your own samples",
    view=_pipeline,
    presets={
        "images, an object each": {"request": _OBJECT, "in_flight": 64},
        "images in shards, one at a time": {"in_flight": 1},
        "images in shards, 64 in flight": {"in_flight": 64},
        "a slow CPU": {"in_flight": 64, "prepared": 600},
        "text for 8B": {"sample": "text", "in_flight": 1},
        "medical volumes": {"sample": "volume", "in_flight": 512},
    },
    predict=Prediction(
        "Eight GPUs train on images of 150 KB, 2,500 a second each: **3 GB/s**. Each image is an object of its own. "
        "The first byte takes 150 ms, then a connection carries 87.5 MB/s. **How many requests must be in flight?**",
        truth=lambda values: _depth(IMAGE, values["gpus"] * IMAGES_EACH, values["request"], values["cached"]),
        values={"sample": "image", "request": _OBJECT, "gpus": 8, "cached": 0}, low=1, high=100_000, unit="count",
        lesson="Even they would not do: one prefix takes 5,500 requests a second, and these are 20,000. Packed into "
               "shards of 64 MB, 42 in flight bring the same bytes."),
)


# The shard cache

POLICIES = {"lru": "LRU, reshuffled", "pinned": "pinned", "same order": "LRU, same order"}
SHARES = tuple(n / 50 for n in range(51))


def _cache(share, policy, nbytes, epochs, guess=None) -> View:
    found = training_data.cache_hits(share, policy=policy)
    from_store = nbytes * (1 + (epochs - 1) * (1 - found))
    say = (f"{percent(share)} of the set cached ({units.format_bytes(share * nbytes)}), {POLICIES[policy]}: "
           f"{percent(found)} of the reads hit, from the second epoch on. In "
           f"{several(epochs, 'epoch')} {units.format_bytes(nbytes * epochs)} are read, and the store sends "
           f"{units.format_bytes(from_store)} of them.")
    curves = [(words, [(at, training_data.cache_hits(at, policy=name)) for at in SHARES])
              for name, words in POLICIES.items()]
    drawn = drawing.lines(curves, Axis("part of the set that is cached", 0, 1, _whole_percent, **PERCENTS),
                          Axis("reads that hit", 0, 1.05, percent, **PERCENTS), "Reads that the cache answers", say,
                          points=[("here", share, found)],
                          guess=guess and (share, guess, f"your guess: {percent(guess)}"))
    read = drawing.bars([(several(epochs, "epoch"), {"from object storage": from_store,
                                                      "from the cache": max(0.0, nbytes * epochs - from_store)})],
                        "Where the bytes come from", say)
    return View((drawn, read), say, "Every epoch reads the whole set; the first finds the cache empty.")


cache = Explorer(
    name="training_data.cache",
    title="What a shard cache is worth",
    intro="A cache on local NVMe holds a part of the set. LRU: when it is full the least recently used shard leaves; "
          "epochs have new orders, or all the same. Pinned: what is in stays, and nothing takes its place.",
    controls=(
        Slider("share", "Part of the set that fits", 0, 1, 0.25, "linear", "share"),
        Choice("policy", "When it is full", POLICIES, "lru", open=False),
        Slider("epochs", "Epochs", 1, 300, 10, "log", "count"),
        Slider("nbytes", "Bytes of the set", 1e9, 1e15, 20e12, "log", "bytes", more=True),
    ),
    more="More: size of the set",
    view=_cache,
    presets={
        "half, LRU": {"share": 0.5},
        "half, pinned": {"share": 0.5, "policy": "pinned"},
        "nine tenths, LRU": {"share": 0.9},
        "nine tenths, same order": {"share": 0.9, "policy": "same order"},
    },
    predict=Prediction(
        "**Half of the set** fits on the node's NVMe. The least recently used shard leaves, and every epoch has a new "
        "random order. Which share of the reads does the cache answer?",
        truth=lambda values: training_data.cache_hits(values["share"], policy=values["policy"]),
        values={"share": 0.5, "policy": "lru"}, low=0.01, high=1, unit="share",
        lesson="While the epoch goes through the set, new shards push out the old ones that are still to come. Leave "
               "what is in where it is, and half the set answers half of the reads."),
)
