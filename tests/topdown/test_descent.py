"""From the root down: additive, whole, supported, the same whatever the number of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topdown.descent_cases import Case, random_case
from tests.topdown.two_pass_cases import numbers

from tabulae.products.areas.descent.descent import Descent, MeasuredTotals, OwnWeights, no_limits
from tabulae.products.areas.estimate import Estimation, Here, read_measured
from tabulae.products.areas.passes.vectors import Halves
from tabulae.products.areas.stages import Checkpoint
from tabulae.products.areas.tasks import DivideTask, TaskResult, family_of, in_threads


def counts(case: Case, seed: int | None, *, totals: bool = True, workers: int = 1) -> Halves:
    plan, measured = case.plan, read_measured(case.plan, case.values(seed))
    if not totals:
        measured = replace(measured, totals=MeasuredTotals.none(plan.tree.size))
    place = Here(plan, Checkpoint(None, ""), in_threads(workers))
    return Estimation(plan, measured, place).divided("topdown")[0]


def check_tree(case: Case, found: Halves) -> None:
    """Whole numbers, 0 or more, each node the sum of its children."""
    plan, every = case.plan, np.arange(case.plan.layout.size)
    assert found.dtype == np.int64
    assert numbers(found).min() >= 0
    for node in range(plan.tree.size):
        children = np.arange(plan.children[node], plan.children[node + 1])
        if children.size:
            own = found.take_on(np.array([node]), every)[0]
            assert (found.take_on(children, every).sum(axis=0) == own).all()


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(2, 4), st.booleans())
def test_counts_add_up_in_any_tree(seed, leaves, depth, totals):
    case = random_case(np.random.default_rng(seed), leaves, depth)
    check_tree(case, counts(case, seed, totals=totals))


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(2, 4), st.booleans())
def test_without_noise_the_truth_comes_back(seed, leaves, depth, totals):
    case = random_case(np.random.default_rng(seed), leaves, depth, rho="20")
    found = counts(case, None, totals=totals)
    for node, true in enumerate(case.of_nodes()):
        assert (found.take(np.array([node]))[0] == true).all()


def test_the_number_of_threads_does_not_matter(monkeypatch):
    monkeypatch.setattr("tabulae.products.areas.descent.descent._CHUNK", 200)
    case = random_case(np.random.default_rng(3), 60, 4)
    one = numbers(counts(case, 3))
    for workers in (2, 5):
        assert (numbers(counts(case, 3, workers=workers)) == one).all()


def test_what_was_there_before_a_task_does_not_count(monkeypatch):
    """A process that is killed leaves counts of half a task, which are made again whole."""
    case = random_case(np.random.default_rng(5), 40, 4)
    clean, call = numbers(counts(case, 5)), DivideTask.__call__
    plan = case.plan

    def left_over(self: DivideTask, number: int) -> TaskResult:
        if number < len(self.families):
            for node in range(*family_of(plan, self.families, number)[1]):
                cells = plan.dense_cells[plan.pattern[node]].size
                left = np.full((1, cells, plan.layout.algebra.cells), 7)
                self.counts.window(()).put(np.array([node]), left)
        return call(self, number)

    monkeypatch.setattr(DivideTask, "__call__", left_over)
    assert (numbers(counts(case, 5)) == clean).all()


def test_a_fault_in_one_task_is_raised(monkeypatch):
    case = random_case(np.random.default_rng(3), 20, 3)

    def broken(self, parent, total):
        raise RuntimeError("one parent failed")

    monkeypatch.setattr(Descent, "divide", broken)
    with pytest.raises(RuntimeError, match="one parent failed"):
        counts(case, 3, workers=2)


def test_totals_go_first_above_the_leaves_alone(monkeypatch):
    case = random_case(np.random.default_rng(8), 60, 4, bypass=None)
    plan, measured = case.plan, read_measured(case.plan, case.values(8))
    weights, part = OwnWeights(plan, measured.information), np.zeros(plan.layout.size, np.int64)
    problem = Descent(plan, weights, part, no_limits(plan), measured.totals)
    asked: list[int] = []
    monkeypatch.setattr(
        "tabulae.products.areas.descent.descent.divide_totals",
        lambda given, measured, weight: asked.append(measured.size) or np.full(measured.size, -1),
    )
    monkeypatch.setattr(
        "tabulae.products.areas.descent.descent.solve", lambda given, totals=None: pytest.fail("not asked")
    )
    for parent in range(plan.tree.size):
        nodes = slice(*plan.children[parent : parent + 2].tolist())
        if nodes.stop - nodes.start > 1:
            pattern = int(plan.pattern[parent])
            cells = problem._cells(pattern, np.ones(plan.dense_cells[pattern].size, bool))
            given_problem = problem._problem(nodes, cells, np.ones((cells.support.size, 6), np.int64))
            before = len(asked)
            held = problem._totals(given_problem, nodes)
            leaves = (plan.tree.level[nodes] == len(plan.spine.levels) - 1).any()
            assert (held is None) == leaves
            assert len(asked) == before + (not leaves)
    assert asked
