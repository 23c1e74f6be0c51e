"""Variances of least squares on a tree, with counts that are exact at some nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ....errors import InvalidArgument
from ..constraints import ExactMargin, nodes_of_units
from ..spine.shares import distinct_rows
from ..spine_plan import SpinePlan

_NOTHING = 1e-8  # of what a projector may leave: below it, 0


@dataclass(frozen=True, eq=False)
class EqualityStep:
    """Some nodes before and after their sums are made exact: matrices of the constant kind alone.

    With x of variance S, of which Pi is the projector onto what is not known exactly already, and sums Q x = c:

        R = (Q Pi)^+,  U = R Q Pi,  Phi = (U S U)^+
        x' = x + S Phi R (c - Q x),  S' = S - S Phi S,  Pi' = Pi - U

    Args:
        before: shape (..., k, k): S.
        weight: shape (..., k, k): Phi.
        pull: shape (..., k, rows): R.
        sums: shape (rows, k): Q, on rotated coordinates of the constant kind.
    """

    before: np.ndarray
    weight: np.ndarray
    pull: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(
        cls, variance: np.ndarray, free: np.ndarray, sums: np.ndarray
    ) -> tuple[EqualityStep, np.ndarray, np.ndarray]:
        told = sums @ free
        left, sizes, right = np.linalg.svd(told, full_matrices=False)
        sizes = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > _NOTHING * np.abs(sums).max())
        pull = right.swapaxes(-1, -2) * sizes[..., None, :] @ left.swapaxes(-1, -2)
        taken = _symmetric(pull @ told)
        scale = np.maximum(np.trace(variance, axis1=-2, axis2=-1), np.finfo(float).tiny)[..., None, None]
        rest = (np.eye(sums.shape[1]) - taken) * scale
        weight = taken @ np.linalg.inv(_symmetric(taken @ variance @ taken) + rest) @ taken
        free = _symmetric(free - taken)
        left = free @ (variance - variance @ weight @ variance) @ free
        return cls(variance.copy(), _symmetric(weight), pull, sums), _symmetric(left), free

    def move(self, x: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """Phi R (c - Q x): what is missing, weighted. x of shape (m, k), exact (m, rows)."""
        # node by node, so that none's numbers depend on which others there are
        missing = exact[..., None] - self.sums @ x[..., None]
        return (self.weight @ (self.pull @ missing))[..., 0]

    def at(self, rows: np.ndarray) -> EqualityStep:
        if self.before.ndim == 2:
            return self
        return EqualityStep(self.before[rows], self.weight[rows], self.pull[rows], self.sums)


@dataclass(frozen=True, eq=False)
class Equalities:
    """Exact margins of a spine, and the nodes where they hold.

    Args:
        margins: exact for all units of their levels.

    Raises:
        InvalidArgument: a margin over symmetric attributes, an unknown level, or a unit that is not a node of the tree.
    """

    plan: SpinePlan
    margins: tuple[ExactMargin, ...]

    def __post_init__(self) -> None:
        for one in self.margins:
            if one.margin.inner > 1:
                raise InvalidArgument(
                    f"{one.margin.name!r} is exact and has attributes that the layout holds symmetric: make them dense"
                )
            nodes_of_units(self.plan, one.level)

    @cached_property
    def unit(self) -> np.ndarray:
        """Shape (margins, nodes): the unit of the margin's level that each node is; -1 for none."""
        found = np.full((len(self.margins), self.plan.tree.size), -1)
        for row, one in zip(found, self.margins, strict=True):
            nodes = nodes_of_units(self.plan, one.level)
            row[nodes] = np.arange(nodes.size)
        return found

    @property
    def sets(self) -> np.ndarray:
        """Shape (nodes,): a bit for each margin that is exact there."""
        bits = np.int64(1) << np.arange(len(self.margins), dtype=np.int64)
        return bits @ (self.unit >= 0) if len(self.margins) else np.zeros(self.plan.tree.size, np.int64)

    def sums(self, margins: int, cells: np.ndarray) -> np.ndarray:
        """Q of a set of margins on dense cells, in rotated coordinates: shape (rows, k)."""
        root = np.sqrt(self.plan.layout.algebra.cells)
        rows = [
            np.arange(one.margin.classes)[:, None] == one.margin.label[cells] for one in self._chosen(margins)
        ]
        return root * np.concatenate(rows).astype(float)

    def values(self, margins: int, nodes: np.ndarray, exact: Sequence[np.ndarray]) -> np.ndarray:
        """The exact counts of nodes: shape (m, rows). ``exact`` has (units, classes) for each margin."""
        if len(exact) != len(self.margins):
            raise InvalidArgument(
                f"{len(self.margins)} margins are exact, and values are given for {len(exact)}"
            )
        rows = [values[self.unit[i, nodes]] for i, values in enumerate(exact) if margins >> i & 1]
        return np.concatenate(rows, axis=1).astype(float)

    def _chosen(self, margins: int) -> list[ExactMargin]:
        return [one for i, one in enumerate(self.margins) if margins >> i & 1]


