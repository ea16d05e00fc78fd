"""Numbers quoted in book/02-weights.ipynb."""

import math

from prose.common import EIGHT, SEVENTY, card, fact, size

from memtier import kv_cache, models, tiers, units, weights

NOTEBOOK = "book/02-weights.ipynb"

LARGE, MIXTRAL, DEEPSEEK = "llama-3.1-405b", "mixtral-8x7b", "deepseek-v3"


def held(model=LARGE, **asked):
    return weights.inventory(model, **asked).total


def decode(batch=1, model=EIGHT, **asked):
    return weights.decode(model, batch=batch, **asked)


def share(model, *parts):
    counted = models.get(model).parts()
    return f"{100 * sum(counted[part] for part in parts) / sum(counted.values()):.1f} %"


def smaller(model, dtype="nvfp4"):
    return f"{held(model) / held(model, dtype=dtype):.2f} times"


def users(model, limit, headroom, dtype="bf16"):
    return weights.gpus_needed(model, limit=limit, headroom=headroom, dtype=dtype)


def cached(tokens=8192):
    return kv_cache.inventory(EIGHT, sequence=tokens).total


def left(model, gpus):
    return card() - held(model) / gpus


def rate(step):
    return f"{step.tokens_per_second:,.0f}"


def layer(dtype):
    """Bytes of one layer of the small model that the chapter stores."""
    tensors = [each for each in models.get("gemma-3-1b").tensors() if each.unit == 0]
    return sum(weights.get(dtype if len(each.shape) > 1 else "bf16").nbytes(each.shape) for each in tensors)


def _second_scales():
    """The layer's bytes at 0.5625 a number of its matrices, the bytes that are missing, and how many matrices."""
    shapes = [each.shape for each in models.get("gemma-3-1b").tensors() if each.unit == 0]
    matrices = [shape for shape in shapes if len(shape) > 1]
    plain = sum(math.prod(shape) * (weights.get("nvfp4").bytes_each if shape in matrices else 2) for shape in shapes)
    return int(plain), layer("nvfp4") - int(plain), {7: "seven"}[len(matrices)]


def loaded(source):
    return units.format_time(weights.read_time(LARGE, source=source))


