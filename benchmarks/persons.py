"""The 2020 run of DHC persons as a release: time, memory, constraints counted by SQL, and mean errors.

python -m benchmarks.persons SCRATCH [--people N --blocks N --counties N]      adds to benchmarks/results/persons.csv

Runs examples/redistricting.toml and then examples/dhc-persons.toml, which is held to it, each in a process of its own,
and counts what the second breaks. Nothing of the library takes part in the count: DuckDB compares microdata, tables and
counts with the public files, the microdata of the first release, and the structural zeros in benchmarks/dhcp/run.toml.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
from benchmarks.detailed import Cost
from benchmarks.recorded import record

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/persons.csv"
FACTS = ROOT / "benchmarks/dhcp/run.toml"
LEVELS = ("nation", "state", "county", "tract", "block_group", "block", "cousub", "place", "aiannh")
BEFORE, AFTER = "pl94", "persons-release"
HELD = ("hhgq8lev", "votingage", "hispanic", "cenrace")

RULES = {
    "held counts of blocks": f"""
        from (select block, {", ".join(HELD)}, count(*) as n from mine group by all)
        full join (select block, hhgq as hhgq8lev, votingage, hispanic, cenrace, count(*) as m from before group by all)
        using (block, {", ".join(HELD)}) select coalesce(n, 0) = coalesce(m, 0)""",
    "a person in each building of group quarters": """
        from facilities left join (select block, gqlevels, count(*) as n from mine group by all) using (block, gqlevels)
        select coalesce(n, 0) >= cast(at_least as bigint)""",
    "nobody where there are no such quarters": """
        from (select distinct block, gqlevels from mine) left join (select *, true as listed from facilities)
        using (block, gqlevels) select coalesce(listed, false)""",
    "structural zeros": "from mine select not ({zeros})",
    "counts.parquet are the people": """
        from (select block, cell, count(*) as n from mine group by all)
        full join (select geocode as block, cell, count as m from counts) using (block, cell)
        select coalesce(n, 0) = coalesce(m, 0)""",
}
"""Each a statement that says for every constraint whether it holds."""

TABLES = {"sex_by_age": ("sex", "age_38_groups"), "relationship": ("relship_and_eight_level_GQ",),
          "age_of_races": ("age_18_64_116", "hispanic", "race")}  # fmt: skip


def opened(examples: Path) -> duckdb.DuckDBPyConnection:
    """The people of the release as ``mine``, with their classes, and all that they are compared with."""
    con, folder = duckdb.connect(), examples / "persons"
    for view, path in (("before", examples / BEFORE / "microdata"), ("written", examples / AFTER / "microdata"),
                       ("counts", examples / AFTER / "counts"), ("people", folder / "people")):  # fmt: skip
        con.execute(f"create view {view} as from read_parquet('{path}.parquet')")
    files = {"spine": examples / "redistricting/spine.csv", "facilities": folder / "facilities.csv",
             "races": examples / "redistricting/races.csv"}  # fmt: skip
    maps = dict.fromkeys(("hhgq8lev", "gqlevels", "relship_and_eight_level_GQ"), "relgq") | {
        "votingage": "age"
    }
    for name, path in (files | {name: folder / f"{name}.csv" for name in maps}).items():
        con.execute(f"create view {name} as from read_csv('{path}', all_varchar = true)")
    for name in TABLES:
        con.execute(f"create view t_{name} as from read_parquet('{examples / AFTER}/tables/{name}.parquet')")
    ages = {
        name: " ".join(f"when age <= {int(label.split('-')[-1])} then '{label}'" for label in labels)
        for name, labels in (("age_38_groups", _labels(con, "sex_by_age", "age_38_groups")),
                             ("age_18_64_116", _labels(con, "age_of_races", "age_18_64_116")))
    }  # fmt: skip
    for view, records in (("mine", "written"), ("true_people", "people")):
        con.execute(f"""create table {view} as
            from (select block, relgq, sex, cast(age as int) as age, hispanic, cenrace from {records}) p
            {" ".join(f"join {n} on {n}.code = cast({of} as varchar)" for n, of in maps.items())}
            join races on races.code = cenrace join spine using (block)
            select p.*, {", ".join(f"{n}.label as {n}" for n in maps)}, races.label as race,
            {", ".join(LEVELS[:-4])}, cousub, place, aiannh,
            {", ".join(f"case {when} end as {name}" for name, when in ages.items())},
            ((((cast(relgq as bigint) * 2 + if(sex = 'male', 0, 1)) * 116 + age) * 2 + if(hispanic = 'no', 0, 1)) * 63
            + cast(cenrace as bigint) - 1) as cell""")
    return con


def _labels(con: duckdb.DuckDBPyConnection, table: str, column: str) -> list[str]:
    labels = [row[0] for row in con.execute(f"select distinct {column} from t_{table}").fetchall()]
    return sorted(labels, key=lambda label: int(label.split("-")[0]))


def constraints(examples: Path) -> dict[str, tuple[int, int]]:
    """For each kind of constraint: how many there are, and how many the release breaks."""
    con = opened(examples)
    ages = tomllib.loads(FACTS.read_text(encoding="utf-8"))["structural_zeros"]
    zeros = " or ".join(f"relgq = '{kind}' and ({_in(text)})" for kind, text in ages.items())
    found = {rule: _count(con, one.format(zeros=zeros)) for rule, one in RULES.items()}
    for name, by in TABLES.items():
        keys = ", ".join(by)
        named = ", ".join("cenrace as race" if key == "race" else key for key in by)
        published = {row[0] for row in con.execute(f"select distinct area_type from t_{name}").fetchall()}
        for level in published.intersection(LEVELS):
            outside = {"place": "where place != '99999'", "aiannh": "where aiannh != '9999'"}.get(level, "")
            found[f"{name} of {level} counts the people"] = _count(con, f"""
                from (select area, {named}, estimate from t_{name} where area_type = '{level}')
                full join (select {level} as area, {keys}, count(*) as n from mine {outside} group by all)
                using (area, {keys}) select coalesce(estimate, 0) = coalesce(n, 0) and estimate >= 0""")  # fmt: skip
    return found


def _in(text: str) -> str:
    ends = (part.split("-") for part in text.split())
    return " or ".join(f"age between {low} and {(high or [low])[0]}" for low, *high in ends)


def _count(con: duckdb.DuckDBPyConnection, statement: str) -> tuple[int, int]:
    row = con.execute(
        f"select count(*), count(*) filter (where ok is not true) from ({_named(statement)})"
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _named(statement: str) -> str:
    before, _, test = statement.rpartition("select ")
    return f"{before} select ({test}) as ok"


def errors(examples: Path) -> dict[str, float]:
    """By level, what the counts of an area are wrong by: the sum of |error| over sex and age, mean over areas."""
    con, found = opened(examples), {}
    for level in LEVELS[:6]:
        row = con.execute(f"""
            select sum(abs(estimate - coalesce(n, 0))) / count(distinct area)
            from (from t_sex_by_age where area_type = '{level}') left join
            (select {level} as area, sex, age_38_groups, count(*) as n from true_people group by all)
            using (area, sex, age_38_groups)""").fetchone()
        assert row is not None
        found[level] = float(row[0])
    return found


def prepare(examples: Path, people: int, blocks: int, counties: int) -> None:
    """Copy the examples to a folder, with records of a state of this size, and release the first."""
    for name in ("redistricting", "persons"):
        shutil.copytree(ROOT / "examples" / name, examples / name)
    for spec in ("redistricting", "dhc-persons"):
        shutil.copy(ROOT / f"examples/{spec}.toml", examples)
    size = ["--people", str(people), "--blocks", str(blocks), "--counties", str(counties)]
    cli = ["-m", "tabulae.cli"]
    for line in (
        [f"{examples}/redistricting/state.py", f"{examples}/redistricting", *size],
        [f"{examples}/persons/people.py", f"{examples}/persons"],
        [*cli, "ledger", "init", f"{examples}/redistricting.db", "--budget", "8", "--definition", "zcdp",
         "--neighbours", "replace", "--unit", "person"],
        [*cli, "run", f"{examples}/redistricting.toml", "--out", f"{examples}/{BEFORE}"],
    ):  # fmt: skip
        subprocess.run([sys.executable, *line], check=True, capture_output=True)


def main() -> None:
    """Run, count and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    for name, default in (("people", 60_000), ("blocks", 1_200), ("counties", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    examples = given.scratch / "examples"
    prepare(examples, given.people, given.blocks, given.counties)
    line = ["-m", "tabulae.cli", "run", f"{examples}/dhc-persons.toml", "--out", f"{examples}/{AFTER}"]
    cost = Cost.of([sys.executable, *line])
    found = constraints(examples)
    about = json.loads((examples / AFTER / "datapackage.json").read_text(encoding="utf-8"))["tabulae"]
    row = {
        "blocks": about["areas"]["block"],
        "people": about["microdata"],
        "cpu_s": round(cost.cpu, 1),
        "wall_s": round(cost.wall, 1),
        "peak_mb": round(cost.peak),
        "constraints": sum(counted for counted, _ in found.values()),
        "broken": sum(broken for _, broken in found.values()),
        **{f"error_{level}": f"{error:.1f}" for level, error in errors(examples).items()},
    }
    print(row, file=sys.stderr)
    with RESULTS.open(newline="", encoding="utf-8") as file:
        others = [each for each in csv.DictReader(file) if int(each["blocks"]) != row["blocks"]]
    record(RESULTS, tuple(row), sorted([*others, row], key=lambda each: int(each["blocks"])), force=True)


if __name__ == "__main__":
    main()
