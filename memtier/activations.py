"""Activations: what the forward pass leaves behind for the backward pass, tensor by tensor.

    activations.saved(models.get("llama-3.1-8b"), batch=1, sequence=2048)         # bytes by kind of tensor
    activations.block(models.get("llama-3.1-8b"), layer=0, sequence=2048)         # every tensor one block keeps
    activations.peak(models.get("llama-3.1-8b"), batch=1, sequence=2048)          # the fullest moment of a step

The answer depends on the software, so `stack` names it:

hf-sdpa         transformers 5.24.0 on torch 2.13.0: eager mode, CPU kernels, torch's scaled_dot_product_attention
hf-sdpa-masked  the same where a real mask is given (a batch with padding)
hf-eager        transformers' own attention in plain operations, which writes out the s × s matrices

With experts, how they are run is part of the name: hf-sdpa-grouped (torch's grouped_mm, transformers' default),
-batched (a copy of its experts' weights for each token), -loop (one expert after another).

megatron, megatron-sp   Table 2 of Korthikanti et al. (2022, arXiv:2205.05198): a GPT block with dropout in 16 bits,
                        divided by tensor parallelism, or by sequence parallelism too. A formula from paper, not
                        measured. layout says over how many GPUs.

The hf stacks equal torch's own count to the byte (tests/test_lab_activations.py; tests/activations_grid.py),
labels given, so that the logits and the loss are inside (`loss` says how it is computed); without a KV cache
(use_cache=False) and without autocast. A tensor is counted by its storage: where a view of a larger tensor is kept, the
whole of it stays. Parameters and buffers are not activations and are left out. "CPU kernels" is part of the answer: on
a GPU dropout masks are one byte a value, and fused attention also serves dropout.

Symbols: b batch, s sequence, n = b·s tokens, h hidden, A query heads, K key and value heads, d head size, f width of
the feed-forward layer, V vocabulary, L layers, e bytes an element.
"""

from collections.abc import Iterable, Iterator

from memtier import _saved, checks, weights
from memtier._saved import ATTENTION, DTYPES, EXPERTS, LOSSES, MEGATRON, RECOMPUTE, STACKS, Kept
from memtier.inventory import Inventory
from memtier.layout import Layout
from memtier.models import Model

# What a caller asks for.


def stacks(model) -> tuple[str, ...]:
    """The names of the hf stacks under which a model can be run, transformers' own choice first.

    Raises ValueError for what is not an architecture.
    """
    model = _architecture(model)
    attention = ("hf-eager",) if model.family == "gemma2" else ATTENTION
    if any(model.sparse):
        return tuple(f"{each}-{experts}" for each in attention for experts in EXPERTS)
    return attention


def _architecture(model) -> Model:
    return weights.shaped(model, "activations depend on shapes")


def _run(model, batch, sequence, stack, dtype, dropout, recompute="none", loss="dense", chunks=1) -> _saved.Run:
    """The arguments, checked."""
    model = _architecture(model)
    checks.whole("batch", batch)
    checks.whole("sequence", sequence, least=2)  # a single token has nothing to predict
    checks.one_of("dtype", dtype, DTYPES)
    checks.one_of("recompute", recompute, RECOMPUTE)
    checks.flag("dropout", dropout)
    checks.one_of("loss", loss, LOSSES)
    checks.whole("chunks", chunks)
    _accept(model, stack)
    if loss != "dense" and model.logit_softcap is not None:
        raise ValueError(f"loss is {loss!r}; for {model.name}, which caps its logits, it must be 'dense'")
    weights.within("sequence", sequence, model)
    return _saved.Run(model, batch, sequence, stack, dtype, dropout, recompute, loss,
                      1 if loss == "dense" else min(chunks, batch * sequence))


