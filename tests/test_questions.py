"""Every question of the course, over many draws: the right answer is taken however it is written, every belief is
recognised and told from it, hints give nothing away and the solution does."""

import json
import re
from functools import cache

import pytest

from memtier import live, units
from memtier.live.controls import QUANTITIES

QUESTIONS = [live.get(name) for name in live.names() if isinstance(live.get(name), live.Question)]
SEEDS = range(30)

every_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)


def of_unit(*wanted):
    """The questions whose answers are in one of these units."""
    chosen = [question for question in QUESTIONS if question.unit in wanted]
    return pytest.mark.parametrize("question", chosen, ids=lambda question: question.name)


def rounds(question):
    """(values, right answer) of every seed."""
    return _drawn()[question.name]


@cache
def _drawn():
    drawn = {question.name: [question.values(seed) for seed in SEEDS] for question in QUESTIONS}
    return {question.name: [(values, question.answer(values)) for values in drawn[question.name]]
            for question in QUESTIONS}


def verdict(question, values, text):
    """What a reader is told who writes `text` into the box."""
    return question.check(values, question.control.read({"text": text}))


def written(question, truth):
    """The right answer as the course writes it: a number with its unit, or the labels of what is to be chosen."""
    if question.kind == "numeric":
        return [QUANTITIES[question.unit][0](truth)]
    chosen = truth if question.kind == "multiple" else [truth]
    return [label for each, label in question.options.items() if each in chosen]


@every_question
def test_numbers_are_fresh_and_repeatable(question):
    prompts = [question.say(question.prompt, values) for values, _ in rounds(question)]
    assert prompts[:5] == [question.say(question.prompt, question.values(seed)) for seed in SEEDS[:5]]
    assert len(set(prompts)) >= (2 if question.kind == "multiple" else 6)


@every_question
def test_texts_hold_no_unfilled_names(question):
    for values, _ in rounds(question):
        told = [belief.say for belief in question.misconceptions]
        for text in (question.prompt, question.solution, *question.hints, *told):
            assert not re.search(r"[{}]|None|nan", question.say(text, values))


@every_question
def test_the_right_answer_is_right(question):
    for values, truth in rounds(question):
        given = frozenset(truth) if question.kind == "multiple" else truth
        assert question.check(values, given).right


@of_unit("bytes")
def test_bytes_are_taken_in_any_notation_and_gb_is_not_gib(question):
    for values, truth in rounds(question):
        for text in (f"{truth / units.GB:.12g} GB", f"{truth / units.TB:.12g}TB", f"{truth / units.MB:,.9f} MB",
                     f"{truth:.0f}", f"{truth:.12e}", f"{truth / units.GiB:.12g} GiB", f"{truth / units.GB:.12g} gb"):
            assert verdict(question, values, text).right, text
        if question.tolerance < 0.05:
            assert not verdict(question, values, f"{truth / units.GB:.12g} GiB").right
            assert not verdict(question, values, f"{truth / units.GiB:.12g} GB").right


@of_unit("s")
def test_times_are_taken_in_any_unit(question):
    for values, truth in rounds(question):
        for text in (f"{truth:.4g} s", f"{truth * 1e3:.4g} ms", f"{truth / 60:.4g} min", f"{truth * 1e6:.0f} us"):
            assert verdict(question, values, text).right, text
        with pytest.raises(ValueError, match="unit"):
            verdict(question, values, f"{truth:.4g}")


@of_unit("share")
def test_shares_are_taken_as_percent_or_fraction(question):
    for values, truth in rounds(question):
        assert verdict(question, values, f"{100 * truth:.3g} %").right
        assert verdict(question, values, f"{truth:.4f}").right
        bare = f"{100 * truth:.3g}"  # without its sign; up to 1 it is a fraction
        told = verdict(question, values, bare)
        assert told.right if float(bare) > 1 else "is read as a fraction" in told.say


@of_unit("count")
def test_counts_are_whole_numbers_and_exact_unless_estimated(question):
    for values, truth in rounds(question):
        assert verdict(question, values, f"{truth:,}").right
        assert verdict(question, values, f"{truth + 1}").right == (question.tolerance * truth >= 1)
        with pytest.raises(ValueError, match="whole number"):
            verdict(question, values, f"{truth}.5")


@of_unit("bytes", "s")
def test_within_the_tolerance_is_close_enough_and_beyond_it_is_not(question):
    for values, truth in rounds(question):
        near = question.tolerance * 0.95
        assert question.check(values, truth * (1 + near)).right
        assert question.check(values, truth * (1 - near)).right
        assert not question.check(values, truth * (1 + 1.5 * question.tolerance + 1e-6)).right


