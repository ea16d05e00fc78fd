"""When the book is built again: whenever something that goes into it changed, and only then; what a reader has then."""

import fcntl
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import build
import pytest


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small repository, whose book is made by a stand-in for Jupyter Book, and the list of the builds made."""
    for name in ("book/one.ipynb", "memtier/units.py", "exercises/one.ipynb", "tools/build.py", "_toc.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("first")
    (tmp_path / "requirements-book.txt").write_text("# the book\nthe-book==1  # and what it needs\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "SITE", tmp_path / "_build" / "html")
    monkeypatch.setattr(build, "STAMP", tmp_path / "_build" / "built-from")
    packages = {
        "the-book": SimpleNamespace(version="1", requires=["Sphinx>=7", "torch; extra == 'all'", "no.where"]),
        "sphinx": SimpleNamespace(version="7", requires=None),
        "torch": SimpleNamespace(version="2", requires=None),
    }
    builds = []

    def distribution(name):
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    def jupyter_book(command, **_):
        content = (tmp_path / "book" / "one.ipynb").read_text()
        builds.append(content)
        folder = Path(command[command.index("--path-output") + 1]) / "_build" / "html"
        (folder.parent / "browser-python" / "compiled").write_text("kept")
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(content)
        return SimpleNamespace(returncode=2 if content == "broken" else 0, stdout="")

    monkeypatch.setattr(build.metadata, "distribution", distribution)
    monkeypatch.setattr(build.subprocess, "run", jupyter_book)
    assert build.main([]) == 0
    return SimpleNamespace(root=tmp_path, builds=builds, packages=packages, page=build.SITE / "index.html")


def test_nothing_changed_nothing_built(tree):
    (tree.root / "memtier" / "__pycache__").mkdir()
    (tree.root / "memtier" / "__pycache__" / "units.pyc").write_text("compiled")
    (tree.root / "README.md").write_text("no part of the book")
    (tree.root / "book" / "one.ipynb").touch()
    assert build.main([]) == 0
    assert len(tree.builds) == 1


@pytest.mark.parametrize("name", ["book/one.ipynb", "book/new.md", "memtier/units.py", "exercises/one.ipynb"])
def test_a_changed_or_new_file_builds(tree, name):
    (tree.root / name).write_text("other")
    assert build.main([]) == 0
    assert build.main([]) == 0
    assert len(tree.builds) == 2


def test_a_removed_file_a_removed_site_and_force_build(tree):
    (tree.root / "exercises" / "one.ipynb").unlink()
    build.main([])
    tree.page.unlink()
    build.main([])
    build.main(["--force"])
    assert len(tree.builds) == 4


def test_only_the_packages_that_make_the_book_count(tree):
    tree.packages["hypothesis"] = SimpleNamespace(version="6", requires=None)
    tree.packages["torch"].version = "3"
    build.main([])
    assert len(tree.builds) == 1
    tree.packages["sphinx"].version = "8"
    build.main([])
    assert len(tree.builds) == 2
    tree.packages["no-where"] = SimpleNamespace(version="1", requires=None)
    build.main([])
    assert len(tree.builds) == 3


def test_the_packages_of_this_book():
    made_by = build.versions()
    assert {"jupyter-book", "sphinx", "docutils", "nbformat", "markdown-it-py", "myst-parser", "pybtex"} <= set(made_by)
    assert not {"torch", "hypothesis", "playwright", "pytest", "memtier"} & set(made_by)
    assert "missing" not in made_by.values()
    assert made_by["sphinx"] == metadata.version("sphinx")


def test_a_failed_build_leaves_the_last_book_and_is_not_taken_for_a_built_one(tree, capsys):
    (tree.root / "book" / "one.ipynb").write_text("broken")
    assert build.main([]) == 2
    assert build.main([]) == 2
    assert "not built. The last one that was is still there" in capsys.readouterr().err
    assert tree.page.read_text() == "first"
    (tree.root / "book" / "one.ipynb").write_text("first")
    assert build.main([]) == 0
    assert tree.builds == ["first", "broken", "broken"]


def test_the_last_book_is_there_while_the_next_is_made_and_nothing_is_left_beside_it(tree, monkeypatch):
    make = build.subprocess.run
    seen = []
    monkeypatch.setattr(build.subprocess, "run", lambda *a, **k: (seen.append(tree.page.read_text()), make(*a, **k))[1])
    (tree.root / "book" / "one.ipynb").write_text("second")
    (build.SITE.parent / "work").mkdir()  # of a build that was killed
    assert build.main([]) == 0
    assert (seen, tree.page.read_text()) == (["first"], "second")
    assert {path.name for path in build.SITE.parent.iterdir()} == {"html", "built-from", "lock", "browser-python"}
    assert (build.SITE.parent / "browser-python" / "compiled").is_file()


def test_one_build_at_a_time(tmp_path):
    script = f"import build, pathlib\nwith build.alone(pathlib.Path({str(tmp_path)!r})): print('in')"
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(build.__file__).parent) as other:
            assert "Waiting" in other.stdout.readline()
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert other.stdout.readline() == "in\n"
