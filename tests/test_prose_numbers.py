"""Numbers quoted in prose are memtier's own.

A chapter's cells compute its numbers; its sentences repeat some of them. A sentence cannot be run, so here each quoted
number stands beside the call that gives it: should the two part, or a sentence quote a number that is neither here nor
among the chapter's given ones, a test fails.

To add a chapter: a table of quoted text → call in QUOTED, and in GIVEN what is not computed (a size from which an
example starts, say), both as they stand in the prose. Quote more than the number where it could stand by chance.
"""

import json
import math
import re
from functools import partial
from pathlib import Path

import pytest

from memtier import checkpoints, evidence, layout, models, optimizer_state, own_ladder, tiers, units

ROOT = Path(__file__).resolve().parents[1]

# A number with a unit of size, rate, time or share: "1.12 TB", "13.1 s", "27 %", "900 GB/s".
QUANTITY = re.compile(
    r"(?<![\w.,/])\d[\d,]*(?:\.\d+)?(?:e\d+)?\s?"
    r"(?:[KMGTPE]i?B/s|[KMGTPE]i?B|%|ns|µs|ms|s|min|h|days)(?![\w/])"
)


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


QUOTED = {
    "book/00-where-ai-data-lives.ipynb": {
        # the guess
        "is 140 GB. Suppose": lambda: f"is {size(state(recipe='inference').total)}. Suppose",
        "takes 42 milliseconds": lambda: f"takes {1e3 * tiers.get('h100-hbm').read_time(140e9):.0f} milliseconds",
        "Twenty-seven minutes": lambda: {27: "Twenty-seven minutes"}[
            round(s3().read_time(140e9) / 60)],
        "room for 80 GB": lambda: f"room for {size(card())}",
        "12.5 GB a second": lambda: f"{size(tiers.get('s3').read)} a second",
        # the ladder, and bytes wanted a second
        "Its 2 TB/s are for all": lambda: f"Its {rate(tiers.get('tectonic').read)} are for all",
        "Weights want 803 GB/s": lambda: f"Weights want {rate(50 * state(EIGHT, 'inference').total)}",
        "PCIe 5 carries 63 GB/s": lambda: f"PCIe 5 carries {rate(tiers.link('pcie5-x16').rate)}",
        "not 50 tokens a second but 4": lambda: "not 50 tokens a second but {:.0f}".format(
            tiers.link("pcie5-x16").rate / state(EIGHT, "inference").total),
        "flows at 32 KB/s": lambda: f"flows at {rate(4 * 80_000 / 10)}",
        # worked examples
        "bytes: 2 GB": lambda: f"bytes: {size(state(1e9, 'inference').total)}",
        "bytes, 2 TB": lambda: f"bytes, {size(2e12)}",
        "bytes a second, 2 MB/s": lambda: f"bytes a second, {rate(2 * 1e6)}",
        "bytes, 1 GB. Free are 16 - 2 = 14 GB": lambda:
            f"bytes, {size(100e3 * 10_000)}. Free are 16 - 2 = {size(16e9 - 2e9)}",
        # beliefs
        "1,120 GB, eight times": lambda: f"{state().total / 1e9:,.0f} GB, eight times" * (state().total == 8 * 140e9),
        "the answer was 1.75 seconds": lambda:
            f"the answer was {moved(140e9, s3().read, s3().latency, 1000):.2f} seconds",
        "140 GB are 130.4 GiB": lambda: f"140 GB are {units.format_bytes(140e9, binary=True, digits=4)}",
        "makes 7 % disappear": lambda: f"makes {100 * (1 - units.GB / units.GiB):.0f} % disappear",
        "10 % for terabytes": lambda: f"{100 * (units.TiB / units.TB - 1):.0f} % for terabytes",
        "80 GB are 74.5 GiB": lambda: f"80 GB are {units.format_bytes(80e9, binary=True)}",
        # try it, check yourself
        "The CXL card: 0.44 s": lambda: f"The CXL card: {tiers.get('cxl-pcie5').read_time(16e9):.2f} s",
        "One NVMe drive takes 1.1 s": lambda: f"One NVMe drive takes {tiers.get('micron-9550').read_time(16e9):.1f} s",
        "14 GB/s over 87.5 MB/s: 160": lambda: "{} over {}: {}".format(
            *(rate(tiers.get(name).read) for name in ("micron-9550", "s3-connection")),
            tiers.streams_needed(tiers.get("micron-9550").read, s3().read)),
        "after 0.15 s": lambda: f"after {s3().latency:g} s",
        "64 times more, 3.4 TB/s": lambda: f"64 times more, {rate(64 * KV_TOKEN * 8192 * 50, 2)}",
        "weights at the 15th user": lambda:
            f"weights at the {math.ceil(state(EIGHT, 'inference').total / (KV_TOKEN * 8192))}th user",
        "not once a token: 19 GB/s": lambda: f"not once a token: {rate(2 * kept(EIGHT) / 10, 2)}",
    },
    "book/01-the-tiers.ipynb": {
        # small reads
        "sold as reading 14 GB/s": lambda: f"sold as reading {rate(drive().read)}",
        "four times the old one": lambda: {4: "four times the old one"}[drive().read / tiers.get("micron-9200").read],
        "68 MB/s: 206 times less": lambda:
            f"{rate(small_read(4096), 2)}: {drive().read / small_read(4096):.0f} times less",
        "with 206 of the small reads": lambda:
            f"with {tiers.in_flight_needed(4096, drive().latency, drive().read)} of the small reads",
        "10 µs of transfer: 20 µs": lambda: f"{time(100e3 / 10e9)} of transfer: {time(moved(100e3, 10e9, 10e-6))}",
        "the rate is 5 GB/s": lambda:
            f"the rate is {rate(100e3 / moved(100e3, 10e9, 10e-6))}",
        "10 + 1,000 µs": lambda: f"10 + {10e6 / 10e9 * 1e6:,.0f} µs",
        "takes 10.1 µs, nearly all of it waiting: 99 MB/s": lambda:
            f"takes {time(moved(1e3, 10e9, 10e-6))}, nearly all of it waiting: "
            f"{rate(1e3 / moved(1e3, 10e9, 10e-6), 2)}",
        "2 ms, so 500 MB/s": lambda: f"{time(moved(1e6, 1e9, 1e-3))}, so {rate(1e6 / moved(1e6, 1e9, 1e-3))}",
        "that is 13.5 GB/s": lambda: f"that is {rate(4096 * fact('nvme.micron-9550.read-iops'))}",
        "63 GB/s over 87.5 MB/s each: 720": lambda: "{} over {} each: {}".format(
            rate(tiers.link("pcie5-x16").rate), rate(s3().read),
            tiers.streams_needed(tiers.link("pcie5-x16").rate, s3().read)),
        "large against 13 MB": lambda:
            f"large against {size(s3().latency * s3().read, 2)}",
        # the rungs
        "latency of a write, 15 µs": lambda: f"latency of a write, {time(drive().write_latency)}",
        "promises in 20 days": lambda: f"promises in {drive().endurance / drive().write / 86400:.0f} days",
        "would hold ten times as much": lambda: {10: "would hold ten times as much"}[
            int(fact("hbf.sandisk.capacity") / fact("hbm.stack-hbm3e.capacity"))],
        "after a wait of 10 µs": lambda: f"after a wait of {time(tiers.get('sandisk-hbf').latency)}",
        "cost 38 minutes": lambda: f"cost {1e6 * fact('pfs.open-call.latency') / 60:.0f} minutes",
        "85 to 90 MB/s, 87.5,": lambda: "{:g} to {:g} MB/s, {:g},".format(
            *(fact(f"object.s3.{name}") / 1e6 for name in ("connection-low", "connection-high", "connection"))),
        # links and units
        "quoted as 900 GB/s": lambda: f"quoted as {rate(fact('link.nvlink-c2c.both-directions'))}",
        "140 GB take 156 ms by the headline": lambda: "140 GB take {} by the headline".format(
            time(moved(140e9, fact("link.nvlink-c2c.both-directions")))),
        "five times as long": lambda: {5: "five times as long"}[round(
            fact("link.nvlink-c2c.both-directions") / fact("link.nvlink-c2c.host-to-device-while-both"))],
        "51 GB/s of 63 were": lambda: "{} of {:g} were".format(
            rate(fact("link.pcie5-x16.host-to-device")), fact("link.pcie5-x16.rate") / 1e9),
        "seen to get 15 GB/s": lambda: f"seen to get {rate(fact('link.pcie5-x16.kv-offload'))}",
        "400 Gb/s carries 50 GB/s": lambda: f"400 Gb/s carries {rate(units.parse_rate('400 Gb/s'))}",
        "80 GB are 74.5 GiB": lambda: f"80 GB are {units.format_bytes(80e9, binary=True)}",
        "differ by 7.4 %, and by 10 %": lambda:
            f"differ by {100 * (units.GiB / units.GB - 1):.1f} %, and by {100 * (units.TiB / units.TB - 1):.0f} %",
        "80 GB from one and 80 GiB from another": lambda: "{} from one and {} from another".format(
            *(evidence.get(f"hbm.h100-sxm.{name}").amount for name in ("capacity", "capacity-paper"))),
        "12.5 GB/s: 11.2 s": lambda: f"{rate(network())}: {time(moved(140e9, network()))}",
        "would have been 1.4 s": lambda: f"would have been {time(140e9 / 100e9)}",
        # compute and prices
        "An H100 wants 295 FLOPs": lambda: f"An H100 wants {h100_ridge():.0f} FLOPs",
        "idle more than 99 % of the time": lambda:
            f"idle more than {math.floor(100 - 100 / h100_ridge())} % of the time",
        "989 TFLOP/s, and the best": lambda: f"{tiers.accelerator('h100-sxm').flops / 1e12:g} TFLOP/s, and the best",
        "from 4 to 14 dollars": lambda: "from {:.0f} to {:.0f} dollars".format(
            *(1e9 * fact(f"price.rdimm-64gb.memory-{when}") for when in ("2025-q3", "2026-q1"))),
        "from 10 to 36 cents": lambda: "from {:.0f} to {:.0f} cents".format(
            *(1e11 * fact(f"price.ssd-30tb.flash-{when}") for when in ("2025-q2", "2026-q1"))),
        "costs fourteen times": lambda: {14: "costs fourteen times"}[round(
            tiers.price(1e12, "fsx-lustre") / tiers.price(1e12, "micron-9550"))],
        "prints 3 dollars": lambda: f"prints {1e9 * fact('price.textbook.dram'):.0f} dollars",
        "gave 89 % of its specified bandwidth": lambda: "gave {:.0f} % of its specified bandwidth".format(
            100 * fact("hbm.h100-sxm.stream") / fact("hbm.h100-sxm.bandwidth")),
        "an MI300X 74 to 77 %": lambda: "an MI300X {:.0f} to {:.0f} %".format(
            *(100 * fact(f"hbm.mi300x.{name}") / fact("hbm.mi300x.bandwidth") for name in ("stream", "stream-azure"))),
        # the file of a measured ladder
        "takes 64 µs for each and reaches 63.6 MB/s": lambda:
            f"takes {time(measured(1).latency, 2)} for each and reaches {rate(measured(1).bandwidth)}",
        "now takes 477 µs": lambda: f"now takes {time(measured(16).latency)}",
        "some 34,000 reads a second": lambda: f"some {measured(16).bandwidth / 4096 / 1e3:.0f},000 reads a second",
        # worked examples
        "100 + 1 = 101 µs": lambda: f"100 + 1 = {time(moved(10e3, 10e9, 100e-6))}",
        "= 99 MB/s, a hundredth": lambda:
            f"= {rate(tiers.small_read_bandwidth(10e3, 100e-6, 10e9), 2)}, a hundredth",
        "= 1 MB a single stream": lambda: f"= {size(100e-6 * 10e9)} a single stream",
        "2 s down and 2 s up: 4 s": lambda: "{0:g} s down and {0:g} s up: {1:g} s".format(
            moved(100e9, 50e9), 2 * moved(100e9, 50e9)),
        "each runs at 20 GB/s: 5 s": lambda: f"each runs at {rate(0.4 * 50e9)}: {moved(100e9, 0.4 * 50e9):g} s",
        "359 GB/s alone, 175 with": lambda: "{} alone, {:g} with".format(
            rate(fact("link.nvlink-c2c.host-to-device")),
            fact("link.nvlink-c2c.host-to-device-while-both") / 1e9),
        "60 s; with recomputation 80 s": lambda: "{:g} s; with recomputation {:g} s".format(
            *(tiers.flops(10e9, 1e6, what) / 1e15 for what in ("training", "training with full recomputation"))),
        # beliefs
        "For 840 GB of optimizer state that gives 0.93 s": lambda: f"For {size(kept())} of optimizer state that gives "
            f"{moved(kept(), fact('link.nvlink-c2c.both-directions')):.2f} s",
        "it is 1.87 s in one direction by the specification and 2.34 s as measured": lambda:
            "it is {:.2f} s in one direction by the specification and {:.2f} s as measured".format(
                *(moved(kept(), fact(f"link.nvlink-c2c.{name}")) for name in ("rate", "host-to-device"))),
        "= 1.33 times": lambda: "= {:.2f} times".format(
            tiers.flops(1, 1, "training with full recomputation") / tiers.flops(1, 1, "training")),
        # try it, check yourself
        "waits 150 ms": lambda: f"waits {time(s3().latency)}",
        "= 118 MB": lambda: f"= {size(9 * s3().latency * s3().read)}",
        "for the transfer: 87": lambda: f"for the transfer: {tiers.in_flight_needed(4096, 100e-6, 3.5e9, share=1)}",
        "from HBM is 2.39 times faster, computing 2.2 times": lambda:
            "from HBM is {:.2f} times faster, computing {:.1f} times".format(
                tiers.get("b200-hbm").read / tiers.get("h100-hbm").read,
                tiers.accelerator("b200").flops_measured / tiers.accelerator("h100-sxm").flops_measured),
        "gets 2.1 GB/s": lambda: f"gets {rate(small_read(150e3), 2)}",
        "it waits 60 µs for each 11 µs of transfer": lambda:
            f"it waits {time(drive().latency)} for each {time(150e3 / drive().read, 2)} of transfer",
        "16 GB over 2 TB/s is 8 ms": lambda: f"16 GB over 2 TB/s is {time(16e9 / 2e12)}",
    },
    "book/04-optimizer-state.ipynb": {
        # the hook, and sixteen bytes
        "fill 140 GB of their 160 GB":
            lambda: f"fill {size(state(recipe='inference').total)} of their {size(2 * card())}",
        "The state of training is 1.12 TB": lambda: f"The state of training is {size(state().total)}",
        "8 times the 140 GB of serving": lambda: f"{state().total / state()['weights']:g} times the 140 GB of serving",
        "1.75 times the 640 GB of the node":
            lambda: f"{state().total / (8 * card()):g} times the {size(8 * card())} of the node",
        "1 billion parameters take 16 GB": lambda: f"1 billion parameters take {size(state(1e9).total)}",
        # recipes
        "37 % and not 75 %": lambda: "{:.0%} and not {:.0%}".format(
            1 - state(EIGHT, "adam-8bit").total / state(EIGHT).total, 1 - 2 / 8).replace("%", " %"),
        "here 16.3 GB": lambda: f"here {size(state(EIGHT, 'lora').total)}",
        "234 GB": lambda: size(state(13e9, "bf16-adam-fp32-grads").total),
        "97.5 %": lambda: f"{100 * state(13e9, 'bf16-adam-fp32-grads').total / (3 * card()):.3g} %",
        # ZeRO
        "8 GPUs hold 385 GB each": lambda: f"8 GPUs hold {size(on_each(8, 1).total)} each",
        "512 GPUs hold 281.6 GB each": lambda: f"512 GPUs hold {size(on_each(512, 1).total, 4)} each",
        "64 times the GPUs bought 27 %": lambda:
            f"{512 // 8} times the GPUs bought {100 * (1 - on_each(512, 1).total / on_each(8, 1).total):.0f} %",
        "4P is 280 GB": lambda: f"4P is {size(on_each(2**60, 1).total)}",
        "it needs 2.19 GB": lambda: f"it needs {size(on_each(512, 3).total)}",
        "while a layer runs 8.1 GB": lambda: f"while a layer runs {size(running().total, 2)}",
        "1.7 GB for one layer": lambda: f"{size(running()['gathered layer'], 2)} for one layer",
        "4.2 GB": lambda: size(running()["gathered root"], 2),
        "40 GB of weights": lambda: f"{size(state(20e9)['weights'])} of weights",
        "14P = 280 GB": lambda: f"14P = {size(state(20e9).total - state(20e9)['weights'])}",
        "40 + 280/20 = 54 GB": lambda: f"40 + 280/20 = {size(on_each(20, 2, 20e9).total)}",
        # rows, and how many GPUs
        "1,808 of them": lambda: f"{10_000 - 8192:,} of them" if layout.rows(8192, 10_000, 8191) else "",
        "rank 0 still needs 90.6 GB": lambda: f"rank 0 still needs {size(on_each(64, 3, 'mixtral-8x7b').total)}",
        "the average says 11.7 GB":
            lambda: f"the average says {size(on_each(64, 3, 'mixtral-8x7b', rank='average').total)}",
        "6,480 GB, divided by 100 and rounded up, is 65":
            lambda: f"{state(405e9).total / 1e9:,.0f} GB, divided by 100 and rounded up, is {needed(405e9)}",
        "Rows make it 66": lambda: f"Rows make it {needed('llama-3.1-405b')}",
        "takes 77. All": lambda: f"takes {needed('llama-3.1-405b', gathered=True)}. All",
        "50 GB": lambda: size(card() - 30e9),
        "44 GB": lambda: size(50e9 - running()["gathered root"] - running()["gathered layer"], 2),
        "1,270 GB": lambda: f"{state(SEVENTY, 'bf16-adam-fp32-grads').total / 1e9:,.0f} GB",
        "29 GPUs": lambda: "{} GPUs".format(
            needed(SEVENTY, recipe="bf16-adam-fp32-grads", limit=50e9, gathered=True)),
        # checkpoints
        "One checkpoint of 70B is 0.98 TB":
            lambda: f"One checkpoint of 70B is {checkpoints.inventory(70e9, recipe='bf16-adam').total / 1e12:.2f} TB",
        "49 s": lambda: f"{written(20e9):.2g} s",
        "1.96 s": lambda: f"{written(500e9):.3g} s",
        "0.51 s": lambda: f"{written(30e9, 64):.2f} s",
        "15.3 GB": lambda: size(checkpoints.inventory(70e9, recipe="bf16-adam").total / 64),
        "62.7 TB": lambda: size(64 * checkpoints.inventory(70e9, recipe="bf16-adam").total),
        # offload
        "840 GB": lambda: size(kept()),
        "So 0.93 s against 13.1 s": lambda:
            f"So {tiers.transfer_time(kept(), 900e9):.2f} s against {tiers.transfer_time(kept(), 64e9):.1f} s",
        "900 GB/s": lambda: units.format_rate(fact("link.nvlink-c2c.both-directions")),
        "512 GB of memory": lambda: f"{size(offload().capacity)} of memory",
        "the gradients go down, 140 GB": lambda: f"the gradients go down, {size(offload().down)}",
        "the new weights come up, 140 GB": lambda: f"the new weights come up, {size(offload().up)}",
        "are 1.96 TB": lambda: f"are {size(offload().memory_bytes)}",
        "546 GB/s": lambda: units.format_rate(tiers.get("grace-lpddr5x").read),
        "they take 3.6 s": lambda: f"they take {offload().update_seconds:.1f} s",
        "2.2 s each way": lambda: f"{offload().up_seconds:.1f} s each way",
        "at 63 GB/s, that gives 840 GB and 13.3 s": lambda: "at {}, that gives {} and {:.1f} s".format(
            units.format_rate(tiers.link("pcie5-x16").rate), size(offload(update="gpu").up),
            offload(update="gpu").up_seconds),
        # what gets written
        "1.12 TB of it in each step": lambda: "{} of it in each step".format(
            size(optimizer_state.traffic(70e9, recipe="bf16-adam").written.total)),
        "16.3 GB a step": lambda: f"{size(checkpoints.inventory(70e9, recipe='bf16-adam').total / 60)} a step",
        "128,256 entries": lambda: f"{models.get(SEVENTY).vocab:,} entries",
        "0.26 s": lambda: f"{tiers.get('sandisk-hbf').read_time(kept(), streams=2):.2f} s",
        "2.42 PB": lambda: size(kept() * 86400 / 30),
        "17.5 PB": lambda: size(tiers.get("micron-9550").endurance),
        "some 5 GB/s": lambda: "some {:.0f} GB/s".format(
            (fact("nvme.zero3-optimizer.rate-low") + fact("nvme.zero3-optimizer.rate-high")) / 2e9),
        # beliefs
        "takes 77 GPUs, not 65": lambda: "takes {} GPUs, not {}".format(
            needed("llama-3.1-405b", gathered=True), needed(405e9)),
        "512 need 6.02 GB": lambda: f"512 need {size(on_each(8, 1).total / 64)}",
        "128.5 GB would become 32.1 GB": lambda:
            f"{size(state(EIGHT).total, 4)} would become {size(state(EIGHT).total / 4)}",
        "80.6 GB": lambda: size(state(EIGHT, "adam-8bit").total),
        "896 GB": lambda: size(state(8 * 7e9).total),
        "12 GPUs of 80 GB are reserved, where 10 would": lambda:
            f"{needed(8 * 7e9, limit=card())} GPUs of 80 GB are reserved, "
            f"where {needed(models.get('mixtral-8x7b').parameters, limit=card())} would",
        "46.7 billion": lambda: units.format_count(models.get("mixtral-8x7b").parameters),
        "747.2 GB": lambda: size(state("mixtral-8x7b").total, 4),
        "80 GiB are 85.9 GB": lambda: f"80 GiB are {size(80 * units.GiB)}",
        "7.4 %": lambda: f"{100 * (units.GiB / units.GB - 1):.1f} %",
        "5.9 GB": lambda: size(80 * units.GiB - 80 * units.GB, 2),
        # try it
        "holds 17.8 GB": lambda: f"holds {size(on_each(64, 2, EIGHT).total)}",
        "16.1 GB of that": lambda: f"{size(on_each(64, 2, EIGHT)['weights'])} of that",
        "4.44 s": lambda: f"{offload().link_seconds:.2f} s",
        "0.62 s": lambda: f"{offload('nvlink-c2c').link_seconds:.2f} s",
        "86 %": lambda: f"{100 * (1 - offload('nvlink-c2c').link_seconds / offload().link_seconds):.0f} %",
        # the two cases
        "96.4 GB of it": lambda: f"{size(kept(EIGHT))} of it",
        "12.5 GB to spare": lambda: f"{size(tiers.get('h200-hbm').capacity - state(EIGHT).total)} to spare",
        "17.6 GB at rest": lambda: f"{size(on_each(64, 3, SEVENTY).total)} at rest",
        "23.6 GB": lambda: size(on_each(64, 3, SEVENTY, gathered=True).total),
        "56.4 GB": lambda: size(card() - on_each(64, 3, SEVENTY, gathered=True).total),
    },
}

