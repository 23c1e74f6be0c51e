"""Prefixes of each attribute and pairs that are no products, where the optimum of all cells can be had.

python -m benchmarks.small_pairs      writes benchmarks/results/small_pairs.csv

python -m benchmarks.small_pairs --only "CPS / 5"

RMSE at privacy cost 1, Gaussian noise: ``level`` the optimum of spaces at right angles to the total, in floating point;
``residual`` what the residual planner measures, in whole numbers; ``optimum`` that of all strategies, certified to
1e-5 (up to ``EXPLICIT`` cells) or 1e-3; ``bound`` the largest of those with multipliers that are a product. The rows
"CPS / k" are QuerySmasher's Table 2 with attributes of a k-th of the categories: prefixes of the two numeric ones.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.peers import PAIRS
from benchmarks.recorded import add_force, record
from threadpoolctl import threadpool_limits

import tabulae as tb
from benchmarks import workloads
from tabulae.strategy.bounds.lower import unit_bound
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.hdmm.rows import row_optimum, workload_rows
from tabulae.strategy.methods import SINGLE, Settings
from tabulae.strategy.residual.spaces import Spaces
from tabulae.strategy.strategy import unit_rmse

RESULTS = Path(__file__).parent / "results/small_pairs.csv"
COLUMNS = ("workload", "level", "residual", "optimum", "bound")
SIZES = [(4, 2), (4, 3), (4, 4), (6, 2), (6, 3), (10, 2)]
CPS = {10: (5, 10, 3, 4, 2), 5: (10, 20, 7, 4, 2), 2: (25, 50, 7, 4, 2)}
EXPLICIT = 1500  # cells

CASES: dict[str, Callable[[], tb.Workload]] = {
    f"[{n}]^{k}, {pair}": partial(workloads.up_to_pairs, [tb.Prefix(n)] * k, PAIRS[pair])
    for pair in PAIRS
    for n, k in SIZES
} | {
    f"CPS / {share}, {pair}": partial(workloads.numbered_pairs, shape, 2, PAIRS[pair])
    for pair in PAIRS
    for share, shape in CPS.items()
}


def optimum(merged: tb.Workload) -> float:
    """The least total squared error at unit noise of any strategy."""
    if merged.domain.size <= EXPLICIT:
        return opt0_gaussian(explicit_gram(merged), tolerance=1e-5).loss
    pieces, sizes, _ = workload_rows(merged)
    return row_optimum(pieces, sizes, tolerance=1e-3).loss


def measured(name: str) -> dict[str, str]:
    """One row of the CSV."""
    workload, settings = CASES[name](), Settings("gaussian")
    merged, _ = workload.merge()
    spaces, lower = Spaces(merged, settings), unit_bound(workload, "product")
    assert lower is not None
    values = {
        "level": spaces.value(spaces.uniform())[0] / math.sqrt(workload.queries),
        "residual": unit_rmse(SINGLE["residual"](workload, settings), workload, "add-remove"),
        "optimum": math.sqrt(optimum(merged) / workload.queries),
        "bound": math.sqrt(lower / workload.queries),
    }
    return {"workload": name} | {column: f"{value:.5g}" for column, value in values.items()}


def main() -> None:
    """Measure all, or what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="BEGINNING", default=[""])
    add_force(parser)
    given = parser.parse_args()
    rows = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            rows = {row["workload"]: row for row in csv.DictReader(file)}
    for name in (name for name in CASES if name.startswith(tuple(given.only))):
        started = time.process_time()
        with threadpool_limits(1):
            rows[name] = measured(name)
        print(rows[name], f"{time.process_time() - started:.1f} s", flush=True)
        record(RESULTS, COLUMNS, [rows[n] for n in CASES if n in rows], force=given.force)


if __name__ == "__main__":
    main()
