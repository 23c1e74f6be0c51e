"""What a file declares: names, types and domains, without a look at its records."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tabulae.errors import DataError, InvalidArgument
from tabulae.sources.declared import DeclaredColumn, declared_columns, only_table, peek
from tabulae.sources.source import RecordSource

TABLE = '''
CREATE TYPE sexes AS ENUM ('F', 'M');
CREATE TABLE persons (
    id INTEGER PRIMARY KEY,
    sex sexes NOT NULL,
    age SMALLINT CHECK (age BETWEEN 0 AND 114),
    "Race, or ""other""" VARCHAR CHECK ("Race, or ""other""" IN ('a', 'b''s')),
    size INTEGER CHECK (size >= 1), CHECK (size <= 9),
    code VARCHAR, number INTEGER, voted BOOLEAN, income DOUBLE, born DATE, parts INTEGER[]
);
INSERT INTO persons VALUES (1, 'F', 7, 'a', 3, '007', 12, true, 0.5, '2020-01-01', [1]);
'''


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "county.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(TABLE)
    return path


def test_a_table_of_duckdb(database: Path) -> None:
    found = {c.name: c for c in declared_columns(RecordSource(database, table="persons"))}
    domains = {name: c.categories or c.bounds for name, c in found.items() if c.has_domain}
    assert domains == {
        "sex": ("F", "M"),
        "age": (0, 114),
        'Race, or "other"': ("a", "b's"),
        "size": (1, 9),
        "voted": ("false", "true"),
    }
    assert {name for name, c in found.items() if not c.can_be_counted} == {"id", "income", "born", "parts"}
    assert (found["sex"].by, found["age"].by, found["id"].key) == ("ENUM", "CHECK", True)


@pytest.mark.parametrize(
    "column",
    [
        "c VARCHAR CHECK (c IN ('a', 'b\nc'))",
        "c VARCHAR CHECK (c IN ('a', ''))",
        "c VARCHAR CHECK (c IN ('a', '_T'))",
        "c ENUM ('a', 'b\nc')",
        "c INTEGER CHECK (c BETWEEN 1 AND 1000001)",
    ],
)
def test_values_that_no_spec_takes_are_no_domain(tmp_path: Path, column: str) -> None:
    path = tmp_path / "some.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE t ({column}, d INTEGER CHECK (d BETWEEN 1 AND 1000000))")
    found = declared_columns(RecordSource(path, table="t"))
    assert [each.has_domain for each in found] == [False, True]
    assert found[0].can_be_counted


def test_a_parquet_file_has_types_and_no_domains(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    table = pa.table(
        {
            "sex": pa.array(["F", "M"]).dictionary_encode(),
            "age": pa.array([3, 4], pa.int8()),
            "voted": [True, False],
            "income": [1.5, 2.5],
            "nothing": pa.nulls(2),
        }
    )
    pq.write_table(table, path)
    found = {c.name: (c.content, c.type, c.categories) for c in declared_columns(RecordSource(path))}
    assert found == {
        "sex": ("text", "string, by dictionary", None),
        "age": ("whole numbers", "int8", None),
        "voted": ("truth values", "bool", ("false", "true")),
        "income": ("other", "double", None),
        "nothing": ("unknown", "null", None),
    }


def test_no_record_of_a_csv_file_is_read(tmp_path: Path) -> None:
    """What follows the first line may be anything."""
    path = tmp_path / "people.csv"
    path.write_bytes(b'SEX,"AGE, years"\r\n' + b'"no, "CSV" \r' * 1000)
    assert declared_columns(RecordSource(path)) == [
        DeclaredColumn("SEX", "", "unknown"),
        DeclaredColumn("AGE, years", "", "unknown"),
    ]


@pytest.mark.parametrize("line", ["F,34", "F,", "a,a", "1e5,b", " ,b"])
def test_a_first_line_that_names_nothing_is_refused_and_not_quoted(tmp_path: Path, line: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(line + "\nM,12\n")
    with pytest.raises(DataError, match="must name the columns") as caught:
        declared_columns(RecordSource(path))
    assert repr(line.split(",")[0]) not in str(caught.value)
    assert caught.value.confidential


def test_a_parquet_file_may_call_a_column_by_a_number_but_no_two_alike(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"2020": ["a"]}), path)
    assert declared_columns(RecordSource(path))[0].name == "2020"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["a", "a"]), path)
    with pytest.raises(DataError, match="share one: name them apart"):
        declared_columns(RecordSource(path))


def test_the_only_table_needs_no_name(database: Path) -> None:
    assert only_table(database) == "persons"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE SCHEMA other; CREATE VIEW other.some AS SELECT 1 AS one")
    with pytest.raises(InvalidArgument, match=r"several tables.*--table \(persons, other\.some\)"):
        only_table(database)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    for name in ("people.parquet", "people.duckdb"):
        (tmp_path / name).write_text("no such thing")
        with pytest.raises(DataError, match="is not a"):
            declared_columns(RecordSource(tmp_path / name, table="t" if name.endswith("duckdb") else None))
    path = tmp_path / "some.duckdb"
    duckdb.connect(str(path)).close()
    with pytest.raises(DataError, match="has no table 'none'"):
        declared_columns(RecordSource(path, table="none"))


def test_peek_finds_what_is_not_declared(database: Path) -> None:
    source = RecordSource(database, table="persons")
    before = declared_columns(source)
    after = peek(source, before)
    changed = {c.name: c for c, old in zip(after, before, strict=True) if c != old}
    assert {name: c.categories for name, c in changed.items()} == {"code": ("007",), "number": (12,)}
    assert all(c.found and "all records" in c.by for c in changed.values())


@pytest.mark.parametrize(
    ("values", "categories", "bounds"),
    [
        (["b", "a", "a", " a ", ""], ("a", "b"), None),
        (["1", "02", "3"], ("02", "1", "3"), None),
        (["1", "-2", "+3", "4.0"], (-2, 1, 3, 4), None),
        ([str(n) for n in range(0, 60, 3)], None, (0, 57)),
        ([str(n) for n in range(-5, 300)], None, (-5, 299)),
        ([f"w{n}" for n in range(300)], None, None),
        ([f"{n:04}" for n in range(300)], None, None),
        (["", " "], None, None),
    ],
)
def test_what_peek_makes_of_values(
    tmp_path: Path, values: list[str], categories: object, bounds: object
) -> None:
    path = tmp_path / "people.csv"
    path.write_text("A,B\n" + "".join(f"{value},x\n" for value in values))
    found = peek(RecordSource(path), declared_columns(RecordSource(path)))[0]
    assert (found.categories, found.bounds) == (categories, bounds)
    assert found.found is (categories is not None or bounds is not None)
