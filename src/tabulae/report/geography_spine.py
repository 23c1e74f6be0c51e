"""What a spine looks like before and after it was drawn anew: units, fan-out, and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..products.areas.spine.spine import Spine
from .geography_picture import (
    GroupsMap,
    GroupsStrip,
    colours_of,
)

_MOST_DRAWN = 6_000


@dataclass(frozen=True)
class Fan:
    """One level of a spine: how many units are measured, and how many measured units lie directly within one.

    ``mean`` and ``most`` are None for leaves, and where no unit is divided.
    """

    units: int
    mean: float | None
    most: int | None


@dataclass(frozen=True)
class FanRow:
    """One level: its share of the budget, and what it is in the file and as it was measured; None where it is not."""

    name: str
    share: str
    given: Fan | None
    measured: Fan


@dataclass(frozen=True)
class Drawing:
    """The groups of one area, in the file and as measured, and what their colours say."""

    area: str
    group: str
    within: str
    leaves: int
    entity: str
    named: tuple[str, ...]
    others: bool
    is_map: bool
    given: GroupsStrip | GroupsMap
    measured: GroupsStrip | GroupsMap


def fan_rows(given: Spine, measured: Spine, shares: Mapping[str, str]) -> Iterator[FanRow]:
    """The levels of a measured spine, beside the one of the file.

    Args:
        given: the spine of the file, without shares.
        measured: the spine as it was measured.
        shares: level -> its share of the budget, as written.
    """
    before, after = fans(given), fans(measured)
    for name in measured.levels:
        yield FanRow(name, shares.get(name, "0"), before.get(name), after[name])


def fans(spine: Spine) -> dict[str, Fan]:
    """Units and fan-out of each level, over the units that are measured and the root."""
    tree = spine.tree
    children = np.bincount(tree.parent[1:], minlength=tree.size)
    found = {}
    for i, name in enumerate(spine.levels):
        here = children[tree.level == i]
        divided = here[here > 0]
        mean, most = (float(divided.mean()), int(divided.max())) if divided.size else (None, None)
        found[name] = Fan(int(here.size), mean, most)
    return found


def drawing_of(
    given: Spine, measured: Spine, entities: Mapping[str, np.ndarray], place: np.ndarray | None
) -> Drawing | None:
    """The groups of one area that has many leaves, but not too many to draw; None for a spine without groups.

    Args:
        given, measured: the spine of the file, and as it was measured, over the same leaves.
        entities: type -> the entity of each leaf, None where it is in none; those of the first have a colour each.
        place: shape (leaves, 2): where each leaf is on a map; None where that is not known.
    """
    levels = measured.levels
    if len(levels) < 3:
        return None
    group, parent = levels[-2], levels[-3]
    chosen = next((found for name in given.levels[:-2] if (found := _largest(given, name)) is not None), None)
    if chosen is None:
        return None
    level, unit = chosen
    leaves = np.flatnonzero(given.units[level] == unit)
    leaves = leaves[np.argsort(measured.codes[levels[-1]][leaves].astype(str), kind="stable")]
    entity, codes = next(iter(entities.items()), ("", np.full(measured.leaves, None)))
    colour, named = colours_of(codes[leaves].tolist())
    if not entity:
        colour = measured.units[group][leaves] % 2 + 1

    def picture(spine: Spine, told: str) -> GroupsStrip | GroupsMap:
        order = _ranked(spine.units[group][leaves])
        label = f"{told}: every square a {levels[-1]} of {level} {given.codes[level][unit]}, by {group}."
        if place is not None:
            return GroupsMap(place[leaves], order, colour, label)
        return GroupsStrip(_ranked(spine.units[parent][leaves]), order, colour, label)

    return Drawing(
        area=f"{level} {given.codes[level][unit]}",
        group=group,
        within=parent,
        leaves=leaves.size,
        entity=entity,
        named=named,
        is_map=place is not None,
        others=len(set(colour.tolist()) - {0}) > len(named),
        given=picture(given, "In the file"),
        measured=picture(measured, "As measured"),
    )


def _ranked(units: np.ndarray) -> np.ndarray:
    """Units by where they first stand, 0, 1, ..."""
    _, first, index = np.unique(units, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first, kind="stable"), kind="stable")[index.reshape(-1)]


def _largest(spine: Spine, level: str) -> tuple[str, int] | None:
    """The unit of a level with the most leaves among those that can be drawn and have more than one group."""
    units, group = spine.units[level], spine.units[spine.levels[-2]]
    sizes = np.bincount(units, minlength=spine.codes[level].size)
    groups = np.bincount(_owners(units, group), minlength=sizes.size)
    fits = np.where((sizes <= _MOST_DRAWN) & (groups > 1), sizes, 0)
    return (level, int(np.argmax(fits))) if fits.any() else None


def _owners(upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """The upper unit of each distinct lower one."""
    _, first = np.unique(lower, return_index=True)
    return upper[first]
