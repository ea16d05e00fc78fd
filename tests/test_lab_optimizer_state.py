"""The formulas of optimizer state against torch: every class of every recipe, equal to the byte, on every rank."""

import json
import math
import os
import sys
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

from memtier import layout, models, optimizer_state, recipes
from memtier.inventory import Inventory
from memtier.lab import optimizer_state as lab

# Odd sizes: hardly a count of rows divides by the ranks, nor of elements by a block of 256. In TINY some ranks hold
# no row of some tensors (k_proj has two).
ODD = {"model_type": "llama", "vocab_size": 101, "hidden_size": 66, "intermediate_size": 171, "num_hidden_layers": 2,
       "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 22, "tie_word_embeddings": False}
TINY = ODD | {"hidden_size": 9, "intermediate_size": 5, "head_dim": 2}
TIED = ODD | {"tie_word_embeddings": True}

CODE_TABLES = 2 * 256 * 4  # bitsandbytes: two tables of 256 fp32 codes, shared by all tensors of an optimizer
ONE_PROCESS = [name for name in recipes.names() if name not in ("inference", "fsdp2-adam")]
JOBS = [
    {"world": 2},
    {"world": 4, "config": ODD, "recipe": "fsdp2-adam"},
    {"world": 4, "config": TINY},
    {"world": 4, "config": TINY, "replicate": 2},
    {"world": 4, "config": TINY, "recipe": "lora"},
    {"world": 3, "config": ODD, "recipe": "muon"},
    {"world": 3, "config": ODD, "recipe": "adafactor"},
    {"world": 2, "config": ODD, "recipe": "adam-8bit"},
]


def config_of(job) -> dict:
    return job.get("config") or lab.SMALL


@pytest.fixture(scope="module")
def measured():
    """All jobs in one go: the processes' imports cost more than their steps."""
    return lab.fsdp_steps(JOBS, timeout=600)  # on a busy machine the imports alone can take a minute


@pytest.fixture(scope="module")
def step():
    return lab.mixed_precision_step(ODD)


@pytest.mark.parametrize("recipe", ONE_PROCESS)
def test_formula_equals_torch_in_one_process(recipe):
    config = lab.SMALL if recipe == "bf16-adam" else ODD
    other = CODE_TABLES if recipe == "adam-8bit" else 0
    predicted = optimizer_state.inventory(models.from_config(config), recipe=recipe, other=other)
    step = lab.mixed_precision_step(config, recipe=recipe)
    assert step.inventory == predicted, lab.beside(predicted, step.inventory)
    assert math.isfinite(step.loss)


def test_tied_embeddings_count_once():
    assert (lab.mixed_precision_step(TIED).inventory
            == optimizer_state.inventory(models.from_config(TIED), recipe="bf16-adam"))


def test_every_state_tensor_is_listed(step):
    parameters = [tensor.name for tensor in models.from_config(ODD).tensors()]
    expected = [("weights", "", "bfloat16"), ("gradients", ".grad", "bfloat16"),
                ("master weights", ".master", "float32"), ("optimizer", ".exp_avg", "float32"),
                ("optimizer", ".exp_avg_sq", "float32"), ("step counters", ".step", "float32")]
    listed = {(each.kind, each.name, each.dtype) for each in step.tensors}
    assert listed == {(kind, name + ending, dtype) for name in parameters for kind, ending, dtype in expected}
    assert len(step.tensors) == len(listed)
    assert all(each.nbytes == 4 for each in step.tensors if each.kind == "step counters")


def test_table_lists_what_is_asked_for(step):
    lines = step.table("layers.0.self_attn.k_proj").splitlines()
    assert len(lines) == 1 + 6
    assert lines[1].split() == ["weights", "model.layers.0.self_attn.k_proj.weight", "bfloat16", "22×66", "2,904"]
    assert len(step.table().splitlines()) == 1 + len(step.tensors)


def test_a_config_file_does_as_well_as_a_dict(tmp_path, step):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(ODD))
    assert lab.mixed_precision_step(path) == lab.mixed_precision_step(str(path)) == step  # and the seed decides all


def test_update_goes_through_masters_to_weights():
    weight = nn.Parameter(torch.ones(3, 2, dtype=torch.bfloat16))
    master = nn.Parameter(weight.detach().float())
    optimizer = torch.optim.SGD([master], lr=0.5)
    lab._update([optimizer], {"w": (weight, master, torch.full((3, 2), 1.0, dtype=torch.bfloat16))})
    assert torch.equal(master, torch.full((3, 2), 0.5))
    assert torch.equal(weight, torch.full((3, 2), 0.5, dtype=torch.bfloat16))
    assert master.grad is None


def test_lion_steps_by_the_sign():
    p = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = lab.Lion([p], lr=0.1, betas=(0.9, 0.99), weight_decay=0.5)
    p.grad = torch.tensor([3.0, -0.001])
    optimizer.step()
    assert torch.allclose(p, torch.tensor([1.0 * 0.95 - 0.1, -2.0 * 0.95 + 0.1]))
    assert torch.allclose(optimizer.state[p]["exp_avg"], torch.tensor([0.03, -0.00001]))


def test_short_moments_follow_adamw():
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.ones(50)) for _ in range(2))
    settings = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    pair = lab.ShortMomentsAdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    for _ in range(5):
        ours.grad = torch.randn(50)
        theirs.grad = ours.grad.clone()
        for optimizer in pair:
            optimizer.step()
    moved = (theirs - 1).abs().max()
    assert (ours - theirs).abs().max() < 0.02 * moved  # bf16 keeps 8 bits of the moments
    assert not torch.equal(ours, theirs)
    assert {value.dtype for key, value in pair[0].state[ours].items() if key != "step"} == {torch.bfloat16}


