"""Questions on weights. Every answer, right or wrong, is computed by the functions the chapter explains.

Each question has a draw function: the numbers of a round, and beside them, as words, what its texts say about them.
"""

from functools import cache

from memtier import models, tiers, units, weights
from memtier.live.course import BILLION
from memtier.live.question import Misconception, Question
from memtier.units import GB, format_bytes, format_count, format_rate, format_time

H100 = "h100-sxm"


# Where the parameters are


def _llama(v) -> models.Model:
    """A model of the Llama family with the drawn shapes."""
    return models.from_config({
        "model_type": "llama", "hidden_size": v["h"], "intermediate_size": v["f"], "num_hidden_layers": v["layers"],
        "num_attention_heads": v["a"], "num_key_value_heads": v["k"], "head_dim": 128, "vocab_size": v["V"],
        "tie_word_embeddings": False})


def _draw_layer(random) -> dict:
    h = random.choice((2048, 3072, 4096, 5120, 8192))
    v = {"h": h, "f": random.choice((3, 4)) * h, "layers": random.choice((16, 24, 32, 40, 48)), "a": h // 128,
         "k": random.choice((4, 8)), "V": 128_000}
    d = 128
    return v | {"d": d, "wide": f"{2 * h * v['a'] * d:,}", "narrow": f"{2 * h * v['k'] * d:,}",
                "mlp": f"{3 * h * v['f']:,}", "total": f"{_layer(v):,}"}


def _layer(v, **changes) -> int:
    """Parameters of one layer."""
    return sum(tensor.numel for tensor in _llama(v | changes).tensors() if tensor.unit == 0)


layer = Question(
    name="weights.layer",
    title="Count one layer",
    draw=_draw_layer,
    prompt="A layer of the Llama kind has hidden size h = {h:,}, {a} query heads and {k} key and value heads of "
           "d = {d} numbers, and a gated feed-forward part of width f = {f:,} (three matrices). **How many parameters "
           "has the layer?** No biases; the two norms have h each, too little to show within 2 %.",
    unit="count",
    tolerance=0.02,
    answer=_layer,
    misconceptions=(
        Misconception(lambda v: _layer(v, k=v["a"]),
                      "You gave every query head its own keys and values. Here {a} query heads share {k}."),
        Misconception(lambda v: _layer(v) - v["h"] * v["f"],
                      "You have two feed-forward matrices. A gated one has three: gate, up and down."),
        Misconception(lambda v: _layer(v, k=v["a"]) - v["h"] * v["f"],
                      "That is 4h² + 2hf, the layer of the original transformer. Heads are shared here, and the "
                      "feed-forward part is gated."),
        Misconception(lambda v: v["layers"] * _layer(v), "That is a whole stack of layers; the question asks for one."),
        Misconception(lambda v: 3 * v["h"] * v["f"], "That is the feed-forward part alone."),
    ),
    hints=(
        "Attention has four matrices: queries and output are h × (heads · d), keys and values are narrower.",
        "The feed-forward part is 3 · h · f = {mlp}.",
    ),
    solution="Queries and output: 2 · h · {a} · {d} = {wide}. Keys and values: 2 · h · {k} · {d} = {narrow}. "
             "Feed-forward: 3 · h · f = {mlp}. With the norms, **{total}**.",
)


# Bits and bytes

BLOCKS = {
    "nvfp4": "NVFP4: 4 bits each, and 8 bits of scale for each 16",
    "mxfp4": "MXFP4: 4 bits each, and 8 bits of scale for each 32",
    "nf4": "NF4: 4 bits each, and 32 bits of scale for each 64",
}


def _draw_blocks(random) -> dict:
    v = {"inside": random.choice((7, 12, 22, 30, 44, 66)) * BILLION, "dtype": random.choice(list(BLOCKS))}
    v["outside"] = random.choice((1, 2)) * BILLION
    each = weights.get(v["dtype"]).bytes_each
    return v | {"matrices": format_count(v["inside"]), "tables": format_count(v["outside"]), "how": BLOCKS[v["dtype"]],
                "bits": f"{8 * each:g}", "each": f"{each:g}", "few": format_bytes(v["inside"] * each),
                "kept": format_bytes(2 * v["outside"]), "total": format_bytes(_stored(v)),
                "times": f"{2 * (v['inside'] + v['outside']) / _stored(v):.2f}"}


