"""Generalised least squares on a tree in two passes, and the first of them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ....errors import InvalidArgument
from ..spine_plan import SpinePlan
from .covariances import Covariances, NodeGroup, sums_by
from .vectors import Halves, Vectors, end_of_parents


@dataclass(frozen=True, eq=False)
class Passes:
    """Generalised least squares on a tree in two passes: every node's counts from the measurements of all nodes.

    Up the tree, with m_u the node's own information, s_u the sum of its children's mu and the matrices of
    :class:`Covariances`:

        leaf   mu = S m
        above  r = m - P s,  mu = s + S r,  t = T r

    where sums Q x = c are exact also, with y = R (c - Q mu), mu' = mu + S Phi y and t = T (r + Phi y); and down, with
    z_u the vector of u's parent on u's support (0 for the root):

        x^_u = mu'_u + S'_u z_u,  and u's own children get  t_u + A_u z_u

    Estimates are unbiased, add up exactly as the spine does, meet exact counts, and may be negative. Of leaves nothing
    is kept: their x^ follows from their own m and from what their parents tell them, and is made when it is asked for.

    Args:
        cov: the matrices, with the margins that are exact.
        exact: for each of ``cov.equalities.margins`` its counts, shape (units of its level, classes).
        information: m of every node, in natural coordinates.
        mean, told: mu, rotated, and t of the nodes with children: the way up.
        estimate, passed: their x^, in natural coordinates, and what their children get: the way down. They may be
            ``mean`` and ``told``, whose numbers are then lost.

    Reference: Cumings-Menon, "Full-Information Estimation for Hierarchical Data" (arXiv 2404.13164).
    """

    cov: Covariances
    exact: Sequence[np.ndarray]
    information: Any
    mean: Any
    told: Any
    estimate: Any
    passed: Any

    @property
    def plan(self) -> SpinePlan:
        return self.cov.plan

    def check_exact(self) -> None:
        """Refuse exact counts of another shape."""
        margins = self.cov.equalities.margins
        if len(self.exact) != len(margins):
            raise InvalidArgument(
                f"{len(margins)} margins are exact, and values are given for {len(self.exact)}"
            )
        for one, values in zip(margins, self.exact, strict=True):
            units = self.plan.spine.areas(one.level).codes.size
            if np.shape(values) != (units, one.margin.classes):
                raise InvalidArgument(
                    f"the exact counts of {one.margin.name!r} have shape {np.shape(values)}; level {one.level!r} needs "
                    f"({units}, {one.margin.classes})"
                )

    def rise_family(self, first: int, last: int) -> None:
        """mu and t of those nodes of one depth from first to last that have children."""
        sums = child_sums(self.cov, first, last, self.means)
        for group in self.cov.kinds.groups(np.arange(first, last)):
            if not group.leaf:
                self._rise_group(group, sums[np.ix_(group.nodes - first, group.cells)])

    def means(self, group: NodeGroup) -> np.ndarray:
        """mu of some nodes, rotated; those of leaves are made here."""
        return self._leaf_means(group) if group.leaf else self.mean.take(group.nodes)

    def _leaf_means(self, group: NodeGroup) -> np.ndarray:
        algebra, own = self.plan.layout.algebra, self.cov.leaf[group.kind]
        assert own is not None
        told = algebra.rotate(self.information.take(group.nodes))
        mean = algebra.apply(own, told)
        if group.kind in self.cov.steps:
            mean[..., 0] = self._stepped(group, told[..., 0])
        return mean

    def _stepped(self, group: NodeGroup, told: np.ndarray) -> np.ndarray:
        """mu of leaves with exact sums, of the constant kind, from its m: shapes (m, k)."""
        step = self.cov.step(group.kind, group.nodes)
        before = _times(step.before, told)
        return before + _times(step.before, self._missing(group, before))

    def leaf_estimates(self, group: NodeGroup) -> np.ndarray:
        """x^ of leaves of one kind, in natural coordinates, once their parents were told: the same in any company."""
        algebra = self.plan.layout.algebra
        above = self.passed.take_on(self.plan.tree.parent[group.nodes], group.cells)
        return algebra.unrotate(self._leaf_means(group) + algebra.apply(self.cov.upward(group), above))

    def leaf_sums(self, group: NodeGroup) -> np.ndarray:
        """Sums of x^ of leaves of one kind over N, (m, k, 1), of the constant kind alone: the same in any company."""
        root, own = sqrt(self.plan.layout.algebra.cells), self.cov.leaf[group.kind]
        assert own is not None
        told = self.information.take(group.nodes).sum(axis=-1) / root
        mean = self._stepped(group, told) if group.kind in self.cov.steps else _times(own[0], told)
        above = self.passed.take_on(self.plan.tree.parent[group.nodes], group.cells)[..., 0]
        return root * (mean + _times(self.cov.upward(group)[..., 0, :, :], above))[..., None]

    def _rise_group(self, group: NodeGroup, s: np.ndarray) -> None:
        algebra, cov = self.plan.layout.algebra, self.cov
        r = algebra.rotate(self.information.take(group.nodes)) - algebra.apply(cov.precisions[group.kind], s)
        mean = s + algebra.apply(cov.variances.take(group.nodes), r)
        if group.kind in cov.steps:
            step = cov.step(group.kind, group.nodes)
            before = s[..., 0] + _times(step.before, r[..., 0])
            missing = self._missing(group, before)
            mean[..., 0] = before + _times(step.before, missing)
            r[..., 0] += missing
        self.mean.put(group.nodes, mean)
        self.told.put(group.nodes, algebra.apply(cov.gains.take(group.nodes), r))

    def _missing(self, group: NodeGroup, mean: np.ndarray) -> np.ndarray:
        """Phi y of nodes with exact sums, from mu of the constant kind: shape (m, k)."""
        margins = int(self.cov.kinds.kinds[group.kind, 2])
        exact = self.cov.equalities.values(margins, group.nodes, self.exact)
        return self.cov.step(group.kind, group.nodes).move(mean, exact)

    def descend_group(self, group: NodeGroup) -> None:
        """x^ of nodes of one kind that have children, and what these get."""
        algebra, nodes = self.plan.layout.algebra, group.nodes
        x, told = self.mean.take(nodes), self.told.take(nodes)
        if nodes[0]:
            above = self.passed.take_on(self.plan.tree.parent[nodes], group.cells)
            x += algebra.apply(self.cov.upward(group), above)
            move, _ = self.cov.descent(group.kind, nodes)
            told += algebra.apply(move, above)
        self.estimate.put(nodes, algebra.unrotate(x))
        self.passed.put(nodes, told)


@dataclass(frozen=True, eq=False)
class TwoPassEstimate:
    """x^ of all nodes: of those with children as the two passes left it, of leaves made when it is taken."""

    passes: Passes

    @property
    def plan(self) -> SpinePlan:
        return self.passes.plan

    @property
    def cov(self) -> Covariances:
        return self.passes.cov

    @property
    def dtype(self) -> np.dtype:
        return self.passes.estimate.dtype

    def take(self, nodes: np.ndarray) -> np.ndarray:
        return self._joined(nodes, self._of)

    def sums(self, nodes: np.ndarray) -> np.ndarray:
        """The vectors of nodes (rising) of one support, added up over N: shape (m, k, 1)."""
        return self._joined(nodes, self._sums)

    def _joined(self, nodes: np.ndarray, of: Callable[[NodeGroup], np.ndarray]) -> np.ndarray:
        found = None
        for group in self.cov.kinds.groups(nodes):
            x = of(group)
            if group.nodes.size == nodes.size:
                return x
            found = np.empty((nodes.size, *x.shape[1:])) if found is None else found
            found[np.searchsorted(nodes, group.nodes)] = x
        return np.zeros((0, 0, self.plan.layout.algebra.cells)) if found is None else found

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        order = np.argsort(nodes, kind="stable")
        found = np.zeros((nodes.size, cells.size, self.plan.layout.algebra.cells))
        for group in self.cov.kinds.groups(nodes[order]):
            there = np.flatnonzero(np.isin(cells, group.cells))
            rows = order[np.searchsorted(nodes[order], group.nodes)]
            x = self._of(group)[:, np.searchsorted(group.cells, cells[there])]
            found[rows[:, None], there] = x
        return found

    def fetch(self, nodes: np.ndarray) -> None:
        is_leaf = self.cov.kinds.is_leaf[nodes]
        self.passes.information.fetch(nodes[is_leaf])
        self.passes.passed.fetch(np.unique(self.plan.tree.parent[nodes[is_leaf]]))
        self.passes.estimate.fetch(nodes[~is_leaf])

    def release(self) -> None:
        for vectors in (self.passes.information, self.passes.estimate, self.passes.passed):
            vectors.release()

    def _of(self, group: NodeGroup) -> np.ndarray:
        return self.passes.leaf_estimates(group) if group.leaf else self.passes.estimate.take(group.nodes)

    def _sums(self, group: NodeGroup) -> np.ndarray:
        return self.passes.leaf_sums(group) if group.leaf else self._of(group).sum(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Upward:
    """The pass up the tree alone, nothing being exact: what measurements at each node and below it tell of its counts.

    Minus the log-likelihood of counts x is ``x'Hx / 2 - b'x`` and a constant, with H = S^-1 and

        leaf   b = m
        above  b = m + (S^-1 - P) s,  s the sum of the children's S b

    Args:
        cov: the matrices, without exact margins: these hold in the descent.
        linear: b of every node, in natural coordinates.
    """

    cov: Covariances
    linear: Halves

    def precisions(self, nodes: np.ndarray) -> np.ndarray:
        """H = S^-1 of nodes of one support that have children: shape (m, kinds, k, k)."""
        return self.cov.inverses.take(nodes)

    def precision(self, node: int) -> np.ndarray:
        """H of any node, shape (kinds, k, k) over its support."""
        if self.cov.kinds.is_leaf[node]:
            return self.cov.precisions[self.cov.kinds.of[node]]
        return self.precisions(np.array([node]))[0]

    def rise_family(self, information: Vectors, first: int, last: int) -> None:
        """b of those nodes of one depth from first to last that may have children, from m and b of their children."""
        cov, algebra = self.cov, self.cov.plan.layout.algebra

        def means(group: NodeGroup) -> np.ndarray:
            return algebra.apply(cov.upward(group), algebra.rotate(self.linear.take(group.nodes)))

        sums = child_sums(cov, first, last, means)
        for group in cov.kinds.groups(np.arange(first, min(last, end_of_parents(cov.plan)))):
            b = information.take(group.nodes)
            if not group.leaf:
                below = self.precisions(group.nodes) - cov.precisions[group.kind]
                told = algebra.apply(below, sums[np.ix_(group.nodes - first, group.cells)])
                b = b + algebra.unrotate(told)
            self.linear.put(group.nodes, b)


def child_sums(
    cov: Covariances, first: int, last: int, means: Callable[[NodeGroup], np.ndarray]
) -> np.ndarray:
    """Sums of the children's rotated vectors, for nodes from first to last: shape (nodes, D, N).

    Args:
        cov: the matrices, for the tree.
        first, last: nodes of one depth.
        means: the vectors of a group of children, shape (m, k, N).
    """
    plan = cov.plan
    sums = np.zeros((last - first, plan.layout.size, plan.layout.algebra.cells))
    for group in cov.kinds.groups(np.arange(plan.children[first], plan.children[last])):
        at, add = sums_by(plan.tree.parent[group.nodes] - first, means(group))
        sums[np.ix_(at, group.cells)] += add
    return sums


def _times(matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (matrix @ x[..., None])[..., 0]
