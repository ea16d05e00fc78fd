"""Recovery: intervals, lost work and goodput, against published runs, against each other and against a dice."""

import decimal
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import checkpoints, recovery, tiers
from memtier.recovery import Level

DAY, HOUR = 86400, 3600
LLAMA3 = recovery.observed_mtbf(419, 54 * DAY)  # arXiv:2407.21783, section 3.3.4: unexpected interruptions in 54 days
spans = st.floats(0.1, 1e6)


def test_llama_3_failed_every_three_hours():
    assert recovery.observed_mtbf(419, 54 * DAY) / HOUR == pytest.approx(3.093, abs=5e-4)
    # Half an interval for each failure; the whole of it, 209.5 h, is what people expect.
    assert recovery.lost_work(1800, LLAMA3, 54 * DAY) / HOUR == pytest.approx(104.75)
    assert recovery.failures_expected(54 * DAY, LLAMA3) == pytest.approx(419)


def test_many_reliable_parts_fail_often():
    # One GPU in 5.8 years, 512 of them for 30 days.
    one = 5.8 * 365 * DAY
    assert recovery.failures_expected(30 * DAY, recovery.mtbf({"GPU": (512, one)})) == pytest.approx(7.26, abs=0.01)
    assert recovery.mtbf({"GPU": (16384, one)}) / HOUR == pytest.approx(3.1, abs=0.01)


@given(st.lists(st.tuples(st.integers(1, 10**5), spans), min_size=1, max_size=6))
def test_rates_of_failure_add_up(parts):
    whole = recovery.mtbf(dict(enumerate(parts)))
    assert 1 / whole == pytest.approx(sum(count / one for count, one in parts))
    assert whole <= min(one / count for count, one in parts) * (1 + 1e-12)


def test_the_chance_that_nothing_fails():
    assert recovery.survives(LLAMA3, LLAMA3) == pytest.approx(1 / math.e)
    assert recovery.survives(0, LLAMA3) == 1


def test_ten_and_thirty_minutes_cost_the_same_and_the_best_lies_between():
    lost = {minutes: recovery.goodput(interval=60 * minutes, write_seconds=49, mtbf_seconds=LLAMA3).lost
            for minutes in (10, 30)}
    assert lost[10] == pytest.approx(lost[30], abs=0.001)
    best = recovery.interval(49, LLAMA3)
    assert best / 60 == pytest.approx(17.4, abs=0.05)
    at_best = recovery.goodput(interval=best, write_seconds=49, mtbf_seconds=LLAMA3)
    assert at_best.lost == pytest.approx(0.094, abs=0.0005)
    assert at_best.losses["saving"] == pytest.approx(at_best.losses["lost work"])
    fast = recovery.interval(0.51, LLAMA3)
    assert fast / 60 == pytest.approx(1.8, abs=0.05)
    assert recovery.goodput(interval=fast, write_seconds=0.51, mtbf_seconds=LLAMA3).lost < 0.01


def test_more_than_nine_tenths_of_llama_3s_time_was_effective():
    """The paper gives "> 90 %" (arXiv:2407.21783, section 3.3.4) and no interval: with saves that stall for a second,
    at Young's interval, ten minutes to restart leave more than that."""
    best = recovery.goodput(interval=recovery.interval(1, LLAMA3), write_seconds=1, restart=600, mtbf_seconds=LLAMA3)
    assert 0.90 < best.fraction < 0.95


def test_530_billion_at_20_gigabits():
    # 12 bytes a parameter at 20 Gb/s: 42 minutes (GEMINI, SOSP 2023).
    assert checkpoints.write_time(530e9 * 12, to=20e9 / 8) / 60 == pytest.approx(42.4, abs=0.05)


@pytest.mark.parametrize(("share", "apart"), [(0.01, -0.05), (0.1, -0.14)])
def test_where_young_and_daly_part(share, apart):
    young, daly = (recovery.interval(share * LLAMA3, LLAMA3, method) for method in recovery.METHODS)
    assert daly / young - 1 == pytest.approx(apart, abs=0.005)


@given(st.floats(0.001, 0.5), st.floats(10, 1e6))
def test_dalys_interval_is_near_the_best_and_no_worse_than_youngs(share, mtbf):
    cost = share * mtbf
    def kept(interval):
        return recovery.goodput(interval=interval, write_seconds=cost, mtbf_seconds=mtbf, method="exact").fraction

    tried = kept(recovery.interval(cost, mtbf) * np.geomspace(0.2, 5, 400))
    daly = kept(recovery.interval(cost, mtbf, "daly"))
    assert daly >= tried.max() * (1 - 2e-3)
    assert daly >= kept(recovery.interval(cost, mtbf)) * (1 - 1e-4)


