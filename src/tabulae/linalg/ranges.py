"""Range queries over an ordered attribute: prefixes, all ranges, sliding windows.

All are applied by cumulative sums, never as matrices: ``AllRange(4096)`` has 8.4 million rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument
from .arrays import INT64_LIMIT, check_power, check_size
from .operator import (
    AxisOperator,
    CountingOperator,
    LinearOperator,
    MatrixProduct,
    Scaled,
    SizedOperator,
    Sparse,
    SymmetricOperator,
)

_LONG_SLICE = 512  # numbers from which adding a slice costs more than calling numpy to do it
_STRETCH = 32


class Prefix(CountingOperator):
    """Cumulative counts: row ``k`` adds the cells ``0 .. k``; ``n x n``.

    >>> Prefix(3).dense().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """

    def along(self, x: np.ndarray) -> np.ndarray:
        return running_sum(x)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return running_sum(y[:, ::-1])[:, ::-1]

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        running_sum(x, out)

    def along_T_to(self, y: np.ndarray, out: np.ndarray) -> None:
        running_sum(y[:, ::-1], out[:, ::-1])

    def pinv(self) -> LinearOperator:
        return _banded(self.n, {0: 1, -1: -1})

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        return np.arange(self.n, 0, -1, dtype=np.int64)

    def pair_distance_max(self, p: int) -> int:
        """The first and the last cell differ in all rows but the last."""
        return self.n - 1


class AllRange(CountingOperator):
    """Every range of cells ``i .. j``, ``i <= j``, in lexicographic order; ``n(n+1)/2 x n``.

    The Gram matrix has entries ``min((i+1)(n-j), (j+1)(n-i))`` and a tridiagonal inverse, so products
    cost ``O(n)`` plus the size of the output.

    >>> (AllRange(3) @ [1, 2, 3]).tolist()
    [1, 3, 6, 2, 5, 3]
    """

    @property
    def shape(self) -> tuple[int, int]:
        return self.n * (self.n + 1) // 2, self.n

    def along(self, x: np.ndarray) -> np.ndarray:
        left, n, right = x.shape
        out = np.empty((left, self.shape[0], right), dtype=x.dtype)
        sums = running_sum(x)
        out[:, :n] = sums
        first = n
        for start in range(1, n):
            last = first + n - start
            np.subtract(sums[:, start:], sums[:, start - 1 : start], out=out[:, first:last])
            first = last
        return out

    def along_T(self, y: np.ndarray) -> np.ndarray:
        left, _, right = y.shape
        steps = np.zeros((left, self.n + 1, right), dtype=y.dtype)
        first = 0
        for start in range(self.n):
            last = first + self.n - start
            steps[:, start] += y[:, first:last].sum(axis=1)
            steps[:, start + 1 :] -= y[:, first:last]
            first = last
        return running_sum(steps[:, :-1])

    def gram(self) -> LinearOperator:
        return AllRangeGram(self.n)

    def pinv(self) -> LinearOperator:
        return MatrixProduct(AllRangeGram(self.n).pinv(), self.T)

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        index = np.arange(self.n, dtype=np.int64)
        return (index + 1) * (self.n - index)

    def pair_distance_max(self, p: int) -> int:
        """``(k - j) (n + 1 - (k - j))`` ranges hold exactly one of the cells ``j < k``."""
        apart = min((self.n + 1) // 2, self.n - 1)
        return apart * (self.n + 1 - apart)


class AllRangeGram(SymmetricOperator, SizedOperator):
    """The Gram matrix of ``AllRange(n)``: ``(n + 1)`` times the inverse of ``tridiag(-1, 2, -1)``."""

    def along(self, x: np.ndarray) -> np.ndarray:
        up = np.arange(1, self.n + 1, dtype=x.dtype)[:, None]
        down = up[::-1]
        left = running_sum(up * x)
        right = running_sum((down * x)[:, ::-1])[:, ::-1]
        out = down * left
        out[:, :-1] += up[:-1] * right[:, 1:]
        return out

    def pinv(self) -> LinearOperator:
        return Scaled(_banded(self.n, {-1: -1, 0: 2, 1: -1}), Fraction(1, self.n + 1))

    def abs_row_sum_max(self) -> int:
        middle = (self.n + 1) // 2
        return middle * (self.n + 1 - middle) * (self.n + 1) // 2

    def abs_entry_max(self) -> int:
        middle = (self.n + 1) // 2
        return middle * (self.n + 1 - middle)

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        if p == 2:
            return super().column_norms(p)
        index = np.arange(1, self.n + 1, dtype=np.int64 if self.abs_row_sum_max() < INT64_LIMIT else object)
        return index * (self.n + 1 - index) * (self.n + 1) // 2

    def dense(self) -> np.ndarray:
        index = np.arange(self.n, dtype=np.int64)
        return np.minimum.outer(index + 1, index + 1) * np.minimum.outer(self.n - index, self.n - index)


@dataclass(frozen=True, eq=False, repr=False)
class WidthRange(CountingOperator):
    """Every range of exactly ``width`` cells, by its start; ``(n - width + 1) x n``.

    Full row rank; the columns are dependent when ``width > 1``.

    >>> (WidthRange(4, 2) @ [1, 2, 3, 4]).tolist()
    [3, 5, 7]
    """

    width: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", check_size(self.width, "WidthRange(n, width): width"))
        if self.width > self.n:
            raise InvalidArgument(f"WidthRange: width {self.width} exceeds the {self.n} cells")

    @property
    def shape(self) -> tuple[int, int]:
        return self.n - self.width + 1, self.n

    def along(self, x: np.ndarray) -> np.ndarray:
        sums = running_sum(x)
        out = sums[:, self.width - 1 :].copy()
        out[:, 1:] -= sums[:, : self.n - self.width]
        return out

    def along_T(self, y: np.ndarray) -> np.ndarray:
        left, m, right = y.shape
        steps = np.zeros((left, self.n, right), dtype=y.dtype)
        steps[:, :m] = y
        steps[:, self.width :] -= y[:, : self.n - self.width]
        return running_sum(steps)

    def pinv(self) -> LinearOperator:
        return window_pinv(self.n, self.width)

    def abs_row_sum_max(self) -> int:
        return self.width

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        index = np.arange(self.n, dtype=np.int64)
        return np.minimum(index, self.n - self.width) - np.maximum(index - self.width + 1, 0) + 1

    def pair_distance_max(self, p: int) -> int:
        """The cell ``width`` further on is the farthest: nearer ones share windows, others lie in no more."""
        norms = self.column_norms(1)
        one = np.arange(self.n, dtype=np.int64)
        other = np.minimum(one + self.width, self.n - 1)
        shared = np.minimum(one, self.n - self.width) - np.maximum(other - self.width + 1, 0) + 1
        return int((norms + norms[other] - 2 * np.maximum(shared, 0)).max())

    def column_classes(self) -> np.ndarray:
        """Cells in the middle of few wide windows lie in all of them, and only they coincide."""
        index = np.arange(self.n, dtype=np.int64)
        last = np.minimum(index, self.n - self.width)
        first = np.maximum(index - self.width + 1, 0)
        changed = (np.diff(first) != 0) | (np.diff(last) != 0)
        return np.concatenate([[0], np.cumsum(changed)]).astype(np.int64)

    def __repr__(self) -> str:
        return f"WidthRange({self.n}, {self.width})"


def _banded(n: int, bands: dict[int, int]) -> LinearOperator:
    """The ``n x n`` matrix with a constant on each of some diagonals."""
    row = np.concatenate([np.arange(max(0, -offset), min(n, n - offset)) for offset in bands])
    column = np.concatenate([np.arange(max(0, offset), min(n, n + offset)) for offset in bands])
    value = np.concatenate([np.full(n - abs(offset), entry) for offset, entry in bands.items()])
    return Sparse(scipy.sparse.csr_array((value, (row, column)), shape=(n, n)))


def running_sum(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Cumulative sums along the middle axis of ``(left, n, right)``.

    Whole slices are added at a time. Where slices are short, sums run inside stretches first and the
    stretches' totals are added after; a lone vector goes to numpy.
    """
    left, n, right = x.shape
    if left * right < 16:
        return np.cumsum(x, axis=1, out=out)
    out = np.empty(x.shape, dtype=x.dtype) if out is None else out
    if left * right >= _LONG_SLICE or n <= 2 * _STRETCH:
        _add_slices(np.moveaxis(x, 1, 0), np.moveaxis(out, 1, 0))
        return out
    stretches = n // _STRETCH
    main = stretches * _STRETCH
    inside = out[:, :main].reshape(left, stretches, _STRETCH, right)
    _add_slices(
        np.moveaxis(x[:, :main].reshape(left, stretches, _STRETCH, right), 2, 0), np.moveaxis(inside, 2, 0)
    )
    totals = running_sum(np.ascontiguousarray(inside[:, :, -1]))
    inside[:, 1:] += totals[:, :-1, None]
    if main < n:
        np.add(running_sum(x[:, main:]), totals[:, -1:], out=out[:, main:])
    return out


