"""Puts Python for the reader's browser into the built site: Pyodide's core and memtier, byte-compiled, nothing else.

The core comes from the npm package that package-lock.json pins with its integrity hash. The lock file in that package
names some 350 packages that are not there; the one written here names memtier only, so that nothing can be looked for
elsewhere.
"""

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

BYTE_COMPILE = Path(__file__).with_name("byte_compile.mjs")
CORE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
PACKED_FILES = ("pyodide.asm.mjs", "pyodide.asm.wasm")  # 11 MB that become 4 where the server can send NAME.gz for NAME
NOT_IN_BROWSER = ("lab/", "live/jupyter.py")  # torch and ipywidgets: the browser has neither

# A fifth of Python's standard library: debuggers, servers, mail, processes. No formula asks for them in a page.
UNUSED = (
    *("_pyrepl/", "multiprocessing/", "unittest/", "wsgiref/", "xmlrpc/", "_pydatetime.py", "_pyio.py", "bdb.py"),
    *("doctest.py", "ftplib.py", "imaplib.py", "mailbox.py", "pdb.py", "pickletools.py", "pydoc.py", "smtplib.py"),
)


def assemble(root: Path, out: Path, cache: Path) -> None:
    """Write to `out` all that `loadPyodide({indexURL: out, packages: ["memtier"]})` asks for.

    root: the repository, with node_modules installed. cache: where compiled and packed files are kept between builds.
    Raises FileNotFoundError when node_modules is missing, subprocess.CalledProcessError when the compiling fails.
    """
    core = root / "node_modules" / "pyodide"
    wheel_name, wheel = memtier_wheel(root)
    stdlib, wheel = byte_compiled([used_part((core / "python_stdlib.zip").read_bytes()), wheel], core, cache)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in CORE_FILES:
        shutil.copyfile(core / name, out / name)
    for name in PACKED_FILES:
        (out / f"{name}.gz").write_bytes(packed((core / name).read_bytes(), cache))
    (out / "python_stdlib.zip").write_bytes(stdlib)
    (out / wheel_name).write_bytes(wheel)
    lock = json.loads((core / "pyodide-lock.json").read_text())
    lock["packages"] = {"memtier": lock_entry(wheel_name, wheel)}
    (out / "pyodide-lock.json").write_text(json.dumps(lock, indent=1, sort_keys=True) + "\n")


def memtier_wheel(root: Path) -> tuple[str, bytes]:
    """Name and bytes of memtier's wheel for the browser; the same sources always give the same bytes."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    info = f"{name}-{version}.dist-info"
    members = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: memtier\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    package = root / name
    for path in sorted([*package.rglob("*.py"), *package.glob("data/*.toml")]):
        inside = path.relative_to(package).as_posix()
        if not inside.startswith(NOT_IN_BROWSER):
            members[f"{name}/{inside}"] = path.read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as wheel:
        for member, data in members.items():
            wheel.writestr(zipfile.ZipInfo(member), data, zipfile.ZIP_DEFLATED)
    return f"{name}-{version}-py3-none-any.whl", archive.getvalue()


def used_part(stdlib: bytes) -> bytes:
    """The standard library without the modules that no page needs."""
    kept = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(stdlib)) as old, zipfile.ZipFile(kept, "w") as new:
        for member in old.infolist():
            if not member.filename.startswith(UNUSED):
                new.writestr(member, old.read(member))
    return kept.getvalue()


def byte_compiled(archives: list[bytes], core: Path, cache: Path) -> list[bytes]:
    """The archives with compiled modules in place of sources. Runs Node only for what the cache does not hold yet."""
    cache.mkdir(parents=True, exist_ok=True)
    compiler = BYTE_COMPILE.read_bytes() + (core / "package.json").read_bytes()
    done = [cache / f"{hashlib.sha256(compiler + each).hexdigest()}.zip" for each in archives]
    missing = [(source, target) for source, target in zip(archives, done, strict=True) if not target.exists()]
    if missing:
        command = ["node", BYTE_COMPILE, core]
        for source, target in missing:
            plain, partial = target.with_suffix(".plain"), target.with_suffix(".partial")
            plain.write_bytes(source)
            command += [plain, partial]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for _, target in missing:
            target.with_suffix(".partial").rename(target)  # complete, or not there at all
            target.with_suffix(".plain").unlink()
    return [each.read_bytes() for each in done]


def packed(data: bytes, cache: Path) -> bytes:
    """The data as gzip packs it; the same data always give the same bytes."""
    done = cache / f"{hashlib.sha256(data).hexdigest()}.gz"
    if not done.exists():
        done.with_suffix(".partial").write_bytes(gzip.compress(data, mtime=0))
        done.with_suffix(".partial").rename(done)
    return done.read_bytes()


def download_size(out: Path) -> int:
    """Bytes a browser downloads from the folder that assemble wrote, packed files as packed."""
    names = {path.name: path.stat().st_size for path in out.iterdir()}
    return sum(names.get(f"{name}.gz", size) for name, size in names.items() if not name.endswith(".gz"))


def lock_entry(file_name: str, wheel: bytes) -> dict:
    """What Pyodide's lock file says of one package; the browser refuses a file with another hash."""
    name, version = file_name.split("-")[:2]
    return {
        "name": name,
        "version": version,
        "file_name": file_name,
        "sha256": hashlib.sha256(wheel).hexdigest(),
        "install_dir": "site",
        "package_type": "package",
        "imports": [name],
        "depends": [],
        "unvendored_tests": False,
    }
