"""A release as JSON-stat 2.0: one dataset a table, or one for each kind of area where a table is of several."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa

from ..release import Release
from ..release.folder import sync_file, write_bytes, write_json
from .stored import STATUS, STATUSES, Category, CodeLists, StoredTable, json_stat_readme, unique

_LABELS = {
    "estimate": "Estimate",
    "std_error": "Standard error",
    "ci_low": "Lower end of the interval",
    "ci_high": "Upper end of the interval",
    "credible_low": "Lower end of the credible interval",
    "credible_high": "Upper end of the credible interval",
    "gls_estimate": "Unbiased estimate; the interval is about it",
}
_AREAS = ("area", "region")


def write_json_stat(release: Release, tables: list[StoredTable], lists: CodeLists, folder: Path) -> None:
    """Write a file for each dataset, ``collection.json`` and ``README.md``."""
    items, rows = [], {}
    for whole in tables:
        (folder / whole.folder).mkdir(exist_ok=True)
        parts = [(f".{part}", whole.of_part(part), part) for part in whole.parts]
        for ending, table, part in parts or [("", whole, None)]:
            name = f"{whole.folder}/{whole.name}{ending}.json"
            head = _head(release, table, lists, part)
            _write(folder / name, head, _extension(release), table, part)
            rows[name] = table.rows
            items.append({"class": "dataset", "href": name, "label": head["label"]})
    write_json(
        folder / "collection.json",
        {
            "version": "2.0",
            "class": "collection",
            "label": release.spec.title,
            "updated": release.descriptor["created"],
            "link": {"item": items},
        },
    )
    write_bytes(folder / "README.md", json_stat_readme(release, rows).encode())


def _head(release: Release, table: StoredTable, lists: CodeLists, part: str | None) -> dict[str, Any]:
    metric = unique(["measure"], taken=table.keys)[0]
    dimension = {
        key: _dimension(key, [lists[key][value] for value in table.values[key]]) for key in table.keys
    }
    dimension[metric] = _dimension(metric, [Category(n, n, n, _LABELS[n]) for n in table.numbers])
    areas = [] if part is None else [key for key in table.keys if key in _AREAS]
    return {
        "version": "2.0",
        "class": "dataset",
        "label": f"{release.spec.title}: {table.title}" + ("" if part is None else f", {part}"),
        "source": f"Release {release.about['release_id']}, made by tabulae {release.about['version']}",
        "updated": release.descriptor["created"],
        "id": [*table.keys, metric],
        "size": [*_shape(table), len(table.numbers)],
        "role": {"metric": [metric], **({"geo": areas} if areas else {})},
        "dimension": dimension,
    }


def _extension(release: Release) -> dict[str, Any]:
    """What the format has no place for."""
    meanings = {letter: status.meaning for letter, status in STATUSES.items()}
    return {"interval_level": release.level, "status": {"label": meanings}}


def _dimension(label: str, categories: Sequence[Category]) -> dict[str, Any]:
    codes = {each.value: each.code for each in categories}
    below: dict[str, list[str]] = {}
    for each in categories:
        if each.parent in codes:
            below.setdefault(codes[each.parent], []).append(each.code)
    category = {"index": list(codes.values()), "label": {each.code: each.name for each in categories}}
    return {"label": label, "category": {**category, **({"child": below} if below else {})}}


def _shape(table: StoredTable) -> list[int]:
    return [len(table.values[key]) for key in table.keys]


def _write(
    path: Path, head: dict[str, Any], extension: dict[str, Any], table: StoredTable, part: str | None
) -> None:
    dense = _in_order(table, part)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head, ensure_ascii=False, allow_nan=False)[:-1])
        file.write(',\n"value": ')
        _pieces(file, _values(table, part, dense=dense), "[]" if dense else "{}")
        file.write(',\n"status": ')
        letters = _letters(table, part)
        if len(letters) == 1:
            file.write(json.dumps(letters.pop()))
        else:
            _pieces(file, _statuses(table, part), "{}")
        file.write(',\n"extension": ' + json.dumps(extension, ensure_ascii=False)[:-1])
        _beside(file, table, part)
        file.write("}}\n")
    sync_file(path)


def _pieces(file: TextIO, pieces: Iterator[list[Any] | dict[str, Any]], brackets: str) -> None:
    file.write(brackets[0])
    before = ""
    for piece in pieces:
        if piece:
            file.write(before + json.dumps(piece, ensure_ascii=False, allow_nan=False)[1:-1])
            before = ",\n"
    file.write(brackets[1])


def _places(batch: pa.RecordBatch, table: StoredTable) -> np.ndarray:
    """Shape (rows,): where each row stands among all combinations of categories, the last one varying fastest."""
    place = np.zeros(batch.num_rows, np.int64)
    for key, size in zip(table.keys, _shape(table), strict=True):
        column = batch.column(key)
        position = {value: i for i, value in enumerate(table.values[key])}
        local = np.array([position.get(value, 0) for value in column.dictionary.to_pylist()], np.int64)
        place = place * size + local[column.indices.to_numpy()]
    return place


def _in_order(table: StoredTable, part: str | None) -> bool:
    """Whether every combination of categories has a row, and they stand in order."""
    if table.rows != int(np.prod(_shape(table), dtype=object)):
        return False
    first = 0
    for batch in table.batches(part):
        if not np.array_equal(_places(batch, table), np.arange(first, first + batch.num_rows)):
            return False
        first += batch.num_rows
    return True


def _values(table: StoredTable, part: str | None, *, dense: bool) -> Iterator[list[Any] | dict[str, Any]]:
    width = len(table.numbers)
    for batch in table.batches(part):
        columns = [_plain(batch.column(name)) for name in table.numbers]
        values = [value for row in zip(*columns, strict=True) for value in row]
        if dense:
            yield values
        else:
            yield dict(zip(_cells(_places(batch, table), width), values, strict=True))


def _plain(column: pa.Array) -> list[Any]:
    """Numbers as Python has them; None for what is not a number, which JSON cannot say."""
    if pa.types.is_integer(column.type):
        return column.to_pylist()
    numbers = column.to_numpy(zero_copy_only=False)
    return [
        value if finite else None
        for value, finite in zip(numbers.tolist(), np.isfinite(numbers), strict=True)
    ]


def _cells(places: np.ndarray, width: int) -> list[str]:
    return [str(cell) for cell in (places[:, None] * width + np.arange(width)).ravel().tolist()]


def _letters(table: StoredTable, part: str | None) -> set[str]:
    found: set[str] = set()
    for batch in table.batches(part):
        found.update(batch.column(STATUS).unique().cast(pa.string()).to_pylist())
    return found


def _statuses(table: StoredTable, part: str | None) -> Iterator[dict[str, Any]]:
    """The statuses that are not the common one."""
    width, common = len(table.numbers), next(iter(STATUSES))
    for batch in table.batches(part):
        letters = np.array(batch.column(STATUS).cast(pa.string()).to_pylist(), dtype=object)
        other = letters != common
        cells = _cells(_places(batch, table)[other], width)
        yield dict(zip(cells, np.repeat(letters[other], width).tolist(), strict=True))


def _beside(file: TextIO, table: StoredTable, part: str | None) -> None:
    """Words that follow from a row's keys, by the position of its estimate."""
    width = len(table.numbers)
    for name in table.remarks:
        file.write(f",\n{json.dumps(name)}: ")
        words = (
            dict(
                zip(
                    (str(place * width) for place in _places(batch, table).tolist()),
                    batch.column(name).cast(pa.string()).to_pylist(),
                    strict=True,
                )
            )
            for batch in table.batches(part)
        )
        _pieces(file, iter(words), "{}")
