"""Classifications: the tree of a code list against sums that are added up leaf by leaf."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.domain import Classification
from tabulae.errors import InvalidArgument
from tabulae.linalg import Partition


@st.composite
def forests(draw: st.DrawFn) -> Classification:
    """Up to 12 codes in any order, each part of one that was drawn before it, or of none."""
    size = draw(st.integers(1, 12))
    above = [draw(st.integers(-1, place - 1)) for place in range(size)]
    order = draw(st.permutations(range(size)))
    labels = draw(st.lists(st.sampled_from(["Water", "Waste", "Wood"]), min_size=size, max_size=size))
    return Classification(
        tuple(f"c{at}" for at in order),
        tuple(labels),
        tuple(None if above[at] < 0 else f"c{above[at]}" for at in order),
    )


def chain(tree: Classification, code: str) -> list[str]:
    """The code and all that it is part of, from the bottom up."""
    parents = dict(zip(tree.codes, tree.parents, strict=True))
    path = [code]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path


@given(forests(), st.sets(st.integers(1, 12)))
def test_rows_count_the_leaves_below(tree: Classification, asked: set[int]) -> None:
    assert tree.leaves == tuple(code for code in tree.codes if code not in tree.parents)
    levels = sorted(asked & set(range(1, tree.depth + 1)))
    for wanted in (None, levels) if levels else (None,):
        matrix, labels = tree.rows(wanted)
        codes = [code for code in tree.codes if wanted is None or len(chain(tree, code)) in wanted]
        expected = [[code in chain(tree, leaf) for leaf in tree.leaves] for code in codes]
        np.testing.assert_array_equal(matrix.dense(), np.array(expected, dtype=int))
        assert labels == tuple(tree.labels[tree.codes.index(code)] for code in codes)
        disjoint = np.array(expected).sum(axis=0).max() <= 1
        assert isinstance(matrix, Partition) == disjoint
        assert matrix.integer


@given(forests())
def test_a_level_puts_each_leaf_under_its_ancestor_or_leaves_it(tree: Classification) -> None:
    for level in range(1, tree.depth + 1):
        recode = tree.recode("r", "x", level)
        for leaf, place in zip(tree.leaves, recode.classes, strict=True):
            path = chain(tree, leaf)[::-1]
            assert recode.codes[place] == path[min(level, len(path)) - 1]
        assert list(recode.codes) == [code for code in tree.codes if code in recode.codes]
        assert recode.labels == tuple(tree.labels[tree.codes.index(code)] for code in recode.codes)
    for level in (0, tree.depth + 1):
        with pytest.raises(InvalidArgument, match="has levels 1 to"):
            tree.recode("r", "x", level)


@given(forests())
def test_labels_of_several_codes_have_their_code(tree: Classification) -> None:
    assert len(set(tree.labels)) == len(tree.labels)
    for code, label in zip(tree.codes, tree.labels, strict=True):
        assert label in ("Water", "Waste", "Wood") or label.endswith(f" ({code})")
    again = Classification(tree.codes, tree.labels, tree.parents)
    assert again == tree


def test_one_code_more_is_a_leaf_at_the_top() -> None:
    tree = Classification(("A", "01"), ("Farms", "Crops"), (None, "A")).with_code("other")
    assert (tree.leaves, tree.levels.tolist()) == (("01", "other"), [1, 2, 1])


@pytest.mark.parametrize(
    ("codes", "labels", "parents", "said"),
    [
        ("AB", "xy", (None, "C"), "'C' is a parent and no code"),
        ("AB", "xy", ("B", "A"), "'A' in 'B' in 'A': a code cannot be part of itself"),
        ("ABC", "xyz", (None, "B", "A"), "'B' in 'B': a code cannot be part of itself"),
        ("AA", "xy", (None, None), "different codes"),
        ("AB", "x", (None, None), "a label and a parent for each"),
        ("AB", ("x", "_T"), (None, None), "stands for the total"),
    ],
)
def test_what_is_no_tree_is_refused(codes: str, labels: object, parents: tuple, said: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(said)):
        Classification(tuple(codes), tuple(labels), parents)  # type: ignore[arg-type]


def test_long_chains_take_no_recursion() -> None:
    codes = tuple(map(str, range(5000)))
    tree = Classification(codes, codes, (None, *codes[:-1]))
    assert (tree.depth, tree.leaves) == (5000, ("4999",))
