"""Exact products of integer matrices at the speed of floating point.

``float64`` holds every integer below ``2^53``, so a product whose partial sums stay below that is exact
in BLAS. Above it the operands are split into limbs that stay below it, and the parts are added in
``int64``; a carry that wraps there wraps back, because the sum fits.
"""

from __future__ import annotations

import numpy as np

from .numbers import EXACT_FLOAT_LIMIT


def largest_abs(x: np.ndarray) -> int:
    """``max |x|`` of an integer array, as a Python integer (int64's smallest value has no int64 negative)."""
    return max(int(x.max()), -int(x.min())) if x.size else 0


def integer_matmul(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``a @ x`` in int64, broadcast over leading axes of ``x``, exact whenever the result fits int64."""
    row_sum = int(np.abs(a).sum(axis=1, dtype=object).max()) if largest_abs(a) >= 2**31 else _row_sum(a)
    if row_sum * largest_abs(x) < EXACT_FLOAT_LIMIT:
        return np.matmul(a.astype(np.float64), x.astype(np.float64)).astype(np.int64)
    room = 52 - row_sum.bit_length()
    if room >= 8:
        return _add_limbs([(a.astype(np.float64), 0)], x, room)
    half = (52 - int(a.shape[1]).bit_length()) // 2
    return _add_limbs(_limbs(a, half), x, half)


def _row_sum(a: np.ndarray) -> int:
    return int(np.abs(a).sum(axis=1).max()) if a.size else 0


def _limbs(x: np.ndarray, bits: int) -> list[tuple[np.ndarray, int]]:
    """``x = sum of limb * 2^shift``, each limb below ``2^bits`` in size and held as float64."""
    parts, shift, rest = [], 0, x
    while shift + bits < 64 and largest_abs(rest) >= 2**bits:
        parts.append(((rest & (2**bits - 1)).astype(np.float64), shift))
        rest = rest >> bits
        shift += bits
    parts.append((rest.astype(np.float64), shift))
    return parts


def _add_limbs(left: list[tuple[np.ndarray, int]], x: np.ndarray, bits: int) -> np.ndarray:
    total = np.zeros((*x.shape[:-2], left[0][0].shape[0], x.shape[-1]), dtype=np.int64)
    for limb, shift in _limbs(x, bits):
        for part, offset in left:
            if shift + offset < 64:  # beyond, the term is a multiple of 2^64 and vanishes
                total += np.matmul(part, limb).astype(np.int64) << (shift + offset)
    return total
