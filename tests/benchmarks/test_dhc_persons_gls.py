"""Least squares beside the errors of DHC persons: the closed form against the variances of the full problem."""

from __future__ import annotations

import csv
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.dhc_persons import ERRORS
from benchmarks.dhc_persons_gls import deviations, expected, variances
from tests.geography.test_supported import town

from tabulae import ZCDP, Domain, Spine
from tabulae.domain import Recode
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.passes.covariances import Covariances
from tabulae.products.areas.spine_plan import SpinePlan

LEVELS = ("state", "county", "block")


def _plan(groups: list[int]) -> SpinePlan:
    """Three queries that nest over ages in groups: everybody, groups, ages by sex."""
    names = tuple(str(i) for i in range(max(groups) + 1))
    domain = Domain(
        {"age": len(groups), "sex": 2}, recodes=(Recode("group", "age", np.array(groups), names),)
    )
    layout = CellLayout.of(domain, ["age"])
    block = np.array([0, 1, 2, 3, 4, 5])
    codes = {"state": block * 0, "county": np.array([0, 0, 0, 1, 1, 2]), "block": block}
    columns = {name: np.array([f"{v}" for v in each], object) for name, each in codes.items()}
    spine = Spine.from_codes(columns, LEVELS).bypass(dict.fromkeys(LEVELS, "1/3"), "gaussian", "paper")
    queries = tuple(layout.margin(each) for each in ([], ["group"], ["age", "sex"]))
    shares = dict.fromkeys(LEVELS, (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)))
    return SpinePlan(spine, layout, queries, shares, ZCDP(2), Supports.of(np.ones((6, len(groups)), bool)))


@pytest.mark.parametrize(("groups", "same"), [([0, 0, 1, 1], True), ([0, 0, 0, 1], False)])
def test_it_is_the_full_problem_for_the_coarsest_of_equal_classes_and_never_better(
    groups: list[int], same: bool
) -> None:
    plan = _plan(groups)
    cov = Covariances.of(plan)
    for q, query in enumerate(plan.queries):
        count, error = deviations(plan, q)
        mine = np.sort(np.repeat(error, count, axis=1), axis=1)
        for node in range(plan.tree.size):
            v = cov.variance(node)  # (kinds, k, k): all of the sexes' sums, and their differences
            total, apart = v
            whole = np.kron(total, np.full((2, 2), 0.5)) + np.kron(
                apart, np.array([[0.5, -0.5], [-0.5, 0.5]])
            )
            rows = query.rows(np.arange(plan.layout.cell.size))
            sums = np.equal.outer(np.unique(rows), rows).astype(float)
            full = np.sort(np.sqrt(np.diag(sums @ whole @ sums.T)))
            assert (mine[node] >= full * (1 - 1e-9)).all()
            assert (mine[node] <= full * 1.3).all()
            if same and q == 0:
                assert mine[node] == pytest.approx(full, rel=1e-9)


def test_simulated_sums_of_a_tree_have_the_variance() -> None:
    """Weighted least squares, written out, of one number in every node."""
    plan = _plan([0, 1])
    precision = np.random.default_rng(1).uniform(0.1, 2, (plan.tree.size, 1))
    inside = np.zeros((plan.tree.size, plan.spine.leaves))
    inside[plan.tree.leaf, np.arange(plan.spine.leaves)] = 1
    for node in reversed(range(1, plan.tree.size)):
        inside[plan.tree.parent[node]] += inside[node]
    alone = np.flatnonzero(np.bincount(plan.tree.parent[1:])[plan.tree.parent[1:]] == 1) + 1
    precision[alone] = 0  # as bypassing leaves an only child
    of_leaves = np.linalg.inv(inside.T @ (precision * inside))
    assert variances(plan, precision)[:, 0] == pytest.approx(np.diag(inside @ of_leaves @ inside.T))


def test_it_is_at_most_the_noise_of_an_answer() -> None:
    plan = town().plan
    found = {(level, query): error for level, query, error in expected(plan)}
    assert set(found) == {(level, query.name) for level in plan.spine.levels for query in plan.queries}
    assert all(error > 0 for error in found.values())


def test_the_recorded_errors_have_least_squares_below_the_answers() -> None:
    with ERRORS.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["answers"]]
    assert rows
    assert all(float(row["gls"]) > 0 for row in rows)
    assert all(float(row["gls"]) <= float(row["answers"]) * 1.0001 for row in rows)
