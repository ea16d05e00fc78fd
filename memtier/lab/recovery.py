"""A training loop under a failure generator, and a run to kill by hand: what failures cost, and what they must not.

    recovery.sweep((5, 10, 20, 40, 80), mtbf=100, write=2, restart=3)    # goodput, predicted and observed
    run = recovery.start(folder); run.reached(25); run.kill()            # real processes, killed; start(folder) resumes

The loop of `sweep` is real: gradient steps on the data of the step's number, saves to a file that replaces the last
one at once, failures that throw the memory away, restarts that read the file. Only its clock is made: a step takes one
tick, a save and a restart as many as they are given, and failures come at random ticks drawn from a seed. So a run of
days takes a second here, and gives the same answer every time. Lost steps are done again; the weights at the end are
those of a run without failures, bit for bit. Seen with torch 2.13.0 on a CPU.
"""

import io
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from memtier import checks, recovery
from memtier.lab import processes, training_run
from memtier.lab.checkpoint_store import Store

WIDTH, BATCH = 8, 4


class Run(NamedTuple):
    """One run to its last step. steps: done and kept. ticks: all the time it took. failures, saves: how many.

    weights: at the end, as bytes, to compare with another run's.
    """

    steps: int
    ticks: float
    failures: int
    saves: int
    weights: bytes

    @property
    def goodput(self) -> float:
        return self.steps / self.ticks


class Seen(NamedTuple):
    """Goodput at one interval. predicted: by memtier.recovery. observed: the mean of the runs.

    noise: the standard error of that mean, from how far the runs differ. failures: in all runs.
    """

    interval: int
    predicted: float
    observed: float
    noise: float
    failures: int


class _Training:
    """A linear model that learns its inputs' sum by SGD with momentum. A resumed run needs the three in `state`."""

    data = torch.randn(512, BATCH, WIDTH, generator=torch.Generator().manual_seed(0))

    def __init__(self):
        self.state = {"step": 0, "weight": torch.zeros(WIDTH), "momentum": torch.zeros(WIDTH)}

    def advance(self) -> None:
        step, weight, momentum = self.state.values()
        inputs = self.data[step % len(self.data)]
        gradient = (inputs @ weight - inputs.sum(1)) @ inputs
        momentum.mul_(0.9).add_(gradient)
        weight.sub_(momentum, alpha=0.01)
        self.state["step"] += 1

    def save(self, path: Path) -> None:
        """Write beside the file, then take its place: a reader finds the old state or the new one, never a part."""
        written = path.with_suffix(".new")
        torch.save(self.state, written)
        written.replace(path)

    def load(self, path: Path) -> None:
        self.state = torch.load(path, weights_only=True)

    @property
    def step(self) -> int:
        return self.state["step"]

    def weights(self) -> bytes:
        return self.state["weight"].numpy().tobytes()


def train(steps: int, *, interval: int, write: float = 0.0, restart: float = 0.0, mtbf: float = math.inf,
          seed: int = 0, folder=None) -> Run:
    """Train to the last step with a save after every `interval` steps, through failures every `mtbf` ticks on average.

    write, restart: ticks that a save and a restart take. A save that a failure strikes does not count; a restart that
    one strikes begins again. folder: where the file lies, a temporary one if None.
    Raises ValueError for bad arguments.
    """
    checks.whole("steps", steps)
    checks.whole("interval", interval)
    checks.not_negative("write", write)
    checks.not_negative("restart", restart)
    if mtbf != math.inf:
        checks.positive("mtbf", mtbf)
    with tempfile.TemporaryDirectory(prefix="memtier-recovery-", dir=folder) as inside:
        return _run(steps, interval, write, restart, mtbf, random.Random(seed), Path(inside, "state.pt"))


def _run(steps, interval, write, restart, mtbf, dice, path) -> Run:
    def until_failure():
        return dice.expovariate(1 / mtbf) if mtbf < math.inf else math.inf

    training = _Training()
    training.save(path)  # a run starts from a state it can come back to
    ticks, failures, saves, fails = 0.0, 0, 0, until_failure()
    while training.step < steps:
        segment = min(interval, steps - training.step)
        last = training.step + segment == steps
        needs = segment + (0 if last else write)
        if fails < needs:
            for _ in range(min(segment, int(fails))):  # work that is done, and lost
                training.advance()
            ticks, failures = ticks + fails, failures + 1
            while (fails := until_failure()) < restart:
                ticks, failures = ticks + fails, failures + 1
            ticks, fails = ticks + restart, fails - restart
            training.load(path)
            continue
        for _ in range(segment):
            training.advance()
        ticks, fails = ticks + needs, fails - needs
        if not last:
            training.save(path)
            saves += 1
    return Run(training.step, ticks, failures, saves, training.weights())


