"""Every public function of the formulas, with each argument in turn replaced by something that it is not made for.

It answers, or it raises ValueError in one short sentence, before whose semicolon the argument's name stands. A function
that is new needs a row in GOOD, or, where readers do not call it, a place in INNER.
"""

import inspect
import re
from importlib import import_module

import numpy as np
import pytest

from memtier import kv_cache, models, training_data, weights
from memtier.checkpoints import Stage
from memtier.layout import Layout
from memtier.recovery import Level

BAD = {
    "None": None, "True": True, "False": False, "text": "x", "long text": "x" * 5000, "no text": "", "list": [],
    "list in a list": [[]], "list of None": [None], "long list": [0] * 5000, "dict": {}, "set": {1}, "object": object(),
    "nan": float("nan"), "infinity": float("inf"), "huge": 10**400, "negative": -1, "zero": 0, "half": 0.5,
    "complex": 1j, "bytes": b"x", "array": np.array([1.5]), "arrays": np.array([1.5, 2.5]), "no array": np.array([]),
    "whole array": np.array([1, 2]), "array of texts": np.array(["x"]), "largest": 1e300, "least": 5e-324,
}

EIGHT = models.get("llama-3.2-1b")
TRAIN = {"model": EIGHT, "batch": 1, "sequence": 8, "stack": "hf-sdpa", "recompute": "none", "dtype": "bf16",
         "dropout": True, "loss": "dense", "chunks": 8}
SAMPLE = {"height": 2, "width": 2, "channels": 3, "element": 1}
MESSAGE = ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is"
           " free. Of the allocated memory 3.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but"
           " unallocated.")

