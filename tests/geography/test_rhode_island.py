"""Real blocks: distances by type of entity and spine, and what the recorded run of the benchmark says."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from benchmarks import spines

needs_blocks = pytest.mark.skipif(
    not spines.path(2020).exists() or not spines.path(2010).exists(),
    reason="needs ../shared/data/ri_2010_blocks.csv and ri_2020_blocks.csv, the real blocks",
)


def mean(spine, entity) -> float:
    return float(spine.osed(entity).mean())


@needs_blocks
def test_distances_of_2020():
    codes, entities = spines.read(2020)
    found = {
        name: {kind: mean(spine, of) for kind, of in entities.items()}
        for name, spine in spines.spines(codes, entities).items()
    }
    assert found["conventional"] == pytest.approx({"MCD": 8.55, "place": 25.889, "AIAN": 25}, abs=1e-3)
    assert found["AIAN"]["AIAN"] == 1
    assert found["optimised"]["MCD"] <= 6.7
    assert found["optimised"]["AIAN"] == 1
    assert found["optimised"]["place"] <= 23.1
    assert found["optimised, places too"]["place"] <= 6.5
    assert found["tract groups"]["MCD"] <= 2.5


@needs_blocks
@pytest.mark.parametrize("year", [pytest.param(2010, marks=pytest.mark.long), 2020])
def test_spines_of_both_years_are_sound(year):
    codes, entities = spines.read(year)
    for name, spine in spines.spines(codes, entities).items():
        if "tract_group" in spine.levels:
            continue
        done = spine.bypass(spines.SHARES, noise="laplace")
        assert done.shares is not None
        assert done.shares.path_sums(done.hierarchy) == {1}, name
        assert np.unique(done.tree.leaf).size == spine.leaves
        siblings = np.bincount(done.tree.parent[1:])
        assert not np.any(siblings == 1), "a unit of one child is collapsed"


def test_timings_run(monkeypatch):
    monkeypatch.setattr(spines, "seconds", lambda call: call() is None)
    rows = [*spines.timings((200, 300, 400, 500), (1, 2, 3, 4)), *spines.one_county(20, 3)]
    assert {row[0] for row in rows} > {"pairs", "seconds_osed", "seconds_optimise", "seconds_bypass"}
    assert all(len(row) == len(spines.FIELDS) for row in rows)


def test_the_recorded_run_meets_its_targets():
    with spines.RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    of = {
        (row["spine"], row["entity"]): float(row["value"])
        for row in rows
        if row["figure"] == "mean_osed" and row["data"] == "Rhode Island 2020"
    }
    assert of["optimised", "MCD"] <= 6.7
    assert of["optimised", "AIAN"] == 1
    assert of["optimised", "place"] <= 23.1
    assert of["optimised, places too", "place"] <= 6.5
    large = [row for row in rows if row["figure"] == "seconds_osed" and row["entities"] == "10000"]
    assert [float(row["value"]) < 10 for row in large] == [True]
