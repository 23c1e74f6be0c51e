"""Units with their records: every engine counts the seats that DuckDB counts in Parquet files."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.households import test_values as values
from tests.households.test_households import WHOLE, crowd

from tabulae.products.product import rules_of
from tabulae.products.tables.count import tabulate
from tabulae.sources.source import RecordSource
from tabulae.sources.units import UnitRule
from tabulae.spec import Spec

Store = Callable[[str, pa.Table], RecordSource]
SPEC = Spec.from_text(WHOLE)
VALUES = Spec.from_text(values.SPEC)


def counted(source: RecordSource, spec: Spec = SPEC) -> list[list[int]]:
    assert spec.domain.seats is not None
    counts = tabulate(source, spec.domain, rules_of(spec), UnitRule("hh", spec.domain.seats.steps, bytes(32)))
    return [counts.answer(table.operator(spec.domain)).tolist() for table in spec.workload.tables]


@pytest.fixture(scope="session")
def on_duckdb(store: Store) -> list[list[int]]:
    return counted(store("duckdb-parquet", crowd(7, 60)))


@pytest.mark.sweep("duckdb-csv", "postgresql", "spark-parquet")
def test_seats_are_the_same_everywhere(store: Store, engine: str, on_duckdb: list[list[int]]) -> None:
    """Of households of up to seven four are counted: the same four."""
    found = counted(store(engine, crowd(7, 60)))
    assert found == on_duckdb
    assert min(map(sum, found)) > 0


@pytest.mark.sweep
def test_units_may_have_rows_of_their_own(store: Store, engine: str, on_duckdb: list[list[int]]) -> None:
    """In a second table of the same engine, where some households have nobody."""
    table = crowd(7, 60)
    rows = dict(zip(table["hh"].to_pylist(), table["TEN"].to_pylist(), strict=True))
    rows |= {"empty1": "own", "empty2": "rent", "empty3": "rent"}
    listed = pa.table({"TEN": list(rows.values()), "hh": list(rows)})
    source = with_units(store, engine, table.drop_columns(["TEN"]), listed)
    found, names = counted(source), [table.name for table in SPEC.workload.tables]
    empty = np.zeros((2, 2, 3), dtype=int)
    empty[0, 0, 0], empty[1, 0, 0] = 4, 8
    heads = [0, 0, 0, 12]
    for name, one, two in zip(names, found, on_duckdb, strict=True):
        more = {
            "households": empty.ravel(),
            "heads_count": heads,
            "heads_mean_records": np.multiply(heads, -2),
        }
        assert np.array_equal(np.subtract(one, two), more.get(name, np.zeros(len(one)))), name


@pytest.fixture(scope="session")
def values_on_duckdb(store: Store) -> list[list[int]]:
    return counted(store("duckdb-parquet", values.crowd(5, 40)), VALUES)


@pytest.mark.sweep("duckdb-csv", "postgresql")
def test_values_beside_households_are_the_same_everywhere(
    store: Store, engine: str, values_on_duckdb: list[list[int]]
) -> None:
    """Pay of persons, three of up to five counted, and rent of households: of each record, and of rows of their own."""
    table = values.crowd(5, 40)
    assert all(map(any, values_on_duckdb))
    assert counted(store(engine, table), VALUES) == values_on_duckdb
    own = table.group_by(["hh", "TEN", "RENT"]).aggregate([])
    source = with_units(store, engine, table.drop_columns(["TEN", "RENT"]), own)
    assert counted(source, VALUES) == values_on_duckdb


def with_units(store: Store, engine: str, records: pa.Table, listed: pa.Table) -> RecordSource:
    """Records, and the rows of their units in a second table of the same engine."""
    source = store(engine, records)
    if engine == "duckdb-file":
        with duckdb.connect(str(source.path)) as connection:
            connection.register("given", listed)
            connection.execute("CREATE TABLE units AS SELECT * FROM given")
        units = RecordSource(source.path, table="units")
    else:
        units = store(engine, listed)
    place = source.path, source.kind, source.table, source.engine, source.url, source.dialect
    return RecordSource(*place, units=units)
