"""Reduced row echelon form of an integer matrix, exactly.

Rows come in order; one that earlier rows determine is left out. For the others, the kept rows,

    L_kept = B P,    P = [I | F] on (pivot | free) columns,    B = L_kept on the pivot columns.

P and ``B^-1`` are held as integer matrices over a common denominator. That of P is 1 as long as every row that is
kept, reduced and divided by the greatest common divisor of its entries, has an entry of size one to be the pivot:
for tables of counts that is nearly always so. Then the rows of P span all whole vectors of the row space, so
``L_kept z = e`` has an integer solution z exactly where ``B^-1 e`` is integer.
"""

from __future__ import annotations

import math

import numpy as np

from .integers import (
    IntegerRows,
    SparseRows,
    content,
    narrow,
    product,
    times,
)

_BLOCK = 128  # rows that are reduced together


class IntegerEchelon:
    """The form above of the rows given to :meth:`extend`, over n columns.

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
        part = product(coefficients[:, used], self.reduced[used])
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
        beyond = self.divisor * int(original[pivot]) - int(
            product(coefficients[None, used], self.reduced[used, pivot])[0]
        )  # divisor times the reduced row at its pivot
        made = self.inverse if used.size == rank else self.inverse[used]  # no copy where all are used
        known = product(coefficients[None, used], made, self._inverse.bound)[0]
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
        return product(rows.toarray()[:, self.pivots], self.inverse)


def lowest(numerators: np.ndarray, denominator: int) -> tuple[np.ndarray, int]:
    """The same fractions over their lowest common denominator, which is positive.

    >>> lowest(np.array([4, -6]), -8)
    (array([-2, 3]), 4)
    """
    shared = content(numerators, denominator)
    signed = shared if denominator > 0 else -shared
    return numerators // signed, denominator // signed
