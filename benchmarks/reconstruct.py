"""Seconds to answer every cell, or every table, from noisy measurements: by route of reconstruction and by domain size.

python -m benchmarks.reconstruct                    writes benchmarks/results/reconstruct.csv and reconstruct.svg
python -m benchmarks.reconstruct --largest 1e6      smaller domains only, and writes nothing

``kron``: one optimised factor for each of the attributes (prefix queries), all cells answered. ``identity``: every
cell measured, all cells answered. ``lattice``, ``iterative`` and ``non-negative`` answer all tables: the two-way
marginals, the same with prefixes on the first pair, and the marginals kept non-negative. ``residual`` answers the
marginals of its planner. The rows name the route that was taken: unions of few rows go through ``rows``. One thread.
Noise is drawn insecurely and fast: its cost is measured elsewhere.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
from benchmarks.recorded import record

import tabulae as tb
from tabulae.linalg import Kron
from tabulae.strategy import Strategy
from tabulae.strategy.block import Block

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("route", "cells", "measured", "answers", "seconds", "cpu_seconds", "peak_gib", "cores", "load")
SIZES = (10**4, 10**5, 10**6, 10**7, 10**8)
BUDGET = tb.ZCDP("1/2")
_LARGEST = {"non-negative": 10**5}


def domain_of(cells: int) -> tb.Domain:
    """Four attributes, or five from 10^8 on, of about equal size."""
    attributes = 5 if cells >= 10**8 else 4
    each = round(cells ** (1 / attributes))
    return tb.Domain({f"a{i}": each for i in range(attributes)})


def everything(domain: tb.Domain) -> tb.Workload:
    """All cells as one table."""
    return tb.Workload(domain, [tb.Table("cells", {a.name: tb.Identity(a.size) for a in domain.attributes})])


def pairs(domain: tb.Domain, *, prefix: bool) -> tb.Workload:
    """All two-way marginals; ``prefix``: the first pair as prefixes."""
    tables = []
    for i, j in combinations(domain.attributes, 2):
        kind = tb.Prefix if prefix and not tables else tb.Identity
        tables.append(tb.Table(f"{i.name}*{j.name}", {a.name: kind(a.size) for a in (i, j)}))
    return tb.Workload(domain, tables)


def factors(domain: tb.Domain) -> Strategy:
    """The best single matrix for prefixes, on every attribute, on a grid of 2^-6 each."""
    size = domain.attributes[0].size
    factor = tb.select(tb.Workload.of(tb.Prefix(size)), method="opt0").blocks[0]
    coarse = tb.Dense(
        np.round(np.asarray(factor.query.dense(), float) * 2.0 ** (6 - factor.exponent)).astype(int)
    )
    attributes = len(domain.attributes)
    return Strategy(domain, (Block("kron", Kron([coarse] * attributes), 6 * attributes),), "gaussian", "kron")


def measured(strategy: Strategy) -> tb.Measurement:
    """Noisy answers about nobody: what least squares costs does not depend on the counts."""
    rng = np.random.default_rng(1)
    laws = strategy.laws(BUDGET)
    values = [
        rng.normal(scale=law.variance_of_law**0.5, size=block.rows).round().astype(np.int64)
        for block, law in zip(strategy.blocks, laws, strict=True)
    ]
    return tb.Measurement(strategy, np.concatenate(values), laws, BUDGET, "add-remove", rehearsal=True)


def _residual(domain: tb.Domain) -> tuple[Strategy, tb.Workload]:
    workload = pairs(domain, prefix=False)
    return tb.select(workload, method="residual"), workload


CASES: dict[str, Callable[[tb.Domain], tuple[Strategy, tb.Workload]]] = {
    "kron": lambda domain: (factors(domain), everything(domain)),
    "identity": lambda domain: (tb.select(everything(domain), method="identity"), everything(domain)),
    "lattice": lambda domain: (
        tb.select(pairs(domain, prefix=False), method="workload"),
        pairs(domain, prefix=False),
    ),
    "residual": _residual,
    "iterative": lambda domain: (
        tb.select(pairs(domain, prefix=True), method="workload"),
        pairs(domain, prefix=True),
    ),
    "non-negative": lambda domain: (
        tb.select(pairs(domain, prefix=False), method="workload"),
        pairs(domain, prefix=False),
    ),
}


def measure(route: str, cells: int) -> dict[str, object]:
    """One row of the table."""
    domain = domain_of(cells)
    strategy, workload = CASES[route](domain)
    measurement = measured(strategy)
    load = os.getloadavg()[0]
    wall, cpu = time.perf_counter(), time.process_time()
    estimate = tb.estimate(measurement, method="non-negative" if route == "non-negative" else "least-squares")
    answers = sum(map(len, estimate.answer(workload).values()))
    seconds, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "route": route if route in ("identity", "non-negative") else estimate.information.route,
        "cells": domain.size,
        "measured": strategy.rows,
        "answers": answers,
        "seconds": f"{seconds:.3f}",
        "cpu_seconds": f"{cpu:.3f}",
        "peak_gib": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f}",
        "cores": len(os.sched_getaffinity(0)),
        "load": f"{load:.1f}",
    }


def draw_figure(rows: list[dict[str, object]], path: Path) -> None:
    """Processor seconds against cells, both logarithmic, one line a route."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tabulae"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    for route in dict.fromkeys(str(row["route"]) for row in rows):
        points = [(float(str(r["cells"])), float(str(r["cpu_seconds"]))) for r in rows if r["route"] == route]
        axes.plot(*zip(*points, strict=True), marker="o", label=route)
    axes.set(
        xscale="log", yscale="log", xlabel="cells of the domain", ylabel="processor seconds to reconstruct"
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8, ncols=2, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Measure, print and write; each case in a process of its own, so that its peak of memory is its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=float, default=SIZES[-1], help="cells of the largest domain")
    parser.add_argument(
        "--only", default="", help="run the routes whose name contains this, and write nothing"
    )
    parser.add_argument("--one", nargs=2, metavar=("ROUTE", "CELLS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writerow(measure(options.one[0], int(options.one[1])))
        return 0
    rows = [
        _alone(route, cells)
        for route in CASES
        if options.only in route
        for cells in SIZES
        if cells <= min(options.largest, _LARGEST.get(route, SIZES[-1]))
    ]
    if not options.only and options.largest == SIZES[-1]:
        record(RESULTS / "reconstruct.csv", COLUMNS, rows)
        draw_figure(rows, RESULTS / "reconstruct.svg")
    return 0


def _alone(route: str, cells: int) -> dict[str, object]:
    command = [sys.executable, __file__, "--one", route, str(cells)]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=one_thread)
    row = dict(zip(COLUMNS, done.stdout.strip().split(","), strict=True))
    print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
