"""What the solver is handed: the weights of each method against dense matrices, and totals by their variances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from tests.topdown.descent_cases import Case, random_case
from tests.topdown.solver_cases import dense_precision
from tests.topdown.two_pass_cases import kind_matrix

from tabulae.products.areas.descent import descent
from tabulae.products.areas.descent.limits import Division
from tabulae.products.areas.estimate import Method, estimate_spine
from tabulae.products.areas.spine_plan import SpinePlan

LEVELS = 4


@dataclass(frozen=True, eq=False)
class Handed:
    """A division as the solver got it, with its children, the parent's dense cells, and held totals."""

    nodes: np.ndarray
    support: np.ndarray
    division: Division
    totals: np.ndarray | None


def handed(case: Case, method: Method, monkeypatch: pytest.MonkeyPatch) -> list[Handed]:
    """All divisions of an estimate."""
    found: list[Handed] = []
    last: list[tuple[np.ndarray, np.ndarray, Division]] = []
    problem, solve = descent.Descent._problem, descent.solve

    def noted(self, nodes, cells, total) -> Division:
        every = np.arange(nodes.start, nodes.stop)
        last.append((every, cells.support, problem(self, nodes, cells, total)))
        return last[-1][2]

    def solved(division, totals=None):
        if last and division is last[-1][2]:  # not one of totals, before it
            found.append(Handed(*last.pop(), totals))
        return solve(division, totals)

    monkeypatch.setattr(descent.Descent, "_problem", noted)
    monkeypatch.setattr(descent, "solve", solved)
    estimate_spine(case.plan, case.values(3), method, workers=1)
    return found


def own(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    """P and m of every node, as one matrix and one vector over its cells."""
    plan = case.plan
    vectors = {}
    for given in case.values(3):
        for node, row in zip(given.piece.nodes.tolist(), plan.information(given), strict=True):
            vectors[node] = row.ravel()
    found = []
    for node in range(plan.tree.size):
        precision = kind_matrix(plan, plan.precision(int(plan.classes[1][node])))
        found.append((precision, vectors.get(node, np.zeros(len(precision)))))
    return found


def subtree(case: Case) -> list[tuple[np.ndarray, np.ndarray]]:
    """S^-1 and S^-1 mu of every node: what is measured at it and below, by sums of covariances from the leaves up."""
    plan, found = case.plan, own(case)
    for node in reversed(range(plan.tree.size)):
        children = range(plan.children[node], plan.children[node + 1])
        if children:
            variance, mean = np.zeros_like(found[node][0]), np.zeros_like(found[node][1])
            for child in children:
                at = cells(plan, plan.dense_cells[plan.pattern[node]], plan.pattern[child])
                variance[np.ix_(at, at)] += np.linalg.inv(found[child][0])
                mean[at] += np.linalg.solve(*found[child])
            below = np.linalg.inv(variance)
            found[node] = found[node][0] + below, found[node][1] + below @ mean
    return found


def cells(plan: SpinePlan, support: np.ndarray, pattern: int) -> np.ndarray:
    """Where the cells of a pattern stand among those over some dense cells."""
    place = np.searchsorted(support, plan.dense_cells[pattern])
    n = plan.layout.algebra.cells
    return (place[:, None] * n + np.arange(n)).ravel()


def check_weights(case: Case, one: Handed, wanted: Callable[[int], tuple[np.ndarray, np.ndarray]]) -> None:
    """H and b of a division are what is wanted, over the cells that the parent counts anybody in."""
    n = case.plan.layout.algebra.cells
    for child, node in enumerate(one.nodes.tolist()):
        held = case.plan.dense_cells[case.plan.pattern[node]]
        inside = np.repeat(np.isin(held, one.support), n)
        at = np.repeat(np.isin(one.support, held), n)
        precision, linear = wanted(node)
        found = dense_precision(one.division, child)
        assert not found[~at].any()
        np.testing.assert_allclose(
            found[np.ix_(at, at)], precision[np.ix_(inside, inside)], atol=1e-8 * precision.max()
        )
        b = one.division.linear[child].ravel()
        np.testing.assert_allclose(b[at], linear[inside], atol=1e-8 * (1 + np.abs(linear).max()))
        assert not b[~at].any()


@pytest.mark.parametrize("seed", range(4))
def test_bluedown_weighs_all_that_is_measured_below(seed, monkeypatch):
    case = random_case(np.random.default_rng(seed), 14, LEVELS)
    wanted, found = subtree(case), handed(case, "bluedown", monkeypatch)
    assert len(found) > 2
    for one in found:
        check_weights(case, one, wanted.__getitem__)
        assert one.totals is None


@pytest.mark.parametrize("seed", range(4))
def test_topdown_weighs_what_is_measured_there(seed, monkeypatch):
    case = random_case(np.random.default_rng(seed), 14, LEVELS, bypass=None)
    wanted, found = own(case), handed(case, "topdown", monkeypatch)
    last = len(case.plan.spine.levels) - 1
    for one in found:
        check_weights(case, one, wanted.__getitem__)
        level = case.plan.tree.level[one.nodes]
        assert (one.totals is None) == (0 in one.nodes or (level == last).any())


def test_totals_are_weighed_by_their_variances(monkeypatch):
    """Siblings whose shares of the budget differ, as where units with one child were left out."""
    case = random_case(np.random.default_rng(0), 40, 5)
    plan, answers = case.plan, {}
    for given in case.values(3):
        assert given.values[0] is not None
        answers |= dict(zip(given.piece.nodes.tolist(), given.values[0][:, 0].tolist(), strict=True))
    seen, divide = [], descent.divide_totals

    def noted(division, measured, weight):
        seen.append((measured, weight))
        return divide(division, measured, weight)

    monkeypatch.setattr(descent, "divide_totals", noted)
    found = [one for one in handed(case, "topdown", monkeypatch) if one.totals is not None]
    assert len(found) == len(seen)
    for one, (measured, weight) in zip(found, seen, strict=True):
        laws = [plan.laws(int(plan.classes[1][node]))[0] for node in one.nodes]
        np.testing.assert_allclose(weight, [1 / law.variance_of_law for law in laws if law is not None])
        assert measured.tolist() == [answers[node] for node in one.nodes.tolist()]
    assert any(np.ptp(weight) > 0 for _, weight in seen)
