"""Spines of Rhode Island: how far towns, places and tribal areas are from them; and how long spines take.

python -m benchmarks.spines           writes benchmarks/results/spines.csv; a minute

Rhode Island's blocks of 2010 and 2020 are read from ``../shared/data/ri_2010_blocks.csv`` and ``ri_2020_blocks.csv``.
The spines:

conventional    nation, state, county, tract, block group, block
AIAN            each unit below the nation split into its part inside tribal areas and its part outside
optimised       block groups drawn anew within tracts, keyed by tribal area and minor civil division, as the 2020 census
                did in this state; "places too" keys them by place as well
tract groups    a level of tract groups as well, keyed like "places too"
redistricting   as the 2020 census had them for P.L. 94-171 (rule = "production"): AIAN branches, and block groups by
                one field of town or place, by single tribal area and by the kinds of group quarters there
DHC             as it had them for the Demographic and Housing Characteristics: county, prim, tract subset group,
                tract subset, and block groups by tribal area, school district, group quarters and block group

for Rhode Island and for the invented state of examples/redistricting (25,000 blocks), whose group quarters are known,
in benchmarks/results/spines_2020.csv (``--production``: these alone);
and the units of "optimised" that are measured after bypassing, at the shares of the 2020 census and at equal ones.
Timings are the least of three. Those of "made up" are of a regular state: block groups of up to 32 blocks, tracts of
100, counties of 5,000, with entities that are runs of 20 to 2,000 blocks and overlap, or places side by side.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from benchmarks.nation import state_module
from benchmarks.recorded import record
from scipy import sparse

from tabulae.products.areas.spine.spine import Spine

DATA = Path(__file__).parents[2] / "shared/data"
RESULTS = Path(__file__).parent / "results/spines.csv"
RESULTS_2020 = RESULTS.with_name("spines_2020.csv")
LEVELS = ("nation", "state", "county", "tract", "block_group", "block")
DIGITS = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
ENTITIES = {"MCD": ("COUSUBFP", ""), "place": ("PLACEFP", "99999"), "AIAN": ("AIANNHCE", "9999")}
SHARES = dict(zip(LEVELS, (f"{n}/4099" for n in (104, 1440, 447, 687, 1256, 165)), strict=True))
DRAWN = ("tract_group", "block_group")
FIELDS = ("figure", "data", "spine", "entity", "blocks", "entities", "value")
BLOCKS = (10_000, 30_000, 100_000, 300_000)
RUNS = (300, 1_000, 3_000, 10_000)


def path(year: int) -> Path:
    return DATA / f"ri_{year}_blocks.csv"


def read(year: int) -> tuple[dict[str, list[str]], dict[str, list[str | None]]]:
    """Codes of the blocks by level, with tract groups of one tract; and by type of entity."""
    with path(year).open(newline="") as file:
        rows = list(csv.DictReader(file))
    blocks = [row[f"GEOID{year % 100}"] for row in rows]
    codes = {"nation": ["US"] * len(blocks)} | {
        level: [block[:digits] for block in blocks] for level, digits in DIGITS.items()
    }
    codes["tract_group"] = codes["tract"]
    entities = {
        name: [None if row[column] == none else row[column] for row in rows]
        for name, (column, none) in ENTITIES.items()
    }
    return codes, entities


def spines(codes: dict[str, list[str]], entities: dict[str, list[str | None]]) -> dict[str, Spine]:
    """The spines to compare, by name."""
    tribal = np.array([code is not None for code in entities["AIAN"]])
    conventional = Spine.from_codes(codes, levels=LEVELS)
    split = conventional.split(tribal)
    keys = [entities["AIAN"], entities["MCD"], entities["place"]]
    grouped = Spine.from_codes(codes, levels=(*LEVELS[:3], "tract_group", *LEVELS[3:])).split(tribal)
    return {
        "conventional": conventional,
        "AIAN": split,
        "optimised": split.optimise(keys[:2]),
        "optimised, places too": split.optimise(keys),
        "tract groups": grouped.optimise(keys, levels=DRAWN),
    }


def distances(year: int) -> Iterator[tuple]:
    """Mean and largest distance by type of entity and spine; units that are measured after bypassing."""
    codes, entities = read(year)
    data = f"Rhode Island {year}"
    found = spines(codes, entities)
    for name, spine in found.items():
        for kind, of in entities.items():
            osed = spine.osed(of)
            row = (data, name, kind, spine.leaves, osed.size)
            yield "mean_osed", *row, round(float(osed.mean()), 3)
            yield "max_osed", *row, int(osed.max())
    keys = [entities["AIAN"], entities["MCD"]]
    row = (data, "optimised", "AIAN, MCD", len(codes["block"]), sum(len(set(key) - {None}) for key in keys))
    yield "seconds_optimise", *row, seconds(lambda: found["AIAN"].optimise(keys))
    for units in measured(found["optimised"]):
        yield units[0], data, *units[1:]


def as_production(
    codes: dict[str, list[str]], keys: dict[str, list[str | None]], *, strong: bool
) -> dict[str, Spine]:
    """The conventional spine and those of two runs of 2020.

    Args:
        keys: town, place, tribal area, school district and kinds of group quarters of each block.
        strong: whether towns take the place of places off the tribal areas, as in twelve states.
    """
    tribal = np.array([code is not None for code in keys["AIAN"]])
    field = [
        town if strong and not inside else place
        for town, place, inside in zip(keys["MCD"], keys["place"], tribal, strict=True)
    ]
    conventional = Spine.from_codes(codes, levels=LEVELS)
    redistricting = conventional.split(tribal).optimise(
        [field, keys["AIAN"], keys["quarters"]], rule="production"
    )
    prim = [f"{county}+{town}" for county, town in zip(codes["county"], keys["MCD"], strict=True)]
    subset = [f"{tract}+{one}" for tract, one in zip(codes["tract"], prim, strict=True)]
    finer = {**codes, "prim": prim, "tract_subset_group": prim, "tract_subset": subset}
    levels = (
        "nation",
        "state",
        "county",
        "prim",
        "tract_subset_group",
        "tract_subset",
        "block_group",
        "block",
    )
    finer["block_group"] = [f"{one}+{group}" for one, group in zip(subset, codes["block_group"], strict=True)]
    own = [keys["AIAN"], keys["quarters"], keys["school district"], codes["block_group"]]
    dhc = Spine.from_codes(finer, levels=levels).split(tribal)
    dhc = dhc.optimise(own, levels=["tract_subset_group", "block_group"], rule="production")
    return {"conventional": conventional, "redistricting": redistricting, "DHC": dhc}


def invented() -> tuple[dict[str, list[str]], dict[str, list[str | None]]]:
    """Codes of the invented state's blocks by level, and by type of entity."""
    module = state_module()
    state = module.State.make(1_000_000, 25_000, 5)
    living = np.isin(np.arange(state.areas["block"].size), state.block)
    here = np.cumsum(living) - 1
    kinds = np.zeros((int(living.sum()), len(module.QUARTERS)), np.int64)
    kinds[here[state.block], state.kind] = 1
    quarters: list[str | None] = ["".join(map(str, row)) for row in kinds[:, 1:].tolist()]
    columns = {name: state.areas[name][living].tolist() for name in (*LEVELS, "cousub", "place", "aiannh")}
    outside = {"MCD": ("cousub", ""), "place": ("place", "99999"), "AIAN": ("aiannh", "9999")}
    keys: dict[str, list[str | None]] = {
        name: [None if code == none else code for code in columns[column]]
        for name, (column, none) in outside.items()
    }
    keys |= {"quarters": quarters, "school district": [None] * len(quarters)}
    return {level: columns[level] for level in LEVELS}, keys


