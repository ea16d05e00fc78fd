"""The ledger: every number of the course that comes from outside, with its value, unit, date, source and kind.

The numbers themselves stand in data/ledger.toml, the only place where one is typed. Where two sources disagree both
are kept and each names the other. What is announced, claimed by a maker and measured is never mixed up.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib import resources

from memtier import checks, units
from memtier.table import Cell, Notes, Table

KINDS = ("specification", "vendor claim", "measured", "derived", "survey")
STATUSES = ("shipping", "announced")

# The first part of a fact's name, fastest tier first, and what it stands for.
GROUPS = {
    "sram": "SRAM inside the processor cores",
    "l2": "L2 and other last-level caches",
    "hbm": "HBM",
    "hbf": "HBF, high-bandwidth flash",
    "dram": "CPU DRAM",
    "cxl": "CXL memory",
    "nvme": "NVMe and other local flash",
    "pfs": "Parallel file systems",
    "object": "Object storage",
    "link": "Links",
    "node": "Nodes and racks",
    "compute": "Compute, dense bf16",
    "data": "Training data: corpora, samples, what runs read",
    "run": "Runs and what interrupted them",
    "price": "Prices",
    "energy": "Energy",
    "software": "What software keeps for itself",
}

# Unit → (how many of the base unit it is, the base unit). GB is 10**9 bytes, GiB is 2**30, a small b is a bit.
UNITS: dict[str, tuple[float, str]] = {
    **{unit: (size, "bytes") for unit, size in (units.DECIMAL | units.BINARY).items()},
    **{f"{unit}/s": (size, "bytes/s") for unit, size in (units.DECIMAL | units.BINARY).items()},
    "TiB/min": (units.TiB / 60, "bytes/s"),
    "Gb/s": (units.GB / 8, "bytes/s"),
    "MB/s/TiB": (units.MB / units.TiB, "bytes/s/byte"),
    **{unit: (units.SECONDS[unit], "s") for unit in ("ns", "us", "ms", "s")},
    "TFLOP/s": (10**12, "FLOP/s"),
    "IOPS": (1, "requests/s"),
    "requests/s": (1, "requests/s"),
    "DWPD": (1, "drive writes/day"),
    **{unit: (1, unit) for unit in ("SMs", "GPUs", "CPUs", "nodes", "servers", "drives", "samples", "samples/s",
                                   "failures")},
    "days": (86400, "s"),
    **{f"{words} {what}": (size, what) for words, size in (("billion", 10**9), ("trillion", 10**12))
       for what in ("tokens", "samples")},
    "x": (1, "times"),
    "%": (0.01, "times"),
    "$": (1, "USD"),
    "$/GB": (1e-9, "USD/byte"),
    "$/Gb": (8e-9, "USD/byte"),
    "$/GB-month": (1e-9, "USD/byte/month"),
    "$/GPU-hour": (1, "USD/GPU/h"),
    "$/1000 requests": (1e-3, "USD/request"),
    "pJ": (1e-12, "J"),
    "pJ/B": (1e-12, "J/byte"),
    "pJ/bit": (8e-12, "J/byte"),
}

_CAPITALS = {word.lower(): word for word in (
    "SM", "SMs", "GPU", "GPUs", "CPUs", "HBM", "DRAM", "NVMe", "NAND", "NIC", "KV", "L1", "L2", "IOPS", "SRAM",
    "Q1", "Q2", "Q3", "Q4")}
_PART = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DATE = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
_FIELDS = {"value", "unit", "date", "source", "kind", "status", "note", "conflicts", "derived_from", "title"}


@dataclass(frozen=True)
class Fact:
    """One number from outside.

    id: group.item.metric, such as "hbm.h100-sxm.bandwidth". title: the item in words.
    value and unit: as the source gives them; `quantity` is the same in base units (bytes, bytes/s, s, FLOP/s, …).
    date: when the source says so. source and url: who says so. kind: one of KINDS. status: one of STATUSES.
    conflicts: ids of facts that say something else about the same thing. derived_from: ids a derived fact rests on.
    """

    id: str
    title: str
    value: float
    unit: str
    date: str
    source: str
    kind: str
    status: str
    note: str = ""
    conflicts: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    url: str = ""

    @property
    def group(self) -> str:
        """The first part of the id: one of GROUPS."""
        return self.id.partition(".")[0]

    @property
    def metric(self) -> str:
        """The last part of the id in words: "read latency", "write IOPS"."""
        return " ".join(_CAPITALS.get(word, word) for word in self.id.rpartition(".")[2].split("-"))

    @property
    def base(self) -> str:
        """The base unit `quantity` is in: "bytes", "bytes/s", "s", "FLOP/s", "USD/byte" and so on."""
        return UNITS[self.unit][1]

    @property
    def quantity(self) -> float:
        """The value in base units; an int where that is exact."""
        # In decimal, so that 60 us is 6e-05 s and not 5.9999999999999995e-05.
        exact = Decimal(str(self.value)) * Decimal(str(UNITS[self.unit][0]))
        return int(exact) if exact == exact.to_integral_value() else float(exact)

    @property
    def amount(self) -> str:
        """Value and unit as the source gives them: "3.35 TB/s", "$0.023/GB-month"."""
        number = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:,.6f}".rstrip("0").rstrip(".")
        if self.unit.startswith("$"):
            dollars, point, cents = number.partition(".")
            return f"${dollars}{point}{cents.ljust(2, '0') if point else ''}{self.unit[1:]}"
        if self.unit in ("x", "%"):
            return number + {"x": "×", "%": " %"}[self.unit]
        return f"{number} {'µs' if self.unit == 'us' else self.unit}"

    @property
    def standing(self) -> str:
        """Kind, and "announced" where that is so: "specification", "vendor claim, announced"."""
        return self.kind if self.status == "shipping" else f"{self.kind}, announced"

    def cite(self) -> str:
        """The figure with what it rests on: "3.35 TB/s (specification, 2026-08-22, stas00/ml-engineering …)"."""
        return f"{self.amount} ({self.standing}, {self.date}, {self.source})"

    def __str__(self) -> str:
        return f"{self.title}, {self.metric}: {self.cite()}"


def get(id: str) -> Fact:
    """The fact of this name, such as "hbm.h100-sxm.bandwidth". Raises ValueError with the nearest names otherwise."""
    facts = _ledger()
    if not isinstance(id, str) or id not in facts:
        near = difflib.get_close_matches(checks.brief(id, str), facts, n=3, cutoff=0.4)
        hint = f"the nearest are {', '.join(near)}" if near else "evidence.ids() lists them"
        raise ValueError(f"id is {checks.brief(id)}; it must be the name of a fact in the ledger: {hint}")
    return facts[id]


def ids(group: str | None = None) -> tuple[str, ...]:
    """Names of all facts, or of one group (see GROUPS), in the ledger's order. Raises ValueError for another group."""
    if group is None:
        return tuple(_ledger())
    checks.one_of("group", group, GROUPS)
    return tuple(id for id in _ledger() if id.startswith(f"{group}."))


