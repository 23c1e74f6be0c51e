"""The inputs of every case: invented records and public files, the same on every machine."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DOCUMENTS = Path(__file__).parent / "specs"
Rows = Sequence[Sequence[str]]


def write_town(folder: Path) -> None:
    """People with sex, age and race; and visits, several of a visitor, some of a race that no list has."""
    draw = random.Random(7)
    people = [
        [f"p{i // 2}", "FM"[_pick(draw, 5, 5)], str(draw.randrange(20)), "abc"[_pick(draw, 14, 5, 1)]]
        for i in range(400)
    ]
    visits = [
        [f"v{draw.randrange(120)}", row[1] + " ", row[2].zfill(2), ("", "d", row[3])[_pick(draw, 1, 1, 8)]]
        for row in people
    ]
    names = ["PID", "SEX", "AGE", "RACE"]
    _write_csv(folder / "town.csv", names, people)
    pq.write_table(_arrow(names, people), folder / "town.parquet")
    _write_duckdb(folder / "town.duckdb", "visits", names, visits)
    _write_csv(
        folder / "races.csv",
        ["code", "label", "parent"],
        [["a", "A", "one"], ["b", "B", "one"], ["c", "C", ""]],
    )
    _write_csv(
        folder / "major.csv",
        ["code", "class", "label"],
        [["a", "1", "most"], ["b", "2", "few"], ["c", "2", "few"]],
    )
    np.save(folder / "w.npy", np.stack([np.arange(20) % 2, np.arange(20) // 10, np.ones(20)]))


def write_guild(folder: Path) -> None:
    """People in towns with one or two trades, and the groups that trades make."""
    draw = random.Random(3)
    towns = ("a1", "a2", "b1", "sea")
    rows = [
        [
            f"w{i * 3 // 4}",
            towns[_pick(draw, 5, 2, 2, 1)],
            "FM"[_pick(draw, 1, 1)],
            str(draw.randrange(10)),
            "123"[_pick(draw, 14, 5, 1)],
            ("1", "2", "3", "")[_pick(draw, 1, 1, 1, 12)],
        ]
        for i in range(400)
    ]
    names = ["PID", "TOWN", "SEX", "AGE", "ONE", "TWO"]
    _write_csv(folder / "guild.csv", names, rows)
    pq.write_table(_arrow(names, rows), folder / "guild.parquet")
    _write_csv(folder / "trades.csv", ["code", "label"], [["1", "Bakers"], ["2", "Cooks"], ["3", "Tailors"]])
    shires = [["a1", "a", "A"], ["a2", "a", "A"], ["b1", "b", "B"], ["sea", "s", "at sea"]]
    _write_csv(folder / "shires.csv", ["code", "class", "label"], shires)
    groups = [
        ["1", "food", "1", "any", "Food", ""],
        ["2", "food", "1", "any", "Food", ""],
        ["1", "food only", "1", "alone", "Food only", ""],
        ["2", "food only", "1", "alone", "Food only", ""],
        ["1", "bakers", "2", "any", "Bakers", ""],
        ["2", "cooks", "2", "any", "Cooks", ""],
        ["3", "tailors", "2", "any", "Tailors", ""],
        ["3", "tailors only", "2", "alone", "Tailors only", "true"],
    ]
    _write_csv(folder / "groups.csv", ["value", "group", "level", "kind", "label", "total_only"], groups)


def write_duchy(folder: Path) -> None:
    """People in 48 plots of 8 parishes in 2 shires, cut across by markets and a forest; and their houses."""
    draw = random.Random(5)
    plots = [
        [
            "D", f"s{i // 24}", f"p{i // 6}", f"h{i // 3:02}", f"{i:03}",
            ("none", "M1", "M2")[(i * 7 // 5) % 3], "oak" if 10 <= i < 30 and i % 2 else "", f"{i % 8}", f"{i // 8}",
        ]
        for i in range(48)
    ]  # fmt: skip
    names = ["duchy", "shire", "parish", "hamlet", "plot", "market", "forest", "x", "y"]
    _write_csv(folder / "plots.csv", names, plots)
    houses = {(f"{i:03}", "home"): 0 for i in range(45)}
    houses.update({(f"{i:03}", ("inn", "abbey")[i % 2]): 1 + i % 3 for i in range(0, 45, 7)})
    listed = [[plot, kind, str(least)] for (plot, kind), least in houses.items()]
    _write_csv(folder / "houses.csv", ["plot", "kind", "at_least"], listed)
    _write_csv(
        folder / "grown.csv",
        ["code", "class", "label"],
        [["child", "1", "young"], ["adult", "2", "grown"], ["old", "2", "grown"]],
    )
    where = [(plot, kind) for (plot, kind), least in houses.items() for _ in range(least)]
    where += [(f"{int(45 * draw.random() ** 2):03}", "home") for _ in range(500 - len(where))]
    rows = [
        [
            f"h{i * 2 // 3}", plot, kind,
            ("adult", "old", "child")[_pick(draw, 4, 2, 3 * (kind != "abbey"))],
            "abcd"[_pick(draw, 30, 15, 4, 1)],
        ]
        for i, (plot, kind) in enumerate(where)
    ]  # fmt: skip
    names = ["PID", "PLOT", "KIND", "AGE", "FAITH"]
    _write_csv(folder / "duchy.csv", names, rows)
    pq.write_table(_arrow(names, rows), folder / "duchy.parquet")
    _write_duckdb(folder / "duchy.duckdb", "subjects", names, rows)


def write_bureau(folder: Path) -> None:
    """The folders ``params`` and ``data`` of a run of the Bureau's files."""
    params, data = folder / "params", folder / "data"
    params.mkdir()
    data.mkdir()
    (params / "config.json").write_text(json.dumps(_config(), indent=1))
    races, origins = ("1000", "1010", "1011", "1020", "1030", "1040"), ("2000", "2010", "2020")
    _write_bars(
        params / "race-and-ethnicity-codes.txt",
        "RACE_ETH_CODE|RACE_ETH_NAME",
        *(f"{code}|code {code}" for code in races + origins),
    )
    _write_bars(params / "race-characteristic-iterations.txt", *_RACES)
    _write_bars(params / "ethnicity-characteristic-iterations.txt", *_ORIGINS)
    members = [f"{iteration}|{code}" for code, found in _MEMBERS.items() for iteration in found.split()]
    _write_bars(params / "race-and-ethnicity-code-to-iteration.txt", "ITERATION_CODE|RACE_ETH_CODE", *members)
    places = [
        ("01|001", "00100|0001"), ("01|003", "99999|0002"), ("02|001", "00100|0002"), ("72|001", "00500|9999"),
    ]  # fmt: skip
    blocks = [
        (f"{county}|00000{tract}|000{block}", place)
        for county, place in places
        for tract in (1, 2)
        for block in (1, 2)
    ]
    _write_bars(
        data / "GRF-C.txt",
        "TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|PLACEFP|AIANNHCE",
        *(f"{block}|{place}" for block, place in blocks),
    )
    draw = random.Random(5)
    persons = [_person(draw, [block for block, _ in blocks], races, origins) for _ in range(300)]
    _write_bars(data / "person-records.txt", _PERSONS, *persons)


