"""The checkpoints of memtier.lab: real ranks killed with kill -9, files damaged, disks full, a store that goes away.

After each the run goes on from the newest whole version in the fastest store that has it, and its losses equal those
of a run that nobody disturbed, bit for bit.
"""

import errno
import functools
import os
import random
import resource
import shutil
import sys
import threading
import time
from pathlib import Path

import checkpoint_kills as kills
import pytest
import torch.distributed as dist
from checkpoint_kills import Job, Settings

from memtier import checkpoints as formulas
from memtier.lab import checkpoint_store, checkpoints, processes, training_run
from memtier.lab.checkpoint_store import MANIFEST, Damaged, Store
from memtier.lab.checkpoints import Checkpointer, Schedule
from memtier.lab.training_run import Training

CHAINS = [  # seed, kills, ranks an attempt may have, whether each rank has data of its own
    (3, 10, (2,), True), (4, 6, (4,), True), (5, 8, (2, 4, 1), False),
]  # fmt: skip
SMALL = Settings(width=32, depth=2)
UNTIL = 16  # steps of the jobs whose files are damaged


# Real ranks, killed


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """24 kills. chain() asserts after each that nothing is lost, and at the end that all losses are right."""
    return [each for seed, count, ranks, own_data in CHAINS
            for each in kills.chain(seed, count, ranks, tmp_path_factory.mktemp("chain"), own_data=own_data)]


def test_24_kills_lose_nothing(records):
    assert len(records) == 24
    assert {each.ranks for each in records} >= {2, 4}
    assert any(each.damaged for each in records)
    assert sum(each.before is not None for each in records) > 12  # most of them were killed after a restart


def test_kills_fall_on_every_stage(records):
    counts = kills.histogram(records)
    assert {"snapshot", "write", "manifest", "drain"} <= set(counts), counts


