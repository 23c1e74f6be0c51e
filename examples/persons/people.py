"""Relationship, sex and age of the people of the state in examples/redistricting. No record is of anybody.

    python examples/redistricting/state.py examples/redistricting
    python examples/persons/people.py examples/persons
    python examples/persons/people.py FOLDER --state FOLDER --seed 3

reads facilities.csv and people.parquet of the state, and writes two files for examples/dhc-persons.toml:

facilities.csv    one row for each kind of living quarters, of 25, that a block has. Each building of group quarters has
                  a person in it, so that their number is a lower limit
people.parquet    one row a person, the same people: their block, relationship or kind of group quarters, sex, age,
                  Hispanic origin and race
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

QUARTERS = (
    "household", "correctional", "juvenile", "nursing", "other_institutional",
    "college", "military", "other_noninstitutional",
)  # fmt: skip

# Which of the 42 kinds of relationship and group quarters belong to each of these, how often each goes with its kind,
# and the ages that each can have: the structural zeros of the production run.
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
    0: 62, 1: 50, 2: 50, 3: 36, 6: 22, 9: 32, 10: 72, 11: 20, 12: 70, 15: 28, 27: 84, 33: 20, 34: 24, 35: 26,
}  # fmt: skip
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
ANOTHER_KIND = 0.3


@dataclass(frozen=True)
class Relations:
    """Who lives how.

    Attributes:
        relgq, sex, age: shape (people,), in the order that they were asked for.
        row, kind, buildings: of each row of facilities.csv: the row of the state's, one of 25 kinds, and how many.
    """

    relgq: np.ndarray
    sex: np.ndarray
    age: np.ndarray
    row: np.ndarray
    kind: np.ndarray
    buildings: np.ndarray

    @classmethod
    def draw(
        cls,
        quarters: np.ndarray,
        buildings: np.ndarray,
        row: np.ndarray,
        adult: np.ndarray,
        rng: np.random.Generator,
    ) -> Relations:
        """Draw them, for people of whom living quarters and voting age are known.

        Args:
            quarters, buildings: of each row of the state's facilities: one of 8 kinds, and how many.
            row: shape (people,), which do not fall: the row that each person lives in.
            adult: shape (people,): 1 of voting age, or 0.
        """
        relgq = np.zeros(row.size, np.int64)
        of_row = np.searchsorted(row, np.arange(quarters.size + 1))
        homes = np.flatnonzero(quarters == 0)
        found = [(homes, np.zeros(homes.size, np.int64), np.zeros(homes.size, np.int64))]
        for r in np.flatnonzero(quarters > 0).tolist():
            choice = np.arange(*EDGES[quarters[r] : quarters[r] + 2])
            chance = OF_BUILDINGS[choice - 18] / OF_BUILDINGS[choice - 18].sum()
            kinds = np.repeat(rng.choice(choice, p=chance), buildings[r])
            other = rng.random(kinds.size) < ANOTHER_KIND
            kinds[other] = rng.choice(choice, int(other.sum()), p=chance)
            people = np.arange(of_row[r], of_row[r + 1])
            here = np.concatenate([kinds, rng.choice(kinds, people.size - kinds.size)])
            relgq[people] = rng.permutation(here)
            which, many = np.unique(kinds, return_counts=True)
            found.append((np.full(which.size, r), which - 17, many))
        household = quarters[row] == 0
        for voting, weight in enumerate((OF_MINORS, OF_ADULTS)):
            here = household & (adult == voting)
            relgq[here] = rng.choice(18, int(here.sum()), p=weight / weight.sum())
        age = _ages(relgq, adult, rng)
        male = np.array([MALE.get(kind, 0.5) for kind in range(42)])
        sex = (rng.random(row.size) >= male[relgq]).astype(np.int64)
        return cls(relgq, sex, age, *(np.concatenate(part) for part in zip(*found, strict=True)))


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


def write(state: Path, folder: Path, seed: int = 2020) -> None:
    """Write both files, for the state in a folder; the kinds are named as in gqlevels.csv, which stands beside this."""
    rng = np.random.default_rng(seed)
    names = {"block": pa.string(), "hhgq": pa.string()}
    places = csv.read_csv(
        state / "facilities.csv", convert_options=csv.ConvertOptions(column_types=names)
    ).to_pydict()
    row_of = {
        place: i
        for i, place in enumerate(zip(places["block"], map(QUARTERS.index, places["hhgq"]), strict=True))
    }
    people = parquet.read_table(state / "people.parquet")
    given = {name: people[name].to_pylist() for name in ("block", "hhgq", "votingage")}
    row = np.array(
        [row_of[place] for place in zip(given["block"], map(QUARTERS.index, given["hhgq"]), strict=True)]
    )
    order = np.argsort(row, kind="stable")
    adult = np.array([age == "adult" for age in given["votingage"]], np.int64)
    quarters = np.array([kind for _, kind in row_of])
    drawn = Relations.draw(quarters, np.array(places["at_least"]), row[order], adult[order], rng)
    with (Path(__file__).parent / "gqlevels.csv").open(encoding="utf-8") as file:
        labels = list(dict.fromkeys(csv.read_csv(pa.BufferReader(file.read().encode()))["label"].to_pylist()))
    folder.mkdir(parents=True, exist_ok=True)
    order_of = np.lexsort((drawn.kind, drawn.row))
    facilities = {
        "block": [places["block"][r] for r in drawn.row[order_of].tolist()],
        "gqlevels": [labels[kind] for kind in drawn.kind[order_of].tolist()],
        "at_least": drawn.buildings[order_of],
    }
    csv.write_csv(pa.table(facilities), folder / "facilities.csv")
    mixed = rng.permutation(row.size)
    stays = people.take(pa.array(order[mixed])).combine_chunks()
    columns = {
        "block": stays["block"],
        "relgq": pa.array(drawn.relgq[mixed].astype(str)),
        "sex": pa.array(np.array(["male", "female"])[drawn.sex[mixed]]),
        "age": pa.array(drawn.age[mixed].astype(np.int16)),
        "hispanic": stays["hispanic"],
        "cenrace": stays["cenrace"],
    }
    parquet.write_table(pa.table(columns), folder / "people.parquet")


def main() -> None:
    """Write the people of a state."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--state", type=Path, default=Path(__file__).parents[1] / "redistricting")
    parser.add_argument("--seed", type=int, default=2020)
    given = parser.parse_args()
    write(given.state, given.folder, given.seed)


if __name__ == "__main__":
    main()
