"""What the explorers of the KV cache say: the chapter's moments, and that tiers are filled from the fastest down."""

import pytest

from memtier import drawing, kv_cache, live, units, weights
from memtier.live.explorers import kv_cache as declared

USERS, FETCH = live.get("kv_cache.users"), live.get("kv_cache.fetch")


def view(explorer, **values):
    """What it shows for 70B on a node of eight GPUs, unless the values say otherwise."""
    return explorer.view(**explorer.defaults | {"model": "llama-3.1-70b", "gpus": 8} | values)


def test_before_the_guess_nothing_says_the_answer():
    for explorer, answer in ((USERS, "user 53"), (FETCH, "7.35 GB/s")):
        assert answer not in explorer.respond({})["slots"]["view"] + explorer.respond({})["say"]


def test_the_cache_passes_the_weights_with_user_53_at_8k_and_user_4_at_128k():
    asked = USERS.defaults | USERS.predict.values
    assert USERS.predict.truth(asked) == 53
    assert "passes them with user 53." in view(USERS).say
    assert "172 GB of KV cache beside 141 GB of weights; the cache passes them with user 4." in view(
        USERS, context=131072, users=4).say
    assert "it is user 4" in USERS.predict.lesson(asked)


def test_users_that_fit_are_those_of_the_formula():
    said = view(USERS, gpus=16, dtype="fp8", weights_dtype="int4", headroom=0.2).say
    fit = kv_cache.users("llama-3.1-70b", limit=80e9, headroom=0.2, gpus=16, dtype="fp8", weights_dtype="int4")
    assert f"{fit} users fit into 16 × 80 GB of HBM." in said
    assert "The weights alone do not fit into 80 GB of HBM." in view(USERS, gpus=1).say
    assert "1 user fits into 80 GB of HBM." in view(USERS, model="llama-3.1-8b", gpus=1, context=262144).say


def test_the_fastest_tier_is_filled_first_and_nobody_is_lost():
    rooms = (("HBM", 25.0), ("CPU memory", 100.0), ("store", None))
    assert declared._spread(20, 10, rooms) == [("HBM", 2, 25.0), ("CPU memory", 10, 100.0), ("store", 8, None)]
    assert declared._spread(1, 10, rooms) == [("HBM", 1, 25.0), ("CPU memory", 0, 100.0), ("store", 0, None)]
    homes = view(USERS, users=10_000).figures[2]
    told = [int(row[0].split(": ")[1].split()[0].replace(",", "")) for row in homes.rows]
    assert sum(told) == 10_000
    assert told[0] == kv_cache.users("llama-3.1-70b", limit=80e9, headroom=0.1, gpus=8)


def test_more_nodes_bring_more_memory():
    one, two = (view(USERS, users=10_000, gpus=gpus) for gpus in (8, 16))
    assert "of a node of eight H100" in one.note
    assert "of 2 nodes of eight H100 each" in two.note
    assert [row[2] for row in one.figures[2].rows[1:3]] == ["2 TB", "30.7 TB"]
    assert [row[2] for row in two.figures[2].rows[1:3]] == ["4 TB", "61.4 TB"]


def test_a_4k_prefix_of_70b_in_three_times():
    assert "26.3 ms to fetch" in view(FETCH).say
    assert "183 ms to compute again on 8 GPUs at 40 %. Fetch. They break even at 7.35 GB/s." in view(FETCH).say
    slow = view(FETCH, source="s3-connection")
    assert "15.5 s to fetch" in slow.say
    assert "Recompute." in slow.say
    assert "no prefix is fetched faster" in slow.note


def test_what_breaks_even_is_a_bandwidth_and_a_length_only_through_latency():
    evens = {view(FETCH, tokens=tokens).say.split("break even at ")[1] for tokens in declared.PREFIXES}
    assert evens == {"7.35 GB/s."}
    length = kv_cache.break_even_length("llama-3.1-70b", source="s3", gpus=8, efficiency=0.4)
    assert f"prefixes of {length:,} tokens and more" in view(FETCH, source="s3").note
    assert "every prefix is fetched faster" in view(FETCH, source="hbm").note


def test_attention_and_links_are_counted_when_asked_for():
    plain, full = (view(FETCH, tokens=65536, attention=yes) for yes in (False, True))
    assert "Attention's own FLOPs are counted." in full.note
    assert plain.say != full.say
    assert "15.5 s to fetch" in view(FETCH, source="s3-connection").say
    assert "over 256 links side by side" in view(FETCH, source="s3-connection", links=256).note


@pytest.mark.parametrize("name", declared.PLACES)
def test_every_place_takes_what_the_formula_says(name):
    place = declared.PLACES[name]
    assert place.rate > 0
    row = next(row for row in view(FETCH, source=name).figures[0].rows if place.title in row[0])
    seconds = kv_cache.fetch_time("llama-3.1-70b", tokens=4096, source=place)
    assert row[1] == units.format_time(seconds)


def test_a_guess_is_drawn_where_it_would_fetch():
    guessed = view(FETCH, **FETCH.predict.values, guess=1e9)
    assert "your guess: 1 GB/s" in guessed.figures[0].html
    assert weights.inventory("llama-3.1-70b").total == 141_107_412_992
    assert "your guess: user 100" in view(USERS, guess=100).figures[0].html


def test_the_reveal_names_both_things_that_bring_the_length_back():
    """As the chapter has it: a latency, and attention's own FLOPs."""
    lesson = FETCH.predict.reveal(1e9, FETCH.defaults | FETCH.predict.values)
    assert "Only a latency, and attention's own FLOPs, left out here, make the length matter." in lesson


def test_the_row_chosen_at_first_has_room_for_its_time_beside_it():
    """On a phone's 330 px a label and its value share a line of some 38 letters, the arrow among them."""
    name, value = next(row for row in view(FETCH).figures[0].rows if row[0].startswith("→"))[:2]
    assert (name, value) == ("→ PCIe 5, measured", "26.3 ms")
    assert len(name + value) * drawing._LETTER < 0.96
