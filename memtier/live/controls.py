"""Controls: what a reader can set, how it is read, and how it is written back. No HTML here, and no widgets.

A control is made of native parts (a range, a text box, a list …), named, that both fronts know how to draw.
What a front sends is raw: {part name: what stands in it}, and under "last" the part that was touched last.
`read(raw)` gives the value or raises ValueError with one sentence; `write(value)` gives the parts that show the value.
"""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memtier import checks, models, units
from memtier.live.text import percent


@dataclass(frozen=True)
class Part:
    """One native input.

    kind: "range" (says holds the text of each position), "text", "area" (a larger text), "file" (its text goes into the
    part named by `into`), "list", "radio" and "boxes" (options holds value → label), or "tick".
    when: (part, value) that must be set for this one to show.
    """

    kind: str
    name: str
    label: str = ""
    says: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    when: tuple[str, str] | None = None
    into: str = ""


class Quantity(NamedTuple):
    """How values of one unit are written for people, read back, and written with every digit."""

    say: Callable
    read: Callable
    exact: Callable


QUANTITIES = {
    "bytes": Quantity(units.format_bytes, units.parse_bytes, "{:.15g} B".format),
    "binary bytes": Quantity(lambda nbytes: units.format_bytes(nbytes, binary=True), units.parse_bytes,
                             "{:.15g} B".format),
    "bytes/s": Quantity(units.format_rate, units.parse_rate, "{:.15g} B/s".format),
    "s": Quantity(units.format_time, units.parse_time, "{:.15g} s".format),
    "count": Quantity("{:,}".format, units.parse_count, "{:,}".format),
    "share": Quantity(percent, units.parse_share, lambda share: f"{100 * share:.15g} %"),
    "": Quantity("{:,.6g}".format, units.parse_number, "{:.15g}".format),
}

_MANTISSAS = (1, 1.2, 1.4, 1.6, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)  # round numbers at nearly equal steps on a log scale
_LONG_TIMES = [60 * minutes for minutes in (1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)] + [
    3600 * hours for hours in (1, 1.5, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 120, 168, 240)]


@dataclass(frozen=True)
class Slider:
    """A range with a box beside it for the exact value.

    low, high: the ends. scale: "linear" (101 positions), "log" (14 round numbers in each power of ten), or the values
    themselves. unit: a key of QUANTITIES. more: whether it stands behind "more".
    """

    name: str
    label: str
    low: float
    high: float
    default: float
    scale: str | Sequence[float] = "linear"
    unit: str = ""
    more: bool = False

    @property
    def stops(self) -> tuple[float, ...]:
        if not isinstance(self.scale, str):
            return tuple(self.scale)
        if self.scale == "linear":
            return tuple(self.low + (self.high - self.low) * step / 100 for step in range(101))
        tens = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        # 14 * 10**10 / 10 keeps round numbers exact where 1.4 * 10**10 might not
        grid = [round(10 * mantissa) * 10**ten / 10 for ten in tens for mantissa in _MANTISSAS]
        if self.unit == "count":
            grid = [int(value) for value in grid if value == int(value)]
        if self.unit == "s":
            grid = [value for value in grid if value < 60] + _LONG_TIMES
        return tuple(sorted({self.low, self.high, *(value for value in grid if self.low < value < self.high)}))

    @property
    def parts(self) -> tuple[Part, ...]:
        says = tuple(self._text(stop) for stop in self.stops)
        return Part("range", "at", self.label, says=says), Part("text", "text", f"{self.label}, exact value")

    @property
    def extremes(self) -> tuple[float, ...]:
        return self.low, self.high

    def read(self, raw: Mapping):
        if raw.get("last") == "at":
            stops = self.stops
            return stops[checks.whole(self.name, int(raw["at"]), least=0, most=len(stops) - 1)]
        value = QUANTITIES[self.unit].read(raw["text"])
        if self.unit == "count":
            return checks.whole(self.name, value, least=self.low, most=self.high)
        if not self.low <= value <= self.high:
            say = QUANTITIES[self.unit].say
            raise ValueError(f"{self.name} is {checks.brief(raw['text'])}; it must be from {say(self.low)} to "
                             f"{say(self.high)}")
        return value

    def write(self, value) -> dict:
        stops = self.stops
        after = min(bisect.bisect_left(stops, value), len(stops) - 1)
        nearest = min((stops[max(after - 1, 0)], stops[after]), key=lambda stop: abs(stop - value))
        return {"at": str(stops.index(nearest)), "text": self._text(value)}

    def _text(self, value) -> str:
        """Short where that is exact, else all digits: what stands in the box reads back as the same value."""
        quantity = QUANTITIES[self.unit]
        short = quantity.say(value)
        return short if math.isclose(quantity.read(short), value, rel_tol=1e-9) else quantity.exact(value)


