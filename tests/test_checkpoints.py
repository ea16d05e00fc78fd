"""Checkpoints: what is in one, who writes what, how long it takes, and what piles up behind a slow tier."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier import checkpoints, evidence, models, optimizer_state, tiers
from memtier.checkpoints import Stage
from memtier.layout import Layout
from memtier.units import GB, GiB

SMALL = models.from_config({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7,
                            "num_attention_heads": 4, "vocab_size": 101})


def llama(hidden, intermediate, layers, heads):
    return models.from_config({"model_type": "llama", "hidden_size": hidden, "intermediate_size": intermediate,
                               "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 32000})


# Shapes of LLaMA 13B and 30B (arXiv:2302.13971, Table 2), the layers and widths of DataStates-LLM's Table 1.
LLAMA_13B, LLAMA_30B = llama(5120, 13824, 40, 40), llama(6656, 17920, 60, 52)


# What is in one


def test_a_resumable_checkpoint_of_seventy_billion():
    saved = checkpoints.inventory(70e9, recipe="bf16-adam")
    assert saved.total == 14 * 70e9 == 0.98e12
    assert "gradients" not in saved
    assert checkpoints.inventory(70e9, recipe="bf16-adam", contents="weights").total == 140e9
    assert checkpoints.inventory(70e9, recipe="bf16-adam", contents="without copy").total == 12 * 70e9


def test_counts_are_what_recipes_give():
    """Each count of COUNTS that a recipe describes is that recipe's own."""
    held = {count.of: count.per_parameter for count in checkpoints.COUNTS}
    given = [checkpoints.inventory(1000, recipe="bf16-adam").total, checkpoints.inventory(
        1000, recipe="bf16-adam", contents="without copy").total, checkpoints.inventory(
        1000, recipe="fp32-adam").total, optimizer_state.inventory(1000, recipe="bf16-adam").total,
        checkpoints.inventory(1000, recipe="bf16-adam", contents="weights").total]
    assert [1000 * count for count in held.values()] == given


def test_fp32_training_has_no_copy_to_leave_out():
    for contents in ("resumable", "without copy"):
        assert checkpoints.inventory(1000, recipe="fp32-adam", contents=contents).total == 12_000


@pytest.mark.parametrize(("parameters", "model", "optimizer"), [(8e9, 15, 90), (70e9, 130, 781), (405e9, 755, 4533)])
def test_mlperf_storage_counts_in_gib(parameters, model, optimizer):
    """MLPerf Storage v2.0, submission guidelines, Table 2: 2 and 12 bytes a parameter. Its totals say GB ("912 GB" for
    70B) and are GiB: 70e9 × 14 bytes are 980 GB and 912.7 GiB."""
    saved = checkpoints.inventory(parameters, recipe="bf16-adam")
    assert saved["weights"] / GiB == pytest.approx(model, rel=0.01)
    assert (saved["master weights"] + saved["optimizer"]) / GiB == pytest.approx(optimizer, rel=0.01)


def test_mlperf_storages_trillion_is_1_38e12_parameters():
    # Its row "1T" lists 2,571 and 15,426 GiB. Both give 1.38e12 parameters; the dimensions it lists give 1.18e12.
    assert 2571 * GiB / 2 == pytest.approx(1.38e12, rel=2e-3)
    assert 15426 * GiB / 12 == pytest.approx(1.38e12, rel=2e-3)


# Who writes what


@pytest.mark.parametrize(("model", "pipeline", "alone", "of_sixteen", "exact"),
                         [(LLAMA_13B, 4, 10.4, 0.65, 10.34), (LLAMA_30B, 8, 13.8, 0.87, 13.95)])
