"""When the book is built again: whenever something that goes into it changed, and only then."""

import build
import pytest


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small repository whose builds are counted instead of done; tree.builds holds their number."""
    for name in ("book/one.ipynb", "memtier/units.py", "exercises/one.ipynb", "tools/build.py", "_toc.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("first")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "SITE", tmp_path / "_build" / "html")
    monkeypatch.setattr(build, "STAMP", tmp_path / "_build" / "built-from")
    builds = []

    def count():
        builds.append(1)
        build.SITE.mkdir(parents=True, exist_ok=True)
        (build.SITE / "index.html").write_text("built")
        return 0

    monkeypatch.setattr(build, "build", count)
    assert build.main([]) == 0
    return tmp_path, builds


def test_nothing_changed_nothing_built(tree):
    root, builds = tree
    (root / "memtier" / "__pycache__").mkdir()
    (root / "memtier" / "__pycache__" / "units.pyc").write_text("compiled")
    (root / "README.md").write_text("no part of the book")
    (root / "book" / "one.ipynb").touch()
    assert build.main([]) == 0
    assert len(builds) == 1


@pytest.mark.parametrize("name", ["book/one.ipynb", "book/new.md", "memtier/units.py", "exercises/one.ipynb"])
def test_a_changed_or_new_file_builds(tree, name):
    root, builds = tree
    (root / name).write_text("other")
    assert build.main([]) == 0
    assert build.main([]) == 0
    assert len(builds) == 2


def test_a_removed_file_a_removed_site_and_force_build(tree):
    root, builds = tree
    (root / "exercises" / "one.ipynb").unlink()
    build.main([])
    (build.SITE / "index.html").unlink()
    build.main([])
    build.main(["--force"])
    assert len(builds) == 4


def test_a_failed_build_is_not_taken_for_a_built_book(tree, monkeypatch, capsys):
    root, _ = tree
    (root / "book" / "one.ipynb").write_text("broken")
    monkeypatch.setattr(build, "build", lambda: 2)
    assert build.main([]) == 2
    assert build.main([]) == 2
    assert "not built" in capsys.readouterr().err
