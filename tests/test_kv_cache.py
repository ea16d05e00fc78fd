"""Bytes of KV caches, their blocks, users and tiers: published tables, the course's numbers, properties."""

import doctest
import itertools
import math
import random
from collections import Counter, OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtier import activations, flash_attention, kv_cache, models, tiers, weights

windowed = st.sampled_from(["mistral-7b", "gemma-2-9b", "gemma-3-1b"])
names = st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "pythia-6.9b", "qwen2.5-7b", "deepseek-v3",
                         "deepseek-v2-lite"])
dtypes = st.sampled_from(["fp32", "bf16", "fp8", "int8", "int8-rows", "int4", "mxfp8", "mxfp6", "mxfp4", "nvfp4"])
lengths = st.integers(1, 20_000)


def small(**keys):
    """A Llama of these sizes, or another family's model where model_type says so."""
    return models.from_config({"model_type": "llama", "vocab_size": 32, "hidden_size": 24, "num_hidden_layers": 3,
                               "intermediate_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2} | keys)


def mistral(window, **keys):
    return small(model_type="mistral", head_dim=6, sliding_window=window, **keys)


def test_the_examples_in_the_docstrings():
    failed, attempted = doctest.testmod(kv_cache)
    assert attempted > 8
    assert failed == 0


# Published tables


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [("deepseek-v3", 70.272), ("qwen2.5-72b", 327.680), ("llama-3.1-405b", 516.096)],
)
def test_deepseeks_hardware_paper(name, kilobytes):
    # arXiv:2505.09343 (ISCA 2025), Table 1: KB a token in bf16, decimal
    assert kv_cache.bytes_per_token(name) == round(1000 * kilobytes)


def test_deepseek_v2s_numbers_a_token():
    # arXiv:2405.04434, appendix D: 15.6K numbers with latent attention in the small model of 27 layers, 34.6K in the
    # large one of 60 layers; a layer keeps 512 + 64.
    assert kv_cache.bytes_per_token("deepseek-v2-lite") // 2 == 15_552
    large = models.get("deepseek-v2-lite").config | {"num_hidden_layers": 60}
    assert kv_cache.bytes_per_token(models.from_config(large)) // 2 == 34_560


def opt(layers, hidden, heads):
    """A model with the KV cache of an OPT, a family that is not read here: every head has its own keys and values."""
    return models.from_config({"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads,
                               "n_positions": 2048})


@pytest.mark.parametrize(
    ("model", "gibibytes", "slots"),
    # arXiv:2309.06180, Table 1: memory for KV cache and the tokens that fit. Its GB are GiB; the memory of the second
    # is rounded to two digits (21.3 would give its 9.7K), hence the tolerance.
    [(opt(40, 5120, 40), 12, 15.7e3), (opt(64, 9216, 72), 21, 9.7e3), (opt(96, 12288, 96), 264, 60.1e3)],
)
def test_paged_attentions_table_1(model, gibibytes, slots):
    assert gibibytes * 2**30 / kv_cache.bytes_per_token(model) == pytest.approx(slots, rel=0.015)


def test_paged_attentions_opt_13b():
    # "800 KB a token, 1.6 GB for 2048 tokens": 800 KiB and 1.6 GiB
    assert kv_cache.bytes_per_token(opt(40, 5120, 40)) == 800 * 2**10
    assert kv_cache.inventory(opt(40, 5120, 40), sequence=2048).total == pytest.approx(1.6 * 2**30, rel=0.03)


# The course's numbers


def test_the_moment_of_chapter_5():
    assert kv_cache.users_to_pass("llama-3.1-70b", sequence=8192) == 53
    assert kv_cache.users_to_pass("llama-3.1-70b", sequence=131072) == 4
    link = tiers.link("pcie5-x16").rate_measured
    assert kv_cache.fetch_time("llama-3.1-70b", tokens=4096, source=link) == pytest.approx(0.03, abs=0.005)
    recomputed = kv_cache.recompute_time("llama-3.1-70b", tokens=4096, gpus=8, efficiency=0.4)
    assert recomputed == pytest.approx(0.2, abs=0.03)
    assert kv_cache.fetch_time("llama-3.1-70b", tokens=4096, source="s3-connection") == pytest.approx(15, abs=0.6)


def test_ten_thousand_prefixes():
    # 13.1 TB for 4,000 tokens, 13.4 TB for 4,096
    for tokens, terabytes in ((4000, 13.1072), (4096, 13.4217728)):
        assert kv_cache.prefixes("llama-3.1-70b", count=10_000, tokens=tokens).total == round(terabytes * 1e12)
    shared = kv_cache.prefixes("llama-3.1-70b", count=10_000, tokens=4096, shared=1024)
    assert dict(shared) == {"shared, once": 1024 * 327_680, "own": 10_000 * 3072 * 327_680}
    assert kv_cache.prefixes("gpt2", count=3, tokens=5, shared=5)["own"] == 0


def test_a_sliding_window_does_not_cost_the_full_context():
    whole = kv_cache.inventory("mistral-7b", sequence=32768, windows=False).total
    assert whole == 4_294_967_296
    assert kv_cache.inventory("mistral-7b", sequence=32768).total == pytest.approx(0.54e9, rel=0.01)


# Bytes


@given(names | windowed, lengths, st.integers(1, 9), dtypes)
def test_the_cache_is_its_tokens(name, sequence, batch, dtype):
    held = kv_cache.inventory(name, batch=batch, sequence=sequence, dtype=dtype)
    once = 2 * models.get(name).layers * weights.FORMATS[dtype].once
    layers = Counter(models.get(name).windows)
    expected = 0
    for window, times in layers.items():
        kept = sequence if window is None else min(sequence, window - 1)
        growing = times * kv_cache.bytes_per_token(name, dtype=dtype, position=1) // models.get(name).layers
        expected += batch * kept * growing
    counters = 8 * sum(times for window, times in layers.items() if window is not None)
    assert held.total == expected + once + counters


@given(names | windowed, lengths, dtypes)
def test_a_token_adds_what_it_says(name, sequence, dtype):
    def total(tokens):
        return kv_cache.inventory(name, sequence=tokens, dtype=dtype).total

    assert kv_cache.bytes_per_token(name, dtype=dtype, position=sequence + 1) == total(sequence + 1) - total(sequence)
    assert kv_cache.bytes_per_token(name, dtype=dtype) <= kv_cache.bytes_per_token(name, dtype=dtype, position=1)


def test_only_full_attention_goes_on_growing():
    assert kv_cache.bytes_per_token("mistral-7b") == 0
    assert kv_cache.bytes_per_token("mistral-7b", position=4095) == 131_072
    assert kv_cache.bytes_per_token("mistral-7b", position=4096) == 0
    assert kv_cache.bytes_per_token("gemma-2-9b") == 21 * 2 * 8 * 256 * 2


def test_entries():
    assert list(kv_cache.inventory("llama-3.1-8b")) == ["keys", "values"]
    assert list(kv_cache.inventory("gemma-2-9b")) == ["keys", "values", "window keys", "window values", "counters"]
    assert list(kv_cache.inventory("mistral-7b")) == ["window keys", "window values", "counters"]
    assert dict(kv_cache.inventory("deepseek-v3", sequence=1)) == {"latents": 61 * 512 * 2, "rotary keys": 61 * 64 * 2}
    assert list(kv_cache.inventory("llama-3.1-8b", dtype="fp8")) == ["keys", "values", "scales"]
    assert kv_cache.inventory("llama-3.1-8b", dtype="fp8")["scales"] == 32 * 2 * 4


def test_scales_of_small_groups():
    # 128 numbers a head: NVFP4 has 8 blocks with a byte each; int4 one group with an fp16 scale and half a byte of zero
    tokens = 32 * 2 * 8 * 100
    assert kv_cache.inventory("llama-3.1-8b", sequence=100, dtype="nvfp4")["scales"] == tokens * 8 + 32 * 2 * 4
    assert kv_cache.inventory("llama-3.1-8b", sequence=100, dtype="int4")["scales"] == tokens * 3
    # a head of 80 does not fill three blocks of 32: padding counts
    model = small(hidden_size=320, head_dim=80)
    assert kv_cache.inventory(model, sequence=1, dtype="mxfp4").total == 3 * 2 * 2 * 3 * 17


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_storage_behind_a_window(window, sequence, last):
    """Simulated as transformers does it: append the new tokens, keep a view of the last W − 1 of what that made."""
    last = min(last, sequence)
    kept = 0
    for piece in (sequence - last, last):
        storage = kept + piece
        kept = storage if window == 1 else min(storage, window - 1)
    model = mistral(window)
    token = 3 * 2 * 2 * 6 * 2
    assert kv_cache.inventory(model, sequence=sequence).total == kept * token + 3 * 8
    assert kv_cache.inventory(model, sequence=sequence, last=last).total == storage * token + 3 * 8
    assert kv_cache.inventory(model, sequence=sequence, cache="static").total == min(window, sequence) * token + 3 * 8
    assert kv_cache.inventory(model, sequence=sequence, windows=False).total == sequence * token


def test_a_static_cache_counts_in_every_layer():
    held = kv_cache.inventory("llama-3.1-8b", sequence=64, cache="static")
    assert held.without("counters") == kv_cache.inventory("llama-3.1-8b", sequence=64)
    assert held["counters"] == 32 * 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 8e9}, "model is the parameter count 8,000,000,000; shapes"),
        ({"batch": 0}, "batch is 0"),
        ({"sequence": 1.5}, "sequence is 1.5"),
        ({"dtype": "nf4"}, "dtype is 'nf4'; it must be a format whose scales lie along a row"),
        ({"dtype": "fp9"}, "dtype is 'fp9'; it must be one of"),
        ({"cache": "paged"}, "cache is 'paged'; it must be one of dynamic, static"),
        ({"last": 9000}, "last is 9000; it must be a whole number from 1 to 8192"),
        ({"cache": "static", "last": 1}, "cache is 'static', with last 1 and windows True"),
        ({"cache": "static", "windows": False}, "both are for dynamic caches"),
    ],
)
def test_inventory_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        kv_cache.inventory(**{"model": "llama-3.1-8b"} | arguments)


