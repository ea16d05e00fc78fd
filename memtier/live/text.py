"""What is said: numbers and plurals in sentences, and a few marks of Markdown to HTML.

The marks are paragraphs, lists with "- ", **strong** and `code`; everything else is escaped.
"""

import math
import re
from html import escape

from memtier import units


def number(value: float, digits: int = 3) -> str:
    """A ratio for people: rounded to `digits` digits, never in exponent form; from a million on in words."""
    if value >= 10**6:
        return units.format_count(value, digits)
    value = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float, digits: int = 3) -> str:
    """A share with the course's space: percent(0.25) is "25 %"."""
    return f"{number(100 * share, digits)} %"


def several(count: int | str, one: str) -> str:
    """A count, or the text of one, with its noun: "1 GPU", "2,048 GPUs"."""
    text = count if isinstance(count, str) else f"{count:,}"
    return f"{text} {one}" if text == "1" else f"{text} {one}s"


def beyond(tokens: int, most: int) -> str:
    """A sentence where a sequence is longer than what its model names as its longest."""
    return f"This is beyond the {most:,} tokens this model was made for." if tokens > most else ""


def inline(text: str) -> str:
    """Escaped text with **strong** and `code`."""
    text = escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


def paragraphs(text: str) -> str:
    """Blank lines part paragraphs; a paragraph whose lines all begin with "- " is a list."""
    out = ""
    for block in re.split(r"\n\s*\n", text.strip()):
        rows = [line.strip() for line in block.splitlines()]
        if rows and all(row.startswith("- ") for row in rows):
            out += "<ul>" + "".join(f"<li>{inline(row[2:])}</li>" for row in rows) + "</ul>"
        elif rows:
            out += f"<p>{inline(' '.join(rows))}</p>"
    return out


def plain(text: str) -> str:
    """The same text without its marks, to be read aloud."""
    return re.sub(r"\*\*|`", "", text)
