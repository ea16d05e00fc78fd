import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import byte_counts

from memtier.inventory import Inventory

named_bytes = st.dictionaries(st.text(min_size=1, max_size=12), byte_counts, max_size=6)


@given(named_bytes)
def test_the_total_is_the_sum_and_the_shares_make_one(nbytes):
    inventory = Inventory(nbytes)
    assert inventory.total == sum(nbytes.values())
    if inventory.total:
        assert sum(inventory.share(name) for name in inventory) == pytest.approx(1)


@given(named_bytes, named_bytes)
def test_adding_loses_nothing(first, second):
    added = Inventory(first) + Inventory(second)
    assert added.total == sum(first.values()) + sum(second.values())
    assert set(added) == set(first) | set(second)


@given(named_bytes, st.integers(0, 1000))
def test_multiplying_scales_every_entry(nbytes, factor):
    assert (factor * Inventory(nbytes)).total == factor * sum(nbytes.values())
    assert Inventory(nbytes) * factor == factor * Inventory(nbytes)


@given(named_bytes)
def test_it_survives_a_round_trip_through_a_dict(nbytes):
    inventory = Inventory(nbytes, "a title")
    again = Inventory.from_dict(inventory.to_dict())
    assert again == inventory
    assert again.title == "a title"


def test_the_table_is_aligned_and_shows_gb_and_gib():
    table = str(Inventory({"weights": 140_000_000_000, "optimizer": 560_000_000_000}, "70B"))
    lines = table.splitlines()
    assert lines[0] == "70B"
    assert len({len(line) for line in lines[1:]}) == 1
    assert "140,000,000,000" in lines[2]
    assert "140.000" in lines[2]
    assert "130.385" in lines[2]  # 140e9 / 2**30
    assert lines[-1].startswith("total")
    assert "100.0%" in lines[-1]


def test_html_names_every_entry():
    html = Inventory({"weights": 2, "a < b": 3})._repr_html_()
    assert "weights" in html
    assert "a &lt; b" in html
    assert "a < b" not in html


def test_an_empty_inventory_is_zero():
    assert Inventory({}).total == 0
    assert "total" in str(Inventory({}))


@pytest.mark.parametrize("nbytes", [
    {"weights": -1}, {"weights": float("nan")}, {"weights": "12"}, {"": 1}, {3: 1}, [1],
])
def test_bad_entries_are_refused(nbytes):
    with pytest.raises(ValueError, match="nbytes"):
        Inventory(nbytes)


def test_without_leaves_the_rest():
    inventory = Inventory({"weights": 1, "gradients": 2})
    assert inventory.without("gradients") == Inventory({"weights": 1})
    with pytest.raises(KeyError, match="it has weights, gradients"):
        inventory.without("moments")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(KeyError, match="weights"):
        Inventory({"weights": 1})["activations"]
