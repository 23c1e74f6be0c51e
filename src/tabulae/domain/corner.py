"""Corner coordinates: a table's cells, or the sums over nested groups of them, one for one in whole numbers.

For one attribute with nested groupings, coarse to fine, the coordinates of a vector are: the sum of every coarsest
group; for each finer grouping, the sum of every group but the last within its parent; down to the cells. The change
of coordinates is an integer matrix and so is its inverse (the last child is its parent less its siblings), so that it
maps whole numbers to whole numbers both ways. For a table it is the Kronecker product over attributes. The sums that
exact tables fix are coordinates then, and can be put in place with no effect on any other coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from ..linalg import joint_classes, renumber, representatives


@dataclass(frozen=True, eq=False)
class CornerAxis:
    """Corner coordinates of one attribute of n cells.

    ``groupings`` (levels, n) are labels from coarse to fine, the last telling all cells apart. ``atoms`` (n,) says of
    each coordinate which level it belongs to; ``forward`` (n x n) maps cells to coordinates, ``backward`` is its
    inverse, both of whole numbers.

    >>> axis = corner_axis([np.zeros(3, int)], 3)
    >>> axis.forward.toarray().tolist(), axis.atoms.tolist()
    ([[1, 1, 1], [1, 0, 0], [0, 1, 0]], [0, 1, 1])
    """

    groupings: tuple[np.ndarray, ...]
    atoms: np.ndarray
    forward: sparse.csr_array
    backward: sparse.csr_array

    def below(self, level: int) -> np.ndarray:
        """Positions of the coordinates of this level and coarser ones."""
        return np.flatnonzero(self.atoms <= level)

    def group_forward(self, level: int) -> sparse.csr_array:
        """Coordinates up to ``level`` from the sums of its groups, in the order of :meth:`below`."""
        labels = self.groupings[level]
        first = representatives(labels)
        return sparse.csr_array(self.forward[self.below(level)][:, first])


def corner_axis(groupings: Sequence[np.ndarray], n: int) -> CornerAxis:
    """The coordinates of n cells under nested groupings (labels by cell), coarse to fine; the cells come last."""
    levels = [renumber(np.asarray(labels)) for labels in groupings]
    if not levels or len(np.unique(levels[-1])) < n:
        levels.append(np.arange(n))
    rows: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    atoms: list[np.ndarray] = []
    for level, labels in enumerate(levels):
        own = np.ones(int(labels.max()) + 1, dtype=bool)
        if level:
            last = np.zeros(int(levels[level - 1].max()) + 1, dtype=np.int64)
            last[levels[level - 1]] = (
                labels  # what stays is the group that the last cell of each parent is in
            )
            own[last] = False
        order = np.argsort(labels, kind="stable")
        rows.append(order[own[labels[order]]])
        sizes.append(np.bincount(labels)[own])
        atoms.append(np.full(len(sizes[-1]), level))
    counts = np.concatenate(sizes)
    forward = sparse.csr_array(
        (np.ones(counts.sum(), dtype=np.int64), (np.repeat(np.arange(n), counts), np.concatenate(rows))),
        shape=(n, n),
    )
    return CornerAxis(tuple(levels), np.concatenate(atoms), forward, _backward(levels, n))


def _backward(levels: Sequence[np.ndarray], n: int) -> sparse.csr_array:
    """Cells from coordinates: level by level, the last child is its parent less its siblings."""
    count = int(levels[0].max()) + 1
    sums = sparse.csr_array(
        (np.ones(count, dtype=np.int64), (np.arange(count), np.arange(count))), shape=(count, n)
    )
    start = count
    for coarse, fine in pairwise(levels):
        groups = int(fine.max()) + 1
        first = representatives(fine)
        parent = coarse[first]
        last = np.zeros(int(parent.max()) + 1, dtype=np.int64)
        last[coarse] = (
            fine  # cells come in order: what stays is the group that the last cell of each parent is in
        )
        own = np.ones(groups, dtype=bool)
        own[last] = False
        position = np.full(groups, -1)
        position[own] = start + np.arange(int(own.sum()))
        mine = np.flatnonzero(own)
        direct = sparse.csr_array(
            (np.ones(len(mine), dtype=np.int64), (mine, position[mine])), shape=(groups, n)
        )
        from_parent = sparse.csr_array(
            (np.ones(len(last), dtype=np.int64), (last, np.arange(len(last)))), shape=(groups, len(last))
        )
        siblings = sparse.csr_array(
            (np.ones(len(mine), dtype=np.int64), (last[parent[mine]], position[mine])), shape=(groups, n)
        )
        sums = sparse.csr_array(direct + from_parent @ sums - siblings)
        start += len(mine)
    return sums


def along_axes(matrices: Sequence[sparse.csr_array | None], array: np.ndarray) -> np.ndarray:
    """Sparse matrices applied along the axes of an array of whole numbers; None leaves an axis as it is."""
    for axis, matrix in enumerate(matrices):
        if matrix is None:
            continue
        moved = np.moveaxis(array, axis, 0)
        flat = np.asarray(matrix @ np.ascontiguousarray(moved).reshape(moved.shape[0], -1))
        array = np.moveaxis(flat.reshape(len(flat), *moved.shape[1:]), 0, axis)
    return np.ascontiguousarray(array)


def coarser(labels: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """The coarser of two nested groupings, None where they are not nested."""
    joint = joint_classes([labels, other])
    count = int(joint.max())
    if count == len(np.unique(labels)) - 1:
        return renumber(other)
    return renumber(labels) if count == len(np.unique(other)) - 1 else None
