"""The six kinds: complete, in their places on the ladder, and the numbers in their sentences are memtier's own."""

import re

import pytest

from memtier import checkpoints, drawing, kinds, optimizer_state, tiers, units


def test_there_are_six_in_the_courses_order():
    assert kinds.names() == (
        "activations", "weights", "KV cache", "optimizer state", "checkpoints", "training data")
    assert [kinds.get(name).name for name in kinds.names()] == list(kinds.names())


@pytest.mark.parametrize("kind", kinds.KINDS, ids=kinds.names())
def test_a_kind_says_everything(kind):
    assert all(getattr(kind, field) for field in kinds.COLUMNS)
    assert len(kind.remember) == 3
    assert all(sentence.endswith(".") for sentence in kind.remember)


@pytest.mark.parametrize("kind", kinds.KINDS, ids=kinds.names())
def test_a_kind_stands_on_rungs_of_the_ladder(kind):
    places = [tiers.RUNGS.index(rung) for rung in kind.stops]
    assert places == sorted(set(places))
    assert kind.home in tiers.RUNGS
    assert kind.home not in kind.stops


@pytest.mark.parametrize("kind", kinds.KINDS, ids=kinds.names())
def test_a_kind_has_the_colour_its_bytes_have_elsewhere(kind):
    assert kind.part in drawing.COLOURS


def test_nothing_lives_on_a_rung_that_is_only_announced():
    announced = [tier.rung for tier in tiers.ladder() if tier.status == "announced"]
    assert announced == ["HBF"]
    assert kinds.on("HBF") == ()


def test_weights_and_kv_cache_need_hbm_and_nothing_else_does():
    assert [kind.name for kind in kinds.KINDS if kind.needs_hbm] == ["weights", "KV cache"]
    assert all(kind.home == "HBM" for kind in kinds.KINDS if kind.needs_hbm)


def test_every_kind_is_on_the_rungs_it_names_and_at_home_on_one():
    found = [(kind.name, rung, home) for rung in tiers.RUNGS for kind, home in kinds.on(rung)]
    for kind in kinds.KINDS:
        mine = [(rung, home) for name, rung, home in found if name == kind.name]
        assert {rung for rung, _ in mine} == {kind.home, *kind.stops}
        assert [rung for rung, home in mine if home] == [kind.home]


def test_the_numbers_in_the_sentences():
    state = optimizer_state.inventory(1, recipe="bf16-adam")
    kept = state["master weights"] + state["optimizer"]
    assert f"{kept} of {state.total} bytes a parameter" in kinds.get("optimizer state").remember[0]
    weights = optimizer_state.inventory(70e9, recipe="inference").total
    assert f"{units.format_bytes(weights)} for 70 billion" in kinds.get("weights").remember[1]
    saved = [checkpoints.inventory(1, recipe="bf16-adam", contents=what).total
             for what in ("resumable", "weights")]
    assert re.findall(r"holds (\d+)", kinds.get("checkpoints").remember[0]) == [str(nbytes) for nbytes in saved]
    corpus = units.format_bytes(15e12 * 4)
    assert f"15 trillion tokens of 4 bytes are {corpus}" in kinds.get("training data").remember[1]


def test_the_figure_has_a_shelf_for_each_rung_and_a_box_for_each_place():
    figure = kinds.ladder()
    assert [row[0].removesuffix(" (announced)") for row in figure.rows] == list(tiers.RUNGS)
    boxes = sum(1 + len(kind.stops) for kind in kinds.KINDS)
    assert figure.svg.count("<rect") == boxes
    assert figure.svg.count("stroke-dasharray") == boxes - len(kinds.KINDS)
    assert all(f">{name}</text>" in figure.svg for name in kinds.names())
    assert {row[0]: row[2] for row in figure.rows}["object storage"] == "checkpoints, training data"
    assert kinds.ladder().html == figure.html


def test_the_table_shows_the_columns_asked_for():
    table = kinds.table("home", "stops")
    assert table.header == ("kind", "home", "also found in")
    assert ("optimizer state", "HBM", "CPU DRAM, CXL, NVMe") in table.rows
    assert len(kinds.table().header) == 1 + len(kinds.COLUMNS)


def test_a_card_says_in_html_what_it_says_in_text():
    kind = kinds.get("KV cache")
    html = kind._repr_html_()
    for words in (kind.holds, kind.grows_with, "CPU DRAM, CXL, NVMe, parallel file system", *kind.remember):
        assert words in str(kind)
        assert words in html
    assert drawing.COLOURS["KV cache"] in html


@pytest.mark.parametrize(("call", "message"), [
    (lambda: kinds.get("gradients"), "name is 'gradients'; it must be one of activations, weights, KV cache"),
    (lambda: kinds.on("tape"), "rung is 'tape'; it must be one of SRAM, L2"),
    (lambda: kinds.table("colour"), "columns is 'colour'; it must be one of holds, home"),
    (lambda: drawing.shelves([], "t", "d", solid="s", dashed="d"), "rows is empty"),
])
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_shelves_wrap_after_three_boxes_and_keep_each_box_on_the_drawing():
    boxes = [(f"box {n}", "weights", n % 2 == 0) for n in range(7)]
    figure = drawing.shelves([("a shelf", "of seven", boxes), ("an empty one", "", [])], "Shelves", "Two shelves.",
                             solid="here", dashed="there")
    corners = [(float(x), float(y)) for x, y in re.findall(r'<rect x="([\d.]+)%" y="([\d.]+)"', figure.svg)]
    assert len(set(corners)) == 7
    assert len({y for _, y in corners}) == 3
    assert all(x + 32 <= 100 for x, _ in corners)
    assert figure.rows[0] == ("a shelf", "of seven", "box 0, box 2, box 4, box 6", "box 1, box 3, box 5")
    assert figure.rows[1] == ("an empty one", "", "-", "-")
