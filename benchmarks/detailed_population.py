"""A synthetic population in the Bureau's formats, of any size, from a seed.

python -m benchmarks.detailed_population OUT --people 100000
python -m benchmarks.detailed_population OUT --people 330000000 --geography nation

Writes OUT/params (config.json and the maps) and OUT/data (person-records.txt and GRF-C.txt). DuckDB writes the records
out of core, four million a second on one thread (more threads would lose their order, and the file would not repeat).

Nobody in it is real, and no table of it is meant to be. What matters to speed and memory is like a census: block
populations are lognormal and a quarter of the blocks empty; codes are Zipf within the public maps, most of them rare,
and each tract has dominant ones of its region; 85, 10, 4 and 1 % of persons have one, two, three and more codes. Blocks
come in random order, the persons of one block together.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
from benchmarks.detailed_geography import BLOCK_COLUMNS, KINDS, PUERTO_RICO, REGIONS, STREAM, Sizes, blocks
from benchmarks.detailed_maps import FILES, LINKS, TABLES, write_maps

MAPS = Path(__file__).parents[2] / "shared/data/detailed-race/release-2020"
HEADING = (
    "QAGE|QSEX|HOUSEHOLDER|TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|CENRACE|"
    "QRACE1|QRACE2|QRACE3|QRACE4|QRACE5|QRACE6|QRACE7|QRACE8|QSPAN"
)
GEOGRAPHY = "TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|PLACEFP|AIANNHCE"
RACE_CODES, SLOTS, NATION = 8, 8192, 330_000_000
HOW_MANY_CODES = (0.85, 0.10, 0.04, 0.006, 0.002, 0.001, 0.0005, 0.0005)
ETHNIC = (0.08, 0.15, 0.25, 0.35)


@dataclass(frozen=True)
class Population:
    """Where a population was written, and how much of everything it has."""

    params: Path
    data: Path
    people: int
    blocks: int
    regions: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class Codes:
    """The codes that a record may carry: of race, of an ethnicity, and the ones that say no ethnicity."""

    race: list[str]
    ethnic: list[str]
    none: list[str]

    @classmethod
    def of(cls, maps: Path) -> Codes:
        """Read from the maps: an ethnic code is in an ethnicity of level 1 or 2; no ethnicity is none of race."""

        def rows(name: str) -> list[dict[str, str]]:
            with (maps / f"{name}.txt").open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file, delimiter="|"))

        races = {row["ITERATION_CODE"] for row in rows(TABLES[0])}
        ethnicities = {row["ITERATION_CODE"] for row in rows(TABLES[1]) if row["LEVEL"] != "0"}
        groups: dict[str, set[str]] = {row["RACE_ETH_CODE"]: set() for row in rows(TABLES[2])}
        for row in rows(LINKS):
            groups[row["RACE_ETH_CODE"]].add(row["ITERATION_CODE"])
        codes = sorted(groups)
        race = [code for code in codes if groups[code] & races]
        ethnic = [code for code in codes if groups[code] & ethnicities]
        none = [code for code in codes if not groups[code] & races and code not in ethnic]
        return cls(race, ethnic, none or [code for code in codes if code not in ethnic])


def zipf(n: int, exponent: float, rng: np.random.Generator) -> np.ndarray:
    """Shares of n codes, in random order of size."""
    shares = np.arange(1, n + 1.0) ** -exponent
    return rng.permutation(shares / shares.sum())


def carried(codes: Codes, kinds: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """For each kind of tract SLOTS equally likely texts of the columns from CENRACE to QSPAN."""
    rng = np.random.default_rng([seed, 1])
    everywhere = zipf(len(codes.race), 1.1, rng)
    texts: list[str] = []
    for kind in kinds:
        rng = np.random.default_rng([seed, 2, int(kind)])
        shares = (everywhere + zipf(len(codes.race), 1.4, rng)) / 2
        race = rng.choice(np.array(codes.race, object), (SLOTS, RACE_CODES), p=shares)
        many = rng.choice(np.arange(1, RACE_CODES + 1), SLOTS, p=HOW_MANY_CODES)
        race[np.arange(RACE_CODES) >= many[:, None]] = "Null"
        ethnic = rng.random(SLOTS) < ETHNIC[int(kind) // KINDS % REGIONS]
        chosen = rng.choice(np.array(codes.ethnic, object), SLOTS, p=zipf(len(codes.ethnic), 1.2, rng))
        span = np.where(ethnic, chosen, codes.none[0])
        texts += [
            f"{1 + k % 63:02d}|{'|'.join(row)}|{e}"
            for k, row, e in zip(many, race.tolist(), span, strict=True)
        ]
    slot = (kinds[:, None] * SLOTS + np.arange(SLOTS)).ravel()
    return {"slot": slot.astype(np.int32), "text": np.array(texts, object)}


def ages() -> dict[str, np.ndarray]:
    """SLOTS equally likely texts of QAGE, QSEX and HOUSEHOLDER: 49 % male, women older."""
    age = np.arange(116)
    alive = 1 / (1 + np.exp((age - np.array([[75], [80]])) / 7))
    shares = (alive / alive.sum(axis=1, keepdims=True) * [[0.49], [0.51]]).ravel()
    cell = np.searchsorted(np.cumsum(shares), (np.arange(SLOTS) + 0.5) / SLOTS)
    sex, old = cell // 116, cell % 116
    texts = [
        f"{a:03d}|{s + 1}|{a >= 18 and k % 5 < 2}|" for k, (a, s) in enumerate(zip(old, sex, strict=True))
    ]
    return {"slot": np.arange(SLOTS, dtype=np.int32), "text": np.array(texts, object)}


PEOPLE = """
select a.text || b.text || c.text as "{heading}"
from (
    select text, kind, hash(start + k + {seed}) as h
    from (select text, kind, start, unnest(range(people)) as k from listed)
) b
join ages a on a.slot = (b.h & {mask})::int
join carried c on c.slot = (b.kind * {slots} + ((b.h >> 20) & {mask}))::int
"""
LEAVES = f"select text || place || '|' || area as \"{GEOGRAPHY}\" from blocks"
COUNTED = """
select count(distinct state) as state, count(distinct text[:6]) as county, count(distinct text[:13]) as tract,
    count(distinct state || place) filter (place <> '99999') as place,
    count(distinct area) filter (area <> '9999') as aiannh, count(*) as block
