"""Least squares under exact counts that come from elsewhere than the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..domain import (
    Constraint,
    Invariants,
    Table,
)
from ..errors import InvalidArgument
from ..linalg import Sensitivity
from ..measurement import Measurement
from ..strategy import ConstrainedInformation, Information, law_variances, restricted_strategy
from .coverage import (
    EXACT,
    HalfWidths,
    half_widths,
)
from .exactly import exactly
from .least_squares import LeastSquares


@dataclass(frozen=True, eq=False)
class ConstrainedLeastSquares(LeastSquares):
    """``min sum_i ||S_i^-1/2 (A_i x - y_i)||^2`` over ``C x = c``: unbiased where c is true, and of least variance.

    ``constraints`` are equalities; the measurement's own exact counts are added to them. Over at most 4,096 merged
    cells. Everything that the constraints fix holds exactly.

    Raises:
        InvalidArgument: constraints that are bounds, or contradict each other.
        Unsupported: too many merged cells.

    Privacy:
        Post-processing of public measurements and of the c given. Where c is confidential and stated exactly, what
        this says of null(C) depends on c as well unless the weights are equal: the cost of that part is
        :meth:`null_space_sensitivity`, not the one that was charged (Gao, Gong, Yu, Definition 2.5). Select with
        ``invariants=`` to have it charged as it is.
    """

    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        for constraint in self.constraints:
            if not constraint.is_equality:
                raise InvalidArgument(
                    f"the constraint on table {constraint.table.name!r} is a bound, under which least squares is "
                    'neither linear nor unbiased: estimate by "non-negative", which keeps bounds'
                )
        self.exact.check_values(self.values)

    @cached_property
    def exact(self) -> Invariants:
        """The row space of all exact counts."""
        own = self.measurement.strategy.invariants
        return Invariants(self.domain, _named([*own, *(c.table for c in self.constraints)]))

    @cached_property
    def values(self) -> tuple[np.ndarray, ...]:
        """Their values, table by table."""
        given = [c.over(self.domain).at_least for c in self.constraints]
        return (*self.measurement.exact, *(v for v in given if v is not None))

    @cached_property
    def information(self) -> Information:
        """Least squares within the exact counts."""
        strategy = self.measurement.strategy
        variances = law_variances(strategy, self.measurement.laws)
        return ConstrainedInformation(strategy, variances, self.exact, self.values)

    def answer_of(self, table: Table) -> np.ndarray:
        answer = self.information.answer(self.operator_of(table), self.answers)
        return exactly(self.exact, table, answer, self.values)

    def variance_of(self, table: Table) -> np.ndarray:
        variance = np.maximum(self.information.variance(self.operator_of(table)), 0.0)
        return np.where(self.exact.determined(table), 0.0, variance)

    def half_widths_of(self, table: Table, level: float) -> HalfWidths:
        steps = [2.0**-block.exponent for block in self.measurement.strategy.blocks]
        profile = self.information.profile(self.operator_of(table))
        widths = half_widths(profile, self.measurement.laws, steps, level)
        determined = self.exact.determined(table)
        return HalfWidths(np.where(determined, 0.0, widths.values), np.where(determined, EXACT, widths.ways))

    def null_space_sensitivity(self) -> Sensitivity:
        """How far the part of these estimates in null(C) moves when one record changes, in units of its noise.

        ``max_d (Pi_N d)' P (Pi_N d)`` (Gaussian noise; norms of L1 for Laplace) over the measurement's neighbours, to
        be compared with the strategy's own sensitivity, which was charged.
        """
        strategy = self.measurement.strategy
        restricted = restricted_strategy(strategy, self.exact.tables)
        # who is a neighbour was settled when the measurement was made
        return replace(restricted, invariants=strategy.invariants).sensitivity(self.measurement.neighbours)


def equalities(measurement: Measurement, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The measurement's exact counts and further constraints, as constraints."""
    own = zip(measurement.strategy.invariants, measurement.exact, strict=True)
    return (*(Constraint.equal(table, values) for table, values in own), *constraints)


def _named(tables: Sequence[Table]) -> list[Table]:
    """The tables under names of their own."""
    seen: dict[str, int] = {}
    out = []
    for table in tables:
        seen[table.name] = seen.get(table.name, 0) + 1
        name = table.name if seen[table.name] == 1 else f"{table.name} ({seen[table.name]})"
        out.append(Table.of_terms(name, table.terms, table.weight, table.labels))
    return out
