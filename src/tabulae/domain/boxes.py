"""What nested exact tables leave open, cut into boxes: disjoint products of differences of projectors.

With chains of projectors ``P_i0 <= P_i1 <= ... <= I`` (:mod:`.levels`) the space of all vectors is the sum of the
orthogonal products of their differences, one for each tuple of levels. Exact tables fix the tuples below any of their
own; the others, cut into products of intervals, are the null space:

    Pi_N = sum_boxes (x)_i (P_i,hi - P_i,lo-1).

All terms are projectors and orthogonal to each other: nothing cancels when they are squared or added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..errors import Unsupported
from ..linalg import (
    Centring,
    Dense,
    Identity,
    LinearOperator,
    Partition,
    Product,
    Sum,
    Total,
)
from .levels import Level, refines

Interval = tuple[int, int]
"""First and last level of a chain; the level after the last partition is the whole space."""

_LISTED = 2**22  # entries of a difference that is written out
_MOST_BOXES = 4096


def boxes(maximal: Sequence[Level], depths: Sequence[int]) -> list[tuple[Interval, ...]]:
    """Tuples of levels that lie below none of ``maximal``, as disjoint boxes; ``depths`` are the chains' last levels.

    >>> boxes([(0, 0)], (1, 1))  # the total is exact, of two attributes with values
    [((0, 0), (1, 1)), ((1, 1), (0, 1))]
    """
    found = list(_outside(list(maximal), depths, 0))
    if len(found) > _MOST_BOXES:
        raise Unsupported(
            f"the exact tables cross in more than {_MOST_BOXES} ways: publish fewer of them exactly"
        )
    return found


def _outside(active: list[Level], depths: Sequence[int], axis: int) -> Iterator[tuple[Interval, ...]]:
    if not active:
        yield tuple((0, depth) for depth in depths[axis:])
        return
    if axis == len(depths):
        return
    ends = sorted({level[axis] for level in active})
    last: list[int] = [depths[axis]] if ends[-1] < depths[axis] else []
    edges: list[int] = [-1, *ends, *last]
    for start, end in pairwise(edges):
        inside = [level for level in active if level[axis] >= end]
        for rest in _outside(inside, depths, axis + 1):
            yield ((start + 1, end), *rest)


def between(
    factor: LinearOperator, chain: Sequence[Partition], interval: Interval
) -> tuple[LinearOperator, int] | None:
    """(divisor * F (P_hi - P_lo-1), divisor) with whole entries; None where that is zero."""
    low, high = interval
    top, upper = projected(factor, chain[high] if high < len(chain) else None)
    if low == 0:
        return top, upper
    bottom, lower = projected(factor, chain[low - 1])
    if top == bottom:
        return None
    if isinstance(top, Identity) and chain[low - 1].shape[0] == 1:
        return Centring(top.n), top.n
    divisor = math.lcm(upper, lower)
    above, below = divisor // upper, divisor // lower
    m, n = factor.shape
    if m * n > _LISTED:
        return Sum([(above, top), (-below, bottom)]), divisor
    matrix = above * np.asarray(top.dense()) - below * np.asarray(bottom.dense())
    return (Dense(matrix), divisor) if np.any(matrix) else None


def projected(factor: LinearOperator, partition: Partition | None) -> tuple[LinearOperator, int]:
    """(divisor * F P, divisor) with P the projector onto what is constant on classes (None: all); whole entries."""
    if partition is None:
        return factor, 1
    classes, n = partition.shape
    if classes == n or refines(partition.classes, factor.column_classes()):
        return factor, 1
    if not factor.integer:
        raise Unsupported(
            "a table of queries with fractional entries cannot be restricted exactly: scale it up"
        )
    if classes == 1:
        return Product(Dense((factor @ np.ones(n, dtype=np.int64))[:, None]), Total(n)), n
    divisor = math.lcm(*(int(s) for s in partition.sizes))
    sums = np.asarray(factor @ partition.T.dense()) * (divisor // partition.sizes)
    return Product(Dense(sums), partition), divisor
