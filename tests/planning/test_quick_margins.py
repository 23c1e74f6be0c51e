"""Quick margins of areas are bounds of the exact ones, and are these where an area is asked alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import tabulae as tb
from tabulae.products.areas.plan import margins_at_targets, quick_margins
from tabulae.products.areas.spec.section import geography_of
from tabulae.spec import Spec

ROOT = Path(__file__).parents[2]
COUNTY = """
title = "County"
[source]
path = "people.csv"
unit = "person"
[attributes]
sex = { categories = ["F", "M"] }
age = { range = [0, 9] }
[privacy]
definition = "DEFINITION"
budget = "1/2"
ledger = "ledger.db"
[geography]
column = "block"
file = "spine.csv"
levels = ["county", "tract", "block"]
entities = ["place"]
shares = { county = "1/5", tract = "TRACT", block = "BLOCK" }
[[geography.query]]
attributes = []
shares = { county = "1/2", tract = "1/4" }
[[geography.query]]
attributes = ["sex", "age"]
shares = { county = "1/2", tract = "3/4", block = "1" }
[[table]]
name = "total"
attributes = []
[[table]]
name = "ages"
attributes = ["age"]
areas = ["AREA"]
"""


def _widest(spec: Spec) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in tb.plan(spec).errors.to_pylist():
        found[row["table"]] = max(row["margin"], found.get(row["table"], 0.0))
    return found


def _county(folder: Path, area: str, tract: str, block: str, definition: str = "zcdp") -> Spec:
    rows = [f"c,t{i % 5},t{i % 5}b{i},p{i % 4}" for i in range(23)]
    (folder / "spine.csv").write_text("\n".join(["county,tract,block,place", *rows]) + "\n")
    text = COUNTY.replace("AREA", area).replace("TRACT", tract).replace("BLOCK", block)
    if tract == "0":
        text = text.replace(', tract = "1/4"', "").replace(', tract = "3/4"', "")
    return Spec.from_text(text.replace("DEFINITION", definition), folder)


@pytest.mark.parametrize("definition", ["zcdp", "pure"])
@pytest.mark.parametrize("shares", [("1/5", "3/5"), ("0", "4/5")])
@pytest.mark.parametrize("area", ["county", "tract", "block", "place"])
def test_no_margin_is_wider_than_its_bound(
    tmp_path: Path, area: str, shares: tuple[str, str], definition: str
) -> None:
    spec = _county(tmp_path, area, *shares, definition)
    bounds, exact = quick_margins(geography_of(spec)), _widest(spec)
    assert bounds.keys() == exact.keys()
    assert all(exact[name] <= bounds[name] < 20 * exact[name] for name in exact)


def test_an_area_that_nothing_else_tells_of_has_the_exact_margin(tmp_path: Path) -> None:
    spec = _county(tmp_path, "block", "2/5", "2/5")
    text = spec.text.replace('"1/5"', '"0"').replace('tract = "2/5"', 'tract = "0"')
    text = text.replace('block = "2/5"', 'block = "1"').replace('county = "1/2", tract = "1/4"', "")
    text = text.replace('county = "1/2", tract = "3/4", ', "").replace(
        "[[geography.query]]\nattributes = []\nshares = {  }\n", ""
    )
    alone = Spec.from_text(text, tmp_path)
    bounds, exact = quick_margins(geography_of(alone)), _widest(alone)
    assert bounds == pytest.approx(exact)


def test_bounds_of_the_redistricting_example_hold() -> None:
    path = ROOT / "examples/redistricting.toml"
    spec = Spec.from_text(path.read_text(), path.parent)
    bounds, exact = quick_margins(geography_of(spec)), _widest(spec)
    assert all(exact[name] <= bounds[name] < 2 * exact[name] for name in exact)


@pytest.mark.parametrize("target", ["{ margin = 30 }", "{ rmse = 12 }"])
def test_where_targets_say_the_budget_margins_are_about_those_of_the_plan(
    tmp_path: Path, target: str
) -> None:
    text = _county(tmp_path, "tract", "1/5", "3/5").text.replace('budget = "1/2"', 'budget = "targets"')
    spec = Spec.from_text(
        text.replace('areas = ["tract"]', f'areas = ["tract"]\ntarget = {target}'), tmp_path
    )
    quick, exact = margins_at_targets(geography_of(spec)), _widest(spec)
    assert quick.keys() == exact.keys()
    assert all(exact[name] / 2 < quick[name] < 2 * exact[name] for name in exact)
    if "margin" in target:
        assert quick["ages"] == pytest.approx(30)
