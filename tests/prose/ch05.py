"""Numbers quoted in book/05-kv-cache.ipynb."""

from dataclasses import replace

from prose.common import EIGHT, SEVENTY, card, fact, moved, rate, size, time

from memtier import evidence, kv_cache, models, tiers, units, weights

NOTEBOOK = "book/05-kv-cache.ipynb"

SECONDS = {"tokens": 4096, "gpus": 8, "efficiency": 0.4}
LENGTHS = range(200, 8200, 100)
DAY = {"count": 10_000, "tokens": 4096}
WINDOWED = 30 * 999 * 1600  # bytes of the layers with a window, in the second example


def user(model=SEVENTY, tokens=8192, **other):
    return kv_cache.inventory(model, sequence=tokens, **other).total


def held(model=SEVENTY):
    return weights.inventory(model).total


def fitting(tokens=8192, model=SEVENTY, gpus=8):
    return kv_cache.users(model, limit=card(), headroom=0.1, gpus=gpus, sequence=tokens)


def heads(count):
    return replace(models.get(SEVENTY), kv_heads=count)


def token(model=SEVENTY, **other):
    return kv_cache.bytes_per_token(model, **other)


def in_full(nbytes):
    return f"{100 * nbytes / (nbytes + WINDOWED):.0f} %"


def free():
    """Bytes of the node's HBM that weights and headroom leave."""
    return 8 * card() * 0.9 - held()


