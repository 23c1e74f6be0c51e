"""Files of a geography: always text, every row with its line."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.spec.problems import KeyLines, Problems
from tabulae.spec.public_file import TextColumns, encoded, read_text_columns

DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
CELLS = st.none() | st.text(
    st.characters(
        codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"], exclude_characters=[chr(c) for c in DIRECTIONS]
    ),
    min_size=1,
    max_size=4,
).filter(lambda text: text.strip() == text)


@given(st.lists(st.tuples(CELLS, st.none() | st.text(max_size=3)), min_size=1, max_size=5))
def test_what_is_published_is_what_pythons_csv_writes(rows: list[tuple[str | None, str | None]]) -> None:
    """Whichever way it is written: with quotes, or the fast way without."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([("a", "b,c"), *rows])
    columns = (np.array([*column, None], object)[:-1] for column in zip(*rows, strict=True))
    assert encoded(dict(zip(("a", "b,c"), columns, strict=True))) == text.getvalue().encode()


def read(
    base: Path, name: str, *needed: str, optional: tuple[str, ...] = ()
) -> tuple[TextColumns | None, list[str]]:
    problems = Problems(KeyLines("file = 'x'"))
    found = read_text_columns(base, name, ("file",), problems, dict.fromkeys(needed, ("file",)), optional)
    return found, [problem.message for problem in problems.found]


def test_codes_stay_text(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text('a,b,c\n001,1e5,2020-01-01\n,true, x \n"1,2",NA,nan\n')
    found, told = read(tmp_path, "f.csv", "c", "a", "b")
    assert not told
    assert found is not None
    assert found.columns["a"].tolist() == ["001", None, "1,2"]
    assert found.columns["b"].tolist() == ["1e5", "true", "NA"]
    assert found.columns["c"].tolist() == ["2020-01-01", "x", "nan"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_are_those_of_the_file(tmp_path: Path, ending: str, mark: str) -> None:
    text = ending.join([f"{mark}a,b", "1,x", "", "2,x", "", "", "3,", ",", "4,y", ""])
    (tmp_path / "f.csv").write_bytes(text.encode())
    found, told = read(tmp_path, "f.csv", "a")
    assert not told
    assert found is not None
    assert found.columns["a"].tolist() == ["1", "2", "3", None, "4"]
    assert found.line.tolist() == [2, 4, 7, 8, 9]
    (tmp_path / "f.csv").write_bytes(text.replace("3,", "3").encode())
    assert read(tmp_path, "f.csv", "a")[1] == ["f.csv, line 7: has 1 field and the header has 2"]


def test_a_file_without_a_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_bytes(b"a\nx\n\ny")
    found, _ = read(tmp_path, "f.csv", "a")
    assert found is not None
    assert (found.columns["a"].tolist(), found.line.tolist()) == (["x", "y"], [2, 4])


def test_only_columns_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("a,b,b,c\n1,2,3,4\n")
    found, told = read(tmp_path, "f.csv", "a", optional=("c", "d"))
    assert not told
    assert found is not None
    assert found.columns.keys() == {"a", "c"}
    assert read(tmp_path, "f.csv", "a", "b")[1] == ['f.csv, line 1: column "b" appears twice']
    assert read(tmp_path, "f.csv", "d", "e")[1][0].startswith('f.csv has no column "d"')


def test_parquet_of_text_and_whole_numbers(tmp_path: Path) -> None:
    words = pa.array(["01", None, " 2 "]).dictionary_encode()
    pq.write_table(pa.table({"a": words, "n": pa.array([1, None, 3], pa.int32())}), tmp_path / "f.parquet")
    found, told = read(tmp_path, "f.parquet", "a", "n")
    assert not told
    assert found is not None
    assert found.columns["a"].tolist() == ["01", None, "2"]
    assert found.columns["n"].tolist() == ["1", None, "3"]
    assert found.line.tolist() == [1, 2, 3]


@pytest.mark.parametrize("column", [[1.0, 2.0], [True, False], [b"01", b"02"]])
def test_parquet_of_other_types(tmp_path: Path, column: list[object]) -> None:
    pq.write_table(pa.table({"a": column}), tmp_path / "f.parquet")
    [told] = read(tmp_path, "f.parquet", "a")[1]
    assert 'column "a" has type' in told


@given(
    columns=st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=6)
    )
)
def test_columns_read_back_as_they_were_written(columns: list[list[str | None]]) -> None:
    names = ["a,b", 'c"', "d"][: len(columns[0])]
    given_columns = {
        name: np.array([*cells, "last"], object)
        for name, cells in zip(names, zip(*columns, strict=True), strict=True)
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "f.csv").write_bytes(encoded(given_columns))
        found, told = read(Path(folder), "f.csv", *names)
    assert not told
    assert found is not None
    assert list(found.columns) == names
    for name, cells in given_columns.items():
        assert found.columns[name].tolist() == cells.tolist()
    assert encoded(found.numbered) == encoded(found.columns) == encoded(given_columns)


