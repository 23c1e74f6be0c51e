"""Operators made of operators: Scaled, Permuted, Stack, Sum, Product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tabulae.errors import InvalidArgument
from tabulae.linalg.digest import digest, frozen
from tabulae.linalg.operator import (
    INT64_LIMIT,
    AxisOperator,
    LinearOperator,
    check_operators,
    check_power,
)

Coefficient = int | Fraction | float


def check_coefficient(value: Any, name: str) -> Coefficient:
    """A finite real number: an ``int`` where it is whole, else a ``Fraction`` or a ``float``."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, Fraction, float)):
        raise InvalidArgument(f"{name} must be an int, a Fraction or a float, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"{name} must be finite, not {value}")
    return int(value) if value == int(value) else value


def write(op: LinearOperator, x: np.ndarray, out: np.ndarray) -> None:
    """``op`` along the middle axis of ``x``, written to ``out``."""
    if isinstance(op, AxisOperator):
        op.along_to(x, out)
    else:
        np.copyto(out, op.along(x), casting="unsafe")


def reciprocal(op: LinearOperator, divisor: Coefficient) -> LinearOperator:
    """``op / divisor``."""
    return Scaled(op, 1 / Fraction(divisor)) if not isinstance(divisor, float) else Scaled(op, 1.0 / divisor)


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(AxisOperator):
    """A multiple of an operator. A Fraction stays exact in sensitivities; an integer keeps integers.

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
        return _times(abs(self.factor), self.op.abs_row_sum_max())

    def abs_entry_max(self) -> int | float:
        return _times(abs(self.factor), self.op.abs_entry_max())

    def column_norms(self, p: int) -> np.ndarray:
        return scaled_norms(self.op.column_norms(p), abs(self.factor) ** p, self.integer)

    def column_classes(self) -> np.ndarray:
        return np.zeros(self.shape[1], dtype=np.int64) if self.factor == 0 else self.op.column_classes()

    def __repr__(self) -> str:
        return f"Scaled({self.op!r}, {self.factor})"


@dataclass(frozen=True, eq=False, repr=False)
class Permuted(AxisOperator):
    """The operator on reordered cells: ``Permuted(op, order) @ x == op @ x[order]``.

    >>> (Permuted(Prefix(3), [2, 0, 1]) @ [1, 2, 3]).tolist()
    [3, 4, 6]
    """

    op: LinearOperator
    order: np.ndarray

    def __post_init__(self) -> None:
        check_operators([self.op], "Permuted")
        order, n = np.asarray(self.order), self.op.shape[1]
        if order.shape != (n,) or order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(n)):
            raise InvalidArgument(f"Permuted(op, order): order must hold each of 0 .. {n - 1} once")
        object.__setattr__(self, "order", frozen(order.astype(np.int64)))

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape

    @property
    def integer(self) -> bool:
        return self.op.integer

    @property
    def binary(self) -> bool:
        return self.op.binary

    @cached_property
    def _inverse(self) -> np.ndarray:
        return np.argsort(self.order)

    def key(self) -> tuple[Any, ...]:
        return ("Permuted", self.op.key(), digest(self.order))

    def along(self, x: np.ndarray) -> np.ndarray:
        return self.op.along(x[:, self.order])

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.op.T.along(y)[:, self._inverse]

    def dense(self) -> np.ndarray:
        return self.op.dense()[:, self._inverse]

    def columns(self, index: np.ndarray) -> np.ndarray:
        return self.op.columns(self._inverse[index])

    def gram(self) -> LinearOperator:
        return Permuted(Permuted(self.op.gram(), self.order).T, self.order)

    def pinv(self) -> LinearOperator:
        return Permuted(self.op.pinv().T, self.order).T

    def abs_row_sum_max(self) -> int | float:
        return self.op.abs_row_sum_max()

    def abs_entry_max(self) -> int | float:
        return self.op.abs_entry_max()

    def column_norms(self, p: int) -> np.ndarray:
        return self.op.column_norms(p)[self._inverse]

    def pair_distance_max(self, p: int) -> int | None:
        return self.op.pair_distance_max(p)

    def column_classes(self) -> np.ndarray:
        from tabulae.linalg.merge import renumber

        return renumber(self.op.column_classes()[self._inverse])

    def __repr__(self) -> str:
        return f"Permuted({self.op!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Stack(AxisOperator):
    """Operators over the same cells, one above the other, rows in the order given.

    >>> (Stack([Total(2), Identity(2)]) @ [3, 4]).tolist()
    [7, 3, 4]
    """

    ops: tuple[LinearOperator, ...]

    def __post_init__(self) -> None:
        ops = check_operators(self.ops, "Stack")
        widths = [op.shape[1] for op in ops]
        if len(set(widths)) != 1:
            raise InvalidArgument(f"Stack needs operators over the same cells; these have {widths} columns")
        object.__setattr__(self, "ops", ops)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(op.shape[0] for op in self.ops), self.ops[0].shape[1]

    @property
    def integer(self) -> bool:
        return all(op.integer for op in self.ops)

    @property
    def binary(self) -> bool:
        return all(op.binary for op in self.ops)

    def key(self) -> tuple[Any, ...]:
        return ("Stack", tuple(op.key() for op in self.ops))

    def along(self, x: np.ndarray) -> np.ndarray:
        if len(self.ops) == 1:
            return self.ops[0].along(x)
        dtype = np.int64 if self.integer and x.dtype == np.int64 else np.float64
        out = np.empty((x.shape[0], self.shape[0], x.shape[2]), dtype=dtype)
        self.along_to(x, out)
        return out

    def along_to(self, x: np.ndarray, out: np.ndarray) -> None:
        first = 0
        for op in self.ops:
            write(op, x, out[:, first : first + op.shape[0]])
            first += op.shape[0]

    def along_T(self, y: np.ndarray) -> np.ndarray:
        first, total = 0, None
        for op in self.ops:
            part = op.T.along(y[:, first : first + op.shape[0]])
            first += op.shape[0]
            total = part if total is None else total + part
        assert total is not None
        return total

    def gram(self) -> LinearOperator:
        return Sum([(1, op.gram()) for op in self.ops]) if len(self.ops) > 1 else self.ops[0].gram()

    def pinv(self) -> LinearOperator:
        return super().pinv() if len(self.ops) > 1 else self.ops[0].pinv()

    def abs_row_sum_max(self) -> int | float:
        return max(op.abs_row_sum_max() for op in self.ops)

    def abs_entry_max(self) -> int | float:
        return max(op.abs_entry_max() for op in self.ops)

    def column_norms(self, p: int) -> np.ndarray:
        return add_norms([op.column_norms(p) for op in self.ops])

    def column_classes(self) -> np.ndarray:
        from tabulae.linalg.merge import joint_classes

        return joint_classes([op.column_classes() for op in dict.fromkeys(self.ops)])

    def __repr__(self) -> str:
        return f"Stack({len(self.ops)} operators, {self.shape[0]} x {self.shape[1]})"


@dataclass(frozen=True, eq=False, repr=False)
class Sum(AxisOperator):
    """A linear combination of operators of one shape: ``sum_t c_t A_t``.

    >>> (Sum([(2, Identity(2)), (-1, Identity(2))]) @ [1, 2]).tolist()
    [1, 2]
    """

    terms: Sequence[tuple[Coefficient, LinearOperator]]

    def __post_init__(self) -> None:
        terms = tuple((check_coefficient(c, "Sum: coefficient"), op) for c, op in self.terms)
        ops = check_operators([op for _, op in terms], "Sum")
        if len({op.shape for op in ops}) != 1:
            raise InvalidArgument(f"Sum needs operators of one shape, not {[op.shape for op in ops]}")
        object.__setattr__(self, "terms", terms)

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0][1].shape

    @property
    def integer(self) -> bool:
        return all(op.integer and isinstance(c, int) for c, op in self.terms)

    @property
    def T(self) -> LinearOperator:
        return Sum([(c, op.T) for c, op in self.terms])

    def key(self) -> tuple[Any, ...]:
        return ("Sum", tuple((c, op.key()) for c, op in self.terms))

    def along(self, x: np.ndarray) -> np.ndarray:
        if x.dtype == np.int64 and not self.integer:
            x = x.astype(np.float64)
        total = None
        for coefficient, op in self.terms:
            part = op.along(x)
            if coefficient != 1:
                part = part * (coefficient if part.dtype == np.int64 else float(coefficient))
            total = part if total is None else total + part
        assert total is not None
        return total

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.T.along(y)

    def abs_row_sum_max(self) -> int | float:
        return _added([_times(abs(c), op.abs_row_sum_max()) for c, op in self.terms])

    def abs_entry_max(self) -> int | float:
        return _added([_times(abs(c), op.abs_entry_max()) for c, op in self.terms])

    def __repr__(self) -> str:
        return f"Sum({len(self.terms)} terms, {self.shape[0]} x {self.shape[1]})"


@dataclass(frozen=True, eq=False, repr=False)
class Product(AxisOperator):
    """``left @ right``, applied one after the other and never multiplied out.

    >>> (Product(Total(2), Prefix(2)) @ [1, 2]).tolist()
    [4]
    """

    left: LinearOperator
    right: LinearOperator

    def __post_init__(self) -> None:
        check_operators([self.left, self.right], "Product")
        if self.left.shape[1] != self.right.shape[0]:
            raise InvalidArgument(
                f"Product(left, right): left has {self.left.shape[1]} columns and right {self.right.shape[0]} rows"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    @property
    def integer(self) -> bool:
        return self.left.integer and self.right.integer

    @property
    def T(self) -> LinearOperator:
        return Product(self.right.T, self.left.T)

    def key(self) -> tuple[Any, ...]:
        return ("Product", self.left.key(), self.right.key())

    def along(self, x: np.ndarray) -> np.ndarray:
        if x.dtype == np.int64 and not self.integer:
            x = x.astype(np.float64)
        return self.left.along(self.right.along(x))

    def along_T(self, y: np.ndarray) -> np.ndarray:
        return self.T.along(y)

    def abs_row_sum_max(self) -> int | float:
        return _times(self.left.abs_row_sum_max(), self.right.abs_row_sum_max())

    def abs_entry_max(self) -> int | float:
        return _times(self.left.abs_row_sum_max(), self.right.abs_entry_max())

    def __repr__(self) -> str:
        return f"Product({self.left!r}, {self.right!r})"


def _times(a: Coefficient, b: Coefficient) -> int | float:
    """A product of bounds: exact for integers, rounded up otherwise."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return float(a) * float(b) * (1 + 2.0**-50)


def _added(bounds: list[int | float]) -> int | float:
    if all(isinstance(bound, int) for bound in bounds):
        return sum(bounds)
    return sum(float(bound) for bound in bounds) * (1 + len(bounds) * 2.0**-50)


def scaled_norms(norms: np.ndarray, factor: Coefficient, whole: bool) -> np.ndarray:
    """Norms times a factor, in Python integers where int64 could overflow."""
    if not whole:
        return norms.astype(np.float64) * float(factor)
    if norms.dtype != object and int(norms.max()) * int(factor) >= INT64_LIMIT:
        norms = norms.astype(object)
    return norms * int(factor)


def add_norms(parts: list[np.ndarray]) -> np.ndarray:
    """The sum of several vectors of norms, in Python integers where int64 could overflow."""
    if any(part.dtype == np.float64 for part in parts):
        return np.sum([part.astype(np.float64) for part in parts], axis=0)
    if sum(int(part.max()) for part in parts) >= INT64_LIMIT:
        parts = [part.astype(object) for part in parts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


from tabulae.linalg.ranges import Prefix  # noqa: E402  (for the doctests)
from tabulae.linalg.simple import Identity, Total  # noqa: E402
