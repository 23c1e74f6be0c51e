"""Private-PGM beside least squares over 20 attributes: error of the same tables from the same noisy answers, and time.

python -m benchmarks.pgm      writes benchmarks/results/pgm.csv; some minutes. Needs the extra ``pgm``.

20 attributes of 2 to 10 categories, 4.2e11 cells; people drawn from a Markov chain along the attributes, each
attribute copying the one before with odds 1/2, categories of unequal size. Tables: every attribute and every pair of
neighbours (a tree, so that the model's cliques are the pairs). What ``select`` chooses is measured once a seed; each
estimator sees the same answers.

error     mean over seeds of the mean absolute error of a count, by tables of one and of two attributes
seconds   from noisy answers to all tables, processor time, compilation of the model's programs included
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

import tabulae as tb
from tabulae.linalg import Identity

RESULTS = Path(__file__).parent / "results/pgm.csv"
FIELDS = ("rho", "method", "error_one", "error_two", "negative_percent", "seconds", "people", "runs")
SIZES = (2, 5, 3, 10, 4, 2, 6, 3, 8, 2, 4, 5, 2, 7, 3, 2, 9, 4, 2, 5)
METHODS = ("least-squares", "pgm")
CASES = ((100_000, "1/2"), (100_000, "1/1000"), (2_000, "1/2"), (2_000, "1/100"))
RUNS = 3


def workload() -> tb.Workload:
    """Every attribute, and every pair of neighbours."""
    domain = tb.Domain({f"a{i:02}": size for i, size in enumerate(SIZES)})
    asked = [*((name,) for name in domain.names), *pairwise(domain.names)]
    tables = [tb.Table("*".join(names), {n: Identity(domain[n].size) for n in names}) for names in asked]
    return tb.Workload(domain, tables)


def people(number: int, rng: np.random.Generator) -> np.ndarray:
    """Shape (people, attributes): codes."""
    columns = [np.zeros(number, np.int64)]
    for size in SIZES:
        own = np.floor(size * rng.random(number) ** 2).astype(np.int64)
        copied = rng.random(number) < 0.5
        columns.append(np.where(copied, columns[-1] % size, own))
    return np.stack(columns[1:], axis=1)


def counts(records: np.ndarray, asked: tb.Workload) -> dict[str, np.ndarray]:
    """The true tables."""
    found, places = {}, {name: i for i, name in enumerate(asked.domain.names)}
    for table in asked.tables:
        index, size = np.zeros(len(records), np.int64), 1
        for name in table.name.split("*"):
            index = index * SIZES[places[name]] + records[:, places[name]]
            size *= SIZES[places[name]]
        found[table.name] = np.bincount(index, minlength=size)
    return found


def study(runs: int) -> list[tuple]:
    """Rows for the CSV."""
    asked = workload()
    strategy, rows = tb.select(asked, method="residual"), []
    for number, rho in CASES:
        scores: dict[str, list[tuple[float, ...]]] = {method: [] for method in METHODS}
        for seed in range(runs):
            records = people(number, np.random.default_rng(seed))
            true, held = counts(records, asked), tb.Counts.from_records(asked.domain, records)
            measured = tb.measure(held, strategy, tb.ZCDP(rho))
            for method in METHODS:
                started = time.process_time()
                told = tb.estimate(measured, method=method).answer(asked)
                seconds = time.process_time() - started
                scores[method].append((*_errors(told, true), seconds))
                print(number, rho, seed, method, *(f"{x:.3f}" for x in scores[method][-1]), file=sys.stderr)
        for method, each in scores.items():
            rows.append((rho, method, *np.mean(each, axis=0).round(3).tolist(), number, runs))
    return rows


def _errors(told: dict[str, np.ndarray], true: dict[str, np.ndarray]) -> tuple[float, float, float]:
    by_ways: dict[bool, list[float]] = {False: [], True: []}
    negative = np.concatenate([values < 0 for values in told.values()])
    for name, values in told.items():
        by_ways["*" in name].append(float(np.abs(values - true[name]).mean()))
    return float(np.mean(by_ways[False])), float(np.mean(by_ways[True])), 100 * float(negative.mean())


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    add_force(parser)
    options = parser.parse_args()
    rows = study(options.runs)
    for row in rows:
        print(*row, sep="\t")
    record(RESULTS, FIELDS, rows, size="runs", force=options.force)
    return 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="mbi")
    sys.exit(main())
