"""Generalised least squares on a tree in two passes, and the first of them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ....errors import InvalidArgument
from ..spine_plan import SpinePlan
from .covariances import CHUNK_CELLS, Covariances, NodeGroup, sums_by
from .vectors import Halves, NodeRange, NodeVectors, WritableVectors, end_of_parents


def gls(
    plan: SpinePlan,
    information: NodeVectors,
    cov: Covariances,
    exact_values: Sequence[np.ndarray] = (),
    *,
    found: NodeVectors | None = None,
    told: NodeVectors | None = None,
) -> TwoPassEstimate:
    """The generalised least-squares estimate of every node's counts, from the measurements of all nodes.

    Up the tree, with m_u the node's own information, s_u the sum of its children's mu and the matrices of
    :class:`Covariances`:

        leaf   mu = S m
        above  r = m - P s,  mu = s + S r,  t = T r

    where sums Q x = c are exact also, with y = R (c - Q mu), mu' = mu + S Phi y and t = T (r + Phi y); and down, with
    z_u the vector of u's parent on u's support (0 for the root):

        x^_u = mu'_u + S'_u z_u,  and u's own children get  t_u + A_u z_u

    Estimates are unbiased, add up exactly as the spine does, meet exact counts, and may be negative. Nodes are
    worked on in chunks, and vectors may lie in files. Of leaves nothing is kept: their x^ follows from their own m and
    from what their parents tell them, and is made when it is asked for.

    Args:
        plan: the spine and its queries.
        information: m, in natural coordinates.
        cov: the matrices, with the margins that are exact.
        exact_values: for each of ``cov.equalities.margins`` its counts, shape (units of its level, classes).
        found, told: where x^ of nodes with children, and what they tell these, are written; in memory where None.

    Returns:
        The estimates x^, in natural coordinates. They read ``information`` from then on.

    Raises:
        InvalidArgument: values for another number of margins, or of another shape.

    Reference: Cumings-Menon, "Full-Information Estimation for Hierarchical Data" (arXiv 2404.13164).

    A county and its two blocks, each measured with variance 2: 12 people, 5 and 4. The missing 3 are shared out.

    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.products.areas.layout import Layout
    >>> spine = Spine.from_codes({"county": list("AA"), "block": list("ab")}, levels=["county", "block"])
    >>> spine, layout = spine.with_shares({"county": "1/2", "block": "1/2"}), Layout.of(Domain({"sex": 1}))
    >>> shares = {level: (1,) for level in spine.levels}
    >>> plan = SpinePlan(spine, layout, (layout.margin(["sex"]),), shares, ZCDP(1), np.ones((2, 1), bool))
    >>> information = NodeVectors(plan, np.array([12.0, 5.0, 4.0]) / 2)
    >>> gls(plan, information, Covariances.of(plan)).take(np.arange(3)).ravel().round(6).tolist()
    [11.0, 6.0, 5.0]
    """
    for one, values in zip(cov.equalities.margins, exact_values, strict=False):
        units = plan.spine.codes[one.level].size
        if np.shape(values) != (units, one.margin.classes):
            raise InvalidArgument(
                f"the exact counts of {one.margin.name!r} have shape {np.shape(values)}; level {one.level!r} needs "
                f"({units}, {one.margin.classes})"
            )
    above, told = (
        NodeRange.between(plan, 0, end_of_parents(plan)) if given is None else given
        for given in (found, told)
    )
    passes = Passes(plan, cov, information, above, told, exact_values)
    passes.rise()
    passes.descend()
    return TwoPassEstimate(passes)


@dataclass(frozen=True, eq=False)
class Passes:
    """What the two passes of ``gls`` work on.

    Args:
        plan, cov: the spine and its matrices.
        information: m.
        found: mu on the way up, in rotated coordinates; x^ on the way down, in natural ones. Of nodes with children
            alone.
        told: t on the way up, and what the children get on the way down; of the same nodes.
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
                self.rise_family(first, last)
                self._release()

    def rise_family(self, first: int, last: int) -> None:
        """mu and t of those nodes of one depth from first to last that have children."""
        sums = child_sums(self.cov, first, last, self.means)
        for group in self.cov.kinds.groups(np.arange(first, last)):
            if not group.leaf:
                self._rise_group(group, sums[np.ix_(group.nodes - first, group.cells)])

    def means(self, group: NodeGroup) -> np.ndarray:
        """mu of some nodes, rotated; those of leaves are made here."""
        return self._leaf_means(group) if group.leaf else self.found.take(group.nodes)

    def _leaf_means(self, group: NodeGroup) -> np.ndarray:
        algebra, own = self.plan.layout.algebra, self.cov.leaf[group.kind]
        assert own is not None
        told = algebra.rotate(self.information.take(group.nodes))
        mean = algebra.apply(own, told)
        if group.kind in self.cov.steps:
            step = self.cov.step(group.kind, group.nodes)
            before = _times(step.before, told[..., 0])
            mean[..., 0] = before + _times(step.before, self._missing(group, before))
        return mean

    def leaf_estimates(self, group: NodeGroup) -> np.ndarray:
        """x^ of leaves of one kind, in natural coordinates, once their parents were told: the same in any company."""
        algebra = self.plan.layout.algebra
        above = self.told.take_on(self.plan.tree.parent[group.nodes], group.cells)
        return algebra.unrotate(self._leaf_means(group) + algebra.apply(self.cov.upward(group), above))

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
        """From the root to the last nodes with children."""
        for nodes in self.plan.depths[:-1]:
            inner = nodes.start + np.flatnonzero(~self.cov.kinds.is_leaf[nodes])
            for group in self.cov.kinds.pieces(inner):
                self.descend_group(group)
                self._release()

    def _release(self) -> None:
        for vectors in (self.information, self.found, self.told):
            vectors.release()

    def descend_group(self, group: NodeGroup) -> None:
        """x^ of nodes of one kind that have children, and what these get."""
        algebra, nodes = self.plan.layout.algebra, group.nodes
        x = self.found.take(nodes)
        above = None
        if nodes[0]:
            above = self.told.take_on(self.plan.tree.parent[nodes], group.cells)
            x += algebra.apply(self.cov.upward(group), above)
        self.found.put(nodes, algebra.unrotate(x))
        if above is not None:
            move, _ = self.cov.descent(group.kind, nodes)
            self.told.put(nodes, self.told.take(nodes) + algebra.apply(move, above))


