"""One-dimensional workloads: HDMM's Tables 4 and 5 recomputed, with the distance to the best proven bound.

python -m benchmarks.opt0             64, 256 and 1024 cells: a minute; writes benchmarks/results/opt0.csv
python -m benchmarks.opt0 --sizes 64 256 1024 4096

RMSE of one query at epsilon = 1 (Laplace noise) and at (1, 1e-6) (Gaussian noise). ``bound`` is proven: for
Gaussian noise the dual of the same convex problem, for Laplace noise that dual at L1 sensitivity, which no
strategy is known to come near. ``paper`` is HDMM's OPT_0.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

from tabulae.strategy.hdmm.opt0 import opt0_gaussian, opt0_laplace

RESULTS = Path(__file__).parent / "results"
SIGMA = 4.224678889326836  # analytic Gaussian mechanism at (1, 1e-6), sensitivity 1
TOLERANCE, SLACK = 1e-4, 1.001
COLUMNS = ("workload", "cells", "noise", "rmse", "paper", "bound", "ratio", "gap", "evaluations", "cpu_s")
PAPER = {
    ("all ranges", "laplace"): {64: 5.55, 256: 8.07, 1024: 11.08, 4096: 14.38},
    ("prefix", "laplace"): {64: 5.32, 256: 7.35, 1024: 9.58, 4096: 12.20},
    ("width 32", "laplace"): {64: 5.88, 256: 6.34, 1024: 6.41},
    ("permuted", "laplace"): {64: 5.55, 256: 8.07, 1024: 11.08, 4096: 14.38},
    ("all ranges", "gaussian"): {64: 9.73, 256: 12.26, 1024: 14.85, 4096: 17.46},
    ("prefix", "gaussian"): {64: 8.87, 256: 10.66, 1024: 12.49, 4096: 14.32},
    ("width 32", "gaussian"): {64: 8.74, 256: 9.93, 1024: 10.08, 4096: 10.11},
    ("permuted", "gaussian"): {64: 9.73, 256: 12.26, 1024: 14.85, 4096: 17.45},
}


def all_ranges(n: int) -> tuple[np.ndarray, int]:
    """W'W and the number of queries of all ranges [i, j]."""
    i = np.arange(n, dtype=float)
    low, high = np.minimum.outer(i, i), np.maximum.outer(i, i)
    return (low + 1) * (n - high), n * (n + 1) // 2


def prefix(n: int) -> tuple[np.ndarray, int]:
    """All ranges that begin at the first cell."""
    i = np.arange(n, dtype=float)
    return n - np.maximum.outer(i, i), n


def width_32(n: int) -> tuple[np.ndarray, int]:
    """All ranges of 32 cells."""
    i = np.arange(n, dtype=float)
    first = np.maximum(np.maximum.outer(i, i) - 31, 0)
    last = np.minimum(np.minimum.outer(i, i), n - 32)
    return np.maximum(last - first + 1, 0), n - 31


def permuted(n: int) -> tuple[np.ndarray, int]:
    """All ranges over shuffled cells."""
    V, queries = all_ranges(n)
    order = np.random.default_rng(0).permutation(n)
    return V[np.ix_(order, order)], queries


WORKLOADS: dict[str, Callable[[int], tuple[np.ndarray, int]]] = {
    "all ranges": all_ranges,
    "prefix": prefix,
    "width 32": width_32,
    "permuted": permuted,
}


def rows(name: str, n: int) -> list[dict[str, object]]:
    """The workload's rows of the table: Gaussian, then Laplace."""
    V, queries = WORKLOADS[name](n)
    start = time.process_time()
    gaussian = opt0_gaussian(V, tolerance=TOLERANCE)
    between = time.process_time()
    laplace = opt0_laplace(V)
    seconds = {"gaussian": between - start, "laplace": time.process_time() - between}
    table = []
    for noise, found, deviation in (("gaussian", gaussian, SIGMA), ("laplace", laplace, math.sqrt(2))):
        rmse, bound = (deviation * math.sqrt(loss / queries) for loss in (found.loss, gaussian.lower))
        table.append(
            {
                "workload": name,
                "cells": n,
                "noise": noise,
                "rmse": f"{rmse:.5f}",
                "paper": PAPER[name, noise].get(n, ""),
                "bound": f"{bound:.5f}",
                "ratio": f"{rmse / bound:.6f}",
                "gap": f"{gaussian.gap:.1e}" if noise == "gaussian" else "",
                "evaluations": found.evaluations,
                "cpu_s": f"{seconds[noise]:.2f}",
            }
        )
    return table


def main() -> int:
    """Measure, write, and fail where the paper's own numbers are missed by more than their rounding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--out", type=Path, default=RESULTS)
    add_force(parser)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    missed, found = 0, []
    print("  ".join(f"{column:>11}" for column in COLUMNS))
    for name in WORKLOADS:
        for n in arguments.sizes:
            for row in rows(name, n):
                found.append(row)
                print("  ".join(f"{row[column]!s:>11}" for column in COLUMNS), flush=True)
                missed += row["paper"] != "" and float(str(row["rmse"])) > SLACK * float(str(row["paper"]))
    record(arguments.out / "opt0.csv", COLUMNS, found, size="cells", force=arguments.force)
    print(f"{missed} above the paper" if missed else "nowhere above the paper")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
