"""The mechanism behind explorers and questions, seen on a small one of each: controls, replies, the page, Jupyter."""

import json
import re
import sys
from dataclasses import replace
from datetime import datetime
from html import escape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import drawing, live, models, units
from memtier.live import Explorer, Misconception, Prediction, Question, View, jupyter, page
from memtier.live.controls import (
    QUANTITIES,
    Choice,
    FileChoice,
    ModelChoice,
    NumberBox,
    Several,
    Slider,
    Toggle,
)
from memtier.live.explorer import SINCE
from memtier.live.text import number, paragraphs, plain, several

CONFIG = {"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False}


def show(nbytes, kind, busy, guess=None) -> View:
    if kind == "never":
        raise ValueError("kind is 'never'; it must be another")
    if kind == "broken":
        raise ZeroDivisionError("oh")
    total = nbytes * (2 if busy else 1)
    figure = drawing.bars([(kind, {"weights": total})], "Bytes", "A bar.", guess=guess and (guess, "your guess"))
    return View(figure, f"{kind}: {units.format_bytes(total)}.", "A note.")


TOY = Explorer(
    name="toy.bytes",
    title="Bytes <of> a toy",
    controls=(Slider("nbytes", "Bytes", 1e3, 1e12, 1e9, "log", "bytes"),
              Choice("kind", "Kind", {"one": "one", "two": "two", "never": "never", "broken": "broken"}, "one"),
              Toggle("busy", "Busy", more=True)),
    view=show,
    presets={"a lot": {"nbytes": 1e12}, "two": {"kind": "two"}},
    predict=Prediction("How much?", truth=lambda values: values["nbytes"], values={"nbytes": 4e9, "busy": False},
                       low=1e6, high=1e12, unit="bytes", lesson="So it is."),
    intro="A toy.",
)

SUM = Question(
    name="toy.sum",
    title="A sum",
    prompt="{count} numbers of {each} bytes: **how many bytes?**",
    draw=lambda rng: {"count": rng.randrange(2, 99) * 10**9, "each": rng.choice((2, 4))},
    answer=lambda values: values["count"] * values["each"],
    unit="bytes",
    misconceptions=(Misconception(lambda values: values["count"], "You forgot the {each} bytes."),),
    hints=("Multiply.", lambda values: f"By {values['each']}."),
    solution="{count} × {each}.",
)
PICK = Question("toy.pick", "Which?", draw=lambda rng: {}, answer=lambda values: "b", solution="b.", kind="choice",
                options={"a": "first", "b": "second"}, misconceptions=(Misconception(lambda values: "a", "Not that."),))
PICK_ALL = Question("toy.all", "Which?", draw=lambda rng: {}, answer=lambda values: {"a", "c"}, solution="a, c.",
                    kind="multiple", options={"a": "first", "b": "second", "c": "third"})


@pytest.fixture
def known(monkeypatch):
    """memtier.live knows the toys too."""
    toys = {each.name: each for each in (TOY, SUM, PICK, PICK_ALL)}
    real = live.get
    monkeypatch.setattr(live, "get", lambda name: toys.get(name) or real(name))


def ask(name, **what):
    return json.loads(live.answer(json.dumps({"name": name} | what)))


# Controls

CONTROLS = (
    Slider("nbytes", "Bytes", 4e3, 10e12, 1e9, "log", "bytes"), Slider("share", "Share", 0, 1, 0.25, "linear", "share"),
    Slider("gpus", "GPUs", 1, 4096, 8, (1, 2, 4, 8, 64, 4096), "count"),
    Slider("wait", "Time", 1e-3, 1e6, 60, "log", "s"),
    Slider("rate", "Rate", 1e6, 1e12, 1e9, "log", "bytes/s"), Slider("depth", "Depth", 1, 1000, 1, "log", "count"),
    Slider("request", "Request", 512, 2**30, 4096, tuple(2**n for n in range(9, 31)), "binary bytes"),
    Choice("kind", "Kind", {1: "one", "two": "two"}, 1), Toggle("busy", "Busy"), ModelChoice("model", "Model"),
    Several("which", "Which", {"a": "first", 2: "second"}), FileChoice("own", "Own", "mine", dict),
)
SLIDERS = CONTROLS[:7]
by_name = pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
by_slider = pytest.mark.parametrize("slider", SLIDERS, ids=lambda slider: slider.name)


@by_name
def test_what_a_control_shows_reads_back_as_its_value(control):
    for value in (control.default, *control.extremes):
        assert control.read(json.loads(json.dumps(control.write(value)))) == value


@by_slider
def test_every_position_of_a_slider_reads_back_from_its_box(slider):
    (range_part, _) = slider.parts
    assert len(range_part.says) == len(slider.stops) >= 6
    assert list(slider.stops) == sorted(set(slider.stops))
    assert (slider.stops[0], slider.stops[-1]) == (slider.low, slider.high)
    for position, (stop, text) in enumerate(zip(slider.stops, range_part.says, strict=True)):
        moved = slider.read({"at": str(position), "text": "left over", "last": "at"})
        assert moved == stop
        assert slider.read({"at": "0", "text": text, "last": "text"}) == pytest.approx(stop, rel=1e-9)
        assert slider.write(stop) == {"at": str(position), "text": text}
        assert any(letter.isalpha() for letter in text) or slider.unit in ("count", "share")


@given(st.floats(4e3, 10e12))
def test_any_value_in_the_box_keeps_its_digits(value):
    slider = SLIDERS[0]
    assert slider.read(slider.write(value)) == pytest.approx(value, rel=1e-9)


def test_a_log_slider_steps_through_round_numbers():
    stops = Slider("n", "", 1, 100, 1, "log", "bytes").stops
    assert stops[:15] == (1, 1.2, 1.4, 1.6, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9, 10)
    assert stops[14:] == tuple(10 * stop for stop in stops[:15])
    assert Slider("n", "", 1, 20, 1, "log", "count").stops == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20)
    assert {60, 3600, 86400} <= set(Slider("t", "", 1, 1e6, 1, "log", "s").stops)


