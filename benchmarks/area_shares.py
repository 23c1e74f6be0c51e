"""Shares of levels and queries: equal ones, those of 2020, and those that ``shares = "auto"`` chooses.

python -m benchmarks.area_shares SCRATCH          writes benchmarks/results/area_shares.csv; about six minutes

The tables, budget and shares of examples/redistricting.toml, planned without data, on

rhode_island    the blocks of Rhode Island 2020 (``../shared/data/ri_2020_blocks.csv``), without limits: housing units
                and group quarters are not in that file
small_state     the invented state of the example, 1,200 blocks
state           the same with 25,000 blocks

queries      "2020": the eleven of the example; "tables": those that follow from the tables
shares       "equal", "2020" (with its queries alone), "chosen"; "bound" is an RMSE that no shares are below
table        with area_type, whose RMSE it is; both empty for all tables and kinds of area together
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.recorded import add_force, record

from tabulae.products.areas.allocation import ShareChoice, TotalError
from tabulae.products.areas.spec.section import Geography, LevelShares
from tabulae.products.areas.targets import AreaAims, AreaErrors
from tabulae.spec import Spec

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/redistricting"
BLOCKS = ROOT.parent / "shared/data/ri_2020_blocks.csv"
RESULTS = Path(__file__).parent / "results/area_shares.csv"
FIELDS = ("place", "leaves", "queries", "shares", "table", "area_type", "rmse", "seconds")
SHARES = re.compile(r"(?m)^shares = .*\n")
QUERIES = re.compile(r"(?ms)^\[\[geography\.query\]\]\n.*?(?=^\[)")
LIMITS = re.compile(r"(?ms)^\[\[bound\]\].*?(?=^\[)")
STATES = {"small_state": (1_248, 3), "state": (25_000, 5)}


def state(folder: Path, blocks: int, counties: int) -> str:
    """Write an invented state; the spec of the example."""
    sizes = [f"--people={40 * blocks}", f"--blocks={blocks}", f"--counties={counties}"]
    subprocess.run(
        [sys.executable, str(EXAMPLE / "state.py"), str(folder / EXAMPLE.name), *sizes], check=True
    )
    return EXAMPLE.with_suffix(".toml").read_text(encoding="utf-8")


def rhode_island(folder: Path) -> str:
    """Write the spine of Rhode Island; the spec of the example without limits."""
    names = ("nation", "state", "county", "tract", "block_group", "block", "cousub", "place", "aiannh")
    with BLOCKS.open() as given, (folder / EXAMPLE.name / "spine.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(names)
        for row in csv.DictReader(given):
            block = row["GEOID20"]
            levels = ["US", block[:2], block[:5], block[:11], block[:12], block]
            out.writerow([*levels, row["COUSUBFP"], row["PLACEFP"], row["AIANNHCE"]])
    return LIMITS.sub("", EXAMPLE.with_suffix(".toml").read_text(encoding="utf-8"))


def automatic(text: str, queries: str) -> str:
    """The spec with shares to be chosen."""
    text = SHARES.sub('shares = "auto"\n', text, count=1)
    head, tail = text.split('shares = "auto"\n')
    return f'{head}shares = "auto"\n{SHARES.sub("", tail) if queries == "2020" else QUERIES.sub("", tail)}'


def rows(place: str, text: str, folder: Path) -> Iterator[dict[str, object]]:
    """Every kind of shares on one spine."""
    given = Spec.from_text(text, folder)
    for queries in ("2020", "tables"):
        spec = Spec.from_text(automatic(text, queries), folder)
        geography = spec.geography
        equal = LevelShares.equal(geography.spine.levels, len(geography.queries))
        yield from _errors(place, queries, "equal", geography.with_shares(equal))
        if queries == "2020":
            yield from _errors(place, queries, "2020", given.geography)
        started = time.perf_counter()
        found = ShareChoice(geography, find_budget=False).found()
        seconds = round(time.perf_counter() - started, 1)
        yield from _errors(place, queries, "chosen", geography.with_shares(found.shares), seconds)
        yield _row(place, queries, "bound", geography, rmse=found.lower)


def _errors(
    place: str, queries: str, shares: str, geography: Geography, seconds: float | None = None
) -> Iterator[dict[str, object]]:
    plan = geography.plan()
    yield _row(place, queries, shares, geography, rmse=TotalError.of(geography).rmse(plan), seconds=seconds)
    for each in AreaErrors(geography, AreaAims(geography).covariances(plan), 0.95).rows():
        told = {"table": each.table, "area_type": each.area_type, "rmse": each.rmse}
        yield _row(place, queries, shares, geography, **told)


def _row(place: str, queries: str, shares: str, geography: Geography, **told: object) -> dict[str, object]:
    rmse = told.pop("rmse")
    written = f"{rmse:.4f}" if isinstance(rmse, float) else None
    leaves = geography.leaf_codes.size
    return {"place": place, "leaves": leaves, "queries": queries, "shares": shares, "rmse": written, **told}


def main() -> None:
    """Every place; the table of results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scratch", type=Path, help="a folder for states, which is emptied")
    parser.add_argument(
        "--only", choices=["rhode_island", *STATES], help="print this place, and record nothing"
    )
    add_force(parser)
    asked = parser.parse_args()
    found: list[dict[str, object]] = []
    for place in ("rhode_island", *STATES):
        if asked.only not in (None, place):
            continue
        folder = asked.scratch / place
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(EXAMPLE, folder / EXAMPLE.name)
        text = state(folder, *STATES[place]) if place in STATES else rhode_island(folder)
        found += rows(place, text, folder)
        for row in found:
            if row["place"] == place and not row.get("table"):
                print(*(row.get(field) for field in FIELDS if row.get(field)), flush=True)
    if asked.only is None:
        record(RESULTS, FIELDS, found, force=asked.force)


if __name__ == "__main__":
    main()
