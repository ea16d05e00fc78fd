"""The ladder from SRAM to object storage, the links between its rungs, and what moving bytes along it takes.

Which facts describe which tier stands in data/tiers.toml; the numbers themselves are in the ledger (evidence.py).
Bytes, bytes a second, seconds and FLOP/s throughout. `transfer_time`, `small_read_bandwidth`, `intensity`,
`ridge_point`, `attainable_flops` and `price` are smooth: they also take numpy arrays, for sweeps and plots.
"""

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType

from memtier import checks, evidence, units
from memtier.evidence import Fact
from memtier.table import Cell, Notes, Table

RUNGS = ("SRAM", "L2", "HBM", "HBF", "CPU DRAM", "CXL", "NVMe", "parallel file system", "object storage")

# Floating-point operations a parameter and token: a multiplication and an addition forward, twice that backward,
# and a second forward when activations are recomputed (Kaplan et al., arXiv:2001.08361; Korthikanti et al.,
# arXiv:2205.05198).
FLOPS_EACH = {"forward": 2, "training": 6, "training with full recomputation": 8}

# Each figure and the base units it may be in.
FIGURES = {
    "capacity": ("bytes",), "endurance": ("bytes",), "read": ("bytes/s",), "write": ("bytes/s",),
    "read_measured": ("bytes/s",), "rate": ("bytes/s",), "rate_measured": ("bytes/s",), "latency": ("s",),
    "write_latency": ("s",), "flops": ("FLOP/s",), "flops_measured": ("FLOP/s",), "rent_low": ("USD/GPU/h",),
    "rent_high": ("USD/GPU/h",), "price": ("USD/byte", "USD/byte/month"),
}


@dataclass(frozen=True)
class Tier:
    """A place where bytes live. What no source says is None.

    capacity: bytes. read, write: bytes/s. latency: seconds before the first byte of a read; write_latency: of a write.
    endurance: bytes it takes before it wears out. read_measured: bytes/s somebody got.
    shared: its rates are for all clients together. facts: the ledger's Fact behind each figure, and others of interest.
    """

    name: str
    title: str
    rung: str
    capacity: float | None = None
    read: float | None = None
    write: float | None = None
    latency: float | None = None
    write_latency: float | None = None
    endurance: float | None = None
    read_measured: float | None = None
    shared: bool = False
    facts: Mapping[str, Fact] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        checks.one_of("rung", self.rung, RUNGS)
        _sizes(self, "capacity", "read", "write", "latency", "write_latency", "endurance", "read_measured")
        checks.flag("shared", self.shared)

    @property
    def status(self) -> str:
        """Announced if any figure of it is only announced, else shipping: one of evidence.STATUSES."""
        return _status(self.facts)

    @property
    def price(self) -> Fact | None:
        """The dated price of its bytes, if the ledger has one."""
        return self.facts.get("price")

    def read_time(self, nbytes, streams=1, argument: str = "tier"):
        """Seconds to read nbytes once, from `streams` of it side by side; a latency no source gives counts as 0.

        argument: what the caller calls this tier. Raises ValueError where no source gives a read rate.
        """
        return transfer_time(nbytes, self.rate("read", argument), self.latency or 0.0, streams)

    def write_time(self, nbytes, streams=1, argument: str = "tier"):
        """Seconds to write nbytes once, to `streams` of it side by side; a latency no source gives counts as 0.

        argument: what the caller calls this tier. Raises ValueError where no source gives a write rate.
        """
        return transfer_time(nbytes, self.rate("write", argument), self.write_latency or 0.0, streams)

    def rate(self, way: str, argument: str = "tier") -> float:
        """Bytes a second, way "read" or "write". argument: as for read_time. Raises ValueError where no source says."""
        rate = getattr(self, way)
        if rate is None:
            raise ValueError(f"{argument} is {checks.brief(self.name)}; the ledger has no {way} rate for it, so choose "
                             "another tier")
        return rate


@dataclass(frozen=True)
class Link:
    """A way between two tiers. rate: bytes/s in one direction. rate_measured: what somebody got, one direction.

    latency: seconds. What no source says is None. facts: the ledger's Fact behind each figure, and others of interest.
    """

    name: str
    title: str
    rate: float
    latency: float | None = None
    rate_measured: float | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        checks.positive("rate", self.rate)
        _sizes(self, "latency", "rate_measured")

    @property
    def status(self) -> str:
        """Announced if any figure of it is only announced, else shipping: one of evidence.STATUSES."""
        return _status(self.facts)


