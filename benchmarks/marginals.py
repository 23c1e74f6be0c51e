"""OPT_M under Laplace noise: how far one descent depends on its start, and what the search over sets makes of it.

python -m benchmarks.marginals        writes benchmarks/results/marginals.csv; a few minutes

RMSE of one query at epsilon = 1. ``descent`` is descent alone from random weights of all sets, as published;
``search`` the method itself, for several seeds; ``gaussian`` is the optimum under Gaussian noise at (1, 1e-6), with the
proven least of all marginal strategies in ``least``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.recorded import record
from threadpoolctl import threadpool_limits

import tabulae as tb
from benchmarks import workloads
from tabulae.strategy.hdmm.marginal_moves import MarginalProblem
from tabulae.strategy.hdmm.marginals import (
    active_attributes,
    opt_marginals_gaussian,
    opt_marginals_laplace,
    workload_components,
)

RESULTS = Path(__file__).parent / "results/marginals.csv"
COLUMNS = ("workload", "how", "runs", "best", "median", "worst", "least", "cpu_s")
WORKLOADS = {
    "Example 15": workloads.example15,
    "CPS marginals": workloads.cps_marginals,
    "CPS prefix": workloads.cps_prefix,
    "Adult <= 3D": workloads.adult_3d,
    "Adult 2D prefix": workloads.adult_2d_prefix,
    "Loans small": workloads.loans_small,
    "Loans small prefix": workloads.loans_small_prefix,
}
SIGMA, SEEDS, DESCENTS = 4.224678889326836, 5, 10


def rows(name: str, workload: tb.Workload) -> Iterator[dict[str, object]]:
    """One row each for descent, search and the Gaussian optimum."""
    merged, _ = workload.merge()
    sizes, components, asked = workload_components(merged, active_attributes(merged))
    problem = MarginalProblem(sizes, components)

    def descent(seed: int) -> float:
        start = np.random.default_rng(seed).random(components.size)
        return problem.loss(problem.descend(start, 1), 1) * problem.scale

    def search(seed: int) -> float:
        return opt_marginals_laplace(sizes, components, asked, seed=seed).loss

    for how, run, runs in (("descent", descent, DESCENTS), ("search", search, SEEDS)):
        started = time.process_time()
        rmse = np.sqrt(2 * np.array([run(seed) for seed in range(runs)]) / workload.queries)
        seconds = (time.process_time() - started) / runs
        yield _row(name, how, runs, rmse, None, seconds)
    started = time.process_time()
    optimum = opt_marginals_gaussian(sizes, components, tolerance=1e-5)
    seconds = time.process_time() - started
    assert optimum.least is not None
    reached, least = (SIGMA * math.sqrt(loss / workload.queries) for loss in (optimum.loss, optimum.least))
    yield _row(name, "gaussian", 1, np.array([reached]), least, seconds)


def _row(
    name: str, how: str, runs: int, rmse: np.ndarray, least: float | None, seconds: float
) -> dict[str, object]:
    ends = {"best": rmse.min(), "median": np.median(rmse), "worst": rmse.max()}
    shown = {key: f"{value:.4f}" for key, value in ends.items()}
    bound = "" if least is None else f"{least:.4f}"
    return {"workload": name, "how": how, "runs": runs, **shown, "least": bound, "cpu_s": f"{seconds:.2f}"}


def main() -> None:
    found = []
    with threadpool_limits(limits=1):
        for name, make in WORKLOADS.items():
            for row in rows(name, make()):
                found.append(row)
                print(*row.values(), flush=True)
    record(RESULTS, COLUMNS, found)


if __name__ == "__main__":
    main()
