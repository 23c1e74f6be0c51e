"""Counts of groups on every engine: as by definition, the same to the last one, and only counts leave an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.guild import counted as guild_counted
from tests.guild import people
from tests.tabulate.group_oracle import FAMILIES, Person, by_definition, entries_of, ladder, level
from tests.tabulate.test_group_records import ATTRIBUTES, ETHNICITY, LEAVES, RACE, RULES, SHAPE, columns_of

import tabulae as tb
from tabulae.domain.groups import Group, GroupMap, Ladder, Regions
from tabulae.errors import DataError
from tabulae.products.groups import count as group_coding
from tabulae.products.groups.count import open_group_records
from tabulae.products.groups.levels import AdaptivePlan
from tabulae.sources.engines import postgresql as postgres_copy
from tabulae.sources.source import RecordSource, batches
from tabulae.sources.units import UnitRule

Store = Callable[[str, pa.Table], RecordSource]

SECRET = "SECRET4711"
WORDS = pa.string()


def plan() -> AdaptivePlan:
    """Groups of both families at two levels; leaves 1 and 2 are one area, and leaf 5 is in the nation only."""
    groups = (
        Group("A", "1", "race", "alone"),
        Group("B", "1", "race", "any"),
        Group("C", "2", "race", "any"),
        Group("E", "1", "ethnicity", "any"),
    )
    members = [("A", "10"), ("B", "10"), ("B", "13"), ("C", "12"), ("E", "20")]
    of = GroupMap(FAMILIES, groups, members)
    town = Regions("town", ("x", "y", "z"), np.array([0, 1, 1, 2, 2, -1]))
    few = Ladder.of({"sex": 2, "age": 4}, [])
    return AdaptivePlan(
        (
            level(Regions.nation(LEAVES), of, "1", ladder()),
            level(town, of, "1", ladder(cut=3)),
            level(town, of, "2", few),
        )
    )


def crowd(size: int = 300) -> list[Person]:
    """People who differ in all that is read, some of whom are alike; every code may be missing."""
    rng = np.random.default_rng(10)

    def codes(of: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(rng.permutation(of)[: rng.integers(0, most + 1)].tolist())

    return [
        Person(
            int(rng.integers(LEAVES)),
            int(rng.integers(2)),
            int(rng.integers(4)),
            {"race": codes(RACE.codes, 3), "ethnicity": codes(ETHNICITY.codes, 1)},
        )
        for _ in range(size)
    ]


def table_of(people: list[Person], **changed: Any) -> pa.Table:
    columns = columns_of(people) | changed
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def counted(source: RecordSource, **options: Any) -> tuple[int, list[Any], bytes]:
    with open_group_records(source, ATTRIBUTES, RULES, SHAPE, plan(), **options) as counts:
        return counts.records, entries_of(counts, plan()), counts.fingerprint()


EVERY = table_of(crowd())
OF_UNITS = table_of(crowd(), NAME=[f"n{i**2 % 7}" for i in range(300)])
KEPT = UnitRule("NAME", 40, bytes(range(32)))


@pytest.fixture(scope="session")
def on_duckdb(store: Store) -> dict[str, Any]:
    """What DuckDB counts: of all records, of those of units that are kept, and by another key."""
    source = store("duckdb-parquet", OF_UNITS)
    return {
        "every": counted(store("duckdb-parquet", EVERY)),
        "kept": counted(source, unit=KEPT),
        "other": counted(source, unit=UnitRule("NAME", 40, bytes(32))),
    }


@pytest.mark.sweep("duckdb-csv", "postgresql")
def test_counts_are_those_of_the_definition_and_of_duckdb(
    store: Store, engine: str, on_duckdb: dict[str, Any]
) -> None:
    people = crowd()
    records, entries, fingerprint = counted(store(engine, EVERY))
    assert (records, entries) == (len(people), by_definition(people, plan()))
    assert fingerprint == on_duckdb["every"][2]


@pytest.mark.sweep("duckdb-csv", "postgresql")
def test_the_same_records_of_units_are_kept(store: Store, engine: str, on_duckdb: dict[str, Any]) -> None:
    found = counted(store(engine, OF_UNITS), unit=KEPT)
    assert found[0] == 160
    assert found == on_duckdb["kept"]
    assert found[2] != on_duckdb["other"][2]


@pytest.mark.sweep("duckdb-csv", "postgresql")
@pytest.mark.parametrize("unit", [None, pytest.param(UnitRule("NAME", 2, bytes(32)), marks=pytest.mark.long)])
def test_refusals_are_word_for_word_those_of_duckdb(store: Store, engine: str, unit: UnitRule | None) -> None:
    columns = columns_of(crowd(30))
    columns["RACE2"][3] = columns["COUNTY"][4] = SECRET
    columns["SEX"][5] = None
    columns["NAME"][6] = None
    told = []
    for one in (engine, "duckdb-parquet"):
        source = store(one, table_of([], **columns))
        with pytest.raises(DataError) as caught:
            counted(source, unit=unit)
        assert SECRET not in str(caught.value)
        assert SECRET in str(caught.value.confidential)
        told.append((str(caught.value).replace(source.name, "people"), caught.value.confidential))
    assert told[0] == told[1]
    assert told[0][0].count("\n  ") == (4 if unit else 3)


@pytest.mark.sweep
def test_no_records(store: Store, typed: str) -> None:
    kinds = {"AGE": pa.int64(), "BLOCK": pa.int64()}
    none = pa.table({name: pa.array([], kinds.get(name, WORDS)) for name in columns_of(crowd(1))})
    with pytest.raises(DataError, match="has no records: there is nothing to publish"):
        counted(store(typed, none))


@pytest.fixture(params=["postgresql", pytest.param("spark-parquet", marks=pytest.mark.spark)])
def elsewhere(request: pytest.FixtureRequest) -> str:
    """The engines that are not our own, of which counts are fetched."""
    if request.param == "spark-parquet":
        request.getfixturevalue("spark").conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    return request.param


@pytest.mark.sweep
def test_only_counts_come_and_some_at_a_time(
    store: Store, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[pa.RecordBatch] = []

    def watched(table: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(table):
            seen.append(batch)
            yield batch

    monkeypatch.setattr(postgres_copy, "_BYTES_AT_ONCE", 300)  # a row has 8 or more
    monkeypatch.setattr(group_coding, "batches", watched)
    assert counted(store(elsewhere, table_of(crowd() * 2)))[0] == 600
    assert len(seen) > 1
    assert max(batch.num_rows for batch in seen) <= 50
    rows = pa.Table.from_batches(seen)
    assert sorted(rows.column_names) == ["area", "kind", "people", "w0"]
    assert {str(kind) for kind in rows.schema.types} == {"int64"}
    assert len(rows.group_by(["area", "kind", "w0"]).aggregate([])) == len(rows) < 300
    assert rows["people"].to_numpy().min() == 2


def test_a_release_by_the_same_spec(guild: Path, store: Store, elsewhere: str) -> None:
    """At a budget that leaves next to no noise (see tests/run/test_detailed.py) every total is the true one."""
    rows = people(400)
    columns = dict(zip(("TOWN", "SEX", "AGE", "ONE", "TWO"), zip(*rows, strict=True), strict=True))
    source = store(elsewhere, pa.table({name: pa.array(column) for name, column in columns.items()}))
    if source.url is None:
        records = f'path = "{source.path}"\nengine = "spark"'
    else:
        records = f'url = "{source.url}"\ntable = "{source.table}"'
    text = (
        guild.read_text().replace('path = "people.csv"', records).replace('budget = "3"', 'budget = "2000"')
    )
    for budget in ("1", "1/2"):
        text = text.replace(f'budget = "{budget}"\nthresholds', 'budget = "600"\nthresholds')
    guild.write_text(text.replace('"ledger.db"', '"large.db"'))
    (guild.parent / "people.csv").unlink()
    tb.Ledger.create(guild.parent / "large.db", 2000, "zcdp")
    release = tb.run(guild, guild.parent / "release")
    assert release.verify() == []
    totals = release.tables["totals"].to_pylist()
    truth = guild_counted(rows)
    assert [round(row["estimate"]) for row in totals] == [
        truth[row["region_type"], row["region"], row["group"]] for row in totals
    ]
    published = [path for path in release.path.rglob("*") if path.suffix in (".toml", ".json")]
    assert published
    assert not [path for path in published if str(source.path or source.url) in path.read_text()]
