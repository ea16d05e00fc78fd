"""The reader's own ladder: what `python -m memtier.lab.tiers` measured on one machine, as a file.

Reading it needs the standard library only, so that an explorer in the page can show it beside the datasheets.
"""

import json
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path

from memtier import checks, units

VERSION = 1
RUNGS = ("HBM", "PCIe", "CPU cache", "CPU DRAM", "NVMe")  # what a machine can find out about itself, fastest first
WHATS = ("copy", "to device", "from device", "sequential read", "sequential write", "small read")
LONGEST_TEXT, MOST_ROWS = 300, 1000  # characters of a note, entries; a file from elsewhere shall not flood a page


@dataclass(frozen=True)
class Measured:
    """One figure. bandwidth: bytes a second; latency: seconds of one request; at least one of the two is known.

    size: bytes gone through in all. request: bytes asked for at a time. in_flight: requests at work at the same time.
    """

    rung: str
    what: str
    bandwidth: float | None = None
    latency: float | None = None
    size: int | None = None
    request: int | None = None
    in_flight: int = 1
    note: str = ""

    def __post_init__(self):
        checks.one_of("rung", self.rung, RUNGS)
        checks.one_of("what", self.what, WHATS)
        for name in ("bandwidth", "latency"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        if self.bandwidth is None and self.latency is None:
            raise ValueError("bandwidth is None and latency is None; at least one of them must be a number above 0")
        for name in ("size", "request"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name))
        checks.whole("in_flight", self.in_flight)
        _text("note", self.note)


@dataclass(frozen=True)
class NotMeasured:
    """A rung that could not be measured on this machine, and why."""

    rung: str
    what: str
    why: str

    def __post_init__(self):
        checks.one_of("rung", self.rung, RUNGS)
        checks.one_of("what", self.what, WHATS)
        _text("why", self.why)


@dataclass(frozen=True)
class OwnLadder:
    """What one machine measured of itself. date: year-month-day. platform: a summary without the machine's name."""

    date: str
    measured: tuple[Measured, ...]
    not_measured: tuple[NotMeasured, ...] = ()
    platform: dict = field(default_factory=dict)

    def best(self, rung: str, what: str | None = None, in_flight: int | None = None) -> Measured | None:
        """The figure of that rung with the highest bandwidth, or None where there is none.

        what, in_flight: look only among figures of that kind, or with that many requests in flight; None for all.
        """
        checks.one_of("rung", rung, RUNGS)
        if what is not None:
            checks.one_of("what", what, WHATS)
        fitting = [each for each in self.measured
                   if each.rung == rung and what in (None, each.what) and in_flight in (None, each.in_flight)]
        return max(fitting, key=lambda each: each.bandwidth or 0.0, default=None)

    def to_dict(self) -> dict:
        """Ready for JSON; `read` is the inverse."""
        return {"memtier": "own-ladder", "version": VERSION, "date": self.date, "platform": dict(self.platform),
                "measured": [asdict(each) for each in self.measured],
                "not_measured": [asdict(each) for each in self.not_measured]}

    def save(self, path: str | Path) -> Path:
        """Write the ladder as JSON. Raises OSError where the path cannot be written."""
        path = Path(path)
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        return path

    def summary(self) -> str:
        """What was measured, without a figure: the same text each time on the same machine."""
        lines = {f"{each.rung}, {each.what}: measured": None for each in self.measured}
        lines |= {f"{each.rung}, {each.what}: not measured ({each.why})": None for each in self.not_measured}
        return "\n".join(lines)

    def __str__(self) -> str:
        """An aligned table: rung, what, bandwidth, time of one request, requests in flight, note."""
        rows = [("rung", "what", "bandwidth", "one request", "in flight", "note")]
        for each in self.measured:
            rows.append((each.rung, each.what,
                         units.format_rate(each.bandwidth) if each.bandwidth else "-",
                         units.format_time(each.latency) if each.latency else "-", str(each.in_flight), each.note))
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = ["  ".join([*(row[n].ljust(widths[n]) for n in range(5)), row[5]]).rstrip() for row in rows]
        lines += [f"not measured: {each.rung}, {each.what}: {each.why}" for each in self.not_measured]
        return "\n".join(lines)


def read(source) -> OwnLadder:
    """A ladder from a file's path, its JSON text, or the dict in it.

    Raises ValueError, in one sentence, where that is not a ladder this version reads, or no file that can be read.
    """
    data = _load(source)
    if data.get("memtier") != "own-ladder":
        raise ValueError('source is not a measured ladder; it must be JSON with "memtier": "own-ladder", as '
                         "`python -m memtier.lab.tiers --out my-ladder.json` writes it")
    if data.get("version") != VERSION:
        raise ValueError(f"version is {checks.brief(data.get('version'))}; it must be {VERSION}, so measure the ladder "
                         "again")
    date, platform = data.get("date"), data.get("platform", {})
    _text("date", date)
    if not isinstance(platform, dict):
        raise ValueError(f"platform is {checks.brief(platform)}; it must be an object")
    return OwnLadder(date=date, measured=tuple(_rows(Measured, data, "measured")),
                     not_measured=tuple(_rows(NotMeasured, data, "not_measured")), platform=platform)


def _load(source):
    if isinstance(source, dict):
        return source
    if not isinstance(source, (str, Path)):
        raise ValueError(f"source is {checks.brief(source)}; it must be a path, JSON text or a dict")
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return checks.json_object("source", source)
    return checks.json_object("source", checks.text_file("source", source, "JSON, or a text file"), str(source))


def _rows(kind, data: dict, key: str):
    """The entries of data[key] as `kind`, each fault told with its place."""
    entries = data.get(key, [])
    if not isinstance(entries, list):
        raise ValueError(f"{key} is {checks.brief(entries)}; it must be a list")
    if len(entries) > MOST_ROWS:
        raise ValueError(f"{key} has {len(entries):,} entries; it must have at most {MOST_ROWS:,}")
    known = {each.name: each.default is MISSING for each in fields(kind)}
    for number, entry in enumerate(entries):
        where = f"{key}[{number}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{where} is {checks.brief(entry)}; it must be an object")
        if other := [name for name in entry if name not in known]:
            raise ValueError(f"{where} has {checks.brief(other[0])}; it must have only {', '.join(known)}")
        if missing := [name for name, needed in known.items() if needed and name not in entry]:
            raise ValueError(f"{where} has no {missing[0]!r}; it must have one")
        try:
            yield kind(**entry)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _text(name: str, value) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise ValueError(f"{name} is {checks.brief(value)}; it must be a text of at most {LONGEST_TEXT} characters")
