"""Invariants: tables whose counts are exact, their joint row space, and what they leave to be measured.

Exact tables of any shape have their row space written out over merged cells: cells that no table tells apart are one,
of as many cells as it stands for.

With M the matrix that merges N cells into n classes, ``D = M M'`` the diagonal of their sizes, ``C = C_m M`` and
``W = W_m M``: distances are those between vectors of all N cells, and

    W Pi_N = (W_m - W_m D C_m' (C_m D C_m')^+ C_m) M,    W C^+ c = W_m D C_m' (C_m D C_m')^+ c.

With an orthonormal basis Q of the columns of ``D^1/2 C_m' = Q R`` (C_m reduced to independent rows) these are
``(W_m - W_m D^1/2 Q Q' D^-1/2) M`` and ``W_m D^1/2 Q R^-T c``. Which rows are exact, which depend on others, and which
whole numbers are published is decided in exact arithmetic (:mod:`tabulae.linalg.integer_system`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.sparse.linalg import lsmr

from ..errors import InvalidArgument, Unsupported
from ..linalg import (
    Dense,
    IntegerSystem,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    QueryRelations,
    SparseRows,
    Sum,
    integer_matvec,
    narrow,
    whole_answers,
)
from .domain import Domain
from .product_invariants import ProductInvariants, Restricted, Values, find_levels
from .table import Table
from .workload import Workload, merged_factor

_ITERATIONS = 2000


def settled_answers(
    relations: QueryRelations,
    exact: SparseRows,
    queries: SparseRows,
    scaled: np.ndarray,
    fixed: np.ndarray,
) -> np.ndarray:
    """Whole t' near t such that all relations hold, (m,) int64; t itself where no sum of its rows is exact.

    Where the relations have large coefficients, or divide, t' is the answer of whole cells z with ``C z = v``.

    Arguments:
        relations: between the rows of W (m x n, ``queries``) and of C (r x n, ``exact``, independent).
        scaled: t, (m,) whole numbers.
        fixed: v, (r,) whole numbers.
    """
    if not len(relations.matrix):
        return scaled.astype(np.int64)
    if relations.are_small:
        return relations.settle(scaled.astype(np.int64), narrow(fixed))
    return whole_answers(integer_matvec(queries, _whole_cells(exact, queries, scaled, fixed)))


def _whole_cells(exact: SparseRows, queries: SparseRows, scaled: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Whole cells z with ``C z = v`` and ``W z`` near t."""
    both: SparseRows = scipy.sparse.csr_array(scipy.sparse.vstack([queries, exact]))
    wanted = np.concatenate([scaled.astype(object), fixed.astype(object)])
    floats = both.astype(np.float64)
    cells = np.zeros(both.shape[1], dtype=np.int64)
    for _ in range(3):  # floats hold 53 bits: each time the rest of what is wanted
        gap = wanted - integer_matvec(both, cells)
        step = np.rint(lsmr(floats, gap.astype(np.float64), atol=1e-13, btol=1e-13, maxiter=_ITERATIONS)[0])
        if not step.any():
            break
        cells = narrow(cells + np.array([int(s) for s in step], dtype=object))
    return IntegerSystem(exact).settle(cells, narrow(fixed))


MOST_CELLS = 4096
_MOST_TABLE_ENTRIES = 2**25  # of a table's matrix