def find(text: str) -> tuple[Fact, ...]:
    """Facts whose name, title, source or note holds every word of the text; capitals do not matter.

    Raises ValueError for what is no text.
    """
    if not isinstance(text, str):
        raise ValueError(f"text is {checks.brief(text)}; it must be a text of words to look for")
    words = text.lower().split()
    return tuple(fact for fact in _ledger().values()
                 if not [word for word in words if word not in
                         f"{fact.id} {fact.title} {fact.source} {fact.note}".lower()])


def conflicts() -> tuple[tuple[Fact, ...], ...]:
    """Groups of facts that disagree about the same thing, each group in the ledger's order."""
    facts = _ledger()
    seen: set[str] = set()
    groups = []
    for id in facts:
        if id in seen or not facts[id].conflicts:
            continue
        together, waiting = {id}, [id]
        while waiting:
            for other in facts[waiting.pop()].conflicts:
                if other not in together:
                    together.add(other)
                    waiting.append(other)
        seen |= together
        groups.append(tuple(fact for fact in facts.values() if fact.id in together))
    return tuple(groups)


def table(which: str | Iterable[str | Fact] | None = None, caption: str = "", brief: bool = False) -> Table:
    """Facts as a table for readers, with kind, status, date, what disagrees, and sources as footnotes.

    which: a group of GROUPS ("hbm"), the names of facts or the facts themselves, or nothing for the whole ledger.
    brief: only value and note, for a narrow page; the footnotes say kind and date of each figure.
    Raises ValueError for a group or a name that is not in the ledger.
    """
    checks.flag("brief", brief)
    facts = _chosen(which)
    notes = Notes()
    rows = []
    for fact in facts:
        number = notes.number(fact.source, fact.url, f"{fact.standing}, {fact.date}: " if brief else "")
        standing = () if brief else (fact.kind, fact.status, fact.date)
        rows.append((f"{fact.title}: {fact.metric}", Cell(fact.amount, (number,)), *standing, _remark(fact)))
    usual = "The ledger" if which is None else GROUPS[which] if isinstance(which, str) else "From the ledger"
    header = ("", "value", "note") if brief else ("", "value", "kind", "status", "date", "note")
    return Table(caption or usual, header, tuple(rows), notes.list())


