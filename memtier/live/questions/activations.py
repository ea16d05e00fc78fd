"""Questions on activations. Every answer, right or wrong, is computed by the functions the chapter explains.

Each question has a draw function: the numbers of a round, and beside them, as words, what its texts say about them.
"""

from functools import cache
from itertools import pairwise

from memtier import activations, models, workspace
from memtier.inventory import Inventory
from memtier.layout import Layout
from memtier.live.question import Misconception, Question
from memtier.units import format_bytes, format_time

DENSE = ("llama-3.2-1b", "llama-3.1-8b", "mistral-7b", "qwen2.5-7b", "qwen3-8b", "llama-3.1-70b")
SEQUENCES = (1024, 2048, 4096, 8192)


@cache
def _saved(model: str, **how) -> Inventory:
    return activations.saved(models.get(model), **how)


def _kept(v, **other) -> int:
    """Bytes kept under the values of a round: those that `saved` takes, and what is put in their place."""
    asked = {name: v[name] for name in ("model", "batch", "sequence", "stack", "recompute") if name in v} | other
    return _saved(**asked).total


def _model(name: str) -> models.Model:
    return models.get(name)


# How much, and what of it


def _draw_half(random) -> dict:
    v = {"model": random.choice(DENSE), "batch": random.choice((2, 4, 6, 8)), "sequence": random.choice(SEQUENCES)}
    model, n = _model(v["model"]), v["batch"] * v["sequence"]
    return v | {"tokens": f"{v['sequence']:,}", "all": f"{n:,}", "layers": model.layers, "hidden": f"{model.hidden:,}",
                "inputs": format_bytes(2 * model.layers * n * model.hidden), "everything": format_bytes(_kept(v)),
                "base": format_bytes(_outside(v)), "total": format_bytes(_kept(v, recompute="full"))}


def _outside(v) -> int:
    """Bytes that full recomputation keeps outside the layers."""
    kept = _saved(v["model"], batch=v["batch"], sequence=v["sequence"], recompute="full")
    return kept.total - kept["layer inputs"]


left = Question(
    name="activations.left",
    title="What recomputation leaves",
    draw=_draw_half,
    prompt="{model} ({layers} layers, hidden size {hidden}) trains in bf16 on {batch} sequences of {tokens} tokens. "
           "With nothing recomputed the forward pass keeps {everything}. Outside its layers (embedding, last norm, "
           "head, loss) it keeps {base}. **How much is kept under full recomputation**, where each layer keeps its "
           "input alone?",
    unit="bytes",
    answer=lambda v: _kept(v, recompute="full"),
    misconceptions=(
        Misconception(lambda v: _kept(v, recompute="full") - _outside(v),
                      "Those are the inputs of the layers. What lies outside the layers is kept as before."),
        Misconception(lambda v: _outside(v),
                      "That is what lies outside the layers. To compute a layer again, its input is needed."),
        Misconception(lambda v: _outside(v) + (_kept(v, recompute="full") - _outside(v)) // _model(v["model"]).layers,
                      "You kept the input of one layer. Every layer keeps its own until the backward pass reaches it."),
        Misconception(lambda v: _kept(v) / _model(v["model"]).layers,
                      "One layer's share of all that is kept: that is about what the layer now being computed again "
                      "takes, for a moment. It is not what waits."),
    ),
    hints=(
        "A layer's input is one number for each token and hidden dimension, 2 bytes each.",
        "There are {all} tokens. The inputs of all layers together are {inputs}.",
    ),
    solution="{layers} layers × {all} tokens × {hidden} numbers × 2 bytes = {inputs}. Outside the layers nothing "
             "changes: {base}. Together **{total}**, of {everything}.",
)


def _draw_doubling(random) -> dict:
    v = {"model": random.choice(DENSE), "sequence": random.choice((512, *SEQUENCES)), "stack": "hf-eager"}
    kept, squares = _saved(**v), _squares(v)
    grown = _kept(v, sequence=2 * v["sequence"])
    return v | {"batch": 1, "tokens": f"{v['sequence']:,}", "double": f"{2 * v['sequence']:,}",
                "kept": format_bytes(kept.total), "squares": format_bytes(squares),
                "rest": format_bytes(kept.total - squares),
                "grown": format_bytes(grown), "times": f"{_grown(v):g}"}