@dataclass(frozen=True)
class Accelerator:
    """A processor with its memory. flops: dense bf16 FLOP/s by specification; flops_measured: the best matmul found.

    rent_low, rent_high: USD an hour, the lowest and highest seen. host_link, peer_link: names of links to the CPU and
    to other accelerators. What no source says is None. facts: the ledger's Fact behind each figure.
    """

    name: str
    title: str
    memory: Tier
    flops: float
    flops_measured: float | None = None
    rent_low: float | None = None
    rent_high: float | None = None
    host_link: str | None = None
    peer_link: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        if not isinstance(self.memory, Tier):
            raise ValueError(f"memory is {checks.brief(self.memory)}; it must be a Tier")
        checks.positive("flops", self.flops)
        _sizes(self, "flops_measured", "rent_low", "rent_high")

    @property
    def status(self) -> str:
        """Announced if any figure of it or of its memory is only announced, else shipping."""
        return _status({**self.memory.facts, **self.facts})


def get(name: str | Tier, argument: str = "tier", or_rate: bool = False) -> Tier:
    """The tier of this name, such as "h100-hbm"; a Tier is given back. Raises ValueError listing the nearest names.

    argument: what the caller calls it, for the message. or_rate: whether the caller takes a number of bytes/s as well.
    """
    return name if isinstance(name, Tier) else _known(("tier",), name, argument, or_rate)


def link(name: str | Link, argument: str = "link", or_rate: bool = False) -> Link:
    """The link of this name, such as "pcie5-x16"; a Link is given back. Raises ValueError listing the nearest names.

    argument, or_rate: as for `get`.
    """
    return name if isinstance(name, Link) else _known(("link",), name, argument, or_rate)


def accelerator(name: str | Accelerator, argument: str = "accelerator", or_rate: bool = False) -> Accelerator:
    """The accelerator of this name, such as "h100-sxm". Raises ValueError listing the nearest names.

    argument, or_rate: as for `get`.
    """
    return name if isinstance(name, Accelerator) else _known(("accelerator",), name, argument, or_rate)


def find(name, argument: str = "source", or_rate: bool = False) -> Tier | Link | Accelerator:
    """The tier, link or accelerator of this name; such an object is given back. Raises ValueError as `get` does."""
    if isinstance(name, (Tier, Link, Accelerator)):
        return name
    return _known(("tier", "link", "accelerator"), name, argument, or_rate)


def names(rung: str | None = None) -> tuple[str, ...]:
    """Names of all tiers, or of those on one of RUNGS, fastest rung first. Raises ValueError for another rung."""
    if rung is not None:
        checks.one_of("rung", rung, RUNGS)
    return tuple(tier.name for tier in _data()["tier"].values() if rung in (None, tier.rung))


def links() -> tuple[str, ...]:
    """Names of all links."""
    return tuple(_data()["link"])


def accelerators() -> tuple[str, ...]:
    """Names of all accelerators."""
    return tuple(_data()["accelerator"])


def ladder() -> tuple[Tier, ...]:
    """One example of each rung, in order: the ladder that chapter 0 draws."""
    return _data()["ladder"]


def transfer_time(nbytes, bandwidth, latency=0.0, streams=1):
    """Seconds to move nbytes: latency + bytes / bandwidth, with `streams` connections, drives or links side by side.

    nbytes: bytes. bandwidth: bytes/s of one stream. latency: seconds, paid once. Smooth: takes arrays.
    Raises ValueError for a size or latency below 0, and for a bandwidth or streams not above 0.

    >>> round(transfer_time(140e9, 3.35e12), 3)    # 70 billion weights of 2 bytes, once, from an H100's HBM
    0.042
    """
    checks.not_negative("nbytes", nbytes)
    checks.positive("bandwidth", bandwidth)
    checks.not_negative("latency", latency)
    checks.positive("streams", streams)
    return latency + nbytes / (bandwidth * streams)


def small_read_bandwidth(request, latency, bandwidth, in_flight=1):
    """Bytes a second that reads of `request` bytes reach, when `in_flight` of them are always under way.

    One read takes latency + request / bandwidth; `in_flight` of them overlap, up to the device's bandwidth:
    min(bandwidth, in_flight · request / (latency + request / bandwidth)). The latency is taken as fixed; that of a real
    device grows as it fills, so this is the best case. Smooth: takes arrays. Raises ValueError for bad arguments.

    >>> round(small_read_bandwidth(4096, latency=60e-6, bandwidth=14e9) / 1e6, 1)
    67.9
    """
    checks.positive("request", request)
    checks.not_negative("latency", latency)
    checks.positive("bandwidth", bandwidth)
    checks.positive("in_flight", in_flight)
    each = checks.positive("latency + request / bandwidth", latency + request / bandwidth)
    return _least(bandwidth, in_flight * request / each)


