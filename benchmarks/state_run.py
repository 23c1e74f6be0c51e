"""Stages of one run of examples/redistricting.toml, in a process of its own: the time and memory of each.

python -m benchmarks.state_run SPEC WORK          prints one JSON object a stage

The measurements are charged to the ledger of the spec and stored below WORK; each estimator reads them from there. A
peak is the largest resident set of the process during a stage, with what it kept from earlier ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tabulae.privacy import Ledger
from tabulae.products.areas.count import LeafColumn, open_spine_records
from tabulae.products.areas.estimate import SpineEstimate, estimate_spine
from tabulae.products.areas.measure import measure_spine, refuse_contradictions
from tabulae.products.areas.passes.area_variances import area_covariances
from tabulae.products.areas.spec.section import Geography
from tabulae.products.areas.store import SpineMeasurementWriter, read_spine_measurements
from tabulae.products.product import records_of
from tabulae.sources.coding import ColumnCoding
from tabulae.spec import Spec, read_spec

METHODS = ("gls", "topdown", "bluedown")


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print what is done within, with its seconds and its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    spent = (time.perf_counter() - wall, time.process_time() - cpu)
    found = {"stage": name, "wall_s": round(spent[0], 2), "cpu_s": round(spent[1], 2), "peak_mb": peak_mb()}
    print(json.dumps(found), flush=True)


def peak_mb() -> int:
    """Megabytes: the largest resident set since it was forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(round(int(line.split()[1]) / 1024) for line in lines if line.startswith("VmHWM"))


def run(path: Path, work: Path) -> None:
    """Plan, count, measure, estimate in three ways, and find the errors of all areas."""
    with stage("plan"):
        spec = read_spec(path)
        geography = spec.geography
        assert geography is not None
        plan = geography.plan()
        sizes = [len(plan.pieces), int(plan.offsets[-1])]
    exact = measured(spec, geography, work)
    for method in METHODS:
        with stage(method):
            made = estimate_spine(
                plan,
                read_spine_measurements(work, plan),
                method,
                constraints=geography.constraints,
                exact_values=exact,
            )
        if method == "gls":
            with stage("variances of all areas"):
                variances(geography, made)
    print(json.dumps({"stage": "sizes", "nodes": plan.tree.size, "pieces": sizes[0], "cells": sizes[1]}))


def measured(spec: Spec, geography: Geography, work: Path) -> tuple:
    """Count the records; charge, draw and store the measurements."""
    plan = geography.plan()
    margins = () if geography.constraints is None else geography.constraints.exact
    assert spec.ledger is not None
    with stage("count"):
        counts = open_spine_records(
            records_of(spec),
            {name: ColumnCoding(c.name, c.unknown, c.null) for name, c in spec.columns.items()},
            plan,
            LeafColumn(geography.column, geography.leaf_codes.tolist(), geography.dropped.tolist()),
        )
    with stage("measure"), SpineMeasurementWriter(work, plan, margins) as writer:
        if geography.constraints is not None:
            refuse_contradictions(counts, plan, margins, geography.constraints)
        ledger = Ledger.open(spec.ledger)
        done = measure_spine(counts, plan, margins, ledger=ledger, unit=spec.unit, title=spec.title)
        for piece in done:
            writer(piece)
        writer.finish(done)
    return done.exact


def variances(geography: Geography, made: SpineEstimate) -> None:
    """Covariances of every area of every type."""
    for name in geography.area_types:
        codes, leaf = geography.areas(name)
        for _ in area_covariances(made.covariances, leaf, codes.size):
            pass


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("work", type=Path)
    given = parser.parse_args()
    run(given.spec, given.work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
