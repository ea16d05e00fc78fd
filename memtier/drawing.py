"""Figures as SVG text: stacked bars, lines and dots on log axes, timelines, grids of GPUs.

Three decisions hold everywhere:

- Positions across are percentages and text has a fixed size, so a figure fills any width, a phone's too,
  and its words never shrink. Heights are fixed.
- Text takes the page's colour (currentColor). The parts have colours of one lightness, in which white letters and
  both a white and a black page have enough contrast; a theme can replace them through `--mt-…` variables.
- Each figure carries a title, a description and a table of the same numbers for those who do not see it. It has no ids
  and no randomness: the same numbers give the same text.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from memtier import checks, units

_LETTER = 0.025  # of a letter of 14 px in a figure of 330 px, a phone's
_SMALL = 0.023  # of a letter of 13 px
_PIXEL = 1 / 330
_LINE = 19  # px of a line of text

# A kind of byte has the same colour in every figure of the course.
COLOURS = {
    "weights": "#2070b4",
    "gradients": "#c2410c",
    "master weights": "#7c4db8",
    "optimizer": "#0b7a5b",
    "activations": "#a3650a",
    "KV cache": "#b83280",
    "checkpoint": "#5d6b1d",
    "training data": "#0e7490",
    "gathered root": "#2070b4",
    "gathered layer": "#4f5bd5",
    "other": "#64707d",
    "step counters": "#64707d",
    "state, up": "#0b7a5b",
    "state, down": "#5d6b1d",
    "waiting": "#64707d",
    # parts of a model, as they keep activations
    "norms": "#5d6b1d",
    "attention": "#2070b4",
    "s × s matrices": "#b83280",
    "MLP": "#c2410c",
    "experts": "#7c4db8",
    "dropout masks": "#64707d",
    "matrix products": "#0b7a5b",
    "inputs of layers": "#0e7490",
    "outside the layers": "#a3650a",
    # and the other parts of its weights
    "embedding": "#a3650a",
    "mlp": "#c2410c",
    "router": "#64707d",
    "head": "#0e7490",
}
CYCLE = ("#2070b4", "#c2410c", "#0b7a5b", "#7c4db8", "#a3650a", "#b83280", "#0e7490", "#5d6b1d", "#64707d")
# What exists only for a moment is drawn pale with a dashed edge.
PASSING = {"gathered root", "gathered layer"}

BYTE_TICKS = tuple((10**n, units.format_bytes(10**n)) for n in range(0, 19, 3))
RATE_TICKS = tuple((10**n, units.format_rate(10**n)) for n in range(0, 19, 3))
TIME_TICKS = ((1e-9, "1 ns"), (1e-6, "1 µs"), (1e-3, "1 ms"), (1, "1 s"), (60, "1 min"), (3600, "1 h"),
              (86400, "1 day"), (86400 * 30, "1 month"), (86400 * 365, "1 year"))

_GAP = "var(--pst-color-background,var(--jp-layout-color0,#fff))"
_SWATCH = '<span style="display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px;{}"></span>'


@dataclass(frozen=True)
class Figure:
    """A drawing and what it says: title, description (for those who do not see it), and the same numbers as a table.

    header: column names. rows: tuples of texts. svg: the drawing alone. legend: (name, css) pairs of its colours.
    """

    title: str
    description: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    svg: str
    legend: tuple[tuple[str, str], ...] = ()

    @property
    def html(self) -> str:
        """The figure as one <figure>: title, legend, drawing, and the table in a <details>."""
        legend = "".join(f'<li style="display:inline-block;margin:0 1em 0 0">{_SWATCH.format(css)}{escape(name)}</li>'
                         for name, css in self.legend)
        if legend:
            legend = f'<ul class="mt-legend" style="list-style:none;margin:0 0 .3em;padding:0">{legend}</ul>'
        caption = f'<figcaption class="mt-title" style="font-weight:600">{escape(self.title)}</figcaption>'
        return (f'<figure class="mt-figure" style="margin:0 0 1em">{caption}{legend}{self.svg}'
                f'<details class="mt-numbers"><summary>The numbers as a table</summary>{self.table}</details></figure>')

    @property
    def table(self) -> str:
        """The figure's numbers as a <table>."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in self.header)
        body = "".join(f'<tr><th scope="row">{escape(row[0])}</th>'
                       + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>" for row in self.rows)
        return f'<table class="mt-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    def __repr__(self) -> str:
        return f"Figure: {self.title}"

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True)
class Axis:
    """A scale from low to high; log10 unless log=False. say: how a value is written. ticks: (value, text) pairs.

    Raises ValueError when high is not above low, or low is not above 0 on a log scale.
    """

    label: str
    low: float
    high: float
    say: Callable[[float], str] = units.format_bytes
    ticks: tuple[tuple[float, str], ...] | None = None
    log: bool = True

    def __post_init__(self):
        if self.log:
            checks.positive("low", self.low)
        checks.at_most("high", self.high, checks.LARGEST)
        if not self.high > self.low:
            raise ValueError(f"high is {self.high!r}; it must be above low, {self.low!r}")

    def at(self, value: float) -> float:
        """Where the value stands, from 0 (low) to 1 (high); a value outside stands at the edge."""
        if self.log:
            if value <= 0:
                return 0.0
            place = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, place))

    def marks(self) -> list[tuple[float, str]]:
        """The ticks that lie on the axis, as (place from 0 to 1, text)."""
        ticks = self.ticks if self.ticks is not None else [(value, self.say(value)) for value in self._round_values()]
        return [(self.at(value), text) for value, text in ticks if self.low <= value <= self.high]

    def _round_values(self) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**n for n in range(first, last + 1, 1 + (last - first) // 6)]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
        step *= next(factor for factor in (5, 2, 1) if (self.high - self.low) / (step * factor) >= 2)
        return [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step * (1 + 1e-9)) + 1)]