QUOTED = {
    # the hook
    "takes 811.7 GB": lambda: f"takes {size(held(), 4)}",
    "holds 640 GB": lambda: f"holds {size(8 * card())}",
    "as they were: 482 GB": lambda: "as they were: {}".format(
        size(held(dtype="fp8", keep=("embedding", "attention", "norms", "head")))),
    "at most some 209 tokens a second": lambda: f"at most some {rate(decode())} tokens a second",
    # parameters
    "that is 16.06 GB": lambda: f"that is {size(held(EIGHT), 4)}",
    "70.2 % in 8B, 81.3 % in 405B": lambda: f"{share(EIGHT, 'mlp')} in 8B, {share(LARGE, 'mlp')} in 405B",
    "have 13.1 % of 8B and 1.0 % of 405B": lambda: "have {} of 8B and {} of 405B".format(
        *(share(name, "embedding", "head") for name in (EIGHT, LARGE))),
    "1.24 billion parameters become 1.50": lambda: "{:.2f} billion parameters become {:.2f}".format(
        *((models.get("llama-3.2-1b").parameters + twice * models.get("llama-3.2-1b").parts()["embedding"]) / 1e9
          for twice in (0, 1))),
    # formats
    "**3.56 times smaller, not 4**": lambda: f"**{2 / weights.get('nvfp4').bytes_each:.2f} times smaller, not 4**",
    "is 3.76 times smaller": lambda: f"is {2 / weights.get('mxfp4').bytes_each:.2f} times smaller",
    "becomes 6.03 GB and not the 4.02 GB of a quarter: 2.66 times smaller": lambda:
        f"becomes {size(held(EIGHT, dtype='nvfp4'))} and not the {size(held(EIGHT) / 4)} of a quarter: "
        f"{smaller(EIGHT)} smaller",
    "Now 35 % of the bytes": lambda: "Now {:.0f} % of the bytes".format(
        100 * weights.by_format(EIGHT, dtype="nvfp4").share("kept in bf16")),
    "the whole is 3.46 times smaller": lambda: f"the whole is {smaller(LARGE)} smaller",
    "28 billion × 0.5625 bytes = 15.75 GB": lambda: f"28 billion × 0.5625 bytes = {size(held(28e9, dtype='nvfp4'), 4)}",
    "2 billion × 2 bytes = 4 GB": lambda: f"2 billion × 2 bytes = {size(held(2e9))}",
    "Together 19.75 GB": lambda: f"Together {size(held(28e9, dtype='nvfp4') + held(2e9), 4)}",
    "would have promised 15 GB": lambda: f"would have promised {size(30e9 / 2)}",
    "In bf16 it is 60 GB, so it shrinks 3.04 times": lambda: "In bf16 it is {}, so it shrinks {:.2f} times".format(
        size(held(30e9)), held(30e9) / (held(28e9, dtype="nvfp4") + held(2e9))),
    # GPUs
    "13 H100s": lambda: f"{users(LARGE, card(), 0.2)} H100s",
    "The weights: 104 GB": lambda: f"The weights: {size(held(104e9, dtype='fp8'))}",
    "= 60 GB": lambda: f"= {size(0.75 * card())}",
    "with 52 GB on each": lambda: f"with {size(held(104e9, dtype='fp8') / users(104e9, card(), 0.25, 'fp8'))} on each",
    "so 4.": lambda: f"so {users(104e9, card(), 0.25)}.",
    # decoding
    "Reading takes 4.79 ms and computing 16.2 µs": lambda: "Reading takes {} and computing {}".format(
        *map(units.format_time, (decode().memory_seconds, decode().compute_seconds))),
    "wait 99.7 % of the time": lambda:
        f"wait {100 * (1 - decode().compute_seconds / decode().seconds):.1f} % of the time",
    "299 tokens a second instead of 209": lambda:
        f"{rate(decode(accelerator='h200-sxm'))} tokens a second instead of {rate(decode())}",
    "still wait 4.79 ms, and together they get 6,675 tokens a second instead of 209": lambda:
        f"still wait {units.format_time(decode(32).seconds)}, and together they get {rate(decode(32))} tokens a second "
        f"instead of {rate(decode())}",
    "from batch 296 on": lambda: f"from batch {weights.memory_bound_until(EIGHT)} on",
    "295 FLOPs a byte": lambda: "{:.0f} FLOPs a byte".format(
        tiers.ridge_point(tiers.accelerator("h100-sxm").flops, tiers.get("h100-hbm").read)),
    "NVFP4 is 2.66 times faster": lambda: "NVFP4 is {:.2f} times faster".format(
        decode(dtype="nvfp4").tokens_per_second / decode().tokens_per_second),
    "takes over at 111 and not at 84": lambda: "takes over at {} and not at {}".format(
        *(weights.memory_bound_until(model, dtype="nvfp4") for model in (EIGHT, models.get(EIGHT).parameters))),
    "mean b_w to 0.75": lambda: f"mean b_w to {held(EIGHT, dtype='nvfp4') / models.get(EIGHT).parameters:.2f}",
    "reading takes 15.1 ms": lambda: f"reading takes {units.format_time(decode(32, kv=cached()).memory_seconds)}",
    "6,675 tokens a second become 2,126": lambda:
        f"{rate(decode(32))} tokens a second become {rate(decode(32, kv=cached()))}",
    "2.97 of its 3.35 TB/s": lambda: "{:.2f} of its {}".format(
        fact("hbm.h100-sxm.stream") / 1e12, units.format_rate(fact("hbm.h100-sxm.bandwidth"))),
    "794.5 of 989 TFLOP/s": lambda: "{:.4g} of {:.0f} TFLOP/s".format(
        fact("compute.h100-sxm.bf16-best") / 1e12, fact("compute.h100-sxm.bf16") / 1e12),
    "8B reads 15.0 GB, which allows 223 tokens a second": lambda: "8B reads {:.1f} GB, which allows {} tokens a second"
        .format(weights.read(EIGHT, lookup="rows").total / 1e9, rate(decode(lookup="rows"))),
    "reads 4.8 TB/s instead of 3.35 TB/s": lambda: "reads {} instead of {}".format(
        *(units.format_rate(tiers.accelerator(name).memory.read) for name in ("h200-sxm", "h100-sxm"))),
    "20 GB at 2 TB/s are 10 ms": lambda: "20 GB at 2 TB/s are {}".format(
        units.format_time(weights.read_time(20e9, source=2e12, dtype="fp8"))),
    # mixtures
    "holds 46.7 billion parameters, 93.4 GB in bf16, and one token passes 12.9 billion": lambda:
        "holds {} billion parameters, {} in bf16, and one token passes {} billion".format(
            *(f"{models.get(MIXTRAL).parameters / 1e9:.1f}", size(held(MIXTRAL)),
              f"{models.get(MIXTRAL).active_parameters / 1e9:.1f}")),
    "reads 75.1 GB for one token. At batch 32 it reads 869 GB": lambda:
        "reads {} for one token. At batch 32 it reads {}".format(
            *(size(weights.read(DEEPSEEK, batch=batch).total) for batch in (1, 32))),
    # where they wait
    "starts after 2.58 h": lambda: f"starts after {loaded('s3-connection')}",
    "it takes 58 s": lambda: f"it takes {loaded('micron-9550')}",
    "The layer shrinks 3.55 times": lambda: f"The layer shrinks {layer('bf16') / layer('nvfp4'):.2f} times",
    "it would be 15,106,048 bytes. The other 28 are the second scale: 4 bytes for each of seven": lambda:
        "it would be {:,} bytes. The other {} are the second scale: 4 bytes for each of {}".format(*_second_scales()),
    # beliefs
    "that gives 203 GB": lambda: f"that gives {size(held() / 4)}",
    "three GPUs are ordered": lambda: {3: "three GPUs are ordered"}[-(-held() // 4 // int(0.9 * card()))],
    "They are 234 GB, scales included: 78.1 GB on each of the three": lambda:
        "They are {}, scales included: {} on each of the three".format(
            size(held(dtype="nvfp4")), size(held(dtype="nvfp4") / 3)),
    "It takes four": lambda: "It takes {}".format({4: "four"}[users(LARGE, card(), 0.1, "nvfp4")]),
    "In bf16, 112 GB": lambda: f"In bf16, {size(held(8 * 7e9))}",
    "leaves 48 GB": lambda: f"leaves {size(2 * card() - held(8 * 7e9))}",
    "It is 93.4 GB, which leaves 66.6 GB": lambda:
        f"It is {size(held(MIXTRAL))}, which leaves {size(2 * card() - held(MIXTRAL))}",
    "by a factor of 11.6": lambda:
        f"by a factor of {weights.read(DEEPSEEK, batch=32).total / weights.read(DEEPSEEK).total:.3g}",
    "some 163 of each layer's 256 experts": lambda:
        f"some {weights.distinct_experts(models.get(DEEPSEEK).experts, 8, 32):.0f} of each layer's "
        f"{models.get(DEEPSEEK).experts} experts",
    "would get 104 tokens a second each": lambda:
        f"would get {decode().tokens_per_second / 2:.0f} tokens a second each",
    "Both get 209: up to 295 share a step": lambda:
        f"Both get {decode(2).tokens_per_second / 2:.0f}: up to {weights.memory_bound_until(EIGHT) - 1} share a step",
    "could compute 61,580 tokens a second": lambda:
        f"could compute {1 / decode().compute_seconds:,.0f} tokens a second",
    "in bf16 is 755.96 GiB": lambda: f"in bf16 is {held() / units.GiB:.2f} GiB",
    "Ten GPUs of 80 GB, 800 GB": lambda: f"Ten GPUs of 80 GB, {size(10 * card())}",
    "GiB are 7.4 % larger, and 811.7 GB take eleven": lambda: "GiB are {:.1f} % larger, and {} take {}".format(
        100 * (units.GiB / units.GB - 1), size(held(), 4), {11: "eleven"}[users(LARGE, card(), 0)]),
    # the cases, and try it
    "leave 63.9 GB": lambda: f"leave {size(left(EIGHT, 1))}",
    "leaves 62.4 GB on each": lambda: f"leaves {size(left(SEVENTY, 8))} on each",
    "ZeRO-3 stores 2.2 GB": lambda: f"ZeRO-3 stores {size(held(SEVENTY) / 64, 2)}",
    "takes 537 MB. 32 of them are 17.2 GB": lambda:
        f"takes {size(cached(4096))}. 32 of them are {size(32 * cached(4096))}",
    "the 16.06 GB of weights": lambda: f"the {size(held(EIGHT), 4)} of weights",
    "673 GB do not fit into 640 GB": lambda:
        f"{size(held(DEEPSEEK, dtype='fp8-tiles'))} do not fit into {size(8 * card())}",
    "84.1 GB of 141 GB on each": lambda: "{} of {} on each".format(
        size(held(DEEPSEEK, dtype="fp8-tiles") / 8), size(tiers.get("h200-hbm").capacity)),
    # counts, rates of operations and other units
    "at 2 TB/s are 10 ms: 100 tokens a second": lambda: "at 2 TB/s are 10 ms: {:.0f} tokens a second".format(
        1 / weights.read_time(20e9, source=2e12, dtype="fp8")),
    "= 200 FLOPs a byte": lambda: f"= {tiers.ridge_point(400e12, 2e12):.0f} FLOPs a byte",
    "the cache of 4,096 tokens takes 537 MB": lambda: f"the cache of 4,096 tokens takes {size(cached(4096))}",
}

GIVEN = (
    "\"~25 %\"",  # the announcement's own words
    "80 GB × 0.75",  # a GPU of the worked example
    "GPUs of 80 GB",
    "756 GB",  # what is misread
    "reads 2 TB/s",  # the accelerator of the worked example
    # what the examples and questions start from, a guess, a name, and how long the chapter takes
    "104 billion parameters in FP8", "20 billion parameters in FP8", "of 30 billion parameters", "computes 400 TFLOP/s",
    "Now 32 users share", "For 50 users", "For 512 users", "become: 4 times, less", "says 56 billion",
    "one more scale, 4 bytes in fp32", "At 0.5625 bytes for each",  # 32 bits; 4.5 bits
    "itself says 3.5 times",  # the announcement's own words
    "Read: 30 minutes. Do: 40 minutes", "with torch: 2 minutes",
)
