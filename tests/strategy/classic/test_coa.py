"""COA: the optimum that the dual and a semidefinite solver find, by its own Newton iterations."""

from __future__ import annotations

import time

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.strategy.classic.explicit import coa, coa_strategy
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

SIGMA = 4.224678889326836  # analytic Gaussian mechanism at (1, 1e-6), sensitivity 1


def prefix(n):
    return np.tril(np.ones((n, n)))


def all_range(n):
    return np.array([[float(i <= k <= j) for k in range(n)] for i in range(n) for j in range(i, n)])


def width_range(n, width=32):
    return np.array([[float(i <= k < i + width) for k in range(n)] for i in range(n - width + 1)])


def semidefinite_optimum(W):
    """min tr(W X^-1 W') over diag X <= 1 as a semidefinite program."""
    m, n = W.shape
    block = cp.Variable((m + n, m + n), PSD=True)
    constraints = [block[:m, m:] == W, cp.diag(block[m:, m:]) <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(block[:m, :m])), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value


def dense_loss(W, A):
    """||W A^+||_F^2 at column norm 1, with the row space checked."""
    A = A / np.sqrt(np.square(A).sum(axis=0).max())
    pinv = np.linalg.pinv(A, rcond=1e-10)
    np.testing.assert_allclose(W @ pinv @ A, W, atol=1e-7 * np.abs(W).max())
    return np.square(W @ pinv).sum()


@pytest.mark.parametrize("n", [1, 2, 5, pytest.param(9, marks=pytest.mark.long)])
@pytest.mark.parametrize("ranges", [prefix, all_range])
def test_the_optimum_is_that_of_a_semidefinite_solver(ranges, n):
    W = ranges(n)
    best = coa(W.T @ W)
    assert best.converged
    assert best.loss == pytest.approx(semidefinite_optimum(W), rel=1e-5)
    assert best.loss == pytest.approx(dense_loss(W, best.strategy), rel=1e-9)


@pytest.mark.parametrize(
    ("W", "printed", "ours"),
    [(all_range(64), 9.73, 9.7261), (prefix(64), 8.87, 8.8712), (width_range(64), 8.79, 8.6970)],
)
def test_hdmm_table_5_and_the_dual(W, printed, ours):
    """COA as printed at n = 64; for Width32 the printed value stopped short of the optimum 8.6962."""
    V = W.T @ W
    best, dual = coa(V), opt0_gaussian(V)
    rmse = SIGMA * np.sqrt(best.loss / len(W))
    assert rmse == pytest.approx(ours, abs=1e-4)
    assert rmse <= printed + 0.005
    assert dual.lower <= best.loss <= dual.loss * (1 + 3e-4)
    assert best.lower <= dual.loss
    assert best.gap <= 3e-4


@pytest.mark.parametrize(
    ("W", "most"), [(all_range(24), 1e-5), (prefix(24), 1e-5), (width_range(24, 9), 1e-3)]
)
def test_iterations_lower_the_objective_and_end_where_the_gradient_is_diagonal(W, most):
    best = coa(W.T @ W, tolerance=1e-9)
    assert best.converged
    assert np.all(np.diff(best.objectives) <= 1e-12 * best.objectives[0])
    assert best.objectives[0] == pytest.approx(
        1.1 * W.shape[1]
    )  # X = I, theta = 0.1 of the mean diagonal entry
    np.testing.assert_allclose(np.square(best.strategy).sum(axis=0), 1.0, rtol=1e-12)
    X = best.strategy.T @ best.strategy
    gradient = np.linalg.inv(X) @ W.T @ W @ np.linalg.inv(X)
    if most < 1e-4:  # V non-singular
        outside = gradient - np.diag(gradient.diagonal())
        assert np.linalg.norm(outside) <= most**0.5 * np.linalg.norm(gradient)
    assert best.gap <= most


@given(arrays(np.float64, (4, 6), elements=st.integers(-3, 3)))
def test_any_workload_of_any_rank(W):
    if not W.any():
        return
    best, dual = coa(W.T @ W), opt0_gaussian(W.T @ W, tolerance=1e-5)
    assert dual.lower <= best.loss * (1 + 1e-9)
    assert best.lower <= dual.loss * (1 + 1e-9)
    assert best.loss <= dual.loss * (1 + 5e-3)
    assert best.loss == pytest.approx(dense_loss(W, best.strategy), rel=1e-5)


def test_twin_cells_and_cells_never_counted_are_left_out():
    W = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    best = coa(W.T @ W)
    np.testing.assert_array_equal(best.strategy[:, 0], best.strategy[:, 1])
    assert not best.strategy[:, 3].any()
    assert coa(np.ones((5, 5))).strategy.tolist() == [[1.0] * 5]


def test_limits_of_iterations_and_time_leave_a_strategy_with_a_true_gap():
    V = prefix(32).T @ prefix(32)
    optimum = opt0_gaussian(V).loss
    for stopped in (coa(V, iterations=4), coa(V, deadline=0.0)):
        assert not stopped.converged
        assert stopped.loss > optimum
        assert stopped.lower <= optimum * (1 + 1e-9)
    assert len(coa(V, iterations=4).objectives) == 4
    assert coa(V, deadline=0.0).loss == pytest.approx(np.trace(V))  # the identity, where it starts


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (np.zeros((3, 3)), "gram is zero"),
        (np.ones((2, 3)), "shape"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "missing"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "not positive semi-definite"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
    ],
)
def test_what_is_no_gram_matrix(gram, message):
    with pytest.raises(InvalidArgument, match=message):
        coa(gram)


def test_tolerance_of_nothing():
    with pytest.raises(InvalidArgument, match="try 1e-6"):
        coa(np.eye(2), tolerance=0.0)


def test_as_a_strategy_of_one_attribute_and_of_several():
    one = tb.Workload.of(tb.Prefix(16))
    strategy = coa_strategy(one, Settings("gaussian"))
    W = prefix(16)
    assert unit_rmse(strategy, one, "add-remove") ** 2 * 16 == pytest.approx(
        semidefinite_optimum(W), rel=1e-4
    )
    domain = tb.Domain({"a": range(3), "b": range(4)})
    two = tb.Workload.marginals(domain, ways=[1, 2])
    found = unit_rmse(coa_strategy(two, Settings("gaussian")), two, "add-remove")
    assert found == pytest.approx(unit_rmse(tb.select(two, method="opt0"), two, "add-remove"), rel=1e-3)


def test_laplace_noise_and_a_million_cells_are_refused_with_what_to_use():
    with pytest.raises(Unsupported, match='choose "opt0" or "low-rank"'):
        tb.select(tb.Workload.of(tb.Prefix(4)), noise="laplace", method="coa")
    wide = tb.Workload.marginals(tb.Domain({"a": range(1000), "b": range(1000)}), ways=[2])
    started = time.monotonic()
    with pytest.raises(Unsupported, match="1,000,000 cells"):
        coa_strategy(wide, Settings("gaussian"))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_units_at_the_ends_of_the_range_of_numbers(scale):
    V = prefix(5).T @ prefix(5)
    plain, best = coa(V), coa(scale * V)
    assert best.loss == pytest.approx(scale * plain.loss, rel=1e-9)
    assert best.lower == pytest.approx(scale * plain.lower, rel=1e-9)
    assert best.gap >= 0
