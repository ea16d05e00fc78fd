"""Numbers quoted in book/10-failure-and-recovery.ipynb."""

from typing import NamedTuple

from prose.common import fact

from memtier import checkpoints, recovery, units

NOTEBOOK = "book/10-failure-and-recovery.ipynb"
HOUR, DAY = 3600, 86400


def llama(name):
    return fact(f"run.llama3-405b.{name}")


def between():
    return recovery.observed_mtbf(int(llama("unexpected")), llama("observed"))


def lost(minutes=None, write=49, method="first-order"):
    every = 60 * minutes if minutes else recovery.interval(write, between())
    return recovery.goodput(interval=every, write_seconds=write, mtbf_seconds=between(), method=method)


def work(gpus):
    """GPUs that never fail which would do the work of so many of Llama 3's, to three digits."""
    often = recovery.mtbf({"GPU": (gpus, between() * llama("gpus"))})
    done = recovery.goodput(interval=recovery.interval(49, often, "daly"), write_seconds=49, mtbf_seconds=often,
                            restart=600, method="exact")
    return round(gpus * done.fraction, -2)


def apart(share):
    young, daly = (recovery.interval(share * between(), between(), method) for method in recovery.METHODS)
    return f"{100 * (1 - daly / young):.0f} %"


def percent(share, digits=3):
    return f"{100 * share:.{digits}g} %"


class Third(NamedTuple):
    interval: float
    loss: recovery.Goodput


def third():
    """The third example: a failure a day, saves that stop the job for 12 s, restarts of ten minutes."""
    best = recovery.interval(12, DAY)
    return Third(best, recovery.goodput(interval=best, write_seconds=12, mtbf_seconds=DAY, restart=600))


