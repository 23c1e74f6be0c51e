"""Multiples of operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .numbers import (
    Coefficient,
    bound_product,
    scaled_norms,
)
from .operator import (
    AxisOperator,
    LinearOperator,
    check_operators,
    refuse_large_entries,
    write,
)


def check_coefficient(value: Any, name: str) -> Coefficient:
    """A finite real number: an ``int`` where it is whole, else a ``Fraction`` or a ``float``."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, Fraction, float)):
        raise InvalidArgument(f"{name} must be an int, a Fraction or a float, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"{name} must be finite, not {value}")
    return int(value) if value == int(value) else value


def reciprocal(op: LinearOperator, divisor: Coefficient) -> LinearOperator:
    """``op / divisor``."""
    return Scaled(op, 1 / Fraction(divisor)) if not isinstance(divisor, float) else Scaled(op, 1.0 / divisor)


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(AxisOperator):
    """A multiple of an operator. A Fraction stays exact in sensitivities; an integer keeps integers.

    >>> from tabulae.linalg import Identity
    >>> (Scaled(Identity(2), 3) @ [1, 2]).tolist()
    [3, 6]
    """

    op: LinearOperator
    factor: Coefficient

    def __post_init__(self) -> None:
        check_operators([self.op], "Scaled")
        object.__setattr__(self, "factor", check_coefficient(self.factor, "Scaled(op, factor): factor"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape

    @property
    def integer(self) -> bool:
        return self.op.integer and isinstance(self.factor, int)

    @property
    def binary(self) -> bool:
        return self.op.binary and self.factor in (0, 1)

    @property
    def T(self) -> LinearOperator:
        return Scaled(self.op.T, self.factor)

    def key(self) -> tuple[Any, ...]:
        return ("Scaled", self.factor, self.op.key())

    def _multiplier(self, dtype: np.dtype[Any]) -> int | float:
        if dtype != np.int64:
            return float(self.factor)
        if not isinstance(self.factor, int):
            raise InvalidArgument(f"{self!r} is not an integer operator: pass a float64 array")
        return self.factor

    def along(self, x: np.ndarray) -> np.ndarray:
        out = self.op.along(x)
        return out * self._multiplier(out.dtype)

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        write(self.op, x, out)
        out *= self._multiplier(out.dtype)

    def along_T(self, y: np.ndarray) -> np.ndarray:
        out = self.op.T.along(y)
        return out * self._multiplier(out.dtype)

    def gram(self) -> LinearOperator:
        return Scaled(self.op.gram(), self.factor * self.factor)

    def pinv(self) -> LinearOperator:
        if self.factor == 0:
            return Scaled(self.op.T, 0)
        return reciprocal(self.op.pinv(), self.factor)

    def abs_row_sum_max(self) -> int | float:
        return bound_product(abs(self.factor), self.op.abs_row_sum_max())

    def abs_entry_max(self) -> int | float:
        return bound_product(abs(self.factor), self.op.abs_entry_max())

    def column_norms(self, p: int) -> np.ndarray:
        return scaled_norms(self.op.column_norms(p), abs(self.factor) ** p, whole=self.integer)

    def column_classes(self) -> np.ndarray:
        return np.zeros(self.shape[1], dtype=np.int64) if self.factor == 0 else self.op.column_classes()

    def _check_entries(self) -> None:
        refuse_large_entries(self)

    def __repr__(self) -> str:
        return f"Scaled({self.op!r}, {self.factor})"
