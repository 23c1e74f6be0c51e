"""Areas on their way up the tree: from the units that lie within them to a unit that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .covariances import Covariances
from .node_groups import sums_by


@dataclass(frozen=True, eq=False)
class AreaPairs:
    """Areas and nodes that share a leaf, up to the lowest node that holds all of an area.

    Args:
        areas: their number.
        area, node: by depth, shape (pairs,), sorted by area and node.
        full: by depth, which nodes are wholly inside.
        top: by depth, which nodes hold all of the area.
    """

    areas: int
    area: list[np.ndarray]
    node: list[np.ndarray]
    full: list[np.ndarray]
    top: list[np.ndarray]

    @classmethod
    def of(cls, cov: Covariances, area: np.ndarray, areas: int) -> AreaPairs:
        """From the area of each leaf, -1 where it is in none."""
        tree, nodes = cov.plan.tree, cov.plan.tree.size
        held = np.bincount(tree.leaf, minlength=nodes)
        for depth in reversed(cov.plan.depths[1:]):
            np.add.at(held, tree.parent[depth], held[depth])
        inside = np.flatnonzero(area >= 0)
        leaf, owner = tree.leaf[inside], area[inside].astype(np.int64)
        sizes = np.bincount(owner, minlength=areas)
        found: list[list[np.ndarray]] = [[], [], [], []]
        keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for depth in reversed(cov.plan.depths):
            here = (leaf >= depth.start) & (leaf < depth.stop)
            keys = np.concatenate([keys, owner[here] * nodes + leaf[here]])
            counts = np.concatenate([counts, np.ones(here.sum(), np.int64)])
            keys, index = np.unique(keys, return_inverse=True)
            counts = np.bincount(index, weights=counts, minlength=keys.size).astype(np.int64)
            a, u = keys // nodes, keys % nodes
            full, top = counts == held[u], counts == sizes[a]
            for column, values in zip(found, (a, u, full, top), strict=True):
                column.append(values)
            keys, counts = a[~top] * nodes + tree.parent[u[~top]], counts[~top]
        return cls(areas, *(column[::-1] for column in found))

    def partly(self) -> np.ndarray:
        """Shape (areas,): the number of nodes partly inside."""
        return sum(
            (
                np.bincount(a[~full], minlength=self.areas)
                for a, full in zip(self.area, self.full, strict=True)
            ),
            np.zeros(self.areas, np.int64),
        )


@dataclass(frozen=True, eq=False)
class Climb:
    """Some areas on their way up.

    Args:
        cov: the matrices.
        first: the first area.
        pairs: of these areas alone, by depth: area, node, full, top.
        found: shape (areas, kinds, D, D): N.
    """

    cov: Covariances
    first: int
    pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    found: np.ndarray

    @classmethod
    def of(cls, cov: Covariances, pairs: AreaPairs, first: int, last: int) -> Climb:
        """Areas from first to last - 1."""
        own = []
        for columns in zip(pairs.area, pairs.node, pairs.full, pairs.top, strict=True):
            here = slice(*np.searchsorted(columns[0], [first, last]))
            area, node, full, top = (column[here] for column in columns)
            own.append((area - first, node, full, top))
        size = cov.plan.layout.size
        return cls(cov, first, own, np.zeros((last - first, cov.plan.layout.algebra.kinds, size, size)))

    @cached_property
    def _kinds(self) -> np.ndarray:
        return np.arange(self.found.shape[1])

    def variances(self) -> np.ndarray:
        """Shape (areas, kinds, D, D)."""
        below = None
        for depth in reversed(range(len(self.pairs))):
            self._whole_areas(depth)
            below = self._partly(depth, below)
        return self.found

    def _whole_areas(self, depth: int) -> None:
        """Areas that are one node."""
        area, node, full, top = self.pairs[depth]
        chosen = np.flatnonzero(full & top)
        chosen = chosen[np.argsort(node[chosen], kind="stable")]
        for group in self.cov.kinds.groups(node[chosen]):
            variance, which = self.cov.variances_of(group)
            rows = area[chosen[np.searchsorted(node[chosen], group.nodes)]]
            self.found[np.ix_(rows, self._kinds, group.cells, group.cells)] = variance[which]

    def _partly(self, depth: int, below: np.ndarray | None) -> np.ndarray:
        """C of the nodes partly inside that do not yet hold all of their area: shape (nodes, kinds, D, D)."""
        area, node, full, top = self.pairs[depth]
        area, node, top = area[~full], node[~full], top[~full]
        sums = np.zeros((area.size, *self.found.shape[1:]))
        if area.size:
            self._children(depth + 1, area * self.cov.plan.tree.size + node, sums, below)
        found = np.zeros_like(sums)
        order = np.argsort(node, kind="stable")
        for kind in np.unique(self.cov.kinds.of[node]):
            rows = order[self.cov.kinds.of[node[order]] == kind]
            cells = self.cov.kinds.cells(int(kind))
            distinct, which = np.unique(node[rows], return_inverse=True)
            move, own = (matrix[which.reshape(-1)] for matrix in self.cov.descent(int(kind), distinct))
            part = sums[rows][..., cells]
            after = part @ move
            lost = part @ own @ part.swapaxes(-1, -2)
            high = np.flatnonzero(top[rows] & (node[rows] > 0))
            if high.size:
                above = self.cov.weights.take_on(self.cov.plan.tree.parent[node[rows[high]]], cells)
                lost[high] += after[high] @ above @ after[high].swapaxes(-1, -2)
            found[np.ix_(rows, self._kinds, np.arange(self.found.shape[2]), cells)] = after
            self._add(area[rows], -lost)
        return found[~top]

    def _children(self, depth: int, keys: np.ndarray, sums: np.ndarray, below: np.ndarray | None) -> None:
        """Add C of the children at a depth to the sums of their parents, and N of those wholly inside."""
        area, node, full, top = self.pairs[depth]
        tree = self.cov.plan.tree
        wanted = area * tree.size + tree.parent[node]
        place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        partly = ~full & ~top
        if partly.any():
            assert below is not None
            order = np.argsort(place[partly], kind="stable")
            at, add = sums_by(place[partly][order], below[order])
            sums[at] += add
        chosen = np.flatnonzero(full & ~top & (keys[place] == wanted))
        chosen = chosen[np.argsort(node[chosen], kind="stable")]
        for group in self.cov.kinds.groups(node[chosen]):
            rows = chosen[np.searchsorted(node[chosen], group.nodes)]
            own = self.cov.upward(group)
            if group.leaf:
                at, count = np.unique(place[rows], return_counts=True)
                add = count[:, None, None, None] * own
            else:
                order = np.argsort(place[rows], kind="stable")
                at, add = sums_by(place[rows][order], own[order])
            sums[np.ix_(at, self._kinds, group.cells, group.cells)] += add
            self._add(area[rows], own, group.cells)

    def _add(self, area: np.ndarray, own: np.ndarray, cells: np.ndarray | None = None) -> None:
        """Add matrices, or one for all, to N of areas."""
        order = np.argsort(area, kind="stable")
        if own.ndim == 3:
            at, count = np.unique(area, return_counts=True)
            add = count[:, None, None, None] * own
        else:
            at, add = sums_by(area[order], own[order])
        every = np.arange(self.found.shape[2]) if cells is None else cells
        self.found[np.ix_(at, self._kinds, every, every)] += add
