"""Training data: bytes, rates and waits as formulas, and a cache and a loop played through to check them."""

import doctest
import math
import random
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier import evidence, models, tiers, training_data
from memtier.training_data import Sample, cache_hits, pipeline, prefetch_depth, stall_fraction

SAMPLES = st.builds(Sample, st.just("a sample"), st.floats(1e2, 1e9), st.floats(1e2, 1e9))


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(training_data).failed == 0


# What it takes on disk

@pytest.mark.parametrize(("vocabulary", "nbytes"), [
    (1, 2), (50_257, 2), (65_535, 2), (65_536, 2), (65_537, 4), ("gpt2", 2), ("llama-3.1-8b", 4), ("mistral-7b", 2),
    (models.get("qwen2.5-7b"), 4)])
def test_an_id_takes_two_bytes_where_all_ids_fit_into_them(vocabulary, nbytes):
    assert training_data.bytes_per_token(vocabulary) == nbytes


def test_llama_3s_tokens_are_60_tb_and_would_be_30_as_uint16():
    assert training_data.text(15e12, vocabulary="llama-3.1-405b").total == 60 * 10**12
    assert training_data.text(15e12, vocabulary=50_257).total == 30 * 10**12


@given(tokens=st.integers(0, 10**16), vocabulary=st.integers(1, 10**6))
def test_tokens_and_bytes_go_both_ways(tokens, vocabulary):
    nbytes = training_data.text(tokens, vocabulary=vocabulary).total
    assert training_data.tokens_in(nbytes, vocabulary=vocabulary) == tokens


def test_samples_stored_and_batched():
    text = training_data.sequence(8192, vocabulary="llama-3.1-8b")
    assert (text.stored, text.batched) == (4 * 8192, 8 * 8192)
    image = training_data.image(150e3, element=4)
    assert (image.stored, image.batched) == (150e3, 224 * 224 * 3 * 4)
    decoded = evidence.get("data.resnet50.decoded").quantity
    assert training_data.image(1).batched == decoded  # what MLPerf Storage's configuration says a decoded record takes
    clip = training_data.clip(10, bit_rate=5e6, frames=32)
    assert (clip.stored, clip.batched) == (10 * 5e6 / 8, 32 * decoded)
    assert training_data.dataset(image, 12_800_000_000).total == 12.8e9 * 150e3


# How fast a run reads it

def test_llama_3_405b_reads_less_than_a_home_line():
    run = {name: evidence.get(f"data.llama3-405b.{name}").quantity for name in ("gpus", "rate")}
    tokens = training_data.tokens_per_second("llama-3.1-405b", gpus=run["gpus"], flops=run["rate"])
    assert tokens == pytest.approx(2.69e6, rel=1e-3)
    assert tokens * training_data.bytes_per_token("llama-3.1-405b") == pytest.approx(10.8e6, rel=5e-3)


def test_of_a_mixture_of_experts_only_what_a_token_passes_counts():
    mixtral = models.get("mixtral-8x7b")
    asked = {"gpus": 8, "flops": 400e12}
    assert training_data.tokens_per_second(mixtral, **asked) == training_data.tokens_per_second(
        mixtral.active_parameters, **asked)
    slower = training_data.tokens_per_second(7e9, what="training with full recomputation", **asked)
    assert slower == pytest.approx(training_data.tokens_per_second(7e9, **asked) * 6 / 8)


# The pipeline

def test_eight_gpus_on_images_need_3_gb_a_second():
    images = training_data.image(150e3)
    one = pipeline(images, rate=8 * 2500)
    assert one.hops[0].needed == 3e9
    assert one.slowest.name == "object storage → NVMe"
    assert one.hops[0].available == pytest.approx(150e3 / (0.15 + 150e3 / 87.5e6))
    depth = prefetch_depth(3e9, request=150e3, latency=0.15, bandwidth=87.5e6)
    assert pipeline(images, rate=8 * 2500, in_flight=depth).stall == 0
    assert pipeline(images, rate=8 * 2500, in_flight=depth - 1).stall > 0


@given(sample=SAMPLES, rate=st.floats(0.1, 1e5), in_flight=st.integers(1, 10_000), hits=st.floats(0, 1),
       prepared=st.none() | st.floats(1, 1e5))
