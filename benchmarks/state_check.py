"""Counts what a release of examples/redistricting.toml breaks, by SQL over its files and the public ones alone.

python -m benchmarks.state_check RELEASE SPEC      prints each rule with how often it is broken; fails where one is;
                                                   and by level what totals are wrong by, mean over areas
python -m benchmarks.state_check RELEASE SPEC --csv benchmarks/results/nation_check.csv       writes them, too

RELEASE is a folder with tables and microdata, SPEC the document that it was made from, beside which lie the public
files and the true records. Nothing of the library is used: rows of microdata are counted by DuckDB, and every number
of every published table is compared with them.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from benchmarks.recorded import record

RELEASED = ("estimate", "gls_estimate", "std_error", "ci_low", "ci_high", "obs_status")
ATTRIBUTES = ("hhgq", "votingage", "hispanic", "cenrace", "race", "hhinstlevels")
CLOSE = 1e-6  # people
TABLES = """
create view public as from {spine};
create view facility as select block, hhgq, at_least::bigint as at_least from {facilities};
create view written as from read_parquet('{release}/microdata.parquet');
create table zone as select row_number() over () as zone, *
from (select distinct * exclude (block{beside}) from public);
create table spot as select block, zone from public natural join zone;
create table cells as select zone, {block}hhgq, votingage, hispanic, cenrace, count(*) as people
from written left join spot using (block) group by all;
create table home as select block, hhgq, count(*) as people from written group by all;
create table truth as select block, count(*) as people from read_parquet('{records}') group by all;
create view head as select home.*, zone.* from home left join spot using (block) left join zone using (zone);
create view person as
select one.people, {block}one.hhgq, one.votingage, one.hispanic, races.label as cenrace, major.label as race,
    institutions.label as hhinstlevels, zone.*
