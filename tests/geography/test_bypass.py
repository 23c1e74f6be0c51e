"""Algorithm 3, Theorem 2, the exact rule and Theorem 3, against dense matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.geography.trees import areas, measured_areas, nested, random_shares, random_spine, spines, weights

from tabulae.errors import InvalidArgument
from tabulae.products.areas.spine.shares import exact_rule, paper_rule, read_shares
from tabulae.products.areas.spine.spine import Spine

ONE = Fraction(1)


def smallest_root(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix)[0])


def change(parent: Fraction, children: list[Fraction]) -> np.ndarray:
    """Precision gained when children get the parent's share, under Laplace noise and one query."""
    g, gp = np.array(children, float), float(parent)
    return np.diag((g + gp) ** 2 - g**2) - gp**2 * np.ones((g.size, g.size))


def test_the_exact_rule_is_the_loewner_order_and_the_paper_s_is_sufficient():
    """1,000 parents with children of different shares."""
    rng, missed = np.random.default_rng(1), 0
    for _ in range(1000):
        parent = Fraction(int(rng.integers(1, 30)), 30)
        children = [Fraction(int(k), 30) for k in rng.integers(0, 90, rng.integers(1, 9))]
        exact = exact_rule(parent, [(1, child, 1) for child in children])
        assert exact == (smallest_root(change(parent, children)) >= -1e-9)
        paper = paper_rule(parent, min(children), len(children))
        assert exact or not paper
        missed += exact and not paper
    assert missed > 50


def test_equal_children_make_both_rules_one():
    for c in range(1, 9):
        for child in range(20):
            parent, share = Fraction(3, 7), Fraction(child, 14)
            assert exact_rule(parent, [(c, share, 1)]) == paper_rule(parent, share, c)


def test_the_exact_rule_for_different_queries():
    """500 parents whose queries differ from their children's; one query's direction decides."""
    rng, yes = np.random.default_rng(2), 0
    for _ in range(500):
        cells, count = int(rng.integers(1, 5)), int(rng.integers(2, 5))
        upper, lower = (a @ a.T + 0.2 * np.eye(cells) for a in rng.normal(size=(2, cells, cells)))
        parent, shares = (
            Fraction(int(rng.integers(1, 10)), 40),
            [Fraction(int(k), 40) for k in rng.integers(1, 40, count)],
        )
        g, gp = np.array(shares, float), float(parent)
        gain = np.kron(np.diag((g + gp) ** 2 - g**2), lower) - gp**2 * np.kron(np.ones((count, count)), upper)
        factor = float(np.linalg.eigvals(np.linalg.solve(lower, upper)).real.max())
        found = exact_rule(parent, [(1, share, factor) for share in shares])
        assert found == (smallest_root(gain) >= -1e-12)
        yes += found
    assert 25 < yes < 475


def printed_algorithm(spine: Spine, shares: dict[str, Fraction], allowed) -> dict[frozenset[int], Fraction]:
    """Algorithm 3 with the paper's way to bypass: children move into their parent's level."""
    levels = list(shares.values())

    def build(node, depth):
        if isinstance(node, int):
            return [frozenset([node]), levels[depth], []]
        below = [build(child, depth + 1) for child in node]
        return [frozenset().union(*(b[0] for b in below)), levels[depth], below]

    def bypassed(node):
        """The units that stand in the node's place in its level."""
        below = [unit for child in node[2] for unit in bypassed(child)]
        node = [node[0], node[1], below]
        if below and allowed(node[1], [child[1] for child in below]):
            return [[child[0], child[1] + node[1], child[2]] for child in below]
        return [node]

    def collect(node, into):
        assert node[0] not in into
        into[node[0]] = node[1]
        for child in node[2]:
            collect(child, into)

    found: dict[frozenset[int], Fraction] = {}
    for node in bypassed(build(nested(spine), 0)):
        collect(node, found)
    return found


RULES = {
    ("gaussian", "exact"): lambda p, c: len(c) == 1,
    ("gaussian", "paper"): lambda p, c: len(c) == 1,
    ("laplace", "paper"): lambda p, c: min(c) >= (len(c) - 1) * p / 2,
    ("laplace", "exact"): lambda p, c: smallest_root(change(p, c)) >= -1e-9,
}