QUOTED = {
    # the hook
    "For 54 days in 2024, 16,384 GPUs":
        lambda: f"For {llama('observed') / DAY:.0f} days in 2024, {llama('gpus'):,} GPUs",
    "stopped 466 times. 47 of": lambda: f"stopped {llama('interruptions')} times. {llama('planned')} of",
    "The other 419 were not": lambda: f"The other {llama('interruptions') - llama('planned')} were not",
    # rates
    "live 42 years together, so they meet 7.3 failures": lambda: "live {:.0f} years together, so they meet {:.1f} "
    "failures".format(512 * 30 / 365, recovery.failures_expected(
        30 * DAY, recovery.mtbf({"GPU": (512, between() * llama("gpus"))}))),
    "fails once in 5.8 years": lambda: f"fails once in {between() * llama('gpus') / (365 * DAY):.1f} years",
    "meet one every 3.65 days": lambda: "meet one every {:.2f} days".format(
        recovery.mtbf({"machine": (1000, 10 * 365 * DAY)}) / DAY),
    "It is 7.3.": lambda: "It is {:.1f}.".format(recovery.failures_expected(
        30 * DAY, recovery.mtbf({"GPU": (512, between() * llama("gpus"))}))),
    # what one costs
    "6,285 min = 104.75 hours": lambda: "{:,.0f} min = {:.2f} hours".format(
        *(recovery.lost_work(1800, between(), llama("observed")) / unit for unit in (60, HOUR))),
    "gets 209.5 hours": lambda: f"gets {2 * recovery.lost_work(1800, between(), llama('observed')) / HOUR:.1f} hours",
    "209.5 h. Somebody": lambda: f"{419 * 1800 / HOUR:.1f} h. Somebody",
    "It is half an interval, 104.75 h": lambda: "It is half an interval, {:.2f} h".format(
        recovery.lost_work(1800, between(), llama("observed")) / HOUR),
    "of a 70B run is 0.98 TB": lambda: "of a 70B run is {:g} TB".format(
        checkpoints.inventory(70e9, recipe="bf16-adam").total / units.TB),
    # how often
    "10.9 % and 10.8 %": lambda: f"{percent(lost(10).lost)} and {percent(lost(30).lost)}",
    "every 17.4 minutes, and it still costs 9.4 %": lambda:
        f"every {recovery.interval(49, between()) / 60:.1f} minutes, and it still costs {percent(lost().lost, 2)}",
    "falls to 1.8 minutes": lambda: f"falls to {recovery.interval(0.51, between()) / 60:.1f} minutes",
    "the loss to under 1 %": lambda: f"the loss to under {100 * lost(write=0.51).lost:.0f} %",
    "bought back 8 %": lambda: f"bought back {percent(lost().lost - lost(write=0.51).lost, 1)}",
    "= 759 s": lambda: f"= {recovery.interval(20, 4 * HOUR):.0f} s",
    "759/28,800 = 2.64 %": lambda: f"759/28,800 = {percent(recovery.interval(20, 4 * HOUR) / (8 * HOUR))}",
    "20/759 = 2.64 %": lambda: f"20/759 = {percent(20 / recovery.interval(20, 4 * HOUR))}",
    "Together 5.27 %": lambda: "Together " + percent(recovery.goodput(
        interval=recovery.interval(20, 4 * HOUR), write_seconds=20, mtbf_seconds=4 * HOUR).lost),
    "the two intervals are 5 % apart": lambda: f"the two intervals are {apart(0.01)} apart",
    "they are 14 % apart": lambda: f"they are {apart(0.1)} apart",
    # the third example
    "= 1 day = 86,400 s": lambda: "= 1 day = {:,.0f} s".format(recovery.mtbf({"node": (1000, 1000 * DAY)})),
    "= 1,440 s, every 24 minutes": lambda:
        f"= {third().interval:,.0f} s, every {third().interval / 60:.0f} minutes",
    "12/1,440 = 0.83 % each": lambda: f"12/1,440 = {percent(third().loss.losses['saving'], 2)} each",
    "600/86,400 = 0.69 %": lambda: f"600/86,400 = {percent(third().loss.losses['restart'], 2)}",
    "Together 2.36 %": lambda: f"Together {percent(third().loss.lost)}",
    # the rest
    "every minute, with a save of 49 s, and that leaves 54.8 %": lambda:
        f"every minute, with a save of 49 s, and that leaves {percent(lost(1, method='exact').fraction)}",
    "Every 17.4 minutes leaves 90.9 %": lambda: "Every {:.1f} minutes leaves {}".format(
        recovery.interval(49, between()) / 60, percent(lost(method="exact").fraction)),
    "To first order one minute would leave 18.1 %":
        lambda: f"To first order one minute would leave {percent(lost(1).fraction)}",
    "49 of every 60 seconds, where it is 49 of every 109": lambda:
        f"49 of every {60 * 49 / 60 / lost(1).losses['saving']:.0f} seconds, where it is 49 of every {60 + 49}",
    "the loss falls from 9.4 % to 5.9 % only": lambda: "the loss falls from {} to {} only".format(
        *(percent(lost(recovery.interval(49, between()) / 60, write).lost, 2) for write in (49, 49 / 4))),
    "131,072 of Llama 3's GPUs do the work of 64,500": lambda:
        f"131,072 of Llama 3's GPUs do the work of {work(131_072):,.0f}",
    "262,144 that of 74,200": lambda: f"262,144 that of {work(262_144):,.0f}",
    "524,288 that of 52,200": lambda: f"524,288 that of {work(524_288):,.0f}",
    "more than 90 %": lambda: f"more than {percent(llama('effective'))}",
    "more than 93 % is within reach": lambda: "more than {:.0f} % is within reach".format(100 * recovery.goodput(
        interval=recovery.interval(1, between()), write_seconds=1, restart=600, mtbf_seconds=between()).fraction - 0.5),
    "41 minutes. That is some 74,000": lambda: "{:.0f} minutes. That is some {:,.0f}".format(
        50 * 49 / 60, round(between() * llama("gpus") / (50 * 49), -3)),
    # counts and times in words
    "**419 failures": lambda: f"**{llama('unexpected')} failures",
    "a failure every 5 years": lambda: "a failure every {:.0f} years".format(
        recovery.mtbf({"machine": (2, 10 * 365 * DAY)}) / (365 * DAY)),
    "a little under 13 minutes": lambda:
        f"a little under {-(-recovery.interval(20, 4 * HOUR) // 60):.0f} minutes",
    "a save four times as fast halves the loss": lambda: {2: "a save four times as fast halves the loss"}[
        (4 * HOUR / 20) ** 0.5 / (4 * HOUR / 80) ** 0.5],
}

GIVEN = (
    "of 30 minutes: 15 minutes", "419 × 15 min", "for 30 days", "stops the job for 20 s", "stops the job for 12 s",
    "once in 1,000 days",
    "with a save of 49 s", "a save of 49 s", "49 seconds", "saves of 49 s at Daly's",
    "49 s for shared storage, 490 s for object storage",  # lags: the cell's own
    # what the examples and questions start from, and how long the chapter takes
    "**1,000 nodes", "every 10 minutes and every 30", "once in 10 years", "to win 100 hours",
    "on 4,096 GPUs fails every 12 hours", "fails every 4 hours", "512 GPUs for 30 days",
    "Every 6 hours", "on 64 GPUs. Each", "ten years, a thousand times",
    "make saves four times as fast", "are four times as many", "takes five minutes, each", "five minutes more",
    "takes four minutes", "Read: 25 minutes. Do: 35 minutes", "with torch: 2 minutes",
)
