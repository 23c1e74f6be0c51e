"""Plans of a spine: budget, noise, supports, and what measurements say."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.each import each
from tests.topdown.two_pass_cases import DenseSpine, kind_matrix, measured, random_plan

from tabulae import ZCDP, ApproxDP, Domain, PureDP
from tabulae.errors import InvalidArgument
from tabulae.products.areas import spine_plan
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.spine.shares import Shares
from tabulae.products.areas.spine.spine import Spine
from tabulae.products.areas.spine_plan import SpinePieceValues, SpinePlan

HALF = Fraction(1, 2)


def small_plan(**changes) -> SpinePlan:
    codes = {"county": list("AAB"), "block": list("abc")}
    spine = Spine.from_codes(codes, levels=["county", "block"])
    spine = spine.bypass({"root": "1/4", "county": "1/4", "block": "1/2"})
    layout = CellLayout.of(Domain({"type": 2, "race": 3}), ["type"])
    given = {
        "spine": spine,
        "layout": layout,
        "queries": (layout.margin([]), layout.margin(["type", "race"])),
        "query_shares": dict.fromkeys(spine.levels, (HALF, HALF)),
        "budget": ZCDP(1),
        "support": Supports.of(np.array([[1, 0], [1, 1], [0, 1]], bool)),
    }
    return SpinePlan(**{**given, **changes})


@each("seed", range(20))
@each(("neighbours", "units"), [("replace", 2), ("add-remove", 1)])
def test_one_record_costs_the_budget(seed, neighbours, units):
    """Along every path the rows that one record changes, each with its own noise, cost exactly the budget."""
    plan = replace(random_plan(np.random.default_rng(seed)), neighbours=neighbours, rows_per_unit=3)
    spine = plan.spine
    assert spine.shares is not None
    for leaf in range(spine.leaves):
        cost = Fraction(0)
        for level in spine.levels:
            share = spine.shares[level][spine.units[level][leaf]]
            for query in range(len(plan.queries)):
                law = plan.law(level, share, query)
                if law is None:
                    assert not share * plan.query_shares[level][query]
                elif isinstance(plan.budget, ZCDP):
                    cost += Fraction(units * 3**2) / (2 * law.parameter)
                else:
                    cost += Fraction(units * 3) / law.parameter
        assert cost == plan.budget.amount
    assert plan.loss is plan.budget


@pytest.mark.parametrize("seed", range(10))
def test_pieces_cover_every_node_that_is_measured_once(seed, monkeypatch):
    monkeypatch.setattr(spine_plan, "PIECE_VALUES", 60)
    plan = random_plan(np.random.default_rng(seed))
    seen = np.concatenate([piece.nodes for piece in plan.pieces])
    kinds = plan.classes[1]
    assert sorted(seen.tolist()) == [u for u in range(plan.tree.size) if any(plan.laws(int(kinds[u])))]
    assert [piece.level for piece in plan.pieces] == sorted(piece.level for piece in plan.pieces)
    for piece in plan.pieces:
        assert len(set(kinds[piece.nodes])) == 1
        assert (np.diff(piece.nodes) > 0).all()
        support = plan.dense_cells[piece.pattern]
        for query, law, rows in zip(
            plan.queries, plan.laws(int(kinds[piece.nodes[0]])), piece.rows, strict=True
        ):
            assert rows == (0 if law is None else query.present(support).size * query.inner)


@each("seed", range(10))
def test_depths_children_and_supports(seed):
    plan = random_plan(np.random.default_rng(seed))
    dense, tree = DenseSpine(plan), plan.tree
    for node in range(tree.size):
        children = np.arange(plan.children[node], plan.children[node + 1])
        assert np.array_equal(children, np.flatnonzero(tree.parent == node))
        assert (plan.depth[children] == plan.depth[node] + 1).all()
        assert plan.depths[plan.depth[node]].start <= node < plan.depths[plan.depth[node]].stop
        support = plan.support.rows[dense.inside(node)].any(axis=0)
        assert np.array_equal(plan.dense_cells[plan.pattern[node]], np.flatnonzero(support))
        assert plan.offsets[node + 1] - plan.offsets[node] == support.sum() * plan.layout.algebra.cells


@each("seed", range(10))
def test_precision_and_information_are_those_of_the_rows(seed):
    rng = np.random.default_rng(seed)
    plan = random_plan(rng)
    dense = DenseSpine(plan)
    precision = sum(
        dense.node(u).T @ kind_matrix(plan, plan.precision(int(plan.classes[1][u]))) @ dense.node(u)
        for u in range(plan.tree.size)
    )
    assert np.allclose(precision, dense.information)
    truth = rng.integers(0, 9, dense.possible.sum()).astype(float)
    laws = [law for kind in range(len(plan.classes[0])) for law in plan.laws(kind) if law is not None]
    noisy = measured(rng, plan, dense, truth)
    difference = dense.linear(noisy) - dense.information @ truth
    spread = np.sqrt(np.diag(dense.information))
    assert (
        np.abs(difference / spread).max() < 8
    )  # normal: one of 500 beyond 8 in fewer than 1e-12 of all runs
    assert laws


def test_answers_that_are_not_asked_say_nothing():
    plan = small_plan(
        query_shares={"root": (HALF, HALF), "county": (Fraction(0), Fraction(1)), "block": (HALF, HALF)}
    )
    piece = next(piece for piece in plan.pieces if piece.level == 1)
    assert piece.rows[0] == 0
    answers = np.arange(piece.nodes.size * piece.rows[1]).reshape(piece.nodes.size, -1)
    found = plan.information(SpinePieceValues(piece, (None, answers)))
    law = plan.laws(int(plan.classes[1][piece.nodes[0]]))[1]
    assert law is not None
    assert np.allclose(found.reshape(piece.nodes.size, -1), answers / law.variance_of_law)


@each(
    ("changes", "message"),
    [
        ({"budget": ApproxDP(1, "1e-9")}, "PureDP or ZCDP"),
        ({"rows_per_unit": 0}, "must be 1 or more"),
        ({"support": Supports.of(np.ones((3, 1), bool))}, "and 1 dense cells, .* the layout 2"),
        ({"support": Supports.of(np.array([[1, 1], [0, 0], [1, 1]], bool))}, "does not belong on the spine"),
        ({"query_shares": {"block": (HALF, HALF)}}, "'root' has a share of the budget and no queries"),
        ({"query_shares": dict.fromkeys(("root", "county", "block"), (HALF,))}, "one share a query"),
        (
            {"query_shares": dict.fromkeys(("root", "county", "block"), (HALF, Fraction(1, 3)))},
            "add up to 5/6",
        ),
        (
            {"query_shares": {k: (Fraction(1), Fraction(0)) for k in ("root", "county", "block")}},
            "tells apart",
        ),
        ({"neighbours": "friends"}, "friends"),
        ({"neighbours": "replace-within-invariants"}, "add-remove"),
        ({"neighbours": "record-free"}, "add-remove"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        small_plan(**changes)


def test_a_spine_without_shares_and_a_recode_of_a_symmetric_attribute_are_refused():
    bare = Spine.from_codes({"county": list("AAB"), "block": list("abc")}, levels=["county", "block"])
    with pytest.raises(InvalidArgument, match="has no shares"):
        small_plan(spine=bare)
    plan = small_plan()
    merged = replace(plan.layout.margin(["race"]), maps=(np.array([0, 0, 1]),))
    with pytest.raises(InvalidArgument, match="make the attribute dense"):
        small_plan(queries=(merged, plan.queries[1]))


def test_pure_budget_is_taken():
    plan = small_plan(budget=PureDP(1))
    assert {law.name for law in plan.laws(0) if law is not None} == {"discrete-laplace"}


@pytest.mark.parametrize("leaf", ["1/3", "2/3"])
def test_shares_that_do_not_add_up_on_some_path_are_refused(leaf):
    """Made by hand, and wrong for the third leaf alone: too little, and too much."""
    spine = small_plan().spine
    values = (Fraction(0), Fraction(1, 2), Fraction(leaf))
    index = (np.array([1]), np.array([0, 0]), np.array([1, 1, 2]))
    with pytest.raises(InvalidArgument, match="some path from the root to a leaf do not add up to 1"):
        small_plan(spine=replace(spine, shares=Shares(spine.levels, values, index)))
    small_plan(spine=replace(spine, shares=Shares(spine.levels, values, (*index[:2], np.array([1, 1, 1])))))
