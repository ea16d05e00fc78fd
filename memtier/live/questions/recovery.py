"""Questions on recovery. Every answer, right or wrong, is computed by the functions the chapter explains."""

import math

from memtier import recovery
from memtier.live.course import DAY, HOUR, MINUTE, YEAR
from memtier.live.question import Misconception, Question
from memtier.live.text import number, percent
from memtier.units import format_time


def _draw_failures(random) -> dict:
    v = {"gpus": random.choice((256, 768, 1024, 2048, 4096)), "years": random.choice((3, 4, 5, 6, 8, 10)),
         "days": random.choice((10, 20, 30, 60, 90))}
    return v | {"lived": f"{v['gpus'] * v['days'] / 365:,.3g}", "failures": number(_met(v))}


def _failures(v, gpus=None) -> float:
    one = v["years"] * YEAR
    return recovery.failures_expected(v["days"] * DAY, recovery.mtbf({"GPU": (gpus or v["gpus"], one)}))


def _met(v) -> float:
    """As it is written: three digits."""
    return float(f"{_failures(v):.3g}")


how_many = Question(
    name="recovery.how_many",
    title="Once in years, for thousands",
    draw=_draw_failures,
    prompt="A GPU with all that belongs to it fails once in {years} years. A job runs on {gpus} of them for {days} "
           "days, and "
           "stops when any fails. **How many failures does it meet on average?**",
    tolerance=0.03,
    answer=_met,
    misconceptions=(
        Misconception(lambda v: _failures(v, gpus=1), "That is one GPU's share. All of them have to live."),
        Misconception(lambda v: v["gpus"] / v["years"], "That is for a whole year."),
        Misconception(lambda v: v["gpus"] / (v["years"] * 365), "That is for one day."),
    ),
    hints=("How many years do all these GPUs live together during the job?", "{lived} years of GPU life; one failure "
                                                                             "in "
                                                                             "{years} of them."),
    solution="{gpus} GPUs × {days} days = {lived} years of GPU life. One failure in {years} years makes "
             "**{failures}**.",
)


def _draw_lost(random) -> dict:
    v = {"failures": random.choice((60, 120, 200, 300, 419)), "minutes": random.choice((24, 30, 40, 60)),
         "restart": random.choice((5, 8, 9))}
    return v | {"half": f"{v['minutes'] / 2:g}", "lost": format_time(_lost(v))}


def _lost(v, share=1.0, restart=True) -> float:
    """Seconds lost; share: of half an interval."""
    each = v["minutes"] * MINUTE * share
    run = 100 * DAY  # its length cancels: only the number of failures counts
    return recovery.lost_work(each, run / v["failures"], run, restart=v["restart"] * MINUTE * restart)


lost_work = Question(
    name="recovery.lost_work",
    title="What failures throw away",
    draw=_draw_lost,
    prompt="A run saves every {minutes} minutes and meets {failures} failures. Coming back takes {restart} minutes "
           "each "
           "time. **How much time do the failures cost in all?** (With a unit, such as 80 h.)",
    unit="s",
    answer=_lost,
    misconceptions=(
        Misconception(lambda v: _lost(v, share=2), "You lost a whole interval to each failure. It strikes anywhere "
                                                   "in one, "
                                                   "so on average half of it is lost."),
        Misconception(lambda v: _lost(v, restart=False), "Add the time it takes to come back."),
        Misconception(lambda v: _lost(v, share=2, restart=False),
                      "A whole interval for each, and nothing for coming back: both need another look."),
    ),
    hints=("How much of an interval does a failure throw away on average?", "{half} minutes of work and {restart} of "
                                                                            "coming "
                                                                            "back, for each."),
    solution="Each failure costs half an interval and a restart, {half} + {restart} minutes. Times {failures}: "
             "**{lost}**.",
)


def _draw_interval(random) -> dict:
    v = {"write": random.choice((5, 10, 20, 30, 60, 120)), "hours": random.choice((1, 2, 4, 6, 12, 18))}
    return v | {"cost": format_time(v["write"]), "mtbf": format_time(v["hours"] * HOUR), "best": format_time(_best(v)),
                "product": f"{2 * v['write'] * v['hours'] * HOUR:,}", "lost": percent(_least(v))}


