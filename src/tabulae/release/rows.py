"""Rows of a stored table, taken in order and in pieces: a file is never held as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import ReleaseError


class Rows:
    """A stored table, read from its first row on.

    Raises:
        ReleaseError: the file cannot be read.
    """

    def __init__(self, path: Path, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self._batches = batches
        self._left: pa.Table = schema.empty_table()

    @classmethod
    def of_parquet(cls, path: Path) -> Rows:
        """The rows of a Parquet file, words as plain strings."""
        try:
            file = pq.ParquetFile(path)
            schema = pa.schema([_plain(field) for field in file.schema_arrow])
            return cls(path, file.iter_batches(), schema)
        except FileNotFoundError:
            raise ReleaseError(f"{path} is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None

    @classmethod
    def of_csv(cls, path: Path, schema: pa.Schema) -> Rows:
        """The rows of a CSV file, as the types of ``schema``."""
        try:
            options = pyarrow.csv.ConvertOptions(column_types=schema, strings_can_be_null=False)
            file = pyarrow.csv.open_csv(path, convert_options=options)
            return cls(path, iter(file), schema)
        except FileNotFoundError:
            raise ReleaseError(f"{path} is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None

    def take(self, count: int) -> pa.Table:
        """The next rows: ``count`` of them, or as many as are left."""
        while self._left.num_rows < count and (more := self._next()) is not None:
            self._left = pa.concat_tables([self._left, more])
        taken, self._left = self._left.slice(0, count), self._left.slice(count)
        return taken.combine_chunks()

    def _next(self) -> pa.Table | None:
        try:
            batch = next(self._batches, None)
            return None if batch is None else pa.Table.from_batches([batch]).cast(self.schema)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ReleaseError(f"{self.path} cannot be read: {error}") from None


def open_parquet(path: Path, schema: pa.Schema) -> pq.ParquetFile:
    """A Parquet file with exactly these columns, words by dictionary where the schema has them so.

    Raises:
        ReleaseError: it is missing, cannot be read, or has other columns.
    """
    words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    try:
        file = pq.ParquetFile(path, read_dictionary=words)
    except FileNotFoundError:
        raise ReleaseError(f"{path} is missing") from None
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    if not file.schema_arrow.equals(schema):
        file.close()
        raise ReleaseError(f"{path} does not have the columns {', '.join(schema.names)} as they are written")
    return file


def close_all(writers: Iterable[pq.ParquetWriter | pyarrow.csv.CSVWriter], *, failed: bool) -> None:
    """Close every file; what goes wrong is raised, unless something failed before and is on its way to be told.

    Raises:
        OSError: a file could not be written to its end.
    """
    first: OSError | None = None
    for writer in writers:
        try:
            writer.close()
        except OSError as error:
            first = first or error
            if isinstance(writer, pq.ParquetWriter):
                writer.is_open = False  # or it would try, and complain, once more when it is forgotten
    if first is not None and not failed:
        raise first


def _plain(field: pa.Field) -> pa.Field:
    """A column of words without the dictionary that it is stored by."""
    return pa.field(field.name, field.type.value_type) if pa.types.is_dictionary(field.type) else field