# Arguments that are right, all of them: each is replaced in turn.
GOOD = {
    "optimizer_state": {
        "inventory": {"model": EIGHT, "recipe": "bf16-adam", "activations": 0, "other": 0},
        "per_gpu": {"model": EIGHT, "recipe": "bf16-adam", "gpus": 2, "stage": 3, "layout": None, "rank": 0,
                    "padded": False, "gathered": False},
        "gpus_needed": {"model": EIGHT, "recipe": "bf16-adam", "stage": 3, "limit": 80e9, "gathered": False},
        "traffic": {"model": EIGHT, "recipe": "bf16-adam", "micro_batches": 1},
        "offload": {"model": EIGHT, "recipe": "bf16-adam", "link": "pcie5-x16", "memory": "epyc-genoa-ddr5",
                    "update": "cpu", "overlap": 0.0, "links": 1, "memories": 1},
    },
    "layout": {
        "rows": {"first_dimension": 5, "shards": 2, "rank": 1},
        "padded_rows": {"first_dimension": 5, "shards": 2},
        "stages": {"layers": 5, "pipeline": 2},
    },
    "recipes": {"names": {}, "get": {"recipe": "bf16-adam"}},
    "tiers": {
        "get": {"name": "s3"}, "link": {"name": "pcie5-x16"}, "accelerator": {"name": "h100-sxm"},
        "find": {"name": "s3"}, "names": {"rung": "NVMe"}, "links": {}, "accelerators": {}, "ladder": {},
        "transfer_time": {"nbytes": 1e9, "bandwidth": 1e9, "latency": 0, "streams": 1},
        "small_read_bandwidth": {"request": 1, "latency": 0, "bandwidth": 1e9, "in_flight": 1},
        "in_flight_needed": {"request": 1, "latency": 0, "bandwidth": 1e9, "share": 0.5},
        "streams_needed": {"rate": 1e9, "each": 1e9},
        "flops": {"parameters": 1e9, "tokens": 1, "what": "forward"},
        "intensity": {"flops": 1, "nbytes": 1},
        "ridge_point": {"flops": 1, "bandwidth": 1},
        "attainable_flops": {"intensity": 1, "flops": 1, "bandwidth": 1},
        "price": {"nbytes": 1e9, "tier": "s3", "months": 1, "lifetime": 36},
        "table": {"which": ["s3"], "nbytes": 1e9}, "overview": {}, "links_table": {"which": ["pcie5-x16"]},
        "accelerators_table": {"which": ["h100-sxm"]}, "price_table": {"nbytes": 1e9, "months": 1, "lifetime": 36},
    },
    "evidence": {
        "get": {"id": "hbm.h100-sxm.bandwidth"}, "ids": {"group": "hbm"}, "find": {"text": "h100"}, "conflicts": {},
        "table": {"which": "hbm"}, "conflicts_table": {"which": ["hbm.h100-sxm.bandwidth"]}, "all": {},
    },
    "units": {
        "parse_number": {"text": "1"}, "parse_share": {"text": "1 %"}, "parse_count": {"text": "1"},
        "parse_bytes": {"text": "1 B"}, "parse_rate": {"text": "1 B/s"}, "parse_time": {"text": "1 s"},
        "format_bytes": {"nbytes": 1, "binary": False, "digits": 3}, "both": {"nbytes": 1, "digits": 3},
        "format_rate": {"rate": 1, "digits": 3}, "format_time": {"seconds": 1, "digits": 3},
        "format_count": {"count": 1, "digits": 3},
    },
    "models": {"from_config": {"config": EIGHT.config, "name": "mine"}, "names": {}, "get": {"name": "gpt2"},
               "resolve": {"model": "gpt2"}},
    "weights": {
        "get": {"name": "bf16"},
        "inventory": {"model": EIGHT, "dtype": "fp8", "keep": ["head"], "kept": "bf16", "router": None},
        "by_format": {"model": EIGHT, "dtype": "fp8", "keep": ["head"], "kept": "bf16"},
        "gpus_needed": {"model": EIGHT, "limit": 80e9, "headroom": 0.1, "dtype": "bf16", "keep": None},
        "distinct_experts": {"experts": 8, "per_token": 2, "batch": 3},
        "read": {"model": EIGHT, "batch": 2, "dtype": "fp8", "keep": ["head"], "kept": "bf16", "lookup": "rows"},
        "read_time": {"model": EIGHT, "source": "h100-sxm", "batch": 2, "dtype": "bf16", "keep": None, "streams": 1,
                      "lookup": "whole"},
        "source_rate": {"source": 1e9},
        "decode": {"model": EIGHT, "accelerator": "h100-sxm", "batch": 2, "gpus": 1, "dtype": "bf16", "keep": None,
                   "kv": 0, "flops": None, "lookup": "whole"},
        "memory_bound_until": {"model": EIGHT, "accelerator": "h100-sxm", "dtype": "bf16", "keep": None, "kv": 0,
                               "flops": None, "lookup": "whole"},
        "active": {"model": EIGHT}, "shaped": {"model": EIGHT},
    },
    "activations": {
        "stacks": {"model": EIGHT},
        "block": {name: TRAIN[name] for name in ("model", "batch", "sequence", "stack", "dtype", "dropout")}
        | {"layer": 0},
        "tensors": TRAIN, "saved": TRAIN | {"layout": None}, "live": TRAIN, "moments": TRAIN, "peak": TRAIN,
        "logits": {name: TRAIN[name] for name in ("model", "batch", "sequence", "dtype", "loss", "chunks")},
        "flops_recomputed": {name: TRAIN[name] for name in ("model", "batch", "sequence", "stack", "recompute",
                                                            "dropout", "loss")},
        "five_term": {"model": EIGHT, "batch": 1, "sequence": 8},
    },
    "workspace": {
        "rounded": {"nbytes": 1}, "segment": {"nbytes": 1},
        "entries": {"model": EIGHT, "recipe": "bf16-adam", "gpus": 1, "allocated": None, "communicators": 1,
                    "all_to_all": True, "streams": 1, "hopper": True, "autocast": False, "micro_batches": 2,
                    "update": "loop"},
        "inventory": {"model": EIGHT}, "read_message": {"text": MESSAGE},
    },
    "flash_attention": {
        "not_written": {"model": EIGHT, "batch": 1, "sequence": 8, "dtype": "bf16", "layer": 0},
        "written_instead": {"model": EIGHT, "batch": 1, "sequence": 8, "layer": 0},
        "tile": {"head_dim": 64, "sram": 10**5, "dtype": "bf16"},
        "traffic": {"sequence": 8, "head_dim": 64, "sram": 10**5, "dtype": "bf16", "heads": 1, "batch": 1},
    },
    "kv_cache": {
        "bytes_per_token": {"model": EIGHT, "dtype": "bf16", "position": 1},
        "inventory": {"model": EIGHT, "batch": 1, "sequence": 8, "dtype": "bf16", "cache": "dynamic", "last": 1,
                      "windows": True},
        "paged": {"model": EIGHT, "lengths": [8], "block": 16, "dtype": "bf16"},
        "reserved": {"model": EIGHT, "lengths": [8], "limit": 9, "dtype": "bf16"},
        "users": {"model": EIGHT, "limit": 80e9, "headroom": 0.1, "gpus": 1, "sequence": 8, "dtype": "bf16",
                  "weights_dtype": "bf16", "block": 16},
        "users_to_pass": {"model": EIGHT, "nbytes": 1e9, "sequence": 8, "dtype": "bf16"},
        "prefixes": {"model": EIGHT, "count": 2, "tokens": 8, "shared": 2, "dtype": "bf16"},
        "places": {"accelerator": "h100-sxm", "memory": "epyc-genoa-ddr5", "drive": "micron-9550", "store": "s3"},
        "prefill_flops": {"model": EIGHT, "tokens": 8, "prefix": 1, "attention": True},
        "recompute_time": {"model": EIGHT, "tokens": 8, "efficiency": 0.5, "accelerator": "h100-sxm", "gpus": 1,
                           "prefix": 1, "attention": True},
        "stored": {"model": EIGHT, "tokens": 8, "dtype": "bf16"},
        "fetch_time": {"model": EIGHT, "tokens": 8, "source": 1e9, "latency": 0, "streams": 1, "dtype": "bf16"},
        "ways": {"model": EIGHT, "tokens": 8, "efficiency": 0.5, "accelerator": "h100-sxm", "gpus": 1, "links": 1,
                 "attention": False, "dtype": "bf16", "where": kv_cache.places()},
        "break_even_bandwidth": {"model": EIGHT, "tokens": 8, "efficiency": 0.5, "latency": 0,
                                 "accelerator": "h100-sxm", "gpus": 1, "attention": False, "dtype": "bf16"},
        "break_even_length": {"model": EIGHT, "source": 1e9, "efficiency": 0.5, "latency": 0, "streams": 1,
                              "accelerator": "h100-sxm", "gpus": 1, "attention": False, "dtype": "bf16"},
        "zipf": {"items": 3, "exponent": 1},
        "hit_rate": {"popularity": [1, 2], "capacity": 1, "policy": "lru"},
        "served": {"popularity": [1, 2], "capacities": [1], "policy": "lru"},
        "mean_time": {"shares": [1], "seconds": [1]},
        "reuse_distances": {"trace": "aba"},
        "reuse_hit_rate": {"distances": {None: 2, 1: 1}, "capacity": 1},
    },
    "checkpoints": {
        "inventory": {"model": EIGHT, "recipe": "bf16-adam", "contents": "resumable"},
        "per_rank": {"model": EIGHT, "recipe": "bf16-adam", "layout": Layout(shard=8, zero=3), "stage": "max",
                     "contents": "resumable", "spread": True},
        "stage_parameters": {"model": EIGHT, "pipeline": 2},
        "write_time": {"nbytes": 1e9, "to": 1e9, "writers": 1},
        "drain": {"interval": 30, "stages": [Stage("NVMe", 1)], "duration": 60, "snapshot": 0, "buffers": 1,
                  "asynchronous": True, "keep": "all"},
        "backlog": {"interval": 30, "seconds": 50, "duration": 3600},
        "written_each_day": {"nbytes": 1e9, "interval": 30},
        "drive_life": {"nbytes": 1e9, "interval": 30, "endurance": 1e15, "drives": 1},
    },
    "recovery": {
        "mtbf": {"components": {"GPU": (8, 1e9)}}, "observed_mtbf": {"failures": 419, "seconds": 1e6},
        "failures_expected": {"seconds": 1, "mtbf_seconds": 1}, "survives": {"seconds": 1, "mtbf_seconds": 1},
        "interval": {"write_seconds": 1, "mtbf_seconds": 1e4, "method": "daly"},
        "lost_work": {"interval": 1, "mtbf_seconds": 1, "seconds": 1, "restart": 0, "lag": 0},
        "restart": {"nbytes": 1e9, "source": 1e9, "readers": 1, "detect": 0, "start": 0},
        "goodput": {"interval": 1, "write_seconds": 1, "mtbf_seconds": 1e4, "restart": 0, "lag": 0, "method": "exact"},
        "schedule": {"levels": [Level("NVMe", 1, 1, 1, 1)], "mtbf_seconds": 1e4},
        "best_schedule": {"levels": [Level("NVMe", 1, 1, 1, 1)], "mtbf_seconds": 1e4},
    },
    "training_data": {
        "bytes_per_token": {"vocabulary": 9}, "text": {"tokens": 9, "vocabulary": 9},
        "tokens_in": {"nbytes": 9, "vocabulary": 9}, "sequence": {"tokens": 9, "vocabulary": 9},
        "image": {"nbytes": 9} | SAMPLE, "clip": {"seconds": 1, "bit_rate": 1, "frames": 1} | SAMPLE,
        "dataset": {"sample": training_data.image(9), "count": 9},
        "tokens_per_second": {"model": EIGHT, "gpus": 1, "flops": 1e12, "what": "training"},
        "pipeline": {"sample": training_data.image(9), "rate": 1, "request": None, "in_flight": 1, "hits": 0,
                     "store": "s3", "network": None, "requests_per_second": None, "nvme": "micron-9550", "drives": 1,
                     "prepared": 1, "link": "pcie5-x16", "gpus": 1},
        "prefetch_depth": {"rate": 1, "request": 1, "latency": 1, "bandwidth": 1},
        "stall_fraction": {"step": 1, "load": 1, "depth": 1}, "cache_hits": {"share": 0.5, "policy": "lru"},
        "requests": {"nbytes": 1, "request": 1}, "request_price": {"count": 1, "price": "price.s3-standard.gets"},
        "corpora": {},
    },
}

