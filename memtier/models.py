"""An architecture as its exact parameter tensors, read from a Hugging Face config.json.

    models.get("llama-3.1-8b").parameters        # 8_030_261_248
    models.from_config("config.json").tensors()  # name, shape, part and unit of each tensor

The tensors are those of transformers 5.24.0: same names, shapes and order as
`AutoModelForCausalLM.from_config(config).named_parameters()`, tied weights once, experts fused as that version fuses
them. A key that a config.json leaves out takes transformers' own default for the family (data/models.toml). What would
change a shape and is not modelled is refused by name: a count from here is exact, or it is not given.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from memtier import checks, units

PARTS = ("embedding", "attention", "mlp", "experts", "router", "norms", "head")
LARGEST = 2**31 - 1  # of any one size; far beyond every published model, small enough that nothing here can hang
MOST_LAYERS = 1_000  # the deepest transformer published (DeepNet, arXiv:2203.00555) has as many

# Activation functions without parameters of their own: "prelu" and "xielu" would add tensors to every layer.
ACTIVATIONS = (
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh", "gelu_pytorch_tanh",
    "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu",
    "sqrtsoftplus", "swish", "tanh",
)  # fmt: skip
LAYER_TYPES = ("full_attention", "sliding_attention")
ROPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
PHI3_ROPES = ("default", "longrope", "su", "yarn")  # the last two are older names of longrope


class Tensor(NamedTuple):
    """One parameter tensor.

    name:  as transformers names it
    shape: a linear layer's weight is (outputs, inputs), except in gpt2, which keeps (inputs, outputs)
    part:  one of PARTS
    unit:  what FSDP gathers together: the number of the decoder layer, or "root" for the rest
    """

    name: str
    shape: tuple[int, ...]
    part: str
    unit: str | int = "root"

    @property
    def numel(self) -> int:
        """Number of parameters in the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, repr=False)
class Model:
    """One architecture. `from_config` makes it; sizes count numbers, not bytes."""

    name: str
    family: str  # transformers' model_type
    vocab: int
    hidden: int
    layers: int
    heads: int  # query heads
    kv_heads: int  # key and value heads; fewer than heads is grouped-query attention
    head_dim: int  # of a query or key head; in latent attention both halves, without and with rotary embedding
    value_dim: int  # of a value head
    rope_dim: int  # how much of a head rotary embedding turns; 0 where positions are learnt
    intermediate: int  # width of a dense feed-forward layer
    positions: int  # longest sequence the configuration names
    tied: bool  # one tensor is both embedding and head
    activation: str
    windows: tuple[int | None, ...]  # each layer's sliding window in tokens, None for full attention
    sparse: tuple[bool, ...]  # each layer: does it have experts?
    norm: str = "rms"  # or "layer"
    qk_norm: str | None = None  # norms on queries and keys: "head" (each head alone) or "width" (all heads at once)
    qkv_bias: bool = False
    output_bias: bool = False  # of attention's output projection
    mlp_bias: bool = False
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    q_rank: int | None = None  # latent attention: rank of the compressed queries, None for full ones
    kv_rank: int | None = None  # latent attention: rank of the compressed keys and values, None elsewhere
    experts: int = 0  # routed experts of a sparse layer
    experts_per_token: int | None = None
    expert_intermediate: int = 0  # width of one routed expert
    shared_intermediate: int = 0  # width of the expert that every token passes through
    source: str = field(default="", compare=False)  # where a model of the registry was published, and when
    config_json: str = field(default="{}", compare=False)

    def __repr__(self):
        return f"Model({self.name!r}, {self.family}, {self.parameters:,} parameters)"

    @property
    def config(self) -> dict:
        """The config.json this model was read from, as a new dict."""
        return json.loads(self.config_json)

    def tensors(self) -> tuple[Tensor, ...]:
        """Every parameter tensor, in the order of transformers' named_parameters()."""
        return self._tensors

    @cached_property
    def _tensors(self):
        return tuple(_FAMILIES[self.family].tensors(self))

    @cached_property
    def parameters(self) -> int:
        """Number of parameters, tied weights counted once."""
        return sum(tensor.numel for tensor in self.tensors())

    @cached_property
    def active_parameters(self) -> int:
        """Number of parameters one token passes through: of a layer's routed experts only those it is sent to.

        Raises ValueError where the configuration does not say how many experts a token is sent to.
        """
        routed = self.parts().get("experts", 0)
        if not routed:
            return self.parameters
        if self.experts_per_token is None:
            raise ValueError("num_experts_per_tok is null; it must be a whole number to count active parameters")
        return self.parameters - routed + routed * self.experts_per_token // self.experts

    def parts(self) -> dict[str, int]:
        """Number of parameters by part, in the order of PARTS; a part the model lacks is left out.

        A shared expert counts as "mlp" (every token passes through it), its gate as "router"; biases count with the
        weights they belong to, gpt2's learnt positions as "embedding". A tied head has no parameters of its own.
        """
        counts = dict.fromkeys(PARTS, 0)
        for tensor in self.tensors():
            counts[tensor.part] += tensor.numel
        return {part: count for part, count in counts.items() if count}


# The pieces models are built from. Each yields tensors in the order in which transformers registers them.


def _linear(name: str, inputs: int, outputs: int, part: str, bias: bool = False) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (outputs, inputs), part)
    if bias:
        yield Tensor(f"{name}.bias", (outputs,), part)


