"""p-Identity strategies for Laplace noise: objective against dense algebra, golden numbers, laws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import approx_fprime

from tabulae.errors import InvalidArgument
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.hdmm.opt0 import full_optimum, opt0_laplace, p_identity, p_identity_loss


def all_range(n):
    i = np.arange(n)
    low, high = np.minimum.outer(i, i), np.maximum.outer(i, i)
    return (low + 1.0) * (n - high), n * (n + 1) // 2


def prefix(n):
    return n - np.maximum.outer(np.arange(n), np.arange(n)).astype(float), n


def width_range(n, width=32):
    W = np.array([[float(i <= j < i + width) for j in range(n)] for i in range(n - width + 1)])
    return W.T @ W, len(W)


def rmse(loss, queries):
    return np.sqrt(2 * loss / queries)  # epsilon = 1


small = st.tuples(st.integers(0, 4), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float64, shape, elements=st.floats(0, 3)),
        arrays(np.float64, (5, shape[1]), elements=st.integers(-2, 2)),
    )
)


@given(small)
def test_objective_equals_dense_algebra(theta_and_workload):
    theta, W = theta_and_workload
    A = p_identity(theta)
    np.testing.assert_allclose(np.abs(A).sum(axis=0), 1.0, rtol=1e-14)
    expected = np.square(W @ np.linalg.pinv(A)).sum()
    loss, gradient = p_identity_loss(theta, W.T @ W)
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert gradient.shape == theta.shape


@pytest.mark.parametrize(("p", "n"), [(1, 1), (1, 5), (3, 5), (6, 4)])
def test_gradient_equals_finite_differences(p, n):
    rng = np.random.default_rng([p, n])
    theta, W = rng.random((p, n)), rng.standard_normal((n + 1, n))
    V = W.T @ W
    _, gradient = p_identity_loss(theta, V)
    numeric = approx_fprime(theta.ravel(), lambda x: p_identity_loss(x.reshape(p, n), V)[0], 1e-7)
    np.testing.assert_allclose(gradient.ravel(), numeric, rtol=1e-4, atol=1e-5 * np.abs(numeric).max())


@pytest.mark.parametrize("free", [0.01, 2.0, 500.0])
def test_a_free_total_is_in_objective_and_gradient(free):
    rng = np.random.default_rng(11)
    theta, W = rng.random((3, 6)), rng.standard_normal((7, 6))
    V, A = W.T @ W, p_identity(theta)
    loss, gradient = p_identity_loss(theta, V, free)
    assert loss == pytest.approx(np.trace(np.linalg.solve(A.T @ A + free, V)), rel=1e-9)
    numeric = approx_fprime(theta.ravel(), lambda x: p_identity_loss(x.reshape(3, 6), V, free)[0], 1e-7)
    np.testing.assert_allclose(gradient.ravel(), numeric, rtol=1e-4, atol=1e-5 * np.abs(numeric).max())
    best = full_optimum(V, start=theta, free=free)
    assert best.loss <= loss
    X = best.strategy.T @ best.strategy + free
    assert best.loss == pytest.approx(np.trace(np.linalg.solve(X, V)), rel=1e-9)


GOLDEN = [  # the lower of HDMM Table 4 (5.55, 8.07, 5.32, 7.35, 5.88, 6.34) and what has been found since
    (all_range(64), 5.5525),
    pytest.param(all_range(256), 8.0536, marks=pytest.mark.long),
    (prefix(64), 5.3222),
    pytest.param(prefix(256), 7.3239, marks=pytest.mark.long),
    (width_range(64), 5.882),
    pytest.param(width_range(256), 6.337, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("workload", "golden"), GOLDEN)
def test_golden_numbers_are_met(workload, golden):
    V, queries = workload
    best = opt0_laplace(V)
    assert rmse(best.loss, queries) <= golden
    assert best.loss > svd_bound(V)
    X = best.strategy.T @ best.strategy
    assert np.trace(np.linalg.solve(X, V)) == pytest.approx(best.loss, rel=1e-9)
    assert best.theta.shape[0] + V.shape[0] == best.strategy.shape[0]


def test_shuffled_cells_are_put_in_order_again():
    """Structured starts alone reach the same strategy, whatever order the cells come in."""
    V, _ = prefix(48)
    order = np.random.default_rng(0).permutation(48)
    plain, shuffled = opt0_laplace(V, restarts=0), opt0_laplace(V[np.ix_(order, order)], restarts=0)
    assert shuffled.loss == pytest.approx(plain.loss, rel=1e-5)


def test_same_seed_same_strategy():
    V, _ = prefix(24)
    first, second, other = (opt0_laplace(V, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.strategy, second.strategy)
    assert first.evaluations == second.evaluations != other.evaluations


def test_identity_plus_total_has_its_closed_form():
    """One constant row c: (1 + c)^2 (tr V - c^2 / (1 + n c^2) sum V), minimised over c."""
    n, total = 50, 4.0
    V = np.eye(n) + total
    c = np.linspace(0, 3, 300_001)
    expected = ((1 + c) ** 2 * (np.trace(V) - c * c / (1 + n * c * c) * V.sum())).min()
    best = opt0_laplace(V)
    assert best.loss == pytest.approx(expected, rel=1e-8)
    assert best.theta.shape == (1, n)


def test_cells_alone_are_the_identity_and_the_total_alone_is_one_query():
    cells = opt0_laplace(np.diag([1.0, 4.0, 9.0]))
    assert cells.strategy.tolist() == np.eye(3).tolist()
    assert cells.loss == 14.0
    total = opt0_laplace(np.full((5, 5), 3.0))
    assert total.strategy.tolist() == [[1.0] * 5]
    assert total.loss == 3.0


integer_workloads = st.integers(1, 5).flatmap(
    lambda n: st.integers(1, 4).flatmap(lambda m: arrays(np.float64, (m, n), elements=st.integers(0, 2)))
)


@given(integer_workloads)
def test_every_workload_is_supported_within_unit_sensitivity(W):
    V = W.T @ W
    if not V.any():
        with pytest.raises(InvalidArgument, match="zero"):
            opt0_laplace(V)
        return
    best = opt0_laplace(V, restarts=1)
    A = best.strategy
    assert np.abs(A).sum(axis=0).max() <= 1 + 1e-14
    np.testing.assert_array_equal(A.any(axis=0), W.any(axis=0))
    np.testing.assert_allclose(W @ np.linalg.pinv(A) @ A, W, atol=1e-9)
    assert np.square(W @ np.linalg.pinv(A)).sum() == pytest.approx(best.loss, rel=1e-7)
    assert svd_bound(V) <= best.loss <= np.trace(V) * (1 + 1e-12)


def test_a_cell_that_is_better_left_alone_keeps_a_trace():
    """The second cell is best measured along with the first only (loss 26): its own share shrinks."""
    W = np.array([[1.0, 1, 2], [1, 2, 2], [2, 2, 2]])
    best = opt0_laplace(W.T @ W, restarts=1)
    assert np.square(W @ np.linalg.pinv(best.strategy)).sum() == pytest.approx(best.loss, rel=1e-8)
    assert 26.0 <= best.loss < 26.01


def test_twin_cells_are_measured_alike_and_cost_nothing():
    W = np.tril(np.ones((6, 6)))
    doubled = np.hstack([W, W[:, :2]])
    plain, wide = opt0_laplace(W.T @ W), opt0_laplace(doubled.T @ doubled)
    assert wide.loss == pytest.approx(plain.loss, rel=1e-12)
    np.testing.assert_array_equal(wide.strategy[:, 6:], wide.strategy[:, :2])
    assert wide.theta.shape[1] == 6


@pytest.mark.parametrize("rows", [0, 1, *(pytest.param(rows, marks=pytest.mark.long) for rows in (2, 3))])
def test_rows_bounds_the_number_of_extra_queries(rows):
    V, _ = prefix(16)
    losses = [opt0_laplace(V, rows=r).loss for r in range(rows + 1)]
    best = opt0_laplace(V, rows=rows)
    assert best.theta.shape[0] <= rows
    assert all(more <= fewer * (1 + 1e-6) for fewer, more in itertools.pairwise(losses))
    assert (best.loss < np.trace(V)) == (rows > 0)


@pytest.mark.long
def test_a_decisive_total_goes_into_every_start():
    """Prefix sums besides a total at weight 100: triangles without a total row stop at 32,019 or more."""
    V = prefix(100)[0] + 1e4
    best = opt0_laplace(V, restarts=1)
    assert best.loss < 31_850
    assert best.theta.min(axis=1).max() > 1  # the row that holds the total


def test_resuming_never_loses_ground():
    V, _ = all_range(48)
    near = full_optimum(V, restarts=0)
    changed = V + np.ones((48, 48))
    before, _ = p_identity_loss(near.theta, changed)
    assert full_optimum(changed, start=near.theta).loss <= before


def test_time_limit_returns_a_valid_strategy():
    V, _ = prefix(64)
    best = opt0_laplace(V, deadline=0.0)
    assert np.abs(best.strategy).sum(axis=0).max() <= 1 + 1e-14
    assert best.loss <= np.trace(V)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gram": np.ones((2, 3))}, "n x n"),
        ({"gram": np.zeros((2, 2))}, "zero"),
        ({"gram": np.eye(2), "rows": -1}, "rows=-1"),
        ({"gram": np.eye(2), "restarts": -1}, "restarts=-1"),
    ],
)
def test_mistakes_are_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        opt0_laplace(**arguments)
