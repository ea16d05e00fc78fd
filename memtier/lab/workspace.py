"""What O's tensors really take in torch: copies under autocast, gradients that wait to be added, AdamW's temporaries.

The measured side of memtier.workspace, for what a CPU shows too; seen with torch 2.13.0 and transformers 5.24.0. Bytes
are counted by storage. `device` reads a CUDA GPU's own counters; it has not been exercised on one.
"""

import weakref
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memtier import checks, models
from memtier.lab import activations


class _Copies(TorchDispatchMode):
    """Notes each copy in another dtype that is made of a parameter."""

    def __init__(self, parameters):
        super().__init__()
        self.parameters = {parameter.untyped_storage()._cdata for parameter in parameters}
        self.found: list[weakref.ref] = []
        self.nbytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._to_copy.default and args[0].untyped_storage()._cdata in self.parameters:
            storage = result.untyped_storage()
            self.nbytes += storage.nbytes()
            self.found.append(weakref.ref(storage))
        return result


@dataclass(frozen=True)
class Copies:
    """Bytes of the copies of weights that autocast made in one forward pass, and of those still alive when it had
    returned, in the autocast region's cache or kept by autograd."""

    made: int
    alive: int


def autocast(model, *, sequence: int = 16, stack: str | None = None) -> Copies:
    """Run one forward pass with fp32 weights under torch.autocast("cpu", bf16). model: a small one, run for real."""
    stack = activations.activations.stacks(model)[0] if stack is None else stack
    with activations.built(model, sequence=sequence, stack=stack, dtype="fp32", real=True) as (network, inputs):
        copies = _Copies(network.parameters())
        with torch.autocast("cpu", torch.bfloat16), copies:
            loss = network(**inputs).loss
            alive = sum(storage.nbytes() for reference in copies.found if (storage := reference()) is not None)
        del loss
        return Copies(copies.nbytes, alive)


@dataclass(frozen=True)
class Accumulation:
    """gradients: bytes of all gradients, held from the first micro-batch's backward pass to the update. waiting: bytes
    of the largest new gradient that existed beside the sum it was added to."""

    gradients: int
    waiting: int


def accumulate(model, *, micro_batches: int = 2, sequence: int = 16, dtype: str = "fp32") -> Accumulation:
    """Run the backward pass of several micro-batches and add their gradients up. model: a small one, run for real."""
    checks.whole("micro_batches", micro_batches, least=2)
    stack = activations.activations.stacks(model)[0]
    with activations.built(model, sequence=sequence, stack=stack, dtype=dtype, real=True) as (network, inputs):
        waiting = 0

        def arriving(gradient):
            nonlocal waiting
            waiting = max(waiting, gradient.untyped_storage().nbytes())

        network(**inputs).loss.backward()
        held = {parameter: parameter.grad.untyped_storage()._cdata for parameter in network.parameters()}
        for parameter in network.parameters():
            parameter.register_hook(arriving)
        for _ in range(micro_batches - 1):
            network(**inputs).loss.backward()
        for parameter, storage in held.items():
            if parameter.grad.untyped_storage()._cdata != storage:
                raise RuntimeError("gradients were not added in place")
        gradients = sum(parameter.grad.untyped_storage().nbytes() for parameter in network.parameters())
        return Accumulation(gradients, waiting)


class _Most(TorchDispatchMode):
    """The most bytes alive of storages that operations have made."""

    def __init__(self):
        super().__init__()
        self.alive: dict[int, tuple[weakref.ref, int]] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs))
                 if isinstance(leaf, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                key, nbytes = storage._cdata, storage.nbytes()
                if key not in given and key not in self.alive:
                    self.alive[key] = (weakref.ref(storage, lambda _, key=key: self._drop(key)), nbytes)
                    self.now += nbytes
                    self.most = max(self.most, self.now)
        return result

    def _drop(self, key: int) -> None:
        self.now -= self.alive.pop(key)[1]


def update(model, *, implementation: str = "foreach") -> int:
    """Bytes of temporaries at the fullest moment of torch.optim.AdamW's second step. model: a small one, in fp32.

    implementation: "foreach", "loop" or "fused".
    """
    checks.one_of("implementation", implementation, ("foreach", "loop", "fused"))
    parameters = [torch.nn.Parameter(torch.zeros(tensor.shape)) for tensor in models.resolve(model).tensors()]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(parameters, foreach=implementation == "foreach", fused=implementation == "fused")
    optimizer.step()  # makes the state
    with _Most() as watch:
        optimizer.step()
    return watch.most


def device() -> dict[str, int]:
    """The three METRICS of memtier.workspace on the current CUDA GPU, in bytes: "allocated", "reserved", "device".

    Raises RuntimeError without a GPU.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA GPU; allocated, reserved and device are numbers of one")
    free, capacity = torch.cuda.mem_get_info()
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
            "device": capacity - free}
