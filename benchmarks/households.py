"""PHSafe's tables by one strategy: a state of a million persons, and what a promise to one person costs.

    python -m benchmarks.households SCRATCH

writes households.csv in benchmarks/results:

``persons`` the standard errors at rho 1/2 of ages by sex (200 cells), of persons by age group and tenure, and of
            households by tenure and whether a child lives there, of at most ten persons each: under add-remove of a
            household, and where one person comes or goes
``run``     seconds and megabytes of `tabulae run examples/phsafe.toml`, all tables of one state of so many invented
            persons

PHSafe's budgets and standard errors are those of production (NMFv8): (2 tau + 2)^2 / 2 rho for a count of persons with
tau = 10, 2 / rho for one of households. They are computed, its program is not run.
"""

from __future__ import annotations

import argparse
import re
import shutil
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.detailed import ROOT, Cost, tabulae
from benchmarks.recorded import record
from pyarrow import parquet

import tabulae as tb
from tabulae.linalg import Dense, Identity
from tabulae.spec import Spec

EXAMPLE = ROOT / "examples/phsafe.toml"
RESULTS = ROOT / "benchmarks/results/households.csv"
COLUMNS = (
    "what",
    "ages",
    "tenures",
    "households",
    "cpu_s",
    "wall_s",
    "peak_mb",
    "command",
)
RHO = {
    "persons": {"race": "0.141622", "other": "0.016371"},
    "units": {"race": "0.001170", "other": "0.000135"},
}
"""Production's rho for a state: by race, and for each of Hispanic or white, and all."""
COMMAND = "python -m benchmarks.households SCRATCH"
TWO_PASSED = 2  # levels of iteration besides race: {Hispanic, white}, which are disjoint, and all


def of_one_state(text: str) -> str:
    """The example without its column of states: states have no household in common, and each has the whole budget."""
    text = text.replace("SELECT state, ", "SELECT ").replace("GROUP BY state, ", "GROUP BY ")
    text = text.replace(' GROUP BY state"""', '"""')
    return "\n".join(line for line in text.split("\n") if not line.startswith("state = "))


def phsafe_error(name: str) -> float:
    """The standard error of a cell of a table in production."""
    units = "denom" in name
    rho = RHO["units" if units else "persons"]["race" if name.endswith("_race") else "other"]
    return (2 if units else 22) / sqrt(2 * float(rho))


def targeted() -> Spec:
    """A state's tables but PH3 and PH6, whose persons are truncated otherwise, with PHSafe's errors as targets."""
    head, *tables = of_one_state(EXAMPLE.read_text(encoding="utf-8")).split("\n[[table]]\n")
    head = head.replace('budget = "1/8"', 'budget = "targets"')
    head = head.replace('select = "residual"', 'select = "auto"\ntime_limit = 100')
    kept = []
    for table in tables:
        found = re.search(r'name = "(\w+)"', table)
        assert found is not None
        if not found[1].startswith(("ph3", "ph6")):
            kept.append(f"{table.rstrip()}\ntarget = {{ rmse = {phsafe_error(found[1]):.6f} }}\n")
    return Spec.from_text("\n[[table]]\n".join([head, *kept]), EXAMPLE.parent)


def phsafe_rho() -> float:
    """What production spends on a state's cells of these tables: PH5 and PH8 have numerators of other tables."""
    persons, units = ({level: float(rho) for level, rho in each.items()} for each in RHO.values())
    persons_by_race = persons["race"] + TWO_PASSED * persons["other"]
    units_by_race = units["race"] + TWO_PASSED * units["other"]
    return 3 * persons_by_race + persons["other"] + 3 * units_by_race


