"""The 2020 production run of DHC persons over invented states: time, memory, constraints counted and broken, errors.

    python -m benchmarks.dhc_persons SCRATCH                         every size: about half an hour
    python -m benchmarks.dhc_persons SCRATCH --blocks 1000 --once    one of them

writes two files of benchmarks/results. States have 40 people a block.

dhc_persons.csv         a row a run: a process of ``benchmarks.dhc_persons_run``, and what
                        ``benchmarks.dhc_persons_check`` finds in it by SQL
dhc_persons_errors.csv  by level and query, what the counts of an area are wrong by: the sum of |error| over the
                        query's cells, mean over areas; beside it the same of the noisy answers alone, which may be
                        negative and do not add up, and of least squares, which ``benchmarks.dhc_persons_gls`` adds

Runs with passes have those of production; ``once`` estimates every query in one optimum.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from pathlib import Path

from benchmarks.detailed import Cost
from benchmarks.dhc_persons_check import violations
from benchmarks.recorded import record

RESULTS = Path(__file__).parent / "results"
RUNS, ERRORS = RESULTS / "dhc_persons.csv", RESULTS / "dhc_persons_errors.csv"
COLUMNS = (
    "blocks", "people", "passes", "wall_s", "cpu_s", "peak_mb", "nodes", "answers", "divisions", "unconverged",
    "constraints", "broken", "command",
)  # fmt: skip
ERROR_COLUMNS = ("blocks", "passes", "level", "areas", "people", "query", "cells", "error", "gls", "answers")
CASES = ((1_000, True), (1_000, False), (5_000, True), (5_000, False), (25_000, False))
PEOPLE_A_BLOCK = 40


def sizes_of(blocks: int) -> list[str]:
    """How the state is asked for."""
    sizes = {"people": PEOPLE_A_BLOCK * blocks, "blocks": blocks, "counties": max(1, blocks // 5_000)}
    return [f"--{name}={value}" for name, value in sizes.items()]


def measured(scratch: Path, blocks: int, *, once: bool) -> tuple[dict[str, object], list[dict[str, object]]]:
    """One run: its row, and the rows of its errors."""
    folder, out = scratch / "state", scratch / "out"
    for each in (folder, out):
        shutil.rmtree(each, ignore_errors=True)
    Cost.of([sys.executable, "-m", "benchmarks.dhc_persons_state", str(folder), *sizes_of(blocks)])
    how = ["--once"] if once else []
    cost = Cost.of([sys.executable, "-m", "benchmarks.dhc_persons_run", str(folder), str(out), *how])
    return rows_of(folder, out, cost, once=once)


def rows_of(
    folder: Path, out: Path, cost: Cost, *, once: bool
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """What is recorded of a run."""
    stages = json.loads((out / "stages.json").read_text(encoding="utf-8"))
    found = violations(folder, out)
    passes = "once" if once else "production"
    row = {
        **stages,
        "passes": passes,
        "wall_s": round(cost.wall, 1),
        "cpu_s": round(cost.cpu, 1),
        "peak_mb": round(cost.peak),
        "constraints": sum(constraints for constraints, _ in found.values()),
        "broken": sum(broken for _, broken in found.values()),
        "command": f"python -m benchmarks.dhc_persons_run FOLDER OUT{' --once' if once else ''}",
    }
    with (out / "errors.csv").open(newline="", encoding="utf-8") as file:
        errors = [{"blocks": stages["blocks"], "passes": passes, **each} for each in csv.DictReader(file)]
    return {name: row[name] for name in COLUMNS}, errors


def add(path: Path, columns: tuple[str, ...], rows: list[dict[str, object]]) -> None:
    """Put rows in the place of those of the same size and passes."""
    before: list[dict[str, object]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            before = [dict(row) for row in csv.DictReader(file)]
    new = {(str(row["blocks"]), row["passes"]) for row in rows}
    kept = [row for row in before if (row["blocks"], row["passes"]) not in new]
    both = sorted([*kept, *rows], key=lambda row: (int(str(row["blocks"])), str(row["passes"])))
    record(path, columns, both, force=True)


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--blocks", type=int)
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    for blocks, once in CASES if given.blocks is None else ((given.blocks, given.once),):
        row, errors = measured(given.scratch, blocks, once=once)
        print(row, file=sys.stderr)
        add(RUNS, COLUMNS, [row])
        add(ERRORS, ERROR_COLUMNS, errors)


if __name__ == "__main__":
    main()
