"""The production runs of 2020 about housing units: time, memory, constraints counted by SQL, and mean errors.

python -m benchmarks.units SCRATCH [--people N --blocks N --counties N]      writes benchmarks/results/units.csv

Runs each of RUNS, in processes of their own, on the invented state of examples/redistricting and its units
(examples/housing), and counts what their releases break. Nothing of the library takes part in the count: DuckDB
compares the published tables with the records, the public file of areas, and the tables of the releases before. One
more run, of households without their 522 types, has standard errors, and says what two releases cost in place of one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
from benchmarks.recorded import add_force, record

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/units.csv"
RUNS = {"housing-units": "h1", "dhc-units": "units", "dhc-households": "households"}
"""The spec of each run, and the folder of its release: later ones are held to earlier ones."""
SHORT = "dhc-households-without-types"
FOLDERS = RUNS | {SHORT: "short"}
LEVELS = ("nation", "state", "county", "tract", "block_group", "block")
RELEASED = ("estimate", "gls_estimate", "std_error", "ci_low", "ci_high", "obs_status", "area_type", "area")

RULES = {
    "housing-units": {
        "units of a block are the exact number": """
            from (select area as block, sum(estimate) as n from h1_h1 where area_type = 'block' group by all)
            full join (select block, count(*) as m from housing group by all) using (block)
            select coalesce(n, 0) = coalesce(m, 0)""",
    },
    "dhc-units": {
        "housing units of a block are the exact number": """
            from (select area as block, sum(estimate) as n from units_tenvacgq join codes on tenvacgq = label
                where area_type = 'block' and code < '11' group by all)
            full join (select block, count(*) as m from units where tenvacgq < '11' group by all) using (block)
            select coalesce(n, 0) = coalesce(m, 0)""",
        "group quarters of a block and type are the exact number": """
            from (select area as block, code, estimate as n from units_tenvacgq join codes on tenvacgq = label
                where area_type = 'block' and code >= '11')
            full join (select block, tenvacgq as code, count(*) as m from units where tenvacgq >= '11' group by all)
            using (block, code) select coalesce(n, 0) = coalesce(m, 0)""",
        "vacant and occupied units of a block are those of H1": """
            from (select area, if(code < '04', 'Occupied', 'Vacant') as h1, sum(estimate) as n
                from units_tenvacgq join codes on tenvacgq = label
                where area_type = 'block' and code < '11' group by all)
            full join (from h1_h1 where area_type = 'block') using (area, h1)
            select coalesce(n, 0) = coalesce(estimate, 0)""",
    },
}
"""For each run, and each of its constraints, a statement that says for every one of them whether it holds."""


def _rules(spec: str, document: Mapping[str, Any]) -> dict[str, str]:
    """The rules of a run; those of households name the tables of their release."""
    if spec in RULES:
        return RULES[spec]
    own = FOLDERS[spec]
    found = {
        "households of a block and tenure are the units of that tenure": f"""
            from (from {own}_households_by_tenure where area_type = 'block') a
            full join (from units_tenure where area_type = 'block' and tenure not in ('Vacant', 'Group quarters')) b
            on a.area = b.area and hhtenshort_3lev = tenure
            select coalesce(a.estimate, 0) = coalesce(b.estimate, 0)""",
        "households of a block are its occupied units in H1": f"""
            from (select area, sum(estimate) as n from {own}_households_by_tenure
                where area_type = 'block' group by all)
            full join (from h1_h1 where area_type = 'block' and h1 = 'Occupied') using (area)
            select coalesce(n, 0) = coalesce(estimate, 0)""",
    }
    for at, zero in enumerate(document["structural_zero"]):
        found[f"no household is of structural zero {at + 1}"] = f"from written select not ({zero['where']})"
    for table in document["table"]:
        if "areas" not in table:
            keys = ", ".join(table["attributes"])
            found[f"counts of {keys} are those of the microdata"] = f"""
                from (from {own}_{table["name"]} where area_type = 'block') full join
                (select block as area, {keys}, count(*) as n from written group by all) using (area, {keys})
                select coalesce(estimate, 0) = coalesce(n, 0)"""
    return found


def _written(con: duckdb.DuckDBPyConnection, examples: Path, spec: str, document: Mapping[str, Any]) -> None:
    """A view of the microdata, with the labels of what the document recodes from code lists."""
    recodes = {
        name: recode for name, recode in document["recodes"].items()
        if "codes" in document["attributes"][recode["of"]]
    }  # fmt: skip
    joins, columns = "", ["*"]
    for name, recode in recodes.items():
        con.execute(
            f"create view m_{name} as from read_csv('{examples / recode['map']}', all_varchar = true)"
        )
        joins += f" join m_{name} on m_{name}.code = {recode['of']}"
        columns.append(f"m_{name}.label as {name}")
    microdata = examples / FOLDERS[spec] / "microdata.parquet"
    con.execute(f"create view people as from '{microdata}'")
    con.execute(f"create view written as select people.{', '.join(columns)} from people{joins}")


def tables_of(con: duckdb.DuckDBPyConnection, examples: Path, spec: str, release: str) -> list[str]:
    """Views RELEASE_TABLE of the tables of a release; the names of the tables."""
    document = tomllib.loads((examples / f"{spec}.toml").read_text(encoding="utf-8"))
    names = [table["name"] for table in document["table"]]
    for name in names:
        path = examples / release / f"tables/{name}.parquet"
        con.execute(f"create or replace view {release}_{name} as from read_parquet('{path}')")
    return names


def constraints(examples: Path, spec: str) -> dict[str, tuple[int, int]]:
    """For each kind of constraint of a run: how many there are, and how many its release breaks."""
    con = duckdb.connect()
    spine = examples / "redistricting/spine.csv"
    con.execute(f"create view spine as from read_csv('{spine}', all_varchar = true)")
    for name in ("housing", "units", "households"):
        con.execute(f"create view {name} as from read_parquet('{examples}/housing/{name}.parquet')")
    codes = examples / "housing/tenvacgq.csv"
    con.execute(f"create view codes as from read_csv('{codes}', all_varchar = true)")
    document = tomllib.loads((examples / f"{spec}.toml").read_text(encoding="utf-8"))
    if "release" in document:
        _written(con, examples, spec, document)
    names: list[str] = []
    for each in RUNS if spec in RUNS else ("housing-units", "dhc-units", spec):
        names = tables_of(con, examples, each, FOLDERS[each])
        if each == spec:
            break
    found = {rule: _count(con, statement) for rule, statement in _rules(spec, document).items()}
    for name in names:
        found |= {f"{name}: {rule}": _count(con, one) for rule, one in _of_table(con, FOLDERS[spec], name)}
    return found


def _of_table(con: duckdb.DuckDBPyConnection, release: str, name: str) -> list[tuple[str, str]]:
    view = f"{release}_{name}"
    by = [row[0] for row in con.execute(f"describe {view}").fetchall() if row[0] not in RELEASED]
    keys = "".join(f", {key}" for key in by)
    kinds = {row[0] for row in con.execute(f"select distinct area_type from {view}").fetchall()}
    found = [
        ("counts are whole and 0 or more", f"from {view} select estimate >= 0 and estimate = floor(estimate)")
    ]
    for level in LEVELS[:-1] if "block" in kinds else ():
        summed = f"""(select {level} as area{keys}, sum(estimate) as n from {view} join spine on area = block
            where area_type = 'block' group by all)"""
        one = f"from (from {view} where area_type = '{level}') full join {summed} using (area{keys})"
        found.append((f"counts of {level} are sums of those of blocks", f"{one} select estimate = n"))
    return found


def _count(con: duckdb.DuckDBPyConnection, statement: str) -> tuple[int, int]:
    rows = [row[0] for row in con.execute(statement).fetchall()]
    return len(rows), sum(ok is not True for ok in rows)


def errors(examples: Path, spec: str, table: str, truth: str) -> dict[str, float]:
    """Mean absolute error of the counts of a table by level; ``truth`` selects block and the table's columns."""
    con = duckdb.connect()
    tables_of(con, examples, spec, FOLDERS[spec])
    con.execute(
        f"create view spine as from read_csv('{examples}/redistricting/spine.csv', all_varchar = true)"
    )
    view = f"{FOLDERS[spec]}_{table}"
    by = [row[0] for row in con.execute(f"describe {view}").fetchall() if row[0] not in RELEASED]
    keys = "".join(f", {key}" for key in by)
    con.execute(f"create table truth as {truth.format(housing=examples / 'housing')}")
    found = {}
    for level in LEVELS:
        true = (
            f"(select {level} as area{keys}, count(*) as m from truth join spine using (block) group by all)"
        )
        rows = f"(from {view} where area_type = '{level}') left join {true} using (area{keys})"
        row = con.execute(f"select avg(abs(estimate - coalesce(m, 0))) from {rows}").fetchone()
        assert row is not None
        found[level] = float(row[0])
    return found


