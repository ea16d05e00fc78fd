import re
import tomllib
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import evidence, units
from memtier.evidence import KINDS, STATUSES, UNITS, Fact
from memtier.table import Table

LEDGER = Path(evidence.__file__).parent / "data" / "ledger.toml"
FACTS = evidence.all()

GOOD = """
[source]
paper = { text = "A paper", url = "https://example.org" }
[hbm.chip]
title = "A chip"
date = "2026-08"
source = "paper"
kind = "specification"
status = "shipping"
capacity = { value = 80, unit = "GB" }
bandwidth = { value = 3, unit = "TB/s" }
stream = { value = 2.5, unit = "TB/s", kind = "measured", conflicts = ["hbm.chip.bandwidth"], note = "a stream" }
"""


def one(**changes) -> Fact:
    plain = {"id": "hbm.chip.capacity", "title": "A chip", "value": 80, "unit": "GB", "date": "2026",
             "source": "A paper", "kind": "specification", "status": "shipping"}
    return Fact(**plain | changes)


# -------------------------------------------------------------------------------------------------- the ledger itself

def test_every_fact_is_complete():
    for fact in FACTS:
        assert fact.value > 0
        assert fact.unit in UNITS
        assert fact.kind in KINDS
        assert fact.status in STATUSES
        assert re.fullmatch(r"\d{4}(-\d\d){0,2}(/\d{4}(-\d\d){0,2})?", fact.date), fact
        assert fact.title, fact
        assert fact.source, fact
        assert re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+\.[a-z0-9-]+", fact.id)


def test_the_file_holds_what_the_module_gives():
    """Counted without the module's own reader: every table with a value is one fact, and no fact is lost."""
    data = tomllib.loads(LEDGER.read_text(encoding="utf-8"))
    sources = data.pop("source")
    found = {f"{group}.{item}.{metric}": {**entries, **entry} for group, items in data.items()
             for item, entries in items.items() for metric, entry in entries.items() if isinstance(entry, dict)}
    assert list(found) == list(evidence.ids())
    for fact in FACTS:
        raw = found[fact.id]
        assert (fact.value, fact.unit, fact.date, fact.kind, fact.status) == (
            raw["value"], raw["unit"], raw["date"], raw["kind"], raw["status"])
        assert fact.source == sources[raw["source"]]["text"]


def test_every_source_is_used():
    data = tomllib.loads(LEDGER.read_text(encoding="utf-8"))
    assert {source["text"] for source in data["source"].values()} == {fact.source for fact in FACTS}


def test_every_source_can_be_looked_up():
    """A reader can follow each figure: none rests on "notes", and none lacks an address."""
    for fact in FACTS:
        assert fact.url.startswith("https://"), fact
        assert not re.search(r"secondary notes|datasheets and", fact.source), fact


def test_no_figure_is_older_than_the_work_it_is_taken_from():
    """A source that names its own month or year was not quoted before it."""
    for fact in FACTS:
        for year in re.findall(r"\(((?:19|20)\d\d)\)", fact.source):
            assert fact.date.split("/")[-1][:4] >= year, fact


def test_what_is_computed_from_a_log_is_derived():
    """Bytes moved are not in the logs: 24 B a parameter over a logged time is arithmetic (ledger, its note)."""
    assert {evidence.get(f"nvme.zero3-optimizer.rate-{end}").kind for end in ("low", "high")} == {"derived"}


def test_nothing_recalled_enters():
    for fact in FACTS:
        assert not re.search(r"\brecalled\b|\bfrom memory\b", f"{fact.note} {fact.source}", re.IGNORECASE), fact


@pytest.mark.parametrize("group", evidence.GROUPS)
def test_every_group_has_facts(group):
    assert len(evidence.ids(group)) >= 2


