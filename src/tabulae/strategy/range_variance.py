"""Variances of range queries from the cells' covariance, without a row per query."""

from __future__ import annotations

import numpy as np

from ..linalg import (
    AllRange,
    LinearOperator,
    Prefix,
    WidthRange,
)


def range_variance(query: LinearOperator, covariance: np.ndarray) -> np.ndarray | None:
    """diag(W Q W') for range queries W over n cells with covariance Q (n, n); None for other matrices.

    With ``S[a, b] = sum_{i < a, j < b} Q_ij`` the range [i, j) has variance ``S[j, j] - S[i, j] - S[j, i] + S[i, i]``:
    O(n^2) for all n(n+1)/2 ranges together.

    >>> range_variance(AllRange(2), np.eye(2)).tolist()
    [1.0, 2.0, 1.0]
    """
    if not isinstance(query, (AllRange, Prefix, WidthRange)):
        return None
    n = query.shape[1]
    total = np.zeros((n + 1, n + 1))
    np.cumsum(np.cumsum(covariance, axis=0), axis=1, out=total[1:, 1:])
    if isinstance(query, AllRange):
        first, last = np.triu_indices(n)
        stop = last + 1
    elif isinstance(query, Prefix):
        first, stop = np.zeros(n, dtype=np.int64), np.arange(1, n + 1)
    else:
        first = np.arange(n - query.width + 1)
        stop = first + query.width
    diagonal = total.diagonal()
    return diagonal[stop] + diagonal[first] - total[first, stop] - total[stop, first]
