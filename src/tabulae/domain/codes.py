"""Columns of codes, each known by its number: the distinct texts of a column, and which of them each row has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Numbered(NamedTuple):
    """A column of codes, each known by its number.

    Attributes:
        index: shape (rows,): positions in ``codes``, -1 where there is no code.
        codes: shape (codes,), object: those that occur, rising, each the text of the column.
    """

    index: np.ndarray
    codes: np.ndarray

    @property
    def texts(self) -> np.ndarray:
        """Shape (rows,), object: the code of each row, None where there is none; equal cells are one object."""
        return np.append(self.codes, np.array([None]))[self.index]

    def text(self, row: int) -> str | None:
        """The code of one row."""
        at = int(self.index[row])
        return None if at < 0 else str(self.codes[at])

    def arrow(self) -> Any:
        """The same as an Arrow array of text."""
        import pyarrow as pa

        index = pa.array(self.index, mask=self.index < 0)
        return pa.DictionaryArray.from_arrays(index, pa.array(self.codes, pa.string())).cast(pa.string())

    def holds(self, code: str) -> np.ndarray:
        """Shape (rows,), boolean: which rows have a code."""
        at = int(np.searchsorted(self.codes, code))
        return (self.index == at) & (at < self.codes.size and self.codes[at] == code)

    def each(self, of: Callable[[str], Any], otherwise: Any) -> np.ndarray:
        """Shape (rows,): what a function makes of the code of each row, or what stands for none.

        >>> numbered(np.array(["12", None, "7"], object)).each(int, 0).tolist()
        [12, 0, 7]
        """
        return np.array([*map(of, self.codes.tolist()), otherwise])[self.index]

    def at(self, rows: np.ndarray | slice) -> Numbered:
        """Those of some rows, with the codes that occur there.

        >>> numbered(np.array(["b", None, "a"], object)).at(np.array([False, True, True]))
        Numbered(index=array([-1,  0]), codes=array(['a'], dtype=object))
        """
        index, used = self.index[rows], np.zeros(self.codes.size + 1, bool)
        used[index] = True
        used[-1] = False  # where there is no code
        place = np.where(used, np.cumsum(used) - 1, -1).astype(index.dtype)
        return Numbered(place[index], self.codes[used[:-1]])

    def only(self, kept: np.ndarray) -> Numbered:
        """With some of its codes alone, a mask of them: rows of the others have none.

        >>> column = numbered(np.array(["b", None, "a"], object))
        >>> column.only(column.codes != "a").texts.tolist()
        ['b', None, None]
        """
        index = np.where(np.append(kept, False)[self.index], self.index, -1)
        return Numbered(index.astype(self.index.dtype), self.codes).at(slice(None))


def numbered(column: np.ndarray) -> Numbered:
    """A column of codes, numbered.

    >>> index, codes = numbered(np.array(["b", None, "a"], object))
    >>> index.tolist(), codes.tolist()
    ([1, -1, 0], ['a', 'b'])
    """
    import pyarrow as pa

    index, order, _ = _rising(pa.array(column, pa.string()))
    some, codes = index >= 0, np.empty(order.size, object)
    codes[index[some]] = column[some]  # no copies: of millions of codes they would be the most of a spec
    return Numbered(index, codes)


def renumbered(index: np.ndarray, words: Any) -> Numbered:
    """Rows that have one of some words, or none: words that are None or empty are none, and may be there twice.

    Args:
        index: shape (rows,): positions in the words, -1 where there is none.
        words: Arrow's array of text.

    >>> import pyarrow as pa
    >>> renumbered(np.array([0, 2, 3, -1, 1]), pa.array(["b", "", "a", "b"])).texts.tolist()
    ['b', 'a', 'b', None, None]
    """
    place, order, distinct = _rising(words)
    codes = np.array(distinct.take(order).to_pylist(), object)
    if codes.size and not codes[0]:
        place, codes = np.maximum(place - 1, -1), codes[1:]
    return Numbered(np.append(place, -1).astype(np.int32)[index], codes).at(slice(None))


def _rising(words: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """The rank of each word among the distinct ones, -1 of None; the order in which these rise; and they themselves."""
    import pyarrow.compute as pc

    encoded = words.dictionary_encode()
    # pyarrow's ``to_numpy`` loads pandas
    order = np.from_dlpack(pc.call_function("array_sort_indices", [encoded.dictionary])).astype(np.int64)
    rank = np.empty(order.size + 1, np.int64)
    rank[order], rank[-1] = np.arange(order.size), -1
    place = np.from_dlpack(encoded.indices.fill_null(-1)).astype(np.int64)
    return rank[place], order, encoded.dictionary
