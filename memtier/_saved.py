"""What each tensor of a forward pass keeps for the backward pass: a step's settings, the pieces of each family's block,
and what is kept once a model. memtier.activations asks it and explains the names of stacks and recomputation.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from memtier.models import Model, Tensor

BYTES = {"bf16": 2, "fp32": 4, "int64": 8, "int32": 4, "bool": 1, "complex64": 8}
DTYPES = ("bf16", "fp32")
RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("hf-sdpa", "hf-sdpa-masked", "hf-eager")
EXPERTS = ("grouped", "batched", "loop")
MEGATRON = ("megatron", "megatron-sp")
EXPERT_STACKS = tuple(f"{attention}-{experts}" for attention in ATTENTION for experts in EXPERTS)
STACKS = ATTENTION + EXPERT_STACKS + MEGATRON
LOSSES = ("dense", "chunked", "fused")
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
class Run:
    """One training step: the model, its input's sizes and the software."""

    model: Model
    b: int
    s: int
    stack: str
    dtype: str
    dropout: bool
    recompute: str = "none"
    loss: str = "dense"
    chunks: int = 1

    @property
    def piece(self) -> int:
        """Tokens in one piece of a chunked or fused loss."""
        return -(-self.n // self.chunks)

    @property
    def n(self) -> int:
        return self.b * self.s

    @cached_property
    def units(self) -> dict[str | int, list[Tensor]]:
        """Each layer's parameter tensors, and those of "root", in their order: looked for once, not once a layer."""
        found: dict[str | int, list[Tensor]] = {}
        for tensor in self.model.tensors():
            found.setdefault(tensor.unit, []).append(tensor)
        return found

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
                f" recompute {self.recompute}" + (f", {self.loss} loss" if self.loss != "dense" else ""))

    def option(self, key: str):
        """A key of the config.json that shapes activations but no parameter; absent, transformers' default."""
        return self.model.config.get(key, DEFAULTS.get(self.model.family, {}).get(key))

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
DEFAULTS = {
    "gpt_neox": {"use_parallel_residual": True},
    "qwen2_moe": {"norm_topk_prob": False},
    "qwen3_moe": {"norm_topk_prob": False},
    "deepseek_v2": {"topk_method": "greedy"},
    "deepseek_v3": {"norm_topk_prob": True},
}
# Keys that would change what is kept in ways not derived here.
REFUSED = {
    "output_router_logits": "the router's own loss is not modelled",
    "router_jitter_noise": "noise on the router's input is not modelled",
    "reorder_and_upcast_attn": "attention computed in another order is not modelled",
    "output_attentions": "returned attention matrices are not modelled",
    "output_hidden_states": "returned hidden states are not modelled",
    "gradient_checkpointing": "transformers would recompute whatever is asked for; leave it out and say recompute",
}

