"""Noisy counts of groups on disk: written as they are drawn, piece by piece, and read back the same way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import ReleaseError
from ...privacy import NoiseLaw
from ...release.folder import Rows
from ...release.write import word_column
from ..measured import FOLDER, PieceFiles, charged_id, law_document, loss_document
from .levels import TOTAL_ONLY, AdaptivePlan, GroupMeasurement, GroupMeasurements, PopulationLevel
from .public_counts import NOT_TABULATED

_PLACE_BYTES, _CELL_BYTES, _FILE_BYTES = 48, 10, 1 << 16
_MOST_TABULATED = 1_000_000


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.parquet"


def level_file(position: int, level: PopulationLevel) -> str:
    """The name of a level's file, without ending: its position keeps names apart that look alike."""
    words = "".join(c if c.isalnum() or c in "_." else "_" for c in level.group_level)
    return f"{position + 1:02d}-{level.regions.name}-{words}"


def cells_file(position: int, level: PopulationLevel, rung: int) -> str:
    """The name of the file with the cells of one table of a level, without ending."""
    return f"{level_file(position, level)}-cells-{rung}"


def group_rows(level: PopulationLevel, piece: GroupMeasurement, places: np.ndarray) -> dict[str, pa.Array]:
    """Columns that name the region and the group of each place of a piece, by a dictionary."""
    groups = len(level.groups)
    ids = level.regions.ids[piece.first : piece.first + piece.regions]
    codes = [group.code for group in level.groups.groups]
    return {"region": word_column(places // groups, ids), "group": word_column(places % groups, codes)}


class GroupMeasurementWriter(PieceFiles):
    """Writes each piece of a measurement into the level's files, be they of a level without a region."""

    def __init__(self, folder: Path, plan: AdaptivePlan) -> None:
        self.plan = plan
        nothing = (self._tables(_nothing(i)) for i in range(len(plan.levels)))
        schemas = {name: rows.schema for tables in nothing for name, rows in tables.items()}
        super().__init__(folder, schemas, compression="zstd")

    def __call__(self, piece: GroupMeasurement) -> None:
        """Write one piece."""
        for name, rows in self._tables(piece).items():
            self.write(name, rows)

    def _tables(self, piece: GroupMeasurement) -> dict[str, pa.Table]:
        """The rows of a piece by file: one a place, and one a cell of each place that has the table."""
        level = self.plan.levels[piece.level]
        tabulated = np.flatnonzero(piece.rung != NOT_TABULATED)
        rung = piece.rung[tabulated]
        undrawn = np.full(rung.shape, level.first is None) | (rung == TOTAL_ONLY)
        first = pa.array(piece.stage_one[tabulated], mask=undrawn)
        columns = {"stage_one": first, "rung": rung, "total": piece.totals[tabulated]}
        rows = {
            _path(level_file(piece.level, level)): pa.table(
                {**group_rows(level, piece, tabulated), **columns}
            )
        }
        for rung in range(1, len(level.ladder.rungs) + 1):
            cells = level.ladder.rungs[rung - 1].cells
            places, values = piece.cells.get(rung, (np.zeros(0, np.int64), np.zeros((0, cells), np.int64)))
            named = group_rows(level, piece, np.repeat(places, cells))
            numbered = np.tile(np.arange(cells, dtype=np.int32), len(places))
            counts = pa.table({**named, "cell": numbered, "value": values.ravel()})
            rows[_path(cells_file(piece.level, level, rung))] = counts
        return rows

    def finish(self, done: GroupMeasurements) -> None:
        """See every file onto the disk, then say that the measurement is complete.

        Raises:
            ReleaseError: a rehearsal, which is not for publication.
        """
        release_id = charged_id(done.release_id, rehearsal=done.rehearsal)
        self.close()
        self.complete(release_id, plan_document(self.plan))


def _nothing(level: int) -> GroupMeasurement:
    """The measurement of no region of a level."""
    none, rung = np.zeros(0, np.int64), np.zeros(0, np.int8)
    return GroupMeasurement(level, 0, 0, none, rung, none, {})


def most_bytes(plan: AdaptivePlan) -> int:
    """How large the files of a measurement become at most, if every group gets its largest table.

    A place has two counts of 8 bytes, its table, and its region and group, named in each file; a cell has a count, and
    runs of positions that take next to nothing. Compression makes them a fraction of that. A level of more groups than
    a million is taken to have tables for a million of them: in a nation nearly all groups have next to nobody.
    """
    total = 0
    for level in plan.levels:
        laddered = level.regions.size * int((~level.groups.total_only).sum())
        tabulated = min(laddered, level.places, _MOST_TABULATED)
        cells = max((rung.cells for rung in level.ladder.rungs), default=0)
        total += _PLACE_BYTES * level.places + _CELL_BYTES * tabulated * cells
        total += _FILE_BYTES * (1 + len(level.ladder.rungs))
    return total


def plan_document(plan: AdaptivePlan) -> dict[str, Any]:
    """What was measured and with which noise, exactly: numbers that decide privacy are strings of fractions."""
    return {
        "neighbours": plan.neighbours,
        "budget": loss_document(plan.loss),
        "levels": [_level(i, level) for i, level in enumerate(plan.levels)],
    }


def _level(position: int, level: PopulationLevel) -> dict[str, Any]:
    rungs = level.ladder.rungs
    return {
        "region": level.regions.name,
        "group_level": level.group_level,
        **({"ladder": level.ladder_name} if level.ladder_name else {}),
        "regions": level.regions.size,
        "groups": len(level.groups),
        "budget": loss_document(level.budget),
        "stage_one": str(level.stage_one),
        "thresholds": list(level.thresholds),
        **({} if level.chosen is None else {"chosen_by": {"sha256": level.chosen.sha256}}),
        "stability": {
            "used": level.groups_of_a_record,
            "proven": level.proven.value,
            "is_exact": level.proven.is_exact,
            "record": {family: list(codes) for family, codes in level.proven.witness.items()},
        },
        "rows_per_unit": level.rows_per_unit,
        "laws": {stage: law_document(law) for stage, law in _laws(level).items()},
        "file": _path(level_file(position, level)),
        "cells": {rung.name: _path(cells_file(position, level, r)) for r, rung in enumerate(rungs, start=1)},
    }


def _laws(level: PopulationLevel) -> dict[str, NoiseLaw]:
    laws = {"first": level.first, "second": level.second, "whole": level.whole}
    return {stage: law for stage, law in laws.items() if law is not None}


def read_group_measurements(folder: Path, plan: AdaptivePlan) -> Iterator[GroupMeasurement]:
    """The pieces of a stored measurement, in the plan's order, in regions that fit in memory.

    Raises:
        ReleaseError: the files are not those of the plan, or contradict themselves.
    """
    for i, level in enumerate(plan.levels):
        yield from _read_level(folder, i, level)


_PLACES_READ = 1 << 18


def _read_level(folder: Path, i: int, level: PopulationLevel) -> Iterator[GroupMeasurement]:
    groups = len(level.groups)
    totals = Rows.of_parquet(folder / _path(level_file(i, level)))
    files = [
        Rows.of_parquet(folder / _path(cells_file(i, level, r + 1))) for r in range(len(level.ladder.rungs))
    ]
    step = max(1, _PLACES_READ // max(1, groups))
    for first in range(0, level.regions.size, step):
        regions = min(step, level.regions.size - first)
        tabulated = np.arange(regions * groups)
        if level.chosen is not None:
            tabulated = np.flatnonzero(level.tables_of(first, regions, tabulated) != NOT_TABULATED)
        rows = totals.take(tabulated.size)
        if rows.num_rows != tabulated.size:
            raise ReleaseError(f"{totals.path} does not have every group in every region")
        yield _piece(i, level, first, regions, tabulated, rows, files)
    for file in (totals, *files):
        if file.take(1).num_rows:
            raise ReleaseError(f"{file.path} has more rows than were measured")


def _piece(
    i: int,
    level: PopulationLevel,
    first: int,
    regions: int,
    tabulated: np.ndarray,
    rows: pa.Table,
    files: list[Rows],
) -> GroupMeasurement:
    """One piece, its regions and groups those of the plan and its tables those that were to be chosen."""
    stage_one, totals = (np.zeros(regions * len(level.groups), np.int64) for _ in range(2))
    stage_one[tabulated] = rows["stage_one"].fill_null(0).to_numpy()
    totals[tabulated] = rows["total"].to_numpy()
    rung = level.tables_of(first, regions, stage_one)
    if not np.array_equal(rows["rung"].to_numpy(), rung[tabulated]):
        by = "its stage-one count chooses" if level.chosen is None else "its public count chooses"
        raise ReleaseError(f"{level.name}: a group has another table than {by}")
    cells: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for r, (table, file) in enumerate(zip(level.ladder.rungs, files, strict=True), start=1):
        places = np.flatnonzero(rung == r)
        found = file.take(len(places) * table.cells)
        if found.num_rows != len(places) * table.cells:
            raise ReleaseError(f"{file.path} does not have every cell that was measured")
        values = found["value"].to_numpy().astype(np.int64).reshape(len(places), table.cells)
        if not np.array_equal(values.sum(axis=1), totals[places]):
            raise ReleaseError(f"{file.path}: cells do not add up to the totals of {level.name}")
        piece = GroupMeasurement(i, first, regions, stage_one, rung, totals, {})
        _check_names(level, piece, np.repeat(places, table.cells), found, file.path)
        if len(places):
            cells[r] = (places, values)
    done = GroupMeasurement(i, first, regions, stage_one, rung, totals, cells)
    _check_names(level, done, tabulated, rows, Path(f"{level_file(i, level)}.parquet"))
    return done


def _check_names(
    level: PopulationLevel, piece: GroupMeasurement, places: np.ndarray, rows: pa.Table, path: Path
) -> None:
    """The rows are of the regions and groups that their order says."""
    for name, column in group_rows(level, piece, places).items():
        if not column.cast(pa.string()).equals(rows[name].combine_chunks()):
            raise ReleaseError(f"{path}: a row is not of the {name} that its place says")
