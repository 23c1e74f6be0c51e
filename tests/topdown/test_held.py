"""Areas that are held: nodes of the tree without a share, so that their counts can be exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.geography.trees import random_areas, random_spine
from tests.topdown.descent_cases import Case, random_case
from tests.topdown.test_estimate import check_whole, exact_counts, limits, seeds

from tabulae.errors import InvalidArgument
from tabulae.products.areas.constraints import AreaConstraints, ExactMargin
from tabulae.products.areas.estimate import estimate_spine
from tabulae.products.areas.layout import Supports
from tabulae.products.areas.spine.spine import Spine


def leaf_sets(spine: Spine) -> list[frozenset[int]]:
    """The leaves of each node of the tree, by the paths up from them."""
    tree, found = spine.tree, [set() for _ in range(spine.tree.size)]
    for leaf, node in enumerate(tree.leaf.tolist()):
        while node >= 0:
            found[node].add(leaf)
            node = int(tree.parent[node])
    return [frozenset(one) for one in found]


@settings(max_examples=60)
@given(seeds, st.integers(2, 9), st.integers(2, 4), st.booleans())
def test_areas_are_held_where_no_unit_is_cut(seed, leaves, depth, random):
    """Accepted exactly where every two of the sets are apart or one in the other; each then is a node, once."""
    rng = np.random.default_rng(seed)
    spine = random_spine(rng, leaves, depth)
    spine = spine.bypass(dict.fromkeys(spine.levels, f"1/{len(spine.levels)}"))
    codes = random_areas(rng, spine)
    if random:
        codes = [None if code < 0 else str(code) for code in rng.integers(-1, 3, leaves).tolist()]
    assume(any(codes))
    sets = {
        frozenset(np.flatnonzero(np.array(codes, object) == code).tolist()) for code in set(codes) - {None}
    }
    before = set(leaf_sets(spine))
    nested = all(not (a & b) or a <= b or b <= a for a, b in combinations(before | sets, 2))
    if not nested:
        with pytest.raises(InvalidArgument, match=r"town cannot be exact: .* holds a part of"):
            spine.hold("town", codes)
        return
    held = spine.hold("town", codes)
    found = leaf_sets(held)
    assert set(found) == before | sets
    assert len(found) == spine.tree.size + len(sets - before)
    depths = [sum(1 for other in found if one < other) for one in set(found)]
    assert len(held.tree.depths) <= max(depths) + len(found)
    parent = held.tree.parent
    for node, one in enumerate(found[1:], 1):
        above = [other for other in found if one < other]
        assert not above or len(found[parent[node]]) in {len(one), min(map(len, above))}
    assert (np.diff(parent) >= 0).all()


@pytest.mark.parametrize("method", ["gls", "topdown", "bluedown"])
@settings(max_examples=settings().max_examples // 2)
@given(
    seeds,
    st.integers(3, 12),
    st.integers(2, 4),
    st.sampled_from(["gaussian", "laplace", None]),
    st.booleans(),
)
def test_exact_counts_of_held_areas_are_met(method, seed, leaves, depth, bypass, bounded):
    """A split spine: its whole states, and sums of units at random levels; an addition of its own sees to them."""
    rng = np.random.default_rng(seed)
    case = random_case(rng, leaves, depth, rho="1/10", bypass=bypass)
    plan = case.plan
    spine = plan.spine.hold("held", random_areas(rng, plan.spine))
    support = plan.support if bounded else Supports.of(np.ones_like(plan.support.rows))
    case = Case(replace(plan, spine=spine, support=support), case.truth)
    exact = (
        ExactMargin("held", plan.layout.margin(())),
        ExactMargin(spine.levels[0], plan.layout.margin(())),
    )
    values = exact_counts(case, exact)
    known = limits(rng, case, exact, bounded=bounded)
    if not bounded:
        part = np.zeros(plan.layout.size, np.int64)
        known = AreaConstraints(plan.layout, part, ("all",), known.lower[:, :1], known.upper[:, :1], exact)
    try:
        known.check(case.plan, method)
    except InvalidArgument:
        assert bounded
        return
    done = estimate_spine(case.plan, case.values(seed % 97), method, constraints=known, exact_values=values)
    x = done.leaf_counts(0, leaves) if method == "gls" else check_whole(case, done)
    for code, count in zip(spine.held["held"].codes, values[0][:, 0], strict=True):
        mine = spine.held["held"].unit == np.flatnonzero(spine.held["held"].codes == code)
        assert abs(x[mine].sum() - count) < 1e-6
        assert count == case.truth[mine].sum()
    if method != "gls" and bounded:
        parts = x.sum(axis=2)
        assert ((parts >= known.lower) & (parts <= known.upper)).all()


def split_states() -> Spine:
    codes = {"state": list("AAABBB"), "county": ["a", "a", "b", "c", "c", "c"], "block": list("123456")}
    spine = Spine.from_codes(codes, levels=list(codes)).split(
        np.array([True, False, True, False, True, True])
    )
    return spine.with_shares(dict.fromkeys(spine.levels, "1/4"))


def test_states_of_two_parts_are_whole_above_them():
    spine = split_states().hold("state", list("AAABBB"))
    assert [spine.unit_name(spine.tree, node) for node in range(7)] == [
        "root root", "state A", "state B", "state A|in", "state A|out", "state B|in", "state B|out"
    ]  # fmt: skip
    assert spine.areas("state").codes.tolist() == ["A", "B"]
    assert spine.levels == ("root", "state", "county", "block")


def test_areas_that_cut_units_are_refused_by_name():
    """County c lies in both parts of state B: exact counties would have to be found across its parts."""
    with pytest.raises(
        InvalidArgument, match=r"county a holds a part of state A.in, and lies outside it, too"
    ):
        split_states().hold("county", ["a", "a", "b", "c", "c", "c"])
    with pytest.raises(InvalidArgument, match="no leaf lies in any town"):
        split_states().hold("town", [None] * 6)
    with pytest.raises(InvalidArgument, match="5 codes for 6 leaves"):
        split_states().hold("town", list("abcde"))


def test_some_areas_with_exact_counts_beside_others_without():
    """With limits on several parts, the rest of an area is not described by limits on each: told, not found out."""
    case = random_case(np.random.default_rng(3), 6, 3)
    spine = case.plan.spine
    one = np.flatnonzero(spine.tree.parent[spine.tree.leaf] == spine.tree.parent[spine.tree.leaf[0]])
    spine = spine.hold("town", ["t" if leaf in one else None for leaf in range(6)])
    plan, margin = (
        replace(case.plan, spine=spine, support=Supports.of(np.ones_like(case.plan.support.rows))),
        case.plan.layout.margin([]),
    )
    free = np.zeros((6, 3), np.int64)
    known = AreaConstraints(
        plan.layout, np.arange(3), tuple("abc"), free, free + 2**62, (ExactMargin("town", margin),)
    )
    with pytest.raises(InvalidArgument, match=r"'total' for every town: .* has them, other parts of"):
        known.check(plan, "bluedown")
    known.check(plan, "gls")
    alone = AreaConstraints(
        plan.layout, np.zeros(3, int), ("all",), free[:, :1], free[:, :1] + 2**62, known.exact
    )
    alone.check(plan, "bluedown")
