"""Full least squares by conjugate gradients against dense algebra, and the bounds that stand in for its variances."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.each import each
from tests.estimation.overlapping import large, measured
from tests.strategy.instances import BUDGETS, WORKLOADS, dense_strategy

import tabulae as tb
from tabulae.errors import NotEstimable
from tabulae.estimation.coverage import bounded_half_widths
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from tabulae.strategy import IterativeInformation, law_variances
from tabulae.strategy.information.routes import information, solve

CASES = list(itertools.product(("union", "recodes", "marginals"), BUDGETS))


@pytest.mark.parametrize(("workload", "noise"), CASES)
def test_the_fit_is_the_dense_projection(workload: str, noise: str) -> None:
    m = measured(workload, noise)
    variances = law_variances(m.strategy, m.laws)
    fitted = IterativeInformation(m.strategy, variances, solve).fit(m.answers())
    a, y, s = dense_strategy(m.strategy), np.concatenate(m.answers()), np.sqrt(m.variance)[:, None]
    assert np.concatenate(fitted) == pytest.approx(a @ np.linalg.lstsq(a / s, y / s[:, 0])[0], abs=1e-7)


@pytest.mark.parametrize(("workload", "noise"), CASES)
def test_answers_equal_the_explicit_routes(workload: str, noise: str) -> None:
    m, wl = measured(workload, noise), WORKLOADS[workload]
    iterative = IterativeInformation(m.strategy, law_variances(m.strategy, m.laws), solve)
    exact = tb.estimate(m)
    assert exact.information.route in ("rows", "dense", "lattice")
    for table in wl.tables:
        operator = table.operator(wl.domain)
        assert iterative.answer(operator, m.answers()) == pytest.approx(exact.answer_of(table), abs=1e-7)
        assert (iterative.variance(operator) >= exact.variance_of(table) * (1 - 1e-9)).all()


def _true_counts(table: tb.Table, people: np.ndarray) -> np.ndarray:
    """Two-way counts by numpy, summed up along both attributes for the table of prefixes."""
    axes = [int(name[1]) for name in table.attributes]
    cells = np.zeros([(48, 30, 25, 12)[i] for i in axes])
    np.add.at(cells, tuple(people[:, i] for i in axes), 1)
    if table.name == "a0*a1":
        cells = cells.cumsum(axis=0).cumsum(axis=1)
    return cells.ravel()


@pytest.mark.parametrize("noise", ["gaussian", pytest.param("laplace", marks=pytest.mark.long)])
def test_large_unions_are_consistent_and_closer_to_the_truth(noise: str) -> None:
    """432,000 cells, six overlapping groups: margins of all tables agree, and errors are below the local ones."""
    workload, strategy = large(noise)
    people = np.random.default_rng(2).integers(0, [48, 30, 25, 12], (5000, 4))
    m = tb.measure(tb.Counts.from_records(workload.domain, people), strategy, BUDGETS[noise])
    full, local = tb.estimate(m), tb.estimate(m, method="local-least-squares")
    assert full.information.route == "iterative"
    answers = full.answer(workload)
    age = [answers["a0*a2"].reshape(48, 25).sum(axis=1), answers["a0*a3"].reshape(48, 12).sum(axis=1)]
    assert age[0] == pytest.approx(age[1], abs=1e-6)
    assert answers["a2*a3"].sum() == pytest.approx(answers["total"][0], abs=1e-6)
    ages = answers["a0*a1"].reshape(48, 30)[:, -1]
    assert np.cumsum(age[0]) == pytest.approx(ages, abs=1e-5)
    exact = {t.name: _true_counts(t, people) for t in workload.tables}
    rough, bound = local.answer(workload), full.variance(workload)
    # A projection on the cells' answers brings every measurement closer, in units of its noise, whatever the draw.
    fitted = sum((np.square(answers[k] - exact[k]) / bound[k]).sum() for k in answers if k != "total")
    unfitted = sum((np.square(rough[k] - exact[k]) / bound[k]).sum() for k in answers if k != "total")
    assert fitted < 0.97 * unfitted


def test_planning_states_an_upper_bound() -> None:
    workload, strategy = large()
    """At rho = 1/2 the noise has variance Delta^2 times the block's scale; "a2*a3" is a block of its own."""
    error = strategy.error(workload, BUDGETS["gaussian"])
    own = strategy.sensitivity().power * strategy.blocks[-1].scale
    assert error.tables["a2*a3"] == pytest.approx(float(own) ** 0.5)
    info = information(strategy, tuple(1.0 for _ in strategy.blocks))
    assert info.route == "iterative"
    by_query = sum(
        float(t.weight) ** 2 * info.variance(t.operator(workload.domain)).sum() for t in workload.tables
    )
    assert info.total(workload) == pytest.approx(by_query)


