"""`tabulae plan` on specs with targets: what it prints and what it tells machines."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from tests.cli.schemas import fits
from tests.guild import write_guild
from tests.passages import changed
from tests.planning.test_allocation import automatic
from tests.spec.states import write_state
from tests.village import write_village
from typer.testing import CliRunner

from tabulae.cli import app


def _ran(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def village(tmp_path: Path) -> Path:
    spec = write_village(tmp_path)
    aimed = spec.read_text().replace('"race_by_young"', '"race_by_young"\ntarget = { rmse = 4 }')
    aimed = aimed.replace('name = "sex_by_age"', 'name = "sex_by_age"\ntarget = { margin = 9 }')
    spec.write_text(aimed + '[method]\nselect = "identity"\n')
    return spec


@pytest.fixture
def state(tmp_path: Path) -> Path:
    target = 'target = [{ rmse = 4, areas = ["county", "place"] }, { margin = 40, areas = ["tract"] }]'
    text = write_state(tmp_path).changed(('name = "total"\n', f'name = "total"\n{target}\n'))
    (tmp_path / "spec.toml").write_text(text)
    return tmp_path / "spec.toml"


def test_tables(village: Path) -> None:
    text = _ran("plan", village)
    assert "Targets   rho 0.5 meets all 2 targets." in text
    assert "is the smallest budget with which this strategy meets all targets." in text
    assert "No strategy does with less than rho" in text
    found = json.loads(_ran("plan", village, "--json"))["smallest"]
    assert found["enough"] is True
    assert found["written"] == "1/2"
    assert [row["table"] for row in found["targets"]] == ["sex_by_age", "race_by_young"]
    changed(village, ('budget = "1/2"', 'budget = "1/1000"'))
    assert "Targets   rho 0.001 meets 0 of 2 targets." in _ran("plan", village)


def test_one_target_is_one(village: Path) -> None:
    changed(village, ("target = { rmse = 4 }\n", ""))
    assert "Targets   rho 0.5 meets its one target." in _ran("plan", village)


def test_groups(tmp_path: Path) -> None:
    spec = write_guild(tmp_path)
    spec.write_text(spec.read_text().replace('budget = "1"\n', 'budget = "1"\ntarget = { margin = 1 }\n', 1))
    text = _ran("plan", spec)
    assert "misses its one target" in text
    assert "is the smallest budget with which these levels meet all targets." in text
    assert ": needs 1." in text
    found = json.loads(_ran("plan", spec, "--json"))["smallest"]
    assert found["enough"] is False
    assert [level["smallest"] is None for level in found["levels"]] == [False, True, True]


def test_areas(state: Path) -> None:
    text = _ran("plan", state)
    for words in (
        "RMSE 4.00",
        "95% margin 40.00",
        "Targets   rho 2 meets all 3 targets.",
        "is the smallest budget with which the shares as they are written meet all targets.",
        "Shares    With the shares below rho",
        "They serve the targets alone",
        "shares = { state = ",
        'attributes = ["hhgq", "age", "race"]',
    ):
        assert words in text, words
    found = json.loads(_ran("plan", state, "--json"))["smallest"]
    assert found["best_shares"]["levels"].keys() == {"state", "county", "tract", "block"}
    assert {(row["of"], row["kind"]) for row in found["targets"]} == {
        ("county", "rmse"),
        ("place", "rmse"),
        ("tract", "margin"),
    }
    assert found["best_shares"]["gap"] >= 0


@pytest.mark.long
def test_a_budget_of_areas_to_be_found_is_printed_and_not_spent(state: Path) -> None:
    changed(state, ('budget = "2"', 'budget = "targets"'))
    line = next(line for line in _ran("plan", state).splitlines() if line.startswith("To release"))
    budget = line.split('"')[1]
    assert float(budget) < 2
    told = _ran("run", state, "--out", state.parent / "release", code=1)
    assert "is to be found from the tables' targets" in told
    assert not (state.parent / "release").exists()
    changed(state, ('"targets"', f'"{budget}"'))
    assert f"Targets   rho {budget} meets all 3 targets." in _ran("plan", state)


def test_areas_whose_targets_nothing_meets(state: Path) -> None:
    changed(state, ("rmse = 4", "rmse = 1e-5"))
    assert "No budget meets these targets" in _ran("plan", state)
    changed(state, ('budget = "2"', 'budget = "targets"'))
    assert "no budget meets these targets" in _ran("plan", state, code=1)


@pytest.mark.long
def test_shares_that_were_chosen_are_printed_as_lines_of_a_spec(state: Path) -> None:
    state.write_text(automatic(state.read_text(), queries=False))
    text = _ran("plan", state)
    assert "Shares    chosen for the tables: RMSE" in text
    assert "with which these shares meet all targets" in text
    document = json.loads(_ran("plan", state, "--json"))
    fits("plan", document)
    found = document["found_shares"]
    assert found["toml"] in text
    read = tomllib.loads(found["toml"])
    assert sum(map(Fraction, read["shares"].values())) == 1
    assert {level: Fraction(share) for level, share in found["levels"].items()} == {
        level: Fraction(share) for level, share in read["shares"].items()
    }
    assert [query["attributes"] for query in found["queries"]] == [
        query["attributes"] for query in read["geography"]["query"]
    ]
    assert found["missed_targets"] == 0
