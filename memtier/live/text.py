"""A few marks of Markdown to HTML: paragraphs, lists with "- ", **strong** and `code`. Everything else is escaped."""

import re
from html import escape


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
