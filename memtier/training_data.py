"""Training data: what it takes on disk, how fast a run reads it, and what keeps the accelerators from waiting for it.

    object storage → shards on local NVMe → batches in CPU memory → HBM

    training_data.text(15e12, vocabulary="llama-3.1-405b").total                               # 60 TB
    training_data.tokens_per_second("llama-3.1-405b", gpus=16384, flops=400e12)                # 2.7 million
    training_data.pipeline(training_data.image(150e3), rate=20_000, in_flight=64).slowest      # the hop that starves

Bytes are those that lie on a disk or cross a hop; a rate of samples or tokens a second times bytes each is the
bandwidth that a hop has to carry.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

from memtier import checks, evidence, models, tiers, units
from memtier.inventory import Inventory
from memtier.table import Cell, Notes, Table

UINT16, UINT32 = 2, 4  # bytes of a stored token id
TOKEN_IN_BATCH = 8  # bytes of a token id in a batch: torch's embedding look-up is usually given int64
POLICIES = ("lru", "pinned", "same order")
MOST_SIDE = 10**9  # of a decoded picture, and tokens or frames of a sample: far beyond any
_EXACT = 2**53  # below it a float holds every whole number


# What it takes on disk


def bytes_per_token(vocabulary) -> int:
    """Bytes of one stored token id: 2 (uint16) where every id is below 65,536, else 4 (uint32).

    vocabulary: a Model or its name, or the number of tokens in the vocabulary; ids run from 0. (Megatron-LM changes to
    4 bytes a little earlier, from 65,500.) Raises ValueError for a vocabulary below 1.

    >>> bytes_per_token(50_257), bytes_per_token("llama-3.1-8b")
    (2, 4)
    """
    if isinstance(vocabulary, (str, Mapping, PathLike)):
        try:
            vocabulary = models.resolve(vocabulary)
        except ValueError as error:
            said = str(error).removeprefix("model is ")
            raise ValueError(f"vocabulary is {said}" if said != str(error) else f"vocabulary: {said}") from None
    size = vocabulary.vocab if isinstance(vocabulary, models.Model) else checks.whole("vocabulary", vocabulary)
    return UINT16 if size <= 2**16 else UINT32


def text(tokens, *, vocabulary) -> Inventory:
    """Bytes of a tokenised corpus: tokens × bytes of a stored id.

    tokens: how many, 0 or more. vocabulary: as in bytes_per_token. Raises ValueError naming the argument.

    >>> text(15e12, vocabulary=128_256).total
    60000000000000
    """
    nbytes = checks.not_negative("tokens", checks.single("tokens", tokens)) * bytes_per_token(vocabulary)
    return _held("tokens", nbytes, f"{units.format_count(tokens)} tokens as ids")


def tokens_in(nbytes, *, vocabulary) -> int:
    """Whole tokens in so many bytes of stored ids: the inverse of text(). Raises ValueError naming the argument."""
    return int(checks.not_negative("nbytes", checks.single("nbytes", nbytes))) // bytes_per_token(vocabulary)


@dataclass(frozen=True)
class Sample:
    """One sample as it moves.

    stored: bytes in object storage and on NVMe, compressed where it is. batched: bytes in a batch in CPU memory, and on
    its way to HBM. title: what it is. Raises ValueError for sizes not above 0.
    """

    title: str
    stored: float
    batched: float

    def __post_init__(self):
        for name in ("stored", "batched"):
            checks.positive(name, checks.single(name, getattr(self, name)))


def sequence(tokens: int = 8192, *, vocabulary) -> Sample:
    """A sequence of tokens: stored as ids of 2 or 4 bytes, batched as int64.

    The targets are the same ids one place further on, so they are not stored; nor are they sent, where the GPU shifts
    them itself. Raises ValueError naming the argument.
    """
    checks.whole("tokens", tokens, most=MOST_SIDE)
    return Sample(f"a sequence of {tokens:,} tokens", tokens * bytes_per_token(vocabulary), tokens * TOKEN_IN_BATCH)


def image(nbytes, *, height: int = 224, width: int = 224, channels: int = 3, element: int = 1) -> Sample:
    """A compressed image of nbytes, decoded and cut to height × width × channels of `element` bytes each.

    element: 1 for uint8, converted on the GPU; 4 where the CPU makes fp32 of it. Raises ValueError naming the argument.

    >>> image(150e3).batched
    150528
    """
    size = math.prod(checks.whole(name, value, most=MOST_SIDE) for name, value in
                     (("height", height), ("width", width), ("channels", channels), ("element", element)))
    checks.positive("nbytes", checks.single("nbytes", nbytes))
    return Sample(f"an image of {units.format_bytes(nbytes)}", nbytes, size)


def clip(seconds, *, bit_rate, frames: int, height: int = 224, width: int = 224, channels: int = 3,
         element: int = 1) -> Sample:
    """A stretch of compressed video, of which `frames` frames are decoded and batched.

    seconds: of video that has to be read. bit_rate: bits a second of the compressed stream. frames: decoded frames that
    reach the batch. Raises ValueError naming the argument.

    >>> clip(10, bit_rate=5e6, frames=32).stored
    6250000.0
    """
    checks.positive("seconds", checks.single("seconds", seconds))
    checks.positive("bit_rate", checks.single("bit_rate", bit_rate))
    frame = image(1, height=height, width=width, channels=channels, element=element).batched
    decoded = checks.whole("frames", frames, most=MOST_SIDE) * frame
    stored = checks.positive("seconds · bit_rate / 8", seconds * bit_rate / 8)
    return Sample(f"{units.format_time(seconds)} of video", stored, decoded)


def dataset(sample: Sample, count) -> Inventory:
    """Bytes of `count` such samples on disk. count: 0 or more. Raises ValueError naming the argument."""
    checks.not_negative("count", checks.single("count", count))
    return _held("count", count * _sample(sample).stored, f"{units.format_count(count)} × {sample.title}")


def _sample(sample) -> Sample:
    if not isinstance(sample, Sample):
        raise ValueError(f"sample is {checks.brief(sample)}; it must be a Sample, such as image(150e3)")
    return sample


def _held(argument: str, nbytes, title: str) -> Inventory:
    """An Inventory of training data, in whole bytes where that is exact. argument: what was perhaps too large."""
    checks.not_negative(f"bytes of {argument}", nbytes)
    exact = isinstance(nbytes, float) and nbytes.is_integer() and nbytes < _EXACT
    return Inventory({"training data": int(nbytes) if exact else nbytes}, title)


# How fast a run reads it


def tokens_per_second(model, *, gpus: int, flops, what: str = "training") -> float:
    """Tokens that a run reads each second: gpus · flops / (6 P), the arithmetic it does over that of one token.

    model: a Model or a parameter count P; of a mixture of experts, the parameters that a token passes. flops: FLOP/s
    that each GPU really reaches. what: one of tiers.FLOPS_EACH, 6 FLOPs a parameter and token in training, 8 with full
    recomputation. Raises ValueError naming the argument.

    >>> round(tokens_per_second(405e9, gpus=16384, flops=400e12) / 1e6, 2)
    2.7
    """
    checks.whole("gpus", gpus)
    checks.positive("flops", checks.single("flops", flops))
    model = models.resolve(model)
    passed = model.active_parameters if isinstance(model, models.Model) else model
    return gpus * flops / tiers.flops(passed, tokens=1, what=what)


# What keeps the accelerators from waiting


@dataclass(frozen=True)
class Hop:
    """One hop of the pipeline. needed, available: bytes a second. limit: what sets the available rate."""

    name: str
    needed: float
    available: float
    limit: str

    @property
    def load(self) -> float:
        """Needed over available: above 1 the hop starves what comes after it."""
        return self.needed / self.available


@dataclass(frozen=True)
class Pipeline:
    """The hops of one node, and the rate they have to carry. rate: samples a second that its GPUs can use."""

    rate: float
    hops: tuple[Hop, ...]

    @property
    def slowest(self) -> Hop:
        """The hop with the highest load."""
        return max(self.hops, key=lambda hop: hop.load)

    @property
    def delivered(self) -> float:
        """Samples a second that arrive: the slowest hop decides for all."""
        return self.rate / max(1.0, self.slowest.load)

    @property
    def stall(self) -> float:
        """The fraction of their time that the GPUs wait, from 0 to 1, when everything is prefetched."""
        return 1 - self.delivered / self.rate


def pipeline(sample: Sample, *, rate, request=None, in_flight: int = 1, hits: float = 0.0, store="s3-connection",
             network=None, requests_per_second=None, nvme="micron-9550", drives: int = 1, prepared=None,
             link="pcie5-x16", gpus: int = 8) -> Pipeline:
    """One node's pipeline: for each hop the bandwidth it needs and the bandwidth it has.

    rate: samples a second that the node's GPUs use. request: bytes asked for at a time, one sample's if left out.
    in_flight: requests under way at once. hits: the share of reads that the shard cache on NVMe answers.
    store: the tier of one connection to the store. network: bytes/s that all connections of the node share, the
    published maximum of an instance if left out. requests_per_second: what the store takes from this node, if anything
    limits it. nvme, drives: the cache; what is not in it is written there and then read. prepared: samples a second
    that the CPU decodes and batches; left out, the CPU is no limit. link, gpus: each GPU's link, and how many GPUs.

    A connection carries request / (latency + request / bandwidth); the latency is taken as fixed, so this is the best
    case. Raises ValueError naming argument, value and what is allowed.
    """
    _sample(sample)
    checks.positive("rate", checks.single("rate", rate))
    checks.whole("in_flight", in_flight, most=MOST_SIDE)
    checks.fraction("hits", checks.single("hits", hits))
    checks.whole("drives", drives, most=MOST_SIDE)
    checks.whole("gpus", gpus, most=MOST_SIDE)
    request = checks.positive("request", checks.single("request", sample.stored if request is None else request))
    network = tiers.get("s3").read if network is None else network
    checks.positive("network", checks.single("network", network))
    store, nvme, link = tiers.get(store, argument="store"), tiers.get(nvme, argument="nvme"), tiers.link(link)
    # A latency that no source gives counts as 0.
    connection = request / ((store.latency or 0.0) + request / store.rate("read", "store"))
    ways = [(in_flight * connection, f"{in_flight:,} in flight"), (network, "the node's network")]
    if requests_per_second is not None:
        checks.positive("requests_per_second", checks.single("requests_per_second", requests_per_second))
        ways.append((requests_per_second * request, "requests a second"))
    fetched, limit = min(ways)
    stored = rate * sample.stored
    hops = [Hop("object storage → NVMe", stored * (1 - hits), fetched, limit),
            Hop("writing NVMe", stored * (1 - hits), nvme.rate("write", "nvme") * drives, nvme.title),
            Hop("NVMe → CPU memory", stored, nvme.rate("read", "nvme") * drives, nvme.title)]
    if prepared is not None:
        checks.positive("prepared", checks.single("prepared", prepared))
        count = f"{prepared:,.0f}"
        hops.append(Hop("CPU: decode and batch", stored, prepared * sample.stored,
                        f"{count} sample{'' if count == '1' else 's'} a second"))
    hops.append(Hop("CPU memory → HBM", rate * sample.batched, link.rate * gpus, link.title))
    return Pipeline(rate, tuple(hops))


def prefetch_depth(rate, *, request, latency, bandwidth) -> int:
    """Requests that must be under way at once to bring `rate` bytes a second: Little's law (Little 1961).

    A request of `request` bytes takes latency + request / bandwidth, and rate / request of them must arrive a second;
    the product, rounded up, is how many are under way. Each takes `request` bytes of memory. bandwidth: bytes/s of one
    connection. Raises ValueError naming the argument.

    >>> prefetch_depth(3e9, request=150e3, latency=0.15, bandwidth=87.5e6)     # an object for each image
    3035
    >>> prefetch_depth(3e9, request=64e6, latency=0.15, bandwidth=87.5e6)      # shards of 64 MB
    42
    """
    for name, value in (("rate", rate), ("request", request), ("bandwidth", bandwidth)):
        checks.positive(name, checks.single(name, value))
    checks.not_negative("latency", checks.single("latency", latency))
    depth = rate / request * tiers.transfer_time(request, bandwidth, latency)
    return math.ceil(checks.not_negative("rate · (latency / request + 1 / bandwidth)", depth))


def stall_fraction(step, load, *, depth: int = 0) -> float:
    """The share of its time that a loop waits for data.

    step: seconds it computes on what one request brings. load: seconds from asking for it until it is there.
    depth: requests under way while it computes. With 0 it asks when it needs, so it waits load / (load + step). With q
    there is one every load / q seconds, and it waits 1 − q · step / load, or not at all.
    Raises ValueError naming the argument.

    >>> [round(stall_fraction(0.03, 0.1, depth=depth), 2) for depth in (0, 1, 2, 4)]
    [0.77, 0.7, 0.4, 0.0]
    """
    checks.positive("step", checks.single("step", step))
    checks.not_negative("load", checks.single("load", load))
    if checks.whole("depth", depth, least=0) == 0:
        return load / (load + step)
    return max(0.0, 1 - depth * step / load) if load else 0.0


def cache_hits(share: float, *, policy: str = "lru") -> float:
    """The share of reads that a cache of part of the set answers, from the second epoch on.

    share: φ, the cached part of the set, 0 to 1. policy:
    "lru"         the least recently used leaves first, and each epoch has a new order: φ + (1 − φ) · ln(1 − φ). A piece
                  read at x of one epoch and y of the next (both uniform) is still there when 1 − x · (1 − y) ≤ φ, the
                  share of the set read in between.
    "same order"  the same cache, the same order every epoch: none, since each piece leaves just before it is needed.
    "pinned"      what is in stays, nothing takes its place: φ (Mohan et al., arXiv:2007.06775, call it MinIO).
    Raises ValueError naming argument, value and what is allowed.

    >>> round(cache_hits(0.5), 3)
    0.153
    """
    checks.fraction("share", checks.single("share", share))
    checks.one_of("policy", policy, POLICIES)
    if share == 1 or policy == "pinned":
        return float(share)
    return 0.0 if policy == "same order" else share + (1 - share) * math.log1p(-share)


def requests(nbytes, *, request) -> int:
    """Requests that reading nbytes takes, `request` bytes each, rounded up. Raises ValueError naming the argument."""
    checks.not_negative("nbytes", checks.single("nbytes", nbytes))
    checks.positive("request", checks.single("request", request))
    return math.ceil(checks.not_negative("nbytes / request", nbytes / request))


def request_price(count, *, price: str = "price.s3-standard.gets") -> float:
    """US dollars for so many requests, at a dated price of the ledger. Raises ValueError for a fact that is none.

    >>> round(request_price(1_000_000), 2)
    0.4
    """
    try:
        fact = evidence.get(price)
    except ValueError as error:
        raise ValueError(f"price: {error}") from None
    if fact.base != "USD/request":
        raise ValueError(f"price is {checks.brief(price)}; it must be a price of requests, not one in {fact.base}")
    return checks.not_negative("count", count) * fact.quantity


# Named corpora

CORPORA = ("dclm-pool", "dclm-baseline", "fineweb", "dolma-cc", "c4", "laion-5b", "datacomp-xlarge", "llama3-405b")


def corpora() -> Table:
    """Named corpora as the ledger has them: tokens or samples, bytes on disk, bytes each, dates and sources."""
    notes, rows = Notes(), []
    for name in CORPORA:
        facts = {id.removeprefix(f"data.{name}."): evidence.get(id) for id in evidence.ids("data")}
        count, disk = facts.get("tokens") or facts["samples"], facts.get("disk")
        note = notes.number(count.source, count.url, after=f" ({count.date})")
        rows.append((count.title, Cell(count.amount, (note,)), disk.amount if disk else "–",
                     units.format_bytes(disk.quantity / count.quantity) if disk else "–", disk.note if disk else ""))
    return Table("Named corpora", ("", "how many", "on disk", "each", "as"), tuple(rows), notes.list())
