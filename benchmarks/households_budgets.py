"""The budget that meets PHSafe's errors by one strategy, under each promise to a household or to a person.

    python -m benchmarks.households_budgets

writes households_budgets.csv in benchmarks/results, a row a promise:

``phsafe``    the rho that production spends on a state's cells of PH1, PH2, PH4, PH5, PH7 and PH8
``ours``      the rho at which one strategy has at most PHSafe's standard error, in the mean square of each table
``proven``    below this no strategy has them; empty where no bound is known
``of_theirs`` standard errors at equal rho, as a share of PHSafe's
``worst_cell`` the same of the one cell where it is largest
``cpu_s``     seconds of a core for the search

PHSafe's errors and budgets are those of :mod:`benchmarks.households`: computed, its program is not run.
"""

from __future__ import annotations

import argparse
from math import sqrt
from time import process_time
from typing import Any

import numpy as np
from benchmarks.detailed import ROOT
from benchmarks.households import phsafe_error, phsafe_rho, targeted
from benchmarks.recorded import add_force, record

import tabulae as tb

RESULTS = ROOT / "benchmarks/results/households_budgets.csv"
COLUMNS = ("neighbours", "phsafe", "ours", "proven", "of_theirs", "worst_cell", "cpu_s", "command")
COMMAND = "python -m benchmarks.households_budgets"
PROMISES = ("add-remove", "replace", "record-free", "record-derived")
LIMIT, CLOSE = 120, 0.005
"""Seconds of a core that a search may take, and the share by which rho may be above the least when it ends."""


def budget(workload: tb.Workload, neighbours: str) -> dict[str, Any]:
    """The row of one promise."""
    targets = tb.Targets(rmse={table.name: f"{phsafe_error(table.name):.6f}" for table in workload.tables})
    started = process_time()
    strategy = tb.select(
        workload,
        method="opt0",
        objective=targets,
        neighbours=neighbours,
        time_limit=LIMIT,
        tolerance=CLOSE,
    )
    seconds = process_time() - started
    errors = strategy.error(workload, tb.ZCDP("1/2"), neighbours).tables
    need = max((errors[name] / float(wanted)) ** 2 for name, wanted in targets.rmse.items()) / 2
    gap = strategy.certificate
    equal = sqrt(0.5 / phsafe_rho())
    return {
        "neighbours": neighbours, "phsafe": f"{phsafe_rho():.4f}", "ours": f"{need:.4f}",
        "proven": "" if gap is None else f"{need / (1 + gap):.4f}", "of_theirs": f"{sqrt(need / phsafe_rho()):.3f}",
        "worst_cell": f"{equal * worst_cell(workload, strategy, neighbours):.3f}",
        "cpu_s": f"{seconds:.0f}", "command": COMMAND,
    }  # fmt: skip


def worst_cell(workload: tb.Workload, strategy: tb.Strategy, neighbours: str) -> float:
    """The largest standard error of a cell at rho 1/2 over PHSafe's of its table; variances ask for no records."""
    nobody = tb.Counts.from_records(workload.domain, np.zeros((0, len(workload.domain.shape)), int))
    invented = tb.noise.Insecure(0)
    measured = tb.measure(nobody, strategy, tb.ZCDP("1/2"), neighbours=neighbours, source=invented)
    variances = tb.estimate(measured).variance(workload)
    return max(sqrt(each.max()) / phsafe_error(name) for name, each in variances.items())


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_force(parser)
    given, workload = parser.parse_args(), targeted().workload
    rows = [budget(workload, neighbours) for neighbours in PROMISES]
    record(RESULTS, COLUMNS, rows, force=given.force)


if __name__ == "__main__":
    main()