def time_ticks(high: float) -> tuple[tuple[float, str], ...] | None:
    """Ticks from 0 to `high` seconds as a clock has them: whole minutes, hours, days. None for less than a minute."""
    if high < 60:
        return None
    clock = [size * n for size, counts in ((60, (0.25, 0.5, 1, 2, 5, 10, 15, 20, 30)), (3600, (1, 2, 3, 6, 12)),
                                           (86400, (1, 2, 5, 10, 20, 50, 100, 200, 500))) for n in counts]
    long = 86400 * 10 ** max(3, math.floor(math.log10(high / 86400 / 5)))
    clock += [long * size for size in (1, 2, 5, 10)]
    step = next(seconds for seconds in clock if high / seconds <= 5)
    return tuple((step * n, units.format_time(step * n)) for n in range(math.floor(high / step) + 1))


def _percent(place: float) -> str:
    return f"{100 * place:.2f}".rstrip("0").rstrip(".") + "%"


def _held(place: float, words: str, letter: float = _SMALL) -> tuple[str, float]:
    """How a text of such letters is held at a place: (anchor, px to the right).

    In its middle; where a phone would cut it off, shifted inwards just as far as it needs there.
    """
    half = letter * len(words) / 2
    if half <= place <= 1 - half:
        return "middle", 0
    return ("start", -place / _PIXEL) if place < 0.5 else ("end", (1 - place) / _PIXEL)


def _span(place: float, words: str, anchor: str, letter: float = _SMALL, by: float = 0) -> tuple[float, float]:
    """From where to where a text reaches on a phone."""
    width = letter * len(words)
    start = place + by * _PIXEL - width * {"start": 0, "middle": 0.5, "end": 1}[anchor]
    return start, start + width


def _shift(by: float) -> str:
    return f' dx="{by:.3g}"' if by else ""


def _text(place: float, y: float, words: str, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{_percent(place)}" y="{y:g}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, extra: str) -> str:
    return f'<line x1="{_percent(x1)}" y1="{y1:g}" x2="{_percent(x2)}" y2="{y2:g}" stroke="currentColor" {extra}/>'


def _over(words: str) -> str:
    """Texts with a rim of the page's colour, so that a line behind them does not strike them through."""
    return f'<g stroke="{_GAP}" stroke-width="4" stroke-linejoin="round" paint-order="stroke">{words}</g>'


_MUTED = ' fill-opacity=".78" font-size="13"'
_GRID = 'stroke-opacity=".16"'


