"""Gram matrices of operators whose rows count differently: ``A' diag(w) A``, in closed form where there is one.

All ranges of n cells have n(n+1)/2 rows, but cells i <= j share only the ranges [a, b] with a <= i and b >= j: their
Gram matrix is a two-dimensional cumulative sum of the weights, in ``O(n^2)``.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument, Unsupported
from .explicit import Dense, Sparse
from .operator import DENSE_LIMIT, LinearOperator
from .permuted import Permuted
from .ranges import (
    AllRange,
    Prefix,
    WidthRange,
)
from .scaled import Scaled
from .simple import (
    Identity,
    Partition,
    Total,
)
from .stack import Stack

_SLICE = 2**22  # entries of the matrix written out at a time
_SCAN_LIMIT = 2**36  # multiplications beyond which a matrix without a closed form is refused


def weighted_gram(op: LinearOperator, weights: np.ndarray) -> np.ndarray:
    """``A' diag(w) A`` (n, n) for an operator A (m, n) and one weight a row, w (m,).

    Closed forms for ranges, partitions, identities and totals, and for permutations, stacks and multiples of them;
    other matrices are written out some columns at a time.

    Raises:
        InvalidArgument: for another number of weights than rows.
        Unsupported: for more cells than a dense n x n matrix may have, or a matrix without a closed form that is too
            large to write out.

    >>> weighted_gram(AllRange(2), np.array([1.0, 0.5, 1.0])).tolist()
    [[1.5, 0.5], [0.5, 1.5]]
    """
    weights = np.asarray(weights, dtype=np.float64)
    m, n = op.shape
    if weights.shape != (m,):
        raise InvalidArgument(f"{op!r} has {m} rows and takes weights of shape ({m},), not {weights.shape}")
    if n * n > DENSE_LIMIT:
        raise Unsupported(f"the Gram matrix of {op!r} would have {n:,} x {n:,} entries: merge cells first")
    return _gram(op, weights)


def _gram(op: LinearOperator, w: np.ndarray) -> np.ndarray:
    if isinstance(op, Stack):
        ends = np.cumsum([part.shape[0] for part in op.ops])
        grams = [_gram(part, own) for part, own in zip(op.ops, np.split(w, ends[:-1]), strict=True)]
        return np.sum(grams, axis=0)
    if isinstance(op, Permuted):
        inverse = np.argsort(op.order)
        return _gram(op.op, w)[np.ix_(inverse, inverse)]
    if isinstance(op, Scaled):
        return float(op.factor) ** 2 * _gram(op.op, w)
    for kind, closed in _CLOSED.items():
        if isinstance(op, kind):
            return closed(op, w)
    return _by_slices(op, w)


def _all_range(op: AllRange, w: np.ndarray) -> np.ndarray:
    """Over the ranges [a, b]: ``G[i, j] = sum_{a <= i, b >= j} w[a, b]`` for i <= j."""
    gram, start = np.zeros((op.n, op.n)), 0
    for first in range(op.n):
        gram[first, first:] = w[start : start + op.n - first]
        start += op.n - first
    np.cumsum(gram, axis=0, out=gram)
    np.cumsum(gram[:, ::-1], axis=1, out=gram[:, ::-1])
    for i in range(op.n):
        gram[i + 1 :, i] = gram[i, i + 1 :]
    return gram


def _prefix(op: Prefix, w: np.ndarray) -> np.ndarray:
    tail = np.cumsum(w[::-1])[::-1]
    index = np.arange(op.n)
    return tail[np.maximum.outer(index, index)]


def _width_range(op: WidthRange, w: np.ndarray) -> np.ndarray:
    """Cells i <= j share the windows that start between j - width + 1 and i."""
    before = np.concatenate([[0.0], np.cumsum(w)])
    index = np.arange(op.n)
    first = np.maximum(np.maximum.outer(index, index) - op.width + 1, 0)
    end = np.minimum(np.minimum.outer(index, index), op.shape[0] - 1) + 1
    return np.where(end > first, before[end] - before[first], 0.0)


def _identity(op: Identity, w: np.ndarray) -> np.ndarray:
    return np.diag(w)


def _total(op: Total, w: np.ndarray) -> np.ndarray:
    return np.full((op.n, op.n), w[0])


def _partition(op: Partition, w: np.ndarray) -> np.ndarray:
    classes = op.classes
    own = np.where(classes >= 0, w[np.maximum(classes, 0)], 0.0)
    return np.where(np.equal.outer(classes, classes), own[:, None], 0.0)


def _dense(op: Dense, w: np.ndarray) -> np.ndarray:
    return op.floats.T @ (w[:, None] * op.floats)


def _sparse(op: Sparse, w: np.ndarray) -> np.ndarray:
    return (op.matrix.T @ scipy.sparse.diags_array(w) @ op.matrix).toarray()


_CLOSED = {
    AllRange: _all_range,
    Prefix: _prefix,
    WidthRange: _width_range,
    Identity: _identity,
    Total: _total,
    Partition: _partition,
    Dense: _dense,
    Sparse: _sparse,
}


def _by_slices(op: LinearOperator, w: np.ndarray) -> np.ndarray:
    m, n = op.shape
    if m * n * n > _SCAN_LIMIT:
        raise Unsupported(
            f"the Gram matrix of {op!r} with weighted rows has no closed form, and the matrix is too large to write "
            "out: build it of ranges, partitions and stacks, or merge cells first"
        )
    gram = np.empty((n, n))
    width = max(1, _SLICE // m)
    for start in range(0, n, width):
        index = np.arange(start, min(n, start + width))
        gram[:, index] = op.T @ (w[:, None] * op.columns(index))
    return (gram + gram.T) / 2
