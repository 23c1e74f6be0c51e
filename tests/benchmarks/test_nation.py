"""The nation's spec, as the 2020 census ran: states in two branches, each of them exact as the sum of its parts."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from tests.passages import changed

import tabulae as tb
from benchmarks import nation

ROWS = """
create view public as from read_parquet('{base}/nation/spine.parquet');
create view facility as from read_parquet('{base}/nation/facilities.parquet');
create view record as from read_parquet('{base}/nation/people.parquet') join public using (block);
create view written as select * from read_parquet('{base}/release/microdata.parquet');
create view person as select written.block, hhgq, votingage, public.state, aiannh != '9999' as tribal from written
join public using (block)
"""
BROKEN = {
    "people outside the map": "(select count(*) from written) - (select count(*) from person)",
    "states that are not exact": """(select count(*) from
        (select state, count(*) as n from person group by all) full join
        (select state, count(*) as told from record group by all) using (state) where n is distinct from told)""",
    "stated totals that are not the records'": """(select count(*) from
        (select geocode as state, value from read_parquet('{base}/release/invariants/exact.parquet')
        where level = 'state' and query_name = 'total') full join
        (select state, count(*) as told from record group by all) using (state) where value is distinct from told)""",
    "quarters with fewer people than buildings": """(select count(*) from facility left join
        (select block, hhgq, count(*) as n from person group by all) using (block, hhgq)
        where coalesce(n, 0) < at_least::bigint)""",
    "people in quarters that are not there": "(select count(*) from person anti join facility using (block, hhgq))",
    "minors in nursing homes": "(select count(*) from person where hhgq = 'nursing' and votingage = 'minor')",
}


def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spec of three states."""
    for name, value in (("BLOCKS", 51 * 60), ("COUNTIES", 51)):
        monkeypatch.setattr(nation, name, value)
    return nation.populate(folder, 3 / 51, 51 * 500)


def broken(folder: Path) -> dict[str, int]:
    """How often each rule is broken, by SQL of its own."""
    con = duckdb.connect()
    con.execute(ROWS.format(base=folder))
    (found,) = con.execute(
        "select " + ", ".join(sql.format(base=folder) for sql in BROKEN.values())
    ).fetchall()
    return dict(zip(BROKEN, found, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("method", ["bluedown", "topdown"])
def test_states_of_two_parts_are_exact(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three states, each in a tribal and another part; what is exact is counted by SQL of its own."""
    spec = small(tmp_path, monkeypatch)
    changed(spec, ("bluedown", method))
    release = tb.run(spec, tmp_path / "release")
    geography = release.spec.geography
    assert geography is not None
    assert {"01|in", "01|out", "02|in", "02|out"} <= set(geography.spine.codes["state"].tolist())
    assert geography.spine.areas("state").codes.tolist() == ["01", "02", "03"]
    assert broken(tmp_path) == dict.fromkeys(BROKEN, 0)
    assert release.verify() == []


LEVELS = ("nation", "state", "county", "prim", "tract_subset_group", "tract_subset", "group", "block")
OPTIMISE = """optimise.rule = "production"
optimise.entities = ["aiannh", "quarters", "block_group"]
optimise.levels = ["tract_subset_group", "group"]
"""
DHC = """[geography.columns]
prim = { join = ["county", "cousub"] }
tract_subset_group = { join = ["prim"] }
tract_subset = { join = ["tract", "prim"] }
group = { join = ["tract_subset", "block_group"] }
"""


@pytest.mark.long
def test_the_levels_of_dhc_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prims, tract subsets and their groups as levels, made of columns: the same rules hold, and states are exact."""
    spec = small(tmp_path, monkeypatch)
    text = spec.read_text().replace('"tract"', '"tract_subset"').replace('"block_group"', '"group"')
    text = text.replace("tract =", "tract_subset =").replace("block_group =", "group =")
    named = f"levels = {list(LEVELS)!r}\n".replace("'", '"')
    text = re.sub(r'levels = \["nation".*\]\n', named, text, count=1)
    text = re.sub(r"optimise = .*\n", OPTIMISE, text, count=1).replace("[geography.columns]", DHC)
    text = text.replace('county = "447/4099"', 'county = "149/4099"')  # a third each of three levels
    text = re.sub(r'county = "(.*?)"', r'county = "\1", prim = "\1", tract_subset_group = "\1"', text)
    spec.write_text(text, encoding="utf-8")
    release = tb.run(spec, tmp_path / "release")
    geography = release.spec.geography
    assert geography is not None
    assert geography.spine.levels == LEVELS
    assert geography.spine.areas("state").codes.tolist() == ["01", "02", "03"]
    assert broken(tmp_path) == dict.fromkeys(BROKEN, 0)
