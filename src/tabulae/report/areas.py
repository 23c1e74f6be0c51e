"""How wrong published counts of areas are expected to be, and where they differ from unbiased ones: from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..products.areas.constraints import NO_LIMIT, supported_parts
from ..products.areas.plan import EntityDistance, GeographyPlan
from ..products.areas.spec.section import AREA, AREA_TYPE, AreaTable, Geography, geography_of
from ..products.areas.spine.optimise import Entities
from ..products.areas.spine.spine import Spine
from ..products.areas.spine_plan import interval_factor
from ..products.areas.tables import GLS_ESTIMATE, POSTERIOR, UNBIASED, earlier_of, exact_of
from ..products.implicates import ABOUT
from ..release import Release
from ..release.folder import Rows, read_json
from ..release.write import ESTIMATED
from .numbers import fixed
from .page import render_page, stored_context
from .promise import ExactView, promise_of, statements_of
from .spine import Drawing, FanRow, drawing_of, fan_rows
from .view import PosteriorView, StoredView, posterior_view, stored_fields

_ROWS = 1 << 19  # rows of a table that are read at a time
SIZES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""Where the classes of areas by people begin."""
DISTANCES = (1, 2, 4, 8, 16, 32, 64)
"""Where the classes of areas by off-spine distance begin."""


@dataclass(frozen=True, eq=False)
class AreaNumbers:
    """What one table says of each area of one type: arrays of shape (areas,).

    Attributes:
        kind: the type of area.
        codes: of the areas.
        cells: counts that each area has in the table.
        published: the area's people: the sum of its published counts.
        unbiased: the same sum of the unbiased estimates.
        variance: sum of the variances of the area's counts.
        noisy: how many of its counts are not exact.
        apart: sum of squared differences of published and unbiased counts.
        raised: sum over counts published as 0 to 9 of published minus unbiased.
        small: how many counts are published as 0 to 9, exact ones left out.
    """

    kind: str
    codes: tuple[str, ...]
    cells: int
    published: np.ndarray
    unbiased: np.ndarray
    variance: np.ndarray
    noisy: np.ndarray
    apart: np.ndarray
    raised: np.ndarray
    small: np.ndarray

    @property
    def rmse(self) -> float:
        """Expected root mean squared error of the unbiased counts that are not exact."""
        return self.rmse_of(np.ones(len(self.codes), bool))

    def rmse_of(self, chosen: np.ndarray) -> float:
        """The same over some areas; NaN where all their counts are exact."""
        noisy = self.noisy[chosen].sum()
        return sqrt(self.variance[chosen].sum() / noisy) if noisy else float("nan")


def area_numbers(folder: Path, name: str, kinds: Sequence[tuple[str, int]], cells: int) -> list[AreaNumbers]:
    """What a published table says of its areas, by type.

    Args:
        kinds: in the table's order, each type of area with how many there are.
    """
    rows = Rows.of_parquet(folder / "tables" / f"{name}.parquet")
    return [_numbers_geography_errors(kind, rows, count, cells) for kind, count in kinds]


