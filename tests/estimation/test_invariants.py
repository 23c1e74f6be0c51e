"""Estimates under invariants: exact sums, variances, coverage, and that null(C) hears the noisy answers only."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from tests.domain.exact_instances import (
    DOMAIN,
    GENERAL,
    NESTED,
    TABLES,
    fixed_sums,
    margin,
    projectors,
    stacked,
)
from tests.each import each, pairwise
from tests.strategy.instances import dense_strategy

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Dense, Identity, Prefix
from tabulae.privacy import Insecure
from tabulae.strategy import Block

EXACT = {**NESTED, **GENERAL}
PEOPLE = np.random.default_rng(3).integers(0, 60, DOMAIN.size)
TABLE = tb.Workload(DOMAIN, [t for t in TABLES if t.name != "crossed"])
NAMES = ["total", "two margins", "recode", "total and a group", "crossed recodes", "ranges of width 2"]
BUDGETS = {"gaussian": tb.ZCDP("1/2"), "laplace": tb.PureDP(1)}


@cache
def _measured(name: str, noise: str, method: str = "auto") -> tb.Measurement:
    """One measurement for all tests that look at the same strategy."""
    strategy = tb.select(TABLE, noise=noise, method=method, invariants=EXACT[name])  # type: ignore[arg-type]
    return tb.measure(PEOPLE, strategy, BUDGETS[noise])


CASES = pairwise(noise=BUDGETS, method=["workload", "identity"], name=NAMES)
ALL = list(itertools.product(BUDGETS, ["auto", "workload", "identity", "opt0"], NAMES))


@each(*CASES, long=ALL)
def test_every_sum_that_is_exact_is_exact_in_floating_point(name: str, method: str, noise: str) -> None:
    _, off = projectors(EXACT[name])
    answers = tb.estimate(_measured(name, noise, method)).answer(TABLE)
    for table in TABLE.tables:
        queries = table.operator(DOMAIN).dense()
        sums = scipy.linalg.null_space((queries @ off).T).T if queries.any() else np.zeros((0, len(queries)))
        assert sums @ (answers[table.name] - queries @ PEOPLE) == pytest.approx(0, abs=1e-6)
        grid = answers[table.name] * 2.0**40
        assert np.array_equal(grid, np.rint(grid))
    for exact in EXACT[name]:
        cells = answers["abc"]
        # no tolerance: the published floats themselves add up to the exact counts
        assert np.array_equal(exact.operator(DOMAIN) @ cells, exact.operator(DOMAIN) @ PEOPLE)


@each(*CASES, long=ALL)
def test_variances_are_those_of_the_projected_mechanism(name: str, method: str, noise: str) -> None:
    m, (_, off) = _measured(name, noise, method), projectors(EXACT[name])
    estimate = tb.estimate(m)
    variance, exact = estimate.variance(TABLE), {t.name: estimate.exact_of(t) for t in TABLE.tables}
    inverse = np.linalg.pinv(dense_strategy(m.strategy) / np.sqrt(m.variance)[:, None], rcond=1e-13)
    for table in TABLE.tables:
        left = table.operator(DOMAIN).dense() @ off
        assert variance[table.name] == pytest.approx(
            np.square(left @ inverse).sum(axis=1), rel=1e-6, abs=1e-9
        )
        assert np.array_equal(exact[table.name], np.abs(left).max(axis=1) < 1e-9)
        assert (variance[table.name][exact[table.name]] == 0).all()


@pytest.mark.parametrize("name", ["two margins", "crossed recodes"])
def test_the_null_space_hears_the_noisy_answers_alone(name: str) -> None:
    """Other exact counts, same noisy answers: estimates move within the row space only."""
    m, (_, off) = _measured(name, "gaussian"), projectors(EXACT[name])
    other = np.random.default_rng(4).integers(0, 60, DOMAIN.size)
    moved = tb.Measurement(
        m.strategy,
        m.values,
        m.laws,
        m.budget,
        m.neighbours,
        rehearsal=True,
        exact=tuple(t.operator(DOMAIN) @ other for t in EXACT[name]),
    )
    one, two = (tb.estimate(k).answer(TABLE)["abc"] for k in (m, moved))
    assert off @ (one - two) == pytest.approx(0, abs=1e-6)
    assert np.abs(one - two).max() > 1


COVERED = [("laplace", 60), *(pytest.param(noise, 400, marks=pytest.mark.long) for noise in BUDGETS)]


@pytest.mark.parametrize(("noise", "runs"), COVERED)
def test_intervals_cover_and_errors_have_the_stated_variance(noise: str, runs: int) -> None:
    """Coverage of every query and chi-squared of all releases; false alarms below 1e-6 in all, both directions."""
    wl = tb.Workload(DOMAIN, [t for t in TABLES if t.name in ("t", "ab", "abc", "groups", "last")])
    method = {"gaussian": "opt0", "laplace": "identity"}[noise]  # what "auto" finds to be best
    strategy = tb.select(wl, noise=noise, method=method, invariants=EXACT["two margins"])  # type: ignore[arg-type]
    truth = {t.name: t.operator(DOMAIN) @ PEOPLE for t in wl.tables}
    estimate = tb.estimate(tb.measure(PEOPLE, strategy, BUDGETS[noise]))
    widths, variance = estimate.half_widths(wl), estimate.variance(wl)
    errors: dict[str, list[np.ndarray]] = {name: [] for name in truth}
    for seed in range(runs):
        m = tb.measure(PEOPLE, strategy, BUDGETS[noise], source=Insecure(seed))
        for name, answer in tb.estimate(m).answer(wl).items():
            errors[name].append(answer - truth[name])
    tests = sum(len(t) for t in truth.values())
    for name, found in errors.items():
        error = np.array(found)
        open_ = variance[name] > 0
        assert (error[:, ~open_] == 0).all()
        covered = (np.abs(error) <= widths[name].values + 1e-9).sum(axis=0)
        assert scipy.stats.binom.cdf(covered, runs, 0.95).min() > 1e-6 / tests
        ratio = np.square(error[:, open_]).mean(axis=0) / variance[name][open_]
        # the mean of squares of kurtosis at most 6: within 6.5 of its standard deviations
        assert np.abs(ratio - 1).max(initial=0) < 6.5 * np.sqrt(5 / runs)
        if open_.any():
            assert abs(ratio.mean() - 1) < 2 / np.sqrt(runs)


METHODS = ["identity", "workload", "residual"]


@each(
    "name, method",
    zip(NAMES, METHODS * 2, strict=True),
    long=itertools.product(NAMES, METHODS),
)
def test_least_squares_under_constraints_is_that_of_dense_algebra(name: str, method: str) -> None:
    strategy = tb.select(TABLE, method=method)
    m = tb.measure(PEOPLE, strategy, tb.ZCDP("1/2"))
    given = [tb.Constraint.equal(t, t.operator(DOMAIN) @ PEOPLE) for t in EXACT[name]]
    estimate = tb.estimate(m, constraints=given)
    exact = stacked(EXACT[name]).astype(float)
    null = scipy.linalg.null_space(exact)
    start = np.linalg.lstsq(exact, exact @ PEOPLE)[0]
    whole = dense_strategy(strategy) / np.sqrt(m.variance)[:, None]
    inverse = null @ np.linalg.pinv(whole @ null, rcond=1e-11)
    cells = start + inverse @ (np.concatenate(m.answers()) / np.sqrt(m.variance) - whole @ start)
    answers, variance = estimate.answer(TABLE), estimate.variance(TABLE)
    for table in TABLE.tables:
        queries = table.operator(DOMAIN).dense()
        assert answers[table.name] == pytest.approx(queries @ cells, abs=1e-5)
        assert variance[table.name] == pytest.approx(np.square(queries @ inverse).sum(axis=1), abs=1e-8)
        sums = fixed_sums(queries, projectors(EXACT[name])[1])
        assert sums @ (answers[table.name] - queries @ PEOPLE) == pytest.approx(0, abs=1e-6)


def test_constraints_lower_the_variance_and_their_cost_is_told() -> None:
    domain = tb.Domain({"x": 9})
    wl = tb.Workload(domain, [tb.Table("cells", {"x": Identity(9)}), tb.Table("all", {}, weight=4)])
    m = tb.measure(np.arange(9), tb.select(wl, method="workload"), tb.ZCDP(1), neighbours="replace")
    group = tb.Table("e", {"x": Dense(np.array([[1] * 3 + [0] * 6]))})
    estimate = tb.estimate(m, constraints=[tb.Constraint.equal(group, 3)])
    assert (estimate.variance(wl)["cells"] <= tb.estimate(m).variance(wl)["cells"] * (1 + 1e-12)).all()
    charged = m.strategy.sensitivity("replace").power
    assert float(estimate.null_space_sensitivity().power / charged) > 8  # type: ignore[attr-defined]


def test_contradictions_and_bounds_are_refused() -> None:
    m = tb.measure(PEOPLE, tb.select(TABLE, method="identity"), tb.ZCDP(1))
    given = [tb.Constraint.equal(margin("ea", "a"), [1, 2, 3]), tb.Constraint.equal(margin("et"), 7)]
    with pytest.raises(InvalidArgument, match="'et' cannot hold together with 'ea'"):
        tb.estimate(m, constraints=given)
    with pytest.raises(InvalidArgument, match='estimate by "non-negative"'):
        tb.estimate(m, constraints=[tb.Constraint.bounds(margin("ea", "a"), at_least=0)])
    with pytest.raises(InvalidArgument, match="cannot keep counts exact"):
        tb.estimate(m, constraints=given, method="local-least-squares")
    with pytest.raises(InvalidArgument, match="is not a constraint"):
        tb.estimate(m, constraints=[margin("ea", "a")])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="no attribute"):
        tb.estimate(m, constraints=[tb.Constraint.equal(tb.Table("z", {"z": Identity(2)}), [1, 2])])


def test_a_measurement_under_invariants_needs_their_values() -> None:
    m = _measured("total", "gaussian")
    with pytest.raises(InvalidArgument, match="needs their exact values"):
        tb.Measurement(m.strategy, m.values, m.laws, m.budget, m.neighbours, rehearsal=True)


def test_own_invariants_and_constraints_meet() -> None:
    """A strategy chosen under one margin, and another margin known besides."""
    strategy = tb.select(TABLE, method="residual", invariants=[margin("ea", "a")])
    m = tb.measure(PEOPLE, strategy, tb.ZCDP("1/2"))
    more = tb.Constraint.equal(margin("eb", "b"), margin("eb", "b").operator(DOMAIN) @ PEOPLE)
    cells = tb.estimate(m, constraints=[more]).answer(TABLE)["abc"].reshape(3, 6, 2)
    people = PEOPLE.reshape(3, 6, 2)
    assert np.array_equal(cells.sum(axis=(1, 2)), people.sum(axis=(1, 2)))
    assert np.array_equal(cells.sum(axis=(0, 2)), people.sum(axis=(0, 2)))


def test_too_many_cells_under_foreign_constraints_is_refused() -> None:
    domain = tb.Domain({"x": 5000})
    wl = tb.Workload(domain, [tb.Table("x", {"x": Prefix(5000)})])
    strategy = tb.Strategy(domain, [Block("cells", Identity(5000))], "gaussian", "identity")
    m = tb.measure(np.zeros(5000, dtype=int), strategy, tb.ZCDP(1))
    with pytest.raises(Unsupported, match="select\\(\\.\\.\\., invariants="):
        tb.estimate(m, constraints=[tb.Constraint.equal(tb.Table("t", {}), 0)]).answer(wl)


def test_exact_tables_that_leave_only_far_whole_solutions_are_refused_in_a_rehearsal() -> None:
    """Nine irregular sums of ten cells: whole solutions lie so far apart that one is nearly told."""
    rng = np.random.default_rng(11)
    domain = tb.Domain({"x": 10})
    exact = [tb.Table("e", {"x": Dense(rng.integers(0, 30, (9, 10)))})]
    wl = tb.Workload(domain, [tb.Table("x", {"x": Identity(10)})])
    strategy = tb.select(wl, method="identity", invariants=exact)
    m = tb.measure(rng.integers(0, 1000, 10), strategy, tb.ZCDP("1/2"))
    with pytest.raises(Unsupported, match="far apart"):
        tb.estimate(m).answer(wl)
