"""Spines from columns, parents and sdcTable's list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from tests.each import each
from tests.geography.trees import columns, nested

from tabulae.errors import InvalidArgument
from tabulae.products.areas.spine.spine import Spine


@given(codes=columns(leaves=(2, 20), depth=(2, 5)))
def test_every_leaf_lies_in_the_units_of_its_row(codes):
    spine = Spine.from_codes(codes, levels=list(codes))
    assert spine.levels[-len(codes) :] == tuple(codes)
    for level, column in codes.items():
        assert spine.codes[level][spine.units[level]].tolist() == column
    assert len(next(iter(spine.codes.values()))) == 1


def test_a_root_is_added_only_above_several_units():
    several = Spine.from_codes({"tract": list("AAB"), "block": list("abc")}, levels=["tract", "block"])
    one = Spine.from_codes({"tract": list("AAA"), "block": list("abc")}, levels=["tract", "block"])
    alone = Spine.from_codes({"block": list("abc")}, levels=["block"])
    assert several.levels == ("root", "tract", "block")
    assert one.levels == ("tract", "block")
    assert alone.levels == ("root", "block")


def test_levels_left_out_are_stood_in_for():
    """An independent city has no county; an island has no tract; both keep one unit a level."""
    codes = {
        "state": ["S", "S", "S", "S"],
        "county": ["A", "A", None, "I"],
        "tract": ["A1", "A1", "city", None],
        "block": ["a", "b", "c", float("nan")],
    }
    spine = Spine.from_codes(codes, levels=list(codes))
    assert {level: found.tolist() for level, found in spine.codes.items()} == {
        "state": ["S"],
        "county": ["A", "I", "city"],
        "tract": ["A1", "I", "city"],
        "block": ["a", "b", "c", "I"],
    }
    assert spine.units["county"].tolist() == [0, 0, 2, 1]


def test_three_ways_to_write_one_tree():
    """sdcTable's form, parent columns and codes."""
    units = ["all", "A", "A1", "A2", "B", "C", "C1"]
    marks = ["@", "@@", "@@@", "@@@", "@@", "@@", "@@@"]
    parents = [None, "all", "A", "A", "all", "all", "C"]
    levels = ["whole", "area", "part"]
    codes = {"whole": ["all"] * 4, "area": list("AABC"), "part": ["A1", "A2", None, "C1"]}
    three = [
        Spine.from_sdc(marks, units, levels),
        Spine.from_parents(units, parents, levels),
        Spine.from_codes(codes, levels),
    ]
    for spine in three:
        assert nested(spine) == [[0, 1], [2], [3]]
        assert spine.codes["part"].tolist() == ["A1", "A2", "B", "C1"]


def test_parents_in_any_order_and_several_top_units():
    spine = Spine.from_parents(["a1", "B", "a", "a2"], ["a", None, None, "a"], ["area", "part"])
    assert spine.levels == ("root", "area", "part")
    assert spine.codes["part"].tolist() == ["a1", "B", "a2"]
    assert spine.units["area"].tolist() == [1, 0, 1]


def test_whole_numbers_are_codes():
    spine = Spine.from_codes({"tract": np.array([7, 7, 8]), "block": [1, 2, 3]}, levels=["tract", "block"])
    assert spine.codes["tract"].tolist() == ["7", "8"]


def test_columns_of_arrow_are_codes():
    tract = pa.array(["A", "A", None])
    spine = Spine.from_codes(
        {"tract": tract, "block": pa.chunked_array([["a", "b", "c"]])}, levels=["tract", "block"]
    )
    assert spine.codes["tract"].tolist() == ["A", "c"]
    assert spine.osed(tract).tolist() == [1]


TRACTS = {"tract": list("AAB"), "block": list("abc")}