GIVEN = {
    "book/00-where-ai-data-lives.ipynb": (
        "50 MB of L2 cache and 16 GB of HBM", "reads at 2 TB/s", "reads 10 GB/s", "80 MB/s", "100 KB",  # examples
        "the 16 GB of the 8B model", "16 GB over 63 GB/s",
        "80 GiB", "some 8 MB of Python",
    ),
    "book/01-the-tiers.ipynb": (
        "4 KiB", "= 10 µs and B = 10 GB/s", "10 MB", "1 KB", "100 KB",  # the first example
        "a latency of 1 ms and a bandwidth of 1 GB/s", "a read of 1 MB",
        "38 to 43 %",  # Llama 3, cited
        "= 100 µs and B = 10 GB/s", "= 10 KB", "quoted at 100 GB/s", "100 GB of gradients",
        "carries 50 GB/s", "only 40 %",
        "reads 2 TB/s", "90 % of its rate", "100 µs and 3.5 GB/s", "images of 150 KB",
    ),
    "book/04-optimizer-state.ipynb": (
        "80 GB", "80 GiB",  # a GPU, and what it is mistaken for
        "100 GB", "30 GB",  # limits that the examples set
        "20 GB/s", "500 GB/s", "30 GB/s", "64 GB/s",  # rates that the questions give
        "a step of 30 s",
    ),
}