# Learnt positions


@given(st.integers(1, 1023), dtypes, st.integers(1, 64))
def test_a_gpt2_is_counted_as_far_as_its_positions_reach(sequence, dtype, block):
    one = kv_cache.inventory("gpt2", sequence=sequence, dtype=dtype).total
    assert one == sequence * kv_cache.bytes_per_token("gpt2", dtype=dtype) + (
        2 * 12 * weights.FORMATS[dtype].once)  # keys and values of 12 layers
    after = kv_cache.inventory("gpt2", sequence=sequence + 1, dtype=dtype).total
    assert after - one == kv_cache.bytes_per_token("gpt2", dtype=dtype, position=sequence + 1)
    room = 80e9 - weights.inventory("gpt2").total
    assert kv_cache.users("gpt2", limit=80e9, headroom=0, sequence=sequence) == (
        room // kv_cache.inventory("gpt2", sequence=sequence).total)
    assert kv_cache.paged("gpt2", lengths=[sequence], block=block)["tokens"] == (
        sequence * kv_cache.bytes_per_token("gpt2"))


@pytest.mark.parametrize(("call", "argument"), [
    (lambda: kv_cache.inventory("gpt2", sequence=1025), "sequence"),
    (lambda: kv_cache.bytes_per_token("gpt2", position=1025), "position"),
    (lambda: kv_cache.paged("gpt2", lengths=[3, 1025]), "lengths"),
    (lambda: kv_cache.reserved("gpt2", lengths=[1025], limit=4096), "lengths"),
    (lambda: kv_cache.users("gpt2", limit=80e9, headroom=0, sequence=1025), "sequence"),
    (lambda: kv_cache.users("gpt2", limit=80e9, headroom=0, sequence=1025, block=16), "sequence"),
    (lambda: kv_cache.users_to_pass("gpt2", sequence=1025), "sequence"),
    (lambda: kv_cache.prefixes("gpt2", count=1, tokens=1025), "tokens"),
    (lambda: kv_cache.prefill_flops("gpt2", tokens=1025), "tokens"),
    (lambda: kv_cache.prefill_flops("gpt2", tokens=25, prefix=1000), "prefix and tokens together"),
    (lambda: kv_cache.recompute_time("gpt2", tokens=1025, efficiency=0.5), "tokens"),
    (lambda: kv_cache.stored("gpt2", tokens=1025), "tokens"),
    (lambda: kv_cache.fetch_time("gpt2", tokens=1025, source=1e9), "tokens"),
    (lambda: kv_cache.ways("gpt2", tokens=1025, efficiency=0.5), "tokens"),
    (lambda: kv_cache.break_even_bandwidth("gpt2", tokens=1025, efficiency=0.5), "tokens"),
    (lambda: flash_attention.not_written("gpt2", sequence=1025), "sequence"),
    (lambda: flash_attention.written_instead("gpt2", sequence=1025), "sequence"),
    (lambda: activations.saved("gpt2", sequence=1025), "sequence"),
    (lambda: activations.saved("gpt2", sequence=1025, stack="megatron"), "sequence"),
    (lambda: activations.five_term("gpt2", sequence=1025), "sequence"),
])
def test_no_answer_goes_beyond_learnt_positions(call, argument):
    with pytest.raises(ValueError, match=f"^{argument} is 1025; gpt2 has learnt 1,024 positions, so it must be at"):
        call()


def test_a_gpt2_is_worth_fetching_within_its_positions_or_not_at_all():
    recompute = kv_cache.recompute_time("gpt2", tokens=1024, efficiency=0.5)
    slow, fast = (kv_cache.stored("gpt2", tokens=1024) / (factor * recompute) for factor in (1.01, 0.99))
    assert kv_cache.break_even_length("gpt2", source=slow, efficiency=0.5) is None
    assert kv_cache.break_even_length("gpt2", source=fast, efficiency=0.5) == 1
    late = kv_cache.break_even_length("gpt2", source=fast, latency=0.009 * recompute, efficiency=0.5)
    assert 900 <= late <= 1024


# Blocks


@given(st.lists(st.integers(1, 60), max_size=5), st.integers(1, 20), st.none() | st.integers(2, 40))
def test_blocks_by_counting_them(lens, block, window):
    model = small() if window is None else mistral(window)
    token = kv_cache.bytes_per_token(model, position=1)
    tokens = blocks = 0
    for length in lens:
        positions = range(length) if window is None else range(max(0, length - (window - 1)), length)
        tokens += len(positions)
        blocks += len({position // block for position in positions})
    held = kv_cache.paged(model, lengths=lens, block=block)
    assert dict(held) == {"tokens": tokens * token, "rest of blocks": (blocks * block - tokens) * token}


def test_paging_wastes_less_than_reserving():
    lens = random.Random(0).choices(range(1, 2049), k=200)
    paged = kv_cache.paged("llama-3.1-8b", lengths=lens)
    reserved = kv_cache.reserved("llama-3.1-8b", lengths=lens, limit=2048)
    assert paged["tokens"] == reserved["tokens"] == sum(lens) * 131_072
    assert paged["rest of blocks"] < 200 * 15 * 131_072
    assert reserved.total == 200 * 2048 * 131_072
    assert paged.share("tokens") > 0.99
    assert 0.45 < reserved.share("tokens") < 0.55


def test_pages_refuse():
    with pytest.raises(ValueError, match="lengths has 9; it must be at most limit, which is 8"):
        kv_cache.reserved("gpt2", lengths=[9, 1], limit=8)
    with pytest.raises(ValueError, match="block is 0"):
        kv_cache.paged("gpt2", lengths=[1], block=0)
    with pytest.raises(ValueError, match="lengths is 0"):
        kv_cache.paged("gpt2", lengths=[0])


# Users


@given(names, st.integers(1, 16), st.floats(0, 1), lengths, st.none() | st.integers(1, 64))
def test_users_are_as_many_as_fit(name, gpus, headroom, sequence, block):
    found = kv_cache.users(name, limit=80e9, headroom=headroom, gpus=gpus, sequence=sequence, block=block)
    if block is None:
        each = kv_cache.inventory(name, sequence=sequence).total
    else:
        each = kv_cache.paged(name, lengths=[sequence], block=block).total
    free = gpus * 80e9 * (1 - headroom) - weights.inventory(name).total
    assert found == 0 or found * each <= free
    assert (found + 1) * each > free


@given(names, st.integers(0, 10**12), lengths)
def test_the_user_who_passes(name, nbytes, sequence):
    user = kv_cache.users_to_pass(name, nbytes=nbytes, sequence=sequence)
    each = kv_cache.inventory(name, sequence=sequence).total
    assert (user - 1) * each <= nbytes < user * each


def test_users_and_weights_in_fewer_bits():
    asked = {"limit": 80e9, "headroom": 0.1, "gpus": 2, "sequence": 8192}
    assert kv_cache.users("llama-3.1-70b", **asked) == 1
    assert kv_cache.users("llama-3.1-70b", weights_dtype="fp8", **asked) == 26
    assert kv_cache.users("llama-3.1-70b", weights_dtype="fp8", dtype="fp8", **asked) == 53


# Fetch or recompute


def test_places_are_ordered_and_pass_the_link():
    found = kv_cache.places()
    assert [place.name for place in found] == ["HBM", "CPU memory", "NVMe", "shared store"]
    assert [place.everyone for place in found] == [False, False, False, True]
    times = [kv_cache.fetch_time("llama-3.1-70b", tokens=4096, source=place) for place in found]
    assert times == sorted(times)
    link = tiers.link("pcie5-x16").rate
    assert found[1].rate == link < tiers.get("epyc-genoa-ddr5").read
    assert found[2].rate == tiers.get("micron-9550").read
    grace = kv_cache.places(accelerator="gb200", memory="grace-lpddr5x")[1]
    assert grace.rate == min(tiers.get("grace-lpddr5x").read, tiers.link(tiers.accelerator("gb200").host_link).rate)
    with pytest.raises(ValueError, match="the ledger has no link to its host"):
        kv_cache.places(accelerator=next(name for name in tiers.accelerators()
                                         if tiers.accelerator(name).host_link is None))


def test_ways_fastest_first():
    found = {way.name: way.seconds for way in kv_cache.ways("llama-3.1-70b", tokens=4096, efficiency=0.4, gpus=8)}
    assert list(found) == ["HBM", "CPU memory", "NVMe", "recompute", "shared store"]
    assert found["recompute"] == kv_cache.recompute_time("llama-3.1-70b", tokens=4096, efficiency=0.4, gpus=8)
    assert found["CPU memory"] == pytest.approx(4096 * 327_680 / 63e9, rel=1e-3)
    assert found["shared store"] == pytest.approx(0.15 + 4096 * 327_680 / 12.5e9, rel=1e-3)
    eight = {way.name: way.seconds for way in kv_cache.ways("llama-3.1-70b", tokens=4096, efficiency=0.4, links=8)}
    assert eight["NVMe"] == pytest.approx(found["NVMe"] / 8, rel=0.01)
    assert eight["shared store"] == found["shared store"]
    far = kv_cache.Place("far", "a store far away", rate=88e6, latency=0.15, everyone=True)
    names = [way.name for way in kv_cache.ways("llama-3.1-70b", tokens=4096, efficiency=0.4, where=[far])]
    assert names == ["recompute", "far"]


@given(st.integers(1, 60), st.integers(0, 60), st.none() | st.integers(1, 40))
def test_attentions_flops_by_counting_pairs(tokens, prefix, window):
    model = small() if window is None else mistral(window)
    seen = [min(position, window or position) for position in range(prefix + 1, prefix + tokens + 1)]
    flops = kv_cache.prefill_flops(model, tokens=tokens, prefix=prefix, attention=True)
    plain = kv_cache.prefill_flops(model, tokens=tokens, prefix=prefix)
    assert plain == 2 * model.parameters * tokens
    assert flops - plain == 3 * sum(seen) * 4 * 4 * 6  # layers · pairs · heads · (2 · 6 for scores, 2 · 6 for values)


def test_recomputing_takes_flops():
    assert kv_cache.prefill_flops(70e9, tokens=4096) == 2 * 70_000_000_000 * 4096
    assert kv_cache.prefill_flops("deepseek-v3", tokens=2) == 4 * 37_552_282_624
    one = kv_cache.recompute_time("llama-3.1-8b", tokens=100, efficiency=0.5)
    assert one == pytest.approx(2 * 8_030_261_248 * 100 / (989e12 * 0.5))
    assert kv_cache.recompute_time("llama-3.1-8b", tokens=100, efficiency=0.5, gpus=4) == pytest.approx(one / 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"efficiency": 0}, "efficiency is 0"),
        ({"efficiency": 1.2}, "efficiency is 1.2"),
        ({"efficiency": 0.5, "tokens": 0}, "tokens is 0"),
        ({"efficiency": 0.5, "gpus": 0}, "gpus is 0"),
        ({"efficiency": 0.5, "model": 8e9, "attention": True}, "model is the parameter count 8,000,000,000; shapes"),
    ],
)
def test_recompute_time_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        kv_cache.recompute_time(**{"model": "gpt2", "tokens": 8} | arguments)


