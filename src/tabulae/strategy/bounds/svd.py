"""Lower bounds on the error of every strategy: what no choice of queries can beat.

All bounds are on ``loss = ||A||^2 ||W A^+||_F^2``, the total squared error of the workload W at unit noise
and unit sensitivity. They are proven for L2 sensitivity (Gaussian noise) and hold for L1 sensitivity
(Laplace noise) too, because no column's L1 norm is below its L2 norm. For any ``mu >= 0``, D = diag(mu),

    loss >= (tr (D^1/2 V D^1/2)^1/2)^2 / tr D,        V = W'W,

the dual of the convex problem ``min tr[X^-1 V], diag X <= 1``; equal multipliers give the SVD bound. Every
number returned has had its rounding errors taken off, so it is a bound in floating point as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg as sl

from ...errors import InvalidArgument, Unsupported
from ..gram import checked_gram

_EPS = float(np.finfo(np.float64).eps)
_LATTICE_ATTRIBUTES = 20

Terms = Sequence[tuple[float, Sequence[np.ndarray]]]
"""``W'W = sum_l c_l V_l1 (x) ... (x) V_ld``: coefficients and per-attribute Gram matrices (n_i x n_i)."""


def dual_bound(gram: np.ndarray, multipliers: np.ndarray) -> float:
    """Lower bound on the loss of any strategy, certified by dual multipliers.

    ``(tr (D^1/2 V D^1/2)^1/2)^2 / tr D`` with D = diag(multipliers), rounded down: each eigenvalue is
    lowered by (n + 4) eps ||D^1/2 V D^1/2||_F, which covers the eigensolver's backward error
    (:func:`lowered_trace`).

    ``gram`` is V = W'W (n x n), in squared queries; ``multipliers`` (n,) are non-negative, not all zero.

    Raises :class:`~tabulae.errors.InvalidArgument` for multipliers that are negative, missing or all zero.

    Reference: Lagrange dual of the problem in HDMM, Definition 12.

    >>> round(dual_bound(np.ones((3, 3)), np.ones(3)), 9)  # the total alone: one query of variance 1
    1.0
    """
    V, mu = checked_gram(gram), np.asarray(multipliers, dtype=np.float64)
    if mu.shape != (V.shape[0],) or not (np.isfinite(mu).all() and (mu >= 0).all() and mu.any()):
        raise InvalidArgument(f"multipliers must be {V.shape[0]} non-negative numbers, not all zero.")
    root = np.sqrt(mu / mu.max())
    n = V.shape[0]
    return lowered_trace(V * root * root[:, None]) ** 2 / float(root @ root) * (1 - (4 * n + 8) * _EPS)


def lowered_trace(matrix: np.ndarray, terms: int = 0) -> float:
    """Lower bound on ``tr M^1/2`` for a positive semi-definite M (n x n) known up to rounding.

    Each eigenvalue is lowered by ``(n + terms + 4) eps ||M||_F``: the eigensolver's backward error, and that of sums
    of ``terms`` numbers in the entries of M.
    """
    return lowered_roots(sl.eigvalsh(matrix, overwrite_a=True, check_finite=False), terms)


def lowered_roots(values: np.ndarray, terms: int = 0) -> float:
    """:func:`lowered_trace` of a matrix whose eigenvalues (n,) have been computed."""
    margin = (len(values) + terms + 4) * _EPS * float(np.linalg.norm(values))
    return float(np.sqrt(np.maximum(values - margin, 0.0)).sum())


def svd_bound(gram: np.ndarray) -> float:
    """The SVD bound ``(sum of singular values of W)^2 / n`` of an explicit workload.

    ``gram`` is V = W'W (n x n), in squared queries. Reference: HDMM, Theorem 5; Li and Miklau (2013).

    >>> round(svd_bound(np.eye(4)), 9)
    4.0
    """
    return dual_bound(gram, np.ones(np.shape(gram)[0]))


def svd_bound_kron(terms: Terms) -> float:
    """The SVD bound of a workload made of Kronecker products, where it has a closed form.

    One product: the product of its factors' bounds. Several products whose factors are all of the form
    ``a I + b J`` (marginals, at any weights): the spectrum lies on the lattice of attribute subsets S, with

        kappa_S = sum_l c_l prod_{i in S} a_li prod_{i not in S} (a_li + n_i b_li)

    of multiplicity ``prod_{i in S} (n_i - 1)``, found in O(2^d (d + 1)) steps for marginals.

    ``terms`` are pairs (coefficient, [V_1, ..., V_d]); the sum is a Gram matrix, single coefficients may be
    negative.

    Raises :class:`~tabulae.errors.InvalidArgument` for terms that do not fit together,
    :class:`~tabulae.errors.Unsupported` for a union that is not of marginals, or of more than 20 attributes.

    Reference: HDMM, Theorems 5 and 12.

    >>> ones, eye = np.ones((3, 3)), np.eye(3)
    >>> round(svd_bound_kron([(1.0, [eye, ones]), (1.0, [ones, eye])]), 9)  # both one-way marginals
    9.771236166
    """
    sizes = kron_sizes(terms)
    if len(terms) == 1:
        coefficient, factors = terms[0]
        return float(coefficient * (1 - 4 * len(sizes) * _EPS) * np.prod([svd_bound(V) for V in factors]))
    lowered, multiplicity = lattice_spectrum(terms)
    rounding = (multiplicity.size + 4 * len(sizes)) * _EPS
    return float(multiplicity @ np.sqrt(lowered)) ** 2 / float(np.prod(sizes)) * (1 - rounding)


