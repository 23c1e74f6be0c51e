"""Runs from the studio are those of tabulae run; before their charge a cancel costs nothing."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.duchy import write_duchy
from tests.guild import write_guild
from tests.studio.test_server import asked

import tabulae as tb
from tabulae.errors import ReleaseError, Unsupported
from tabulae.spec import Spec
from tabulae.studio import runs
from tabulae.studio.runs import (
    Cancelled,
    Job,
    Run,
    Status,
    account_of,
    place_for,
    rehearsal,
    releases_in,
    unfinished_in,
)

SPEC = """title = "Sexes"
source = { path = "people.csv" }
attributes = { sex = { column = "sex", categories = ["F", "M"] } }
privacy = { definition = "zcdp", budget = "1/2", ledger = "ledger.db" }
table = [{ name = "sexes", attributes = ["sex"] }]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "people.csv").write_text("sex\nF\nM\nF\n")
    tb.Ledger.create(tmp_path / "ledger.db", 1, "zcdp")
    return tmp_path


def ended(run: Run) -> Status:
    for _ in range(3000):
        if (status := run.status).state != "running":
            return status
        time.sleep(0.05)
    raise AssertionError("the run did not end")


def done_here(place: Path, job: Job) -> Status:
    """A run's work, in this process."""
    folder = place / "job"
    folder.mkdir(exist_ok=True)
    (folder / "job.json").write_text(json.dumps(vars(job)))
    before = signal.getsignal(signal.SIGINT)
    runs.work(str(folder))
    signal.signal(signal.SIGINT, before)
    return Status(**json.loads((folder / "status.json").read_bytes()))


def test_a_run_is_that_of_the_command_and_stands_in_the_ledger(place: Path) -> None:
    run = Run(Job(str(place / "spec.toml"), str(place / "release")))
    assert ended(run) == replace(run.status, state="done", charged=True, share=1.0)
    assert tb.Release.read(place / "release").verify() == []
    account = account_of(place / "ledger.db", place)
    assert (account.cap, account.spent, account.left) == ("1", "1/2", "1/2")
    assert [(each.title, each.loss, each.state, each.folder) for each in account.entries] == [
        ("Sexes", "1/2", "published", "release")
    ]
    assert [account.after(budget) for budget in ("1/4", "1", "", "targets")] == [
        "and leave 1/4",
        "which is more than is left",
        "",
        "",
    ]
    assert not run.cancel()


def test_a_cancel_before_the_charge_charges_nothing(place: Path) -> None:
    (place / "job").mkdir()
    (place / "job/claim").write_text("cancelled")
    status = done_here(place, Job(str(place / "spec.toml"), str(place / "release")))
    assert (status.state, status.charged) == ("cancelled", False)
    assert tb.Ledger.open(place / "ledger.db").spent == 0
    assert not unfinished_in(place)
    assert not (place / "release").exists()


def test_a_killed_run_is_resumed_and_charged_once(place: Path) -> None:
    spec = str(place / "spec.toml")

    class Killed(BaseException):
        pass

    def killed(step: str) -> None:
        if step == "stored":
            raise Killed

    with pytest.raises(Killed):
        tb.run(spec, place / "release", at=killed)  # type: ignore[arg-type]
    assert unfinished_in(place) == ["release"]
    assert releases_in(place) == {}
    assert done_here(place, Job(spec, str(place / "release"), resume=True)).state == "done"
    assert tb.Ledger.open(place / "ledger.db").spent == tb.ZCDP("1/2").amount
    assert list(releases_in(place)) == ["release"]