def test_reported_sizes_a_gpu_reconstructed(model, pipeline, alone, of_sixteen, exact):
    """Reported in a training guide; the original source was not found. 13B: 10.4 "GB" a GPU falling to 650 MB with 16
    data parallel ranks; 30B: 13.8 to 870 MB. A reconstruction gives them: 14 bytes a parameter, counted in GiB, on an
    interior pipeline stage with tensor 4 and pipeline 4, or 8 with ⌈60/8⌉ layers; the files spread over the ranks."""
    one, sixteen = (checkpoints.per_rank(model, recipe="bf16-adam", stage=1,
                                         layout=Layout(tensor=4, pipeline=pipeline, shard=ranks)).total / GiB
                    for ranks in (1, 16))
    assert one == pytest.approx(exact, abs=0.005)
    assert one == pytest.approx(alone, rel=0.012)
    assert sixteen == pytest.approx(of_sixteen, rel=0.012)
    assert sixteen == pytest.approx(one / 16)


def test_stages_hold_every_parameter_once():
    for pipeline in range(1, 8):
        assert sum(checkpoints.stage_parameters(SMALL, pipeline=pipeline)) == SMALL.parameters


def test_tied_heads_stand_on_both_ends():
    gpt2 = models.get("gpt2")
    held = checkpoints.stage_parameters(gpt2, pipeline=4)
    assert sum(held) == gpt2.parameters + gpt2.vocab * gpt2.hidden
    assert checkpoints.stage_parameters(gpt2, pipeline=1) == (gpt2.parameters,)


@settings(max_examples=25)
@given(st.integers(1, 7), st.integers(1, 8), st.integers(1, 8), st.integers(1, 3))
def test_ranks_together_write_the_whole(pipeline, tensor, shard, replicate):
    layout = Layout(tensor=tensor, pipeline=pipeline, shard=shard, replicate=replicate)
    for model in (SMALL, 10**9):
        whole = checkpoints.inventory(SMALL.parameters if model is SMALL else model, recipe="bf16-adam").total
        stages = [checkpoints.per_rank(model, recipe="bf16-adam", layout=layout, stage=stage).total
                  for stage in range(pipeline)]
        exact = pipeline > 1 or model is not SMALL
        assert sum(stages) * layout.world / pipeline == pytest.approx(whole, rel=1e-9 if exact else 1e-3)
        assert max(stages) == checkpoints.per_rank(model, recipe="bf16-adam", layout=layout).total


def test_without_spreading_the_first_rank_writes_for_all():
    spread, alone = (checkpoints.per_rank(70e9, recipe="bf16-adam", layout=Layout(shard=64), spread=spread).total
                     for spread in (True, False))
    assert alone == 0.98e12
    assert spread == pytest.approx(15.3e9, rel=2e-3)


def test_fsdp2_writes_real_rows():
    layout = Layout(shard=3, zero=3)
    rows = optimizer_state.per_gpu(SMALL, recipe="fp32-adam", layout=layout)
    assert checkpoints.per_rank(SMALL, recipe="fp32-adam", layout=layout) == rows.without("gradients")
    halved = checkpoints.per_rank(SMALL, recipe="fp32-adam", layout=Layout(replicate=2, shard=3, zero=3))
    assert halved.total == pytest.approx(rows.without("gradients").total / 2)


# How long


@pytest.mark.parametrize(("to", "writers", "seconds"), [(20e9, 1, 49.0), (500e9, 1, 1.96), (30e9, 64, 0.5104)])
def test_write_times(to, writers, seconds):
    assert checkpoints.write_time(0.98e12, to=to, writers=writers) == pytest.approx(seconds, rel=1e-3)


def test_writers_multiply_a_node_local_tier_and_not_a_shared_one():
    local, shared = tiers.get("micron-9550"), tiers.get("tectonic")
    assert checkpoints.write_time(1e12, to=local, writers=8) == pytest.approx(1e12 / (8 * local.write), rel=1e-5)
    assert checkpoints.write_time(1e12, to="tectonic", writers=8) == pytest.approx(1e12 / shared.write, rel=1e-5)