@every_question
def test_a_belief_leads_elsewhere_than_the_right_answer_and_is_told_so(question):
    for values, truth in rounds(question):
        recognised = {}
        for belief in question.misconceptions:
            wrong = belief.value(values)
            if question.kind == "choice" and wrong == truth:
                continue  # one belief stands for each option, and one option is right
            if question.kind == "numeric":
                assert abs(wrong - truth) > question.tolerance * truth, (question.say(belief.say, values), values)
            else:
                assert wrong != truth, (question.say(belief.say, values), values)
            recognised.setdefault(wrong, question.say(belief.say, values))
        assert recognised
        for wrong, words in recognised.items():
            told = question.check(values, wrong)
            assert not told.right
            assert told.say.removeprefix("Not yet. ") in recognised.values()
            if question.kind != "numeric":
                assert told.say == f"Not yet. {words}"


@every_question
def test_the_solution_holds_the_answer_and_neither_prompt_nor_hints_do(question):
    for values, truth in rounds(question):
        solution = question.say(question.solution, values)
        answers = written(question, truth)
        assert all(answer in solution for answer in answers)
        if question.kind == "numeric":
            assert f"**{answers[0]}**" in solution
            # A count of one or two digits can stand in a text by chance.
            alone = re.compile(rf"(?<![\w.,]){re.escape(answers[0])}(?![.,]?\w)")
            for text in (question.prompt, *question.hints) if question.unit != "count" or truth > 99 else ():
                assert not alone.search(question.say(text, values)), question.say(text, values)
        elif question.kind == "choice":
            assert not [hint for hint in question.hints if answers[0] in question.say(hint, values)]


@every_question
def test_an_unforeseen_answer_is_told_what_is_wrong_with_it(question):
    values, truth = rounds(question)[0]
    if question.kind == "numeric":
        assert "too large" in question.check(values, 1000 * truth + 7).say
        assert not question.check(values, truth / 1000 - 1).right
    elif question.kind == "multiple":
        assert question.check(values, frozenset()).say.startswith("Not yet.")


NONSENSE = ("-1", "-0.1", "0", "1e999", "nan", "inf", "a lot", "1" * 400, "9" * 400, "1e-320", "1e308", "1e30", "1e-30",
            "1,5", "15,5 %", "<b>", "{}")


@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.kind == "numeric"], ids=lambda each: each.name)
def test_nonsense_is_told_in_one_sentence_and_never_judged_with_more(question):
    unit = {"bytes": " GB", "binary bytes": " GiB", "bytes/s": " GB/s", "s": " s"}.get(question.unit, "")
    for text in (*NONSENSE, *(each + unit for each in NONSENSE)):
        sent = {"name": question.name, "do": "check", "values": {"answer": {"text": text}}}
        reply = json.loads(live.answer(json.dumps(sent)))
        assert "error" not in reply, text
        told = reply["invalid"]["answer"] if "invalid" in reply else reply["say"]
        assert "\n" not in told
        assert len(told) < 300
        assert not re.search(r"\de[+-]?\d", reply.get("say", "")), told
        if "," in text or text[:3] in ("nan", "inf", "1e9", "-0."):
            assert "invalid" in reply, text


@every_question
def test_hints_and_solution_can_be_read_where_nothing_can_be_asked(question):
    frames = {do: question.respond({"do": do})["slots"] for _, do, _ in question.frames()}
    assert frames["hints"]["hints"].count("<li>") == len(question.hints) > 0
    assert frames["solution"]["solution"]


@every_question
def test_a_whole_round_as_the_page_plays_it(question):
    def ask(do, state, raw=None):
        sent = {"name": question.name, "do": do, "state": state, "values": {"answer": raw} if raw else {}}
        return json.loads(live.answer(json.dumps(sent)))

    shown = ask("", None)
    hinted = ask("hint", shown["state"])
    assert hinted["slots"]["hints"].count("<li>") == 1
    fresh = ask("new", hinted["state"])
    values = question.values(fresh["state"]["seed"])
    truth = question.answer(values)
    unit = {"s": " s", "bytes/s": " B/s"}.get(question.unit, "")
    given = {"text": repr(truth) + unit}
    if question.kind != "numeric":
        given = {"choice": truth} if question.kind == "choice" else {"chosen": sorted(truth)}
    told = ask("check", fresh["state"], given)
    assert told["say"] == "Right."
    assert question.say(question.solution, values).split(".")[0].replace("**", "")[:12] in re.sub(
        "<[^>]+>", "", ask("solution", told["state"])["slots"]["solution"])