def _grown(v) -> float:
    """How many times as much is kept for twice the tokens, to two decimals."""
    return round(_kept(v, sequence=2 * v["sequence"]) / _kept(v), 2)


def _squares(v) -> int:
    """Bytes of the s × s matrices."""
    return _saved(v["model"], batch=1, sequence=v["sequence"], stack="hf-eager")["attention probabilities"]


doubling = Question(
    name="activations.doubling",
    title="Twice the sequence",
    draw=_draw_doubling,
    prompt="{model}, one sequence of {tokens} tokens, attention written out (eager), nothing recomputed: {kept} are "
           "kept, of which {squares} are s × s matrices. You go to {double} tokens. **How many times as much is "
           "kept?**",
    answer=_grown,
    misconceptions=(
        Misconception(lambda v: 4, "Only the s × s matrices grow four times. Everything else grows with the tokens."),
        Misconception(lambda v: 2, "That is right for fused attention, which keeps no s × s matrix. Here they are "
                                   "written out, and they grow with the square."),
        Misconception(lambda v: _kept(v) / _kept(v, sequence=2 * v["sequence"]), "The other way round: new over old."),
    ),
    hints=(
        "Take the two parts one by one. Which factor does each grow by?",
        "{squares} grow four times, {rest} twice.",
    ),
    solution="4 × {squares} + 2 × {rest} = {grown}. Over {kept}: **{times}** times. With fused attention it would be "
             "2.00 times: the stack decides.",
)


def _draw_micro(random) -> dict:
    v = {"model": random.choice(DENSE), "batch": random.choice((1, 2)), "sequence": random.choice(SEQUENCES),
         "steps": random.choice((4, 8, 16, 32))}
    return v | {"tokens": f"{v['sequence']:,}", "one": format_bytes(_kept(v)),
                "all": format_bytes(v["steps"] * _kept(v)), "whole": f"{v['batch'] * v['steps']}",
                "inputs": format_bytes(_kept(v, recompute="full"))}


micro_batches = Question(
    name="activations.micro_batches",
    title="Gradients added up",
    draw=_draw_micro,
    prompt="{model} in bf16, {batch} × {tokens} tokens, nothing recomputed, fused attention. If all {whole} sequences "
           "of a batch went through the model together, {all} would be kept. Instead **{steps} micro-batches** go one "
           "after the other, each with its backward pass, and their gradients are added up. **How many bytes of "
           "activations are kept at most?**",
    unit="bytes",
    answer=_kept,
    misconceptions=(
        Misconception(lambda v: v["steps"] * _kept(v),
                      "The backward pass of a micro-batch frees its activations before the next one begins. Only "
                      "gradients are carried over."),
        Misconception(lambda v: 2 * _kept(v), "When the second micro-batch begins, the first has been freed: one at a "
                                              "time."),
        Misconception(lambda v: _kept(v, recompute="full"),
                      "That would be with full recomputation. Adding gradients up recomputes nothing."),
    ),
    hints=(
        "When is an activation freed? Before or after the next micro-batch's forward pass?",
        "How many of the {steps} micro-batches have their activations in memory at the same time?",
    ),
    solution="One micro-batch is in flight at a time: {all} ÷ {steps} = **{one}**. What is carried from one to the "
             "next is a gradient for each parameter, however many micro-batches there are.",
)


def _draw_loss(random) -> dict:
    v = {"model": random.choice(("llama-3.1-8b", "qwen2.5-7b", "gemma-2-9b", "mistral-7b", "gpt2-xl")),
         "tokens": 1024 * random.choice((2, 4, 8, 16, 24))}
    vocab = _model(v["model"]).vocab
    return v | {"n": f"{v['tokens']:,}", "words": f"{vocab:,}", "answer": format_bytes(_log_probabilities(v)),
                "logits": format_bytes(2 * v["tokens"] * vocab)}


def _log_probabilities(v, nbytes: int = 4) -> int:
    return nbytes * v["tokens"] * _model(v["model"]).vocab


