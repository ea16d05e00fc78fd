"""The pages of the built book, for the tests that open them in a browser."""

from conftest import SITE

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
HOME = "book/00-where-ai-data-lives.html"
LIVE = ' data-live="'  # stands before the name of each explorer and question in a page


def built_pages(holding: str = "") -> list[str]:
    """The pages of the built book whose source holds a text; index.html only leads to the first of them."""
    found = [path for path in sorted(SITE.rglob("*.html")) if path.parent.name != "_static"]
    names = [path.relative_to(SITE).as_posix() for path in found if holding in path.read_text(encoding="utf-8")]
    return [name for name in names if name != "index.html"]
