"""T1 and T2 without noise, by hand: loops over people and groups, nothing shared with the engine."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

EDGES = {
    1: (18, 45, 65),
    2: (5, 18, 25, 35, 45, 55, 65, 75),
    3: (5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
WIDE = ("USA", "STATE", "PR-STATE")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="|", quoting=csv.QUOTE_NONE))


def regions_of(block: dict[str, str]) -> dict[str, str]:
    """Region type -> region of a block."""
    st, county = block["TABBLKST"], block["TABBLKST"] + block["TABBLKCOU"]
    prefix = "PR-" if st == "72" else ""
    found = {"STATE": st, "COUNTY": county, "TRACT": county + block["TABTRACTCE"]}
    if block["PLACEFP"] != "99999":
        found["PLACE"] = st + block["PLACEFP"]
    found = {prefix + name: region for name, region in found.items()}
    if not prefix:
        found["USA"] = "1"
        if block["AIANNHCE"] != "9999":
            found["AIANNH"] = block["AIANNHCE"]
    return found


def iterations_of(person: dict[str, str], params: Path, most: int) -> set[str]:
    """All iterations of level 1 and 2 that a person belongs to."""
    members: dict[str, set[str]] = {}
    for row in rows_of(params / "race-and-ethnicity-code-to-iteration.txt"):
        members.setdefault(row["ITERATION_CODE"], set()).add(row["RACE_ETH_CODE"])
    races = [person[f"QRACE{i}"] for i in range(1, most + 1) if person[f"QRACE{i}"] != "Null"]
    found = set()
    for row in rows_of(params / "race-characteristic-iterations.txt"):
        inside = [race in members.get(row["ITERATION_CODE"], ()) for race in races]
        if row["LEVEL"] != "0" and (all(inside) if row["ALONE"] == "True" else any(inside)):
            found.add(row["ITERATION_CODE"])
    for row in rows_of(params / "ethnicity-characteristic-iterations.txt"):
        if row["LEVEL"] != "0" and person["QSPAN"] in members.get(row["ITERATION_CODE"], ()):
            found.add(row["ITERATION_CODE"])
    return found


def threshold(law: dict[str, str], chance: Fraction) -> float:
    """The least integer whose noise distribution function is at least the chance, by adding up masses."""
    word = "variance" if "variance" in law else "scale"
    return _quantile(word, Fraction(law[word]), chance)


@cache
def _quantile(word: str, parameter: Fraction, chance: Fraction) -> float:
    if chance == 0:
        return -math.inf
    wide = 4000
    if word == "variance":
        mass = [math.exp(-(k**2) / (2 * float(parameter))) for k in range(-wide, wide + 1)]
    else:
        mass = [math.exp(-abs(k) / float(parameter)) for k in range(-wide, wide + 1)]
    total, below = math.fsum(mass), 0.0
    for k, m in zip(range(-wide, wide + 1), mass, strict=True):
        below += m
        if below / total >= float(chance):
            return k
    raise AssertionError


def truth(params: Path, data: Path, privacy: dict) -> tuple[list[str], list[str]]:
    """The lines of T1 and T2 below their headers, where no noise is drawn; laws only for the suppression."""
    config = json.loads((params / "config.json").read_text(), parse_float=Fraction)
    blocks = {tuple(list(b.values())[:4]): regions_of(b) for b in rows_of(data / "GRF-C.txt")}
    own = {}
    for name in ("race", "ethnicity"):
        for row in rows_of(params / f"{name}-characteristic-iterations.txt"):
            own[row["ITERATION_CODE"]] = row
    cells: Counter[tuple[str, str, str, int, str]] = Counter()
    for person in rows_of(data / "person-records.txt"):
        where = blocks[tuple(person[c] for c in ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK"))]
        for iteration in iterations_of(person, params, config["max_race_codes"]):
            for kind, region in where.items():
                cells[kind, region, iteration, int(person["QAGE"]), person["QSEX"]] += 1
    t1, t2 = [], []
    for level in privacy["levels"]:
        kind, number = level["region_type"], level["iteration_level"]
        wide = kind in WIDE
        ids = sorted({found[kind] for found in blocks.values() if kind in found})
        codes = sorted(
            code
            for code, row in own.items()
            if row["LEVEL"] == number and row["COARSE_ONLY" if wide else "DETAILED_ONLY"] == "False"
        )
        chance = Fraction(config.get("zero_suppression_chance", 0))
        for region in ids:
            for code in codes:
                mine = {k[3:]: n for k, n in cells.items() if k[:3] == (kind, region, code)}
                total = sum(mine.values())
                alone = own[code]["DETAILED_ONLY"] == "True"
                rung = 0 if alone else sum(t <= total for t in config["thresholds_p"][f"({kind}, {number})"])
                law = level["noise"]["total_only" if alone else "stage_two"]
                if rung == 0 and not wide and total <= threshold(law, chance):
                    continue
                t1.append(((kind, region, code), f"{region}|{kind}|{code}|{total}"))
                for low, high, sex, count in table(mine, rung):
                    key = (kind, region, code, low == "*", 0 if low == "*" else int(low), sex)
                    t2.append((key, f"{region}|{kind}|{code}|{low}|{high}|{sex}|{count}"))
    return [line for _, line in sorted(t1)], [line for _, line in sorted(t2)]


def table(mine: dict, rung: int) -> list[tuple[str, str, str, int]]:
    """Rows of one group's table and its two sex marginals; nothing for rung 0."""
    if rung == 0:
        return []
    edges, out = (0, *EDGES[rung], 116), []
    for sex in "12":
        for low, high in pairwise(edges):
            count = sum(n for (age, s), n in mine.items() if s == sex and low <= age < high)
            out.append((str(low), str(high - 1), sex, count))
        out.append(("*", "*", sex, sum(n for (_, s), n in mine.items() if s == sex)))
    return out


