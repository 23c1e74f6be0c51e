"""The projected and the extended mechanisms, with Gaussian and with Laplace noise (Corollaries 3.5 to 3.9)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import InvalidArgument
from ..linalg import LinearOperator
from ..privacy import PrivacyLoss
from ..strategy import NoiseKind
from .basis import dissected_basis, generic_basis
from .mechanism import Calibration, SubspaceMechanism, linear_mechanism
from .target import ConstrainedQuery

Matrix = LinearOperator | np.ndarray


def projected_gaussian(
    query: Matrix,
    invariants: Matrix,
    budget: PrivacyLoss,
    *,
    neighbours: str = "add-remove",
    calibration: Calibration = "exact",
) -> SubspaceMechanism:
    """The projected Gaussian mechanism: ``M(x) = A x + Pi_N e``, e spherical at the L2 sensitivity of A.

    Expected squared error ``(n - n_c) sigma^2`` with ``sigma^2 = Delta_2(A)^2 s^2``, s^2 the variance that the budget
    asks for at sensitivity 1. A itself is measured, with exact noise; see :meth:`SubspaceMechanism.answers`.

    Arguments:
        query: A, (n, N); integers, or reals on a grid of up to 24 bits for a release.
        invariants: C, integers (m, n), on the answers; rows that earlier rows determine are named and left out.
        budget: ZCDP or ApproxDP.
        neighbours: "add-remove" or "replace".
        calibration: "exact", or "classical" to reproduce the paper's constant (research only).

    Raises:
        InvalidArgument: matrices of other shapes or entries, a budget that pays for no Gaussian noise.
        Unsupported: the invariants fix all answers, or the query has more than 4,096 columns.

    Reference: Gao, Gong and Yu, "Subspace Differential Privacy" (2022), Theorem 3.1 and Corollary 3.5.

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
    """The projected Laplace mechanism: ``M(x) = A x + Pi_N e``, e Laplace at the L1 sensitivity of A.

    Expected squared error ``(n - n_c) 2 b^2`` with ``b = Delta_1(A) / eps``. Arguments and errors as for
    :func:`projected_gaussian`; the budget is PureDP (or ApproxDP, of which its epsilon is used).

    Reference: Gao, Gong and Yu (2022), Corollary 3.8.

    Privacy:
        As for :func:`projected_gaussian`, by discrete Laplace noise.

    >>> import numpy as np, tabulae as tb
    >>> round(projected_laplace(np.eye(3), np.ones((1, 3)), tb.PureDP(1)).squared_error, 9)
    4.0
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

    Expected squared error ``(n - n_c) sigma^2`` with ``sigma^2 = Delta_2(Q_N' A)^2 s^2``: never more than that
    of :func:`projected_gaussian`, because an orthonormal Q_N lengthens no difference. Which basis is taken does not
    matter. What is measured is ``Q_N' A`` on a grid, as integer combinations of integer rows of its row space, at its
    own exact sensitivity. Arguments and errors as for :func:`projected_gaussian`.

    Reference: Gao, Gong and Yu (2022), Theorem 3.3, Algorithm 1 and Corollary 3.6.

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
    basis: str | np.ndarray = "best",
) -> SubspaceMechanism:
    """The extended Laplace mechanism: ``M(x) = A x + Q_N w``, w Laplace at the L1 sensitivity of ``Q_N' A``.

    Expected squared error ``(n - n_c) 2 b^2`` with ``b = Delta_1(Q_N' A) / eps``, which depends on the basis and may be
    many times that of :func:`projected_laplace`. ``.note`` says how the two compare before anything is spent.

    Arguments:
        query, invariants, budget, neighbours: as for :func:`projected_laplace`.
        basis: "dissected" (local vectors, Haar's for one total), "generic" (of a singular value decomposition), "best"
            (the better of them), or an orthonormal basis (n, n - n_c) of your own.

    Raises as :func:`projected_gaussian`, and :class:`~tabulae.errors.InvalidArgument` for no orthonormal basis.

    Reference: Gao, Gong and Yu (2022), Theorem 3.3 and Corollary 3.9.

    Privacy:
        As for :func:`extended_gaussian`, by discrete Laplace noise.

    >>> import numpy as np, tabulae as tb
    >>> C = np.kron(np.eye(2, dtype=int), [[1, 1]])  # two pairs of answers, the sum of each exact
    >>> extended_laplace(np.eye(4), C, tb.PureDP(1)).note
    "basis 'dissected': squared error 0.5 times that of the projected Laplace mechanism"
    """
    target = ConstrainedQuery.of(query, invariants, neighbours)
    name, chosen = _basis(target, basis)
    projected = projected_laplace(query, invariants, budget, neighbours=neighbours).squared_error
    found = linear_mechanism(
        "extended Laplace", target, budget, "laplace", measured=chosen.T @ target.matrix, estimator=chosen
    )
    ratio = found.squared_error / projected
    note = f"basis {name!r}: squared error {ratio:.3g} times that of the projected Laplace mechanism"
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


def _basis(target: ConstrainedQuery, basis: str | np.ndarray) -> tuple[str, np.ndarray]:
    """The name and the entries of a basis of the null space."""
    C = target.kept.astype(float)
    if not isinstance(basis, str):
        Q = np.asarray(basis, dtype=float)
        fits = Q.shape == target.basis.shape and np.allclose(Q @ Q.T, target.projector, atol=1e-9)
        if not fits:
            raise InvalidArgument(
                f"basis must hold {target.basis.shape[1]} orthonormal columns of length {target.answers} that the "
                "invariants send to zero"
            )
        return "given", Q
    offered = {"dissected": dissected_basis, "generic": generic_basis}
    if basis != "best":
        if basis not in offered:
            raise InvalidArgument(
                f"basis is {basis!r}; it must be 'best', 'dissected', 'generic' or an array"
            )
        return basis, offered[basis](C)
    bases = {name: make(C) for name, make in offered.items()}
    name = min(bases, key=lambda which: target.sensitivity(bases[which].T @ target.matrix, 1))
    return name, bases[name]
