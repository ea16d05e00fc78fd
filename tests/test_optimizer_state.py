"""The inventory and its shares. Equality with torch's bytes is in test_lab_optimizer_state.py."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import count_recipe_names, gpu_counts, parameter_counts, recipe_names, small_models, stages

from memtier import models, optimizer_state, recipes, tiers
from memtier.layout import Layout

SEVENTY = models.get("llama-3.1-70b")


@given(parameter_counts, count_recipe_names)
def test_the_formula(parameters, name):
    recipe = recipes.get(name)
    total = optimizer_state.inventory(parameters, recipe=name, activations=5, other=7).total
    assert total == parameters * (recipe.weights + recipe.gradients + recipe.master + recipe.optimizer) + 5 + 7


@settings(deadline=None, max_examples=60)
@given(small_models(), recipe_names)
def test_by_tensor_and_by_count_agree_where_both_can_answer(model, name):
    by_tensor = optimizer_state.inventory(model, recipe=name)
    if recipes.get(name).needs_shapes:
        with pytest.raises(ValueError, match=f"recipe is {name!r}"):
            optimizer_state.inventory(model.parameters, recipe=name)
    else:
        counters = by_tensor.get("step counters", 0)
        assert counters == (4 * len(model.tensors()) if recipes.get(name).counters else 0)
        assert by_tensor.total - counters == optimizer_state.inventory(model.parameters, recipe=name).total


@settings(deadline=None, max_examples=60)
@given(small_models(), st.sampled_from(["bf16-adam", "fsdp2-adam", "lion", "sgd-momentum", "lora"]),
       st.integers(1, 40), stages)
def test_sharding_never_loses_a_byte(model, recipe, gpus, stage):
    whole = optimizer_state.inventory(model, recipe=recipe)
    ranks = [optimizer_state.per_gpu(model, recipe=recipe, gpus=gpus, stage=stage, rank=rank) for rank in range(gpus)]
    sharded = Layout(shard=gpus, zero=stage).sharded
    for name, nbytes in whole.items():
        together = sum(rank.get(name, 0) for rank in ranks)
        assert together == (nbytes if name in sharded else gpus * nbytes)


@settings(deadline=None, max_examples=60)
@given(small_models(), recipe_names, gpu_counts, stages)
def test_more_gpus_never_need_more_on_the_fullest_rank(model, recipe, gpus, stage):
    fewer = optimizer_state.per_gpu(model, recipe=recipe, gpus=gpus, stage=stage)
    more = optimizer_state.per_gpu(model, recipe=recipe, gpus=gpus + 1, stage=stage)
    # 8-bit Adam keeps shards below 4,096 elements in fp32, as bitsandbytes does: 4,095 take 8 * 4,095 bytes of moments
    # and 4,096 take 2 * 4,096 and 16 blocks' two scales of 4 bytes, 24,440 fewer. That much a tensor can grow.
    growth = 24_440 * len(model.tensors()) if recipe == "adam-8bit" else 0
    assert more.total <= fewer.total + growth
    padded = optimizer_state.per_gpu(model, recipe=recipe, gpus=gpus, stage=stage, padded=True)
    assert padded.total >= fewer.total
    if recipe != "adam-8bit":
        assert padded == fewer  # the fullest rank has no padding


@settings(deadline=None, max_examples=60)
@given(small_models(), recipe_names, st.integers(1, 12), stages, st.booleans())
def test_the_fullest_rank_is_the_largest_of_them_all(model, recipe, gpus, stage, padded):
    asked = {"recipe": recipe, "gpus": gpus, "stage": stage, "padded": padded}
    fullest = optimizer_state.per_gpu(model, **asked)
    ranks = [optimizer_state.per_gpu(model, **asked, rank=rank) for rank in range(gpus)]
    assert fullest.total == max(rank.total for rank in ranks)
    assert fullest in ranks


# A Llama whose matrices of 1,000 columns are cut into shards around 4,096 elements.
BLOCKY = models.from_config({"model_type": "llama", "vocab_size": 99, "hidden_size": 1000, "intermediate_size": 9,
                             "num_hidden_layers": 1, "num_attention_heads": 10, "num_key_value_heads": 10})


def test_under_8_bit_adam_another_rank_than_the_first_can_be_the_fullest():
    # Of 9 rows of 1,000 in gate_proj and up_proj rank 0 holds 5, 5,000 elements in 8 bits: 10,000 bytes and 20 blocks'
    # two scales, 160. Rank 1 holds 4: 32,000 bytes in fp32, 21,840 more. Of 99 rows in embedding and head it holds 49
    # and not 50: 8 bytes of weights, gradients and master weights less for each of 1,000 elements, and 2 of moments.
    asked = {"recipe": "adam-8bit", "gpus": 2, "stage": 3}
    first, second = (optimizer_state.per_gpu(BLOCKY, **asked, rank=rank) for rank in (0, 1))
    moments = 2 * (32_000 - 10_160) - 2 * (2 * 50_000 + 8 * 196 - 2 * 49_000 - 8 * 192)
    assert second.total - first.total == moments - 8 * 1000 * (2 * 1 + 2 * 1) > 0
    assert optimizer_state.per_gpu(BLOCKY, **asked) == second


def test_under_8_bit_adam_more_gpus_can_need_more_on_the_fullest():
    # q, k, v, o are 1,000 × 1,000. Over 249 GPUs rank 0 holds 5 rows of each: 8 * 5,000 bytes, and 10,160 of moments.
    # Over 250 it holds 4: 8 * 4,000, and 32,000 of moments in fp32. down_proj, 1,000 × 9, and three norms of 1,000
    # lose a row as well, at 16 bytes an element.
    fewer, more = (optimizer_state.per_gpu(BLOCKY, recipe="adam-8bit", gpus=gpus, stage=3).total for gpus in (249, 250))
    assert more - fewer == 4 * (32_000 + 32_000 - 40_000 - 10_160) - 16 * (9 + 3) == 55_168
    # So what is enough need not be the smallest number that is: 249 are, 250 are not.
    enough = optimizer_state.gpus_needed(BLOCKY, recipe="adam-8bit", limit=fewer)
    around = [optimizer_state.per_gpu(BLOCKY, recipe="adam-8bit", gpus=enough - one, stage=3).total for one in (0, 1)]
    assert around[0] <= fewer < around[1]


@settings(deadline=None, max_examples=60)
@given(small_models(), recipe_names, gpu_counts, stages)
def test_nothing_needs_less_than_one_row_of_each_tensor(model, recipe, gpus, stage):
    # so a limit below it can be refused
    least = optimizer_state.per_gpu(model, recipe=recipe, gpus=2**60, stage=stage)
    assert least.total <= optimizer_state.per_gpu(model, recipe=recipe, gpus=gpus, stage=stage).total


@settings(deadline=None, max_examples=40)
@given(small_models(), st.integers(2, 40))
def test_the_average_lies_below_the_fullest(model, gpus):
    fullest = optimizer_state.per_gpu(model, recipe="bf16-adam", gpus=gpus, stage=3)
    average = optimizer_state.per_gpu(model, recipe="bf16-adam", gpus=gpus, stage=3, rank="average")
    assert average.total <= fullest.total * (1 + 1e-12)


@pytest.mark.parametrize(("gpus", "row"), [
    (8, (1120, 385, 262.5, 140)), (64, (1120, 293.125, 155.3125, 17.5)), (512, (1120, 281.640625, 141.9140625, 2.1875)),
])
def test_the_table_for_seventy_billion_in_gb(gpus, row):
    # P(4) + 12P/N, P(2) + 14P/N and 16P/N with P = 70e9: arXiv:1910.02054, section 5
    assert tuple(optimizer_state.per_gpu(70e9, recipe="bf16-adam", gpus=gpus, stage=stage).total / 1e9
                 for stage in range(4)) == row


def test_zero_table_1():
    # Published in arXiv:1910.02054, Table 1, in decimal GB and with the paper's rounding.
    published = {
        7.5e9: {1: [52.5, 35.6, 31.4, 30.4, 30.1], 2: [41.3, 21.6, 16.6, 15.4, 15.1], 3: [30, 7.5, 1.88, 0.47, 0.12]},
        128e9: {1: [896, 608, 536, 518, 513], 2: [704, 368, 284, 263, 257], 3: [512, 128, 32, 8, 2]},
        1e12: {1: [7000, 4750, 4187, 4046, 4011], 2: [5500, 2875, 2218, 2054, 2013], 3: [4000, 1000, 250, 62.5, 15.6]},
    }
    for parameters, by_stage in published.items():
        for stage, row in by_stage.items():
            for gpus, gigabytes in zip((4, 16, 64, 256, 1024), row, strict=True):
                ours = optimizer_state.per_gpu(parameters, recipe="bf16-adam", gpus=gpus, stage=stage).total / 1e9
                # The paper prints 0.12 and 62.5 alike: half a unit of its last digit, or one where it cuts digits off.
                digits = len(str(gigabytes).partition(".")[2])
                assert ours == pytest.approx(gigabytes, abs=10**-digits), (parameters, stage, gpus)


@pytest.mark.parametrize(("parameters", "gpus", "gibibytes"), [(2851e6, 8, 15.93), (2851e6, 1, 53.10)])
def test_deepspeeds_estimate_for_zero_2(parameters, gpus, gibibytes):
    """DeepSpeed's documentation (code-docs/source/memory.rst @0cca539) prints "GB" that are GiB, 15.93 for 2,851M over
    8 GPUs, from 4P + 16P/N: whole fp16 weights and gradients, and 16 bytes divided. ZeRO-2 divides the gradients
    (arXiv:1910.02054), so the state is 2P + 14P/N: the estimate has a whole copy of them, and 2P/N, on top.
    """
    estimate = 4 * parameters + 16 * parameters / gpus
    assert estimate / 2**30 == pytest.approx(gibibytes, abs=0.005)
    ours = optimizer_state.per_gpu(parameters, recipe="bf16-adam", gpus=gpus, stage=2).total
    assert estimate - ours == pytest.approx(2 * parameters + 2 * parameters / gpus)


def test_deepspeeds_estimate_for_zero_3():
    """The same document: 4L + 18P/N, L the largest layer whole in fp16 with its gradient; 6.10 "GB" for 2,851M and 32M
    over 8 GPUs are GiB. 18 bytes a parameter are bf16-adam-fp32-grads, divided by all.
    """
    ours = optimizer_state.per_gpu(2851e6, recipe="bf16-adam-fp32-grads", gpus=8, stage=3).total
    assert ours == 18 * 2851e6 / 8
    assert (4 * 32e6 + ours) / 2**30 == pytest.approx(6.10, abs=0.01)
    # t5-large over 4 GPUs, in MiB this time, which the document calls MB: 3,291
    ours = optimizer_state.per_gpu(737.67e6, recipe="bf16-adam-fp32-grads", gpus=4, stage=3).total
    assert (4 * 32.90e6 + ours) / 2**20 == pytest.approx(3291, abs=1)


def test_megatrons_bytes_a_parameter():
    """NVIDIA/Megatron-LM, theoretical_memory_usage.py @00caa53: 18 bytes a parameter, or 6 + 12/DP with a distributed
    optimizer: bf16 weights and fp32 gradients whole on every GPU, which is ZeRO-1."""
    for gpus in (1, 8, 64):
        stages = {stage: optimizer_state.per_gpu(1e9, recipe="bf16-adam-fp32-grads", gpus=gpus, stage=stage).total
                  for stage in (0, 1)}
        assert stages == {0: 18e9, 1: pytest.approx(6e9 + 12e9 / gpus)}


def test_seventy_billion_does_not_fit_a_node():
    state = optimizer_state.inventory(70e9, recipe="bf16-adam").total
    assert state == 1.12e12
    assert state / optimizer_state.inventory(70e9, recipe="inference").total == 8
    assert state > 8 * 80e9


def test_running_a_layer_gathers_the_root_and_that_layer():
    resting = optimizer_state.per_gpu(SEVENTY, recipe="bf16-adam", gpus=512, stage=3)
    running = optimizer_state.per_gpu(SEVENTY, recipe="bf16-adam", gpus=512, stage=3, gathered=True)
    # Embedding and head are 128,256 × 8,192 each, the final norm 8,192; a layer is q, k, v, o,
    # gate, up, down and two norms.
    assert running["gathered root"] == 2 * (2 * 128_256 * 8_192 + 8_192)
    layer = 8192 * (8192 + 1024 + 1024 + 8192) + 3 * 8192 * 28672 + 2 * 8192
    assert running["gathered layer"] == 2 * layer
    assert running.total == resting.total + running["gathered root"] + running["gathered layer"]
    assert round(running.total / 1e9, 1) == 8.1


def test_gathering_for_llama_8b_matches_the_measured_peak():
    # Measured with torch 2.13.0's FSDPMemTracker, 64 ranks: 2,101,354,496 B of root and 436,224,000 B of one layer.
    running = optimizer_state.per_gpu("llama-3.1-8b", recipe="fsdp2-adam", gpus=64, stage=3, gathered=True)
    assert (running["gathered root"], running["gathered layer"]) == (2_101_354_496, 436_224_000)
    assert running["step counters"] == 4 * 291


@pytest.mark.parametrize(("model", "gathered", "gpus"), [(405e9, False, 65), ("llama-3.1-405b", True, 77)])
def test_how_many_gpus_keep_405b_under_100_gb(model, gathered, gpus):
    assert optimizer_state.gpus_needed(model, recipe="bf16-adam", stage=3, limit=100e9, gathered=gathered) == gpus


@settings(deadline=None, max_examples=40)
@given(parameter_counts, st.floats(0.05, 3))
def test_gpus_needed_is_the_first_number_that_fits(parameters, portion):
    limit = 16 * parameters * portion
    gpus = optimizer_state.gpus_needed(parameters, recipe="bf16-adam", stage=3, limit=limit)
    assert optimizer_state.per_gpu(parameters, recipe="bf16-adam", gpus=gpus, stage=3).total <= limit
    if gpus > 1:
        assert optimizer_state.per_gpu(parameters, recipe="bf16-adam", gpus=gpus - 1, stage=3).total > limit


def test_no_number_of_gpus_is_enough_when_a_stage_leaves_too_much_whole():
    with pytest.raises(ValueError, match=r"limit is .*stage 1 280,000,000,\d+ bytes stay on every GPU"):
        optimizer_state.gpus_needed(70e9, recipe="bf16-adam", stage=1, limit=80e9)


def test_hybrid_sharding_divides_by_the_sharding_group_only():
    hybrid = optimizer_state.per_gpu(70e9, recipe="bf16-adam", layout=Layout(replicate=8, shard=64, zero=3))
    assert hybrid.total == 17.5e9


def test_averages_sweep_over_arrays():
    gpus = np.array([8, 64, 512])
    swept = optimizer_state.per_gpu(70e9, recipe="bf16-adam", gpus=gpus, stage=3).total
    assert swept.tolist() == [140e9, 17.5e9, 2.1875e9]


def test_offload_as_the_question_is_usually_put_and_as_it_is():
    by_gpu = optimizer_state.offload(70e9, recipe="bf16-adam", link=900e9, memory="grace-lpddr5x", update="gpu")
    assert by_gpu.up == by_gpu.down == 840e9
    assert by_gpu.up_seconds == pytest.approx(840 / 900)
    assert optimizer_state.offload(70e9, recipe="bf16-adam", link=64e9, memory="grace-lpddr5x",
                                   update="gpu").up_seconds == pytest.approx(840 / 64)
    by_cpu = optimizer_state.offload(70e9, recipe="bf16-adam", link="pcie5-x16", memory="grace-lpddr5x")
    assert (by_cpu.down, by_cpu.up) == (140e9, 140e9)
    assert by_cpu.down_seconds == pytest.approx(140 / 63)
    assert by_cpu.memory_bytes == 28 * 70e9
    assert by_cpu.update_seconds == pytest.approx(28 * 70 / 546)
    assert by_cpu.update_seconds > by_cpu.up_seconds
    assert not by_cpu.fits
    assert (by_cpu.needed, by_cpu.capacity) == (980e9, 512e9)


@given(st.floats(0, 1), st.integers(1, 64))
def test_overlap_hides_link_time_and_nothing_else(overlap, links):
    result = optimizer_state.offload(70e9, recipe="bf16-adam", link=64e9, memory="grace-lpddr5x", overlap=overlap,
                                     links=links, memories=links)
    assert result.exposed_seconds == pytest.approx((1 - overlap) * result.link_seconds + result.update_seconds)
    assert result.link_seconds == pytest.approx(280 / 64 / links)
    assert result.fits == (512e9 * links >= 980e9)


# Bytes a parameter by Adam's update (arXiv:1412.6980, algorithm 1), as the recipe stores each class. The CPU holds what
# the update reads: gradients, moments, and the weights it starts from, which are the master weights where there are
# such. It writes moments, weights it started from, and, where those are not the stored ones, the stored weights too.
CPU_UPDATE = {  # held and read, written, down, up
    "bf16-adam": (2 + 4 + 8, 4 + 8 + 2, 2, 2),
    "bf16-adam-fp32-grads": (4 + 4 + 8, 4 + 8 + 2, 4, 2),
    "bf16-adam-two-grads": (6 + 4 + 8, 4 + 8 + 2, 6, 2),
    "bf16-moments": (2 + 4 + 4, 4 + 4 + 2, 2, 2),
    "deepseek-v3": (4 + 4 + 4, 4 + 4 + 2, 4, 2),
    "sgd-momentum": (2 + 4 + 4, 4 + 4 + 2, 2, 2),
    "lion": (2 + 4 + 4, 4 + 4 + 2, 2, 2),
    "fp32-adam": (4 + 4 + 8, 4 + 8, 4, 4),
    "fsdp2-adam": (4 + 4 + 8, 4 + 8, 4, 4),
}


def test_every_recipe_that_a_count_can_answer_has_its_bytes_below():
    counted = {name for name in recipes.names() if recipes.get(name).trains and not recipes.get(name).needs_shapes}
    assert set(CPU_UPDATE) == counted


@pytest.mark.parametrize("name", CPU_UPDATE)
def test_what_the_update_holds_reads_and_writes(name):
    held, written, down, up = CPU_UPDATE[name]
    moved = optimizer_state.offload(1e9, recipe=name, link=1e9, memory="micron-9550")
    drive = tiers.get("micron-9550")
    assert (moved.needed, moved.memory_bytes) == (held * 1e9, (held + written) * 1e9)
    assert (moved.down, moved.up) == (down * 1e9, up * 1e9)
    assert moved.update_seconds == pytest.approx(held * 1e9 / drive.read + written * 1e9 / drive.write, rel=1e-3)
    recipe = recipes.get(name)
    by_gpu = optimizer_state.offload(1e9, recipe=name, link=1e9, memory="micron-9550", update="gpu")
    kept = (recipe.master + recipe.optimizer) * 1e9  # without master weights the GPU has the weights it starts from
    assert by_gpu.needed == by_gpu.up == by_gpu.down == kept
    assert by_gpu.memory_bytes == 2 * kept


@pytest.mark.parametrize("name", CPU_UPDATE)
def test_the_update_reads_the_weights_it_starts_from(name):
    recipe = recipes.get(name)
    read = optimizer_state.traffic(1e9, recipe=name).read
    passes = 2 * recipe.weights  # forward and backward
    assert read["weights"] == (passes if recipe.master else passes + recipe.weights) * 1e9


def test_adapters_without_master_weights_are_what_the_cpu_starts_from():
    bare = recipes.Recipe("bare-lora", "LoRA without master weights", 2, 2, 0, 8, "", adapters=recipes.LoRA())
    adapters = optimizer_state.inventory("llama-3.1-8b", recipe=bare)["gradients"]  # bf16, as their weights are
    moved = optimizer_state.offload("llama-3.1-8b", recipe=bare, link="pcie5-x16", memory="grace-lpddr5x")
    assert moved.needed == (2 + 2 + 8) / 2 * adapters
    step = optimizer_state.traffic("llama-3.1-8b", recipe=bare)
    base = models.get("llama-3.1-8b").parameters
    assert step.read["weights"] == 2 * (2 * base + adapters) + adapters


def test_in_each_direction_the_slower_of_link_and_memory_sets_the_pace():
    # 1,024 links of 450 GB/s into one Grace: 840 GB at its 546 GB/s, read and then written
    many = optimizer_state.offload(70e9, recipe="bf16-adam", link="nvlink-c2c", memory="grace-lpddr5x", update="gpu",
                                   links=1024)
    assert many.link_seconds == pytest.approx(2 * 840 / 450 / 1024)
    assert many.memory_seconds == many.exposed_seconds == pytest.approx(2 * 840 / 546, rel=1e-3)
    assert many.memory_bytes == 2 * 840e9
    # Over PCIe 5 the link is slower: 63 GB/s
    one = optimizer_state.offload(70e9, recipe="bf16-adam", link="pcie5-x16", memory="grace-lpddr5x", update="gpu")
    assert one.exposed_seconds == one.link_seconds == pytest.approx(2 * 840 / 63)
    assert one.memory_seconds == many.memory_seconds
    # and with the update on the CPU gradients land at the memory's rate, weights leave at it
    cpu = optimizer_state.offload(70e9, recipe="bf16-adam", link="nvlink-c2c", memory="grace-lpddr5x", links=1024)
    assert cpu.exposed_seconds == pytest.approx((140 + 28 * 70 + 140) / 546, rel=1e-3)


def test_a_drive_is_written_at_its_write_rate():
    # Micron 9550 MAX: 14 GB/s read, 10 GB/s written. The update reads and writes 14 bytes a parameter each.
    moved = optimizer_state.offload(70e9, recipe="bf16-adam", link="pcie5-x16", memory="micron-9550")
    assert moved.update_seconds == pytest.approx(980 / 14 + 980 / 10, rel=1e-4)
    by_gpu = optimizer_state.offload(70e9, recipe="bf16-adam", link="pcie5-x16", memory="micron-9550", update="gpu")
    assert by_gpu.exposed_seconds == pytest.approx(840 / 14 + 840 / 10, rel=1e-4)


@given(st.sampled_from(["bf16-adam", "fp32-adam", "lion"]), st.sampled_from(["cpu", "gpu"]), st.floats(0, 1),
       st.integers(1, 2000), st.integers(1, 300), st.sampled_from(["grace-lpddr5x", "micron-9550"]))
def test_no_step_waits_less_than_its_links_and_memories_take(recipe, update, overlap, links, memories, memory):
    asked = {"recipe": recipe, "link": "pcie5-x16", "memory": memory, "update": update}
    moved = optimizer_state.offload(70e9, **asked, overlap=overlap, links=links, memories=memories)
    slow = 1 - overlap
    assert moved.exposed_seconds >= slow * moved.link_seconds - 1e-9
    assert moved.exposed_seconds >= slow * (moved.landing_seconds + moved.leaving_seconds) - 1e-9
    assert moved.exposed_seconds >= moved.update_seconds
    more = optimizer_state.offload(70e9, **asked, overlap=overlap, links=links + 1, memories=memories)
    assert more.exposed_seconds <= moved.exposed_seconds * (1 + 1e-9)


def test_traffic_of_one_step():
    step = optimizer_state.traffic(70e9, recipe="bf16-adam", micro_batches=4)
    assert step.written.to_dict()["nbytes"] == {
        "weights": 140e9, "gradients": 4 * 140e9, "master weights": 280e9, "optimizer": 560e9}
    assert step.read["weights"] == 8 * 140e9
    assert step.read["gradients"] == 4 * 140e9  # three additions and the update


def test_a_frozen_base_is_never_written_and_never_crosses():
    state = optimizer_state.inventory("llama-3.1-8b", recipe="lora")
    adapters = state["gradients"]  # bf16 gradients of the adapters, as many bytes as their bf16 weights
    step = optimizer_state.traffic("llama-3.1-8b", recipe="lora")
    assert step.written["weights"] == adapters < state["weights"]
    assert step.read["weights"] == 2 * state["weights"]
    moved = optimizer_state.offload("llama-3.1-8b", recipe="lora", link="pcie5-x16", memory="grace-lpddr5x")
    assert moved.up == moved.down == adapters
    assert optimizer_state.traffic(8e9, recipe="inference").written.total == 0


@pytest.mark.parametrize(("arguments", "message"), [
    ({"gpus": 0, "stage": 3}, "gpus is 0; it must be a whole number, 1 or more"),
    ({"gpus": -8, "stage": 3}, "gpus is -8"),
    ({"gpus": 8.0, "stage": 3}, "gpus is 8.0"),
    ({"gpus": 8, "stage": 4}, "stage is 4; it must be one of 0, 1, 2, 3"),
    ({"gpus": 8}, "give both, or a layout"),
    ({"gpus": 8, "stage": 3, "layout": Layout()}, "give a layout, or gpus and a stage"),
    ({"layout": "zero"}, "layout is 'zero'; it must be a Layout"),
    ({"layout": Layout(tensor=8)}, "layout has tensor=8; it must be 1"),
    ({"layout": Layout(pipeline=4)}, "layout has pipeline=4; it must be 1"),
    ({"gpus": 8, "stage": 3, "rank": 2}, "rank is 2; it must be one of max, average"),
    ({"gpus": 8, "stage": 3, "gathered": True}, "gathered is True; .* not known .*, so choose a model"),
    ({"gpus": 8, "stage": 3, "padded": True}, "padded is True; .* choose a model, by a known name or a config.json"),
    ({"gpus": 8, "stage": 3, "padded": "no"}, "padded is 'no'; it must be True or False"),
    ({"gpus": 8, "stage": 3, "gathered": "no"}, "gathered is 'no'; it must be True or False"),
    ({"gpus": 8, "stage": 3, "gathered": 0}, "gathered is 0; it must be True or False"),
])
def test_bad_arguments_of_per_gpu(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimizer_state.per_gpu(70e9, recipe="bf16-adam", **arguments)


@pytest.mark.parametrize("recipe", [name for name in recipes.names() if recipes.get(name).needs_shapes])
def test_a_count_where_shapes_are_needed_is_told_to_choose_a_model(recipe):
    for call, more in ((optimizer_state.inventory, {}), (optimizer_state.per_gpu, {"gpus": 8, "stage": 3})):
        with pytest.raises(ValueError, match=f"recipe is '{recipe}'; .* choose a model: a known name or a config.json"):
            call(70e9, recipe=recipe, **more)


@pytest.mark.parametrize("model", [0, -1, "no-such-model", None, float("nan"), True])
def test_bad_models_are_named(model):
    with pytest.raises(ValueError, match=r"model|no-such-model"):
        optimizer_state.inventory(model, recipe="bf16-adam")


@pytest.mark.parametrize(("call", "message"), [
    (lambda: optimizer_state.per_gpu(SEVENTY, recipe="bf16-adam", gpus=8, stage=3, rank=8), "rank is 8.* from 0 to 7"),
    (lambda: optimizer_state.per_gpu(SEVENTY, recipe="bf16-adam", gpus=8, stage=2, gathered=True), "only stage 3"),
    (lambda: optimizer_state.gpus_needed(70e9, recipe="bf16-adam", limit=0), "limit is 0"),
    (lambda: optimizer_state.inventory(70e9, recipe="bf16-adam", activations=-1), "activations is -1"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=0, memory="grace-lpddr5x"), "link is 0"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=1e9, memory="grace-lpddr5x", overlap=2), "overlap"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=1e9, memory="grace-lpddr5x", update="tpu"),
     "update is 'tpu'"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=1e9, memory=None), "memory is None; .* known tier"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=1e9, memory="sandisk-hbf", memories=2),
     "memory is 'sandisk-hbf'; the ledger has no write rate for it, so choose another tier"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=1e9, memory="h100-node-dram"),
     "memory is 'h100-node-dram'; the ledger has no read rate for it"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=1e9, memory="xeon-sapphire-rapids-ddr5"),
     "memory is 'xeon-sapphire-rapids-ddr5'; the ledger has no capacity for it"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link="sata", memory="grace-lpddr5x"), "link is 'sata'"),
    (lambda: optimizer_state.offload(70e9, recipe="bf16-adam", link=True, memory="grace-lpddr5x"), "link is True"),
    (lambda: optimizer_state.offload(70e9, recipe="inference", link=1e9, memory="grace-lpddr5x"),
     "recipe is 'inference'; it trains nothing, so there is no optimizer to offload: choose a recipe that trains"),
    (lambda: optimizer_state.traffic(70e9, recipe="bf16-adam", micro_batches=0), "micro_batches is 0"),
])
def test_other_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
