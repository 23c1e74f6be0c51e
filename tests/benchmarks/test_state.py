"""The checker of the state's benchmark sees every kind of fault, and none where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from examples.redistricting.state import State

from benchmarks import state_check

ROOT = Path(__file__).parents[2]
TABLES = """
title = "state"
[source]
path = "redistricting/people.parquet"
[geography]
file = "redistricting/spine.csv"
levels = ["nation", "state", "county", "tract", "block_group", "block"]
entities = ["cousub", "place", "aiannh"]
outside = { place = "99999", aiannh = "9999" }
[[table]]
name = "total"
attributes = []
[[table]]
name = "by_race"
attributes = ["votingage", "race"]
areas = ["county", "place"]
"""
COUNTED = """
select '{kind}' as area_type, area{cells}, coalesce(people, 0)::bigint as estimate,
    estimate::double as gls_estimate
from (select distinct {kind} as area from spine where {some}) {every}
left join (select {kind} as area{cells}, count(*) as people from person where {some} group by all) using (area{cells})
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that says the truth: its microdata are the people."""
    folder = tmp_path_factory.mktemp("state")
    shutil.copytree(ROOT / "examples/redistricting", folder / "redistricting")
    State.make(4_000, 200, 2, 9).write(folder / "redistricting")
    (folder / "spec.toml").write_text(TABLES)
    (folder / "release/tables").mkdir(parents=True)
    con = duckdb.connect()
    con.execute(f"""
        create table spine as from read_csv('{folder}/redistricting/spine.csv', all_varchar = true);
        create table races as from read_csv('{folder}/redistricting/major_races.csv', all_varchar = true);
        create table person as select *, label as race from read_parquet('{folder}/redistricting/people.parquet')
        join races on code = cenrace join spine using (block)
    """)
    written = "select person.* exclude (race, code, class, label, cousub, place, aiannh, x, y) from person"
    con.execute(f"copy ({written}) to '{folder}/release/microdata.parquet' (format parquet)")
    every = "cross join (values ('minor'), ('adult')) as ages(votingage) cross join "
    every += "(select distinct label as race from races)"
    outside = {"place": "99999", "aiannh": "9999"}

    def write(name: str, kinds: list[str], cells: str, every: str) -> None:
        parts = [
            COUNTED.format(kind=kind, cells=cells, every=every, some=f"{kind} != '{outside.get(kind, '')}'")
            for kind in kinds
        ]
        con.execute(
            f"copy ({' union all '.join(parts)}) to '{folder}/release/tables/{name}.parquet' (format parquet)"
        )

    kinds = ["nation", "state", "county", "tract", "block_group", "block", "cousub", "place", "aiannh"]
    write("total", kinds, "", "")
    write("by_race", ["county", "place"], ", votingage, race", every)
    return folder


def changed(made: Path, to: Path, file: str, select: str) -> dict[str, int]:
    """What the checker finds when one file of the release is another query's answer."""
    shutil.copytree(made, to)
    path = to / "release" / file
    con = duckdb.connect()
    con.execute(f"create table stored as from read_parquet('{path}')")
    con.execute(f"copy ({select}) to '{path}' (format parquet)")
    return state_check.violations(to / "release", to / "spec.toml")


def test_the_truth_breaks_nothing(made: Path) -> None:
    found = state_check.violations(made / "release", made / "spec.toml")
    assert len(found) == len(state_check.RULES) + 8
    assert set(found.values()) == {0}


PEOPLE, TOTAL, RACE = "microdata.parquet", "tables/total.parquet", "tables/by_race.parquet"
SAME = "select * replace ({}) from stored"
ONE = SAME.replace("stored", "(select *, row_number() over () as n from stored)")
OTHER_AGE = ONE.format("if(votingage = 'minor', 'adult', 'minor') as votingage")
FAULTS: list[tuple[str, str, str]] = [
    (PEOPLE, ONE.format("if(n = 1, 'elsewhere', block) as block"), "not on the map"),
    (PEOPLE, ONE.format("if(n = 1, '64', cenrace) as cenrace"), "unknown race"),
    (PEOPLE, ONE.format("if(n = 1, 'castle', hhgq) as hhgq"), "quarters that their block"),
    (PEOPLE, ONE.format("if(n = 1, '99', county) as county"), "not their block's"),
    (PEOPLE, "from stored where hhgq = 'household'", "fewer people than buildings"),
    (PEOPLE, ONE.format("if(hhgq = 'nursing', 'minor', votingage) as votingage"), "minors"),
    (PEOPLE, "from stored limit 3999", "not the exact one"),
    (PEOPLE, "from stored limit 3999", "total: numbers that are not those"),
    (PEOPLE, OTHER_AGE, "by_race: numbers that are not those"),
    (
        TOTAL,
        SAME.format("estimate + (area_type = 'tract')::int as estimate"),
        "total: numbers that are not those",
    ),
    (
        TOTAL,
        SAME.format("if(area_type = 'state', -estimate, estimate) as estimate"),
        "total: numbers that are neg",
    ),
    (
        TOTAL,
        SAME.format("gls_estimate + 1e-5 * (area_type = 'place')::int as gls_estimate"),
        "total: numbers of gls",
    ),
    (RACE, SAME.format("estimate + 0.25 as estimate"), "by_race: numbers that are neg"),
    (RACE, "from stored where area != '99001' or votingage = 'adult'", "by_race: areas or rows"),
    (TOTAL, "from stored where area_type != 'aiannh'", "total: areas or rows"),
    (TOTAL, "from stored union all (from stored where area_type = 'county')", "total: areas or rows"),
]


@pytest.mark.parametrize(
    ("file", "select", "rule"),
    [
        *FAULTS[::5],
        *(pytest.param(*fault, marks=pytest.mark.long) for fault in FAULTS if fault not in FAULTS[::5]),
    ],
    ids=lambda text: text[:40],
)
def test_a_fault_is_seen(made: Path, tmp_path: Path, file: str, select: str, rule: str) -> None:
    found = changed(made, tmp_path / "copy", file, select)
    assert sum(count for name, count in found.items() if rule in name) > 0
