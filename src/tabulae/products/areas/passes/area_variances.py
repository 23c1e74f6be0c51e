"""Least-squares variances of any areas, and how they change with the precision of each query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..layout import CellLayout, Margin
from ..spine_plan import SpinePlan
from .covariances import Covariances, NodeGroup, sums_by


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
        first: the first area.
        pairs: of these areas alone, by depth: area, node, full, top.
        found: shape (areas, kinds, D, D): N; of the first kinds alone where no others are asked for.
    """

    cov: Covariances
    first: int
    pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    found: np.ndarray

    @classmethod
    def of(cls, cov: Covariances, pairs: AreaPairs, first: int, last: int, kinds: int) -> Climb:
        own = []
        for columns in zip(pairs.area, pairs.node, pairs.full, pairs.top, strict=True):
            here = slice(*np.searchsorted(columns[0], [first, last]))
            area, node, full, top = (column[here] for column in columns)
            own.append((area - first, node, full, top))
        size = cov.plan.layout.size
        return cls(cov, first, own, np.zeros((last - first, kinds, size, size)))

    @cached_property
    def _kinds(self) -> np.ndarray:
        return np.arange(self.found.shape[1])

    def _asked(self, matrices: np.ndarray) -> np.ndarray:
        """Those of the kinds that are asked for."""
        return matrices[..., : self._kinds.size, :, :]

    def variances(self) -> np.ndarray:
        """Shape (areas, kinds, D, D)."""
        below = None
        for depth in reversed(range(len(self.pairs))):
            self._whole_areas(depth)
            below = self._partly(depth, below)
        return self.found

    def _whole_areas(self, depth: int) -> None:
        area, node, full, top = self.pairs[depth]
        chosen = np.flatnonzero(full & top)
        chosen = chosen[np.argsort(node[chosen], kind="stable")]
        for group in self.cov.kinds.groups(node[chosen]):
            variance, which = self.cov.variances_of(group)
            rows = area[chosen[np.searchsorted(node[chosen], group.nodes)]]
            self.found[np.ix_(rows, self._kinds, group.cells, group.cells)] = self._asked(variance)[which]

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
            descent = self.cov.descent(int(kind), distinct)
            move, own = (self._asked(matrix)[which.reshape(-1)] for matrix in descent)
            part = sums[rows][..., cells]
            after = part @ move
            lost = part @ own @ part.swapaxes(-1, -2)
            high = np.flatnonzero(top[rows] & (node[rows] > 0))
            if high.size:
                above = self._asked(
                    self.cov.weights.take_on(self.cov.plan.tree.parent[node[rows[high]]], cells)
                )
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
            own = self._asked(self.cov.upward(group))
            if group.leaf:
                at, count = np.unique(place[rows], return_counts=True)
                add = count[:, None, None, None] * own
            else:
                order = np.argsort(place[rows], kind="stable")
                at, add = sums_by(place[rows][order], own[order])
            sums[np.ix_(at, self._kinds, group.cells, group.cells)] += add
            self._add(area[rows], own, group.cells)

    def _add(self, area: np.ndarray, own: np.ndarray, cells: np.ndarray | None = None) -> None:
        order = np.argsort(area, kind="stable")
        if own.ndim == 3:
            at, count = np.unique(area, return_counts=True)
            add = count[:, None, None, None] * own
        else:
            at, add = sums_by(area[order], own[order])
        every = np.arange(self.found.shape[2]) if cells is None else cells
        self.found[np.ix_(at, self._kinds, every, every)] += add


_NUMBERS = 8_000_000
"""About how many numbers of matrices are held at a time."""


def margin_variance(layout: CellLayout, variance: np.ndarray, margin: Margin) -> np.ndarray:
    """The variance of each cell of a marginal table.

    With r the indicator of a class of dense cells and q the squares of a set of symmetric cells by kind
    (:meth:`BlockAlgebra.squares`): ``sum_S q[S] r' V[S] r``.

    Args:
        variance: V of the cells' estimates, shape (..., kinds, D, D); zero rows for cells that cannot occur. Kinds that
            the margin does not read may be left out.

    Returns:
        Shape (..., classes, inner).
    """
    every = np.arange(layout.size)
    return _by_kind(variance[..., : margin.kinds, :, :], margin, every) @ margin.squares[:, : margin.kinds].T


def _by_kind(variance: np.ndarray, margin: Margin, cells: np.ndarray) -> np.ndarray:
    """r' V[S] r for each class and kind, V over some dense cells: shape (..., classes, kinds)."""
    rows = (np.arange(margin.classes)[:, None] == margin.label[cells]).astype(float)
    return ((rows @ variance) * rows).sum(axis=-1).swapaxes(-1, -2)


