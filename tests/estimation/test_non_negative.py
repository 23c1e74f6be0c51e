"""Non-negative least squares against an active-set oracle, its optimality conditions, and what its intervals cover."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls
from tests.each import each
from tests.estimation.overlapping import measured
from tests.strategy.instances import BUDGETS, DOMAIN, WORKLOADS, dense, dense_strategy

import tabulae as tb
from tabulae.errors import NotEstimable, Unsupported
from tabulae.estimation import cone
from tabulae.estimation.cone import GAP

METHODS = ("identity", "workload", "opt0", "kron")
CASES = [(w, noise, METHODS[(i + j) % 4]) for i, w in enumerate(WORKLOADS) for j, noise in enumerate(BUDGETS)]


def _whitened(m: tb.Measurement) -> tuple[np.ndarray, np.ndarray]:
    deviation = np.sqrt(m.variance)
    return dense_strategy(m.strategy) / deviation[:, None], np.concatenate(m.answers()) / deviation


@each("workload, noise, method", CASES, long=itertools.product(WORKLOADS, BUDGETS, METHODS))
def test_answers_equal_an_active_set_solution(workload: str, noise: str, method: str) -> None:
    """Within the share of a standard error that the gap proves, and no answer below zero."""
    wl, m = WORKLOADS[workload], measured(workload, noise, method, people=1.0)
    est = tb.estimate(m, method="non-negative")
    oracle, _ = nnls(*_whitened(m), maxiter=10_000)
    answers, variances = est.answer(wl), est.variance(wl)
    gap = est.solution.gap  # type: ignore[attr-defined]
    assert (
        gap < (100 if method == "opt0" else 1) * GAP
    )  # opt0 may measure some directions at 1e-8 of the others
    for name, w in dense(wl).items():
        share = np.abs(answers[name] - w @ oracle) / np.sqrt(np.maximum(variances[name], 1e-30))
        assert share.max() <= np.sqrt(2 * gap) + 1e-5
        assert (answers[name] >= -1e-9).all()


@pytest.mark.long
def test_what_rounding_leaves_of_unmeasured_directions_stops_no_step() -> None:
    """8,118 cells, too many to decompose: their diagonal has zeros up to rounding, which must not be divided by."""
    sizes = {"age": 41, "place": 3, "sex": 2, "hours": 33}
    domain = tb.Domain(sizes)
    asked = [
        {"age": tb.Identity(41), "sex": tb.Identity(2)},
        {"place": tb.Identity(3), "sex": tb.Identity(2)},
    ]
    asked += [{name: tb.AllRange(sizes[name])} for name in ("age", "hours")]
    workload = tb.Workload(domain, [tb.Table(f"t{i}", factors) for i, factors in enumerate(asked)])
    counts = np.random.default_rng(0).poisson(40, domain.size)
    m = tb.measure(counts, tb.select(workload, method="residual"), tb.ZCDP(1))
    found, unbounded = tb.estimate(m, method="non-negative"), tb.estimate(m)
    assert found.solution.gap <= GAP  # type: ignore[attr-defined]
    for table in workload.tables:  # no count is near 0, so that the sign takes no part
        off = np.abs(found.answer_of(table) - unbounded.answer_of(table)) / np.sqrt(found.variance_of(table))
        assert off.max() <= np.sqrt(2 * GAP) + 1e-5


def test_a_public_total_has_next_to_no_noise_and_is_met() -> None:
    """Where records are replaced the total costs nothing: its variance is e^-4000, and no weight is infinite."""
    domain = tb.Domain({"kind": 3, "faith": 4})
    workload = tb.Workload.marginals(domain, ways=[2])
    m = tb.measure(np.arange(12), tb.select(workload, neighbours="replace"), tb.ZCDP(1), neighbours="replace")
    assert m.variance.min() < 1e-300
    cells = tb.estimate(m, method="non-negative").answer(workload)[workload.tables[0].name]
    assert abs(cells.sum() - 66) < 1e-3


@pytest.mark.parametrize("rho", ["1/2", 10, 1000])
@pytest.mark.parametrize("counts", [(488, 8), (488, 8, 8), (10**6, 3, 0), (10**8,) * 3], ids=str)
def test_few_cells_beside_a_public_total(counts: tuple[int, ...], rho: object) -> None:
    """It is measured a million times as well as they are, and hides from no step where they should go."""
    workload = tb.Workload.marginals(tb.Domain({"kind": len(counts)}), ways=[1])
    strategy = tb.select(workload, neighbours="replace")
    m = tb.measure(np.array(counts), strategy, tb.ZCDP(rho), neighbours="replace")
    everybody = tb.Constraint.equal(tb.Table("total", {}), sum(counts))
    (plain,) = tb.estimate(m).answer(workload).values()
    (table,) = workload.tables
    for held in ((), (everybody,))[: 1 if max(counts) > 1000 else 2]:
        found = tb.estimate(m, method="non-negative", held=held)
        assert found.solution.gap <= GAP  # type: ignore[attr-defined]
        answer = found.answer_of(table)
        assert answer.sum() == pytest.approx(sum(counts), abs=0.02)
        if (plain > 0).all():
            assert answer == pytest.approx(plain, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_is_proven_of_any_cells_from_any_origin(seed: int) -> None:
    """No less than what the objective lies above the optimum, wherever a search stands."""
    m = measured("union", "gaussian", "workload", people=1.0)
    estimate: Any = tb.estimate(m, method="non-negative")
    problem, draw = estimate._problem, np.random.default_rng(seed)
    y = [answers / np.sqrt(v) for answers, v in zip(estimate.answers, estimate._noise, strict=True)]
    b = np.stack([np.concatenate(problem.apply(cell)) for cell in np.eye(problem.cells)], axis=1)
    _, least = nnls(b, np.concatenate(y), maxiter=10_000)
    origin, z = draw.exponential(2.0, (2, problem.cells))
    origin += 50  # far more than is there: no slope is negative
    for x in (z, z + draw.normal(size=problem.cells)):
        shifted = [a - c for a, c in zip(y, problem.apply(origin), strict=True)]
        above = (np.square(b @ (origin + z) - np.concatenate(y)).sum() - least**2) / 2
        assert cone._gap(problem, shifted, x, z, estimate._certificate(), origin) >= above > 0


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_rounding_hides_no_gap_of_large_counts(neighbours: str) -> None:
    """Millions in some cells and nobody in others, measured almost exactly: the gap is of their differences."""
    domain = tb.Domain({"kind": 6, "faith": 5, "trade": 8})
    workload = tb.Workload.marginals(domain, ways=[1, 2])
    draw = np.random.default_rng(3)
    counts = draw.poisson(1e6 * draw.gamma(0.3, 1, domain.size))
    m = tb.measure(counts, tb.select(workload, neighbours=neighbours), tb.ZCDP(50), neighbours=neighbours)
    assert tb.estimate(m, method="non-negative").solution.gap <= GAP  # type: ignore[attr-defined]


def test_counts_that_are_held_are_met_and_change_no_interval_but_to_hold_the_estimate() -> None:
    wl, m = WORKLOADS["marginals"], measured("marginals", "gaussian", "identity", people=1.0)
    everybody = tb.Constraint.equal(tb.Table("total", {}), 500)
    plain, held = (tb.estimate(m, method="non-negative", held=some) for some in ((), (everybody,)))
    table = wl.tables[0]
    assert held.answer_of(everybody.table).tolist() == [500] != plain.answer_of(everybody.table).tolist()
    assert (held.variance_of(table) == plain.variance_of(table)).all()
    ends = [each.linear.interval_of(table, 0.9)[0].ends() for each in (plain, held)]  # type: ignore[attr-defined]
    assert np.array_equal(ends[0], ends[1])
    low, high = held.interval_of(table, 0.9)[0].ends()
    answer = held.answer_of(table)
    assert (low <= np.minimum(ends[0][0], answer)).all()
    assert (high >= np.maximum(ends[0][1], answer)).all()


@pytest.mark.parametrize(
    ("workload", "method"), [("union", "workload"), ("union", "kron"), ("marginals", "workload")]
)
def test_the_gap_is_proven(workload: str, method: str) -> None:
    """The objective lies no higher above the oracle's than the gap; and the gradient meets the KKT conditions.

    Along a cell, and along x itself, a step would lower the objective by slope^2 / (2 length^2), at most the gap.
    """
    m = measured(workload, "gaussian", method, people=1.0)
    solution = tb.estimate(m, method="non-negative").solution  # type: ignore[attr-defined]
    b, y = _whitened(m)
    _, residual = nnls(b, y, maxiter=10_000)
    x = solution.cells
    assert (x >= 0).all()
    value = np.square(b @ x - y).sum() / 2
    assert residual**2 / 2 - 1e-9 <= value <= residual**2 / 2 + solution.gap + 1e-9
    gradient = b.T @ (b @ x - y)
    room = np.sqrt(2 * solution.gap)
    assert (gradient >= -room * np.linalg.norm(b, axis=0) - 1e-9).all()
    assert abs(gradient @ x) <= room * np.linalg.norm(b @ x) + 1e-9


def test_where_least_squares_is_non_negative_they_are_equal() -> None:
    m = measured("union", "gaussian", people=500.0)
    wl = WORKLOADS["union"]
    linear, estimate = tb.estimate(m).answer(wl), tb.estimate(m, method="non-negative").answer(wl)
    deviation = tb.estimate(m).variance(wl)
    for name in linear:
        assert (np.abs(linear[name] - estimate[name]) <= np.sqrt(2 * GAP * deviation[name])).all()


@pytest.mark.parametrize("factor", [2, 1000])
def test_scale_invariance(factor: int) -> None:
    """Answers and noise multiplied by a number: so are the estimates."""
    wl, m = WORKLOADS["union"], measured("union", "gaussian", people=1.0)
    laws = tuple(type(law)(law.parameter * factor**2) for law in m.laws)
    scaled = replace(m, values=m.values * factor, laws=laws)
    small, big = (tb.estimate(each, method="non-negative").answer(wl) for each in (m, scaled))
    for name in small:
        assert big[name] / factor == pytest.approx(small[name], rel=1e-3, abs=1e-3)


def test_it_is_deterministic() -> None:
    wl, m = WORKLOADS["marginals"], measured("marginals", "gaussian", people=1.0)
    first, second = (tb.estimate(m, method="non-negative").answer(wl) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)


COVERED = [("laplace", 10), *(pytest.param(noise, 40, marks=pytest.mark.long) for noise in BUDGETS)]


@pytest.mark.parametrize(("noise", "draws"), COVERED)
def test_intervals_cover_small_true_counts(noise: str, draws: int) -> None:
    """Draws over cells of which most are empty: pointwise coverage, and no interval shorter than what is proven."""
    wl = WORKLOADS["marginals"]
    strategy = tb.select(wl, noise=noise, method="workload")  # type: ignore[arg-type]
    x = np.random.default_rng(3).poisson(0.5, DOMAIN.size)
    truth = {name: w @ x for name, w in dense(wl).items()}
    hits = {name: np.zeros(len(t)) for name, t in truth.items()}
    for seed in range(draws):
        m = tb.measure(x, strategy, BUDGETS[noise], source=tb.noise.Insecure(seed))
        est = tb.estimate(m, method="non-negative")
        middle, linear = est.answer(wl), tb.estimate(m).interval(wl)
        for name, (low, high) in est.interval(wl).items():
            assert high - middle[name] == pytest.approx(middle[name] - low)
            assert (low <= np.maximum(linear[name][0], 0) + 1e-9).all()
            assert (high >= linear[name][1] - 1e-9).all()
            hits[name] += (low <= truth[name] + 1e-9) & (truth[name] <= high + 1e-9)
    for name in truth:
        assert (hits[name] / draws >= 0.95 - 6 * np.sqrt(0.95 * 0.05 / draws)).all()
        assert hits[name].mean() / draws >= 0.95


def test_what_is_not_measured_is_refused() -> None:
    m = measured("recodes", "gaussian")
    sexes = tb.Workload(DOMAIN, [tb.Table("sexes", {"sex": tb.Identity(2)})])
    with pytest.raises(NotEstimable):
        tb.estimate(m, method="non-negative").answer(sexes)


def test_domains_that_cannot_be_listed_are_refused_with_advice() -> None:
    domain = tb.Domain({f"a{i}": 18 for i in range(14)})
    workload = tb.Workload.marginals(domain, ways=[1])
    people = np.zeros((10, 14), int)
    m = tb.measure(
        tb.Counts.from_records(domain, people), tb.select(workload, method="workload"), BUDGETS["gaussian"]
    )
    with pytest.raises(Unsupported, match='"pgm"'):
        tb.estimate(m, method="non-negative").answer(workload)


@pytest.mark.parametrize("noise", BUDGETS)
def test_intervals_are_no_wider_than_their_construction(noise: str) -> None:
    """The least-squares interval, cut at 0, reaches from the estimate as far as the half-width says and no further."""
    m, wl = measured("union", noise), WORKLOADS["union"]
    linear, bounded = tb.estimate(m), tb.estimate(m, method="non-negative")
    answers, widths = linear.answer(wl), linear.half_widths(wl)
    for name, point in bounded.answer(wl).items():
        low = np.maximum(answers[name] - widths[name].values, 0.0)
        high = np.maximum(answers[name] + widths[name].values, 0.0)
        got = bounded.half_widths(wl)[name].values
        np.testing.assert_allclose(got, np.maximum(high - point, point - low), rtol=1e-9, atol=1e-9)
        assert (got <= widths[name].values + np.abs(point - answers[name]) + 1e-9).all()
