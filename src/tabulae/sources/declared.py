"""What files and databases declare of their columns: names, types, and the values that a column may hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ..domain import TOTAL_LABEL
from ..errors import DataError, InvalidArgument
from .dialect import csv_header
from .engines.duckdb import DATABASE, attached, connected, schema_and_name, stored_table
from .engines.postgresql import ServerColumn, server_columns, server_tables
from .failures import redacted
from .parquet_files import column_names, parquet_files
from .source import RecordSource, open_records
from .stat_files import STAT_KINDS, StatFile
from .values import plain_text, whole_number

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_Values = tuple[str | int, ...]
Node = Any  # of sqlglot's syntax tree, whose base class is not called the same in all versions


@dataclass(frozen=True)
class Checked:
    """What constraints say of one column: a list of values, or a lower and an upper bound, of which one may be open."""

    values: _Values | None = None
    low: int | None = None
    high: int | None = None

    def also(self, other: Checked) -> Checked:
        """Both: the tighter bounds; of two lists, what is in both."""
        values = self.values if other.values is None else other.values
        if self.values is not None and other.values is not None:
            values = tuple(value for value in self.values if value in other.values)
        low = max((b for b in (self.low, other.low) if b is not None), default=None)
        high = min((b for b in (self.high, other.high) if b is not None), default=None)
        return Checked(values, low, high)


def domains_by_checks(constraints: Iterable[str], dialect: str = "duckdb") -> dict[str, Checked]:
    """Column, in small letters -> what the constraints of its table say of it alone.

    Understood are comparisons of one column with whole numbers (``=``, ``<``, ``<=``, ``>``, ``>=``, ``BETWEEN``),
    lists (``IN``, ``= ANY``, or ``=`` joined by ``OR``), and any of these joined by ``AND``. Anything else says nothing
    here.

    >>> found = domains_by_checks(["(age >= 0 AND age <= 114)", "sex IN ('F', 'M')", "length(name) > 1"])
    >>> found["age"].low, found["age"].high, found["sex"].values
    (0, 114, ('F', 'M'))
    """
    found: dict[str, Checked] = {}
    for text in constraints:
        try:
            whole = sqlglot.parse_one(text, dialect=dialect)
        except SqlglotError:
            continue
        for part in _joined(whole, exp.And):
            if (said := _condition(part)) is not None:
                column, checked = said
                found[column] = found.get(column, Checked()).also(checked)
    return found


def _joined(node: Node, by: type[exp.Connector]) -> Iterator[Node]:
    """The parts of a conjunction, or of a disjunction."""
    node = node.unnest()
    if isinstance(node, by):
        yield from _joined(node.this, by)
        yield from _joined(node.expression, by)
    else:
        yield node


def _condition(part: Node) -> tuple[str, Checked] | None:
    """What one condition says of one column, None where it says something else."""
    if isinstance(part, exp.Or):
        return _alternatives([_condition(each) for each in _joined(part, exp.Or)])
    if isinstance(part, exp.In) and not part.args.get("query"):
        values = _values(part.expressions)
        return None if values is None else _of(part.this, Checked(values))
    if isinstance(part, exp.Between):
        low, high = _whole(part.args["low"]), _whole(part.args["high"])
        return None if low is None or high is None else _of(part.this, Checked(None, low, high))
    return _compared(part)


def _compared(part: Node) -> tuple[str, Checked] | None:
    """``column < number`` and its like, either way round."""
    mirrored = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE, exp.EQ: exp.EQ}
    kind = type(part)
    if kind not in mirrored or not isinstance(part, exp.Binary):
        return None
    column, literal = part.this, part.expression
    if isinstance(_bare(literal), exp.Column):
        column, literal, kind = literal, column, mirrored[kind]
    if kind is exp.EQ:
        listed = _bare(literal.this) if isinstance(literal, exp.Any) else None
        if listed is not None and not isinstance(listed, exp.Array):
            return None
        values = _values([literal] if listed is None else listed.expressions)
        return None if values is None else _of(column, Checked(values))
    number = _whole(literal)
    if number is None:
        return None
    bounds = {exp.LT: (None, number - 1), exp.LTE: (None, number), exp.GT: (number + 1, None)}
    return _of(column, Checked(None, *bounds.get(kind, (number, None))))


def _alternatives(parts: list[tuple[str, Checked] | None]) -> tuple[str, Checked] | None:
    """Lists of one column, joined by OR: one list."""
    values: list[str | int] = []
    columns = set()
    for part in parts:
        if part is None or part[1].values is None:
            return None
        columns.add(part[0])
        values += [value for value in part[1].values if value not in values]
    if len(columns) != 1 or len({type(value) for value in values}) != 1:
        return None
    return columns.pop(), Checked(tuple(values))


def _of(column: Node, checked: Checked) -> tuple[str, Checked] | None:
    column = _bare(column)
    return (column.name.lower(), checked) if isinstance(column, exp.Column) else None


def _bare(node: Node) -> Node:
    """Without parentheses and casts: what is said of a column as another type holds of values that can be listed."""
    node = node.unnest()
    return _bare(node.this) if isinstance(node, exp.Cast) else node


def _values(nodes: Iterable[Node]) -> _Values | None:
    """Literals, all text or all whole numbers."""
    values: list[str | int] = []
    for node in nodes:
        value = _value(node)
        if value is None or value in values:
            return None
        values.append(value)
    return tuple(values) if len({type(value) for value in values}) == 1 else None


def _value(node: Node) -> str | int | None:
    """A literal, which PostgreSQL writes as text of a type."""
    node = node.unnest()
    if isinstance(node, exp.Cast):
        value, told = _value(node.this), node.to.this
        if told in exp.DataType.INTEGER_TYPES:
            return int(value) if isinstance(value, int) or (value and _INTEGER.fullmatch(value)) else None
        return value if isinstance(value, str) and told in _TEXT else None
    return node.name if isinstance(node, exp.Literal) and node.is_string else _whole(node)


_INTEGER = re.compile(r"-?[0-9]+")
_TEXT = {*exp.DataType.TEXT_TYPES, exp.DataType.Type.BPCHAR}


def _whole(node: Node) -> int | None:
    node = node.unnest()
    if isinstance(node, exp.Cast):
        value = _value(node)
        return value if isinstance(value, int) else None
    if isinstance(node, exp.Neg):
        number = _whole(node.this)
        return None if number is None else -number
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    return None


Content = Literal["text", "whole numbers", "truth values", "other", "unknown"]


@dataclass(frozen=True)
class DeclaredColumn:
    """One column of a file of records, as it is declared there.

    Args:
        name: of the column.
        type: as the file has it; empty where it has none.
        content: what values of the type are: only text, whole numbers and truth values can be categories. A CSV file
            declares nothing: ``"unknown"``.
        categories: the only values that it may hold, where they are declared as a list.
        bounds: the lowest and the highest, where they are declared as whole numbers.
        by: what declares the values; or, where they were found in the records, what was looked at.
        found: whether categories or bounds were found in the records: then they are nothing that is declared.
        key: whether its values differ from record to record by declaration.
        labels: code -> label, where the file has value labels. A program may have made these from the records, so that
            they are no declared domain until somebody has confirmed them.

    >>> DeclaredColumn("AGE", "INTEGER", "whole numbers", bounds=(0, 114), by="CHECK").has_domain
    True
    """

    name: str
    type: str
    content: Content
    categories: tuple[str, ...] | tuple[int, ...] | None = None
    bounds: tuple[int, int] | None = None
    by: str = ""
    found: bool = False
    key: bool = False
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def has_domain(self) -> bool:
        return self.categories is not None or self.bounds is not None

    @property
    def can_be_counted(self) -> bool:
        return self.content != "other" and not self.key


_WHOLE = {
    *("tinyint", "smallint", "integer", "bigint", "hugeint"),
    *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
}
_DATE = re.compile(r"\s*\d{1,4}[-/.]\d")
_MOST_NUMBERS = 1_000_000  # of a declared range: no attribute of a spec may have more
_MOST_LISTED = 10_000  # values of a declared list: longer ones are code lists, for a file of their own


def declared_columns(source: RecordSource) -> list[DeclaredColumn]:
    """The columns of a source as they are declared, in order.

    A CSV file declares names, in its first line; a Parquet file names and types, in its footer; a table of a database
    names, types and, by ENUM and CHECK, which values a column may hold; a file of SPSS, SAS or Stata names, types and
    value labels.

    Privacy:
        Reads the first line of a CSV file and no other, the footers of Parquet files and no statistics in them, and the
        catalogue of a database: no table of it, and no statistics of one. Where a CSV file has no header its first line
        is a record: a line that does not look like names is refused, without quoting it.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "people.csv"
        ...     _ = path.write_text("SEX,AGE\\nF,34\\n")
        ...     [column.name for column in declared_columns(RecordSource(path))]
        ['SEX', 'AGE']
    """
    source.check_exists()
    stat = dict.fromkeys((kind.name for kind in STAT_KINDS), _stat_file)
    by_kind = {"csv": _csv, "parquet": _parquet, "duckdb": _table, "postgresql": _server_table}
    read = (by_kind | stat).get(source.kind)
    if read is None:
        raise InvalidArgument(f"{source.name}: what {source.kind} declares of its columns is not read here")
    return redacted(source.name, lambda: read(source))


def only_table(place: Path | str) -> str:
    """The one table of a DuckDB file, or of a database by its url."""
    names = stored_tables(place)
    if len(names) > 1:
        name = place.name if isinstance(place, Path) else "the database"
        raise InvalidArgument(f"{name} has several tables: name one with --table ({', '.join(names)})")
    return names[0]


def stored_tables(place: Path | str) -> list[str]:
    """The tables of a DuckDB file, or of a database by its url, by name; of a server those that the user may read.

    Raises:
        DataError: it has none, or cannot be read.
    """
    url, path = (place, None) if isinstance(place, str) else (None, place)
    source = RecordSource(path, None if url else "duckdb", table="", url=url)
    source.check_exists()
    names = redacted(source.name, lambda: _tables(source) if url is None else server_tables(source))
    if not names:
        raise DataError(f"{'the database' if path is None else path.name} has no table")
    return names


def _tables(source: RecordSource) -> list[str]:
    with connected() as connection:
        present = attached(connection, source)
    return [name if schema == "main" else f"{schema}.{name}" for schema, name in sorted(present)]


def _csv(source: RecordSource) -> list[DeclaredColumn]:
    names = csv_header(source.file, source.dialect)
    if any(map(_is_value, names)) or len(set(names)) != len(names):
        # It is a record, as it seems: numbers, dates, nothing, or the same twice do not name columns.
        raise DataError(
            f"{source.name}: the first line must name the columns, each by another name that is not a number or date: "
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


def _parquet(source: RecordSource) -> list[DeclaredColumn]:
    from pyarrow import parquet

    files = parquet_files(source)
    column_names(source, files)
    schema = parquet.read_schema(files[0])
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


def _stat_file(source: RecordSource) -> list[DeclaredColumn]:
    file = StatFile.of(source)
    contents: dict[bool | None, Content] = {True: "text", False: "whole numbers", None: "other"}
    return [
        DeclaredColumn(name, told, contents[text], labels=file.labels(name, _MOST_LISTED))
        for name, told, text in file.columns()
    ]


def _table(source: RecordSource) -> list[DeclaredColumn]:
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
    connection: duckdb.DuckDBPyConnection, source: RecordSource
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
    if kind.id == "enum" and not key:
        values = tuple(str(value) for value in dict(kind.children)["values"])
        return DeclaredColumn(name, told, "text", values if _can_be_labels(values) else None, by="ENUM")
    contents: Mapping[str, Content] = {"boolean": "truth values", "varchar": "text"}
    content: Content = "whole numbers" if kind.id in _WHOLE else contents.get(kind.id, "other")
    return _checked(name, told, content, checked, key=key)


def _checked(name: str, told: str, content: Content, checked: Checked, *, key: bool) -> DeclaredColumn:
    """A column of a database, with what CHECK says of it."""
    if key:
        return DeclaredColumn(name, told, "other", key=True, by="the primary key, or unique")
    if content == "truth values":
        return DeclaredColumn(name, told, content, ("false", "true"), by="the type")
    numbers = tuple(value for value in checked.values or () if isinstance(value, int))
    words = tuple(value for value in checked.values or () if isinstance(value, str))
    listed = {"whole numbers": numbers, "text": words}.get(content)
    if listed and _can_be_labels(listed):
        return DeclaredColumn(name, told, content, listed, by="CHECK")
    low, high = checked.low, checked.high
    if content == "whole numbers" and low is not None and high is not None and high - low < _MOST_NUMBERS:
        return DeclaredColumn(name, told, content, bounds=(low, high), by="CHECK")
    return DeclaredColumn(name, told, content)


def _server_table(source: RecordSource) -> list[DeclaredColumn]:
    columns, checks = server_columns(source)
    of_table = domains_by_checks(checks, "postgres")
    small = [column.name.lower() for column in columns]
    return [_server_column(c, of_table if small.count(c.name.lower()) == 1 else {}) for c in columns]


def _server_column(column: ServerColumn, of_table: Mapping[str, Checked]) -> DeclaredColumn:
    if column.labels is not None and not column.key:
        labels = column.labels if _can_be_labels(column.labels) else None
        return DeclaredColumn(column.name, column.type, "text", labels, by="ENUM")
    checked = domains_by_checks(column.checks, "postgres").get("value", Checked())
    checked = checked.also(of_table.get(column.name.lower(), Checked()))
    contents: Mapping[str, Content] = {
        "text": "text",
        "bool": "truth values",
        **dict.fromkeys(("int2", "int4", "int8"), "whole numbers"),
    }
    return _checked(column.name, column.type, contents.get(column.kind, "other"), checked, key=column.key)


def _can_be_labels(values: Sequence[int | str]) -> bool:
    """Whether a spec takes the values as they are: not too many, and text on one line."""
    if len(values) > _MOST_LISTED:
        return False
    words = [value for value in values if isinstance(value, str)]
    return all(word and word != TOTAL_LABEL and min(map(ord, word)) >= 32 for word in words)


MOST_VALUES = 100
"""A column with more different values is not listed."""

_FEW = 10  # different whole numbers: more are written as a range
_PADDED = r"^[+-]?0[0-9]"  # a code such as 007, which is not the number 7


def peek(source: RecordSource, columns: Sequence[DeclaredColumn]) -> list[DeclaredColumn]:
    """The same columns, those without a declared domain with one that was found in the records.

    Whole numbers get the lowest and the highest; anything else its list of values, where there are at most
    ``MOST_VALUES`` of them. Values are read as a count would read them: without blanks around, empty ones left out.

    Privacy:
        What comes back is confidential: a value that one person has alone is in it. It is for the holder of the
        records; a domain of a release must come from elsewhere.
    """
    wanted = [column for column in columns if column.can_be_counted and not column.has_domain]
    if not wanted:
        return list(columns)
    with open_records(source, [(column.name, column.name) for column in wanted]) as records:
        found = {
            column.name: redacted(
                source.name,
                lambda i=i, column=column: _with_values_found(records, i, column, source.dialect.decimal),
            )
            for i, column in enumerate(wanted)
        }
    return [found.get(column.name, column) for column in columns]


def _with_values_found(records: Any, position: int, column: DeclaredColumn, decimal: str) -> DeclaredColumn:
    """What one column holds, as far as a draft can use it."""
    told = records.select(text=plain_text(records[f"c{position}"])).filter(lambda rows: rows.text.notnull())
    listed = told.distinct().order_by("text").limit(MOST_VALUES + 1).to_pyarrow()["text"].to_pylist()
    by = f"the values of all records in this column, {len(listed)} of them different"
    if len(listed) <= MOST_VALUES:
        return replace(column, **_domain(listed, decimal), by=by, found=bool(listed))
    by = f"the values of all records in this column, more than {MOST_VALUES} of them different"
    whole = told.text.re_search(whole_number(decimal))
    padded = told.text.re_search(_PADDED)
    ends = told.aggregate(plain=(whole & ~padded).all()).to_pyarrow().to_pylist()[0]
    if not ends["plain"]:
        return replace(column, by=by)
    number = told.text.re_extract(r"^([+-]?[0-9]+)", 1).try_cast("int64")
    low, high = told.aggregate(low=number.min(), high=number.max()).to_pyarrow().to_pylist()[0].values()
    return replace(column, bounds=(low, high), by=by, found=True)


def _domain(
    values: list[str], decimal: str
) -> dict[str, tuple[int, int] | tuple[int, ...] | tuple[str, ...]]:
    """Values as bounds, as whole numbers, or as text."""
    if not values:
        return {}
    if not all(re.search(whole_number(decimal), value) and not re.search(_PADDED, value) for value in values):
        return {"categories": tuple(values)}
    numbers = sorted({int(value.partition(decimal)[0]) for value in values})
    if len(numbers) > _FEW:
        return {"bounds": (numbers[0], numbers[-1])}
    return {"categories": tuple(numbers)}