def test_detail_that_no_group_measured_is_refused() -> None:
    workload, strategy = large()
    m = tb.measure(np.ones(workload.domain.size, int), strategy, BUDGETS["gaussian"])
    asked = {"a1": tb.Identity(30), "a2": tb.Identity(25), "a3": tb.Identity(12)}
    three = tb.Workload(workload.domain, [tb.Table("three", asked)])
    with pytest.raises(NotEstimable):
        tb.estimate(m).answer(three)


def test_domains_that_cannot_be_listed() -> None:
    """10^17 cells: the fit never lists them."""
    sizes = (100, 100, 90, 80, 42, 16, 15, 9, 7, 6, 5)
    domain = tb.Domain({f"a{i}": n for i, n in enumerate(sizes)})
    ages = {1: tb.Prefix(100), 2: tb.Identity(100), 3: tb.WidthRange(100, 1)}
    tables = [tb.Table(f"t{i}", {"a0": ages[i], f"a{i}": tb.Identity(sizes[i])}) for i in ages]
    workload = tb.Workload(domain, tables)
    people = np.random.default_rng(3).integers(0, sizes, (2000, len(sizes)))
    m = tb.measure(
        tb.Counts.from_records(domain, people), tb.select(workload, method="workload"), BUDGETS["gaussian"]
    )
    est = tb.estimate(m)
    assert est.information.route == "iterative"
    answers = {name: a.reshape(100, -1).sum(axis=1) for name, a in est.answer(workload).items()}
    assert answers["t2"] == pytest.approx(answers["t3"], abs=1e-5)
    assert np.cumsum(answers["t2"]) == pytest.approx(answers["t1"], abs=1e-5)
    assert abs(answers["t1"][-1] - 2000) < 6 * float(est.variance(workload)["t1"].max() * 100) ** 0.5


LAWS = [
    DiscreteGaussian(Fraction(9)),
    DiscreteGaussian(Fraction(10**4)),
    RoundedGaussian(Fraction(900)),
    DiscreteLaplace(Fraction(7, 2)),
    DiscreteLaplace(Fraction(400)),
]


@each("law", LAWS, ids=str)
@each("level", [0.8, 0.95, 0.99])
def test_intervals_from_a_bound_on_the_variance_cover(law: tb.privacy.NoiseLaw, level: float) -> None:  # type: ignore[name-defined]
    """Sums of 1 to 200 variables with equal and with uneven coefficients, at the bound and below it."""
    draws, source = 40_000, tb.noise.Insecure(11)
    h = bounded_half_widths(np.array([1.0]), [law], level)[0]
    slack = 6 * np.sqrt(level * (1 - level) / draws)
    for z in (np.ones(1), np.ones(3), np.ones(40), 0.7 ** np.arange(8), np.r_[1, np.full(20, 0.1)]):
        e = law.sample((len(z), draws), source).astype(float)
        deviation = np.sqrt(law.variance_of_law * np.square(z).sum())
        for below in (1.0, 0.8):
            assert (np.abs(z @ e) / deviation * below <= h).mean() >= level - slack


def test_a_bound_costs_little_on_fine_grids() -> None:
    gaussian = bounded_half_widths(np.array([1.0]), [DiscreteGaussian(Fraction(10**10))], 0.95)[0]
    assert gaussian == pytest.approx(stats.norm.ppf(0.975), rel=1e-3)
    laplace = bounded_half_widths(np.array([1.0]), [DiscreteLaplace(Fraction(10**6))], 0.95)[0]
    assert (
        stats.laplace(scale=0.5**0.5).ppf(0.975) < laplace < 1.03 * stats.laplace(scale=0.5**0.5).ppf(0.975)
    )
