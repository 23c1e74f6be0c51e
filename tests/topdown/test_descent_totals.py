"""Totals before cells: against a quadratic programme over all cells, and on problems that a box does not describe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.linalg import BlockAlgebra
from tabulae.products.areas.descent.descent import divide_totals, nearest_sums, reduce_to_sums, solve
from tabulae.products.areas.descent.limits import FREE, NO_LIMIT, Division


def division(total, allowed, part, lower, upper, group=None, exact=None) -> Division:
    """One with identity weights, for what its limits allow."""
    allowed = np.asarray(allowed, bool)
    n, k = allowed.shape
    lower = np.asarray(lower, np.int64)
    total = np.asarray(total, np.int64)
    group = np.zeros_like(lower) if group is None else np.asarray(group)
    return Division(
        BlockAlgebra((total.shape[1],)),
        total,
        np.broadcast_to(np.eye(k), (1, 2, k, k)).copy(),
        np.zeros(n, np.int64),
        np.zeros((n, *total.shape)),
        allowed,
        np.asarray(part),
        lower,
        np.asarray(upper, np.int64),
        group,
        np.full((n, int(group.max()) + 1), FREE) if exact is None else np.asarray(exact, np.int64),
    )


def random_division(rng: np.random.Generator) -> tuple[Division, np.ndarray]:
    """Limits around some whole division, which is returned too."""
    n, k, inner, parts = (int(rng.integers(low, high)) for low, high in ((2, 5), (1, 5), (1, 4), (1, 3)))
    allowed = rng.random((n, k)) < 0.7
    allowed[0] |= ~allowed.any(axis=0)
    truth = rng.poisson(rng.choice([0.5, 4.0]), (n, k, inner)) * allowed[:, :, None]
    part = np.sort(rng.integers(0, parts, k))
    sums = np.zeros((n, parts), np.int64)
    for child, row in enumerate(truth.sum(axis=2)):
        np.add.at(sums[child], part, row)
    lower = np.where(rng.random(sums.shape) < 0.3, np.maximum(0, sums - rng.integers(0, 3, sums.shape)), 0)
    upper = np.where(rng.random(sums.shape) < 0.3, sums + rng.integers(0, 3, sums.shape), NO_LIMIT)
    exact = np.where(rng.random((n, 1)) < 0.2, sums.sum(axis=1, keepdims=True), FREE)
    return division(truth.sum(axis=0), allowed, part, lower, upper, exact=exact), truth


def best_cost(given: Division, measured: np.ndarray, weight: np.ndarray) -> float:
    """The least sum of squares over totals of real divisions, by another solver."""
    cvxpy = pytest.importorskip("cvxpy")
    assert given.total is not None
    people = given.total.sum(axis=1)
    x = cvxpy.Variable(given.allowed.shape, nonneg=True)
    limits = [cvxpy.sum(x, axis=0) == people, cvxpy.multiply(x, ~given.allowed) == 0]
    for j in range(given.lower.shape[1]):
        sums = x @ (given.part == j).astype(float)
        limits += [sums >= given.lower[:, j], sums <= np.minimum(given.upper[:, j], 10**6)]
    for g in range(given.exact.shape[1]):
        for child in np.flatnonzero(given.exact[:, g] != FREE):
            limits.append(
                x[child] @ (given.group[child][given.part] == g).astype(float) == given.exact[child, g]
            )
    cost = cvxpy.sum(cvxpy.multiply(weight, cvxpy.square(cvxpy.sum(x, axis=1) - measured)))
    problem = cvxpy.Problem(cvxpy.Minimize(cost), limits)
    try:
        return float(problem.solve(solver=cvxpy.CLARABEL))
    except (cvxpy.SolverError, UserWarning):  # it gives up now and then where weights differ much
        return float(problem.solve(solver=cvxpy.HIGHS))


@given(st.integers(0, 2**32 - 1))
def test_totals_are_nearest_among_feasible_ones(seed):
    rng = np.random.default_rng(seed)
    problem, truth = random_division(rng)
    weight = rng.uniform(0.2, 2, len(truth))
    measured = truth.sum(axis=(1, 2)) + rng.normal(0, 3, len(truth))
    found = divide_totals(problem, measured, weight)
    assert problem.total is not None
    assert found.dtype == np.int64
    assert found.sum() == problem.total.sum()
    least = best_cost(problem, measured, weight)
    spread = np.sqrt(weight.sum())  # each total is less than 1 from a best real one
    assert np.sqrt((weight * (found - measured) ** 2).sum()) <= np.sqrt(max(least, 0)) + spread + 1e-3


@given(st.integers(0, 2**32 - 1))
def test_a_division_with_these_totals_exists(seed):
    rng = np.random.default_rng(seed)
    problem, truth = random_division(rng)
    found = divide_totals(problem, rng.normal(5, 10, len(truth)), np.ones(len(truth)))
    solved = solve(problem, found.astype(float))
    assert solved.converged
    assert np.abs(solved.x.sum(axis=(1, 2)) - found).max() < 0.01
    assert np.abs(solved.x.sum(axis=0) - problem.total).max() < 0.01


@pytest.mark.parametrize("unequal", [False, True])
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_draws_real_totals(unequal, seed):
    """Also with limits in the way, and weights that differ 1,000 times: as small a cost as another solver's."""
    rng = np.random.default_rng(seed)
    problem, truth = random_division(rng)
    weight = 10 ** rng.uniform(-2, 1, len(truth)) if unequal else np.full(len(truth), 0.25)
    measured = truth.sum(axis=(1, 2)) + rng.normal(0, 1, len(truth)) / np.sqrt(weight)
    reduced = reduce_to_sums(problem, measured, weight)
    found = nearest_sums(reduced, measured, weight).sum(axis=(1, 2))
    cost = (weight * (found - measured) ** 2).sum()
    least = max(best_cost(problem, measured, weight), 0)
    assert np.sqrt(cost) <= np.sqrt(least) + 0.02 * np.sqrt(weight.sum()) + 1e-3


