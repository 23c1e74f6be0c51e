"""DuckDB, locked down, with one view: the columns of the source that are counted.

The engine reads the file of the records, or the files of their folder, and nothing else: no other file, no network, no
extension, and no setting can be changed once they are open. Files that it does not read itself, and those on an object
store, are handed to it. What does not fit in memory goes, encrypted, to a folder that only this user can read and that
is gone afterwards.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from os import sysconf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ...errors import DataError, require
from ..dialect import Dialect, csv_header, in_utf8
from ..failures import redacted
from ..memory import read_memory
from ..parquet_files import column_names, column_types, parquet_files
from ..source import (
    CSV,
    PARQUET,
    ROWS_AT_ONCE,
    Engine,
    Kind,
    RecordSource,
    WantedColumn,
    WantedTable,
    positions,
)
from ..stat_files import STAT_KINDS, stat_columns

if TYPE_CHECKING:
    import duckdb
    import ibis.expr.types as ir
    import pyarrow as pa

S3 = Kind(
    "s3",
    "object store",
    schemes=("s3",),
    passwords="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    form="s3://bucket/people.parquet",
)

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_PATIENCE = 20  # seconds without an answer of the store
VIEW = "records"
FEED = "feed"
SCRATCH = "scratch"
DATABASE = "source"
_ENOUGH = 8 << 30
_MEMORY = "4GB"
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_file_encryption": "true",
}


@contextmanager
def connected(*, memory: str | None = None, scratch: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """An engine of our own, with a folder for what does not fit in memory, gone with all in it at the end.

    Args:
        memory: the most that it takes, such as "4GB"; None is the engine's default, with `scratch` at most 4 GB of it.
        scratch: whether it has a database for tables on disk, `SCRATCH`, under a key that is in memory only.
    """
    duckdb = require("duckdb", None, "reading records")
    if memory is None and scratch and sysconf("SC_PAGE_SIZE") * sysconf("SC_PHYS_PAGES") > _ENOUGH:
        memory = _MEMORY
    limit = {} if memory is None else {"memory_limit": memory}
    with _temporary_folder() as spill:
        connection = duckdb.connect(":memory:", config={**_SETTINGS, **limit, "temp_directory": spill})
        try:
            without_bar(connection)
            _as_older_engines(connection)
            if scratch:
                _attach_scratch(connection, spill)
            yield connection
        finally:
            connection.close()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="tabulae-")
    except OSError as error:
        raise _without_room(str(error)) from None


def _attach_scratch(connection: duckdb.DuckDBPyConnection, spill: str) -> None:
    duckdb = require("duckdb", None, "reading records")
    file, key = literal(f"{spill}/{SCRATCH}.db"), secrets.token_hex(32)
    try:
        connection.execute(f"ATTACH {file} AS {SCRATCH} (ENCRYPTION_KEY '{key}')")
    except duckdb.IOException:
        said = "the engine could not make its scratch database"  # what it says itself may hold the key
    else:
        return
    raise _without_room(said)


def _without_room(said: str) -> DataError:
    return DataError(
        "no temporary files can be written: free some space in the folder for them, or name another (TMPDIR)",
        confidential=said,
    )


def without_bar(connection: duckdb.DuckDBPyConnection) -> None:
    """No progress bar of the engine's own. In a notebook that cannot draw one it is off, and refuses to be set."""
    shown = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    if shown != [(False,)]:
        connection.execute("SET enable_progress_bar = false")


