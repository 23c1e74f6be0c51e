"""Workbooks, read back by another library: the published numbers and words, and no formula."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.convert.stored import values, with_table
from typer.testing import CliRunner, Result

import tabulae as tb
from tabulae.cli import app
from tabulae.errors import Unsupported
from tabulae.export import convert_release
from tabulae.export.workbook import Sheet, sheet_names, write_workbook


def sheets(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    book = openpyxl.load_workbook(path)
    return {page.title: list(page.iter_rows(values_only=True)) for page in book}


def test_every_published_cell_is_there(released: tb.Release, tmp_path: Path) -> None:
    made = sheets(convert_release(released, "xlsx", tmp_path / "out") / "release.xlsx")
    stored = [
        (folder, name)
        for folder, some in (("tables", released.tables), ("derived", released.derived))
        for name in some
    ]
    notes, *pages = made.values()
    assert notes[0][0] == released.spec.title
    assert [row[2] for row in notes[-len(stored) :]] == [len(page) - 1 for page in pages]
    assert any(released.about["release_id"] in str(row[0]) for row in notes)
    for (folder, name), page in zip(stored, pages, strict=True):
        at = {heading: column for column, heading in enumerate(page[0])}
        rows = values(released.path, name, folder)
        assert len(rows) == len(page) - 1
        for row, found in zip(rows, page[1:], strict=True):
            for key, value in row.items():
                missing = value is None or (isinstance(value, float) and math.isnan(value))
                assert found[at[key]] == (None if missing else value), (name, key)


def test_every_float_reads_back_as_itself_and_no_word_is_a_formula(
    releases: dict[str, Path], tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / "release"
    shutil.copytree(releases["village"], copy)
    numbers = np.array([5e-324, 1.7976931348623157e308, 1 / 3, 0.1 + 0.2, 1e22, -2.0 / 3])
    words = ["=1+1", "@SUM(A1)", "http://example.org", "+1", "<b>&", "a" * 40_000]
    columns = {"k": words, **dict.fromkeys(("estimate", "std_error", "ci_low", "ci_high"), numbers)}
    with_table(copy, {**columns, "obs_status": ["A"] * 6})
    out = convert_release(tb.Release.read(copy), "xlsx", tmp_path / "out")
    book = openpyxl.load_workbook(out / "release.xlsx")
    rows = list(book["figure"].iter_rows(min_row=2))
    assert [row[1].value for row in rows] == numbers.tolist()
    assert [row[0].data_type for row in rows] == ["s"] * 6 or {row[0].data_type for row in rows} <= {
        "s",
        "inlineStr",
    }
    assert [row[0].value for row in rows[:-1]] == words[:-1]
    assert all(row[0].hyperlink is None for row in rows)


def test_names_of_sheets() -> None:
    names = ["Notes", "history", "a[b]:*?/\\c", "'quoted'", "x" * 50, "X" * 50, "X" * 50 + "y", ""]
    made = sheet_names(names)
    assert len({name.lower() for name in made} | {"notes"}) == len(names) + 1
    for name in made:
        assert 0 < len(name) <= 31
        assert not set(name) & set("[]:*?/\\")
        assert not name.startswith("'")


def test_a_sheet_has_an_end(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string())])
    long = Sheet("all", "all", 2**20, schema, [])
    with pytest.raises(
        Unsupported, match=r"'all' has 1,048,576 rows, and a sheet holds 1,048,575: write it as csv"
    ):
        write_workbook(tmp_path / "a.xlsx", "t", [], [long], None)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_equal_releases_give_equal_files(releases: dict[str, Path], tmp_path: Path) -> None:
    one, two = (
        (
            convert_release(tb.Release.read(releases["village"]), "xlsx", tmp_path / name) / "release.xlsx"
        ).read_bytes()
        for name in ("one", "two")
    )
    assert one == two


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


STATEMENT = "SELECT Sex, COUNT(*) FROM people GROUP BY Sex"


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
def test_an_answer_is_written_whole(releases: dict[str, Path], tmp_path: Path, ending: str) -> None:
    release = tb.Release.read(releases["hamlet"])
    out = tmp_path / f"answer.{ending}"
    done = call("query", release.path, STATEMENT, "--out", out)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"Wrote {out}: 2 rows\n"
    answer = release.query(STATEMENT)
    if ending == "xlsx":
        notes, page = sheets(out).values()
        assert STATEMENT in [row[0] for row in notes]
        assert [list(row) for row in page] == [
            answer.column_names,
            *(list(row.values()) for row in answer.to_pylist()),
        ]
    else:
        read = pyarrow.csv.read_csv(out) if ending == "csv" else pq.read_table(out)
        assert read.to_pylist() == answer.to_pylist()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("answer.txt", "end its name in .csv, .parquet or .xlsx"),
        ("there.csv", "exists"),
        ("no/a.csv", "make it first"),
    ],
)
def test_an_answer_that_cannot_be_written(
    releases: dict[str, Path], tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "there.csv").write_text("mine")
    done = call("query", releases["hamlet"], STATEMENT, "--out", tmp_path / name)
    assert done.exit_code == 1
    assert words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"
