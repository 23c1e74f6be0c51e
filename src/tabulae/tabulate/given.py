"""What is handed to an engine, and asked of it, in the words of each: tables of keys, and digests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

_POSTGRESQL = "postgres"  # as Ibis names it


def given(records: ir.Table, table: pa.Table) -> ir.Table:
    """A small table from here, to be joined with records in their engine.

    Args:
        records: any table of that engine.
        table: of 32 or 64 bit integers, 64 bit floats and text, without NULL.

    Privacy:
        The table is sent as data; no value of it becomes part of a statement, which engines keep and log.
    """
    import ibis

    backend: Any = records.get_backend()
    if backend.name == _POSTGRESQL:
        from .postgres_copy import copied

        return copied(backend, table)
    return ibis.memtable(table)


def held(table: Any) -> Any:
    """The same table, worked out once by an engine that would else do it again for every use of a column."""
    backend: Any = table.get_backend()
    if backend.name == _POSTGRESQL:
        from . import postgres_copy

        return postgres_copy.held(backend, table)
    return table


def sha256(text: Any) -> Any:
    """SHA-256 of text in UTF-8: its octets, or their hexadecimal digits, which have the same order."""
    import ibis

    if text.get_backend().name != _POSTGRESQL:
        return text.hexdigest("sha256")

    @ibis.udf.scalar.builtin(name="sha256")
    def digest(octets: bytes) -> bytes: ...

    @ibis.udf.scalar.builtin
    def convert_to(text: str, encoding: str) -> bytes: ...

    # Octets, and not their digits: a database may have an order of its own for text.
    return digest(convert_to(text, "UTF8"))
