"""Numbers quoted in book/00-where-ai-data-lives.ipynb."""

import math

from prose.common import EIGHT, KV_TOKEN, SEVENTY, card, kept, moved, rate, s3, size, state, time

from memtier import evidence, tiers, units

NOTEBOOK = "book/00-where-ai-data-lives.ipynb"

QUOTED = {
    # the guess
    "is 140 GB. Suppose": lambda: f"is {size(state(recipe='inference').total)}. Suppose",
    "takes 42 milliseconds": lambda: f"takes {1e3 * tiers.get('h100-hbm').read_time(140e9):.0f} milliseconds",
    "Twenty-seven minutes": lambda: {27: "Twenty-seven minutes"}[
        round(s3().read_time(140e9) / 60)],
    "room for 80 GB": lambda: f"room for {size(card())}",
    "12.5 GB a second": lambda: f"{size(tiers.get('s3').read)} a second",
    # the ladder, and bytes wanted a second
    "the 8 µs are the middle": lambda: f"the {time(tiers.get('sandisk-hbf').latency)} are the middle",
    "file system's 2 TB/s are for all": lambda: f"file system's {rate(tiers.get('tectonic').read)} are for all",
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
    "9 % of terabytes": lambda: f"{100 * (1 - units.TB / units.TiB):.0f} % of terabytes",
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
    # counts, rates of tokens and other units
    "256 GB beside 512 GB": lambda: "{} beside {}".format(
        *(size(tiers.get(name).capacity) for name in ("cxl-pcie5", "grace-lpddr5x"))),
    "its 100 ns are a round figure": lambda: f"its {time(tiers.get('grace-lpddr5x').latency)} are a round figure",
    "the 288 ns of HBM": lambda: f"the {time(tiers.get('h100-hbm').latency)} of HBM",
    "gets 100 Gb/s": lambda: f"gets {evidence.get('object.s3.instance').amount}",
    "gives 27 minutes": lambda: f"gives {s3().read_time(140e9) / 60:.0f} minutes",
    "at most 1,000 tokens a second": lambda: f"at most {2e12 / state(1e9, 'inference').total:,.0f} tokens a second",
    "it would be 5 tokens a second": lambda: f"it would be {10e9 / state(1e9, 'inference').total:.0f} tokens a second",
    "a quarter of a second: 4 tokens a second": lambda: "a quarter of a second: {:.0f} tokens a second".format(
        tiers.link("pcie5-x16").rate / 16e9),
    "= 14 GB: 14 users": lambda: f"= 14 GB: {(16e9 - 2e9) / (100e3 * 10_000):.0f} users",
    "at 2 users and exceeds": lambda: f"at {2e9 / (100e3 * 10_000):.0f} users and exceeds",
    "is 16 bytes a parameter": lambda: f"is {state(1).total} bytes a parameter",
    "takes 2 bytes, so": lambda: f"takes {state(1, 'inference').total} bytes, so",
    "58,720,256, some 59 million": lambda: f"{4096 * 14336:,}, some {4096 * 14336 / 1e6:.0f} million",
    "70B model four times over": lambda: {4: "70B model four times over"}[int(64 * card() / state(SEVENTY).total)],
    "it is six times the bf16 weights": lambda: {6: "it is six times the bf16 weights"}[
        round(kept(EIGHT) / state(EIGHT, "inference").total)],
    "69 GB of cache": lambda: f"{size(64 * KV_TOKEN * 8192, 2)} of cache",
    "and 16 GB of weights are more than the 80 GB": lambda:
        f"and {size(state(EIGHT, 'inference').total, 2)} of weights are more than the {size(card())}",
    "than the 3.35 TB/s that its HBM gives": lambda: f"than the {rate(tiers.get('h100-hbm').read)} that its HBM gives",
}

GIVEN = (
    "50 MB of L2 cache and 16 GB of HBM", "reads at 2 TB/s", "reads 10 GB/s", "80 MB/s", "100 KB",  # examples
    "the 16 GB of the 8B model", "16 GB over 63 GB/s",
    "80 GiB", "some 8 MB of Python",
    # what the examples and questions start from, and how long a chapter takes
    "70 billion parameters, two bytes each", "A model of 1 billion parameters", "a Llama of 3.4 million parameters",
    "has 1 trillion tokens", "learns from 1 million tokens a second", "has 10,000 tokens of context",
    "write 50 tokens a second", "8,192 tokens of context", "take 10 seconds, over 80,000 tokens", "every 30 minutes",
    "over all 64 GPUs", "to 64 users at once", "carries 100 Gb/s", "30 minutes to read", "60 to 90 minutes each",
    "above 100 % means",
)
