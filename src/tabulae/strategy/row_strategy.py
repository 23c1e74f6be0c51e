"""Unions of products as one strategy: optimise in the row space, write it in integers, certify.

Two forms, both a stack of :class:`~tabulae.linalg.Contrasts`, one for each piece of the workload's symmetry:

* by classes: where exchangeable categories leave few combinations of classes (:mod:`.symmetry`), every piece is
  measured by a dense integer matrix over class totals;
* by rows: without such symmetry but with few independent rows, the only piece is measured by integer combinations
  of the workload's own rows, which are sparse.

Rounding must not lead out of the workload's row space. A piece of full rank is rounded as it stands; of another
integer combinations are taken of rows that span its row space, ``round(2^k C) J`` with J in integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..domain import Workload
from ..errors import Unsupported
from ..linalg import (
    Contrasts,
    Dense,
    LinearOperator,
    Partition,
    Product,
    Sparse,
    Stack,
)
from .bounds import lowered_trace
from .independent_rows import (
    RowPiece,
    RowPieces,
    independent_rows,
)
from .row_dual import (
    PieceRows,
    RowOptimum,
    Rows,
    SparseRows,
    row_optimum,
    square_root,
)
from .strategy import Block, Strategy
from .symmetry import (
    Piece,
    Symmetry,
    class_means,
    symmetry,
)

if TYPE_CHECKING:
    from .settings import Settings

_GRIDS = (14, 18, 22, 26, 30)  # bits
_ROWS_GRID = 20
_NEGLIGIBLE = 1e-6  # relative loss at which a finer grid no longer pays
_FINE, _CHEAP = 1e-5, 2**27  # where all decompositions of a step cost no more, the search goes on to this gap
_FILL = 1e-6  # share of the identity that completes a piece without integer rows


def row_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The certified optimum of a union of products, by classes where that is possible and else by rows.

    Raises :class:`~tabulae.errors.Unsupported` where the workload has neither few classes nor few rows.
    """
    merged, merges = workload.merge()
    pieces, sizes, source = workload_rows(merged)
    cheap = sum(p.work for p in pieces) <= _CHEAP
    tolerance = min(settings.tolerance, _FINE) if cheap else settings.tolerance
    optimum = row_optimum(pieces, sizes, tolerance=tolerance, time_limit=settings.remaining())
    if isinstance(source, Symmetry):
        matrices, exponent = _on_grid(merged, source, optimum)
        members: Sequence[LinearOperator] = [
            Contrasts(Dense(matrix), merges, source.classes, piece.within)
            for piece, matrix in zip(source.pieces, matrices, strict=True)
        ]
    else:
        finest = max(_picked(source.classes, piece.within) for piece in source.pieces).bit_length()
        exponent = min(_ROWS_GRID + finest, _GRIDS[-1])
        members = _combined(source, merges, pieces, optimum, exponent)
    query = members[0] if len(members) == 1 else Stack(members)
    block = Block("opt0", query, exponent)
    return Strategy(workload.domain, (block,), "gaussian", "opt0", lower=optimum.lower)


def workload_rows(merged: Workload) -> tuple[Sequence[Rows], np.ndarray, Symmetry | RowPieces]:
    """The rows of a merged workload, piece by piece, and how many cells each place stands for; what they are made of.

    Raises :class:`~tabulae.errors.Unsupported` where the workload has neither few classes nor few rows.
    """
    try:
        split = symmetry(merged)
    except Unsupported as many:
        try:
            found = independent_rows(merged)
        except Unsupported as error:
            raise Unsupported(
                f'opt0 treats the workload as a whole; {many}; and {error}. Choose "kron" or "union", which work '
                "attribute by attribute"
            ) from None
        return *_sparse_rows(found), found
    return [PieceRows(p) for p in split.pieces], split.sizes, split


# by rows ----------------------------------------------------------------------------------------------------
def _sparse_rows(found: RowPieces) -> tuple[Sequence[Rows], np.ndarray]:
    """The pieces in an orthonormal basis of functions constant on classes, and the sizes of their places."""
    if len(found.pieces) == 1:  # no classes: cells may still be alike
        (piece,) = found.pieces
        rows = SparseRows.of(piece.distinct_columns(), piece.gram)
        return [rows], np.ones(len(rows.places))
    sizes = reduce(np.multiply.outer, (p.sizes.astype(float) for p in found.classes))
    index = np.arange(sizes.size).reshape(sizes.shape)
    pieces = []
    for piece in found.pieces:
        places = index[tuple(slice(None) if c is None else c for c in piece.within)].reshape(-1)
        pieces.append(SparseRows.of(_orthonormal(found, piece), piece.gram, places, piece.copies))
    return pieces, sizes.reshape(-1)


def _orthonormal(found: RowPieces, piece: RowPiece) -> Any:
    """A piece's rows in an orthonormal basis of functions constant on classes."""
    sides = zip(found.classes, piece.within, strict=True)
    outside = reduce(np.multiply.outer, [p.sizes.astype(float) for p, c in sides if c is None], np.ones(1))
    return sp.csr_array(piece.rows @ sp.diags_array(np.sqrt(outside.reshape(-1))))


def rows_svd_bound(found: RowPieces) -> float:
    """The SVD bound ``(sum of singular values of W)^2 / n`` from the distinct rows, one spectrum a piece."""
    trace = 0.0
    for piece in found.pieces:
        rows, root = _orthonormal(found, piece), square_root(piece.gram)
        trace += piece.copies * lowered_trace(root @ (rows @ rows.T).toarray() @ root, terms=rows.shape[1])
    cells = math.prod(p.shape[1] for p in found.classes)
    return trace**2 / cells * (1 - 4 * (len(found.pieces) + 2) * float(np.finfo(np.float64).eps))