def test_pytorch_reports_what_stalls():
    """pytorch.org/blog/reducing-checkpointing-times (2024-06-12): 7B, 148.8 s fell to 6.3 s that block, 23.62 times."""
    blocked, blocked_less = 148.8, 6.3
    assert blocked / blocked_less == pytest.approx(23.62, abs=0.005)
    synchronous, asynchronous = (checkpoints.drain(
        interval=1800, stages=[Stage("shared", blocked)], duration=86400, snapshot=0 if wait else blocked_less,
        asynchronous=not wait) for wait in (True, False))
    assert synchronous.stalled / len(synchronous.saves) == pytest.approx(blocked)
    assert asynchronous.stalled / len(asynchronous.saves) == pytest.approx(blocked_less)


# What piles up


def test_saving_every_half_minute_above_a_tier_of_49_seconds():
    """An hour of saves every 30 s: 120 made, 73 written: 47 wait or are being written, 46 TB of them."""
    waiting = checkpoints.backlog(interval=30, seconds=49, duration=3600)
    assert waiting == 47
    assert waiting * 0.98e12 == pytest.approx(46e12, rel=2e-3)
    run = checkpoints.drain(interval=30, stages=[Stage("NVMe", 0.51), Stage("durable", 49)], duration=3600)
    assert len(run.saves) == 120
    assert run.stalled == 0
    finished = sum(span.end <= 3600 for span in run.written["durable"])
    assert abs(len(run.saves) - finished - 47) <= 1
    assert run.newest("durable", 3600) < run.newest("NVMe", 3600) - 40
    assert run.at_risk("durable", 3600) > 20 * run.at_risk("NVMe", 3600)


def test_passing_over_older_versions_keeps_the_queue_short():
    run = checkpoints.drain(interval=30, stages=[Stage("NVMe", 0.51), Stage("durable", 49)], duration=3600,
                            keep="newest")
    assert run.waiting["durable"] <= 1
    assert run.skipped["durable"] + len(run.written["durable"]) + run.waiting["durable"] >= 118
    assert run.at_risk("durable", 3600) < 3 * 49


def test_a_full_cpu_memory_stalls_the_job():
    one, two = (checkpoints.drain(interval=10, stages=[Stage("shared", 25)], duration=1000, snapshot=1, buffers=buffers)
                for buffers in (1, 2))
    # One buffer: each save waits until the last is written, so a version comes every 26 s, of which 10 are work.
    assert one.stalls[2] == pytest.approx(16)
    assert two.stalls[1] == pytest.approx(1)
    assert one.stalled >= two.stalled > 100
    enough = checkpoints.drain(interval=30, stages=[Stage("shared", 25)], duration=1000, snapshot=1)
    assert set(enough.stalls) == {1.0}


def test_a_schedule_of_its_own_for_each_tier():
    run = checkpoints.drain(interval=300, duration=6 * 3600, stages=[
        Stage("NVMe", 0.5), Stage("shared", 49, every=1800), Stage("object storage", 600, every=7200)])
    assert len(run.saves) == 72
    assert [len(run.written[name]) for name in ("NVMe", "shared", "object storage")] == [72, 12, 3]
    assert not any(run.waiting.values())


def test_the_most_at_risk_is_just_before_a_version_counts():
    """By hand: saves at 10, 20, 30 and 40 s, 4 s each: at 14 s the first one counts, and the run has 14 s to lose;
    at 24 s the second, and what was saved at 10 s is 14 s old. At the end, 45 s, the copy of 40 s is complete."""
    run = checkpoints.drain(interval=10, stages=[Stage("a", 4)], duration=45)
    assert run.most_at_risk("a") == pytest.approx(14)
    assert run.at_risk("a", 45) == pytest.approx(5)
    assert checkpoints.drain(interval=10, stages=[Stage("a", 4)], duration=12).most_at_risk("a") == 12
    with pytest.raises(ValueError, match="name is 'b'; it must be one of a"):
        run.most_at_risk("b")


