"""Households by type and tenure with the budgets of 2020: what a run takes, and what SQL of its own finds in it.

python -m benchmarks.detailed_households SCRATCH [--households N ...]    writes detailed_households.csv

`examples/households.toml` runs over invented households, in a process of its own. Then DuckDB counts the households
from their file, joined with the file of groups, and says from the public counts which table each group gets:

``violated``   groups that are published and should not be, or the other way, or with another table; cells that do not
               add up to their total
``mean_error`` of a published count (cells and totals), beside that of a Gaussian of its standard deviation
``covered``    the share of 95 % intervals that hold the count; fewer levels than lines of a table make it uneven
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import duckdb
from benchmarks.detailed import Cost, python, tabulae
from benchmarks.recorded import add_force, record

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/households.toml"
RESULTS = ROOT / "benchmarks/results/detailed_households.csv"
COLUMNS = (
    "households", "budget", "counts", "mean_error", "expected", "covered", "violated",
    "cpu_s", "wall_s", "peak_mb", "command",
)  # fmt: skip
CELLS = {
    "household_type": {"type2": "type2", "type4": "type4", "type": "type"},
    "tenure": {"tenure3": "tenure3"},
}
_REGIONS = ("state", "county", "tract", "place", "area")


@dataclass(frozen=True)
class Found:
    """What SQL finds of the levels with one budget."""

    budget: str
    counts: int
    mean_error: float
    expected: float
    covered: float
    violated: int


def prepare(folder: Path, households: int) -> Path:
    """The example's files in a folder, a ledger, and the spec."""
    write = "import sys; from pathlib import Path; from examples.households.invent import write"
    code = f"{write}; write(Path(sys.argv[1]), int(sys.argv[2]))"
    command = python(code, str(folder / "households"), str(households))
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
    ledger = folder / "households.db"
    ledger.unlink(missing_ok=True)
    kind = ("--budget", "9", "--definition", "zcdp", "--neighbours", "add-remove", "--unit", "household")
    subprocess.run(tabulae("ledger", "init", str(ledger), *kind), check=True, stdout=sys.stderr)
    return Path(shutil.copy(EXAMPLE, folder / EXAMPLE.name))


def examine(spec: Path, release: Path) -> list[Found]:
    """What SQL finds, by the budget of the level."""
    levels = tomllib.loads(spec.read_text(encoding="utf-8"))["detailed"]["level"]
    public, tables = spec.parent / "households", release / "tables"
    with duckdb.connect() as engine:
        engine.execute(
            "CREATE TABLE level (ladder TEXT, region_type TEXT, level TEXT, budget TEXT, steps DOUBLE[])"
        )
        for level in levels:
            row = [level[key] for key in ("ladder", "region", "group_level", "budget", "thresholds")]
            engine.execute("INSERT INTO level VALUES (?, ?, ?, ?, ?)", row)
        _count(engine, public)
        _listed(engine, public, tables)
        parts = [_published(ladder, table, tables) for ladder, of in CELLS.items() for table in of]
        engine.execute(f"CREATE TABLE cells AS {' UNION ALL '.join(parts)}")
        found = engine.execute(_ERRORS).fetchall()
        broken = dict(engine.execute(_BROKEN).fetchall())
    rows = [
        Found(budget, n, error, math.sqrt(2 / math.pi) * sd, covered, broken.pop(budget, 0))
        for budget, n, error, sd, covered in found
    ]
    return rows + [Found(budget, 0, math.nan, math.nan, math.nan, n) for budget, n in broken.items()]


def _count(engine: duckdb.DuckDBPyConnection, public: Path) -> None:
    """``truth``: households by region, group, type and tenure; a household in a group once."""
    races = [f"race{i}" for i in range(1, 9)]

    def read(name: str) -> str:
        return f"read_csv('{public / name}.csv', all_varchar = true)"

    maps = " ".join(f"JOIN {read(name)} AS {name} ON {name}.code = h.block" for name in _REGIONS)
    coarse = " ".join(
        f"JOIN {read(name)} AS {name} ON {name}.code = h.{name[:-1]}"
        for name in ("type2", "type4", "tenure3")
    )
    named = ", ".join(f"{name}.class AS {name}" for name in (*_REGIONS, "type2", "type4", "tenure3"))
    engine.execute(
        f"CREATE TABLE household AS SELECT row_number() OVER () AS id, h.*, {named} "
        f"FROM {read('households')} AS h {maps} {coarse}"
    )
    held = " UNION ALL ".join(
        f"SELECT id, '{'ethnicity' if c == 'ethnicity' else 'race'}' AS family, {c} AS value FROM household "
        f"WHERE {c} <> ''"
        for c in (*races, "ethnicity")
    )
    engine.execute(f"CREATE TABLE groups AS SELECT DISTINCT * FROM {read('groups')}")
    engine.execute(
        f"CREATE TABLE held AS {held}; CREATE TABLE codes AS SELECT id, family, count(*) AS n FROM held GROUP BY ALL; "
        'CREATE TABLE member AS SELECT id, "group", any_value(groups.level) AS level, any_value(regions) AS regions '
        "FROM held JOIN groups USING (family, value) JOIN codes USING (id, family) "
        "GROUP BY id, \"group\", kind, n HAVING kind = 'any' OR count(*) = n"
    )
    places = " UNION ALL ".join(
        f"SELECT *, '{name}' AS region_type, {place} AS located FROM household"
        for name, place in {"nation": "'nation'", **{name: name for name in _REGIONS}}.items()
    )
    engine.execute(
        'CREATE TABLE truth AS SELECT region_type, located AS region, "group", '
        "type, type2, type4, tenure3, count(*) AS n "
        f"FROM ({places}) JOIN member USING (id) WHERE located <> 'none' AND (regions IS NULL OR "
        "list_contains(string_split(regions, ';'), region_type)) GROUP BY ALL"
    )


