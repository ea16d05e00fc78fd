"""Inventory: what the bytes are, and how many. Every kind of data returns one, every view draws one."""

from collections.abc import Iterator, Mapping
from numbers import Number

from memtier import checks, drawing, units


class Inventory(Mapping):
    """Named bytes that add up.

    >>> state = Inventory({"weights": 140e9, "optimizer": 560e9}, title="two of the six kinds")
    >>> state.total
    700000000000.0
    >>> state.share("optimizer")
    0.8

    nbytes: a mapping of name → bytes, each 0 or more (int where the count is exact, float for an average).
    Raises ValueError for a name that is not a text and for bytes that are negative or not a number.
    """

    def __init__(self, nbytes: Mapping[str, float], title: str = ""):
        if not isinstance(nbytes, Mapping):
            raise ValueError(f"nbytes is {checks.brief(nbytes)}; it must be a mapping of name to bytes")
        for name, value in nbytes.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"nbytes has the name {checks.brief(name)}; a name must be a text that is not empty")
            checks.not_negative(f"nbytes[{checks.brief(name)}]", value)
        self._nbytes = dict(nbytes)
        self.title = title

    def __getitem__(self, name: str):
        if name not in self._nbytes:
            raise KeyError(f"no {checks.brief(name)} in this inventory; it has {', '.join(self._nbytes) or 'nothing'}")
        return self._nbytes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nbytes)

    def __len__(self) -> int:
        return len(self._nbytes)

    @property
    def total(self):
        """All bytes together."""
        return sum(self._nbytes.values())

    def share(self, name: str) -> float:
        """The part of the total that `name` takes, from 0 to 1; 0 in an empty inventory."""
        return self[name] / self.total if self.total else 0.0

    def __add__(self, other: "Inventory") -> "Inventory":
        """Bytes added name by name, in the order in which the names first appear."""
        if not isinstance(other, Inventory):
            return NotImplemented
        names = dict.fromkeys([*self, *other])
        return Inventory({name: self.get(name, 0) + other.get(name, 0) for name in names}, self.title)

    def __mul__(self, factor: float) -> "Inventory":
        """Every entry times `factor` (0 or more)."""
        if not isinstance(factor, Number):
            return NotImplemented
        checks.not_negative("factor", factor)
        return Inventory({name: value * factor for name, value in self.items()}, self.title)

    __rmul__ = __mul__

    def __eq__(self, other) -> bool:
        """Equal when the same names hold the same bytes; order and title do not count."""
        return isinstance(other, Inventory) and self._nbytes == other._nbytes

    __hash__ = None

    def without(self, *names: str) -> "Inventory":
        """The same inventory less the named entries. Raises KeyError for a name it does not have."""
        for name in names:
            self[name]
        return Inventory({name: value for name, value in self.items() if name not in names}, self.title)

    def to_dict(self) -> dict:
        """{"title": …, "nbytes": {name: bytes}, "total": bytes}, ready for JSON."""
        return {"title": self.title, "nbytes": dict(self._nbytes), "total": self.total}

    @classmethod
    def from_dict(cls, data: Mapping) -> "Inventory":
        """The inverse of to_dict. Raises ValueError when "nbytes" is missing."""
        if not isinstance(data, Mapping) or "nbytes" not in data:
            raise ValueError(f"data is {checks.brief(data)}; it must be a mapping with the key 'nbytes'")
        return cls(data["nbytes"], data.get("title", ""))

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Name, bytes, GB, GiB and share of each entry, then of the total, as text for a table."""
        entries = [*self.items(), ("total", self.total)]
        return [(name, f"{value:,.0f}", f"{value / units.GB:,.3f}", f"{value / units.GiB:,.3f}",
                 f"{value / self.total:.1%}" if self.total else "-") for name, value in entries]

    def __str__(self) -> str:
        """An aligned table: name, bytes, GB (10**9), GiB (2**30), share."""
        rows = [("", "bytes", "GB", "GiB", "share"), *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = ["  ".join([row[0].ljust(widths[0])] + [row[n].rjust(widths[n]) for n in range(1, 5)]) for row in rows]
        return "\n".join([self.title, *lines] if self.title else lines)

    def __repr__(self) -> str:
        title = f", title={self.title!r}" if self.title else ""
        return f"Inventory({self._nbytes!r}{title})"

    def _repr_html_(self) -> str:
        """One stacked bar with its data table."""
        title = self.title or "Inventory"
        return drawing.bars([(units.both(self.total), dict(self._nbytes))], title=title,
                            description=f"{title}: {units.both(self.total)} in {len(self)} parts.").html
