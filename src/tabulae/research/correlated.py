"""The correlated Gaussian mechanism of Nikolov, Talwar and Zhang (2013), extended to invariants (Theorem 3.11).

In r dimensions with the neighbours' differences v_j, the base decomposition is recursive: around the points there
is a least ellipsoid F B; of the left singular vectors of F, by decreasing singular value, the last ones (i > r/2) are
the first group U_1, and the points projected on the others are decomposed in the same way. Group i gets noise at its
own sensitivity ``r_i = max_j ||U_i' v_j||``: ``sum_i r_i U_i w_i``, times sqrt(k) for k groups.

How good it is (for all Gaussian mechanisms as competitors, with a constant): let s_1 >= ... >= s_d be the
semi-axes at one level, of an ellipsoid with ``kappa <= (1 + gap) d``, and h = floor(d/2). The dual of the least
squared error with the ellipsoid's weights gives ``opt >= (sum_j s_j)^2 / kappa >= (h + 1)^2 s_(h+1)^2 / kappa``,
while ``r_i^2 |U_i| <= s_(h+1)^2 (d - h)``. Hence ``r_i^2 |U_i| <= 2 (1 + gap) opt``, and with k groups and the
factor k of the noise

    squared error  <=  2 (1 + gap) k^2 opt,        k = 1 + floor(log2 d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..privacy import PrivacyLoss
from .additive import Matrix
from .ellipsoid import least_ellipsoid
from .mechanism import Calibration, SubspaceMechanism, linear_mechanism
from .target import ConstrainedQuery


@dataclass(frozen=True, eq=False)
class BaseDecomposition:
    """Groups of orthonormal directions, together a basis of R^d, and each group's sensitivity.

    ``groups[i]`` is U_i (d, d_i), ``radii[i]`` is r_i; ``gap`` is the largest relative excess of a squared
    axis over the least ellipsoid's, over all levels.
    """

    groups: tuple[np.ndarray, ...]
    radii: tuple[float, ...]
    gap: float

    @property
    def unit_error(self) -> float:
        """``k sum_i r_i^2 d_i``: the paper's squared error at noise multiplier 1."""
        shares = (r * r * U.shape[1] for U, r in zip(self.groups, self.radii, strict=True))
        return len(self.groups) * sum(shares)


def base_decomposition(points: np.ndarray, *, tolerance: float = 1e-2) -> BaseDecomposition:
    """The base decomposition of the points (d, P), which span R^d, and their negatives.

    ``tolerance`` is of the squared axes of each ellipsoid. Raises :class:`~tabulae.errors.InvalidArgument` where the
    points do not span.

    Reference: Nikolov, Talwar and Zhang, "The geometry of differential privacy: the sparse and approximate cases"
    (2013), section 3.

    >>> found = base_decomposition(np.diag([4.0, 2.0, 1.0]))
    >>> [group.shape[1] for group in found.groups], np.round(found.radii, 6).tolist()
    ([2, 1], [2.0, 4.0])
    """
    groups: list[np.ndarray] = []
    radii: list[float] = []
    gap, within = 0.0, np.eye(len(points))  # the coordinates of what is left, as directions of R^d
    while True:
        rest = within.T @ points
        ellipsoid = least_ellipsoid(rest, tolerance=tolerance)
        gap = max(gap, ellipsoid.gap)
        vectors = np.linalg.eigh(ellipsoid.shape)[1][:, ::-1]
        half = len(rest) // 2
        U = within @ vectors[:, half:]
        groups.append(U)
        radii.append(float(np.sqrt(np.square(U.T @ points).sum(axis=0).max())))
        if half == 0:
            return BaseDecomposition(tuple(groups), tuple(radii), gap)
        within = within @ vectors[:, :half]


def correlated_gaussian(
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    calibration: Calibration = "exact",
) -> SubspaceMechanism:
    """The correlated Gaussian mechanism for ``Q_N' A``, extended: ``M(x) = A x + Q_N sqrt(k) s sum_i r_i U_i w_i``.

    The groups U_i and radii r_i are those of :func:`base_decomposition` of the sensitivity hull, s^2 the variance that
    the budget asks for at sensitivity 1. The factor sqrt(k) bounds what the groups cost together; here that cost,
    ``max_d sum_i ||U_i' d||^2 / r_i^2 <= k``, is computed and charged itself, so the error is at most the paper's.

    An approximation: :func:`~tabulae.research.optimal_gaussian` is never worse. Arguments and errors as for
    :func:`~tabulae.research.projected_gaussian`; under "replace" the differences of at most 128 distinct columns are
    listed, and a total that the answers determine must be among the invariants.

    Reference: Gao, Gong and Yu (2022), Theorem 3.11; Nikolov, Talwar and Zhang (2013).

    Privacy:
        What is measured is ``U_i' Q_N' A x / r_i`` on a grid, with equal noise at its exact joint sensitivity: the
        answers satisfy ``budget`` in full whatever the decomposition (Theorem 3.3).

    >>> import numpy as np, tabulae as tb
    >>> query, invariants = np.diag([4, 2, 1, 1]), np.array([[0, 0, 0, 1]])
    >>> mechanism = correlated_gaussian(query, invariants, tb.ZCDP("1/2"))  # noise of variance 16, 4, 4, 0
    >>> round(mechanism.squared_error, 6)
    24.0
    """
    target = ConstrainedQuery.of(query, invariants, neighbours)
    found = base_decomposition(target.spanning_steps())
    scaled = np.hstack([U * r for U, r in zip(found.groups, found.radii, strict=True)])
    whitened = np.vstack([U.T / r for U, r in zip(found.groups, found.radii, strict=True)])
    return linear_mechanism(
        "correlated Gaussian", target, budget, "gaussian",
        measured=whitened @ target.points, estimator=target.lift @ scaled, calibration=calibration,
        note=f"{len(found.groups)} groups of directions; ellipsoids within {found.gap:.1e} of the least",
    )  # fmt: skip
