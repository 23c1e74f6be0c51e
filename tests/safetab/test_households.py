"""SafeTab-H: T3 and T4 without noise are the truth, row for row; what is refused costs nothing."""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.schemas import fits
from tests.cli.test_cli import _call, _json
from tests.safetab.households import (
    HEADER,
    LEVEL_1,
    PRODUCTION,
    SOUND,
    TOTALS_HEADER,
    household_config,
    households,
    toy,
)
from tests.safetab.oracle import household_truth
from tests.safetab.world import CONFIG, GRF, HOUSEHOLDS, MEMBERS, PERSONS, RACE, TOTALS, needs_shared, persons

from tabulae.errors import SpecError
from tabulae.interop.safetab import Inputs, check, run
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, Ledger

FILES = ("t3/T03001", "t3/T03002", "t3/T03003", "t3/T03004", "t4/T04001", "t4/T04002")
PEERS = {
    "thresholds_h_t3": {key: [0, 1, 2] for key in household_config()["thresholds_h_t3"]},
    "thresholds_h_t4": {key: [0] for key in household_config()["thresholds_h_t4"]},
}
"""Those of the production code's own test of correctness, under which every table occurs."""


@pytest.fixture(autouse=True)
def _conversion_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tabulae.products.groups.plan.epsilon_of", lambda plan, delta: (plan.loss.epsilon(delta), "quickly")
    )


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for law in (DiscreteGaussian, DiscreteLaplace):
        monkeypatch.setattr(law, "sample", lambda self, size, source=None: np.zeros(size, np.int64))


def inputs_of(folders: tuple[Path, Path], **options: Any) -> Inputs:
    return check(*folders, households=True, **options)


def tabulate(folders: tuple[Path, Path], definition: str = "zcdp") -> Path:
    folder = folders[0].parent
    ledger = Ledger.create(folder / "ledger.db", 10**4, definition, unit="household")
    run(inputs_of(folders, ledger=ledger.path, records=False), folder / "out", say=lambda message: None)
    return folder / "out"


def published(out: Path) -> dict[str, list[str]]:
    found = {}
    for name in FILES:
        header, *rows = (out / f"{name}.csv").read_text().splitlines()
        assert header == f"REGION_ID|REGION_TYPE|ITERATION_CODE|{name[:2].upper()}_DATA_CELL|COUNT"
        found[name] = rows
    return found


# Without noise -----------------------------------------------------------------------------------------


@needs_shared
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("definition", "us", "pr", "thresholds", "last"),
    [
        pytest.param("zcdp", True, False, PEERS, "t3/T03004", marks=pytest.mark.long),
        pytest.param("puredp", True, False, PEERS, "t3/T03004", marks=pytest.mark.long),
        pytest.param("zcdp", False, True, PEERS, "t3/T03004", marks=pytest.mark.long),
        pytest.param("puredp", False, True, PEERS, "t3/T03004", marks=pytest.mark.long),
        ("zcdp", True, True, {}, "t3/T03001"),
    ],
)
def test_the_toy_inputs(
    tmp_path: Path, definition: str, us: bool, pr: bool, thresholds: dict[str, Any], last: str
) -> None:
    folders = toy(tmp_path, definition, run_us=us, run_pr=pr, **thresholds)
    found = published(tabulate(folders, {"zcdp": "zcdp", "puredp": "pure"}[definition]))
    assert found == household_truth(*folders)
    assert max(name for name, rows in found.items() if rows and name < "t4") == last


@needs_shared
def test_a_household_in_no_block_is_refused(tmp_path: Path) -> None:
    """Production drops the first household of its toy file in silence: no block of GRF-C.txt is its."""
    params, data = toy(tmp_path, "zcdp")
    (data / HOUSEHOLDS).write_text((PRODUCTION / "toy" / HOUSEHOLDS).read_text())
    with pytest.raises(SpecError) as caught:
        inputs_of((params, data))
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.message) == (HOUSEHOLDS, 2, "GRF-C.txt has no such block")


