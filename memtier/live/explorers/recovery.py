"""Explorers of recovery: how often to save, and how often something fails."""

from memtier import drawing, evidence, recovery, units
from memtier.drawing import Axis
from memtier.live.controls import Choice, Slider
from memtier.live.course import DAY, YEAR
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import percent, several

LLAMA3 = {name: evidence.get(f"run.llama3-405b.{name}").quantity for name in ("gpus", "observed", "unexpected")}
time = units.format_time


def _said(seconds: float) -> float:
    """The time that `format_time` writes for it, so that a box can show it in full."""
    return units.parse_time(time(seconds))


OBSERVED = recovery.observed_mtbf(int(LLAMA3["unexpected"]), LLAMA3["observed"])
MTBF = _said(OBSERVED)  # seconds
ONE_GPU = _said(OBSERVED * LLAMA3["gpus"])  # seconds between failures, were the GPUs to blame for all of them
SWEEP = tuple(10 * 1.18**n for n in range(46))  # seconds, 10 s to nearly 5 h
GPUS = tuple(2**n for n in range(3, 18))
YEARS = tuple(YEAR * years for years in (0.5, 1, 2, 3, 4, 5)) + (ONE_GPU,) + tuple(
    YEAR * years for years in (7, 10, 15, 20, 30, 50))
