"""Groups counted by an engine that is not our own, for which a second DuckDB stands in: the same, by definition."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabulae.errors import DataError
from tabulae.products.groups import count as group_coding
from tabulae.sources.source import RecordSource, batches, open_records
from tabulae.sources.units import UnitRule

from .group_oracle import Person, by_definition, people, plans
from .test_group_records import CROWD, LEAVES, columns_of, counted, small_plan

Writer = Callable[..., RecordSource]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, write_source: Writer) -> Callable[..., RecordSource]:
    """elsewhere(folder, columns) -> Source: records that are read as if DuckDB were not there to read them."""

    @contextmanager
    def opened(source: RecordSource, wanted: Any, unit: str | None, **options: Any) -> Iterator[Any]:
        with open_records(RecordSource(source.file), wanted, unit, **options) as records:
            yield records

    monkeypatch.setattr(group_coding, "open_records", opened)
    return lambda folder, columns: RecordSource(write_source(folder, "parquet", columns).file, engine="spark")


def test_counts_are_those_of_the_definition(elsewhere: Callable[..., RecordSource]) -> None:
    @settings(max_examples=settings().max_examples // 4)  # of real engines: tests/engines/test_groups.py
    @given(data=st.data(), crowd=people(LEAVES, least=0))
    def holds(data: st.DataObject, crowd: list[Person]) -> None:
        plan = data.draw(plans(LEAVES))
        with tempfile.TemporaryDirectory() as folder:
            source = elsewhere(Path(folder), _typed(columns_of(crowd)))
            assert counted(source, plan) == (len(crowd), by_definition(crowd, plan))

    holds()


def _typed(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Columns of which none is without a type because it has no value."""
    numbers = ("AGE", "BLOCK")
    return {
        name: pa.array(column, pa.int64() if name in numbers else pa.string())
        for name, column in columns.items()
    }


def test_units_are_counted_up_to_their_bound(elsewhere: Callable[..., RecordSource], tmp_path: Path) -> None:
    rule = UnitRule("NAME", 3, bytes(range(32)))
    source = elsewhere(tmp_path, columns_of(CROWD))
    found = counted(source, small_plan(), unit=rule)
    assert found[0] == 9
    assert found == counted(RecordSource(source.file), small_plan(), unit=rule)


@pytest.mark.parametrize(
    "column", ["BLOCK", "RACE2", *(pytest.param(name, marks=pytest.mark.long) for name in ("COUNTY", "SEX"))]
)
def test_one_record_that_is_refused_refuses_all(
    elsewhere: Callable[..., RecordSource], tmp_path: Path, column: str
) -> None:
    columns = columns_of(CROWD)
    columns[column][7] = 4711 if column == "BLOCK" else "4711"
    with pytest.raises(DataError, match=f"column '{column}' .*: values outside") as caught:
        counted(elsewhere(tmp_path, columns), small_plan())
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize("change", [lambda rows: rows.slice(1), lambda rows: pa.concat_tables([rows, rows])])
def test_records_lost_or_doubled_on_the_way_are_seen(
    elsewhere: Callable[..., RecordSource],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pa.Table], pa.Table],
) -> None:
    def wrong(table: Any) -> Iterator[pa.RecordBatch]:
        yield from change(pa.Table.from_batches(batches(table))).to_batches()

    monkeypatch.setattr(group_coding, "batches", wrong)
    with pytest.raises(DataError, match="records were lost or doubled in counting"):
        counted(elsewhere(tmp_path, columns_of(CROWD)), small_plan())
