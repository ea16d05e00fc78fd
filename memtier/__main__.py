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
import io
import json
import math
import os
import re
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
LONGEST = 600  # characters of a message about the command line


def _model(text: str) -> models.Model | int:
    """What --model says. Raises ValueError naming the flag."""
    try:
        return models.resolve(text)
    except ValueError as error:
        raise ValueError(f"--{error}" if str(error).startswith("model ") else f"--model: {error}") from None


def _shaped(text: str, why: str) -> models.Model:
    """The same where a bare parameter count will not do: it has no `why`."""
    model = _model(text)
    if not isinstance(model, models.Model):
        raise ValueError(f"--model is {checks.brief(text)}; a count has no {why}")
    return model


def _counts(options, *flags: str) -> None:
    """Check the flags that count something, where they are given."""
    for flag in flags:
        if getattr(options, flag) is not None:
            checks.whole(f"--{flag}", getattr(options, flag))


def _of_use(options, flags: tuple[str, ...], *wanted: str) -> None:
    """Refuse flags that change nothing, because none of the wanted ones stands beside them."""
    for flag in flags:
        if getattr(options, flag) not in (None, False) and all(getattr(options, each) is None for each in wanted):
            beside = " or ".join(f"--{each}" for each in wanted)
            raise ValueError(f"--{flag} changes nothing alone; give {beside} as well")


def _given(value, usual):
    return usual if value is None else value


def _train(options) -> Answers:
    """State of one copy; of one GPU with --gpus; GPUs needed with --limit; one GPU's activations with --sequence."""
    model, how = _model(options.model), {"recipe": options.recipe}
    _counts(options, "gpus", "sequence", "batch")
    stage = checks.one_of("--stage", _given(options.stage, 3), (0, 1, 2, 3))
    recompute = checks.one_of("--recompute", _given(options.recompute, "none"), activations.RECOMPUTE)
    if options.stack is not None:
        checks.one_of("--stack", options.stack, activations.STACKS)
    if options.sequence is not None:
        weights.within("--sequence", options.sequence, model)
    _of_use(options, ("stage", "gathered"), "gpus", "limit")
    _of_use(options, ("batch", "stack", "recompute"), "sequence")
    yield "one copy", optimizer_state.inventory(model, **how)
    how |= {"stage": stage, "gathered": options.gathered}
    if options.gpus is not None:
        yield "one GPU", optimizer_state.per_gpu(model, gpus=options.gpus, **how)
    if options.limit is not None:
        yield "GPUs needed", optimizer_state.gpus_needed(model, limit=options.limit, **how)
    if options.sequence is not None:
        how = {"batch": _given(options.batch, 1), "sequence": options.sequence, "recompute": recompute,
               "stack": options.stack or activations.stacks(model)[0]}
        yield "activations kept", activations.saved(model, **how)
        if how["stack"] not in activations.MEGATRON:
            yield "activations at the fullest moment", activations.peak(model, **how)


def _serve(options) -> Answers:
    """Weights and KV cache of --users with --context tokens each, the GPUs that hold them, and the fastest decoding."""
    model = _shaped(options.model, "layers that keep keys and values, give a known name or a config.json")
    accelerator = tiers.accelerator(options.accelerator, "--accelerator")
    limit = accelerator.memory.capacity if options.limit is None else options.limit
    _counts(options, "context", "users", "gpus")
    weights.within("--context", options.context, model)
    dtypes = {"dtype": weights.get(options.kv_dtype, "--kv-dtype"),
              "weights_dtype": weights.get(options.dtype, "--dtype")}
    held = weights.inventory(model, dtype=options.dtype)
    one = kv_cache.inventory(model, sequence=options.context, dtype=options.kv_dtype)
    cache = kv_cache.inventory(model, batch=options.users, sequence=options.context, dtype=options.kv_dtype)
    yield "weights", held
    yield "KV cache", cache
    weights.gpus_needed(model, limit=limit, headroom=options.headroom)  # refuses a headroom that leaves no room
    needed = math.ceil((held.total + cache.total) / (limit * (1 - options.headroom)))
    gpus = needed if options.gpus is None else options.gpus
    fit = kv_cache.users(model, limit=limit, headroom=options.headroom, gpus=gpus, sequence=options.context, **dtypes)
    yield "GPUs needed", needed
    yield "GPUs", gpus
    yield "users that fit", fit
    if fit >= options.users:
        step = weights.decode(model, accelerator=accelerator, batch=options.users, gpus=gpus, dtype=options.dtype,
                              kv=one.total)
        yield "tokens a second, at most", round(step.tokens_per_second)
        yield "bound by", step.bound


def _checkpoint(options) -> Answers:
    """Bytes of one checkpoint, and its write time when --to is given."""
    model = _model(options.model)
    _counts(options, "writers")
    _of_use(options, ("writers",), "to")
    saved = checkpoints.inventory(model, recipe=options.recipe, contents=options.contents)
    yield "checkpoint", saved
    if options.to is not None:
        yield "seconds to write", checkpoints.write_time(saved.total, to=options.to, writers=_given(options.writers, 1))


