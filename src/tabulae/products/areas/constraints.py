"""What is known of areas besides noise: exact counts, counts published before, and limits from public files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ...domain import Attribute, Domain, Table, describe_row_space
from ...errors import InvalidArgument
from ...linalg import Identity, LinearOperator, Partition
from ...privacy import Disclosure
from .layout import CellLayout, Margin, Supports
from .spine_plan import SpinePlan

NO_LIMIT = 2**62
"""An upper limit that is none."""

FREE = -1
"""In place of an exact count: the sum is not exact."""


@dataclass(frozen=True, eq=False)
class ExactMargin:
    """A marginal over dense attributes whose counts are exact in some areas, and so in the nodes that are sums of them.

    Args:
        level: of the spine, or the name of areas that it holds.
        reason: why it may be exact, as published.
    """

    level: str
    margin: Margin
    reason: str = ""

    kind: ClassVar[str] = "exact"
    """What messages call the counts."""


@dataclass(frozen=True, eq=False)
class EarlierMargin(ExactMargin):
    """A marginal whose counts equal those that an earlier release published: they are public, and nothing is disclosed.

    They take no part in "gls", whose estimates are unbiased and have intervals from the noise of this release alone.

    Args:
        values: shape (areas, classes), int64; ``FREE`` in all areas for a class that the earlier release does not
            count: an exact margin of the same level has it.
        table: of the earlier release.
        release_id, sha256sums: which release that is.
    """

    values: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    table: str = ""
    release_id: str = ""
    sha256sums: str = ""

    kind: ClassVar[str] = "earlier"

    def completed(self, exact: Sequence[ExactMargin], exact_values: Sequence[np.ndarray]) -> np.ndarray:
        """The values, with those of exact margins where the earlier release has none."""
        found = self.values.copy()
        for c in self.open:
            m, k = next(self.exact_classes(c, exact))
            found[:, c] = exact_values[m][:, k]
        return found

    def exact_classes(self, c: int, exact: Sequence[ExactMargin]) -> Iterator[tuple[int, int]]:
        """The exact margins of the level that have a class of the same cells as class c: which, and which class."""
        cells = self.margin.label == c
        for m, each in enumerate(exact):
            k = int(each.margin.label[cells][0])
            if each.level == self.level and ((each.margin.label == k) == cells).all():
                yield m, k

    @property
    def document(self) -> dict[str, str]:
        """What descriptors and plans say of it."""
        return {
            "counts": self.margin.name,
            "level": self.level,
            "table": self.table,
            "release_id": self.release_id,
            "sha256sums": self.sha256sums,
        }

    @property
    def words(self) -> str:
        """The same, for people."""
        where = "the microdata" if self.table == "microdata" else f"table {self.table}"
        return f"{self.margin.name}, of each {self.level}: as in {where} of release {self.release_id}"

    @property
    def open(self) -> list[int]:
        """The classes that the earlier release does not count."""
        return np.flatnonzero((self.values == FREE).any(axis=0)).tolist()


@dataclass(frozen=True, eq=False)
class AreaConstraints:
    """Limits that estimates of counts meet exactly, all from public files, and the margins that are exact.

    Args:
        part: shape (D,): the part 0 .. J-1 of each dense cell: the finest margin that a bound or exact count is about.
        part_names: what messages call each part.
        lower, upper: shape (leaves, J), int64, by leaf of the spine; ``NO_LIMIT`` where there is none.
        exact: the margins that are exact; each a coarsening of the parts.
        earlier: those whose counts were published before, likewise.

    >>> from tabulae.domain import Domain
    >>> layout = CellLayout.of(Domain({"type": 3, "age": 2}), ["type"])
    >>> free = np.full((4, 3), NO_LIMIT)
    >>> margins = (ExactMargin("county", layout.margin([])), ExactMargin("root", layout.margin(["type"])))
    >>> constraints = AreaConstraints(layout, np.arange(3), ("a", "b", "c"), 0 * free, free, margins)
    >>> [groups.tolist() for groups in constraints.groups]
    [[0, 0, 0], [0, 1, 2]]
    """

    layout: CellLayout
    part: np.ndarray
    part_names: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    exact: tuple[ExactMargin, ...] = ()
    earlier: tuple[EarlierMargin, ...] = ()

    @cached_property
    def margins(self) -> tuple[ExactMargin, ...]:
        """Every margin whose counts are fixed: those that are exact, then those published before."""
        return (*self.exact, *self.earlier)

    def values(self, exact_values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The counts of all ``margins``, shape (areas, classes) each.

        Args:
            exact_values: those of ``exact``.
        """
        if len(exact_values) != len(self.exact):
            raise InvalidArgument(
                f"{len(self.exact)} margins are exact, and counts of {len(exact_values)} are given"
            )
        return (*exact_values, *(each.completed(self.exact, exact_values) for each in self.earlier))

    @property
    def public(self) -> AreaConstraints:
        """The constraints whose counts are known before any data is: without exact margins, and what needs them."""
        return replace(self, exact=(), earlier=tuple(each for each in self.earlier if not each.open))

    @cached_property
    def groups(self) -> tuple[np.ndarray, ...]:
        """For each margin, shape (J,): the parts that it adds up, numbered from 0."""
        return tuple(self._groups(margin) for margin in self.margins)

    def _groups(self, fixed: ExactMargin) -> np.ndarray:
        margin = fixed.margin
        first = np.unique(self.part, return_index=True)[1]
        found = np.zeros(len(self.part_names), np.int64)
        found[self.part[first]] = np.unique(margin.label[first], return_inverse=True)[1]
        by_part = margin.label[first][np.searchsorted(self.part[first], self.part)]
        if (margin.label != by_part).any():
            raise InvalidArgument(
                f"{fixed.kind} counts of {margin.name!r} cut across the parts that limits are on: bounds and exact "
                "counts must each be a coarsening of the next finer one. Bound the same attributes, or use estimate = "
                "'gls'"
            )
        return found

    def finest(self, plan: SpinePlan) -> np.ndarray:
        """Shape (nodes,): position of the finest of ``margins`` of each node of the plan's tree; -1 where it has none.

        A margin is exact at a node that is one of its areas, where a finer one is, and where it is at all children.
        """
        found = np.full(plan.tree.size, -1, np.int64)
        exact = np.zeros(plan.tree.size, bool)
        for m in reversed(self.chain):
            exact[nodes_of_units(plan, self.margins[m].level)] = True
            for nodes in reversed(plan.depths[:-1]):
                below = plan.children[nodes.start : nodes.stop + 1]
                so_far = np.concatenate([[0], np.cumsum(exact[below[0] : below[-1]])])[below - below[0]]
                exact[nodes] |= (np.diff(so_far) == np.diff(below)) & (np.diff(below) > 0)
            found[exact & (found < 0)] = m
        return found

    @cached_property
    def chain(self) -> list[int]:
        """Positions of ``margins``, from the coarsest to the finest."""
        return sorted(range(len(self.margins)), key=lambda m: int(self.groups[m].max()))

    def check(self, plan: SpinePlan, method: str) -> None:
        """Refuse, before any data, what an estimate might not be able to meet.

        ``gls`` ignores limits and takes all exact margins whose units are on the spine. ``topdown`` and ``bluedown``
        meet everything, by construction: see :func:`~.feasible.check_feasible`.

        Raises:
            InvalidArgument: margins that cut across each other, an empty interval, or limits whose sums do not say
                whether a parent can be divided; with the level, unit and part.
        """
        leaves, parts = plan.spine.leaves, len(self.part_names)
        if self.lower.shape != (leaves, parts) or self.upper.shape != (leaves, parts):
            raise InvalidArgument(
                f"limits have shape {self.lower.shape} and {self.upper.shape}; the spine has {leaves:,} leaves, and "
                f"there are {parts} parts"
            )
        for exact in self.margins:
            if exact.margin.inner > 1:
                raise InvalidArgument(
                    f"{exact.kind} counts of {exact.margin.name!r}: the layout holds one of its attributes symmetric; "
                    "make it dense"
                )
            nodes_of_units(plan, exact.level)
        if method == "gls":
            return

        self._check_chain()
        self._check_leaves(plan)
        check_feasible(plan, self)

    def _check_chain(self) -> None:
        for coarse, fine in pairwise(self.chain):
            pairs = np.unique(np.stack([self.groups[fine], self.groups[coarse]]), axis=1)
            if pairs.shape[1] > self.groups[fine].max() + 1:
                a, b = self.margins[coarse], self.margins[fine]
                raise InvalidArgument(
                    f"{a.kind} counts of {a.margin.name!r} ({a.level}) and of {b.margin.name!r} ({b.level}) cut across "
                    "each other: areas above both have both, and one must be a coarsening of the other. Make counts of "
                    "their combinations exact, or use estimate = 'gls'"
                )

    def _check_leaves(self, plan: SpinePlan) -> None:
        can = supported_parts(self, plan.support)
        for broken, why in (
            (self.lower < 0, "at_least is below 0"),
            (self.upper < self.lower, "at_most is less than at_least"),
            ((self.lower > 0) & ~can, "at_least is more than 0 where nobody can be counted"),
        ):
            if broken.any():
                leaf, part = np.argwhere(broken)[0]
                code = plan.spine.hierarchy.codes[-1][leaf]
                raise InvalidArgument(
                    f"{plan.spine.levels[-1]} {code!s}, {self.part_names[part]}: {why}. "
                    f"Correct the file of bounds ({int(broken.sum()):,} such rows)"
                )


