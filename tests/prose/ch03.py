"""Numbers quoted in book/03-activations.ipynb."""

from functools import cache

from prose.common import EIGHT, SEVENTY, card, fact, on_each, size, state

from memtier import activations, flash_attention, models, units, workspace
from memtier.layout import Layout

NOTEBOOK = "book/03-activations.ipynb"


@cache
def saved(model=EIGHT, **how):
    return activations.saved(model, **{"sequence": 8192} | how)


@cache
def moments(model=EIGHT, **how):
    return activations.moments(model, **{"sequence": 8192} | how)


def peak(model=EIGHT, **how):
    return max(found.total for found in moments(model, **how).values())


def twice():
    return saved(sequence=16_384)


def right():
    """Tokens, to a hundred, at which the formula of five terms gives what is kept under fused attention."""
    low, high = 512, 8192
    while high - low > 10:
        middle = (low + high) // 2
        low, high = (middle, high) if five_term(middle) < saved(sequence=middle).total else (low, middle)
    return round(low, -2)


def outside(kept):
    return kept.total - kept["layer inputs"]


def layer(tensor=8, stack="megatron"):
    """Bytes of one layer of the 175B GPT on each GPU, selective recomputation."""
    model = models.from_config({"model_type": "gpt2", "n_embd": 12288, "n_head": 96, "n_layer": 1,
                                "n_positions": 2048})
    kept = activations.saved(model, sequence=2048, stack=stack, recompute="selective", layout=Layout(tensor=tensor))
    return kept.without("embedding dropout", "head input", "logits").total


def small(sequence=1000, stack="hf-sdpa"):
    """Bytes of one layer of the worked examples' model."""
    config = {"model_type": "llama", "hidden_size": 1000, "num_attention_heads": 10, "num_key_value_heads": 10,
              "head_dim": 100, "intermediate_size": 4000, "num_hidden_layers": 20, "vocab_size": 1000}
    return activations.block(models.from_config(config), sequence=sequence, stack=stack)


def fused(sequence=1000):
    return sum(each.nbytes for each in small(sequence))


def matrices(sequence=1000):
    return sum(each.nbytes for each in small(sequence, "hf-eager") if each.kind == "attention probabilities")


def both(sequence=1000):
    return fused(sequence) + matrices(sequence)


@cache
def four_layers():
    return models.from_config(models.get(EIGHT).config | {"num_hidden_layers": 4})


def five_term(sequence):
    return activations.five_term(EIGHT, sequence=sequence).total


def longest():
    """Tokens whose activations fit a GPU, to the ten below."""
    return 8192 * card() // saved().total // 10 * 10


@cache
def wide():
    """The model of worked example 2, fully recomputed."""
    config = {"model_type": "llama", "hidden_size": 5000, "num_attention_heads": 50, "num_key_value_heads": 50,
              "head_dim": 100, "intermediate_size": 20_000, "num_hidden_layers": 40, "vocab_size": 100_000}
    return activations.saved(models.from_config(config), sequence=4000, recompute="full")


def message():
    return workspace.read_message(
        "CUDA out of memory. Tried to allocate 58.15 GiB. GPU 0 has a total capacity of 139.81 GiB of which 47.69 GiB "
        "is free. Process 22249 has 3.24 GiB memory in use. Including non-PyTorch memory, this process has 88.83 GiB "
        "memory in use. Of the allocated memory 82.55 GiB is allocated by PyTorch, and 2.06 GiB is reserved by PyTorch "
        "but unallocated.")


def gib(nbytes):
    return f"{nbytes / units.GiB:.2f} GiB"


def entry(name):
    return next(each for each in workspace.entries(SEVENTY, gpus=64, communicators=2, micro_batches=4)
                if each.name == name)


def per_token():
    return sum(each.nbytes for each in activations.block(EIGHT, sequence=2048)) // 2048


def grown(stack):
    one, two = (saved(sequence=sequence, stack=stack).total for sequence in (4096, 8192))
    return f"{size(one)} become {size(two)}: {two / one:.2f} times"


