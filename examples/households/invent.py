"""An invented nation for examples/households.toml: public files, households, and what was published of its people.

Run ``python examples/households/invent.py examples/households``. No record is of anybody. The groups are built like
those of the US Census Bureau's Detailed DHC-B: each code is of one region of the world, alone and in combination, and
of one ethnicity; some groups are tabulated in nation and states alone, others below them alone.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

BLOCKS = [f"{s}{c}{t}{b}" for s, c, t, b in product(
    ("01", "02"), ("001", "003"), ("000100", "000200", "000300"), ("1000", "1001", "1002", "1003")
)]  # fmt: skip
"""State, county, tract and block."""

TYPES = (
    "married couple",
    "other, male householder",
    "other, female householder",
    "living alone",
    "not living alone",
)
TENURES = ("owned with a mortgage", "owned free and clear", "rented", "no rent paid")
RACES, MOST = [f"{region}{i}" for region in "ABCDEFGH" for i in (1, 2, 3)], 8
ETHNICITIES = [f"{region}{i}" for region in "XYZ" for i in (1, 2, 3)]
_WIDE, _NARROW = ("nation", "state"), ("county", "tract", "place", "area")
_PERSONS, _SPREAD = 2.5, {"1": 28.0, "2": 6.0}


def regions_of(block: str) -> dict[str, str]:
    """Region type -> region; "none" where a block is in none."""
    narrow = block[5:11]
    return {
        "state": block[:2],
        "county": block[:5],
        "tract": block[:11],
        "place": f"{block[:2]}-town" if narrow == "000100" else "none",
        "area": "reserve" if block[2:11] == "003000100" else "none",
    }


def groups() -> Iterator[tuple[str, str, str, str, str, str]]:
    """Value, group, level, kind, family and region types, as the file of groups has them.

    The third code of each region of the world is a group in nation and states; below them there is one of "others".
    """
    for family, codes, kinds in (("race", RACES, ("alone", "any")), ("ethnicity", ETHNICITIES, ("any",))):
        for code, kind in product(codes, kinds):
            name = f"{code[0]} {kind}"
            yield code, name, "1", kind, family, ""
            last = code.endswith("3")
            yield code, f"{code} {kind}", "2", kind, family, ";".join(_WIDE) if last else ""
            if last:
                yield code, f"other {name}", "2", kind, family, ";".join(_NARROW)


def households(count: int, seed: int) -> list[tuple[str, ...]]:
    """Block, type, tenure, eight race codes and an ethnicity: some are common, most are rare."""
    rng = np.random.default_rng(seed)

    def shares(size: int) -> np.ndarray:
        commonness = 1 / np.arange(1, size + 1) ** 2.0
        return rng.permutation(commonness) / commonness.sum()

    block = rng.choice(BLOCKS, count, p=rng.dirichlet(np.full(len(BLOCKS), 3.0)))
    kind, tenure = rng.choice(TYPES, count), rng.choice(TENURES, count, p=(0.4, 0.25, 0.33, 0.02))
    held = 1 + np.minimum(rng.geometric(0.85, count) - 1, MOST - 1)
    races = rng.choice(RACES, (count, MOST), p=shares(len(RACES)))
    races[np.arange(MOST) >= held[:, None]] = ""
    ethnicity = rng.choice(ETHNICITIES, count, p=shares(len(ETHNICITIES)))
    return list(map(tuple, np.column_stack([block, kind, tenure, races, ethnicity]).tolist()))


def published(rows: Iterable[tuple[str, ...]], seed: int) -> Iterator[tuple[str, str, str, int]]:
    """Noisy counts of persons, such as an earlier release has published, without the small ones below the state."""
    rng = np.random.default_rng(seed)
    members: dict[str, set[str]] = {}
    said = {name: (level, kind, family, types) for _, name, level, kind, family, types in groups()}
    for code, name, *_ in groups():
        members.setdefault(name, set()).add(code)
    counts: Counter[tuple[str, str, str]] = Counter()
    for block, _, _, *races, ethnicity in rows:
        where = {"nation": "nation", **regions_of(block)}
        for name, (_, kind, family, types) in said.items():
            held = [
                code in members[name] for code in ([ethnicity] if family == "ethnicity" else races) if code
            ]
            if all(held) if kind == "alone" else any(held):
                for region_type in types.split(";") if types else where:
                    if where[region_type] != "none":
                        counts[region_type, where[region_type], name] += 1
    for (region_type, region, name), count in sorted(counts.items()):
        spread = _SPREAD[said[name][0]]
        noisy = round(_PERSONS * count + rng.normal(0, spread))
        if region_type in _WIDE or noisy > 3.3 * spread:
            yield region_type, region, name, noisy


def write(folder: Path, count: int, seed: int = 2020) -> None:
    """Write every file that examples/households.toml names, but for the ledger."""

    def table(name: str, header: str, rows: Iterable[tuple[object, ...]]) -> None:
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header.split(","))
            writer.writerows(rows)

    folder.mkdir(parents=True, exist_ok=True)
    for name, codes in (("blocks", BLOCKS), ("races", RACES), ("ethnicities", ETHNICITIES)):
        table(name, "code,label", ((code, code) for code in codes))
    for region_type in regions_of(BLOCKS[0]):
        table(region_type, "code,class", ((block, regions_of(block)[region_type]) for block in BLOCKS))
    for name, classes in (("type2", "ffFnn"), ("type4", "moolx")):
        labels = {"f": "family", "F": "family", "n": "nonfamily", "m": TYPES[0], "o": "other family"}
        labels |= {"l": TYPES[3], "x": TYPES[4]}
        table(name, "code,class", ((kind, labels[c]) for kind, c in zip(TYPES, classes, strict=True)))
    table(
        "tenure3", "code,class", ((tenure, tenure if i < 2 else "rented") for i, tenure in enumerate(TENURES))
    )
    table("groups", "value,group,level,kind,family,regions", groups())
    rows = households(count, seed)
    races = ",".join(f"race{i}" for i in range(1, MOST + 1))
    table("households", f"block,type,tenure,{races},ethnicity", rows)
    table("counts", "region_type,region,group,estimate", published(rows, seed + 1))


if __name__ == "__main__":
    write(Path(sys.argv[1]), 60_000)
