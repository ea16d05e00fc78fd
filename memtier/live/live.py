"""Live: what explorers and questions have in common. Both fronts know only this.

A live thing is a list of blocks, and `respond(ask) → reply`, plain JSON both ways:

    ask    {"do": "" or a button's word, "values": {control: raw parts}, "state": what the last reply gave}
    reply  {"slots": {slot: html}, "say": text to announce, "controls": {control: parts to show},
            "hidden": {group: bool}, "state": {…}}, or {"invalid": {control: sentence}}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STALE = "Shown for the last valid values."  # beside an answer that is older than what stands in the controls


@dataclass(frozen=True)
class Slot:
    """A place that replies fill with HTML."""

    name: str


@dataclass(frozen=True)
class Fields:
    """Controls, in sight, or folded away under the title `more`."""

    controls: Sequence
    more: str = ""


@dataclass(frozen=True)
class Buttons:
    """Buttons: (label, what it asks to do). main: the first answers the Enter key as well. drawn: a page shows their
    frames at once, before Python has answered."""

    buttons: Sequence[tuple[str, str]]
    label: str = ""
    main: bool = False
    drawn: bool = False


@dataclass(frozen=True)
class Group:
    """Blocks that appear and vanish together."""

    name: str
    blocks: Sequence


class Live:
    """Base of Explorer and Question: needs name, title, blocks() and respond(ask)."""

    def frames(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        """(label, do, slots) of what a page keeps drawn, for before Python has loaded and for no JavaScript at all."""
        return ()

    @staticmethod
    def read(controls: Sequence, raw: Mapping) -> tuple[dict, dict]:
        """(values, invalid): each control's value, or the sentence that says what is wrong with what stands in it."""
        values, invalid = {}, {}
        for control in controls:
            try:
                parts = raw.get(control.name)
                values[control.name] = control.default if parts is None else control.read(parts)
            except ValueError as error:
                invalid[control.name] = str(error)
        return values, invalid

    @staticmethod
    def problem(error: Exception) -> str:
        """What a reader is told when an answer fails: a sentence, never a traceback, and the front goes on."""
        if isinstance(error, ValueError):
            return str(error)
        return f"memtier could not work this out ({type(error).__name__}: {error})."

    def _repr_html_(self) -> str:
        from memtier.live import page  # page needs Live; at the top the import would be circular

        return page.render(self)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        """text/html for pages, and the widget view where ipywidgets is installed."""
        bundle = {"text/html": self._repr_html_(), "text/plain": f"{type(self).__name__}: {self.title}"}
        try:
            from memtier.live import jupyter  # the browser's worker has no ipywidgets
        except ImportError:
            return bundle
        return bundle | jupyter.Front(self).widget_view()
