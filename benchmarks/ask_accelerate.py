"""Runs in accelerate's own environment: what `accelerate estimate-memory` and its functions say. See packages.py.

The command looks a model up on the Hugging Face Hub. Here that one look-up is answered from a folder that holds the
model's config.json; all that follows is the command's own code.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import accelerate
import torch
from accelerate.commands import estimate
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES = {"bf16-adam": "float16", "fp32-adam": "float32"}  # the command's words for what a recipe trains in


def command(folder):
    """dtype → (bytes of the model, bytes of training it with Adam), as the command's table shows them."""
    asked = argparse.Namespace(model_name=folder, library_name="transformers", trust_remote_code=False,
                               dtypes=["float32", "float16"])
    return {dtype: (size, max(training.values())) for dtype, _, size, training in estimate.gather_data(asked)}


def function(folder):
    """Bytes of the whole model, head and all."""
    with accelerate.init_empty_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    model.tie_weights()
    return calculate_maximum_sizes(model)[0]


def asked(folder):
    """Both answers; None for a model with a tensor larger than memory, since it makes each before it empties it."""
    try:
        return command(folder), function(folder)
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        return None


def answers(question):
    estimate.verify_on_hub = lambda repository, token=None: SimpleNamespace(config={}, library_name="transformers")
    said = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, row in enumerate(question["rows"]):
            name = row["model"]
            if row["quantity"] not in ("parameters", "training state"):
                continue
            if name not in said:
                config = question["models"][name]["config"]
                (Path(folder) / "config.json").write_text(json.dumps(config))
                said[name] = asked(folder)
            if said[name] is None:
                continue
            table, whole = said[name]
            if row["quantity"] == "parameters":
                yield number, "accelerate, command", table["float32"][0] / 4
                yield number, "accelerate, function", whole / 4
            else:
                yield number, "accelerate, command", table[DTYPES[row["how"]["recipe"]]][1]


with contextlib.redirect_stdout(sys.stderr):
    found = list(answers(json.load(sys.stdin)))
print(json.dumps({"version": accelerate.__version__, "answers": found}))