def joint_errors(examples: Path) -> dict[str, tuple[float, float]]:
    """For each level the root mean squared standard error of tenures by gls: of units alone, and of both releases.

    The measurements of the two are independent, so that the best estimate from both has 1 / (1 / u + 1 / h) of the
    variances of each.
    """
    con = duckdb.connect()
    for spec in ("dhc-units", SHORT):
        tables_of(con, examples, spec, FOLDERS[spec])
    rows = con.execute("""
        select u.area_type, sqrt(avg(u.std_error ** 2)), sqrt(avg(1 / (1 / u.std_error ** 2 + 1 / h.std_error ** 2)))
        from units_tenure u join short_households_by_tenure h
        on u.area_type = h.area_type and u.area = h.area and tenure = hhtenshort_3lev group by all""").fetchall()
    found = {str(level): (float(alone), float(both)) for level, alone, both in rows}
    return {level: found[level] for level in LEVELS}


ELDERLY = ("age_by_elderly", "from read_parquet('{housing}/households.parquet')")
TRUTHS = {
    "housing-units": ("h1", "from read_parquet('{housing}/housing.parquet')"),
    "dhc-units": (
        "tenvacgq",
        """select block, label as tenvacgq from read_parquet('{housing}/units.parquet')
        join read_csv('{housing}/tenvacgq.csv', all_varchar = true) on tenvacgq = code""",
    ),
    "dhc-households": (
        "partner",
        """select block, label as partner from read_parquet('{housing}/households.parquet')
        join read_csv('{housing}/partner.csv', all_varchar = true) on hhtype = code""",
    ),
    SHORT: ELDERLY,
}
"""The table of each run whose errors are shown, and the records that it counts."""


