"""What transformers itself builds from a config.json, on torch's meta device: shapes without memory.

The measured side of memtier.models. Nothing is downloaded and no weight exists, so a 671-billion-parameter model takes
well under a second.
"""

from collections.abc import Mapping

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel


def build(config: Mapping) -> PreTrainedModel:
    """The causal language model transformers builds from a config.json's keys, on the meta device."""
    keys = dict(config)
    settings = CONFIG_MAPPING[keys.pop("model_type")](**keys)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(settings)


def tensors(config: Mapping) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of every parameter tensor, in order; a tied one once."""
    return [(name, tuple(parameter.shape)) for name, parameter in build(config).named_parameters()]
