"""A run is a release of groups like others, in a folder of its own; tests/run/test_stops.py stops it at every step."""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.safetab.world import PERSONS, World, config

from tabulae.errors import BudgetRefused, LedgerError, ReleaseError, SpecError
from tabulae.interop.safetab import check, run
from tabulae.privacy import Ledger
from tabulae.release import Release

FILES = {
    *("README.txt", "SHA256SUMS", "privacy.json", "ledger.json", "inputs.json", "datapackage.json"),
    *("t1/t1.csv", "t2/t2.csv", "measurements/measurement.json"),
    *(
        f"tables/{name}.{end}"
        for name in ("totals", "sex*age4", "sex*age9", "sex*age23")
        for end in ("csv", "parquet")
    ),
}
LOSS = Fraction("10.75")  # six region types, 0.75 and 1 each, and 1/8 more for both levels of counties


@pytest.fixture(autouse=True)
def _conversion_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tabulae.products.groups.plan.epsilon_of", lambda plan, delta: (plan.loss.epsilon(delta), "quickly")
    )


def tabulate(folder: Path, world: World | None = None, **kind: Any) -> Release:
    params, data = (world or World()).write(folder)
    path = folder / "ledger.db"
    if not path.exists():
        Ledger.create(path, kind.pop("budget", 50), kind.pop("definition", "zcdp"), **kind)
    inputs = check(params, data, ledger=path, records=False)
    return run(inputs, folder / "out", say=lambda message: None)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"params", "data", "ledger.db", "sound"}


def states(folder: Path) -> list[str]:
    return [charge.state for charge in Ledger.open(folder / "ledger.db").charges()]


def test_a_whole_run(tmp_path: Path) -> None:
    release = tabulate(tmp_path)
    out = tmp_path / "out"
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert {name for name in found if not name.startswith("measurements/") or name.endswith("json")} == FILES
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=True)
    ledger = Ledger.open(tmp_path / "ledger.db")
    assert (ledger.spent, states(tmp_path)) == (LOSS, ["published"])
    told = json.loads((out / "privacy.json").read_text())
    assert Fraction(told["loss"]["rho"]) == LOSS
    for level in told["levels"]:
        assert Fraction(level["noise"]["total_only"]["variance"]) == level["stability"]["used"] / (
            2 * Fraction(level["budget"])
        )
    (entry,) = json.loads((out / "ledger.json").read_text())
    assert entry["release_id"] == release.about["release_id"] == ledger.charges()[0].release_id
    rows = len((out / "t1/t1.csv").read_text().splitlines()) - 1
    assert (
        rows
        == release.tables["totals"].num_rows
        == sum(
            sum(level["groups_by_table"].values()) - level["suppressed"] for level in release.about["levels"]
        )
    )
    assert str(tmp_path) not in "".join(path.read_text() for path in out.glob("*.*"))


@pytest.mark.parametrize(
    ("chance", "narrow", "dropped"),
    [
        (0.5, 1, True),
        pytest.param(0, 1, False, marks=pytest.mark.long),
        pytest.param(None, 1, False, marks=pytest.mark.long),
        pytest.param(0.5, 0, False, marks=pytest.mark.long),
    ],
)
def test_the_readme_says_what_is_left_out(
    tmp_path: Path, chance: float | None, narrow: float, dropped: bool
) -> None:
    """Totals are left out below the state alone, and only with a chance."""
    wide = {key: 0 for key in config() if "level_" in key and not key.endswith("state")}
    told = config(**({} if narrow else wide), zero_suppression_chance=chance)
    if chance is None:
        del told["zero_suppression_chance"]
    page = (tabulate(tmp_path, World(told)).path / "README.txt").read_text()
    assert ("small totals are left out (zero suppression)" in page) == dropped
    assert ("before small totals are left out" in page) == dropped
    assert ("No total is left out" in page) != dropped


def test_the_readme_reads_in_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tabulate(tmp_path).path)
    page = Path("README.txt").read_text()
    sql = page.split("  SQL     ")[1].split("  -- DuckDB")[0]
    with duckdb.connect() as engine:
        assert engine.execute(sql).fetchall()


def test_the_folder_must_not_exist(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ReleaseError, match="a release is written once"):
        tabulate(tmp_path)
    assert states(tmp_path) == []


def test_a_mistake_spends_nothing(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        tabulate(tmp_path, World(config(max_race_codes=0)))
    assert (states(tmp_path), left(tmp_path)) == ([], set())


def test_a_mistake_of_a_person_spends_nothing(tmp_path: Path) -> None:
    text = World().text(tmp_path / "sound", PERSONS).replace("|1010|", "|7777|").replace("\n7|1|", "\n777|1|")
    with pytest.raises(SpecError) as caught:
        tabulate(tmp_path, World(files={PERSONS: text}))
    assert {problem.column for problem in caught.value.problems} >= {"QRACE1", "QAGE"}
    assert "777" not in str(caught.value)
    assert (states(tmp_path), left(tmp_path)) == ([], set())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"definition": "pure"}, "pure"),
        ({"neighbours": "replace"}, "replace"),
        ({"unit": "household"}, "household"),
        ({"budget": 9}, "43/4"),
    ],
)
def test_another_ledger_is_refused(tmp_path: Path, kind: dict[str, Any], words: str) -> None:
    with pytest.raises(BudgetRefused, match=words):
        tabulate(tmp_path, **kind)
    assert (states(tmp_path), left(tmp_path)) == ([], set())


def test_no_ledger(tmp_path: Path) -> None:
    inputs = check(*World().write(tmp_path), ledger=tmp_path / "no.db")
    with pytest.raises(LedgerError):
        run(inputs, tmp_path / "out", say=lambda message: None)
    assert left(tmp_path) == set()


@pytest.mark.long
def test_a_second_run_is_charged_anew(tmp_path: Path) -> None:
    first = tabulate(tmp_path)
    first.path.rename(tmp_path / "first")
    second = tabulate(tmp_path)
    assert first.about["release_id"] != second.about["release_id"]
    assert Ledger.open(tmp_path / "ledger.db").spent == 2 * LOSS
    assert (tmp_path / "first/t1/t1.csv").read_text() != (tmp_path / "out/t1/t1.csv").read_text()
