"""Activations: what the forward pass leaves behind for the backward pass, tensor by tensor.

    activations.saved(models.get("llama-3.1-8b"), batch=1, sequence=2048)         # bytes by kind of tensor
    activations.block(models.get("llama-3.1-8b"), layer=0, sequence=2048)         # every tensor one block keeps
    activations.peak(models.get("llama-3.1-8b"), batch=1, sequence=2048)          # the fullest moment of a step

The answer depends on the software, so `stack` names it:

hf-sdpa         transformers 5.24.0 on torch 2.13.0: eager mode, CPU kernels, torch's scaled_dot_product_attention
hf-sdpa-masked  the same where a real mask is given (a batch with padding)
hf-eager        transformers' own attention in plain operations, which writes out the s × s matrices

With experts, how they are run is part of the name: hf-sdpa-grouped (torch's grouped_mm, transformers' default),
-batched (a copy of its experts' weights for each token), -loop (one expert after another).

megatron, megatron-sp   Table 2 of Korthikanti et al. (2022, arXiv:2205.05198): a GPT block with dropout in 16 bits,
                        divided by tensor parallelism, or by sequence parallelism too. A formula from paper, not
                        measured. layout says over how many GPUs.

The hf stacks equal torch's own count to the byte (tests/test_lab_activations.py; tests/activations_grid.py),
labels given, so that the logits and the loss are inside; without a KV cache (use_cache=False) and without autocast. A
tensor is counted by its storage: where a view of a larger tensor is kept, the whole of it stays. Parameters and buffers
are not activations and are left out. "CPU kernels" is part of the answer: on a GPU dropout masks are one byte a value,
and fused attention also serves dropout.

Symbols: b batch, s sequence, n = b·s tokens, h hidden, A query heads, K key and value heads, d head size, f width of
the feed-forward layer, V vocabulary, L layers, e bytes an element.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from memtier import checks, models
from memtier.inventory import Inventory
from memtier.layout import Layout
from memtier.models import Model

BYTES = {"bf16": 2, "fp32": 4, "int64": 8, "int32": 4, "bool": 1, "complex64": 8}
DTYPES = ("bf16", "fp32")
RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("hf-sdpa", "hf-sdpa-masked", "hf-eager")
EXPERTS = ("grouped", "batched", "loop")
MEGATRON = ("megatron", "megatron-sp")
EXPERT_STACKS = tuple(f"{attention}-{experts}" for attention in ATTENTION for experts in EXPERTS)
STACKS = ATTENTION + EXPERT_STACKS + MEGATRON
LOOPED = "choice and token of each pair"  # what only experts in a loop keep


class Kept(NamedTuple):
    """One tensor that waits for the backward pass.

    kind:  what it is, in a few words: the name under which an Inventory adds it up
    where: the part of the block that keeps it
    shape: of the storage that stays; dtype: of its elements
    """

    kind: str
    where: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Elements × bytes an element."""
        return math.prod(self.shape) * BYTES[self.dtype]


# How a model is run.


@dataclass(frozen=True)
class _Run:
    """One training step: the model, its input's sizes and the software."""

    model: Model
    b: int
    s: int
    stack: str
    dtype: str
    dropout: bool
    recompute: str = "none"

    @property
    def n(self) -> int:
        return self.b * self.s

    @property
    def attention(self) -> str:
        """"sdpa" or "eager"."""
        return self.stack.split("-")[1]

    @property
    def padded(self) -> bool:
        return "masked" in self.stack

    @property
    def experts(self) -> str | None:
        """How experts are run, one of EXPERTS; None where there are none."""
        last = self.stack.split("-")[-1]
        return last if last in EXPERTS else None

    @property
    def title(self) -> str:
        return (f"{self.model.name}, batch {self.b} × {self.s} tokens, {self.dtype}, {self.stack},"
                f" recompute {self.recompute}")

    def option(self, key: str):
        """A key of the config.json that shapes activations but no parameter; absent, transformers' default."""
        return self.model.config.get(key, _DEFAULTS.get(self.model.family, {}).get(key))

    def masked(self, layer: int) -> bool:
        """Is a mask written out: for padding, or because the sequence reaches past the layer's window?"""
        window = self.model.windows[layer]
        return self.padded or (window is not None and self.s >= window)

    @property
    def fused(self) -> bool:
        """Does attention run in one fused kernel? A CPU has none for dropout, nor for values of another width."""
        dropped = self.dropout and self.model.attention_dropout > 0
        return self.attention == "sdpa" and not dropped and self.model.value_dim == self.model.head_dim

    def keeps(self, kind: str, where: str, *shape: int, dtype: str | None = None) -> Kept:
        return Kept(kind, where, shape, dtype or self.dtype)


# transformers 5.24.0's defaults for keys that memtier.models does not read; tests compare them with its classes.
_DEFAULTS = {
    "gpt_neox": {"use_parallel_residual": True},
    "qwen2_moe": {"norm_topk_prob": False},
    "qwen3_moe": {"norm_topk_prob": False},
    "deepseek_v2": {"topk_method": "greedy"},
    "deepseek_v3": {"norm_topk_prob": True},
}
# Keys that would change what is kept in ways not derived here.
_REFUSED = {
    "output_router_logits": "the router's own loss is not modelled",
    "router_jitter_noise": "noise on the router's input is not modelled",
    "reorder_and_upcast_attn": "attention computed in another order is not modelled",
    "output_attentions": "returned attention matrices are not modelled",
    "output_hidden_states": "returned hidden states are not modelled",
}

# What an activation function keeps: its own input? and how many tensors of that size on the way to its output. (The
# output is kept too, by what multiplies it.) Fused ones keep their input; those written out in Python keep the steps.
_ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish", "gelu", "gelu_pytorch_tanh", "mish", "hardswish", "leaky_relu", "relu6",
                     "sqrtsoftplus"), (True, 0)),
    **dict.fromkeys(("relu", "sigmoid", "tanh", "linear"), (False, 0)),
    **dict.fromkeys(("gelu_new", "gelu_accurate", "gelu_python_tanh"), (True, 3)),
    "gelu_fast": (True, 6),
    "quick_gelu": (True, 1),
    "gelu_10": (True, 1),
    "gelu_python": (False, 3),
    "laplace": (False, 1),
    "relu2": (False, 1),
}

# Families that put queries together from a part that rotary embedding turns and a part that it does not.
_CONCATENATED = ("gpt_neox", "phi3", "deepseek_v2", "deepseek_v3")

_ROUNDED = ("qwen2_moe", "qwen3_moe")  # these round the experts' weights to the model's type


# The pieces blocks are built from. Each yields the tensors it keeps that no earlier piece has kept.