TICKS = ((10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (DAY, "1 day"), (10 * DAY, "10 days"),
         (100 * DAY, "100 days"), (1000 * DAY, "1,000 days"))


def _of_the_time(share: float) -> str:
    return f"{percent(share)} of the time" if share <= 1 else "more time than there is"


def _interval(interval, write, mtbf, restart, lag, method, guess=None) -> View:
    def at(seconds):
        return recovery.goodput(interval=seconds, write_seconds=write, mtbf_seconds=mtbf, restart=restart, lag=lag,
                                method=method)

    best, here = recovery.interval(write, mtbf, "young" if method == "first-order" else "daly"), at(interval)
    at_best = at(best)
    losses = ", ".join(f"{name} {percent(part)}" for name, part in here.losses.items() if part)
    least = percent(at_best.lost) if at_best.lost <= 1 else "more than there is as well"
    say = (f"Saving every {time(interval)} loses {_of_the_time(here.lost)}{f' ({losses})' if here.lost <= 1 else ''}. "
           f"The best interval is {time(best)}, which loses {least}.")
    swept = [(seconds, at(seconds)) for seconds in SWEEP]
    curves = [("all losses", [(seconds, point.lost) for seconds, point in swept])]
    curves += [(name, [(seconds, point.losses[name]) for seconds, point in swept]) for name in here.losses
               if here.losses[name]]
    low = max(1e-4, min(at_best.losses["saving"], at_best.lost) / 20)
    curves = [(name, [(x, y) for x, y in curve if y >= low] or curve[:1]) for name, curve in curves]
    figure = drawing.lines(
        curves, Axis("work between two saves", SWEEP[0], SWEEP[-1], time,
                     tuple((seconds, time(seconds)) for seconds in (10, 60, 600, 3600, 4 * 3600))),
        Axis("share of the time lost", low, 2, percent, tuple(
            (share, percent(share)) for share in (0.0001, 0.001, 0.01, 0.1, 1) if share >= low)),
        "What an interval costs", say, points=[("best", min(max(best, SWEEP[0]), SWEEP[-1]), at_best.lost),
                                               ("yours", interval, min(2, here.lost))],
        strong="all losses",
        guess=guess and (min(max(guess, SWEEP[0]), SWEEP[-1]), min(2, at(guess).lost), f"your guess: {time(guess)}"))
    share = drawing.bars([("all time", {"progress": max(0.0, 1 - min(1, here.lost)), **here.losses})],
                         "Where the time goes", say, say=percent)
    return View((figure, share), say, _interval_note(write, mtbf, here))


def _interval_note(write, mtbf, here) -> str:
    if here.lost >= 1:
        return "At this interval nothing is left: more time is lost than there is."
    if write > mtbf / 20:
        daly, young = (time(recovery.interval(write, mtbf, method)) for method in ("daly", "young"))
        return f"A save takes a good part of the time between failures: Young's interval is {young}, Daly's {daly}."
    return ("Left of the best, saving costs more; right of it, lost work does. About where the two cross, their sum is "
            "least.")


interval = Explorer(
    name="recovery.interval",
    title="How often to save",
    intro="Save often, and saving costs time. Save seldom, and each failure throws more work away.",
    controls=(
        Slider("interval", "Work between two saves", 10, 4 * 3600, 1800, "log", "s"),
        Slider("write", "A save stops the job for", 0.01, 3600, 300, "log", "s"),
        Slider("mtbf", "Something fails every", 600, 30 * DAY, MTBF, "log", "s"),
        Slider("restart", "A restart takes", 0, 3600, 0, (0, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600), "s",
               more=True),
        Slider("lag", "A save counts only after", 0, 3600, 0, (0, 1, 10, 30, 60, 120, 300, 600, 1800, 3600), "s",
               more=True),
        Choice("method", "Count", {"first-order": "first order, as Young", "exact": "exact, failures memoryless"},
               "first-order", more=True),
    ),
    more="More: restarts, late copies, the exact count",
    view=_interval,
    presets={
        "five minutes, every 30 min": {},
        "49 s, every 30 min": {"write": 49},
        "49 s, every 10 min": {"write": 49, "interval": 600},
        "49 s, at the best": {"write": 49, "interval": _said(recovery.interval(49, MTBF))},
        "half a second, at the best": {"write": 0.51, "interval": _said(recovery.interval(0.51, MTBF))},
        "49 s, and ten minutes of restart": {"write": 49, "restart": 600},
    },
    predict=Prediction(
        "Llama 3's run was interrupted every **3.09 hours**. A save stops the job for **49 s**. Saving every 10 "
        "minutes and every 30 minutes lose about the same. Which interval loses least?",
        truth=lambda values: recovery.interval(values["write"], values["mtbf"]),
        values={"write": 49, "mtbf": MTBF, "method": "first-order", "restart": 0, "lag": 0},
        low=10, high=4 * 3600, unit="s",
        lesson=lambda values: "√(2 · 49 s · 3.09 h). With a save of half a second it would be "
                              f"{time(recovery.interval(0.51, MTBF))}, and less than 1 % of the time lost."),
)


def _failures(gpus, one, interval, days, restart, guess=None) -> View:
    mtbf = recovery.mtbf({"GPU": (gpus, one)})
    run = days * DAY
    failures = recovery.failures_expected(run, mtbf)
    lost = recovery.lost_work(interval, mtbf, run, restart=restart)
    cost = time(lost) if lost < 3600 else f"{units.format_count(lost / 3600)} h"
    years, often = several(f"{one / YEAR:.2g}", "year"), several(units.format_count(failures), "time")
    say = (f"{gpus:,} GPUs, each failing once in {time(one)} ({years}): something fails every {time(mtbf)}, on average "
           f"{often} in {several(days, 'day')}. With a save every {time(interval)} that costs {cost} of "
           f"{run / 3600:,.0f} h, {percent(lost / run) if lost <= run else 'more than there is'}.")
    curve = [(count, recovery.mtbf({"GPU": (count, one)})) for count in GPUS]
    left = (mtbf / 6, 6 * mtbf) if gpus <= 64 else (0, 0)  # there the dot's words stand where those of ticks would
    low, high = min(60, curve[-1][1] / 2, interval / 2), max(curve[0][1], DAY) * 2
    figure = drawing.lines(
        [("the job", curve)],
        Axis("GPUs", 1, GPUS[-1], lambda n: f"{n:,.0f}", tuple((n, f"{n:,}") for n in (1, 8, 64, 512, 4096, 32768))),
        Axis("time between failures", low, high, time, tuple(
            tick for tick in TICKS if low <= tick[0] <= high and not 0.4 < tick[0] / interval < 2.5
            and not left[0] < tick[0] < left[1])),
        "More GPUs, more failures", say, points=[("here", gpus, mtbf)], limit=(interval, "one interval"),
        guess=guess and (gpus, min(max(run / guess, low), high), f"your guess: every {time(run / guess)}"), height=240)
    parts = {"lost work": failures * interval / 2, "restart": failures * restart}
    parts = {name: seconds for name, seconds in parts.items() if seconds}
    if lost <= run:
        parts = {"progress": run - lost, **parts}
    share = drawing.bars([(several(days, "day"), parts)], "What failures cost", say, say=time)
    return View((figure, share), say, "On average half an interval is lost to a failure, not the whole: it can strike "
                                      "anywhere in it.")


failures = Explorer(
    name="recovery.failures",
    title="Many reliable parts fail often",
    intro="Rates of failure add up. What is rare on one GPU is a matter of hours on thousands.",
    controls=(
        Slider("gpus", "GPUs", GPUS[0], GPUS[-1], 8, GPUS, "count"),
        Slider("one", "One GPU and its share of the rest fails every", YEARS[0], YEARS[-1], ONE_GPU, YEARS, "s"),
        Slider("interval", "Work between two saves", 10, 4 * 3600, 1800, "log", "s"),
        Slider("days", "Days", 1, 365, 30, (1, 7, 14, 30, 54, 90, 180, 365), "count", more=True),
        Slider("restart", "A restart takes", 0, 3600, 300, (0, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600), "s",
               more=True),
    ),
    more="More: length of the run, restarts",
    view=_failures,
    presets={
        "one node for a month": {},
        "512 GPUs for a month": {"gpus": 512},
        "Llama 3's 54 days": {"gpus": 16384, "days": 54, "restart": 0},
        "131,072 GPUs for a month": {"gpus": 131072},
    },
    predict=Prediction(
        "A GPU, with its share of network, hosts and software, fails once in **5.8 years**, 2,112 days. You train on "
        "512 of them for 30 days. How many failures do you meet?",
        truth=lambda values: float("{:.3g}".format(recovery.failures_expected(  # as it is said: three digits
            values["days"] * DAY, recovery.mtbf({"GPU": (values["gpus"], values["one"])})))),
        values={"gpus": 512, "one": ONE_GPU, "days": 30}, low=0.01, high=1000, unit="",
        lesson="512 GPUs live through 512 × 30 days: 42 years of one GPU."),
)