loss = Question(
    name="activations.loss",
    title="The loss's own share",
    draw=_draw_loss,
    prompt="An estimate, in your head: {model} has a vocabulary of {words}. The cross-entropy keeps a row of fp32 "
           "log-probabilities for each token until the backward pass. **How much is that for {n} tokens?** (5 % is "
           "close enough.)",
    unit="bytes",
    tolerance=0.05,
    answer=_log_probabilities,
    misconceptions=(
        Misconception(lambda v: _log_probabilities(v, 2), "You took bf16. The logits come in bf16, but the "
                                                          "log-probabilities are computed and kept in fp32."),
        Misconception(lambda v: 4 * v["tokens"] * _model(v["model"]).hidden,
                      "That is a row as wide as the hidden size. The loss's row has a number for each word."),
        Misconception(lambda v: 4 * v["tokens"],
                      "One number for each token: that is the loss itself. The backward pass needs the whole row."),
    ),
    hints=(
        "Tokens × words × bytes. Round both to one digit and put the powers of ten together.",
        "In bf16 it would be {logits}.",
    ),
    solution="{n} tokens × {words} words × 4 bytes: **{answer}**. No recomputation of layers makes it smaller; a loss "
             "computed in chunks does.",
)


# Which stack, which split


GPTS = {"22B": (6144, 64), "175B": (12_288, 96), "530B": (20_480, 128), "1T": (25_600, 160)}  # hidden size, heads
AROUND = ("embedding dropout", "head input", "logits")


@cache
def _gpt(hidden: int, heads: int) -> models.Model:
    """One block of this size; Korthikanti et al. (2022) name the models of Table 3 so."""
    return models.from_config({"model_type": "gpt2", "n_embd": hidden, "n_head": heads, "n_layer": 1,
                               "n_positions": 2048, "vocab_size": 51_200})


@cache
def _layer(size: str, batch: int, tensor: int, stack: str = "megatron", recompute: str = "selective") -> float:
    """Bytes one layer keeps on each GPU: what is kept around the layers is taken off again."""
    kept = activations.saved(_gpt(*GPTS[size]), batch=batch, sequence=2048, stack=stack, recompute=recompute,
                             layout=Layout(tensor=tensor))
    return kept.without(*(name for name in AROUND if name in kept)).total


def _draw_tensor(random) -> dict:
    v = {"size": random.choice(list(GPTS)), "batch": random.choice((1, 2, 4)), "tensor": random.choice((2, 4, 8))}
    hidden, _ = GPTS[v["size"]]
    unit = 2048 * v["batch"] * hidden
    return v | {"hidden": f"{hidden:,}", "sbh": format_bytes(unit), "whole": format_bytes(10 * unit),
                "split": format_bytes(24 * unit / v["tensor"]), "layer": format_bytes(_layer(**_of(v))),
                "alone": format_bytes(_layer(**_of(v) | {"tensor": 1})),
                "sp": format_bytes(_layer(**_of(v), stack="megatron-sp"))}


def _of(v) -> dict:
    return {name: v[name] for name in ("size", "batch", "tensor")}


tensor_parallel = Question(
    name="activations.tensor_parallel",
    title="What tensor parallelism divides",
    draw=_draw_tensor,
    prompt="One layer of a GPT of {size} parameters (hidden size {hidden}, 2,048 tokens, {batch} in a batch), in "
           "Megatron with selective recomputation, keeps {alone}: 34·s·b·h. Of the 34, 24 belong to attention and MLP; "
           "10 are the inputs of norms, attention and MLP, and two dropout masks. Now {tensor} GPUs share the layer by "
           "tensor parallelism, without sequence parallelism. **How much does each keep?**",
    unit="bytes",
    answer=lambda v: _layer(**_of(v)),
    misconceptions=(
        Misconception(lambda v: _layer(**_of(v), stack="megatron-sp"),
                      "You divided everything. That takes sequence parallelism too; without it the 10 are whole on "
                      "every GPU."),
        Misconception(lambda v: _layer(**_of(v) | {"tensor": 1}),
                      "Nothing divided: that is one GPU alone. Tensor parallelism does divide what lies inside "
                      "attention and MLP."),
        Misconception(lambda v: _layer(**_of(v), recompute="none"),
                      "You kept the s × s matrices of attention. Selective recomputation drops them."),
        Misconception(lambda v: _layer(**_of(v), stack="megatron-sp") * 24 / 34,
                      "Those are the 24, divided. The 10 are kept as well, undivided."),
    ),
    hints=(
        "Divide what lies inside attention and MLP by the number of GPUs. What of the rest?",
        "s·b·h is {sbh}: the 10 of them are {whole}, on every GPU.",
    ),
    solution="(10 + 24/{tensor})·s·b·h = {whole} + {split} = **{layer}**. Everything divided, {sp}, is what sequence "
             "parallelism adds. Korthikanti et al. (2022), Table 2.",
)