def persons() -> list[dict[str, Any]]:
    """The errors of three tables under promises to a household and to a person."""
    tenure, child = (
        tb.Attribute(name, labels, of_unit=True, from_records=made)
        for name, labels, made in (("tenure", ("own", "rent"), False), ("child", ("no", "yes"), True))
    )
    seats = tb.Attribute.seats("persons", 10)
    domain = tb.Domain({"age": range(100), "sex": 2, "tenure": tenure, "child": child, "persons": seats})
    groups = np.repeat(np.eye(3, dtype=int), (18, 47, 35), axis=1)
    asked = {
        "ages": {"age": Identity(100), "sex": Identity(2)},
        "tenures": {"age": Dense(groups), "tenure": Identity(2)},
        "households": {"tenure": Identity(2), "child": Identity(2)},
    }
    tables = [
        tb.Table(name, factors).counting(domain, of_units=name == "households")
        for name, factors in asked.items()
    ]
    workload, rows = tb.Workload(domain, tables), []
    for neighbours in ("add-remove", "replace", "record-free", "record-derived"):
        strategy = tb.select(workload, neighbours=neighbours, objective="relative", time_limit=60)
        errors = strategy.error(workload, tb.ZCDP("1/2"), neighbours).tables
        found = {name: f"{error:.3g}" for name, error in errors.items()}
        rows.append({"what": f"persons: {neighbours}", "command": COMMAND, **found})
    return rows


def invented(folder: Path, households: int, seed: int = 0) -> int:
    """Households of a state and their persons; returns how many persons."""
    draw = np.random.default_rng(seed)
    size = draw.choice([1, 2, 3, 4, 5, 6, 11], households, p=[0.28, 0.35, 0.15, 0.13, 0.05, 0.035, 0.005])
    unit = np.repeat(np.arange(households), size)
    place = np.arange(unit.size) - np.repeat(np.cumsum(size) - size, size)
    race = draw.choice([1, 2, 3, 4, 5, 6, 20], households, p=[0.6, 0.13, 0.02, 0.06, 0.01, 0.08, 0.1])
    head = {
        "RTYPE": np.full(households, "2"),
        "MAFID": np.arange(households) + 100_000_001,
        "STATE": np.full(households, "44"), "HHSPAN": draw.choice([1, 2], households, p=[0.82, 0.18]),
        "HHRACE": np.char.zfill(race.astype(str), 2),
        "TEN": draw.choice([1, 2, 3, 4], households, p=[0.4, 0.25, 0.33, 0.02]),
        "HHT": np.where(size == 1, 4, draw.choice([1, 2, 3, 5], households)),
        "HHT2": np.where(size == 1, 9, draw.choice([1, 2, 3, 6, 10], households)),
        "CPLT": draw.integers(1, 6, households),
    }  # fmt: skip
    adult = place < 2
    persons = {
        "RTYPE": np.full(unit.size, "3"), "MAFID": head["MAFID"][unit],
        "QAGE": np.where(adult, draw.integers(18, 100, unit.size), draw.integers(0, 25, unit.size)),
        "CENHISP": head["HHSPAN"][unit].astype(str), "CENRACE": head["HHRACE"][unit],
        "RELSHIP": np.where(place == 0, 20, np.where(adult, 21, draw.choice([25, 25, 25, 30, 34], unit.size))),
    }  # fmt: skip
    for name, columns in (("units", head), ("persons", persons)):
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    return int(unit.size)


def run(scratch: Path, households: int = 405_000) -> dict[str, Any]:
    """The whole command over one state."""
    folder = scratch / "state"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(EXAMPLE.parent / "phsafe", folder / "phsafe")
    persons = invented(folder, households)
    text = of_one_state(EXAMPLE.read_text(encoding="utf-8")).replace('.csv"\nunit =', '.parquet"\nunit =')
    (folder / "phsafe.toml").write_text(text.replace('"units.csv"', '"units.parquet"'), encoding="utf-8")
    tb.Ledger.create(folder / "ledger.db", tb.ZCDP(1), neighbours="add-remove", unit="household")
    cost = Cost.of(tabulae("run", str(folder / "phsafe.toml"), "--out", str(folder / "release")))
    return {
        "what": f"run: {persons:,} persons", "cpu_s": f"{cost.cpu:.1f}",
        "wall_s": f"{cost.wall:.1f}", "peak_mb": f"{cost.peak:.0f}", "command": "tabulae run phsafe.toml",
    }  # fmt: skip


def main() -> None:
    """Run and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    given = parser.parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    done = run(given.scratch)
    record(RESULTS, COLUMNS, [done, *persons()], force=True)


if __name__ == "__main__":
    main()
