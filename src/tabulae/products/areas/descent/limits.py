"""One area's counts, to be divided among the areas within it: the problem that is solved again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....errors import InvalidArgument
from ....linalg import BlockAlgebra
from ..constraints import NO_LIMIT, AreaConstraints, nodes_of_units, parts_in, supported_parts, unit_name
from ..spine_plan import SpinePlan

FREE = -1
"""In place of an exact count: the sum is not exact."""


@dataclass(frozen=True, eq=False)
class Division:
    """Divide a parent's counts among n children: convex, with limits on sums.

        minimise    sum_v  x_v' H_v x_v / 2 - b_v' x_v          x_v of shape (k, N), in people
        subject to  sum_v x_v = total                           where total is given (the root has none, and n = 1)
                    x_v >= 0,  x_v[d] = 0 where not allowed[v, d]
                    lower[v, j] <= sum of x_v over the dense cells d with part[d] = j <= upper[v, j]
                    sum of x_v over the parts j with group[v, j] = g  =  exact[v, g]       where exact[v, g] is not FREE

    k are the parent's dense cells, N = algebra.cells. H_v lies in the block algebra and is positive definite on the
    allowed cells. Every part lies in one group, so that the sums nest: cell, dense cell, part, group, all. The
    parent's counts satisfy their own limits, and a division in whole numbers exists.

    Attributes:
        algebra: over the symmetric attributes.
        total: shape (k, N), int64, or None.
        precision: shape (m, kinds, k, k): the distinct H; rows and columns of cells that are not allowed are 0.
        which: shape (n,): the H of each child.
        linear: shape (n, k, N): b, in natural (not rotated) coordinates; 0 where not allowed.
        allowed: shape (n, k), boolean.
        part: shape (k,): 0 .. J-1.
        lower, upper: shape (n, J), int64; ``NO_LIMIT`` where there is none.
        group: shape (n, J): 0 .. G-1, for each child.
        exact: shape (n, G), int64; ``FREE`` where a sum is not exact.
    """

    algebra: BlockAlgebra
    total: np.ndarray | None
    precision: np.ndarray
    which: np.ndarray
    linear: np.ndarray
    allowed: np.ndarray
    part: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    group: np.ndarray
    exact: np.ndarray

    @property
    def children(self) -> int:
        return self.which.size

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the parent's counts, zero and the support limits the children."""
        return (
            self.total is not None
            and not (self.lower > 0).any()
            and not (self.upper < NO_LIMIT).any()
            and not (self.exact != FREE).any()
        )

    def objective(self, x: np.ndarray) -> float:
        """sum_v x_v' H_v x_v / 2 - b_v' x_v, for x of shape (n, k, N)."""
        rotated = self.algebra.rotate(x)
        quadratic = (rotated * self.algebra.apply(self.precision[self.which], rotated)).sum() / 2
        return float(quadratic - (self.linear * x).sum())


@dataclass(frozen=True, eq=False)
class NodeLimits:
    """The limits of each node's counts, as a :class:`Division` takes them.

    A parent that meets its limits can be divided into children that meet theirs: see
    :func:`tabulae.products.areas.constraints.check_feasible`, which the constraints have passed.

    Attributes:
        lower, upper: shape (nodes, J): of the people in each part, as narrow as limits below the node and its exact
            counts make them. (0, ``NO_LIMIT``) for a part that the node's support leaves out.
        group: shape (nodes, J): the exact sum that each part is in.
        exact: shape (nodes, G): the exact sums; ``FREE`` where one is not exact.
    """

    lower: np.ndarray
    upper: np.ndarray
    group: np.ndarray
    exact: np.ndarray

    @classmethod
    def of(
        cls, plan: SpinePlan, constraints: AreaConstraints, exact_values: Sequence[np.ndarray] = ()
    ) -> NodeLimits:
        """Add limits up the tree, narrowed in each node by its exact counts.

        In a group with exact sum e, a part holds at least e less what the others can, and at most e less what they
        must; what all parts of a node can and must hold is added to its parent's.

        Args:
            constraints: checked with ``constraints.check(plan, ...)``.
            exact_values: for each exact margin, shape (units of its level, classes), int64, as disclosed.

        Raises:
            InvalidArgument: exact counts that limits, or other exact counts, contradict, with the level, unit and
                parts.
        """
        finest, parts = constraints.finest(plan), len(constraints.part_names)
        exact = _exact(plan, constraints, exact_values, finest)
        lower, upper = (
            np.zeros((plan.tree.size, parts), np.int64),
            np.zeros((plan.tree.size, parts), np.int64),
        )
        can = supported_parts(constraints, plan.support)
        lower[plan.tree.leaf] = constraints.lower
        upper[plan.tree.leaf] = np.where(can, np.minimum(constraints.upper, NO_LIMIT), 0)
        for depth in reversed(range(len(plan.depths))):
            nodes = plan.depths[depth]
            for m, group in enumerate(constraints.groups):
                here = nodes.start + np.flatnonzero(finest[nodes] == m)
                low, high, broken = _narrowed(lower[here], upper[here], group, exact[here])
                if broken.any():
                    row, g = np.argwhere(broken)[0]
                    raise InvalidArgument(_contradiction(plan, constraints, m, int(here[row]), int(g)))
                lower[here], upper[here] = low, high
            if depth:
                parent = plan.tree.parent[nodes]
                np.add.at(lower, parent, lower[nodes])
                _add_upper(upper, parent, upper[nodes])
        groups = np.stack([*constraints.groups, np.zeros(parts, np.int64)])
        can = supported_parts(constraints, plan.patterns)[plan.pattern]
        return cls(lower, np.where(can, upper, NO_LIMIT), groups[finest], exact)


