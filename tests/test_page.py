"""The built book in a real browser: it asks no other host, has no faults a tool can find, fits a phone, and answers."""

import json
import re
from pathlib import Path

import pytest
from conftest import CLASSROOM, ROOT, SITE

from memtier import live

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
HOME = "book/00-where-ai-data-lives.html"
PRINTED = "book/04-optimizer-state.html"  # code, formulas, tables, boxes, figures, explorers


def built_pages(holding: str = "") -> list[str]:
    """The pages of the built book whose source holds a text; index.html only leads to the first of them."""
    found = [path for path in sorted(SITE.rglob("*.html")) if path.parent.name != "_static"]
    names = [path.relative_to(SITE).as_posix() for path in found if holding in path.read_text(encoding="utf-8")]
    return [name for name in names if name != "index.html"]


every_page = pytest.mark.parametrize("name", built_pages())
every_live_page = pytest.mark.parametrize("name", built_pages(' data-live="'))


def faults(page) -> list[str]:
    """What axe finds wrong with the page as it stands.

    Contrast, three quarters of axe's time, is looked at once for each combination of what it depends on.
    """
    page.add_script_tag(path=AXE)
    found = page.evaluate(RUN_AXE)
    return [f"{fault['id']}: {node['html'][:200]}" for fault in found for node in fault["nodes"]]


# An element's colours and letters, with the colours of all it stands in; the first text of each look stands for all.
RUN_AXE = """async () => {
    const CLEAR = "rgba(0, 0, 0, 0)"; // what compounds, layer upon layer, is kept; what only passes on is said once
    const looks = new Map();
    const look = (element) => {
        if (!element) return "";
        if (!looks.has(element)) {
            const css = getComputedStyle(element);
            const own = [css.color, css.backgroundColor, css.backgroundImage, css.opacity, css.fill, css.filter];
            const around = look(element.parentElement);
            const same = css.opacity === "1" && css.backgroundColor === CLEAR && around.endsWith(`;${own}`);
            looks.set(element, same ? around : `${around};${own}`);
        }
        return looks.get(element);
    };
    const first = new Map();
    for (const element of document.body.querySelectorAll("*")) {
        const said = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
        if (!said && !element.matches("input, select, textarea, button")) continue;
        const css = getComputedStyle(element);
        const seen = element.checkVisibility({ checkVisibilityCSS: true }) && element.getClientRects().length;
        const key = `${look(element)};${css.fontSize};${css.fontWeight};${css.textShadow};${element.localName}`;
        if (seen && !first.has(key)) first.set(key, element);
    }
    const runs = [await axe.run({ rules: { "color-contrast": { enabled: false } } })];
    if (first.size) runs.push(await axe.run([...first.values()], { runOnly: ["color-contrast"] }));
    return runs.flatMap((run) => run.violations);
}"""


