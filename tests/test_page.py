"""The built book in a real browser: it asks no other host, has no faults a tool can find, fits a phone, and prints."""

import pytest
from conftest import ROOT
from pages import DESK, HOME, PHONE, built_pages

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
PRINTED = "book/04-optimizer-state.html"  # code, formulas, tables, boxes, figures, explorers

every_page = pytest.mark.parametrize("name", built_pages())


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


# What a finger touches is large enough for it, and its letters for a phone not to zoom in.
TOO_SMALL = """() => [...document.querySelectorAll("[data-live] :is(select, .mt-box, .mt-option, .mt-tick)")].filter(
    (each) => each.getClientRects().length && (each.getBoundingClientRect().height < 24
        || (each.matches("select, .mt-box") && parseFloat(getComputedStyle(each).fontSize) < 16))
).map((each) => each.outerHTML.slice(0, 200))"""


@every_page
def test_page_on_a_phone_in_the_dark(open_page, address, name):
    page = open_page(f"{address}/{name}", viewport=PHONE, color_scheme="dark", has_touch=True).page
    assert page.locator("html[data-theme=dark] h1:visible").count() == 1
    assert width_needed(page) <= PHONE["width"]
    page.evaluate("document.querySelectorAll('article details').forEach((each) => { each.open = true; })")
    assert width_needed(page) <= PHONE["width"]
    assert page.evaluate(TOO_SMALL) == []
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
