"""What autograd really keeps for the backward pass, tensor by tensor; what is alive after the forward, and at the peak.

Seen with torch 2.13.0 and transformers 5.24.0 on a CPU, in eager mode (no torch.compile); not exercised on a GPU.
By default models are built of fake tensors, which have shapes and storages but no memory: a model of 405 billion
parameters takes seconds. Bytes are counted by storage: views of one storage count once. Parameters and buffers are
left out.
"""

import contextlib
import functools
import gc
import linecache
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from memtier import _saved, activations, checks, models
from memtier.lab import losses

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
EXPERTS = {"grouped": "grouped_mm", "batched": "batched_mm", "loop": "eager"}  # transformers' own names for them
# The keys that set dropout; a family that is not named has only attention_dropout.
DROPOUTS = dict.fromkeys(models.FAMILIES, ("attention_dropout",)) | {
    "gpt2": ("attn_pdrop", "resid_pdrop", "embd_pdrop"),
    "gpt_neox": ("attention_dropout", "hidden_dropout"),
    "phi3": ("attention_dropout", "resid_pdrop", "embd_pdrop"),
}
# Keys of a published file that the arguments decide instead, and where its own code is: transformers' is meant.
NOT_SHAPES = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation",
              "auto_map")


@dataclass(frozen=True)
class Kept:
    """One tensor that autograd keeps.

    unit: the decoder layer's number, or "root". module: where it was first kept. code: the line of source that kept it.
    nbytes: of the whole storage, which a view can be smaller than.
    """

    unit: int | str
    module: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    code: str


def saved(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
          dtype: str = "bf16", dropout: bool = True, loss: str = "dense", chunks: int = 8,
          real: bool = False) -> tuple[Kept, ...]:
    """Every tensor autograd keeps after the forward pass, loss included, in the order in which it first keeps them.

    model: as models.resolve takes it. real: use real tensors with random weights, for small models only; for experts in
    fp32 or in a loop there is no other way.
    The other arguments are those of memtier.activations.saved; "selective" is beyond these hooks: see `live`.
    """
    with built(model, batch=batch, sequence=sequence, stack=stack, recompute=recompute, dtype=dtype, dropout=dropout,
               loss=loss, chunks=chunks, real=real) as (network, inputs):
        watch = _Saved(network)
        with watch, torch.autograd.graph.saved_tensors_hooks(watch.pack, lambda packed: packed.tensor):
            end = network(**inputs).loss
        kept = watch.alive()
        del end
        return kept