@given(names, lengths, st.floats(0.05, 1), st.integers(1, 8), st.booleans(), st.floats(0, 0.1))
def test_at_the_break_even_bandwidth_both_take_as_long(name, tokens, efficiency, gpus, attention, latency):
    how = {"efficiency": efficiency, "gpus": gpus, "attention": attention}
    bandwidth = kv_cache.break_even_bandwidth(name, tokens=tokens, latency=latency, **how)
    recompute = kv_cache.recompute_time(name, tokens=tokens, **how)
    if bandwidth is None:
        assert recompute <= latency
    else:
        fetch = kv_cache.fetch_time(name, tokens=tokens, source=bandwidth, latency=latency)
        assert fetch == pytest.approx(recompute, rel=1e-9)


def test_without_latency_the_break_even_bandwidth_has_no_length():
    found = {round(kv_cache.break_even_bandwidth("llama-3.1-70b", tokens=tokens, efficiency=0.5) / 1e6)
             for tokens in (1, 100, 4096, 10**6)}
    assert len(found) == 1


@settings(max_examples=60)
@given(names | windowed, st.floats(1e7, 1e12), st.floats(0, 0.2), st.booleans())
def test_the_break_even_length_is_the_turning_point(name, rate, latency, attention):
    how = {"efficiency": 0.5, "attention": attention}
    length = kv_cache.break_even_length(name, source=rate, latency=latency, **how)

    def saved(tokens):
        return (kv_cache.recompute_time(name, tokens=tokens, **how)
                - kv_cache.fetch_time(name, tokens=tokens, source=rate, latency=latency))

    if length is None:
        assert saved(kv_cache.MOST_TOKENS) <= 0
    else:
        assert saved(length) > 0
        assert saved(2 * length) > 0
        assert length == 1 or saved(length - 1) <= 0


