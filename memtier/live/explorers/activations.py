"""Explorers of activations: what a forward pass keeps, and how that grows with the sequence."""

from functools import cache

from memtier import activations, drawing, models, tiers, units
from memtier.drawing import Axis
from memtier.inventory import Inventory
from memtier.live.controls import Choice, ModelChoice, Slider
from memtier.live.course import fitting
from memtier.live.explorer import Explorer, Prediction, View
from memtier.live.text import number

EIGHT = "llama-3.1-8b"
ATTENTION = {"sdpa": "fused (SDPA)", "sdpa-masked": "fused, with padding", "eager": "written out (eager)"}
PIECES = {"chunked": "the loss in pieces", "fused": "a fused loss"}  # in which not all logits are there at once
RECOMPUTE = {"none": "none", "selective": "selective", "full": "full"}
SEQUENCES = tuple(sorted(2**n * part for n in range(6, 16) for part in (2, 3) if 128 <= 2**n * part <= 131_072))
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SWEEP = tuple(2**n for n in range(7, 18))  # tokens at which the curves are drawn

# Which part of the model a kind of tensor belongs to. What is kept once a model is OUTSIDE, whatever its kind.
PARTS = {
    "norms": ("norm inputs", "norm factors", "normalised inputs"),
    "attention": ("attention inputs", "queries", "keys", "values", "queries, keys and values in one", "log-sum-exp",
                  "attention output"),
    "s × s matrices": ("attention probabilities", "capped scores", "attention mask"),
    "MLP": ("MLP inputs", "gate", "up", "gate and up in one", "activated gate", "gate × up", "activation function",
            "activated"),
    "experts": ("router", "expert indices", "expert inputs", "expert outputs", "copied expert weights"),
    "dropout masks": ("dropout masks",),
    "matrix products": ("matrix products",),
    "inputs of layers": ("layer inputs",),
}
OUTSIDE = "outside the layers"
_PART = {kind: part for part, kinds in PARTS.items() for kind in kinds}


def _size(nbytes: float) -> str:
    """Four digits, as the course's moments are quoted."""
    return units.format_bytes(nbytes, digits=4)


@cache
def by_part(model, *, batch: int, sequence: int, stack: str, recompute: str = "none", dtype: str = "bf16",
            loss: str = "dense") -> Inventory:
    """activations.saved by part of the model: bytes in its layers, and OUTSIDE them (embedding, last norm, head, loss).

    Arguments as in activations.saved; raises ValueError as it does.
    """
    parts = dict.fromkeys([*PARTS, OUTSIDE], 0)
    for unit, kept in activations.tensors(model, batch=batch, sequence=sequence, stack=stack, recompute=recompute,
                                          dtype=dtype, loss=loss):
        parts[OUTSIDE if unit == "root" else _PART[kept.kind]] += kept.nbytes
    return Inventory({part: nbytes for part, nbytes in parts.items() if nbytes},
                     f"{models.resolve(model).name}, batch {batch} × {sequence:,} tokens, {dtype}, {stack}, recompute"
                     f" {recompute}")


def _stack(model, attention: str) -> tuple[str, str]:
    """The stack that runs the model with this attention, or else its own first choice; and a note where it is that."""
    offered = activations.stacks(model)
    wanted = next((stack for stack in offered if stack == f"hf-{attention}"
                   or stack.removeprefix(f"hf-{attention}-") in activations.EXPERTS), None)
    if wanted is None:
        return offered[0], f"transformers runs {model.name} with {offered[0]} only; this is what it keeps."
    return wanted, ""


def _loss(model, loss: str) -> tuple[str, str]:
    """How the loss is computed, and a note where the model allows no other way than all at once."""
    if loss != "dense" and model.logit_softcap is not None:
        return "dense", f"{model.name} caps its logits; its loss in pieces is not modelled, so it is computed at once."
    return loss, ""


