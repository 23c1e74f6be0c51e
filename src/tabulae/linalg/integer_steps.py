"""Small whole steps: ``L d = e`` for independent rows L, by elimination where that keeps d small, by reduction else.

Rows with an entry of size one that stay sparse are eliminated, ``z_pivot = T e - F z_free``. What the others leave on
the free columns, H, is solved there by short vectors, with no more columns than generate what all generate.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse

from ..errors import Unsupported
from .exact import largest_abs
from .integer_echelon import IntegerEchelon
from .integers import (
    SparseRows,
    narrow,
    product,
)
from .short_vectors import ShortKernel

_LARGEST_ENTRY = 8  # of the eliminated form: how far a cell may answer to a free one
_MOST_HARD_ROWS = 96


class IntegerSteps:
    """Whole solutions of ``L d = e`` for independent rows L (r x n); ``priority`` (n,): columns of small value move.

    >>> steps = IntegerSteps(scipy.sparse.csr_array([[1, 1, 0, 0], [0, 0, 2, 3]]))
    >>> steps.failing(np.array([1, 1])), (steps.matrix @ steps.solve(np.array([1, 1]))).tolist()
    (None, [1, 1])
    """

    def __init__(self, matrix: SparseRows, priority: np.ndarray | None = None) -> None:
        self.matrix, self._priority = matrix, priority
        self._easy = IntegerEchelon(int(matrix.shape[1]), priority, _LARGEST_ENTRY)
        self._easy.extend(matrix)
        self._rows = np.array(self._easy.kept, dtype=np.intp)
        self._hard = np.array(self._easy.postponed, dtype=np.intp)

    @classmethod
    def of(cls, matrix: SparseRows, echelon: IntegerEchelon) -> IntegerSteps:
        """The steps of a system whose kept rows are ``matrix``: by its own form where that is small enough."""
        if echelon.divisor != 1 or largest_abs(echelon.reduced) > _LARGEST_ENTRY:
            return cls(matrix, echelon.priority)
        steps = cls.__new__(cls)
        steps.matrix, steps._priority, steps._easy = matrix, echelon.priority, echelon
        steps._rows, steps._hard = np.arange(matrix.shape[0]), np.zeros(0, dtype=np.intp)
        return steps

    @cached_property
    def _left(self) -> np.ndarray:
        """H: the rows put off, less their part in those eliminated, (h, n)."""
        return self._easy.remainder(self.matrix[self._hard].toarray())

    @cached_property
    def _kernel(self) -> tuple[np.ndarray, ShortKernel]:
        """Columns that generate what all columns of H generate, and the short vectors of H on them."""
        if len(self._hard) > _MOST_HARD_ROWS or largest_abs(self._left) > 2**48:
            raise Unsupported(
                f"{len(self._hard)} exact counts overlap so irregularly that whole numbers near the estimate that meet "
                f"them all cannot be found (at most {_MOST_HARD_ROWS} can): publish fewer of them exactly, or make "
                "them sums of groups that nest"
            )
        candidates = self._candidates()
        count = min(len(candidates), 2 * len(self._hard) + 16)
        chosen = _independent(self._left, candidates, count)
        while True:
            kernel = ShortKernel(self._left[:, chosen])
            others = np.setdiff1d(candidates, chosen)
            missing = others[kernel.remainders(self._left[:, others]) >= 0]
            if not missing.size:
                return chosen, kernel
            chosen = np.concatenate([chosen, missing[: max(1, len(missing) // 4)]])

    def _candidates(self) -> np.ndarray:
        """The columns of H that are not zero, one of each kind, those to move first in front."""
        order = (
            np.arange(self._left.shape[1])
            if self._priority is None
            else np.argsort(self._priority, kind="stable")
        )
        used = order[np.any(self._left[:, order] != 0, axis=0)]
        seen: dict[bytes, int] = {}
        for column in used.tolist():
            seen.setdefault(str(self._left[:, column].tolist()).encode(), column)
        return np.array(list(seen.values()), dtype=np.intp)

    def failing(self, residual: np.ndarray) -> int | None:
        """A row that no whole d meets together with the rows eliminated before it; None where there is a d."""
        moved = product(self._easy.inverse, residual[self._rows])
        broken = np.flatnonzero(moved % self._easy.inverse_divisor != 0)
        if broken.size:
            return int(self._rows[broken[0]])
        if not self._hard.size:
            return None
        place = int(self._kernel[1].remainders(self._left_over(residual, moved)[:, None])[0])
        return None if place < 0 else int(self._hard[place])

    def _left_over(self, residual: np.ndarray, moved: np.ndarray) -> np.ndarray:
        coefficients = self.matrix[self._hard].toarray()[:, self._easy.pivots]
        met = product(coefficients, moved // self._easy.inverse_divisor)
        return narrow(residual[self._hard].astype(object) - met)

    def solve(self, residual: np.ndarray) -> np.ndarray:
        """d (n,) with ``L d = residual``, where :meth:`failing` finds nothing."""
        moved = product(self._easy.inverse, residual[self._rows])
        step = np.zeros(self.matrix.shape[1], dtype=object)
        step[self._easy.pivots] = moved // self._easy.inverse_divisor
        if self._hard.size:
            columns, kernel = self._kernel
            free = kernel.solve(self._left_over(residual, moved))
            step[columns] = free
            answer = product(self._easy.reduced[:, columns], free)
            step[self._easy.pivots] = step[self._easy.pivots] - answer
        return narrow(step)


def _independent(left: np.ndarray, candidates: np.ndarray, count: int) -> np.ndarray:
    """``count`` columns or more, full rank among them, the first candidates where that does."""
    first = candidates[:count]
    echelon = IntegerEchelon(left.shape[0])
    echelon.extend(scipy.sparse.csr_array(left[:, candidates].T))
    return np.union1d(first, candidates[echelon.kept])