def _stored(v) -> float:
    """Bytes: the layers' matrices in the block format, embedding and head in bf16."""
    return v["inside"] * weights.get(v["dtype"]).bytes_each + 2 * v["outside"]


blocks = Question(
    name="weights.blocks",
    title="A 4-bit model",
    draw=_draw_blocks,
    prompt="The layers of a model hold {matrices} parameters, embedding and head {tables} more. The layers are stored "
           "in {how}; embedding and head stay in bf16. **How many bytes are that?**",
    unit="bytes",
    answer=_stored,
    misconceptions=(
        Misconception(lambda v: (v["inside"] + v["outside"]) / 2,
                      "That is a quarter of bf16. Scales cost bytes, and not every part is in 4 bits."),
        Misconception(lambda v: v["inside"] / 2 + 2 * v["outside"],
                      "The scales are missing: each block has one, and it is stored as well."),
        Misconception(lambda v: (v["inside"] + v["outside"]) * weights.get(v["dtype"]).bytes_each,
                      "You put embedding and head into 4 bits too. They stay in bf16, 2 bytes a number."),
        Misconception(lambda v: 2 * (v["inside"] + v["outside"]), "That is all of it in bf16."),
        Misconception(lambda v: v["inside"] * weights.get(v["dtype"]).bytes_each,
                      "Those are the layers. Embedding and head have to be kept somewhere too."),
    ),
    hints=(
        "How many bits does one number of the layers take, with its share of the scale?",
        "{bits} bits, which are {each} bytes.",
    ),
    solution="{bits} bits a number are {each} bytes: {matrices} take {few}. Embedding and head take {kept}. Together "
             "**{total}**, {times} times less than in bf16, not 4.",
)


SEEN = {
    "scales": "the scales of the blocks were left out",
    "kept": "embedding and head stay in bf16",
    "both": "scales were left out, and embedding and head stay in bf16",
    "GiB": "nothing is missing: the tool counts in GiB",
}


def _seen(v, cause: str) -> float:
    """What the tool shows, in the G it counts in, when this is what happened. Predicted was half a byte a number."""
    parameters = v["inside"] + v["outside"]
    each = weights.get("nvfp4").bytes_each if cause in ("scales", "both") else 0.5
    nbytes = v["inside"] * each + v["outside"] * (2 if cause in ("kept", "both") else each)
    return parameters / 2 / units.GiB if cause == "GiB" else nbytes / GB


def _draw_diagnose(random) -> dict:
    v = {"inside": random.choice((7, 10, 13, 28)) * BILLION, "outside": random.choice((1, 2)) * BILLION,
         "cause": random.choice(list(SEEN))}
    others = [f"- {words}: {_seen(v, cause):.2f} G" for cause, words in SEEN.items() if cause != v["cause"]]
    return v | {"size": format_count(v["inside"] + v["outside"]), "tables": format_count(v["outside"]),
                "predicted": f"{(v['inside'] + v['outside']) / 2 / GB:.2f}", "seen": f"{_seen(v, v['cause']):.2f}",
                "what": SEEN[v["cause"]], "others": "\n".join(others)}


diagnose = Question(
    name="weights.diagnose",
    title="Predicted and seen",
    draw=_draw_diagnose,
    prompt="{size} parameters, of which embedding and head are {tables}. \"4 bits, so half a byte each\": you "
           "predicted **{predicted} GB** in NVFP4. The tool shows **{seen} G**. **What explains it?**",
    kind="choice",
    options=SEEN,
    answer=lambda v: v["cause"],
    misconceptions=tuple(
        Misconception(lambda v, cause=cause: cause,
                      lambda v, cause=cause: f"With that, the tool would show {_seen(v, cause):.2f} G.")
        for cause in SEEN),
    hints=(
        "Is it more or less than predicted? Only one of the four makes the number smaller.",
        "A scale of 8 bits for each 16 numbers adds an eighth. What stays in bf16 adds 1.5 bytes a number.",
    ),
    solution="Predicted {predicted}, seen {seen}. That fits: {what}. The others would show:\n\n{others}",
)


# Which GPUs hold them