def _rms_norm(run: _Run, where: str, *shape: int, stored: int | None = None) -> Iterator[Kept]:
    """RMS norm written in Python: its input as fp32, one factor a row, the normalised input.

    Bytes: 4nh + 4n + e·nh. Gemma and OLMo 2 multiply by the weight before they round: the last is 4nh there, and Gemma
    adds 4h for 1 + weight. stored: width of the rows the input is a view of, which stay when it is not copied (fp32).
    """
    *rows, width = shape
    wide = stored if stored and run.dtype == "fp32" else width
    late = run.model.family in ("gemma2", "gemma3_text", "olmo2")
    yield run.keeps("norm inputs", where, *rows, wide, dtype="fp32")
    yield run.keeps("norm factors", where, *rows, 1, dtype="fp32")
    if run.model.family in ("gemma2", "gemma3_text"):
        yield run.keeps("norm factors", f"{where}, 1 + weight", width, dtype="fp32")
    yield run.keeps("normalised inputs", where, *rows, width, dtype="fp32" if late else None)


def _layer_norm(run: _Run, where: str, shares_input: bool = False) -> Iterator[Kept]:
    """torch's layer norm: its input, a mean and a factor a row: e(nh + 2n) on a CPU."""
    if not shares_input:
        yield run.keeps("norm inputs", where, run.b, run.s, run.model.hidden)
    yield run.keeps("norm factors", f"{where}, mean", run.b, run.s, 1)
    yield run.keeps("norm factors", f"{where}, reciprocal deviation", run.b, run.s, 1)


def _dropout(run: _Run, where: str, p: float, *shape: int) -> Iterator[Kept]:
    """The mask of a dropout: on a CPU as wide as the values it is multiplied with."""
    if run.dropout and p > 0:
        yield run.keeps("dropout masks", where, *shape)


def _attend(run: _Run, layer: int, queries: Kept | None, keys: Kept | None, values: Kept) -> Iterator[Kept]:
    """What attention itself keeps, from queries, keys and values as they come out of projection and rotary embedding.

    queries, keys, values: the storages they lie in; None where they lie in the same storage as the values.
    """
    model = run.model
    dropped = run.dropout and model.attention_dropout > 0
    if run.attention == "eager":
        return _eager(run, queries, keys, values, dropped)
    if run.fused:
        return _flash(run, layer, queries, keys, values)
    return _sdpa_in_steps(run, layer, values, dropped)


def _flash(run: _Run, layer: int, queries: Kept | None, keys: Kept | None, values: Kept) -> Iterator[Kept]:
    """scaled_dot_product_attention's fused kernel: no s × s matrix, only one log-sum-exp a row of it.

    Bytes: e·nd(A + 2K) + e·nAd + 4nA. With a mask, or heads above 256, transformers first copies keys and values to
    all A heads; a mask adds e·b·s². The output is laid out as the queries are: where they were put together head by
    head, the output projection needs a copy, e·nAd more.
    """
    model, masked = run.model, run.masked(layer)
    grouped = model.heads > model.kv_heads
    if masked:
        yield run.keeps("attention mask", "attention", run.b, 1, run.s, run.s)
    if grouped and model.kv_heads > 1 and (masked or model.head_dim > 256):
        keys, values = (run.keeps(kind, "attention, copied to all heads", run.b, model.heads, run.s, model.head_dim)
                        for kind in ("keys", "values"))
    yield from filter(None, (queries, keys, values))
    yield run.keeps("log-sum-exp", "attention", run.b, model.heads, run.s, dtype="fp32")
    yield run.keeps("attention output", "attention", run.b, model.heads, run.s, model.value_dim)
    if model.family in _CONCATENATED and model.heads > 1:
        yield run.keeps("attention output", "input of the output projection", run.n, model.heads * model.value_dim)


def _eager(run: _Run, queries: Kept | None, keys: Kept | None, values: Kept, dropped: bool) -> Iterator[Kept]:
    """Attention in plain operations: the s × s probabilities are kept, in fp32 and as they multiply the values.

    Bytes: e·nA(2d + d) + (4 + e)·bAs² + e·nAd, and e·bAs² each for a softcap, a dropout's mask and its result.
    Keys and values are copied to all A heads, and each matrix product copies what it cannot view.
    """
    model = run.model
    matrix = (run.b, model.heads, run.s, run.s)
    if not (model.heads == 1 or (run.b == 1 and model.kv_heads in (1, model.heads))):
        tall, flat = (run.b, model.heads, run.s, model.head_dim), (run.b, model.heads, run.s, model.value_dim)
        queries = queries or run.keeps("queries", "attention", *tall)
        keys, values = run.keeps("keys", "attention", *tall), run.keeps("values", "attention", *flat)
    shared = queries is None  # queries and keys lie in the values' storage, which they keep from here on
    yield from [values] if shared else [queries, keys]
    if model.attention_softcap is not None and model.family == "gemma2":  # gemma3_text reads the key but does not cap
        yield run.keeps("capped scores", "attention", *matrix)
    single = model.family == "gpt2"  # its softmax is not taken in fp32
    yield run.keeps("attention probabilities", "attention, softmax", *matrix, dtype=None if single else "fp32")
    if dropped:
        yield run.keeps("dropout masks", "attention", *matrix)
        yield run.keeps("attention probabilities", "attention, after dropout", *matrix)
    elif run.dtype != "fp32" and not single:
        yield run.keeps("attention probabilities", "attention, rounded", *matrix)
    if not shared:
        yield values
    yield run.keeps("attention output", "attention", run.b, model.heads, run.s, model.value_dim)


def _sdpa_in_steps(run: _Run, layer: int, values: Kept, dropped: bool) -> Iterator[Kept]:
    """scaled_dot_product_attention where no fused CPU kernel serves: dropout, or values narrower than keys.

    It computes in fp32 and keeps scaled queries and keys, the values and the s × s probabilities:
    4nA(2d + d_v) + 4bAs² (and 8bAs² more with dropout) + e·nAd_v.
    """
    model = run.model
    matrix = (run.b, model.heads, run.s, run.s)
    for kind in ("queries", "keys"):
        yield run.keeps(kind, "attention, scaled in fp32", run.b, model.heads, run.s, model.head_dim, dtype="fp32")
    yield run.keeps("attention probabilities", "attention, softmax", *matrix, dtype="fp32")
    if dropped:
        yield run.keeps("dropout masks", "attention", *matrix, dtype="fp32")
        yield run.keeps("attention probabilities", "attention, after dropout", *matrix, dtype="fp32")
    # One row of keys and values for all heads is expanded without a copy where a mask is given.
    expanded = model.kv_heads == 1 and (run.masked(layer) or model.head_dim > 256)
    if run.dtype == "fp32" and (model.kv_heads == model.heads or expanded) and (run.b == 1 or model.heads == 1):
        yield values
    else:
        yield run.keeps("values", "attention, in fp32", run.b, model.heads, run.s, model.value_dim, dtype="fp32")
    yield run.keeps("attention output", "attention", run.b, run.s, model.heads * model.value_dim)