def colour(name: str, order: int = 0) -> str:
    """The css colour of a kind of byte; names the course does not know take turns by their order."""
    if name not in COLOURS:
        return CYCLE[order % len(CYCLE)]
    return f"var(--mt-{'-'.join(re.findall('[a-z]+', name.lower()))},{COLOURS[name]})"


def _swatch(name: str, order: int) -> str:
    shade = colour(name, order)
    return f"border:1px dashed {shade};box-sizing:border-box" if name in PASSING else f"background:{shade}"


def _names(inventories: Sequence[Mapping[str, float]]) -> list[str]:
    """The parts that hold anything, in the order in which they first appear."""
    return list(dict.fromkeys(name for each in inventories for name, value in each.items() if value > 0))


def _segment(x: float, y: float, width: float, height: float, name: str, order: int) -> str:
    shade = colour(name, order)
    rim = "" if height >= 8 else f' stroke-width="{height / 8:.2g}"'  # else a thin part would be all rim
    look = f'fill="{shade}" stroke="{_GAP}"{rim}'
    if name in PASSING:
        look = f'fill="{shade}" fill-opacity=".18" stroke="{shade}" stroke-width="1.5" stroke-dasharray="4 3"'
    return f'<rect x="{_percent(x)}" y="{y:g}" width="{_percent(width)}" height="{height:g}" {look}/>'


def _inside(place: float, y: float, words: str, name: str, order: int) -> str:
    """Words in the middle of a segment, with a rim of its colour, so that no line strikes them through."""
    look = ' font-size="13" font-weight="600"'
    if name not in PASSING:
        look += f' fill="#fff" stroke="{colour(name, order)}" stroke-width="4" paint-order="stroke"'
    return _text(place, y, words, "middle", look)


def _svg(height: float, content: str, title: str, description: str) -> str:
    return (f'<svg role="img" aria-label="{escape(title)}. {escape(description)}" width="100%" height="{height:g}" '
            'style="display:block;overflow:visible;font-family:inherit" font-size="14" fill="currentColor">'
            f"{content}</svg>")


def _mark_lines(marks, axis: Axis, top: float, bottom: float, taken: Sequence[tuple[float, float, float]] = ()) -> str:
    """Named vertical lines (a limit solid, a guess dotted), each with its label in a band of its own above `top`.

    taken: (from, to, top) of lines of text, where a line that would run through them is broken, as it is at the labels
    of the lines below its own.
    """
    out, taken = "", list(taken)
    for band, (value, label, dash) in reversed([*enumerate(marks)]):
        place, y = axis.at(value), top - 8 - 19 * (len(marks) - 1 - band)
        start = y + 4
        for text in sorted(text for left, right, text in taken if left < place < right):
            if text > start + 3:
                out += _line(place, start, place, text, f'stroke-width="2"{dash}')
            start = max(start, text + _LINE)
        out += _line(place, start, place, bottom, f'stroke-width="2"{dash}')
        anchor, by = _held(place, label)
        out += _text(place, y, label, anchor, f'{_shift(by)} font-weight="600" font-size="13"')
        taken.append((*_span(place, label, anchor, _LETTER, by), y - 14))
    return out


def _marks(limit, guess):
    return [(*mark, dash) for mark, dash in ((limit, ""), (guess, ' stroke-dasharray="2 4"')) if mark is not None]


def _lead(label: str, value: str, y: float, bold: bool = True) -> tuple[str, float]:
    """A row's label and value on one line, or on two where they would meet on a phone; and the height they took."""
    strong = ' font-weight="600"' if bold else ""
    if _LETTER * (len(label) + len(value)) <= 0.96:
        return _text(0, y, label) + _text(1, y, value, "end", strong), 0
    return _text(0, y, label) + _text(1, y + 18, value, "end", strong), 18


