"""Every notebook a reader gets: run in order, without faults, the same everywhere, legible to those who do not see.

That the outputs are what the code gives is nbval's part (make test runs it over the same files).
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import notebooks
import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_CELL = 25  # lines; what needs more belongs into memtier
FOLDERS_OF_A_MACHINE = r"(?<![\w./-])/(?:home|root|Users|tmp|private|var|opt|usr|mnt)/\w|\b[A-Z]:\\\\"
MACHINE_PATH = re.compile(FOLDERS_OF_A_MACHINE + r"|site-packages|ipykernel_\d")
SVG = re.compile(r"<svg\b[^>]*>", re.DOTALL)
IMAGE = re.compile(r"<img\b[^>]*>", re.DOTALL)

everything = pytest.mark.parametrize("path", notebooks.all_notebooks(), ids=lambda path: "/".join(path.parts[-2:]))


def code_cells(path):
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code" and cell.source.strip()]


def outputs(path):
    return [(cell, output) for cell in code_cells(path) for output in cell.outputs]


def test_there_are_notebooks_to_check():
    assert len(notebooks.all_notebooks()) >= 4


@everything
def test_every_code_cell_was_run_in_order(path):
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@everything
def test_no_output_is_an_error_or_a_warning(path):
    kinds = [(output.output_type, output.get("name")) for _, output in outputs(path)]
    assert not [kind for kind in kinds if kind[0] == "error" or kind[1] == "stderr"]


@everything
def test_cells_are_short(path):
    assert not [cell.source for cell in code_cells(path) if len(cell.source.splitlines()) > LONGEST_CELL]


@everything
def test_nothing_names_a_machine(path):
    assert not [found.group() for found in MACHINE_PATH.finditer(path.read_text(encoding="utf-8"))]


@everything
def test_no_widget_is_stored(path):
    """A page shows an explorer's text/html; a stored view without its state shows nothing, anywhere."""
    notebook = nbformat.read(path, as_version=4)
    assert "widgets" not in notebook.metadata
    assert not [output for _, output in outputs(path) if notebooks.WIDGET_VIEW in output.get("data", {})]


@everything
def test_the_file_is_normalised(path):
    notebook = nbformat.read(path, as_version=4)
    notebooks.normalise(notebook)
    assert notebooks.text_of(notebook) == path.read_text(encoding="utf-8")


@everything
def test_every_figure_has_a_text_alternative(path):
    for cell, output in outputs(path):
        data = output.get("data", {})
        if any(kind.startswith("image/") for kind in data):
            assert cell.metadata.get("mystnb", {}).get("image", {}).get("alt"), f"no mystnb.image.alt: {cell.source}"
        assert_described("".join(data.get("text/html", "")))
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            assert "![](" not in cell.source
            assert_described(cell.source)
            figures = re.findall(r"(?:```|:::)\{(?:figure|image)\}(.*?)(?:```|:::)", cell.source, re.DOTALL)
            assert all(":alt:" in figure for figure in figures)


def assert_described(html):
    """A drawing says what it shows, or that it is decoration."""
    for tag in SVG.finditer(html):
        drawing = html[tag.start() :].split("</svg>")[0]
        named = "<title" in drawing or "aria-label" in tag.group()
        assert (named and 'role="img"' in tag.group()) or 'aria-hidden="true"' in tag.group(), tag.group()
    for tag in IMAGE.finditer(html):
        assert "alt=" in tag.group(), tag.group()


# The tools themselves


def notebook_of(source, **output):
    cell = nbformat.v4.new_code_cell(source)
    cell.execution_count = 7
    cell.metadata["execution"] = {"iopub.execute_input": "2026-11-29T18:00:00Z"}
    if output:
        cell.outputs = [nbformat.v4.new_output("execute_result", execution_count=7, **output)]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# One"), cell])
    made.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    return made


def test_normalising_takes_out_what_varies_and_is_idempotent():
    drawn = "<svg><dc:date>2026-11-29T18:00:00</dc:date></svg>"
    data = {"text/html": "<b>1</b>", notebooks.WIDGET_VIEW: {"model_id": "4f"}, "image/svg+xml": drawn}
    notebook = notebook_of("1", data=data)
    notebooks.normalise(notebook)
    code = notebook.cells[1]
    assert (code.id, code.execution_count, code.metadata) == ("cell-02", 1, {})
    assert code.outputs[0].data == {"text/html": "<b>1</b>", "image/svg+xml": "<svg><dc:date/></svg>"}
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    once = notebooks.text_of(notebook)
    again = nbformat.reads(once, as_version=4)
    notebooks.normalise(again)
    assert notebooks.text_of(again) == once


def test_what_a_cell_prints_is_one_output():
    notebook = notebook_of("print(1); print(2)", data={"text/plain": "3"})
    said = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in
            (("stdout", "1\n"), ("stdout", "2\n"), ("stderr", "3\n"))]
    notebook.cells[1].outputs = [*said, *notebook.cells[1].outputs]
    notebooks.normalise(notebook)
    assert [output.get("text") for output in notebook.cells[1].outputs] == ["1\n2\n", "3\n", None]


WIDGET_WITH_PAGE = """\
import ipywidgets
class Shown:
    def _repr_mimebundle_(self, **kwargs):
        widget = ipywidgets.IntSlider(3)._repr_mimebundle_()
        return {**widget, "text/plain": "Shown", "text/html": f"<b>{1 + 2}</b>"}
Shown()"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A notebook whose last value has both a widget view and text/html, as make notebooks stores it."""
    path = tmp_path_factory.mktemp("notebook") / "shown.ipynb"
    path.write_text(notebooks.text_of(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WIDGET_WITH_PAGE)])))
    assert notebooks.main([str(path)]) == 0
    return path


def test_nbval_and_check_accept_what_the_code_gives_and_nothing_else(ran):
    stored = ran.read_text()
    assert set(json.loads(stored)["cells"][0]["outputs"][0]["data"]) == {"text/plain", "text/html"}
    assert stored.count("<b>3</b>") == 1
    changed = ran.with_name("changed.ipynb")
    changed.write_text(stored.replace("<b>3</b>", "<b>4</b>"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={ran.parent}", "--nbval", "-rA"]
    said = subprocess.run([*command, ran, changed], capture_output=True, text=True, cwd=ran.parent).stdout
    assert "PASSED shown.ipynb::Cell 0" in said
    assert "FAILED changed.ipynb::Cell 0" in said
    assert notebooks.main(["--check", str(ran)]) == 0
    assert notebooks.main(["--check", str(changed)]) == 1
