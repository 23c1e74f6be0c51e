"""DuckDB, locked down, with one view: the columns of the source that are counted.

The engine reads one file and nothing else: no other file, no network, no extension, and no setting can be
changed once the file is open. What does not fit in memory goes, encrypted, to a folder that only this user
can read and that is gone afterwards.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import sysconf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulae.errors import DataError, require

from .failures import redacted
from .header import csv_header, positions
from .source import Source
from .units import ID

if TYPE_CHECKING:
    import duckdb
    import ibis.expr.types as ir

VIEW = "records"
SCRATCH = "scratch"
LEAF = "leaf"
_DATABASE = "source"
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
    with tempfile.TemporaryDirectory(prefix="tabulae-") as spill:
        connection = duckdb.connect(":memory:", config={**_SETTINGS, **limit, "temp_directory": spill})
        try:
            connection.execute("SET enable_progress_bar = false")
            _encrypt_by_itself(connection)
            if scratch:
                file, key = literal(f"{spill}/{SCRATCH}.db"), secrets.token_hex(32)
                connection.execute(f"ATTACH {file} AS {SCRATCH} (ENCRYPTION_KEY '{key}')")
            yield connection
        finally:
            connection.close()


def _encrypt_by_itself(connection: duckdb.DuckDBPyConnection) -> None:
    """Newer engines refuse to write encrypted files with the cipher that they bring, and want another from the network.

    What they say is weak in theirs are the random numbers of its initial vectors. The folder is closed to others and
    short-lived: the encryption is for what a disk keeps of it.
    """
    duckdb = require("duckdb", None, "reading records")
    with suppress(duckdb.CatalogException):  # an older engine has no such setting, and needs none
        connection.execute("SET force_mbedtls_unsafe = true")


def restrict(connection: duckdb.DuckDBPyConnection, path: Path | None) -> None:
    """From here on the engine reads this one file at most, besides what it has open."""
    if path is not None:
        connection.execute(f"SET allowed_paths = [{literal(str(path.resolve()))}]")
    connection.execute("SET enable_external_access = false")


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on no setting changes."""
    connection.execute("SET lock_configuration = true")


@contextmanager
def open_records(
    source: Source,
    wanted: Sequence[tuple[str, str]],
    unit: str | None = None,
    leaf: str | None = None,
    *,
    memory: str | None = None,
    scratch: bool = False,
) -> Iterator[ir.Table]:
    """The wanted columns of ``source``, as an Ibis table with columns c0, c1, ... in the order wanted.

    Args:
        source: the file.
        wanted: pairs (attribute, column).
        unit: the column that names the unit of each record, which becomes the column ``unit``.
        leaf: the column that names the area of each record, which becomes the column ``leaf``.
        memory, scratch: as in `connected`.

    Raises:
        DataError: if the file cannot be read, or does not have the columns. The message quotes nothing.
        MissingDependency: without Ibis or DuckDB.
    """
    source.check_exists()
    require("ibis", None, "reading records")
    with connected(memory=memory, scratch=scratch) as connection:
        beside = [(unit, "unit_id", ID), (leaf, "[geography] column", LEAF)]
        named = [(column, what, alias) for column, what, alias in beside if column is not None]
        yield redacted(source.name, lambda: _open(connection, source, wanted, named))


def _open(
    connection: duckdb.DuckDBPyConnection,
    source: Source,
    wanted: Sequence[tuple[str, str]],
    beside: Sequence[tuple[str, str, str]],
) -> Any:
    import ibis

    backend = ibis.duckdb.from_connection(connection)
    if source.kind == "duckdb":
        connection.execute(
            f"ATTACH {literal(str(source.path.resolve()))} AS {_DATABASE} (TYPE duckdb, READ_ONLY)"
        )
    restrict(connection, None if source.kind == "duckdb" else source.path)
    lock(connection)
    names, relation = _OPEN[source.kind](connection, source)
    meant = [(column, f"attribute {attribute!r}", f"c{i}") for i, (attribute, column) in enumerate(wanted)]
    meant += beside
    at = positions(source.name, names, [(column, what) for column, what, _ in meant])
    # Columns are named by position: engines rename duplicates, and take "sex" and "SEX" for one name.
    aliases = ", ".join(f"a{i}" for i in range(len(names)))
    types = _types(connection, relation, aliases)
    columns = [f"{_plain(f'a{at[column]}', types)} AS {alias}" for column, _, alias in meant]
    connection.execute(
        f"CREATE VIEW {VIEW} AS SELECT {', '.join(columns)} FROM ({relation}) AS every({aliases})"  # noqa: S608
    )
    return backend.table(VIEW)


def _csv(connection: duckdb.DuckDBPyConnection, source: Source) -> tuple[tuple[str, ...], str]:
    """Every field as text, and no guessing: dialect, header and types are given."""
    names = csv_header(source.path)
    columns = ", ".join(f"'a{i}': 'VARCHAR'" for i in range(len(names)))
    path = literal(str(source.path.resolve()))
    return names, (
        f"SELECT * FROM read_csv({path}, auto_detect = false, header = true, strict_mode = true, "  # noqa: S608
        f"delim = ',', quote = '\"', escape = '\"', nullstr = '', columns = {{{columns}}})"
    )


def _parquet(connection: duckdb.DuckDBPyConnection, source: Source) -> tuple[tuple[str, ...], str]:
    """One file, and its columns only: folder names such as year=2020 are not columns."""
    from pyarrow import parquet

    names = tuple(parquet.read_schema(source.path).names)
    return names, (
        f"SELECT * FROM read_parquet({literal(str(source.path.resolve()))}, "  # noqa: S608
        "hive_partitioning = false, union_by_name = false)"
    )


def _table(connection: duckdb.DuckDBPyConnection, source: Source) -> tuple[tuple[str, ...], str]:
    schema, _, name = ("." + str(source.table)).rpartition(".")
    schema = schema.lstrip(".") or "main"
    present = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ? UNION ALL "
        "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = ? AND NOT internal",
        [_DATABASE, _DATABASE],
    ).fetchall()
    if (schema, name) not in present:
        raise DataError(
            f"{source.path.name} has no table {source.table!r}: check [source] table, which is written as in "
            "the database (schema.table outside the schema main)",
            confidential="its tables are " + ", ".join(sorted(".".join(pair) for pair in present)),
        )
    relation = f"SELECT * FROM {_DATABASE}.{_identifier(schema)}.{_identifier(name)}"  # noqa: S608
    described = connection.execute(f"{relation} LIMIT 0").description or []
    return tuple(str(column[0]) for column in described), relation


_OPEN = {"csv": _csv, "parquet": _parquet, "duckdb": _table}


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
