"""Linear equations in whole numbers: which rows say something new, and how to meet them exactly."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument
from .exact import largest_abs
from .integer_echelon import IntegerEchelon
from .integer_steps import IntegerSteps
from .integers import (
    SparseRows,
    content,
    narrow,
    product,
)

_BLOCK = 256  # dependent rows that are expressed together
_LARGEST = 2**62


class Relation(NamedTuple):
    """A row that others determine: ``multiplier L[row] = sum_i coefficients_i L[rows_i]``, all whole numbers."""

    row: int
    multiplier: int
    rows: np.ndarray
    coefficients: np.ndarray

    def gap(self, values: np.ndarray) -> int:
        """``multiplier v[row] - sum_i coefficients_i v[rows_i]`` of whole numbers, exactly."""
        return self.multiplier * int(values[self.row]) - dot(self.coefficients, values[self.rows])


class IntegerSystem:
    """The equations ``L z = v`` in whole numbers, for an integer matrix L (rows x n). No rounding decides anything.

    The first rows, in order, that determine the others are kept.

    Arguments:
        matrix: L, a numpy or scipy sparse array of whole numbers below 2^62 in size.
        priority: (n,) numbers; :meth:`settle` moves columns of small value rather than others. By default
            those that occur in few rows.

    Raises:
        InvalidArgument: a matrix that is not of whole numbers, or a priority of another length.

    >>> system = IntegerSystem(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]))
    >>> system.rank, system.dependent[0].rows.tolist()
    (2, [0, 1])
    >>> system.settle(np.array([5, 5, 5, 5]), np.array([10, 11, 21])).tolist()
    [5, 5, 6, 5]
    """

    def __init__(self, matrix: Any, priority: Any = None) -> None:
        self.matrix = whole_matrix(matrix, "the matrix of equations")
        self._priority = None if priority is None else np.asarray(priority)
        if self._priority is not None and self._priority.shape != (self.shape[1],):
            raise InvalidArgument(
                f"the priority has shape {self._priority.shape}: give one number for each of {self.shape[1]} columns"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of L."""
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    @cached_property
    def _echelon(self) -> IntegerEchelon:
        echelon = IntegerEchelon(self.shape[1], self._priority)
        echelon.extend(self.matrix)
        return echelon

    @cached_property
    def _steps(self) -> IntegerSteps:
        return IntegerSteps.of(self.matrix[self.kept], self._echelon)

    @property
    def kept(self) -> np.ndarray:
        """The rows that no earlier rows determine, (rank,)."""
        return np.array(self._echelon.kept, dtype=np.intp)

    @property
    def rank(self) -> int:
        """The rank of L."""
        return len(self._echelon.kept)

    @cached_property
    def dependent(self) -> tuple[Relation, ...]:
        """Every row that earlier rows determine, with how: in terms of kept rows, in the order of rows."""
        rows = np.setdiff1d(np.arange(self.shape[0]), self.kept)
        return tuple(relations(self._echelon, self.matrix, rows, self.kept))

    def contradictions(self, values: Any) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Rows whose value differs from what earlier rows make it, with those rows; () where ``L z = v`` has a real z.

        Arguments:
            values: v, (rows,) whole numbers.

        >>> IntegerSystem(np.array([[1, 1], [2, 2]])).contradictions([3, 7])
        ((1, (0,)),)
        """
        v = _whole_vector(values, self.shape[0], "values")
        return tuple((r.row, tuple(r.rows.tolist())) for r in self.dependent if r.gap(v))

    def settle(self, scaled: Any, values: Any) -> np.ndarray:
        """Whole numbers z' near z with ``L z' = v`` exactly.

        Where every reduced row has an entry of size one they differ in at most ``rank`` places; see
        :mod:`tabulae.linalg.integer_steps`.

        Arguments:
            scaled: z, (n,) whole numbers.
            values: v, (rows,) whole numbers.

        Raises:
            InvalidArgument: no whole numbers solve the equations; the message names the first row that fails.
        """
        z = _whole_vector(scaled, self.shape[1], "scaled")
        v = _whole_vector(values, self.shape[0], "values")
        wrong = next((r for r in self.dependent if r.gap(v)), None)
        if wrong is not None:
            others = ", ".join(map(str, wrong.rows[:8].tolist()))
            against = (
                f"rows {others}: nothing solves both"
                if others
                else "what it sums, which is nothing: it must be 0"
            )
            raise InvalidArgument(f"row {wrong.row} contradicts {against}")
        residual = v.astype(object) - multiply(self.matrix, z)
        left = narrow(residual[self.kept])
        failing = self._steps.failing(left)
        if failing is not None:
            raise InvalidArgument(
                f"no whole numbers meet row {int(self.kept[failing])} and the rows that share columns with it"
            )
        moved = z.astype(object) + self._steps.solve(left)
        if largest_abs(moved) >= 2**63:
            raise InvalidArgument("the solution does not fit 64-bit integers: use a coarser grid")
        return moved.astype(np.int64)


def multiply(matrix: SparseRows, z: np.ndarray) -> np.ndarray:
    """``matrix z`` of whole numbers, exactly, as Python's integers."""
    sums = np.asarray(abs(matrix).astype(np.float64).sum(axis=1)) if matrix.nnz else np.zeros(1)
    if z.dtype != object and float(sums.max()) * 1.001 * max(1, largest_abs(z)) < _LARGEST:
        return (matrix @ z).astype(object)
    high, low = z // 2**31, z % 2**31
    if float(sums.max()) < 2**30:
        return multiply(matrix, narrow(high)) * 2**31 + multiply(matrix, narrow(low))
    return np.array([dot(matrix.data[a:b], z[matrix.indices[a:b]]) for a, b in _spans(matrix)], dtype=object)


