"""Every shape against what transformers builds on the meta device; every refusal names its key."""

import dataclasses
import json
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING
from transformers.activations import ACT2FN

from memtier import models
from memtier.lab import models as lab

# Parameters as published: the first twelve counted by transformers itself, the others by their publishers' checkpoints.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "gemma-2-9b": 9_241_705_984,
    "deepseek-v3": 671_026_404_352,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "deepseek-v2-lite": 15_706_484_224,
    "gemma-3-1b": 999_885_952,
    "phi-3-mini-4k": 3_821_079_552,
    "olmo-2-7b": 7_298_617_344,
    "pythia-6.9b": 6_857_302_016,
}


def shapes(model):
    return [(tensor.name, tensor.shape) for tensor in model.tensors()]


# Published architectures.


@pytest.mark.parametrize("name", models.names())
def test_published_models_are_what_transformers_builds(name):
    model = models.get(name)
    assert shapes(model) == lab.tensors(model.config)
    assert model.parameters == sum(model.parts().values()) == PUBLISHED[name]
    assert re.fullmatch(r"[\w.-]+/[\w.-]+( \(.*\))?, config\.json, 20\d\d-\d\d", model.source)


def test_the_registry_covers_every_family():
    assert {models.get(name).family for name in models.names()} == set(models.FAMILIES)
    assert set(models.names()) == set(PUBLISHED)


def test_active_parameters():
    # The publishers say 37B, 12.9B, 3.3B and 2.7B activated.
    active = {name: models.get(name).active_parameters for name in ("deepseek-v3", "mixtral-8x7b", "qwen3-30b-a3b")}
    assert active == {"deepseek-v3": 37_552_282_624, "mixtral-8x7b": 12_879_925_248, "qwen3-30b-a3b": 3_353_032_704}
    assert models.get("llama-3.1-8b").active_parameters == 8_030_261_248


def test_parts():
    assert models.get("llama-3.1-8b").parts() == {
        "embedding": 128_256 * 4096,
        "attention": 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096),
        "mlp": 32 * 3 * 4096 * 14_336,
        "norms": 65 * 4096,
        "head": 128_256 * 4096,
    }
    deepseek = models.get("deepseek-v3").parts()
    assert deepseek["experts"] == 58 * 256 * 3 * 7168 * 2048
    assert deepseek["mlp"] == 3 * 3 * 7168 * 18_432 + 58 * 3 * 7168 * 2048  # dense layers, shared experts
    assert deepseek["router"] == 58 * 256 * 7168
    assert "head" not in models.get("gpt2").parts()


def test_units_are_the_layers_and_a_root():
    tensors = models.get("qwen2.5-7b").tensors()
    assert tensors is models.get("qwen2.5-7b").tensors()
    assert {tensor.unit for tensor in tensors} == {"root", *range(28)}
    assert [tensor.name for tensor in tensors if tensor.unit == "root"] == [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    ]
    assert all(f".{tensor.unit}." in tensor.name for tensor in tensors if tensor.unit != "root")


# Families.


def test_families_are_the_ones_with_defaults():
    assert set(models._data()["families"]) == set(models.FAMILIES)


# Keys that transformers' classes read although they do not declare them, and what is assumed without them.
UNDECLARED = {
    "qwen2": {"head_dim": None},
    "qwen2_moe": {"head_dim": None},
    "qwen3_moe": {"head_dim": None},
    "olmo2": {"head_dim": None},
    "phi3": {"head_dim": None, "partial_rotary_factor": 1.0},
    "gpt_neox": {"rotary_pct": 0.25},
    "gemma3_text": {"sliding_window_pattern": 6},
}


# Keys that the class lets be null although the model then cannot be built.
NEVER_NULL = {"qwen2_moe": ["num_key_value_heads"], "deepseek_v3": ["v_head_dim", "first_k_dense_replace"]}


