"""The ladder lab: bounded, tidy, and honest about what it could not measure. No test here looks at a speed."""

import errno
import json
import os
import shutil
from types import SimpleNamespace

import pytest
import torch

from memtier import own_ladder
from memtier.lab import tiers as lab
from memtier.units import MiB

BRIEF = {"seconds": 0.2, "disk": lab.LEAST_DISK}
DISK_WHATS = {"sequential write", "sequential read", "small read"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small caches and copies, no GPU, and a folder that counts as a disk even where it lies in memory."""
    monkeypatch.setattr(lab, "_cache_size", lambda: 2 * MiB)
    monkeypatch.setattr(lab, "LEAST_DRAM", 8 * MiB)
    monkeypatch.setattr(lab, "_file_system", lambda folder: "testfs")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def folder(tmp_path):
    """An empty folder that has to be empty again afterwards."""
    path = tmp_path / "disk"
    path.mkdir()
    yield path
    assert list(path.iterdir()) == []


def whats(figures) -> set[tuple[str, str]]:
    return {(each.rung, each.what) for each in figures}


def test_measures_what_a_machine_without_a_gpu_has(folder, tmp_path):
    ladder = lab.measure(folder, **BRIEF)
    assert whats(ladder.measured) == {("CPU cache", "copy"), ("CPU DRAM", "copy"), *(("NVMe", w) for w in DISK_WHATS)}
    assert whats(ladder.not_measured) == {("HBM", "copy"), ("PCIe", "to device"), ("PCIe", "from device")}
    small = [each for each in ladder.measured if each.what == "small read"]
    assert [each.in_flight for each in small] == list(lab.IN_FLIGHT)
    for each in small:  # Little's law ties the three figures together
        assert each.latency * each.bandwidth == pytest.approx(each.in_flight * each.request)
    assert all(each.size <= lab.LEAST_DISK for each in ladder.measured if each.rung == "NVMe")
    assert set(ladder.platform) == {"system", "machine", "cores", "memory", "file system", "accelerator"}
    assert own_ladder.read(ladder.save(tmp_path / "ladder.json")) == ladder


@pytest.mark.parametrize(("arguments", "message"), [
    ({"seconds": 0}, "seconds is 0; it must be a number above 0"),
    ({"disk": 1024}, "disk is 1024; it must be a whole number, 16777216 or more"),
    ({"disk": 1e9}, "disk is 1000000000.0"),
    ({"folder": "no such folder"}, "folder is 'no such folder'; it must be a folder that exists"),
])
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        lab.measure(**arguments)


def reasons(folder) -> dict[str, str]:
    """Why each part of the disk was not measured."""
    entries = list(lab._disk(folder, lab.LEAST_DISK, 0.1))
    assert {type(each) for each in entries} == {own_ladder.NotMeasured}
    return {each.what: each.why for each in entries}


def test_refuses_where_space_is_short(folder, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=20 * MiB))
    found = reasons(folder)
    assert set(found) == DISK_WHATS
    assert found["small read"] == "21 MB are free; the scratch file takes 16.8 MB and must leave as much again"


def test_refuses_a_folder_in_memory(folder, monkeypatch):
    monkeypatch.setattr(lab, "_file_system", lambda folder: "tmpfs")
    assert "in memory (tmpfs)" in reasons(folder)["sequential read"]


def test_says_so_where_python_cannot_read_around_the_cache(folder, monkeypatch):
    monkeypatch.delattr(os, "preadv")
    assert "cannot read around the page cache" in reasons(folder)["sequential write"]


def test_a_disk_that_fails_is_a_reason_not_a_crash(folder, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    assert reasons(folder)["small read"] == "the system refused: Input/output error"


@pytest.mark.parametrize("where", ["open", "first write"])
def test_works_where_direct_access_is_refused(folder, monkeypatch, where):
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        pytest.skip("this system has no O_DIRECT to refuse")
    real_open, real_write, opened_direct = os.open, os.pwrite, []

    def refusing_open(name, flags, *rest, **named):
        if flags & direct:
            if where == "open":
                raise OSError(errno.EINVAL, "Invalid argument")
            flags &= ~direct
            opened_direct.append(real_open(name, flags, *rest, **named))
            return opened_direct[-1]
        return real_open(name, flags, *rest, **named)

    def refusing_write(file, data, offset):
        if opened_direct and len(data) == lab.SMALL:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_write(file, data, offset)

    monkeypatch.setattr(os, "open", refusing_open)
    monkeypatch.setattr(os, "pwrite", refusing_write)
    entries = list(lab._disk(folder, lab.LEAST_DISK, 0.2))
    assert whats(entries) == {("NVMe", what) for what in DISK_WHATS}
    assert {each.note.removeprefix("random, ") for each in entries} == {"fsync, then page cache dropped"}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_nothing_is_left_after_an_interruption(folder, monkeypatch, interruption):
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None

    def interrupted(*_):
        raise interruption

    monkeypatch.setattr(os, "preadv", interrupted)
    with pytest.raises(interruption):
        list(lab._disk(folder, lab.LEAST_DISK, 0.1))
    assert before is None or set(os.listdir("/proc/self/fd")) == before


def test_scratch_file_has_no_name_while_in_use(folder):
    with lab._scratch(folder) as (file, _):
        assert list(folder.iterdir()) == []
        assert os.fstat(file).st_nlink == 0


def test_small_reads_touch_no_block_twice(folder, monkeypatch):
    offsets, real = [], os.preadv

    def noted(file, buffers, offset):
        offsets.append(offset)
        return real(file, buffers, offset)

    with lab._scratch(folder) as (file, _):
        os.ftruncate(file, MiB)
        monkeypatch.setattr(os, "preadv", noted)
        reads, _ = lab._small_reads(file, MiB, in_flight=4, seconds=30)
    assert reads == len(offsets) == MiB // lab.SMALL
    assert sorted(offsets) == [n * lab.SMALL for n in range(reads)]


def test_dram_is_not_claimed_where_the_cache_is_as_large(monkeypatch):
    monkeypatch.setattr(lab, "_memory_size", lambda: 16 * MiB)
    found = list(lab._memory(0.01))
    assert whats(found) == {("CPU cache", "copy"), ("CPU DRAM", "copy")}
    assert isinstance(found[1], own_ladder.NotMeasured)


@pytest.fixture
def pretended(monkeypatch):
    """A CUDA device that is the CPU, of which 8 MiB are free. What it was asked for, and what it answers instead.

    Asked for: (kind of memory, call), and "waited". No GPU is at hand: this shows calls, arithmetic and what a failure
    costs, nothing more.
    """
    asked, refused = [], {}

    def here(call, make):
        def made(*shape, **named):
            memory = "pinned" if named.pop("pin_memory", False) else named.pop("device", "as the first")
            asked.append((memory, call))
            if error := refused.get((memory, call)):
                raise error
            return make(*shape, **named)
        return made

    for call in ("ones", "empty", "empty_like"):
        monkeypatch.setattr(torch, call, here(call, getattr(torch, call)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8 * MiB, 8 * MiB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a pretended GPU")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: asked.append("waited"))
    return SimpleNamespace(asked=asked, refused=refused)


def test_gpu_is_asked_for_pinned_memory_and_waited_for(pretended, monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(lab.time, "perf_counter", lambda: float(next(clock)))  # every run takes one second
    figures, name = lab._gpu(3.0)
    assert name == "a pretended GPU"
    assert [(each.rung, each.what, each.bandwidth) for each in figures] == [
        ("HBM", "copy", 2 * MiB), ("PCIe", "to device", MiB), ("PCIe", "from device", MiB)]
    assert ("cuda", "ones") in pretended.asked
    assert ("pinned", "empty") in pretended.asked
    assert pretended.asked.count("waited") >= 6


OUT_OF_MEMORY = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 MiB.\n" + 99 * "See advice. ")


@pytest.mark.parametrize(("call", "error", "why"), [
    (("cuda", "ones"), OUT_OF_MEMORY, "CUDA refused: CUDA out of memory. Tried to allocate 1.00 MiB. See advice."),
    (("as the first", "empty_like"), RuntimeError(""), "CUDA refused: RuntimeError"),
    (("pinned", "empty"), RuntimeError("CUDA error: OS call failed"), "CUDA refused: CUDA error: OS call failed"),
])
def test_a_gpu_that_fails_costs_only_what_was_not_measured_by_then(pretended, folder, call, error, why):
    pretended.refused[call] = error
    ladder = lab.measure(folder, **BRIEF)
    lost = [each for each in ladder.not_measured if each.rung in ("HBM", "PCIe")]
    assert whats(lost) == set(lab.OF_A_GPU[1 if call[0] == "pinned" else 0:])
    assert all(each.why.startswith(why) and len(each.why) < 300 for each in lost)
    assert {("NVMe", what) for what in DISK_WHATS} < whats(ladder.measured)
    assert ladder.platform["accelerator"] == "a pretended GPU"


def test_a_gpu_that_others_have_filled_is_left_alone(pretended, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7 * MiB, 8 * MiB))
    figures, _ = lab._gpu(0.1)
    assert pretended.asked == []
    assert {each.why for each in figures} == {
        "CUDA refused: 7.34 MB of the device's memory are free, too little for a copy"}


@pytest.mark.parametrize("error", [OSError("libcudart.so: cannot open"), ImportError("libcudart.so: cannot open")])
def test_libraries_that_do_not_load_are_a_reason_too(monkeypatch, error):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: (_ for _ in ()).throw(error))
    assert {each.why for each in lab._gpu(0.1)[0]} == {"CUDA refused: libcudart.so: cannot open"}


def test_says_why_there_is_no_gpu(monkeypatch):
    figures, name = lab._gpu(1.0)
    assert name is None
    assert {each.why for each in figures} == {"torch sees no CUDA device"}
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert {each.why for each in lab._gpu(1.0)[0]} == {"torch is not installed"}


def test_command_writes_the_file(folder, tmp_path, capsys):
    out = tmp_path / "ladder.json"
    lab._main(["--out", str(out), "--folder", str(folder), "--seconds", "0.1", "--disk", "16 MiB"])
    assert json.loads(out.read_text())["memtier"] == "own-ladder"
    assert "sequential read" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        lab._main(["--out", str(out), "--seconds", "-1"])
    assert "seconds is -1.0" in capsys.readouterr().err
