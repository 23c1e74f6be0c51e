"""A real spine: all blocks of Rhode Island in 2020, planned without data."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tabulae.products.areas.plan import EntityDistance, GeographyPlan, plan_geography

BLOCKS = Path(__file__).parents[3] / "shared" / "data" / "ri_2020_blocks.csv"
LEVELS = ("nation", "state", "county", "tract", "block_group", "block")
SPEC = """
[source]
path = "people.parquet"
[attributes]
race = { categories = ["a", "b", "c", "d", "e", "f", "g", "h"] }
adult = { categories = ["no", "yes"] }
[privacy]
definition = "zcdp"
budget = "2.556"
neighbours = "replace"
ledger = "ledger.db"
[geography]
column = "block"
file = "spine.csv"
levels = ["nation", "state", "county", "tract", "block_group", "block"]
SPLIT
OPTIMISE
entities = ["cousub", "place", "aiannh"]
outside = { cousub = "00000", place = "99999", aiannh = "9999" }
shares = { nation = "104/4099", state = "1440/4099", county = "447/4099", tract = "687/4099", block_group = "1256/4099", block = "165/4099" }
[[geography.query]]
attributes = []
shares = { nation = "1/2", state = "1/2", county = "1/2", tract = "1/2", block_group = "1/2", block = "1/20" }
[[geography.query]]
attributes = ["race", "adult"]
shares = { nation = "1/2", state = "1/2", county = "1/2", tract = "1/2", block_group = "1/2", block = "19/20" }
[[table]]
name = "total"
attributes = []
[[table]]
name = "cells"
attributes = ["race", "adult"]
"""  # noqa: E501


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not BLOCKS.exists():
        pytest.skip("needs ../shared/data/ri_2020_blocks.csv, the blocks of Rhode Island")
    base = tmp_path_factory.mktemp("island")
    with BLOCKS.open() as given, (base / "spine.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*LEVELS, "cousub", "place", "aiannh"])
        for row in csv.DictReader(given):
            block = row["GEOID20"]
            levels = ["US", block[:2], block[:5], block[:11], block[:12], block]
            out.writerow([*levels, row["COUSUBFP"], row["PLACEFP"], row["AIANNHCE"]])
    return base


def planned(folder: Path, split: str = "", optimise: str = "") -> GeographyPlan:
    path = folder / "spec.toml"
    path.write_text(SPEC.replace("SPLIT", split).replace("OPTIMISE", optimise))
    return plan_geography(path)


def distances(made: GeographyPlan) -> dict[str, EntityDistance]:
    return {row.entity_type: row for row in made.distances}


def test_mean_distances_of_the_three_spines(folder: Path) -> None:
    split = "split = \"aiannh <> '9999'\""
    plain = distances(planned(folder))
    assert [round(plain[name].mean, 1) for name in ("cousub", "place", "aiannh")] == [8.3, 25.9, 25.0]
    keyed = distances(planned(folder, split, 'optimise = { entities = ["cousub"] }'))
    assert keyed["cousub"].mean < 6.75
    assert keyed["place"].mean < 23.2
    assert keyed["aiannh"].mean == 1
    assert keyed["aiannh"].conventional_mean == 25
    both = distances(planned(folder, split, 'optimise = { entities = ["cousub", "place"] }'))
    assert both["place"].mean == pytest.approx(6.5, abs=0.05)


def test_errors_of_every_level_and_entity(folder: Path) -> None:
    made = planned(folder, "", 'optimise = { entities = ["cousub", "place"] }')
    rows = {(row.table, row.area_type): row for row in made.table_errors}
    assert len(rows) == 2 * 9
    assert rows["total", "block"].areas == 25_649
    plain = {(row.table, row.area_type): row for row in planned(folder).table_errors}
    for entity in (
        "cousub",
        "place",
    ):  # what is drawn anew for them has smaller errors, and what it cuts larger ones
        assert rows["total", entity].rmse < plain["total", entity].rmse
    assert rows["total", "block_group"].rmse > plain["total", "block_group"].rmse
