"""Ladders and regions: every table from counts by class; refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.domain.groups import Ladder, Regions
from tabulae.errors import InvalidArgument


@st.composite
def ladders(draw):
    sizes = {name: draw(st.integers(1, 5)) for name in ("sex", "age", "size")[: draw(st.integers(0, 3))]}
    tables = []
    for i in range(draw(st.integers(0, 3))):
        used = draw(st.lists(st.sampled_from(sorted(sizes)), unique=True)) if sizes else []
        parts = {}
        for name in used:
            labels = [str(j) for j in range(draw(st.integers(1, 4)))]
            parts[name] = (labels, [draw(st.integers(0, len(labels) - 1)) for _ in range(sizes[name])])
        tables.append((f"table {i}", parts))
    return sizes, tables


@given(ladders())
def test_every_table_follows_from_counts_by_class(ladder):
    sizes, tables = ladder
    found = Ladder.of(sizes, tables)
    shape = tuple(sizes.values())
    assert found.of_cell.shape == (int(np.prod(shape, dtype=int)),)
    for rung, (name, parts) in zip(found.rungs, tables, strict=True):
        assert rung.name == name
        assert dict(rung.columns) == {a: tuple(labels) for a, (labels, _) in parts.items()}
        for cell, values in enumerate(np.ndindex(shape)):
            value, expected = dict(zip(sizes, values, strict=True)), 0
            for attribute, (labels, part) in parts.items():
                expected = expected * len(labels) + part[value[attribute]]
            assert rung.of_class[found.of_cell[cell]] == expected < rung.cells


@given(ladders())
def test_classes_are_no_finer_than_needed(ladder):
    found = Ladder.of(*ladder)
    seen = {tuple(int(rung.of_class[c]) for rung in found.rungs) for c in range(found.classes)}
    assert len(seen) == found.classes
    assert sorted(set(found.of_cell.tolist())) == list(range(found.classes))


def test_no_rung_but_the_total_is_one_class():
    assert Ladder.of({"age": 3}, []).classes == 1
    assert Ladder.of({}, []).of_cell.tolist() == [0]


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({"sex": (["a"], [0])}, "do not have"),
        ({"age": (["a"], [0])}, "a part"),
        ({"age": (["a"], [0, 1])}, "a part"),
    ],
)
def test_partitions_that_do_not_fit_are_refused(parts, word):
    with pytest.raises(InvalidArgument, match=word):
        Ladder.of({"age": 2}, [("t", parts)])


@given(st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=8))
def test_regions_from_codes_keep_every_leaf(codes):
    regions = Regions.from_codes("place", codes)
    back = [None if place < 0 else regions.ids[place] for place in regions.of_leaf.tolist()]
    assert back == codes
    assert list(regions.ids) == sorted(set(codes) - {None})
    assert regions.covers.tolist() == [code is not None for code in codes]


def test_the_nation_covers_every_leaf():
    nation = Regions.nation(3)
    assert (nation.size, nation.of_leaf.tolist()) == (1, [0, 0, 0])
    with pytest.raises(ValueError, match="read-only"):
        nation.of_leaf[0] = 1


@pytest.mark.parametrize("of_leaf", [np.array([0, 2]), np.array([-2]), np.array([0.0]), np.array([[0]])])
def test_regions_that_do_not_fit_are_refused(of_leaf):
    with pytest.raises(InvalidArgument, match="leaves into regions"):
        Regions("state", ("a", "b"), of_leaf)


def test_regions_named_twice_are_refused():
    with pytest.raises(InvalidArgument, match="twice"):
        Regions("state", ("a", "a"), np.array([0, 1]))