def bars(rows: Sequence[tuple[str, Mapping[str, float]]], title: str, description: str, *,
         limit: tuple[float, str] | None = None, guess: tuple[float, str] | None = None,
         say: Callable[[float], str] = units.format_bytes) -> Figure:
    """Stacked bars on a common linear scale, the total written above each.

    rows: (label, {part: amount}). limit and guess: (amount, label) of a line across all bars. say: writes an amount.
    Raises ValueError when there are no rows or an amount is negative.
    """
    if not rows:
        raise ValueError("rows is empty; bars need at least one")
    for label, parts in rows:
        for name, value in parts.items():
            checks.not_negative(f"{label}: {name}", value)
    totals = [sum(parts.values()) for _, parts in rows]
    marks = _marks(limit, guess)
    axis = Axis("", 0, max([*totals, *(mark[0] for mark in marks)]) * 1.02 or 1, say, log=False)
    names = _names([parts for _, parts in rows])
    y = top = 19 * len(marks) + 8
    out = leads = words = ""
    crossed = [axis.at(mark[0]) for mark in marks]  # no line strikes an amount through: it stands beside the line
    taken = []  # what stands above the bars, through which no line goes either
    for (label, parts), total in zip(rows, totals, strict=True):
        lead, more = _lead(label, say(total), y + 14)
        taken += [(0.0, _LETTER * len(label), y), (1 - _LETTER * len(say(total)), 1.0, y + more)]
        leads, y = leads + lead, y + more
        start = 0.0
        for name, value in parts.items():
            if value == 0:
                continue
            x, width = axis.at(start), axis.at(start + value) - axis.at(start)
            out += _segment(x, y + 22, width, 28, name, names.index(name))
            cuts = [x, *sorted(place for place in crossed if x < place < x + width), x + width]
            left, right = max(pairwise(cuts), key=lambda ends: ends[1] - ends[0])
            if right - left > 0.17:
                words += _inside((left + right) / 2, y + 41, say(value), name, names.index(name))
            start += value
        y += 64
    out += _line(0, top + 18, 0, y - 10, 'stroke-opacity=".5"') + _mark_lines(marks, axis, top, y - 8, taken)
    out += _over(leads) + words
    header = ("", *names, "total", *(mark[1] for mark in marks))
    table = tuple((label, *(say(parts.get(name, 0)) for name in names), say(total), *(say(mark[0]) for mark in marks))
                  for (label, parts), total in zip(rows, totals, strict=True))
    legend = tuple((name, _swatch(name, order)) for order, name in enumerate(names))
    return Figure(title, description, header, table, _svg(y - 4, out, title, description), legend)


def _ticks_across(axis: Axis, top: float, bottom: float) -> str:
    out, free = "", 0.0
    for place, text in axis.marks():
        out += _line(place, top, place, bottom, _GRID)
        anchor, by = _held(place, text)
        start, end = _span(place, text, anchor, by=by)
        if start >= free:  # a text that would touch the one before it is left out
            out += _text(place, bottom + 16, text, anchor, _shift(by) + _MUTED)
            free = end + 0.02
    scale = f"{axis.label} (log scale)" if axis.log and axis.label else axis.label
    return out + (_text(0.5, bottom + 35, scale, "middle", _MUTED) if scale else "")


def _dot(x: float, y: float, shade: str, order: int) -> str:
    """A disc for the first series, a ring for the others: the difference does not rest on colour."""
    look = f'fill="{_GAP}" stroke="{shade}" stroke-width="3"'
    if order == 0:
        look = f'fill="{shade}" stroke="{_GAP}" stroke-width="1.5"'
    return f'<circle cx="{_percent(x)}" cy="{y:g}" r="6" {look}/>'


def dots(rows: Sequence[tuple[str, Mapping[str, float | None]]], axis: Axis, title: str, description: str, *,
         limit: tuple[float, str] | None = None, guess: tuple[float, str] | None = None) -> Figure:
    """One lane a row, a dot for each series, on a common axis: for values many powers of ten apart.

    rows: (label, {series: value or None where it is unknown}).
    limit and guess: (value, label) of a line across all lanes.
    Raises ValueError when there are no rows.
    """
    if not rows:
        raise ValueError("rows is empty; dots need at least one")
    names = list(dict.fromkeys(name for _, series in rows for name in series))
    marks = _marks(limit, guess)
    y = top = 19 * len(marks) + 4
    out, leads, taken = "", "", []
    for label, series in rows:
        known = {name: value for name, value in series.items() if value is not None}
        written = " · ".join(axis.say(value) for value in known.values()) or "not known"
        lead, more = _lead(label, written, y + 14)
        taken += [(0.0, _LETTER * len(label), y), (1 - _LETTER * len(written), 1.0, y + more)]
        leads, y = leads + lead, y + more
        out += _line(0, y + 27, 1, y + 27, _GRID)
        for order, name in enumerate(names):
            if name in known:
                place, shade = axis.at(known[name]), colour(name, order)
                if order == 0:
                    out += (f'<line x1="0" y1="{y + 27:g}" x2="{_percent(place)}" y2="{y + 27:g}" stroke="{shade}" '
                            'stroke-width="4" stroke-opacity=".35"/>')
                out += _dot(place, y + 27, shade, order)
        y += 42
    out = _ticks_across(axis, top, y) + _mark_lines(marks, axis, top, y, taken) + out + _over(leads)
    table = tuple((label, *("not known" if series.get(name) is None else axis.say(series[name]) for name in names),
                   *(axis.say(mark[0]) for mark in marks)) for label, series in rows)
    legend = tuple((name, f"background:{colour(name, order)};border-radius:50%" if order == 0
                    else f"border:3px solid {colour(name, order)};border-radius:50%;box-sizing:border-box")
                   for order, name in enumerate(names)) if len(names) > 1 else ()
    return Figure(title, description, ("", *names, *(mark[1] for mark in marks)), table,
                  _svg(y + (40 if axis.label else 22), out, title, description), legend)