@pytest.mark.parametrize(
    ("noise", "rule"),
    [pytest.param(*r, marks=pytest.mark.long if r == ("laplace", "exact") else ()) for r in RULES],
)
def test_equals_the_printed_algorithm(noise, rule):
    """1,000 random trees for the rule that is not printed, judged there by the smallest root of a dense matrix."""
    rng = np.random.default_rng(3)
    for _ in range(1000 if (noise, rule) == ("laplace", "exact") else 100):
        spine = random_spine(rng, int(rng.integers(2, 13)), int(rng.integers(2, 6)))
        shares = random_shares(rng, spine)
        found = spine.bypass(shares, noise=noise, rule=rule)
        assert measured_areas(found) == printed_algorithm(spine, shares, RULES[noise, rule])


@given(spine=spines(leaves=(2, 25), depth=(2, 5)), data=st.data())
def test_every_path_sums_to_exactly_one(spine, data):
    parts = data.draw(st.lists(st.integers(0, 50), min_size=len(spine.levels), max_size=len(spine.levels)))
    parts[-1] += 1
    shares = {level: Fraction(part, sum(parts)) for level, part in zip(spine.levels, parts, strict=True)}
    for noise, rule in RULES:
        done = spine.bypass(shares, noise=noise, rule=rule)
        column = [done.shares[level] for level in done.levels]
        for leaf in range(spine.leaves):
            assert sum(c[done.units[level][leaf]] for c, level in zip(column, done.levels, strict=True)) == 1
        assert done.shares.path_sums(done.hierarchy) == {ONE}


@pytest.mark.parametrize("rule", ["exact", "paper"])
@each("trees", [40], long=[300])
def test_no_variance_grows(rule, trees):
    """The precision of all leaves after, less the precision before, has no negative root."""
    rng = np.random.default_rng(4)
    for _ in range(trees):
        spine = random_spine(rng, int(rng.integers(2, 13)), int(rng.integers(2, 5)))
        shares = random_shares(rng, spine)
        on = areas(spine).astype(float)
        before, after = (
            on.T @ (weights(s)[:, None] ** 2 * on)
            for s in (spine.with_shares(shares), spine.bypass(shares, "laplace", rule))
        )
        assert smallest_root(after - before) >= -1e-12
        same, merged = (
            on.T @ (weights(s)[:, None] * on)
            for s in (spine.with_shares(shares), spine.bypass(shares, "gaussian", rule))
        )
        np.testing.assert_allclose(merged, same, atol=1e-14)


