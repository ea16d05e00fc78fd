"""Explorer of checkpoints: versions on their way down the tiers, what waits for them, and what piles up."""

from bisect import bisect_right

from memtier import checkpoints, drawing, models, tiers, units
from memtier.checkpoints import Stage
from memtier.drawing import Axis
from memtier.live.controls import Choice, ModelChoice, Slider
from memtier.live.course import SEVENTY
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import percent, several

PER_NODE = 8  # GPUs, each with its own way into the node's memory
LOCAL, SHARED = "local NVMe", "shared storage"
HOURS = tuple(3600 * hours for hours in (0.5, 1, 2, 4, 8, 12, 24))
INTERVALS = (10, 15, 20, 30, 45, *(60 * m for m in (1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120)))
LINK = tiers.link("pcie5-x16")
SHOWN = 8  # saves that the timeline follows
MOMENTS = 120  # that the curve of what is not safe is drawn through, at most: a phone shows no more


def _followed(interval, shared, keep, model, local, nodes, asynchronous, hours):
    """Bytes of one version, and the Drain of the run."""
    nbytes = checkpoints.inventory(model, recipe="bf16-adam").total
    stages = [Stage(LOCAL, checkpoints.write_time(nbytes, to=local, writers=nodes)),
              Stage(SHARED, checkpoints.write_time(nbytes, to=shared))]
    snapshot = tiers.transfer_time(nbytes, LINK.rate, streams=PER_NODE * nodes) if asynchronous else 0.0
    return nbytes, checkpoints.drain(interval=interval, stages=stages, duration=hours, snapshot=snapshot,
                                     asynchronous=asynchronous, keep=keep)


def _unsafe(run, at: float) -> int:
    """Versions that at this time are frozen and neither in the shared tier nor passed over."""
    newest = run.newest(SHARED, at)
    return bisect_right(run.saves, at) - (0 if newest is None else newest + 1)


def _over_time(run) -> list[tuple[float, int]]:
    """(time, versions not safe) whenever that changes, before and after: steps, of which none is missed.

    Of a long run with many changes: the most of each stretch of time.
    """
    changes = sorted({at for at in (*run.saves, *(span.end for span in run.written[SHARED])) if at <= run.duration})
    found, last = [(0.0, 0)], 0
    for at in changes:
        found += [(at, last), (at, last := _unsafe(run, at))]
    if len(found) > MOMENTS:
        stretches: dict[int, tuple[float, int]] = {}
        for at, count in found:
            stretch = int(MOMENTS * at / run.duration)
            stretches[stretch] = max(stretches.get(stretch, (at, count)), (at, count), key=lambda each: each[1])
        found = list(stretches.values())
    return [*found, (run.duration, last)]


def _lanes(run) -> tuple[str, list]:
    """What the timeline shows, and its title: the first saves on their way, as far as the run goes."""
    count = min(SHOWN, len(run.saves))

    def lane(spans):
        return [(f"save {version + 1}", start, min(end, run.duration) - start) for version, start, end in spans
                if version < count and start < min(end, run.duration)]

    waits = enumerate(zip(run.saves, run.stalls, strict=True))
    lanes = [("the job waits", lane((version, asked, asked + stall) for version, (asked, stall) in waits))]
    lanes += [(f"{name}, {units.format_time(spans[0].end - spans[0].start)} each" if spans else name, lane(spans))
              for name, spans in run.written.items()]
    return f"The first {count} saves" if count > 1 else "The first save", lanes


