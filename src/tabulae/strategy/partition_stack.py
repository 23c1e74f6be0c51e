"""Strategies that are stacks of partitions: small whole numbers instead of a fine grid.

Where an attribute is only asked for by categories, groups of categories and in total, the optimal
``X = A'A`` is (nearly) ``sum_j theta_j P_j'P_j`` for nested partitions P_j: singletons, groups, the whole. Then
``A = [p_1 P_1; p_2 P_2; ...]`` with whole numbers p_j near sqrt(theta_j) measures plain counts, each a few times as
strongly as another. Every category lies in exactly one class of each partition, so that all columns have the
same norm, and an error in the ratios of the p_j costs only its square: three or four bits do where a general
matrix needs ten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.cluster.hierarchy
import scipy.spatial.distance

from ..linalg import (
    Identity,
    LinearOperator,
    Partition,
    Scaled,
    Stack,
    Total,
)

_ALIKE = 0.02  # entries of X this close, relative to its diagonal, are one level
_LARGEST = 256  # attributes with more categories are left to general matrices
_LEVELS = 6


def partition_stacks(matrix: np.ndarray, bits: int) -> Iterator[tuple[LinearOperator, np.ndarray]]:
    """Stacks of partitions near a strategy A (r, n), with multipliers below ``2^bits``.

    Yields the operator and its dense form, from coarse multipliers to fine; nothing where X = A'A is not close to
    a nested sum of partitions.
    """
    n = matrix.shape[1]
    if not 1 < n <= _LARGEST:
        return
    levels = _nested(matrix.T @ matrix)
    if levels is None:
        return
    roots = np.sqrt([theta for theta, _ in levels])
    seen = set()
    for top in range(1, 2**bits):
        multipliers = tuple(int(p) for p in np.rint(top * roots / roots.max()))
        if multipliers in seen:
            continue
        seen.add(multipliers)
        kept = [(p, part) for p, (_, part) in zip(multipliers, levels, strict=True) if p > 0]
        # Without the singletons categories would no longer be told apart.
        if isinstance(kept[0][1], Identity):
            operator = Stack([part if p == 1 else Scaled(part, p) for p, part in kept])
            yield (kept[0][1] if len(kept) == 1 else operator), np.asarray(operator.dense(), dtype=float)


def _nested(x: np.ndarray) -> list[tuple[float, LinearOperator]] | None:
    """X as theta_1 I + theta_2 P_2'P_2 + ...; None where that is not close to it."""
    n = len(x)
    size = float(x.diagonal().mean())
    distance = np.maximum(size - (x + x.T) / 2, 0.0)
    np.fill_diagonal(distance, 0.0)
    condensed = scipy.spatial.distance.squareform(distance, checks=False)
    tree = scipy.cluster.hierarchy.average(condensed)
    heights = _levels(tree[:, 2], _ALIKE * size)
    if len(heights) > _LEVELS:
        return None
    parts: list[tuple[float, LinearOperator]] = [(float(heights[0]), Identity(n))]
    for height, above in zip(heights, [*heights[1:], size], strict=True):
        labels = scipy.cluster.hierarchy.fcluster(tree, height + _ALIKE * size / 2, criterion="distance") - 1
        if above > height:
            parts.append((float(above - height), _partition(labels, n)))
    rebuilt = sum(theta * np.asarray(part.gram().dense(), float) for theta, part in parts)
    close = np.abs(rebuilt - x).max() <= 4 * _ALIKE * size
    return [(theta, part) for theta, part in parts if theta > 0] if close and heights[0] > 0 else None


def _partition(labels: np.ndarray, n: int) -> LinearOperator:
    """Classes numbered by first appearance; the whole attribute is a Total."""
    if labels.max() == 0:
        return Total(n)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return Partition(order[inverse].astype(np.int64))


def _levels(heights: np.ndarray, width: float) -> list[float]:
    """Distinct merge heights, those closer than ``width`` taken as one (their mean)."""
    groups: list[list[float]] = []
    for height in np.sort(heights):
        if groups and height - groups[-1][0] <= width:
            groups[-1].append(float(height))
        else:
            groups.append([float(height)])
    return [float(np.mean(group)) for group in groups]
