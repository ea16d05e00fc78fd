"""kill -9 on real ranks at seeded moments; what they come back to is compared with what must be there.

The tests run 24 kills. More of them, as `make soak` does:

    python tests/checkpoint_kills.py

One chain is one job that is killed again and again. A kill is aimed at a stage (snapshot, write, manifest, drain, or
training itself), at its n-th beginning in a rank, and falls a random moment later, from a thread, on whatever
instruction runs then. A byte a rank and a thread in memory shared with the ranks says what stage that was. The other
ranks follow at once or some milliseconds later, as when a launcher notices. After some kills a version is damaged too.
"""

import argparse
import collections
import hashlib
import json
import mmap
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from memtier.lab import processes, training_run
from memtier.lab.checkpoint_store import MANIFEST, Store
from memtier.lab.training_run import Settings

LANES = ("loop", "local", "shared", "object")  # the threads of a rank
STAGES = ("idle", "snapshot", "write", "manifest", "drain")
EVERY = {"local": 2, "shared": 4, "object": 6}  # steps: the job's clock counts them
TARGETS = {  # what a kill is aimed at → the latest beginning, and the longest wait after it in seconds
    ("loop", "snapshot"): (3, 0.002), ("local", "write"): (250, 0.01), ("local", "manifest"): (2, 0.015),
    ("shared", "drain"): (6, 0.01), ("object", "drain"): (4, 0.01), ("shared", "manifest"): (1, 0.015),
    ("loop", "idle"): (3, 0.1),
}  # fmt: skip
DAMAGES = ("flip a bit", "tear", "lose", "flip a bit of the manifest")
TIMEOUT = 300  # seconds an attempt may take: a busy machine may need a minute for the first import of torch


@dataclass(frozen=True)
class Kill:
    """One kill: where it is aimed, in which rank; when it falls; how long the other ranks live on, in seconds."""

    rank: int
    where: str
    stage: str
    nth: int
    delay: float
    grace: float


def draw_kills(seed: int, count: int, ranks: tuple[int, ...]) -> list[tuple[int, Kill]]:
    """How many ranks an attempt has, and how it ends. All targets come in turn; the rest is the dice's."""
    dice, drawn, targets = random.Random(f"kills {seed}"), [], []
    while len(drawn) < count:
        targets = targets or dice.sample(list(TARGETS), len(TARGETS))
        (where, stage), world = targets.pop(), dice.choice(ranks)
        latest, wait = TARGETS[where, stage]
        rank = dice.randrange(world) if stage in ("snapshot", "write", "idle") else 0  # the rest is done by rank 0
        delay = dice.choice((0.0, dice.uniform(0, wait)))  # at its very beginning, or in the midst of it
        grace = dice.choice((0.0, dice.uniform(0, 0.03)))
        drawn.append((world, Kill(rank, where, stage, dice.randint(1, latest), delay, grace)))
    return drawn


class Board:
    """What every thread of every rank is doing: bytes in shared memory, which outlive the processes."""

    def __init__(self, path: Path, ranks: int):
        with open(path, "a+b") as file:
            file.truncate(ranks * len(LANES))
            self.bytes = mmap.mmap(file.fileno(), 0)

    def note(self, rank: int, where: str, stage: str) -> None:
        self.bytes[rank * len(LANES) + LANES.index(where)] = STAGES.index(stage)

    def of(self, rank: int) -> dict[str, str]:
        """Lane → stage, of the lanes that were not idle."""
        found = {lane: STAGES[self.bytes[rank * len(LANES) + number]] for number, lane in enumerate(LANES)}
        return {lane: stage for lane, stage in found.items() if stage != "idle"}


def _watch(board: Board, rank: int, kill: Kill | None, also=lambda where, stage: None):
    """What a Checkpointer tells of its stages: notes them on the board and pulls the trigger. also: told as well."""
    seen, lock = collections.Counter(), threading.Lock()

    def die():
        time.sleep(kill.delay)
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(where: str, stage: str) -> None:
        board.note(rank, where, stage)
        also(where, stage)
        if kill and kill.rank == rank and (where, stage) == (kill.where, kill.stage):
            with lock:
                seen[where, stage] += 1
                now = seen[where, stage] == kill.nth
            if now and not kill.delay:
                os.kill(os.getpid(), signal.SIGKILL)
            elif now:
                threading.Thread(target=die, daemon=True).start()

    return watch


