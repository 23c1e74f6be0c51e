"""Generalised least squares on a tree in two passes, and the first of them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument
from ..geography.spine_plan import SpinePlan
from .covariances import Covariances
from .node_groups import NodeGroup, sums_by
from .node_matrices import NodeMatrices
from .store import NodeVectors


def gls(
    plan: SpinePlan,
    information: NodeVectors,
    cov: Covariances,
    exact_values: Sequence[np.ndarray] = (),
    *,
    into: NodeVectors | None = None,
) -> NodeVectors:
    """The generalised least-squares estimate of every node's counts, from the measurements of all nodes.

    Up the tree, with m_u the node's own information, s_u the sum of its children's mu and the matrices of
    :class:`Covariances`:

        leaf   mu = S m
        above  r = m - P s,  mu = s + S r,  t = T r

    where sums Q x = c are exact also, with y = R (c - Q mu), mu' = mu + S Phi y and t = T (r + Phi y); and down, with
    z_u the vector of u's parent on u's support (0 for the root):

        x^_u = mu'_u + S'_u z_u,  and u's own children get  t_u + A_u z_u

    Estimates are unbiased, add up exactly as the spine does, meet exact counts, and may be negative. Nodes are
    worked on in chunks: vectors may lie in files.

    Args:
        plan: the spine and its queries.
        information: m, in natural coordinates.
        cov: the matrices, with the margins that are exact.
        exact_values: for each of ``cov.equalities.margins`` its counts, shape (units of its level, classes).
        into: where the estimate is written; may be ``information`` itself.

    Returns:
        The estimates x^, in natural coordinates.

    Raises:
        InvalidArgument: values for another number of margins, or of another shape.

    Reference: Cumings-Menon, "Full-Information Estimation for Hierarchical Data" (arXiv 2404.13164).

    A county and its two blocks, each measured with variance 2: 12 people, 5 and 4. The missing 3 are shared out.

    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.geography.layout import Layout
    >>> spine = Spine.from_codes({"county": list("AA"), "block": list("ab")}, levels=["county", "block"])
    >>> spine, layout = spine.with_shares({"county": "1/2", "block": "1/2"}), Layout.of(Domain({"sex": 1}))
    >>> shares = {level: (1,) for level in spine.levels}
    >>> plan = SpinePlan(spine, layout, (layout.margin(["sex"]),), shares, ZCDP(1), np.ones((2, 1), bool))
    >>> information = NodeVectors(plan, np.array([12.0, 5.0, 4.0]) / 2)
    >>> gls(plan, information, Covariances.of(plan)).flat.round(6).tolist()
    [11.0, 6.0, 5.0]
    """
    for one, values in zip(cov.equalities.margins, exact_values, strict=False):
        units = plan.spine.codes[one.level].size
        if np.shape(values) != (units, one.margin.classes):
            raise InvalidArgument(
                f"the exact counts of {one.margin.name!r} have shape {np.shape(values)}; level {one.level!r} needs "
                f"({units}, {one.margin.classes})"
            )
    found = NodeVectors.zeros(plan) if into is None else into
    passes = _Passes(plan, cov, information, found, NodeVectors.zeros(plan), exact_values)
    passes.rise()
    passes.descend()
    return found


@dataclass(frozen=True, eq=False)
class _Passes:
    """What the two passes of ``gls`` work on.

    Args:
        plan, cov: the spine and its matrices.
        information: m.
        found: mu on the way up, in rotated coordinates; x^ on the way down, in natural ones.
        told: t on the way up, and what the children get on the way down; of nodes with children alone.
        exact: the exact counts.
    """

    plan: SpinePlan
    cov: Covariances
    information: NodeVectors
    found: NodeVectors
    told: NodeVectors
    exact: Sequence[np.ndarray]

    def rise(self) -> None:
        """From the leaves to the root."""
        plan, kinds = self.plan, self.cov.kinds
        for depth in reversed(range(len(plan.depths) - 1)):
            for first, last in kinds.families(depth, plan.layout.size * plan.layout.algebra.cells):
                sums = child_sums(self.cov, first, last, self._means)
                for group in kinds.groups(np.arange(first, last)):
                    if not group.leaf:
                        self._rise_group(group, sums[np.ix_(group.nodes - first, group.cells)])

    def _means(self, group: NodeGroup) -> np.ndarray:
        """mu of some nodes, rotated; those of leaves are made here."""
        if not group.leaf:
            return self.found.take(group.nodes)
        mean = self._leaf_means(group)
        self.found.put(group.nodes, mean)
        return mean

    def _leaf_means(self, group: NodeGroup) -> np.ndarray:
        algebra, own = self.plan.layout.algebra, self.cov.leaf[group.kind]
        assert own is not None
        told = algebra.rotate(self.information.take(group.nodes))
        mean = algebra.apply(own, told)
        if group.kind in self.cov.steps:
            step = self.cov.step(group.kind, group.nodes)
            before = told[..., 0] @ step.before
            mean[..., 0] = before + self._missing(group, before) @ step.before
        return mean

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
        self.found.put(group.nodes, mean)
        self.told.put(group.nodes, algebra.apply(cov.gains.take(group.nodes), r))

    def _missing(self, group: NodeGroup, mean: np.ndarray) -> np.ndarray:
        """Phi y of nodes with exact sums, from mu of the constant kind: shape (m, k)."""
        margins = int(self.cov.kinds.kinds[group.kind, 2])
        exact = self.cov.equalities.values(margins, group.nodes, self.exact)
        return self.cov.step(group.kind, group.nodes).move(mean, exact)

    def descend(self) -> None:
        """From the root to the leaves."""
        for nodes in self.plan.depths:
            for group in self.cov.kinds.pieces(np.arange(nodes.start, nodes.stop)):
                self._descend_group(group)

    def _descend_group(self, group: NodeGroup) -> None:
        algebra, nodes = self.plan.layout.algebra, group.nodes
        x = self.found.take(nodes)
        above = None
        if nodes[0]:
            above = self.told.take_on(self.plan.tree.parent[nodes], group.cells)
            x += algebra.apply(self.cov.upward(group), above)
        self.found.put(nodes, algebra.unrotate(x))
        if above is not None and not group.leaf:
            move, _ = self.cov.descent(group.kind, nodes)
            self.told.put(nodes, self.told.take(nodes) + algebra.apply(move, above))


@dataclass(frozen=True, eq=False)
class Upward:
    """What measurements at each node and below it tell of its counts x: minus the log-likelihood is
    ``x'Hx / 2 - b'x`` and a constant.

    Args:
        cov: the matrices, without exact margins.
        linear: b = S^-1 mu of every node, in natural coordinates.
    """

    cov: Covariances
    linear: NodeVectors

    @cached_property
    def _precision(self) -> NodeMatrices:
        found = NodeMatrices.zeros(self.cov.plan, self.cov.plan.layout.algebra.kinds)
        for group in self.cov.kinds.groups(np.flatnonzero(~self.cov.kinds.is_leaf)):
            found.put(group.nodes, np.linalg.inv(self.cov.variances.take(group.nodes)))
        return found

    def precisions(self, nodes: np.ndarray) -> np.ndarray:
        """H = S^-1 of nodes of one support that have children: shape (m, kinds, k, k)."""
        return self._precision.take(nodes)

    def precision(self, node: int) -> np.ndarray:
        """H of any node, shape (kinds, k, k) over its support."""
        if self.cov.kinds.is_leaf[node]:
            return self.cov.precisions[self.cov.kinds.of[node]]
        return self.precisions(np.array([node]))[0]


def up_pass(
    plan: SpinePlan,
    information: NodeVectors,
    cov: Covariances | None = None,
    *,
    into: NodeVectors | None = None,
) -> Upward:
    """The pass up the tree alone: what is known of each node from below, nothing being exact.

        leaf   b = m
        above  b = m + (S^-1 - P) s,  s the sum of the children's S b

    Args:
        plan: the spine and its queries.
        information: m, in natural coordinates.
        cov: matrices without exact margins; made here where None.
        into: where b is written; may be ``information`` itself.

    Raises:
        InvalidArgument: matrices with exact margins.
    """
    cov = Covariances.of(plan) if cov is None else cov
    if cov.equalities.margins:
        raise InvalidArgument("the pass up the tree takes no exact margins: they hold in the descent")
    found = NodeVectors.zeros(plan) if into is None else into
    if found.flat is not information.flat:
        found.flat[:] = information.flat
    upward = Upward(cov, found)
    algebra = plan.layout.algebra

    def means(group: NodeGroup) -> np.ndarray:
        return algebra.apply(cov.upward(group), algebra.rotate(found.take(group.nodes)))

    for depth in reversed(range(len(plan.depths) - 1)):
        for first, last in cov.kinds.families(depth, plan.layout.size * algebra.cells):
            sums = child_sums(cov, first, last, means)
            for group in cov.kinds.groups(np.arange(first, last)):
                if not group.leaf:
                    below = upward.precisions(group.nodes) - cov.precisions[group.kind]
                    told = algebra.apply(below, sums[np.ix_(group.nodes - first, group.cells)])
                    found.put(group.nodes, found.take(group.nodes) + algebra.unrotate(told))
    return upward


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
    """Matrices (m, k, k) on vectors (m, k)."""
    return (matrix @ x[..., None])[..., 0]
