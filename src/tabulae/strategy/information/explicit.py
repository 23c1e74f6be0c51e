"""Least squares by one decomposition: over merged cells, or over independent query rows.

A table is split as ``W = C L`` with C carrying few rows to all (orthonormal columns, a Kronecker product) and L
over r reduced coordinates. Both routes write the coefficients of the noise as ``Z_b = C L G K_b``: ``K_b``
brings block b's answers into r coordinates, and ``G`` these to L's.

* cells: ``A_b = B_b M`` with M merging cells that no block tells apart, ``B_b / sqrt(v_b) = U_b D V'``;
  ``G = V D^-1``, ``K_b = U_b' / sqrt(v_b)`` and ``W = C L M``.
* rows: each tall factor ``A_i = U_i R_i`` with U_i orthonormal and R_i of full row rank at most n_i, so that a group
  ``c (x)_i A_i`` keeps its Gram with at most ``prod_i min(m_i, n_i)`` rows; with ``R`` the stack of
  ``(x)_i R_i / sqrt(v_b)``, ``G = (R R')^+``, ``K_b = (x)_i U_i' / sqrt(v_b)``, ``C L = W R'``. A sum of products
  shares its rows among the terms and is kept as it is.

Under exact counts ``C u = c`` that are known besides, with Z an orthonormal basis of null(C) and u_c any solution,

    u^ = u_c + Z (B Z)^+ (y - B u_c),      W u^ has covariance ``W Z (Z'B'B Z)^+ Z'W'``.

It has the least variance among linear unbiased estimates that use both, and mixes the exact counts into what it says
of null(C): see :func:`..restriction.restricted_strategy` for what that costs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy.linalg

from ...domain import Invariants, Workload
from ...errors import Unsupported
from ...linalg import (
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Scaled,
    merge_columns,
    representatives,
)
from ..block import Block, kron_sum, products
from ..within import written_out
from .protocol import (
    EXPLICIT,
    MeasuredStrategy,
    Profile,
    check_constant,
    coefficient_statistics,
    kron_vectors,
    merge_statistics,
    refuse_not_estimable,
)

Terms = list[tuple[int, tuple[LinearOperator, ...]]]


@dataclass(frozen=True)
class ReducedRows:
    """``weight * sum_s c_s (x)_i A_si = carry @ rows`` with ``carry`` having orthonormal columns."""

    rows: tuple[tuple[int, tuple[LinearOperator, ...]], ...]
    carry: LinearOperator
    weight: float

    @property
    def count(self) -> int:
        """Number of reduced rows."""
        return self.carry.shape[1]

    @cached_property
    def columns(self) -> tuple[tuple[LinearOperator, ...], ...]:
        """The factors of all products attribute by attribute; one alone where all products have the same."""
        return tuple(
            column[:1] if all(factor is column[0] for factor in column) else column
            for column in zip(*(factors for _, factors in self.rows), strict=True)
        )


def row_count(terms: Terms) -> int:
    """How many rows :func:`reduce_rows` leaves."""
    if len(terms) == 1:
        return math.prod(min(f.shape) for f in terms[0][1])
    return math.prod(f.shape[0] for f in terms[0][1])


def reduce_rows(terms: Terms, weight: float) -> ReducedRows:
    """Reduce one group of queries; ``weight`` multiplies its rows."""
    if len(terms) > 1:
        return ReducedRows(tuple(terms), Identity(row_count(terms)), weight)
    coefficient, factors = terms[0]
    split = [_orthonormal(f) for f in factors]
    carry = Kron([u for u, _ in split])
    return ReducedRows(((coefficient, tuple(r for _, r in split)),), carry, weight)


def outer(groups: Sequence[ReducedRows]) -> np.ndarray:
    """R R' for the stack R of all groups' rows, weights included; (r, r), symmetric."""
    starts = np.cumsum([0, *(group.count for group in groups)])
    whole = np.zeros((starts[-1], starts[-1]))
    for i, a in enumerate(groups):
        for j, b in enumerate(groups[: i + 1]):
            rows, columns = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            whole[rows, columns] = rows_against(a, b)
            whole[columns, rows] = whole[rows, columns].T
    return (whole + whole.T) / 2


def rows_against(a: ReducedRows, b: ReducedRows) -> np.ndarray:
    """R_a R_b' with both weights, (a.count, b.count)."""
    # Most attributes are summed over on both sides: their part is one number, or one a pair of products
    numbers = np.outer([float(c) for c, _ in a.rows], [float(d) for d, _ in b.rows]) * (a.weight * b.weight)
    matrices = []
    for left, right in zip(a.columns, b.columns, strict=True):
        if all(f.shape[0] == 1 for f in (*left, *right)):
            numbers *= _pair(left[0], right[0]) if len(left) == len(right) == 1 else _numbers(left, right)
        else:
            matrices.append(
                (
                    left * len(a.rows) if len(left) == 1 else left,
                    right * len(b.rows) if len(right) == 1 else right,
                )
            )
    if not matrices:
        return np.full((1, 1), numbers.sum())
    return kron_sum(
        (float(numbers[s, t]), [_pair(left[s], right[t]) for left, right in matrices])
        for s, t in np.ndindex(*numbers.shape)
    )


