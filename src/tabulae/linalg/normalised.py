"""Rows of L2 norm one: every query counted on the same scale, however many cells it adds up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..errors import InvalidArgument, Unsupported
from .digest import digest, frozen
from .explicit import Dense
from .kron import Kron
from .numbers import bound_product, check_power
from .operator import (
    AxisOperator,
    LinearOperator,
    check_operators,
)
from .permuted import Permuted
from .scaled import Scaled
from .stack import Stack
from .weighted_gram import weighted_gram

_LONGEST = 2**28  # rows whose norms are listed
_SLICE = 2**22
_SCAN_LIMIT = 2**32  # entries read where no closed form gives the norms
_EQUAL = 1e-13  # relative difference of norms that are equal up to rounding


@dataclass(frozen=True, eq=False, repr=False)
class RowScaled(AxisOperator):
    """``diag(s) A``: an operator A (m, n) whose rows are multiplied by positive numbers s (m,).

    Its Gram matrix is dense, and in closed form where :func:`~tabulae.linalg.weighted_gram.weighted_gram` has one.

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

    def key(self) -> tuple[Any, ...]:
        return ("RowScaled", self.op.key(), digest(self.scale))

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