class CellClasses:
    """The cells of a domain in classes, one Partition (merged x original categories) an attribute.

    As a matrix M (n x N) it is their Kronecker product; ``sizes`` (n,) counts the cells of each class: ``M M'``.
    """

    def __init__(self, domain: Domain, partitions: Sequence[Partition]) -> None:
        self.domain, self.partitions = domain, tuple(partitions)
        if self.count > MOST_CELLS:
            shape = zip(domain.names, (p.shape[0] for p in self.partitions), strict=True)
            described = ", ".join(f"{name}: {k}" for name, k in shape if k > 1)
            raise Unsupported(
                f"exact counts of this shape are worked out cell by cell, and the tables tell {self.count} cells apart "
                f"({described}); at most {MOST_CELLS} can be: make the exact tables margins or groups that nest, which "
                "have no such limit, or ask about tables of fewer categories"
            )

    @classmethod
    def of(cls, domain: Domain, tables: Sequence[Table]) -> CellClasses:
        """The coarsest classes that every one of the tables is a sum over."""
        named = [Table.of_terms(f"table {i}", table.terms) for i, table in enumerate(tables)]
        return cls(domain, Workload(domain, named).merge()[1])

    @property
    def count(self) -> int:
        """n, the number of merged cells."""
        return math.prod(partition.shape[0] for partition in self.partitions)

    @cached_property
    def operator(self) -> LinearOperator | None:
        """M (n x N); None where nothing is merged."""
        return None if self.count == self.domain.size else Kron(self.partitions)

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many cells each merged one stands for, (n,) int64."""
        sizes = np.ones(1, dtype=np.int64)
        for partition in self.partitions:
            sizes = np.multiply.outer(sizes, partition.sizes).ravel()
        return sizes

    @cached_property
    def classes(self) -> np.ndarray:
        """The merged cell of every cell, (N,)."""
        labels = np.zeros(1, dtype=np.int64)
        for partition in self.partitions:
            labels = np.add.outer(labels * partition.shape[0], partition.classes).ravel()
        return labels

    def summed(self, cells: np.ndarray) -> np.ndarray:
        """``M x`` of a vector of all cells."""
        return cells if self.operator is None else self.operator @ cells

    def matrix(self, table: Table) -> SparseRows:
        """The table's matrix over merged cells (rows x n), whole numbers."""
        rows = table.rows(self.domain)
        if rows * self.count > _MOST_TABLE_ENTRIES:
            raise Unsupported(
                f"table {table.name!r} has {rows} rows over {self.count} merged cells, too many to work out beside "
                "exact counts of this shape: ask for fewer rows, or make the exact tables margins or groups that nest"
            )
        terms = []
        for term in table.terms:
            factors = zip(term.over(self.domain), self.partitions, strict=True)
            terms.append((term.coefficient, Kron([merged_factor(f, partition) for f, partition in factors])))
        operator = Sum(terms)
        if not operator.integer:
            raise Unsupported(
                f"table {table.name!r} has entries that are not whole numbers: multiply it by their common denominator "
                "to publish it beside exact counts"
            )
        return scipy.sparse.csr_array(operator.dense())


_REMEMBERED = 8  # tables whose relations to the exact ones are kept
_DUST = 1e-12  # a part of the largest entry that rounding may leave where a zero belongs