def test_units_mean_what_the_units_module_says():
    parse = {"bytes": units.parse_bytes, "bytes/s": units.parse_rate, "s": units.parse_time}
    for fact in FACTS:
        if fact.base in parse and fact.unit != "TiB/min":  # a rate a minute is this ledger's own
            text = fact.amount.replace("µ", "u")
            assert parse[fact.base](text) == pytest.approx(fact.quantity, rel=1e-12), fact


DERIVED = {
    "sram.h100-sxm.capacity": lambda per_sm, sms: per_sm * sms,
    "sram.a100.capacity": lambda per_sm, sms: per_sm * sms,
    "cxl.memory.latency": lambda low, high, dram: (low + high) / 2 * dram,
    "hbf.simulated.latency": lambda low, high: (low + high) / 2,
    "object.s3.latency": lambda low, high: (low + high) / 2,
    "object.s3.connection": lambda low, high: (low + high) / 2,
    "run.mt-nlg-530b.write": lambda rate: 530e9 * 12 / rate,
    "data.resnet50.rate": lambda batch, step: batch / step,
    "data.unet3d.rate": lambda batch, step: batch / step,
    "node.h100-8.nvme": lambda drives, size: drives * size,
    "node.gb300-nvl72.hbm-sum": lambda gpus, capacity: gpus * capacity,
    "price.rdimm-64gb.memory-2025-q3": lambda price, size: price / size,
    "price.rdimm-64gb.memory-2025-q4": lambda price, size: price / size,
    "price.rdimm-64gb.memory-2026-q1": lambda price, size: price / size,
    "price.ssd-30tb.flash-2025-q2": lambda price, size: price / size,
    "price.ssd-30tb.flash-2026-q1": lambda price, size: price / size,
    "price.rent-h100.memory": lambda rent, capacity: rent * 8760 / 12 / capacity,
}


def test_derived_facts_follow_from_what_they_name():
    assert set(DERIVED) == {fact.id for fact in FACTS if fact.derived_from}
    for id, formula in DERIVED.items():
        fact = evidence.get(id)
        inputs = [evidence.get(other).quantity for other in fact.derived_from]
        assert formula(*inputs) == pytest.approx(fact.quantity, rel=2e-3), id


def test_a_derived_fact_shows_its_arithmetic():
    assert [fact.id for fact in FACTS if fact.kind == "derived" and not fact.note] == []


def test_round_figures_are_marked_and_never_pass_for_specifications():
    for fact in FACTS:
        if "illustrative" in fact.note:
            assert fact.kind in ("survey", "derived"), fact
        if "cs249r_book" in fact.source or "round" in fact.title:
            assert "illustrative" in fact.note, fact


def test_the_announced_are_not_measured_and_not_called_shipping():
    assert [fact.id for fact in FACTS if fact.status == "announced" and fact.kind == "measured"] == []
    for word in ("rubin", "mi455x", "hbf", "pcie7", "nvlink6", "hbm4", "gcs-rapid"):
        facts = [fact for fact in FACTS if word in fact.id]
        assert facts, word
        assert {fact.status for fact in facts} == {"announced"}, word
    assert "announced" in evidence.get("hbf.sandisk.bandwidth").cite()


def test_prices_carry_dates_of_their_own_time():
    for id in evidence.ids("price"):
        assert evidence.get(id).date >= "2025", id


@pytest.mark.parametrize(("id", "others"), [
    ("hbm.mi300x.bandwidth", {"hbm.mi300x.stream-azure"}),
    ("compute.mi300x.bf16", {"compute.mi300x.bf16-unrounded"}),
    ("hbm.tpu-v5e.bandwidth", {"hbm.tpu-v5e.bandwidth-older"}),
    ("hbm.b300.capacity", {"hbm.b300.usable", "hbm.gb300.usable"}),
    ("link.nvlink-c2c.rate", {"link.nvlink-c2c.both-directions", "link.nvlink-c2c.host-to-device",
                              "link.nvlink-c2c.device-to-host", "link.nvlink-c2c.host-to-device-while-both",
                              "link.nvlink-c2c.device-to-host-while-both"}),
])
def test_known_disagreements_are_kept(id, others):
    assert set(evidence.get(id).conflicts) == others


