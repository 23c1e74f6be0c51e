"""The optimal Gaussian strategy where the workload has few independent rows or symmetric cells, with proof.

For a workload given by its rows W (r x n) one r x r eigendecomposition ``W D W' = U S^2 U'`` evaluates the dual of
``min tr[X^-1 V], diag X <= 1`` (see :mod:`~tabulae.strategy.hdmm.opt0`): ``t = tr S`` and

    X(mu) = W' U S^-1 U' W,        X_jj = ||S^-1/2 U' w_j||^2,

for cells that are never listed in pairs. ``A = S^-1/2 U' W`` divided by its longest column is feasible, its row
space is the workload's, and its loss is ``t max_j X_jj``: the gap to the bound ``t^2 / sum mu`` is what the
largest X_jj exceeds their mean by. A workload in pieces (see :mod:`..symmetry`) has a matrix W_b for every piece,
and both t and the diagonal are sums over pieces, as often as each occurs.

The strategy is a stack of :class:`~tabulae.linalg.Contrasts`, one for each piece of the workload's symmetry:

* by classes: where exchangeable categories leave few combinations of classes, every piece is
  measured by a dense integer matrix over class totals;
* by rows: without such symmetry but with few independent rows, the only piece is measured by integer combinations
  of the workload's own rows, which are sparse.

Rounding must not lead out of the workload's row space. A piece of full rank is rounded as it stands; of another
integer combinations are taken of rows that span its row space, ``round(2^k C) J`` with J in integers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ...domain import Table, Workload
from ...errors import InvalidArgument, Unsupported
from ...linalg import (
    Contrasts,
    Dense,
    LinearOperator,
    MatrixProduct,
    Partition,
    Sparse,
    Stack,
    integer_matmul,
    representatives,
)
from ..block import Block
from ..bounds.dual import Certified, DualSearch, lowered_trace
from ..deadline import check_time
from ..information.explicit import row_count
from ..methods import Settings
from ..strategy import Strategy
from ..symmetry import WIDEST, SymmetricPiece, Symmetry, class_means, exchangeable, symmetry, within_class

MOST_ROWS = 4500
"""Largest number of distinct rows of a piece that are optimised together."""

_MOST_ENTRIES = 2**26  # non-zeros of all rows together
_MOST_PIECES = 2048
_MOST_CELLS = 2**22  # combinations of classes


@dataclass(frozen=True)
class RowPiece:
    """The distinct rows of one piece over totals of classes, integers, and N (m x m) that weighs them.

    A query that is asked several times, or by several tables, is one row; its weights, squared, add up in N.
    ``within`` and ``copies`` are those of :class:`~.symmetry.SymmetricPiece`.
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
    classes = _classes(workload)
    if math.prod(part.shape[0] for part in classes) > _MOST_CELLS:
        raise Unsupported(f"cells are told apart in more than {_MOST_CELLS:,} ways")
    sides = _sides(workload, classes)
    choices = [[None, *np.flatnonzero(part.sizes > 1).tolist()] for part in classes]
    pieces = []
    for within in itertools.product(*choices):
        piece = _piece([s for s in sides if s.weight(within) > 0], classes, within)
        pieces.extend(piece)
    return RowPieces(classes, tuple(pieces))


def rows_by_table(workload: Workload) -> tuple[Any, list[tuple[np.ndarray, np.ndarray]]]:
    """The distinct rows of a merged workload over its cells, integers; for each table the places of its own, and its N.

    Raises :class:`~tabulae.errors.Unsupported` as :func:`independent_rows`.
    """
    shape = workload.domain.shape
    if math.prod(shape) > _MOST_CELLS:
        raise Unsupported(f"cells are told apart in more than {_MOST_CELLS:,} ways")
    sides, whole = _sides(workload, [Partition(np.arange(n), n) for n in shape]), (None,) * len(shape)
    rows, placed = _distinct_rows(sides, whole)
    return rows, [(place, side.gram(whole)) for place, side in zip(placed, sides, strict=True)]


