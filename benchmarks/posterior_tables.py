"""The posterior of tables without areas: errors, intervals, effective draws, time; beside two sorts of least squares.

python -m benchmarks.posterior_tables [--runs N]     writes benchmarks/results/posterior_tables.csv; 15 s of processor
                                                     time a run and budget
python -m benchmarks.posterior_tables --cut N        puts non-negative least squares of the first N seeds into the rows
                                                     there: minutes of processor time a seed and budget

The UCI Adult release of ``examples/adult.toml`` at three budgets, noise drawn anew for each seed, which both see.
Without the records in ../shared/data/adult.csv there is nothing to run.

error, gls_error    mean absolute error of the published counts, over all rows of a table and all runs
small, gls_small    the same where fewer than 10 people are counted
cut_error, cut_small, cut_runs    errors of non-negative least squares, and of how many runs
covered, length     of 95 % credible intervals, in percent and in people
ci_covered, ci_length   of the intervals of least squares, cut and rounded
effective           how many independent draws the 200 draws are worth, for everybody and the table's cells: the least
processor_s         processor time of the draws and of the table that is published
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
from benchmarks.recorded import add_force, record

import tabulae as tb
from tabulae.estimation.whole_tables import Posterior
from tabulae.measurement import Measurement
from tabulae.privacy import Insecure
from tabulae.products.tables.product import prepare
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[1]
RECORDS = ROOT.parent / "shared/data/adult.csv"
RESULTS = Path(__file__).parent / "results/posterior_tables.csv"
FIELDS = (
    "rho", "table", "rows", "error", "gls_error", "small", "gls_small", "covered", "length", "ci_covered", "ci_length",
    "effective", "processor_s", "runs", "cut_error", "cut_small", "cut_runs",
)  # fmt: skip
BUDGETS = ("1/2", "1/50", "1/1000")
RUNS = 5
LEVEL = 0.95


class Adult:
    """The records of examples/adult.toml, and noisy answers about them."""

    def __init__(self) -> None:
        self._plan = tb.plan(read_spec(ROOT / "examples/adult.toml").with_source(RECORDS))
        self._counts = prepare(self._plan)._counts
        self.workload, domain = self._plan.spec.published, self._plan.spec.domain
        self.truth = {
            table.name: self._counts.answer(table.operator(domain)) for table in self.workload.tables
        }

    def measured(self, budget: str, seed: int) -> Measurement:
        """Answers with noise from a seed."""
        return tb.measure(self._counts, self._plan.strategy, tb.ZCDP(budget), source=Insecure(seed))

    @cache  # noqa: B019 - one object lives as long as the program
    def non_negative(self, budget: str, seed: int) -> tb.Estimate:
        """The estimate without negative counts."""
        return tb.estimate(self.measured(budget, seed), method="non-negative")


def study(adult: Adult, runs: int) -> list[tuple]:
    """Rows for the CSV."""
    found, workload = defaultdict(list), adult.workload
    for budget in BUDGETS:
        for seed in range(runs):
            measured = adult.measured(budget, seed)
            gls, made = tb.estimate(measured), Posterior(measured, workload, seed)
            started = time.process_time()
            _ = made.cells
            spent = time.process_time() - started
            for table in workload.tables:
                true, own, other = (adult.truth[table.name], made.answer_of(table), gls.answer_of(table))
                ends = made.credible_of(table, LEVEL)
                ci = gls.interval_of(table, LEVEL)[0].ends()
                found[budget, table.name, true.size].append(
                    (
                        *(
                            number
                            for pair in zip(_errors(own, true), _errors(other, true), strict=True)
                            for number in pair
                        ),
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
    return [
        (*key, *np.mean(scores, axis=0).round(3).tolist(), runs, "", "", "") for key, scores in found.items()
    ]


def cut(adult: Adult, row: dict[str, str], runs: int) -> dict[str, str]:
    """A row of the CSV with the errors of non-negative least squares."""
    table = next(each for each in adult.workload.tables if each.name == row["table"])
    errors = [
        _errors(adult.non_negative(row["rho"], seed).answer_of(table), adult.truth[table.name])
        for seed in range(runs)
    ]
    told = [f"{number:.3f}" for number in np.mean(errors, axis=0)]
    return {**row, **dict(zip(("cut_error", "cut_small", "cut_runs"), (*told, str(runs)), strict=True))}


def _errors(own: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Mean absolute error, of all counts and of those below 10."""
    error, few = np.abs(own - true), true < 10
    return float(error.mean()), float(error[few].mean()) if few.any() else np.nan


def _judged(ends: tuple[np.ndarray, np.ndarray], true: np.ndarray) -> tuple[float, float]:
    """Coverage in percent, and mean length."""
    low, high = ends
    return 100 * float(((low <= true) & (true <= high)).mean()), float((high - low).mean())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--cut", type=int, default=0)
    add_force(parser)
    asked = parser.parse_args()
    if not RECORDS.exists():
        sys.exit(f"there are no records in {RECORDS}")
    adult = Adult()
    if asked.cut:
        with RESULTS.open(newline="") as file:
            rows = [cut(adult, row, asked.cut) for row in csv.DictReader(file)]
    else:
        rows = study(adult, asked.runs)
    record(RESULTS, FIELDS, rows, size="runs", force=asked.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
