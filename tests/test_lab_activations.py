"""Saved tensors, live bytes and peaks: the formulas against torch itself, on every family and stack.

A difference says which tensor: a new torch or transformers that keeps something else fails here, with its line of
source.
"""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from memtier import _saved, activations, models  # noqa: E402
from memtier.lab import activations as lab  # noqa: E402
from memtier.lab import cells  # noqa: E402

pytestmark = pytest.mark.usefixtures("quiet_torch")


def test_versions_are_the_ones_derived_from():
    assert torch.__version__.split("+")[0] == "2.13.0"
    assert transformers.__version__ == "5.24.0"


@pytest.mark.parametrize("family", models.FAMILIES)
def test_saved_tensors_are_equal_to_the_byte(family):
    """Each stack of the family three times, on random cells."""
    stacks = activations.stacks(next(cells.cells(family, 1)).config)
    for cell in cells.cells(family, 3 * len(stacks), seed=7):
        measured = lab.saved(cell.config, real=True, **cell.how)
        assert lab.compare(activations.tensors(cell.config, **cell.how), measured) == [], str(cell)
        assert activations.saved(cell.config, **cell.how).total == sum(kept.nbytes for kept in measured)


@pytest.mark.parametrize(("number", "family"), [*enumerate(models.FAMILIES)])
def test_live_bytes_are_equal_and_peaks_within_a_thousandth(number, family):
    """Recomputation none, selective and full in turn."""
    cell = list(cells.usual(family, 1 + number % 3, seed=7))[-1]
    measured = lab.live(cell.config, real=True, **cell.how)
    assert activations.live(cell.config, **cell.how).total == measured.after, str(cell)
    if not cell.how["stack"].endswith("loop"):
        assert activations.peak(cell.config, **cell.how).total == pytest.approx(measured.peak, rel=0.001), str(cell)


