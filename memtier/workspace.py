"""Workspace: O of the state formula, what a GPU holds beside weights, gradients, optimizer state and activations.

    workspace.inventory("llama-3.1-8b", communicators=2)          # bytes a planner should keep free, item by item
    workspace.read_message(text)                                  # torch's out-of-memory message, line by line
    workspace.rounded(1000), workspace.segment(1000)              # what 1,000 bytes take, and what is asked of CUDA

Three numbers describe one GPU, each larger than the one before (METRICS). Little of what lies between them follows
from shapes, so each of ENTRIES says how it is known, and how much to keep for it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from memtier import checks, evidence, models, optimizer_state, recipes, units, weights
from memtier.inventory import Inventory
from memtier.models import Model
from memtier.recipes import Recipe

METRICS = {
    "allocated": "bytes of the blocks that tensors live in now: each tensor rounded up to 512 bytes"
                 " (torch.cuda.memory_allocated)",
    "reserved": "bytes of the segments the allocator has taken from CUDA: allocated, and blocks it keeps for later"
                " (torch.cuda.memory_reserved)",
    "device": "bytes in use on the GPU as nvidia-smi shows them: what every process has reserved, and each one's CUDA"
              " context, libraries and communication buffers",
}
KINDS = ("measured", "specification", "derived", "unknown")
UPDATES = ("foreach", "loop", "fused")


# The caching allocator.


def _fact(name: str) -> int:
    return int(evidence.get(f"software.{name}").quantity)


def rounded(nbytes: int) -> int:
    """Bytes that torch's CUDA allocator counts for a tensor of nbytes: the next multiple of 512; nothing for nothing.

    Source: ledger, software.allocator.block (torch 2.13.0, kMinBlockSize). nbytes: a whole number, 0 or more.
    """
    block = _fact("allocator.block")
    return -(-checks.whole("nbytes", nbytes, least=0) // block) * block


def segment(nbytes: int) -> int:
    """Bytes asked of CUDA when no free block fits a tensor of nbytes.

    Up to 1 MiB: a segment of 2 MiB, which further small tensors share. Below 10 MiB: one of 20 MiB, likewise. From
    there on: its own, rounded up to 2 MiB. Source: ledger, software.allocator (torch 2.13.0). With expandable segments
    (PYTORCH_ALLOC_CONF) a segment grows in steps of 2 MiB or 20 MiB instead.
    """
    size = rounded(nbytes)
    if size == 0:
        return 0
    if size <= _fact("allocator.small"):
        return _fact("allocator.small-segment")
    if size < _fact("allocator.large"):
        return _fact("allocator.large-segment")
    multiple = _fact("allocator.segment-multiple")
    return -(-size // multiple) * multiple


# The entries of O.


@dataclass(frozen=True)
class Job:
    """What the entries depend on: see `entries`."""

    model: Model
    recipe: Recipe
    gpus: int
    allocated: int
    communicators: int
    all_to_all: bool
    streams: int
    hopper: bool
    autocast: bool
    micro_batches: int
    update: str

    @property
    def trained(self) -> tuple[int, ...]:
        """Elements of each tensor that is trained."""
        return tuple(tensor.numel for tensor, trained in self.recipe.tensors(self.model) if trained)

    @property
    def mine(self) -> int:
        """Trained parameters whose state this GPU holds, as an average."""
        return -(-sum(self.trained) // self.gpus)


@dataclass(frozen=True)
class Entry:
    """One part of O.

    low, high: bytes between which it was found, or None where nobody has said; margin: bytes to keep for it. Each is a
    number, or a function of a Job that gives one. kind: how it is known, one of KINDS. source: names in the ledger, or
    what it was measured or derived with. inside: does torch count it as allocated ("allocated"), only as reserved
    ("reserved"), or not at all ("device")?
    """

    name: str
    kind: str
    inside: str
    low: int | Callable[[Job], int] | None
    high: int | Callable[[Job], int] | None
    margin: int | Callable[[Job], int]
    source: str
    note: str

    def at(self, job: Job) -> "Entry":
        """The same with numbers in place of functions."""
        return replace(self, **{name: value(job) if callable(value := getattr(self, name)) else value
                                for name in ("low", "high", "margin")})


def _autocast(job: Job) -> int:
    """bf16 copies of what matrix products read, the head included: 2 bytes a value. Lookups, norms and grouped experts
    read their weights as they are.
    """
    if not job.autocast:
        return 0
    read = sum(tensor.numel for tensor in job.model.tensors() if tensor.part in ("attention", "mlp", "router"))
    return 2 * (read + job.model.vocab * job.model.hidden)


def _accumulation(job: Job) -> int:
    """A gradient that waits to be added to the one before: of the largest tensor."""
    return 0 if job.micro_batches == 1 else math.ceil(job.recipe.gradients * max(job.trained, default=0))


def _whole_gradients(job: Job) -> int:
    """Gradients that are not divided before the last micro-batch: what the other GPUs' shares of them take."""
    if job.micro_batches == 1 or job.gpus == 1:
        return 0
    return math.ceil(job.recipe.gradients * (sum(job.trained) - job.mine))


