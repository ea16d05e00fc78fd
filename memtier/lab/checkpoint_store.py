"""One place that holds checkpoint versions: a folder, a shared folder or a bucket, each through fsspec.

A version is a folder of files and a manifest, which is written last, and atomically. The manifest names every file
with its size and its SHA-256. What has no manifest is no version yet; what does not match its manifest is damaged.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

MANIFEST = "manifest.json"
VERSION = re.compile(r"step-(\d{10})-[0-9a-f]{8}")  # a version's name; what is called otherwise is left alone
BLOCK = 1 << 20  # bytes that are read, hashed and written at a time


class Damaged(Exception):
    """A version is not what its manifest says, or its manifest is not what was written; says which file and how."""


class Hash:
    """Size and SHA-256 of the bytes that went past."""

    def __init__(self):
        self.nbytes, self._sha = 0, hashlib.sha256()

    def add(self, block) -> None:
        self._sha.update(block)
        self.nbytes += len(block)

    @property
    def entry(self) -> dict[str, Any]:
        """What the manifest says of a file."""
        return {"bytes": self.nbytes, "sha256": self._sha.hexdigest()}


@dataclass(frozen=True)
class Store:
    """Where versions are kept, how often one is sent there and how many stay.

    name: for messages. url: a folder's path, or whatever fsspec opens: file://…, s3://bucket/run.
    every: seconds from one version to the next. keep: newest good versions that retention spares, 1 or more.
    options: fsspec's own, such as endpoint_url for s3.
    """

    name: str
    url: str
    every: float
    keep: int = 2
    options: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def _opened(self) -> tuple[fsspec.AbstractFileSystem, str]:
        return url_to_fs(self.url, **self.options)

    @property
    def fs(self) -> fsspec.AbstractFileSystem:
        """fsspec's file system, connected on first use."""
        return self._opened[0]

    @property
    def is_folder(self) -> bool:
        """A folder of this machine, where files can be synced and renamed; an object store has neither need."""
        return isinstance(self.fs, LocalFileSystem)

    def path(self, *parts: str) -> str:
        """Where a version, or a file of it, lies within `fs`."""
        return "/".join([self._opened[1].rstrip("/"), *parts])

    def contents(self) -> dict[str, set[str]]:
        """Every version, complete or not → names of its files."""
        self.fs.invalidate_cache()  # other processes write here too
        found: dict[str, set[str]] = {}
        start = len(self.path()) + 1
        for path in self.fs.find(self.path()):
            version, _, name = path[start:].partition("/")
            if name and VERSION.fullmatch(version):
                found.setdefault(version, set()).add(name)
        return found

    def complete(self) -> list[str]:
        """Versions with a manifest, newest first. Whether they match it, check() says."""
        return sorted((version for version, names in self.contents().items() if MANIFEST in names), reverse=True)

    def manifest(self, version: str) -> dict[str, Any]:
        """version, step, ranks, and files: name → bytes and sha256. Raises Damaged."""
        try:
            sealed = json.loads(self.fs.cat_file(self.path(version, MANIFEST)))
            body = sealed["body"]
            whole = sealed["sha256"] == _seal(body) and body["version"] == version
        except FileNotFoundError:
            raise Damaged("its manifest is missing") from None
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise Damaged("its manifest is damaged")
        return body

    def check(self, version: str, part: int = 0, parts: int = 1) -> None:
        """Read a version back, or one of `parts` equal parts of its files. Raises Damaged at the first difference."""
        for name, expected in sorted(self.manifest(version)["files"].items())[part::parts]:
            found = Hash()
            try:
                for block in self.read(version, name):
                    found.add(block)
            except FileNotFoundError:
                raise Damaged(f"{name} is missing") from None
            _compare(name, found.entry, expected)

    def read(self, version: str, name: str) -> Iterator[bytes]:
        """A file, block by block."""
        with self.fs.open(self.path(version, name), "rb") as file:
            while block := file.read(BLOCK):
                yield block

    def write(self, version: str, name: str, blocks: Iterable[bytes]) -> dict[str, Any]:
        """A file, which is on the disk when this returns; what a manifest says of it."""
        written = Hash()
        self.fs.makedirs(self.path(version), exist_ok=True)
        with self.fs.open(self.path(version, name), "wb") as file:
            for block in blocks:
                file.write(block)
                written.add(block)
            if self.is_folder:
                file.flush()
                os.fsync(file.fileno())
        return written.entry

    def commit(self, version: str, body: dict[str, Any]) -> None:
        """Write the manifest. All files must be there: from this moment on the version counts."""
        data = json.dumps({"body": body, "sha256": _seal(body)}, indent=1).encode()
        path = self.path(version, MANIFEST)
        if not self.is_folder:
            self.fs.pipe_file(path, data)  # an object appears whole or not at all
            return
        folder, temporary = Path(path).parent, Path(path + ".tmp")
        _sync_folder(folder)  # the files' names, before the manifest that promises them
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(folder)
        _sync_folder(folder.parent)

    def copy_from(self, source: "Store", version: str, progress: Callable[[int, int], None]) -> None:
        """Copy a version of another store, checking it on the way; the manifest comes last here too.

        progress: called with bytes copied and bytes in all, before each block and before the manifest. Raises Damaged
        when the source is, OSError and whatever the file system raises otherwise; then there is no manifest here.
        """
        body = source.manifest(version)
        total, done = sum(each["bytes"] for each in body["files"].values()), 0
        for name, expected in sorted(body["files"].items()):

            def passing(name=name):
                nonlocal done
                for block in source.read(version, name):
                    progress(done, total)
                    yield block
                    done += len(block)

            try:
                entry = self.write(version, name, passing())
            except FileNotFoundError as error:
                if source.fs.exists(source.path(version, name)):
                    raise
                raise Damaged(f"{name} is missing") from error
            _compare(name, entry, expected)
        progress(total, total)
        self.commit(version, body)

    def remove(self, version: str) -> None:
        """Delete a version, its manifest first: what is half deleted must not look complete."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self.path(version, MANIFEST))
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.path(version), recursive=True)

    def retain(self, say: Callable[[str], None], spare: Iterable[str] = ()) -> None:
        """Delete what is older than the `keep` newest good versions, and whatever is half written.

        Good means read back and found whole, now: the last good version stays whatever stands above it.
        To be called while nothing is being written here. spare: versions still to be copied elsewhere.
        """
        good, found = 0, self.contents()
        for version in sorted(found, reverse=True):
            if MANIFEST not in found[version]:
                self.remove(version)
            elif good < self.keep:
                try:
                    self.check(version)
                    good += 1
                except Damaged as damage:
                    say(f"{self.name}: {version} is damaged ({damage}); it does not count as kept")
            elif version not in spare:
                self.remove(version)


def name_of(step: int, run: str) -> str:
    """A version's name: names sort as steps do, and no two starts of a job ever write the same version."""
    return f"step-{step:010d}-{run}"


def step_of(version: str) -> int:
    """The step in a version's name."""
    return int(VERSION.fullmatch(version)[1])


def _seal(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _compare(name: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found["bytes"] != expected["bytes"]:
        raise Damaged(f"{name} has {found['bytes']:,} of {expected['bytes']:,} bytes")
    if found != expected:
        raise Damaged(f"{name} has another checksum than its manifest says")


def _sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk; fsync of a file does not."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
