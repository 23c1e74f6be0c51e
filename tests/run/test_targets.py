"""From targets in the document to a budget, and to a release that keeps them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.passages import changed
from typer.testing import CliRunner

import tabulae as tb
from tabulae.cli import app
from tabulae.errors import SpecError


def _aimed(village: Path, budget: str) -> Path:
    text = village.read_text().replace('budget = "1/2"', f'budget = "{budget}"')
    text = text.replace('attributes = ["sex", "age"]', 'attributes = ["sex", "age"]\ntarget = { rmse = 4 }')
    text = text.replace(
        'queries = { age = "ranges" }',
        'queries = { age = "ranges" }\ntarget = { margin = 20, confidence = 0.9 }',
    )
    village.write_text(text + '\n[method]\nselect = "identity"\n')
    return village


def _plan(spec: Path) -> dict:
    done = CliRunner().invoke(app, ["plan", str(spec), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_plan_finds_the_budget_and_a_release_at_it_meets_the_targets(village: Path) -> None:
    spec = _aimed(village, "targets")
    found = _plan(spec)
    assert found["promise"]["found_from_targets"] is True
    assert {t["table"]: t["met"] for t in found["tables"]} == {
        "sex_by_age": True, "race_by_young": None, "ages": True, "some": None,
    }  # fmt: skip
    printed = CliRunner().invoke(app, ["plan", str(spec)]).stdout
    rho = found["promise"]["rho"]
    assert f'write budget = "{float(tb.ZCDP(rho).amount):.4g}"' in printed
    with pytest.raises(SpecError, match="run `tabulae plan`"):
        tb.run(spec, village.parent / "release")
    assert not (village.parent / "release").exists()

    changed(spec, ('"targets"', f'"{rho}"'))
    release = tb.run(spec, village.parent / "release")
    tables = {name: release.tables[name].to_pydict() for name in ("sex_by_age", "ages")}
    squares = [s**2 for s in tables["sex_by_age"]["std_error"]]
    assert (sum(squares) / len(squares)) ** 0.5 <= 4
    assert release.verify() == []


def test_a_smaller_budget_misses_a_target_and_says_so(village: Path) -> None:
    rho = tb.ZCDP(_plan(_aimed(village, "targets"))["promise"]["rho"]).amount
    changed(village, ('"targets"', f'"{rho * 9 / 10}"'))
    small = _plan(village)
    assert small["promise"]["found_from_targets"] is False
    assert False in [t["met"] for t in small["tables"]]
    assert "missed" in CliRunner().invoke(app, ["plan", str(village)], env={"COLUMNS": "200"}).stdout


def _of_fewer_ages(village: Path) -> Path:
    """The village with ages from 0 to 3: to choose for the largest variance takes long."""
    spec = village.read_text().replace("range = [0, 19]", "range = [0, 3]").replace("[5, 15]", "[1, 3]")
    village.write_text(spec)
    people = village.with_name("people.csv")
    first, *rest = people.read_text().splitlines()
    rows = [f"{sex},{int(age) % 4},{race}" for sex, age, race in (line.split(",") for line in rest)]
    people.write_text("\n".join([first, *rows, ""]))
    return village


def test_the_largest_variance_can_be_the_objective(village: Path) -> None:
    total = max(t["margin"] for t in _plan(_of_fewer_ages(village))["tables"])
    village.write_text(village.read_text() + '\n[method]\nobjective = "max"\n')
    assert max(t["margin"] for t in _plan(village)["tables"]) < total


def test_an_objective_beside_targets_is_refused(village: Path) -> None:
    spec = _aimed(village, "1/2")
    spec.write_text(spec.read_text() + 'objective = "max"\n')
    with pytest.raises(SpecError, match="tables have targets"):
        tb.plan(spec)


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("total", "its RMSE is proven"),
        ("relative", "its RMSE over queries scaled to norm 1 is proven"),
        pytest.param("max", "its largest standard error is proven", marks=pytest.mark.long),
    ],
)
def test_a_proof_is_told_of_what_it_is_about(village: Path, objective: str, words: str) -> None:
    """The certificate belongs to the objective: the report's sentence on the total squared error is kept for that."""
    method = f'\n[method]\nselect = "opt0"\nobjective = "{objective}"\n'
    village.write_text(_of_fewer_ages(village).read_text() + method)
    told = CliRunner().invoke(app, ["plan", str(village)])
    assert words in re.sub(r"\s+", " ", told.output)
    tb.run(village, village.parent / "out")
    page = (village.parent / "out/report.html").read_text()
    assert ("No strategy whatever" in page) == (objective == "total")