# What other modules call, with what they have checked; and readers of the package's own files, which tests hold.
INNER = {"weights": {"first", "longest", "within"}, "kv_cache": {"vectors"},
         "tiers": {"read"}, "evidence": {"read"}}
# A look-up says what is looked up, a list which of its items, a config.json which of its keys; typed text is quoted.
CALLED = {("weights", "get"): "dtype", ("models", "get"): "model", ("models", "from_config"): "model_type",
          ("tiers", "get"): "tier", ("tiers", "table"): "tier", ("tiers", "link"): "link",
          ("tiers", "links_table"): "link",
          ("tiers", "accelerator"): "accelerator", ("tiers", "accelerators_table"): "accelerator",
          ("tiers", "find"): "source", ("evidence", "table"): "group|id", ("evidence", "conflicts_table"): "id",
          **{("units", f"parse_{name}"): "is not a" for name in ("number", "share", "count", "bytes", "rate", "time")}}
# Words that only messages and tables show.
SHOWN = {"argument", "or_rate", "why", "what", "caption", "brief"}

FUNCTIONS = [(module, name) for module, functions in GOOD.items() for name in functions]


def public(module):
    """The module's own functions, by name."""
    return {name for name, each in vars(module).items() if not name.startswith("_")
            and inspect.isfunction(inspect.unwrap(each) if callable(each) else each)
            and getattr(each, "__module__", None) == module.__name__}


