"""The page front: a live thing as HTML with native inputs, its first frame and a frame for each preset already drawn.

book/assets/js/live.js brings it to life; without JavaScript the drawn frames and their tables stand. The script knows
only the data attributes: data-live (the name), data-control, data-part, data-when, data-into, data-error, data-slot,
data-group, data-do, data-shows, data-frame, data-fill, data-note, data-problem, data-boot, data-status, and the texts
that data-boot carries.
A build that knows how much the reader will download writes it into the element marked data-live-size.
"""

import json
from html import escape

from memtier.live.controls import Part
from memtier.live.live import STALE, Buttons, Fields, Group, Live, Slot

FITS, FITS_WIDE = 24, 38  # letters that fit a list in a column of the fields, and in one of wide columns
_WIDE = ' style="grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr))"'
_ROW = ' style="grid-column:1/-1"'

SIZE = "about 7 MB"  # what a page without a build says; the build writes the measured size in its place


def render(live: Live) -> str:
    """The whole of a live thing as HTML. The same thing always gives the same text."""
    first = live.respond({})
    body = _blocks(live.blocks(), first)
    kept = "".join(_frame(label, do, live.respond({"do": do}), slots) for label, do, slots in live.frames())
    kept = f'<div class="mt-frames">{kept}</div>' if kept else ""
    return (f'<div class="mt-live" role="group" aria-label="{escape(live.title)}" data-live="{escape(live.name)}" '
            f'data-state="{_json(first["state"])}"><p class="mt-heading">{escape(live.title)}</p>'
            f'<form method="dialog" autocomplete="off">{body}</form>'
            f'<p class="mt-error" data-problem hidden></p>{_boot()}{kept}'
            '<p class="mt-status" role="status" aria-live="polite" data-status></p></div>')


def _frame(label: str, do: str, reply: dict, slots) -> str:
    fills = "".join(f'<div data-fill="{name}">{reply["slots"][name]}</div>' for name in slots)
    marks = ""
    if "view" in slots:  # a button shows it; the others are for readers without JavaScript
        marks = f' data-frame="{do}" data-controls="{_json(reply["controls"])}" data-say="{escape(reply["say"])}"'
    return f"<details{marks}><summary>{escape(label)}</summary>{fills}</details>"


