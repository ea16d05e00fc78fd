"""How long a reader waits for an explorer in the page, and what a page weighs.

    python benchmarks/latency.py [--browsers N] [--changes N]

Opens chapter 4 of the built book (make book) in a browser that has seen nothing yet, N times. First touch: from the
moment a slider is moved, which is when Python begins to load, until the frame that shows Python's answer. Later
changes: the same slider, one step after the other, each until its frame. Bytes are those sent, without headers, packed
as tools/serve.py packs them. The browser and the server share this machine, so no network is in the times. The results
go to benchmarks/latency.json.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import browsers  # noqa: E402 (scripts beside this folder, not a package)
import serve  # noqa: E402

RESULTS = Path(__file__).with_name("latency.json")
SITE = ROOT / "_build" / "html"
PAGE = "book/04-optimizer-state.html"
SLIDER = '[data-live="optimizer_state.per_gpu"] [data-control="gpus"] input[type="range"]'

# Moves the slider one stop, up and then down again, and tells the milliseconds until the frame that shows the answer.
MOVE = """
slider => new Promise((resolve, reject) => {
    const view = slider.closest("[data-live]").querySelector("[data-slot=view]");
    const began = performance.now();
    setTimeout(() => reject(new Error("no answer in two minutes")), 120_000);
    new MutationObserver((_, observer) => {
        observer.disconnect();
        requestAnimationFrame(() => resolve(performance.now() - began));
    }).observe(view, { childList: true });
    slider.focus();
    window.up = slider.value === slider.max ? false : slider.value === slider.min ? true : window.up ?? true;
    slider[window.up ? "stepUp" : "stepDown"]();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
})
"""


def visit(page: Page, address: str, changes: int) -> dict:
    """Milliseconds of the first touch and of each later change; what the page weighs, and what the touch loaded."""
    answers = []
    page.on("response", lambda answer: answers.append(answer.request))
    page.goto(f"{address}/{PAGE}", wait_until="networkidle")
    read = weight(answers)
    slider = page.locator(SLIDER)
    slider.scroll_into_view_if_needed()
    answers.clear()
    first = slider.evaluate(MOVE)
    live = weight(answers)
    return {"first": first, "later": [slider.evaluate(MOVE) for _ in range(changes)], "page": read, "live": live}


def weight(requests: list) -> dict[str, int]:
    """How many answers came, and their bytes as sent."""
    return {"requests": len(requests), "bytes": sum(each.sizes()["responseBodySize"] for each in requests)}


def spread(values: list[float], digits: int) -> dict[str, float]:
    found = {"lowest": min(values), "median": statistics.median(values)}
    if len(values) >= 100:
        found["99 % within"] = statistics.quantiles(values, n=100, method="inclusive")[-1]
    found["highest"] = max(values)
    return {name: round(value, digits) for name, value in found.items()}


def measure(program: str, address: str, browsers: int, changes: int) -> dict:
    """Each visit in a browser of its own: an empty cache, and nothing compiled yet."""
    visits = []
    with sync_playwright() as playwright:
        for number in range(browsers):
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
            version = browser.version
            visits.append(visit(browser.new_page(viewport={"width": 1280, "height": 900}), address,
                                -(-changes // browsers)))
            browser.close()
            print(f"browser {number + 1}: {visits[-1]['first'] / 1000:.2f} s, then "
                  f"{statistics.median(visits[-1]['later']):.0f} ms", flush=True)
    later = [each for found in visits for each in found["later"]]
    return {"browser": f"{Path(program).name} {version}", "page": {"name": PAGE, **visits[-1]["page"]},
            "live parts": visits[-1]["live"],
            "first touch": {"browsers": browsers, "seconds": spread([each["first"] / 1000 for each in visits], 2)},
            "later changes": {"changes": len(later), "milliseconds": spread(later, 1)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--browsers", type=int, default=5)
    parser.add_argument("--changes", type=int, default=200, help="in all browsers together")
    given = parser.parse_args()
    program = browsers.find()
    if program is None:
        parser.error(browsers.MISSING)
    if not (SITE / PAGE).is_file():
        parser.error("the book is not built: run make book")
    server = serve.open_server(SITE)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = measure(program, f"http://127.0.0.1:{server.server_address[1]}", given.browsers, given.changes)
    server.shutdown()
    machine = f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores"
    result = {"what": "a reader's wait for an explorer in the page; bytes as sent",
              "date": datetime.date.today().isoformat(), "machine": machine} | found
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: found[name] for name in ("page", "live parts", "first touch", "later changes")}, indent=1))


if __name__ == "__main__":
    main()
