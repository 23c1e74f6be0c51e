"""A release as plain CSV: one file a table, codes beside labels, and a Data Package that describes the columns."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from ..release import Release
from ..release.folder import close_all, sync_file, write_bytes, write_json
from ..release.write import named_apart, slug
from .stored import STATUS, STATUSES, Category, CodeLists, StoredTable, csv_readme, translated, unique

DESCRIPTOR = "datapackage.json"
_CODES = "codes"


@dataclass(frozen=True)
class Column:
    """A column of the file that is written: which one of the table it is, and whether it has the codes of that."""

    name: str
    of: str
    codes: bool = False


def write_plain_csv(release: Release, tables: list[StoredTable], lists: CodeLists, folder: Path) -> None:
    """Write ``tables/NAME.csv``, ``derived/NAME.csv``, ``codes/``, ``datapackage.json`` and ``README.md``."""
    resources = []
    for table in tables:
        columns = columns_of(table, lists)
        _write(table, columns, lists, folder / f"{table.folder}/{table.name}.csv")
        resources.append(_resource(table, columns))
    copied = [path for path in sorted((release.path / _CODES).glob("*.csv")) if path.stem in lists]
    for path in copied:
        (folder / _CODES).mkdir(exist_ok=True)
        shutil.copyfile(path, folder / _CODES / path.name)
    write_json(folder / DESCRIPTOR, _package(release, resources))
    write_bytes(folder / "README.md", csv_readme(release, tables).encode())


def columns_of(table: StoredTable, lists: CodeLists) -> list[Column]:
    """The columns of a table, each followed by its codes where these are not the labels."""
    present = {*table.words, *table.numbers}
    made: list[Column] = []
    for key in table.keys:
        made.append(Column(key, key))
        if _coded(lists[key], table.values[key]):
            free = unique([f"{key}_code"], taken=present)[0]
            present.add(free)
            made.append(Column(free, key, codes=True))
    return [*made, *(Column(name, name) for name in (*table.beside, *table.numbers, STATUS))]


def _coded(categories: Mapping[str, Category], values: Iterable[str]) -> bool:
    return any(categories[value].code != value for value in values)


def pieces(
    table: StoredTable, columns: list[Column], lists: CodeLists
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of these columns, and the rows of the table in them, some at a time."""
    schema = pa.schema([(c.name, table.numbers.get(c.of, pa.string())) for c in columns])
    codes = {c.of: {v: lists[c.of][v].code for v in table.values[c.of]} for c in columns if c.codes}

    def column(batch: pa.RecordBatch, c: Column) -> pa.Array:
        stored = batch.column(c.of)
        return translated(stored, codes[c.of]) if c.codes else stored.cast(schema.field(c.name).type)

    rows = (pa.record_batch([column(batch, c) for c in columns], schema=schema) for batch in table.batches())
    return schema, rows


def _write(table: StoredTable, columns: list[Column], lists: CodeLists, path: Path) -> None:
    schema, rows = pieces(table, columns, lists)
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        writer, failed = pyarrow.csv.CSVWriter(file, schema), True
        try:
            for batch in rows:
                writer.write_batch(batch)
            failed = False
        finally:
            close_all([writer], failed=failed)
    sync_file(path)


def _package(release: Release, resources: list[dict[str, Any]]) -> dict[str, Any]:
    """A Frictionless Data Package over the files."""
    about = release.about
    return {
        "profile": "tabular-data-package",
        "name": release.descriptor["name"],
        "title": release.spec.title,
        "created": release.descriptor["created"],
        "sources": [{"title": f"release {about['release_id']}, made by tabulae {about['version']}"}],
        "resources": named_apart(resources),
    }


def _resource(table: StoredTable, columns: list[Column]) -> dict[str, Any]:
    return {
        "name": slug(table.name),
        "title": table.title,
        "path": f"{table.folder}/{table.name}.csv",
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "schema": {"fields": [_field(table, c) for c in columns], "primaryKey": list(table.keys)},
    }


def _field(table: StoredTable, column: Column) -> dict[str, Any]:
    if column.of in table.numbers:
        kind = "integer" if pa.types.is_integer(table.numbers[column.of]) else "number"
        return {"name": column.name, "type": kind}
    if column.of == STATUS:
        meaning = "; ".join(f"{letter}: {status.meaning}" for letter, status in STATUSES.items())
        limits = {"enum": list(STATUSES)}
        return {"name": column.name, "type": "string", "description": meaning, "constraints": limits}
    told = {"description": f"code of {column.of}"} if column.codes else {}
    return {"name": column.name, "type": "string", **told}
