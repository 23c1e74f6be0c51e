"""No value of a record is shown or sent to the page: records of every kind hold values that would be recognised."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.studio.conftest import served
from tests.studio.test_server import asked, edited

from tabulae.studio import Studio

TEXT, NUMBER, DATE, REAL = "CANARYTEXT", "98765432", "1907-06-05", "31415.92653"
CANARIES = (TEXT, "canarytext", NUMBER, "98,765,432", DATE, "5 June 1907", REAL, "31415", "31,415")
COLUMNS = ("NAME", "AGE", "BORN", "INCOME", "MOVED", "ALIVE")
"""Text, whole numbers, dates, measured values, times and truths."""


def _csv(folder: Path) -> Path:
    row = f"{TEXT},{NUMBER},{DATE},{REAL},{DATE} 01:02:03,true\n"
    (folder / "people.csv").write_text(",".join(COLUMNS) + "\n" + row * 3)
    return folder / "people.csv"


def _spss(folder: Path) -> Path:
    written = pytest.importorskip("pyreadstat")
    frame = duckdb.sql(_select().replace("TRUE AS ALIVE", "1 AS ALIVE")).df()
    written.write_sav(frame, folder / "people.sav", variable_value_labels={"ALIVE": {1: "yes", 2: "no"}})
    return folder / "people.sav"


def _select() -> str:
    return (
        f"SELECT '{TEXT}' AS NAME, {NUMBER}::INTEGER AS AGE, DATE '{DATE}' AS BORN, {REAL}::DOUBLE AS INCOME, "
        f"TIMESTAMP '{DATE} 01:02:03' AS MOVED, TRUE AS ALIVE FROM range(3)"
    )


def _parquet(folder: Path) -> Path:
    duckdb.sql(f"COPY ({_select()}) TO '{folder / 'people.parquet'}' (FORMAT parquet)")
    return folder / "people.parquet"


def _duckdb(folder: Path) -> Path:
    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS {_select()}")
    return folder / "people.duckdb"


def _ended(studio: Studio) -> dict[str, Any]:
    """The state once a run has ended."""
    for _ in range(3000):
        if (state := studio.state())["run"]["state"] != "running":
            return state
        time.sleep(0.05)
    raise AssertionError("the run did not end")


@pytest.mark.parametrize(
    "written", [_csv, *(pytest.param(each, marks=pytest.mark.long) for each in (_parquet, _duckdb, _spss))]
)
def test_no_page_tells_a_value(tmp_path: Path, written: Callable[[Path], Path]) -> None:
    """Not when records are looked at, nor in a draft, a form, a plan, a suggestion, a mistake or a failed run."""
    place = written(tmp_path)
    with served(place) as studio:
        told = [json.dumps(studio.state()), studio.document.text]
        assert all(name in studio.document.text for name in COLUMNS)
        opened = "&".join(f"open=attributes.{name}" for name in COLUMNS)
        told += [
            asked(studio, "GET", path)[1] for path in ("/", f"/form?{opened}", "/text", "/runs", "/plan")
        ]
        text = re.sub(r'(codes = "[^"]*"), todo = "[^"]*"', r"\1", studio.document.text)
        text = re.sub(r'todo = "[^"]*"', "range = [0, 9]", text)
        told.append(json.dumps(edited(studio, text.replace("[0, 9]", "[0, nine]", 1))))
        told.append(json.dumps(edited(studio, text.replace("range", "rang", 1))))
        state = edited(studio, text)
        assert state["problems"] == []
        told += [json.dumps(state), asked(studio, "GET", "/plan")[1]]
        version = state["version"]
        for value in ("categories", "bins", "years", "codes"):
            sent = {
                "op": "domain",
                "path": ["attributes", "NAME"],
                "value": {"value": value},
                "version": version,
            }
            changed = asked(studio, "POST", "/change", json.dumps(sent).encode())
            assert changed[0] == 200
            version = json.loads(changed[1])["version"]
            told += [
                changed[1],
                asked(studio, "GET", "/form?open=attributes.NAME")[1],
                json.dumps(studio.state()),
            ]
        edited(studio, text)
        asked(studio, "POST", "/save", json.dumps({"text": text}).encode())
        told.append(asked(studio, "POST", "/ledger", b'{"cap": "1"}')[1])
        told.append(asked(studio, "POST", "/run", b'{"name": "release"}')[1])
        state = _ended(studio)
        assert state["run"]["state"] == "failed"  # whatever the values are, they are none of 0 to 9
        assert not state["run"]["charged"]
        told += [json.dumps(state), asked(studio, "GET", "/runs")[1]]
        folder = studio._run._folder
        told += [file.read_text(errors="replace") for file in folder.iterdir() if file.is_file()]
    for page in told:
        assert not any(canary in page for canary in CANARIES)