@dataclass(frozen=True)
class Choice:
    """One of a few. options: value → label. Short lists stand open, longer ones fold. default None: none chosen yet."""

    name: str
    label: str
    options: Mapping
    default: object = None
    more: bool = False
    open: bool | None = None  # True: as radio buttons, False: as a list; None: by length

    @property
    def parts(self) -> tuple[Part, ...]:
        labels = [str(label) for label in self.options.values()]
        opened = self.open if self.open is not None else len(labels) <= 4 and sum(map(len, labels)) <= 24
        options = tuple((str(value), str(label)) for value, label in self.options.items())
        return (Part("radio" if opened else "list", "choice", self.label, options=options),)

    @property
    def extremes(self) -> tuple:
        return tuple(self.options)

    def read(self, raw: Mapping):
        if not raw.get("choice"):
            raise ValueError(f"{self.label}: choose one of {', '.join(map(str, self.options.values()))}")
        by_text = {str(value): value for value in self.options}
        return by_text[checks.one_of(self.name, raw["choice"], by_text)]

    def write(self, value) -> dict:
        return {"choice": "" if value is None else str(value)}


@dataclass(frozen=True)
class Several:
    """Any number of a few: tick boxes. The value is a frozenset of keys of options."""

    name: str
    label: str
    options: Mapping
    default: frozenset = frozenset()
    more: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("boxes", "chosen", self.label, options=tuple((str(k), str(v)) for k, v in self.options.items())),)

    @property
    def extremes(self) -> tuple:
        return frozenset(), frozenset(self.options)

    def read(self, raw: Mapping) -> frozenset:
        by_text = {str(value): value for value in self.options}
        return frozenset(by_text[checks.one_of(self.name, each, by_text)] for each in raw.get("chosen", ()))

    def write(self, value) -> dict:
        return {"chosen": [str(each) for each in self.options if each in value]}


@dataclass(frozen=True)
class Toggle:
    """On or off."""

    name: str
    label: str
    default: bool = False
    more: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("tick", "on", self.label),)

    @property
    def extremes(self) -> tuple[bool, ...]:
        return False, True

    def read(self, raw: Mapping) -> bool:
        return checks.one_of(self.name, int(raw["on"]), (0, 1)) == 1

    def write(self, value: bool) -> dict:
        return {"on": bool(value)}


@dataclass(frozen=True)
class NumberBox:
    """A box for a number with its unit, empty at first. unit: a key of QUANTITIES."""

    name: str
    label: str
    unit: str = ""
    default: object = None
    more: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("text", "text", self.label),)

    def read(self, raw: Mapping):
        if not raw.get("text", "").strip():
            raise ValueError("Write your answer in the box first.")
        return QUANTITIES[self.unit].read(raw["text"].strip())

    def write(self, value) -> dict:
        return {"text": "" if value is None else QUANTITIES[self.unit].say(value)}


@dataclass(frozen=True)
class ModelChoice:
    """A model of the registry, a bare parameter count, or the reader's own config.json.

    The value is a registry name, a number, or a Model made from the reader's file. counts: whether a bare count is
    offered; not where shapes are needed.
    """

    name: str
    label: str
    default: str | int = "llama-3.1-70b"
    more: bool = False
    counts: bool = True

    @property
    def parts(self) -> tuple[Part, ...]:
        kinds = [("count", "a parameter count …")] if self.counts else []
        options = tuple((name, name) for name in models.names()) + (*kinds, ("own", "your own config.json …"))
        count = (Part("text", "count", "Parameters, such as 70e9", when=("choice", "count")),) if self.counts else ()
        return (Part("list", "choice", self.label, options=options), *count,
                Part("file", "file", "Choose a config.json", when=("choice", "own"), into="config"),
                Part("area", "config", "or paste its text", when=("choice", "own")))

    @property
    def extremes(self) -> tuple:
        return (*models.names(), *((1, 10**13) if self.counts else ()))

    def read(self, raw: Mapping):
        if raw["choice"] == "own":
            return _own(raw.get("config", ""), "config.json", models.from_config)
        if raw["choice"] == "count" and self.counts:
            if not raw.get("count", "").strip():
                raise ValueError("Write a number of parameters, such as 70e9.")
            return checks.whole("parameters", units.parse_count(raw["count"]), most=10**15)
        return models.get(raw["choice"]).name

    def write(self, value) -> dict:
        if isinstance(value, (int, float)):
            return {"choice": "count", "count": f"{value:,}"}
        return {"choice": value if isinstance(value, str) else "own"}  # the reader's own text stays as it was pasted


@dataclass(frozen=True)
class FileChoice:
    """The reader's own JSON file, or none. read_file: turns the parsed JSON into the value; raises ValueError.

    what: what the file is, for the option's text. The value is None until a file is given.
    """

    name: str
    label: str
    what: str
    read_file: Callable[[object], object]
    default: None = None
    more: bool = True

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part("list", "choice", self.label, options=(("none", "datasheet figures only"), ("own", self.what))),
                Part("file", "file", "Choose the file", when=("choice", "own"), into="config"),
                Part("area", "config", "or paste its text", when=("choice", "own")))

    @property
    def extremes(self) -> tuple:
        return (None,)

    def read(self, raw: Mapping):
        return _own(raw.get("config", ""), "your file", self.read_file) if raw["choice"] == "own" else None

    def write(self, value) -> dict:
        return {"choice": "none" if value is None else "own"}


def _own(text: str, what: str, read: Callable):
    """A value from JSON text a reader gave."""
    if not text.strip():
        raise ValueError(f"{what} is empty; choose a file or paste its text")
    return read(checks.json_object(what, text))
