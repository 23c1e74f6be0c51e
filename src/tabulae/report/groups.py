"""The report of a release of groups: from its folder to one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import pyarrow as pa

from ..privacy import NoiseLaw
from ..products.groups.levels import PopulationLevel, epsilon_of
from ..products.groups.plan import detailed_of
from ..products.groups.public_counts import PublicCounts
from ..products.groups.publish import TOTALS
from ..products.implicates import ABOUT
from ..release import Release
from ..release.folder import read_json
from ..release.write import CREDIBLE
from ..spec.promise import POSTERIOR
from .page import render_page, stored_context
from .promise import EpsilonStatement, promise_of, statements_of
from .view import PosteriorView, StoredView, posterior_view, stored_fields

_COLOURS = 6


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

    ``record`` is one that belongs to ``stability`` groups, None where that is a bound from above. ``first`` is the
    noise of the counts that chose the tables, None where public counts did; ``whole`` that of groups that have one
    count only, None where there are none.
    """

    name: str
    regions: int
    groups: int
    budget: Fraction
    stability: int
    record: str | None
    thresholds: tuple[int, ...]
    first: NoiseView | None
    second: NoiseView
    whole: NoiseView | None
    chosen: Mapping[str, int]
    suppressed: int

    @property
    def places(self) -> int:
        """Groups times regions."""
        return sum(self.chosen.values())


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupsView(StoredView):
    """Everything that the report of a release of groups shows.

    ``how`` says how its epsilon was proven; ``counts`` are the public counts that chose the tables, or None;
    ``posterior`` is None where no whole tables are drawn.
    """

    how: str | None
    epsilon: EpsilonStatement | None
    levels: tuple[LevelView, ...]
    tables: tuple[str, ...]
    stage_one: Fraction
    counts: PublicCounts | None
    posterior: PosteriorView | None


def groups_report(release: Release) -> str:
    """The report of a release of groups, from its folder alone: the same text for the same release."""
    view = groups_view(release)
    return render_page("groups.html", view, view.samples, stacked=stacked, **stored_context(view))


def groups_view(release: Release) -> GroupsView:
    """What the report shows."""
    plan, told = release.product.adaptive, release.about["levels"]
    statement, how = _statement(release)
    rows = {name: count for name, count in release.about["rows"].items() if count}
    tables = ("total only", "total", *(rung.name for rung in detailed_of(release.spec).rungs))
    statements = statements_of(release.spec)
    return GroupsView(
        **stored_fields(release, rows, "region_type", _words_of, _left_out),
        promise=promise_of(release.spec, plan.loss, statements=statements),
        how=how,
        epsilon=statement,
        levels=tuple(_level(level, told[i], release.level) for i, level in enumerate(plan.levels)),
        tables=tuple(name for name in tables if any(name in entry["groups_by_table"] for entry in told)),
        stage_one=plan.levels[0].stage_one,
        counts=detailed_of(release.spec).counts,
        posterior=posterior_of(release),
    )


def posterior_of(release: Release) -> PosteriorView | None:
    """What ``posterior.json`` says, and a picture of some totals; None where no whole tables are drawn."""
    if release.spec.method.estimate != POSTERIOR:
        return None
    told = read_json(release.path, ABOUT)
    enough = [kind for kind, worth in told["credible"].items() if worth]
    if not enough:
        return posterior_view(told, "group")
    rows = release.tables[TOTALS]
    some = rows.filter(pa.array([kind == enough[-1] for kind in rows["region_type"].to_pylist()]))
    return posterior_view(told, "group", some, ["region", "group"], f"groups by {enough[-1]}")


def _words_of(name: str) -> str:
    return (
        "one row a group in a region"
        if name == TOTALS
        else "one row a cell of each group that got this table"
    )


def _left_out(name: str) -> tuple[str, ...]:
    return ("region_type", *CREDIBLE, *(("group",) if name == TOTALS else ()))


def _statement(release: Release) -> tuple[EpsilonStatement | None, str | None]:
    """Epsilon at the spec's delta, and how it was proven where that is not by the definition's conversion."""
    delta, statements = release.spec.delta, statements_of(release.spec)
    if delta is None or statements:
        return next(iter(statements), None), None
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
        first=None if level.first is None else NoiseView.of(level.first, at),
        second=NoiseView.of(level.second, at),
        whole=NoiseView.of(level.whole, at) if level.groups.total_only.any() else None,
        chosen=told["groups_by_table"],
        suppressed=int(told["suppressed"]),  # type: ignore[call-overload]
    )


def stacked(level: LevelView, tables: Sequence[str]) -> list[tuple[int, float]]:
    """For a bar: the colour of the table, and its share of the level's groups, where it has any."""
    whole = max(1, level.places)
    shares = ((i, level.chosen.get(name, 0) / whole) for i, name in enumerate(tables))
    return [(i % _COLOURS + 1, share) for i, share in shares if share]
