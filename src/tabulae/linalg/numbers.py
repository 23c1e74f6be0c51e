"""Column sums and bounds of matrices of numbers: exact for integers, rounded up for floats."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import InvalidArgument

_AT_ONCE = 2**20  # numbers that are made positive, or divided, at once
INT64_LIMIT = 2**63
EXACT_FLOAT_LIMIT = 2**53  # integers below this are exact in float64

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


def power_sums(columns: np.ndarray, p: int) -> np.ndarray:
    """``sum_i |a_ij|^p`` of a dense block; integers stay exact, as Python integers past int64."""
    magnitude = np.abs(columns)
    if columns.dtype == np.float64:
        return (magnitude if p == 1 else magnitude * magnitude).sum(axis=0)
    largest = int(magnitude.max()) if magnitude.size else 0
    if largest**p * columns.shape[0] >= INT64_LIMIT:
        magnitude = magnitude.astype(object)
    return (magnitude if p == 1 else magnitude * magnitude).sum(axis=0)


def scaled_norms(norms: np.ndarray, factor: Coefficient, *, whole: bool) -> np.ndarray:
    """Norms times a factor, in Python integers where int64 could overflow."""
    if not whole:
        return norms.astype(np.float64) * float(factor)
    if norms.dtype != object and int(norms.max()) * int(factor) >= INT64_LIMIT:
        norms = norms.astype(object)
    return norms * int(factor)


def add_norms(parts: list[np.ndarray]) -> np.ndarray:
    """The sum of several vectors of norms, in Python integers where int64 could overflow."""
    if any(part.dtype == np.float64 for part in parts):
        return np.sum([part.astype(np.float64) for part in parts], axis=0)
    if sum(int(part.max()) for part in parts) >= INT64_LIMIT:
        parts = [part.astype(object) for part in parts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


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
