"""The weighted-kron route and its sensitivity, against dense least squares and columns written out."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.strategy.instances import dense_strategy

import tabulae as tb
from tabulae.domain.table import Term
from tabulae.errors import InvalidArgument, NotEstimable, Unsupported
from tabulae.linalg import (
    Centring,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Sparse,
    Stack,
    Total,
)
from tabulae.linalg.kron import exact_product, weigh_rows, weighted_rows
from tabulae.strategy import Block
from tabulae.strategy.information.routes import information
from tabulae.strategy.serial import describe_strategy, read_strategy

RNG = np.random.default_rng(7)
GROUPS = Partition([0, 1, 1, 2, 0])
EDGES = np.vstack([[3, 3, 3], RNG.integers(-9, 10, (2, 3))])
DOMAIN = tb.Domain({"a": 4, "b": 5, "c": 3})


def _uniform(n: int) -> LinearOperator:
    return Stack([Total(n), Centring(n)])


def _weights(alike: list[int], shape: list[int], seed: int, zeros: bool) -> np.ndarray:
    """Random integer weights; along the axes ``alike`` all but the first are equal."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 60, [2 if i in alike else m for i, m in enumerate(shape)])
    if zeros:
        weights[rng.random(weights.shape) < 0.3] = 0
        weights.flat[0] = 5
    for i in alike:
        weights = np.take(weights, np.minimum(np.arange(shape[i]), 1), axis=i)
    return weights


FORMS: dict[str, tuple[list[LinearOperator], list[int]]] = {
    "all three": ([_uniform(4), MatrixProduct(Dense(EDGES), GROUPS), Identity(3)], [0]),
    "lifted": ([Dense(RNG.integers(-5, 6, (4, 4))), MatrixProduct(_uniform(3), GROUPS), Total(3)], [1]),
    "plain": ([Identity(4), Total(5), Dense(np.array([[1, 1, 1], [1, 1, -2], [1, -1, 0]]))], []),
}


def _strategy(name: str, seed: int = 1, *, zeros: bool = False, noise: str = "gaussian") -> tb.Strategy:
    factors, alike = FORMS[name]
    query = weigh_rows(_weights(alike, [f.shape[0] for f in factors], seed, zeros), factors)
    return tb.Strategy(DOMAIN, (Block("eigen", query, 3),), noise, "eigen")  # type: ignore[arg-type]


TABLES = {
    "merged": tb.Table("merged", {"b": GROUPS, "a": tb.Identity(4)}, weight=2),
    "ranges": tb.Table("ranges", {"a": tb.AllRange(4)}),
    "total": tb.Table("total", {}),
    "cells": tb.Table("cells", {"a": tb.Prefix(4), "c": tb.Identity(3)}),
    "sum": tb.Table.of_terms(
        "sum", [Term(1, {"a": tb.Identity(4)}), Term(-2, {"a": tb.Prefix(4), "b": Dense([[1, 0, 0, 0, 1]])})]
    ),
}


def _coefficients(strategy: tb.Strategy, operator: LinearOperator) -> np.ndarray | None:
    """``W A^+`` by hand; None for queries outside the row space."""
    a, w = dense_strategy(strategy), np.asarray(operator.dense(), float)
    z = w @ np.linalg.pinv(a, rcond=1e-11)
    return z if np.allclose(z @ a, w, atol=1e-8) else None


@each("zeros", [False, True])
@each("form", FORMS)
@each("name", TABLES)
def test_least_squares_is_that_of_the_pseudo_inverse(name: str, form: str, zeros: bool) -> None:
    strategy, table = _strategy(form, zeros=zeros), TABLES[name]
    info, operator = information(strategy, (2.5,)), table.operator(DOMAIN)
    assert info.route == "weighted-kron"
    z = _coefficients(strategy, operator)
    if z is None:
        for ask in (info.variance, info.profile):
            with pytest.raises(NotEstimable):
                ask(operator)
        with pytest.raises(NotEstimable):
            info.total(tb.Workload(DOMAIN, [table]))
        return
    y = np.random.default_rng(0).normal(size=strategy.rows)
    assert np.allclose(info.answer(operator, [y]), z @ y)
    assert np.allclose(info.variance(operator), 2.5 * np.square(z).sum(axis=1))
    total = 2.5 * float(table.weight) ** 2 * np.square(z).sum()
    assert info.total(tb.Workload(DOMAIN, [table])) == pytest.approx(total)
    profile = info.profile(operator)
    assert profile.exact  # type: ignore[union-attr]
    for k, power in ((2, "power2"), (4, "power4"), (6, "power6")):
        assert np.allclose(getattr(profile, power)[0], (z**k).sum(axis=1)), power
    assert np.allclose(profile.largest[0], np.abs(z).max(axis=1))  # type: ignore[union-attr]
    nonzero = (np.abs(z) > 1e-9 * np.abs(z).max(axis=1, keepdims=True)).sum(axis=1)
    assert profile.count[0].tolist() == nonzero.tolist()  # type: ignore[union-attr]


