"""Prefixes of each attribute and pairs that are no products, where the optimum of all cells can be had.

python -m benchmarks.small_pairs      writes benchmarks/results/small_pairs.csv

RMSE at privacy cost 1, Gaussian noise: ``level`` the optimum of spaces at right angles to the total, in floating point;
``residual`` what the residual planner measures, in whole numbers; ``optimum`` that of all strategies, certified to
1e-5; ``bound`` the product bound.
"""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.peers import PAIRS
from benchmarks.recorded import record
from threadpoolctl import threadpool_limits

import tabulae as tb
from benchmarks import workloads
from tabulae.strategy.bounds.lower import unit_bound
from tabulae.strategy.gram import explicit_gram
from tabulae.strategy.hdmm.opt0 import opt0_gaussian
from tabulae.strategy.methods import SINGLE, Settings
from tabulae.strategy.residual.spaces import Spaces
from tabulae.strategy.strategy import unit_rmse

RESULTS = Path(__file__).parent / "results/small_pairs.csv"
COLUMNS = ("workload", "level", "residual", "optimum", "bound")
SIZES = [(4, 2), (4, 3), (4, 4), (6, 2), (6, 3), (10, 2)]


def measured(n: int, k: int, pair: str) -> dict[str, str]:
    """One row of the CSV."""
    workload, settings = workloads.up_to_pairs([tb.Prefix(n)] * k, PAIRS[pair]), Settings("gaussian")
    merged, _ = workload.merge()
    spaces, lower = Spaces(merged, settings), unit_bound(workload, "product")
    assert lower is not None
    values = {
        "level": spaces.value(spaces.uniform())[0] / math.sqrt(workload.queries),
        "residual": unit_rmse(SINGLE["residual"](workload, settings), workload, "add-remove"),
        "optimum": math.sqrt(opt0_gaussian(explicit_gram(merged), tolerance=1e-5).loss / workload.queries),
        "bound": math.sqrt(lower / workload.queries),
    }
    return {"workload": f"[{n}]^{k}, {pair}"} | {name: f"{value:.5g}" for name, value in values.items()}


def main() -> None:
    """Measure all."""
    with threadpool_limits(1):
        record(RESULTS, COLUMNS, [measured(n, k, pair) for pair in PAIRS for n, k in SIZES])


if __name__ == "__main__":
    main()
