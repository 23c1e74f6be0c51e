"""Groups, stability and suppression of a run."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.each import each
from tests.membership import groups_of
from tests.safetab.oracle import threshold
from tests.safetab.world import MEMBERS, REAL, TOY, World, config, needs_shared, problems

from tabulae.domain import group_stability
from tabulae.errors import SpecError
from tabulae.interop.safetab import check
from tabulae.interop.safetab.maps import group_map, production_stability, read_maps
from tabulae.interop.safetab.programs import PERSONS, age_ranges
from tabulae.interop.safetab.text import Faults
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace
from tabulae.products.groups.spec import Suppression

GOLDEN = [
    ("1010", "1010", "2001,3001,1130,1140", None),
    ("1010,1020,1021", "2000", "2001,1130,1140,1150", "2001,1130,1140,1810"),
    ("1011,1012,1021", "1010", "2001,1130,1140,1150", "2001,1130,1140,1810"),
    ("1012,1020", "2010", "2001,1130,1140,1150,3010", "2001,1130,1140,1810,3010"),
    ("1001,1031", "1010", "2001,1130", "2001,1130,1810"),
    ("1021,1021,1020", "1010", "2001,4001,1130,1150", "2001,7000,1130,1810"),
    ("1021", "2040", "2001,4001,1130,1150,3042", "2001,7000,1130,1810,3040"),
    ("1020,3166,1021", "1000", "1150,1130,3060", "1130,1810,3060"),
    ("1010,3105,7030", "2020", "1130,1140,1820,1850,2930,2940,3010,3011", None),
]


@needs_shared
@pytest.mark.parametrize(("races", "ethnicity", "wide", "narrow"), GOLDEN)
def test_the_golden_cases(races: str, ethnicity: str, wide: str, narrow: str | None) -> None:
    groups = group_map(read_maps(TOY / "input_dir_zcdp", Faults()), 3)
    carried = {"race": races.split(","), "ethnicity": [ethnicity]}
    for region, expected in (("STATE", wide), ("PR-TRACT", narrow or wide)):
        found = groups_of(groups.at("1", region), carried) | groups_of(groups.at("2", region), carried)
        assert found == set(expected.split(","))


@needs_shared
def test_production_stability() -> None:
    """9 for the maps of 2020 and 8 for the toy's over all iterations of a level; 4 over those that are tabulated."""
    toy, real = (read_maps(folder, Faults()) for folder in (TOY / "input_dir_zcdp", REAL))
    toy_groups, real_groups = group_map(toy, 3), group_map(real, 8)
    assert production_stability(toy_groups.at("2", None), 3) == 8
    assert (
        production_stability(toy_groups.at("2", "USA"), 3)
        == 4
        == group_stability(toy_groups.at("2", "USA")).value
    )
    for region in (None, "USA", "COUNTY"):
        assert [production_stability(real_groups.at(level, region), 8) for level in ("1", "2")] == [9, 9]
    assert production_stability(group_map(real, 1).at("1", None), 1) == 3  # two codes count at least


def test_proven_stability_is_the_default(tmp_path: Path) -> None:
    inputs = check(*World().write(tmp_path))
    for level in inputs.plan.adaptive.levels:
        assert level.groups_of_a_record == level.proven.value


def test_production_stability_where_it_is_a_bound(tmp_path: Path) -> None:
    inputs = check(*World(config(max_race_codes=8)).write(tmp_path), rule="production")
    for level, production in zip(inputs.plan.adaptive.levels, inputs.production, strict=True):
        assert level.groups_of_a_record == production >= level.proven.value
    assert any(level.groups_of_a_record > level.proven.value for level in inputs.plan.adaptive.levels)


