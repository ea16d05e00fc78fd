"""Recovery: how often something fails, how often to save, and how much of a run's time turns into progress.

    recovery.mtbf({"GPU": (16384, one_gpu), "host": (2048, one_host)})        # seconds between failures of the job
    recovery.interval(write_seconds=49, mtbf_seconds=11134, method="young")   # seconds of work between two saves
    recovery.goodput(interval=1045, write_seconds=49, mtbf_seconds=11134)     # the share of time that is progress

All times are seconds. Failures are taken to be independent and memoryless: each second is as dangerous as any other.
Symbols: τ interval (work between two saves), C write_seconds (what a save costs the job), M mtbf_seconds, R restart.
Every function but `interval` with Daly's method, `schedule`, `survives` and `restart` also takes numpy arrays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

from memtier import checks, tiers

METHODS = ("young", "daly")
COUNTS = ("first-order", "exact")
HOPELESS = 300  # a segment of so many M never gets through; e^300 twice over is near the largest float


def mtbf(components: Mapping[str, tuple[int, float]]) -> float:
    """Mean time between failures of a job that stops when any component fails, in seconds.

    components: name → (how many, mean seconds between failures of one). Rates of independent failures add up:
    1/M = Σ count / mtbf. Raises ValueError for an empty mapping, counts below 1 and times not above 0.

    >>> round(mtbf({"GPU": (16384, 5.8 * 365 * 86400)}) / 3600, 2)
    3.1
    """
    if not isinstance(components, Mapping) or not components:
        raise ValueError(f"components is {checks.brief(components)}; it must map at least one name to (count, seconds)")
    rate = 0.0
    for name, pair in components.items():
        named = checks.brief(name, str)
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise ValueError(f"components has {checks.brief(pair)} for {named}; it must be (count, seconds)")
        count = checks.not_negative(f"count of {named}", checks.whole(f"count of {named}", pair[0]))
        rate += count / checks.positive(f"mtbf of {named}", pair[1])
    return 1 / rate


def observed_mtbf(failures: int, seconds: float) -> float:
    """Mean time between failures seen in a run: its length over its failures.

    >>> round(observed_mtbf(419, 54 * 86400) / 3600, 2)
    3.09
    """
    checks.not_negative("failures", checks.whole("failures", failures))
    return checks.positive("seconds", seconds) / failures


def failures_expected(seconds, mtbf_seconds):
    """How many failures a job meets on average in so many seconds: seconds / M."""
    return checks.not_negative("seconds", seconds) / checks.positive("mtbf_seconds", mtbf_seconds)


def survives(seconds: float, mtbf_seconds: float) -> float:
    """The chance that nothing fails for so many seconds: exp(−t/M)."""
    checks.single("seconds", seconds)
    checks.single("mtbf_seconds", mtbf_seconds)
    return math.exp(-failures_expected(seconds, mtbf_seconds))


def interval(write_seconds, mtbf_seconds, method: str = "young"):
    """The seconds of work between two saves that lose least time.

    "young": √(2·C·M), Young (1974): what saving costs a second, C/τ, equals what failures cost, τ/2M.
    "daly": Daly (2006), equation 37: √(2CM)·[1 + ⅓√(C/2M) + ⅑·C/2M] − C, and M where C is 2M or more. It counts that a
    failure can also strike during a save, and τ by which the save is not yet included. The two part when C comes near
    M: at C = M/100 by 5 %, at C = M/10 by 14 %.
    Raises ValueError for times not above 0.

    >>> round(interval(49, 54 * 86400 / 419) / 60, 1)
    17.4
    """
    checks.one_of("method", method, METHODS)
    checks.positive("write_seconds", write_seconds)
    checks.positive("mtbf_seconds", mtbf_seconds)
    if method == "daly":  # which has two branches
        checks.single("write_seconds", write_seconds)
        checks.single("mtbf_seconds", mtbf_seconds)
    young = (2 * write_seconds * mtbf_seconds) ** 0.5
    if method == "young":
        return young
    if write_seconds >= 2 * mtbf_seconds:
        return float(mtbf_seconds)
    ratio = write_seconds / (2 * mtbf_seconds)
    return young * (1 + ratio**0.5 / 3 + ratio / 9) - write_seconds


def lost_work(interval, mtbf_seconds, seconds, restart=0.0, lag=0.0):
    """Seconds a run of so many seconds loses to failures: for each, half an interval, the lag and the restart.

    A failure strikes anywhere in an interval alike, so on average half of it is lost, not all of it.
    lag: seconds from the moment a save freezes the state until the saved copy counts.

    >>> 419 * 1800 / 2 / 3600   # 419 failures, an interval of 30 minutes: hours
    104.75
    """
    checks.positive("interval", interval)
    checks.not_negative("restart", restart)
    checks.not_negative("lag", lag)
    return failures_expected(seconds, mtbf_seconds) * (interval / 2 + lag + restart)


def restart(nbytes: float, *, source, readers: int = 1, detect: float = 0.0, start: float = 0.0) -> float:
    """Seconds from a failure until work goes on: notice it, start again, read nbytes back.

    source: a tier, its name, or bytes a second; readers: nodes that read at once. They multiply a rate and a node-local
    tier; a shared tier's figure is already the aggregate. detect, start: seconds, 0 or more.
    Raises ValueError for bad arguments and for a tier whose read rate the ledger does not know.
    """
    checks.not_negative("nbytes", nbytes)
    checks.whole("readers", readers)
    checks.not_negative("detect", detect)
    checks.not_negative("start", start)
    if isinstance(source, Real):
        reading = tiers.transfer_time(nbytes, checks.positive("source", source), streams=readers)
    else:
        tier = tiers.get(source, argument="source", or_rate=True)
        reading = tier.read_time(nbytes, streams=1 if tier.shared else readers, argument="source")
    return detect + start + reading


@dataclass(frozen=True)
class Goodput:
    """What becomes of a run's time: `fraction` is progress that lasts, `losses` name the rest, as shares of all time.

    saving: the job waits for a save. lost work: done, not saved, done again. restart: noticing, starting, reading.
    """

    fraction: float
    losses: Mapping[str, float]

    @property
    def lost(self):
        """All losses together."""
        return sum(self.losses.values())


def goodput(*, interval, write_seconds, mtbf_seconds, restart=0.0, lag=0.0, method: str = "first-order") -> Goodput:
    """The share of time that is progress, with each loss named.

    interval: seconds of work between two saves. write_seconds: what one save costs the job: the whole write where it
    waits, the snapshot where the write goes on behind it. restart: seconds a failure costs beside lost work.
    lag: seconds until a save counts, for a write behind the job.

    "first-order": C/τ + (τ/2 + lag)/M + R/M, as Young counts; good while all three are small, never below 0.
    "exact" for memoryless failures (Daly 2006, equation 20, with each loss taken apart): to get through S = τ + C
    takes M·(e^(S/M) − 1) seconds on average and e^(S/M) − 1 failures, and each restart, which can fail as well, takes
    M·(e^(R/M) − 1). A lag is lost once a failure, and is counted so.
    Raises ValueError for times below 0, and for an interval or mtbf_seconds not above 0.

    >>> round(goodput(interval=1045, write_seconds=49, mtbf_seconds=11134).lost, 3)
    0.094
    """
    checks.one_of("method", method, COUNTS)
    checks.positive("interval", interval)
    checks.positive("mtbf_seconds", mtbf_seconds)
    for name, value in (("write_seconds", write_seconds), ("restart", restart), ("lag", lag)):
        checks.not_negative(name, value)
    if method == "first-order":
        losses = {"saving": write_seconds / interval, "lost work": (interval / 2 + lag) / mtbf_seconds,
                  "restart": restart / mtbf_seconds}
        left = 1 - sum(losses.values())
        return Goodput((left + abs(left)) / 2, losses)  # never below 0, for arrays as well
    segment = interval + write_seconds
    checks.at_most("(interval + write_seconds) / mtbf_seconds", segment / mtbf_seconds, HOPELESS)
    checks.at_most("restart / mtbf_seconds", restart / mtbf_seconds, HOPELESS)
    again = _excess(segment / mtbf_seconds)  # M·(e^(S/M) − 1) is S·(1 + again)
    failures = segment / mtbf_seconds * (1 + again)
    spent = {"saving": write_seconds + 0 * failures, "lost work": segment * again + failures * lag,
             "restart": failures * restart * (1 + _excess(restart / mtbf_seconds))}
    whole = interval + sum(spent.values())
    return Goodput(interval / whole, {name: seconds / whole for name, seconds in spent.items()})


def _excess(x):
    """(e^x − 1 − x) / x: by how much more than x a small x makes e^x − 1 grow, without taking 1 and x away from e^x.

    With y for x/2 and r for the answer at y it is r + (y/2)·(1 + r)², so it is doubled up from an x of at most 1, where
    x/2 + x²/6 + x³/24 + … gives it. Takes numbers and numpy arrays of 0 to HOPELESS.
    """
    halvings = 9  # HOPELESS / 2⁹ is below 1
    y = x / 2**halvings
    found = term = y / 2
    for n in range(3, 16):
        term = term * y / n
        found = found + term
    for _ in range(halvings):
        found, y = found + y / 2 * (1 + found) ** 2, 2 * y
    return found


class Level(NamedTuple):
    """One tier of a schedule of saves.

    name: what it is called. interval: seconds of work between two saves to it. write_seconds: what one costs the job.
    restart: seconds to come back from it. share: of all failures, those after which it is the fastest tier that still
    has the state (a process that dies leaves its node's drive; a node that dies takes it along). lag: seconds until a
    save to it counts.
    """

    name: str
    interval: float
    write_seconds: float
    restart: float
    share: float
    lag: float = 0.0


def schedule(levels: Sequence[Level], mtbf_seconds: float) -> Goodput:
    """Goodput of saves to several tiers, each with its own interval: first order, losses by tier and name.

    Each tier costs C/τ for its saves; a failure that only this tier can mend costs half its interval, its lag and its
    restart: Σ C/τ + share·(τ/2 + lag + R)/M. The shares must add up to 1, or some failure would find no checkpoint.
    Raises ValueError for bad arguments. Derived from Young's count, tier by tier.
    """
    checks.positive("mtbf_seconds", checks.single("mtbf_seconds", mtbf_seconds))
    levels = _levels(levels)
    losses = {}
    for name, every, write_seconds, restart, share, lag in levels:
        one = goodput(interval=every, write_seconds=write_seconds, mtbf_seconds=mtbf_seconds, restart=restart, lag=lag)
        for loss, part in one.losses.items():
            losses[f"{name}: {loss}"] = part if loss == "saving" else share * part
    if not math.isclose(sum(level.share for level in levels), 1, abs_tol=1e-9):
        raise ValueError(f"levels: shares are {checks.brief([level.share for level in levels])}; they must add up to"
                         " 1")
    return Goodput(max(0.0, 1 - sum(losses.values())), losses)


def best_schedule(levels: Sequence[Level], mtbf_seconds: float) -> tuple[Level, ...]:
    """The same tiers with the interval of each at its own optimum: √(2·C·M/share).

    In `schedule` the intervals do not touch each other, so each is Young's with the failures it answers for: M/share.
    A tier that answers for none is dropped. Raises ValueError as `interval` does.
    """
    checks.positive("mtbf_seconds", checks.single("mtbf_seconds", mtbf_seconds))
    return tuple(level._replace(interval=interval(level.write_seconds, mtbf_seconds / level.share))
                 for level in _levels(levels) if level.share)


def _levels(levels: Sequence[Level]) -> list[Level]:
    """The tiers of a schedule, each with a name of its own and a share from 0 to 1; intervals may be still to come."""
    found: list[Level] = []
    for each in checks.items("levels", levels, "Levels"):
        if not isinstance(each, tuple) or not 5 <= len(each) <= 6:
            raise ValueError(f"levels has {checks.brief(each)}; it must be a Level: a name, and four or five numbers")
        level = Level(*each)
        if not isinstance(level.name, str) or level.name in [other.name for other in found]:
            raise ValueError(f"levels has the name {checks.brief(level.name)}; it must be a text, and each level's own")
        checks.fraction(f"levels: share of {checks.brief(level.name, str)}", checks.single("levels: share",
                                                                                           level.share))
        found.append(level)
    return found
