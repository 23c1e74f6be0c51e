"""Limits of nodes: every parent that meets its own can be divided into children that meet theirs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.topdown.limit_cases import (
    exact_counts,
    plan_of,
    random_constraints,
    reachable,
    tables,
    type_layout,
    within,
)

from tabulae.errors import InvalidArgument
from tabulae.products.areas.constraints import NO_LIMIT, AreaConstraints, ExactMargin
from tabulae.products.areas.descent.limits import FREE, NodeLimits
from tabulae.products.areas.spine.spine import Spine

seeds = st.integers(0, 2**32 - 1)


def accepted(seed, **options):
    """Random constraints that the check accepts, and the limits of nodes."""
    plan, constraints, truth, values = random_constraints(np.random.default_rng(seed), **options)
    try:
        constraints.check(plan, "topdown")
    except InvalidArgument:
        assume(False)
    return plan, constraints, truth, NodeLimits.of(plan, constraints, values)


@given(seeds, st.booleans())
def test_limits_say_exactly_which_counts_can_be_divided(seed, many):
    """Brute force: all tables of few people that leaves add up to, node by node, are all that meet the limits."""
    plan, constraints, truth, limits = accepted(seed, many=many)
    most = max(int(truth.sum()), 4 if plan.layout.size < 5 else 0)
    every = tables(plan.layout.size, most)
    for node, found in enumerate(reachable(plan, constraints, limits, most)):
        assert found == {t for t in every if within(plan, constraints, limits, node, t)}


def rows_of(plan, constraints, limits, node):
    """Of one node: matrix and limits of its part and exact sums, and the most of each dense cell."""
    parts = np.arange(len(constraints.part_names))[:, None] == constraints.part
    groups = np.arange(limits.exact.shape[1])[:, None] == limits.group[node][constraints.part]
    exact = limits.exact[node]
    upper = np.where(limits.upper[node] >= NO_LIMIT, np.inf, limits.upper[node])
    return (
        np.vstack([parts, groups]).astype(float),
        np.concatenate([limits.lower[node], np.where(exact == FREE, 0, exact)]),
        np.concatenate([upper, np.where(exact == FREE, np.inf, exact)]),
        np.where(plan.patterns[plan.pattern[node]], np.inf, 0),
    )


def solution(plan, constraints, limits, node, cost):
    """A table of one node, of at most 60 people, that meets its limits and costs least: an extreme one."""
    rows, low, high, most = rows_of(plan, constraints, limits, node)
    found = milp(
        cost,
        integrality=np.ones(cost.size),
        bounds=Bounds(0, most),
        constraints=[LinearConstraint(rows, low, high), LinearConstraint(np.ones((1, cost.size)), 0, 60)],
    )
    return None if found.x is None else np.rint(found.x).astype(int)


def divided(plan, constraints, limits, node, table, cost):
    """Tables of a node's children that meet their limits and add up to a table, by integer programming."""
    children, cells = range(plan.children[node], plan.children[node + 1]), table.size
    each = [rows_of(plan, constraints, limits, child) for child in children]
    blocks = np.zeros((sum(len(e[0]) for e in each), cells * len(each)))
    for i, (rows, *_) in enumerate(each):
        blocks[i * len(rows) : (i + 1) * len(rows), i * cells : (i + 1) * cells] = rows
    found = milp(
        cost,
        integrality=np.ones(cost.size),
        bounds=Bounds(0, np.concatenate([e[3] for e in each])),
        constraints=[
            LinearConstraint(
                blocks, np.concatenate([e[1] for e in each]), np.concatenate([e[2] for e in each])
            ),
            LinearConstraint(np.tile(np.eye(cells), len(each)), table, table),
        ],
    )
    return None if found.x is None else np.rint(found.x).astype(int).reshape(len(each), cells)


@given(seeds)
def test_extreme_solutions_can_be_divided_down_to_the_leaves(seed):
    """HiGHS: from a random vertex of the root's limits to a random vertex of its children's, and on."""
    plan, constraints, _, limits = accepted(seed, most=7, leaves=10)
    rng = np.random.default_rng(seed)
    counts = {0: solution(plan, constraints, limits, 0, rng.normal(size=plan.layout.size))}
    assume(counts[0] is not None)
    for node in range(plan.tree.size):
        children = range(plan.children[node], plan.children[node + 1])
        if not len(children):
            continue
        cost = rng.normal(size=len(children) * plan.layout.size)
        found = divided(plan, constraints, limits, node, counts.pop(node), cost)
        assert found is not None
        counts.update(zip(children, found, strict=True))
    for leaf, node in enumerate(plan.tree.leaf):
        held = np.bincount(constraints.part, counts[node], len(constraints.part_names))
        assert (held >= constraints.lower[leaf]).all()
        assert (held <= constraints.upper[leaf]).all()
        assert not counts[node][~plan.support.rows[leaf]].any()