@pytest.mark.parametrize(("slider", "text", "words"), [
    (SLIDERS[0], "a lot", "'a lot' is not a size: "),
    (SLIDERS[0], "1 KB", "nbytes is '1 KB'; it must be from 4 KB to 10 TB"),
    (SLIDERS[0], "80 Gb", "bits"),
    (SLIDERS[1], "half", "'half' is not a share: "),
    (SLIDERS[1], "150 %", "share is '150 %'; it must be from 0 % to 100 %"),
    (SLIDERS[2], "0", "gpus is 0; it must be a whole number from 1 to 4096"),
    (SLIDERS[2], "2.5", "'2.5' is not a count: "),
    (SLIDERS[2], "9999999", "gpus is 9999999"),
    (SLIDERS[2], "", "'' is not a count: "),
    (SLIDERS[2], "64 GPUs", "'64 GPUs' is not a count: "),
    (SLIDERS[3], "60", "its unit must be one of"),
    (SLIDERS[4], "1 TB", "'1 TB' is not a rate: "),
])
def test_what_is_wrong_in_a_box_is_said_in_a_sentence(slider, text, words):
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        slider.read({"at": "0", "text": text, "last": "text"})
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("text", "share"), [("15.5 %", 0.155), ("15.5", 0.155), ("0.155", 0.155), (".155", 0.155),
                                             ("1", 1), ("100", 1), ("0", 0), ("0.5 %", 0.005)])
def test_shares_are_read_with_and_without_their_sign(text, share):
    assert QUANTITIES["share"].read(text) == pytest.approx(share)


@pytest.mark.parametrize("unit", QUANTITIES)
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-0.1", "1e999", "1e-320", "1e308", "1,5", "9" * 400, "12,34"])
def test_what_is_no_number_to_reckon_with_is_refused_in_a_short_sentence(unit, text):
    with pytest.raises(ValueError, match=r"^'.*' is not a (size|rate|time|count|share|number): ") as told:
        QUANTITIES[unit].read(text + {"bytes/s": " B/s", "s": " s"}.get(unit, ""))
    assert len(str(told.value)) < 250


