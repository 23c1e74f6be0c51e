"""The closed form for generalised marginals against one dense eigendecomposition."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tabulae as tb
from tabulae.errors import NotEstimable
from tabulae.linalg import Dense, Identity, Kron, LinearOperator, MatrixProduct, Partition, Prefix, Sum, Total
from tabulae.strategy import Block, Strategy
from tabulae.strategy.information import lattice as lattice_module
from tabulae.strategy.information.explicit import DenseInformation
from tabulae.strategy.information.lattice import LatticeInformation, TableTypes, is_lattice
from tabulae.strategy.information.routes import information

DOMAIN = tb.Domain({"a": 3, "b": 4, "c": 2})
RNG = np.random.default_rng(7)
A = Dense(RNG.integers(0, 9, (5, 3)))
MERGE = Partition(np.array([0, 1, 1, 2]))
B = MatrixProduct(Dense(RNG.integers(0, 9, (4, 3))), MERGE)
C = Identity(2)


def strategy(*rows: tuple[LinearOperator, ...]) -> Strategy:
    exponents, scales = (3, 1, 0), (Fraction(2), Fraction(1, 3), Fraction(1))
    blocks = [Block(str(i), Kron(r), exponents[i], scales[i]) for i, r in enumerate(rows)]
    return Strategy(DOMAIN, tuple(blocks), "laplace", "test")


MEASURED = strategy((A, B, Total(2)), (A, Total(4), C), (Total(3), Total(4), C))
VARIANCES = (2.0, 0.3, 1.0)
FIRST_OF_B = Partition(np.array([0, -1, -1, -1]), 1)
QUERIES = [
    Kron([Prefix(3), MatrixProduct(Prefix(3), MERGE), Total(2)]),
    Kron([Identity(3), Total(4), Identity(2)]),
    Kron([Total(3), Total(4), Total(2)]),
    Kron([Dense([[2, 2, 2], [1, 0, 1]]), Total(4), Total(2)]),
    Sum([(1, Kron([Identity(3), Total(4), Total(2)])), (-2, Kron([Identity(3), FIRST_OF_B, Total(2)]))]),
]


@pytest.mark.parametrize("classes", [[1, 0, 2], [2, 0, 1], [1, 0, 0], [2, 1, 0]])
def test_groups_in_any_order_are_answered_in_that_order(classes: list[int]) -> None:
    """A partition may number its classes in any order, and may be nothing but another order of the cells."""
    groups = Partition(np.array(classes))
    tables = [tb.Table("groups", {"a": groups}), tb.Table("total", {}), tb.Table("c", {"c": C})]
    workload = tb.Workload(DOMAIN, tables)
    measured = tb.select(workload, method="workload")
    assert information(measured, (1.0, 1.0, 1.0)).route == "lattice"
    x = RNG.integers(0, 1000, DOMAIN.size)
    info = information(measured, (1.0, 1.0, 1.0))
    answers = [(b.query @ x).astype(float) for b in measured.blocks]
    for table in tables:
        query = table.operator(DOMAIN)
        np.testing.assert_allclose(info.answer(query, answers), query @ x, rtol=1e-9)


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_agrees_with_the_dense_route(query):
    lattice, full = LatticeInformation(MEASURED, VARIANCES), DenseInformation(MEASURED, VARIANCES)
    assert information(MEASURED, VARIANCES).route == "lattice"
    np.testing.assert_allclose(lattice.variance(query), full.variance(query), rtol=1e-9)
    answers = [RNG.normal(size=b.rows) for b in MEASURED.blocks]
    np.testing.assert_allclose(lattice.answer(query, answers), full.answer(query, answers), rtol=1e-8)


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_profiles_agree_with_the_dense_route_at_one_budget_after_another(query):
    """What is known of a query's rows serves every budget; what depends on the noise does not."""
    for variances in (VARIANCES, VARIANCES[::-1]):
        lattice, full = LatticeInformation(MEASURED, variances), DenseInformation(MEASURED, variances)
        got, wanted = lattice.profile(query), full.profile(query)
        assert got.exact
        every = slice(None) if got.inverse is None else got.inverse
        for name in ("power2", "power4", "power6", "largest"):
            np.testing.assert_allclose(
                getattr(got, name)[:, every], getattr(wanted, name), rtol=1e-7, atol=1e-12
            )


@pytest.mark.parametrize("together", [10, 2**18])
@pytest.mark.parametrize("listed", [0, 2**24])
@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_profiles_under_several_noises_are_those_of_each(query, listed, together, monkeypatch):
    """However many are worked out at once; where coefficients are listed, and where they are bounded."""
    monkeypatch.setattr(lattice_module, "_LISTED", listed)
    monkeypatch.setattr(lattice_module, "_TOGETHER", together)
    noises = [VARIANCES, VARIANCES[::-1], tuple(100 * v + k for k, v in enumerate(VARIANCES))]
    under = [LatticeInformation(MEASURED, variances) for variances in noises]
    made, at_once = TableTypes._profiles, []
    monkeypatch.setattr(
        TableTypes, "_profiles", lambda self, masks, w, i: at_once.append(len(w)) or made(self, masks, w, i)
    )
    LatticeInformation.profiles(under, query)
    assert at_once == (
        [1, 1, 1] if together == 10 else [3]
    )  # statistics of many kinds of rows are large, too
    for got, one in zip(LatticeInformation.profiles(under, query), under, strict=True):
        wanted = one.profile(query)
        assert got.exact == wanted.exact == (listed > 0)
        for name in ("power2", "power4", "power6", "largest", "count"):
            np.testing.assert_allclose(getattr(got, name), getattr(wanted, name), rtol=1e-12)


@pytest.mark.parametrize(
    "query",
    [
        Kron([Identity(3), Identity(4), Total(2)]),  # cells that B merges
        Kron([Total(3), B, C]),  # attributes that no block crosses together
    ],
)
def test_what_is_not_measured_is_refused(query):
    with pytest.raises(NotEstimable):
        LatticeInformation(MEASURED, VARIANCES).variance(query)


@pytest.mark.parametrize(
    "other",
    [
        strategy((A, B, Total(2)), (Identity(3), Total(4), C)),  # two matrices for one attribute
        strategy((A, Dense(np.array([[1, 0, 0, 0]])), Total(2)), (A, Total(4), C)),  # cells not determined
    ],
)
def test_other_strategies_are_not_mistaken_for_marginals(other):
    assert not is_lattice(other)
