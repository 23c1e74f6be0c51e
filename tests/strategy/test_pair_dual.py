"""The optimum under replace-one neighbours against a convex solver, and between its own bound and its own loss."""

from __future__ import annotations

import itertools
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.each import each
from tests.strategy.instances import BUDGETS, WORKLOADS, dense, dense_strategy

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.strategy.bounds.dual import opt0_pairs, pair_svd_bound
from tabulae.strategy.hdmm.opt0 import opt0_gaussian

workloads = st.integers(2, 7).flatmap(
    lambda n: st.integers(1, 8).flatmap(lambda m: arrays(np.float64, (m, n), elements=st.integers(-3, 3)))
)


def largest_pair(A: np.ndarray) -> float:
    return float(np.square(A[:, :, None] - A[:, None, :]).sum(axis=0).max())


def loss(W: np.ndarray, A: np.ndarray) -> float:
    """Squared error of W from A at unit noise and unit distance of pairs."""
    return largest_pair(A) * float(np.square(W @ np.linalg.pinv(A)).sum())


def by_cvxpy(W: np.ndarray) -> float:
    """min tr[W X^-1 W'] over all X whose pairs are at most 1 apart; the direction 1 is left to the solver.

    On the complement Q of 1: ``||W Q Y^-1/2||_F^2`` with the pair constraints on Q Y Q'.
    """
    n = W.shape[1]
    basis = np.linalg.svd(np.ones((1, n)))[2][1:].T
    Y = cp.Variable((n - 1, n - 1), PSD=True)
    X = basis @ Y @ basis.T
    pairs = [X[j, j] + X[k, k] - 2 * X[j, k] <= 1 for j in range(n) for k in range(j)]
    return float(cp.Problem(cp.Minimize(cp.matrix_frac((W @ basis).T, Y)), pairs).solve(solver="CLARABEL"))


RNG = np.random.default_rng(5)
SMALL = {
    "ranges": np.asarray(tb.AllRange(7).dense(), float),
    "prefix": np.asarray(tb.Prefix(9).dense(), float),
    "cells": np.eye(6),
    "cells and total": np.vstack([np.eye(5), np.full((1, 5), 3.0)]),
    "windows": np.asarray(tb.WidthRange(8, 3).dense(), float),
    "predicates": RNG.integers(0, 2, (5, 12)).astype(float),
    "contrasts": RNG.normal(size=(9, 6)),
}


@pytest.mark.parametrize("name", SMALL)
def test_equals_the_convex_solver(name: str) -> None:
    W = SMALL[name]
    best = opt0_pairs(W.T @ W, tolerance=1e-6)
    assert best.loss == pytest.approx(by_cvxpy(W), rel=2e-5)
    assert best.gap <= 2e-5
    assert loss(W, best.strategy) == pytest.approx(best.loss, rel=1e-6)


@given(workloads)
def test_its_bound_its_loss_and_what_it_claims(W: np.ndarray) -> None:
    gram = W.T @ W
    if not gram.any():
        with pytest.raises(InvalidArgument):
            opt0_pairs(gram)
        return
    if not np.any(np.ptp(W, axis=1)):
        with pytest.raises(Unsupported, match="replace"):
            opt0_pairs(gram)
        return
    best = opt0_pairs(gram)
    assert largest_pair(best.strategy) <= 1 + 1e-9
    assert loss(W, best.strategy) == pytest.approx(best.loss, rel=1e-4)
    assert pair_svd_bound(gram) <= best.lower * (1 + 1e-3) <= best.loss * (1 + 1e-3)
    assert best.gap <= 1e-3
    n = W.shape[1]
    for A in (np.eye(n), np.vstack([np.eye(n), W, 100 * np.ones((1, n))])):
        assert best.lower <= loss(W, A) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["ranges", "prefix", "windows", "predicates"])
def test_the_column_optimum_wastes_error_under_replace(name: str) -> None:
    """Also where the total is made free of charge, as it is in the pair optimum."""
    W = SMALL[name]
    columns = opt0_gaussian(W.T @ W, tolerance=1e-6).strategy
    free = np.vstack([columns, np.full((1, W.shape[1]), 1e3)])
    best = opt0_pairs(W.T @ W, tolerance=1e-6).loss
    assert best * 1.05**2 < loss(W, free) < loss(W, columns)


