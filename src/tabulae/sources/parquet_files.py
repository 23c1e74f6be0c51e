"""The files of Parquet records: which there are, and what columns they have alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError
from .failures import redacted
from .source import PARQUET, RecordSource, WantedColumn, positions

if TYPE_CHECKING:
    import pyarrow as pa

HIDDEN = ("_", ".")
"""What names of files begin with that are the writer's own marks."""


def parquet_files(source: RecordSource) -> list[Path]:
    """The file of a source, or those of a folder in the order of their names.

    Raises:
        DataError: the folder holds something else that could be records, or nothing.
    """
    path = source.file.resolve()
    if not path.is_dir():
        return [path]
    files = []
    for entry in sorted(path.iterdir()):
        parquet = entry.suffix.lower() in PARQUET.endings
        if entry.name.startswith(HIDDEN) and not parquet:
            continue  # a mark of the writer's, or a checksum
        if entry.is_dir() or not parquet:
            raise DataError(
                f"{source.name} holds {entry.name!r}, and a folder of records holds Parquet files only: take it out"
            )
        files.append(entry)
    if not files:
        raise DataError(f"{source.name} is a folder without Parquet files: check [source] path")
    return files


def column_names(source: RecordSource, files: Sequence[Path]) -> tuple[str, ...]:
    """The columns of all files in their order, by their footers.

    Raises:
        DataError: a file is not one of Parquet, or has other columns.
    """
    from pyarrow import parquet

    names: tuple[str, ...] = ()
    for file in files:
        where = source.name if len(files) == 1 else f"{source.name}, {file.name}"
        found = tuple(redacted(where, partial(parquet.read_schema, file)).names)
        if file is not files[0] and found != names:
            raise DataError(
                f"{where}: has other columns than {files[0].name}, or in another order: write all files with the same "
                "columns"
            )
        names = found
    return names


def column_types(
    source: RecordSource, files: Sequence[Path], columns: Sequence[WantedColumn]
) -> Mapping[str, pa.DataType]:
    """The type of each wanted column, which all files have alike.

    Raises:
        DataError: a file has not the columns, or has another type.
    """
    from pyarrow import parquet

    types: dict[str, pa.DataType] = {}
    for file in files:
        where = source.name if len(files) == 1 else f"{source.name}, {file.name}"
        schema = redacted(where, partial(parquet.read_schema, file))
        at = positions(where, tuple(schema.names), [(column.name, column.purpose) for column in columns])
        for column in columns:
            found = plain_type(schema.field(at[column.name]).type)
            if types.setdefault(column.name, found) != found:
                raise DataError(
                    f"{where}: column {column.name!r} ({column.purpose}) has type {found}, and "
                    f"{types[column.name]} in {files[0].name}: write all files with the same types"
                )
    return types


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values, however Arrow holds them."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    return type_
