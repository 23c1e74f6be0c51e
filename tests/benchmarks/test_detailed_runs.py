"""The benchmarks of detailed groups: the front end takes their populations, costs are measured, figures hold."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import tabulae.interop.safetab
from benchmarks import detailed, detailed_accuracy, detailed_nation
from benchmarks import detailed_population as population
from tabulae.products.groups.levels import AdaptivePlan


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    return detailed_accuracy.configuration(tmp_path_factory.mktemp("maps"))[1]


@pytest.mark.parametrize("geography", ["48 blocks", pytest.param("nation", marks=pytest.mark.long)])
def test_the_front_end_finds_no_mistake(tmp_path, geography):
    made = population.write_population(tmp_path, 2000, geography, maps=None, scale=1e-4)
    inputs = tabulae.interop.safetab.check(made.params, made.data, rule="proven")
    plan = inputs.plan.adaptive
    sizes = {level.regions.name: level.regions.size for level in plan.levels}
    if geography == "48 blocks":
        assert sizes == {"USA": 1, "STATE": 2, "COUNTY": 4, "TRACT": 12, "PLACE": 8, "AIANNH": 6}
    else:
        assert sizes["STATE"] == 51
        assert sizes["PR-STATE"] == 1
        assert sizes["COUNTY"] + sizes["PR-COUNTY"] == made.regions["county"]
    assert plan.levels[0].regions.of_leaf.size == made.blocks


@pytest.mark.skipif(not population.MAPS.exists(), reason="the maps of the 2020 release are not at hand")
def test_with_the_maps_of_2020_the_48_blocks_have_74640_groups(tmp_path):
    made = population.write_population(tmp_path, 500)
    plan = tabulae.interop.safetab.check(made.params, made.data, rule="proven").plan.adaptive
    assert sum(level.regions.size * len(level.groups) for level in plan.levels) == 74_640
    assert {level.groups_of_a_record for level in plan.levels} == {9}


def test_the_cost_of_a_process_is_measured():
    cost = detailed.Cost.of(detailed.python("x = bytearray(200 << 20); print(sum(range(10**6)))"))
    assert cost.peak > 200
    assert cost.cpu > 0
    assert cost.wall > 0
    with pytest.raises(RuntimeError, match="status 3"):
        detailed.Cost.of(detailed.python("raise SystemExit(3)"))


@pytest.mark.long
def test_a_run_of_the_command_line_is_measured(tmp_path):
    made = population.write_population(tmp_path, 300, maps=None)
    line = detailed.timed(tmp_path, made.people, "48 blocks", 0.1, runs=1)
    assert line["blocks"] == 48
    published = (tmp_path / "out/t1/t1.csv").read_bytes().count(b"\n") - 1
    assert line["t1_rows"] == published > 0
    assert float(str(line["after_start_cpu_s"])) > 0


def test_growth_is_fitted_on_the_logarithms():
    people = np.array([1e4, 1e5, 1e6, 1e7])
    assert detailed.exponent(people, 3 * people**0.75) == pytest.approx(0.75)


def test_larger_nations_are_drawn_after_the_others(tmp_path):
    path = tmp_path / "nation.csv"
    assert detailed.larger(path, 1e7, 1.5) == []
    for people in (3_300_000, 33_000_000):
        row = dict.fromkeys(detailed_nation.COLUMNS, "x") | {"people": people, "run_cpu_s": 101.5}
        detailed_nation.record_run(row, path)
    assert detailed.larger(path, 1e7, 1.5) == [(33e6, 100.0)]


def test_a_nation_replaces_the_row_of_its_size(tmp_path):
    path = tmp_path / "nation.csv"
    rows = [dict.fromkeys(detailed_nation.COLUMNS, "x") | {"people": n} for n in (300, 10, 300)]
    rows[2]["blocks"] = "new"
    for row in rows:
        detailed_nation.record_run(row, path)
    with path.open(newline="") as file:
        found = [(row["people"], row["blocks"]) for row in csv.DictReader(file)]
    assert found == [("10", "x"), ("300", "new")]


def test_the_disk_is_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(detailed_nation, "POLL", 0.01)
    with detailed_nation.Disk(tmp_path) as disk:
        (tmp_path / "a").write_bytes(bytes(1000))
    (tmp_path / "a").unlink()
    assert disk.peak == 1000


def test_noise_has_the_deviations_of_the_design(levels):
    """24 or more comparisons at 6 standard errors, of seeded noise: a false alarm in 1e-7."""
    rows = list(detailed_accuracy.noise_rows(levels, runs=20))
    assert {row["case"] for row in rows} == {"stage one", "stage two, total", "stage two, cells", "one count"}
    assert not any(detailed_accuracy.failed(row) for row in rows)


def test_too_narrow_intervals_and_wrong_noise_fail_and_wide_intervals_do_not():
    line = {"part": "coverage", "z": "7.00"}
    assert not detailed_accuracy.failed(line)
    assert detailed_accuracy.failed(line | {"z": "-7.00"})
    assert detailed_accuracy.failed(line | {"part": "noise"})
    assert not detailed_accuracy.failed(line | {"part": "suppressed", "z": ""})


def test_invented_counts_fit_their_plan(levels):
    counts = detailed_accuracy.invented(levels, 1)
    for level, chunk in zip(AdaptivePlan(tuple(levels)).levels, counts.listed, strict=True):
        totals = chunk.totals()
        assert totals.size == len(level.groups)
        assert not totals[level.groups.total_only].any()
        assert (totals > level.thresholds[-1]).any()
        table = level.ladder.rungs[-1]
        places = np.flatnonzero(totals)
        cells = chunk.cells(places, table.of_class, table.cells)
        assert np.array_equal(cells.sum(axis=1), totals[places])


def test_the_recorded_figures_hold():
    with detailed_accuracy.RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["part"] for row in rows} == {"noise", "coverage", "total", "tables", "suppressed"}
    assert not any(detailed_accuracy.failed(dict(row)) for row in rows)
    gains = {row["case"]: row for row in rows if row["part"] == "total" and row["level"] == "COUNTY, level 2"}
    for rung, ratio in detailed_accuracy.RATIOS.items():
        row = gains[f"rung {rung}, above the threshold by +4 sd"]
        assert float(row["found"]) == pytest.approx(ratio, abs=0.02)
        assert float(row["expected"]) == pytest.approx(ratio, abs=0.005)


def test_modules_of_a_run_can_be_imported_beforehand(tmp_path):
    modules = tmp_path / "modules.txt"
    modules.write_text("json no_such_module csv")
    assert detailed.Cost.of(detailed.python(detailed.START.format(str(modules)))).cpu > 0
