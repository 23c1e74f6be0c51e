"""Areas: sets of leaves that no level tells apart, so that records may be counted by area first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..adaptive import AdaptivePlan
from ..domain.regions import Regions

_MOST_KEYS = 2**62


@dataclass(frozen=True, eq=False)
class Areas:
    """The areas of a plan, numbered by their first leaf: leaves in the order of geography keep regions together.

    Args:
        of_leaf: shape (leaves,): the area of each leaf.
        regions: for each level, shape (areas,): the region that each area lies in, or -1.
    """

    of_leaf: np.ndarray
    regions: tuple[np.ndarray, ...]

    @property
    def size(self) -> int:
        """The number of areas."""
        return int(self.of_leaf.max(initial=-1)) + 1


def areas_of(plan: AdaptivePlan) -> Areas:
    """The coarsest areas of which every region of every level is made.

    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from tabulae.adaptive import PopulationLevel
    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.domain.groups import Family, GroupMap
    >>> from tabulae.domain.ladder import Ladder
    >>> groups = GroupMap((Family("race", ("10",)),), (), []).at("1", "state")
    >>> state = Regions("state", ("a", "b"), np.array([0, 0, 1, -1]))
    >>> level = PopulationLevel(state, "1", groups, Ladder.of({}, []), (), ZCDP(1), Fraction(1, 10))
    >>> areas = areas_of(AdaptivePlan((level,)))
    >>> areas.of_leaf.tolist(), [regions.tolist() for regions in areas.regions]
    ([0, 0, 1, 2], [[0, 1, -1]])
    """
    types = list({id(level.regions.of_leaf): level.regions for level in plan.levels}.values())
    first, of_leaf = _told_apart(types, plan.levels[0].regions.of_leaf.size)
    return Areas(of_leaf, tuple(level.regions.of_leaf[first] for level in plan.levels))


def _told_apart(types: list[Regions], leaves: int) -> tuple[np.ndarray, np.ndarray]:
    """The first leaf of each area, and the area of each leaf."""
    key, keys = np.zeros(leaves, np.int64), 1
    for regions in types:
        if keys * (regions.size + 1) > _MOST_KEYS:
            distinct, key = np.unique(key, return_inverse=True)
            keys = max(1, distinct.size)
        key = key * (regions.size + 1) + regions.of_leaf + 1
        keys *= regions.size + 1
    _, first, of_key = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return first[order], rank[of_key]