def width_needed(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth")


def test_the_book_was_built(site):
    assert {HOME, "search.html"} <= set(built_pages())


@every_page
def test_page_on_a_desk_in_light(open_page, address, name):
    visit = open_page(f"{address}/{name}", viewport=DESK, color_scheme="light")
    assert visit.hosts == {"127.0.0.1"}
    assert visit.complaints == []
    assert visit.page.locator("html[data-theme=light] h1:visible").count() == 1
    assert faults(visit.page) == []


@every_page
def test_page_on_a_phone_in_the_dark(open_page, address, name):
    page = open_page(f"{address}/{name}", viewport=PHONE, color_scheme="dark").page
    assert page.locator("html[data-theme=dark] h1:visible").count() == 1
    assert width_needed(page) <= PHONE["width"]
    page.evaluate("document.querySelectorAll('article details').forEach((each) => { each.open = true; })")
    assert width_needed(page) <= PHONE["width"]
    assert faults(page) == []


def test_a_dark_screen_prints_dark_letters_on_white_and_no_controls(open_page, address):
    page = open_page(f"{address}/{PRINTED}", viewport=DESK, color_scheme="dark").page
    figure = page.locator(".mt-figure svg").first
    assert page.locator(".mt-live button:visible").count() > 0
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("html[data-theme=dark]").count() == 1
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert figure.evaluate("(svg) => getComputedStyle(svg).fill") == "rgb(31, 41, 51)"
    assert figure.evaluate("(svg) => getComputedStyle(svg).getPropertyValue('--pst-color-background')") == "#fff"
    assert page.locator(".mt-live :is(button, input, select):visible").count() == 0
    assert faults(page) == []


def test_a_legend_keeps_its_colours_where_all_others_are_forced(open_page, address):
    page = open_page(f"{address}/{PRINTED}", viewport=DESK, forced_colors="active").page
    swatches = page.locator(".mt-legend").first.locator("span")
    colours = swatches.evaluate_all("(all) => all.map((each) => getComputedStyle(each).backgroundColor)")
    assert len(set(colours)) == len(colours) > 1


def test_the_front_door_leads_to_the_first_chapter(open_page, address):
    page = open_page(f"{address}/").page
    page.wait_for_url(f"**/{HOME}")
    assert page.title().startswith("Where AI")


def test_search_finds_what_the_chapters_say(open_page, address):
    visit = open_page(f"{address}/search.html?q=optimizer")
    visit.page.wait_for_selector("#search-results li a[href*='04-optimizer-state']")
    assert visit.complaints == []
    assert visit.hosts == {"127.0.0.1"}


@every_page
def test_without_javascript_the_page_reads_and_shows_its_frames(open_page, address, name):
    page = open_page(f"{address}/{name}", java_script_enabled=False, viewport=PHONE).page
    assert page.locator("h1:visible").count() == 1
    views = page.locator("[data-live] [data-slot=view]")
    assert all(views.nth(number).locator("svg").first.is_visible() for number in range(views.count()))
    assert page.locator("[data-live] :is(input, select, textarea, button):visible").count() == 0  # none could answer
    frames = page.locator("[data-live] .mt-frames > details")
    for number in range(frames.count()):
        frames.nth(number).locator("summary").first.click()
        assert frames.nth(number).locator("[data-fill]").first.is_visible()


# Explorers and questions: what is touched is what memtier is asked, and its answer (or the sentence that says what is
# wrong with what was entered) is what is shown.

RECORD_ASKS = """
    window.asks = [];
    const post = Worker.prototype.postMessage;
    Worker.prototype.postMessage = function (message, ...rest) {
        if (message?.ask) window.asks.push(message.ask);
        return post.call(this, message, ...rest);
    };
"""
TRY = "(part) => { if (part.type === 'text') part.value = '1'; else part.checked = true; }"
TEXTS = """(root, slots) => Object.fromEntries(Object.entries(slots).map(([name, html]) => {
    const expected = document.createElement("div");
    expected.innerHTML = html;
    return [name, [root.querySelector(`[data-slot="${name}"]`).textContent, expected.textContent]];
}))"""


def open_live(open_page, url, **options):
    """A page whose asks to memtier are recorded."""
    visit = open_page("about:blank", **options)
    visit.page.add_init_script(RECORD_ASKS)
    visit.page.goto(url)
    return visit


def settled(page, root) -> None:
    """Wait until Python runs and nothing is being worked out."""
    page.wait_for_function(
        "root => root.querySelector('[data-boot]').dataset.state === 'ready' && !root.hasAttribute('aria-busy')",
        arg=root.element_handle(),
        timeout=60_000,
    )


def assert_shows_memtiers_answer(page, root) -> dict:
    """What stands in the page is what memtier says, in this process, to the page's last ask; that ask."""
    settled(page, root)
    ask = page.evaluate("window.asks.at(-1)")
    reply = json.loads(live.answer(ask))
    assert "error" not in reply
    for control, sentence in reply.get("invalid", {}).items():
        assert root.locator(f'[data-control="{control}"] [data-error]').text_content() == sentence
    for name, (shown, expected) in root.evaluate(TEXTS, reply.get("slots", {})).items():
        assert shown == expected, name
    return json.loads(ask)


def first_visible(root, selector):
    found = root.locator(selector)
    return next((found.nth(n) for n in range(found.count()) if found.nth(n).is_visible()), None)


def drag(page, slider, start=0.3, end=0.7) -> None:
    """Take a slider's thumb from one place to another, as a hand does."""
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    row = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], row)
    page.mouse.down()
    for step in range(1, 6):
        page.mouse.move(box["x"] + (start + (end - start) * step / 5) * box["width"], row)
    page.mouse.up()


