"""HDMM's Figure 3c to 10^9 cells: a product measured and its estimates computed, within one machine's memory.

python -m benchmarks.hdmm_scale                     writes benchmarks/results/hdmm_scale.csv, figure and table
python -m benchmarks.hdmm_scale --only 16 25        attributes of these sizes; the CSV keeps the others
python -m benchmarks.hdmm_scale --draw              the figure and the table of docs/methods/hdmm.md from the CSV

Five attributes of n cells and ten tables, all ranges of every two attributes (the tables of Figure 3a), measured by one
optimised factor an attribute: square for Gaussian noise, p-Identity for Laplace noise. Half a million records. Stages:

* ``select``, ``count`` (the list of cells that are not empty), ``measure`` (answers and secure noise);
* ``tables``: estimates of all tables; ``cells``: of every cell, which is HDMM's reconstruction.

``bound_s`` is the processor time of the products of matrices that a stage cannot do without (each factor once along
the vector as it then is), at the rate that BLAS reaches in this run for a factor of this size and a vector that leaves
the caches; ``measure`` draws noise as well, at the samplers' rate, and ``tables`` reads what was measured once for
each table, at the rate of a sum. ``ratio`` is ``cpu_s`` over it: processor times, since others may use the machine
(``load``). ``peak_gib`` is the most memory
that the process had until the end of the stage; a vector of all cells takes ``vector_gib``. Each size in a process of
its own, on as many threads as there are cores.
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
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.hdmm_figures import ranges

import tabulae as tb
from tabulae.linalg import Kron
from tabulae.products.tables.count import Counts
from tabulae.strategy import Strategy, baseline

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/hdmm_scale.csv"
PAGE = ROOT / "docs/methods/hdmm.md"
PICTURE = ROOT / "docs/methods/hdmm-scale.svg"
SIZES = (16, 25, 40, 63)
NOISES = ("gaussian", "laplace")
PEOPLE = 500_000
COLUMNS: tuple[str, ...] = (
    "noise", "cells", "measured", "stage", "numbers", "seconds", "cpu_s", "bound_s", "ratio", "vector_gib", "peak_gib",
    "cores", "load",
)  # fmt: skip


def everything(domain: tb.Domain) -> tb.Workload:
    """All cells as one table."""
    return tb.Workload(domain, [tb.Table("cells", {a.name: tb.Identity(a.size) for a in domain.attributes})])


def records(n: int) -> np.ndarray:
    """Codes of made-up people, (people, 5): most of them in few categories."""
    rng = np.random.default_rng(1)
    return np.minimum(rng.geometric(4 / n, (PEOPLE, 5)) - 1, n - 1).astype(np.int16)


def flops(shapes: list[tuple[int, int]]) -> float:
    """Operations of a product of dense factors on a vector, those that shrink it most first."""
    size, total = float(np.prod([n for _, n in shapes])), 0.0
    for m, n in sorted(shapes, key=lambda shape: shape[0] / shape[1]):
        total += 2 * size * m
        size *= m / n
    return total


def rate(n: int) -> float:
    """Operations a processor second of ``(n x n)(n x k)`` in BLAS, k so that neither side fits a cache."""
    matrix, x = np.random.default_rng(0).random((n, n)), np.ones((n, 2**23 // n))
    out = np.ones_like(x)
    return 2 * n * x.size / least(lambda: np.matmul(matrix, x, out=out))


def least(run: Callable[[], object]) -> float:
    """Processor seconds of the best of five runs."""
    times = []
    for _ in range(5):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


class Stages:
    """Rows of the table, as they are measured."""

    def __init__(self, noise: str, domain: tb.Domain) -> None:
        self.noise, self.domain, self.measured = noise, domain, 0
        self.rows: list[dict[str, Any]] = []

    def run(self, stage: str, work: Callable[[], Any], numbers: int = 0, bound: float = 0.0) -> Any:
        """Run a stage and write its row."""
        load, wall, cpu = os.getloadavg()[0], time.perf_counter(), time.process_time()
        result = work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self.rows.append(
            {
                "noise": self.noise,
                "cells": self.domain.size,
                "measured": self.measured,
                "stage": stage,
                "numbers": numbers,
                "seconds": f"{wall:.3f}",
                "cpu_s": f"{cpu:.3f}",
                "bound_s": f"{bound:.3f}" if bound else "",
                "ratio": f"{cpu / bound:.2f}" if bound else "",
                "vector_gib": f"{8 * max(self.measured, self.domain.size) / 2**30:.2f}",
                "peak_gib": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f}",
                "cores": len(os.sched_getaffinity(0)),
                "load": f"{load:.1f}",
            }
        )
        return result


def measure(n: int, noise: str) -> list[dict[str, Any]]:
    """All stages over five attributes of n cells."""
    workload = ranges({f"a{i}": n for i in range(5)}, 10)
    domain, stages = workload.domain, Stages(noise, workload.domain)
    speed = rate(n)
    strategy: Strategy = stages.run("select", lambda: baseline(workload, "kron", noise, "add-remove"))  # type: ignore[arg-type]
    stages.measured = strategy.rows
    query = strategy.blocks[0].query
    assert isinstance(query, Kron)
    shapes = [op.shape for op in query.flat()]
    counts: Counts | None = stages.run("count", lambda: Counts.from_records(domain, records(n)), PEOPLE)
    budget = tb.ZCDP(1) if noise == "gaussian" else tb.PureDP(1)
    draws = least(lambda: strategy.laws(budget)[0].sample(2**22)) / 2**22
    measurement = stages.run(
        "measure",
        lambda: tb.measure(counts, strategy, budget),  # type: ignore[arg-type]
        strategy.rows,
        flops(shapes) / speed + strategy.rows * draws,
    )
    counts = None
    estimate = tb.estimate(measurement)
    estimate.information  # noqa: B018  (the factors' inverses: once, and the same at every size)
    asked = [
        [(op.shape[0], rows) for op, (rows, _) in zip(_factors(table, domain), shapes, strict=True)]
        for table in workload.tables
    ]
    numbers = np.ones(2**23)
    read = least(numbers.sum) / numbers.size
    answers = stages.run(
        "tables",
        lambda: estimate.answer(workload),
        workload.queries,
        sum(map(flops, asked)) / speed + len(asked) * strategy.rows * read,
    )
    del answers
    cells = stages.run(
        "cells",
        lambda: estimate.answer(everything(domain))["cells"],
        domain.size,
        flops([(b, a) for a, b in shapes]) / speed,
    )
    total = estimate.answer(tb.Workload(domain, [tb.Table("total", {})]))["total"][0]
    assert abs(cells.sum() - total) < 1e-6 * max(1.0, abs(total)), "the cells do not add up to the total"
    return stages.rows


def _factors(table: tb.Table, domain: tb.Domain) -> list[Any]:
    operator = table.operator(domain)
    assert isinstance(operator, Kron)
    return list(operator.flat())


def alone(n: int, noise: str) -> list[dict[str, Any]]:
    """The same in a process of its own, so that its peak of memory is its own."""
    command = [sys.executable, "-m", "benchmarks.hdmm_scale", "--one", str(n), noise]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    rows: list[dict[str, Any]] = list(csv.DictReader(done.stdout.splitlines()))
    for row in rows:
        print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    return rows


def write(rows: list[dict[str, Any]], noise: str, cells: int) -> None:
    """Put the rows of one size into the CSV, in place of what it held for it."""
    kept: list[dict[str, Any]] = []
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            kept = [r for r in csv.DictReader(file) if (r["noise"], int(r["cells"])) != (noise, cells)]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *rows], key=lambda r: (r["noise"], int(r["cells"]))))


def draw() -> None:
    """CPU seconds and memory against cells, all logarithmic."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "tabulae", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    colours = {stage: f"C{i}" for i, stage in enumerate(("select", "count", "measure", "tables", "cells"))}
    for noise, style in zip(NOISES, ("-", "--"), strict=True):
        for stage, colour in colours.items():
            points = [r for r in rows if r["noise"] == noise and r["stage"] == stage]
            xs = [int(r["cells"]) for r in points]
            label = stage if noise == "gaussian" else None
            time_axes.plot(
                xs, [float(r["cpu_s"]) for r in points], style, color=colour, marker=".", label=label
            )
            if stage == "cells":
                peaks = [float(r["peak_gib"]) for r in points]
                memory_axes.plot(xs, peaks, style, color="C0", marker=".", label=f"peak, {noise} noise")
                vectors = [float(r["vector_gib"]) for r in points]
                memory_axes.plot(xs, vectors, style, color="0.6", label=f"one vector, {noise} noise")
    memory_axes.axhline(24, color="C3", linewidth=0.8, label="24 GB")
    for axes, label in ((time_axes, "CPU seconds"), (memory_axes, "GiB")):
        axes.set(xscale="log", yscale="log", xlabel="cells of the domain", ylabel=label)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=7, frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def write_page() -> None:
    """Put the table into the docs page, between the comments that mark its place."""
    with RESULTS.open(newline="") as file:
        found = {(r["noise"], int(r["cells"]), r["stage"]): r for r in csv.DictReader(file)}
    lines = [
        "| noise | cells | measured | measure, CPU s | tables, CPU s | cells, CPU s | a vector, GiB | peak, GiB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for noise, cells in dict.fromkeys((noise, cells) for noise, cells, _ in found):
        last = found[noise, cells, "cells"]
        times = [found[noise, cells, stage] for stage in ("measure", "tables", "cells")]
        told = " | ".join(f"{float(r['cpu_s']):.3g} ({float(r['ratio']):.1f})" for r in times)
        size = f"{cells:,} | {int(last['measured']):,}"
        lines.append(f"| {noise} | {size} | {told} | {last['vector_gib']} | {last['peak_gib']} |")
    before, rest = PAGE.read_text().split("<!-- scale -->\n")
    _, after = rest.split("<!-- end of scale -->")
    table = "\n".join(lines)
    PAGE.write_text(f"{before}<!-- scale -->\n\n{table}\n\n<!-- end of scale -->{after}")


def main() -> int:
    """Measure, print, write and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=int, nargs="+", choices=SIZES, default=SIZES, help="cells of an attribute"
    )
    parser.add_argument("--draw", action="store_true", help="draw from the CSV; measure nothing")
    parser.add_argument("--one", nargs=2, metavar=("N", "NOISE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(measure(int(options.one[0]), options.one[1]))
        return 0
    for noise in () if options.draw else NOISES:
        for n in options.only:
            write(alone(n, noise), noise, n**5)
    draw()
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