def _attention(run: _Run, layer: int) -> Iterator[Kept]:
    """Grouped-query attention with rotary embedding; one projection each for queries, keys and values."""
    model, b, s = run.model, run.b, run.s
    yield run.keeps("attention inputs", "input of q, k and v", run.n, model.hidden)
    if model.qk_norm == "head":
        yield from _rms_norm(run, "query norm", b, model.heads, s, model.head_dim)
        yield from _rms_norm(run, "key norm", b, model.kv_heads, s, model.head_dim)
    elif model.qk_norm == "width":
        yield from _rms_norm(run, "query norm", b, s, model.heads * model.head_dim)
        yield from _rms_norm(run, "key norm", b, s, model.kv_heads * model.head_dim)
    yield from _attend(
        run, layer,
        run.keeps("queries", "attention, after rotary embedding", b, model.heads, s, model.head_dim),
        run.keeps("keys", "attention, after rotary embedding", b, model.kv_heads, s, model.head_dim),
        run.keeps("values", "attention", b, model.kv_heads, s, model.head_dim))


def _fused_attention(run: _Run, layer: int) -> Iterator[Kept]:
    """One projection for queries, keys and values: the values are a view of it, so all of it stays with them.

    With rotary embedding queries and keys are new tensors; without (gpt2) they are views too.
    """
    model, b, s = run.model, run.b, run.s
    yield run.keeps("attention inputs", "input of q, k and v", run.n, model.hidden)
    width = (model.heads + 2 * model.kv_heads) * model.head_dim
    fused = run.keeps("queries, keys and values in one", "attention", b, s, width)
    if model.family == "gpt2":
        yield from _attend(run, layer, None, None, fused)
    else:
        yield from _attend(
            run, layer,
            run.keeps("queries", "attention, after rotary embedding", b, model.heads, s, model.head_dim),
            run.keeps("keys", "attention, after rotary embedding", b, model.kv_heads, s, model.head_dim),
            fused)


def _latent_attention(run: _Run, layer: int) -> Iterator[Kept]:
    """Multi-head latent attention, keys and values expanded: training does not use the compressed form."""
    model, b, s = run.model, run.b, run.s
    yield run.keeps("attention inputs", "input of q and kv", run.n, model.hidden)
    if model.q_rank is not None:
        yield from _rms_norm(run, "query norm", b, s, model.q_rank)
        yield run.keeps("attention inputs", "input of q_b", run.n, model.q_rank)
    yield from _rms_norm(run, "key and value norm", b, s, model.kv_rank, stored=model.kv_rank + model.rope_dim)
    yield run.keeps("attention inputs", "input of kv_b", run.n, model.kv_rank)
    expanded = model.head_dim - model.rope_dim + model.value_dim
    yield from _attend(
        run, layer,
        run.keeps("queries", "attention, after rotary embedding", b, model.heads, s, model.head_dim),
        run.keeps("keys", "attention, after rotary embedding", b, model.heads, s, model.head_dim),
        run.keeps("values", "attention, with the keys' first part", b, s, model.heads * expanded))


def _activation(run: _Run, where: str, *shape: int) -> Iterator[Kept]:
    """The steps of an activation function between its input and its output."""
    for _ in range(_ACTIVATIONS[run.model.activation][1]):
        yield run.keeps("activation function", where, *shape)


def _gated(run: _Run, where: str, width: int, *rows: int, fused: bool = False) -> Iterator[Kept]:
    """gate, activated gate, up, product: 4·e·nf. Where one projection makes gate and up they are one tensor."""
    gate_kept = _ACTIVATIONS[run.model.activation][0]
    if fused:
        yield run.keeps("gate and up in one", where, *rows, 2 * width)
    elif gate_kept:
        yield run.keeps("gate", where, *rows, width)
    yield from _activation(run, where, *rows, width)
    if not (fused and run.model.activation == "linear"):
        yield run.keeps("activated gate", where, *rows, width)
    if not fused:
        yield run.keeps("up", where, *rows, width)
    yield run.keeps("gate × up", f"{where}, input of down", *rows, width)


def _gated_mlp(run: _Run) -> Iterator[Kept]:
    yield run.keeps("MLP inputs", "input of gate and up", run.n, run.model.hidden)
    yield from _gated(run, "MLP", run.model.intermediate, run.n, fused=run.model.family == "phi3")


def _plain_mlp(run: _Run) -> Iterator[Kept]:
    """Two matrices with an activation function between: its input, its steps, its output."""
    yield run.keeps("MLP inputs", "input of the first matrix", run.n, run.model.hidden)
    if _ACTIVATIONS[run.model.activation][0]:
        yield run.keeps("activation function", "MLP, its input", run.n, run.model.intermediate)
    yield from _activation(run, "MLP", run.n, run.model.intermediate)
    yield run.keeps("activated", "MLP, input of the second matrix", run.n, run.model.intermediate)


def _router(run: _Run) -> Iterator[Kept]:
    """The choice of experts: scores in fp32, the k chosen ones, and what scaling them to add up to 1 needs."""
    model, n, k = run.model, run.n, run.model.experts_per_token
    deepseek = model.family.startswith("deepseek")
    if deepseek and run.dtype != "fp32":
        yield run.keeps("router", "its input in fp32", n, model.hidden, dtype="fp32")
    yield run.keeps("router", "scores", n, model.experts, dtype="fp32")
    yield run.keeps("router", "chosen experts", n, k, dtype="int64")
    if model.family == "deepseek_v2" and run.option("topk_method") == "group_limited_greedy":
        yield run.keeps("router", "experts outside the chosen groups", n, model.experts, dtype="bool")
    if model.family == "mixtral" or (model.family != "deepseek_v2" and run.option("norm_topk_prob")):
        yield run.keeps("router", "chosen scores", n, k, dtype="fp32")
        yield run.keeps("router", "their sum", n, 1, dtype="fp32")


def _experts(run: _Run) -> Iterator[Kept]:
    """The routed experts on n·k pairs of token and expert, as the stack runs them.

    Bytes for c = nk pairs and expert width f: e·c(2h + 4f), the weight of each pair, and indices; "batched" adds the
    copied matrices, e·c·3hf; "loop" adds e·c·h.
    """
    model, pairs = run.model, run.n * run.model.experts_per_token
    h, f = model.hidden, model.expert_intermediate
    if run.experts == "grouped":
        yield run.keeps("expert indices", "token of each pair", pairs, dtype="int64")
        yield run.keeps("expert indices", "order of the pairs", pairs, dtype="int64")
        yield run.keeps("expert indices", "end of each expert's pairs", model.experts, dtype="int32")
    elif run.experts == "loop":
        yield run.keeps("expert indices", LOOPED, pairs, 2, dtype="int64")
    yield run.keeps("expert inputs", "experts", pairs, h)
    if run.experts == "batched":
        yield run.keeps("copied expert weights", "gate and up of each pair", pairs, 2 * f, h)
    yield from _gated(run, "experts", f, pairs, fused=True)
    if run.experts == "batched":
        yield run.keeps("copied expert weights", "down of each pair", pairs, h, f)
    yield run.keeps("router", "weight of each pair", pairs, 1, dtype=None if model.family in _ROUNDED else "fp32")
    yield run.keeps("expert outputs", "before weighting", pairs, h)
    if run.experts == "grouped":
        yield run.keeps("expert indices", "order back", pairs, dtype="int64")
    elif run.experts == "loop":
        yield run.keeps("expert outputs", "weighted", pairs, h)


