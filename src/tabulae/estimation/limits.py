"""Constraints over merged cells: equalities ``C u = c``, limits ``l <= T u <= h``, and cells that are forced to 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from ..domain import Constraint, Domain, Invariants, Table, Term, merged_factor
from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator
from .intervals import non_negative_rows
from .measured_cells import MeasuredCells

_ENTRIES = 2**26  # of a matrix that is written out
_PROJECTED = 1e-13  # tolerance of a projection that is found iteratively


@dataclass(frozen=True, eq=False)
class LimitedRows:
    """One constrained table over the merged cells: ``low <= operator u <= high``, row by row (infinite: no limit).

    ``labels`` is the row that counts each cell, -1 for none, where every cell is counted at most once; else None.
    ``positive`` marks rows without negative entries.
    """

    constraint: Constraint
    operator: LinearOperator
    low: np.ndarray
    high: np.ndarray
    positive: np.ndarray

    @cached_property
    def labels(self) -> np.ndarray | None:
        if not self.operator.binary or np.any(np.asarray(self.operator.column_norms(1)) > 1):
            return None
        return np.asarray(self.operator.T @ np.arange(1, len(self.low) + 1)).astype(np.int64) - 1

    @property
    def growing(self) -> np.ndarray:
        """1.0 where a larger multiplier of the upper limit raises cells and lowers none."""
        return (np.isfinite(self.high) & self.positive).astype(float)

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        m, n = self.operator.shape
        if self.labels is not None:
            cells = np.flatnonzero(self.labels >= 0)
            ones = np.ones(len(cells), dtype=np.int64)
            return scipy.sparse.csr_array((ones, (self.labels[cells], cells)), shape=(m, n))
        if m * n > _ENTRIES:
            raise Unsupported(
                f"the constraint on table {self.constraint.table.name!r} is a matrix of {m:,} x {n:,} in which "
                "rows overlap, too large to be written out: constrain counts of groups that do not overlap"
            )
        return scipy.sparse.csr_array(self.operator.dense())


class Limits:
    """The constraints of one problem over its merged cells.

    ``exact`` are the tables whose rows are all fixed, ``bounded`` the others. ``open`` marks the cells that may be
    positive as far as single rows tell: a row of non-negative entries whose count is 0 closes its cells.

    Raises:
        InvalidArgument: equalities that contradict each other, and rows that no non-negative cells can meet.
        Unsupported: exact tables of general shape over too many merged cells.
    """

    def __init__(self, problem: MeasuredCells, domain: Domain, constraints: Sequence[Constraint]) -> None:
        self.domain, self.cells, self._merges = domain, problem.cells, problem.merges
        spread = [constraint.over(domain) for constraint in constraints]
        rows = _without_repeats([_rows(problem, domain, constraint) for constraint in spread])
        self.exact = tuple(r for r in rows if np.array_equal(r.low, r.high))
        self.bounded = tuple(r for r in rows if not np.array_equal(r.low, r.high))
        self.values = [r.low.astype(np.int64) for r in self.exact]
        if self.exact:
            for row, others in self.merged.contradictions(self.values):
                against = ", ".join(self._stacked_name(other) for other in others[:4])
                raise InvalidArgument(
                    f"the constraints contradict each other: the count of {self._stacked_name(row)} cannot stand "
                    f"beside {against}"
                )
        self.open = np.ones(self.cells, dtype=bool)
        for each in rows:
            self._check(each)
            zero = (each.high == 0) & each.positive
            if zero.any():
                self.open &= np.asarray(each.operator.T @ zero.astype(float)) == 0

    @cached_property
    def merged(self) -> Invariants:
        names = self.domain.names
        domain = Domain({name: p.shape[0] for name, p in zip(names, self._merges, strict=True)})
        merge = dict(zip(names, self._merges, strict=True))
        tables = []
        for i, each in enumerate(self.exact):
            terms = [
                Term(t.coefficient, {name: merged_factor(f, merge[name]) for name, f in t.factors.items()})
                for t in each.constraint.table.terms
            ]
            tables.append(Table.of_terms(f"{i} {each.constraint.table.name}", terms))
        return Invariants(domain, tables)

    def _check(self, each: LimitedRows) -> None:
        """A row that contradicts ``u >= 0`` by itself."""
        nobody = np.asarray(each.operator @ self.open.astype(float)) == 0
        wrong = each.positive & ((each.high < 0) | (nobody & (each.low > 0)))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            why = (
                f"is to be at most {each.high[row]:.0f}, and counts are not negative"
                if each.high[row] < 0
                else f"is to be at least {each.low[row]:.0f}, but other constraints leave nobody whom it counts"
            )
            raise InvalidArgument(f"the constraints cannot hold: the count of {self.name(each, row)} {why}")

    def name(self, rows: LimitedRows, row: int) -> str:
        return Invariants(self.domain, [rows.constraint.table]).row_name(row)

    def _stacked_name(self, row: int) -> str:
        for each in self.exact:
            if row < len(each.low):
                return self.name(each, row)
            row -= len(each.low)
        raise InvalidArgument("no such row")

    @property
    def all(self) -> tuple[LimitedRows, ...]:
        return self.exact + self.bounded

    @property
    def separate(self) -> bool:
        """Whether every table counts each cell at most once."""
        return all(each.labels is not None for each in self.all)

    def nearest(self, cells: np.ndarray) -> np.ndarray:
        """The orthogonal projection of a vector of cells onto ``C u = c``."""
        return self.merged.nearest(cells, self.values) if self.exact else cells

    def free_part(self, vector: np.ndarray) -> np.ndarray:
        """The orthogonal projection onto null(C)."""
        return self.merged.nearest(vector, [0 * v for v in self.values]) if self.exact else vector

    def fixed_part(self, vector: np.ndarray) -> np.ndarray:
        """The orthogonal projection onto the row space of C."""
        return vector - self.free_part(vector)

    def nearest_open(self, cells: np.ndarray) -> np.ndarray:
        """The projection onto ``C u = c`` with closed cells at 0."""
        if self.open.all():
            return self.nearest(cells)
        cells = np.where(self.open, cells, 0.0)
        if not self.exact:
            return cells

        def forward(u: np.ndarray) -> np.ndarray:
            return np.concatenate([each.operator @ (self.open * u.ravel()) for each in self.exact])

        def back(r: np.ndarray) -> np.ndarray:
            parts = np.split(r.ravel(), np.cumsum([len(each.low) for each in self.exact])[:-1])
            every = (e.operator.T @ p for e, p in zip(self.exact, parts, strict=True))
            return self.open * sum(every, np.zeros(self.cells))

        short = np.concatenate(self.values) - forward(cells)
        shape = (len(short), self.cells)
        stacked = scipy.sparse.linalg.LinearOperator(shape, matvec=forward, rmatvec=back, dtype=float)  # type: ignore[call-arg]
        step = scipy.sparse.linalg.lsmr(stacked, short, atol=_PROJECTED, btol=_PROJECTED, maxiter=2000)[0]
        return cells + self.open * step

    def covering(self) -> np.ndarray:
        """What a unit of every multiplier that may grow adds to the cells: fixed tables, and upper limits."""
        total = np.zeros(self.cells)
        for each in self.all:
            total += each.operator.T @ each.growing
        return total


def _rows(problem: MeasuredCells, domain: Domain, constraint: Constraint) -> LimitedRows:
    table = constraint.table
    original = table.operator(domain)
    if not original.integer:
        raise InvalidArgument(
            f"the constraint on table {table.name!r} has a matrix with entries that are not whole numbers"
        )
    rows = table.rows(domain)
    low, high = constraint.at_least, constraint.at_most
    return LimitedRows(
        constraint,
        problem.over_cells(original),
        np.full(rows, -np.inf) if low is None else low.astype(float),
        np.full(rows, np.inf) if high is None else high.astype(float),
        non_negative_rows(original),
    )


def _without_repeats(every: list[LimitedRows]) -> list[LimitedRows]:
    kept: list[LimitedRows] = []
    for each in every:
        same = [
            k
            for k in kept
            if k.operator == each.operator
            and np.array_equal(k.low, each.low)
            and np.array_equal(k.high, each.high)
        ]
        if not same:
            kept.append(each)
    return kept
