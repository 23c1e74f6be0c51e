"""``tabulae init``: from a file to a draft, and from there to a release."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.cli.test_cli import _call, _fails, _json

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.spec import read_spec

SECRET = "Zebra"
FILL = {
    "SEX": '{ column = "SEX", categories = ["F", "M"] }',
    "AGE": '{ column = "AGE", range = [0, 19] }',
    "NAME": None,
}
CREATE = """
CREATE TYPE sexes AS ENUM ('F', 'M');
CREATE TABLE persons (SEX sexes NOT NULL, AGE INTEGER CHECK (AGE BETWEEN 0 AND 19), NAME VARCHAR);
INSERT INTO persons SELECT CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END, i % 20, 'Zebra' FROM range(200) AS t(i);
"""


def _people() -> pa.Table:
    return pa.table(
        {
            "SEX": ["F" if i % 3 == 0 else "M" for i in range(200)],
            "AGE": [i % 20 for i in range(200)],
            "NAME": [SECRET] * 200,
        }
    )


def _csv(path: Path) -> None:
    pyarrow.csv.write_csv(_people(), path)


def _parquet(path: Path) -> None:
    pq.write_table(_people(), path)


def _duckdb(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(CREATE)


MAKE = {"people.csv": _csv, "people.parquet": _parquet, "people.duckdb": _duckdb}


@pytest.fixture(params=MAKE)
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / request.param
    MAKE[request.param](path)
    return path


def _filled(text: str) -> str:
    """A draft with its open lines finished, or deleted, by hand."""
    lines = []
    for line in text.split("\n"):
        name = line.partition(" = ")[0]
        if "todo = " in line and name in FILL:
            lines += [f"{name} = {FILL[name]}"] if FILL[name] else []
        else:
            lines.append(line)
    return "\n".join(lines)


def test_a_draft_is_filled_in_checked_planned_and_run(records: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    done = _call("init", records, "--out", spec)
    assert done.exit_code == 0
    assert SECRET not in done.output + spec.read_text()
    refused = _call("check", spec)
    _fails(refused, 1, "is not finished: list the values that it may hold", "attributes.NAME")
    spec.write_text(_filled(spec.read_text()))
    assert "no mistakes" in _call("check", spec).stdout
    assert _call("plan", spec).exit_code == 0
    tb.Ledger.create(tmp_path / "ledger.db", 3, "zcdp")
    assert _call("run", spec, "--out", tmp_path / "release").exit_code == 0
    release = tb.Release.read(tmp_path / "release")
    assert release.verify() == []
    table = release.tables["first_table"]
    assert table.column_names[:2] == ["SEX", "AGE"]
    assert table.num_rows == 40


def test_a_declared_domain_needs_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(CREATE.replace(", NAME VARCHAR", "").replace(", 'Zebra'", ""))
    document = _json(_call("init", path, "--out", tmp_path / "spec.toml", "--json"))
    assert document == {
        "spec": str(tmp_path / "spec.toml"),
        "columns": 2,
        "declared": 2,
        "found": 0,
        "labelled": 0,
        "todo": 0,
        "left_out": 0,
        "finished": True,
    }
    assert "no mistakes" in _call("check", tmp_path / "spec.toml").stdout


def test_the_marks_alone_decide_nothing(records: Path, tmp_path: Path) -> None:
    """Without them the open lines are refused as well: they have no domain."""
    spec = tmp_path / "spec.toml"
    _call("init", records, "--out", spec)
    text = "\n".join(
        line.partition(", todo = ")[0] + " }" if ", todo = " in line else line
        for line in spec.read_text().split("\n")
    )
    spec.write_text(text)
    with pytest.raises(SpecError, match="needs exactly one of categories, range, codes"):
        read_spec(spec)


def test_peek_says_what_it_looked_at_and_marks_what_it_found(records: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    done = _call("init", records, "--out", spec, "--peek")
    assert done.exit_code == 0
    assert f"--peek: read every record of {records.name}" in done.stderr
    assert "'NAME'" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    text = spec.read_text()
    assert "THE RECORDS WERE READ" in text.split("\n")[0]
    assert f'NAME = {{ column = "NAME", categories = ["{SECRET}"], todo = ' in text
    _fails(_call("check", spec), 1, "put public values in place of these", "attributes.NAME")


def test_what_stands_in_the_way(records: Path, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("mine")
    _fails(_call("init", records, "--out", tmp_path / "spec.toml"), 1, "exists")
    assert (tmp_path / "spec.toml").read_text() == "mine"
    _fails(_call("init", records, "--out", tmp_path / "a" / "spec.toml"), 1, "make it first")
    _fails(_call("init", tmp_path / "none.csv", "--out", tmp_path / "b.toml"), 1, "no such file")
    (tmp_path / "people.xlsx").write_bytes(b"PK")
    _fails(_call("init", tmp_path / "people.xlsx", "--out", tmp_path / "b.toml"), 1, "cannot tell what kind")
    if records.suffix != ".duckdb":
        _fails(
            _call("init", records, "--out", tmp_path / "b.toml", "--table", "t"),
            1,
            ": remove it",
        )
    assert not (tmp_path / "b.toml").exists()


def test_a_record_in_place_of_a_header_is_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(f"{SECRET},34\nF,3\n")
    done = _call("init", path, "--out", tmp_path / "spec.toml")
    _fails(done, 1, "the first line must name the columns")
    assert SECRET not in done.output
    assert json.loads(_call("init", path, "--out", tmp_path / "spec.toml", "--json").stdout)["exit_code"] == 1
    assert SECRET in _call("init", path, "--out", tmp_path / "spec.toml", "--show-confidential").stderr


@pytest.mark.parametrize(
    "line", ["Alice Secret,F,2001-03-04", "Alice,F,3/4/2001", "Alice,F,12.5", "Alice,,F", "Alice,F,+49 30"]
)
def test_a_first_line_that_looks_like_a_record_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(f"{line}\nBob,M,1\n")
    done = _call("init", path, "--out", tmp_path / "spec.toml")
    _fails(done, 1, "the first line must name the columns")
    assert "Alice" not in done.output


def test_a_draft_says_that_the_first_line_was_taken_for_names(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("sex,age\nF,3\n")
    assert _call("init", path, "--out", tmp_path / "spec.toml").exit_code == 0
    assert "If it is a record, delete this draft" in (tmp_path / "spec.toml").read_text()