def in_flight_needed(request, latency, bandwidth, share=0.999) -> int:
    """How many reads of `request` bytes must be under way at once to reach `share` of the bandwidth.

    bandwidth · (latency + request / bandwidth) / request, times the share, rounded up: the bytes under way, by Little's
    law (Little 1961), over the bytes of a read. Little's law on the latency alone, without the time of the transfer
    itself, says one read less. share: 0.999 unless said otherwise, since the last thousandth costs a whole read.
    Raises ValueError for bad arguments.

    >>> in_flight_needed(4096, latency=60e-6, bandwidth=14e9)
    206
    """
    checks.positive("request", checks.single("request", request))
    checks.not_negative("latency", checks.single("latency", latency))
    checks.positive("bandwidth", checks.single("bandwidth", bandwidth))
    checks.positive("share", checks.fraction("share", checks.single("share", share)))
    needed = share * bandwidth * (latency + request / bandwidth) / request
    return math.ceil(checks.not_negative("share · bandwidth · (latency + request / bandwidth) / request", needed))


def streams_needed(rate, each) -> int:
    """How many streams of `each` bytes/s together reach `rate` bytes/s. Raises ValueError unless both are above 0.

    >>> streams_needed(63e9, each=87.5e6)    # connections to S3 that carry as much as PCIe 5 x16
    720
    """
    checks.positive("rate", checks.single("rate", rate))
    checks.positive("each", checks.single("each", each))
    return math.ceil(checks.not_negative("rate / each", rate / each))


def flops(parameters, tokens, what: str = "forward"):
    """Floating-point operations for this many tokens: 2 a parameter forward, 6 training, 8 with full recomputation.

    parameters: a count or a Model. It counts the matrices a token passes; attention over long sequences and the
    embedding look-up are left out (Kaplan et al., arXiv:2001.08361). Raises ValueError for bad arguments.

    >>> flops(70e9, tokens=1, what="training")
    420000000000.0
    """
    checks.one_of("what", what, FLOPS_EACH)
    parameters = getattr(parameters, "parameters", parameters)
    return FLOPS_EACH[what] * checks.positive("parameters", parameters) * checks.not_negative("tokens", tokens)


def intensity(flops, nbytes):
    """FLOPs for each byte moved. flops: operations; nbytes: bytes. Smooth: takes arrays. ValueError if nbytes is 0."""
    return checks.not_negative("flops", flops) / checks.positive("nbytes", nbytes)


def ridge_point(flops, bandwidth):
    """FLOPs a byte at which computing and moving take equally long: below it the memory sets the pace.

    flops: FLOP/s. bandwidth: bytes/s (Williams et al., Roofline, 2009). Smooth: takes arrays.

    >>> round(ridge_point(989e12, 3.35e12))
    295
    """
    return checks.positive("flops", flops) / checks.positive("bandwidth", bandwidth)


def attainable_flops(intensity, flops, bandwidth):
    """FLOP/s that work of this intensity can reach: min(flops, intensity · bandwidth), the roofline.

    intensity: FLOPs a byte. flops: FLOP/s. bandwidth: bytes/s. Smooth: takes arrays. ValueError for bad arguments.
    """
    checks.not_negative("intensity", intensity)
    return _least(checks.positive("flops", flops), intensity * checks.positive("bandwidth", bandwidth))


def price(nbytes, tier, months=1.0, lifetime=36.0):
    """US dollars to keep nbytes for some months, at the dated price in the ledger.

    tier: a Tier, its name, or a price Fact. Rented storage costs its rate a byte and month. What is bought (HBM, DRAM,
    drives) is written off evenly over `lifetime` months, 36 unless said otherwise; power and the machine around it are
    not in it. Smooth: takes arrays of nbytes and months. Raises ValueError where the ledger has no price.
    """
    checks.not_negative("nbytes", nbytes)
    checks.not_negative("months", months)
    checks.positive("lifetime", lifetime)
    fact = tier if isinstance(tier, Fact) else get(tier).price
    if fact is None:
        raise ValueError(f"tier is {checks.brief(get(tier).name)}; the ledger has no price for it, so choose another")
    if fact.base not in FIGURES["price"]:
        raise ValueError(f"tier is {checks.brief(fact.id)}; it must be a price in {' or '.join(FIGURES['price'])}")
    share = months if fact.base == "USD/byte/month" else months / lifetime
    return nbytes * fact.quantity * share


