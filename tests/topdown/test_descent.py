"""From the root down: additive, whole, supported, the same whatever the number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.topdown.descent_cases import Case, random_case

from tabulae.products.areas.descent.descent import (
    Descent,
    MeasuredTotals,
    OwnWeights,
    descend,
    no_limits,
)
from tabulae.products.areas.passes.vectors import NodeVectors


def descent(case: Case, seed: int | None, *, totals: bool = True) -> Descent:
    plan = case.plan
    information = NodeVectors.zeros(plan)
    measured = MeasuredTotals.none(plan.tree.size)
    for given_values in case.values(seed):
        information.put(given_values.piece.nodes, plan.information(given_values))
        measured.take_in(plan, given_values)
    weights = OwnWeights(plan, information)
    if not totals:
        measured = MeasuredTotals.none(plan.tree.size)
    return Descent(plan, weights, weights, np.zeros(plan.layout.size, np.int64), no_limits(plan), measured)


def counts(problem: Descent, workers: int = 1, start: int = 0) -> NodeVectors:
    found = NodeVectors(problem.plan, np.full(problem.plan.offsets[-1], start, np.int64))
    for depth in range(len(problem.plan.depths)):
        descend(problem, found, depth, workers)
    return found


def check_tree(case: Case, found: NodeVectors) -> None:
    """Whole numbers, 0 or more, each node the sum of its children."""
    plan, every = case.plan, np.arange(case.plan.layout.size)
    assert found.flat.dtype == np.int64
    assert found.flat.min() >= 0
    for node in range(plan.tree.size):
        children = np.arange(plan.children[node], plan.children[node + 1])
        if children.size:
            own = found.take_on(np.array([node]), every)[0]
            assert (found.take_on(children, every).sum(axis=0) == own).all()


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(2, 4), st.booleans())
def test_counts_add_up_in_any_tree(seed, leaves, depth, totals):
    case = random_case(np.random.default_rng(seed), leaves, depth)
    check_tree(case, counts(descent(case, seed, totals=totals), start=7))


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(2, 4), st.booleans())
def test_without_noise_the_truth_comes_back(seed, leaves, depth, totals):
    case = random_case(np.random.default_rng(seed), leaves, depth, rho="20")
    found = counts(descent(case, None, totals=totals))
    for node, true in enumerate(case.of_nodes()):
        assert (found.take(np.array([node]))[0] == true).all()


def test_the_number_of_threads_does_not_matter(monkeypatch):
    monkeypatch.setattr("tabulae.products.areas.descent.descent._CHUNK", 200)
    case = random_case(np.random.default_rng(3), 60, 4)
    problem = descent(case, 3)
    one = counts(problem).flat
    for workers in (2, 5):
        assert (counts(problem, workers, start=3).flat == one).all()


def test_a_fault_in_one_task_is_raised(monkeypatch):
    case = random_case(np.random.default_rng(3), 20, 3)
    problem = descent(case, 3)

    def broken(self, parent, total):
        raise RuntimeError("one parent failed")

    found = NodeVectors.zeros(case.plan, np.int64)
    descend(problem, found, 0, 2)
    monkeypatch.setattr(Descent, "divide", broken)
    with pytest.raises(RuntimeError, match="one parent failed"):
        descend(problem, found, 1, 2)


def test_totals_go_first_above_the_leaves_alone(monkeypatch):
    case = random_case(np.random.default_rng(8), 60, 4, bypass=None)
    problem, plan = descent(case, 8), case.plan
    asked: list[int] = []
    monkeypatch.setattr(
        "tabulae.products.areas.descent.descent.divide_totals",
        lambda given, measured, weight: asked.append(measured.size) or np.full(measured.size, -1),
    )
    monkeypatch.setattr(
        "tabulae.products.areas.descent.descent.solve", lambda given, totals=None: pytest.fail("not asked")
    )
    for parent in range(plan.tree.size):
        nodes = np.arange(plan.children[parent], plan.children[parent + 1])
        if nodes.size > 1:
            given_problem = problem._problem(
                problem.weights, nodes, np.arange(plan.layout.size), np.ones((3, 6), np.int64)
            )
            before = len(asked)
            held = problem._totals(given_problem, nodes)
            leaves = (plan.tree.level[nodes] == len(plan.spine.levels) - 1).any()
            assert (held is None) == leaves
            assert len(asked) == before + (not leaves)
    assert asked
