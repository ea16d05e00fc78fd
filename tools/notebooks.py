"""Runs the notebooks and stores their outputs so that the same code always gives the same file.

    python tools/notebooks.py [--check] [NOTEBOOK …]

Without names: all notebooks of the book and the exercises, in reading order. With --check nothing is written: the exit
status says whether a run gives what is stored. Normalised means: execution counts from 1, no timings, no widget views
and no widget state (a page shows the text/html beside them), cell ids by position, no dates in drawings, and of the
kernel no more than its name.
"""

import argparse
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("book", "exercises")
SECONDS_A_CELL = 120
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
SVG_DATE = re.compile(r"<dc:date>[^<]*</dc:date>")


def all_notebooks() -> list[Path]:
    """Every notebook a reader gets; those under exercises/source hold solutions and are built from, never published."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.ipynb")))
    return [path for path in found if not {"source", ".ipynb_checkpoints"}.intersection(path.parts)]


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in order, in the notebook's own folder. Raises nbclient's CellExecutionError where a cell fails."""
    settings = {"timeout": SECONDS_A_CELL, "record_timing": False, "store_widget_state": False}
    settings["coalesce_streams"] = True  # how a cell's printing is cut into messages differs from run to run
    settings["extra_arguments"] = ["--IPKernelApp.log_level=ERROR"]
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, **settings).execute()


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Take out, in place, what differs from run to run or from machine to machine."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    count = 0
    for position, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{position:02d}"
        if cell.cell_type != "code":
            continue
        for passing in ("execution", "ExecuteTime", "collapsed", "scrolled"):
            cell.metadata.pop(passing, None)
        if cell.execution_count is not None:
            count += 1
            cell.execution_count = count
        cell.outputs = joined(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = cell.execution_count
            data = output.get("data", {})
            data.pop(WIDGET_VIEW, None)
            if "image/svg+xml" in data:
                data["image/svg+xml"] = SVG_DATE.sub("<dc:date/>", data["image/svg+xml"])


def joined(outputs: list) -> list:
    """What a cell prints as one output: a busy kernel sends it in pieces, cut where chance has it."""
    kept: list = []
    for output in outputs:
        if kept and output.output_type == kept[-1].output_type == "stream" and output.name == kept[-1].name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def text_of(notebook: nbformat.NotebookNode) -> str:
    """The notebook as its file holds it."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run notebooks and store their outputs, normalised.")
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a run gives something else")
    chosen = parser.parse_args(arguments)
    differ = False
    for path in [each.resolve() for each in chosen.notebooks] or all_notebooks():
        began = time.monotonic()
        stored = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(stored, as_version=4)
        execute(notebook, path.parent)
        normalise(notebook)
        fresh = text_of(notebook)
        verdict = "as stored" if fresh == stored else "differs" if chosen.check else "written"
        differ |= fresh != stored
        if fresh != stored and not chosen.check:
            path.write_text(fresh, encoding="utf-8")
        print(f"{path.name}: {verdict} ({time.monotonic() - began:.1f} s)", flush=True)
    return int(chosen.check and differ)


if __name__ == "__main__":
    sys.exit(main())
