"""Whole runs of a spec with [detailed]: complete or nothing, paid once, verified from the folder alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.guild import counted, people
from tests.passages import changed
from tests.run.stops import kill

import tabulae as tb
from tabulae.domain.groups import Regions
from tabulae.errors import BudgetRefused, DataError, InvalidArgument, LedgerError, ReleaseError, Unsupported
from tabulae.spec import read_spec

LOSS = Fraction(5, 2)


def _ledger(guild: Path) -> tb.Ledger:
    return tb.Ledger.open(guild.parent / "ledger.db")


def test_a_release_is_complete_verified_and_paid_once(guild: Path) -> None:
    out = guild.parent / "release"
    release = tb.run(guild, out)
    assert release.verify() == []
    assert _ledger(guild).spent == LOSS
    assert [charge.state for charge in _ledger(guild).charges()] == ["published"]
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {
        "datapackage.json",
        "report.html",
        "SHA256SUMS",
        "spec.toml",
        "ledger.json",
        "groups.csv",
    } <= names
    assert {"tables/totals.csv", "tables/sex_by_age2.parquet", "measurements/01-nation-1.parquet"} <= names
    assert not [path for path in guild.parent.iterdir() if path.name.endswith(".partial")]
    descriptor = json.loads((out / "datapackage.json").read_text())
    for resource in descriptor["resources"]:
        written = pyarrow.csv.read_csv(out / resource["path"]).column_names
        assert written == [field["name"] for field in resource["schema"]["fields"]]


def test_estimates_are_of_the_people_who_are_there(guild: Path) -> None:
    """At a large budget noise is nearly 0, so every published total is the count by definition, zeros included.

    Noise of a count is discrete Gaussian of variance s / (2 * 0.1 * rho) < 0.03 at stage one: some of 26 totals is not
    the true one with probability below 26 * 2 * exp(-1 / (2 * 0.03)) < 1e-5 for stage one alone; stage two decides
    them with variance below 0.004, for which it is below 1e-50.
    """
    text = guild.read_text().replace('budget = "3"', 'budget = "2000"')
    for budget in ("1", "1/2"):
        text = text.replace(f'budget = "{budget}"\nthresholds', 'budget = "600"\nthresholds')
    guild.write_text(text)
    (guild.parent / "ledger.db").unlink()
    shutil.rmtree(guild.parent / "ledger.db.key", ignore_errors=True)
    for leftover in guild.parent.glob("ledger.db*"):
        leftover.unlink()
    tb.Ledger.create(guild.parent / "ledger.db", 2000, "zcdp")
    release = tb.run(guild, guild.parent / "release")
    truth = counted(people(400))
    totals = release.tables["totals"].to_pylist()
    assert len(totals) == 2 + 2 * 4 + 4 * 4
    for row in totals:
        expected = truth[row["region_type"], row["region"], row["group"]]
        assert round(row["estimate"]) == expected
        table = "total only" if row["group"] == "tailors only" else None
        if table is None and abs(expected - 20) > 1 and abs(expected - 100) > 1:
            table = "total" if expected < 20 else "sex" if expected < 100 else "sex_by_age2"
        assert table in (None, row["table"])
    bakers = [row for row in people(400) if "1" in row[3:] and row[0] == "a1"]
    cells = {
        (row["sex"], row["age2"]): round(row["estimate"])
        for row in release.tables["sex_by_age2"].to_pylist()
        if (row["region"], row["group"]) == ("a1", "bakers")
    }
    assert cells == {
        (sex, age): sum(row[1] == sex and (row[2] < 5) == (age == "0-4") for row in bakers)
        for sex in "FM"
        for age in ("0-4", "5-9")
    }


def test_nothing_of_the_source_is_published(guild_release: Path) -> None:
    for path in guild_release.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"people.csv" not in content
            assert str(guild_release.parent).encode() not in content
            assert b"ledger.db" not in content


def test_what_may_not_fit_is_refused_before_it_is_paid_for(
    guild: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = guild.parent / "release"
    needed = tb.plan(guild).needs.disk
    free = [needed - 1]
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, free[0]))
    with pytest.raises(
        ReleaseError, match=r"may take 0\.\d\d MB on disk.* 0\.\d\d MB are free.*Nothing was charged"
    ):
        tb.run(guild, out)
    assert _ledger(guild).charges() == []
    assert not (guild.parent / ".release.partial").exists()
    free[0] = needed
    assert tb.run(guild, out).verify() == []


def test_a_run_with_other_levels_leaves_no_file_of_the_former(guild: Path) -> None:
    out = guild.parent / "release"
    kill("counted", guild, out)
    assert (guild.parent / ".release.partial/measurements/03-town-2.parquet").exists()
    text = guild.read_text()
    guild.write_text(text[: text.rindex("[[detailed.level]]")])
    with pytest.raises(ReleaseError, match="remove that folder"):
        tb.run(guild, out, resume=True)
    (guild.parent / ".release.partial/plan.json").unlink()  # then nothing says that it may have charged
    assert tb.run(guild, out).verify() == []
    assert not list((out / "measurements").glob("03-*"))


def test_a_region_type_without_a_region_ends_in_a_release(guild: Path) -> None:
    """The spec refuses it; were it not refused, what was paid for could be read back all the same."""
    spec = read_spec(guild)
    assert spec.detailed is not None
    nowhere = Regions("shire", (), np.full(4, -1, np.int32))
    regions = {**spec.detailed.regions, "shire": nowhere}
    tb.run(replace(spec, detailed=replace(spec.detailed, regions=regions)), guild.parent / "release")
    stored = pq.read_table(guild.parent / "release/measurements/02-shire-2.parquet")
    assert stored.num_rows == 0
    assert [charge.state for charge in _ledger(guild).charges()] == ["published"]


def test_what_is_refused_costs_nothing(guild: Path) -> None:
    out = guild.parent / "release"
    out.mkdir()
    with pytest.raises(ReleaseError, match="exists"):
        tb.run(guild, out)
    out.rmdir()
    lines = (guild.parent / "people.csv").read_text()
    (guild.parent / "people.csv").write_text(lines + "a1,F,4,7,\n")
    with pytest.raises(DataError, match="ONE"):
        tb.run(guild, out)
    (guild.parent / "people.csv").write_text(lines)
    with pytest.raises(InvalidArgument, match="without --plan"):
        tb.run(guild, out, plan_file=guild)
    spec = read_spec(guild)
    published = guild.parent / "published.toml"
    published.write_text(spec.published_text())
    for name, content in spec.files.items():
        (guild.parent / name).parent.mkdir(exist_ok=True)
        (guild.parent / name).write_bytes(content)
    with pytest.raises(LedgerError, match="names no ledger"):
        tb.run(published, out)
    assert _ledger(guild).spent == 0
    tb.run(guild, out)
    tb.run(guild, guild.parent / "second")
    with pytest.raises(BudgetRefused):
        tb.run(guild, guild.parent / "third")
    assert sorted(path.name for path in guild.parent.glob(".*partial")) == []


def test_units_of_several_rows_are_cut_and_their_noise_is_larger(guild: Path) -> None:
    lines = [f"{','.join(map(str, row))},{i % 100}" for i, row in enumerate(people(400))]
    (guild.parent / "people.csv").write_text("TOWN,SEX,AGE,ONE,TWO,ID\n" + "\n".join(lines) + "\n")
    changed(guild, ('unit = "person"', 'unit = "person"\nunit_id = "ID"\nrows_per_unit = 2'))
    release = tb.run(guild, guild.parent / "release")
    assert release.verify() == []
    level = release.product.adaptive.levels[0]
    assert level.second.parameter == Fraction(level.groups_of_a_record * 4) / (2 * Fraction(9, 10))
    totals = {row["group"]: row["estimate"] for row in release.tables["totals"].slice(0, 2).to_pylist()}
    truth = sum(
        count
        for (kind, _, group), count in counted(people(400)).items()
        if (kind, group) == ("nation", "food")
    )
    assert totals["food"] < 0.75 * truth  # 200 of 400 rows are counted; the noise is below 10 but for 1e-9


def test_an_audit_says_what_to_do_instead(guild: Path) -> None:
    from tabulae.audit import audit

    with pytest.raises(Unsupported, match="tabulae plan"):
        audit(guild)


@pytest.mark.long
def test_the_example_runs(tmp_path: Path) -> None:
    """As its first lines say, in a folder of its own."""
    examples = Path(__file__).parents[2] / "examples"
    shutil.copytree(examples / "detailed", tmp_path / "detailed")
    shutil.copy(examples / "detailed.toml", tmp_path)
    script, people_csv = tmp_path / "detailed/people.py", tmp_path / "people.csv"
    subprocess.run([sys.executable, str(script), str(people_csv)], check=True)
    tb.Ledger.create(tmp_path / "occupations.db", 1, "zcdp")
    release = tb.run(tmp_path / "detailed.toml", tmp_path / "release")
    assert release.verify() == []
    assert release.about["rows"]["totals"] == 2400
