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
from ..report.rows import interval_picture

_SHOWN = 500
_TILES = 2_000
_PANELS = 36
_SHADES = 5
_AREA_TYPE = "area_type"


@dataclass(frozen=True)
class Row:
    """One row as it is shown.

    ``picture`` is a bar from 0 to the estimate, with its interval; ``shade`` the number of its colour, 0 for none.
    """

    labels: tuple[str, ...]
    estimate: str
    interval: str
    picture: Markup
    shade: int = 0


@dataclass(frozen=True)
class Panel:
    """Rows that have one value in the column that a table is split by; all rows where it is not split."""

    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Shown:
    """What the page shows of a table or an answer.

    ``tiles`` says that it is drawn as tiles, one for each row in the order of the table, coloured by its estimate;
    ``shades`` are the counts of the colours in words. ``kinds`` are the kinds of area that a table is published for.
    """

    name: str
    columns: tuple[str, ...]
    panels: tuple[Panel, ...]
    rows: int
    split: str = ""
    find: str = ""
    splittable: tuple[str, ...] = ()
    tiles: bool = False
    shades: tuple[str, ...] = ()
    kind: str = ""
    kinds: tuple[str, ...] = ()

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
    tiles, kind, kinds = words.get("draw") == "tiles", words.get("kind", ""), ()
    if _AREA_TYPE in columns:
        kinds = tuple(pc.call_function("unique", [table[_AREA_TYPE]]).to_pylist())
        kind = kind if kind in kinds else kinds[0] if tiles and kinds else ""
    if kind:  # a map has areas that do not overlap
        table = table.filter(pa.array([each == kind for each in table[_AREA_TYPE].to_pylist()], pa.bool_()))
        table, columns = table.drop_columns([_AREA_TYPE]), tuple(c for c in columns if c != _AREA_TYPE)
    for word in find.lower().split():
        table = table.filter(_has(table.select(columns), word))
    split = split if split in columns and len(columns) > 1 else ""
    rows = table.slice(0, _TILES if tiles else _SHOWN).to_pylist()
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
    shades = _shades(scale) if tiles else ()
    return Shown(
        name, rest_columns, made, table.num_rows, split, find, splittable, tiles, shades, kind, kinds
    )


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
    picture = interval_picture(estimate, interval, scale)
    return Row(labels, _number(estimate), words, picture, _shade(estimate, scale))


def _shade(estimate: float, scale: tuple[float, float]) -> int:
    """The colour of a count, in equal steps from 1 for 0 and less, in all pictures alike."""
    share = max(estimate, 0.0) / max(scale[1] ** 2, 1e-9)
    return min(int(share * _SHADES), _SHADES - 1) + 1


def _shades(scale: tuple[float, float]) -> tuple[str, ...]:
    """The counts of each colour in words: up to which it has them."""
    return tuple(f"to {_number(max(scale[1], 0.0) ** 2 * (i + 1) / _SHADES)}" for i in range(_SHADES))


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
