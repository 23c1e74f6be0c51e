"""A whole release of tables about several attributes together: plan, run, check, query and report."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

import tabulae as tb

SPEC = """
title = "Couples"
[source]
path = "couples.csv"
unit = "couple"
[attributes]
wife = { range = [0, 4] }
husband = { range = [0, 4] }
born = { categories = ["Rome", "Oslo", "Bonn"] }
lives = { categories = ["Rome", "Oslo", "Bonn"] }
[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"
[[table]]
name = "gaps"
sql = '''SELECT COUNT(*) FILTER (WHERE wife = husband) AS "same age",
                COUNT(*) FILTER (WHERE ABS(wife - husband) <= 2) FROM couples'''
[[table]]
name = "stayed"
sql = "SELECT born, COUNT(*) FROM couples WHERE born = lives GROUP BY born"
[[table]]
name = "wives"
attributes = ["wife"]
[[invariant]]
name = "older wives"
sql = "SELECT COUNT(*) FROM couples WHERE wife > husband"
reason = "known"
[method]
select = "eigen"
[[derived]]
name = "near"
sql = "SELECT 100.0 * COUNT(*) FILTER (WHERE ABS(wife - husband) <= 2) / COUNT(*) FROM couples"
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    folder = tmp_path_factory.mktemp("couples")
    draw = np.random.default_rng(2)
    ages, towns = draw.integers(0, 5, (2, 600)), draw.choice(["Rome", "Oslo", "Bonn"], (2, 600))
    lines = [",".join(map(str, row)) for row in zip(*ages, *towns, strict=True)]
    (folder / "couples.csv").write_text("\n".join(["wife,husband,born,lives", *lines]) + "\n")
    (folder / "spec.toml").write_text(SPEC)
    tb.Ledger.create(folder / "ledger.db", tb.ZCDP("1/2"), unit="couple")
    return tb.run(folder / "spec.toml", out=folder / "release")


def counted(release: tb.Release, where: str) -> int:
    records = Path(release.path).parent / "couples.csv"
    return duckdb.sql(f"SELECT COUNT(*) FROM '{records}' WHERE {where}").fetchall()[0][0]


def test_rows_are_named_and_near_the_truth(release: tb.Release) -> None:
    rows = release.tables["gaps"].to_pylist()
    assert [row["condition"] for row in rows] == ["same age", "ABS(wife - husband) <= 2"]
    for row, where in zip(rows, ("wife = husband", "ABS(wife - husband) <= 2"), strict=True):
        assert abs(row["estimate"] - counted(release, where)) < 8 * row["std_error"]
    for row in release.tables["stayed"].to_pylist():
        assert (
            abs(row["estimate"] - counted(release, f"born = lives AND born = '{row['born']}'"))
            < 8 * row["std_error"]
        )
    (exact,) = release.tables["older wives"].to_pylist()
    assert (exact["estimate"], exact["obs_status"]) == (counted(release, "wife > husband"), "E")


def test_what_is_published_follows_from_the_measurements(release: tb.Release) -> None:
    assert release.verify() == []
    assert "ABS(wife - husband) &lt;= 2" in (Path(release.path) / "report.html").read_text()


def test_statements_about_several_attributes_are_answered(release: tb.Release) -> None:
    asked = release.query("SELECT COUNT(*) FROM couples WHERE husband >= wife").to_pylist()[0]
    assert asked["ci_low"] <= counted(release, "husband >= wife") + 8 * asked["std_error"]
    assert asked["ci_high"] >= counted(release, "husband >= wife") - 8 * asked["std_error"]
