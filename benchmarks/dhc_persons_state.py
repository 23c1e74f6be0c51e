"""The invented state of examples/redistricting with relationship and age: what ``benchmarks.dhc_persons`` counts.

    python -m benchmarks.dhc_persons_state FOLDER --people 1000000 --blocks 25000 --counties 5

writes four files:

spine.csv         one row a block: the eight levels of the 2020 production run
facilities.csv    one row for each kind of living quarters that a block has, of 25. Each building of group quarters has
                  a person in it, so that their number is a lower limit
people.parquet    one row a person; no record is of anybody
published.parquet what an earlier release said of each block, by kind of living quarters, voting age, Hispanic origin
                  and race: like the people, but a tenth of those in households stand in another block near by
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

# Which of the 42 kinds of relationship and group quarters belong to each of eight kinds of living quarters, how often
# each goes with its kind, and the ages that each can have: the structural zeros of the production run.
EDGES = (0, 18, 24, 27, 28, 33, 34, 36, 42)
OF_ADULTS = np.array([14, 33, 24, 4, 0.4, 0.3, 12, 0.4, 0.6, 1.5, 2, 0.8, 0.6, 0.7, 2, 3, 0.05, 2])
OF_MINORS = np.array([0.01, 0.03, 0.01, 0.01, 0, 0, 83, 2, 4, 0.6, 0, 6, 0, 0.01, 2, 0.1, 0.7, 0.6])
OF_BUILDINGS = np.array([1, 1, 3, 4, 3, 0.3, 3, 2, 1, 5, 1, 1, 1, 0.5, 0.5, 3, 5, 1, 3, 5, 3, 0.5, 2, 3])
AGES = {
    **dict.fromkeys(range(6), (15, 115)), 6: (0, 89), 7: (0, 89), 8: (0, 89), 10: (30, 115), 11: (0, 74),
    12: (30, 115), 13: (15, 89), 16: (0, 20), **dict.fromkeys(range(18, 23), (15, 115)), 23: (17, 65), 24: (0, 25),
    25: (0, 25), 26: (0, 25), 27: (20, 115), 31: (17, 65), 32: (3, 30), 33: (16, 65), 34: (17, 65), 35: (17, 65),
    37: (16, 115), 38: (16, 115), 39: (16, 75),
}  # fmt: skip
MIDDLE = {
    0: 62,
    1: 50,
    2: 50,
    3: 36,
    6: 22,
    9: 32,
    10: 72,
    11: 20,
    12: 70,
    15: 28,
    27: 84,
    33: 20,
    34: 24,
    35: 26,
}
SPREAD = 16.0
MALE = {
    **dict.fromkeys(range(18, 24), 0.9),
    27: 0.33,
    33: 0.46,
    34: 0.85,
    35: 0.8,
    36: 0.62,
    39: 0.9,
    40: 0.8,
}
ANOTHER_KIND, MOVED = 0.3, 0.1


def neighbour() -> Any:
    """The module that makes the state of examples/redistricting."""
    path = Path(__file__).parents[1] / "examples/redistricting/state.py"
    found = importlib.util.spec_from_file_location("redistricting_state", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Persons:
    """The state's people one by one, and its buildings.

    Attributes:
        areas: for each column of spine.csv, shape (all blocks,).
        facilities: block, kind of 25 and buildings of each row of facilities.csv.
        block, relgq, sex, age, hispanic, cenrace: shape (people,).
        published: block, kind of 8, voting age, Hispanic origin, race and people of each row of published.parquet.
    """

    areas: dict[str, np.ndarray]
    facilities: tuple[np.ndarray, np.ndarray, np.ndarray]
    block: np.ndarray
    relgq: np.ndarray
    sex: np.ndarray
    age: np.ndarray
    hispanic: np.ndarray
    cenrace: np.ndarray
    published: tuple[np.ndarray, ...]

    @classmethod
    def make(cls, seed: int = 2020, **sizes: int) -> Persons:
        """Draw a state: see ``State.make`` of examples/redistricting for people, blocks and counties."""
        state = neighbour().State.make(seed=seed, **sizes)
        rng = np.random.default_rng([seed, 1])
        row, adult, hispanic, race = (
            np.repeat(index, state.counts.ravel()) for index in np.indices(state.counts.shape).reshape(4, -1)
        )
        relgq = np.zeros(row.size, np.int64)
        of_row = np.searchsorted(row, np.arange(state.block.size + 1))
        facilities = [(state.block[state.kind == 0], np.zeros((state.kind == 0).sum(), np.int64),
                       np.zeros((state.kind == 0).sum(), np.int64))]  # fmt: skip
        for r in np.flatnonzero(state.kind > 0).tolist():
            choice = np.arange(*EDGES[state.kind[r] : state.kind[r] + 2])
            chance = OF_BUILDINGS[choice - 18] / OF_BUILDINGS[choice - 18].sum()
            kinds = np.repeat(rng.choice(choice, p=chance), state.buildings[r])
            other = rng.random(kinds.size) < ANOTHER_KIND
            kinds[other] = rng.choice(choice, int(other.sum()), p=chance)
            people = np.arange(of_row[r], of_row[r + 1])
            here = np.concatenate([kinds, rng.choice(kinds, people.size - kinds.size)])
            relgq[people] = rng.permutation(here)
            which, many = np.unique(kinds, return_counts=True)
            facilities.append((np.full(which.size, state.block[r]), which - 17, many))
        household = state.kind[row] == 0
        for voting, weight in enumerate((OF_MINORS, OF_ADULTS)):
            here = household & (adult == voting)
            relgq[here] = rng.choice(18, int(here.sum()), p=weight / weight.sum())
        age = _ages(relgq, adult, rng)
        male = np.array([MALE.get(kind, 0.5) for kind in range(42)])
        columns = tuple(np.concatenate(part) for part in zip(*facilities, strict=True))
        return cls(
            _levels(state.areas), columns, state.block[row], relgq, (rng.random(row.size) >= male[relgq]).astype(int),
            age, hispanic, race, _published(state, row, adult, hispanic, race, rng),
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write the four files."""
        folder.mkdir(parents=True, exist_ok=True)
        code, plain = self.areas["block"], csv.WriteOptions(quoting_style="none")
        csv.write_csv(pa.table(self.areas), folder / "spine.csv", plain)
        block, kind, buildings = self.facilities
        order = np.lexsort((kind, block))
        rows = {"block": code[block], "gqlevels": kind.astype(str), "at_least": buildings}
        csv.write_csv(
            pa.table({n: each[order] for n, each in rows.items()}), folder / "facilities.csv", plain
        )
        order = np.random.default_rng(0).permutation(self.block.size)
        names = ("relgq", "sex", "age", "hispanic", "cenrace")
        columns = {name: _words(getattr(self, name)[order]) for name in names}
        parquet.write_table(
            pa.table({"block": _words(self.block[order], code), **columns}), folder / "people.parquet"
        )
        at, *rest, people = self.published
        names = ("hhgq8lev", "votingage", "hispanic", "cenrace")
        columns = {name: _words(each) for name, each in zip(names, rest, strict=True)}
        parquet.write_table(
            pa.table({"block": _words(at, code), **columns, "people": people}), folder / "published.parquet"
        )