def _combined(
    found: RowPieces,
    merges: Sequence[Partition],
    pieces: Sequence[Rows],
    optimum: RowOptimum,
    bits: int,
) -> list[LinearOperator]:
    """Each piece measured by integer combinations of its own rows."""
    members = []
    for piece, rows, factor in zip(found.pieces, pieces, optimum.factors, strict=True):
        assert isinstance(rows, SparseRows)
        real = (rows.mix @ factor).T / _picked(found.classes, piece.within)
        matrix = Product(Dense(np.rint(np.ldexp(real, bits))), Sparse(piece.rows))
        members.append(Contrasts(matrix, merges, found.classes, piece.within))
    return members


def _picked(classes: Sequence[Partition], within: Sequence[int | None]) -> int:
    """How many combinations of cells a piece's contrasts are between."""
    return math.prod(int(p.sizes[c]) for p, c in zip(classes, within, strict=True) if c is not None)


# by classes: onto the grid ----------------------------------------------------------------------------------
def _on_grid(merged: Workload, split: Symmetry, optimum: RowOptimum) -> tuple[list[np.ndarray], int]:
    """Each piece's integer matrix over class totals, all on the coarsest grid that loses nothing that matters."""
    real = [_Real(merged, split, p, f) for p, f in zip(split.pieces, optimum.factors, strict=True)]
    for bits in _GRIDS:
        matrices = [r.rounded(bits) for r in real]
        loss = _loss(split, [r.weighted(m, bits) for r, m in zip(real, matrices, strict=True)])
        if loss <= optimum.loss * (1 + _NEGLIGIBLE):
            break
    return matrices, bits  # the finest grid where none is fine enough: the certificate tells


def _loss(split: Symmetry, matrices: Sequence[np.ndarray]) -> float:
    """Squared error at unit noise and unit sensitivity, from each piece's matrix in an orthonormal basis."""
    diagonal, error = np.zeros(len(split.sizes)), 0.0
    for piece, matrix in zip(split.pieces, matrices, strict=True):
        diagonal[piece.places] += piece.copies * np.square(matrix).sum(axis=0)
        try:
            factor = sl.cho_factor(matrix @ matrix.T, check_finite=False)
        except sl.LinAlgError:
            return np.inf
        error += piece.copies * float(
            np.square(sl.cho_solve(factor, matrix @ piece.rows.T, check_finite=False)).sum()
        )
    return error * float((diagonal / split.sizes).max())


class _Real:
    """One piece's strategy before rounding, as a matrix over class totals."""

    def __init__(self, merged: Workload, split: Symmetry, piece: Piece, factor: np.ndarray) -> None:
        self._piece = piece
        self._width = math.prod(
            p.shape[0] for p, c in zip(split.classes, piece.within, strict=True) if c is None
        )
        picked = _picked(split.classes, piece.within)
        # A function on class totals is one on the orthonormal basis over sqrt(size); s I - J is s times a projection.
        self._weights = np.sqrt(split.sizes[piece.places] / picked) * picked
        orthonormal = factor.T @ piece.rows
        self._span = None
        if len(piece.rows) < len(piece.places):
            self._span = _integer_rows(merged, split, piece)
            if self._span is None:
                values, vectors = np.linalg.eigh(orthonormal.T @ orthonormal)
                orthonormal = (vectors * np.sqrt(np.maximum(values, 0.0) + _FILL)) @ vectors.T
        self._matrix = orthonormal / self._weights
        self._combined = (
            None if self._span is None else self._matrix @ np.linalg.pinv(self._span.astype(float))
        )

    def rounded(self, bits: int) -> np.ndarray:
        """The integer matrix over all combinations of classes, (r, width)."""
        whole = np.zeros((len(self._matrix), self._width), dtype=np.int64)
        if self._span is None or self._combined is None:
            whole[:, self._piece.columns] = np.rint(np.ldexp(self._matrix, bits))
        else:
            whole[:, self._piece.columns] = (
                np.rint(np.ldexp(self._combined, bits)).astype(np.int64) @ self._span
            )
        return whole

    def weighted(self, matrix: np.ndarray, bits: int) -> np.ndarray:
        """A matrix over class totals in the orthonormal basis."""
        return np.ldexp(matrix[:, self._piece.columns] * self._weights, -bits)


def _integer_rows(merged: Workload, split: Symmetry, piece: Piece) -> np.ndarray | None:
    """Integer rows over class totals that span the piece's row space; None where a table is no integer product."""
    parts = []
    for table in merged.tables:
        term, *more = table.terms
        factors = term.over(merged.domain)
        if more or not all(factor.integer for factor in factors):
            return None
        sides = [
            (np.asarray(factor.dense()), part, c)
            for factor, part, c in zip(factors, split.classes, piece.within, strict=True)
        ]
        if all(c is None or np.ptp(matrix[:, part.classes == c], axis=1).any() for matrix, part, c in sides):
            rows = reduce(
                np.kron, [_means(m, part) for m, part, c in sides if c is None], np.ones((1, 1), int)
            )
            parts.append(rows[:, piece.columns])
    rows = np.unique(np.concatenate(parts), axis=0)
    return rows[rows.any(axis=1)]


def _means(matrix: np.ndarray, classes: Partition) -> np.ndarray:
    """The distinct rows' means over each class, each row scaled to the smallest integers."""
    means, _ = class_means(matrix, classes)
    divisors = np.gcd.reduce(means, axis=1)
    return np.unique(means[divisors > 0] // divisors[divisors > 0, None], axis=0)
