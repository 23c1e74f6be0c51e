"""Ascent on the dual of the optimal strategy problem, whatever form the evaluation of a point takes.

    max_{mu >= 0}  t(mu)^2 / sum mu,        t(mu) = tr (D^1/2 V D^1/2)^1/2,        D = diag(mu),

has the gradient ``X_jj / t - 1 / sum mu`` of its logarithm (halved), with X(mu) the strategy's Gram matrix at mu;
the optimum is the X(mu) whose diagonal is 1 wherever mu > 0. Hence the method: a few multiplicative steps
``mu <- mu * X_jj^2`` (one is enough for diagonal V), then L-BFGS on sqrt(mu), which unlike log mu lets
multipliers vanish and come back.

The weighting of given queries (:mod:`.eigen.query_weighting`) has a dual of the same kind, ``t^(1+a) / (sum mu)^a``
with ``a = 1`` for Gaussian and ``a = 2`` for Laplace noise; its gradient differs by a factor alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

import numpy as np
from scipy.optimize import minimize

FLOOR = 1e-13  # smallest multiplier, relative to the largest
_MULTIPLICATIVE, _ITERATIONS, _ROUNDS = 3, 150, 4


class _Reached(Exception):
    """The gap is within tolerance, or time is up."""


class DualSearch(ABC):
    """Keeps the best lower and upper bound that were met on the way; a subclass evaluates a point.

    ``tolerance`` is the relative gap at which the search stops; ``time_limit`` is in seconds; ``most`` limits the
    number of evaluations. ``evaluate`` may leave the eigenvalues it met in ``spectrum``; those of the best lower
    bound are kept. ``power`` is a, the exponent of the norm in the loss.
    """

    def __init__(
        self, tolerance: float, time_limit: float | None, most: int | None = None, power: int = 1
    ) -> None:
        self.tolerance = tolerance
        self._power = power
        self._deadline = None if time_limit is None else time.monotonic() + time_limit
        self._most = most
        self.evaluations = 0
        self.lower, self.upper = 0.0, np.inf
        self.multipliers = np.ones(0)
        self.spectrum: np.ndarray | None = None
        self.best_spectrum: np.ndarray | None = None

    @abstractmethod
    def evaluate(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        """t(mu) and the diagonal of X(mu) (its columns' norms); lowers ``upper`` where X(mu), made feasible, does."""

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1.0 if self.lower else np.inf

    def run(self, mu: np.ndarray) -> None:
        """Search from ``mu`` until the gap is reached, time is up, or nothing improves."""
        try:
            for _ in range(_ROUNDS):
                before = self.gap
                for _ in range(_MULTIPLICATIVE):
                    mu = self._multiply(mu)
                result = minimize(
                    self._objective, np.sqrt(mu), jac=True, method="L-BFGS-B",
                    options={"maxiter": _ITERATIONS, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-12},
                )  # fmt: skip
                mu = result.x**2
                if self.gap > 0.9 * before:
                    break
        except _Reached:
            pass

    def _multiply(self, mu: np.ndarray) -> np.ndarray:
        """One multiplicative step ``mu <- mu * X_jj^2``: towards unit diagonals."""
        mu = np.maximum(mu / mu.max(), FLOOR)
        _, diagonal = self._visit(mu)
        excess = diagonal * mu.sum() / (diagonal @ mu)
        return mu * np.maximum(excess, 0.01) ** 2

    def _objective(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """``-log(t^(1+a) / (sum mu)^a)`` at mu = w^2, and its gradient in w."""
        mu = np.maximum(w * w, FLOOR * np.square(w).max())
        trace, diagonal = self._visit(mu)
        a = self._power
        value = a * np.log(mu.sum()) - (1 + a) * np.log(trace)
        return value, -2 * a * w * (diagonal / trace - 1 / mu.sum())

    def _visit(self, mu: np.ndarray) -> tuple[float, np.ndarray]:
        trace, diagonal = self.evaluate(mu)
        self.evaluations += 1
        lower = trace * (trace / float(mu.sum())) ** self._power
        if lower > self.lower:
            self.lower, self.multipliers, self.best_spectrum = lower, mu, self.spectrum
        late = self._deadline is not None and time.monotonic() > self._deadline
        if self.gap <= self.tolerance or late or self.evaluations == self._most:
            raise _Reached
        return trace, diagonal
