"""A measured ladder as a file: what is written is read again, and what is no ladder is refused in one sentence."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier import own_ladder
from memtier.own_ladder import RUNGS, WHATS, Measured, NotMeasured, OwnLadder

positive = st.floats(min_value=1e-9, max_value=1e15, allow_nan=False)
whole = st.integers(min_value=1, max_value=2**50)
figures = st.builds(Measured, st.sampled_from(RUNGS), st.sampled_from(WHATS), bandwidth=positive,
                    latency=st.none() | positive, size=st.none() | whole, request=st.none() | whole,
                    in_flight=st.integers(1, 64), note=st.text(max_size=40))
ladders = st.builds(OwnLadder, date=st.dates().map(str), measured=st.lists(figures, max_size=4).map(tuple),
                    not_measured=st.lists(st.builds(NotMeasured, st.sampled_from(RUNGS), st.sampled_from(WHATS),
                                                    st.text(max_size=40)), max_size=2).map(tuple),
                    platform=st.dictionaries(st.text(max_size=9), st.none() | whole | st.text(max_size=9), max_size=3))

DISK = Measured("NVMe", "small read", bandwidth=68e6, latency=60e-6, request=4096, note="O_DIRECT")
FASTER = Measured("NVMe", "small read", bandwidth=900e6, latency=73e-6, request=4096, in_flight=16)
LADDER = OwnLadder("2026-11-29", (Measured("CPU DRAM", "copy", bandwidth=20e9), DISK, FASTER),
                   (NotMeasured("HBM", "copy", "torch is not installed"),), {"system": "Linux", "cores": 2})


@settings(deadline=None, max_examples=50)
@given(ladders)
def test_reading_gives_back_what_was_written(ladder):
    assert own_ladder.read(ladder.to_dict()) == ladder
    assert own_ladder.read(json.dumps(ladder.to_dict())) == ladder


def test_file_round_trip(tmp_path):
    path = LADDER.save(tmp_path / "my-ladder.json")
    assert own_ladder.read(path) == own_ladder.read(str(path)) == LADDER


def test_best_is_the_highest_bandwidth_among_those_that_fit():
    assert LADDER.best("NVMe") == FASTER
    assert LADDER.best("NVMe", "small read", in_flight=1) == DISK
    assert LADDER.best("NVMe", "sequential read") is None
    assert LADDER.best("HBM") is None
    with pytest.raises(ValueError, match=r"rung is 'tape'; it must be one of HBM, PCIe"):
        LADDER.best("tape")


def test_table_and_summary_say_what_was_and_was_not_measured():
    assert "60 µs" in str(LADDER)
    assert "20 GB/s" in str(LADDER)
    assert "not measured: HBM, copy: torch is not installed" in str(LADDER)
    assert LADDER.summary() == ("CPU DRAM, copy: measured\nNVMe, small read: measured\n"
                                "HBM, copy: not measured (torch is not installed)")


@pytest.mark.parametrize(("change", "message"), [
    ({"memtier": "something else"}, "not a measured ladder"),
    ({"version": 2}, "version is 2; it must be 1"),
    ({"date": None}, "date is None"),
    ({"platform": "a laptop"}, "platform is 'a laptop'"),
    ({"measured": {}}, r"measured is \{\}; it must be a list"),
    ({"measured": [{"rung": "tape", "what": "copy", "bandwidth": 1.0}]}, r"measured\[0\]: rung is 'tape'"),
    ({"measured": [{"rung": "HBM", "what": "copy", "bandwidth": -1.0}]}, r"measured\[0\]: bandwidth is -1.0"),
    ({"measured": [{"rung": "HBM", "what": "copy", "bandwidth": float("nan")}]}, "bandwidth is nan"),
    ({"measured": [{"rung": "HBM", "what": "copy"}]}, "bandwidth is None and latency is None"),
    ({"measured": [{"rung": "HBM", "what": "copy", "bandwidth": 1.0, "in_flight": 0}]}, "in_flight is 0"),
    ({"measured": [{"rung": "HBM", "what": "copy", "bandwidth": 1.0, "note": "x" * 301}]}, "at most 300 characters"),
    ({"measured": [{"rung": "HBM", "what": "copy", "bandwidth": 10**400}]}, r"bandwidth is .*not beyond 1e\+300"),
    ({"measured": [{"rung": "HBM", "what": "copy", "bandwidth": 1.0, "speed": 3}]},
     r"measured\[0\] has 'speed'; it must have only rung, what, bandwidth, latency, size, request, in_flight, note$"),
    ({"measured": [DISK.__dict__, {"rung": "HBM", "bandwidth": 1.0}]}, r"measured\[1\] has no 'what'; it must"),
    ({"measured": [7]}, r"measured\[0\] is 7; it must be an object"),
    ({"measured": [DISK.__dict__] * 1001}, "measured has 1,001 entries; it must have at most 1,000"),
    ({"not_measured": [{"rung": "HBM", "what": "copy", "why": None}]}, r"not_measured\[0\]: why is None"),
])
def test_what_is_no_ladder_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        own_ladder.read(LADDER.to_dict() | change)


@pytest.mark.parametrize("source", ["{not json", "[]", "[" * 100_000, 7, "{}", "", "a shopping list", "x" * 5000, "\0",
                                    Path("/none")])
def test_sources_that_hold_no_ladder_are_refused(source):
    with pytest.raises(ValueError, match="source is"):
        own_ladder.read(source)


@pytest.mark.parametrize("change", [{"version": "v" * 10**5}, {"platform": "p" * 10**5}, {"measured": "m" * 10**5},
                                    {"date": "d" * 10**5}, {"measured": ["m" * 10**5]},
                                    {"measured": [{"m" * 10**5: 1}]}])
def test_no_message_is_as_long_as_the_file(change):
    with pytest.raises(ValueError, match="; it must") as error:
        own_ladder.read(LADDER.to_dict() | change)
    assert len(str(error.value)) < 250


def test_a_file_is_named_and_not_its_text(tmp_path):
    path = tmp_path / "empty.json"
    path.touch()
    with pytest.raises(ValueError, match=r"source is '.*empty.json'; it must be JSON: "):
        own_ladder.read(path)
    with pytest.raises(ValueError, match="source is '/dev/zero'; it must be JSON, or a text file, in a regular file"):
        own_ladder.read("/dev/zero")


def test_a_file_from_windows_is_read(tmp_path):
    text = json.dumps(LADDER.to_dict())
    path = tmp_path / "my-ladder.json"
    path.write_text(text, encoding="utf-8-sig")
    assert own_ladder.read(path) == own_ladder.read("\ufeff" + text) == LADDER


def test_a_picture_is_refused_as_no_text(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(ValueError, match="it must be JSON, or a text file that can be read: it is not text"):
        own_ladder.read(path)