def arguments(function):
    """Its arguments; the names that stand for words in messages are left out where it has a default for them."""
    return [name for name, each in inspect.signature(function).parameters.items()
            if each.kind is not each.VAR_KEYWORD and not (name in SHOWN and each.default is not each.empty)]


def names(told, *called):
    """Does the sentence say, before what is allowed, one of these names? Some begin with it: model_type is missing."""
    return any(told.startswith(each) or re.search(rf"\b({each})\b", told.split(";")[0]) for each in called)


@pytest.mark.parametrize("name", GOOD)
def test_every_public_function_has_a_row(name):
    found = public(import_module(f"memtier.{name}")) - INNER.get(name, set())
    assert found <= {*GOOD[name]}, "a new function: give it a row in GOOD"


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_a_row_is_right_and_whole(module, name):
    function, good = getattr(import_module(f"memtier.{module}"), name), GOOD[module][name]
    assert set(arguments(function)) <= set(good)
    function(**good)


def refusal(call, **how):
    """What a call raises ValueError with; None where it answers."""
    try:
        call(**how)
    except ValueError as error:
        return str(error)
    return None


def check(call, good, argument, called):
    """The call with each bad value of an argument in turn."""
    for what, value in BAD.items():
        told = refusal(call, **good | {argument: value})
        if told is not None:
            assert names(told, argument, called), (argument, what, told)
            assert len(told) < 400, (argument, what, told)
            assert "\n" not in told, (argument, what, told)


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_bad_input_is_answered_or_refused_in_a_sentence(module, name):
    function, good = getattr(import_module(f"memtier.{module}"), name), GOOD[module][name]
    for argument in good:
        check(function, good, argument, CALLED.get((module, name), argument))


@pytest.mark.parametrize(("build", "good"), [
    (Layout, {"replicate": 1, "shard": 2, "zero": 3, "tensor": 2, "sequence_parallel": True, "pipeline": 1}),
    (training_data.Sample, {"title": "mine", "stored": 9, "batched": 9}),
    (kv_cache.Place, {"name": "mine", "title": "mine", "rate": 1e9, "latency": 0, "capacity": None, "everyone": False}),
    (weights.Format, {"name": "mine", "title": "mine", "source": "mine", "bits": 4, "group": 32, "scale": 8, "zero": 0,
                      "along": "row", "padded": True, "again": None, "once": 0}),
])
def test_what_readers_make_themselves_is_whole(build, good):
    for argument in good:
        check(build, good, argument, argument)
