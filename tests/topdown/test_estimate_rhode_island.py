"""Real blocks: one seed by all estimators, and what the recorded run of the benchmark says."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from benchmarks import topdown

needs_blocks = pytest.mark.skipif(
    not topdown.DATA.exists(), reason="needs ../shared/data/ri_2010_blocks.csv, the real blocks"
)
NEARER = ("county", "tract", "block_group", "MCD")
AS_NEAR = ("block", "place")


@pytest.mark.long
@needs_blocks
def test_one_seed():
    blocks = topdown.Blocks()
    study = topdown.Study(blocks, "conventional")
    values = topdown.Measured(study.plan, blocks.truth).draw(1)
    for method in topdown.METHODS:
        study.run(method, values)
    rows = {(row[1], row[2], row[4], row[5]): float(row[6]) for row in study.rows()}
    assert blocks.truth.sum() == 1_052_567
    assert {name: number for name, (_, number) in blocks.areas.items()} == {
        "county": 5, "tract": 244, "block_group": 815, "block": 25_181, "MCD": 39, "place": 36
    }  # fmt: skip
    assert rows["error", "tract", "cell", "bluedown"] < rows["error", "tract", "cell", "topdown"]
    assert rows["error", "block", "cell", "bluedown"] < rows["error", "block", "cell", "gls"]
    assert abs(rows["bias", "500 or more", "total", "gls"]) < 8  # 115 blocks, sd 12.5 each: 1.2 for the mean
    assert sum(found[0] for (clock, _), found in study.seconds.items() if clock == "processor") < 60


def recorded() -> list[dict[str, str]]:
    with topdown.RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("measure", ["total", "cell"])
def test_the_recorded_run_meets_its_targets(measure):
    paired = {
        row["area"]: (float(row["mean"]), float(row["standard_error"]))
        for row in recorded()
        if (row["spine"], row["part"], row["measure"]) == ("conventional", "paired", measure)
    }
    for area in NEARER:
        mean, error = paired[area]
        assert mean < -2 * error, area
    for area in AS_NEAR:
        mean, error = paired[area]
        assert mean < 2 * error, area


def test_the_recorded_run_is_unbiased_and_quick():
    rows = recorded()
    gls = [row for row in rows if row["part"] == "bias" and row["method"] == "gls"]
    scores = np.array([float(row["mean"]) / float(row["standard_error"]) for row in gls])
    assert scores.size == 2 * len(topdown.SIZES)
    assert np.abs(scores).max() < 4
    for spine in topdown.SPINES:
        chosen = [r for r in rows if (r["spine"], r["part"], r["measure"]) == (spine, "seconds", "processor")]
        assert sum(float(row["mean"]) for row in chosen) < 60