@needs_shared
@pytest.mark.usefixtures("no_noise")
def test_the_rows_that_the_production_code_expects(tmp_path: Path) -> None:
    """One household of each type; T1 lists two groups of one tribal area (test_correctness.py of SafeTab-H 3.0.0)."""
    steps = {key: [1, 2, 3] for key in PEERS["thresholds_h_t3"]}
    fours = {key: [1] for key in PEERS["thresholds_h_t4"]}
    params, data = toy(tmp_path, "zcdp", thresholds_h_t3=steps, thresholds_h_t4=fours, state_filter_us=["01"])
    own = "01|001|000001|0001|01|1001|Null|Null|Null|Null|Null|Null|Null|1000"
    rows = [f"{own}|{kind}|{ten}" for kind, ten in zip("12345", "12344", strict=True)]
    (data / HOUSEHOLDS).write_text("\n".join([HEADER, *rows, ""]))
    alabama = [line for line in (data / GRF).read_text().splitlines() if line.startswith(("01", "TAB"))]
    (data / GRF).write_text("\n".join([*alabama, ""]))
    (data / TOTALS).write_text("\n".join([TOTALS_HEADER, "0001|AIANNH|0002|4", "0001|AIANNH|0113|4", ""]))
    found = published(tabulate((params, data)))
    for code in ("0002", "0113"):
        cells = [line.split("|")[3:] for line in found["t3/T03004"] if f"|{code}|" in line]
        assert cells == [list(pair) for pair in zip("012345678", "531211211", strict=True)]
        assert [line for line in found["t4/T04002"] if f"|{code}|" in line] == [
            f"0001|AIANNH|{code}|{cell}|{count}" for cell, count in zip("0123", "5113", strict=True)
        ]
    assert sum(map(len, found.values())) == 2 * (9 + 4)


@pytest.mark.long
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(("us", "pr"), [(True, False), (True, True)])
def test_invented_households(tmp_path: Path, us: bool, pr: bool) -> None:
    without = {"privacy_budget_h_t3_level_1_aiannh": 0.0, "privacy_budget_h_t4_level_2_county": 0}
    folders = households(tmp_path, run_us=us, run_pr=pr, **without)
    found = published(tabulate(folders))
    assert found == household_truth(*folders)
    assert all(found.values())


# With noise --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [pytest.param(True, marks=pytest.mark.long), False])
def test_rows_are_sums_of_what_was_measured(tmp_path: Path, allowed: bool) -> None:
    out = tabulate(households(tmp_path, allow_negative_counts=allowed))
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=True)
    found = published(out)
    parts = {"0": "16", "1": "23", "3": "45", "6": "78"}
    counts = {tuple(row.split("|")[:4]): int(row.split("|")[4]) for name in FILES[1:4] for row in found[name]}
    sums = 0
    for (*place, cell), count in counts.items():
        held = [counts[*place, part] for part in parts.get(cell, "") if (*place, part) in counts]
        if held:
            assert count == sum(held)
            sums += 1
    assert sums
    assert (min(counts.values()) < 0) == allowed
    totals = pq.read_table(out / "tables/totals.parquet").to_pylist()
    listed = {(row["region_type"], row["region"], row["group"], row["ladder"]) for row in totals}
    rows = {(name[:2], *row.split("|")[:3]) for name, rows in found.items() for row in rows}
    assert listed == {(kind, region, code, table) for table, region, kind, code in rows}
    assert {row["table"] for row in totals if row["ladder"] == "t4"} == {"total", "tenure3"}
    page = (out / "README.txt").read_text()
    assert "t3/T03001.csv" in page
    assert "pop-group-totals.txt does not list" in page
    assert {row["file"] for row in json.loads((out / "inputs.json").read_text())} >= {TOTALS, GRF, CONFIG}