def _add_slices(source: np.ndarray, target: np.ndarray) -> None:
    """``target[k] = source[0] + ... + source[k]``."""
    target[0] = source[0]
    before = target[0]
    for addend, result in zip(list(source)[1:], list(target)[1:], strict=True):
        np.add(before, addend, result)
        before = result


def window_pinv(n: int, width: int) -> LinearOperator:
    """``WidthRange(n, width)^+``, ``n x (n - width + 1)``, in ``O(n)``.

    ``A x = y`` for windows of width ``w`` says ``x[s + w] - x[s] = y[s + 1] - y[s]`` and that the first
    ``w`` cells add to ``y[0]``. So one solution comes from cumulative sums with stride ``w``. The null space of
    ``A`` is the ``w``-periodic sequences that add to zero over a period; removing the solution's part in it
    leaves the shortest solution, which is ``A^+ y``. No linear system is solved, so nothing is lost to the
    condition number of ``A A'``.
    """
    return MatrixProduct(PeriodicComplement(n, width), MatrixProduct(StridedSum(n, width), _steps(n, width)))


def _steps(n: int, width: int) -> LinearOperator:
    """The start of each stride (the first window shared evenly), then what each later cell adds to it."""
    rows = n - width + 1
    later = np.arange(width, n)
    row = np.concatenate([np.arange(width), later, later])
    column = np.concatenate([np.zeros(width, dtype=np.int64), later - width + 1, later - width])
    value = np.concatenate([np.full(width, 1 / width), np.ones(n - width), -np.ones(n - width)])
    return Sparse(scipy.sparse.csr_array((value, (row, column)), shape=(n, rows)))


