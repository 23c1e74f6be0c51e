"""Invented housing units and households of the state in examples/redistricting. No record is of anybody.

    python examples/redistricting/state.py examples/redistricting
    python examples/housing/units.py examples/housing
    python examples/housing/units.py FOLDER --state FOLDER --seed 3

reads spine.csv, facilities.csv and people.parquet of the state, and writes three files:

housing.parquet      one row a housing unit, vacant or occupied: for examples/housing-units.toml
units.parquet        one row a housing unit, with its tenure or why it is vacant, and one a building of group quarters:
                     for examples/dhc-units.toml
households.parquet   one row an occupied housing unit: for examples/dhc-households.toml

The three are about the same units: a household is an occupied unit of its block, with the same tenure.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

H1 = ("Vacant", "Occupied")
VACANT, RENTED = 4, (2, 3)
"""Of the 35 kinds of unit: the first that is vacant, and those that are rented."""
QUARTERS = {
    "correctional": (11, 17), "juvenile": (17, 20), "nursing": (20, 21), "other_institutional": (21, 26),
    "college": (26, 27), "military": (27, 29), "other_noninstitutional": (29, 35),
}  # fmt: skip
"""The kinds of unit that each kind of group quarters of the state may be: first, and one after the last."""

# What households are like, roughly; each row of ELDERLY is of an age of the householder, and 0 what cannot occur.
PERSONS = 2.5
VACANCY = 0.11
WHY_VACANT = np.array([0.2, 0.02, 0.09, 0.05, 0.35, 0.01, 0.28])
AGES = np.array([0.04, 0.16, 0.17, 0.17, 0.1, 0.1, 0.15, 0.08, 0.03])
ELDERLY = np.array(
    [[0.96, 0.02, 0.015, 0.005]] * 2 + [[0.93, 0.02, 0.03, 0.02]] * 2 + [[0.85, 0.06, 0.05, 0.04],
     [0, 0.9, 0.07, 0.03], [0, 0, 0.93, 0.07], [0, 0, 0, 1], [0, 0, 0, 1]]
)  # fmt: skip
COUPLES = {"married opposite-sex": 0.47, "married same-sex": 0.01, "cohabiting opposite-sex": 0.07,
           "cohabiting same-sex": 0.01, "no spouse or partner": 0.44}  # fmt: skip
CHILDREN = {"no own children": 0.74, "own children under 6": 0.08, "own children 6 to 17": 0.14,
            "own children of both ages": 0.04}  # fmt: skip
SIZES = {"size 1": 0.28, "size 2": 0.34, "size 3": 0.15, "size 4": 0.13, "size 5": 0.06, "size 6": 0.025,
         "size 7+": 0.015}  # fmt: skip
MULTIG = {"not multig": 0.95, "multig": 0.05}
RACES = np.array([0.68, 0.12, 0.01, 0.06, 0.002, 0.05, 0.078])
CATEGORIES = {
    "sex": ("male", "female"),
    "hhage": ("15-24", "25-34", "35-44", "45-54", "55-59", "60-64", "65-74", "75-84", "85+"),
    "hisp": ("no", "yes"),
    "race": ("white", "black", "aian", "asian", "nhopi", "sor", "two or more"),
    "elderly": ("none", "60-64", "65-74", "75+"),
    "hhtenshort_3lev": ("Owned with mortgage", "Owned without mortgage", "Rented"),
}  # fmt: skip


@dataclass(frozen=True)
class Housing:
    """Units, buildings and households.

    Attributes:
        blocks: the codes of blocks.
        unit_block, unit: shape (units,): the block of each unit or building, and its kind, 0 to 34.
        household_block: shape (households,): the block of each occupied unit.
        households: for each of CATEGORIES, and the type, shape (households,).
    """

    blocks: np.ndarray
    unit_block: np.ndarray
    unit: np.ndarray
    household_block: np.ndarray
    households: Mapping[str, np.ndarray]

    @classmethod
    def make(cls, state: Path, seed: int = 2020) -> Housing:
        """Draw the units of a state; the same seed and state give the same units, for one version of numpy."""
        rng = np.random.default_rng(seed)
        spine = csv.read_csv(state / "spine.csv", convert_options=csv.ConvertOptions(column_types=_TEXT))
        blocks = np.array(spine["block"].to_pylist())
        tract = np.unique(np.array(spine["tract"].to_pylist()), return_inverse=True)[1]
        occupied = _occupied(state, blocks)
        vacant = rng.binomial(np.ceil(occupied * 1.2).astype(np.int64), VACANCY) + (occupied > 0)
        block = np.repeat(np.arange(blocks.size), occupied)
        owned = rng.beta(3, 2, blocks.size)[block] > rng.random(block.size)
        mortgage, paid = rng.random((2, block.size)) < [[0.62], [0.95]]
        kept = np.where(owned, np.where(mortgage, 0, 1), np.where(paid, *RENTED))
        empty = VACANT + rng.choice(WHY_VACANT.size, int(vacant.sum()), p=WHY_VACANT)
        quarters, kind = _quarters(state, blocks, rng)
        households = _households(kept, tract[block], rng)
        return cls(
            blocks,
            np.concatenate([block, np.repeat(np.arange(blocks.size), vacant), quarters]),
            np.concatenate([kept, empty, kind]),
            block,
            households,
        )

    def write(self, folder: Path) -> None:
        """Write housing.parquet, units.parquet and households.parquet, in an order that says nothing."""
        folder.mkdir(parents=True, exist_ok=True)
        housing = self.unit < QUARTERS["correctional"][0]
        h1 = np.array(H1)[(self.unit[housing] < VACANT).astype(int)]
        self._write(folder / "housing.parquet", self.unit_block[housing], {"h1": h1})
        self._write(
            folder / "units.parquet", self.unit_block, {"tenvacgq": np.char.zfill(self.unit.astype(str), 2)}
        )
        coded = {name: np.array(CATEGORIES[name])[self.households[name]] for name in CATEGORIES}
        coded["hhtype"] = np.char.zfill(self.households["hhtype"].astype(str), 3)
        self._write(folder / "households.parquet", self.household_block, coded)

    def _write(self, path: Path, block: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        order = np.random.default_rng(0).permutation(block.size)
        every = {"block": self.blocks[block], **columns}
        parquet.write_table(pa.table({name: column[order] for name, column in every.items()}), path)


_TEXT = {"block": pa.string(), "tract": pa.string()}


def _occupied(state: Path, blocks: np.ndarray) -> np.ndarray:
    """Shape (blocks,): occupied units, from the people who live in households."""
    people = parquet.read_table(state / "people.parquet", columns=["block", "hhgq"])
    here = people.filter(
        pc.call_function("equal", [people["hhgq"].cast(pa.string()), pa.scalar("household")])
    )["block"].cast(pa.string())
    found = {row["values"]: row["counts"] for row in here.value_counts().to_pylist()}
    living = np.array([found.get(block, 0) for block in blocks.tolist()])
    return np.ceil(living / PERSONS).astype(np.int64)


def _quarters(state: Path, blocks: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The block and the kind of each building of group quarters."""
    options = csv.ConvertOptions(column_types=_TEXT)
    rows = csv.read_csv(state / "facilities.csv", convert_options=options).to_pylist()
    rows = [row for row in rows if row["hhgq"] in QUARTERS]
    at = np.searchsorted(blocks, [row["block"] for row in rows], sorter=np.argsort(blocks))
    count = [int(row["at_least"]) for row in rows]
    kind = [rng.integers(*QUARTERS[row["hhgq"]], n) for row, n in zip(rows, count, strict=True)]
    return np.argsort(blocks)[np.repeat(at, count)], np.concatenate([np.zeros(0, np.int64), *kind])


