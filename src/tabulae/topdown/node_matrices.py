"""One matrix of each kind of contrast for every node that has children."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..geography.spine_plan import SpinePlan


@dataclass(frozen=True, eq=False)
class NodeMatrices:
    """Matrices (kinds, k, k) over the support of every node with children, one after the other.

    Args:
        plan: the spine.
        kinds: how many matrices each node has.
        offsets: shape (nodes + 1,): where each node's matrices begin; nothing for leaves.
        flat: shape (offsets[-1],).
    """

    plan: SpinePlan
    kinds: int
    offsets: np.ndarray
    flat: np.ndarray

    @classmethod
    def zeros(cls, plan: SpinePlan, kinds: int) -> NodeMatrices:
        """Zeros for every node with children."""
        sizes = np.array([cells.size for cells in plan.dense_cells], np.int64) ** 2 * kinds
        widths = np.where(np.diff(plan.children) > 0, sizes[plan.pattern], 0)
        offsets = np.concatenate([[0], np.cumsum(widths)])
        return cls(plan, kinds, offsets, np.zeros(offsets[-1]))

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """The matrices of nodes of one support: shape (m, kinds, k, k)."""
        k = self.plan.dense_cells[self.plan.pattern[nodes[0]]].size
        return self.flat[self._index(nodes)].reshape(nodes.size, -1, k, k)

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
        """Set the matrices of nodes of one support."""
        self.flat[self._index(nodes)] = x.reshape(nodes.size, -1)

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Matrices of nodes of any supports on chosen dense cells, 0 off their support: shape (m, kinds, c, c)."""
        distinct, which = np.unique(nodes, return_inverse=True)
        found = np.zeros((distinct.size, self.kinds, cells.size, cells.size))
        pattern = self.plan.pattern[distinct]
        for one in np.unique(pattern):
            here = np.flatnonzero(pattern == one)
            own = self.plan.dense_cells[one]
            there = np.flatnonzero(self.plan.patterns[one][cells])
            rows = np.searchsorted(own, cells[there])
            part = self.take(distinct[here])[..., rows[:, None], rows]
            if there.size == cells.size:
                found[here] = part
            else:
                found[np.ix_(here, np.arange(self.kinds), there, there)] = part
        return found[which.reshape(-1)]

    def _index(self, nodes: np.ndarray) -> np.ndarray:
        first = self.offsets[nodes]
        width = self.offsets[nodes[0] + 1] - first[0]
        return first[:, None] + np.arange(width)
