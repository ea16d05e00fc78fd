"""Sphinx extension of this book: what the built site needs beyond the pages."""

import functools
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import browser_python
from pybtex import plugin
from sphinx.application import Sphinx
from sphinxcontrib import katex

ROOT = Path(__file__).resolve().parents[2]
KATEX = ROOT / "node_modules" / "katex" / "dist"
WORKER = ROOT / "book" / "assets" / "js" / "live-worker.js"
LIVE = ' data-live="'  # the mark of an explorer or a question in a page
SIZE = re.compile(r"(<span data-live-size>)[^<]*")  # where a page says how much Python is to download
MENDED = (  # what Sphinx and its extensions write that a screen reader or a keyboard stumbles over
    # Roles that these elements may not have.
    (re.compile(r' role="doc-biblioentry"|(?<=<div) role="list"(?= class="citation-list">)'), ""),
    # A name that hides what a fold says.
    (re.compile(r'(?<=<summary) aria-label="Toggle hidden content"'), ""),
    # An empty corner of a table is no heading.
    (re.compile(r"<th(?: [^>]*)?>(?:<p></p>)?</th>"), "<td></td>"),
    # A formula wider than a phone scrolls, and by this class the theme lets keys scroll it too.
    (re.compile(r'<div class="math'), '<div class="pst-scrollable-table-container math'),
)


def copy_parts(app: Sphinx) -> None:
    """Put KaTeX's style and fonts, the Python that answers in the page, and the worker that runs it, into the site."""
    if app.builder.format != "html":
        return
    site = Path(app.outdir)
    maths = site / "_static" / "katex"
    old_formats = shutil.ignore_patterns("*.ttf", "*.woff")  # every browser that runs WebAssembly reads woff2
    shutil.copytree(KATEX / "fonts", maths / "fonts", ignore=old_formats, dirs_exist_ok=True)
    shutil.copyfile(KATEX / "katex.min.css", maths / "katex.min.css")
    python = site / "live" / "pyodide"
    browser_python.assemble(ROOT, python, cache=site.parent / "browser-python")
    shutil.copyfile(WORKER, site / "live" / "worker.js")
    app.config.live_size = f"{browser_python.download_size(python) / 1e6:.0f} MB"


def add_live(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Give script and style to the pages that hold something live, and say there how large the download is."""
    if LIVE in context.get("body", ""):
        # Controls that nothing answers are not shown, as where a reader has switched scripts off.
        app.add_js_file("js/live.js", type="module", onerror="document.documentElement.classList.add('mt-no-script')")
        app.add_css_file("css/live.css")
        context["body"] = SIZE.sub(rf"\g<1>{app.config.live_size}", context["body"])


def mend(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Repair what is written into every page the same way, and how search shows formulas."""
    for fault, repair in MENDED:
        context["body"] = fault.sub(repair, context.get("body", ""))
    if pagename == "search":
        app.add_js_file("js/search.js", loading_method="defer")


def start_katex(rundir: Path, timeout: float) -> tuple[subprocess.Popen, socket.socket]:
    """KaTeX's server and a connection to it, as KaTeXServer.start_server_process gives them.

    That one connects once, which fails while Node has made its socket but does not listen yet. And through a network
    socket each formula would wait some 40 ms for an acknowledgement.
    """
    path = rundir / "katex.sock"
    process = subprocess.Popen(katex.KaTeXServer.build_command(socket=path), cwd=rundir, stdout=subprocess.DEVNULL)
    latest = time.monotonic() + timeout
    while (connection := socket.socket(socket.AF_UNIX)).connect_ex(str(path)):
        connection.close()
        if time.monotonic() > latest or process.poll() is not None:
            raise katex.KaTeXServer.timeout_error(timeout)
        time.sleep(katex.ONE_MILLISECOND)
    return process, connection


def steady_katex() -> None:
    """Make the prerendering of maths hold on a busy machine, and a formula with a fault a fault of the build."""
    katex.KaTeXServer.start_server_process = staticmethod(start_katex)
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0  # seconds
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = True


def quick_citations() -> None:
    """Let pybtex search all installed packages for a plugin once, not anew for each citation (20 ms)."""
    plugin.entry_points = functools.cache(plugin.entry_points)


def setup(app: Sphinx) -> dict:
    steady_katex()
    quick_citations()
    app.add_config_value("comments_config", {}, "html")  # Jupyter Book sets it even where sphinx-comments is left out
    app.add_config_value("live_size", "", "")
    app.connect("builder-inited", copy_parts)
    app.connect("html-page-context", add_live, priority=900)
    app.connect("html-page-context", mend)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