def test_daly_gives_up_where_a_save_takes_two_mtbf():
    assert recovery.interval(200, 100, "daly") == 100


@given(spans, st.floats(0, 1e4), st.floats(1, 1e6), st.floats(0, 1e4), st.floats(0, 1e3))
def test_exact_shares_add_up_to_all_time(interval, cost, mtbf, restart, lag):
    if max(interval + cost, restart) > 299 * mtbf:
        return
    result = recovery.goodput(interval=interval, write_seconds=cost, mtbf_seconds=mtbf, restart=restart, lag=lag,
                              method="exact")
    assert result.fraction + result.lost == pytest.approx(1)
    assert all(part >= -1e-12 for part in result.losses.values())


@given(st.floats(10, 1000), st.floats(0, 10), st.floats(0, 10))
def test_first_order_is_the_exact_count_where_losses_are_small(interval, cost, restart):
    mtbf = 1e6
    first, exact = (recovery.goodput(interval=interval, write_seconds=cost, mtbf_seconds=mtbf, restart=restart,
                                     method=method) for method in recovery.COUNTS)
    assert first.fraction == pytest.approx(exact.fraction, abs=2 * first.lost**2 + 1e-9)


@pytest.mark.parametrize(("interval", "cost", "restart"), [(300, 20, 0), (100, 5, 60), (1500, 40, 200)])
def test_the_exact_count_is_what_dice_give(interval, cost, restart):
    """A run of 20,000 segments under failures drawn at random: within four standard errors, some 2 %."""
    mtbf, dice, spent, segments = 1000.0, random.Random(7), 0.0, 20_000
    for _ in range(segments):
        while (fails := dice.expovariate(1 / mtbf)) < interval + cost:
            spent += fails
            while (again := dice.expovariate(1 / mtbf)) < restart:  # a restart can fail as well
                spent += again
            spent += restart
        spent += interval + cost
    exact = recovery.goodput(interval=interval, write_seconds=cost, mtbf_seconds=mtbf, restart=restart, method="exact")
    assert segments * interval / spent == pytest.approx(exact.fraction, rel=0.02)


def test_sweeps_take_arrays():
    times = np.geomspace(60, 7200, 5)
    for method in recovery.COUNTS:
        swept = recovery.goodput(interval=times, write_seconds=49, mtbf_seconds=LLAMA3, method=method)
        single = [recovery.goodput(interval=time, write_seconds=49, mtbf_seconds=LLAMA3, method=method).fraction
                  for time in times]
        assert swept.fraction == pytest.approx(single)
    assert recovery.interval(np.array([1.0, 49.0]), LLAMA3)[1] == pytest.approx(recovery.interval(49, LLAMA3))


def test_first_order_goodput_never_falls_below_nothing():
    assert recovery.goodput(interval=1, write_seconds=100, mtbf_seconds=10).fraction == 0


def test_restart_reads_from_a_shared_tier_at_its_own_rate():
    nbytes = 0.98e12
    assert recovery.restart(nbytes, source=7e9, readers=64) == pytest.approx(nbytes / 7e9 / 64)
    shared = tiers.get("tectonic")
    assert recovery.restart(nbytes, source=shared, readers=64, detect=30, start=60) == pytest.approx(
        90 + shared.read_time(nbytes))
    local = tiers.get("micron-9550")
    assert recovery.restart(nbytes, source="micron-9550", readers=64) == pytest.approx(local.read_time(nbytes, 64))


LEVELS = (Level("NVMe", 300, 0.5, 30, share=0.9), Level("shared", 1800, 2, 120, share=0.08),
          Level("object storage", 4 * HOUR, 2, 600, share=0.02, lag=1800))


def test_a_schedule_of_tiers_beats_each_alone():
    tiered = recovery.schedule(LEVELS, LLAMA3)
    assert tiered.lost == pytest.approx(sum(tiered.losses.values()))
    alone = [recovery.schedule([level._replace(share=1)], LLAMA3) for level in LEVELS[1:]]
    assert all(tiered.fraction > each.fraction for each in alone)