def run_rank(tell, rank: int, ranks: int, board: Path, settings: Settings, places: list[Store], until: int,
             behind: str, kill: Kill | None, hooks) -> None:
    """One process of the job. hooks: called first, with the rank; returns what is called at each "step" and "stage"."""
    called = hooks(rank) if hooks else {}

    def each(step: int, loss: float) -> None:
        tell(step=step, loss=loss.hex())
        if "step" in called:
            called["step"](step)

    def started(restored) -> None:
        tell(start=restored and [restored.step, restored.store], passed_over=restored and restored.passed_over)

    training_run.train(
        settings, places, until=until, each=each, started=started, clock=lambda training: lambda: training.step,
        behind=behind, retry=0.05, close=60, say=lambda line: tell(said=line),
        watch=_watch(Board(board, ranks), rank, kill, *filter(None, [called.get("stage")])))
    tell(finished=True)


def forking():
    """The context in which all processes here begin."""
    # Every optimizer imports dynamo when it is made, which costs a rank most of a second.
    return processes.forking("memtier.lab.training_run", "torch._dynamo", "s3fs")


@dataclass
class Job:
    """One training job in a folder, to be started, killed and started again."""

    folder: Path
    settings: Settings = field(default_factory=Settings)
    options: dict = field(default_factory=dict)  # of the object store, when it is one
    durable: str = ""  # its address; a folder beside the others unless given
    behind: str = "skip"  # as Checkpointer's

    @property
    def places(self) -> list[Store]:
        urls = {name: str(self.folder / name) for name in EVERY} | ({"object": self.durable} if self.durable else {})
        return [Store(name, url, EVERY[name], options=self.options if name == "object" else {})
                for name, url in urls.items()]

    def attempt(self, ranks: int, until: int, kill: Kill | None = None, *, places=None, hooks=None) -> list[dict]:
        """Start `ranks` processes and wait until they have ended, by themselves or killed. The lines rank 0 wrote.

        Raises RuntimeError with their last words when a process fails in another way, TimeoutError after TIMEOUT.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        board, places = self.folder / "board", self.places if places is None else places
        board.unlink(missing_ok=True)
        team = processes.Team(forking(), ranks, run_rank, board, self.settings, places, until, self.behind, kill, hooks)
        try:
            team.wait(TIMEOUT)
        except processes.Failed as failed:
            if not kill or failed.codes.get(kill.rank) != -signal.SIGKILL:
                raise
            time.sleep(kill.grace)
        finally:
            team.kill()
        return team.told(0)

    def whole(self) -> list[tuple[int, int, str]]:
        """(step, −number of the store, version) of every version that matches its manifest, looked at from outside."""
        found = []
        for number, place in enumerate(self.places):
            place.fs.invalidate_cache()
            for path in place.fs.find(place.path()):
                if path.endswith("/" + MANIFEST) and _matches(place.fs, path):
                    body = json.loads(place.fs.cat_file(path))["body"]
                    found.append((body["step"], -number, body["version"]))
        return sorted(found, reverse=True)


def _matches(fs, manifest: str) -> bool:
    """Whether the manifest is as it was written and every file as it says."""
    try:
        sealed = json.loads(fs.cat_file(manifest))
        body = sealed["body"]
        return (sealed["sha256"] == _sha(json.dumps(body, sort_keys=True).encode())
                and all(_sha(fs.cat_file(manifest.replace(MANIFEST, name))) == entry["sha256"]
                        for name, entry in body["files"].items()))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def damage(place: Store, version: str, how: str, dice: random.Random) -> str:
    """Damage one file of a version, in a folder. What was done."""
    folder = Path(place.path(version))
    names = sorted(each.name for each in folder.iterdir() if each.name != MANIFEST)
    file = folder / (MANIFEST if "manifest" in how else dice.choice(names))
    data = bytearray(file.read_bytes())
    if how == "lose":
        file.unlink()
    elif how == "tear":
        file.write_bytes(data[: dice.randrange(len(data))])
    else:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        file.write_bytes(data)
    return f"{how}: {file.name} of {version[:15]} in {place.name}"


@dataclass
class Record:
    """One kill and what came of it."""

    ranks: int
    kill: Kill
    stages: dict[str, str]  # of the killed rank, where it was not idle
    before: tuple[int, str] | None  # what this attempt had started from
    damaged: str = ""


def chain(seed: int, kills: int, ranks: tuple[int, ...], folder: Path, *, own_data: bool, **job) -> list[Record]:
    """Kill one job again and again, then let it finish; AssertionError if anything is not as it must be.

    ranks: how many processes an attempt may have. own_data: as Settings; needs one number of ranks.
    """
    dice = random.Random(f"damage {seed}")
    settings = Settings(width=320, depth=2, seed=seed, own_data=own_data)
    job = Job(folder, settings, **job)
    records, losses, must = [], [], None
    for world, kill in draw_kills(seed, kills, ranks):
        from_step = must[0] if must else 0
        lines = job.attempt(world, from_step + 40, kill)
        assert not any("finished" in line for line in lines), f"{kill} never fell"
        _expect_start(lines, must)
        losses += losses_of(lines)
        records.append(Record(world, kill, Board(folder / "board", world).of(kill.rank), must))
        whole = job.whole()
        announced = [int(line["said"].split()[1].strip(":")) for line in lines if ": in " in line.get("said", "")]
        newest = whole[0][0] if whole else 0
        assert newest >= max([from_step, *announced]), f"{max([from_step, *announced])} was committed, {whole} is there"
        if len(whole) > 2 and dice.random() < 0.3:
            step, number, version = dice.choice(whole[:3])
            place = job.places[-number]
            if place.is_folder:
                records[-1].damaged = damage(place, version, dice.choice(DAMAGES), dice)
                assert (step, number, version) not in job.whole(), f"not damaged: {records[-1].damaged}"
                whole = job.whole()
        must = (whole[0][0], job.places[-whole[0][1]].name) if whole else None
    lines = job.attempt(dice.choice(ranks), (must[0] if must else 0) + 5)
    _expect_start(lines, must)
    losses += losses_of(lines)
    expected = uninterrupted(folder / "reference", settings, ranks[0], max(step for step, _ in losses))
    wrong = [(step, loss, expected[step]) for step, loss in losses if loss != expected[step]]
    assert not wrong, f"losses differ from an uninterrupted run's: {wrong[:3]}"
    return records


def uninterrupted(folder: Path, settings: Settings, ranks: int, until: int) -> dict[int, str]:
    """Step → loss, as float.hex, of a run that nobody disturbs and that saves nothing."""
    return dict(losses_of(Job(folder, settings).attempt(ranks, until, places=[])))


def losses_of(lines: list[dict]) -> list[tuple[int, str]]:
    """Step and loss of every step that was reported."""
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def _expect_start(lines: list[dict], must: tuple[int, str] | None) -> None:
    """The attempt started where it had to; one killed before it could say so is judged by the next."""
    for line in lines:
        if "start" in line:
            found = tuple(line["start"]) if line["start"] else None
            assert found == must, f"started from {found}, the newest whole version is {must}"


def histogram(records: list[Record]) -> collections.Counter:
    """Stages in which kills fell; one kill may have fallen into several threads' stages at once."""
    return collections.Counter(stage for each in records for stage in (set(each.stages.values()) or {"training"}))


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def s3_server():
    """An S3 API server on this machine, with a bucket: (server, options for fsspec).

    After server.stop() connections are refused; after server.start() it is there again, with what it held.
    """
    import logging

    import fsspec
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    options = {"key": "course", "secret": "course", "endpoint_url": f"http://127.0.0.1:{port}",
               "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 2, "read_timeout": 5}}
    fsspec.filesystem("s3", **options).mkdir("bucket")
    try:
        yield server, options
    finally:
        server.stop()


def main() -> int:
    """Chains of kills until there are enough; a line a kill, and what they fell on. 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=204)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, seed {given.seed}")
    kinds = [((2,), True, False), ((4,), True, False), ((2, 4, 1), False, False), ((2,), True, True)]
    records, wrong, seed, began = [], 0, given.seed, time.perf_counter()
    with s3_server() as (_, options):
        while len(records) < given.kills:
            ranks, own_data, s3 = kinds[(seed - given.seed) % len(kinds)]
            store = {"durable": f"s3://bucket/{seed}", "options": options} if s3 else {}
            count = min(12, given.kills - len(records))
            print(f"chain {seed}: ranks {' or '.join(map(str, ranks))}, object store {'S3' if s3 else 'a folder'}")
            with tempfile.TemporaryDirectory(prefix="memtier-kills-") as folder:
                try:
                    found = chain(seed, count, ranks, Path(folder), own_data=own_data, **store)
                except (AssertionError, RuntimeError, TimeoutError) as error:
                    wrong += 1
                    print(f"  WRONG: {error}", flush=True)
                    found = []
            for each in found:
                aim = f"{each.kill.where} {each.kill.stage} {each.kill.nth} + {each.kill.delay * 1000:.1f} ms"
                print(f"  rank {each.kill.rank} of {each.ranks}, {aim}: fell on {each.stages or 'training'}; "
                      f"had begun at {each.before or 'the start'}" + (each.damaged and f"; then {each.damaged}"),
                      flush=True)
            records += found
            seed += 1
            if wrong > 3:
                break
    counts = ", ".join(f"{stage} {count}" for stage, count in histogram(records).most_common())
    print(f"{len(records)} kills in {seed - given.seed} chains, fell on: {counts}; "
          f"{sum(bool(each.damaged) for each in records)} versions damaged; {wrong} chains wrong; "
          f"{time.perf_counter() - began:.0f} s")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
