"""What is refused before any data: each refusal has a parent that meets its limits and cannot be divided."""

from __future__ import annotations

import numpy as np
import pytest
from tests.topdown.limit_cases import plan_of, reachable, tables, type_layout, within

import tabulae as tb
from tabulae.errors import InvalidArgument
from tabulae.products.areas.constraints import NO_LIMIT, AreaConstraints, ExactMargin, nodes_of_units
from tabulae.products.areas.descent.limits import NodeLimits
from tabulae.products.areas.layout import CellLayout
from tabulae.products.areas.spine.spine import Spine

TWO = {"county": list("AABB"), "block": list("abcd")}


def constrained(*, part=None, lower=0, upper=NO_LIMIT, exact=(), support=None, size=4, codes=TWO, joins=()):
    """A plan of counties and blocks, and constraints on types; ``exact`` are pairs of a level and a margin's name."""
    spine = Spine.from_codes(codes, levels=list(codes))
    layout = type_layout(size, joins)
    part = np.arange(size) if part is None else np.array(part)
    shape = np.zeros((spine.leaves, part.max() + 1), np.int64)
    margins = tuple(
        ExactMargin(level, layout.margin([] if name is None else [name])) for level, name in exact
    )
    names = tuple(f"part {j}" for j in range(part.max() + 1))
    support = np.ones((spine.leaves, size), bool) if support is None else np.array(support, bool)
    plan = plan_of(spine, layout, support)
    return plan, AreaConstraints(layout, part, names, lower + shape, upper + shape, margins)


def witness(plan, constraints, values, most):
    """A table of the root that meets its limits and that its leaves cannot add up to; None where there is none."""
    limits = NodeLimits.of(plan, constraints, values)
    found = reachable(plan, constraints, limits, most)[0]
    for table in tables(plan.layout.size, most):
        if within(plan, constraints, limits, 0, table) and table not in found:
            return table
    return None


def refused(plan, constraints, match):
    """By the methods that keep limits; least squares takes it."""
    for method in ("topdown", "bluedown"):
        with pytest.raises(InvalidArgument, match=match):
            constraints.check(plan, method)
    constraints.check(plan, "gls")


def test_counties_that_lack_different_types():
    """A can count types 0 and 1, B types 2 and 3: with 2 people in each, 2 of the state's are of types 0 and 1."""
    support = [[1, 1, 0, 0]] * 2 + [[0, 0, 1, 1]] * 2
    plan, constraints = constrained(exact=[("county", None)], support=support)
    refused(
        plan,
        constraints,
        r"'total' for every county: .* part 0, part 1, part 2, part 3, because in county A two",
    )
    table = witness(plan, constraints, [np.array([[2], [2]])], 4)
    assert table is not None
    assert sum(table[:2]) != 2


def test_counties_that_lack_one_type_are_accepted():
    for first, second in (([1, 1, 1, 0], [0, 1, 1, 1]), ([1, 1, 1, 0], [1, 1, 1, 1])):
        plan, constraints = constrained(exact=[("county", None)], support=[first] * 2 + [second] * 2)
        constraints.check(plan, "topdown")
        assert witness(plan, constraints, [np.array([[2], [3]])], 5) is None


def test_three_types_are_accepted_however_they_lie():
    support = [[1, 0, 0]] * 2 + [[0, 1, 1]] * 2
    plan, constraints = constrained(
        exact=[("county", None)], support=support, size=3, upper=np.array([5, 1, NO_LIMIT])
    )
    constraints.check(plan, "bluedown")
    assert witness(plan, constraints, [np.array([[2], [3]])], 5) is None


def test_lower_limits_are_accepted_whatever_the_number_of_types():
    """As in the census: at least one person in each facility, exact totals of states."""
    plan, constraints = constrained(exact=[("county", None)], lower=np.eye(4, dtype=int))
    constraints.check(plan, "topdown")
    assert witness(plan, constraints, [np.array([[3], [3]])], 6) is None


def test_upper_limits_of_four_types_beside_exact_sums():
    """A has 1 person, B has 3 and at most 1 of a type: the state cannot have 4 of types 0 and 1."""
    upper = np.array([[NO_LIMIT] * 4] * 2 + [[1] * 4, [0] * 4])
    plan, constraints = constrained(exact=[("county", None)], upper=upper)
    refused(plan, constraints, "in county B two or more of them cannot occur, have an upper limit")
    table = witness(plan, constraints, [np.array([[1], [3]])], 4)
    assert table is not None
    assert max(sum(table[i] for i in pair) for pair in ((0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2))) == 4


def test_what_is_exact_for_the_root_alone_is_accepted():
    support = [[1, 1, 0, 0]] * 2 + [[0, 0, 1, 1]] * 2
    plan, constraints = constrained(exact=[("root", None)], support=support, upper=3)
    constraints.check(plan, "topdown")
    assert witness(plan, constraints, [np.array([[5]])], 5) is None