def _spans(matrix: SparseRows) -> Iterator[tuple[int, int]]:
    return zip(matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist(), strict=True)


def dot(a: np.ndarray, b: np.ndarray) -> int:
    """``a'b`` of whole numbers, exactly."""
    return int(product(a[None], narrow(b))[0]) if a.size else 0


def relations(
    echelon: IntegerEchelon, matrix: SparseRows, rows: np.ndarray, kept: np.ndarray
) -> Iterator[Relation]:
    """How the kept rows make each of ``rows``: ``echelon`` is that of ``matrix``, ``kept`` its kept rows."""
    for low in range(0, len(rows), _BLOCK):
        part = rows[low : low + _BLOCK]
        combined, multiplier = echelon.combination(matrix[part]), echelon.inverse_divisor
        for row, coefficients in zip(part.tolist(), combined, strict=True):
            used = np.flatnonzero(coefficients)
            shared = content(coefficients, multiplier)
            yield Relation(row, multiplier // shared, kept[used], narrow(coefficients[used] // shared))


def whole_matrix(matrix: Any, what: str) -> SparseRows:
    """A matrix of whole numbers below 2^62 in size, as int64 rows without zeros."""
    rows: Any = scipy.sparse.csr_array(matrix if scipy.sparse.issparse(matrix) else np.atleast_2d(matrix))
    if rows.dtype.kind not in "iu" or (rows.nnz and largest_abs(rows.data) >= _LARGEST):
        raise InvalidArgument(f"{what} must hold whole numbers below 2^62 in size, as integers")
    rows = rows.astype(np.int64)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def _whole_vector(values: Any, length: int, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (length,):
        raise InvalidArgument(f"{what} has shape {array.shape}: give {length} whole numbers")
    if array.dtype.kind == "u":
        array = array.astype(object)
    if array.dtype.kind not in "iO" or not all(isinstance(x, int) for x in array.tolist()):
        raise InvalidArgument(f"{what} must be whole numbers, as integers")
    return array.astype(np.int64) if array.dtype.kind == "i" else narrow(array)
