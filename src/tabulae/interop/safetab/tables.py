"""T1 and T2: the totals of all published groups, and the tables of sex by age of those that have one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb

from ...errors import ReleaseError
from ...products.groups.levels import TOTAL, TOTAL_ONLY
from ...products.groups.plan import DetailedPlan
from ...products.groups.store import FOLDER, cells_file, level_file
from ...release.folder import sync_file
from ...sources.engines.duckdb import literal, without_bar
from .layout import SEXES, age_ranges

_MEMORY = "2GB"
_PLACE = "region AS REGION_ID, kind AS REGION_TYPE, iteration AS ITERATION_CODE"
_BY_PLACE = "REGION_TYPE, REGION_ID, ITERATION_CODE"
_T1 = f"""
    SELECT {_PLACE}, people AS COUNT FROM totals UNION ALL
    SELECT {_PLACE}, sum(people)::BIGINT AS COUNT FROM cells GROUP BY kind, region, iteration
    ORDER BY {_BY_PLACE}"""  # noqa: S608
_T2 = f"""
    SELECT {_PLACE}, low AS AGESTART, high AS AGEEND, sex AS SEX, people AS COUNT FROM cells UNION ALL
    SELECT {_PLACE}, '*', '*', sex, sum(people)::BIGINT FROM cells GROUP BY kind, region, iteration, sex
    ORDER BY {_BY_PLACE}, AGESTART = '*', TRY_CAST(AGESTART AS INTEGER), SEX"""  # noqa: S608


def write_tables(folder: Path, plan: DetailedPlan, *, allow_negative: bool) -> None:
    """Write T1 and T2 from the measurements of a folder, with production's columns, integers and meaning.

    T1 holds the noisy total of each published group; of a group with a table, the sum of its cells. T2 holds those
    cells, and for each sex their sum, under ``*`` for all ages. Lines are sorted as text.

    Args:
        folder: where the measurements are, and both files are written.
        plan: what was measured, and which totals are left out.
        allow_negative: False where each measured count below 0 is raised to 0 before it is added to others.

    Raises:
        ReleaseError: they cannot be written.
    """
    count = "{}" if allow_negative else "greatest({}, 0)"
    views = {"totals": _totals(folder, plan, count), "cells": _cells(folder, plan, count)}
    scratch = folder / "sort.scratch"
    try:
        with duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": str(scratch)}) as engine:
            without_bar(engine)
            for name, parts in views.items():
                engine.execute(f"CREATE VIEW {name} AS {' UNION ALL '.join(parts)}")
            for name, query in (("t1", _T1), ("t2", _T2)):
                target = folder / name / f"{name}.csv"
                target.parent.mkdir(exist_ok=True)
                engine.execute(
                    f"COPY ({query}) TO {literal(str(target))} (FORMAT csv, DELIMITER '|', HEADER true)"
                )
                sync_file(target)
    except duckdb.Error as error:
        raise ReleaseError(
            f"T1 and T2 cannot be written in {folder}: {error}. Nothing was published; what was charged stays "
            "charged, and --resume finishes the run once this is put right"
        ) from None
    shutil.rmtree(scratch, ignore_errors=True)


def _totals(folder: Path, plan: DetailedPlan, count: str) -> Iterator[str]:
    """Of each level, the totals without a table that are not left out."""
    for i, level in enumerate(plan.adaptive.levels):
        kept = f"rung IN ({TOTAL}, {TOTAL_ONLY})"
        if (floors := plan.left_out(level)) is not None:
            kept += f" AND total > CASE rung WHEN {TOTAL} THEN {floors[0]} ELSE {floors[1]} END"
        yield (
            f'SELECT {literal(level.regions.name)} AS kind, region, "group" AS iteration, '  # noqa: S608
            f"{count.format('total')} AS people FROM {_file(folder, level_file(i, level))} WHERE {kept}"
        )


def _cells(folder: Path, plan: DetailedPlan, count: str) -> Iterator[str]:
    """Of each level and table, the cells by age, then sex."""
    for i, level in enumerate(plan.adaptive.levels):
        for r, table in enumerate(level.ladder.rungs, start=1):
            low, high = ([str(age) for age in ages] for ages in zip(*age_ranges(table.name), strict=True))
            yield (
                f'SELECT {literal(level.regions.name)} AS kind, region, "group" AS iteration, '  # noqa: S608
                f"{low}[1 + cell // {len(SEXES)}] AS low, {high}[1 + cell // {len(SEXES)}] AS high, "
                f"{list(SEXES)}[1 + cell % {len(SEXES)}] AS sex, {count.format('value')} AS people "
                f"FROM {_file(folder, cells_file(i, level, r))}"
            )


def _file(folder: Path, name: str) -> str:
    return f"read_parquet({literal(str(folder / FOLDER / f'{name}.parquet'))})"
