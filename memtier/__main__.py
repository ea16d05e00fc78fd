"""The command line: the formulas for your own model and machines.

    python -m memtier train --model llama-3.1-70b --gpus 64 --stage 3 --limit "80 GB"
    python -m memtier serve --model llama-3.1-70b --context 8192 --users 32 --accelerator h100-sxm
    python -m memtier checkpoint --model my-model/config.json --to "20 GB/s"
    python -m memtier data --model llama-3.1-8b --tokens 15e12 --gpus 64 --flops 400e12
    python -m memtier models
    python -m memtier tiers

--model takes a known name or a config.json; train, checkpoint and data also take a parameter count such as 70e9.
--json prints what a program can read.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator

from memtier import (
    __version__,
    activations,
    checkpoints,
    checks,
    kv_cache,
    models,
    optimizer_state,
    recipes,
    tiers,
    training_data,
    units,
    weights,
)
from memtier.inventory import Inventory

Answers = Iterator[tuple[str, object]]  # what to call it, and what it is


def _train(options) -> Answers:
    """State of one copy; of one GPU with --gpus; GPUs needed with --limit; one GPU's activations with --sequence."""
    yield "one copy", optimizer_state.inventory(options.model, recipe=options.recipe)
    if options.gpus is not None:
        yield "one GPU", optimizer_state.per_gpu(options.model, recipe=options.recipe, gpus=options.gpus,
                                                 stage=options.stage, gathered=options.gathered)
    if options.limit is not None:
        yield "GPUs needed", optimizer_state.gpus_needed(options.model, recipe=options.recipe, stage=options.stage,
                                                         limit=options.limit, gathered=options.gathered)
    if options.sequence is not None:
        how = {"batch": options.batch, "sequence": options.sequence, "recompute": options.recompute,
               "stack": options.stack or activations.stacks(options.model)[0]}
        yield "activations kept", activations.saved(options.model, **how)
        if how["stack"] not in activations.MEGATRON:
            yield "activations at the fullest moment", activations.peak(options.model, **how)


def _serve(options) -> Answers:
    """Weights and KV cache of --users with --context tokens each, the GPUs that hold them, and the fastest decoding."""
    accelerator = tiers.accelerator(options.accelerator)
    limit = accelerator.memory.capacity if options.limit is None else options.limit
    if not isinstance(models.resolve(options.model), models.Model):
        raise ValueError(f"model is {checks.brief(options.model)}; a count has no layers that keep keys and values, "
                         "give a known name or a config.json")
    held = weights.inventory(options.model, dtype=options.dtype)
    one = kv_cache.inventory(options.model, sequence=options.context, dtype=options.kv_dtype)
    cache = kv_cache.inventory(options.model, batch=options.users, sequence=options.context, dtype=options.kv_dtype)
    yield "weights", held
    yield "KV cache", cache
    weights.gpus_needed(options.model, limit=limit, headroom=options.headroom)  # refuses a headroom that leaves no room
    needed = math.ceil((held.total + cache.total) / (limit * (1 - options.headroom)))
    gpus = needed if options.gpus is None else options.gpus
    fit = kv_cache.users(options.model, limit=limit, headroom=options.headroom, gpus=gpus, sequence=options.context,
                         dtype=options.kv_dtype, weights_dtype=options.dtype)
    yield "GPUs needed", needed
    yield "GPUs", gpus
    yield "users that fit", fit
    if fit >= options.users:
        step = weights.decode(options.model, accelerator=accelerator, batch=options.users, gpus=gpus,
                              dtype=options.dtype, kv=one.total)
        yield "tokens a second, at most", round(step.tokens_per_second)
        yield "bound by", step.bound


def _checkpoint(options) -> Answers:
    """Bytes of one checkpoint, and its write time when --to is given."""
    saved = checkpoints.inventory(options.model, recipe=options.recipe, contents=options.contents)
    yield "checkpoint", saved
    if options.to is not None:
        yield "seconds to write", checkpoints.write_time(saved.total, to=options.to, writers=options.writers)


def _data(options) -> Answers:
    """Bytes of a tokenised corpus, and how fast a run of --gpus reads it when --flops is given."""
    model = models.resolve(options.model)
    if options.vocabulary is None and not isinstance(model, models.Model):
        raise ValueError(f"model is {checks.brief(options.model)}; a count has no vocabulary, so give "
                         "--vocabulary as well")
    vocabulary = model.vocab if options.vocabulary is None else options.vocabulary
    yield "corpus", training_data.text(options.tokens, vocabulary=vocabulary)
    if options.flops is not None:
        tokens = training_data.tokens_per_second(model, gpus=options.gpus, flops=options.flops)
        each = training_data.bytes_per_token(vocabulary)
        yield "tokens a second", round(tokens)
        yield "bytes a second", round(tokens * each)
        yield "seconds for all", options.tokens / tokens


def _models(options) -> Answers:
    """Every known architecture and its parameters, or the parts of one."""
    if options.model is None:
        yield from ((name, models.get(name).parameters) for name in models.names())
        return
    model = models.resolve(options.model)
    if not isinstance(model, models.Model):
        raise ValueError(f"model is {checks.brief(options.model)}; a count has no parts, give a name or a config.json")
    yield "parameters", model.parameters
    yield from model.parts().items()


