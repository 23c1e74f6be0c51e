"""Non-negative least squares over the cells that the measurements tell apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..domain import Constraint, Table
from ..errors import InvalidArgument, NotEstimable, Unsupported
from ..linalg import Kron, LinearOperator, Partition, Total
from ..strategy import law_variances
from .cone import Certificate, ConstrainedCone, Solution, WholeSolution, solve
from .least_squares import ConstrainedLeastSquares, LeastSquares, OneSided
from .limits import Limits
from .measured_cells import MeasuredCells
from .whole_cells import Rounding

_EVEN = 1e-3  # weights of cells in a certificate may differ by this factor before another is sought


@dataclass(frozen=True, eq=False)
class NonNegative(OneSided):
    """``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over ``x >= 0``, ``C x = c`` and ``l <= T x <= u``.

    Of all cells that are possible, those closest to the measurements: in the measured norm they are never farther from
    the truth than the measurements are. Solved over merged cells, to a duality gap that ``solution.gap`` states:
    each answer lies within ``sqrt(2 gap)`` of its own standard errors of the exact optimum.

    With constraints the cells are whole numbers of ``2^-k`` counts (:attr:`exact_cells`), so that the equalities and
    limits hold exactly, in whole numbers; see :mod:`.whole_cells` for why such cells exist and how they are found.

    Arguments:
        constraints: what is known of tables over the measured domain, the exact counts that were read among it.

    Raises:
        InvalidArgument: on first use, constraints that no non-negative counts meet, with the rows that contradict.
        Unsupported: above 10^7 merged cells; constraints of a shape and size for which whole cells are not found.

    >>> import tabulae as tb
    >>> strategy = tb.select(tb.Workload.of(tb.Identity(4)), method="identity")
    >>> m = tb.measure(np.array([5, 0, 2, 9]), strategy, tb.ZCDP(2))
    >>> everybody = Constraint.equal(Table("total", {}), 16)
    >>> cells, k = NonNegative(m, (everybody,)).exact_cells
    >>> int(cells.sum()) == 16 << k, bool((cells >= 0).all())
    (True, True)
    """

    constraints: tuple[Constraint, ...] = ()

    @property
    def precision(self) -> float:
        return 2 * math.sqrt(2 * self.solution.gap)

    @cached_property
    def _problem(self) -> MeasuredCells:
        strategy = self.measurement.strategy
        tables = [constraint.table.operator(strategy.domain) for constraint in self.constraints]
        return MeasuredCells(strategy, law_variances(strategy, self.measurement.laws), tables)

    @cached_property
    def _limits(self) -> Limits:
        return Limits(self._problem, self.measurement.strategy.domain, self.constraints)

    @cached_property
    def solution(self) -> Solution:
        """The merged cells, and the gap that proves how near the optimum they are."""
        problem = self._problem
        noise = law_variances(self.measurement.strategy, self.measurement.laws)
        whitened = [y / math.sqrt(v) for y, v in zip(self.answers, noise, strict=True)]
        if not self.constraints:
            return solve(problem, whitened, self._certificate())
        limits = self._limits
        rounding = Rounding(limits, problem.shape)
        covered = limits.covering() > 0
        if (covered | ~limits.open).all():
            certificate = Certificate(np.zeros(problem.cells), 0.0)
        else:
            certificate = self._certificate()
        found = ConstrainedCone(problem, limits, whitened, certificate).solve(rounding)
        if found is None:
            raise Unsupported(
                "no whole cells were found that are not negative and meet the constraints exactly: fix fewer tables, "
                'or estimate by "least-squares", which keeps the exact tables but not the signs'
            )
        return found

    @property
    def exact_cells(self) -> tuple[np.ndarray, int]:
        """(cells, k): merged cells as int64 in units of ``2^-k`` counts, where there are constraints.

        The sums of a matrix of whole numbers over them are exact, and meet the constraints in whole numbers.
        """
        solution = self.solution
        if not isinstance(solution, WholeSolution):
            raise InvalidArgument(
                "cells are put on a grid where constraints are to be met exactly: there are none"
            )
        return solution.scaled, solution.exponent

    @cached_property
    def linear(self) -> LeastSquares:
        """Least squares from the same measurements, under the equalities where there is one for them."""
        given = self.constraints[len(self.measurement.strategy.invariants) :]
        equal = tuple(constraint for constraint in given if constraint.is_equality)
        if not equal:
            return LeastSquares(self.measurement)
        constrained = ConstrainedLeastSquares(self.measurement, equal)
        try:
            constrained.information  # noqa: B018  (built here to learn whether it can be)
        except Unsupported:
            return LeastSquares(self.measurement)  # its intervals are wider, and hold all the same
        return constrained

    def known_of(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """The limits, too, of a table that is constrained itself."""
        least, most = super().known_of(table)
        for constraint in self.constraints:
            if constraint.table.operator(self.domain) == table.operator(self.domain):
                spread = constraint.over(self.domain)
                if spread.at_least is not None:
                    least = np.maximum(least, spread.at_least)
                if spread.at_most is not None:
                    most = np.minimum(most, spread.at_most)
        return least, most

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
        merged = self._problem.over_cells(operator)
        if self.constraints and merged.integer:
            cells, exponent = self.exact_cells
            return np.ldexp((merged @ cells).astype(float), -exponent)
        return np.asarray(merged @ self.solution.cells, dtype=float)