# Compute and time


def _draw_compute(random) -> dict:
    v = {"size": random.choice((7, 13, 30, 70)), "seconds": random.choice((3, 6, 9, 12, 15, 18, 24, 30))}
    return v | {"before": format_time(v["seconds"]), "after": format_time(_slower(v)),
                "each": format_time(v["seconds"] / 3), "backward": format_time(2 * v["seconds"] / 3)}


def _slower(v) -> float:
    return v["seconds"] * 8 / 6


compute = Question(
    name="activations.compute",
    title="What recomputation costs",
    draw=_draw_compute,
    prompt="A step of a model of {size} billion parameters takes {before}, and nothing but arithmetic limits it: 2P "
           "FLOPs a token forward and 4P backward. **How long does it take with full recomputation?** (Count 2P for "
           "what is computed again.)",
    unit="s",
    answer=_slower,
    misconceptions=(
        Misconception(lambda v: 2 * v["seconds"],
                      "You doubled everything. Only the forward pass is repeated, and that is a third of the step."),
        Misconception(lambda v: 1.5 * v["seconds"],
                      "You took the forward pass for half of the step. The backward pass computes twice as much."),
        Misconception(lambda v: 5 / 3 * v["seconds"],
                      "You repeated a backward pass, 4P. It is the forward pass that runs again."),
        Misconception(lambda v: v["seconds"], "Less memory is not free: what was not kept is computed again."),
    ),
    hints=(
        "How is the step shared out between its passes? Which of them runs twice?",
        "The forward pass takes {each}, the backward pass {backward}.",
    ),
    solution="2P + 4P becomes 2P + 2P + 4P: 8P ÷ 6P = 1.33 times. {before} + {each} = **{after}**. On real hardware "
             "Korthikanti et al. measured 1.39 times for one layer.",
)


# Two meanings, and what went wrong


TRAITS = {
    "memory": "lowers the peak of GPU memory within a step",
    "flops": "costs FLOPs in every step",
    "restart": "lets the run go on after the node has died",
    "storage": "needs storage bandwidth",
    "forgotten": "leaves nothing behind once the step has ended",
    "durable": "records weights and optimizer state",
}
MEANINGS = {"a setting called `gradient_checkpointing`": {"memory", "flops", "forgotten"},
            "a function called `save_checkpoint`": {"restart", "storage", "durable"}}


def _draw_meaning(random) -> dict:
    what = random.choice(list(MEANINGS))
    return {"what": what, "traits": "; ".join(words for trait, words in TRAITS.items() if trait in MEANINGS[what])}


two_meanings = Question(
    name="activations.two_meanings",
    title="One word, two things",
    draw=_draw_meaning,
    prompt="A training script has {what}. **What is true of what it does?**",
    kind="multiple",
    options=TRAITS,
    answer=lambda v: frozenset(MEANINGS[v["what"]]),
    misconceptions=(
        Misconception(lambda v: frozenset(TRAITS) - MEANINGS[v["what"]],
                      "That is the other thing called checkpoint. One keeps a few activations of a step; one writes "
                      "down a run."),
        Misconception(lambda v: frozenset(TRAITS), "Nothing does all of that: two things share the word."),
        Misconception(lambda v: frozenset(MEANINGS[v["what"]]) - {"flops", "storage"},
                      "And what does it cost? One of the two pays in arithmetic, the other in bytes written."),
    ),
    hints=(
        "Ask what is left of it after a power cut.",
        "One works inside a step and pays with arithmetic. The other works between steps and pays with bytes written.",
    ),
    solution="It {traits}. Saving an activation is not saving a run: after a failure nothing of it is left.",
)


