"""What tests share: the built site, a server for it, and a browser that reaches nothing else."""

import os
import sys
import threading
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import hypothesis
import pytest

# How long an example takes says more of the machine's other work than of the code.
hypothesis.settings.register_profile("course", deadline=None)
hypothesis.settings.load_profile("course")

ROOT = Path(__file__).resolve().parents[1]
# Scripts, not a package: tests import them by name.
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "sphinx")]

SITE = ROOT / "_build" / "html"
BROWSER_REQUIRED = "REQUIRE_BROWSER"  # set where a missing browser is a failure, not a reason to skip
CLASSROOM = "classroom.test"  # a host name that is not localhost: plain http there is no secure context

# Headless Chromium in a container, silent about itself, that resolves no name but the classroom's.
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP {CLASSROOM} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


# A file goes to one worker as a whole: begun last, the longest would keep one busy while the other has nothing left.
LONGEST = ("test_page.py", "test_page_live.py", "test_lab_checkpoints.py")


def pytest_collection_modifyitems(items):
    """The longest files first, all others as they were collected."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def missing(what: str):
    """Skip and say what is missing; fail where the browser tests have to run."""
    if os.environ.get(BROWSER_REQUIRED):
        pytest.fail(f"{what}, and {BROWSER_REQUIRED} is set")
    pytest.skip(what)


@pytest.fixture(scope="module")
def quiet_torch():
    """One thread, and no words from transformers: what is measured does not depend on either."""
    import torch
    import transformers

    threads, level = torch.get_num_threads(), transformers.logging.get_verbosity()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    transformers.logging.set_verbosity(level)
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built book."""
    if not (SITE / "index.html").is_file():
        missing("the book is not built: run make book")
    return SITE


@pytest.fixture(scope="session")
def port(site):
    """The port on which the project's own server serves the built book."""
    import serve

    server = serve.open_server(site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def address(port) -> str:
    """Where the built book is served, as a reader on this machine sees it."""
    return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium from the machine."""
    import browsers
    from playwright.sync_api import sync_playwright

    program = browsers.find()
    if program is None:
        missing(browsers.MISSING)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@dataclass
class Visit:
    """A browser page, and what it complained about and asked for since it was opened."""

    page: object
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> set[str]:
        """The hosts asked for anything; data: and blob: addresses have none."""
        return {host for host in (urlsplit(each).hostname for each in self.requests) if host}


@pytest.fixture
def open_page(browser):
    """open_page(url, **context options) → Visit; every page opened is closed after the test."""
    contexts = []

    def visit(url: str, **options) -> Visit:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(20_000)
        opened = Visit(context.new_page())
        context.on("request", lambda request: opened.requests.append(request.url))
        context.on("requestfailed", lambda request: opened.complaints.append(f"failed: {request.url}"))
        context.on("console", lambda said: said.type in ("error", "warning") and opened.complaints.append(said.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.goto(url, wait_until="load")
        return opened

    yield visit
    for context in contexts:
        context.close()
