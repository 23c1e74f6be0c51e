"""What operators need of arrays: exact integer sums and products, bounds, digests, and labels of classes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from ..errors import InvalidArgument

_AT_ONCE = 2**20  # numbers that are made positive, or divided, at once
INT64_LIMIT = 2**63
EXACT_FLOAT_LIMIT = 2**53  # integers below this are exact in float64
SMALL_MATRIX = 2**14  # entries: such a matrix times 16 columns stays within the limit below
_SINGLE_THREAD = 2**18  # rows x columns x inner size up to which OpenBLAS uses one thread

Coefficient = int | Fraction | float


def check_power(p: int) -> None:
    """Refuse a norm other than L1 and L2."""
    if isinstance(p, bool) or p not in (1, 2):
        raise InvalidArgument(f"the norm is p = 1 or p = 2, not {p!r}")


def check_size(value: Any, name: str) -> int:
    """A size as a Python integer, at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgument(f"{name} must be an integer of at least 1, not {value!r}")
    size = int(value.__index__())
    if size < 1:
        raise InvalidArgument(f"{name} must be at least 1, not {size}")
    return size


def widened(x: np.ndarray, bound: int) -> np.ndarray:
    """The numbers as they are, or as Python integers where ``bound``, of what becomes of them, exceeds int64."""
    return x.astype(object) if bound >= INT64_LIMIT else x


def power_sums(columns: np.ndarray, p: int) -> np.ndarray:
    """``sum_i |a_ij|^p`` of a dense block; integers stay exact, as Python integers past int64."""
    magnitude = np.abs(columns)
    if columns.dtype != np.float64:
        magnitude = widened(magnitude, int(magnitude.max(initial=0)) ** p * columns.shape[0])
    return (magnitude if p == 1 else magnitude * magnitude).sum(axis=0)


def scaled_norms(norms: np.ndarray, factor: Coefficient, *, whole: bool) -> np.ndarray:
    """Norms times a factor, in Python integers where int64 could overflow."""
    if not whole:
        return norms.astype(np.float64) * float(factor)
    return widened(norms, int(norms.max()) * int(factor)) * int(factor)


def add_norms(parts: list[np.ndarray]) -> np.ndarray:
    """The sum of several vectors of norms, in Python integers where int64 could overflow."""
    if any(part.dtype == np.float64 for part in parts):
        return np.sum([part.astype(np.float64) for part in parts], axis=0)
    bound = sum(int(part.max()) for part in parts)
    return reduce(np.add, [widened(part, bound) for part in parts])


def bound_product(a: Coefficient, b: Coefficient) -> int | float:
    """A product of bounds: exact for integers, rounded up otherwise."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return float(a) * float(b) * (1 + 2.0**-50)


def bound_sum(bounds: list[int | float]) -> int | float:
    """A sum of bounds: exact for integers, rounded up otherwise."""
    if all(isinstance(bound, int) for bound in bounds):
        return sum(bounds)
    return sum(float(bound) for bound in bounds) * (1 + len(bounds) * 2.0**-50)


def upper_bound(sums: Any, terms: int) -> int | float:
    """The largest of some sums, rounded up past the error of summing ``terms`` floats."""
    largest = np.max(sums)
    if isinstance(largest, np.floating):
        return float(largest) * (1 + 4 * (terms + 2) * 2.0**-53)
    return int(largest)


def largest_abs_sum(x: np.ndarray, largest: int) -> int:
    """``max_k sum_j |x_jk|`` of an integer block, exactly."""
    step = max(1, _AT_ONCE // max(1, math.prod(x.shape[1:])))
    parts = [x[start : start + step] for start in range(0, x.shape[0], step)]
    if largest * x.shape[0] < INT64_LIMIT:
        return int(np.max(sum(np.abs(part).sum(axis=0) for part in parts)))
    high = sum(np.abs(part >> 32).sum(axis=0).astype(object) for part in parts)
    low = sum((part & 0xFFFFFFFF).sum(axis=0).astype(object) for part in parts)
    return int(np.max(high * 2**32 + low))


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only, contiguous copy that shares no memory with what the caller holds."""
    copy = np.array(array, order="C", copy=True)
    copy.setflags(write=False)
    return copy


def digest(*arrays: np.ndarray) -> bytes:
    """A 32-byte digest of shape, type and content."""
    state = hashlib.blake2b(digest_size=32)
    for array in arrays:
        state.update(repr((array.shape, array.dtype.str)).encode())
        state.update(np.ascontiguousarray(array).data)
    return state.digest()


def largest_abs(x: np.ndarray) -> int:
    """``max |x|`` of an integer array, as a Python integer (int64's smallest value has no int64 negative)."""
    return max(int(x.max()), -int(x.min())) if x.size else 0


def integer_matmul(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``a @ x`` in int64, broadcast over leading axes of ``x``, exact whenever the result fits int64.

    ``float64`` holds every integer below ``2^53``, so a product whose partial sums stay below that is exact
    in BLAS. Above it the operands are split into limbs that stay below it, and the parts are added in
    ``int64``; a carry that wraps there wraps back, because the sum fits.
    """
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


def columns_on_one_thread(a: np.ndarray) -> int:
    """How many columns BLAS multiplies by ``a`` without starting threads."""
    return max(16, _SINGLE_THREAD // a.size)


def small_matmul(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``a @ x`` for ``a`` of shape ``(m, n)`` and ``x`` of shape ``(left, n, right)``.

    The blocks of a Kronecker product are worked through by several threads at once; a BLAS that started
    threads of its own inside each would spend its time waiting.
    """
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


def joint_classes(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Labels of the tuples formed by several label vectors, numbered by first appearance."""
    joint = labels[0]
    for other in labels[1:]:
        low, high = int(other.min()), int(other.max())
        if low < high:
            joint = renumber(joint * (high - low + 1) + (other - low))
    return renumber(joint)


def renumber(labels: np.ndarray) -> np.ndarray:
    """The same classes, numbered 0, 1, 2, ... by first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def classes_of_rows(rows: np.ndarray) -> np.ndarray:
    """A label for every row of an array, equal exactly where the rows are equal."""
    plain = np.ascontiguousarray(rows + 0 if rows.dtype.kind != "f" else rows + 0.0)  # -0.0 equals 0.0
    seen: dict[bytes, int] = {}
    return np.fromiter(
        (seen.setdefault(row.tobytes(), len(seen)) for row in plain), np.int64, count=len(plain)
    )


def representatives(labels: np.ndarray) -> np.ndarray:
    """The first cell of each class, in the order of the labels."""
    return np.unique(labels, return_index=True)[1]
