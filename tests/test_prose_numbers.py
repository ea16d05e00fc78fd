"""Numbers quoted in prose are memtier's own.

A chapter's cells compute its numbers; its sentences repeat some of them. A sentence cannot be run, so in tests/prose,
one file a notebook, each quoted number stands beside the call that gives it: should the two part, or a sentence quote a
number that is neither there nor among the given ones, a test fails.

To add a notebook: tests/prose/<its short name>.py with NOTEBOOK (its path), QUOTED (a table of quoted text → call) and
GIVEN (what is not computed: a size from which an example starts, say), both as they stand in the prose. Quote more than
the number where it could stand by chance.
"""

import importlib
import json
import re
from pathlib import Path

import pytest
from prose.common import card, needed

ROOT = Path(__file__).resolve().parents[1]
TABLES = [importlib.import_module(f"prose.{path.stem}") for path in sorted((ROOT / "tests/prose").glob("*.py"))
          if path.stem != "common"]
QUOTED = {table.NOTEBOOK: table.QUOTED for table in TABLES}
GIVEN = {table.NOTEBOOK: table.GIVEN for table in TABLES}

# A number with a unit of size, rate, time or share: "1.12 TB", "13.1 s", "27 %", "900 GB/s".
QUANTITY = re.compile(
    r"(?<![\w.,/])\d[\d,]*(?:\.\d+)?(?:e\d+)?\s?"
    r"(?:[KMGTPE]i?B/s|[KMGTPE]i?B|%|ns|µs|ms|s|min|h|days)(?![\w/])"
)


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
    covered = {match[0] for text in known for match in QUANTITY.finditer(text)}
    assert sorted({match[0] for match in QUANTITY.finditer(prose(notebook))} - covered) == []


def test_what_counts_as_a_quantity():
    text = "1.12 TB, 27 % and 900 GB/s in 0.93 s; 16 bytes, 80 GBx and v2.13 s are left alone"
    assert [match[0] for match in QUANTITY.finditer(text)] == ["1.12 TB", "27 %", "900 GB/s", "0.93 s"]
