"""Expected error of a workload answered from a strategy: known before any data is read.

What the noisy answers have to tell of a table: all of it, or what a strategy's invariants leave open.

Under invariants a table is estimated as ``(W Pi_N) P^+ A' S^-1 y + W C^+ c`` with exact values c, so that its errors
are those of the restricted table ``W Pi_N``: zero for the rows that the invariants determine. Expected errors, margins
and published standard errors all come from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...domain import Table, Workload
from ...linalg import LinearOperator
from .moments import Profile, VarianceBound
from .protocol import Information, MeasuredStrategy
from .routes import information


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
    def of(cls, strategy: MeasuredStrategy, table: Table) -> LeftOpen:
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
        variance = np.maximum(information.variance(self.operator), 0.0)
        if self.divisor == 1 and not self.exact.any():
            return variance
        variance /= self.divisor**2
        return np.where(self.exact, 0.0, variance)

    def profile(self, information: Information) -> Profile | VarianceBound | None:
        """The coefficients of the noise variables, times ``divisor``; None where every row is exact."""
        return None if self.operator is None else information.profile(self.operator)


@dataclass(frozen=True)
class ExpectedError:
    """Expected squared error of a workload's m queries under least squares.

    ``tse`` is the total squared error ``sum_t weight_t^2 sum_q Var(q)`` and ``rmse = sqrt(tse / m)``, as in
    HDMM; ``tables`` maps each table to its own unweighted root mean squared error, in counts;
    ``max_variance`` is the largest variance of a single unweighted query. Queries that the strategy's invariants
    determine are counted, with variance 0. All are upper bounds where least squares takes the route ``iterative``.
    """

    tse: float
    rmse: float
    max_variance: float
    tables: dict[str, float]


def error_under(
    strategy: MeasuredStrategy, workload: Workload, variances: tuple[float, ...]
) -> ExpectedError:
    """Expected error when block i has noise variance ``variances[i]``, in squared counts."""
    info = information(strategy, variances)
    total, largest, tables = 0.0, 0.0, {}
    for table in workload.tables:
        variance = LeftOpen.of(strategy, table).variance(info)
        total += float(table.weight) ** 2 * float(variance.sum())
        largest = max(largest, float(variance.max(initial=0.0)))
        tables[table.name] = math.sqrt(float(variance.mean()))
    return ExpectedError(total, math.sqrt(total / workload.queries), largest, tables)
