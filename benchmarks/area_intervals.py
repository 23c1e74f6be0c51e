"""Intervals of areas, cut at what a count cannot be: how long, how often they cover, and what lies outside.

python -m benchmarks.area_intervals      writes benchmarks/results/area_intervals.csv; about a minute

Rhode Island 2010 as in ``benchmarks.topdown``: 25,181 real blocks, 16 cells, the budget and shares of the 2020 census,
the conventional spine. Noise is drawn anew for each seed. Intervals are those of gls.

length    mean length of an interval, not cut and cut
covered   percentage of true counts within the cut interval; the same within the one that is not cut
outside   percentage of bluedown's whole numbers outside of the cut interval
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record
from benchmarks.topdown import Blocks, Measured

from tabulae.products.areas.estimate import estimate_spine
from tabulae.products.areas.spec.section import AreaTable
from tabulae.products.areas.tables import AreaPublisher, Areas

RESULTS = Path(__file__).parent / "results/area_intervals.csv"
FIELDS = (
    "area",
    "table",
    "level",
    "areas",
    "length_uncut",
    "length",
    "covered_uncut",
    "covered",
    "outside",
    "runs",
)
LEVELS = (0.9, 0.95)
RUNS = 10


def study(blocks: Blocks, runs: int) -> list[tuple]:
    """Rows for the CSV."""
    plan = blocks.plan("conventional")
    tables = [AreaTable(name, plan.layout.margin(by), tuple(blocks.areas)) for name, by in _TABLES.items()]
    areas = [Areas(kind, np.arange(n).astype(str), leaf) for kind, (leaf, n) in blocks.areas.items()]
    measured, found = Measured(plan, blocks.truth), defaultdict(list)
    for seed in range(runs):
        values = measured.draw(seed)
        gls, whole = (estimate_spine(plan, iter(values), method) for method in ("gls", "bluedown"))
        for level in LEVELS:
            publisher = AreaPublisher(plan.layout, plan.support, "bluedown", whole, gls, None, level)
            factor = gls.half_widths(np.ones(1), level)[0]
            parts = defaultdict(list)
            for name, rows in publisher.rows(tables, areas):
                parts[name, rows["area_type"][0].as_py()].append(rows)
            for (name, kind), pieces in parts.items():
                columns = {c: np.concatenate([p[c].to_numpy() for p in pieces]) for c in _COLUMNS}
                true = _truth(blocks.truth, *blocks.areas[kind], cells=name == "cells")
                found[kind, name, level].append(_score(columns, true, factor))
        print(f"seed {seed}", file=sys.stderr)
    return [
        (*key, blocks.areas[key[0]][1], *np.mean(scores, axis=0).round(3).tolist(), runs)
        for key, scores in found.items()
    ]


_TABLES: dict[str, list[str]] = {"totals": [], "cells": ["race", "votingage"]}
_COLUMNS = ("estimate", "gls_estimate", "std_error", "ci_low", "ci_high")


def _truth(truth: np.ndarray, area: np.ndarray, areas: int, *, cells: bool) -> np.ndarray:
    found = np.zeros((areas, 16), np.int64)
    np.add.at(found, area[area >= 0], truth[area >= 0, 0])
    return found.ravel() if cells else found.sum(axis=1)


def _score(columns: dict[str, np.ndarray], true: np.ndarray, factor: float) -> tuple[float, ...]:
    half, low, high = factor * columns["std_error"], columns["ci_low"], columns["ci_high"]
    uncut = np.abs(columns["gls_estimate"] - true) <= half + 1e-9
    covered = (low <= true) & (true <= high)
    outside = (columns["estimate"] < low) | (columns["estimate"] > high)
    return 2 * half.mean(), (high - low).mean(), *(100 * np.mean(x) for x in (uncut, covered, outside))


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    add_force(parser)
    options = parser.parse_args()
    rows = study(Blocks(), options.runs)
    for row in rows:
        print(*row, sep="\t")
    record(RESULTS, FIELDS, rows, size="runs", force=options.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
