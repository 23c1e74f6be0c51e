"""Random queries with invariants, and sums that tests do by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tabulae.errors import Unsupported
from tabulae.research import (
    ConstrainedQuery,
    SubspaceMechanism,
    correlated_gaussian,
    extended_gaussian,
    extended_laplace,
    k_norm,
    optimal_gaussian,
    projected_gaussian,
    projected_laplace,
)

NEIGHBOURS = ("add-remove", "replace")
GAUSSIAN = {
    "projected": projected_gaussian,
    "extended": extended_gaussian,
    "correlated": correlated_gaussian,
    "optimal": optimal_gaussian,
}
LAPLACE = {"projected": projected_laplace, "extended": extended_laplace, "k-norm": k_norm}
PAIRS = np.kron(np.eye(3, dtype=int), [[1, 1]])  # three pairs of answers, the sum of each exact


def random_problem(
    seed: int, n: int | None = None, neighbours: str = "add-remove"
) -> tuple[np.ndarray, np.ndarray]:
    """A 0/1 query (n x N) and 0/1 invariants on its answers, such that every mechanism applies."""
    rng = np.random.default_rng(seed)
    while True:
        n_ = int(rng.integers(3, 8)) if n is None else n
        A = rng.integers(0, 2, (n_, int(rng.integers(n_, 2 * n_))))
        C = rng.integers(0, 2, (int(rng.integers(1, max(2, n_ // 2))), n_))
        try:
            target = ConstrainedQuery.of(A, C, neighbours)
            target.spanning_steps()
        except Unsupported:
            continue
        if target.rank:
            return A, C


matrices = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        st.integers(2, 8).flatmap(lambda N: arrays(np.int64, (n, N), elements=st.integers(-2, 2))),
        st.integers(0, 3).flatmap(lambda m: arrays(np.int64, (m, n), elements=st.integers(-2, 2))),
    )
)
"""Queries and invariants of any rank."""


def differences(matrix: np.ndarray, neighbours: str) -> np.ndarray:
    """``matrix @ d`` for all neighbours' differences d, a column each."""
    if neighbours == "add-remove":
        return matrix
    pairs = list(combinations(range(matrix.shape[1]), 2))
    return np.stack([matrix[:, i] - matrix[:, j] for i, j in pairs], axis=1)


def rho_of(mechanism: SubspaceMechanism) -> float:
    """``max_d d'A' Cov^+ A d / 2`` over neighbours, for the part of A d in null(C): the rho of Gaussian noise."""
    target = mechanism.target
    steps = differences(target.projector @ target.matrix, mechanism.neighbours)
    values, vectors = np.linalg.eigh(mechanism.covariance)
    kept = values > 1e-9 * values[-1]
    hidden = vectors[:, kept].T @ steps
    assert np.allclose(vectors[:, kept] @ hidden, steps, atol=1e-7), "noise covers all that must be hidden"
    return float((hidden**2 / values[kept, None]).sum(axis=0).max() / 2)


def measured_cost(mechanism: SubspaceMechanism) -> Fraction:
    """The privacy loss (rho or epsilon) of the integers measured, in Fractions and one pair of neighbours at a time."""
    assert mechanism.strategy is not None
    (law,) = mechanism.strategy.laws(mechanism.budget, mechanism.neighbours)
    (block,) = mechanism.strategy.blocks
    steps = differences(np.asarray(block.query.dense()), mechanism.neighbours).T.tolist()
    if mechanism.noise == "gaussian":
        return max(Fraction(sum(v * v for v in step)) / (2 * law.parameter) for step in steps)
    return max(Fraction(sum(abs(v) for v in step)) / law.parameter for step in steps)