def test_production_stability_where_it_is_no_bound(tmp_path: Path) -> None:
    # Two codes share an iteration alone, and have three different ones in combination.
    members = [
        "ITERATION_CODE|RACE_ETH_CODE",
        "2001|1010",
        "2001|1020",
        "2100|1010",
        "2103|1010",
        "2104|1020",
        "",
    ]
    world = World(config(max_race_codes=2), files={MEMBERS: "\n".join(members)})
    known = problems(world, tmp_path, rule="production")
    assert {path for path, *_ in known} == {MEMBERS}
    assert all("it is not a bound" in message for *_, message in known)
    assert any("gives 2" in message and "belong to 4" in message for *_, message in known)
    assert problems(world, tmp_path) == []


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
def test_noise_is_sized_by_the_papers_formulas(tmp_path: Path, definition: str) -> None:
    inputs = check(*World(config(privacy_defn=definition)).write(tmp_path))
    for level in inputs.plan.adaptive.levels:
        s, budget = level.proven.value, level.budget.amount
        for law, share in ((level.first, Fraction(1, 10)), (level.second, Fraction(9, 10)), (level.whole, 1)):
            wanted = s / (2 * share * budget) if definition == "zcdp" else s / (share * budget)
            assert law.parameter == wanted


SHARE = "privacy_budget_p_stage_1_fraction"
COUNTY = "privacy_budget_p_level_2_county"


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({COUNTY: 1e-30}, COUNTY, "is too small: the noise of COUNTY, level 2 would"),
        ({COUNTY: 1e-300}, COUNTY, "is too small"),
        ({SHARE: 1e-300}, SHARE, "is too small"),
        ({SHARE: "ONE"}, SHARE, "is too close to 1"),
    ],
)
def test_a_budget_whose_noise_would_be_beyond_measure(
    tmp_path: Path, definition: str, changes: dict[str, Any], key: str, words: str
) -> None:
    params, data = World(config(privacy_defn=definition, **changes)).write(tmp_path)
    text = (params / "config.json").read_text().replace('"ONE"', "0." + "9" * 40)
    (params / "config.json").write_text(text)
    with pytest.raises(SpecError) as caught:
        check(params, data)
    line = next(i for i, row in enumerate(text.splitlines(), 1) if f'"{key}"' in row)
    assert {(p.path, p.line, p.column) for p in caught.value.problems} == {("config.json", line, key)}
    assert words in caught.value.problems[0].message


def floor(law: DiscreteGaussian | DiscreteLaplace, chance: Fraction) -> int:
    return Suppression(chance, frozenset()).floor(law)


@each("law", [DiscreteGaussian("9.5"), DiscreteGaussian(625), DiscreteLaplace(3), DiscreteLaplace("71/3")])
@each("chance", ["0.001", "0.3", "0.5", "0.50001", "0.9", "0.95", "0.9999", "0.9999999"])
def test_suppression_is_the_least_quantile(law: DiscreteGaussian | DiscreteLaplace, chance: str) -> None:
    found = floor(law, Fraction(chance))
    assert found == threshold({law.word: str(law.parameter)}, Fraction(chance))


def test_the_suppression_of_2020() -> None:
    rho, chance = {"1": Fraction("0.008"), "2": Fraction("0.159")}, Fraction("0.9999")
    for level, expected in (("1", (93, 88)), ("2", (21, 20))):
        laws = [
            DiscreteGaussian(Fraction(9) / (2 * share * rho[level]))
            for share in (Fraction(9, 10), Fraction(1))
        ]
        assert tuple(floor(law, chance) for law in laws) == expected


def test_age_ranges() -> None:
    assert age_ranges("sex*age4") == ((0, 17), (18, 44), (45, 64), (65, 115))
    assert [low for low, _ in age_ranges("sex*age9")] == [0, 5, 18, 25, 35, 45, 55, 65, 75]
    assert age_ranges("sex*age23")[5:7] == ((20, 20), (21, 21))
    rungs = PERSONS.tabulations[""].ladder.rungs
    assert [rung.cells for rung in rungs] == [8, 18, 46]
    for rung in rungs:
        assert {high for _, high in age_ranges(rung.name)} >= {115}
