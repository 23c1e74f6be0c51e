"""Generalised least squares over all measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..linalg import LinearOperator
from ..strategy import IterativeInformation
from .coverage import HalfWidths, half_widths
from .estimate import Estimate


@dataclass(frozen=True, eq=False)
class LeastSquares(Estimate):
    """``W x^ = W P^+ A' S^-1 y``: unbiased, linear, and of least variance among linear unbiased estimators.

    All tables agree with each other. Variances are exact but on the route ``iterative``, where they are bounds.
    """

    @property
    def precision(self) -> float:
        return 1e-3 if isinstance(self.information, IterativeInformation) else 0.0

    def answer_of(self, operator: LinearOperator) -> np.ndarray:
        return self.information.answer(operator, self.answers)

    def half_widths_of(self, operator: LinearOperator, level: float) -> HalfWidths:
        blocks = self.measurement.strategy.blocks
        steps = [2.0**-block.exponent for block in blocks]
        return half_widths(self.information.profile(operator), self.measurement.laws, steps, level)
