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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from examples.persons.people import Relations
from examples.redistricting.state import State
from pyarrow import csv, parquet

MOVED = 0.1


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
        state = State.make(seed=seed, **sizes)
        rng = np.random.default_rng([seed, 1])
        row, adult, hispanic, race = (
            np.repeat(index, state.counts.ravel()) for index in np.indices(state.counts.shape).reshape(4, -1)
        )
        drawn = Relations.draw(state.kind, state.buildings, row, adult, rng)
        facilities = state.block[drawn.row], drawn.kind, drawn.buildings
        return cls(
            _levels(state.areas), facilities, state.block[row], drawn.relgq, drawn.sex, drawn.age, hispanic, race,
            _published(state, row, adult, hispanic, race, rng),
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


def _published(
    state: State,
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
