"""The Fourier strategy against dense algebra, and against closed forms for marginals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.each import each, pairwise
from tests.strategy.instances import BUDGETS, WORKLOADS, dense, dense_strategy

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.strategy.classic.cubes import fourier_basis, fourier_strategy
from tabulae.strategy.information.routes import information
from tabulae.strategy.methods import Settings
from tabulae.strategy.strategy import unit_rmse, unit_variances

NEIGHBOURS = ("add-remove", "replace")


def _fourier(workload: tb.Workload, noise: str) -> tb.Strategy:
    return fourier_strategy(workload, Settings(noise))  # type: ignore[arg-type]


def _power_by_hand(strategy: tb.Strategy, neighbours: str) -> Fraction:
    """The sensitivity's power, over all columns or pairs of columns of the matrices written out."""
    p = 2 if strategy.noise == "gaussian" else 1
    largest = Fraction(0)
    columns = [
        (np.asarray(b.query.dense(), dtype=np.int64), Fraction(2) ** (p * b.exponent))
        for b in strategy.blocks
    ]
    cells = range(strategy.domain.size)
    pairs = [(j, None) for j in cells] if neighbours == "add-remove" else itertools.combinations(cells, 2)
    for j, k in pairs:
        moved = [(a[:, j] - (0 if k is None else a[:, k]), grid) for a, grid in columns]
        largest = max(
            largest, sum((Fraction(int((abs(d) ** p).sum())) / grid for d, grid in moved), Fraction(0))
        )
    return largest


def _binary(d: int, ways: list[int]) -> tb.Workload:
    return tb.Workload.marginals(tb.Domain({f"a{i}": 2 for i in range(d)}), ways)


@given(n=st.integers(1, 70))
@settings(deadline=None)
def test_rows_are_orthogonal_and_weigh_alike(n: int) -> None:
    basis = fourier_basis(n)
    assert basis @ basis.T == pytest.approx(n * np.eye(n), abs=1e-9)
    assert (basis[0] == 1).all()
    assert np.square(basis).sum(axis=0) == pytest.approx(np.full(n, n))
    assert (np.abs(basis) == 1).all() == (n in (1, 2, 4, 8, 16, 32, 64))


@each(
    *pairwise(name=WORKLOADS, noise=BUDGETS, neighbours=NEIGHBOURS),
    long=itertools.product(WORKLOADS, BUDGETS, NEIGHBOURS),
)
def test_error_and_sensitivity_are_those_of_the_dense_matrices(
    name: str, noise: str, neighbours: str
) -> None:
    workload = WORKLOADS[name]
    strategy = _fourier(workload, noise)
    found, by_hand = strategy.sensitivity(neighbours), _power_by_hand(strategy, neighbours)
    assert found.power == by_hand if found.is_exact else by_hand <= found.power <= 2 * by_hand
    assert found.is_exact or neighbours == "replace"
    inverse = np.linalg.pinv(dense_strategy(strategy), rcond=1e-9)
    total = sum(
        float(t.weight) ** 2 * np.square(dense(workload)[t.name] @ inverse).sum() for t in workload.tables
    )
    expected = float(found) * math.sqrt(total / workload.queries)
    assert unit_rmse(strategy, workload, neighbours) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (3, 0), (4, 1), (5, 2), (6, 3), (12, 3)])
def test_marginals_of_bits_have_the_error_of_the_closed_form(d: int, k: int) -> None:
    """All k-way marginals need ``c = sum_{j <= k} C(d, j)`` coefficients of entries +-1; a cell is a sum of ``2^k`` of
    them over ``2^k``: its variance is ``2^-k c`` (Gaussian) or ``2^-k c^2`` (Laplace) in units of the noise.
    """
    workload = _binary(d, [k])
    coefficients = sum(math.comb(d, j) for j in range(k + 1))
    for noise, sensitivity in (("gaussian", math.sqrt(coefficients)), ("laplace", coefficients)):
        strategy = _fourier(workload, noise)
        assert strategy.rows == coefficients
        assert strategy.sensitivity().is_exact
        assert float(strategy.sensitivity()) == pytest.approx(sensitivity, rel=1e-15)
        expected = sensitivity * 2 ** (-k / 2)
        assert unit_rmse(strategy, workload, "add-remove") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sizes", [(4, 8), (5, 3, 4), (100, 99, 42, 16, 15, 9, 2), (101, 101, 6, 51)])