TYPES = [
    {"0": "12345"},
    {"1": "123", "6": "45"},
    {"2": "1", "3": "23", "7": "4", "8": "5"},
    {"2": "1", "4": "2", "5": "3", "7": "4", "8": "5"},
]
TENURES = [{"0": "1234"}, {"1": "1", "2": "2", "3": "34"}]
SUMS = {"1": "0", "6": "0", "2": "01", "3": "01", "4": "013", "5": "013", "7": "06", "8": "06"}


def household_truth(params: Path, data: Path) -> dict[str, list[str]]:
    """The lines below the headers of T3 and T4 by file, where no noise is drawn: each row of T1 by itself."""
    config = json.loads((params / "config.json").read_text())
    blocks = {tuple(list(b.values())[:4]): regions_of(b) for b in rows_of(data / "GRF-C.txt")}
    runs = {"72": config["run_pr"], "": config["run_us"]}
    own = {}
    for name in ("race", "ethnicity"):
        for row in rows_of(params / f"{name}-characteristic-iterations.txt"):
            own[row["ITERATION_CODE"]] = row
    members = []
    for household in rows_of(data / "household-records.txt"):
        where = blocks.get(tuple(household[c] for c in ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")), {})
        members.append((household, where, iterations_of(household, params, config["max_race_codes"])))
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {f"t3/T0300{i}": [] for i in (1, 2, 3, 4)}
    found |= {f"t4/T0400{i}": [] for i in (1, 2)}
    for row in rows_of(data / "pop-group-totals.txt"):
        region, kind, code, people = row.values()
        flag = own[code]["COARSE_ONLY" if kind in WIDE else "DETAILED_ONLY"]
        if not runs["72" if kind.startswith("PR-") else ""] or flag != "False":
            continue
        mine = [h for h, where, codes in members if where.get(kind) == region and code in codes]
        for table, column, cells in (("t3", "HOUSEHOLD_TYPE", TYPES), ("t4", "TEN", TENURES)):
            level = f"{own[code]['LEVEL']}_{kind.lower().replace('-', '_')}"
            if not config[f"privacy_budget_h_{table}_level_{level}"]:
                continue
            steps = config[f"thresholds_h_{table}"][f"({kind}, {own[code]['LEVEL']})"]
            stat = sum(step <= int(people) for step in steps)
            counts: Counter[str] = Counter()
            for cell, values in cells[stat].items():
                sums = (SUMS if table == "t3" else {}).get(cell, "0") if stat else ""
                for each in {cell, *sums}:
                    counts[each] += sum(h[column] in values for h in mine)
            number = f"{table}/T0{table[1]}00{stat + 1}"
            found[number] += [
                ((kind, region, code, c), f"{region}|{kind}|{code}|{c}|{n}") for c, n in counts.items()
            ]
    return {name: [line for _, line in sorted(rows)] for name, rows in found.items()}
