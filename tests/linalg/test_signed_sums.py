"""Sensitivities of disjunctions, too large to list, against the same written out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.linalg import Dense, Identity, Kron, Sum, Total, sensitivity, weighted_sensitivity

SIZES = (3, 2, 4)
OTHER = Kron([Identity(3), Total(2), Total(4)])


@st.composite
def masks(draw: st.DrawFn) -> Kron:
    """A conjunction: a 0/1 row for each attribute."""
    return Kron([Dense([draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))]) for n in SIZES])


def _forms(a: Kron, b: Kron) -> list[Sum]:
    whole = Kron([Total(n) for n in SIZES])
    both = Kron([Dense(f.dense() * g.dense()) for f, g in zip(a.ops, b.ops, strict=True)])
    return [Sum([(1, whole), (-1, a)]), Sum([(1, a), (1, b), (-1, both)]), Sum([(2, a), (3, b)])]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("p", [1, 2])
@given(a=masks(), b=masks(), weight=st.fractions(Fraction(1, 9), 9))
def test_never_below_the_truth_and_exact_where_it_says_so(
    p: int, neighbours: str, a: Kron, b: Kron, weight: Fraction
) -> None:
    for total in _forms(a, b):
        listed = np.vstack([total.dense() * 1.0, OTHER.dense()])
        weights = np.array([float(weight)] + [2.0] * 3)
        moved = (
            listed.T if neighbours == "add-remove" else (listed.T[:, None] - listed.T[None]).reshape(-1, 4)
        )
        truth = (np.abs(moved) ** p * weights).sum(axis=1).max()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sensitivity, "_LISTED_CELLS", 1)
            got = weighted_sensitivity([(total, weight), (OTHER, Fraction(2))], p, neighbours)
        assert float(got.power) >= truth * (1 - 1e-12)
        if got.is_exact:
            assert float(got.power) == pytest.approx(truth, rel=1e-12)


def test_a_disjunction_over_a_large_domain_is_exact() -> None:
    """Ages from 65 or nursing homes, by county, as two disjoint products over 10^7 cells."""
    old = np.arange(100) >= 65
    nursing = np.arange(10) == 3
    total = Sum(
        [
            (1, Kron([Identity(100), Dense([old * 1]), Total(10), Total(100)])),
            (1, Kron([Identity(100), Dense([~old * 1]), Dense([nursing * 1]), Total(100)])),
        ]
    )
    got = weighted_sensitivity([(total, Fraction(1))], 2)
    assert got.is_exact
    assert got.power == 1