def _json(value) -> str:
    return escape(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _boot() -> str:
    """What the page says of Python: its cost before it starts, that it starts, that it runs, that it cannot."""
    return ('<p class="mt-boot" data-boot data-starting="Starting Python in this page …" '
            'data-ready="Live: every number here is computed in this page, by memtier." '
            'data-failed="Python could not start in this page, so the drawn frames stand as they are." '
            'data-lost="That took too long, so Python was stopped; try again.">'
            "<span data-words>Touch a control and Python starts in this page: a download of "
            f"<span data-live-size>{SIZE}</span>, once.</span> "
            '<button type="button" class="mt-button" data-retry hidden>Try again</button></p>')


def _blocks(blocks, reply: dict) -> str:
    return "".join(_block(block, reply) for block in blocks)


def _block(block, reply: dict) -> str:
    if isinstance(block, Slot):
        note = f'<p class="mt-note" data-note hidden>{STALE}</p>'
        note = note if block.name == "say" and "view" in reply["slots"] else ""
        shown = reply["slots"].get(block.name, "")
        return f'{note}<div class="mt-{block.name}" data-slot="{block.name}">{shown}</div>'
    if isinstance(block, Group):
        hidden = " hidden" if reply["hidden"].get(block.name) else ""
        inside = _blocks(block.blocks, reply)
        return f'<div class="mt-group mt-needs-script" data-group="{block.name}"{hidden}>{inside}</div>'
    if isinstance(block, Fields):
        inside = "".join(_control(control, reply) for control in block.controls)
        wide = _WIDE if max(map(_letters, block.controls), default=0) > FITS else ""
        if block.more:
            return (f'<details class="mt-more mt-needs-script"><summary>{escape(block.more)}</summary>'
                    f'<div class="mt-fields"{wide}>{inside}</div></details>')
        return f'<div class="mt-fields mt-needs-script"{wide}>{inside}</div>'
    return _buttons(block)


def _letters(control) -> int:
    """Letters of the longest option in the control's list, if it has one: a list cuts off what does not fit."""
    return max((len(text) for part in control.parts if part.kind == "list" for _, text in part.options), default=0)


def _buttons(block: Buttons) -> str:
    label = f'<span class="mt-label">{escape(block.label)}</span> ' if block.label else ""
    out = ""
    for number, (text, do) in enumerate(block.buttons):
        main, drawn = block.main and number == 0, " data-shows" if block.drawn else ""
        out += (f'<button type="{"submit" if main else "button"}" class="mt-button" data-do="{do}"{drawn}>'
                f"{escape(text)}</button>")
    return f'<div class="mt-buttons mt-needs-script">{label}{out}</div>'


def _control(control, reply: dict) -> str:
    shown = reply["controls"].get(control.name) or control.write(control.default)
    parts = "".join(_part(part, shown, f"{control.name}") for part in control.parts)
    row = _ROW if _letters(control) > FITS_WIDE else ""
    return (f'<div class="mt-control" data-control="{control.name}"{row}>{parts}'
            '<p class="mt-error" data-error hidden></p></div>')


def _part(part: Part, shown: dict, group: str) -> str:
    value = shown.get(part.name, "")
    marks = f'data-part="{part.name}"'
    label = f'<span class="mt-label">{escape(part.label)}</span>'
    when = ""
    if part.when:
        hidden = "" if shown.get(part.when[0]) == part.when[1] else " hidden"
        when = f' data-when="{part.when[0]}={part.when[1]}"{hidden}'
    if part.kind == "range":
        says = escape("|".join(part.says))
        return (f'<label class="mt-range"{when}>{label}<input type="range" {marks} min="0" max="{len(part.says) - 1}" '
                f'value="{value}" aria-valuetext="{escape(part.says[int(value)])}" data-says="{says}"></label>')
    if part.kind == "text":
        box = f'<input type="text" class="mt-box" {marks} value="{escape(str(value))}" spellcheck="false"'
        if part.label.endswith(", exact value"):
            return f'{box} aria-label="{escape(part.label)}"{when}>'
        return f'<label class="mt-text"{when}>{label}{box}></label>'
    if part.kind == "area":
        return (f'<label class="mt-text"{when}>{label}<textarea class="mt-box" {marks} rows="4" spellcheck="false">'
                f"{escape(str(value))}</textarea></label>")
    if part.kind == "file":
        return (f'<label class="mt-text"{when}>{label}<input type="file" accept=".json,application/json" '
                f'data-into="{part.into}"></label>')
    if part.kind == "tick":
        return (f'<label class="mt-tick"{when}><input type="checkbox" {marks}{" checked" if value else ""}> '
                f"{escape(part.label)}</label>")
    if part.kind == "list":
        options = "".join(f'<option value="{escape(key)}"{" selected" if key == value else ""}>{escape(text)}</option>'
                          for key, text in part.options)
        return f'<label class="mt-list"{when}>{label}<select {marks}>{options}</select></label>'
    kind = "radio" if part.kind == "radio" else "checkbox"
    chosen = {value} if part.kind == "radio" else set(value or ())
    options = "".join(f'<label class="mt-option"><input type="{kind}" name="{group}" {marks} value="{escape(key)}"'
                      f'{" checked" if key in chosen else ""}> <span>{escape(text)}</span></label>'
                      for key, text in part.options)
    short = " mt-short" if kind == "radio" and all(len(text) <= 12 for _, text in part.options) else ""
    return (f'<fieldset class="mt-{part.kind}{short}"{when}><legend class="mt-label">{escape(part.label)}</legend>'
            f'<div class="mt-options">{options}</div></fieldset>')
