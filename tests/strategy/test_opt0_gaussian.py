"""The certified optimum for Gaussian noise: golden numbers, a semidefinite solver as oracle, KKT, laws."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.each import each

import tabulae as tb
from tabulae.errors import InvalidArgument
from tabulae.strategy.bounds.dual import dual_bound, svd_bound
from tabulae.strategy.hdmm.opt0 import TridiagonalInverse, nonsingular_optimum, opt0_gaussian

SIGMA = 4.224678889326836  # analytic Gaussian mechanism at (1, 1e-6), sensitivity 1


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
    return SIGMA * np.sqrt(loss / queries)


def column_norm(A):
    return np.sqrt(np.square(A).sum(axis=0)).max()


def dense_loss(W, A):
    """||W A^+||_F^2, with the row space checked: an independent evaluation of what is reported."""
    pinv = np.linalg.pinv(A, rcond=1e-10)
    np.testing.assert_allclose(W @ pinv @ A, W, atol=1e-7 * max(1.0, np.abs(W).max()))
    return np.square(W @ pinv).sum()


def semidefinite_optimum(W):
    """min tr(W X^-1 W') over diag X <= 1 as a semidefinite program."""
    m, n = W.shape
    block = cp.Variable((m + n, m + n), PSD=True)
    constraints = [block[:m, m:] == W, cp.diag(block[m:, m:]) <= 1]
    problem = cp.Problem(cp.Minimize(cp.trace(block[:m, :m])), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return problem.value


GOLDEN = [  # HDMM Table 5 where it has the cell, to the digits of the design page's own solver
    (all_range(64), 9.7261),
    pytest.param(all_range(256), 12.2576, marks=pytest.mark.long),
    (prefix(64), 8.8712),
    pytest.param(prefix(256), 10.6649, marks=pytest.mark.long),
    (width_range(64), 8.6962),
    (width_range(256), 9.9208),
]


@pytest.mark.parametrize(("workload", "golden"), GOLDEN)
def test_golden_numbers_are_met_and_certified(workload, golden):
    V, queries = workload
    best = opt0_gaussian(V)
    assert rmse(best.loss, queries) == pytest.approx(golden, abs=1.1e-4)
    assert rmse(best.lower, queries) == pytest.approx(golden, abs=1.1e-4)
    assert best.gap <= 1e-5
    assert column_norm(best.strategy) <= 1 + 1e-14


@pytest.mark.parametrize(
    ("workload", "golden"),
    [(all_range(1024), 14.8501), pytest.param(prefix(1024), 12.4858, marks=pytest.mark.long)],
)
def test_1024_cells_are_certified(workload, golden):
    V, queries = workload
    best = opt0_gaussian(V)
    assert 0 <= best.gap <= 1e-3
    assert rmse(best.lower, queries) <= golden + 5e-5
    assert golden - 5e-5 <= rmse(best.loss, queries) <= golden * (1 + 5e-4)


def test_prefix_beats_the_svd_bound_by_three_percent_and_no_more():
    V, _ = prefix(64)  # HDMM claims 1.01 of the SVD bound everywhere; it is 1.029 here
    assert np.sqrt(opt0_gaussian(V).lower / svd_bound(V)) == pytest.approx(1.029, abs=5e-4)


SHAPES = [(3, 3), (5, 5), (8, 8), (8, 12), (4, 2), (6, 3), (8, 5), (8, 1)]  # cells and rows
CASES = [
    (seed, *shape, kind) for seed, shape in enumerate(SHAPES) for kind in ("normal", "counting", "weighted")
]


def random_workload(seed, n, rank, kind):
    rng = np.random.default_rng([seed, n, rank])
    if kind == "normal":
        return rng.standard_normal((rank, n))
    W = (rng.random((rank, n)) < 0.45).astype(float)
    W[:, 0] = 1.0
    return W if kind == "counting" else W * 10 ** rng.uniform(-1, 1, (rank, 1))


@each("case", CASES)
def test_semidefinite_oracle_agrees(case):
    W = random_workload(*case)
    oracle = semidefinite_optimum(W)
    best = opt0_gaussian(W.T @ W, tolerance=1e-6)
    assert best.gap <= 1e-6
    assert best.lower <= oracle * (1 + 1e-6)
    assert best.loss == pytest.approx(oracle, rel=3e-6)
    assert dense_loss(W, best.strategy) == pytest.approx(best.loss, rel=1e-6)


@pytest.mark.parametrize("V", [prefix(12)[0], all_range(9)[0], np.diag([1.0, 5.0, 20.0]) + 1.0])
def test_kkt_conditions_hold(V):
    """At the optimum X^-1 V X^-1 is diagonal, its diagonal is the multipliers, and diag X = 1."""
    best = opt0_gaussian(V, tolerance=1e-12)
    X = best.strategy.T @ best.strategy
    inverse = np.linalg.inv(X)
    gradient = inverse @ V @ inverse
    mu = gradient.diagonal()
    np.testing.assert_allclose(X.diagonal(), 1.0, atol=1e-12)
    np.testing.assert_allclose(gradient, np.diag(mu), atol=1e-4 * mu.max())
    np.testing.assert_allclose(best.multipliers / best.multipliers.sum(), mu / mu.sum(), atol=1e-4)


def test_multipliers_prove_the_bound():
    W = random_workload(3, 7, 4, "counting")
    best = opt0_gaussian(W.T @ W)
    assert dual_bound(W.T @ W, best.multipliers) == pytest.approx(best.lower, rel=1e-12)
    assert (best.multipliers >= 0).all()


integer_workloads = st.integers(1, 6).flatmap(
    lambda n: st.integers(1, 6).flatmap(lambda m: arrays(np.float64, (m, n), elements=st.integers(-2, 2)))
)


@given(integer_workloads)
def test_every_workload_is_supported_and_certified(W):
    V = W.T @ W
    if not V.any():
        with pytest.raises(InvalidArgument, match="zero"):
            opt0_gaussian(V)
        return
    best = opt0_gaussian(V, tolerance=1e-4)
    assert best.lower <= best.loss
    assert best.gap <= 1e-4
    assert column_norm(best.strategy) <= 1 + 1e-14
    assert dense_loss(W, best.strategy) == pytest.approx(best.loss, rel=1e-6)
    identity, itself = np.trace(V), np.linalg.matrix_rank(W) * V.diagonal().max()
    assert best.lower <= min(identity, itself) * (1 + 1e-12)
    assert best.loss <= min(identity, itself) * (1 + 1e-4)


@given(integer_workloads, st.randoms(use_true_random=False))
def test_order_of_the_cells_and_scale_do_not_matter(W, random):
    if not W.any():
        return
    order = list(range(W.shape[1]))
    random.shuffle(order)
    plain = opt0_gaussian(W.T @ W, tolerance=1e-6)
    moved = opt0_gaussian(1e8 * W[:, order].T @ W[:, order], tolerance=1e-6)
    assert moved.loss == pytest.approx(1e8 * plain.loss, rel=2e-6)
    assert moved.lower == pytest.approx(1e8 * plain.lower, rel=2e-6)


@given(integer_workloads, st.data())
def test_twin_cells_cost_nothing(W, data):
    """Copies of a cell that no query tells apart leave the optimum as it is, and are measured alike."""
    if not W.any():
        return
    twin = data.draw(st.integers(0, W.shape[1] - 1))
    doubled = np.hstack([W, W[:, [twin]], np.zeros((len(W), 1))])
    plain, wide = opt0_gaussian(W.T @ W), opt0_gaussian(doubled.T @ doubled)
    assert wide.loss == pytest.approx(plain.loss, rel=3e-5)
    np.testing.assert_array_equal(wide.strategy[:, twin], wide.strategy[:, -2])
    assert not wide.strategy[:, -1].any()


def test_total_alone_is_one_query_and_cells_alone_are_the_identity():
    assert opt0_gaussian(np.full((5, 5), 3.0)).strategy.tolist() == [[1.0] * 5]
    assert opt0_gaussian(np.array([[7.0]])).loss == 7.0
    cells = opt0_gaussian(np.diag([1.0, 4.0, 1e-6]))
    np.testing.assert_allclose(cells.strategy, np.eye(3), atol=1e-6)
    assert cells.loss == pytest.approx(5.000001, rel=1e-9)


def test_identity_plus_total_has_its_closed_form():
    """X = alpha I + beta J with eigenvalues proportional to the square roots of the workload's."""
    n, total = 50, 9.0
    expected = ((n - 1) + np.sqrt(1 + n * total)) ** 2 / n
    best = opt0_gaussian(np.eye(n) + total)
    assert best.loss == pytest.approx(expected, rel=1e-5)
    assert best.lower == pytest.approx(expected, rel=1e-5)


def test_a_tiny_weight_keeps_its_support():
    W = np.vstack([np.ones((1, 6)), 1e-5 * np.eye(6)[:3]])
    best = opt0_gaussian(W.T @ W)
    A = best.strategy
    np.testing.assert_allclose(W @ np.linalg.pinv(A, rcond=1e-12) @ A, W, atol=1e-9)
    assert best.gap < 1e-3


@pytest.mark.parametrize("share", [1e-3, 1e-7, 1e-10, 1e-11, 1e-14])
def test_pivots_stay_far_above_any_grid(share):
    """A total and, at next to no weight, the cells: the optimum is nearly singular, the strategy is not."""
    best = nonsingular_optimum(np.ones((6, 6)) + share * np.eye(6), tolerance=1e-3)
    assert np.abs(best.strategy.diagonal()).min() >= np.sqrt(1e-5)
    assert best.gap <= 1e-3


@pytest.mark.parametrize("workload", [prefix(64), width_range(64)])
def test_rounding_to_a_grid_keeps_the_factor_triangular_and_costs_little(workload):
    V, _ = workload
    best = opt0_gaussian(V)
    rounded = np.round(best.strategy * 2.0**20) / 2.0**20
    assert not np.tril(rounded, -1).any()
    assert np.abs(rounded.diagonal()).min() > 2.0**-10
    X = rounded.T @ rounded
    assert np.trace(np.linalg.solve(X, V)) * X.diagonal().max() == pytest.approx(best.loss, rel=1e-5)


def test_nonsingular_optimum_merges_nothing():
    found = nonsingular_optimum(np.ones((4, 4)), tolerance=1e-3)
    assert found.strategy.shape == (4, 4)
    assert np.abs(found.strategy.diagonal()).min() > 1e-3
    assert found.loss == pytest.approx(1.0, rel=1e-3)


def test_a_start_close_to_the_optimum_saves_work():
    V, _ = prefix(40)
    cold = nonsingular_optimum(V, tolerance=1e-6)
    warm = nonsingular_optimum(V, tolerance=1e-6, start=cold.multipliers)
    assert warm.evaluations < cold.evaluations
    assert warm.loss == pytest.approx(cold.loss, rel=2e-6)


def test_time_limit_returns_a_valid_strategy_with_its_true_gap():
    V, _ = width_range(64)
    best = opt0_gaussian(V, deadline=0.0)
    assert best.evaluations == 1
    assert column_norm(best.strategy) <= 1 + 1e-14
    assert best.gap == pytest.approx(best.loss / best.lower - 1)
    assert best.lower <= opt0_gaussian(V).loss <= best.loss


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (np.ones((2, 3)), "n x n"),
        (np.zeros((0, 0)), "n x n"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "infinite or missing"),
        (np.array([[1.0, 0.0], [1.0, 1.0]]), "not symmetric"),
        (np.array([[-1.0, 0.0], [0.0, 1.0]]), "negative diagonal"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "not positive semi-definite"),
        (np.zeros((3, 3)), "zero"),
    ],
)
def test_what_is_no_gram_matrix_is_refused(gram, message):
    with pytest.raises(InvalidArgument, match=message):
        opt0_gaussian(gram)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan")])
