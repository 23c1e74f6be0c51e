"""COA: the optimal strategy for Gaussian noise by a Newton method on the strategy's Gram matrix.

    minimise  F(X) = tr[X^-1 V]    subject to    X positive definite,    diag X = 1,

V = W'W (n, n), X = A'A. With P = X^-1 and ``G = P V P`` the gradient is -G and the second derivative in direction D
``2 tr[P D G D]``, so the Newton direction solves

    offdiag(P D G + G D P) = offdiag(G)    over symmetric D of zero diagonal.

Conjugate gradients solve it inexactly at two products of n x n matrices a step, with the Hessian's diagonal
``P_ii G_jj + P_jj G_ii`` as preconditioner; the step is halved until X has a Cholesky factor and F falls enough. Where
V is singular the optimum lies on the boundary of the cone: V + theta I is solved instead, for theta that falls from
stage to stage, each from where the last ended, as the authors' homotopy does.

At the optimum G is diagonal, and its diagonal holds the multipliers of the dual (:mod:`tabulae.strategy.dual_search`).
Before that it is still a point of the dual, whose bound says how far from the optimum the result is, whatever ended
the search.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from ...domain import Workload
from ...errors import InvalidArgument, Unsupported
from ..bounds import dual_bound
from ..explicit_strategy import explicit_strategy
from ..gram import (
    DistinctCells,
    checked_gram,
    is_definite,
)
from ..strategy import Strategy

if TYPE_CHECKING:
    from ..settings import Settings

_THETAS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # relative to the mean diagonal entry of V
_NEWTON, _CONJUGATE = 200, 40  # most Newton iterations of all stages, most conjugate gradient steps in each
_BETWEEN = 1e-3  # decrement, relative to F, that ends a stage before the last
_FORCING = 0.25  # largest relative residual of the Newton system
_ARMIJO, _SHORTEST = 0.1, 1e-8


@dataclass(frozen=True)
class CoaOptimum:
    """Where COA ended.

    ``strategy`` is A (r, n), upper triangular over distinct cells, columns of L2 norm 1; ``loss = tr[(A'A)^-1 V]`` at
    unit noise, and no strategy has less than ``lower``. ``residual`` is the norm of the off-diagonal part of the last
    gradient ``X^-1 (V + theta I) X^-1`` relative to the whole, 0 at the optimum. ``objectives`` are
    ``tr[X^-1 (V + theta I)]`` before each Newton iteration, in units of V's mean diagonal entry; ``products`` counts
    conjugate gradient steps. ``converged`` is false where a limit of iterations or time, or a step that rounding
    spoilt, ended the search.
    """

    strategy: np.ndarray
    loss: float
    lower: float
    residual: float
    objectives: tuple[float, ...]
    products: int
    converged: bool

    @property
    def gap(self) -> float:
        return self.loss / self.lower - 1.0


def coa(
    gram: np.ndarray, *, tolerance: float = 1e-6, iterations: int = _NEWTON, time_limit: float | None = None
) -> CoaOptimum:
    """The strategy of least total squared error under Gaussian noise, by COA.

    Arguments:
        gram: V (n, n), of any rank.
        tolerance: of half the squared Newton decrement, relative to the objective: about the relative gap at the end.
        iterations: most Newton iterations.
        time_limit: in seconds.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix or is zero.

    Reference: Yuan, Yang, Zhang, Hao, "Convex Optimization for Linear Query Processing under Approximate Differential
    Privacy", KDD 2016. The preconditioner and the accuracy of the Newton system are this project's.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells
    >>> best = coa(W.T @ W)
    >>> round(best.loss, 4), best.gap < 1e-5, best.converged
    (4.6079, True, True)
    """
    V = checked_gram(gram)
    if not tolerance > 0:
        raise InvalidArgument(
            f"tolerance is {tolerance}: the decrement cannot be asked to reach zero; try 1e-6"
        )
    if not V.any():
        raise InvalidArgument("gram is zero: the workload counts no cell. Leave out tables of weight zero")
    largest = float(V.diagonal().max())
    if not (largest > 0 and is_definite(V / largest)):
        raise InvalidArgument("gram is not positive semi-definite, so it is no Gram matrix W'W")
    cells = DistinctCells.of([V])
    merged = cells.merge(V) / largest
    mean = float(merged.diagonal().mean())
    merged, scale = merged / mean, mean * largest
    newton = _Newton(merged, iterations, time_limit)
    converged = all(newton.run(theta, _BETWEEN) for theta in _THETAS[:-1]) and newton.run(
        _THETAS[-1], tolerance
    )
    gradient = newton.gradient
    return CoaOptimum(
        strategy=cells.lift(scipy.linalg.cholesky(newton.X, check_finite=False)),
        loss=float(np.vdot(newton.inverse, merged)) * scale,
        lower=dual_bound(merged, gradient.diagonal()) * scale,
        residual=float(np.linalg.norm(_off_diagonal(gradient)) / np.linalg.norm(gradient)),
        objectives=tuple(newton.objectives),
        products=newton.products,
        converged=converged,
    )


def coa_strategy(workload: Workload, settings: Settings) -> Strategy:
    """COA over the cells that the tables tell apart, for Gaussian noise.

    Raises :class:`~tabulae.errors.Unsupported` under Laplace noise.
    """
    if settings.noise == "laplace":
        raise Unsupported(
            "coa bounds the L2 norm of columns, which is what Gaussian noise is paid for; under Laplace noise choose "
            '"opt0" or "low-rank", which bound the L1 norm'
        )

    found: list[CoaOptimum] = []

    def matrix(gram: np.ndarray) -> np.ndarray:
        found.append(coa(gram, tolerance=settings.tolerance / 100, time_limit=settings.remaining()))
        return found[0].strategy

    strategy = explicit_strategy(workload, settings, "coa", matrix)
    proven = settings.neighbours == "add-remove"  # the bound is about columns, not about pairs
    return replace(strategy, lower=found[0].lower if proven else None)


class _Newton:
    """X and its inverse, from the identity on; limits are those of all stages together."""

    def __init__(self, gram: np.ndarray, iterations: int, time_limit: float | None) -> None:
        self._gram = gram
        self._left = iterations
        self._deadline = np.inf if time_limit is None else time.monotonic() + time_limit
        self.X, self.inverse = np.eye(len(gram)), np.eye(len(gram))
        self.gradient = gram
        self.objectives: list[float] = []
        self.products = 0

    def run(self, theta: float, tolerance: float) -> bool:
        """One stage: V + theta I, until the decrement is small; False where something else ended it."""
        V = self._gram + theta * np.eye(len(self._gram))
        while self._left > 0 and time.monotonic() < self._deadline:
            self._left -= 1
            objective = float(np.vdot(self.inverse, V))
            self.objectives.append(objective)
            self.gradient = self.inverse @ V @ self.inverse
            direction = self._direction(self.gradient)
            slope = float(np.vdot(self.gradient, direction))  # F falls by so much per unit of step
            if slope <= 2 * tolerance * objective:
                return True
            if not self._moved(V, direction, objective, slope):
                return False
        return False

    def _direction(self, gradient: np.ndarray) -> np.ndarray:
        """D (n, n) with zero diagonal: the Newton system, by preconditioned conjugate gradients from 0."""
        diagonal = np.multiply.outer(self.inverse.diagonal(), gradient.diagonal())
        diagonal += diagonal.T
        direction, residual = np.zeros_like(gradient), _off_diagonal(gradient)
        aim = min(_FORCING, float(np.linalg.norm(residual) / np.linalg.norm(gradient)))
        search = residual / diagonal
        size = first = float(np.vdot(residual, search))
        for _ in range(_CONJUGATE):
            if size <= aim**2 * first or time.monotonic() > self._deadline:
                break
            half = self.inverse @ search @ gradient
            image = _off_diagonal(half + half.T)
            self.products += 1
            length = size / float(np.vdot(search, image))
            direction += length * search
            residual -= length * image
            scaled = residual / diagonal
            before, size = size, float(np.vdot(residual, scaled))
            search = scaled + size / before * search
        return direction

    def _moved(self, V: np.ndarray, direction: np.ndarray, objective: float, slope: float) -> bool:
        """Armijo's rule from a full step on; whether there was a step that lowers F."""
        step = 1.0
        while step > _SHORTEST:
            X = self.X + step * direction
            inverse = _inverse(X)
            if inverse is not None and np.vdot(inverse, V) <= objective - _ARMIJO * step * slope:
                self.X, self.inverse = X, inverse
                return True
            step /= 2
        return False


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    out = matrix.copy()
    np.fill_diagonal(out, 0.0)
    return out


def _inverse(X: np.ndarray) -> np.ndarray | None:
    """X^-1 through Cholesky's factor; None where X is not positive definite."""
    try:
        factor = scipy.linalg.cholesky(X, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    (potri,) = scipy.linalg.get_lapack_funcs(("potri",), (factor,))
    inverse, _ = potri(factor, lower=True)
    return np.tril(inverse) + np.tril(inverse, -1).T
