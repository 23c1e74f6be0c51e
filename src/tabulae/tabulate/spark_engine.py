"""Spark as an engine: Parquet files in the places where the driver and the executors both see them.

Spark is told which columns it reads and of what type they are, so that it infers nothing: other columns, names of
folders and what a writer noted beside the schema have no part in it. What it would leave out without a word (a file
that is hidden or damaged, a column that one file lacks) is refused.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, require
from ..spark import spark_session
from .failures import redacted
from .header import positions
from .source import Source, WantedColumn
from .units import ID

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

_HIDDEN = ("_", ".")
_DECIMAL = 128  # bits: with more, numbers have more digits than Spark has
_UUID = r"^(.{8})(.{4})(.{4})(.{4})(.{12})$"


@contextmanager
def opened_on_spark(
    source: Source, columns: Sequence[WantedColumn], *, memory: str | None = None
) -> Iterator[ir.Table]:
    """The wanted columns of Parquet files, on Spark: see `tabulae.tabulate.engine.open_records`.

    Args:
        source: a Parquet file, or a folder of them.
        columns: the columns, and what they are called in the table.
        memory: see `tabulae.spark.spark_session`.

    Raises:
        DataError: it cannot be read, or not as it is. The message quotes nothing.
        MissingDependency: without PySpark or Java.
    """
    source.check_exists()
    require("ibis", None, "reading records")
    files = redacted(source.name, lambda: _files(source))
    types = redacted(source.name, lambda: _types(source, files, columns))
    with spark_session(memory) as session:
        views = [f"records_{secrets.token_hex(8)}"]
        try:
            yield redacted(source.name, lambda: _table(session, source, files, columns, types, views))
        finally:
            with suppress(Exception):  # of a session that is gone, the views are gone, too
                for view in views:
                    session.catalog.dropTempView(view)


def _files(source: Source) -> list[Path]:
    """The Parquet files of a source, in the order of their names; a folder holds nothing else that could be records."""
    path = source.file.resolve()
    if not path.is_dir():
        _check_name(path)
        return [path]
    files = []
    for entry in sorted(path.iterdir()):
        parquet = entry.suffix.lower() in (".parquet", ".pq")
        if entry.name.startswith(_HIDDEN) and not parquet:
            continue  # a mark of the writer's, or a checksum
        if entry.is_dir() or not parquet:
            raise DataError(
                f"{source.name} holds {entry.name!r}, and a folder of records holds Parquet files only: take it out"
            )
        _check_name(entry)
        files.append(entry)
    if not files:
        raise DataError(f"{source.name} is a folder without Parquet files: check [source] path")
    return files


def _check_name(file: Path) -> None:
    """Refuse names of files that Spark leaves out without a word, or cannot read."""
    if file.name.startswith(_HIDDEN):
        raise DataError(f"{file.name}: Spark takes files whose name begins with _ or . for hidden: rename it")
    if ":" in file.name:
        raise DataError(f"{file.name}: Spark reads no file with a colon in its name: rename it")


def _types(
    source: Source, files: Sequence[Path], columns: Sequence[WantedColumn]
) -> Mapping[str, pa.DataType]:
    """Column -> its type, which must be the same in all files."""
    from pyarrow import parquet

    types: dict[str, pa.DataType] = {}
    for file in files:
        where = source.name if len(files) == 1 else f"{source.name}, {file.name}"
        schema = redacted(where, partial(parquet.read_schema, file))
        at = positions(where, tuple(schema.names), [(column.name, column.purpose) for column in columns])
        for column in columns:
            found = _plain(schema.field(at[column.name]).type)
            if types.setdefault(column.name, found) != found:
                raise DataError(
                    f"{where}: column {column.name!r} ({column.purpose}) has type {found}, and "
                    f"{types[column.name]} in {files[0].name}: write all files with the same types"
                )
    return types


def _plain(type_: pa.DataType) -> pa.DataType:
    """The type of the values, however Arrow holds them."""
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    return type_


def _table(
    session: SparkSession,
    source: Source,
    files: Sequence[Path],
    columns: Sequence[WantedColumn],
    types: Mapping[str, pa.DataType],
    views: list[str],
) -> Any:
    """The table, of the first view; those of tables that Ibis hands over besides are added to ``views``."""
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(name, as_) for name, type_ in types.items() if (as_ := _read_as(type_))])
    frame = session.read.schema(schema).parquet(*map(_address, files))
    _check_complete(source, files, frame.count())
    frame.select(*(_taken(c, types[c.name]).alias(c.alias) for c in columns)).createTempView(views[0])
    table = _backend(session, views).table(views[0])
    return table.mutate(**_refused(columns, types))


def _refused(columns: Sequence[WantedColumn], types: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """Alias -> nothing, of the type that a column has and Spark does not read: it is refused where others are.

    Raises:
        DataError: the type would not be refused.
    """
    import ibis

    empty = {}
    for column in columns:
        type_ = types[column.name]
        if not _is_read(column, type_):
            told = _told(type_)
            if told.is_numeric():
                raise DataError(
                    f"column {column.name!r} ({column.purpose}) has type {type_}, which Spark does not read: write it "
                    "with another"
                )
            empty[column.alias] = ibis.null(told)
    return empty


def _backend(session: SparkSession, views: list[str]) -> Any:
    """Ibis on Spark; results come back as Arrow, and what it hands over, such as keys, is noted in ``views``."""
    import ibis
    from ibis.formats.pyarrow import PyArrowData

    usual: Any = type(ibis.pyspark.connect(session))

    class Arrow(usual):
        def _register_in_memory_table(self, op: Any) -> None:
            views.append(op.name)
            super()._register_in_memory_table(op)

        def to_pyarrow(self, expr: Any, /, **options: Any) -> Any:
            table = expr.as_table()
            self._run_pre_execute_hooks(table)
            found = session.sql(self.compile(table, **options)).toArrow()
            return expr.__pyarrow_result__(PyArrowData.convert_table(found, table.schema()))

    return Arrow().connect(session)


def _told(type_: pa.DataType) -> Any:
    """The type as Ibis tells of it, which has no word for some."""
    from ibis.expr import datatypes
    from ibis.formats.pyarrow import PyArrowType

    if _is_uuid(type_):
        return datatypes.uuid
    try:
        return PyArrowType.to_ibis(type_)
    except (KeyError, ValueError):
        return datatypes.unknown


def _is_read(column: WantedColumn, type_: pa.DataType) -> bool:
    return _read_as(type_) is not None and (column.alias == ID or not _is_uuid(type_))


def _read_as(type_: pa.DataType) -> DataType | None:
    """What Spark reads a column as, so that no value changes; None where it is not read."""
    import pyarrow as pa
    from pyspark.sql import types as spark

    plain = {
        pa.bool_(): spark.BooleanType(),
        pa.int8(): spark.ByteType(),
        pa.int16(): spark.ShortType(),
        pa.int32(): spark.IntegerType(),
        pa.int64(): spark.LongType(),
        pa.uint8(): spark.ShortType(),
        pa.uint16(): spark.IntegerType(),
        pa.uint32(): spark.LongType(),
        pa.uint64(): spark.DecimalType(20, 0),
        pa.float32(): spark.FloatType(),
        pa.float64(): spark.DoubleType(),
        pa.string(): spark.StringType(),
    }
    if pa.types.is_decimal(type_) and type_.bit_width <= _DECIMAL:
        return spark.DecimalType(type_.precision, type_.scale)
    return spark.BinaryType() if _is_uuid(type_) else plain.get(type_)


def _is_uuid(type_: pa.DataType) -> bool:
    return getattr(type_, "extension_name", None) == "arrow.uuid"


def _taken(column: WantedColumn, type_: pa.DataType) -> Column:
    """The values of a column; those of UUIDs as they are written, for ids."""
    import pyarrow as pa
    from pyspark.sql import functions

    if not _is_read(column, type_):
        return functions.lit(None).cast("string")
    value = functions.col("`" + column.name.replace("`", "``") + "`")
    if _is_uuid(type_):
        return functions.regexp_replace(functions.lower(functions.hex(value)), _UUID, "$1-$2-$3-$4-$5")
    # Spark takes any octets for text, and other engines refuse what is none.
    return functions.validate_utf8(value) if type_ == pa.string() else value


def _address(file: Path) -> str:
    """A file of this machine, or one mounted here, as Spark is told of it: signs of patterns mean themselves."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(file))


def _check_complete(source: Source, files: Sequence[Path], read: int) -> None:
    """Raise where Spark does not see all records that the files say they hold."""
    from pyarrow import parquet

    held = sum(parquet.read_metadata(file).num_rows for file in files)
    if read != held:
        raise DataError(
            f"{source.name} changed while it was read, or the executors see other files than this machine does: put "
            "the records where all see the same, and let nothing write to them",
            confidential=f"{held} rows in the files, {read} read",
        )
