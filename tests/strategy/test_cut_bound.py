"""The cut bound for Laplace noise, which is not in the code: what docs/methods/bounds.md says of it.

``max_Y (tr (Y^1/2 V Y^1/2)^1/2)^2 / max_s s'Ys`` is the least tr[X^-1 V] over mixtures X of ss', s in {-1, 1}^n: an
A-optimal design over sign vectors, solved here by multiplicative steps. ``(tr[X^-1 V])^2 / max_s s'X^-1 V X^-1 s`` is
the bound of the Y that belongs to X.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tabulae as tb
from tabulae.strategy.hdmm.opt0 import opt0_gaussian


def cut_bound(W: np.ndarray) -> tuple[float, float]:
    """The bound, and tr[X^-1 V] of the mixture that it was found from, which no cut bound exceeds."""
    n = W.shape[1]
    signs = np.array([(1, *s) for s in itertools.product((1, -1), repeat=n - 1)]).T.astype(float)
    V = W.T @ W + 1e-9 * np.eye(n)
    weights = np.full(signs.shape[1], 1 / signs.shape[1])
    lower, upper = 0.0, np.inf
    for _ in range(3000):
        inverse = np.linalg.inv((signs * weights) @ signs.T)
        trace = float(np.vdot(inverse, V))
        slope = np.einsum("ij,ij->j", signs, inverse @ V @ inverse @ signs)
        lower, upper = max(lower, trace**2 / slope.max()), min(upper, trace)
        if upper <= lower * (1 + 1e-4):
            break
        weights *= np.sqrt(slope / trace)
        weights /= weights.sum()
    return lower, upper


def _all_tables(domain: tb.Domain, ways: list[int]) -> np.ndarray:
    wl = tb.Workload.marginals(domain, ways=ways)
    return np.vstack([np.asarray(t.operator(domain).dense(), float) for t in wl.tables])


def _written(operator: tb.LinearOperator) -> np.ndarray:
    return np.asarray(operator.dense(), float)


@pytest.mark.parametrize(
    "W",
    [
        _written(tb.AllRange(8)),
        _written(tb.Prefix(8)),
        np.eye(8),
        np.vstack([np.eye(8), np.ones((1, 8))]),
        _all_tables(tb.Domain({"a": 2, "b": 5}), [0, 1, 2]),
    ],
    ids=["ranges", "prefix", "cells", "cells and total", "marginals"],
)
def test_it_adds_nothing_to_the_dual_bound_of_usual_workloads(W: np.ndarray) -> None:
    dual = opt0_gaussian(W.T @ W, tolerance=1e-6).lower
    lower, upper = cut_bound(W)
    assert dual * (1 - 1e-3) <= lower <= upper <= dual * (1 + 1e-3)


def test_it_is_higher_where_the_total_is_not_asked() -> None:
    """All differences of three cells: correlations of -1/2 are no mixture of signs. 4.5 against 4."""
    W = np.array([[1.0, -1, 0], [1, 0, -1], [0, 1, -1]])
    assert opt0_gaussian(W.T @ W, tolerance=1e-6).lower == pytest.approx(4.0, rel=1e-4)
    assert cut_bound(W)[0] == pytest.approx(4.5, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_no_matrix_of_unit_l1_columns_beats_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(6, 5))
    lower, _ = cut_bound(W)
    for A in (np.eye(5), W, rng.normal(size=(7, 5)), np.vstack([np.eye(5), rng.choice([-1.0, 1.0], (2, 5))])):
        assert lower <= np.abs(A).sum(axis=0).max() ** 2 * np.square(W @ np.linalg.pinv(A)).sum()