def test_the_schedule_of_the_exercise_in_its_worst_moments():
    """A save comes every 120 + 1 s, and the drives have it 1 + 3 s later. The file system takes every eighth, 900 s or
    more apart, and has it 100 s after the drives; the object store's figure is from the run itself."""
    run = checkpoints.drain(interval=120, duration=12 * 3600, snapshot=1, stages=[
        Stage("drives", 3), Stage("file system", 100, every=900), Stage("object store", 1200, every=7200)])
    worst = [run.most_at_risk(name) for name in run.written]
    assert worst == pytest.approx([121 + 4, 8 * 121 + 4 + 100, 9048], abs=0.5)


def test_a_wait_counts_no_longer_than_the_run():
    """One node of 1 GB/s, 980 s a version, saved every 10 s: the job stands nearly always, but not for longer than
    there is. Its last wait reached past the end and was counted in full: 1.08 of the hour."""
    run = checkpoints.drain(interval=10, stages=[Stage("NVMe", 980)], duration=3600, asynchronous=False)
    assert run.saves == (10, 1000, 1990, 2980)
    assert run.stalled == pytest.approx(3600 - 4 * 10)
    assert sum(run.stalls) == pytest.approx(4 * 980)


@given(st.floats(1, 60), st.floats(0.1, 90), st.floats(0.1, 90), st.sampled_from(["all", "newest"]), st.booleans())
def test_what_is_at_risk_never_exceeds_the_most(interval, first, second, keep, asynchronous):
    run = checkpoints.drain(interval=interval, stages=[Stage("a", first), Stage("b", second)], duration=500, keep=keep,
                            asynchronous=asynchronous)
    assert run.stalled <= 500
    for name in ("a", "b"):
        most = run.most_at_risk(name)
        assert all(run.at_risk(name, at) <= most + 1e-9 for at in range(0, 501, 7))


plans = st.builds(dict, interval=st.floats(1, 500), duration=st.floats(1, 5000), snapshot=st.floats(0, 20),
                  buffers=st.integers(1, 3), asynchronous=st.booleans(), keep=st.sampled_from(["all", "newest"]),
                  stages=st.lists(st.tuples(st.floats(0.1, 300), st.sampled_from([0, 100, 1000])), min_size=1,
                                  max_size=3).map(lambda all: [Stage(f"tier {n}", *one) for n, one in enumerate(all)]))


@given(plans)
def test_no_tier_writes_two_at_once_or_what_the_one_above_has_not(plan):
    run = checkpoints.drain(**plan)
    above = None
    for stage in plan["stages"]:
        spans = run.written[stage.name]
        assert all(a.end <= b.start and a.version < b.version for a, b in pairwise(spans))
        if above is not None:
            there = {span.version: span.end for span in above}
            assert all(there[span.version] <= span.start for span in spans)
        above = spans
    assert all(stall >= (0 if plan["asynchronous"] else plan["stages"][0].seconds) * (1 - 1e-9) for stall in run.stalls)


# What a drive bears


def test_endurance_of_a_drive_under_checkpoints():
    """70B every five minutes on the eight drives of one node of eight: an eighth of 0.98 TB each node and time."""
    nbytes = 0.98e12 / 8
    a_day = checkpoints.written_each_day(nbytes, interval=300)
    assert a_day == pytest.approx(nbytes * 288)
    rated = evidence.get("nvme.micron-9550.endurance-3200gb").quantity
    days = checkpoints.drive_life(nbytes, interval=300, endurance=rated, drives=8) / checkpoints.DAY
    assert days == pytest.approx(rated / (a_day / 8))
    # The state itself on flash, written anew in each step of 30 s: eight drives of 17.5 PB are dead in 58 days.
    assert checkpoints.drive_life(840 * GB, interval=30, endurance=rated, drives=8) / checkpoints.DAY == pytest.approx(
        58, abs=0.5)
    assert checkpoints.drive_life(0, interval=30, endurance=rated) == float("inf")