def test_marginals_under_gaussian_noise_cost_as_many_coefficients(sizes: tuple[int, ...]) -> None:
    """With c orthonormal coefficients of equal noise each marginal's total variance is c, whatever its size."""
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    workload = tb.Workload.marginals(domain, ways=[0, 1, 2])
    coefficients = 1 + sum(n - 1 for n in sizes)
    coefficients += sum((m - 1) * (n - 1) for m, n in itertools.combinations(sizes, 2))
    strategy = _fourier(workload, "gaussian")
    assert strategy.rows == coefficients
    expected = math.sqrt(coefficients * len(workload.tables) / workload.queries)
    assert unit_rmse(strategy, workload, "add-remove") == pytest.approx(
        expected, rel=1e-3
    )  # the grid's share


def test_only_coefficients_that_a_table_needs_are_measured() -> None:
    domain = tb.Domain({"a": 6, "b": 4, "c": 5, "d": 7})
    groups = tb.Table("groups", {"a": tb.Dense([[1, 1, 1, 0, 0, 0]]), "b": tb.Prefix(4)})
    strategy = _fourier(tb.Workload(domain, [groups, tb.Table("c", {"c": tb.Identity(5)})]), "gaussian")
    assert {b.name: b.rows for b in strategy.blocks} == {"total": 1, "a": 1, "b": 3, "c": 4, "a*b": 3}


def test_one_attribute_takes_the_whole_basis() -> None:
    for n in (8, 12):
        (block,) = _fourier(tb.Workload.of(tb.AllRange(n)), "laplace").blocks
        assert block.query.dense() * 2.0**-block.exponent == pytest.approx(fourier_basis(n), abs=1e-3)


@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("name", ["one attribute", "union", "disjunction"])
def test_estimates_are_dense_least_squares_of_what_was_measured(name: str, noise: str) -> None:
    workload = WORKLOADS[name]
    strategy = _fourier(workload, noise)
    counts = np.random.default_rng(3).integers(0, 60, workload.domain.size)
    measured = tb.measure(counts, strategy, BUDGETS[noise], source=tb.noise.Insecure(4))
    assert measured.rehearsal
    matrix, answers = dense_strategy(strategy), np.concatenate(measured.answers())
    assert answers == pytest.approx(matrix @ counts, abs=40 * np.sqrt(measured.variance.max()))
    cells = np.linalg.lstsq(matrix, answers, rcond=1e-9)[0]  # rows are independent: no weights needed
    estimate = tb.estimate(measured)
    inverse = np.linalg.pinv(matrix, rcond=1e-9)
    for table, values in estimate.answer(workload).items():
        assert values == pytest.approx(dense(workload)[table] @ cells, rel=1e-6, abs=1e-5)
        variance = np.square(dense(workload)[table] @ inverse) @ measured.variance
        assert estimate.variance(workload)[table] == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize("noise", BUDGETS)
def test_a_domain_beyond_all_lists_takes_the_closed_form(noise: str) -> None:
    domain = tb.Domain(
        {f"a{i}": n for i, n in enumerate((100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2))}
    )
    workload = tb.Workload.marginals(domain, ways=[0, 1, 2, 3])
    strategy = _fourier(workload, noise)
    assert len(strategy.blocks) == 470
    assert strategy.sensitivity().is_exact
    assert information(strategy, unit_variances(strategy, "add-remove")).route == "residual"
    if noise == "gaussian":
        expected = math.sqrt(strategy.rows * 470 / workload.queries)
        assert unit_rmse(strategy, workload, "add-remove") == pytest.approx(expected, rel=1e-3)


def test_what_is_too_large_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(Unsupported, match=r"'x' has 5,000: choose \"residual\""):
        _fourier(tb.Workload.of(tb.Prefix(5000)), "gaussian")
    many = tb.Domain({f"a{i}": 3 for i in range(12)})
    with pytest.raises(Unsupported, match="crosses 12 attributes"):
        _fourier(tb.Workload.marginals(many, ways=[12]), "gaussian")
    wide = tb.Domain({f"a{i}": 2 for i in range(16)})
    with pytest.raises(Unsupported, match="cross fewer attributes together"):
        _fourier(tb.Workload.marginals(wide, ways=[16]), "gaussian")
