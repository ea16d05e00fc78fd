"""Numbers quoted in prose are memtier's own.

A chapter's cells compute its numbers; its sentences repeat some of them. A sentence cannot be run, so in tests/prose,
one file a notebook, each quoted number stands beside the call that gives it: should the two part, or a sentence quote a
number that is neither there nor among the given ones, a test fails.

To add a notebook: tests/prose/<its short name>.py with NOTEBOOK (its path), QUOTED (a table of quoted text → call) and
GIVEN (what is not computed: a size from which an example starts, say), both as they stand in the prose. Quote more than
the number where it could stand by chance.
"""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
from prose.common import card, needed

from memtier import evidence

ROOT = Path(__file__).resolve().parents[1]
TABLES = [importlib.import_module(f"prose.{path.stem}") for path in sorted((ROOT / "tests/prose").glob("*.py"))
          if path.stem != "common"]
QUOTED = {table.NOTEBOOK: table.QUOTED for table in TABLES}
GIVEN = {table.NOTEBOOK: table.GIVEN for table in TABLES}

# A number with what it counts: a size, a rate, a time, a share ("1.12 TB", "900 GB/s", "27 %"), operations, bits,
# money, or one of the things that facts count ("794.5 TFLOP/s", "100 Gb/s", "36 cents", "3.3 million", "16,384 GPUs").
UNITS = (r"[KMGTPE]i?B/s|[KMGTPE]i?B|[KMGTPE]?b/s|%|ns|µs|ms|s|min|h|[KMGTPE]?FLOPs?(?:/s)?|times|IOPS|dollars?|cents?|"
         r"(?:milli)?seconds|minutes|hours|days|months|years|bytes|parameters|tokens|samples|images|GPUs|drives|nodes|"
         r"servers|machines|users|requests|reads|connections|streams|failures|million|billion|trillion")
NUMBER = r"(?<![\w.,/^])\d[\d,]*(?:\.\d+)?(?:e\d+)?(?:\s(?:million|billion|trillion))?"
QUANTITY = re.compile(rf"{NUMBER}\s?(?:{UNITS})(?![\w/])")
# A factor in words: "two to five times", "three and a half times", "eightfold".
WORD = (r"(?:a )?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fourteen|fifteen|sixteen|twenty|"
        r"thirty|forty|fifty|hundred|thousand|several)")
FACTOR = re.compile(rf"\b{WORD}(?: thousand)?(?: (?:to|or) {WORD})?(?: and a half)? times\b|\b\w+fold\b",
                    re.IGNORECASE)


def prose(notebook: str) -> str:
    """The markdown of a notebook without code, on one line; of its maths the digits stay."""
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    text = re.sub(r"`[^`\n]+`", " ", text).replace("{,}", ",").replace("$", "")
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(("notebook", "quoted"), [(name, quoted) for name, table in QUOTED.items() for quoted in table])
def test_a_quoted_number_is_what_memtier_gives(notebook, quoted):
    assert QUOTED[notebook][quoted]() == quoted


def test_no_number_of_gpus_of_80_gb_is_enough_for_a_tensor_of_eight_rows():
    with pytest.raises(ValueError, match="stay on every GPU"):
        needed("mixtral-8x7b", limit=card())


@pytest.mark.parametrize("notebook", QUOTED)
def test_every_row_is_quoted_somewhere(notebook):
    text = prose(notebook)
    assert [quoted for quoted in (*QUOTED[notebook], *GIVEN[notebook]) if quoted not in text] == []


@pytest.mark.parametrize("notebook", QUOTED)
def test_no_number_in_prose_stands_alone(notebook):
    known = {*QUOTED[notebook], *GIVEN[notebook]}
    for pattern in (QUANTITY, FACTOR):
        covered = {match[0] for text in known for match in pattern.finditer(text)}
        assert sorted({match[0] for match in pattern.finditer(prose(notebook))} - covered) == []


def test_what_counts_as_a_quantity():
    text = ("1.12 TB, 27 % and 900 GB/s in 0.93 s; 794.5 TFLOP/s, 100 Gb/s, 3.3 million reads, 1.39 times, "
            "16,384 GPUs, 36 cents and 16 bytes; 80 GBx, v2.13 s and 10^9 bytes are left alone")
    assert [match[0] for match in QUANTITY.finditer(text)] == [
        "1.12 TB", "27 %", "900 GB/s", "0.93 s", "794.5 TFLOP/s", "100 Gb/s", "3.3 million reads", "1.39 times",
        "16,384 GPUs", "36 cents", "16 bytes"]
    assert [match[0] for match in FACTOR.finditer("Two to five times, a hundred times, eightfold; three machines")] == [
        "Two to five times", "a hundred times", "eightfold"]


@pytest.mark.parametrize(("quoted", "changed"), [
    ("794.5", "894.5"), ("3.3 million", "4.4 million"), ("1.39 was", "1.79 was"),
    ("two to five times", "six to nine times"), ("16,384", "26,384"), ("38 to 43 %", "48 to 53 %"),
    ("100 Gb/s", "200 Gb/s"), ("36 cents", "46 cents")])
def test_a_number_changed_in_the_tiers_chapter_is_noticed(quoted, changed):
    """Each was changed once, in the chapter's text, and no test failed."""
    notebook = "book/01-the-tiers.ipynb"
    text = prose(notebook)
    assert quoted in text
    text = text.replace(quoted, changed)
    known = {*QUOTED[notebook], *GIVEN[notebook]}
    lost = [row for row in known if row not in text]
    strange = [match[0] for pattern in (QUANTITY, FACTOR) for match in pattern.finditer(text)
               if match[0] not in {each[0] for row in known for each in pattern.finditer(row)}]
    assert lost or strange


@pytest.mark.parametrize("notebook", ["book/00-where-ai-data-lives.ipynb", "book/01-the-tiers.ipynb"])
def test_no_cell_of_the_first_chapters_types_a_count_of_the_ledger(notebook):
    """16384 GPUs or 15.6e12 tokens stand in the ledger; a cell asks for them."""
    counted = {fact.quantity for fact in evidence.all() if fact.quantity >= 1000
               and fact.base in ("GPUs", "tokens", "samples", "FLOP/s", "requests/s")}
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            assert not {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)
                        and isinstance(node.value, (int, float))} & counted
