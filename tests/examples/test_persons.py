"""The 2020 run of DHC persons: production's budget, shares and recodes, and a release that breaks no constraint."""

from __future__ import annotations

import csv
import shutil
import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from benchmarks.dhc_persons_run import codes
from benchmarks.persons import AFTER, BEFORE, FACTS, LEVELS, RESULTS, constraints, errors
from examples.persons.people import AGES, QUARTERS, write
from examples.redistricting.state import State

import tabulae as tb
from tabulae.spec import read_spec

ROOT = Path(__file__).parents[2]
SPEC = tomllib.loads((ROOT / "examples/dhc-persons.toml").read_text(encoding="utf-8"))
RUN = tomllib.loads(FACTS.read_text(encoding="utf-8"))
OURS = {"group": "block_group"}
"""What production calls a level of the example, where that is another name: the file has block groups, too."""


def classes(name: str) -> list[int]:
    """The class of each category of a recode of the example, classes numbered as they come."""
    entry = SPEC["recodes"][name]
    if "edges" in entry:
        return np.searchsorted(entry["edges"], np.arange(116), side="right").tolist()
    with (ROOT / "examples" / entry["map"]).open(encoding="utf-8", newline="") as file:
        given = [row["class"] for row in sorted(csv.DictReader(file), key=lambda row: int(row["code"]))]
    order = list(dict.fromkeys(given))
    return [order.index(each) for each in given]


def test_every_level_and_query_has_the_rho_of_the_2020_census() -> None:
    levels = list(RUN["levels"])
    budget, shares = Fraction(RUN["budget"]), {name: Fraction(s) for name, s in RUN["levels"].items()}
    assert Fraction(SPEC["privacy"]["budget"]) == budget
    assert len(SPEC["geography"]["query"]) == len(RUN["query"]) == 10
    assert [OURS.get(level, level) for level in SPEC["geography"]["levels"]] == levels
    for level, theirs in zip(SPEC["geography"]["levels"], levels, strict=True):
        assert Fraction(SPEC["geography"]["shares"][level]) == shares[theirs]
        for mine, query in zip(SPEC["geography"]["query"], RUN["query"], strict=True):
            assert mine["attributes"] == query["attributes"]
            assert Fraction(mine["shares"][level]) == Fraction(query["shares"][levels.index(theirs)])
    assert [q.get("in_pass", 1) - 1 for q in SPEC["geography"]["query"]] == [
        int(q in RUN["pass"][1]["queries"]) for q in range(10)
    ]


def test_recodes_held_table_and_bound_are_those_of_production() -> None:
    for name, recode in RUN["recodes"].items():
        wanted: dict[int, int] = {}
        for number, group in enumerate(recode["groups"]):
            wanted |= dict.fromkeys(codes(group), number)
        order = list(dict.fromkeys(wanted[code] for code in sorted(wanted)))
        assert classes(name) == [order.index(wanted[code]) for code in sorted(wanted)], name
        assert SPEC["recodes"][name]["of"] == recode["of"]
    assert SPEC["earlier"][0]["attributes"] == RUN["held"]["attributes"]
    assert SPEC["bound"][0]["attributes"] == [RUN["bound"]["attribute"]]
    with (ROOT / "examples/persons/hhgq8lev.csv").open(encoding="utf-8", newline="") as file:
        assert tuple(dict.fromkeys(row["label"] for row in csv.DictReader(file))) == QUARTERS


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples with a small state, the release that is held, and a ledger that pays for both."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("redistricting", "persons"):
        shutil.copytree(ROOT / "examples" / name, folder / name)
    State.make(2_000, 100, 2, 8).write(folder / "redistricting")
    write(folder / "redistricting", folder / "persons", 3)
    for name in ("redistricting", "dhc-persons"):
        shutil.copy(ROOT / f"examples/{name}.toml", folder)
    tb.Ledger.create(folder / "redistricting.db", 8, "zcdp", neighbours="replace", unit="person")
    tb.run(folder / "redistricting.toml", folder / BEFORE)
    return folder


def test_the_people_are_those_of_redistricting(tmp_path: Path) -> None:
    State.make(2_000, 100, 2, 8).write(tmp_path)
    write(tmp_path, tmp_path / "persons", 3)
    before, after = (
        parquet.read_table(path / "people.parquet").to_pydict() for path in (tmp_path, tmp_path / "persons")
    )
    hhgq = dict(zip(map(str, range(42)), (QUARTERS[i] for i in classes("hhgq8lev")), strict=True))
    adult = ["adult" if age >= 18 else "minor" for age in after["age"]]
    mine = zip(
        after["block"], map(hhgq.get, after["relgq"]), adult, after["hispanic"], after["cenrace"], strict=True
    )
    assert sorted(mine) == sorted(zip(*before.values(), strict=True))
    for kind, age in zip(after["relgq"], after["age"], strict=True):
        low, high = AGES.get(int(kind), (0, 115))
        assert low <= age <= high
    wrong = {kind: set(codes(ages)) for kind, ages in RUN["structural_zeros"].items()}
    assert not any(age in wrong.get(kind, ()) for kind, age in zip(after["relgq"], after["age"], strict=True))


@pytest.mark.long
def test_a_release_breaks_no_constraint_and_an_altered_one_is_found(examples: Path) -> None:
    geography = read_spec(examples / "dhc-persons.toml").geography
    assert geography is not None
    assert geography.layout.domain.size == 1_227_744
    assert geography.layout.cell.size == 905_184  # structural zeros as production has them
    release = tb.run(examples / "dhc-persons.toml", examples / AFTER)
    assert release.verify() == []
    found = constraints(examples)
    assert {rule: broken for rule, (_, broken) in found.items() if broken} == {}
    assert all(counted for counted, _ in found.values())
    assert tuple(errors(examples)) == LEVELS[:6]
    _plant(examples / AFTER)
    broken = {rule for rule, (_, number) in constraints(examples).items() if number}
    assert {*list(found)[:5]} <= broken


def _plant(folder: Path) -> None:
    """Everybody is a newborn at a military disciplinary barracks."""
    path = folder / "microdata.parquet"
    rows = parquet.read_table(path)
    for name, value in (("relgq", "23"), ("age", "0")):
        column = pa.array([value] * rows.num_rows)
        rows = rows.set_column(rows.column_names.index(name), name, column)
    parquet.write_table(rows, path)


def test_the_page_has_the_results_of_the_benchmark() -> None:
    page = (ROOT / "docs/methods/many-cells.md").read_text(encoding="utf-8")
    with RESULTS.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert rows
    for row in rows:
        assert row["broken"] == "0"
        sizes = [
            f"{float(row[name]):,.0f}"
            for name in ("blocks", "people", "cpu_s", "wall_s", "peak_mb", "constraints")
        ]
        told = [row[f"error_{level}"] for level in LEVELS[:6]]
        assert f"| {' | '.join([*sizes, row['broken'], *told])} |" in page
