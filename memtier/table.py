"""A table for readers: a caption, rows of text, and numbered footnotes for what each figure rests on."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

# Text takes the page's own colour and lines are half-clear grey, so dark and light pages both show it.
# A wide table scrolls inside its own box; the box takes the focus, so that a keyboard can scroll it too.
_STYLE = """<style>
.mt-table-box{overflow-x:auto;margin:0 0 .4em}
.mt-table-box table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0;color:inherit;font-size:.92em}
.mt-table-box caption{caption-side:top;text-align:left;font-weight:600;padding:0 0 .4em;color:inherit}
.mt-table-box tr,.mt-table-box tr:nth-child(n){background:none}
.mt-table-box th,.mt-table-box td{text-align:left;vertical-align:top;padding:.25em 1em .25em 0;border:0;
border-bottom:1px solid #8886;white-space:nowrap}
.mt-table-box th[scope=col]{font-weight:600}
.mt-table-box th[scope=row]{min-width:8em;font-weight:600;white-space:normal}
.mt-table-box .mt-long{min-width:15em;white-space:normal}
.mt-notes{font-size:.85em;margin:0 0 1em;padding-left:2em}
</style>
"""
_LONG = 32  # a cell of so many letters is broken over lines; "3.35 TB/s" and "specification, measured" are not


@dataclass(frozen=True)
class Cell:
    """A text and the numbers of the footnotes (from 1) it rests on."""

    text: str
    notes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.text + "".join(f" [{number}]" for number in self.notes)

    @property
    def html(self) -> str:
        marks = ", ".join(str(number) for number in self.notes)
        return escape(self.text) + (f"<sup>&nbsp;{marks}</sup>" if marks else "")


@dataclass(frozen=True)
class Note:
    """A footnote: what it links to, and the words before and after that."""

    text: str
    url: str = ""
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return self.before + self.text + self.after

    @property
    def html(self) -> str:
        link = f'<a href="{escape(self.url)}">{escape(self.text)}</a>' if self.url else escape(self.text)
        return escape(self.before) + link + escape(self.after)


class Notes:
    """Numbers footnotes in the order in which they are first asked for."""

    def __init__(self):
        self._numbers: dict[Note, int] = {}

    def number(self, text: str, url: str = "", before: str = "", after: str = "") -> int:
        """The number of this footnote; a new one if it has not been asked for before."""
        return self._numbers.setdefault(Note(text, url, before, after), len(self._numbers) + 1)

    def list(self) -> tuple[Note, ...]:
        """The footnotes, number 1 first."""
        return tuple(self._numbers)


@dataclass(frozen=True)
class Table:
    """Rows under a header, with a caption and footnotes.

    header: column names. rows: tuples of texts or Cells, the first of which names the row.
    notes: the footnotes, number 1 first. Raises ValueError for a row of another length.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    notes: tuple[Note, ...] = ()

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"rows has {row!r}; it must have {len(self.header)} entries, as the header has")

    def __str__(self) -> str:
        """Aligned columns, then the footnotes."""
        lines = [self.header, *(tuple(str(cell) for cell in row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        text = ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
                for line in lines]
        notes = [f"[{number}] {note}" for number, note in enumerate(self.notes, 1)]
        return "\n".join([self.caption, *text, *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.header)
        body = "\n".join(f"<tr>{_html_row(row)}</tr>" for row in self.rows)
        notes = "\n".join(f"<li>{note.html}</li>" for note in self.notes)
        notes = f'\n<ol class="mt-notes">\n{notes}\n</ol>' if notes else ""
        return (f'{_STYLE}<div class="mt-table-box" role="region" tabindex="0" aria-label="{escape(self.caption)}">'
                f'<table class="mt-table">\n<caption>{escape(self.caption)}</caption>\n'
                f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>{notes}")


def _html_row(row: Iterable[str | Cell]) -> str:
    first, *others = (cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
    return f'<th scope="row">{first.html}</th>' + "".join(
        f"<td{' class=mt-long' if len(cell.text) > _LONG else ''}>{cell.html}</td>" for cell in others)
