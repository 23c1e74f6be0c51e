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
from .config import CONFIG, LEVELS, STAGE_ONE, WIDE, Config, budget_key, read_draft
from .geography import GRF, BlockGeography, check_states, read_geography
from .layout import OLDEST, SEXES, group_map, ladder, production_stability
from .maps import CODES, ETHNICITY, MEMBERS, RACE, Maps, read_maps
from .persons import PERSONS, PersonRecords
from .text import Faults

TITLE = "detailed groups (T1 and T2)"
StabilityRule = Literal["proven", "production"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """The public inputs of a run without mistakes, and what a person record must look like.

    Attributes:
        plan: of the release, with its spec: levels, noise, thresholds, totals that are left out.
        production: what the Bureau's formula of stability gives for each level.
        allow_negative: False where T1 and T2 have measured counts below 0 as 0.
        delta: at which epsilon is stated, as it was given.
        records: the person records, and what they must look like.
        warnings: what is no mistake and may surprise.
    """

    plan: DetailedPlan
    production: tuple[int, ...]
    allow_negative: bool
    delta: str
    records: PersonRecords
    warnings: tuple[Problem, ...]

    @property
    def epsilon(self) -> tuple[float, str]:
        """The tightest proven epsilon at delta, and how it is proven."""
        return epsilon_of(self.plan.adaptive, self.delta)


def check(
    params: Path,
    data: Path,
    *,
    rule: StabilityRule = "proven",
    delta: str = "1e-10",
    ledger: Path | None = None,
    persons: bool = True,
) -> Inputs:
    """Check all files, and make the spec of the release.

    Args:
        params: the folder with config.json and the four maps.
        data: the folder with person-records.txt and GRF-C.txt.
        rule: which stability the noise is sized for.
        delta: at which epsilon is stated.
        ledger: what the spec says that the loss is charged to.
        persons: whether person records are checked where no other file has a mistake; counting checks them, too.

    Raises:
        SpecError: every mistake that there is, each with its file, and its line and column where it has them.

    Privacy:
        Nothing is spent, and nothing published. Messages hold no value of a person record; that there is a mistake in
        a line of them is told to whoever may read the file.
    """
    faults = Faults()
    draft = read_draft(params / CONFIG, faults)
    maps = read_maps(params, faults)
    geography = read_geography(data / GRF, faults)
    if draft is not None and geography is not None:
        check_states(geography, draft, faults)
    config = None if draft is None else draft.config
    detailed, plan = None, None
    if config is not None and maps.codes is not None and geography is not None and not faults.problems:
        detailed = _detailed(config, maps, geography, rule, faults)
        if detailed is not None and not faults.problems:
            plan = detailed.plan()
            for level in plan.levels:
                _check_noise(level, config, faults)
    records = PersonRecords(data / PERSONS, maps.codes, config.max_race_codes if config else 1, geography)
    if persons or faults.problems:
        records.check(faults)
    faults.stop(f"{params} and {data}" if params != data else str(params))
    assert config is not None
    assert detailed is not None
    assert plan is not None
    files = {name: (params / name).read_bytes() for name in (CONFIG, RACE, ETHNICITY, CODES, MEMBERS)}
    files[GRF] = file_sha256(data / GRF).encode()
    return Inputs(
        DetailedPlan(_spec(detailed, plan, data / PERSONS, rule, delta, ledger, files), plan),
        tuple(production_stability(level.groups, config.max_race_codes) for level in plan.levels),
        config.allow_negative,
        delta,
        records,
        tuple(faults.warnings),
    )


def _spec(
    detailed: Detailed,
    plan: AdaptivePlan,
    persons: Path,
    rule: StabilityRule,
    delta: str,
    ledger: Path | None,
    files: Mapping[str, bytes],
) -> Spec:
    """The spec of the release: what it counts and promises, and the public files that say so."""
    return Spec(
        title=TITLE,
        source=RecordSource(persons, "csv"),
        domain=Domain({"age": range(OLDEST + 1), "sex": SEXES}),
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
        _record={"title": TITLE, "stability": rule},
        detailed=detailed,
    )


def _detailed(
    config: Config, maps: Maps, geography: BlockGeography, rule: StabilityRule, faults: Faults
) -> Detailed | None:
    """All levels with a budget, regions and groups, in the order of the runs; None, and the mistakes, where none is.

    Privacy:
        Noise is sized for the proven stability, or for a larger one: a formula that is not a bound is refused. Dropping
        and clamping noisy counts by public rules is post-processing.
    """
    groups = group_map(maps, config.max_race_codes)
    regions = {name: geography.regions(name) for name in config.region_types}
    levels = [
        LevelRule(name, level, config.budgets[name, level], None, config.thresholds[name, level])
        for name in config.region_types
        for level in LEVELS
        if config.budgets[name, level] and regions[name].size and len(groups.at(level, name))
    ]
    if not levels:
        faults.add(CONFIG, "no level has a budget, regions and groups: nothing would be tabulated")
        return None
    narrow = frozenset(name for name in config.region_types if name not in WIDE)
    detailed = Detailed(
        groups=groups,
        codes={},
        place=(),
        regions=regions,
        cell=("age", "sex"),
        ladders={"": ladder()},
        levels=tuple(levels),
        stage_one=config.stage_one,
        suppress=Suppression(config.suppression, narrow) if config.suppression else None,
        neighbours="add-remove",
        rows_per_unit=1,
        unit="person",
        pure=config.definition == "puredp",
    )
    if rule == "production":
        detailed = _with_production(detailed, config.max_race_codes, faults)
    return detailed


def _check_noise(level: PopulationLevel, config: Config, faults: Faults) -> None:
    """Note a budget, or else the share of stage one, whose noise would be beyond what can be drawn."""
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
