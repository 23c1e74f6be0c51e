"""Vectors of a few ranges of nodes only: what one task of a cluster holds of a level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from ..geography.spine_plan import SpinePlan
from .store import NodeVectors


@dataclass(frozen=True, eq=False)
class NodeWindow(NodeVectors):
    """Cells (k, N) of the nodes of some ranges, side by side; every other node is outside and must not be asked for.

    Args:
        plan: whose ``offsets`` say how many cells each node has.
        flat: shape (cells of all ranges,).
        ranges: (first, last) of each, ``last`` not included: rising, not overlapping.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.flat.shape != (int(self._starts[-1]),):
            raise InvalidArgument(
                f"vectors of shape {self.flat.shape}; nodes {self.ranges} have {int(self._starts[-1]):,} cells"
            )

    @classmethod
    def over(cls, plan: SpinePlan, ranges: Sequence[tuple[int, int]], dtype: Any = np.float64) -> NodeWindow:
        """Zeros for the nodes of some ranges; empty ones are left out."""
        held = tuple((first, last) for first, last in ranges if first < last)
        cells = sum(int(plan.offsets[last] - plan.offsets[first]) for first, last in held)
        return cls(plan, np.zeros(cells, dtype), held)

    def fill(self, nodes: np.ndarray, cells: np.ndarray) -> None:
        """Set the vectors of nodes of any supports: the cells of all, one node after the other."""
        if not nodes.size:
            return
        widths = self.plan.offsets[nodes + 1] - self.plan.offsets[nodes]
        ends = np.cumsum(widths)
        begin = self._begin(nodes)
        if begin[-1] - begin[0] == ends[-1] - widths[-1] and nodes[-1] - nodes[0] == nodes.size - 1:
            self.flat[begin[0] : begin[0] + ends[-1]] = cells
        else:
            self.flat[np.repeat(begin - (ends - widths), widths) + np.arange(ends[-1])] = cells

    def cells_of(self, nodes: np.ndarray) -> np.ndarray:
        """The cells of nodes of any supports, one node after the other."""
        widths = self.plan.offsets[nodes + 1] - self.plan.offsets[nodes]
        ends = np.cumsum(widths)
        return self.flat[np.repeat(self._begin(nodes) - (ends - widths), widths) + np.arange(widths.sum())]

    @cached_property
    def _starts(self) -> np.ndarray:
        """Where each range begins in ``flat``, and the end of the last."""
        widths = [int(self.plan.offsets[last] - self.plan.offsets[first]) for first, last in self.ranges]
        return np.cumsum([0, *widths])

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.array([first for first, _ in self.ranges], np.int64)

    def _begin(self, nodes: np.ndarray) -> np.ndarray:
        which = np.searchsorted(self._firsts, nodes, side="right") - 1
        return self.plan.offsets[nodes] - self.plan.offsets[self._firsts[which]] + self._starts[which]
