"""A measurement and constraints over merged cells: what fits in memory, with noise scaled to 1.

Cells that neither a block nor a table of the constraints tells apart enter only through their sum, so the unknowns are
the sums u of the merged cells: ``B u = S^-1/2 A x``, and u can be any non-negative vector exactly where x can.
Constraints are equalities ``C u = c``, limits ``l <= T u <= h``, and cells that are forced to 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from ..domain import Constraint, Domain, Invariants, Table, Term, merged_factor
from ..errors import InvalidArgument, Unsupported
from ..linalg import (
    Centring,
    Contrasts,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Stack,
    Sum,
    Total,
    merge_columns,
)
from ..strategy import Strategy, merges, products
from .intervals import non_negative_rows

LARGEST = 10**7
"""Most merged cells of a vector of all cells."""

WIDEST = 8192
"""Most merged cells of one attribute where a dense basis is needed for it."""

Terms = Sequence[tuple[int, tuple[LinearOperator, ...]]]

_DENSE = 2**24  # entries of a factor that is written out
_DECOMPOSED = 2048  # cells up to which B'B is decomposed whole where no basis diagonalises it


class MeasuredCells:
    """Blocks ``B_b = A_b / sqrt(v_b)`` over merged cells, and a basis in which B'B is nearly diagonal.

    ``tables`` are further matrices over the domain that must be constant on merged cells.
    """

    def __init__(
        self, strategy: Strategy, variances: Sequence[float], tables: Sequence[LinearOperator] = ()
    ) -> None:
        beside = [factors for table in tables for _, factors in products(table)]
        self._merges = tuple(
            merge_columns([merge, *(factors[axis] for factors in beside)])
            for axis, merge in enumerate(merges(strategy))
        )
        self.shape = tuple(p.shape[0] for p in self._merges)
        if self.cells > LARGEST:
            raise Unsupported(
                f"the measurements tell {self.cells:,} cells apart; non-negative least squares lists them all "
                f'and goes up to {LARGEST:,}. Estimate by "pgm", a model of the measured marginals, or by '
                '"least-squares"'
            )
        self._weights = [
            2.0**-b.exponent / math.sqrt(v) for b, v in zip(strategy.blocks, variances, strict=True)
        ]
        self._explicit = any(isinstance(b.query, MatrixProduct | Contrasts | Stack) for b in strategy.blocks)
        self._blocks = [self.over_cells(block.query) for block in strategy.blocks]

    @property
    def merges(self) -> tuple[Partition, ...]:
        """Per attribute, which of its values are one."""
        return self._merges

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    def over_cells(self, operator: LinearOperator) -> LinearOperator:
        """A matrix over the domain that is constant on merged cells, as one over these."""
        if isinstance(operator, Stack):
            return Stack([self.over_cells(part) for part in operator.ops])
        if isinstance(operator, Contrasts):
            return self.over_cells(operator.composed)
        if isinstance(operator, MatrixProduct):
            return MatrixProduct(operator.left, self.over_cells(operator.right))
        terms = [
            (c, Kron([over_classes(f, p) for f, p in zip(factors, self._merges, strict=True)]))
            for c, factors in products(operator)
        ]
        return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Sum(terms)

    def apply(self, u: np.ndarray) -> list[np.ndarray]:
        """``B u`` block by block, for a vector or for columns (cells x k)."""
        return [w * (block @ u) for w, block in zip(self._weights, self._blocks, strict=True)]

    def adjoint(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """``B' r``, over the cells."""
        total = np.zeros(self.cells)
        for w, block, r in zip(self._weights, self._blocks, rows, strict=True):
            total += w * (block.T @ r)
        return total

    def counted(self) -> np.ndarray:
        """Which cells any query counts."""
        return (
            sum((np.asarray(b.column_norms(1), dtype=float) for b in self._blocks), np.zeros(self.cells)) > 0
        )

    def basis(self, *, constants: bool = False) -> tuple[LinearOperator, np.ndarray, bool]:
        """Orthonormal Q with the diagonal of ``Q B'B Q'``, and whether that is all there is.

        A product over the attributes, exact for one product and for marginals; of all cells at once where few; the
        cells themselves where there is nothing better. With ``constants`` each attribute's constant vector is in Q.
        """
        terms = [products(block) for block in self._blocks] if not self._explicit else []
        columns = [list(column) for column in zip(*(f for parts in terms for _, f in parts), strict=True)]
        plain = bool(terms) and all(map(_plain, columns))
        exact = sum(map(len, terms)) == 1 or plain
        if not exact and not constants and self.cells <= _DECOMPOSED:
            whole = np.vstack(self.apply(np.eye(self.cells)))
            values, vectors = np.linalg.eigh(whole.T @ whole)
            return Dense(vectors.T), np.maximum(values, 0.0), True
        if self._explicit:
            return Identity(self.cells), np.ones(self.cells), False
        axes = [_axis_basis(factors, constants=constants) for factors in columns]
        total = np.zeros(self.cells)
        for weight, parts in zip(self._weights, terms, strict=True):
            total += weight**2 * (_square(axes, parts) if plain else _above(axes, parts))
        return Kron(axes), total, exact and (plain or max(map(len, terms)) == 1)