@pytest.mark.parametrize(("value", "text"), [(1640.2, "1,640"), (68837, "68,800"), (2, "2"), (0.000123, "0.000123"),
                                             (0, "0"), (999_999, "1,000,000"), (3.2e6, "3.2 million")])
def test_ratios_are_written_without_exponents(value, text):
    assert number(value) == text


@pytest.mark.parametrize(("text", "count"), [("64", 64), ("70,553,706,496", 70_553_706_496), ("70e9", 70 * 10**9),
                                             ("70B", 70 * 10**9), ("7.5 billion", 75 * 10**8), ("4k", 4000)])
def test_counts_are_read_as_people_write_them(text, count):
    assert QUANTITIES["count"].read(text) == count


@pytest.mark.parametrize(("text", "nbytes"), [("1.12 TB", 112 * 10**10), ("840e9", 840 * 10**9), ("1 GiB", 2**30),
                                              ("70,553,706,496", 70_553_706_496), ("0.98 TB", 98 * 10**10)])
def test_answers_are_read_with_their_units(text, nbytes):
    assert NumberBox("answer", "Your answer", "bytes").read({"text": f" {text} "}) == nbytes


def test_an_empty_answer_asks_for_one():
    with pytest.raises(ValueError, match="Write your answer"):
        NumberBox("answer", "Your answer", "bytes").read({"text": "  "})
    with pytest.raises(ValueError, match="choose one of first, second"):
        PICK.control.read({"choice": ""})


def test_a_readers_own_model_is_read_and_can_be_left_again():
    control = ModelChoice("model", "Model")
    own = control.read({"choice": "own", "config": json.dumps(CONFIG)})
    assert own == models.from_config(CONFIG)
    assert control.write(own) == {"choice": "own"}  # the pasted text stays
    assert control.read({"choice": "llama-3.1-8b", "config": "anything"}) == "llama-3.1-8b"
    assert control.read({"choice": "count", "count": "70e9"}) == 70 * 10**9
    with pytest.raises(ValueError, match="Write a number of parameters"):
        control.read({"choice": "count", "count": " "})
    assert "count" not in [part.name for part in ModelChoice("model", "Model", counts=False).parts]


@pytest.mark.parametrize(("text", "words"), [
    ("", "config.json is empty"), ("{", "must be JSON"), ("[1]", "it must be a JSON object"),
    ("[" * 100_000, "must be JSON"), ('{"hidden_size": NaN}', "must be JSON without NaN"),
    ('{"vocab_size": ' + "9" * 5000 + "}", "JSON without a number of thousands of digits"),
    ('{"model_type": "nope"}', "nope"), ('{"model_type": "llama", "hidden_size": -1}', "hidden_size"),
])
def test_a_config_that_is_none_is_refused_in_a_sentence(text, words):
    with pytest.raises(ValueError, match=words) as told:
        ModelChoice("model", "Model").read({"choice": "own", "config": text})
    assert "\n" not in str(told.value)


def test_a_file_from_windows_is_read():
    own = ModelChoice("model", "Model").read({"choice": "own", "config": "\ufeff" + json.dumps(CONFIG)})
    assert own == models.from_config(CONFIG)


def test_a_readers_file_is_called_that():
    for text, words in (("[[[", r"your file is '\[\[\['; it must be JSON"), (" ", "your file is empty; choose a file")):
        with pytest.raises(ValueError, match=words):
            FileChoice("own", "Beside the datasheets", "mine", dict).read({"choice": "own", "config": text})


@pytest.mark.parametrize("number", ["1e400", "1" + "0" * 400, "1e301", "-1", "NaN", "0", '"fast"'])
def test_a_readers_ladder_that_no_machine_measured_is_refused_in_a_sentence(number):
    row = f'{{"rung": "NVMe", "what": "sequential read", "bandwidth": {number}}}'
    text = f'{{"memtier": "own-ladder", "version": 1, "date": "2026-11-29", "measured": [{row}]}}'
    (control,) = [each for each in live.get("tiers.ladder").controls if isinstance(each, FileChoice)]
    reply = ask("tiers.ladder", values={control.name: {"choice": "own", "config": text}})
    told = reply["invalid"][control.name]
    assert re.search("bandwidth is .*; it must be a number above 0|must be JSON without NaN", told)


