"""Counts what a release of examples/redistricting.toml breaks, by SQL over its files and the public ones alone.

python -m benchmarks.state_check RELEASE SPEC      prints each rule with how often it is broken; fails where one is;
                                                   and by level what totals are wrong by, mean over areas

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
from typing import Any

import duckdb

RELEASED = ("estimate", "gls_estimate", "std_error", "ci_low", "ci_high", "obs_status")
ATTRIBUTES = ("hhgq", "votingage", "hispanic", "cenrace", "race", "hhinstlevels")
CLOSE = 1e-6  # people
TABLES = """
create view public as from {spine};
create view facility as select block, hhgq, at_least::bigint as at_least from {facilities};
create view record as from read_parquet('{records}');
create view written as from read_parquet('{release}/microdata.parquet');
create table person as
select one.block, one.hhgq, one.votingage, one.hispanic, races.label as cenrace, major.label as race,
    institutions.label as hhinstlevels, public.* exclude (block)
from written as one
left join public on one.block = public.block
left join read_csv('{codes}/races.csv', all_varchar = true) as races on one.cenrace = races.code
left join read_csv('{codes}/major_races.csv', all_varchar = true) as major on one.cenrace = major.code
left join read_csv('{codes}/institutions.csv', all_varchar = true) as institutions on one.hhgq = institutions.code;
"""
RULES = {
    "people of unknown race or quarters": "from person where cenrace is null or race is null or hhinstlevels is null",
    "people in blocks that are not on the map": "from person where nation is null",
    "people whose county, tract or block group is not their block's": """from written join public using (block)
        where (written.nation, written.state, written.county, written.tract, written.block_group)
        is distinct from (public.nation, public.state, public.county, public.tract, public.block_group)""",
    "people in quarters that their block does not have": "from person anti join facility using (block, hhgq)",
    "quarters with fewer people than buildings": """from facility left join
        (select block, hhgq, count(*) as people from person group by all) using (block, hhgq)
        where coalesce(people, 0) < at_least""",
    "minors in nursing homes": "from person where hhgq = 'nursing' and votingage = 'minor'",
    "states whose total is not the exact one": """from
        (select state, count(*) as n from person group by all) full join
        (select state, count(*) as exact from record join public using (block) group by all)
        using (state) where n is distinct from exact""",
}


def violations(release: Path, spec: Path) -> dict[str, int]:
    """For each rule, how many people, quarters or published numbers break it.

    Args:
        release: the folder of a release with microdata, by ``topdown`` or ``bluedown``.
        spec: the document it was made from.
    """
    document = tomllib.loads(spec.read_text(encoding="utf-8"))
    geography, con = document["geography"], _tables(release, spec, document)
    found = {rule: _count(con, rest) for rule, rest in RULES.items()}
    for table in document["table"]:
        path = release / f"tables/{table['name']}.parquet"
        con.execute(f"create or replace view released as from read_parquet('{path}')")
        kinds = table.get("areas", [*geography["levels"], *geography["entities"]])
        found |= _of_table(con, table["name"], kinds, geography["outside"])
    return found


def errors(release: Path, spec: Path) -> dict[str, float]:
    """By level, how far the people of an area are from the true number, mean over its areas."""
    document = tomllib.loads(spec.read_text(encoding="utf-8"))
    con, found = _tables(release, spec, document), {}
    for level in document["geography"]["levels"]:
        true = f"(select {level}, count(*) as n from record join public using (block) group by all)"
        made = f"(select {level}, count(*) as m from person group by all)"
        row = con.execute(f"""select avg(abs(coalesce(n, 0) - coalesce(m, 0)))
            from (select distinct {level} from public) left join {true} using ({level}) left join {made} using ({level})
            """).fetchone()
        assert row is not None
        found[level] = float(row[0])
    return found


def _tables(release: Path, spec: Path, document: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """The public files and the microdata of a release, as views; a nation's files are Parquet, its code lists the
    example's.
    """
    spine, records = (
        spec.parent / name for name in (document["geography"]["file"], document["source"]["path"])
    )
    read = "read_csv('{}', all_varchar = true)" if spine.suffix == ".csv" else "read_parquet('{}')"
    public = {name: read.format(spine.with_stem(name)) for name in ("spine", "facilities")}
    codes = spine.parent if spine.suffix == ".csv" else spec.parent / "redistricting"
    con = duckdb.connect()
    con.execute(TABLES.format(**public, codes=codes, records=records, release=release))
    return con


def _of_table(
    con: duckdb.DuckDBPyConnection, name: str, kinds: list[str], outside: dict[str, str]
) -> dict[str, int]:
    """Whether the numbers of a table are whole, not negative, complete, and those of the microdata; and gls adds up."""
    columns = [row[0] for row in con.execute("describe released").fetchall()]
    listed = "".join(f", {column}" for column in columns if column in ATTRIBUTES)
    wrong, apart, absent = 0, 0, _count(con, f"from released where area_type not in {(*kinds, '')}")
    for kind in kinds:
        some = f"{kind} != '{outside.get(kind, '')}'"
        of = f"(select * exclude (area_type) from released where area_type = '{kind}')"
        counted = f"(select {kind} as area{listed}, count(*) as people from person where {some} group by all)"
        joined = f"from {of} full join {counted} using (area{listed})"
        wrong += _count(con, f"{joined} where coalesce(estimate, 0) != coalesce(people, 0)")
        rows, cells = _count(con, f"from {of}"), _count(con, f"from (select distinct area{listed} from {of})")
        areas = _count(con, f"from (select distinct {kind} from public where {some})")
        found = _count(
            con, f"from (select distinct area from {of} join public on area = {kind} where {some})"
        )
        absent += (areas - found) + (rows - cells) + rows % areas
        if "block" in kinds:
            sums = f"""(select {kind} as area{listed}, sum(gls_estimate) as summed from public join released
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
    given = parser.parse_args()
    found = violations(given.release, given.spec)
    for rule, count in found.items():
        print(f"{count:>9,}  {rule}")
    for level, error in errors(given.release, given.spec).items():
        print(f"{error:>9.2f}  mean error of the people of a {level}")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
