"""Areas on their way up the tree: from the units that lie within them to a unit that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....errors import InvalidArgument
from ..layout import Layout, Margin
from .covariances import Covariances, nodes_of_level, sums_by


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


_NUMBERS = 8_000_000
"""About how many numbers of matrices are held at a time."""


def margin_variance(layout: Layout, variance: np.ndarray, margin: Margin) -> np.ndarray:
    """The variance of each cell of a marginal table.

    With r the indicator of a class of dense cells and q the squares of a set of symmetric cells by kind
    (:meth:`BlockAlgebra.squares`): ``sum_S q[S] r' V[S] r``.

    Args:
        layout: of the cells.
        variance: V of the cells' estimates, shape (..., kinds, D, D); zero rows for cells that cannot occur.
        margin: the table.

    Returns:
        Shape (..., classes, inner).
    """
    every = np.arange(layout.size)
    return _by_kind(variance, margin, every) @ margin.squares.T


def _by_kind(variance: np.ndarray, margin: Margin, cells: np.ndarray) -> np.ndarray:
    """r' V[S] r for each class and kind, V over some dense cells: shape (..., classes, kinds)."""
    rows = (np.arange(margin.classes)[:, None] == margin.label[cells]).astype(float)
    return ((rows @ variance) * rows).sum(axis=-1).swapaxes(-1, -2)


@dataclass(frozen=True, eq=False)
class UnitVariances:
    """Variances of one table's cells for all units of a level: few distinct ones, and which of them each unit has.

    Args:
        margin: the table.
        kinds: shape (distinct, classes, kinds): the part of each kind of contrast.
        which: shape (units,).
    """

    margin: Margin
    kinds: np.ndarray
    which: np.ndarray

    def of(self, units: np.ndarray) -> np.ndarray:
        """Of some units: shape (m, classes, inner)."""
        return self._cells(self.kinds[self.which[units]])

    def mean(self) -> np.ndarray:
        """The mean over all units, shape (classes, inner). Cells that cannot occur in a unit have variance 0."""
        count = np.bincount(self.which, minlength=len(self.kinds))
        return self._cells(np.tensordot(count / count.sum(), self.kinds, axes=1))

    def _cells(self, kinds: np.ndarray) -> np.ndarray:
        return kinds @ self.margin.squares.T


def unit_variances(cov: Covariances, level: str, margin: Margin) -> UnitVariances:
    """The variance of a table's cells for every unit of a level.

    Units that are nodes of the tree are looked up, leaves of one kind and one parent together; others (a bypass gave
    their share to their children) are sets of leaves.

    Args:
        cov: the matrices.
        level: name of a level of the spine.
        margin: the table.

    Raises:
        InvalidArgument: an unknown level.
    """
    spine, layout = cov.plan.spine, cov.plan.layout
    if level not in spine.levels:
        raise InvalidArgument(f"{level!r} is no level of this spine: {', '.join(spine.levels)}")
    nodes = nodes_of_level(cov.plan, level)
    units = np.flatnonzero(nodes >= 0)
    units = units[np.argsort(nodes[units], kind="stable")]
    which, parts, made = (
        np.empty(nodes.size, np.int64),
        [np.zeros((0, margin.classes, layout.algebra.kinds))],
        0,
    )
    for group in cov.kinds.groups(nodes[units]):
        variance, index = cov.variances_of(group)
        parts.append(_by_kind(variance, margin, group.cells))
        which[units[np.searchsorted(nodes[units], group.nodes)]] = made + index
        made += len(variance)
    others = np.flatnonzero(nodes < 0)
    if others.size:
        place = np.full(nodes.size, -1)
        place[others] = np.arange(others.size)
        found = area_covariances(cov, place[spine.units[level]], others.size)
        parts += [_by_kind(variance, margin, np.arange(layout.size))[None] for variance in found]
        which[others] = made + np.arange(others.size)
    return UnitVariances(margin, np.concatenate(parts), which)


def unit_covariance(cov: Covariances, leaves: np.ndarray) -> np.ndarray:
    """The variance of the sum of a set of leaves: shape (kinds, D, D).

    Args:
        cov: the matrices.
        leaves: a mask of shape (leaves,), or positions of leaves.

    >>> from tabulae import Domain, Spine, ZCDP
    >>> from tabulae.products.areas.layout import Layout
    >>> from tabulae.products.areas.spine_plan import SpinePlan
    >>> spine = Spine.from_codes({"county": list("AAA"), "block": list("abc")}, levels=["county", "block"])
    >>> spine, layout = spine.with_shares({"county": "1/2", "block": "1/2"}), Layout.of(Domain({"sex": 1}))
    >>> shares = {level: (1,) for level in spine.levels}
    >>> plan = SpinePlan(spine, layout, (layout.margin(["sex"]),), shares, ZCDP(1), np.ones((3, 1), bool))
    >>> cov = Covariances.of(plan)  # counties and blocks are measured with variance 2
    >>> [round(float(unit_covariance(cov, np.arange(n))[0, 0, 0]), 3) for n in (1, 2, 3)]
    [1.5, 2.0, 1.5]
    """
    area = np.full(cov.plan.spine.leaves, -1)
    area[leaves] = 0
    return next(area_covariances(cov, area, 1))


def area_covariances(cov: Covariances, area: np.ndarray, areas: int) -> Iterator[np.ndarray]:
    """The variance of the estimates of many areas that do not overlap, one after the other.

    An area a is followed up the tree, from units wholly inside it, through units partly inside. With C_u the
    covariance of a's part within u and x_u, and N_u the variance of that part, given what is measured at u and below:

        inside  C = N = S_u
        partly  C~ = sum of the children's C,  C = C~ A_u,  N = sum of the children's N - C~ M_u C~'

    and for the lowest unit that holds all of a, ``Var = N - C Lambda_u C'``, with the matrices of
    :class:`Covariances`. Units outside a, and below a unit wholly inside it, are not looked at.

    Args:
        cov: the matrices.
        area: shape (leaves,): the area of each leaf, -1 where it is in none.
        areas: their number.

    Yields:
        For each area in turn shape (kinds, D, D), over all dense cells.
    """
    algebra, size = cov.plan.layout.algebra, cov.plan.layout.size
    if not areas:
        return
    pairs = AreaPairs.of(cov, np.asarray(area), areas)
    cost = (pairs.partly() + 1) * algebra.kinds * size * size
    first = 0
    ends = np.cumsum(cost)
    while first < areas:
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + _NUMBERS, side="right")), first + 1)
        yield from Climb.of(cov, pairs, first, last).variances()
        first = last