def _saved(sequence, attention, recompute, model, batch, loss, dtype, gpu, guess=None) -> View:
    model, limit = models.resolve(model), tiers.accelerator(gpu).memory.capacity
    stack, only = _stack(model, attention)
    sequence, most = fitting(model, sequence, least=2)  # a single token has nothing to predict
    loss, whole = _loss(model, loss)
    asked = {"batch": batch, "sequence": sequence, "stack": stack, "dtype": dtype, "loss": loss}
    kept, everything = by_part(model, recompute=recompute, **asked), by_part(model, **asked)
    memory = units.format_bytes(limit)
    say = (f"{model.name}, {batch} × {sequence:,} tokens, {stack}: {_size(kept.total)} wait for the backward pass, "
           f"{'less' if kept.total <= limit else 'more'} than the GPU's {memory}.")
    rows = [(f"recompute {recompute}", kept)]
    if recompute != "none":
        rows.append(("nothing recomputed", everything))
        beside = f" with {PIECES[loss]} and nothing recomputed" if loss in PIECES else ""
        say += (f" That is {_percent(kept.total / everything.total)} of {_size(everything.total)}{beside};"
                f" {_percent(kept.share(OUTSIDE))} of what is kept lies outside the layers.")
    if recompute != "none" or loss == "chunked":  # whose logits are computed again
        again = activations.flops_recomputed(model, batch=batch, sequence=sequence, stack=stack, recompute=recompute,
                                             loss=loss)
        say += f" {_again(again)}"
    bars = drawing.bars(rows, "Activations kept when the forward pass has ended", say,
                        limit=(limit, f"{memory} of HBM"), say=_size,
                        guess=guess and (guess, f"your guess: {units.format_bytes(guess)}"))
    rest = ("Counted as torch 2.13.0 keeps them on a CPU. Weights, gradients and optimizer state need room in the GPU "
            "as well.")
    return View(bars, say, " ".join(filter(None, (only, most, whole, rest))))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _again(flops: int) -> str:
    if not flops:
        return "No matrix product is computed a second time."
    size, unit = next(((size, unit) for size, unit in ((1e15, "PFLOP"), (1e12, "TFLOP")) if flops >= size),
                      (1e9, "GFLOP"))
    return f"The backward pass computes {number(flops / size)} {unit} a second time."


def _full(values) -> Inventory:
    """What is kept under the values of the prediction."""
    return by_part(models.get(values["model"]), stack=f"hf-{values['attention']}",
                   **{name: values[name] for name in ("batch", "sequence", "dtype", "recompute", "loss")})


def _left(values) -> str:
    return (f"{_percent(_full(values).share(OUTSIDE))} of that lies outside the layers: for each token the loss keeps a"
            f" row of {models.get(values['model']).vocab:,} numbers. Recomputing layers cannot touch it.")


saved = Explorer(
    name="activations.saved",
    title="What the forward pass keeps",
    intro="Bytes that wait for the backward pass, by the part of the model that keeps them.",
    controls=(
        Slider("sequence", "Tokens in a sequence", SEQUENCES[0], SEQUENCES[-1], 8192, SEQUENCES, "count"),
        Choice("attention", "Attention", ATTENTION, "sdpa", open=True),
        Choice("recompute", "Recompute", RECOMPUTE, "none", open=True),
        ModelChoice("model", "Model", EIGHT, more=True, counts=False),
        Slider("batch", "Sequences in a batch", 1, 64, 1, BATCHES, "count", more=True),
        Choice("loss", "Loss", {"dense": "at once", "chunked": "pieces", "fused": "fused"}, "dense", more=True),
        Choice("dtype", "Weights and activations in", {"bf16": "bf16", "fp32": "fp32"}, "bf16", more=True),
        Choice("gpu", "GPU", {name: tiers.accelerator(name).title for name in tiers.accelerators()}, "h100-sxm",
               more=True),
    ),
    more="More: model, batch, loss, type, GPU",
    view=_saved,
    presets={
        "8B, 8,192 tokens": {},
        "four in a batch": {"batch": 4},
        "written out": {"attention": "eager"},
        "selective": {"recompute": "selective"},
        "full": {"recompute": "full"},
        "full, loss in pieces": {"recompute": "full", "loss": "chunked"},
        "70B, long": {"model": "llama-3.1-70b", "sequence": 32_768, "recompute": "full"},
    },
    predict=Prediction(
        "Llama-3.1-8B, one sequence of 8,192 tokens: the forward pass keeps **57.1 GB**. You tick full "
        "recomputation, so of each of the 32 layers only its input stays. How much is left?",
        truth=lambda values: _full(values).total,
        values={"model": EIGHT, "sequence": 8192, "attention": "sdpa", "recompute": "full", "batch": 1,
                "loss": "dense", "dtype": "bf16"},
        low=1e8, high=1e11, unit="bytes",
        lesson=_left),
)