def _listed(engine: duckdb.DuckDBPyConnection, public: Path, tables: Path) -> None:
    """``listed``: the table that each group should get; ``totals``: what was published."""
    names = {"household_type": ["total", "type2", "type4", "type"], "tenure": ["total", "tenure3"]}
    cases = " ".join(f"WHEN '{ladder}' THEN {of}" for ladder, of in names.items())
    engine.execute(
        f'CREATE TABLE listed AS SELECT ladder, region_type, region, "group", budget, '
        f'(CASE ladder {cases} END)[1 + len(list_filter(steps, lambda s: s <= estimate))] AS "table" '
        f"FROM read_csv('{public}/counts.csv', types = {{'region': 'VARCHAR'}}) JOIN "
        '(SELECT DISTINCT "group", level, regions FROM groups) USING ("group") JOIN level USING (region_type, level) '
        "WHERE regions IS NULL OR list_contains(string_split(regions, ';'), region_type)"
    )
    engine.execute(f"CREATE TABLE totals AS SELECT * FROM read_parquet('{tables}/totals.parquet')")


def _published(ladder: str, table: str, tables: Path) -> str:
    """The cells of one table beside their true counts."""
    cell = CELLS[ladder][table]
    return (
        f"SELECT '{ladder}' AS ladder, p.region_type, p.region, p.\"group\", p.estimate, p.std_error, p.ci_low, "
        f"p.ci_high, coalesce(t.n, 0) AS n FROM read_parquet('{tables}/{table}.parquet') AS p LEFT JOIN "
        f'(SELECT region_type, region, "group", {cell}, sum(n) AS n FROM truth GROUP BY ALL) AS t ON '
        f'(p.region_type, p.region, p."group", p.{cell}) = (t.region_type, t.region, t."group", t.{cell})'
    )


_PLACE = 'ladder, region_type, region, "group"'
_ERRORS = f"""
    WITH counted AS (
        SELECT p.ladder, region_type, region, "group", p.estimate, std_error, ci_low, ci_high, coalesce(sum(n), 0) AS n
        FROM totals AS p LEFT JOIN truth USING (region_type, region, "group") GROUP BY ALL
        UNION ALL SELECT * FROM cells
    )
    SELECT budget, count(*), avg(abs(estimate - n)), avg(std_error),
        avg((n BETWEEN ci_low AND ci_high)::INTEGER)
    FROM counted JOIN listed USING ({_PLACE}) GROUP BY budget ORDER BY budget::DOUBLE"""
_BROKEN = f"""
    SELECT coalesce(budget, 'not listed'), count(*) FROM (
        SELECT l.budget FROM listed AS l FULL JOIN totals AS p USING ({_PLACE})
            WHERE l."table" IS DISTINCT FROM p."table"
        UNION ALL
        SELECT budget FROM listed JOIN totals AS p USING ({_PLACE}) JOIN
            (SELECT {_PLACE}, sum(estimate) AS sums FROM cells GROUP BY ALL) AS c USING ({_PLACE})
            WHERE abs(p.estimate - sums) > 1e-6
        UNION ALL
        SELECT budget FROM listed LEFT JOIN (SELECT DISTINCT {_PLACE} FROM cells) AS c USING ({_PLACE})
            WHERE (listed."table" <> 'total') <> (c.region IS NOT NULL)
    ) GROUP BY 1"""


def main() -> None:
    """Run each size, and record it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--households", type=int, nargs="+", default=[60_000, 600_000])
    add_force(parser)
    given = parser.parse_args()
    rows = []
    for size in given.households:
        folder = given.scratch / str(size)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        spec = prepare(folder, size)
        cost = Cost.of(tabulae("run", str(spec), "--out", str(folder / "release")), given.scratch)
        took = (f"{cost.cpu:.1f}", f"{cost.wall:.1f}", f"{cost.peak:.0f}")
        for found in examine(spec, folder / "release"):
            numbers = (
                f"{found.mean_error:.2f}",
                f"{found.expected:.2f}",
                f"{found.covered:.4f}",
                found.violated,
            )
            command = f"python -m benchmarks.detailed_households SCRATCH --households {size}"
            rows.append((size, found.budget, found.counts, *numbers, *took, command))
            sys.stdout.write(f"{rows[-1]}\n")
    record(RESULTS, COLUMNS, rows, size="households", force=given.force)


if __name__ == "__main__":
    main()