def lines(series: Sequence[tuple[str, Sequence[tuple[float, float]]]], x: Axis, y: Axis, title: str,
          description: str, *, points: Sequence[tuple[str, float, float]] = (),
          guess: tuple[float, float, str] | None = None, limit: tuple[float, str] | None = None,
          strong: str | None = None, height: float = 260) -> Figure:
    """Curves over two axes.

    series: (name, [(x, y), …]). points: (name, x, y), each a labelled dot. guess: (x, y, label), a hollow diamond.
    limit: (y, label) of a line across. strong: the one curve to stand out; the others turn grey, and all carry their
    names at their right ends instead of a legend. height: of the plot, in CSS pixels.
    Raises ValueError when nothing is given to draw.
    """
    if not any(curve for _, curve in series) and not points:
        raise ValueError("series and points are empty; lines need something to draw")
    top, bottom = 24, 24 + height
    out = _ticks_across(x, top, bottom)
    title_of_y = f"{y.label} (log scale)" if y.log else y.label
    out += _text(0, 12, title_of_y, extra=_MUTED)

    def down(value):
        return top + (1 - y.at(value)) * height

    room = _Room(bottom, title_of_y)
    for _, curve in series:
        room.draw([(x.at(a), down(b)) for a, b in curve])
    spots = [(x.at(a), down(b)) for _, a, b in points] + ([(x.at(guess[0]), down(guess[1]))] if guess else [])
    for spot in spots:
        room.dot(*spot)
    if limit is not None:
        room.draw([(0, down(limit[0])), (1, down(limit[0]))])
    ends = [(name, *((x.at(a), down(b)) for a, b in curve[-2:])) for name, curve in series if curve]
    named = _over(_end_labels(ends, strong, room)) if strong is not None else ""
    if limit is not None:
        level = down(limit[0])
        named += _over(room.text(limit[1], _SMALL, [(1, "end", 0, level + 15), (1, "end", 0, level - 6),
                                                  (0, "start", 0, level - 6), (0, "start", 0, level + 15)],
                               ' font-size="13" font-weight="600"'))
    scale = ""
    for place, text in y.marks():
        level = top + (1 - place) * height
        out += _line(0, level, 1, level, _GRID)
        scale += room.text(text, _SMALL, [(0, "start", 0, level - 4), (0, "start", 0, level + 14),
                                          (1, "end", 0, level - 4), (1, "end", 0, level + 14)], _MUTED)
    if limit is not None:
        level = down(limit[0])
        out += _line(0, level, 1, level, 'stroke-width="1.5" stroke-dasharray="6 3"')
    for order, (name, curve) in enumerate(series):
        path = " ".join(f"{1000 * x.at(a):.1f},{1000 * (1 - y.at(b)):.1f}" for a, b in curve)
        if strong is None:
            look = f'stroke="{colour(name, order)}" stroke-width="3"' + (' stroke-dasharray="7 4"' if order % 2 else "")
        else:
            look = 'stroke="currentColor" ' + ('stroke-width="3.5"' if name == strong
                                               else 'stroke-opacity=".4" stroke-width="2"')
        # Points cannot be percentages: this inner drawing is stretched to the width, its strokes are not.
        out += (f'<svg aria-hidden="true" x="0" y="{top}" width="100%" height="{height:g}" viewBox="0 0 1000 1000" '
                f'preserveAspectRatio="none"><polyline points="{path}" fill="none" {look} '
                'vector-effect="non-scaling-stroke"/></svg>')
    out += _over(scale)
    if guess is not None:  # below the dots, so that one near the truth does not hide it
        place, level = spots[-1]
        named += (f'<svg aria-hidden="true" x="{_percent(place)}" y="{level:g}" overflow="visible">'
                  f'<path d="M0-8 8 0 0 8-8 0Z" fill="{_GAP}" stroke="currentColor" stroke-width="2"/></svg>')
    for order, ((name, _, b), (place, level)) in enumerate(zip(points, spots, strict=False)):
        words = f"{name}: {y.say(b)}"
        named += _dot(place, level, colour(name, order + len(series)), order)
        named += _over(room.text(words, _LETTER, _beside(place, level, words, _LETTER, order == 0),
                                 ' font-weight="600"'))
    if guess is not None:
        place, level = spots[-1]
        named += _over(room.text(guess[2], _SMALL, _beside(place, level, guess[2], _SMALL, False), ' font-size="13"'))
    out += named
    rows = [(name, x.say(a), y.say(b)) for name, curve in series for a, b in _sample(curve)]
    rows += [(name, x.say(a), y.say(b)) for name, a, b in points]
    rows += [(guess[2], x.say(guess[0]), y.say(guess[1]))] if guess else []
    legend = tuple((name, f"background:{colour(name, order)};height:.25em;vertical-align:middle")
                   for order, (name, _) in enumerate(series)) if len(series) > 1 and strong is None else ()
    return Figure(title, description, ("", x.label, y.label), tuple(rows),
                  _svg(bottom + (40 if x.label else 22), out, title, description), legend)