def _households(unit: np.ndarray, tract: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Each attribute of the households in occupied units; races differ by tract."""
    size = unit.size
    sex, age = rng.integers(0, 2, size), rng.choice(AGES.size, size, p=AGES)
    race = _pick(rng.dirichlet(30 * RACES, int(tract.max(initial=0)) + 1)[tract], rng)
    hispanic = np.where(np.arange(RACES.size) == 5, 0.9, 0.12)
    possible, common = can_be(), _common()
    kind, elderly = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for s, a in np.ndindex(2, AGES.size):  # the type and the elderly members together
        here = (sex == s) & (age == a)
        shares = (possible[s, a] * ELDERLY[a][:, None] * common).ravel()
        found = rng.choice(shares.size, int(here.sum()), p=shares / shares.sum())
        elderly[here], kind[here] = np.divmod(found, common.size)
    return {
        "sex": sex,
        "hhage": age,
        "hisp": (rng.random(size) < hispanic[race]).astype(np.int64),
        "race": race,
        "elderly": elderly,
        "hhtenshort_3lev": np.minimum(unit, RENTED[0]),
        "hhtype": kind,
    }


def _labels(name: str) -> np.ndarray:
    """Shape (522,): the class of each type in a file of this folder."""
    return np.array(csv.read_csv(Path(__file__).parent / f"{name}.csv")["label"].to_pylist())


def _common() -> np.ndarray:
    """Shape (522,): how common a type is, roughly; those of one size, couple, children and generations are alike."""
    classes, which, alike = np.unique(_labels("couple_by_size"), return_inverse=True, return_counts=True)
    words = [label.split(", ") for label in classes.tolist()]
    shares = [SIZES[size] * MULTIG[multig] * COUPLES[who] * CHILDREN[own] for size, multig, who, own in words]
    return (np.array(shares) / alike)[which]


def can_be() -> np.ndarray:
    """Shape (2, 9, 4, 522), by sex, age, elderly members and type: whether a household can be so.

    The structural zeros of dhc-households.toml.
    """
    elders, partner = _labels("elders"), _labels("partner")
    alone = np.isin(elders, ["nobody else", "a child alone"])
    young = np.array([label.endswith(("under 6", "of both ages")) for label in partner.tolist()])
    own = np.array([not label.endswith("no own children") for label in partner.tolist()])
    found = np.ones((2, AGES.size, 4, elders.size), bool)
    for age in range(AGES.size):
        least = max(0, min(age - 4, 3))  # the elderly member that the householder is
        found[:, age, :least] = False
        others = (
            alone if least == 0 else alone | np.isin(elders, ["nobody else from 60 on", "a young spouse"])
        )
        found[:, age, least + 1 :, others] = False
    found[:, 0, 3, np.isin(elders, ["a spouse", "a young spouse"])] = False
    found[:, 1:, :, elders == "a child alone"] = False
    found[0, 7:, :, young] = False
    found[1, 7:, :, own] = False
    found[1, 5:7, :, young] = False
    return found


def _pick(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each row of shares, which add up to 1, one of its columns."""
    return (shares.cumsum(axis=1) <= rng.random((len(shares), 1))).sum(axis=1).clip(max=shares.shape[1] - 1)


def main() -> None:
    """Write the units of a state."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--state", type=Path, default=Path(__file__).parents[1] / "redistricting")
    parser.add_argument("--seed", type=int, default=2020)
    given = parser.parse_args()
    Housing.make(given.state, given.seed).write(given.folder)


if __name__ == "__main__":
    main()
