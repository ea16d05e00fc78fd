"""A working data pipeline, small enough to read in one sitting: shards in a store, a cache on local disk, workers that
fetch ahead, and a training loop that knows how long it waited.

    Store (fsspec, slowed down) → Pipeline: fetch, verify, retry → Cache (local disk) → batches → train

Three promises, each with a test: a run that stops and goes on sees every sample exactly once an epoch, whatever the
number of workers; bytes that are not those of the manifest never reach a batch; a shard that cannot be had stops the
run with its name, and no sample is skipped.

    python -m memtier.lab.training_data FOLDER        # a run of three epochs; kill it as you like, start it again
"""

import argparse
import hashlib
import json
import os
import queue
import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import fsspec
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from memtier import checks, training_data

MANIFEST = "manifest.json"
LOADS = ("fail", "missing", "hang", "flip", "short", "other")  # what a faulty store can do to a read


class StoreError(OSError):
    """The store could not be made to give what the manifest promises."""


# The dataset: shards of token ids, and a manifest that says what each must be


@dataclass(frozen=True)
class Shard:
    """One object of the store. samples: sequences in it. nbytes, sha256: what it must be."""

    name: str
    samples: int
    nbytes: int
    sha256: str

    def problem(self, data: bytes) -> str:
        """What is wrong with these bytes, or an empty text."""
        if len(data) != self.nbytes:
            return f"{len(data):,} bytes instead of {self.nbytes:,}"
        return "" if _sha256(data) == self.sha256 else "checksum differs"


@dataclass(frozen=True)
class Dataset:
    """What a manifest says. vocabulary: tokens; sequence: ids in a sample; digest: the checksum of all of it."""

    vocabulary: int
    sequence: int
    shards: tuple[Shard, ...]
    digest: str

    @property
    def dtype(self) -> np.dtype:
        """Of a stored id: as small as the vocabulary allows."""
        return np.dtype(f"<u{training_data.bytes_per_token(self.vocabulary)}")

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self.shards)


def write(url: str, *, shards: int = 8, samples: int = 16, sequence: int = 64, vocabulary: int = 5000,
          seed: int = 0) -> Dataset:
    """Make a tokenised dataset at an fsspec URL, and say what it is. The manifest is written last.

    Each sample counts upwards from a random id in steps of 1 to 3, so that there is something to learn. The same seed
    gives the same bytes. Raises ValueError naming the argument.
    """
    for name, value in {"shards": shards, "samples": samples, "sequence": sequence, "vocabulary": vocabulary}.items():
        checks.whole(name, value)
    files, root = fsspec.core.url_to_fs(url)
    files.makedirs(root, exist_ok=True)
    dtype, chance, made = Dataset(vocabulary, sequence, (), "").dtype, np.random.default_rng(seed), []
    for number in range(shards):
        first, step = chance.integers(0, vocabulary, (samples, 1)), chance.integers(1, 4, (samples, 1))
        data = ((first + step * np.arange(sequence)) % vocabulary).astype(dtype).tobytes()
        made.append(Shard(f"shard-{number:05d}.bin", samples, len(data), _sha256(data)))
        files.pipe_file(f"{root}/{made[-1].name}", data)
    said = {"vocabulary": vocabulary, "sequence": sequence, "shards": [asdict(shard) for shard in made]}
    digest = _sha256(json.dumps(said).encode())
    files.pipe_file(f"{root}/{MANIFEST}", json.dumps({"dataset": said, "sha256": digest}).encode())
    return Dataset(vocabulary, sequence, tuple(made), digest)


def _read_manifest(data: bytes) -> Dataset:
    """The dataset a manifest describes. Raises ValueError where it is torn or is not what its own checksum says."""
    told = json.loads(data)
    if _sha256(json.dumps(told["dataset"]).encode()) != told["sha256"]:
        raise ValueError("checksum differs")
    shards = tuple(Shard(**shard) for shard in told["dataset"]["shards"])
    return Dataset(told["dataset"]["vocabulary"], told["dataset"]["sequence"], shards, told["sha256"])


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# The store, made slow, and made faulty


