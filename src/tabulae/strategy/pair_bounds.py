"""Lower bounds under replace-one neighbours: what no strategy beats when pairs of columns count.

All bounds are on ``loss = max_{j,k} ||A (e_j - e_k)||_2^2 ||W A^+||_F^2``, the total squared error of the workload W at
unit noise. For weights ``mu_jk >= 0`` of pairs and the Laplacian ``L = sum mu_jk d d'``, d = e_j - e_k,

    loss >= (tr (L^1/2 V L^1/2)^1/2)^2 / sum mu,        V = W'W:

with X = A'A and all pairs at most 1 apart ``<L, X> <= sum mu``, and by the Cauchy-Schwarz inequality of singular
values ``||V^1/2 L^1/2||_*^2 <= ||V^1/2 X^-1/2||_F^2 ||X^1/2 L^1/2||_F^2 = tr[X^-1 V] <L, X>``. They hold for L1
sensitivity (Laplace noise) too, because no difference's L1 norm is below its L2 norm. Every number returned has had
its rounding errors taken off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.linalg as sl
from scipy.optimize import minimize

from ..errors import InvalidArgument
from .bounds import (
    Terms,
    kron_sizes,
    lattice_spectrum,
    svd_bound,
)
from .gram import checked_gram

_EPS = float(np.finfo(np.float64).eps)
_STEPS = 2**25  # numbers that the weights of sets of attributes may pass through while they are improved


def grounded(gram: np.ndarray, origin: int) -> np.ndarray:
    """``D V D'`` for D (n-1 x n) with rows ``e_j - e_o``: the workload's Gram matrix when the total is known.

    >>> grounded(np.eye(3), 2).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    V = np.delete(np.delete(gram, origin, axis=0), origin, axis=1)
    border = np.delete(gram[origin], origin)
    return V - border - border[:, None] + gram[origin, origin]


def pair_bound(gram: np.ndarray, weights: np.ndarray) -> float:
    """Lower bound on the loss of any strategy under replace-one neighbours, certified by weights of pairs.

    ``(tr (L^1/2 V L^1/2)^1/2)^2 / sum mu`` for the Laplacian L of ``weights``, rounded down: the roots are taken
    of ``G' D V D' G`` with ``D' G G' D = L`` up to an error that is paid for in ``sum mu``, and each eigenvalue is
    lowered by what rounding may have added to it. A share of 1e-9 of equal weights is mixed in, so that G exists.

    ``gram`` is V = W'W (n x n), in squared queries; ``weights`` (n, n) are symmetric, non-negative, not all zero
    beside the diagonal, which does not matter.

    Raises :class:`~tabulae.errors.InvalidArgument` for other weights.

    >>> round(pair_bound(np.eye(3), np.ones((3, 3))), 6)  # three cells that add up to a public total
    4.0
    >>> pair_bound(np.ones((3, 3)), np.ones((3, 3)))  # the total itself is public
    0.0
    """
    V, n = checked_gram(gram), np.shape(gram)[0]
    mu = np.array(weights, dtype=np.float64)
    if mu.shape != (n, n) or not (np.isfinite(mu).all() and (mu >= 0).all() and np.array_equal(mu, mu.T)):
        raise InvalidArgument(f"weights must be a symmetric {n} x {n} matrix of non-negative numbers.")
    np.fill_diagonal(mu, 0.0)
    if not mu.any():
        raise InvalidArgument("weights are all zero: weigh at least one pair of cells.")
    mu = mu / mu.max() + 1e-9 * mu.mean() / mu.max()
    np.fill_diagonal(mu, 0.0)
    L = (np.diag(mu.sum(axis=0)) - mu)[:-1, :-1]
    G = sl.cholesky(L, lower=True, check_finite=False)
    inner = grounded(V, n - 1)
    size = float(np.abs(V).max())
    exact = size < 2.0**50 and np.array_equal(V, np.rint(V))
    error = np.abs(G).T @ (np.abs(inner) + (0.0 if exact else 4 * size / n)) @ np.abs(G)
    S = G.T @ inner @ G
    margin = (n + 4) * _EPS * (float(np.linalg.norm(S)) + float(np.linalg.norm(error)))
    values = sl.eigvalsh((S + S.T) / 2, overwrite_a=True, check_finite=False)
    trace = float(np.sqrt(np.maximum(values - margin, 0.0)).sum())
    total = float(mu.sum()) / 2 * (1 + 2 * (n + 2) ** 2 * _EPS)
    return trace**2 / total * (1 - (4 * n + 8) * _EPS)


def pair_svd_bound(gram: np.ndarray) -> float:
    """The SVD bound of an explicit workload under replace-one neighbours: all pairs weigh the same.

    ``2 / (n - 1) (sum of singular values of W (I - J/n))^2``; ``gram`` is V = W'W (n x n), in squared queries.

    >>> round(pair_svd_bound(np.eye(5)), 6)
    8.0
    """
    n = np.shape(gram)[0]
    return pair_bound(gram, np.ones((n, n))) if n > 1 else 0.0


def product_pair_bound(columns: Sequence[float], pairs: Sequence[float]) -> float:
    """Lower bound for one Kronecker product from bounds on its factors.

    Weigh only pairs that differ in attribute i and agree in all others, by ``mu_i`` of the pair times the
    multipliers of the cells they agree in: L is the Kronecker product of L_i and diagonal matrices, and the
    bound is the product of the others' bounds for add-remove (``columns``) and the i-th's for replace (``pairs``).
    The largest over i is returned.

    >>> round(product_pair_bound([3.0, 4.0], [4.0, 6.0]), 9)  # cells of a 3 x 4 table
    18.0
    """
    return max(
        pair * math.prod(other for j, other in enumerate(columns) if j != i) * (1 - 4 * len(columns) * _EPS)
        for i, pair in enumerate(pairs)
    )