class ExplicitInvariants:
    """Exact tables over at most 4,096 merged cells, of any whole numbers; rows are those of the tables, stacked.

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
    def _cells(self) -> CellClasses:
        return CellClasses.of(self.domain, self.tables)

    @cached_property
    def _system(self) -> IntegerSystem:
        return IntegerSystem(self._stacked(self._cells))

    def _stacked(self, cells: CellClasses) -> SparseRows:
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
        return self._system.contradictions(_concatenated(values))

    # a table asked about ------------------------------------------------------------------------------
    def _of(self, table: Table) -> _Asked:
        if table not in self._asked:
            if len(self._asked) >= _REMEMBERED:
                self._asked.pop(next(iter(self._asked)))
            self._asked[table] = self._over(table, CellClasses.of(self.domain, [*self.tables, table]))
        return self._asked[table]

    def _over(self, table: Table, cells: CellClasses) -> _Asked:
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
        return Restricted(MatrixProduct(Dense(asked.restricted()), Kron(asked.cells.partitions)), 1)

    def restricted_over(self, table: Table, merges: Sequence[Partition]) -> np.ndarray:
        """``W Pi_N`` over merged cells that respect the table and the exact ones, (m x n) floats."""
        return self._over(table, CellClasses(self.domain, merges)).restricted()

    def known(self, table: Table, values: Values) -> np.ndarray:
        """``W C^+ c``, (m,) floats; in rows that are exact, the exact whole count."""
        asked, exact = self._of(table), _concatenated(values)[self._system.kept]
        answers = asked.queries @ asked.space.least_norm(exact)
        return np.where(asked.relations.determined, np.rint(answers), answers)

    # exactness ------------------------------------------------------------------------------------------
    def settle(self, table: Table, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """The table's counts on the grid ``2^-exponent``, moved so that every sum of them that is exact holds.

        Where no sum of rows is exact, they are returned as they are.

        Raises :class:`~tabulae.errors.InvalidArgument` for values that no whole numbers have.
        """
        asked = self._of(table)
        fixed = _times_power(_concatenated(values)[self._system.kept], exponent)
        return settled_answers(asked.relations, asked.exact, asked.queries, np.asarray(scaled), fixed)

    def settle_cells(self, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """All cells on the grid ``2^-exponent``, moved by whole steps so that the exact counts hold, (N,) int64.

        Where no cell is negative those of large value move, and none is made negative that the move can spare.
        """
        cells = np.asarray(scaled, dtype=np.int64)
        fixed = _times_power(_concatenated(values), exponent)
        sums = self._cells.summed(cells)
        system = self._system
        if cells.min() >= 0:
            system = IntegerSystem(self._system.matrix, priority=-sums)
        return _spread(cells, self._cells.classes, system.settle(sums, fixed) - sums)

    def nearest(self, cells: np.ndarray, values: Values) -> np.ndarray:
        """The vector of all cells nearest to ``cells`` among those with ``C x = c``, (N,)."""
        exact, moved = _concatenated(values)[self._system.kept], np.asarray(cells, dtype=np.float64)
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

    def __init__(self, cells: CellClasses, exact: SparseRows, queries: SparseRows) -> None:
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


def _concatenated(values: Values) -> np.ndarray:
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


class Invariants:
    """Tables of exact counts over one domain: C stacks their matrices, R is its row space and N its null space.

    Where the tables' groups nest attribute by attribute (margins, recodes) everything is implicit and of any size
    (``structure`` is "product"); else it is explicit, over at most 4,096 merged cells.

    Arguments:
        domain: the public domain.
        tables: at least one; names must differ. Weights mean nothing here.

    Raises:
        InvalidArgument: no tables, repeated names, a table that does not fit the domain or counts nothing, or a matrix
            that is not of whole numbers.
        Unsupported: tables of general shape over too many merged cells.

    Reference: Gao, Gong, Yu, "Subspace Differential Privacy", Definition 2.2.

    >>> from tabulae.linalg import Identity
    >>> domain = Domain({"sex": 2, "age": 5})
    >>> exact = Invariants(domain, [Table("sex", {"sex": Identity(2)}), Table("age", {"age": Identity(5)})])
    >>> exact.rank, exact.structure
    (6, 'product')
    """

    def __init__(self, domain: Domain, tables: Iterable[Table]) -> None:
        self.domain = domain
        self.tables = Workload(domain, tables).tables
        for table in self.tables:
            if not table.operator(domain).integer:
                raise InvalidArgument(
                    f"exact table {table.name!r} has entries that are not whole numbers: its values would be no counts"
                )
            if table.counts_nothing(domain):
                raise InvalidArgument(
                    f"exact table {table.name!r} counts nobody, whatever the records: leave it out"
                )
        self._restricted: dict[Table, Restricted] = {}
        self._determined: dict[Table, np.ndarray] = {}

    @cached_property
    def _product(self) -> ProductInvariants | None:
        levels = find_levels(self.domain, self.tables)
        return None if levels is None else ProductInvariants(self.domain, self.tables, levels)

    @cached_property
    def _explicit(self) -> ExplicitInvariants:
        return ExplicitInvariants(self.domain, self.tables)

    @property
    def _whole(self) -> ProductInvariants | ExplicitInvariants:
        return self._product or self._explicit

    @property
    def structure(self) -> str:
        """ "product" or "explicit"."""
        return "product" if self._product is not None else "explicit"

    @property
    def rows(self) -> int:
        """How many exact counts are stated."""
        return sum(table.rows(self.domain) for table in self.tables)

    @property
    def rank(self) -> int:
        """How many of them are independent: the dimension of R."""
        return self._whole.rank

    @property
    def finest(self) -> tuple[Partition, ...] | None:
        """Per attribute the classes within which records trade places and move no invariant; None without structure."""
        return None if self._product is None else self._product.finest

    def restricted_over(self, table: Table, merges: Sequence[Partition]) -> np.ndarray:
        """``W Pi_N`` over merged cells that respect the table and the invariants, (m x n); exact rows are zero."""
        return self._explicit.restricted_over(table, merges)

    def restricted(self, table: Table) -> Restricted:
        """``W Pi_N`` of a table, with whole entries times a divisor where it is a sum of products."""
        if table not in self._restricted:
            self._restricted[table] = self._whole.restricted(table)
        return self._restricted[table]

    def restricted_table(self, table: Table) -> tuple[Table | None, int] | None:
        """The same as a table of signed products (None: all rows exact) and its divisor; None without structure."""
        return None if self._product is None else self._product.restricted_table(table)

    def determined(self, table: Table) -> np.ndarray:
        """Which rows of a table are exact because the invariants determine them, (m,) bool."""
        if table not in self._determined:
            self._determined[table] = self._whole.determined(table)
        return self._determined[table]

    def known(self, table: Table, values: Values) -> np.ndarray:
        """``W C^+ c``: the part of a table's answers that the exact values c give, (m,) floats."""
        return self._whole.known(table, self._checked(values))

    def settle(self, table: Table, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """Answers on the grid ``2^-exponent``, moved by a few steps so that all that is exact holds, (m,) int64.

        Every sum of the table's rows that the invariants fix gets its exact value. Only for a table whose groups do
        not nest with theirs, and that is too large to be worked out cell by cell (4,096 merged cells), is it those
        single rows that they fix.
        """
        values = self._checked(values)
        if self._product is None:
            return self._explicit.settle(table, scaled, values, exponent)
        if self._product.nests(table):
            return self._product.settle(table, scaled, values, exponent)
        try:
            return self._explicit.settle(table, scaled, values, exponent)
        except Unsupported:  # too many cells, or rows, to work out which sums of several rows are exact
            known = np.rint(self._product.known(table, values)).astype(np.int64) << exponent
            return np.where(self.determined(table), known, np.asarray(scaled, dtype=np.int64))

    def nearest(self, cells: np.ndarray, values: Values) -> np.ndarray:
        """The vector of all cells nearest to ``cells`` among those with the exact values, (N,)."""
        return self._whole.nearest(cells, self._checked(values))

    def settle_cells(self, scaled: np.ndarray, values: Values, exponent: int) -> np.ndarray:
        """A vector of all cells on the grid ``2^-exponent``, moved so that the exact values hold, (N,) int64."""
        return self._whole.settle_cells(scaled, self._checked(values), exponent)

    def contradictions(self, values: Values) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Rows of C whose values no counts can have together with earlier rows, and those rows; () where some can."""
        return self._whole.contradictions(self._checked(values))

    def check_values(self, values: Values) -> None:
        """Raise :class:`~tabulae.errors.InvalidArgument` for values that contradict each other, naming the rows."""
        for row, others in self.contradictions(values):
            if not others:
                raise InvalidArgument(f"no whole counts have the exact value given for {self.row_name(row)}")
            against = ", ".join(self.row_name(other) for other in others[:4])
            raise InvalidArgument(
                f"the exact counts contradict each other: {self.row_name(row)} cannot hold together with {against}"
            )

    def row_name(self, row: int) -> str:
        """What a row of C counts, in words: its table and labels."""
        for table in self.tables:
            count = table.rows(self.domain)
            if row < count:
                labels = table.columns(self.domain)
                shape = [len(column) for column in labels.values()]
                if math.prod(shape) != count:
                    return f"row {row} of {table.name!r}"
                place = np.unravel_index(row, shape) if shape else ()
                words = [f"{n}={c[int(i)]}" for (n, c), i in zip(labels.items(), place, strict=True)]
                return f"{table.name!r}" + (f" ({', '.join(words)})" if words else "")
            row -= count
        raise InvalidArgument("no such row")

    def _checked(self, values: Values) -> list[np.ndarray]:
        if len(values) != len(self.tables):
            raise InvalidArgument(
                f"{len(values)} arrays of exact values for {len(self.tables)} tables: give one each"
            )
        arrays = [np.asarray(v) for v in values]
        for table, array in zip(self.tables, arrays, strict=True):
            if array.shape != (table.rows(self.domain),) or array.dtype.kind not in "iu":
                raise InvalidArgument(
                    f"exact values of {table.name!r} must be {table.rows(self.domain)} whole numbers, not "
                    f"{array.dtype} of shape {array.shape}"
                )
        return [array.astype(np.int64) for array in arrays]