def test_both_outcomes_are_tested() -> None:
    """Some tables are determined by the rows left, some are not."""
    found = [
        _coefficients(_strategy(form, zeros=zeros), t.operator(DOMAIN)) is None
        for form in FORMS
        for t in TABLES.values()
        for zeros in (False, True)
    ]
    assert 5 <= sum(found) <= len(found) - 5


def test_a_long_sum_has_bounds_of_its_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabulae.strategy.information.weighted_kron._EXPAND", 0)
    information.cache_clear()
    strategy, operator = _strategy("all three"), TABLES["sum"].operator(DOMAIN)
    z = _coefficients(strategy, operator)
    assert z is not None
    profile = information(strategy, (1.0,)).profile(operator)
    assert not profile.exact  # type: ignore[union-attr]
    assert np.allclose(profile.power2[0], np.square(z).sum(axis=1))  # type: ignore[union-attr]
    for k, power in ((4, "power4"), (6, "power6")):
        assert (getattr(profile, power)[0] >= (z**k).sum(axis=1) * (1 - 1e-12)).all()
    assert (profile.largest[0] >= np.abs(z).max(axis=1) * (1 - 1e-12)).all()  # type: ignore[union-attr]
    assert (profile.count[0] >= (np.abs(z) > 1e-9).sum(axis=1)).all()  # type: ignore[union-attr]


def _brute(matrix: np.ndarray, p: int, neighbours: str) -> int:
    columns = [[int(v) for v in column] for column in matrix.T]
    if neighbours == "add-remove":
        return max(sum(abs(v) ** p for v in column) for column in columns)
    pairs = itertools.combinations(columns, 2)
    return max(sum(abs(u - v) ** p for u, v in zip(one, other, strict=True)) for one, other in pairs)


@given(st.sampled_from(sorted(FORMS)), st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 2]))
def test_sensitivity_is_that_of_the_columns(form: str, seed: int, zeros: bool, p: int) -> None:
    query = _strategy(form, seed, zeros=zeros).blocks[0].query
    matrix = np.asarray(query.dense())
    for neighbours in ("add-remove", "replace"):
        found = query.sensitivity(p, neighbours)
        assert found.is_exact
        assert found.power == _brute(matrix, p, neighbours)
    assert query.column_norms(p).tolist() == (np.abs(matrix) ** p).sum(axis=0).tolist()


@pytest.mark.parametrize("p", [1, 2])
def test_weights_that_differ_among_the_rest_do_not_hide_a_column(p: int) -> None:
    """``[1'; n I - J]`` stands for all its cells only where the n rows have one weight."""
    weights = np.array([1, 1, 1, 1, 50])[:, None]
    query = weigh_rows(weights, [_uniform(4), Total(3)])
    for neighbours in ("add-remove", "replace"):
        assert query.sensitivity(p, neighbours).power == _brute(np.asarray(query.dense()), p, neighbours)
    strategy = tb.Strategy(tb.Domain({"a": 4, "c": 3}), (Block("eigen", query),), "gaussian", "eigen")
    assert information(strategy, (1.0,)).route == "dense"  # and least squares is no longer a product


