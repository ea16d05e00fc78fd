"""Checkpoints through tiers: the loop stops for a copy to CPU memory; the rest happens behind it.

    training loop → snapshot in CPU memory → local disk → shared folder
                                                        → object store

Every rank runs a Checkpointer on the same stores. When the schedule of the first store says so, each rank copies its
state (the only time the loop stands still) and a thread writes it with torch.distributed.checkpoint (DCP). When all
ranks have written, rank 0 writes the manifest, and only then the version counts. Rank 0 then copies it to the slower
stores, each on its own schedule with a thread of its own.

Seen on Linux with gloo and FSDP2, torch 2.13.0, 1 to 4 processes of one machine; not exercised on GPUs. The ranks
share the first store's folder; on several machines each would have to send its own files on. One job to a folder:
versions of another that are not complete yet would be taken for leftovers.
"""

import contextlib
import io
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from os import fsync
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.stateful import Stateful

from memtier import checks, units
from memtier.lab.checkpoint_store import Damaged, Hash, Store, name_of, step_of

SCHEDULE = {"local": 5 * 60, "shared": 30 * 60, "object": 4 * 3600}  # seconds: minutes, half an hour, hours
PROGRESS = 5  # seconds between two words of a long copy
LONGEST_RETRY = 60  # seconds


def stores(local: str, shared: str, durable: str, **options) -> list[Store]:
    """The usual three on their usual schedules. options: fsspec's, for the durable one, such as an endpoint."""
    urls = zip(SCHEDULE.items(), (local, shared, durable), ({}, {}, options), strict=True)
    return [Store(name, url, every, options=extra) for (name, every), url, extra in urls]


class Schedule:
    """When the next version is due, by a clock that may be wrong.

    A clock that jumps ahead brings one version early, never a burst; one that jumps back starts the wait anew
    instead of stretching it by the jump. every: seconds. at_once: the first is due at the start.
    """

    def __init__(self, every: float, clock: Callable[[], float], at_once: bool = False):
        self.every, self.clock = checks.not_negative("every", every), clock
        self.last = float("-inf") if at_once else clock()

    def due(self) -> bool:
        now = self.clock()
        self.last = min(self.last, now)
        return now - self.last >= self.every

    def done(self) -> None:
        self.last = self.clock()


def print_line(line: str) -> None:
    """Print in one piece: several threads speak."""
    print(line + "\n", end="", flush=True)


@dataclass(frozen=True)
class Restored:
    """What a run goes on from. passed_over: why newer or faster versions were not taken, a sentence each."""

    step: int
    store: str
    version: str
    passed_over: tuple[str, ...]