def test_shared_storage_counts_once():
    buffer = torch.zeros(10)
    seen = set()
    listed = lab._listed("gradients", {"a": buffer[:4], "b": buffer[4:]}, seen)
    assert [each.nbytes for each in listed] == [40, 0]


@pytest.mark.parametrize("number", range(len(JOBS)), ids=lambda n: "-".join(
    [JOBS[n].get("recipe", "bf16-adam"), str(JOBS[n]["world"]), str(JOBS[n].get("replicate", 1))]))
def test_formula_equals_fsdp2_on_every_rank(measured, number):
    job, ranks = JOBS[number], measured[number]
    model, copies = models.from_config(config_of(job)), job.get("replicate", 1)
    shards = job["world"] // copies
    assert [each.rank for each in ranks] == list(range(job["world"]))
    for each in ranks:
        asked = {"recipe": each.recipe, "layout": layout.Layout(replicate=copies, shard=shards, zero=3),
                 "rank": each.rank % shards}
        held = optimizer_state.per_gpu(model, **asked)
        stored = optimizer_state.per_gpu(model, padded=True, **asked)
        other = Inventory({"other": CODE_TABLES} if each.recipe == "adam-8bit" else {})
        assert each.held == held + other, lab.beside(held + other, each.held)
        assert each.storage == stored + other, lab.beside(stored + other, each.storage)


def test_some_ranks_held_fewer_rows_and_some_none(measured):
    tiny = measured[2]
    assert tiny[0].held["weights"] > tiny[2].held["weights"] > tiny[3].held["weights"]
    assert len({each.storage["weights"] for each in tiny}) == 1  # the padding hides it
    assert layout.rows(2, 4, 3) == 0  # k_proj has two rows


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_a_layer_and_the_root_are_whole_while_the_layer_runs(measured, number):
    job = JOBS[number]
    predicted = optimizer_state.per_gpu(models.from_config(config_of(job)), recipe=job.get("recipe", "bf16-adam"),
                                        gpus=job["world"] // job.get("replicate", 1), stage=3, padded=True,
                                        gathered=True)
    root, layer = predicted["gathered root"], predicted["gathered layer"]
    for each in measured[number]:
        assert each.gathered == {"forward": root + layer, "between": root, "backward": root + layer, "after": 0}


def test_beside_shows_a_difference():
    same = Inventory({"weights": 10, "optimizer": 40})
    assert lab.beside(same, same).count("equal") == 3
    text = lab.beside(same, Inventory({"weights": 10, "optimizer": 36, "other": 1}))
    assert [line.split()[0] for line in text.splitlines() if "bytes" in line] == ["optimizer", "other", "total"]
    assert "-4 bytes" in text


@pytest.mark.parametrize(("arguments", "message"), [
    ({"recipe": "inference"}, "it trains nothing"),
    ({"recipe": "fsdp2-adam"}, "measure it with fsdp_step"),
    ({"recipe": "no such recipe"}, "recipe is 'no such recipe'; it must be one of"),
    ({"tokens": 1}, "tokens is 1; it must be a whole number, 2 or more"),
    ({"config": lab.SMALL | {"vocab_size": 200_000}}, "the lab takes at most 50,000,000"),
])
def test_bad_arguments_of_one_process(arguments, message):
    with pytest.raises(ValueError, match=message):
        lab.mixed_precision_step(**arguments)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"world": 0}, "world is 0; it must be a whole number from 1 to 8"),
    ({"world": 4, "replicate": 3}, "replicate is 3; it must divide world, which is 4"),
    ({"recipe": "bf16-adam-two-grads"}, "FSDP2 keeps gradients in the weights' type"),
    ({"recipe": "inference"}, "it trains nothing"),
    ({"config": lab.SMALL | {"model_type": "mamba"}}, "mamba"),
    ({"recipe": replace(recipes.get("bf16-adam"), optimizer=4)}, "several processes measure the recipes that have a"),
    ({"timeout": 0}, "timeout is 0; it must be a number above 0"),
])
def test_bad_arguments_of_several_processes(arguments, message):
    with pytest.raises(ValueError, match=message):
        lab.fsdp_step(**arguments)


def test_unknown_job_argument_is_refused():
    with pytest.raises(ValueError, match="a job's argument is 'gpus'; it must be one of world"):
        lab.fsdp_steps([{"gpus": 2}])


def test_missing_bitsandbytes_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(ImportError, match="pip install bitsandbytes"):
        lab.mixed_precision_step(ODD, recipe="adam-8bit")


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{process}/stat") if os.path.exists(f"/proc/{process}/stat") else open(os.devnull) as status:
        return ") Z" not in status.read()  # ended, though nobody has asked how yet


def test_timeout_ends_children_of_children(tmp_path):
    note = tmp_path / "process"
    with pytest.raises(TimeoutError, match=r"timeout is 2 seconds; .* were stopped"):
        lab._run(["sh", "-c", f"sleep 600 & echo $! > {note}; wait"], 2)
    child = int(note.read_text())
    for _ in range(100):
        if not alive(child):
            break
        time.sleep(0.05)
    assert not alive(child)


def test_failure_brings_the_last_words():
    with pytest.raises(RuntimeError, match="no such luck"):
        lab._run([sys.executable, "-c", "raise SystemExit('no such luck')"], 60)
