"""The same records as a CSV file, a Parquet file and a DuckDB table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from tabulae.sources.source import RecordSource

KINDS = ("csv", "parquet", "duckdb")
Columns = Mapping[str, Sequence[Any]]
Writer = Callable[..., RecordSource]


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def _write_source(folder: Path, kind: str, columns: Columns, name: str = "people") -> RecordSource:
    """Write columns of Python values (None is NULL) to a new file of the given kind."""
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(map(_csv_cell, line)) for line in (columns, *rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
        return RecordSource(path)
    table = pa.table(dict(columns))
    if kind == "parquet":
        parquet.write_table(table, path)
        return RecordSource(path)
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    return RecordSource(path, table="people")


@pytest.fixture(scope="session")
def write_source() -> Writer:
    """write_source(folder, kind, columns) -> Source, for tests that make their own folders."""
    return _write_source


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """write(kind, columns) -> Source, in the test's own folder."""
    return lambda kind, columns, name="people": _write_source(tmp_path, kind, columns, name)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param
