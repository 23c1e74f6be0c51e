"""A branch of its own for the area inside a mask, at every level below the root or below a level that stays whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ....domain.codes import Numbered
from ....errors import InvalidArgument
from .hierarchy import Hierarchy, from_columns, from_marks, from_parent_column, numbered_codes
from .optimise import Entities, optimise, osed, read_entities
from .shares import Amount, Shares, bypass, read_shares


def split(h: Hierarchy, mask: np.ndarray, below: str | None = None) -> Hierarchy:
    """Every unit below a level as its part inside the mask and its part outside; see ``Spine.split``."""
    inside = np.asarray(mask)
    if inside.dtype != bool or inside.shape != (h.leaves,):
        raise InvalidArgument(
            f"split takes one boolean for each of the {h.leaves} leaves, not {inside.dtype} of shape {inside.shape}"
        )
    if below is not None and below not in h.levels:
        raise InvalidArgument(f"{below!r} is not a level of this spine: {', '.join(h.levels)}")
    whole_levels = 1 if below is None else h.levels.index(below) + 1
    if whole_levels >= h.depth - 1:
        top = "the root" if below is None else f"level {below!r}"
        raise InvalidArgument(f"nothing lies between {top} and the leaves, so that there is no unit to split")
    units, codes = list(h.units[:whole_levels]), list(h.codes[:whole_levels])
    for unit, code in zip(h.units[whole_levels:-1], h.codes[whole_levels:-1], strict=True):
        part, first, place = np.unique(2 * unit + ~inside, return_index=True, return_inverse=True)
        whole = unit[first]
        cut = np.bincount(whole, minlength=code.size) > 1
        side = np.where(part % 2, "|out", "|in")
        names = [code[u] + side[i] if cut[u] else code[u] for i, u in enumerate(whole)]
        units.append(place)
        codes.append(np.array(names, object))
    return Hierarchy(h.levels, (*codes, h.codes[-1]), (*units, h.units[-1]))


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in breadth-first order, the children of one node side by side.

    Args:
        parent: shape (nodes,): each node's parent, which comes before it; -1 for the root, node 0.
        level: shape (nodes,): the level whose queries measure it.
        unit: shape (nodes,): which unit of that level it is.
        leaf: shape (leaves,): the node of each leaf. A leaf whose share went up to units of one child is their node.
    """

    parent: np.ndarray
    level: np.ndarray
    unit: np.ndarray
    leaf: np.ndarray

    @property
    def size(self) -> int:
        return self.parent.size

    @cached_property
    def depths(self) -> tuple[slice, ...]:
        """The nodes of each depth, from the root's down: parents do not fall."""
        edges = [0, 1]
        while edges[-1] < self.size:
            edges.append(int(np.searchsorted(self.parent, edges[-1])))
        return tuple(slice(a, b) for a, b in pairwise(edges))

    def whole_in(self, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The highest nodes that lie in one area each, and these areas.

        Args:
            unit: shape (leaves,): the area of each leaf; -1 where it is in none.
        """
        low, high = np.full(self.size, unit.size), np.full(self.size, -1)
        np.minimum.at(low, self.leaf, unit)
        np.maximum.at(high, self.leaf, unit)
        for nodes in reversed(self.depths[1:]):
            np.minimum.at(low, self.parent[nodes], low[nodes])
            np.maximum.at(high, self.parent[nodes], high[nodes])
        area = np.where(low == high, low, -1)
        top = np.flatnonzero((area >= 0) & ((self.parent < 0) | (area[self.parent] != area)))
        return top, area[top]

    def joined(self, nodes: np.ndarray, area: np.ndarray, level: int) -> Tree:
        """The tree with a node for each area of several nodes, between them and the parent that they share.

        Args:
            nodes: shape (m,): children of one node for each area.
            area: shape (m,): the area that each lies in.
            level: of the new nodes, whose units are the areas.
        """
        many = np.flatnonzero(np.bincount(area) > 1)
        moved = nodes[np.isin(area, many)]
        place = self.size + np.searchsorted(many, area[np.isin(area, many)])
        parent = np.concatenate([self.parent, np.zeros(many.size, np.int64)])
        parent[place] = self.parent[moved]
        parent[moved] = place
        depth = np.zeros(parent.size, np.int64)
        depth[moved] = 1
        for here in self.depths[1:]:
            depth[here] += 1 + depth[self.parent[here]]
        depth[place] = depth[moved] - 1
        own = np.full(many.size, level)
        found = Tree(parent, np.append(self.level, own), np.append(self.unit, many), self.leaf)
        return _breadth_first(found, depth)

    @classmethod
    def of(cls, h: Hierarchy, shares: Shares | None) -> Tree:
        """Every unit with a share, and the root even without one; all units where there are no shares."""
        measured = [np.ones(len(c), bool) for c in h.codes] if shares is None else shares.measured
        node, depth_of = np.zeros(1, np.int64), np.zeros(1, np.int64)
        found = [(np.array([-1]), np.zeros(1, np.int64), np.zeros(1, np.int64))]
        for level in range(1, h.depth):
            above = node[h.parents[level]]
            kept = np.flatnonzero(measured[level])
            node = above.copy()
            node[kept] = depth_of.size + np.arange(kept.size)
            depth_of = np.concatenate([depth_of, depth_of[above[kept]] + 1])
            found.append((above[kept], np.full(kept.size, level), kept))
        parents, levels, units = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return _breadth_first(cls(parents, levels, units, node), depth_of)


def _breadth_first(tree: Tree, depth: np.ndarray) -> Tree:
    """The same tree, nodes sorted by depth, then by their parents' new place."""
    place = np.zeros(tree.size, np.int64)
    order = [np.zeros(1, np.int64)]
    first = 1
    for deep in range(1, int(depth.max()) + 1):
        nodes = np.flatnonzero(depth == deep)
        nodes = nodes[np.argsort(place[tree.parent[nodes]], kind="stable")]
        place[nodes] = first + np.arange(nodes.size)
        first += nodes.size
        order.append(nodes)
    found = np.concatenate(order)
    parent = tree.parent[found]
    return Tree(
        np.where(parent < 0, -1, place[parent]), tree.level[found], tree.unit[found], place[tree.leaf]
    )


@dataclass(frozen=True, eq=False)
class SpineAreas:
    """Areas that do not overlap, as sets of a spine's leaves.

    Args:
        codes: shape (areas,): their codes, rising.
        unit: shape (leaves,): the area of each leaf; -1 where it is in none.
    """

    codes: np.ndarray
    unit: np.ndarray


@dataclass(frozen=True, eq=False)
class Spine:
    """A rooted tree of units in levels, from the whole to its leaves (blocks, say), and the budget's shares on it.

    Made by ``from_codes``, ``from_parents`` or ``from_sdc``. Every method that changes something returns a new spine.

    Args:
        hierarchy: the levels, their units, and the unit of each level that each leaf lies in.
        shares: of the budget, for each unit; None before ``bypass`` or ``with_shares``.
        held: name -> areas that are nodes of the tree whether they are measured or not; see ``hold``.

    Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System" (2023).

    >>> codes = {"county": ["A", "A", "A", "B"], "block": ["A1", "A2", "A3", "B1"]}
    >>> spine = Spine.from_codes(codes, levels=["county", "block"])
    >>> spine.levels, spine.leaves
    (('root', 'county', 'block'), 4)
    >>> spine.osed(["town", None, "town", "hamlet"]).tolist()
    [1, 2]
    """

    hierarchy: Hierarchy
    shares: Shares | None = None
    held: Mapping[str, SpineAreas] = field(default_factory=dict)

    @classmethod
    def from_codes(
        cls, codes: Mapping[str, Sequence[Any] | np.ndarray | Numbered], levels: Sequence[str]
    ) -> Spine:
        """The spine whose leaves are the rows of some columns of codes.

        Codes are unique within their level. None, empty text or NaN means that a level is left out: where codes follow
        further down, the next of them is its own parent; where none follows, the branch ends there.

        Args:
            codes: a column for each level, one row a leaf.
            levels: names of columns, from the top down. The last names the leaves. Where the first has several units
                a level "root" is added above it.

        Raises:
            InvalidArgument: a unit in two parents, a leaf in two rows, columns of different lengths, a row without
                codes, or a single leaf.

        >>> codes = {"county": ["A", "A", None], "tract": ["A1", "A2", "Z"], "block": ["a", "b", "c"]}
        >>> spine = Spine.from_codes(codes, levels=["county", "tract", "block"])
        >>> spine.codes["county"].tolist()
        ['A', 'Z']
        """
        return cls(from_columns(codes, levels))

    @classmethod
    def from_parents(cls, codes: Sequence[Any], parents: Sequence[Any], levels: Sequence[str]) -> Spine:
        """The spine in which each unit names the one that it lies in. Branches may end at any level.

        Args:
            codes: one a unit, distinct.
            parents: for each unit the code of its parent; None for a top unit.
            levels: one name for each level of the tree, from the top down.

        Raises:
            InvalidArgument: a parent without a row, a code in two rows, a unit that lies in itself, or too few levels.

        >>> units, parents = ["all", "A", "B", "A1", "A2"], [None, "all", "all", "A", "A"]
        >>> spine = Spine.from_parents(units, parents, levels=["state", "county", "block"])
        >>> spine.codes["block"].tolist()
        ['B', 'A1', 'A2']
        """
        return cls(from_parent_column(codes, parents, levels))

    @classmethod
    def from_sdc(cls, marks: Sequence[str], codes: Sequence[Any], levels: Sequence[str]) -> Spine:
        """The spine of a hierarchy as sdcTable writes it: as many '@' as the level, beside the code, from the top down.

        Args:
            marks: "@" for the total, "@@" for a unit directly below it, and so on.
            codes: one a row, distinct.
            levels: one name for each level, the total's first.

        Raises:
            InvalidArgument: a mark that is not made of '@', a level left out, several totals, or a code in two rows.

        >>> marks, units = ["@", "@@", "@@@", "@@@", "@@"], ["all", "A", "A1", "A2", "B"]
        >>> spine = Spine.from_sdc(marks, units, levels=["state", "county", "block"])
        >>> spine.codes["block"].tolist()
        ['A1', 'A2', 'B']
        """
        return cls(from_marks(marks, codes, levels))

    def __repr__(self) -> str:
        return f"Spine({' > '.join(self.levels)}, {self.leaves} leaves)"

    def _repr_html_(self) -> str:
        from ....notebook import CardRows, card

        facts = [("leaves", self.leaves), ("distinct shares", self.shares and len(self.shares.values))]
        if self.shares is None:
            units = zip(self.levels, map(len, self.hierarchy.codes), strict=True)
            return card("Spine", facts, CardRows(("level", "units"), units, len(self.levels)))
        measured = (int(np.count_nonzero(units)) for units in self.shares.measured)
        rows = zip(self.levels, map(len, self.hierarchy.codes), measured, strict=True)
        return card("Spine", facts, CardRows(("level", "units", "measured"), rows, len(self.levels)))

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, the root's first."""
        return self.hierarchy.levels

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return self.hierarchy.leaves

    @property
    def codes(self) -> dict[str, np.ndarray]:
        """For each level, shape (units,): codes of its units; the leaves' as they were given."""
        return dict(zip(self.levels, self.hierarchy.codes, strict=True))

    @property
    def units(self) -> dict[str, np.ndarray]:
        """For each level, shape (leaves,): the unit that each leaf lies in."""
        return dict(zip(self.levels, self.hierarchy.units, strict=True))

    @cached_property
    def tree(self) -> Tree:
        """The units that are measured, the root, and the areas that are held, as a tree.

        The level of a node that is held without being measured is past the last one: see ``unit_name``.
        """
        tree = Tree.of(self.hierarchy, self.shares)
        for at, name in enumerate(self.held):
            nodes, area = tree.whole_in(self.held[name].unit)
            self._check_held(name, tree, nodes, area)
            tree = tree.joined(nodes, area, self.hierarchy.depth + at)
        return tree

    def _check_held(self, name: str, tree: Tree, nodes: np.ndarray, area: np.ndarray) -> None:
        """Refuse areas that are sums of nodes in several parents."""
        first = np.empty(self.held[name].codes.size, np.int64)
        first[area[::-1]] = tree.parent[nodes[::-1]]
        crossed = np.flatnonzero(tree.parent[nodes] != first[area])
        if not crossed.size:
            return
        at = int(crossed[0])
        area_name = f"{name} {self.held[name].codes[area[at]]}"
        cut = self.unit_name(tree, int(max(first[area[at]], tree.parent[nodes[at]])))
        raise InvalidArgument(
            f"counts of every {name} cannot be exact: {area_name} holds a part of {cut}, and lies outside it, too, "
            "and that is measured as a whole. Estimates meet exact counts of areas that are units of the spine, or "
            f"several units of one: put {name!r} among the levels above it, begin the split further down, or make "
            "counts of other areas exact"
        )

    def unit_name(self, tree: Tree, node: int) -> str:
        """What messages call a node: its level, and its code there."""
        level, unit = int(tree.level[node]), int(tree.unit[node])
        past = level - self.hierarchy.depth
        name = self.levels[level] if past < 0 else list(self.held)[past]
        codes = self.hierarchy.codes[level] if past < 0 else self.held[name].codes
        return f"{name} {codes[unit]!s}"

    def areas(self, name: str) -> SpineAreas:
        """The areas that are held under a name, or else the units of the level of that name.

        Raises:
            InvalidArgument: there are none.
        """
        if name in self.held:
            return self.held[name]
        if name not in self.levels:
            raise InvalidArgument(f"{name!r} is not a level of this spine: {', '.join(self.levels)}")
        return SpineAreas(self.codes[name], self.units[name])

    def hold(self, name: str, codes: Sequence[Any] | np.ndarray | Numbered) -> Spine:
        """The same spine with some areas held: their counts can be exact.

        Each of them is a node of the tree, as it must be for estimates to meet its counts: a unit, or a sum of several
        units of one parent. It is not measured for that, and no share changes. So a state that is split stays whole
        above its parts, and a unit that was bypassed, or a town that is made of groups of blocks, has a place.

        Args:
            name: may be that of a level, whose units were split or drawn anew.
            codes: shape (leaves,): the area of each leaf; None where it lies in none.

        Raises:
            InvalidArgument: areas that hold parts of two measured units, or no leaf lies in any.

        >>> codes = {"state": list("AAAB"), "block": list("abcd")}
        >>> spine = Spine.from_codes(codes, levels=["state", "block"]).split(np.array([True, False, False, False]))
        >>> spine = spine.with_shares({"root": "1/3", "state": "1/3", "block": "1/3"})
        >>> spine.tree.size, spine.hold("state", codes["state"]).tree.size
        (8, 9)
        """
        unit, names = numbered_codes(codes, name)
        if unit.size != self.leaves:
            raise InvalidArgument(
                f"{unit.size} codes for {self.leaves} leaves: give one for each leaf, or None"
            )
        if not names.size:
            raise InvalidArgument(f"no leaf lies in any {name}: leave its counts out")
        found = replace(self, held={**self.held, name: SpineAreas(names.astype(object), unit)})
        _ = found.tree
        return found

    def entities(self, entity: Any) -> Entities:
        """Off-spine entities as ``osed`` reads them: their names, in the order of its answers, and their leaves."""
        return read_entities(entity, self.hierarchy.codes[-1])

    def osed(self, entity: Any) -> np.ndarray:
        """Off-spine entity distance: the least number of units to add and subtract to get each entity.

        Equations 20-23 and Algorithm 1 of the reference, over the pairs of unit and entity that share a leaf. Units
        without a share do not count as on the spine.

        Args:
            entity: a code for each leaf, None where it lies in no entity: entities in the order of their sorted codes;
                or a boolean matrix, shape (leaves,) or (leaves, entities), dense or sparse; or a dict from names to
                codes of leaves.

        Returns:
            Shape (entities,).

        Raises:
            InvalidArgument: an entity that is not over this spine's leaves.

        >>> spine = Spine.from_codes({"tract": list("AAAB"), "block": list("abcd")}, levels=["tract", "block"])
        >>> spine.osed({"all but c": ["a", "b", "d"], "A": ["a", "b", "c"]}).tolist()
        [2, 1]
        """
        measured = None if self.shares is None else self.shares.measured
        return osed(self.hierarchy, self.entities(entity), measured)

    def split(self, mask: np.ndarray, below: str | None = None) -> Spine:
        """Every unit below a level as its part inside a mask and its part outside: a branch of its own for each.

        The 2020 census put tribal areas on its spine like this. A unit that is cut gives two, named with "|in" and
        "|out"; others keep their names. The root stays whole, so that a level above the states is needed to have each
        state's areas together; or the states stay whole, too, with ``below="state"``, so that their own counts can be
        exact.

        Args:
            mask: shape (leaves,), boolean.
            below: the last level whose units stay whole; the root where None.

        Raises:
            InvalidArgument: another shape or type, an unknown level, a spine without a level to split, or one that has
                shares already.

        >>> spine = Spine.from_codes({"tract": list("AAAB"), "block": list("abcd")}, levels=["tract", "block"])
        >>> spine.split(np.array([False, True, True, False])).codes["tract"].tolist()
        ['A|in', 'A|out', 'B']
        """
        self._without_shares("split")
        return Spine(split(self.hierarchy, mask, below))

    def optimise(
        self,
        entities: Sequence[Any],
        fanout_cutoff: int = 12,
        levels: Sequence[str] | None = None,
        rule: str = "paper",
    ) -> Spine:
        """Groups drawn anew so that entities come closer to the spine: Algorithm 2 of the reference.

        The level above the leaves becomes optimised block groups: leaves of one parent and the same entities, in
        groups of at most sqrt(n) + fanout_cutoff leaves, n being the parent's. Any other level becomes groups of the
        units below it (tract groups), joined greedily while the sorted distances do not grow in lexicographic order.

        The code of the 2020 census differs from that in three ways, which ``rule="production"`` follows: groups hold
        one more; they are filled, in the order of codes, so that all but the last of a kind are as large as can be;
        and other levels are cut like that, too, in the order of the units' codes, whatever the entities.

        Args:
            entities: several, each as for ``osed``.
            fanout_cutoff: how far groups may grow beyond the square root.
            levels: which levels to draw anew; the one above the leaves where None.
            rule: "paper" or "production".

        Raises:
            InvalidArgument: entities that are not over this spine's leaves, a level that cannot be drawn anew, or a
                spine that has shares already.

        >>> codes = {"tract": list("AAAAB"), "group": list("11222"), "block": list("abcde")}
        >>> codes["group"] = [t + g for t, g in zip(codes["tract"], codes["group"])]
        >>> spine = Spine.from_codes(codes, levels=["tract", "group", "block"])
        >>> place = ["x", None, "x", "x", None]
        >>> spine.osed(place).tolist(), spine.optimise([place]).osed(place).tolist()
        ([2], [1])
        """
        self._without_shares("optimise")
        if isinstance(entities, str | Mapping) or not hasattr(entities, "__len__"):
            raise InvalidArgument(
                "optimise takes a list of entities: write optimise([places]) for one type of them"
            )
        if any(isinstance(one, str) or one is None for one in entities):
            raise InvalidArgument("optimise takes a list of entities, not one: write optimise([places])")
        read = [self.entities(one) for one in entities]
        return Spine(optimise(self.hierarchy, read, fanout_cutoff, levels, rule))

    def with_shares(self, shares: Mapping[str, Amount]) -> Spine:
        """The same spine, with one share of the budget for all units of a level.

        Args:
            shares: an exact number for each level, 0 or more, which add up to 1.

        Raises:
            InvalidArgument: a level without a share, a share that is not exact, a sum that is not 1, or nothing for
                the leaves.

        Privacy:
            A record is counted in one unit of each level, and the levels' shares add up to exactly 1: measuring each
            unit with its share of a budget costs the budget (Theorem 1).
        """
        return replace(self, shares=read_shares(self.hierarchy, shares))

    def bypass(
        self,
        shares: Mapping[str, Amount],
        noise: str = "gaussian",
        rule: str = "exact",
        queries: Mapping[str, np.ndarray] | None = None,
    ) -> Spine:
        """Shares that leave out units of no use: Algorithm 3 of the reference, from the leaves up.

        A unit of one child takes the child's share, and the child is left out: they are the same area. Under Laplace
        noise a unit of several children is left out, and its share given to each of them, where no least-squares
        variance of any query in any area becomes larger: exactly when
        ``lambda_max(M_c^-1 M_p) sum_u g_p / (2 g_u + g_p) <= 1``, with g the shares and M the query groups' sums
        ``alpha^2 Q'Q`` for parent and child. Under Gaussian noise that never is so.

        Args:
            shares: an exact number for each level, 0 or more, which add up to 1.
            noise: "laplace" or "gaussian".
            rule: "exact", or "paper" for Theorem 2: the smallest child's share is at least (c - 1) / 2 of the parent's.
            queries: M of each level, shape (cells, cells), for the exact rule under Laplace noise; the same at all
                levels where None.

        Raises:
            InvalidArgument: shares that do not add up to 1, or queries that do not determine every cell.

        Privacy:
            Theorem 3: on every path from the root to a leaf the shares still add up to exactly 1, so that measuring
            each unit with its share of a budget costs the budget.

        >>> codes = {"tract": list("AAB"), "block": list("abc")}
        >>> spine = Spine.from_codes(codes, levels=["tract", "block"])
        >>> done = spine.bypass({"root": "1/4", "tract": "1/4", "block": "1/2"}, noise="laplace")
        >>> [[str(share) for share in done.shares[level]] for level in done.levels]
        [['0'], ['0', '1'], ['1', '1', '0']]
        """
        given = read_shares(self.hierarchy, shares)
        return replace(self, shares=bypass(self.hierarchy, given, noise, rule, queries))

    def _without_shares(self, verb: str) -> None:
        if self.shares is not None:
            raise InvalidArgument(
                f"{verb} before shares are given: they belong to the units that it would change"
            )
