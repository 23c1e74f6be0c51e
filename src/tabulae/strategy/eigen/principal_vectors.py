"""Principal vectors: the largest eigenvectors have weights of their own, all others one in common (section 4.2).

With k eigenvectors ``q_i`` of the largest eigenvalues, and one weight lambda for all others, Program 1 has k + 1
unknowns. For Gaussian noise and V of full rank no other eigenvector is computed: together they cost ``tr V - sum_i
sigma_i``, they add ``lambda^2 (1 - sum_i q_ij^2)`` to column j, and asking them all is asking the rows of the
projection ``I - sum_i q_i q_i'``. For V of lower rank that would ask for what nobody wants, and the L1 norm of columns
depends on the vectors themselves: there the others are computed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg

from ...errors import InvalidArgument
from ..gram import checked_gram
from .eigen_design import (
    Design,
    completed,
    eigen_queries,
)
from .interior_point import weigh_few
from .query_weighting import (
    QueryWeights,
    check_options,
    norm_weighting,
)

_SHARE, _FEWEST = 0.06, 8  # of the cells: principal vectors by default
_FEW = 1024  # weights that Newton's method settles
_FULL = 1e-6  # smallest diagonal of V's triangular root, relative to the largest, that means full rank


def principal_vectors(
    gram: np.ndarray,
    *,
    vectors: int | None = None,
    p: int = 2,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
) -> Design:
    """Program 2 with weights of their own for the largest eigenvectors alone.

    Arguments:
        gram: V = W'W (n, n), of any rank; of full rank it takes a partial decomposition (p = 2).
        vectors: k, the number of principal eigenvectors; 6 % of n by default, at least 8.
        p: 2 for Gaussian noise, 1 for Laplace noise.
        tolerance: relative gap at which the weighting stops; ``time_limit`` is in seconds.

    Returns a design whose first k queries are the principal eigenvectors; its bound is on weights of this kind: k of
    their own, one in common.

    Raises :class:`~tabulae.errors.InvalidArgument` if ``gram`` is no Gram matrix or ``vectors`` below 1.

    Reference: Li and Miklau, "An Adaptive Mechanism for Accurate Query Answering under Differential Privacy",
    section 4.2.

    >>> i = np.arange(64)
    >>> design = principal_vectors(64.0 - np.maximum.outer(i, i), vectors=6)  # prefix sums
    >>> len(design.queries), np.unique(design.weights.weights[6:]).size, design.weights.gap < 1e-6
    (70, 1, True)
    """
    check_options(p, tolerance)
    V = checked_gram(gram)
    k = max(_FEWEST, round(_SHARE * len(V))) if vectors is None else vectors
    if k < 1:
        raise InvalidArgument(f"vectors is {vectors}: at least one eigenvector has a weight of its own")
    if p == 2 and k < len(V) and _full_rank(V):
        queries, costs, norms = _principal(V, k)
    else:
        queries, values = eigen_queries(V)
        k = min(k, len(queries))
        queries, costs, norms = _listed(queries, values, k, p)
    weigh = weigh_few if len(costs) <= _FEW else norm_weighting
    found = weigh(norms, costs, p=p, tolerance=tolerance, time_limit=time_limit)
    return completed(queries, _spread(found, k, len(queries)), p)


def _principal(gram: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, costs (k + 1,) and squared norms (k + 1, n) for V of full rank; the last stand for all others."""
    n = len(gram)
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=[n - k, n - 1], check_finite=False)
    top = np.ascontiguousarray(vectors[:, ::-1].T)
    squares = np.square(top)
    others = np.eye(n) - top.T @ top
    rest = max(float(np.trace(gram)) - float(values.sum()), float(values[0]) * np.finfo(float).eps)
    norms = np.vstack([squares, np.maximum(1.0 - squares.sum(axis=0), 0.0)])
    return np.vstack([top, others]), np.append(values[::-1], rest), norms


def _listed(
    queries: np.ndarray, values: np.ndarray, k: int, p: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same from all eigenvectors (r, n) of non-zero eigenvalue."""
    norms = np.square(queries) if p == 2 else np.abs(queries)
    if k == len(queries):
        return queries, values, norms
    return (
        queries,
        np.append(values[:k], values[k:].sum()),
        np.vstack([norms[:k], norms[k:].sum(axis=0)]),
    )


def _spread(found: QueryWeights, k: int, rows: int) -> QueryWeights:
    """One weight for each row: those after the first k share the last."""
    return replace(found, weights=np.concatenate([found.weights[:k], np.full(rows - k, found.weights[-1])]))


def _full_rank(gram: np.ndarray) -> bool:
    """Whether a triangular root of V shows it to be far from singular."""
    try:
        root = scipy.linalg.cholesky(gram, check_finite=False).diagonal()
    except scipy.linalg.LinAlgError:
        return False
    return bool(root.min() > _FULL * root.max())
