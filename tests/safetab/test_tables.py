"""T1 and T2 without noise are the truth, row for row; with noise they keep their meaning."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.safetab.oracle import truth
from tests.safetab.world import GRF, PERSONS, TOY, World, config, needs_shared, persons, thresholds

from tabulae.interop.safetab import check, run
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, Ledger

T1 = "REGION_ID|REGION_TYPE|ITERATION_CODE|COUNT"
T2 = "REGION_ID|REGION_TYPE|ITERATION_CODE|AGESTART|AGEEND|SEX|COUNT"


@pytest.fixture(autouse=True)
def _conversion_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement at a delta has tests of its own, and takes longer than all the rest."""
    monkeypatch.setattr(
        "tabulae.products.groups.plan.epsilon_of", lambda plan, delta: (plan.loss.epsilon(delta), "quickly")
    )


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw is 0; everything else is as in a release."""
    for law in (DiscreteGaussian, DiscreteLaplace):
        monkeypatch.setattr(law, "sample", lambda self, size, source=None: np.zeros(size, np.int64))


def tabulate(params: Path, data: Path, folder: Path, definition: str = "zcdp") -> Path:
    out, number = folder / "out", len(list(folder.glob("*.db")))
    ledger = Ledger.create(folder / f"{number}.db", 1000, definition)
    inputs = check(params, data, ledger=ledger.path, records=False)
    run(inputs, out, say=lambda message: None)
    return out


def lines(path: Path, header: str) -> list[str]:
    first, *rest = path.read_bytes().decode("ascii").split("\n")
    assert first == header
    assert rest.pop() == ""
    return rest


def is_truth(params: Path, data: Path, folder: Path, definition: str = "zcdp") -> tuple[list[str], list[str]]:
    out = tabulate(params, data, folder, definition)
    t1, t2 = truth(params, data, json.loads((out / "privacy.json").read_text()))
    assert lines(out / "t1/t1.csv", T1) == t1
    assert lines(out / "t2/t2.csv", T2) == t2
    assert not list(folder.glob(".*partial*"))
    return t1, t2


@pytest.mark.long
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_both_runs_are_the_truth(tmp_path: Path, definition: str) -> None:
    world = World(config(run_pr=True, privacy_defn=definition))
    t1, t2 = is_truth(*world.write(tmp_path), tmp_path, {"puredp": "pure"}.get(definition, definition))
    assert {line.split("|")[1] for line in t1} == {
        *("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH"),
        *("PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE"),
    }
    starts = {line.split("|")[3] for line in t2}
    assert {"*", "18", "75", "85", "67"} <= starts


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"run_us": False, "run_pr": True}, marks=pytest.mark.long),
        {
            "max_race_codes": 1,
            "zero_suppression_chance": 0.99,
            "privacy_budget_p_level_2_tract": 0,
            "privacy_budget_p_level_1_usa": 0,
        },
        pytest.param({"max_race_codes": 1}, marks=pytest.mark.long),
        pytest.param({"max_race_codes": 8}, marks=pytest.mark.long),
        pytest.param({"zero_suppression_chance": 0}, marks=pytest.mark.long),
        pytest.param({"zero_suppression_chance": 0.99}, marks=pytest.mark.long),
        pytest.param({"allow_negative_counts": False}, marks=pytest.mark.long),
        pytest.param(
            {"privacy_budget_p_level_2_tract": 0, "privacy_budget_p_level_1_usa": 0}, marks=pytest.mark.long
        ),
        pytest.param(
            {
                "thresholds_p": {
                    f"({r}, {k})": [0, 0, 3]
                    for r in config()["thresholds_p"]
                    for r, k in [r[1:-1].split(", ")]
                }
            },
            marks=pytest.mark.long,
        ),
    ],
    ids=[
        "puerto-rico",
        "one-code-and-suppression-and-skipped",
        "one-code",
        "eight-codes",
        "no-suppression",
        "suppression",
        "clamped",
        "skipped",
        "ties",
    ],
)
def test_each_option_is_the_truth(tmp_path: Path, changes: dict[str, Any]) -> None:
    is_truth(*World(config(**changes)).write(tmp_path), tmp_path)


@needs_shared
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize(
    ("definition", "run_pr"),
    [
        ("zcdp", False),
        pytest.param("puredp", False, marks=pytest.mark.long),
        pytest.param("zcdp", True, marks=pytest.mark.long),
        pytest.param("puredp", True, marks=pytest.mark.long),
    ],
)
def test_the_toy_is_the_truth(tmp_path: Path, definition: str, run_pr: bool) -> None:
    params = tmp_path / "params"
    params.mkdir()
    for path in (TOY / f"input_dir_{definition}").iterdir():
        (params / path.name).write_bytes(path.read_bytes())
    told = json.loads((params / "config.json").read_text())
    small = {key: [1, 2, 4] for key in told["thresholds_p"]}
    (params / "config.json").write_text(json.dumps({**told, "run_pr": run_pr, "thresholds_p": small}))
    t1, t2 = is_truth(params, TOY, tmp_path, "pure" if definition == "puredp" else "zcdp")
    assert any(line.startswith("0122800|PLACE|") for line in t1)
    assert t2


@needs_shared
def test_the_toy_as_it_is(tmp_path: Path) -> None:
    out = tabulate(TOY / "input_dir_zcdp", TOY, tmp_path)
    t1 = [line.split("|") for line in lines(out / "t1/t1.csv", T1)]
    wide = [row for row in t1 if row[1] in ("USA", "STATE")]
    assert len(wide) == 4 * (14 + 19)  # zeros, too
    assert all(int(row[3]) > 0 for row in t1 if row[1] not in ("USA", "STATE"))  # suppressed up to 0
    assert lines(out / "t2/t2.csv", T2) == []


@pytest.mark.long
def test_sums_and_signs_with_noise(tmp_path: Path) -> None:
    few = thresholds(-5, 5, 20)
    for allowed in (True, False):
        folder = tmp_path / str(allowed)
        folder.mkdir()
        world = World(config(allow_negative_counts=allowed, thresholds_p=few))
        out = tabulate(*world.write(folder), folder)
        totals = {
            tuple(row[:3]): int(row[3]) for row in (line.split("|") for line in lines(out / "t1/t1.csv", T1))
        }
        t2 = [line.split("|") for line in lines(out / "t2/t2.csv", T2)]
        sums: dict[tuple[str, ...], int] = {}
        sexes: dict[tuple[str, ...], int] = {}
        for region, kind, code, low, _, sex, count in t2:
            into, key = (sexes, (region, kind, code, sex)) if low == "*" else (sums, (region, kind, code))
            into[key] = into.get(key, 0) + int(count)
        assert sums
        assert {key: totals[key] for key in sums} == sums
        for key in sums:
            assert sexes[(*key, "1")] + sexes[(*key, "2")] == sums[key]
        assert (min(int(row[-1]) for row in t2) < 0) == allowed
        assert (min(totals.values()) < 0) == allowed


def test_estimates_are_of_the_same_groups_and_cells(tmp_path: Path) -> None:
    few = thresholds(-5, 5, 20)
    world = World(config(thresholds_p=few, zero_suppression_chance=0.9))
    out = tabulate(*world.write(tmp_path), tmp_path)
    totals = pq.read_table(out / "tables/totals.parquet").to_pylist()
    key = ("region", "region_type", "group")
    t1 = [line.split("|")[:3] for line in lines(out / "t1/t1.csv", T1)]
    assert sorted([row[k] for k in key] for row in totals) == sorted(t1)
    t2 = [line.split("|") for line in lines(out / "t2/t2.csv", T2)]
    summed: dict[tuple[str, ...], float] = {}
    found = []
    for table in ("sex*age4", "sex*age9", "sex*age23"):
        for row in pq.read_table(out / f"tables/{table}.parquet").to_pylist():
            ages = f"{row['age']}-{row['age']}".split("-")
            found.append([*(row[k] for k in key), *ages[: 2 if "-" in row["age"] else 3][:2], row["sex"]])
            summed[tuple(row[k] for k in key)] = summed.get(tuple(row[k] for k in key), 0.0) + row["estimate"]
            assert row["ci_low"] - 1 < max(row["estimate"], 0) < row["ci_high"] + 1
            assert row["ci_low"] >= 0
    assert sorted(found) == sorted(row[:6] for row in t2 if row[3] != "*")
    tabled = {tuple(row[k] for k in key): row["estimate"] for row in totals if row["table"].startswith("sex")}
    assert summed == pytest.approx(tabled)


def test_nobody_at_all_in_a_run(tmp_path: Path) -> None:
    alone = persons(300, seed=5).splitlines(keepends=True)
    world = World(
        config(run_us=False, run_pr=True), files={PERSONS: "".join(r for r in alone if "|72|" not in r)}
    )
    out = tabulate(*world.write(tmp_path), tmp_path)
    kinds = {line.split("|")[1] for line in lines(out / "t1/t1.csv", T1)}
    assert "PR-STATE" in kinds
    assert not {"USA", "STATE"} & kinds


def test_leaves_of_another_run_cost_nothing(tmp_path: Path) -> None:
    both = World(config(run_pr=True))
    out = tabulate(*both.write(tmp_path), tmp_path)
    told = json.loads((out / "privacy.json").read_text())
    budgets: dict[bool, Fraction] = {True: Fraction(0), False: Fraction(0)}
    for level in told["levels"]:
        budgets[level["region_type"].startswith("PR-")] += Fraction(level["budget"])
    assert Fraction(told["loss"]["rho"]) == max(budgets.values()) < sum(budgets.values())
    assert GRF in {row["file"] for row in json.loads((out / "inputs.json").read_text())}
    assert PERSONS not in {row["file"] for row in json.loads((out / "inputs.json").read_text())}
