"""Numbers quoted in book/01-the-tiers.ipynb."""

import math

from prose.common import (
    drive,
    fact,
    h100_ridge,
    kept,
    measured,
    moved,
    network,
    rate,
    s3,
    size,
    small_read,
    time,
)

from memtier import evidence, tiers, units

NOTEBOOK = "book/01-the-tiers.ipynb"


def both_ways():
    """Bytes a second that NVLink-C2C was measured at in one direction while the other was busy."""
    return fact("link.nvlink-c2c.host-to-device-while-both")


def alone():
    """The same as a share, in %, of what one direction gives alone."""
    return 100 * both_ways() / fact("link.nvlink-c2c.host-to-device")


QUOTED = {
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
    "that is 12.3 GB/s": lambda: f"that is {rate(4096 * fact('nvme.micron-9550.read-iops'))}",
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
    "takes the middle, 8 µs": lambda: f"takes the middle, {time(tiers.get('sandisk-hbf').latency)}",
    "cost 38 minutes": lambda: f"cost {1e6 * fact('pfs.open-call.latency') / 60:.0f} minutes",
    "85 to 90 MB/s, 87.5,": lambda: "{:g} to {:g} MB/s, {:g},".format(
        *(fact(f"object.s3.{name}") / 1e6 for name in ("connection-low", "connection-high", "connection"))),
    # links and units
    "quoted as 900 GB/s": lambda: f"quoted as {rate(fact('link.nvlink-c2c.both-directions'))}",
    "140 GB take 156 ms by the headline": lambda: "140 GB take {} by the headline".format(
        time(moved(140e9, fact("link.nvlink-c2c.both-directions")))),
    "five times as long": lambda: {5: "five times as long"}[round(
        fact("link.nvlink-c2c.both-directions") / fact("link.nvlink-c2c.host-to-device-while-both"))],
    "with 51 GB/s of 63": lambda: "with {} of {:g}".format(
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
    "an MI300X 77 %": lambda: "an MI300X {:.0f} %".format(
        100 * fact("hbm.mi300x.stream-azure") / fact("hbm.mi300x.bandwidth")),
    # the file of a measured ladder
    "takes 64 µs for each and reaches 63.6 MB/s": lambda:
        f"takes {time(measured(1).latency, 2)} for each and reaches {rate(measured(1).bandwidth)}",
    "now takes 477 µs": lambda: f"now takes {time(measured(16).latency)}",
    "some 33,500 reads a second": lambda: f"some {500 * round(measured(16).bandwidth / 4096 / 500):,} reads a second",
    # worked examples
    "100 + 1 = 101 µs": lambda: f"100 + 1 = {time(moved(10e3, 10e9, 100e-6))}",
    "= 99 MB/s, a hundredth": lambda:
        f"= {rate(tiers.small_read_bandwidth(10e3, 100e-6, 10e9), 2)}, a hundredth",
    "= 1 MB a single stream": lambda: f"= {size(100e-6 * 10e9)} a single stream",
    "2 s down and 2 s up: 4 s": lambda: "{0:g} s down and {0:g} s up: {1:g} s".format(
        moved(100e9, 50e9), 2 * moved(100e9, 50e9)),
    "each runs at 20 GB/s: 5 s": lambda: f"each runs at {rate(0.4 * 50e9)}: {moved(100e9, 0.4 * 50e9):g} s",
    "at 359 GB/s alone and 175 with": lambda: "at {} alone and {:g} with".format(
        rate(fact("link.nvlink-c2c.host-to-device")),
        fact("link.nvlink-c2c.host-to-device-while-both") / 1e9),
    "60 s; with recomputation 80 s": lambda: "{:g} s; with recomputation {:g} s".format(
        *(tiers.flops(10e9, 1e6, what) / 1e15 for what in ("training", "training with full recomputation"))),
    # beliefs
    "For 840 GB of optimizer state that gives 0.93 s": lambda: f"For {size(kept())} of optimizer state that gives "
        f"{moved(kept(), fact('link.nvlink-c2c.both-directions')):.2f} s",
    "it is 1.87 s in one direction, at half of 900, and 2.34 s as measured": lambda:
        "it is {:.2f} s in one direction, at half of 900, and {:.2f} s as measured".format(
            *(moved(kept(), fact(f"link.nvlink-c2c.{name}")) for name in ("rate", "host-to-device"))),
    "= 1.33 times": lambda: "= {:.2f} times".format(
        tiers.flops(1, 1, "training with full recomputation") / tiers.flops(1, 1, "training")),
    # try it, check yourself
    "waits 150 ms": lambda: f"waits {time(s3().latency)}",
    "= 118 MB": lambda: f"= {size(9 * s3().latency * s3().read)}",
    "from HBM is 2.39 times faster, computing 2.2 times": lambda:
        "from HBM is {:.2f} times faster, computing {:.1f} times".format(
            tiers.get("b200-hbm").read / tiers.get("h100-hbm").read,
            tiers.accelerator("b200").flops_measured / tiers.accelerator("h100-sxm").flops_measured),
    "gets 2.1 GB/s": lambda: f"gets {rate(small_read(150e3), 2)}",
    "it waits 60 µs for each 11 µs of transfer": lambda:
        f"it waits {time(drive().latency)} for each {time(150e3 / drive().read, 2)} of transfer",
    "16 GB over 2 TB/s is 8 ms": lambda: f"16 GB over 2 TB/s is {time(16e9 / 2e12)}",
    # counts, rates of operations and other units
    "in a second, 3 million": lambda: f"in a second, {fact('nvme.micron-9550.read-iops') / 1e6:g} million",
    "family serve 3.3 million": lambda: f"family serve {fact('nvme.micron-9550.read-iops-larger') / 1e6:g} million",
    "assume 1 to 15 µs": lambda: "assume {} to {}".format(
        *(f"{1e6 * fact(f'hbf.simulated.latency-{end}'):g}{unit}" for end, unit in (("low", ""), ("high", " µs")))),
    "with two to five times the latency": lambda: "with {} to {} times the latency".format(
        *({2: "two", 5: "five"}[fact(f"cxl.memory.latency-factor-{end}")] for end in ("low", "high"))),
    "the 16,384 GPUs that Llama 3 405B": lambda: f"the {fact('run.llama3-405b.gpus'):,} GPUs that Llama 3 405B",
    "measured at 80 % of that half": lambda: "measured at {:.0f} % of that half".format(
        100 * fact("link.nvlink-c2c.host-to-device") / fact("link.nvlink-c2c.rate")),
    "at 81 % of its specification: neither": lambda: "at {:.0f} % of its specification: neither".format(
        100 * fact("link.pcie5-x16.host-to-device") / fact("link.pcie5-x16.rate")),
    "by the headline and twice that by half of it": lambda: {
        2: "by the headline and twice that by half of it"}[
            fact("link.nvlink-c2c.both-directions") / fact("link.nvlink-c2c.rate")],
    "gave 175 GB/s each way, 49 % of what": lambda: f"gave {rate(both_ways())} each way, {alone():.0f} % of what",
    "175 with both ways busy, which is 49 %": lambda:
        f"{both_ways() / 1e9:g} with both ways busy, which is {alone():.0f} %",
    "about as long as one after the other": lambda: {1: "about as long as one after the other"}[round(
        fact("link.nvlink-c2c.host-to-device") / both_ways() / 2, 1)],
    "= 101 reads have": lambda: f"= {tiers.in_flight_needed(10e3, 100e-6, 10e9, share=1)} reads have",
    "2 FLOPs a token": lambda: f"{tiers.flops(1, 1)} FLOPs a token",
    "60 GFLOPs": lambda: f"{tiers.flops(10e9, 1, 'training') / 1e9:.0f} GFLOPs",
    "= 500 FLOPs a byte": lambda: f"= {tiers.ridge_point(1e15, 2e12):.0f} FLOPs a byte",
    "adds 1: 500 users": lambda: f"adds 1: {tiers.ridge_point(1e15, 2e12):.0f} users",
    "a long search, 794.5 TFLOP/s": lambda:
        f"a long search, {tiers.accelerator('h100-sxm').flops_measured / 1e12:g} TFLOP/s",
    "794.5 TFLOP/s is the best": lambda: f"{tiers.accelerator('h100-sxm').flops_measured / 1e12:g} TFLOP/s is the best",
    "does 989 TFLOP/s": lambda: f"does {tiers.accelerator('h100-sxm').flops / 1e12:g} TFLOP/s",
    "slips by a quarter": lambda: {1.2: "slips by a quarter"}[round(
        tiers.accelerator("h100-sxm").flops / tiers.accelerator("h100-sxm").flops_measured, 1)],
    "reported 38 to 43 % of": lambda: "reported {:g} to {:g} % of".format(
        *(100 * fact(f"run.llama3-405b.utilisation-{end}") for end in ("low", "high"))),
    "S3 2.3 times": lambda: f"S3 {tiers.price(1e12, 's3') / tiers.price(1e12, 'micron-9550'):.1f} times",
    "its target eightfold": lambda: {8: "its target eightfold"}[100e9 / network()],
    "and 1.39 was measured": lambda: "and {:.2f} was measured".format(
        fact("software.recompute.full") / fact("software.recompute.none")),
    "4096 / 64.4 µs is 63.6 MB/s": lambda:
        f"4096 / {time(measured(1).latency)} is {rate(4096 / measured(1).latency)}",
    "= 85.4 are under way": lambda: f"= {3.5e9 * 100e-6 / 4096:.1f} are under way",
    "86.4, so 87": lambda:
        f"{3.5e9 * 100e-6 / 4096 + 1:.1f}, so {tiers.in_flight_needed(4096, 100e-6, 3.5e9, share=1)}",
}

GIVEN = (
    "4 KiB", "= 10 µs and B = 10 GB/s", "10 MB", "1 KB", "100 KB",  # the first example
    "a latency of 1 ms and a bandwidth of 1 GB/s", "a read of 1 MB",
    "= 100 µs and B = 10 GB/s", "= 10 KB", "quoted at 100 GB/s", "100 GB of gradients",
    "carries 50 GB/s", "only 40 %",
    "reads 2 TB/s", "90 % of its rate", "100 µs and 3.5 GB/s", "images of 150 KB",
    # what the examples and questions start from, and how long a chapter takes
    "A read of 100 times as much", "has a 100 Gb/s network card", 'A 100 Gb/s network moves', "Serving 32 users",
    "computes 1,000 TFLOP/s", "on 1 million tokens", "10 billion parameters", "Believed: 2 times", "over 36 months",
    "40 minutes to read", "sixteen times the workers", "ten times faster", "a hundred",
    "slow the update several times",  # liaw2025cxl
)
