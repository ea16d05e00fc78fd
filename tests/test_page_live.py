"""Explorers and questions in a real browser: they answer what memtier answers, whatever is touched or missing."""

import json
import re
from pathlib import Path

import pytest
from conftest import CLASSROOM
from pages import DESK, HOME, LIVE, PHONE, built_pages

from memtier import live, models, optimizer_state, units

PER_GPU = live.get("optimizer_state.per_gpu")

every_live_page = pytest.mark.parametrize("name", built_pages(LIVE))

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


def press_presets(root) -> None:
    """Press each preset at once, the first while Python still starts: its frame was drawn when the book was built."""
    buttons = root.locator("[data-shows]")
    for button in (buttons.nth(n) for n in range(buttons.count())):
        button.click()
        what = button.get_attribute("data-do")
        ask = {"name": root.get_attribute("data-live"), "do": what, "values": {}, "state": {}}
        reply = json.loads(live.answer(json.dumps(ask)))
        shown, expected = root.evaluate(TEXTS, {"say": reply["slots"]["say"]})["say"]
        assert shown == expected, what


@every_live_page
def test_explorers_answer_presets_a_drag_and_a_key_and_questions_a_try(open_page, address, name):
    visit = open_live(open_page, f"{address}/{name}", viewport=DESK)
    page = visit.page
    roots = page.locator("[data-live]")
    for number in range(roots.count()):
        root = roots.nth(number)
        press_presets(root)
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


# Fast hands, slow starts and broken ones.

IN_FLIGHT = """
    window.inFlight = { now: 0, most: 0, all: 0 };
    const Plain = Worker;
    const post = Plain.prototype.postMessage;
    Plain.prototype.postMessage = function (message) {
        if (message.id) {
            window.inFlight.all += 1;
            window.inFlight.most = Math.max(window.inFlight.most, ++window.inFlight.now);
        }
        return post.call(this, message);
    };
    window.Worker = class extends Plain {
        constructor(...given) {
            super(...given);
            this.addEventListener("message", ({ data }) => { if (data.id) window.inFlight.now -= 1; });
        }
    };
"""


def page_with(name):
    """The first built page that holds the explorer or question of this name."""
    return built_pages(f'{LIVE}{name}"')[0]


def say(explorer, **values):
    return explorer.view(**explorer.defaults | values).say


def opened(open_page, address, explorer):
    """(page, the explorer in it), with calls to Python counted."""
    tab = open_page("about:blank", viewport=DESK).page
    tab.add_init_script(IN_FLIGHT)
    tab.goto(f"{address}/{page_with(explorer.name)}")
    return tab, tab.locator(f'[data-live="{explorer.name}"]').first


def wait_for(tab, root, script):
    tab.wait_for_function(f"root => {script}", arg=root.element_handle(), timeout=60_000)


def wait_for_say(tab, root, sentence):
    wait_for(tab, root, f"root.querySelector('.mt-say').textContent === {json.dumps(sentence)}")


def test_while_a_slider_is_dragged_one_call_is_in_flight_and_the_last_value_wins(open_page, address):
    tab, root = opened(open_page, address, PER_GPU)
    slider = root.locator('[data-control=gpus] [data-part=at]')
    last = slider.evaluate("""slider => {
        for (let step = 0; step <= slider.max; step += 1) {
            slider.value = step;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        }
        return slider.value;
    }""")
    (gpus,) = [control for control in PER_GPU.controls if control.name == "gpus"]
    wait_for_say(tab, root, say(PER_GPU, gpus=gpus.stops[int(last)]))
    counted = tab.evaluate("window.inFlight")
    assert counted["most"] == 1
    assert counted["all"] < len(gpus.stops)
    box = root.locator("[data-control=gpus] [data-part=text]")
    assert slider.get_attribute("aria-valuetext") == box.input_value()
    said = "root.querySelector('[data-status]').textContent === root.querySelector('.mt-say').textContent"
    wait_for(tab, root, said)  # announced, once it has settled


def test_a_preset_pressed_while_python_starts_is_not_overwritten_by_an_older_answer(open_page, address):
    tab, root = opened(open_page, address, PER_GPU)
    root.locator("[data-control=gpus] [data-part=at]").press("ArrowRight")
    name, values = list(PER_GPU.presets.items())[2]
    root.get_by_role("button", name=name, exact=True).click()
    wait_for_say(tab, root, say(PER_GPU, **values))
    wait_for(tab, root, "root.querySelector('[data-boot]').dataset.state === 'ready'")
    wait_for(tab, root, "!root.hasAttribute('aria-busy')")
    wait_for_say(tab, root, say(PER_GPU, **values))


