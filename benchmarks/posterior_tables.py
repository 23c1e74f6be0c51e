"""The posterior of tables without areas: errors, intervals, effective draws and time, beside least squares.

python -m benchmarks.posterior_tables [--runs N]     writes benchmarks/results/posterior_tables.csv; 15 s of processor
                                                     time a run and budget

The UCI Adult release of ``examples/adult.toml`` at three budgets, noise drawn anew for each seed, which both see.
Without the records in ../shared/data/adult.csv there is nothing to run.

error, gls_error    mean absolute error of the published counts, over all rows of a table and all runs
small, gls_small    the same where fewer than 10 people are counted
covered, length     of 95 % credible intervals, in percent and in people
ci_covered, ci_length   of the intervals of least squares, cut and rounded
effective           how many independent draws the 200 draws are worth, for everybody and the table's cells: the least
processor_s         processor time of the draws and of the table that is published
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

import tabulae as tb
from tabulae.estimation.whole_tables import Posterior
from tabulae.privacy import Insecure
from tabulae.products.tables.product import prepare
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[1]
RECORDS = ROOT.parent / "shared/data/adult.csv"
RESULTS = Path(__file__).parent / "results/posterior_tables.csv"
FIELDS = (
    "rho", "table", "rows", "error", "gls_error", "small", "gls_small", "covered", "length", "ci_covered", "ci_length",
    "effective", "processor_s", "runs",
)  # fmt: skip
BUDGETS = ("1/2", "1/50", "1/1000")
RUNS = 5
LEVEL = 0.95


def study(runs: int) -> list[tuple]:
    """Rows for the CSV."""
    found = defaultdict(list)
    plan = tb.plan(read_spec(ROOT / "examples/adult.toml").with_source(RECORDS))
    counts = prepare(plan)._counts
    workload, domain = plan.spec.published, plan.spec.domain
    truth = {table.name: counts.answer(table.operator(domain)) for table in workload.tables}
    for budget in BUDGETS:
        for seed in range(runs):
            measured = tb.measure(counts, plan.strategy, tb.ZCDP(budget), source=Insecure(seed))
            gls, made = tb.estimate(measured), Posterior(measured, workload, seed)
            started = time.process_time()
            _ = made.cells
            spent = time.process_time() - started
            for table in workload.tables:
                true, own, other = (truth[table.name], made.answer_of(table), gls.answer_of(table))
                ends = made.credible_of(table, LEVEL)
                ci = gls.interval_of(table, LEVEL)[0].ends()
                few = true < 10
                found[budget, table.name, true.size].append(
                    (
                        *(np.abs(each - true).mean() for each in (own, other)),
                        *(np.abs(each - true)[few].mean() if few.any() else np.nan for each in (own, other)),
                        *(_judged(ends, true) if ends else (np.nan, np.nan)),
                        *_judged(ci, true),
                        min(made.effective[table.name].values()),
                        spent,
                    )
                )
            print(
                f"rho {budget}, seed {seed}: processor {spent:.0f} s, every {made.draws.every}",
                file=sys.stderr,
            )
    return [(*key, *np.mean(scores, axis=0).round(3).tolist(), runs) for key, scores in found.items()]


def _judged(ends: tuple[np.ndarray, np.ndarray], true: np.ndarray) -> tuple[float, float]:
    """Coverage in percent, and mean length."""
    low, high = ends
    return 100 * float(((low <= true) & (true <= high)).mean()), float((high - low).mean())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    add_force(parser)
    asked = parser.parse_args()
    if not RECORDS.exists():
        sys.exit(f"there are no records in {RECORDS}")
    record(RESULTS, FIELDS, study(asked.runs), size="runs", force=asked.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
