"""Nodes that share their matrices, side by side: what is done once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..geography.distinct import distinct_rows
from ..geography.spine_plan import SpinePlan

CHUNK_CELLS = 500_000
"""About how many cells are worked on at a time; a node with its children may have more."""


@dataclass(frozen=True, eq=False)
class NodeGroup:
    """Some nodes of one kind.

    Attributes:
        kind: position in ``NodeKinds.kinds``.
        nodes: shape (m,): rising.
        cells: shape (k,): the dense cells of their support.
        leaf: whether they have no children.
    """

    kind: int
    nodes: np.ndarray
    cells: np.ndarray
    leaf: bool


@dataclass(frozen=True, eq=False)
class NodeKinds:
    """Nodes by class of the plan, whether they are leaves, and which margins are exact there.

    All leaves of one kind have one variance given their own measurements.

    Args:
        plan: the spine and its queries.
        exact: shape (nodes,): which set of exact margins each node meets, as a number with a bit for each.
    """

    plan: SpinePlan
    exact: np.ndarray

    @cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        return distinct_rows(np.stack([self.plan.classes[1], self.is_leaf, self.exact], axis=1))

    @property
    def kinds(self) -> np.ndarray:
        """Shape (kinds, 3): class, 1 for leaves, set of exact margins."""
        return self._kinds[0]

    @property
    def of(self) -> np.ndarray:
        """Shape (nodes,): the kind of each node."""
        return self._kinds[1]

    @cached_property
    def is_leaf(self) -> np.ndarray:
        """Shape (nodes,), boolean."""
        return np.diff(self.plan.children) == 0

    @property
    def parents(self) -> int:
        """Nodes before this one may have children; later ones have none."""
        return int(np.flatnonzero(~self.is_leaf)[-1]) + 1

    def cells(self, kind: int) -> np.ndarray:
        """Shape (k,): the dense cells of the support of a kind."""
        return self.plan.dense_cells[self.plan.classes[0][self.kinds[kind, 0], 2]]

    def groups(self, nodes: np.ndarray) -> Iterator[NodeGroup]:
        """The nodes (rising) by kind."""
        kind = self.of[nodes]
        order = np.argsort(kind, kind="stable")
        edges = np.flatnonzero(np.diff(kind[order], prepend=-1, append=-1))
        for first, last in pairwise(edges.tolist()):
            members = nodes[order[first:last]]
            found = int(kind[order[first]])
            yield NodeGroup(found, members, self.cells(found), bool(self.kinds[found, 1]))

    def pieces(self, nodes: np.ndarray) -> Iterator[NodeGroup]:
        """The nodes (rising) by kind, in groups small enough to be held at once."""
        for group in self.groups(nodes):
            step = max(1, CHUNK_CELLS // (group.cells.size * self.plan.layout.algebra.cells))
            for first in range(0, group.nodes.size, step):
                yield replace(group, nodes=group.nodes[first : first + step])

    def families(self, depth: int, width: int) -> Iterator[tuple[int, int]]:
        """Ranges of nodes of one depth, each with its children small enough to be held at once.

        Args:
            depth: of the parents.
            width: cells held for each node besides its children's.
        """
        nodes = self.plan.depths[depth]
        below = self.plan.offsets[self.plan.children[nodes.start : nodes.stop + 1]]
        held = below - below[0] + width * np.arange(below.size)
        first = 0
        while first < below.size - 1:
            last = int(np.searchsorted(held, held[first] + CHUNK_CELLS, side="right")) - 1
            last = min(max(last, first + 1), below.size - 1)
            yield nodes.start + first, nodes.start + last
            first = last


def sums_by(owner: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct owners (rising as given), and the sums of x along its first axis for each."""
    starts = np.flatnonzero(np.diff(owner, prepend=owner[0] - 1))
    return owner[starts], np.add.reduceat(x, starts, axis=0)