@pytest.mark.parametrize(("config", "how"), [
    # behind a norm after the MLP, the MLP output's gradient is gone before gate × up has its own
    ({"model_type": "gemma2", "vocab_size": 500, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 64, "intermediate_size": 256, "sliding_window": 64,
      "final_logit_softcapping": None, "attn_logit_softcapping": None},
     {"stack": "hf-eager", "recompute": "selective"}),
    ({"model_type": "olmo2", "vocab_size": 500, "tie_word_embeddings": True, "num_hidden_layers": 3,
      "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 96, "intermediate_size": 288},
     {"stack": "hf-eager", "recompute": "full"}),
    # queries and keys lie in one storage with the values, which they keep through the softmax's backward pass
    ({"model_type": "gpt2", "vocab_size": 500, "n_layer": 2, "n_embd": 64, "n_head": 8, "n_inner": 128,
      "bos_token_id": 0, "eos_token_id": 0}, {"stack": "hf-eager", "recompute": "full", "dropout": False}),
    # a fused activation function has one factor, not the two of a gated product; relu's output stays for its own
    *(({"model_type": "gpt_neox", "vocab_size": 400, "tie_word_embeddings": True, "num_hidden_layers": 2,
        "num_attention_heads": 4, "hidden_size": 96, "intermediate_size": 384, "hidden_act": act},
       {"batch": 3, "stack": "hf-sdpa", "recompute": "selective", "loss": "fused"}) for act in ("gelu", "relu")),
])
def test_peaks_that_were_missed_once(config, how):
    how = {"sequence": 128, "dtype": "fp32"} | how
    assert activations.peak(config, **how).total == pytest.approx(lab.live(config, real=True, **how).peak, rel=0.001)


@pytest.mark.parametrize(("stack", "recompute", "dtype"), [
    ("hf-sdpa", "none", "bf16"), ("hf-sdpa", "full", "fp32"), ("hf-eager", "full", "bf16"),
    ("hf-eager", "none", "fp32")])
@pytest.mark.parametrize("config", [
    {"model_type": "gpt2", "vocab_size": 64, "n_layer": 2, "n_embd": 32, "n_head": 8, "n_inner": 64, "bos_token_id": 0,
     "eos_token_id": 0},
    {"model_type": "llama", "vocab_size": 64, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 8,
     "intermediate_size": 64, "attention_dropout": 0.1},
], ids=["gpt2", "llama"])
def test_peaks_with_dropout_of_attention(config, stack, recompute, dtype):
    """Where the layers decide: small words, long sequences, s × s matrices with a mask and a result beside them."""
    how = {"sequence": 128, "batch": 2, "stack": stack, "recompute": recompute, "dtype": dtype}
    assert activations.peak(config, **how).total == pytest.approx(lab.live(config, real=True, **how).peak, rel=0.001)


@pytest.mark.parametrize(("name", "how"), [
    ("llama-3.2-1b", {"sequence": 2048}),
    ("gpt2", {"sequence": 1024, "stack": "hf-eager", "batch": 2}),
    ("qwen3-8b", {"sequence": 513, "recompute": "full"}),
])
def test_published_models_at_full_size(name, how):
    assert lab.compare(activations.tensors(name, **how), lab.saved(name, **how)) == []


def test_fake_tensors_keep_what_real_ones_keep():
    for family in ("llama", "gpt2", "gpt_neox", "gemma2", "mixtral", "deepseek_v3"):
        cell = next(cell for cell in cells.cells(family, 20, seed=3) if cell.fakeable)
        assert lab.saved(cell.config, **cell.how) == lab.saved(cell.config, real=True, **cell.how)


def test_keys_that_files_have_and_shapes_do_not_need():
    """What published config.json files carry along: the lab runs them as they are."""
    extra = {"use_cache": True, "torch_dtype": "bfloat16", "dtype": "float16", "gradient_checkpointing": False,
             "_attn_implementation": "eager", "_name_or_path": "somewhere", "transformers_version": "4.40.0",
             "architectures": ["LlamaForCausalLM"], "pretraining_tp": 1, "initializer_range": 0.02, "auto_map": None}
    cell = next(cells.cells("llama", 1, seed=7))
    assert lab.compare(activations.tensors(cell.config | extra, **cell.how),
                       lab.saved(cell.config | extra, real=True, **cell.how)) == []


def test_a_changed_tensor_is_named():
    """As if a new version kept the gate twice as wide: the message says what it was taken for, and where it is kept."""
    cell = next(cells.cells("llama", 1, seed=7))
    how = cell.how | {"recompute": "none"}
    measured = lab.saved(cell.config, real=True, **how)
    predicted = [(unit, kept._replace(shape=(*kept.shape, 2)) if kept.kind == "up" else kept)
                 for unit, kept in activations.tensors(cell.config, **how)]
    differences = lab.compare(predicted, measured)
    assert any("mlp" in each and "down_proj" in each for each in differences)
    assert any("0: up, MLP" in each for each in differences)


@pytest.mark.parametrize("family", ["llama", "gpt2", "olmo2"])
@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_recomputed_flops_are_those_torch_counts(family, recompute):
    """With eager attention: torch 2.13.0 counts no FLOPs for the fused kernel on a CPU."""
    cell = next(cells.usual(family, 1, seed=7))
    how = {"batch": 2, "sequence": 16, "stack": "hf-eager", "dtype": "fp32", "dropout": False}

    def backward_flops(recompute):
        with lab.built(cell.config, recompute=recompute, real=True, **how) as (network, inputs):
            loss = network(**inputs).loss
            with FlopCounterMode(display=False) as counter:
                loss.backward()
            return counter.get_total_flops()

    predicted = activations.flops_recomputed(cell.config, batch=2, sequence=16, stack="hf-eager", recompute=recompute,
                                             dropout=False)
    assert predicted == backward_flops(recompute) - backward_flops("none")


def test_defaults_are_transformers_own():
    from transformers import CONFIG_MAPPING

    for family, defaults in _saved.DEFAULTS.items():
        settings = CONFIG_MAPPING[family]()
        assert {key: getattr(settings, key) for key in defaults} == defaults
