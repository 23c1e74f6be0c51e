"""Published counts of groups: from noisy counts of two stages to rows with estimates and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..adaptive import (
    TOTAL,
    TOTAL_ONLY,
    GroupMeasurement,
    PopulationLevel,
)
from ..estimation.two_stage import (
    GroupEstimates,
    cell_estimates,
    total_estimates,
)
from ..spec import Suppression
from .group_measurements import group_rows
from .tables import ESTIMATED, label_columns

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
    level: PopulationLevel, piece: GroupMeasurement, suppress: Suppression | None, confidence: float
) -> GroupTables:
    """The published rows of one piece, a function of its noisy counts alone."""
    rungs = [
        r for r in (TOTAL_ONLY, TOTAL, *range(1, len(level.ladder.rungs) + 1)) if (piece.rung == r).any()
    ]
    places = {r: np.flatnonzero(piece.rung == r) for r in rungs}
    totals, left_out = _totals(level, piece, places, suppress, confidence)
    rows = {TOTALS: totals}
    for r in rungs:
        if r > TOTAL:
            rows[rung_name(level, r)] = _cells(level, piece, r, confidence)
    chosen = {rung_name(level, r): len(found) for r, found in places.items()}
    return GroupTables(rows, chosen, left_out)


def _totals(
    level: PopulationLevel,
    piece: GroupMeasurement,
    places: Mapping[int, np.ndarray],
    suppress: Suppression | None,
    confidence: float,
) -> tuple[pa.Table, int]:
    """One row a group and region, in their order."""
    numbers = np.zeros((len(_NUMBERS), len(piece.rung)))
    kept = np.ones(len(piece.rung), bool)
    for r, at in places.items():
        found = total_estimates(level, r, piece.stage_one[at], piece.totals[at], confidence)
        numbers[:, at] = _numbers(found)
        if suppress is not None and level.regions.name in suppress.regions and r <= TOTAL:
            law = level.whole if r == TOTAL_ONLY else level.second
            kept[at] = piece.totals[at] > suppress.floor(law)
    shown = np.flatnonzero(kept)
    names = group_rows(level, piece, shown)
    groups = len(level.groups)
    labels = pa.array([group.label or group.code for group in level.groups.groups], pa.string())
    tables = [rung_name(level, r) for r in range(TOTAL_ONLY, len(level.ladder.rungs) + 1)]
    columns = {
        "region": names["region"],
        "group": names["group"],
        "label": pa.DictionaryArray.from_arrays((shown % groups).astype(np.int32), labels),
        "table": pa.DictionaryArray.from_arrays(
            (piece.rung[shown] - TOTAL_ONLY).astype(np.int32), pa.array(tables)
        ),
    }
    return _rows(level, columns, numbers[:, shown]), int((~kept).sum())


def _cells(level: PopulationLevel, piece: GroupMeasurement, rung: int, confidence: float) -> pa.Table:
    """One row a cell of the table of each group that got it."""
    places, values = piece.cells[rung]
    table = level.ladder.rungs[rung - 1]
    found = cell_estimates(level, rung, piece.stage_one[places], values, confidence)
    names = group_rows(level, piece, np.repeat(places, table.cells))
    headings = {}
    for heading, labels in label_columns(dict(table.columns)).items():
        index = np.tile(labels.indices.to_numpy(), len(places))
        headings[heading] = pa.DictionaryArray.from_arrays(index, labels.dictionary)
    return _rows(level, {**names, **headings}, _numbers(found).reshape(len(_NUMBERS), -1))


def _numbers(found: GroupEstimates) -> np.ndarray:
    """Estimate, standard error and both ends of the interval."""
    return np.stack([found.estimate, np.sqrt(found.variance), found.ci_low, found.ci_high])


def _rows(level: PopulationLevel, names: Mapping[str, pa.Array], numbers: np.ndarray) -> pa.Table:
    """Columns as they are published: words as dictionaries, then numbers."""
    count = numbers.shape[1]

    def constant(word: str) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([word]))

    return pa.table(
        {
            "region_type": constant(level.regions.name),
            **names,
            **dict(zip(_NUMBERS, numbers, strict=True)),
            "obs_status": constant(ESTIMATED),
        }
    )
