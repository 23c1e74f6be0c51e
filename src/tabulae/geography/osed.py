"""Algorithm 1: how many units of a spine must be added and subtracted to get an entity.

Reference: Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System" (2023), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .entities import Entities
from .hierarchy import Hierarchy


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
