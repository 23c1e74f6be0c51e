"""The engines, each started once for all tests of a worker, and the same records on each of them.

Tests are skipped, and say so, where there is no PostgreSQL or no Java: `tests/engines/servers.sh` installs both where
it may.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, LiteralString, cast

import duckdb
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyarrow import parquet
from tests.engines.server import Server, programs

from tabulae.sources.source import RecordSource

Store = Callable[[str, pa.Table], RecordSource]


def on_server(server: Server, name: str, table: pa.Table) -> RecordSource:
    """The records as a table of a PostgreSQL server."""
    columns = [
        sql.SQL("{} {}").format(
            sql.Identifier(field.name), sql.SQL(cast("LiteralString", _server_type(field.type)))
        )
        for field in table.schema
    ]
    with psycopg.connect(server.url()) as connection:
        made = sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), sql.SQL(", ").join(columns))
        connection.execute(made)
        into = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))
        with connection.cursor() as cursor, cursor.copy(into) as copy:
            for row in table.to_pylist():
                copy.write_row(tuple(row.values()))
    return RecordSource(url=server.url(), table=name)


def _server_type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_dictionary(kind):
        return "text"
    if pa.types.is_list(kind):
        return "bigint[]"
    return {
        pa.bool_(): "boolean",
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.uint8(): "smallint",
        pa.uint64(): "numeric(20, 0)",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.date32(): "date",
        pa.timestamp("us"): "timestamp",
        pa.binary(): "bytea",
        pa.string(): "text",
        pa.large_string(): "text",
        pa.null(): "text",
    }[kind]


def _as_csv(_: Any, folder: Path, name: str, table: pa.Table) -> RecordSource:
    path = folder / f"{name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(table.column_names)
        # Nothing between quotes is text without letters, and NULL in a table: both mean the same to a rule.
        writer.writerows([_field(value) for value in row.values()] for row in table.to_pylist())
    return RecordSource(path)


def _field(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _as_parquet(_: Any, folder: Path, name: str, table: pa.Table) -> RecordSource:
    path = folder / f"{name}.parquet"
    parquet.write_table(table, path)
    return RecordSource(path)


def _as_database(_: Any, folder: Path, name: str, table: pa.Table) -> RecordSource:
    path = folder / f"{name}.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    return RecordSource(path, table="people")


def _for_spark(_: Any, folder: Path, name: str, table: pa.Table) -> RecordSource:
    path = folder / f"{name}.parquet"
    parquet.write_table(table, path)
    return RecordSource(path, engine="spark")


ENGINES: dict[str, tuple[str | None, Callable[[Any, Path, str, pa.Table], RecordSource]]] = {
    "duckdb-csv": (None, _as_csv),
    "duckdb-parquet": (None, _as_parquet),
    "duckdb-file": (None, _as_database),
    "postgresql": ("postgresql", lambda server, _, name, table: on_server(server, name, table)),
    "spark-parquet": ("spark", _for_spark),
}
"""What is started first, and how records are put where that engine reads them."""
TYPED = tuple(ENGINES)[1:]
"""Those whose columns have types; in a CSV file all is text."""


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server."""
    where = programs()
    if where is None:
        pytest.skip("needs PostgreSQL: tests/engines/servers.sh installs it where it may")
    server = Server(where)
    yield server
    server.remove()


def _marked(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.spark] if name.startswith("spark") else [])


SWEPT = ("duckdb-csv", "duckdb-parquet", "postgresql")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Sweeps are asked of three engines: Spark takes seconds for a question, and a DuckDB file counts as Parquet does.

    `sweep("postgresql", ...)` names others: where text in a Parquet file is as it is in CSV, or where what a Parquet
    file gives is what others are compared with. `make test-long` asks all.

    What needs Spark comes first, all together: of several workers one starts Spark, which takes 20 seconds.
    """
    for item in items:
        if (sweep := item.get_closest_marker("sweep")) is None:
            continue
        given = getattr(item, "callspec", None)
        named = (
            {name: given.params[name] for name in ("engine", "typed", "elsewhere") if name in given.params}
            if given
            else {}
        )
        if any(engine not in (sweep.args or SWEPT) for engine in named.values()):
            item.add_marker(pytest.mark.long)
    yield
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session", params=[_marked(name) for name in ENGINES])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine and of what it reads, for `store`."""
    return request.param


@pytest.fixture(scope="session", params=[_marked(name) for name in TYPED])
def typed(request: pytest.FixtureRequest) -> str:
    """Likewise, without CSV files."""
    return request.param


@pytest.fixture(scope="session")
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """store(engine, table) -> Source: records where that engine reads them, under a name of their own."""
    folder, number = tmp_path_factory.mktemp("records"), itertools.count()

    def stored(engine: str, table: pa.Table) -> RecordSource:
        name = f"people{next(number)}"
        started, write = ENGINES[engine]
        return write(request.getfixturevalue(started) if started else None, folder, name, table)

    return stored
