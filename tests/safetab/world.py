"""Small worlds in the Bureau's formats: files as text, so that a test can spoil any of them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tabulae.errors import SpecError
from tabulae.interop.safetab import check
from tabulae.interop.safetab.maps import PUERTO_RICO, US
from tabulae.privacy import Ledger

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "detailed-race"
TOY, REAL = SHARED / "toy", SHARED / "release-2020"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data/detailed-race")

CODES = "race-and-ethnicity-codes.txt"
MEMBERS = "race-and-ethnicity-code-to-iteration.txt"
RACE = "race-characteristic-iterations.txt"
ETHNICITY = "ethnicity-characteristic-iterations.txt"
CONFIG, GRF, PERSONS = "config.json", "GRF-C.txt", "person-records.txt"
HOUSEHOLDS, TOTALS = "household-records.txt", "pop-group-totals.txt"
_OF_DATA = (GRF, PERSONS, HOUSEHOLDS, TOTALS)

RACES = ("1000", "1010", "1011", "1020", "1030", "1040")
ORIGINS = ("2000", "2010", "2020")
HEADER = (
    "QAGE|QSEX|HOUSEHOLDER|TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|CENRACE|QRACE1|QRACE2|QRACE3|QRACE4|QRACE5|QRACE6"
    "|QRACE7|QRACE8|QSPAN"
)


def config(**changes: Any) -> dict[str, Any]:
    """A config of a run of the United States with small thresholds."""
    regions = US + PUERTO_RICO
    keys = {
        f"privacy_budget_p_level_{k}_{r.lower().replace('-', '_')}": 0.5 + k / 4 + (r == "COUNTY") / 8
        for r in regions
        for k in (1, 2)
    }
    made = {
        "max_race_codes": 3,
        **keys,
        "privacy_budget_p_stage_1_fraction": 0.1,
        "thresholds_p": {f"({r}, {k})": [4, 9, 20] for r in regions for k in (1, 2)},
        "zero_suppression_chance": 0.5,
        "allow_negative_counts": True,
        "run_us": True,
        "run_pr": False,
        "reader": "csv",
        "state_filter_us": ["01", "02"],
        "privacy_defn": "zcdp",
    }
    return {**made, **changes}


def thresholds(*steps: int) -> dict[str, list[int]]:
    """The same thresholds for every level."""
    return {key: list(steps) for key in config()["thresholds_p"]}


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _geography() -> str:
    blocks = [
        f"{st}|{cou}|00000{tract}|000{block}|{place}|{area}"
        for st, cou, place, area in (
            ("01", "001", "00100", "0001"),
            ("01", "003", "99999", "0002"),
            ("02", "001", "00100", "0002"),
            ("72", "001", "00500", "9999"),
        )
        for tract in (1, 2)
        for block in (1, 2)
    ]
    return _lines("TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|PLACEFP|AIANNHCE", *blocks)


def _members() -> list[str]:
    own = {
        "1000": ("0500",),
        "1010": ("1001", "2001", "1100", "2100"),
        "1011": ("1001", "2001", "1100", "2100"),
        "1020": ("1001", "2002", "1100", "2102"),
        "1030": ("1002", "2003", "1102", "2103"),
        "1040": ("1002", "1102", "2104"),
        "2000": ("3100",),
        "2010": ("3100", "3201"),
        "2020": ("3101", "3202"),
    }
    return [f"{iteration}|{code}" for code, found in own.items() for iteration in found]


def persons(count: int, seed: int) -> str:
    """Invented people in the blocks of the geography."""
    draw = random.Random(seed)
    blocks = [line.split("|")[:4] for line in _geography().splitlines()[1:]]
    rows = []
    for _ in range(count):
        races = draw.choices(RACES, weights=(1, 6, 3, 2, 2, 1), k=draw.choice((1, 1, 1, 2, 3, 4)))
        races += ["Null"] * (8 - len(races))
        age = draw.choice(("0", "7", "017", "18", "34", "44", "45", "64", "65", "070", "85", "115"))
        where = draw.choices(blocks, weights=[9, 1, 5, 1] * 4)[0]
        rows.append("|".join([age, draw.choice("12"), "", *where, "", *races, draw.choice(ORIGINS)]))
    return _lines(HEADER, *rows)


@dataclass
class World:
    """Files by name; ``write`` puts them into two folders."""

    config: dict[str, Any] = field(default_factory=config)
    files: dict[str, str | bytes | None] = field(default_factory=dict)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """PARAMS and DATA."""
        params, data = folder / "params", folder / "data"
        given: dict[str, str | bytes | None] = {
            CONFIG: json.dumps(self.config, indent=1),
            CODES: _lines("RACE_ETH_CODE|RACE_ETH_NAME", *(f"{c}|code {c}" for c in RACES + ORIGINS)),
            RACE: _lines(
                "ITERATION_CODE|ITERATION_NAME|LEVEL|ALONE|DETAILED_ONLY|COARSE_ONLY",
                "0500|White alone|0|True|Null|Null",
                "1001|European alone|1|True|False|False",
                "1002|Other alone|1|True|True|False",
                "2001|Albanian alone|2|True|False|False",
                "2002|Alsatian alone|2|True|True|False",
                "2003|Other European alone|2|True|False|True",
                "1100|European|1|False|False|False",
                "1102|Other|1|False|False|True",
                "2100|Albanian|2|False|False|False",
                "2102|Alsatian|2|False|True|False",
                "2103|Other European|2|False|False|True",
                "2104|Rest|2|False|False|False",
            ),
            ETHNICITY: _lines(
                "ITERATION_CODE|ITERATION_NAME|LEVEL|DETAILED_ONLY|COARSE_ONLY",
                "3001|Hispanic|0|Null|Null",
                "3100|Central American|1|False|False",
                "3101|South American|1|True|False",
                "3201|Costa Rican|2|False|False",
                "3202|Chilean|2|False|True",
            ),
            MEMBERS: _lines("ITERATION_CODE|RACE_ETH_CODE", *_members()),
            GRF: _geography(),
            PERSONS: persons(300, seed=5),
        }
        given.update(self.files)
        for name, content in given.items():
            where = (data if name in _OF_DATA else params) / name
            where.parent.mkdir(parents=True, exist_ok=True)
            if content is not None:
                where.write_bytes(content if isinstance(content, bytes) else content.encode())
        return params, data

    def text(self, folder: Path, name: str) -> str:
        """What a file of this world says."""
        params, data = self.write(folder)
        return ((data if name in _OF_DATA else params) / name).read_bytes().decode()


def write_bureau(folder: Path) -> Path:
    """The folders of a quick run, one region type only, with a ledger that pays for two; returns their folder."""
    only = {key: 0 for key in config() if key.startswith("privacy_budget_p_level") and "county" not in key}
    World(config(**only)).write(folder)
    Ledger.create(folder / "ledger.db", 5, "zcdp")
    return folder


def problems(world: World, folder: Path, **options: Any) -> list[tuple[str, int | None, str | None, str]]:
    """What a check finds: (file, line, column, message)."""
    try:
        check(*world.write(folder), **options)
    except SpecError as error:
        return [(p.path, p.line, p.column, p.message) for p in error.problems]
    return []


def spoilt(folder: Path, name: str, old: str, new: str) -> World:
    """The world with one text of one file replaced, which must be there."""
    text = World().text(folder / "sound", name)
    assert old in text
    return World(files={name: text.replace(old, new, 1)})
