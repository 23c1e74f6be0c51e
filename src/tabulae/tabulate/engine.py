"""What reads and counts the records: DuckDB, a PostgreSQL server, or Spark, behind one lazy table.

No record leaves the engine: it groups and counts, and only the counts are fetched. Each engine has a file of its own,
with what it must do so that equal records count equally; the expressions over the table are the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .duckdb_engine import opened_file
from .source import Source, WantedColumn
from .units import ID

if TYPE_CHECKING:
    import ibis.expr.types as ir

LEAF = "leaf"


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
        source: where the records are, and what reads them.
        wanted: pairs (attribute, column).
        unit: the column that names the unit of each record, which becomes the column ``unit``.
        leaf: the column that names the area of each record, which becomes the column ``leaf``.
        memory: the most that an engine of our own takes, such as "4GB"; None is its default.
        scratch: whether DuckDB has a database for tables on disk; see `tabulae.tabulate.duckdb_engine.connected`.

    Raises:
        DataError: if the records cannot be read, or do not have the columns. The message quotes nothing.
        MissingDependency: without Ibis or the engine.
    """
    columns = [WantedColumn(name, f"attribute {a!r}", f"c{i}") for i, (a, name) in enumerate(wanted)]
    beside = ((unit, "unit_id", ID), (leaf, "[geography] column", LEAF))
    columns += [WantedColumn(name, purpose, alias) for name, purpose, alias in beside if name is not None]
    with _opened(source, columns, memory, scratch=scratch) as records:
        yield records


@contextmanager
def _opened(
    source: Source, columns: Sequence[WantedColumn], memory: str | None, *, scratch: bool
) -> Iterator[ir.Table]:
    if source.engine == "postgresql":
        from .postgres_engine import opened_server

        with opened_server(source, columns) as records:
            yield records
    elif source.engine == "spark":
        from .spark_engine import opened_on_spark

        with opened_on_spark(source, columns, memory=memory) as records:
            yield records
    else:
        with opened_file(source, columns, memory=memory, scratch=scratch) as records:
            yield records
