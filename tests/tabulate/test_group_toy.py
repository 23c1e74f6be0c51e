"""The ten persons of the toy files, through the whole engine: the groups of each are those of the definition."""

from __future__ import annotations

import numpy as np
import pytest
from tests.domain.toy_maps import DATA, TOY, needs_maps, read_map, rows

from tabulae.domain import Ladder, Regions
from tabulae.errors import SpecError
from tabulae.interop.safetab.lines import Code, Key, LineColumn, LineLayout, Listed, Unused, WholeNumber
from tabulae.interop.safetab.persons import open_group_lines
from tabulae.products.groups.levels import AdaptivePlan

from .group_oracle import Person, by_definition, entries_of, level

BLOCK = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")
PERSONS = DATA / "toy" / "person-records.txt"


def ladder() -> Ladder:
    ages = (["0-17", "18-44", "45-64", "65-115"], np.repeat(range(4), [18, 27, 20, 51]).tolist())
    return Ladder.of({"sex": 2, "age": 116}, [("sex*age4", {"sex": (["1", "2"], [0, 1]), "age": ages})])


def toy(most: int, blocks: list[tuple[str, ...]]) -> tuple[AdaptivePlan, LineLayout]:
    groups, tables = read_map(TOY, most), ladder()
    race, ethnicity = groups.families
    nation = Regions("nation", ("1",), np.array([-1 if block[0] == "72" else 0 for block in blocks]))
    county = Regions.from_codes("county", [block[0] + block[1] for block in blocks])
    levels = [level(regions, groups, of, tables) for regions in (nation, county) for of in "12"]
    races = [Code(race, None if i == 1 else "Null", r"[1-9]\d{3}", read=i <= most) for i in range(1, 9)]
    columns = (
        LineColumn("QAGE", WholeNumber("age", 0, 115)),
        LineColumn("QSEX", Listed("sex", ("1", "2"))),
        LineColumn("HOUSEHOLDER", Unused()),
        *(LineColumn(name, Key()) for name in BLOCK),
        LineColumn("CENRACE", Unused()),
        *(LineColumn(f"QRACE{i}", rule) for i, rule in enumerate(races, start=1)),
        LineColumn("QSPAN", Code(ethnicity, None, r"[1-9]\d{3}")),
    )
    return AdaptivePlan(tuple(levels)), LineLayout(columns, blocks)


@needs_maps
@pytest.mark.parametrize("most", [1, 3, 8])
def test_the_toy_persons(most: int) -> None:
    blocks = [tuple(row[name] for name in BLOCK) for row in rows(DATA / "toy" / "GRF-C.txt")]
    plan, layout = toy(most, blocks)
    people = []
    for row in rows(PERSONS):
        race = tuple(code for i in range(1, most + 1) if (code := row[f"QRACE{i}"]) != "Null")
        leaf = blocks.index(tuple(row[name] for name in BLOCK))
        people.append(
            Person(leaf, int(row["QSEX"]) - 1, int(row["QAGE"]), {"race": race, "ethnicity": (row["QSPAN"],)})
        )
    with open_group_lines(PERSONS, layout, plan) as counts:
        assert counts.records == 10
        found = entries_of(counts, plan)
    assert found == by_definition(people, plan)
    assert all(found)


@needs_maps
def test_a_person_whose_block_is_unknown_is_refused_by_line() -> None:
    blocks = [tuple(row[name] for name in BLOCK) for row in rows(DATA / "toy" / "GRF-C.txt")]
    plan, layout = toy(8, [block for block in blocks if block[0] != "72"])
    with (
        pytest.raises(
            SpecError, match=r"line 8, column TABBLKST, .*the geography has no such leaf"
        ) as caught,
        open_group_lines(PERSONS, layout, plan),
    ):
        pass
    assert "line 11" in str(caught.value)
    assert "72|031|050901|2040" in str(caught.value.confidential)
