"""Vectors of nodes in two stores: the few nodes that may have children, and the many leaves after them.

Leaves are nearly all of a tree. What is the same for them in two stages is kept once, what follows from it is made when
it is asked for, and their counts take as many bytes as the counts of the areas above them show to be enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from ..geography.spine_plan import SpinePlan
from .node_groups import CHUNK_CELLS
from .store import NodeVectors, new_file


def end_of_parents(plan: SpinePlan) -> int:
    """Nodes from this one on have no children; the one before it has."""
    return int(plan.tree.parent[-1]) + 1


@dataclass(frozen=True, eq=False)
class NodeRange(NodeVectors):
    """Vectors of the nodes from ``first`` to ``last - 1`` alone.

    Args:
        plan, flat: as of :class:`NodeVectors`, ``flat`` with the cells of these nodes.
        first, last: nodes.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.flat.shape != (cells_of(self.plan, self.first, self.last),):
            raise InvalidArgument(
                f"vectors of shape {self.flat.shape}; nodes {self.first} to {self.last - 1} have "
                f"{cells_of(self.plan, self.first, self.last):,} cells"
            )

    @classmethod
    def between(
        cls, plan: SpinePlan, first: int, last: int, dtype: Any = np.float64, path: Path | None = None
    ) -> NodeRange:
        """Zeros: in memory, or in a new file (an existing one is overwritten)."""
        size = (cells_of(plan, first, last),)
        if path is None or not size[0]:
            return cls(plan, np.zeros(size, dtype), first, last)
        return cls(plan, new_file(path, dtype, size[0]), first, last)

    @classmethod
    def stored(cls, plan: SpinePlan, first: int, last: int, path: Path) -> NodeRange:
        """Those that are in a file, to be read and written.

        Raises:
            InvalidArgument: a file of another length.
        """
        if not cells_of(plan, first, last):
            return cls.between(plan, first, last)
        # opened for reading first: where it is too short, opening it for writing would make it longer
        cls(plan, np.load(path, mmap_mode="r"), first, last)
        return cls(plan, np.load(path, mmap_mode="r+"), first, last)

    def _begin(self, nodes: np.ndarray) -> np.ndarray:
        return self.plan.offsets[nodes] - self.plan.offsets[self.first]


def cells_of(plan: SpinePlan, first: int, last: int) -> int:
    """How many cells the nodes from first to last - 1 have."""
    return int(plan.offsets[last] - plan.offsets[first])


def largest_cell(vectors: NodeRange, nodes: slice) -> int:
    """The largest number of some nodes of a range; 0 where there are none."""
    first, last = (
        vectors.plan.offsets[at] - vectors.plan.offsets[vectors.first] for at in (nodes.start, nodes.stop)
    )
    largest = 0
    for low in range(first, last, CHUNK_CELLS):
        largest = max(largest, int(vectors.flat[low : min(low + CHUNK_CELLS, last)].max()))
        vectors.release()
    return largest


@dataclass(frozen=True, eq=False)
class Halves:
    """Vectors of all nodes, of the type of those ``above``.

    Args:
        above: of the nodes before ``end_of_parents``.
        below: of those from there on, and of others perhaps; of a type whose numbers the other holds, too.
    """

    above: NodeVectors
    below: NodeVectors

    @property
    def plan(self) -> SpinePlan:
        """Of the nodes."""
        return self.above.plan

    @property
    def dtype(self) -> np.dtype:
        """Of what is taken."""
        return self.above.dtype

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """A copy of the vectors of nodes (rising) of one support: shape (m, k, N)."""
        cut = int(np.searchsorted(nodes, self._cut))
        if cut == nodes.size:
            return self.above.take(nodes)
        leaves = self.below.take(nodes[cut:]).astype(self.dtype, copy=False)
        return np.concatenate([self.above.take(nodes[:cut]), leaves]) if cut else leaves

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
        """Set the vectors of nodes (rising) of one support: x of shape (m, k, N)."""
        cut = int(np.searchsorted(nodes, self._cut))
        self.above.put(nodes[:cut], x[:cut])
        self.below.put(nodes[cut:], x[cut:])

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Vectors of nodes of any supports on chosen dense cells, 0 off their support: shape (m, cells, N)."""
        is_below = nodes >= self._cut
        if not is_below.any():
            return self.above.take_on(nodes, cells)
        leaves = self.below.take_on(nodes[is_below], cells).astype(self.dtype, copy=False)
        if is_below.all():
            return leaves
        found = np.empty((nodes.size, *leaves.shape[1:]), self.dtype)
        found[is_below] = leaves
        found[~is_below] = self.above.take_on(nodes[~is_below], cells)
        return found

    def put_on(self, nodes: np.ndarray, cells: np.ndarray, x: np.ndarray) -> None:
        """Set the cells of nodes of any supports from x of shape (m, cells, N); what is off a support is left out."""
        is_below = nodes >= self._cut
        for half, chosen in ((self.above, ~is_below), (self.below, is_below)):
            if chosen.all():
                half.put_on(nodes, cells, x)
            elif chosen.any():
                half.put_on(nodes[chosen], cells, x[chosen])

    def clear(self, first: int, last: int) -> None:
        """Set the cells of nodes first to last - 1 to 0."""
        self.above.clear(first, min(last, self._cut))
        self.below.clear(max(first, self._cut), last)

    def flush(self) -> None:
        """Write what is in memory to the files, if there are some."""
        self.above.flush()
        self.below.flush()

    def release(self) -> None:
        """Let go of what is in memory of the files."""
        self.above.release()
        self.below.release()

    @property
    def _cut(self) -> int:
        return end_of_parents(self.plan)
