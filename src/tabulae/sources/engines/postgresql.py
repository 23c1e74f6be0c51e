"""PostgreSQL: tables go to the server and come from it by COPY, as data in a stream, never as parts of a statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, cast

from ...errors import DataError, require
from ..failures import redacted
from ..source import Engine, Kind, RecordSource, WantedColumn, WantedTable, positions

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import psycopg
    import pyarrow as pa
    from psycopg import sql


_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 22
_KINDS = {"int32": "integer", "int64": "bigint", "double": "double precision", "string": 'text COLLATE "C"'}


def copying(connection: psycopg.Connection[Any], where: str) -> Any:
    """Ibis on a connection, but for how tables go and results come: in a stream, with no Python object for each value.

    Args:
        connection: in the transaction that is never committed.
        where: what messages call the source.
    """
    import ibis

    usual: Any = type(ibis.postgres.from_connection(connection))

    class Copying(usual):
        def create_temporary(self, content: sql.Composed, rows: pa.Table | None) -> ir.Table:
            """A temporary table, which is made at once, so that what the server says of it is redacted here."""
            name = ibis.util.gen_name("given")
            redacted(where, lambda: _make(connection, name, content, rows))
            return redacted(where, lambda: self.table(name))

        def to_pyarrow_batches(
            self, expr: Any, /, *, params: Any = None, limit: Any = None, chunk_size: int = 0, **_: Any
        ) -> pa.RecordBatchReader:
            import pyarrow as pa

            table = expr.as_table()
            self._run_pre_execute_hooks(table)
            statement = self.compile(table, params=params, limit=limit)
            schema = table.schema().to_pyarrow()
            return pa.RecordBatchReader.from_batches(schema, _received(connection, statement, schema))

    return Copying.from_connection(connection)


def _make(
    connection: psycopg.Connection[Any], name: str, content: sql.Composed, rows: pa.Table | None
) -> None:
    from psycopg import sql
    from pyarrow import csv

    named = sql.Identifier(name)
    connection.execute(sql.SQL("CREATE TEMPORARY TABLE {} {}").format(named, content))
    if rows is not None:
        plain = csv.WriteOptions(include_header=False, quoting_style="all_valid")
        into = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(named)
        with connection.cursor() as cursor, cursor.copy(into) as copy:
            for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
                csv.write_csv(batch, buffer := BytesIO(), plain)
                copy.write(buffer.getvalue())
    connection.execute(sql.SQL("ANALYZE {}").format(named))


def _received(
    connection: psycopg.Connection[Any], statement: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    asked = f"COPY ({statement}) TO STDOUT (FORMAT csv)".encode()
    with connection.cursor() as cursor, cursor.copy(asked) as copy:
        rows, held = [], 0
        for row in copy:
            rows.append(row)
            held += len(row)
            if held >= _BYTES_AT_ONCE:
                yield from _read(b"".join(rows), schema)
                rows, held = [], 0
    yield from _read(b"".join(rows), schema)


def _read(rows: bytes, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Lines as the server writes them: nothing for NULL, and quotes around text that is empty."""
    from pyarrow import csv

    if not rows:
        return []
    meant = csv.ConvertOptions(
        column_types=schema,
        null_values=[""],
        true_values=["t"],
        false_values=["f"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = csv.ReadOptions(column_names=schema.names, block_size=len(rows) + 1)  # one value may be very long
    parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    return csv.read_csv(BytesIO(rows), read, parse, meant).to_batches()


VIEW = "records"
_OLDEST = 15
_SETTINGS = (
    "SET LOCAL search_path = pg_catalog, pg_temp",
    "SET LOCAL standard_conforming_strings = on",
    "SET LOCAL datestyle = 'ISO, YMD'",
    # A user who may see some of the records only is refused by the server, and does not count a part for the whole.
    "SET LOCAL row_security = off",
)
_COLUMNS = """
WITH RECURSIVE declared AS (
    SELECT attnum, attname, atttypid AS type, atttypmod AS modifier
    FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum, attname, t.typbasetype, t.typtypmod
    FROM declared JOIN pg_catalog.pg_type t ON t.oid = type WHERE t.typtype = 'd')
SELECT attname, pg_catalog.format_type(type, modifier),
    CASE WHEN t.typcategory = 'S' OR t.typtype = 'e' THEN 'text' ELSE t.typname::text END
FROM declared JOIN pg_catalog.pg_type t ON t.oid = type WHERE t.typtype <> 'd' ORDER BY attnum"""
_TABLES = """
SELECT c.oid, n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY 2, 3"""
# What a server, or the library that speaks with it, says of a connection that is not made.
_UNCONNECTED = (
    (
        "password authentication failed|no password supplied",
        "the password is missing or wrong: set PGPASSWORD, or use a password file (PGPASSFILE)",
    ),
    ("no pg_hba.conf entry", "it lets this user in from elsewhere only, or not so: ask its administrator"),
    ('role ".*" does not exist|authentication failed', "check the user in [source] url, or PGUSER"),
    ('database ".*" does not exist', "check the database in [source] url"),
    ("permission denied for database", "this user may not connect to that database"),
    ("certificate|SSL", "check sslmode and sslrootcert in [source] url, or PGSSLMODE and PGSSLROOTCERT"),
    (
        "connection slots|too many clients|starting up|shutting down",
        "it takes no connections now: run again later",
    ),
    ('invalid URI|invalid connection option|missing "="', "[source] url is not one that libpq reads"),
    (
        "refused|No such file|resolve|translate|timeout|timed out|unreachable|No route|closed the connection",
        "check host and port in [source] url, and that it runs",
    ),
)
_READ = {"bool", "int2", "int4", "int8", "float4", "float8", "uuid", "date", "timestamp", "bytea"}


_OWN_COLUMNS = """
WITH RECURSIVE declared AS (
    SELECT attnum, attname, pg_catalog.format_type(atttypid, atttypmod) AS told, atttypid AS type
    FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum, attname, told, t.typbasetype
    FROM declared JOIN pg_catalog.pg_type t ON t.oid = type WHERE t.typtype = 'd')
SELECT attname, told, CASE WHEN t.typcategory = 'S' OR t.typtype = 'e' THEN 'text' ELSE t.typname::text END,
    CASE WHEN t.typtype = 'e' THEN ARRAY(
        SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder) END,
    ARRAY(
        SELECT pg_catalog.pg_get_expr(conbin, 0)
        FROM pg_catalog.pg_constraint k JOIN declared d ON k.contypid = d.type
        WHERE d.attnum = declared.attnum AND k.contype = 'c' AND k.convalidated)
FROM declared JOIN pg_catalog.pg_type t ON t.oid = type WHERE t.typtype <> 'd' ORDER BY attnum"""
_CHECKS = """
SELECT pg_catalog.pg_get_expr(conbin, conrelid) FROM pg_catalog.pg_constraint
WHERE conrelid = %s AND contype = 'c' AND convalidated"""
_KEYS = """
SELECT attname FROM pg_catalog.pg_constraint JOIN pg_catalog.pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
WHERE conrelid = %s AND contype IN ('p', 'u') AND pg_catalog.cardinality(conkey) = 1"""


class ServerColumn(NamedTuple):
    """A column as the catalogue of a server has it.

    ``type`` as it is declared; ``kind`` the name of the type beneath, "text" for all that holds text; ``labels`` of an
    enumerated type; ``checks`` of its domains, about VALUE; ``key`` where it differs from record to record.
    """

    name: str
    type: str
    kind: str
    labels: tuple[str, ...] | None
    checks: tuple[str, ...]
    key: bool


def server_columns(source: RecordSource) -> tuple[list[ServerColumn], list[str]]:
    """The columns of a table in their order, and the conditions that its records meet.

    Privacy:
        Asks the catalogue, which holds no record, and in it no statistics, which hold values.
    """
    with _catalogue(source) as (connection, path):
        oid = _locate_table(connection, source, path)[2]
        keys = {row[0] for row in connection.execute(_KEYS, [oid])}
        checks = [row[0] for row in connection.execute(_CHECKS, [oid])]
        columns = [
            ServerColumn(
                name,
                told.replace(" without time zone", ""),
                kind,
                None if labels is None else tuple(labels),
                tuple(of_domains),
                name in keys,
            )
            for name, told, kind, labels, of_domains in connection.execute(_OWN_COLUMNS, [oid])
        ]
    return columns, checks


def server_tables(source: RecordSource) -> list[str]:
    """The tables that the user may read, with their schema where a name alone does not find them."""
    with _catalogue(source) as (connection, path):
        present = connection.execute(_TABLES).fetchall()
        may = "SELECT pg_catalog.has_table_privilege(%s, 'SELECT')"
        readable = {row[0] for row in present if connection.execute(may, [row[0]]).fetchall() == [(True,)]}
    first: dict[str, str] = {}
    for schema in reversed(path):
        first |= {table: schema for _, found, table in present if found == schema}
    return [
        table if first.get(table) == schema else f"{schema}.{table}"
        for oid, schema, table in present
        if oid in readable and "." not in table
    ]


@contextmanager
def _catalogue(source: RecordSource) -> Iterator[tuple[psycopg.Connection[Any], list[str]]]:
    """A connection that looks nothing up but in the catalogue, and the schemas where tables are looked for."""
    require("psycopg", "postgresql", "reading the catalogue of PostgreSQL")
    connection = _connected(source)
    try:
        yield connection, _settled(connection, source)
    finally:
        connection.close()


class PostgreSQL(Engine):
    """A PostgreSQL server, which counts its own tables.

    Privacy:
        The server groups and counts, and counts are all that is fetched. The key that chooses records of a unit, and
        all public keys, are sent as data, which servers do not log, and never stand in a statement. The edges of bins
        and the literals of conditions do, which are public.
    """

    name = "postgresql"
    backend = "postgres"
    kinds = (
        Kind(
            "postgresql",
            "PostgreSQL",
            schemes=("postgresql", "postgres"),
            many=True,
            passwords="set PGPASSWORD or use a password file (PGPASSFILE)",
            form="postgresql://user@host:5432/database",
        ),
    )

    @contextmanager
    def open(
        self, asked: Sequence[WantedTable], *, memory: str | None, scratch: bool
    ) -> Iterator[list[ir.Table]]:
        """The wanted columns of tables of one database.

        Raises:
            DataError: the server does not answer or refuses, or has no such table or columns. The message quotes
                nothing of what it says.
            MissingDependency: without Psycopg, or without what Ibis needs for it.
        """
        for package in ("psycopg", "ibis", "pandas"):
            require(package, "postgresql", "counting on PostgreSQL")
        source = asked[0].source
        connection = redacted(source.name, lambda: _connected(source))
        try:
            yield redacted(source.name, lambda: _open(connection, asked))
        finally:
            connection.close()

    def copied(self, records: ir.Table, table: pa.Table) -> ir.Table:
        from psycopg import sql

        columns = [
            sql.SQL("{} {}").format(
                sql.Identifier(field.name), sql.SQL(cast("LiteralString", _KINDS[str(field.type)]))
            )
            for field in table.schema
        ]
        backend: Any = records.get_backend()
        return backend.create_temporary(sql.SQL("({})").format(sql.SQL(", ").join(columns)), table)

    def computed_once(self, table: Any) -> Any:
        """A temporary table of the server with the rows of a lazy one."""
        from psycopg import sql

        backend: Any = table.get_backend()
        return backend.create_temporary(
            sql.SQL("AS {}").format(sql.SQL(cast("LiteralString", backend.compile(table)))), None
        )

    def sha256(self, text: Any) -> Any:
        import ibis

        @ibis.udf.scalar.builtin(name="sha256")
        def digest(octets: bytes) -> bytes: ...

        @ibis.udf.scalar.builtin
        def convert_to(text: str, encoding: str) -> bytes: ...

        # Octets, and not their digits: a database may have an order of its own for text.
        return digest(convert_to(text, "UTF8"))


ENGINE = PostgreSQL()


def _connected(source: RecordSource) -> psycopg.Connection[Any]:
    import psycopg

    try:
        connection = psycopg.connect(
            str(source.url),
            client_encoding="utf8",
            fallback_application_name="tabulae",
            prepare_threshold=None,
        )
    except psycopg.Error as error:
        said = str(error)
    else:
        # The transaction begins with the first statement, and ends unfinished when the connection is closed.
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = (
            False  # where users may only read by default, temporary tables would be refused
        )
        return connection
    meaning = next((meaning for sign, meaning in _UNCONNECTED if re.search(sign, said)), None)
    raise DataError(
        f"{source.name}: there is no connection to the server"
        + (f": {meaning}" if meaning else "; what it says is shown with --show-confidential"),
        confidential=said,
    )


def _open(connection: psycopg.Connection[Any], asked: Sequence[WantedTable]) -> list[Any]:
    source = asked[0].source
    path = _settled(connection, source)
    views = [f"{VIEW}{i or ''}" for i in range(len(asked))]
    for view, each in zip(views, asked, strict=True):
        _select(connection, view, *each, path)
    backend = copying(connection, source.name)
    return [backend.table(view) for view in views]


def _settled(connection: psycopg.Connection[Any], source: RecordSource) -> list[str]:
    """Set what a session needs to read the same everywhere; returns where it looked for tables before."""
    _check_server(connection, source)
    # The path is asked for before it is set, without an operator, for which something in it could stand in.
    ((path,),) = connection.execute("SELECT pg_catalog.current_schemas(false)").fetchall()
    for setting in _SETTINGS:
        connection.execute(setting)
    return path


def _select(
    connection: psycopg.Connection[Any],
    view: str,
    source: RecordSource,
    columns: Sequence[WantedColumn],
    path: list[str],
) -> None:
    """The wanted columns of a table as a view of this session."""
    from psycopg import sql

    schema, name, oid = _locate_table(connection, source, path)
    declared = connection.execute(_COLUMNS, [oid]).fetchall()
    names = tuple(row[0] for row in declared)
    at = positions(source.name, names, [(column.name, column.purpose) for column in columns])
    selected = [
        sql.SQL("{} AS {}").format(
            _plain(column, *declared[at[column.name]][1:]), sql.Identifier(column.alias)
        )
        for column in columns
    ]
    connection.execute(
        sql.SQL("CREATE TEMPORARY VIEW {} AS SELECT {} FROM {}").format(
            sql.Identifier(view), sql.SQL(", ").join(selected), sql.Identifier(schema, name)
        )
    )


def _check_server(connection: psycopg.Connection[Any], source: RecordSource) -> None:
    if connection.info.server_version < _OLDEST * 10_000:
        raise DataError(
            f"{source.name}: the server is older than PostgreSQL {_OLDEST}, which is the oldest read here"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise DataError(
            f"{source.name}: the database has the encoding {encoding}, and UTF8 is read: copy the records into a "
            "database with that encoding"
        )


def _locate_table(
    connection: psycopg.Connection[Any], source: RecordSource, path: list[str]
) -> tuple[str, str, int]:
    """Schema, name and number of the table; without a schema it is looked for in the schemas of the search path."""
    asked, _, name = ("." + str(source.table)).rpartition(".")
    asked = asked.lstrip(".")
    present = connection.execute(_TABLES).fetchall()
    numbers = {(schema, table): oid for oid, schema, table in present}
    for schema in [asked] if asked else path:
        if (schema, name) in numbers:
            return schema, name, numbers[schema, name]
    raise DataError(
        f"{source.name}: there is no such table or view: check [source] table, which is written as in the database "
        "(schema.table outside the search path)",
        confidential="its tables are " + ", ".join(f"{schema}.{table}" for _, schema, table in present),
    )


def _plain(wanted: WantedColumn, declared: str, kind: str) -> sql.Composed:
    """The column without what would make equal records count differently, or differently from other engines.

    Args:
        wanted: the column.
        declared: its type in full, and of a domain the type beneath.
        kind: the name of that type, which is "text" for all that holds text, as enumerated types do, too.
    """
    from psycopg import sql

    column = sql.Identifier(wanted.name)
    if kind == "text":
        return sql.SQL('CAST({} AS text) COLLATE "C"').format(column)
    if kind == "numeric":
        return sql.SQL("NULLIF(CAST({} AS {}), 'NaN')").format(column, _raw(declared))
    if kind in _READ:
        return sql.SQL("CAST({} AS {})").format(column, _raw(declared))
    raise DataError(
        f"column {wanted.name!r} ({wanted.purpose}) has type {declared}, which is not read: convert it to text"
    )


def _raw(declared: str) -> sql.SQL:
    """A type in the server's own words, which are SQL already."""
    from psycopg import sql

    return sql.SQL(cast("LiteralString", declared))
