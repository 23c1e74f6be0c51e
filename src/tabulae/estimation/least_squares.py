"""Generalised least squares over all measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..domain import Table
from ..strategy import IterativeInformation, KronInformation, LeftOpen
from .coverage import HalfWidths
from .estimate import Estimate
from .exactly import exactly
from .table_widths import table_half_widths


@dataclass(frozen=True, eq=False)
class LeastSquares(Estimate):
    """``W x^ = W P^+ A' S^-1 y``: unbiased, linear, and of least variance among linear unbiased estimators.

    All tables agree with each other. Variances are exact but on the route ``iterative``, where they are bounds.

    Under invariants, with c their exact values: ``W x^ = (W Pi_N) P^+ A' S^-1 y + W C^+ c``. What the noisy answers
    tell of the exact counts is not used, so that the part of the estimates that is orthogonal to the invariants is a
    function of the noisy answers alone (Gao, Gong, Yu, Theorem 3.1); all that is exact holds exactly
    (:mod:`.exactly`).
    """

    @property
    def precision(self) -> float:
        return 1e-3 if isinstance(self.information, IterativeInformation) else 0.0

    def answer_of(self, table: Table) -> np.ndarray:
        exact, left = self.exact, LeftOpen.of(self.measurement.strategy, table)
        if exact is None and isinstance(self.information, KronInformation):
            return self.information.answer_values(self.operator_of(table), self.measurement.values)
        if exact is None:
            return self.information.answer(self.operator_of(table), self.answers)
        answer = exact.known(table, self.measurement.exact)
        if left.operator is not None:
            answer = answer + self.information.answer(left.operator, self.answers) / left.divisor
        return exactly(exact, table, answer, self.measurement.exact, rehearsal=self.measurement.rehearsal)

    def variance_of(self, table: Table) -> np.ndarray:
        return LeftOpen.of(self.measurement.strategy, table).variance(self.information)

    def half_widths_of(self, table: Table, level: float) -> HalfWidths:
        return table_half_widths(
            self.measurement.strategy, self.information, self.measurement.laws, table, level
        )
