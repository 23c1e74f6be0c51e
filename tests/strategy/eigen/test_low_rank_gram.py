"""Few queries over many cells: against the Gram matrix over cells, and least squares by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategy.instances import dense_strategy

import tabulae as tb
from tabulae.errors import InvalidArgument, NotEstimable, Unsupported
from tabulae.linalg import Dense, Partition
from tabulae.strategy.eigen.design import eigen_queries
from tabulae.strategy.eigen.strategies import eigen_queries_of_rows, low_rank_design
from tabulae.strategy.eigen.weighting import query_weighting
from tabulae.strategy.information.explicit import RowsInformation
from tabulae.strategy.information.routes import information
from tabulae.strategy.methods import Settings
from tabulae.strategy.serial import describe_strategy, read_strategy
from tabulae.strategy.strategy import unit_rmse


def _rows(seed: int, m: int, n: int, rank: int) -> np.ndarray:
    """Integer queries (m, n) of a rank."""
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 3, (m, rank)) @ (rng.random((rank, n)) < 0.4).astype(np.int64)


def _workload(seed: int = 1, m: int = 6, n: int = 30, rank: int = 4) -> tb.Workload:
    domain = tb.Domain({"zip": n})
    first = (np.random.default_rng(seed + 1).random((2, n)) < 0.5).astype(np.int64)
    tables = [
        tb.Table("t", {"zip": Dense(_rows(seed, m, n, rank))}),
        tb.Table("u", {"zip": Dense(first)}, weight=3),
    ]
    return tb.Workload(domain, tables)


def _design(workload: tb.Workload, noise: str = "gaussian") -> tb.Strategy:
    found = low_rank_design(workload, Settings(noise))  # type: ignore[arg-type]
    assert found is not None
    return found


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(9, 40), st.integers(1, 6))
def test_combinations_of_rows_are_the_eigenvectors(seed: int, m: int, n: int, rank: int) -> None:
    W = _rows(seed, m, n, rank).astype(float)
    if not W.any():
        with pytest.raises(InvalidArgument, match="zero"):
            eigen_queries_of_rows(W)
        return
    queries, values, combine = eigen_queries_of_rows(W)
    assert len(values) == np.linalg.matrix_rank(W)
    assert np.allclose(queries @ queries.T, np.eye(len(values)), atol=1e-7)
    assert np.allclose(combine @ W, queries)
    assert np.allclose((queries.T * values) @ queries, W.T @ W, atol=1e-8 * values[0])
    assert np.allclose(values, eigen_queries(W.T @ W)[1])


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_loss_is_that_of_program_1_over_cells(noise: str) -> None:
    workload = _workload()
    p = 2 if noise == "gaussian" else 1
    losses = []
    for asked in (workload, workload.merge()[0]):  # the better of both sets of eigen-queries
        W = np.vstack([float(t.weight) * t.operator(asked.domain).dense() for t in asked.tables])
        losses.append(query_weighting(*eigen_queries(W.T @ W), p=p).loss)
    strategy = _design(workload, noise)
    assert strategy.rows == np.linalg.matrix_rank(W) == 6
    assert unit_rmse(strategy, workload, "add-remove") ** 2 * workload.queries == pytest.approx(
        min(losses), rel=1e-5
    )


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_least_squares_over_rows_is_that_of_the_pseudo_inverse(noise: str) -> None:
    workload = _workload()
    strategy, y = _design(workload, noise), np.random.default_rng(0).normal(size=6)
    pinv = np.linalg.pinv(dense_strategy(strategy), rcond=1e-10)
    info = RowsInformation(strategy, (2.0,))
    for table in workload.tables:
        operator = table.operator(workload.domain)
        z = operator.dense() @ pinv
        assert np.allclose(info.answer(operator, [y]), z @ y)
        assert np.allclose(info.variance(operator), 2 * np.square(z).sum(axis=1))
        assert np.allclose(info.profile(operator).power4[0], (z**4).sum(axis=1))
    with pytest.raises(NotEstimable):
        info.variance(tb.Table("cells", {"zip": tb.Identity(30)}).operator(workload.domain))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_sensitivity_is_that_of_the_integer_matrix(noise: str, neighbours: str) -> None:
    strategy = _design(_workload(), noise)
    (block,) = strategy.blocks
    A, p = np.asarray(block.query.dense()).astype(object), strategy.norm
    differ = [A[:, j] for j in range(A.shape[1])]
    if neighbours == "replace":
        differ = [a - b for a in differ for b in differ]
    found = strategy.sensitivity(neighbours)
    assert found.is_exact
    assert found.power * 2 ** (p * block.exponent) == max((abs(d) ** p).sum() for d in differ)


def test_thousands_of_cells_are_answered_over_rows() -> None:
    rng = np.random.default_rng(4)
    W = (rng.random((20, 9000)) < 0.5).astype(np.int64)
    workload = tb.Workload(tb.Domain({"zip": 9000}), [tb.Table("t", {"zip": Dense(W)})])
    strategy = _design(workload)
    assert information(strategy, (1.0,)).route == "rows"
    assert strategy.sensitivity().is_exact
    assert strategy.sensitivity("replace") <= 2 * strategy.sensitivity() * (1 + 1e-9)
    counts = rng.integers(0, 5, 9000)
    measured = tb.measure(counts, strategy, tb.ZCDP(10**12), source=tb.noise.Insecure(1))
    assert np.allclose(tb.estimate(measured).answer(workload)["t"], W @ counts, atol=0.05)


def test_equal_columns_are_one_cell() -> None:
    domain = tb.Domain({"zip": 50_000})
    labels = np.random.default_rng(5).integers(0, 40, 50_000)
    workload = tb.Workload(domain, [tb.Table("regions", {"zip": Partition(labels)}), tb.Table("total", {})])
    strategy = _design(workload)
    assert strategy.rows == 40
    document, arrays = describe_strategy(strategy)
    assert read_strategy(document, arrays, domain) == strategy
    assert max(array.size for array in arrays.values()) == 50_000


def test_what_is_not_of_low_rank_is_left_to_others() -> None:
    assert low_rank_design(tb.Workload.of(tb.AllRange(12)), Settings("gaussian")) is None
    two = tb.Domain({"a": 40, "b": 40})
    assert (
        low_rank_design(tb.Workload(two, [tb.Table("t", {"a": tb.Total(40)})]), Settings("gaussian")) is None
    )
    with pytest.raises(Unsupported, match="real-valued"):
        low_rank_design(tb.Workload.of(Dense(np.full((1, 4), 0.3))), Settings("gaussian"))


@pytest.mark.parametrize("rows", [np.full((2, 2), np.nan), np.ones(3)])
def test_rows_that_are_no_matrix_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(InvalidArgument, match="rows"):
        eigen_queries_of_rows(rows)