@given(seeds)
def test_the_truth_meets_the_limits(seed):
    plan, constraints, truth, limits = accepted(seed, most=7, leaves=10)
    counts = np.zeros((plan.tree.size, plan.layout.size), int)
    np.add.at(counts, plan.tree.leaf, truth)
    for nodes in reversed(plan.depths[1:]):
        np.add.at(counts, plan.tree.parent[nodes], counts[nodes])
    for node, table in enumerate(counts):
        assert within(plan, constraints, limits, node, table)


def two_counties(*, lower=0, upper=NO_LIMIT, exact=(), support=None, size=3):
    """Counties A (leaves a, b) and B (leaf c, one node with it), and types that are parts."""
    layout = type_layout(size, [np.zeros(size, int), np.arange(size) > 0])
    spine = Spine.from_codes({"county": list("AAB"), "block": list("abc")}, levels=["county", "block"])
    support = np.ones((3, size), bool) if support is None else support
    plan = plan_of(spine, layout, support)
    margins = tuple(
        ExactMargin(level, layout.margin([] if name is None else [name])) for level, name in exact
    )
    shape = np.zeros((3, size), np.int64)
    names = tuple("part " + "xyz"[j] for j in range(size))
    return plan, AreaConstraints(layout, np.arange(size), names, lower + shape, upper + shape, margins)


def test_limits_of_leaves_add_up():
    upper = np.array([[5, NO_LIMIT, 7], [5, 2, 7], [5, 2, NO_LIMIT]])
    plan, constraints = two_counties(lower=np.array([[1, 0, 2]] * 3), upper=upper)
    constraints.check(plan, "bluedown")
    limits = NodeLimits.of(plan, constraints)
    assert limits.lower.tolist() == [[3, 0, 6], [2, 0, 4], [1, 0, 2], [1, 0, 2], [1, 0, 2]]
    assert limits.upper[:3].tolist() == [[15, NO_LIMIT, NO_LIMIT], [10, NO_LIMIT, 14], [5, 2, NO_LIMIT]]
    assert (limits.exact == FREE).all()


def test_exact_sums_narrow_limits_and_go_up():
    """County A: 10 people, B: 4; at least 2 of x in each leaf, at most 1 of y."""
    plan, constraints = two_counties(
        lower=np.array([2, 0, 0]), upper=np.array([NO_LIMIT, 1, NO_LIMIT]), exact=[("county", None)]
    )
    limits = NodeLimits.of(plan, constraints, [np.array([[10], [4]])])
    assert limits.exact.tolist() == [[14], [10], [4], [FREE], [FREE]]
    assert limits.lower.tolist() == [[6, 0, 0], [4, 0, 0], [2, 0, 0], [2, 0, 0], [2, 0, 0]]
    assert limits.upper[:3].tolist() == [[14, 3, 8], [10, 2, 6], [4, 1, 2]]


def test_a_part_that_the_rest_cannot_fill():
    """10 people and at most 3 of y and 4 of z leave at least 3 of x."""
    upper = np.array([[NO_LIMIT, 1, 2], [NO_LIMIT, 2, 2], [0, 9, 9]])
    support = np.array([[True] * 3, [True] * 3, [False, True, True]])
    plan, constraints = two_counties(upper=upper, exact=[("county", None)], support=support)
    limits = NodeLimits.of(plan, constraints, [np.array([[10], [5]])])
    assert limits.lower[1].tolist() == [3, 0, 0]
    assert limits.upper[2].tolist() == [NO_LIMIT, 5, 5]  # the support alone says that there is no x
    assert limits.lower[0].tolist() == [3, 0, 0]


def test_a_finer_margin_above_a_coarser_one():
    plan, constraints = two_counties(exact=[("county", None), ("root", "join 1")])
    constraints.check(plan, "topdown")
    limits = NodeLimits.of(plan, constraints, [np.array([[10], [4]]), np.array([[5, 9]])])
    assert limits.group[:2].tolist() == [[0, 1, 1], [0, 0, 0]]
    assert limits.exact[:3].tolist() == [[5, 9], [10, FREE], [4, FREE]]
    with pytest.raises(InvalidArgument, match="root root: exact counts do not add up to those of 'total'"):
        NodeLimits.of(plan, constraints, [np.array([[10], [4]]), np.array([[6, 9]])])