Way = tuple[float, str, float, float]  # how words stand: (place, anchor, px to the right, level)


class _Room:
    """What is drawn in a plot, as a phone shows it, so that words can stand where the least of it is."""

    def __init__(self, bottom: float, heading: str):
        """bottom: level of the plot's lower edge. heading: what stands above the plot, at its left."""
        self.bottom = bottom
        self.lines: list[tuple[float, float]] = []  # (place, level) of spots on curves
        self.dots: list[tuple[float, float]] = []
        self.texts = [(*_span(0, heading, "start"), 11.0)]  # (from, to, level)

    def draw(self, line: Sequence[tuple[float, float]]) -> None:
        """Take the room of a line, in spots so close that none of it slips through a letter."""
        self.lines += line[:1]
        for (place, level), (to_place, to_level) in pairwise(line):
            steps = math.ceil(max(abs(to_place - place) / 0.02, abs(to_level - level) / 6, 1))
            self.lines += [(place + (to_place - place) * n / steps, level + (to_level - level) * n / steps)
                           for n in range(1, steps + 1)]

    def dot(self, place: float, level: float) -> None:
        """Take the room of a dot: its middle and its rim."""
        self.dots += [(place + right * _PIXEL, level + under)
                      for right, under in ((0, 0), (7, 0), (-7, 0), (0, 7), (0, -7))]

    def text(self, words: str, letter: float, ways: Sequence[Way], look: str) -> str:
        """The words, in the first of the ways under which the least is drawn; their room is taken from then on."""
        place, anchor, by, level = min(ways, key=lambda way: self._struck(words, letter, way))
        self.texts.append((*_span(place, words, anchor, letter, by), level))
        return _text(place, level, words, anchor, _shift(by) + look)

    def _struck(self, words: str, letter: float, way: Way) -> int:
        place, anchor, by, level = way
        start, end = _span(place, words, anchor, letter, by)

        def under(spots):
            return sum(start - 0.01 < x < end + 0.01 and level - 13 < y < level + 3 for x, y in spots)

        outside = start < -0.001 or end > 1.001 or not 12 <= level <= self.bottom - 3
        on_texts = sum(start < other_end and other < end and abs(level - other_level) < 15
                       for other, other_end, other_level in self.texts)
        return 1000 * outside + 50 * on_texts + 5 * under(self.dots) + under(self.lines)