def test_feasible_measurements_are_kept():
    problem, truth = random_division(np.random.default_rng(5))
    total = truth.sum(axis=(1, 2))
    assert divide_totals(problem, total.astype(float), np.ones(len(truth))).tolist() == total.tolist()


def test_the_choice_among_cells_draws_no_total():
    """Away from every limit, totals are the measured ones plus their share of what is missing."""
    rng = np.random.default_rng(3)
    free = np.full((5, 2), NO_LIMIT)
    lower = np.zeros((5, 2))
    lower[0, 1] = 1  # makes two sorts of cells
    problem = division([[9000], [1000]], np.ones((5, 2)), [0, 1], lower, free)
    weight, measured = rng.uniform(0.2, 2, 5), rng.uniform(1500, 2500, 5)
    expected = measured + (10_000 - measured.sum()) / weight / (1 / weight).sum()
    found = nearest_sums(reduce_to_sums(problem, measured, weight), measured, weight).sum(axis=(1, 2))
    assert np.abs(found - expected).max() < 0.02


def test_children_that_cannot_hold_all_people_are_given_no_more():
    """Two children without the second cell can hold no more than the first cell's 50 people, together."""
    free = np.full((3, 1), NO_LIMIT)
    problem = division([[50], [40]], [[1, 0], [1, 0], [1, 1]], [0, 0], np.zeros((3, 1)), free)
    found = divide_totals(problem, np.array([40.0, 40.0, 10.0]), np.ones(3))
    assert found.tolist() == [25, 25, 40]


def test_cells_that_nothing_tells_apart_are_one():
    free = np.full((2, 2), NO_LIMIT)
    ones = np.ones((2, 4), bool)
    problem = division(np.ones((4, 3)), ones, [0, 0, 1, 1], np.zeros((2, 2)), free)
    assert reduce_to_sums(problem, np.ones(2), np.ones(2)).allowed.shape == (2, 1)
    limited = division(np.ones((4, 3)), ones, [0, 0, 1, 1], [[0, 2], [0, 0]], free)
    reduced = reduce_to_sums(limited, np.ones(2), np.ones(2))
    assert reduced.allowed.shape == (2, 2)
    assert reduced.lower.tolist() == [[0, 2], [0, 0]]
    assert reduced.total is not None
    assert reduced.total.ravel().tolist() == [6, 6]