def _data(options) -> Answers:
    """Bytes of a tokenised corpus, and how fast a run of --gpus reads it when --flops is given."""
    model = _model(options.model)
    _counts(options, "tokens", "vocabulary", "gpus")
    _of_use(options, ("gpus",), "flops")
    if options.vocabulary is None and not isinstance(model, models.Model):
        raise ValueError(f"--model is {checks.brief(options.model)}; a count has no vocabulary, so give --vocabulary "
                         "as well")
    vocabulary = model.vocab if options.vocabulary is None else options.vocabulary
    yield "corpus", training_data.text(options.tokens, vocabulary=vocabulary)
    if options.flops is not None:
        tokens = training_data.tokens_per_second(model, gpus=_given(options.gpus, 1), flops=options.flops)
        each = training_data.bytes_per_token(vocabulary)
        yield "tokens a second", round(tokens)
        yield "bytes a second", round(tokens * each)
        yield "seconds for all", options.tokens / tokens


def _models(options) -> Answers:
    """Every known architecture and its parameters, or the parts of one."""
    if options.model is None:
        yield from ((name, models.get(name).parameters) for name in models.names())
        return
    model = _shaped(options.model, "parts, give a name or a config.json")
    yield "parameters", model.parameters
    yield from model.parts().items()


def _tiers(options) -> Answers:
    """The ladder: capacity, read rate and latency of each tier, as far as a source says."""
    for tier in map(tiers.get, tiers.names(rung=options.rung)):
        yield tier.name, {"rung": tier.rung, "capacity": tier.capacity, "read": tier.read, "latency": tier.latency}


def _rate_or_tier(text: str):
    """A rate such as "20 GB/s", or a tier's name."""
    if re.match(r"\s*\.?[0-9]", text):
        return units.parse_rate(text)
    try:
        return tiers.get(text, "it").name
    except ValueError as error:
        raise ValueError(f"{error}; or a rate such as '20 GB/s'") from None


def _read(parse: Callable) -> Callable:
    """parse, with its own sentence reaching the user; argparse would put "invalid parse_bytes value" in its place."""

    def read(text: str):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(error) from None

    return read


class _Parser(argparse.ArgumentParser):
    """One that does not say all of a long command line again."""

    def error(self, message: str):
        message = re.sub(rf"\S{{{checks.LONGEST + 1},}}", lambda word: checks.brief(word[0], str), message)
        super().error(message if len(message) <= LONGEST else f"{message[:LONGEST // 2]} ... {message[-LONGEST // 2:]}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m memtier", description=__doc__.split("\n\n")[0],
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
    train.add_argument("--stage", type=count, help="ZeRO stage, 0 to 3 (default 3)")
    train.add_argument("--gathered", action="store_true", help="add what stage 3 gathers while a layer runs")
    train.add_argument("--limit", type=size, help='bytes a GPU may use, such as "80 GB"')
    train.add_argument("--sequence", type=count, help="tokens of a sequence: add activations")
    train.add_argument("--batch", type=count, help="sequences on one GPU (default 1)")
    train.add_argument("--stack", help=f"one of {', '.join(activations.STACKS)}")
    train.add_argument("--recompute", help=f"one of {', '.join(activations.RECOMPUTE)} (default none)")
    serve = command("serve", _serve)
    serve.add_argument("--model", required=True,
                       help="a known name or a config.json; not a count, which has no KV cache")
    serve.add_argument("--context", type=count, required=True, help="tokens of each user's sequence")
    serve.add_argument("--users", type=count, default=1, help="sequences at once (default 1)")
    serve.add_argument("--accelerator", default="h100-sxm", help=f"one of {', '.join(tiers.accelerators())}")
    serve.add_argument("--gpus", type=count, help="GPUs there are; as many as needed if left out")
    serve.add_argument("--limit", type=size, help='bytes a GPU may use, such as "80 GB"; or all it has')
    serve.add_argument("--headroom", type=_read(units.parse_share), default=0.1,
                       help="share of it to keep free, such as 0.1 or 10 %% (default 0.1)")
    serve.add_argument("--dtype", default="bf16", help="format of the weights")
    serve.add_argument("--kv-dtype", default="bf16", help="format of the KV cache")
    checkpoint = state(command("checkpoint", _checkpoint))
    checkpoint.add_argument("--contents", default="resumable", help=f"one of {', '.join(checkpoints.CONTENTS)}")
    checkpoint.add_argument("--to", type=_read(_rate_or_tier), help='a rate such as "20 GB/s", or a tier\'s name')
    checkpoint.add_argument("--writers", type=count, help="nodes that write at once (default 1)")
    data = command("data", _data)
    data.add_argument("--model", required=True, help="a known name, a config.json, or a parameter count")
    data.add_argument("--tokens", type=count, required=True, help="tokens of the corpus, such as 15e12")
    data.add_argument("--vocabulary", type=count, help="tokens in the vocabulary; the model's own if left out")
    data.add_argument("--gpus", type=count, help="GPUs that train (default 1)")
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
        return f"{name}: {answer:.3g} ({units.format_time(answer)})"
    if name.startswith("bytes a second"):
        return f"{name}: {answer:,} ({units.format_rate(answer)})"
    if isinstance(answer, str):
        return f"{name}: {answer}"
    return f"{name:22} {answer:>22,}"


def _run(arguments: list[str] | None) -> int:
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


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with one sentence on stderr when an argument is not usable.

    What was computed before that is printed all the same. 1 where nothing can be written; a reader such as `head` that
    has read enough is no error.
    """
    for stream in (sys.stdout, sys.stderr):  # a letter that the terminal lacks is shown as a question mark
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
    try:
        try:
            return _run(arguments)
        finally:  # here, where an error can still be told, and not when Python ends
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0
        print(f"memtier: the answer could not be written: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
