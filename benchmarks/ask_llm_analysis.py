"""Runs in llm-analysis' own environment: its training analysis on one GPU, and its KV cache. See packages.py."""

import contextlib
import json
import logging
import sys
from importlib import metadata

from llm_analysis.analysis import ActivationRecomputation, LLMAnalysis
from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig

# Large enough to fit everything: it refuses what does not fit. Rates do not matter here.
GPU = GPUConfig("endless", mem_per_GPU_in_GB=1e9, hbm_bandwidth_in_GB_per_sec=1e3,
                intra_node_bandwidth_in_GB_per_sec=1e3, intra_node_min_message_latency=1e-6, peak_fp16_TFLOPS=1e3)
RECOMPUTE = {"none": ActivationRecomputation.NONE, "full": ActivationRecomputation.FULL}


def analysis(name, model):
    """None for latent attention, which it does not know. A sparse layer is as wide as its experts."""
    if model["kv_rank"] is not None:
        return None
    sparse = any(model["sparse"])
    width = model["expert_intermediate"] if sparse else model["intermediate"]
    config = ModelConfig(
        name, num_layers=model["layers"], n_head=model["heads"], hidden_dim=model["hidden"], vocab_size=model["vocab"],
        max_seq_len=max(model["positions"], 1 << 20), num_key_value_heads=model["kv_heads"], ffn_embed_dim=width,
        expansion_ratio=width / model["hidden"], moe_num_experts=model["experts"] if sparse else 1,
        moe_top_k=model["experts_per_token"] if sparse else 1)
    return LLMAnalysis(config, GPU, DtypeConfig(), ParallelismConfig())


def answer(row, model):
    """None where it has no answer: for 32 bits it counts a KV cache only."""
    how, quantity = row["how"], row["quantity"]
    found = analysis(row["model"], model)
    if found is None or how.get("recompute") == "selective" or how.get("recipe") == "fp32-adam":
        return None
    if quantity == "parameters":
        return found.get_num_params_total()
    if quantity == "KV cache":
        each = 4 if how["dtype"] == "fp32" else 2
        return model["layers"] * found.get_memory_kv_cache_per_layer(how["batch"], how["sequence"], each)
    if how.get("dtype") == "fp32":
        return None
    gated = model["family"] not in ("gpt2", "gpt_neox")
    said = found.training(
        batch_size_per_gpu=how.get("batch", 1), seq_len=how.get("sequence", 1), mlp_gated_linear_units=gated,
        activation_recomputation=RECOMPUTE[how.get("recompute", "none")],
        flash_attn="eager" not in how.get("stack", ""),
        softmax_dropout=how.get("dropout", False) and model["attention_dropout"] > 0)
    if quantity == "activations":
        return said["activation_memory_per_gpu"]
    return sum(said[f"{part}_memory_per_gpu"] for part in ("weight", "gradient", "optimizer_state"))


def answers(question):
    for number, row in enumerate(question["rows"]):
        said = answer(row, question["models"][row["model"]])
        if said is not None:
            yield number, "llm-analysis", said


logging.disable(logging.WARNING)
with contextlib.redirect_stdout(sys.stderr):
    found = list(answers(json.load(sys.stdin)))
print(json.dumps({"version": metadata.version("llm-analysis"), "answers": found}))
