"""Least squares, variances and intervals against dense algebra and against simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.each import each, pairwise
from tests.strategy.instances import BUDGETS, DOMAIN, WORKLOADS, dense, dense_strategy

import tabulae as tb
from tabulae.domain import Term
from tabulae.errors import NotEstimable
from tabulae.strategy.information.routes import information
from tabulae.strategy.strategy import unit_variances

METHODS = ("identity", "workload", "opt0", "kron")
CASES = list(itertools.product(WORKLOADS, BUDGETS, METHODS))
CASES += list(itertools.product(("union", "recodes", "disjunction", "marginals"), BUDGETS, ("union",)))
NAMES, FEW = pairwise(workload=WORKLOADS, noise=BUDGETS, method=METHODS)
FEW += [("recodes", "gaussian", "union"), ("marginals", "laplace", "union")]


@each(NAMES, FEW, long=CASES)
def test_answers_and_variances_equal_dense_least_squares(workload: str, noise: str, method: str) -> None:
    wl = WORKLOADS[workload]
    strategy = tb.select(wl, noise=noise, method=method)  # type: ignore[arg-type]
    x = np.random.default_rng(5).integers(0, 60, wl.domain.size)
    m = tb.measure(x, strategy, BUDGETS[noise])
    a, v, y = dense_strategy(strategy), m.variance, np.concatenate(m.answers())
    p = np.linalg.pinv(a.T @ (a / v[:, None]), rcond=1e-11)
    x_hat = p @ (a.T @ (y / v))
    est = tb.estimate(m)
    answers, variances = est.answer(wl), est.variance(wl)
    for name, w in dense(wl).items():
        assert answers[name] == pytest.approx(w @ x_hat, rel=1e-6, abs=1e-4)
        assert variances[name] == pytest.approx(np.einsum("ij,jk,ik->i", w, p, w), rel=1e-6)


@pytest.mark.parametrize("method", ["workload", "opt0", "kron"])
def test_undetermined_tables_are_refused(method: str) -> None:
    """Measuring coarse ages and races cannot answer single ages, nor sexes."""
    strategy = tb.select(WORKLOADS["recodes"], method=method)
    est = tb.estimate(tb.measure(np.ones(DOMAIN.size, int), strategy, BUDGETS["gaussian"]))
    est.answer(WORKLOADS["recodes"])
    fine = tb.Workload(DOMAIN, [tb.Table("sexes", {"sex": tb.Identity(2)})])
    with pytest.raises(NotEstimable):
        est.answer(fine)
    with pytest.raises(NotEstimable):
        est.variance(fine)


@pytest.mark.parametrize("sizes", [(12, 100, 2, 6, 2, 7, 6), (3, 4, 2, 5)])
@pytest.mark.parametrize("method", ["union", "workload", "kron"])
def test_everybody_but_one_cell_is_not_answered_from_margins(sizes: tuple[int, ...], method: str) -> None:
    """The count misses the measured row space by one part in the number of cells, and is refused all the same."""
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    ages = tb.Table("ages", {"a0": tb.Identity(sizes[0]), "a1": tb.Prefix(sizes[1])})
    others = tb.Table("others", {f"a{len(sizes) - 1}": tb.Identity(sizes[-1])})
    strategy = tb.select(tb.Workload(domain, [ages, others]), method=method)
    est = tb.estimate(tb.measure(np.ones(domain.size, int), strategy, BUDGETS["gaussian"]))
    cell = " AND ".join(f"a{i} = 1" for i in range(len(sizes)))
    with pytest.raises(NotEstimable):
        est.variance(tb.Workload.from_sql(domain, f"SELECT COUNT(*) FROM t WHERE NOT ({cell})"))
    margin = tb.Workload.from_sql(domain, "SELECT COUNT(*) FROM t WHERE NOT (a0 = 1 AND a1 = 1)")
    assert est.variance(margin)["q1"][0] > 0


@each(f"{NAMES}, draws", [(*case, 4_000) for case in FEW], long=[(*case, 20_000) for case in CASES])
def test_intervals_cover_what_they_say(workload: str, noise: str, method: str, draws: int) -> None:
    """Draws of the noise through Z: coverage of each query's interval is at least its level.

    One false alarm in 1e6 over all cases: about 3,000 queries, so each is tested at 3e-10 (6.2 sigma).
    """
    wl = WORKLOADS[workload]
    strategy = tb.select(wl, noise=noise, method=method)  # type: ignore[arg-type]
    m = tb.measure(np.zeros(wl.domain.size, int), strategy, BUDGETS[noise])
    est = tb.estimate(m)
    source = tb.noise.Insecure(3)
    e = np.concatenate(
        [
            np.ldexp(law.sample((b.rows, draws), source).astype(float), -b.exponent)
            for law, b in zip(m.laws, strategy.blocks, strict=True)
        ]
    )
    a, v = dense_strategy(strategy), m.variance
    p = np.linalg.pinv(a.T @ (a / v[:, None]), rcond=1e-11)
    for level in (0.9, 0.95):
        widths = est.half_widths(wl, level)
        slack = 6.2 * np.sqrt(level * (1 - level) / draws)
        for name, w in dense(wl).items():
            error = np.abs((w @ p @ a.T / v) @ e)
            coverage = (error <= widths[name].values[:, None] + 1e-9).mean(axis=1)
            assert (coverage >= level - slack).all(), (name, coverage.min())


@pytest.mark.parametrize("noise", BUDGETS)
def test_intervals_on_fine_grids_are_no_wider_than_need_be(noise: str) -> None:
    """The same simulation bounds coverage from above where the grid is fine: 0.95 within 1.5 points."""
    wl = tb.Workload.of(tb.AllRange(40))
    strategy = tb.select(wl, noise=noise, method="opt0")  # type: ignore[arg-type]
    assert strategy.exponent == 20
    m = tb.measure(np.zeros(40, int), strategy, BUDGETS[noise])
    widths = tb.estimate(m).half_widths(wl, 0.95)["x"]
    assert set(widths.ways) <= {"limit", "exact"}
    e = np.ldexp(
        m.laws[0].sample((strategy.rows, 40_000), tb.noise.Insecure(4)).astype(float), -strategy.exponent
    )
    z = dense(wl)["x"] @ np.linalg.pinv(dense_strategy(strategy))
    coverage = (np.abs(z @ e) <= widths.values[:, None]).mean(axis=1)
    assert coverage.max() <= 0.96


def test_a_wrong_variance_would_be_noticed() -> None:
    """The coverage test has power: intervals 10 % shorter fall short of their level."""
    wl = WORKLOADS["one attribute"]
    strategy = tb.select(wl, method="opt0")
    m = tb.measure(np.zeros(12, int), strategy, BUDGETS["gaussian"])
    widths = tb.estimate(m).half_widths(wl, 0.95)["x"].values * 0.9
    e = np.ldexp(
        m.laws[0].sample((strategy.rows, 20_000), tb.noise.Insecure(3)).astype(float), -strategy.exponent
    )
    coverage = (
        np.abs(dense(wl)["x"] @ np.linalg.pinv(dense_strategy(strategy)) @ e) <= widths[:, None]
    ).mean(axis=1)
    assert (coverage < 0.95 - 6.2 * np.sqrt(0.95 * 0.05 / 20_000)).all()


def test_single_noise_variables_have_the_smallest_interval() -> None:
    """Identity cells: the half-width is the least integer k with P(|e| <= k) >= level."""
    wl = tb.Workload.of(tb.Identity(5))
    for noise, budget in {**BUDGETS, "laplace": tb.PureDP("1/3")}.items():
        m = tb.measure(np.zeros(5, int), tb.select(wl, noise=noise, method="identity"), budget)  # type: ignore[arg-type]
        law, widths = m.laws[0], tb.estimate(m).half_widths(wl, 0.95)["x"]
        assert set(widths.ways) == {"exact"}
        k = round(widths.values[0])
        assert widths.values == pytest.approx(k, rel=1e-6)
        assert law.tail(k) <= 0.05 < law.tail(k - 1)


def test_levels_outside_zero_and_one_are_refused() -> None:
    wl = WORKLOADS["one attribute"]
    est = tb.estimate(tb.measure(np.zeros(12, int), tb.select(wl, method="identity"), BUDGETS["gaussian"]))
    for level in (0, 1, -1, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            est.interval(wl, level=level)


EVERY = ("identity", "workload", "opt0", "kron", "union", "marginals", "residual")
KINDS = ("add-remove", "replace")
SOME = [(w, EVERY[(i + 3 * j) % 7], KINDS[(i + j) % 2]) for i, w in enumerate(WORKLOADS) for j in range(3)]


@each("workload, method, neighbours", SOME, long=itertools.product(WORKLOADS, EVERY, KINDS))
def test_large_counts_are_recovered_but_for_a_sliver_of_the_noise(
    workload: str, method: str, neighbours: str
) -> None:
    """Without noise, estimates of counts of a million a cell are right to a thousandth of a standard error."""
    wl = WORKLOADS[workload]
    strategy = tb.select(wl, method=method, neighbours=neighbours)
    x = np.random.default_rng(3).integers(0, 10**6, wl.domain.size)
    info = information(strategy, unit_variances(strategy, neighbours))
    answers = [np.ldexp((b.query @ x).astype(float), -b.exponent) for b in strategy.blocks]
    for name, matrix in dense(wl).items():
        query = wl[name].operator(wl.domain)
        error = np.abs(info.answer(query, answers) - matrix @ x)
        assert (error <= 1e-3 * np.sqrt(info.variance(query)) + 1e-9).all(), name


def test_a_multiple_of_a_table_has_intervals_as_many_times_as_wide() -> None:
    wl = WORKLOADS["one product"]
    (term,) = wl.tables[0].terms
    three = tb.Workload(wl.domain, [tb.Table.of_terms("three", [Term(3, term.factors)])])
    for method in ("kron", "residual", "workload"):
        m = tb.measure(np.zeros(wl.domain.size, int), tb.select(wl, method=method), BUDGETS["gaussian"])
        est = tb.estimate(m)
        once, thrice = est.half_widths(wl)[wl.tables[0].name].values, est.half_widths(three)["three"].values
        assert thrice == pytest.approx(3 * once, rel=1e-6)
