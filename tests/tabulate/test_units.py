"""At most so many records of each unit: which are counted, and how little one unit changes."""

from __future__ import annotations

import hashlib
import random
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tabulae.domain import Domain
from tabulae.errors import DataError, InvalidArgument
from tabulae.linalg import Identity, Kron
from tabulae.products.tables.count import Counts, tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource
from tabulae.sources.units import UnitRule

Writer = Callable[..., RecordSource]
Row = tuple[str, str, int]  # unit, sex, age

DOMAIN = Domain({"sex": ["F", "M"], "age": range(3)})
RULES = {"sex": ColumnCoding("SEX"), "age": ColumnCoding("AGE")}
KEY = bytes(range(32))
KINDS = ("csv", "parquet", "duckdb")
FEW_KINDS = ["parquet", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("csv", "duckdb"))]
"""For what is done with values that were read, from wherever."""
FIND = (Phase.explicit, Phase.generate)  # an engine is too slow a thing to shrink an example with


def vector(counts: Counts) -> np.ndarray:
    return counts.answer(Kron(tuple(Identity(n) for n in counts.domain.shape)))


def columns_of(rows: list[Row]) -> dict[str, list[Any]]:
    return {"PID": [r[0] for r in rows], "SEX": [r[1] for r in rows], "AGE": [r[2] for r in rows]}


def counted(source: RecordSource, k: int, key: bytes = KEY) -> np.ndarray:
    return vector(tabulate(source, DOMAIN, RULES, UnitRule("PID", k, key)))


def chosen_by_hand(rows: list[Row], k: int, key: bytes = KEY) -> np.ndarray:
    """The documented choice, in plain Python: the k smallest tickets of each unit."""
    tickets: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for (unit, sex, age), number in Counter(rows).items():
        codes = ("FM".index(sex), age)
        for which in range(number):
            text = f"{key.hex()}:{codes[0]},{codes[1]},{which}:{unit}"
            tickets[unit].append((hashlib.sha256(text.encode()).hexdigest(), codes[0] * 3 + codes[1]))
    kept = [cell for found in tickets.values() for _, cell in sorted(found)[:k]]
    return np.bincount(kept, minlength=6)


people = st.lists(
    st.tuples(st.sampled_from(["7", "07", "Ann", "ann", "é|:,'"]), st.sampled_from("FM"), st.integers(0, 2)),
    min_size=1,
    max_size=24,
)


@pytest.mark.long
@settings(max_examples=8, phases=FIND)
@given(rows=people, k=st.integers(1, 4), seed=st.integers(0, 99))
def test_every_source_in_any_order_keeps_the_rows_of_the_smallest_tickets(
    write_source: Writer, rows: list[Row], k: int, seed: int
) -> None:
    expected = chosen_by_hand(rows, k)
    sizes = Counter(unit for unit, *_ in rows)
    assert expected.sum() == sum(min(size, k) for size in sizes.values())
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            shuffled = random.Random(f"{seed}{kind}").sample(rows, len(rows))
            found = counted(write_source(Path(folder), kind, columns_of(shuffled)), k)
            assert found.tolist() == expected.tolist(), kind