@dataclass(frozen=True, eq=False)
class TwoPassEstimate:
    """x^ of all nodes: of those with children as the two passes left it, of leaves made when it is taken.

    Args:
        passes: that are done.
    """

    passes: Passes

    @property
    def plan(self) -> SpinePlan:
        """Of the nodes."""
        return self.passes.plan

    @property
    def cov(self) -> Covariances:
        """The matrices."""
        return self.passes.cov

    @property
    def dtype(self) -> np.dtype:
        """Of the estimates."""
        return self.passes.found.dtype

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """x^ of nodes (rising) of one support: shape (m, k, N)."""
        algebra, found = self.plan.layout.algebra, None
        for group in self.cov.kinds.groups(nodes):
            x = self._of(group)
            if group.nodes.size == nodes.size:
                return x
            found = np.empty((nodes.size, *x.shape[1:])) if found is None else found
            found[np.searchsorted(nodes, group.nodes)] = x
        return np.zeros((0, 0, algebra.cells)) if found is None else found

    def take_on(self, nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """x^ of nodes of any supports on chosen dense cells, 0 off their support: shape (m, cells, N)."""
        order = np.argsort(nodes, kind="stable")
        found = np.zeros((nodes.size, cells.size, self.plan.layout.algebra.cells))
        for group in self.cov.kinds.groups(nodes[order]):
            there = np.flatnonzero(np.isin(cells, group.cells))
            rows = order[np.searchsorted(nodes[order], group.nodes)]
            x = self._of(group)[:, np.searchsorted(group.cells, cells[there])]
            found[rows[:, None], there] = x
        return found

    def release(self) -> None:
        """Let go of what is in memory of files."""
        for vectors in (self.passes.information, self.passes.found, self.passes.told):
            vectors.release()

    def _of(self, group: NodeGroup) -> np.ndarray:
        return self.passes.leaf_estimates(group) if group.leaf else self.passes.found.take(group.nodes)


@dataclass(frozen=True, eq=False)
class Upward:
    """What measurements at each node and below it tell of its counts x: minus the log-likelihood is
    ``x'Hx / 2 - b'x`` and a constant.

    Args:
        cov: the matrices, without exact margins.
        linear: b = S^-1 mu of every node, in natural coordinates.
    """

    cov: Covariances
    linear: WritableVectors

    def precisions(self, nodes: np.ndarray) -> np.ndarray:
        """H = S^-1 of nodes of one support that have children: shape (m, kinds, k, k)."""
        return self.cov.inverses.take(nodes)

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
        into: where b of the nodes before ``end_of_parents`` is written; in memory where None. Leaves' b is their m,
            and is read from ``information``.

    Raises:
        InvalidArgument: matrices with exact margins.
    """
    cov = Covariances.of(plan) if cov is None else cov
    if cov.equalities.margins:
        raise InvalidArgument("the pass up the tree takes no exact margins: they hold in the descent")
    upward = Upward(cov, Halves(_copied(information, into), information))
    for depth in reversed(range(len(plan.depths) - 1)):
        for first, last in cov.kinds.families(depth, plan.layout.size * plan.layout.algebra.cells):
            up_family(upward, first, last)
            upward.linear.release()
    return upward


def _copied(information: NodeVectors, into: NodeVectors | None) -> NodeVectors:
    """m of the nodes before ``end_of_parents``, some at a time."""
    plan = information.plan
    end = end_of_parents(plan)
    above = NodeRange.between(plan, 0, end) if into is None else into
    every = np.arange(plan.layout.size)
    step = max(1, CHUNK_CELLS // plan.layout.cell.size)
    for first in range(0, end, step):
        nodes = np.arange(first, min(first + step, end))
        above.put_on(nodes, every, information.take_on(nodes, every))
    return above


def up_family(upward: Upward, first: int, last: int) -> None:
    """b of nodes of one depth from first to last, whose ``linear`` is m until then, from b of their children."""
    cov, found = upward.cov, upward.linear
    algebra = cov.plan.layout.algebra

    def means(group: NodeGroup) -> np.ndarray:
        return algebra.apply(cov.upward(group), algebra.rotate(found.take(group.nodes)))

    sums = child_sums(cov, first, last, means)
    for group in cov.kinds.groups(np.arange(first, last)):
        if not group.leaf:
            below = upward.precisions(group.nodes) - cov.precisions[group.kind]
            told = algebra.apply(below, sums[np.ix_(group.nodes - first, group.cells)])
            found.put(group.nodes, found.take(group.nodes) + algebra.unrotate(told))


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
