"""A whole release over 10^9 cells: `tabulae run` reads, measures, estimates and publishes ten tables.

python -m benchmarks.hdmm_run SCRATCH        writes benchmarks/results/hdmm_run.csv; half a minute

Five attributes of n values and a table of every two of them, half a million invented records, rho = 1; n = 16, 25, 40
and 63. The strategy is found by "auto", which measures tables and never a vector of all cells. ``found`` is the root
mean square error of all published numbers against counts by DuckDB from the records, ``planned`` the error that
`tabulae plan` tells beforehand. Processor seconds and memory are those of the whole command, in a process of its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from itertools import combinations
from math import sqrt
from pathlib import Path

import duckdb
import numpy as np
from benchmarks.detailed import Cost, tabulae
from benchmarks.recorded import add_force, record

RESULTS = Path(__file__).parent / "results/hdmm_run.csv"
SIZES = (16, 25, 40, 63)
PEOPLE, ATTRIBUTES = 500_000, "abcde"
COLUMNS = ("cells", "people", "tables", "rows", "planned", "found", "cpu_s", "wall_s", "peak_mb", "command")
PAIRS = list(combinations(ATTRIBUTES, 2))


def prepare(folder: Path, size: int) -> Path:
    """Records, a ledger and the spec."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(size)
    values = np.minimum(rng.exponential(size / 3, (PEOPLE, len(ATTRIBUTES))).astype(int), size - 1)
    with (folder / "records.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(ATTRIBUTES)
        writer.writerows(values.tolist())
    lines = ['title = "Ten tables"', "[source]", 'path = "records.csv"', 'unit = "person"', "[attributes]"]
    lines += [f"{name} = {{ range = [0, {size - 1}] }}" for name in ATTRIBUTES]
    lines += [
        "[privacy]",
        'definition = "zcdp"',
        'budget = "1"',
        'neighbours = "add-remove"',
        'ledger = "ledger.db"',
    ]
    lines += [f'[[table]]\nname = "{a}_by_{b}"\nattributes = ["{a}", "{b}"]' for a, b in PAIRS]
    spec = folder / "spec.toml"
    spec.write_text("\n".join([*lines, ""]), encoding="utf-8")
    kind = ("--budget", "1", "--definition", "zcdp", "--neighbours", "add-remove", "--unit", "person")
    subprocess.run(tabulae("ledger", "init", str(folder / "ledger.db"), *kind), check=True, stdout=sys.stderr)
    return spec


def planned(spec: Path) -> float:
    """The error of all numbers together that the plan tells."""
    told = subprocess.run(tabulae("plan", str(spec), "--json"), check=True, capture_output=True, text=True)
    rows = json.loads(told.stdout)["tables"]
    return sqrt(sum(row["queries"] * row["rmse"] ** 2 for row in rows) / sum(row["queries"] for row in rows))


def found(folder: Path) -> tuple[int, float]:
    """How many numbers were published, and their root mean square error."""
    errors = []
    for a, b in PAIRS:
        query = (
            f"SELECT p.estimate - coalesce(t.n, 0) FROM read_parquet('{folder}/release/tables/{a}_by_{b}.parquet') p "
            f"LEFT JOIN (SELECT {a}, {b}, count(*) AS n FROM '{folder}/records.csv' GROUP BY ALL) t "
            f"ON (p.{a}::VARCHAR, p.{b}::VARCHAR) = (t.{a}::VARCHAR, t.{b}::VARCHAR)"
        )
        errors += [row[0] for row in duckdb.sql(query).fetchall()]
    return len(errors), sqrt(sum(error**2 for error in errors) / len(errors))


def main() -> None:
    """Run each size, and record it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    add_force(parser)
    given = parser.parse_args()
    rows = []
    for size in SIZES:
        folder = given.scratch / str(size)
        spec = prepare(folder, size)
        cost = Cost.of(tabulae("run", str(spec), "--out", str(folder / "release")), given.scratch)
        numbers, error = found(folder)
        took = (f"{cost.cpu:.1f}", f"{cost.wall:.1f}", f"{cost.peak:.0f}")
        errors = (f"{planned(spec):.3f}", f"{error:.3f}")
        cells = size ** len(ATTRIBUTES)
        rows.append(
            (cells, PEOPLE, len(PAIRS), numbers, *errors, *took, "python -m benchmarks.hdmm_run SCRATCH")
        )
        sys.stdout.write(f"{rows[-1]}\n")
    record(RESULTS, COLUMNS, rows, force=given.force)


if __name__ == "__main__":
    main()
