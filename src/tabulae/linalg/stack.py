"""Operators one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .algebra import Sum
from .numbers import add_norms
from .operator import (
    AxisOperator,
    LinearOperator,
    check_operators,
    write,
)


@dataclass(frozen=True, eq=False, repr=False)
class Stack(AxisOperator):
    """Operators over the same cells, one above the other, rows in the order given.

    >>> from tabulae.linalg import Identity, Total
    >>> (Stack([Total(2), Identity(2)]) @ [3, 4]).tolist()
    [7, 3, 4]
    """

    ops: Sequence[LinearOperator]

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
        from .merge import joint_classes

        return joint_classes([op.column_classes() for op in dict.fromkeys(self.ops)])

    def __repr__(self) -> str:
        return f"Stack({len(self.ops)} operators, {self.shape[0]} x {self.shape[1]})"