@cache
def _telling() -> tuple[dict, ...]:
    """Cases in which each belief leads to another number of GPUs than the right one."""
    cases = [{"parameters": size * BILLION, "dtype": dtype, "headroom": headroom, "limit": 80 * GB}
             for size in (104, 132, 180, 236, 314, 405, 480, 671) for dtype in ("bf16", "fp8")
             for headroom in (0.2, 0.25, 0.3)]
    return tuple(v for v in cases if _needed(v) not in (_needed(v, headroom=0.0), _needed(v, limit=_in_gib(v))))


def _in_gib(v) -> float:
    return v["limit"] * units.GiB / GB


def _draw_gpus(random) -> dict:
    v = random.choice(_telling())
    held = weights.inventory(v["parameters"], dtype=v["dtype"]).total
    room = v["limit"] * (1 - v["headroom"])
    return v | {"size": format_count(v["parameters"]), "card": format_bytes(v["limit"]),
                "free": f"{100 * v['headroom']:.0f} %", "total": format_bytes(held), "room": format_bytes(room),
                "ratio": f"{held / room:.2f}", "needed": f"{_needed(v):,}"}


def _needed(v, **changes) -> int:
    asked = {name: (v | changes)[name] for name in ("limit", "headroom", "dtype")}
    return weights.gpus_needed(v["parameters"], **asked)


gpus_needed = Question(
    name="weights.gpus_needed",
    title="How many GPUs hold them",
    draw=_draw_gpus,
    prompt="{size} parameters in {dtype} are to be served on GPUs of {card}. **{free} of each** stay free for KV cache "
           "and workspace. **What is the smallest number of GPUs** that holds the weights, divided evenly?",
    unit="count",
    tolerance=0,
    answer=_needed,
    misconceptions=(
        Misconception(lambda v: _needed(v, headroom=0.0), "Enough for the weights and nothing else. Where would the "
                                                          "first token's keys and values go?"),
        Misconception(lambda v: _needed(v, limit=_in_gib(v)),
                      "You took the memory in GiB. It is given in GB, which are 7 % smaller."),
        Misconception(lambda v: _needed(v) - 1, "One too few: you rounded down."),
        Misconception(lambda v: _needed(v, dtype="fp8" if v["dtype"] == "bf16" else "bf16"),
                      "How many bytes has a number in {dtype}?"),
        Misconception(lambda v: 8 * _needed(v), "A factor of 8: bits and bytes."),
    ),
    hints=(
        "How much of each GPU may weights take?",
        "The weights are {total}, and {room} of each GPU are theirs.",
    ),
    solution="{total} ÷ {room} = {ratio}, so **{needed}**. Tensor parallelism usually wants a power of two; going up "
             "to the next one leaves more room for the cache.",
)


# What a token reads


def _draw_experts(random) -> dict:
    v = {"experts": random.choice((8, 12, 16)), "per_token": random.choice((1, 2, 4)),
         "each": random.choice((1, 2, 3)) * BILLION, "shared": random.choice((2, 3, 4)) * BILLION}
    held = v["experts"] * v["each"] + v["shared"]
    return v | {"one": format_count(v["each"]), "rest": format_count(v["shared"]),
                "name": f"{v['experts']}x{(v['each'] + v['shared']) // BILLION}B",
                "held": format_bytes(2 * held), "active": format_count(_active(v)),
                "read": format_bytes(2 * _active(v))}


def _active(v) -> int:
    return v["per_token"] * v["each"] + v["shared"]


experts = Question(
    name="weights.experts",
    title="What a mixture holds",
    draw=_draw_experts,
    prompt="A mixture of experts is sold as \"{name}\". Over all its layers each of its {experts} experts has {one} "
           "parameters; attention, embedding and head, {rest}, exist once. A token is sent to {per_token} experts. "
           "**How many bytes must be held in bf16** to serve it?",
    unit="bytes",
    answer=lambda v: 2 * (v["experts"] * v["each"] + v["shared"]),
    misconceptions=(
        Misconception(lambda v: 2 * v["experts"] * (v["each"] + v["shared"]),
                      "You multiplied the name. Attention, embedding and head are shared: they exist once."),
        Misconception(lambda v: 2 * _active(v),
                      "That is what one token reads. The next token is sent elsewhere, so all experts must be there."),
        Misconception(lambda v: 2 * v["experts"] * v["each"], "Those are the experts. What every token passes is "
                                                             "missing."),
        Misconception(lambda v: v["experts"] * v["each"] + v["shared"], "That is their number. bf16 has 2 bytes each."),
    ),
    hints=(
        "Which parameters exist once, and which {experts} times?",
        "A token reads {per_token} experts, but which ones changes from token to token.",
    ),
    solution="{experts} × {one} + {rest}, times 2 bytes: **{held}**. A single token passes only {active} parameters, "
             "{read}: capacity is paid for all experts, bandwidth for some.",
)