# Explorers

def test_an_explorer_answers_its_defaults_and_what_is_set(known):
    first = ask("toy.bytes")
    assert first["say"] == "one: 1 GB."
    assert first["controls"]["nbytes"]["text"] == "1 GB"
    assert drawing.bars([("one", {"weights": 1e9})], "Bytes", "A bar.").svg in first["slots"]["view"]
    moved = {"nbytes": {"text": "3 GB"}, "kind": {"choice": "two"}, "busy": {"on": True}}
    assert ask("toy.bytes", values=moved)["say"] == "two: 6 GB."
    assert ask("toy.bytes", values=moved) == ask("toy.bytes", values=moved)


def test_a_preset_sets_its_values_and_the_others_return(known):
    moved = {"kind": {"choice": "two"}, "busy": {"on": True}}
    assert ask("toy.bytes", do="preset 0", values=moved)["say"] == "one: 1 TB."
    assert ask("toy.bytes", do="preset 1")["say"] == "two: 1 GB."


def test_a_readers_file_stays_through_presets():
    chosen = replace(TOY, controls=(*TOY.controls, FileChoice("own", "Own", "mine", dict)), predict=None,
                     view=lambda own, **others: View((), f"{own}"))
    mine = {"own": {"choice": "own", "config": '{"a": 1}'}}
    assert chosen.respond({"do": "preset 0", "values": mine})["say"] == "{'a': 1}"


def test_a_wrong_value_is_told_beside_its_control_and_nothing_else_changes(known):
    reply = ask("toy.bytes", values={"nbytes": {"text": "a lot"}, "kind": {"choice": "two"}})
    assert set(reply) == {"invalid"}
    assert set(reply["invalid"]) == {"nbytes"}
    assert ask("toy.bytes", do="preset 0", values={"nbytes": {"text": "a lot"}})["say"] == "one: 1 TB."


def test_what_cannot_be_worked_out_is_told_in_a_sentence(known):
    assert ask("toy.bytes", values={"kind": {"choice": "never"}}) == {"error": "kind is 'never'; it must be another"}
    assert "ZeroDivisionError: oh" in ask("toy.bytes", values={"kind": {"choice": "broken"}})["error"]
    assert "name is 'nothing'" in ask("nothing")["error"]
    assert "toy" not in live.names()
    for nonsense in ("", "[]", "{}", '{"name": "tiers.ladder", "values": [1]}', '{"name": 1, "state": 3}'):
        assert list(json.loads(live.answer(nonsense))) == ["error"]


def test_a_guess_is_locked_in_revealed_and_stays(known):
    before = ask("toy.bytes")
    assert before["hidden"] == {"predict": False}
    assert "your guess" not in before["slots"]["view"]
    after = ask("toy.bytes", do="guess", values={"guess": {"text": "1 GB"}, "busy": {"on": True}})
    assert after["say"] == "one: 4 GB."
    assert after["hidden"] == {"predict": True}
    assert after["slots"]["reveal"] == ("<p>You guessed 1 GB. It is <strong>4 GB</strong>: 4 times more. So it is.</p>")
    assert "your guess" in after["slots"]["view"]
    later = ask("toy.bytes", values=after["controls"], state=after["state"])
    assert (later["hidden"], later["slots"]["reveal"]) == (after["hidden"], after["slots"]["reveal"])
    assert "your guess" in later["slots"]["view"]
    moved = ask("toy.bytes", do="preset 0", values=after["controls"], state=after["state"])
    assert moved["slots"]["reveal"] == f"{after['slots']['reveal']}<p>{SINCE}</p>"  # it is not about what is shown now
    assert "your guess" not in moved["slots"]["view"]


