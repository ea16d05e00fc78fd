"""The grid on which memtier.kv_cache and memtier.weights are held against transformers, byte for byte.

The tests run a part of it. All of it, at least 40 cells a family, with one published model of each in full size:

    python tests/kv_grid.py
"""

import argparse
import random
import sys
import time
from collections import Counter
from itertools import product

import torch
import transformers

from memtier import kv_cache, models, weights
from memtier.lab import kv_cache as lab
from memtier.lab.models import build
from memtier.lab.weights import on_meta

HEADS = (  # grouped, a single key and value head with odd sizes, one for each query head
    {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_hidden_layers": 3},
    {"hidden_size": 21, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "num_hidden_layers": 2},
    {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 4},
)
BODY = {"vocab_size": 32, "intermediate_size": 13, "max_position_embeddings": 64, "pad_token_id": None}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
WINDOWS = (5, 1, 2)  # one for each of HEADS; 1 and 2 are the smallest there are
CELLS = [  # batch, sequence, of which decoded one by one, cache: below, at and beyond a window of 5
    *((batch, sequence, decode, "dynamic") for batch, (sequence, decode) in product(
        (1, 3), ((1, 0), (4, 0), (5, 0), (6, 0), (6, 2), (13, 0), (13, 1), (13, 6)))),
    (2, 13, 1, "dynamic, no config"), (2, 4, 0, "static"), (1, 5, 1, "static"), (3, 13, 2, "static"), (2, 9, 3, "fp8"),
]  # fmt: skip
FULL_SIZE = {  # a published model of each family; a sequence beyond its window, where it has one
    "llama": "llama-3.1-405b", "mistral": "mistral-7b", "qwen2": "qwen2.5-72b", "qwen3": "qwen3-8b",
    "gemma2": "gemma-2-9b", "phi3": "phi-3-mini-4k", "olmo2": "olmo-2-7b", "gpt2": "gpt2-xl",
    "gpt_neox": "pythia-6.9b", "mixtral": "mixtral-8x7b", "qwen2_moe": "qwen1.5-moe-a2.7b",
    "qwen3_moe": "qwen3-30b-a3b", "deepseek_v2": "deepseek-v2-lite", "deepseek_v3": "deepseek-v3",
    "gemma3_text": "gemma-3-1b",
}  # fmt: skip


def configs(family):
    """Three small configurations of a family."""
    for heads, window in zip(HEADS, WINDOWS, strict=True):
        config = {"model_type": family} | BODY | heads
        layers = heads["num_hidden_layers"]
        if family == "gpt2":
            yield {"model_type": family, "vocab_size": 32, "n_embd": heads["hidden_size"], "n_layer": layers,
                   "n_head": heads["num_attention_heads"], "n_positions": 64}
            continue
        if family == "gpt_neox":
            config = {key: value for key, value in config.items() if key not in ("num_key_value_heads", "head_dim")}
            config |= {"hidden_size": heads["num_attention_heads"] * heads["head_dim"], "rotary_pct": 1.0}
        elif family in ("deepseek_v2", "deepseek_v3"):  # the first cannot turn keys that begin at an odd place
            config = {key: value for key, value in config.items() if key != "head_dim"}
            config |= {"num_key_value_heads": heads["num_attention_heads"], "n_routed_experts": 8, "n_group": 2,
                       "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_shared_experts": 1,
                       "kv_lora_rank": heads["head_dim"] + (2 if family == "deepseek_v2" else 3),
                       "q_lora_rank": None if window == 1 else 7,
                       "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5, "first_k_dense_replace": 1}
        elif family in ("mistral", "phi3", "mixtral"):
            config |= {"sliding_window": window}
            config |= {"num_local_experts": 4, "num_experts_per_tok": 2} if family == "mixtral" else {}
        elif family in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
            config |= {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 1}
            config |= EXPERTS if family.endswith("moe") else {}
            config |= {"shared_expert_intermediate_size": 8} if family == "qwen2_moe" else {}
        elif family in ("gemma2", "gemma3_text"):
            config |= {"sliding_window": window, "layer_types": [models.LAYER_TYPES[layer % 2 == 0]
                                                                 for layer in range(layers)]}
        yield config


def held(model, dtype):
    """Weights as transformers holds them."""
    return weights.inventory(model, dtype=dtype, router="fp32" if model.family in weights.FP32_ROUTERS else None)


def predicted(model, *, batch, sequence, decode, cache, dtype):
    """What transformers' cache shows, and the storage behind it."""
    asked = {"batch": batch, "sequence": sequence, "dtype": dtype}
    if cache == "static":
        total = kv_cache.inventory(model, cache="static", **asked).total
        return total, total
    if cache == "fp8":
        total = kv_cache.inventory(model, **asked | {"dtype": "fp8"}).total
        return total, total
    asked["windows"] = cache == "dynamic"
    last = 1 if decode else sequence
    return kv_cache.inventory(model, **asked).total, kv_cache.inventory(model, last=last, **asked).total


def small_cells(family, cells=CELLS, shapes=(0, 1, 2), dtypes=("fp32", "bf16", "fp32")):
    """(what, predicted bytes, measured bytes) for the small models of a family: parameters, then caches."""
    for number, config in enumerate(configs(family)):
        if number not in shapes:
            continue
        dtype = dtypes[number]
        model, torch_model = models.from_config(config), lab.random_model(config, dtype=dtype)
        stored = sum(each.numel() * each.element_size() for each in torch_model.parameters())
        yield (family, number, dtype, "weights"), held(model, dtype).total, stored
        for batch, sequence, decode, cache in cells:
            if cache == "fp8" and any(model.windows):
                continue  # transformers refuses it
            found = lab.measured(lab.fill(torch_model, batch=batch, sequence=sequence, decode=decode, cache=cache))
            expected = predicted(model, batch=batch, sequence=sequence, decode=decode, cache=cache, dtype=dtype)
            yield ((family, number, dtype, f"{batch} × {sequence}, {decode} decoded, {cache}"), expected,
                   (found.shown, found.storage))


def varied(config, dice):
    """A configuration of the same family with other sizes and switches."""
    layers, gpt2 = dice.randint(1, 6), config["model_type"] == "gpt2"
    changes = {"vocab_size": dice.randint(1, 300), "tie_word_embeddings": dice.random() < 0.5,
               "n_layer" if gpt2 else "num_hidden_layers": layers,
               "n_inner" if gpt2 else "intermediate_size": dice.randint(1, 99)}
    for switch in ("attention_bias", "mlp_bias", "qkv_bias"):
        facts = models._data()["families"][config["model_type"]]["defaults"]
        changes |= {switch: dice.random() < 0.5} if switch in facts else {}
    if "layer_types" in config:
        changes["layer_types"] = dice.choices(models.LAYER_TYPES, k=layers)
    if "moe_intermediate_size" in config:
        changes["moe_intermediate_size"] = dice.randint(1, 50)
    return config | changes


def parameter_cells(family, count=40):
    """(what, predicted, measured): parameters and bytes by part of models that transformers builds on meta."""
    dice, shapes = random.Random(family), list(configs(family))
    for number in range(count):
        config = varied(shapes[number % 3], dice)
        model = models.from_config(config)
        yield ((family, "parameters", config), (held(model, "bf16"), held(model, "fp32").total // 4),
               (on_meta(config), sum(each.numel() for each in build(config).parameters())))


def full_size_cells(family, cells=((1, 4100, 0), (2, 4101, 1))):
    """The same for the published model of a family: its parameters on meta, its caches under FakeTensorMode."""
    name = FULL_SIZE[family]
    model = models.get(name)
    yield (name, "weights"), held(model, "bf16"), on_meta(name)
    for batch, sequence, decode in cells:
        sequence = min(sequence, model.positions) if family == "gpt2" else sequence
        found = lab.full_size(model.config, batch=batch, sequence=sequence, decode=decode)
        expected = predicted(model, batch=batch, sequence=sequence, decode=decode, cache="dynamic", dtype="bf16")
        yield (name, f"{batch} × {sequence}, {decode} decoded"), expected, (found.shown, found.storage)


def main() -> int:
    """Run all cells; print those that differ and how many there were of each family. 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=models.FAMILIES)
    families = parser.parse_args().families
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, Python {sys.version.split()[0]}")
    counts, wrong, began = Counter(), 0, time.perf_counter()
    for family in families:
        for what, expected, found in (*parameter_cells(family), *small_cells(family), *full_size_cells(family)):
            counts[family, "parameters" if "weights" in what or "parameters" in what else "caches"] += 1
            if expected != found:
                wrong += 1
                print(f"{what}: predicted {expected}, measured {found}")
        print(f"{family:12} {counts[family, 'parameters']:4} of parameters {counts[family, 'caches']:4} of caches",
              flush=True)
    print(f"{counts.total()} cells, {wrong} differ, {time.perf_counter() - began:.0f} s")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
