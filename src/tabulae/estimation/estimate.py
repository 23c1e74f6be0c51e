"""Estimates of any table that the measurements determine, by one of several methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument
from ..linalg import LinearOperator
from ..measurement import Measurement
from ..strategy import Information, information, law_variances
from ..tables import Workload
from .coverage import HalfWidths

METHODS = ("least-squares", "local-least-squares", "non-negative", "pgm")
"""The names that :func:`estimate` takes."""


@dataclass(frozen=True, eq=False)
class Estimate(ABC):
    """Estimates from one measurement, table by table.

    Every method takes a workload over the measured domain and returns a dict from table name to one array
    (or pair of arrays) of the table's queries, unweighted, in counts.
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
    @abstractmethod
    def precision(self) -> float:
        """How far two computations of an answer may lie apart, in its standard errors: 0 but for rounding."""

    @abstractmethod
    def answer_of(self, operator: LinearOperator) -> np.ndarray:
        """Estimates of one matrix of queries (m, N), in counts."""

    @abstractmethod
    def half_widths_of(self, operator: LinearOperator, level: float) -> HalfWidths:
        """Half-widths of the intervals about :meth:`answer_of`."""

    def variance_of(self, operator: LinearOperator) -> np.ndarray:
        """Variances of the least-squares answers, (m,), in squared counts."""
        return np.maximum(self.information.variance(operator), 0.0)

    def _operators(self, workload: Workload) -> Iterator[tuple[str, LinearOperator]]:
        if workload.domain != self.measurement.strategy.domain:
            raise InvalidArgument("the workload and the measurement are over different domains")
        return ((table.name, table.operator(workload.domain)) for table in workload.tables)

    def answer(self, workload: Workload) -> dict[str, np.ndarray]:
        """Estimates. Raises :class:`~tabulae.errors.NotEstimable` for a table that is not determined."""
        return {name: self.answer_of(operator) for name, operator in self._operators(workload)}

    def variance(self, workload: Workload) -> dict[str, np.ndarray]:
        """Variances of the least-squares answers under the law drawn, ``diag(W P^+ W')``, in squared counts.

        They are exact, except on the route ``iterative``: upper bounds there. Estimates that are kept non-negative are
        not linear in the noise and have no such variance of their own; theirs is that of the least-squares
        answers from the same measurements, which are unbiased.
        """
        return {name: self.variance_of(operator) for name, operator in self._operators(workload)}

    def half_widths(self, workload: Workload, level: float = 0.95) -> dict[str, HalfWidths]:
        """Half-widths of the intervals, each with how it was found ("exact", "limit", "conservative")."""
        return {name: self.half_widths_of(operator, level) for name, operator in self._operators(workload)}

    def interval(self, workload: Workload, level: float = 0.95) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Symmetric pointwise intervals: each covers the true count with probability at least ``level``.

        Coverage is under the discrete law that was drawn, see :mod:`tabulae.estimation.coverage`.
        """
        answers, widths = self.answer(workload), self.half_widths(workload, level)
        return {name: (a - widths[name].values, a + widths[name].values) for name, a in answers.items()}


def estimate(measurement: Measurement, *, method: str = "least-squares") -> Estimate:
    """Estimate counts from a measurement; nothing confidential is read.

    Arguments:
        measurement: noisy answers, as :func:`tabulae.measure` returns them.
        method: "least-squares", the unbiased ``x^ = P^+ sum_i A_i' S_i^-1 y_i`` with
            ``P = sum_i A_i' S_i^-1 A_i``, by structure and without a vector of all cells where the strategy allows;
            "local-least-squares", each table from the one block that answers it best;
            "non-negative", ``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over ``x >= 0``, up to 10^7 merged cells;
            "pgm", a non-negative graphical model (Private-PGM, the package mbi).

    Raises:
        InvalidArgument: an unknown method.
        Unsupported: the measurements are not of the kind, or over too many cells, for this method.
        MissingDependency: "pgm" without the package mbi.

    Privacy:
        Post-processing of public values (Dwork, Roth 2014, Proposition 2.1): costs nothing.

    >>> import numpy as np, tabulae as tb
    >>> workload = tb.Workload.of(tb.Prefix(4))
    >>> m = tb.measure(np.array([5, 0, 2, 9]), tb.select(workload, method="identity"), tb.ZCDP("1/2"))
    >>> tb.estimate(m).variance(workload)["x"].round(3).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    from .least_squares import LeastSquares
    from .local import LocalLeastSquares
    from .non_negative import NonNegative
    from .pgm import GraphicalModel

    kinds: dict[str, type[Estimate]] = dict(
        zip(METHODS, (LeastSquares, LocalLeastSquares, NonNegative, GraphicalModel), strict=True)
    )
    if method not in kinds:
        raise InvalidArgument(f"unknown method of estimation {method!r}; known: {', '.join(METHODS)}")
    return kinds[method](measurement)