@needs_shared
def test_the_budgets_of_2020(tmp_path: Path) -> None:
    """rho 8.895302 and 4.754134; 9 groups of a household; variance 9 / (2 rho): margins of 3, 11 and 50."""
    import shutil

    params, data = tmp_path / "params", tmp_path / "data"
    shutil.copytree(PRODUCTION / "configs", params)
    data.mkdir()
    config = json.loads((params / CONFIG).read_text())
    states = [*config["state_filter_us"], "72"]
    blocks = [f"{st}|001|000100|1000|00100|{'9999' if st == '72' else '0010'}" for st in states]
    header = "TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|PLACEFP|AIANNHCE"
    (data / GRF).write_text("\n".join([header, *blocks, ""]))
    where = {
        "USA": "1",
        "STATE": "01",
        "COUNTY": "01001",
        "TRACT": "01001000100",
        "PLACE": "0100100",
        "AIANNH": "0010",
    }
    where |= {"PR-STATE": "72", "PR-COUNTY": "72001", "PR-TRACT": "72001000100", "PR-PLACE": "7200100"}
    codes = ("1002", "1003")  # of levels 1 and 2
    rows = [f"{region}|{kind}|{code}|5000" for kind, region in where.items() for code in codes]
    (data / TOTALS).write_text("\n".join([TOTALS_HEADER, *rows, ""]))
    plan = inputs_of((params, data), records=False).plan.adaptive
    by_run = {True: Fraction(0), False: Fraction(0)}
    for level in plan.levels:
        by_run[level.regions.name.startswith("PR-")] += level.budget.amount
        assert level.groups_of_a_record == level.proven.value == 9
        assert level.second.parameter == Fraction(9, 2) / level.budget.amount
        expected = {Fraction("1.9208"): 3, Fraction("0.142869"): 11, Fraction("0.006915"): 50}
        assert level.second.margin("0.95") == expected[level.budget.amount]
    assert by_run == {False: Fraction("8.895302"), True: Fraction("4.754134")}
    assert plan.loss.amount == Fraction("8.895302")
    assert plan.unit == "household"


# What is refused ---------------------------------------------------------------------------------------


def told(folder: Path, files: dict[str, str | bytes | None], **changes: Any) -> list[tuple[Any, ...]]:
    try:
        inputs_of(households(folder, files, **changes))
    except SpecError as error:
        return [(p.path, p.line, p.column, p.message) for p in error.problems]
    return []


def record(**changes: str) -> dict[str, str | bytes | None]:
    row = dict(zip(HEADER.split("|"), SOUND.split("|"), strict=True))
    return {HOUSEHOLDS: "\n".join([HEADER, SOUND, "|".join((row | changes).values()), ""])}


@pytest.mark.parametrize(
    ("changes", "column", "words"),
    [
        ({"HHRACE": "64"}, "HHRACE", "must be one of '01' to '63'"),
        ({"HHRACE": "1"}, "HHRACE", "must be one of '01' to '63'"),
        ({"HOUSEHOLD_TYPE": "6"}, "HOUSEHOLD_TYPE", "must be one of '1', '2', '3', '4', '5'"),
        ({"HOUSEHOLD_TYPE": ""}, "HOUSEHOLD_TYPE", "must be one of"),
        ({"TEN": "0"}, "TEN", "must be one of '1', '2', '3', '4'"),
        ({"TEN": "01"}, "TEN", "must be one of"),
        ({"QRACE1": "Null", "QRACE2": "Null"}, "QRACE1", "must be a code of four digits"),
        ({"QRACE4": "1010"}, "QRACE4", "as the column before it is"),
        ({"QSPAN": "9999"}, "QSPAN", "is not a code"),
        ({"TABBLK": "0009"}, "TABBLKST, TABBLKCOU, TABTRACTCE, TABBLK", "no such block"),
    ],
)
def test_each_rule_of_a_record(tmp_path: Path, changes: dict[str, str], column: str, words: str) -> None:
    found = told(tmp_path, record(**changes))
    assert [(path, line, where) for path, line, where, _ in found] == [(HOUSEHOLDS, 3, column)]
    assert words in found[0][3]


