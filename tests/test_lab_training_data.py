"""The pipeline keeps its promises: every sample once an epoch whatever is killed, no byte that is not the manifest's,
and none left out where the store fails."""

import errno
import itertools
import multiprocessing
import os
import signal
import threading
from itertools import islice
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch

from memtier import training_data
from memtier.lab import training_data as lab

SHARDS, SAMPLES = 6, 5
EPOCH = SHARDS * SAMPLES
QUICK = {"pause": 0.0}


@pytest.fixture(scope="module")
def url():
    lab.write("memory://tests", shards=SHARDS, samples=SAMPLES, sequence=12, vocabulary=300)
    return "memory://tests"


def drawn(pipeline, batches):
    """The first so many batches."""
    with_end = iter(pipeline)
    took = list(islice(with_end, batches))
    with_end.close()
    return took


def seen(batches):
    return [sample for batch in batches for sample in batch.samples]


def same(left, right):
    return len(left) == len(right) and all(
        a.samples == b.samples and torch.equal(a.ids, b.ids) and a.after == b.after
        for a, b in zip(left, right, strict=True))


# The dataset

def test_a_dataset_is_what_its_manifest_says_and_always_the_same(tmp_path):
    told = lab.write(f"file://{tmp_path}/one", vocabulary=70_000)
    assert told == lab.write(f"file://{tmp_path}/two", vocabulary=70_000)
    assert told != lab.write(f"file://{tmp_path}/three", vocabulary=70_000, seed=1)
    assert lab.Pipeline(lab.Store(f"file://{tmp_path}/one")).dataset == told
    files = sorted((tmp_path / "one").glob("*.bin"))
    assert told.nbytes == sum(path.stat().st_size for path in files)
    assert told.nbytes == training_data.text(told.samples * told.sequence, vocabulary=70_000).total
    assert told.dtype == np.uint32
    assert lab.Dataset(65_536, 1, (), "").dtype == np.uint16


# Order, workers, and going on