def table(which: Iterable[str | Tier] | None = None, nbytes: float | None = None, caption: str = "",
          brief: bool = False) -> Table:
    """Tiers as a table for readers: capacity, rates, latency, kinds and dates, with sources as footnotes.

    which: names or Tiers; the ladder if left out. nbytes: adds the time to read so many bytes once.
    brief: without the columns rung, kind and date, for a narrow page; the footnotes say kind and date of each figure.
    """
    tiers = ladder() if which is None else tuple(map(get, checks.items("which", which, "names or Tiers")))
    notes = Notes()
    columns = {"capacity": units.format_bytes, "read": units.format_rate, "write": units.format_rate,
               "latency": units.format_time}
    header = ["rung", "tier", *columns, "kind", "date"]
    rows = [[tier.rung, _announced(tier), *(_figure(tier, what, say, notes) for what, say in columns.items()),
             *_standing(tier.facts, columns)] for tier in tiers]
    if nbytes is not None:
        checks.not_negative("nbytes", checks.single("nbytes", nbytes))
        header.insert(-2, f"to read {units.format_bytes(nbytes)} once")
        for row, tier in zip(rows, tiers, strict=True):
            row.insert(-2, units.format_time(tier.read_time(nbytes)) if tier.read else "–")
    if brief:
        header = header[1:-2]
        rows = [row[1:-2] for row in rows]
    return Table(caption or "The ladder, one example a rung", tuple(header), tuple(map(tuple, rows)), notes.list())


def overview(caption: str = "One example of each rung") -> Table:
    """One example of each rung for a first look: a dash where no source says, a mark on what was not measured.

    Marked by a footnote is what a maker claims, what was computed from other figures and what is illustrative; the
    others are from datasheets or measured. The date is that of the oldest figure in the row.
    """
    notes = Notes()
    columns = {"capacity": units.format_bytes, "read": units.format_rate, "latency": units.format_time}
    rows = []
    for tier in ladder():
        said = {what: tier.facts[what] for what in columns if what in tier.facts}
        cells = [Cell(columns[what](getattr(tier, what)), tuple(notes.number(words) for words in _doubts(said[what])))
                 if what in said else "–" for what in columns]
        oldest = min(date for fact in said.values() for date in fact.date.split("/"))
        rows.append((f"{tier.rung}: {_announced(tier)}", *cells, oldest))
    return Table(caption, ("rung: example", "capacity", "read", "first byte", "as of"), tuple(rows), notes.list())


def links_table(which: Iterable[str | Link] | None = None, caption: str = "") -> Table:
    """Links as a table for readers: rates in one direction, specified and measured.

    which: names or Links; all if left out.
    """
    found = links() if which is None else checks.items("which", which, "names or Links")
    notes = Notes()
    columns = {"rate": units.format_rate, "rate_measured": units.format_rate}
    rows = tuple((_announced(each), *(_figure(each, what, say, notes) for what, say in columns.items()),
                  *_standing(each.facts, columns)) for each in map(link, found))
    return Table(caption or "Links, one direction", ("link", "rate", "measured", "kind", "date"), rows, notes.list())


def accelerators_table(which: Iterable[str | Accelerator] | None = None, caption: str = "",
                       brief: bool = False) -> Table:
    """Accelerators as a table for readers: memory, compute as specified and as measured, and FLOPs a byte.

    which: names or Accelerators; all if left out. brief: without kind and date, which the footnotes say.
    """
    found = accelerators() if which is None else checks.items("which", which, "names or Accelerators")
    notes = Notes()
    rows = []
    for each in map(accelerator, found):
        ridge = f"{ridge_point(each.flops, each.memory.read):,.0f}" if each.memory.read else "–"
        shown = {"memory": each.memory.facts.get("capacity"), "bandwidth": each.memory.facts.get("read"), **each.facts}
        rows.append((_announced(each), _figure(each.memory, "capacity", units.format_bytes, notes),
                     _figure(each.memory, "read", units.format_rate, notes), _figure(each, "flops", _teraflops, notes),
                     _figure(each, "flops_measured", _teraflops, notes), ridge,
                     *_standing(shown, ("memory", "bandwidth", "flops", "flops_measured"))))
    header = ("accelerator", "memory", "bandwidth", "dense bf16", "best measured", "FLOPs a byte", "kind", "date")
    if brief:
        header, rows = header[:-2], [row[:-2] for row in rows]
    return Table(caption or "Accelerators", header, tuple(rows), notes.list())


