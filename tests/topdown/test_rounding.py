"""Controlled rounding: every limit is met, every nested sum is at its floor or ceiling, near the nearest table."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topdown.plain_solvers import in_plain_arrays
from tests.topdown.rounding_cases import distance, meets, nearest, nested_sums, part_sums, random_division

from tabulae.linalg import BlockAlgebra
from tabulae.products.areas.descent.limits import FREE, NO_LIMIT, Division
from tabulae.products.areas.descent.rounding import round_division

seeds = st.integers(0, 2**32 - 1)
FINE = 1e-6  # of a person: 2^-30 a cell, added up


def plain(total, children):
    """Only the parent's counts limit the children; all dense cells in parts of their own."""
    k, inner = total.shape
    ones = np.ones((children, k), np.int64)
    algebra = BlockAlgebra((inner,))
    return Division(
        algebra,
        total,
        np.ones((1, algebra.kinds, k, k)),
        np.zeros(children, np.int64),
        np.zeros((children, k, inner)),
        ones > 0,
        np.arange(k),
        0 * ones,
        NO_LIMIT * ones,
        0 * ones,
        np.full((children, 1), FREE),
    )


@given(seeds, st.booleans())
def test_each_nested_sum_goes_to_its_floor_or_ceiling(seed, rooted):
    division, x = random_division(np.random.default_rng(seed), rooted=rooted)
    z = round_division(division, x)
    assert meets(division, z)
    for whole, real in zip(nested_sums(division, z), nested_sums(division, x), strict=True):
        assert (whole > real - 1 - FINE).all()
        assert (whole < real + 1 + FINE).all()


@given(seeds, st.booleans())
def test_compiled_and_plain_give_the_same_bits(seed, rooted):
    rng = np.random.default_rng(seed)
    division, x = random_division(rng, rooted=rooted)
    for y in (x, np.maximum(x + rng.normal(size=x.shape), 0)):
        compiled = round_division(division, y)
        with in_plain_arrays():
            interpreted = round_division(division, y)
        assert (compiled == interpreted).all()
        assert compiled.dtype == interpreted.dtype == np.int64


@given(seeds, st.booleans(), st.floats(0, 3))
def test_whatever_is_given_the_limits_are_met(seed, rooted, noise):
    """Solvers stop before they are at the solution."""
    rng = np.random.default_rng(seed)
    division, x = random_division(rng, rooted=rooted, tight=0.8, exact=0.8)
    assert meets(division, round_division(division, x + noise * rng.normal(size=x.shape)))


@given(seeds, st.booleans())
def test_what_is_whole_stays(seed, rooted):
    rng = np.random.default_rng(seed)
    division, x = random_division(rng, rooted=rooted)
    z = round_division(division, x)
    assert (round_division(division, z.astype(float)) == z).all()
    noisy = np.maximum(z + 1e-11 * rng.normal(size=z.shape), 0)
    assert (round_division(division, noisy) == z).all()


def test_whole_children_stay_beside_others():
    rng = np.random.default_rng(5)
    total = rng.poisson(6.0, (2, 7)) + 2
    x = np.zeros((4, 2, 7))
    x[0] = 1
    x[1:] = rng.dirichlet(np.ones(3), (2, 7)).transpose(2, 0, 1) * (total - 1)
    assert (round_division(plain(total, 4), x)[0] == 1).all()


def test_near_the_nearest_table():
    """Distance over all nested sums, against a linear programme whose vertices are whole: 2 to 3 % more."""
    rng, ours, best = np.random.default_rng(1), 0.0, 0.0
    for _ in range(6):
        total = rng.poisson(8.0, (3, 40))
        x = rng.dirichlet(np.full(20, 0.15), (3, 40)).transpose(2, 0, 1) * total
        division = dataclasses.replace(plain(total, 20), algebra=BlockAlgebra((2, 20)))
        least, _ = nearest(division, x)
        ours, best = ours + distance(division, round_division(division, x), x), best + least
    assert best <= ours <= 1.05 * best