@pytest.mark.long
def test_a_studio_that_is_killed_loses_nothing(place: Path) -> None:
    """Its run goes on, is charged once, and is published."""
    command = [sys.executable, "-m", "tabulae.cli", "studio", str(place / "spec.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        origin, _, token = server.stdout.readline().removeprefix("Open ").strip().partition("/?token=")
        port = origin.rpartition(":")[2]
        desk = SimpleNamespace(origin=origin, token=token, cookie=f"tabulae-{port}")
        body = json.dumps({"name": "release"}).encode()
        status, text, _ = asked(desk, "POST", "/run", body)  # type: ignore[arg-type]
        assert (status, json.loads(text)["run"]["state"]) == (200, "running")
        server.kill()
    for _ in range(2000):
        if (place / "release").exists():
            break
        time.sleep(0.05)
    assert tb.Release.read(place / "release").verify() == []
    (charge,) = tb.Ledger.open(place / "ledger.db").charges()
    assert charge.loss == tb.ZCDP("1/2")
    assert not unfinished_in(place)


def test_a_rehearsal_has_people_and_a_ledger_of_its_own(place: Path) -> None:
    (place / "people.csv").unlink()
    status = done_here(place, Job(str(place / "spec.toml"), str(place / "rehearsal"), rehearse=True))
    assert status.state == "done"
    release = tb.Release.read(place / "job/release")
    assert release.spec.title == "Rehearsal with invented people: Sexes"
    assert tb.Ledger.open(place / "ledger.db").spent == 0
    assert releases_in(place) == {}


def test_groups_are_rehearsed(tmp_path: Path) -> None:
    spec = write_guild(tmp_path)
    (tmp_path / "people.csv").unlink()
    status = done_here(tmp_path, Job(str(spec), str(tmp_path / "rehearsal"), rehearse=True))
    assert (status.state, status.message) == ("done", "")
    release = tb.Release.read(tmp_path / "job/release")
    assert release.spec.title == "Rehearsal with invented people: Guilds"
    assert release.tables["totals"].num_rows
    assert tb.Ledger.open(tmp_path / "ledger.db").spent == 0


@pytest.mark.parametrize("estimate", ["gls", pytest.param("bluedown", marks=pytest.mark.long)])
def test_areas_are_rehearsed(tmp_path: Path, estimate: str) -> None:
    spec = write_duchy(tmp_path)
    (tmp_path / "people.csv").unlink()
    if estimate == "gls":
        text = spec.read_text().replace("microdata = true", "")
        spec.write_text(f'{text}\n[method]\nestimate = "gls"\n')
    status = done_here(tmp_path, Job(str(spec), str(tmp_path / "rehearsal"), rehearse=True))
    assert (status.state, status.message) == ("done", "")
    release = tb.Release.read(tmp_path / "job/release")
    assert release.spec.title == "Rehearsal with invented people: Duchy"
    assert release.verify() == []
    assert tb.Ledger.open(tmp_path / "ledger.db").spent == 0


def test_units_with_a_table_of_their_own_are_rehearsed(tmp_path: Path) -> None:
    """Columns of one name in both tables are two columns."""
    (tmp_path / "spec.toml").write_text("""
[source]
path = "persons.csv"
unit = "household"
unit_id = "NO"
rows_per_unit = 3
units = { path = "units.csv" }
[attributes]
sex = { column = "KIND", categories = ["F", "M"] }
tenure = { of = "unit", column = "KIND", categories = ["own", "rent"] }
women = { of = "unit", count = "sex = 'F'", most = 2 }
[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"
[[table]]
name = "persons"
attributes = ["sex", "tenure"]
[[table]]
name = "households"
counts = "units"
attributes = ["tenure", "women"]
""")
    status = done_here(tmp_path, Job(str(tmp_path / "spec.toml"), str(tmp_path / "none"), rehearse=True))
    assert (status.state, status.message) == ("done", "")
    assert tb.Release.read(tmp_path / "job/release").tables["households"].num_rows == 6


def test_what_nobody_is_invented_for_is_refused(place: Path, tmp_path: Path) -> None:
    text = SPEC.replace('"M"] }', '"M"] }, home = { column = "sex", categories = ["own", "rent"] }')
    (place / "spec.toml").write_text(text)
    Spec.from_text(text)
    with pytest.raises(Unsupported, match="no value is listed by each"):
        rehearsal(place / "spec.toml", tmp_path)


def test_failures_are_told_in_words(place: Path) -> None:
    (place / "people.csv").write_text("sex\nSECRET\n")
    status = done_here(place, Job(str(place / "spec.toml"), str(place / "release")))
    assert (status.state, status.charged) == ("failed", False)
    assert "sex" in status.message
    assert "SECRET" not in json.dumps(vars(status))


@pytest.mark.parametrize("lack", ["budget", "records", "spec"])
def test_what_a_run_lacks_is_told_before_anything_is_charged(place: Path, lack: str) -> None:
    if lack == "budget":
        (place / "ledger.db").unlink()
        tb.Ledger.create(place / "ledger.db", "1/4", "zcdp")
    else:
        (place / {"records": "people.csv", "spec": "spec.toml"}[lack]).unlink()
    status = done_here(place, Job(str(place / "spec.toml"), str(place / "release")))
    told = {"budget": "1/4 of 1/4 is left", "records": "does not exist", "spec": "check the path"}[lack]
    assert (status.state, status.charged) == ("failed", False)
    assert told in status.message
    assert not (place / "release").exists()
    assert unfinished_in(place) == []


def test_a_ledger_that_another_program_holds_is_told_at_once_and_before_records_are_counted(
    place: Path,
) -> None:
    (place / "people.csv").unlink()  # is not looked for
    with closing(sqlite3.connect(place / "ledger.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        status = done_here(place, Job(str(place / "spec.toml"), str(place / "release")))
        account = account_of(place / "ledger.db", place)
        assert time.monotonic() - began < 30  # of 60 that a charge would wait
    assert (status.state, status.charged) == ("failed", False)
    for words in (status.message, account.trouble):
        assert "ledger.db is held by another process" in words
        assert "let it finish or close it, and try again" in words


def test_a_process_that_dies_is_told(place: Path) -> None:
    run = Run(Job(str(place / "spec.toml"), str(place / "release")))
    os.kill(run._process.pid, signal.SIGKILL)
    status = ended(run)
    assert status.state == "failed"
    assert "Nothing was charged" in status.message


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", ".hidden", "a b", "x\n", "a.", "spec.toml"])
def test_a_release_is_named_beside_the_spec_alone(place: Path, name: str) -> None:
    with pytest.raises(ReleaseError):
        place_for(place, name)


def test_a_cancelled_error_is_raised_at_the_gate(tmp_path: Path) -> None:
    work = runs._Work(tmp_path)
    work._at("planned")
    assert runs._claimed(tmp_path, "cancelled")
    with pytest.raises(Cancelled):
        work._at("counted")
