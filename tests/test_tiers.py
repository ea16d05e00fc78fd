import doctest
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import evidence, models, tiers
from memtier.tiers import RUNGS

FILE = Path(tiers.__file__).parent / "data" / "tiers.toml"
RAW = tomllib.loads(FILE.read_text(encoding="utf-8"))
TIERS = [tiers.get(name) for name in tiers.names()]
LINKS = [tiers.link(name) for name in tiers.links()]
ACCELERATORS = [tiers.accelerator(name) for name in tiers.accelerators()]

sizes = st.floats(min_value=0, max_value=1e18)
requests = st.floats(min_value=1, max_value=1e9)
rates = st.floats(min_value=1e3, max_value=1e14)
latencies = st.floats(min_value=0, max_value=1)
counts = st.integers(min_value=1, max_value=10**6)


# ------------------------------------------------------------------------------------------------------ the data file

def leaves(value, path=()):
    """Every value of the file that is no table, with the path to it."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each, path)
    else:
        yield path, value


def test_no_number_is_typed_and_every_reference_exists():
    known = {*evidence.ids(), *RAW["tier"], *RAW["link"], *RUNGS}
    for path, value in leaves(RAW):
        if path[-1] == "title":
            assert isinstance(value, str)
        elif path[-1] == "shared":
            assert value is True
        else:
            assert value in known, path


def test_every_rung_has_tiers_and_the_ladder_one_of_each():
    for rung in RUNGS:
        assert tiers.names(rung), rung
        assert {tiers.get(name).rung for name in tiers.names(rung)} == {rung}
    assert tuple(tier.rung for tier in tiers.ladder()) == RUNGS
    assert [RUNGS.index(tier.rung) for tier in TIERS] == sorted(RUNGS.index(tier.rung) for tier in TIERS)


@pytest.mark.parametrize(("rung", "least"), [("HBM", 10), ("CPU DRAM", 4), ("CXL", 2), ("NVMe", 5), ("L2", 3)])
def test_several_generations(rung, least):
    assert len(tiers.names(rung)) >= least


def test_names_others_build_on():
    for name in ("h100-sram", "h100-l2", "h100-hbm", "sandisk-hbf", "grace-lpddr5x", "epyc-genoa-ddr5", "cxl-pcie5",
                 "micron-9550", "tectonic", "polaris-lustre", "s3-connection", "s3"):
        assert tiers.get(name).name == name
    for name in ("pcie4-x16", "pcie5-x16", "pcie6-x16", "nvlink-c2c", "nvlink4"):
        assert tiers.link(name).name == name
    for name in ("h100-sxm", "h200-sxm", "b200", "gb200", "b300", "mi300x", "a100-sxm"):
        assert tiers.accelerator(name).name == name


def test_figures_are_the_facts():
    for each in (*TIERS, *LINKS, *ACCELERATORS):
        for what, fact in each.facts.items():
            if what in tiers.FIGURES and what != "price":
                assert getattr(each, what) == fact.quantity
    micron = tiers.get("micron-9550")
    assert (micron.read, micron.write, micron.latency, micron.write_latency) == (14e9, 10e9, 60e-6, 15e-6)
    assert (micron.capacity, micron.endurance) == (3.2e12, 17.52e15)
    assert tiers.get("sandisk-hbf").write is None


def test_what_is_announced_never_passes_for_shipping():
    for each in (*TIERS, *LINKS, *ACCELERATORS):
        announced = any(fact.status == "announced" for what, fact in each.facts.items() if what in tiers.FIGURES)
        if isinstance(each, tiers.Accelerator):
            announced = announced or each.memory.status == "announced"
        assert each.status == ("announced" if announced else "shipping")
    assert {"rubin", "mi455x"} == {each.name for each in ACCELERATORS if each.status == "announced"}
    assert {"pcie6-x16", "pcie7-x16", "nvlink6", "nvlink-c2c-vera"} == {
        each.name for each in LINKS if each.status == "announced"}
    for table, things in ((tiers.table(tiers.names()), TIERS), (tiers.links_table(), LINKS),
                          (tiers.accelerators_table(), ACCELERATORS)):
        shown = [cell for row in table.rows for cell in row if isinstance(cell, str) and cell.endswith("(announced)")]
        assert shown == [f"{each.title} (announced)" for each in things if each.status == "announced"]


def test_the_c2c_link_says_what_is_wrong_with_900():
    link = tiers.link("nvlink-c2c")
    assert link.rate == 450e9
    assert link.facts["both directions"].quantity == 2 * link.rate
    assert link.facts["rate"].kind == "vendor claim"
    assert link.rate_measured == 359e9
    assert link.facts["host to device while both are busy"].quantity < link.rate_measured / 2


def test_what_was_measured_stays_below_the_specification():
    for each in (*TIERS, *LINKS, *ACCELERATORS):
        for what, measured in (("read", "read_measured"), ("rate", "rate_measured"), ("flops", "flops_measured")):
            if getattr(each, measured, None) is not None:
                assert getattr(each, measured) < getattr(each, what)
                assert each.facts[measured].kind == "measured"


# ------------------------------------------------------------------------------------------------------------ look-ups

@pytest.mark.parametrize(("call", "message"), [
    (lambda: tiers.get("h100"), "tier is 'h100'.*h100-hbm"),
    (lambda: tiers.get(7), "tier is 7"),
    (lambda: tiers.link("pcie5"), "link is 'pcie5'.*pcie5-x16"),
    (lambda: tiers.accelerator("h100"), "accelerator is 'h100'.*h100-sxm"),
    (lambda: tiers.names("tape"), "rung is 'tape'"),
    (lambda: tiers.table(["h100"]), "tier is 'h100'"),
    (lambda: tiers.table("s3"), "which is 's3'; it must be a list of names or Tiers"),
    (lambda: tiers.links_table(5), "which is 5; it must be a list of names or Links"),
    (lambda: tiers.accelerators_table(5), "which is 5; it must be a list of names or Accelerators"),
    (lambda: tiers.get("20 GB/s", "to"), "to is '20 GB/s'; it must be the name of a known tier: "),
    (lambda: tiers.get("20 GB/s", "to", or_rate=True), "to is .*; it must be bytes a second as a number, or the name"),
    (lambda: tiers.link("h100", "over"), "over is 'h100'; it must be the name of a known link: "),
    (lambda: tiers.accelerator("h100", "gpu"), "gpu is 'h100'; it must be the name of a known accelerator: .*h100-sxm"),
    (lambda: tiers.find("h100-sx"), "source is 'h100-sx'; it must be the name of a known tier, link or accelerator: "
                                    "the nearest are h100-sxm"),
    (lambda: tiers.get("tpu7x-hbm").read_time(1, argument="source"), "source is 'tpu7x-hbm'; the ledger has no read"),
    (lambda: tiers.get("sandisk-hbf").write_time(1, argument="to"), "to is 'sandisk-hbf'; the ledger has no write"),
    (lambda: tiers.get("tpu7x-hbm").read_time(1), "tier is 'tpu7x-hbm'; the ledger has no read rate"),
    (lambda: tiers.get("sandisk-hbf").write_time(1), "tier is 'sandisk-hbf'; the ledger has no write rate"),
])
def test_unknown_names(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_long_name_is_not_told_in_full():
    for look_up in (tiers.get, tiers.link, tiers.accelerator, tiers.find):
        for name in ("x" * 3000, ["x"] * 3000, 10**5000):
            with pytest.raises(ValueError, match="it must be the name of a known") as error:
                look_up(name)
            assert "x" * 81 not in str(error.value)
            assert len(str(error.value)) < 1500


def test_find_takes_all_three_sorts():
    assert tiers.find("s3") is tiers.get("s3") is tiers.find(tiers.get("s3"))
    assert tiers.find("pcie5-x16") is tiers.link("pcie5-x16") is tiers.find(tiers.link("pcie5-x16"))
    assert tiers.find("h100-sxm") is tiers.accelerator("h100-sxm") is tiers.find(tiers.accelerator("h100-sxm"))


def test_no_name_belongs_to_two_sorts():  # find could not tell which is meant
    names = [*tiers.names(), *tiers.links(), *tiers.accelerators()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: tiers.Tier("a", "A", "tape"), "rung is 'tape'; it must be one of SRAM"),
    (lambda: tiers.Tier("a", "A", "NVMe", capacity=-3), "capacity is -3; it must be a number above 0"),
    (lambda: tiers.Tier("a", "A", "NVMe", read="fast"), "read is 'fast'"),
    (lambda: tiers.Tier("a", "A", "NVMe", write=math.nan), "write is nan"),
    (lambda: tiers.Tier("a", "A", "NVMe", latency=-1), "latency is -1; it must be a number, 0 or more"),
    (lambda: tiers.Tier("a", "A", "NVMe", shared="no"), "shared is 'no'; it must be True or False"),
    (lambda: tiers.Link("a", "A", rate=0), "rate is 0; it must be a number above 0"),
    (lambda: tiers.Link("a", "A", rate=1, latency=-1), "latency is -1"),
    (lambda: tiers.Link("a", "A", rate=1, rate_measured=0), "rate_measured is 0"),
    (lambda: tiers.Accelerator("a", "A", "s3", 1), "memory is 's3'; it must be a Tier"),
    (lambda: tiers.Accelerator("a", "A", tiers.get("s3"), 0), "flops is 0"),
    (lambda: tiers.Accelerator("a", "A", tiers.get("s3"), 1, rent_low=-1), "rent_low is -1"),
])
def test_what_is_made_by_hand_is_checked_as_well(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_tier_or_link_is_given_back():
    for look_up, thing in ((tiers.get, TIERS[0]), (tiers.link, LINKS[0]), (tiers.accelerator, ACCELERATORS[0])):
        assert look_up(thing) is thing


# ------------------------------------------------------------------------------------------------------------ the time

@pytest.mark.parametrize(("rate", "seconds"), [
    (lambda: tiers.get("h100-hbm").read, 0.0418), (lambda: tiers.link("pcie5-x16").rate, 2.22),
    (lambda: tiers.get("micron-9550").read, 10.0), (lambda: tiers.get("s3-connection").read, 1600),
])
def test_reading_seventy_billion_weights_once(rate, seconds):
    assert tiers.transfer_time(140e9, rate()) == pytest.approx(seconds, rel=2e-3)


def test_the_ladder_by_name():
    assert tiers.get("h100-hbm").read_time(140e9) == pytest.approx(140e9 / 3.35e12 + 288.1e-9)
    assert tiers.get("s3-connection").read_time(140e9) / 60 == pytest.approx(26.7, rel=2e-3)
    assert tiers.get("micron-9550").write_time(10e9) == pytest.approx(1 + 15e-6)


def test_a_thousand_connections_beat_the_pcie_link():
    connection, pcie = tiers.get("s3-connection"), tiers.link("pcie5-x16")
    assert connection.read_time(140e9, streams=1000) < tiers.transfer_time(140e9, pcie.rate)
    needed = tiers.streams_needed(pcie.rate, each=connection.read)
    assert needed == 720
    assert connection.read * needed >= pcie.rate > connection.read * (needed - 1)


def test_small_reads_from_nvme():
    micron = tiers.get("micron-9550")
    small = tiers.small_read_bandwidth(4096, latency=micron.latency, bandwidth=micron.read)
    assert small == pytest.approx(67.9e6, rel=1e-3)
    assert micron.read / small == pytest.approx(206.1, rel=1e-3)
    assert tiers.in_flight_needed(4096, latency=micron.latency, bandwidth=micron.read) == 206
    assert tiers.in_flight_needed(4096, latency=micron.latency, bandwidth=micron.read, share=1) == 207
    assert round(micron.latency * micron.read / 4096) == 205  # Little's law without the transfer itself


@given(sizes, sizes, rates, latencies, counts)
def test_time_grows_with_bytes_and_falls_with_streams(a, b, rate, latency, streams):
    alone = tiers.transfer_time(a, rate, latency)
    assert alone >= latency
    assert tiers.transfer_time(a + b, rate, latency) >= alone
    together = tiers.transfer_time(a, rate, latency, streams)
    assert together <= alone
    assert together - latency == pytest.approx((alone - latency) / streams, rel=1e-6, abs=1e-9)


@given(requests, latencies, rates, counts)
def test_small_reads_never_beat_the_device(request_bytes, latency, rate, in_flight):
    reached = tiers.small_read_bandwidth(request_bytes, latency, rate, in_flight)
    assert 0 < reached <= rate
    assert tiers.small_read_bandwidth(request_bytes, latency, rate, in_flight + 1) >= reached
    assert tiers.small_read_bandwidth(2 * request_bytes, latency, rate, in_flight) >= reached * (1 - 1e-12)


@given(requests, st.floats(min_value=1e-9, max_value=1), rates, st.sampled_from([0.5, 0.9, 0.999, 1.0]))
def test_in_flight_needed_is_enough_and_not_one_too_many(request_bytes, latency, rate, share):
    needed = tiers.in_flight_needed(request_bytes, latency, rate, share)
    reached = tiers.small_read_bandwidth(request_bytes, latency, rate, needed)
    assert reached >= share * rate * (1 - 1e-9)
    if needed > 1:
        assert tiers.small_read_bandwidth(request_bytes, latency, rate, needed - 1) <= share * rate * (1 + 1e-9)


# ------------------------------------------------------------------------------------------------------------ the work

def test_flops():
    assert tiers.flops(70e9, tokens=1) == 140e9
    assert tiers.flops(70e9, tokens=1, what="training") == 420e9
    full, kept = (tiers.flops(8e9, 10, what) for what in ("training with full recomputation", "training"))
    assert full / kept == pytest.approx(4 / 3)
    model = models.get("llama-3.1-8b")
    assert tiers.flops(model, tokens=3) == 6 * model.parameters


def test_the_ridge_of_an_h100():
    h100 = tiers.accelerator("h100-sxm")
    ridge = tiers.ridge_point(h100.flops, h100.memory.read)
    assert ridge == pytest.approx(295.2, rel=1e-3)
    assert tiers.attainable_flops(ridge, h100.flops, h100.memory.read) == pytest.approx(h100.flops)
    assert tiers.attainable_flops(1, h100.flops, h100.memory.read) == h100.memory.read
    assert h100.flops_measured == 794.5e12


@given(st.floats(0, 1e6), rates, rates)
def test_the_roofline_is_flat_above_the_ridge(intensity, flops, bandwidth):
    reached = tiers.attainable_flops(intensity, flops, bandwidth)
    assert reached <= flops
    if intensity >= tiers.ridge_point(flops, bandwidth) * (1 + 1e-9):
        assert reached == flops
    assert tiers.intensity(intensity * 8.0, 8.0) == pytest.approx(intensity)


# ----------------------------------------------------------------------------------------------------------- the money

def test_rented_and_bought_prices():
    assert tiers.price(1e12, "s3", months=12) == pytest.approx(12 * 23.0)
    assert tiers.price(1e12, "micron-9550", months=36) == pytest.approx(365)
    assert tiers.price(1e12, "micron-9550", months=1) == pytest.approx(365 / 36)
    assert tiers.price(64e9, evidence.get("price.rdimm-64gb.memory-2025-q4"), months=60, lifetime=60) == pytest.approx(
        450, rel=1e-3)


def test_bytes_are_cheaper_further_down():
    hbm, pfs, s3, archive = (tiers.price(1e12, name) for name in ("h100-hbm", "fsx-lustre", "s3", "gcs-archive"))
    assert hbm > pfs > s3 > archive
    dram, flash = (tiers.price(1e12, name) for name in ("epyc-genoa-ddr5", "micron-9550"))
    assert dram > flash


@given(sizes, st.floats(0, 1000), st.floats(1, 1000))
def test_price_is_proportional(nbytes, months, lifetime):
    for name in ("s3", "micron-9550"):
        assert tiers.price(nbytes, name, 2 * months, lifetime) == pytest.approx(
            2 * tiers.price(nbytes, name, months, lifetime))


# ------------------------------------------------------------------------------------------------------ bad arguments

@pytest.mark.parametrize(("call", "message"), [
    (lambda: tiers.transfer_time(-1, 1), "nbytes is -1"),
    (lambda: tiers.transfer_time(1, 0), "bandwidth is 0"),
    (lambda: tiers.transfer_time(1, 1, latency=-1), "latency is -1"),
    (lambda: tiers.transfer_time(1, 1, streams=0), "streams is 0"),
    (lambda: tiers.transfer_time(1, math.nan), "bandwidth is nan"),
    (lambda: tiers.transfer_time("140 GB", 1), "nbytes is '140 GB'"),
    (lambda: tiers.small_read_bandwidth(0, 1, 1), "request is 0"),
    (lambda: tiers.small_read_bandwidth(1, -1, 1), "latency is -1"),
    (lambda: tiers.small_read_bandwidth(1, 1, 0), "bandwidth is 0"),
    (lambda: tiers.small_read_bandwidth(1, 1, 1, in_flight=0), "in_flight is 0"),
    (lambda: tiers.in_flight_needed(0, 1, 1), "request is 0"),
    (lambda: tiers.in_flight_needed(1, 1, 1, share=0), "share is 0"),
    (lambda: tiers.in_flight_needed(1, 1, 1, share=1.1), "share is 1.1"),
    (lambda: tiers.streams_needed(1, 0), "each is 0"),
    (lambda: tiers.flops(0, 1), "parameters is 0"),
    (lambda: tiers.flops(1, -1), "tokens is -1"),
    (lambda: tiers.flops(1, 1, what="backward"), "what is 'backward'"),
    (lambda: tiers.intensity(1, 0), "nbytes is 0"),
    (lambda: tiers.ridge_point(1, 0), "bandwidth is 0"),
    (lambda: tiers.attainable_flops(-1, 1, 1), "intensity is -1"),
    (lambda: tiers.price(-1, "s3"), "nbytes is -1"),
    (lambda: tiers.price(1, "s3", months=-1), "months is -1"),
    (lambda: tiers.price(1, "micron-9550", lifetime=0), "lifetime is 0"),
    (lambda: tiers.price(1, "tectonic"), "tier is 'tectonic'; the ledger has no price"),
    (lambda: tiers.price(1, evidence.get("price.rent-h100.low")), "tier is 'price.rent-h100.low'; it must be a price"),
])
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


SMOOTH = [
    (lambda x: tiers.transfer_time(x, 14e9, 60e-6, 4), [0.0, 1.0, 1e12]),
    (lambda x: tiers.transfer_time(1e9, 14e9, 60e-6, x), [1, 2, 64]),
    (lambda x: tiers.small_read_bandwidth(x, 60e-6, 14e9, 3), [1.0, 4096.0, 1e9]),
    (lambda x: tiers.small_read_bandwidth(4096, 60e-6, 14e9, x), [1, 206, 10_000]),
    (lambda x: tiers.intensity(x, 2e9), [0.0, 1e9, 1e12]),
    (lambda x: tiers.ridge_point(989e12, x), [1e9, 3.35e12, 8e12]),
    (lambda x: tiers.attainable_flops(x, 989e12, 3.35e12), [0.0, 295.0, 1000.0]),
    (lambda x: tiers.price(x, "s3", 12), [0.0, 1e9, 1e15]),
    (lambda x: tiers.flops(70e9, x, "training"), [0, 1, 4096]),
]


@pytest.mark.parametrize(("formula", "values"), SMOOTH)
def test_smooth_formulas_take_arrays(formula, values):
    swept = formula(np.array(values))
    assert isinstance(swept, np.ndarray)
    np.testing.assert_allclose(swept, [formula(value) for value in values], rtol=1e-15)


# -------------------------------------------------------------------------------------------------- tables for readers

def test_the_ladder_table():
    table = tiers.table(nbytes=140e9)
    assert table.header == ("rung", "tier", "capacity", "read", "write", "latency", "to read 140 GB once", "kind",
                            "date")
    assert [row[0] for row in table.rows] == list(RUNGS)
    text = str(table)
    for words in ("41.8 ms", "26.7 min", "3.35 TB/s", "SanDisk HBF, one stack (announced)", "vendor claim",
                  "illustrative", "FlashAttention-3"):
        assert words in text
    cited = {number for row in table.rows for cell in row if not isinstance(cell, str) for number in cell.notes}
    assert cited == set(range(1, len(table.notes) + 1))


def test_a_brief_table_leaves_to_the_footnotes_what_they_say():
    whole, brief = tiers.table(["h100-hbm", "rubin-hbm"]), tiers.table(["h100-hbm", "rubin-hbm"], brief=True)
    assert brief.header == ("tier", "capacity", "read", "write", "latency")
    assert [row[:5] for row in brief.rows] == [row[1:6] for row in whole.rows]
    assert brief.notes == whole.notes
    assert all(kind in str(brief.notes) for kind in ("specification, 2026-08-22", "vendor claim, announced"))
    assert tiers.accelerators_table(["h100-sxm"], brief=True).header == tiers.accelerators_table().header[:-2]


def test_the_other_tables_have_a_row_each():
    assert len(tiers.links_table().rows) == len(LINKS)
    assert len(tiers.accelerators_table().rows) == len(ACCELERATORS)
    assert len(tiers.table(["micron-9550", "micron-9650"]).rows) == 2
    prices = tiers.price_table(1e12, months=1)
    assert len(prices.rows) == len({tier.price.id for tier in TIERS if tier.price})
    assert "$23.00" in str(prices)


# -------------------------------------------------------------------------------------------------- what is refused

GOOD = "ladder = [" + ", ".join(f'"t{n}"' for n in range(len(RUNGS))) + "]\n" + "".join(
    f'[tier.t{n}]\ntitle = "T"\nrung = "{rung}"\nread = "hbm.h200.bandwidth"\n' for n, rung in enumerate(RUNGS)) + """