def test_a_guess_among_real_controls_stands_where_it_was_asked():
    for name in live.names():
        thing = live.get(name)
        if not isinstance(thing, Explorer) or not thing.predict:
            continue
        locked = ask(name, do="guess", values={"guess": thing.predict.control.write(thing.predict.control.default)})
        later = ask(name, values=locked["controls"], state=locked["state"])
        assert SINCE not in later["slots"]["reveal"] == locked["slots"]["reveal"] != ""


@pytest.mark.parametrize(("guess", "words"), [(4e9, "that is close"), (3.5e9, "that is close"), (8e9, "2 times less")])
def test_a_guess_is_told_how_far_it_was_off(guess, words):
    assert words in TOY.predict.reveal(guess, {"nbytes": 4e9})


def test_a_guess_far_off_is_told_without_exponents():
    assert "1,640 times less" in TOY.predict.reveal(1.64e12, {"nbytes": 1e9})


def test_a_guess_can_be_skipped_and_one_that_does_not_read_is_told(known):
    skipped = ask("toy.bytes", do="skip")
    assert skipped["hidden"] == {"predict": True}
    assert skipped["slots"]["reveal"] == ""
    assert set(ask("toy.bytes", do="guess", values={"guess": {"text": "much"}})["invalid"]) == {"guess"}


def test_a_guess_among_options():
    prediction = Prediction("Which?", truth=lambda values: "b", options={"a": "first", "b": "second"})
    chosen = replace(TOY, predict=prediction, view=lambda nbytes, kind, busy: View((), "answer"))
    wrong = chosen.respond({"do": "guess", "values": {"guess": {"choice": "a"}}})
    assert "You guessed: first. It is: second." in wrong["slots"]["reveal"]
    right = chosen.respond({"do": "guess", "values": {"guess": {"choice": "b"}}})
    assert "That is right." in right["slots"]["reveal"]


def test_a_declaration_that_cannot_work_is_refused():
    with pytest.raises(ValueError, match="at most three"):
        replace(TOY, controls=(*TOY.controls, Toggle("b", "B"), Toggle("c", "C")))
    with pytest.raises(ValueError, match="no control 'speed'"):
        replace(TOY, presets={"fast": {"speed": 1}})
    with pytest.raises(ValueError, match="kind is 'essay'"):
        replace(SUM, kind="essay")
    with pytest.raises(ValueError, match="options"):
        replace(SUM, kind="choice")
    with pytest.raises(ValueError, match="options"):
        replace(SUM, options={"a": "b"})


# Questions

def test_a_question_is_answered_with_any_unit_and_by_what_is_drawn(known):
    values = SUM.values(0)
    truth = values["count"] * values["each"]
    assert values == SUM.values(0)
    assert any(SUM.values(seed) != values for seed in range(1, 5))
    for text in (f"{truth}", f"{truth:,}", f"{truth / 1e9} GB", f"{truth / 2**30} GiB", f"{truth * 1.015} B"):
        assert "Right." in ask("toy.sum", do="check", values={"answer": {"text": text}})["say"]


def test_wrong_answers_hear_what_they_mistook(known):
    values = SUM.values(0)
    truth = values["count"] * values["each"]

    def told(text):
        return ask("toy.sum", do="check", values={"answer": {"text": text}})["say"]

    assert told(f"{values['count']}") == f"Not yet. You forgot the {values['each']} bytes."
    assert "GiB for GB" in told(f"{truth / 1e9} GiB")
    assert "without a unit" in told(f"{truth / 1e9}")
    assert "too small" in told(f"{truth / 10} B")
    assert "too small" in told("10 MB")
    assert "too large, by a factor of some 30" in told(f"{truth * 30} B")
    assert "too large, by a factor of some 1,600" in told(f"{truth * 1640} B")
    assert "too large, by a factor of more than a million" in told("1e30 B")
    assert "above zero" in told("0 B")
    assert str(truth) not in "".join(told(f"{truth * factor} B") for factor in (0.5, 0.9, 1.1, 3))


def test_an_answer_that_does_not_read_is_told_beside_the_box(known):
    told = ask("toy.sum", do="check", values={"answer": {"text": "many"}})["invalid"]["answer"]
    assert told.startswith("'many' is not a size: write")
    assert "Write your answer" in ask("toy.sum", do="check", values={})["invalid"]["answer"]