def _tiers(options) -> Answers:
    """The ladder: capacity, read rate and latency of each tier, as far as a source says."""
    for tier in map(tiers.get, tiers.names(rung=options.rung)):
        yield tier.name, {"rung": tier.rung, "capacity": tier.capacity, "read": tier.read, "latency": tier.latency}


def _rate_or_tier(text: str):
    """A rate such as "20 GB/s", or a tier's name."""
    return text if text in tiers.names() else units.parse_rate(text)


def _read(parse: Callable) -> Callable:
    """parse, with its own sentence reaching the user; argparse would put "invalid parse_bytes value" in its place."""

    def read(text: str):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(error) from None

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m memtier", description=__doc__.split("\n\n")[0],
                                     epilog=__doc__.split("\n\n", 1)[1], formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, answer):
        sub = commands.add_parser(name, help=answer.__doc__, description=answer.__doc__)
        sub.set_defaults(answer=answer)
        sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    def state(sub):
        sub.add_argument("--model", required=True, help="a known name, a config.json, or a parameter count")
        sub.add_argument("--recipe", default="bf16-adam", help=f"one of {', '.join(recipes.names())}")
        return sub

    count, number, size = _read(units.parse_count), _read(units.parse_number), _read(units.parse_bytes)
    train = state(command("train", _train))
    train.add_argument("--gpus", type=count, help="GPUs that share one copy of the state")
    train.add_argument("--stage", type=count, default=3, help="ZeRO stage, 0 to 3 (default 3)")
    train.add_argument("--gathered", action="store_true", help="add what stage 3 gathers while a layer runs")
    train.add_argument("--limit", type=size, help='bytes a GPU may use, such as "80 GB"')
    train.add_argument("--sequence", type=count, help="tokens of a sequence: add activations")
    train.add_argument("--batch", type=count, default=1, help="sequences on one GPU (default 1)")
    train.add_argument("--stack", help=f"one of {', '.join(activations.STACKS)}")
    train.add_argument("--recompute", default="none", help=f"one of {', '.join(activations.RECOMPUTE)}")
    serve = command("serve", _serve)
    serve.add_argument("--model", required=True,
                       help="a known name or a config.json; not a count, which has no KV cache")
    serve.add_argument("--context", type=count, required=True, help="tokens of each user's sequence")
    serve.add_argument("--users", type=count, default=1, help="sequences at once (default 1)")
    serve.add_argument("--accelerator", default="h100-sxm", help=f"one of {', '.join(tiers.accelerators())}")
    serve.add_argument("--gpus", type=count, help="GPUs there are; as many as needed if left out")
    serve.add_argument("--limit", type=size, help='bytes a GPU may use, such as "80 GB"; or all it has')
    serve.add_argument("--headroom", type=number, default=0.1, help="share of it to keep free (default 0.1)")
    serve.add_argument("--dtype", default="bf16", help="format of the weights")
    serve.add_argument("--kv-dtype", default="bf16", help="format of the KV cache")
    checkpoint = state(command("checkpoint", _checkpoint))
    checkpoint.add_argument("--contents", default="resumable", help=f"one of {', '.join(checkpoints.CONTENTS)}")
    checkpoint.add_argument("--to", type=_read(_rate_or_tier), help='a rate such as "20 GB/s", or a tier\'s name')
    checkpoint.add_argument("--writers", type=count, default=1, help="nodes that write at once")
    data = command("data", _data)
    data.add_argument("--model", required=True, help="a known name, a config.json, or a parameter count")
    data.add_argument("--tokens", type=count, required=True, help="tokens of the corpus, such as 15e12")
    data.add_argument("--vocabulary", type=count, help="tokens in the vocabulary; the model's own if left out")
    data.add_argument("--gpus", type=count, default=1, help="GPUs that train")
    data.add_argument("--flops", type=number, help="FLOP/s that each GPU reaches, such as 400e12")
    command("models", _models).add_argument("--model", help="show the parts of this one: a known name or a config.json")
    command("tiers", _tiers).add_argument("--rung", help=f"one of {', '.join(tiers.RUNGS)}")
    return parser


def _plain(answer):
    """An answer as JSON can hold it."""
    return answer.to_dict() if isinstance(answer, Inventory) else answer


def _text(name: str, answer) -> str:
    """An answer as a person reads it."""
    if isinstance(answer, Inventory):
        return f"{answer}\n"
    if isinstance(answer, dict):
        size = units.both(answer["capacity"]) if answer["capacity"] is not None else "not stated"
        read = units.format_rate(answer["read"]) if answer["read"] is not None else "not stated"
        latency = units.format_time(answer["latency"]) if answer["latency"] is not None else "not stated"
        return f"{name:22} {answer['rung']:22} {size:>24} {read:>12} {latency:>12}"
    if name.startswith("seconds"):
        return f"{name}: {answer:.3g}"
    if isinstance(answer, str):
        return f"{name}: {answer}"
    return f"{name:22} {answer:>22,}"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with one sentence on stderr when an argument is not usable.

    What was computed before that is printed all the same.
    """
    options = _parser().parse_args(arguments)
    answers, error = {}, None
    try:
        for name, answer in options.answer(options):
            answers[name] = answer
    except ValueError as refused:
        error = refused
    if options.json and answers:
        print(json.dumps({name: _plain(answer) for name, answer in answers.items()}, indent=2))
    elif answers:
        print("\n".join(_text(name, answer) for name, answer in answers.items()))
    if error is not None:
        print(f"memtier: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
