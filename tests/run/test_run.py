"""Whole runs: complete or nothing, paid once, verified from the folder alone."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.passages import changed
from tests.village import write_village

import tabulae as tb
from tabulae.errors import BudgetRefused, DataError, LedgerError, ReleaseError


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one release of a village, to be looked at and never changed."""
    spec = write_village(tmp_path_factory.mktemp("published"))
    return tb.run(spec, spec.parent / "release").path


def test_a_release_is_complete_verified_and_paid_once(village: Path) -> None:
    out = village.parent / "release"
    release = tb.run(village, out)
    assert release.verify() == []
    ledger = tb.Ledger.open(village.parent / "ledger.db")
    assert ledger.spent == Fraction(1, 2)
    assert [c.state for c in ledger.charges()] == ["published"]
    names = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert {
        "datapackage.json",
        "report.html",
        "SHA256SUMS",
        "spec.toml",
        "ledger.json",
        "tables/some.csv",
    } <= names
    assert not [p for p in village.parent.iterdir() if p.name.endswith(".partial")]
    table = pq.read_table(out / "tables/sex_by_age.parquet")
    assert table.column_names == ["sex", "age", "estimate", "std_error", "ci_low", "ci_high", "obs_status"]
    assert table.num_rows == 40
    csv = pyarrow.csv.read_csv(out / "tables/sex_by_age.csv")
    assert np.allclose(csv["estimate"].to_numpy(), table["estimate"].to_numpy())


def test_tables_agree_with_each_other(published: Path) -> None:
    """One estimate of the cells stands behind all tables, so sums agree to rounding."""
    release = tb.Release.read(published)
    total = release.tables["sex_by_age"]["estimate"].to_numpy().sum()
    ranges = release.tables["ages"].to_pylist()
    everyone = next(row["estimate"] for row in ranges if row["age"] == "0-19")
    assert everyone == pytest.approx(total, abs=1e-6)


def test_nothing_of_the_source_is_published(published: Path) -> None:
    for path in published.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"people.csv" not in content
            assert str(published.parent).encode() not in content
            assert b"ledger.db" not in content


def test_a_saved_plan_fixes_the_strategy(village: Path) -> None:
    made = tb.plan(village)
    made.save(village.parent / "plan.json")
    release = tb.run(village, village.parent / "release", plan_file=village.parent / "plan.json")
    assert release.measurements[0].strategy.blocks == made.strategy.blocks
    changed(village, ("1/2", "1/4"))
    with pytest.raises(ReleaseError, match="another spec"):
        tb.run(village, village.parent / "second", plan_file=village.parent / "plan.json")
    (village.parent / "plan.json").write_text("{}")
    with pytest.raises(ReleaseError, match="not a plan"):
        tb.run(village, village.parent / "second", plan_file=village.parent / "plan.json")


def test_refusals_spend_and_write_nothing(village: Path) -> None:
    folder, out = village.parent, village.parent / "release"
    text = village.read_text()
    village.write_text(text.replace('"1/2"', '"3"'))
    with pytest.raises(BudgetRefused):
        tb.run(village, out)
    village.write_text(text.replace('unit = "person"', 'unit = "household"'))
    with pytest.raises(BudgetRefused, match="unit"):
        tb.run(village, out)
    village.write_text(text.replace("ledger.db", "absent.db"))
    with pytest.raises(LedgerError):
        tb.run(village, out)
    village.write_text(text)
    good = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(good.replace(",a\n", ",zebra\n", 1))
    with pytest.raises(DataError) as caught:
        tb.run(village, out)
    assert "zebra" not in str(caught.value)
    assert "RACE" in str(caught.value)
    assert tb.Ledger.open(folder / "ledger.db").spent == 0
    assert sorted(p.name for p in folder.iterdir()) == ["ledger.db", "people.csv", "spec.toml"]
    (folder / "people.csv").write_text(good)
    tb.run(village, out)


def test_an_existing_folder_is_refused_untouched(village: Path) -> None:
    out = village.parent / "release"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(ReleaseError, match="exists"):
        tb.run(village, out)
    assert [p.name for p in out.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("damage", ["edit", "remove", "add", "numbers"])
def test_verify_names_what_was_altered(published: Path, tmp_path: Path, damage: str) -> None:
    out = shutil.copytree(published, tmp_path / "release")
    release = tb.Release.read(out)
    path = out / "tables/sex_by_age.csv"
    if damage == "edit":
        path.write_text(path.read_text().replace('"F","0",', '"F","0",1', 1))
    elif damage == "remove":
        path.unlink()
    elif damage == "add":
        (out / "extra.txt").write_text("?")
    else:  # consistent checksums, false numbers
        table = release.tables["some"]
        moved = table.set_column(
            table.column_names.index("estimate"), "estimate", [table["estimate"].to_numpy() + 1]
        )
        pq.write_table(moved, out / "tables/some.parquet")
        pyarrow.csv.write_csv(moved, out / "tables/some.csv")
        from tabulae.release import seal

        seal(out)
    faults = tb.Release.read(out).verify()
    assert len(faults) == 1
    assert {"edit": "sex_by_age", "remove": "missing", "add": "extra.txt", "numbers": "some"}[
        damage
    ] in faults[0]


def test_queries_are_answered_from_the_folder_alone(village: Path) -> None:
    out = village.parent / "release"
    tb.run(village, out)
    moved = village.parent.parent / "elsewhere"
    shutil.rmtree(moved, ignore_errors=True)
    shutil.copytree(out, moved)
    shutil.rmtree(village.parent)
    release = tb.Release.read(moved)
    stored = release.tables["some"].to_pylist()
    again = release.query(
        "SELECT sex, COUNT(*) FROM people WHERE age < 5 OR race = 'b' GROUP BY sex"
    ).to_pylist()
    assert [r["sex"] for r in again] == [r["sex"] for r in stored]
    assert [r["estimate"] for r in again] == pytest.approx([r["estimate"] for r in stored])
    assert [r["ci_low"] for r in again] == pytest.approx([r["ci_low"] for r in stored])
    shutil.rmtree(moved)


def test_the_report_is_the_same_when_rebuilt(village: Path) -> None:
    from tabulae._run import write_report

    release = tb.run(village, village.parent / "release")
    before = (release.path / "report.html").read_bytes()
    write_report(release)
    assert (release.path / "report.html").read_bytes() == before
    assert release.verify() == []


def test_the_descriptor_is_a_data_package(published: Path) -> None:
    release = tb.Release.read(published)
    descriptor = json.loads((release.path / "datapackage.json").read_text())
    for resource in descriptor["resources"]:
        header = (release.path / resource["path"]).read_text().splitlines()[0]
        assert [f'"{field["name"]}"' for field in resource["schema"]["fields"]] == header.split(",")