def _accept(model: Model, stack: str) -> None:
    """Raise ValueError for a stack that does not run this model, and for a configuration that is not derived."""
    checks.one_of("stack", stack, STACKS)
    if stack not in stacks(model):
        reason = ("a formula has no list of tensors" if stack in MEGATRON else
                  "how experts are run is part of the name" if any(model.sparse) else
                  "transformers runs gemma2 with eager attention only" if stack in ATTENTION else
                  "it has no experts")
        raise ValueError(f"stack is {stack!r}; for {model.name} ({model.family}) it must be one of"
                         f" {', '.join(stacks(model))}: {reason}")
    for key, why in _saved.REFUSED.items():
        if model.config.get(key):
            raise ValueError(f"{key} is {checks.brief(model.config[key])}; it must be absent or off: {why}")
    method = model.config.get("topk_method", "greedy")
    if model.family == "deepseek_v2" and any(model.sparse):
        checks.one_of("topk_method", method, ("greedy", "group_limited_greedy"))
    if model.activation not in _saved.ACTIVATIONS:
        raise ValueError(f"the activation function is {model.activation!r}; it must be one of"
                         f" {', '.join(_saved.ACTIVATIONS)}")
    if any(model.sparse) and model.experts_per_token is None:
        raise ValueError("num_experts_per_tok is null; it must be a whole number")


def block(model, layer: int = 0, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", dtype: str = "bf16",
          dropout: bool = True) -> tuple[Kept, ...]:
    """Every tensor one decoder layer keeps, nothing recomputed, in the order of the forward pass.

    layer: its number from 0. The other arguments are those of `saved`; raises ValueError as it does.
    """
    run = _run(model, batch, sequence, stack, dtype, dropout)
    checks.whole("layer", layer, least=0, most=run.model.layers - 1)
    return tuple(_saved.block(run, layer))


def tensors(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
            dtype: str = "bf16", dropout: bool = True, loss: str = "dense",
            chunks: int = 8) -> tuple[tuple[str | int, Kept], ...]:
    """What `saved` adds up: each tensor with the number of the layer that keeps it, or "root" where it is kept once a
    model: token ids, rotary tables, final norm, head and loss. Arguments as in `saved`; raises ValueError as it does.
    """
    return tuple(_saved.kept_tensors(_run(model, batch, sequence, stack, dtype, dropout, recompute, loss, chunks)))


def saved(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
          dtype: str = "bf16", dropout: bool = True, loss: str = "dense", chunks: int = 8,
          layout: Layout | None = None) -> Inventory:
    """Bytes the forward pass keeps for the backward pass, labels given, by kind of tensor.

    model: as models.resolve takes it. batch, sequence: sequences on one device, tokens in each.
    stack: the software, one of STACKS. dtype: of weights and activations, "bf16" or "fp32".
    recompute:
        "none"       everything is kept
        "full"       torch.utils.checkpoint, not reentrant, around each decoder layer, as transformers does it: the
                     layer's input is kept, all else is computed again
        "selective"  the same, but torch's selective policy also keeps what each weight's matrix product gives, and
                     fused attention's output and log-sum-exp. Norms, rotary embedding, activation functions and
                     products of elements are computed again; so is attention where it is not fused
        The Megatron stacks' "selective" keeps all but attention's s × s matrices.
    dropout: False leaves out dropout that the configuration asks for.
    loss: how the head and the cross entropy are computed (memtier.lab.losses has each in torch):
        "dense"    transformers' own: all logits at once, 4nV of log-probabilities kept
        "chunked"  the tokens in `chunks` pieces, each under torch.utils.checkpoint: only the head's input and the
                   labels are kept, and one piece's logits are alive at a time, computed again in the backward pass
        "fused"    the same pieces, but each one's gradients are computed in the forward pass: kept are the gradients of
                   the head's input and of its weight, and the backward pass has no logits
    chunks: pieces, for "chunked" and "fused".
    layout: for the Megatron stacks, over how many GPUs the model is divided; bytes are those of one GPU. tensor divides
        layers; "megatron-sp" divides the sequence too, whether or not layout's sequence_parallel says so again, and
        "megatron" with sequence_parallel=True is refused. pipeline: bytes of the first stage, the fullest, which keeps
        pipeline micro-batches of layers / pipeline layers each, and no head. Data parallelism divides no activations:
        batch is that of one GPU. The other stacks run on one GPU and refuse tensor and pipeline above 1.

    Raises ValueError for arguments that are not these, a bare parameter count, and a model that the stack does not run.
    """
    checks.one_of("stack", stack, STACKS)
    layout = Layout() if layout is None else layout
    if not isinstance(layout, Layout):
        raise ValueError(f"layout is {checks.brief(layout)}; it must be a Layout")
    if stack in MEGATRON:
        if checks.one_of("loss", loss, LOSSES) != "dense":
            raise ValueError(f"loss is {loss!r}; for stack {stack!r} it must be 'dense': the published formula has fp32"
                             " logits")
        return _megatron(_architecture(model), batch, sequence, stack, recompute, dtype, dropout, layout)
    for name in ("tensor", "pipeline"):
        if getattr(layout, name) != 1:
            raise ValueError(f"layout has {name}={getattr(layout, name)}; for stack {stack!r} it must be 1: only"
                             f" {' and '.join(MEGATRON)} divide a model")
    run = _run(model, batch, sequence, stack, dtype, dropout, recompute, loss, chunks)
    total = _inventory(_saved.kept_once(run), run.title)
    for layers in _saved.groups(run):
        total = total + _inventory(_saved.kept_by(run, layers[0]), run.title) * len(layers)
    return total