def conflicts_table(which: Iterable[str] | None = None, caption: str = "Where sources disagree") -> Table:
    """Groups of conflicting facts, side by side, as a table for readers.

    which: names of facts whose groups to show; every group if left out. Raises ValueError for a name that is not in the
    ledger, or that nothing disagrees with.
    """
    groups = conflicts()
    if which is not None:
        wanted = {get(id).id for id in checks.items("which", which, "names of facts")}
        groups = tuple(group for group in groups if wanted & {fact.id for fact in group})
        if alone := sorted(wanted - {fact.id for group in groups for fact in group}):
            raise ValueError(f"which has {checks.brief(alone[0])}; nothing in the ledger disagrees with it")
    notes = Notes()
    rows = []
    for group in groups:
        for fact in group:
            what = f"{group[0].title}: {group[0].metric}" if fact is group[0] else "↳ or"
            rows.append((what, Cell(fact.amount, (notes.number(fact.source, fact.url),)), fact.standing, fact.date,
                         fact.note if fact is group[0] or fact.title == group[0].title else
                         "; ".join(filter(None, (fact.title, fact.note)))))
    return Table(caption, ("", "value", "kind", "date", "note"), tuple(rows), notes.list())


def read(text: str) -> dict[str, Fact]:
    """The facts of a ledger written as data/ledger.toml is, by name, checked.

    Raises ValueError naming the fact and the field for anything missing, malformed or pointing nowhere.
    """
    data = tomllib.loads(text)
    sources = data.pop("source", {})
    for name, source in sources.items():
        if not isinstance(source, Mapping) or not source.get("text") or not set(source) <= {"text", "url"}:
            raise ValueError(f"ledger, source {checks.brief(name)}: it must have a text, may have a url, and "
                             "nothing else")
    facts = {}
    for group, items in data.items():
        if group not in GROUPS:
            raise ValueError(f"ledger: there is a group {checks.brief(group)}; it must be one of {', '.join(GROUPS)}")
        for item, entries in items.items():
            # What stands in the item itself holds for all of its facts.
            shared = {field: value for field, value in entries.items() if not isinstance(value, Mapping)}
            for metric, entry in entries.items():
                if isinstance(entry, Mapping):
                    facts[f"{group}.{item}.{metric}"] = _fact(f"{group}.{item}.{metric}", shared | entry, sources)
    return _linked(facts)


