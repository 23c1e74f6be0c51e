"""Rows multiplied one by one, above all to norm one, so that every query is on one scale; their Gram matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument, Unsupported
from .arrays import bound_product, check_power, frozen
from .kron import Kron
from .operator import (
    DENSE_LIMIT,
    AxisOperator,
    Dense,
    Identity,
    LinearOperator,
    Partition,
    Permuted,
    Scaled,
    Sparse,
    Stack,
    Total,
    check_operators,
)
from .ranges import AllRange, Prefix, WidthRange

_SLICE = 2**22  # entries of the matrix written out at a time
_MOST_MULTIPLICATIONS = 2**36  # multiplications beyond which a matrix without a closed form is refused
_LONGEST = 2**28  # rows whose norms are listed
_SCAN_LIMIT = 2**32  # entries read where no closed form gives the norms
_EQUAL = 1e-13  # relative difference of norms that are equal up to rounding


def weighted_gram(op: LinearOperator, weights: np.ndarray) -> np.ndarray:
    """``A' diag(w) A`` (n, n) for an operator A (m, n) and one weight a row, w (m,).

    All ranges of n cells have n(n+1)/2 rows, but cells i <= j share only the ranges [a, b] with a <= i and b >= j:
    their Gram matrix is a two-dimensional cumulative sum of the weights, in ``O(n^2)``.

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


@singledispatch
def _gram(op: LinearOperator, w: np.ndarray) -> np.ndarray:
    """Some columns at a time; in closed form for the operators below."""
    m, n = op.shape
    if m * n * n > _MOST_MULTIPLICATIONS:
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


@_gram.register
def _stack(op: Stack, w: np.ndarray) -> np.ndarray:
    ends = np.cumsum([part.shape[0] for part in op.ops])
    return np.sum(
        [_gram(part, own) for part, own in zip(op.ops, np.split(w, ends[:-1]), strict=True)], axis=0
    )


@_gram.register
def _permuted(op: Permuted, w: np.ndarray) -> np.ndarray:
    inverse = np.argsort(op.order)
    return _gram(op.op, w)[np.ix_(inverse, inverse)]


@_gram.register
def _scaled(op: Scaled, w: np.ndarray) -> np.ndarray:
    return float(op.factor) ** 2 * _gram(op.op, w)


@_gram.register
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


@_gram.register
def _prefix(op: Prefix, w: np.ndarray) -> np.ndarray:
    tail = np.cumsum(w[::-1])[::-1]
    index = np.arange(op.n)
    return tail[np.maximum.outer(index, index)]


@_gram.register
def _width_range(op: WidthRange, w: np.ndarray) -> np.ndarray:
    """Cells i <= j share the windows that start between j - width + 1 and i."""
    before = np.concatenate([[0.0], np.cumsum(w)])
    index = np.arange(op.n)
    first = np.maximum(np.maximum.outer(index, index) - op.width + 1, 0)
    end = np.minimum(np.minimum.outer(index, index), op.shape[0] - 1) + 1
    return np.where(end > first, before[end] - before[first], 0.0)


@_gram.register
def _identity(op: Identity, w: np.ndarray) -> np.ndarray:
    return np.diag(w)


@_gram.register
def _total(op: Total, w: np.ndarray) -> np.ndarray:
    return np.full((op.n, op.n), w[0])


@_gram.register
def _partition(op: Partition, w: np.ndarray) -> np.ndarray:
    classes = op.classes
    own = np.where(classes >= 0, w[np.maximum(classes, 0)], 0.0)
    return np.where(np.equal.outer(classes, classes), own[:, None], 0.0)


@_gram.register
def _dense(op: Dense, w: np.ndarray) -> np.ndarray:
    return op.floats.T @ (w[:, None] * op.floats)


@_gram.register
def _sparse(op: Sparse, w: np.ndarray) -> np.ndarray:
    return (op.matrix.T @ scipy.sparse.diags_array(w) @ op.matrix).toarray()


