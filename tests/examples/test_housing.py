"""The runs of 2020 about housing units: production's budgets and shares, and releases that break no constraint."""

from __future__ import annotations

import shutil
import tomllib
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from benchmarks.units import RUNS, constraints
from examples.housing.units import CATEGORIES, ELDERLY, VACANT, Housing
from examples.redistricting.state import State

import tabulae as tb

ROOT = Path(__file__).parents[2]


def spec_of(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / f"examples/{name}.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples with a small state, and a ledger."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("redistricting", "housing"):
        shutil.copytree(ROOT / "examples" / name, folder / name)
    State.make(4_000, 120, 2, 8).write(folder / "redistricting")
    Housing.make(folder / "redistricting", 3).write(folder / "housing")
    for name in RUNS:
        shutil.copy(ROOT / f"examples/{name}.toml", folder)
    tb.Ledger.create(folder / "housing.db", 8, "zcdp", neighbours="replace", unit="unit")
    return folder


def test_housing_units_have_the_budget_and_shares_of_the_2020_census() -> None:
    spec = spec_of("housing-units")
    assert Fraction(spec["privacy"]["budget"]) == Fraction(3379, 12343) ** 2
    shares = {"nation": "1/205", "state": "1/205", "county": "7/82", "tract": "364/1025", "block_group": "1759/4100",
              "block": "99/820"}  # fmt: skip
    assert spec["geography"]["shares"] == shares
    assert sum(map(Fraction, shares.values())) == 1
    assert [query["attributes"] for query in spec["geography"]["query"]] == [["h1"]]


def test_the_three_files_are_about_the_same_units(examples: Path) -> None:
    housing, units, households = (
        parquet.read_table(examples / f"housing/{name}.parquet").to_pydict()
        for name in ("housing", "units", "households")
    )
    occupied = Counter(block for block, h1 in zip(*housing.values(), strict=True) if h1 == "Occupied")
    assert occupied == Counter(households["block"])
    kept = [
        (block, min(int(kind), 2)) for block, kind in zip(*units.values(), strict=True) if int(kind) < VACANT
    ]
    tenure = [int(code) for code in households["hhtenshort_3lev"]]
    assert Counter(kept) == Counter(zip(households["block"], tenure, strict=True))
    vacant = Counter(block for block, h1 in zip(*housing.values(), strict=True) if h1 == "Vacant")
    assert vacant == Counter(b for b, kind in zip(*units.values(), strict=True) if VACANT <= int(kind) < 11)
    pairs = set(zip(map(int, households["hhage"]), map(int, households["elderly"]), strict=True))
    assert all(ELDERLY[pair] > 0 for pair in pairs)
    for name, size in CATEGORIES.items():
        assert set(map(int, households[name])) <= set(range(size))


def test_a_release_of_housing_units_breaks_no_constraint(examples: Path) -> None:
    release = tb.run(examples / "housing-units.toml", examples / "h1")
    assert release.verify() == []
    found = constraints(examples, "housing-units")
    assert {rule: broken for rule, (_, broken) in found.items() if broken} == {}
    assert found["units of a block are the exact number"][0] > 100
