"""OPT_0 for Gaussian noise: the optimal strategy of an explicit workload, with proof of its optimality.

The problem is convex: ``min tr[X^-1 V]`` subject to ``diag X <= 1``, where V = W'W is the workload's Gram
matrix and X = A'A the strategy's. Its dual has one multiplier per cell, D = diag(mu):

    max_{mu >= 0}  t(mu)^2 / sum mu,        t(mu) = tr (D^1/2 V D^1/2)^1/2,

and one eigendecomposition gives t, its gradient and ``X(mu) = D^-1/2 (D^1/2 V D^1/2)^1/2 D^-1/2``; the
optimum is the X(mu) whose diagonal is 1 wherever mu > 0. Hence the method: a few multiplicative steps
``mu <- mu * X_jj^2`` (one is enough for diagonal V), then L-BFGS on sqrt(mu), which unlike log mu lets
multipliers vanish and come back.

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

import time
from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ..errors import InvalidArgument
from .bounds import dual_bound
from .gram import DistinctCells, checked_gram

_FILL = 1e-5  # share of the identity mixed into a singular X
_FLOOR = 1e-13  # smallest multiplier, relative to the largest
_MULTIPLICATIVE, _ITERATIONS, _ROUNDS = 3, 150, 4
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
    gram: np.ndarray, *, tolerance: float = 1e-3, time_limit: float | None = None
) -> GaussianOptimum:
    """The strategy of least total squared error under Gaussian noise, within a proven ``tolerance``.

    Minimises ``tr[(A'A)^+ V]`` over all A whose columns have L2 norm at most 1 (add/remove neighbours).

    ``gram`` is V = W'W (n x n, positive semi-definite, any rank), in squared queries. The search stops at a
    gap of ``tolerance`` (up to 512 cells: of 1e-5, if that is less), when it cannot improve, or after
    ``time_limit`` seconds; the gap reported is true in each case.

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
    found = nonsingular_optimum(merged, tolerance=aim, time_limit=time_limit)
    lower = dual_bound(merged, found.multipliers)
    return GaussianOptimum(
        strategy=cells.lift(found.strategy),
        loss=found.loss,
        lower=lower,
        gap=found.loss / lower - 1.0,
        evaluations=found.evaluations,
        multipliers=cells.share(found.multipliers),
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
    search = _Search(gram, tolerance, None if time_limit is None else time.monotonic() + time_limit)
    mu = np.ones(gram.shape[0]) if start is None else start
    try:
        for _ in range(_ROUNDS):
            before = search.gap
            for _ in range(_MULTIPLICATIVE):
                mu = search.multiply(mu)
            result = minimize(
                search.objective, np.sqrt(mu), jac=True, method="L-BFGS-B",
                options={"maxiter": _ITERATIONS, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-12},
            )  # fmt: skip
            mu = result.x**2
            if search.gap > 0.9 * before:
                break
    except _Reached:
        pass
    A, loss = search.best
    return GaussianOptimum(A, loss, search.lower, search.gap, search.evaluations, search.multipliers)


class _Reached(Exception):
    """The gap is within tolerance, or time is up."""


@dataclass(frozen=True)
class _Point:
    """X(mu) = half' half with its diagonal, and t(mu)."""

    half: np.ndarray
    diagonal: np.ndarray
    trace: float


class _Search:
    """The dual seen by an optimiser of log mu; keeps the best bound and the best strategy on the way."""

    def __init__(self, gram: np.ndarray, tolerance: float, deadline: float | None) -> None:
        self.scale = float(np.trace(gram)) / gram.shape[0]
        self.gram = gram / self.scale
        self.root: np.ndarray | None = None  # F with V = F'F, once V is known to be singular
        self.tolerance, self.deadline = tolerance, deadline
        self.fill = min(_FILL, max(tolerance / 10, 1e-9))
        self.evaluations = 0
        self._lower, self._upper = 0.0, np.inf
        self._strategy = np.eye(gram.shape[0])
        self.multipliers = np.ones(gram.shape[0])

    @property
    def gap(self) -> float:
        return self._upper / self._lower - 1.0 if self._lower else np.inf

    @property
    def lower(self) -> float:
        return self._lower * self.scale

    @property
    def best(self) -> tuple[np.ndarray, float]:
        return self._strategy, self._upper * self.scale

    def multiply(self, mu: np.ndarray) -> np.ndarray:
        """One multiplicative step ``mu <- mu * X_jj^2``: towards unit diagonals."""
        mu = np.maximum(mu / mu.max(), _FLOOR)
        point = self.visit(mu)
        excess = point.diagonal * mu.sum() / (point.diagonal @ mu)
        return mu * np.maximum(excess, 0.01) ** 2

    def objective(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """``-log(t^2 / sum mu)`` at mu = w^2, and its gradient in w."""
        mu = np.maximum(w * w, _FLOOR * np.square(w).max())
        point = self.visit(mu)
        gradient = point.diagonal / point.trace - 1 / mu.sum()
        return np.log(mu.sum()) - 2 * np.log(point.trace), -2 * w * gradient

    def visit(self, mu: np.ndarray) -> _Point:
        point = self._decompose(mu)
        self.evaluations += 1
        lower = point.trace**2 / mu.sum()
        if lower > self._lower:
            self._lower, self.multipliers = lower, mu
        self._try(point)
        if self.gap <= self.tolerance or (self.deadline is not None and time.monotonic() > self.deadline):
            raise _Reached
        return point

    def _decompose(self, mu: np.ndarray) -> _Point:
        h = np.sqrt(mu)
        if self.root is None:
            values, vectors = sl.eigh(self.gram * h * h[:, None], check_finite=False, overwrite_a=True)
            if values[0] > values[-1] * _singular(h.size):
                half = (vectors * values**0.25).T / h
                return _Point(half, np.square(half).sum(axis=0), float(np.sqrt(values).sum()))
            self.root = _root(self.gram)
        values, vectors = sl.eigh((self.root * mu) @ self.root.T, check_finite=False, overwrite_a=True)
        values = np.maximum(values, values[-1] * 1e-15)
        half = (vectors / values**0.25).T @ self.root
        return _Point(half, np.square(half).sum(axis=0), float(np.sqrt(values).sum()))

    def _try(self, point: _Point) -> None:
        """Make X(mu) feasible and keep it if it is the best so far."""
        X = point.half.T @ point.half
        if self.root is None:
            scale = 1 / np.sqrt(point.diagonal)
            X *= scale * scale[:, None]
        else:
            X *= (1 - self.fill) / point.diagonal.max()
        np.fill_diagonal(X, 1.0)
        A = _factor(X, self.fill)
        loss = float(np.trace(sl.cho_solve((A, False), self.gram, check_finite=False)))
        if loss < self._upper:
            self._upper, self._strategy = loss, A


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
