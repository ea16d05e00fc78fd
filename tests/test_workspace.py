"""O, itemised: the allocator's rounding, the entries, and torch's out-of-memory message as people have met it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import small_models

from memtier import evidence, models, recipes, units, workspace

MIB = units.MiB

# Messages met in the wild, each with a clause that not every one has.
ALONE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.14 GiB of"
    " which 2.09 GiB is free. Including non-PyTorch memory, this process has 77.04 GiB memory in use. Of the allocated"
    " memory 75.40 GiB is allocated by PyTorch, and 1.15 GiB is reserved by PyTorch but unallocated. If reserved but"
    " unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See"
    " documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
NEIGHBOUR = (
    "CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 14.57 GiB of which 1.58 GiB is free."
    " Process 2493055 has 12.02 GiB memory in use. Including non-PyTorch memory, this process has 966.00 MiB memory in"
    " use. Of the allocated memory 734.07 MiB is allocated by PyTorch, and 33.93 MiB is reserved by PyTorch but"
    " unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True")
CONTAINER = (  # as a process in a container is told: it does not recognise itself
    "ErrorMessage \"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.22 GiB. GPU 0 has a total\n"
    "capacity of 15.77 GiB of which 959.44 MiB is free. Process 12447 has 14.83 GiB memory in use. Of the allocated\n"
    "memory 14.01 GiB is allocated by PyTorch, and 472.05 MiB is reserved by PyTorch but unallocated. If reserved but\n"
    "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.")
MISSPELT = (  # torch 2.1
    "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacty of 23.69 GiB of which 7.11 GiB is free."
    " Process 2006998 has 256.00 MiB memory in use. Including non-PyTorch memory, this process has 16.31 GiB memory in"
    " use. Of the allocated memory 16.01 GiB is allocated by PyTorch, and 7.47 MiB is reserved by PyTorch but"
    " unallocated.")
# Put together from the source, for what is rare: a limit, CUDA graphs, no NVML, and a full device.
RARE = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 8.00 GiB of which 0 bytes is free."
    " 4.00 GiB allowed; Of the allocated memory 3.50 GiB is allocated by PyTorch, with 512.00 MiB allocated in private"
    " pools (e.g., CUDA Graphs), and 12.50 KiB is reserved by PyTorch but unallocated.")


def test_rounding_is_torchs():
    assert [workspace.rounded(nbytes) for nbytes in (0, 1, 512, 513, 40000)] == [0, 512, 512, 1024, 40448]
    # Sizes at torch's own limits: up to 1 MiB, below 10 MiB, and from there on.
    sizes = {0: 0, 1: 2, MIB: 2, MIB + 1: 20, 10 * MIB - 512: 20, 10 * MIB: 10, 10 * MIB + 1: 12, 33 * MIB: 34}
    assert {nbytes: workspace.segment(nbytes) // MIB for nbytes in sizes} == sizes


@given(st.integers(0, 10**12))
def test_a_segment_holds_the_tensor(nbytes):
    assert nbytes <= workspace.rounded(nbytes) < nbytes + 512
    assert workspace.rounded(nbytes) <= workspace.segment(nbytes)
    assert workspace.segment(nbytes) % (2 * MIB) == 0


def test_the_cublas_workspace_seen_in_a_snapshot():
    """8,519,680 bytes: what readers find in torch.cuda.memory_snapshot() after their first product, in a segment of
    20 MiB (discuss.pytorch.org, 178671)."""
    found = {entry.name: entry for entry in workspace.entries("gpt2", hopper=False, streams=2)}
    assert found["cuBLAS workspace"].margin == 2 * 8_519_680
    assert workspace.segment(8_519_680) == 20 * MIB
    assert {entry.name: entry for entry in workspace.entries("gpt2")}["cuBLAS workspace"].margin == 32 * MIB


def test_every_entry_says_how_it_is_known():
    assert len({entry.name for entry in workspace.ENTRIES}) == len(workspace.ENTRIES)
    for entry in workspace.ENTRIES:
        assert entry.kind in workspace.KINDS
        assert entry.inside in workspace.METRICS
        assert entry.note.endswith(".")
        if entry.source.startswith("software."):
            assert any(id.startswith(entry.source) for id in evidence.ids("software")), entry.name
    unknown = {entry.name for entry in workspace.ENTRIES if entry.kind == "unknown"}
    assert unknown == {"fragmentation", "other libraries"}


@given(model=small_models(), gpus=st.integers(1, 16), communicators=st.integers(1, 4), all_to_all=st.booleans(),
       autocast=st.booleans(), micro_batches=st.integers(1, 4), update=st.sampled_from(workspace.UPDATES))
def test_margins_cover_what_was_found(model, gpus, communicators, all_to_all, autocast, micro_batches, update):
    how = {"gpus": gpus, "communicators": communicators, "all_to_all": all_to_all, "autocast": autocast,
           "micro_batches": micro_batches, "update": update}
    found = workspace.entries(model, **how)
    for entry in found:
        assert isinstance(entry.margin, int)
        if entry.low is not None:
            assert entry.low <= entry.high
            assert entry.low <= entry.margin
            if entry.kind != "unknown":
                assert entry.high <= entry.margin, entry
    kept = workspace.inventory(model, **how)
    assert kept.total == sum(entry.margin for entry in found)
    assert all(kept.values())


@pytest.mark.parametrize("recipe", recipes.names())
def test_every_recipe_has_an_answer(recipe):
    how = {"recipe": recipe, "gpus": 4, "micro_batches": 2}
    found = {entry.name: entry.margin for entry in workspace.entries("llama-3.2-1b", **how)}
    trained = [tensor.numel for tensor, trains in recipes.get(recipe).tensors(models.get("llama-3.2-1b")) if trains]
    assert found["temporaries of the update"] == 4 * -(-sum(trained) // 4)
    assert found["gradient accumulation"] <= 4 * max(trained, default=0) * 2


def test_gradients_that_are_not_divided_are_the_other_gpus_shares():
    parameters = models.get("llama-3.1-8b").parameters
    kept = workspace.inventory("llama-3.1-8b", gpus=8, micro_batches=4)
    assert kept["gradients not yet divided"] == 2 * (parameters - -(-parameters // 8))
    assert "gradients not yet divided" not in workspace.inventory("llama-3.1-8b", gpus=8)


@pytest.mark.parametrize(("change", "message"), [
    ({"gpus": 0}, "gpus is 0"),
    ({"communicators": -1}, "communicators is -1"),
    ({"all_to_all": True}, "all_to_all is True and communicators is 0"),
    ({"streams": 0}, "streams is 0"),
    ({"hopper": 1}, "hopper is 1"),
    ({"autocast": "bf16"}, "autocast is 'bf16'"),
    ({"micro_batches": 0}, "micro_batches is 0"),
    ({"update": "sgd"}, "update is 'sgd'; it must be one of foreach, loop, fused"),
    ({"allocated": -1}, "allocated is -1"),
    ({"recipe": "magic"}, "magic"),
])
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        workspace.inventory("gpt2", **change)


def test_a_bare_count_is_refused():
    with pytest.raises(ValueError, match="model is the parameter count 8,000,000,000"):
        workspace.inventory(8e9)


# torch's message.


def test_a_message_line_by_line():
    read = workspace.read_message(ALONE)
    gib = units.GiB
    assert (read.tried, read.gpu, read.capacity, read.free) == (3 * gib, 0, round(79.14 * gib), round(2.09 * gib))
    assert (read.process, read.others) == (round(77.04 * gib), ())
    assert read.allocated == round(75.40 * gib)
    assert read.reserved == pytest.approx(76.55 * gib, abs=2)
    assert read.missing == pytest.approx(0.49 * gib, abs=2)
    assert read.fragmented  # 2.09 + 1.15 GiB would do for 3.00, in one piece
    lines = read.lines()
    assert [what for what, _, _ in lines] == [
        "tried to allocate", "total capacity", "free", "this process", "allocated by PyTorch",
        "reserved but unallocated", "missing"]
    assert lines[0][1] == read.tried
    assert lines[-1][1] == read.missing


def test_neighbours_are_told_apart():
    read = workspace.read_message(f"Traceback (most recent call last):\n  …\n{NEIGHBOUR}\n")
    assert read.others == ((2493055, round(12.02 * units.GiB)),)
    assert read.process == 966 * MIB
    assert read.missing == pytest.approx(198 * MIB, abs=2)
    assert not read.fragmented
    # All that is in use is somebody's: the neighbour's, this process's, and some ten MiB.
    assert read.capacity - read.free - read.process - read.others[0][1] == pytest.approx(27 * MIB, abs=11 * MIB)


def test_a_container_hides_which_process_is_which():
    read = workspace.read_message(CONTAINER)
    assert read.process is None
    assert read.missing is None
    assert read.others == ((12447, round(14.83 * units.GiB)),)
    assert read.lines()[-1][0] == "outside PyTorch"
    assert read.outside == pytest.approx(0.36 * units.GiB, abs=0.02 * units.GiB)


def test_the_spelling_of_torch_2_1():
    assert workspace.read_message(MISSPELT).capacity == round(23.69 * units.GiB)


def test_rare_clauses():
    read = workspace.read_message(RARE)
    assert (read.gpu, read.free, read.allowed, read.private_pools) == (3, 0, 4 * units.GiB, 512 * MIB)
    assert (read.process, read.others, read.reserved_unallocated) == (None, (), 12_800)
    assert {what for what, _, _ in read.lines()} >= {"allowed", "in private pools"}


@pytest.mark.parametrize("text", [
    "", "hello", "CUDA out of memory.", ALONE[:200], ALONE.replace("79.14 GiB", "79.14 GB"), None, 42,
    "CUDA out of memory. Tried to allocate 36.00 MiB (GPU 0; 7.93 GiB total capacity; 130.35 MiB already allocated;"
    " 47.06 MiB free; 188.00 MiB reserved in total by PyTorch)",  # before torch 2.1
])
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError, match="^text ") as raised:
        workspace.read_message(text)
    assert "\n" not in str(raised.value)


def test_a_long_log_is_read_once():
    # A pattern that begins with "any word" tries each of the blob's letters as that word's first: 500 billion steps.
    with pytest.raises(ValueError, match="^text has no whole"):
        workspace.read_message("x" * 10**6)
    assert workspace.read_message("x" * 10**6 + f" {ALONE} " + "y" * 10**6) == workspace.read_message(ALONE)


@pytest.mark.parametrize("digits", [400, 5000])
def test_figures_of_no_size_at_all_are_no_message(digits):
    for figure in ("79.14", "GPU 0", "3.00"):
        with pytest.raises(ValueError, match="^text has no whole"):
            workspace.read_message(ALONE.replace(figure, figure[:-1] + "9" * digits))


def _size(nbytes):
    """As torch 2.13.0's format_size prints a size (c10/core/Allocator.h)."""
    for unit, most in (("KiB", MIB), ("MiB", units.GiB)):
        if nbytes <= 1024:
            return f"{nbytes} bytes"
        if nbytes <= most:
            return f"{nbytes / {'KiB': 1024, 'MiB': MIB}[unit]:.2f} {unit}"
    return f"{nbytes / units.GiB:.2f} GiB"