def _drain(guess=None, **values) -> View:
    nbytes, run = _followed(**values | {"model": models.resolve(values["model"])})
    hours, interval, time = values["hours"], values["interval"], units.format_time
    if not run.saves:
        return View(drawing.timeline([("the job", [("work", 0, hours)])], "No save yet", "The first is still to come."),
                    f"The first save is due after {time(interval)}; the run has lasted {time(hours)}.")
    finished = sum(span.end <= hours for span in run.written[SHARED])
    behind = _unsafe(run, hours)
    missing = "it has them all"
    if behind:
        missing = (f"{several(behind, 'newer one')}, {units.format_bytes(behind * nbytes)}, "
                   f"{'is' if behind == 1 else 'are'} not there yet")
    stalled = run.stalled / hours
    takes = {name: spans[0].end - spans[0].start for name, spans in run.written.items() if spans}
    shared = f"{time(takes[SHARED])} each" if SHARED in takes else "none begun"
    waited = f"{percent(stalled, 2)} of its time"
    size, saves = units.format_bytes(nbytes), len(run.saves)
    saved = f"{size} once" if saves == 1 else f"{saves:,} times {size}"
    say = (f"In {time(hours)} the job saved {saved} and waited {waited}. {SHARED.capitalize()}, {shared}, "
           f"finished {finished:,}; {missing}. Lose every node now, and "
           f"{time(run.at_risk(SHARED, hours))} of work are gone; lose none of their drives, and it is "
           f"{time(run.at_risk(LOCAL, hours))}.")
    title, lanes = _lanes(run)
    first = drawing.timeline(lanes, title, say)
    steps = _over_time(run)
    high = max(2, *(count for _, count in steps)) * nbytes * 1.1
    above = ", above this" if guess and guess > high else ""
    curve = drawing.lines(
        [("not in shared storage", [(at, count * nbytes) for at, count in steps])],
        Axis("time", 0, hours, time, drawing.time_ticks(hours), log=False),
        Axis("bytes", 0, high, units.format_bytes, log=False),
        "What shared storage does not have yet", say,
        points=[("now", hours, behind * nbytes)],
        # One that is too large for the plot stands at its upper edge, away from the dot of now.
        guess=guess and (hours / 2 if above else hours, min(guess, high),
                         f"your guess: {units.format_bytes(guess)}{above}"),
        height=220)
    return View((first, curve), say, _note(run, values))


def _note(run, values) -> str:
    if not values["asynchronous"]:
        return ("The job waits until the local drives have the whole version. Asynchronous saving lets it wait for the "
                "copy into CPU memory alone.")
    if any(run.skipped.values()):
        skipped = several(run.skipped[SHARED], "older version")
        return (f"{SHARED.capitalize()} passed over {skipped} for newer ones: its queue "
                "stays short, and what it has is hardly ever older than two of its writes and an interval.")
    return (f"The job waits for the copy into CPU memory ({LINK.title}, {PER_NODE} GPUs a node); everything below goes "
            "on behind it.")


drain = Explorer(
    name="checkpoints.drain",
    title="Saves on their way down",
    intro="Each save is frozen in CPU memory, written to the nodes' own drives, then drained to shared storage.",
    controls=(
        Slider("interval", "Work between two saves", INTERVALS[0], INTERVALS[-1], 600, INTERVALS, "s"),
        Slider("shared", "Shared storage takes, all nodes together", 1e9, 7e12, 20e9, "log", "bytes/s"),
        Choice("keep", "When shared storage falls behind", {"all": "it writes every version", "newest":
                                                            "it passes over the older ones"}, "all"),
        Choice("asynchronous", "The job waits for", {True: "the copy into CPU memory", False: "the local drives"}, True,
               more=True),
        Slider("local", "A node's drives take", 1e9, 60e9, 30e9, "log", "bytes/s", more=True),
        Slider("nodes", "Nodes", 1, 4096, 64, tuple(2**n for n in range(13)), "count", more=True),
        ModelChoice("model", "Model", SEVENTY, more=True),
        Slider("hours", "How long the run has lasted", HOURS[0], HOURS[-1], 3600, HOURS, "s", more=True),
    ),
    more="More: what the job waits for, drives, nodes, model, length of the run",
    view=_drain,
    presets={
        "every 10 minutes": {},
        "every 30 s": {"interval": 30},
        "every 30 s, older ones passed over": {"interval": 30, "keep": "newest"},
        "every 30 s above 500 GB/s": {"interval": 30, "shared": 500e9},
        "the job waits for the drives": {"interval": 30, "asynchronous": False},
    },
    predict=Prediction(
        "A 70B run saves its 980 GB every **30 seconds**. To the nodes' own drives that takes half a second. Shared "
        "storage at 20 GB/s takes 49 s. After an hour, how many bytes does it not have yet?",
        truth=lambda values: _behind(values),
        values={"interval": 30, "shared": 20e9, "keep": "all", "asynchronous": True, "local": 30e9, "nodes": 64,
                "model": SEVENTY, "hours": 3600},
        low=1e9, high=1e15, unit="bytes",
        lesson="Every save looks free, and the queue behind it grows by two versions every five: writing faster "
               "than the slowest tier only moves the wait."),
)


def _behind(values) -> float:
    nbytes, run = _followed(**{control.name: values[control.name] for control in drain.controls})
    return _unsafe(run, values["hours"]) * nbytes
