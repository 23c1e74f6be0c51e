"""The measured units of a spine alone, as a tree: what estimation walks over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .hierarchy import Hierarchy
from .shares import Shares


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in breadth-first order, the children of one node side by side.

    Args:
        parent: shape (nodes,): each node's parent, which comes before it; -1 for the root, node 0.
        level: shape (nodes,): the level whose queries measure it.
        unit: shape (nodes,): which unit of that level it is.
        leaf: shape (leaves,): the node of each leaf. A leaf whose share went up to units of one child is their node.
    """

    parent: np.ndarray
    level: np.ndarray
    unit: np.ndarray
    leaf: np.ndarray

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self.parent.size

    @classmethod
    def of(cls, h: Hierarchy, shares: Shares | None) -> Tree:
        """Every unit with a share, and the root even without one; all units where there are no shares."""
        measured = [np.ones(len(c), bool) for c in h.codes] if shares is None else shares.measured
        node, depth_of = np.zeros(1, np.int64), np.zeros(1, np.int64)
        found = [(np.array([-1]), np.zeros(1, np.int64), np.zeros(1, np.int64))]
        for level in range(1, h.depth):
            above = node[h.parents[level]]
            kept = np.flatnonzero(measured[level])
            node = above.copy()
            node[kept] = depth_of.size + np.arange(kept.size)
            depth_of = np.concatenate([depth_of, depth_of[above[kept]] + 1])
            found.append((above[kept], np.full(kept.size, level), kept))
        parents, levels, units = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return _breadth_first(cls(parents, levels, units, node), depth_of)


def _breadth_first(tree: Tree, depth: np.ndarray) -> Tree:
    """The same tree, nodes sorted by depth, then by their parents' new place."""
    place = np.zeros(tree.size, np.int64)
    order = [np.zeros(1, np.int64)]
    first = 1
    for deep in range(1, int(depth.max()) + 1):
        nodes = np.flatnonzero(depth == deep)
        nodes = nodes[np.argsort(place[tree.parent[nodes]], kind="stable")]
        place[nodes] = first + np.arange(nodes.size)
        first += nodes.size
        order.append(nodes)
    found = np.concatenate(order)
    parent = tree.parent[found]
    return Tree(
        np.where(parent < 0, -1, place[parent]), tree.level[found], tree.unit[found], place[tree.leaf]
    )