def beside_production() -> Iterator[tuple]:
    """Mean and largest distance by type of entity, on the spines of 2020 and the conventional one."""
    codes, _ = read(2020)
    with path(2020).open(newline="") as file:
        rows = list(csv.DictReader(file))
    keys: dict[str, list[str | None]] = {
        name: [None if row[column] == none else row[column] for row in rows]
        for name, (column, none) in {**ENTITIES, "school district": ("SDUNI", "")}.items()
    }
    keys["quarters"] = [None] * len(rows)
    for data, (own, entities), strong in (
        ("Rhode Island 2020", (codes, keys), True),
        ("invented state", invented(), False),
    ):
        asked = {name: of for name, of in entities.items() if any(of)}
        asked |= {level: list(own[level]) for level in ("tract", "block_group")}
        for name, spine in as_production(own, entities, strong=strong).items():
            yield "groups", data, name, "", spine.leaves, "", len(spine.codes["block_group"])
            for kind, of in asked.items():
                osed = spine.osed(of)
                row = (data, name, kind, spine.leaves, osed.size)
                yield "mean_osed", *row, round(float(osed.mean()), 3)
                yield "max_osed", *row, int(osed.max())


def measured(spine: Spine) -> Iterator[tuple]:
    """How many units of each level keep a share, by shares, noise and rule."""
    for name, shares in {"2020 shares": SHARES, "equal shares": dict.fromkeys(LEVELS, "1/6")}.items():
        for noise, rule in (("gaussian", "exact"), ("laplace", "exact"), ("laplace", "paper")):
            done = spine.bypass(shares, noise=noise, rule=rule)
            assert done.shares is not None
            for level, on in zip(done.levels, done.shares.measured, strict=True):
                told = f"optimised; {name}, {noise}, {rule}"
                yield f"measured_{level}", told, "", spine.leaves, "", int(on.sum())


