"""Matrices of whole numbers of any size: 64-bit while a bound proves them enough, Python's integers beyond."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .exact import integer_matmul, largest_abs

SparseRows = Any
"""A scipy.sparse.csr_array of int64."""

_SAFE = 2**62  # a bound below it on every entry leaves room for one more sum in int64


def content(x: np.ndarray, factor: int = 0) -> int:
    """The greatest common divisor of the entries and ``factor``; 0 if all are zero.

    >>> content(np.array([4, -6, 0]))
    2
    """
    shared = abs(factor)
    for row in np.atleast_2d(x):
        if shared == 1:
            break
        shared = math.gcd(shared, int(np.gcd.reduce(np.abs(row), initial=0)))
    return shared


def product(a: np.ndarray, b: np.ndarray, bound: int | None = None) -> np.ndarray:
    """``a b`` of whole numbers, exactly: int64 where a bound proves that it fits, else Python's integers.

    ``a`` is (m, k), ``b`` is (k, n) or (k,); ``bound`` is at least the largest entry of b in size, where one is known.

    >>> product(np.array([[2**40]]), np.array([2**40])).tolist() == [2**80]
    True
    """
    block = b[:, None] if b.ndim == 1 else b
    if not (a.size and block.size):
        result = np.zeros((a.shape[0], block.shape[1]), dtype=np.int64)
    elif a.dtype != object and block.dtype != object and _fits(a, block, bound):
        # Turning a matrix to floats for BLAS pays only where it is used more than once.
        result = np.einsum("k,kn->n", a[0], block)[None] if len(a) == 1 else integer_matmul(a, block)
    else:
        result = narrow(np.dot(a.astype(object), block.astype(object)))
    return result[:, 0] if b.ndim == 1 else result


def _fits(a: np.ndarray, block: np.ndarray, bound: int | None) -> bool:
    # A sum of n floats is off by less than a part in 2^40 for every n that fits in memory.
    sums = int(np.abs(a.astype(np.float64)).sum(axis=1).max() * (1 + 2.0**-40)) + 1
    return (bound is not None and sums * bound < _SAFE) or sums * largest_abs(block) < _SAFE


def narrow(x: np.ndarray) -> np.ndarray:
    """The same numbers as int64 where they are small enough."""
    return x.astype(np.int64) if x.dtype == object and largest_abs(x) < _SAFE else x


def times(x: np.ndarray, factor: int) -> np.ndarray:
    """``factor x`` of whole numbers, exactly."""
    return x if factor == 1 else narrow(x.astype(object) * factor)


class IntegerRows:
    """Rows of whole numbers that are appended to, and changed by multiples of one another.

    >>> rows = IntegerRows(2)
    >>> rows.append(np.array([1, 2]))
    >>> rows.subtract_outer(np.array([2**62]), np.array([0, 4]))
    >>> rows.data.tolist()[0] == [1, 2 - 2**64]
    True
    """

    def __init__(self, columns: int, data: np.ndarray | None = None) -> None:
        self._held = np.zeros((0, columns), dtype=np.int64) if data is None else data
        self._count = len(self._held)
        self._bound = largest_abs(self._held)

    @property
    def data(self) -> np.ndarray:
        """The rows, (count, columns): int64, or objects."""
        return self._held[: self._count]

    @property
    def bound(self) -> int:
        """No entry is larger in size."""
        return self._bound

    def append(self, row: np.ndarray) -> None:
        """One row more."""
        if row.dtype == object:
            self._held = self._held.astype(object)
        if self._count == len(self._held):
            room = np.zeros((max(16, self._count), self._held.shape[1]), dtype=self._held.dtype)
            self._held = np.concatenate([self._held, room])
        self._held[self._count] = row
        self._count += 1
        self._bound = max(self._bound, largest_abs(row))

    def subtract_outer(self, column: np.ndarray, row: np.ndarray, start: int = 0) -> None:
        """Subtract ``column row'`` from the rows from ``start`` on."""
        hits = np.flatnonzero(column)
        if not hits.size:
            return
        self._make_room(largest_abs(column) * largest_abs(row))
        column, row = column.astype(self._held.dtype), row.astype(self._held.dtype)
        cells = np.flatnonzero(row)
        target, values = self.data[start:], row[cells]
        if 4 * cells.size <= row.size:
            target[np.ix_(hits, cells)] -= np.multiply.outer(column[hits], values)
            return
        for i in hits.tolist():
            target[i] -= row if column[i] == 1 else column[i] * row

    def eliminate(self, row: np.ndarray, pivot: int, start: int = 0) -> None:
        """Make the pivot column 0: ``row[pivot]`` times the rows from ``start`` on, less multiples of ``row``."""
        column = self.data[start:, pivot].copy()
        if int(row[pivot]) != 1 and column.any():
            self._make_room(abs(int(row[pivot])) * max(1, self._bound))
            self.data[start:] *= int(row[pivot])
        self.subtract_outer(column, row, start)

    def reduce(self, factor: int) -> int:
        """Divide every entry by the greatest common divisor of all and ``factor``, and return it."""
        shared = 1 if factor == 1 else content(self.data, factor)
        if shared > 1:
            self.data[:] //= shared
            self._bound //= shared
        return shared

    def multiply(self, factor: int) -> None:
        """Every entry times ``factor``."""
        if factor == 1:
            return
        self._make_room(abs(factor) * max(1, self._bound))
        self.data[:] *= factor

    def _make_room(self, growth: int) -> None:
        """Turn to Python's integers where a change of at most ``growth`` could leave int64."""
        if self._bound + growth >= _SAFE and self._held.dtype != object:
            self._bound = largest_abs(self.data)
            if self._bound + growth >= _SAFE:
                self._held = self._held.astype(object)
        self._bound += growth
