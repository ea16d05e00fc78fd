"""What others publish as formulas, each as its source has it, on one GPU: no tensor, sequence or pipeline parallelism.

Every function takes a memtier.models.Model for its sizes and gives a number, or None where the source has no answer.
Most of them describe Megatron's GPT block: with dropout, attention written out, all heads whole. torch keeps other
tensors for other models, so a large error here says that a formula was asked about something else than it describes.
"""

from memtier import activations
from memtier.models import Model

SOURCES = {
    "five-term": "the common estimate batch × layers × (5·s·h + 2·heads·s² + 2·s·ffn)",
    "Korthikanti": "Korthikanti et al., 2022, arXiv:2205.05198, Table 2: sbh(34 + 5as/h) a layer; 2sbh recomputed in"
                   " full",
    "Korthikanti, no s²": "the same without attention's matrices, sbh·34, which is nearer to a fused kernel",
    "EleutherAI": "EleutherAI cookbook, calc_transformer_mem.py @069ae2e",
    "Megatron": "Megatron-LM, theoretical_memory_usage.py @00caa53, with sequence parallelism, over one GPU",
    "Ultra-Scale": "Hugging Face, The Ultra-Scale Playbook, 2025, its memory widget (src/memory.js)",
}


def _plain(model: Model) -> bool:
    """No experts and no latent attention, for which these sources have no terms."""
    return not any(model.sparse) and model.kv_rank is None


def _gated(model: Model) -> bool:
    """Does its feed-forward layer multiply two branches, as SwiGLU does?"""
    return model.family not in ("gpt2", "gpt_neox")


def saved(peer: str, model: Model, *, batch: int, sequence: int, stack: str, recompute: str, dtype: str,
          **others) -> float | None:
    """Bytes of activations by one of SOURCES; None where it has no answer.

    "selective" means to each of them something else than to torch's own policy, so none is asked about it.
    """
    if not _plain(model) or recompute == "selective" or (dtype != "bf16" and peer not in _OF_ANY_DTYPE):
        return None
    sizes = {"a": model.heads, "h": model.hidden, "f": model.intermediate, "L": model.layers, "V": model.vocab,
             "b": batch, "s": sequence, "e": 2 if dtype == "bf16" else 4}
    return _SAVED[peer](model, sizes, "eager" not in stack, recompute)


_OF_ANY_DTYPE = ("EleutherAI", "Ultra-Scale")


def _five_term(model, sizes, fused, recompute):
    """It knows neither the stack nor recomputation."""
    return activations.five_term(model, batch=sizes["b"], sequence=sizes["s"]).total


def _korthikanti(model, sizes, fused, recompute):
    a, h, L, b, s = (sizes[name] for name in "ahLbs")
    return L * (2 * s * b * h if recompute == "full" else s * b * h * 34 + 5 * a * s * s * b)


def _korthikanti_without_matrices(model, sizes, fused, recompute):
    """Asked where attention is fused and nothing is recomputed; elsewhere it is the same as the one above, or wrong."""
    if not fused or recompute != "none":
        return None
    return sizes["L"] * 34 * sizes["s"] * sizes["b"] * sizes["h"]


def _eleuther(model, sizes, fused, recompute):
    a, h, L, b, s, e = (sizes[name] for name in "ahLbse")
    matrices = 0 if recompute == "full" else (2 * e + 1) * a * s / h  # what it calls checkpointing drops these only
    return s * b * h * L * (16 * e + 2 + matrices)


def _megatron(model, sizes, fused, recompute):
    """It takes selective recomputation for granted, whatever is asked."""
    h, f, L, V, b, s = (sizes[name] for name in "hfLVbs")
    layers = L * s * b * h * (18 + 4 * f / h)
    return layers + 8 * s * b + s * b * h + 4 * s * b * h * (1 + V / h)