def sweep(intervals: Sequence[int], *, mtbf: float, write: float, restart: float = 0.0, steps: int = 1000,
          runs: int = 4, seed: int = 0) -> tuple[Seen, ...]:
    """Predicted and observed goodput at each interval, from `runs` runs of `steps` steps each.

    The prediction is memtier.recovery.goodput's exact count. Raises ValueError for bad arguments, RuntimeError if a run
    ends with other weights than a run without failures.
    """
    checks.whole("runs", runs, least=2)
    undisturbed = train(steps, interval=steps).weights
    seen = []
    for interval in intervals:
        done = [train(steps, interval=interval, write=write, restart=restart, mtbf=mtbf, seed=seed + number)
                for number in range(runs)]
        if any(run.weights != undisturbed for run in done):
            raise RuntimeError(f"a run with interval {interval} ended with other weights than one without failures")
        goodputs = [run.goodput for run in done]
        predicted = recovery.goodput(interval=interval, write_seconds=write, restart=restart, mtbf_seconds=mtbf,
                                     method="exact")
        seen.append(Seen(interval, predicted.fraction, statistics.fmean(goodputs),
                         statistics.stdev(goodputs) / math.sqrt(runs), sum(run.failures for run in done)))
    return tuple(seen)


def table(seen: Sequence[Seen]) -> str:
    """The sweep as an aligned table."""
    lines = io.StringIO()
    print(f"{'interval':>8} {'predicted':>10} {'observed':>9} {'noise':>7} {'failures':>9}", file=lines)
    for each in seen:
        print(f"{each.interval:>8} {each.predicted:>10.3f} {each.observed:>9.3f} {each.noise:>7.3f} "
              f"{each.failures:>9}", file=lines)
    return lines.getvalue().rstrip()


# A run of real processes, to be killed

EVERY = {"local": 10, "shared": 20}  # steps from one version to the next, in each store
SMALL = training_run.Settings()
LONGEST = 300  # seconds until a run that does not go on is given up


class Job:
    """A training run of real processes under FSDP2 that saves to two folders. Made by `start`.

    losses: step → its loss, as Python writes every bit of it. came_from: (step, store) it went on from, None from the
    start. passed_over: why newer or faster versions were not taken. was_killed: whether one of its processes was.
    """

    def __init__(self, folder: Path, ranks: int, *how):
        folder.mkdir(parents=True, exist_ok=True)
        context = processes.forking("memtier.lab.recovery", "torch._dynamo")
        self._team = processes.Team(context, ranks, _rank, folder, *how)

    @property
    def losses(self) -> dict[int, str]:
        return {line["step"]: line["loss"] for line in self._team.told(0) if "step" in line}

    @property
    def came_from(self) -> tuple[int, str] | None:
        start = next((line["start"] for line in self._team.told(0) if "start" in line), None)
        return tuple(start) if start else None

    @property
    def passed_over(self) -> tuple[str, ...]:
        return next((tuple(line["passed_over"]) for line in self._team.told(0) if "passed_over" in line), ())

    def reached(self, step: int) -> "Job":
        """Wait until the run has done this step. Raises RuntimeError when it ends or stands still before that."""
        ends = time.monotonic() + LONGEST
        while True:
            over = self._team.over or time.monotonic() > ends  # asked first: its last words come before its end
            last = max(self.losses, default=0)
            if last >= step:
                return self
            if over:
                self.kill()
                raise RuntimeError(f"the run stopped at step {last}, before step {step}")
            time.sleep(0.01)

    def kill(self) -> None:
        """End all processes at once, as kill -9 or a power cut does: nothing is written, nobody is told."""
        self._team.kill()

    @property
    def was_killed(self) -> bool:
        return self._team.was_killed

    def wait(self) -> "Job":
        """Wait until all processes have ended by themselves.

        Raises RuntimeError with its words when one fails, TimeoutError after LONGEST seconds; all are ended then.
        """
        try:
            self._team.wait(LONGEST)
        finally:
            self._team.kill()
        return self


def start(folder, *, ranks: int = 2, until: int = 40, pause: float = 0.02, settings=SMALL) -> Job:
    """Start a run in this folder, or go on with the one that is there, until step `until`.

    ranks: processes; another number than before is fine. pause: seconds that each step takes longer than it must.
    settings: the model's size and seed, a training_run.Settings; the same as before, where a run goes on.
    Raises ValueError for bad arguments.
    """
    checks.whole("ranks", ranks, most=8)
    checks.whole("until", until)
    checks.not_negative("pause", pause)
    return Job(Path(folder), ranks, until, pause, settings)


def places(folder) -> list[Store]:
    """The two stores of a run in this folder, fastest first."""
    return [Store(name, str(Path(folder, name)), every) for name, every in EVERY.items()]


def _rank(tell, rank: int, ranks: int, folder: Path, until: int, pause: float, settings) -> None:
    """One process of the run."""
    def each(step: int, loss: float) -> None:
        tell(step=step, loss=loss.hex())
        time.sleep(pause)

    training_run.train(
        settings, places(folder), until=until, each=each, say=lambda line: None,
        clock=lambda training: lambda: training.step,  # versions by steps, so that a slow machine saves the same
        started=lambda restored: tell(start=restored and [restored.step, restored.store],
                                      passed_over=list(restored.passed_over) if restored else []))