def price_table(nbytes: float = units.TB, months: float = 1.0, lifetime: float = 36.0, caption: str = "",
                brief: bool = False) -> Table:
    """What it costs to keep nbytes for some months at each tier's price (see `price`), as a table for readers.

    Prices that several tiers share stand once. They are of different dates, and one may be bought and another rented.
    brief: the cost comes second, and how it is paid and its kind stand in the footnotes, for a narrow page.
    """
    checks.flag("brief", brief)
    for name, value in (("nbytes", nbytes), ("months", months), ("lifetime", lifetime)):
        checks.single(name, value)
    notes = Notes()
    rows = {}
    for tier in map(get, names()):
        if tier.price and tier.price.id not in rows:
            fact = tier.price
            paid = "each month" if fact.base == "USD/byte/month" else f"once, for {lifetime:g} months"
            note = notes.number(fact.source, fact.url, f"{fact.kind}, paid {paid}: " if brief else "",
                                f" ({fact.note})" if fact.note else "")
            cost, amount = f"${price(nbytes, fact, months, lifetime):,.2f}", Cell(fact.amount, (note,))
            rows[fact.id] = ((f"{tier.rung}: {fact.title}", cost, amount, fact.date) if brief else
                             (tier.rung, fact.title, cost, fact.date, amount, paid, fact.kind))
    span = "a month" if months == 1 else f"{months:g} months"
    header = (("what", "cost", "price", "date") if brief else
              ("rung", "what", "cost", "date", "price", "paid", "kind"))
    return Table(caption or f"Keeping {units.format_bytes(nbytes)} for {span}", header, tuple(rows.values()),
                 notes.list())


def read(text: str) -> dict:
    """Tiers, links, accelerators and the ladder of a file written as data/tiers.toml is, checked against the ledger.

    Raises ValueError naming the entry and the field for anything unknown, missing or in the wrong unit.
    """
    data = tomllib.loads(text)
    found: dict = {"tier": {}, "link": {}, "accelerator": {}}
    for sort, build in (("tier", Tier), ("link", Link), ("accelerator", Accelerator)):
        for name, entry in data.pop(sort, {}).items():
            found[sort][name] = _built(build, sort, name, dict(entry), found)
    found["tier"] = dict(sorted(found["tier"].items(), key=lambda pair: RUNGS.index(pair[1].rung)))
    ladder = data.pop("ladder", [])
    for name in ladder:
        _is_one_of("ladder", "it", name, found["tier"])
    if [found["tier"][name].rung for name in ladder] != list(RUNGS):
        raise ValueError(f"tiers, ladder: it is {ladder}; it must have one tier for each of {', '.join(RUNGS)}")
    if data:
        raise ValueError(f"tiers: there is {checks.brief(next(iter(data)))}; it must be one of ladder, tier, "
                         "link, accelerator")
    return found | {"ladder": tuple(found["tier"][name] for name in ladder)}


def _built(build, sort: str, name: str, entry: dict, found: dict):
    """One Tier, Link or Accelerator from its entry: names of facts become figures, names of links are checked."""
    where = f"{sort} {checks.brief(name)}"
    needed = {"tier": ("title", "rung"), "link": ("title", "rate"), "accelerator": ("title", "memory", "flops")}[sort]
    for what in needed:
        if what not in entry:
            raise ValueError(f"tiers, {where}: {what} is missing; it must be given")
    facts = {what: _fact(where, what, entry.pop(what), allowed) for what, allowed in FIGURES.items() if what in entry}
    values = {what: fact.quantity for what, fact in facts.items() if what != "price"}
    facts |= {what: _fact(where, what, id, None) for what, id in entry.pop("also", {}).items()}
    for what in ("host_link", "peer_link"):
        if what in entry:
            _is_one_of(where, what, entry[what], found["link"])
    if sort == "accelerator":
        _is_one_of(where, "memory", entry["memory"], found["tier"])
        entry["memory"] = found["tier"][entry["memory"]]
    if sort == "tier":
        _is_one_of(where, "rung", entry["rung"], RUNGS)
    allowed = {each for each in build.__dataclass_fields__ if each not in ("name", "facts")}
    for what in [*entry, *values, *(["price"] if "price" in facts and sort != "tier" else [])]:
        _is_one_of(where, "a field", what, allowed)
    return build(name=name, **entry, **values, facts=MappingProxyType(facts))