def _update(job: Job) -> int:
    """What AdamW computes on the way to its update, in fp32: once all that one GPU updates; in a loop twice the tensor
    at hand, beside what is left of the tensor before it; fused, nothing.
    """
    if job.update == "foreach":
        return 4 * job.mine
    sizes = [0, *job.trained] if job.update == "loop" else []
    return -(-4 * max((2 * size + before for before, size in pairwise(sizes)), default=0) // job.gpus)


def _communication(job: Job, each: str) -> int:
    exchange = _fact("nccl.after-all-to-all") - _fact("nccl.before-all-to-all")
    return job.communicators * _fact(each) + (exchange if job.all_to_all else 0)


def _blas(job: Job) -> int:
    return job.streams * _fact("cublas.workspace-hopper" if job.hopper else "cublas.workspace")


def _state_tensors(job: Job) -> int:
    """Tensors of weights, and of gradients, master weights and two moments where they are trained."""
    return len(tuple(job.recipe.tensors(job.model))) + 4 * len(job.trained)


ENTRIES = (
    Entry("CUDA context", "measured", "device", _fact("cuda-context.lazy"), _fact("cuda-context.ada"), units.GiB,
          "software.cuda-context",
          "Driver state and kernels, for each process. Kernels are loaded when first used, so it grows with what a job"
          " runs; on an H100 or larger it is not measured here."),
    Entry("communication buffers", "measured", "device",
          lambda job: _communication(job, "nccl.group-of-two"), lambda job: _communication(job, "nccl.group-of-four"),
          lambda job: job.communicators * units.GiB + 4 * units.GiB * job.all_to_all,
          "software.nccl",
          "NCCL takes them for each communicator (a process group that has communicated) and each channel, outside"
          " torch's allocator; an all-to-all connects every pair of GPUs and takes far more."),
    Entry("cuBLAS workspace", "specification", "allocated", _blas, _blas, _blas, "software.cublas",
          "One for each handle and stream; 32 MiB on Hopper. cuBLASLt shares it since it is unified."),
    Entry("allocator rounding", "derived", "allocated", 0, lambda job: 511 * _state_tensors(job),
          lambda job: 511 * _state_tensors(job), "software.allocator",
          "Each tensor is rounded up to 512 bytes: at most 511 a tensor."),
    Entry("fragmentation", "unknown", "reserved", 0, lambda job: math.ceil(
              evidence.get("software.fragmentation.waste").quantity * job.allocated),
          lambda job: math.ceil(evidence.get("software.fragmentation.average").quantity * job.allocated),
          "software.fragmentation",
          "Reserved blocks that no tensor fits. It depends on the order of sizes, so nobody can say beforehand;"
          " expandable segments are made to avoid it. The margin is an average found in fine-tuning, not a bound."),
    Entry("autocast copies", "measured", "allocated", _autocast, _autocast, _autocast,
          "memtier.lab.workspace, torch 2.13.0 on a CPU",
          "Under autocast with fp32 weights, torch keeps a bf16 copy of each weight that a matrix product reads, until"
          " the autocast region ends, and autograd keeps it until the backward pass. Experts in one grouped product are"
          " not copied on a CPU."),
    Entry("gradient accumulation", "measured", "allocated", _accumulation, _accumulation, _accumulation,
          "memtier.lab.workspace, torch 2.13.0 on a CPU",
          "From the second micro-batch on, each new gradient exists beside the sum it is added to. The gradients"
          " themselves, which now also wait through the forward pass, are b_g of the formula."),
    Entry("gradients not yet divided", "derived", "allocated", 0, _whole_gradients, _whole_gradients,
          "gradients · (P − P/W)",
          "With several micro-batches and communication only after the last (no_sync), each GPU sums whole gradients."),
    Entry("temporaries of the update", "measured", "allocated", _update, _update, _update,
          "memtier.lab.workspace, torch 2.13.0 on a CPU",
          "torch.optim.AdamW: foreach, its choice on a GPU, computes for all tensors at once; a loop for one after the"
          " other; fused needs none."),
    Entry("other libraries", "unknown", "device", None, None, units.GiB // 2, "no source",
          "cuDNN, compiled kernels, profilers, other processes on the same GPU: look at nvidia-smi before the run."),
)


def entries(model, *, recipe="bf16-adam", gpus: int = 1, allocated: int | None = None, communicators: int = 0,
            all_to_all: bool = False, streams: int = 1, hopper: bool = True, autocast: bool = False,
            micro_batches: int = 1, update: str = "foreach") -> tuple[Entry, ...]:
    """ENTRIES for one GPU of a training run, with numbers in place of functions.

    model: an architecture, as models.resolve takes it. recipe: a Recipe or its name.
    gpus: GPUs that divide one copy of the state (ZeRO-3, FSDP).
    allocated: bytes of all tensors on this GPU, which fragmentation is a part of; left out, the state's own share.
    communicators: process groups that have communicated. all_to_all: does one of them exchange all to all (experts)?
    streams: CUDA streams that multiply matrices. hopper: H100 or H200? autocast: fp32 weights under torch.autocast?
    micro_batches: whose gradients are added up. update: AdamW's implementation, one of UPDATES.
    Raises ValueError naming argument, value and what is allowed.
    """
    model, recipe = weights.shaped(model, "workspaces depend on shapes"), recipes.get(recipe)
    checks.whole("gpus", gpus)
    checks.whole("communicators", communicators, least=0)
    checks.whole("streams", streams)
    checks.whole("micro_batches", micro_batches)
    checks.one_of("update", update, UPDATES)
    for name, value in (("all_to_all", all_to_all), ("hopper", hopper), ("autocast", autocast)):
        checks.flag(name, value)
    if all_to_all and not communicators:
        raise ValueError("all_to_all is True and communicators is 0; it must be 1 or more")
    if allocated is None:
        allocated = math.ceil(optimizer_state.inventory(model, recipe=recipe).total / gpus)
    job = Job(model, recipe, gpus, checks.whole("allocated", allocated, least=0), communicators, all_to_all, streams,
              hopper, autocast, micro_batches, update)
    return tuple(entry.at(job) for entry in ENTRIES)


def inventory(model, **how) -> Inventory:
    """Bytes to keep for O, item by item: as much as is known to be taken, or the margin of what is not.

    Arguments as in `entries`; entries of 0 bytes are left out. Raises ValueError as it does.
    """
    found = entries(model, **how)
    name = models.resolve(model).name
    return Inventory({entry.name: entry.margin for entry in found if entry.margin}, f"{name}: to keep for O on one GPU")


# torch's out-of-memory message.


_SIZE = r"([0-9]{1,15}(?:\.[0-9]{1,9})?) (bytes|KiB|MiB|GiB)"  # so many digits, so that a float holds every one
# As PyTorch writes it (c10/cuda/CUDACachingAllocator.cpp, format_size in c10/core/Allocator.h) from 2.1 on, which
# misspelt "capacity". Lines in the middle come only where NVML, a limit or CUDA graphs are in use. The advice after the
# last figure has changed over time and is not read.
_MESSAGE = re.compile(
    rf"[Oo]ut of memory\. Tried to allocate {_SIZE}\. GPU ([0-9]{{1,9}}) has a total capaci?ty of {_SIZE} of which"
    rf" {_SIZE} is free\. "
    rf"((?:(?:Including non-PyTorch memory, this process|Process [0-9]{{1,19}}) has {_SIZE} memory in use\. )*)"
    rf"(?:{_SIZE} allowed; )?Of the allocated memory {_SIZE} is allocated by PyTorch, "
    rf"(?:with {_SIZE} allocated in private pools \(e\.g\., CUDA Graphs\), )?"
    rf"and {_SIZE} is reserved by PyTorch but unallocated\.")
_PROCESS = re.compile(
    rf"(?:Including non-PyTorch memory, this process|Process ([0-9]{{1,19}})) has {_SIZE} memory in use\.")
_UNITS = {"bytes": 1, "KiB": units.KiB, "MiB": units.MiB, "GiB": units.GiB}


def _bytes(number: str | None, unit: str | None) -> int | None:
    return None if number is None else round(float(number) * _UNITS[unit])


@dataclass(frozen=True)
class OutOfMemory:
    """What torch's out-of-memory message says, in bytes. A figure is printed with two decimals, so one in GiB is good
    to 5.4 MB.

    tried: the segment asked of CUDA (see `segment`). gpu: its number. capacity, free: of the whole device.
    process: this process's use of the device, None where torch could not find itself (without NVML, or in a container
    whose process numbers are its own). others: (process number, bytes) of each other process.
    allowed: the limit of set_per_process_memory_fraction, None without one.
    allocated: in tensors; private_pools: the part of it in CUDA graphs' pools. reserved_unallocated: kept, in pieces.
    """

    tried: int
    gpu: int
    capacity: int
    free: int
    process: int | None
    others: tuple[tuple[int, int], ...]
    allowed: int | None
    allocated: int
    private_pools: int
    reserved_unallocated: int

    @property
    def reserved(self) -> int:
        """What the allocator has taken from CUDA."""
        return self.allocated + self.reserved_unallocated

    @property
    def missing(self) -> int | None:
        """This process's bytes that torch's allocator does not know: CUDA context, libraries, communication buffers.
        None where the message does not say what this process uses."""
        return None if self.process is None else max(0, self.process - self.reserved)

    @property
    def outside(self) -> int:
        """Bytes in use on the device that are not this allocator's: `missing`, other processes and the driver."""
        return max(0, self.capacity - self.free - self.reserved)

    @property
    def fragmented(self) -> bool:
        """Would free memory and what is reserved but unallocated hold what was tried, if they were in one piece?"""
        return self.free + self.reserved_unallocated >= self.tried

    def lines(self) -> tuple[tuple[str, int, str], ...]:
        """(what, bytes, what it means) for each figure in the message's order, with `missing` or `outside` at the end.
        """
        rows = [
            ("tried to allocate", self.tried, "the segment that was asked of CUDA: the tensor, rounded up"),
            ("total capacity", self.capacity, f"all memory of GPU {self.gpu} that CUDA hands out"),
            ("free", self.free, "of that, not in use by anybody"),
        ]
        for number, nbytes in self.others:
            rows.append((f"process {number}", nbytes, "another process on this GPU, or, in a container, this one"))
        if self.process is not None:
            rows.append(("this process", self.process, "everything this process holds on the GPU"))
        if self.allowed is not None:
            rows.append(("allowed", self.allowed, "the limit set for this process"))
        rows.append(("allocated by PyTorch", self.allocated,
                     "in tensors: weights, gradients, optimizer state, activations"))
        if self.private_pools:
            rows.append(("in private pools", self.private_pools, "of that, in the pools of CUDA graphs"))
        rows.append(("reserved but unallocated", self.reserved_unallocated,
                     "taken from CUDA, free, but in pieces too small: fragmentation"))
        if self.missing is None:
            rows.append(("outside PyTorch", self.outside, "in use, less what PyTorch reserved: other processes, CUDA"
                                                         " context, libraries"))
        else:
            rows.append(("missing", self.missing, "this process, less what PyTorch reserved: CUDA context, libraries,"
                                                  " communication buffers"))
        return tuple(rows)


def read_message(text: str) -> OutOfMemory:
    """What torch's CUDA out-of-memory message says, out of any text that has it: a traceback, a log, wrapped lines.

    Raises ValueError where the text does not have it, or not whole.
    """
    if not isinstance(text, str):
        raise ValueError(f"text is {checks.brief(text)}; it must be a text with torch's out-of-memory message")
    found = _MESSAGE.search(" ".join(text.split()))
    if not found:
        raise ValueError("text has no whole out-of-memory message of torch 2.1 or later; it must have one, from 'Tried"
                         " to allocate' to 'is reserved by PyTorch but unallocated.'")
    parts = found.groups()
    tried, gpu, capacity, free = _bytes(*parts[0:2]), int(parts[2]), _bytes(*parts[3:5]), _bytes(*parts[5:7])
    processes = [(number, _bytes(amount, unit)) for number, amount, unit in _PROCESS.findall(parts[7])]
    # parts[8:10] is the last process's size, read above.
    return OutOfMemory(
        tried=tried, gpu=gpu, capacity=capacity, free=free,
        process=next((nbytes for number, nbytes in processes if not number), None),
        others=tuple((int(number), nbytes) for number, nbytes in processes if number),
        allowed=_bytes(*parts[10:12]), allocated=_bytes(*parts[12:14]), private_pools=_bytes(*parts[14:16]) or 0,
        reserved_unallocated=_bytes(*parts[16:18]))