def prose(notebook: str) -> str:
    """The markdown of a notebook without code, on one line; of its maths the digits stay."""
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    text = re.sub(r"`[^`\n]+`", " ", text).replace("{,}", ",").replace("$", "")
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(("notebook", "quoted"), [(name, quoted) for name, table in QUOTED.items() for quoted in table])
def test_a_quoted_number_is_what_memtier_gives(notebook, quoted):
    assert QUOTED[notebook][quoted]() == quoted


def test_no_number_of_gpus_of_80_gb_is_enough_for_a_tensor_of_eight_rows():
    with pytest.raises(ValueError, match="stay on every GPU"):
        needed("mixtral-8x7b", limit=card())


@pytest.mark.parametrize("notebook", QUOTED)
def test_every_row_is_quoted_somewhere(notebook):
    text = prose(notebook)
    assert [quoted for quoted in (*QUOTED[notebook], *GIVEN[notebook]) if quoted not in text] == []


@pytest.mark.parametrize("notebook", QUOTED)
def test_no_number_in_prose_stands_alone(notebook):
    known = {*QUOTED[notebook], *GIVEN[notebook]}
    covered = {match[0] for text in known for match in QUANTITY.finditer(text)}
    assert sorted({match[0] for match in QUANTITY.finditer(prose(notebook))} - covered) == []


def test_what_counts_as_a_quantity():
    text = "1.12 TB, 27 % and 900 GB/s in 0.93 s; 16 bytes, 80 GBx and v2.13 s are left alone"
    assert [match[0] for match in QUANTITY.finditer(text)] == ["1.12 TB", "27 %", "900 GB/s", "0.93 s"]
