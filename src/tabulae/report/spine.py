"""Pictures of the groups of one area: each leaf a square, coloured by entity, with the leaves of its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup

from ..products.areas.spine.spine import Spine

COLOURS = 6
"""So many entities have a colour of their own; the next ones share the last."""

_SQUARE, _HIGHEST, _WIDTH = 7, 12, 620  # pixels from leaf to leaf, leaves one above the other, pixels in all
_GROUP_GAP, _PARENT_GAP, _LINE_GAP = 4, 11, 9
_MARGIN = 6
_CROWDED = 1_500  # leaves of a map, above which squares are small


@dataclass(frozen=True, eq=False)
class GroupsStrip:
    """The groups of one area as blocks of squares, one after the other.

    Args:
        parent: shape (leaves,): the unit above each leaf's group; leaves of one parent are drawn together.
        group: shape (leaves,): the group of each leaf.
        colour: shape (leaves,): 0 for leaves in no entity, 1 .. ``COLOURS`` for the others.
        label: what the picture shows, for readers who cannot see it.
    """

    parent: np.ndarray
    group: np.ndarray
    colour: np.ndarray
    label: str

    def svg(self) -> Markup:
        """The picture as one element that scales with the page.

        >>> one = GroupsStrip(np.zeros(2, int), np.arange(2), np.array([0, 1]), "two leaves")
        >>> str(one.svg()).count('class="m')
        2
        """
        high = min(_HIGHEST, int(np.bincount(self.group).max()))
        paths: list[list[str]] = [[] for _ in range(COLOURS + 1)]
        line = high * _SQUARE + _LINE_GAP
        x = y = 0
        for begins, members in self._groups():
            columns = -(-members.size // high)
            x += (_PARENT_GAP if begins else _GROUP_GAP) if x else 0
            if x and x + columns * _SQUARE > _WIDTH:
                x, y = 0, y + line
            for i, colour in enumerate(np.sort(self.colour[members])[::-1].tolist()):
                column, row = divmod(i, high)
                paths[colour].append(_square(x + column * _SQUARE, y + row * _SQUARE))
            x += columns * _SQUARE
        return _element(paths, y + line - _LINE_GAP, self.label)

    def _groups(self) -> Iterator[tuple[bool, np.ndarray]]:
        order = np.lexsort([self.group, self.parent])
        starts = np.flatnonzero(np.diff(self.group[order], prepend=-1) != 0)
        last = -1
        for members in np.split(order, starts[1:]):
            parent = int(self.parent[members[0]])
            yield parent != last, members
            last = parent


@dataclass(frozen=True, eq=False)
class GroupsMap:
    """The groups of one area where they are: a line from each leaf to the middle of its group.

    Args:
        place: shape (leaves, 2): where each leaf is, x to the right and y upwards, in any unit.
        group, colour, label: as of ``GroupsStrip``.
    """

    place: np.ndarray
    group: np.ndarray
    colour: np.ndarray
    label: str

    def svg(self) -> Markup:
        """The picture as one element that scales with the page.

        >>> one = GroupsMap(np.array([[0.0, 0.0], [2.0, 1.0]]), np.zeros(2, int), np.array([0, 1]), "two leaves")
        >>> 'viewBox="0 0 620 316"' in str(one.svg())
        True
        """
        low, high = self.place.min(axis=0), self.place.max(axis=0)
        span = max(float((high - low)[0]), float((high - low)[1]), 1e-12)
        scaled = (self.place - low) / span * (_WIDTH - 2 * _MARGIN)
        height = float(scaled[:, 1].max())
        at = np.rint(np.stack([scaled[:, 0], height - scaled[:, 1]], axis=1) + _MARGIN).astype(int)
        middle = np.stack([np.bincount(self.group, weights=each) for each in at.T], axis=1)
        middle = np.rint(middle / np.maximum(np.bincount(self.group), 1)[:, None]).astype(int)
        lines = "".join(
            f"M{x} {y}L{mx} {my}" for (x, y), (mx, my) in zip(at, middle[self.group], strict=True)
        )
        paths: list[list[str]] = [[] for _ in range(COLOURS + 1)]
        side = 6 if len(at) <= _CROWDED else 3
        for (x, y), colour in zip(at.tolist(), self.colour.tolist(), strict=True):
            paths[colour].append(_square(x - side // 2, y - side // 2, side))
        return _element(paths, round(height) + 2 * _MARGIN, self.label, lines)


def _square(x: int, y: int, side: int = _SQUARE - 1) -> str:
    return f"M{x} {y}h{side}v{side}h-{side}z"


def _element(paths: list[list[str]], height: int, label: str, lines: str = "") -> Markup:
    drawn = f'<path class="ties" d="{lines}"/>' if lines else ""
    drawn += "".join(f'<path class="m{i}" d="{"".join(d)}"/>' for i, d in enumerate(paths) if d)
    opening = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{opening}{drawn}</svg>")  # noqa: S704  numbers made here, and the label, which is escaped


def colours_of(entity: Sequence[str | None]) -> tuple[np.ndarray, tuple[str, ...]]:
    """A colour for each leaf by its entity, the largest entities first, and the entities that have one by themselves.

    >>> colour, named = colours_of(["a", None, "b", "b"])
    >>> colour.tolist(), named
    ([2, 0, 1, 1], ('b', 'a'))
    """
    sizes: dict[str, int] = {}
    for one in entity:
        if one is not None:
            sizes[one] = sizes.get(one, 0) + 1
    ranked = sorted(sizes, key=lambda name: (-sizes[name], name))
    place = {name: min(i + 1, COLOURS) for i, name in enumerate(ranked)}
    own = ranked if len(ranked) <= COLOURS else ranked[: COLOURS - 1]
    return np.array([0 if one is None else place[one] for one in entity], np.int64), tuple(own)


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