def product_pair_svd_bound(factors: Sequence[np.ndarray]) -> float:
    """SVD bound under replace for one Kronecker product with Gram matrices V_i (n_i x n_i).

    The larger of :func:`product_pair_bound` of the factors' SVD bounds, and of equal weights for all pairs:
    ``W (I - J/N)`` has all but the largest of W's singular values or larger ones (they interlace).

    >>> round(product_pair_svd_bound([np.eye(3), np.eye(4)]), 6)
    22.0
    """
    columns = [svd_bound(V) for V in factors]
    single = product_pair_bound(columns, [pair_svd_bound(V) for V in factors])
    nuclear = math.prod(math.sqrt(b * len(V)) for b, V in zip(columns, factors, strict=True))
    largest = math.prod(
        math.sqrt(float(np.linalg.eigvalsh(V)[-1]) + (len(V) + 4) * _EPS * float(np.linalg.norm(V)))
        for V in factors
    )
    cells = math.prod(len(V) for V in factors)
    if cells == 1:
        return 0.0
    rest = max(0.0, nuclear * (1 - 8 * len(factors) * _EPS) - largest * (1 + 8 * len(factors) * _EPS))
    return max(single, 2.0 / (cells - 1) * rest**2 * (1 - 8 * _EPS))


def lattice_pair_bound(terms: Terms) -> float:
    """The best dual bound of a union of marginals under replace-one neighbours, in closed form.

    Pairs weigh by the set D of attributes in which they differ. With N cells and ``nu_D >= 0``, ``sum nu = 1``, the
    Laplacian has the eigenspaces of the marginals, S again a set of attributes, and the eigenvalues

        (2/N) h_S,      h_S = sum_D nu_D (1 - prod_{i in D and S} -1/(n_i - 1)),

    so that ``loss >= (sum_S m_S sqrt(2/N kappa_S h_S))^2``, with kappa and m as in HDMM, Theorem 12. The right hand
    side is concave in nu; a step of its maximisation takes O(d 2^d). Relabelling categories changes
    neither workload nor neighbours, so no other weights of pairs do better: the maximum is the least loss of
    any strategy under Gaussian noise.

    Raises :class:`~tabulae.errors.Unsupported` for a union that is not of marginals, or of more than 20 attributes.

    >>> round(lattice_pair_bound([(1.0, [np.eye(3), np.eye(4)])]), 6)
    22.0
    """
    sizes = kron_sizes(terms)
    kappa, multiplicity = lattice_spectrum(terms)
    shape = (2,) * len(sizes)
    keep = tuple(slice(None) if n > 1 else 0 for n in sizes)  # one category has nothing to contrast
    spread = [n for n in sizes if n > 1]
    if not spread:
        return 0.0
    kappa, multiplicity = kappa.reshape(shape)[keep], multiplicity.reshape(shape)[keep]
    roots = multiplicity * np.sqrt(kappa * (2.0 / math.prod(sizes)))
    roots.flat[0] = 0.0  # the total is public
    if not roots.any():
        return 0.0
    best, margin = 0.0, (8 * len(spread) + 8) * _EPS

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        """``-log (sum_S roots sqrt h_S)^2`` at nu = w^2 / sum w^2, and its gradient in w."""
        nonlocal best
        w = w.reshape(roots.shape)
        total = float(np.vdot(w, w))
        h = np.maximum(1.0 - _alternating(w * w / total, spread), margin)
        best = max(best, float((roots * np.sqrt(h - margin)).sum()))
        slope, value = roots / np.sqrt(h), float((roots * np.sqrt(h)).sum())
        ratio = (slope.sum() - _alternating(slope, spread)) / value
        return -2 * math.log(value), (2 * w * (1 - ratio) / total).ravel()

    start = np.ones(roots.shape)
    start.flat[0] = 0.0  # a cell is no neighbour of itself
    minimize(
        objective, start.ravel(), jac=True, method="L-BFGS-B",
        options={"maxiter": min(400, max(10, _STEPS // (roots.size * len(spread)))), "ftol": 1e-13, "gtol": 1e-9},
    )  # fmt: skip
    return best**2 * (1 - (8 * roots.size + 16) * _EPS)


def _alternating(values: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Along every axis i multiply by ``[[1, 1], [1, -1/(n_i - 1)]]``."""
    for i, n in enumerate(sizes):
        first, second = np.take(values, 0, axis=i), np.take(values, 1, axis=i)
        values = np.stack([first + second, first - second / (n - 1)], axis=i)
    return values


def pair_rows_bound(gram: np.ndarray, sums: np.ndarray, cells: int) -> float:
    """The SVD bound under replace from independent rows R of the workload, W'W = R'R; cells are never listed.

    ``gram`` is R R' (r x r) and ``sums`` R 1 (r,), over ``cells`` cells. The singular values of ``R (I - J/N)`` are the
    roots of the eigenvalues of ``R R' - (R 1)(R 1)'/N``.

    >>> R = np.eye(3)[:2]
    >>> round(pair_rows_bound(R @ R.T, R.sum(axis=1), 3), 6), round(pair_svd_bound(R.T @ R), 6)
    (2.488034, 2.488034)
    """
    if cells == 1:
        return 0.0
    centred = gram - np.outer(sums, sums) / cells
    values = np.linalg.eigvalsh(centred)
    rounding = (len(gram) + 4) * _EPS * (float(np.linalg.norm(gram)) + float(sums @ sums) / cells)
    nuclear = float(np.sqrt(np.maximum(values - rounding, 0.0)).sum())
    return 2.0 / (cells - 1) * nuclear**2 * (1 - (4 * len(gram) + 8) * _EPS)