@lru_cache(maxsize=4096)
def _numbers(left: tuple[LinearOperator, ...], right: tuple[LinearOperator, ...]) -> np.ndarray:
    """The products of single rows, (left, right)."""
    return np.array([[_pair(p, q).item() for q in right] for p in left])


@lru_cache(maxsize=4096)
def _pair(left: LinearOperator, right: LinearOperator) -> np.ndarray:
    """left right', the smaller side made dense."""
    if right.shape[0] <= left.shape[0]:
        return np.asarray(left @ right.T.dense(), dtype=float)
    return np.asarray(right @ left.T.dense(), dtype=float).T


@lru_cache(maxsize=256)
def _orthonormal(factor: LinearOperator) -> tuple[LinearOperator, LinearOperator]:
    """factor = U R, U with orthonormal columns, R of full row rank; factor itself when it is not tall."""
    rows, columns = factor.shape
    if rows <= columns:
        return Identity(rows), factor
    values, vectors = spectrum(np.asarray(factor.gram().dense(), dtype=float))
    root = np.sqrt(values)
    return Dense(factor @ (vectors / root)), Dense((vectors * root).T)


_RELATIVE = 1e-12  # eigenvalues below this share of the largest count as zero


def spectrum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Non-zero eigenvalues of a positive semi-definite matrix, and their vectors."""
    values, vectors = np.linalg.eigh(matrix)
    keep = values > _RELATIVE * max(float(values[-1]), 0.0)
    return values[keep], vectors[:, keep]


_CHUNK = 2**24  # entries held at once while a table's rows are multiplied by groups of columns
_PRODUCT = 1e-10  # share of a product's squared norm that may be missing from the row space, by rounding
_WHOLE = 1e-12  # the same for a sum of products
_DEPENDENT = 1e-12  # singular values below this share of the largest count as zero
_BESIDE = 1e-9  # share of a table's norm that may lie outside the row space, by rounding
_FAINT = 1e-12  # of the largest variance: smaller ones are taken for this
_SQUARED = 1e-6  # the same where a matrix and its transpose are multiplied
_LARGEST = 2**27  # entries of a table over the reduced coordinates


def merges(strategy: MeasuredStrategy) -> tuple[Partition, ...]:
    """Per attribute, the coarsest partition on whose classes every block's queries are constant."""
    every = [factors for block in strategy.blocks for _, factors in block.terms]
    return tuple(merge_columns(list(column)) for column in zip(*every, strict=True))


def joint_merges(strategy: MeasuredStrategy, invariants: Invariants) -> tuple[Partition, ...]:
    """Cells that neither the strategy nor the exact tables tell apart, attribute by attribute."""
    exact = [term.over(strategy.domain) for table in invariants.tables for term in table.terms]
    return tuple(
        merge_columns([merge, *dict.fromkeys(factors[axis] for factors in exact)])
        for axis, merge in enumerate(merges(strategy))
    )


