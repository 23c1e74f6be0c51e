"""Generalised least squares over all measurements.

Estimates on a binary grid on which everything that is exact holds exactly.

A table's estimates t (m,) are rounded to multiples of ``2^-k`` and moved by a few steps of that grid so that every sum
of them that the invariants fix has its exact value: with L the whole-number matrix of those sums and v their values,
``L t^ = v`` in whole numbers of steps. There always is such a t^: the true table is a solution in whole counts, so
``2^k v - L round(2^k t)`` lies in the lattice of ``L Z^m``. k is as large as leaves every partial sum below 2^53, so
that the numbers published are exact in floating point and so are their sums, in whatever order they are added.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..domain import Constraint, Domain, Invariants, Table, Workload
from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator, Sensitivity
from ..measurement import Measurement
from ..notebook import CardRows, card, listed
from ..privacy import NoiseLaw
from ..strategy import (
    ConstrainedInformation,
    Information,
    IterativeInformation,
    KronInformation,
    LeftOpen,
    LocalInformation,
    Strategy,
    law_variances,
    restricted_strategy,
)
from ..strategy.information.routes import information, solve
from .coverage import CONSERVATIVE, EXACT, HalfWidths, half_widths
from .intervals import Interval, no_more_than, non_negative_rows, whole_rows


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.measurement!r})"

    def _repr_html_(self) -> str:
        attributes = self.domain.attributes
        rows = ((each.name, each.size, listed(each.labels)) for each in attributes)
        return card(
            "Estimate",
            [("by", type(self).__name__), *self.measurement.facts()],
            CardRows(("attribute", "categories", "labels"), rows, len(attributes)),
        )

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

    def known_of(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """What the true answers cannot be below, and above: 0 where no record counts negatively, and exact counts."""
        operator = self.operator_of(table)
        least = np.where(non_negative_rows(operator), 0.0, -np.inf)
        exact = self.measurement.strategy.invariants
        return least, no_more_than(self.domain, table, exact, self.measurement.exact)

    def interval_of(self, table: Table, level: float) -> tuple[Interval, np.ndarray]:
        """Intervals that hold for every true count, with what is known of it, and how each was found."""
        answer, widths = self.answer_of(table), self.half_widths_of(table, level)
        least, most = self.known_of(table)
        low, high = answer - widths.values, answer + widths.values
        whole = whole_rows(self.domain, self.operator_of(table))
        return Interval(low, high, least, most, whole), widths.ways

    def credible_of(self, table: Table, level: float) -> tuple[np.ndarray, np.ndarray] | tuple[()] | None:
        """Ends of credible intervals, (m,) each; none where draws are worth too little, None where nothing is drawn."""
        return None

    def operator_of(self, table: Table) -> LinearOperator:
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


_FINEST = 30
_BITS = 52
_FAR = 2**12  # steps


def exactly(
    invariants: Invariants,
    table: Table,
    estimate: np.ndarray,
    values: Sequence[np.ndarray],
    *,
    rehearsal: bool = False,
) -> np.ndarray:
    """The estimates on a grid ``2^-k``, all sums that are exact by the invariants being exact, (m,).

    In a rehearsal exact tables are refused (:class:`~tabulae.errors.Unsupported`) under which whole solutions lie so
    far apart that the move would not be small: irregular tables of nearly full rank, whose counts determine the
    others once it is known that all are whole.

    >>> from tabulae.linalg import Identity
    >>> from tabulae.domain import Domain
    >>> domain = Domain({"x": 3})
    >>> exact = Invariants(domain, [Table("total", {})])
    >>> cells = exactly(exact, Table("x", {"x": Identity(3)}), np.array([0.1, 0.2, 5.7]), [np.array([6])])
    >>> cells.sum() == 6
    np.True_
    """
    size = float(np.abs(estimate).sum()) + len(estimate) + 1
    k = max(0, min(_FINEST, _BITS - math.ceil(math.log2(size))))
    scaled = np.rint(np.ldexp(estimate, k)).astype(np.int64)
    settled = invariants.settle(table, scaled, values, k)
    moved = int(np.abs(settled - scaled).max(initial=0))
    if rehearsal and moved > _FAR + len(settled):
        raise Unsupported(
            f"the exact tables leave table {table.name!r} only whole-number solutions that lie far apart ({moved:,} "
            "steps of the finest grid): knowing them nearly determines it. Publish fewer or simpler tables exactly"
        )
    return np.ldexp(settled.astype(float), -k)


def table_half_widths(
    strategy: Strategy, information: Information, laws: Sequence[NoiseLaw], table: Table, level: float
) -> HalfWidths:
    """Half-widths of the least-squares answers of a table, (m,), in counts; 0 for rows that invariants determine.

    >>> from tabulae.linalg import Identity, Total
    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.strategy import Block, law_variances
    >>> from tabulae.strategy.information.routes import information
    >>> from tabulae.domain import Domain
    >>> domain, everybody = Domain({"sex": 2}), Table("total", {"sex": Total(2)})
    >>> plain = Strategy(domain, (Block("cells", Identity(2)),), "gaussian", "identity", invariants=(everybody,))
    >>> laws = plain.laws(ZCDP("1/2"))
    >>> info = information(plain, law_variances(plain, laws))
    >>> table_half_widths(plain, info, laws, everybody, 0.95).values.tolist()
    [0.0]
    """
    left = LeftOpen.of(strategy, table)
    profile = left.profile(information)
    if profile is None:
        return HalfWidths(np.zeros(len(left.exact)), np.full(len(left.exact), EXACT, dtype="<U12"))
    steps = strategy.steps
    widths = half_widths(profile, laws, steps, level)
    return HalfWidths(
        np.where(left.exact, 0.0, widths.values / left.divisor), np.where(left.exact, EXACT, widths.ways)
    )


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(Estimate):
    """``W x^ = W P^+ A' S^-1 y``: unbiased, linear, and of least variance among linear unbiased estimators.

    All tables agree with each other. Variances are exact but on the route ``iterative``, where they are bounds.

    Under invariants, with c their exact values: ``W x^ = (W Pi_N) P^+ A' S^-1 y + W C^+ c``. What the noisy answers
    tell of the exact counts is not used, so that the part of the estimates that is orthogonal to the invariants is a
    function of the noisy answers alone (Gao, Gong, Yu, Theorem 3.1); all that is exact holds exactly
    (:mod:`.exactly`).
    """

    @property
    def precision(self) -> float:
        return 1e-3 if isinstance(self.information, IterativeInformation) else 0.0

    def answer_of(self, table: Table) -> np.ndarray:
        exact, left = self.exact, LeftOpen.of(self.measurement.strategy, table)
        if exact is None and isinstance(self.information, KronInformation):
            whole = self.information.answer_values(self.operator_of(table), self.measurement.values)
            return whole if self.domain.parts == 1 else whole / self.domain.parts
        if exact is None:
            return self.information.answer(self.operator_of(table), self.answers)
        answer = exact.known(table, self.measurement.exact)
        if left.operator is not None:
            answer = answer + self.information.answer(left.operator, self.answers) / left.divisor
        return exactly(exact, table, answer, self.measurement.exact, rehearsal=self.measurement.rehearsal)

    def variance_of(self, table: Table) -> np.ndarray:
        return LeftOpen.of(self.measurement.strategy, table).variance(self.information)

    def half_widths_of(self, table: Table, level: float) -> HalfWidths:
        return table_half_widths(
            self.measurement.strategy, self.information, self.measurement.laws, table, level
        )


@dataclass(frozen=True, eq=False, repr=False)
class LocalLeastSquares(LeastSquares):
    """``W A_g^+ y_g`` with the block g that has the least total variance for the table; exact variances.

    Unbiased; never more precise than :class:`~tabulae.estimation.least_squares.LeastSquares` (Gauss, Markov), and
    tables from different groups need not agree. It is there to be compared with.

    Reference: McKenna, Miklau, Hay, Machanavajjhala, "HDMM", sections 6.2 and 10.
    """

    @cached_property
    def information(self) -> Information:
        strategy = self.measurement.strategy
        return LocalInformation(strategy, law_variances(strategy, self.measurement.laws), solve)


@dataclass(frozen=True, eq=False, repr=False)
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
        own = self.measurement.strategy.invariants
        return Invariants(self.domain, _named([*own, *(c.table for c in self.constraints)]))

    @cached_property
    def values(self) -> tuple[np.ndarray, ...]:
        given = [c.over(self.domain).at_least for c in self.constraints]
        return (*self.measurement.exact, *(v for v in given if v is not None))

    @cached_property
    def information(self) -> Information:
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
        steps = self.measurement.strategy.steps
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
    seen: dict[str, int] = {}
    out = []
    for table in tables:
        seen[table.name] = seen.get(table.name, 0) + 1
        name = table.name if seen[table.name] == 1 else f"{table.name} ({seen[table.name]})"
        out.append(Table.of_terms(name, table.terms, table.weight, table.labels))
    return out


@dataclass(frozen=True, eq=False, repr=False)
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
        return LeastSquares(self.measurement)

    @abstractmethod
    def point_of(self, operator: LinearOperator) -> np.ndarray:
        """The non-negative estimate of queries that the measurements determine."""

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

    def interval_of(self, table: Table, level: float) -> tuple[Interval, np.ndarray]:
        """The cut interval of least squares, widened to hold the estimate where it does not."""
        found, ways = self.linear.interval_of(table, level)
        least, most = self.known_of(table)
        return replace(found, least=least, most=most, point=self.answer_of(table)), ways