def of_experts(kept: Kept) -> bool:
    """Is it one of the tensors that the routed experts themselves keep?"""
    return (kept.kind.startswith("expert ") or kept.kind == "copied expert weights" or kept.where.startswith("experts")
            or kept.where == "weight of each pair") and not kept.where.startswith(("shared", "experts outside"))


def _sparse_mlp(run: _Run) -> Iterator[Kept]:
    """Router and routed experts; DeepSeek runs its shared expert after them, Qwen 2 before, with a gate of its own."""
    model, family = run.model, run.model.family
    inputs = run.keeps("MLP inputs", "input of router and experts", run.n, model.hidden)
    late = family.startswith("deepseek") and run.dtype != "fp32"  # the router reads a copy in fp32
    if not late:
        yield inputs
    if family == "qwen2_moe":
        yield from _gated(run, "shared expert", model.shared_intermediate, run.n)
    yield from _router(run)
    yield from _experts(run)
    if late:
        yield inputs
    if family.startswith("deepseek"):
        yield from _gated(run, "shared expert", model.shared_intermediate, run.n)
    if family == "qwen2_moe":
        yield run.keeps("router", "gate of the shared expert", run.n, 1)
        yield run.keeps("expert outputs", "shared expert, before its gate", run.n, model.hidden)


# One function a block.


def _llama_block(run: _Run, layer: int) -> Iterator[Kept]:
    """Norm before attention and before the MLP, which can be experts; attention as the family has it."""
    model = run.model
    hidden = (run.b, run.s, model.hidden)
    attention = _latent_attention if model.kv_rank else _fused_attention if model.family == "phi3" else _attention
    yield from _rms_norm(run, "attention norm", *hidden)
    yield from attention(run, layer)
    yield from _dropout(run, "after attention", model.residual_dropout, *hidden)
    yield from _rms_norm(run, "MLP norm", *hidden)
    yield from _sparse_mlp(run) if model.sparse[layer] else _gated_mlp(run)
    yield from _dropout(run, "after the MLP", model.residual_dropout, *hidden)


def _gemma_block(run: _Run, layer: int) -> Iterator[Kept]:
    """Norms before and after attention, before and after the MLP."""
    hidden = (run.b, run.s, run.model.hidden)
    yield from _rms_norm(run, "attention norm", *hidden)
    yield from _attention(run, layer)
    yield from _rms_norm(run, "norm after attention", *hidden)
    yield from _rms_norm(run, "MLP norm", *hidden)
    yield from _gated_mlp(run)
    yield from _rms_norm(run, "norm after the MLP", *hidden)


def _olmo2_block(run: _Run, layer: int) -> Iterator[Kept]:
    """Norms only after attention and after the MLP."""
    hidden = (run.b, run.s, run.model.hidden)
    yield from _attention(run, layer)
    yield from _rms_norm(run, "norm after attention", *hidden)
    yield from _gated_mlp(run)
    yield from _rms_norm(run, "norm after the MLP", *hidden)


def _gpt2_block(run: _Run, layer: int) -> Iterator[Kept]:
    hidden = (run.b, run.s, run.model.hidden)
    yield from _layer_norm(run, "attention norm")
    yield from _fused_attention(run, layer)
    yield from _dropout(run, "after attention", run.model.residual_dropout, *hidden)
    yield from _layer_norm(run, "MLP norm")
    yield from _plain_mlp(run)
    yield from _dropout(run, "after the MLP", run.model.residual_dropout, *hidden)


def _gpt_neox_block(run: _Run, layer: int) -> Iterator[Kept]:
    """Attention and MLP side by side: both norms read, and keep, the same input."""
    hidden = (run.b, run.s, run.model.hidden)
    yield from _layer_norm(run, "attention norm")
    yield from _fused_attention(run, layer)
    yield from _dropout(run, "after attention", run.model.residual_dropout, *hidden)
    yield from _layer_norm(run, "MLP norm", shares_input=run.option("use_parallel_residual"))
    yield from _plain_mlp(run)
    yield from _dropout(run, "after the MLP", run.model.residual_dropout, *hidden)


_BLOCKS: dict[str, Callable[[_Run, int], Iterator[Kept]]] = {
    "gemma2": _gemma_block, "gemma3_text": _gemma_block, "olmo2": _olmo2_block, "gpt2": _gpt2_block,
    "gpt_neox": _gpt_neox_block,
}  # fmt: skip


def _base(run: _Run) -> Iterator[Kept]:
    """What is kept once a model: 8n + rotary cos and sin + final norm + e·nh + 4nV + labels + 4."""
    model, b, s, n = run.model, run.b, run.s, run.n
    yield run.keeps("token ids", "embedding", b, s, dtype="int64")
    if model.family == "gpt2":
        yield run.keeps("token ids", "positions", 1, s, dtype="int64")
    if model.family in ("gpt2", "gpt_neox"):
        yield from _dropout(run, "after the embedding", model.embedding_dropout, b, s, model.hidden)
    yield from _rotary(run)
    if model.norm == "layer":
        yield from _layer_norm(run, "final norm")
    else:
        yield from _rms_norm(run, "final norm", b, s, model.hidden)
    yield run.keeps("head input", "head", n, model.hidden)
    if model.logit_softcap is not None:
        yield run.keeps("logits", "capped", b, s, model.vocab)
    yield run.keeps("log-probabilities", "loss", n, model.vocab, dtype="fp32")
    # Shifted by one: padded to s + 1, then a copy without the first column, which one row needs not be copied for.
    yield run.keeps("labels", "loss", *((1, s + 1) if b == 1 else (n,)), dtype="int64")
    yield run.keeps("labels", "loss, number of tokens", dtype="fp32")