def supported_parts(constraints: AreaConstraints, support: Supports) -> np.ndarray:
    """Shape (leaves, J): whether some dense cell of each part can occur."""
    return support.classes(constraints.part, len(constraints.part_names))[support.pattern]


def nodes_of_units(plan: SpinePlan, level: str) -> np.ndarray:
    """Shape (units,): for each area of a level, or held, the deepest node of the plan's tree that is the same area.

    Raises:
        InvalidArgument: no such level, or a unit that is not a node: it has no share of the budget, and is not held.
    """
    tree, areas, leaves = plan.tree, plan.spine.areas(level), plan.spine.leaves
    unit = areas.unit
    size, leaf = np.zeros(tree.size, np.int64), np.full(tree.size, leaves)
    np.add.at(size, tree.leaf, 1)
    np.minimum.at(leaf, tree.leaf, np.arange(leaves))
    for nodes in reversed(plan.depths[1:]):
        np.add.at(size, tree.parent[nodes], size[nodes])
        np.minimum.at(leaf, tree.parent[nodes], leaf[nodes])
    of = unit[leaf]  # areas nest: with a leaf in common and one size they are one area
    same = np.flatnonzero((of >= 0) & (size == np.bincount(unit[unit >= 0])[of]))
    found = np.full(areas.codes.size, -1, np.int64)
    np.maximum.at(found, of[same], same)
    if (found < 0).any():
        code = areas.codes[int(np.argmin(found))]
        raise InvalidArgument(
            f"counts of level {level!r} cannot be exact: {level} {code!s} is not on the spine, because its share of "
            "the budget went to other levels. Hold its units, or give the level a share and set bypass = 'off'"
        )
    return found


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
    part less free. Children of one parent with other groups than their siblings, or the only ones with any, must have
    no room at all: they shift.

    From parts to cells: where all leaves can count either every dense cell of a part or none, what each child counts of
    a part can be any of its cells, and a transport without forbidden pairs exists. A part of which some leaves can
    count a few cells only must have no limits at any leaf, and must be whole, or absent, in every exact unit below
    the root: then its cells are free below, and whole above.

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
            _check_families(plan, constraints, finest, nodes, room)
            _add_up(plan, constraints, finest, nodes, room, free)


