"""The low-rank mechanism: exact factorisations, feasible columns, and errors beside those in print."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.each import each

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Dense
from tabulae.strategy.bounds.dual import svd_bound
from tabulae.strategy.classic.explicit import low_rank, low_rank_strategy, project_columns
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.methods import Settings, fitting
from tabulae.strategy.strategy import unit_rmse

SIGMA = 4.224678889326836  # analytic Gaussian mechanism at (1, 1e-6), sensitivity 1


def prefix(n):
    return np.tril(np.ones((n, n)))


def all_range(n):
    return np.array([[float(i <= k <= j) for k in range(n)] for i in range(n) for j in range(i, n)])


def width_range(n, width=32):
    return np.array([[float(i <= k < i + width) for k in range(n)] for i in range(n - width + 1)])


def normal(k, n, seed=0):
    return np.random.default_rng([k, n, seed]).standard_normal((k, n))


def column_norm(A, p):
    return (np.abs(A) ** p).sum(axis=0).max() ** (1 / p)


WORKLOADS = {
    "prefix": prefix(10),
    "ranges": all_range(10),
    "windows": width_range(12, 5),
    "few queries": normal(3, 12),
    "one query": np.array([[1.0, 2.0, 0.0, -1.0]]),
    "identity": np.eye(5),
    "weights": np.diag([1.0, 10.0, 100.0]),
    "one cell": np.array([[2.0]]),
}


@given(arrays(np.float64, (4, 3), elements=st.floats(-3, 3)), st.sampled_from([1, 2]))
def test_projection_is_the_nearest_feasible_point(matrix, p):
    """Feasible, and no feasible point is nearer: <M - P, Y - P> <= 0 for all feasible Y."""
    projected = project_columns(matrix, p)
    assert column_norm(projected, p) <= 1 + 1e-12
    step = matrix - projected
    size = np.abs(step)
    support = size.max(axis=0) if p == 1 else np.sqrt(np.square(size).sum(axis=0))  # the largest of <step, Y>
    np.testing.assert_array_less(support - (step * projected).sum(axis=0), 1e-9)


def test_projection_agrees_with_a_convex_solver():
    matrix = normal(5, 3)
    for p in (1, 2):
        nearest = cp.Variable(matrix.shape)
        cp.Problem(
            cp.Minimize(cp.sum_squares(nearest - matrix)), [cp.norm(nearest[:, j], p) <= 1 for j in range(3)]
        ).solve(solver="CLARABEL")
        np.testing.assert_allclose(project_columns(matrix, p), nearest.value, atol=1e-5)


@each("p", [1, 2])
@each("name", ["few queries", "windows", "weights", "one cell"], long=WORKLOADS)
def test_a_factorisation_is_feasible_and_answers_the_workload_exactly(name, p):
    W = WORKLOADS[name]
    found = low_rank(W.T @ W, p=p, restarts=1)
    L = found.queries
    assert column_norm(L, p) == pytest.approx(1.0, abs=1e-12)
    assert len(L) <= np.ceil((1.2 if p == 2 else 3) * np.linalg.matrix_rank(W))
    answers = W @ np.linalg.pinv(L, rcond=1e-10)
    np.testing.assert_allclose(answers @ L, W, atol=1e-8 * np.abs(W).max())
    assert found.loss == pytest.approx(np.square(answers).sum(), rel=1e-6)
    assert found.loss >= svd_bound(W.T @ W) * (1 - 1e-9)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(
    "name",
    ["prefix", "ranges", *(pytest.param(n, marks=pytest.mark.long) for n in ("windows", "few queries"))],
)
def test_the_outer_residual_falls_to_its_tolerance(name, p):
    """Not at each iteration (multipliers overshoot), but from each twenty to the next, until the search ends."""
    W = WORKLOADS[name]
    residuals = np.array(low_rank(W.T @ W, p=p).residuals)
    assert residuals[-1] <= 1e-5 < residuals[:-1].min()
    largest = [residuals[i : i + 20].max() for i in range(0, len(residuals), 20)]
    assert np.all(np.diff(largest) < 0)


@pytest.mark.parametrize(
    ("k", "n"), [(2, 12), *(pytest.param(k, n, marks=pytest.mark.long) for k, n in ((3, 40), (5, 64)))]
)
def test_few_queries_cost_less_than_cells_or_the_queries_themselves(k, n):
    W = normal(k, n)
    for p in (1, 2):
        loss = low_rank(W.T @ W, p=p).loss
        assert loss < np.square(W).sum()
        assert loss < column_norm(W, p) ** 2 * k


@pytest.mark.parametrize("name", WORKLOADS)
def test_under_gaussian_noise_the_optimum_is_reached(name):
    V = WORKLOADS[name].T @ WORKLOADS[name]
    assert low_rank(V, p=2).loss == pytest.approx(opt0_gaussian(V, tolerance=1e-5).loss, rel=2e-3)


@pytest.mark.parametrize(
    ("W", "printed", "ours"),
    [
        (all_range(64), 7.02, 5.65),
        pytest.param(prefix(64), 7.67, 5.45, marks=pytest.mark.long),
        pytest.param(width_range(64), 9.44, 5.6, marks=pytest.mark.long),
    ],
)
def test_hdmm_table_4_is_an_upper_limit(W, printed, ours):
    """Laplace noise, epsilon = 1: the LRM column at n = 64; the printed values are those of a worse local optimum."""
    rmse = np.sqrt(2 * low_rank(W.T @ W, p=1).loss / len(W))
    assert rmse <= ours < printed


@pytest.mark.parametrize(("W", "coa"), [(all_range(64), 9.73), (prefix(64), 8.87), (width_range(64), 8.79)])
def test_hdmm_table_5_is_an_upper_limit(W, coa):
    """(1, 1e-6), Gaussian noise: no LRM in print; the COA column, to its digits."""
    assert SIGMA * np.sqrt(low_rank(W.T @ W, p=2).loss / len(W)) <= coa + 0.005


def predicates(k, n, seed=0):
    """k random 0/1 queries over n cells."""
    rows = (np.random.default_rng([k, n, seed]).random((k, n)) < 0.5).astype(np.int64)
    return tb.Workload.of(Dense(rows[rows.any(axis=1)]))


@pytest.mark.long
@each("restarts", [1, None])
def test_predicates_are_answered_by_mixtures_of_them(restarts):
    """12 over 194 different cells, at unit noise: 6.11 from the one start with more rows, 8.42 from p-Identity."""
    workload = predicates(12, 200)
    strategy = low_rank_strategy(workload, Settings("laplace", restarts=restarts))
    assert unit_rmse(strategy, workload, "add-remove") < 6.0


@pytest.mark.parametrize(
    "workload",
    [predicates(3, 10), pytest.param(tb.Workload.of(tb.WidthRange(12, 6)), marks=pytest.mark.long)],
    ids=["predicates", "windows"],
)
def test_auto_never_errs_more_than_low_rank(workload):
    auto, alone = (tb.select(workload, noise="laplace", method=m) for m in ("auto", "low-rank"))
    assert unit_rmse(auto, workload, "add-remove") <= unit_rmse(alone, workload, "add-remove") * (1 + 1e-9)


@pytest.mark.long
@each("workload", [predicates(12, 200), predicates(8, 400), tb.Workload.of(tb.WidthRange(160, 80))])
def test_auto_never_errs_more_than_low_rank_over_many_cells(workload):
    auto, alone = (tb.select(workload, noise="laplace", method=m) for m in ("auto", "low-rank"))
    assert auto.method == "low-rank"
    assert unit_rmse(auto, workload, "add-remove") <= unit_rmse(alone, workload, "add-remove") * (1 + 1e-9)


@each(
    "workload, tried",
    [
        (predicates(12, 200), True),
        (predicates(15, 512), True),
        (predicates(20, 1000), True),
        (tb.Workload.of(tb.WidthRange(160, 80)), True),
        (tb.Workload.of(tb.AllRange(16)), False),  # every combination of cells is asked for
        (tb.Workload.of(tb.WidthRange(512, 20)), False),  # 493 queries of 512 cells: minutes
        (predicates(14, 3000), False),  # few queries, but matrices of 2,700 cells
        (tb.Workload.of(tb.Total(100_000)), False),
    ],
)
def test_auto_tries_what_leaves_cells_open_and_takes_seconds(workload, tried):
    assert ("low-rank" in fitting("auto", workload, Settings("laplace"))) == tried
    assert "low-rank" not in fitting("auto", workload, Settings("gaussian"))


def test_the_seed_decides():
    V = prefix(5).T @ prefix(5)
    first, again, other = (low_rank(V, p=1, seed=seed, restarts=1) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.queries, again.queries)
    assert first.residuals == again.residuals
    assert not np.array_equal(first.queries, other.queries)


def test_the_workload_enters_through_its_gram_matrix_and_its_scale_does_not_matter():
    W = prefix(5)
    rotated = np.linalg.qr(normal(8, 8))[0][:, :5] @ W
    found, turned, scaled = (
        low_rank(V, p=1, restarts=1) for V in (W.T @ W, rotated.T @ rotated, 1e6 * W.T @ W)
    )
    assert turned.loss == pytest.approx(found.loss, rel=5e-2)
    assert scaled.loss == pytest.approx(1e6 * found.loss, rel=1e-6)


@each("p", [1, 2])
@each("name", WORKLOADS)
def test_when_time_is_up_what_is_there_is_a_factorisation(name, p):
    W = WORKLOADS[name]
    found = low_rank(W.T @ W, p=p, deadline=0.0)
    np.testing.assert_allclose(
        W @ np.linalg.pinv(found.queries, rcond=1e-10) @ found.queries, W, atol=1e-7 * np.abs(W).max()
    )
    assert np.isfinite(found.loss)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_as_a_strategy_of_one_attribute_and_of_several(noise):
    settings = Settings(noise, restarts=1)
    windows, W = tb.Workload.of(tb.WidthRange(12, 5)), WORKLOADS["windows"]
    found = low_rank(W.T @ W, p=settings.norm, restarts=1).loss
    strategy = low_rank_strategy(windows, settings)
    assert unit_rmse(strategy, windows, "add-remove") ** 2 * len(W) == pytest.approx(found, rel=1e-3)
    two = tb.Workload.marginals(tb.Domain({"a": range(3), "b": range(4)}), ways=[1, 2])
    strategy = low_rank_strategy(two, settings)
    assert strategy.method == "low-rank"
    assert unit_rmse(strategy, two, "add-remove") <= np.sqrt(12 * 3 / 19) * (1 + 1e-3)  # cells


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (np.zeros((3, 3)), "gram is zero"),
        (np.ones((2, 3)), "shape"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "missing"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "not positive semi-definite"),
    ],
)
def test_what_is_no_gram_matrix(gram, message):
    with pytest.raises(InvalidArgument, match=message):
        low_rank(gram)


def test_bad_norms_and_a_million_cells_are_refused():
    with pytest.raises(InvalidArgument, match="p is 3"):
        low_rank(np.eye(2), p=3)
    wide = tb.Workload.marginals(tb.Domain({"a": range(1000), "b": range(1000)}), ways=[2])
    with pytest.raises(Unsupported, match="1,000,000 cells"):
        low_rank_strategy(wide, Settings("laplace"))


def test_without_time_no_factorisation_is_begun(monkeypatch):
    def begun(*arguments):
        raise AssertionError

    monkeypatch.setattr("tabulae.strategy.classic.explicit._factorised", begun)
    V = prefix(12).T @ prefix(12)
    assert low_rank(V, deadline=0.0).penalty == 0
