"""One population group level: a region type crossed with a level of groups, with a budget of its own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..domain.group_stability import Stability, group_stability
from ..domain.groups import GroupSelection
from ..domain.ladder import Ladder
from ..domain.regions import Regions
from ..errors import InvalidArgument
from ..privacy import (
    ZCDP,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    PureDP,
)
from ..privacy.definitions import check_neighbours

TOTAL_ONLY = -1
"""The rung of a group that gets one count at the full budget."""

TOTAL = 0
"""The rung of a group that is too small for any table: its second stage is its total."""

_MOST_TABLES = 100  # rungs are kept in 8 bits
_FAR = 2**62


@dataclass(frozen=True, eq=False)
class PopulationLevel:
    """What is tabulated of one region type and one level of groups, and at what cost.

    Each group is counted with a share ``stage_one`` of the budget. As many thresholds as this noisy count reaches, so
    high on the ladder is the table that is measured with the rest. Groups that are ``total_only`` get one count.

    One unit's arrival or departure moves at most ``stability`` counts of a stage by one for each of its rows, so that
    with s that number, k the rows of a unit and m the share of a stage, each count has noise

        zCDP      discrete Gaussian of variance s k^2 / (2 m rho)
        pure DP   discrete Laplace of scale s k / (m epsilon)

    and under "replace" twice as much: one unit leaves and another arrives.

    Args:
        regions, group_level, groups: what is tabulated; ``groups`` are those of this level and region type.
        ladder: the tables, coarsest first.
        thresholds: one a table, not falling.
        budget: pure or zero-concentrated, for this level.
        stage_one: between 0 and 1.
        neighbours: "add-remove" or "replace".
        rows_per_unit: the most records of one unit.
        stability: at least the proven one, which is taken where it is None.

    Raises:
        InvalidArgument: arguments that do not fit each other, or a stability that is not proven to be a bound.

    Privacy:
        The level satisfies ``budget``: each of the two stages is a set of counts over subsets of the records, of which
        one record is in at most s (generalised parallel composition: Haney et al., Lemmas 9, 10 and 12), and the
        stages compose adaptively (Lemmas 1 and 2; Theorems 1 and 3).
    """

    regions: Regions
    group_level: str
    groups: GroupSelection
    ladder: Ladder
    thresholds: tuple[int, ...]
    budget: PureDP | ZCDP
    stage_one: Fraction
    neighbours: str = "add-remove"
    rows_per_unit: int = 1
    stability: int | None = None

    def __post_init__(self) -> None:
        check_neighbours(self.neighbours)
        if self.neighbours not in ("add-remove", "replace"):
            raise InvalidArgument('groups are tabulated under "add-remove" or "replace"')
        if not isinstance(self.budget, PureDP | ZCDP):
            raise InvalidArgument("the budget of a level is pure or zero-concentrated: PureDP or ZCDP")
        if not 0 < self.stage_one < 1:
            raise InvalidArgument(f"stage_one is {self.stage_one}; it must be between 0 and 1, ends excluded")
        if len(self.thresholds) != len(self.ladder.rungs):
            raise InvalidArgument(
                f"{self.name}: {len(self.thresholds)} thresholds for {len(self.ladder.rungs)} tables; give one for each"
            )
        if len(self.thresholds) > _MOST_TABLES:
            raise InvalidArgument(
                f"{self.name}: a ladder has {_MOST_TABLES} tables at most, beside the total"
            )
        if any(abs(threshold) >= _FAR for threshold in self.thresholds):
            raise InvalidArgument(
                f"{self.name}: thresholds are counts, and must be below 2^62: {self.thresholds}"
            )
        if any(a > b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False)):
            raise InvalidArgument(f"{self.name}: thresholds must not fall: {self.thresholds}")
        if self.rows_per_unit < 1:
            raise InvalidArgument(f"rows_per_unit is {self.rows_per_unit}; it must be 1 or more")
        if self.stability is not None and self.stability < self.proven.value:
            raise InvalidArgument(
                f"{self.name}: stability {self.stability} is not a bound, since a record may belong to "
                f"{self.proven.value} of its groups. Leave it out, and the proven one is taken"
            )

    @property
    def name(self) -> str:
        """What messages and files call the level."""
        return f"{self.regions.name}, level {self.group_level}"

    @cached_property
    def proven(self) -> Stability:
        """The most groups of this level that one record can belong to, proven from the public map."""
        return group_stability(self.groups)

    @cached_property
    def groups_of_a_record(self) -> int:
        """The stability that the noise is sized for."""
        return max(1, self.proven.value if self.stability is None else self.stability)

    def law(self, share: Fraction) -> NoiseLaw:
        """The noise of one count that has this share of the budget."""
        units = 2 if self.neighbours == "replace" else 1
        amount, k = self.budget.amount * share, self.rows_per_unit
        if isinstance(self.budget, PureDP):
            return DiscreteLaplace(Fraction(units * self.groups_of_a_record * k) / amount)
        return DiscreteGaussian(Fraction(units * self.groups_of_a_record * k * k) / (2 * amount))

    @cached_property
    def first(self) -> NoiseLaw:
        """The noise of stage one."""
        return self.law(self.stage_one)

    @cached_property
    def second(self) -> NoiseLaw:
        """The noise of stage two."""
        return self.law(1 - self.stage_one)

    @cached_property
    def whole(self) -> NoiseLaw:
        """The noise of a group that gets one count at the full budget."""
        return self.law(Fraction(1))

    def choose(self, first: np.ndarray) -> np.ndarray:
        """The rung for each noisy count of stage one: how many thresholds it reaches. Public from public."""
        return np.searchsorted(np.asarray(self.thresholds, np.int64), first, side="right").astype(np.int8)

    def interval_of(self, rung: int) -> tuple[int | None, int | None]:
        """The stage-one counts [low, high) that choose a rung; None where there is no end."""
        low = None if rung == 0 else self.thresholds[rung - 1]
        high = None if rung == len(self.thresholds) else self.thresholds[rung]
        return low, high