sizes = st.integers(0, 200 * units.GiB)


@given(tried=sizes, capacity=sizes, free=sizes, process=st.none() | sizes, allowed=st.none() | sizes, allocated=sizes,
       pools=st.just(0) | sizes.filter(bool), unallocated=sizes,
       others=st.lists(st.tuples(st.integers(1, 10**7), sizes), max_size=3), own_place=st.integers(0, 3))
def test_every_message_torch_can_write_is_read(tried, capacity, free, process, allowed, allocated, pools, unallocated,
                                               others, own_place):
    """Written as torch 2.13.0 writes it, in any order of processes; read back to the printed precision."""
    processes = [f"Process {number} has {_size(nbytes)} memory in use. " for number, nbytes in others]
    if process is not None:
        processes.insert(own_place, f"Including non-PyTorch memory, this process has {_size(process)} memory in use. ")
    limit = "" if allowed is None else f"{_size(allowed)} allowed; "
    graphs = f"with {_size(pools)} allocated in private pools (e.g., CUDA Graphs), " if pools else ""
    message = (f"CUDA out of memory. Tried to allocate {_size(tried)}. GPU 1 has a total capacity of {_size(capacity)}"
               f" of which {_size(free)} is free. {''.join(processes)}{limit}Of the allocated memory"
               f" {_size(allocated)} is allocated by PyTorch, {graphs}and {_size(unallocated)} is reserved by PyTorch"
               " but unallocated.")
    read = workspace.read_message(message)
    pairs = [(read.tried, tried), (read.capacity, capacity), (read.free, free), (read.allocated, allocated),
             (read.private_pools, pools), (read.reserved_unallocated, unallocated)]
    assert (read.process is None, read.allowed is None) == (process is None, allowed is None)
    pairs += [pair for pair in ((read.process, process), (read.allowed, allowed)) if pair[1] is not None]
    assert [number for number, _ in read.others] == [number for number, _ in others]
    pairs += [(nbytes, sent) for (_, nbytes), (_, sent) in zip(read.others, others, strict=True)]
    for nbytes, sent in pairs:
        assert abs(nbytes - sent) <= 0.005 * max(1, min(units.GiB, sent)) + 1