def made_up(blocks: int) -> dict[str, np.ndarray]:
    """Codes of a regular state."""
    number = np.arange(blocks)
    tract = np.char.zfill((number // 100).astype(str), 6)
    return {
        "state": np.full(blocks, "s"),
        "county": np.char.zfill((number // 5000).astype(str), 4),
        "tract_group": tract,
        "tract": tract,
        "block_group": np.char.add(tract, (number % 100 // 32).astype(str)),
        "block": np.char.zfill(number.astype(str), 8),
    }


def overlapping(blocks: int, count: int, rng: np.random.Generator) -> sparse.coo_array:
    """Runs of blocks, a column each."""
    first = rng.integers(0, blocks, count)
    length = np.minimum(rng.integers(20, 2000, count), blocks - first)
    entity = np.repeat(np.arange(count), length)
    leaf = first[entity] + np.arange(entity.size) - (np.cumsum(length) - length)[entity]
    return sparse.coo_array((np.ones(entity.size, bool), (leaf, entity)), shape=(blocks, count))


def seconds(call: Callable[[], object]) -> float:
    """The least of three runs."""
    found = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return round(min(found), 4)


def timings(blocks: tuple[int, ...], runs: tuple[int, ...]) -> Iterator[tuple]:
    """Seconds against blocks at the third number of entities, and against entities at the third number of blocks."""
    rng = np.random.default_rng(1)
    both = dict.fromkeys([(n, runs[2]) for n in blocks] + [(blocks[2], k) for k in runs])
    for size, count in both:
        codes = made_up(size)
        spine = Spine.from_codes(codes, levels=list(codes))
        entities = overlapping(size, count, rng)
        row = ("made up", "", "runs of blocks", size, count)
        yield "seconds_osed", *row, seconds(lambda s=spine, e=entities: s.osed(e))
        yield "pairs", *row, entities.nnz
        if count != runs[2]:
            continue
        places = [f"{i // 1117}" for i in range(size)]
        best = spine.optimise([places], levels=DRAWN)
        row = ("made up", "", "places of 1,117 blocks", size, -(-size // 1117))
        yield "seconds_from_codes", *row, seconds(lambda c=codes: Spine.from_codes(c, levels=list(c)))
        yield "seconds_osed", *row, seconds(lambda s=spine, p=places: s.osed(p))
        yield "seconds_optimise", *row, seconds(lambda s=spine, p=places: s.optimise([p], levels=DRAWN))
        yield (
            "seconds_bypass",
            *row,
            seconds(lambda b=best: b.bypass(dict.fromkeys(b.levels, "1/6"), noise="laplace")),
        )


def one_county(tracts: int, places: int) -> Iterator[tuple]:
    """Seconds to group the tracts of a single county."""
    number = np.arange(40 * tracts)
    tract = np.char.zfill((number // 40).astype(str), 6)
    names = ["county", "tract_group", "tract", "block"]
    codes = dict(zip(names, (np.full(number.size, "c"), tract, tract, number), strict=True))
    spine = Spine.from_codes(codes, levels=names)
    place = ((number + 17) * places // (number.size + 17)).astype(str)
    row = ("one county", "", f"places in {tracts} tracts", number.size, places)
    yield "seconds_optimise", *row, seconds(lambda: spine.optimise([place], levels=["tract_group"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--production", action="store_true", help="measure the spines of 2020 alone")
    alone = parser.parse_args().production
    found = {RESULTS_2020: [*beside_production()]}
    if not alone:
        found[RESULTS] = [*distances(2010), *distances(2020), *timings(BLOCKS, RUNS), *one_county(2500, 200)]
    for place, rows in found.items():
        record(place, FIELDS, rows)
        for row in rows:
            print(*row, sep="\t")


if __name__ == "__main__":
    main()