def _draw_estimate(random) -> dict:
    v = {"parameters": random.choice((3, 4, 7, 8, 12, 14, 32)) * BILLION,
         "gpu": random.choice(("a100-sxm", "h100-sxm", "h200-sxm", "b200")), "dtype": random.choice(("bf16", "fp8"))}
    gpu = tiers.accelerator(v["gpu"])
    return v | {"size": format_count(v["parameters"]), "card": gpu.title, "rate": format_rate(gpu.memory.read),
                "bytes": format_bytes(weights.inventory(v["parameters"], dtype=v["dtype"]).total),
                "step": format_time(_step(v).seconds), "answer": f"{round(_step(v).tokens_per_second):,}"}


def _step(v) -> weights.Decode:
    return weights.decode(v["parameters"], accelerator=v["gpu"], dtype=v["dtype"])


estimate = Question(
    name="weights.estimate",
    title="One figure, no tool",
    draw=_draw_estimate,
    prompt="In your head: {size} parameters in {dtype} on an {card}, whose memory reads {rate}. **About how many "
           "tokens a second can one user get at most?** Within 20 % is right.",
    unit="count",
    tolerance=0.2,
    answer=lambda v: round(_step(v).tokens_per_second),
    misconceptions=(
        Misconception(lambda v: round(1 / _step(v).compute_seconds),
                      "You divided the FLOP/s. One user keeps the arithmetic units idle; the memory sets the pace."),
        Misconception(lambda v: round(10 * _step(v).tokens_per_second), "A power of ten too many."),
        Misconception(lambda v: round(_step(v).tokens_per_second / 10), "A power of ten too few."),
        Misconception(lambda v: round(_step(v).tokens_per_second * (2 if v["dtype"] == "bf16" else 0.5)),
                      "A factor of two: how many bytes has a number in {dtype}?"),
    ),
    hints=(
        "For each token every weight is read once. How many bytes are that?",
        "Divide the memory's rate by {bytes}.",
    ),
    solution="{bytes} at {rate} are {step}, so at most **{answer}** tokens/s. A ceiling: the KV cache, kernels that "
             "wait, and the network come on top.",
)


def _draw_turn(random) -> dict:
    v = {"gpu": random.choice(("a100-sxm", "h100-sxm", "h200-sxm", "b200", "mi300x", "gaudi3", "trainium2")),
         "dtype": random.choice(("fp32", "bf16", "fp8"))}
    gpu, each = tiers.accelerator(v["gpu"]), weights.get(v["dtype"]).bytes_each
    return v | {"card": gpu.title, "rate": format_rate(gpu.memory.read), "flops": f"{gpu.flops / 1e12:,.0f} TFLOP/s",
                "ridge": f"{tiers.ridge_point(gpu.flops, gpu.memory.read):.1f}", "each": f"{each:g}",
                "size": "1 byte" if each == 1 else f"{each:g} bytes", "half": f"{each / 2:g}",
                "answer": f"{_turn(v):,}"}


def _turn(v, dtype=None) -> int:
    return weights.memory_bound_until(70e9, accelerator=v["gpu"], dtype=dtype or v["dtype"])


