"""Records to counts: the same on every kind of source, and equal to counting by hand."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tabulae.domain import Domain
from tabulae.linalg import Identity, Kron
from tabulae.products.tables.count import Counts, tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource

Writer = Callable[..., RecordSource]
KINDS = ("csv", "parquet", "duckdb")

DOMAIN = Domain({"sex": ["F", "M"], "age": range(18, 21), "county": ["001", "003"]})
RULES = {"sex": ColumnCoding("SEX"), "age": ColumnCoding("Age of person"), "county": ColumnCoding("c,ounty")}


def vector(counts: Counts) -> list[int]:
    return counts.answer(Kron(tuple(Identity(n) for n in counts.domain.shape))).tolist()


def by_hand(rows: list[tuple[str, int, str]]) -> list[int]:
    seen = Counter(rows)
    cells = itertools.product(*(attribute.values for attribute in DOMAIN.attributes))
    return [seen[cell] for cell in cells]


def columns_of(rows: list[tuple[str, int, str]]) -> dict[str, list[object]]:
    sex, age, county = ([row[i] for row in rows] for i in range(3))
    return {"id": list(range(len(rows))), "c,ounty": county, "SEX": sex, "Age of person": age}


records = st.lists(
    st.tuples(st.sampled_from("FM"), st.sampled_from([18, 19, 20]), st.sampled_from(["001", "003"])),
    min_size=1,
    max_size=30,
)


@settings(max_examples=settings().max_examples // 4)
@given(rows=records)
def test_every_source_agrees_with_counting_by_hand(
    write_source: Writer, rows: list[tuple[str, int, str]]
) -> None:
    expected = by_hand(rows)
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            counts = tabulate(write_source(Path(folder), kind, columns_of(rows)), DOMAIN, RULES)
            assert vector(counts) == expected
            assert counts.total == len(rows)


def test_neither_order_nor_threads_nor_kind_matter(write: Writer) -> None:
    chance = random.Random(5)
    rows = [
        (chance.choice("FM"), chance.choice([18, 18, 18, 19, 20]), chance.choice(["001", "003"]))
        for _ in range(20_000)
    ]
    expected = Counts.from_array(DOMAIN, by_hand(rows)).fingerprint()
    for kind in KINDS:
        assert tabulate(write(kind, columns_of(rows)), DOMAIN, RULES).fingerprint() == expected
    chance.shuffle(rows)
    assert tabulate(write("csv", columns_of(rows), "shuffled"), DOMAIN, RULES).fingerprint() == expected


def test_attributes_may_share_a_column(write: Writer, kind: str) -> None:
    domain = Domain({"age": range(3), "again": range(3)})
    source = write(kind, {"a": [0, 1, 1]})
    counts = tabulate(source, domain, {"age": ColumnCoding("a"), "again": ColumnCoding("a")})
    assert vector(counts) == [1, 0, 0, 0, 2, 0, 0, 0, 0]


def test_a_domain_too_large_to_write_out(write: Writer, kind: str) -> None:
    domain = Domain({f"a{i}": 1000 for i in range(5)})
    source = write(kind, {f"a{i}": [i, 999, 999] for i in range(5)})
    counts = tabulate(source, domain, {name: ColumnCoding(name) for name in domain.names})
    codes = np.array([[0, 1, 2, 3, 4], [999] * 5, [999] * 5])
    assert counts.fingerprint() == Counts.from_records(domain, codes).fingerprint()


def test_quotes_byte_order_mark_line_endings_and_line_breaks_in_fields(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    text = '\ufeff"SEX",note,"Age of person","c,ounty"\r\n"F","a ""b"",\r\n c","018","001"\r\n M ,,19,003\r\n'
    path.write_bytes(text.encode())
    counts = tabulate(RecordSource(path), DOMAIN, RULES)
    assert vector(counts) == by_hand([("F", 18, "001"), ("M", 19, "003")])


@pytest.mark.parametrize("name", ["it's [a] {file}* ?.csv", "année=2020/people.csv", "-- people.csv"])
def test_odd_paths(tmp_path: Path, name: str) -> None:
    (tmp_path / "it.csv").write_text("a\n2\n")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("a\n1\n")
    assert vector(tabulate(RecordSource(path), Domain({"a": range(3)}), {"a": ColumnCoding("a")})) == [
        0,
        1,
        0,
    ]


def test_names_of_folders_are_not_columns(tmp_path: Path) -> None:
    folder = tmp_path / "a=7"
    folder.mkdir()
    parquet.write_table(pa.table({"a": [1]}), folder / "people.parquet")
    source = RecordSource(folder / "people.parquet")
    assert vector(tabulate(source, Domain({"a": range(3)}), {"a": ColumnCoding("a")})) == [0, 1, 0]


def test_columns_that_differ_in_case_are_two(tmp_path: Path) -> None:
    for path, domain_column in ((tmp_path / "x.csv", "sex"), (tmp_path / "y.csv", "SEX")):
        path.write_text("sex,SEX\n0,1\n")
        counts = tabulate(RecordSource(path), Domain({"a": range(2)}), {"a": ColumnCoding(domain_column)})
        assert vector(counts) == ([1, 0] if domain_column == "sex" else [0, 1])
    parquet.write_table(pa.table([[0], [1]], names=["sex", "SEX"]), tmp_path / "z.parquet")
    counts = tabulate(
        RecordSource(tmp_path / "z.parquet"), Domain({"a": range(2)}), {"a": ColumnCoding("SEX")}
    )
    assert vector(counts) == [0, 1]


def test_tables_of_another_schema_and_views(tmp_path: Path) -> None:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 1 AS a; CREATE VIEW v AS SELECT 2 AS a"
        )
    domain, rules = Domain({"a": range(3)}), {"a": ColumnCoding("a")}
    assert vector(tabulate(RecordSource(path, table="s.t"), domain, rules)) == [0, 1, 0]
    assert vector(tabulate(RecordSource(path, table="v"), domain, rules)) == [0, 0, 1]
