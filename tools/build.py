"""Builds the book into _build/html, unless nothing that goes into it has changed since the last time.

    python tools/build.py [--force]

Warnings are errors: a broken reference does not reach a reader. The new site is made beside the one there is and takes
its place when it is whole, so the book can be read meanwhile, and after a failed build too. One build runs at a time.
`node` must be on the PATH (the Makefile sees to it).
"""

import argparse
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
STAMP = ROOT / "_build" / "built-from"  # the fingerprint of what _build/html was built from
INPUTS = ("_config.yml", "_toc.yml", "package-lock.json", "pyproject.toml", "book", "exercises", "memtier", "tools")
NOT_INPUTS = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}


def versions() -> dict[str, str]:
    """Package → version, of those in requirements-book.txt and all that these need; nothing else that is installed."""
    todo = re.findall(r"^[\w.-]+(?===)", (ROOT / "requirements-book.txt").read_text(), re.MULTILINE)
    found = {}
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
            continue
        found[name] = package.version
        needs = [Requirement(line) for line in package.requires or ()]
        todo += [each.name for each in needs if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def fingerprint() -> str:
    """A hash over the content of every file the book is made of, and the versions of the packages that make it."""
    digest = hashlib.sha256(sys.version.encode())
    for name, version in sorted(versions().items()):
        digest.update(f"{name}=={version}\n".encode())
    for start in INPUTS:
        for path in sorted([ROOT / start, *(ROOT / start).rglob("*")]):
            if path.is_file() and not NOT_INPUTS.intersection(path.parts):
                digest.update(f"{path.relative_to(ROOT)}\n{path.stat().st_size}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait for any other build of this folder to end, and keep others out until this one has."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another build of the book …", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build() -> int:
    """Run Jupyter Book from nothing: an incremental build can keep pages that a change elsewhere made stale."""
    work = SITE.parent / "work"
    made = work / "_build" / "html"  # where Jupyter Book puts it
    old = work / "old"
    cache = SITE.parent / "browser-python"  # the one thing kept from build to build
    shutil.rmtree(work, ignore_errors=True)
    made.parent.mkdir(parents=True)
    cache.mkdir(exist_ok=True)
    (made.parent / cache.name).symlink_to(cache)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", str(ROOT), "--path-output", str(work)]
    command += ["-W", "-n", "--keep-going", "-q"]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # what is wrong goes to stderr, at once
    if run.returncode:
        print(run.stdout)
    else:
        STAMP.unlink(missing_ok=True)
        if SITE.exists():
            SITE.rename(old)
        made.rename(SITE)
    shutil.rmtree(work)
    return run.returncode


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the book.")
    parser.add_argument("--force", action="store_true", help="build even when nothing has changed")
    force = parser.parse_args(arguments).force
    with alone(SITE.parent):
        now = fingerprint()
        if not force and STAMP.is_file() and STAMP.read_text() == now and (SITE / "index.html").is_file():
            return 0
        print("Building the book …", flush=True)
        began = time.monotonic()
        if failed := build():
            kept = " The last one that was is still there." if (SITE / "index.html").is_file() else ""
            print(f"The book was not built.{kept}", file=sys.stderr)
            return failed
        STAMP.write_text(now)
        print(f"Built in {time.monotonic() - began:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
