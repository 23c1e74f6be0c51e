"""The nation's spec, as the 2020 census ran: states in two branches, each of them exact as the sum of its parts."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

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


@pytest.mark.parametrize("method", ["bluedown", "topdown"])
def test_states_of_two_parts_are_exact(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three states, each in a tribal and another part; what is exact is counted by SQL of its own."""
    for name, value in (("BLOCKS", 51 * 60), ("COUNTIES", 51)):
        monkeypatch.setattr(nation, name, value)
    spec = nation.populate(tmp_path, 3 / 51, 51 * 500)
    spec.write_text(spec.read_text().replace("bluedown", method), encoding="utf-8")
    release = tb.run(spec, tmp_path / "release")
    geography = release.spec.geography
    assert {"01|in", "01|out", "02|in", "02|out"} <= set(geography.spine.codes["state"].tolist())
    assert geography.spine.areas("state").codes.tolist() == ["01", "02", "03"]
    con = duckdb.connect()
    con.execute(ROWS.format(base=tmp_path))
    (found,) = con.execute(
        "select " + ", ".join(sql.format(base=tmp_path) for sql in BROKEN.values())
    ).fetchall()
    assert dict(zip(BROKEN, found, strict=True)) == dict.fromkeys(BROKEN, 0)
    assert release.verify() == []
