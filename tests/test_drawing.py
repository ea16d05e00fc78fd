"""Figures: what is drawn where, that table and drawing agree, and that nothing in a figure depends on chance."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import drawing, units
from memtier.drawing import Axis

STATE = {"weights": 140e9, "gradients": 140e9, "master weights": 280e9, "optimizer": 560e9}

amounts = st.floats(0, 1e15).filter(lambda value: value == 0 or value > 1e-3)
parts = st.dictionaries(st.sampled_from([*drawing.COLOURS, "something else"]), amounts, min_size=1)


def figures():
    """One of each kind, with everything it can carry."""
    sizes = Axis("size", 1e3, 1e12, units.format_bytes, drawing.BYTE_TICKS)
    times = Axis("time", 1e-9, 1e7, units.format_time, drawing.TIME_TICKS)
    two = [("one GPU", STATE), ("a layer runs", {"weights": 2e9, "gathered layer": 1.7e9})]
    return {
        "bars": drawing.bars(two, "State", "Two bars.", limit=(80e9, "80 GB of HBM"), guess=(50e9, "your guess")),
        "dots": drawing.dots([("HBM", {"datasheet": 0.04, "yours": 1.0}), ("CXL", {"datasheet": None, "yours": None})],
                             times, "Times", "Two lanes.", limit=(1.0, "a second"), guess=(60, "your guess")),
        "lines": drawing.lines([("a", [(1e3, 1e-6), (1e9, 1.0)]), ("b", [(1e3, 1e-3), (1e9, 1e3)])], sizes, times,
                               "Curves", "Two curves.", points=[("here", 1e6, 0.1)], guess=(1e6, 1.0, "your guess"),
                               limit=(10, "ten seconds")),
        "strong": drawing.lines([("a", [(1e3, 1), (1e9, 1)]), ("b", [(1e3, 1e3), (1e9, 1e-3)])], sizes, times,
                                "Curves", "One stands out.", strong="b"),
        "timeline": drawing.timeline([("link", [("gradients", 0, 2.2)]), ("GPU", [])], "A step", "Two lanes.",
                                     guess=(1.0, "your guess"), limit=(5.0, "a step")),
        "grid": drawing.grid([(str(n), STATE) for n in range(70)], "Who", "Seventy.", limit=(80e9, "80 GB")),
    }


every_figure = pytest.mark.parametrize("name", list(figures()))


def tree(figure):
    return ET.fromstring(figure.svg)


def rectangles(figure):
    """(x, width) in per cent of every rectangle that is a part of something."""
    found = (element.attrib for element in tree(figure).iter("rect"))
    return [(float(each["x"][:-1]), float(each["width"][:-1])) for each in found if each["width"] != "100%"]


@every_figure
def test_a_figure_is_one_drawing_with_a_name_a_description_and_a_table(name):
    figure = figures()[name]
    root = tree(figure)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == f"{figure.title}. {figure.description}"
    page = ET.fromstring(figure.html)  # well-formed, so that no page breaks on it
    assert page.tag == "figure"
    assert page.find("figcaption").text == figure.title
    assert len(page.findall("./details/table/tbody/tr")) == len(figure.rows) > 0
    assert {len(row) for row in figure.rows} == {len(figure.header)}
    assert figure._repr_html_() == figure.html


@every_figure
def test_a_figure_has_no_ids_no_chance_and_nothing_from_elsewhere(name):
    html = figures()[name].html
    assert html == figures()[name].html
    assert not re.search(r'\sid="|https?://|url\(', html)


@every_figure
def test_text_keeps_its_size_and_nothing_lies_outside(name):
    root = tree(figures()[name])
    assert "viewBox" not in root.attrib  # it would shrink the words on a phone
    for element in root.iter():
        for attribute in ("x", "x1", "x2", "cx"):
            value = element.attrib.get(attribute, "")
            if value.endswith("%"):
                assert 0 <= float(value[:-1]) <= 100, ET.tostring(element)
    assert {element.attrib.get("font-size", "14") for element in root.iter("text")} <= {"13", "14"}


@given(parts)
def test_the_segments_of_a_bar_add_up_to_it(inventory):
    figure = drawing.bars([("a", inventory)], "t", "d")
    drawn = rectangles(figure)
    total = sum(inventory.values())
    held = [value for value in inventory.values() if value > 0]
    assert len(drawn) == len(held)
    if total:
        whole = 100 / 1.02  # the longest bar leaves 2 % free
        assert sum(width for _, width in drawn) == pytest.approx(whole, abs=0.01 * len(drawn) + 0.01)
        for (_, width), value in zip(drawn, held, strict=True):
            assert width == pytest.approx(whole * value / total, abs=0.02)
        ends = [0.0, *(x + width for x, width in drawn)]
        assert [x for x, _ in drawn] == pytest.approx(ends[:-1], abs=0.03)


def test_bars_share_one_scale_and_the_table_holds_the_numbers():
    figure = drawing.bars([("a", {"weights": 100e9}), ("b", {"weights": 25e9, "optimizer": 25e9})], "t", "d")
    assert [width for _, width in rectangles(figure)] == pytest.approx([98.04, 24.51, 24.51], abs=0.01)
    assert figure.header == ("", "weights", "optimizer", "total")
    assert figure.rows == (("a", "100 GB", "0 B", "100 GB"), ("b", "25 GB", "25 GB", "50 GB"))
    assert [name for name, _ in figure.legend] == ["weights", "optimizer"]


def test_a_limit_stands_where_its_bytes_are():
    figure = drawing.bars([("a", {"weights": 160e9})], "t", "d", limit=(80e9, "80 GB of HBM"))
    marks = [line.attrib for line in tree(figure).iter("line") if line.attrib.get("stroke-width") == "2"]
    assert [mark["x1"] for mark in marks] == [mark["x2"] for mark in marks] == ["49.02%"]
    assert figure.rows[0][-1] == "80 GB"
    assert "80 GB of HBM" in figure.svg


def test_an_empty_bar_is_drawn_as_nothing():
    figure = drawing.bars([("a", {"weights": 0})], "t", "d")
    assert rectangles(figure) == []
    assert figure.rows == (("a", "0 B"),)


@given(st.floats(1e-9, 1e12), st.floats(1e-9, 1e12))
def test_a_log_axis_puts_equal_ratios_at_equal_distances(a, b):
    axis = Axis("", 1e-9, 1e15, log=True)
    assert axis.at(10 * a) - axis.at(a) == pytest.approx(axis.at(10 * b) - axis.at(b))
    assert (a < b) == (axis.at(a) < axis.at(b)) or a == pytest.approx(b)


def test_axes_end_where_they_say_and_hold_what_lies_outside_at_their_ends():
    axis = Axis("", 1e3, 1e9)
    assert [axis.at(value) for value in (1e3, 1e6, 1e9)] == pytest.approx([0, 0.5, 1])
    assert [axis.at(value) for value in (0, 1, 1e12)] == [0, 0, 1]
    assert Axis("", 0, 10, log=False).at(2.5) == 0.25


def test_ticks_are_round_numbers_within_the_axis():
    places, texts = zip(*Axis("", 1e3, 1e6).marks(), strict=True)
    assert texts == ("1 KB", "10 KB", "100 KB", "1 MB")
    assert places == pytest.approx((0, 1 / 3, 2 / 3, 1))
    linear = Axis("", 0, 8.1, units.format_time, log=False)
    assert [text for _, text in linear.marks()] == ["0 s", "2 s", "4 s", "6 s", "8 s"]
    times = Axis("", 1, 1e4, units.format_time, drawing.TIME_TICKS)
    assert [text for _, text in times.marks()] == ["1 s", "1 min", "1 h"]


def test_dots_stand_at_their_values_and_unknown_ones_say_so():
    axis = Axis("time", 1e-3, 1e3, units.format_time, drawing.TIME_TICKS)
    figure = drawing.dots([("HBM", {"datasheet": 1.0}), ("CXL", {"datasheet": None})], axis, "t", "d")
    assert [dot.attrib["cx"] for dot in tree(figure).iter("circle")] == ["50%"]
    assert figure.rows == (("HBM", "1 s"), ("CXL", "not known"))
    assert "not known" in figure.svg


def test_a_point_of_lines_lies_on_its_curve():
    axis = Axis("", 1, 1e4, units.format_bytes)
    figure = drawing.lines([("a", [(1, 1), (1e4, 1e4)])], axis, axis, "t", "d", points=[("here", 100, 100)], height=200)
    dot = next(tree(figure).iter("circle")).attrib
    assert (dot["cx"], dot["cy"]) == ("50%", "124")  # half of 200 below the 24 px for the axis's name
    assert next(tree(figure).iter("polyline")).attrib["points"] == "0.0,1000.0 1000.0,0.0"


def test_the_words_of_a_line_across_stand_where_no_curve_and_no_point_is():
    x, y = Axis("", 0, 10, str, log=False), Axis("", 0, 100, str, (), log=False)
    flat = [(n, 40) for n in range(11)]

    def words(*curves, points=()):
        figure = drawing.lines(curves, x, y, "t", "d", limit=(50, "the limit"), points=points, height=200)
        (text,) = [each.attrib for each in tree(figure).iter("text") if each.text == "the limit"]
        return text["text-anchor"], float(text["y"]) - 124  # the line lies at half of 200, below 24 px

    assert words(("low", flat)) == ("end", 15)
    close = ("close under the line", [(n, 46) for n in range(11)])
    assert words(close) == ("end", -6)
    assert words(close, points=[("here", 10, 50)]) == ("start", -6)


def test_spans_of_a_timeline_start_and_last_as_told():
    figure = drawing.timeline([("link", [("gradients", 0, 1)]), ("CPU", [("optimizer", 1, 3)])], "t", "d")
    (first, second) = rectangles(figure)
    assert first == pytest.approx((0, 24.51), abs=0.01)
    assert second == pytest.approx((24.51, 73.53), abs=0.01)
    assert figure.rows == (("link", "gradients", "0 s", "1 s"), ("CPU", "optimizer", "1 s", "3 s"))


def test_no_line_strikes_an_amount_in_a_bar_through():
    figure = drawing.bars([("one", {"weights": 100e9})], "t", "d", limit=(50e9, "half"), guess=(1e9, "a guess"))
    (inside,) = [each for each in tree(figure).iter("text") if each.attrib.get("fill") == "#fff"]
    ends = [float(rectangles(figure)[0][0]), float(rectangles(figure)[0][1])]
    assert ends == pytest.approx([0, 98.04], abs=0.01)
    assert float(inside.attrib["x"].rstrip("%")) == pytest.approx(0.75 * 98.04, abs=0.01)  # past the line


def test_a_thin_part_is_not_all_rim():
    thin = drawing.grid([("0", {"weights": 1e9, "optimizer": 79e9})], "t", "d", limit=(80e9, "80 GB"))
    weights, optimizer = [each.attrib for each in tree(thin).iter("rect") if each.attrib["fill"] != "none"]
    assert float(weights["stroke-width"]) < float(weights["height"]) / 4
    assert "stroke-width" not in optimizer


def test_a_cell_of_the_grid_fills_with_what_the_gpu_holds():
    figure = drawing.grid([("0", {"weights": 40e9}), ("1", {"weights": 90e9})], "t", "d", limit=(80e9, "80 GB"))
    filled = [float(each.attrib["height"]) for each in tree(figure).iter("rect") if each.attrib["fill"] != "none"]
    assert filled == [48, 96]  # half a cell of 96 px, and a full one
    assert "1 over" in figure.svg
    assert "6 more are not drawn" in figures()["grid"].svg


@pytest.mark.parametrize("name", drawing.COLOURS)
def test_a_colour_is_a_css_variable_with_a_fallback(name):
    assert re.fullmatch(r"var\(--mt-[a-z]+(-[a-z]+)*,#[0-9a-f]{6}\)", drawing.colour(name))


def test_words_from_readers_are_escaped():
    wicked = '<script>alert("x")</script>'
    for figure in (drawing.bars([(wicked, {wicked: 1})], wicked, wicked, limit=(1, wicked), guess=(1, wicked)),
                   drawing.dots([(wicked, {wicked: 1, "b": 2})], Axis(wicked, 1, 10), wicked, wicked),
                   drawing.lines([(wicked, [(1, 1), (10, 10)]), ("b", [(1, 1)])], Axis(wicked, 1, 10),
                                 Axis(wicked, 1, 10), wicked, wicked, points=[(wicked, 1, 1)], guess=(1, 1, wicked),
                                 limit=(2, wicked)),
                   drawing.timeline([(wicked, [(wicked, 0, 1)])], wicked, wicked),
                   drawing.grid([(wicked, {wicked: 1})], wicked, wicked)):
        assert "<script" not in figure.html
        ET.fromstring(figure.html)


def luminance(colour):
    channels = [int(colour[n:n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("shade", sorted({*drawing.COLOURS.values(), *drawing.CYCLE}))
def test_colours_can_be_read_on_white_on_black_and_under_white_letters(shade):
    assert contrast(shade, "#ffffff") >= 4.5  # WCAG AA for the letters in a segment
    assert contrast(shade, "#14181e") >= 3  # and for the segment itself on the theme's dark page


@pytest.mark.parametrize(("draw", "words"), [
    (lambda: drawing.bars([], "t", "d"), "rows is empty"),
    (lambda: drawing.bars([("a", {"weights": -1})], "t", "d"), "a: weights is -1"),
    (lambda: drawing.dots([], Axis("", 1, 10), "t", "d"), "rows is empty"),
    (lambda: drawing.lines([("a", [])], Axis("", 1, 10), Axis("", 1, 10), "t", "d"), "nothing|empty"),
    (lambda: drawing.timeline([], "t", "d"), "lanes is empty"),
    (lambda: drawing.timeline([("a", [("b", -1, 2)])], "t", "d"), "a: b is -1"),
    (lambda: drawing.grid([], "t", "d"), "gpus is empty"),
    (lambda: drawing.grid([("0", {})], "t", "d", most=0), "most is 0"),
    (lambda: Axis("", 10, 10), "high is 10"),
    (lambda: Axis("", 0, 10), "low is 0"),
    (lambda: Axis("", 0, float("inf"), log=False), "high is inf"),
    (lambda: Axis("", 0, 1e301, log=False), "high is 1e"),
])
def test_bad_input_is_named(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()


@pytest.mark.parametrize(("limit", "pieces"), [(50, 1), (99, 2)])
def test_a_limit_line_is_broken_where_the_total_stands(limit, pieces):
    figure = drawing.bars([("one", {"weights": 100})], "Title", "Words.", limit=(limit, "limit"))
    assert figure.svg.count('stroke-width="2"') == pieces


def test_a_time_axis_has_the_ticks_of_a_clock():
    assert [text for _, text in drawing.time_ticks(3600)] == ["0 s", "15 min", "30 min", "45 min", "1 h"]
    assert [text for _, text in drawing.time_ticks(295)] == ["0 s", "1 min", "2 min", "3 min", "4 min"]
    assert drawing.time_ticks(86400)[-1] == (86400, "1 day")
    assert drawing.time_ticks(59) is None
    assert all(2 < len(drawing.time_ticks(60 * 1.3**n)) < 7 for n in range(60))


def test_a_time_axis_has_few_ticks_however_long_it_is():
    assert [text for _, text in drawing.time_ticks(86400 * 9000)] == ["0 s", "2,000 days", "4,000 days", "6,000 days",
                                                                      "8,000 days"]
    assert all(2 < len(drawing.time_ticks(60 * 10.0 ** (n / 7))) < 7 for n in range(2080))  # to 1e298 s
    for high in (1e6, 1e12, 1e18, 1e300):
        ticks = drawing.time_ticks(high)
        assert [value for value, _ in ticks] == sorted(value for value, _ in ticks)
        assert high / 2 < ticks[-1][0] <= high
    drawn = drawing.timeline([("link", [("gradients", 0, 1e24)])], "t", "d")
    assert len(drawn.html) < 5000


# Where words stand

def boxes(figure):
    """(words, from, to, top, bottom) of every text: across from 0 to 1 on a phone, 330 px wide; down in px."""
    for text in tree(figure).iter("text"):
        size = float(text.attrib.get("font-size", "14"))
        place = float(text.attrib["x"].rstrip("%")) / 100 + float(text.attrib.get("dx", "0")) / 330
        width = len(text.text) * size * 0.55 / 330
        start = place - width * {"start": 0, "middle": 0.5, "end": 1}[text.attrib["text-anchor"]]
        yield text.text, start, start + width, float(text.attrib["y"]) - size * 0.7, float(text.attrib["y"])


def curves(figure):
    """Spots on every curve: across from 0 to 1, down in px."""
    for inner in tree(figure).iter("svg"):
        for line in inner.findall("polyline"):
            corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
            for (x, y), (to_x, to_y) in pairwise(corners):
                for n in range(201):
                    yield ((x + (to_x - x) * n / 200) / 1000,
                           float(inner.attrib["y"]) + float(inner.attrib["height"]) * (y + (to_y - y) * n / 200) / 1000)


def struck(figure):
    """The texts that a curve goes through."""
    spots = list(curves(figure))
    return {words for words, start, end, top, bottom in boxes(figure)
            if any(start < x < end and top < y < bottom for x, y in spots)}


def rising(power, points=(), **more):
    x, y = Axis("across", 1, 1e4, "{:,.0f}".format), Axis("up", 1, 1e4, units.format_bytes)
    curve = [(a, 1e4 * (a / 1e4) ** power) for a in (10 ** (n / 5) for n in range(21))]
    return drawing.lines([("a", curve)], x, y, "t", "d", points=points, **more)


@pytest.mark.parametrize(("power", "at"), [*product((0.1, 0.3, 0.5, 0.8, 1), (10, 100, 1000)), (2, 1000), (3, 1000)])
def test_no_curve_goes_through_words(power, at):
    value = 1e4 * (at / 1e4) ** power
    figure = rising(power, [("here", at, value)], guess=(at * 3, 3, "a guess"))
    assert {f"here: {units.format_bytes(value)}", "a guess"} <= {words for words, *_ in boxes(figure)}
    assert struck(figure) == set()


def test_the_words_of_an_axis_stand_above_curves_and_have_a_rim():
    figure = rising(0)  # one line along the upper edge
    words = [group for group in tree(figure).iter("g") if "paint-order" in group.attrib]
    assert {text.text for group in words for text in group} >= {"1 B", "10 B", "100 B", "1 KB", "10 KB"}
    (drawn,) = [n for n, each in enumerate(tree(figure)) if each.findall("polyline")]
    (scale,) = [n for n, each in enumerate(tree(figure)) if each.findtext("text") == "1 B"]
    assert drawn < scale


def test_a_tick_stands_at_its_line_and_at_the_end_no_farther_inwards_than_a_phone_needs():
    x, y = Axis("GPUs", 1, 8192, str, ((1, "1"), (64, "64"), (4096, "4,096"))), Axis("up", 1, 10)
    drawn = {text.text: text.attrib for text in tree(drawing.lines([("a", [(1, 1)])], x, y, "t", "d")).iter("text")}
    assert (drawn["4,096"]["text-anchor"], drawn["4,096"]["x"]) == ("middle", "92.31%")
    assert (drawn["64"]["text-anchor"], "dx" in drawn["64"]) == ("middle", False)
    assert drawn["1"]["text-anchor"] == "start"
    wide = drawing.lines([("a", [(1, 1)])], Axis("tokens", 1, 2e5, str, ((131072, "131,072"),)), y, "t", "d")
    (tick,) = [each for each in boxes(wide) if each[0] == "131,072"]
    assert 0.97 < tick[2] < 1  # its right end, at the phone's edge, while its line stands at 0.965


@pytest.mark.parametrize("name", ["bars", "dots", "lines", "strong", "timeline"])
def test_on_a_phone_no_words_are_cut_off(name):
    for words, start, end, *_ in boxes(figures()[name]):
        assert -0.01 < start < end < 1.01, words


def test_no_line_strikes_the_name_of_another_through():
    figure = drawing.bars([("one", {"weights": 100})], "t", "d", limit=(40, "the limit"), guess=(41, "your guess: 41"))
    (name,) = [each for each in boxes(figure) if each[0] == "your guess: 41"]
    for line in tree(figure).iter("line"):
        place, high, low = (float(line.attrib[key].rstrip("%")) for key in ("x1", "y1", "y2"))
        assert not (name[1] < place / 100 < name[2] and high < name[4] and name[3] < low), line.attrib
    limit = [line.attrib for line in tree(figure).iter("line") if line.attrib["x1"] == "39.22%"]
    assert [float(each["y1"]) for each in limit] == [pytest.approx(name[4], abs=6)]  # it begins below the name


def test_two_texts_do_not_stand_on_each_other():
    x, y = Axis("across", 0, 10, str, log=False), Axis("up", 0, 10, str, log=False)
    figure = drawing.lines([("a", [(0, 5), (10, 5)])], x, y, "t", "d", limit=(6, "a limit"), guess=(5.2, 5, "a guess"),
                           points=[("one", 5, 5), ("two", 5.1, 5.2), ("three", 0, 10)])
    drawn = list(boxes(figure))
    for n, (words, start, end, top, bottom) in enumerate(drawn):
        for other, other_start, other_end, other_top, other_bottom in drawn[:n]:
            apart = end <= other_start or other_end <= start or bottom <= other_top or other_bottom <= top
            assert apart, (words, other)


@pytest.mark.parametrize(("letters", "apart"), [(30, 0), (31, 0), (32, 18), (60, 18)])
def test_a_label_and_its_value_share_a_line_only_where_a_phone_has_room(letters, apart):
    figure = drawing.bars([("l" * letters, {"weights": 26.3e9})], "t", "d")  # 7 letters; 38 of 14 px are 0.95 of 330 px
    label, value = (next(each for each in boxes(figure) if each[0] == words) for words in ("l" * letters, "26.3 GB"))
    assert value[4] - label[4] == apart
    assert apart or label[2] < value[1]


def test_a_line_across_dots_is_broken_where_words_of_a_row_stand():
    """On a phone: the label reaches past the limit, so the line stops above it and goes on below it."""
    figure = drawing.dots([("CPU memory of a Grace, over C2C", {"fetched": 3e-3}), ("short", {"fetched": 1})],
                          Axis("time", 1e-6, 1e5, units.format_time), "t", "d", limit=(0.1, "limit"))
    strong = [[float(line.attrib[end].rstrip("%")) for end in ("x1", "y1", "y2")]
              for line in tree(figure).iter("line") if line.attrib.get("stroke-width") == "2"]
    assert len(strong) == 2
    for place, top, bottom in strong:
        assert not [words for words, start, end, upper, lower in boxes(figure)
                    if start < place / 100 < end and upper < bottom and top < lower]


def test_a_guess_on_a_straight_curve_with_lines_around_it_has_words_no_curve_strikes():
    """The curve rises under 45 degrees past a dot, two levels and a tick; the words end above the diamond."""
    levels = {"weights": 1.4e11, "HBM left for it": 3e11}
    figure = drawing.lines(
        [("KV cache", [(10**n, 2.7e9 * 10**n) for n in range(5)]),
         *((name, [(1, nbytes), (1e4, nbytes)]) for name, nbytes in levels.items())],
        Axis("users", 1, 1e4, "{:,.0f}".format), Axis("bytes", 1.3e9, 5.4e13, units.format_bytes, drawing.BYTE_TICKS),
        "t", "d", points=[("here", 53, 1.42e11)], guess=(160, 4.3e11, "your guess: user 160"), strong="KV cache",
        height=220)
    assert "your guess: user 160" not in struck(figure)


def test_a_moment_on_a_long_timeline_is_seen_and_no_time_is_not():
    drawn = drawing.timeline([("drive", [("write", 0, 0.5), ("nothing", 10, 0), ("rest", 100, 500)])], "t", "d").svg
    spans = re.findall(r'<rect x="[^"]+" y="[^"]+" width="([\d.]+)%" height="26" fill="#', drawn)
    widths = [float(width) for width in spans]
    assert len(widths) == 3
    assert widths[0] == 100 * drawing.THINNEST  # 0.5 s of 612 s would be 0.08 %
    assert widths[1] == 0
    assert widths[2] == pytest.approx(100 * 500 / 612, abs=0.01)
