"""What the noisy answers have to tell of a table: all of it, or what a strategy's invariants leave open.

Under invariants a table is estimated as ``(W Pi_N) P^+ A' S^-1 y + W C^+ c`` with exact values c, so that its errors
are those of the restricted table ``W Pi_N``: zero for the rows that the invariants determine. Expected errors, margins
and published standard errors all come from here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..domain import Table
from ..linalg import LinearOperator
from .information import (
    Information,
    Profile,
    VarianceBound,
)
from .strategy import Strategy


@dataclass(frozen=True, eq=False)
class LeftOpen:
    """The part of a table that is measured with noise.

    ``operator = divisor * W Pi_N`` (m x N), None where every row is exact; without invariants it is W. ``exact`` (m,)
    marks the rows that the invariants determine.
    """

    operator: LinearOperator | None
    divisor: int
    exact: np.ndarray

    @classmethod
    def of(cls, strategy: Strategy, table: Table) -> LeftOpen:
        """What a strategy's invariants leave open of a table."""
        invariants = strategy.exact
        if invariants is None:
            none = np.zeros(table.rows(strategy.domain), dtype=bool)
            return cls(table.operator(strategy.domain), 1, none)
        restricted = invariants.restricted(table)
        return cls(restricted.operator, restricted.divisor, invariants.determined(table))

    def variance(self, information: Information) -> np.ndarray:
        """Variances of the least-squares answers, ``diag(W Pi_N P^+ Pi_N W')``, in squared counts, (m,)."""
        if self.operator is None:
            return np.zeros(len(self.exact))
        variance = np.maximum(information.variance(self.operator), 0.0) / self.divisor**2
        return np.where(self.exact, 0.0, variance)

    def profile(self, information: Information) -> Profile | VarianceBound | None:
        """The coefficients of the noise variables, times ``divisor``; None where every row is exact."""
        return None if self.operator is None else information.profile(self.operator)
