"""Off-spine entities: sets of leaves that cut across the levels, such as places or tribal areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np
from scipy import sparse

from ....domain.codes import Numbered, numbered
from ....errors import InvalidArgument
from .hierarchy import Hierarchy, code_column, numbered_codes
from .shares import distinct_rows


@dataclass(frozen=True, eq=False)
class Entities:
    """Sets of leaves, which may overlap.

    Args:
        names: one name an entity.
        leaf: shape (pairs,): the leaves of the entities, sorted.
        entity: shape (pairs,): the entity that each of them lies in. No pair stands twice.
    """

    names: tuple[str, ...]
    leaf: np.ndarray
    entity: np.ndarray

    @classmethod
    def of_leaves(cls, names: np.ndarray, position: np.ndarray) -> Entities:
        """From the entity of each leaf, as a position among the names, -1 where it lies in none.

        Names that no leaf lies in are left out.
        """
        leaf = np.flatnonzero(position >= 0)
        used = np.bincount(position[leaf], minlength=len(names)) > 0
        return cls(tuple(names[used].tolist()), leaf, (np.cumsum(used) - 1)[position[leaf]])

    def membership(self, leaves: int) -> np.ndarray:
        """Shape (leaves,): equal numbers for leaves that lie in the same entities."""
        first = np.searchsorted(self.leaf, np.arange(leaves + 1))
        count, found = np.diff(first), np.zeros(leaves, np.int64)
        for at in range(int(count.max(initial=0))):
            # leaves that have been in the same entities so far are told apart by their next one
            more = np.flatnonzero(count > at)
            key = found[more] * len(self.names) + self.entity[first[more] + at]
            found[more] = 1 + found.max() + np.unique(key, return_inverse=True)[1]
        _, seen, place = np.unique(found, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(seen))[place]  # numbers in the order of their first leaves


def union(several: Sequence[Entities]) -> Entities:
    """All of several kinds of entities."""
    first = np.cumsum([0] + [len(each.names) for each in several])
    leaf = np.concatenate([np.empty(0, np.int64), *(each.leaf for each in several)])
    entity = [each.entity + start for each, start in zip(several, first, strict=False)]
    order = np.argsort(leaf, kind="stable")
    names = tuple(name for each in several for name in each.names)
    return Entities(names, leaf[order], np.concatenate([np.empty(0, np.int64), *entity])[order])


def read_entities(entity: Any, leaf_codes: np.ndarray) -> Entities:
    """Entities as a user gives them; see ``Spine.osed``."""
    if isinstance(entity, Entities):
        return entity
    if isinstance(entity, Numbered):
        return Entities.of_leaves(entity.codes, entity.index)
    if isinstance(entity, Mapping):
        return _from_lists(entity, leaf_codes)
    if isinstance(entity, str) or not (sparse.issparse(entity) or hasattr(entity, "__len__")):
        raise InvalidArgument(
            "an entity is a code for each leaf, a boolean matrix with one row a leaf, or a dict from name to leaf codes"
        )
    if sparse.issparse(entity):
        return _from_matrix(entity, leaf_codes.size)
    if not isinstance(entity, np.ndarray):
        try:
            typed = np.array(entity)
        except ValueError:  # rows of different lengths
            raise InvalidArgument("an entity's matrix has rows of different lengths") from None
        entity = typed if typed.dtype == bool else np.array(entity, object)
    if entity.dtype == bool:
        return _from_matrix(
            sparse.coo_array(entity[:, None] if entity.ndim == 1 else entity), leaf_codes.size
        )
    return _from_codes(entity, leaf_codes.size)


def _from_codes(codes: Sequence[Any] | np.ndarray, leaves: int) -> Entities:
    if np.ndim(codes) != 1 or len(codes) != leaves:
        raise InvalidArgument(
            f"an entity of shape {np.shape(codes)} on a spine of {leaves} leaves: give one code for each leaf, in the "
            "order of the leaves, and None where a leaf lies in no entity"
        )
    index, names = numbered_codes(codes, "entity")
    return Entities.of_leaves(names, index)


def _from_matrix(matrix: Any, leaves: int) -> Entities:
    pairs = sparse.coo_array(matrix)
    shape = tuple(pairs.shape or ())
    if len(shape) != 2 or shape[0] != leaves:
        hint = ": it is transposed" if shape[1:] == (leaves,) else ""
        raise InvalidArgument(
            f"entities of shape {shape} on a spine of {leaves} leaves{hint}; give one row a leaf and one column "
            "an entity"
        )
    row, column = (np.asarray(index)[pairs.data != 0] for index in pairs.coords)
    return _sorted([str(i) for i in range(shape[1])], row, column)


def _from_lists(lists: Mapping[str, Sequence[Any]], leaf_codes: np.ndarray) -> Entities:
    position = {code: i for i, code in enumerate(leaf_codes.tolist())}
    rows, columns = [], []
    for number, (name, codes) in enumerate(lists.items()):
        column = code_column(codes, f"entity {name!r}").tolist()
        unknown = [code for code in column if code not in position]
        if unknown:
            told = ", ".join(map(repr, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
            raise InvalidArgument(
                f"entity {name!r} has {len(unknown)} of its {len(column)} leaves outside the spine ({told}). Leaves go "
                f"by their codes, such as {leaf_codes[0]!r}; look for another vintage, or for lost leading zeros"
            )
        rows += [position[code] for code in column]
        columns += [number] * len(column)
    return _sorted(list(lists), np.array(rows, np.int64), np.array(columns, np.int64))


def _sorted(names: list[str], leaf: np.ndarray, entity: np.ndarray) -> Entities:
    width = max(len(names), 1)
    key = np.sort(leaf.astype(np.int64) * width + entity)  # much faster here than np.unique
    key = key[np.diff(key, prepend=-1) != 0]
    return Entities(tuple(map(str, names)), key // width, key % width)


@dataclass(eq=False)
class Distances:
    """Costs of one level's pairs of unit and entity, for the pairs that share a leaf.

    Args:
        key: shape (pairs,): unit * entities + entity, rising.
        inside: shape (pairs,): the sum of the children's ``add``.
        outside: shape (pairs,): the sum of the children's ``rest``.
        add: shape (pairs,): units to add and subtract for the entity's part of the unit.
        rest: shape (pairs,): the same for what the entity leaves of the unit.
    """

    key: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    add: np.ndarray
    rest: np.ndarray


def least(inside: np.ndarray, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations 22 and 23: each part from the children alone, or from the unit less the other part."""
    return np.minimum(inside, outside + 1), np.minimum(outside, inside + 1)


