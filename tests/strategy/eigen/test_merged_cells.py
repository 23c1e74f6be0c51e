"""Cells that the tables do not tell apart: eigen-queries of merged cells against those of all cells."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategy.eigen.design_cases import error

import tabulae as tb
from tabulae.linalg import Dense
from tabulae.strategy.eigen.design import eigen_design, eigen_queries, eigen_separation, principal_vectors
from tabulae.strategy.eigen.strategies import eigen_queries_of_rows, eigen_strategy, low_rank_design
from tabulae.strategy.eigen.weighting import query_weighting
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse

NOISES = pytest.mark.parametrize("noise", ["gaussian", "laplace"])
SEEDS = st.integers(0, 2**32 - 1)
ROUNDING = 1e-4  # of the error: strategies lie on a grid, and weights stop at a gap of 1e-6


def _drawn(seed: int, rows: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """A 0/1 workload of few distinct columns, and how many cells each stands for."""
    rng = np.random.default_rng(seed)
    distinct = np.unique(rng.integers(0, 2, (rows, int(rng.integers(2, 7)))), axis=1)
    distinct = distinct[:, distinct.any(axis=0)]
    if not distinct.size:
        distinct = np.ones((rows, 1), dtype=int)
    return distinct, rng.integers(1, 8, distinct.shape[1])


DESIGNS = {  # a form of Program 2, and the gap to which it settles its weights
    "program 2": (eigen_design, 1e-5),
    "separation": (partial(eigen_separation, group_size=2), 2e-2),
    "principal vectors": (partial(principal_vectors, vectors=2), 1e-5),
}


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("name", DESIGNS)
@given(seed=SEEDS)
def test_designs_by_sizes_of_classes_are_those_of_all_cells(name, p, seed):
    design, gap = DESIGNS[name]
    W, sizes = _drawn(seed)
    W = W + np.random.default_rng(seed).normal(size=W.shape)  # no eigenvalue twice
    whole = np.repeat(W, sizes, axis=1)
    classes = design(W.T @ W, sizes=sizes, p=p, tolerance=1e-8)
    cells = design(whole.T @ whole, p=p, tolerance=1e-8)
    assert classes.weights.loss == pytest.approx(cells.weights.loss, rel=gap)
    # a class that is completed as one leaves no more error than cells that are completed one by one
    assert error(classes.strategy, W.T @ W, p) <= error(cells.strategy, whole.T @ whole, p) * (1 + 1e-3 + gap)


@NOISES
@given(seed=SEEDS)
def test_eigen_is_never_worse_than_either(noise, seed):
    W, sizes = _drawn(seed)
    whole = np.repeat(W, sizes, axis=1)
    workload, p = tb.Workload.of(Dense(whole)), 2 if noise == "gaussian" else 1
    reached = unit_rmse(eigen_strategy(workload, Settings(noise)), workload, "add-remove") ** 2 * len(W)
    for gram in (W.T @ W, whole.T @ whole):
        assert reached <= error(eigen_design(gram.astype(float), p=p).strategy, gram, p) * (1 + ROUNDING)


@NOISES
@given(seed=SEEDS)
def test_pairs_are_what_is_compared_where_they_are_promised(noise, seed):
    """One cell of each class is the same problem, with the design of merged cells alone."""
    W, sizes = _drawn(seed)
    if W.shape[1] > 1:
        errors = []
        for rows in (W, np.repeat(W, sizes, axis=1)):
            workload = tb.Workload.of(Dense(rows))
            strategy = eigen_strategy(workload, Settings(noise, "replace"))
            errors.append(unit_rmse(strategy, workload, "replace"))
        assert errors[1] <= errors[0] * (1 + 1e-9)


# found among random ones, where the design of all cells errs less; by what factor, measured
LESS = {
    "one attribute": ([[0, 1, 0, 0, 1], [1, 1, 1, 0, 1], [0, 0, 0, 1, 0], [0, 1, 1, 1, 0]], [1, 1, 3, 5, 5], 0.9073),
    "a product": ([[0, 1, 0, 0, 1], [1, 1, 1, 0, 1], [0, 0, 0, 1, 0], [0, 1, 1, 1, 0]], [1, 1, 3, 5, 5], 0.9074),
    "a sum": ([[1, 1, 0, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 1, 0], [1, 0, 1, 1, 1]], [4, 3, 7, 6, 5], 0.9479),
}  # fmt: skip


@pytest.mark.parametrize("name", LESS)
def test_the_better_design_is_taken(name: str) -> None:
    """Laplace noise: the same tables over merged cells have the design of merged cells alone."""
    distinct, sizes, factor = LESS[name]
    errors = []
    for counts in (1, sizes):
        W = np.repeat(np.array(distinct), counts, axis=1)
        domain = tb.Domain({"a": W.shape[1], "b": 1 if name == "one attribute" else 3})
        tables = [tb.Table("t", {"a": Dense(W), "b": tb.Prefix(domain.shape[1])})]
        if name == "a sum":
            tables += [tb.Table("u", {"a": Dense(W[:2])}), tb.Table("v", {"b": tb.Identity(3)})]
        workload = tb.Workload(domain, tables)
        errors.append(tb.select(workload, noise="laplace", method="eigen").candidates[0].rmse)
    assert errors[1] / errors[0] == pytest.approx(factor, abs=2e-3)


def test_rows_of_few_queries_are_those_of_all_cells() -> None:
    W, sizes = _drawn(3)
    W = W + np.random.default_rng(3).normal(size=W.shape)
    classes, values, combine = eigen_queries_of_rows(W, sizes)
    cells, others = eigen_queries(np.repeat(W, sizes, axis=1).T @ np.repeat(W, sizes, axis=1))
    np.testing.assert_allclose(values, others)
    np.testing.assert_allclose(np.abs(np.repeat(classes, sizes, axis=1)), np.abs(cells), atol=1e-9)
    np.testing.assert_allclose(combine @ W, classes)


@NOISES
def test_few_queries_over_many_distinct_cells(noise) -> None:
    """2,500 kinds of cells of uneven number, 12 queries: by rows, and not worse than either."""
    rng = np.random.default_rng(5)
    distinct = np.unique(rng.integers(0, 2, (12, 6000)), axis=1)[:, :2500]
    workload = tb.Workload.of(Dense(np.repeat(distinct, 1 + (np.arange(2500) < 900) * 3, axis=1)))
    settings = Settings(noise)
    found = low_rank_design(workload, settings)
    assert found is not None
    assert found.rows == 12
    p = settings.norm
    both = []
    for sizes in (None, 1 + (np.arange(2500) < 900) * 3):
        queries, values, _ = eigen_queries_of_rows(distinct, sizes)
        both.append(query_weighting(queries, values, p=p).loss)
    assert unit_rmse(found, workload, "add-remove") ** 2 * 12 == pytest.approx(min(both), rel=1e-4)
    assert both[1] != pytest.approx(both[0], rel=1e-3)


def test_no_time_left_leaves_the_design_of_merged_cells() -> None:
    distinct, sizes, _ = LESS["one attribute"]
    workload = tb.Workload.of(Dense(np.repeat(np.array(distinct), sizes, axis=1)))
    late = eigen_strategy(workload, replace(Settings("laplace"), deadline=0.0))
    soon = eigen_strategy(workload, Settings("laplace"))
    errors = [unit_rmse(s, workload, "add-remove") for s in (soon, late)]
    assert errors[0] < errors[1]


def test_a_strategy_of_low_rank_over_many_equal_cells_is_estimable() -> None:
    """7 rows of rank 5 over 2,200 cells: two singular values are rounding, of more than 1e-15 of the largest."""
    distinct = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 1], [0, 0, 1, 1, 1], [0, 1, 1, 0, 1]])
    workload = tb.Workload.of(Dense(np.repeat(distinct, np.array([3, 7, 1, 4, 7]) * 100, axis=1)))
    found = tb.select(workload, noise="laplace", method="eigen-separation")
    assert found.candidates[0].rmse < 3