from blocks
"""
LISTED = """
create table listed as
select text, kind, people, (sum(people) over (order by turn, text) - people)::bigint as start
from (select *, hash(text || '{seed}') as turn from blocks where people > 0) order by turn, text
"""
TEXT = "(format csv, delimiter E'\\t', quote '', escape '', header true)"


def connect(scratch: Path) -> duckdb.DuckDBPyConnection:
    """One thread, in the order that the queries say: the files are a function of the seed."""
    con = duckdb.connect(
        config={"threads": 1, "memory_limit": "4GB", "temp_directory": str(scratch / "spill")}
    )
    con.execute("set disabled_optimizers = 'join_order,build_side_probe_side'")
    return con


def write_data(
    folder: Path, countries: tuple[tuple[Sizes, int], ...], codes: Codes, seed: int
) -> dict[str, int]:
    """Write GRF-C.txt and person-records.txt, and count the regions of each type."""
    folder.mkdir(parents=True, exist_ok=True)
    with connect(folder) as con:
        con.execute(f"create table blocks ({BLOCK_COLUMNS})")
        for sizes, people in countries:
            blocks(con, sizes, people, seed)
        con.execute(f"copy ({LEAVES}) to '{folder / 'GRF-C.txt'}' {TEXT}")
        regions = con.execute(COUNTED).fetchnumpy()
        con.execute(LISTED.format(seed=seed))
        kinds = con.execute("select distinct kind from listed order by kind").fetchnumpy()["kind"]
        for name, arrays in (("ages", ages()), ("carried", carried(codes, kinds, seed))):
            con.register("arrays", arrays)
            con.execute(f"create table {name} as select * from arrays")
            con.unregister("arrays")
        query = PEOPLE.format(
            heading=HEADING, seed=STREAM * (2 * seed + 1) + STREAM // 2, mask=SLOTS - 1, slots=SLOTS
        )
        con.execute(f"copy ({query}) to '{folder / 'person-records.txt'}' {TEXT}")
    return {name: int(number[0]) for name, number in regions.items()}


def write_params(folder: Path, maps: Path, states: tuple[str, ...]) -> None:
    """Copy the maps, and say in config.json which countries and states the data has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(maps / f"{name}.txt", folder / f"{name}.txt")
    config = json.loads((maps / "config.json").read_text(encoding="utf-8"))
    config |= {
        "reader": "csv",
        "state_filter_us": [state for state in states if state != PUERTO_RICO],
        "run_us": True,
        "run_pr": PUERTO_RICO in states,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def write_population(
    folder: Path,
    people: int,
    geography: str = "48 blocks",
    *,
    maps: Path | None = MAPS,
    scale: float | None = None,
    seed: int = 1,
) -> Population:
    """Write params and data below ``folder``.

    Args:
        folder: made where it is missing.
        people: how many persons, exactly.
        geography: "48 blocks", or "nation": 51 states and Puerto Rico, where 1 % of the people live.
        maps: with config.json; None writes small ones.
        scale: the share of the nation's areas; None for the share of its people.
        seed: of everything that is random.
    """
    begin = time.perf_counter()
    if maps is None:
        maps = folder / "maps"
        write_maps(maps)
    if geography == "48 blocks":
        countries: tuple[tuple[Sizes, int], ...] = ((Sizes.of_48_blocks(), people),)
    else:
        us, islands = Sizes.nation(min(1.0, people / NATION) if scale is None else scale)
        countries = ((us, people - people // 100), (islands, people // 100))
    write_params(folder / "params", maps, tuple(state for sizes, _ in countries for state in sizes.states))
    regions = write_data(folder / "data", countries, Codes.of(maps), seed)
    seconds = time.perf_counter() - begin
    return Population(folder / "params", folder / "data", people, regions.pop("block"), regions, seconds)


def main() -> int:
    """Write, and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--geography", choices=("48 blocks", "nation"), default="48 blocks")
    parser.add_argument("--scale", type=float, default=None)
    parser.add_argument("--maps", type=Path, default=MAPS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    maps = given.maps if given.maps.exists() else None
    print(
        write_population(
            given.out, given.people, given.geography, maps=maps, scale=given.scale, seed=given.seed
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