def free_parts(mean: np.ndarray) -> np.ndarray:
    """The projector onto the range of a mean of projectors, shape (..., k, k)."""
    values, vectors = np.linalg.eigh(mean)
    kept = vectors * (values > _NOTHING)[..., None, :]
    return kept @ vectors.swapaxes(-1, -2)


def _symmetric(x: np.ndarray) -> np.ndarray:
    return (x + x.swapaxes(-1, -2)) / 2


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
        return np.diff(self.plan.children) == 0

    @property
    def parents(self) -> int:
        """Nodes before this one may have children; later ones have none."""
        return int(np.flatnonzero(~self.is_leaf)[-1]) + 1

    def cells(self, kind: int) -> np.ndarray:
        """Shape (k,): the dense cells of the support of a kind."""
        return self.plan.dense_cells[self.plan.classes[0][self.kinds[kind, 0], 2]]

    def groups(self, nodes: np.ndarray) -> Iterator[NodeGroup]:
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
        """Ranges of nodes of one depth, each with its children small enough to be held at once."""
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


@dataclass(frozen=True, eq=False)
class NodeMatrices:
    """Matrices (kinds, k, k) over the support of every node with children, one after the other.

    Args:
        offsets: shape (nodes + 1,): where each node's matrices begin; nothing for leaves.
        flat: shape (offsets[-1],).
    """

    plan: SpinePlan
    kinds: int
    offsets: np.ndarray
    flat: np.ndarray

    @classmethod
    def zeros(cls, plan: SpinePlan, kinds: int) -> NodeMatrices:
        sizes = np.array([cells.size for cells in plan.dense_cells], np.int64) ** 2 * kinds
        widths = np.where(np.diff(plan.children) > 0, sizes[plan.pattern], 0)
        offsets = np.concatenate([[0], np.cumsum(widths)])
        return cls(plan, kinds, offsets, np.zeros(offsets[-1]))

    def take(self, nodes: np.ndarray) -> np.ndarray:
        """The matrices of nodes of one support: shape (m, kinds, k, k)."""
        k = self.plan.dense_cells[self.plan.pattern[nodes[0]]].size
        return self.flat[self._index(nodes)].reshape(nodes.size, -1, k, k)

    def put(self, nodes: np.ndarray, x: np.ndarray) -> None:
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
    >>> from tabulae.products.areas.layout import CellLayout, Supports
    >>> codes = {"county": list("AAB"), "block": list("abc")}
    >>> spine = Spine.from_codes(codes, levels=["county", "block"])
    >>> spine = spine.bypass({"root": 0, "county": "1/2", "block": "1/2"})
    >>> layout = CellLayout.of(Domain({"age": 2}))
    >>> shares = {level: (Fraction(1),) for level in spine.levels}
    >>> support = Supports.of(np.ones((3, 1), bool))
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
            exact: the margins that are exact.
            weights: shape (classes of the plan, queries): 1 over the variance of each answer, in place of the plan's.
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


@dataclass(frozen=True, eq=False)
class _Free:
    """Projectors onto what is not known exactly of each node, for the constant kind.

    Args:
        leaf: for each kind, shape (k, k): of its nodes where they are leaves.
        above: of the nodes with children.
    """

    plan: SpinePlan
    kinds: NodeKinds
    leaf: list[np.ndarray]
    above: NodeMatrices

    @classmethod
    def of(cls, plan: SpinePlan, kinds: NodeKinds) -> _Free:
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
    nodes = np.concatenate([nodes for nodes, _ in parts])
    order = np.argsort(nodes)

    def of(name: str) -> np.ndarray:
        return np.concatenate([getattr(step, name) for _, step in parts])[order]

    return nodes[order], EqualityStep(of("before"), of("weight"), of("pull"), parts[0][1].sums)