def test_impossible_tolerance_is_refused(tolerance):
    with pytest.raises(InvalidArgument, match="tolerance"):
        opt0_gaussian(np.eye(2), tolerance=tolerance)


@pytest.mark.parametrize("operator", [tb.Prefix(40), tb.AllRange(40)], ids=str)
def test_spectra_of_ranges_come_from_a_tridiagonal_inverse(operator: tb.LinearOperator) -> None:
    """Against the dense spectrum, at multipliers of any size; rounded down, they are below it."""
    V = np.asarray(operator.gram().dense(), dtype=float)
    scale = float(np.trace(V)) / 40
    found = TridiagonalInverse.of(V, scale)
    assert found is not None
    h = np.random.default_rng(0).uniform(0.1, 3.0, 40)
    values, vectors = found.eigh(h)
    whole = V / scale * h * h[:, None]
    np.testing.assert_allclose((vectors * values) @ vectors.T, whole, atol=1e-9 * values.max())
    exact = float(np.sqrt(np.linalg.eigvalsh(whole)).sum())
    assert exact * (1 - 1e-9) < found.lowered_trace(h) < exact
    np.testing.assert_allclose(found.solve(np.eye(40)), V / scale, rtol=1e-9)


@pytest.mark.parametrize(
    "gram",
    [
        np.asarray(tb.WidthRange(40, 5).gram().dense(), dtype=float),
        np.eye(40) + 1.0,
        np.ones((40, 40)),
        np.asarray(tb.Prefix(40).gram().dense(), dtype=float) + 1e-3 * np.eye(40),
    ],
    ids=["windows", "cells and total", "total", "prefixes and cells"],
)
def test_other_grams_have_none(gram: np.ndarray) -> None:
    assert TridiagonalInverse.of(gram, 1.0) is None


