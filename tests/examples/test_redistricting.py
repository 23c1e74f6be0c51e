"""The redistricting example: an invented state that keeps every rule exactly, and shares that add up."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from benchmarks.state_check import violations
from examples.redistricting import state as example
from examples.redistricting.state import State

import tabulae as tb

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/redistricting"
SPEC = tomllib.loads((ROOT / "examples/redistricting.toml").read_text(encoding="utf-8"))
LEVELS = SPEC["geography"]["levels"]
SIZES = [(60_000, 1_200, 3, 2020), (3_000, 50, 1, 1), (9_000, 700, 2, 5)]


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size[1]} blocks")
def state(request: pytest.FixtureRequest) -> State:
    return State.make(*request.param)


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def nests(inner: np.ndarray, outer: np.ndarray) -> bool:
    return len(set(zip(inner, outer, strict=True))) == len(set(inner))


def test_the_budget_and_every_share_are_those_of_the_2020_census() -> None:
    assert Fraction(SPEC["privacy"]["budget"]) == Fraction(542, 339) ** 2
    shares = {level: Fraction(share) for level, share in SPEC["geography"]["shares"].items()}
    assert shares == {
        level: Fraction(n, 4099) for level, n in zip(LEVELS, (104, 1440, 447, 687, 1256, 165), strict=True)
    }
    assert sum(shares.values()) == 1
    for level in LEVELS:
        asked = [Fraction(query["shares"].get(level, 0)) for query in SPEC["geography"]["query"]]
        assert sum(asked) == 1, level


@pytest.mark.parametrize(
    ("level", "total", "detailed"),
    [
        ("state", 1.10, 4.4), ("county", 2.17, 4.4), ("tract", 2.47, 4.4), ("block_group", 1.75, 2.0),
        ("block", 89.2, 3.18),
    ],
)  # fmt: skip
def test_the_noise_is_that_of_the_2020_census(level: str, total: float, detailed: float) -> None:
    """Standard deviations as they were published."""
    budget = Fraction(SPEC["privacy"]["budget"]) * Fraction(SPEC["geography"]["shares"][level])
    first, last = SPEC["geography"]["query"][0], SPEC["geography"]["query"][-1]
    assert float(1 / (budget * Fraction(first["shares"][level]))) ** 0.5 == pytest.approx(total, rel=0.01)
    assert float(1 / (budget * Fraction(last["shares"][level]))) ** 0.5 == pytest.approx(detailed, rel=0.02)


def test_the_code_lists_are_those_of_the_people() -> None:
    races = rows("races.csv")
    assert [row["code"] for row in races] == [f"{i:02d}" for i in range(1, 64)]
    named = ["; ".join(example.RACES[i] for i in c) for c in example.COMBINATIONS]
    assert [row["label"] for row in races] == named
    assert SPEC["attributes"]["hhgq"]["categories"] == list(example.QUARTERS)
    assert SPEC["attributes"]["votingage"]["categories"] == list(example.AGES)
    assert SPEC["attributes"]["hispanic"]["categories"] == list(example.HISPANIC)
    classes = Counter(row["class"] for row in rows("institutions.csv"))
    assert classes == {"1": 1, "2": 4, "3": 3}
    assert [row["code"] for row in rows("institutions.csv")] == list(example.QUARTERS)
    major = {row["code"]: row["label"] for row in rows("major_races.csv")}
    for row in races:
        alone = ";" not in row["label"]
        assert major[row["code"]] == (f"{row['label']} alone" if alone else "Two or more races")


def test_levels_nest_and_codes_are_unique(state: State) -> None:
    areas = state.areas
    assert len(set(areas["block"])) == areas["block"].size
    for outer, inner in pairwise(LEVELS):
        assert nests(areas[inner], areas[outer]), (inner, outer)
    assert nests(areas["cousub"], areas["county"])
    widths = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
    for level, width in widths.items():
        assert {len(code) for code in areas[level]} == {width}
        assert all(block.startswith(code) for block, code in zip(areas["block"], areas[level], strict=True))
    assert {len(code) for code in areas["cousub"]} == {len(code) for code in areas["place"]} == {5}
    assert {len(code) for code in areas["aiannh"]} == {4}


def test_places_and_tribal_areas_cut_across_the_levels() -> None:
    areas = State.make(*SIZES[0]).areas
    place = areas["place"] != example.NO_PLACE
    tribal = areas["aiannh"] != example.NO_TRIBE
    assert 0.2 < place.mean() < 0.6
    assert 0.01 < tribal.mean() < 0.15
    for level in ("block_group", "cousub"):
        assert not nests(areas[level], areas["place"])
    assert not nests(areas["tract"], areas["aiannh"])
    assert not nests(areas["tract"], areas["cousub"])
    assert np.all((areas["x"] > 0) & (areas["x"] < 1) & (areas["y"] > 0) & (areas["y"] < 1))


def test_areas_are_in_one_piece() -> None:
    """Blocks of a tract lie close together: of 26 tracts, each is about a fifth as wide as the map."""
    areas = State.make(9_000, 2_500, 3, 4).areas
    points = areas["x"] + 1j * areas["y"]

    def spread(of: np.ndarray) -> float:
        return float(np.abs(of - of.mean()).mean())

    within = [spread(points[areas["tract"] == tract]) for tract in sorted(set(areas["tract"]))]
    assert np.mean(within) < spread(points) / 4


def test_people_keep_every_rule(state: State) -> None:
    living = state.counts.sum(axis=(1, 2, 3))
    kind = np.array(example.QUARTERS)[state.kind]
    assert np.all(living >= state.buildings)
    assert np.all(state.buildings[kind == "household"] == 0)
    assert np.all(state.buildings[kind != "household"] >= 1)
    assert not state.counts[kind == "nursing", 0].any()
    assert len(set(zip(state.block, state.kind, strict=True))) == state.block.size
    blocks = np.unique(state.block).size
    assert state.areas["block"].size - blocks == blocks // 25


@pytest.mark.parametrize(("people", "blocks", "counties", "seed"), SIZES)
def test_as_many_people_and_areas_as_asked(people: int, blocks: int, counties: int, seed: int) -> None:
    made = State.make(people, blocks, counties, seed)
    assert made.counts.sum() == made.table().num_rows == people
    assert np.unique(made.block).size == blocks
    assert len(set(made.areas["county"])) == counties
    again, other = State.make(people, blocks, counties, seed), State.make(people, blocks, counties, seed + 1)
    assert np.array_equal(made.counts, again.counts)
    assert made.table().equals(again.table())
    assert not np.array_equal(made.areas["place"], other.areas["place"])


def test_what_is_asked_must_be_possible() -> None:
    with pytest.raises(ValueError, match="50 blocks"):
        State.make(1000, 100, 3)
    with pytest.raises(ValueError, match="too few"):
        State.make(1, 2000, 1)


def test_the_files_say_what_the_state_is(tmp_path: Path) -> None:
    made = State.make(*SIZES[1])
    made.write(tmp_path)
    table = parquet.read_table(tmp_path / "people.parquet").to_pydict()
    assert list(table) == ["block", *SPEC["attributes"]]
    counted = Counter(zip(table["block"], table["hhgq"], strict=True))
    with (tmp_path / "facilities.csv").open(newline="") as file:
        listed = {(row["block"], row["hhgq"]): int(row["at_least"]) for row in csv.DictReader(file)}
    assert set(counted) <= set(listed)
    assert all(counted[pair] >= least for pair, least in listed.items())
    cells = zip(*(table[name] for name in SPEC["attributes"]), strict=True)
    assert not any(cell[:2] == ("nursing", "minor") for cell in cells)
    with (tmp_path / "spine.csv").open(newline="") as file:
        spine = list(csv.DictReader(file))
    assert set(LEVELS) | {"cousub", "place", "aiannh", "x", "y"} == set(spine[0])
    assert {block for block, _ in listed} <= {row["block"] for row in spine}


def test_the_public_files_fit_each_other_and_the_spec() -> None:
    """Those beside the example, so that it can be planned before any record exists."""
    spine, facilities = rows("spine.csv"), rows("facilities.csv")
    assert {row["block"] for row in facilities} <= {row["block"] for row in spine}
    assert {row["hhgq"] for row in facilities} <= set(example.QUARTERS)
    assert all((row["hhgq"] == "household") == (row["at_least"] == "0") for row in facilities)
    outside = SPEC["geography"]["outside"]
    assert outside == {"place": example.NO_PLACE, "aiannh": example.NO_TRIBE}
    for name, code in outside.items():
        assert any(row[name] == code for row in spine)
        assert any(row[name] != code for row in spine)


def test_the_script_writes_the_sizes_it_is_asked_for(tmp_path: Path) -> None:
    line = [sys.executable, str(FOLDER / "state.py"), str(tmp_path), "--people", "2000", "--blocks", "100"]
    subprocess.run([*line, "--counties", "1", "--seed", "3"], check=True)
    assert parquet.read_metadata(tmp_path / "people.parquet").num_rows == 2000
    with (tmp_path / "spine.csv").open() as file:
        assert sum(1 for _ in file) == 105


@pytest.mark.parametrize("method", [pytest.param("topdown", marks=pytest.mark.long), "bluedown"])
def test_the_example_runs_and_breaks_no_rule(tmp_path: Path, method: str) -> None:
    """As its first lines say, in a folder of its own; every rule is counted by SQL over what was published."""
    text = (ROOT / "examples/redistricting.toml").read_text(encoding="utf-8")
    (tmp_path / "spec.toml").write_text(text.replace("bluedown", method), encoding="utf-8")
    shutil.copytree(FOLDER, tmp_path / "redistricting")
    State.make(5_000, 250, 2, 8).write(tmp_path / "redistricting")
    tb.Ledger.create(tmp_path / "redistricting.db", 3, "zcdp", neighbours="replace")
    release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert release.verify() == []
    found = violations(tmp_path / "release", tmp_path / "spec.toml")
    assert len(found) > 20
    assert set(found.values()) == {0}, found