def _rotary(run: _Run) -> Iterator[Kept]:
    """cos and sin of every position, shared by all layers (Gemma 3: by all layers of a kind)."""
    model = run.model
    if model.rope_dim == 0:
        return
    if model.family == "deepseek_v2":  # one complex number for each pair of a head's numbers
        yield run.keeps("rotary cos and sin", "attention", 1, run.s, model.rope_dim // 2, dtype="complex64")
        return
    kinds = {window is None for window in model.windows} if model.family == "gemma3_text" else {True}
    for table in ("cos", "sin") * len(kinds):
        yield run.keeps("rotary cos and sin", table, 1, run.s, model.rope_dim,
                        dtype="fp32" if model.family == "olmo2" else None)


# What a caller asks for.


def stacks(model) -> tuple[str, ...]:
    """The names of the hf stacks under which a model can be run, transformers' own choice first.

    Raises ValueError for what is not an architecture.
    """
    model = _architecture(model)
    attention = ("hf-eager",) if model.family == "gemma2" else ATTENTION
    if any(model.sparse):
        return tuple(f"{each}-{experts}" for each in attention for experts in EXPERTS)
    return attention


def _architecture(model) -> Model:
    model = models.resolve(model)
    if not isinstance(model, Model):
        raise ValueError(f"model is the parameter count {model:,}; activations depend on shapes, so it must be an"
                         " architecture")
    return model


def _run(model, batch, sequence, stack, dtype, dropout, recompute="none") -> _Run:
    """The arguments, checked."""
    model = _architecture(model)
    checks.whole("batch", batch)
    checks.whole("sequence", sequence, least=2)  # a single token has nothing to predict
    checks.one_of("dtype", dtype, DTYPES)
    checks.one_of("recompute", recompute, RECOMPUTE)
    if not isinstance(dropout, bool):
        raise ValueError(f"dropout is {dropout!r}; it must be True (as the configuration says) or False")
    _accept(model, stack)
    if model.family == "gpt2" and sequence > model.positions:
        raise ValueError(f"sequence is {sequence}; {model.name} has learnt {model.positions:,} positions, so it must be"
                         " at most that")
    return _Run(model, batch, sequence, stack, dtype, dropout, recompute)


def _accept(model: Model, stack: str) -> None:
    """Raise ValueError for a stack that does not run this model, and for a configuration that is not derived."""
    checks.one_of("stack", stack, STACKS)
    if stack not in stacks(model):
        reason = ("a formula has no list of tensors" if stack in MEGATRON else
                  "how experts are run is part of the name" if any(model.sparse) else
                  "transformers runs gemma2 with eager attention only" if stack in ATTENTION else
                  "it has no experts")
        raise ValueError(f"stack is {stack!r}; for {model.name} ({model.family}) it must be one of"
                         f" {', '.join(stacks(model))}: {reason}")
    for key, why in _REFUSED.items():
        if model.config.get(key):
            raise ValueError(f"{key} is {model.config[key]!r}; it must be absent or off: {why}")
    method = model.config.get("topk_method", "greedy")
    if model.family == "deepseek_v2" and any(model.sparse):
        checks.one_of("topk_method", method, ("greedy", "group_limited_greedy"))
    if model.activation not in _ACTIVATIONS:
        raise ValueError(f"the activation function is {model.activation!r}; it must be one of"
                         f" {', '.join(_ACTIVATIONS)}")
    if any(model.sparse) and model.experts_per_token is None:
        raise ValueError("num_experts_per_tok is null; it must be a whole number")


def block(model, layer: int = 0, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", dtype: str = "bf16",
          dropout: bool = True) -> tuple[Kept, ...]:
    """Every tensor one decoder layer keeps, nothing recomputed, in the order of the forward pass.

    layer: its number from 0. The other arguments are those of `saved`; raises ValueError as it does.
    """
    run = _run(model, batch, sequence, stack, dtype, dropout)
    checks.whole("layer", layer, least=0, most=run.model.layers - 1)
    return tuple(_block(run, layer))


def tensors(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
            dtype: str = "bf16", dropout: bool = True) -> tuple[tuple[str | int, Kept], ...]:
    """What `saved` adds up: each tensor with the number of the layer that keeps it, or "root" where it is kept once a
    model: token ids, rotary tables, final norm, head and loss. Arguments as in `saved`; raises ValueError as it does.
    """
    return tuple(_kept(_run(model, batch, sequence, stack, dtype, dropout, recompute)))


def saved(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
          dtype: str = "bf16", dropout: bool = True, layout: Layout | None = None) -> Inventory:
    """Bytes the forward pass keeps for the backward pass, labels given, by kind of tensor.

    model: as models.resolve takes it. batch, sequence: sequences on one device, tokens in each.
    stack: the software, one of STACKS. dtype: of weights and activations, "bf16" or "fp32".
    recompute:
        "none"       everything is kept
        "full"       torch.utils.checkpoint, not reentrant, around each decoder layer, as transformers does it: the
                     layer's input is kept, all else is computed again
        "selective"  the same, but torch's selective policy also keeps what each weight's matrix product gives, and
                     fused attention's output and log-sum-exp. Norms, rotary embedding, activation functions and
                     products of elements are computed again; so is attention where it is not fused
        The Megatron stacks' "selective" keeps all but attention's s × s matrices.
    dropout: False leaves out dropout that the configuration asks for.
    layout: for the Megatron stacks, over how many GPUs the model is divided; bytes are those of one GPU. tensor divides
        layers; "megatron-sp" divides the sequence too, whether or not layout's sequence_parallel says so again, and
        "megatron" with sequence_parallel=True is refused. pipeline: bytes of the first stage, the fullest, which keeps
        pipeline micro-batches of layers / pipeline layers each, and no head. Data parallelism divides no activations:
        batch is that of one GPU. The other stacks run on one GPU and refuse tensor and pipeline above 1.

    Raises ValueError for arguments that are not these, a bare parameter count, and a model that the stack does not run.
    """
    layout = Layout() if layout is None else layout
    if not isinstance(layout, Layout):
        raise ValueError(f"layout is {layout!r}; it must be a Layout")
    if stack in MEGATRON:
        return _megatron(_architecture(model), batch, sequence, stack, recompute, dtype, dropout, layout)
    for name in ("tensor", "pipeline"):
        if getattr(layout, name) != 1:
            raise ValueError(f"layout has {name}={getattr(layout, name)}; for stack {stack!r} it must be 1: only"
                             f" {' and '.join(MEGATRON)} divide a model")
    run = _run(model, batch, sequence, stack, dtype, dropout, recompute)
    total = _inventory(_kept_once(run), run.title)
    for layers in _alike(run):
        total = total + _inventory(_kept_by(run, layers[0]), run.title) * len(layers)
    return total


def _inventory(kept: Iterable[Kept], title: str) -> Inventory:
    total: dict[str, int] = {}
    for each in kept:
        total[each.kind] = total.get(each.kind, 0) + each.nbytes
    return Inventory(total, title)


def _block(run: _Run, layer: int) -> Iterator[Kept]:
    return _BLOCKS.get(run.model.family, _llama_block)(run, layer)


def _kept(run: _Run) -> Iterator[tuple[str | int, Kept]]:
    yield from (("root", kept) for kept in _kept_once(run))
    alike: dict[int, tuple[Kept, ...]] = {}
    for layers in _alike(run):
        alike |= dict.fromkeys(layers, tuple(_kept_by(run, layers[0])))
    for layer in range(run.model.layers):
        exactly = alike[layer] if run.recompute != "selective" else _kept_by(run, layer)  # its tensors carry names
        yield from ((layer, kept) for kept in exactly)


def _alike(run: _Run) -> Iterable[list[int]]:
    """The layers, by number, in groups that keep the same: a page has no time to count each of a hundred."""
    groups: dict[tuple, list[int]] = {}
    for layer, kind in enumerate(zip(run.model.sparse, run.model.windows, strict=True)):
        groups.setdefault(kind, []).append(layer)
    return groups.values()


def _kept_by(run: _Run, layer: int) -> Iterator[Kept]:
    return _block(run, layer) if run.recompute == "none" else _kept_again(run, layer)


def _kept_once(run: _Run) -> Iterator[Kept]:
    """What is kept once a model."""
    again = run.recompute != "none"
    for kept in _base(run):
        if not (again and kept.kind == "rotary cos and sin"):  # layers that are computed again only borrow these
            yield kept
    if again and run.model.family == "gpt2" and (run.attention == "eager" or run.padded):
        # It hands its blocks the mask as it hands them their input, and both are kept.
        yield run.keeps("attention mask", "all layers", run.b, 1, run.s, run.s,
                        dtype=None if run.attention == "eager" else "bool")


def _kept_again(run: _Run, layer: int) -> Iterator[Kept]:
    """What a layer keeps that is to be computed again."""
    yield run.keeps("layer inputs", "layer", run.b, run.s, run.model.hidden)
    if run.recompute == "selective":
        yield from _products(run, layer)


def _products(run: _Run, layer: int) -> Iterator[Kept]:
    """What selective recomputation keeps beside a layer's input. Experts run pair by pair ("batched") are products with
    copies of weights, which the policy does not keep.
    """
    model = run.model
    for tensor in model.tensors():
        if tensor.unit == layer and tensor.part in ("attention", "mlp", "router") and len(tensor.shape) == 2:
            outputs = tensor.shape[1 if model.family == "gpt2" else 0]
            exact = tensor.part == "router" and model.family.startswith("deepseek")
            yield run.keeps("matrix products", tensor.name, run.n, outputs, dtype="fp32" if exact else None)
    if model.sparse[layer] and run.experts != "batched":
        pairs = run.n * model.experts_per_token
        yield run.keeps("matrix products", "experts' gate and up", pairs, 2 * model.expert_intermediate)
        yield run.keeps("matrix products", "experts' down", pairs, model.hidden)
    if run.fused:
        yield run.keeps("log-sum-exp", "attention", run.b, model.heads, run.s, dtype="fp32")
        yield run.keeps("attention output", "attention", run.b, model.heads, run.s, model.value_dim)


# What is alive, and the most that is.


def live(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
         dtype: str = "bf16", dropout: bool = True) -> Inventory:
    """Bytes alive when the forward pass has returned and only its loss is held: `saved`, and what else is alive.

    That is the loss itself and, where layers are computed again, what they are called with: positions, rotary tables,
    masks. (The state of the random numbers, 5,056 bytes a layer on a CPU, is no tensor of the model and is left out.)
    Arguments as in `saved`; raises ValueError as it does.
    """
    run = _run(model, batch, sequence, stack, dtype, dropout, recompute)
    return _inventory(_alive(run), f"{run.title}: after the forward pass")


def moments(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
            dtype: str = "bf16", dropout: bool = True) -> dict[str, Inventory]:
    """The fullest moment of each stretch of a training step, as what is alive in it; finished gradients of parameters,
    which are not activations, are left out.

    "loss":               the forward pass at the cross entropy: logits, and for bf16 their fp32 copy, beside `live`
    "loss backward":      two gradients as large as the fp32 logits, 8nV
    "head backward":      the gradients of the head, or of the final norm
    "layers backward":    the fullest layer, computed again if it was not kept, and the gradients passing through it
    "embedding backward": the embedding's gradient; where the head is tied to it, also the head's and their sum

    Arguments as in `saved`. Raises ValueError as it does, and for experts in a loop: how full their fullest moment is
    depends on how many tokens each is sent.
    """
    run = _run(model, batch, sequence, stack, dtype, dropout, recompute)
    if run.experts == "loop":
        raise ValueError(f"stack is {stack!r}; what is alive in a loop over experts depends on their tokens, so it must"
                         " be another")
    alive = _alive(run)
    after_loss = [*_without(alive, "labels", "log-probabilities"), run.keeps("loss", "its gradient", dtype="fp32")]
    stretches = {
        "loss": [*alive, *_at_loss(run)],
        "loss backward": [*_without(alive, "labels"), *_at_loss_backward(run)],
        "head backward": _fullest([*after_loss, *_at_head_backward(run)], _at_final_norm_backward(run, after_loss)),
        "layers backward": _fullest_layer(run),
        "embedding backward": [*_at_embedding_backward(run)],
    }
    return {moment: _inventory(kept, f"{run.title}: {moment}") for moment, kept in stretches.items()}


def peak(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
         dtype: str = "bf16", dropout: bool = True) -> Inventory:
    """The fullest of a step's `moments`; its title says which. Arguments as in `saved`; raises as `moments` does."""
    found = moments(model, batch=batch, sequence=sequence, stack=stack, recompute=recompute, dtype=dtype,
                    dropout=dropout)
    return max(found.values(), key=lambda inventory: inventory.total)


def _alive(run: _Run) -> list[Kept]:
    return [*(kept for _, kept in _kept(run)), *_held(run)]


def _held(run: _Run) -> Iterator[Kept]:
    """What is alive after the forward pass beside what autograd keeps."""
    yield run.keeps("loss", "itself", dtype="fp32")
    if run.recompute == "none" or run.model.family == "gpt2":  # gpt2's is kept already: see _kept
        return
    yield from _rotary(run)
    yield run.keeps("positions", "all layers", 1, run.s, dtype="int64")
    for window in dict.fromkeys(run.model.windows):  # one mask for each kind of layer
        if run.attention == "eager":
            yield run.keeps("attention mask", "all layers", run.b, 1, run.s, run.s)
        elif run.padded:
            yield run.keeps("attention mask", "all layers", run.b, 1, run.s, run.s, dtype="bool")
        elif window is not None and run.s >= window:  # one for the whole batch
            yield run.keeps("attention mask", "all layers", 1, 1, run.s, run.s, dtype="bool")


def _without(kept: Iterable[Kept], *kinds: str) -> list[Kept]:
    return [each for each in kept if each.kind not in kinds]


def _fullest(*candidates: list[Kept]) -> list[Kept]:
    return max(candidates, key=lambda kept: sum(each.nbytes for each in kept))


def _at_loss(run: _Run) -> Iterator[Kept]:
    yield run.keeps("logits", "head", run.n, run.model.vocab)
    if run.dtype != "fp32":
        yield run.keeps("logits", "in fp32", run.n, run.model.vocab, dtype="fp32")
    if run.b > 1:
        yield run.keeps("labels", "padded", run.b, run.s + 1, dtype="int64")


def _at_loss_backward(run: _Run) -> Iterator[Kept]:
    yield run.keeps("loss", "its gradient", dtype="fp32")
    yield run.keeps("gradients", "log-probabilities", run.n, run.model.vocab, dtype="fp32")
    yield run.keeps("gradients", "logits in fp32", run.n, run.model.vocab, dtype="fp32")


def _at_head_backward(run: _Run) -> Iterator[Kept]:
    yield run.keeps("gradients", "logits", run.n, run.model.vocab)
    yield run.keeps("gradients", "head weight", run.model.vocab, run.model.hidden)
    yield run.keeps("gradients", "head input", run.n, run.model.hidden)


def _at_final_norm_backward(run: _Run, alive: list[Kept]) -> list[Kept]:
    """The head is done; of the final norm only its input is still held."""
    if run.model.norm == "layer":  # one kernel, no more than the gradient of its input
        return []
    left = [each for each in alive if each.where not in ("head", "capped") and (
        not each.where.startswith("final norm") or each.kind == "norm inputs")]
    return [*left, *_inside_norm(run, run.n, run.model.hidden)]


def _inside_norm(run: _Run, *shape: int) -> list[Kept]:
    """Gradients inside an RMS norm written in Python, at the square of its input: five of the input's size, in fp32."""
    return [run.keeps("gradients", "inside a norm", *shape, dtype="fp32")] * 5


def _at_embedding_backward(run: _Run) -> Iterator[Kept]:
    yield from (each for each in _base(run) if each.kind == "token ids")
    yield run.keeps("loss", "itself and its gradient", 2, dtype="fp32")
    if run.model.tied:
        for which in ("embedding", "head", "their sum"):
            yield run.keeps("gradients", which, run.model.vocab, run.model.hidden)
    else:
        yield run.keeps("gradients", "embedding", run.model.vocab, run.model.hidden)
        yield run.keeps("gradients", "first layer's input", run.n, run.model.hidden)


def _fullest_layer(run: _Run) -> list[Kept]:
    """What is alive in the fullest moment of any layer's backward pass."""
    below: list[Kept] = []  # what the layers before this one keep
    height = 0  # their bytes
    most, under, fullest = 0, 0, []  # the most so far: bytes, how many tensors of `below`, and the layer's own
    for layer in range(run.model.layers):
        inside = list(_block(run, layer))
        kept = inside
        if run.recompute != "none":
            kept = list(_kept_again(run, layer))
            below.append(kept.pop(0))  # its input
            height += below[-1].nbytes
            if run.model.norm == "layer" or run.dtype == "fp32" or run.model.family == "olmo2":
                inside = inside[1:]  # the first tensor it keeps is that input
            if run.recompute == "selective" and _ends_in_product(run, layer):
                inside.insert(0, run.keeps("matrix products", "the last, kept for nothing", run.n, run.model.hidden))
        for phase in _phases(run, layer, inside):
            nbytes = height + sum(each.nbytes for each in phase)
            if nbytes > most:
                most, under, fullest = nbytes, len(below), phase
        below += kept
        height += sum(each.nbytes for each in kept)
    return [*_around_layers(run), *below[:under], *fullest]


def _around_layers(run: _Run) -> Iterator[Kept]:
    """What is alive beside the layers while gradients pass through them."""
    for each in _alive(run):
        if each.kind in ("token ids", "rotary cos and sin", "loss") or each.where in ("after the embedding",
                                                                                     "all layers"):
            yield each
    yield run.keeps("loss", "its gradient", dtype="fp32")
    if run.model.tied:
        yield run.keeps("gradients", "head weight, waiting for the embedding's", run.model.vocab, run.model.hidden)


def _phases(run: _Run, layer: int, inside: list[Kept]) -> Iterator[list[Kept]]:
    """Candidates for the fullest moment of one layer's backward pass: what is left of the layer, and gradients.

    The backward pass takes the layer from its end, and each step frees what it has used: after its gradients have been
    cast and summed, or before, where the layer was computed again.
    """
    model, n = run.model, run.n

    def gradient(where, *shape, dtype=None):
        return run.keeps("gradients", where, *shape, dtype=dtype)

    def until(kind, where=""):
        """What is left when the backward pass has come to this tensor, with it."""
        return inside[: 1 + max(at for at, each in enumerate(inside) if each.kind == kind and where in each.where)]

    stream = gradient("layer's output", n, model.hidden)
    for at, each in enumerate(inside):
        if each.kind == "norm inputs" and each.shape[-1] == model.hidden and model.norm == "rms":
            yield [*inside[: at + 1], stream, *_inside_norm(run, *each.shape)]
    if model.sparse[layer]:
        yield from _expert_phases(run, until, gradient, stream)
    else:
        f = model.intermediate
        own = [stream, gradient("MLP output", n, model.hidden)] if _post_processed(run) else [stream]
        product = until("activated" if model.norm == "layer" else "gate × up")
        bias = [gradient("its bias", model.hidden)] if model.mlp_bias and run.recompute == "none" else []
        yield [*product, *own, gradient("last matrix", model.hidden, f), *bias, gradient("its input", n, f)]
        yield [*product[:-1], stream, *[gradient("product and its factors", n, f)] * 3]
    if not run.fused:
        width = None if run.attention == "eager" else "fp32"
        values = gradient("values", n, model.heads * model.value_dim, dtype=width)
        matrix = (run.b, model.heads, run.s, run.s)
        yield [*until("attention probabilities", "softmax"), stream, values,
               *[gradient("probabilities and scores", *matrix, dtype="fp32")] * 2]
        if run.dropout and model.attention_dropout > 0:
            yield [*until("dropout masks", "attention"), stream, values,
                   *[gradient("probabilities, before and after dropout", *matrix, dtype=width)] * 2]


def _expert_phases(run: _Run, until, gradient, stream: Kept) -> Iterator[list[Kept]]:
    """The same within a layer of experts: the shared expert, the weighting, and the two products with experts."""
    model, pairs = run.model, run.n * run.model.experts_per_token
    h, f, shared = model.hidden, model.expert_intermediate, model.shared_intermediate
    flowing = [stream]
    if model.family.startswith("deepseek"):
        product = until("gate × up", "shared")
        yield [*product, stream, gradient("shared expert's down", h, shared), gradient("its product", run.n, shared)]
        yield [*product[:-1], stream, *[gradient("shared expert's product and factors", run.n, shared)] * 3]
        flowing.append(gradient("input of the shared expert", run.n, h))
    elif model.family == "qwen2_moe":
        flowing += [gradient("output of the shared expert", run.n, h), gradient("input of its gate", run.n, h)]
    width = None if model.family in _ROUNDED else "fp32"
    weighting = [*flowing, *[gradient("weighting", pairs, h, dtype=width)] * 3]
    if run.experts == "grouped":
        yield [*until("expert indices", "order back"), *weighting]
    if width and run.dtype != "fp32" and run.recompute == "none":
        weighting.append(gradient("expert outputs", pairs, h))
    yield [*until("expert outputs", "before weighting"), *weighting]
    flowing += [gradient("weight of each pair", pairs, dtype=width)]
    outputs, inputs = gradient("expert outputs", pairs, h), gradient("expert inputs", pairs, h)
    if run.experts == "grouped":
        yield [*until("gate × up", "experts"), *flowing, outputs, gradient("product", pairs, f),
               gradient("down of all experts", model.experts, h, f)]
        yield [*until("expert inputs"), *flowing, inputs, gradient("gate and up", pairs, 2 * f),
               gradient("gate and up of all experts", model.experts, 2 * f, h)]
    else:
        yield [*until("copied expert weights", "down"), *flowing, outputs, gradient("product", pairs, f),
               gradient("copied down", pairs, h, f)]
        yield [*until("copied expert weights", "gate"), *flowing, inputs, gradient("gate and up", pairs, 2 * f),
               gradient("copied gate and up", pairs, 2 * f, h)]


def _post_processed(run: _Run) -> bool:
    """Does something follow the MLP that the backward pass changes gradients in: a norm or a dropout?"""
    post_norm = run.model.family in ("gemma2", "gemma3_text", "olmo2")
    return post_norm or (run.dropout and run.model.residual_dropout > 0)


def _ends_in_product(run: _Run, layer: int) -> bool:
    """Is the layer's last matrix product only added up? Then torch stops before it when it computes the layer again."""
    if run.model.sparse[layer]:
        return run.model.family.startswith("deepseek")
    return not _post_processed(run)


# What recomputation costs.


def flops_recomputed(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "full",
                     dropout: bool = True) -> int:
    """FLOPs of the matrix products that one backward pass computes a second time.

    A product of n rows with a weight of p numbers is 2np; attention is 2·b·A·s²(d + d_v) a layer, as a full square,
    of which a causal kernel may skip nearly half. "full" repeats each layer's forward pass, but not a last product that
    nothing kept needs. "selective" repeats attention where it is not fused, and no product with a weight.
    Arguments as in `saved`; raises ValueError as it does.
    """
    run = _run(model, batch, sequence, stack, "bf16", dropout, recompute)
    model = run.model
    attention = 2 * run.b * model.heads * run.s**2 * (model.head_dim + model.value_dim)
    if recompute == "none":
        return 0
    if recompute == "selective":
        return 0 if run.fused else model.layers * attention
    return sum(attention + _layer_flops(run, layer) for layer in range(model.layers))


def _layer_flops(run: _Run, layer: int) -> int:
    """FLOPs of one layer's products with weights, as they are computed again."""
    model, total = run.model, 0
    for tensor in model.tensors():
        if tensor.unit == layer and len(tensor.shape) == 2:
            total += 2 * run.n * tensor.numel
        elif tensor.unit == layer and tensor.part == "experts":  # a pair of token and expert passes through one of them
            total += 2 * run.n * model.experts_per_token * tensor.numel // model.experts
    if _ends_in_product(run, layer):
        width = model.shared_intermediate if model.sparse[layer] else model.intermediate
        total -= 2 * run.n * width * model.hidden
    return total


# Formulas from paper.


def _megatron(model: Model, batch, sequence, stack, recompute, dtype, dropout, layout: Layout) -> Inventory:
    """Korthikanti et al. (2022, arXiv:2205.05198), sections 4.2 and 4.3 and Table 2, on one GPU of a pipeline's first
    stage, for t GPUs that share each layer and p stages.

    A layer keeps sbh(34 + 5as/h); of the 34, tensor parallelism divides 24 by t and sequence parallelism the other 10
    as well. "selective" drops attention's 5as²b (softmax, its dropout, and its result), "full" keeps 2sbh a layer.
    The first stage has L/p layers and p micro-batches in flight: as many as L layers with one. Around them, the
    embedding's dropout keeps sbh a micro-batch, and where p is 1 final norm, head and fp32 logits 4sbh(1 + V/h).
    """
    checks.whole("batch", batch)
    checks.whole("sequence", sequence)
    checks.one_of("recompute", recompute, RECOMPUTE)
    if dtype != "bf16" or not dropout:
        raise ValueError(f"dtype is {dtype!r} and dropout is {dropout!r}; for stack {stack!r} they must be 'bf16' and"
                         " True: the published formula counts 2 bytes a value and has dropout")
    if stack == "megatron" and layout.sequence_parallel:
        raise ValueError("layout has sequence_parallel=True; for stack 'megatron' it must be False: with sequence"
                         " parallelism the stack is 'megatron-sp'")
    tensor, stages = layout.tensor, layout.pipeline
    for name, whole, parts in (("tensor", "attention heads", model.heads), ("pipeline", "layers", model.layers)):
        if parts % getattr(layout, name):
            raise ValueError(f"layout has {name}={getattr(layout, name)}; it must divide the {whole}, which are"
                             f" {parts}")
    sbh, whole = sequence * batch * model.hidden, 1 if stack == "megatron" else tensor
    matrix = model.heads * sequence**2 * batch
    layer = {
        "norm inputs": 4 * sbh / whole,
        "attention inputs": 2 * sbh / whole,
        "queries": 2 * sbh / tensor,
        "keys": 2 * sbh / tensor,
        "values": 2 * sbh / tensor,
        "attention probabilities": 2 * matrix / tensor,
        "attention dropout": 3 * matrix / tensor,
        "attention output": 2 * sbh / tensor,
        "MLP inputs": 2 * sbh / whole,
        "activation function": 8 * sbh / tensor,
        "activated": 8 * sbh / tensor,
        "dropout masks": 2 * sbh / whole,
    }
    if recompute == "selective":
        del layer["attention probabilities"], layer["attention dropout"]
    if recompute == "full":
        layer = {"layer inputs": 2 * sbh}
    around = {"embedding dropout": stages * sbh / whole}
    if stages == 1:
        around |= {
            "head input": 4 * sbh / whole,  # of the final norm, and of the head
            "logits": 4 * sequence * batch * model.vocab / tensor,
        }
    title = (f"{model.name}, batch {batch} × {sequence} tokens, {stack}, tensor {tensor}, pipeline {stages}, recompute"
             f" {recompute}: Korthikanti et al., Table 2, for a GPT block (all heads whole, MLP four times as wide)")
    return Inventory({name: model.layers * nbytes for name, nbytes in layer.items()} | around, title)


def five_term(model, *, batch: int = 1, sequence: int = 8192) -> Inventory:
    """The common estimate batch × layers × (5·s·h + 2·heads·s² + 2·s·ffn), its result taken as bytes.

    What it describes: three kinds of tensors of a plain block, with attention written out as s × s matrices. Where it
    fails: fused attention keeps no such matrix, so from some thousand tokens on it is far too high; norms, the gated
    MLP's four tensors and the loss are missing, so for short ones it is too low.
    Raises ValueError for a bare parameter count and for sizes that are not whole.
    """
    model = _architecture(model)
    checks.whole("batch", batch)
    checks.whole("sequence", sequence)
    blocks = batch * model.layers
    return Inventory({
        "5·s·h": blocks * 5 * sequence * model.hidden,
        "2·heads·s²": blocks * 2 * model.heads * sequence**2,
        "2·s·ffn": blocks * 2 * sequence * model.intermediate,
    }, f"{model.name}, batch {batch} × {sequence} tokens: the five-term estimate")
