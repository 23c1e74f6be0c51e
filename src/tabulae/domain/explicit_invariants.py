"""Exact tables of any shape: their row space written out over merged cells.

With M the matrix that merges N cells into n classes, ``D = M M'`` the diagonal of their sizes, ``C = C_m M`` and
``W = W_m M``: distances are those between vectors of all N cells, and

    W Pi_N = (W_m - W_m D C_m' (C_m D C_m')^+ C_m) M,    W C^+ c = W_m D C_m' (C_m D C_m')^+ c.

With an orthonormal basis Q of the columns of ``D^1/2 C_m' = Q R`` (C_m reduced to independent rows) these are
``(W_m - W_m D^1/2 Q Q' D^-1/2) M`` and ``W_m D^1/2 Q R^-T c``. Which rows are exact, which depend on others, and which
whole numbers are published is decided in exact arithmetic (:mod:`tabulae.linalg.integer_system`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse

from ..linalg import (
    Dense,
    IntegerSystem,
    Kron,
    Partition,
    Product,
    QueryRelations,
    SparseRows,
)
from .domain import Domain
from .explicit_answers import settled_answers
from .explicit_cells import MergedCells
from .restricted import Restricted
from .table import Table

Values = Sequence[np.ndarray]

_REMEMBERED = 8  # tables whose relations to the exact ones are kept
_DUST = 1e-12  # a part of the largest entry that rounding may leave where a zero belongs


class ExplicitInvariants:
    """Exact tables over at most 4,096 merged cells, of any whole numbers; rows are those of the tables, stacked.

    Arguments:
        domain: the public domain.
        tables: the exact tables, sums of products of integer matrices.

    Raises:
        Unsupported: more merged cells, when the first question is asked.

    >>> from tabulae.linalg import Dense
    >>> exact = ExplicitInvariants(Domain({"a": 4}), [Table("odd", {"a": Dense([[1, 1, 0, 0], [0, 1, 1, 0]])})])
    >>> exact.rank, exact.determined(Table("asked", {"a": Dense([[1, 2, 1, 0], [1, 0, 0, 0]])})).tolist()
    (2, [True, False])
    """

    def __init__(self, domain: Domain, tables: Sequence[Table]) -> None:
        self.domain, self.tables = domain, tuple(tables)
        self._asked: dict[Table, _Asked] = {}

    # the exact tables themselves -------------------------------------------------------------------
    @cached_property
    def _cells(self) -> MergedCells:
        return MergedCells.of(self.domain, self.tables)

    @cached_property
    def _system(self) -> IntegerSystem:
        return IntegerSystem(self._stacked(self._cells))

    def _stacked(self, cells: MergedCells) -> SparseRows:
        return scipy.sparse.csr_array(scipy.sparse.vstack([cells.matrix(table) for table in self.tables]))

    @cached_property
    def _space(self) -> _RowSpace:
        return _RowSpace(self._system.matrix[self._system.kept], self._cells.sizes)

    @property
    def rank(self) -> int:
        """The dimension of R: how many independent counts are exact."""
        return self._system.rank

    def contradictions(self, values: Values) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Rows whose values earlier rows make another number, and those rows; () where some real x has ``C x = c``."""
        return self._system.contradictions(_joined(values))

    # a table asked about ------------------------------------------------------------------------------
    def _of(self, table: Table) -> _Asked:
        if table not in self._asked:
            if len(self._asked) >= _REMEMBERED:
                self._asked.pop(next(iter(self._asked)))
            self._asked[table] = self._over(table, MergedCells.of(self.domain, [*self.tables, table]))
        return self._asked[table]

    def _over(self, table: Table, cells: MergedCells) -> _Asked:
        exact = self._stacked(cells)[self._system.kept]
        return _Asked(cells, exact, cells.matrix(table))

    def determined(self, table: Table) -> np.ndarray:
        """Which rows of W lie in R, exactly: their counts are known, (m,) bool."""
        return self._of(table).relations.determined

    def restricted(self, table: Table) -> Restricted:
        """``W Pi_N`` in floating point (divisor 1); rows in R are exactly zero, and None stands for nothing else."""
        asked = self._of(table)
        if asked.relations.determined.all():
            return Restricted(None, 1)
        return Restricted(Product(Dense(asked.restricted()), Kron(asked.cells.partitions)), 1)

    def restricted_over(self, table: Table, merges: Sequence[Partition]) -> np.ndarray:
        """``W Pi_N`` over merged cells that respect the table and the exact ones, (m x n) floats."""
        return self._over(table, MergedCells(self.domain, merges)).restricted()

    def known(self, table: Table, values: Values) -> np.ndarray:
        """``W C^+ c``, (m,) floats; in rows that are exact, the exact whole count."""
        asked, exact = self._of(table), _joined(values)[self._system.kept]
        answers = asked.queries @ asked.space.least_norm(exact)
        return np.where(asked.relations.determined, np.rint(answers), answers)

    # exactness ------------------------------------------------------------------------------------------
    def settle(self, table: Table, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """The table's counts on the grid ``2^-exponent``, moved so that every sum of them that is exact holds.

        Where no sum of rows is exact, they are returned as they are.

        Raises :class:`~tabulae.errors.InvalidArgument` for values that no whole numbers have.
        """
        asked = self._of(table)
        fixed = _times_power(_joined(values)[self._system.kept], exponent)
        return settled_answers(asked.relations, asked.exact, asked.queries, np.asarray(scaled), fixed)

    def settle_cells(self, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """All cells on the grid ``2^-exponent``, moved by whole steps so that the exact counts hold, (N,) int64.

        Where no cell is negative those of large value move, and none is made negative that the move can spare.
        """
        cells = np.asarray(scaled, dtype=np.int64)
        fixed = _times_power(_joined(values), exponent)
        sums = self._cells.summed(cells)
        system = self._system
        if cells.min() >= 0:
            system = IntegerSystem(self._system.matrix, priority=-sums)
        return _spread(cells, self._cells.classes, system.settle(sums, fixed) - sums)

    def nearest(self, cells: np.ndarray, values: Values) -> np.ndarray:
        """The vector of all cells nearest to ``cells`` among those with ``C x = c``, (N,)."""
        exact, moved = _joined(values)[self._system.kept], np.asarray(cells, dtype=np.float64)
        matrix = self._system.matrix[self._system.kept]
        for _ in range(2):  # the second time for what rounding left
            gap = exact - matrix @ self._cells.summed(moved)
            step = self._space.least_norm(gap) / self._cells.sizes
            moved = moved + step[self._cells.classes]
        return moved


class _RowSpace:
    """The row space of independent rows C_m (r x n) in the metric of the cells that merged ones stand for."""

    def __init__(self, matrix: SparseRows, sizes: np.ndarray) -> None:
        self._root = np.sqrt(sizes.astype(np.float64))
        self.basis, self._upper = np.linalg.qr((matrix.toarray() * self._root).T)

    def least_norm(self, exact: np.ndarray) -> np.ndarray:
        """``M C^+ c``, (n,): the sums over merged cells of the shortest x with ``C x = c``."""
        return self._root * (
            self.basis @ scipy.linalg.solve_triangular(self._upper, exact.astype(float), trans=1)
        )

    def orthogonal(self, queries: np.ndarray) -> np.ndarray:
        """``W_m - W_m D C_m' (C_m D C_m')^+ C_m``, (m x n)."""
        rest = queries * self._root
        for _ in range(2):  # the second time for what rounding left
            rest = rest - (rest @ self.basis) @ self.basis.T
        rest = rest / self._root
        rest[np.abs(rest) <= _DUST * max(1, np.abs(queries).max())] = 0
        return rest


class _Asked:
    """A table beside the independent exact rows, over the cells that all of them together tell apart."""

    def __init__(self, cells: MergedCells, exact: SparseRows, queries: SparseRows) -> None:
        self.cells, self.exact, self.queries = cells, exact, queries

    @cached_property
    def space(self) -> _RowSpace:
        return _RowSpace(self.exact, self.cells.sizes)

    @cached_property
    def relations(self) -> QueryRelations:
        return QueryRelations(self.exact, self.queries)

    def restricted(self) -> np.ndarray:
        rest = self.space.orthogonal(self.queries.toarray().astype(np.float64))
        rest[self.relations.determined] = 0
        return rest


def _joined(values: Values) -> np.ndarray:
    return np.concatenate([np.asarray(v, dtype=np.int64) for v in values])


def _times_power(values: np.ndarray, exponent: int) -> np.ndarray:
    """``2^exponent`` times whole numbers, exactly, as Python's integers."""
    return values.astype(object) * 2**exponent


def _spread(cells: np.ndarray, classes: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """The cells after each class moved by a whole number: its largest cells, kept from falling below 0 if none was."""
    out = cells.copy()
    guarded = bool(cells.min() >= 0)
    order = np.lexsort((-cells, classes))
    starts = np.searchsorted(classes[order], np.arange(len(moves)))
    for place in np.flatnonzero(moves).tolist():
        left, at = int(moves[place]), int(starts[place])
        first = order[at]
        end = int(starts[place + 1]) if place + 1 < len(starts) else len(order)
        while guarded and left < -int(out[order[at]]) and at + 1 < end:
            left += int(out[order[at]])
            out[order[at]] = 0
            at += 1
            first = order[at]
        out[first] += left
    return out
