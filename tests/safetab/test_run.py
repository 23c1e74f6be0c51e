"""A run is one charge and one folder, whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.safetab.world import PERSONS, World, config

from tabulae.errors import BudgetRefused, LedgerError, Problem, ReleaseError, SpecError
from tabulae.interop.safetab import Done, run
from tabulae.interop.safetab._run import _digest
from tabulae.interop.safetab.tables import Spill
from tabulae.privacy import ZCDP, Ledger
from tabulae.release.staging import workplace

FILES = {
    *("README.txt", "SHA256SUMS", "privacy.json", "ledger.json", "inputs.json", "summary.json"),
    *("t1/t1.csv", "t2/t2.csv"),
    *("detail/totals.csv", "detail/totals.parquet", "detail/cells.csv", "detail/cells.parquet"),
}
WARNED: list[Problem] = []
QUIETLY: dict[str, Any] = {
    "rule": "proven",
    "delta": "1e-10",
    "say": lambda message: None,
    "warn": lambda problem: WARNED.append(problem),
}
LOSS = Fraction("10.75")  # six region types, 0.75 and 1 each, and 1/8 more for both levels of counties


@pytest.fixture(autouse=True)
def _conversion_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tabulae.interop.safetab._run.epsilon_of", lambda plan, delta: (plan.loss.epsilon(delta), "quickly")
    )


def tabulate(folder: Path, world: World | None = None, **kind: Any) -> Done:
    params, data = (world or World()).write(folder)
    path = folder / "ledger.db"
    if not path.exists():
        Ledger.create(path, kind.pop("budget", 50), kind.pop("definition", "zcdp"), **kind)
    return run(params, data, folder / "out", path, **QUIETLY)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"params", "data", "ledger.db", "sound"}


def states(folder: Path) -> list[str]:
    return [charge.state for charge in Ledger.open(folder / "ledger.db").charges()]


def test_a_whole_run(tmp_path: Path) -> None:
    done = tabulate(tmp_path)
    out = tmp_path / "out"
    assert {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} == FILES
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
    assert entry["release_id"] == done.release_id == ledger.charges()[0].release_id
    rows = len((out / "t1/t1.csv").read_text().splitlines()) - 1
    assert sum(level["t1_rows"] for level in json.loads((out / "summary.json").read_text())) == rows
    assert str(tmp_path) not in (out / "README.txt").read_text()


@pytest.mark.parametrize(
    ("chance", "narrow", "dropped"), [(0.5, 1, True), (0, 1, False), (None, 1, False), (0.5, 0, False)]
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


def test_its_parent_must_exist(tmp_path: Path) -> None:
    params, data = World().write(tmp_path)
    ledger = Ledger.create(tmp_path / "ledger.db", 50, "zcdp")
    with pytest.raises(ReleaseError, match="is not a folder"):
        run(
            params,
            data,
            tmp_path / "no" / "out",
            ledger.path,
            **QUIETLY,
        )
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
        ({"definition": "pure"}, "--definition zcdp --neighbours add-remove --unit person"),
        ({"neighbours": "replace"}, "of kind zcdp, replace, person"),
        ({"unit": "household"}, "use a ledger of that kind"),
        ({"budget": 9}, "this run costs 43/4 and 9 of 9 is left"),
    ],
)
def test_another_ledger_is_refused(tmp_path: Path, kind: dict[str, Any], words: str) -> None:
    with pytest.raises(BudgetRefused, match=words):
        tabulate(tmp_path, **kind)
    assert (states(tmp_path), left(tmp_path)) == ([], set())


def test_no_ledger(tmp_path: Path) -> None:
    params, data = World().write(tmp_path)
    with pytest.raises(LedgerError):
        run(
            params,
            data,
            tmp_path / "out",
            tmp_path / "no.db",
            **QUIETLY,
        )
    assert left(tmp_path) == set()


def test_a_second_run_is_charged_anew(tmp_path: Path) -> None:
    first = tabulate(tmp_path)
    first.path.rename(tmp_path / "first")
    second = tabulate(tmp_path)
    assert first.release_id != second.release_id
    assert Ledger.open(tmp_path / "ledger.db").spent == 2 * LOSS
    assert (tmp_path / "first/t1/t1.csv").read_text() != (tmp_path / "out/t1/t1.csv").read_text()


@pytest.mark.parametrize("where", ["add", "write"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("secret 4711")])
def test_writing_fails_after_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(Spill, where, broken)
    expected = RuntimeError if where == "add" and isinstance(error, RuntimeError) else ReleaseError
    with pytest.raises(expected) as caught:
        tabulate(tmp_path)
    if expected is ReleaseError:
        assert "is void and stays spent" in str(caught.value)
        assert "4711" not in str(caught.value)
    assert (states(tmp_path), left(tmp_path)) == (["void"], set())


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Spill, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        tabulate(tmp_path)
    assert (states(tmp_path), left(tmp_path)) == (["void"], set())


def test_what_a_killed_run_left_is_not_published(tmp_path: Path) -> None:
    stale = tmp_path / ".out.partial"
    (stale / "t1").mkdir(parents=True)
    (stale / "t1" / "old.csv").write_text("old")
    (stale / "t1.spill").write_text("old")
    out = tabulate(tmp_path).path
    assert {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} == FILES


def test_what_a_killed_run_had_charged_becomes_void(tmp_path: Path) -> None:
    """A process killed between its charge and its folder: the next run for that place settles it, and pays anew."""
    ledger = Ledger.create(tmp_path / "ledger.db", 50, "zcdp")
    ledger.charge(ZCDP(LOSS), "add-remove", "person", "killed", _digest(tmp_path / "out"))
    ledger.charge(ZCDP(1), "add-remove", "person", "somebody else's", _digest(tmp_path / "other"))
    (tmp_path / ".out.partial").mkdir()
    WARNED.clear()
    tabulate(tmp_path)
    assert states(tmp_path) == ["void", "charged", "published"]
    (warning,) = WARNED
    assert warning.path == str(ledger.path)
    for told in ("was cut off after its charge of rho 43/4", ledger.charges()[0].release_id, "stays spent"):
        assert told in warning.message
    assert Ledger.open(tmp_path / "ledger.db").spent == 2 * LOSS + 1


def test_a_charge_whose_folder_may_have_been_published_is_left_alone(tmp_path: Path) -> None:
    """Killed between the folder's name and the ledger's mark, and the folder moved since: nothing was lost."""
    ledger = Ledger.create(tmp_path / "ledger.db", 50, "zcdp")
    ledger.charge(ZCDP(1), "add-remove", "person", "published, not marked", _digest(tmp_path / "out"))
    tabulate(tmp_path)
    assert states(tmp_path) == ["charged", "published"]


def test_a_second_run_for_the_same_place_waits_for_nothing(tmp_path: Path) -> None:
    """The folder is locked from its making until it has its name; then it is another run's no more."""
    out = tmp_path / "out"
    with workplace(out, resume=False) as partial:
        (partial / "table").write_text("whole")
        with pytest.raises(ReleaseError, match="another run is writing"):
            tabulate(tmp_path)
        assert (partial / "table").read_text() == "whole"
        partial.rename(out)
    assert [path.name for path in out.iterdir()] == ["table"]
    assert states(tmp_path) == []


def test_trouble_after_the_folder_has_its_name_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Ledger, "settle", full)
    with pytest.raises(ReleaseError, match=r"is published and complete, but .* the disk is full"):
        tabulate(tmp_path)
    assert {
        p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()
    } == FILES


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    params, data = World().write(tmp_path)
    Ledger.create(tmp_path / "ledger.db", 50, "zcdp")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(ReleaseError, match="may not write"):
        run(
            params,
            data,
            closed / "out",
            tmp_path / "ledger.db",
            **QUIETLY,
        )
    assert states(tmp_path) == []
