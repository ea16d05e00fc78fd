import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import units


@pytest.mark.parametrize(("text", "nbytes"), [
    ("80 GB", 80 * 10**9), ("80gb", 80 * 10**9), ("512 GiB", 512 * 2**30), ("1_024", 1024), ("1,024 B", 1024),
    ("1.5e9", 1_500_000_000), ("0.98 TB", 980_000_000_000), ("1 KiB", 1024), ("2 PB", 2 * 10**15), ("3 bytes", 3),
    (".5 GB", 500_000_000), ("1_0 kB", 10_000),
])
def test_parse_bytes(text, nbytes):
    assert units.parse_bytes(text) == nbytes
    assert isinstance(units.parse_bytes(text), int)


@pytest.mark.parametrize(("text", "rate"), [
    ("3.35 TB/s", 3.35e12), ("900 GB/s", 900e9), ("100 Gb/s", 12.5e9), ("100 Gbps", 12.5e9), ("100 gbps", 12.5e9),
    ("1 GiB/s", 2**30), ("8 Mib/s", 2**20), ("64 kB/s", 64_000), ("64 KB/s", 64_000),
])
def test_parse_rate(text, rate):
    assert units.parse_rate(text) == rate


@pytest.mark.parametrize(("text", "seconds"), [
    ("60 us", 60e-6), ("60 µs", 60e-6), ("42 ms", 0.042), ("26 min", 1560), ("3 h", 10800), ("54 days", 54 * 86400),
    ("1 \u00b5s", 1e-6), ("1 \u03bcs", 1e-6),  # the micro sign, and the Greek letter into which Unicode's NFKC turns it
])
def test_parse_time(text, seconds):
    assert units.parse_time(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(("parse", "text"), [
    (units.parse_bytes, "80 Gb"), (units.parse_bytes, "80 apples"), (units.parse_bytes, ""),
    (units.parse_bytes, "-1 GB"), (units.parse_bytes, "1e999"), (units.parse_bytes, "nan"),
    (units.parse_bytes, None), (units.parse_bytes, "80 b"), (units.parse_rate, "64 kb/s"), (units.parse_share, "half"),
    (units.parse_share, "3 GB"), (units.parse_count, "1__0"), (units.parse_count, "1_"), (units.parse_bytes, "1_.5 GB"),
    (units.parse_number, "."), (units.parse_number, "_1"), (units.parse_rate, "64 GB"), (units.parse_rate, "100"),
    (units.parse_rate, "64 gb/s"), (units.parse_rate, "64 GB/h"), (units.parse_time, "3"),
    (units.parse_time, "3 fortnights"), (units.parse_count, "-5"), (units.parse_count, "7.5"),
    (units.parse_count, "5 gross"), (units.parse_count, "1e-3"), (units.parse_number, "16 B"),
    (units.parse_number, "x"),
])
def test_what_cannot_be_read_is_named(parse, text):
    what = parse.__name__.removeprefix("parse_").replace("bytes", "size")
    with pytest.raises(ValueError, match=rf"{re.escape(repr(text))} is not a {what}: .*(must|write|only)"):
        parse(text)


def test_a_refused_rate_is_told_the_units_there_are():
    with pytest.raises(ValueError, match="in one of B, KB, MB, GB, TB, PB, EB, KiB, MiB, GiB, TiB, PiB, EiB, or bits"):
        units.parse_rate("64 kb/s")


def test_a_message_names_the_argument_where_there_is_one():
    with pytest.raises(ValueError, match="model is 'many'; write a whole number, such as 64"):
        units.parse_count("many", "model")


@pytest.mark.parametrize(("text", "share"), [("25 %", 0.25), ("25%", 0.25), ("0.25", 0.25), (".25", 0.25), ("25", 0.25),
                                             ("1", 1.0), ("0", 0.0), ("0.5 %", 0.005)])
def test_parse_share(text, share):
    assert units.parse_share(text) == share


@pytest.mark.parametrize(("text", "count"), [
    ("64", 64), ("70,553,706,496", 70_553_706_496), ("70e9", 70 * 10**9), ("70B", 70 * 10**9), ("8.03b", 8_030_000_000),
    ("70 billion", 70 * 10**9), ("15 trillion", 15 * 10**12), ("1.5k", 1500), ("2 t", 2 * 10**12), ("0", 0),
    ("1_024", 1024), ("1e30", 10**30),
])
def test_parse_count(text, count):
    assert units.parse_count(text) == count
    assert isinstance(units.parse_count(text), int)


@given(st.integers(0, 10**15))
def test_counts_round_trip(count):
    assert units.parse_count(units.format_count(count)) == pytest.approx(count, rel=5.1e-3)


def test_parse_number():
    assert [units.parse_number(text) for text in ("400e12", "0.1", ".1", "1,024.5", "0")] == [400 * 10**12, 0.1, 0.1,
                                                                                              1024.5, 0]


@pytest.mark.parametrize(("text", "nbytes"), [("1,120 GB", 1120 * 10**9), ("1,120,000 B", 1_120_000),
                                              ("1,920.5 GB", 1920.5 * 10**9)])
def test_commas_separate_groups_of_three_digits(text, nbytes):
    assert units.parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["1,92 GB", "0,500 GB", "1,1200 GB", "1.920,5 GB", "1120,000 GB", "1,,000 GB",
                                  "1, GB"])
