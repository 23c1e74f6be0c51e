"""The commands on a spec and on a release with [detailed]."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.passages import changed
from typer.testing import CliRunner

from tabulae.cli import app


def _ran(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_plan_prints_levels_stability_errors_and_rehearsal(guild: Path) -> None:
    text = _ran("plan", guild)
    assert "zcdp: rho 5/2, add-remove one person" in text
    assert "no record belongs to more than" in text
    expected = (
        "nation, level 1",
        "sex_by_age2",
        "total only",
        "size of the group",
        "100.0%",
        "logarithmic scale",
    )
    for words in expected:
        assert words in text
    document = json.loads(_ran("plan", guild, "--json"))
    assert [level["budget"] for level in document["levels"]] == ["1", "1/2", "1"]
    assert document["levels"][0]["stability"]["is_exact"] is True
    assert document["levels"][0]["rehearsal"][0]["low"] == 1
    assert len(document["tables"]) == 11
    assert "follows from the spec" in _ran("plan", guild, "--save", guild.parent / "plan.json", code=1)


def test_plan_prints_the_lines_to_write_for_targets(guild: Path) -> None:
    text = guild.read_text().replace('budget = "3"', 'budget = "targets"')
    guild.write_text(text.replace('budget = "1/2"', "target = { margin = 5 }"))
    printed = _ran("plan", guild)
    budgets = [line.strip() for line in printed.split("\n") if line.strip().startswith("budget = ")]
    assert len(budgets) == 2
    assert "detailed.level[1] (shire, 2)" in printed
    written = text.replace('budget = "targets"', budgets[0], 1).replace('budget = "1/2"', budgets[1])
    guild.write_text(written)
    assert "no mistakes" in _ran("check", guild)


def test_run_check_report_and_query(guild: Path) -> None:
    out = guild.parent / "release"
    assert "6 groups in 3 levels, 2 tables beside the total" in _ran("check", guild)
    assert json.loads(_ran("check", guild, "--json"))["groups"] == 6
    summary = json.loads(_ran("run", guild, "--out", out, "--json"))
    assert summary["tables"][0] == {"table": "totals", "rows": 26}
    assert sum(summary["levels"][2]["groups_by_table"].values()) == 16
    assert "every number follows from the measurements" in _ran("check", out)
    assert "report.html" in _ran("report", out)
    assert "tables/totals.csv" in _ran("query", out, "SELECT COUNT(*) FROM people", code=1)
    assert "exists" in _ran("run", guild, "--out", out, code=1)
    (out / "tables/sex.csv").write_text("")
    assert "tables/sex.csv was altered" in _ran("check", out, code=1)
    refused = _ran("report", out, code=1)
    assert "is not as it was published" in refused
    assert "tables/sex.csv was altered" in refused


@pytest.mark.parametrize("command", ["plan", "audit"])
def test_mistakes_and_what_is_not_possible_end_with_1(guild: Path, command: str) -> None:
    if command == "plan":
        changed(guild, ('"shire", "town"]', '"shier", "town"]'))
    assert "shier" in _ran(command, guild, code=1) or command == "audit"