def test_counting_finds_the_mistakes_that_checking_finds(tmp_path: Path) -> None:
    params, data = households(tmp_path, record(HHRACE="00", TEN="5"))
    inputs = inputs_of((params, data), records=False)
    with pytest.raises(SpecError) as caught, inputs.records.counts(inputs.plan.adaptive):
        pass
    assert [problem.column for problem in caught.value.problems] == ["HHRACE", "TEN"]


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        ("1|NATION|1001|5", "REGION_TYPE", "must be one of USA, STATE"),
        ("Alabama|STATE|1001|5", "REGION_ID", "must be the digits of a region"),
        ("|STATE|1001|5", "REGION_ID", "must be the digits of a region"),
        ("1|USA|0500|5", "ITERATION_CODE", "is no iteration of level 1 or 2"),
        ("1|USA|7777|5", "ITERATION_CODE", "is no iteration"),
        ("1|USA|1001|5.5", "COUNT", "must be a whole number"),
        ("1|USA|1001|", "COUNT", "must be a whole number"),
        ("1|USA|1001|NaN", "COUNT", "must be a whole number"),
        ("1|USA|1001|1e3", "COUNT", "must be a whole number"),
        ("1|USA|1001|\u0663", "COUNT", "must be a whole number"),
        (f"1|USA|1001|{10**30}", "COUNT", "must be a whole number"),
        ("01|STATE|1001|-6", "ITERATION_CODE", "an earlier line is of the same group in the same region"),
        ("01|STATE|1001", None, "this line has 3 fields"),
    ],
)
def test_each_rule_of_the_totals(tmp_path: Path, row: str, column: str | None, words: str) -> None:
    text = "\n".join([TOTALS_HEADER, "01|STATE|1001|7", row, ""])
    ((path, line, where, message),) = told(tmp_path, {TOTALS: text})
    assert (path, line, where) == (TOTALS, 3, column)
    assert words in message


@pytest.mark.usefixtures("no_noise")
def test_a_region_without_blocks_has_a_warning_and_counts_of_nobody(tmp_path: Path) -> None:
    rows = [f"{i}|AIANNH|1001|5" for i in ("0001", "0077", "0066")]
    folders = households(tmp_path, {TOTALS: "\n".join([TOTALS_HEADER, *rows, ""])})
    (warning,) = [w for w in inputs_of(folders).warnings if w.path == TOTALS]
    assert (warning.line, warning.column) == (3, "REGION_ID")
    assert "GRF-C.txt has no block of AIANNH 0066, 0077: counts of nobody" in warning.message
    found = published(tabulate(folders))
    assert found == household_truth(*folders)
    assert "0077|AIANNH|1001|0|0" in found["t4/T04001"]


def test_totals_of_no_level_with_a_budget(tmp_path: Path) -> None:
    """Rows of the other run, and of groups that a region type does not have, choose nothing."""
    text = "\n".join([TOTALS_HEADER, "72|PR-STATE|1001|7", "01001|COUNTY|1002|7", ""])
    ((path, _, _, message),) = told(tmp_path, {TOTALS: text})
    assert (path, message) == (
        TOTALS,
        "lists no group of a level that has a budget: nothing would be tabulated",
    )


def test_a_level_without_a_listed_group_costs_nothing(tmp_path: Path) -> None:
    listed = "\n".join([TOTALS_HEADER, *(f"01|STATE|{code}|9" for code in LEVEL_1 if code != "1102"), ""])
    plan = inputs_of(households(tmp_path, {TOTALS: listed})).plan.adaptive
    assert [level.name for level in plan.levels] == ["STATE, level 1, t3", "STATE, level 1, t4"]
    assert plan.loss.amount == Fraction("0.25") + Fraction("0.375")