def test_one_tier_is_the_plain_count():
    level = LEVELS[1]._replace(share=1)
    plain = recovery.goodput(interval=level.interval, write_seconds=level.write_seconds, restart=level.restart,
                             mtbf_seconds=LLAMA3)
    assert recovery.schedule([level], LLAMA3).fraction == pytest.approx(plain.fraction)


def test_the_best_schedule_is_no_worse_than_its_neighbours():
    best = recovery.best_schedule(LEVELS, LLAMA3)
    at_best = recovery.schedule(best, LLAMA3).lost
    for number, level in enumerate(best):
        for factor in (0.9, 1.1):
            moved = list(best)
            moved[number] = level._replace(interval=factor * level.interval)
            assert recovery.schedule(moved, LLAMA3).lost > at_best


@pytest.mark.parametrize("mtbf", [20.0, 1e3, 1e6, 1e15, 1e17, 1e30, 1e299])
def test_the_exact_count_keeps_its_digits_however_seldom_something_fails(mtbf):
    # The same formula in 700 digits, of which e^x − 1 − x cancels up to 600.
    with decimal.localcontext(prec=700):
        tau, cost, again, late, mean = map(decimal.Decimal, (10, 1, 2, 3, mtbf))
        failures = ((tau + cost) / mean).exp() - 1
        spent = {"saving": cost, "lost work": mean * failures - (tau + cost) + failures * late,
                 "restart": failures * mean * ((again / mean).exp() - 1)}
        whole = tau + sum(spent.values())
        truth = {name: float(seconds / whole) for name, seconds in spent.items()}
    asked = {"interval": 10, "write_seconds": 1, "restart": 2, "lag": 3, "method": "exact"}
    found = recovery.goodput(mtbf_seconds=mtbf, **asked)
    assert found.losses == pytest.approx(truth, rel=1e-13, abs=0)
    assert found.fraction == pytest.approx(float(tau / whole), rel=1e-13)
    swept = recovery.goodput(mtbf_seconds=np.array([mtbf, 2 * mtbf]), **asked)
    assert {name: shares[0] for name, shares in swept.losses.items()} == pytest.approx(truth, rel=1e-13, abs=0)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: recovery.mtbf({}), "components is {}; it must map at least one name"),
    (lambda: recovery.mtbf({"GPU": (0, 1)}), "count of GPU is 0; it must be a whole number, 1 or more"),
    (lambda: recovery.mtbf({"GPU": (1, 0)}), "mtbf of GPU is 0; it must be a number above 0"),
    (lambda: recovery.interval(49, 100, "guess"), "method is 'guess'; it must be one of young, daly"),
    (lambda: recovery.interval(0, 100), "write_seconds is 0; it must be a number above 0"),
    (lambda: recovery.goodput(interval=0, write_seconds=1, mtbf_seconds=1), "interval is 0; it must be"),
    (lambda: recovery.goodput(interval=1, write_seconds=-1, mtbf_seconds=1), "write_seconds is -1; it must be"),
    (lambda: recovery.goodput(interval=800, write_seconds=0, mtbf_seconds=1, method="exact"),
     "must be a number of at most 300"),
    (lambda: recovery.restart(1, source="h100-l2-nothing"), "h100-l2-nothing"),
    (lambda: recovery.schedule(LEVELS[:1], 100), r"shares are \[0.9\]; they must add up to 1"),
    (lambda: recovery.schedule([LEVELS[0]._replace(share=2)], 100), "share of NVMe is 2; it must be"),
    (lambda: recovery.restart(1, source="20 GB/s"), "source is '20 GB/s'; it must be bytes a second as a number, or"),
    (lambda: recovery.restart(1, source="h100-node-dram"), "source is 'h100-node-dram'; the ledger has no read rate"),
    (lambda: recovery.mtbf({"GPU": 5}), r"components has 5 for GPU; it must be \(count, seconds\)"),
    (lambda: recovery.mtbf([0] * 100_000), r"components is \[0, 0, .*\.\.\..*0\]; it must map"),
    (lambda: recovery.best_schedule([LEVELS[0]._replace(share="x")], 100), "share of NVMe is 'x'; it must be"),
    (lambda: recovery.best_schedule(5, 100), "levels is 5; it must be a list of Levels"),
    (lambda: recovery.schedule([7], 100), "levels has 7; it must be a Level"),
    (lambda: recovery.schedule([LEVELS[0], LEVELS[0]], 100), "each level's own"),
    (lambda: recovery.observed_mtbf(0, 1), "failures is 0; it must be a whole number, 1 or more"),
])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
