"""Numbers quoted in book/07-training-data.ipynb."""

from prose.common import EIGHT, SEVENTY, drive, fact, moved, network, rate, s3, size, time

from memtier import models, training_data

NOTEBOOK = "book/07-training-data.ipynb"

LLAMA = "llama-3.1-405b"
IMAGE = training_data.image(150e3)
SHARD = 64e6


def percent(share, digits=3):
    return f"{100 * share:.{digits}g} %"


def tokens(model, gpus):
    return training_data.tokens_per_second(model, gpus=gpus, flops=fact("data.llama3-405b.rate"))


def llama():
    """Bytes a second of Llama 3 405B on all of its GPUs."""
    return tokens(LLAMA, fact("data.llama3-405b.gpus")) * training_data.bytes_per_token(LLAMA)


def text():
    """A node's pipeline of text for 8B: one request of a shard at a time."""
    sequence = training_data.sequence(8192, vocabulary=EIGHT)
    return training_data.pipeline(sequence, rate=tokens(EIGHT, 8) / 8192, request=SHARD)


def images(**how):
    return training_data.pipeline(IMAGE, rate=8 * 2500, **{"request": SHARD} | how)


def volumes():
    return 8 * fact("data.unet3d.rate") * fact("data.unet3d.sample")


def depth(request):
    return training_data.prefetch_depth(3e9, request=request, latency=s3().latency, bandwidth=s3().read)


def under_way(request):
    return moved(request, s3().read, s3().latency)


def hits(share=0.5, policy="lru"):
    return training_data.cache_hits(share, policy=policy)


def sent(hit):
    """TB that the store sends of 10 TB in five epochs."""
    return 10 + 4 * 10 * (1 - hit)


def half_the_reads():
    """The part of the set with which LRU answers half of the reads, to a thousandth."""
    return next(n / 1000 for n in range(1001) if hits(n / 1000) >= 0.5)


