"""`tabulae plan` and `tabulae check` on a spec with [geography]."""

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


def test_plan_prints_the_spine_the_noise_the_errors_and_the_distances(duchy: Path) -> None:
    (duchy.parent / "people.csv").unlink()  # no record is needed
    text = _ran("plan", duchy)
    for words in (
        "zcdp: rho 2, replace one person (epsilon",
        "Exact     total, of each duchy: the duke counts heads",
        "Areas     45 of level plot, and 3 where nothing can occur",
        "Estimate  bluedown, from discrete Gaussian noise",
        "Time      about as long as this plan",
        "Disk      about",
        "Memory    about",
        "share of the budget",
        "Standard deviation of one answer as it is drawn",
        "95% margin",
        "kind_by_grown",
        "exact",
        "not known beforehand",
        "off the spine",
        "forest",
    ):
        assert words in text, words
    assert "It is the estimator of this release" not in text
    assert max(map(len, text.splitlines())) <= 110


def test_plan_for_machines(duchy: Path) -> None:
    document = json.loads(_ran("plan", duchy, "--json"))
    assert document["promise"]["rho"] == "2"
    assert document["epsilon"]["delta"] == "1/10000000000"
    assert document["errors_of"] == "gls"
    assert document["exact"] == [{"counts": "total", "level": "duchy", "reason": "the duke counts heads"}]
    assert [level["level"] for level in document["levels"]] == ["duchy", "shire", "parish", "hamlet", "plot"]
    assert document["levels"][0]["share"] == "1/5"
    assert document["cells"] == {"possible": 32, "dense": ["kind", "age"], "symmetric": ["faith"]}
    tables = {(row["table"], row["area_type"]): row for row in document["tables"]}
    assert tables["total", "duchy"]["largest"] == 0
    assert tables["faith", "forest"]["areas"] == 1
    assert {row["entity_type"] for row in document["distances"]} >= {"market", "forest"}
    assert [name for name, size in document["needs"].items() if not size] == ["million"]


def test_plan_of_gls_is_its_own_error(duchy: Path) -> None:
    text = (
        duchy.read_text().replace("microdata = true", "").replace("[release]", '[method]\nestimate = "gls"')
    )
    duchy.write_text(text)
    printed = _ran("plan", duchy)
    assert "It is the estimator of this release" in printed
    assert "biased" not in printed


def test_there_is_nothing_to_save(duchy: Path) -> None:
    told = _ran("plan", duchy, "--save", duchy.parent / "plan.json", code=1)
    assert "[geography] follows from the spec" in told


@pytest.mark.parametrize("command", ["plan", "check"])
def test_mistakes_are_told_with_their_lines(duchy: Path, command: str) -> None:
    changed(duchy, ('plot = "1/5" }', 'plot = "1/4" }'))
    told = _ran(command, duchy, code=1)
    assert "geography.shares (line" in told
    assert "add up to 21/20, and not to 1" in " ".join(told.split())