@pytest.mark.parametrize("family", models.FAMILIES)
def test_defaults_are_those_of_transformers(family):
    facts, declared = models._data()["families"][family], CONFIG_MAPPING[family]
    fields = {field.name: field for field in dataclasses.fields(declared)}
    for key in {*facts["defaults"], *facts.get("optional", ())}:
        if key in UNDECLARED.get(family, {}):
            assert key not in fields
            assert facts["defaults"].get(key) == UNDECLARED[family][key]
        else:
            assert facts["defaults"].get(key) == fields[key].default, key
            nullable = "None" in str(fields[key].type) and key not in NEVER_NULL.get(family, ())
            assert (key in facts.get("optional", ())) == nullable, key
    for key in NEVER_NULL.get(family, ()):
        with pytest.raises(TypeError):
            lab.build({"model_type": family, key: None})
    for alias, key in facts.get("aliases", {}).items():
        settings = declared(**{alias: 48})
        assert getattr(settings, key) == getattr(settings, alias) == 48


@pytest.mark.parametrize("family", models.FAMILIES)
def test_a_config_that_names_only_its_family(family):
    assert shapes(models.from_config({"model_type": family})) == lab.tensors({"model_type": family})


def test_activations_are_the_ones_without_parameters():
    without = {name for name in ACT2FN if not list(ACT2FN[name].parameters())}
    assert set(models.ACTIVATIONS) == without
    assert without < set(ACT2FN)


flags, sizes = st.booleans(), st.integers(1, 40)


