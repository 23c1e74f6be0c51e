"""A release for spreadsheets, as plain CSV or as a workbook (XLSX).

Plain CSV is one file a table, codes beside labels, with a Data Package that describes the columns. A workbook has notes
first, then one sheet a table. Words are words and never formulas; numbers are the published ones, to the last digit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from ..errors import Unsupported, require
from ..release import Release
from ..release.folder import close_all, sync_file, write_bytes, write_json
from ..release.write import named_apart, slug
from .stored import (
    STATUS,
    STATUSES,
    Category,
    CodeLists,
    StoredTable,
    csv_readme,
    interval_words,
    translated,
    unique,
    workbook_readme,
)

if TYPE_CHECKING:
    from xlsxwriter.format import Format
    from xlsxwriter.worksheet import Worksheet

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


_MOST_ROWS = 2**20 - 1  # of a sheet, besides its headings
_MOST_LETTERS = 32_767  # of a cell
_NOTES = "Notes"
_LONGEST = 31  # name of a sheet
_WIDEST = 60  # letters of a column as it is first shown
_NOT_IN_SHEETS = str.maketrans(dict.fromkeys("[]:*?/\\", "_"))


class _Exact(float):
    """A number that is written with all the digits that make it: the writer would round it to sixteen."""

    def __format__(self, wanted: str) -> str:
        return repr(float(self))


@dataclass(frozen=True)
class Sheet:
    """One table of a workbook: its name and title, how many rows it has, and the rows, some at a time."""

    name: str
    title: str
    rows: int
    schema: pa.Schema
    pieces: Iterable[pa.RecordBatch]


def write_xlsx(release: Release, tables: list[StoredTable], lists: CodeLists, folder: Path) -> None:
    """Write ``release.xlsx`` and ``README.md``."""
    sheets = []
    for table in tables:
        columns = columns_of(table, lists)
        schema, rows = pieces(table, columns, lists)
        sheets.append(Sheet(table.name, table.title, table.rows, schema, rows))
    write_workbook(folder / "release.xlsx", release.spec.title, _about(release), sheets, _made(release))
    names = sheet_names([table.name for table in tables])
    told = {name: (table.folder, table.name, table.rows) for name, table in zip(names, tables, strict=True)}
    write_bytes(folder / "README.md", workbook_readme(release, told).encode())


def _made(release: Release) -> datetime:
    return datetime.fromisoformat(release.descriptor["created"]).replace(tzinfo=None)


def _about(release: Release) -> list[str]:
    about = release.about
    return [
        f"Release {about['release_id']}, made by tabulae {about['version']} at {release.descriptor['created']}.",
        f"Of std_error, ci_low and ci_high: {interval_words(release)}.",
        f"The column {STATUS} says of each number:",
        *(f"{letter}: {status.meaning}" for letter, status in STATUSES.items()),
    ]


def answer_notes(release: Release, statement: str) -> list[str]:
    """What the first sheet says of an answer."""
    return [statement, *_about(release)]


def sheet_names(names: Sequence[str]) -> list[str]:
    """Names as sheets can have them: short, without signs that they may not have, different whatever their case.

    >>> sheet_names(["by age/sex", "notes", "Notes", "a" * 40])
    ['by age_sex', 'notes_2', 'Notes_3', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaa']
    """
    short = [name.translate(_NOT_IN_SHEETS).strip("'")[: _LONGEST - 3] or "table" for name in names]
    made = unique([name.lower() for name in short], taken={_NOTES.lower(), "history"})
    return [name + free[len(name) :] for name, free in zip(short, made, strict=True)]


def write_workbook(
    path: Path, title: str, notes: Sequence[str], sheets: Sequence[Sheet], made: datetime
) -> None:
    """Write a workbook.

    Raises:
        Unsupported: a table has more rows than a sheet.
        MissingDependency: without XlsxWriter.
    """
    long = [sheet for sheet in sheets if sheet.rows > _MOST_ROWS]
    if long:
        raise Unsupported(
            f"table {long[0].name!r} has {long[0].rows:,} rows, and a sheet holds {_MOST_ROWS:,}: write it as csv"
        )
    xlsxwriter = require("xlsxwriter", None, "writing workbooks")
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(str(path), options) as book:
        book.set_properties({"title": title, "created": made})
        bold, link = book.add_format({"bold": True}), book.get_default_url_format()
        names = sheet_names([sheet.name for sheet in sheets])
        _write_notes(
            book.add_worksheet(_NOTES), title, notes, dict(zip(names, sheets, strict=True)), bold, link
        )
        for name, sheet in zip(names, sheets, strict=True):
            _write_sheet(book.add_worksheet(name), sheet, bold)
    sync_file(path)


def _write_notes(
    page: Worksheet, title: str, notes: Sequence[str], sheets: Mapping[str, Sheet], bold: Format, link: Format
) -> None:
    page.set_column(0, 0, _LONGEST + 2)
    page.set_column(1, 1, _WIDEST)
    lines: list[tuple[str, ...]] = [(title,), *((note,) for note in notes), (), ("sheet", "table", "rows")]
    for at, line in enumerate(lines):
        for column, text in enumerate(line):
            page.write_string(at, column, text[:_MOST_LETTERS], bold if at in (0, len(lines) - 1) else None)
    for at, (name, sheet) in enumerate(sheets.items(), len(lines)):
        quoted = name.replace("'", "''")
        page.write_url(at, 0, f"internal:'{quoted}'!A1", link, name)
        page.write_string(at, 1, sheet.title[:_MOST_LETTERS])
        page.write_number(at, 2, sheet.rows)


def _write_sheet(page: Worksheet, sheet: Sheet, bold: Format) -> None:
    words = [pa.types.is_string(field.type) for field in sheet.schema]
    for column, field in enumerate(sheet.schema):
        page.set_column(
            column, column, min(_WIDEST, max(10, len(field.name) + 2, 24 if words[column] else 0))
        )
        page.write_string(0, column, field.name, bold)
    page.freeze_panes(1, 0)
    at = 0
    for piece in sheet.pieces:
        for row in zip(*(column.to_pylist() for column in piece.columns), strict=True):
            at += 1
            for column, value in enumerate(row):
                _write_cell(page, at, column, value)
    page.autofilter(0, 0, max(at, 1), len(words) - 1)


def _write_cell(page: Worksheet, row: int, column: int, value: Any) -> None:
    """Nothing for a number that is missing."""
    if value != value:
        return
    if isinstance(value, str):
        page.write_string(row, column, value[:_MOST_LETTERS])
    elif value is not None:
        page.write_number(row, column, _Exact(value) if isinstance(value, float) else value)