@given(st.floats(1, 40), st.floats(0.1, 90), st.floats(0.1, 90), st.sampled_from(["all", "newest"]), st.floats(0, 2000))
def test_the_newest_version_is_the_last_that_was_finished(interval, first, second, keep, at):
    run = checkpoints.drain(interval=interval, stages=[Stage("a", first), Stage("b", second)], duration=1000, keep=keep)
    for name in ("a", "b"):
        done = [span.version for span in run.written[name] if span.end <= at]
        assert run.newest(name, at) == max(done, default=None)
    with pytest.raises(ValueError, match="name is 'c'; it must be one of a, b"):
        run.at_risk("c", at)


def test_a_rate_may_be_of_any_kind_of_number():
    for rate in (10**9, np.int64(10**9), Fraction(10**9)):
        assert checkpoints.write_time(5 * 10**9, to=rate) == 5


@pytest.mark.parametrize(("call", "message"), [
    (lambda: checkpoints.inventory(70e9, recipe="bf16-adam", contents="all"), "contents is 'all'"),
    (lambda: checkpoints.write_time(-1, to=1e9), "nbytes is -1"),
    (lambda: checkpoints.write_time(1, to=0), "to is 0"),
    (lambda: checkpoints.write_time(1, to=1e9, writers=0), "writers is 0"),
    (lambda: checkpoints.write_time(1, to="floppy"), "to is 'floppy'; it must be bytes a second as a number, or the n"),
    (lambda: checkpoints.write_time(1, to="20 GB/s"), "to is '20 GB/s'"),
    (lambda: checkpoints.write_time(1, to="h100-node-dram"), "to is 'h100-node-dram'; the ledger has no write rate"),
    (lambda: checkpoints.per_rank("llama-3.2-1b", recipe="bf16-adam", layout=Layout(shard=8, zero=3), stage="banana"),
     "stage is 'banana'; it must be a whole number from 0 to 0"),
    (lambda: checkpoints.per_rank(70e9, recipe="bf16-adam", layout=None), "layout is None; it must be a Layout"),
    (lambda: checkpoints.per_rank(70e9, recipe="bf16-adam", layout=Layout(), spread=None), "spread is None; it must"),
    (lambda: checkpoints.drain(interval=30, stages=[Stage("NVMe", 1)], duration=60, asynchronous="no"),
     "asynchronous is 'no'; it must be True or False"),
    (lambda: checkpoints.drain(interval=30, stages=5, duration=60), "stages is 5; it must be a list of Stages"),
    (lambda: checkpoints.drain(interval=30, stages=["NVMe"], duration=60), "stages has 'NVMe'; it must be a Stage"),
    (lambda: checkpoints.drain(interval=30, stages=[Stage("a", 1), Stage("a", 1)], duration=60), "each stage's own"),
    (lambda: checkpoints.backlog(interval=1e-300, seconds=1, duration=1e300), "duration / interval is inf"),
    (lambda: checkpoints.per_rank(70e9, recipe="bf16-adam", layout=Layout(pipeline=2), stage=2),
     "stage is 2; it must be a whole number from 0 to 1"),
    (lambda: checkpoints.per_rank(SMALL, recipe="bf16-adam", layout=Layout(pipeline=8)),
     "pipeline is 8; it must be a whole number from 1 to 7"),
    (lambda: checkpoints.stage_parameters(70e9, pipeline=2), "a count has no layers"),
    (lambda: checkpoints.per_rank(SMALL, recipe="adafactor", layout=Layout(pipeline=2)), "shapes"),
    (lambda: checkpoints.drain(interval=30, stages=[], duration=60), "stages is empty"),
    (lambda: checkpoints.drain(interval=30, stages=[Stage("NVMe", 0)], duration=60), "seconds of NVMe is 0"),
    (lambda: checkpoints.drain(interval=30, stages=[Stage("NVMe", 1)], duration=60, keep="none"), "keep is 'none'"),
    (lambda: checkpoints.drain(interval=1e-9, stages=[Stage("NVMe", 1)], duration=60), "at most 100000"),
    (lambda: checkpoints.backlog(interval=0, seconds=1, duration=1), "interval is 0"),
    (lambda: checkpoints.drive_life(1, interval=1, endurance=0), "endurance is 0"),
])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
