"""Areas within areas: the levels of a geography, and the unit of each level that every leaf lies in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A rooted tree of units in levels, all leaves on the last one.

    A branch that ends early, or leaves a level out, is written with units of one child: the same area stands at
    several levels.

    Args:
        levels: names, from the root's level to the leaves'.
        codes: for each level, shape (units,): names of its units.
        units: for each level, shape (leaves,): the unit that each leaf lies in. All 0 for the root; each leaf itself
            on the last level.
    """

    levels: tuple[str, ...]
    codes: tuple[np.ndarray, ...]
    units: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        for array in (*self.codes, *self.units):
            array.setflags(write=False)

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.levels)

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return self.units[-1].size

    @cached_property
    def parents(self) -> tuple[np.ndarray, ...]:
        """For each level, shape (units,): the unit of the level above that each lies in; -1 for the root."""
        found = [np.array([-1])]
        for above, below, codes in zip(self.units, self.units[1:], self.codes[1:], strict=False):
            parent = np.empty(len(codes), np.int64)
            parent[below] = above
            found.append(parent)
        return tuple(found)

    def with_level(self, level: int, units: np.ndarray, codes: np.ndarray) -> Hierarchy:
        """The same hierarchy with one level defined anew, between the levels above and below it."""
        every, names = list(self.units), list(self.codes)
        every[level], names[level] = units, codes
        return replace(self, units=tuple(every), codes=tuple(names))
