"""Algorithm 2: groups drawn anew so that off-spine entities come closer to the spine.

Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System" (2023), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np

from ..errors import InvalidArgument
from .entities import Entities, union
from .gather import gather
from .hierarchy import Hierarchy


def optimise(
    h: Hierarchy, kinds: Sequence[Entities], fanout_cutoff: int, levels: Sequence[str] | None
) -> Hierarchy:
    """Levels of groups, redefined from the bottom up; see ``Spine.optimise``."""
    if isinstance(fanout_cutoff, bool) or not isinstance(fanout_cutoff, int) or fanout_cutoff < 0:
        raise InvalidArgument(f"fanout_cutoff is a whole number, 0 or more, not {fanout_cutoff!r}")
    entities = union(kinds)
    for level in sorted(_positions(h, levels), reverse=True):
        if level == h.depth - 2:
            h = groups_of_leaves(h, entities.membership(h.leaves), fanout_cutoff)
        else:
            h = gather(h, level, entities, fanout_cutoff)
    return h


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
                f"{level!r} is no level that can be drawn anew: those between the root and the leaves are "
                f"{', '.join(between)}"
            )
    return [h.levels.index(level) for level in levels]


def groups_of_leaves(h: Hierarchy, membership: np.ndarray, fanout_cutoff: int) -> Hierarchy:
    """Optimised block groups: leaves of one parent and the same entities, in groups of at most sqrt(n) + cutoff.

    n is the number of leaves of the parent. Groups of the same kind differ in size by one leaf at most, and follow the
    order of the leaves' codes.
    """
    level = h.depth - 2
    parent = h.units[level - 1]
    _, kind = np.unique(np.stack([parent, membership]), axis=1, return_inverse=True)
    order = np.lexsort((h.codes[-1].astype(str), kind))
    size = np.bincount(kind)
    start = np.cumsum(size) - size
    most = np.array([isqrt(n) + fanout_cutoff for n in np.bincount(parent).tolist()])
    kind_parent = np.empty(size.size, np.int64)
    kind_parent[kind] = parent
    parts = -(-size // most[kind_parent])
    place = np.empty(h.leaves, np.int64)  # of each leaf among its kind
    place[order] = np.arange(h.leaves) - start[kind[order]]
    part = place * parts[kind] // size[kind]
    group = (np.cumsum(parts) - parts)[kind] + part
    return h.with_level(level, group, group_codes(h.codes[level - 1], np.repeat(kind_parent, parts)))


def group_codes(codes: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Names for groups whose parents are given in rising order: the parent's code and a number."""
    number = np.arange(parents.size) - np.searchsorted(parents, parents) + 1
    return np.array([f"{codes[p]}.{n}" for p, n in zip(parents, number, strict=True)], object)
