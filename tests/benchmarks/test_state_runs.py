"""The state's benchmarks: stages are measured, growth is drawn, and the recorded figures meet their targets."""

from __future__ import annotations

import csv

import pytest

from benchmarks import state, state_accuracy

STAGES = {"plan", "count", "measure", "gls", "variances of all areas", "topdown", "bluedown"}


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.long
def test_each_stage_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "RUNS", 1)
    found = list(state.stages(tmp_path, 80))
    assert {row["name"] for row in found} == STAGES
    assert all(float(str(row["wall_s"])) >= 0 and float(str(row["peak_mb"])) > 50 for row in found)
    assert {row["blocks"] for row in found} == {80}


@pytest.mark.long
def test_errors_are_found_for_every_area_and_estimator(tmp_path):
    found = list(state_accuracy.study(tmp_path, 120, runs=2))
    parts = {row[0] for row in found}
    assert parts == {"error", "paired", "bias", "coverage"}
    assert {row[4] for row in found if row[0] == "error"} == set(state_accuracy.METHODS)
    totals = {row[4]: float(row[5]) for row in found if row[:2] == ("error", "nation") and row[3] == "total"}
    assert set(totals.values()) == {0.0}  # it is exact
    counted = sum(row[2] for row in found if row[0] == "bias" and row[3] == "total" and row[4] == "gls")
    assert counted == 120


def test_what_one_more_block_costs():
    table = [{"name": "gls", "blocks": str(n), "cpu_s": str(1 + n / 1000)} for n in (4000, 1000, 2000)]
    assert state.per_block(table, "gls") == pytest.approx(1e-3)


@pytest.mark.long
def test_growth_is_drawn(tmp_path):
    table = [
        {"part": "stage", "name": name, "blocks": str(n), "cpu_s": str(0.1 + n / 1e4)}
        for name in state.COLOURS
        for n in (1000, 2000, 4000)
    ]
    state.draw(table, tmp_path / "a.svg")
    state.draw(table, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_recorded_state_meets_its_targets():
    """Measuring and all estimators of a state of 25,000 blocks in less than 60 s and 4 GB, and nothing is broken."""
    found = rows(state.RESULTS)
    stages = [row for row in found if row["part"] == "stage" and row["blocks"] == "25000"]
    assert {row["name"] for row in stages} == STAGES
    assert sum(float(row["wall_s"]) for row in stages) < 60
    assert (
        max(float(row["peak_mb"]) for row in found if row["part"] == "stage" and row["blocks"] == "25000")
        < 4096
    )
    assert {row["name"] for row in found if row["part"] == "run"} >= {
        f"tabulae run, {m}" for m in state.METHODS
    }
    broken = [row for row in found if row["part"] == "broken"]
    assert len(broken) > 40
    assert not any(int(row["count"]) for row in broken)


def test_the_recorded_growth_is_linear():
    """From 25,000 blocks on, one more block costs no more than half again of what it costs on average."""
    found = [row for row in rows(state.RESULTS) if row["part"] == "stage"]
    for name in state.COLOURS:
        most = max((int(row["blocks"]), float(row["cpu_s"])) for row in found if row["name"] == name)
        assert state.per_block(found, name) < 1.5 * most[1] / most[0]


def test_the_recorded_errors_are_ordered():
    """Cells of bluedown are closer than those of topdown above the blocks, by 4 standard errors or more; gls covers."""
    found = rows(state_accuracy.RESULTS)
    paired = {(r["area"], r["measure"]): r for r in found if r["part"] == "paired"}
    for area in ("county", "tract", "drawn group", "cousub", "place"):
        for measure in ("28 cells", "cells with people"):
            row = paired[area, measure]
            assert float(row["mean"]) < -4 * float(row["standard_error"]), (area, measure)
    for row in found:
        if row["part"] == "coverage" and row["measure"] == "95 % interval":
            assert 0.95 - 6 * float(row["standard_error"]) < float(row["mean"]) < 0.997
        if row["part"] == "coverage" and row["measure"] == "error over standard error":
            assert abs(float(row["mean"]) - 1) < 6 * float(row["standard_error"]) + 0.001
        if row["part"] == "bias" and row["method"] == "gls":
            assert abs(float(row["mean"])) <= 6 * float(row["standard_error"]) + 1e-5
