"""Exact arithmetic of small integer matrices: inverses and null spaces, from their echelon form."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..linalg import IntegerEchelon


def exact_inverse(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """Integers H (n x n, Python's) and a denominator D with ``H / D`` the inverse of a non-singular int64 matrix.

    >>> H, D = exact_inverse(np.array([[2, 1], [1, 2]]))
    >>> H.tolist(), D
    ([[2, -1], [-1, 2]], 3)
    """
    echelon = _echelon(matrix)
    assert len(echelon.kept) == len(matrix), "only a non-singular matrix has an inverse"
    H = np.zeros(matrix.shape, dtype=object)
    H[echelon.pivots] = echelon.inverse.astype(object)  # matrix = B P with P a permutation
    return H, echelon.inverse_divisor


def null_basis(matrix: np.ndarray) -> np.ndarray:
    """Integer rows that span ``{v : matrix v = 0}``, (n - rank, n), Python's integers; matrix is int64.

    One row for each column without a pivot: the smallest integers with nothing at the other such columns.

    >>> null_basis(np.array([[1, 1, 1]])).tolist()
    [[-1, 1, 0], [-1, 0, 1]]
    """
    n = matrix.shape[1]
    echelon = _echelon(matrix)
    free = np.setdiff1d(np.arange(n), echelon.pivots)
    basis = np.zeros((len(free), n), dtype=object)
    basis[np.arange(len(free)), free] = echelon.divisor
    if echelon.kept:
        basis[:, echelon.pivots] = -echelon.reduced[:, free].T.astype(object)
    for row in basis:
        row //= np.gcd.reduce(row)
    return basis


def _echelon(matrix: np.ndarray) -> IntegerEchelon:
    echelon = IntegerEchelon(matrix.shape[1])
    echelon.extend(sp.csr_array(matrix))
    return echelon
