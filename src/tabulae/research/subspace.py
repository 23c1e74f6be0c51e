"""The mechanisms of subspace differential privacy (Gao, Gong and Yu 2022), and which of them errs least.

Projected and extended, with Gaussian and with Laplace noise (Corollaries 3.5 to 3.9); the optimal Gaussian mechanism,
the matrix-mechanism optimum for Pi_N A, extended (Corollary 3.10); the correlated Gaussian mechanism of Nikolov,
Talwar and Zhang (2013), extended (Theorem 3.11); and the K-norm mechanism (Hardt and Talwar 2010) for Q_N' A,
extended: noise from the gauge of the sensitivity hull.

All take the same arguments:

* ``query``: A, (n, N); integers, or reals on a grid of up to 24 bits for a release; at most 4,096 columns.
* ``invariants``: C, integers (m, n), on the answers; rows that earlier rows determine are named and left out.
* ``budget``: ZCDP or ApproxDP for Gaussian noise; PureDP, or ApproxDP of which its epsilon is used, for Laplace noise.
* ``neighbours``: "add-remove" or "replace".
* ``calibration``: "exact", or "classical" to reproduce the paper's constant (research only).

They raise :class:`~tabulae.errors.InvalidArgument` for matrices of other shapes or entries and for a budget that does
not pay for the noise, and :class:`~tabulae.errors.Unsupported` where the invariants fix all answers. s^2 is the
variance that the budget asks for at sensitivity 1, b its Laplace scale.

The correlated mechanism. In r dimensions with the neighbours' differences v_j, the base decomposition is recursive:
around the points there is a least ellipsoid F B; of the left singular vectors of F, by decreasing singular value, the
last ones (i > r/2) are the first group U_1, and the points projected on the others are decomposed in the same way.
Axes that are equal have no order. Where the cut would part some, all of them are one group, and the shorter axes are
another. So the groups are subspaces that turn with the points, whatever basis they are written in. Group i gets noise
at its own sensitivity ``r_i = max_j ||U_i' v_j||``: ``sum_i r_i U_i w_i``, times sqrt(k) for k groups. How good it is,
against all Gaussian mechanisms: let s_1 >= ... >= s_d be the semi-axes at one level, of an ellipsoid with ``kappa <= (1
+ gap) d``, h = floor(d/2), s = s_(h+1), and q the number of axes shorter than s. The dual of the least squared error
with the ellipsoid's weights gives ``opt >= (sum_j s_j)^2 / kappa >= (d - q)^2 s^2 / kappa`` with ``d - q >= h + 1 >
d/2``. All groups of the level have ``r_i <= s``: the short half has ``d - h <= h + 1`` axes, the equal ones are at most
``d - q``, the shorter ones ``q <= h``. Hence ``r_i^2 |U_i| <= 2 (1 + gap) opt`` (to the relative 1e-6 to which axes are
told apart), and with k groups and the factor k of the noise

    squared error  <=  2 (1 + gap) k^2 opt,        k <= 1 + 2 floor(log2 d), and 1 + floor(log2 d) without equal axes.

The K-norm mechanism. Where the hull is a linear image of the cross-polytope, ``K = T B_1``, its gauge is ``||T^-1
z||_1`` and the noise is ``T w`` with w independent Laplace. Then the integer rows ``D T^-1 Q_N' A`` (D a common
denominator) are measured with exact discrete Laplace noise. Noise for any other hull is continuous, and research.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..errors import InvalidArgument, Unsupported
from ..linalg import Dense, LinearOperator, integer_matmul, largest_abs, weighted_sensitivity
from ..privacy import PrivacyLoss, PureDP
from ..strategy import NoiseKind
from ..strategy.bounds.dual import opt0_pairs
from ..strategy.hdmm.rows import SparseRows, row_optimum
from .geometry import KNormNoise, least_ellipsoid
from .mechanism import Calibration, SubspaceMechanism, linear_mechanism
from .target import ConstrainedQuery, equal_up_to_sign, exact_inverse, null_basis

Matrix = LinearOperator | np.ndarray

_EQUAL = 1e-6  # relative difference of axes, and of errors, that is one of rounding


def projected_gaussian(
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    calibration: Calibration = "exact",
) -> SubspaceMechanism:
    """The projected Gaussian mechanism: ``M(x) = A x + Pi_N e``, e spherical at the L2 sensitivity of A.

    Corollary 3.5. Expected squared error ``(n - n_c) Delta_2(A)^2 s^2``. A itself is measured, with exact noise.

    Privacy:
        The answers measured satisfy ``budget`` in full; the projection is post-processing of them and the exact
        values (Theorem 3.1). With the classical constant nothing is proven here, and nothing is released.

    >>> import numpy as np, tabulae as tb
    >>> mechanism = projected_gaussian(np.eye(3), np.ones((1, 3)), tb.ZCDP("1/2"))
    >>> round(mechanism.squared_error, 9)  # (3 - 1) * 1
    2.0
    >>> m = tb.measure(np.array([5, 0, 2]), mechanism.strategy, mechanism.budget)
    >>> sum(mechanism.answers(m).fractions)
    Fraction(7, 1)
    """
    return _projected("projected Gaussian", query, invariants, budget, neighbours, "gaussian", calibration)


def projected_laplace(
    query: Matrix, invariants: Matrix, budget: PrivacyLoss, *, neighbours: str = "add-remove"
) -> SubspaceMechanism:
    """The projected Laplace mechanism: ``M(x) = A x + Pi_N e``, e Laplace at the L1 sensitivity of A (Corollary 3.8).

    Expected squared error ``(n - n_c) 2 b^2`` with ``b = Delta_1(A) / eps``.

    Privacy:
        As for :func:`projected_gaussian`, by discrete Laplace noise.
    """
    return _projected("projected Laplace", query, invariants, budget, neighbours, "laplace", "exact")


def extended_gaussian(
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    calibration: Calibration = "exact",
) -> SubspaceMechanism:
    """The extended Gaussian mechanism: ``M(x) = A x + Q_N e``, e spherical at the L2 sensitivity of ``Q_N' A``.

    Expected squared error ``(n - n_c) Delta_2(Q_N' A)^2 s^2``: never more than that of :func:`projected_gaussian`,
    because an orthonormal Q_N lengthens no difference, whichever basis is taken. What is measured is ``Q_N' A`` on a
    grid, as integer combinations of integer rows of its row space, at its own exact sensitivity (Algorithm 1, Corollary
    3.6).

    Privacy:
        The answers measured satisfy ``budget`` in full, and determine ``Pi_N M(x)`` (Theorem 3.3).

    >>> import numpy as np, tabulae as tb
    >>> round(extended_gaussian(np.eye(3), np.ones((1, 3)), tb.ZCDP("1/2")).squared_error, 9)  # 2 (1 - 1/3)
    1.333333333
    """
    target = ConstrainedQuery.of(query, invariants, neighbours)
    return linear_mechanism(
        "extended Gaussian", target, budget, "gaussian",
        measured=target.inner, estimator=target.basis, calibration=calibration,
    )  # fmt: skip


def extended_laplace(
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    basis: np.ndarray | None = None,
) -> SubspaceMechanism:
    """The extended Laplace mechanism: ``M(x) = A x + F w``, w Laplace at the L1 sensitivity of T, with F T = Pi_N A.

    Corollary 3.9 has ``F = Q_N, T = Q_N' A``, and an error ``(n - n_c) 2 b^2`` with ``b = Delta_1(Q_N' A) / eps`` that
    depends on the orthonormal basis Q_N; ``basis`` (n, n - n_c) is one of your own. Without it, F (n, m) and T (m, N)
    are the best of three that depend on the subspace and on nothing else, neither on a basis nor on an order:

    * an answer is measured: F holds the ``Pi_N e_i``, one of those that are equal or opposite, ``Pi_N = F S`` with S of
      0 and +-1, and ``T = S A``;
    * a projected answer is measured: the same F, ``T = S Pi_N A``;
    * a cell is measured: F holds the columns of ``Pi_N A``, one of those that are equal or opposite, ``Pi_N A = F T``.

    Expected squared error ``2 Delta_1(T)^2 ||F||_F^2 / eps^2``: never more than that of :func:`projected_laplace`,
    because ``||F||_F^2 <= tr Pi_N = n - n_c`` and ``Delta_1(S A) <= Delta_1(A)`` for the first.

    Privacy:
        T x is measured in integers (the second on a grid), by discrete Laplace noise at its exact L1 sensitivity, so
        that the answers y satisfy ``budget`` in full. ``F y`` has the expectation ``Pi_N A x`` and is post-processing
        of them (Theorem 3.3), whatever F and T with ``F T = Pi_N A``.

    >>> import numpy as np, tabulae as tb
    >>> C = np.kron(np.eye(2, dtype=int), [[1, 1]])  # two pairs of answers, the sum of each exact
    >>> extended_laplace(np.eye(4), C, tb.PureDP(1)).note
    'one noise for each answer: squared error 0.5 times that of the projected Laplace mechanism'
    """
    target = ConstrainedQuery.of(query, invariants, neighbours)
    frame = _symmetric_frame(target) if basis is None else _given(target, basis)
    projected = projected_laplace(query, invariants, budget, neighbours=neighbours).squared_error
    found = linear_mechanism(
        "extended Laplace", target, budget, "laplace",
        measured=frame.measured, estimator=frame.estimator, integers=frame.integers,
    )  # fmt: skip
    ratio = found.squared_error / projected
    note = f"{frame.name}: squared error {ratio:.3g} times that of the projected Laplace mechanism"
    if ratio > 1:
        note += ", which is better here"
    return replace(found, note=note)


def _projected(
    name: str,
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    neighbours: str,
    noise: NoiseKind,
    calibration: Calibration,
) -> SubspaceMechanism:
    target = ConstrainedQuery.of(query, invariants, neighbours)
    found = linear_mechanism(
        name, target, budget, noise,
        measured=target.matrix, estimator=target.projector, calibration=calibration, integers=target.grid,
    )  # fmt: skip
    return replace(found, estimator=None)


@dataclass(frozen=True, eq=False)
class _Frame:
    """F (n, m) and T (m, N) with ``F T = Pi_N A``; T as integers over ``2^k`` where it is on a grid as it stands."""

    name: str
    estimator: np.ndarray
    measured: np.ndarray
    integers: tuple[np.ndarray, int] | None = None


def _given(target: ConstrainedQuery, basis: np.ndarray) -> _Frame:
    Q = np.asarray(basis, dtype=float)
    if Q.shape != target.basis.shape or not np.allclose(Q @ Q.T, target.projector, atol=1e-9):
        raise InvalidArgument(
            f"basis must hold {target.basis.shape[1]} orthonormal columns of length {target.answers} that the "
            "invariants send to zero"
        )
    return _Frame("the basis given", Q, Q.T @ target.matrix)


def _symmetric_frame(target: ConstrainedQuery) -> _Frame:
    """The frame of least squared error; of equal ones the first, so that rounding never decides."""
    hidden = target.projector @ target.matrix
    answers, S = equal_up_to_sign(null_basis(target.kept))
    F = target.projector[:, answers]
    grid = None if target.grid is None else (integer_matmul(S.toarray(), target.grid[0]), target.grid[1])
    best = _Frame("one noise for each answer", F, S @ target.matrix, grid)
    least = _cost(target.sensitivity(best.measured, 1), F)
    projected = S @ hidden
    if (cost := _cost(target.sensitivity(projected, 1), F)) < least * (1 - _EQUAL):
        best, least = _Frame("one noise for each projected answer", F, projected), cost
    columns, R = equal_up_to_sign(target.exact_points)
    F = hidden[:, columns]
    kinds = np.unique(
        np.arange(1, len(columns) + 1) @ R
    )  # each cell's class and sign, 0 for a cell that moves nothing
    reach = 2 if target.neighbours == "replace" and np.count_nonzero(kinds) > 1 else 1
    if _cost(reach, F) < least * (1 - _EQUAL):
        whole = R.toarray()
        best = _Frame("one noise for each cell", F, whole.astype(float), (whole, 0))
    return best


def _cost(reach: float, F: np.ndarray) -> float:
    return reach**2 * float(np.square(F).sum())


def optimal_gaussian(
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    tolerance: float = 1e-5,
    calibration: Calibration = "exact",
) -> SubspaceMechanism:
    """The Gaussian mechanism of least expected squared error under invariants, with proof of how near it is.

    Minimises ``tr Sigma`` over noise covariances Sigma on null(C) with ``d' A' Sigma^+ A d <= 1`` for all neighbours'
    differences d: by Theorem 3.3 the ordinary problem for ``Pi_N A``, and that is the convex problem of ``select``
    (columns under "add-remove", pairs of columns under "replace"), solved by the same code to a relative gap of
    ``tolerance`` (Corollary 3.10). ``.certificate`` is the gap reached: no Gaussian mechanism that is induced subspace
    private at this budget has less than ``squared_error / (1 + certificate)``.

    Privacy:
        What is measured is a strategy on a grid in the row space of ``Pi_N A``, at its exact sensitivity: the
        answers satisfy ``budget`` in full (Theorem 3.3).

    >>> import numpy as np, tabulae as tb
    >>> best = optimal_gaussian(np.tril(np.ones((4, 4))), np.array([[0, 0, 0, 1]]), tb.ZCDP("1/2"))
    >>> round(best.squared_error, 3), best.certificate < 1e-4
    (4.608, True)
    """
    target = ConstrainedQuery.of(query, invariants, neighbours)
    X = target.points
    if neighbours == "replace":
        found = opt0_pairs(X.T @ X, tolerance=tolerance)
        root, lower = _in_row_space(X, found.strategy), found.lower
    else:
        columns = np.unique(X[:, np.any(X != 0, axis=0)], axis=1)
        rows = SparseRows.of(sp.csr_array(columns))
        best = row_optimum([rows], np.ones(columns.shape[1]), tolerance=tolerance)
        root, lower = (rows.mix @ best.factors[0]).T, best.lower
    measured, estimator = root @ X, target.lift @ np.linalg.inv(root)
    loss = target.sensitivity(measured, 2) * float(np.square(estimator).sum())
    return linear_mechanism(
        "optimal Gaussian", target, budget, "gaussian", measured=measured, estimator=estimator,
        calibration=calibration, certificate=max(loss / lower - 1.0, 0.0),
    )  # fmt: skip


def _in_row_space(X: np.ndarray, strategy: np.ndarray) -> np.ndarray:
    """The root M (r x r) with ``(M'M)^-1 = X (S'S)^+ X'``: the same errors, at most the same sensitivity.

    ``X'(X P^+ X')^-1 X <= P`` for P = S'S, so that measuring M X costs no more than measuring S.
    """
    covariance = X @ np.linalg.pinv(strategy.T @ strategy, hermitian=True) @ X.T
    return np.linalg.inv(sl.cholesky((covariance + covariance.T) / 2, lower=True))


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

    ``tolerance`` is of the squared axes of each ellipsoid. Reference: Nikolov, Talwar and Zhang (2013), section 3.

    >>> found = base_decomposition(np.diag([4.0, 2.0, 1.0]))
    >>> [group.shape[1] for group in found.groups], np.round(found.radii, 6).tolist()
    ([2, 1], [2.0, 4.0])
    """
    groups: list[np.ndarray] = []
    radii: list[float] = []
    gap, within = 0.0, np.eye(len(points))  # the coordinates of what is left, as directions of R^d
    while within.shape[1]:
        rest = within.T @ points
        ellipsoid = least_ellipsoid(rest, tolerance=tolerance)
        gap = max(gap, ellipsoid.gap)
        values, vectors = (found[..., ::-1] for found in np.linalg.eigh(ellipsoid.shape))
        half = len(rest) // 2
        longer, reach = (int((values > values[half] * bound).sum()) for bound in (1 + _EQUAL, 1 - _EQUAL))
        # the axes that equal the longest of the short half stay together
        cuts = (half, len(rest)) if longer == half else (longer, reach, len(rest))
        for start, stop in reversed(tuple(pairwise(cuts))):
            if start < stop:
                U = within @ vectors[:, start:stop]
                groups.append(U)
                radii.append(float(np.sqrt(np.square(U.T @ points).sum(axis=0).max())))
        within = within @ vectors[:, : cuts[0]]
    return BaseDecomposition(tuple(groups), tuple(radii), gap)