FAULTS = {
    "eager": "attention ran written out, not fused",
    "padding": "a batch with padding brought a mask to every layer",
    "fp32": "activations are in fp32",
    "recompute": "recomputation was switched on, but never took effect",
    "graph": "losses are added up with their graphs, and two micro-batches are alive",
}


def _of_fault(v, fault: str) -> float:
    """Bytes kept when this is what happened; what was predicted is full recomputation, fused attention, bf16."""
    how = {"model": v["model"], "batch": v["batch"], "sequence": v["sequence"]}
    if fault == "recompute":
        return _saved(**how).total
    if fault == "graph":
        return 2 * _saved(**how, recompute=v["recompute"]).total
    other = {"eager": {"stack": "hf-eager"}, "padding": {"stack": "hf-sdpa-masked"}, "fp32": {"dtype": "fp32"}}
    return _saved(**how, recompute=v["recompute"], **other[fault]).total


def _faults(v) -> list[str]:
    """Those that show: recomputation that was not asked for cannot be missing, and under it attention keeps nothing."""
    shown = ("recompute", "fp32", "graph") if v["recompute"] == "full" else ("eager", "padding", "fp32", "graph")
    return [fault for fault in FAULTS if fault in shown]


def _draw_diagnose(random) -> dict:
    v = {"model": random.choice(("llama-3.2-1b", "llama-3.1-8b", "mistral-7b", "qwen2.5-7b")),
         "batch": random.choice((2, 4)), "sequence": random.choice((2048, 4096)),  # at 1,024 two faults look alike
         "recompute": random.choice(("none", "full"))}
    v["fault"] = random.choice(_faults(v))
    others = [f"- {FAULTS[fault]}: {format_bytes(_of_fault(v, fault))}" for fault in _faults(v) if fault != v["fault"]]
    return v | {"tokens": f"{v['sequence']:,}", "predicted": format_bytes(_kept(v, recompute=v["recompute"])),
                "seen": format_bytes(_of_fault(v, v["fault"])), "what": FAULTS[v["fault"]], "others": "\n".join(others),
                "more": f"{_of_fault(v, v['fault']) / _kept(v, recompute=v['recompute']):.2f}",
                "how": {"none": "nothing recomputed", "full": "full recomputation"}[v["recompute"]]}


def _told(v, fault: str) -> str:
    if fault not in _faults(v):
        return ("No recomputation was asked for." if fault == "recompute" else
                "Inside a layer that is computed again, attention keeps nothing until its turn comes.")
    return f"With that, {format_bytes(_of_fault(v, fault))} would be kept."


diagnose = Question(
    name="activations.diagnose",
    title="Predicted and seen",
    draw=_draw_diagnose,
    prompt="{model}, {batch} × {tokens} tokens, bf16, fused attention without a mask, {how}: you predicted that the "
           "forward pass keeps **{predicted}**. torch shows **{seen}** of activations when it has ended. **What "
           "explains it?**",
    kind="choice",
    options=FAULTS,
    answer=lambda v: v["fault"],
    misconceptions=tuple(Misconception(lambda v, fault=fault: fault, lambda v, fault=fault: _told(v, fault))
                         for fault in FAULTS),
    hints=(
        "Divide what was seen by what was predicted. What multiplies everything, and what only a part of it?",
        "It is {more} times the prediction.",
    ),
    solution="Predicted {predicted}, seen {seen}, {more} times as much. That fits: {what}. The others would "
             "show:\n\n{others}",
)


# Reading an out-of-memory message


