"""What non-negative estimates have in common: intervals that stand on the least-squares answer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..domain import Table
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
    it; a true count of records is at least 0, so that the interval may be cut there without losing coverage, and at
    whatever else is known of the count; and the shortest interval about the estimate that contains what is left covers
    no less often.
    """

    @cached_property
    def linear(self) -> LeastSquares:
        """Least squares from the same measurements."""
        return LeastSquares(self.measurement)

    @abstractmethod
    def point_of(self, operator: LinearOperator) -> np.ndarray:
        """The non-negative estimate of queries that the measurements determine."""

    def known_of(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """What the true answers cannot be below, and above: 0 where no record counts negatively."""
        least = np.where(non_negative_rows(self.operator_of(table)), 0.0, -np.inf)
        return least, np.full(len(least), np.inf)

    def answer_of(self, table: Table) -> np.ndarray:
        self.linear.answer_of(table)  # refuses what the measurements do not determine
        return self.point_of(self.operator_of(table))

    def variance_of(self, table: Table) -> np.ndarray:
        return self.linear.variance_of(table)

    def half_widths_of(self, table: Table, level: float) -> HalfWidths:
        middle, wide = self.linear.answer_of(table), self.linear.half_widths_of(table, level)
        low, high = middle - wide.values, middle + wide.values
        least, most = self.known_of(table)
        low, high = np.clip(low, least, most), np.clip(high, least, most)
        point = self.point_of(self.operator_of(table))
        values = np.maximum(high - point, point - low)
        return HalfWidths(values, np.full(values.shape, CONSERVATIVE, dtype="<U12"))


def non_negative_rows(operator: LinearOperator) -> np.ndarray:
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
