"""What a source declares of its columns: names, types and domains; no record is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..domain.attribute import TOTAL_LABEL
from ..domain.declared import Content, DeclaredColumn
from ..errors import DataError, InvalidArgument
from .checks import Checked, domains_by_checks
from .duckdb_engine import (
    DATABASE,
    attached,
    connected,
    schema_and_name,
    stored_table,
)
from .failures import redacted
from .header import csv_header
from .source import Source

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_WHOLE = {
    *("tinyint", "smallint", "integer", "bigint", "hugeint"),
    *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
}
_DATE = re.compile(r"\s*\d{1,4}[-/.]\d")
_MOST_NUMBERS = 1_000_000  # of a declared range: no attribute of a spec may have more
_MOST_LISTED = 10_000  # values of a declared list: longer ones are code lists, for a file of their own


def declared_columns(source: Source) -> list[DeclaredColumn]:
    """The columns of a source as they are declared, in order.

    A CSV file declares names, in its first line; a Parquet file names and types, in its footer; a table of DuckDB
    names, types and, by ENUM and CHECK, which values a column may hold.

    Arguments:
        source: the file.

    Raises:
        DataError: it cannot be read, or what should name columns does not.

    Privacy:
        Reads the first line of a CSV file and no other, the footer of a Parquet file and no statistics in it, and the
        catalogue of a database. Where a CSV file has no header its first line is a record: a line that does not look
        like names is refused, without quoting it.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "people.csv"
        ...     _ = path.write_text("SEX,AGE\\nF,34\\n")
        ...     [column.name for column in declared_columns(Source(path))]
        ['SEX', 'AGE']
    """
    source.check_exists()
    if source.kind == "postgresql":
        raise InvalidArgument(f"{source.name}: what a server declares of its tables is not read here")
    read = {"csv": _csv, "parquet": _parquet, "duckdb": _table}[source.kind]
    return redacted(source.name, lambda: read(source))


def only_table(path: Path) -> str:
    """The one table of a DuckDB file.

    Raises:
        DataError: it cannot be read, or holds none.
        InvalidArgument: it holds several, all of which are named.
    """
    Source(path, "duckdb", table="any").check_exists()
    names = redacted(path.name, lambda: _tables(path))
    if not names:
        raise DataError(f"{path.name} has no table")
    if len(names) > 1:
        raise InvalidArgument(f"{path.name} has several tables: name one with --table ({', '.join(names)})")
    return names[0]


def _tables(path: Path) -> list[str]:
    with connected() as connection:
        present = attached(connection, Source(path, "duckdb", table="any"))
    return [name if schema == "main" else f"{schema}.{name}" for schema, name in sorted(present)]


def _csv(source: Source) -> list[DeclaredColumn]:
    names = csv_header(source.file)
    if any(map(_is_value, names)) or len(set(names)) != len(names):
        # It is a record, as it seems: numbers, dates, nothing, or the same twice do not name columns.
        raise DataError(
            f"{source.name}: the first line must name the columns, each by another name that is no number or date: "
            "add a header, or name them apart",
            confidential=f"the first line is {', '.join(map(repr, names))}",
        )
    return [DeclaredColumn(name, "", "unknown") for name in names]


def _is_value(text: str) -> bool:
    """Whether a field is what records hold and names do not: nothing, a number, a date."""
    return not any(letter.isalpha() for letter in text) or _DATE.match(text) is not None or _is_number(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(source: Source) -> list[DeclaredColumn]:
    from pyarrow import parquet

    schema = parquet.read_schema(source.file)
    if len(set(schema.names)) != len(schema.names) or not all(name.strip() for name in schema.names):
        raise DataError(f"{source.name}: columns have no name, or share one: name them apart")
    return [_field(field) for field in schema]


def _field(field: pa.Field) -> DeclaredColumn:
    from pyarrow import types

    kind, told = field.type, str(field.type)
    if types.is_dictionary(kind):
        kind, told = kind.value_type, f"{kind.value_type}, by dictionary"
    content: Content = "other"
    if types.is_boolean(kind):
        return DeclaredColumn(field.name, told, "truth values", ("false", "true"), by="the type")
    if types.is_integer(kind):
        content = "whole numbers"
    elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        content = "text"
    elif types.is_null(kind):
        content = "unknown"
    return DeclaredColumn(field.name, told, content)


def _table(source: Source) -> list[DeclaredColumn]:
    with connected() as connection:
        attached(connection, source)
        names, relation = stored_table(connection, source)
        types = connection.sql(relation).types
        checks, keys = _constraints(connection, source)
        return [
            _column(name, kind, checks.get(name.lower(), Checked()), key=name.lower() in keys)
            for name, kind in zip(names, types, strict=True)
        ]


def _constraints(
    connection: duckdb.DuckDBPyConnection, source: Source
) -> tuple[dict[str, Checked], set[str]]:
    """What CHECK says of each column, and which columns are keys by themselves."""
    rows = connection.execute(
        "SELECT constraint_type, expression, constraint_column_names FROM duckdb_constraints() "
        "WHERE database_name = ? AND schema_name = ? AND table_name = ?",
        [DATABASE, *schema_and_name(source)],
    ).fetchall()
    keys = {row[2][0].lower() for row in rows if row[0] in ("PRIMARY KEY", "UNIQUE") and len(row[2]) == 1}
    return domains_by_checks(row[1] for row in rows if row[0] == "CHECK" and row[1]), keys


def _column(name: str, kind: Any, checked: Checked, *, key: bool) -> DeclaredColumn:
    told = kind.id if kind.id == "enum" else str(kind)
    if key:
        return DeclaredColumn(name, told, "other", key=True, by="the primary key, or unique")
    if kind.id == "enum":
        values = tuple(str(value) for value in dict(kind.children)["values"])
        return DeclaredColumn(name, told, "text", values if _can_be_labels(values) else None, by="ENUM")
    if kind.id == "boolean":
        return DeclaredColumn(name, told, "truth values", ("false", "true"), by="the type")
    content: Content = "whole numbers" if kind.id in _WHOLE else "text" if kind.id == "varchar" else "other"
    numbers = tuple(value for value in checked.values or () if isinstance(value, int))
    words = tuple(value for value in checked.values or () if isinstance(value, str))
    listed = {"whole numbers": numbers, "text": words}.get(content)
    if listed and _can_be_labels(listed):
        return DeclaredColumn(name, told, content, listed, by="CHECK")
    low, high = checked.low, checked.high
    if content == "whole numbers" and low is not None and high is not None and high - low < _MOST_NUMBERS:
        return DeclaredColumn(name, told, content, bounds=(low, high), by="CHECK")
    return DeclaredColumn(name, told, content)


def _can_be_labels(values: Sequence[int | str]) -> bool:
    """Whether a spec takes the values as they are: not too many, and text on one line."""
    if len(values) > _MOST_LISTED:
        return False
    words = [value for value in values if isinstance(value, str)]
    return all(word and word != TOTAL_LABEL and min(map(ord, word)) >= 32 for word in words)