@pytest.mark.parametrize(
    "operator", [tb.Prefix(600), pytest.param(tb.AllRange(600), marks=pytest.mark.long)], ids=str
)
def test_many_cells_in_a_row_take_no_dense_spectrum(
    operator: tb.LinearOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimum of 600 cells with its proof, which the dense multipliers' bound confirms."""
    V = np.asarray(operator.gram().dense(), dtype=float)
    with monkeypatch.context() as patched:
        patched.delattr(scipy.linalg, "eigh")
        found = opt0_gaussian(V)
    assert found.gap <= 1e-3
    h = np.sqrt(found.multipliers)
    dense = float(np.sqrt(np.linalg.eigvalsh(V * h * h[:, None])).sum()) ** 2 / float(h @ h)
    assert dense * (1 - 1e-7) <= found.lower <= dense * (1 + 1e-10)


def test_one_attribute_goes_to_the_optimum_at_once() -> None:
    """The planner would search a basis of 600 cells for the same strategy, from the same start."""
    chosen = tb.select(tb.Workload.of(tb.Prefix(600)))
    assert chosen.method == "opt0"
    assert chosen.certificate is not None
    assert chosen.certificate <= 1e-3
    assert next(c for c in chosen.candidates if c.method == "residual").note.startswith(
        "not started: opt0 is proven"
    )