# Real ranks, damaged files


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A job of two ranks that has reached UNTIL, and the losses of one that goes on undisturbed."""
    job = Job(tmp_path_factory.mktemp("finished"), SMALL)
    job.attempt(2, UNTIL)
    return job, kills.uninterrupted(tmp_path_factory.mktemp("undisturbed"), SMALL, 2, UNTIL + 4)


@pytest.mark.parametrize("how", kills.DAMAGES)
def test_damage_is_found_and_passed_over(how, finished, tmp_path):
    job, losses = finished
    shutil.copytree(job.folder, tmp_path, dirs_exist_ok=True)
    job = Job(tmp_path, SMALL)
    step, number, version = job.whole()[0]
    assert number == 0
    kills.damage(job.places[0], version, how, random.Random(how))
    newest, number, _ = job.whole()[0]
    lines = job.attempt(4, UNTIL + 4)
    start = next(line for line in lines if "start" in line)
    assert start["start"] == [newest, job.places[-number].name]
    assert start["passed_over"][0].startswith(f"step {step} in local: ")
    assert any(line.get("said", "").endswith("looking further") for line in lines)
    after = dict(kills.losses_of(lines))
    assert set(after) == set(range(newest + 1, UNTIL + 5))
    assert all(after[step] == losses[step] for step in after)


# Real ranks, a disk that is full, a store that goes away


def full_from_4_to_9(rank):
    """The kernel refuses to let a file grow beyond 30 kB while steps 4 to 9 run: a disk that is full, for a while."""

    def step(number: int) -> None:
        if number in (4, 9):
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000 if number == 4 else most, most))

    return {"step": step}


def test_a_full_disk_is_reported_and_the_run_goes_on(tmp_path):
    job = Job(tmp_path, Settings(width=96, depth=2), behind="wait")
    lines = job.attempt(2, 16, hooks=full_from_4_to_9)
    said = [line["said"] for line in lines if "said" in line]
    refused = [each for each in said if "not saved, the run goes on" in each]
    assert refused
    assert all(os.strerror(errno.EFBIG) in each for each in refused)
    assert "finished" in lines[-1]
    assert [step for step, _ in kills.losses_of(lines)] == list(range(1, 17))
    whole = job.whole()
    assert whole[0][0] == 16  # saved again once there was room
    left = {version for place in job.places for version in place.contents()}
    assert left == {version for _, _, version in whole}  # and nothing half written stayed


def wait_for(sign: Path) -> None:
    while not sign.exists():
        time.sleep(0.01)


def waits_for_the_stop(folder: Path, rank: int):
    """Once it has begun to send files to the object store, rank 0 waits until the store is gone; says when it gives up.

    Signs are files of this folder.
    """

    def stage(where: str, stage: str) -> None:
        if (where, stage) == ("object", "drain") and not (folder / "sending").exists():
            (folder / "sending").touch()
            wait_for(folder / "stopped")
        elif (where, stage) == ("object", "idle"):
            (folder / "in vain").touch()

    return {"stage": stage}


def test_s3_stopped_in_mid_drain_and_returning(tmp_path):
    with kills.s3_server() as (server, options):
        job = Job(tmp_path, SMALL, options, "s3://bucket/run")

        def stop_and_return():
            wait_for(tmp_path / "sending")
            server.stop()
            (tmp_path / "stopped").touch()
            wait_for(tmp_path / "in vain")
            server.start()

        outage = threading.Thread(target=stop_and_return, daemon=True)
        outage.start()
        lines = job.attempt(2, 12, hooks=functools.partial(waits_for_the_stop, tmp_path))
        outage.join()
        said = [line["said"] for line in lines if "said" in line]
        assert any("object failed" in each for each in said), said
        assert "finished" in lines[-1]
        sent = [step for step, number, _ in job.whole() if job.places[-number].name == "object"]
        assert sent, said
        for name in ("local", "shared"):
            shutil.rmtree(tmp_path / name)
        lines = job.attempt(2, 16)
    assert next(line for line in lines if "start" in line)["start"] == [sent[0], "object"]
    losses = kills.uninterrupted(tmp_path / "undisturbed", SMALL, 2, 16)
    assert dict(kills.losses_of(lines)) == {step: losses[step] for step in range(sent[0] + 1, 17)}


# The command


def command(folder: Path, steps: int, port: int) -> None:
    """`python -m memtier.lab.training_run` as torchrun would start it, for one rank."""
    with open(folder / f"until-{steps}.txt", "w") as words:
        os.dup2(words.fileno(), 1)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = ["training_run", str(folder), "--steps", str(steps), "--seconds", "0", "--every", "0", "0", "0"]
    training_run._main()


def test_the_command_goes_on_where_it_stopped(tmp_path):
    lines = []
    for steps in (3, 5):
        run = kills.forking().Process(target=command, args=(tmp_path, steps, kills.free_port()))
        run.start()
        run.join(kills.TIMEOUT)
        assert run.exitcode == 0
        lines.append((tmp_path / f"until-{steps}.txt").read_text().splitlines())
    assert lines[0][0] == "from the start"
    start = int(lines[1][0].removesuffix(", local").removeprefix("from step "))
    assert 1 <= start <= 3
    first, then = ([line.split() for line in each if line.startswith("step ") and "loss" in line] for each in lines)
    assert [int(step) for _, step, *_ in then] == list(range(start + 1, 6))
    assert all(line in first for line in then if int(line[1]) <= 3)  # the same losses again


# Bytes


@pytest.mark.parametrize("ranks", [1, 2])
def test_predicted_bytes_are_those_of_the_files(ranks, tmp_path):
    settings = Settings(width=1024, depth=3)
    job = Job(tmp_path, settings)
    job.attempt(ranks, 2, places=job.places[:1])
    version = job.places[0].complete()[0]
    on_disk = sum(each.stat().st_size for each in Path(job.places[0].path(version)).iterdir())
    parameters = settings.depth * (settings.width**2 + settings.width)
    predicted = formulas.inventory(parameters, recipe="fp32-adam").total
    assert abs(on_disk / predicted - 1) < 0.005
    # What is not state: the file format, some 2 kB a tensor a shard (weight, two moments; the counters are whole).
    assert 0 < on_disk - predicted - 4 * 2 * settings.depth < 2_500 * 8 * settings.depth * (ranks + 1)


# One process: each mechanism by itself


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """A process group of this process alone."""
    processes.join(0, 1, str(tmp_path_factory.mktemp("meeting") / "store"))
    yield
    dist.destroy_process_group()


@pytest.fixture
def said():
    return []


@pytest.fixture
def places(tmp_path):
    return [Store(name, str(tmp_path / name), 0) for name in ("local", "shared", "object")]


@pytest.fixture
def training(group):
    return Training(SMALL)


def saved(training, places, said, steps, **options) -> Checkpointer:
    """A Checkpointer that has saved those steps, each written before the next."""
    checkpointer = Checkpointer(places, say=said.append, **options)
    for step in steps:
        training.step = step
        checkpointer.save(step, training, wait=True)
        while not checkpointer.idle:
            time.sleep(0.001)
    return checkpointer


def steps_in(place) -> list[int]:
    return [checkpoint_store.step_of(version) for version in place.complete()]


def test_a_clock_that_jumps_ahead_brings_one_version_early():
    now = [0.0]
    schedule = Schedule(60, lambda: now[0])
    now[0] = 59
    assert not schedule.due()
    now[0] = 1e9
    assert schedule.due()
    schedule.done()
    assert not schedule.due()
    now[0] += 60
    assert schedule.due()


def test_a_clock_that_jumps_back_delays_one_version_by_one_interval():
    now = [1e9]
    schedule = Schedule(60, lambda: now[0])
    now[0] = 5
    assert not schedule.due()
    now[0] = 64
    assert not schedule.due()
    now[0] = 65
    assert schedule.due()


def test_a_run_whose_clock_jumps_keeps_saving(training, tmp_path, said):
    now = [1e6]
    checkpointer = Checkpointer([Store("local", str(tmp_path), 10)], say=said.append, clock=lambda: now[0])
    saves = []
    for step, later in enumerate([5, 5, 1e9, 5, 5, -1e9, 5, 5, 5], start=1):
        now[0] += later
        while not checkpointer.idle:
            time.sleep(0.001)
        if checkpointer.after_step(step, training):
            saves.append(step)
    checkpointer.close()
    assert saves == [2, 3, 5, 8]


def test_the_usual_schedules(tmp_path):
    usual = checkpoints.stores(str(tmp_path), str(tmp_path / "s"), "s3://bucket/run", endpoint_url="http://x")
    assert [(each.name, each.every) for each in usual] == [("local", 300), ("shared", 1800), ("object", 14400)]
    assert [each.options for each in usual] == [{}, {}, {"endpoint_url": "http://x"}]


def test_each_store_has_its_own_schedule(training, tmp_path, said):
    now = [0.0]
    places = [Store(name, str(tmp_path / name), every, 99)
              for name, every in (("local", 1), ("shared", 4), ("object", 8))]
    checkpointer = Checkpointer(places, say=said.append, clock=lambda: now[0], behind="wait")
    for step in range(1, 12):
        now[0] = step
        checkpointer.after_step(step, training)
    assert checkpointer.close()
    assert [steps_in(place)[::-1] for place in places] == [[*range(1, 12)], [1, 5, 9], [1, 9]]


def test_a_version_due_while_one_is_written_is_skipped_once_and_said(training, places, said):
    gate = threading.Event()
    hold = lambda where, stage: stage == "write" and gate.wait()  # noqa: E731
    checkpointer = Checkpointer(places[:1], say=said.append, watch=hold)
    assert checkpointer.after_step(1, training)
    assert not checkpointer.after_step(2, training)
    assert not checkpointer.after_step(3, training)
    assert checkpointer.status() == "local: busy"
    gate.set()
    while not checkpointer.idle:
        time.sleep(0.001)
    assert checkpointer.status() == "local: free, newest step 1"
    assert checkpointer.after_step(4, training)
    checkpointer.close()
    assert steps_in(places[0]) == [4, 1]
    assert [each for each in said if "skipped" in each] == [
        "step 2: skipped, local is still busy with the version before; the next step that finds it free is saved"]


def test_a_slow_store_gets_the_newest_and_the_queue_stays_short(training, places, said):
    gate = threading.Event()
    wait = lambda where, stage: where == "object" and stage == "drain" and gate.wait()  # noqa: E731
    checkpointer = saved(training, places, said, range(1, 6), watch=wait)
    assert "object: step 1 on its way" in checkpointer.status()
    assert "step 5 waits" in checkpointer.status()
    assert 1 in steps_in(places[0])  # still to be sent, so retention has spared it
    gate.set()
    assert checkpointer.close()
    assert steps_in(places[2]) == [5, 1]
    assert [each for each in said if "takes its place" in each and "object" in each] == [
        f"step {step}: not sent to object, which is behind; step {step + 1} takes its place" for step in (2, 3, 4)]


def test_the_loop_waits_for_a_slow_store_where_asked(training, tmp_path, said):
    places = [Store(name, str(tmp_path / name), 0, 99) for name in ("local", "shared")]
    slow = lambda where, stage: where == "shared" and stage == "drain" and time.sleep(0.05)  # noqa: E731
    checkpointer = Checkpointer(places, say=said.append, watch=slow, behind="wait")
    assert all(checkpointer.after_step(step, training) for step in range(1, 5))
    checkpointer.close()
    assert steps_in(places[1]) == [4, 3, 2, 1]


def test_a_full_slow_store_is_tried_again_until_there_is_room(training, places, said, monkeypatch):
    write, failures = Store.write, iter([errno.ENOSPC, errno.ENOSPC])

    def full(store, version, name, blocks):
        if store.name == "shared" and (error := next(failures, None)):
            raise OSError(error, os.strerror(error))
        return write(store, version, name, blocks)

    monkeypatch.setattr(Store, "write", full)
    checkpointer = saved(training, places, said, [1], retry=0.01)
    assert checkpointer.close()
    assert [steps_in(place) for place in places] == [[1], [1], [1]]
    assert sum("shared failed: [Errno 28] No space left on device; again in" in each for each in said) == 2


def test_no_room_for_the_manifest(training, places, said, monkeypatch):
    checkpointer = saved(training, places[:1], said, [1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        checkpointer.save(2, training, wait=True)
    assert steps_in(places[0]) == [1]
    assert said[-1] == "step 2: not saved, the run goes on: [Errno 28] No space left on device"
    checkpointer.save(3, training, wait=True)
    checkpointer.close()
    assert steps_in(places[0]) == [3, 1]
    assert len(places[0].contents()) == 2


def test_a_store_given_up_at_the_end_is_named(training, places, said, monkeypatch):
    def gone(store, version, name, blocks):
        raise OSError("no answer")

    monkeypatch.setattr(Store, "write", gone)
    checkpointer = saved(training, places[:2], said, [1], retry=0.01)
    assert not checkpointer.close(0.1)
    assert said[-1] == "shared: gave up on step 1"


def test_retention_never_deletes_the_last_good_version(training, places, said):
    place = Store("local", places[0].url, 0, keep=1)
    saved(training, [place], said, [1]).close()
    write, flip = checkpoints._HashedStream.write, {"on": True}

    def flipped(stream, block):
        data = bytearray(block)
        if flip["on"] and len(data) > 1000:
            data[500] ^= 1
        stream.hash.add(memoryview(block).cast("B"))
        stream.file.write(data)
        return len(data)

    checkpoints._HashedStream.write = flipped  # what reaches the disk is not what was meant
    try:
        checkpointer = saved(training, [place], said, [2, 3])
    finally:
        checkpoints._HashedStream.write = write
    assert steps_in(place) == [3, 2, 1]
    assert sum("is damaged" in each for each in said) == 3
    restored = checkpointer.restore(training)
    assert (restored.step, len(restored.passed_over)) == (1, 2)
    checkpointer.save(4, training, wait=True)
    checkpointer.close()
    assert steps_in(place) == [4]


def test_a_failure_to_tidy_up_costs_no_version(training, places, said, monkeypatch):
    monkeypatch.setattr(Store, "retain", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    assert saved(training, places[:2], said, [1]).close()
    assert [steps_in(place) for place in places[:2]] == [[1], [1]]
    assert sorted(each for each in said if "tidy" in each) == [
        f"{name}: could not tidy up: [Errno 5] Input/output error" for name in ("local", "shared")]


def test_what_an_interrupted_run_left_goes(training, places, said):
    saved(training, places[:1], said, [1]).close()
    half = Path(places[0].path("step-0000000009-deadbeef"))
    half.mkdir()
    (half / "__0_0.distcp").write_bytes(b"half a shard")
    foreign = Path(places[0].path("notes", "read me"))
    foreign.parent.mkdir()
    foreign.touch()
    saved(training, places[:1], said, [2]).close()
    assert not half.exists()
    assert foreign.exists()
    assert steps_in(places[0]) == [2, 1]


def test_versions_are_not_mixed(training, places, said):
    checkpointer = saved(training, places[:1], said, [1])
    entry = {"bytes": 1, "sha256": ""}
    with pytest.raises(RuntimeError, match="not all one"):
        checkpointer._commit("one", [("one", {"__0_0.distcp": entry}), ("other", {"__1_0.distcp": entry})])
    training.step = 2
    checkpointer.save(2, training, wait=True)
    checkpointer.close()
    newer, older = (Path(places[0].path(version)) for version in places[0].complete())
    shutil.copy(older / "__0_0.distcp", newer / "__0_0.distcp")  # the same name, the same size, another step
    with pytest.raises(Damaged, match=r"__0_0.distcp has another checksum"):
        places[0].check(newer.name)


def test_the_manifest_comes_last(training, places, said, monkeypatch):
    seen = []
    commit = Store.commit

    def look(store, version, body):
        seen.append(store.name)
        assert MANIFEST not in store.contents()[version]
        assert set(store.contents()[version]) == set(body["files"])
        commit(store, version, body)
        store.check(version)

    monkeypatch.setattr(Store, "commit", look)
    assert saved(training, places, said, [1]).close()
    assert sorted(seen) == ["local", "object", "shared"]


def test_a_manifest_of_another_version_does_not_count(training, places, said):
    saved(training, places[:1], said, [1, 2]).close()
    newer, older = (Path(places[0].path(version)) for version in places[0].complete())
    shutil.copy(newer / MANIFEST, older / MANIFEST)
    with pytest.raises(Damaged, match="its manifest is damaged"):
        places[0].check(older.name)


def test_a_damaged_version_is_not_sent_on(training, places, said):
    shards = []

    def flip_first(where, stage):
        if (where, stage) == ("local", "manifest"):
            shard = next(Path(places[0].url).glob("*/__0_0.distcp"))
            data = bytearray(shard.read_bytes())
            data[len(data) // 2] ^= 4
            shard.write_bytes(data)
            shards.append(shard)

    assert saved(training, places[:2], said, [1], watch=flip_first).close()
    assert shards
    assert steps_in(places[1]) == []
    assert any("not sent to shared, damaged in local: __0_0.distcp has another checksum" in each for each in said)


def test_nothing_there_is_a_fresh_start(training, places, said):
    checkpointer = Checkpointer(places, say=said.append)
    assert checkpointer.restore(training) is None
    checkpointer.close()


def test_damage_everywhere_is_an_error_and_no_fresh_start(training, places, said):
    checkpointer = saved(training, places[:1], said, [1])
    kills.damage(places[0], places[0].complete()[0], "tear", random.Random(0))
    with pytest.raises(RuntimeError, match="no checkpoint could be restored: step 1 in local: "):
        checkpointer.restore(training)
    checkpointer.close()


def test_a_store_that_does_not_answer_is_no_fresh_start_either(training, places, said, monkeypatch):
    checkpointer = Checkpointer(places[:1], say=said.append)
    monkeypatch.setattr(Store, "complete", lambda store: (_ for _ in ()).throw(ConnectionError("refused")))
    with pytest.raises(RuntimeError, match="local does not answer: refused"):
        checkpointer.restore(training)
    checkpointer.close()


def test_state_is_copied_before_the_loop_goes_on(training, places, said):
    gate = threading.Event()
    hold = lambda where, stage: stage == "write" and gate.wait()  # noqa: E731
    checkpointer = Checkpointer(places[:1], say=said.append, watch=hold)
    first = training.train_step()
    checkpointer.save(1, training)
    second = training.train_step()  # while the writing thread waits
    gate.set()
    checkpointer._writing.result()
    assert checkpointer.restore(training).step == training.step == 1
    assert training.train_step() == second != first
    checkpointer.close()


def test_arguments_are_refused_by_name(group, places, tmp_path):
    for bad, message in (({"behind": "panic"}, "behind is 'panic'"), ({"places": []}, "places is \\[\\]"),
                         ({"places": [Store("local", str(tmp_path), 1, keep=0)]}, "keep of local is 0"),
                         ({"places": [Store("local", str(tmp_path), -1)]}, "every is -1"),
                         ({"places": [Store("memory", "memory://x", 1)]}, "must be a folder of this machine")):
        with pytest.raises(ValueError, match=message):
            Checkpointer(**{"places": places} | bad)
    with pytest.raises(ValueError, match="width is 0"):
        Settings(width=0)
