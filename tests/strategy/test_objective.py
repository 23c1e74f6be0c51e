"""Objectives: the largest variance and targets by table, against bounds, against the total and against an oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from tests.each import each
from tests.strategy.instances import BUDGETS, WORKLOADS, selected

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.estimation.budget import least_met
from tabulae.privacy import budget_for_margin
from tabulae.strategy.methods import SINGLE, Settings

UNIT = tb.ZCDP("1/2")  # variance 1 at unit sensitivity


def _largest(strategy: tb.Strategy, workload: tb.Workload, budget: tb.PrivacyLoss = UNIT) -> float:
    """The largest weighted variance of a query."""
    return max(
        float(t.weight) ** 2 * strategy.error(tb.Workload(workload.domain, [t]), budget).max_variance
        for t in workload.tables
    )


# What takes longest is left to `make test-long`.
CHEAP = [name for name in WORKLOADS if name not in ("recodes", "disjunction")]
SHORT = [*((name, "gaussian", "opt0") for name in CHEAP), ("one product", "gaussian", "kron")]
ALL = [
    *((name, "gaussian", method) for name in WORKLOADS for method in ("opt0", "kron")),
    *((name, "laplace", "opt0") for name in WORKLOADS),
]


@each(("workload", "noise", "method"), SHORT, long=ALL)
def test_the_largest_variance_is_never_above_that_of_the_total(
    workload: str, noise: str, method: str
) -> None:
    wl, budget = WORKLOADS[workload], BUDGETS[noise]
    total, largest = (selected(workload, noise, method, objective=what) for what in ("total", "max"))
    assert _largest(largest, wl, budget) <= _largest(total, wl, budget) * (1 + 1e-9)


@pytest.mark.parametrize("operator", [tb.Prefix(6), tb.AllRange(5), tb.WidthRange(7, 3)], ids=repr)
def test_the_largest_variance_of_one_attribute_is_the_convex_optimum(operator: tb.LinearOperator) -> None:
    """min max_q w_q X^-1 w_q' over diag X <= 1, solved by cvxpy (SCS)."""
    wl, rows = tb.Workload.of(operator), np.asarray(operator.dense(), float)
    n = rows.shape[1]
    x, t = cp.Variable((n, n), PSD=True), cp.Variable()
    constraints = [cp.diag(x) <= 1] + [cp.matrix_frac(row, x) <= t for row in rows]
    optimum = cp.Problem(cp.Minimize(t), constraints).solve(solver=cp.SCS, eps=1e-7)
    best = tb.select(wl, method="opt0", objective="max", tolerance=1e-5)
    assert _largest(best, wl) == pytest.approx(optimum, rel=5e-3)
    assert _largest(best, wl) >= optimum * (1 - 1e-4)
    assert best.certificate is not None
    assert 0 <= best.certificate < 1e-2


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in CHEAP else pytest.mark.long) for n in WORKLOADS]
)
def test_a_certificate_of_the_largest_variance_bounds_every_other_strategy(name: str) -> None:
    wl, best = WORKLOADS[name], selected(name, "gaussian", "opt0", objective="max")
    assert best.certificate is not None
    floor = _largest(best, wl) / (1 + best.certificate)
    for method in ("identity", "workload", "kron", "auto"):
        assert _largest(selected(name, "gaussian", method), wl) >= floor * (1 - 1e-9)


def test_targets_are_met_at_a_budget_and_not_at_one_a_little_smaller() -> None:
    wl = WORKLOADS["union"]
    names = [t.name for t in wl.tables]
    targets = tb.Targets(rmse={names[0]: 4, names[1]: "5/2"}, margin={names[2]: 3})
    strategy = tb.select(wl, method="opt0", objective=targets)
    budget = tb.smallest_budget(strategy, wl, targets)
    assert isinstance(budget, tb.ZCDP)

    def met(rho: float) -> bool:
        m = tb.measure(np.zeros(wl.domain.size, int), strategy, tb.ZCDP(rho))
        est = tb.estimate(m)
        variance, interval = est.variance(wl), est.interval(wl, 0.95)
        rmse = {n: math.sqrt(v.mean()) for n, v in variance.items()}
        low, high = interval[names[2]]
        return rmse[names[0]] <= 4 and rmse[names[1]] <= 2.5 and float((high - low).max()) <= 6 * (1 + 1e-9)

    assert met(float(budget.amount))
    assert not met(0.999 * float(budget.amount))
    # No strategy for the total alone meets them with less.
    total = tb.select(wl, method="opt0")
    assert budget.amount <= tb.smallest_budget(total, wl, targets).amount  # type: ignore[union-attr]


def test_tables_without_a_target_are_still_answered() -> None:
    wl = WORKLOADS["marginals"]
    name = wl.tables[0].name
    strategy = tb.select(wl, method="opt0", objective=tb.Targets(rmse={name: 1}))
    errors = strategy.error(wl, UNIT).tables
    assert all(math.isfinite(e) for e in errors.values())
    assert errors[name] <= tb.select(wl, method="opt0").error(wl, UNIT).tables[name]


