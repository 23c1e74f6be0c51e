"""Distinct rows and numbered codes, against numpy's and Python's own sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tabulae.domain.codes import numbered
from tabulae.errors import InvalidArgument
from tabulae.products.areas.spine.hierarchy import code_column
from tabulae.products.areas.spine.optimise import read_entities, union
from tabulae.products.areas.spine.shares import distinct_rows

WHOLE = st.sampled_from([0, 1, 2, 7, 2**40, 2**62])
CODES = st.one_of(
    st.none(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
)


@given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=WHOLE))
def test_distinct_rows_are_numpys_own(rows: np.ndarray) -> None:
    """Columns whose ranges multiply to more than 64 bits, too."""
    expected, which = np.unique(rows, axis=0, return_inverse=True)
    found, index = distinct_rows(rows)
    assert np.array_equal(found, expected)
    assert np.array_equal(index, which.reshape(-1))


def test_booleans_and_no_rows_at_all() -> None:
    found, which = distinct_rows(np.array([[True, False], [False, True], [True, False]]))
    assert (found.dtype, found.tolist(), which.tolist()) == (bool, [[False, True], [True, False]], [1, 0, 1])
    assert [part.shape for part in distinct_rows(np.zeros((0, 3), np.int64))] == [(0, 3), (0,)]


@given(hnp.arrays(bool, st.tuples(st.integers(1, 6), st.integers(60, 140))))
def test_many_columns_of_booleans(rows: np.ndarray) -> None:
    expected, which = np.unique(rows, axis=0, return_inverse=True)
    found, index = distinct_rows(rows)
    assert np.array_equal(found, expected)
    assert np.array_equal(index, which.reshape(-1))


@given(st.lists(CODES, min_size=1, max_size=12))
def test_numbered_codes_rise_as_python_sorts_them(codes: list[str | None]) -> None:
    index, names = numbered(np.array([*codes, None], object)[:-1])
    assert names.tolist() == sorted({code for code in codes if code is not None} - {""} | ({""} & set(codes)))
    assert [None if i < 0 else str(names[i]) for i in index.tolist()] == codes


@given(st.lists(CODES, min_size=1, max_size=12))
def test_codes_of_text_are_kept_and_empty_ones_are_missing(codes: list[str | None]) -> None:
    assert code_column(codes, "level").tolist() == [code or None for code in codes]
    assert code_column([*codes, 7], "level").tolist() == [*(code or None for code in codes), "7"]


@pytest.mark.parametrize("code", ["\ud800", "a\0", "\0"])
def test_half_of_a_surrogate_pair_is_no_code_nor_is_what_arrays_cut_off(code: str) -> None:
    with pytest.raises(InvalidArgument, match="row 2"):
        code_column(["a", code], "level")


@given(st.lists(st.tuples(*[st.sampled_from([None, "a", "b", "c"])] * 3), min_size=2, max_size=9))
def test_leaves_are_alike_that_lie_in_the_same_entities(rows: list[tuple[str | None, ...]]) -> None:
    leaves = np.arange(len(rows)).astype(str)
    several = union([read_entities(np.array(column, object), leaves) for column in zip(*rows, strict=True)])
    number: dict[tuple[str | None, ...], int] = {}
    expected = [number.setdefault(row, len(number)) for row in rows]
    assert several.membership(len(rows)).tolist() == expected