def lattice_spectrum(terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of a union of marginals, rounded down, and their multiplicities; both (2^d,).

    Position S in binary, first attribute first, is the set of attributes whose categories are contrasted.

    Raises as :func:`svd_bound_kron` does.

    >>> kappa, multiplicity = lattice_spectrum([(1.0, [np.eye(3), np.ones((2, 2))])])
    >>> kappa.round(9).tolist(), multiplicity.tolist()
    ([2.0, 0.0, 2.0, 0.0], [1.0, 1.0, 2.0, 2.0])
    """
    sizes = kron_sizes(terms)
    shared = {id(V): V for _, factors in terms for V in factors}
    pairs = {key: identity_and_ones(V) for key, V in shared.items()}
    if None in pairs.values():
        raise Unsupported(
            "the SVD bound of a union of products is known in closed form for marginals only (every factor "
            "a I + b J); for other unions take the bound of W'W as one matrix, svd_bound, where it fits."
        )
    if len(sizes) > _LATTICE_ATTRIBUTES:
        raise Unsupported(
            f"the SVD bound of a union of marginals lists all subsets of its {len(sizes)} attributes; "
            f"it is computed up to {_LATTICE_ATTRIBUTES}."
        )
    parts = np.array([[pairs[id(V)] for V in factors] for _, factors in terms], dtype=np.float64)
    return _lattice(np.array([c for c, _ in terms]), parts, np.array(sizes, dtype=np.float64))


def kron_sizes(terms: Terms) -> tuple[int, ...]:
    """The attribute sizes (n_1, ..., n_d) that all terms share; InvalidArgument where they do not fit."""
    if not terms:
        raise InvalidArgument("terms is empty: a workload has at least one Kronecker product.")
    sizes = tuple(V.shape[0] for V in terms[0][1])
    checked: set[int] = set()
    for position, (coefficient, factors) in enumerate(terms):
        if not np.isfinite(coefficient) or tuple(V.shape[0] for V in factors) != sizes or not sizes:
            raise InvalidArgument(
                f"terms[{position}] needs a finite coefficient and one Gram matrix per attribute: {sizes}."
            )
        for i, V in enumerate(factors):
            if id(V) not in checked:  # factors are shared between hundreds of terms
                checked.add(id(V))
                _check_factor(V, f"terms[{position}], attribute {i}")
    if len(terms) == 1 and terms[0][0] <= 0:
        raise InvalidArgument(f"the only product has coefficient {terms[0][0]}: it must be positive.")
    return sizes


def _check_factor(V: np.ndarray, what: str) -> None:
    if V.ndim != 2 or V.shape[0] != V.shape[1] or V.shape[0] == 0 or not np.isfinite(V).all():
        raise InvalidArgument(f"{what}: needs a finite square matrix, got shape {V.shape}.")


def identity_and_ones(V: np.ndarray) -> tuple[float, float, float] | None:
    """Eigenvalues of V = a I + b J on the ones vector and beside it, or None for any other matrix.

    The third number is the size of what was added up for the first, to judge its rounding error by.
    """
    n, diagonal = V.shape[0], float(V[0, 0])
    if n == 1:
        return diagonal, 0.0, abs(diagonal)
    b = float(V[0, 1])
    pattern = np.full((n, n), b)
    np.fill_diagonal(pattern, diagonal)
    if not np.array_equal(V, pattern):
        return None
    return diagonal + (n - 1) * b, diagonal - b, abs(diagonal) + (n - 1) * abs(b)


def _lattice(coefficients: np.ndarray, parts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Theorem 12 with rounding margin; ``parts`` (k, d, 3) holds each factor's eigenvalues.

    Attributes are folded in from the last: terms that agree on all earlier ones are added up first, so a
    fold never holds more than 2^d numbers for marginals. Row 0 carries the sums, row 1 those of absolutes.
    """
    k, d = parts.shape[:2]
    kappa: dict[bytes, np.ndarray] = {}
    for c, part in zip(coefficients, parts, strict=True):
        kappa[part.tobytes()] = kappa.get(part.tobytes(), 0.0) + np.array([[c], [abs(c)]])
    width = parts[0, 0].nbytes
    for _ in range(d):
        folded: dict[bytes, np.ndarray] = {}
        for key, values in kappa.items():
            on_ones, beside, size = np.frombuffer(key[-width:])
            both = np.concatenate([values * [[on_ones], [size]], values * [[beside], [abs(beside)]]], axis=1)
            earlier = folded.get(key[:-width])
            folded[key[:-width]] = both if earlier is None else earlier + both
        kappa = folded
    multiplicity = np.ones(1)
    for n in sizes[::-1]:
        multiplicity = np.concatenate([multiplicity, multiplicity * (n - 1)])
    signed, absolute = kappa[b""]
    return np.maximum(signed - (k + 4 * d) * _EPS * absolute, 0.0), multiplicity
