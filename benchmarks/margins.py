"""Tables under exact margins: the paper's 14 x 24 x 20 table, and a million cells under all two-way margins.

python -m benchmarks.margins          writes benchmarks/results/margins.csv; half a minute

``campus``: section 5.2 of "Subspace Differential Privacy" (Gao, Gong, Yu 2022): 14 groups, 24 hours and 20 places, the
sums over groups and the sums over hours exact at each place (740 independent sums), Gaussian noise of variance 1 on
every cell, here discrete. ``cube``: 100 x 100 x 100 cells under their three two-way margins, measured, estimated and
checked sum by sum. One thread; noise is seeded, for repetition.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
from benchmarks.recorded import record
from scipy import stats
from threadpoolctl import threadpool_limits

import tabulae as tb
from tabulae.domain import Invariants

RESULTS = Path(__file__).parent / "results/margins.csv"
COLUMNS = ("case", "what", "value", "expected")
CAMPUS = tb.Domain({"group": 14, "hour": 24, "place": 20})
REPETITIONS, PAPER_REPETITIONS, TIMINGS, SIDE = 2000, 50, 50, 100
Row = tuple[str, str, object, object]


def margin(domain: tb.Domain, *names: str) -> tb.Table:
    """The counts by some of the attributes."""
    return tb.Table("*".join(names), {name: tb.Identity(domain[name].size) for name in names})


def campus() -> Invariants:
    """The paper's constraints: at each place the hours' totals over groups, and the groups' totals over hours."""
    return Invariants(CAMPUS, [margin(CAMPUS, "hour", "place"), margin(CAMPUS, "group", "place")])


def cell_variances(exact: Invariants) -> set[Fraction]:
    """The different values on the diagonal of Pi_N, exactly, from its restricted operator in whole numbers."""
    restricted, size = exact.restricted(margin(CAMPUS, *CAMPUS.names)), exact.domain.size
    assert restricted.operator is not None
    found: set[Fraction] = set()
    for start in range(0, size, 512):
        count = min(512, size - start)
        columns = restricted.operator @ np.eye(size, count, -start, dtype=np.int64)
        diagonal = columns[start + np.arange(count), np.arange(count)]
        found |= {Fraction(int(value), restricted.divisor) for value in np.unique(diagonal)}
    return found


def nothing(exact: Invariants) -> list[np.ndarray]:
    """Exact values of zero: with these ``nearest`` is Pi_N itself."""
    return [np.zeros(table.rows(exact.domain), np.int64) for table in exact.tables]


def campus_errors(repetitions: int, seed: int) -> np.ndarray:
    """Errors of the projected Gaussian mechanism with noise of variance 1, (repetitions, cells)."""
    exact = campus()
    noise = tb.noise.discrete_gaussian((repetitions, CAMPUS.size), 1, source=tb.noise.Insecure(seed))
    zeros = nothing(exact)
    return np.array([exact.nearest(e.astype(float), zeros) for e in noise])


def campus_rows() -> Iterator[Row]:
    """Formula, simulation, the paper's summary, and the cost of the projector."""
    exact = campus()
    variances = cell_variances(exact)
    variance = float(max(variances))
    freedom = CAMPUS.size - exact.rank
    yield "campus", "independent invariants", exact.rank, 740
    yield "campus", "variance of a cell, all cells", " ".join(map(str, sorted(variances))), "299/336"
    errors = campus_errors(REPETITIONS, 1)
    by_cell = (errors**2).mean(axis=0)
    ends = variance * stats.chi2.ppf([0.05, 0.95], REPETITIONS) / REPETITIONS
    yield "campus", f"mean variance over {REPETITIONS} runs", f"{by_cell.mean():.4f}", f"{variance:.4f}"
    yield "campus", "standard deviation of a cell", f"{by_cell.mean() ** 0.5:.4f}", f"{variance**0.5:.4f}"
    yield "campus", "5 % and 95 % of cells' variances", _pair(np.quantile(by_cell, [0.05, 0.95])), _pair(ends)
    by_run = (errors[:PAPER_REPETITIONS] ** 2).mean(axis=1)
    median, low, high = np.quantile(by_run, [0.5, 0.05, 0.95])
    law = variance * stats.chi2.ppf([0.05, 0.95], freedom) / freedom
    yield "campus", "variance over a run's cells: median of 50 runs", f"{median:.3f}", f"{variance:.3f}"
    yield "campus", "variance over a run's cells: 5 % and 95 % of 50 runs", _pair((low, high)), _pair(law)
    roots = np.sqrt(by_run)
    yield "campus", "their roots: median", f"{np.median(roots):.3f}", f"{variance**0.5:.3f}"
    yield "campus", "their roots: 5 % and 95 %", _pair(np.quantile(roots, [0.05, 0.95])), _pair(law**0.5)
    seconds, peak = _cost(exact)
    yield "campus", "ms to apply the projector, median", f"{1000 * seconds:.2f}", "below 50"
    yield (
        "campus",
        "MB at the peak of applying it",
        f"{peak / 1e6:.2f}",
        f"formed: {8 * CAMPUS.size**2 / 1e6:.0f}",
    )


def _pair(ends: np.ndarray | tuple[float, float]) -> str:
    return " ".join(f"{end:.3f}" for end in ends)


def _cost(exact: Invariants) -> tuple[float, int]:
    """Median seconds of one projection of one vector, and the largest memory that it takes."""
    cells = np.random.default_rng(1).normal(size=CAMPUS.size)
    zeros, seconds = nothing(exact), []
    for _ in range(TIMINGS):
        start = time.perf_counter()
        exact.nearest(cells, zeros)
        seconds.append(time.perf_counter() - start)
    tracemalloc.start()
    exact.nearest(cells, zeros)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(np.median(seconds)), peak


def cube_rows(side: int = SIDE) -> Iterator[Row]:
    """Measure every cell of a cube, estimate under all two-way margins, and check every margin in whole numbers."""
    domain = tb.Domain({"a": side, "b": side, "c": side})
    margins = [margin(domain, *pair) for pair in combinations(domain.names, 2)]
    cells = tb.Workload(domain, [margin(domain, *domain.names)])
    truth = np.random.default_rng(1).poisson(0.7, domain.size)
    start = time.perf_counter()
    strategy = tb.select(cells, method="identity", invariants=margins)
    measured = tb.measure(truth, strategy, tb.ZCDP("1/2"), source=tb.noise.Insecure(1))
    estimate = tb.estimate(measured)
    answer = estimate.answer(cells)[cells.tables[0].name]
    seconds = time.perf_counter() - start
    wrong = sum(
        int((table.operator(domain) @ answer != table.operator(domain) @ truth).sum()) for table in margins
    )
    checked = time.perf_counter() - start
    expected = (1 - 1 / side) ** 3
    case = f"cube of {domain.size} cells"
    yield case, "independent invariants", Invariants(domain, margins).rank, side**3 - (side - 1) ** 3
    yield case, "margins that differ from the truth, of " + str(3 * side**2), wrong, 0
    yield case, "mean squared error at variance 1", f"{((answer - truth) ** 2).mean():.4f}", f"{expected:.4f}"
    yield case, "seconds to select, measure and estimate", f"{seconds:.2f}", "below 10"
    yield case, "seconds with the check", f"{checked:.2f}", "below 10"


def main() -> int:
    """Measure, print and write."""
    with threadpool_limits(limits=1):
        rows = [*campus_rows(), *cube_rows()]
    for row in rows:
        print(*row, sep=" | ")
    record(RESULTS, COLUMNS, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
