"""The least ellipsoid around a symmetric set of points, with a proven bound on how far from least it is.

For points v_j (j = 1..P) in R^d that span it, weights u on the simplex and ``V(u) = sum_j u_j v_j v_j'``, put
``kappa = max_j v_j' V^-1 v_j``. The ellipsoid ``{z : z' V^-1 z <= kappa}`` contains conv{+-v_j}. Any other,
``{z : z' M z <= 1}``, has ``tr(M V) <= 1``, so ``det(M V) <= d^-d``: its squared volume is at least ``d^d det V``,
and this one's, ``kappa^d det V``, exceeds the least by at most the factor ``(kappa/d)^d``. At the optimum kappa = d
(Kiefer and Wolfowitz).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgument

_MULTIPLICATIVE = 100
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
    """The ellipsoid of least volume around ``conv{+-v_j}``, to a relative excess of ``tolerance`` in squared axes.

    Ascends ``log det V(u)``: multiplicative steps, then Khachiyan's coordinate steps towards the point furthest out,
    with steps away from the point nearest in that has weight (Wolfe and Atwood), which converge linearly.

    Arguments:
        points: (d, P), one point a column; their negatives are meant as well.
        tolerance: of ``kappa / d - 1``; what was reached is in ``.gap``, and true in any case.

    Raises:
        InvalidArgument: the points do not span R^d, or the tolerance is not positive.

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
    weights = np.full(count, 1.0 / count)
    for _ in range(_MULTIPLICATIVE):
        distances = _distances(points, weights)
        if distances.max() <= d * (1 + tolerance):
            break
        weights = weights * distances / d
        weights /= weights.sum()
    else:  # what hardly counts would only be dropped one by one; a point that matters comes back
        weights = np.where(weights > _KEPT * weights.max(), weights, 0.0)
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