def test_the_slowest_hop_decides(sample, rate, in_flight, hits, prepared):
    asked = {"rate": rate, "in_flight": in_flight, "prepared": prepared}
    one = pipeline(sample, hits=hits, **asked)
    assert 0 <= one.stall < 1
    assert one.delivered == pytest.approx(min(rate, *(rate * hop.available / hop.needed for hop in one.hops
                                                      if hop.needed)))
    assert pipeline(sample, hits=1, **asked).delivered >= one.delivered
    assert pipeline(sample, hits=hits, **asked | {"in_flight": in_flight + 1}).delivered >= one.delivered


def test_each_limit_can_be_the_one_that_starves():
    images = training_data.image(150e3)
    ample = {"rate": 20_000, "request": 64e6, "in_flight": 64, "prepared": 1e6}
    assert pipeline(images, **ample).stall == 0
    assert pipeline(images, **ample | {"rate": 200_000}).hops[0].limit == "64 in flight"
    assert pipeline(images, **ample | {"rate": 200_000, "in_flight": 640}).hops[0].limit == "the node's network"
    few = pipeline(images, **ample | {"request": 150e3, "in_flight": 10_000, "requests_per_second": 5500})
    assert few.slowest.limit == "requests a second"
    assert few.delivered == pytest.approx(5500)
    assert pipeline(images, **ample | {"prepared": 4000}).slowest.name == "CPU: decode and batch"
    assert pipeline(images, **ample | {"nvme": "micron-9200", "rate": 40_000}).slowest.name == "writing NVMe"
    assert pipeline(images, **ample | {"hits": 1, "rate": 100_000}).slowest.name == "NVMe → CPU memory"
    raw = training_data.image(150e3, height=1024, width=1024, element=4)
    assert pipeline(raw, **ample | {"gpus": 1, "rate": 10_000}).slowest.name == "CPU memory → HBM"


@given(rate=st.floats(1e6, 1e11), request=st.floats(1e3, 1e9), latency=st.floats(0, 1), bandwidth=st.floats(1e6, 1e9))
def test_the_depth_brings_the_rate_and_one_less_does_not(rate, request, latency, bandwidth):
    depth = prefetch_depth(rate, request=request, latency=latency, bandwidth=bandwidth)
    each = request / (latency + request / bandwidth)
    assert depth * each >= rate * (1 - 1e-9)
    assert (depth - 1) * each < rate * (1 + 1e-9)


# Waiting

def played(step, load, depth, rounds=4000):
    """The share of its time a loop waits that computes `step` on each load, with `depth` loads under way at once."""
    now = waited = 0.0
    taken = []  # when the loop took what each load brought; that is when the load `depth` places on begins
    for _ in range(rounds):
        begun = now if depth == 0 else taken[-depth] if len(taken) >= depth else 0.0
        taken.append(max(now, begun + load))
        waited, now = waited + taken[-1] - now, taken[-1] + step
    return waited / now


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize(("step", "load"), [(1, 3.5), (1, 1), (2, 1), (0.1, 5)])
def test_a_loop_played_through_waits_as_long_as_the_formula_says(step, load, depth):
    assert played(step, load, depth) == pytest.approx(stall_fraction(step, load, depth=depth), abs=0.01)


def test_nothing_to_wait_for():
    assert stall_fraction(1, 0) == stall_fraction(1, 0, depth=3) == 0


# The shard cache

def simulated(shards, cached, policy, epochs, seed=7):
    """Hits a read of a cache that holds `cached` of `shards` shards, from the second epoch on."""
    chance, order, held, hits = random.Random(seed), list(range(shards)), OrderedDict(), 0
    for epoch in range(epochs):
        if policy != "same order":
            chance.shuffle(order)
        for shard in order:
            found = shard in held
            hits += found and epoch > 0
            if found:
                held.move_to_end(shard)
            elif policy != "pinned" or len(held) < cached:
                held[shard] = True
                if len(held) > cached:
                    held.popitem(last=False)
    return hits / (shards * (epochs - 1))


@pytest.mark.parametrize("policy", training_data.POLICIES)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_cache_played_through_hits_as_often_as_the_formula_says(policy, share):
    assert simulated(2000, int(2000 * share), policy, 11) == pytest.approx(cache_hits(share, policy=policy), abs=0.006)


def test_half_the_set_in_an_lru_cache_answers_a_seventh():
    assert cache_hits(0.5) == pytest.approx(0.1534, abs=1e-4)
    assert cache_hits(0.5, policy="pinned") == 0.5
    assert cache_hits(0.999, policy="same order") == 0