def test_both_ends_of_a_conflict_know_it_and_differ():
    for fact in FACTS:
        for other in map(evidence.get, fact.conflicts):
            assert fact.id in other.conflicts
            assert fact.base == other.base
            assert fact.quantity != other.quantity


def test_conflicts_come_in_whole_groups():
    groups = evidence.conflicts()
    together = [fact.id for group in groups for fact in group]
    assert len(together) == len(set(together))
    assert set(together) == {fact.id for fact in FACTS if fact.conflicts}
    for group in groups:
        assert len(group) >= 2
        assert {other for fact in group for other in fact.conflicts} == {fact.id for fact in group}


# ----------------------------------------------------------------------------------------------------------- one fact

@given(st.decimals(min_value=Decimal("0.001"), max_value=10**6, places=3), st.sampled_from(list(UNITS)))
def test_quantity_is_value_times_unit(value, unit):
    number = int(value) if value == int(value) else float(value)
    size, base = UNITS[unit]
    fact = one(value=number, unit=unit)
    assert fact.quantity == pytest.approx(float(value) * size, rel=1e-12)
    assert fact.base == base


@given(st.integers(1, 10**6), st.sampled_from(list(units.DECIMAL | units.BINARY)))
def test_whole_bytes_stay_whole(value, unit):
    quantity = one(value=value, unit=unit).quantity
    assert isinstance(quantity, int)
    assert quantity == value * (units.DECIMAL | units.BINARY)[unit]


def test_small_times_are_exact():
    assert one(value=60, unit="us").quantity == 60e-6 == 6e-05


@pytest.mark.parametrize(("value", "unit", "amount"), [
    (3.35, "TB/s", "3.35 TB/s"), (60, "us", "60 µs"), (0.023, "$/GB-month", "$0.023/GB-month"), (450, "$", "$450"),
    (1.7, "$/Gb", "$1.70/Gb"), (5, "x", "5×"), (90, "%", "90 %"), (3300000, "IOPS", "3,300,000 IOPS"),
    (100, "Gb/s", "100 Gb/s"), (0.00003, "$/1000 requests", "$0.00003/1000 requests"),
])
def test_amounts_read_as_the_source_gives_them(value, unit, amount):
    assert one(value=value, unit=unit).amount == amount


def test_cite_gives_kind_date_and_source():
    cited = evidence.get("hbm.h100-sxm.bandwidth").cite()
    assert cited.startswith("3.35 TB/s (specification, 2026-08-22, stas00/ml-engineering")
    assert str(evidence.get("hbm.h100-sxm.bandwidth")) == f"H100 SXM, bandwidth: {cited}"


@pytest.mark.parametrize(("id", "quantity"), [
    ("object.s3.instance", 12.5e9), ("pfs.three-fs.sort", 3.66 * 2**40 / 60), ("energy.hbm2e.access", 48e-12),
    ("price.hbm3e.memory", 13.6e-9), ("pfs.fsx-lustre.rate-low", 125e6 / 2**40),
    ("price.contract-change.dram-low", 0.9),
])
def test_unusual_units_reach_the_base_unit(id, quantity):
    assert evidence.get(id).quantity == pytest.approx(quantity, rel=1e-9)


# ------------------------------------------------------------------------------------------------------------ look-ups

def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match=r"id is 'hbm\.h100\.bandwidth'.*hbm\.h100-sxm\.bandwidth"):
        evidence.get("hbm.h100.bandwidth")
    with pytest.raises(ValueError, match="id is None"):
        evidence.get(None)
    with pytest.raises(ValueError, match="group is 'tape'"):
        evidence.ids("tape")
    with pytest.raises(ValueError, match="group is 'tape'"):
        evidence.table("tape")


