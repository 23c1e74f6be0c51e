"""Joint tables: queries over the combinations of two or three attributes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.each import each

import tabulae as tb
from tabulae.errors import InvalidArgument, Unsupported
from tabulae.linalg import Kron, Prefix

SIZES = {"a": 3, "b": 2, "c": 4, "d": 2}
DOMAIN = tb.Domain(SIZES)


def over_all_cells(attributes: tuple[str, ...], matrix: np.ndarray) -> np.ndarray:
    """The oracle: a cell counts as the combination of its categories of the attributes does."""
    cells = np.indices([SIZES[name] for name in SIZES]).reshape(len(SIZES), -1)
    places = np.zeros(cells.shape[1], dtype=np.int64)
    for name in attributes:
        places = places * SIZES[name] + cells[list(SIZES).index(name)]
    return matrix[:, places]


@st.composite
def joint_queries(draw: st.DrawFn) -> tuple[tuple[str, ...], np.ndarray]:
    """Two or three attributes in any order, and up to four rows of small whole numbers over their combinations."""
    attributes = tuple(draw(st.permutations(list(SIZES)))[: draw(st.integers(2, 3))])
    cells = math.prod(SIZES[name] for name in attributes)
    entries = draw(st.sampled_from([st.integers(0, 1), st.integers(-3, 3)]))
    return attributes, draw(arrays(np.int64, (draw(st.integers(1, 4)), cells), elements=entries))


@given(joint_queries())
def test_a_joint_table_is_its_matrix_over_the_combinations(
    queries: tuple[tuple[str, ...], np.ndarray],
) -> None:
    attributes, matrix = queries
    table = tb.Table.joint("t", attributes, matrix)
    if not matrix.any():
        with pytest.raises(InvalidArgument, match="counts nothing"):
            table.over(DOMAIN)
        return
    whole = over_all_cells(attributes, matrix)
    assert table.rows(DOMAIN) == len(matrix)
    assert np.array_equal(table.operator(DOMAIN).dense(), whole)
    crossed = table.crossed(DOMAIN)
    others = [SIZES[name] for i, name in enumerate(SIZES) if i not in crossed]
    assert {list(SIZES)[i] for i in crossed} <= set(attributes)
    # Cells that differ in other attributes only have equal columns: one of each is the matrix that is written out.
    shape = (len(matrix), *SIZES.values())
    first = tuple(slice(None) if i in crossed else 0 for i in range(len(SIZES)))
    assert np.array_equal(table.matrix(DOMAIN), whole.reshape(shape)[:, *first].reshape(len(matrix), -1))
    assert np.array_equal(table.gram(DOMAIN) * math.prod(others), _folded(whole, crossed))


def _folded(whole: np.ndarray, crossed: tuple[int, ...]) -> np.ndarray:
    """The Gram matrix over all cells, summed over the attributes that are not crossed where both cells agree."""
    axes = range(len(SIZES))
    gram = (whole.T @ whole).reshape(*SIZES.values(), *SIZES.values())
    left = list(axes)
    right = [i + len(SIZES) if i in crossed else i for i in axes]
    kept = [*crossed, *(i + len(SIZES) for i in crossed)]
    size = math.prod(list(SIZES.values())[i] for i in crossed)
    return np.einsum(gram, [*left, *right], kept).reshape(size, size)


@each(
    "matrix, terms",
    [
        (np.eye(4), 2),
        ([[1, 1, 0, 0]], 1),
        ([[1, 1, 1, 0]], 2),
        ([[1, 1, 1, 1], [2, 2, 2, 2]], 1),
        ([[0, 0, 0, 1]], 1),
    ],
)
def test_combinations_alike_share_a_term(matrix: object, terms: int) -> None:
    assert len(tb.Table.joint("t", ["a", "b"], matrix).over(tb.Domain({"a": 2, "b": 2})).terms) == terms


def test_the_attribute_that_leaves_the_fewest_terms_carries_the_rows() -> None:
    below = [[a + b <= c for a in range(9) for b in range(2)] for c in range(10)]
    for names, matrix in ((("a", "b"), below), (("b", "a"), _swapped(below, 9, 2))):
        table = tb.Table.joint("t", names, np.array(matrix, dtype=int)).over(tb.Domain({"a": 9, "b": 2}))
        assert len(table.terms) == 2
        assert table.row_counts(tb.Domain({"a": 9, "b": 2})) == {"a": 10, "b": 1}


def _swapped(matrix: object, n: int, m: int) -> np.ndarray:
    array = np.array(matrix)
    return array.reshape(len(array), n, m).transpose(0, 2, 1).reshape(len(array), -1)


def test_equal_tables_of_other_attributes_share_what_is_written_out() -> None:
    domain = tb.Domain({"a": 3, "b": 3, "c": 3})
    one, other = (tb.Table.joint(x + y, [x, y], np.tri(9)) for x, y in ("ab", "bc"))
    assert one.matrix(domain) is other.matrix(domain)
    assert one.gram(domain) is other.gram(domain)
    assert not one.gram(domain).flags.writeable
    assert one.over(domain).terms[0].factors["a"] is other.over(domain).terms[0].factors["b"]


def test_operators_make_the_table_that_their_entries_make() -> None:
    matrix = Kron([Prefix(3), Prefix(2)])
    table = tb.Table.joint("t", ["a", "b"], matrix)
    assert np.array_equal(table.matrix(DOMAIN), matrix.dense())
    assert table == tb.Table.joint("t", ("a", "b"), matrix.dense())
    assert table != tb.Table.joint("t", ("b", "a"), matrix.dense())
    assert hash(table) == hash(tb.Table.joint("t", ("a", "b"), matrix.dense()))


def test_columns_have_the_labels_that_are_given() -> None:
    assert tb.Table.joint("t", ["a", "b"], np.eye(6)[:2]).columns(DOMAIN) == {"a and b": ("row 1", "row 2")}
    named = tb.Table.joint("t", ["a", "b"], np.eye(6)[:2], 2, ["p", "q"], "pairs")
    assert named.columns(DOMAIN) == {"pairs": ("p", "q")}
    assert tb.Table.joint("t", ["a", "b"], np.ones((1, 6))).columns(DOMAIN) == {}
    assert tb.Table.joint("t", ["a", "b"], np.ones((1, 6)), labels=["all"]).columns(DOMAIN) == {
        "a and b": ("all",)
    }


@each(
    "given, why",
    [
        ((["a"], np.eye(3)), "two or three different attributes"),
        ((["a", "b", "c", "d"], np.eye(48)), "two or three different attributes"),
        ((["a", "a"], np.eye(9)), "two or three different attributes"),
        ((["a", "z"], np.eye(9)), "no attribute"),
        (("ab", np.eye(6)), "in a list"),
        ((["a", 1], np.eye(6)), "in a list"),
        ((["a", "b"], np.eye(5)), "5 columns, but the domain has 3 x 2 = 6 combinations"),
        ((["a", "b"], np.ones(6)), "non-empty 2-D array"),
        ((["a", "b"], np.ones((0, 6))), "non-empty 2-D array"),
        ((["a", "b"], [[1, 2], [3]]), "a row for each query"),
        ((["a", "b"], [["x"] * 6]), "a row for each query"),
        ((["a", "b"], [[0.5] * 6]), "entry np.float64\\(0.5\\) in row 0|entry 0.5 in row 0"),
        ((["a", "b"], [[np.nan] * 6]), "finite"),
        ((["a", "b"], np.zeros((1, 6))), "counts nothing"),
        ((["a", "b"], np.eye(6), 1, ["x"]), "one label a row"),
        ((["a", "b"], np.eye(6), 1, "abcdef"), "must be a list"),
        ((["a", "b"], np.eye(6), 0), "positive number"),
        ((["a", "b"], np.eye(6), 1, None, "a/b"), "cannot name a column"),
        ((["a", "b"], np.eye(6), 1, None, 7), "name of a column"),
    ],
)
def test_what_makes_no_joint_table_is_refused(given: tuple[object, ...], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        tb.Table.joint("t", *given).over(DOMAIN)  # type: ignore[arg-type]


def test_a_matrix_that_is_too_large_is_refused_before_it_is_written_out() -> None:
    with pytest.raises(Unsupported, match="divide its rows"):
        tb.Table.joint("t", ["a", "b"], Kron([Prefix(4000), Prefix(4000)]))
