"""Checks of arguments. Each raises ValueError naming the argument, its value and what is allowed.

`positive`, `not_negative`, `fraction` and `at_most` also take numpy arrays, so that smooth formulas can be swept.
"""

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

LONGEST = 80  # characters of a value that a message shows
MOST_BYTES = 10**7  # of a file that is read; a config.json has some thousand
LARGEST = 1e300  # of any number: products and sums of a few such still fit a float, or overflow openly


def brief(value, write: Callable[[object], str] = repr) -> str:
    """A value as a message shows it: what `write` makes of it, of a long text only the beginning and the end."""
    try:
        text = write(value)
    except (ValueError, RecursionError):  # a whole number of more than 4,300 digits, lists in lists in lists
        return "a value too long to show"
    return text if len(text) <= LONGEST else text[: LONGEST // 2] + "..." + text[3 - LONGEST // 2 :]


def _boolean(value) -> bool:
    """Whether value is True or False, Python's or numpy's, or an array of them."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"


def _extremes(name, value, allowed):
    """Smallest and largest element of a number or an array of numbers."""
    if _boolean(value) or isinstance(value, (str, bytes)) or value is None:
        raise ValueError(f"{name} is {brief(value)}; it must be {allowed}")
    try:
        low, high = (value.min(), value.max()) if hasattr(value, "min") else (value, value)
        within, finite = low >= -LARGEST and high <= LARGEST, -math.inf < low and high < math.inf
    except (TypeError, ValueError):  # no number, or an array without one
        within = finite = False
    if not within:
        raise ValueError(
            f"{name} is {brief(value)}; it must be {allowed}" + (f", and not beyond {LARGEST:g}" if finite else ""))
    return low, high


def positive(name: str, value):
    """Return value if it is a finite number above 0."""
    low, _ = _extremes(name, value, "a number above 0")
    if low <= 0:
        raise ValueError(f"{name} is {brief(value)}; it must be a number above 0")
    return value


def not_negative(name: str, value):
    """Return value if it is a finite number, 0 or more."""
    low, _ = _extremes(name, value, "a number, 0 or more")
    if low < 0:
        raise ValueError(f"{name} is {brief(value)}; it must be a number, 0 or more")
    return value


def fraction(name: str, value):
    """Return value if it is a number from 0 to 1."""
    low, high = _extremes(name, value, "a number from 0 to 1")
    if low < 0 or high > 1:
        raise ValueError(f"{name} is {brief(value)}; it must be a number from 0 to 1")
    return value


def at_most(name: str, value, most: float):
    """Return value if it is a finite number of at most `most`."""
    _, high = _extremes(name, value, f"a number of at most {most:g}")
    if high > most:
        raise ValueError(f"{name} is {brief(value)}; it must be a number of at most {most:g}")
    return value


def single(name: str, value):
    """Return value if it is no array of several: what is rounded, summed or told apart cannot be swept."""
    if getattr(value, "shape", ()) != ():
        raise ValueError(f"{name} is {brief(value)}; it must be one, not an array")
    return value


def whole(name: str, value, least: int = 1, most: int | None = None) -> int:
    """Return value if it is an int (not a bool, not a float) of at least `least` and at most `most`, or LARGEST."""
    allowed = f"a whole number, {least} or more" if most is None else f"a whole number from {least} to {most}"
    try:
        number = None if _boolean(value) else value.__index__()
    except (AttributeError, TypeError):  # no whole number, or several
        number = None
    if number is None or number < least or (most is not None and number > most):
        raise ValueError(f"{name} is {brief(value)}; it must be {allowed}")
    if number > LARGEST:
        raise ValueError(f"{name} is {brief(value)}; it must be {allowed}, and not beyond {LARGEST:g}")
    return number


def one_of(name: str, value, allowed: Iterable):
    """Return value if it is one of the allowed ones; 3.0 is not 3, nor True 1."""
    allowed = tuple(allowed)
    single(name, value)
    exact = hasattr(value, "__index__")
    if _boolean(value) or not any(exact == hasattr(each, "__index__") and value == each for each in allowed):
        raise ValueError(f"{name} is {brief(value)}; it must be one of {', '.join(str(each) for each in allowed)}")
    return value


def flag(name: str, value) -> bool:
    """Return value if it is True or False: the text "no" would count as True."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {brief(value)}; it must be True or False")
    return value


def items(name: str, value, what: str) -> tuple:
    """Return the items of an iterable that is no text and no mapping. what: what it must hold, as messages say it."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise ValueError(f"{name} is {brief(value)}; it must be a list of {what}")
    return tuple(value)


def text_file(name: str, path: str | os.PathLike, what: str) -> str:
    """Return the text of a file, in UTF-8. what: what it must be, as messages say it.

    Raises ValueError for what is no regular file (a pipe may wait for ever), is no text, or has more than MOST_BYTES.
    """
    given = f"{name} is {brief(os.fspath(path))}; it must be {what}"
    found = None
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with Path(path).open("rb") as file:
                found = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path that no system takes
        reason = getattr(error, "strerror", None) or "no file has such a name"
        raise ValueError(f"{given} that can be read: {reason}") from None
    if found is None:
        raise ValueError(f"{given}, in a regular file")
    if len(found) > MOST_BYTES:
        raise ValueError(f"{given}, of at most {MOST_BYTES // 10**6} MB")
    try:
        return found.decode("utf-8-sig")  # Windows puts a mark before the text
    except UnicodeDecodeError:
        raise ValueError(f"{given} that can be read: it is not text in UTF-8") from None


def json_object(name: str, text: str, shown: str | None = None) -> dict:
    """Return the object that a JSON text holds. shown: what to name in the text's place, such as its file."""
    text = text.removeprefix("\ufeff")  # the mark that Windows puts before a text
    given, constants = f"{name} is {brief(text if shown is None else shown)}", []
    try:
        value = json.loads(text, parse_constant=constants.append)
    except json.JSONDecodeError as error:
        raise ValueError(f"{given}; it must be JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{given}; it must be JSON that is not nested so deeply") from None
    except ValueError:  # a whole number with more digits than Python reads
        raise ValueError(f"{given}; it must be JSON without a number of thousands of digits") from None
    if constants:
        raise ValueError(f"{given}; it must be JSON without {', '.join(dict.fromkeys(constants))}")
    if not isinstance(value, dict):
        raise ValueError(f"{given}; it must be a JSON object, in braces")
    return value