def test_what_is_no_text_or_no_name_is_refused_in_one_short_sentence():
    for text in (3, None, ["HBM"]):
        with pytest.raises(ValueError, match="text is .*; it must be a text of words to look for"):
            evidence.find(text)
    with pytest.raises(ValueError, match=r"id is 'x+\.\.\.x+'; it must be the name of a fact in the ledger") as error:
        evidence.get("x" * 50_000)
    assert len(str(error.value)) < 200
    for build in (evidence.table, evidence.conflicts_table):
        with pytest.raises(ValueError, match="which is 5; it must be a list of "):
            build(5)


def test_find_wants_every_word():
    found = {fact.id for fact in evidence.find("H100 latency")}
    assert "hbm.h100-sxm.latency" in found
    assert "hbm.h100-sxm.bandwidth" not in found
    assert evidence.find("no such thing anywhere") == ()


# ------------------------------------------------------------------------------------------------- what is refused

def test_the_small_example_is_read():
    facts = evidence.read(GOOD)
    assert list(facts) == ["hbm.chip.capacity", "hbm.chip.bandwidth", "hbm.chip.stream"]
    assert facts["hbm.chip.bandwidth"].conflicts == ("hbm.chip.stream",)
    assert facts["hbm.chip.stream"].url == "https://example.org"


@pytest.mark.parametrize(("old", "new", "message"), [
    ('value = 80, ', "", r"hbm\.chip\.capacity: value is None"),
    ("value = 80", "value = -80", r"hbm\.chip\.capacity: value is -80"),
    ("value = 80", "value = nan", r"hbm\.chip\.capacity: value is nan"),
    ("value = 80", "value = true", r"hbm\.chip\.capacity: value is True"),
    ("value = 80", 'value = "80 or so"', r"hbm\.chip\.capacity: value is '80 or so'"),
    ('unit = "GB"', 'unit = "gigs"', r"hbm\.chip\.capacity: unit is 'gigs'"),
    ('date = "2026-08"\n', "", r"hbm\.chip\.capacity: date is None"),
    ('date = "2026-08"', 'date = "2026 page"', r"hbm\.chip\.capacity: date is '2026 page'"),
    ('date = "2026-08"', 'date = "2026-13"', r"hbm\.chip\.capacity: date is '2026-13'"),
    ('date = "2026-08"', 'date = "2026/2024"', r"hbm\.chip\.capacity: date is '2026/2024'"),
    ('source = "paper"\n', "", r"hbm\.chip\.capacity: source is None"),
    ('source = "paper"', 'source = "hearsay"', r"hbm\.chip\.capacity: source is 'hearsay'"),
    ('kind = "specification"', 'kind = "RECALLED"', r"hbm\.chip\.capacity: kind is 'RECALLED'"),
    ('status = "shipping"', 'status = "soon"', r"hbm\.chip\.capacity: status is 'soon'"),
    ('status = "shipping"', 'status = "announced"', r"hbm\.chip\.stream: kind is 'measured'"),
    ('title = "A chip"\n', "", r"hbm\.chip\.capacity: title is None"),
    ("hbm.chip.bandwidth", "hbm.chip.speed", r"hbm\.chip\.stream: conflicts is 'hbm\.chip\.speed'"),
    ("hbm.chip.bandwidth", "hbm.chip.capacity", r"hbm\.chip\.stream: conflicts is .* it must be a fact in bytes/s"),
    ("hbm.chip.bandwidth", "hbm.chip.stream", r"hbm\.chip\.stream: conflicts is 'hbm\.chip\.stream'"),
    ('["hbm.chip.bandwidth"]', '"hbm.chip.bandwidth"', r"hbm\.chip\.stream: conflicts is 'hbm\.chip\.bandwidth'"),
    ('note = "a stream"', "note = 3", r"hbm\.chip\.stream: note is 3"),
    ('note = "a stream"', 'remark = "a stream"', r"hbm\.chip\.stream: there is a field 'remark'"),
    ('kind = "measured", conflicts', 'kind = "measured", derived_from', r"hbm\.chip\.stream: derived_from is given"),
    ('"measured", conflicts = ["hbm.chip.bandwidth"], note = "a stream"', '"derived"',
     r"hbm\.chip\.stream: note is None"),
    ("capacity =", "Capacity_ =", r"hbm\.chip\.Capacity_: the name has 'Capacity_'"),
    ("[hbm.chip]", "[tape.chip]", "there is a group 'tape'"),
    ('text = "A paper", ', "", "source 'paper'"),
])
def test_a_bad_ledger_is_refused_naming_fact_and_field(old, new, message):
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(ValueError, match=message):
        evidence.read(text)