def _beside(place: float, level: float, words: str, letter: float, above: bool) -> list[Way]:
    """The ways in which words can stand by a dot. above: whether they rather stand above it than below."""
    held = _held(place, words, letter)
    near = [(*held, -12), (*held, 22)]
    near = (near if above else near[::-1]) + [("start", 11, 5), ("end", -11, 5), ("start", 7, -9), ("end", -7, -9),
                                              ("start", 7, 19), ("end", -7, 19), (*held, -28), (*held, 38),
                                              ("end", 3, -11), ("start", -3, 21)]
    return [(place, anchor, by, level + under) for anchor, by, under in near]


def _end_labels(ends: Sequence[tuple], strong: str, room: _Room) -> str:
    """Names at the right ends of curves: above them, or before the end of a curve that falls; none on another.

    ends: (name, the last two places and levels of the curve).
    """
    out, free = "", math.inf
    for name, *last in sorted(ends, key=lambda end: -end[-1][1]):
        place, level = last[-1]
        falls = level - last[0][1] > 8
        free = min(level + 4 if falls else level - 5, free)
        weight = "700" if name == strong else "400"
        out += room.text(name, _SMALL, [(place - 0.04 * falls, "end", 0, free)],
                         f' font-size="13" font-weight="{weight}"')
        free -= 15
    return out


def _sample(curve: Sequence, most: int = 8) -> list:
    """At most `most` points of a curve, its ends among them, for the table."""
    if len(curve) <= most:
        return list(curve)
    return [curve[round(n * (len(curve) - 1) / (most - 1))] for n in range(most)]


THINNEST = 0.006  # of a timeline's width, for what takes any time at all: less disappears in its white rim


def timeline(lanes: Sequence[tuple[str, Sequence[tuple[str, float, float]]]], title: str, description: str, *,
             guess: tuple[float, str] | None = None, limit: tuple[float, str] | None = None) -> Figure:
    """What happens when: spans on lanes over one linear axis of seconds.

    lanes: (label, [(what, start, seconds), …]). guess and limit: (seconds, label) of a line across all lanes.
    Raises ValueError when there are no lanes or a time is negative.
    """
    if not lanes:
        raise ValueError("lanes is empty; a timeline needs at least one")
    for label, spans in lanes:
        for what, start, seconds in spans:
            checks.not_negative(f"{label}: {what}", min(start, seconds))
    marks = _marks(limit, guess)
    ends = [start + seconds for _, spans in lanes for _, start, seconds in spans] + [mark[0] for mark in marks]
    high = max(ends, default=0) * 1.02 or 1
    axis = Axis("time", 0, high, units.format_time, time_ticks(high), log=False)
    names = list(dict.fromkeys(what for _, spans in lanes for what, _, _ in spans))
    y = top = 19 * len(marks) + 4
    out = leads = ""
    for label, spans in lanes:
        busy = sum(seconds for _, _, seconds in spans)
        lead, more = _lead(label, units.format_time(busy) if spans else "idle", y + 14, bold=bool(spans))
        leads, y = leads + lead, y + more
        out += f'<rect x="0" y="{y + 21:g}" width="100%" height="26" fill="currentColor" fill-opacity=".07"/>'
        for what, start, seconds in spans:
            place, width = axis.at(start), axis.at(start + seconds) - axis.at(start)
            out += _segment(place, y + 21, max(width, THINNEST) if seconds else 0, 26, what, names.index(what))
            if width > 0.024 * len(what):
                out += _inside(place + width / 2, y + 39, what, what, names.index(what))
        y += 58
    out = _ticks_across(axis, top, y) + out + _mark_lines(marks, axis, top, y) + _over(leads)
    table = tuple((label, what, units.format_time(start), units.format_time(seconds))
                  for label, spans in lanes for what, start, seconds in spans)
    legend = tuple((name, _swatch(name, order)) for order, name in enumerate(names))
    return Figure(title, description, ("where", "what", "starts at", "takes"), table,
                  _svg(y + 40, out, title, description), legend)


