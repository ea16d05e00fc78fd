"""What torch itself says of each case: parameters, training state, KV cache and saved activations, in bytes and counts.

Full-size models are made of tensors that have shapes and storages but no memory (meta for parameters and state, fake
tensors where a forward pass runs); small ones run on real tensors.
"""

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from memtier.lab import activations, kv_cache
from memtier.lab.models import build


def parameters(config: dict) -> int:
    """Number of parameters of the model transformers builds, tied ones once."""
    return sum(parameter.numel() for parameter in build(config).parameters())


def state(config: dict, *, recipe: str) -> int:
    """Bytes of training state after a step of AdamW: weights, gradients, master weights, moments, step counters.

    recipe: "bf16-adam" (bf16 weights and gradients, fp32 master weights and moments) or "fp32-adam" (all fp32).
    """
    dtype = {"bf16-adam": torch.bfloat16, "fp32-adam": torch.float32}[recipe]
    keys = dict(config)
    settings = CONFIG_MAPPING[keys.pop("model_type")](**keys)
    with torch.device("meta"):
        weights = list(AutoModelForCausalLM.from_config(settings, dtype=dtype).to(dtype).parameters())
        gradients = [torch.zeros_like(weight) for weight in weights]
        updated = weights
        if dtype != torch.float32:
            updated = [torch.nn.Parameter(weight.detach().float()) for weight in weights]
        optimizer = torch.optim.AdamW(updated)
        for each, gradient in zip(updated, gradients, strict=True):
            each.grad = gradient.to(each.dtype)
        optimizer.step()
        moments = [tensor for kept in optimizer.state.values() for tensor in kept.values()]
        tensors = [*weights, *gradients, *updated, *moments]
        return sum({each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}.values())


def cache(config: dict, *, batch: int, sequence: int, dtype: str, real: bool) -> int:
    """Bytes of the keys and values in transformers' own cache after it has read a prompt of `sequence` tokens."""
    if not real:
        return kv_cache.full_size(config, batch=batch, sequence=sequence, dtype=dtype).shown
    model = kv_cache.random_model(config, dtype=dtype)
    return kv_cache.measured(kv_cache.fill(model, batch=batch, sequence=sequence)).shown


def saved(config: dict, *, real: bool, **how) -> int:
    """Bytes autograd keeps for the backward pass, parameters and buffers left out.

    With selective recomputation: bytes alive after the forward pass, because torch's hooks do not see what it keeps.
    """
    if how["recompute"] == "selective":
        return activations.live(config, real=real, **how).after
    return sum(kept.nbytes for kept in activations.saved(config, real=real, **how))