# -------------------------------------------------------------------------------------------------- tables for readers

class Shape(HTMLParser):
    """Counts tags and keeps the words and attributes of a table."""

    def __init__(self, html: str):
        super().__init__()
        self.open, self.count, self.words, self.attributes = [], {}, [], {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.count[tag] = self.count.get(tag, 0) + 1
        self.attributes.setdefault(tag, dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data.replace("\xa0", " "))


@pytest.mark.parametrize("group", [None, *evidence.GROUPS])
def test_a_table_shows_each_fact_with_its_source(group):
    table = evidence.table(group)
    facts = [evidence.get(id) for id in evidence.ids(group)]
    assert len(table.rows) == len(facts)
    assert {note.text for note in table.notes} == {fact.source for fact in facts}
    shape = Shape(table._repr_html_())
    assert shape.open == []
    assert shape.count["tr"] == len(facts) + 1
    assert shape.count["caption"] == 1
    assert shape.attributes["div"]["tabindex"] == "0"
    assert shape.attributes["div"]["aria-label"] == table.caption
    text = str(table)
    for fact in facts:
        assert fact.amount in text
        assert fact.amount in shape.words


def test_a_row_tells_what_disagrees():
    row = evidence.table(["hbm.mi300x.bandwidth"]).rows[0]
    assert "Disagrees with 4.09 TB/s (MI300X, stream azure, measured)" in row[-1]


def test_the_conflicts_table_has_every_conflicting_fact():
    table = evidence.conflicts_table()
    assert len(table.rows) == sum(len(group) for group in evidence.conflicts())
    assert [row[0] for row in table.rows].count("↳ or") == len(table.rows) - len(evidence.conflicts())


def test_the_conflicts_table_of_chosen_facts_has_their_whole_groups():
    table = evidence.conflicts_table(["hbm.h100-sxm.bandwidth"])
    assert [str(row[1]).split(" [")[0] for row in table.rows] == ["3.35 TB/s", "2.97 TB/s"]
    with pytest.raises(ValueError, match=r"which has 'hbm\.rubin\.capacity'; nothing in the ledger disagrees"):
        evidence.conflicts_table(["hbm.h100-sxm.bandwidth", "hbm.rubin.capacity"])


def test_text_is_escaped():
    fact = one(title='<b>"chip"</b>', source="a < b")
    html = evidence.table([fact], caption="<i>")._repr_html_()
    assert "<b>" not in html
    assert "<i>" not in html
    assert "a &lt; b" in html


def test_a_row_must_have_what_the_header_has():
    with pytest.raises(ValueError, match=r"rows has \('a', 'b', 'c'\); it must have 2 entries"):
        Table("caption", ("", "value"), (("a", "b", "c"),))


def test_a_brief_table_says_kind_and_date_in_its_footnotes():
    names = ["hbm.h100-sxm.bandwidth", "hbf.sandisk.bandwidth"]
    whole, brief = evidence.table(names), evidence.table(names, brief=True)
    assert brief.header == ("", "value", "note")
    assert [row[0] for row in brief.rows] == [row[0] for row in whole.rows]
    assert [note.before for note in brief.notes] == [
        "specification, 2026-08-22: ", "vendor claim, announced, 2025-07: "]
    with pytest.raises(ValueError, match="brief is 1"):
        evidence.table(names, brief=1)
