"""Products with small matrices, cut so that BLAS runs each on one thread.

The blocks of a Kronecker product are worked through by several threads at once; a BLAS that started
threads of its own inside each would spend its time waiting.
"""

from __future__ import annotations

import numpy as np

SMALL_MATRIX = 2**14  # entries: such a matrix times 16 columns stays within the limit below
_SINGLE_THREAD = 2**18  # rows x columns x inner size up to which OpenBLAS uses one thread


def columns_on_one_thread(a: np.ndarray) -> int:
    """How many columns BLAS multiplies by ``a`` without starting threads."""
    return max(16, _SINGLE_THREAD // a.size)


def small_matmul(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``a @ x`` for ``a`` of shape ``(m, n)`` and ``x`` of shape ``(left, n, right)``."""
    (m, n), (left, _, right) = a.shape, x.shape
    if right == 1 and left > 1:
        return small_matmul(a, x.reshape(1, left, n).transpose(0, 2, 1))[0].T[:, :, None]
    out = np.empty((left, m, right))
    width = columns_on_one_thread(a)
    whole = right - right % width
    if whole:
        pieces = whole // width
        source = x[:, :, :whole].reshape(left, n, pieces, width).transpose(0, 2, 1, 3)
        target = out[:, :, :whole].reshape(left, m, pieces, width).transpose(0, 2, 1, 3)
        np.matmul(a, source, out=target)
    if whole < right:
        np.matmul(a, x[:, :, whole:], out=out[:, :, whole:])
    return out
