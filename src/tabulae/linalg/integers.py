"""Matrices of whole numbers of any size, and their reduced row echelon form, exactly.

Numbers are 64-bit while a bound proves them enough, and Python's integers beyond.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arrays import integer_matmul, largest_abs

SparseRows = Any
"""A scipy.sparse.csr_array of int64."""

_SAFE = 2**62  # a bound below it on every entry leaves room for one more sum in int64
_BLOCK = 128  # rows that are reduced together


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


def integer_product(a: np.ndarray, b: np.ndarray, bound: int | None = None) -> np.ndarray:
    """``a b`` of whole numbers, exactly: int64 where a bound proves that it fits, else Python's integers.

    ``a`` is (m, k), ``b`` is (k, n) or (k,); ``bound`` is at least the largest entry of b in size, where one is known.

    >>> integer_product(np.array([[2**40]]), np.array([2**40])).tolist() == [2**80]
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


class IntegerEchelon:
    """The form above of the rows given to :meth:`extend`, over n columns.

    Rows come in order; one that earlier rows determine is left out. For the others, the kept rows,

        L_kept = B P,    P = [I | F] on (pivot | free) columns,    B = L_kept on the pivot columns.

    P and ``B^-1`` are held as integer matrices over a common denominator. That of P is 1 as long as every row that is
    kept, reduced and divided by the greatest common divisor of its entries, has an entry of size one to be the pivot:
    for tables of counts that is nearly always so. Then the rows of P span all whole vectors of the row space, so
    ``L_kept z = e`` has an integer solution z exactly where ``B^-1 e`` is integer.

    Arguments:
        n: columns.
        priority: (n,) numbers; columns of small value become pivots first.
        largest: rows that would make an entry of P larger than this, or its denominator more than 1, are put off
            (``postponed``) rather than kept. By default none is.

    >>> import scipy.sparse
    >>> echelon = IntegerEchelon(3)
    >>> echelon.extend(scipy.sparse.csr_array([[2, 2, 0], [1, 1, 0], [0, 1, 1]]))
    >>> echelon.kept, echelon.pivots, echelon.reduced.tolist(), echelon.inverse.tolist(), echelon.inverse_divisor
    ([0, 2], [0, 2], [[1, 1, 0], [0, 1, 1]], [[1, 0], [0, 2]], 2)
    """

    def __init__(self, n: int, priority: np.ndarray | None = None, largest: int | None = None) -> None:
        self.n, self.rows = n, 0
        self.kept: list[int] = []
        self.pivots: list[int] = []
        self.postponed: list[int] = []
        self.divisor = self.inverse_divisor = 1
        self.priority, self._largest = priority, largest
        self._weights = np.zeros(n, dtype=np.int64)
        self._reduced = IntegerRows(n)
        self._inverse = IntegerRows(n)

    @property
    def reduced(self) -> np.ndarray:
        """``divisor P``, (rank, n)."""
        return self._reduced.data

    @property
    def inverse(self) -> np.ndarray:
        """``inverse_divisor B^-1``, (rank, rank): P is ``B^-1`` times the kept rows."""
        return self._inverse.data[:, : len(self.kept)]

    # building ------------------------------------------------------------------------------------
    def extend(self, matrix: SparseRows | np.ndarray) -> None:
        """Take in more rows (rows x n), whole numbers: below 2^62 in size, or Python's."""
        self._weights = self._weights + np.asarray((matrix != 0).sum(axis=0)).ravel()
        count = int(matrix.shape[0])
        for low in range(0, count, _BLOCK):
            if len(self.kept) == self.n:
                break
            block = matrix[low : low + _BLOCK]
            self._eliminate(block if isinstance(block, np.ndarray) else block.toarray(), self.rows + low)
        self.rows += count

    def _eliminate(self, block: np.ndarray, start: int) -> None:
        left = IntegerRows(self.n, self.remainder(block))
        for i in range(len(block)):
            factor = content(left.data[i])
            if factor == 0:
                continue
            row = narrow(left.data[i] // factor)
            pivot = self._pivot(row)
            if self._largest is not None and not self._stays_small(row, pivot):
                self.postponed.append(start + i)
                continue
            if row[pivot] < 0:
                row = -row
            self._keep(start + i, block[i], row, pivot)
            left.eliminate(row, pivot, start=i + 1)

    def remainder(self, block: np.ndarray) -> np.ndarray:
        """``divisor`` times (the block less its part in the rows of P): zero on every pivot column."""
        coefficients = block[:, self.pivots]
        used = np.flatnonzero(np.any(coefficients != 0, axis=0))
        whole = block if self.divisor == 1 else block.astype(object) * self.divisor
        if not used.size:
            return narrow(whole.copy())
        part = integer_product(coefficients[:, used], self.reduced[used])
        if part.dtype == object or whole.dtype == object:
            return narrow(whole.astype(object) - part)
        return whole - part  # both below 2^62 in size

    def _pivot(self, row: np.ndarray) -> int:
        """A column where the row is smallest in size; the first in priority, or else a short one."""
        cells = np.flatnonzero(row)
        sizes = np.abs(row[cells])
        columns = cells[sizes == sizes.min()]
        if self.priority is not None:
            return int(columns[np.argmin(self.priority[columns])])
        # Short columns keep the form sparse and its entries small.
        filled = np.count_nonzero(self.reduced[:, columns], axis=0)
        return int(columns[np.lexsort((self._weights[columns], filled))[0]])

    def _stays_small(self, row: np.ndarray, pivot: int) -> bool:
        if abs(int(row[pivot])) != 1:
            return False
        assert self._largest is not None
        hits = np.flatnonzero(self.reduced[:, pivot])
        change = np.multiply.outer(self.reduced[hits, pivot], row * row[pivot])
        changed = self.reduced[hits] - change
        return max(np.abs(row).max(), np.abs(changed).max(initial=0)) <= self._largest

    def _keep(self, number: int, original: np.ndarray, row: np.ndarray, pivot: int) -> None:
        """Add ``row / row[pivot]`` to P, and to ``B^-1`` how it comes from the kept rows."""
        coefficients, rank = original[self.pivots], len(self.kept)
        used = np.flatnonzero(coefficients)
        # Divisor times the reduced row at its pivot
        beyond = self.divisor * int(original[pivot]) - int(
            integer_product(coefficients[None, used], self.reduced[used, pivot])[0]
        )
        made = self.inverse if used.size == rank else self.inverse[used]  # no copy where all are used
        known = integer_product(coefficients[None, used], made, self._inverse.bound)[0]
        origin = np.zeros(self.n, dtype=object if self.inverse_divisor >= 2**62 else known.dtype)
        origin[:rank] = -known
        origin[rank] = self.inverse_divisor
        origin, divisor = lowest(times(origin, self.divisor), self.inverse_divisor * beyond)
        column = self.reduced[:, pivot].copy()
        # B^-1 less P[:, pivot] times the new row, over a common denominator
        common = math.lcm(self.inverse_divisor, self.divisor * divisor)
        self._inverse.multiply(common // self.inverse_divisor)
        self._inverse.subtract_outer(column, times(origin, common // (self.divisor * divisor)))
        self._inverse.append(times(origin, common // divisor))
        self.inverse_divisor = common // self._inverse.reduce(common)
        self._reduced.multiply(int(row[pivot]))
        self._reduced.subtract_outer(column, row)
        self._reduced.append(times(row, self.divisor))
        self.divisor *= int(row[pivot])
        self.divisor //= self._reduced.reduce(self.divisor)
        self.kept.append(number)
        self.pivots.append(pivot)

    # what it is for ------------------------------------------------------------------------------
    def combination(self, rows: SparseRows) -> np.ndarray:
        """A (count x rank) with ``inverse_divisor rows = A L_kept``, for rows (count x n) in the row space."""
        return integer_product(rows.toarray()[:, self.pivots], self.inverse)


def lowest(numerators: np.ndarray, denominator: int) -> tuple[np.ndarray, int]:
    """The same fractions over their lowest common denominator, which is positive.

    >>> lowest(np.array([4, -6]), -8)
    (array([-2, 3]), 4)
    """
    shared = content(numerators, denominator)
    signed = shared if denominator > 0 else -shared
    return numerators // signed, denominator // signed