def area_covariances(
    cov: Covariances, area: np.ndarray, areas: int, kinds: int | None = None
) -> Iterator[np.ndarray]:
    """The variance of the estimates of many areas that do not overlap, one after the other.

    An area a is followed up the tree, from units wholly inside it, through units partly inside. With C_u the
    covariance of a's part within u and x_u, and N_u the variance of that part, given what is measured at u and below:

        inside  C = N = S_u
        partly  C~ = sum of the children's C,  C = C~ A_u,  N = sum of the children's N - C~ M_u C~'

    and for the lowest unit that holds all of a, ``Var = N - C Lambda_u C'``, with the matrices of
    :class:`Covariances`. Units outside a, and below a unit wholly inside it, are not looked at.

    Args:
        area: shape (leaves,): the area of each leaf, -1 where it is in none.
        kinds: of how many kinds of contrast, from the first on; all where None.

    Yields:
        For each area in turn shape (kinds, D, D), over all dense cells.
    """
    kinds, size = kinds or cov.plan.layout.algebra.kinds, cov.plan.layout.size
    if not areas:
        return
    pairs = AreaPairs.of(cov, np.asarray(area), areas)
    cost = (pairs.partly() + 1) * kinds * size * size
    first = 0
    ends = np.cumsum(cost)
    while first < areas:
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + _NUMBERS, side="right")), first + 1)
        yield from Climb.of(cov, pairs, first, last, kinds).variances()
        first = last


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


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of an area and a node of one depth.

    ``parent`` is the position of the pair of the same area and the node's parent among those that are partly inside, -1
    where the node holds all of the area.
    """

    area: np.ndarray
    node: np.ndarray
    parent: np.ndarray


@dataclass(frozen=True, eq=False)
class AreaSweep:
    """Some areas on their way up the tree and down again.

    For area a and node u that is partly inside it, with C_u = Cov(a's part within u, x_u) given what is measured at u
    and below, and C~_u the sum of the children's, ``Cov(x_u, x_a) = C_u' + S_u mu_u`` with

        mu = -Lambda_t C_t' at the lowest node t that holds a,  mu of u's children = A_u mu_u - M_u C~_u'

    and C_v = 0 for a child v without a part of a. A node wholly inside a has C = S, and passes ``I + mu`` on like any
    area outside it; so does one without a part pass mu on. What ends at t is passed on upwards as ``C_t' G C_t``.

    Args:
        to: where sums are added.
        partly, inside: by depth, the nodes that are partly inside an area, and those wholly inside whose parent is not.
        weights: shape (areas, kinds, D, D): G.
        sums, moved: by depth, C~ and C of the pairs that are partly inside, shape (pairs, kinds, D, D).
    """

    to: Sensitivities
    partly: list[_Pairs]
    inside: list[_Pairs]
    weights: np.ndarray
    sums: list[np.ndarray] = field(default_factory=list)
    moved: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, to: Sensitivities, pairs: AreaPairs, first: int, last: int, weights: np.ndarray) -> AreaSweep:
        partly: list[_Pairs] = []
        inside: list[_Pairs] = []
        tree = to.cov.plan.tree
        keys = np.zeros(0, np.int64)
        for columns in zip(pairs.area, pairs.node, pairs.full, pairs.top, strict=True):
            here = slice(*np.searchsorted(columns[0], np.array([first, last])).tolist())
            area, node, full, top = (column[here] for column in columns)
            wanted = area * tree.size + tree.parent[node]
            place = np.searchsorted(keys, wanted)
            known = np.append(keys, -1)[place] == wanted
            for chosen, found in ((~full, partly), (full & (top | known), inside)):
                parent = np.where(top, -1, place)[chosen]
                found.append(_Pairs(area[chosen] - first, node[chosen], parent))
            keys = (area * tree.size + node)[~full]
        return cls(to, partly, inside, weights)

    def run(self) -> None:
        below = _Pairs(*np.zeros((3, 0), np.int64)), _Pairs(*np.zeros((3, 0), np.int64)), self._zeros(0)
        for partly, inside in zip(reversed(self.partly), reversed(self.inside), strict=True):
            below = partly, inside, self._rise(partly, *below)
        self.sums.reverse()
        self.moved.reverse()
        passed = self._zeros(0)
        for depth, inside in enumerate(self.inside):
            self._whole(inside)
            self._within(inside, passed)
            passed = self._fall(depth, passed)

    def _zeros(self, count: int) -> np.ndarray:
        return np.zeros((count, *self.weights.shape[1:]))

    def _rise(self, pairs: _Pairs, partly: _Pairs, inside: _Pairs, moved: np.ndarray) -> np.ndarray:
        """C of the pairs of one depth that are partly inside, from the pairs below them."""
        cov, total = self.to.cov, self._zeros(pairs.area.size)
        inner = partly.parent >= 0
        np.add.at(total, partly.parent[inner], moved[inner])
        for rows, group in self._groups(inside, inside.parent >= 0):
            own = cov.upward(group)
            if group.leaf:
                at, count = np.unique(inside.parent[rows], return_counts=True)
                add = count[:, None, None, None] * own
            else:
                order = np.argsort(inside.parent[rows], kind="stable")
                at, add = sums_by(inside.parent[rows][order], own[order])
            total[np.ix_(at, self._every, group.cells, group.cells)] += add
        found = np.zeros_like(total)
        for rows, group in self._groups(pairs):
            move, _ = cov.descent(group.kind, group.nodes)
            after = total[rows][..., group.cells] @ move
            found[np.ix_(rows, self._every, np.arange(total.shape[-1]), group.cells)] = after
        self.sums.append(total)
        self.moved.append(found)
        return found

    def _whole(self, pairs: _Pairs) -> None:
        to, cov = self.to, self.to.cov
        for rows, group in self._groups(pairs, pairs.parent < 0):
            weight = self._weight(pairs.area[rows], group)
            own = cov.upward(group)
            ends = own @ weight @ own
            above = to.above(group)
            rest = np.eye(group.cells.size) - above @ own
            if not group.leaf:
                to.own[to.at(group)] += ends
                to.whole[to.at(group)] += rest @ weight @ rest.swapaxes(-1, -2)
                continue
            parent = cov.plan.tree.parent[group.nodes]
            order = np.argsort(parent, kind="stable")
            at, add = sums_by(parent[order], ends[order])
            to.below[np.ix_(at, self._every, group.cells, group.cells)] += add
            twice = own @ above
            found = rest.swapaxes(-1, -2) @ ends @ rest - twice @ ends @ twice.swapaxes(-1, -2)
            to.sums[group.kind] += found.sum(axis=0)

    def _within(self, pairs: _Pairs, passed: np.ndarray) -> None:
        """Nodes wholly inside an area that is more: it is passed on to them like one outside."""
        to = self.to
        for rows, group in self._groups(pairs, pairs.parent >= 0):
            chosen, count = np.stack([pairs.parent[rows], pairs.area[rows]]), np.ones(rows.size)
            if group.leaf:
                chosen, count = np.unique(chosen, axis=1, return_counts=True)
            weight = self.weights[chosen[1]]
            without = passed[chosen[0]][:, :, group.cells]
            within = without + np.eye(self.weights.shape[-1])[group.cells]
            found = _around(within, weight) - _around(without, weight)
            own = to.cov.leaf[group.kind]
            if own is not None:
                to.sums[group.kind] += own @ np.tensordot(count, found, axes=1) @ own
            else:
                np.add.at(to.down, self._index(group), found)

    def _fall(self, depth: int, passed: np.ndarray) -> np.ndarray:
        """Nodes partly inside; mu of their children, shape (pairs, kinds, D, D)."""
        to, cov, pairs = self.to, self.to.cov, self.partly[depth]
        found = self._zeros(pairs.area.size)
        for rows, group in self._groups(pairs):
            weight = self.weights[pairs.area[rows]]
            part = self.moved[depth][rows][..., group.cells].swapaxes(-1, -2)
            mu = np.empty_like(part)
            top = pairs.parent[rows] < 0
            if top.any():
                np.add.at(to.own, self._index(group, top), _around(part[top], weight[top]))
                mu[top] = (
                    -np.broadcast_to(to.above(group), (rows.size, *part.shape[1:2], *2 * group.cells.shape))[
                        top
                    ]
                    @ part[top]
                )
            if not top.all():
                inner = ~top
                mu[inner] = passed[pairs.parent[rows[inner]]][:, :, group.cells]
                np.add.at(to.down, self._index(group, inner), -_around(mu[inner], weight[inner]))
                joint = part[inner] + cov.variances.take(group.nodes[inner]) @ mu[inner]
                to.sums[group.kind] += _around(joint, weight[inner]).sum(axis=0)
            move, own = cov.descent(group.kind, group.nodes)
            child = move @ mu - own @ self.sums[depth][rows][..., group.cells].swapaxes(-1, -2)
            np.add.at(to.spread, self._index(group), _around(child, weight))
            found[np.ix_(rows, self._every, group.cells, np.arange(found.shape[-1]))] = child
        return found

    @property
    def _every(self) -> np.ndarray:
        return np.arange(self.weights.shape[1])

    def _groups(
        self, pairs: _Pairs, chosen: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, NodeGroup]]:
        """Chosen pairs by kind of node: their positions, and their nodes, which may be there several times."""
        rows = np.arange(pairs.area.size) if chosen is None else np.flatnonzero(chosen)
        kind = self.to.cov.kinds.of[pairs.node[rows]]
        for one in np.unique(kind).tolist():
            members = rows[kind == one]
            members = members[np.argsort(pairs.node[members], kind="stable")]
            kinds = self.to.cov.kinds
            yield members, NodeGroup(one, pairs.node[members], kinds.cells(one), bool(kinds.kinds[one, 1]))

    def _index(self, group: NodeGroup, chosen: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, ...]:
        """Where the matrices of a group's nodes are, on their support."""
        return np.ix_(group.nodes[chosen], self._every, group.cells, group.cells)

    def _weight(self, area: np.ndarray, group: NodeGroup) -> np.ndarray:
        """G of areas on the support of a group."""
        return self.weights[np.ix_(area, self._every, group.cells, group.cells)]


def _around(left: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """``left middle left'`` for stacks of matrices."""
    return left @ middle @ left.swapaxes(-1, -2)