@st.composite
def heads(draw, whole=False):
    """Hidden size and heads; head_dim is often not hidden / heads, key and value heads are often 1."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    config = {"num_attention_heads": kv_heads * group, "num_key_value_heads": kv_heads}
    if draw(flags):
        hidden = draw(sizes) * (kv_heads * group if whole else 1)
        return config | {"hidden_size": hidden, "head_dim": 2 * draw(st.integers(1, 6))}
    return config | {"hidden_size": kv_heads * group * 2 * draw(st.integers(1, 6))}


@st.composite
def bodies(draw):
    """Sizes that every family has, often odd."""
    return {
        "vocab_size": draw(st.integers(1, 90)),
        "num_hidden_layers": draw(st.integers(1, 7)),
        "intermediate_size": draw(sizes),
        "tie_word_embeddings": draw(flags),
        "pad_token_id": draw(st.sampled_from([None, 0])),
    }


@st.composite
def windows(draw, layers):
    """The keys of sliding windows, where the family says which layers have one."""
    names = st.sampled_from(models.LAYER_TYPES)
    kinds = st.lists(names, min_size=layers, max_size=layers)
    return {"sliding_window": draw(sizes), "layer_types": draw(st.none() | kinds)}


@st.composite
def experts(draw, key="num_experts"):
    count = draw(st.integers(1, 5))
    return {
        key: count,
        "num_experts_per_tok": draw(st.integers(1, count)),
        "moe_intermediate_size": draw(sizes),
    }


@st.composite
def sparse_steps(draw, layers):
    return {
        "decoder_sparse_step": draw(st.integers(1, 3)),
        "mlp_only_layers": draw(st.none() | st.lists(st.integers(0, layers - 1), max_size=3)),
    }


@st.composite
def latent(draw, even_hidden=False):
    count = draw(st.integers(1, 5))
    return {
        "hidden_size": draw(sizes) * (count if even_hidden else 1),
        "num_attention_heads": count,
        "num_key_value_heads": count,
        "q_lora_rank": draw(st.none() | sizes),
        "kv_lora_rank": draw(sizes),
        "qk_rope_head_dim": 2 * draw(st.integers(1, 5)),
        "qk_nope_head_dim": draw(sizes),
        "v_head_dim": draw(sizes),
        "attention_bias": draw(flags),
        "first_k_dense_replace": draw(st.integers(0, 4)),
        "n_shared_experts": draw(st.integers(1, 3)),
    }


@st.composite
def configs(draw, family):
    """A small config.json of a family, with whatever changes its shapes."""
    body = draw(bodies())
    layers = body["num_hidden_layers"]
    bias = {"attention_bias": draw(flags)}
    switch = {"use_sliding_window": draw(flags), "max_window_layers": draw(st.integers(0, 4))}
    if family == "gpt2":
        count = draw(st.integers(1, 4))
        own = {
            "vocab_size": body["vocab_size"],
            "n_layer": layers,
            "n_head": count,
            "n_embd": count * draw(sizes),
            "n_inner": draw(st.none() | sizes),
            "n_positions": draw(sizes),
            "tie_word_embeddings": body["tie_word_embeddings"],
        }
        return {"model_type": family} | own
    if family == "gpt_neox":
        count = draw(st.integers(1, 4))
        turned = {"rotary_pct": draw(st.sampled_from([0.25, 0.5, 1.0]))}
        own = {"num_attention_heads": count, "hidden_size": count * 2 * draw(sizes)} | bias | turned
    elif family == "deepseek_v2":
        own = draw(latent(even_hidden=True)) | draw(experts("n_routed_experts")) | {"mlp_bias": draw(flags)}
    elif family == "deepseek_v3":
        own = draw(latent()) | draw(experts("n_routed_experts")) | {"num_nextn_predict_layers": draw(st.integers(0, 2))}
    elif family == "mixtral":
        own = draw(heads()) | {"num_local_experts": draw(st.integers(2, 5)), "sliding_window": draw(st.none() | sizes)}
    elif family == "qwen2_moe":
        own = draw(heads()) | draw(experts()) | draw(sparse_steps(layers)) | switch | {"qkv_bias": draw(flags)}
        own |= {"shared_expert_intermediate_size": draw(sizes), "sliding_window": draw(sizes)}
    elif family == "qwen3_moe":
        own = draw(heads()) | draw(experts()) | draw(sparse_steps(layers)) | bias | {"sliding_window": draw(sizes)}
        own |= {"use_sliding_window": draw(flags)}
    elif family == "qwen2":
        own = draw(heads()) | switch | {"sliding_window": draw(st.none() | sizes)}
    elif family == "qwen3":
        own = draw(heads()) | bias | switch | {"sliding_window": draw(sizes)}
    elif family in ("gemma2", "gemma3_text"):
        own = draw(heads(whole=True)) | bias | draw(windows(layers))
        if family == "gemma3_text" and draw(flags):
            own["sliding_window_pattern"] = draw(st.integers(1, 4))
    elif family == "phi3":
        own = draw(heads()) | {"sliding_window": draw(st.none() | sizes)}
        own |= {"partial_rotary_factor": draw(st.sampled_from([0.5, 1.0]))}
    elif family == "mistral":
        own = draw(heads()) | {"sliding_window": draw(st.none() | sizes)}
    elif family == "llama":
        own = draw(heads(whole=True)) | bias | {"mlp_bias": draw(flags)}
    else:
        own = draw(heads()) | bias
    return {"model_type": family} | body | own


@pytest.mark.parametrize("family", models.FAMILIES)
@settings(max_examples=14, deadline=None, derandomize=True)
@given(st.data())
def test_any_small_config_is_what_transformers_builds(family, data):
    config = data.draw(configs(family))
    built = lab.build(config)
    expected = [(name, tuple(parameter.shape)) for name, parameter in built.named_parameters()]
    model = models.from_config(config)
    assert shapes(model) == expected
    assert model.parameters == sum(math.prod(shape) for _, shape in expected)
    # transformers' own file of the same model: every key spelt out
    saved = models.from_config(json.loads(built.config.to_json_string(use_diff=False)))
    assert dataclasses.replace(saved, name=model.name) == model
    # how its caches see each layer's window; None where attention is full
    cached = built.config.get_text_config(decoder=True)
    kinds = getattr(cached, "layer_types", None) or [
        models.LAYER_TYPES[getattr(cached, "sliding_window", None) is not None] for _ in range(model.layers)
    ]
    assert model.windows == tuple(cached.sliding_window if kind == "sliding_attention" else None for kind in kinds)


ODD_VALUES = st.sampled_from([None, 0, -1, 1, 2, 3, 6, 20, 2.5, 4.0, "4", True, False, [], [0], [1], {}])


@pytest.mark.parametrize("family", models.FAMILIES)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.data())
def test_a_spoilt_config_is_right_or_refused(family, data):
    facts, config = models._data()["families"][family], data.draw(configs(family))
    keys = {*facts["defaults"], *facts.get("optional", ()), *facts.get("aliases", {}), "n_experts", "num_experts"}
    # null for head_dim means "left out" in the files of other versions; int or float is the same number in a softcap
    keys = sorted(key for key in keys if key != "head_dim" and "softcap" not in key and "drop" not in key)
    for key in data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2)):
        config[key] = data.draw(ODD_VALUES)
    try:
        model = models.from_config(config)
    except ValueError:
        return
    assert shapes(model) == lab.tensors(config)


def test_a_router_bias_is_a_buffer():
    small = {"model_type": "deepseek_v3", "num_hidden_layers": 4, "vocab_size": 8}
    buffers = [name for name, _ in lab.build(small).named_buffers() if "correction_bias" in name]
    assert buffers == ["model.layers.3.mlp.gate.e_score_correction_bias"]
    assert not any("bias" in name for name, _ in shapes(models.from_config(small)))


def test_the_lab_takes_no_memory():
    model = lab.build(models.get("llama-3.1-405b").config)
    assert {parameter.device for parameter in model.parameters()} == {torch.device("meta")}


# Refusals.

LLAMA = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# What published files hold beside what transformers reads; those of the registry's models among them.
EXTRAS = {
    "_attn_implementation_autoset", "_flash_attn_2_enabled", "_name_or_path", "_sliding_window_pattern",
    "attn_implementation", "aux_loss_alpha", "auto_map", "bias", "cache_implementation", "ep_size", "freq_base",
    "hidden_dropout_prob", "max_sequence_length", "model_max_length", "moe_layer_freq", "n_ctx", "norm_eps",
    "num_nextn_predict_layers", "original_max_position_embeddings", "pad_vocab_size_multiple", "padded_vocab_size",
    "pretraining_tp", "rms_norm_epsilon", "rope_local_base_freq", "rope_scaling", "rope_theta", "rotary_base",
    "rotary_emb_base", "rotary_emb_fraction", "rotary_percentage", "scoring_func", "seq_aux", "seq_length",
    "sliding_window_pattern", "summary_type", "task_specific_params", "topk_method", "torch_dtype",
    "transformers_version", "unsloth_fixed", "unsloth_version", "use_dynamic_ntk", "use_flash_attn", "use_logn_attn",
    "use_mrope", "use_parallel_residual",
}  # fmt: skip
MOE = LLAMA | {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 32.0}, "vocab_size is 32.0; it must be a whole number from 1 to 2147483647"),
        ({"vocab_size": "32"}, "vocab_size is '32'; it must be a whole number"),
        ({"vocab_size": None}, "vocab_size is null; in llama it must be a whole number"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"vocab_size": float("nan")}, "vocab_size is nan"),
        ({"vocab_size": 10**5000}, "vocab_size is a value too long to show; it must be a whole number"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": -16}, "hidden_size is -16"),
        ({"hidden_size": 2**31}, "hidden_size is 2147483648; it must be a whole number from 1 to 2147483647"),
        ({"hidden_size": 18}, "hidden_size is 18; it must be a multiple of num_attention_heads, which is 4"),
        ({"hidden_size": 18, "head_dim": 4}, "hidden_size is 18; it must be a multiple"),
        ({"hidden_size": [16]}, r"hidden_size is \[16\]"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be a whole number from 1 to 1000"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3; it must divide num_attention_heads, which is 4"),
        ({"num_key_value_heads": 8}, "num_key_value_heads is 8; it must divide num_attention_heads, which is 4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"head_dim": 5}, "head_dim is 5; it must be even"),
        ({"hidden_size": 20}, "head_dim is 5; it must be even"),
        ({"intermediate_size": {}}, r"intermediate_size is \{\}"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; it must be true or false"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings is null; in llama it must be true or false"),
        ({"attention_bias": "yes"}, 'attention_bias is "yes"; it must be true or false'),
        ({"mlp_bias": 0}, "mlp_bias is 0; it must be true or false"),
        ({"attention_dropout": 1.5}, "attention_dropout is 1.5; it must be a number from 0 to 1"),
        ({"hidden_act": "x" * 50_000}, r"hidden_act is 'x+\.\.\.x+'; it must be one of gelu, "),
        ({"hidden_act": "prelu"}, "hidden_act is 'prelu'; it must be one of gelu, "),
        ({"pad_token_id": 32}, "pad_token_id is 32; it must be below vocab_size, 32"),
        ({"pad_token_id": 1.0}, "pad_token_id is 1.0"),
        ({"rope_scaling": "linear"}, 'rope_scaling is "linear"; it must be null or a table'),
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling's rope_type is 'spiral'; it must be one of default, "),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5; it must be 1"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; it must be absent or 1"),
        ({"sliding_window": 8}, "sliding_window is 8; it must be absent or null"),
        ({"layer_types": ["sliding_attention"] * 2}, "layer_types is .*; it must be absent or"),
        ({"qkv_bias": True}, "qkv_bias is true; it must be absent or false"),
        ({"num_experts": 4}, "num_experts is 4; it must be absent or 0"),
        ({"kv_lora_rank": 8}, "kv_lora_rank is 8; it must be absent or null"),
        ({"mlp_layer_types": ["dense", "sparse"]}, "mlp_layer_types is"),
        ({"per_layer_config": {"1": {"intermediate_size": 8}}}, "per_layer_config is"),
        ({"quantization_config": {"quant_method": "fp8"}}, 'quantization_config is {"quant_method": "fp8"}; quantised'),
        ({"quantization_config": {}}, "quantization_config is {}"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures is .*; it must be absent or"),
        ({"architectures": 3}, "architectures is 3"),
        ({"model_type": "mamba"}, 'model_type is "mamba"; it must be one of llama, mistral, '),
        ({"model_type": None}, "model_type is null; it must be one of"),
        ({"text_config": LLAMA}, r'text_config is set: .* of family "llama"; .* paste only what stands under text'),
        ({"model_type": "mistral", "attention_bias": True}, "attention_bias is true; it must be absent or false"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window is 0"),
        ({"model_type": "qwen2", "attention_bias": False}, "attention_bias is false; it must be absent or true"),
        ({"model_type": "qwen2", "num_key_value_heads": 3}, "num_key_value_heads is 3"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, "layer_types has 1 entries; it must have as many"),
        ({"model_type": "qwen2", "layer_types": ["linear_attention"] * 2}, "layer_types is .* or a list of full_att"),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 2}, "sliding_window is null or switched off"),
        ({"model_type": "gemma2", "sliding_window": None}, "sliding_window is null or switched off"),
        ({"model_type": "gemma2", "final_logit_softcapping": 10**400}, "final_logit_softcapping is 10+.*beyond 1e"),
        ({"model_type": "gemma2", "final_logit_softcapping": 1e31}, "final_logit_softcapping is 1e.*at most 1e"),
        ({"model_type": "gemma2", "head_dim": None}, "head_dim is null; in gemma2 it must be"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention is true"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ({"model_type": "phi3"}, r"pad_token_id is 32000 \(phi3's default\); it must be below vocab_size, 32"),
        ({"model_type": "phi3", "partial_rotary_factor": 1.5, "pad_token_id": 0}, "partial_rotary_factor is 1.5"),
        ({"model_type": "phi3", "partial_rotary_factor": 0.5, "pad_token_id": 0,
          "rope_scaling": {"partial_rotary_factor": 1.0}}, "partial_rotary_factor is 0.5; it must equal"),
        ({"model_type": "gpt_neox"}, "num_key_value_heads is 2; it must be absent or 4"),
        ({"model_type": "gpt_neox", "num_key_value_heads": 4, "head_dim": 8}, "head_dim is 8; it must be absent or 4"),
        ({"model_type": "gpt2", "n_embd": 8}, "hidden_size is 16 and n_embd is 8; in gpt2 both name the same size"),
        ({"model_type": "gpt2", "num_attention_heads": 3}, "hidden_size is 16; it must be a multiple of num_at"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention is true"),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "num_experts_per_tok is 3"),
        (MOE | {"num_experts": 0}, "num_experts is 0"),
        (MOE | {"num_experts": 1, "num_experts_per_tok": 2}, "num_experts_per_tok is 2; it must be at most"),
        (MOE | {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        (MOE | {"mlp_only_layers": [2]}, r"mlp_only_layers is \[2\]; it must be null or a list of layer numbers"),
        (MOE | {"mlp_only_layers": 1}, "mlp_only_layers is 1"),
        (MOE | {"num_local_experts": 8}, "num_local_experts is 8 and num_experts is 4"),
        (MOE | {"num_key_value_heads": None}, "num_key_value_heads is null"),
        (LLAMA | {"model_type": "deepseek_v3"}, "num_key_value_heads is 2; it must be absent or 4"),
    ],
)
def test_a_malformed_config_is_refused_by_key(changes, message):
    with pytest.raises(ValueError, match=message):
        models.from_config(LLAMA | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qk_rope_head_dim": 3}, "qk_rope_head_dim is 3; it must be even"),
        ({"kv_lora_rank": None}, "kv_lora_rank is null"),
        ({"n_shared_experts": 0}, "n_shared_experts is 0"),
        ({"first_k_dense_replace": -1}, "first_k_dense_replace is -1"),
        ({"moe_layer_freq": 2}, "moe_layer_freq is 2; it must be absent or 1"),
        ({"head_dim": 128}, "head_dim is 128; it must be absent or 64"),
        ({"num_experts_per_tok": 300}, "num_experts_per_tok is 300; it must be at most n_routed_experts, which is 256"),
    ],
)
def test_a_malformed_latent_attention_is_refused_by_key(changes, message):
    with pytest.raises(ValueError, match=message):
        models.from_config(models.get("deepseek-v3").config | changes)


def test_a_missing_family_is_refused():
    with pytest.raises(ValueError, match="model_type is missing; it must be one of llama, mistral, qwen2"):
        models.from_config({"hidden_size": 16})


@pytest.mark.parametrize(
    ("family", "key", "meant"),
    [
        ("llama", "hidden_sise", "hidden_size"),
        ("llama", "hiddenSize", "hidden_size"),
        ("llama", "num_kv_heads", "num_key_value_heads"),
        ("qwen3_moe", "n_kv_heads", "num_key_value_heads"),
        ("mistral", "n_layers", "num_hidden_layers"),
        ("gpt_neox", "n_embd", "hidden_size"),
        ("gpt2", "n_layers", "n_layer"),
        ("gpt2", "n_embed", "n_embd"),
        ("deepseek_v3", "kv_lora_ranks", "kv_lora_rank"),
        ("llama", "tie_word_embedding", "tie_word_embeddings"),
    ],
)
def test_a_slip_in_a_key_is_not_hidden_by_the_default(family, key, meant):
    with pytest.raises(ValueError, match=f"config.json has '{key}', which transformers does not .* mean '{meant}'"):
        models.from_config({"model_type": family, key: 4})


@pytest.mark.parametrize("family", models.FAMILIES)
def test_no_key_that_transformers_knows_is_taken_for_a_slip(family):
    declared = CONFIG_MAPPING[family]
    known = {*declared().to_dict(), *declared.attribute_map, *(field.name for field in dataclasses.fields(declared))}
    for key in known | EXTRAS:
        models._spelt({"model_type": family, key: 4}, family)


def test_a_key_beside_the_one_it_resembles_is_left_alone():
    models.from_config(LLAMA | {"hidden_sizes": [16], "dim": 16, "n_layers": 2, "num_kv_heads": 2})


def test_a_default_at_odds_with_the_rest_is_said_to_be_one():
    config = {"model_type": "qwen2", "hidden_size": 12, "num_attention_heads": 3}
    with pytest.raises(ValueError, match=r"num_key_value_heads is 32 \(qwen2's default\); it must divide"):
        models.from_config(config)


def test_active_parameters_need_to_know_where_tokens_go():
    model = models.from_config({"model_type": "deepseek_v2"})
    assert model.experts_per_token is None
    with pytest.raises(ValueError, match="num_experts_per_tok is null"):
        model.active_parameters  # noqa: B018


# Where a configuration comes from.


def test_a_file_and_its_folder(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    for path in (folder, folder / "config.json", str(folder / "config.json")):
        assert models.from_config(path) == models.from_config(LLAMA, name="my-model")
    assert models.from_config(folder, name="mine").name == "mine"
    (tmp_path / "small.json").write_text(json.dumps(LLAMA))
    assert models.from_config(tmp_path / "small.json").name == "small"
    assert models.from_config(LLAMA).name == "llama"


OTHER_KEYS = {
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "n_ctx": 1024,
        "layer_norm_epsilon": 1e-05,
        "summary_type": "cls_index",
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    },
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "eos_token_id": [128001, 128008],
        "pretraining_tp": 1,
        "rope_scaling": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "torch_dtype": "bfloat16",
        "quantization_config": None,
    },
    "deepseek-v2-lite": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM"},
        "aux_loss_alpha": 0.001,
        "ep_size": 1,
        "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
        "scoring_func": "softmax",
        "topk_method": "greedy",
    },
    "phi-3-mini-4k": {"original_max_position_embeddings": 4096, "rope_scaling": None, "embd_pdrop": 0.0},
    "gemma-3-1b": {"rope_local_base_freq": 10000, "query_pre_attn_scalar": 256, "attn_logit_softcapping": None},
}


@pytest.mark.parametrize("name", OTHER_KEYS)
def test_keys_that_shape_nothing_change_nothing(name):
    model = models.get(name)
    assert models.from_config(model.config | OTHER_KEYS[name], name=name) == model


def test_the_config_can_be_had_back():
    config = models.get("deepseek-v2-lite").config
    assert config["q_lora_rank"] is None
    config["vocab_size"] = 1
    assert models.get("deepseek-v2-lite").config["vocab_size"] == 102_400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "it must be JSON: "),
        (b"", "it must be JSON: "),
        (b"[" * 100_000, "it must be JSON that is not nested so deeply"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "it must be JSON without a number of thousands of digits"),
        (b'{"vocab_size": Infinity}', "it must be JSON without Infinity"),
        (b"[1, 2]", "it must be a JSON object"),
        (b"\xff\xfe\x00", "it must be a config.json that can be read: it is not text"),
    ],
)
def test_an_unreadable_file_is_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="config is .*config.json'; ") as raised:
        models.from_config(path)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_file_from_windows_is_read(tmp_path):
    text = "\ufeff" + json.dumps(LLAMA, indent=1)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    tensors = models.from_config(LLAMA).tensors()
    assert models.resolve(tmp_path).tensors() == models.resolve(text).tensors() == tensors


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(ValueError, match="config is .*; it must be a config.json, and this folder has none"):
        models.from_config(tmp_path)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_not_read(path):
    with pytest.raises(ValueError, match=f"config is '{path}'; it must be a config.json, in a regular file"):
        models.resolve(path)


def test_the_deepest_transformer_published_is_read_and_a_deeper_one_refused():
    # DeepNet has 1,000 layers (arXiv:2203.00555)
    assert models.from_config(LLAMA | {"num_hidden_layers": 1000}).layers == 1000
    with pytest.raises(ValueError, match="num_hidden_layers is 1001; it must be a whole number from 1 to 1000"):
        models.from_config(LLAMA | {"num_hidden_layers": 1001})


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.json'; it must be a config.json that can be read: No such file"):
        models.from_config(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match=r"config is 'x+\.\.\.x+\.json'; it must be .* read: File name too long"):
        models.resolve("x" * 50_000 + ".json")


@pytest.mark.parametrize("config", [3, None, [LLAMA], {"model_type": "llama", ("a",): 1}])
def test_what_is_no_config_is_refused(config):
    with pytest.raises(ValueError, match="config is "):
        models.from_config(config)


def test_resolve(tmp_path):
    model = models.get("llama-3.1-8b")
    assert models.resolve(model) is models.resolve("llama-3.1-8b") is model
    assert isinstance(models.resolve(70e9), int)
    written = (70e9, 70 * 10**9, "70e9", "70B", " 70 b", "70000M", "70 billion", "70,000 million")
    assert {models.resolve(count) for count in written} == {70 * 10**9}
    assert models.resolve("8.03B") == 8_030_000_000
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    small = models.from_config(LLAMA)
    for what in (LLAMA, json.dumps(LLAMA), tmp_path, str(tmp_path), str(tmp_path / "config.json")):
        assert models.resolve(what).parameters == small.parameters


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("llama-3.1-80b", 'model is "llama-3.1-80b"; no such name .* nearest are llama-3.1-8b, llama-3.1-70b'),
        ("meta-llama/Llama-3.1-8B", "nearest are llama-3.1-8b"),
        ("", "model is empty; give a known name, a config.json, or a parameter count such as 70e9"),
        ("½", 'model is "½"; no such name'),
        ("zebra", "no such name in the registry, it has gpt2, "),
        ("x" * 10_000, "no such name"),
        ("nowhere/config.json", "config is 'nowhere/config.json'; it must be a config.json that can be read"),
        ('{"model_type": ', "it must be JSON"),
        ("-70e9", "model is '-70e9'; write a whole number, such as 64, 70e9, 70B or 70 billion"),
        ("7.5", "model is '7.5'; write a whole number"),
        ("70 apples", "model is '70 apples'; write a whole number"),
        ("1,92", "model is '1,92'; a comma only separates groups of three digits"),
        ("1" * 400, "model is '1+...1+'; its number must be 0, or from"),
        ("1e30t", "model is 10+; it must be a number of at most 1e"),
        (10**400, r"model is 10+...0+; it must be a number above 0, and not beyond 1e\+300"),
        ("0", "model is .*0.*; it must be a number above 0"),
        (0, "model is 0; it must be a number above 0"),
        (-1.0, "model is -1.0"),
        (True, "model is True"),
        (None, "model is None"),
        (float("inf"), "model is inf"),
        (float("nan"), "model is nan"),
        (1.5, "model is 1.5; it must be a whole number"),
        ([1, 2], r"model is \[1, 2\]"),
    ],
)
def test_what_is_no_model_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        models.resolve(given)


def test_arrays_are_no_model():
    with pytest.raises(ValueError, match="model is .*; it must be one parameter count"):
        models.resolve(torch.arange(1, 3).numpy())


def test_unknown_names_suggest_close_ones():
    with pytest.raises(ValueError, match="the nearest are qwen2.5-72b, qwen2.5-7b"):
        models.get("Qwen2.5-72")
