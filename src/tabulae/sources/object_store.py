"""Parquet files on an object store: read as a stream over the network, without a copy on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .columns import WantedColumn
from .source import ROWS_AT_ONCE, Kind, RecordSource

if TYPE_CHECKING:
    import pyarrow as pa

S3 = Kind(
    "s3",
    "object store",
    schemes=("s3",),
    passwords="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    form="s3://bucket/people.parquet",
)

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_PATIENCE = 20  # seconds without an answer


def object_columns(
    source: RecordSource,
    wanted: Sequence[WantedColumn],
    check: Callable[[tuple[str, ...]], object],
    faults: list[Exception],
) -> tuple[tuple[str, ...], pa.RecordBatchReader]:
    """The names of the columns that are wanted, and the stream of their values.

    Credentials, region and endpoint come from the environment and the files that the AWS tools read. What the store
    says of an error is told apart by `sources/failures.py`.

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