def test_a_length_appears_only_through_latency_or_attention():
    how = {"efficiency": 0.5, "gpus": 8}
    assert kv_cache.break_even_length("llama-3.1-70b", source=63e9, latency=0, **how) == 1
    assert kv_cache.break_even_length("llama-3.1-70b", source=63e9, latency=0.01, **how) > 100
    assert kv_cache.break_even_length("llama-3.1-70b", source=88e6, **how) is None
    assert kv_cache.break_even_length("llama-3.1-70b", source=88e6, attention=True, **how) > 10**6


def test_what_is_stored_has_no_counters():
    assert kv_cache.stored("mistral-7b", tokens=5) == kv_cache.inventory("mistral-7b", sequence=5).total - 32 * 8


# Hits


def lru(trace, capacity):
    """The share of hits of a plain LRU cache, warm or not."""
    held, hits = OrderedDict(), 0
    for item in trace:
        if item in held:
            hits += 1
            held.move_to_end(item)
        else:
            held[item] = True
            if len(held) > capacity:
                held.popitem(last=False)
    return hits / len(trace)


@pytest.mark.parametrize(("items", "exponent", "capacity"), [(300, 0.7, 30), (300, 1.0, 10), (1000, 1.2, 200)])
def test_ches_approximation_beside_a_simulation(items, exponent, capacity):
    popularity = kv_cache.zipf(items, exponent)
    trace = random.Random(1).choices(range(items), popularity, k=60_000)
    assert kv_cache.hit_rate(popularity, capacity=capacity) == pytest.approx(lru(trace, capacity), abs=0.01)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=30), st.integers(0, 30))