def test_cells_that_no_query_counts_take_part() -> None:
    """One counted cell beside three uncounted ones: a record may move between them, at distance 1."""
    best = opt0_pairs(np.diag([1.0, 0.0, 0.0, 0.0]), tolerance=1e-6)
    assert best.loss == pytest.approx(1.0, rel=1e-5)
    assert largest_pair(best.strategy) <= 1 + 1e-9


def test_two_cells_cost_one_noisy_count() -> None:
    """x_1 is measured, x_2 is the public total less x_1: squared error 1 each."""
    assert opt0_pairs(np.eye(2), tolerance=1e-6).loss == pytest.approx(2.0, rel=1e-5)


def test_a_heavy_total_costs_nothing() -> None:
    light = opt0_pairs(np.eye(5), tolerance=1e-6)
    heavy = opt0_pairs(np.eye(5) + 1e4 * np.ones((5, 5)), tolerance=1e-6)
    assert heavy.lower == pytest.approx(light.lower, rel=1e-6)
    assert heavy.loss == pytest.approx(light.loss, rel=1e-2)


@pytest.mark.parametrize("bad", [{"tolerance": 0.0}, {"tolerance": -1.0}])
def test_bad_tolerance_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        opt0_pairs(np.eye(3), **bad)


def test_time_limit_gives_a_strategy_with_its_true_gap() -> None:
    i = np.arange(40)
    gram = 40.0 - np.maximum(i[:, None], i)
    hurried = opt0_pairs(gram, tolerance=1e-9, deadline=0.0)
    assert hurried.evaluations == 1
    assert 0.0 < hurried.gap < np.inf
    assert hurried.lower <= opt0_pairs(gram).lower


SELECTED = [(name, ("kron", "opt0")[i % 2]) for i, name in enumerate(WORKLOADS)]


@each("workload, method", SELECTED, long=itertools.product(WORKLOADS, ["opt0", "kron"]))
def test_selected_under_replace(workload: str, method: str) -> None:
    """Error by dense algebra, sensitivity exact by enumeration, certificate against the bound."""
    wl, budget = WORKLOADS[workload], BUDGETS["gaussian"]
    strategy = tb.select(wl, method=method, neighbours="replace")
    A = dense_strategy(strategy)
    sensitivity = strategy.sensitivity("replace")
    assert sensitivity.is_exact
    assert isinstance(sensitivity.power, Fraction)
    assert float(sensitivity.power) == pytest.approx(largest_pair(A), rel=1e-12)
    W = np.vstack([float(t.weight) * dense(wl)[t.name] for t in wl.tables])
    error = strategy.error(wl, budget, neighbours="replace")
    assert error.tse == pytest.approx(loss(W, A), rel=1e-5)
    assert strategy.certificate is not None
    bound = tb.lower_bound(wl, budget=budget, kind="dual", neighbours="replace")
    assert error.rmse >= bound
    if method == "opt0":
        assert strategy.certificate <= 2e-5
        assert error.rmse <= bound * (1 + 1e-3)
        other = tb.select(wl, method="opt0").error(wl, budget, neighbours="replace").rmse
        assert error.rmse < other


def test_one_varying_attribute_is_measured_over_a_domain_that_cannot_be_listed() -> None:
    domain = tb.Domain({"a": 12, "b": 500, "c": 1000, "d": 900})
    wl = tb.Workload(domain, [tb.Table("ranges", {"a": tb.AllRange(12)}), tb.Table("total", {})])
    alone = tb.select(tb.Workload.of(tb.AllRange(12)), method="opt0", neighbours="replace")
    for method in ("opt0", "kron"):
        strategy = tb.select(wl, method=method, neighbours="replace")
        assert strategy.sensitivity("replace").is_exact
        rmse = strategy.error(wl, BUDGETS["gaussian"], neighbours="replace").tables["ranges"]
        one = alone.error(tb.Workload.of(tb.AllRange(12)), BUDGETS["gaussian"], neighbours="replace").rmse
        assert rmse == pytest.approx(one, rel=1e-4)