# What an activation function keeps: its own input? and how many tensors of that size on the way to its output. (The
# output is kept too, by what multiplies it.) Fused ones keep their input; those written out in Python keep the steps.
ACTIVATIONS = {
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

ROUNDED = ("qwen2_moe", "qwen3_moe")  # these round the experts' weights to the model's type


# The pieces blocks are built from. Each yields the tensors it keeps that no earlier piece has kept.


def _rms_norm(run: Run, where: str, *shape: int, stored: int | None = None) -> Iterator[Kept]:
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


def _layer_norm(run: Run, where: str, shares_input: bool = False) -> Iterator[Kept]:
    """torch's layer norm: its input, a mean and a factor a row: e(nh + 2n) on a CPU."""
    if not shares_input:
        yield run.keeps("norm inputs", where, run.b, run.s, run.model.hidden)
    yield run.keeps("norm factors", f"{where}, mean", run.b, run.s, 1)
    yield run.keeps("norm factors", f"{where}, reciprocal deviation", run.b, run.s, 1)


def _dropout(run: Run, where: str, p: float, *shape: int) -> Iterator[Kept]:
    """The mask of a dropout: on a CPU as wide as the values it is multiplied with."""
    if run.dropout and p > 0:
        yield run.keeps("dropout masks", where, *shape)


def _attend(run: Run, layer: int, queries: Kept | None, keys: Kept | None, values: Kept) -> Iterator[Kept]:
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


def _flash(run: Run, layer: int, queries: Kept | None, keys: Kept | None, values: Kept) -> Iterator[Kept]:
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


def _eager(run: Run, queries: Kept | None, keys: Kept | None, values: Kept, dropped: bool) -> Iterator[Kept]:
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


def _sdpa_in_steps(run: Run, layer: int, values: Kept, dropped: bool) -> Iterator[Kept]:
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


def _attention(run: Run, layer: int) -> Iterator[Kept]:
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


def _fused_attention(run: Run, layer: int) -> Iterator[Kept]:
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


def _latent_attention(run: Run, layer: int) -> Iterator[Kept]:
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


def _activation(run: Run, where: str, *shape: int) -> Iterator[Kept]:
    """The steps of an activation function between its input and its output."""
    for _ in range(ACTIVATIONS[run.model.activation][1]):
        yield run.keeps("activation function", where, *shape)


def _gated(run: Run, where: str, width: int, *rows: int, fused: bool = False) -> Iterator[Kept]:
    """gate, activated gate, up, product: 4·e·nf. Where one projection makes gate and up they are one tensor."""
    gate_kept = ACTIVATIONS[run.model.activation][0]
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


def _gated_mlp(run: Run) -> Iterator[Kept]:
    yield run.keeps("MLP inputs", "input of gate and up", run.n, run.model.hidden)
    yield from _gated(run, "MLP", run.model.intermediate, run.n, fused=run.model.family == "phi3")


def _plain_mlp(run: Run) -> Iterator[Kept]:
    """Two matrices with an activation function between: its input, its steps, its output."""
    yield run.keeps("MLP inputs", "input of the first matrix", run.n, run.model.hidden)
    if ACTIVATIONS[run.model.activation][0]:
        yield run.keeps("activation function", "MLP, its input", run.n, run.model.intermediate)
    yield from _activation(run, "MLP", run.n, run.model.intermediate)
    yield run.keeps("activated", "MLP, input of the second matrix", run.n, run.model.intermediate)


def _router(run: Run) -> Iterator[Kept]:
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


def _experts(run: Run) -> Iterator[Kept]:
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
    yield run.keeps("router", "weight of each pair", pairs, 1, dtype=None if model.family in ROUNDED else "fp32")
    yield run.keeps("expert outputs", "before weighting", pairs, h)
    if run.experts == "grouped":
        yield run.keeps("expert indices", "order back", pairs, dtype="int64")
    elif run.experts == "loop":
        yield run.keeps("expert outputs", "weighted", pairs, h)


def of_experts(kept: Kept) -> bool:
    """Is it one of the tensors that the routed experts themselves keep?"""
    return (kept.kind.startswith("expert ") or kept.kind == "copied expert weights" or kept.where.startswith("experts")
            or kept.where == "weight of each pair") and not kept.where.startswith(("shared", "experts outside"))


def _sparse_mlp(run: Run) -> Iterator[Kept]:
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


def _llama_block(run: Run, layer: int) -> Iterator[Kept]:
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


def _gemma_block(run: Run, layer: int) -> Iterator[Kept]:
    """Norms before and after attention, before and after the MLP."""
    hidden = (run.b, run.s, run.model.hidden)
    yield from _rms_norm(run, "attention norm", *hidden)
    yield from _attention(run, layer)
    yield from _rms_norm(run, "norm after attention", *hidden)
    yield from _rms_norm(run, "MLP norm", *hidden)
    yield from _gated_mlp(run)
    yield from _rms_norm(run, "norm after the MLP", *hidden)


def _olmo2_block(run: Run, layer: int) -> Iterator[Kept]:
    """Norms only after attention and after the MLP."""
    hidden = (run.b, run.s, run.model.hidden)
    yield from _attention(run, layer)
    yield from _rms_norm(run, "norm after attention", *hidden)
    yield from _gated_mlp(run)
    yield from _rms_norm(run, "norm after the MLP", *hidden)


def _gpt2_block(run: Run, layer: int) -> Iterator[Kept]:
    hidden = (run.b, run.s, run.model.hidden)
    yield from _layer_norm(run, "attention norm")
    yield from _fused_attention(run, layer)
    yield from _dropout(run, "after attention", run.model.residual_dropout, *hidden)
    yield from _layer_norm(run, "MLP norm")
    yield from _plain_mlp(run)
    yield from _dropout(run, "after the MLP", run.model.residual_dropout, *hidden)


def _gpt_neox_block(run: Run, layer: int) -> Iterator[Kept]:
    """Attention and MLP side by side: both norms read, and keep, the same input."""
    hidden = (run.b, run.s, run.model.hidden)
    yield from _layer_norm(run, "attention norm")
    yield from _fused_attention(run, layer)
    yield from _dropout(run, "after attention", run.model.residual_dropout, *hidden)
    yield from _layer_norm(run, "MLP norm", shares_input=run.option("use_parallel_residual"))
    yield from _plain_mlp(run)
    yield from _dropout(run, "after the MLP", run.model.residual_dropout, *hidden)


_BLOCKS: dict[str, Callable[[Run, int], Iterator[Kept]]] = {
    "gemma2": _gemma_block, "gemma3_text": _gemma_block, "olmo2": _olmo2_block, "gpt2": _gpt2_block,
    "gpt_neox": _gpt_neox_block,
}  # fmt: skip


def kept_around(run: Run) -> Iterator[Kept]:
    """What is kept once a model: 8n + rotary cos and sin + final norm + e·nh + 4nV + labels + 4.

    A chunked loss keeps no 4nV + 4; a fused one keeps e·nh + e·hV of gradients in place of head input and all the rest.
    """
    model, b, s, n = run.model, run.b, run.s, run.n
    yield run.keeps("token ids", "embedding", b, s, dtype="int64")
    if model.family == "gpt2":
        yield run.keeps("token ids", "positions", 1, s, dtype="int64")
    if model.family in ("gpt2", "gpt_neox"):
        yield from _dropout(run, "after the embedding", model.embedding_dropout, b, s, model.hidden)
    yield from rotary(run)
    if model.norm == "layer":
        yield from _layer_norm(run, "final norm")
    else:
        yield from _rms_norm(run, "final norm", b, s, model.hidden)
    if run.loss == "fused":
        yield run.keeps("gradients", "head input, computed at once", n, model.hidden)
        yield run.keeps("gradients", "head weight, computed at once", model.vocab, model.hidden)
        return
    yield run.keeps("head input", "head", n, model.hidden)
    if model.logit_softcap is not None:
        yield run.keeps("logits", "capped", b, s, model.vocab)
    if run.loss == "dense":
        yield run.keeps("log-probabilities", "loss", n, model.vocab, dtype="fp32")
    # Shifted by one: padded to s + 1, then a copy without the first column, which one row needs not be copied for.
    yield run.keeps("labels", "loss", *((1, s + 1) if b == 1 else (n,)), dtype="int64")
    if run.loss == "dense":
        yield run.keeps("labels", "loss, number of tokens", dtype="fp32")


def rotary(run: Run) -> Iterator[Kept]:
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


# What a step keeps, whole.


def block(run: Run, layer: int) -> Iterator[Kept]:
    return _BLOCKS.get(run.model.family, _llama_block)(run, layer)


def kept_tensors(run: Run) -> Iterator[tuple[str | int, Kept]]:
    yield from (("root", kept) for kept in kept_once(run))
    alike: dict[int, tuple[Kept, ...]] = {}
    for layers in groups(run):
        alike |= dict.fromkeys(layers, tuple(kept_by(run, layers[0])))
    for layer in range(run.model.layers):
        exactly = alike[layer] if run.recompute != "selective" else kept_by(run, layer)  # its tensors carry names
        yield from ((layer, kept) for kept in exactly)


def groups(run: Run) -> Iterable[list[int]]:
    """The layers, by number, in groups that keep the same: a page has no time to count each of a hundred."""
    alike: dict[tuple, list[int]] = {}
    for layer, kind in enumerate(zip(run.model.sparse, run.model.windows, strict=True)):
        alike.setdefault(kind, []).append(layer)
    return alike.values()


def kept_by(run: Run, layer: int) -> Iterator[Kept]:
    return block(run, layer) if run.recompute == "none" else kept_again(run, layer)


def kept_once(run: Run) -> Iterator[Kept]:
    """What is kept once a model."""
    again = run.recompute != "none"
    for kept in kept_around(run):
        if not (again and kept.kind == "rotary cos and sin"):  # layers that are computed again only borrow these
            yield kept
    if again and run.model.family == "gpt2" and (run.attention == "eager" or run.padded):
        # It hands its blocks the mask as it hands them their input, and both are kept.
        yield run.keeps("attention mask", "all layers", run.b, 1, run.s, run.s,
                        dtype=None if run.attention == "eager" else "bool")


def kept_again(run: Run, layer: int) -> Iterator[Kept]:
    """What a layer keeps that is to be computed again."""
    yield run.keeps("layer inputs", "layer", run.b, run.s, run.model.hidden)
    if run.recompute == "selective":
        yield from _products(run, layer)


def _products(run: Run, layer: int) -> Iterator[Kept]:
    """What selective recomputation keeps beside a layer's input. Experts run pair by pair ("batched") are products with
    copies of weights, which the policy does not keep.
    """
    model = run.model
    for tensor in run.units[layer]:
        if tensor.part in ("attention", "mlp", "router") and len(tensor.shape) == 2:
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
