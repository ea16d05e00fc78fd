"""Measure your own ladder: memory copies, the disk with the page cache out of the way, small reads, a GPU.

    python -m memtier.lab.tiers --out my-ladder.json

Bounded in time and disk; the scratch file has no name while it is in use, so nothing is left behind, not even by a
kill. What cannot be measured is listed with the reason. Seen on Linux (ext4, with O_DIRECT and without);
the GPU part, macOS and Windows have not been exercised. A drive's own cache and a hypervisor's stay in the figures.
"""

import argparse
import contextlib
import datetime
import errno
import importlib.util
import itertools
import mmap
import os
import platform
import random
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from memtier import checks, units
from memtier.own_ladder import Measured, NotMeasured, OwnLadder
from memtier.units import GiB, KiB, MiB

CHUNK = 8 * MiB  # one sequential request
SMALL = 4 * KiB  # one small read
IN_FLIGHT = (1, 4, 16)  # threads that read small blocks at the same time
LEAST_DISK = 16 * MiB
LEAST_DRAM = 256 * MiB  # a copy large enough that the memory's speed shows, whatever the cache
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")  # file systems that are no disk
F_NOCACHE = 48  # fcntl command of macOS, from its <fcntl.h>
OF_A_GPU = (("HBM", "copy"), ("PCIe", "to device"), ("PCIe", "from device"))
LONGEST_REASON = 200  # characters of CUDA's own words; it has been known to give advice
SHARES = {"memory": 0.2, "write": 0.25, "read": 0.2, "small read": 0.25, "gpu": 0.1}  # of the seconds


