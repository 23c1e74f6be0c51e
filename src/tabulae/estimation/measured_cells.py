"""A measurement over merged cells: what fits in memory, with its noise scaled to 1.

Cells that neither a block nor a table of the constraints tells apart enter only through their sum, so the unknowns are
the sums u of the merged cells: ``B u = S^-1/2 A x``, and u can be any non-negative vector exactly where x can.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
import scipy.linalg

from ..errors import Unsupported
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