class Store:
    """Objects behind an fsspec URL. A read waits latency + bytes / bandwidth: the wait is ours, the store is real."""

    def __init__(self, url: str, *, latency: float = 0.0, bandwidth: float = float("inf")):
        self.latency, self.bandwidth = checks.not_negative("latency", latency), bandwidth
        self.files, self.root = fsspec.core.url_to_fs(url)

    def read(self, name: str) -> bytes:
        """All bytes of an object."""
        data = self.files.cat_file(f"{self.root}/{name}")
        time.sleep(self.latency + len(data) / self.bandwidth)
        return data


class FaultyStore(Store):
    """A store that fails on purpose. faults: object → what its first, second, … reads do: one of LOADS, or "" for well.

    Raises ValueError for a fault it does not know.
    """

    def __init__(self, url: str, faults: Mapping[str, Sequence[str]], **how):
        super().__init__(url, **how)
        for name, ways in faults.items():
            for way in ways:
                checks.one_of(f"faults[{name!r}]", way, (*LOADS, ""))
        self._left = {name: deque(ways) for name, ways in faults.items()}

    def read(self, name: str) -> bytes:
        left = self._left.get(name)
        way = left.popleft() if left else ""
        if way == "fail":
            raise ConnectionResetError("connection reset by the store")
        if way == "missing":
            raise FileNotFoundError(f"no object {name}")
        if way == "hang":
            time.sleep(30)
        data = super().read(name)
        if way == "flip":
            return data[:-1] + bytes([data[-1] ^ 1])
        if way == "short":
            return data[: len(data) // 2]
        if way == "other":  # well formed, and of another object
            return super().read(f"shard-{int(name[6:11]) ^ 1:05d}.bin")
        return data


def _within(seconds: float, call: Callable[[], bytes]) -> bytes:
    """call(), or TimeoutError after so many seconds; a call that hangs is left to end by itself."""
    answers: queue.SimpleQueue = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((call(), None))
        except Exception as error:
            answers.put((b"", error))

    threading.Thread(target=run, daemon=True).start()
    try:
        data, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return data


# The cache on local disk


class Cache:
    """Shards on a local disk, at most `limit` bytes of them, found by checksum and checked against it on every read.

    policy: "lru", the least recently used leaves; "pinned", what is in stays and the rest is not kept.
    events: what went wrong, in words. hits, misses: reads answered and not.
    """

    def __init__(self, folder: str | Path, *, limit: float, policy: str = "lru"):
        checks.one_of("policy", policy, ("lru", "pinned"))
        self.limit, self.policy = checks.not_negative("limit", limit), policy
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.events: list[str] = []
        self.hits = self.misses = 0
        self._lock = threading.Lock()
        for torn in self.folder.glob("*.part"):  # an earlier run was killed while it wrote
            torn.unlink()
        kept = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime)
        self._held = OrderedDict((path.name, path.stat().st_size) for path in kept)

    def get(self, shard: Shard) -> bytes | None:
        """The shard's bytes, or None where they are not here or not whole."""
        try:
            data = (self.folder / shard.sha256).read_bytes()
            problem = shard.problem(data)
        except FileNotFoundError:
            data, problem = None, ""
        except OSError as error:
            data, problem = None, str(error)
        with self._lock:
            if problem:
                self.events.append(f"{shard.name} in the cache: {problem}, fetched again")
                self._drop(shard.sha256)
            if problem or data is None:
                self.misses += 1
                return None
            self.hits += 1
            self._held[shard.sha256] = shard.nbytes
            self._held.move_to_end(shard.sha256)
        return data

    def put(self, shard: Shard, data: bytes) -> None:
        """Keep a shard, if the policy and the disk have room. A full disk is reported; the run has its bytes anyway."""
        with self._lock:
            if self.policy == "lru":
                while self._held and sum(self._held.values()) + shard.nbytes > self.limit:
                    self._drop(next(iter(self._held)))
            if sum(self._held.values()) + shard.nbytes > self.limit:
                return
            part = self.folder / f"{shard.sha256}.part"
            try:
                part.write_bytes(data)  # not synced: whatever a crash leaves is checked before it is used
                part.replace(self.folder / shard.sha256)
            except OSError as error:
                self.events.append(f"{shard.name} not cached: {error.strerror}")
                return
            self._held[shard.sha256] = shard.nbytes

    def _drop(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        self._held.pop(name, None)


# The pipeline: in which order, from where on, and how it gets there


class Position(NamedTuple):
    """Where a run is: samples of this epoch already used, and the order they are counted in."""

    epoch: int
    sample: int
    order: str


class Batch(NamedTuple):
    """samples: (shard, index) of each. ids: int64, one row a sample. after: the position once it has been used."""

    samples: list[tuple[int, int]]
    ids: torch.Tensor
    after: Position


class Pipeline:
    """Batches of a dataset, epoch after epoch, from a position on. The order depends on seed and dataset alone.

    batch: samples. workers: shards fetched at the same time. ahead: shards asked for before they are needed, as many as
    there are workers if left out; with 0 each is waited for. window: shards whose samples are mixed with each other.
    reshuffle: a new order every epoch. attempts: reads of a shard before the run stops. patience: seconds for a read.
    pause: seconds before the second attempt, doubled each time. at: where an earlier run stopped.
    Raises ValueError naming argument and value; StoreError, when batches are drawn, for a shard that cannot be had.
    """

    def __init__(self, store: Store, cache: Cache | None = None, *, batch: int = 4, workers: int = 2,
                 ahead: int | None = None, window: int = 2, seed: int = 0, reshuffle: bool = True, attempts: int = 4,
                 patience: float = 5.0, pause: float = 0.02, at: Position | None = None):
        self.store, self.cache = store, cache
        self.batch, self.workers = checks.whole("batch", batch), checks.whole("workers", workers)
        self.ahead = checks.whole("ahead", workers if ahead is None else ahead, least=0)
        self.window, self.attempts = checks.whole("window", window), checks.whole("attempts", attempts)
        self.seed, self.reshuffle, self.patience, self.pause = seed, reshuffle, patience, pause
        self.events: list[str] = cache.events if cache else []
        self.dataset = self._get(MANIFEST, _read_manifest)
        order = f"{self.dataset.digest[:12]}, seed {seed}, window {window}, reshuffle {reshuffle}"
        self.at = at or Position(0, 0, order)
        if self.at.order != order:
            raise ValueError(f"at is a position in the order ({self.at.order}); it must be one in ({order})")

    def order(self, epoch: int) -> Iterator[list[tuple[int, int]]]:
        """The samples of an epoch, window by window: shards in random order, and the samples of a window mixed."""
        chance = random.Random(f"{self.seed} {epoch if self.reshuffle else 0}")
        shards = list(range(len(self.dataset.shards)))
        chance.shuffle(shards)
        for start in range(0, len(shards), self.window):
            mixed = [(shard, index) for shard in shards[start:start + self.window]
                     for index in range(self.dataset.shards[shard].samples)]
            chance.shuffle(mixed)
            yield mixed

    def __iter__(self) -> Iterator[Batch]:
        with closing(self._samples()) as samples:
            while True:
                took = list(islice(samples, self.batch))
                ids = np.stack([row for _, row, _ in took]).astype(np.int64)
                yield Batch([sample for sample, _, _ in took], torch.from_numpy(ids), took[-1][2])

    def _samples(self) -> Iterator[tuple[tuple[int, int], np.ndarray, Position]]:
        """(sample, its ids, the position after it), from `at` on, without end."""
        with closing(self._fetched()) as fetched:
            for epoch, done, skipped, window in self._windows():
                held = {shard: next(fetched) for shard in _shards(window)}
                for number, (shard, index) in enumerate(window[skipped:], start=done + skipped + 1):
                    last = number == self.dataset.samples
                    after = Position(epoch + last, 0 if last else number, self.at.order)
                    yield (shard, index), held[shard][index], after

    def _windows(self) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
        """(epoch, samples before this window, how many of it are already used, its samples), from `at` on."""
        epoch, used = self.at.epoch, self.at.sample
        while True:
            done = 0
            for window in self.order(epoch):
                if done + len(window) > used:
                    yield epoch, done, max(0, used - done), window
                done += len(window)
            epoch, used = epoch + 1, 0

    def _fetched(self) -> Iterator[np.ndarray]:
        """The shards in the order in which windows need them, `ahead` of them asked for in advance."""
        pool, asked = ThreadPoolExecutor(self.workers), deque()
        try:
            for *_, window in self._windows():
                for shard in _shards(window):
                    asked.append(pool.submit(self._shard, shard))
                    if len(asked) > self.ahead:
                        yield asked.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _shard(self, number: int) -> np.ndarray:
        """The ids of a shard, from the cache or else from the store."""
        shard = self.dataset.shards[number]
        data = self.cache.get(shard) if self.cache else None
        if data is None:
            data = self._get(shard.name, lambda got: _whole(shard, got))
            if self.cache:
                self.cache.put(shard, data)
        return np.frombuffer(data, self.dataset.dtype).reshape(shard.samples, self.dataset.sequence)

    def _get(self, name: str, read: Callable):
        """read(bytes of the object), tried again whatever goes wrong; each failure is reported, the last one raised."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return read(_within(self.patience, lambda: self.store.read(name)))
            except Exception as error:  # stores fail in ways of their own; each of them is a reason to ask again
                said = f"{name}, attempt {attempt}: {error}"
                self.events.append(said)
                if attempt == self.attempts:
                    raise StoreError(f"{said}; the run stops here and skips nothing") from error
            time.sleep(self.pause * 2 ** (attempt - 1))


def _shards(window: Sequence[tuple[int, int]]) -> list[int]:
    """The shards of a window's samples, each once."""
    return list(dict.fromkeys(shard for shard, _ in window))


def _whole(shard: Shard, data: bytes) -> bytes:
    if problem := shard.problem(data):
        raise ValueError(problem)
    return data


# The training loop


@dataclass
class Run:
    """What a training loop did: samples, losses, seconds waited and computed in each step, and where it stopped."""

    samples: list[tuple[int, int]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)
    at: Position | None = None

    def seconds(self, skip: int = 0) -> float:
        """Time of all steps but the first `skip`."""
        return sum(self.waited[skip:]) + sum(self.computed[skip:])

    def waiting(self, skip: int = 0) -> float:
        """The share of that time in which it waited for data."""
        return sum(self.waited[skip:]) / self.seconds(skip)


def learner(vocabulary: int, *, width: int = 16, seed: int = 0) -> torch.nn.Module:
    """A model that guesses the next token from the one before it."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Embedding(vocabulary, width), torch.nn.Linear(width, vocabulary))


def train(pipeline: Pipeline, model: torch.nn.Module, *, steps: int, pace: float = 0.0,
          after: Callable[[Run], None] = lambda run: None) -> Run:
    """Train for so many steps, and keep account of the waiting. after: called when a step is done, with the run so far.

    pace: seconds that a step takes at least, as if the model were larger.
    """
    run, optimizer = Run(), torch.optim.SGD(model.parameters(), lr=5.0)
    with closing(iter(pipeline)) as batches:
        for _ in range(checks.whole("steps", steps)):
            begun = time.perf_counter()
            batch = next(batches)
            got = time.perf_counter()
            inputs, targets = batch.ids[:, :-1], batch.ids[:, 1:]
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(max(0.0, pace - (time.perf_counter() - got)))
            run.samples += batch.samples
            run.losses.append(loss.item())
            run.waited.append(got - begun)
            run.computed.append(time.perf_counter() - got)
            run.at = batch.after
            after(run)
    return run


# Measurements that the chapter shows


@dataclass(frozen=True)
class Waited:
    """A run at one prefetch depth: what the formula makes of its own step time, and what was seen.

    step: seconds of computing on a shard, as measured. share: of the time that it then should wait; predicted: seconds
    a shard should then take. measured: seconds a shard took. waited: seconds that the loop stood still for one, the
    middle one of all, so that a machine that stops for a moment does not count.
    """

    depth: int
    step: float
    share: float
    predicted: float
    measured: float
    waited: float


def waits(depths: Sequence[int] = (0, 1, 2, 4), *, latency: float = 0.12, transfer: float = 0.04, pace: float = 0.012,
          shards: int = 12) -> list[Waited]:
    """Train at several prefetch depths from a slow store, and hold the time of a shard against stall_fraction.

    A shard takes latency + transfer seconds to come, and is four steps of `pace` seconds. The time of a step is the one
    that the loop measured, since a busy machine adds to it; both the share and the time of a shard follow from that
    one. The first shards are not counted: they are the start.
    """
    url, found = "memory://waits", []
    dataset = write(url, shards=shards, samples=16, sequence=32, vocabulary=500)
    store = Store(url, latency=latency, bandwidth=dataset.shards[0].nbytes / transfer)
    for depth in depths:
        pipeline = Pipeline(store, batch=4, workers=max(1, depth), ahead=depth, window=1)
        run, first = train(pipeline, learner(500), steps=4 * (shards - 1), pace=pace), max(2, depth)
        counted = shards - 1 - first
        step, load = sum(run.computed[4 * first:]) / counted, latency + transfer
        share = training_data.stall_fraction(step, load, depth=depth)
        stood = median(sum(run.waited[at:at + 4]) for at in range(4 * first, 4 * (shards - 1), 4))
        found.append(Waited(depth, step, share, step / (1 - share), run.seconds(4 * first) / counted, stood))
    return found


def hits(share: float, folder: str | Path, *, policy: str, shards: int = 64, epochs: int = 9) -> float:
    """The share of reads that a real cache of `share` of the set answers, from the second epoch on.

    policy: one of training_data.POLICIES.
    """
    checks.one_of("policy", policy, training_data.POLICIES)
    url = f"memory://hits-{shards}"
    dataset = write(url, shards=shards, samples=1, sequence=8)
    kept = "pinned" if policy == "pinned" else "lru"
    cache = Cache(folder, limit=checks.fraction("share", share) * dataset.nbytes, policy=kept)
    # One worker that asks when it needs: the cache then sees the reads in the order of the samples.
    pipeline = Pipeline(Store(url), cache, batch=shards, workers=1, ahead=0, reshuffle=policy != "same order")
    with closing(iter(pipeline)) as batches:
        next(batches)
        cache.hits = cache.misses = 0
        for _ in range(epochs - 1):
            next(batches)
    return cache.hits / (cache.hits + cache.misses)


class _Everything(IterableDataset):
    """The numbers below `count`, told apart by worker or not."""

    def __init__(self, count: int, split: bool):
        self.count, self.split = count, split

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        if worker is None or not self.split:
            return iter(range(self.count))
        return iter(range(worker.id, self.count, worker.num_workers))


def through_torch(workers: int, *, count: int = 6, split: bool = False) -> list[int]:
    """What torch's DataLoader gives for an iterable dataset with worker processes. split: they divide the work."""
    return [int(item) for item in DataLoader(_Everything(count, split), batch_size=None, num_workers=workers)]


# A run to kill by hand


def main(arguments: Sequence[str] | None = None) -> None:
    """Train three epochs in a folder, saving model and position in one file after each step, or go on from it."""
    parser = argparse.ArgumentParser(prog="python -m memtier.lab.training_data", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pace", type=float, default=0.2, help="seconds a step takes at least")
    options = parser.parse_args(arguments)
    url, saved = f"file://{(options.folder / 'store').resolve()}", options.folder / "run.pt"
    if not (options.folder / "store" / MANIFEST).exists():
        write(url, vocabulary=500)
    before = torch.load(saved) if saved.exists() else None
    pipeline = Pipeline(Store(url, latency=0.05), Cache(options.folder / "cache", limit=8192), workers=options.workers,
                        at=Position(*before["at"]) if before else None)
    model, used = learner(pipeline.dataset.vocabulary), before["samples"] if before else []
    if before:
        model.load_state_dict(before["model"])
        print(f"going on after {len(used)} samples, epoch {pipeline.at.epoch}")

    def save(run: Run) -> None:
        so_far = {"model": model.state_dict(), "at": tuple(run.at), "samples": used + run.samples}
        torch.save(so_far, saved.with_suffix(".part"))  # the model and its position in one file: never one without
        os.replace(saved.with_suffix(".part"), saved)  # the other, and never half of it
        print(f"epoch {run.at.epoch} sample {run.at.sample:4} loss {run.losses[-1]:.4f} waited {run.waiting():.0%}",
              flush=True)

    left = 3 * pipeline.dataset.samples - len(used)
    if left > 0:
        train(pipeline, model, steps=left // pipeline.batch, pace=options.pace, after=save)
    print(*pipeline.events, "three epochs done", sep="\n")


if __name__ == "__main__":
    main()
