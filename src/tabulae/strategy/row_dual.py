"""The optimal Gaussian strategy in the workload's row space, with proof of its optimality.

For a workload given by its rows W (r x n) one r x r eigendecomposition ``W D W' = U S^2 U'`` evaluates the dual of
``min tr[X^-1 V], diag X <= 1`` (see :mod:`.dual_search`): ``t = tr S`` and

    X(mu) = W' U S^-1 U' W,        X_jj = ||S^-1/2 U' w_j||^2,

for cells that are never listed in pairs. ``A = S^-1/2 U' W`` divided by its longest column is feasible, its row
space is the workload's, and its loss is ``t max_j X_jj``: the gap to the bound ``t^2 / sum mu`` is what the
largest X_jj exceeds their mean by. A workload in pieces (see :mod:`.symmetry`) has a matrix W_b for every piece,
and both t and the diagonal are sums over pieces, as often as each occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..errors import InvalidArgument
from .bounds import lowered_trace
from .dual_search import DualSearch
from .symmetry import Piece

_WORK = 2**37  # multiplications that a search may take in all: minutes
_LEAST, _MOST = 8, 600  # evaluations, whatever they cost
_DEPENDENT = 1e-12  # rows below this share of the spectrum are combinations of others
_SMALLEST = 1e-15  # eigenvalues of W D W' are kept above this share of the largest
_CHUNK = 2**24  # entries held at once
_EPS = float(np.finfo(np.float64).eps)


class Rows(Protocol):
    """The rows W_b (r x n) of one piece, as the search needs them."""

    @property
    def places(self) -> np.ndarray:
        """The place of each column, (n,)."""
        ...

    @property
    def copies(self) -> int:
        """How often the piece occurs."""
        ...

    @property
    def count(self) -> int:
        """The rank r."""
        ...

    @property
    def work(self) -> int:
        """What one evaluation costs, in multiplications of a matrix product, roughly."""
        ...

    def outer(self, mu: np.ndarray) -> np.ndarray:
        """W D W' over r independent rows."""
        ...

    def column_squares(self, root: np.ndarray) -> np.ndarray:
        """Squared norms of the columns of root' W, (n,)."""
        ...

    def lowered_trace(self, mu: np.ndarray) -> float:
        """tr (W D W')^1/2, rounded down."""
        ...


@dataclass(frozen=True)
class PieceRows:
    """A piece of a workload's symmetry."""

    piece: Piece

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
        return self.count**3 + 2 * self.rows.nnz * self.count

    def outer(self, mu: np.ndarray) -> np.ndarray:
        scaled = self.rows @ sp.diags_array(np.sqrt(mu))
        return self.mix.T @ (scaled @ scaled.T).toarray() @ self.mix

    def column_squares(self, root: np.ndarray) -> np.ndarray:
        mixed, columns = self.mix @ root, self.rows.T.tocsr()
        step = max(1, _CHUNK // root.shape[1])
        parts = range(0, columns.shape[0], step)
        return np.concatenate([np.square(columns[s : s + step] @ mixed).sum(axis=1) for s in parts])

    def lowered_trace(self, mu: np.ndarray) -> float:
        return lowered_trace(self.outer(mu), terms=sum(self.rows.shape))


def square_root(gram: np.ndarray) -> np.ndarray:
    """N^1/2 of a positive semi-definite matrix."""
    if np.array_equal(gram, np.diag(gram.diagonal())):
        return np.diag(np.sqrt(gram.diagonal()))
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


@dataclass(frozen=True)
class RowOptimum:
    """A strategy for Gaussian noise and the proof of how good it is.

    Piece b is measured by ``factors[b]' W_b`` (factors r x r), scaled so that no column of the whole is longer than
    1. ``loss`` is the workload's total squared error at unit noise; no strategy has less than ``lower``.
    """

    factors: tuple[np.ndarray, ...]
    loss: float
    lower: float
    gap: float
    evaluations: int


def row_optimum(
    pieces: Sequence[Rows], sizes: np.ndarray, *, tolerance: float, time_limit: float | None = None
) -> RowOptimum:
    """The strategy of least total squared error under Gaussian noise, within a proven ``tolerance``.

    Minimises ``tr[(A'A)^+ V]`` over all A whose columns have L2 norm at most 1 (add/remove neighbours).

    ``pieces`` are the rows of the workload, piece by piece, over places among g combinations of cells; ``sizes``
    (g,) how many cells each combination stands for. The search stops at a gap of ``tolerance``, when it cannot
    improve, or after ``time_limit`` seconds or as much work; the gap reported is true in each case.

    Raises :class:`~tabulae.errors.InvalidArgument` where no query counts anything.

    Reference: HDMM, Definition 12 and section 4.2, for unions of products in their row space.

    >>> rows = SparseRows.of(sp.csr_array(np.tril(np.ones((3, 3)))))  # prefix sums of three cells
    >>> best = row_optimum([rows], np.ones(3), tolerance=1e-6)
    >>> round(best.loss, 4), best.gap <= 1e-6
    (4.6079, True)
    """
    if not pieces:
        raise InvalidArgument("the workload counts no cell: leave out tables of weight zero.")
    search = _Search(pieces, sizes, tolerance, time_limit)
    search.run(sizes / sizes.mean())
    nu = search.multipliers
    trace = sum(p.copies * p.lowered_trace((nu / sizes)[p.places]) for p in pieces)
    lower = float(trace**2 / nu.sum() * (1 - 4 * (len(nu) + len(pieces)) * _EPS))
    return RowOptimum(search.factors(), search.upper, lower, search.upper / lower - 1.0, search.evaluations)


def row_svd_bound(pieces: Sequence[Rows], sizes: np.ndarray) -> float:
    """The SVD bound ``(sum of singular values of W)^2 / n`` from the rows of each piece, rounded down."""
    trace = sum(p.copies * p.lowered_trace(np.ones(len(p.places))) for p in pieces)
    return float(trace**2 / sizes.sum() * (1 - 4 * (len(sizes) + len(pieces)) * _EPS))


class _Search(DualSearch):
    """The dual over ``nu_o = sizes_o mu_o``, the multipliers of all cells of a combination together."""

    def __init__(
        self, pieces: Sequence[Rows], sizes: np.ndarray, tolerance: float, time_limit: float | None
    ) -> None:
        work = sum(p.work for p in pieces)
        super().__init__(tolerance, time_limit, int(np.clip(_WORK // max(work, 1), _LEAST, _MOST)))
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