def test_limits_on_a_part_whose_cells_differ_between_leaves():
    """At least 2 of part 0 in block a, which can count one of its two cells alone."""
    support = [[1, 0, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]
    lower = np.array([[2, 0]] + [[0, 0]] * 3)
    plan, constraints = constrained(part=[0, 0, 1], size=3, support=support, lower=lower)
    refused(
        plan, constraints, "block a has limits on 'part 0', and some leaves can count only a few of the cells"
    )
    assert witness(plan, constraints, [], 3) == (0, 2, 0)


def test_exact_counts_of_a_part_whose_cells_differ_between_counties():
    support = [[1, 0]] * 2 + [[1, 1]] * 2
    plan, constraints = constrained(part=[0, 0], size=2, support=support, exact=[("county", None)])
    refused(plan, constraints, "county A has exact counts on 'part 0'")
    assert witness(plan, constraints, [np.array([[1], [1]])], 2) == (0, 2)


def test_cells_may_differ_between_leaves_below_exact_counts():
    support = [[1, 0], [0, 1]] * 2
    plan, constraints = constrained(part=[0, 0], size=2, support=support, exact=[("county", None)])
    constraints.check(plan, "topdown")
    assert witness(plan, constraints, [np.array([[2], [1]])], 3) is None


def two_attributes():
    layout = CellLayout.of(tb.Domain({"sex": 2, "age": 3}), ["sex", "age"])
    spine = Spine.from_codes(TWO, levels=list(TWO))
    return layout, plan_of(spine, layout, np.ones((4, 6), bool))


def test_margins_that_cut_across_each_other():
    layout, plan = two_attributes()
    free = np.zeros((4, 6), np.int64)
    exact = (ExactMargin("root", layout.margin(["sex"])), ExactMargin("county", layout.margin(["age"])))
    constraints = AreaConstraints(layout, np.arange(6), tuple("abcdef"), free, free + NO_LIMIT, exact)
    refused(plan, constraints, r"'sex' \(root\) and of 'age' \(county\) cut across each other")


def test_margins_that_cut_across_the_parts():
    layout, plan = two_attributes()
    free = np.zeros((4, 2), np.int64)
    exact = (ExactMargin("county", layout.margin(["age"])),)
    constraints = AreaConstraints(layout, layout.codes[:, 0], ("m", "f"), free, free + NO_LIMIT, exact)
    refused(plan, constraints, "'age' cut across the parts that limits are on")


def test_exact_counts_over_symmetric_attributes():
    layout = CellLayout.of(tb.Domain({"sex": 2, "age": 3}), ["sex"])
    plan = plan_of(Spine.from_codes(TWO, levels=list(TWO)), layout, np.ones((4, 2), bool))
    free = np.zeros((4, 2), np.int64)
    exact = (ExactMargin("county", layout.margin(["age"])),)
    constraints = AreaConstraints(layout, np.arange(2), ("m", "f"), free, free + NO_LIMIT, exact)
    for method in ("gls", "topdown"):
        with pytest.raises(InvalidArgument, match="the layout holds one of its attributes symmetric"):
            constraints.check(plan, method)


@pytest.mark.parametrize(
    ("lower", "upper", "why"),
    [
        ([[0, 0]] * 4, [[3, 3], [3, 3], [3, -1], [3, 3]], "block c, part 1: at_most is less than at_least"),
        ([[0, 0], [2, 0], [0, 0], [0, 0]], [[1, 1]] * 4, "block b, part 0: at_most is less than at_least"),
        ([[0, 0], [0, -2], [0, 0], [0, 0]], [[1, 1]] * 4, "block b, part 1: at_least is below 0"),
        ([[0, 0]] * 3 + [[0, 1]], [[1, 1]] * 4, "block d, part 1: at_least is more than 0 where nobody can"),
    ],
)
def test_bounds_that_no_count_meets(lower, upper, why):
    support = [[1, 1]] * 3 + [[1, 0]]
    plan, constraints = constrained(size=2, lower=np.array(lower), upper=np.array(upper), support=support)
    refused(plan, constraints, why)


def test_limits_of_another_spine():
    plan, _ = constrained()
    _, other = constrained(codes={"county": list("AB"), "block": list("ab")})
    with pytest.raises(InvalidArgument, match=r"\(2, 4\) and \(2, 4\); the spine has 4 leaves"):
        other.check(plan, "gls")


CHAIN = {"state": list("SSSS"), "county": list("AABC"), "block": list("abcd")}


def test_a_unit_is_the_deepest_node_of_its_area():
    """B and C have one block: county and block are one node. The state is the root."""
    plan, _ = constrained(codes=CHAIN)
    assert plan.tree.size == 6
    assert nodes_of_units(plan, "state").tolist() == [0]
    assert nodes_of_units(plan, "county").tolist() == [1, 2, 3]
    assert nodes_of_units(plan, "block").tolist() == [4, 5, 2, 3]
    with pytest.raises(InvalidArgument, match="'tract' is not a level of this spine: state, county, block"):
        nodes_of_units(plan, "tract")


def with_exact_counties(shares):
    layout = type_layout(2)
    plan = plan_of(Spine.from_codes(CHAIN, levels=list(CHAIN)), layout, np.ones((4, 2), bool), shares=shares)
    free = np.zeros((4, 2), np.int64)
    exact = (ExactMargin("county", layout.margin([])),)
    return plan, AreaConstraints(layout, np.arange(2), ("x", "y"), free, free + NO_LIMIT, exact)


def test_chains_that_stay_are_exact_from_end_to_end():
    plan, constraints = with_exact_counties({"state": 0, "county": "1/2", "block": "1/2"})
    limits = NodeLimits.of(plan, constraints, [np.array([[3], [4], [5]])])
    assert limits.exact[:, 0].tolist() == [12, 3, 4, 5, -1, -1, 4, 5]


def test_units_without_a_node_cannot_be_exact():
    plan, constraints = with_exact_counties({"state": "1/2", "county": 0, "block": "1/2"})
    assert nodes_of_units(plan, "block").tolist() == [1, 2, 3, 4]
    for method in ("gls", "topdown"):
        with pytest.raises(
            InvalidArgument, match="level 'county' cannot be exact: county A is not on the spine"
        ):
            constraints.check(plan, method)