class Checkpointer:
    """Saves what `job` holds and brings it back. Every rank makes one, and calls the same methods at the same steps.

    The snapshot takes as much CPU memory as the rank's state, and keeps it from one version to the next.

    places: the stores, fastest first; the first is a folder that all ranks see. clock: seconds, of rank 0.
    behind: what happens when a version is due while the last is still on its way: "skip" it and say so, or let the
    loop "wait" (for the slower stores too, however long they are away). retry: seconds before a failed copy is tried
    again, doubling to LONGEST_RETRY. say: takes a line of what happens; rank 0's alone are said. watch: called with
    ("loop" or a store's name, stage) as a stage begins and while it lasts: idle, snapshot, write, manifest, drain.
    Raises ValueError for arguments it cannot use, and where there is no process group (one process: a group of one).
    """

    def __init__(self, places: list[Store], *, clock: Callable[[], float] = time.monotonic, behind: str = "skip",
                 retry: float = 1, say: Callable[[str], None] = print_line,
                 watch: Callable[[str, str], None] = lambda where, stage: None):
        if not dist.is_initialized():
            raise ValueError("torch.distributed has no process group; call init_process_group first, also for one")
        if not places or not places[0].is_folder:
            raise ValueError(f"places is {places!r}; the first must be a folder of this machine")
        for each in places:
            checks.whole(f"keep of {each.name}", each.keep)
        self.behind = checks.one_of("behind", behind, ("skip", "wait"))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.places, self.local = places, places[0]
        self.say, self.watch = say if self.rank == 0 else lambda line: None, watch
        # The loop and the writing thread both talk to the other ranks at the same time: a group each.
        self._loop_group, self._write_group = (dist.new_group(backend="gloo", timeout=timedelta(hours=1))
                                               for _ in range(2))
        self.run = self._from_rank_0(uuid.uuid4().hex[:8])
        pinned = torch.cuda.is_available()  # a GPU copies to pinned memory at the link's full rate
        self._stager = DefaultStager(StagingOptions(pinned, False, False, False))
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-write")
        self._writing, self._tidying = Future(), Future()
        for each in (self._writing, self._tidying):
            each.set_result(None)
        self._schedule = Schedule(self.local.every, clock)
        self._drains = []
        if self.rank == 0:
            self._drains = [_Drain(self.local, each, clock, retry, self) for each in places[1:]]
        self._skipped = False
        self.blocked = 0.0  # seconds the loop has stood still for checkpoints
        self.committed: str | None = None  # rank 0: the newest version in the first store

    def _from_rank_0(self, value):
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._loop_group)
        return box[0]

    # Saving

    def after_step(self, step: int, job: Stateful) -> bool:
        """Save if a version is due; every rank calls this after every step. True when it saved."""
        began = time.perf_counter()
        decision = torch.tensor(int(self.rank == 0 and self._due(step)))
        dist.broadcast(decision, src=0, group=self._loop_group)
        self.blocked += time.perf_counter() - began
        if decision:
            self.save(step, job)
        return bool(decision)

    def _due(self, step: int) -> bool:
        if not self._schedule.due():
            return False
        if self.behind == "wait":
            self._writing.result()
            for drain in self._drains:
                drain.wait_for_room()
        elif not self.idle:
            if not self._skipped:
                self.say(f"step {step}: skipped, {self.local.name} is still busy with the version before; "
                         "the next step that finds it free is saved")
            self._skipped = True
            return False
        self._skipped = False
        return True

    def save(self, step: int, job: Stateful, *, wait: bool = False) -> None:
        """Save now, whatever the schedule says. wait: until the version counts in the first store, or has failed."""
        began = time.perf_counter()
        self._writing.result()  # the snapshot's memory is used again
        self._schedule.done()
        self.watch("loop", "snapshot")
        snapshot = self._stager.stage(job.state_dict())
        self.watch("loop", "idle")
        self._writing = self._writer.submit(self._write, name_of(step, self.run), snapshot)
        if wait:
            self._writing.result()
        self.blocked += time.perf_counter() - began

    def _write(self, version: str, snapshot: dict) -> None:
        """In the writing thread of every rank: this rank's file, then, when all have theirs, the manifest."""
        began, files = time.perf_counter(), _HashedFiles(lambda: self.watch(self.local.name, "write"))
        try:
            writer = dcp.FileSystemWriter(self.local.path(version), sync_files=False)
            writer.fs = files
            dcp.save(snapshot, storage_writer=writer, process_group=self._write_group)
            receipts = [None] * self.ranks if self.rank == 0 else None
            dist.gather_object((version, files.written), receipts, group=self._write_group)
            if self.rank == 0:
                self._commit(version, receipts)
                taken = units.format_time(time.perf_counter() - began)
                self.say(f"step {step_of(version)}: in {self.local.name} after {taken}")
                for drain in self._drains:
                    drain.offer_if_due(version)
                self._tidying = self._writer.submit(self._tidy_up)
        except (Exception, dcp.api.CheckpointException) as error:
            self.say(f"step {step_of(version)}: not saved, the run goes on: {_reason(error)}")
            if self.rank == 0:
                with contextlib.suppress(OSError):
                    self.local.remove(version)  # what there is of it only fills the disk
        self.watch(self.local.name, "idle")

    def _commit(self, version: str, receipts: list) -> None:
        if any(theirs != version or not files for theirs, files in receipts):
            raise RuntimeError(f"ranks have written {sorted({theirs for theirs, _ in receipts})}, not all {version}")
        self.watch(self.local.name, "manifest")
        files = {name: entry for _, written in receipts for name, entry in written.items()}
        self.local.commit(version, {"version": version, "step": step_of(version), "ranks": self.ranks, "files": files})
        self.committed = version

    def _tidy_up(self) -> None:
        """Let go of old versions: by the writing thread, so that nothing is being written meanwhile."""
        try:
            self.local.retain(self.say, {each for drain in self._drains for each in drain.wanted})
        except OSError as error:
            self.say(f"{self.local.name}: could not tidy up: {_reason(error)}")

    @property
    def idle(self) -> bool:
        """Whether this rank has nothing to do in the first store, neither to write nor to tidy up."""
        return self._writing.done() and self._tidying.done()

    def status(self) -> str:
        """What each store is doing, on rank 0: a line each."""
        local = f"{self.local.name}: " + ("free" if self.idle else "busy")
        newest = f", newest step {step_of(self.committed)}" if self.committed else ""
        return "\n".join([local + newest, *(drain.status() for drain in self._drains)])

    def close(self, timeout: float | None = None) -> bool:
        """Finish what is under way; every rank calls this. False when a copy was given up after `timeout` seconds.

        A version given up stays in the stores that have it, and the next run sends its first version everywhere.
        """
        self._writing.result()
        self._writer.shutdown()
        self._stager.close()
        ends, finished = None if timeout is None else time.monotonic() + timeout, True
        for drain in self._drains:
            finished &= drain.finish(None if ends is None else max(0, ends - time.monotonic()))
        return finished

    # Restoring

    def restore(self, job: Stateful) -> Restored | None:
        """Load the newest version that is whole, from the fastest store that has it; every rank calls this.

        All ranks share the reading back: a version is loaded only when every file matches its manifest. The number of
        ranks may differ from that of the run that saved it. None when no store has any version: a fresh start.
        Raises RuntimeError when versions exist but none is whole, or none was found and a store did not answer.
        """
        candidates, passed_over = self._from_rank_0(self._candidates() if self.rank == 0 else None)
        for version, place in candidates:
            reason = self._checked(version, self.places[place]) or self._loaded(version, self.places[place], job)
            if not reason:
                return Restored(step_of(version), self.places[place].name, version, tuple(passed_over))
            passed_over.append(f"step {step_of(version)} in {self.places[place].name}: {reason}")
            self.say(f"{passed_over[-1]}; looking further")
        if passed_over:
            raise RuntimeError("no checkpoint could be restored: " + "; ".join(passed_over))
        return None

    def _candidates(self) -> tuple[list, list[str]]:
        """(version, number of the store), newest step first and fastest store first; what could not be asked."""
        found, silent = [], []
        for number, place in enumerate(self.places):
            try:
                found += [(version, number) for version in place.complete()]
            except Exception as error:  # each file system raises its own
                silent.append(f"{place.name} does not answer: {_reason(error)}")
                self.say(silent[-1])
        return sorted(found, key=lambda each: (-step_of(each[0]), each[1])), silent

    def _checked(self, version: str, place: Store) -> str:
        """Why the version is not whole, as all ranks see it; empty when it is."""
        problem, problems = "", [None] * self.ranks
        try:
            place.check(version, self.rank, self.ranks)
        except Exception as error:
            problem = _reason(error)
        dist.all_gather_object(problems, problem, group=self._loop_group)
        return next(filter(None, problems), "")

    def _loaded(self, version: str, place: Store, job: Stateful) -> str:
        """Load it; why that failed, or nothing. A half-loaded state is overwritten by the next version or not used."""
        state = job.state_dict()
        try:
            reader = FsspecReader(f"{place.url.rstrip('/')}/{version}", **place.options)
            dcp.load(state, storage_reader=reader, process_group=self._loop_group)
        except (Exception, dcp.api.CheckpointException) as error:
            return _reason(error)
        job.load_state_dict(state)
        return ""