def test_no_policy_beats_the_best(popularity, capacity):
    best = kv_cache.hit_rate(popularity, capacity=capacity, policy="best")
    found = kv_cache.hit_rate(popularity, capacity=capacity)
    assert -1e-12 <= found <= best + 1e-9
    assert found <= kv_cache.hit_rate(popularity, capacity=capacity + 1) + 1e-9


@given(st.integers(1, 100), st.integers(0, 100))
def test_without_favourites_the_hit_rate_is_the_share_held(items, capacity):
    for policy in ("lru", "best"):
        found = kv_cache.hit_rate([1] * items, capacity=capacity, policy=policy)
        assert found == pytest.approx(min(1, capacity / items))


def test_zipf():
    assert kv_cache.zipf(4) == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    assert kv_cache.zipf(3, 0) == pytest.approx([1 / 3] * 3)
    assert math.fsum(kv_cache.zipf(1000, 0.8)) == pytest.approx(1)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 12))
def test_reuse_distances_say_what_lru_does(trace, capacity):
    distances = kv_cache.reuse_distances(trace)
    assert distances.total() == len(trace)
    assert distances[None] == len(set(trace))
    assert kv_cache.reuse_hit_rate(distances, capacity=capacity) == lru(trace, capacity)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.floats(0, 1.5))