def _check_families(
    plan: SpinePlan, constraints: AreaConstraints, finest: np.ndarray, nodes: slice, room: np.ndarray
) -> None:
    """Refuse units with room whose counts are exact, or finer ones are, where those of a sibling are not."""
    rank = np.full(len(constraints.margins) + 1, -1)
    rank[constraints.chain] = np.arange(len(constraints.margins))
    own = rank[finest[nodes]]
    least = np.full(plan.tree.size, len(constraints.margins))
    np.minimum.at(least, plan.tree.parent[nodes], own)
    wrong = np.flatnonzero((own > least[plan.tree.parent[nodes]]) & room[nodes].any(axis=1))
    if wrong.size:
        node = nodes.start + int(wrong[0])
        exact = constraints.margins[int(finest[node])]
        raise InvalidArgument(
            f"{exact.kind} counts of {exact.margin.name!r} for every {exact.level}: {unit_name(plan, node)} has them, "
            f"other parts of {unit_name(plan, int(plan.tree.parent[node]))} have not, and limits are kept on several "
            "parts: whether counts can be divided between them depends on more than these. Make counts by part exact, "
            "or those of areas that leave none out, drop the bounds, or use estimate = 'gls'"
        )


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


def unit_name(plan: SpinePlan, node: int) -> str:
    """What messages call a node: its level, and its code there."""
    return plan.spine.unit_name(plan.tree, node)


