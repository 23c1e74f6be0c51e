"""A series on the command line: plan, run, check and ledger say what follows what, and what it cost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.run.series import write_people, write_series, write_spec
from typer.testing import CliRunner, Result

from tabulae.cli import app


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A series of three releases, to be looked at and never changed."""
    return write_series(tmp_path_factory.mktemp("series") / "town")


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def _said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def _json(*arguments: object) -> dict:
    result = _call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_from_one_year_to_a_correction_of_the_next(tmp_path: Path) -> None:
    folder = write_people(tmp_path / "town")
    first = write_spec(folder, "2025")
    assert "0 of 3 spent in 0 charges so far; 1/2 after this" in _said(_call("plan", first))
    said = _said(_call("run", first, "--out", folder / "2025"))
    assert "Ledger rho 1/2 of 3 spent with this release, in 1 charge (epsilon" in said
    second = write_spec(folder, "2026", follows="2025", kind="next")
    release_id = json.loads((folder / "2025/datapackage.json").read_text())["tabulae"]["release_id"]
    assert f"; follows release {release_id}" in _said(_call("check", second))
    plan = _call("plan", second).stdout
    assert f"Series    follows release {release_id} (Town 2025)\n" in plan
    assert "Ledger    1/2 of 3 spent in 1 charge so far; 1 after this (epsilon" in plan
    document = _json("plan", second)
    assert document["series"]["follows"]["release_id"] == release_id
    assert [link["title"] for link in document["series"]["chain"]] == ["Town 2025"]
    assert document["ledger"] == {
        "definition": "zcdp",
        "cap": {"rho": "3"},
        "spent": {"rho": "1/2"},
        "after": {"rho": "1"},
        "charges": 1,
        "warnings": [],
    }
    assert _json("run", second, "--out", folder / "2026")["title"] == "Town 2026"
    third = write_spec(folder, "2026b", follows="2026", kind="correction", reason="one file twice")
    assert "Why: one file twice" in _said(_call("plan", third))
    assert _call("run", third, "--out", folder / "2026b").exit_code == 0
    shown = _said(_call("ledger", "show", folder / "ledger.db"))
    assert "Release 3 follows release 1" in shown
    assert "Release 6 corrects release 3" in shown
    again = write_spec(folder, "2026c", follows="2026", kind="correction", reason="other file")
    assert "it has two corrections" in _said(_call("plan", again))
    assert "it has two corrections" in _said(_call("run", again, "--out", folder / "2026c"))


def test_check_prints_the_chain(made: Path) -> None:
    said = _said(_call("check", made / "2026b"))
    for words in (
        "Town 2025",
        "the first",
        "corrects it: a <file> was",
        "rho 1 (epsilon",
        "rho 1 of 3 spent",
    ):
        assert words in said
    told = _json("check", made / "2026b")
    assert told["faults"] == []
    assert [link["beside"] for link in told["series"]] == ["2025", "2026", "2026b"]
    assert [link["kind"] for link in told["series"]] == [None, "next", "correction"]
    assert told["ledger"]["spent"] == {"rho": "1"}


def test_check_of_a_moved_folder_and_of_false_neighbours(made: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(made / "2026b", tmp_path / "moved")
    assert "not found beside it" in _said(_call("check", moved))
    assert [link["beside"] for link in _json("check", moved)["series"]] == [None, None, "moved"]
    other = Path(shutil.copytree(made / "2026", tmp_path / "2026"))
    with (other / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  more\n")
    result = _call("check", moved)
    assert result.exit_code == 1
    assert "2026: is not the release that was followed" in result.stderr
    result = _call("check", moved, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["faults"] == [
        "2026: is not the release that was followed; its SHA256SUMS differs"
    ]


def test_a_refusal_is_told_by_the_plan_and_by_the_run(made: Path, tmp_path: Path) -> None:
    town = Path(shutil.copytree(made, tmp_path / "town"))
    (town / "2026b/tables/sex_by_age.csv").write_text("")
    spec = write_spec(town, "2027", follows="2026b", kind="next")
    assert "Warning a run would be refused" in _said(_call("plan", spec))
    result = _call("run", spec, "--out", town / "2027")
    assert result.exit_code == 1
    assert "cannot be followed" in result.stderr
    assert "Traceback" not in result.output
    result = _call("check", write_spec(town, "2028", follows="2099", kind="next"))
    assert result.exit_code == 1
    assert 'series.follows (line 25): "2099" is not there' in result.stderr
