"""Unions of products as few sparse integer rows, piece by piece of their symmetry: ``V_b = J_b' N_b J_b``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..domain import Table, Workload
from ..errors import Unsupported
from ..linalg import (
    LinearOperator,
    Partition,
    Sparse,
)
from ..linalg.merge import representatives
from .reduced_rows import row_count
from .symmetry import (
    WIDEST,
    class_means,
    exchangeable,
    within_class,
)

MOST_ROWS = 4500
"""Largest number of distinct rows of a piece that are optimised together."""

_MOST_ENTRIES = 2**26  # non-zeros of all rows together
_MOST_PIECES = 2048
_MOST_CELLS = 2**22  # combinations of classes


@dataclass(frozen=True)
class RowPiece:
    """The distinct rows of one piece over totals of classes, integers, and N (m x m) that weighs them.

    A query that is asked several times, or by several tables, is one row; its weights, squared, add up in N.
    ``within`` and ``copies`` are those of :class:`~.symmetry.Piece`.
    """

    within: tuple[int | None, ...]
    copies: int
    rows: Any  # a csr_array (m x n)
    gram: np.ndarray

    def distinct_columns(self) -> Any:
        """J with equal columns joined: cells that no query of the whole workload tells apart."""
        first = representatives(Sparse(self.rows).column_classes())
        return sp.csr_array(self.rows.tocsc()[:, first].astype(np.float64))


@dataclass(frozen=True)
class RowPieces:
    """A workload's classes, one partition an attribute, and its pieces by rows."""

    classes: tuple[Partition, ...]
    pieces: tuple[RowPiece, ...]


def independent_rows(workload: Workload) -> RowPieces:
    """The pieces of a merged workload.

    Raises :class:`~tabulae.errors.Unsupported` where their rows are too many, or not made of integers.
    """
    tables = [
        [(int(t.coefficient), t.over(workload.domain)) for t in table.terms] for table in workload.tables
    ]
    if not all(factor.integer for terms in tables for _, factors in terms for factor in factors):
        raise Unsupported("a table asks for real-valued combinations of counts")
    classes = _classes(workload)
    if math.prod(part.shape[0] for part in classes) > _MOST_CELLS:
        raise Unsupported(f"cells are told apart in more than {_MOST_CELLS:,} ways")
    sides = [_Sides(table, terms, classes) for table, terms in zip(workload.tables, tables, strict=True)]
    choices = [[None, *np.flatnonzero(part.sizes > 1).tolist()] for part in classes]
    pieces = []
    for within in itertools.product(*choices):
        piece = _piece([s for s in sides if s.weight(within) > 0], classes, within)
        pieces.extend(piece)
    return RowPieces(classes, tuple(pieces))


def _classes(workload: Workload) -> tuple[Partition, ...]:
    """Exchangeable categories where every table is a product and pieces stay few; otherwise each its own class."""
    apart = tuple(Partition(np.arange(n), n) for n in workload.domain.shape)
    if any(len(table.terms) > 1 for table in workload.tables) or max(workload.domain.shape) > WIDEST:
        return apart
    columns = zip(*(factors for _, factors in workload.gram_terms()), strict=True)
    labels = [exchangeable([np.asarray(f.dense()) for f in dict.fromkeys(column)]) for column in columns]
    found = tuple(Partition(label, int(label.max()) + 1) for label in labels)
    pieces = math.prod(1 + np.count_nonzero(part.sizes > 1) for part in found)
    return found if pieces <= _MOST_PIECES else apart