def _message(v) -> str:
    """torch's message with the numbers of a round, which are in GiB."""
    others = f"Process 4242 has {v['others']:.2f} GiB memory in use. " if v["others"] else ""
    return (f"CUDA out of memory. Tried to allocate {v['tried']:.2f} GiB. GPU 0 has a total capacity of "
            f"{v['capacity']:.2f} GiB of which {v['free']:.2f} GiB is free. {others}Including non-PyTorch memory, this "
            f"process has {v['process']:.2f} GiB memory in use. Of the allocated memory {v['allocated']:.2f} GiB is "
            f"allocated by PyTorch, and {v['pieces']:.2f} GiB is reserved by PyTorch but unallocated.")


def _draw_message(random) -> dict:
    """A message of a GPU of 80 GB; `cause` says what filled it."""
    cause = random.choice(list(REMEDIES))
    v = {"capacity": 79.10, "free": random.randint(30, 260) / 100, "outside": random.randint(60, 420) / 100,
         "others": random.randint(1200, 2400) / 100 if cause == "others" else 0,
         "pieces": random.randint(700, 1400) / 100 if cause == "pieces" else random.randint(20, 90) / 100}
    v["process"] = round(v["capacity"] - v["free"] - v["others"], 2)
    v["allocated"] = round(v["process"] - v["outside"] - v["pieces"], 2)
    v["tried"] = round(v["free"] + random.randint(150, 400) / 100, 2)
    read = workspace.read_message(_message(v))
    return v | {"cause": cause, "what": REMEDIES[cause], "message": _message(v), "reserved": _gib(read.reserved, 4),
                "all": _gib(read.process, 4), "missing": _gib(read.missing), "why": WHY[cause].format(
                    tried=_gib(read.tried), free=_gib(read.free), pieces=_gib(read.reserved_unallocated),
                    others=_gib(sum(nbytes for _, nbytes in read.others)), allocated=_gib(read.allocated))}


def _gib(nbytes: float, digits: int = 3) -> str:
    return format_bytes(nbytes, binary=True, digits=digits)


def _read(v) -> workspace.OutOfMemory:
    return workspace.read_message(_message(v))


REMEDIES = {
    "pieces": "setting expandable_segments:True",
    "others": "ending another process",
    "tensors": "keeping less in tensors: a smaller micro-batch, or recomputation",
}
WHY = {
    "pieces": "{free} free and {pieces} reserved but unallocated are more than the {tried} that were tried; they are "
              "not in one piece",
    "others": "{others} belong to a process that is not this one, and only {tried} were tried",
    "tensors": "free and unallocated memory together are less than the {tried} that were tried, no other process is "
               "there, and {allocated} are in tensors",
}


message = Question(
    name="activations.message",
    title="Reading the message",
    draw=_draw_message,
    prompt="A training job dies with this message:\n\n{message}\n\n**How much of the GPU does this process hold that "
           "is not PyTorch's at all**: CUDA context, libraries, communication buffers?",
    unit="binary bytes",
    answer=lambda v: _read(v).missing,
    misconceptions=(
        Misconception(lambda v: _read(v).process - _read(v).allocated,
                      "That still counts what PyTorch has reserved and not given to a tensor. It is PyTorch's too."),
        Misconception(lambda v: _read(v).reserved_unallocated,
                      "That is what PyTorch keeps in reserve: its own memory, in pieces no tensor fits."),
        Misconception(lambda v: _read(v).capacity - _read(v).allocated,
                      "You took everything that is not in a tensor, free memory and PyTorch's reserve too."),
    ),
    hints=(
        "What does the process hold in all? How much of that has PyTorch reserved?",
        "Reserved is allocated plus unallocated: {reserved}.",
    ),
    solution="The process has {all}. PyTorch reserved allocated + unallocated = {reserved}. The rest, **{missing}**, "
             "is in no line of PyTorch's own report.",
)

remedy = Question(
    name="activations.remedy",
    title="What would help",
    draw=_draw_message,
    prompt="A training job dies with this message:\n\n{message}\n\n**What do you try first?** It must be enough to let "
           "the job go on; of two that are, take the one that costs no arithmetic and no throughput.",
    kind="choice",
    options=REMEDIES,
    answer=lambda v: v["cause"],
    misconceptions=(
        Misconception(lambda v: "pieces", "Are free memory and what is reserved but unallocated together as large as "
                                          "what was tried?"),
        Misconception(lambda v: "others", "The message names every process it can see. How much does another hold?"),
        Misconception(lambda v: "tensors", "That works, and it has a price. Something here would be free."),
    ),
    hints=(
        "Three places to look: another process, the pieces PyTorch keeps, the tensors.",
        "Compare what was tried with free memory and unallocated memory together.",
    ),
    solution="Best is {what}: {why}.",
)


