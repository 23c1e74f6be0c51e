"""Counts from an engine, batch by batch: only counts come, and never all of them at once in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

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
