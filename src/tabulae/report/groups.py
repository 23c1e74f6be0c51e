"""The report of a release of groups: from its folder to one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
import pyarrow as pa

from ..privacy import NoiseLaw
from ..products.groups.levels import PopulationLevel, epsilon_of
from ..products.groups.publish import TOTALS
from ..release import Release
from ..release.folder import Rows
from ..spec import ReliabilitySection
from .page import FALSE_ALARMS, detection_bound, render_page, stored_context
from .view import (
    ROWS_SHOWN,
    EpsilonStatement,
    ExpectedErrorView,
    LedgerLine,
    PromiseView,
    StandingView,
    StoredReliability,
    TableView,
    ledger_lines,
    standing_view,
    stored_reliability,
)

_COLOURS = 6
_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")


@dataclass(frozen=True)
class NoiseView:
    """One kind of count of a level: its standard deviation and its margin, in people."""

    deviation: float
    margin: int

    @classmethod
    def of(cls, law: NoiseLaw, level: float) -> NoiseView:
        """Those of a law."""
        return cls(sqrt(law.variance_of_law), law.margin(Fraction(str(level))))


@dataclass(frozen=True)
class LevelView:
    """One level: what it counts, what it costs, its noise by stage, and which table its groups got.

    ``record`` is one that belongs to ``stability`` groups, None where that is a bound from above. ``whole`` is the
    noise of groups that have one count only, None where there are none.
    """

    name: str
    regions: int
    groups: int
    budget: Fraction
    stability: int
    record: str | None
    thresholds: tuple[int, ...]
    first: NoiseView
    second: NoiseView
    whole: NoiseView | None
    chosen: Mapping[str, int]
    suppressed: int

    @property
    def places(self) -> int:
        """Groups times regions."""
        return sum(self.chosen.values())


@dataclass(frozen=True, eq=False)
class GroupsView:
    """Everything that the report of a release of groups shows; ``how`` says how its epsilon was proven.

    ``samples`` are the first rows of each published table, ``stored`` what its file says of all of them.
    """

    title: str
    promise: PromiseView
    how: str | None
    epsilon: EpsilonStatement | None
    ledger: tuple[LedgerLine, ...]
    standing: StandingView | None
    levels: tuple[LevelView, ...]
    tables: tuple[str, ...]
    stage_one: Fraction
    samples: tuple[TableView, ...]
    stored: tuple[StoredReliability, ...]
    reliability: ReliabilitySection
    release_id: str
    made: str
    version: str
    interval: float


def groups_report(release: Release) -> str:
    """The report of a release of groups, from its folder alone: the same text for the same release.

    Every string of the release is escaped; the page loads nothing, and its one script is this project's.
    """
    view = groups_view(release)
    return render_page(
        "groups.html",
        view.samples,
        view.reliability,
        release=view,
        promise=view.promise,
        detection=[(a, detection_bound(view.promise, a)) for a in FALSE_ALARMS],
        stacked=stacked,
        spent=sum((line.amount for line in view.ledger), start=Fraction(0)),
        **stored_context(view.samples, view.stored),
    )


def groups_view(release: Release) -> GroupsView:
    """What the report shows."""
    spec, plan = release.spec, release.product.adaptive
    statement, how = _statement(release)
    told = release.about["levels"]
    rows = {name: count for name, count in release.about["rows"].items() if count}
    tables = ("total only", "total", *(rung.name for rung in plan.levels[0].ladder.rungs))
    promise = PromiseView(
        plan.loss.definition,
        plan.loss.amount,
        spec.neighbours,
        spec.unit,
        statements=(statement,) if statement and plan.loss.definition == "zcdp" else (),
        rows_per_unit=None if spec.unit_id is None else spec.rows_per_unit,
    )
    return GroupsView(
        title=spec.title or "Release",
        promise=promise,
        how=how,
        epsilon=statement,
        ledger=ledger_lines(release.ledger),
        standing=standing_view(release),
        levels=tuple(_level(level, told[i], release.level) for i, level in enumerate(plan.levels)),
        tables=tuple(name for name in tables if any(name in entry["groups_by_table"] for entry in told)),
        stage_one=plan.levels[0].stage_one,
        samples=tuple(_sample(release, name, count) for name, count in rows.items()),
        stored=tuple(
            stored_reliability(
                release.path / f"tables/{name}.parquet", "region_type", count, spec.reliability
            )
            for name, count in rows.items()
        ),
        reliability=spec.reliability,
        release_id=str(release.about["release_id"]),
        made=str(release.descriptor["created"]),
        version=str(release.about["version"]),
        interval=release.level,
    )


def _statement(release: Release) -> tuple[EpsilonStatement | None, str | None]:
    """Epsilon at the spec's delta, and how it was proven."""
    delta = release.spec.delta
    if delta is None:
        return None, None
    epsilon, how = epsilon_of(release.product.adaptive, delta)
    return EpsilonStatement(float(delta), epsilon), how


def _level(level: PopulationLevel, told: Mapping[str, dict], at: float) -> LevelView:
    proven = level.proven
    words = ", ".join(f"{family}: {' and '.join(codes)}" for family, codes in proven.witness.items())
    return LevelView(
        name=level.name,
        regions=level.regions.size,
        groups=len(level.groups),
        budget=level.budget.amount,
        stability=level.groups_of_a_record,
        record=words if proven.is_exact and words else None,
        thresholds=level.thresholds,
        first=NoiseView.of(level.first, at),
        second=NoiseView.of(level.second, at),
        whole=NoiseView.of(level.whole, at) if level.groups.total_only.any() else None,
        chosen=told["groups_by_table"],
        suppressed=int(told["suppressed"]),  # type: ignore[call-overload]
    )


def _sample(release: Release, name: str, count: int) -> TableView:
    file = f"tables/{name}.parquet"
    rows = Rows.of_parquet(release.path / file).take(ROWS_SHOWN)
    left_out = {*_NUMBERS, "obs_status", "region_type", *(("group",) if name == TOTALS else ())}
    headings = [column for column in rows.column_names if column not in left_out]
    what = (
        "one row a group in a region"
        if name == TOTALS
        else "one row a cell of each group that got this table"
    )
    return TableView(
        name=name,
        description=what,
        columns={heading: rows[heading].to_pylist() for heading in headings},
        estimate=_floats(rows, "estimate"),
        std_error=_floats(rows, "std_error"),
        ci_low=_floats(rows, "ci_low"),
        ci_high=_floats(rows, "ci_high"),
        obs_status=rows["obs_status"].to_pylist(),
        expected=ExpectedErrorView(0.0, 0.0),
        file=file,
        level=release.level,
        count=count,
    )


def _floats(rows: pa.Table, name: str) -> np.ndarray:
    return rows[name].to_numpy().astype(float)


def stacked(level: LevelView, tables: Sequence[str]) -> list[tuple[int, float]]:
    """For a bar: the colour of the table, and its share of the level's groups, where it has any."""
    whole = max(1, level.places)
    shares = ((i, level.chosen.get(name, 0) / whole) for i, name in enumerate(tables))
    return [(i % _COLOURS + 1, share) for i, share in shares if share]