def _words(index: np.ndarray, labels: np.ndarray | None = None) -> pa.DictionaryArray:
    labels = np.arange(index.max() + 1) if labels is None else labels
    return pa.DictionaryArray.from_arrays(index.astype(np.int32), pa.array(labels.astype(str)))


def _levels(areas: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The levels of the production run: prims are runs of tracts of a county, a subset is a whole tract."""
    tract, first = np.unique(areas["tract"], return_index=True)
    county = areas["county"][first]
    number = np.arange(tract.size) - np.searchsorted(county, county)
    prim, group = number // 8, number // 3
    both = prim * 1_000 + group
    at = np.searchsorted(tract, areas["tract"])
    return {
        **{name: areas[name] for name in ("nation", "state", "county")},
        "prim": np.char.add(county, np.char.zfill(prim.astype(str), 5))[at],
        "tract_subset_group": np.char.add(county, np.char.zfill(both.astype(str), 8))[at],
        "tract_subset": areas["tract"],
        **{name: areas[name] for name in ("block_group", "block", "x", "y")},
    }


def _ages(relgq: np.ndarray, adult: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ages by kind and voting age, within what each kind can have."""
    year = np.arange(116)
    base = np.where(year < 65, 1.0, np.exp(-(((year - 65) / 16.0) ** 2)))
    found = np.zeros(relgq.size, np.int64)
    for kind in range(42):
        low, high = AGES.get(kind, (0, 115))
        for voting in range(2):
            here = (relgq == kind) & (adult == voting)
            can = (year >= low) & (year <= high) & ((year >= 18) == voting)
            weight = base * can
            if voting and kind in MIDDLE:
                weight = weight * np.exp(-(((year - MIDDLE[kind]) / SPREAD) ** 2) / 2)
            if here.any():
                found[here] = rng.choice(116, int(here.sum()), p=weight / weight.sum())
    return found


def _published(
    state: Any,
    row: np.ndarray,
    adult: np.ndarray,
    hispanic: np.ndarray,
    race: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, ...]:
    """The people by block and cell of redistricting, some of those in households in another block of the group."""
    block, kind = state.block[row], state.kind[row]
    houses = np.flatnonzero(state.kind == 0)
    group = np.unique(state.areas["block_group"], return_inverse=True)[1][state.block[houses]]
    first, last = (np.searchsorted(group, np.arange(group.max() + 1), side) for side in ("left", "right"))
    of_block = np.full(state.areas["block"].size, -1)
    of_block[state.block[houses]] = group
    moved = np.flatnonzero((kind == 0) & (rng.random(row.size) < MOVED))
    to = of_block[block[moved]]
    block = block.copy()
    block[moved] = state.block[houses][rng.integers(first[to], last[to])]
    cells, people = np.unique(np.stack([block, kind, adult, hispanic, race]), axis=1, return_counts=True)
    return (*cells, people)


def main() -> None:
    """Write a state."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    for name, default in (("people", 20_000), ("blocks", 400), ("counties", 2), ("seed", 2020)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = vars(parser.parse_args())
    folder = given.pop("folder")
    Persons.make(**given).write(folder)


if __name__ == "__main__":
    main()
