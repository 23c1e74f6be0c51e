"""What non-negative estimates have in common: intervals that stand on the least-squares answer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..linalg import LinearOperator
from ..strategy import products
from .coverage import CONSERVATIVE, HalfWidths
from .estimate import Estimate
from .least_squares import LeastSquares


@dataclass(frozen=True, eq=False)
class OneSided(Estimate):
    """Estimates from a non-negative vector of cells, so that no count is below zero and all tables agree.

    They are biased upwards where counts are small, and their law is out of reach. Their intervals are valid all the
    same: the least-squares interval of the same measurements covers the true count whatever estimate stands beside
    it; a true count of records is at least 0, so that the interval may be cut there without losing coverage; and the
    shortest interval about the estimate that contains what is left covers no less often.
    """

    @cached_property
    def linear(self) -> LeastSquares:
        """Least squares from the same measurements."""
        return LeastSquares(self.measurement)

    @abstractmethod
    def point_of(self, operator: LinearOperator) -> np.ndarray:
        """The non-negative estimate of queries that the measurements determine."""

    def answer_of(self, operator: LinearOperator) -> np.ndarray:
        self.linear.answer_of(operator)  # refuses what the measurements do not determine
        return self.point_of(operator)

    def half_widths_of(self, operator: LinearOperator, level: float) -> HalfWidths:
        middle, wide = self.linear.answer_of(operator), self.linear.half_widths_of(operator, level)
        low, high = middle - wide.values, middle + wide.values
        cut = _non_negative_rows(operator)
        low, high = np.where(cut, np.maximum(low, 0.0), low), np.where(cut, np.maximum(high, 0.0), high)
        point = self.point_of(operator)
        values = np.maximum(high - point, point - low)
        return HalfWidths(values, np.full(values.shape, CONSERVATIVE, dtype="<U12"))


def _non_negative_rows(operator: LinearOperator) -> np.ndarray:
    """Rows whose entries are all known to be at least 0: their true answers are, too."""
    rows = np.ones(1, dtype=bool)
    ((coefficient, factors), *others) = products(operator)
    if others or coefficient < 0:
        return np.zeros(operator.shape[0], dtype=bool)
    for factor in factors:
        signed = np.zeros(factor.shape[0], dtype=bool)
        if not factor.binary:
            signed = np.asarray(factor.T.column_norms(1) != factor @ np.ones(factor.shape[1]))
        rows = np.logical_and.outer(rows, ~signed).ravel()
    return rows