@given(share=st.floats(0, 1))
def test_lru_is_never_better_than_a_pinned_part_and_is_exact_at_the_ends(share):
    assert 0 <= cache_hits(share) <= cache_hits(share, policy="pinned") + 1e-12
    assert [cache_hits(end, policy=policy) for end in (0, 1) for policy in training_data.POLICIES] == [0] * 3 + [1] * 3


# Requests and corpora

def test_small_requests_cost_more_than_large_ones():
    small, large = (training_data.requests(60e12, request=size) for size in (32 * 1024, 64e6))
    assert (small, large) == (math.ceil(60e12 / 32768), 937_500)
    assert training_data.request_price(small) == pytest.approx(732, rel=1e-3)
    assert training_data.request_price(large) == pytest.approx(0.375)


def test_the_table_of_corpora_has_its_sources():
    table = training_data.corpora()
    assert len(table.rows) == len(training_data.CORPORA)
    assert "240 trillion tokens" in str(table)
    assert "37.6 KB" in str(table)  # 220 TB over 5.85 billion pairs
    assert all(note.url or "CS336" in note.text for note in table.notes)


@pytest.mark.parametrize("name", tiers.names())
@pytest.mark.parametrize("argument", ["store", "nvme"])
def test_every_tier_can_be_a_store_and_a_cache_or_says_why_not(argument, name):
    tier = tiers.get(name)
    missing = [way for way in ("write", "read") if getattr(tier, way) is None and (way, argument) != ("write", "store")]
    if missing:
        with pytest.raises(ValueError, match=f"{argument} is '{name}'; the ledger has no {missing[0]} rate for it, so"):
            pipeline(training_data.image(1e5), rate=10, **{argument: name})
        return
    hops = pipeline(training_data.image(1e5), rate=10, network=1e30, **{argument: name}).hops
    if argument == "store":  # one request after the other; a latency that no source gives counts as 0
        assert hops[0].available == pytest.approx(1e5 / ((tier.latency or 0) + 1e5 / tier.read))
    else:
        assert [hop.available for hop in hops[1:3]] == [tier.write, tier.read]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: pipeline(training_data.image(1), rate=1, store="floppy"), "store is 'floppy'; it must be the name of a"),
    (lambda: pipeline(training_data.image(1), rate=1, nvme="floppy"), "nvme is 'floppy'"),
    (lambda: training_data.dataset(None, 5), "sample is None; it must be a Sample"),
    (lambda: training_data.requests(1e300, request=1e-300), "nbytes / request is inf"),
    (lambda: training_data.bytes_per_token(0), "vocabulary is 0"),
    (lambda: training_data.bytes_per_token("nobody"), "nobody"),
    (lambda: training_data.text(-1, vocabulary=10), "tokens is -1"),
    (lambda: training_data.sequence(0, vocabulary=10), "tokens is 0"),
    (lambda: training_data.image(0), "nbytes is 0"),
    (lambda: training_data.image(1, element=0.5), "element is 0.5"),
    (lambda: training_data.clip(0, bit_rate=1, frames=1), "seconds is 0"),
    (lambda: training_data.clip(1, bit_rate=1, frames=0), "frames is 0"),
    (lambda: training_data.dataset(training_data.image(1), -1), "count is -1"),
    (lambda: training_data.tokens_per_second(1e9, gpus=0, flops=1), "gpus is 0"),
    (lambda: training_data.tokens_per_second(1e9, gpus=1, flops=1, what="guessing"), "what is 'guessing'"),
    (lambda: pipeline(training_data.image(1), rate=0), "rate is 0"),
    (lambda: pipeline(training_data.image(1), rate=1, hits=2), "hits is 2"),
    (lambda: pipeline(training_data.image(1), rate=1, request=0), "request is 0"),
    (lambda: prefetch_depth(1, request=0, latency=0, bandwidth=1), "request is 0"),
    (lambda: stall_fraction(0, 1), "step is 0"),
    (lambda: stall_fraction(1, 1, depth=-1), "depth is -1"),
    (lambda: cache_hits(1.1), "share is 1.1"),
    (lambda: cache_hits(0.5, policy="random"), "policy is 'random'"),
    (lambda: training_data.requests(1, request=0), "request is 0"),
    (lambda: training_data.request_price(1, price="price.s3-standard.storage"), "price is 'price.s3-standard.storage'"),
])
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_nodes_network_is_what_the_ledger_says_of_an_instance():
    fast = pipeline(training_data.image(150e3), rate=1e6, in_flight=10**6)
    assert fast.hops[0].available == tiers.get("s3").read
