"""Published counts of groups: from noisy counts of two stages to rows with estimates and intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...errors import ReleaseError
from ...estimation.intervals import Interval
from ...release import folder as f
from ...release.folder import PublishedRows, TableWriter, plain
from ...release.progress import Progress, Say, quiet
from ...release.write import (
    CREDIBLE,
    ESTIMATED,
    csv_resource,
    data_package,
    label_columns,
    status_field,
    word_column,
)
from ...spec import Spec
from ...spec.promise import POSTERIOR
from ..product import Charged
from .estimate import GroupEstimates, cell_estimates, total_estimates
from .levels import TOTAL, TOTAL_ONLY, AdaptivePlan, GroupMeasurement, PopulationLevel
from .plan import detailed_of
from .public_counts import NOT_TABULATED
from .spec import Suppression
from .store import group_rows, plan_document, read_group_measurements

if TYPE_CHECKING:
    from .posterior import GroupPosterior

TOTALS = "totals"
"""The table with a row for each group in each region."""

_NAMES = {TOTAL: "total", TOTAL_ONLY: "total only"}
_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")


@dataclass(frozen=True, eq=False)
class GroupTables:
    """What one piece of a measurement publishes: rows by table, and how many groups got which table.

    ``suppressed`` of the totals are left out.
    """

    rows: Mapping[str, pa.Table]
    chosen: Mapping[str, int]
    suppressed: int


def rung_name(level: PopulationLevel, rung: int) -> str:
    """What the table on a rung is called."""
    return _NAMES[rung] if rung in _NAMES else level.ladder.rungs[rung - 1].name


def group_tables(
    level: PopulationLevel,
    piece: GroupMeasurement,
    suppress: Suppression | None,
    confidence: float,
    drawn: GroupPosterior | None = None,
) -> GroupTables:
    """The published rows of one piece, a function of its noisy counts alone, or of whole tables ``drawn`` given all."""
    rungs = [
        r for r in (TOTAL_ONLY, TOTAL, *range(1, len(level.ladder.rungs) + 1)) if (piece.rung == r).any()
    ]
    places = {r: np.flatnonzero(piece.rung == r) for r in rungs}
    totals, left_out = _totals(level, piece, places, suppress, confidence, drawn)
    rows = {TOTALS: totals}
    for r in rungs:
        if r > TOTAL:
            rows[rung_name(level, r)] = _cells(level, piece, r, confidence, drawn)
    chosen = {rung_name(level, r): len(found) for r, found in places.items()}
    return GroupTables(rows, chosen, left_out)


def _totals(
    level: PopulationLevel,
    piece: GroupMeasurement,
    places: Mapping[int, np.ndarray],
    suppress: Suppression | None,
    confidence: float,
    drawn: GroupPosterior | None,
) -> tuple[pa.Table, int]:
    """One row a group and region, in their order."""
    numbers = np.zeros((len(_NUMBERS), len(piece.rung)))
    tabulated = piece.rung != NOT_TABULATED
    kept = tabulated.copy()
    for r, at in places.items():
        found = total_estimates(level, r, piece.stage_one[at], piece.totals[at], confidence)
        numbers[:, at] = _numbers(found)
        if suppress is not None and level.regions.name in suppress.regions and r <= TOTAL:
            law = level.whole if r == TOTAL_ONLY else level.second
            kept[at] = piece.totals[at] > suppress.floor(law)
    shown = np.flatnonzero(kept)
    names = group_rows(level, piece, shown)
    groups = len(level.groups)
    labels = (group.label or group.code for group in level.groups.groups)
    tables = [rung_name(level, r) for r in range(TOTAL_ONLY, len(level.ladder.rungs) + 1)]
    ladder = {"ladder": word_column(np.zeros(shown.size), [level.ladder_name])} if level.ladder_name else {}
    columns = {
        "region": names["region"],
        "group": names["group"],
        **ladder,
        "label": word_column(shown % groups, labels),
        "table": word_column(piece.rung[shown] - TOTAL_ONLY, tables),
    }
    numbers, ends = _drawn(drawn, piece, shown, TOTAL, numbers[:, shown], confidence)
    return _rows(level, columns, numbers, ends), int((tabulated & ~kept).sum())


def _drawn(
    drawn: GroupPosterior | None,
    piece: GroupMeasurement,
    places: np.ndarray,
    rung: int,
    numbers: np.ndarray,
    confidence: float,
) -> tuple[np.ndarray, list[pa.Array] | None]:
    """Whole counts in place of estimates, within both intervals; and the credible one, where whole tables are drawn."""
    if drawn is None:
        return numbers, None
    count = drawn.published(piece, places, rung).ravel()
    ends = drawn.ends(piece, places, rung, confidence)
    numbers = np.stack([count, numbers[1], np.minimum(numbers[2], count), np.maximum(numbers[3], count)])
    if ends is None:
        return numbers, [pa.nulls(count.size, pa.int64())] * 2
    return numbers, [
        pa.array(f(end.ravel(), count)) for f, end in zip((np.minimum, np.maximum), ends, strict=True)
    ]


def _cells(
    level: PopulationLevel,
    piece: GroupMeasurement,
    rung: int,
    confidence: float,
    drawn: GroupPosterior | None,
) -> pa.Table:
    """One row a cell of the table of each group that got it."""
    places, values = piece.cells[rung]
    table = level.ladder.rungs[rung - 1]
    found = cell_estimates(level, rung, piece.stage_one[places], values, confidence)
    names = group_rows(level, piece, np.repeat(places, table.cells))
    headings = {}
    for heading, labels in label_columns(dict(table.columns)).items():
        index = np.tile(labels.indices.to_numpy(), len(places))
        headings[heading] = pa.DictionaryArray.from_arrays(index, labels.dictionary)
    numbers = _numbers(found).reshape(len(_NUMBERS), -1)
    numbers, ends = _drawn(drawn, piece, places, rung, numbers, confidence)
    return _rows(level, {**names, **headings}, numbers, ends)


def _numbers(found: GroupEstimates) -> np.ndarray:
    """Estimate, standard error and both ends of the interval, cut at what a count of people cannot be."""
    interval = Interval(found.ci_low, found.ci_high, least=0.0, whole=True)
    return np.stack([found.estimate, np.sqrt(found.variance), *interval.ends()])


def _rows(
    level: PopulationLevel,
    names: Mapping[str, pa.Array],
    numbers: np.ndarray,
    credible: list[pa.Array] | None,
) -> pa.Table:
    """Columns as they are published: words as dictionaries, then numbers."""
    count = numbers.shape[1]

    def constant(word: str) -> pa.DictionaryArray:
        return word_column(np.zeros(count), [word])

    return pa.table(
        {
            "region_type": constant(level.regions.name),
            **names,
            **dict(zip(_NUMBERS, numbers, strict=True)),
            **dict(zip(CREDIBLE, credible or (), strict=credible is not None)),
            "obs_status": constant(ESTIMATED),
        }
    )


def table_schemas(spec: Spec) -> dict[str, pa.Schema]:
    """Columns of each published table of groups."""
    detailed = spec.detailed
    assert detailed is not None
    drawn = CREDIBLE if spec.method.estimate == POSTERIOR else ()
    words, number = pa.dictionary(pa.int32(), pa.string()), pa.float64()

    def schema(*names: str) -> pa.Schema:
        fields = [(name, words) for name in ("region_type", "region", "group", *names)]
        fields += [(name, number) for name in ("estimate", "std_error", "ci_low", "ci_high")]
        fields += [(name, pa.int64()) for name in drawn]
        return pa.schema([*fields, ("obs_status", words)])

    tables = {rung.name: schema(*rung.columns) for rung in detailed.rungs}
    ladder = () if "" in detailed.ladders else ("ladder",)
    return {TOTALS: schema(*ladder, "label", "table"), **tables}


def write_groups(
    folder: Path, spec: Spec, plan: AdaptivePlan, charged: Charged, level: float, say: Say, **about: Any
) -> None:
    """Write the tables, and the descriptor with what else is to be said ``about`` the release."""
    assert spec.detailed is not None
    drawn = drawn_of(folder, spec, plan, say)
    chosen: list[Counter[str]] = [Counter() for _ in plan.levels]
    suppressed: Counter[int] = Counter()
    done = 0.0
    with TableWriter(folder / "tables", table_schemas(spec)) as tables:
        for piece in read_group_measurements(folder, plan):
            made = group_tables(plan.levels[piece.level], piece, spec.detailed.suppress, level, drawn)
            chosen[piece.level].update(made.chosen)
            suppressed[piece.level] += made.suppressed
            for name, rows in made.rows.items():
                tables.write(name, rows)
            done += plan.share(piece)
            say(Progress("estimating and writing tables", done))
    f.sync_folder(folder / "tables")
    if drawn is not None:
        drawn.write(folder)
    told = [
        {"level": at.name, "groups_by_table": dict(chosen[i]), "suppressed": suppressed[i]}
        for i, at in enumerate(plan.levels)
    ]
    about = {
        **about,
        "release_id": charged.release_id,
        "interval_level": level,
        "obs_status": "A estimated",
        "levels": told,
        "rows": dict(tables.rows),
    }
    resources = [_resource(name, schema) for name, schema in tables.schemas.items()]
    f.write_json(folder / f.DESCRIPTOR, data_package(spec, resources, about, charged.time))


def drawn_of(folder: Path, spec: Spec, plan: AdaptivePlan, say: Say = quiet) -> GroupPosterior | None:
    """Whole tables drawn from a stored measurement, where the spec asks for them."""
    if spec.method.estimate != POSTERIOR:
        return None
    from .posterior import GroupPosterior  # its sampler is compiled, and groups alone need no compiler

    say(Progress("posterior: drawing whole tables"))
    return GroupPosterior.of(plan, read_group_measurements(folder, plan), spec.method.seed)


def _resource(name: str, schema: pa.Schema) -> dict[str, Any]:
    words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    fields = [
        {"name": field.name, "type": "integer", "description": CREDIBLE[field.name]}
        if field.name in CREDIBLE
        else {"name": field.name, "type": "string" if field.name in words else "number"}
        for field in schema
    ]
    fields[-1] = status_field("A estimated", ["A"])
    key = [word for word in words if word not in ("label", "table", "obs_status")]
    return csv_resource(f"tables/{name}.csv", name, fields, key)


def group_faults(folder: Path, spec: Spec, plan: AdaptivePlan, confidence: float) -> Iterator[str]:
    """What is wrong with a release of groups, one sentence a fault; it stops at the first of each table.

    Checks that noise, stability and budgets are those of the spec, that each table is the one that the noisy count of
    stage one chose, and every published number and drawn table against the measurements.
    """
    detailed = detailed_of(spec)
    stored = f.read_json(folder, f.MEASUREMENT)
    if {key: value for key, value in stored.items() if key != "release_id"} != plan_document(plan):
        yield f"{f.MEASUREMENT}: levels, noise or stability are not those of {f.SPEC}"
        return
    files = {
        name: PublishedRows(folder / "tables", name, plain(schema))
        for name, schema in table_schemas(spec).items()
    }
    chosen: list[Counter[str]] = [Counter() for _ in plan.levels]
    try:
        drawn = drawn_of(folder, spec, plan)
        if drawn is not None:
            yield from drawn.faults(folder)
        for piece in read_group_measurements(folder, plan):
            made = group_tables(plan.levels[piece.level], piece, detailed.suppress, confidence, drawn)
            chosen[piece.level].update(made.chosen)
            _compare(files, made)
        for file in files.values():
            file.end()
    except ReleaseError as error:
        yield str(error)
        return
    yield from (fault for file in files.values() for fault in file.faults)
    told = [entry["groups_by_table"] for entry in f.read_json(folder, f.DESCRIPTOR)["tabulae"]["levels"]]
    if told != [dict(count) for count in chosen]:
        yield f"{f.DESCRIPTOR}: how many groups got which table is not what the measurements say"


def _compare(files: dict[str, PublishedRows], made: GroupTables) -> None:
    for name, rows in made.rows.items():
        files[name].compare(rows)