def test_hints_come_one_at_a_time_then_the_solution_then_new_numbers(known):
    first = ask("toy.sum")
    assert (first["slots"]["hints"], first["slots"]["solution"]) == ("", "")
    one = ask("toy.sum", do="hint", state=first["state"])
    assert one["slots"]["hints"] == "<ul><li>Multiply.</li></ul>"
    two = ask("toy.sum", do="hint", state=one["state"])
    three = ask("toy.sum", do="hint", state=two["state"])
    assert three["slots"]["hints"].count("<li>") == two["slots"]["hints"].count("<li>") == 2
    solved = ask("toy.sum", do="solution", state=three["state"])
    assert "×" in solved["slots"]["solution"]
    fresh = ask("toy.sum", do="new", state=solved["state"])
    assert fresh["slots"]["prompt"] != first["slots"]["prompt"]
    assert (fresh["slots"]["hints"], fresh["slots"]["solution"]) == ("", "")
    assert fresh["controls"]["answer"]["text"] == ""
    assert fresh["state"]["seed"] == 1


def test_choices_are_checked(known):
    assert "Right." in ask("toy.pick", do="check", values={"answer": {"choice": "b"}})["say"]
    assert "Not that." in ask("toy.pick", do="check", values={"answer": {"choice": "a"}})["say"]
    assert "Right." in ask("toy.all", do="check", values={"answer": {"chosen": ["c", "a"]}})["say"]
    half = ask("toy.all", do="check", values={"answer": {"chosen": ["a", "b"]}})
    assert half["say"] == "Not yet. 1 is missing, 1 is too many."
    none = ask("toy.all", do="check", values={"answer": {"chosen": []}})
    assert none["say"] == "Not yet. 2 are missing, 0 are too many."


def test_a_few_marks_of_markdown_and_nothing_else():
    assert paragraphs("a **b** `c`\nd\n\n- e\n- <f>") == (
        "<p>a <strong>b</strong> <code>c</code> d</p><ul><li>e</li><li>&lt;f&gt;</li></ul>")
    assert paragraphs("") == ""


# The page

