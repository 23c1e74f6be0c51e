"""Rows on their way to a sorted file: written piece by piece as they come, sorted once at the end, out of core."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ...sources.duckdb_engine import without_bar

_MEMORY = "2GB"


class Spill:
    """Rows of one table, collected in a file that only this run reads.

    Args:
        folder: where the file goes.
        name: its stem.
        schema: columns in order; text columns take dictionaries, too.
    """

    def __init__(self, folder: Path, name: str, schema: Mapping[str, pa.DataType]) -> None:
        self.path = folder / f"{name}.spill"
        self._schema = pa.schema(list(schema.items()))
        self._writer = pq.ParquetWriter(self.path, self._schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(
            *([OSError] if kind is not None else [])
        ):  # of two errors, the first is told
            self._writer.close()

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Rows, under the schema's headings."""
        arrays = [
            columns[field.name].dictionary_decode()
            if isinstance(columns[field.name], pa.DictionaryArray)
            else columns[field.name]
            for field in self._schema
        ]
        if len(arrays[0]):
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def write(self, targets: Mapping[Path, str], order: Sequence[str]) -> None:
        """Write all rows in order, to each target with its options of DuckDB's COPY, and remove the collected ones.

        Ties would make the order depend on the machine: ``order`` must tell all rows apart.
        """
        self._writer.close()
        scratch = self.path.with_suffix(".sort")
        with duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": str(scratch)}) as engine:
            without_bar(engine)
            chosen = ", ".join(f'"{name}"' for name in self._schema.names)
            engine.read_parquet(str(self.path)).project(chosen).order(", ".join(order)).create("sorted")
            for target, options in targets.items():
                engine.execute(f"COPY sorted TO '{_quoted(target)}' ({options})")
        self.path.unlink()
        shutil.rmtree(scratch, ignore_errors=True)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
