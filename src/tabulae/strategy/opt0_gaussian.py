"""OPT_0 for Gaussian noise: the optimal strategy of an explicit workload, with proof of its optimality.

The problem is convex: ``min tr[X^-1 V]`` subject to ``diag X <= 1``, where V = W'W is the workload's Gram
matrix and X = A'A the strategy's. Its dual has one multiplier per cell, D = diag(mu) (see :mod:`.dual_search`), and
one eigendecomposition gives its value, its gradient and ``X(mu) = D^-1/2 (D^1/2 V D^1/2)^1/2 D^-1/2``.

Two ways lead from X(mu) to a strategy that may be used:

* V non-singular: scale rows and columns to unit diagonal. The error is of second order in mu.
* V singular: scaling columns would move the row space off the workload's. Divide by the largest diagonal
  entry instead and fill the diagonal up to 1, which only adds queries; a share of at least ``_FILL`` is
  filled in everywhere, so that X stays non-singular and every workload row is supported. Here
  ``X(mu) = F' (F D F')^-1/2 F`` with V = F'F and F of full row rank, and mu may touch zero.

The factor returned is the upper triangular Cholesky factor A. All square roots of X have the same errors,
and rounding their entries to a grid of step q costs the same to first order: column j's squared norm moves by
``d_j = 2 a_j'e_j`` of standard deviation q/sqrt(3), the loss by ``-sum_j mu_j d_j``, whatever the root. The
triangular one is safer to round: its zeros stay exact, so half the entries carry no error, and it cannot
become singular, because its determinant is the product of its pivots and each is at least sqrt(_FILL), far
above any q in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sl

from ..errors import InvalidArgument
from .bounds import dual_bound, lowered_roots
from .dual_search import DualSearch
from .gram import DistinctCells, checked_gram

_FILL = 1e-5  # share of the identity mixed into a singular X
_SMALL, _FINE = 512, 1e-5  # up to this many cells the search goes on to this gap: it takes a second at most


@dataclass(frozen=True)
class GaussianOptimum:
    """A strategy for Gaussian noise and the proof of how good it is.

    ``strategy`` is A (r x n), largest column norm at most 1. ``loss = tr[(A'A)^+ V]`` is the workload's total
    squared error at unit noise; no strategy has less than ``lower``, proven by ``multipliers`` (n,) through
    :func:`~tabulae.strategy.bounds.dual_bound`. ``gap = loss / lower - 1``; ``evaluations`` counts
    eigendecompositions.
    """

    strategy: np.ndarray
    loss: float
    lower: float
    gap: float
    evaluations: int
    multipliers: np.ndarray


def opt0_gaussian(
    gram: np.ndarray, *, tolerance: float = 1e-3, time_limit: float | None = None, xp: Any = None
) -> GaussianOptimum:
    """The strategy of least total squared error under Gaussian noise, within a proven ``tolerance``.

    Minimises ``tr[(A'A)^+ V]`` over all A whose columns have L2 norm at most 1 (add/remove neighbours).

    ``gram`` is V = W'W (n x n, positive semi-definite, any rank), in squared queries. The search stops at a
    gap of ``tolerance`` (up to 512 cells: of 1e-5, if that is less), when it cannot improve, or after
    ``time_limit`` seconds; the gap reported is true in each case. ``xp`` is a namespace of the array API (that of
    torch or cupy, through ``array_api_compat``) whose arrays carry the decompositions; numpy where it is None.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix or is zero.

    Reference: HDMM, Definition 12 and section 4.2; the dual in ``docs`` under Strategies.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells
    >>> best = opt0_gaussian(W.T @ W, tolerance=1e-6)
    >>> round(best.loss, 4), best.gap <= 1e-6
    (4.6079, True)
    >>> opt0_gaussian(np.ones((4, 4))).strategy.tolist()  # the total: one query
    [[1.0, 1.0, 1.0, 1.0]]
    """
    V = checked_gram(gram)
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance is {tolerance}: the gap cannot be asked to reach zero; try 1e-6.")
    cells = DistinctCells.of([V])
    if cells.count == 0:
        raise InvalidArgument("gram is zero: the workload counts no cell. Leave out tables of weight zero.")
    merged = cells.merge(V)
    aim = min(tolerance, _FINE) if cells.count <= _SMALL else tolerance
    search = _searched(merged, aim, time_limit, np.ones(cells.count), xp)
    A, loss = search.best()
    lower = search.proven(merged)
    return GaussianOptimum(
        strategy=cells.lift(A),
        loss=loss,
        lower=lower,
        gap=loss / lower - 1.0,
        evaluations=search.evaluations,
        multipliers=cells.share(search.multipliers),
    )


def nonsingular_optimum(
    gram: np.ndarray,
    *,
    tolerance: float,
    time_limit: float | None = None,
    start: np.ndarray | None = None,
) -> GaussianOptimum:
    """As :func:`opt0_gaussian`, but A is always square and non-singular, and ``lower`` is not rounded down.

    For callers that hold several workloads over the same cells and may lose the row space of none.
    ``start`` (n,) are multipliers to begin from.
    """
    search = _searched(gram, tolerance, time_limit, np.ones(gram.shape[0]) if start is None else start, None)
    A, loss = search.best()
    lower = search.lower * search.scale
    return GaussianOptimum(A, loss, lower, loss / lower - 1.0, search.evaluations, search.multipliers)


def _searched(
    gram: np.ndarray, tolerance: float, time_limit: float | None, start: np.ndarray, xp: Any
) -> _Search:
    search = _Search(gram, tolerance, time_limit, xp)
    search.run(start)
    return search


class _Search(DualSearch):
    """The dual of an explicit Gram matrix; remembers where the best strategy was met."""

    def __init__(self, gram: np.ndarray, tolerance: float, time_limit: float | None, xp: Any) -> None:
        super().__init__(0.9 * tolerance, time_limit)  # the rest is for what _factor may add
        self.scale = float(np.trace(gram)) / gram.shape[0]
        self._gram = gram / self.scale
        self._arrays = _Arrays(xp, self._gram)
        self._root: np.ndarray | None = None  # F with V = F'F, once V is known to be singular
        self._fill = min(_FILL, max(tolerance / 10, 1e-9))
        self._loss = np.inf
        self._best: Any = None  # where V is not singular: what X(mu) is made of
        self._strategy = np.eye(gram.shape[0])

    def best(self) -> tuple[np.ndarray, float]:
        """The best strategy met, and its loss."""
        if self._best is not None:
            vectors, values, h, diagonal = self._best
            scale = 1 / (h * np.sqrt(diagonal))
            half = (_numpy(vectors) * values**0.25).T * scale
            X = half.T @ half
            np.fill_diagonal(X, 1.0)
            self._keep(X)
        return self._strategy, self._loss * self.scale

    def proven(self, gram: np.ndarray) -> float:
        """The lower bound, rounded down: from the eigenvalues that it came from where they are those of V itself."""
        if self.best_spectrum is None:
            return dual_bound(gram, self.multipliers)
        n = gram.shape[0]
        trace = lowered_roots(self.best_spectrum)
        slack = (4 * n + 16) * float(np.finfo(np.float64).eps)
        return trace**2 / float(self.multipliers.sum()) * self.scale * (1 - slack)

    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        if self._root is None:
            h = np.sqrt(mu)
            values, vectors = self._arrays.decompose(h)
            if values[0] > values[-1] * _singular(h.size):
                self.spectrum = values
                return self._scaled(values, vectors, h)
            self._root = _root(self._gram)
        return self._filled(mu)

    def _scaled(self, values: np.ndarray, vectors: Any, h: np.ndarray) -> tuple[float, np.ndarray]:
        """V non-singular: X(mu) with rows and columns scaled to unit diagonal, its loss without forming it."""
        roots = np.sqrt(values)
        diagonal = self._arrays.squares(vectors, roots) / (h * h)
        loss = float((self._arrays.quadratics(vectors, h * np.sqrt(diagonal)) / roots).sum())
        if loss < self.upper:
            self.upper, self._best = loss, (vectors, values, h, diagonal)
        return float(roots.sum()), diagonal

    def _filled(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """V singular: X(mu) over its largest diagonal entry, filled up to unit diagonal."""
        assert self._root is not None
        values, vectors = sl.eigh((self._root * mu) @ self._root.T, check_finite=False, overwrite_a=True)
        values = np.maximum(values, values[-1] * 1e-15)
        half = (vectors / values**0.25).T @ self._root
        diagonal = np.square(half).sum(axis=0)
        X = half.T @ half
        X *= (1 - self._fill) / diagonal.max()
        np.fill_diagonal(X, 1.0)
        loss = self._keep(X)
        if loss < self.upper:
            self.upper, self._best = loss, None
        self.spectrum = None
        return float(np.sqrt(values).sum()), diagonal

    def _keep(self, X: np.ndarray) -> float:
        """The loss of X's factor, which is kept if it is the best so far."""
        A = _factor(X, self._fill)
        loss = float(np.trace(sl.cho_solve((A, False), self._gram, check_finite=False)))
        if loss < self._loss:
            self._loss, self._strategy = loss, A
        return loss


class _Arrays:
    """V and its decompositions, in the arrays of a namespace: numpy's own, or those of an accelerator."""

    def __init__(self, xp: Any, gram: np.ndarray) -> None:
        self._xp = np if xp is None else xp
        self._gram = self._xp.asarray(gram)

    def decompose(self, h: np.ndarray) -> tuple[np.ndarray, Any]:
        """Eigenvalues and vectors of ``D^1/2 V D^1/2``, ``h = sqrt(mu)``."""
        scale = self._xp.asarray(h)
        matrix = self._gram * scale * scale[:, None]
        if self._xp is np:
            return sl.eigh(matrix, check_finite=False, overwrite_a=True)
        values, vectors = self._xp.linalg.eigh(matrix)
        return _numpy(values), vectors

    def squares(self, vectors: Any, weights: np.ndarray) -> np.ndarray:
        """``sum_k weights_k U_jk^2``, (n,)."""
        return _numpy((vectors * vectors) @ self._xp.asarray(weights))

    def quadratics(self, vectors: Any, scale: np.ndarray) -> np.ndarray:
        """``u_k' G V G u_k`` with G = diag(scale), (n,)."""
        scaled = vectors * self._xp.asarray(scale)[:, None]
        return _numpy(self._xp.sum(scaled * (self._gram @ scaled), axis=0))


def _numpy(array: Any) -> np.ndarray:
    """An array of any namespace, in main memory."""
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.from_dlpack(array, device="cpu")
    except (TypeError, BufferError, AttributeError):
        return np.asarray(array)


def _singular(n: int) -> float:
    """Eigenvalues below this share of the largest cannot be told from zero."""
    return 1e-13 * max(10, n)


def _root(gram: np.ndarray) -> np.ndarray:
    """F (r x n) of full row rank with F'F = V."""
    values, vectors = sl.eigh(gram, check_finite=False)
    if values[0] < -1e-7 * values[-1]:
        raise InvalidArgument(
            f"gram is not positive semi-definite (eigenvalues {values[0]:.3g} to {values[-1]:.3g}), "
            "so it is no Gram matrix W'W."
        )
    kept = values > values[-1] * _singular(values.size)
    return (vectors[:, kept] * np.sqrt(values[kept])).T


def _factor(X: np.ndarray, fill: float) -> np.ndarray:
    """Upper triangular A, A'A = X up to a mixture with the identity that keeps pivots above sqrt(fill)."""
    for share in (0.0, fill, 1e-3, 1.0):
        try:
            A = sl.cholesky((1 - share) * X + share * np.eye(X.shape[0]), check_finite=False)
        except sl.LinAlgError:
            continue
        if share or A.diagonal().min() ** 2 >= fill:
            break
    return A / np.sqrt(np.square(A).sum(axis=0).max())
