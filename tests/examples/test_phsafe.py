"""The example of PHSafe's tables: without noise, row for row what the Bureau's own tests expect."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tabulae.products.product import records_of, rules_of
from tabulae.products.tables.count import tabulate
from tabulae.sources.units import UnitRule
from tabulae.spec import Spec, read_spec

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/phsafe.toml"
BUREAU = ROOT.parent / "shared/data/production-2020/sdhc/tests"
CASES = [
    pytest.param(f"test{i}", marks=[] if i == 9 else pytest.mark.long, id=f"test{i}") for i in range(1, 12)
]
LETTERS = {"all": "*", "hispanic": "H", "white": "I"}
CELLS = {"grown": {"0-17": "2", "18-115": "3"}}
FAMILIES = {"1": 3, "3": 8, "10": 13, "6": 18}
"""The first of the four cells of each family type of PH6."""


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def counted(spec: Spec, folder: Path) -> dict[tuple[str, ...], int]:
    """(table, state, iteration, cell) -> count, of all that are not 0."""
    text = EXAMPLE.read_text().replace('path = "', f'path = "{folder}/')
    here = Spec.from_text(text, EXAMPLE.parent)
    counts = tabulate(records_of(here), spec.domain, rules_of(spec), UnitRule("MAFID", 10, bytes(32)))
    found: dict[tuple[str, ...], int] = {}
    for table in spec.workload.tables:
        answers = counts.records(table.operator(spec.domain))
        columns = table.columns(spec.domain)
        shape = [len(labels) for labels in columns.values()]
        for place in np.flatnonzero(answers):
            at = np.unravel_index(place, shape)
            row = {name: labels[i] for (name, labels), i in zip(columns.items(), at, strict=True)}
            found[_key(table.name, row)] = int(answers[place])
    return found


def _key(table: str, row: dict[str, str]) -> tuple[str, ...]:
    name, _, last = table.rpartition("_")
    if table in ("ph2", "ph6"):
        name, last = table, "all"
    iteration = row.get("iteration") or row.get("hh_iteration") or LETTERS[last]
    cell = row.get("condition") or CELLS["grown"].get(row.get("grown", ""), "1")
    if table == "ph6":
        cell = str(FAMILIES[row["hht2"]] + ["0-3", "4-5", "6-11", "12-17"].index(row["years"]))
    return name.upper().replace("NUM", "num").replace("DENOM", "denom"), row["state"], iteration, cell


def expected(folder: Path, measured: dict[str, set[str]]) -> dict[tuple[str, ...], int]:
    """Of the Bureau's outputs the cells of states that are measured: others are sums of these."""
    found = {}
    for file in folder.glob("PH*.csv"):
        for row in rows(file):
            cell = next(value for name, value in row.items() if name.endswith("DATA_CELL"))
            if row["REGION_TYPE"] == "STATE" and cell in measured.get(file.stem, ()):
                found[file.stem, row["REGION_ID"], row.get("ITERATION_CODE", "*"), cell] = int(row["COUNT"])
    return found


@pytest.fixture(scope="module")
def spec() -> Spec:
    return read_spec(EXAMPLE)


@pytest.mark.skipif(not BUREAU.exists(), reason="needs the Bureau's tests beside the checkout")
@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_of_the_bureaus_tests(case: str, spec: Spec, tmp_path: Path) -> None:
    state = {row["MAFID"]: row["STATE"] for row in rows(BUREAU / case / "geo.csv")}
    (tmp_path / "persons.csv").write_text((BUREAU / case / "persons.csv").read_text())
    units = rows(BUREAU / case / "units.csv")
    with (tmp_path / "units.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*units[0], "STATE"])
        writer.writeheader()
        writer.writerows({**unit, "STATE": state[unit["MAFID"]]} for unit in units)
    found = counted(spec, tmp_path)
    measured = {
        "PH1_num": {"2", "3"}, "PH1_denom": {"1"}, "PH2": {"3", "4", "6", "7", "9", "10", "12", "13"},
        "PH3": {"2", "4", "5", "6", "7", "9", "10"},
        "PH4": {"2", "3"}, "PH5_denom": {"1"}, "PH7": set("234"), "PH8_denom": {"2", "3"},
        "PH6": {str(first + i) for first in FAMILIES.values() for i in range(4)},
    }  # fmt: skip
    tables = {file.stem for file in (BUREAU / case).glob("PH*.csv")} & measured.keys()
    ours = {key: count for key, count in found.items() if key[0] in tables}
    assert tables
    assert ours == expected(BUREAU / case, measured)


def test_the_example_asks_for_every_table() -> None:
    text = EXAMPLE.read_text()
    names = re.findall(r'name = "(ph\d[a-z_0-9]*?)(?:_race|_hispanic|_white|_all)?"', text)
    asked = Counter(names)
    assert asked == {
        "ph1_num": 4, "ph1_denom": 4, "ph2": 1, "ph3": 4, "ph4": 4, "ph5_denom": 4, "ph6": 1, "ph7": 4, "ph8_denom": 4,
    }  # fmt: skip
