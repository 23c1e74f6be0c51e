"""Weights by Newton's method: few queries, or queries whose costs depend on the weights of the others.

    minimise  f(w)    subject to    B'w <= 1,   w >= 0,

for a convex f that is homogeneous of degree -a, such as ``sum_i c_i w_i^-a`` (Program 1) or ``tr V X^-1`` with
``X = Q' diag(w) Q`` (a = 1). With g = -f', slacks ``s = 1 - B'w``, multipliers mu of the cells and z of ``w >= 0``, a
step solves ``g = B mu - z``, ``mu s = t``, ``z w = t`` to first order: one (k, k) system, of matrix
``H + diag(z / w) + B diag(mu / s) B'`` with H the Hessian of f. The target t is a tenth of the present mean of mu s and
z w, and is kept above the violation of the first equation; a step is halved until the residual falls. Ten to thirty
steps reach a gap of 1e-6 whatever the workload, where first-order methods crawl once queries compete for the same
cells; the price is k^2 n multiplications a step.

The proof of the gap uses no property of the path. ``h = f^(-1/a)`` is concave and homogeneous of degree 1, hence
``h(v) <= h'(w) v`` for all v >= 0; with ``g = -f'(w)`` and any mu >= 0 such that ``B mu >= g``, a feasible v has
``g'v <= mu'B'v <= sum mu``, that is

    f(v) >= f(w) (a f(w) / sum mu)^a.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from .query_weighting import QueryWeights

Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]
"""w (k,) to f(w), -f'(w) (k,) and f''(w) (k, k); the matrix is the caller's to overwrite."""

_STEPS, _HALVINGS = 100, 20
_BACK = 0.99  # share of the way to the boundary
_CENTRE = 0.1  # target of a step, relative to the present mean of mu s and z w
_ENOUGH = 0.01  # decrease of the residual that is asked for, relative to the step


@dataclass(frozen=True)
class InteriorPoint:
    """The best w (k,) met, with ``max B'w = 1``, its loss, and the best bound with its multipliers (n,).

    ``proven_at`` is the w whose gradient the multipliers exceed.
    """

    w: np.ndarray
    loss: float
    lower: float
    multipliers: np.ndarray
    proven_at: np.ndarray
    steps: int


def interior_point(
    norms: np.ndarray, objective: Objective, power: int, tolerance: float, time_limit: float | None = None
) -> InteriorPoint:
    """Minimise f over ``w >= 0`` with ``B'w <= 1`` to a proven relative gap.

    Arguments:
        norms: B (k, n), non-negative, no zero row.
        objective: f with gradient and Hessian, positive for positive w.
        power: a, the degree of f is -a.
        tolerance: relative gap at which to stop; ``time_limit`` in seconds stops earlier. The gap of what is returned
            is true in each case. Equal weights are among the points tried.

    Reference: Boyd and Vandenberghe, "Convex Optimization", section 11.7.

    >>> B, c = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([3.0, 3.0])
    >>> best = interior_point(B, lambda w: (float((c / w).sum()), c / w**2, np.diag(2 * c / w**3)), 1, 1e-8)
    >>> best.w.round(6).tolist(), round(best.loss, 6)
    ([0.666667, 0.666667], 9.0)
    """
    path = _Path(norms, objective, power)
    deadline = np.inf if time_limit is None else time.monotonic() + time_limit
    steps = 0
    while path.upper > path.lower * (1 + tolerance) and steps < _STEPS and time.monotonic() < deadline:
        if not path.step():
            break
        steps += 1
    lower = min(path.lower, path.upper)  # equal but for rounding at the optimum
    return InteriorPoint(path.best, path.upper, lower, path.proof, path.proven_at, steps)


def weigh_few(
    norms: np.ndarray, costs: np.ndarray, *, p: int, tolerance: float, time_limit: float | None = None
) -> QueryWeights:
    """Program 1 for few queries, or groups of queries, over many cells, all with a cost.

    Arguments as :func:`~.query_weighting.norm_weighting` has them, which is better for many queries.

    >>> weigh_few(np.array([[1.0, 0.5], [0.5, 1.0]]), np.ones(2), p=1, tolerance=1e-8).weights.round(6).tolist()
    [0.666667, 0.666667]
    """
    a, scale = 2 // p, float(costs.max())
    c = costs / scale

    def objective(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        each = c * w**-a
        return float(each.sum()), a * each / w, np.diag(a * (a + 1) * each / w**2)

    found = interior_point(norms, objective, a, tolerance, time_limit)
    weights = found.w ** (1 / p)
    return QueryWeights(weights, found.loss * scale, found.lower * scale, found.multipliers, found.steps)


class _Path:
    """The point, its multipliers, and the best bounds met."""

    def __init__(self, norms: np.ndarray, objective: Objective, power: int) -> None:
        self._norms, self._objective, self._power = norms, objective, power
        k, n = norms.shape
        self._w = np.full(k, 0.5 / norms.sum(axis=0).max())
        self._value, self._g, self._hessian = objective(self._w)
        self._slack = 1.0 - self._w @ norms
        self._mu = np.full(n, 2 * power * self._value / n)
        offered = norms @ self._mu
        self._z = np.maximum(offered - self._g, 0.1 * offered.mean())
        self.upper, self.lower = np.inf, 0.0
        self.best, self.proof, self.proven_at = self._w, self._mu, self._w
        self._keep()

    def _keep(self) -> None:
        """Note what the point reaches and its multipliers prove."""
        largest, a = 1.0 - float(self._slack.min()), self._power
        if self._value * largest**a < self.upper:
            self.upper, self.best = self._value * largest**a, self._w / largest
        mu = self._mu * float((self._g / (self._norms @ self._mu)).max())
        lower = self._value * (a * self._value / float(mu.sum())) ** a
        if lower > self.lower:
            self.lower, self.proof, self.proven_at = lower, mu, self._w

    def step(self) -> bool:
        """One step; False where the numbers allow none."""
        w, z, mu, s = self._w, self._z, self._mu, self._slack
        system = self._hessian
        system += (self._norms * (mu / s)) @ self._norms.T
        system[np.diag_indices_from(system)] += z / w
        violation = float(np.abs(w * (self._g - self._norms @ mu + z)).sum())
        t = _CENTRE * max(float(mu @ s + z @ w), violation) / (w.size + s.size)
        try:
            factor = scipy.linalg.cho_factor(system, overwrite_a=True)
        except (scipy.linalg.LinAlgError, ValueError):
            return False
        dw = scipy.linalg.cho_solve(factor, self._g - self._norms @ (t / s) + t / w)
        ds = -(dw @ self._norms)
        dmu, dz = (t - mu * ds) / s - mu, (t - z * dw) / w - z
        length = min(_length(x, dx) for x, dx in ((w, dw), (s, ds), (mu, dmu), (z, dz)))
        before = self._residual(w, t)
        for _ in range(_HALVINGS):
            self._w, self._mu, self._z = w + length * dw, mu + length * dmu, z + length * dz
            self._slack = 1.0 - self._w @ self._norms
            try:
                self._value, self._g, self._hessian = self._objective(self._w)
            except scipy.linalg.LinAlgError:
                return False
            if self._slack.min() <= 0 or not self._value > 0:
                return False
            self._keep()
            if self._residual(w, t) <= (1 - _ENOUGH * length) * before:
                return True
            length /= 2
        return False

    def _residual(self, unit: np.ndarray, t: float) -> float:
        """How far the three equations are from holding; the first in units of the second and third."""
        first = unit * (self._g - self._norms @ self._mu + self._z)
        both = np.concatenate([first, self._mu * self._slack - t, self._z * self._w - t])
        return float(np.linalg.norm(both))


def _length(x: np.ndarray, dx: np.ndarray) -> float:
    """How far to go along dx, at most 1, to keep x positive."""
    shrink = float((-dx / x).max())
    return 1.0 if shrink <= _BACK else _BACK / shrink