def measure(folder: str | Path = ".", *, seconds: float = 12.0, disk: int = GiB) -> OwnLadder:
    """Measure this machine's tiers.

    folder: where the scratch file goes, and so which disk is measured. seconds: time for all measurements together
    (imports come on top). disk: bytes of the scratch file at most, 16 MiB or more.
    Raises ValueError naming argument, value and what is allowed.
    """
    checks.positive("seconds", seconds)
    disk = checks.whole("disk", disk, least=LEAST_DISK)
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder is {str(folder)!r}; it must be a folder that exists")
    found: list = [*_memory(seconds * SHARES["memory"]), *_disk(folder, disk // CHUNK * CHUNK, seconds)]
    gpu, accelerator = _gpu(seconds * SHARES["gpu"])
    found += gpu
    about = {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count(),
             "memory": _memory_size(), "file system": _file_system(folder), "accelerator": accelerator}
    return OwnLadder(date=datetime.date.today().isoformat(), platform=about,
                     measured=tuple(each for each in found if isinstance(each, Measured)),
                     not_measured=tuple(each for each in found if isinstance(each, NotMeasured)))


# Memory


def _memory(seconds: float) -> Iterator[Measured | NotMeasured]:
    """Copies within the last-level cache by one core, and outside it by one and by all cores."""
    cache, memory = _cache_size(), _memory_size()
    known = "" if cache else "; size of the cache unknown, 8 MiB assumed"
    cache = cache or 8 * MiB
    small = min(max(cache // 8, 256 * KiB), 4 * MiB)
    yield _copy("CPU cache", small, 1, seconds / 3, known)
    large = max(4 * cache, LEAST_DRAM)
    if memory and large > memory // 8:
        large = memory // 8
    if large < 2 * cache:
        yield NotMeasured("CPU DRAM", "copy", "an eighth of this machine's memory is not much more than its cache")
        return
    for threads in sorted({1, os.cpu_count() or 1}):
        yield _copy("CPU DRAM", large, threads, seconds / 3, known)


def _copy(rung: str, size: int, threads: int, seconds: float, known: str) -> Measured:
    """The best rate at which `threads` cores together copy `size` bytes."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    cuts = [size * n // threads for n in range(threads + 1)]
    slices = [slice(start, stop) for start, stop in itertools.pairwise(cuts)]
    times = max(1, 32 * MiB // size)  # small copies many times over, so that the clock and the threads do not count

    def work(part: slice) -> None:
        for _ in range(times):
            np.copyto(target[part], source[part])

    with ThreadPoolExecutor(threads) as pool:
        best = _best(lambda: list(pool.map(work, slices)), seconds)
    return Measured(rung, "copy", bandwidth=2 * size * times / best, size=size, in_flight=threads,
                    note=f"bytes read and bytes written, {_cores(threads)}{known}")


def _cores(threads: int) -> str:
    return "one core" if threads == 1 else f"{threads} cores"


def _best(work: Callable, seconds: float) -> float:
    """The shortest of several runs of `work`, in seconds; the first run only warms up."""
    work()
    end, best = time.perf_counter() + seconds, float("inf")
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _cache_size() -> int | None:
    """Bytes of the last-level cache, where Linux says so."""
    sizes = []
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(entry.read_text().strip().removesuffix("K")) * KiB)
    return max(sizes, default=None)


def _memory_size() -> int | None:
    """Bytes of main memory, where the system says so."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


# The disk


def _disk(folder: Path, nbytes: int, seconds: float) -> Iterator[Measured | NotMeasured]:
    """Sequential write and read, then small reads, of one scratch file."""
    why = _no_disk(folder, nbytes)
    if why is None:
        try:
            yield from _through_scratch(folder, nbytes, seconds)
            return
        except OSError as error:
            why = f"the system refused: {error.strerror or error}"
    for what in ("sequential write", "sequential read", "small read"):
        yield NotMeasured("NVMe", what, why)


def _no_disk(folder: Path, nbytes: int) -> str | None:
    """Why the disk cannot be measured, or None."""
    if not hasattr(os, "preadv"):
        return f"Python on {platform.system()} cannot read around the page cache"
    kind = _file_system(folder)
    if kind in IN_MEMORY:
        return f"the folder is in memory ({kind}), not on a disk; choose another"
    free = shutil.disk_usage(folder).free
    if free < 2 * nbytes:
        return (f"{units.format_bytes(free)} are free; the scratch file takes {units.format_bytes(nbytes)} "
                "and must leave as much again")
    return None


def _through_scratch(folder: Path, nbytes: int, seconds: float) -> list[Measured]:
    with _scratch(folder) as (file, how), mmap.mmap(-1, CHUNK) as block:
        block.write(os.urandom(CHUNK))  # a drive or file system that compresses gains nothing
        written, spent = _write(file, block, nbytes, seconds * SHARES["write"], how)
        figures = [_rate("sequential write", written, spent, how)]
        read, spent = _read(file, block, written, seconds * SHARES["read"])
        figures.append(_rate("sequential read", read, spent, how))
        for in_flight in IN_FLIGHT:
            reads, spent = _small_reads(file, written, in_flight, seconds * SHARES["small read"] / len(IN_FLIGHT))
            figures.append(Measured("NVMe", "small read", bandwidth=reads * SMALL / spent,
                                    latency=in_flight * spent / reads, size=reads * SMALL, request=SMALL,
                                    in_flight=in_flight, note=f"random, {how}"))
        return figures


def _rate(what: str, nbytes: int, spent: float, how: str) -> Measured:
    return Measured("NVMe", what, bandwidth=nbytes / spent, size=nbytes, request=CHUNK, note=how)


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[tuple[int, str]]:
    """(file descriptor, how the page cache is kept out) of a file whose name is gone before it is used."""
    named, name = tempfile.mkstemp(prefix="memtier-ladder-", dir=folder)
    try:
        os.close(named)
        file, how = _open_around_cache(name)
    finally:
        os.unlink(name)
    try:
        yield file, how
    finally:
        os.close(file)


def _open_around_cache(name: str) -> tuple[int, str]:
    """Open for reading and writing with O_DIRECT, or where that is refused, in the next best way."""
    if hasattr(os, "O_DIRECT"):
        try:
            file = os.open(name, os.O_RDWR | os.O_DIRECT)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
        else:
            if _takes_direct(file):
                return file, "O_DIRECT"
            os.close(file)
    file = os.open(name, os.O_RDWR)
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(file, F_NOCACHE, 1)
        return file, "F_NOCACHE"
    return file, "fsync, then page cache dropped"


def _takes_direct(file: int) -> bool:
    """Whether a direct write works: some file systems accept the flag and refuse the first request."""
    with mmap.mmap(-1, SMALL) as block:
        try:
            return os.pwrite(file, block, 0) == SMALL
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            return False


def _write(file: int, block: mmap.mmap, nbytes: int, seconds: float, how: str) -> tuple[int, float]:
    """(bytes, seconds) of writing until nbytes are on the disk or the time is up."""
    start, offset = time.perf_counter(), 0
    while offset < nbytes and (offset == 0 or time.perf_counter() - start < seconds):
        _whole(os.pwrite(file, block, offset))
        offset += CHUNK
        if how != "O_DIRECT" and offset % (8 * CHUNK) == 0:
            os.fsync(file)  # now and then, so that one at the end cannot take far longer than `seconds`
    os.fsync(file)
    return offset, time.perf_counter() - start


def _read(file: int, block: mmap.mmap, nbytes: int, seconds: float) -> tuple[int, float]:
    """(bytes, seconds) of reading the file from its start until it ends or the time is up."""
    _drop_cache(file)
    start, offset = time.perf_counter(), 0
    while offset < nbytes and (offset == 0 or time.perf_counter() - start < seconds):
        _whole(os.preadv(file, [block], offset))
        offset += CHUNK
    return offset, time.perf_counter() - start


def _whole(moved: int) -> None:
    if moved != CHUNK:
        raise OSError(errno.EIO, f"{moved} bytes moved where {CHUNK} were asked for")


def _small_reads(file: int, nbytes: int, in_flight: int, seconds: float) -> tuple[int, float]:
    """(reads, seconds) of `in_flight` threads reading random blocks, none of them twice."""
    _drop_cache(file)
    offsets = [block * SMALL for block in range(nbytes // SMALL)]
    random.Random(in_flight).shuffle(offsets)
    start = time.perf_counter()
    end = start + seconds

    def work(mine: list[int]) -> int:
        done = 0
        with mmap.mmap(-1, SMALL) as block:
            for offset in mine:
                os.preadv(file, [block], offset)
                done += 1
                if time.perf_counter() >= end:
                    break
        return done

    with ThreadPoolExecutor(in_flight) as pool:
        reads = sum(pool.map(work, [offsets[n::in_flight] for n in range(in_flight)]))
    return reads, time.perf_counter() - start


def _drop_cache(file: int) -> None:
    """Ask the system to forget what it keeps of the file; harmless where the cache was never used."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # and not to read ahead of what is asked


def _file_system(folder: Path) -> str | None:
    """The type of the file system that holds the folder, where Linux says so."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    here = str(folder.resolve())
    fitting = [(len(point), kind) for _, point, kind, *_ in map(str.split, mounts)
               if here == point or here.startswith(point.rstrip("/") + "/")]
    return max(fitting, default=(0, None), key=lambda each: each[0])[1]


# A GPU


def _gpu(seconds: float) -> tuple[list[Measured | NotMeasured], str | None]:
    """Copies within the first CUDA device's memory and over its link, from and to pinned memory; and its name.

    Where something of it fails, what was measured before stays.
    """
    found, name = [], None
    why = "torch is not installed"
    if importlib.util.find_spec("torch") is not None:
        try:
            import torch

            why = "torch sees no CUDA device"
            if torch.cuda.is_available():
                name = torch.cuda.get_device_name()
                for figure in _through_gpu(seconds):
                    found.append(figure)
        except (ImportError, OSError, RuntimeError) as error:  # its libraries, its driver, its memory, no pages to pin
            why = "CUDA refused: " + textwrap.shorten(str(error) or type(error).__name__, LONGEST_REASON)
    done = {(each.rung, each.what) for each in found}
    return [*found, *(NotMeasured(*each, why) for each in OF_A_GPU if each not in done)], name


def _through_gpu(seconds: float) -> Iterator[Measured]:
    """The figures of OF_A_GPU. Raises RuntimeError where CUDA does, or where hardly any of its memory is free."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    size = min(GiB, free // 8)
    if size < MiB:
        raise RuntimeError(f"{units.format_bytes(free)} of the device's memory are free, too little for a copy")
    source = torch.ones(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def timed(to, origin) -> float:
        def work():
            to.copy_(origin, non_blocking=True)
            torch.cuda.synchronize()

        return _best(work, seconds / 3)

    yield Measured("HBM", "copy", bandwidth=2 * size / timed(target, source), size=size,
                   note="bytes read and bytes written")
    host = torch.empty(min(size, 256 * MiB), dtype=torch.uint8, pin_memory=True)
    part = source[:host.numel()]
    for what, to, origin in (("to device", part, host), ("from device", host, part)):
        yield Measured("PCIe", what, bandwidth=host.numel() / timed(to, origin), size=host.numel(),
                       note="pinned memory, one direction")


def _main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m memtier.lab.tiers", description="Measure your own ladder.")
    parser.add_argument("--out", default="my-ladder.json", help="the file to write (default: %(default)s)")
    parser.add_argument("--folder", default=".", help="a folder on the disk to measure (default: the current one)")
    parser.add_argument("--seconds", type=float, default=12.0, help="for all measurements (default: %(default)s)")
    parser.add_argument("--disk", default="1 GiB", help="size of the scratch file at most (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        ladder = measure(chosen.folder, seconds=chosen.seconds, disk=int(units.parse_bytes(chosen.disk)))
    except ValueError as error:
        parser.error(str(error))
    print(ladder)
    print(f"written to {ladder.save(chosen.out)}")


if __name__ == "__main__":
    _main()
