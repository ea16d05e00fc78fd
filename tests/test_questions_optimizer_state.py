"""The questions on optimizer state: what must be asked, and what only one of them needs."""

from memtier import live, units
from memtier.live.questions import optimizer_state as declared

QUESTIONS = [each for each in vars(declared).values() if isinstance(each, live.Question)]


def test_the_tasks_that_must_be_there_are_there():
    assert len(QUESTIONS) >= 8
    assert {"numeric", "choice", "multiple"} == {question.kind for question in QUESTIONS}
    named = {"sixteen", "stages", "gpus_needed", "offload_link", "write_active", "diagnose", "estimate", "design"}
    declared_here = {question.name for question in QUESTIONS}
    assert {f"optimizer_state.{name}" for name in named} <= declared_here <= set(live.names())


def test_the_running_questions_rows_agree_with_the_calculation_by_hand():
    for name, gigabytes in declared.RUNNING:
        v = {"model": name, "limit": gigabytes * units.GB}
        root, layer = declared._gathered(v)
        state = 16 * declared.models.get(name).parameters
        assert declared.gpus_running.answer(v) == -(-state // int(v["limit"] - root - layer))


def test_one_significant_figure_is_enough_for_every_estimate():
    for billions in declared.ESTIMATED:
        v = {"parameters": billions * declared.BILLION, "limit": 80 * units.GB}
        assert declared.estimate.check(v | {"size": "", "card": "", "gpus": ""},
                                       int(float(f"{declared.estimate.answer(v):.0e}"))).right, billions