def _rms_norms(size: int, *names: str) -> Iterator[Tensor]:
    for name in names:
        yield Tensor(f"{name}.weight", (size,), "norms")


def _layer_norms(size: int, *names: str) -> Iterator[Tensor]:
    for name in names:
        yield Tensor(f"{name}.weight", (size,), "norms")
        yield Tensor(f"{name}.bias", (size,), "norms")


def _attention(model: Model) -> Iterator[Tensor]:
    """Multi-head, grouped-query or multi-query attention, with norms on queries and keys where the family has them."""
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    yield from _linear("self_attn.q_proj", model.hidden, queries, "attention", model.qkv_bias)
    yield from _linear("self_attn.k_proj", model.hidden, keys, "attention", model.qkv_bias)
    yield from _linear("self_attn.v_proj", model.hidden, keys, "attention", model.qkv_bias)
    yield from _linear("self_attn.o_proj", queries, model.hidden, "attention", model.output_bias)
    if model.qk_norm == "head":
        yield from _rms_norms(model.head_dim, "self_attn.q_norm", "self_attn.k_norm")
    elif model.qk_norm == "width":
        yield from _rms_norms(queries, "self_attn.q_norm")
        yield from _rms_norms(keys, "self_attn.k_norm")


def _latent_attention(model: Model) -> Iterator[Tensor]:
    """Multi-head latent attention: keys and values pass through kv_rank numbers, queries through q_rank if it is set.

    transformers puts a bias on the first projections and the last only.
    """
    queries = model.heads * model.head_dim
    expanded = model.heads * (model.head_dim - model.rope_dim + model.value_dim)
    if model.q_rank is None:
        yield from _linear("self_attn.q_proj", model.hidden, queries, "attention")
    else:
        yield from _linear("self_attn.q_a_proj", model.hidden, model.q_rank, "attention", model.qkv_bias)
        yield from _rms_norms(model.q_rank, "self_attn.q_a_layernorm")
        yield from _linear("self_attn.q_b_proj", model.q_rank, queries, "attention")
    compressed = model.kv_rank + model.rope_dim
    yield from _linear("self_attn.kv_a_proj_with_mqa", model.hidden, compressed, "attention", model.qkv_bias)
    yield from _rms_norms(model.kv_rank, "self_attn.kv_a_layernorm")
    yield from _linear("self_attn.kv_b_proj", model.kv_rank, expanded, "attention")
    yield from _linear("self_attn.o_proj", model.heads * model.value_dim, model.hidden, "attention", model.output_bias)


def _gated_mlp(model: Model, name: str, width: int) -> Iterator[Tensor]:
    yield from _linear(f"{name}.gate_proj", model.hidden, width, "mlp", model.mlp_bias)
    yield from _linear(f"{name}.up_proj", model.hidden, width, "mlp", model.mlp_bias)
    yield from _linear(f"{name}.down_proj", width, model.hidden, "mlp", model.mlp_bias)


def _router(model: Model) -> Iterator[Tensor]:
    yield from _linear("mlp.gate", model.hidden, model.experts, "router")


def _experts(model: Model) -> Iterator[Tensor]:
    """All routed experts of a layer, fused: gate and up side by side in one tensor, down in another."""
    experts, width = model.experts, model.expert_intermediate
    yield Tensor("mlp.experts.gate_up_proj", (experts, 2 * width, model.hidden), "experts")
    yield Tensor("mlp.experts.down_proj", (experts, model.hidden, width), "experts")


# One function a block. Llama, Mistral, Qwen2 and Qwen3 differ only in biases and query and key norms.


def _llama_block(model: Model, layer: int) -> Iterator[Tensor]:
    yield from _attention(model)
    yield from _gated_mlp(model, "mlp", model.intermediate)
    yield from _rms_norms(model.hidden, "input_layernorm", "post_attention_layernorm")


