"""A small world of households in the Bureau's formats, beside that of persons."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.safetab.world import GRF, HOUSEHOLDS, ORIGINS, PERSONS, RACES, SHARED, TOTALS, World, config

from tabulae.interop.safetab.maps import PUERTO_RICO, US

HEADER = (
    "TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|HHRACE|QRACE1|QRACE2|QRACE3|QRACE4|QRACE5|QRACE6|QRACE7|QRACE8|QSPAN"
    "|HOUSEHOLD_TYPE|TEN"
)
SOUND = "01|001|000001|0001|01|1010|1020|Null|Null|Null|Null|Null|Null|2000|3|4"
TOTALS_HEADER = "REGION_ID|REGION_TYPE|ITERATION_CODE|COUNT"
PRODUCTION = SHARED.parent / "production-2020" / "safetab-h"
DETAILED_ONLY, COARSE_ONLY = ("1002", "2002", "2102", "3101"), ("1102", "2003", "2103", "3202")
LEVEL_1 = ("1001", "1002", "1100", "1102", "3100", "3101")
LEVEL_2 = ("2001", "2002", "2003", "2100", "2102", "2103", "2104", "3201", "3202")


def household_config(**changes: Any) -> dict[str, Any]:
    """A config of a run of the United States with small thresholds; keys of persons stand in it, too."""
    regions = US + PUERTO_RICO
    keys = {
        f"privacy_budget_h_{table}_level_{k}_{r.lower().replace('-', '_')}": k / 4 + (table == "t4") / 8
        for table in ("t3", "t4")
        for r in regions
        for k in (1, 2)
    }
    steps = {
        f"thresholds_h_{table}": {f"({r}, {k})": given for r in regions for k in (1, 2)}
        for table, given in (("t3", [4, 9, 20]), ("t4", [12]))
    }
    return {**config(), **keys, **steps, **changes}


def household_records(count: int, seed: int) -> str:
    """Invented households in the blocks of the geography."""
    draw = random.Random(seed)
    blocks = [f"{st}|{cou}|00000{t}|000{b}" for st, cou in _COUNTIES for t in "12" for b in "12"]
    rows = [HEADER]
    for _ in range(count):
        races = draw.choices(RACES, weights=(1, 6, 3, 2, 2, 1), k=draw.choice((1, 1, 1, 2, 3, 4)))
        races += ["Null"] * (8 - len(races))
        said = (draw.choice(blocks), f"{draw.randint(1, 63):02d}", *races, draw.choice(ORIGINS))
        rows.append("|".join([*said, draw.choice("12345"), draw.choice("1234")]))
    return "\n".join([*rows, ""])


_COUNTIES = (("01", "001"), ("01", "003"), ("02", "001"), ("72", "001"))


def totals(seed: int) -> str:
    """Published totals of about two thirds of the groups of each region, some below 0."""
    draw = random.Random(seed)
    where = {
        "USA": ["1"],
        "STATE": ["01", "02"],
        "COUNTY": ["01001", "01003", "02001"],
        "PLACE": ["0100100", "0200100"],
    }
    where |= {"TRACT": [f"{c}00000{t}" for c in where["COUNTY"] for t in "12"], "AIANNH": ["0001", "0002"]}
    where["PLACE"] = ["0100100", "0200100"]
    where |= {"PR-STATE": ["72"], "PR-COUNTY": ["72001"], "PR-PLACE": ["7200500"]}
    rows = [TOTALS_HEADER]
    for kind, ids in where.items():
        left_out = COARSE_ONLY if kind in ("USA", "STATE", "PR-STATE") else DETAILED_ONLY
        for code in sorted({*LEVEL_1, *LEVEL_2} - set(left_out)):
            rows += [f"{i}|{kind}|{code}|{draw.randint(-4, 30)}" for i in ids if draw.random() < 2 / 3]
    draw.shuffle(rows[1:])
    return "\n".join([*rows, ""])


def households(
    folder: Path, files: dict[str, str | bytes | None] | None = None, **changes: Any
) -> tuple[Path, Path]:
    """PARAMS and DATA of a world of households, some files of it replaced."""
    given: dict[str, str | bytes | None] = {
        PERSONS: None,
        HOUSEHOLDS: household_records(300, 5),
        TOTALS: totals(7),
    }
    return World(household_config(**changes), files={**given, **(files or {})}).write(folder)


def toy(folder: Path, definition: str, **changes: Any) -> tuple[Path, Path]:
    """The toy inputs of the Bureau, and of the households those whose block is in GRF-C.txt."""
    import json
    import shutil

    params, data = folder / "params", folder / "data"
    shutil.copytree(
        PRODUCTION / "toy" / f"input_dir_{definition}", params, ignore=shutil.ignore_patterns("*.json")
    )
    told = json.loads((PRODUCTION / "toy" / f"input_dir_{definition}" / "config.json").read_text())
    (params / "config.json").write_text(json.dumps({**told, **changes}, indent=1))
    data.mkdir()
    for name in (GRF, TOTALS):
        shutil.copy(PRODUCTION / "toy" / name, data / name)
    header, first, *rest = (PRODUCTION / "toy" / HOUSEHOLDS).read_text().splitlines(keepends=True)
    assert first.startswith("08|500|000300|0060|")
    (data / HOUSEHOLDS).write_text("".join([header, *rest]))
    return params, data
