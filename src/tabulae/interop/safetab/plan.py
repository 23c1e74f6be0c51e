"""The levels of a run: region types by levels of iterations, with the budgets and thresholds of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from ...domain.groups import GroupMap, GroupSelection
from ...errors import InvalidArgument
from ...privacy import ZCDP, PureDP
from ...products.groups.levels import AdaptivePlan, PopulationLevel
from .config import CONFIG, STAGE_ONE, Config, budget_key
from .faults import Faults
from .geography import Geography
from .layout import group_map, ladder, production_stability
from .maps import MEMBERS, Maps
from .region_types import LEVELS, WIDE
from .suppression import suppression_threshold

StabilityRule = Literal["proven", "production"]


@dataclass(frozen=True)
class Suppression:
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
    suppression: tuple[Suppression, ...]
    allow_negative: bool


def tabulation(
    config: Config, maps: Maps, geography: Geography, rule: StabilityRule, faults: Faults
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


def _levels(config: Config, groups: GroupMap, geography: Geography) -> list[PopulationLevel]:
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


def _suppression(level: PopulationLevel, chance: Fraction) -> Suppression:
    if level.regions.name in WIDE:
        return Suppression(None, None)
    return Suppression(
        suppression_threshold(level.second, chance), suppression_threshold(level.whole, chance)
    )
