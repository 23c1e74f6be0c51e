"""An invented state, for examples/redistricting.toml: areas, living quarters and people. No record is of anybody.

    python examples/redistricting/state.py examples/redistricting
    python examples/redistricting/state.py FOLDER --people 1000000 --blocks 25000 --counties 5

writes three files:

spine.csv         one row a block: its nation, state, county, tract, block group and block, the town (cousub), place and
                  tribal area (aiannh) it lies in, and where on the map it is
facilities.csv    one row for each kind of living quarters that a block has. Each building of group quarters has a
                  person in it, so that their number is a lower limit; housing units may be empty
people.parquet    one row a person

Blocks follow a space-filling curve over a square map, so that any run of them is an area in one piece. Counties, tracts
and block groups are runs, one within the other; towns are other runs that cover each county; places and tribal areas
are discs, which cut across all of these. One block in 25 has no living quarters.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

STATE = "99"
QUARTERS = (
    "household", "correctional", "juvenile", "nursing", "other_institutional",
    "college", "military", "other_noninstitutional",
)  # fmt: skip
AGES, HISPANIC = ("minor", "adult"), ("no", "yes")
RACES = ("White", "Black", "American Indian", "Asian", "Pacific Islander", "Other")
COMBINATIONS = tuple(c for size in range(1, 7) for c in combinations(range(6), size))
NO_PLACE, NO_TRIBE = "99999", "9999"

# What a state is like, roughly: shares of kinds among buildings of group quarters, the middle of how many live in one,
# and how many of those are minors; races, how many people have so many of them, and how often each goes with others.
GROUP_QUARTERS = np.array([0.03, 0.03, 0.25, 0.05, 0.12, 0.01, 0.51])
RESIDENTS = np.array([150, 12, 60, 10, 80, 60, 8])
MINORS = np.array([0.22, 0.0, 0.97, 0.0, 0.2, 0.02, 0.01, 0.05])
IN_GROUP_QUARTERS = 0.027
ALONE = np.array([0.62, 0.12, 0.011, 0.06, 0.002, 0.084])
HOW_MANY_RACES = np.array([0.897, 0.093, 0.009, 0.0009, 0.0001, 0.00002])
JOINED = np.array([6.0, 1.5, 1.2, 0.8, 0.2, 4.0])
HISPANIC_ALONE = np.array([0.08, 0.04, 0.3, 0.02, 0.1, 0.9])


@dataclass(frozen=True)
class State:
    """Areas and people.

    Attributes:
        areas: for each column of spine.csv, shape (all blocks,).
        block, kind, buildings: of each row of facilities.csv, rising by block, then by kind.
        counts: shape (rows, 2, 2, 63): people by voting age, Hispanic origin and race in each of these rows.
    """

    areas: dict[str, np.ndarray]
    block: np.ndarray
    kind: np.ndarray
    buildings: np.ndarray
    counts: np.ndarray

    @classmethod
    def make(cls, people: int = 60_000, blocks: int = 1_200, counties: int = 3, seed: int = 2020) -> State:
        """Draw a state.

        Args:
            people: how many live in it.
            blocks: how many blocks have living quarters; a twenty-fifth as many have none.
            counties: how many counties.
            seed: the same seed and sizes give the same state, for one version of numpy.

        Raises:
            ValueError: fewer than 50 blocks a county, or people too few to live in all group quarters.
        """
        if counties < 1 or blocks < 50 * counties:
            raise ValueError("a county has 50 blocks or more")
        rng = np.random.default_rng(seed)
        areas = _areas(blocks + blocks // 25, counties, rng)
        buildings = _buildings(areas["place"] != NO_PLACE, blocks, rng)
        block, kind = np.nonzero(buildings)
        buildings = np.where(kind == 0, 0, buildings[block, kind])
        living = _living(people, block, kind, buildings, areas, rng)
        return cls(areas, block, kind, buildings, _counts(living, block, kind, areas, rng))

    def table(self, seed: int = 0) -> pa.Table:
        """The people, one row each, in an order that says nothing."""
        cell = np.repeat(np.arange(self.counts.size), self.counts.ravel())
        row, age, hispanic, race = np.unravel_index(
            np.random.default_rng(seed).permutation(cell), self.counts.shape
        )
        races = [f"{i + 1:02d}" for i in range(len(COMBINATIONS))]
        columns = {
            "block": (self.block[row], self.areas["block"]),
            "hhgq": (self.kind[row], QUARTERS),
            "votingage": (age, AGES),
            "hispanic": (hispanic, HISPANIC),
            "cenrace": (race, races),
        }
        return pa.table(
            {
                name: pa.DictionaryArray.from_arrays(code.astype(np.int32), pa.array(labels, pa.string()))
                for name, (code, labels) in columns.items()
            }
        )

    def write(self, folder: Path) -> None:
        """Write spine.csv, facilities.csv and people.parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        facilities = {
            "block": self.areas["block"][self.block],
            "hhgq": np.array(QUARTERS)[self.kind],
            "at_least": self.buildings,
        }
        plain = csv.WriteOptions(quoting_style="none")
        csv.write_csv(pa.table(self.areas), folder / "spine.csv", plain)
        csv.write_csv(pa.table(facilities), folder / "facilities.csv", plain)
        parquet.write_table(self.table(), folder / "people.parquet")