def test_every_sample_comes_once_an_epoch_and_each_epoch_in_another_order(url):
    samples = seen(drawn(lab.Pipeline(lab.Store(url), batch=3), 2 * EPOCH // 3))
    first, second = samples[:EPOCH], samples[EPOCH:]
    everything = list(itertools.product(range(SHARDS), range(SAMPLES)))
    assert sorted(first) == sorted(second) == everything
    assert first != second != everything


def test_a_batch_holds_the_samples_it_names(url):
    files, root = fsspec.core.url_to_fs(url)
    for batch in drawn(lab.Pipeline(lab.Store(url)), 5):
        for (shard, index), row in zip(batch.samples, batch.ids, strict=True):
            data = np.frombuffer(files.cat_file(f"{root}/shard-{shard:05d}.bin"), "<u2").reshape(SAMPLES, 12)
            assert row.tolist() == data[index].tolist()


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_the_order_does_not_depend_on_who_fetches(url, workers, ahead, tmp_path):
    one = drawn(lab.Pipeline(lab.Store(url), batch=4), 20)
    cache = lab.Cache(tmp_path, limit=300)
    assert same(drawn(lab.Pipeline(lab.Store(url), cache, batch=4, workers=workers, ahead=ahead), 20), one)


@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_run_that_stops_anywhere_goes_on_without_repeating_or_skipping(url, before, after):
    """Batches of 4 of 30 samples: some stop mid-window, one spans two epochs."""
    whole = drawn(lab.Pipeline(lab.Store(url), batch=4), 17)
    for stop in range(1, 17):
        half = drawn(lab.Pipeline(lab.Store(url), batch=4, workers=before), stop)
        rest = drawn(lab.Pipeline(lab.Store(url), batch=4, workers=after, at=half[-1].after), 17 - stop)
        assert same(half + rest, whole)


def test_another_batch_size_goes_on_with_the_same_samples(url):
    whole = seen(drawn(lab.Pipeline(lab.Store(url), batch=1), 60))
    half = drawn(lab.Pipeline(lab.Store(url), batch=7), 3)
    rest = drawn(lab.Pipeline(lab.Store(url), batch=3, at=half[-1].after), 13)
    assert seen(half + rest) == whole


@pytest.mark.parametrize("other", [{"seed": 1}, {"window": 3}, {"reshuffle": False}])
def test_a_position_in_another_order_is_refused(url, other):
    with pytest.raises(ValueError, match=r"at is a position in the order .*seed 0, window 2"):
        lab.Pipeline(lab.Store(url), at=lab.Pipeline(lab.Store(url)).at, **other)


def test_losses_after_going_on_are_those_of_an_uninterrupted_run_bit_for_bit(url):
    model = lab.learner(300)
    whole = lab.train(lab.Pipeline(lab.Store(url)), model, steps=24)
    assert whole.losses[-1] < whole.losses[0]
    assert len(whole.waited) == len(whole.computed) == 24
    assert 0 < whole.waiting() < 1
    model = lab.learner(300)
    half = lab.train(lab.Pipeline(lab.Store(url), workers=4), model, steps=10)
    rest = lab.train(lab.Pipeline(lab.Store(url), workers=1, at=half.at), model, steps=14)
    assert half.losses + rest.losses == whole.losses
    assert half.samples + rest.samples == whole.samples


def _dies(folder, workers, moment, how):
    """A run that kills itself at its `moment`th file: before or after it is put in place, or while it is saved."""
    replace, save, left = os.replace, torch.save, itertools.count(1)

    def killed_replace(*names):
        dying = how != "torn" and next(left) == moment
        if dying and how == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*names)
        if dying:
            os.kill(os.getpid(), signal.SIGKILL)

    def torn_save(state, path):
        save(state, path)
        if how == "torn" and next(left) == moment:
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace, torch.save = killed_replace, torn_save
    lab.main([str(folder), "--workers", str(workers), "--pace", "0"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork, to kill a run that has torch loaded")
def test_a_run_killed_around_any_write_ends_as_if_nothing_had_happened(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(lab.Store, "read", lambda store, name: store.files.cat_file(f"{store.root}/{name}"))
    lab.main([str(tmp_path / "whole"), "--pace", "0"])
    fork = multiprocessing.get_context("fork")
    for workers, moment, how in [(2, 3, "before"), (1, 22, "after"), (4, 1, "before"), (4, 14, "torn"),
                                 (2, 30, "after"), (1, 8, "torn")]:
        run = fork.Process(target=_dies, args=(tmp_path / "killed", workers, moment, how))
        run.start()
        run.join(60)
        assert run.exitcode == -signal.SIGKILL
    lab.main([str(tmp_path / "killed"), "--pace", "0"])
    whole, killed = (torch.load(tmp_path / name / "run.pt") for name in ("whole", "killed"))
    assert killed["samples"] == whole["samples"]
    assert killed["at"] == whole["at"]
    assert all(torch.equal(killed["model"][name], whole["model"][name]) for name in whole["model"])
    lab.main([str(tmp_path / "killed"), "--pace", "0"])  # nothing is left to do
    assert capfd.readouterr().out.count("going on after") >= 4


# A slow, failing or lying store

@pytest.mark.parametrize("way", lab.LOADS)
def test_a_bad_read_is_reported_and_done_again(url, way):
    clean = drawn(lab.Pipeline(lab.Store(url)), 15)
    store = lab.FaultyStore(url, {"shard-00003.bin": [way], "shard-00004.bin": ["", way]})
    pipeline = lab.Pipeline(store, patience=1 if way == "hang" else 20, **QUICK)
    assert same(drawn(pipeline, 15), clean)  # two epochs: the second read of shard 4 is bad as well
    assert sorted(event.split(":")[0] for event in pipeline.events) == [
        "shard-00003.bin, attempt 1", "shard-00004.bin, attempt 1"]


@pytest.mark.parametrize("way", [each for each in lab.LOADS if each != "hang"])
@pytest.mark.parametrize("workers", [1, 4])
def test_a_shard_that_cannot_be_had_stops_the_run_and_nothing_is_skipped(url, way, workers):
    clean = seen(drawn(lab.Pipeline(lab.Store(url), batch=1), EPOCH))
    store = lab.FaultyStore(url, {"shard-00003.bin": [way] * 9})
    pipeline, samples = lab.Pipeline(store, batch=1, workers=workers, attempts=3, **QUICK), []
    with pytest.raises(lab.StoreError, match=r"shard-00003\.bin, attempt 3: .*; the run stops here and skips nothing"):
        samples.extend(seen([batch]) for batch in pipeline)
    samples = [sample for took in samples for sample in took]
    assert samples == clean[:len(samples)]
    assert len(pipeline.events) == 3
    at = drawn(lab.Pipeline(lab.Store(url), batch=1), len(samples))[-1].after if samples else None
    assert seen(drawn(lab.Pipeline(lab.Store(url), batch=1, at=at), EPOCH - len(samples))) == clean[len(samples):]


@pytest.mark.parametrize("way", ["fail", "missing", "flip", "short"])
def test_a_manifest_is_not_believed_either(url, way):
    pipeline = lab.Pipeline(lab.FaultyStore(url, {lab.MANIFEST: [way]}), **QUICK)
    assert [event.split(":")[0] for event in pipeline.events] == ["manifest.json, attempt 1"]
    with pytest.raises(lab.StoreError, match="manifest.json, attempt 2"):
        lab.Pipeline(lab.FaultyStore(url, {lab.MANIFEST: [way] * 4}), attempts=2, **QUICK)


def test_a_manifest_that_was_changed_is_found_out():
    lab.write("memory://changed", shards=1)
    files, root = fsspec.core.url_to_fs("memory://changed")
    text = files.cat_file(f"{root}/{lab.MANIFEST}")
    files.pipe_file(f"{root}/{lab.MANIFEST}", text.replace(b'"samples": 16', b'"samples": 15'))
    with pytest.raises(lab.StoreError, match="checksum differs"):
        lab.Pipeline(lab.Store("memory://changed"), attempts=1)


def test_workers_fetch_at_the_same_time(url):
    """The first read does not end before the second has begun: with one worker none begins, and the run says so."""
    class Together(lab.Store):
        def read(self, name):
            if name != lab.MANIFEST and next(self.begun) < self.barrier.parties:
                self.barrier.wait()
            return super().read(name)

    store = Together(url)
    store.begun, store.barrier = itertools.count(), threading.Barrier(2, timeout=20)
    assert same(drawn(lab.Pipeline(store, workers=2, patience=30), 7), drawn(lab.Pipeline(lab.Store(url)), 7))
    store.begun, store.barrier = itertools.count(), threading.Barrier(2, timeout=0.2)
    with pytest.raises(lab.StoreError):
        drawn(lab.Pipeline(store, workers=1, attempts=1), 1)


def test_a_slow_store_waits_latency_and_bytes_over_bandwidth(url, monkeypatch):
    slept = []
    monkeypatch.setattr(lab.time, "sleep", slept.append)
    data = lab.Store(url, latency=0.15, bandwidth=1000).read("shard-00000.bin")
    assert slept == [0.15 + len(data) / 1000]


# The cache

def cached(url, folder, **how):
    cache = lab.Cache(folder, **{"limit": 1e6} | how)
    return cache, lab.Pipeline(lab.Store(url), cache, **QUICK)


def test_a_cache_answers_a_later_run_without_the_store(url, tmp_path):
    clean = drawn(cached(url, tmp_path)[1], 15)
    (tmp_path / "half.part").write_bytes(b"a killed write")
    cache, pipeline = cached(url, tmp_path)
    pipeline.store = lab.FaultyStore(url, {f"shard-{n:05d}.bin": ["fail"] * 9 for n in range(SHARDS)})
    assert same(drawn(pipeline, 15), clean)
    assert (cache.misses, cache.events) == (0, [])
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("harm", [
    lambda data: bytes([data[0] ^ 1]) + data[1:], lambda data: b"", lambda data: data + b"!"])
def test_rot_in_the_cache_is_found_and_mended(url, tmp_path, harm):
    clean = drawn(cached(url, tmp_path)[1], 15)
    files = sorted(tmp_path.iterdir())
    assert len(files) == SHARDS
    for path in files:
        path.write_bytes(harm(path.read_bytes()))
    cache, pipeline = cached(url, tmp_path)
    assert same(drawn(pipeline, 15), clean)
    assert len([event for event in cache.events if "in the cache:" in event]) == SHARDS
    assert same(drawn(cached(url, tmp_path)[1], 15), clean)


def test_a_file_that_vanishes_is_fetched_again(url, tmp_path):
    cache, pipeline = cached(url, tmp_path)
    clean = drawn(pipeline, 8)
    for path in tmp_path.iterdir():
        path.unlink()
    assert same(drawn(pipeline, 8), clean)
    assert cache.misses >= SHARDS


def test_a_full_disk_is_reported_and_the_run_goes_on(url, tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    cache, pipeline = cached(url, tmp_path)
    assert same(drawn(pipeline, 15), drawn(lab.Pipeline(lab.Store(url)), 15))
    assert "not cached: No space left on device" in cache.events[0]


@pytest.mark.parametrize("policy", ["lru", "pinned"])
@pytest.mark.parametrize("fit", [0, 1, 2, 5])
def test_a_cache_keeps_to_its_limit(url, tmp_path, policy, fit):
    nbytes = lab.Pipeline(lab.Store(url)).dataset.shards[0].nbytes
    _, pipeline = cached(url, tmp_path, limit=fit * nbytes + 1, policy=policy)
    batches = iter(pipeline)
    for _ in range(20):
        next(batches)
        assert len(list(tmp_path.iterdir())) <= fit
    batches.close()


@pytest.mark.parametrize("policy", training_data.POLICIES)
def test_a_real_cache_hits_as_often_as_the_formula_says(tmp_path, policy):
    found = lab.hits(0.5, tmp_path, policy=policy, shards=48, epochs=7)
    assert found == pytest.approx(training_data.cache_hits(0.5, policy=policy), abs=0.04)


# What the chapter shows

def test_the_waiting_is_compared_with_the_formula():
    (waited,) = lab.waits((2,), latency=0.002, transfer=0.002, pace=0.0001, shards=5)
    assert waited.depth == 2
    assert waited.share == training_data.stall_fraction(waited.step, 0.004, depth=2)
    assert waited.step >= 4 * 0.0001
    assert min(waited.predicted, waited.measured) > 0


@pytest.mark.parametrize(("depth", "share", "a_shard"), [(0, 0.5, 0.32), (1, 0, 0.16), (2, 0, 0.16)])
def test_a_busy_machine_changes_the_share_and_the_time_together(monkeypatch, depth, share, a_shard):
    """Steps of 40 ms where 12 were asked for: by hand, 160 ms of computing beside 160 ms of loading. Once the share
    came from the 12 ms, the time of a shard from the 40, and the table contradicted itself."""
    steps = 4 * 11
    waits = [0.16 * (n % 4 == 0) for n in range(steps)]
    waits[40] = 9  # once the machine stopped
    monkeypatch.setattr(lab, "train", lambda *_, **__: lab.Run(waited=waits, computed=[0.04] * steps))
    (found,) = lab.waits((depth,))
    assert (found.step, found.share, found.predicted) == pytest.approx((0.16, share, a_shard))
    assert found.waited == pytest.approx(0.16)
    assert found.measured > 1


def test_torchs_loader_repeats_what_is_not_split():
    assert sorted(lab.through_torch(0)) == sorted(lab.through_torch(2, split=True)) == list(range(6))
    assert sorted(lab.through_torch(2)) == sorted(2 * list(range(6)))


@pytest.mark.parametrize(("call", "message"), [
    (lambda url: lab.write("memory://bad", shards=0), "shards is 0"),
    (lambda url: lab.Pipeline(lab.Store(url), batch=0), "batch is 0"),
    (lambda url: lab.Pipeline(lab.Store(url), workers=0), "workers is 0"),
    (lambda url: lab.Pipeline(lab.Store(url), ahead=-1), "ahead is -1"),
    (lambda url: lab.Store(url, latency=-1), "latency is -1"),
    (lambda url: lab.FaultyStore(url, {"x": ["sulk"]}), r"faults\['x'\] is 'sulk'"),
    (lambda url: lab.hits(2, "nowhere", policy="lru"), "share is 2"),
    (lambda url: lab.hits(0.5, "nowhere", policy="fifo"), "policy is 'fifo'"),
])
def test_bad_input_is_refused_by_name(url, tmp_path, monkeypatch, call, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        call(url)
