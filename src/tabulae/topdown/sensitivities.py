"""How the errors of areas change with the precision of each query: derivatives of all least-squares variances."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..geography.spine_plan import SpinePlan
from .area_climb import AreaPairs
from .area_sensitivities import AreaSweep
from .covariances import Covariances
from .node_groups import NodeGroup

_NUMBERS = 8_000_000
"""About how many numbers of matrices are held at a time."""

MOST_NUMBERS = 10_000_000
"""The most numbers that the matrices of all units with children may be."""


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Derivatives of sums of variances, by one more pass up and down the tree.

    For weights G_a of areas a, ``F = sum_a sum_S <G_a[S], V_a[S]>`` with V_a the variance of the estimate of a. Since
    ``dV = -V dP V`` for the variance of all counts, exact counts or not, the derivative by the precision P_v of node v
    is ``-H_v``, with ``H_v = sum_a Cov(x_v, x_a) G_a Cov(x_a, x_v)``. With the matrices of :class:`Covariances`, and
    B_v = I - Lambda_v S_v, areas are gathered up the tree at the lowest node that holds them, and spread down it:

        E_v = own of v + A_v' (sum of the children's E) A_v
        O_v = W_p (sum of the siblings' E) W_p + A_p (O_p + N_p) A_p' + own of p and v,  p the parent of v
        H_v = B_v' E_v B_v + S_v O_v S_v + parts of areas that v is partly inside

    where "own" and N are what :class:`AreaSweep` adds.

    Args:
        cov: the matrices.
        sums: for each kind of node H, added over its nodes.
        own, below, down, spread, whole: shape (nodes with children, kinds, D, D): E of areas that end at a node; E of
            its children that are leaves; what is added to O of the node; to O of all its children; N.
    """

    cov: Covariances
    sums: list[np.ndarray]
    own: np.ndarray
    below: np.ndarray
    down: np.ndarray
    spread: np.ndarray
    whole: np.ndarray

    @classmethod
    def zeros(cls, cov: Covariances) -> Sensitivities:
        """Of no area."""
        size, kinds = cov.plan.layout.size, cov.plan.layout.algebra.kinds
        sums = [
            np.zeros((kinds, cov.kinds.cells(i).size, cov.kinds.cells(i).size))
            for i in range(len(cov.kinds.kinds))
        ]
        parts = (np.zeros((cov.kinds.parents, kinds, size, size)) for _ in range(5))
        return cls(cov, sums, *parts)

    @staticmethod
    def numbers(plan: SpinePlan) -> int:
        """How many numbers one of the arrays of matrices has: up to ``MOST_NUMBERS`` are in reach."""
        parents = int(plan.tree.parent.max()) + 1
        return parents * plan.layout.algebra.kinds * plan.layout.size**2

    def add(self, area: np.ndarray, weights: np.ndarray) -> None:
        """Add areas that do not overlap.

        Args:
            area: shape (leaves,): the area of each leaf, -1 where it is in none.
            weights: shape (areas, kinds, D, D): G, symmetric.
        """
        pairs = AreaPairs.of(self.cov, np.asarray(area), len(weights))
        cost = (pairs.partly() + 2) * weights[0].size
        ends, first = np.cumsum(cost), 0
        while first < len(weights):
            before = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, before + _NUMBERS, side="right")), first + 1)
            AreaSweep.of(self, pairs, first, last, weights[first:last]).run()
            first = last

    def by_class(self) -> np.ndarray:
        """-dF by the weight (1 over the variance) of each query, shape (classes of the plan, queries).

        Once, after all areas were added.
        """
        self._pass()
        plan = self.cov.plan
        found = np.zeros((len(plan.classes[0]), len(plan.queries)))
        for kind, total in enumerate(self.sums):
            cells = self.cov.kinds.cells(kind)
            for i, query in enumerate(plan.queries):
                assert query.kept is not None
                term = plan.layout.algebra.term(query.dense_gram(cells), query.kept)
                found[self.cov.kinds.kinds[kind, 0], i] += float((term * total).sum())
        return found

    def _pass(self) -> None:
        gathered = self._up()
        for nodes in self.cov.plan.depths:
            for group in self.cov.kinds.groups(np.arange(nodes.start, nodes.stop)):
                if not group.leaf:
                    self._down(group, gathered)
        self._leaves()

    def _up(self) -> np.ndarray:
        """E of all nodes with children, and E of children added to ``below``."""
        found = self.own
        for nodes in reversed(self.cov.plan.depths):
            for group in self.cov.kinds.groups(np.arange(nodes.start, nodes.stop)):
                if group.leaf:
                    continue
                move, _ = self.cov.descent(group.kind, group.nodes)
                at = self.at(group)
                found[at] += move.swapaxes(-1, -2) @ self.below[at] @ move
                if nodes.start:
                    np.add.at(self.below, self.cov.plan.tree.parent[group.nodes], found[group.nodes])
        return found

    def at(self, group: NodeGroup) -> tuple[np.ndarray, ...]:
        """Where the matrices of a group are, on its support."""
        every = np.arange(self.cov.plan.layout.algebra.kinds)
        return np.ix_(group.nodes, every, group.cells, group.cells)

    def _down(self, group: NodeGroup, gathered: np.ndarray) -> None:
        """O and H of nodes with children, and what their children's O have in common in ``spread``."""
        at, parent = self.at(group), self.cov.plan.tree.parent[group.nodes]
        variance, weight = self.cov.variances.take(group.nodes), self.cov.weights.take(group.nodes)
        outside, above = self.down[at], self.above(group)
        if parent[0] >= 0:
            common = self.spread[np.ix_(parent, at[1].ravel(), group.cells, group.cells)]
            outside = outside + common - above @ gathered[at] @ above
        rest = np.eye(group.cells.size) - above @ variance
        found = rest.swapaxes(-1, -2) @ gathered[at] @ rest + variance @ outside @ variance
        self.sums[group.kind] += found.sum(axis=0)
        move, _ = self.cov.descent(group.kind, group.nodes)
        passed = move @ (outside + self.whole[at]) @ move.swapaxes(-1, -2)
        self.spread[at] += passed + weight @ self.below[at] @ weight

    def above(self, group: NodeGroup) -> np.ndarray:
        """Lambda of nodes: W of their parents on their support; 0 for the root."""
        parent = self.cov.plan.tree.parent[group.nodes]
        if parent[0] < 0:
            return np.zeros((1, self.cov.plan.layout.algebra.kinds, group.cells.size, group.cells.size))
        return self.cov.weights.take_on(parent, group.cells)

    def _leaves(self) -> None:
        """S O S of leaves, whose O is that of all children of their parent, but for what the sweeps added."""
        for kind, parents, count in self._leaf_counts:
            cells, own = self.cov.kinds.cells(kind), self.cov.leaf[kind]
            assert own is not None
            common = np.tensordot(count, self.spread[parents], axes=1)[:, cells[:, None], cells]
            self.sums[kind] += own @ common @ own

    @cached_property
    def _leaf_counts(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """For each kind of leaf, the parents of its leaves and how many each has."""
        found = []
        for kind in np.flatnonzero(self.cov.kinds.kinds[:, 1]).tolist():
            parents = self.cov.plan.tree.parent[self.cov.kinds.of == kind]
            at, count = np.unique(parents, return_counts=True)
            found.append((kind, at, count.astype(float)))
        return found
