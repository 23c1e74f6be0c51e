"""Estimation by one of several methods."""

from __future__ import annotations

from collections.abc import Sequence

from ..domain import Constraint
from ..errors import InvalidArgument
from ..measurement import Measurement
from .least_squares import ConstrainedLeastSquares, Estimate, LeastSquares, LocalLeastSquares, equalities
from .non_negative import NonNegative
from .pgm import GraphicalModel

METHODS = ("least-squares", "local-least-squares", "non-negative", "pgm")
"""The names that :func:`estimate` takes."""


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
    if method not in METHODS:
        raise InvalidArgument(f"unknown method of estimation {method!r}; known: {', '.join(METHODS)}")
    given = tuple(constraints)
    for constraint in given:
        if not isinstance(constraint, Constraint):
            raise InvalidArgument(
                f"{constraint!r} is not a constraint: write Constraint.equal(table, values)"
            )
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