QUOTED = {
    # the hook
    "16 GB of weights": lambda: f"{size(2 * models.get(EIGHT).parameters, 2)} of weights",
    "57 GB, for one sequence": lambda: f"{size(saved().total, 2)}, for one sequence",
    "Four sequences, 228 GB": lambda: f"Four sequences, {size(saved(batch=4).total)}",
    "205,302 \\times 76,032 \\times 4 bytes are 58.15 GiB": lambda:
        f"{message().tried / (4 * 76_032):,.0f} \\times 76,032 \\times 4 bytes are {gib(205_302 * 76_032 * 4)}",
    # one block
    "6.43 MB for each token": lambda: f"{size(32 * per_token())} for each token",
    "500 tokens: 3 GB": lambda: f"500 tokens: {500 * 32 * per_token() / 1e9:.0f} GB",
    "16,008 bytes a token": lambda: f"{16 * 1000 + 8:,} bytes a token",
    "56,048 bytes a token": lambda: f"{fused() // 1000:,} bytes a token",
    "For 1,000 tokens 56.0 MB a layer, for 20 layers 1.12 GB": lambda:
        f"For 1,000 tokens {fused() / 1e6:.1f} MB a layer, for 20 layers {size(20 * fused())}",
    # the loss
    "4.2 GB of log-probabilities": lambda: f"{size(saved()['log-probabilities'])} of log-probabilities",
    "Two layers and a half": lambda: "Two layers and a half" if 2.4 < (
        saved()["log-probabilities"] / (8192 * per_token())) < 2.6 else "",
    # recomputation
    "takes 57.1 GB down to 6.62 GB": lambda:
        f"takes {size(saved().total)} down to {size(saved(recompute='full').total)}",
    "68 % of what is left lies outside": lambda: "{:.0f} % of what is left lies outside".format(
        100 * outside(saved(recompute="full")) / saved(recompute="full").total),
    "2.15 GB for all 32": lambda: f"{size(saved(recompute='full')['layer inputs'])} for all 32",
    "That leaves 31.3 GB": lambda: f"That leaves {size(saved(recompute='selective').total)}",
    "1.33 times by the rule, 1.39 times as measured": lambda:
        f"{8 / 6:.2f} times by the rule, "
        f"{fact('software.recompute.full') / fact('software.recompute.none'):.2f} times as measured",
    "\\times 5,000 = 1.6 GB": lambda: f"\\times 5,000 = {size(wide()['layer inputs'], 2)}",
    "8\\,b\\,s\\,h = 160 MB": lambda: "8\\,b\\,s\\,h = {}".format(
        size(sum(wide()[kind] for kind in ("norm inputs", "normalised inputs", "head input")))),
    "100,000 = 1.6 GB, as much": lambda: f"100,000 = {size(wide()['log-probabilities'])}, as much",
    "Together 3.36 GB": lambda: f"Together {size(wide().total)}",
    # attention
    "275 GB that are not written": lambda:
        f"{size(flash_attention.not_written(EIGHT, sequence=8192).total)} that are not written",
    "28.6 GB become 57.1 GB: 2.00 times": lambda: grown("hf-sdpa"),
    "133 GB become 473 GB: 3.55 times": lambda: grown("hf-eager"),
    "are 60 MB a layer. With the rest, 116 MB; 20 layers, 2.32 GB": lambda:
        f"are {size(matrices())} a layer. With the rest, {size(both())}; 20 layers, {size(20 * both())}",
    "doubles to 112 MB and the matrices grow to 240 MB: 352 MB a layer, 7.04 GB in all, 3.03 times": lambda:
        f"doubles to {size(fused(2000))} and the matrices grow to {size(matrices(2000))}: {size(both(2000))} a layer, "
        f"{size(20 * both(2000))} in all, {both(2000) / both():.2f} times",
    "it is 3.38 times here, less than 3.55": lambda: "it is {:.2f} times here, less than {:.2f}".format(
        *(saved(model, stack="hf-eager").total / saved(model, sequence=4096, stack="hf-eager").total
          for model in (four_layers(), EIGHT))),
    # estimates
    "At 512 tokens it is 2.7 times too low": lambda:
        f"At 512 tokens it is {saved(sequence=512).total / five_term(512):.1f} times too low",
    "At 8,192 it is 2.6 times too high": lambda:
        f"At 8,192 it is {five_term(8192) / saved().total:.1f} times too high",
    "3.1 times too low for one that writes": lambda: "{:.1f} times too low for one that writes".format(
        saved(stack="hf-eager").total / activations.five_term(EIGHT, sequence=8192).total),
    "327 MB, not an eighth of 856 MB, which would be 107 MB": lambda:
        f"{size(layer())}, not an eighth of {size(layer(tensor=1))}, which would be {size(layer(stack='megatron-sp'))}",
    # the peak
    "The peak is 65.5 GB, 8.4 GB more": lambda: f"The peak is {size(peak())}, {size(peak() - saved().total, 2)} more",
    "the peak is 15.0 GB, and 84 %": lambda: "the peak is {:.1f} GB, and {:.0f} %".format(
        peak(recompute="full") / 1e9, 100 * 12 * 8192 * models.get(EIGHT).vocab / peak(recompute="full")),
    "only 4.33 GB": lambda: f"only {size(moments(recompute='full')['layers backward'].total)}",
    "6.62 GB become 2.42 GB and the peak 5.63 GB; fused, 3.47 GB and 4.59 GB": lambda:
        "{} become {} and the peak {}; fused, {} and {}".format(size(saved(recompute="full").total), *(
            size(nbytes) for loss in ("chunked", "fused")
            for nbytes in (saved(recompute="full", loss=loss).total, peak(recompute="full", loss=loss)))),
    # O
    "287 to 447 MB": lambda: f"{entry('CUDA context').low / 1e6:.0f} to {size(entry('CUDA context').high)}",
    "Keep 1 GiB": lambda: f"Keep {units.format_bytes(entry('CUDA context').margin, binary=True)}",
    "some 0.5 to 0.7 GB": lambda: "some {:.1f} to {:.1f} GB".format(
        fact("software.nccl.group-of-two") / 1e9, fact("software.nccl.group-of-four") / 1e9),
    "15 % on average over eight models, and 33 % at most; a study of 2025 saw 43 % wasted": lambda:
        "{:.0f} % on average over eight models, and {:.0f} % at most; a study of 2025 saw {:.0f} % wasted".format(
            *(100 * fact(f"software.fragmentation.{each}") for each in ("average", "worst", "waste"))),
    "the state's 17.6 GB alone": lambda: f"the state's {size(state(SEVENTY).total / 64)} alone",
    "the largest tensor, 2.1 GB": lambda: f"the largest tensor, {size(entry('gradient accumulation').high)}",
    "15 GB for Llama-3.1-8B": lambda: "{} for Llama-3.1-8B".format(size(next(
        each.low for each in workspace.entries(EIGHT, autocast=True) if each.name == "autocast copies"))),
    "For 70B that is 139 GB": lambda: f"For 70B that is {size(entry('gradients not yet divided').high)}",
    # the message
    "remaining 4.22 GiB": lambda: f"remaining {gib(message().missing)}",
    "together are 49.75 GiB": lambda: f"together are {gib(message().free + message().reserved_unallocated)}",
    # beliefs
    "8B at 2,048 tokens: 57.1 GB": lambda: f"8B at 2,048 tokens: {size(4 * saved(sequence=2048).total)}",
    "14.3 GB": lambda: size(saved(sequence=2048).total),
    "that makes 228 GB at 16,384": lambda: f"that makes {size(4 * saved().total)} at 16,384",
    "it is 114 GB, 2.00 times": lambda:
        f"it is {size(twice().total)}, {twice().total / saved().total:.2f} times",
    "107 MB a layer": lambda: f"{size(layer(stack='megatron-sp'))} a layer",
    "misses by 21 GB over 96 layers": lambda:
        f"misses by {size(96 * (layer() - layer(stack='megatron-sp')), 2)} over 96 layers",
    "it is 327 MB": lambda: f"it is {size(layer())}",
    "57.1 GB over 32 layers would be 1.79 GB. The sum is 6.62 GB, the peak 15.0 GB": lambda:
        "{} over 32 layers would be {}. The sum is {}, the peak {:.1f} GB".format(
            size(saved().total), size(saved().total / 32), size(saved(recompute="full").total),
            peak(recompute="full") / 1e9),
    # the two cases
    "needs 65.5 GB for activations at the peak, or 15.0 GB": lambda:
        f"needs {size(peak())} for activations at the peak, or {peak(recompute='full') / 1e9:.1f} GB",
    "its 128.5 GB of state": lambda: f"its {size(state(EIGHT).total, 4)} of state",
    "273.7 GB of activations": lambda: f"{size(peak(SEVENTY), 4)} of activations",
    "it is 23.89 GB, beside 23.55 GB of state: 47.44 GB. That leaves 32.56 GB": lambda:
        "it is {}, beside {} of state: {}. That leaves {}".format(*(size(each, 4) for each in _cluster())),
    "take 8.54 GB of it": lambda: f"take {size(_margins())} of it",
    "each token takes 6.97 MB, so 80 GB hold some 11,470": lambda:
        f"each token takes {size(saved().total / 8192)}, so {size(card())} hold some {longest():,.0f}",
    # counts and other units
    "some 205,000 tokens": lambda: f"some {round(message().tried / (4 * 76_032), -3):,.0f} tokens",
    "Near 2,600 tokens": lambda: f"Near {right():,} tokens",
    "gradients of their size, 12 bytes": lambda: f"gradients of their size, {3 * 4} bytes",
    "three and a half times the weights": lambda: {3.5: "three and a half times the weights"}[
        round(2 * saved().total / (2 * models.get(EIGHT).parameters)) / 2],
    "matrices grow four times": lambda: {4: "matrices grow four times"}[matrices(2000) / matrices()],
}


