"""Estimates of any table that the measurements determine, by one of several methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..domain import (
    Constraint,
    Domain,
    Invariants,
    Table,
    Workload,
)
from ..errors import InvalidArgument
from ..linalg import LinearOperator
from ..measurement import Measurement
from ..strategy import Information, law_variances
from ..strategy.information.routes import information
from .coverage import HalfWidths

METHODS = ("least-squares", "local-least-squares", "non-negative", "pgm")
"""The names that :func:`estimate` takes."""


@dataclass(frozen=True, eq=False)
class Estimate(ABC):
    """Estimates from one measurement, table by table.

    Every method takes a workload over the measured domain and returns a dict from table name to one array
    (or pair of arrays) of the table's queries, unweighted, in counts.

    >>> import numpy as np, tabulae as tb
    >>> workload = tb.Workload.of(tb.Prefix(4))
    >>> m = tb.measure(np.array([5, 0, 2, 9]), tb.select(workload, method="identity"), tb.ZCDP("1/2"))
    >>> low, high = tb.estimate(m).interval(workload)["x"]
    >>> (high - low).round(2).tolist()
    [4.0, 6.0, 6.0, 8.0]
    """

    measurement: Measurement

    @cached_property
    def information(self) -> Information:
        """P under the variances of the laws drawn; ``.route`` says which least-squares solver runs."""
        strategy = self.measurement.strategy
        return information(strategy, law_variances(strategy, self.measurement.laws))

    @cached_property
    def answers(self) -> list[np.ndarray]:
        """The noisy answers of each block, in counts."""
        return self.measurement.answers()

    @property
    def domain(self) -> Domain:
        """What was measured is over this domain."""
        return self.measurement.strategy.domain

    @property
    def exact(self) -> Invariants | None:
        """The invariants that the measurement was made under, None without any."""
        return self.measurement.strategy.exact

    @property
    @abstractmethod
    def precision(self) -> float:
        """How far two computations of an answer may lie apart, in its standard errors: 0 but for rounding."""

    @abstractmethod
    def answer_of(self, table: Table) -> np.ndarray:
        """Estimates of one table's queries, (m,), in counts."""

    @abstractmethod
    def variance_of(self, table: Table) -> np.ndarray:
        """Variances of the least-squares answers, (m,), in squared counts."""

    @abstractmethod
    def half_widths_of(self, table: Table, level: float) -> HalfWidths:
        """Half-widths of the intervals about :meth:`answer_of`."""

    def exact_of(self, table: Table) -> np.ndarray:
        """Which of a table's queries are exact because the invariants determine them, (m,)."""
        if self.exact is None:
            return np.zeros(table.rows(self.domain), dtype=bool)
        return self.exact.determined(table)

    def operator_of(self, table: Table) -> LinearOperator:
        """The table's matrix over the measured domain."""
        return table.operator(self.domain)

    def _tables(self, workload: Workload) -> tuple[Table, ...]:
        if workload.domain != self.domain:
            raise InvalidArgument("the workload and the measurement are over different domains")
        return workload.tables

    def answer(self, workload: Workload) -> dict[str, np.ndarray]:
        """Estimates. Raises :class:`~tabulae.errors.NotEstimable` for a table that is not determined."""
        return {table.name: self.answer_of(table) for table in self._tables(workload)}

    def variance(self, workload: Workload) -> dict[str, np.ndarray]:
        """Variances of the least-squares answers under the law drawn, ``diag(W P^+ W')``, in squared counts.

        They are exact, except on the route ``iterative``: upper bounds there. Under invariants W is restricted to what
        they leave open, ``W Pi_N``, and exact counts have variance 0. Estimates that are kept non-negative are
        not linear in the noise and have no such variance of their own; theirs is that of the least-squares
        answers from the same measurements, which are unbiased.
        """
        return {table.name: self.variance_of(table) for table in self._tables(workload)}

    def half_widths(self, workload: Workload, level: float = 0.95) -> dict[str, HalfWidths]:
        """Half-widths of the intervals, each with how it was found ("exact", "limit", "conservative")."""
        return {table.name: self.half_widths_of(table, level) for table in self._tables(workload)}

    def interval(self, workload: Workload, level: float = 0.95) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Symmetric pointwise intervals: each covers the true count with probability at least ``level``.

        Coverage is under the discrete law that was drawn, see :mod:`tabulae.estimation.coverage`.
        """
        answers, widths = self.answer(workload), self.half_widths(workload, level)
        return {name: (a - widths[name].values, a + widths[name].values) for name, a in answers.items()}


def estimate(
    measurement: Measurement, *, constraints: Sequence[Constraint] = (), method: str = "least-squares"
) -> Estimate:
    """Estimate counts from a measurement; nothing confidential is read.

    Arguments:
        measurement: noisy answers, as :func:`tabulae.measure` returns them; its exact counts are kept by every method
            that can.
        constraints: what else is known of the counts: equalities, and for "non-negative" bounds.
        method: "least-squares", the unbiased ``x^ = P^+ sum_i A_i' S_i^-1 y_i`` with
            ``P = sum_i A_i' S_i^-1 A_i``, by structure and without a vector of all cells where the strategy allows;
            "local-least-squares", each table from the one block that answers it best;
            "non-negative", ``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over ``x >= 0``, up to 10^7 merged cells;
            "pgm", a non-negative graphical model (Private-PGM, the package mbi).

    Raises:
        InvalidArgument: an unknown method, or constraints that contradict each other or that it cannot keep.
        Unsupported: the measurements are not of the kind, or over too many cells, for this method.
        MissingDependency: "pgm" without the package mbi.

    Privacy:
        Post-processing of public values (Dwork, Roth 2014, Proposition 2.1): costs nothing. Under the invariants that a
        strategy was selected with, least squares says nothing of their null space but what the noisy answers
        say (Gao, Gong, Yu, Theorem 3.1).

    >>> import numpy as np, tabulae as tb
    >>> workload = tb.Workload.of(tb.Prefix(4))
    >>> m = tb.measure(np.array([5, 0, 2, 9]), tb.select(workload, method="identity"), tb.ZCDP("1/2"))
    >>> tb.estimate(m).variance(workload)["x"].round(3).tolist()
    [1.0, 2.0, 3.0, 4.0]
    >>> everybody = tb.Constraint.equal(tb.Table("total", {}), 16)
    >>> tb.estimate(m, constraints=[everybody]).variance(workload)["x"].round(3).tolist()
    [0.75, 1.0, 0.75, 0.0]
    """
    from .constrained import ConstrainedLeastSquares, equalities
    from .least_squares import LeastSquares
    from .local import LocalLeastSquares
    from .non_negative import NonNegative
    from .pgm import GraphicalModel

    if method not in METHODS:
        raise InvalidArgument(f"unknown method of estimation {method!r}; known: {', '.join(METHODS)}")
    given = tuple(constraints)
    for constraint in given:
        if not isinstance(constraint, Constraint):
            raise InvalidArgument(f"{constraint!r} is no constraint: write Constraint.equal(table, values)")
        constraint.over(measurement.strategy.domain)
    if method == "non-negative":
        return NonNegative(measurement, equalities(measurement, given))
    if method == "least-squares":
        return ConstrainedLeastSquares(measurement, given) if given else LeastSquares(measurement)
    if given or measurement.exact:
        raise InvalidArgument(
            f'"{method}" cannot keep counts exact: estimate by "least-squares" or "non-negative"'
        )
    return LocalLeastSquares(measurement) if method == "local-least-squares" else GraphicalModel(measurement)