def test_a_guess_a_wrong_value_and_a_readers_own_model_in_the_page(open_page, address, tmp_path):
    tab, root = opened(open_page, address, PER_GPU)
    root.get_by_role("button", name="Lock in my guess").click()
    wait_for(tab, root, "root.querySelector('.mt-reveal').textContent.includes('You guessed')")
    assert root.locator("[data-group=predict]").is_hidden()
    assert "your guess" in root.locator("[data-slot=view]").inner_html()

    box, error = root.locator("[data-control=gpus] [data-part=text]"), root.locator("[data-control=gpus] [data-error]")
    box.fill("0")
    box.press("Enter")
    wait_for(tab, root, "!root.querySelector('[data-control=gpus] [data-error]').hidden")
    assert error.text_content() == "gpus is 0; it must be a whole number from 1 to 16384"
    assert box.get_attribute("aria-invalid") == "true"
    assert box.get_attribute("aria-describedby") == error.get_attribute("id")
    note = root.locator("[data-note]")
    assert note.is_visible()
    assert float(root.locator(".mt-view").evaluate("view => getComputedStyle(view).opacity")) < 1
    box.fill("100")
    box.press("Enter")
    wait_for_say(tab, root, say(PER_GPU, gpus=100))
    assert error.is_hidden()
    assert note.is_hidden()
    assert root.locator(".mt-view").evaluate("view => getComputedStyle(view).opacity") == "1"

    good, bad = tmp_path / "config.json", tmp_path / "other.json"
    good.write_text(json.dumps(models.get("llama-3.2-1b").config))
    bad.write_text('{"model_type": "<img src=x>"}')
    chooser = root.locator("[data-control=model] [data-part=choice]")
    chooser.select_option("own")
    root.locator("[data-control=model] input[type=file]").set_input_files(good)
    own = optimizer_state.per_gpu("llama-3.2-1b", recipe="bf16-adam", gpus=100, stage=1).total
    said = f"{units.format_bytes(own, digits=4)} of state"
    wait_for(tab, root, f"root.querySelector('.mt-say').textContent.includes('{said}')")
    root.locator("[data-control=model] input[type=file]").set_input_files(bad)
    wait_for(tab, root, "!root.querySelector('[data-control=model] [data-error]').hidden")
    assert "<img src=x>" in root.locator("[data-control=model] [data-error]").text_content()
    chooser.select_option("llama-3.1-8b")
    wait_for_say(tab, root, say(PER_GPU, model="llama-3.1-8b", gpus=100))


@pytest.mark.parametrize("missing", ["worker.js", "pyodide.asm.wasm", "memtier-*.whl"])
def test_where_python_cannot_start_the_frames_stand_and_it_can_be_tried_again(open_page, address, missing):
    tab, root = opened(open_page, address, PER_GPU)
    pattern = re.compile(missing.replace(".", r"\.").replace("*", ".*"))
    tab.context.route(pattern, lambda route: route.fulfill(status=404))
    name, values = list(PER_GPU.presets.items())[3]
    root.get_by_role("button", name=name, exact=True).click()
    wait_for(tab, root, "root.querySelector('[data-boot]').dataset.state === 'failed'")
    assert root.locator("[data-words]").text_content().startswith("Python could not start")
    assert root.locator(".mt-say").text_content() == say(PER_GPU, **values)
    wait_for(tab, root, "root.querySelector('[data-status]').textContent.startsWith('Python could not start')")
    assert root.locator(".mt-frames > details").first.is_visible()
    tab.context.unroute(pattern)
    root.locator("[data-retry]").click()
    wait_for(tab, root, "root.querySelector('[data-boot]').dataset.state === 'ready'")
    assert root.locator("[data-retry]").is_hidden()
    assert root.get_by_role("button", name=name, exact=True).evaluate("button => button === document.activeElement")
    assert root.locator(".mt-frames > details").first.is_hidden()


def test_where_python_cannot_start_hints_and_solution_can_still_be_read(open_page, address):
    question = next(live.get(name) for name in live.names() if isinstance(live.get(name), live.Question))
    tab, root = opened(open_page, address, question)
    tab.context.route(re.compile("worker"), lambda route: route.fulfill(status=404))
    root.get_by_role("button", name="Hint").click()
    wait_for(tab, root, "root.querySelector('[data-boot]').dataset.state === 'failed'")
    for label in ("Hints", "The worked solution"):
        frame = root.locator(".mt-frames > details", has_text=label)
        frame.locator("summary").click()
        assert frame.locator("[data-fill]").is_visible()


def test_where_the_script_does_not_load_the_frames_stand_and_no_control_does(open_page, address):
    tab = open_page("about:blank").page
    tab.context.route(re.compile(r"/live\.js"), lambda route: route.abort())
    tab.goto(f"{address}/{page_with(PER_GPU.name)}")
    root = tab.locator(f'[data-live="{PER_GPU.name}"]').first
    assert root.locator(".mt-frames > details").first.is_visible()
    assert tab.locator("[data-live] :is(input, select, textarea, button):visible").count() == 0