[link.wire]
title = "W"
rate = "link.pcie5-x16.rate"
[accelerator.chip]
title = "C"
memory = "t2"
flops = "compute.h200-sxm.bf16"
host_link = "wire"
"""


def test_the_small_example_is_read():
    data = tiers.read(GOOD)
    assert data["accelerator"]["chip"].memory is data["tier"]["t2"]
    assert len(data["ladder"]) == len(RUNGS)


@pytest.mark.parametrize(("old", "new", "message"), [
    ('rung = "HBM"', 'rung = "tape"', "tier 't2': rung is 'tape'"),
    ('rung = "HBM"\n', "", "tier 't2': rung is missing"),
    ('rung = "HBM"', 'rung = "HBM"\ncapacity = "hbm.h200.bandwidth"',
     "tier 't2': capacity is 'hbm.h200.bandwidth', in bytes/s"),
    ('rung = "HBM"', 'rung = "HBM"\ncapacity = "hbm.h201.capacity"', "tier 't2': capacity is 'hbm.h201.capac.*nearest"),
    ('rung = "HBM"', 'rung = "HBM"\nspeed = "hbm.h200.bandwidth"', "tier 't2': a field is 'speed'"),
    ('rung = "HBM"', 'rung = "HBM"\nflops = "compute.h200-sxm.bf16"', "tier 't2': a field is 'flops'"),
    ('rung = "HBM"', 'rung = "HBM"\ncapacity = 80e9', "tier 't2': capacity is 80000000000.0"),
    ('title = "W"\n', "", "link 'wire': title is missing"),
    ('title = "W"', 'title = "W"\nprice = "price.hbm3e.memory"', "link 'wire': a field is 'price'"),
    ('rate = "link.pcie5-x16.rate"\n', "", "link 'wire': rate is missing"),
    ('memory = "t2"', 'memory = "t99"', "accelerator 'chip': memory is 't99'"),
    ('host_link = "wire"', 'host_link = "string"', "accelerator 'chip': host_link is 'string'"),
    ('"t0", "t1"', '"t1", "t0"', "ladder: it is"),
    ('"t0", "t1"', '"t0"', "ladder: it is"),
    ('"t0", "t1"', '"t0", "t99"', "ladder: it is 't99'"),
    ("ladder =", "rope =", "ladder: it is"),
    ("[link.wire]", "[wire.wire]", "host_link is 'wire'"),
])
def test_a_bad_file_is_refused_naming_entry_and_field(old, new, message):
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(ValueError, match=message):
        tiers.read(text)


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match="there is 'wires'"):
        tiers.read(GOOD + '[wires.one]\ntitle = "W"\n')


def test_the_examples_in_the_docstrings():
    failed, attempted = doctest.testmod(tiers)
    assert (failed, attempted > 3) == (0, True)


def test_a_first_look_marks_what_was_not_measured_and_dates_a_row_by_its_oldest_figure():
    """HBM: two figures of 2026-08-22, one of 2026-11. DRAM's 100 ns is illustrative, CXL's 350 rests on it."""
    table = tiers.overview()
    rows = {row[0].partition(":")[0]: row[1:] for row in table.rows}
    assert list(rows) == list(RUNGS)
    assert [str(cell) for cell in rows["HBM"]] == ["80 GB", "3.35 TB/s", "288 ns", "2026-08-22"]
    words = {rung: [[table.notes[number - 1].text for number in getattr(cell, "notes", ())] for cell in row]
             for rung, row in rows.items()}
    assert words["CPU DRAM"][2] == ["illustrative: a round figure for teaching"]
    assert words["CXL"][2] == ["computed from other figures", "it rests on an illustrative figure"]
    assert words["HBF"][1] == ["the maker's claim, not yet in a datasheet"]
    assert words["NVMe"][:3] == [[], [], []]
    for tier in tiers.ladder():
        oldest = min(date for what in ("capacity", "read", "latency") if what in tier.facts
                     for date in tier.facts[what].date.split("/"))
        assert rows[tier.rung][-1] == oldest


def test_a_brief_price_table_has_the_cost_second_and_says_the_rest_below():
    whole, brief = tiers.price_table(1e12), tiers.price_table(1e12, brief=True)
    assert brief.header == ("what", "cost", "price", "date")
    assert [row[1] for row in brief.rows] == [row[2] for row in whole.rows]
    assert [row[0] for row in brief.rows] == [f"{row[0]}: {row[1]}" for row in whole.rows]
    for row, note in ((row, brief.notes[row[2].notes[0] - 1]) for row in brief.rows):
        assert f"paid {'each month' if 'month' in row[2].text else 'once, for 36 months'}" in note.before
    with pytest.raises(ValueError, match="brief is 'no'"):
        tiers.price_table(brief="no")
