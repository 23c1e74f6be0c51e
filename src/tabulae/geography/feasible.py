"""When limits on every area, one part at a time, are enough for every parent to be divisible among its children."""

from __future__ import annotations

import numpy as np

from ..errors import InvalidArgument
from .constraints import (
    NO_LIMIT,
    AreaConstraints,
    supported_parts,
)
from .spine_plan import SpinePlan

_MANY = 4  # parts with room in one group: from here on limits on single parts may not be enough


def check_feasible(plan: SpinePlan, constraints: AreaConstraints) -> None:
    """Refuse constraints under which a parent that meets its limits might not be divisible among its children.

    Write p(A) for the people of an area in the parts A, and L, U for the tightest limits on its single parts. The
    claim is that these, and the exact sums of its groups, describe which counts the leaves below can add up to:

        F = { p whole : L_j <= p_j <= U_j for all parts j, p(g) = e_g for all exact groups g }

    so that counts in F can be divided into counts in the F of each child, and so on down to the leaves.

    *Proof*, from the leaves, where F is given. Within a group of the children, F of a child is the set of bases (or,
    where it is not exact, all points) of an integral generalised polymatroid, whose upper function is
    ``f(A) = min(U(A), e - L(g - A))``. Sums of whole points of such sets are the whole points of the one with the sum
    of the functions (integer decomposition: Edmonds 1970; Frank and Tardos 1988). Children that are not exact: f = U
    and the lower function L are sums over parts, and so is their sum: a box. Exact children: the parent's limits are
    ``U_j = sum of f({j})``, ``L_j = sum of (e - f(g - j))``, and with E the sum of e, its F has the function
    ``min(U(A), E - L(g - A))``, which must be the sum of the children's f for all A. Where A is one part, or all but
    one, it is so by definition. Parts without room (L_j = U_j in all children) only shift. So with at most three parts
    with room, it is always so. With more, let a child's part be *free* if it has room and U_j is implied:
    ``U_j >= e - L(g - j)``. If A has a free part of the child then ``f(A) = e - L(g - A)``. If of the parts that have
    room in some child all but one at most are free in each child that has any room, then every A of two parts or more
    has a free one in every such child, and the sum of f is ``E - L(g - A)``, which is then the least of the two. A
    parent's own exact groups, which are its children's or parts of them, cut F to a set of the same form, and make no
    part less free.

    From parts to cells: where all leaves can count either every dense cell of a part or none, what each child counts of
    a part can be any of its cells, and a transport without forbidden pairs exists. A part of which some leaves can
    count a few cells only must have no limits at any leaf, and must be whole, or absent, in every exact unit below
    the root: then its cells are free below, and whole above.

    Raises:
        InvalidArgument: with the level, the unit and the reason.

    References: Edmonds, "Submodular functions, matroids, and certain polyhedra" (1970); Schrijver, "Combinatorial
    Optimization" (2003), sections 44 to 49.
    """
    finest = constraints.finest(plan)
    _check_broken_parts(plan, constraints, finest >= 0)
    tree, parts = plan.tree, len(constraints.part_names)
    can = supported_parts(constraints, plan.support)
    room, free = np.zeros((tree.size, parts), bool), np.zeros((tree.size, parts), bool)
    room[tree.leaf] = can & (constraints.lower < constraints.upper)
    free[tree.leaf] = room[tree.leaf] & (constraints.upper >= NO_LIMIT)
    for depth in reversed(range(len(plan.depths))):
        nodes = plan.depths[depth]
        for m, group in enumerate(constraints.groups):
            here = nodes.start + np.flatnonzero(finest[nodes] == m)
            alone = _in_groups(room[here], group)[:, group] == 1
            room[here] &= ~alone
            free[here] &= ~alone
        if depth:
            _add_up(plan, constraints, finest, nodes, room, free)