PLANS = {
    "as it is": ("nothing recomputed", {}),
    "selective": ("selective recomputation", {"recompute": "selective"}),
    "full": ("full recomputation", {"recompute": "full"}),
    "half": ("half as many sequences at a time, twice as many micro-batches", {"batch": 0.5}),
    "eager": ("attention written out, with full recomputation", {"stack": "hf-eager", "recompute": "full"}),
}


def _plan(v, plan: str) -> int:
    """Bytes at the fullest moment of the step under a plan."""
    how = dict(PLANS[plan][1])
    how["batch"] = int(v["batch"] * how.get("batch", 1))
    return _peak(v["model"], sequence=v["sequence"], **how)


@cache
def _peak(model: str, **how) -> int:
    return activations.peak(models.get(model), **how).total


def _fitting(v) -> frozenset:
    return frozenset(plan for plan in PLANS if _plan(v, plan) <= v["room"])


def _rooms(v) -> list[int]:
    """Bytes between the needs of two plans that are well apart, so that two plans or more fit and one does not."""
    needs = sorted(_plan(v, plan) for plan in PLANS)
    return [round((low + high) / 2, -8) for low, high in pairwise(needs[1:]) if high > 1.15 * low]


def _draw_design(random) -> dict:
    v = {"model": random.choice(("llama-3.2-1b", "llama-3.1-8b", "qwen2.5-7b")), "batch": random.choice((2, 4)),
         "sequence": random.choice((2048, 4096))}
    v["room"] = int(random.choice(_rooms(v)))
    lines = [f"- {words}: {format_bytes(_plan(v, plan))}, {'fits' if plan in _fitting(v) else 'does not fit'}"
             for plan, (words, _) in PLANS.items()]
    return v | {"tokens": f"{v['sequence']:,}", "free": format_bytes(v["room"]), "lines": "\n".join(lines),
                "fits": "; ".join(PLANS[plan][0] for plan in PLANS if plan in _fitting(v)),
                "now": format_bytes(_plan(v, "as it is")), "selective": format_bytes(_plan(v, "selective"))}


design = Question(
    name="activations.design",
    title="Several that work, defend one",
    draw=_draw_design,
    prompt="{model} trains in bf16 on {batch} × {tokens} tokens at a time, with fused attention. The activations of a "
           "step reach {now}, the loss's moment included, and {selective} with selective recomputation; {free} are "
           "free for them. **Which of these fit?** Then choose one and defend it in a sentence.",
    kind="multiple",
    options={plan: words for plan, (words, _) in PLANS.items()},
    answer=_fitting,
    misconceptions=(
        Misconception(lambda v: frozenset(PLANS), "Not all of them: as it is, {now} do not fit into {free}."),
        Misconception(lambda v: frozenset({"full"}), "It fits. But it is not the only one, and it costs a third more "
                                                     "arithmetic."),
        Misconception(lambda v: _fitting(v) ^ {"eager"},
                      "Look again at attention written out under full recomputation: its s × s matrices are alive one "
                      "layer at a time."),
        Misconception(lambda v: _fitting(v) ^ {"half"},
                      "Look again at half the sequences: they halve everything, the loss's moment too. Is half of "
                      "{now} less than {free}?"),
    ),
    hints=(
        "What waits between the passes, and what is alive only while one layer is computed again?",
        "Half the sequences keep half the activations, whatever the kind.",
    ),
    solution="The fullest moment of a step under each plan, of {free}:\n\n{lines}\n\nMore than one works, so bytes do "
             "not decide. Half the sequences cost no arithmetic, but smaller matrix products. Recomputation costs up "
             "to a third more FLOPs and leaves the batch as it is. Those that fit: {fits}. A good defence names the "
             "price.",
)
