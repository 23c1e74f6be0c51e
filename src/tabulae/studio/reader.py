"""A reader of a release: its tables filtered, sorted and drawn, and answers to SQL, each number with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from ..domain import RESULT_COLUMNS, TOTAL_LABEL
from ..errors import TabulaeError
from ..release import Release
from ..report.numbers import fixed
from ..report.view import interval_picture

_SHOWN = 500
_PANELS = 36


@dataclass(frozen=True)
class Row:
    """One row as it is shown; ``picture`` is a bar from 0 to the estimate, with its interval."""

    labels: tuple[str, ...]
    estimate: str
    interval: str
    picture: Markup


@dataclass(frozen=True)
class Panel:
    """Rows that have one value in the column that a table is split by; all rows where it is not split."""

    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Shown:
    """What the page shows of a table or an answer."""

    name: str
    columns: tuple[str, ...]
    panels: tuple[Panel, ...]
    rows: int
    split: str = ""
    find: str = ""
    splittable: tuple[str, ...] = ()

    @property
    def shown(self) -> int:
        return sum(len(panel.rows) for panel in self.panels)


@dataclass(frozen=True)
class Reading:
    """The page of a release."""

    title: str
    level: str
    tables: tuple[str, ...]
    shown: Shown | None
    sql: str = ""
    trouble: str = ""


def read(release: Release, asked: Mapping[str, Sequence[str]]) -> Reading:
    """What the page shows of a release for what its address asks: a table, or an answer to SQL.

    Privacy:
        Reads the published folder alone, and answers from its measurements: it costs no budget.
    """
    words = {name: values[0] for name, values in asked.items() if values}
    tables, sql = tuple(release.tables), words.get("sql", "").strip()
    title, level = release.spec.title, f"{release.level:.0%}"
    if sql:
        try:
            areas = [area.strip() for area in words.get("areas", "").split(",") if area.strip()]
            found = release.query(sql, areas=areas)
        except TabulaeError as error:
            return Reading(title, level, tables, None, sql, str(error))
        return Reading(title, level, tables, _shown("Answer", found, words), sql)
    name = words.get("table", "")
    name = name if name in release.tables else next(iter(tables), "")
    return Reading(title, level, tables, _shown(name, release.tables[name], words) if name else None)


def _shown(name: str, table: pa.Table, words: Mapping[str, str]) -> Shown:
    """The rows that are asked for, in panels where a column splits them."""
    start = table.column_names.index(RESULT_COLUMNS[0])
    columns = tuple(table.column_names[:start])
    find, split = words.get("find", "").strip(), words.get("split", "")
    for word in find.lower().split():
        table = table.filter(_has(table.select(columns), word))
    split = split if split in columns and len(columns) > 1 else ""
    rows = table.slice(0, _SHOWN).to_pylist()
    scale = _scale(rows)
    at = columns.index(split) if split else None
    panels: dict[str, list[Row]] = {}
    for row in rows:
        labels = tuple("all" if row[column] == TOTAL_LABEL else str(row[column]) for column in columns)
        key = "" if at is None else labels[at]
        if key in panels or len(panels) < _PANELS:
            rest = labels if at is None else (*labels[:at], *labels[at + 1 :])
            panels.setdefault(key, []).append(_row(rest, row, scale))
    rest_columns = tuple(column for column in columns if column != split)
    made = tuple(Panel(key, tuple(each)) for key, each in panels.items())
    splittable = columns if len(columns) > 1 else ()
    return Shown(name, rest_columns, made, table.num_rows, split, find, splittable)


def _has(labels: pa.Table, word: str) -> pa.Array:
    """Whether a word in small letters is in some label of each row."""
    found = np.zeros(labels.num_rows, dtype=bool)
    for column in labels.columns:
        small = pc.call_function("utf8_lower", [column.cast(pa.string())])
        hits = pc.call_function("match_substring", [small], pc.MatchSubstringOptions(word))
        found |= np.array(hits.to_pylist(), dtype=bool)
    return pa.array(found)


def _row(labels: tuple[str, ...], row: Mapping[str, Any], scale: tuple[float, float]) -> Row:
    if row["obs_status"] == "Q" or row["estimate"] is None:
        return Row(labels, "–", "not estimable", Markup(""))
    estimate, ends = float(row["estimate"]), [row["ci_low"], row["ci_high"]]
    interval, words = None, "–"
    if all(end is not None and math.isfinite(end) for end in ends):
        interval = float(ends[0]), float(ends[1])
        words = f"{_number(interval[0])} to {_number(interval[1])}"
    if row["obs_status"] == "E":
        words = "exact"
    return Row(labels, _number(estimate), words, interval_picture(estimate, interval, scale))


def _number(value: float) -> str:
    return fixed(value, 0 if float(value).is_integer() or abs(value) >= 1000 else 1)


def _scale(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The range that the pictures cover, as signed roots: a small count stays visible beside a large one."""

    def ends() -> Iterator[float]:
        for row in rows:
            for name in ("estimate", "ci_low", "ci_high"):
                if row[name] is not None and math.isfinite(row[name]):
                    yield float(row[name])

    found = [0.0, *ends()]
    low, high = (math.copysign(math.sqrt(abs(end)), end) for end in (min(found), max(found)))
    return (low, high) if high > low else (low, low + 1.0)