def run(examples: Path, spec: str) -> dict[str, str]:
    """One line of the results."""
    line = [
        "-m",
        "tabulae.cli",
        "run",
        f"{examples}/{spec}.toml",
        "--out",
        f"{examples}/{FOLDERS[spec]}",
        "--json",
    ]
    child = subprocess.Popen([sys.executable, *line], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{spec} ended with {child.returncode}")
    checked = subprocess.run(
        [sys.executable, "-m", "tabulae.cli", "check", f"{examples}/{spec}.toml", "--json"],
        check=True, capture_output=True,
    )  # fmt: skip
    about, found = json.loads(checked.stdout), constraints(examples, spec)
    return {
        "run": spec,
        "cells": f"{about['cells']}",
        "areas": f"{about['leaves']}",
        "cpu_seconds": f"{used.ru_utime + used.ru_stime:.0f}",
        "megabytes": f"{used.ru_maxrss / 1000:.0f}",
        "constraints": f"{sum(counted for counted, _ in found.values())}",
        "violated": f"{sum(broken for _, broken in found.values())}",
        **{
            f"error_{level}": f"{error:.2f}" for level, error in errors(examples, spec, *TRUTHS[spec]).items()
        },
    }


def prepare(examples: Path, people: int, blocks: int, counties: int) -> None:
    """Copy the examples to a folder, with records of a state of this size."""
    for name in ("redistricting", "housing"):
        shutil.copytree(ROOT / "examples" / name, examples / name)
    for spec in RUNS:
        shutil.copy(ROOT / f"examples/{spec}.toml", examples)
    shutil.copy(ROOT / f"benchmarks/{SHORT}.toml", examples)
    size = ["--people", str(people), "--blocks", str(blocks), "--counties", str(counties)]
    for line in (
        [f"{examples}/redistricting/state.py", f"{examples}/redistricting", *size],
        [f"{examples}/housing/units.py", f"{examples}/housing"],
        ["-m", "tabulae.cli", "ledger", "init", f"{examples}/housing.db", "--budget", "15", "--definition", "zcdp",
         "--neighbours", "replace", "--unit", "unit"],
    ):  # fmt: skip
        subprocess.run([sys.executable, *line], check=True, capture_output=True)


def main() -> None:
    """Run, count and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scratch", type=Path)
    for name, default in (("people", 60_000), ("blocks", 1_200), ("counties", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    add_force(parser)
    given = parser.parse_args()
    examples = given.scratch / "examples"
    prepare(examples, given.people, given.blocks, given.counties)
    rows = [run(examples, spec) for spec in FOLDERS]
    for level, (alone, both) in joint_errors(examples).items():
        print(f"{level}: {alone:.2f} {both:.2f}")
    print("age by elderly members:", errors(examples, "dhc-households", *ELDERLY))
    record(RESULTS, list(rows[0]), rows, size="areas", force=given.force)


if __name__ == "__main__":
    main()
