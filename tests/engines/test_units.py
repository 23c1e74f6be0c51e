"""Of a unit with more records than are counted, the same are counted on every engine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.measure.spines import plan, records
from tests.tabulate.test_spine_records import RULES as SPINE_RULES
from tests.tabulate.test_spine_records import columns_of as spine_columns
from tests.tabulate.test_spine_records import leaves, same
from tests.tabulate.test_units import DOMAIN, KEY, RULES, chosen_by_hand, columns_of, vector

from tabulae.products.areas.count import open_spine_records
from tabulae.products.tables.count import tabulate
from tabulae.sources.source import RecordSource
from tabulae.sources.units import UnitRule

Store = Callable[[str, pa.Table], RecordSource]

UNITS = ["7", "07", "Ann", "ann", "é|:,'", "e\u0301|:,'", "a\\b"]


def crowd(units: list[str]) -> list[tuple[str, str, int]]:
    chance = random.Random(11)
    return [(chance.choice(units), chance.choice("FM"), chance.randrange(3)) for _ in range(120)]


@pytest.mark.sweep
def test_the_records_of_the_smallest_tickets(store: Store, engine: str) -> None:
    rows = crowd(UNITS)
    source = store(engine, pa.table(columns_of([(f" {unit}\t", sex, age) for unit, sex, age in rows])))
    counts = tabulate(source, DOMAIN, RULES, UnitRule("PID", 4, KEY, 11))
    assert vector(counts).tolist() == chosen_by_hand(rows, 4).tolist()
    over = [n - 4 for n in Counter(unit for unit, *_ in rows).values() if n > 4]
    assert max(over) > 11 > min(over)
    assert counts.left_out is not None
    assert counts.left_out.tolist() == [len(over), sum(min(n, 11) for n in over)]


@pytest.mark.sweep
def test_ids_that_are_numbers(store: Store, typed: str) -> None:
    rows = crowd(["-3", "0", "41"])
    table = pa.table(columns_of(rows))
    expected = chosen_by_hand(rows, 7).tolist()
    kinds = {"whole": pa.int64(), "decimal": pa.decimal128(30, 0)}
    for name, kind in kinds.items():
        table = table.append_column(name, pa.array([Decimal(unit) for unit, *_ in rows]).cast(kind))
    source = store(typed, table)
    for name in kinds:
        counts = tabulate(source, DOMAIN, RULES, UnitRule(name, 7, KEY))
        assert vector(counts).tolist() == expected, name


@pytest.mark.sweep("duckdb-csv", "postgresql")
def test_areas(store: Store, engine: str) -> None:
    """Leaf codes, their cells, and the bound on units, by the same records in DuckDB alone."""
    of = plan(5)
    people = records(of, 60, 5)
    table = pa.table(
        {name: np.asarray(values).tolist() for name, values in spine_columns(of, people).items()}
    )
    unit = UnitRule("ID", 9, KEY)
    expected = open_spine_records(store("duckdb-parquet", table), SPINE_RULES, of, leaves(of), unit=unit)
    assert expected.records == 4 * 9
    found = open_spine_records(store(engine, table), SPINE_RULES, of, leaves(of), unit=unit)
    assert same(found, expected)
