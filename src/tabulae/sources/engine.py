"""What reads and counts the records: DuckDB, a PostgreSQL server, or Spark, behind one lazy table.

No record leaves the engine: it groups and counts, and only the counts are fetched. Each engine has a file of its own,
with what it must do so that equal records count equally; the expressions over the table are the same for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .duckdb_engine import opened_file
from .source import RecordSource, WantedColumn
from .units import ID

if TYPE_CHECKING:
    import ibis.expr.types as ir
if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa


LEAF = "leaf"


@contextmanager
def open_records(
    source: RecordSource,
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
        scratch: whether DuckDB has a database for tables on disk; see `tabulae.sources.duckdb_engine.connected`.

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
    source: RecordSource, columns: Sequence[WantedColumn], memory: str | None, *, scratch: bool
) -> Iterator[ir.Table]:
    if source.engine == "postgresql":
        from .postgresql import opened_server

        with opened_server(source, columns) as records:
            yield records
    elif source.engine == "spark":
        from .spark import opened_on_spark

        with opened_on_spark(source, columns, memory=memory) as records:
            yield records
    else:
        with opened_file(source, columns, memory=memory, scratch=scratch) as records:
            yield records


_ROWS = 1 << 17


def batches(counted: ir.Table) -> Iterator[pa.RecordBatch]:
    """The rows of a table of whole numbers, some at a time, in no order.

    From a server they come in one stream. From Spark they come part by part, by one job each once they are counted; a
    part whose task fails is made again before any of it is taken.
    """
    backend: Any = counted.get_backend()
    if backend.name not in ("duckdb", "pyspark"):
        return iter(counted.to_pyarrow_batches(chunk_size=_ROWS))
    backend._run_pre_execute_hooks(counted)  # which hand over the tables of keys
    statement = backend.compile(counted)
    if backend.name == "duckdb":
        return iter(backend.con.sql(statement).to_arrow_reader(_ROWS))
    return _of_parts(backend.raw_sql(statement))


def _of_parts(frame: Any) -> Iterator[pa.RecordBatch]:
    """Batches as bytes, one row each: Spark takes rows to the driver part by part, and batches not."""
    import pyarrow as pa

    # A function within one travels by value: executors need PyArrow, and nothing of this package.
    def enclosed(some: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in some:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_arrays(
                [pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"]
            )

    for row in frame.mapInArrow(enclosed, "batch binary").toLocalIterator():
        with pa.ipc.open_stream(row[0]) as stream:
            yield from stream