def _gemma_block(model: Model, layer: int) -> Iterator[Tensor]:
    yield from _attention(model)
    yield from _gated_mlp(model, "mlp", model.intermediate)
    yield from _rms_norms(model.hidden, "input_layernorm", "post_attention_layernorm")
    yield from _rms_norms(model.hidden, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _olmo2_block(model: Model, layer: int) -> Iterator[Tensor]:
    yield from _attention(model)
    yield from _gated_mlp(model, "mlp", model.intermediate)
    yield from _rms_norms(model.hidden, "post_attention_layernorm", "post_feedforward_layernorm")


def _phi3_block(model: Model, layer: int) -> Iterator[Tensor]:
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    yield from _linear("self_attn.o_proj", queries, model.hidden, "attention")
    yield from _linear("self_attn.qkv_proj", model.hidden, queries + 2 * keys, "attention")
    yield from _linear("mlp.gate_up_proj", model.hidden, 2 * model.intermediate, "mlp")
    yield from _linear("mlp.down_proj", model.intermediate, model.hidden, "mlp")
    yield from _rms_norms(model.hidden, "input_layernorm", "post_attention_layernorm")


def _mixtral_block(model: Model, layer: int) -> Iterator[Tensor]:
    yield from _attention(model)
    yield from _router(model)
    yield from _experts(model)
    yield from _rms_norms(model.hidden, "input_layernorm", "post_attention_layernorm")


def _qwen2_moe_block(model: Model, layer: int) -> Iterator[Tensor]:
    yield from _attention(model)
    if model.sparse[layer]:
        yield from _router(model)
        yield from _experts(model)
        yield from _gated_mlp(model, "mlp.shared_expert", model.shared_intermediate)
        yield from _linear("mlp.shared_expert_gate", model.hidden, 1, "router")
    else:
        yield from _gated_mlp(model, "mlp", model.intermediate)
    yield from _rms_norms(model.hidden, "input_layernorm", "post_attention_layernorm")


def _qwen3_moe_block(model: Model, layer: int) -> Iterator[Tensor]:
    yield from _attention(model)
    if model.sparse[layer]:
        yield from _experts(model)
        yield from _router(model)
    else:
        yield from _gated_mlp(model, "mlp", model.intermediate)
    yield from _rms_norms(model.hidden, "input_layernorm", "post_attention_layernorm")


def _deepseek_block(model: Model, layer: int) -> Iterator[Tensor]:
    """The correction bias of DeepSeek-V3's router is a buffer: it is not trained, so it is not a parameter."""
    yield from _latent_attention(model)
    if model.sparse[layer]:
        yield from _experts(model)
        yield from _router(model)
        yield from _gated_mlp(model, "mlp.shared_experts", model.shared_intermediate)
    else:
        yield from _gated_mlp(model, "mlp", model.intermediate)
    yield from _rms_norms(model.hidden, "input_layernorm", "post_attention_layernorm")


def _gpt2_block(model: Model, layer: int) -> Iterator[Tensor]:
    """gpt2's Conv1D keeps its weight as (inputs, outputs)."""
    hidden, width = model.hidden, model.intermediate
    yield from _layer_norms(hidden, "ln_1")
    yield Tensor("attn.c_attn.weight", (hidden, 3 * hidden), "attention")
    yield Tensor("attn.c_attn.bias", (3 * hidden,), "attention")
    yield Tensor("attn.c_proj.weight", (hidden, hidden), "attention")
    yield Tensor("attn.c_proj.bias", (hidden,), "attention")
    yield from _layer_norms(hidden, "ln_2")
    yield Tensor("mlp.c_fc.weight", (hidden, width), "mlp")
    yield Tensor("mlp.c_fc.bias", (width,), "mlp")
    yield Tensor("mlp.c_proj.weight", (width, hidden), "mlp")
    yield Tensor("mlp.c_proj.bias", (hidden,), "mlp")


def _gpt_neox_block(model: Model, layer: int) -> Iterator[Tensor]:
    hidden, width = model.hidden, model.intermediate
    yield from _layer_norms(hidden, "input_layernorm", "post_attention_layernorm")
    yield from _linear("attention.query_key_value", hidden, 3 * hidden, "attention", model.qkv_bias)
    yield from _linear("attention.dense", hidden, hidden, "attention", model.output_bias)
    yield from _linear("mlp.dense_h_to_4h", hidden, width, "mlp", model.mlp_bias)
    yield from _linear("mlp.dense_4h_to_h", width, hidden, "mlp", model.mlp_bias)


Block = Callable[[Model, int], Iterator[Tensor]]


def _blocks(model: Model, path: str, block: Block) -> Iterator[Tensor]:
    for layer in range(model.layers):
        for tensor in block(model, layer):
            yield Tensor(f"{path}.{layer}.{tensor.name}", tensor.shape, tensor.part, layer)


def _head(model: Model) -> Iterator[Tensor]:
    if not model.tied:
        yield from _linear("lm_head", model.hidden, model.vocab, "head")


def _decoder(block: Block) -> Callable[[Model], Iterator[Tensor]]:
    """The frame most families share: embedding, blocks, last norm, head."""

    def tensors(model: Model) -> Iterator[Tensor]:
        yield Tensor("model.embed_tokens.weight", (model.vocab, model.hidden), "embedding")
        yield from _blocks(model, "model.layers", block)
        yield from _rms_norms(model.hidden, "model.norm")
        yield from _head(model)

    return tensors


def _gpt2(model: Model) -> Iterator[Tensor]:
    yield Tensor("transformer.wte.weight", (model.vocab, model.hidden), "embedding")
    yield Tensor("transformer.wpe.weight", (model.positions, model.hidden), "embedding")
    yield from _blocks(model, "transformer.h", _gpt2_block)
    yield from _layer_norms(model.hidden, "transformer.ln_f")
    yield from _head(model)


def _gpt_neox(model: Model) -> Iterator[Tensor]:
    yield Tensor("gpt_neox.embed_in.weight", (model.vocab, model.hidden), "embedding")
    yield from _blocks(model, "gpt_neox.layers", _gpt_neox_block)
    yield from _layer_norms(model.hidden, "gpt_neox.final_layer_norm")
    yield from _head(model)


# Reading a config.json.


class _Config:
    """The keys of one config.json, each checked as it is read; a key left out takes the family's default.

    Its methods raise ValueError naming the key, its value and what is allowed.
    """

    def __init__(self, keys: Mapping, family: str):
        facts = _data()["families"][family]
        self.family = family
        self.architecture = facts["architecture"]
        self.defaults = facts["defaults"]
        self.optional = facts.get("optional", ())  # keys that may be null
        self.aliases = facts.get("aliases", {})  # other names of the same key
        self.keys = keys
        self.read = set()
        for alias, key in self.aliases.items():
            if alias in keys and key in keys and keys[alias] != keys[key]:
                raise ValueError(
                    f"{alias} is {_shown(keys[alias])} and {key} is {_shown(keys[key])}; in {family} both name the same"
                    " size and must be equal"
                )

    def name(self, key: str) -> str:
        """The name under which the configuration has the key (n_embd, say, for hidden_size in gpt2)."""
        own = self.aliases.get(key, key)
        names = [own] + [alias for alias, target in self.aliases.items() if target == own]
        self.read.update(names)
        return next((name for name in names if name in self.keys), own)

    def value(self, key: str, allowed: str):
        """The key's value or its default; None where it is unset and the family allows that."""
        name = self.name(key)
        if name not in self.keys:
            return self.defaults.get(name)
        if self.keys[name] is None and self.aliases.get(name, name) not in self.optional:
            raise ValueError(f"{name} is null; in {self.family} it must be {allowed}")
        return self.keys[name]

    def says(self, key: str, value) -> str:
        """The start of an error message: the key, its value, and whether the value is only the family's default."""
        name = self.name(key)
        return f"{name} is {_shown(value)}" + ("" if name in self.keys else f" ({self.family}'s default)")

    def whole(self, key: str, least: int = 1, most: int = LARGEST) -> int | None:
        value = self.value(key, f"a whole number from {least} to {most}")
        return None if value is None else checks.whole(self.name(key), value, least, most)

    def flag(self, key: str) -> bool:
        value = self.value(key, "true or false")
        if not isinstance(value, bool):
            raise ValueError(f"{self.name(key)} is {_shown(value)}; it must be true or false")
        return value

    def number(self, key: str) -> float | None:
        value = self.value(key, "a number above 0")
        return None if value is None else float(checks.at_most(key, checks.positive(key, value), units.LARGEST))

    def fraction(self, key: str) -> float | None:
        value = self.value(key, "a number from 0 to 1")
        return None if value is None else float(checks.fraction(key, value))

    def activation(self, key: str) -> str:
        return checks.one_of(key, self.value(key, "the name of an activation function"), ACTIVATIONS)

    def list_of(self, key: str, allowed: str, fits: Callable[[object], bool]) -> list | None:
        """A list of things that all fit."""
        value = self.value(key, allowed)
        if value is not None and not (isinstance(value, (list, tuple)) and all(map(fits, value))):
            raise ValueError(f"{key} is {_shown(value)}; it must be {allowed}")
        return None if value is None else list(value)


def _shown(value) -> str:
    """A value of a config.json as an error message shows it, written as in the file."""
    return checks.brief(value, lambda value: json.dumps(value, default=str, ensure_ascii=False))


def _multiple(config: _Config, size: int, heads: int) -> None:
    if size % heads:
        raise ValueError(
            f"{config.says('hidden_size', size)}; it must be a multiple of {config.name('num_attention_heads')},"
            f" which is {heads}"
        )


def _even(key: str, value: int) -> None:
    if value % 2:
        raise ValueError(f"{key} is {value}; it must be even, because rotary embedding turns numbers in pairs")


def _whole_heads(config: _Config) -> dict:
    """Heads that share the hidden size between them, each with its own keys and values: gpt2 and gpt_neox."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    _multiple(config, hidden, heads)
    return {"hidden": hidden, "heads": heads, "kv_heads": heads, "head_dim": hidden // heads}


def _grouped_heads(config: _Config) -> dict:
    """Query heads that share fewer key and value heads, of a size of their own where head_dim is given."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    kv_heads = config.whole("num_key_value_heads")
    kv_heads = heads if kv_heads is None else kv_heads
    if heads % kv_heads:
        raise ValueError(
            f"{config.says('num_key_value_heads', kv_heads)}; it must divide num_attention_heads, which is {heads}"
        )
    head_dim = config.whole("head_dim")
    if head_dim is None or config.family in ("llama", "gemma2", "gemma3_text"):
        _multiple(config, hidden, heads)  # these three insist on it even where head_dim is given
    head_dim = hidden // heads if head_dim is None else head_dim
    return {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}


def _latent_heads(config: _Config) -> dict:
    """Multi-head latent attention: keys and values are kept as kv_lora_rank numbers and one shared rotary key."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    if config.family == "deepseek_v2":
        _multiple(config, hidden, heads)  # its configuration class insists on it
    rope_dim = config.whole("qk_rope_head_dim")
    _even("qk_rope_head_dim", rope_dim)
    return {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": config.whole("qk_nope_head_dim") + rope_dim,
        "value_dim": config.whole("v_head_dim"),
        "rope_dim": rope_dim,
        "q_rank": config.whole("q_lora_rank"),
        "kv_rank": config.whole("kv_lora_rank"),
    }


def _ropes(config: _Config) -> Iterator[Mapping]:
    """rope_parameters, or rope_scaling as older files call it: one for all layers, or one for each type of layer."""
    for key in ("rope_scaling", "rope_parameters"):
        given = config.keys.get(key)
        layered = isinstance(given, Mapping) and [given[kind] for kind in LAYER_TYPES if kind in given]
        for rope in layered or [given]:
            if not isinstance(rope, Mapping | None):
                raise ValueError(f"{key} is {_shown(given)}; it must be null or a table of rotary embedding's settings")
            if rope:
                known = PHI3_ROPES if config.family == "phi3" else ROPES
                checks.one_of(f"{key}'s rope_type", rope.get("rope_type", rope.get("type", "default")), known)
                yield rope


def _turned(config: _Config, key: str) -> float:
    """The fraction of a head that rotary embedding turns: partial_rotary_factor among its settings, else the key."""
    turned = config.fraction(key)
    for rope in _ropes(config):
        inner = checks.fraction("partial_rotary_factor", rope.get("partial_rotary_factor", turned))
        if inner != turned and key in config.keys:
            raise ValueError(f"{key} is {turned}; it must equal the partial_rotary_factor of rotary embedding, {inner}")
        turned = inner
    return turned


def _rotary(head_dim: int, factor: float) -> int:
    """How much of a head rotary embedding turns; an odd part of a head is rounded up, a whole odd head cannot be."""
    turned = int(head_dim * factor)
    if turned == head_dim:
        _even("head_dim", head_dim)
    return turned + turned % 2


def _common(config: _Config, heads: dict, activation: str = "hidden_act", dropout: str = "attention_dropout") -> dict:
    """What every family has."""
    return {
        "value_dim": heads["head_dim"],
        **heads,
        "family": config.family,
        "vocab": config.whole("vocab_size"),
        "layers": config.whole("num_hidden_layers", most=MOST_LAYERS),
        "positions": config.whole("max_position_embeddings"),
        "tied": config.flag("tie_word_embeddings"),
        "activation": config.activation(activation),
        "attention_dropout": config.fraction(dropout) or 0.0,
    }


def _dense(config: _Config, turned: float = 1.0, activation: str = "hidden_act") -> dict:
    """A decoder with grouped heads, rotary embedding and one feed-forward width."""
    common = _common(config, _grouped_heads(config), activation)
    return common | {
        "rope_dim": _rotary(common["head_dim"], turned),
        "intermediate": config.whole("intermediate_size"),
    }


def _read_llama(config: _Config) -> dict:
    bias = config.flag("attention_bias")
    return _dense(config) | {"qkv_bias": bias, "output_bias": bias, "mlp_bias": config.flag("mlp_bias")}


def _read_olmo2(config: _Config) -> dict:
    bias = config.flag("attention_bias")
    return _dense(config) | {"qkv_bias": bias, "output_bias": bias, "qk_norm": "width"}


def _read_mistral(config: _Config) -> dict:
    model = _dense(config)
    return model | {"windows": (config.whole("sliding_window"),) * model["layers"]}


def _read_phi3(config: _Config) -> dict:
    model = _dense(config, _turned(config, "partial_rotary_factor"))
    return model | {
        "windows": (config.whole("sliding_window"),) * model["layers"],
        "residual_dropout": config.fraction("resid_pdrop"),
    }


def _windows(config: _Config, window: int | None, sliding: list[bool]) -> tuple[int | None, ...]:
    """Each layer's window: layer_types says which layers slide, else the family's own pattern does."""
    layers = len(sliding)
    types = config.list_of(
        "layer_types", f"null or a list of {' and '.join(LAYER_TYPES)}", lambda each: each in LAYER_TYPES
    )
    if types is not None:
        if len(types) != layers:
            raise ValueError(
                f"layer_types has {len(types)} entries; it must have as many as num_hidden_layers, which is {layers}"
            )
        sliding = [each == "sliding_attention" for each in types]
    if any(sliding) and window is None:
        raise ValueError(
            "sliding_window is null or switched off; it must be a whole number, because some layers use"
            " sliding_attention"
        )
    return tuple(window if slides else None for slides in sliding)


def _switched_window(config: _Config) -> int | None:
    """The window of the Qwen families, whose configurations name one even where use_sliding_window is false."""
    if config.flag("use_sliding_window"):
        return config.whole("sliding_window")
    config.whole("sliding_window", least=0)  # must make sense even where it is not used
    return None


def _read_qwen2(config: _Config) -> dict:
    model = _dense(config)
    window, first = _switched_window(config), config.whole("max_window_layers", least=0)
    sliding = [window is not None and layer >= first for layer in range(model["layers"])]
    return model | {"qkv_bias": True, "windows": _windows(config, window, sliding)}


def _read_qwen3(config: _Config) -> dict:
    bias = config.flag("attention_bias")
    return _read_qwen2(config) | {"qkv_bias": bias, "output_bias": bias, "qk_norm": "head"}


def _gemma(config: _Config, pattern: int) -> dict:
    """Every layer slides but each pattern-th."""
    model, bias = _dense(config, activation="hidden_activation"), config.flag("attention_bias")
    sliding = [(layer + 1) % pattern > 0 for layer in range(model["layers"])]
    return model | {
        "qkv_bias": bias,
        "output_bias": bias,
        "windows": _windows(config, config.whole("sliding_window"), sliding),
        "attention_softcap": config.number("attn_logit_softcapping"),
        "logit_softcap": config.number("final_logit_softcapping"),
    }


def _read_gemma2(config: _Config) -> dict:
    return _gemma(config, pattern=2)


def _read_gemma3_text(config: _Config) -> dict:
    return _gemma(config, config.whole("sliding_window_pattern")) | {"qk_norm": "head"}


def _read_gpt2(config: _Config) -> dict:
    model = _common(config, _whole_heads(config), activation="activation_function", dropout="attn_pdrop")
    width = config.whole("n_inner")
    return model | {
        "intermediate": 4 * model["hidden"] if width is None else width,
        "rope_dim": 0,
        "norm": "layer",
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "residual_dropout": config.fraction("resid_pdrop"),
        "embedding_dropout": config.fraction("embd_pdrop"),
    }


def _read_gpt_neox(config: _Config) -> dict:
    model, bias = _common(config, _whole_heads(config)), config.flag("attention_bias")
    dropout = config.fraction("hidden_dropout")
    return model | {
        "intermediate": config.whole("intermediate_size"),
        "rope_dim": _rotary(model["head_dim"], _turned(config, "rotary_pct")),
        "norm": "layer",
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": True,
        "residual_dropout": dropout,
        "embedding_dropout": dropout,
    }


def _routed(config: _Config, experts: str) -> dict:
    """The routed experts; a token cannot be sent to more of them than there are."""
    count, sent = config.whole(experts), config.whole("num_experts_per_tok")
    if sent is not None and sent > count:
        raise ValueError(
            f"{config.says('num_experts_per_tok', sent)}; it must be at most {config.name(experts)}, which is {count}"
        )
    return {"experts": count, "experts_per_token": sent}


def _read_mixtral(config: _Config) -> dict:
    model = _read_mistral(config)
    return (
        model
        | _routed(config, "num_local_experts")
        | {"expert_intermediate": model["intermediate"], "sparse": (True,) * model["layers"]}
    )


def _sparse_step(config: _Config, layers: int) -> tuple[bool, ...]:
    """Every decoder_sparse_step-th layer has experts, except those that mlp_only_layers lists."""
    allowed = f"null or a list of layer numbers from 0 to {layers - 1}"
    dense = config.list_of("mlp_only_layers", allowed, lambda each: type(each) is int and 0 <= each < layers) or []
    step = config.whole("decoder_sparse_step")
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def _read_qwen2_moe(config: _Config) -> dict:
    model, window = _dense(config), _switched_window(config)
    last, on = config.whole("max_window_layers", least=0), config.flag("use_sliding_window")
    sliding = [on and layer % 2 == 0 and layer < last for layer in range(model["layers"])]
    return (
        model
        | _routed(config, "num_experts")
        | {
            "qkv_bias": config.flag("qkv_bias"),
            "windows": _windows(config, window, sliding),
            "expert_intermediate": config.whole("moe_intermediate_size"),
            "shared_intermediate": config.whole("shared_expert_intermediate_size"),
            "sparse": _sparse_step(config, model["layers"]),
        }
    )


def _read_qwen3_moe(config: _Config) -> dict:
    model, bias = _dense(config), config.flag("attention_bias")
    return (
        model
        | _routed(config, "num_experts")
        | {
            "qkv_bias": bias,
            "output_bias": bias,
            "qk_norm": "head",
            "windows": (_switched_window(config),) * model["layers"],
            "expert_intermediate": config.whole("moe_intermediate_size"),
            "sparse": _sparse_step(config, model["layers"]),
        }
    )


def _read_deepseek_v3(config: _Config) -> dict:
    model, bias = _common(config, _latent_heads(config)), config.flag("attention_bias")
    dense, width = config.whole("first_k_dense_replace", least=0), config.whole("moe_intermediate_size")
    return (
        model
        | _routed(config, "n_routed_experts")
        | {
            "intermediate": config.whole("intermediate_size"),
            "qkv_bias": bias,
            "output_bias": bias,
            "expert_intermediate": width,
            "shared_intermediate": width * config.whole("n_shared_experts"),
            "sparse": tuple(layer >= dense for layer in range(model["layers"])),
        }
    )


def _read_deepseek_v2(config: _Config) -> dict:
    return _read_deepseek_v3(config) | {"mlp_bias": config.flag("mlp_bias")}


class _Family(NamedTuple):
    read: Callable[[_Config], dict]  # a configuration's keys → the fields of Model
    tensors: Callable[[Model], Iterator[Tensor]]


_FAMILIES = {
    "llama": _Family(_read_llama, _decoder(_llama_block)),
    "mistral": _Family(_read_mistral, _decoder(_llama_block)),
    "qwen2": _Family(_read_qwen2, _decoder(_llama_block)),
    "qwen3": _Family(_read_qwen3, _decoder(_llama_block)),
    "gemma2": _Family(_read_gemma2, _decoder(_gemma_block)),
    "phi3": _Family(_read_phi3, _decoder(_phi3_block)),
    "olmo2": _Family(_read_olmo2, _decoder(_olmo2_block)),
    "gpt2": _Family(_read_gpt2, _gpt2),
    "gpt_neox": _Family(_read_gpt_neox, _gpt_neox),
    "mixtral": _Family(_read_mixtral, _decoder(_mixtral_block)),
    "qwen2_moe": _Family(_read_qwen2_moe, _decoder(_qwen2_moe_block)),
    "qwen3_moe": _Family(_read_qwen3_moe, _decoder(_qwen3_moe_block)),
    "deepseek_v2": _Family(_read_deepseek_v2, _decoder(_deepseek_block)),
    "deepseek_v3": _Family(_read_deepseek_v3, _decoder(_deepseek_block)),
    "gemma3_text": _Family(_read_gemma3_text, _decoder(_gemma_block)),
}
FAMILIES = tuple(_FAMILIES)


# What other programs and families call a size. transformers would ignore it and take its default.
_SYNONYMS = {
    "num_hidden_layers": ("num_layers", "n_layers", "n_layer"),
    "num_attention_heads": ("num_heads", "n_heads", "n_head"),
    "num_key_value_heads": ("num_kv_heads", "n_kv_heads", "n_kv_head"),
    "hidden_size": ("dim", "d_model", "n_embd"),
    "vocab_size": ("n_vocab",),
    "intermediate_size": ("d_ff", "ffn_dim", "n_inner"),
}
_CLOSE = 0.87  # of 1: one letter wrong in hidden_size, but not original_max_position_embeddings


def _known_keys(family: str) -> dict[str, str]:
    """Every name the family's sizes have in a config.json → the family's own name."""
    facts = _data()["families"][family]
    return {key: key for key in (*facts["defaults"], *facts.get("optional", ()))} | facts.get("aliases", {})


def _spelt(keys: Mapping, family: str) -> None:
    """Refuse a key that is all but the name of one left out: a slip that the family's default would hide."""
    known = _known_keys(family)
    given = {known[key] for key in keys if key in known}
    absent = [key for key in known if known[key] not in given]
    synonyms = {other: known[key] for key, others in _SYNONYMS.items() if key in absent for other in others}
    elsewhere = {key for each in FAMILIES for key in _known_keys(each)} | {*_REFUSED}
    for key in keys:
        if key in known or not isinstance(key, str) or key.startswith("_"):  # with _: what transformers keeps to itself
            continue
        close = [] if key in elsewhere else get_close_matches(key.lower(), absent, n=1, cutoff=_CLOSE)
        if meant := synonyms.get(key) or (close and close[0]):
            raise ValueError(
                f"config.json has {checks.brief(key)}, which transformers does not know in {family}; did you mean"
                f" {meant!r}?"
            )


# Keys that change what a model is in ways not modelled here; absent, null, false or empty they are harmless.
_REFUSED = {
    "per_layer_config": "layers with sizes of their own are not modelled",
    "mlp_layer_types": "the families here say which layers have experts in other ways",
    "add_cross_attention": "cross-attention is not modelled",
    "is_encoder_decoder": "only decoders are modelled",
    "use_bidirectional_attention": "only causal attention is modelled",
    "attention_chunk_size": "chunked attention is not modelled",
    "lm_head_bias": "no family here has a bias in its head",
}
_QUANTIZED = ("quantization_config", "compression_config")


def _family(keys: Mapping) -> str:
    """The family of a configuration, if it can be counted; ValueError says why if it cannot."""
    if keys.get("text_config") is not None:
        inner = keys["text_config"].get("model_type") if isinstance(keys["text_config"], Mapping) else None
        raise ValueError(
            f"text_config is set: this {_shown(keys.get('model_type'))} configuration wraps a text model, of family"
            f" {_shown(inner)}; to count that one alone, paste only what stands under text_config"
        )
    if keys.get("model_type") not in FAMILIES:
        given = f"model_type is {_shown(keys['model_type'])}" if "model_type" in keys else "model_type is missing"
        raise ValueError(f"{given}; it must be one of {', '.join(FAMILIES)}")
    for key in _QUANTIZED:
        if keys.get(key) is not None:
            raise ValueError(
                f"{key} is {_shown(keys[key])}; quantised checkpoints are refused, because their tensors differ: leave"
                " the key out to count the model before quantisation"
            )
    for key, why in _REFUSED.items():
        if keys.get(key):
            raise ValueError(f"{key} is {_shown(keys[key])}; it must be absent or null: {why}")
    return keys["model_type"]


def _agree(config: _Config, model: Model) -> None:
    """Refuse keys that this family does not read but that shape others, where they say something else than is built.

    transformers ignores them; the weights that came with the configuration perhaps do not.
    """
    built = {
        "attention_bias": model.qkv_bias,
        "qkv_bias": model.qkv_bias,
        "mlp_bias": model.mlp_bias,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim if model.kv_rank is None else model.rope_dim,
        "intermediate_size": model.intermediate,
        "layer_types": [LAYER_TYPES[window is not None] for window in model.windows],
        "sliding_window": None,
        "partial_rotary_factor": _turned(config, "rotary_pct") if model.family == "gpt_neox" else 1,
        "num_experts": model.experts,
        "num_local_experts": model.experts,
        "n_routed_experts": model.experts,
        "moe_intermediate_size": model.expert_intermediate,
        "shared_expert_intermediate_size": model.shared_intermediate,
        "n_shared_experts": 0,
        "first_k_dense_replace": 0,
        "decoder_sparse_step": 1,
        "moe_layer_freq": 1,
        "mlp_only_layers": [],
        "q_lora_rank": None,
        "kv_lora_rank": None,
    }
    for key, value in config.keys.items():
        if key in built and key not in config.read and value is not None and value != built[key]:
            raise ValueError(
                f"{key} is {_shown(value)}; it must be absent or {_shown(built[key])}, because transformers builds that"
                f" in {model.family} whatever the key says"
            )


def _buildable(config: _Config, model: Model) -> None:
    """Refuse what transformers cannot build, or what it would build as something else than a causal language model."""
    for rope in _ropes(config):
        factor = rope.get("partial_rotary_factor", 1)
        if model.family not in ("phi3", "gpt_neox") and factor != 1:
            raise ValueError(
                f"partial_rotary_factor is {_shown(factor)}; it must be 1, because {model.family} turns whole heads"
            )
    given = config.keys.get("architectures") or [config.architecture]
    if not isinstance(given, list) or [str(each).lower() for each in given] != [config.architecture.lower()]:
        raise ValueError(
            f"architectures is {_shown(given)}; it must be absent or [{_shown(config.architecture)}], which is what is"
            " counted"
        )
    if "pad_token_id" in config.optional:  # gpt2 and gpt_neox do not give theirs to the embedding
        padding = config.whole("pad_token_id", least=-model.vocab)
        if padding is not None and padding >= model.vocab:
            raise ValueError(f"{config.says('pad_token_id', padding)}; it must be below vocab_size, {model.vocab}")


def _load(path: str | os.PathLike) -> tuple[dict, str]:
    """A config.json, or the one in a folder, as a dict; and a name for it."""
    file = Path(path)
    if os.path.isdir(path):
        file = file / "config.json"
        if not file.exists():
            raise ValueError(
                f"config is {checks.brief(os.fspath(path))}; it must be a config.json, and this folder has none"
            )
    text = checks.text_file("config", file, "a config.json")
    called = file.resolve().parent.name if file.name == "config.json" else file.stem
    return checks.json_object("config", text, os.fspath(path)), called


def from_config(config: Mapping | str | os.PathLike, name: str | None = None) -> Model:
    """The Model a Hugging Face config.json describes.

    config: the path of the file or of its folder, or the file's content as a dict
    name:   what to call the model; by default after its folder or file, else after its family

    Raises ValueError where the file cannot be read, the family is not one of FAMILIES, or a key is malformed, at odds
    with another, or changes what is built in a way not modelled here: always naming the key.
    """
    called = None
    if name is not None and not isinstance(name, str):
        raise ValueError(f"name is {checks.brief(name)}; it must be a text")
    if isinstance(config, (str, os.PathLike)):
        config, called = _load(config)
    if not isinstance(config, Mapping):
        raise ValueError(f"config is {_shown(config)}; it must be the path of a config.json, or its content as a dict")
    family = _family(config)
    _spelt(config, family)
    keys = _Config(config, family)
    fields = _FAMILIES[family].read(keys)
    fields.setdefault("windows", (None,) * fields["layers"])
    fields.setdefault("sparse", (False,) * fields["layers"])
    try:
        config_json = json.dumps(dict(config), default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"config is a dict that JSON cannot hold: {error}") from None
    model = Model(name=name or called or family, config_json=config_json, **fields)
    _agree(keys, model)
    _buildable(keys, model)
    return model


@cache
def _data() -> dict:
    return tomllib.loads(resources.files("memtier").joinpath("data/models.toml").read_text(encoding="utf-8"))


def names() -> tuple[str, ...]:
    """Names of the architectures in the registry."""
    return tuple(_data()["models"])


def get(name: str) -> Model:
    """An architecture of the registry. Raises ValueError for an unknown name, with the nearest known ones."""
    if not isinstance(name, str) or name not in names():
        close = get_close_matches(str(name).lower().rpartition("/")[2], names(), n=3, cutoff=0.5)
        hint = f"the nearest are {', '.join(close)}" if close else f"it has {', '.join(names())}"
        raise ValueError(f"model is {_shown(name)}; no such name in the registry, {hint}")
    return _entry(name)


@cache
def _entry(name: str) -> Model:
    entry = _data()["models"][name]
    return replace(from_config(json.loads(entry["config"]), name), source=f"{entry['source']}, {entry['date']}")


_LIKE_A_COUNT = re.compile(r"[-+]?\.?[0-9][0-9.,_]*(e[-+]?[0-9]+)?\s*[a-z]*", re.IGNORECASE)


def resolve(model: "Model | str | Mapping | os.PathLike | float") -> Model | int:
    """What a reader means by a model: a Model, or a bare parameter count where no shapes are known.

    Takes a Model, a registry name, a parameter count (70e9, or the text "70e9", "70B" or "70 billion"), the path of a
    config.json or its content as a dict or as JSON text. Raises ValueError for anything else.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, (Mapping, os.PathLike)):
        return from_config(model)
    if not isinstance(model, str):
        return _count(model)
    text = model.strip().removeprefix("\ufeff")  # the mark that Windows puts before a text
    if text.lstrip().startswith("{"):
        return from_config(checks.json_object("config", text))
    if not text:
        raise ValueError("model is empty; give a known name, a config.json, or a parameter count such as 70e9")
    if text not in names() and (text.endswith(".json") or os.path.exists(text)):
        return from_config(text)
    if _LIKE_A_COUNT.fullmatch(text):
        return _count(units.parse_count(text, "model"))
    return get(text)


def _count(number) -> int:
    """A parameter count as an int."""
    checks.at_most("model", checks.positive("model", number), units.LARGEST)
    try:
        return checks.whole("model", int(number) if number == int(number) else number)
    except TypeError:
        raise ValueError(
            f"model is {checks.brief(number)}; it must be one parameter count, a whole number, 1 or more"
        ) from None