def test_tiers_serve_everything_together(capacities, exponent):
    popularity = kv_cache.zipf(60, exponent)
    shares = kv_cache.served(popularity, capacities=capacities)
    assert sum(shares) == pytest.approx(1)
    assert all(share >= 0 for share in shares)
    upto = itertools.accumulate(shares[:-1])
    for room, share in zip(itertools.accumulate(capacities), upto, strict=True):
        assert share == pytest.approx(kv_cache.hit_rate(popularity, capacity=room))


def test_mean_time():
    assert kv_cache.mean_time([0.5, 0.3, 0.2], [0, 1, 10]) == pytest.approx(2.3)
    with pytest.raises(ValueError, match="shares has 3 entries and seconds has 2; they must have as many"):
        kv_cache.mean_time([0.5, 0.3, 0.2], [0, 1])


def walked(trace):
    """Reuse distances, found by walking back over the items used since."""
    recent, found = OrderedDict(), Counter()
    for item in trace:
        if item in recent:
            found[list(reversed(recent)).index(item)] += 1
            recent.move_to_end(item)
        else:
            found[None] += 1
            recent[item] = True
    return found


@given(st.lists(st.integers(0, 12), max_size=60))
def test_reuse_distances_are_those_of_walking_back(trace):
    assert kv_cache.reuse_distances(trace) == walked(trace) == kv_cache.reuse_distances(iter(trace))