@each("trees", [100], long=[300])
def test_no_variance_grows_with_different_queries(trees):
    rng, some = np.random.default_rng(5), 0
    for _ in range(trees):
        leaves = int(rng.integers(4, 9))
        codes = {
            "area": [str(i % (leaves // 2)) for i in range(leaves)],
            "leaf": [f"{i}" for i in range(leaves)],
        }
        spine = Spine.from_codes(
            codes, levels=["area", "leaf"]
        )  # no unit of one child, whose queries take over
        grams = {
            level: a @ a.T + np.eye(2)
            for level, a in zip(spine.levels, rng.normal(size=(3, 2, 2)), strict=True)
        }
        shares = random_shares(rng, spine)
        done = spine.bypass(shares, "laplace", queries=grams)
        precision = [
            sum(
                np.kron(np.outer(row, row) * float(share) ** 2, grams[level])
                for level in s.levels
                for row, share in zip(areas_of(s, level), s.shares[level], strict=True)
            )
            for s in (spine.with_shares(shares), done)
        ]
        assert smallest_root(precision[1] - precision[0]) >= -1e-10
        some += not all(done.shares["area"])
    assert trees / 10 < some < trees * 9 / 10


def areas_of(spine: Spine, level: str) -> np.ndarray:
    return np.eye(len(spine.codes[level]))[:, spine.units[level]]


@pytest.mark.parametrize(("noise", "rule"), RULES)
def test_one_pass_is_enough(noise, rule):
    rng = np.random.default_rng(6)
    for _ in range(50):
        spine = random_spine(rng, int(rng.integers(2, 13)), int(rng.integers(2, 6)))
        done = spine.bypass(random_shares(rng, spine), noise=noise, rule=rule)
        tree, share = done.tree, [done.shares[level] for level in done.levels]
        own = [share[level][unit] for level, unit in zip(tree.level, tree.unit, strict=True)]
        for node in range(tree.size):
            children = [own[v] for v in np.flatnonzero(tree.parent == node)]
            assert not (children and own[node] and RULES[noise, rule](own[node], children))


@given(spine=spines(leaves=(2, 25), depth=(2, 5)), data=st.data())
def test_the_tree_holds_what_is_measured(spine, data):
    parts = data.draw(st.lists(st.integers(0, 9), min_size=len(spine.levels), max_size=len(spine.levels)))
    shares = {
        level: Fraction(part + 1, sum(parts) + len(parts))
        for level, part in zip(spine.levels, parts, strict=True)
    }
    given_shares = spine.with_shares(shares)
    for s in (spine, given_shares, spine.bypass(shares), spine.bypass(shares, "laplace")):
        tree = s.tree
        assert tree.parent[0] == -1
        assert np.all(np.diff(tree.parent) >= 0), "breadth first, siblings side by side"
        assert np.all(tree.parent[1:] < np.arange(1, tree.size))
        held = np.zeros((tree.size, s.leaves), bool)
        held[tree.leaf, np.arange(s.leaves)] = True
        for node in range(tree.size - 1, 0, -1):
            held[tree.parent[node]] |= held[node]
        for node in range(tree.size):
            level = s.levels[tree.level[node]]
            assert np.array_equal(held[node], s.units[level] == tree.unit[node])
        assert np.all(held.any(axis=1))
        areas_held = {frozenset(np.flatnonzero(row).tolist()) for row in held}
        if s.shares is None:
            assert tree.size == sum(map(len, s.codes.values()))
        elif s is not given_shares:
            assert areas_held == {*measured_areas(s), frozenset(range(s.leaves))}


GOOD = {"root": "1/2", "tract": "1/4", "block": "1/4"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"block": "1/3"}, "add up to 13/12, not 1"),
        ({"block": 0.25}, "write a fraction in quotes"),
        ({"block": True}, "write a fraction in quotes"),
        ({"block": "a quarter"}, "not a fraction"),
        ({"block": "1/0"}, "not a fraction"),
        ({"block": "-1/4"}, "0 or more"),
        ({"block": 0, "tract": "1/2"}, "leaves need a share"),
        ({"county": 0}, "'county' is not a level of this spine; its levels are root, tract, block"),
    ],
)
def test_bad_shares_are_taught(changed, told):
    spine = Spine.from_codes({"tract": list("AAB"), "block": list("abc")}, levels=["tract", "block"])
    with pytest.raises(InvalidArgument, match=told):
        spine.bypass({**GOOD, **changed})


def test_bad_requests_are_taught():
    spine = Spine.from_codes({"tract": list("AAB"), "block": list("abc")}, levels=["tract", "block"])
    eye, ones = np.eye(2), np.ones((2, 2))
    for call, told in [
        (lambda: spine.bypass({"block": 1}), "level 'root' has no share"),
        (lambda: spine.bypass(GOOD, noise="normal"), "noise is 'normal'; it is one of laplace, gaussian"),
        (lambda: spine.bypass(GOOD, rule="mine"), "rule is 'mine'"),
        (lambda: spine.bypass(GOOD, queries=dict.fromkeys(GOOD, eye)), "Laplace noise alone"),
        (lambda: spine.bypass(GOOD, "laplace", queries={"root": eye}), "needed for root, tract, block"),
        (
            lambda: spine.bypass(GOOD, "laplace", queries={**dict.fromkeys(GOOD, eye), "tract": np.eye(3)}),
            "shape",
        ),
        (
            lambda: spine.bypass(GOOD, "laplace", queries={**dict.fromkeys(GOOD, eye), "block": ones}),
            "every cell",
        ),
        (lambda: spine.bypass(GOOD).shares["county"], "'county' is not a level"),
        (lambda: spine.bypass(GOOD).shares.floats("county"), "'county' is not a level"),
    ]:
        with pytest.raises(InvalidArgument, match=told):
            call()


def test_zero_shares_are_moved_through():
    """A level without a share is not a level at all."""
    spine = Spine.from_codes({"tract": list("AAB"), "block": list("abc")}, levels=["tract", "block"])
    done = spine.bypass({"root": "1/2", "tract": 0, "block": "1/2"})
    assert done.shares["tract"] == [0, 0]
    assert done.tree.parent.tolist() == [-1, 0, 0, 0]
    assert read_shares(spine.hierarchy, GOOD).path_sums(spine.hierarchy) == {ONE}
