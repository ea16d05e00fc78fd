"""Bytes, rates, times and counts: read them, write them.

GB is 10**9 bytes and GiB is 2**30; they differ by 7.4 %, so every text says which one it means.
"""

import math
import re
from fractions import Fraction

from memtier import checks

KB, MB, GB, TB, PB, EB = (10 ** (3 * n) for n in range(1, 7))
KiB, MiB, GiB, TiB, PiB, EiB = (2 ** (10 * n) for n in range(1, 7))

DECIMAL = {"B": 1, "KB": KB, "MB": MB, "GB": GB, "TB": TB, "PB": PB, "EB": EB}
BINARY = {"B": 1, "KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": TiB, "PiB": PiB, "EiB": EiB}
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}

COUNTS = {"": 1, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SMALLEST, LARGEST, MOST_DIGITS = 1e-30, 1e30, 100  # of a number that is read; no honest one is near these

_NUMBER = re.compile(r"\s*((?:[0-9][0-9,_]*(?:\.[0-9,]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*")
_UNDERSCORES = re.compile(r"[0-9]+(_[0-9]+)*(\.[0-9]+)?")  # one at a time, between digits, as Python has it
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?")  # the only place for a comma
_ALLOWED = ", ".join(DECIMAL | BINARY)
_BYTE_UNITS = {name.lower(): size for name, size in (DECIMAL | BINARY).items()} | {"bytes": 1, "byte": 1}
# Network vendors write Gb/s: with a capital prefix, a lower-case b means bits.
_BIT_UNITS = {name[:-1] + "b": size for name, size in (DECIMAL | BINARY).items()}
# "μs" begins with the Greek letter and "µs" in SECONDS with the micro sign; Unicode's normal form has the former.
_TIME_UNITS = SECONDS | {"\u03bcs": 1e-6, "sec": 1.0, "second": 1.0, "seconds": 1.0, "minute": 60.0, "minutes": 60.0,
                         "m": 60.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0, "day": 86400.0}
_COUNT_WORDS = COUNTS | {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def _not(text, what: str) -> str:
    """How a message about a text begins. what: "a size", say, or the name of an argument, such as "model"."""
    return f"{checks.brief(text)} is not {what}:" if what.startswith("a ") else f"{what} is {checks.brief(text)};"


def _split(text, what, wanted):
    """(the number, exactly; the unit behind it)."""
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{_not(text, what)} write {wanted}")
    front = re.split("[eE]", match[1])[0]
    if "," in front and not _THOUSANDS.fullmatch(front):
        raise ValueError(f"{_not(text, what)} a comma only separates groups of three digits, as in 1,120, and decimals "
                         "follow a point, as in 1.92")
    if "_" in front and not _UNDERSCORES.fullmatch(front):
        raise ValueError(f"{_not(text, what)} an underscore only stands between two digits, as in 1_024")
    digits = match[1].replace(",", "").replace("_", "")
    zero = not front.strip("0._")
    if len(digits) > MOST_DIGITS or not (zero or SMALLEST <= float(digits) <= LARGEST):
        raise ValueError(f"{_not(text, what)} its number must be 0, or from {SMALLEST:g} to {LARGEST:g}, in at most "
                         f"{MOST_DIGITS} digits")
    return Fraction(0 if zero else digits), match[2]


def _scaled(number, size):
    """number × size, as an int where it is whole."""
    value = number * size
    return int(value) if value.denominator == 1 else float(value)


def parse_number(text: str) -> int | float:
    """A number without a unit, 0 or more: "400e12", ".1" or "1,024". Raises ValueError naming the text."""
    number, unit = _split(text, "a number", "digits, such as 16")
    if unit:
        raise ValueError(f"{_not(text, 'a number')} write digits without a unit, such as 16")
    return _scaled(number, 1)


def parse_share(text: str) -> float:
    """A share from "25 %", "0.25" or, since a fraction is at most 1, a bare "25". Raises ValueError naming the text."""
    wanted = "a percentage such as '12.5 %', or 0.125"
    number, sign = _split(text, "a share", wanted)
    if sign not in ("", "%"):
        raise ValueError(f"{_not(text, 'a share')} write {wanted}")
    return float(number / 100 if sign or number > 1 else number)


def parse_count(text: str, what: str = "a count") -> int:
    """A whole number, 0 or more, as people write it: "64", "70,553,706,496", "70e9", "70B" or "70 billion".

    what: what a message calls it. Raises ValueError naming the text.
    """
    wanted = "a whole number, such as 64, 70e9, 70B or 70 billion"
    number, word = _split(text, what, wanted)
    scale = _COUNT_WORDS.get(word.lower())
    if scale is None or (number * scale).denominator != 1:
        raise ValueError(f"{_not(text, what)} write {wanted}")
    return int(number * scale)


def parse_bytes(text: str) -> int | float:
    """Bytes from a text such as "80 GB", "512 GiB", "1_024" or "1.5e9". Without a unit the number is bytes.

    "80 gb" is read as 80 GB; "80 Gb" means bits everywhere in this field and is refused.
    Raises ValueError naming the text.
    """
    number, unit = _split(text, "a size", "a number and a unit, such as '80 GB'")
    if unit == "":
        return _scaled(number, 1)
    if unit in _BIT_UNITS:
        raise ValueError(f"{_not(text, 'a size')} {unit} means bits, write bytes: one of {_ALLOWED}")
    if unit.lower() not in _BYTE_UNITS:
        raise ValueError(f"{_not(text, 'a size')} its unit must be one of {_ALLOWED}")
    return _scaled(number, _BYTE_UNITS[unit.lower()])


def parse_rate(text: str) -> int | float:
    """Bytes a second from "3.35 TB/s", "900 GB/s" or, in bits, "100 Gb/s" and "100 Gbps".

    "64 gb/s" could be either and is refused. Raises ValueError naming the text.
    """
    number, unit = _split(text, "a rate", "a number and a unit, such as '64 GB/s'")
    amount = unit[:-2] if unit.endswith("/s") else unit[:-2].capitalize() if unit.endswith("bps") else ""
    if amount in _BIT_UNITS:
        return _scaled(number, Fraction(_BIT_UNITS[amount], 8))
    if amount == "kB" or amount in DECIMAL | BINARY:
        return _scaled(number, KB if amount == "kB" else (DECIMAL | BINARY)[amount])
    raise ValueError(f"{_not(text, 'a rate')} write bytes a second such as '64 GB/s', in one of {_ALLOWED}, or bits "
                     "such as '100 Gb/s'")


def parse_time(text: str) -> float:
    """Seconds from "60 us", "42 ms", "3.5 s", "26 min", "3 h" or "54 days". Raises ValueError naming the text."""
    number, unit = _split(text, "a time", "a number and a unit, such as '60 us'")
    if unit not in _TIME_UNITS:
        raise ValueError(f"{_not(text, 'a time')} its unit must be one of {', '.join(SECONDS)}")
    return float(number * _TIME_UNITS[unit])


def _digits(value: float, digits: int) -> str:
    """value with `digits` significant digits, never in exponent form, thousands separated."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_unit(value: float, units: dict, digits: int) -> str:
    """value in the largest unit that leaves at least 1; rounding up to the next unit moves on to it."""
    fitting = [name for name, size in units.items() if value >= size] or [next(iter(units))]
    names = list(units)
    name = fitting[-1]
    rounded = _digits(value / units[name], digits)
    after = names.index(name) + 1
    if after < len(names) and float(rounded.replace(",", "")) * units[name] >= units[names[after]]:
        name = names[after]
        rounded = _digits(value / units[name], digits)
    return f"{rounded} {name}"


def format_bytes(nbytes: float, binary: bool = False, digits: int = 3) -> str:
    """A size for people: format_bytes(1.12e12) is "1.12 TB", with binary=True "1.02 TiB".

    nbytes: bytes, 0 or more. digits: significant digits, 1 to 100. Raises ValueError otherwise.
    """
    checks.not_negative("nbytes", checks.single("nbytes", nbytes))
    checks.whole("digits", digits, most=MOST_DIGITS)
    return _with_unit(nbytes, BINARY if checks.flag("binary", binary) else DECIMAL, digits)


def both(nbytes: float, digits: int = 3) -> str:
    """The size in decimal and binary units side by side: both(80e9) is "80 GB (74.5 GiB)"."""
    if checks.not_negative("nbytes", checks.single("nbytes", nbytes)) < KB:
        return format_bytes(nbytes, digits=digits)
    return f"{format_bytes(nbytes, digits=digits)} ({format_bytes(nbytes, binary=True, digits=digits)})"


def format_rate(rate: float, digits: int = 3) -> str:
    """A rate in decimal bytes a second: format_rate(3.35e12) is "3.35 TB/s". rate: bytes/s, 0 or more."""
    checks.not_negative("rate", checks.single("rate", rate))
    checks.whole("digits", digits, most=MOST_DIGITS)
    return _with_unit(rate, DECIMAL, digits) + "/s"


def format_time(seconds: float, digits: int = 3) -> str:
    """A time in the unit that suits it, from ns to days: format_time(0.0418) is "41.8 ms". seconds: 0 or more."""
    checks.not_negative("seconds", checks.single("seconds", seconds))
    checks.whole("digits", digits, most=MOST_DIGITS)
    units = {name: size for name, size in SECONDS.items() if name != "us"}
    if seconds == 0:
        return "0 s"
    text = _with_unit(seconds, units, digits)
    return "1 day" if text == "1 days" else text


def format_count(count: float, digits: int = 3) -> str:
    """A count in words: format_count(70_553_706_496) is "70.6 billion". count: 0 or more."""
    checks.not_negative("count", checks.single("count", count))
    checks.whole("digits", digits, most=MOST_DIGITS)
    if count < 10_000:
        return _digits(count, max(digits, len(str(int(count)))))
    return _with_unit(count, COUNTS, digits).strip()