@pytest.mark.parametrize("method", ["hierarchical", pytest.param("opt0", marks=pytest.mark.long)])
@each("definition", ["pure", "approx"])
def test_smallest_budgets_of_laplace_noise(definition: str, method: str) -> None:
    wl, targets = tb.Workload.of(tb.Prefix(8)), tb.Targets(margin={"x": 40}, confidence="0.9")
    strategy = tb.select(wl, noise="laplace", method=method, objective=targets)
    delta = "1e-6" if definition == "approx" else None
    budget = tb.smallest_budget(strategy, wl, targets, definition=definition, delta=delta)  # type: ignore[arg-type]
    widths = tb.estimate(tb.measure(np.zeros(8, int), strategy, budget)).half_widths(wl, 0.9)["x"].values
    assert 0.98 * 40 <= widths.max() <= 40


@each(
    ("make", "message"),
    [
        (lambda: tb.Targets(), "at least one target"),
        (lambda: tb.Targets(rmse={"a": 0}), "the target of table 'a'"),
        (lambda: tb.Targets(rmse={"a": -1}), "the target of table 'a'"),
        (lambda: tb.Targets(rmse={"a": 1}, margin={"a": 1}), "two targets"),
        (lambda: tb.Targets(rmse={"a": 1}, confidence=1), "between 0 and 1"),
        (lambda: tb.select(WORKLOADS["union"], objective=tb.Targets(rmse={"nope": 1})), "'nope'"),
        (lambda: tb.select(WORKLOADS["union"], objective="largest"), "objective must be"),  # type: ignore[arg-type]
        (lambda: tb.select(WORKLOADS["union"], groups=["ranges"]), "list of lists"),
        (lambda: tb.select(WORKLOADS["union"], groups=[["ranges"]]), "leaves out table 'prefix'"),
        (lambda: tb.select(WORKLOADS["union"], groups=[["ranges", "rages"]]), "'rages'"),
        (lambda: tb.select(WORKLOADS["union"], rows=0), "rows must be"),
        (lambda: tb.select(WORKLOADS["union"], rows={"height": 2}), "'height'"),
    ],
)
def test_bad_objectives_and_options_are_refused(make, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_a_margin_that_is_a_whole_number_of_counts_is_used_up() -> None:
    """The half-width of one count is a whole number: the smallest budget for 3 has 3 and not 2."""
    wl, targets = tb.Workload.of(tb.Identity(4)), tb.Targets(margin={"x": 3})
    strategy = tb.select(wl, method="identity")
    budget = tb.smallest_budget(strategy, wl, targets)
    found = tb.estimate(tb.measure(np.zeros(4, int), strategy, budget)).half_widths(wl)["x"].values
    assert found.max() == pytest.approx(3, rel=1e-6)
    assert budget.amount == pytest.approx(float(budget_for_margin(3, "gaussian").amount), rel=1e-3)


def test_the_least_budget_that_meets_is_the_first_of_a_grid() -> None:
    """Half-widths need not fall where the budget grows."""
    asked = []

    def met(amount: Fraction) -> bool:
        asked.append(amount)
        return Fraction("0.3") <= amount < Fraction("0.4") or amount >= 2

    assert least_met(lambda amount: amount > Fraction("0.01"), met) == Fraction("0.3")
    assert Fraction("0.2999") in asked
    assert least_met(lambda amount: amount > Fraction("0.35"), lambda amount: amount >= 2) == 2
    assert least_met(lambda amount: True, lambda amount: True) == Fraction(1, 10**12)
    assert least_met(lambda amount: False, lambda amount: True) is None


def test_a_smaller_budget_that_meets_a_margin_is_not_passed_over() -> None:
    """The half-width is 5.73 at rho 0.5631 and 7.03 at 0.58, and as small again from 0.8731 only."""
    wl, targets = tb.Workload.of(tb.Prefix(24)), tb.Targets(margin={"x": 6})
    budget = tb.smallest_budget(tb.select(wl, method="hierarchical"), wl, targets)
    assert isinstance(budget, tb.ZCDP)
    assert 0.45 < budget.rho < 0.5631


def test_a_definition_must_fit_the_noise() -> None:
    wl, targets = tb.Workload.of(tb.Identity(4)), tb.Targets(rmse={"x": 2})
    strategy = tb.select(wl)
    with pytest.raises(InvalidArgument, match="for gaussian noise"):
        tb.smallest_budget(strategy, wl, targets, definition="pure")
    with pytest.raises(InvalidArgument, match="delta belongs"):
        tb.smallest_budget(strategy, wl, targets, definition="approx")


@pytest.mark.parametrize(
    ("method", "single"), [("kron", "kron"), pytest.param("hdmm", "opt0", marks=pytest.mark.long)]
)
def test_a_method_that_refuses_later_weights_ends_no_search(
    method: str, single: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, registered = [], SINGLE[single]

    def flags(workload: tb.Workload, settings: Settings) -> tb.Strategy:
        served.append(workload)
        if len(served) > 1:
            raise Unsupported("weights that are too far apart")
        return registered(workload, settings)

    monkeypatch.setitem(SINGLE, single, replace(registered, choose=flags))
    wl = WORKLOADS["union"]
    targets = tb.Targets(rmse={table.name: 1 + i for i, table in enumerate(wl.tables)})
    chosen = tb.select(wl, method=method, objective=targets)
    assert len(served) > 1
    assert chosen.method == single or method == "hdmm"
    budget = tb.smallest_budget(chosen, wl, targets)
    assert budget.amount <= tb.smallest_budget(tb.select(wl, method="identity"), wl, targets).amount  # type: ignore[union-attr]
