"""Putting exact sums into a table in whole numbers, where its groups nest with those of the exact tables.

Corner coordinates: a table's cells, or the sums over nested groups of them, one for one in whole numbers.

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

from ..linalg import LinearOperator, Partition, Total, joint_classes, renumber, representatives
from .domain import Domain
from .table import Table


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


@dataclass(frozen=True, eq=False)
class _Axis:
    """One attribute of a table: its rows (those that count a cell), and how exact groupings look over them."""

    rows: np.ndarray  # numbers of the rows that count some cell
    size: int  # all rows
    row_of: np.ndarray  # of each cell, its place among ``rows``
    corner: CornerAxis
    depths: tuple[int, ...]  # chain level -> level of the corner coordinates

    def label(self, partition: Partition, depth: int) -> np.ndarray:
        first = representatives(partition.classes)
        return self.corner.groupings[depth][self.row_of[first]]


class Settling:
    """Corner coordinates of one table; see :mod:`.corner`.

    ``chains`` has one chain of partitions an attribute, coarse to fine.
    """

    def __init__(self, axes: Sequence[_Axis], chains: Sequence[Sequence[Partition]]) -> None:
        self._axes, self._chains = tuple(axes), chains

    @classmethod
    def of(cls, domain: Domain, table: Table, chains: Sequence[Sequence[Partition]]) -> Settling | None:
        """The coordinates of a table; None where a group of its does not nest with the exact ones."""
        term, *others = table.terms
        if others or term.coefficient != 1:
            return None
        axes = []
        for factor, chain in zip(term.over(domain), chains, strict=True):
            axis = _axis_of(factor, chain)
            if axis is None:
                return None
            axes.append(axis)
        return cls(axes, chains)

    def settle(
        self, scaled: np.ndarray, fixed: Sequence[tuple[tuple[int, ...], np.ndarray]], exponent: int
    ) -> np.ndarray:
        """Counts on the grid ``2^-exponent``, (m,) int64, moved so that they have the sums ``fixed``.

        ``fixed`` holds (level of each attribute's chain, sums by class there). Counts in rows without a cell are 0.
        """
        whole = np.asarray(scaled, dtype=np.int64).reshape([axis.size for axis in self._axes])
        used = np.ix_(*(axis.rows for axis in self._axes))
        coordinates = along_axes([axis.corner.forward for axis in self._axes], whole[used])
        for level, sums in fixed:
            place, transforms, array = [], [], np.asarray(sums, dtype=np.int64)
            for i, axis in enumerate(self._axes):
                depth = axis.depths[level[i]]
                array = summed(array, axis.label(self._chains[i][level[i]], depth), i)
                place.append(axis.corner.below(depth))
                transforms.append(axis.corner.group_forward(depth))
            coordinates[np.ix_(*place)] = along_axes(transforms, array) << exponent
        out = np.zeros(whole.shape, dtype=np.int64)
        out[used] = along_axes([axis.corner.backward for axis in self._axes], coordinates)
        return out.ravel()


def summed(array: np.ndarray, labels: np.ndarray, axis: int) -> np.ndarray:
    """Sums along an axis over the entries of equal label."""
    count = int(labels.max()) + 1
    if count == array.shape[axis] and np.array_equal(labels, np.arange(count)):
        return array
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(count))
    return np.add.reduceat(np.take(array, order, axis=axis), starts, axis=axis)


def _axis_of(factor: LinearOperator, chain: Sequence[Partition]) -> _Axis | None:
    row_of_cell = _rows_of_cells(factor)
    if row_of_cell is None:
        return None
    rows, row_of = np.unique(row_of_cell, return_inverse=True)
    first = representatives(row_of)
    groupings: list[np.ndarray] = []
    depths: list[int] = []
    for partition in chain:
        joint = coarser(row_of, partition.classes)
        if joint is None:
            return None
        over_rows = joint[first]
        if not groupings or len(np.unique(over_rows)) > len(np.unique(groupings[-1])):
            groupings.append(over_rows)
        depths.append(len(groupings) - 1)
    return _Axis(rows, factor.shape[0], row_of, corner_axis(groupings, len(rows)), tuple(depths))


def _rows_of_cells(factor: LinearOperator) -> np.ndarray | None:
    """The row that counts each cell, where every cell is counted by exactly one row, once; None elsewhere."""
    m, n = factor.shape
    if isinstance(factor, Total):
        return np.zeros(n, dtype=np.int64)
    if isinstance(factor, Partition):
        return factor.classes if int(factor.classes.min()) >= 0 else None
    if not factor.binary or not np.all(np.asarray(factor.column_norms(1)) == 1):
        return None
    return np.asarray(factor.T @ np.arange(m, dtype=np.int64))
