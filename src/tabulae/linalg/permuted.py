"""Operators on reordered cells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .digest import digest, frozen
from .operator import (
    AxisOperator,
    LinearOperator,
    check_operators,
)


@dataclass(frozen=True, eq=False, repr=False)
class Permuted(AxisOperator):
    """The operator on reordered cells: ``Permuted(op, order) @ x == op @ x[order]``.

    >>> from tabulae.linalg import Prefix
    >>> (Permuted(Prefix(3), [2, 0, 1]) @ [1, 2, 3]).tolist()
    [3, 4, 6]
    """

    op: LinearOperator
    order: Any  # an int64 array once built

    def __post_init__(self) -> None:
        check_operators([self.op], "Permuted")
        order, n = np.asarray(self.order), self.op.shape[1]
        if (
            order.shape != (n,)
            or order.dtype.kind not in "iu"
            or not np.array_equal(np.sort(order), np.arange(n))
        ):
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
        from .merge import renumber

        return renumber(self.op.column_classes()[self._inverse])

    def __repr__(self) -> str:
        return f"Permuted({self.op!r})"
