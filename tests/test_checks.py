import math
import os

import numpy as np
import pytest

from memtier import checks


@pytest.mark.parametrize(("check", "bad", "allowed"), [
    (checks.positive, [0, -1, math.nan, math.inf, -math.inf, "3", None, True, np.True_, [1], 2j], "a number above 0"),
    (checks.not_negative, [-1, -0.1, math.nan, "x", None, False], "a number, 0 or more"),
    (checks.fraction, [-0.1, 1.1, math.nan, "0.5", None], "a number from 0 to 1"),
    (checks.whole, [0, -3, 2.0, 2.5, "2", None, True, np.True_, math.nan, np.ones(2)], "a whole number, 1 or more"),
    (checks.flag, ["no", 1, 0, None], "True or False"),
    (lambda name, value: checks.items(name, value, "lengths"), ["12", 5, {1: 2}, None], "a list of lengths"),
])
def test_the_message_names_argument_value_and_what_is_allowed(check, bad, allowed):
    for value in bad:
        with pytest.raises(ValueError, match="gpus is") as error:
            check("gpus", value)
        assert str(error.value) == f"gpus is {value!r}; it must be {allowed}"


def test_good_values_pass_through():
    assert checks.positive("x", 2.5) == 2.5
    assert checks.not_negative("x", 0) == 0
    assert checks.fraction("x", 1) == 1
    assert checks.whole("x", 10**30) == 10**30
    assert checks.whole("x", np.int64(8)) == 8
    assert checks.one_of("x", "b", ["a", "b"]) == "b"
    assert checks.one_of("x", np.int64(3), (0, 3)) == 3
    assert checks.flag("x", False) is False
    assert checks.items("x", (each for each in (1, 2)), "numbers") == (1, 2)


def test_whole_has_bounds():
    assert checks.whole("rank", 0, least=0, most=3) == 0
    with pytest.raises(ValueError, match="rank is 4; it must be a whole number from 0 to 3"):
        checks.whole("rank", 4, least=0, most=3)


def test_one_of_lists_what_is_allowed():
    with pytest.raises(ValueError, match="stage is 4; it must be one of 0, 1, 2, 3"):
        checks.one_of("stage", 4, (0, 1, 2, 3))
    for no_stage in (True, 3.0, np.float64(3), np.True_, [3]):
        with pytest.raises(ValueError, match="stage is "):
            checks.one_of("stage", no_stage, (0, 1, 2, 3))


@pytest.mark.parametrize("value", [10**400, 1e301, np.array([2.0, 1e301])])
def test_a_number_too_large_to_reckon_with_is_refused(value):
    for check in (checks.positive, checks.not_negative):
        with pytest.raises(ValueError, match=r"gpus is .*; it must be a number.*, and not beyond 1e\+300"):
            check("gpus", value)


def test_a_long_value_is_shown_by_its_ends():
    for value in ("x" * 50_000, -(10**5000), -(10**400), [0] * 50_000):
        for check in (checks.positive, checks.whole, lambda name, value: checks.one_of(name, value, "ab")):
            with pytest.raises(ValueError, match="gpus is ") as error:
                check("gpus", value)
            assert len(str(error.value)) < 160
    assert checks.brief("x" * 78) == repr("x" * 78)
    assert checks.brief("a" * 50_000 + "z") == "'" + "a" * 39 + "..." + "a" * 35 + "z'"
    assert checks.brief(10**5000) == "a value too long to show"


def test_arrays_are_checked_by_their_extremes():
    good = np.array([1.0, 8.0, 64.0])
    assert checks.positive("gpus", good) is good
    with pytest.raises(ValueError, match="gpus is"):
        checks.positive("gpus", np.array([8.0, 0.0]))
    with pytest.raises(ValueError, match="overlap is"):
        checks.fraction("overlap", np.array([0.5, 1.5]))


@pytest.mark.parametrize(("text", "message"), [
    ("{", "config is '{'; it must be JSON: Expecting "),
    ("[1]", r"config is '\[1\]'; it must be a JSON object, in braces"),
    ("[" * 100_000, r"config is '\[+\.\.\.\[+'; it must be JSON that is not nested so deeply$"),
    ('{"a": NaN, "b": [-Infinity, NaN]}', "config is .*; it must be JSON without NaN, -Infinity$"),
    ('{"a": ' + "1" * 5000 + "}", r"config is .*1{9}\}'; it must be JSON without a number of thousands of digits$"),
])
def test_json_text_holds_an_object_or_is_refused_in_one_sentence(text, message):
    assert checks.json_object("config", '{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match=message):
        checks.json_object("config", text)
    with pytest.raises(ValueError, match="config is 'here.json'; it must be"):
        checks.json_object("config", text, shown="here.json")


def test_the_mark_that_windows_puts_before_a_text_is_no_part_of_it(tmp_path):
    assert checks.json_object("config", '\ufeff{"a": 1}') == {"a": 1}
    path = tmp_path / "config.json"
    path.write_text('{"a": 1}', encoding="utf-8-sig")
    assert checks.text_file("config", path, "a config.json") == '{"a": 1}'


def test_only_a_regular_file_of_text_of_at_most_10_MB_is_read(tmp_path):
    def refused(path):
        with pytest.raises(ValueError, match="config is ") as error:
            checks.text_file("config", path, "a config.json")
        return str(error.value).partition("; it must be a config.json")[2]

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # nobody writes into it: to open it would wait for ever
    assert refused(pipe) == refused("/dev/zero") == refused(tmp_path) == ", in a regular file"
    long = tmp_path / "long.json"
    long.write_bytes(b" " * 10**7)
    assert len(checks.text_file("config", long, "a config.json")) == 10**7
    long.write_bytes(b" " * (10**7 + 1))
    assert refused(long) == ", of at most 10 MB"
    long.write_bytes(b"\x89PNG\xff")
    assert refused(long) == " that can be read: it is not text in UTF-8"
    assert refused(tmp_path / "none") == " that can be read: No such file or directory"
    assert refused("a\0b") == " that can be read: no file has such a name"


def test_a_whole_number_too_large_for_a_float_is_refused():
    assert checks.whole("gpus", 10**300) == 10**300
    for value in (10**301, 10**400, 10**5000):
        with pytest.raises(ValueError, match=r"^gpus is .*; it must be a whole number, 1 or more, and not beyond 1e"):
            checks.whole("gpus", value)


def test_arrays_are_refused_where_one_is_needed():
    assert checks.single("limit", 3) == 3
    assert checks.single("limit", np.float64(3)) == checks.single("limit", np.array(3)) == 3
    for value in (np.array([1.5]), np.array([1, 2]), np.array([])):
        with pytest.raises(ValueError, match="^limit is array.*; it must be one, not an array"):
            checks.single("limit", value)
        with pytest.raises(ValueError, match="^limit is array"):
            checks.one_of("limit", value, (1, 2))


def test_an_empty_array_is_no_number():
    for check in (checks.positive, checks.not_negative, checks.fraction):
        with pytest.raises(ValueError, match=r"^share is array\(\[\].*; it must be a number"):
            check("share", np.array([]))
