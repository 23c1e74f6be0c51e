"""The algebra of marginals: every matrix that sums of marginals make, as 2^d numbers.

For attributes of sizes ``n_1 ... n_d`` and a set a of them let ``H(a)`` be the Gram matrix of the marginal over a:
``H(a) = (x)_i [I if i in a else J]``, J of ones. ``G(v) = sum_a v_a H(a)`` commute, are closed under products and
inverses, and share their eigenspaces: one for each set, spanned by ``E(S) = (x)_i [I - J/n_i if i in S else J/n_i]``,

    G(v) = sum_S kappa_S E(S),   kappa_S = sum_{a contains S} v_a c_a,   c_a = prod_{i not in a} n_i,

of dimension ``prod_{i in S} (n_i - 1)``. Everything is done on kappa: sums over supersets and their inverse
take d passes over 2^d numbers, where the triangular systems of the published algorithms take 4^d steps.

A set is an index into arrays of length ``2^d``; attribute 0 is the highest bit, so that an array reshaped to
``(2,) * d`` has an axis for each attribute, in order.

Reference: McKenna, Miklau, Hay, Machanavajjhala, "HDMM", sections 7 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROUNDING = 1e-12  # share of the largest eigenvalue below which one is zero, where terms may cancel


def superset_sum(values: np.ndarray) -> np.ndarray:
    """``out_S = sum_{a contains S} values_a``: the zeta transform over supersets of the last axis, (..., 2^d).

    >>> superset_sum(np.array([1.0, 2.0, 3.0, 4.0])).tolist()  # {}, {1}, {0}, {0, 1}
    [10.0, 6.0, 7.0, 4.0]
    """
    return _transform(values, into=0, sign=1)


def subset_sum(values: np.ndarray) -> np.ndarray:
    """``out_a = sum_{S within a} values_S``, the transpose of :func:`superset_sum`.

    >>> subset_sum(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [1.0, 3.0, 4.0, 10.0]
    """
    return _transform(values, into=1, sign=1)


def superset_difference(values: np.ndarray) -> np.ndarray:
    """The inverse of :func:`superset_sum`, the Moebius transform.

    >>> superset_difference(superset_sum(np.array([1.0, 2.0, 3.0, 4.0]))).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return _transform(values, into=0, sign=-1)


def _transform(values: np.ndarray, *, into: int, sign: int) -> np.ndarray:
    out = np.array(values, dtype=np.float64)
    half = out.shape[-1] // 2
    while half:
        pairs = out.reshape(-1, 2, half)
        pairs[:, into] += sign * pairs[:, 1 - into]
        half //= 2
    return out


def characteristic(sizes: Sequence[int]) -> np.ndarray:
    """``c_a = prod_{i not in a} n_i``, (2^d,): the cells summed in one cell of the marginal over a.

    Reference: HDMM, Definition 21.

    >>> characteristic([2, 5]).tolist()
    [10.0, 2.0, 5.0, 1.0]
    """
    return _products([(float(n), 1.0) for n in sizes])


def multiplicities(sizes: Sequence[int]) -> np.ndarray:
    """``prod_{i in S} (n_i - 1)``, (2^d,): the dimension of the eigenspace of S.

    >>> multiplicities([2, 5]).tolist()
    [1.0, 4.0, 1.0, 4.0]
    """
    return _products([(1.0, n - 1.0) for n in sizes])


def _products(pairs: Sequence[tuple[float, float]]) -> np.ndarray:
    out = np.ones(1)
    for pair in pairs:
        out = np.multiply.outer(out, np.array(pair)).ravel()
    return out


def eigenvalues(sizes: Sequence[int], v: np.ndarray) -> np.ndarray:
    """kappa of ``G(v)``, (2^d,).

    Reference: HDMM, Theorem 9.

    >>> eigenvalues([2, 5], np.array([0.0, 0, 0, 1])).tolist()  # the identity
    [1.0, 1.0, 1.0, 1.0]
    """
    return superset_sum(np.asarray(v) * characteristic(sizes))


def weights_of(sizes: Sequence[int], kappa: np.ndarray) -> np.ndarray:
    """v such that ``G(v)`` has the eigenvalues kappa: every matrix in the span of the E(S) is one of them.

    >>> weights_of([2], np.array([3.0, 1.0])).tolist()  # I + J
    [1.0, 1.0]
    """
    return superset_difference(kappa) / characteristic(sizes)


def product(sizes: Sequence[int], u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """w with ``G(u) G(v) = G(w)``.

    Reference: HDMM, Theorem 7.

    >>> product([2, 5], np.array([0.0, 1, 0, 0]), np.array([0.0, 0, 1, 0])).tolist()  # H({1}) H({0}) = H({})
    [1.0, 0.0, 0.0, 0.0]
    """
    return weights_of(sizes, eigenvalues(sizes, u) * eigenvalues(sizes, v))


def pseudo_inverse(sizes: Sequence[int], v: np.ndarray) -> np.ndarray:
    """w with ``G(w) = G(v)^+``, the inverse where G(v) has one.

    Eigenvalues below 1e-12 of the largest count as zero.

    Reference: HDMM, Theorem 8.

    >>> pseudo_inverse([2], np.array([1.0, 0.0])).tolist()  # J^+ = J / 4
    [0.25, 0.0]
    """
    kappa = eigenvalues(sizes, v)
    kept = np.abs(kappa) > _ROUNDING * np.abs(kappa).max()
    return weights_of(sizes, np.where(kept, 1.0, 0.0) / np.where(kept, kappa, 1.0))


def trace(sizes: Sequence[int], v: np.ndarray) -> float:
    """``tr G(v) = sum_S kappa_S prod_{i in S} (n_i - 1)``.

    >>> trace([2, 5], np.array([0.0, 0, 0, 1]))
    10.0
    """
    return float(multiplicities(sizes) @ eigenvalues(sizes, v))


def equivalent_marginals(sizes: Sequence[int], components: np.ndarray) -> np.ndarray:
    """w such that ``tr[G(u) W'W] = tr[G(u) G(w)]`` for all u: what marginal strategies see of any workload.

    ``components`` are ``f_S = tr[E(S) W'W]``, (2^d,). For sums of products some w_a may be negative; the
    eigenvalues never are. Attributes of one category have no component beside the mean, and f is 0 there.

    Reference: HDMM, Theorem 10.

    >>> equivalent_marginals([2], np.array([3.0, 1.0])).tolist()  # all ranges over two cells: I + J
    [1.0, 1.0]
    """
    dimension = multiplicities(sizes)
    kappa = np.divide(components, dimension, out=np.zeros(len(dimension)), where=dimension > 0)
    return weights_of(sizes, kappa)


def squared_error(sizes: Sequence[int], v: np.ndarray, components: np.ndarray) -> float:
    """``tr[G(v)^+ W'W] = sum_S f_S / kappa_S``: total variance where marginal a has precision v_a.

    Infinite where the marginals do not determine the workload.

    Reference: HDMM, Theorem 11.

    >>> squared_error([2, 5], np.array([0.0, 0, 0, 1]), multiplicities([2, 5]))  # the identity on itself
    10.0
    """
    asked = np.asarray(components) > 0
    kappa = eigenvalues(sizes, v)[asked]
    with np.errstate(divide="ignore"):
        return float((components[asked] / kappa).sum()) if (kappa >= 0).all() else np.inf


def svd_bound(sizes: Sequence[int], components: np.ndarray) -> float:
    """``(sum_S sqrt(f_S dim_S))^2 / N``: no marginal strategy has a smaller loss for f under L2 sensitivity.

    For a workload of marginals it is the SVD bound, and no strategy of any kind has. (In floating point:
    :func:`tabulae.strategy.bounds.dual.svd_bound_kron` takes the rounding errors off.)

    Reference: HDMM, Theorem 12.

    >>> svd_bound([2, 5], multiplicities([2, 5]))
    10.0
    """
    roots = np.sqrt(np.maximum(components, 0.0) * multiplicities(sizes))
    return float(roots.sum() ** 2 / np.prod(np.asarray(sizes, dtype=float)))


def closed_form(sizes: Sequence[int], components: np.ndarray) -> np.ndarray:
    """v with ``G(v)^2 = G(w)``: optimal precisions of the marginals where none of them is negative.

    Then the strategy attains :func:`svd_bound`. A negative v_a (an imaginary weight ``theta_a = sqrt(v_a)``) means
    that no set of marginals does.

    Reference: HDMM, Theorem 13.

    >>> closed_form([2, 5], multiplicities([2, 5])).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    dimension = multiplicities(sizes)
    kappa = np.divide(
        np.maximum(components, 0.0), dimension, out=np.zeros(len(dimension)), where=dimension > 0
    )
    return weights_of(sizes, np.sqrt(kappa))