def _add_up(
    plan: SpinePlan,
    constraints: AreaConstraints,
    finest: np.ndarray,
    nodes: slice,
    room: np.ndarray,
    free: np.ndarray,
) -> None:
    """What has room, and what is free, in the parents of some nodes; refuse where F is not described by its limits."""
    parent, is_exact = plan.tree.parent, finest >= 0
    np.logical_or.at(room, parent[nodes], room[nodes])
    loose = nodes.start + np.flatnonzero(~is_exact[nodes])
    np.logical_or.at(free, parent[loose], free[loose])
    bound = np.zeros_like(free)
    above = np.unique(parent[nodes])
    for m, group in enumerate(constraints.groups):
        here = nodes.start + np.flatnonzero(finest[nodes] == m)
        active = _in_groups(room[here], group)[:, group] > 0
        np.logical_or.at(bound, parent[here], active & ~free[here])
        many = _in_groups(room[parent[here]], group)
        missing = many - _in_groups(free[here], group)
        wrong = np.argwhere((_in_groups(room[here], group) > 0) & (many >= _MANY) & (missing > 1))
        if wrong.size:
            _refuse(plan, constraints, m, int(here[wrong[0, 0]]), int(wrong[0, 1]))
        tight = np.unique(parent[here])
        free[tight] = True
    free[above] &= room[above] & ~bound[above]


def _in_groups(parts: np.ndarray, group: np.ndarray) -> np.ndarray:
    """How many of the parts of each group are marked: shape (nodes, groups)."""
    return parts.astype(np.int64) @ (group[:, None] == np.arange(group.max() + 1)).astype(np.int64)


def _refuse(plan: SpinePlan, constraints: AreaConstraints, m: int, node: int, group: int) -> None:
    exact = constraints.exact[m]
    level = int(plan.tree.level[node])
    unit = plan.spine.hierarchy.codes[level][plan.tree.unit[node]]
    names = [
        name for name, g in zip(constraints.part_names, constraints.groups[m], strict=True) if g == group
    ]
    raise InvalidArgument(
        f"exact counts of {exact.margin.name!r} for every {exact.level}: whether a larger area's counts can be "
        f"divided depends on more than limits on each of {', '.join(names)}, because in {plan.spine.levels[level]} "
        f"{unit!s} two or more of them cannot occur, have an upper limit or are fixed. Make counts by part "
        f"exact there, join parts to at most {_MANY - 1}, drop upper limits, or use estimate = 'gls'"
    )


def _check_broken_parts(plan: SpinePlan, constraints: AreaConstraints, is_exact: np.ndarray) -> None:
    """Refuse parts that some leaves can count some cells of, where limits or exact counts are about them."""
    size = supported_parts(constraints, plan.patterns[plan.pattern[0]]).size
    of = constraints.part[:, None] == np.arange(size)
    cells = of & plan.patterns[plan.pattern[0]][:, None]
    held = plan.patterns.astype(np.int64) @ cells
    broken = (held > 0) & (held < cells.sum(axis=0))
    leaf = plan.pattern[plan.tree.leaf]
    parts = broken[leaf].any(axis=0)
    limited = (held[leaf] > 0) & ((constraints.lower > 0) | (constraints.upper < NO_LIMIT)) & parts
    split = broken[plan.pattern] & (is_exact & (np.arange(plan.tree.size) > 0))[:, None]
    for wrong, node, what in (
        (limited, plan.tree.leaf, "limits"),
        (split, np.arange(plan.tree.size), "exact counts"),
    ):
        if wrong.any():
            row, part = np.argwhere(wrong)[0]
            level = int(plan.tree.level[node[row]])
            unit = plan.spine.hierarchy.codes[level][plan.tree.unit[node[row]]]
            raise InvalidArgument(
                f"{plan.spine.levels[level]} {unit!s} has {what} on {constraints.part_names[part]!r}, and some leaves "
                "can count only a few of the cells that it adds up: whether a larger area can be divided depends on "
                "more than its sum. Bound the finer combinations, or use estimate = 'gls'"
            )