@dataclass(frozen=True, eq=False, repr=False)
class RowScaled(AxisOperator):
    """``diag(s) A``: an operator A (m, n) whose rows are multiplied by positive numbers s (m,).

    Its Gram matrix is dense, and in closed form where :func:`~tabulae.linalg.row_scaling.weighted_gram` has one.

    >>> from tabulae.linalg import Prefix
    >>> (RowScaled(Prefix(2), [1.0, 0.5]) @ [2, 4]).tolist()
    [2.0, 3.0]
    """

    op: LinearOperator
    scale: Any  # a float64 array once built

    def __post_init__(self) -> None:
        check_operators([self.op], "RowScaled")
        scale = np.asarray(self.scale)
        if scale.shape != self.op.shape[:1] or scale.dtype.kind not in "iuf":
            raise InvalidArgument(
                f"RowScaled(op, scale): {self.op!r} takes {self.op.shape[0]} numbers, not shape {scale.shape}"
            )
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise InvalidArgument(
                "RowScaled(op, scale): every number must be finite and positive; leave out the rows that do not count"
            )
        object.__setattr__(self, "scale", frozen(scale.astype(np.float64)))

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.op.along(x.astype(np.float64, copy=False)) * self.scale[:, None]

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.op.T.along(y * self.scale[:, None])

    def columns(self, index: np.ndarray) -> np.ndarray:
        return self.op.columns(index) * self.scale[:, None]

    def dense(self) -> np.ndarray:
        return self.op.dense() * self.scale[:, None]

    def gram(self) -> LinearOperator:
        return Dense(weighted_gram(self.op, self.scale**2))

    def abs_row_sum_max(self) -> int | float:
        return bound_product(self.op.abs_row_sum_max(), float(self.scale.max()))

    def abs_entry_max(self) -> int | float:
        return bound_product(self.op.abs_entry_max(), float(self.scale.max()))

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        if self.op.binary:
            return self.op.T @ self.scale**p
        return super().column_norms(p)

    def column_classes(self) -> np.ndarray:
        return self.op.column_classes()

    def __repr__(self) -> str:
        return f"RowScaled({self.op!r})"


def row_norms(op: LinearOperator) -> np.ndarray:
    """The L2 norm of every row, float64 (m,): of 0/1 rows from one product, otherwise from the entries.

    Raises:
        Unsupported: for more rows than can be listed, or a matrix that is too large to read through.

    >>> from tabulae.linalg import Partition
    >>> row_norms(Partition([0, 0, 0, 0, 1])).tolist()
    [2.0, 1.0]
    """
    if op.shape[0] > _LONGEST:
        raise Unsupported(
            f"{op!r} has more rows than can be listed ({_LONGEST:,}): build it as Kron([...]), whose factors are "
            "listed one by one"
        )
    return np.sqrt(_squares(op))


def normalised(op: LinearOperator) -> LinearOperator:
    """The operator with every row divided by its L2 norm; a row of zeros stays.

    The structure stays where the norms follow it: a Kronecker product is that of its normalised factors, a stack that
    of its normalised parts; rows of one norm give a multiple of the operator, others a :class:`RowScaled`.

    Raises:
        Unsupported: for a matrix without structure that is too large to read through.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    section 3.4.

    >>> from tabulae.linalg import AllRange
    >>> np.round(normalised(AllRange(2)).dense(), 4).tolist()
    [[1.0, 0.0], [0.7071, 0.7071], [0.0, 1.0]]
    """
    if isinstance(op, Kron):
        return Kron(tuple(normalised(factor) for factor in op.ops))
    if isinstance(op, Stack):
        return Stack(tuple(normalised(part) for part in op.ops))
    if isinstance(op, Permuted):
        return Permuted(normalised(op.op), op.order)
    if isinstance(op, Scaled) and op.factor != 0:
        return normalised(op.op) if op.factor > 0 else Scaled(normalised(op.op), -1)
    norms = row_norms(op)
    common = common_value(norms)
    if common is None:
        return RowScaled(op, 1.0 / np.where(norms > 0, norms, 1.0))
    return op if common in (0.0, 1.0) else Scaled(op, 1.0 / common)


def common_value(values: np.ndarray) -> float | None:
    """The number that all entries equal up to rounding; None where they differ.

    >>> common_value(np.array([2.0, 2.0])), common_value(np.array([1.0, 2.0]))
    (2.0, None)
    """
    low, high = float(values.min()), float(values.max())
    return high if high - low <= _EQUAL * abs(high) else None


def _squares(op: LinearOperator) -> np.ndarray:
    """The squared L2 norm of every row, float64 (m,)."""
    if isinstance(op, Kron):
        return reduce(lambda a, b: np.multiply.outer(a, b).ravel(), (_squares(factor) for factor in op.ops))
    if isinstance(op, Stack):
        return np.concatenate([_squares(part) for part in op.ops])
    if isinstance(op, Permuted):
        return _squares(op.op)
    if isinstance(op, Scaled):
        return float(op.factor) ** 2 * _squares(op.op)
    if isinstance(op, RowScaled):
        return op.scale**2 * _squares(op.op)
    if op.binary:
        return op @ np.ones(op.shape[1])
    return _read_through(op)


def _read_through(op: LinearOperator) -> np.ndarray:
    m, n = op.shape
    if m * n > _SCAN_LIMIT:
        raise Unsupported(
            f"the norms of the rows of {op!r} follow no structure, and it is too large to read through: build it of "
            "ranges, partitions, stacks and Kronecker products"
        )
    squares = np.zeros(m)
    width = max(1, _SLICE // m)
    for start in range(0, n, width):
        part = op.columns(np.arange(start, min(n, start + width)))
        squares += np.square(part, dtype=np.float64).sum(axis=1)
    return squares