@dataclass(frozen=True, eq=False, repr=False)
class StridedSum(AxisOperator):
    """Cumulative sums with a stride: row ``j`` adds the cells ``j, j - stride, j - 2 stride, ...``."""

    n: int
    stride: int
    integer = binary = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, x: np.ndarray) -> np.ndarray:
        left, n, right = x.shape
        turns = -(-n // self.stride)
        padded = np.zeros((left, turns * self.stride, right), dtype=x.dtype)
        padded[:, :n] = x
        sums = running_sum(padded.reshape(left, turns, self.stride * right))
        return sums.reshape(left, turns * self.stride, right)[:, :n]

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.along(y[:, ::-1])[:, ::-1]


@dataclass(frozen=True, eq=False, repr=False)
class PeriodicComplement(SymmetricOperator):
    """The projection that removes the ``period``-periodic part whose period adds to zero. Symmetric."""

    n: int
    period: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def along(self, x: np.ndarray) -> np.ndarray:
        left, n, right = x.shape
        turns = -(-n // self.period)
        padded = np.zeros((left, turns * self.period, right))
        padded[:, :n] = x
        shaped = padded.reshape(left, turns, self.period, right)
        counts = np.bincount(np.arange(n) % self.period, minlength=self.period)[:, None].astype(np.float64)
        means = shaped.sum(axis=1) / counts
        common = means.sum(axis=1, keepdims=True) / (1 / counts).sum()
        shaped -= (means - common / counts)[:, None]
        return padded[:, :n]
