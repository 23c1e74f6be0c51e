"""Whole numbers that may not overflow, and the checks of what comes in; no message holds one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..domain import Domain
from ..errors import InvalidArgument, Unsupported
from ..linalg import LinearOperator

Integers = NDArray[np.int64]

#: Vectors longer than this are not made: 50 million cells, 0.4 GB.
VECTOR_LIMIT = 50_000_000
#: Answers of this size are refused, so that noise can be added to them without overflow.
ANSWER_LIMIT = 2**62
#: Cells that are looked at together.
BLOCK = 2**16


def check_codes(domain: Domain, cells: ArrayLike) -> NDArray[Any]:
    """Codes of shape (records, attributes), each of a category that exists."""
    codes = np.asarray(cells)
    width = len(domain.shape)
    if codes.ndim == 1 and codes.size == 0:
        codes = np.zeros((0, width), dtype=np.int64)
    if codes.ndim != 2 or codes.shape[1] != width:
        raise InvalidArgument(
            f"codes must have one row a record and one column for each of {', '.join(domain.names)}: shape "
            f"(records, {width}), not {codes.shape}"
        )
    if codes.dtype.kind not in "iu":
        raise InvalidArgument(f"codes must be integers, the positions of categories, not dtype {codes.dtype}")
    for axis, attribute in enumerate(domain.attributes):
        column = codes[:, axis]
        if column.size and (column.min() < 0 or column.max() >= attribute.size):
            outside = column[(column < 0) | (column >= attribute.size)]
            raise InvalidArgument(
                f"codes of {attribute.name!r} must lie in 0..{attribute.size - 1}, and some do not: code k "
                "stands for the k-th category",
                confidential=f"{outside.size} codes of {attribute.name!r} are outside, such as {outside[0]}",
            )
    return codes


def check_whole(array: NDArray[Any], what: str) -> Integers:
    """A fresh int64 array of non-negative whole numbers, or an error that holds none of them."""
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"{what} must be numbers, not dtype {array.dtype}")
    if array.size:
        if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.floor(array)).all()):
            raise InvalidArgument(f"{what} must be whole numbers; some are fractions or not finite")
        if array.min() < 0:
            raise InvalidArgument(f"{what} must not be negative, and some are")
        if array.max() >= (2**53 if array.dtype.kind == "f" else 2**62):
            raise InvalidArgument(f"{what} must be below 2^62 (2^53 for floats), and some are not")
    whole = array.astype(np.int64)
    if exact_sum(whole) >= ANSWER_LIMIT:
        raise InvalidArgument(f"{what} must add up to less than 2^62")
    return whole


def exact_sum(x: Integers) -> int:
    """The sum as a Python integer, which cannot overflow."""
    return (int((x >> 32).sum()) << 32) + int((x & 0xFFFFFFFF).sum())


def check_bound(op: LinearOperator, bound: int) -> int:
    """The bound on answers of ``op``, if 64-bit integers hold them with room for noise."""
    if bound >= ANSWER_LIMIT:
        raise Unsupported(
            f"answers of {op!r} could reach 2^62, where 64-bit integers end: round the matrix to a coarser "
            "grid (a smaller scale exponent), or divide the query into smaller ones"
        )
    return bound


def added_up(index: Integers, people: Integers | None, size: int) -> Integers:
    """``x[i] = sum of people[j] over j with index[j] == i``, exactly."""
    if people is None:
        return np.bincount(index, minlength=size).astype(np.int64, copy=False)
    if exact_sum(people) < 2**53:  # float64 holds every partial sum
        return np.bincount(index, weights=people, minlength=size).astype(np.int64)
    x = np.zeros(size, dtype=np.int64)
    np.add.at(x, index, people)
    return x