class _Drain(threading.Thread):
    """Sends versions from the first store to a slower one: one on its way and one waiting, the newest.

    A copy that fails is tried again until it succeeds or a newer version can take its place.
    """

    def __init__(self, source: Store, target: Store, clock, retry: float, owner: Checkpointer):
        super().__init__(name=f"checkpoint-{target.name}", daemon=True)  # a copy in vain must not keep the run alive
        self.source, self.target, self.retry, self.owner = source, target, retry, owner
        self.schedule = Schedule(target.every, clock, at_once=True)  # what a crash interrupted is made good first
        self.changed = threading.Condition()
        self.version = self.waiting = self.newest = None
        self.done, self.total, self.ending, self.given_up = 0, 0, False, False
        self.start()

    @property
    def wanted(self) -> set[str]:
        """Versions the source must keep for this drain."""
        with self.changed:
            return {each for each in (self.version, self.waiting) if each}

    def offer_if_due(self, version: str) -> None:
        if not self.schedule.due():
            return
        self.schedule.done()
        with self.changed:
            replaced, self.waiting = self.waiting, version
            self.changed.notify_all()
        if replaced:
            self.owner.say(f"step {step_of(replaced)}: not sent to {self.target.name}, which is behind; "
                           f"step {step_of(version)} takes its place")

    def wait_for_room(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.waiting is None)

    def finish(self, timeout: float | None) -> bool:
        """Let it end after what was offered; False when that took longer than `timeout` seconds."""
        with self.changed:
            self.ending = True
            self.changed.notify_all()
        self.join(timeout)
        if self.is_alive():
            left = ", ".join(f"step {step_of(each)}" for each in sorted(self.wanted))
            self.owner.say(f"{self.target.name}: gave up on {left}")
            with self.changed:
                self.given_up = True
                self.changed.notify_all()
            return False
        return True

    def status(self) -> str:
        newest = f", newest step {step_of(self.newest)}" if self.newest else ""
        with self.changed:
            now = "free"
            if self.version:
                now = (f"step {step_of(self.version)} on its way, {units.format_bytes(self.done)} of "
                       f"{units.format_bytes(self.total)}")
            waiting = f", step {step_of(self.waiting)} waits" if self.waiting else ""
        return f"{self.target.name}: {now}{waiting}{newest}"

    def run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting or self.ending)
                if not self.waiting:
                    return
                self.version, self.waiting = self.waiting, None
                self.changed.notify_all()
            self._send(self.version)
            with self.changed:
                self.version = None

    def _send(self, version: str) -> None:
        pause = self.retry
        while True:
            began = self.spoke = time.perf_counter()
            try:
                self.target.copy_from(self.source, version, self._progress)
                self.newest = version
                self.owner.say(f"step {step_of(version)}: in {self.target.name} after "
                               f"{units.format_time(time.perf_counter() - began)}, {units.format_bytes(self.total)}")
                self.target.retain(self.owner.say)
                return
            except Damaged as damage:
                self.owner.say(f"step {step_of(version)}: not sent to {self.target.name}, damaged in "
                               f"{self.source.name}: {damage}")
                return
            except Exception as error:  # each file system raises its own
                if self.given_up:
                    return
                if self.newest == version:
                    self.owner.say(f"{self.target.name}: could not tidy up: {_reason(error)}")
                    return
                self.owner.say(f"step {step_of(version)}: {self.target.name} failed: {_reason(error)}; "
                               f"again in {units.format_time(pause)}")
            finally:
                self.owner.watch(self.target.name, "idle")
            with self.changed:
                self.changed.wait_for(lambda: self.given_up or self.waiting, timeout=pause)
                if self.waiting:
                    self.owner.say(f"step {step_of(version)}: not sent to {self.target.name}; "
                                   f"step {step_of(self.waiting)} takes its place")
                if self.waiting or self.given_up:
                    return
            pause = min(2 * pause, LONGEST_RETRY)

    def _progress(self, done: int, total: int) -> None:
        if self.given_up:
            raise InterruptedError("given up")
        self.done, self.total = done, total
        self.owner.watch(self.target.name, "manifest" if done == total else "drain")
        if time.perf_counter() - self.spoke > PROGRESS:
            self.spoke = time.perf_counter()
            self.owner.say(self.status())