def _fact(id: str, entry: Mapping, sources: Mapping) -> Fact:
    def must(field, good, allowed):
        if not good(entry.get(field)):
            raise ValueError(f"ledger, {id}: {field} is {checks.brief(entry.get(field))}; it must be {allowed}")

    def text(value):
        return isinstance(value, str) and value.strip() != ""

    for part in id.split("."):
        if not _PART.fullmatch(part):
            raise ValueError(f"ledger, {id}: the name has {checks.brief(part)}; it must be small letters, "
                             "digits and dashes")
    unknown = sorted(set(entry) - _FIELDS)
    if unknown:
        raise ValueError(f"ledger, {id}: there is a field {checks.brief(unknown[0])}; "
                         f"it must be one of {', '.join(sorted(_FIELDS))}")
    must("title", text, "a text")
    must("value", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
         and math.isfinite(value) and value > 0, "a number above 0")
    must("unit", lambda value: text(value) and value in UNITS, f"one of {', '.join(UNITS)}")
    must("date", _is_date, "a date such as 2026, 2026-08, 2026-08-22 or 2024/2026")
    must("source", lambda value: text(value) and value in sources, "one of the sources at the ledger's head")
    must("kind", lambda value: text(value) and value in KINDS, f"one of {', '.join(KINDS)}")
    must("status", lambda value: text(value) and value in STATUSES, f"one of {', '.join(STATUSES)}")
    must("note", lambda value: value is None or text(value), "a text, or left out")
    for field in ("conflicts", "derived_from"):
        must(field, lambda value: value is None or (isinstance(value, list) and not [x for x in value if not text(x)]),
             "a list of names of facts, or left out")
    if entry["kind"] == "derived":
        must("note", text, "the arithmetic of a derived fact")
    elif "derived_from" in entry:
        raise ValueError(f"ledger, {id}: derived_from is given; it must be left out unless kind is 'derived'")
    if entry["status"] == "announced":
        must("kind", lambda value: value != "measured", "something else: what is only announced cannot be measured")
    source = sources[entry["source"]]
    return Fact(id=id, title=entry["title"], value=entry["value"], unit=entry["unit"], date=entry["date"],
                source=source["text"], url=source.get("url", ""), kind=entry["kind"], status=entry["status"],
                note=entry.get("note", ""), conflicts=tuple(entry.get("conflicts", ())),
                derived_from=tuple(entry.get("derived_from", ())))


def _is_date(value) -> bool:
    """YYYY, YYYY-MM or YYYY-MM-DD, or two of them in order with a slash between."""
    dates = value.split("/") if isinstance(value, str) else []
    return 1 <= len(dates) <= 2 and dates == sorted(dates) and not [x for x in dates if not _DATE.fullmatch(x)]


def _linked(facts: dict[str, Fact]) -> dict[str, Fact]:
    """Check that facts point at facts, and let both ends of a conflict know of it."""
    against: dict[str, dict[str, None]] = {id: {} for id in facts}
    for fact in facts.values():
        for field in ("conflicts", "derived_from"):
            for other in getattr(fact, field):
                if other not in facts or other == fact.id:
                    raise ValueError(f"ledger, {fact.id}: {field} is {checks.brief(other)}; it must be the name "
                                     "of another fact")
        for other in fact.conflicts:
            if facts[other].base != fact.base:
                raise ValueError(f"ledger, {fact.id}: conflicts is {checks.brief(other)}; it must be a fact in "
                                 f"{fact.base}, not in {facts[other].base}")
            against[fact.id][other] = None
            against[other][fact.id] = None
    return {id: replace(fact, conflicts=tuple(against[id])) for id, fact in facts.items()}


@cache
def _ledger() -> dict[str, Fact]:
    return read(resources.files("memtier").joinpath("data", "ledger.toml").read_text(encoding="utf-8"))


def _chosen(which) -> tuple[Fact, ...]:
    if which is None or isinstance(which, str):
        return tuple(get(id) for id in ids(which))
    return tuple(each if isinstance(each, Fact) else get(each)
                 for each in checks.items("which", which, "facts or their names"))


def _remark(fact: Fact) -> str:
    """The note, and what other facts say instead."""
    against = "; ".join(f"{other.amount} ({other.title}, {other.metric}, {other.standing})"
                        for other in map(get, fact.conflicts))
    return ". ".join(filter(None, (fact.note, f"Disagrees with {against}" if against else "")))


def all() -> tuple[Fact, ...]:
    """Every fact, in the ledger's order."""
    return tuple(_ledger().values())
