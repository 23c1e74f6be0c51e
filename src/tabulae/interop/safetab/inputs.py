"""The Bureau's folders as the spec of a release of groups: every file checked in one pass, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...domain import Domain
from ...errors import InvalidArgument, Problem
from ...privacy import exact
from ...products.groups.levels import AdaptivePlan, PopulationLevel, epsilon_of
from ...products.groups.plan import DetailedPlan
from ...products.groups.spec import Detailed, LevelRule, Suppression
from ...release.folder import file_sha256
from ...sources.source import RecordSource
from ...spec import Spec
from ...spec.promise import Method
from ...spec.shape import ReliabilitySection
from .config import CONFIG, STAGE_ONE, Config, budget_key, read_draft
from .geography import GRF, TOTALS, BlockGeography, check_states, read_geography, read_totals
from .maps import (
    CODES,
    ETHNICITY,
    LEVELS,
    MEMBERS,
    RACE,
    WIDE,
    Maps,
    group_map,
    production_stability,
    read_maps,
)
from .programs import HOUSEHOLDS, PERSONS, Program
from .records import Records
from .text import Faults

StabilityRule = Literal["proven", "production"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """The public inputs of a run without mistakes, and what a record must look like.

    Attributes:
        program: which of the Bureau's.
        plan: of the release, with its spec: levels, noise, thresholds, totals that are left out.
        production: what the Bureau's formula of stability gives for each level.
        allow_negative: False where the program's files have measured counts below 0 as 0.
        delta: at which epsilon is stated, as it was given.
        records: the records, and what they must look like.
        warnings: what is no mistake and may surprise.
    """

    program: Program
    plan: DetailedPlan
    production: tuple[int, ...]
    allow_negative: bool
    delta: str
    records: Records
    warnings: tuple[Problem, ...]

    @property
    def epsilon(self) -> tuple[float, str]:
        """The tightest proven epsilon at delta, and how it is proven."""
        return epsilon_of(self.plan.adaptive, self.delta)


def check(
    params: Path,
    data: Path,
    *,
    households: bool = False,
    rule: StabilityRule = "proven",
    delta: str = "1e-10",
    ledger: Path | None = None,
    records: bool = True,
) -> Inputs:
    """Check all files, and make the spec of the release.

    Args:
        params: the folder with config.json and the four maps.
        data: the folder with person-records.txt and GRF-C.txt; of households with household-records.txt, GRF-C.txt and
            pop-group-totals.txt.
        households: whether households are counted (SafeTab-H), and not persons (SafeTab-P).
        rule: which stability the noise is sized for.
        delta: at which epsilon is stated.
        ledger: what the spec says that the loss is charged to.
        records: whether the records are checked where no other file has a mistake; counting checks them, too.

    Raises:
        SpecError: every mistake that there is, each with its file, and its line and column where it has them.

    Privacy:
        Nothing is spent, and nothing published. Messages hold no value of a record; that there is a mistake in
        a line of them is told to whoever may read the file.
    """
    faults, program = Faults(), HOUSEHOLDS if households else PERSONS
    draft = read_draft(params / CONFIG, program, faults)
    maps = read_maps(params, faults)
    geography = read_geography(data / GRF, faults)
    if draft is not None and geography is not None:
        check_states(geography, draft, faults)
    config = None if draft is None else draft.config
    detailed, plan = None, None
    if config is not None and maps.codes is not None and geography is not None and not faults.problems:
        detailed = _detailed(program, config, maps, geography, data / TOTALS, faults)
        if detailed is not None and rule == "production":
            detailed = _with_production(detailed, config.max_race_codes, faults)
        if detailed is not None and not faults.problems:
            plan = detailed.plan()
            for level in plan.levels:
                _check_noise(program, level, config, faults)
    most = config.max_race_codes if config else 1
    found = Records(program, data / program.records, maps.codes, most, geography)
    if records or faults.problems:
        found.check(faults)
    faults.stop(f"{params} and {data}" if params != data else str(params))
    assert config is not None
    assert detailed is not None
    assert plan is not None
    files = {name: (params / name).read_bytes() for name in (CONFIG, RACE, ETHNICITY, CODES, MEMBERS)}
    files[GRF] = file_sha256(data / GRF).encode()
    if detailed.counts is not None:
        files[TOTALS] = detailed.counts.sha256.encode()
    return Inputs(
        program,
        DetailedPlan(_spec(program, detailed, plan, found.path, rule, delta, ledger, files), plan),
        tuple(production_stability(level.groups, config.max_race_codes) for level in plan.levels),
        config.allow_negative,
        delta,
        found,
        tuple(faults.warnings),
    )


def _spec(
    program: Program,
    detailed: Detailed,
    plan: AdaptivePlan,
    records: Path,
    rule: StabilityRule,
    delta: str,
    ledger: Path | None,
    files: Mapping[str, bytes],
) -> Spec:
    """The spec of the release: what it counts and promises, and the public files that say so."""
    return Spec(
        title=program.title,
        source=RecordSource(records, "csv"),
        domain=Domain({field.attribute: field.values for field in program.cell}),
        columns={},
        loss=plan.loss,
        delta=exact(delta),
        neighbours="add-remove",
        ledger=ledger,
        targets=None,
        open_budget=False,
        unit=plan.unit,
        unit_id=None,
        rows_per_unit=1,
        method=Method(),
        max_rows=0,
        reliability=ReliabilitySection(),
        series=None,
        derived=(),
        text="",
        path=None,
        files=files,
        _record={"title": program.title, "stability": rule},
        detailed=detailed,
    )


def _detailed(
    program: Program, config: Config, maps: Maps, geography: BlockGeography, totals: Path, faults: Faults
) -> Detailed | None:
    """All levels with a budget, regions and groups, by ladder and run; None, and the mistakes, where none is.

    Where public totals choose the tables, a level of which they list no group is left out.

    Privacy:
        Noise is sized for the proven stability, or for a larger one: a formula that is not a bound is refused. Dropping
        and clamping noisy counts by public rules is post-processing.
    """
    groups = group_map(maps, config.max_race_codes, total_only=program.two_stages)
    regions = {name: geography.regions(name) for name in config.region_types}
    counts = None
    if not program.two_stages:
        counts, regions = read_totals(totals, groups, regions, faults)
    levels = [
        LevelRule(name, level, config.budgets[key], None, config.thresholds[key], ladder=ladder)
        for ladder in program.tabulations
        for name in config.region_types
        for level in LEVELS
        if config.budgets[key := (ladder, name, level)] and regions[name].size and len(groups.at(level, name))
    ]
    narrow = frozenset(name for name in config.region_types if name not in WIDE)
    detailed = Detailed(
        groups=groups,
        codes={},
        place=(),
        regions=regions,
        cell=tuple(field.attribute for field in program.cell),
        ladders={name: tabulation.ladder for name, tabulation in program.tabulations.items()},
        levels=tuple(levels),
        stage_one=config.stage_one,
        suppress=Suppression(config.suppression, narrow) if config.suppression else None,
        neighbours="add-remove",
        rows_per_unit=1,
        unit=program.unit,
        pure=config.definition == "puredp",
        counts=counts,
    )
    chosen = [rule for rule in levels if (rungs := detailed.chosen(rule)) is None or rungs.place.size]
    if not levels:
        faults.add(CONFIG, "no level has a budget, regions and groups: nothing would be tabulated")
    elif not chosen and not faults.problems:
        faults.add(TOTALS, "lists no group of a level that has a budget: nothing would be tabulated")
    return replace(detailed, levels=tuple(chosen)) if chosen else None


def _check_noise(program: Program, level: PopulationLevel, config: Config, faults: Faults) -> None:
    """Note a budget, or else the share of stage one, whose noise would be beyond what can be drawn."""
    key = budget_key(program.tabulations[level.ladder_name], level.regions.name, level.group_level)
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


def _with_production(detailed: Detailed, most: int, faults: Faults) -> Detailed:
    """The same with the Bureau's stability, where it is a bound."""
    rules = []
    for given, level in zip(detailed.levels, detailed.plan().levels, strict=True):
        value = production_stability(level.groups, most)
        rules.append(replace(given, stability=value))
        if value < level.proven.value:
            words = (
                f"{level.name}: the formula of production gives {value}, and a record can belong to "
                f"{level.proven.value} of the groups{_witness(level.proven.witness)}: it is not a bound; leave out "
                "--stability production, and the proven one is used"
            )
            faults.add(MEMBERS, words)
    return replace(detailed, levels=tuple(rules))


def _witness(witness: Mapping[str, tuple[str, ...]]) -> str:
    parts = [f"{family} {', '.join(codes)}" for family, codes in witness.items() if codes]
    return f" (one with {'; '.join(parts)})" if parts else ""
