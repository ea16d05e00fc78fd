"""A training loop under a failure generator: the goodput that is seen, beside the goodput that is computed.

    recovery.sweep((5, 10, 20, 40, 80), mtbf=100, write=2, restart=3)

The loop is real: gradient steps on the data of the step's number, saves to a file that replaces the last
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
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from memtier import checks, recovery

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