def test_one_margin_at_two_levels_must_agree():
    plan, constraints = two_counties(exact=[("county", None), ("root", None)])
    values = [np.array([[10], [4]]), np.array([[14]])]
    for order in ((0, 1), (1, 0)):
        swapped = dataclasses.replace(constraints, exact=tuple(constraints.exact[i] for i in order))
        assert NodeLimits.of(plan, swapped, [values[i] for i in order]).exact[0, 0] == 14
        with pytest.raises(
            InvalidArgument, match="root root: exact counts do not add up to those of 'total'"
        ):
            NodeLimits.of(plan, swapped, [[np.array([[9], [4]]), np.array([[14]])][i] for i in order])


def test_a_county_of_one_block_is_one_node_and_exact():
    """County B and its block are one area: the node's level is the upper one."""
    plan, constraints = two_counties(exact=[("block", None)])
    limits = NodeLimits.of(plan, constraints, [np.array([[1], [2], [3]])])
    assert plan.tree.size == 5
    assert limits.exact[:, 0].tolist() == [6, 3, 3, 1, 2]


def test_contradictions_are_named_and_counts_are_not_told():
    plan, constraints = two_counties(lower=np.array([7, 6, 0]), exact=[("county", None)])
    constraints.check(plan, "topdown")
    with pytest.raises(
        InvalidArgument, match=r"county A: the exact count of 'total' is outside .* part x, part y"
    ) as told:
        NodeLimits.of(plan, constraints, [np.array([[23], [40]])])
    assert "23" not in str(told.value)
    plan, constraints = two_counties(upper=9, exact=[("root", "type")])
    with pytest.raises(InvalidArgument, match=r"root root: .*'detailed' is outside .* in part z"):
        NodeLimits.of(plan, constraints, [np.array([[27, 27, 28]])])
    with pytest.raises(InvalidArgument, match="root root: an exact count of 'detailed' is below 0"):
        NodeLimits.of(plan, constraints, [np.array([[1, 1, -1]])])


def test_exact_counts_have_their_shape():
    plan, constraints = two_counties(exact=[("county", None)])
    with pytest.raises(InvalidArgument, match="1 margins are exact, and counts of 0"):
        NodeLimits.of(plan, constraints)
    with pytest.raises(InvalidArgument, match=r"shape \(3, 1\), not \(2, 1\)"):
        NodeLimits.of(plan, constraints, [np.zeros((3, 1), int)])


def test_no_parts_of_an_exact_group_hold_nobody():
    """Where the support leaves out all parts of a group, its exact count is 0 or a contradiction."""
    support = np.array([[True] * 3, [True] * 3, [True, False, False]])
    plan, constraints = two_counties(exact=[("county", "join 1")], support=support)
    limits = NodeLimits.of(plan, constraints, [np.array([[1, 5], [4, 0]])])
    assert limits.exact[2].tolist() == [4, 0]
    with pytest.raises(InvalidArgument, match=r"county B.* part y, part z"):
        NodeLimits.of(plan, constraints, [np.array([[1, 5], [4, 1]])])


def test_exact_counts_of_what_cannot_occur_are_refused():
    layout = type_layout(3)
    impossible = layout.of(layout.domain, ["type"], np.array([False, False, True]))
    spine = Spine.from_codes({"county": list("AAB"), "block": list("abc")}, levels=["county", "block"])
    plan = plan_of(spine, impossible, np.ones((3, 2), bool))
    zero = np.zeros((3, 2), np.int64)
    exact = (ExactMargin("county", impossible.margin(["type"])),)
    constraints = AreaConstraints(impossible, np.arange(2), ("x", "y"), zero, zero + NO_LIMIT, exact)
    values = exact_counts(plan, exact[0], np.array([[1, 2], [3, 4], [5, 6]]))
    assert NodeLimits.of(plan, constraints, [values]).exact[1].tolist() == [4, 6]
    with pytest.raises(InvalidArgument, match=r"county B: .* structural zeros"):
        NodeLimits.of(plan, constraints, [values + np.array([[0, 0, 0], [0, 0, 1]])])