def _sides(workload: Workload, classes: Sequence[Partition]) -> list[_Sides]:
    tables = [
        [(int(t.coefficient), t.over(workload.domain)) for t in table.terms] for table in workload.tables
    ]
    if not all(factor.integer for terms in tables for _, factors in terms for factor in factors):
        raise Unsupported("a table asks for real-valued combinations of counts")
    return [_Sides(table, terms, classes) for table, terms in zip(workload.tables, tables, strict=True)]


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
    if not any(side.count(within) for side in sides):
        return
    rows, placed = _distinct_rows(sides, within)
    gram = np.zeros((rows.shape[0], rows.shape[0]))
    for side, place in zip(sides, placed, strict=True):
        np.add.at(gram, (place[:, None], place), side.gram(within))
    copies = math.prod(int(p.sizes[c]) - 1 for p, c in zip(classes, within, strict=True) if c is not None)
    yield RowPiece(within, copies, rows, gram)


def _distinct_rows(sides: Sequence[_Sides], within: Sequence[int | None]) -> tuple[Any, list[np.ndarray]]:
    """The distinct rows of all tables (a csr_array), and the places of each table's."""
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
    return sp.csr_array(sp.vstack(kept, format="csr")), placed


def _kron(matrices: Sequence[np.ndarray]) -> Any:
    return reduce(lambda a, b: sp.csr_array(sp.kron(a, sp.csr_array(b))), matrices, sp.csr_array([[1]]))


_WORK = 2**37  # multiplications that a search may take in all: minutes
_LEAST, _MOST = 8, 600  # evaluations, whatever they cost
_AFTER = 4.0  # evaluations that the bound, whole numbers and the score take as long as
_DEPENDENT = 1e-12  # rows below this share of the spectrum are combinations of others
_SMALLEST = 1e-15  # eigenvalues of W D W' are kept above this share of the largest
_CHUNK = 2**24  # entries held at once
_MOST_PRODUCTS, _STEPS_A_PRODUCT = 2**23, 4  # of entries of one column: how many are kept, and what one takes
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class PieceRows:
    """A piece of a workload's symmetry."""

    piece: SymmetricPiece

    @property
    def places(self) -> np.ndarray:
        return self.piece.places

    @property
    def copies(self) -> int:
        return self.piece.copies

    @property
    def count(self) -> int:
        return self.piece.rows.shape[0]

    @property
    def work(self) -> int:
        return self.count**3

    def outer(self, mu: np.ndarray) -> np.ndarray:
        return (self.piece.rows * mu) @ self.piece.rows.T

    def column_squares(self, root: np.ndarray) -> np.ndarray:
        return np.square(root.T @ self.piece.rows).sum(axis=0)

    def lowered_trace(self, mu: np.ndarray) -> float:
        scale = np.sqrt(mu)
        return lowered_trace(self.piece.gram * scale * scale[:, None])


@dataclass(frozen=True)
class _ColumnProducts:
    """``J_aj J_bj`` of all rows a <= b that share column j of J (m x n): a row for each pair, a column for each j."""

    rows: int  # m
    first: np.ndarray
    second: np.ndarray
    products: Any  # a csr_array (pairs x n)

    @classmethod
    def of(cls, matrix: Any) -> _ColumnProducts:
        """The products of a csc_array's columns."""
        m, n = matrix.shape
        lengths = np.diff(matrix.indptr)
        column, row, value = np.repeat(np.arange(n), lengths), matrix.indices.astype(np.int64), matrix.data
        pairs, places, products = [], [], []
        for apart in range(int(lengths.max(initial=0))):
            start = np.flatnonzero(column[: len(column) - apart] == column[apart:])
            pairs.append(row[start] * m + row[start + apart])
            places.append(column[start])
            products.append(value[start] * value[start + apart])
        distinct, index = np.unique(np.concatenate(pairs), return_inverse=True)
        shape = (len(distinct), n)
        found = sp.csr_array((np.concatenate(products), (index, np.concatenate(places))), shape=shape)
        return cls(m, *np.divmod(distinct, m), found)

    def outer(self, mu: np.ndarray) -> np.ndarray:
        """``J diag(mu) J'``, m x m."""
        inner = np.zeros((self.rows, self.rows))
        inner[self.first, self.second] = inner[self.second, self.first] = self.products @ mu
        return inner

    def quadratic(self, form: np.ndarray) -> np.ndarray:
        """The diagonal of ``J' C J``, (n,), for a symmetric C (m x m)."""
        twice = np.where(self.first == self.second, 1.0, 2.0)
        return self.products.T @ (form[self.first, self.second] * twice)


