"""Columns of codes by their numbers: every way to look at one says what a list of the same texts says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tabulae.domain.codes import Numbered, numbered, renumbered

WORDS = st.none() | st.sampled_from(["", "a", "b", "ab", "é", "\U0001f600"])
cells = st.lists(st.none() | st.text("ab", min_size=1, max_size=2), max_size=8)


def check(found: Numbered, expected: list[str | None]) -> None:
    """The codes are those that occur, once each, rising; and each row has its own."""
    assert found.codes.tolist() == sorted({text for text in expected if text is not None})
    assert found.texts.tolist() == expected == found.arrow().to_pylist()
    assert [found.text(row) for row in range(len(expected))] == expected


@given(st.lists(WORDS, min_size=1, max_size=6), st.data())
def test_words_in_any_order_and_number(words: list[str | None], data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(-1, len(words) - 1), max_size=8))
    found = renumbered(np.array(index, np.int64), pa.array(words, pa.string()))
    check(found, [words[i] or None if i >= 0 else None for i in index])
    assert found.index.dtype == np.int32


@given(cells, st.data())
def test_rows_and_codes_are_chosen(given_cells: list[str | None], data: st.DataObject) -> None:
    column = numbered(np.array([*given_cells, None], object)[:-1])
    check(column, given_cells)
    for code in ("a", "ab", "c", ""):
        assert column.holds(code).tolist() == [cell == code for cell in given_cells]
        left = [None if cell == code else cell for cell in given_cells]
        check(column.only(column.codes != code), left)
    assert column.each(len, -1).tolist() == [-1 if cell is None else len(cell) for cell in given_cells]
    rows = data.draw(
        st.lists(st.integers(0, len(given_cells) - 1), max_size=5) if given_cells else st.just([])
    )
    check(column.at(np.array(rows, np.int64)), [given_cells[row] for row in rows])
