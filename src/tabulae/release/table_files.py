"""Tables that are too long for memory: written row group by row group, and compared with fresh rows the same way."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .rows import Rows, close_all

_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema with words as plain strings."""
    return pa.schema(
        [
            pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
            for field in schema
        ]
    )


def sync_file(path: Path) -> None:
    """See a file onto the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


class TableWriter:
    """Tables as Parquet and as CSV, a piece at a time; each exists, be it without a row."""

    def __init__(self, folder: Path, schemas: dict[str, pa.Schema]) -> None:
        self.folder = folder
        self.schemas = schemas
        self.rows = Counter(dict.fromkeys(schemas, 0))
        self._open: dict[str, tuple[pq.ParquetWriter, pyarrow.csv.CSVWriter]] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, schema in self.schemas.items():
            parquet = pq.ParquetWriter(self.folder / f"{name}.parquet", schema, compression="zstd")
            self._open[name] = parquet, pyarrow.csv.CSVWriter(self.folder / f"{name}.csv", plain(schema))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_all((writer for pair in self._open.values() for writer in pair), failed=kind is not None)
        for name in self._open if kind is None else ():
            for ending in ("parquet", "csv"):
                sync_file(self.folder / f"{name}.{ending}")

    def write(self, name: str, rows: pa.Table) -> None:
        """Append rows to a table."""
        parquet, csv = self._open[name]
        parquet.write_table(rows)
        csv.write_table(rows.cast(plain(rows.schema)))
        self.rows[name] += rows.num_rows


class PublishedRows:
    """One published table, both of its files, compared from the first row on.

    Words and whole numbers are compared exactly, other numbers within a small share of their standard error, and of
    themselves where ``loose`` says so and they have an error. ``within`` is what the folder is called in faults.
    """

    def __init__(
        self, folder: Path, name: str, schema: pa.Schema, *, within: str = "tables", loose: float = 0.0
    ) -> None:
        self.name = f"{within}/{name}"
        self._loose = loose
        self.faults: list[str] = []
        self._parquet = Rows.of_parquet(folder / f"{name}.parquet")
        self._csv = Rows.of_csv(folder / f"{name}.csv", schema)
        self._schema = schema

    def compare(self, fresh: pa.Table) -> None:
        """The next rows are these, in both files."""
        if self.faults:
            return
        stored, same = self._parquet.take(fresh.num_rows), self._csv.take(fresh.num_rows)
        fresh = fresh.cast(self._schema)
        if stored.schema != self._schema or stored.num_rows != fresh.num_rows:
            self.faults.append(f"{self.name}.parquet: does not have the rows that were measured")
        elif not same.equals(stored):
            self.faults.append(f"{self.name}.csv: does not say what {self.name}.parquet says")
        elif wrong := [
            column for column in self._schema.names if not _agree(column, stored, fresh, self._loose)
        ]:
            told = f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not what the measurements say"
            self.faults.append(f"{self.name}.parquet: {told}")

    def end(self) -> None:
        """Nothing is left in either file."""
        if not self.faults and (self._parquet.take(1).num_rows or self._csv.take(1).num_rows):
            self.faults.append(f"{self.name}: has more rows than were measured")


def _agree(column: str, stored: pa.Table, fresh: pa.Table, loose: float) -> bool:
    """Whether a column says the same in both; numbers are empty in whole rows."""
    if not pa.types.is_floating(fresh.schema.field(column).type):
        return stored[column].combine_chunks().equals(fresh[column].combine_chunks())
    if not stored[column].is_null().equals(fresh[column].is_null()):
        return False
    error, values, found = (
        table[name].drop_null().to_numpy()
        for table, name in ((fresh, "std_error"), (fresh, column), (stored, column))
    )
    slack = _ROUNDING * error + np.where(error > 0, loose * np.abs(values), 0.0)
    return bool((np.abs(found - values) <= slack).all())