class _HashedFiles(FileSystem):
    """DCP's files, hashed as they are written: what the disk makes of them later is compared with what was meant.

    They are on the disk before they are closed. (DCP 2.13's own sync_files leaves out what Python still buffers.)
    """

    def __init__(self, writing: Callable[[], None]):
        self.written: dict[str, dict] = {}
        self._writing = writing

    @contextmanager
    def create_stream(self, path, mode: str):
        with open(path, mode) as file:
            stream = _HashedStream(file, self._writing)
            try:
                yield stream
                stream.close()
            except Exception as error:  # of a full disk torch.save only says "unexpected pos"
                raise stream.refused or error from None
        self.written[Path(path).name] = stream.hash.entry

    def rename(self, path, new_path) -> None:
        super().rename(path, new_path)
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)


class _HashedStream(io.RawIOBase):
    def __init__(self, file, writing: Callable[[], None]):
        self.file, self.writing, self.hash = file, writing, Hash()
        self.refused: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, block) -> int:
        self.writing()
        view = memoryview(block).cast("B")
        try:
            self.file.write(view)
        except OSError as error:
            self.refused = error
            raise
        self.hash.add(view)
        return len(view)

    def tell(self) -> int:
        return self.hash.nbytes

    def close(self) -> None:
        if not self.closed and not self.file.closed:
            self.file.flush()
            fsync(self.file.fileno())
        super().close()


def _reason(error: BaseException) -> str:
    """An error in one line. DCP wraps what each rank met; the first is enough."""
    if isinstance(error, dcp.api.CheckpointException):
        rank, (cause, _) = next(iter(error.failures.items()))
        return f"rank {rank}: {_reason(cause)}"
    return f"{error}" if isinstance(error, (OSError, Damaged)) else f"{type(error).__name__}: {error}"
