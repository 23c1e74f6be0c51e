"""What ``[detailed]`` asks for: regions, groups, the ladder of tables, and the levels with their budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..adaptive import AdaptivePlan, PopulationLevel
from ..domain.groups import GroupMap
from ..domain.ladder import Ladder
from ..domain.regions import Regions
from ..errors import InvalidArgument
from ..privacy import (
    ZCDP,
    NoiseLaw,
    PrivacyLoss,
    PureDP,
)
from .detailed_shape import LevelTarget
from .problems import Problems


@dataclass(frozen=True, eq=False)
class LevelRule:
    """One level as the spec has it; a budget of None is to be found from the target."""

    region: str
    group_level: str
    budget: Fraction | None
    target: LevelTarget | None
    thresholds: tuple[int, ...]


@dataclass(frozen=True)
class Suppression:
    """Totals of these region types are left out unless noise alone stays below them with this chance."""

    chance: Fraction
    regions: frozenset[str]

    def floor(self, law: NoiseLaw) -> int:
        """The smallest integer that the noise alone does not exceed with this chance, which is over 1/2.

        >>> from tabulae.privacy import DiscreteGaussian
        >>> Suppression(Fraction(9999, 10000), frozenset()).floor(DiscreteGaussian(1))
        4
        """
        return law.margin(2 * self.chance - 1)


@dataclass(frozen=True, eq=False)
class Detailed:
    """What ``[detailed]`` asks for, over the public domain.

    Attributes:
        groups: which values make a record a member of which group.
        codes: family -> the attributes that hold a record's codes.
        place: the attributes whose combinations are the leaves of the public geography, in the order of the domain.
        regions: region type -> the regions of all leaves.
        cell: the attributes that the tables are by, in the order of the domain.
        ladder: the tables after the total; headings are the names that the spec asks for.
        levels: in the order of the spec.
        stage_one: the share of each level's budget that chooses the tables.
        suppress: which totals are left out, or None.
        neighbours, rows_per_unit, unit, pure: those of the whole spec; pure, or else zero-concentrated.
    """

    groups: GroupMap
    codes: Mapping[str, tuple[str, ...]]
    place: tuple[str, ...]
    regions: Mapping[str, Regions]
    cell: tuple[str, ...]
    ladder: Ladder
    levels: tuple[LevelRule, ...]
    stage_one: Fraction
    suppress: Suppression | None
    neighbours: str
    rows_per_unit: int
    unit: str
    pure: bool

    @property
    def open_levels(self) -> tuple[LevelRule, ...]:
        """The levels whose budget is still to be found."""
        return tuple(level for level in self.levels if level.budget is None)

    def level(self, rule: LevelRule, budget: Fraction) -> PopulationLevel:
        """One level with a budget."""
        return PopulationLevel(
            self.regions[rule.region],
            rule.group_level,
            self.groups.at(rule.group_level, rule.region),
            self.ladder,
            rule.thresholds,
            (PureDP if self.pure else ZCDP)(budget),
            self.stage_one,
            self.neighbours,
            self.rows_per_unit,
        )

    def plan(self, found: Mapping[int, Fraction] | None = None) -> AdaptivePlan:
        """The plan of all levels; ``found`` gives budgets by position to those that have none."""
        budgets = [rule.budget or (found or {})[i] for i, rule in enumerate(self.levels)]
        levels = tuple(self.level(rule, budget) for rule, budget in zip(self.levels, budgets, strict=True))
        return AdaptivePlan(levels, self.unit)


def loss_of(detailed: Detailed, cap: PrivacyLoss, problems: Problems) -> PrivacyLoss:
    """What the levels cost together, which may not be more than the budget; that, while budgets are open."""
    if detailed.open_levels:
        return cap
    try:
        loss = detailed.plan().loss
    except InvalidArgument as error:
        problems.add(("detailed", "regions"), str(error))
        return cap
    if loss.amount > cap.amount:
        problems.add(
            ("privacy", "budget"),
            f"is {cap.amount}, and the levels that count one record cost {loss.amount} together: lower theirs, or "
            f'write budget = "{loss.amount}"',
        )
    return loss