@pytest.mark.parametrize("p", [1, 2])
def test_bounds_where_pairs_are_too_many(p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_WHOLE_PAIRS", "_WRITTEN_ENTRIES"):
        monkeypatch.setattr(f"tabulae.linalg.sensitivity.{limit}", 0)
    query = _strategy("all three", 3).blocks[0].query
    exact, found = _brute(np.asarray(query.dense()), p, "replace"), query.sensitivity(p, "replace")
    assert not found.is_exact
    assert exact <= found.power <= exact * (2 if p == 1 else 1 + 1e-8)
    for limit in ("_FLOAT_PAIRS", "_FLOAT_WORK"):
        monkeypatch.setattr(f"tabulae.linalg.sensitivity.{limit}", 0)
    assert exact <= query.sensitivity(p, "replace").power <= exact * (4 if p == 1 else 1 + 2e-4)
    monkeypatch.setattr("tabulae.linalg.sensitivity._SINGLE_WORK", 0)
    assert exact <= query.sensitivity(p, "replace").power <= exact * (4 if p == 1 else 1 + 1e-6)
    monkeypatch.setattr("tabulae.linalg.sensitivity.farthest", lambda *_: None)
    assert exact <= query.sensitivity(p, "replace").power <= 4 * exact


def test_long_integers_are_exact() -> None:
    rng = np.random.default_rng(2)
    for bits in (4, 20, 31):
        matrices = [rng.integers(-(2**bits), 2**bits, (3, 4)), rng.integers(-(2**bits), 2**bits, (2, 5))]
        vector = np.array([int(v) ** 3 for v in rng.integers(0, 2**31, 20)], dtype=object)
        whole = np.kron(matrices[0].astype(object), matrices[1].astype(object)) @ vector
        assert exact_product(matrices, vector).tolist() == whole.tolist()


def test_what_is_not_of_this_form_is_not_taken_for_it() -> None:
    assert weighted_rows(Kron([Identity(2), Identity(3)])) is None
    assert weighted_rows(MatrixProduct(Dense([[1, 1]]), Kron([Identity(2)]))) is None
    huge = weigh_rows(np.array([1, 1]), [Dense([[2**32, 1], [1, 1]])])
    assert weighted_rows(huge) is None  # whose squares would not fit; columns are then listed
    assert huge.sensitivity(2).power == 2**64 + 1
    with pytest.raises(InvalidArgument, match="do not fit"):
        weigh_rows(np.ones((2, 2), dtype=int), [Identity(2)])
    singular = weigh_rows(np.array([1, 2]), [Dense([[1, 1], [1, 1]])])
    strategy = tb.Strategy(tb.Domain({"a": 2}), (Block("eigen", singular),), "gaussian", "eigen")
    assert information(strategy, (1.0,)).route == "dense"


def test_an_explicit_table_is_refused_with_what_to_do() -> None:
    table = MatrixProduct(Dense(np.ones((1, 60), dtype=int)), Kron([Identity(4), Identity(5), Identity(3)]))
    with pytest.raises(Unsupported, match="residual"):
        information(_strategy("all three"), (1.0,)).variance(table)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_strategy_is_read_back_as_it_was_written(noise: str) -> None:
    strategy = _strategy("all three", 5, zeros=True, noise=noise)
    document, arrays = describe_strategy(strategy)
    again = read_strategy(document, arrays, DOMAIN)
    assert again == strategy
    assert again.sensitivity().power == strategy.sensitivity().power != Fraction(0)
    assert information(again, (1.0,)).route == "weighted-kron"


def test_negative_weights_count_by_their_size() -> None:
    query = weigh_rows(np.array([-3, 2]), [Dense([[1, 1], [1, -1]])])
    assert query.sensitivity(1).power == 5
    assert query.sensitivity(1, neighbours="replace").power == 4
    assert query.sensitivity(2).power == 13


def test_a_row_that_is_weighed_twice_counts_twice() -> None:
    twice = MatrixProduct(Sparse(scipy.sparse.csr_array([[1, 0], [2, 0]])), Kron([Identity(2)]))
    assert weighted_rows(twice) is None
    assert (twice.sensitivity(1).power, twice.sensitivity(2).power) == (3, 5)


def test_cells_that_a_merge_leaves_out() -> None:
    merge = Partition([0, -1, 1, 1])
    left = MatrixProduct(Dense([[1, 2], [3, -5]]), merge)
    assert left.columns(np.arange(4)).tolist() == [[1, 0, 2, 2], [3, 0, -5, -5]]
    query = weigh_rows(np.array([[2], [7]]), [left, Total(1)])
    dense = query.dense()
    assert query.sensitivity(2).power == np.square(dense).sum(axis=0).max()
    distances = [np.square(a - b).sum() for a in dense.T for b in dense.T]
    assert query.sensitivity(2, neighbours="replace").power == max(distances)


def test_sensitivity_of_entries_that_fill_64_bits() -> None:
    rng = np.random.default_rng(1)
    A = scipy.linalg.hadamard(256) * (2**18 + rng.integers(0, 2**10, (256, 256)))
    w = rng.integers(2**15, 2**16, 256)
    whole = ((w[:, None] * A).astype(object) ** 2).sum(axis=0)
    assert weigh_rows(w, [Dense(A)]).sensitivity(2).power == whole.max()
    large = weigh_rows(np.ones(4, int), [Dense(np.full((4, 2), 2**31 - 1))])
    assert large.sensitivity(2).power == 4 * (2**31 - 1) ** 2


@given(
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(1, 9),
)
def test_pairs_in_floating_point_are_all_pairs(seed: int, sides: list[tuple[int, int]], chunk: int) -> None:
    """One, two and three attributes, of unequal rows and cells, some pairs at a time: within 1e-9 above the truth."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 50, [m for m, _ in sides])
    matrices = [rng.integers(-9, 10, side) for side in sides]
    if not weights.any():
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabulae.linalg.sensitivity._WHOLE_PAIRS", 0)
        patch.setattr("tabulae.linalg.farthest_pair._LISTED", chunk)
        found = weigh_rows(weights, [Dense(m) for m in matrices]).sensitivity(2, "replace")
    dense = reduce(np.kron, matrices) * weights.ravel()[:, None]
    largest = int(np.square(dense).sum(axis=0).max())
    exact = _brute(dense, 2, "replace") if dense.shape[1] > 1 else 0
    assert exact <= found.power <= exact + largest * Fraction(2, 10**9)


@pytest.mark.parametrize("weights", [[[30, 1], [1, 30]], [[1, 30], [30, 1]]])
def test_the_farthest_pair_may_lie_across(weights: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells (0, 0) and (1, 1), or (0, 1) and (1, 0): one pair of each attribute, in two orders."""
    monkeypatch.setattr("tabulae.linalg.sensitivity._WHOLE_PAIRS", 0)
    eyes = [Dense(np.eye(2, dtype=int))] * 2
    found = weigh_rows(np.array(weights), eyes).sensitivity(2, "replace").power
    assert 1800 <= found <= 1800 + Fraction(1, 10**5)


@pytest.mark.long
def test_more_than_2_28_pairs_are_compared_where_that_is_quick() -> None:
    """16,800 cells: four times the largest squared norm is over 1.5 times the bound, which holds for drawn pairs."""
    rng = np.random.default_rng(4)
    sides = (150, 112)
    orthogonal = [np.linalg.qr(rng.normal(size=(n, n)))[0] for n in sides]
    factors = [Dense(np.rint(Q * 2**10).astype(int)) for Q in orthogonal]
    weights = np.rint(1000 / (1 + np.add.outer(*(np.arange(n) / 8 for n in sides)))).astype(int)
    query = weigh_rows(weights, factors)
    found = query.sensitivity(2, "replace").power
    view = weighted_rows(query)
    assert view is not None
    assert found < 0.65 * 4 * view.without_constants().largest_norm(2)
    some = query.columns(rng.integers(0, math.prod(sides), 200)).astype(float)
    gram = some.T @ some
    assert (gram.diagonal()[:, None] + gram.diagonal() - 2 * gram).max() <= float(found)


def test_a_bound_in_floating_point_is_above_the_truth() -> None:
    """More pairs than are compared in whole numbers: the bound has room for rounding, and says that it is one."""
    rng = np.random.default_rng(5)
    factors = [Dense(rng.integers(-1000, 1000, (50, 50))) for _ in range(2)]
    query = weigh_rows(rng.integers(1, 1000, (50, 50)), factors)
    found = query.sensitivity(2, neighbours="replace")
    dense = query.dense().astype(float)
    gram = dense.T @ dense
    largest = (gram.diagonal()[:, None] + gram.diagonal() - 2 * gram).max()
    assert not found.is_exact
    assert largest + 0.9e-9 * gram.diagonal().max() <= float(found.power) <= largest * (1 + 1e-8)