def _as_older_engines(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch off two habits of newer engines; an older one has no such setting, and needs none.

    They refuse to write encrypted files with the cipher that they bring, and want another from the network. What they
    say is weak in theirs are the random numbers of its initial vectors. The folder is closed to others and
    short-lived: the encryption is for what a disk keeps of it.

    And they group a large file by parts that they choose themselves, each of which then reads the whole file, whatever
    a condition would let them skip: a forty-sixth of 331 million records took 16 s of CPU that way, 2.5 without.
    """
    duckdb = require("duckdb", None, "reading records")
    for setting in ("force_mbedtls_unsafe = true", "disabled_optimizers = 'partitioned_execution'"):
        with suppress(duckdb.CatalogException, duckdb.ParserException):
            connection.execute(f"SET {setting}")


def restrict(connection: duckdb.DuckDBPyConnection, *paths: Path) -> None:
    """From here on the engine reads these files at most, besides what it has open."""
    if paths:
        allowed = ", ".join(literal(str(path.resolve())) for path in paths)
        connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on no setting changes."""
    connection.execute("SET lock_configuration = true")


_PART = 1 << 24  # how many records are grouped together at most
_RECORD = 128  # bytes that a record takes in grouping: measured 90 where nearly all differ


class DuckDB(Engine):
    """DuckDB, in this process: files, as they are."""

    name = backend = "duckdb"
    kinds = (CSV, PARQUET, Kind("duckdb", "DuckDB", (".duckdb", ".ddb", ".db"), many=True), S3, *STAT_KINDS)

    @contextmanager
    def open(
        self, asked: Sequence[WantedTable], *, memory: str | None, scratch: bool
    ) -> Iterator[list[ir.Table]]:
        for each in asked:
            each.source.check_exists()
        require("ibis", None, "reading records")
        with connected(memory=memory, scratch=scratch) as connection:
            yield redacted(asked[0].source.name, lambda: _open(connection, asked))

    def part_count(self, rows: int, memory: str | None) -> int:
        """As many parts as memory asks for.

        Grouping takes memory for each combination of values, of which there may be nearly as many as records, and an
        engine that spills them can still run out.
        """
        room = _PART if memory is None else min(_PART, read_memory(memory) // _RECORD)
        return max(1, -(-rows // room))

    def batches(self, counted: ir.Table) -> Iterator[pa.RecordBatch]:
        backend: Any = counted.get_backend()
        backend._run_pre_execute_hooks(counted)  # which hand over the tables of keys
        return iter(backend.con.sql(backend.compile(counted)).to_arrow_reader(ROWS_AT_ONCE))


ENGINE = DuckDB()


def _open(connection: duckdb.DuckDBPyConnection, asked: Sequence[WantedTable]) -> list[Any]:
    import ibis

    backend, views = ibis.duckdb.from_connection(connection), [f"{VIEW}{i or ''}" for i in range(len(asked))]
    with ExitStack() as until_read:
        read = [
            until_read.enter_context(_relation(connection, view, *each))
            for view, each in zip(views, asked, strict=True)
        ]
        restrict(connection, *(path for each in read for path in each.paths))
        lock(connection)
        for view, each, relation in zip(views, asked, read, strict=True):
            _select(connection, view, *each, relation)
    return [backend.table(view) for view in views]


class _Relation(NamedTuple):
    """How a table is selected: the files that are read, their columns, the statement, and whether that works once."""

    paths: Sequence[Path]
    names: tuple[str, ...]
    statement: str
    once: bool


@contextmanager
def _relation(
    connection: duckdb.DuckDBPyConnection, view: str, source: RecordSource, columns: Sequence[WantedColumn]
) -> Iterator[_Relation]:
    if source.kind == "duckdb":
        _attach(connection, source)
        yield _Relation((), *stored_table(connection, source), once=False)
    elif source.kind == "parquet":
        files = parquet_files(source)
        yield _Relation(files, *_parquet(source, columns, files), once=False)
    elif source.kind != "csv":
        with _fed(connection, f"{FEED}_{view}", source, columns) as relation:
            yield relation
    else:
        names = csv_header(source.file, source.dialect)
        with in_utf8(source.file, source.dialect) as path:
            yield _Relation((path,), names, _csv(path, source.dialect, len(names)), once=path != source.file)


@contextmanager
def _fed(
    connection: duckdb.DuckDBPyConnection, feed: str, source: RecordSource, columns: Sequence[WantedColumn]
) -> Iterator[_Relation]:
    """The wanted columns of a file that the engine does not read, as they come."""
    faults: list[Exception] = []
    read = _object_columns if source.kind == S3.name else stat_columns
    names, stream = read(source, columns, lambda names: _places(source, names, columns), faults)
    connection.register(feed, stream)
    try:
        yield _Relation((), names, f"SELECT * FROM {feed}", once=True)  # noqa: S608
    except Exception as error:
        fault = faults[0] if faults else error  # what was wrong, and not what the engine makes of it
    else:
        return
    raise fault


def _object_columns(
    source: RecordSource,
    wanted: Sequence[WantedColumn],
    check: Callable[[tuple[str, ...]], object],
    faults: list[Exception],
) -> tuple[tuple[str, ...], pa.RecordBatchReader]:
    """The names of the columns that are wanted, and the stream of their values.

    Credentials, region and endpoint come from the environment and the files that the AWS tools read. What the store
    says of an error is told apart by :mod:`..failures`.

    Args:
        check: called with the names of all columns of the file, to refuse what it lacks.
        faults: gets the reason why the stream ends too soon.
    """
    import pyarrow as pa
    from pyarrow import fs, parquet

    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    store = fs.S3FileSystem(
        endpoint_override=endpoint,
        connect_timeout=_PATIENCE,
        request_timeout=_PATIENCE,
        background_writes=False,
    )
    place = urlsplit(str(source.url), allow_fragments=False)
    file = parquet.ParquetFile(store.open_input_file(f"{place.netloc}{place.path}"), pre_buffer=True)
    check(tuple(file.schema_arrow.names))
    columns = tuple(dict.fromkeys(column.name for column in wanted))
    schema = pa.schema([file.schema_arrow.field(name) for name in columns])

    def stream() -> Iterator[pa.RecordBatch]:
        try:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
                yield batch.select(columns)
        except Exception as error:
            faults.append(error)
            raise

    return columns, pa.RecordBatchReader.from_batches(schema, stream())


def _select(
    connection: duckdb.DuckDBPyConnection,
    view: str,
    source: RecordSource,
    columns: Sequence[WantedColumn],
    relation: _Relation,
) -> None:
    """The wanted columns as a view; kept as a table where they can be read once only."""
    names, statement = relation.names, relation.statement
    at = _places(source, names, columns)
    # Columns are named by position: engines rename duplicates, and take "sex" and "SEX" for one name.
    aliases = ", ".join(f"a{i}" for i in range(len(names)))
    text = {f"a{i}": "VARCHAR" for i in range(len(names))}
    types = text if source.kind == "csv" else _types(connection, statement, aliases)
    selected = [f"{_plain(f'a{at[column.name]}', types)} AS {column.alias}" for column in columns]
    connection.execute(
        f"CREATE {'TEMP TABLE' if relation.once else 'VIEW'} {view} AS "  # noqa: S608
        f"SELECT {', '.join(selected)} FROM ({statement}) AS every({aliases})"
    )


def _places(source: RecordSource, names: tuple[str, ...], columns: Sequence[WantedColumn]) -> dict[str, int]:
    return positions(
        source.name, names, [(column.name, column.purpose) for column in columns], source.dialect
    )


def _attach(connection: duckdb.DuckDBPyConnection, source: RecordSource) -> None:
    path = literal(str(source.file.resolve()))
    connection.execute(f"ATTACH IF NOT EXISTS {path} AS {DATABASE} (TYPE duckdb, READ_ONLY)")


def attached(connection: duckdb.DuckDBPyConnection, source: RecordSource) -> list[tuple[str, str]]:
    """Open a DuckDB file, and nothing else from here on; returns its tables and views, as (schema, name)."""
    _attach(connection, source)
    restrict(connection)
    lock(connection)
    return _present(connection)


def _present(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ? UNION ALL "
        "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = ? AND NOT internal",
        [DATABASE, DATABASE],
    ).fetchall()


def _csv(path: Path, dialect: Dialect, fields: int) -> str:
    """Every field as text, and no guessing: dialect, header and types are given."""
    columns = ", ".join(f"'a{i}': 'VARCHAR'" for i in range(fields))
    return (
        f"SELECT * FROM read_csv({literal(str(path.resolve()))}, auto_detect = false, "  # noqa: S608
        f"header = {'false' if dialect.header else 'true'}, strict_mode = true, delim = {literal(dialect.delimiter)}, "
        f"quote = {literal(dialect.quote)}, escape = {literal(dialect.quote)}, nullstr = '', columns = {{{columns}}})"
    )


def _parquet(
    source: RecordSource, columns: Sequence[WantedColumn], files: Sequence[Path]
) -> tuple[tuple[str, ...], str]:
    """Some files, and their columns only: folder names such as year=2020 are not columns."""
    if len(files) > 1:
        column_types(source, files, columns)
        for file in files:
            if set("*?[") & set(str(file)):
                raise DataError(
                    f"{source.name}, {file.name}: its path has *, ? or [, which stand for other names here: rename it"
                )
    listed = ", ".join(literal(str(file)) for file in files)
    return column_names(source, files), (
        f"SELECT * FROM read_parquet([{listed}], hive_partitioning = false, union_by_name = false)"  # noqa: S608
    )


def schema_and_name(source: RecordSource) -> tuple[str, str]:
    """Where the table of a DuckDB file is."""
    schema, _, name = ("." + str(source.table)).rpartition(".")
    return schema.lstrip(".") or "main", name


def stored_table(connection: duckdb.DuckDBPyConnection, source: RecordSource) -> tuple[tuple[str, ...], str]:
    """The columns of the table that a source names, in the DuckDB file that is attached, and how to select them."""
    schema, name = schema_and_name(source)
    present = _present(connection)
    if (schema, name) not in present:
        raise DataError(
            f"{source.file.name} has no table {source.table!r}: check [source] table, which is written as in "
            "the database (schema.table outside the schema main)",
            confidential="its tables are " + ", ".join(sorted(".".join(pair) for pair in present)),
        )
    relation = f"SELECT * FROM {DATABASE}.{_identifier(schema)}.{_identifier(name)}"  # noqa: S608
    described = connection.execute(f"{relation} LIMIT 0").description or []
    return tuple(str(column[0]) for column in described), relation


def _types(connection: duckdb.DuckDBPyConnection, relation: str, aliases: str) -> dict[str, str]:
    rows = connection.execute(f"DESCRIBE SELECT * FROM ({relation}) AS every({aliases})").fetchall()  # noqa: S608
    return {row[0]: row[1] for row in rows}


def _plain(column: str, types: dict[str, str]) -> str:
    """The column without what would make equal records count differently."""
    if types[column] == "VARCHAR":
        return f'{column} COLLATE "binary"'  # a database may compare letters without case
    if types[column] == '"NULL"':
        return f"CAST({column} AS VARCHAR)"  # a Parquet column that never had a value has no type
    return column


# SQL cannot take names and paths as parameters everywhere, so they are quoted here, and only here.
def literal(text: str) -> str:
    """Text as it is written in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
