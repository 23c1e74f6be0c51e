"""Kronecker products whose rows are weighed one by one: ``D (A_1 (x) ... (x) A_d)`` with D diagonal.

The columns of such a matrix are products no longer, but their power sums and inner products are still linear in the
powers of the weights:

    ||D A e_j||_p^p     = sum_r |w_r|^p prod_i |A_i[r_i, j_i]|^p
    <D A e_j, D A e_k>  = sum_r w_r^2 prod_i A_i[r_i, j_i] A_i[r_i, k_i]

so that those of all columns, or of all pairs, are one product of a Kronecker matrix of integers with the vector of
``|w|^p``. Integers of any length are kept exact: the weights' powers are cut into limbs short enough for 64 bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy.sparse

from ..errors import InvalidArgument
from .algebra import Product
from .centring import Centring
from .column_pairs import Blocks, Found
from .explicit import Dense, Sparse
from .kron import Kron
from .merge import representatives
from .numbers import EXACT_FLOAT_LIMIT, INT64_LIMIT
from .operator import LinearOperator
from .simple import Partition, Total
from .stack import Stack

_WHOLE_PAIRS = 2**22  # pairs of cells that are compared as Python integers
_PAIRS = 2**28  # pairs that are compared in floating point, some at a time
_CHUNK = 2**24  # of them held at once
_LISTED = 2**26  # entries up to which pairs are left to the comparison of written-out columns (L1)
_LISTED_WORK = 2**31
_LEAST_BITS = 8  # of a limb that is worth a product in floating point


@dataclass(frozen=True)
class WeightedRows:
    """``weights`` (m_1, ..., m_d), 0 for rows that are left out, of the rows of ``(x)_i factors[i]``."""

    weights: np.ndarray
    factors: tuple[LinearOperator, ...]

    def treats_alike(self, axis: int) -> bool:
        """Whether every permutation of one attribute's (merged) cells only permutes the rows.

        Its factor is ``[1'; n I - J]``, and the n rows beside the total have equal weights.
        """
        rows = unlifted(self.factors[axis])[0]
        if total_and_rest(rows) is None:
            return False
        beside = np.moveaxis(self.weights, axis, 0)[1:]
        return bool((beside == beside[0]).all())

    def told_apart(self, axis: int) -> np.ndarray:
        """One cell of each class of equal columns; of an attribute whose cells are treated alike two."""
        factor = self.factors[axis]
        rows, merge = unlifted(factor)
        classes = np.arange(rows.shape[1]) if merge is None else merge.column_classes()
        if self.treats_alike(axis):
            return representatives(classes)[:2]
        return representatives(factor.column_classes())


def weigh_rows(weights: np.ndarray, factors: Sequence[LinearOperator]) -> Product:
    """The operator of the rows that have a weight: weights (m_1, ..., m_d), integers; factors m_i x n_i.

    >>> from tabulae.linalg import Identity
    >>> weigh_rows(np.array([[1, 2], [0, 3]]), [Identity(2), Total(1)]).shape
    Traceback (most recent call last):
        ...
    tabulae.errors.InvalidArgument: weights of shape (2, 2) do not fit factors of (2, 1) rows
    >>> weigh_rows(np.array([[2], [0]]), [Identity(2), Total(1)]).dense().tolist()
    [[2, 0]]
    """
    rows = tuple(factor.shape[0] for factor in factors)
    if weights.shape != rows:
        raise InvalidArgument(f"weights of shape {weights.shape} do not fit factors of {rows} rows")
    flat = weights.ravel()
    kept = np.flatnonzero(flat)
    chosen = scipy.sparse.csr_array((flat[kept], (np.arange(len(kept)), kept)), shape=(len(kept), flat.size))
    return Product(Sparse(chosen), Kron(tuple(factors)))


def weighted_rows(op: LinearOperator) -> WeightedRows | None:
    """The weights and factors of an operator of :func:`weigh_rows`; None for any other."""
    if not (isinstance(op, Product) and isinstance(op.left, Sparse) and isinstance(op.right, Kron)):
        return None
    matrix = op.left.matrix
    if not (op.integer and matrix.nnz == matrix.shape[0] and (np.diff(matrix.indptr) == 1).all()):
        return None
    if len(np.unique(matrix.indices)) < matrix.nnz:
        return None
    factors = tuple(op.right.ops)
    if any(factor.abs_entry_max() >= 2**31 for factor in factors):  # whose squares would not fit
        return None
    weights = np.zeros(matrix.shape[1], dtype=np.int64)
    weights[matrix.indices] = matrix.data
    return WeightedRows(weights.reshape([f.shape[0] for f in factors]), factors)


def total_and_rest(factor: LinearOperator) -> int | None:
    """n for the total of n cells above what each has beyond the mean, ``[1'; n I - J]``; None for any other matrix.

    >>> total_and_rest(Stack([Total(4), Centring(4)])), total_and_rest(Total(4))
    (4, None)
    """
    if not (isinstance(factor, Stack) and len(factor.ops) == 2):
        return None
    total, rest = factor.ops
    return rest.n if isinstance(total, Total) and isinstance(rest, Centring) and rest.n == total.n else None


def unlifted(factor: LinearOperator) -> tuple[LinearOperator, Partition | None]:
    """A factor over merged cells and the partition that merges them, None where every cell is by itself."""
    if isinstance(factor, Product) and isinstance(factor.right, Partition):
        partition = factor.right
        if partition.classes.min() >= 0 and partition.sizes.all():
            return factor.left, partition
    return factor, None


def largest_in_weighted_rows(blocks: Blocks, p: int, *, replace: bool) -> Found | None:
    """The largest column or pair of one block of weighted rows; None for other blocks, and for L1 pairs to be listed.

    Privacy:
        Add-remove: exact, in integers. Replace: exact where there are at most 4 million pairs; else an upper bound,
        for L2 by 1e-9 of the norm up to 2^28 pairs, and otherwise ``||a - b||^p <= 2^p max ||a||^p`` over the rows that
        do not count all cells alike.
    """
    view = weighted_rows(blocks[0][0]) if len(blocks) == 1 else None
    if view is None:
        return None
    unit = blocks[0][1]
    if not replace:
        return int(_column_sums(view, p).max()) * unit, True
    cells = [view.told_apart(axis) for axis in range(len(view.factors))]
    pairs = math.prod(len(c) ** 2 for c in cells)
    if p == 1:
        rows, count = int(np.count_nonzero(view.weights)), math.prod(f.shape[1] for f in view.factors)
        if rows * count <= _LISTED and rows * count**2 // 2 <= _LISTED_WORK:
            return None
    elif pairs <= _PAIRS:
        whole, is_exact = _largest_distance(view, cells)
        return whole * unit, is_exact
    return 2**p * int(_column_sums(_telling(view), p).max()) * unit, False


def weighted_column_sums(op: LinearOperator, p: int) -> np.ndarray | None:
    """``||D A e_j||_p^p`` for every column, in integers; None for an operator of another kind."""
    view = weighted_rows(op)
    if view is None:
        return None
    sums = exact_product(
        [np.abs(f.dense().T).astype(np.int64) ** p for f in view.factors], _powers(view.weights, p)
    )
    return sums.astype(np.int64) if int(sums.max()) < INT64_LIMIT else sums


def exact_product(matrices: Sequence[np.ndarray], vector: np.ndarray) -> np.ndarray:
    """``((x)_i M_i) v`` as Python integers: int64 matrices (k_i, m_i), a vector of m_1 ... m_d integers of any length.

    >>> exact_product([np.array([[1, -1]]), np.array([[2], [3]])], np.array([2**70, 1], dtype=object)).tolist()
    [2361183241434822606846, 3541774862152233910269]
    """
    gain = math.prod(int(np.abs(m).sum(axis=1, dtype=object).max()) for m in matrices)
    bits = (EXACT_FLOAT_LIMIT // max(gain, 1)).bit_length() - 1
    if bits < _LEAST_BITS:
        bits = (INT64_LIMIT // (2 * max(gain, 1))).bit_length() - 1
    if bits < 1:
        return _in_python(matrices, vector)
    product, rest, shift = Kron([Dense(m) for m in matrices]), vector, 0
    total: np.ndarray = np.zeros(product.shape[0], dtype=object)
    while rest.any():
        limb = (rest & ((1 << bits) - 1)).astype(np.int64)
        total = total + (product @ limb).astype(object) * (1 << shift)
        rest, shift = rest >> bits, shift + bits
    return total


def _in_python(matrices: Sequence[np.ndarray], vector: np.ndarray) -> np.ndarray:
    """The product in Python integers throughout: slow, and of any size."""
    whole = vector.astype(object).reshape([m.shape[1] for m in matrices])
    for axis, matrix in enumerate(matrices):
        whole = np.moveaxis(np.tensordot(matrix.astype(object), whole, axes=(1, axis)), 0, axis)
    return whole.ravel()


def _powers(weights: np.ndarray, p: int) -> np.ndarray:
    """``|w|^p`` as one vector: int64 where that fits."""
    size = np.abs(weights.ravel())
    if int(size.max()) ** p >= INT64_LIMIT:
        size = size.astype(object)
    return size**p


def _column_sums(view: WeightedRows, p: int) -> np.ndarray:
    """``||D A e_j||_p^p`` over cells that stand for all."""
    matrices = []
    for axis, factor in enumerate(view.factors):
        powers = np.abs(factor.columns(view.told_apart(axis)).T).astype(np.int64) ** p
        matrices.append(np.unique(powers, axis=0))
    return exact_product(matrices, _powers(view.weights, p))


def _telling(view: WeightedRows) -> WeightedRows:
    """The view without the rows that count all cells alike, which no two cells differ by."""
    alike = np.ones((), dtype=bool)
    for factor in view.factors:
        rows = unlifted(factor)[0]
        if total_and_rest(rows) is None:
            constant = np.ptp(factor.columns(representatives(factor.column_classes())), axis=1) == 0
        else:
            constant = np.arange(rows.shape[0]) == 0
        alike = np.logical_and.outer(alike, constant)
    return WeightedRows(np.where(alike, 0, view.weights), view.factors)


def _largest_distance(view: WeightedRows, cells: Sequence[np.ndarray]) -> Found:
    """``max_{j,k} ||D A (e_j - e_k)||_2^2`` over pairs of cells that stand for all."""
    view = _telling(view)
    if not view.weights.any():
        return Fraction(0), True
    columns = [f.columns(c).T.astype(np.int64) for f, c in zip(view.factors, cells, strict=True)]
    squares = _powers(view.weights, 2)
    norms = exact_product([c**2 for c in columns], squares)
    shape = [len(c) for c in columns]
    if math.prod(shape) ** 2 <= _WHOLE_PAIRS:
        products = [(c[:, None, :] * c).reshape(-1, c.shape[1]) for c in columns]
        inner = exact_product(products, squares).reshape([n for size in shape for n in (size, size)])
        d = len(shape)
        inner = inner.transpose([*range(0, 2 * d, 2), *range(1, 2 * d, 2)]).reshape(len(norms), len(norms))
        return Fraction(int(np.max(norms[:, None] + norms - 2 * inner))), True
    return _largest_float(columns, squares.astype(float), norms), False


def _largest_float(columns: Sequence[np.ndarray], squares: np.ndarray, norms: np.ndarray) -> Fraction:
    """An upper bound on the largest distance, from floating point and a bound on its rounding."""
    size, largest = norms.astype(float), int(norms.max())
    rows, best = Kron([Dense(c.astype(float)) for c in columns]), 0.0
    step = max(1, _CHUNK // max(len(size), len(squares)))
    for start in range(0, len(size), step):
        unit = np.zeros((len(size), min(step, len(size) - start)))
        unit[np.arange(start, start + unit.shape[1]), np.arange(unit.shape[1])] = 1.0
        inner = rows @ (squares[:, None] * (rows.T @ unit))
        best = max(best, float((size[:, None] + size[start : start + step] - 2 * inner).max()))
    terms = sum(itertools.chain.from_iterable(c.shape for c in columns)) + 16
    slack = Fraction(4 * terms, 2**52)  # each of <= 2 sum n_i roundings, of sums below sqrt(norm_j norm_k)
    return Fraction(best) + max(slack, Fraction(1, 10**9)) * largest