from cells as one left join zone using (zone)
left join read_csv('{codes}/races.csv', all_varchar = true) as races on one.cenrace = races.code
left join read_csv('{codes}/major_races.csv', all_varchar = true) as major on one.cenrace = major.code
left join read_csv('{codes}/institutions.csv', all_varchar = true) as institutions on one.hhgq = institutions.code;
"""
"""Everybody is counted once by zone (blocks that lie in the same areas) and cell, and by block and quarters; by block
and cell where a table has counts of blocks by anything."""
RULES = {
    "people of unknown race or quarters": "from person where cenrace is null or race is null or hhinstlevels is null",
    "people in blocks that are not on the map": "from person where nation is null",
    "people whose county, tract or block group is not their block's": """from written join public using (block)
        where (written.nation, written.state, written.county, written.tract, written.block_group)
        is distinct from (public.nation, public.state, public.county, public.tract, public.block_group)""",
    "people in quarters that their block does not have": "from home anti join facility using (block, hhgq)",
    "quarters with fewer people than buildings": """from facility left join home using (block, hhgq)
        where coalesce(people, 0) < at_least""",
    "minors in nursing homes": "from person where hhgq = 'nursing' and votingage = 'minor'",
    "states whose total is not the exact one": """from
        (select state, sum(people) as n from head group by all) full join
        (select state, sum(people) as exact from truth join public using (block) group by all)
        using (state) where n is distinct from exact""",
}


def checked(release: Path, spec: Path, memory: str = "8GB") -> tuple[dict[str, int], dict[str, float]]:
    """What a release breaks, and how far it is from the truth.

    Args:
        release: the folder of a release with microdata, by ``topdown`` or ``bluedown``.
        spec: the document it was made from.
        memory: what DuckDB may take; the rest is on the disk.

    Returns:
        For each rule, how many kinds of people in a place, quarters or published numbers break it; and by level how far
        the people of an area are from the true number, mean over its areas.
    """
    document = tomllib.loads(spec.read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        settings = {"memory_limit": memory, "temp_directory": f"{folder}/spilled"}
        with duckdb.connect(f"{folder}/check.db", config=settings) as con:
            _count_people(con, release, spec, document)
            return _violations(con, release, document), _errors(con, document)


def violations(release: Path, spec: Path) -> dict[str, int]:
    """The first of :func:`checked`."""
    return checked(release, spec)[0]


def _violations(con: duckdb.DuckDBPyConnection, release: Path, document: Mapping[str, Any]) -> dict[str, int]:
    found = {rule: _count(con, rest) for rule, rest in RULES.items()}
    for table in document["table"]:
        path = release / f"tables/{table['name']}.parquet"
        con.execute(f"create or replace view released as from read_parquet('{path}')")
        people = "person" if table["attributes"] else "head"
        found |= _of_table(
            con, table["name"], people, _kinds(document, table), document["geography"]["outside"]
        )
    return found


def _errors(con: duckdb.DuckDBPyConnection, document: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for level in document["geography"]["levels"]:
        true = f"(select {level}, sum(people) as n from truth join public using (block) group by all)"
        made = f"(select {level}, sum(people) as m from head group by all)"
        row = con.execute(f"""select avg(abs(coalesce(n, 0) - coalesce(m, 0)))
            from (select distinct {level} from public) left join {true} using ({level}) left join {made} using ({level})
            """).fetchone()
        assert row is not None
        found[level] = float(row[0])
    return found


def _kinds(document: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
    """The kinds of areas that a table counts."""
    geography = document["geography"]
    return table.get("areas", [*geography["levels"], *geography["entities"]])


def _count_people(
    con: duckdb.DuckDBPyConnection, release: Path, spec: Path, document: Mapping[str, Any]
) -> None:
    """The public files, and the people of the microdata and of the records counted; a nation's files are Parquet, its
    code lists the example's.
    """
    spine, records = (
        spec.parent / name for name in (document["geography"]["file"], document["source"]["path"])
    )
    read = "read_csv('{}', all_varchar = true)" if spine.suffix == ".csv" else "read_parquet('{}')"
    public = {name: read.format(spine.with_stem(name)) for name in ("spine", "facilities")}
    codes = spine.parent if spine.suffix == ".csv" else spec.parent / "redistricting"
    fine = any(table["attributes"] and "block" in _kinds(document, table) for table in document["table"])
    columns = {row[0] for row in con.execute(f"describe from {public['spine']}").fetchall()}
    beside = "".join(f", {name}" for name in ("x", "y") if name in columns)
    block = "block, " if fine else ""
    con.execute(
        TABLES.format(**public, codes=codes, records=records, release=release, beside=beside, block=block)
    )


def _of_table(
    con: duckdb.DuckDBPyConnection, name: str, people: str, kinds: list[str], outside: dict[str, str]
) -> dict[str, int]:
    """Whether the numbers of a table are whole, not negative, complete, and those of the microdata; and gls adds up."""
    columns = [row[0] for row in con.execute("describe released").fetchall()]
    listed = "".join(f", {column}" for column in columns if column in ATTRIBUTES)
    wrong, apart, absent = 0, 0, _count(con, f"from released where area_type not in {(*kinds, '')}")
    for kind in kinds:
        some = f"{kind} != '{outside.get(kind, '')}'"
        of = f"(select * exclude (area_type) from released where area_type = '{kind}')"
        counted = (
            f"(select {kind} as area{listed}, sum(people) as people from {people} where {some} group by all)"
        )
        joined = f"from {of} full join {counted} using (area{listed})"
        wrong += _count(con, f"{joined} where coalesce(estimate, 0) != coalesce(people, 0)")
        rows, cells = _count(con, f"from {of}"), _count(con, f"from (select distinct area{listed} from {of})")
        areas = _count(con, f"from (select distinct {kind} from public where {some})")
        found = _count(
            con, f"from (select distinct area from {of} join public on area = {kind} where {some})"
        )
        absent += (areas - found) + (rows - cells) + rows % areas
        if "block" in kinds:
            sums = f"""(select {kind} as area{listed}, fsum(gls_estimate) as summed from public join released
                on area_type = 'block' and area = block where {some} group by all)"""
            joined = f"from {of} full join {sums} using (area{listed})"
            apart += _count(con, f"{joined} where coalesce(abs(gls_estimate - summed) > {CLOSE}, true)")
    return {
        f"{name}: numbers that are negative or no whole numbers": _count(
            con, "from released where not (estimate >= 0 and estimate = floor(estimate))"
        ),
        f"{name}: numbers that are not those of the microdata": wrong,
        f"{name}: areas or rows that are absent or twice there": absent,
        f"{name}: numbers of gls that are not the sums of those of blocks": apart,
    }


def _count(con: duckdb.DuckDBPyConnection, rest: str) -> int:
    row = con.execute(f"select count(*) {rest}").fetchone()
    assert row is not None
    return int(row[0])


def main() -> int:
    """Print and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", type=Path)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--memory", default="8GB", help="what DuckDB may take")
    parser.add_argument("--csv", type=Path, default=None)
    given = parser.parse_args()
    found, errors = checked(given.release, given.spec, given.memory)
    for rule, count in found.items():
        print(f"{count:>9,}  {rule}")
    for level, error in errors.items():
        print(f"{error:>9.2f}  mean error of the people of a {level}")
    if given.csv is not None:
        rows = [("broken", rule, count) for rule, count in found.items()]
        rows += [("mean error of people", level, f"{error:.3f}") for level, error in errors.items()]
        record(given.csv, ("what", "of", "number"), rows)
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
