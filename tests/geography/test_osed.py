"""Off-spine distances against exhaustive search, an integer programme, and the recursion as printed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import optimize, sparse
from tests.geography.trees import algorithm_1, areas, nested, random_shares, random_spine, spines

from tabulae.products.areas.spine.spine import Spine


def exhaustive(on: np.ndarray, inside: np.ndarray) -> int:
    """The fewest units whose signed sum is the entity, over all signs of all units."""
    signs = np.array(list(itertools.product((0, 1, -1), repeat=len(on))), np.int8)
    hits = np.all(signs @ on.astype(np.int8) == inside, axis=1)
    return int(np.abs(signs[hits]).sum(axis=1).min())


def integer_programme(on: np.ndarray, inside: np.ndarray) -> int:
    """The same over all whole multiples of units."""
    both = np.concatenate([on, -on.astype(int)]).T
    held = optimize.LinearConstraint(both, inside, inside)
    found = optimize.milp(np.ones(both.shape[1]), constraints=held, integrality=1)
    assert found.success
    return round(found.fun)


@given(spine=spines(leaves=(2, 5), depth=(2, 3)), data=st.data())
def test_is_the_least_number_of_signed_units(spine, data):
    inside = np.array(data.draw(st.lists(st.booleans(), min_size=spine.leaves, max_size=spine.leaves)))
    on = np.unique(areas(spine), axis=0)
    assume(len(on) <= 9)
    assert spine.osed(inside).tolist() == [exhaustive(on, inside)]


@given(spine=spines(leaves=(2, 20), depth=(2, 5)), data=st.data())
def test_is_the_optimum_of_the_integer_programme(spine, data):
    inside = np.array(data.draw(st.lists(st.booleans(), min_size=spine.leaves, max_size=spine.leaves)))
    assert spine.osed(inside).tolist() == [integer_programme(areas(spine), inside)]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_units_that_are_not_measured_are_not_on_the_spine(noise):
    rng = np.random.default_rng(1)
    for _ in range(25):
        spine = random_spine(rng, int(rng.integers(2, 12)), int(rng.integers(2, 5)))
        spine = spine.bypass(random_shares(rng, spine), noise=noise)
        share = np.concatenate([spine.shares.floats(level) for level in spine.levels])
        inside = rng.random(spine.leaves) < 0.5
        assert spine.osed(inside).tolist() == [integer_programme(areas(spine)[share > 0], inside)]


@given(spine=spines(leaves=(2, 40), depth=(2, 5)), data=st.data())
def test_equals_algorithm_1_in_every_form_of_entities(spine, data):
    kinds = st.sampled_from(["a", "b", "c", None])
    codes = data.draw(st.lists(kinds, min_size=spine.leaves, max_size=spine.leaves))
    names = sorted({code for code in codes if code is not None})
    sets = [{i for i, code in enumerate(codes) if code == name} for name in names]
    expected = [algorithm_1(nested(spine), inside) for inside in sets]
    assert spine.entities(codes).names == tuple(names)
    assert spine.osed(codes).tolist() == expected
    matrix = np.array([[code == name for name in names] for code in codes], bool).reshape(
        spine.leaves, len(names)
    )
    assert spine.osed(matrix).tolist() == expected
    assert spine.osed(sparse.csr_array(matrix)).tolist() == expected
    leaf = next(reversed(spine.codes.values()))
    assert (
        spine.osed({n: [leaf[i] for i in inside] for n, inside in zip(names, sets, strict=True)}).tolist()
        == expected
    )


def test_overlapping_and_empty_entities():
    spine = Spine.from_codes({"tract": list("AAB"), "block": list("abc")}, levels=["tract", "block"])
    found = spine.osed({"all": "abc", "none": "", "tract": "ab", "left": "a", "right": ["a", "c", "c"]})
    assert found.tolist() == [1, 0, 1, 1, 2]
    assert spine.osed(np.ones(3, bool)).tolist() == [1]
    assert spine.osed([True, False, False]).tolist() == [1]
    assert spine.osed(np.zeros((3, 0), bool)).size == 0


def test_every_unit_of_the_spine_is_at_distance_1():
    rng = np.random.default_rng(2)
    for _ in range(20):
        spine = random_spine(rng, 40, 4)
        assert np.all(spine.osed(areas(spine).T) == 1)
