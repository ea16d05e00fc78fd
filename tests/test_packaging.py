"""What the built site serves: Python for the browser, whole and no more, and nothing of another host."""

import gzip
import hashlib
import io
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import browser_python
import notebooks
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def parts(site):
    """The folder that the page's worker gives to loadPyodide."""
    return site / "live" / "pyodide"


@pytest.fixture(scope="module")
def lock(parts):
    return json.loads((parts / "pyodide-lock.json").read_text())


def test_everything_the_browser_python_asks_for_is_served_and_nothing_else(parts, lock):
    assert set(lock["packages"]) == {"memtier"}
    wheels = {entry["file_name"] for entry in lock["packages"].values()}
    core = {"pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"}
    packed = {"pyodide.asm.mjs.gz", "pyodide.asm.wasm.gz"}
    assert {path.name for path in parts.iterdir()} == core | packed | wheels
    assert (parts.parent / "worker.js").is_file()


def test_hashes_in_the_lock_are_those_of_the_files(parts, lock):
    for entry in lock["packages"].values():
        assert hashlib.sha256((parts / entry["file_name"]).read_bytes()).hexdigest() == entry["sha256"]
        assert entry["depends"] == []


def test_the_core_is_what_npm_checked(parts):
    for name in browser_python.CORE_FILES:
        assert (parts / name).read_bytes() == (ROOT / "node_modules" / "pyodide" / name).read_bytes()
    for name in browser_python.PACKED_FILES:
        assert gzip.decompress((parts / f"{name}.gz").read_bytes()) == (parts / name).read_bytes()


def test_the_core_is_the_locked_release():
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]["node_modules/pyodide"]
    installed = json.loads((ROOT / "node_modules" / "pyodide" / "package.json").read_text())
    assert installed["version"] == locked["version"]
    assert locked["integrity"].startswith("sha512-")


def test_the_wheel_holds_the_formulas_compiled_and_leaves_out_what_a_browser_lacks(parts, lock):
    with zipfile.ZipFile(parts / lock["packages"]["memtier"]["file_name"]) as wheel:
        names = set(wheel.namelist())
    expected = {
        path.relative_to(ROOT).with_suffix(".pyc").as_posix()
        for path in (ROOT / "memtier").rglob("*.py")
        if "lab" not in path.parts and path.name != "jupyter.py"
    } | {path.relative_to(ROOT).as_posix() for path in (ROOT / "memtier" / "data").glob("*.toml")}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {"memtier/optimizer_state.pyc", "memtier/data/tiers.toml"} <= expected


def test_the_standard_library_is_compiled(parts):
    with zipfile.ZipFile(parts / "python_stdlib.zip") as library:
        names = library.namelist()
    assert "json/decoder.pyc" in names
    assert not [name for name in names if name.endswith(".py")]


def test_the_same_sources_give_the_same_wheel():
    assert browser_python.memtier_wheel(ROOT) == browser_python.memtier_wheel(ROOT)


def test_a_second_build_compiles_nothing(tmp_path, site, monkeypatch):
    """With the archives of the last build at hand, Node is not needed."""
    shutil.copytree(site.parent / "browser-python", tmp_path / "cache")
    monkeypatch.setenv("PATH", "")
    browser_python.assemble(ROOT, tmp_path / "out", cache=tmp_path / "cache")
    for path in (site / "live" / "pyodide").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_a_wheel_that_was_not_compiled_before_needs_node(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="node"):
        browser_python.byte_compiled([empty_wheel()], ROOT / "node_modules" / "pyodide", tmp_path / "cache")


def empty_wheel():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as wheel:
        wheel.writestr("nothing.py", "")
    return archive.getvalue()


LOADED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'\s>]+   # loaded as it stands
    |<link\b(?=[^>]*rel=["']?(?:stylesheet|preload|icon|preconnect|dns-prefetch|modulepreload))[^>]*href=["']?(?:https?:)?//
    |url\(["']?(?:https?:)?//|@import\s+["'](?:https?:)?//""",
    re.IGNORECASE | re.VERBOSE,
)


def test_no_page_and_no_style_loads_anything_of_another_host(site):
    sources = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(sources) > 10
    loaded = {path.name: LOADED.findall(path.read_text(encoding="utf-8")) for path in sources}
    assert not {name: found for name, found in loaded.items() if found}


def test_pages_need_no_widget_manager_no_mathjax_and_no_thebe(site):
    for path in site.rglob("*.html"):
        scripts = " ".join(re.findall(r"<script\b.*?>", path.read_text(encoding="utf-8")))
        assert not re.search("require|mathjax|thebe|embed-amd|html-manager", scripts, re.IGNORECASE), path


def test_only_pages_with_something_live_load_its_script(site):
    pages = [path.read_text(encoding="utf-8") for path in site.rglob("*.html")]
    live = [(' data-live="' in page, "js/live.js" in page) for page in pages]
    assert {(True, True), (False, False)} == set(live)


def test_no_lock_or_requirement_names_where_it_came_from():
    for name in ("package-lock.json", "constraints.txt", "requirements.txt", "requirements-book.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(r"\"resolved\"|file:|@ |\+cpu|--(?:extra-)?index-url|--find-links", text), name


def test_every_requirement_is_pinned_to_what_the_constraints_say():
    known = pins("constraints.txt")
    required = pins("requirements-book.txt") | pins("requirements.txt")
    assert len(required) > 15
    assert required.items() <= known.items()


def test_requirements_are_the_whole_course():
    """One command, pip install -r requirements.txt, brings everything that this repository's own code imports."""
    lines = {line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()}
    assert {"-r requirements-book.txt", "-e ."} <= lines  # the latter is memtier itself
    imported = {name: path.name for path, names in own_imports() for name in names - sys.stdlib_module_names}
    assert {"memtier", "torch", "sphinx", "playwright"} <= set(imported)
    brought = {"memtier", *pins("constraints.txt")}  # those are made from an environment that holds nothing else
    assert not {name: file for name, file in imported.items() if name.lower().replace("_", "-") not in brought}


def test_make_installs_what_the_requirements_say_and_nothing_else():
    asked = re.findall(r"\$\(PIP\) (.*)", (ROOT / "Makefile").read_text())
    assert asked == ["--requirement requirements-book.txt", "--no-build-isolation --requirement requirements.txt"]


IMPORT = re.compile(r"^\s*(?:from ([\w.]+) import |import ([\w.]+))", re.MULTILINE)


def own_imports():
    """(file, names of the packages that it imports), of all code but that for the peers' own environments."""
    scripts = [path for folder in ("memtier", "tests", "tools", "benchmarks") for path in (ROOT / folder).rglob("*.py")
               if not path.name.startswith("ask_")]
    own = {"prose", *(path.stem for path in scripts if "memtier" not in path.relative_to(ROOT).parts)}
    own |= {"sphinxcontrib"}  # not a package but a name that many share
    sources = [(path, path.read_text(encoding="utf-8")) for path in scripts]
    for path in notebooks.all_notebooks():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources += [(path, "".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    for path, source in sources:
        yield path, {(one or other).partition(".")[0] for one, other in IMPORT.findall(source)} - own - {""}


def pins(name):
    """Package → version, as one requirements file pins them."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE)
    return {package.lower().replace("_", "-"): version for package, version in lines}
