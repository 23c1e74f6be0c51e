"""The Eigen-Design algorithm (Program 2): weigh the workload's eigenvectors, then complete the columns.

With ``V = W'W = sum_i sigma_i q_i q_i'`` the design queries are the eigenvectors of non-zero eigenvalue, and their
costs are the eigenvalues: the weights of Program 1 minimise ``sum_i sigma_i / lambda_i^2``. Columns of
``A' = diag(lambda) Q`` whose norm stays below the largest are filled up, each by one query of its cell alone, which
costs no privacy and can only help. The result depends on V alone, and follows a reordering of cells (Propositions 5
and 6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ...errors import InvalidArgument
from ..bounds import svd_bound
from ..gram import checked_gram
from .query_weighting import QueryWeights, query_weighting

_FULL = 1e-5  # share of the largest column norm below which a column is full
_NOTHING = 1e-13  # share of the largest eigenvalue, times n, below which an eigenvalue is rounding


@dataclass(frozen=True)
class Design:
    """A strategy made of weighted design queries and completed columns.

    ``queries`` (k, n) and ``weights`` are what Program 1 decided; ``completion`` (n,) is how strongly each cell is
    asked beside them. ``strategy`` stacks both, with largest column norm 1.
    """

    queries: np.ndarray
    weights: QueryWeights
    completion: np.ndarray
    p: int

    @property
    def strategy(self) -> np.ndarray:
        """A (r, n): for Gaussian noise and columns that are safely independent the triangular root of A'A."""
        weighted = self.weights.weights[:, None] * self.queries
        if self.p == 2:
            root = _triangular(weighted, self.completion)
            if root is not None:
                return root
        stacked = np.vstack([weighted, np.diag(self.completion)])
        return stacked[stacked.any(axis=1)]


def eigen_queries(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvectors (r, n) of a workload's Gram matrix V (n, n) of rank r, as rows, and their eigenvalues (r,).

    The largest eigenvalue comes first. Raises :class:`~tabulae.errors.InvalidArgument` for what is no Gram matrix.

    Reference: Li and Miklau, Definition 6.

    >>> eigen_queries(np.array([[2.0, 1.0], [1.0, 2.0]]))[1].round(6).tolist()
    [3.0, 1.0]
    """
    V = checked_gram(gram)
    values, vectors = scipy.linalg.eigh(V, check_finite=False)
    if not values[-1] > 0:
        raise InvalidArgument("gram is zero: the workload counts no cell. Leave out tables of weight zero")
    if values[0] < -1e-7 * values[-1]:
        raise InvalidArgument(
            f"gram is not positive semi-definite (eigenvalues {values[0]:.3g} to {values[-1]:.3g}), so it is no Gram "
            "matrix W'W"
        )
    kept = np.flatnonzero(values > values[-1] * _NOTHING * max(10, values.size))[::-1]
    return np.ascontiguousarray(vectors[:, kept].T), values[kept]


def eigen_design(
    gram: np.ndarray, *, p: int = 2, tolerance: float = 1e-6, time_limit: float | None = None
) -> Design:
    """Program 2: eigen-queries, their best weights, completed columns.

    Arguments:
        gram: V = W'W (n, n), of any rank: directions without an eigenvalue cost nothing and are not asked.
        p: 2 for Gaussian noise; 1 for Laplace noise (section 3.5), where the eigenvectors are one basis of many and
            seldom the best.
        tolerance: relative gap at which the weighting stops; ``time_limit`` is in seconds.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    Program 2.

    >>> W = np.tril(np.ones((3, 3)))  # prefix sums of three cells
    >>> design = eigen_design(W.T @ W)
    >>> A = design.strategy
    >>> round(float(np.trace(np.linalg.inv(A.T @ A) @ W.T @ W)), 3), design.weights.gap < 1e-6
    (4.929, True)
    """
    queries, values = eigen_queries(gram)
    weights = query_weighting(queries, values, p=p, tolerance=tolerance, time_limit=time_limit)
    return completed(queries, weights, p)


def completed(queries: np.ndarray, weights: QueryWeights, p: int) -> Design:
    """Steps 4 and 5 of Program 2: what each cell can be asked beside the weighted queries at no cost.

    Column j of Lp norm m_j gets a query of cell j alone with weight ``(max_i m_i^p - m_j^p)^(1/p)``. Columns that lack
    less than 1e-5 are left as they are: weights are known no better than Program 1's tolerance of 1e-6, and queries so
    weak would add rows, and cells that a workload of low rank does not tell apart, for no gain in error.
    """
    norms = (np.abs(queries) ** p).T @ weights.weights**p
    spare = 1 - norms / norms.max()
    spare[spare < _FULL] = 0.0
    return Design(queries, weights, (norms.max() * spare) ** (1 / p), p)


def eigen_ratio(gram: np.ndarray) -> float:
    """``(n sigma_1 / svdb)^(1/4)``: Program 2's RMSE is at most this multiple of the best possible (Theorem 3).

    sigma_1 is the largest eigenvalue of V = W'W (n, n), ``svdb = (sum_i sqrt(sigma_i))^2 / n`` the singular value bound
    on the squared error.

    >>> round(eigen_ratio(np.eye(3)), 9)
    1.0
    """
    _, values = eigen_queries(gram)
    return float((len(gram) * values[0] / svd_bound(gram)) ** 0.25)


def _triangular(weighted: np.ndarray, completion: np.ndarray) -> np.ndarray | None:
    """Upper triangular A with ``A'A = A''A' + diag(completion)^2``, None where that is nearly singular."""
    X = weighted.T @ weighted
    X[np.diag_indices_from(X)] += completion**2
    try:
        root = scipy.linalg.cholesky(X, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    return root if root.diagonal().min() ** 2 > 1e-9 else None
