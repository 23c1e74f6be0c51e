"""The optimal Gaussian mechanism: the matrix-mechanism optimum for Pi_N A, extended (Corollary 3.10)."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from ..privacy import PrivacyLoss
from ..strategy.bounds.dual import opt0_pairs
from ..strategy.hdmm.rows import SparseRows, row_optimum
from .additive import Matrix
from .mechanism import Calibration, SubspaceMechanism, linear_mechanism
from .target import ConstrainedQuery


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
    (columns under "add-remove", pairs of columns under "replace"), solved by the same code.

    Arguments are those of :func:`~tabulae.research.projected_gaussian`; ``tolerance`` is the relative gap at which the
    search stops. ``.certificate`` is the gap reached: no Gaussian mechanism that is induced subspace private at this
    budget has less than ``squared_error / (1 + certificate)``.

    Raises as :func:`~tabulae.research.projected_gaussian`; under "replace" also
    :class:`~tabulae.errors.Unsupported` where no replacement changes what noise may hide.

    Reference: Gao, Gong and Yu (2022), Corollary 3.10; HDMM, Definition 12.

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
