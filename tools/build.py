"""Builds the book into _build/html, unless nothing that goes into it has changed since the last time.

    python tools/build.py [--force]

Warnings are errors: a broken reference does not reach a reader. `node` must be on the PATH (the Makefile sees to it).
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
STAMP = ROOT / "_build" / "built-from"  # the fingerprint of what _build/html was built from
INPUTS = ("_config.yml", "_toc.yml", "package-lock.json", "book", "exercises", "memtier", "tools")
NOT_INPUTS = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}


def fingerprint() -> str:
    """A hash over the content of every file the book is made of, and the versions of the packages that make it."""
    digest = hashlib.sha256(sys.version.encode())
    for name, version in sorted({(each.name, each.version) for each in distributions()}):
        digest.update(f"{name}=={version}\n".encode())
    for start in INPUTS:
        for path in sorted([ROOT / start, *(ROOT / start).rglob("*")]):
            if path.is_file() and not NOT_INPUTS.intersection(path.parts):
                digest.update(f"{path.relative_to(ROOT)}\n{path.stat().st_size}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def build() -> int:
    """Run Jupyter Book from nothing: an incremental build can keep pages that a change elsewhere made stale."""
    for leftover in (SITE, ROOT / "_build" / ".doctrees"):
        shutil.rmtree(leftover, ignore_errors=True)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", str(ROOT), "-W", "-n", "--keep-going", "-q"]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # what is wrong goes to stderr, at once
    if run.returncode:
        print(run.stdout)
    return run.returncode


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the book.")
    parser.add_argument("--force", action="store_true", help="build even when nothing has changed")
    force = parser.parse_args(arguments).force
    now = fingerprint()
    if not force and STAMP.is_file() and STAMP.read_text() == now and (SITE / "index.html").is_file():
        return 0
    STAMP.unlink(missing_ok=True)
    print("Building the book …", flush=True)
    began = time.monotonic()
    if failed := build():
        print("The book was not built.", file=sys.stderr)
        return failed
    STAMP.write_text(now)
    print(f"Built in {time.monotonic() - began:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
