"""The sensitivity hull of neighbours' differences: the least ellipsoid around it, and noise from its gauge.

For points v_j (j = 1..P) in R^d that span it, weights u on the simplex and ``V(u) = sum_j u_j v_j v_j'``, put
``kappa = max_j v_j' V^-1 v_j``. The ellipsoid ``{z : z' V^-1 z <= kappa}`` contains conv{+-v_j}. Any other,
``{z : z' M z <= 1}``, has ``tr(M V) <= 1``, so ``det(M V) <= d^-d``: its squared volume is at least ``d^d det V``,
and this one's, ``kappa^d det V``, exceeds the least by at most the factor ``(kappa/d)^d``. At the optimum kappa = d
(Kiefer and Wolfowitz).

K-norm noise (Hardt and Talwar 2010) has the density proportional to ``exp(-eps ||z||_K)``: z = r u with r from
Gamma(d + 1, 1/eps) and u uniform in K. Where the facets of K can be listed, such a point is drawn at once: K is the
union of the simplices between 0 and its facets. One is taken with a probability proportional to its volume, and the
weights of its d + 1 vertices are a Dirichlet variable of ones, which is uniform in it. No walk is needed, whose mixing
would have to be argued. What is drawn is continuous, in floating point: hence research only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
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
"""Dimensions up to which a hull's facets are listed."""

_MOST_FACETS = 5e8


@dataclass(frozen=True, eq=False)
class KNormNoise:
    """K-norm noise for the hull K of ``points`` (d, P) and their negatives, from its facets. Research only.

    ``epsilon`` is that of pure differential privacy for noise in real numbers; these draws are floats.

    Raises :class:`~tabulae.errors.Unsupported`, when anything is asked of it, above 8 dimensions, and for so many
    points that their facets, of the order of P^(d/2), may be too many.

    >>> noise = KNormNoise(np.eye(2), epsilon=1.0)  # the cross-polytope: two Laplace variables
    >>> noise.gauge(np.array([[0.5, -0.25]])).tolist()
    [0.75]
    >>> np.round(noise.noise_covariance(), 6).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    points: np.ndarray
    epsilon: float

    @property
    def dimensions(self) -> int:
        """d."""
        return len(self.points)

    @cached_property
    def _hull(self) -> tuple[np.ndarray, np.ndarray]:
        """The facets as simplices (f, d, d), a vertex a row, and normals h (g, d) such that K is ``h'z <= 1``."""
        d, count = self.points.shape
        if d > MOST_DIMENSIONS or (2 * count) ** (d // 2) > _MOST_FACETS:
            raise Unsupported(
                f"the hull of {2 * count:,} points has {d} dimensions: too many facets to list. Choose the "
                "projected or extended Laplace mechanism"
            )
        if d == 1:
            ends = np.abs(self.points).max() * np.array([[1.0], [-1.0]])
            return ends[:, :, None], 1 / ends
        both = np.hstack([self.points, -self.points]).T
        hull = ConvexHull(both)
        return both[hull.simplices], np.unique(hull.equations[:, :-1] / -hull.equations[:, -1:], axis=0)

    @cached_property
    def _shares(self) -> np.ndarray:
        """Each simplex' share of the volume, (f,)."""
        volume = np.abs(np.linalg.det(self._hull[0]))
        return volume / volume.sum()

    def gauge(self, z: np.ndarray) -> np.ndarray:
        """``||z||_K = min {s : z in s K}`` of points (k, d): the largest ``h'z``."""
        return (z @ self._hull[1].T).max(axis=1)

    def uniform(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """``count`` independent points (count, d), uniform in K."""
        chosen = generator.choice(len(self._shares), size=count, p=self._shares)
        weights = generator.dirichlet(np.ones(self.dimensions + 1), size=count)[
            :, 1:
        ]  # the first is that of 0
        return np.einsum("kv,kvd->kd", weights, self._hull[0][chosen])

    def noise(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Draws of K-norm noise, (count, d)."""
        radius = generator.gamma(self.dimensions + 1, 1 / self.epsilon, size=count)
        return radius[:, None] * self.uniform(count, generator)

    def second_moment(self) -> np.ndarray:
        """``E u u'`` for u uniform in K, (d, d), exactly (to rounding).

        Over a simplex of vertices 0, v_1, ..., v_d it is ``(sum_i v_i v_i' + s s') / ((d + 1)(d + 2))``,
        ``s = sum_i v_i``.
        """
        facets, d = self._hull[0], self.dimensions
        sums = facets.sum(axis=1)
        moments = np.einsum("fij,fik->fjk", facets, facets) + np.einsum("fj,fk->fjk", sums, sums)
        return np.einsum("f,fjk->jk", self._shares, moments) / ((d + 1) * (d + 2))

    def noise_covariance(self) -> np.ndarray:
        """``E r^2 E u u' = (d + 1)(d + 2) / eps^2 E u u'``, (d, d)."""
        d = self.dimensions
        return (d + 1) * (d + 2) / self.epsilon**2 * self.second_moment()
