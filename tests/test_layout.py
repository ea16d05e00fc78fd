import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier.layout import Layout, padded_rows, rows


@given(st.integers(1, 10_000), st.integers(1, 600))
def test_sharding_never_loses_a_row(first_dimension, shards):
    held = [rows(first_dimension, shards, rank) for rank in range(shards)]
    assert sum(held) == first_dimension
    assert max(held) == held[0] == padded_rows(first_dimension, shards)
    assert held == sorted(held, reverse=True)


@given(st.integers(1, 10_000), st.integers(1, 600))
def test_the_fullest_rank_never_needs_more_when_ranks_are_added(first_dimension, shards):
    assert rows(first_dimension, shards + 1, 0) <= rows(first_dimension, shards, 0)


def test_five_rows_over_four_ranks():
    # Seen in torch 2.13.0; a fixed rank may hold more rows when ranks are added: rank 3 has none of 4, one of 5.
    assert [rows(5, 4, rank) for rank in range(4)] == [2, 2, 1, 0]
    assert rows(5, 5, 3) == 1


def test_world_is_the_product_of_all_ways_to_divide():
    assert Layout(replicate=8, shard=64, zero=3).world == 512
    assert Layout(replicate=2, shard=3, tensor=8, sequence_parallel=True, pipeline=5).world == 240


@pytest.mark.parametrize(("arguments", "message"), [
    ({"shard": 0}, "shard is 0; it must be a whole number, 1 or more"),
    ({"replicate": -2}, "replicate is -2"),
    ({"shard": 2.0}, "shard is 2.0"),
    ({"zero": 4}, "zero is 4; it must be one of 0, 1, 2, 3"),
    ({"tensor": 0}, "tensor is 0; it must be a whole number, 1 or more"),
    ({"pipeline": 1.5}, "pipeline is 1.5"),
    ({"sequence_parallel": 1, "tensor": 2}, "sequence_parallel is 1; it must be True or False"),
    ({"sequence_parallel": True}, "sequence_parallel is True and tensor is 1; it must be False, or tensor 2 or more"),
])
def test_bad_layouts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Layout(**arguments)


@pytest.mark.parametrize(("shards", "rank"), [(4, 4), (4, -1), (0, 0)])
def test_rows_refuses_ranks_that_are_not_there(shards, rank):
    with pytest.raises(ValueError, match="rank is|shards is"):
        rows(5, shards, rank)


@pytest.mark.parametrize(("first", "shards", "message"), [
    (5, 0, "shards is 0; it must be a whole number, 1 or more"), (5, -3, "shards is -3"), (5, 2.5, "shards is 2.5"),
    (float("nan"), 2, "first_dimension is nan"), (0, 2, "first_dimension is 0"),
])
def test_padded_rows_and_rows_refuse_what_is_no_count(first, shards, message):
    with pytest.raises(ValueError, match=message):
        padded_rows(first, shards)
    with pytest.raises(ValueError, match=message):
        rows(first, shards, 0)