@every_live_page
def test_explorers_answer_a_drag_and_a_key_and_questions_a_try(open_page, address, name):
    visit = open_live(open_page, f"{address}/{name}", viewport=DESK)
    page = visit.page
    roots = page.locator("[data-live]")
    for number in range(roots.count()):
        root = roots.nth(number)
        slider = first_visible(root, ".mt-fields:not([data-group] *) input[type=range]")
        if slider:
            drag(page, slider)
            dragged = assert_shows_memtiers_answer(page, root)
            slider.press("ArrowLeft")
            pressed = assert_shows_memtiers_answer(page, root)
            control = slider.evaluate("slider => slider.closest('[data-control]').dataset.control")
            assert dragged["values"][control] != pressed["values"][control]
        else:
            first_visible(root, "input[data-part]").evaluate(TRY)
            first_visible(root, "button[type=submit]").click()
            pressed = assert_shows_memtiers_answer(page, root)
        assert pressed["name"] == root.get_attribute("data-live")
    assert visit.complaints == []
    assert visit.hosts == {"127.0.0.1"}


@every_live_page
def test_every_preset_shows_memtiers_answer(open_page, address, name):
    """Also before Python runs: a preset's frame was drawn when the book was built."""
    visit = open_live(open_page, f"{address}/{name}", viewport=DESK)
    page = visit.page
    roots = page.locator("[data-live]:has([data-shows])")
    for number in range(roots.count()):
        root = roots.nth(number)
        buttons = root.locator("[data-shows]")
        for button in (buttons.nth(n) for n in range(buttons.count())):
            button.click()
            what = button.get_attribute("data-do")
            ask = {"name": root.get_attribute("data-live"), "do": what, "values": {}, "state": {}}
            reply = json.loads(live.answer(json.dumps(ask)))
            shown, expected = root.evaluate(TEXTS, {"say": reply["slots"]["say"]})["say"]
            assert shown == expected, what
    assert visit.complaints == []


TOO_SMALL = """() => [...document.querySelectorAll("[data-live] :is(select, .mt-box, .mt-option, .mt-tick)")].filter(
    (each) => each.getClientRects().length && (each.getBoundingClientRect().height < 24
        || (each.matches("select, .mt-box") && parseFloat(getComputedStyle(each).fontSize) < 16))
).map((each) => each.outerHTML.slice(0, 200))"""


@every_live_page
def test_what_a_finger_touches_is_large_enough_and_does_not_make_a_phone_zoom(open_page, address, name):
    page = open_page(f"{address}/{name}", viewport=PHONE, has_touch=True).page
    page.evaluate("document.querySelectorAll('[data-live] details').forEach((each) => { each.open = true; })")
    assert page.evaluate(TOO_SMALL) == []


def test_in_a_classroom_over_plain_http_explorers_answer(open_page, port):
    """A host name that is not localhost is no secure context: no service worker, no clipboard, no subtle crypto."""
    visit = open_live(open_page, f"http://{CLASSROOM}:{port}/{HOME}", viewport=PHONE, has_touch=True)
    page = visit.page
    assert page.evaluate("window.isSecureContext") is False
    root = page.locator("[data-live]").first
    drag(page, first_visible(root, ".mt-fields:not([data-group] *) input[type=range]"))
    assert_shows_memtiers_answer(page, root)
    assert visit.hosts == {CLASSROOM}
    assert visit.complaints == []


def test_pages_say_how_much_there_is_to_download(open_page, address, site):
    """The figure in the page is what the browser is sent for the first answer, within rounding."""
    visit = open_live(open_page, f"{address}/{HOME}")
    root = visit.page.locator("[data-live]").first
    stated = re.search(r"(\d+) MB", root.locator("[data-boot]").text_content())
    sent = []
    visit.page.context.on("response", lambda answer: "/live/pyodide/" in answer.url and sent.append(answer))
    first_visible(root, "[data-shows]").click()
    settled(visit.page, root)
    names = {Path(answer.url).name for answer in sent}
    folder = site / "live" / "pyodide"
    assert names == {path.name for path in folder.iterdir() if path.suffix != ".gz"}
    nbytes = sum(answer.request.sizes()["responseBodySize"] for answer in sent)
    assert nbytes / 1e6 == pytest.approx(int(stated.group(1)), abs=0.6)
