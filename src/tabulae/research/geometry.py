"""The sensitivity hull of neighbours' differences: the least ellipsoid around it, and noise from its gauge.

For points v_j (j = 1..P) in R^d that span it, weights u on the simplex and ``V(u) = sum_j u_j v_j v_j'``, put
``kappa = max_j v_j' V^-1 v_j``. The ellipsoid ``{z : z' V^-1 z <= kappa}`` contains conv{+-v_j}. Any other,
``{z : z' M z <= 1}``, has ``tr(M V) <= 1``, so ``det(M V) <= d^-d``: its squared volume is at least ``d^d det V``,
and this one's, ``kappa^d det V``, exceeds the least by at most the factor ``(kappa/d)^d``. At the optimum kappa = d
(Kiefer and Wolfowitz).

K-norm noise (Hardt and Talwar 2010) has the density proportional to ``exp(-eps ||z||_K)``: z = r u with r from
Gamma(d + 1, 1/eps) and u uniform in K. Points of K are told by a linear programme; a uniform point is approached by
hit-and-run, a walk that draws each next point uniformly from the chord in a random direction.

How fast the walk mixes: within total variation distance t of uniform after ``O*(d^3 log 1/t)`` steps from a warm start
in a body that is well rounded (Lovasz and Vempala 2006), with a constant near 10^10 that says nothing about a
walk that anybody runs. Privacy with an approximate sampler needs that distance (pure privacy is lost; delta grows by
``(1 + e^eps) t``), and it is argued, not proven, for the steps taken here. Hence: research only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from ..errors import InvalidArgument, Unsupported

_MULTIPLICATIVE = 1000  # steps up to which a tolerance is reached by multiplicative steps alone
_FIRST = 100  # multiplicative steps before those of one weight at a time
_KEPT = 1e-4
_MOST = 100_000
_FRESH = 50  # rank-one steps between two exact evaluations


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """``{z : z' shape^-1 z <= 1}`` around the points, and the proof of how near it is to the least.

    ``gap = kappa / d - 1``, with the multipliers ``weights`` (P,): its volume is at most ``(1 + gap)^(d/2)`` times the
    least ellipsoid's.
    """

    shape: np.ndarray
    weights: np.ndarray
    gap: float


def least_ellipsoid(points: np.ndarray, *, tolerance: float = 1e-6) -> Ellipsoid:
    """The ellipsoid of least volume around ``conv{+-v_j}``, v_j the columns of ``points`` (d, P), which span R^d.

    Ascends ``log det V(u)`` by multiplicative steps, ``u_j <- u_j d_j(u) / d`` with ``d_j(u) = v_j' V(u)^-1 v_j``. The
    average of T of them from equal weights has ``kappa / d <= P^(1/T)``: log d_j is convex in u, and the mean of
    ``log d_j(u_t) = log d + log u_(t+1),j - log u_t,j`` is at most ``log d + (log P) / T``. They favour no coordinates
    and no order of points: the ellipsoid turns with the points. A tolerance that 1,000 steps do not prove (below about
    1e-2) takes Khachiyan's coordinate steps after the first hundred, towards the point furthest out, with steps away
    from the point nearest in that has weight (Wolfe and Atwood): they converge linearly, but which of equal points
    comes first is up to rounding. ``tolerance`` is of ``kappa / d - 1``; what was reached is in ``.gap``, and true in
    any case.

    Reference: Khachiyan (1996), "Rounding of polytopes in the real number model of computation"; Todd and Yildirim
    (2007), "On Khachiyan's algorithm for the computation of minimum-volume enclosing ellipsoids".

    >>> ball = least_ellipsoid(np.eye(3))  # around the cross-polytope
    >>> np.allclose(ball.shape, np.eye(3)), ball.gap < 1e-6
    (True, True)
    """
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance is {tolerance}: the excess cannot be asked to be zero; try 1e-6")
    d, count = points.shape
    values = np.linalg.svd(points, compute_uv=False)
    if count < d or values[-1] <= 1e-9 * values[0]:
        raise InvalidArgument(
            f"the points do not span {d} dimensions: give their coordinates in the subspace that they span"
        )
    weights, average = np.full(count, 1.0 / count), np.zeros(count)
    proven = max(1, math.ceil(math.log(count) / math.log1p(tolerance)))
    steps = proven if proven <= _MULTIPLICATIVE else _FIRST
    for _ in range(steps):
        distances = _distances(points, weights)
        if distances.max() <= d * (1 + tolerance):
            break
        average += weights / steps
        weights = weights * distances / d
        weights /= weights.sum()
    else:  # what hardly counts would only be dropped one by one; a point that matters comes back
        weights = average if proven == steps else np.where(weights > _KEPT * weights.max(), weights, 0.0)
        weights /= weights.sum()
    for _ in range(_MOST // _FRESH):
        distances = _distances(points, weights)
        if distances.max() <= d * (1 + tolerance):
            break
        weights = _coordinate_steps(points, weights)
    kappa = float(_distances(points, weights).max())
    shape = kappa * (points * weights) @ points.T
    return Ellipsoid((shape + shape.T) / 2, weights, kappa / d - 1.0)


def _distances(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``v_j' V(u)^-1 v_j``, (P,)."""
    factor = np.linalg.cholesky((points * weights) @ points.T)
    return np.square(np.linalg.solve(factor, points)).sum(axis=0)


def _coordinate_steps(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Steps of exact length along one weight at a time, by rank-one updates of V^-1."""
    d = len(points)
    inverse = np.linalg.inv((points * weights) @ points.T)
    distances = np.einsum("ij,ij->j", points, inverse @ points)
    weights = weights.copy()
    for _ in range(_FRESH):
        live = np.flatnonzero(weights > 0)
        far, near = int(distances.argmax()), int(live[distances[live].argmin()])
        j = far if distances[far] - d >= d - distances[near] else near
        kappa = float(distances[j])
        if abs(kappa - 1.0) < 1e-12:  # V would become singular without this point
            break
        step = (kappa - d) / (d * (kappa - 1.0))
        if step < 0 or kappa < 1.0:
            step = max(step if kappa > 1.0 else -np.inf, -weights[j] / (1 - weights[j]))
        direction = inverse @ points[:, j]
        ratio = step / (1 - step)
        inverse = (inverse - ratio / (1 + ratio * kappa) * np.outer(direction, direction)) / (1 - step)
        along = direction @ points
        distances = (distances - ratio / (1 + ratio * kappa) * along**2) / (1 - step)
        weights *= 1 - step
        weights[j] = max(weights[j] + step, 0.0)
    return weights / weights.sum()


MOST_DIMENSIONS = 8
"""Dimensions up to which a hull's facets are listed, for its second moments."""

_MOST_FACETS = 5e8
_STEPS = 10  # times d^2 steps of the walk between two draws
_TOUCHING = 1e-9


@dataclass(frozen=True, eq=False)
class HitAndRun:
    """K-norm noise for the hull of ``points`` (d, P) and their negatives, by a random walk. Research only.

    ``epsilon`` is that of pure differential privacy if the walk's points were uniform.

    >>> walk = HitAndRun(np.eye(2), epsilon=1.0)  # the cross-polytope: two Laplace variables
    >>> walk.gauge(np.array([0.5, -0.25]))
    0.75
    >>> np.round(walk.noise_covariance(), 6).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    points: np.ndarray
    epsilon: float

    @property
    def dimensions(self) -> int:
        """d."""
        return len(self.points)

    @cached_property
    def _both(self) -> np.ndarray:
        return np.hstack([self.points, -self.points])

    def gauge(self, z: np.ndarray) -> float:
        """``||z||_K = min {s : z in s K}``, by a linear programme: the least ``sum lambda`` with ``V lambda = z``."""
        found = linprog(np.ones(self._both.shape[1]), A_eq=self._both, b_eq=z, method="highs")
        return float(found.fun)

    def chord(self, u: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
        """The least and the largest t with ``u + t direction`` in K, u in K."""
        count = self._both.shape[1]
        equal = np.hstack([self._both, -direction[:, None]])
        inside = np.append(np.ones(count), 0.0)[None]
        bounds = [(0, None)] * count + [(None, None)]
        ends = []
        for sign in (1.0, -1.0):
            goal = np.append(np.zeros(count), sign)
            found = linprog(goal, A_ub=inside, b_ub=[1.0], A_eq=equal, b_eq=u, bounds=bounds, method="highs")
            ends.append(sign * float(found.fun))
        return ends[0], ends[1]

    def uniform(self, count: int, generator: np.random.Generator, *, steps: int | None = None) -> np.ndarray:
        """``count`` points (count, d) near uniform in K, ``steps`` (10 d^2) steps of one walk apart; it starts at 0.

        Directions are drawn in the coordinates in which the least ellipsoid around K is a ball, so that K holds a
        ball of ``1/sqrt(d)`` of it.
        """
        walk = _STEPS * self.dimensions**2 if steps is None else steps
        u = np.zeros(self.dimensions)
        out = np.empty((count, self.dimensions))
        for i in range(count):
            for _ in range(walk):
                direction = self._round @ generator.standard_normal(self.dimensions)
                low, high = self.chord(u, direction)
                u = u + generator.uniform(low, high) * direction * (1 - _TOUCHING)
            out[i] = u
        return out

    def noise(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Draws of K-norm noise, (count, d)."""
        radius = generator.gamma(self.dimensions + 1, 1 / self.epsilon, size=count)
        return radius[:, None] * self.uniform(count, generator)

    @cached_property
    def _round(self) -> np.ndarray:
        return np.linalg.cholesky(least_ellipsoid(self.points, tolerance=1e-2).shape)

    def second_moment(self) -> np.ndarray:
        """``E u u'`` for u uniform in K, (d, d), exactly (to rounding) from its facets.

        K is the union of the simplices between 0 and its facets; over one with the vertices 0, v_1, ..., v_d,
        ``E u u' = (sum_i v_i v_i' + s s') / ((d + 1)(d + 2))`` with ``s = sum_i v_i``.

        Raises :class:`~tabulae.errors.Unsupported` above 8 dimensions, and for so many points that their facets, of
        the order of P^(d/2), may be too many.
        """
        d, count = self.dimensions, self._both.shape[1]
        if d > MOST_DIMENSIONS or count ** (d // 2) > _MOST_FACETS:
            raise Unsupported(
                f"the hull of {count:,} points has {d} dimensions: too many facets to list for its error. Choose the "
                "projected or extended Laplace mechanism"
            )
        if d == 1:
            return np.array([[np.square(self.points).max() / 3]])
        facets = self._both.T[ConvexHull(self._both.T).simplices]  # (f, d, d): a vertex a row
        volume = np.abs(np.linalg.det(facets))
        sums = facets.sum(axis=1)
        moments = np.einsum("fij,fik->fjk", facets, facets) + np.einsum("fj,fk->fjk", sums, sums)
        return np.einsum("f,fjk->jk", volume / volume.sum(), moments) / ((d + 1) * (d + 2))

    def noise_covariance(self) -> np.ndarray:
        """``E r^2 E u u' = (d + 1)(d + 2) / eps^2 E u u'``, (d, d)."""
        d = self.dimensions
        return (d + 1) * (d + 2) / self.epsilon**2 * self.second_moment()
