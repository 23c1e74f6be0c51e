"""Files of a geography: always text, every row with its line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tabulae.spec.geography_file import TextColumns, read_text_columns
from tabulae.spec.lines import KeyLines
from tabulae.spec.problems import Problems


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
    assert read(tmp_path, "f.csv", "a", "b")[1] == ['f.csv, line 1: column "b" stands there twice']
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