class _Sides:
    """One table: for every attribute the integer rows that its class means are multiples of."""

    def __init__(
        self,
        table: Table,
        terms: Sequence[tuple[int, tuple[LinearOperator, ...]]],
        classes: Sequence[Partition],
    ) -> None:
        self._terms = terms if len(terms) > 1 else []
        self._classes = classes
        coefficient, factors = terms[0]
        self._weight2 = float(table.weight) ** 2 * (1 if self._terms else coefficient**2)
        self._factors = factors
        self._count = row_count(list(terms)) if self._terms else None
        self._pairs = (
            [] if self._terms else [_pair(f, part) for f, part in zip(factors, classes, strict=True)]
        )

    def weight(self, within: Sequence[int | None]) -> float:
        """The squared weight of the table in a piece: 0 where it does not tell the cells of a class apart."""
        inside = [
            (f, p, c) for f, p, c in zip(self._factors, self._classes, within, strict=True) if c is not None
        ]
        return self._weight2 * math.prod(within_class(np.asarray(f.dense()), p, c) for f, p, c in inside)

    def count(self, within: Sequence[int | None]) -> int:
        """The number of rows."""
        return self._count or math.prod(
            len(j) for (j, _), c in zip(self._pairs, within, strict=True) if c is None
        )

    def entries(self, within: Sequence[int | None]) -> int:
        """A bound on their non-zeros."""
        if self._terms:
            return sum(
                math.prod(int(np.count_nonzero(f.dense())) for f in factors) for _, factors in self._terms
            )
        return math.prod(
            int(np.count_nonzero(j)) for (j, _), c in zip(self._pairs, within, strict=True) if c is None
        )

    def rows(self, within: Sequence[int | None]) -> Any:
        """The rows, integers, indices sorted."""
        if self._terms:
            total = reduce(lambda a, b: a + b, (c * _kron([f.dense() for f in fs]) for c, fs in self._terms))
        else:
            total = _kron([j for (j, _), c in zip(self._pairs, within, strict=True) if c is None])
        total = sp.csr_array(total)
        total.eliminate_zeros()
        total.sort_indices()
        return total

    def gram(self, within: Sequence[int | None]) -> np.ndarray:
        """N over this table's rows."""
        if self._terms:
            return np.eye(self._count or 1) * self._weight2
        grams = [n for (_, n), c in zip(self._pairs, within, strict=True) if c is None]
        return reduce(np.kron, grams, np.full((1, 1), self.weight(within)))


def _pair(factor: LinearOperator, classes: Partition) -> tuple[np.ndarray, np.ndarray]:
    """Integer rows J and N with ``M'M = J'N J`` for the class means M of a factor's rows; few rows where M is tall."""
    means, scale = class_means(np.asarray(factor.dense()), classes)
    columns = means.shape[1]
    if columns < len(means) and columns <= MOST_ROWS:
        gram = means.T.astype(float) @ means
        if np.linalg.matrix_rank(gram, hermitian=True, tol=1e-10 * gram.max()) == columns:
            return np.eye(columns, dtype=np.int64), gram / scale**2
    rows, counts = np.unique(means, axis=0, return_counts=True)
    kept = rows.any(axis=1)
    divisors = np.gcd.reduce(rows[kept], axis=1)
    return rows[kept] // divisors[:, None], np.diag(counts[kept] * (divisors / scale) ** 2)


def _piece(
    sides: Sequence[_Sides], classes: Sequence[Partition], within: tuple[int | None, ...]
) -> Iterator[RowPiece]:
    """The distinct rows of all tables; nothing where there is none."""
    count, entries = sum(s.count(within) for s in sides), sum(s.entries(within) for s in sides)
    if count > 2 * MOST_ROWS or entries > _MOST_ENTRIES:  # repeated rows included
        raise Unsupported(f"its {count:,} rows are too many (up to {MOST_ROWS:,})")
    numbers: dict[tuple[bytes, bytes], int] = {}
    kept, placed = [], []
    for side in sides:
        rows, place = side.rows(within), []
        for i in range(rows.shape[0]):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            content = (rows.indices[part].tobytes(), rows.data[part].tobytes())
            if content not in numbers:
                numbers[content] = len(numbers)
                kept.append(rows[[i]])
            place.append(numbers[content])
        placed.append(np.array(place, dtype=np.int64))
    if len(numbers) > MOST_ROWS:
        raise Unsupported(f"its {len(numbers):,} distinct rows are too many (up to {MOST_ROWS:,})")
    if not numbers:
        return
    gram = np.zeros((len(numbers), len(numbers)))
    for side, place in zip(sides, placed, strict=True):
        np.add.at(gram, (place[:, None], place), side.gram(within))
    copies = math.prod(int(p.sizes[c]) - 1 for p, c in zip(classes, within, strict=True) if c is not None)
    yield RowPiece(within, copies, sp.csr_array(sp.vstack(kept, format="csr")), gram)


def _kron(matrices: Sequence[np.ndarray]) -> Any:
    return reduce(lambda a, b: sp.csr_array(sp.kron(a, sp.csr_array(b))), matrices, sp.csr_array([[1]]))