@each(
    ("codes", "levels", "told"),
    [
        (
            {"tract": list("ABA"), "block": ["x", "x", "y"]},
            None,
            r"block 'x' lies in two units of tract: in 'A' by row 1",
        ),
        ({"county": list("KKL"), "tract": list("AAA"), "block": list("abc")}, None, "write them in full"),
        ({"tract": list("AAA"), "block": ["x", "x", "y"]}, None, r"block 'x' stands in 2 rows \(1 and 2"),
        ({"tract": ["A", "A", "B"], "block": ["a", None, None]}, None, None),
        ({"tract": ["A", "A", "B"], "block": [None, None, "b"]}, None, "block 'A' stands in 2 rows"),
        ({"tract": ["A", None], "block": ["a", ""]}, None, "row 2 has no code at any level"),
        ({"tract": ["A"], "block": ["a"]}, None, "one leaf"),
        (
            {"county": ["1", None], "tract": ["2", "1"], "block": ["a", "b"]},
            None,
            "'1' is the code of two units",
        ),
        ({"tract": [], "block": []}, None, "no rows"),
        ({"tract": list("AB"), "block": list("abc")}, None, r"differ in length \(tract 2, block 3\)"),
        ({"tract": [1.0, 2.0], "block": list("ab")}, None, "level 'tract', row 1: 1.0 is not a code"),
        (TRACTS, ["county", "block"], "no column for level 'county'; it has 'tract', 'block'"),
        (TRACTS, ["tract", "tract"], "names one level twice"),
        (TRACTS, [], "list of level names"),
        (TRACTS, "block", "list of level names"),
        ({"root": list("AAB"), "block": list("abc")}, None, "'root' is already the name"),
    ],
)
def test_bad_columns_are_taught(codes, levels, told):
    if told is None:
        assert Spine.from_codes(codes, levels=list(codes)).codes["block"].tolist() == ["a", "A", "B"]
        return
    with pytest.raises(InvalidArgument, match=told):
        Spine.from_codes(codes, levels=list(codes) if levels is None else levels)


@pytest.mark.parametrize(
    ("codes", "parents", "levels", "told"),
    [
        (["a", "b"], [None], ["l"], "2 codes and 1 parents"),
        (["a", None], [None, "a"], ["l"], "row 2 has no code"),
        (["a", "a"], [None, None], ["l"], r"stands in rows 1 and 2"),
        (["a", "b"], [None, "c"], ["l"], "the parent 'c' of 'b' has no row"),
        (["a", "b", "c"], [None, "c", "b"], ["l"], "'b' lies in itself"),
        (["a", "b"], ["a", "a"], ["l"], "'a' lies in itself"),
        (["a", "b", "c"], [None, "a", "a"], ["l"], "2 levels and levels names 1"),
        ([], [], [], "list of level names"),
    ],
)
def test_bad_parents_are_taught(codes, parents, levels, told):
    with pytest.raises(InvalidArgument, match=told):
        Spine.from_parents(codes, parents, levels)


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        (["@", "@@"], "2 marks and 3 codes"),
        (["@", "@@", "x"], "row 3: 'x' is not a level"),
        (["@", "@@", ""], "row 3: '' is not a level"),
        (["@", "@@@", "@@"], "level 3 below a unit of level 1"),
        (["@@", "@", "@"], "level 2 below a unit of level 0"),
        (["@", "@@", "@"], "several rows with one '@'"),
    ],
)
def test_bad_marks_are_taught(marks, told):
    with pytest.raises(InvalidArgument, match=told):
        Spine.from_sdc(marks, ["t", "a", "b"], ["whole", "part"])


@pytest.mark.parametrize(
    ("entity", "told"),
    [
        ({"town": ["a", "z", "y"]}, r"entity 'town' has 2 of its 3 leaves outside the spine \('z', 'y'\)"),
        (["A", "B"], r"shape \(2,\) on a spine of 3 leaves"),
        (np.ones((2, 3), bool), "transposed"),
        (np.ones((2, 2), bool), r"shape \(2, 2\)"),
        ([[True], [True, False], [True]], "different lengths"),
        ("abc", "a code for each leaf"),
        (7, "a code for each leaf"),
        ([0.5, 1.5, 2.5], "row 1: 0.5 is not a code"),
    ],
)
def test_bad_entities_are_taught(entity, told):
    spine = Spine.from_codes(TRACTS, levels=["tract", "block"])
    with pytest.raises(InvalidArgument, match=told):
        spine.osed(entity)


def test_codes_are_plain_text_whatever_text_they_were() -> None:
    """Messages quote them: not as ``np.str_('a')``."""
    spine = Spine.from_codes({"block": [np.str_("b"), "a"]}, ["block"])
    assert [type(code) for code in spine.codes["block"].tolist()] == [str, str]