def _ultra_scale(model, sizes, fused, recompute):
    """A fused kernel is its "selective": attention without matrices, all else kept."""
    a, h, f, L, V, b, s, e = (sizes[name] for name in "ahfLVbse")
    sbh = s * b * h
    attention = sbh * (5 * e + 1) + (0 if fused else (2 * e + 1) * a * s * s * b)
    wide = 4 if _gated(model) else 2
    feed_forward = sbh * e + wide * s * b * f * e + sbh
    layer = sbh * e if recompute == "full" else attention + feed_forward + 2 * sbh * e
    return L * layer + sbh + 2 * sbh * e + 4 * s * b * V


_SAVED = {"five-term": _five_term, "Korthikanti": _korthikanti, "Korthikanti, no s²": _korthikanti_without_matrices,
          "EleutherAI": _eleuther, "Megatron": _megatron, "Ultra-Scale": _ultra_scale}


def parameters(peer: str, model: Model) -> float | None:
    """Number of parameters by one of SOURCES; None where it has no answer."""
    return _PARAMETERS[peer](model) if peer in _PARAMETERS else None


def _eleuther_parameters(model):
    """Two embeddings, as many positions as the longest sequence; two matrices a feed-forward layer, three if gated."""
    if not _plain(model):
        return None
    h, L, matrices = model.hidden, model.layers, 3 if _gated(model) else 2
    attention = int(2 * (1 + model.kv_heads / model.heads) * L * h * h)
    mlp = matrices * L * h * model.intermediate
    return 2 * model.vocab * h + h * model.positions + 8 * h * L + 2 * h + attention + mlp


def _megatron_parameters(model):
    """Its own terms for experts, shared experts and latent attention; no biases, no learnt positions, no routers."""
    h, norm, gated = model.hidden, 1 if model.norm == "rms" else 2, 3 / 2 if _gated(model) else 1
    if model.kv_rank is None:
        attention = 2 * h * h * (1 + model.kv_heads / model.heads) * model.heads * model.head_dim / h
    else:
        plain = model.head_dim - model.rope_dim
        attention = model.kv_rank * (h + model.heads * (plain + model.value_dim) + norm)
        attention += h * model.rope_dim + model.heads * model.value_dim * h
        if model.q_rank is None:
            attention += h * model.heads * model.head_dim
        else:
            attention += model.q_rank * (h + model.heads * model.head_dim + norm)
    dense = 2 * h * (model.intermediate * gated + norm) + attention
    expert = model.experts * model.expert_intermediate + model.shared_intermediate
    sparse = 2 * h * (expert * gated + norm) + attention
    layers = sum(sparse if has_experts else dense for has_experts in model.sparse)
    return layers + norm * h + (1 if model.tied else 2) * h * model.vocab


def _ultra_scale_parameters(model):
    """12h² + 13h a layer, a tied embedding, and a position for each token of a sequence, here 1,024."""
    if not _plain(model):
        return None
    h = model.hidden
    return h * (model.vocab + min(1024, model.positions)) + model.layers * (12 * h * h + 13 * h) + 2 * h


_PARAMETERS = {"EleutherAI": _eleuther_parameters, "Megatron": _megatron_parameters,
               "Ultra-Scale": _ultra_scale_parameters}


def state(peer: str, model: Model, *, recipe: str) -> float | None:
    """Bytes of training state, mixed-precision Adam, one GPU: the source's bytes a parameter times its own count."""
    count, each = parameters(peer, model), {"EleutherAI": 18, "Megatron": 18, "Ultra-Scale": 16}.get(peer)
    return None if count is None or recipe != "bf16-adam" else each * count


def cache(peer: str, model: Model, *, batch: int, sequence: int, dtype: str) -> float | None:
    """Bytes of the KV cache. Only EleutherAI's has one: bytes·h·L·s·b, for keys and values together, of whole heads."""
    if peer != "EleutherAI" or not _plain(model):
        return None
    return (2 if dtype == "bf16" else 4) * model.hidden * model.layers * sequence * batch
