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


def superset_sum(values: np.ndarray, together: int = 1) -> np.ndarray:
    """``out_S = sum_{a contains S} values_a``: the zeta transform over supersets of the last axis, (..., 2^d).

    ``together``: how many numbers, each for itself, stand in the place of each set.

    >>> superset_sum(np.array([1.0, 2.0, 3.0, 4.0])).tolist()  # {}, {1}, {0}, {0, 1}
    [10.0, 6.0, 7.0, 4.0]
    """
    return _transform(values, into=0, sign=1, together=together)


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


def _transform(values: np.ndarray, *, into: int, sign: int, together: int = 1) -> np.ndarray:
    out, change = np.array(values, dtype=np.float64), np.add if sign > 0 else np.subtract
    half = out.shape[-1] // 2
    while half >= together:
        pairs = out.reshape(-1, 2, half)
        change(pairs[:, into], pairs[:, 1 - into], out=pairs[:, into])
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


def closed_form(sizes: Sequence[int], components: np.ndarray) -> np.ndarray:
    """v with ``G(v)^2 = G(w)``: optimal precisions of the marginals where none of them is negative.

    Then the strategy attains the SVD bound. A negative v_a (an imaginary weight ``theta_a = sqrt(v_a)``) means
    that no set of marginals does.

    Reference: HDMM, Theorem 13.

    >>> closed_form([2, 5], multiplicities([2, 5])).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    dimension = multiplicities(sizes)
    kappa = np.divide(
        np.maximum(components, 0.0), dimension, out=np.zeros(len(dimension)), where=dimension > 0
    )
    return superset_difference(np.sqrt(kappa)) / characteristic(sizes)
