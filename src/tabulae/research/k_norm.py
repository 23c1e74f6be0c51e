"""The K-norm mechanism (Hardt and Talwar 2010) for Q_N' A, extended: noise from the gauge of the sensitivity hull.

Where the hull is a linear image of the cross-polytope, ``K = T B_1``, its gauge is ``||T^-1 z||_1`` and the noise is
``T w`` with w independent Laplace. Then the integer rows ``D T^-1 Q_N' A`` (D a common denominator) are measured with
exact discrete Laplace noise. Any other hull takes a random walk, which is research.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument
from ..linalg import Dense, largest_abs, weighted_sensitivity
from ..privacy import PrivacyLoss, PureDP
from .additive import Matrix
from .ellipsoid import least_ellipsoid
from .exact import exact_inverse
from .hull import HitAndRun
from .mechanism import SubspaceMechanism, linear_mechanism
from .target import ConstrainedQuery

_INSIDE = 1e-7


def k_norm(
    query: Matrix, invariants: Matrix, budget: PrivacyLoss, *, neighbours: str = "add-remove"
) -> SubspaceMechanism:
    """The K-norm mechanism: ``M(x) = A x + Q_N z``, z of density proportional to ``exp(-eps ||z||_K)``.

    K is the hull of ``+-Q_N' A d`` over neighbours' differences d, in d' dimensions; ``z = r u`` with r from
    Gamma(d' + 1, 1/eps) and u uniform in K. Expected squared error ``(d' + 1)(d' + 2) / eps^2 E ||u||^2``.

    Where ``K = T B_1`` with B_1 the cross-polytope (as many +- pairs of vertices as dimensions: an invertible query
    without invariants; pairs of answers whose sums are exact) this is Laplace noise along the columns of T, and it is
    released with exact integer noise. Else the mechanism is for research: :class:`~tabulae.research.HitAndRun`.

    Arguments are those of :func:`~tabulae.research.projected_laplace`.

    Raises:
        InvalidArgument: a budget other than PureDP.
        Unsupported: as :func:`~tabulae.research.correlated_gaussian`; a hull of more than 8 dimensions, or of very
            many facets, that is no image of the cross-polytope.

    Reference: Hardt and Talwar, "On the geometry of differential privacy" (2010); Gao, Gong and Yu (2022), section 3.4.

    Privacy:
        Exact case: the integer rows ``S = D T^-1 Q_N' A`` have ``||S d||_1 <= D`` for all neighbours, because
        every ``Q_N' A d`` lies in ``T B_1`` (checked in integers), so discrete Laplace noise of scale ``D / eps`` on
        them is eps-differentially private, and the rest is post-processing (Theorem 3.3). Otherwise none is
        claimed: a walk's point is uniform only in the limit.

    >>> import numpy as np, tabulae as tb
    >>> mechanism = k_norm(np.eye(4), np.array([[1, 0, 1, 0]]), tb.PureDP(1))  # the sum of the first and third
    >>> mechanism.releasable, round(mechanism.squared_error, 6)  # projected Laplace: 6
    (True, 5.0)
    """
    if not isinstance(budget, PureDP):
        raise InvalidArgument("the K-norm mechanism is for pure differential privacy: give PureDP(epsilon)")
    target = ConstrainedQuery.of(query, invariants, neighbours)
    steps = target.spanning_steps()
    vertices = _cross_polytope(steps)
    if vertices is None:
        return _walked(target, steps, budget)
    T = steps[:, vertices]
    rows = _integer_coordinates(target, T)
    if rows is None:
        return linear_mechanism(
            "K-norm", target, budget, "laplace",
            measured=np.linalg.solve(T, target.points), estimator=target.lift @ T,
        )  # fmt: skip
    S, D = rows
    return linear_mechanism(
        "K-norm", target, budget, "laplace",
        measured=S.astype(float), estimator=target.lift @ T / D, integers=(S, 0),
        note=f"the hull is a linear image of the cross-polytope in {len(T)} dimensions: Laplace noise along its axes",
    )  # fmt: skip


def _walked(target: ConstrainedQuery, steps: np.ndarray, budget: PureDP) -> SubspaceMechanism:
    walk = HitAndRun(steps, float(budget.amount))
    error = float(np.trace(walk.noise_covariance()))
    return SubspaceMechanism(
        "K-norm", target, budget, "k-norm", error, target.lift, sampler=walk,
        obstacle="its hull is no linear image of the cross-polytope, and a random walk proves no privacy",
        note="research only: hit-and-run, approximately uniform",
    )  # fmt: skip


def _cross_polytope(steps: np.ndarray) -> np.ndarray | None:
    """Indices of the d points that are the axes of a cross-polytope around all others; None where there are none.

    The least ellipsoid around a linear image of the cross-polytope touches its vertices and nothing else, with
    weight 1/d each, and those weights are unique.
    """
    d = len(steps)
    weights = least_ellipsoid(steps).weights
    vertices = np.argsort(-weights)[:d]
    T = steps[:, vertices]
    if np.linalg.matrix_rank(T) < d:
        return None
    inside = np.abs(np.linalg.solve(T, steps)).sum(axis=0).max() <= 1 + _INSIDE
    return np.sort(vertices) if inside else None


def _integer_coordinates(target: ConstrainedQuery, T: np.ndarray) -> tuple[np.ndarray, int] | None:
    """Integers S (r, N) and D with ``S / D = T^-1 Q_N' A`` exactly and L1 sensitivity D; None where there are none.

    A column of T is the step of some neighbours: over the integer rows J that is an integer column, and
    ``T^-1 Q_N' A = (J_T)^-1 J``.
    """
    J = target.integer_rows
    if J is None:
        return None
    chosen = _columns(target, J, T)
    H, D = exact_inverse(chosen)
    if max(abs(h) for h in H.ravel()) * max(1, largest_abs(J)) * len(J) >= 2**62:
        return None
    S = H.astype(np.int64) @ J
    divisor = int(np.gcd.reduce(np.append(S.ravel(), D)))
    S, D = S // divisor, D // divisor
    exact = weighted_sensitivity([(Dense(S), Fraction(1))], 1, target.neighbours)
    return (S, D) if exact.power == D else None


def _columns(target: ConstrainedQuery, J: np.ndarray, T: np.ndarray) -> np.ndarray:
    """The integer steps that are T's columns up to sign, (r, r)."""
    points, out = target.points, []
    for t in T.T:
        if target.neighbours == "add-remove":
            away = np.minimum(*(np.abs(points - sign * t[:, None]).max(axis=0) for sign in (1, -1)))
            j = int(away.argmin())
            sign = 1 if np.dot(points[:, j], t) > 0 else -1
            out.append(sign * J[:, j])
        else:
            j, k = _pair(points, t)
            out.append(J[:, j] - J[:, k])
    return np.array(out).T


def _pair(points: np.ndarray, step: np.ndarray) -> tuple[int, int]:
    """Two columns whose difference is ``step``."""
    for k in range(points.shape[1]):
        away = np.abs(points - points[:, k, None] - step[:, None]).max(axis=0)
        if away.min() < 1e-9 * max(1.0, np.abs(points).max()):
            return int(away.argmin()), k
    raise AssertionError("a step is a difference of two columns")
