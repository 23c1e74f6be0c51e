"""What is known of areas besides noise: counts that are exact, and limits from public files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..errors import InvalidArgument
from .layout import Layout, Margin
from .spine_plan import SpinePlan

NO_LIMIT = 2**62
"""An upper limit that is none."""


@dataclass(frozen=True, eq=False)
class ExactMargin:
    """A marginal over dense attributes whose counts are exact for every unit of a level, and so for those above it.

    Args:
        level: name of a level of the spine.
        margin: over dense attributes alone.
        reason: why it may be exact, as published.
    """

    level: str
    margin: Margin
    reason: str = ""


@dataclass(frozen=True, eq=False)
class AreaConstraints:
    """Limits that estimates of counts meet exactly, all from public files, and the margins that are exact.

    Args:
        layout: of the cells.
        part: shape (D,): the part 0 .. J-1 of each dense cell: the finest margin that a bound or exact count is about.
        part_names: what messages call each part.
        lower, upper: shape (leaves, J), int64, by leaf of the spine; ``NO_LIMIT`` where there is none.
        exact: the margins that are exact; each a coarsening of the parts.

    >>> from tabulae.domain import Domain
    >>> layout = Layout.of(Domain({"type": 3, "age": 2}), ["type"])
    >>> free = np.full((4, 3), NO_LIMIT)
    >>> margins = (ExactMargin("county", layout.margin([])), ExactMargin("root", layout.margin(["type"])))
    >>> constraints = AreaConstraints(layout, np.arange(3), ("a", "b", "c"), 0 * free, free, margins)
    >>> [groups.tolist() for groups in constraints.groups]
    [[0, 0, 0], [0, 1, 2]]
    """

    layout: Layout
    part: np.ndarray
    part_names: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    exact: tuple[ExactMargin, ...] = ()

    @cached_property
    def groups(self) -> tuple[np.ndarray, ...]:
        """For each exact margin, shape (J,): the parts that it adds up, numbered from 0.

        Raises:
            InvalidArgument: a margin that is not a coarsening of the parts.
        """
        return tuple(self._groups(margin.margin) for margin in self.exact)

    def _groups(self, margin: Margin) -> np.ndarray:
        first = np.unique(self.part, return_index=True)[1]
        found = np.zeros(len(self.part_names), np.int64)
        found[self.part[first]] = np.unique(margin.label[first], return_inverse=True)[1]
        by_part = margin.label[first][np.searchsorted(self.part[first], self.part)]
        if (margin.label != by_part).any():
            raise InvalidArgument(
                f"exact counts of {margin.name!r} cut across the parts that limits are on: bounds and exact counts "
                "must each be a coarsening of the next finer one. Bound the same attributes, or use estimate = 'gls'"
            )
        return found

    def finest(self, plan: SpinePlan) -> np.ndarray:
        """Shape (nodes,): position of the finest exact margin of each node of the plan's tree; -1 where it has none.

        A margin that is exact at a level is exact for every node that is a union of units of that level. Children of
        one node have the same exact margins.

        Raises:
            InvalidArgument: margins that cut across each other, or a unit that is no node.
        """
        found = np.full(plan.tree.size, -1, np.int64)
        for m in sorted(range(len(self.exact)), key=lambda m: int(self.groups[m].max())):
            above = np.zeros(plan.tree.size, bool)
            above[nodes_of_units(plan, self.exact[m].level)] = True
            for nodes in reversed(plan.depths[1:]):
                np.logical_or.at(above, plan.tree.parent[nodes], above[nodes])
            found[above] = m
        return found

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
        for exact in self.exact:
            if exact.margin.inner > 1:
                raise InvalidArgument(
                    f"exact counts of {exact.margin.name!r}: the layout holds one of its attributes symmetric; make it "
                    "dense"
                )
            nodes_of_units(plan, exact.level)
        if method == "gls":
            return
        from .feasible import check_feasible

        self._check_chain()
        self._check_leaves(plan)
        check_feasible(plan, self)

    def _check_chain(self) -> None:
        order = sorted(range(len(self.exact)), key=lambda m: int(self.groups[m].max()))
        for coarse, fine in pairwise(order):
            pairs = np.unique(np.stack([self.groups[fine], self.groups[coarse]]), axis=1)
            if pairs.shape[1] > self.groups[fine].max() + 1:
                a, b = self.exact[coarse], self.exact[fine]
                raise InvalidArgument(
                    f"exact counts of {a.margin.name!r} ({a.level}) and of {b.margin.name!r} ({b.level}) cut across "
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


def supported_parts(constraints: AreaConstraints, support: np.ndarray) -> np.ndarray:
    """Shape (..., J): whether some dense cell of each part lies in supports of shape (..., D)."""
    found = np.zeros((len(constraints.part_names), constraints.layout.size), np.int64)
    found[constraints.part, np.arange(constraints.part.size)] = 1
    return support.astype(np.int64) @ found.T > 0


def nodes_of_units(plan: SpinePlan, level: str) -> np.ndarray:
    """Shape (units,): for each unit of a level the deepest node of the plan's tree that is the same area.

    Raises:
        InvalidArgument: no such level, or a unit that is no node: it has no share of the budget.
    """
    h, tree = plan.spine.hierarchy, plan.tree
    if level not in h.levels:
        raise InvalidArgument(f"{level!r} is no level of this spine: {', '.join(h.levels)}")
    unit = h.units[h.levels.index(level)]
    size, leaf = np.zeros(tree.size, np.int64), np.full(tree.size, h.leaves)
    np.add.at(size, tree.leaf, 1)
    np.minimum.at(leaf, tree.leaf, np.arange(h.leaves))
    for nodes in reversed(plan.depths[1:]):
        np.add.at(size, tree.parent[nodes], size[nodes])
        np.minimum.at(leaf, tree.parent[nodes], leaf[nodes])
    of = unit[leaf]  # areas nest: with a leaf in common and one size they are one area
    same = np.flatnonzero(size == np.bincount(unit)[of])
    found = np.full(int(unit.max()) + 1, -1, np.int64)
    np.maximum.at(found, of[same], same)
    if (found < 0).any():
        code = h.codes[h.levels.index(level)][int(np.argmin(found))]
        raise InvalidArgument(
            f"counts of level {level!r} cannot be exact: {level} {code!s} is not on the spine, because its share of "
            "the budget went to other levels. Give the level a share and set bypass = 'off', or make counts of another "
            "level exact"
        )
    return found
