"""Distances of columns of products with entries of both signs: never below the true ones, and where exact."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabulae.linalg import (
    Centring,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Total,
    product_sensitivity,
    sums_of_products,
    weighted_sensitivity,
)

Blocks = list[tuple[LinearOperator, Fraction]]
CLASSES = Partition([0, 1, 1, 2, 0])


def _by_hand(blocks: Blocks) -> Fraction:
    """Of all pairs at once, in integers: weights over their common denominator."""
    scale, distances = math.lcm(*(weight.denominator for _, weight in blocks)), 0
    for op, weight in blocks:
        matrix = op.dense().astype(np.int64)
        gram = matrix.T @ matrix
        squares = gram.diagonal()
        distances = distances + int(weight * scale) * (squares[:, None] + squares - 2 * gram)
    return Fraction(int(np.max(distances)), scale)


def _groups(bases: list[LinearOperator], weights: list[Fraction]) -> Blocks:
    """One product for each set of attributes: its bases there, totals elsewhere."""
    sets = itertools.product([False, True], repeat=len(bases))
    return [
        (Kron([b if inside else Total(b.shape[1]) for b, inside in zip(bases, s, strict=True)]), weight)
        for s, weight in zip(sets, weights, strict=False)
    ]


WEIGHTS = st.lists(st.fractions(0, 4, max_denominator=8), min_size=8, max_size=8).filter(lambda w: any(w[1:]))


@given(st.lists(st.integers(2, 5), min_size=2, max_size=3), WEIGHTS)
def test_centrings_are_exact(sizes: list[int], weights: list[Fraction]) -> None:
    """Also where only pairs that differ in some attributes are furthest apart, as for two categories."""
    blocks = _groups([Centring(n) for n in sizes], weights)
    found = weighted_sensitivity(blocks, 2, "replace")
    assert found.is_exact
    assert found.power == _by_hand(blocks)


@settings(max_examples=settings().max_examples // 2)
@given(st.integers(0, 2**32 - 1), WEIGHTS)
def test_corners_bound_every_pair(seed: int, weights: list[Fraction]) -> None:
    """By all corners, by each product's own, and in boxes: never below the truth, never above 4 columns."""
    rng = np.random.default_rng(seed)
    bases: list[LinearOperator] = [
        Dense(rng.integers(-9, 10, (3, 4))),
        Centring(3),
        Dense(rng.integers(-4, 5, (2, 5))),
    ]
    blocks = _groups(bases, weights)
    truth = _by_hand(blocks)
    column = weighted_sensitivity(blocks, 2).power
    limits = [{"_COMBINED": 0}, {"_COMBINED": 0, "_PAIR_CLASSES": 0}]
    with pytest.MonkeyPatch.context() as patch:
        for limit in limits:
            for name, value in limit.items():
                patch.setattr(product_sensitivity, name, value)
            for corners in (sums_of_products.CORNERS, 1):
                patch.setattr(sums_of_products, "CORNERS", corners)
                found = weighted_sensitivity(blocks, 2, "replace")
                assert truth <= found.power <= 4 * column
                if found.is_exact:
                    assert found.power == truth


def test_classes_alike_are_compared_once() -> None:
    """Centrings over classes of many cells, beside totals and the same classes' counts."""
    bases: list[LinearOperator] = [MatrixProduct(Centring(3), CLASSES), Centring(4)]
    blocks = [
        *_groups(bases, [Fraction(1), Fraction(1, 3), Fraction(2), Fraction(1, 7)]),
        (Kron([CLASSES, Identity(4)]), Fraction(5)),
    ]
    found = weighted_sensitivity(blocks, 2, "replace")
    assert found.is_exact
    assert found.power == _by_hand(blocks)


def test_thousands_of_categories() -> None:
    """A sum over 5,000 x 4,000 cells, by hand: two cells that differ in both attributes, or in one."""
    n, m = 5000, 4000
    blocks = _groups(
        [Centring(n), Centring(m)], [Fraction(1), Fraction(1, n), Fraction(1, m), Fraction(1, n * m)]
    )
    found = weighted_sensitivity(blocks, 2, "replace")
    assert found.is_exact
    # |u|^2 = n(n-1) and <u, v> = -n: 2m in the first's group, 2n in the second's; in both, 2(n-1)(m-1) - 2 if both
    # differ, 2 n (m - 1) or 2 m (n - 1) if one does; the order of the blocks is (), (m), (n), (n, m)
    both = (
        Fraction(2 * m * m, n) + Fraction(2 * n * n, m) + Fraction(2 * n * m * ((n - 1) * (m - 1) - 1), n * m)
    )
    first = Fraction(2 * n * n, m) + Fraction(2 * n * n * m * (m - 1), n * m)
    second = Fraction(2 * m * m, n) + Fraction(2 * m * m * n * (n - 1), n * m)
    assert found.power == max(both, first, second)


def test_l1_distances_of_large_products_are_never_understated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices dropped for their bounds may be further apart than those kept: seeds where that decides."""
    monkeypatch.setattr(product_sensitivity, "_SMALL_PRODUCT", 1)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        factors = [[Dense(rng.integers(-3, 4, (2, n))), Total(n)] for n in (3, 2, 3)]
        blocks = [
            (Kron([choice[rng.integers(2)] for choice in factors]), Fraction(int(rng.integers(1, 4))))
            for _ in range(4)
        ]
        found = weighted_sensitivity(blocks, 1, "replace")
        matrices = [(op.dense(), w) for op, w in blocks]
        truth = max(
            sum(w * int(np.abs(d[:, j] - d[:, k]).sum()) for d, w in matrices)
            for j in range(18)
            for k in range(j)
        )
        assert found.power >= truth
        assert not found.is_exact or found.power == truth


def test_many_different_factors_of_one_attribute() -> None:
    """A box around n pairs has 2^factors corners: the pairs themselves are compared."""
    rng = np.random.default_rng(0)
    blocks = [(Kron([Dense(rng.integers(-3, 4, (3, 4))), Identity(2)]), Fraction(1)) for _ in range(40)]
    found = weighted_sensitivity(blocks, 2, "replace")
    whole = np.vstack([op.dense() for op, _ in blocks])
    differences = whole[:, :, None] - whole[:, None, :]
    assert found.is_exact
    assert found.power == int(np.square(differences).sum(axis=0).max())