def _best(v) -> float:
    return recovery.interval(v["write"], v["hours"] * HOUR)


def _least(v) -> float:
    return recovery.goodput(interval=_best(v), write_seconds=v["write"], mtbf_seconds=v["hours"] * HOUR).lost


best_interval = Question(
    name="recovery.best_interval",
    title="The best interval",
    draw=_draw_interval,
    prompt="A save stops the job for {cost}. Something fails every {mtbf}. **After how much work should it save** so "
           "that "
           "least time is lost, by Young's rule?",
    unit="s",
    answer=_best,
    misconceptions=(
        Misconception(lambda v: _best(v) / math.sqrt(2), "The 2 under the root is missing: only half an interval is "
                                                         "lost."),
        Misconception(lambda v: 2 * v["write"] * v["hours"] * HOUR, "Now take the square root."),
        Misconception(lambda v: v["hours"] * HOUR, "That is the time between failures: most of the work would be "
                                                   "lost."),
        Misconception(lambda v: v["hours"] * HOUR / 2, "Half the time between failures is a guess, and a dear one."),
    ),
    hints=("The best interval is √(2 · C · M), all in seconds.", "Under the root stands {product}."),
    solution="√(2 · C · M) = √{product} s = **{best}**. Then saving and lost work cost the same, {lost} of the time "
             "together.",
)


def _draw_share(random) -> dict:
    v = {"write": random.choice((18, 27, 45, 50, 72)), "hours": random.choice((1, 2, 2.5, 4)),
         "minutes": random.choice((6, 8, 12, 15, 25))}
    here = _at(v)
    return v | {"cost": format_time(v["write"]), "mtbf": format_time(v["hours"] * HOUR),
                "saving": percent(here.losses["saving"]), "work": percent(here.losses["lost work"]),
                "lost": percent(here.lost)}


def _at(v) -> recovery.Goodput:
    return recovery.goodput(interval=v["minutes"] * MINUTE, write_seconds=v["write"], mtbf_seconds=v["hours"] * HOUR)


share = Question(
    name="recovery.share",
    title="What an interval costs",
    draw=_draw_share,
    prompt="A job saves after every {minutes} minutes of work, each save stops it for {cost}, and something fails "
           "every "
           "{mtbf}. **What share of the time is lost** to saving and to lost work, to first order?",
    unit="share",
    tolerance=0.03,
    answer=lambda v: _at(v).lost,
    misconceptions=(
        Misconception(lambda v: _at(v).losses["saving"], "That is saving alone. Failures cost work as well."),
        Misconception(lambda v: _at(v).losses["lost work"], "That is lost work alone. Saving costs time as well."),
        Misconception(lambda v: _at(v).losses["saving"] + 2 * _at(v).losses["lost work"],
                      "You lost a whole interval to each failure; it is half of one."),
    ),
    hints=("Saving costs C/τ. What does a failure cost, and how often does one come?",
           "Saving: {saving}. Lost work: half an interval in every {mtbf}."),
    solution="Saving C/τ = {saving}, lost work τ/2M = {work}. Together **{lost}**.",
)


def _draw_estimate(random) -> dict:
    v = {"write": random.choice((2, 4.5, 8, 12.5, 18, 32, 40.5, 50)), "hours": random.choice((1, 2, 4, 9, 16))}
    return v | {"cost": format_time(v["write"]), "mtbf": format_time(v["hours"] * HOUR), "lost": percent(_least(v)),
                "ratio": f"{2 * v['write'] / (v['hours'] * HOUR):.3g}"}


estimate = Question(
    name="recovery.estimate",
    title="The least that can be lost",
    draw=_draw_estimate,
    prompt="In your head: a save stops the job for {cost}, something fails every {mtbf}. **What share of the time is "
           "lost at "
           "the best interval**, about?",
    unit="share",
    tolerance=0.2,
    answer=_least,
    misconceptions=(
        Misconception(lambda v: 2 * v["write"] / (v["hours"] * HOUR), "Now take the root of that."),
        Misconception(lambda v: _least(v) / 2, "That is one of two equal halves: saving, and lost work."),
        Misconception(lambda v: 2 * _least(v), "Twice too much: √(2C/M) is both halves together already."),
    ),
    hints=("At the best interval C/τ and τ/2M are equal, and τ is √(2CM).", "The two together are √(2C/M), and 2C/M is "
                                                                          "{ratio}."),
    solution="Put τ = √(2CM) into C/τ + τ/2M: it becomes √(2C/M) = √{ratio} = **{lost}**. Four times faster saves "
             "halve it.",
)

