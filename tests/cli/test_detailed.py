"""``tabulae detailed check`` and ``tabulae detailed run`` as their users meet them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_cli import _call, _fails, _json
from tests.passages import changed
from tests.run.stops import kill
from tests.safetab.world import CODES, GRF, PERSONS, TOY, World, config, needs_shared

from tabulae.privacy import Ledger

SECRET = "4711"


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path, Path]:
    """PARAMS, DATA and a ledger; one region type only, which is quick."""
    only = {key: 0 for key in config() if key.startswith("privacy_budget_p_level") and "county" not in key}
    params, data = World(config(**only)).write(tmp_path)
    return params, data, _ledger(tmp_path)


def _ledger(folder: Path, definition: str = "zcdp", budget: int = 20) -> Path:
    path = folder / "ledger.db"
    _call("ledger", "init", path, "--budget", budget, "--definition", definition)
    return path


def test_check(world: tuple[Path, Path, Path]) -> None:
    result = _call("detailed", "check", *world[:2])
    assert result.exit_code == 0, result.output
    assert "no mistakes" in result.stdout
    assert "COUNTY, level 2" in result.stdout
    assert "at delta 1e-10" in result.stdout
    assert result.stderr == ""


def test_check_as_json(world: tuple[Path, Path, Path]) -> None:
    told = _json(_call("detailed", "check", *world[:2], "--delta", "1e-6", "--json"))
    assert isinstance(told, dict)
    assert told["loss"] == {"rho": "2"}
    assert told["delta"] == "1e-6"
    assert [level["level"] for level in told["levels"]] == ["COUNTY, level 1", "COUNTY, level 2"]
    assert told["warnings"] == []
    tighter = _json(_call("detailed", "check", *world[:2], "--json"))
    assert isinstance(tighter, dict)
    assert told["epsilon"] < tighter["epsilon"]


def test_run(world: tuple[Path, Path, Path], tmp_path: Path) -> None:
    params, data, ledger = world
    result = _call("detailed", "run", params, data, "--out", tmp_path / "out", "--ledger", ledger)
    assert result.exit_code == 0, result.output
    assert f"Published {tmp_path / 'out'}" in result.stdout
    assert (tmp_path / "out" / "t1" / "t1.csv").exists()
    assert "published" in _call("ledger", "show", ledger).stdout


def test_run_as_json(world: tuple[Path, Path, Path], tmp_path: Path) -> None:
    params, data, ledger = world
    told = _json(
        _call("detailed", "run", params, data, "--out", tmp_path / "out", "--ledger", ledger, "--json")
    )
    assert isinstance(told, dict)
    assert told["release"] == str(tmp_path / "out")
    assert all({"t1_rows", "groups_by_table", "stability", "noise"} <= set(level) for level in told["levels"])
    assert told["release_id"]


def test_a_killed_run_is_resumed(world: tuple[Path, Path, Path], tmp_path: Path) -> None:
    params, data, path = world
    command = ("detailed", "run", params, data, "--out", tmp_path / "out", "--ledger", path)
    kill("stored", params.parent, tmp_path / "out")
    _fails(_call(*command), 1, "--resume")
    (data / PERSONS).unlink()
    assert _call(*command, "--resume").exit_code == 0
    assert [charge.state for charge in Ledger.open(path).charges()] == ["published"]


def _spoil(params: Path, data: Path) -> None:
    for path, old, new in (
        (params / "config.json", '"run_pr": false', '"run_pr": "no"'),
        (params / CODES, "1000|", "x000|"),
        (data / GRF, "01|001|000001|0001", "01|001|000001|1"),
    ):
        changed(path, (old, new))


@pytest.mark.parametrize("command", ["check", "run"])
def test_all_mistakes_at_once_and_exit_code_1(
    world: tuple[Path, Path, Path], tmp_path: Path, command: str
) -> None:
    params, data, ledger = world
    _spoil(params, data)
    options = ["--out", tmp_path / "out", "--ledger", ledger] if command == "run" else []
    result = _call("detailed", command, params, data, *options)
    _fails(
        result,
        1,
        "config.json (line",
        "column run_pr): must be true or false",
        f"{CODES} (line 2, column RACE_ETH_CODE)",
        f"{GRF} (line 2, column TABBLK): this field is not 4 digits",
        f"{PERSONS}: its codes could not be looked up, as {CODES} has mistakes",
        f"{PERSONS}: its blocks could not be looked up, as {GRF} has mistakes",
    )
    assert not (tmp_path / "out").exists()
    told = json.loads(_call("detailed", command, params, data, *options, "--json").stdout)
    assert told["exit_code"] == 1
    assert {"path": GRF, "line": 2, "column": "TABBLK", "message": "this field is not 4 digits"} in told[
        "problems"
    ]


@pytest.mark.parametrize("command", ["check", "run"])
def test_values_of_people_are_shown_on_request_only(
    world: tuple[Path, Path, Path], tmp_path: Path, command: str
) -> None:
    params, data, ledger = world
    text = (data / PERSONS).read_text().splitlines()
    text[4] = f"{SECRET}|{text[4].split('|', 1)[1]}"
    (data / PERSONS).write_text("\n".join(text) + "\n")
    options = ["--out", tmp_path / "out", "--ledger", ledger] if command == "run" else []
    result = _call("detailed", command, params, data, *options)
    _fails(result, 1, f"{PERSONS} (line 5, column QAGE)")
    assert SECRET not in result.output
    shown = _call("detailed", command, params, data, *options, "--show-confidential")
    assert SECRET in shown.stderr
    assert SECRET not in shown.stdout
    assert not list(tmp_path.glob("*out*"))


def test_a_ledger_that_refuses_is_exit_code_3(world: tuple[Path, Path, Path], tmp_path: Path) -> None:
    params, data, _ = world
    for folder, definition, budget in (("kind", "pure", 20), ("cap", "zcdp", 1)):
        (tmp_path / folder).mkdir()
        other = _ledger(tmp_path / folder, definition, budget)
        result = _call("detailed", "run", params, data, "--out", tmp_path / "out", "--ledger", other)
        _fails(result, 3, "ledger")
        assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(
    "options", [("--stability", "mine"), ("--delta", "0"), ("--delta", "2"), ("--delta", "small")]
)
def test_usage_is_exit_code_2(world: tuple[Path, Path, Path], options: tuple[str, str]) -> None:
    assert _call("detailed", "check", *world[:2], *options).exit_code == 2


def test_missing_options_are_exit_code_2(world: tuple[Path, Path, Path]) -> None:
    assert _call("detailed", "run", *world[:2]).exit_code == 2
    assert _call("detailed", "check", world[0]).exit_code == 2


def test_folders_that_do_not_exist(tmp_path: Path) -> None:
    _fails(_call("detailed", "check", tmp_path / "no", tmp_path / "nothing"), 1, "there is no such file")


def test_production_stability(tmp_path: Path) -> None:
    params, data = World(config(max_race_codes=8)).write(tmp_path)
    told = _json(_call("detailed", "check", params, data, "--stability", "production", "--json"))
    assert isinstance(told, dict)
    for level in told["levels"]:
        assert level["stability"]["used"] == level["stability"]["production"] >= level["stability"]["proven"]


def test_a_warning_goes_to_stderr(tmp_path: Path) -> None:
    params, data = World(config(reader="cef")).write(tmp_path)
    result = _call("detailed", "check", params, data)
    assert result.exit_code == 0
    assert 'reader "cef"' in result.stderr
    told = json.loads(_call("detailed", "check", params, data, "--json").stdout)
    assert [warning["column"] for warning in told["warnings"]] == ["reader"]


def test_the_command_line_stays_light() -> None:
    loaded = "import sys, tabulae.cli; print(sorted(m for m in sys.modules if m in ('duckdb', 'pyarrow', 'numpy')))"
    done = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True)
    assert done.stdout.strip() in ("[]", "['numpy']")


@pytest.mark.long
@needs_shared
@pytest.mark.parametrize("definition", ["zcdp", pytest.param("puredp", marks=pytest.mark.long)])
def test_the_toy(tmp_path: Path, definition: str) -> None:
    ledger = _ledger(tmp_path, {"puredp": "pure"}.get(definition, definition), 60)
    params = TOY / f"input_dir_{definition}"
    result = _call("detailed", "run", params, TOY, "--out", tmp_path / "out", "--ledger", ledger)
    assert result.exit_code == 0, result.output
    assert (
        (tmp_path / "out" / "t1" / "t1.csv")
        .read_text()
        .startswith("REGION_ID|REGION_TYPE|ITERATION_CODE|COUNT\n")
    )