def parts_in(constraints: AreaConstraints, m: int, group: int) -> str:
    """The parts that a group of an exact margin adds up, in words."""
    pairs = zip(constraints.part_names, constraints.groups[m], strict=True)
    return ", ".join(name for name, g in pairs if g == group)


def _refuse(plan: SpinePlan, constraints: AreaConstraints, m: int, node: int, group: int) -> None:
    exact = constraints.margins[m]
    raise InvalidArgument(
        f"{exact.kind} counts of {exact.margin.name!r} for every {exact.level}: whether a larger area's counts can be "
        f"divided depends on more than limits on each of {parts_in(constraints, m, group)}, because in "
        f"{unit_name(plan, node)} two or more of them cannot occur, have an upper limit or are fixed. Make counts by "
        f"part exact there, join parts to at most {_MANY - 1}, drop upper limits, or use estimate = 'gls'"
    )


def _check_broken_parts(plan: SpinePlan, constraints: AreaConstraints, is_exact: np.ndarray) -> None:
    """Refuse parts that some leaves can count some cells of, where limits or exact counts are about them."""
    size = len(constraints.part_names)
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
            raise InvalidArgument(
                f"{unit_name(plan, int(node[row]))} has {what} on {constraints.part_names[part]!r}, and some leaves "
                "can count only a few of the cells that it adds up: whether a larger area can be divided depends on "
                "more than its sum. Bound the finer combinations, or use estimate = 'gls'"
            )


def check_reachable(plan: SpinePlan, constraints: AreaConstraints) -> None:
    """Refuse, before any data, exact counts under which the moves of "posterior" cannot reach every table.

    A move takes people from one place, a leaf and a cell, to another. Where exact sums are disjoint, tables that meet
    them and bounds on parts are the whole points of a generalised polymatroid, a product of one for each sum, and any
    two are joined by such steps (Murota, "Discrete Convex Analysis" (2003), the exchange property of M-convex sets).
    So they are where sums nest; not where those of smaller areas are coarser than those of larger ones.

    Raises:
        InvalidArgument: such counts, or counts of an earlier release.
    """
    if constraints.earlier:
        raise InvalidArgument(
            '"posterior" does not hold counts to an earlier release: use estimate = "bluedown"'
        )
    depth = [int(plan.depth[nodes_of_units(plan, each.level)].max()) for each in constraints.exact]
    for a, one in enumerate(constraints.exact):
        for b, other in enumerate(constraints.exact):
            if depth[a] < depth[b] and constraints.groups[a].max() > constraints.groups[b].max():
                raise InvalidArgument(
                    f'"posterior" moves people between two places at a time, and exact counts of {one.margin.name!r} '
                    f"({one.level}) and of {other.margin.name!r} ({other.level}) leave tables that it cannot reach: "
                    f'make {one.margin.name!r} exact for every {other.level}, too, or use estimate = "bluedown"'
                )


_NO_REASON = "no reason given"


def disclosure_of(plan: SpinePlan, exact: ExactMargin) -> Disclosure:
    """What the ledger is told of a margin whose counts are about to be read as they are.

    The level stands among the attributes, with its units for categories, unless it is one unit of all: the counts are
    those of every one of them. Areas that are sums of these have the same counts exact, by addition.

    Privacy:
        None is spent. Attributes, recodes and units are public.
    """
    domain, name = plan.layout.domain, exact.margin.name
    views = {domain.resolve(view).attribute.name: view for view in exact.margin.names}
    factors = {of: _factor(domain, of, view) for of, view in views.items()}
    attributes = {of: domain[of] for of in views}
    areas = plan.spine.areas(exact.level)
    codes = areas.codes
    if codes.size > 1 or (areas.unit < 0).any():
        if exact.level in domain:
            raise InvalidArgument(
                f"level {exact.level!r} has exact counts and the name of an attribute: rename one of them"
            )
        name = f"{name} of each {exact.level}"
        attributes[exact.level] = Attribute.of(exact.level, codes.tolist())
        factors[exact.level] = Identity(codes.size)
    # a total of one unit is over no attribute at all: any domain says so
    rows = describe_row_space(Table(name, factors), Domain(attributes) if attributes else domain)
    return Disclosure(name, exact.reason or _NO_REASON, rows)


def _factor(domain: Domain, of: str, view: str) -> LinearOperator:
    recode = domain.recode(view)
    return Identity(domain[of].size) if recode is None else Partition(recode.classes)
