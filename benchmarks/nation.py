"""A generated nation at the schema of the 2020 census: 331 million people, 8.1 million blocks. No record is of anybody.

python -m benchmarks.nation FOLDER                 all of it: 51 states; about 2 GB of records
python -m benchmarks.nation FOLDER --share 0.1     a tenth: 5 states of the same size; --states N, of N smaller ones

Each state is one of examples/redistricting/state.py, drawn from a seed of its own with codes of its own, and is written
before the next one is drawn: the nation is never held whole. FOLDER then has

nation/people.parquet        one row a person, state by state; a state's people in an order that says nothing
nation/spine.parquet         one row a block; one block in 26 has no living quarters
nation/facilities.parquet    living quarters by block and kind, with how many buildings there are
nation.toml                  examples/redistricting.toml for this nation, see ``document``
redistricting.db             a ledger that pays for many runs
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.detailed import tabulae

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/redistricting"
PEOPLE, BLOCKS, STATES, COUNTIES = 331_000_000, 8_100_000, 51, 3_143
FOLDER = "nation"
SEED = 2020
WITHIN = ("county", "tract", "block_group", "block")
ACROSS = {"cousub": "", "place": "99999", "aiannh": "9999"}
KEPT = ("nation", "state", *WITHIN, *ACROSS)
LIST = '["nation", "state", "county", "tract", "block_group", "cousub", "place", "aiannh"]'
CHANGES = {
    'title = "Invented state, redistricting counts"': 'title = "Invented nation, redistricting counts"',
    'path = "redistricting/people.parquet"': f'path = "{FOLDER}/people.parquet"',
    'file = "redistricting/spine.csv"': f'file = "{FOLDER}/spine.parquet"',
    'file = "redistricting/facilities.csv"': f'file = "{FOLDER}/facilities.parquet"',
    'attributes = ["votingage", "hispanic", "race"]\n': (
        f'attributes = ["votingage", "hispanic", "race"]\nareas = {LIST}\n'
    ),
    "[release]\n": "[release]\nmax_rows = 40_000_000\n",
}


def state_module() -> ModuleType:
    """The script of the example, which is no package."""
    found = importlib.util.spec_from_file_location("redistricting_state", EXAMPLE / "state.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def states_of(share: float) -> int:
    """How many states that part of the nation has."""
    return max(1, round(STATES * share))


def states(
    share: float = 1.0, people: int = PEOPLE, count: int | None = None
) -> Iterator[tuple[dict[str, np.ndarray], pa.Table, pa.Table]]:
    """Areas, living quarters and people of one state after the other; sizes that do not divide are rounded down.

    Args:
        share: how much of the nation.
        people: how many live in all of it.
        count: how many states it has, if not as many as that part of the nation.
    """
    module, count = state_module(), count or states_of(share)
    sizes = [max(1, int(total * share) // count) for total in (people, BLOCKS, COUNTIES)]
    for number in range(count):
        state = module.State.make(*sizes, seed=SEED + number)
        areas = relabelled({name: state.areas[name] for name in KEPT}, f"{number + 1:02d}")
        facilities = pa.table(
            {
                "block": areas["block"][state.block],
                "hhgq": np.array(module.QUARTERS)[state.kind],
                "at_least": state.buildings,
            }
        )
        persons = state.table(seed=SEED + number)
        blocks = pa.DictionaryArray.from_arrays(
            persons["block"].combine_chunks().indices, pa.array(areas["block"], pa.string())
        )
        yield areas, facilities, persons.set_column(0, "block", blocks)


def relabelled(areas: dict[str, np.ndarray], state: str) -> dict[str, np.ndarray]:
    """Codes of a state that no other state has: its own begin those of the areas within it.

    >>> codes = {"county": np.array(["99001"]), "place": np.array(["99999"]), "cousub": np.array(["05000"])}
    >>> {name: code.tolist() for name, code in relabelled(codes, "07").items()}
    {'county': ['07001'], 'place': ['99999'], 'cousub': ['0705000']}
    """
    found = dict(areas)
    for name in areas:
        if name == "state":
            found[name] = np.full(areas[name].size, state)
        elif name in WITHIN:
            letters = np.array(areas[name]).view("U1").reshape(areas[name].size, -1)
            letters[:, : len(state)] = list(state)
            found[name] = letters.view(areas[name].dtype).ravel()
        elif name in ACROSS:
            own = np.char.add(state, areas[name])
            found[name] = np.where(areas[name] == ACROSS[name], ACROSS[name], own)
    return found


def document() -> str:
    """The spec: that of the example, with blocks' tables of totals alone.

    Every count of a block is in the microdata. A table of 28 cells for each block would be 230 million rows.
    """
    text = EXAMPLE.with_suffix(".toml").read_text(encoding="utf-8")
    for old, new in CHANGES.items():
        if text.count(old) != 1:
            raise ValueError(f"examples/redistricting.toml has {old!r} {text.count(old)} times, not once")
        text = text.replace(old, new)
    return text


def populate(folder: Path, share: float = 1.0, people: int = PEOPLE, count: int | None = None) -> Path:
    """Write a nation, the spec and a ledger that pays for it; the path of the spec.

    Args:
        folder: which must not hold an older one.
        share: how much of the nation, in people, blocks, states and counties alike.
        people: how many live in all of it.
        count: how many states it has, if not as many as that part of the nation.
    """
    (folder / FOLDER).mkdir(parents=True)
    shutil.copytree(EXAMPLE, folder / EXAMPLE.name, ignore=shutil.ignore_patterns("*.py", "*.parquet"))
    writers: dict[str, pq.ParquetWriter] = {}
    for areas, facilities, persons in states(share, people, count):
        for name, rows in (("spine", pa.table(areas)), ("facilities", facilities), ("people", persons)):
            if name not in writers:
                writers[name] = pq.ParquetWriter(folder / FOLDER / f"{name}.parquet", rows.schema)
            writers[name].write_table(rows)
        print(f"{persons.num_rows:,} people in {len(areas['block']):,} blocks", flush=True)
    for writer in writers.values():
        writer.close()
    spec = folder / "nation.toml"
    spec.write_text(document(), encoding="utf-8")
    promised = ("--budget", "100", "--definition", "zcdp", "--neighbours", "replace", "--unit", "person")
    ledger = tabulae("ledger", "init", str(folder / "redistricting.db"), *promised)
    subprocess.run(ledger, check=True, stdout=sys.stderr)
    return spec


def main() -> int:
    """Write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--states", type=int, default=None)
    given = parser.parse_args()
    populate(given.folder, given.share, count=given.states)
    return 0


if __name__ == "__main__":
    sys.exit(main())
