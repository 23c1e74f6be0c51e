"""One area's counts, to be divided among the areas within it: the problem that is solved again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....errors import InvalidArgument
from ....linalg import BlockAlgebra
from ..constraints import (
    FREE,
    NO_LIMIT,
    AreaConstraints,
    EarlierMargin,
    nodes_of_units,
    parts_in,
    supported_parts,
    unit_name,
)
from ..spine_plan import SpinePlan


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

    @cached_property
    def is_limited(self) -> bool:
        """Whether some part has a limit."""
        return bool((self.lower > 0).any() or (self.upper < NO_LIMIT).any())

    @cached_property
    def is_exact(self) -> bool:
        """Whether some sum is exact."""
        return bool((self.exact != FREE).any())

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the parent's counts, zero and the support limits the children."""
        return self.total is not None and not self.is_limited and not self.is_exact

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
        exact = _exact(plan, constraints, constraints.values(exact_values), finest)
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
        can = supported_parts(constraints, plan.node_support)
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
    size = max((int(group.max()) + 1 for group in constraints.groups), default=1)
    found = np.full((plan.tree.size, size), FREE, np.int64)
    sums, known = (
        np.zeros((plan.tree.size, len(constraints.part_names)), np.int64),
        np.zeros(plan.tree.size, bool),
    )
    finer = np.arange(len(constraints.part_names))
    for m in reversed(constraints.chain):
        sums, finer = _coarser(finer, constraints.groups[m], sums), constraints.groups[m]
        nodes, own = _unit_sums(plan, constraints, m, values[m])
        _check_sums(plan, constraints, m, nodes[known[nodes]], sums[nodes[known[nodes]]], own[known[nodes]])
        sums[nodes], known[nodes] = own, True
        for above in reversed(plan.depths[:-1]):
            below = plan.children[above.start : above.stop + 1]
            added = _runs(sums[below[0] : below[-1]], below)
            whole = (_runs(known[below[0] : below[-1]], below) == np.diff(below)) & (np.diff(below) > 0)
            both, new = np.flatnonzero(whole & known[above]), np.flatnonzero(whole & ~known[above])
            _check_sums(plan, constraints, m, above.start + both, added[both], sums[above.start + both])
            sums[above.start + new], known[above.start + new] = added[new], True
        found[finest == m, : sums.shape[1]] = sums[finest == m]
    return found


def _runs(x: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Sums of rows from edge to edge, the first edge being row 0."""
    so_far = np.concatenate([np.zeros((1, *x.shape[1:]), np.int64), np.cumsum(x, axis=0)])
    return np.diff(so_far[edges - edges[0]], axis=0)


def _check_sums(
    plan: SpinePlan,
    constraints: AreaConstraints,
    m: int,
    nodes: np.ndarray,
    told: np.ndarray,
    own: np.ndarray,
) -> None:
    """Refuse exact counts of a margin that others contradict: of finer margins, or of all parts of an area."""
    if (told != own).any():
        row, group = np.argwhere(told != own)[0]
        raise InvalidArgument(
            f"{unit_name(plan, int(nodes[row]))}: exact counts do not add up to those of "
            f"{constraints.margins[m].margin.name!r}, in {parts_in(constraints, m, int(group))}"
            + (". Some of them were published by an earlier release" if constraints.earlier else "")
        )


def _coarser(fine: np.ndarray, coarse: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Sums (nodes, G) of the groups of a partition of the parts, added up to those of a coarser one."""
    found = np.zeros((len(sums), int(coarse.max()) + 1), np.int64)
    for g, c in np.unique(np.stack([fine, coarse]), axis=1).T:
        found[:, c] += sums[:, g]
    return found


def _unit_sums(
    plan: SpinePlan, constraints: AreaConstraints, m: int, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of the areas of a margin, and their exact sums by group: shape (areas, groups)."""
    exact, group = constraints.margins[m], constraints.groups[m]
    nodes = nodes_of_units(plan, exact.level)
    if values.shape != (nodes.size, exact.margin.classes):
        shape = (nodes.size, exact.margin.classes)
        raise InvalidArgument(
            f"{exact.kind} counts of {exact.margin.name!r} have shape {values.shape}, not {shape}"
        )
    of = np.full(exact.margin.classes, -1, np.int64)
    of[exact.margin.label] = group[constraints.part]
    impossible = (values < 0) | ((values != 0) & (of < 0))
    if impossible.any():
        code = plan.spine.areas(exact.level).codes[int(np.argwhere(impossible)[0, 0])]
        raise InvalidArgument(
            f"{exact.level} {code!s}: an {exact.kind} count of {exact.margin.name!r} is below 0, "
            "or is of combinations that structural zeros rule out"
        )
    sums = np.zeros((nodes.size, int(group.max()) + 1), np.int64)
    for c in np.flatnonzero(of >= 0):
        sums[:, of[c]] += values[:, c]
    return nodes, sums


def _contradiction(plan: SpinePlan, constraints: AreaConstraints, m: int, node: int, group: int) -> str:
    margin = constraints.margins[m]
    cure = "The records break a bound: correct the file of bounds"
    if isinstance(margin, EarlierMargin):
        cure = "Correct the file of bounds, or leave these counts as they are estimated"
    return (
        f"{unit_name(plan, node)}: the {margin.kind} count of {margin.margin.name!r} is outside what the bounds of its "
        f"leaves add up to, in {parts_in(constraints, m, group)}. {cure}"
    )
