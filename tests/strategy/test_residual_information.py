"""The residual route against dense generalised least squares, and what it refuses."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.strategy.instances import WORKLOADS, dense_strategy

import tabulae as tb
from tabulae.domain.table import Term
from tabulae.errors import NotEstimable
from tabulae.linalg import Centring, Dense, Kron, LinearOperator, MatrixProduct, Partition, Stack, Total
from tabulae.strategy import Block, Profile, nominal_variances
from tabulae.strategy.information.residual import ResidualInformation, structure_of
from tabulae.strategy.information.residual_basis import Basis
from tabulae.strategy.information.routes import information

RNG = np.random.default_rng(20)
DOMAIN = tb.Domain({"a": 4, "b": 5, "c": 3})
BASES: tuple[LinearOperator, ...] = (
    Centring(4),
    MatrixProduct(Dense(RNG.integers(-9, 10, (2, 3))), Partition([0, 1, 1, 2, 0])),
    Dense(RNG.integers(-9, 10, (2, 3))),
)
ALL = [s for k in range(4) for s in itertools.combinations(range(3), k)]
GROUPS = Partition([0, 1, 1, 2, 0])


def _strategy(sets: list[tuple[int, ...]] = ALL, bases: tuple[LinearOperator, ...] = BASES) -> tb.Strategy:
    blocks = []
    for k, s in enumerate(sets):
        factors = [bases[i] if i in s else Total(n) for i, n in enumerate(DOMAIN.shape)]
        blocks.append(Block(f"group {k}", Kron(factors), len(s), Fraction(k + 2, 3)))
    return tb.Strategy(DOMAIN, tuple(blocks), "gaussian", "by hand")


def _variances(strategy: tb.Strategy) -> tuple[float, ...]:
    return tuple(float(b.scale) for b in strategy.blocks)


def _coefficients(strategy: tb.Strategy, matrix: np.ndarray) -> np.ndarray:
    """Z of generalised least squares, by hand: W (A / s)^+ / s."""
    a = dense_strategy(strategy)
    deviation = np.sqrt(np.repeat(_variances(strategy), [b.rows for b in strategy.blocks]))
    return matrix @ np.linalg.pinv(a / deviation[:, None], rcond=1e-12) / deviation


def _statistics(profile: Profile, blocks: int) -> list[np.ndarray]:
    """The profile with a row for each block and a column for each query."""
    out = []
    for part in (profile.power2, profile.power4, profile.power6, profile.largest, profile.count):
        part = part if profile.inverse is None else part[:, profile.inverse]
        full = np.zeros((blocks, part.shape[1]))
        full[list(range(blocks)) if profile.blocks is None else list(profile.blocks)] = part
        out.append(full)
    return out


TABLES = {
    "products": tb.Table("t", {"a": tb.Prefix(4), "b": GROUPS, "c": tb.AllRange(3)}),
    "cells alike": tb.Table("t", {"a": tb.Identity(4), "b": GROUPS}),
    "total": tb.Table("t", {}),
    "totals twice": tb.Table(
        "t", {"c": Stack([Total(3), tb.Identity(3), Total(3)]), "a": Stack([Total(4)] * 2)}
    ),
    "a basis itself": tb.Table("t", {"a": Centring(4)}),
    "one difference": tb.Table("t", {"b": Dense([[1, -1, -1, 0, 1]]), "c": Dense([[1, 1, -2]])}),
    "a disjunction": tb.Table.of_terms(
        "t",
        [
            Term(2, {"a": Dense([[1, 1, 0, 0]]), "c": tb.Identity(3)}),
            Term(-3, {"b": Dense([[1, 0, 0, 0, 1]]), "c": tb.Prefix(3)}),
        ],
    ),
    "three terms": tb.Table.of_terms(
        "t",
        [
            Term(1, {}),
            Term(-1, {"a": Dense([[0, 1, 0, 0]])}),
            Term(1, {"b": Dense([[0, 1, 1, 0, 0]]), "a": Dense([[1, 0, 0, 0]])}),
        ],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_agrees_with_dense_generalised_least_squares(name: str) -> None:
    strategy, operator = _strategy(), TABLES[name].operator(DOMAIN)
    info = information(strategy, _variances(strategy))
    assert info.route == "residual"
    z = _coefficients(strategy, np.asarray(operator.dense(), dtype=float))
    per_row = np.repeat(_variances(strategy), [b.rows for b in strategy.blocks])
    np.testing.assert_allclose(info.variance(operator), (z**2 * per_row).sum(axis=1), rtol=1e-9)
    values = [RNG.normal(size=b.rows) for b in strategy.blocks]
    np.testing.assert_allclose(
        info.answer(operator, values), z @ np.concatenate(values), rtol=1e-9, atol=1e-9
    )
    parts = np.split(z, np.cumsum([b.rows for b in strategy.blocks])[:-1], axis=1)
    by_hand = [np.stack([(np.abs(p) ** k).sum(axis=1) for p in parts]) for k in (2, 4, 6)]
    by_hand.append(np.stack([np.abs(p).max(axis=1) for p in parts]))
    profile = info.profile(operator)
    assert profile.exact
    *found, count = _statistics(profile, len(strategy.blocks))
    for one, other in zip(found, by_hand, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)
    expected = np.stack([(np.abs(p) > 1e-10).sum(axis=1) for p in parts])
    assert (count[by_hand[0] > 1e-15] == expected[by_hand[0] > 1e-15]).all()


def test_a_true_table_is_answered_exactly_by_true_answers() -> None:
    strategy = _strategy()
    x = RNG.integers(0, 50, DOMAIN.size)
    truth = [np.ldexp((b.query @ x).astype(float), -b.exponent) for b in strategy.blocks]
    info = information(strategy, _variances(strategy))
    for table in TABLES.values():
        operator = table.operator(DOMAIN)
        np.testing.assert_allclose(info.answer(operator, truth), operator @ x, rtol=1e-9, atol=1e-8)


def test_the_total_is_the_sum_over_the_tables() -> None:
    strategy = _strategy()
    info = information(strategy, _variances(strategy))
    tables = [
        tb.Table.of_terms(name, table.terms, weight=k + 1) for k, (name, table) in enumerate(TABLES.items())
    ]
    workload = tb.Workload(DOMAIN, tables)
    by_table = sum(float(t.weight) ** 2 * info.variance(t.operator(DOMAIN)).sum() for t in tables)
    assert info.total(workload) == pytest.approx(by_table, rel=1e-9)


def test_queries_alike_are_kept_once_and_only_blocks_that_take_part() -> None:
    domain = tb.Domain({"a": 30, "b": 40, "c": 50})
    workload = tb.Workload.marginals(domain, ways=[0, 1, 2, 3])
    strategy = tb.select(workload, method="residual")
    info = information(strategy, nominal_variances(strategy, tb.ZCDP(1), "add-remove"))
    operator = workload["a*b"].operator(domain)
    profile = info.profile(operator)
    assert profile.power2.shape == (4, 1)
    assert profile.inverse is not None
    assert profile.inverse.shape == (1200,)
    assert profile.blocks == (0, 2, 1, 4)
    variances = np.array(nominal_variances(strategy, tb.ZCDP(1), "add-remove"))
    np.testing.assert_allclose(
        profile.power2.T @ variances[list(profile.blocks)], info.variance(operator)[:1]
    )


def test_large_sums_of_products_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, operator = _strategy(), TABLES["a disjunction"].operator(DOMAIN)
    info = information(strategy, _variances(strategy))
    exact = _statistics(info.profile(operator), len(strategy.blocks))
    monkeypatch.setattr("tabulae.strategy.information.residual._EXPAND", 0)
    bounded = info.profile(operator)
    assert not bounded.exact
    bounds = _statistics(bounded, len(strategy.blocks))
    np.testing.assert_allclose(bounds[0], exact[0], rtol=1e-8, atol=1e-12)
    for one, other in zip(bounds[1:], exact[1:], strict=True):
        assert (one >= other * (1 - 1e-9)).all()


def test_what_is_not_measured_is_refused() -> None:
    strategy = _strategy([s for s in ALL if s != (0, 1)])
    info = information(strategy, _variances(strategy))
    assert info.route == "residual"
    both = tb.Table("t", {"a": tb.Identity(4), "b": GROUPS}).operator(DOMAIN)
    finer = tb.Table("t", {"b": tb.Identity(5)}).operator(DOMAIN)
    for operator in (both, finer):
        for ask in (info.variance, info.profile, lambda op: info.answer(op, [])):
            with pytest.raises(NotEstimable):
                ask(operator)
    # sums of residuals need only what is measured: (a) and (b) apart, and what cancels is not asked
    apart = tb.Table.of_terms(
        "t",
        [Term(1, {"a": Dense([[1, 1, 0, 0]])}), Term(1, {"b": Dense([[1, 0, 0, 0, 1]])})],
    ).operator(DOMAIN)
    cell = {"a": Dense([[1, 1, 0, 0]]), "b": Dense([[1, 0, 0, 0, 1]])}
    other = {"a": Dense([[0, 0, 1, 1]]), "b": Dense([[1, 0, 0, 0, 1]])}
    cancelled = tb.Table.of_terms("t", [Term(1, cell), Term(1, other)]).operator(DOMAIN)
    for operator in (apart, cancelled):
        z = _coefficients(strategy, np.asarray(operator.dense(), dtype=float))
        per_row = np.repeat(_variances(strategy), [b.rows for b in strategy.blocks])
        np.testing.assert_allclose(info.variance(operator), (z**2 * per_row).sum(axis=1), rtol=1e-9)


def test_a_count_of_nearly_everybody_is_not_mistaken_for_everybody() -> None:
    domain = tb.Domain({"a": 2000, "b": 2})
    blocks = (Block("t", Kron([Total(2000), Total(2)])), Block("b", Kron([Total(2000), Centring(2)])))
    strategy = tb.Strategy(domain, blocks, "gaussian", "by hand")
    info = information(strategy, (1.0, 1.0))
    assert info.route == "residual"
    nearly = np.ones((1, 2000), dtype=np.int64)
    nearly[0, 0] = 0
    with pytest.raises(NotEstimable):
        info.variance(tb.Table("t", {"a": Dense(nearly)}).operator(domain))


@pytest.mark.parametrize(
    "blocks",
    [
        [
            Kron([tb.Identity(4), Total(5), Total(3)]),
            Kron([Total(4), Total(5), Total(3)]),
        ],  # the total lies in I
        [Kron([Centring(4), Total(5), Total(3)]), Kron([Dense(np.tri(4)), Total(5), Total(3)])],  # two bases
        [Kron([Centring(4), Total(5), Total(3)])] * 2,  # one set twice
        [Kron([tb.Prefix(4), Total(5), Total(3)]), Kron([Total(4), Centring(5), Total(3)])],
    ],
)
def test_other_structures_take_other_routes(blocks: list[Kron]) -> None:
    strategy = tb.Strategy(DOMAIN, tuple(Block(str(k), b) for k, b in enumerate(blocks)), "gaussian", "")
    assert structure_of(strategy) is None
    assert information(strategy, (1.0,) * len(blocks)).route != "residual"


@pytest.mark.parametrize(
    "operator", [*BASES, MatrixProduct(Centring(2), Partition([0, 1, 0])), Dense([[1, -1, 0]])], ids=str
)
def test_a_basis_inverts_itself(operator: LinearOperator) -> None:
    basis = Basis(operator)
    assert basis.independent
    matrix = np.asarray(operator.dense(), dtype=float)
    total = np.asarray(basis.dense(Total(operator.shape[1])), dtype=float)
    np.testing.assert_allclose(total, np.eye(1 + basis.rows)[:1], atol=1e-12)
    found = basis.dense(operator)
    np.testing.assert_allclose(found[:, :1] + found[:, 1:] @ matrix, matrix, atol=1e-9)
    for gram in (operator.gram(), Total(operator.shape[1]).gram()):
        V = np.asarray(gram.dense(), dtype=float)
        by_hand = np.linalg.pinv(np.vstack([np.ones(operator.shape[1]), matrix]))
        beta, gamma = basis.traces(gram)
        assert beta == pytest.approx(np.trace(by_hand[:, 1:].T @ V @ by_hand[:, 1:]), abs=1e-9)
        assert gamma == pytest.approx(by_hand[:, 0] @ V @ by_hand[:, 0], abs=1e-9)


@pytest.mark.long  # test_simulation.py has more draws of less work
@pytest.mark.parametrize(("name", "budget"), [("union", tb.ZCDP("1/2")), ("disjunction", tb.PureDP(1))])
def test_errors_are_those_of_simulated_releases(name: str, budget: tb.ZCDP | tb.PureDP) -> None:
    """Mean squared error over 400 rehearsals; a right formula fails the test about once in 10^4 seeds.

    Sums of squares of k normal errors vary by sqrt(2/k); answers within a table are correlated, so that k is taken
    as the number of rehearsals (Laplace errors have a kurtosis of 6, which adds a factor of sqrt(2.5)).
    """
    workload, runs = WORKLOADS[name], 400
    noise = "laplace" if isinstance(budget, tb.PureDP) else "gaussian"
    strategy = tb.select(workload, noise=noise, method="residual")
    x = RNG.integers(0, 30, workload.domain.size)
    squares: dict[str, list[float]] = {t.name: [] for t in workload.tables}
    standard: dict[str, list[float]] = {t.name: [] for t in workload.tables}
    for seed in range(runs):
        est = tb.estimate(tb.measure(x, strategy, budget, source=tb.noise.Insecure(seed)))
        variance = est.variance(workload)
        for table, values in est.answer(workload).items():
            error = values - workload[table].operator(workload.domain) @ x
            squares[table].append(float(np.mean(error**2)))
            standard[table].append(float(np.mean(error**2 / variance[table])))
    rmse = strategy.error(workload, budget).tables
    most = 4 * math.sqrt(5 / runs)
    for table, found in squares.items():
        assert np.mean(found) == pytest.approx(rmse[table] ** 2, rel=most), table
        assert np.mean(standard[table]) == pytest.approx(1.0, rel=most), table


def test_an_error_takes_each_table_s_own_attributes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 attributes a pair's table looks at two: 820 tables over 40 attributes would look at 32,800 otherwise."""
    names = [f"a{i}" for i in range(8)]
    domain = tb.Domain(dict.fromkeys(names, 4))
    circular = tb.Dense([[int((j - s) % 4 < w) for j in range(4)] for s in range(4) for w in (1, 2, 3)])
    pairs = list(itertools.combinations(names, 2))
    workload = tb.Workload(domain, [tb.Table("".join(p), dict.fromkeys(p, circular)) for p in pairs])
    strategy = tb.select(workload, method="residual")
    looked: list[int] = []
    original = ResidualInformation._both

    def counted(self: ResidualInformation, axis: int, *args: object, **options: object) -> object:
        looked.append(axis)
        return original(self, axis, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ResidualInformation, "_both", counted)
    strategy.error(workload, tb.ZCDP(1))
    assert looked == [names.index(name) for pair in pairs for name in pair]
