"""The files that a program publishes: integers as they were measured, and sums of them, row by row."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from ...errors import ReleaseError
from ...products.groups.levels import TOTAL, TOTAL_ONLY
from ...products.groups.plan import DetailedPlan
from ...products.groups.store import FOLDER, cells_file, level_file
from ...release.folder import sync_file
from ...sources.engines.duckdb import literal, without_bar
from .programs import Program, TableFile

_MEMORY = "2GB"
_PLACE = "kind, region, iteration"


def write_tables(folder: Path, plan: DetailedPlan, program: Program, *, allow_negative: bool) -> None:
    """Write a program's files from the measurements of a folder, with production's columns, integers and meaning.

    A row is a sum of noisy counts of one group in one region. Lines are sorted as text by region type, region and
    iteration; within a group by number, ``*`` last.

    Args:
        folder: where the measurements are, and the files are written.
        plan: what was measured, and which totals are left out.
        program: which files.
        allow_negative: False where each measured count below 0 is raised to 0 before it is added to others.

    Raises:
        ReleaseError: they cannot be written.
    """
    count = "{}" if allow_negative else "greatest({}, 0)"
    parts = [*_totals(folder, plan, count), *_cells(folder, plan, count)]
    scratch = folder / "sort.scratch"
    try:
        with duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": str(scratch)}) as engine:
            without_bar(engine)
            engine.execute(f"CREATE VIEW counts AS {' UNION ALL '.join(parts)}")
            for file in program.files:
                target = folder / f"{file.path}.csv"
                target.parent.mkdir(exist_ok=True)
                engine.register("meaning", _meaning(file))
                engine.execute(
                    f"COPY ({_query(file)}) TO {literal(str(target))} (FORMAT csv, DELIMITER '|', HEADER true)"
                )
                sync_file(target)
    except duckdb.Error as error:
        raise ReleaseError(
            f"{program.tables} cannot be written in {folder}: {error}. Nothing was published; what was charged stays "
            "charged, and --resume finishes the run once this is put right"
        ) from None
    shutil.rmtree(scratch, ignore_errors=True)


def _meaning(file: TableFile) -> pa.Table:
    """Table and cell of each count, and the row of the file that it is added to, with the place of that row."""
    pairs = [
        (table, i, row) for table, cells in file.rows.items() for i, rows in enumerate(cells) for row in rows
    ]
    rank = {row: i for i, row in enumerate(sorted({row for *_, row in pairs}, key=_by_number))}
    named = {"rung": [table for table, *_ in pairs], "cell": [cell for _, cell, _ in pairs]}
    named["rank"] = [rank[row] for *_, row in pairs]
    for i, column in enumerate(file.columns):
        named[column] = [row[i] for *_, row in pairs]
    return pa.table(named)


def _by_number(row: tuple[str, ...]) -> list[tuple[bool, int]]:
    return [(not word.isdigit(), int(word) if word.isdigit() else 0) for word in row]


def _query(file: TableFile) -> str:
    """The rows of one file."""
    columns = "".join(f"{column}, " for column in file.columns)
    return (
        f"SELECT region AS REGION_ID, kind AS REGION_TYPE, iteration AS ITERATION_CODE, {columns}"  # noqa: S608
        f"sum(people)::BIGINT AS COUNT FROM counts JOIN meaning USING (rung, cell) "
        f"WHERE ladder = {literal(file.ladder)} GROUP BY {_PLACE}, {columns}rank ORDER BY {_PLACE}, rank"
    )


def _totals(folder: Path, plan: DetailedPlan, count: str) -> Iterator[str]:
    """Of each level, the totals without a table that are not left out."""
    for i, level in enumerate(plan.adaptive.levels):
        kept = f"rung IN ({TOTAL}, {TOTAL_ONLY})"
        if (floors := plan.left_out(level)) is not None:
            kept += f" AND total > CASE rung WHEN {TOTAL} THEN {floors[0]} ELSE {floors[1]} END"
        yield (
            f'SELECT {literal(level.regions.name)} AS kind, region, "group" AS iteration, '  # noqa: S608
            f"{literal(level.ladder_name)} AS ladder, 'total' AS rung, 0 AS cell, "
            f"{count.format('total')} AS people FROM {_file(folder, level_file(i, level))} WHERE {kept}"
        )


def _cells(folder: Path, plan: DetailedPlan, count: str) -> Iterator[str]:
    """Of each level and table, the cells."""
    for i, level in enumerate(plan.adaptive.levels):
        for r, table in enumerate(level.ladder.rungs, start=1):
            yield (
                f'SELECT {literal(level.regions.name)} AS kind, region, "group" AS iteration, '  # noqa: S608
                f"{literal(level.ladder_name)} AS ladder, {literal(table.name)} AS rung, cell, "
                f"{count.format('value')} AS people FROM {_file(folder, cells_file(i, level, r))}"
            )


def _file(folder: Path, name: str) -> str:
    return f"read_parquet({literal(str(folder / FOLDER / f'{name}.parquet'))})"
