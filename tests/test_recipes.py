import numpy as np
import pytest

from memtier import models, optimizer_state, recipes

TINY = models.from_config({"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 96,
                           "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})


@pytest.mark.parametrize(("name", "per_parameter"), [
    ("inference", 2), ("fp32-adam", 16), ("bf16-adam", 16), ("bf16-adam-fp32-grads", 18), ("bf16-adam-two-grads", 20),
    ("fsdp2-adam", 16), ("bf16-moments", 12), ("deepseek-v3", 14), ("sgd-momentum", 12), ("lion", 12),
])
def test_bytes_a_parameter_as_their_sources_count_them(name, per_parameter):
    assert recipes.get(name).per_parameter == per_parameter
    assert recipes.get(name).source


def test_the_sixteen_bytes_taken_apart():
    recipe = recipes.get("bf16-adam")
    assert (recipe.weights, recipe.gradients, recipe.master, recipe.optimizer) == (2, 2, 4, 4 + 4)


@pytest.mark.parametrize(("name", "shape", "part", "nbytes"), [
    # bitsandbytes 0.50.2: two fp32 moments below 4,096 elements, else two bytes, and two fp32 scales a block of 256
    ("adam-8bit", (4095,), "mlp", 8 * 4095),
    ("adam-8bit", (4096,), "mlp", 2 * 4096 + 8 * 16),
    ("adam-8bit", (4097,), "mlp", 2 * 4097 + 8 * 17),
    # torch.optim.Adafactor: row_var (64, 1) and col_var (1, 96) in fp32; a vector keeps its whole variance
    ("adafactor", (64, 96), "mlp", 4 * (64 + 96)),
    ("adafactor", (2, 3, 4), "experts", 4 * 2 * (3 + 4)),
    ("adafactor", (64,), "norms", 4 * 64),
    # Muon: one momentum for a hidden matrix; AdamW's two moments for the embedding, the norm and fused experts
    ("muon", (64, 96), "attention", 4 * 64 * 96),
    ("muon", (64, 96), "embedding", 8 * 64 * 96),
    ("muon", (64,), "norms", 8 * 64),
    ("muon", (2, 64, 96), "experts", 8 * 2 * 64 * 96),
    ("bf16-adam", (64, 96), "mlp", 8 * 64 * 96),
])
def test_optimizer_bytes_by_shape(name, shape, part, nbytes):
    assert recipes.get(name).optimizer_bytes(shape, part) == nbytes


def test_step_counters_are_torchs():
    assert recipes.get("bf16-adam").counter_bytes((64, 96), "mlp") == 4
    assert recipes.get("sgd-momentum").counter_bytes((64, 96), "mlp") == 0
    assert recipes.get("muon").counter_bytes((64, 96), "mlp") == 0
    assert recipes.get("muon").counter_bytes((64,), "norms") == 4


def test_lora_trains_only_its_adapters():
    recipe = recipes.get("lora")
    trained = [tensor for tensor, is_trained in recipe.tensors(TINY) if is_trained]
    frozen = [tensor for tensor, is_trained in recipe.tensors(TINY) if not is_trained]
    assert sum(tensor.numel for tensor in frozen) == TINY.parameters
    # q and o are [64, 64], k and v [32, 64]; an adapter of rank 16 has 16·(in + out) values, in each of two layers
    assert sum(tensor.numel for tensor in trained) == 2 * 16 * (2 * (64 + 64) + 2 * (32 + 64))


def test_lora_names_the_tensors_it_could_have_had():
    with pytest.raises(ValueError, match=r"nowhere.*q_proj\.weight"):
        list(recipes.Recipe("x", "", 2, 2, 4, 8, "", adapters=recipes.LoRA(targets=("nowhere",))).tensors(TINY))


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(ValueError, match="recipe is 'adamw'; it must be one of inference, fp32-adam, bf16-adam"):
        recipes.get("adamw")


@pytest.mark.parametrize("name", ["adam-8bit", "adafactor", "muon", "lora"])
def test_recipes_that_need_shapes_say_so(name):
    with pytest.raises(ValueError, match=f"recipe is '{name}'.* ask what a model needs, by a known name or a"):
        recipes.get(name).per_parameter  # noqa: B018


BYTES = {"name": "x", "title": "", "weights": 2, "gradients": 2, "master": 4, "optimizer": 8, "source": ""}


@pytest.mark.parametrize(("arguments", "message"), [
    ({"weights": "2"}, "weights is '2'; it must be a number, 0 or more"),
    ({"gradients": -2}, "gradients is -2; it must be a number, 0 or more"),
    ({"master": None}, "master is None; it must be a number, 0 or more"),
    ({"master": float("nan")}, "master is nan"),
    ({"gathered": True}, "gathered is True"),
    ({"weights": np.array([2.0, 4.0])}, "weights is array.*; it must be a number, 0 or more"),
    ({"optimizer": None}, "optimizer is None; it must be a number, 0 or more"),
    ({"rule": "muon"}, "optimizer is 8; it must be None with the rule 'muon'"),
    ({"rule": "moun", "optimizer": None}, "rule is 'moun'; it must be one of elementwise, 8-bit blocks, adafactor, mu"),
    ({"counters": "no"}, "counters is 'no'; it must be True or False"),
    ({"adapters": 16}, "adapters is 16; it must be a LoRA, or None"),
    ({"name": None}, "name is None; it must be a text"),
])
def test_a_recipe_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        recipes.Recipe(**BYTES | arguments)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"rank": 0}, "rank is 0; it must be a whole number, 1 or more"),
    ({"rank": -4}, "rank is -4; it must be a whole number, 1 or more"),
    ({"rank": "a"}, "rank is 'a'; it must be a whole number, 1 or more"),
    ({"targets": "q_proj.weight"}, "targets is 'q_proj.weight'; it must be a list of endings of names"),
    ({"targets": ()}, r"targets is \(\); it must be a list of endings of names"),
    ({"targets": (3,)}, r"targets is \(3,\); it must be a list of endings of names"),
    ({"targets": None}, "targets is None; it must be a list of endings of names"),
])
def test_adapters_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        recipes.LoRA(**arguments)


def test_targets_may_be_any_list_of_names():
    listed = recipes.Recipe(**BYTES, adapters=recipes.LoRA(targets=["q_proj.weight"]))
    assert listed == recipes.Recipe(**BYTES, adapters=recipes.LoRA(targets=("q_proj.weight",)))
    assert sum(tensor.numel for tensor, trained in listed.tensors(TINY) if trained) == 2 * 16 * (64 + 64)
    assert optimizer_state.inventory(TINY, recipe=listed)["gradients"] == 2 * 2 * 16 * (64 + 64)


@pytest.mark.parametrize(("model", "target", "shape"), [
    ("mixtral-8x7b", "down_proj", "mlp.experts.down_proj of mixtral-8x7b is 8 × 4096 × 14336"),
    ("mixtral-8x7b", "norm.weight", "input_layernorm.weight of mixtral-8x7b is 4096"),
])
def test_what_is_no_matrix_gets_no_adapter(model, target, shape):
    recipe = recipes.Recipe(**BYTES, adapters=recipes.LoRA(targets=(target,)))
    with pytest.raises(ValueError, match=f"it must name matrices, and model.layers.0.*{shape}"):
        optimizer_state.inventory(model, recipe=recipe)


def test_only_serving_does_not_train():
    assert [name for name in recipes.names() if not recipes.get(name).trains] == ["inference"]