@cache
def _total(model, batch: int, sequence: int, stack: str, recompute: str) -> int:
    return activations.saved(model, batch=batch, sequence=sequence, stack=stack, recompute=recompute).total


def _kept(model, batch, recompute) -> list:
    """(name of the attention, sequence → bytes) for each that runs the model; the same stack is not drawn twice."""
    stacks = dict.fromkeys(_stack(model, attention)[0] for attention in ("sdpa", "eager"))
    return [(ATTENTION["eager" if "eager" in stack else "sdpa"],
             lambda sequence, stack=stack: _total(model, batch, sequence, stack, recompute)) for stack in stacks]


def _five(model, batch: int, sequence: int) -> int:
    return activations.five_term(model, batch=batch, sequence=sequence).total


def _sequence(sequence, recompute, batch, model, gpu, guess=None) -> View:
    model, limit = models.resolve(model), tiers.accelerator(gpu).memory.capacity
    top, most = fitting(model, 2 * sequence, least=4)
    sequence = top // 2
    kept = _kept(model, batch, recompute)
    ends = [(name, curve(sequence), curve(top)) for name, curve in kept]
    grown = [f"{name} {_size(one)} become {_size(two)}, {two / one:.2f} times" for name, one, two in ends]
    say = f"{model.name}, {batch} × {sequence:,} tokens doubled to {top:,}: {'; '.join(grown)}."
    tokens = [each for each in SWEEP if fitting(model, each)[0] == each]
    if len(tokens) < 2:  # a model of few learnt positions
        tokens = [sequence, top]
    curves = [(name, [(each, curve(each)) for each in tokens]) for name, curve in kept]
    curves.append(("five-term estimate", [(each, _five(model, batch, each)) for each in tokens]))
    values = [nbytes for _, curve in curves for _, nbytes in curve]
    marks = tuple((each, f"{each:,}") for each in (SWEEP[1::3] if top > SWEEP[1] else tokens))
    name, one, two = ends[-1]
    drawn = drawing.lines(
        curves, Axis("tokens in a sequence", tokens[0], tokens[-1], "{:,}".format, marks),
        Axis("bytes kept", min(*values, limit) / 1.5, max(*values, limit) * 1.5, _size, drawing.BYTE_TICKS),
        "Twice the sequence", say,
        points=[(f"{top:,}", top, two), (f"{sequence:,}", sequence, one)],
        guess=guess and (top, one * guess, f"your guess: {number(guess)} times"),
        limit=(limit, f"{units.format_bytes(limit)} of HBM"))
    return View(drawn, say, f"The dots are on the curve of {name}. {most}".strip())


def _grown(values) -> float:
    """How many times more is kept for twice the sequence, with attention written out; to two places, as it is said."""
    one, two = (_total(models.get(values["model"]), values["batch"], factor * values["sequence"], "hf-eager",
                       values["recompute"]) for factor in (1, 2))
    return round(two / one, 2)


sequence = Explorer(
    name="activations.sequence",
    title="Twice the sequence",
    intro="The same model with twice as many tokens: what it keeps with fused attention, with attention written out, "
          "and by the five-term estimate.",
    controls=(
        Slider("sequence", "Tokens, before doubling", 128, 65_536, 1024, SEQUENCES[:-2], "count"),
        Choice("recompute", "Recompute", {"none": "none", "full": "full"}, "none", open=True),
        Slider("batch", "Sequences in a batch", 1, 64, 1, BATCHES, "count"),
        ModelChoice("model", "Model", EIGHT, more=True, counts=False),
        Choice("gpu", "GPU", {name: tiers.accelerator(name).title for name in tiers.accelerators()}, "h100-sxm",
               more=True),
    ),
    more="More: model, GPU",
    view=_sequence,
    presets={
        "1,024 → 2,048": {},
        "4,096 → 8,192": {"sequence": 4096},
        "long": {"sequence": 32_768},
        "layers recomputed": {"sequence": 4096, "recompute": "full"},
        "70B": {"sequence": 4096, "model": "llama-3.1-70b"},
    },
    predict=Prediction(
        "Llama-3.1-8B goes from 4,096 to 8,192 tokens, with attention **written out** as s × s matrices. How many "
        "times as much does the forward pass keep?",
        truth=_grown,
        values={"model": EIGHT, "sequence": 4096, "recompute": "none", "batch": 1},
        low=1, high=20,
        lesson="Only the s × s matrices grow four times; the rest doubles, and with fused attention there is nothing "
               "else: 2.00 times."),
)
