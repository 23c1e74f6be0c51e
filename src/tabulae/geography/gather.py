"""The greedy half of Algorithm 2: siblings joined into groups while no sorted list of distances gets worse.

Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System" (2023), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

import numpy as np

from .entities import Entities
from .hierarchy import Hierarchy
from .osed import (
    Distances,
    distances,
    least,
)


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
        Family.of(np.flatnonzero(parent == above), above, h, level, found, count, fanout_cutoff)
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
class Family:
    """The units below one parent, in groups.

    Args:
        groups: the units of each group.
        most: how many units a group may hold.
        path: the parent, its parent, and so on to the root.
        entity: shape (k,): the entities that hold a part of the parent but not all of it.
        inside: for each group, shape (k,): the sum of its units' costs for the entity.
        outside: for each group, shape (k,): the same for the entities' complements.
        level: the level of the parent.
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
    ) -> Family:
        """Groups of one unit each."""
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

    def __init__(self, family: Family, found: dict[int, Distances], count: int) -> None:
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
        """Make a change."""
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
