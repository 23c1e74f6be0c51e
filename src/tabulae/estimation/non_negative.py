"""Non-negative least squares over the cells that the measurements tell apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import NotEstimable, Unsupported
from ..linalg import Kron, LinearOperator, Partition, Total
from ..strategy import law_variances
from .cone import Certificate, Solution, solve
from .merged_cells import MergedCells
from .one_sided import OneSided

_EVEN = 1e-3  # weights of cells in a certificate may differ by this factor before another is sought


@dataclass(frozen=True, eq=False)
class NonNegative(OneSided):
    """``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over ``x >= 0``.

    The point of the cone of non-negative cells that is closest to the measurements: in the measured norm it is never
    farther from the truth than they are. Solved over merged cells, to a duality gap that ``solution.gap`` states:
    each answer lies within ``sqrt(2 gap)`` of its own standard errors of the exact optimum.

    Raises :class:`~tabulae.errors.Unsupported` above 10^7 merged cells.
    """

    @property
    def precision(self) -> float:
        return 2 * math.sqrt(2 * self.solution.gap)

    @cached_property
    def _problem(self) -> MergedCells:
        strategy = self.measurement.strategy
        return MergedCells(strategy, law_variances(strategy, self.measurement.laws))

    @cached_property
    def solution(self) -> Solution:
        """The merged cells, and the gap that proves how near the optimum they are."""
        problem = self._problem
        noise = law_variances(self.measurement.strategy, self.measurement.laws)
        whitened = [y / math.sqrt(v) for y, v in zip(self.answers, noise, strict=True)]
        return solve(problem, whitened, self._certificate())

    def _certificate(self) -> Certificate:
        """All measured queries added up, if that counts every cell with a positive weight; else the total."""
        problem = self._problem
        ones = [np.ones(block.rows) for block in self.measurement.strategy.blocks]
        direction, counted = problem.adjoint(ones), problem.counted()
        if direction[counted].min(initial=np.inf) > _EVEN * direction.max(initial=0.0):
            return Certificate(np.where(counted, direction, 0.0), float(sum(map(len, ones))))
        try:
            total = self._everyone()
            variance = float(self.information.variance(total)[0])
        except NotEstimable:
            raise Unsupported(
                "the measured queries have negative weights and do not determine how many records they count, "
                'so that no stopping rule of non-negative least squares is proven for them: estimate by "least-squares"'
            ) from None
        return Certificate(np.asarray(problem.over_cells(total).T @ np.ones(1), dtype=float), variance)

    def _everyone(self) -> LinearOperator:
        """The count over all values of each attribute that some block counts."""
        rows: list[LinearOperator] = []
        blocks = [factors for block in self.measurement.strategy.blocks for _, factors in block.terms]
        for column in zip(*blocks, strict=True):
            seen = np.any([np.asarray(f.column_norms(1)) > 0 for f in column], axis=0)
            rows.append(Total(len(seen)) if seen.all() else Partition(np.where(seen, 0, -1), 1))
        return Kron(rows)

    def point_of(self, operator: LinearOperator) -> np.ndarray:
        return np.asarray(self._problem.over_cells(operator) @ self.solution.cells, dtype=float)
