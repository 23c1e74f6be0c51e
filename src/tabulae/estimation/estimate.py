"""Least-squares estimates of any table that the measurements determine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator
from ..measurement import Measurement
from ..strategy import Information, information, law_variances
from ..tables import Workload
from .coverage import HalfWidths, half_widths


@dataclass(frozen=True, eq=False)
class Estimate:
    """Generalised least squares ``W x^ = W P^+ A' S^-1 y`` over one measurement, table by table.

    Unbiased, linear and of least variance among linear unbiased estimators. Every method takes a workload
    over the measured domain and returns a dict from table name to one array (or pair of arrays) of the
    table's queries, unweighted, in counts.
    """

    measurement: Measurement

    @cached_property
    def information(self) -> Information:
        """P under the variances of the laws drawn; ``.route`` says which solver runs."""
        return information(
            self.measurement.strategy, law_variances(self.measurement.strategy, self.measurement.laws)
        )

    def _operators(self, workload: Workload) -> Iterator[tuple[str, LinearOperator]]:
        if workload.domain != self.measurement.strategy.domain:
            raise InvalidArgument("the workload and the measurement are over different domains")
        return ((table.name, table.operator(workload.domain)) for table in workload.tables)

    def answer(self, workload: Workload) -> dict[str, np.ndarray]:
        """Estimates. Raises :class:`~tabulae.errors.NotEstimable` for a table that is not determined."""
        answers = self.measurement.answers()
        return {
            name: self.information.answer(operator, answers) for name, operator in self._operators(workload)
        }

    def variance(self, workload: Workload) -> dict[str, np.ndarray]:
        """Exact variances under the law drawn, ``diag(W P^+ W')``, in squared counts."""
        return {
            name: np.maximum(self.information.variance(operator), 0.0)
            for name, operator in self._operators(workload)
        }

    def half_widths(self, workload: Workload, level: float = 0.95) -> dict[str, HalfWidths]:
        """Half-widths of the intervals, each with how it was found ("exact", "limit", "conservative")."""
        laws, blocks = self.measurement.laws, self.measurement.strategy.blocks
        steps = [2.0**-block.exponent for block in blocks]
        return {
            name: half_widths(self.information.profile(operator), laws, steps, level)
            for name, operator in self._operators(workload)
        }

    def interval(self, workload: Workload, level: float = 0.95) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Symmetric pointwise intervals: each covers the true count with probability at least ``level``.

        Coverage is under the discrete law that was drawn, see :mod:`tabulae.estimation.coverage`.
        """
        answers, widths = self.answer(workload), self.half_widths(workload, level)
        return {name: (a - widths[name].values, a + widths[name].values) for name, a in answers.items()}


def estimate(measurement: Measurement, *, method: str = "least-squares") -> Estimate:
    """Estimate counts from a measurement; nothing confidential is read.

    ``x^ = P^+ sum_i A_i' S_i^-1 y_i`` with ``P = sum_i A_i' S_i^-1 A_i``; tables are answered through P^+
    by structure, without a vector of all cells where the strategy allows.

    Raises :class:`~tabulae.errors.Unsupported` for a method that this version lacks.

    Privacy:
        Post-processing of public values (Dwork, Roth 2014, Proposition 2.1): costs nothing.

    >>> import numpy as np, tabulae as tb
    >>> workload = tb.Workload.of(tb.Prefix(4))
    >>> m = tb.measure(np.array([5, 0, 2, 9]), tb.select(workload, method="identity"), tb.ZCDP("1/2"))
    >>> tb.estimate(m).variance(workload)["x"].round(3).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    if method != "least-squares":
        raise Unsupported(f"this version estimates by 'least-squares'; {method!r} is not available")
    return Estimate(measurement)
