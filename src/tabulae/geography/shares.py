"""Which share of the budget each unit of a spine has, in exact fractions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument
from .distinct import distinct_rows
from .hierarchy import Hierarchy

Amount = Fraction | int | str


@dataclass(frozen=True, eq=False)
class Shares:
    """A share of the budget for every unit: few distinct ones, and which of them each unit has.

    Args:
        levels: names of the levels.
        values: the distinct shares.
        index: for each level, shape (units,): the position in ``values`` of each unit's share.
    """

    levels: tuple[str, ...]
    values: tuple[Fraction, ...]
    index: tuple[np.ndarray, ...]

    def __getitem__(self, level: str) -> list[Fraction]:
        """The shares of a level's units, in their order; 0 where a unit is not measured."""
        if level not in self.levels:
            raise InvalidArgument(f"{level!r} is no level of this spine: {', '.join(self.levels)}")
        return [self.values[i] for i in self.index[self.levels.index(level)]]

    def floats(self, level: str) -> np.ndarray:
        """Shape (units,): the shares of a level's units, rounded."""
        if level not in self.levels:
            raise InvalidArgument(f"{level!r} is no level of this spine: {', '.join(self.levels)}")
        return np.array([float(v) for v in self.values])[self.index[self.levels.index(level)]]

    @property
    def measured(self) -> tuple[np.ndarray, ...]:
        """For each level, shape (units,): which units have a share."""
        positive = np.array([value > 0 for value in self.values])
        return tuple(positive[index] for index in self.index)

    def path_sums(self, h: Hierarchy) -> set[Fraction]:
        """The distinct sums of shares from the root to a leaf: 1 alone.

        Privacy:
            A record lies in one leaf, so it is counted once in each unit on the leaf's path and nowhere else. Where the
            sums are 1, measuring every unit with its share of a budget costs the budget (Theorem 3).
        """
        paths = [index[unit] for index, unit in zip(self.index, h.units, strict=True)]
        kinds, _ = distinct_rows(np.stack(paths, axis=1))
        return {sum((self.values[i] for i in kind), Fraction(0)) for kind in kinds.tolist()}


def read_shares(h: Hierarchy, shares: Mapping[str, Amount]) -> Shares:
    """The same share for all units of a level.

    Raises:
        InvalidArgument: a level without a share, a share that is no exact number or below 0, or a sum that is not 1.
    """
    unknown = [name for name in shares if name not in h.levels]
    absent = [name for name in h.levels if name not in shares]
    if unknown or absent:
        told = [f"{unknown[0]!r} is no level of this spine"] if unknown else []
        told += [f"level {absent[0]!r} has no share"] if absent else []
        raise InvalidArgument(f"{' and '.join(told)}; its levels are {', '.join(h.levels)}")
    given = [_exact(name, shares[name]) for name in h.levels]
    if sum(given) != 1:
        raise InvalidArgument(
            f"the shares add up to {sum(given)}, not 1: {', '.join(f'{k} {v}' for k, v in shares.items())}. Write them "
            "as fractions of one number, such as '1440/4099'"
        )
    if not given[-1]:
        raise InvalidArgument(
            f"level {h.levels[-1]!r} has share 0: leaves need a share, or nothing tells them apart"
        )
    values = tuple(sorted({Fraction(0), *given}))
    index = [
        np.full(len(codes), values.index(share), np.int64)
        for codes, share in zip(h.codes, given, strict=True)
    ]
    return Shares(h.levels, values, tuple(index))


def _exact(name: str, share: Amount) -> Fraction:
    if isinstance(share, bool) or not isinstance(share, Fraction | int | str):
        raise InvalidArgument(
            f"the share of {name!r} is {share!r}: write a fraction in quotes, such as '1/3'. Floating-point shares do "
            "not add up to exactly 1"
        )
    try:
        found = Fraction(share)
    except (ValueError, ZeroDivisionError):
        raise InvalidArgument(
            f"the share of {name!r} is {share!r}, which is no fraction such as '1/3'"
        ) from None
    if found < 0:
        raise InvalidArgument(f"the share of {name!r} is {found}: shares are 0 or more")
    return found


class Shifting:
    """Shares while they are moved between units: a table of values that grows by sums."""

    def __init__(self, shares: Shares) -> None:
        self._levels = shares.levels
        self.values = list(shares.values)
        self._place = {value: i for i, value in enumerate(self.values)}
        self.index = [index.copy() for index in shares.index]

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Positions of the sums of the shares at two arrays of positions."""
        width = len(self.values)
        unique, place = np.unique(left * width + right, return_inverse=True)
        sums = [
            self._number(self.values[pair // width] + self.values[pair % width]) for pair in unique.tolist()
        ]
        return np.array(sums, np.int64)[place]

    def _number(self, value: Fraction) -> int:
        if value not in self._place:
            self._place[value] = len(self.values)
            self.values.append(value)
        return self._place[value]

    def done(self) -> Shares:
        """The shares as they are now."""
        return Shares(self._levels, tuple(self.values), tuple(self.index))
