"""What a raw value means, however it is stored, and what is done with values that mean nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa
import pytest
from pyarrow import parquet

from tabulae.domain import Attribute, Domain
from tabulae.errors import DataError, InvalidArgument
from tabulae.linalg import Identity, Kron, Total
from tabulae.products.tables.count import Counts, tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.source import RecordSource
from tabulae.sources.values import BLANKS, plain_text

Writer = Callable[..., RecordSource]

NULL, UNKNOWN = "null", "unknown"
# -3, 0, 7, 12, and categories of their own for what is not declared and what is missing.
NUMBERS = Attribute("a", ("-3", "0", "7", "12", "other"))
NUMBER_CODES = {-3: 0, 0: 1, 7: 2, 12: 3}


def outcomes(
    source: RecordSource, columns: list[str], attribute: Attribute, values: Any = None
) -> list[int | str]:
    """The code that the only record gets for each column: a position, "unknown" or "null"."""
    few = [columns[i : i + 8] for i in range(0, len(columns), 8)]
    return [outcome for part in few for outcome in _outcomes(source, part, attribute, values)]


def _outcomes(source: RecordSource, columns: list[str], attribute: Attribute, values: Any) -> list[int | str]:
    found: dict[str, int | str] = {}
    try:
        counts = _counts(source, columns, attribute, values)
    except DataError as error:
        for line in str(error).splitlines():
            if line.startswith("  column '"):
                found[line.split("'")[1]] = NULL if "NULL values" in line else UNKNOWN
        counts = _counts(source, [column for column in columns if column not in found], attribute, values)
    if counts is not None:
        names = counts.domain.names
        for name in names:
            one = Kron(tuple((Identity if other == name else Total)(attribute.size) for other in names))
            found[name] = counts.answer(one).tolist().index(1)
    return [found[column] for column in columns]


def _counts(source: RecordSource, columns: list[str], attribute: Attribute, values: Any) -> Counts | None:
    if not columns:
        return None
    domain = Domain({name: dataclasses.replace(attribute, name=name) for name in columns})
    return tabulate(source, domain, {name: ColumnCoding(name, values=values) for name in columns})


def outcome(source: RecordSource, attribute: Attribute, values: Any = None) -> int | str:
    return outcomes(source, ["x"], attribute, values)[0]


TEXTS: list[tuple[str, int | str]] = [
    ("7", 2),
    ("+7", 2),
    ("007", 2),
    ("7.0", 2),
    ("7.000", 2),
    (" 7\t", 2),
    ("-3", 0),
    ("-03.0", 0),
    ("0", 1),
    ("-0", 1),
    ("+00", 1),
    ("12", 3),
    ("", NULL),
    ("  ", NULL),
    ("3", UNKNOWN),
    ("--3", UNKNOWN),
    ("+-3", UNKNOWN),
    ("- 3", UNKNOWN),
    ("0-3", UNKNOWN),
    ("7.5", UNKNOWN),
    ("7.", UNKNOWN),
    (".7", UNKNOWN),
    ("7e0", UNKNOWN),
    ("1e1", UNKNOWN),
    ("0x7", UNKNOWN),
    ("7,0", UNKNOWN),
    ("1 2", UNKNOWN),
    ("?", UNKNOWN),
    ("NA", UNKNOWN),
    ("NULL", UNKNOWN),
    ("nan", UNKNOWN),
    ("７", UNKNOWN),  # a full-width digit
    ("7\n12", UNKNOWN),
    ("99999999999999999999999999", UNKNOWN),
    ("00000000000000000000000000000012", 3),
]


def check_rows(write: Writer, kind: str, known: Any, cases: list[tuple[str, int | str]], **rule: Any) -> None:
    """Each text is a record of its own, and all are counted at once: codes of known labels, "other" for the rest."""
    labels, texts, codes = (*known, "other"), [text for text, _ in cases], [code for _, code in cases]
    number = Attribute.of("number", list(range(len(cases))))
    domain = Domain({"number": number, "x": Attribute("x", labels)})
    every = {"number": ColumnCoding("number", values={i: i for i in range(len(cases))})}
    every["x"] = ColumnCoding("x", unknown="other", null="other", **rule)
    found = tabulate(write(kind, {"number": list(range(len(cases))), "x": texts}), domain, every)
    counted = found.answer(Kron((Identity(len(cases)), Identity(len(labels))))).reshape(len(cases), -1)
    expected = [code if isinstance(code, int) else len(labels) - 1 for code in codes]
    assert (counted.sum(axis=1) == 1).all()
    assert counted.argmax(axis=1).tolist() == expected
    for outside, policy in ((NULL, "null"), (UNKNOWN, "unknown")):
        some = [text for text, code in cases if code == outside]
        if some:  # where the other kind were among them, they would be refused
            source = write(kind, {"number": list(range(len(some))), "x": some}, outside)
            alone = {"x": ColumnCoding("x", **{policy: "other"}, **rule)}
            told = tabulate(source, Domain({"x": domain.attributes[1]}), alone)
            assert told.answer(Identity(len(labels))).tolist()[-1] == len(some)


def test_numbers_as_text_in_csv(write: Writer, tmp_path: Path) -> None:
    check_rows(write, "csv", NUMBERS.labels[:-1], TEXTS, values=NUMBER_CODES)
    chosen = TEXTS[3::4]  # each in a column of its own, which a reader might take for one of numbers
    path = tmp_path / "x.csv"
    names = [f"x{i}" for i in range(len(chosen))]
    fields = ",".join(f'"{text}"' for text, _ in chosen)
    path.write_text(f"{','.join(names)}\n{fields}\n", encoding="utf-8", newline="")
    assert outcomes(RecordSource(path), names, NUMBERS, NUMBER_CODES) == [expected for _, expected in chosen]


@pytest.mark.parametrize("stored", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_numbers_as_text_in_parquet(write: Writer, stored: pa.DataType) -> None:
    def typed(kind: str, columns: Any, name: str = "people") -> RecordSource:
        return write(kind, columns | {"x": pa.array(columns["x"], pa.string()).cast(stored)}, name)

    check_rows(typed, "parquet", NUMBERS.labels[:-1], TEXTS, values=NUMBER_CODES)


STORED: list[tuple[Any, pa.DataType, int | str]] = [
    (7, pa.int8(), 2),
    (-3, pa.int64(), 0),
    (12, pa.uint64(), 3),
    (2**64 - 3, pa.uint64(), UNKNOWN),
    (7.0, pa.float32(), 2),
    (-0.0, pa.float64(), 1),
    (-3.0, pa.float64(), 0),
    (7.5, pa.float64(), UNKNOWN),
    (7.000000000000001, pa.float64(), UNKNOWN),
    (float("nan"), pa.float64(), NULL),
    (float("inf"), pa.float64(), UNKNOWN),
    (1e300, pa.float64(), UNKNOWN),
    (Decimal("7.00"), pa.decimal128(10, 2), 2),
    (Decimal("-3"), pa.decimal128(38, 0), 0),
    (Decimal("7.01"), pa.decimal128(10, 2), UNKNOWN),
    (Decimal("7.00000000000000000001"), pa.decimal128(30, 20), UNKNOWN),
    (None, pa.int64(), NULL),
    (None, pa.null(), NULL),
    (None, pa.string(), NULL),
    (None, pa.float64(), NULL),
    (None, pa.bool_(), NULL),
    (False, pa.bool_(), 1),
    (True, pa.bool_(), UNKNOWN),
]


def test_numbers_as_stored(tmp_path: Path) -> None:
    stored = {f"x{i}": pa.array([value], kind) for i, (value, kind, _) in enumerate(STORED)}
    source = RecordSource(tmp_path / "x.parquet")
    parquet.write_table(pa.table(stored), source.path)
    assert outcomes(source, list(stored), NUMBERS, NUMBER_CODES) == [expected for *_, expected in STORED]


LABELS = ["001", "3", " padded ", "True", "É", "e\u0301"]


AS_TEXT: list[tuple[str, int | str]] = [
    ("001", 0),
    (" 001 ", 0),
    ("1", UNKNOWN),
    ("3", 1),
    ("3.0", UNKNOWN),
    ("padded", 2),
    ("True", 3),
    ("true", UNKNOWN),
    ("É", 4),
    ("é", UNKNOWN),
    ("e\u0301", 5),  # letters are compared, not what they look like
    ("\u00e9", UNKNOWN),
]


def test_labels_as_text(write: Writer, kind: str) -> None:
    check_rows(write, kind, LABELS, AS_TEXT)


AS_NUMBERS: list[tuple[Any, pa.DataType, int | str]] = [
    (1, pa.int32(), 0),
    (3.0, pa.float64(), 1),
    (Decimal("3.0"), pa.decimal128(5, 1), 1),
    (2, pa.int32(), UNKNOWN),
    (True, pa.bool_(), 3),
    (False, pa.bool_(), UNKNOWN),
]


def test_labels_stored_as_numbers(tmp_path: Path) -> None:
    stored = {f"x{i}": pa.array([value], kind) for i, (value, kind, _) in enumerate(AS_NUMBERS)}
    source = RecordSource(tmp_path / "x.parquet")
    parquet.write_table(pa.table(stored), source.path)
    expected = [code for *_, code in AS_NUMBERS]
    assert outcomes(source, list(stored), Attribute("a", tuple(LABELS))) == expected


def test_numbers_are_not_labels_that_hold_none(tmp_path: Path) -> None:
    source = RecordSource(tmp_path / "x.parquet")
    parquet.write_table(pa.table({"x": [1]}), source.path)
    assert outcome(source, Attribute("a", ("F", "M"))) == UNKNOWN


def test_floats_do_not_tell_large_numbers_apart(tmp_path: Path) -> None:
    source = RecordSource(tmp_path / "x.parquet")
    parquet.write_table(pa.table({"x": [float(2**53 + 2)]}), source.path)
    attribute = Attribute.of("a", [2**53 + 1, 2**53 + 2])
    assert outcome(source, attribute) == UNKNOWN
    parquet.write_table(pa.table({"x": [2**53 + 2]}), source.path)
    assert outcome(source, attribute) == 1


def test_a_database_that_ignores_case_does_not_change_the_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people (x VARCHAR COLLATE NOCASE); INSERT INTO people VALUES ('f')")
        connection.execute("CREATE TYPE sex AS ENUM ('F', 'f'); CREATE TABLE enum (x sex)")
        connection.execute("INSERT INTO enum VALUES ('f')")
    source = RecordSource(path, table="people")
    assert outcome(source, Attribute("a", ("F", "M"))) == UNKNOWN
    assert outcome(source, Attribute("a", ("F", "f"))) == 1
    assert outcome(RecordSource(path, table="enum"), Attribute("a", ("F", "f"))) == 1


@pytest.mark.parametrize("column", ["date", "list", "struct", "blob", "uuid"])
def test_types_that_are_not_counted(tmp_path: Path, column: str) -> None:
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT DATE '2020-01-01' AS date, [1] AS list, {'a': 1} AS struct, "
            "'a'::BLOB AS blob, uuid() AS uuid, 7 AS number"
        )
    domain = Domain({"a": NUMBERS})
    with pytest.raises(DataError, match=f"'{column}'.*convert it to text"):
        tabulate(RecordSource(path, table="people"), domain, {"a": ColumnCoding(column)})
    # Beside a column that is counted they do no harm.
    counts = tabulate(
        RecordSource(path, table="people"), domain, {"a": ColumnCoding("number", values=NUMBER_CODES)}
    )
    assert counts.total == 1


@pytest.mark.parametrize(
    ("unknown", "null", "expected"),
    [("other", "other", [1, 0, 3]), ("other", "refuse", "NULL values"), ("refuse", "other", "outside")],
)
def test_policies(write: Writer, kind: str, unknown: Any, null: Any, expected: Any) -> None:
    source = write(kind, {"x": ["1", None, "5", None]})
    domain = Domain({"a": ["1", "2", "other"]})
    rules = {"a": ColumnCoding("x", unknown=unknown, null=null)}
    if isinstance(expected, list):
        assert tabulate(source, domain, rules).answer(Identity(3)).tolist() == expected
        return
    with pytest.raises(DataError, match=expected) as caught:
        tabulate(source, domain, rules)
    assert str(caught.value).count("column") == 1


def test_the_category_that_a_policy_adds_is_not_declared(write: Writer) -> None:
    source = write("csv", {"x": ["1", "other"]})
    domain = Domain({"a": ["1", "2", "other"]})
    assert tabulate(source, domain, {"a": ColumnCoding("x")}).answer(Identity(3)).tolist() == [1, 0, 1]
    with pytest.raises(DataError, match="outside the declared"):
        tabulate(source, domain, {"a": ColumnCoding("x", null="other")})


@pytest.mark.parametrize(
    ("rule", "attribute", "message"),
    [
        (ColumnCoding("x", unknown="other"), ["1", "2"], 'last label must be "other"'),
        (ColumnCoding("x", null="drop"), ["1", "2"], '"refuse" or "other"'),  # type: ignore[arg-type]
        (ColumnCoding("x", values={"1": 2}), ["1", "2"], r"codes 0\.\.1"),
        (ColumnCoding("x", values={"1": 0, 2: 1}), ["1", "2"], "all whole numbers or all strings"),  # type: ignore[dict-item]
        (ColumnCoding("x"), ["a", " a"], "cannot tell apart"),
        (ColumnCoding("x", values={"": 0}), ["1", "2"], "empty text is NULL"),
    ],
)
def test_rules_that_do_not_fit(write: Writer, rule: ColumnCoding, attribute: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        tabulate(write("csv", {"x": ["1"]}), Domain({"a": attribute}), {"a": rule})


def test_labels_that_are_one_number_cannot_be_read_from_numbers(write: Writer) -> None:
    domain, rules = Domain({"a": ["1", "01"]}), {"a": ColumnCoding("x")}
    assert tabulate(write("csv", {"x": ["01"]}), domain, rules).answer(Identity(2)).tolist() == [0, 1]
    with pytest.raises(InvalidArgument, match="cannot tell apart"):
        tabulate(write("parquet", {"x": [1]}), domain, rules)


def test_one_rule_for_each_attribute(write: Writer) -> None:
    source, domain = write("csv", {"x": [1]}), Domain({"a": 2, "b": 2})
    with pytest.raises(InvalidArgument, match="none for 'b'; the domain has no 'c'"):
        tabulate(source, domain, {"a": ColumnCoding("x"), "c": ColumnCoding("x")})


def test_only_blanks_at_the_ends_are_stripped() -> None:
    """Each kind of blank, before, after, around and within a text; nothing is left of blanks alone."""
    ends = ("", *BLANKS, BLANKS)
    texts = [
        before + word + after for before in ends for word in ("", "x", "a b", "\u00a0") for after in ends
    ]
    table = ibis.memtable(pa.table({"raw": texts, "number": range(len(texts))}))
    found = table.select("number", bare=plain_text(table.raw)).order_by("number").to_pyarrow()
    assert found["bare"].to_pylist() == [text.strip(BLANKS) or None for text in texts]