def over_merged(operator: LinearOperator, merges: Sequence[Partition]) -> np.ndarray:
    """A matrix that is constant on merged cells, one column for each of them, (m x n)."""
    return written_out(operator, [representatives(merge.classes) for merge in merges])


def told_apart(strategy: MeasuredStrategy) -> tuple[Partition, ...]:
    """The cells that a strategy works over: those it tells apart, and its invariants where they have no structure."""
    exact = strategy.exact
    if exact is None or exact.structure == "product":
        return merges(strategy)
    return joint_merges(strategy, exact)


def merged_cells(strategy: MeasuredStrategy) -> int:
    """How many cells the strategy tells apart, attribute by attribute."""
    return math.prod(p.shape[0] for p in told_apart(strategy))


def reduced_count(strategy: MeasuredStrategy) -> int:
    """How many rows its blocks have once tall factors are reduced to their rank, and what is mixed of them."""
    mixed = [b.query.shape[0] if isinstance(b.query, MatrixProduct) else 0 for b in strategy.blocks]
    return sum(max(row_count(b.terms), m) for b, m in zip(strategy.blocks, mixed, strict=True))


def whitening(variances: Sequence[float], faint: float = _FAINT) -> tuple[float, list[float]]:
    """The largest variance, and what the rows of each block are multiplied by so that all have it.

    A block a million times as precise as another would push the other below what floating point holds beside it. Its
    variance is taken for larger than it is, then: least squares stays linear and unbiased under any weights, and what
    it says of its own variance is an upper bound.
    """
    unit = max(variances)
    if not unit:  # noise that rounds away
        return 0.0, [1.0] * len(variances)
    return unit, [math.sqrt(unit / max(v, faint * unit)) for v in variances]


@dataclass(frozen=True)
class _Lifted:
    """A table over the reduced coordinates: carry (m, s) with orthonormal columns, times small (s, r)."""

    carry: LinearOperator
    small: np.ndarray