def _cluster():
    """Activations at the peak, state, both, and what they leave free on a GPU of the cluster."""
    mine = peak(SEVENTY, recompute="full")
    beside = on_each(64, 3, SEVENTY, gathered=True).total
    return mine, beside, mine + beside, card() - mine - beside


def _margins():
    """What to keep for O on a GPU of the cluster while activations are there and gradients are divided each time."""
    late = ("gradients not yet divided", "temporaries of the update")
    return workspace.inventory(SEVENTY, gpus=64, communicators=2, micro_batches=4).without(*late).total


GIVEN = (
    "58.15 GiB, on a GPU of 139.81 GiB", "What is 58 GiB large", "58.15 GiB in one piece",  # a message, as reported
    "1.6, 16, or 57 GB",  # what the reader may guess
    "(4h + 2h + 4)", "16h + 8", "width 4h",  # hidden sizes, not hours
    "56.0 MB a layer of example 1",
    "can say 70 GB while",  # an example of a report
    "80 GB",  # a GPU
    "Another process holds 3.24 GiB", "has 88.83 GiB", "82.55 + 2.06 GiB",
    "says 2.06 GiB are unallocated",
    # what the examples and questions start from, guesses and beliefs, and how long the chapter takes
    "from 8,192 to 12,288 tokens", "to 16,384 tokens", "At 2,000 tokens", "one sequence of 4,000 tokens",
    "22 billion parameters {cite}", "of 8 billion parameters, built", "one of the 64 GPUs", "on 64 GPUs of 80 GB",
    "one sequence of 8,192 tokens", "Twice as much, or four times?", "is four times the memory",
    "rounded up to 512 bytes",  # torch's allocator
    "keep 6 bytes for a value",  # 4 in fp32 and 2 in bf16
    "Read: 40 minutes. Do: 40 minutes", "with torch: 2 minutes",
)
