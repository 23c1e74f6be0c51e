"""Squared L2 sensitivities of a histogram under invariants: the closed forms, in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tabulae as tb
from tabulae.linalg import Dense, weighted_sensitivity
from tabulae.research import extended_gaussian
from tabulae.research.target import exact_inverse


def margins(r: int, c: int) -> np.ndarray:
    """All row sums and column sums of an r x c table: r + c rows of rank r + c - 1."""
    return np.vstack([np.kron(np.eye(r, dtype=int), np.ones((1, c), int)),
                      np.kron(np.ones((1, r), int), np.eye(c, dtype=int))])  # fmt: skip


def exactly(C: np.ndarray, neighbours: str) -> Fraction:
    """``max_d ||Pi_N d||^2`` from an integer multiple of the projector."""
    H, D = exact_inverse(C @ C.T)
    projector = D * np.eye(C.shape[1], dtype=object) - C.T.astype(object) @ H @ C.astype(object)
    found = weighted_sensitivity([(Dense(projector.astype(np.int64)), Fraction(1, D * D))], 2, neighbours)
    assert found.is_exact
    return found.power


@pytest.mark.parametrize("n", [2, 3, 7, 30])
def test_one_total(n: int) -> None:
    C = np.ones((1, n), int)
    assert exactly(C, "add-remove") == 1 - Fraction(1, n)
    assert exactly(C, "replace") == 2


@pytest.mark.parametrize(("r", "c"), [(2, 2), (2, 5), (4, 3), (6, 6)])
def test_margins_of_a_table(r: int, c: int) -> None:
    C = margins(r, c)
    independent = C[:-1]
    add, replace = (1 - Fraction(1, r)) * (1 - Fraction(1, c)), 2 * (1 - Fraction(1, max(r, c)))
    assert exactly(independent, "add-remove") == add
    assert exactly(independent, "replace") == replace
    freedom = (r - 1) * (c - 1)
    for neighbours, power in (("add-remove", add), ("replace", replace)):
        mechanism = extended_gaussian(np.eye(r * c), C, tb.ZCDP("1/2"), neighbours=neighbours)
        assert (mechanism.n_c, len(mechanism.target.dependent)) == (r + c - 1, 1)
        assert mechanism.squared_error == pytest.approx(freedom * float(power))
        (law,) = mechanism.strategy.laws(mechanism.budget, neighbours)
        step = Fraction(4) ** mechanism.strategy.blocks[0].exponent
        assert float(law.parameter / step) > 0
