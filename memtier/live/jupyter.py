"""The Jupyter front: a live thing as ipywidgets, driven by the same blocks and replies as the page.

The only module of memtier that imports ipywidgets. Redraws go into widgets.HTML: nbval can compare an output that holds
them, which it cannot with `interact` or `Output`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from memtier.live.controls import Part
from memtier.live.live import STALE, Buttons, Fields, Group, Live, Slot

_WIDE = widgets.Layout(width="auto", max_width="44em")
_LABELLED = {"description_width": "initial"}
CLASS = "memtier-live"
# No trait wraps the text beside a box that can be ticked; Jupyter cuts it off.
_WRAPPED = (f"<style>.{CLASS} .widget-checkbox label, .{CLASS} .widget-checkbox label span "
            "{white-space:normal; overflow:visible; height:auto; line-height:1.4}</style>")


@dataclass(frozen=True)
class _Input:
    """A part as a widget: how to get and set what a reply calls its value."""

    widget: widgets.Widget
    get: Callable
    set: Callable
    watched: tuple


class Front:
    """Shows one live thing; `widget` is what Jupyter displays.

    inputs: {control: {part: input}}. slots: {slot: HTML widget}. errors: {control: HTML widget}.
    choosers: {control: file upload}. buttons: {what it asks to do: button}. groups: {group: box}.
    """

    def __init__(self, live: Live):
        self.live = live
        self.state: Mapping = {}
        self.inputs: dict[str, dict[str, _Input]] = {}
        self.slots: dict[str, widgets.HTML] = {}
        self.errors: dict[str, widgets.HTML] = {}
        self.groups: dict[str, widgets.VBox] = {}
        self.buttons: dict[str, widgets.Button] = {}
        self.problem = widgets.HTML()
        self.stale = widgets.HTML()
        self.choosers: dict[str, widgets.FileUpload] = {}
        self._last: dict[str, str] = {}
        self._filling = False
        heading = widgets.HTML(f"{_WRAPPED}<strong>{escape(live.title)}</strong>")
        blocks = [self._block(block) for block in live.blocks()]
        self.widget = widgets.VBox([heading, *blocks, self.problem], layout=_WIDE)
        self.widget.add_class(CLASS)
        self._take(live.respond({}))

    def widget_view(self) -> dict:
        """The mime entry by which Jupyter finds the widget."""
        kind = "application/vnd.jupyter.widget-view+json"
        return {kind: {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}}

    def ask(self, do: str = "") -> None:
        """Send what stands in the widgets, show what comes back."""
        raw = {name: {part: each.get() for part, each in parts.items()} | {"last": self._last.get(name, "")}
               for name, parts in self.inputs.items()}
        try:
            self._take(self.live.respond({"do": do, "values": raw, "state": self.state}), pressed=bool(do))
        except Exception as error:  # whatever it is, the notebook goes on
            self._mark(True)
            self.problem.value = _sentence(self.live.problem(error))

    def _take(self, reply: Mapping, pressed: bool = False) -> None:
        invalid = reply.get("invalid", {})
        for name, error in self.errors.items():
            error.value = _sentence(invalid.get(name, ""))
        self._mark(bool(invalid))
        if invalid:
            return
        self.problem.value = ""
        self.state = reply["state"]
        for slot, html in reply["slots"].items():
            weight = ";font-weight:600" if slot == "say" else ""
            self.slots[slot].value = f'<div style="line-height:1.5{weight}">{html}</div>' if html else ""
        self._filling = True
        try:
            for name, parts in reply["controls"].items():
                for part, value in parts.items():
                    self.inputs[name][part].set(value)
                if pressed:
                    self._last.pop(name, None)
        finally:
            self._filling = False
        self._fold()
        for group, hidden in reply["hidden"].items():
            self.groups[group].layout.display = "none" if hidden else None

    def _mark(self, stale: bool) -> None:
        """Say whether what is shown is no longer what stands in the controls."""
        self.stale.value = f"<em>{STALE}</em>" if stale and "view" in self.slots else ""

    def _block(self, block):
        if isinstance(block, Slot):
            self.slots[block.name] = slot = widgets.HTML(layout=_WIDE)
            return widgets.VBox([self.stale, slot]) if block.name == "say" else slot
        if isinstance(block, Group):
            self.groups[block.name] = widgets.VBox([self._block(each) for each in block.blocks])
            return self.groups[block.name]
        if isinstance(block, Fields):
            box = widgets.VBox([self._control(control) for control in block.controls])
            return widgets.Accordion([box], titles=(block.more,), selected_index=None) if block.more else box
        return self._buttons(block)

    def _buttons(self, block: Buttons):
        row = [widgets.Label(block.label)] if block.label else []
        for label, do in block.buttons:
            button = widgets.Button(description=label, layout=widgets.Layout(width="auto"))
            button.on_click(lambda _, do=do: self.ask(do))
            self.buttons[do] = button
            row.append(button)
        return widgets.HBox(row, layout=widgets.Layout(flex_flow="row wrap"))

    def _control(self, control):
        self.errors[control.name] = widgets.HTML()
        self.inputs[control.name] = parts = {}
        first, shown = control.write(control.default), []
        for part in control.parts:
            if part.kind == "file":
                shown.append(self._file(control.name, part))
                continue
            parts[part.name] = made = _made(part)
            if part.name in first:
                made.set(first[part.name])
            for trait in made.watched:
                trait.observe(lambda _, part=part: self._touched(control.name, part.name), "value")
            shown.append(made.widget)
        short = len(shown) == 2 and control.parts[0].kind == "range"
        box = widgets.HBox(shown, layout=widgets.Layout(flex_flow="row wrap")) if short else widgets.VBox(shown)
        return widgets.VBox([box, self.errors[control.name]])

    def _file(self, name: str, part: Part):
        chooser = widgets.FileUpload(accept=".json", description=part.label, layout=widgets.Layout(width="auto"))

        def read(_):
            if chooser.value:
                self.inputs[name][part.into].set(bytes(chooser.value[0]["content"]).decode("utf-8", "replace"))

        chooser.observe(read, "value")
        self.choosers[name] = chooser
        return chooser

    def _touched(self, name: str, part: str) -> None:
        if not self._filling:
            self._last[name] = part
            self._fold()
            self.ask()

    def _fold(self) -> None:
        """Show the parts that belong to what is chosen."""
        for control in _controls(self.live.blocks()):
            for part in control.parts:
                if part.when:
                    name, value = part.when
                    self._shown(control.name, part).layout.display = (
                        None if self.inputs[control.name][name].get() == value else "none")

    def _shown(self, name: str, part: Part):
        return self.choosers[name] if part.kind == "file" else self.inputs[name][part.name].widget


def _controls(blocks):
    for block in blocks:
        if isinstance(block, Fields):
            yield from block.controls
        elif isinstance(block, Group):
            yield from _controls(block.blocks)


def _sentence(text: str) -> str:
    return f'<span role="alert" style="color:var(--jp-error-color1,#b3261e)">{escape(text)}</span>' if text else ""


def _tick(text: str) -> widgets.Checkbox:
    """A box to tick whose text is as wide as it needs to be."""
    return widgets.Checkbox(description=text, indent=False, style=_LABELLED, layout=widgets.Layout(width="auto"))


def _made(part: Part) -> _Input:
    """The widget of a part."""
    if part.kind == "range":
        slider = widgets.IntSlider(min=0, max=len(part.says) - 1, description=part.label, readout=False,
                                   style=_LABELLED, layout=widgets.Layout(width="26em", max_width="100%"))
        return _Input(slider, lambda: str(slider.value), lambda value: setattr(slider, "value", int(value)), (slider,))
    if part.kind in ("text", "area"):
        kind = widgets.Text if part.kind == "text" else widgets.Textarea
        beside = part.label.endswith(", exact value")
        box = kind(description="" if beside else part.label, continuous_update=False, style=_LABELLED,
                   tooltip=part.label, layout=widgets.Layout(width="11em" if beside else "auto"))
        return _Input(box, lambda: box.value, lambda value: setattr(box, "value", value), (box,))
    if part.kind == "tick":
        tick = _tick(part.label)
        return _Input(tick, lambda: tick.value, lambda value: setattr(tick, "value", value), (tick,))
    options = [(text, key) for key, text in part.options]
    if part.kind == "boxes":
        ticks = {key: _tick(text) for text, key in options}

        def tick_all(chosen):
            for key, tick in ticks.items():
                tick.value = key in chosen

        box = widgets.VBox([widgets.Label(part.label), *ticks.values()], layout=widgets.Layout(width="auto"))
        return _Input(box, lambda: [key for key, tick in ticks.items() if tick.value], tick_all, tuple(ticks.values()))
    short = part.kind == "radio" and all(len(text) <= 12 for text, _ in options)
    kind = widgets.Dropdown if part.kind == "list" else widgets.ToggleButtons if short else widgets.RadioButtons
    chosen = kind(options=options, value=None if part.kind == "radio" else options[0][1], description=part.label,
                  style=_LABELLED | ({"button_width": "auto"} if short else {}),
                  layout=widgets.Layout(width="auto", max_width="100%"))
    return _Input(chosen, lambda: chosen.value or "", lambda value: setattr(chosen, "value", value or None), (chosen,))
