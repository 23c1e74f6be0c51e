"""The distinct rows of long tables of small whole numbers, by hashing: few rows differ where millions are alike."""

from __future__ import annotations

import numpy as np


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What ``np.unique(rows, axis=0, return_inverse=True)`` gives, in time that grows as the number of rows.

    Args:
        rows: shape (n, columns): booleans, or whole numbers of 0 or more.

    Returns:
        The distinct rows in lexicographic order, shape (m, columns), and shape (n,): which of them each row is.

    >>> found, which = distinct_rows(np.array([[1, 0], [0, 7], [1, 0]]))
    >>> found.tolist(), which.tolist()
    ([[0, 7], [1, 0]], [1, 0, 1])
    """
    which, span = np.zeros(len(rows), np.int64), 1
    for column in rows.T:
        width = int(column.max(initial=0)) + 1
        if span * width > np.iinfo(np.int64).max:
            (which, span), (column, width) = _numbered(which), _numbered(column)
        which = which * width + column
        span *= width
    which, count = _numbered(which)
    first = np.empty(count, np.int64)
    first[which[::-1]] = np.arange(len(rows))[::-1]
    return rows[first], which


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, int]:
    """The rank of each key among the distinct ones, and how many of those there are."""
    import pyarrow as pa

    found = pa.array(keys).dictionary_encode()
    order = np.argsort(found.dictionary.to_numpy())
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[found.indices.to_numpy()], order.size