def _inventory(kept: Iterable[Kept], title: str) -> Inventory:
    total: dict[str, int] = {}
    for each in kept:
        total[each.kind] = total.get(each.kind, 0) + each.nbytes
    return Inventory(total, title)


# What is alive, and the most that is.


def live(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
         dtype: str = "bf16", dropout: bool = True, loss: str = "dense",
         chunks: int = 8) -> Inventory:
    """Bytes alive when the forward pass has returned and only its loss is held: `saved`, and what else is alive.

    That is the loss itself and, where layers are computed again, what they are called with: positions, rotary tables,
    masks. (The state of the random numbers, 5,056 bytes a layer on a CPU, is no tensor of the model and is left out.)
    Arguments as in `saved`; raises ValueError as it does.
    """
    run = _run(model, batch, sequence, stack, dtype, dropout, recompute, loss, chunks)
    return _inventory(_alive(run), f"{run.title}: after the forward pass")


def moments(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
            dtype: str = "bf16", dropout: bool = True, loss: str = "dense",
            chunks: int = 8) -> dict[str, Inventory]:
    """The fullest moment of each stretch of a training step, as what is alive in it; finished gradients of parameters,
    which are not activations, are left out.

    "loss":               the forward pass at the cross entropy: logits, and for bf16 their fp32 copy, beside `live`;
                          in pieces of r tokens, 8rV
    "loss backward":      two gradients as large as the fp32 logits, 8nV; chunked, a piece's 12rV and the head's
                          gradient so far; fused, nothing
    "head backward":      the gradients of the head, or of the final norm
    "layers backward":    the fullest layer, computed again if it was not kept, and the gradients passing through it
    "embedding backward": the embedding's gradient; where the head is tied to it, also the head's and their sum

    Arguments as in `saved`. Raises ValueError as it does, and for experts in a loop: how full their fullest moment is
    depends on how many tokens each is sent.
    """
    run = _run(model, batch, sequence, stack, dtype, dropout, recompute, loss, chunks)
    if run.experts == "loop":
        raise ValueError(f"stack is {stack!r}; what is alive in a loop over experts depends on their tokens, so it must"
                         " be another")
    alive = _alive(run)
    before = [*alive, run.keeps("loss", "its gradient", dtype="fp32")]
    after_loss = _without(before, "labels", "log-probabilities")
    stretches = {
        "loss": [*alive, *_at_loss(run)],
        "loss backward": [*(_without(before, "labels") if run.loss == "dense" else before), *_at_loss_backward(run)],
        "head backward": _fullest([*after_loss, *_at_head_backward(run)], [*before, *_at_head_sum(run)],
                                  _at_final_norm_backward(run, after_loss)),
        "layers backward": _fullest_layer(run),
        "embedding backward": [*_at_embedding_backward(run)],
    }
    return {moment: _inventory(kept, f"{run.title}: {moment}") for moment, kept in stretches.items()}