@given(seeds, st.booleans())
def test_small_ones_against_the_nearest_table(seed, rooted):
    division, x = random_division(np.random.default_rng(seed), rooted=rooted)
    least, table = nearest(division, x)
    assert meets(division, table)
    ours = distance(division, round_division(division, x), x)
    assert least - 1e-5 <= ours <= 1.5 * least + 1e-5


def test_against_all_tables():
    """Brute force: two children and three cells, all tables at floors and ceilings."""
    rng = np.random.default_rng(2)
    for _ in range(30):
        total = rng.integers(0, 4, (1, 3))
        x = rng.random((2, 1, 3))
        x = x / x.sum(axis=0) * total
        division = plain(total, 2)
        every = [
            np.stack([t, total - t])
            for t in np.ndindex(*(total[0] + 1))
            for t in [np.array(t).reshape(1, 3)]
            if abs(t.sum() - x[0].sum()) < 1
        ]
        least = min(distance(division, z, x) for z in every if (np.abs(z - x) < 1).all())
        assert distance(division, round_division(division, x), x) <= 1.2 * least + 1e-9


def test_the_same_whatever_the_layout_in_memory():
    division, x = random_division(np.random.default_rng(9), n=5, k=4, symmetric=(2, 3))
    strided = dataclasses.replace(division, lower=np.asfortranarray(division.lower))
    assert (round_division(strided, np.asfortranarray(x)) == round_division(division, x)).all()


def test_large_counts_stay_exact():
    rng = np.random.default_rng(3)
    total = rng.integers(10**8, 2 * 10**8, (2, 3))
    x = rng.dirichlet(np.ones(4), (2, 3)).transpose(2, 0, 1) * total
    z = round_division(plain(total, 4), x)
    assert (z.sum(axis=0) == total).all()
    assert (np.abs(z - x) < 1 + FINE).all()


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("total", [[3, 0, 7], [10**8, 5, 0]])
def test_far_more_people_than_there_are(interpreted, total):
    """What lies far above the column's count is cut off, so that sums of many children stay in 64 bits."""
    total = np.array([total])
    x = np.full((3000, 1, 3), 1e8)
    with in_plain_arrays(plain=interpreted):
        z = round_division(plain(total, 3000), x)
    assert (z >= 0).all()
    assert (z.sum(axis=0) == total).all()


def test_parts_that_no_cell_is_in():
    """A node's support may leave out parts, and then its part numbers have gaps."""
    division, x = random_division(np.random.default_rng(11), n=3, k=2, symmetric=(3,), tight=0, exact=0)
    none = np.zeros((3, 6), np.int64)
    wide = dataclasses.replace(
        division,
        part=np.array([4, 1]),
        lower=none,
        upper=none + NO_LIMIT,
        group=none,
        exact=np.full((3, 1), FREE),
    )
    assert meets(wide, round_division(wide, x))


def test_what_cannot_be_is_an_error():
    total = np.array([[2, 1]])
    division, x = plain(total, 2), np.ones((2, 1, 2))
    nobody = dataclasses.replace(division, allowed=np.zeros((2, 1), bool))
    with pytest.raises(AssertionError, match="none of its children"):
        round_division(nobody, x)
    for bad in (np.nan, np.inf, 1e12):
        with pytest.raises(AssertionError, match="not finite, or too large"):
            round_division(division, np.full(x.shape, bad))
    for limits in (
        {"lower": np.array([[2], [2]])},
        {"upper": np.array([[1], [1]])},
        {"exact": np.array([[1], [1]])},
    ):
        with pytest.raises(AssertionError, match="cannot be divided"):
            round_division(dataclasses.replace(division, **limits), x)


def test_the_root_keeps_exact_sums_and_limits():
    """One child and no parent: its own sums decide."""
    division, x = random_division(np.random.default_rng(4), rooted=True, symmetric=(2, 3), k=4)
    parts = part_sums(x, division.part, division.lower.shape[1])
    one = np.array([[int(x.sum()) + 3]])
    exact = dataclasses.replace(division, exact=one, group=0 * division.group, lower=np.floor(parts).astype(np.int64),
                                upper=np.full(parts.shape, NO_LIMIT))  # fmt: skip
    z = round_division(exact, x)
    assert meets(exact, z)
    assert z.sum() == one
