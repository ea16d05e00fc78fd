"""What the questions on activations hold; tests/test_questions.py plays them, as every question of the course."""

from memtier import live, units, workspace
from memtier.live.questions import activations as declared

QUESTIONS = [each for each in vars(declared).values() if isinstance(each, live.Question)]


def test_the_tasks_that_must_be_there_are_there():
    named = {"left", "doubling", "micro_batches", "loss", "tensor_parallel", "compute", "two_meanings", "diagnose",
             "message", "remedy", "design"}
    declared_here = {question.name for question in QUESTIONS}
    assert {f"activations.{name}" for name in named} <= declared_here <= set(live.names())
    assert {"numeric", "choice", "multiple"} == {question.kind for question in QUESTIONS}


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
    for values in map(declared.remedy.values, range(40)):
        cause = declared.remedy.answer(values)
        read = workspace.read_message(values["message"])
        others = sum(nbytes for _, nbytes in read.others)
        assert read.tried > read.free
        assert abs(read.process + others + read.free - read.capacity) < 0.03 * units.GiB
        assert cause == ("others" if others > read.tried else "pieces" if read.fragmented else "tensors")