class _Packed:
    """A tensor in autograd's keeping: it dies with the graph's node that holds it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor


class _Saved:
    """The hook autograd hands each tensor to, and hooks that know which module is running.

    Some of what autograd is handed it drops again within the forward pass (a router's way to its choice of experts):
    only what is still held at the end counts.
    """

    def __init__(self, network: nn.Module):
        self.outside = {}  # storages of parameters and buffers, held so that no id is used twice
        for tensor in [*network.parameters(), *network.buffers()]:
            self.outside[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        self.found: list[tuple[weakref.ref, Kept]] = []
        self.network = network
        self.running = ["root"]
        self.handles = []

    def __enter__(self):
        for name, module in self.network.named_modules():
            self.handles.append(module.register_forward_pre_hook(lambda *_, name=name: self.running.append(name)))
            self.handles.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def _leave(self, *_):
        self.running.pop()

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()

    def pack(self, tensor: torch.Tensor) -> _Packed:
        packed = _Packed(tensor)
        storage = tensor.untyped_storage()
        if storage._cdata not in self.outside:
            module = self.running[-1]
            number = next((int(part) for part in module.split(".") if part.isdigit()), "root")
            self.found.append((weakref.ref(packed), Kept(number, module, tuple(tensor.shape), _short(tensor.dtype),
                                                         storage.nbytes(), _code())))
        return packed

    def alive(self) -> tuple[Kept, ...]:
        kept = {}
        for reference, each in self.found:
            packed = reference()
            if packed is not None:
                kept.setdefault(packed.tensor.untyped_storage()._cdata, each)
        return tuple(kept.values())


def compare(predicted: Iterable[tuple[int | str, activations.Kept]], measured: Iterable[Kept]) -> list[str]:
    """What differs between activations.tensors and `saved`: a sentence for each size that one side has more often.

    An empty list means that both keep the same sizes equally often. A sentence names the modules and the lines of
    source where torch keeps that size, and what the formula takes it for. Experts in a loop keep theirs in pieces, one
    for each expert that tokens are sent to: those are added up and compared as a sum.
    """
    predicted, measured = list(predicted), list(measured)
    looped = any(kept.where == _saved.LOOPED for _, kept in predicted)
    left, right = Counter(), Counter()
    names: dict[tuple, list[str]] = {}
    places: dict[tuple, list[str]] = {}
    for unit, kept in predicted:
        pieces = looped and _saved.of_experts(kept)
        size = (kept.dtype, "experts' pieces" if pieces else f"{kept.nbytes:,} bytes")
        left[size] += kept.nbytes if pieces else 1
        names.setdefault(size, []).append(f"{unit}: {kept.kind}, {kept.where}")
    for kept in measured:
        if kept.nbytes == 0:  # the tables of a rotary embedding that turns nothing
            continue
        pieces = looped and ".experts" in kept.module
        size = (kept.dtype, "experts' pieces" if pieces else f"{kept.nbytes:,} bytes")
        right[size] += kept.nbytes if pieces else 1
        places.setdefault(size, []).append(f"{kept.module} {kept.shape} at {kept.code}")
    return [f"{size} of {dtype}: torch keeps {right[dtype, size]:,}, the formula {left[dtype, size]:,};"
            f" torch: {'; '.join(places.get((dtype, size), ['none']))};"
            f" formula: {'; '.join(names.get((dtype, size), ['none']))}"
            for dtype, size in dict.fromkeys([*left, *right]) if left[dtype, size] != right[dtype, size]]


def _short(dtype: torch.dtype) -> str:
    return {"bfloat16": "bf16", "float32": "fp32"}.get(str(dtype).removeprefix("torch."), str(dtype)[6:])


def _code() -> str:
    """The innermost line of transformers that is running."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if "transformers" in path.parts and path.stem not in ("modeling_layers", "generic", "hub_kernels"):
            return f"{path.name}:{frame.f_lineno}: {linecache.getline(str(path), frame.f_lineno).strip()}"
        frame = frame.f_back
    return ""


_aten = torch.ops.aten
SELECTED = (_aten.mm.default, _aten.addmm.default, _aten._grouped_mm.default,
            _aten._scaled_dot_product_flash_attention_for_cpu.default)


def _policy(context, operation, *args, **kwargs) -> CheckpointPolicy:
    """Selective recomputation: keep products with weights and fused attention, compute everything else again."""
    return CheckpointPolicy.MUST_SAVE if operation in SELECTED else CheckpointPolicy.PREFER_RECOMPUTE


@contextlib.contextmanager
def built(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
          dtype: str = "bf16", dropout: bool = True, loss: str = "dense", chunks: int = 8,
          real: bool = False) -> Iterator[tuple[nn.Module, dict]]:
    """The network in training mode, and its inputs, labels among them; run it inside the context. As in `saved`."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, masking_utils

    model = models.resolve(model)
    checks.one_of("stack", stack, activations.stacks(model))
    keys = dict(model.config) | ({} if dropout else dict.fromkeys(DROPOUTS[model.family], 0.0)) | {"use_cache": False}
    for key in NOT_SHAPES:
        keys.pop(key, None)
    _, attention, *experts = stack.split("-")
    masked = "masked" in experts
    settings = CONFIG_MAPPING[keys.pop("model_type")](**keys, attn_implementation=attention)
    implementation = next((EXPERTS[each] for each in experts if each in EXPERTS), None)
    mode = contextlib.nullcontext() if real else FakeTensorMode()
    seek = masking_utils.find_packed_sequence_indices
    if not real:  # transformers takes a fake tensor for tracing and builds masks that it would not build otherwise
        masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        with mode:
            torch.manual_seed(0)
            chosen = {} if implementation is None else {"experts_implementation": implementation}
            network = AutoModelForCausalLM.from_config(settings, dtype=DTYPES[dtype], **chosen)
            network.train()
            if recompute != "none":
                how = {"use_reentrant": False}
                if recompute == "selective":
                    how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)  # the call gets another name in transformers 6
                    network.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
            if loss != "dense":
                losses.put(network, loss, chunks)
            ids = torch.randint(model.vocab if real else 1, (batch, sequence))
            inputs = {"input_ids": ids, "labels": ids, "use_cache": False}
            if masked:
                inputs["attention_mask"] = torch.ones(batch, sequence, dtype=torch.long)
                inputs["attention_mask"][0, 0] = 0
            yield network, inputs
    finally:
        masking_utils.find_packed_sequence_indices = seek


@dataclass(frozen=True)
class Live:
    """Bytes alive in one training step's forward and backward pass, parameters, buffers and their gradients left out.

    after: when the forward pass has returned and only the loss is held. moments: the most in each stretch of the step:
    "forward", "head backward" (loss, head, final norm), "layers backward" (what is computed again included) and
    "embedding backward".
    """

    after: int
    moments: dict[str, int]

    @property
    def peak(self) -> int:
        return max(self.moments.values())


class _Storages(TorchDispatchMode):
    """Adds up the storages alive: each is added when an operation returns it and taken off when it dies."""

    def __init__(self, outside: Iterable[torch.Tensor]):
        super().__init__()
        self.outside = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in outside}
        self.alive: dict[int, tuple[weakref.ref, int]] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return result

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        if key not in self.outside and key not in self.alive:
            self.alive[key] = (weakref.ref(storage, lambda _: self.drop(key)), nbytes)
            self.now += nbytes
            self.most = max(self.most, self.now)

    def drop(self, key: int) -> None:
        if key in self.alive:
            self.now -= self.alive.pop(key)[1]

    def gradient(self, parameter: nn.Parameter) -> None:
        """A finished gradient belongs to the gradients, not to the activations."""
        storage = parameter.grad.untyped_storage()
        self.drop(storage._cdata)
        self.outside[storage._cdata] = storage

    def mark(self) -> int:
        """The most since the last mark."""
        most, self.most = self.most, self.now
        return most


def live(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
         dtype: str = "bf16", dropout: bool = True, loss: str = "dense", chunks: int = 8, real: bool = False) -> Live:
    """Run one forward and backward pass and add up the storages alive. Arguments as in `saved`, "selective" too."""
    with built(model, batch=batch, sequence=sequence, stack=stack, recompute=recompute, dtype=dtype, dropout=dropout,
               loss=loss, chunks=chunks, real=real) as (network, inputs):
        storages = _Storages([*network.parameters(), *network.buffers()])
        storages.add(inputs["input_ids"])
        if "attention_mask" in inputs:  # the padding is given, as the ids are, but nothing keeps it
            storages.outside[inputs["attention_mask"].untyped_storage()._cdata] = inputs["attention_mask"]
        moments = {}
        layers = next(module for module in network.modules() if isinstance(module, nn.ModuleList))
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(storages.gradient)

        def finished(name):
            def hook(gradient):
                moments[name] = max(moments.get(name, 0), storages.mark())
            return hook

        layers[0].register_forward_pre_hook(
            lambda _, args: args[0].register_hook(finished("layers backward")) and None)
        layers[-1].register_forward_hook(
            lambda _, args, out: out.register_hook(finished("head backward")) and None)
        with storages:
            end = network(**inputs).loss
        gc.collect()
        moments["forward"], after = storages.mark(), storages.now
        with storages:
            end.backward()
        moments["embedding backward"] = storages.mark()
        return Live(after, {name: moments[name] for name in ("forward", "head backward", "layers backward",
                                                             "embedding backward")})
