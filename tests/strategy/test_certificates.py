"""Certificates are attacked by a general solver: no bound promises more than a strategy that it finds.

The optimum under Gaussian noise is a semidefinite program over X = A'A,

    min tr[X^-1 V]   subject to   X_jj <= 1   (add-remove),   X_jj + X_kk - 2 X_jk <= 1 as well   (replace),

where under replace-one the total is public, so that all columns count from the first cell's. What the solver returns
is made feasible, so that its loss is a strategy's. Under Laplace noise no program is convex: there the best strategy
of all that are found stands in for the optimum.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from benchmarks.fresh import random_workload

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.strategy.bounds.lower import unit_bound

SHAPES = [(9,), (4, 4), (3, 2, 3), (2, 2, 2, 2), (5, 3)]
pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # it is made feasible
KINDS: tuple[Any, ...] = ("svd", "dual", "product")


def _written(workload: tb.Workload) -> np.ndarray:
    return np.vstack([float(t.weight) * t.operator(workload.domain).dense() for t in workload.tables])


def optimum(W: np.ndarray, neighbours: str) -> float:
    """The loss of the solver's strategy, no column (or difference of two) longer than 1."""
    if neighbours == "replace":
        W = W[:, 1:] - W[:, :1]
    values, vectors = np.linalg.eigh(W.T @ W)
    told = values > 1e-10 * values[-1]
    root = (vectors[:, told] * np.sqrt(values[told])).T
    n = W.shape[1]
    X = cp.Variable((n, n), PSD=True)
    limits: list[cp.Constraint] = [cp.diag(X) <= 1]
    first, second = np.triu_indices(n, 1)
    if neighbours == "replace":
        limits.append(cp.diag(X)[first] + cp.diag(X)[second] - 2 * X[first, second] <= 1)
    cp.Problem(cp.Minimize(cp.matrix_frac(root.T, X)), limits).solve(solver=cp.CLARABEL)
    assert X.value is not None
    found = (X.value + X.value.T) / 2 + 1e-8 * np.eye(n)
    diagonal = found.diagonal()
    apart = diagonal[first] + diagonal[second] - 2 * found[first, second]
    largest = max(diagonal.max(), apart.max(initial=0.0) if neighbours == "replace" else 0.0)
    return float(np.trace(root @ np.linalg.solve(found, root.T)) * largest)


@pytest.mark.long
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("seed", range(40))
def test_no_bound_is_above_what_a_general_solver_reaches(seed: int, neighbours: str) -> None:
    """Mixed tables, a third of them joint; spaces of their own among the strategies that are certified."""
    workload = random_workload(seed, SHAPES[seed % len(SHAPES)])
    best = optimum(_written(workload), neighbours)
    proven = [unit_bound(workload, kind, neighbours) for kind in KINDS]
    for method in ("auto", "opt0", "residual"):
        try:
            chosen = tb.select(workload, method=method, neighbours=neighbours)
        except Unsupported:
            assert method != "auto"
            continue
        proven.append(chosen.lower)
        if method == "opt0" and neighbours == "add-remove":
            assert chosen.lower is not None
            assert chosen.lower >= best * (1 - 2e-3)  # the solver's is no worse than it should be
    assert max(bound for bound in proven if bound is not None) <= best * (1 + 1e-6)


@pytest.mark.long
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_no_bound_for_laplace_noise_is_above_what_is_reached(seed: int, neighbours: str) -> None:
    workload = random_workload(seed, SHAPES[seed % len(SHAPES)])
    reached, budget = [], tb.PureDP(1)
    for method in ("auto", "opt0", "workload"):
        try:
            chosen = tb.select(
                workload, noise="laplace", method=method, neighbours=neighbours, restarts=8, seed=seed
            )
        except Unsupported:
            continue
        assert chosen.certificate is None  # no optimum is known
        reached.append(chosen.error(workload, budget, neighbours).rmse)
    bounds = []
    for kind in KINDS:
        try:
            bound = tb.lower_bound(workload, "laplace", budget=budget, neighbours=neighbours, kind=kind)
        except Unsupported:
            continue
        bounds.append(bound)
    assert bounds
    assert max(bounds) <= min(reached) * (1 + 1e-9)