turn = Question(
    name="weights.turn",
    title="Until which batch users are free",
    draw=_draw_turn,
    prompt="An {card} reads {rate} and computes {flops}, whatever format the weights are stored in. The weights are "
           "{dtype}, {size} a number; the KV cache is left aside. **From which batch on does computing take as "
           "long as reading?** (The size of the model is not needed. Why not?)",
    unit="count",
    tolerance=0.02,
    answer=_turn,
    misconceptions=(
        Misconception(lambda v: _turn(v, "fp8" if v["dtype"] == "fp32" else "fp32"),
                      "Half the bytes are read in half the time: the batch goes with the bytes, {size} a number, over "
                      "2 FLOPs."),
        Misconception(lambda v: 2 * _turn(v), "A factor of two: each weight is multiplied and added, 2 FLOPs a token."),
        Misconception(lambda v: round(_turn(v) / 2),
                      "A factor of two: each weight is multiplied and added, 2 FLOPs a token."),
        Misconception(lambda v: 1, "With one user the memory sets the pace by far: intensity is near 1."),
    ),
    hints=(
        "Reading takes P · bytes / B. Computing takes 2 · P · batch / F. Set them equal.",
        "The ridge point, F / B, is {ridge} FLOPs a byte.",
    ),
    solution="P · {each} / B = 2 · P · b / F, so b = (F / B) · {each} / 2 = {ridge} × {half}, which makes **{answer}** "
             "the first whole batch. P cancels. Below it, another user costs no time.",
)


# Design

PLANS = {
    "bf16-1": ("bf16", 1), "bf16-2": ("bf16", 2), "fp8-1": ("fp8", 1), "fp8-2": ("fp8", 2), "nvfp4-1": ("nvfp4", 1),
}
WORDS = {plan: f"{dtype} on {gpus} GPU{'s' if gpus > 1 else ''}" for plan, (dtype, gpus) in PLANS.items()}


def _plan(v, plan: str) -> tuple[float, float]:
    """Bytes on each GPU, and tokens a second for one user."""
    dtype, gpus = PLANS[plan]
    step = weights.decode(v["model"], accelerator=H100, gpus=gpus, dtype=dtype)
    return weights.inventory(v["model"], dtype=dtype).total / gpus, step.tokens_per_second


def _works(v, plan: str) -> bool:
    nbytes, rate = _plan(v, plan)
    return nbytes <= v["room"] and rate >= v["rate"]


def _fitting(v) -> frozenset:
    return frozenset(plan for plan in PLANS if _works(v, plan))


def _draw_design(random) -> dict:
    v = {"model": random.choice(("qwen2.5-72b", "llama-3.1-70b")), "free": random.choice((4, 8, 12)) * GB,
         "rate": random.choice((40, 50))}
    v["room"] = tiers.accelerator(H100).memory.capacity - v["free"]
    lines = []
    for plan, words in WORDS.items():
        nbytes, rate = _plan(v, plan)
        lines.append(f"- {words}: {format_bytes(nbytes)} on each, {rate:.0f} tokens/s, "
                     f"{'works' if _works(v, plan) else 'does not'}")
    return v | {"spare": format_bytes(v["free"]), "left": format_bytes(v["room"]), "lines": "\n".join(lines)}


design = Question(
    name="weights.design",
    title="Several that work, defend one",
    draw=_draw_design,
    prompt="`{model}` is to be served on H100s of 80 GB. At least {spare} of each must stay free, and reading the "
           "weights must allow a single user {rate} tokens/s. **Which of these plans work?** Then choose one and "
           "defend it in a sentence.",
    kind="multiple",
    options=WORDS,
    answer=_fitting,
    misconceptions=(
        Misconception(lambda v: frozenset(PLANS), "Not all of them: check what stands on each GPU, and how long one "
                                                  "reading takes."),
        Misconception(lambda v: frozenset({"bf16-2", "fp8-2"}),
                      "Two GPUs are not the only way: what do fewer bits do to the bytes and to the reading?"),
        Misconception(lambda v: frozenset({"fp8-1", "nvfp4-1"}),
                      "One GPU may do, but two read twice as fast and hold twice as much. Check each plan on its own."),
        Misconception(lambda v: frozenset({"nvfp4-1"}), "It works, and it is the smallest, but not the only one."),
    ),
    hints=(
        "For each plan: bytes on each GPU, and bytes over bandwidth.",
        "At most {left} of each GPU may be taken.",
    ),
    solution="On each GPU at most {left}, and at least {rate} tokens/s:\n\n{lines}\n\nMore than one works, so these "
             "two numbers do not decide. Two GPUs cost twice as much and leave room for the caches of many users. "
             "NVFP4 is smallest, and whether its answers are still good enough has to be measured. A good defence "
             "names what the choice costs.",
)