def promised(nbytes):
    """Users with so much cache beside 8B on one GPU."""
    return int((card() * 0.9 - held(EIGHT)) // nbytes)


def even(model=SEVENTY, **other):
    return rate(kv_cache.break_even_bandwidth(model, **SECONDS | other))


def fetched(source):
    return kv_cache.fetch_time(SEVENTY, tokens=4096, source=source)


def again(**other):
    return kv_cache.recompute_time(SEVENTY, **SECONDS | other)


def popular():
    """(shares found in each tier, waits) of the chapter's 10,000 prefixes."""
    prefix = kv_cache.stored(SEVENTY, tokens=4096)
    rooms = free() / 4, tiers.get("h100-node-dram").capacity, tiers.get("h100-node-nvme").capacity
    shares = kv_cache.served(kv_cache.zipf(10_000), capacities=[int(room // prefix) for room in rooms])
    return shares, (0.0, fetched(fact("link.pcie5-x16.host-to-device")), fetched("micron-9550"), again())


def mean(tiers_there):
    shares, waits = popular()
    hits = shares[:tiers_there]
    return time(kv_cache.mean_time((*hits, 1 - sum(hits)), (*waits[:tiers_there], waits[-1])))


QUOTED = {
    # the hook, and what is kept
    "Its weights fill 141 GB of the node's 640 GB": lambda:
        f"Its weights fill {size(held())} of the node's {size(8 * card())}",
    "the weights of 141 GB": lambda: f"the weights of {size(held())}",
    "With the 53rd user at 8,192 tokens, or the 4th at 131,072": lambda:
        "With the {}rd user at 8,192 tokens, or the {}th at 131,072".format(
            *(kv_cache.users_to_pass(SEVENTY, sequence=tokens) for tokens in (8192, 131072))),
    "= 327,680 bytes": lambda: f"= {token():,} bytes",
    "162 users of 8,192 tokens fit": lambda: f"{fitting()} users of 8,192 tokens fit",
    # worked example 1
    "= 8,000 bytes, 8 KB": lambda: f"= {2 * 10 * 4 * 50 * 2:,} bytes, {size(2 * 10 * 4 * 50 * 2)}",
    "8 KB = 40 MB": lambda: f"{size(8e3)} = {size(5000 * 8e3)}",
    "1 billion = 2 GB": lambda: f"1 billion = {size(2e9)}",
    # heads, windows, bits
    "between 21.5 GB and 2.68 GB a user": lambda: f"between {size(user(heads(64)))} and {size(user())} a user",
    "70.3 KB a token, a 71st": lambda: "{} a token, a {:.0f}st".format(
        size(token("deepseek-v3")),
        token(replace(models.get("deepseek-v3"), kv_rank=None)) / token("deepseek-v3")),
    "keeps 537 MB where full attention would keep 4.29 GB": lambda:
        "keeps {} where full attention would keep {}".format(
            *(size(user("mistral-7b", 32768, windows=windows)) for windows in (True, False))),
    "it still keeps 537 MB": lambda: f"it still keeps {size(user('mistral-7b', 131072))}",
    "3.82 times smaller, or 3.76, or 3.56": lambda: "{:.2f} times smaller, or {:.2f}, or {:.2f}".format(
        *(token(EIGHT) / token(EIGHT, dtype=dtype) for dtype in ("int4", "mxfp4", "nvfp4"))),
    # worked example 2
    "= 160 MB": lambda: f"= {size(10 * 10_000 * 1600)}",
    "= 48 MB": lambda: f"= {size(WINDOWED, 2)}",
    "208 MB in all, of which 77 %": lambda: f"{size(160e6 + WINDOWED)} in all, of which {in_full(160e6)}",
    "keep 1.6 GB, 97 %": lambda: f"keep {size(1.6e9)}, {in_full(1.6e9)}",
    # paging, prefixes
    "only 20.4 % to 38.2 %": lambda: "only {:g} % to {:g} %".format(
        *(100 * fact(f"software.kv-memory.{which}") for which in ("least", "most"))),
    "waste half of their pieces": lambda: {50: "waste half of their pieces"}[round(100 * kv_cache.reserved(
        EIGHT, lengths=LENGTHS, limit=8192).share("reserved, unused"), -1)],
    "In blocks, 0.1 % is wasted": lambda: "In blocks, {:.1f} % is wasted".format(
        100 * kv_cache.paged(EIGHT, lengths=LENGTHS).share("rest of blocks")),
    "13.4 TB. Neither": lambda: f"{size(kv_cache.prefixes(SEVENTY, **DAY).total)}. Neither",
    # fetch or recompute
    "over PCIe 5 it takes 0.026 s, computing takes 0.183 s, and one connection to S3 15.5 s": lambda:
        "over PCIe 5 it takes {:.3f} s, computing takes {:.3f} s, and one connection to S3 {:.1f} s".format(
            fetched(fact("link.pcie5-x16.host-to-device")), again(), fetched("s3-connection")),
    "85 times as long as computing": lambda: f"{fetched('s3-connection') / again():.0f} times as long as computing",
    "eight GPUs it is 7.35 GB/s": lambda: f"eight GPUs it is {even()}",
    "Each H100 adds 919 MB/s": lambda: f"Each H100 adds {even(gpus=1)}",
    "takes 150 ms, in which eight GPUs compute over 3,000 tokens": lambda:
        "takes {}, in which eight GPUs compute over {:,.0f},000 tokens".format(
            time(tiers.get("s3").latency), tiers.get("s3").latency / again() * 4096 // 1000),
    "from 8,165 tokens on": lambda: "from {:,} tokens on".format(
        kv_cache.break_even_length(SEVENTY, source="s3", gpus=8, efficiency=0.4)),
    # worked example 3
    "= 50 µs a token": lambda: f"= {time(2 * 10e9 / 4e14)} a token",
    "over 4 GB/s = 25 µs. Each fetched token saves 25 µs": lambda:
        f"over 4 GB/s = {time(moved(100e3, 4e9))}. Each fetched token saves {time(50e-6 - moved(100e3, 4e9))}",
    "so 100 ms are made up after 4,000 tokens": lambda:
        f"so 100 ms are made up after {0.1 / 25e-6:,.0f} tokens",
    "100 KB / 50 µs = 2 GB/s": lambda: f"100 KB / 50 µs = {rate(100e3 / 50e-6)}",
    # hits
    "81 prefixes of 10,000, answers 37 % of the requests": lambda:
        f"{free() / 4 // user(tokens=4096):.0f} prefixes of 10,000, "
        f"answers {100 * popular()[0][0]:.0f} % of the requests",
    "from 116 ms down to 58 ms, and drives to 35.1 ms": lambda:
        f"from {mean(1)} down to {mean(2)}, and drives to {mean(3)}",
    # the numbers
    "carries 63 GB/s": lambda: f"carries {rate(fact('link.pcie5-x16.rate'))}",
    "50 GB/s, over it": lambda: f"{rate(fact('link.lmcache.rate'))}, over it",
    "11 GB/s, and 15 GB/s elsewhere": lambda:
        f"{rate(fact('link.vllm-native.rate'))}, and {rate(fact('link.pcie5-x16.kv-offload'))} elsewhere",
    "two pieces of 32.8 KB": lambda: f"two pieces of {size(16 * 8 * 128 * 2)}",
    "up to 15 times the throughput with LMCache, 75 % more requests": lambda:
        "up to {:.0f} times the throughput with LMCache, {:.0f} % more requests".format(
            fact("software.kv-stores.lmcache"), 100 * fact("software.kv-stores.mooncake")),
    # beliefs
    "so 499 GB are free": lambda: f"so {size(8 * card() - held())} are free",
    "takes 42.9 GB, and with 10 % kept free the 11th user": lambda:
        f"takes {size(user(tokens=131072))}, and with 10 % kept free the {fitting(131072) + 1}th user",
    "2.62 MB a token for 70B instead of 328 KB": lambda:
        f"{size(token(heads(64)))} a token for 70B instead of {size(token())}",
    "for 20 users where 162 fit": lambda:
        f"for {free() // user(heads(64)):.0f} users where {fitting()} fit",
    "4.29 GB. It is 0.54 GB": lambda: "{} GB. It is {} GB".format(
        *(f"{user('mistral-7b', 32768, windows=windows) / 1e9:.2f}" for windows in (False, True))),
    "17.2 GB of 8B at 131,072 tokens would become 4.29 GB": lambda:
        f"{size(user(EIGHT, 131072))} of 8B at 131,072 tokens would become {size(user(EIGHT, 131072) / 4)}",
    "on one 80 GB GPU": lambda: f"on one {size(card())} GPU",
    "and 13 such users": lambda: f"and {promised(user(EIGHT, 131072) / 4)} such users",
    "it is 4.5 GB in int4 and 4.83 GB in NVFP4: 12 fit, or 11": lambda:
        "it is {} in int4 and {} in NVFP4: {} fit, or {}".format(
            *(each(user(EIGHT, 131072, dtype=dtype)) for each in (size, promised) for dtype in ("int4", "nvfp4"))),
    "at a million tokens it lowers break-even from 7.35 GB/s to 714 MB/s. One connection has 87.5 MB/s": lambda:
        "at a million tokens it lowers break-even from {} to {}. One connection has {}".format(
            even(), even(tokens=10**6, attention=True), rate(tiers.get("s3-connection").read)),
    "so one user is let in where eight would fit": lambda: "so one user is let in where {} would fit".format(
        {8: "eight"}[user("mistral-7b", 32768, windows=False) // user("mistral-7b", 32768)]),
    "It takes 4.09 min; eight GPUs compute them in 4.7 s": lambda:
        "It takes {}; eight GPUs compute them in {}".format(
            time(kv_cache.fetch_time(SEVENTY, tokens=65_536, source="s3-connection")),
            time(again(tokens=65_536, attention=True))),
    "back in 21 ms": lambda: f"back in {time(fetched('pcie5-x16'), 2)}",
    "at 15 GB/s it takes 89 ms": lambda:
        f"at 15 GB/s it takes {time(fetched(fact('link.pcie5-x16.kv-offload')), 2)}",
    # the two cases
    "8B serves 52 users": lambda: f"8B serves {fitting(model=EIGHT, gpus=1)} users",
    "162 on each node, 1,296 in all, and the day's 13.4 TB of prefixes fit into the 16 TB": lambda:
        "{} on each node, {:,} in all, and the day's {} of prefixes fit into the {}".format(
            fitting(), 8 * fitting(), size(kv_cache.prefixes(SEVENTY, **DAY).total),
            size(8 * tiers.get("h100-node-dram").capacity)),
    # try it
    "the 162 users to 81. Twice the weights, 282 GB, leaves room for 109": lambda:
        f"the {fitting()} users to {fitting(16384)}. Twice the weights, {size(2 * held())}, leaves room for "
        f"{(free() - held()) // user():.0f}",
    "Only 37.6 billion": lambda: f"Only {units.format_count(weights.active('deepseek-v3'))}",
    "the wait of 150 ms remains": lambda: f"the wait of {time(tiers.get('s3').latency)} remains",
    "it takes 8,283 tokens to make up for it, where 70B needs 8,165": lambda:
        "it takes {:,} tokens to make up for it, where 70B needs {:,}".format(*(
            kv_cache.break_even_length(model, source="s3", gpus=8, efficiency=0.4)
            for model in ("deepseek-v3", SEVENTY))),
    "twelve waits of 20 ms alone are 240 ms": lambda: f"twelve waits of 20 ms alone are {time(12 * 0.02)}",
    "breaks even at 2.96 GB/s, where 70B needs 7.35 GB/s": lambda:
        f"breaks even at {even('deepseek-v3')}, where 70B needs {even()}",
    # counts, rates in bits and other units
    "= 1,600 bytes": lambda: f"= {2 * 4 * 100 * 2:,} bytes",
    "= 999 tokens": lambda: f"= {1000 - 1} tokens",
    "measured at 400 Gb/s": lambda: f"measured at {evidence.get('link.lmcache.rate').amount}",
    "at 88 Gb/s": lambda: f"at {evidence.get('link.vllm-native.rate').amount}",
    "With 53 users a step": lambda: f"With {kv_cache.users_to_pass(SEVENTY, sequence=8192)} users a step",
    "These 80 users": lambda: f"These {len(LENGTHS)} users",
    "with 671 billion parameters": lambda:
        f"with {models.get('deepseek-v3').parameters / 1e9:.0f} billion parameters",
    "buys eight times the GPUs": lambda: {8: "buys eight times the GPUs"}[
        round(fitting() / (free() // user(heads(64))))],
}

GIVEN = (
    "With 10 % of the node kept free", "slowed down to 20 ms and 20 MB/s", "100 KB a token", "after 100 ms and then",
    "sends 4 GB/s", "we take 40 %", "38 to 43 %", "2\\text{ GB} / 40\\text{ MB} = 50", "8 KB",
    # what the examples and questions start from, a belief, and how long the chapter takes
    "A model of 1 billion parameters", "a window of 1,000 tokens", "of 10 billion parameters",
    "with 10,000 tokens", "At 100,000 tokens", "a block of 16 tokens", "weights: 2 bytes", "192 of 200 tokens",
    "the last 8 tokens, which",
    "24 tokens each", "writes 32 tokens", "at 32,768 tokens", "takes 4 bytes", "of 4,096 tokens", "has 5,000 tokens",
    "64 GPUs that serve",
    "So 65,536 tokens", "is four times smaller",
    "The odd 32 bytes", "a counter of 8 bytes in each of the four",  # 4 × 8
    "Read: 35 minutes. Do: 35 minutes", "with torch: 3 minutes",
)
