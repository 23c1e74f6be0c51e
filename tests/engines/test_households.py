"""Units with their records: every engine counts the seats that DuckDB counts in Parquet files."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from tests.households.test_households import WHOLE, crowd

from tabulae.products.product import rules_of
from tabulae.products.tables.count import tabulate
from tabulae.sources.source import RecordSource
from tabulae.sources.units import UnitRule
from tabulae.spec import Spec

Store = Callable[[str, pa.Table], RecordSource]
SPEC = Spec.from_text(WHOLE)


def counted(source: RecordSource) -> list[np.ndarray]:
    counts = tabulate(source, SPEC.domain, rules_of(SPEC), UnitRule("hh", 4, bytes(32)))
    return [counts.answer(table.operator(SPEC.domain)) for table in SPEC.workload.tables]


@pytest.fixture(scope="module")
def on_duckdb(store: Store) -> list[np.ndarray]:
    return counted(store("duckdb-parquet", crowd(7, 60)))


def test_seats_are_the_same_everywhere(store: Store, engine: str, on_duckdb: list[np.ndarray]) -> None:
    """Of households of up to seven four are counted: the same four."""
    found = counted(store(engine, crowd(7, 60)))
    assert all(np.array_equal(one, two) for one, two in zip(found, on_duckdb, strict=True))
    assert sum(map(np.sum, found)) > 0
