"""The pseudo-inverse of sliding windows, in ``O(n)``.

``A x = y`` for windows of width ``w`` says ``x[s + w] - x[s] = y[s + 1] - y[s]`` and that the first
``w`` cells add to ``y[0]``. So one solution comes from cumulative sums with stride ``w``. The null space of
``A`` is the ``w``-periodic sequences that add to zero over a period; removing the solution's part in it
leaves the shortest solution, which is ``A^+ y``. No linear system is solved, so nothing is lost to the
condition number of ``A A'``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from .operator import AxisOperator, LinearOperator
from .ranges import running_sum


def window_pinv(n: int, width: int) -> LinearOperator:
    """``WidthRange(n, width)^+``, ``n x (n - width + 1)``."""
    from .algebra import Product

    return Product(PeriodicComplement(n, width), Product(StridedSum(n, width), _steps(n, width)))


def _steps(n: int, width: int) -> LinearOperator:
    """The start of each stride (the first window shared evenly), then what each later cell adds to it."""
    from .explicit import Sparse

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

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def integer(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return True

    def key(self) -> tuple[Any, ...]:
        return ("StridedSum", self.n, self.stride)

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
class PeriodicComplement(AxisOperator):
    """The projection that removes the ``period``-periodic part whose period adds to zero. Symmetric."""

    n: int
    period: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def T(self) -> LinearOperator:
        return self

    def key(self) -> tuple[Any, ...]:
        return ("PeriodicComplement", self.n, self.period)

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

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.along(y)
