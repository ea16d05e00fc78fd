"""What the tables of quoted numbers share: memtier's answers in the words of the chapters."""

from functools import partial
from pathlib import Path

from memtier import checkpoints, evidence, models, optimizer_state, own_ladder, tiers, units

ROOT = Path(__file__).resolve().parents[2]


def size(nbytes, digits=3):
    return units.format_bytes(nbytes, digits=digits)


def state(model=70e9, recipe="bf16-adam"):
    return optimizer_state.inventory(model, recipe=recipe)


def kept(model=70e9):
    """Bytes of master weights and moments."""
    return state(model)["master weights"] + state(model)["optimizer"]


def on_each(gpus, stage, model=70e9, **other):
    return optimizer_state.per_gpu(model, recipe="bf16-adam", gpus=gpus, stage=stage, **other)


def fact(name):
    return evidence.get(name).quantity


def written(rate, writers=1):
    return checkpoints.write_time(checkpoints.inventory(70e9, recipe="bf16-adam").total, to=rate, writers=writers)


def needed(model, **other):
    return optimizer_state.gpus_needed(model, **{"recipe": "bf16-adam", "stage": 3, "limit": 100e9} | other)


def offload(link="pcie5-x16", update="cpu"):
    return optimizer_state.offload(70e9, recipe="bf16-adam", link=link, memory="grace-lpddr5x", update=update)


running = partial(on_each, 512, 3, "llama-3.1-70b", gathered=True)
card = partial(fact, "hbm.h100-sxm.capacity")
EIGHT, SEVENTY = "llama-3.1-8b", "llama-3.1-70b"
KV_TOKEN = 2 * 2 * models.get(EIGHT).layers * models.get(EIGHT).kv_heads * models.get(EIGHT).head_dim  # bytes, bf16
drive = partial(tiers.get, "micron-9550")
s3 = partial(tiers.get, "s3-connection")
rate, time, moved = units.format_rate, units.format_time, tiers.transfer_time
network = partial(units.parse_rate, "100 Gb/s")


def small_read(nbytes):
    return tiers.small_read_bandwidth(nbytes, drive().latency, drive().read)


def h100_ridge():
    return tiers.ridge_point(tiers.accelerator("h100-sxm").flops, tiers.get("h100-hbm").read)


def measured(in_flight):
    """The small reads of the measured ladder that chapter 1 prints."""
    ladder = own_ladder.read(ROOT / "book/assets/ladders/two-core-cloud-machine.json")
    return next(each for each in ladder.measured if each.what == "small read" and each.in_flight == in_flight)