def _fact(where: str, what: str, id: str, allowed: tuple[str, ...] | None) -> Fact:
    try:
        fact = evidence.get(id)
    except ValueError as error:
        raise ValueError(f"tiers, {where}: {what} {str(error).removeprefix('id ')}") from None
    if allowed is not None and fact.base not in allowed:
        raise ValueError(f"tiers, {where}: {what} is {checks.brief(id)}, in {fact.base}; it must be in "
                         f"{' or '.join(allowed)}")
    return fact


def _is_one_of(where: str, what: str, value, allowed) -> None:
    if value not in allowed:
        raise ValueError(f"tiers, {where}: {what} is {checks.brief(value)}; it must be one of "
                         f"{', '.join(sorted(allowed))}")


@cache
def _data() -> dict:
    return read(resources.files("memtier").joinpath("data", "tiers.toml").read_text(encoding="utf-8"))


def _known(sorts: tuple[str, ...], name, argument: str, or_rate: bool):
    """The entry of this name in the first of these sorts that has it."""
    known = {each: entry for sort in reversed(sorts) for each, entry in _data()[sort].items()}
    if not isinstance(name, str) or name not in known:
        near = difflib.get_close_matches(checks.brief(name, str), known, n=3, cutoff=0.4)
        hint = f"one of {', '.join(known)}" if len(known) <= 30 else "tiers.names() lists them"
        hint = f"the nearest are {', '.join(near)}" if near else hint
        rate = "bytes a second as a number, or " if or_rate else ""
        sort = " or ".join(filter(None, (", ".join(sorts[:-1]), sorts[-1])))
        raise ValueError(f"{argument} is {checks.brief(name)}; it must be {rate}the name of a known {sort}: {hint}")
    return known[name]


def _sizes(each, *names: str) -> None:
    """Check that these figures are numbers above 0 where they are known; a latency may be 0."""
    for name in names:
        value = getattr(each, name)
        if value is not None:
            (checks.not_negative if name.endswith("latency") else checks.positive)(name, value)


def _status(facts: Mapping[str, Fact]) -> str:
    figures = [fact for what, fact in facts.items() if what in FIGURES]
    return "announced" if any(fact.status == "announced" for fact in figures) else "shipping"


def _least(a, b):
    """The smaller of two numbers; element by element where one is an array."""
    below = a < b
    return a * below + b * (1 - below)


def _announced(each) -> str:
    return each.title if each.status == "shipping" else f"{each.title} (announced)"


def _figure(each, what: str, say, notes: Notes) -> str | Cell:
    """A figure in words with its footnote: kind, date and source."""
    value = getattr(each, what)
    if value is None:
        return "–"
    fact = each.facts[what]
    # Of what someone estimated or computed, a reader should see how.
    how = f" ({fact.note})" if fact.note and fact.kind in ("derived", "survey") else ""
    return Cell(say(value), (notes.number(fact.source, fact.url, f"{fact.standing}, {fact.date}: ", how),))


def _doubts(fact: Fact) -> list[str]:
    """What a reader should hold against a figure at first sight; nothing against a datasheet or a measurement."""
    against = {"vendor claim": "the maker's claim, not yet in a datasheet", "derived": "computed from other figures",
               "survey": "collected or estimated by a third party"}
    round_figure = ["illustrative: a round figure for teaching" if fact.kind == "survey" else
                    "it rests on an illustrative figure"] if "illustrative" in fact.note else []
    return [*([against[fact.kind]] if fact.kind in against and not (round_figure and fact.kind == "survey") else []),
            *round_figure]


def _standing(facts: Mapping[str, Fact | None], shown: Iterable[str]) -> tuple[str, str]:
    """Kinds and dates of the figures shown: ("specification, measured", "2024-07 to 2026-08-22")."""
    present = [facts[what] for what in shown if facts.get(what) is not None]
    dates = sorted({date for fact in present for date in fact.date.split("/")})
    return (", ".join(dict.fromkeys(fact.kind for fact in present)) or "–",
            " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "–")


def _teraflops(rate: float) -> str:
    return f"{rate / 1e12:,.1f}".removesuffix(".0") + " TFLOP/s"