def test_other_commas_are_refused(text):
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a size: a comma only separates groups of three")):
        units.parse_bytes(text)


@pytest.mark.parametrize("parse", [units.parse_bytes, units.parse_rate, units.parse_time, units.parse_count,
                                   units.parse_number])
@pytest.mark.parametrize("number", ["1e31", "1e400", "1" * 400, "9" * 5000, "1e-31", "1e-400", "0." + "0" * 5000 + "1",
                                    "1." + "0" * 5000, "1e999999999", "1e-999999999"])
def test_a_number_beyond_any_honest_use_is_refused(parse, number):
    unit = {units.parse_bytes: "B", units.parse_rate: "B/s", units.parse_time: "s"}.get(parse, "")
    with pytest.raises(ValueError, match=r"must be 0, or from 1e-30 to 1e\+30, in at most 100 digits") as error:
        parse(f"{number} {unit}")
    assert len(str(error.value)) < 170


@pytest.mark.parametrize(("nbytes", "decimal", "binary"), [
    (0, "0 B", "0 B"), (1, "1 B", "1 B"), (999, "999 B", "999 B"), (1.12e12, "1.12 TB", "1.02 TiB"),
    (80e9, "80 GB", "74.5 GiB"), (999.9e9, "1 TB", "931 GiB"), (2**30, "1.07 GB", "1 GiB"),
    (1023.9 * 2**30, "1.1 TB", "1 TiB"), (70_553_706_496 * 16, "1.13 TB", "1.03 TiB"),
])
def test_format_bytes(nbytes, decimal, binary):
    assert units.format_bytes(nbytes) == decimal
    assert units.format_bytes(nbytes, binary=True) == binary


@given(st.integers(0, 10**20), st.booleans())
def test_bytes_round_trip_to_the_digits_shown(nbytes, binary):
    shown = units.format_bytes(nbytes, binary=binary, digits=6)
    assert units.parse_bytes(shown) == pytest.approx(nbytes, rel=1e-5)


@given(st.floats(1, 1e18))
def test_rates_round_trip(rate):
    assert units.parse_rate(units.format_rate(rate, digits=6)) == pytest.approx(rate, rel=1e-5)


@given(st.floats(1e-9, 1e8))
def test_times_round_trip(seconds):
    assert units.parse_time(units.format_time(seconds, digits=6).replace(",", "")) == pytest.approx(seconds, rel=1e-5)


def test_times_and_counts():
    assert units.format_time(0.0418) == "41.8 ms"
    assert units.format_time(0.0009999) == "1 ms"
    assert units.format_time(1591) == "26.5 min"
    assert units.format_time(0) == "0 s"
    assert units.format_count(70_553_706_496) == "70.6 billion"
    assert units.format_count(512) == "512"
    assert units.format_count(4096) == "4,096"


def test_both_shows_the_difference_between_gb_and_gib():
    assert units.both(80e9) == "80 GB (74.5 GiB)"
    assert units.both(12) == "12 B"
    assert math.isclose(units.GiB / units.GB, 1.0737, rel_tol=1e-4)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "80", None, True])
def test_formatting_refuses_what_is_not_a_size(value):
    with pytest.raises(ValueError, match="nbytes is "):
        units.format_bytes(value)


@pytest.mark.parametrize("write", [units.format_bytes, units.format_rate, units.format_time, units.format_count,
                                   units.both])
def test_no_more_digits_are_written_than_are_read(write):
    for digits in (0, 101, 10**9, 3.0):
        with pytest.raises(ValueError, match="digits is .*; it must be a whole number from 1 to 100"):
            write(5, digits=digits)
    assert write(5, digits=100).startswith("5")