CHANGES = {"write": "saves that stop the job for half as long", "mtbf": "half as many failures",
           "same": "both gain the same"}


def _draw_design(random) -> dict:
    v = {"write": random.choice((10, 20, 30, 60)), "hours": random.choice((2, 3, 4, 6))}
    faster, rarer = v | {"write": v["write"] / 2}, v | {"hours": 2 * v["hours"]}
    return v | {"cost": format_time(v["write"]), "mtbf": format_time(v["hours"] * HOUR), "now": percent(_least(v)),
                "then": percent(_least(faster)), "or": percent(_least(rarer))}


design = Question(
    name="recovery.design",
    title="Two ways to spend money",
    draw=_draw_design,
    prompt="Saves stop a job for {cost}; something fails every {mtbf}; it saves at the best interval. You can buy "
           "faster "
           "storage, so that saves take **half as long**, or better parts, so that failures come **half as often**. "
           "The "
           "interval is set anew to its best. Restarts take no time to speak of. **Which gains more?**",
    kind="choice",
    options=CHANGES,
    answer=lambda v: "same",
    misconceptions=(
        Misconception(lambda v: "write", "Work out √(2C/M) for both."),
        Misconception(lambda v: "mtbf", "Fewer failures feel better. Work out √(2C/M) for both."),
    ),
    hints=("At the best interval the share lost is √(2C/M).", "Halving C and doubling M change the same fraction."),
    solution="√(2C/M) falls from {now} to {then} with faster saves and to {or} with fewer failures: both gain the "
             "same. "
             "Where restarts are long, fewer failures win: they halve the time of all restarts, faster storage "
             "only the part of each that reads.",
)


def _draw_diagnose(random) -> dict:
    v = {"write": random.choice((10, 20, 30)), "hours": random.choice((2, 3, 4)), "minutes": 20,
         "missing": random.choice(("restart", "lag"))}
    expected = _at(v)
    lost = recovery.goodput(interval=v["minutes"] * MINUTE, write_seconds=v["write"], mtbf_seconds=v["hours"] * HOUR,
                            restart=_late(v) if v["missing"] == "restart" else 0,
                            lag=_late(v) if v["missing"] == "lag" else 0)
    return v | {"cost": format_time(v["write"]), "mtbf": format_time(v["hours"] * HOUR),
                "expected": percent(expected.fraction), "seen": percent(lost.fraction),
                "late": format_time(_late(v)), "found": FOUND[v["missing"]]}


FOUND = {"restart": "after each failure it takes 15 min until the first new step begins",
         "lag": "a version frozen now is complete on shared storage 15 min later, and restarts read from there"}
LOSSES = {"restart": "the time it takes to come back", "lag": "the time until a save counts",
          "saving": "the time saves stop the job", "work": "work done since the last save"}


def _late(v) -> float:
    return 15 * MINUTE


diagnose = Question(
    name="recovery.diagnose",
    title="Less than computed",
    draw=_draw_diagnose,
    prompt="Someone computed a goodput of {expected} from saves of {cost} every {minutes} minutes and a failure "
           "every {mtbf}. "
           "The run reaches {seen}. The log says: {found}. **Which loss was left out of the calculation?**",
    kind="choice",
    options=LOSSES,
    answer=lambda v: v["missing"],
    misconceptions=(
        Misconception(lambda v: "lag", "Saves count at once in this run, as far as the log says."),
        Misconception(lambda v: "restart", "It comes back at once; but to which state?"),
        Misconception(lambda v: "saving", "That is C/τ, and it was counted."),
        Misconception(lambda v: "work", "Half an interval for each failure was counted. What else does the log tell?"),
    ),
    hints=("Counted were C/τ and τ/2M.", "Each failure costs {late} more than was counted. Where do they go?"),
    solution=lambda v: f"Left out: {LOSSES[v['missing']]}. Each failure costs half an interval **and** {v['late']}; "
                       f"that is "
                       f"{v['late']} in every {v['mtbf']}.",
)