def distances(h: Hierarchy, entities: Entities, measured: Sequence[np.ndarray] | None) -> list[Distances]:
    """Costs of every level, from the leaves' up to the root's.

    A pair that shares no leaf costs nothing to add, and its complement costs the unit, so that only pairs that touch
    are kept. ``measured`` says for each level which units are on the spine (bypassed ones are not); all where None.
    """
    count = max(len(entities.names), 1)
    key = entities.leaf * count + entities.entity
    one = np.ones(key.size, np.int64)
    found = [Distances(key, one, 0 * one, one, 0 * one)]
    whole = np.ones(h.leaves, np.int64)  # what a unit of the level below costs
    for level in range(h.depth - 2, -1, -1):
        below, parent = found[-1], h.parents[level + 1]
        unit, entity = np.divmod(below.key, count)
        key, pair = np.unique(parent[unit] * count + entity, return_inverse=True)
        inside, outside, touched = (
            np.bincount(pair, weights, key.size).astype(np.int64)
            for weights in (below.add, below.rest, whole[unit])
        )
        every = np.bincount(parent, whole, len(h.codes[level])).astype(np.int64)
        outside += every[key // count] - touched
        on = np.ones(every.size, bool) if measured is None else measured[level]
        add, rest = (
            np.where(on[key // count], short, long)
            for short, long in zip(least(inside, outside), (inside, outside), strict=True)
        )
        whole = np.where(on, 1, every)
        found.append(Distances(key, inside, outside, add, rest))
    return found


def osed(h: Hierarchy, entities: Entities, measured: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Shape (entities,): the off-spine distance of each; see ``Spine.osed``."""
    root = distances(h, entities, measured)[-1]
    found = np.zeros(len(entities.names), np.int64)
    found[root.key] = root.add
    return found


def gather(h: Hierarchy, level: int, entities: Entities, fanout_cutoff: int) -> Hierarchy:
    """Tract groups: the units below ``level``, joined within each unit above it.

    Begins with one unit a group. A pair of groups is joined when the result has at most sqrt(n) + cutoff units (n:
    units below the common parent) and the distances of all entities, sorted from the largest, do not grow in
    lexicographic order. Passes over all pairs go on until none is joined.
    """
    parent = h.parents[level][h.parents[level + 1]]
    h = h.with_level(level, h.units[level + 1], h.codes[level + 1])
    found = {h.depth - 1 - i: d for i, d in enumerate(distances(h, entities, None))}
    count = max(len(entities.names), 1)
    families = [
        Siblings.of(np.flatnonzero(parent == above), above, h, level, found, count, fanout_cutoff)
        for above in range(len(h.codes[level - 1]))
    ]
    joined = True
    while joined:
        joined = sum(family.join(found, count) for family in families) > 0
    group, number, codes = np.empty(parent.size, np.int64), 0, []
    for family in families:
        for place, members in enumerate(family.groups):
            group[members] = number
            codes.append(f"{h.codes[level - 1][family.path[0]]}.{place + 1}")
            number += 1
    return h.with_level(level, group[h.units[level + 1]], np.array(codes, object))


@dataclass(eq=False)
class Siblings:
    """The units below one parent, in groups.

    Args:
        groups: the units of each group.
        most: how many units a group may hold.
        path: the parent, its parent, and so on to the root.
        entity: shape (k,): the entities that hold a part of the parent but not all of it.
        inside: for each group, shape (k,): the sum of its units' costs for the entity.
        outside: for each group, shape (k,): the same for the entities' complements.
    """

    groups: list[list[int]]
    most: int
    path: list[int]
    entity: np.ndarray
    inside: list[np.ndarray]
    outside: list[np.ndarray]
    level: int

    @classmethod
    def of(
        cls,
        units: np.ndarray,
        parent: int,
        h: Hierarchy,
        level: int,
        found: dict[int, Distances],
        count: int,
        fanout_cutoff: int,
    ) -> Siblings:
        path = [parent]
        for above in range(level - 1, 0, -1):
            path.append(int(h.parents[above][path[-1]]))
        own = found[level - 1]
        first, last = np.searchsorted(own.key, [parent * count, (parent + 1) * count])
        cut = (own.inside[first:last] > 0) & (own.outside[first:last] > 0)
        entity = own.key[first:last][cut] % count
        inside, outside = _costs(found[level + 1], units, entity, count)
        return cls(
            [[int(unit)] for unit in units],
            isqrt(units.size) + fanout_cutoff,
            path,
            entity,
            list(inside),
            list(outside),
            level - 1,
        )

    def join(self, found: dict[int, Distances], count: int) -> bool:
        """One pass over all pairs; whether any was joined. Costs of the parent and above are brought up to date."""
        route = _Route(self, found, count)
        joined, first = False, 0
        while first < len(self.groups):
            then = first + 1
            while (second := self._next(first, then, route)) is not None:
                route.move(*(change[0] for change in self._change(first, [second])))
                self._merge(first, second)
                joined, then = True, second
            first += 1
        route.settle(found)
        return joined

    def _next(self, first: int, then: int, route: _Route) -> int | None:
        """The first group from ``then`` on that may be joined to ``first``."""
        room = self.most - len(self.groups[first])
        others = [i for i in range(then, len(self.groups)) if len(self.groups[i]) <= room]
        start, size = 0, 8
        while start < len(others):  # the next is most often near
            some = others[start : start + size]
            allowed = route.no_worse(*self._change(first, some))
            if np.any(allowed):
                return some[int(np.argmax(allowed))]
            start, size = start + size, 2 * size
        return None

    def _change(self, first: int, others: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Shape (others, k), twice: what joining adds to the parent's sums."""
        inside, outside = (np.stack([rows[i] for i in others]) for rows in (self.inside, self.outside))
        alone = least(self.inside[first], self.outside[first])
        apart = least(inside, outside)
        both = least(inside + self.inside[first], outside + self.outside[first])
        return both[0] - apart[0] - alone[0], both[1] - apart[1] - alone[1]

    def _merge(self, first: int, second: int) -> None:
        self.groups[first] += self.groups.pop(second)
        self.inside[first] = self.inside[first] + self.inside.pop(second)
        self.outside[first] = self.outside[first] + self.outside.pop(second)


class _Route:
    """From the sums of one parent, entity by entity, to the distances at the root."""

    def __init__(self, family: Siblings, found: dict[int, Distances], count: int) -> None:
        self._levels = [
            (family.level - i, unit * count + family.entity) for i, unit in enumerate(family.path)
        ]
        self._places = [np.searchsorted(found[level].key, key) for level, key in self._levels]
        sums = [
            (found[level].inside[place], found[level].outside[place])
            for (level, _), place in zip(self._levels, self._places, strict=True)
        ]
        self._inside, self._outside = sums[0]
        # what the siblings of the path bring to each sum above
        self._siblings = []
        for below, above in pairwise(sums):
            add, rest = least(*below)
            self._siblings.append((above[0] - add, above[1] - rest))
        self._current = self._root(self._inside, self._outside)

    def _root(self, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        add, rest = least(inside, outside)
        for siblings in self._siblings:
            add, rest = least(siblings[0] + add, siblings[1] + rest)
        return add

    def no_worse(self, inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """Shape (changes,): whether the sorted distances after each change are no larger than now.

        Distances of entities that do not cut the parent stay as they are, and equal ones in both lists do not matter
        for their order.
        """
        after = self._root(self._inside + inside, self._outside + outside)
        allowed = np.all(after <= self._current, axis=1)
        mixed = np.flatnonzero(~allowed & np.any(after < self._current, axis=1))
        if not mixed.size:
            return allowed
        difference = np.sort(after[mixed], axis=1)[:, ::-1] - np.sort(self._current)[::-1]
        first = np.argmax(difference != 0, axis=1)
        allowed[mixed] = difference[np.arange(mixed.size), first] <= 0
        return allowed

    def move(self, inside: np.ndarray, outside: np.ndarray) -> None:
        self._inside, self._outside = self._inside + inside, self._outside + outside
        self._current = self._root(self._inside, self._outside)

    def settle(self, found: dict[int, Distances]) -> None:
        """Write the costs of the parent and of all above it."""
        inside, outside = self._inside, self._outside
        for i, ((level, _), place) in enumerate(zip(self._levels, self._places, strict=True)):
            add, rest = least(inside, outside)
            costs = found[level]
            costs.inside[place], costs.outside[place] = inside, outside
            costs.add[place], costs.rest[place] = add, rest
            if i < len(self._siblings):
                inside, outside = self._siblings[i][0] + add, self._siblings[i][1] + rest


def _costs(
    below: Distances, units: np.ndarray, entity: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Shape (units, k), twice: cost of each entity's part of each unit, and of what it leaves."""
    key = units[:, None] * count + entity
    place = np.minimum(np.searchsorted(below.key, key), max(below.key.size - 1, 0))
    there = below.key[place] == key
    return np.where(there, below.add[place], 0), np.where(there, below.rest[place], 1)


def optimise(
    h: Hierarchy, kinds: Sequence[Entities], fanout_cutoff: int, levels: Sequence[str] | None, rule: str
) -> Hierarchy:
    """Levels of groups, redefined from the bottom up; see ``Spine.optimise``."""
    if isinstance(fanout_cutoff, bool) or not isinstance(fanout_cutoff, int) or fanout_cutoff < 0:
        raise InvalidArgument(f"fanout_cutoff is a whole number, 0 or more, not {fanout_cutoff!r}")
    if rule not in RULES:
        raise InvalidArgument(f"rule is one of {', '.join(RULES)}, not {rule!r}")
    entities, filled = union(kinds), rule == "production"
    for level in sorted(_positions(h, levels), reverse=True):
        if level == h.depth - 2:
            h = groups_of_leaves(h, entities.membership(h.leaves), fanout_cutoff + filled, filled=filled)
        elif filled:
            h = cut(h, level, fanout_cutoff + 1)
        else:
            h = gather(h, level, entities, fanout_cutoff)
    return h


RULES = ("paper", "production")
"""Whose groups: of the paper, or of the code of the 2020 census."""


def cut(h: Hierarchy, level: int, more: int) -> Hierarchy:
    """The units below a level in groups of sqrt(n) + more, n being those of one parent, in the order of their codes."""
    parent = h.parents[level][h.parents[level + 1]]
    group, above = _runs(parent, np.zeros_like(parent), h.codes[level + 1], more, filled=True)
    return h.with_level(level, group[h.units[level + 1]], group_codes(h.codes[level - 1], above))


def _positions(h: Hierarchy, levels: Sequence[str] | None) -> list[int]:
    if h.depth < 3:
        raise InvalidArgument(
            "there is no level of groups between the root and the leaves to draw anew: name one in levels, and give it "
            "any codes, such as those of the level above it"
        )
    if levels is None:
        return [h.depth - 2]
    if isinstance(levels, str):
        raise InvalidArgument(f"levels is a list of level names, such as [{levels!r}]")
    between = h.levels[1:-1]
    for level in levels:
        if level not in between:
            raise InvalidArgument(
                f"{level!r} is not a level that can be drawn anew: those between the root and the leaves are "
                f"{', '.join(between)}"
            )
    return [h.levels.index(level) for level in levels]


def groups_of_leaves(h: Hierarchy, membership: np.ndarray, more: int, *, filled: bool) -> Hierarchy:
    """Optimised block groups: leaves of one parent and the same entities, in groups of at most sqrt(n) + more.

    n is the number of leaves of the parent. Groups follow the order of the leaves' codes.
    """
    level = h.depth - 2
    group, above = _runs(h.units[level - 1], membership, h.codes[-1], more, filled=filled)
    return h.with_level(level, group, group_codes(h.codes[level - 1], above))


def _runs(
    parent: np.ndarray, membership: np.ndarray, codes: np.ndarray, more: int, *, filled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Units of one parent and the same membership in runs of their codes' order, none longer than sqrt(n) + more.

    Args:
        filled: whether all runs of a kind but the last are as long as can be; or else differ by one unit at most.

    Returns:
        The run of each unit, and the parent of each run, rising.
    """
    kind = distinct_rows(np.stack([parent, membership], axis=1))[1]
    order = np.lexsort((numbered(codes).index, kind))
    size = np.bincount(kind)
    start = np.cumsum(size) - size
    kind_parent = np.empty(size.size, np.int64)
    kind_parent[kind] = parent
    most = np.array([isqrt(n) + more for n in np.bincount(parent).tolist()])[kind_parent]
    parts = -(-size // most)
    place = np.empty(parent.size, np.int64)  # of each unit among its kind
    place[order] = np.arange(parent.size) - start[kind[order]]
    part = place // most[kind] if filled else place * parts[kind] // size[kind]
    return (np.cumsum(parts) - parts)[kind] + part, np.repeat(kind_parent, parts)


def group_codes(codes: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Names for groups whose parents are given in rising order: the parent's code and a number."""
    number = np.arange(parents.size) - np.searchsorted(parents, parents) + 1
    return np.array([f"{codes[p]}.{n}" for p, n in zip(parents, number, strict=True)], object)