def peak(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "none",
         dtype: str = "bf16", dropout: bool = True, loss: str = "dense",
         chunks: int = 8) -> Inventory:
    """The fullest of a step's `moments`; its title says which. Arguments as in `saved`; raises as `moments` does."""
    found = moments(model, batch=batch, sequence=sequence, stack=stack, recompute=recompute, dtype=dtype,
                    dropout=dropout, loss=loss, chunks=chunks)
    return max(found.values(), key=lambda inventory: inventory.total)


def _alive(run: _saved.Run) -> list[Kept]:
    return [*(kept for _, kept in _saved.kept_tensors(run)), *_held(run)]


def _held(run: _saved.Run) -> Iterator[Kept]:
    """What is alive after the forward pass beside what autograd keeps."""
    yield run.keeps("loss", "itself", dtype="fp32")
    if run.recompute == "none" or run.model.family == "gpt2":  # gpt2's is kept already: see _saved.kept_tensors
        return
    yield from _saved.rotary(run)
    yield run.keeps("positions", "all layers", 1, run.s, dtype="int64")
    for window in dict.fromkeys(run.model.windows):  # one mask for each kind of layer
        if run.attention == "eager":
            yield run.keeps("attention mask", "all layers", run.b, 1, run.s, run.s)
        elif run.padded:
            yield run.keeps("attention mask", "all layers", run.b, 1, run.s, run.s, dtype="bool")
        elif window is not None and run.s >= window:  # one for the whole batch
            yield run.keeps("attention mask", "all layers", 1, 1, run.s, run.s, dtype="bool")


def _without(kept: Iterable[Kept], *kinds: str) -> list[Kept]:
    return [each for each in kept if each.kind not in kinds]


def _fullest(*candidates: list[Kept]) -> list[Kept]:
    return max(candidates, key=lambda kept: sum(each.nbytes for each in kept))


def _at_loss(run: _saved.Run) -> Iterator[Kept]:
    if run.loss != "dense":
        yield run.keeps("logits", "one piece, in fp32", run.piece, run.model.vocab, dtype="fp32")
        yield run.keeps("log-probabilities", "one piece", run.piece, run.model.vocab, dtype="fp32")
        if run.loss == "fused":
            yield run.keeps("head input", "head", run.n, run.model.hidden)
            yield run.keeps("labels", "loss", run.b, run.s, dtype="int64")
        return
    yield run.keeps("logits", "head", run.n, run.model.vocab)
    if run.dtype != "fp32":
        yield run.keeps("logits", "in fp32", run.n, run.model.vocab, dtype="fp32")
    if run.b > 1:
        yield run.keeps("labels", "padded", run.b, run.s + 1, dtype="int64")


def _at_loss_backward(run: _saved.Run) -> Iterator[Kept]:
    if run.loss == "chunked":
        yield run.keeps("log-probabilities", "one piece, again", run.piece, run.model.vocab, dtype="fp32")
        yield from _pieces_done(run)
    if run.loss != "fused":
        yield run.keeps("gradients", "log-probabilities", run.piece, run.model.vocab, dtype="fp32")
        yield run.keeps("gradients", "logits in fp32", run.piece, run.model.vocab, dtype="fp32")


