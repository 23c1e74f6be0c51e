"""Columns written out, against dense matrices; the largest of them, against all of them."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.each import each
from tests.strategy.instances import BUDGETS, WORKLOADS

import tabulae as tb
from tabulae.audit import largest
from tabulae.audit.checks import gaussian_delta, spent, wasteful
from tabulae.audit.largest import (
    block_weight,
    columns,
    counted,
    largest_change,
    norm_of,
    power_sums,
    weighted_power,
)
from tabulae.errors import InvalidArgument
from tabulae.privacy.loss.conversions import analytic_gaussian_variance
from tabulae.strategy import Strategy

CASES = [
    (name, noise, method)
    for name in ("one attribute", "union", "disjunction", "marginals")
    for noise in BUDGETS
    for method in ("identity", "workload", "opt0", "kron", "union")
    if (name, method) != ("one attribute", "union")  # one table is one group
]


def _strategy(name: str, noise: str, method: str) -> Strategy:
    return tb.select(WORKLOADS[name], noise=noise, method=method, restarts=1)  # type: ignore[arg-type]


def _every_cell(strategy: Strategy) -> np.ndarray:
    return np.array(list(itertools.product(*map(range, strategy.domain.shape))))


def _by_hand(strategy: Strategy, neighbours: str) -> Fraction:
    """The largest weighted power from dense matrices, cell by cell or pair by pair, in fractions."""
    p, size = norm_of(strategy), strategy.domain.size
    dense = [block.query.dense().astype(object) for block in strategy.blocks]
    best = Fraction(0)
    for j in range(size):
        total = np.zeros(size, dtype=object)
        for block, matrix in zip(strategy.blocks, dense, strict=True):
            moved = matrix - matrix[:, [j]] if neighbours == "replace" else matrix
            total = total + (np.abs(moved) ** p).sum(axis=0) * block_weight(block, p)
        best = max(best, *total)
        if neighbours != "replace":
            break
    return best


@each(("name", "noise", "method"), CASES[::3], long=CASES)
def test_columns_and_answers_are_those_of_the_matrix(name: str, noise: str, method: str) -> None:
    strategy = _strategy(name, noise, method)
    cells = _every_cell(strategy)
    x = np.random.default_rng(1).integers(0, 4, strategy.domain.size)
    for block in strategy.blocks:
        assert np.array_equal(columns(block.query, cells, strategy.domain.shape), block.query.dense())
        people, once = np.repeat(cells, x, axis=0), np.ones(x.sum(), dtype=np.int64)
        assert np.array_equal(counted(block.query, people, strategy.domain.shape, once), block.query @ x)


@each("neighbours", ["add-remove", "replace"])
@each(("name", "noise", "method"), CASES[1::6], long=CASES[::3])
def test_the_largest_change(name: str, noise: str, method: str, neighbours: str) -> None:
    strategy = _strategy(name, noise, method)
    found = largest_change(strategy, neighbours, np.random.default_rng(2))
    assert found.exhaustive
    assert found.power == _by_hand(strategy, neighbours)
    at = [columns(b.query, np.array(found.cells), strategy.domain.shape) for b in strategy.blocks]
    change = [matrix[:, 0] - (matrix[:, 1] if matrix.shape[1] == 2 else 0) for matrix in at]
    assert weighted_power(strategy, change) == found.power


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_search_finds_a_lower_bound(neighbours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = _strategy("union", "gaussian", "union")
    whole = largest_change(strategy, neighbours, np.random.default_rng(3))
    monkeypatch.setattr(largest, "_MOST_CELLS", 1)
    monkeypatch.setattr(largest, "_MOST_PAIR_CELLS", 1)
    found = largest_change(strategy, neighbours, np.random.default_rng(3))
    assert not found.exhaustive
    assert Fraction(1, 2) * whole.power < found.power <= whole.power


def test_power_sums_past_64_bits() -> None:
    matrix = np.array([[2**40, 1], [-(2**40), -3]])
    assert power_sums(matrix, 2).tolist() == [2**81, 10]
    assert power_sums(matrix, 1).tolist() == [2**41, 4]


def test_the_delta_of_the_analytic_gaussian() -> None:
    """Phi(-1/2) - e Phi(-3/2) = 0.308538 - 2.718282 * 0.066807 = 0.126937, from tables of the normal law."""
    assert float(gaussian_delta(Fraction(1), Fraction(1))) == pytest.approx(
        0.308538 - 2.718282 * 0.066807, abs=2e-6
    )
    for epsilon, delta in ((Fraction(1), Fraction(1, 10**6)), (Fraction(1, 10), Fraction(1, 10**10))):
        variance = analytic_gaussian_variance(epsilon, delta)
        assert gaussian_delta(epsilon, variance) <= delta
        assert gaussian_delta(epsilon, variance * (1 - Fraction(1, 10**12))) > delta


def test_what_a_budget_costs() -> None:
    assert spent(tb.PureDP(2), "laplace", Fraction(3), Fraction(6)) == (Fraction(1, 2), Fraction(2))
    assert wasteful(tb.PureDP(2), "laplace", Fraction(3), Fraction(6))
    assert not wasteful(tb.ZCDP("1/2"), "gaussian", Fraction(3), Fraction(3))
    approx = tb.ApproxDP(1, "1e-6")
    unit = 3 * analytic_gaussian_variance(1, "1e-6")
    assert not wasteful(approx, "gaussian", Fraction(3), unit)
    assert wasteful(approx, "gaussian", Fraction(3), unit * Fraction(101, 100))
    with pytest.raises(InvalidArgument):
        spent(tb.PureDP(1), "gaussian", Fraction(1), Fraction(1))
