"""Counts of areas: sums over leaves as by definition, and nothing of them told."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each
from tests.measure.spines import counts, plan, records, table

import tabulae as tb
from tabulae.domain import Domain
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.privacy import ZCDP
from tabulae.products.areas.constraints import ExactMargin
from tabulae.products.areas.count import SpineCounts
from tabulae.products.areas.layout import CellLayout, Supports
from tabulae.products.areas.spine_plan import SpinePlan


@given(seed=st.integers(0, 10**6))
def test_a_piece_has_the_counts_of_its_nodes(seed: int) -> None:
    """Cell by cell, levels asked for in the plan's order and against it."""
    made = plan(seed)
    people = records(made, 50, seed)
    found, whole = counts(made, people), made.layout.margin(made.layout.domain.names)
    for piece in (*made.pieces, *reversed(made.pieces)):
        x = found.piece(piece, made)
        cells = made.layout.cell[made.dense_cells[piece.pattern]]
        assert x.shape == (piece.nodes.size, *cells.shape)
        for node, given_counts in zip(piece.nodes, x, strict=True):
            truth = table(made, whole, piece.level, int(made.tree.unit[node]), people)
            assert (given_counts == truth[cells]).all()
            assert given_counts.sum() == truth.sum()


@given(seed=st.integers(0, 10**6), names=st.sampled_from([[], ["group"], ["quarters"]]))
def test_exact_counts_are_those_of_every_unit(seed: int, names: list[str]) -> None:
    made = plan(seed)
    people = records(made, 50, seed)
    margin = made.layout.margin(names)
    for position, level in enumerate(made.spine.levels):
        found = counts(made, people).exact(made, ExactMargin(level, margin))
        truth = [
            table(made, margin, position, unit, people)[margin.order[:, 0]]
            for unit in range(made.spine.codes[level].size)
        ]
        assert (found == np.array(truth)).all()


def test_a_margin_over_symmetric_attributes_cannot_be_exact() -> None:
    made = plan(1)
    with pytest.raises(InvalidArgument, match="make them dense"):
        counts(made, []).exact(made, ExactMargin("root", made.layout.margin(["race"])))


def test_entries_of_one_place_are_added_in_any_order() -> None:
    made = plan(3)
    people = records(made, 60)
    one, two = counts(made, people), counts(made, people[::-1])
    leaf = np.array([p[0] for p in people])
    place = made.layout.place[[p[1] for p in people]]
    twice = SpineCounts(made, np.tile(leaf, 2), np.tile(place, 2), np.repeat([3, 0], leaf.size))
    assert one.fingerprint() == two.fingerprint() != twice.fingerprint()
    assert (one.records, twice.records) == (60, 180)
    for piece in made.pieces:
        assert (3 * one.piece(piece, made) == twice.piece(piece, made)).all()