def _pieces_done(run: _saved.Run) -> Iterator[Kept]:
    """Gradients of the pieces before the last one of a chunked loss."""
    others = -(-run.n // run.piece) - 1
    if others:
        yield run.keeps("gradients", "head weight, of other pieces", run.model.vocab, run.model.hidden)
        yield run.keeps("gradients", "head input, of other pieces", others * run.piece, run.model.hidden)


def _at_head_backward(run: _saved.Run) -> Iterator[Kept]:
    if run.loss == "fused":
        return
    yield run.keeps("gradients", "logits", run.piece, run.model.vocab)
    yield run.keeps("gradients", "head weight", run.model.vocab, run.model.hidden)
    yield run.keeps("gradients", "head input", run.piece, run.model.hidden)
    if run.loss == "chunked":
        yield from _pieces_done(run)


def _at_head_sum(run: _saved.Run) -> list[Kept]:
    """Chunked: the head's gradient so far, a piece's, and their sum; its input's, until the last one is there."""
    pieces = -(-run.n // run.piece)
    if run.loss != "chunked" or pieces == 1:
        return []
    weights = [run.keeps("gradients", "head weight, twice and their sum", run.model.vocab, run.model.hidden)] * 3
    rows = run.keeps("gradients", "head input, of other pieces", (pieces - 1) * run.piece, run.model.hidden)
    return [*weights, rows] if pieces > 2 else weights


def _at_final_norm_backward(run: _saved.Run, alive: list[Kept]) -> list[Kept]:
    """The head is done; of the final norm only its input is still held."""
    if run.model.norm == "layer":  # one kernel, no more than the gradient of its input
        return []
    used = {"head", "capped", "head input, computed at once"}
    if not run.model.tied:  # tied, it waits for the embedding's
        used.add("head weight, computed at once")
    left = [each for each in alive if each.where not in used and (
        not each.where.startswith("final norm") or each.kind == "norm inputs")]
    return [*left, *_inside_norm(run, run.n, run.model.hidden)]


def _inside_norm(run: _saved.Run, *shape: int) -> list[Kept]:
    """Gradients inside an RMS norm written in Python, at the square of its input: five of the input's size, in fp32."""
    return [run.keeps("gradients", "inside a norm", *shape, dtype="fp32")] * 5


def _at_embedding_backward(run: _saved.Run) -> Iterator[Kept]:
    yield from (each for each in _saved.kept_around(run) if each.kind == "token ids")
    yield run.keeps("loss", "itself and its gradient", 2, dtype="fp32")
    if run.model.tied:
        for which in ("embedding", "head", "their sum"):
            yield run.keeps("gradients", which, run.model.vocab, run.model.hidden)
    else:
        yield run.keeps("gradients", "embedding", run.model.vocab, run.model.hidden)
        yield run.keeps("gradients", "first layer's input", run.n, run.model.hidden)


def _fullest_layer(run: _saved.Run) -> list[Kept]:
    """What is alive in the fullest moment of any layer's backward pass."""
    below: list[Kept] = []  # what the layers before this one keep
    height = 0  # their bytes
    most, under, fullest = 0, 0, []  # the most so far: bytes, how many tensors of `below`, and the layer's own
    for layer in range(run.model.layers):
        inside = list(_saved.block(run, layer))
        kept = inside
        if run.recompute != "none":
            kept = list(_saved.kept_again(run, layer))
            below.append(kept.pop(0))  # its input
            height += below[-1].nbytes
            if run.model.norm == "layer" or run.dtype == "fp32" or run.model.family == "olmo2":
                inside = inside[1:]  # the first tensor it keeps is that input
            if run.recompute == "selective" and _ends_in_product(run, layer):
                inside.insert(0, run.keeps("matrix products", "the last, kept for nothing", run.n, run.model.hidden))
        for phase in _phases(run, layer, inside):
            nbytes = height + sum(each.nbytes for each in phase)
            if nbytes > most:
                most, under, fullest = nbytes, len(below), phase
        below += kept
        height += sum(each.nbytes for each in kept)
    return [*_around_layers(run), *below[:under], *fullest]


def _around_layers(run: _saved.Run) -> Iterator[Kept]:
    """What is alive beside the layers while gradients pass through them."""
    for each in _alive(run):
        if each.kind in ("token ids", "rotary cos and sin", "loss") or each.where in ("after the embedding",
                                                                                     "all layers"):
            yield each
    yield run.keeps("loss", "its gradient", dtype="fp32")
    if run.model.tied:
        yield run.keeps("gradients", "head weight, waiting for the embedding's", run.model.vocab, run.model.hidden)


def _phases(run: _saved.Run, layer: int, inside: list[Kept]) -> Iterator[list[Kept]]:
    """Candidates for the fullest moment of one layer's backward pass: what is left of the layer, and gradients.

    The backward pass takes the layer from its end, and each step frees what it has used: after its gradients have been
    cast and summed, or before, where the layer was computed again.
    """
    model, n = run.model, run.n

    def gradient(where, *shape, dtype=None):
        return run.keeps("gradients", where, *shape, dtype=dtype)

    def until(kind, where=""):
        """What is left when the backward pass has come to this tensor, with it."""
        return inside[: 1 + max(at for at, each in enumerate(inside) if each.kind == kind and where in each.where)]

    stream = gradient("layer's output", n, model.hidden)
    for at, each in enumerate(inside):
        if each.kind == "norm inputs" and each.shape[-1] == model.hidden and model.norm == "rms":
            yield [*inside[: at + 1], stream, *_inside_norm(run, *each.shape)]
    if model.sparse[layer]:
        yield from _expert_phases(run, until, gradient, stream)
    else:
        f = model.intermediate
        own = [stream, gradient("MLP output", n, model.hidden)] if _post_processed(run) else [stream]
        product = until("activated" if model.norm == "layer" else "gate × up")
        bias = [gradient("its bias", model.hidden)] if model.mlp_bias and run.recompute == "none" else []
        yield [*product, *own, gradient("last matrix", model.hidden, f), *bias, gradient("its input", n, f)]
        # A gated product has two factors. A plain activation function has one, its input; but where it is not fused its
        # steps come on top, and where its backward pass needs its output that stays.
        flowing = 2 if model.norm == "layer" and _saved.ACTIVATIONS[model.activation] == (True, 0) else 3
        yield [*product[:-1], stream, *[gradient("product and its factors", n, f)] * flowing]
    if not run.fused:
        width = None if run.attention == "eager" else "fp32"
        softmax = None if run.attention == "eager" and model.family == "gpt2" else "fp32"
        values = gradient("values", n, model.heads * model.value_dim, dtype=width)
        matrix = (run.b, model.heads, run.s, run.s)
        yield [*until("attention probabilities", "softmax"), stream, values,
               *[gradient("probabilities and scores", *matrix, dtype=softmax)] * 2]
        if run.dropout and model.attention_dropout > 0:  # at the product of probabilities and values
            before = inside[: next(at for at, each in enumerate(inside) if each.kind == "attention output")]
            yield [*before, stream, values, values, gradient("probabilities after dropout", *matrix, dtype=width)]


def _expert_phases(run: _saved.Run, until, gradient, stream: Kept) -> Iterator[list[Kept]]:
    """The same within a layer of experts: the shared expert, the weighting, and the two products with experts."""
    model, pairs = run.model, run.n * run.model.experts_per_token
    h, f, shared = model.hidden, model.expert_intermediate, model.shared_intermediate
    flowing = [stream]
    if model.family.startswith("deepseek"):
        product = until("gate × up", "shared")
        yield [*product, stream, gradient("shared expert's down", h, shared), gradient("its product", run.n, shared)]
        yield [*product[:-1], stream, *[gradient("shared expert's product and factors", run.n, shared)] * 3]
        flowing.append(gradient("input of the shared expert", run.n, h))
    elif model.family == "qwen2_moe":
        flowing += [gradient("output of the shared expert", run.n, h), gradient("input of its gate", run.n, h)]
    width = None if model.family in _saved.ROUNDED else "fp32"
    weighting = [*flowing, *[gradient("weighting", pairs, h, dtype=width)] * 3]
    if run.experts == "grouped":
        yield [*until("expert indices", "order back"), *weighting]
    if width and run.dtype != "fp32" and run.recompute == "none":
        weighting.append(gradient("expert outputs", pairs, h))
    yield [*until("expert outputs", "before weighting"), *weighting]
    flowing += [gradient("weight of each pair", pairs, dtype=width)]
    outputs, inputs = gradient("expert outputs", pairs, h), gradient("expert inputs", pairs, h)
    if run.experts == "grouped":
        yield [*until("gate × up", "experts"), *flowing, outputs, gradient("product", pairs, f),
               gradient("down of all experts", model.experts, h, f)]
        yield [*until("expert inputs"), *flowing, inputs, gradient("gate and up", pairs, 2 * f),
               gradient("gate and up of all experts", model.experts, 2 * f, h)]
    else:
        yield [*until("copied expert weights", "down"), *flowing, outputs, gradient("product", pairs, f),
               gradient("copied down", pairs, h, f)]
        yield [*until("copied expert weights", "gate"), *flowing, inputs, gradient("gate and up", pairs, 2 * f),
               gradient("copied gate and up", pairs, 2 * f, h)]


def _post_processed(run: _saved.Run) -> bool:
    """Does something follow the MLP that the backward pass changes gradients in: a norm or a dropout?"""
    post_norm = run.model.family in ("gemma2", "gemma3_text", "olmo2")
    return post_norm or (run.dropout and run.model.residual_dropout > 0)


def _ends_in_product(run: _saved.Run, layer: int) -> bool:
    """Is the layer's last matrix product only added up? Then torch stops before it when it computes the layer again."""
    if run.model.sparse[layer]:
        return run.model.family.startswith("deepseek")
    return not _post_processed(run)


# What recomputation costs.


def logits(model, *, batch: int = 1, sequence: int = 8192, dtype: str = "bf16", loss: str = "dense",
           chunks: int = 8) -> dict[str, Inventory]:
    """What the head and the cross entropy hold, whatever the layers keep: the term that other calculators leave out.

    "kept":     from the forward to the backward pass: the head's input, log-probabilities, labels; or what the loss
                keeps in their place
    "forward":  in the fullest moment of the forward pass, what is kept included; "backward": likewise

    Arguments as in `saved`; raises ValueError as it does.
    """
    model = _architecture(model)
    run = _run(model, batch, sequence, stacks(model)[0], dtype, True, "none", loss, chunks)
    ours = ("head", "capped", "loss", "loss, number of tokens")
    kept = [each for each in _saved.kept_around(run) if each.where in ours or each.where.startswith("head ")]
    rest = kept if run.loss == "chunked" else _without(kept, "labels")
    held = {
        "kept": kept,
        "forward": [*kept, *_at_loss(run)],
        "backward": _fullest([*rest, *_at_loss_backward(run)], [*_without(kept, "labels", "log-probabilities"),
                             *_at_head_backward(run)], [*rest, *_at_head_sum(run)]),
    }
    return {moment: _inventory(found, f"{run.title}: head and loss, {moment}") for moment, found in held.items()}


def flops_recomputed(model, *, batch: int = 1, sequence: int = 8192, stack: str = "hf-sdpa", recompute: str = "full",
                     dropout: bool = True, loss: str = "dense") -> int:
    """FLOPs of the matrix products that one backward pass computes a second time.

    A product of n rows with a weight of p numbers is 2np; attention is 2·b·A·s²(d + d_v) a layer, as a full square,
    of which a causal kernel may skip nearly half. "full" repeats each layer's forward pass, but not a last product that
    nothing kept needs. "selective" repeats attention where it is not fused, and no product with a weight. A chunked
    loss repeats the head's product, 2nVh.
    Arguments as in `saved`; raises ValueError as it does.
    """
    run = _run(model, batch, sequence, stack, "bf16", dropout, recompute, loss)
    model = run.model
    head = 2 * run.n * model.vocab * model.hidden if loss == "chunked" else 0
    attention = 2 * run.b * model.heads * run.s**2 * (model.head_dim + model.value_dim)
    if recompute == "none":
        return head
    if recompute == "selective":
        return head + (0 if run.fused else model.layers * attention)
    return head + sum(attention + _layer_flops(run, layer) for layer in range(model.layers))


def _layer_flops(run: _saved.Run, layer: int) -> int:
    """FLOPs of one layer's products with weights, as they are computed again."""
    model, total = run.model, 0
    for tensor in run.units[layer]:
        if len(tensor.shape) == 2:
            total += 2 * run.n * tensor.numel
        elif tensor.part == "experts":  # a pair of token and expert passes through one of them
            total += 2 * run.n * model.experts_per_token * tensor.numel // model.experts
    if _ends_in_product(run, layer):
        width = model.shared_intermediate if model.sparse[layer] else model.intermediate
        total -= 2 * run.n * width * model.hidden
    return total


# Formulas from paper.


def _megatron(model: Model, batch, sequence, stack, recompute, dtype, dropout, layout: Layout) -> Inventory:
    """Korthikanti et al. (2022, arXiv:2205.05198), sections 4.2 and 4.3 and Table 2, on one GPU of a pipeline's first
    stage, for t GPUs that share each layer and p stages.

    A layer keeps sbh(34 + 5as/h); of the 34, tensor parallelism divides 24 by t and sequence parallelism the other 10
    as well. "selective" drops attention's 5as²b (softmax, its dropout, and its result), "full" keeps 2sbh a layer.
    The first stage has L/p layers and p micro-batches in flight: as many as L layers with one. Around them, the
    embedding's dropout keeps sbh a micro-batch, and where p is 1 final norm, head and fp32 logits 4sbh(1 + V/h).
    """
    checks.whole("batch", batch)
    weights.within("sequence", checks.whole("sequence", sequence), model)
    checks.one_of("recompute", recompute, RECOMPUTE)
    checks.one_of("dtype", dtype, DTYPES)
    if dtype != "bf16" or not checks.flag("dropout", dropout):
        raise ValueError(f"dtype is {dtype!r} and dropout is {dropout!r}; for stack {stack!r} they must be 'bf16' and"
                         " True: the published formula counts 2 bytes a value and has dropout")
    if stack == "megatron" and layout.sequence_parallel:
        raise ValueError("layout has sequence_parallel=True; for stack 'megatron' it must be False: with sequence"
                         " parallelism the stack is 'megatron-sp'")
    tensor, stages = layout.tensor, layout.pipeline
    for name, whole, parts in (("tensor", "attention heads", model.heads), ("pipeline", "layers", model.layers)):
        if parts % getattr(layout, name):
            raise ValueError(f"layout has {name}={getattr(layout, name)}; it must divide the {whole}, which are"
                             f" {parts}")
    sbh, whole = sequence * batch * model.hidden, 1 if stack == "megatron" else tensor
    matrix = model.heads * sequence**2 * batch
    layer = {
        "norm inputs": 4 * sbh / whole,
        "attention inputs": 2 * sbh / whole,
        "queries": 2 * sbh / tensor,
        "keys": 2 * sbh / tensor,
        "values": 2 * sbh / tensor,
        "attention probabilities": 2 * matrix / tensor,
        "attention dropout": 3 * matrix / tensor,
        "attention output": 2 * sbh / tensor,
        "MLP inputs": 2 * sbh / whole,
        "activation function": 8 * sbh / tensor,
        "activated": 8 * sbh / tensor,
        "dropout masks": 2 * sbh / whole,
    }
    if recompute == "selective":
        del layer["attention probabilities"], layer["attention dropout"]
    if recompute == "full":
        layer = {"layer inputs": 2 * sbh}
    around = {"embedding dropout": stages * sbh / whole}
    if stages == 1:
        around |= {
            "head input": 4 * sbh / whole,  # of the final norm, and of the head
            "logits": 4 * sequence * batch * model.vocab / tensor,
        }
    title = (f"{model.name}, batch {batch} × {sequence} tokens, {stack}, tensor {tensor}, pipeline {stages}, recompute"
             f" {recompute}: Korthikanti et al., Table 2, for a GPT block (all heads whole, MLP four times as wide)")
    return Inventory({name: model.layers * nbytes for name, nbytes in layer.items()} | around, title)


def five_term(model, *, batch: int = 1, sequence: int = 8192) -> Inventory:
    """The common estimate batch × layers × (5·s·h + 2·heads·s² + 2·s·ffn), its result taken as bytes.

    What it describes: three kinds of tensors of a plain block, with attention written out as s × s matrices. Where it
    fails: fused attention keeps no such matrix, so from some thousand tokens on it is far too high; norms, the gated
    MLP's four tensors and the loss are missing, so for short ones it is too low.
    Raises ValueError for a bare parameter count and for sizes that are not whole.
    """
    model = _architecture(model)
    checks.whole("batch", batch)
    weights.within("sequence", checks.whole("sequence", sequence), model)
    blocks = batch * model.layers
    return Inventory({
        "5·s·h": blocks * 5 * sequence * model.hidden,
        "2·heads·s²": blocks * 2 * model.heads * sequence**2,
        "2·s·ffn": blocks * 2 * sequence * model.intermediate,
    }, f"{model.name}, batch {batch} × {sequence} tokens: the five-term estimate")