def grid(gpus: Sequence[tuple[str, Mapping[str, float]]], title: str, description: str, *,
         limit: tuple[float, str] | None = None, most: int = 64) -> Figure:
    """Who holds what: a cell for each GPU, filled from below; eight in a row.

    gpus: (label, {part: bytes}). limit: (bytes, label) of a full cell; without it the fullest GPU fills its cell.
    most: cells drawn; further ones are counted in words. Raises ValueError when there are no GPUs.
    """
    if not gpus:
        raise ValueError("gpus is empty; a grid needs at least one")
    checks.whole("most", most)
    totals = [sum(parts.values()) for _, parts in gpus]
    full = limit[0] if limit else max(totals) or 1
    names = _names([parts for _, parts in gpus])
    across, cell, height = 8, 0.115, 96  # an eighth of a cell in four parts can still be told apart
    out = ""
    for number, (label, parts) in enumerate(gpus[:most]):
        x, y = (number % across) / across, (number // across) * (height + 24) + 4
        level, held = y + height, ""
        for name, value in parts.items():
            tall = min(value / full * height, level - y)
            if tall > 0:
                level -= tall
                held += _segment(x, level, cell, tall, name, names.index(name))
        over = sum(parts.values()) > full
        rim = (f'<rect x="{_percent(x)}" y="{y}" width="{_percent(cell)}" height="{height}" fill="none" '
                f'stroke="currentColor" stroke-opacity="{1 if over else 0.45}" stroke-width="{3 if over else 1}"/>')
        out += held + rim if over else rim + held  # a rim above a thin part would hide it
        out += _text(x + cell / 2, y + height + 15, label + (" over" if over else ""), "middle", _MUTED)
    bottom = -(-min(len(gpus), most) // across) * (height + 24) + 4
    words = [f"A full cell is {limit[1]}."] if limit else []
    words += [f"{len(gpus) - most:,} more are not drawn."] if len(gpus) > most else []
    if words:
        out, bottom = out + _text(0, bottom + 14, " ".join(words), extra=_MUTED), bottom + 22
    table = tuple((label, *(units.format_bytes(parts.get(name, 0)) for name in names), units.format_bytes(total))
                  for (label, parts), total in zip(gpus[:most], totals, strict=False))
    legend = tuple((name, _swatch(name, order)) for order, name in enumerate(names))
    return Figure(title, description, ("GPU", *names, "total"), table, _svg(bottom, out, title, description), legend)


def shelves(rows: Sequence[tuple[str, str, Sequence[tuple[str, str, bool]]]], title: str, description: str, *,
            solid: str, dashed: str) -> Figure:
    """What stands on which shelf: one shelf a row, the top one first, three boxes beside each other.

    rows: (label, what is written at its right, [(name, part whose colour it takes, whether it is drawn solid), …]).
    solid and dashed: what the two looks of a box mean. Raises ValueError when there are no rows.
    """
    if not rows:
        raise ValueError("rows is empty; shelves need at least one")
    across, height, gap = 3, 26, 0.012
    width = (1 - gap * (across - 1)) / across
    y, out = 0, ""
    for label, written, boxes in rows:
        lead, more = _lead(label, written, y + 14, bold=False)
        out, y = out + f'<g font-weight="600">{lead}</g>', y + more + 24
        for number, (name, part, is_solid) in enumerate(boxes):
            x, top = number % across * (width + gap), y + number // across * (height + 6)
            shade = colour(part, number)
            look = f'fill="{shade}"'
            if not is_solid:
                look = f'fill="none" stroke="{shade}" stroke-width="2" stroke-dasharray="5 3"'
            out += f'<rect x="{_percent(x)}" y="{top:g}" width="{_percent(width)}" height="{height}" rx="4" {look}/>'
            ink = ' fill="#fff" font-weight="600"' if is_solid else ""
            out += _text(x + width / 2, top + 18, name, "middle", f' font-size="13"{ink}')
        y += -(-len(boxes) // across) * (height + 6)
        out += _line(0, y + 2, 1, y + 2, 'stroke-opacity=".5"')
        y += 16
    table = tuple((label, written, *(", ".join(name for name, _, is_solid in boxes if is_solid == wanted) or "-"
                                     for wanted in (True, False))) for label, written, boxes in rows)
    look = "border:2px {};box-sizing:border-box;width:1.6em"
    legend = ((solid, look.format("solid") + ";background:currentColor"), (dashed, look.format("dashed")))
    return Figure(title, description, ("", "", solid, dashed), table, _svg(y - 10, out, title, description), legend)
