"""The estimates of a release of areas on one machine and on Spark there: equal to the last bit, and what they take.

python -m benchmarks.areas_on_spark SCRATCH RELEASE...      writes benchmarks/results/areas_on_spark.csv

Each RELEASE is of a spec with [geography]; SCRATCH is a folder for what estimates keep, which is removed. Both
estimate from the release's measurements, `gls` and the spec's method. CPU is of this process and, for Spark, of all
that it started; the first is with as many threads as there are cores, Spark with as many processes.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tabulae.products.areas.estimate import SpineEstimate
from tabulae.products.areas.tables import SpineRelease
from tabulae.products.areas.tasks import on_spark
from tabulae.release import Release
from tabulae.sources.engines.spark import spark_session

RESULTS = Path(__file__).parent / "results" / "areas_on_spark.csv"
_NODES = 5_000  # units that are compared at a time


def cpu() -> float:
    """Seconds of CPU of this process, and of its children that have ended."""
    ours, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return ours.ru_utime + ours.ru_stime + children.ru_utime + children.ru_stime


def timed(make: Callable[[], SpineRelease]) -> tuple[SpineRelease, float, float]:
    """What is made, and the seconds and seconds of CPU that it takes."""
    begun, spent = time.perf_counter(), cpu()
    made = make()
    return made, time.perf_counter() - begun, cpu() - spent


def differ(one: SpineEstimate, other: SpineEstimate) -> int:
    """In how many cells of all units two estimates differ at all."""
    every, count = np.arange(one.plan.layout.size), 0
    for first in range(0, one.plan.tree.size, _NODES):
        nodes = np.arange(first, min(first + _NODES, one.plan.tree.size))
        count += int((one.vectors.take_on(nodes, every) != other.vectors.take_on(nodes, every)).sum())
    return count


def measured(release: Path, scratch: Path) -> list[dict[str, object]]:
    """A row of figures for each way."""
    spec = Release.read(release).spec

    def spark() -> SpineRelease:
        with spark_session() as session:
            return SpineRelease.of(release, spec, 0.95, scratch / "spark", run=on_spark(session))

    try:
        here, *one = timed(lambda: SpineRelease.of(release, spec, 0.95, scratch / "here"))
        there, *other = timed(spark)
        unequal = differ(here.unbiased, there.unbiased) + differ(here.published, there.published)
    finally:
        for folder in ("here", "spark"):
            shutil.rmtree(scratch / folder, ignore_errors=True)
    plan = here.plan
    size = {"units": plan.tree.size, "cells": int(plan.offsets[-1]), "cores": os.cpu_count()}
    return [
        {
            **size,
            "method": here.published.method,
            "on": where,
            "wall_s": f"{wall:.1f}",
            "cpu_s": f"{spent:.1f}",
            "load": f"{os.getloadavg()[1]:.1f}",
            "cells_that_differ": unequal,
        }
        for where, (wall, spent) in (("one machine", one), ("spark", other))
    ]


def main(scratch: Path, releases: list[Path]) -> int:
    """Estimate in both ways, compare, and write the figures; 1 where a number differs."""
    found = [row for release in releases for row in measured(release, scratch)]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        file.write("# python -m benchmarks.areas_on_spark SCRATCH RELEASE...\n")
        rows = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        rows.writeheader()
        rows.writerows(found)
    print(RESULTS.read_text(encoding="utf-8"), end="")
    return int(any(row["cells_that_differ"] for row in found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    parser.add_argument("release", type=Path, nargs="+")
    given = parser.parse_args()
    sys.exit(main(given.scratch, given.release))