def _numbers_geography_errors(kind: str, rows: Rows, count: int, cells: int) -> AreaNumbers:
    step = max(1, _ROWS // cells)
    parts = [_summed(rows.take(min(step, count - first) * cells), cells) for first in range(0, count, step)]
    codes = tuple(code for named, _ in parts for code in named)
    sums = np.concatenate([np.zeros((7, 0)), *(numbers for _, numbers in parts)], axis=1)
    return AreaNumbers(kind, codes, cells, *sums)


def _summed(rows: pa.Table, cells: int) -> tuple[list[str], np.ndarray]:
    codes = rows["area"].to_pylist()[::cells]

    def column(name: str) -> np.ndarray:
        return rows[name].to_numpy().astype(float).reshape(-1, cells)

    published, deviation = column("estimate"), column("std_error")
    unbiased = column(GLS_ESTIMATE) if GLS_ESTIMATE in rows.column_names else published
    noisy = (rows["obs_status"].to_numpy(zero_copy_only=False) == ESTIMATED).reshape(-1, cells)
    apart = published - unbiased
    small = noisy & (published >= 0) & (published < 10)
    sums = (
        published,
        unbiased,
        deviation**2,
        noisy,
        apart**2,
        np.where(small, apart, 0.0),
        small,
    )
    return codes, np.stack([np.asarray(each, float).sum(axis=1) for each in sums])


@dataclass(frozen=True)
class ClassRow:
    """Areas of one type in one class.

    Attributes:
        kind: the type of area.
        label: of the class.
        areas: how many, without those whose counts are all exact.
        rmse: expected root mean squared error of the unbiased counts of these areas.
        bias: mean of published minus unbiased people of an area.
        bias_error: its standard error, from how much it differs between these areas; NaN for a single one.
        raised: mean of published minus unbiased over counts published as 0 to 9; NaN without any.
    """

    kind: str
    label: str
    areas: int
    rmse: float
    bias: float
    bias_error: float
    raised: float


def by_class(numbers: AreaNumbers, value: np.ndarray, edges: Sequence[int]) -> Iterator[ClassRow]:
    """Rows of the classes of areas by a number.

    Areas below the first class are left out, and those whose counts are all exact; and classes without any area.
    """
    place = np.searchsorted(np.array(edges), np.floor(value), side="right") - 1
    for i, low in enumerate(edges):
        chosen = (place == i) & (numbers.noisy > 0)
        count = int(chosen.sum())
        if not count:
            continue
        apart = numbers.published[chosen] - numbers.unbiased[chosen]
        error = float(apart.std(ddof=1)) / sqrt(count) if count > 1 else float("nan")
        small = numbers.small[chosen].sum()
        raised = float(numbers.raised[chosen].sum() / small) if small else float("nan")
        label = _label(low, edges[i + 1] if i + 1 < len(edges) else None)
        yield ClassRow(
            numbers.kind, label, count, numbers.rmse_of(chosen), float(apart.mean()), error, raised
        )


def _label(low: int, end: int | None) -> str:
    if end is None:
        return f"{low:,} or more"
    return f"{low:,}" if end == low + 1 else f"{low:,} to {end - 1:,}"


@dataclass(frozen=True)
class LimitsView:
    """Limits on counts from public files, which every published count meets.

    Attributes:
        leaf: the type of area that they are for.
        kinds: how many kinds of people they tell apart in each area.
        below, above: how many counts are limited from below, and from above.
        pinned: how many of them have one limit from below and from above.
    """

    leaf: str
    kinds: int
    below: int
    above: int
    pinned: int


def impossible_words(geography: Geography) -> Iterator[str]:
    """What cannot occur, in words."""
    layout = geography.layout
    whole = int(np.prod([layout.domain[name].size for name in layout.dense], dtype=np.int64))
    if layout.size < whole:
        yield f"{fixed(whole - layout.size)} of {fixed(whole)} combinations of {' by '.join(layout.dense)} cannot occur"
    if not geography.plan().support.patterns.all():
        yield f"in which areas of type {geography.levels[-1]} which {' by '.join(layout.dense)} can occur"


def limits_of(geography: Geography) -> LimitsView | None:
    """What public files say of counts beside what cannot occur; None where they do not, or no estimate keeps to it."""
    limits = geography.constraints
    if limits is None or geography.estimate == UNBIASED:
        return None
    possible = supported_parts(limits, geography.plan().support)
    below, above = limits.lower > 0, (limits.upper < NO_LIMIT) & possible
    if not (below.any() or above.any()):
        return None
    pinned = possible & (limits.lower == limits.upper)
    kinds = len(limits.part_names)
    return LimitsView(geography.levels[-1], kinds, int(below.sum()), int(above.sum()), int(pinned.sum()))


_TABLES_SHOWN = 8
_ERRORS_SHOWN = 20  # rows that are seen at once; a few more are not worth folding


@dataclass(frozen=True)
class ErrorRow:
    """The expected error of a table's counts for areas of one type."""

    table: str
    kind: str
    areas: int
    cells: int
    rmse: float


def posterior_of(release: Release, geography: Geography) -> PosteriorView | None:
    """What ``posterior.json`` says, and a picture of some counts; None where no draws are published."""
    if geography.estimate != POSTERIOR:
        return None
    told = read_json(release.path, ABOUT)
    table = _most_telling(geography.tables)
    enough = [kind for kind in table.areas if told["credible"].get(kind)]
    if not enough:
        return posterior_view(told, "area")
    kind = max(enough, key=lambda one: len(geography.areas(one)[0]))
    rows = pq.read_table(
        release.path / "tables" / f"{table.name}.parquet",
        filters=[("area_type", "=", kind), ("obs_status", "=", ESTIMATED)],
    )
    return posterior_view(
        told, "area", rows, (AREA, *table.margin.names), f"table {table.name}, areas of type {kind}"
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class GeographyView(StoredView):
    """Everything that the report of a release of areas shows.

    ``whole`` says that published counts are whole numbers by another method than the one that intervals are of, and
    ``outside`` how many of these lie outside of the intervals.
    ``unconverged`` is in how many divisions among areas the solver stopped early.
    ``earlier`` are sentences on counts that equal those of an earlier release.
    ``known`` are sentences on what cannot occur, ``limits`` what public files say beside it. ``by_size`` and
    ``by_distance`` are of table ``shown``.
    ``factor`` is half the width of an interval in standard errors. Where counts are ``sparse`` there is none, and
    ``noise`` has the standard deviations of answers, by query and level; None where one is not asked.
    """

    method: str
    whole: bool
    outside: int
    unconverged: int
    areas: int
    counts: int
    known: tuple[str, ...]
    limits: LimitsView | None
    earlier: tuple[str, ...]
    levels: tuple[FanRow, ...]
    distances: tuple[EntityDistance, ...]
    drawing: Drawing | None
    redrawn: bool
    dropped_words: str
    errors: tuple[ErrorRow, ...]
    errors_left: int
    shown: str
    by_distance: tuple[ClassRow, ...]
    by_size: tuple[ClassRow, ...]
    first_kind: str
    people: int | None
    factor: float
    posterior: PosteriorView | None
    sparse: bool
    noise: tuple[tuple[str, tuple[float | None, ...]], ...]
    noise_levels: tuple[str, ...]


def geography_report(release: Release) -> str:
    """The report of a release of areas, from its folder alone: the same text for the same release."""
    view = geography_view(release)
    return render_page(
        "geography.html", view, view.samples, errors_shown=_ERRORS_SHOWN, **stored_context(view)
    )


def geography_view(release: Release) -> GeographyView:
    """What the report shows."""
    geography, about, laws = geography_of(release.spec), release.about, release.product.spine_plan.all_laws
    tables = geography.tables[:_TABLES_SHOWN]
    rows = {table.name: int(about["rows"][table.name]) for table in tables}
    return GeographyView(
        **stored_fields(release, rows, AREA_TYPE, lambda name: "one row a count of an area"),
        **_spine_fields(release, geography),
        **_error_fields(release, geography, tables),
        **_noise_fields(release, geography),
        promise=promise_of(release.spec, statements=statements_of(release.spec), exact=_exact(geography)),
        method=str(about["method"]),
        whole=about["method"] != UNBIASED,
        outside=sum(about.get("outside_intervals", {}).values()),
        unconverged=int(about["unconverged"]),
        areas=sum(about["areas"].values()),
        counts=sum(about["rows"].values()),
        known=tuple(impossible_words(geography)),
        limits=limits_of(geography),
        earlier=tuple(each.words for each in earlier_of(geography)),
        dropped_words=_dropped_words(geography),
        people=about["microdata"],
        factor=interval_factor(release.level, laws),
        posterior=posterior_of(release, geography),
    )


def _spine_fields(release: Release, geography: Geography) -> dict[str, Any]:
    """The spine of the file, the one that was measured, and how far entities lie off both."""
    given, measured = geography.conventional, geography.spine
    distances = GeographyPlan(release.spec).distances
    far = sorted(distances, key=lambda row: -row.conventional_mean)
    every = geography.entities
    entities = {row.entity_type: every[row.entity_type] for row in far if row.entity_type in every}
    units = zip(given.hierarchy.units, measured.hierarchy.units, strict=True)
    return {
        "levels": tuple(fan_rows(given, measured, _shares(measured))),
        "distances": distances,
        "drawing": drawing_of(given, measured, entities, geography.places),
        "redrawn": any(not np.array_equal(before, after) for before, after in units),
    }


def _error_fields(release: Release, geography: Geography, tables: Sequence[AreaTable]) -> dict[str, Any]:
    """Expected errors of the first tables, and of one of them by the size of areas and their distance."""
    if geography.sparse is not None:
        shown, nothing = _most_telling(tables), {"errors": (), "by_distance": (), "by_size": ()}
        left = len(geography.tables) - len(tables)
        return {**nothing, "errors_left": left, "shown": shown.name, "first_kind": shown.areas[0]}
    numbers = {table.name: _numbers(release, geography, table) for table in tables}
    shown = _most_telling(tables)
    return {
        "errors": tuple(
            ErrorRow(table.name, n.kind, len(n.codes), n.cells, n.rmse)
            for table in tables
            for n in numbers[table.name]
        ),
        "errors_left": len(geography.tables) - len(tables),
        "shown": shown.name,
        "first_kind": shown.areas[0],
        "by_distance": tuple(_by_distance(geography, numbers[shown.name])),
        "by_size": tuple(
            row for n in numbers[shown.name] for row in by_class(n, np.maximum(n.published, 0), SIZES)
        ),
    }


def _noise_fields(release: Release, geography: Geography) -> dict[str, Any]:
    """The noise of single answers, where it is all that is known of errors."""
    if geography.sparse is None:
        return {"sparse": False, "noise": (), "noise_levels": ()}
    levels = [row for row in GeographyPlan(release.spec).levels if row.noise]
    noise = [(query.name, tuple(row.noise.get(query.name) for row in levels)) for query in geography.queries]
    return {"sparse": True, "noise": tuple(noise), "noise_levels": tuple(row.level for row in levels)}


def _numbers(release: Release, geography: Geography, table: AreaTable) -> list[AreaNumbers]:
    kinds = [(kind, len(geography.areas(kind)[0])) for kind in geography.area_types if kind in table.areas]
    return area_numbers(release.path, table.name, kinds, table.margin.size)


def _most_telling(tables: Sequence[AreaTable]) -> AreaTable:
    """The table that sizes and distances are shown for: of most types of area, and then the one of fewest counts."""
    return min(tables, key=lambda table: (-len(table.areas), table.margin.size))


def _shares(spine: Spine) -> Mapping[str, str]:
    """The share of the budget of each level's units, as fractions; a range where units differ."""
    assert spine.shares is not None
    found = {}
    for level, index in zip(spine.levels, spine.shares.index, strict=True):
        values = sorted(spine.shares.values[i] for i in np.unique(index) if spine.shares.values[i])
        ends = dict.fromkeys(f"{float(value):.4g}" for value in (*values[:1], *values[-1:]))
        found[level] = " to ".join(ends) or "0"
    return found


def _dropped_words(geography: Geography) -> str:
    count = len(geography.dropped)
    if not count:
        return ""
    leaf = geography.levels[-1]
    return (
        f"Nobody can be in {fixed(count)} areas of type {leaf}: they are not measured, and count exactly 0."
    )


def _exact(geography: Geography) -> Iterator[ExactView]:
    for each in exact_of(geography):
        units = geography.spine.areas(each.level).codes.size
        what = f"{each.margin.name} of each {each.level}" if units > 1 else each.margin.name
        yield ExactView(what, each.reason, units * each.margin.classes)


def _by_distance(geography: Geography, numbers: list[AreaNumbers]) -> Iterator[ClassRow]:
    """Expected errors by the off-spine distance of areas: of entities, and of the file's units that were drawn anew."""
    for each in numbers:
        codes, leaf = geography.areas(each.kind)
        distance = np.zeros(len(codes), np.int64)  # of areas where nobody can be
        distance[np.unique(leaf[leaf >= 0])] = geography.spine.osed(Entities.of_leaves(codes, leaf))
        if each.kind not in geography.levels or (distance > 1).any():
            yield from by_class(each, distance, DISTANCES)
