"""What was recorded of the cluster: the integers of one machine, with workers killed in all stages."""

from __future__ import annotations

import csv

from benchmarks.cluster import COLUMNS, MEMORY, RESULTS, WORKERS
from tests.engines.standalone import STAGES


def test_the_recorded_run_is_the_release_of_one_machine() -> None:
    with RESULTS.open(newline="") as file:
        alone, struck = csv.DictReader(file)
    assert tuple(alone) == COLUMNS
    assert (alone["people"], alone["blocks"], alone["files"]) == (
        struck["people"],
        struck["blocks"],
        struck["files"],
    )
    assert int(struck["people"]) >= 33_000_000
    assert struck["on"] == f"{WORKERS} workers of {MEMORY} MB"
    assert int(struck["killed"]) == len(STAGES)
    assert int(struck["files_that_differ"]) == 0
    assert int(struck["executor_mb"]) < MEMORY
