"""The levels of a run: region types by levels of iterations, with the budgets and thresholds of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from ...domain.groups import GroupMap, GroupSelection
from ...errors import InvalidArgument
from ...privacy import ZCDP, NoiseLaw, PureDP
from ...products.groups.levels import AdaptivePlan, PopulationLevel
from .config import CONFIG, LEVELS, STAGE_ONE, WIDE, Config, budget_key
from .faults import Faults
from .geography import BlockGeography
from .layout import group_map, ladder, production_stability
from .maps import MEMBERS, Maps


def suppression_threshold(law: NoiseLaw, chance: Fraction) -> int | None:
    """The least integer t with ``P(X <= t) >= chance``; a total is kept if it is above t. None for a chance of 0.

    The law's tail is an upper bound within 10^-12 of the truth, so that t is never too small, and too large only where
    a probability agrees with the chance to 12 digits.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> suppression_threshold(DiscreteGaussian(100), Fraction("0.5"))
    0
    """
    if chance <= 0:
        return None
    miss, high = 1 - chance, 1
    while not _reached(law, high, miss):
        high *= 2
    low = -1
    while _reached(law, low, miss):
        low *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _reached(law, middle, miss) else (middle, high)
    return high


def _reached(law: NoiseLaw, t: int, miss: Fraction) -> bool:
    """Whether ``P(X > t) <= miss``, for a law that is symmetric around 0."""
    if t >= 0:
        return Fraction(law.tail(t)) / 2 <= miss
    return 1 - Fraction(law.tail(-t - 1)) / 2 <= miss


StabilityRule = Literal["proven", "production"]


@dataclass(frozen=True)
class SuppressionRule:
    """The largest totals that are dropped: of a group with a second stage, and of one with one count; None: none is."""

    total: int | None
    whole: int | None


@dataclass(frozen=True, eq=False)
class Tabulation:
    """A run, ready to be made.

    Args:
        plan: the levels.
        production: what the Bureau's formula gives for each of them.
        suppression: by level.
        allow_negative: False where measured counts below 0 are published as 0.
    """

    plan: AdaptivePlan
    production: tuple[int, ...]
    suppression: tuple[SuppressionRule, ...]
    allow_negative: bool


def tabulation(
    config: Config, maps: Maps, geography: BlockGeography, rule: StabilityRule, faults: Faults
) -> Tabulation | None:
    """Build all levels with a budget; None, and the mistakes, where that cannot be.

    Privacy:
        Noise is sized for the proven stability, or for a larger one: a formula that is not a bound is refused. Dropping
        and clamping noisy counts by public rules is post-processing.
    """
    groups = group_map(maps, config.max_race_codes)
    levels = _levels(config, groups, geography)
    production = tuple(production_stability(level.groups, config.max_race_codes) for level in levels)
    if rule == "production":
        levels = _with_production(levels, production, faults)
    if not levels:
        words = "no level has a budget, regions and groups: nothing would be tabulated"
        faults.add(CONFIG, words)
        return None
    _check_noise(levels, config, faults)
    if faults.problems:
        return None
    suppression = tuple(_suppression(level, config.suppression) for level in levels)
    return Tabulation(AdaptivePlan(tuple(levels)), production, suppression, config.allow_negative)


def _levels(config: Config, groups: GroupMap, geography: BlockGeography) -> list[PopulationLevel]:
    """Levels in the order of the runs; those without budget, regions or groups are left out."""
    kind = ZCDP if config.definition == "zcdp" else PureDP
    tables = ladder()
    selections: dict[tuple[str, bool], GroupSelection] = {}
    found = []
    for region_type in config.region_types:
        regions = geography.regions(region_type)
        for level in LEVELS:
            budget = config.budgets[region_type, level]
            selection = selections.setdefault((level, region_type in WIDE), groups.at(level, region_type))
            if budget and regions.size and len(selection):
                found.append(
                    PopulationLevel(
                        regions,
                        level,
                        selection,
                        tables,
                        config.thresholds[region_type, level],
                        kind(budget),
                        config.stage_one,
                    )
                )
    return found


def _check_noise(levels: list[PopulationLevel], config: Config, faults: Faults) -> None:
    """Note the budgets, or else the share of stage one, whose noise would be beyond what can be drawn."""
    for level in levels:
        key = budget_key(level.regions.name, level.group_level)
        words = "is too small"
        try:
            _ = level.whole
            key = STAGE_ONE
            _ = level.first
            words = "is too close to 1"
            _ = level.second
        except InvalidArgument:
            words += f": the noise of {level.name} would have a variance or scale of 10^30 or more"
            faults.add(CONFIG, words, config.lines[key], key)


def _with_production(
    levels: list[PopulationLevel], production: tuple[int, ...], faults: Faults
) -> list[PopulationLevel]:
    """The levels with the Bureau's stability, where it is a bound."""
    found = []
    for level, value in zip(levels, production, strict=True):
        if value < level.proven.value:
            words = (
                f"{level.name}: the formula of production gives {value}, and a record can belong to "
                f"{level.proven.value} of the groups{_witness(level.proven.witness)}: it is not a bound; leave out "
                "--stability production, and the proven one is used"
            )
            faults.add(MEMBERS, words)
        else:
            found.append(replace(level, stability=value))
    return found


def _witness(witness: Mapping[str, tuple[str, ...]]) -> str:
    parts = [f"{family} {', '.join(codes)}" for family, codes in witness.items() if codes]
    return f" (one with {'; '.join(parts)})" if parts else ""


def _suppression(level: PopulationLevel, chance: Fraction) -> SuppressionRule:
    if level.regions.name in WIDE:
        return SuppressionRule(None, None)
    return SuppressionRule(
        suppression_threshold(level.second, chance), suppression_threshold(level.whole, chance)
    )