def _square(axes: Sequence[LinearOperator], parts: Terms) -> np.ndarray:
    """diag(Q A'A Q') of a sum of products whose factors all share the axes' eigenvectors."""
    total = np.zeros(1)
    for i, (c, left) in enumerate(parts):
        for j, (d, right) in enumerate(parts[: i + 1]):
            total = total + (1 if i == j else 2) * c * d * _outer(map(_diagonal, axes, left, right))
    return np.maximum(total, 0.0)


def _above(axes: Sequence[LinearOperator], parts: Terms) -> np.ndarray:
    """The same of any sum of products, not less than it (Cauchy)."""
    squares = (c**2 * _outer(map(_diagonal, axes, factors, factors)) for c, factors in parts)
    return len(parts) * sum(squares, np.zeros(1))


def _outer(diagonals: Iterable[np.ndarray]) -> np.ndarray:
    return reduce(lambda a, b: np.multiply.outer(a, b).ravel(), diagonals)


def over_classes(factor: LinearOperator, merge: Partition) -> LinearOperator:
    """One attribute's matrix over its merged values, in its plainest form."""
    classes, n = merge.shape
    if np.array_equal(merge.classes, np.arange(n)):
        return factor
    if isinstance(factor, Total):
        return Total(classes)
    first = np.unique(merge.classes, return_index=True)[1]
    if factor.shape[0] * classes > _DENSE:
        return MatrixProduct(
            factor, Partition(np.where(np.isin(np.arange(n), first), merge.classes, -1), classes).T
        )
    matrix = factor.columns(first)
    same = matrix.shape[0] == classes and np.array_equal(matrix, np.eye(classes))
    return Identity(classes) if same else Dense(matrix)


def _constant(factor: LinearOperator) -> bool:
    return factor.shape[1] == 1 or int(factor.column_classes().max()) == 0


def _plain(factors: Sequence[LinearOperator]) -> bool:
    """Whether an attribute is only ever counted value by value or not at all."""
    return all(isinstance(f, Identity | Centring) or _constant(f) for f in factors)


def _axis_basis(factors: Sequence[LinearOperator], *, constants: bool = False) -> LinearOperator:
    """Rows: the constant where some block sums the attribute up, and eigenvectors of the mean Gram."""
    n = factors[0].shape[1]
    varying = [f for f in dict.fromkeys(factors) if not _constant(f)]
    summed = constants or any(_constant(f) or isinstance(f, Centring) for f in factors)
    if n == 1 or (not summed and all(isinstance(f, Identity) for f in varying)):
        return Identity(n)
    if n > WIDEST:
        raise Unsupported(
            f"an attribute of {n:,} merged cells is too wide for a dense basis: at most {WIDEST:,}"
        )
    mean = np.zeros((n, n))
    for factor in varying:
        gram = np.asarray(factor.gram().dense(), dtype=float)
        mean += gram / np.trace(gram)
    if not summed:
        return Dense(np.linalg.eigh(mean)[1].T)
    rest = scipy.linalg.helmert(n)  # rows orthonormal, and orthogonal to the constant
    vectors = np.linalg.eigh(rest @ mean @ rest.T)[1]
    return Dense(np.vstack([np.full(n, n**-0.5), vectors.T @ rest]))


def _diagonal(basis: LinearOperator, left: LinearOperator, right: LinearOperator) -> np.ndarray:
    if isinstance(basis, Identity) and left == right:
        return np.asarray(left.column_norms(2), dtype=float)
    rows = basis.T.dense()
    return ((left @ rows) * (right @ rows)).sum(axis=0)


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
