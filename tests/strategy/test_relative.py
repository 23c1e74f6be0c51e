"""The workload scaled for relative error: unit rows, the same cells and tables, and what selecting for it gains."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

import tabulae as tb
from tabulae.domain.table import Term
from tabulae.errors import Unsupported
from tabulae.linalg import RowScaled
from tabulae.strategy.eigen.design import eigen_design
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.objective import relative_workload
from tabulae.strategy.strategy import unit_rmse

DOMAIN = tb.Domain({"a": 4, "b": 3, "c": 2})
SOME_OF_B = tb.Dense([[1, 1, 0]])
FRACTIONS = tb.Dense(np.random.default_rng(3).normal(size=(5, 4)))
FACTORS = {
    "a": [tb.Identity(4), tb.Prefix(4), tb.AllRange(4), tb.WidthRange(4, 2), tb.Total(4), FRACTIONS],
    "b": [
        tb.Identity(3),
        SOME_OF_B,
        tb.Stack([tb.Total(3), tb.Identity(3)]),
        tb.Permuted(tb.Prefix(3), [2, 0, 1]),
    ],
    "c": [tb.Total(2), tb.Identity(2), tb.AllRange(2)],
}


def matrix(workload: tb.Workload) -> np.ndarray:
    rows = [float(table.weight) * table.operator(workload.domain).dense() for table in workload.tables]
    return np.concatenate(rows)


def scaled_by_hand(workload: tb.Workload) -> np.ndarray:
    """Unit rows times the weights that were given."""
    rows = matrix(workload)
    weights = np.concatenate([np.full(t.rows(workload.domain), float(t.weight)) for t in workload.tables])
    norms = np.linalg.norm(rows, axis=1)
    return rows * (weights / np.where(norms > 0, norms, 1.0))[:, None]


@st.composite
def workloads(draw: st.DrawFn) -> tb.Workload:
    def table(k: int) -> tb.Table:
        names = draw(st.lists(st.sampled_from("abc"), unique=True))
        factors = {name: draw(st.sampled_from(FACTORS[name])) for name in names}
        return tb.Table(f"t{k}", factors, weight=draw(st.sampled_from([1, "1/3", 7])))

    return tb.Workload(DOMAIN, [table(k) for k in range(draw(st.integers(1, 4)))])


@given(workloads())
def test_every_query_has_norm_one_times_its_weight(workload: tb.Workload) -> None:
    scaled = relative_workload(workload)
    np.testing.assert_allclose(matrix(scaled), scaled_by_hand(workload), atol=1e-13)
    assert [t.name for t in scaled.tables] == [t.name for t in workload.tables]
    assert scaled.queries == workload.queries


@given(workloads())
def test_cells_merge_as_before_and_merging_commutes(workload: tb.Workload) -> None:
    scaled = relative_workload(workload)
    merged, merges = scaled.merge()
    assert merges == workload.merge()[1]
    lifted = tb.Kron(merges)
    np.testing.assert_allclose((lifted.T @ matrix(merged).T).T, matrix(scaled), atol=1e-13)


@given(workloads())
def test_gram_terms_add_up_to_the_gram_of_the_scaled_rows(workload: tb.Workload) -> None:
    rows = scaled_by_hand(workload)
    total = np.zeros((DOMAIN.size, DOMAIN.size))
    for coefficient, grams in relative_workload(workload).gram_terms():
        total += coefficient * tb.Kron(grams).dense()
    np.testing.assert_allclose(total, rows.T @ rows, atol=1e-10)


@pytest.mark.parametrize("coefficient", [3, -2])
@pytest.mark.parametrize("operator", [tb.Identity(4), tb.Prefix(4), tb.Dense([[2, 2, 0, 0], [0, 1, 0, 3]])])
def test_a_coefficient_is_scaled_away_and_its_sign_kept(
    operator: tb.LinearOperator, coefficient: int
) -> None:
    term = Term(coefficient, {"a": operator})
    scaled = matrix(relative_workload(tb.Workload(tb.Domain({"a": 4}), [tb.Table.of_terms("t", [term])])))
    rows = np.sign(coefficient) * np.asarray(operator.dense(), dtype=float)
    np.testing.assert_allclose(scaled, rows / np.linalg.norm(rows, axis=1)[:, None], rtol=1e-6)


def test_a_marginal_stays_a_marginal() -> None:
    workload = tb.Workload.marginals(DOMAIN, ways=[1, 2])
    for table, scaled in zip(workload.tables, relative_workload(workload).tables, strict=True):
        assert scaled.terms == table.terms
        summed = DOMAIN.size // table.rows(DOMAIN)
        assert isinstance(scaled.weight, Fraction)
        assert float(scaled.weight) == pytest.approx(summed**-0.5, rel=1e-14)


def test_sums_of_products() -> None:
    """Disjunctions, differences, groups beside them, and a sum whose rows differ along one attribute."""
    workload = tb.Workload.from_sql(
        DOMAIN,
        "SELECT a, COUNT(*) FROM t WHERE b < 2 OR c = 1 GROUP BY a; SELECT COUNT(*) FROM t WHERE a = 0 OR b = 1;"
        "SELECT a, c, COUNT(*) FROM t WHERE NOT (b = 1 AND a = 2) GROUP BY a, c",
    )
    uneven = tb.Table.of_terms(
        "uneven",
        [
            Term(1, {"a": tb.Prefix(4), "b": tb.Total(3)}),
            Term(-1, {"a": tb.Prefix(4), "b": tb.Dense([[1, 0, 0]])}),
        ],
        weight=3,
    )
    for given_workload in (tb.Workload(DOMAIN, workload.tables[:2]), tb.Workload(DOMAIN, [uneven])):
        assert all(len(table.terms) > 1 for table in given_workload.tables)
        scaled = relative_workload(given_workload)
        np.testing.assert_allclose(matrix(scaled), scaled_by_hand(given_workload), atol=1e-13)


def test_sums_whose_norms_are_no_product_are_refused() -> None:
    mixed = tb.Table.of_terms(
        "mixed",
        [
            Term(1, {"a": tb.Prefix(4), "b": tb.Identity(3)}),
            Term(-1, {"a": tb.Identity(4), "b": tb.Prefix(3)}),
        ],
    )
    with pytest.raises(Unsupported, match=r"'mixed'.*tables of their own"):
        relative_workload(tb.Workload(DOMAIN, [mixed]))


def test_queries_of_no_cell_stay_zero() -> None:
    workload = tb.Workload.of(tb.Dense([[0, 0], [3, 4]]))
    np.testing.assert_allclose(matrix(relative_workload(workload)), [[0, 0], [0.6, 0.8]])


@each("method", ["opt0", "residual", "hdmm", "identity"])
@each("operator", [tb.AllRange(16), tb.Prefix(16), tb.Permuted(tb.AllRange(8), [3, 1, 0, 2, 7, 5, 4, 6])])
def test_methods_take_the_scaled_workload(method: str, operator: tb.LinearOperator) -> None:
    """And the strategy chosen for it has less scaled error than the one chosen for total error."""
    workload = tb.Workload.of(operator)
    scaled = relative_workload(workload)
    chosen, other = tb.select(scaled, method=method), tb.select(workload, method=method)
    assert unit_rmse(chosen, scaled, "add-remove") <= unit_rmse(other, scaled, "add-remove") * (1 + 1e-3)
    assert unit_rmse(other, workload, "add-remove") <= unit_rmse(chosen, workload, "add-remove") * (1 + 1e-3)


def test_all_ranges_gain_in_mean_relative_error_over_equal_cells() -> None:
    """With equal cells the answer of a range is its length: mean of sd / length, in closed form."""
    n = 64
    rows = tb.AllRange(n).dense().astype(float)
    lengths = rows.sum(axis=1)

    def relative(workload: tb.Workload) -> float:
        (block,) = tb.select(workload, method="opt0").blocks
        A = block.query.dense() * 2.0**-block.exponent
        covariance = np.linalg.inv(A.T @ A) * np.square(A).sum(axis=0).max()
        sd = np.sqrt(np.einsum("qi,ij,qj->q", rows, covariance, rows))
        return float((sd / lengths).mean())

    workload = tb.Workload.of(tb.AllRange(n))
    by_length = relative(tb.Workload.of(RowScaled(tb.AllRange(n), 1 / lengths)))
    assert relative(relative_workload(workload)) < 0.96 * relative(workload)
    assert relative(relative_workload(workload)) < 0.97 * by_length


def test_scaled_cumulative_counts_are_no_workload_for_eigenvectors() -> None:
    """The eigen-design of the unscaled workload serves the scaled one better than its own; the optimum far better."""
    workload = tb.Workload.of(tb.Prefix(256))
    scaled = matrix(relative_workload(workload))
    target = scaled.T @ scaled

    def loss(A: np.ndarray) -> float:
        return float(np.vdot(np.linalg.inv(A.T @ A), target) * np.square(A).sum(axis=0).max())

    own, unscaled = (
        loss(eigen_design(target).strategy),
        loss(eigen_design(matrix(workload).T @ matrix(workload)).strategy),
    )
    assert own > unscaled > 1.2 * loss(opt0_gaussian(target).strategy)
