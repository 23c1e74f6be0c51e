"""Orthonormal bases of a null space. Gaussian noise does not see which; Laplace noise does.

``generic_basis`` comes from a decomposition and mixes all entries. ``dissected_basis`` is local: the entries are
split into halves; what is null within a half gets a basis there, recursively, and only what needs both halves is
spread over both. An entry then meets at most ``n_c`` vectors on each of ``log2 n`` levels, and the L1 length of its
row stays of the order of one (for a single total the basis is Haar's).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as sl

_RELATIVE = 1e-10


def generic_basis(C: np.ndarray) -> np.ndarray:
    """An orthonormal basis of ``{v : C v = 0}``, (n, n - rank), from a singular value decomposition.

    >>> generic_basis(np.ones((1, 4))).shape
    (4, 3)
    """
    n = C.shape[1]
    if not C.size or not C.any():
        return np.eye(n)
    _, values, vectors = sl.svd(C, full_matrices=True)
    rank = int((values > _RELATIVE * values[0]).sum())
    return np.ascontiguousarray(vectors[rank:].T)


def dissected_basis(C: np.ndarray) -> np.ndarray:
    """An orthonormal basis of ``{v : C v = 0}``, (n, n - rank), whose vectors stand on few entries.

    >>> np.round(np.abs(dissected_basis(np.ones((1, 4)))) ** 2, 3).T.tolist()  # Haar's
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], [0.25, 0.25, 0.25, 0.25]]
    """
    n = C.shape[1]
    if n <= 1 or not C.any():
        return generic_basis(C)
    half = (n + 1) // 2
    inner = np.asarray(sl.block_diag(dissected_basis(C[:, :half]), dissected_basis(C[:, half:])))
    # What is null only across the halves: the null space of C and of all that was found within them.
    across = generic_basis(np.vstack([C / np.abs(C).max(), inner.T]))
    return np.hstack([inner, across])