class _Explicit(ABC):
    """What both routes share; a route fills the fields and says how a table is lifted."""

    _pseudo: np.ndarray  # G, from the blocks' coordinates to those that tables are lifted to
    _root: np.ndarray  # covariance of the coordinates' estimate is root root'
    _inward: list[LinearOperator]  # K_b', m_b x r_b, on answers of block b in counts
    _place: list[slice]  # where K_b lands among the coordinates

    def __init__(self) -> None:
        self._lifted: dict[LinearOperator, _Lifted] = {}

    @abstractmethod
    def _lift(self, terms: Terms) -> _Lifted:
        """A table's products over the reduced coordinates, or NotEstimable."""

    def _table(self, operator: LinearOperator) -> _Lifted:
        if operator not in self._lifted:
            self._lifted[operator] = self._lift(products(operator))
        return self._lifted[operator]

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers, (m,)."""
        table = self._table(operator)
        coordinates = np.zeros(self._pseudo.shape[1])
        for inward, place, y in zip(self._inward, self._place, answers, strict=True):
            coordinates[place] += inward.T @ np.asarray(y, dtype=float)
        return table.carry @ (table.small @ (self._pseudo @ coordinates))

    def variance(self, operator: LinearOperator) -> np.ndarray:
        """diag(W P^+ W'), (m,)."""
        table = self._table(operator)
        spread = table.small @ self._root
        if spread.shape[1] > len(spread) < operator.shape[0]:  # as wide as the table has independent rows
            triangle: Any = np.linalg.qr(spread.T, mode="r")
            spread = triangle.T
        total = np.zeros(operator.shape[0])
        for columns in _groups(spread.shape[1], operator.shape[0]):
            total += np.square(table.carry @ spread[:, columns]).sum(axis=1)
        return total

    def total(self, workload: Workload) -> float:
        """Total weighted variance: as the carry's columns are orthonormal, nothing is done per query."""
        tables = ((t, self._table(t.operator(workload.domain))) for t in workload.tables)
        return sum(
            float(t.weight) ** 2 * float(np.square(lifted.small @ self._root).sum()) for t, lifted in tables
        )

    def profile(self, operator: LinearOperator) -> Profile:
        """Statistics of the noise's coefficients, block by block."""
        table = self._table(operator)
        inner = table.small @ self._pseudo
        stats = np.zeros((5, len(self._inward), operator.shape[0]))
        for b, (inward, place) in enumerate(zip(self._inward, self._place, strict=True)):
            for columns in _groups(inward.shape[0], max(operator.shape[0], inward.shape[0])):
                unit = np.zeros((inward.shape[0], columns.stop - columns.start))
                unit[np.arange(columns.start, columns.stop), np.arange(unit.shape[1])] = 1.0
                z = table.carry @ (inner[:, place] @ (inward.T @ unit))
                merge_statistics(stats[:, b], coefficient_statistics(z))
        return Profile(*stats, exact=True)


def _groups(columns: int, rows: int) -> list[slice]:
    width = max(1, _CHUNK // max(1, rows))
    return [slice(s, min(columns, s + width)) for s in range(0, columns, width)]


class DenseInformation(_Explicit):
    """All queries over merged cells, whitened and decomposed as one matrix: ``A_b / sqrt(v_b) = U_b D V'``.

    P itself would square their condition, and directions that its rounding hides would come back as a bias that
    grows with the counts.
    """

    route = "dense"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        super().__init__()
        self._decompose(strategy, variances, told_apart(strategy))

    def _decompose(
        self,
        strategy: MeasuredStrategy,
        variances: Sequence[float],
        merges: Sequence[Partition],
        null: np.ndarray | None = None,
    ) -> list[tuple[LinearOperator, np.ndarray]]:
        """Fill the fields from the blocks over merged cells, within the columns of ``null``; the blocks so split."""
        self._merges, self._chosen = merges, [representatives(p.classes) for p in merges]
        split = [self._split(block) for block in strategy.blocks]
        unit, shares = whitening(variances)
        whole = np.vstack([rows * share for (_, rows), share in zip(split, shares, strict=True)])
        left, singular, right = np.linalg.svd(whole if null is None else whole @ null, full_matrices=False)
        largest = singular[0] if null is None else max(singular[0], np.linalg.norm(whole, 2))
        kept = int(np.count_nonzero(singular > _DEPENDENT * largest))
        self._right = right[:kept].T
        self._space = self._right if null is None else null @ self._right
        self._pseudo = self._space / singular[:kept]
        self._root = math.sqrt(unit) * self._pseudo
        parts = np.split(left[:, :kept], np.cumsum([len(rows) for _, rows in split])[:-1])
        self._inward: list[LinearOperator] = [
            MatrixProduct(carry, Dense(u * share))
            for (carry, _), u, share in zip(split, parts, shares, strict=True)
        ]
        self._place = [slice(0, kept)] * len(split)
        return split

    def _split(self, block: Block) -> tuple[LinearOperator, np.ndarray]:
        """The block's queries in counts as carry @ rows, carry with orthonormal columns, rows over merged cells.

        Tall factors are reduced to as many rows as they have columns: ranges have hundreds of times as many.
        """
        step = 2.0**-block.exponent
        if isinstance(block.query, MatrixProduct):
            whole = self._over_cells(block.terms)
            matrix = np.asarray(block.query.left @ whole, dtype=float) * step
            return Identity(len(matrix)), matrix
        group = reduce_rows(block.terms, 1.0)
        return group.carry, step * self._over_cells(group.rows)

    def _over_cells(self, terms: Sequence[tuple[int, tuple[LinearOperator, ...]]]) -> np.ndarray:
        """A sum of products with one column for each merged cell."""
        return kron_sum(
            (float(c), [f.columns(cells) for f, cells in zip(factors, self._chosen, strict=True)])
            for c, factors in terms
        )

    def _lift(self, terms: Terms) -> _Lifted:
        for _, queries in terms:
            for query, merge in zip(queries, self._merges, strict=True):
                check_constant(query, merge.classes)
        group = reduce_rows(terms, 1.0)
        _check_size(group, self._pseudo.shape[0])
        small = self._over_cells(group.rows)
        self._check_space(small)
        return _Lifted(group.carry, small)

    def _table(self, operator: LinearOperator) -> _Lifted:
        if operator not in self._lifted and isinstance(operator, MatrixProduct):
            self._lifted[operator] = self._lift_explicit(operator)
        return super()._table(operator)

    def _lift_explicit(self, operator: MatrixProduct) -> _Lifted:
        """A matrix over merged cells, which those told apart here refine."""
        terms = products(operator.right)
        for _, queries in terms:
            for query, merge in zip(queries, self._merges, strict=True):
                check_constant(query, merge.classes)
        matrix = np.asarray(operator.left @ self._over_cells(terms), dtype=float)
        if matrix.size > _LARGEST:
            raise Unsupported(
                f"a table of {matrix.shape[0]:,} rows is too large to be answered over {matrix.shape[1]:,} cells at "
                "once; ask for it in parts"
            )
        if len(matrix) <= matrix.shape[1]:
            self._check_space(matrix)
            return _Lifted(Identity(len(matrix)), matrix)
        carry, small = np.linalg.qr(matrix)
        self._check_space(small)
        return _Lifted(Dense(carry), small)

    def _check_space(self, small: np.ndarray) -> None:
        """Refuse rows outside the measured row space."""
        beside = small - (small @ self._space) @ self._space.T
        whole = self._space.shape[1] == len(self._space)
        if not whole and np.linalg.norm(beside) > _BESIDE * np.linalg.norm(small):
            raise refuse_not_estimable()


class RowsInformation(_Explicit):
    """A A' over independent rows, decomposed as one matrix; the cells are never listed.

    A block may be combinations ``T (x)_i A_i`` of a product's rows: its own rows are the coordinates then.
    """

    route = "rows"

    def __init__(self, strategy: MeasuredStrategy, variances: Sequence[float]) -> None:
        super().__init__()
        self._rows: list[ReducedRows] = []
        self._mixes: list[np.ndarray | None] = []
        self._inward = []
        self._place = []
        start = 0
        unit, shares = whitening(variances, _SQUARED)
        for block, share in zip(strategy.blocks, shares, strict=True):
            group = reduce_rows(block.terms, share * 2.0**-block.exponent)
            mix = _mix_of(block, group)
            self._rows.append(group)
            self._mixes.append(mix)
            self._inward.append(Scaled(group.carry if mix is None else Identity(len(mix)), share))
            self._place.append(slice(start, start := start + self._inward[-1].shape[1]))
        values, vectors = spectrum(self._mixed(self._mixed(outer(self._rows)).T))
        self._pseudo = (vectors / values) @ vectors.T
        self._root = math.sqrt(unit) * self._pseudo

    def _lift(self, terms: Terms) -> _Lifted:
        group = reduce_rows(terms, 1.0)
        _check_size(group, self._pseudo.shape[0])
        small = self._against(group)
        if not all(self._determined(reduce_rows([term], 1.0), _PRODUCT) for term in terms) and not (
            len(terms) > 1 and self._determined(group, _WHOLE)
        ):
            raise refuse_not_estimable()
        return _Lifted(group.carry, small)

    def _against(self, group: ReducedRows) -> np.ndarray:
        return self._mixed(np.hstack([rows_against(group, rows) for rows in self._rows]))

    def _mixed(self, columns: np.ndarray) -> np.ndarray:
        """Columns for the product's rows, block by block, brought to the rows that are measured: ``x T'``."""
        if all(mix is None for mix in self._mixes):
            return columns
        parts = np.split(columns, np.cumsum([group.count for group in self._rows])[:-1], axis=1)
        return np.hstack([p if m is None else p @ m.T for p, m in zip(parts, self._mixes, strict=True)])

    def _determined(self, group: ReducedRows, tolerance: float) -> bool:
        """Whether the rows lie in the measured row space: only then diag(L G L') recovers their squared norms.

        A count of nearly everybody has a squared norm of N and may miss the row space by 1, so the tolerance is
        tight, and sums of products, whose rounding is that of their largest term, are first judged term by term.
        """
        small, norms = self._against(group), row_norms2(group)
        missing = np.abs(norms - np.einsum("ij,ij->i", small @ self._pseudo, small)).sum()
        return bool(missing <= tolerance * max(float(norms.sum()), 1.0))


def _mix_of(block: Block, group: ReducedRows) -> np.ndarray | None:
    """T of a block ``T (x)_i A_i`` over the product's reduced rows; None for a block that is the product itself."""
    if not isinstance(block.query, MatrixProduct):
        return None
    return np.asarray(group.carry.T @ np.asarray(block.query.left.T.dense(), dtype=float)).T


def _check_size(group: ReducedRows, coordinates: int) -> None:
    if group.count * coordinates > _LARGEST:
        raise Unsupported(
            f"a table of {group.count:,} independent rows is too large to be answered from {coordinates:,} measured "
            "queries at once; ask for it in parts"
        )


def row_norms2(group: ReducedRows) -> np.ndarray:
    """Squared L2 norm of each reduced row."""
    total = np.zeros(group.count)
    for c, left in group.rows:
        for d, right in group.rows:
            total += c * d * kron_vectors([row_dots(p, q) for p, q in zip(left, right, strict=True)])
    return group.weight**2 * total


def row_dots(left: LinearOperator, right: LinearOperator) -> np.ndarray:
    """Row-wise inner products of two matrices of one shape, (m,)."""
    if left == right:
        return np.asarray(left.T.column_norms(2), dtype=float)
    width = max(1, _CHUNK // left.shape[0])
    out = np.zeros(left.shape[0])
    for start in range(0, left.shape[1], width):
        unit = np.eye(left.shape[1])[:, start : start + width]
        out += ((left @ unit) * (right @ unit)).sum(axis=1)
    return out


class ConstrainedInformation(DenseInformation):
    """Least squares under exact values, over at most 4,096 merged cells.

    Raises :class:`~tabulae.errors.Unsupported` beyond.
    """

    route = "constrained"

    def __init__(
        self,
        strategy: MeasuredStrategy,
        variances: Sequence[float],
        invariants: Invariants,
        values: Sequence[np.ndarray],
    ) -> None:
        super(DenseInformation, self).__init__()
        merges = joint_merges(strategy, invariants)
        cells = math.prod(p.shape[0] for p in merges)
        if cells > EXPLICIT:
            raise Unsupported(
                f"measurements and exact tables together tell {cells:,} cells apart; least squares under exact counts "
                f"that were not given to select goes up to {EXPLICIT:,}. Name them there: select(..., invariants=...)"
            )
        exact = np.vstack([over_merged(t.operator(strategy.domain), merges) for t in invariants.tables])
        exact, known = exact.astype(float), np.concatenate(values).astype(float)
        self._solution = np.linalg.lstsq(exact, known, rcond=None)[0]
        self._null = scipy.linalg.null_space(exact, rcond=1e-11)
        split = self._decompose(strategy, variances, merges, self._null)
        self._expected = [carry @ (rows @ self._solution) for carry, rows in split]

    def answer(self, operator: LinearOperator, answers: Sequence[np.ndarray]) -> np.ndarray:
        """Least-squares answers under the exact values, (m,)."""
        table = self._table(operator)
        apart = [np.asarray(y, dtype=float) - e for y, e in zip(answers, self._expected, strict=True)]
        return table.carry @ (table.small @ self._solution) + super().answer(operator, apart)

    def _check_space(self, small: np.ndarray) -> None:
        free = small @ self._null
        beside = free - (free @ self._right) @ self._right.T
        if np.linalg.norm(beside) > _BESIDE * max(np.linalg.norm(small), 1.0):
            raise refuse_not_estimable()
