"""Question: a prompt over numbers drawn from a seed, the answer computed from them, and what to say to a wrong one."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memtier.live.controls import Choice, NumberBox, Several
from memtier.live.live import Buttons, Fields, Live, Slot
from memtier.live.text import number, paragraphs, plain


@dataclass(frozen=True)
class Misconception:
    """A belief that is recognised by the answer it leads to: value(values) → that wrong answer; say: what to tell."""

    value: Callable[[Mapping], object]
    say: str | Callable[[Mapping], str]


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what to say to it."""

    right: bool
    say: str


@dataclass(frozen=True)
class Question(Live):
    """One live question.

    draw: (random.Random) → the numbers of this round, by name; the same seed always draws the same.
    prompt, solution: a text with {names} of the drawn values, or (values) → text; the marks of memtier.live.text work.
    kind: "numeric" (unit: a key of controls.QUANTITIES), "choice" or "multiple" (options: value → label; the answer is
    an option, or a set of them). answer: (values) → the right answer. tolerance: of a numeric answer, relative; 2 %
    accepts 70e9 for 70,553,706,496 and still tells GB from GiB (7.4 %).
    hints: texts, given one at a time. misconceptions: tried in order when the answer is not right.
    Raises ValueError when kind or options do not fit.
    """

    name: str
    prompt: str | Callable[[Mapping], str]
    draw: Callable[[random.Random], Mapping]
    answer: Callable[[Mapping], object]
    solution: str | Callable[[Mapping], str]
    kind: str = "numeric"
    unit: str = ""
    options: Mapping | None = None
    tolerance: float = 0.02
    misconceptions: Sequence[Misconception] = ()
    hints: Sequence[str | Callable[[Mapping], str]] = ()
    title: str = "Question"

    def __post_init__(self):
        if self.kind not in ("numeric", "choice", "multiple"):
            raise ValueError(f"kind is {self.kind!r}; it must be one of numeric, choice, multiple")
        if (self.kind == "numeric") == bool(self.options):
            raise ValueError(f"{self.name} is {self.kind} and its options are {self.options!r}; "
                             "choice and multiple need options, numeric takes none")

    @property
    def control(self):
        """The control that takes the answer."""
        if self.kind == "numeric":
            with_unit = {"bytes": " (with its unit, such as 1.12 TB)",
                         "binary bytes": " (with its unit, such as 1.12 GiB)",
                         "bytes/s": " (with its unit, such as 63 GB/s)", "s": " (with its unit, such as 42 ms)",
                         "share": " (such as 25 % or 0.25)"}.get(self.unit, "")
            return NumberBox("answer", "Your answer" + with_unit, self.unit)
        if self.kind == "choice":
            return Choice("answer", "Your answer", self.options, open=True)
        return Several("answer", "Your answer (tick all that apply)", self.options)

    def values(self, seed: int) -> dict:
        """The numbers drawn from a seed."""
        return dict(self.draw(random.Random(seed)))

    def say(self, text: str | Callable[[Mapping], str], values: Mapping) -> str:
        """A text with this round's numbers in it."""
        return text(values) if callable(text) else text.format(**values)

    def check(self, values: Mapping, given) -> Verdict:
        """Whether `given` (a number in base units, an option, or a set of options) answers the question."""
        truth = self.answer(values)
        if self._same(given, truth):
            return Verdict(True, "Right.")
        for belief in self.misconceptions:
            if self._same(given, belief.value(values)):
                return Verdict(False, f"Not yet. {self.say(belief.say, values)}")
        return Verdict(False, f"Not yet. {self._general(given, truth)}")

    def _same(self, given, wanted) -> bool:
        if self.kind == "numeric":
            return abs(given - wanted) <= self.tolerance * abs(wanted)
        return given == (frozenset(wanted) if self.kind == "multiple" else wanted)

    def _general(self, given, truth) -> str:
        """What can be said of any wrong answer without giving the right one away."""
        if self.kind == "choice":
            return "Another one fits better; a hint may help."
        if self.kind == "multiple":
            missing, extra = len(frozenset(truth) - given), len(given - frozenset(truth))
            verbs = ["is" if count == 1 else "are" for count in (missing, extra)]
            return f"{missing} {verbs[0]} missing, {extra} {verbs[1]} too many."
        if given <= 0 or truth == 0:
            return "The answer is above zero." if truth else "Your answer is too large."
        if self.unit == "bytes":
            for power, names in enumerate(("KiB for KB", "MiB for MB", "GiB for GB", "TiB for TB"), start=1):
                if any(self._same(given * factor, truth) for factor in (1.024**power, 1.024**-power)):
                    return f"You seem to have taken {names}, or the other way round: they are not the same size."
            if given < 10**6 <= truth:
                return "A number without a unit is read as bytes; write the unit too, such as GB."
        if self.unit == "share" and given <= 1 and self._same(given / 100, truth):
            return "A number up to 1 is read as a fraction; write the sign too, such as 0.5 %."
        off = max(given, truth) / min(given, truth)
        far = f", by a factor of some {number(off, 2)}" if off > 1.5 else ""
        if off > 10**6:
            far = ", by a factor of more than a million"
        return f"Your answer is too {'large' if given > truth else 'small'}{far}."

    def blocks(self) -> tuple:
        buttons = [("Check", "check"), *([("Hint", "hint")] if self.hints else []),
                   ("Show the solution", "solution"), ("New numbers", "new")]
        return (Slot("prompt"), Fields((self.control,)), Buttons(buttons, main=True), Slot("say"), Slot("hints"),
                Slot("solution"))

    def frames(self) -> tuple:
        hints = (("Hints", "hints", ("hints",)),) if self.hints else ()
        return *hints, ("The worked solution", "solution", ("solution",))

    def respond(self, ask: Mapping) -> dict:
        state, do = {"seed": 0, "hints": 0} | (ask.get("state") or {}), ask.get("do", "")
        said, controls = "", {}
        if do == "new":
            state = {"seed": state["seed"] + 1, "hints": 0}
            controls = {"answer": self.control.write(self.control.default)}
        values = self.values(state["seed"])
        if do == "new":
            said = f"New numbers. {self.say(self.prompt, values)}"
        if do == "check":
            given, invalid = self.read([self.control], {"answer": {}} | (ask.get("values") or {}))
            if invalid:
                return {"invalid": invalid}
            verdict = self.check(values, given["answer"])
            said, state["right"] = verdict.say, verdict.right
        elif do == "hint":
            state["hints"] = min(state["hints"] + 1, len(self.hints))
            said = self.say(self.hints[state["hints"] - 1], values)
        elif do == "hints":  # all of them: a frame of the page, where nothing can be asked for one at a time
            state["hints"] = len(self.hints)
        elif do == "solution":
            state["solved"] = True
            said = "The worked solution is below."
        hints = "\n".join(f"- {self.say(hint, values)}" for hint in self.hints[:state["hints"]])
        solution = self.say(self.solution, values) if state.get("solved") else ""
        slots = {"prompt": paragraphs(self.say(self.prompt, values)), "hints": paragraphs(hints),
                 "solution": paragraphs(solution)}
        if do == "check":
            slots["say"] = f'<div class="mt-{"right" if state["right"] else "wrong"}">{paragraphs(said)}</div>'
        elif do in ("new", ""):
            slots["say"] = ""
        return {"slots": slots, "say": plain(said), "controls": controls, "hidden": {}, "state": state}
