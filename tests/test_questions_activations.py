"""The questions on activations, over many draws: the right answer is taken, every belief leads elsewhere and is told so,
hints give nothing away and the solution does."""

import re
from functools import cache

import pytest

from memtier import live, units, workspace
from memtier.live.controls import QUANTITIES
from memtier.live.questions import activations as declared

QUESTIONS = [each for each in vars(declared).values() if isinstance(each, live.Question)]
SEEDS = range(40)

every_question = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)


@cache
def rounds(question_name):
    """(values, right answer) of every seed."""
    question = live.get(question_name)
    drawn = [question.values(seed) for seed in SEEDS]
    return [(values, question.answer(values)) for values in drawn]


def written(question, truth):
    """The right answer as the course writes it: a number with its unit, or the labels of what is to be chosen."""
    if question.kind == "numeric":
        return [QUANTITIES[question.unit].say(truth)]
    chosen = truth if question.kind == "multiple" else [truth]
    return [label for each, label in question.options.items() if each in chosen]


def test_the_tasks_that_must_be_there_are_there():
    named = {"left", "doubling", "micro_batches", "loss", "tensor_parallel", "compute", "two_meanings", "diagnose",
             "message", "design"}
    declared_here = {question.name for question in QUESTIONS}
    assert {f"activations.{name}" for name in named} <= declared_here <= set(live.names())
    assert {"numeric", "choice", "multiple"} == {question.kind for question in QUESTIONS}


@every_question
def test_numbers_are_fresh_and_repeatable(question):
    prompts = [question.say(question.prompt, values) for values, _ in rounds(question.name)]
    assert prompts[:5] == [question.say(question.prompt, question.values(seed)) for seed in SEEDS[:5]]
    assert len(set(prompts)) >= (2 if question.kind == "multiple" else 6)


@every_question
def test_texts_hold_no_unfilled_names(question):
    for values, _ in rounds(question.name):
        told = [belief.say for belief in question.misconceptions]
        for text in (question.prompt, question.solution, *question.hints, *told):
            assert not re.search(r"[{}]|None|nan", question.say(text, values))


@every_question
def test_the_right_answer_is_right_and_only_what_is_close_to_it(question):
    for values, truth in rounds(question.name):
        assert question.check(values, frozenset(truth) if question.kind == "multiple" else truth).right
        if question.kind == "numeric":
            assert not question.check(values, truth * (1.01 + question.tolerance)).right
            assert not question.check(values, truth * (0.99 - question.tolerance)).right
        if question.unit == "bytes":
            given = question.control.read({"text": f"{truth / units.GiB:.5g} GiB"})
            assert question.check(values, given).right
            assert not question.check(values, truth * 1.024**3).right  # GB taken for GiB


@every_question
def test_a_belief_leads_elsewhere_than_the_right_answer_and_is_told_so(question):
    for values, truth in rounds(question.name):
        recognised = {}
        for belief in question.misconceptions:
            wrong = belief.value(values)
            if question.kind == "choice" and wrong == truth:
                continue  # one belief stands for each option, and one option is right
            if question.kind == "numeric" and abs(wrong - truth) <= question.tolerance * truth:
                # twice the tokens, four times the bytes: nearly right where s × s matrices are nearly everything
                assert question.name == "activations.doubling"
                assert wrong == 4
                continue
            assert wrong != truth, (question.say(belief.say, values), values)
            recognised.setdefault(wrong, question.say(belief.say, values))
        assert recognised
        for wrong in recognised:
            told = question.check(values, wrong)
            assert not told.right
            assert told.say.removeprefix("Not yet. ") in recognised.values()


@every_question
def test_the_solution_holds_the_answer_and_neither_prompt_nor_hints_do(question):
    for values, truth in rounds(question.name):
        answers = written(question, truth)
        assert all(answer in question.say(question.solution, values) for answer in answers)
        if question.kind == "numeric":
            assert f"**{answers[0]}**" in question.say(question.solution, values)
            alone = re.compile(rf"(?<![\w.,]){re.escape(answers[0])}(?![.,]?\w)")
            for text in (question.prompt, *question.hints):
                assert not alone.search(question.say(text, values)), question.say(text, values)
        elif question.kind == "choice":
            assert not [hint for hint in question.hints if answers[0] in question.say(hint, values)]


# The numbers of the course's table of beliefs


def test_tensor_parallelism_divides_24_of_34():
    v = {"size": "175B", "batch": 1, "tensor": 8}
    right, wrong = declared.tensor_parallel.answer(v), declared.tensor_parallel.misconceptions[0].value(v)
    assert (units.format_bytes(right), units.format_bytes(wrong)) == ("327 MB", "107 MB")


def test_four_micro_batches_keep_no_more_than_one():
    v = {"model": "llama-3.1-8b", "batch": 1, "sequence": 2048, "steps": 4}
    right, wrong = declared.micro_batches.answer(v), declared.micro_batches.misconceptions[0].value(v)
    assert (units.format_bytes(right), units.format_bytes(wrong)) == ("14.3 GB", "57.1 GB")


def test_doubling_is_two_or_three_and_a_half_times():
    v = {"model": "llama-3.1-8b", "batch": 1, "sequence": 4096, "stack": "hf-eager"}
    assert declared.doubling.answer(v) == 3.55
    assert declared.doubling.answer(v | {"stack": "hf-sdpa"}) == 2.00


def test_recomputation_makes_a_step_a_third_longer():
    assert declared.compute.answer({"seconds": 3}) == 4


def test_the_message_drawn_is_one_that_torch_writes():
    for values, cause in rounds("activations.remedy"):
        read = workspace.read_message(values["message"])
        others = sum(nbytes for _, nbytes in read.others)
        assert read.tried > read.free
        assert abs(read.process + others + read.free - read.capacity) < 0.03 * units.GiB
        assert cause == ("others" if others > read.tried else "pieces" if read.fragmented else "tensors")
