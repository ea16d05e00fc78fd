"""Numbers quoted in book/00-where-ai-data-lives.ipynb."""

import math

from prose.common import EIGHT, KV_TOKEN, card, kept, moved, rate, s3, size, state

from memtier import tiers, units

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
}

GIVEN = (
    "50 MB of L2 cache and 16 GB of HBM", "reads at 2 TB/s", "reads 10 GB/s", "80 MB/s", "100 KB",  # examples
    "the 16 GB of the 8B model", "16 GB over 63 GB/s",
    "80 GiB", "some 8 MB of Python",
)
