"""The synthetic population of the benchmarks of detailed groups."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest
from benchmarks.detailed_maps import write_maps

from benchmarks import detailed_population as population


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="|"))


@pytest.fixture(scope="module")
def hamlet(tmp_path_factory):
    return population.write_population(tmp_path_factory.mktemp("hamlet"), 20_000, maps=None)


def test_the_48_blocks_are_those_of_the_benchmark(hamlet):
    """2 states, 4 counties, 12 tracts, 8 places, 6 areas: with the 2020 maps 74,640 groups."""
    assert hamlet.regions == {"state": 2, "county": 4, "tract": 12, "place": 8, "aiannh": 6}
    assert 3 * 2996 + (4 + 12 + 8) * 2198 + 6 * 2150 == 74_640
    leaves = rows(hamlet.data / "GRF-C.txt")
    assert len({tuple(leaf.values())[:4] for leaf in leaves}) == hamlet.blocks == 48
    states = {
        area: {leaf["TABBLKST"] for leaf in leaves if leaf["AIANNHCE"] == area} for area in ("0001", "0004")
    }
    assert states == {"0001": {"01", "02"}, "0004": {"01", "02"}}


def test_every_person_is_admissible(hamlet):
    people = rows(hamlet.data / "person-records.txt")
    leaves = {tuple(leaf.values())[:4] for leaf in rows(hamlet.data / "GRF-C.txt")}
    known = {row["RACE_ETH_CODE"] for row in rows(hamlet.params / "race-and-ethnicity-codes.txt")}
    assert len(people) == hamlet.people
    for person in people:
        assert tuple(person[name] for name in ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")) in leaves
        assert 0 <= int(person["QAGE"]) <= 115
        assert person["QSEX"] in ("1", "2")
        codes = [person[f"QRACE{i}"] for i in range(1, 9)]
        many = 8 - codes.count("Null")
        assert many
        assert set(codes[:many]) | {person["QSPAN"]} <= known
        assert codes[many:] == ["Null"] * (8 - many)


def test_shares_are_those_that_were_asked_for(hamlet):
    """20,000 draws each: six standard deviations on each side, so a false alarm in less than one run of 10^7."""
    people = rows(hamlet.data / "person-records.txt")
    male = Counter(person["QSEX"] for person in people)["1"] / len(people)
    assert abs(male - 0.49) < 6 * 0.5 / len(people) ** 0.5
    one = sum(person["QRACE2"] == "Null" for person in people) / len(people)
    # the texts are themselves 8,192 draws a kind of tract, of which there are five or more
    assert abs(one - 0.85) < 6 * 0.36 * (1 / len(people) + 1 / (5 * population.SLOTS)) ** 0.5


@pytest.mark.long
def test_a_seed_gives_the_same_bytes_and_another_others(tmp_path):
    def written(name, seed):
        made = population.write_population(tmp_path / name, 3000, "nation", maps=None, scale=1e-4, seed=seed)
        return [(made.data / file).read_bytes() for file in ("GRF-C.txt", "person-records.txt")]

    first, again, other = written("a", 1), written("b", 1), written("c", 2)
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]
    assert first[1].endswith(b"\n")
    assert b'"' not in first[1]


@pytest.mark.long
def test_the_nation_has_all_states_and_one_in_a_hundred_in_puerto_rico(tmp_path):
    made = population.write_population(tmp_path, 5000, "nation", maps=None, scale=1e-4)
    people = rows(made.data / "person-records.txt")
    config = json.loads((made.params / "config.json").read_text())
    assert made.regions["state"] == 52
    assert made.regions["county"] >= 52
    assert Counter(person["TABBLKST"] for person in people)["72"] == 50
    assert len(config["state_filter_us"]) == 51
    assert config["run_us"] is config["run_pr"] is True
    assert config["reader"] == "csv"


@pytest.mark.parametrize("groups", [24, 60, 2000])
def test_small_maps_have_about_as_many_groups_as_asked(tmp_path, groups):
    made = write_maps(tmp_path, groups)
    races = rows(tmp_path / "race-characteristic-iterations.txt")
    ethnicities = rows(tmp_path / "ethnicity-characteristic-iterations.txt")
    codes = [row["ITERATION_CODE"] for row in races + ethnicities]
    assert len(set(codes)) == len(codes) == made + 1
    assert abs(made - groups) <= max(4, groups // 10)
    linked = {row["ITERATION_CODE"] for row in rows(tmp_path / "race-and-ethnicity-code-to-iteration.txt")}
    assert linked == set(codes)


def test_maps_of_an_impossible_size_are_refused(tmp_path):
    with pytest.raises(ValueError, match="from 24 to"):
        write_maps(tmp_path, 5)