@dataclass(frozen=True)
class SparseRows:
    """A piece in terms of m sparse rows J (m x n): its Gram matrix is J'N J, and ``mix' J`` a root of it, mix m x r."""

    rows: Any  # a csr_array
    mix: np.ndarray
    places: np.ndarray
    copies: int = 1

    @classmethod
    def of(
        cls, rows: Any, gram: np.ndarray | None = None, places: np.ndarray | None = None, copies: int = 1
    ) -> SparseRows:
        """Reduce to independent rows, ``mix = N^1/2 U`` with U from the spectrum of ``N^1/2 J J' N^1/2``.

        ``gram`` is N (m x m), the identity by default; ``places`` are the columns' own by default.
        """
        root = np.eye(rows.shape[0]) if gram is None else square_root(gram)
        values, vectors = np.linalg.eigh(root @ (rows @ rows.T).toarray() @ root)
        mix = root @ vectors[:, values > _DEPENDENT * values[-1]]
        return cls(rows, mix, np.arange(rows.shape[1]) if places is None else places, copies)

    @property
    def count(self) -> int:
        return self.mix.shape[1]

    @property
    def work(self) -> int:
        products = self._products
        return self.count**3 + 2 * (self.rows.nnz * self.count if products is None else products.products.nnz)

    def outer(self, mu: np.ndarray) -> np.ndarray:
        if (products := self._products) is not None:
            inner = products.outer(mu)
        else:
            scaled = self.rows @ sp.diags_array(np.sqrt(mu))
            inner = (scaled @ scaled.T).toarray()
        return self.mix.T @ inner @ self.mix

    @cached_property
    def _products(self) -> _ColumnProducts | None:
        """Where columns are so short that products of their entries are fewer than steps of J' times a root."""
        lengths = np.bincount(self.rows.indices, minlength=self.rows.shape[1])
        pairs = int(lengths @ (lengths + 1)) // 2
        fewer = pairs <= min(_MOST_PRODUCTS, self.rows.nnz * self.count // _STEPS_A_PRODUCT)
        return _ColumnProducts.of(self.rows.tocsc()) if fewer else None

    def column_squares(self, root: np.ndarray) -> np.ndarray:
        mixed = self.mix @ root
        if (products := self._products) is not None:
            return products.quadratic(mixed @ mixed.T)
        columns = self.rows.T.tocsr()
        step = max(1, _CHUNK // root.shape[1])
        parts = range(0, columns.shape[0], step)
        return np.concatenate([np.square(columns[s : s + step] @ mixed).sum(axis=1) for s in parts])

    def lowered_trace(self, mu: np.ndarray) -> float:
        return lowered_trace(self.outer(mu), terms=sum(self.rows.shape))


QueryRows = PieceRows | SparseRows
"""The rows W_b (r x n) of one piece: rank, copies, places of the columns, and what the search asks of them."""


def square_root(gram: np.ndarray) -> np.ndarray:
    """N^1/2 of a positive semi-definite matrix."""
    if np.array_equal(gram, np.diag(gram.diagonal())):
        return np.diag(np.sqrt(gram.diagonal()))
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


@dataclass(frozen=True)
class RowOptimum(Certified):
    """Piece b is measured by ``factors[b]' W_b`` (factors r x r); no column of the whole is longer than 1."""

    factors: tuple[np.ndarray, ...]


def row_optimum(
    pieces: Sequence[QueryRows], sizes: np.ndarray, *, tolerance: float, deadline: float = np.inf
) -> RowOptimum:
    """The strategy of least total squared error under Gaussian noise, within a proven ``tolerance``.

    Minimises ``tr[(A'A)^+ V]`` over all A whose columns have L2 norm at most 1 (add/remove neighbours). ``pieces`` are
    the rows of the workload over places among g combinations of cells; ``sizes`` (g,) how many cells each stands for.
    The search stops at a gap of ``tolerance``, when it cannot improve, or after the ``deadline`` or as much work;
    the gap reported is true in each case.

    Reference: HDMM, Definition 12 and section 4.2, for unions of products in their row space.

    >>> rows = SparseRows.of(sp.csr_array(np.tril(np.ones((3, 3)))))  # prefix sums of three cells
    >>> best = row_optimum([rows], np.ones(3), tolerance=1e-6)
    >>> round(best.loss, 4), best.gap <= 1e-6
    (4.6079, True)
    """
    if not pieces:
        raise InvalidArgument("the workload counts no cell: leave out tables of weight zero.")
    search = _Search(pieces, sizes, tolerance, deadline)
    search.run(sizes / sizes.mean())
    nu = search.multipliers
    trace = sum(p.copies * p.lowered_trace((nu / sizes)[p.places]) for p in pieces)
    lower = float(trace**2 / nu.sum() * (1 - 4 * (len(nu) + len(pieces)) * _EPS))
    return RowOptimum(search.upper, lower, search.evaluations, search.factors())


def row_svd_bound(pieces: Sequence[QueryRows], sizes: np.ndarray) -> float:
    """The SVD bound ``(sum of singular values of W)^2 / n`` from the rows of each piece, rounded down."""
    trace = sum(p.copies * p.lowered_trace(np.ones(len(p.places))) for p in pieces)
    return float(trace**2 / sizes.sum() * (1 - 4 * (len(sizes) + len(pieces)) * _EPS))


class _Search(DualSearch):
    """The dual over ``nu_o = sizes_o mu_o``, the multipliers of all cells of a combination together."""

    def __init__(
        self, pieces: Sequence[QueryRows], sizes: np.ndarray, tolerance: float, deadline: float
    ) -> None:
        work = sum(p.work for p in pieces)
        most = int(np.clip(_WORK // max(work, 1), _LEAST, _MOST))
        super().__init__(tolerance, deadline, most, after=_AFTER)
        self._pieces, self._sizes = pieces, sizes
        self._best = sizes
        self._largest = 1.0

    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        trace, diagonal = 0.0, np.zeros(len(self._sizes))
        for piece, (values, root) in zip(self._pieces, self._decomposed(mu), strict=True):
            trace += piece.copies * float(np.sqrt(values).sum())
            diagonal[piece.places] += piece.copies * piece.column_squares(root)
        diagonal /= self._sizes
        if trace * diagonal.max() < self.upper:
            self.upper, self._best, self._largest = trace * float(diagonal.max()), mu, float(diagonal.max())
        return trace, diagonal

    def _decomposed(self, nu: np.ndarray):
        """For each piece the eigenvalues of W D W' and ``U S^-1/2``."""
        mu = nu / self._sizes
        for piece in self._pieces:
            values, vectors = sl.eigh(piece.outer(mu[piece.places]), check_finite=False, overwrite_a=True)
            values = np.maximum(values, values[-1] * _SMALLEST)
            yield values, vectors / values**0.25

    def factors(self) -> tuple[np.ndarray, ...]:
        """``U S^-1/2`` of every piece where the bound on the loss was least, with no column longer than 1."""
        return tuple(root / np.sqrt(self._largest) for _, root in self._decomposed(self._best))


_GRIDS = (14, 18, 22, 26, 30)  # bits
_ROWS_GRID = 20
_NEGLIGIBLE = 1e-6  # relative loss at which a finer grid no longer pays
_FINE, _CHEAP = 1e-5, 2**27  # where a step costs no more and no gap is named, the search goes on to this one
_ROW_STEPS, _PIECE_STEPS = 8, 4  # eigendecompositions' worth of the shortest search, with what follows it
_MOST_EXACT = 2**53  # entries of integer rows
_FILL = 1e-6  # share of the identity that completes a piece without integer rows


def row_strategy(workload: Workload, settings: Settings) -> Strategy:
    """The certified optimum of a union of products, by classes where that is possible and else by rows.

    Raises :class:`~tabulae.errors.Unsupported` where the workload has neither few classes nor few rows.
    """
    merged, merges = workload.merge()
    pieces, sizes, source = workload_rows(merged, settings.deadline)
    goes_on = not settings.names_tolerance and sum(p.work for p in pieces) <= _CHEAP
    tolerance = min(settings.tolerance, _FINE) if goes_on else settings.tolerance
    optimum = row_optimum(pieces, sizes, tolerance=tolerance, deadline=settings.deadline)
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


def workload_rows(
    merged: Workload, deadline: float = np.inf
) -> tuple[Sequence[QueryRows], np.ndarray, Symmetry | RowPieces]:
    """The rows of a merged workload, piece by piece, and how many cells each place stands for; what they are made of.

    Raises :class:`~tabulae.errors.Unsupported` where the workload has neither few classes nor few rows, and where
    no strategy could be made of them by the ``deadline``.
    """
    try:
        split = symmetry(merged, deadline)
    except Unsupported as many:
        try:
            found = independent_rows(merged)
        except Unsupported as error:
            raise Unsupported(
                f'opt0 treats the workload as a whole; {many}; and {error}. Choose "kron" or "union", which work '
                "attribute by attribute"
            ) from None
        check_time(deadline, *(p.rows.shape[0] for p in found.pieces), steps=_ROW_STEPS)
        return *_sparse_rows(found), found
    check_time(deadline, *(len(p.places) for p in split.pieces), steps=_PIECE_STEPS)
    return [PieceRows(p) for p in split.pieces], split.sizes, split


# by rows ----------------------------------------------------------------------------------------------------
def _sparse_rows(found: RowPieces) -> tuple[Sequence[QueryRows], np.ndarray]:
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


def rows_svd_bound(found: RowPieces, deadline: float = np.inf) -> float:
    """The SVD bound ``(sum of singular values of W)^2 / n`` from the distinct rows, one spectrum a piece."""
    check_time(deadline, *(p.rows.shape[0] for p in found.pieces))
    trace = 0.0
    for piece in found.pieces:
        rows, root = _orthonormal(found, piece), square_root(piece.gram)
        trace += piece.copies * lowered_trace(root @ (rows @ rows.T).toarray() @ root, terms=rows.shape[1])
    cells = math.prod(p.shape[1] for p in found.classes)
    return trace**2 / cells * (1 - 4 * (len(found.pieces) + 2) * float(np.finfo(np.float64).eps))


def _combined(
    found: RowPieces, merges: Sequence[Partition], pieces: Sequence[QueryRows], optimum: RowOptimum, bits: int
) -> list[LinearOperator]:
    """Each piece measured by integer combinations of its own rows."""
    members = []
    for piece, rows, factor in zip(found.pieces, pieces, optimum.factors, strict=True):
        assert isinstance(rows, SparseRows)
        real = (rows.mix @ factor).T / _picked(found.classes, piece.within)
        matrix = MatrixProduct(Dense(np.rint(np.ldexp(real, bits))), Sparse(piece.rows))
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

    def __init__(self, merged: Workload, split: Symmetry, piece: SymmetricPiece, factor: np.ndarray) -> None:
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
            if self._span is None:  # the root of X'X + fill I
                _, values, vectors = sl.svd(orthonormal, full_matrices=False, check_finite=False)
                beside = np.sqrt(np.square(values) + _FILL) - np.sqrt(_FILL)
                orthonormal = (vectors.T * beside) @ vectors + np.sqrt(_FILL) * np.eye(orthonormal.shape[1])
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
            combined = np.rint(np.ldexp(self._combined, bits)).astype(np.int64)
            whole[:, self._piece.columns] = integer_matmul(combined, self._span)
        return whole

    def weighted(self, matrix: np.ndarray, bits: int) -> np.ndarray:
        """A matrix over class totals in the orthonormal basis."""
        return np.ldexp(matrix[:, self._piece.columns] * self._weights, -bits)


def _integer_rows(merged: Workload, split: Symmetry, piece: SymmetricPiece) -> np.ndarray | None:
    """Integer rows over class totals that span the piece's row space.

    None where a table asks for real-valued combinations, or a sum of products for contrasts within classes.
    """
    parts = []
    for table in merged.tables:
        terms = [(int(t.coefficient), t.over(merged.domain)) for t in table.terms]
        if not all(factor.integer for _, factors in terms for factor in factors):
            return None
        if len(terms) > 1:
            rows = _rows_of_sum(terms, split, piece)
            if rows is None:
                return None
        else:
            rows = _rows_of_product(terms[0][1], split, piece)
        parts.append(rows[:, piece.columns])
    rows = np.unique(np.concatenate(parts), axis=0)
    return rows[rows.any(axis=1)]


def _rows_of_product(factors: Sequence[LinearOperator], split: Symmetry, piece: SymmetricPiece) -> np.ndarray:
    """One table's rows over totals of other attributes' classes; none if it does not tell a class's cells apart."""
    sides = [
        (np.asarray(factor.dense()), part, c)
        for factor, part, c in zip(factors, split.classes, piece.within, strict=True)
    ]
    outside = [(matrix, part) for matrix, part, c in sides if c is None]
    if not all(c is None or np.ptp(matrix[:, part.classes == c], axis=1).any() for matrix, part, c in sides):
        return np.zeros((0, math.prod(part.shape[0] for _, part in outside)), dtype=np.int64)
    return reduce(np.kron, [_means(matrix, part) for matrix, part in outside], np.ones((1, 1), int))


def _rows_of_sum(
    terms: Sequence[tuple[int, tuple[LinearOperator, ...]]], split: Symmetry, piece: SymmetricPiece
) -> np.ndarray | None:
    """The rows of a sum of products over totals of classes; None within a class, where its terms part ways."""
    if any(c is not None for c in piece.within):
        return None
    total: np.ndarray | int = 0
    for coefficient, factors in terms:
        means = [
            class_means(np.asarray(f.dense()), part)[0]
            for f, part in zip(factors, split.classes, strict=True)
        ]
        if abs(coefficient) * len(terms) * math.prod(int(np.abs(m).max()) for m in means) > _MOST_EXACT:
            return None
        total = total + coefficient * reduce(np.kron, means)
    return _smallest(np.asarray(total))


def _smallest(rows: np.ndarray) -> np.ndarray:
    """The distinct rows but those of zeros, each scaled to the smallest integers."""
    divisors = np.gcd.reduce(rows, axis=1)
    return np.unique(rows[divisors > 0] // divisors[divisors > 0, None], axis=0)


def _means(matrix: np.ndarray, classes: Partition) -> np.ndarray:
    """The distinct rows' means over each class, each row scaled to the smallest integers."""
    return _smallest(class_means(matrix, classes)[0])