@settings(max_examples=settings().max_examples // 3, phases=FIND)
@given(
    others=people, mine=people, instead=people, k=st.integers(1, 3), key=st.binary(min_size=32, max_size=32)
)
def test_one_unit_changes_at_most_k_rows(
    write_source: Writer, others: list[Row], mine: list[Row], instead: list[Row], k: int, key: bytes
) -> None:
    """Record and replay with one key: neighbours differ by at most k rows, whatever the unit's own rows."""
    ours = [("X", sex, age) for _, sex, age in mine]
    theirs = [("X", sex, age) for _, sex, age in instead]
    with tempfile.TemporaryDirectory() as folder:
        without, one, other = (
            counted(write_source(Path(folder), "parquet", columns_of(others + rows), name), k, key)
            for name, rows in (("without", []), ("one", ours), ("other", theirs))
        )
    added = one - without
    assert added.min() >= 0
    assert added.sum() == min(k, len(ours))
    change = other - one
    assert change[change > 0].sum() <= k
    assert -change[change < 0].sum() <= k


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_a_unit_with_no_more_rows_is_untouched(write: Writer, kind: str) -> None:
    rows = [("a", "F", 0), ("a", "F", 0), ("a", "M", 2), ("b", "M", 1)]
    source = write(kind, columns_of(rows))
    every = vector(tabulate(source, DOMAIN, RULES)).tolist()
    for key in (KEY, bytes(32)):
        assert counted(source, 3, key).tolist() == every
        assert counted(source, 10**6, key).sum() == 4


def test_threads_and_many_units(write: Writer) -> None:
    chance = random.Random(3)
    rows = [(f"u{chance.randrange(4000)}", chance.choice("FM"), chance.randrange(3)) for _ in range(20_000)]
    assert counted(write("parquet", columns_of(rows)), 3).tolist() == chosen_by_hand(rows, 3).tolist()


def test_every_row_of_a_unit_is_as_likely_as_any_other(write: Writer) -> None:
    """4,000 units of 9 rows in one cell and 1 in another, one kept: a tenth is odd; false alarm 1e-9 (6 sigma)."""
    units = 4000
    rows = [(str(u), "F", 0) for u in range(units) for _ in range(9)] + [
        (str(u), "M", 2) for u in range(units)
    ]
    kept = counted(write("parquet", columns_of(rows)), 1)
    assert kept.sum() == units
    assert abs(kept[5] - units / 10) < 6 * np.sqrt(units * 0.09)


def test_another_key_keeps_other_rows(write: Writer) -> None:
    rows = [(str(u), sex, age) for u in range(60) for sex in "FM" for age in range(3)]
    source = write("parquet", columns_of(rows))
    found = {tuple(counted(source, 2, bytes([i]) * 32)) for i in range(3)}
    assert len(found) == 3
    assert tuple(counted(source, 2, bytes([0]) * 32)) in found


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_policies_see_every_row(write: Writer, kind: str) -> None:
    """A value that is refused is refused even in a row that would not be chosen; "other" is a cell like any."""
    rows = [("a", "F", 0)] * 30 + [("a", "X", 0)]
    source = write(kind, columns_of(rows))
    for key in (KEY, bytes(32)):
        with pytest.raises(DataError, match=r"'SEX'.*outside the declared"):
            counted(source, 1, key)
    domain = Domain({"sex": ["F", "M", "other"]})
    rules = {"sex": ColumnCoding("SEX", unknown="other")}
    assert vector(tabulate(source, domain, rules, UnitRule("PID", 31, KEY))).tolist() == [30, 0, 1]
    assert vector(tabulate(source, domain, rules, UnitRule("PID", 4, KEY))).sum() == 4


@pytest.mark.parametrize(
    ("ids", "type_"),
    [
        ([1, 1, 2], pa.int64()),
        ([1, 1, 2], pa.uint8()),
        ([Decimal(1), Decimal(1), Decimal(2)], pa.decimal128(30, 0)),
        (["1", " 1\t", "2"], pa.string()),
        (["1", "1", "2"], pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_ids_mean_the_same_however_they_are_stored(
    tmp_path: Path, ids: list[Any], type_: pa.DataType
) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(
        pa.table({"PID": pa.array(ids, type_), "SEX": ["F", "M", "M"], "AGE": [0, 1, 2]}), path
    )
    expected = chosen_by_hand([("1", "F", 0), ("1", "M", 1), ("2", "M", 2)], 1)
    assert counted(RecordSource(path), 1).tolist() == expected.tolist()


def test_uuids_and_databases_that_ignore_case(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT uuid() AS PID, 'F' AS SEX, 0 AS AGE FROM range(5)")
        connection.execute("CREATE TABLE cased (PID VARCHAR COLLATE NOCASE, SEX VARCHAR, AGE INTEGER)")
        connection.execute("INSERT INTO cased VALUES ('a', 'F', 0), ('A', 'F', 0), ('a', 'F', 0)")
    assert counted(RecordSource(path, table="people"), 1).sum() == 5
    assert counted(RecordSource(path, table="cased"), 1).sum() == 2


def test_the_column_of_the_unit_may_be_an_attribute_too(write: Writer, kind: str) -> None:
    source = write(kind, {"house": ["0", "0", "1"]})
    counts = tabulate(source, Domain({"h": 2}), {"h": ColumnCoding("house")}, UnitRule("house", 1, KEY))
    assert vector(counts).tolist() == [1, 1]


# bad input --------------------------------------------------------------------------------------

SECRET = "SECRET-7781"


def refusal(source: RecordSource) -> DataError:
    with pytest.raises(DataError) as caught:
        counted(source, 2)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert KEY.hex() not in shown
    return caught.value


@pytest.mark.parametrize("nothing", [None, "", "  "])
def test_a_row_without_a_unit_is_refused(write: Writer, kind: str, nothing: str | None) -> None:
    columns = columns_of([("a", "F", 0), ("b", SECRET, 0), ("b", "M", 1)])
    columns["PID"][0] = nothing
    error = refusal(write(kind, columns))
    assert "column 'PID' (unit_id): NULL values" in str(error)
    assert "column 'SEX' (attribute 'sex'): values outside" in str(error), "both are told at once"
    assert not any(character.isdigit() for character in str(error)), "no value and no count"
    assert "NULL values, and every record needs the id of its unit: in 1 records" in str(error.confidential)


def test_a_column_of_ids_that_has_no_value_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"PID": pa.nulls(1), "SEX": ["F"], "AGE": [0]}), path)
    assert "(unit_id): NULL values" in str(refusal(RecordSource(path)))


def test_a_missing_or_ambiguous_column(write: Writer, tmp_path: Path) -> None:
    error = refusal(write("csv", {"pid": [SECRET], "SEX": ["F"], "AGE": [0]}))
    assert "no column 'PID' (unit_id), but one that is written 'pid'" in str(error)
    twice = tmp_path / "twice.csv"
    twice.write_text(f"PID,PID,SEX,AGE\n{SECRET},1,F,0\n")
    assert "several columns named 'PID' (unit_id)" in str(refusal(RecordSource(twice)))


@pytest.mark.parametrize("ids", [[7.0], [[7]], [Decimal("7.5")], [True], [b"7"]])
def test_types_that_cannot_be_ids(tmp_path: Path, ids: list[Any]) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"PID": ids, "SEX": ["F"], "AGE": [0]}), path)
    error = refusal(RecordSource(path))
    assert "column 'PID' (unit_id) has type" in str(error)
    assert "convert it to text" in str(error)


@pytest.mark.parametrize(
    ("rows", "key"), [(0, KEY), (-1, KEY), (2.5, KEY), (True, KEY), (1, b"short"), (1, "k" * 32)]
)
def test_rules_that_mean_nothing(rows: Any, key: Any) -> None:
    with pytest.raises(InvalidArgument):
        UnitRule("PID", rows, key)


def test_the_key_is_not_shown() -> None:
    assert KEY.hex() not in repr(UnitRule("PID", 1, KEY))
    assert repr(KEY) not in repr(UnitRule("PID", 1, KEY))


def test_lost_or_doubled_records_are_refused(write: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the choice ever kept more or fewer rows than it should, the number of rows would give it away."""
    from tabulae.products.tables import count as _tabulate

    bounded = _tabulate.bounded

    def wider(table: Any, cell: Any, rule: UnitRule) -> Any:
        return bounded(table, cell, UnitRule(rule.column, rule.rows + 1, rule.key))

    monkeypatch.setattr(_tabulate, "bounded", wider)
    with pytest.raises(DataError, match="lost or doubled"):
        counted(write("csv", columns_of([("a", "F", 0)] * 5)), 2)
