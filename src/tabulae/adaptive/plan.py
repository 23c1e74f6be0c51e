"""All levels of an adaptive tabulation, and what they cost one record together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..errors import InvalidArgument
from ..privacy import ZCDP, PureDP
from .level import PopulationLevel


@dataclass(frozen=True, eq=False)
class AdaptivePlan:
    """Levels over one public geography, under one promise.

    Args:
        levels: at least one; all with the same kind of budget, neighbours, rows per unit and number of leaves.
        unit: what one neighbour differs by.

    Raises:
        InvalidArgument: levels that do not belong together.

    Privacy:
        Satisfies ``loss``. A record lies in one leaf, and only the levels whose region type covers that leaf count it:
        its loss is the sum of their budgets (sequential composition), and the release's is the largest such sum over
        the leaves. So populations that no region type shares, such as two separate countries, compose in parallel.
        Under "replace" a unit leaves one leaf and another arrives in a second: each costs half of what its levels
        have, noise being sized for both, so that the largest sum bounds this, too.
    """

    levels: tuple[PopulationLevel, ...]
    unit: str = "person"

    def __post_init__(self) -> None:
        if not self.levels:
            raise InvalidArgument("an adaptive plan needs at least one level with a budget")
        for what, kinds in (
            ("kind of budget", {type(level.budget) for level in self.levels}),
            ("neighbours", {level.neighbours for level in self.levels}),
            ("rows per unit", {level.rows_per_unit for level in self.levels}),
            ("geography", {level.regions.of_leaf.size for level in self.levels}),
        ):
            if len(kinds) > 1:
                raise InvalidArgument(f"the levels of one plan have one {what}, not {len(kinds)}")
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise InvalidArgument("a level is named twice")

    @property
    def neighbours(self) -> str:
        """The relation that the promise is under."""
        return self.levels[0].neighbours

    @cached_property
    def patterns(self) -> tuple[tuple[int, ...], ...]:
        """Which levels count a record, for each kind of leaf there is."""
        kind = np.zeros(self.levels[0].regions.of_leaf.size, np.int64)
        for regions in {id(level.regions): level.regions for level in self.levels}.values():
            _, kind = np.unique(2 * kind + regions.covers, return_inverse=True)
        _, example = np.unique(kind, return_index=True)
        return tuple(
            tuple(i for i, level in enumerate(self.levels) if level.regions.covers[leaf]) for leaf in example
        )

    @cached_property
    def loss(self) -> PureDP | ZCDP:
        """What the whole tabulation costs: see the class."""
        budgets = [level.budget.amount for level in self.levels]
        most = max(sum((budgets[i] for i in pattern), Fraction(0)) for pattern in self.patterns)
        if not most:
            raise InvalidArgument("no leaf of the geography lies in any region: nothing would be counted")
        return type(self.levels[0].budget)(most)