def _areas(size: int, counties: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Every column of spine.csv."""
    x, y = _curve(size, rng)
    of_county = np.sort(_cut(np.full(size, 0), counties, 0.3, rng))
    tract = _cut(of_county, size / 100, 0.4, rng)
    group = _cut(tract, size / 31, 0.3, rng, most=9)
    town = _cut(of_county, max(2 * counties, size / 640), 0.6, rng)
    place = _discs(x, y, max(4, size // 700), np.array([0.4, 1.1]) * 420 / max(size, 2_500), rng)
    tribe = _discs(x, y, max(3, size // 6_000), np.array([0.5, 1.2]) * 140 / max(size, 4_000), rng)
    county = np.array([f"{STATE}{2 * c + 1:03d}" for c in range(counties)])[of_county]
    tracts = np.char.add(county, _digits(100 * (1 + _within(tract, of_county)), 6))
    groups = np.char.add(tracts, (1 + _within(group, tract)).astype(str))
    towns = np.array([f"{code:05d}" for code in 5_000 + 35 * rng.permutation(2_000)[: town.max() + 1]])
    places = np.array(
        [*(f"{code:05d}" for code in 3_005 + 45 * rng.permutation(2_000)[: place.max() + 1]), NO_PLACE]
    )
    tribes = np.array(
        [*(f"{code:04d}" for code in 15 + 20 * rng.permutation(400)[: tribe.max() + 1]), NO_TRIBE]
    )
    return {
        "nation": np.full(size, "US"),
        "state": np.full(size, STATE),
        "county": county,
        "tract": tracts,
        "block_group": groups,
        "block": np.char.add(groups, _digits(_within(np.arange(size), group), 3)),
        "cousub": towns[town],
        "place": places[place],
        "aiannh": tribes[tribe],
        "x": x.round(5),
        "y": y.round(5),
    }


def _curve(size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points of the unit square along Hilbert's curve, moved a little."""
    order = int(np.ceil(np.log2(size) / 2))
    along = (np.arange(size) * (4**order - 1) // (size - 1)).astype(np.int64)
    x, y = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for side in 1 << np.arange(order):
        right = along // 2 & 1
        up = (along ^ right) & 1
        flip = (up == 0) & (right == 1)
        x, y = np.where(flip, side - 1 - x, x), np.where(flip, side - 1 - y, y)
        x, y = np.where(up == 0, y, x), np.where(up == 0, x, y)
        x, y, along = x + side * right, y + side * up, along // 4
    moved = 0.5 + rng.uniform(-0.4, 0.4, (2, size))
    return (x + moved[0]) / 2**order, (y + moved[1]) / 2**order


def _cut(
    within: np.ndarray, parts: float, spread: float, rng: np.random.Generator, most: int = 10_000
) -> np.ndarray:
    """Cut runs (numbers that do not fall) into about so many runs altogether: their numbers, which do not fall."""
    size = np.bincount(within)
    per = np.clip(np.round(size * parts / within.size), 1, most).astype(np.int64)
    weight = rng.lognormal(0, spread, per.sum())
    run = np.repeat(np.arange(per.size), per)
    first = np.cumsum(per) - per
    ends = np.cumsum(weight)
    before = ends[first] - weight[first]
    total = np.add.reduceat(weight, first)
    place = (ends - before[run]) / total[run]  # of each cut, in its run
    ahead = np.cumsum(size) - size
    edges = ahead[run] + np.maximum(np.round(place * size[run]), 1)
    cuts = np.searchsorted(np.unique(edges), np.arange(within.size), side="right")
    return cuts.astype(np.int64)


def _within(inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """The number of each inner run among those of its outer run."""
    _, first = np.unique(outer, return_index=True)
    return inner - inner[first][np.searchsorted(first, np.arange(inner.size), side="right") - 1]


def _digits(number: np.ndarray, width: int) -> np.ndarray:
    return np.char.zfill(number.astype(str), width)


def _discs(
    x: np.ndarray, y: np.ndarray, count: int, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """For each point the disc that it is deepest in, of discs with sizes in a range; -1 for none."""
    centre = rng.choice(x.size, count, replace=False)
    radius = np.sqrt(rng.uniform(sizes[0], sizes[1], count) / np.pi)
    depth = np.hypot(x[:, None] - x[centre], y[:, None] - y[centre]) / radius
    return np.where(depth.min(axis=1) < 1, depth.argmin(axis=1), -1)


def _buildings(in_place: np.ndarray, used: int, rng: np.random.Generator) -> np.ndarray:
    """Shape (all blocks, 8): buildings of each kind; 1 for housing units however many there are."""
    found = np.zeros((in_place.size, len(QUARTERS)), np.int64)
    block = np.sort(rng.choice(in_place.size, used, replace=False))
    special = block[rng.random(used) < np.where(in_place[block], 0.045, 0.02)]
    for chance in (1.0, 0.15):
        here = special[rng.random(special.size) < chance]
        kind = 1 + rng.choice(GROUP_QUARTERS.size, here.size, p=GROUP_QUARTERS)
        found[here, kind] = 1 + rng.poisson(0.3, here.size)
    found[block, 0] = 1
    found[special[rng.random(special.size) < 0.3], 0] = 0
    return found


def _living(
    people: int,
    block: np.ndarray,
    kind: np.ndarray,
    buildings: np.ndarray,
    areas: dict[str, np.ndarray],
    rng: np.random.Generator,
) -> np.ndarray:
    """How many people live in each row of facilities."""
    group = kind > 0
    wanted = rng.lognormal(np.log(RESIDENTS[kind[group] - 1]), 0.9) * buildings[group]
    over = np.maximum(wanted - buildings[group], 0)
    most = max(IN_GROUP_QUARTERS * people - buildings.sum(), 0)
    living = buildings.copy()
    living[group] += (over * min(1.0, most / max(over.sum(), 1))).astype(np.int64)
    left = people - int(living.sum())
    if left < 0:
        raise ValueError(f"{people:,} people are too few for {int(buildings.sum()):,} group quarters")
    weight = rng.lognormal(0, 1.0, block.size) * np.where(areas["place"][block] != NO_PLACE, 1.5, 1.0)
    weight[group | (rng.random(block.size) < 0.05)] = 0
    return living + rng.multinomial(left, weight / weight.sum())


def _counts(
    living: np.ndarray,
    block: np.ndarray,
    kind: np.ndarray,
    areas: dict[str, np.ndarray],
    rng: np.random.Generator,
) -> np.ndarray:
    """Shape (rows, 2, 2, 63): races differ by tract, and by block within it; Hispanic origin by race and tract."""
    tracts, tract = np.unique(areas["tract"], return_inverse=True)
    has = np.array([[race in c for race in range(6)] for c in COMBINATIONS])
    many = has.sum(axis=1)
    several = np.where(has, JOINED, 1.0).prod(axis=1)
    several *= HOW_MANY_RACES[many - 1] / np.bincount(many, several)[many]
    base = np.where(many == 1, has @ ALONE, several)
    by_tract = _shares(np.broadcast_to(base / base.sum(), (tracts.size, base.size)), 30, rng)
    by_block = _shares(by_tract[tract], 150, rng)
    tribal = areas["aiannh"] != NO_TRIBE
    by_block[tribal] = 0.4 * by_block[tribal] + 0.6 * (np.arange(base.size) == 2)
    race = rng.multinomial(living, by_block[block])
    alone = np.where(has, HISPANIC_ALONE, 0).max(axis=1)
    shifted = np.log(alone / (1 - alone)) + rng.normal(0, 0.8, (tracts.size, base.size))
    hispanic = rng.binomial(race, (1 / (1 + np.exp(-shifted)))[tract[block]])
    both = np.stack([race - hispanic, hispanic], axis=1)
    share = np.where(kind == 0, np.clip(rng.normal(MINORS[0], 0.06, living.size), 0.02, 0.6), MINORS[kind])
    minors = rng.binomial(both, share[:, None, None])
    return np.stack([minors, both - minors], axis=1)


def _shares(mean: np.ndarray, likeness: float, rng: np.random.Generator) -> np.ndarray:
    """Random shares with given means; the larger the likeness, the closer to them."""
    drawn = rng.gamma(mean * likeness + 1e-9)
    return drawn / drawn.sum(axis=1, keepdims=True)


def main() -> None:
    """Write a state."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    for name, default in (("people", 60_000), ("blocks", 1_200), ("counties", 3), ("seed", 2020)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    State.make(given.people, given.blocks, given.counties, given.seed).write(given.folder)


if __name__ == "__main__":
    main()
