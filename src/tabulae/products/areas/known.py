"""What limits and exact counts say of the counts of any area, without noise: how small and how large they can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .constraints import NO_LIMIT, AreaConstraints
from .descent.limits import FREE
from .layout import Margin

_ENDLESS = 1e18  # an upper limit that is none, as floating point adds it up


@dataclass(frozen=True, eq=False)
class CountLimits:
    """Lower and upper limits of some areas, (areas, J) each, on groups of dense cells; ``label`` (D,) is the group."""

    label: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def of_margin(self, margin: Margin) -> tuple[np.ndarray, np.ndarray]:
        """Limits of a margin's dense classes, (areas, classes): of groups within a class, and of those that it touches.

        Any part of what a group counts is at least 0, and at most all of it.
        """
        shared = np.zeros((self.lower.shape[1], margin.classes))
        np.add.at(shared, (self.label, margin.label), 1)
        whole = shared == shared.sum(axis=1, keepdims=True)
        least, most = self.lower @ (whole & (shared > 0)), self.upper @ (shared > 0)
        least = least if margin.inner == 1 else np.zeros_like(least)
        return least, np.where(most >= _ENDLESS, np.inf, most)


@dataclass(frozen=True, eq=False)
class KnownLimits:
    """Limits on leaves, from public files, and exact counts of units: valid for the true counts of every area.

    Args:
        units: for each level with exact counts the unit of each leaf, -1 where it is in none.
        exact: the exact counts, one array (units, groups) a margin of the constraints; ``FREE`` where one is not.
    """

    units: Mapping[str, np.ndarray]
    constraints: AreaConstraints
    exact: Sequence[np.ndarray]

    @cached_property
    def _leaves(self) -> tuple[np.ndarray, ...]:
        """How many leaves each unit has, a margin each."""
        every = (self.units[margin.level] for margin in self.constraints.exact)
        return tuple(np.bincount(unit[unit >= 0], minlength=1) for unit in every)

    def of_areas(self, leaves: np.ndarray, owner: np.ndarray, areas: int) -> Iterator[CountLimits]:
        """Limits of areas that do not overlap; leaf ``leaves[i]`` is in area ``owner[i]``.

        An area has no fewer people than the units that lie in it, and no more than those that it touches.
        """
        known = self.constraints
        if known.lower.any() or (known.upper < NO_LIMIT).any():
            upper = np.where(known.upper < NO_LIMIT, known.upper, _ENDLESS)
            ends = (_added(part[leaves].astype(float), owner, areas) for part in (known.lower, upper))
            yield CountLimits(known.part, *ends)
        for margin, counts, size in zip(known.exact, self.exact, self._leaves, strict=True):
            unit = self.units[margin.level][leaves]
            beyond = np.zeros(areas, bool)
            beyond[owner[unit < 0]] = True  # who is in no unit is counted by none
            owner_of, unit = owner[unit >= 0], unit[unit >= 0]
            pairs, shared = np.unique(owner_of * np.int64(size.size) + unit, return_counts=True)
            area, unit = np.divmod(pairs, size.size)
            within, values = (shared == size[unit])[:, None], counts[unit]
            lower = _added(np.where(within & (values != FREE), values, 0.0), area, areas)
            upper = _added(np.where(values != FREE, values, _ENDLESS), area, areas)
            yield CountLimits(margin.margin.label, lower, np.where(beyond[:, None], _ENDLESS, upper))


def _added(numbers: np.ndarray, owner: np.ndarray, areas: int) -> np.ndarray:
    found = np.zeros((areas, numbers.shape[1]))
    np.add.at(found, owner, numbers)
    return found


def margin_limits(
    known: Sequence[CountLimits], margin: Margin
) -> tuple[np.ndarray, np.ndarray] | tuple[float, float]:
    """The tightest of these limits on a margin, (areas, classes, 1) each; from 0 on where there is none.

    Where limits and exact counts contradict each other, which "gls" takes, one of them is false: none is used.
    """
    if not known:
        return 0.0, np.inf
    lower, upper = zip(*(each.of_margin(margin) for each in known), strict=True)
    least, most = np.maximum.reduce(lower), np.minimum.reduce(upper)
    false = least > most
    return np.where(false, 0.0, least)[:, :, None], np.where(false, np.inf, most)[:, :, None]
