"""Small random configurations of every family, where rounding and sharing bite: what the accuracy checks run over.

Odd sizes, one sequence and several, one key and value head, sequences up to and past the window, tied and untied heads,
biases, norms on queries and keys, softcaps, partial rotary embedding, parallel residuals, dropout, every activation
function that is derived. The same seed gives the same cells.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from memtier import activations, models

ACTIVATIONS = ("silu", "silu", "silu", "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python",
               "gelu_python_tanh", "gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish",
               "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "sqrtsoftplus", "swish", "tanh")
SPARSE = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
SHARED_WIDTH = ("llama", "gemma2", "gemma3_text", "phi3", "qwen2", "qwen2_moe")  # hidden size = heads × head size


@dataclass(frozen=True)
class Cell:
    """One check: a config.json, and how the model is run."""

    family: str
    config: dict
    how: dict

    @property
    def fakeable(self) -> bool:
        """Can fake tensors run it? Not experts in fp32 (torch.grouped_mm), nor a loop whose shapes depend on data."""
        experts = self.how["stack"].split("-")[-1]
        return experts not in activations.EXPERTS or (experts != "loop" and self.how["dtype"] == "bf16")

    def __str__(self):
        return f"{self.family} {self.how} {self.config}"


def usual(family: str, count: int, seed: int = 0) -> Iterator[Cell]:
    """The same with proportions as models have them: for the peaks, where the fullest of many moments decides.

    Wide feed-forward layers, some thousand words, a hundred tokens, activation functions in one kernel, no dropout of
    attention; recomputation none, selective and full in turn.
    """
    for number, cell in enumerate(cells(family, count, seed)):
        pick = random.Random(f"{family} {seed} {number}")
        width, heads = pick.choice((64, 96)), pick.choice((4, 8))
        names = ("n_embd", "n_head", "n_inner") if family == "gpt2" else (
            "hidden_size", "num_attention_heads", "intermediate_size")
        config = cell.config | dict(zip(names, (width, heads, pick.choice((2, 3, 4)) * width), strict=True))
        config["vocab_size"] = pick.choice((500, 2000, 4000))
        for key in ("hidden_act", "hidden_activation", "activation_function"):
            if key in config:
                config[key] = "gelu_pytorch_tanh" if family.startswith(("gemma", "gpt")) else "silu"
        config |= {key: 0.0 for key in ("attention_dropout", "attn_pdrop") if key in config}
        if "num_key_value_heads" in config:
            config["num_key_value_heads"] = heads if family.startswith("deepseek") else pick.choice((1, 2, heads))
        if "head_dim" in config:
            config["head_dim"] = width // heads
        if "moe_intermediate_size" in config:
            config["moe_intermediate_size"] = pick.choice((32, 96))
        if config.get("sliding_window"):
            config["sliding_window"] = pick.choice((64, 512))
        yield Cell(family, config, cell.how | {"sequence": pick.choice((96, 128)),
                                               "recompute": activations.RECOMPUTE[number % 3]})


def cells(family: str, count: int, seed: int = 0) -> Iterator[Cell]:
    """`count` cells of a family; each stack of the family comes up in turn."""
    pick = random.Random(f"{family} {seed}")
    for number in range(count):
        config = _config(pick, family)
        stacks = activations.stacks(config)
        yield Cell(family, config, {
            "batch": pick.choice((1, 1, 2, 3)),
            "sequence": pick.choice((2, 7, 8, 9, 16, 17)),
            "stack": stacks[number % len(stacks)],
            "dtype": pick.choice(activations.DTYPES),
            "recompute": pick.choice(("none", "none", "full")),
            "dropout": pick.choice((True, False)),
        })


def _config(pick: random.Random, family: str) -> dict:
    kv_heads, group, head = pick.choice((1, 1, 2, 3)), pick.choice((1, 1, 2, 4)), pick.choice((2, 6, 16, 24))
    heads = kv_heads * group
    config = {"model_type": family, "vocab_size": pick.choice((11, 777, 1000)),
              "tie_word_embeddings": pick.choice((True, False))}
    if family == "gpt2":
        return config | {
            "n_layer": pick.choice((1, 2, 3)), "n_embd": heads * head, "n_head": heads,
            "n_inner": pick.choice((None, 33)),
            "activation_function": pick.choice(ACTIVATIONS), "attn_pdrop": pick.choice((0.0, 0.1)),
            "resid_pdrop": pick.choice((0.0, 0.1)), "embd_pdrop": pick.choice((0.0, 0.1)),
            "bos_token_id": 0, "eos_token_id": 0}
    config |= {"num_hidden_layers": pick.choice((1, 2, 3)), "num_attention_heads": heads,
               "hidden_act": pick.choice(ACTIVATIONS), "intermediate_size": pick.choice((33, 200))}
    if family == "gpt_neox":
        return config | {
            "hidden_size": heads * head, "rotary_pct": pick.choice((0.25, 0.5, 1.0)),
            "use_parallel_residual": pick.choice((True, False)), "attention_bias": pick.choice((True, False)),
            "attention_dropout": pick.choice((0.0, 0.1)), "hidden_dropout": pick.choice((0.0, 0.1)),
            "bos_token_id": 0, "eos_token_id": 0}
    config |= {"attention_dropout": pick.choice((0.0, 0.0, 0.0, 0.1)), "bos_token_id": 0, "eos_token_id": 0,
               "pad_token_id": 0}
    if family.startswith("deepseek"):
        return config | _deepseek(pick, family, heads)
    own_width = heads * head if family in SHARED_WIDTH else pick.choice((heads * head, 24, 56))
    if family in SPARSE:
        own_width = -(-own_width // (8 * heads)) * 8 * heads  # grouped_mm wants rows of whole 16 bytes
    config |= {"hidden_size": own_width, "num_key_value_heads": kv_heads, "head_dim": head}
    if family in ("phi3", "qwen2", "qwen2_moe"):
        del config["head_dim"]  # they take it from the hidden size
    if family in ("llama", "olmo2", "qwen3"):
        config["attention_bias"] = pick.choice((True, False))
    if family == "llama":
        config["mlp_bias"] = pick.choice((True, False))
    if family in ("mistral", "mixtral", "phi3"):
        config["sliding_window"] = pick.choice((None, 8, 100))
    if family == "phi3":
        config |= {"resid_pdrop": pick.choice((0.0, 0.1)), "partial_rotary_factor": pick.choice((0.5, 1.0))}
    if family in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        config |= {"use_sliding_window": pick.choice((True, False)), "sliding_window": 8,
                   "max_window_layers": pick.choice((0, 1))}
    if family in ("gemma2", "gemma3_text"):
        del config["hidden_act"]
        config |= {"hidden_activation": pick.choice(ACTIVATIONS), "sliding_window": pick.choice((8, 100)),
                   "final_logit_softcapping": pick.choice((None, 30.0))}
    if family in ("gemma2", "gemma3_text"):
        config["attn_logit_softcapping"] = pick.choice((None, 50.0))
    if family == "mixtral":
        config |= {"num_local_experts": 4, "num_experts_per_tok": pick.choice((1, 2, 3)),
                   "intermediate_size": pick.choice((8, 40))}
    if family in ("qwen2_moe", "qwen3_moe"):
        config |= {"num_experts": 4, "num_experts_per_tok": pick.choice((1, 3)),
                   "moe_intermediate_size": pick.choice((8, 40)), "norm_topk_prob": pick.choice((True, False)),
                   "decoder_sparse_step": pick.choice((1, 1, 2))}
    if family == "qwen2_moe":
        config |= {"shared_expert_intermediate_size": 24, "qkv_bias": pick.choice((True, False))}
    return config


def _deepseek(pick: random.Random, family: str, heads: int) -> dict:
    plain, rotary = pick.choice(((16, 8), (10, 6), (6, 2)))
    config = {
        "hidden_size": 8 * heads * pick.choice((1, 2)), "num_key_value_heads": heads, "qk_nope_head_dim": plain,
        "qk_rope_head_dim": rotary, "v_head_dim": pick.choice((plain + rotary, 8, 20)),
        "q_lora_rank": pick.choice((None, 20)), "n_routed_experts": 8,
        "n_group": pick.choice((2, 4)), "topk_group": pick.choice((1, 2)), "num_experts_per_tok": pick.choice((1, 2)),
        "moe_intermediate_size": pick.choice((8, 40)), "n_shared_experts": pick.choice((1, 2)),
        "first_k_dense_replace": pick.choice((0, 1))}
    if family == "deepseek_v2":  # its rotary embedding reads pairs of numbers, so the ranks before them must be even
        return config | {"kv_lora_rank": pick.choice((8, 30)),
                         "topk_method": pick.choice(("greedy", "group_limited_greedy"))}
    return config | {"kv_lora_rank": pick.choice((8, 31)), "rope_interleave": pick.choice((True, False)),
                     "norm_topk_prob": pick.choice((True, False))}


def published() -> dict[str, str]:
    """One architecture of the registry for each family: the smallest published one it has."""
    smallest: dict[str, models.Model] = {}
    for name in models.names():
        model = models.get(name)
        if model.family not in smallest or model.parameters < smallest[model.family].parameters:
            smallest[model.family] = model
    return {family: model.name for family, model in smallest.items()}