class Tags(HTMLParser):
    """Every tag with its attributes, and whether tags close in the order in which they opened."""

    EMPTY = frozenset({"input", "line", "rect"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def having(self, *names):
        return [(tag, attributes) for tag, attributes in self.tags if all(name in attributes for name in names)]


@pytest.mark.parametrize("thing", [TOY, SUM, PICK, PICK_ALL], ids=lambda thing: thing.name)
def test_the_page_holds_everything_that_the_script_looks_for(thing):
    html = page.render(thing)
    assert html == page.render(thing)
    tags = Tags(html)
    (root,) = tags.having("data-live")
    assert root[1]["data-live"] == thing.name
    assert root[1]["aria-label"] == thing.title
    first = thing.respond({})
    assert json.loads(root[1]["data-state"]) == first["state"]
    assert {each["data-slot"] for _, each in tags.having("data-slot")} >= set(first["slots"])
    for name, drawn in first["slots"].items():
        assert f'data-slot="{name}">{drawn}</div>' in html
    for mark in ("data-boot", "data-status", "data-problem", "data-retry", "data-live-size"):
        assert len(tags.having(mark)) == 1, mark
    assert len(tags.having("data-note")) == ("view" in first["slots"])  # an answer may be older than its controls
    controls = [each["data-control"] for _, each in tags.having("data-control")]
    assert len(controls) == len(set(controls)) == len(tags.having("data-error"))
    assert [each for _, each in tags.tags if "id" in each] == []  # the same thing may stand on a page twice


def test_the_page_draws_the_first_frame_and_one_for_each_preset():
    tags = Tags(page.render(TOY))
    frames = {each["data-frame"]: each for _, each in tags.having("data-frame")}
    buttons = [each["data-do"] for _, each in tags.having("data-shows")]
    assert list(frames) == buttons == ["preset 0", "preset 1"]
    for do, frame in frames.items():
        reply = TOY.respond({"do": do})
        assert json.loads(frame["data-controls"]) == reply["controls"]
        assert frame["data-say"] == reply["say"]
        assert f'<div data-fill="view">{reply["slots"]["view"]}</div>' in page.render(TOY)


@pytest.mark.parametrize(("letters", "wide", "row"), [(24, 0, 0), (25, 1, 0), (38, 1, 0), (39, 1, 1)])
@pytest.mark.parametrize("more", [False, True])
def test_a_list_has_room_for_its_longest_option(letters, wide, row, more):
    kind = Choice("kind", "Kind", {"a": "short", "b": "l" * letters}, "a", open=False, more=more)
    html = page.render(replace(TOY, controls=(kind,), presets={}, predict=None, view=lambda kind: View((), kind)))
    assert html.count("minmax(min(100%,18rem),1fr)") == wide
    assert html.count('data-control="kind" style="grid-column:1/-1"') == row


def test_every_input_of_a_page_has_a_name_for_those_who_do_not_see_it():
    controls = [replace(control, more=True) for control in CONTROLS]
    everything = replace(TOY, controls=tuple(controls), presets={}, predict=None, view=lambda **values: View((), "ok"))
    html = page.render(everything)
    tags = Tags(html)
    for tag, each in tags.having("data-part"):
        labelled = "aria-label" in each or re.search(
            rf'<label[^>]*>(?:<span[^>]*>[^<]+</span>)?<{tag}[^>]*data-part="{each["data-part"]}"', html)
        assert labelled, (tag, each)
    kinds = {each.get("type", tag) for tag, each in tags.having("data-part")}
    assert kinds == {"range", "text", "select", "checkbox", "radio", "textarea"}
    hidden = [each for _, each in tags.having("data-when") if "hidden" not in each]
    assert hidden == []  # what belongs to another choice is out of the way


def test_a_title_cannot_break_out_of_its_place():
    html = page.render(replace(TOY, title='"><script>', intro="<script>"))
    assert "<script" not in html
    assert escape('"><script>') in html


# Jupyter

def front(thing):
    return jupyter.Front(thing)


def view_of(shown):
    return shown.slots["view"].value


def test_in_jupyter_moving_a_widget_shows_what_the_view_gives():
    shown = front(TOY)
    assert show(1e9, "one", False).html in view_of(shown)
    slider = shown.inputs["nbytes"]["at"].widget
    slider.value = slider.max
    assert show(1e12, "one", False).html in view_of(shown)
    assert shown.inputs["nbytes"]["text"].get() == "1 TB"
    shown.inputs["nbytes"]["text"].widget.value = "3 GB"
    shown.inputs["kind"]["choice"].widget.value = "two"
    shown.inputs["busy"]["on"].widget.value = True
    assert show(3e9, "two", True).html in view_of(shown)
    assert "two: 6 GB." in shown.slots["say"].value


def test_in_jupyter_wrong_values_are_told_and_the_view_stays():
    shown = front(TOY)
    before = view_of(shown)
    shown.inputs["nbytes"]["text"].widget.value = "<a lot>"
    assert "&#x27;&lt;a lot&gt;&#x27; is not a size:" in shown.errors["nbytes"].value
    assert "last valid values" in shown.stale.value
    assert view_of(shown) == before
    shown.inputs["nbytes"]["text"].widget.value = "1 GB"
    assert shown.errors["nbytes"].value == ""
    assert shown.stale.value == ""
    shown.inputs["kind"]["choice"].widget.value = "never"
    assert "kind is" in shown.problem.value
    assert "last valid values" in shown.stale.value
    shown.inputs["kind"]["choice"].widget.value = "broken"
    assert "could not work this out (ZeroDivisionError: oh)" in shown.problem.value
    shown.inputs["kind"]["choice"].widget.value = "two"
    assert shown.problem.value == shown.stale.value == ""


def test_in_jupyter_buttons_work():
    shown = front(TOY)
    shown.buttons["preset 0"].click()
    assert show(1e12, "one", False).html in view_of(shown)
    shown.inputs["guess"]["text"].widget.value = "1 GB"
    shown.buttons["guess"].click()
    assert "4 times more" in shown.slots["reveal"].value
    assert shown.groups["predict"].layout.display == "none"
    assert show(4e9, "one", False, guess=1e9).html in view_of(shown)


def test_in_jupyter_the_text_beside_a_box_is_not_cut_off():
    ticks = [front(TOY).inputs["busy"]["on"].widget, *front(PICK_ALL).inputs["answer"]["chosen"].watched]
    for tick in ticks:
        assert (tick.layout.width, tick.style.description_width, tick.indent) == ("auto", "initial", False)
    shown = front(PICK_ALL)
    assert jupyter.CLASS in shown.widget._dom_classes
    assert f".{jupyter.CLASS} .widget-checkbox label" in shown.widget.children[0].value
    assert "white-space:normal" in shown.widget.children[0].value


def test_in_jupyter_questions_work():
    shown = front(SUM)
    shown.inputs["answer"]["text"].widget.value = "10 MB"
    shown.buttons["check"].click()
    assert "too small" in shown.slots["say"].value
    shown.buttons["hint"].click()
    assert "Multiply." in shown.slots["hints"].value
    shown.buttons["new"].click()
    assert shown.inputs["answer"]["text"].get() == ""
    assert shown.slots["hints"].value == ""
    several = front(PICK_ALL)
    for tick in several.inputs["answer"]["chosen"].watched[::2]:
        tick.value = True
    several.buttons["check"].click()
    assert "Right." in several.slots["say"].value


def test_in_jupyter_a_readers_file_is_read_and_left_again():
    own = replace(TOY, controls=(ModelChoice("model", "Model"),), presets={}, predict=None,
                  view=lambda model: View((), f"{models.resolve(model).parameters:,}"))
    shown = front(own)
    area = shown.inputs["model"]["config"].widget
    assert area.layout.display == "none"
    shown.inputs["model"]["choice"].widget.value = "own"
    assert area.layout.display is None
    chooser = shown.choosers["model"]
    chooser.value = ({"name": "config.json", "type": "", "size": 1, "content": json.dumps(CONFIG).encode(),
                      "last_modified": datetime(2026, 1, 1)},)
    assert f"{models.from_config(CONFIG).parameters:,}" in shown.slots["say"].value
    shown.inputs["model"]["choice"].widget.value = "llama-3.1-8b"
    assert "8,030,261,248" in shown.slots["say"].value


def test_a_notebook_gets_both_forms():
    bundle = TOY._repr_mimebundle_()
    assert bundle["text/html"] == page.render(TOY) == TOY._repr_html_()
    assert bundle["text/plain"] == "Explorer: Bytes <of> a toy"
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]


def test_where_ipywidgets_is_missing_the_page_form_still_shows(monkeypatch):
    monkeypatch.setitem(sys.modules, "memtier.live.jupyter", None)
    monkeypatch.delattr(live, "jupyter")
    assert set(TOY._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_what_is_read_aloud_has_no_marks():
    assert plain("It is **4 GB**, says `units`.") == "It is 4 GB, says units."


def test_one_of_many_is_written_as_one():
    assert [several(1, "GPU"), several(2048, "GPU"), several("1", "day"), several("0.5", "day")] == [
        "1 GPU", "2,048 GPUs", "1 day", "0.5 days"]


def test_no_explorer_and_no_question_share_a_name():
    assert len(set(live.names())) == len(live.names())


def test_the_largest_model_that_is_read_gets_a_reply_of_a_usual_length():
    most = models.LARGEST - 3
    config = CONFIG | {"vocab_size": most, "hidden_size": most, "intermediate_size": most,
                       "num_hidden_layers": models.MOST_LAYERS}
    asked = 0
    for name in live.names():
        thing = live.get(name)
        for control in getattr(thing, "controls", ()):
            if isinstance(control, ModelChoice):
                reply = live.answer(json.dumps({"name": name, "values": {
                    control.name: {"choice": "own", "config": json.dumps(config)}}}))
                assert set(json.loads(reply)) == {"slots", "say", "state", "controls", "hidden"}, reply
                assert len(reply) < 30_000
                asked += 1
    assert asked >= 8