FOURS = household_config()["thresholds_h_t4"]
BAD: dict[str, tuple[dict[str, str | bytes | None], dict[str, Any], str]] = {
    "no totals": ({TOTALS: None}, {}, "there is no such file"),
    "empty totals": ({TOTALS: ""}, {}, "the file is empty"),
    "totals with commas": ({TOTALS: TOTALS_HEADER.replace("|", ",") + "\n"}, {}, "this one has commas"),
    "totals of no row": ({TOTALS: TOTALS_HEADER + "\n"}, {}, "there is no row below the header"),
    "totals in UTF-16": ({TOTALS: TOTALS_HEADER.encode("utf-16")}, {}, "not UTF-8"),
    "a totals file without an end": ({TOTALS: TOTALS_HEADER + "\n1|USA|1001|5"}, {}, "no line end"),
    "no records": ({HOUSEHOLDS: None}, {}, "there is no such file"),
    "persons": ({HOUSEHOLDS: None, PERSONS: persons(3, 1)}, {}, "leave out --households"),
    "a record of another block": (record(TABBLK="9999"), {}, "GRF-C.txt has no such block"),
    "a record of another type": (record(HOUSEHOLD_TYPE="9"), {}, "must be one of"),
    "a budget missing": ({}, {"privacy_budget_h_t4_level_1_usa": None}, "must be a number from 0"),
    "a budget below 0": ({}, {"privacy_budget_h_t3_level_2_place": -1}, "must be a number from 0"),
    "a budget too small": ({}, {"privacy_budget_h_t3_level_2_place": 1e-35}, "is too small"),
    "thresholds of T3": ({}, {"thresholds_h_t4": {**FOURS, "(USA, 1)": [1, 2, 3]}}, "a list of 1 threshold"),
    "no thresholds": ({}, {"thresholds_h_t3": {}}, "missing: give 3 thresholds"),
    "thresholds of T4": ({}, {"thresholds_h_t3": FOURS}, "3 thresholds, one for each table of household type"),
    "an unknown key": ({}, {"privacy_budget_t3_level_1_usa": 1}, "there is no such key"),
    "a map with a fault": ({MEMBERS: "ITERATION_CODE|RACE_ETH_CODE\n9999|1010\n"}, {}, "is not listed"),
    "an empty map": ({RACE: ""}, {}, "the file is empty"),
    "no budget at all": ({}, {k: 0 for k in household_config() if k.startswith("privacy_budget_h_")}, "budget 0"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", BAD)
def test_bad_input_ends_without_traceback_charge_or_folder(tmp_path: Path, mistake: str) -> None:
    files, changes, words = BAD[mistake]
    params, data = households(tmp_path, files, **changes)
    path = tmp_path / "ledger.db"
    Ledger.create(path, 50, "zcdp", unit="household")
    command = ("detailed", "run", params, data, "--households", "--out", tmp_path / "out", "--ledger", path)
    result = _call(*command)
    assert result.exit_code == 1, result.output
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert Ledger.open(path).charges() == []
    assert {each.name for each in tmp_path.iterdir()} == {"params", "data", "ledger.db"}


def test_households_without_the_option(tmp_path: Path) -> None:
    result = _call("detailed", "check", *households(tmp_path))
    assert result.exit_code == 1
    assert "add --households" in result.stderr


def test_a_run_of_persons_is_resumed_beside_a_file_of_households(tmp_path: Path) -> None:
    """What is stored needs no records: those of the other program are no mistake then."""
    params, data = households(tmp_path, {PERSONS: persons(40, 1)})
    path = tmp_path / "ledger.db"
    Ledger.create(path, 50, "zcdp")

    def kill(step: str) -> None:
        if step == "stored":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(check(params, data, ledger=path), tmp_path / "out", say=lambda message: None, at=kill)
    (data / PERSONS).unlink()
    again = check(params, data, ledger=path, records=False)
    run(again, tmp_path / "out", resume=True, say=lambda message: None)
    assert (tmp_path / "out" / "t1" / "t1.csv").exists()
    assert len(Ledger.open(path).charges()) == 1


def test_a_ledger_of_persons_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.create(path, 50, "zcdp")
    params, data = households(tmp_path)
    result = _call(
        "detailed", "run", params, data, "--households", "--out", tmp_path / "out", "--ledger", path
    )
    assert result.exit_code == 3
    assert "household" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.create(path, 50, "zcdp", unit="household")
    params, data = households(tmp_path)
    told = _call("detailed", "check", params, data, "--households")
    assert told.exit_code == 0, told.output
    assert "COUNTY, level 2, t4" in told.stdout
    fits("detailed-check", _json(_call("detailed", "check", params, data, "--households", "--json")))
    done = _call("detailed", "run", params, data, "--households", "--out", tmp_path / "out", "--ledger", path)
    assert done.exit_code == 0, done.output
    assert "household_type5" in done.stdout
    twin = ("--out", tmp_path / "twin", "--ledger", path, "--households", "--json")
    fits("detailed-run", _json(_call("detailed", "run", params, data, *twin)))
    again = _call(
        "detailed", "run", params, data, "--households", "--out", tmp_path / "out", "--ledger", path
    )
    assert again.exit_code == 1
    assert len(Ledger.open(path).charges()) == 2
