"""The browser that pages are tested and timed in: Chromium, without a window, from this machine."""

import shutil

# Without a window's own interface a browser opens pages in half the time, so that one comes first.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING = f"no browser: none of {', '.join(NAMES)} is installed"


def find() -> str | None:
    """The path of the first one that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)
