"""Sums and products of operators, kept as their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .numbers import (
    Coefficient,
    bound_product,
    bound_sum,
    check_power,
)
from .operator import (
    AxisOperator,
    LinearOperator,
    check_operators,
    refuse_large_entries,
)
from .scaled import check_coefficient


@dataclass(frozen=True, eq=False, repr=False)
class Sum(AxisOperator):
    """A linear combination of operators of one shape: ``sum_t c_t A_t``.

    >>> from tabulae.linalg import Identity
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
        return bound_sum([bound_product(abs(c), op.abs_row_sum_max()) for c, op in self.terms])

    def abs_entry_max(self) -> int | float:
        return bound_sum([bound_product(abs(c), op.abs_entry_max()) for c, op in self.terms])

    def _check_entries(self) -> None:
        refuse_large_entries(self)

    def __repr__(self) -> str:
        return f"Sum({len(self.terms)} terms, {self.shape[0]} x {self.shape[1]})"


@dataclass(frozen=True, eq=False, repr=False)
class Product(AxisOperator):
    """``left @ right``, applied one after the other and never multiplied out.

    >>> from tabulae.linalg import Prefix, Total
    >>> (Product(Total(2), Prefix(2)) @ [1, 2]).tolist()
    [4]
    """

    left: LinearOperator
    right: LinearOperator

    def __post_init__(self) -> None:
        check_operators([self.left, self.right], "Product")
        if self.left.shape[1] != self.right.shape[0]:
            raise InvalidArgument(
                f"Product: left has {self.left.shape[1]} columns, right {self.right.shape[0]} rows"
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

    def columns(self, index: np.ndarray) -> np.ndarray:
        from .simple import Partition

        if isinstance(self.right, Partition) and self.right.classes.min() >= 0:
            return self.left.columns(self.right.classes[index])
        return super().columns(index)

    def _few_columns(self, index: np.ndarray) -> np.ndarray:
        return self.left.matmat(self.right.columns(index))

    def abs_row_sum_max(self) -> int | float:
        return bound_product(self.left.abs_row_sum_max(), self.right.abs_row_sum_max())

    def abs_entry_max(self) -> int | float:
        return bound_product(self.left.abs_row_sum_max(), self.right.abs_entry_max())

    def column_norms(self, p: int) -> np.ndarray:
        from .weighted_rows import weighted_column_sums

        check_power(p)
        known = weighted_column_sums(self, p)
        return super().column_norms(p) if known is None else known

    def _check_entries(self) -> None:
        refuse_large_entries(self)

    def __repr__(self) -> str:
        return f"Product({self.left!r}, {self.right!r})"