def copy_document(name: str, folder: Path) -> Path:
    """The release document of this name, in the folder."""
    return Path(shutil.copy(DOCUMENTS / f"{name}.toml", folder / f"{name}.toml"))


_PERSONS = (
    "QAGE|QSEX|HOUSEHOLDER|TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|CENRACE|QRACE1|QRACE2|QRACE3|QRACE4|QRACE5|QRACE6"
    "|QRACE7|QRACE8|QSPAN"
)
_RACES = (
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
)
_ORIGINS = (
    "ITERATION_CODE|ITERATION_NAME|LEVEL|DETAILED_ONLY|COARSE_ONLY",
    "3001|Hispanic|0|Null|Null",
    "3100|Central American|1|False|False",
    "3101|South American|1|True|False",
    "3201|Costa Rican|2|False|False",
    "3202|Chilean|2|False|True",
)
_MEMBERS = {
    "1000": "0500",
    "1010": "1001 2001 1100 2100",
    "1011": "1001 2001 1100 2100",
    "1020": "1001 2002 1100 2102",
    "1030": "1002 2003 1102 2103",
    "1040": "1002 1102 2104",
    "2000": "3100",
    "2010": "3100 3201",
    "2020": "3101 3202",
}


def _config() -> dict[str, object]:
    """A run of the United States over nation, states and counties."""
    us = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")
    regions = (*us, "PR-STATE", "PR-COUNTY", "PR-TRACT", "PR-PLACE")
    budgets = {
        f"privacy_budget_p_level_{level}_{region.lower().replace('-', '_')}": spent
        for region in regions
        for level, spent in ((1, 0.75), (2, 1 if region in us[:3] else 0))
    }
    return {
        "max_race_codes": 3,
        **budgets,
        "privacy_budget_p_stage_1_fraction": 0.1,
        "thresholds_p": {f"({region}, {level})": [4, 9, 20] for region in regions for level in (1, 2)},
        "zero_suppression_chance": 0.5,
        "allow_negative_counts": True,
        "run_us": True,
        "run_pr": False,
        "reader": "csv",
        "state_filter_us": ["01", "02"],
        "privacy_defn": "zcdp",
    }


def _person(draw: random.Random, blocks: list[str], races: Sequence[str], origins: Sequence[str]) -> str:
    age = ("0", "7", "017", "18", "34", "44", "45", "64", "65", "070", "85", "115")[draw.randrange(12)]
    codes = [races[_pick(draw, 1, 6, 3, 2, 2, 1)] for _ in range((1, 1, 1, 2, 3, 4)[draw.randrange(6)])]
    codes += ["Null"] * (8 - len(codes))
    block = blocks[_pick(draw, *([9, 1, 5, 1] * 4))]
    return "|".join([age, "12"[draw.randrange(2)], "", block, "", *codes, origins[draw.randrange(3)]])


def _pick(draw: random.Random, *weights: int) -> int:
    """A position, each as often as its weight says; from one uniform number, which every Python draws alike."""
    left = draw.random() * sum(weights)
    for at, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return at
    return len(weights) - 1


def _arrow(names: Sequence[str], rows: Rows) -> pa.Table:
    """The records as a table of text, empty text as null."""
    columns = zip(*rows, strict=True)
    return pa.table(
        {name: [cell or None for cell in cells] for name, cells in zip(names, columns, strict=True)}
    )


def _write_csv(path: Path, names: Sequence[str], rows: Rows) -> None:
    path.write_text("".join(",".join(row) + "\n" for row in (names, *rows)))


def _write_bars(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def _write_duckdb(path: Path, table: str, names: Sequence[str], rows: Rows) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.register("given", _arrow(names, rows))
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM given")
