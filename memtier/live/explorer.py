"""Explorer: a function from values to a view, declared with its controls, presets and an optional prediction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from memtier.drawing import Figure
from memtier.live.controls import QUANTITIES, Choice, Slider
from memtier.live.live import Buttons, Fields, Group, Live, Slot
from memtier.live.text import number, paragraphs, plain

SINCE = "That was the question; what follows is for the values that are set now."  # below a guess that was revealed


@dataclass(frozen=True)
class View:
    """What an explorer shows: figures, one sentence with the answer, and perhaps a note."""

    figures: Figure | Sequence[Figure]
    say: str
    note: str = ""

    @property
    def html(self) -> str:
        figures = [self.figures] if isinstance(self.figures, Figure) else self.figures
        drawn = "".join(figure.html for figure in figures)
        return f'<div class="mt-figures">{drawn}</div>' + paragraphs(self.note)


@dataclass(frozen=True)
class Prediction:
    """One guess before the reveal, on a log slider, or among options.

    values: the controls' values the question is about; locking the guess in sets them.
    truth: (values) → the right number or option. low, high, unit: of the slider. options: value → label, instead of it.
    lesson: what the answer teaches, said after it; a text or (values) → text.
    """

    prompt: str
    truth: Callable[[Mapping], object]
    values: Mapping = field(default_factory=dict)
    low: float = 1
    high: float = 1000
    unit: str = ""
    options: Mapping | None = None
    lesson: str | Callable[[Mapping], str] = ""

    @property
    def control(self) -> Slider | Choice:
        if self.options is not None:
            return Choice("guess", "Your guess", self.options, next(iter(self.options)), open=True)
        stops = Slider("guess", "Your guess", self.low, self.high, self.low, "log", self.unit).stops
        return Slider("guess", "Your guess", self.low, self.high, stops[len(stops) // 2], "log", self.unit)

    def reveal(self, guess, values: Mapping) -> str:
        """The guess beside the truth, in a sentence, and the lesson."""
        truth = self.truth(values)
        lesson = self.lesson(values) if callable(self.lesson) else self.lesson
        if self.options is not None:
            right = "That is right." if guess == truth else f"It is: {self.options[truth]}."
            return f"You guessed: {self.options[guess]}. {right} {lesson}"
        say = QUANTITIES[self.unit].say
        ratio = max(guess, truth) / min(guess, truth)
        far = "that is close" if ratio < 1.25 else f"{number(ratio)} times {'less' if truth < guess else 'more'}"
        return f"You guessed {say(guess)}. It is **{say(truth)}**: {far}. {lesson}"


@dataclass(frozen=True)
class Explorer(Live):
    """A title, at most three controls in sight, named presets, an optional prediction, and view(**values) → View.

    presets: name → the values it sets; the others return to their defaults, but a reader's own file stays.
    view gets every control's value by name, and `guess` as well when a numeric prediction is declared (None before it).
    Raises ValueError when more than three controls are in sight or a preset names an unknown control.
    """

    name: str
    title: str
    controls: Sequence
    view: Callable[..., View]
    presets: Mapping[str, Mapping] = field(default_factory=dict)
    predict: Prediction | None = None
    intro: str = ""
    more: str = "More"

    def __post_init__(self):
        known = [control.name for control in self.controls]
        if sum(not control.more for control in self.controls) > 3:
            raise ValueError(f"{self.name} has {len(known)} controls; at most three may be in sight, mark others "
                             "more=True")
        for values in (*self.presets.values(), self.predict.values if self.predict else {}):
            for name in values:
                if name not in known:
                    raise ValueError(f"{self.name} has no control {name!r}; it has {', '.join(known)}")

    @property
    def defaults(self) -> dict:
        return {control.name: control.default for control in self.controls}

    def blocks(self) -> tuple:
        guess = ()
        if self.predict:
            guess = (Group("predict", (Slot("prompt"), Fields((self.predict.control,)),
                                       Buttons((("Lock in my guess", "guess"), ("Skip", "skip"))))), Slot("reveal"))
        behind = [control for control in self.controls if control.more]
        more = (Fields(behind, more=self.more),) if behind else ()
        tries = tuple((name, do) for name, do, _ in self.frames())
        presets = (Buttons(tries, "Try", drawn=True),) if tries else ()
        sight = [control for control in self.controls if not control.more]
        return (Slot("intro"), *guess, *presets, Fields(sight), *more, Slot("say"), Slot("view"))

    def frames(self) -> tuple:
        return tuple((name, f"preset {n}", ("say", "view")) for n, name in enumerate(self.presets))

    def respond(self, ask: Mapping) -> dict:
        state, do = dict(ask.get("state") or {}), ask.get("do", "")
        guessing = do == "guess" and self.predict
        controls = [*self.controls, *([self.predict.control] if guessing else [])]
        values, invalid = self.read(controls, ask.get("values") or {})
        if do:  # a button sets what it needs; what does not read falls back, so that nothing bars the way
            values = self.defaults | values
            invalid = {name: sentence for name, sentence in invalid.items() if name == "guess"}
        if invalid:
            return {"invalid": invalid}
        if guessing:
            state = {"guess": values.pop("guess")}
            values |= self.predict.values
            state["reveal"] = self.predict.reveal(state["guess"], values)
        if do == "skip":
            state["skipped"] = True
        if do.startswith("preset "):
            kept = {name: value for name, value in values.items() if name in self._files()}
            values = self.defaults | list(self.presets.values())[int(do.split()[1])] | kept
        return self._reply(values, state)

    def _files(self) -> set:
        return {control.name for control in self.controls if any(part.kind == "file" for part in control.parts)
                and control.default is None}

    def _reply(self, values: dict, state: dict) -> dict:
        asked = all(values[name] == value for name, value in (self.predict.values if self.predict else {}).items())
        mark = {}
        if self.predict and self.predict.options is None:  # a guess is drawn where it answers what was asked
            mark = {"guess": state.get("guess") if asked else None}
        view = self.view(**values, **mark)
        slots = {"intro": paragraphs(self.intro), "say": paragraphs(view.say), "view": view.html}
        if self.predict:
            reveal = state.get("reveal", "")
            slots |= {"prompt": paragraphs(f"**Guess first.** {self.predict.prompt}"),
                      "reveal": paragraphs(reveal if asked or not reveal else f"{reveal}\n\n{SINCE}")}
        return {"slots": slots, "say": plain(view.say), "state": state,
                "controls": {control.name: control.write(values[control.name]) for control in self.controls},
                "hidden": {"predict": "guess" in state or "skipped" in state} if self.predict else {}}
