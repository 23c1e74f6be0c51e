"""What measurements of a whole spine tell about each node: matrices alone, before any data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..geography.constraints import ExactMargin
from ..geography.spine_plan import SpinePlan
from .equalities import (
    Equalities,
    EqualityStep,
    free_parts,
)
from .node_groups import (
    NodeGroup,
    NodeKinds,
    sums_by,
)
from .node_matrices import NodeMatrices


@dataclass(frozen=True, eq=False)
class Covariances:
    """Variances of generalised least squares on a tree, by two passes over its nodes.

    With P_u the precision of node u's own measurements, all matrices in the block algebra, up the tree:

        leaf   S_u = P_u^-1
        above  Sig_u = sum of the children's S,  T_u = (I + P_u Sig_u)^-1,  S_u = Sig_u T_u

    S_u is the variance of u's counts given what was measured at u and below. Where sums are exact a node ends with
    the step of :class:`EqualityStep`. Down the tree, with Lambda_u = W of u's parent (0 for the root) on u's support:

        A_u = T_u (I - Phi_u S_u),  M_u = T_u P_u + T_u Phi_u T_u',  W_u = M_u + A_u Lambda_u A_u'
        V_u = S_u - S_u Lambda_u S_u,  Cov(x_v, x_w) = -S_v W_u S_w for two children of u

    with S on the last line after the step. No inverse of Sig is needed, so that it may be singular. This is the
    smoother of Bryson and Frazier with a tree in place of a line. Leaves of one kind share S, and their V is made when
    asked for.

    Args:
        plan: the spine and its queries.
        equalities: what is exact.
        kinds: the kinds of nodes.
        precisions: for each kind of node P, shape (kinds of contrast, k, k).
        leaf: for each kind of node S where it is one of leaves; None for others.
        variances: S of the nodes with children.
        gains: T of the nodes with children.
        steps: for each kind of node with exact sums, its nodes and their step.

    Reference: Bryson and Ho, "Applied Optimal Control" (1975), section 13.2.

    >>> from fractions import Fraction
    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.geography.layout import Layout
    >>> codes = {"county": list("AAB"), "block": list("abc")}
    >>> spine = Spine.from_codes(codes, levels=["county", "block"])
    >>> spine = spine.bypass({"root": 0, "county": "1/2", "block": "1/2"})
    >>> layout = Layout.of(Domain({"age": 2}))
    >>> shares = {level: (Fraction(1),) for level in spine.levels}
    >>> support = np.ones((3, 1), bool)
    >>> plan = SpinePlan(spine, layout, (layout.margin(["age"]),), shares, ZCDP(1), support)
    >>> found = Covariances.of(plan)
    >>> [round(float(found.variance(node)[0, 0, 0]), 3) for node in range(plan.tree.size)]
    [2.333, 1.333, 1.0, 1.333, 1.333]
    """

    plan: SpinePlan
    equalities: Equalities
    kinds: NodeKinds
    precisions: tuple[np.ndarray, ...]
    leaf: tuple[np.ndarray | None, ...]
    variances: NodeMatrices
    gains: NodeMatrices
    steps: dict[int, tuple[np.ndarray, EqualityStep]]

    @classmethod
    def of(
        cls, plan: SpinePlan, exact: Sequence[ExactMargin] = (), weights: np.ndarray | None = None
    ) -> Covariances:
        """The pass up the tree.

        Args:
            plan: the spine and its queries.
            exact: the margins that are exact.
            weights: shape (classes of the plan, queries): 1 over the variance of each answer, in place of the plan's.

        Raises:
            InvalidArgument: an exact margin that cannot be used; see :class:`Equalities`.
        """
        equalities = Equalities(plan, tuple(exact))
        kinds = NodeKinds(plan, equalities.sets)
        free = _Free.of(plan, kinds) if exact else None
        classes = kinds.kinds[:, 0].tolist()
        precisions = tuple(
            plan.precision(one) if weights is None else plan.precision_of(weights[one], kinds.cells(kind))
            for kind, one in enumerate(classes)
        )
        leaf: list[np.ndarray | None] = []
        steps: dict[int, tuple[np.ndarray, EqualityStep]] = {}
        for kind, (_, is_leaf, margins) in enumerate(kinds.kinds.tolist()):
            own = np.linalg.inv(precisions[kind]) if is_leaf else None
            if own is not None and free is not None and margins:
                sums = equalities.sums(margins, kinds.cells(kind))
                step, own[0], free.leaf[kind] = EqualityStep.of(own[0], free.leaf[kind], sums)
                steps[kind] = (np.flatnonzero(kinds.of == kind), step)
            leaf.append(own)
        variances, gains = (NodeMatrices.zeros(plan, plan.layout.algebra.kinds) for _ in range(2))
        found = cls(plan, equalities, kinds, precisions, tuple(leaf), variances, gains, steps)
        found._rise(free)
        return found

    def _rise(self, free: _Free | None) -> None:
        algebra, size = self.plan.layout.algebra, self.plan.layout.size
        parts: dict[int, list[tuple[np.ndarray, EqualityStep]]] = {}
        for depth in reversed(range(len(self.plan.depths) - 1)):
            for first, last in self.kinds.families(depth, algebra.kinds * size * size):
                sums = self._child_sums(first, last)
                mean = None if free is None else free.child_means(first, last)
                for group in self.kinds.groups(np.arange(first, last)):
                    if group.leaf:
                        continue
                    at = (group.nodes - first)[:, None, None]
                    total = sums[at[..., None], np.arange(algebra.kinds)[:, None, None],
                                 group.cells[:, None], group.cells]  # fmt: skip
                    part = None if mean is None else mean[at, group.cells[:, None], group.cells]
                    step = self._rise_group(group, total, part, free)
                    if step is not None:
                        parts.setdefault(group.kind, []).append((group.nodes, step))
        for kind, found in parts.items():
            self.steps[kind] = _joined(found)

    def _rise_group(
        self, group: NodeGroup, total: np.ndarray, part: np.ndarray | None, free: _Free | None
    ) -> EqualityStep | None:
        """S and T of nodes of one kind from the sums of their children's S."""
        gain = np.linalg.inv(np.eye(group.cells.size) + self.precisions[group.kind] @ total)
        variance = total @ gain
        variance = (variance + variance.swapaxes(-1, -2)) / 2
        step = None
        if part is not None:
            assert free is not None
            projector, margins = free_parts(part), int(self.kinds.kinds[group.kind, 2])
            if margins:
                sums = self.equalities.sums(margins, group.cells)
                step, variance[:, 0], projector = EqualityStep.of(variance[:, 0], projector, sums)
            free.above.put(group.nodes, projector)
        self.variances.put(group.nodes, variance)
        self.gains.put(group.nodes, gain)
        return step

    def _child_sums(self, first: int, last: int) -> np.ndarray:
        """Sig of the nodes from first to last, over all dense cells: 0 off the support."""
        size = self.plan.layout.size
        found = np.zeros((last - first, self.plan.layout.algebra.kinds, size, size))
        nodes = np.arange(self.plan.children[first], self.plan.children[last])
        for group in self.kinds.groups(nodes):
            owner = self.plan.tree.parent[group.nodes] - first
            own = self.leaf[group.kind]
            if own is None:
                at, add = sums_by(owner, self.variances.take(group.nodes))
            else:
                at, count = np.unique(owner, return_counts=True)
                add = count[:, None, None, None] * own
            found[np.ix_(at, np.arange(found.shape[1]), group.cells, group.cells)] += add
        return found

    @cached_property
    def weights(self) -> NodeMatrices:
        """W of the nodes with children: the pass down the tree."""
        found = NodeMatrices.zeros(self.plan, self.plan.layout.algebra.kinds)
        for nodes in self.plan.depths:
            for group in self.kinds.groups(np.arange(nodes.start, nodes.stop)):
                if group.leaf:
                    continue
                move, own = self.descent(group.kind, group.nodes)
                if nodes.start:
                    above = found.take_on(self.plan.tree.parent[group.nodes], group.cells)
                    own = own + move @ above @ move.swapaxes(-1, -2)
                found.put(group.nodes, (own + own.swapaxes(-1, -2)) / 2)
        return found

    @cached_property
    def inverses(self) -> NodeMatrices:
        """S^-1 of the nodes with children; without exact margins, with which S is singular."""
        found = NodeMatrices.zeros(self.plan, self.plan.layout.algebra.kinds)
        for group in self.kinds.groups(np.flatnonzero(~self.kinds.is_leaf)):
            found.put(group.nodes, np.linalg.inv(self.variances.take(group.nodes)))
        return found

    def descent(self, kind: int, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A and M of nodes of one kind that have children: shape (m, kinds, k, k)."""
        gain = self.gains.take(nodes)
        own = gain @ self.precisions[kind]
        if kind in self.steps:
            step, first = self.step(kind, nodes), gain[:, 0].copy()
            own[:, 0] += first @ step.weight @ first.swapaxes(-1, -2)
            gain[:, 0] = first - first @ step.weight @ step.before
        return gain, own

    def step(self, kind: int, nodes: np.ndarray) -> EqualityStep:
        """The step of nodes of one kind with exact sums."""
        held, step = self.steps[kind]
        return step.at(np.searchsorted(held, nodes))

    def upward(self, group: NodeGroup) -> np.ndarray:
        """S of nodes of one kind: shape (m, kinds, k, k), or (kinds, k, k) for leaves, which share it."""
        own = self.leaf[group.kind]
        return self.variances.take(group.nodes) if own is None else own

    def variances_of(self, group: NodeGroup) -> tuple[np.ndarray, np.ndarray]:
        """The distinct V of nodes of one kind, and which of them each node has.

        An only child has its parent's V. Its own S may be larger by so much that V is lost in the difference.
        """
        own, parent = self.upward(group), self.plan.tree.parent[group.nodes]
        if parent[0] < 0:
            return own, np.zeros(1, np.int64)
        which = np.arange(parent.size)
        if group.leaf:
            parent, which = np.unique(parent, return_inverse=True)
        found = own - own @ self.weights.take_on(parent, group.cells) @ own
        found = (found + found.swapaxes(-1, -2)) / 2
        alone = np.flatnonzero(self.plan.children[parent + 1] - self.plan.children[parent] == 1)
        for above in self.kinds.groups(parent[alone]):
            variance, index = self.variances_of(above)
            found[alone[np.searchsorted(parent[alone], above.nodes)]] = variance[index]
        return found, which.reshape(-1)

    def variance(self, node: int) -> np.ndarray:
        """V: the variance of a node's estimated counts, shape (kinds, k, k) over its support."""
        (group,) = self.kinds.groups(np.array([node]))
        return self.variances_of(group)[0][0]

    def sibling_covariance(self, left: int, right: int) -> np.ndarray:
        """The covariance of two children of one node, shape (kinds, k of the left, k of the right)."""
        parent = self.plan.tree.parent[left]
        assert parent == self.plan.tree.parent[right]
        assert left != right
        groups = [next(self.kinds.groups(np.array([node]))) for node in (left, right)]
        above = self.plan.dense_cells[self.plan.pattern[parent]]
        rows, columns = (np.searchsorted(above, group.cells) for group in groups)
        weight = self.weights.take(np.array([parent]))[0][:, rows[:, None], columns]
        first, second = (self.upward(g).reshape(weight.shape[0], g.cells.size, -1) for g in groups)
        return -first @ weight @ second


@dataclass(frozen=True, eq=False)
class _Free:
    """Projectors onto what is not known exactly of each node, for the constant kind.

    Args:
        plan, kinds: the spine and its kinds of nodes.
        leaf: for each kind, shape (k, k): of its nodes where they are leaves.
        above: of the nodes with children.
    """

    plan: SpinePlan
    kinds: NodeKinds
    leaf: list[np.ndarray]
    above: NodeMatrices

    @classmethod
    def of(cls, plan: SpinePlan, kinds: NodeKinds) -> _Free:
        """Nothing is known yet."""
        leaf = [np.eye(kinds.cells(kind).size) for kind in range(len(kinds.kinds))]
        return cls(plan, kinds, leaf, NodeMatrices.zeros(plan, 1))

    def child_means(self, first: int, last: int) -> np.ndarray:
        """The mean of the children's projectors, for nodes from first to last."""
        size = self.plan.layout.size
        found = np.zeros((last - first, size, size))
        for group in self.kinds.groups(np.arange(self.plan.children[first], self.plan.children[last])):
            owner = self.plan.tree.parent[group.nodes] - first
            if group.leaf:
                at, count = np.unique(owner, return_counts=True)
                add = count[:, None, None] * self.leaf[group.kind]
            else:
                at, add = sums_by(owner, self.above.take(group.nodes)[:, 0])
            found[np.ix_(at, group.cells, group.cells)] += add
        count = np.diff(self.plan.children[first : last + 1])
        return found / np.maximum(count, 1)[:, None, None]


def _joined(parts: list[tuple[np.ndarray, EqualityStep]]) -> tuple[np.ndarray, EqualityStep]:
    """Steps of one kind of node, nodes rising."""
    nodes = np.concatenate([nodes for nodes, _ in parts])
    order = np.argsort(nodes)

    def of(name: str) -> np.ndarray:
        return np.concatenate([getattr(step, name) for _, step in parts])[order]

    return nodes[order], EqualityStep(of("before"), of("weight"), of("pull"), parts[0][1].sums)
