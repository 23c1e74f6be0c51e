"""The commands on a spec and on a release with [geography]."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.duchy import plots, write_plots
from tests.passages import replaced
from typer.testing import CliRunner

import tabulae as tb
from tabulae.cli import app


def _ran(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.output


def _text(old: str, new: str) -> Callable[[Path], None]:
    """A spec with one passage written differently."""

    def change(spec: Path) -> None:
        spec.write_text(replaced(spec.read_text(), (old, new), most=1))

    return change


def _plots(line: int, column: str, value: str) -> Callable[[Path], None]:
    """A file of leaves with one cell written differently."""

    def change(spec: Path) -> None:
        rows = plots()
        rows[line][column] = value
        write_plots(spec.parent / "plots.csv", rows)

    return change


def _houses(text: str) -> Callable[[Path], None]:
    def change(spec: Path) -> None:
        path = spec.parent / "houses.csv"
        path.write_text(path.read_text() + text)

    return change


def _one_leaf(spec: Path) -> None:
    write_plots(spec.parent / "plots.csv", plots()[:1])
    (spec.parent / "houses.csv").write_text("plot,kind,at_least\n000,home,0\n")


def _most(spec: Path) -> None:
    """Limits that no count meets."""
    (spec.parent / "houses.csv").write_text("plot,kind,at_least,at_most\n000,inn,7,5\n")


MISTAKES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a leaf in two parents": (_plots(5, "parish", "p7"), "p7"),
    "a leaf twice": (_plots(5, "plot", "004"), "004"),
    "an entity over unknown leaves": (_houses("zzz,home,1\n"), "zzz"),
    "levels' shares that do not sum to 1": (_text('plot = "1/5"', 'plot = "1/6"'), "29/30"),
    "queries' shares that do not sum to 1": (_text('plot = "1/4"', 'plot = "1/6"'), "plot"),
    "limits that contradict each other": (_most, "at_least is 7 and at_most is 5"),
    "a bound where nobody can be": (_houses("000,tavern,1\n"), "tavern"),
    "a level without full rank": (
        lambda spec: [
            _text('hamlet = "1/4", plot = "1/4" }', 'hamlet = "1/2", plot = "1/4" }')(spec),
            _text('hamlet = "1/4", plot = "1/4" }', 'hamlet = "1/2", plot = "1/4" }')(spec),
            _text('hamlet = "1/2", plot = "1/2" }', 'plot = "1/2" }')(spec),
        ][0],
        "full rank",
    ),
    "a spine with one leaf": (_one_leaf, "leaf"),
    "a column that is not in the file": (
        _text('"parish", "hamlet", "plot"]', '"parish", "hamlt", "plot"]'),
        "hamlt",
    ),
    "no file": (_text('file = "plots.csv"', 'file = "nothing.csv"'), "nothing.csv"),
    "too many rows": (_text("microdata = true", "microdata = true\nmax_rows = 10"), "max_rows"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("command", ["check", "plan", "run"])
def test_mistakes_end_with_1_before_anything_is_charged(duchy: Path, mistake: str, command: str) -> None:
    change, word = MISTAKES[mistake]
    change(duchy)
    out = duchy.parent / "release"
    told = _ran(command, duchy, *(["--out", out] if command == "run" else []), code=1)
    assert word in told
    assert not out.exists()
    assert not list(duchy.parent.glob(".*partial"))
    assert tb.Ledger.open(duchy.parent / "ledger.db").charges() == []


def test_records_that_break_a_rule_end_with_1(duchy: Path) -> None:
    records = duchy.parent / "people.csv"
    lines = records.read_text()
    for row in ("999,home,old,a", "000,abbey,child,a", "000,castle,old,a"):
        records.write_text(f"{lines}{row}\n")
        _ran("run", duchy, "--out", duchy.parent / "release", code=1)
    records.write_text(f"{lines}001,inn,old,a\n")  # where the file of houses has no inn
    told = _ran("run", duchy, "--out", duchy.parent / "release", code=1)
    assert "cannot occur in their leaf, by [[bound]] houses.csv: correct" in told
    assert "001 inn" in _ran("run", duchy, "--out", duchy.parent / "release", "--show-confidential", code=1)
    assert not (duchy.parent / "release").exists()
    assert not list(duchy.parent.glob(".*partial"))


def test_a_ledger_that_refuses_ends_with_3(duchy: Path) -> None:
    _text('budget = "2"', 'budget = "5"')(duchy)
    _ran("run", duchy, "--out", duchy.parent / "release", code=3)
    assert not (duchy.parent / "release").exists()
    assert not list(duchy.parent.glob(".*partial"))


def test_plan_run_check_report_and_query(duchy: Path) -> None:
    out = duchy.parent / "release"
    assert "3 tables of areas" in _ran("check", duchy)
    assert json.loads(_ran("check", duchy, "--json"))["leaves"] == 45
    assert "kind_by_grown" in _ran("plan", duchy)
    summary = json.loads(_ran("run", duchy, "--out", out, "--json"))
    assert summary["tables"][0] == {"table": "total", "rows": 78}
    assert summary["areas"]["plot"] == 48
    assert summary["microdata"] == 500
    assert summary["exact"] == ["total of each duchy"]
    assert "every number follows from the measurements" in _ran("check", out)
    assert "report.html" in _ran("report", out)
    percent = "SELECT 100 * COUNT(*) FILTER (WHERE faith = 'a') / COUNT(*) FROM people"
    assert "D" in _ran("query", out, percent)
    rows = json.loads(
        _ran("query", out, percent, "--areas", "parish", "--code", "p3", "--areas", "forest", "--json")
    )
    assert [(row["area_type"], row["area"]) for row in rows] == [("parish", "p3")]
    told = _ran("query", out, "SELECT COUNT(*) FROM people", "--areas", "plots", code=1)
    assert 'no level or entity "plots"; did you mean "plot"?' in told
    assert "exists" in _ran("run", duchy, "--out", out, code=1)
    assert "without --plan" in _ran("run", duchy, "--out", out.with_name("other"), "--plan", duchy, code=1)
    printed = _ran("run", duchy, "--out", duchy.parent / "second")
    assert "microdata.parquet   500 rows" in printed
    (out / "tables/faith.csv").write_text("")
    assert "tables/faith.csv was altered" in _ran("check", out, code=1)
    assert "is not as it was published" in _ran("report", out, code=1)
