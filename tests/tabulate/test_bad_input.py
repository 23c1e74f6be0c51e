"""Each fault of a source: a message that says what to do, and nothing of the records in it."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.each import each

from tabulae.domain import Domain
from tabulae.errors import DataError, InvalidArgument
from tabulae.products.tables.count import tabulate
from tabulae.sources import failures
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.failures import redacted
from tabulae.sources.source import RecordSource, open_records

Writer = Callable[..., RecordSource]

SECRET = "SECRET-7781"
DOMAIN = Domain({"sex": ["F", "M"], "age": range(100)})
RULES = {"sex": ColumnCoding("SEX"), "age": ColumnCoding("AGE")}


def refusal(source: RecordSource) -> DataError:
    """The error that counting ends in, after checking that it gives nothing away."""
    with pytest.raises(DataError) as caught:
        tabulate(source, DOMAIN, RULES)
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + str(error) + repr(error)
    assert SECRET not in shown
    assert error.__cause__ is None
    assert error.__context__ is None
    assert error.exit_code == 1
    return error


def csv_of(folder: Path, text: str | bytes) -> RecordSource:
    path = folder / "people.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return RecordSource(path)


def test_unknown_categories_and_nulls_are_all_named_at_once(write: Writer, kind: str) -> None:
    sexes = ["F", SECRET, SECRET, "M", None]
    error = refusal(write(kind, {"SEX": sexes, "AGE": ["1", "2", "2", "777", "3"]}))
    assert "column 'SEX' (attribute 'sex'): values outside the declared categories" in str(error)
    assert "column 'SEX' (attribute 'sex'): NULL values" in str(error)
    assert "column 'AGE' (attribute 'age'): values outside the declared categories" in str(error)
    assert 'unknown = "other"' in str(error)
    assert not any(character.isdigit() for character in str(error)), "no value and no count"
    assert f"in 2 records, such as '{SECRET}' (2)" in str(error.confidential)
    assert "NULL values: in 1 records" in str(error.confidential)
    assert "'777' (1)" in str(error.confidential)


def test_at_most_five_examples_the_commonest_first(tmp_path: Path) -> None:
    values = [f"v{i}" for i in range(9) for _ in range(i + 1)]
    error = refusal(csv_of(tmp_path, "SEX,AGE\n" + "".join(f"{value},1\n" for value in values)))
    assert "such as 'v8' (9), 'v7' (8), 'v6' (7), 'v5' (6), 'v4' (5)" in str(error.confidential)
    assert "'v3'" not in str(error.confidential)


@pytest.mark.parametrize("values", [{"SEX": ["F"], "age": [SECRET]}, {"AGE": [SECRET], " sex ": ["F"]}])
def test_missing_column(write: Writer, kind: str, values: dict[str, list[str]]) -> None:
    error = refusal(write(kind, values))
    missing, near = ("AGE", "age") if "SEX" in values else ("SEX", " sex ")
    assert f"no column '{missing}'" in str(error)
    assert f"one that is written '{near}'" in str(error)
    assert repr(near) in str(error.confidential)


def test_a_file_without_a_header_does_not_show_its_first_record(tmp_path: Path) -> None:
    error = refusal(csv_of(tmp_path, f"{SECRET},34\nF,35\n"))
    assert "no column 'SEX' (attribute 'sex')" in str(error)
    assert "no column 'AGE' (attribute 'age')" in str(error)
    assert SECRET in str(error.confidential)


@pytest.mark.parametrize(("sign", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
def test_another_delimiter(tmp_path: Path, sign: str, word: str) -> None:
    error = refusal(csv_of(tmp_path, f"SEX{sign}AGE\nF{sign}{SECRET}\n"))
    assert f"divided by {word}" in str(error)
    assert "write delimiter = " in str(error)


CSV_FAULTS: list[tuple[str | bytes, str]] = [
    (b"", "is empty"),
    ("\n", "first line is empty"),
    (",,\n1,2,3\n", "first line is empty"),
    ("SEX,AGE\n", "has no records"),
    (f"SEX,AGE,SEX\nF,1,{SECRET}\n", "several columns named 'SEX'"),
    (f"SEX,AGE\nF,1\n{SECRET}\n", "more or fewer fields than the header"),
    (f"SEX,AGE\nF,1\nF,{SECRET},3\n", "more or fewer fields than the header"),
    (f'SEX,AGE\nF,"{SECRET}\n', "quoted field is not closed"),
    (f'SEX,AGE\nF,"1"{SECRET}\n', "quoted field is not closed"),
    (f'SEX,"AGE\nF,{SECRET}\n', "quoted field of the header is not closed"),
    (f'SEX,"AGE"x\nF,{SECRET}\n', "text follows a closing quote"),
    (f"SEX,AGE\nF,{SECRET}\xe9\n".encode("latin-1"), "not UTF-8"),
    (f"SEX,AGE\nF,{SECRET}\n".encode("utf-16"), "not UTF-8"),
    (f"SEX,AGE\nF,1\r\nM,{SECRET}\n", "mixed line endings"),
    (f"SEX,AGE\nF,{SECRET}{'x' * 3_000_000}\n", "longer than the engine reads"),
    (f"{SECRET}{'x' * 200_000},AGE\nF,1\n", "not a header"),
]


@pytest.mark.parametrize(("text", "message"), CSV_FAULTS)
def test_faults_of_csv_files(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in str(refusal(csv_of(tmp_path, text)))


def test_the_engines_advice_is_not_told(tmp_path: Path) -> None:
    """It names options of DuckDB, which no spec has; what it says of the line is told to who asks for it."""
    error = refusal(csv_of(tmp_path, f"SEX,AGE\nF,1\nF,{SECRET},3\n"))
    assert SECRET in (error.confidential or "")
    for word in ("Possible", "strict_mode", "null_padding", "ignore_errors", "delimiter =", "sample_size"):
        assert word not in (error.confidential or "")
    assert "quote what holds a delimiter" in str(error)


def _sqlite(path: Path) -> None:
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (SEX, AGE)")
    connection.close()


def _view_of_a_file(path: Path) -> None:
    (path.parent / "other.csv").write_text(f"SEX,AGE\n{SECRET},1\n")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE VIEW people AS SELECT * FROM read_csv('{path.parent}/other.csv')")


def _no_such_table(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(f'CREATE TABLE "People {SECRET}" AS SELECT 1 AS a')


def _empty_table(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people (SEX VARCHAR, AGE INTEGER)")


def _half_a_parquet_file(path: Path) -> None:
    parquet.write_table(pa.table({"SEX": [SECRET] * 99, "AGE": [1] * 99}), path)
    path.write_bytes(path.read_bytes()[:-20])


def _duplicate_columns(path: Path) -> None:
    parquet.write_table(pa.table([["F"], [1], [SECRET]], names=["SEX", "AGE", "SEX"]), path)


def _no_rows(path: Path) -> None:
    parquet.write_table(pa.table({"SEX": pa.array([], pa.string()), "AGE": pa.array([], pa.int8())}), path)


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (lambda path: None, "people.csv", "does not exist"),
        (lambda path: path.mkdir(), "people.parquet", "is a folder"),
        (lambda path: os.mkfifo(path), "people.csv", "not a regular file"),
        (lambda path: path.write_text(f"SEX,AGE\n{SECRET},1\n"), "people.parquet", "not a Parquet file"),
        (_half_a_parquet_file, "people.parquet", "not a Parquet file"),
        (_duplicate_columns, "people.parquet", "several columns named 'SEX'"),
        (_no_rows, "people.parquet", "has no records"),
        (lambda path: path.write_text(SECRET * 99), "people.duckdb", "not a DuckDB file"),
        (_sqlite, "people.db", "not a DuckDB file"),
        (_no_such_table, "people.duckdb", "has no table 'people'"),
        (_view_of_a_file, "people.duckdb", "refers to other files"),
        (_empty_table, "people.duckdb", "has no records"),
    ],
)
def test_faults_of_files(tmp_path: Path, make: Callable[[Path], object], name: str, message: str) -> None:
    path = tmp_path / name
    make(path)
    source = RecordSource(path, table="people" if path.suffix in (".duckdb", ".db") else None)
    error = refusal(source)
    assert message in str(error)
    assert name in str(error)


def test_a_database_in_use(tmp_path: Path) -> None:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people AS SELECT 'F' AS SEX, 1 AS AGE")
        refusal(RecordSource(path, table="people"))
    assert tabulate(RecordSource(path, table="people"), DOMAIN, RULES).total == 1


@each(
    ("arguments", "message"),
    [
        ({"path": "people.txt"}, "does not say its kind"),
        ({"path": "people.csv", "kind": "xml"}, "no kind 'xml'"),
        ({"path": "people.csv", "engine": "spark"}, "reads Parquet, and this is csv"),
        ({"path": "people.parquet", "engine": "flink"}, "no engine 'flink'"),
        ({"path": "people.parquet", "engine": "postgresql"}, "tables of its own server"),
        ({"path": "people.csv", "url": "postgresql://h/d", "table": "t"}, "keep one of them"),
        ({}, "has no path"),
        ({"url": "mysql://h/d", "table": "t"}, "does not begin with s3:// or postgresql://"),
        ({"url": "postgresql://me:word@h/d", "table": "t"}, "holds a password"),
        ({"url": "postgresql://[h/d", "table": "t"}, "is not a url"),
        ({"url": "postgresql://h/d?pass%77ord=word", "table": "t"}, "holds a password"),
        ({"url": "postgresql://me:wo#rd@h/d", "table": "t"}, "holds a password"),
        ({"url": "postgresql://me#:word@h/d", "table": "t"}, "holds a password"),
        ({"url": "postgresql://me:w?ord@h/d", "table": "t"}, "holds a password"),
        ({"url": "postgresql://me:wo/rd@h/d", "table": "t"}, "holds a password"),
        ({"url": "postgresql://h/d?user=me#&password=word", "table": "t"}, "holds a password"),
        ({"url": "postgresql://h,h:5/d?oauth_client_secret=word", "table": "t"}, "holds a password"),
        ({"url": "postgresql://h/d", "table": "t", "engine": "spark"}, "whose own server counts"),
        ({"url": "postgresql://h/d", "table": "t", "kind": "csv"}, "remove kind and engine"),
        ({"url": "postgresql://h/d"}, 'no table: add table = "persons"'),
        ({"path": "people.csv", "table": "people"}, "remove it"),
        ({"path": "people.duckdb"}, 'add table = "persons"'),
    ],
)
def test_sources_that_are_not_described(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        RecordSource(**arguments)  # type: ignore[arg-type]


def test_the_kind_may_be_said(tmp_path: Path) -> None:
    (tmp_path / "people.txt").write_text("SEX,AGE\nF,1\n")
    assert tabulate(RecordSource(tmp_path / "people.txt", kind="csv"), DOMAIN, RULES).total == 1


def test_the_engine_reads_one_file_and_can_be_told_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text(f"a\n{SECRET}\n")
    source = csv_of(tmp_path, "SEX,AGE\nF,1\n")
    with open_records(source, [("sex", "SEX")]) as records:
        connection = records.get_backend().con  # type: ignore[attr-defined]
        spill = Path(connection.execute("SELECT current_setting('temp_directory')").fetchone()[0])
        assert connection.execute("SELECT current_setting('temp_file_encryption')").fetchone() == (True,)
        names = connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
        off = "partitioned_execution" if ("partitioned_execution",) in names else ""
        assert connection.execute("SELECT current_setting('disabled_optimizers')").fetchone() == (off,)
        assert spill.stat().st_mode & 0o077 == 0
        assert Path(tempfile.gettempdir()) in spill.parents
        for statement in (
            f"SELECT * FROM read_csv('{tmp_path}/other.csv')",
            f"SELECT * FROM read_csv('{tmp_path}/*.csv')",
            f"COPY records TO '{tmp_path}/out.csv'",
            f"ATTACH '{tmp_path}/out.duckdb'",
            "INSTALL httpfs",
            "SET enable_external_access = true",
            "SET allowed_paths = ['/']",
            "SET threads = 1",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)
    assert not spill.exists()


def test_an_engine_failure_leaves_no_trace_but_the_confidential_part() -> None:
    with pytest.raises(DataError) as caught:
        redacted("people.csv", lambda: int(SECRET))
    assert SECRET in str(caught.value.confidential)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("kind", [TypeError, AttributeError, NameError, AssertionError, KeyError])
def test_an_error_of_this_program_is_told_as_one_without_its_words(kind: type[Exception]) -> None:
    """Where the last frame is a module of the package; the same error raised elsewhere may be of the records."""
    place = Path(failures.__file__).with_name("rules.py")
    own: dict[str, Any] = {"kind": kind, "secret": SECRET}
    exec(compile("def broken():\n    raise kind(secret)\n", str(place), "exec"), own)
    with pytest.raises(kind, match=r"an error of tabulae at tabulae/sources/rules.py, line 2") as caught:
        redacted("people.csv", own["broken"])
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None

    def elsewhere() -> None:
        raise kind(SECRET)

    with pytest.raises(DataError, match="cannot be read"):
        redacted("people.csv", elsewhere)


@pytest.mark.parametrize("kind", [pa.ArrowTypeError, pa.ArrowKeyError])
def test_an_engines_error_is_no_error_of_this_program(kind: type[Exception]) -> None:
    own: dict[str, Any] = {"kind": kind, "secret": SECRET}
    exec(compile("def broken():\n    raise kind(secret)\n", failures.__file__, "exec"), own)
    with pytest.raises(DataError, match="cannot be read"):
        redacted("people.csv", own["broken"])


def test_lost_or_doubled_records_are_refused(write: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a join ever doubled a record, the number of rows would give it away."""
    from tabulae.sources import coding as mapping

    def doubled(alike: object, i: int, keys: dict[object, int], key: object) -> object:
        import ibis

        return ibis.memtable(pa.table({f"match{i}": ["F", "F"], f"code{i}": [0, 0]}))

    monkeypatch.setattr(mapping, "_lookup", doubled)
    with pytest.raises(DataError, match="lost or doubled"):
        tabulate(write("csv", {"SEX": ["F"]}), Domain({"sex": ["F"]}), {"sex": ColumnCoding("SEX")})
