"""Distances of columns of Kronecker products whose factors have entries of both signs.

    max over pairs   sum_b w_b (prod_i a_bi + prod_i b_bi - 2 prod_i c_bi)

with ``a = ||u||^2``, ``b = ||v||^2`` and ``c = <u, v>`` for a pair of columns u, v of each factor. Where the inner
products change sign no partial choice can be dropped, but the sum is linear in each attribute's numbers, so its largest
value over a box of them is attained at a corner: the largest norms, and for each factor the least or the largest
inner product. All corners of all attributes are summed, one attribute after the other. The result is exact where each
corner belongs to some pair, as for identities, totals and centring matrices, and an upper bound otherwise. Where there
are too many attributes to sum all corners, each product takes its own largest distance: an upper bound again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from .numbers import INT64_LIMIT
from .sums_of_products import Choices, Maximum

CORNERS = 2**18  # corners of all attributes together that are summed


def count_corners(shared: Sequence[np.ndarray]) -> int:
    """How many corners :func:`corners` makes: two for every factor whose inner products differ."""
    return math.prod(1 + int(part.min() < part.max()) for part in shared)


def corners(norms: np.ndarray, shared: Sequence[np.ndarray]) -> Choices:
    """The corners ``[a, b, c]`` of one attribute, from the norms (cells, factors) and inner products of its columns."""
    largest = norms.max(axis=0)
    ends = [dict.fromkeys((part.min(), part.max())) for part in shared]
    rows = [np.concatenate([largest, largest, np.array(c, dtype=norms.dtype)]) for c in product(*ends)]
    nowhere = np.full((len(rows), 2), -1)
    return Choices(np.stack(rows), np.zeros(len(rows), dtype=bool), nowhere)


def largest_corner(
    choices: Sequence[Choices], positions: Sequence[np.ndarray], weights: Sequence[int]
) -> Maximum:
    """The largest sum over all choices for all attributes, or a bound of it where they are more than ``CORNERS``.

    choices: for each attribute ``[a, b, c]`` by distinct factor, integers; positions: for each attribute the distinct
    factor of each product; weights: of the products.
    """
    parts = [[np.split(member.values, 3, axis=1)[part] for member in choices] for part in range(3)]
    if math.prod(len(c) for c in choices) > CORNERS:
        return Maximum(_one_by_one(parts, positions, weights), is_exact=False)
    attained = np.ones(1, dtype=bool)
    for member in choices:
        attained = (attained[:, None] & member.attained).reshape(-1)
    one, other, shared = (_summed(values, positions, weights) for values in parts)
    total = one + other - 2 * shared
    best = total.max()
    return Maximum(int(best), is_exact=bool((total[attained] == best).any()))


def _one_by_one(
    parts: Sequence[Sequence[np.ndarray]], positions: Sequence[np.ndarray], weights: Sequence[int]
) -> int:
    """The sum of every product's own largest distance: norms multiplied, less the least product of inner products."""
    norms, least = np.ones(len(weights), dtype=object), np.ones(len(weights), dtype=object)
    largest = least
    for one, shared, position in zip(parts[0], parts[2], positions, strict=True):
        norms = norms * one.max(axis=0).astype(object)[position]
        low, high = (end.astype(object)[position] for end in (shared.min(axis=0), shared.max(axis=0)))
        ends = np.stack([least * low, least * high, largest * low, largest * high])
        least, largest = ends.min(axis=0), ends.max(axis=0)
    return int((np.array(weights, dtype=object) * (2 * norms - 2 * least)).sum())


def _summed(
    values: Sequence[np.ndarray], positions: Sequence[np.ndarray], weights: Sequence[int]
) -> np.ndarray:
    """``sum_k w_k prod_i values_i[choice_i, position_ik]`` for every combination of choices, in C order.

    Attributes are folded in from the last; products that agree on all earlier ones are added up first.
    """
    bound = sum(abs(w) for w in weights) * math.prod(max(1, int(np.abs(v).max())) for v in values)
    kind = np.int64 if 4 * bound < INT64_LIMIT else object
    table = np.stack(positions, axis=1)
    held: dict[tuple[int, ...], np.ndarray] = {}
    for row, weight in zip(table.tolist(), weights, strict=True):
        held[tuple(row)] = held.get(tuple(row), np.zeros(1, dtype=kind)) + np.array([weight], dtype=kind)
    for member in reversed(values):
        folded: dict[tuple[int, ...], np.ndarray] = {}
        columns = member.astype(kind)
        for key, sums in held.items():
            part = np.multiply.outer(columns[:, key[-1]], sums).reshape(-1)
            earlier = folded.get(key[:-1])
            folded[key[:-1]] = part if earlier is None else earlier + part
        held = folded
    return held[()]
