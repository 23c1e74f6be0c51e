"""Constraints of the run of DHC persons, counted by SQL over what was given and published: no code of the project.

    python -m benchmarks.dhc_persons_check FOLDER OUT

FOLDER is what ``benchmarks.dhc_persons_state`` writes, OUT what ``benchmarks.dhc_persons_run`` writes of it.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

import duckdb

RUN = Path(__file__).parent / "dhcp/run.toml"


def violations(folder: Path, out: Path) -> dict[str, tuple[int, int]]:
    """For each rule how many constraints there are, and how many are broken."""
    db, asked = duckdb.connect(), tomllib.loads(RUN.read_text(encoding="utf-8"))
    for name in ("people", "areas"):
        db.sql(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{out / name}.parquet')")
    db.sql(f"CREATE VIEW published AS SELECT * FROM read_parquet('{folder / 'published.parquet'}')")
    for name in ("spine", "facilities"):
        db.sql(f"CREATE VIEW {name} AS SELECT * FROM read_csv('{folder / name}.csv', all_varchar = true)")
    classes = {
        name: f"CASE {' '.join(_when(recode['of'], i, g) for i, g in enumerate(recode['groups']))} END"
        for name, recode in asked["recodes"].items()
    }
    names = asked["held"]["attributes"]
    mine = ", ".join(f"CAST({classes.get(name, name)} AS VARCHAR) AS {name}" for name in names)
    wrong_held = f"""
        SELECT count(*) FROM (SELECT block, {mine}, count(*) AS n FROM people GROUP BY ALL) AS m
        FULL JOIN published AS p USING (block, {", ".join(names)}) WHERE coalesce(m.n, 0) <> coalesce(p.people, 0)"""
    by_kind = f"""SELECT block, CAST({classes["gqlevels"]} AS VARCHAR) AS gqlevels, count(*) AS n
                  FROM people GROUP BY ALL"""
    zeros = " OR ".join(
        f"relgq = {kind} AND ({_in('age', ages)})" for kind, ages in asked["structural_zeros"].items()
    )
    blocks, kinds = _one(db, "SELECT count(DISTINCT block) FROM facilities"), 25
    sizes = [
        len(asked["recodes"][n]["groups"]) if n in asked["recodes"] else asked["cells"][n] for n in names
    ]
    held = blocks
    for size in sizes:
        held *= size
    listed = _one(db, "SELECT count(*) FROM facilities")
    found = {
        "held counts of blocks": (held, _one(db, wrong_held)),
        "at least, by block and kind": (
            listed,
            _one(db, f"""SELECT count(*) FROM facilities LEFT JOIN ({by_kind}) USING (block, gqlevels)
                         WHERE coalesce(n, 0) < CAST(at_least AS BIGINT)"""),
        ),
        "nobody where there is no facility": (
            blocks * kinds - listed,
            _one(db, f"SELECT count(*) FROM ({by_kind}) ANTI JOIN facilities USING (block, gqlevels)"),
        ),
        "structural zeros": (
            blocks * sum(asked["cells"]["sex"] * 126 * len(_codes(a)) for a in asked["structural_zeros"].values()),
            _one(db, f"SELECT count(*) FROM people WHERE {zeros}"),
        ),
    }  # fmt: skip
    cell = "0"
    for name, size in asked["cells"].items():
        cell = f"({cell}) * {size} + {name}"
    for level in list(asked["levels"])[:-1]:
        kept = f"level = '{level}'"
        rows = _one(db, f"SELECT count(*) FROM areas WHERE {kept}")
        wrong = _one(db, f"""
            SELECT count(*) FROM (SELECT {level} AS area, {cell} AS cell, count(*) AS n
                                  FROM people JOIN spine USING (block)
                                  WHERE {level} IN (SELECT area FROM areas WHERE {kept}) GROUP BY ALL) AS m
            FULL JOIN (SELECT area, cell, sum(people) AS people FROM areas WHERE {kept} GROUP BY ALL) AS a
            USING (area, cell) WHERE coalesce(m.n, 0) <> coalesce(a.people, 0)""")  # fmt: skip
        found[f"{level}: cells are the sums of the blocks'"] = (rows, wrong)
    return found


def _one(db: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(db.sql(query).fetchall()[0][0])


def _codes(text: str) -> list[int]:
    ends = (part.split("-") for part in text.split())
    return [code for low, *high in ends for code in range(int(low), int((high or [low])[0]) + 1)]


def _in(column: str, text: str) -> str:
    ends = (part.split("-") for part in text.split())
    return " OR ".join(f"{column} BETWEEN {low} AND {(high or [low])[0]}" for low, *high in ends)


def _when(column: str, number: int, group: str) -> str:
    return f"WHEN {_in(column, group)} THEN {number}"


def main() -> None:
    """Print what is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    for rule, (constraints, broken) in violations(given.folder, given.out).items():
        print(f"{rule:45} {constraints:>16,} {broken:>8,}")


if __name__ == "__main__":
    main()