@pytest.mark.parametrize("entries", [1, 7])
def test_how_many_are_looked_at_together_changes_nothing(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(3)
    people = records(made, 60)
    margins = [ExactMargin(level, made.layout.margin(["quarters"])) for level in made.spine.levels]
    whole = counts(made, people)
    truth = [whole.exact(made, margin) for margin in margins]
    monkeypatch.setattr("tabulae.products.areas.count._ENTRIES", entries)
    found = counts(made, people)
    assert found.records == whole.records == 60
    for margin, expected in zip(margins, truth, strict=True):
        assert (found.exact(made, margin) == expected).all()
    other = counts(made, [*people[:-1], people[0]])
    assert found.fingerprint() == counts(made, people[::-1]).fingerprint() != other.fingerprint()
    leaf = np.array([*(leaf for leaf, _ in people), made.spine.leaves])
    place = made.layout.place[[cell for _, cell in [*people, people[0]]]]
    with pytest.raises(InvalidArgument, match="outside"):
        SpineCounts(made, leaf, place, np.ones(leaf.size, np.int64))


@each("cells", [255, 256, 257, 65_537])
@each("people", [255, 256, 65_535, 65_536, 2**32])
def test_cells_and_people_at_the_limits_of_small_integers(cells: int, people: int) -> None:
    spine = tb.Spine.from_codes({"leaf": ["a", "b"]}, levels=["leaf"]).with_shares(
        {"root": "1/2", "leaf": "1/2"}
    )
    layout = CellLayout.of(Domain({"age": cells}), [])
    shares = dict.fromkeys(spine.levels, (Fraction(1),))
    made = SpinePlan(
        spine, layout, (layout.margin(["age"]),), shares, ZCDP(1), Supports.of(np.ones((2, 1), bool))
    )
    place = np.array([0, cells - 1, cells - 1])
    found = SpineCounts(made, np.array([0, 0, 1]), place, np.array([1, people, people]))
    root, leaves = (found.piece(piece, made)[:, 0] for piece in made.pieces)
    assert root[0, [0, -1]].tolist() == [1, 2 * people]
    assert leaves[:, -1].tolist() == [people, people]
    assert found.records == leaves.sum() == 2 * people + 1


def test_nothing_of_them_is_told() -> None:
    found = counts(plan(1), records(plan(1), 7))
    assert repr(found) == "SpineCounts(confidential)"
    with pytest.raises(Unsupported, match="confidential"):
        pickle.dumps(found)


def test_counts_where_the_plan_has_none_are_refused() -> None:
    made = plan(1)
    leaf, dense = np.argwhere(~made.support.rows)[0]
    inner = made.layout.algebra.cells
    one = np.ones(1, np.int64)
    with pytest.raises(InvalidArgument, match="cannot occur in their leaves"):
        SpineCounts(made, np.array([leaf]), np.array([dense * inner]), one)
    for leaves, places in (([made.spine.leaves], [0]), ([0], [-1]), ([0], [made.layout.cell.size])):
        with pytest.raises(InvalidArgument, match="outside the plan"):
            SpineCounts(made, np.array(leaves), np.array(places), one)


def test_a_plan_with_other_leaves_or_supports_is_another() -> None:
    made, other = plan(1), plan(1)
    everywhere = records(made, 500)
    counts(made, everywhere).check(other)
    narrow = other.support.rows
    narrow[everywhere[0][0]] = False
    object.__setattr__(other, "support", Supports.of(narrow))
    with pytest.raises(InvalidArgument, match="other supports"):
        counts(made, everywhere).check(other)
    with pytest.raises(InvalidArgument, match="other leaves or cells"):
        counts(made, everywhere).check(plan(2))


def test_plans_that_nest_the_same_leaves_otherwise_may_be_asked_in_turn() -> None:
    layout = CellLayout.of(Domain({"x": 2}))

    def nested(county: str) -> SpinePlan:
        codes = {"county": list(county), "block": list("abcdef")}
        made = tb.Spine.from_codes(codes, levels=list(codes))
        shares = {level: Fraction(1, 3) for level in made.levels}
        whole = dict.fromkeys(made.levels, (Fraction(1),))
        support = np.ones((6, 1), bool)
        return SpinePlan(
            made.with_shares(shares), layout, (layout.margin(["x"]),), whole, ZCDP(1), Supports.of(support)
        )

    plans = [nested("AAABBB"), nested("ABBBBB")]
    one = SpineCounts(plans[0], np.arange(6), np.zeros(6, np.int64), 10 ** np.arange(6))
    for first, second in zip(plans[0].pieces, plans[1].pieces, strict=True):
        for made, piece in ((plans[0], first), (plans[1], second), (plans[0], first)):
            unit = made.spine.hierarchy.units[piece.level]
            wanted = [int((10 ** np.arange(6))[unit == u].sum()) for u in made.tree.unit[piece.nodes]]
            assert one.piece(piece, made)[:, 0, 0].tolist() == wanted
