"""Counts as a vector over all cells of the domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..domain import Domain
from ..linalg import LinearOperator
from .integers import (
    BLOCK,
    Integers,
    check_bound,
    exact_sum,
)


@dataclass(frozen=True, repr=False, eq=False)
class Vector:
    """A count for every cell, in C order."""

    x: Integers

    def __post_init__(self) -> None:
        self.x.setflags(write=False)

    def total(self) -> int:
        """The number of records."""
        return exact_sum(self.x)

    def answer(self, domain: Domain, op: LinearOperator) -> tuple[Integers, int]:
        """The answers ``A x``, and a bound on their size, below 2^62."""
        bound = check_bound(op, op.bound(self.x))
        return op @ self.x, bound

    def blocks(self) -> Iterator[tuple[tuple[Integers, ...], Integers]]:
        """Keys and counts of the cells that are not empty, in C order, some at a time."""
        cells = np.flatnonzero(self.x)
        for start in range(0, cells.size, BLOCK):
            block = cells[start : start + BLOCK]
            yield (block,), self.x[block]
