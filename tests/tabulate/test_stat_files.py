"""Files of SPSS, SAS and Stata: counted as the same table in Parquet, drafted from labels, refused where damaged."""

from __future__ import annotations

import datetime as dt
import json
import tomllib
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import tabulae as tb
from tabulae.cli import app
from tabulae.errors import DataError, MissingDependency, SpecError
from tabulae.sources import stat_files
from tabulae.sources.dialect import Dialect
from tabulae.sources.source import RecordSource, open_records
from tabulae.spec import Spec

pyreadstat = pytest.importorskip("pyreadstat")

ROWS = 23
ENDINGS = ("sav", "zsav", "por", "xpt", "dta")
SPEC = """
[source]
path = "people.ENDING"
[attributes]
sex = { column = "SEX", categories = [1, 2], null = "other" }
town = { column = "TOWN", categories = ["A", "b c", "007"], null = "other" }
age = { column = "AGE", range = [0, 99] }
[privacy]
definition = "zcdp"
budget = "1000"
ledger = "ledger.db"
[[table]]
name = "all"
attributes = ["sex", "town"]
[[table]]
name = "ages"
attributes = ["age"]
"""


def people() -> dict[str, list[object]]:
    """Records with missing values of each type, ids, blanks around text, and dates."""
    return {
        "SEX": [(1.0, 2.0, None)[i % 3] for i in range(ROWS)],
        "TOWN": [("A", "b c", "", "007")[i % 4] for i in range(ROWS)],
        "AGE": [float(7 * i % 100) for i in range(ROWS)],
        "BORN": [(dt.date(2001, 2, 3), None, dt.date(1999, 12, 31))[i % 3] for i in range(ROWS)],
        "ID": [float(i // 2) for i in range(ROWS)],
    }


def write(folder: Path, ending: str) -> Path:
    path, frame = folder / f"people.{ending}", pd.DataFrame(people())
    if ending == "parquet":
        columns = {name: pa.array(values) for name, values in people().items()}
        columns["ID"] = pa.array([int(value) for value in people()["ID"]])  # type: ignore[call-overload]
        pq.write_table(pa.table(columns), path)
    elif ending in ("sav", "zsav"):
        labels = {"SEX": {1: "Man", 2: "Woman", 9: "No answer"}}
        told = {"variable_value_labels": labels, "missing_ranges": {"SEX": [9]}}
        frame["SEX"] = frame["SEX"].fillna(9.0)
        pyreadstat.write_sav(frame, str(path), compress=ending == "zsav", **told)
    elif ending == "dta":
        pyreadstat.write_dta(frame, str(path), variable_value_labels={"SEX": {1: "Man", 2: "Woman"}})
    else:
        {"por": pyreadstat.write_por, "xpt": pyreadstat.write_xport}[ending](frame, str(path))
    return path


def counted(folder: Path, ending: str) -> list[tuple[object, ...]]:
    """All values as the engine has them, but for how a file writes an absent text."""
    write(folder, ending)
    wanted = [("sex", "SEX"), ("town", "TOWN"), ("age", "AGE"), ("born", "BORN")]
    with open_records(RecordSource(folder / f"people.{ending}"), wanted, unit="ID") as records:
        return [tuple(row.values()) for row in records.to_pyarrow().to_pylist()]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_value_is_that_of_parquet(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stat_files, "_AT_ONCE", 1)
    monkeypatch.setattr(stat_files, "_FEWEST", 5)  # so that the file is read in several pieces
    assert counted(tmp_path, ending) == counted(tmp_path, "parquet")


@pytest.mark.parametrize("ending", ["sav", "dta"])
def test_a_release_counts_what_parquet_counts(tmp_path: Path, ending: str) -> None:
    tables = []
    for kind in (ending, "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        write(folder, kind)
        (folder / "spec.toml").write_text(SPEC.replace("ENDING", kind))
        tb.Ledger.create(folder / "ledger.db", tb.ZCDP(1000))
        release = tb.run(folder / "spec.toml", folder / "release")
        tables.append(
            {
                name: [round(x) for x in table["estimate"].to_pylist()]
                for name, table in release.tables.items()
            }
        )
    assert tables[0] == tables[1]  # at this budget the noise is far below one count


def test_dates_that_begin_late_and_columns_without_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stat_files, "_AT_ONCE", 1)
    monkeypatch.setattr(stat_files, "_FEWEST", 3)
    frame = pd.DataFrame({"D": [None] * 7 + [dt.date(2020, 1, 2)], "E": [float("nan")] * 8})
    pyreadstat.write_sav(frame, str(tmp_path / "late.sav"))
    with open_records(RecordSource(tmp_path / "late.sav"), [("d", "D"), ("e", "E")]) as records:
        rows = records.to_pyarrow().to_pylist()
    assert [row["c0"] for row in rows] == [None] * 7 + [dt.date(2020, 1, 2)]
    assert {row["c1"] for row in rows} == {None}


def test_a_date_is_no_category_whatever_it_is_kept_in(tmp_path: Path) -> None:
    text = SPEC.replace('"TOWN", categories = ["A", "b c", "007"]', '"BORN", categories = ["2001-02-03"]')
    tb.Ledger.create(tmp_path / "ledger.db", tb.ZCDP(1000))
    for ending in ("sav", "parquet"):
        write(tmp_path, ending)
        with pytest.raises(DataError, match=r"'BORN'.*has type date: .* convert it to text"):
            tb.run(Spec.from_text(text.replace("ENDING", ending), tmp_path), tmp_path / "release")


def test_ids_must_be_whole(tmp_path: Path) -> None:
    pyreadstat.write_dta(pd.DataFrame({"ID": [1.0, 2.5]}), str(tmp_path / "a.dta"))
    with (
        pytest.raises(DataError, match=r"column 'ID' \(unit_id\) holds numbers that are not whole") as caught,
        open_records(RecordSource(tmp_path / "a.dta"), [("id", "ID")], unit="ID"),
    ):
        pass
    assert "2.5" not in str(caught.value)


@pytest.mark.parametrize("ending", [*ENDINGS, "sas7bdat"])
@pytest.mark.parametrize("content", [b"no such file", b"\x00" * 3000, b"SEX,AGE\n1,2\n"])
def test_damaged_files_are_refused_without_a_word_of_them(
    tmp_path: Path, ending: str, content: bytes
) -> None:
    (tmp_path / f"people.{ending}").write_bytes(content)
    (tmp_path / "spec.toml").write_text(SPEC.replace("ENDING", ending))
    tb.Ledger.create(tmp_path / "ledger.db", tb.ZCDP(1000))
    with pytest.raises(DataError, match=rf"people\.{ending}") as caught:
        tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert "SEX,AGE" not in str(caught.value)
    assert not (tmp_path / "release").exists()
    assert tb.Ledger.open(tmp_path / "ledger.db").spent == 0


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path, "dta").read_bytes()
    (tmp_path / "people.dta").write_bytes(whole[: len(whole) * 2 // 3])
    with (
        pytest.raises(DataError, match=r"people\.dta"),
        open_records(RecordSource(tmp_path / "people.dta"), [("sex", "SEX")]),
    ):
        pass


def test_text_in_another_encoding_than_it_says(tmp_path: Path) -> None:
    pyreadstat.write_dta(pd.DataFrame({"TOWN": ["Zürich"]}), str(tmp_path / "a.dta"), version=10)
    data = (tmp_path / "a.dta").read_bytes()
    (tmp_path / "a.dta").write_bytes(data.replace("ü".encode(), b"\xfc "))
    source = RecordSource(tmp_path / "a.dta", dialect=Dialect(encoding="windows-1252"))
    with open_records(source, [("t", "TOWN")]) as records:
        assert records.to_pyarrow()["c0"].to_pylist() == ["Zü rich"]


def test_without_the_package_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "sav")
    monkeypatch.setitem(__import__("sys").modules, "pyreadstat", None)
    with (
        pytest.raises(MissingDependency, match=r"pip install 'tabulae\[stat-files\]'"),
        open_records(RecordSource(tmp_path / "people.sav"), [("sex", "SEX")]),
    ):
        pass


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('delimiter = ";"', "delimiter: only a CSV file has this"),
        ("header = true", "header: only a CSV file has this"),
        ('table = "x"', "table is for"),
        ('engine = "spark"', "convert the records"),
        ('encoding = "klingon"', "there is no encoding"),
    ],
)
def test_keys_that_such_files_do_not_have(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        Spec.from_text(
            SPEC.replace("ENDING", "sav").replace("[attributes]", f"{line}\n[attributes]"), tmp_path
        )
    assert words in str(caught.value)


def drafted(folder: Path, ending: str, *options: str) -> dict[str, object]:
    file, out = write(folder, ending), folder / "draft.toml"
    done = CliRunner().invoke(app, ["init", str(file), "--out", str(out), "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("ending", ["sav", "dta"])
def test_value_labels_are_drafted_and_must_be_confirmed(tmp_path: Path, ending: str) -> None:
    told = drafted(tmp_path, ending)
    assert told["labelled"] == 1
    assert told["declared"] == 0
    assert told["left_out"] == 1  # the date
    assert not told["finished"]
    assert (tmp_path / "codes/SEX.csv").read_text() == "code,label\n1,Man\n2,Woman\n"  # 9 is a missing value
    text = (tmp_path / "draft.toml").read_text()
    with pytest.raises(SpecError, match="confirm that these codes and labels") as caught:
        Spec.from_text(text, tmp_path)
    assert any(problem.path == "attributes.SEX" for problem in caught.value.problems)
    todo = tomllib.loads(text)["attributes"]["SEX"]["todo"]
    lines = [line for line in text.replace(f', todo = "{todo}"', "").splitlines() if "todo = " not in line]
    done = "\n".join(lines).replace('attributes = ["SEX", "TOWN"]', 'attributes = ["SEX"]')
    assert Spec.from_text(done, tmp_path).domain["SEX"].labels == ("Man", "Woman")


def test_a_code_list_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "codes").mkdir()
    (tmp_path / "codes/SEX.csv").write_text("mine")
    file = write(tmp_path, "sav")
    done = CliRunner().invoke(app, ["init", str(file), "--out", str(tmp_path / "draft.toml")])
    assert done.exit_code != 0
    assert "codes/SEX.csv exists" in " ".join(done.output.split())
    assert (tmp_path / "codes/SEX.csv").read_text() == "mine"
    assert not (tmp_path / "draft.toml").exists()
