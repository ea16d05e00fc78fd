"""What the formulas may need: the standard library. import-linter (make test) holds the arrows between modules."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDS_MORE = ("memtier.lab", "memtier.live.jupyter")  # torch and ipywidgets are what these are for


def modules():
    """Every module of memtier that must import with nothing but the standard library."""
    for path in sorted((ROOT / "memtier").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(NEEDS_MORE):
            yield name


def imported_alone(name):
    """Import one module in a Python without site-packages; what it printed, and what it said when that failed."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {name}"
    return subprocess.run([sys.executable, "-S", "-I", "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("name", list(modules()))
def test_module_needs_the_standard_library_only(name):
    run = imported_alone(name)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("package", ["numpy", "IPython", "torch"])
def test_that_python_has_nothing_but_the_standard_library(package):
    assert f"No module named '{package}'" in imported_alone(package).stderr
