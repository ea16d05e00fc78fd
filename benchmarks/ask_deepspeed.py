"""Runs in DeepSpeed's own environment: its parameter count and its estimate of model states. See packages.py."""

import contextlib
import json
import sys

import deepspeed
import torch
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs, model_to_params
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

SMALL_ENOUGH = 200_000_000  # parameters of a model that is built in memory


def build(config, device):
    keys = dict(config)
    settings = CONFIG_MAPPING[keys.pop("model_type")](**keys)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)


def answers(question):
    largest = {}
    for number, row in enumerate(question["rows"]):
        model = question["models"][row["model"]]
        if row["quantity"] == "parameters":
            on_meta, largest[row["model"]] = model_to_params(build(model["config"], "meta"))
            yield number, "DeepSpeed, model on meta", on_meta
            if model["parameters"] <= SMALL_ENOUGH:
                yield number, "DeepSpeed, model in memory", model_to_params(build(model["config"], "cpu"))[0]
        elif row["quantity"] == "training state" and row["how"]["recipe"] == "bf16-adam":
            _, gpu, _ = estimate_zero3_model_states_mem_needs(
                total_params=model["parameters"], largest_layer_params=largest[row["model"]], num_gpus_per_node=1,
                num_nodes=1, cpu_offload=False, cpu_offload_params=False)
            yield number, "DeepSpeed", gpu


with contextlib.redirect_stdout(sys.stderr):
    found = list(answers(json.load(sys.stdin)))
print(json.dumps({"version": deepspeed.__version__, "answers": found}))