def _add_upper(upper: np.ndarray, parent: np.ndarray, below: np.ndarray) -> None:
    """Add upper limits to those of parents; no limit and anything make no limit."""
    none = np.zeros(upper.shape, bool)
    np.logical_or.at(none, parent, below >= NO_LIMIT)
    np.add.at(upper, parent, np.where(below >= NO_LIMIT, 0, below))
    upper[none] = NO_LIMIT


def _sums(parts: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Shape (nodes, groups): sums of parts by group."""
    return parts @ (group[:, None] == np.arange(group.max() + 1)).astype(np.int64)


def _narrowed(
    lower: np.ndarray, upper: np.ndarray, group: np.ndarray, exact: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Limits of parts given the exact sums of their groups; and which groups' limits do not allow their sum."""
    is_open = upper >= NO_LIMIT
    must, can = _sums(lower, group), _sums(np.where(is_open, 0, upper), group)
    opens = _sums(is_open.astype(np.int64), group)
    total = exact[:, : must.shape[1]]
    broken = (total < must) | ((opens == 0) & (total > can))
    others_open = opens[:, group] - is_open > 0
    high = np.minimum(upper, (total - must)[:, group] + lower)
    rest = (total - can)[:, group] + np.where(is_open, 0, upper)
    return np.where(others_open, lower, np.maximum(lower, rest)), high, broken


def _exact(
    plan: SpinePlan, constraints: AreaConstraints, values: Sequence[np.ndarray], finest: np.ndarray
) -> np.ndarray:
    """Shape (nodes, G): the exact sums of each node's finest margin; refuse coarser ones that contradict them."""
    if len(values) != len(constraints.exact):
        raise InvalidArgument(
            f"{len(constraints.exact)} margins are exact, and counts of {len(values)} are given"
        )
    size = max((int(group.max()) + 1 for group in constraints.groups), default=1)
    found = np.full((plan.tree.size, size), FREE, np.int64)
    margins = [_node_sums(plan, constraints, m, given) for m, given in enumerate(values)]
    for m, (sums, _) in enumerate(margins):
        found[finest == m, : sums.shape[1]] = sums[finest == m]
    for m, (sums, here) in enumerate(margins):
        for fine in range(len(margins)):
            both = np.flatnonzero(here & (finest == fine))
            added = _coarser(constraints.groups[fine], constraints.groups[m], found[both])
            if (added != sums[both]).any():
                row, group = np.argwhere(added != sums[both])[0]
                a, b = constraints.exact[fine].margin.name, constraints.exact[m].margin.name
                raise InvalidArgument(
                    f"{unit_name(plan, int(both[row]))}: exact counts of {a!r} do not add up to those of {b!r}, in "
                    f"{parts_in(constraints, m, int(group))}"
                )
    return found


def _coarser(fine: np.ndarray, coarse: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Sums (nodes, G) of the groups of a partition of the parts, added up to those of a coarser one."""
    found = np.zeros((len(sums), int(coarse.max()) + 1), np.int64)
    for g, c in np.unique(np.stack([fine, coarse]), axis=1).T:
        found[:, c] += sums[:, g]
    return found


def _node_sums(
    plan: SpinePlan, constraints: AreaConstraints, m: int, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Shape (nodes, groups): exact sums of one margin, 0 where it is not exact; and where it is."""
    exact, group = constraints.exact[m], constraints.groups[m]
    nodes = nodes_of_units(plan, exact.level)
    if values.shape != (nodes.size, exact.margin.classes):
        shape = (nodes.size, exact.margin.classes)
        raise InvalidArgument(f"exact counts of {exact.margin.name!r} have shape {values.shape}, not {shape}")
    of = np.full(exact.margin.classes, -1, np.int64)
    of[exact.margin.label] = group[constraints.part]
    impossible = (values < 0) | ((values != 0) & (of < 0))
    if impossible.any():
        unit = int(np.argwhere(impossible)[0, 0])
        code = plan.spine.codes[exact.level][unit]
        raise InvalidArgument(
            f"{exact.level} {code!s}: an exact count of {exact.margin.name!r} is below 0, "
            "or is of combinations that structural zeros rule out"
        )
    sums, here = np.zeros((plan.tree.size, int(group.max()) + 1), np.int64), np.zeros(plan.tree.size, bool)
    here[nodes] = True
    for c in np.flatnonzero(of >= 0):
        sums[nodes, of[c]] += values[:, c]
    for below in reversed(plan.depths[1:]):
        np.add.at(sums, plan.tree.parent[below], sums[below])
        np.logical_or.at(here, plan.tree.parent[below], here[below])
    return sums, here


def _contradiction(plan: SpinePlan, constraints: AreaConstraints, m: int, node: int, group: int) -> str:
    return (
        f"{unit_name(plan, node)}: the exact count of {constraints.exact[m].margin.name!r} is outside what the bounds "
        f"of its leaves add up to, in {parts_in(constraints, m, group)}. The records break a bound: correct the file "
        "of bounds"
    )
