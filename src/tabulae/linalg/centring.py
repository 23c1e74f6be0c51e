"""n times the centring matrix: what each cell has beyond the mean, in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .numbers import (
    INT64_LIMIT,
    check_power,
    check_size,
)
from .operator import AxisOperator, LinearOperator


@dataclass(frozen=True, eq=False, repr=False)
class Centring(AxisOperator):
    """``n I - J``: n times each cell less the sum of all, n times the centring matrix; rank n - 1.

    >>> (Centring(3) @ [1, 2, 6]).tolist()
    [-6, -3, 9]
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_size(self.n, "Centring(n): n"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    @property
    def integer(self) -> bool:
        return True

    @property
    def binary(self) -> bool:
        return self.n == 1  # the 1 x 1 zero

    @property
    def T(self) -> LinearOperator:
        return self

    def key(self) -> tuple[Any, ...]:
        return ("Centring", self.n)

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.n * x - x.sum(axis=1, keepdims=True)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.along(y)

    def gram(self) -> LinearOperator:
        from .scaled import Scaled

        return Scaled(self, self.n)

    def pinv(self) -> LinearOperator:
        from .scaled import reciprocal

        return reciprocal(self, self.n**2)

    def abs_row_sum_max(self) -> int:
        return 2 * (self.n - 1)

    def abs_entry_max(self) -> int:
        return self.n  # n - 1, and n times an entry on the way there

    def column_norms(self, p: int) -> np.ndarray:
        check_power(p)
        norm = 2 * (self.n - 1) if p == 1 else self.n * (self.n - 1)
        return np.full(self.n, norm, dtype=np.int64 if norm < INT64_LIMIT else object)

    def column_classes(self) -> np.ndarray:
        return np.arange(self.n, dtype=np.int64)

    def pair_distance_max(self, p: int) -> int:
        """Two columns differ by n in two entries."""
        return 2 * self.n**p if self.n > 1 else 0

    def __repr__(self) -> str:
        return f"Centring({self.n})"