QUOTED = {
    # the hook
    "needs 0.37 % of what that connection brings":
        lambda: f"needs {percent(text().hops[0].load, 2)} of what that connection brings",
    "computed for 2.42 % of the night": lambda: f"computed for {percent(1 - images().stall)} of the night",
    # the way, and bytes of a token
    "370 TB compressed": lambda: f"{size(fact('data.dclm-pool.disk'))} compressed",
    "one in 63": lambda: f"one in {fact('data.dclm-pool.tokens') / fact('data.dclm-baseline.tokens'):.0f}",
    "Llama 3 are 60 TB, not 30": lambda: "Llama 3 are {}, not {:.0f}".format(
        size(training_data.text(15e12, vocabulary=LLAMA).total),
        training_data.text(15e12, vocabulary="gpt2").total / 1e12),
    "eight drives of 3.84 TB holds half": lambda: "eight drives of {} holds {}".format(
        size(fact("node.h100-8.nvme") / 8), "half" if abs(fact("node.h100-8.nvme") / 30e12 - 1) < 0.03 else ""),
    "12\\cdot10^{12} bytes, 12 TB": lambda:
        f"12\\cdot10^{{12}} bytes, {size(training_data.text(3e12, vocabulary=100_000).total)}",
    "are 12.5 GB/s": lambda: f"are {rate(network())}",
    "= 960 s, 16 min": lambda: f"= {moved(12e12, network()):.0f} s, {time(moved(12e12, network()))}",
    # how fast a run reads
    "GPUs read 10.8 MB/s": lambda: f"GPUs read {rate(llama())}",
    "100 Mb/s carries 12.5 MB/s": lambda: f"100 Mb/s carries {rate(100e6 / 8)}",
    "takes 2.4 trillion operations": lambda: f"takes {6 * 405e9 / 1e12:.1f} trillion operations",
    "an H100 do 1,786": lambda: f"an H100 do {fact('data.resnet50.rate'):,}",
    "a node is 266 KB/s": lambda: f"a node is {rate(text().hops[2].needed)}",
    "Images are 3 GB/s, eleven thousand": lambda: "Images are {}, {}".format(
        rate(images().hops[2].needed), "eleven thousand" if 10.5e3 < 3e9 / text().hops[2].needed < 11.5e3 else ""),
    "at 25.4 GB/s, are more": lambda: f"at {rate(volumes())}, are {'more' if volumes() > drive().read else 'less'}",
    "a volume of 147 MB, 2 MB": lambda: "a volume of {}, {}".format(
        size(fact("data.unet3d.sample")), size(fact("data.unet3d.decoded"), 1)),
    "10^6, 800 MB/s": lambda: f"10^6, {rate(4 * 1000 * 200e3)}",
    "= 9.14, so ten": lambda: f"= {800e6 / s3().read:.2f}, so ten",
    # requests
    "\\ell = 150 ms": lambda: f"\\ell = {time(s3().latency)}",
    "the transfer at 87.5 MB/s": lambda: f"the transfer at {rate(s3().read)}",
    "3,035 requests must be in flight": lambda: f"{depth(150e3):,} requests must be in flight",
    "152 ms under way for 2 ms of bytes": lambda:
        f"{time(under_way(150e3))} under way for {time(150e3 / s3().read, 1)} of bytes",
    "takes 5,500": lambda: f"takes {fact('object.s3.gets'):,}",
    "42 requests in flight and 47 a second": lambda:
        f"{depth(SHARD)} requests in flight and {3e9 / SHARD:.0f} a second",
    "writes, at 25.4 GB/s": lambda: f"writes, at {rate(volumes())}",
    "76.9 %, then 70 %, 40 % and nothing": lambda: "{}, then {}, {} and nothing".format(
        *(percent(training_data.stall_fraction(0.03, 0.1, depth=q)) for q in (0, 1, 2))),
    # the cache
    "15.3 % of the reads hit": lambda: f"{percent(hits())} of the reads hit",
    "writes 219 TB a day": lambda: f"writes {size(3e9 * (1 - hits()) * 86400)} a day",
    "worn out in 79.8 days": lambda: f"worn out in {time(drive().endurance / (3e9 * (1 - hits())))}",
    "= 9.35 %": lambda: f"= {percent(hits(0.4))}",
    "= 46.3 TB of 50 TB": lambda: f"= {sent(hits(0.4)):.1f} TB of {10 * 5} TB",
    "H = 40 %": lambda: f"H = {percent(hits(0.4, 'pinned'))}",
    "= 34 TB": lambda: f"= {sent(hits(0.4, 'pinned')):.0f} TB",
    # beliefs
    "16,384 GPUs, at 2,500 images of 150 KB a second each, would read 6.14 TB/s": lambda:
        "{:,} GPUs, at 2,500 images of {} a second each, would read {}".format(
            fact("data.llama3-405b.gpus"), size(IMAGE.stored),
            rate(fact("data.llama3-405b.gpus") * 2500 * IMAGE.stored)),
    "the peak of Meta's file system, 7 TB/s": lambda:
        f"the peak of Meta's file system, {rate(fact('pfs.tectonic.peak'))}",
    "The text is 10.8 MB/s": lambda: f"The text is {rate(llama())}",
    "epoch gives 15.3 %": lambda: f"epoch gives {percent(hits())}",
    "it is 50 %": lambda: f"it is {percent(hits(policy='pinned'))}",
    "at a time it gives 72.6 MB/s": lambda: f"at a time it gives {rate(images().hops[0].available)}",
    "It takes 42 in flight": lambda: f"It takes {depth(SHARD)} in flight",
    # the end
    "10.8 MB/s for 405B": lambda: f"{rate(llama())} for 405B",
    "a hundredth of one connection": lambda: "a hundredth of one connection" if max(
        4 * tokens(SEVENTY, 64), 4 * tokens(EIGHT, 1)) < s3().read / 100 else "",
    "at 64.6 %": lambda: f"at {percent(images(in_flight=64).hops[0].load)}",
    "81 % of it": lambda: f"{percent(half_the_reads(), 2)} of it",
    # counts, rates of operations and other units
    "vocabulary has 128,256 tokens": lambda: f"vocabulary has {models.get(LLAMA).vocab:,} tokens",
    "saw 15.6 trillion": lambda: f"saw {fact('data.llama3-405b.tokens') / 1e12:g} trillion",
    "× 3 = 150,528 bytes": lambda: f"× 3 = {224 * 224 * 3:,} bytes",
    "trained on 16,384 GPUs": lambda: f"trained on {fact('data.llama3-405b.gpus'):,} GPUs",
    "u F = 400 TFLOP/s": lambda: f"u F = {fact('data.llama3-405b.rate') / 1e12:g} TFLOP/s",
    "Of 240 trillion tokens 3.8 trillion are left": lambda: "Of {:g} trillion tokens {:g} trillion are left".format(
        *(fact(f"data.dclm-{which}.tokens") / 1e12 for which in ("pool", "baseline"))),
    "carries two or four times as much": lambda: "carries {1} or {0} times as much".format(
        *({2: "two", 4: "four"}[8 / training_data.bytes_per_token(name)] for name in ("gpt2", LLAMA)))
        if 8 / training_data.bytes_per_token("gpt2") == 4 else "",
    "it is four times that: convert": lambda: {4: "it is four times that: convert"}[4 // 1],  # fp32 for one byte
    "eleven thousand times as much": lambda:
        "eleven thousand times as much" if 10.5e3 < 3e9 / text().hops[2].needed < 11.5e3 else "",
}

GIVEN = (
    "15, 30 or 60 TB",  # the guesses
    "100 Gb/s of one instance", "100 Mb/s",  # a network, and a home line, in an example
    "150 KB", "200 KB", "64 MB", "30 ms", "100 ms", "10 TB", "4 TB of NVMe",  # what examples start from
    "3 GB/s",  # eight GPUs on images, the round figure that the chapter goes on with
    "each at 87.5 MB/s", "12.5 GB/s, we need 3",  # in an example and in a belief
    "50 % is planned", "are 30 TB.",  # beliefs
    "takes 160 ms", "steps of 12 ms",  # what the demo is given
    # what the examples and questions start from, and how long the chapter takes
    "15 trillion tokens are", "With 2 bytes an id", "2,500 images, a round figure", "corpus of 3 trillion tokens",
    "b_t = 4 bytes", "1, 2 and 4 requests", "an epoch of 6 samples", "on 64 GPUs, both",
    "looked up by , 8 bytes",
    "took 210, 164, 84.6 and 50.7 ms", "1 to 6 % more than the table says",  # measured once, with the same component
    "between 0.64 and 2.45 times {cite}",  # LLaMA's table of its sources
    "Read: 30 minutes. Do: 40 minutes",
)
