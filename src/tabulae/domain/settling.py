"""Putting exact sums into a table in whole numbers, where its groups nest with those of the exact tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..linalg import (
    LinearOperator,
    Partition,
    Total,
    representatives,
)
from .corner import (
    CornerAxis,
    along_axes,
    coarser,
    corner_axis,
)
from .domain import Domain
from .table import Table


@dataclass(frozen=True, eq=False)
class _Axis:
    """One attribute of a table: its rows (those that count a cell), and how exact groupings look over them."""

    rows: np.ndarray  # numbers of the rows that count some cell
    size: int  # all rows
    row_of: np.ndarray  # of each cell, its place among ``rows``
    corner: CornerAxis
    depths: tuple[int, ...]  # chain level -> level of the corner coordinates

    def label(self, partition: Partition, depth: int) -> np.ndarray:
        """The group of each class of a partition that is at least as fine."""
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