def test_names_and_codes_that_no_text_file_can_hold_are_mistakes(tmp_path: Path) -> None:
    for bad, told in (
        ("a\nb", "a line break"),
        ("a\rb", "a line break"),
        ("a\u2028b", "a line break"),
        ("a\0b", "the control character U+0000"),
        ("a\tb", "the control character U+0009"),
        ("a\x9fb", "the control character U+009F"),
        *((f"a{chr(c)}b", f"the direction character U+{c:04X}") for c in DIRECTIONS),
    ):
        pq.write_table(pa.table({"a": ["x", bad], "b": ["y", "z"]}), tmp_path / "f.parquet")
        assert read(tmp_path, "f.parquet", "a")[1] == [
            f'f.parquet, row 2: the code in column "a" holds {told}: remove it'
        ]
        assert not read(tmp_path, "f.parquet", "b")[1]
        if told != "a line break":
            (tmp_path / "f.csv").write_text(f"a,b\n\nx,y\n{bad},z\n")
            assert read(tmp_path, "f.csv", "a")[1] == [
                f'f.csv, line 4: the code in column "a" holds {told}: remove it'
            ]
    pq.write_table(pa.table({"a": ["u\tv", "x", "u\tv"]}), tmp_path / "f.parquet")
    assert [each.split(":")[0] for each in read(tmp_path, "f.parquet", "a")[1]] == [
        "f.parquet, row 1",
        "f.parquet, row 3",
    ]
    pq.write_table(pa.table({"a\u202eb": ["x"]}), tmp_path / "f.parquet")
    [told] = read(tmp_path, "f.parquet", "a\u202eb")[1]
    assert told.endswith("holds the direction character U+202E: rename it")
    pq.write_table(pa.table({" a": ["x"]}), tmp_path / "f.parquet")
    assert read(tmp_path, "f.parquet", " a")[1] == [
        'f.parquet: column " a" has blanks around its name: rename it'
    ]


@pytest.mark.parametrize("index", [pa.uint8(), pa.int32(), pa.int64()])
def test_parquet_keeps_words_once(tmp_path: Path, index: pa.DataType) -> None:
    """Words that nobody has, that are the same without blanks, empty or none; other words in each row group."""
    words = [pa.array(["b", " a", "none has it", "a "]), pa.array(["", "c", "d", "b"])]
    places = [pa.array([3, None, 0, 1], index), pa.array([3, None, 0, 1], index)]
    rows = [pa.DictionaryArray.from_arrays(*pair) for pair in zip(places, words, strict=True)]
    with pq.ParquetWriter(tmp_path / "f.parquet", pa.schema({"a": rows[0].type})) as writer:
        for each in rows:
            writer.write_table(pa.table({"a": each}))
    found, told = read(tmp_path, "f.parquet", "a")
    assert not told
    assert found is not None
    assert found.columns["a"].tolist() == ["a", None, "b", "a", "b", None, None, "c"]
    assert found.numbered["a"].codes.tolist() == ["a", "b", "c"]


def test_numbers_are_read_where_they_are(tmp_path: Path) -> None:
    def axes(name: str) -> list[str]:
        found = read_text_columns(
            tmp_path, name, ("file",), Problems(KeyLines("")), {"a": ("file",)}, (), ("x", "y")
        )
        assert found is not None
        return list(found.columns)

    (tmp_path / "f.csv").write_text("x,a,y,y\n1,2,3,4\n")
    assert axes("f.csv") == ["x", "a"]
    table = {"a": ["1"], "x": pa.array([0.1], pa.float32()), "y": pa.array([True])}
    pq.write_table(pa.table(table), tmp_path / "f.parquet")
    assert axes("f.parquet") == ["a", "x"]