def test_a_long_trace_is_counted_too():
    # A sweep over 20,000 items, twice: each use is as far from the one before as there are other items. Walking back
    # over all of them each time would be 200 million steps.
    assert kv_cache.reuse_distances([*range(20_000)] * 2) == Counter({None: 20_000, 19_999: 20_000})


def test_one_shot_iterables_are_read_once():
    shares = (3, 1, 1)
    assert kv_cache.hit_rate(iter(shares), capacity=1) == kv_cache.hit_rate(shares, capacity=1)
    assert kv_cache.served(iter(shares), capacities=iter([1, 1])) == kv_cache.served(shares, capacities=[1, 1])
    assert kv_cache.mean_time(iter([0.5, 0.5]), iter([1, 3])) == 2
    lengths = [5, 3]
    assert kv_cache.reserved("gpt2", lengths=iter(lengths), limit=8) == (
        kv_cache.reserved("gpt2", lengths=lengths, limit=8))
    fp8 = {"dtype": "fp8", "batch": 2, "lookup": "rows"}
    assert weights.read("llama-3.1-8b", keep=iter(["embedding"]), **fp8) == (
        weights.read("llama-3.1-8b", keep=["embedding"], **fp8))
    assert weights.memory_bound_until("llama-3.1-8b", dtype="fp8", keep=iter(["embedding", "head"])) == (
        weights.memory_bound_until("llama-3.1-8b", dtype="fp8", keep=["embedding", "head"]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kv_cache.hit_rate({1: 0.5, 2: 0.5}, capacity=1), "popularity is {1: 0.5, 2: 0.5}; it must be a list"),
        (lambda: kv_cache.zipf(10**9), "items is 1000000000; it must be a whole number from 1 to 1000000"),
        (lambda: kv_cache.hit_rate(range(1_000_001), capacity=1), "items of popularity is 1000001"),
        (lambda: kv_cache.reuse_distances([[1]]), r"trace has \[1\]"),
        (lambda: kv_cache.reuse_distances([([1],)]), r"trace has \(\[1\],\)"),
        (lambda: kv_cache.reuse_distances(5), "trace is 5"),
        (lambda: kv_cache.reuse_hit_rate({0: -1, 1: 3}, capacity=1), "distances is -1"),
        (lambda: kv_cache.paged("gpt2", lengths=5), "lengths is 5; it must be a list of tokens of sequences"),
        (lambda: kv_cache.reserved("gpt2", lengths=["a", 1], limit=9), "lengths is 'a'; it must be a whole number"),
        (lambda: kv_cache.ways("gpt2", tokens=3, efficiency=0.5, where=["s3"]), "where has 's3'; it must be a list of"),
        (lambda: kv_cache.inventory("gpt2", sequence=8, windows=None), "windows is None; it must be True or False"),
        (lambda: kv_cache.prefill_flops("gpt2", tokens=8, attention=None), "attention is None; it must be True or"),
        (lambda: kv_cache.users("gpt2", limit=1e9, headroom=0, sequence=8, weights_dtype="fp5"), "weights_dtype is 'f"),
        (lambda: kv_cache.users("gpt2", limit=1e9, headroom=0, sequence=0, block=3), "sequence is 0"),
        (lambda: kv_cache.stored("gpt2", tokens=0), "tokens is 0"),
        (lambda: kv_cache.fetch_time("gpt2", tokens=0, source=1e9), "tokens is 0"),
        (lambda: kv_cache.places(memory="floppy"), "memory is 'floppy'; it must be the name of a known tier"),
        (lambda: kv_cache.places(store="h100-node-dram"), "store is 'h100-node-dram'; the ledger has no read rate"),
        (lambda: kv_cache.fetch_time("gpt2", tokens=3, source="20 GB/s"), "source is '20 GB/s'; it must be bytes a"),
        (lambda: kv_cache.hit_rate([], capacity=1), r"popularity is \[\]"),
        (lambda: kv_cache.hit_rate([0, 0], capacity=1), r"popularity is \[0, 0\]"),
        (lambda: kv_cache.hit_rate([1, -1], capacity=1), "popularity is -1"),
        (lambda: kv_cache.hit_rate([1], capacity=-1), "capacity is -1"),
        (lambda: kv_cache.hit_rate([1], capacity=1, policy="fifo"), "policy is 'fifo'; it must be one of lru, best"),
        (lambda: kv_cache.zipf(0), "items is 0"),
        (lambda: kv_cache.served([1], capacities=[-1]), "capacities is -1"),
        (lambda: kv_cache.reuse_hit_rate(Counter(), capacity=1), "it must have a request"),
        (lambda: kv_cache.prefixes("gpt2", count=1, tokens=3, shared=4), "shared is 4"),
        (lambda: kv_cache.fetch_time("gpt2", tokens=1, source=1e9, latency=-1), "latency is -1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