def correlated_gaussian(
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    calibration: Calibration = "exact",
) -> SubspaceMechanism:
    """The correlated Gaussian mechanism for ``Q_N' A``, extended: ``M(x) = A x + Q_N sqrt(k) s sum_i r_i U_i w_i``.

    The groups U_i and radii r_i are those of :func:`base_decomposition` of the sensitivity hull. The factor sqrt(k)
    bounds what the groups cost together; here that cost, ``max_d sum_i ||U_i' d||^2 / r_i^2 <= k``, is computed and
    charged itself, so the error is at most the paper's (Theorem 3.11). :func:`optimal_gaussian` is never worse. Under
    "replace" the differences of at most 128 distinct columns are listed, and a total that the answers determine must be
    among the invariants.

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
        note=f"{len(found.groups)} groups of directions; ellipsoids within {max(found.gap, _EQUAL):.1e} of the least",
    )  # fmt: skip


_INSIDE = 1e-7


def k_norm(
    query: Matrix, invariants: Matrix, budget: PrivacyLoss, *, neighbours: str = "add-remove"
) -> SubspaceMechanism:
    """The K-norm mechanism: ``M(x) = A x + Q_N z``, z of density proportional to ``exp(-eps ||z||_K)``, under PureDP.

    K is the hull of ``+-Q_N' A d`` over neighbours' differences d, in d' dimensions; ``z = r u`` with r from
    Gamma(d' + 1, 1/eps) and u uniform in K. Expected squared error ``(d' + 1)(d' + 2) / eps^2 E ||u||^2``.

    Where ``K = T B_1`` with B_1 the cross-polytope (as many +- pairs of vertices as dimensions: an invertible query
    without invariants; pairs of answers whose sums are exact) this is Laplace noise along the columns of T, and it is
    released with exact integer noise. Else the mechanism is for research, up to 8 dimensions:
    :class:`~tabulae.research.KNormNoise`.

    Privacy:
        Exact case: the integer rows ``S = D T^-1 Q_N' A`` have ``||S d||_1 <= D`` for all neighbours, because
        every ``Q_N' A d`` lies in ``T B_1`` (checked in integers), so discrete Laplace noise of scale ``D / eps`` on
        them is eps-differentially private, and the rest is post-processing (Theorem 3.3). Otherwise none is
        claimed: the noise has the right law in real numbers, and is drawn in floats.

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
        return _continuous(target, steps, budget)
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


def _continuous(target: ConstrainedQuery, steps: np.ndarray, budget: PureDP) -> SubspaceMechanism:
    noise = KNormNoise(steps, float(budget.amount))
    error = float(np.trace(noise.noise_covariance()))
    return SubspaceMechanism(
        "K-norm", target, budget, "k-norm", error, target.lift, sampler=noise,
        obstacle="its hull is not a linear image of the cross-polytope, and noise drawn in floats proves no privacy",
        note="research only: continuous noise",
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


_GAUSSIAN = {
    "projected Gaussian": projected_gaussian,
    "extended Gaussian": extended_gaussian,
    "correlated Gaussian": correlated_gaussian,
    "optimal Gaussian": optimal_gaussian,
}
_LAPLACE = {"projected Laplace": projected_laplace, "extended Laplace": extended_laplace, "K-norm": k_norm}


@dataclass(frozen=True)
class Comparison:
    """Mechanisms by increasing expected squared error, and those that do not apply with the reason."""

    mechanisms: tuple[SubspaceMechanism, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def best(self) -> SubspaceMechanism:
        """The mechanism of least expected squared error among those that can be released."""
        for mechanism in self.mechanisms:
            if mechanism.releasable:
                return mechanism
        raise Unsupported(f"none of these can be released: {self.mechanisms[0].obstacle}")

    def __str__(self) -> str:
        lines = [
            f"{m.name:20} {m.squared_error:12.5g}  {m.note if m.releasable else 'research only: ' + m.obstacle}"
            for m in self.mechanisms
        ]
        return "\n".join(
            line.rstrip() for line in [*lines, *(f"{n:20} {'-':>12}  {why}" for n, why in self.refused)]
        )


def compare(
    query: Matrix, invariants: Matrix, budget: PrivacyLoss, *, neighbours: str = "add-remove"
) -> Comparison:
    """All mechanisms that the budget pays for, by expected squared error; Laplace and K-norm under PureDP.

    >>> import numpy as np, tabulae as tb
    >>> found = compare(np.eye(4), np.kron(np.eye(2, dtype=int), [[1, 1]]), tb.PureDP(1))
    >>> [(m.name, round(m.squared_error, 3)) for m in found.mechanisms]
    [('extended Laplace', 2.0), ('K-norm', 2.0), ('projected Laplace', 4.0)]
    """
    mechanisms, refused = [], []
    for name, make in (_LAPLACE if isinstance(budget, PureDP) else _GAUSSIAN).items():
        try:
            mechanisms.append(make(query, invariants, budget, neighbours=neighbours))
        except Unsupported as reason:
            if name.startswith("projected"):
                raise  # about the query and the invariants themselves
            refused.append((name, str(reason)))
    mechanisms.sort(key=lambda m: round(m.squared_error, 9))
    return Comparison(tuple(mechanisms), tuple(refused))
