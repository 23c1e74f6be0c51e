"""Tables to and from a PostgreSQL server by COPY: as data in a stream, never as parts of a statement."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, LiteralString, cast

from .failures import redacted

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import psycopg
    import pyarrow as pa
    from psycopg import sql

_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 22
_KINDS = {"int32": "integer", "int64": "bigint", "double": "double precision", "string": 'text COLLATE "C"'}


def copied(backend: Any, table: pa.Table) -> ir.Table:
    """A small table as a temporary one of the server.

    Args:
        backend: Ibis' of the connection, as `copying` makes it.
        table: of 32 or 64 bit integers, 64 bit floats and text, without NULL.
    """
    from psycopg import sql

    kinds = [
        sql.SQL("{} {}").format(
            sql.Identifier(field.name), sql.SQL(cast("LiteralString", _KINDS[str(field.type)]))
        )
        for field in table.schema
    ]
    return backend.made(sql.SQL("({})").format(sql.SQL(", ").join(kinds)), table)


def held(backend: Any, table: ir.Table) -> ir.Table:
    """A temporary table of the server with the rows of a lazy one."""
    from psycopg import sql

    meant = sql.SQL(cast("LiteralString", backend.compile(table)))
    return backend.made(sql.SQL("AS {}").format(meant), None)


def copying(connection: psycopg.Connection[Any], where: str) -> Any:
    """Ibis on a connection, but for how tables go and results come: in a stream, with no Python object for each value.

    Args:
        connection: in the transaction that is never committed.
        where: what messages call the source.
    """
    import ibis

    usual: Any = type(ibis.postgres.from_connection(connection))

    class Copying(usual):
        def made(self, content: sql.Composed, rows: pa.Table | None) -> ir.Table:
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
