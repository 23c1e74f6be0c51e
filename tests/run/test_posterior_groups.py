"""Releases of groups with estimate = "posterior": whole tables that add up over cells and regions, checks, refusals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.guild import counted, people
from tests.passages import changed
from tests.run.drawn import few_draws, worth_at_least

import tabulae as tb
from tabulae.domain import Regions
from tabulae.errors import SpecError, Unsupported
from tabulae.products.groups import posterior
from tabulae.release import folder as f
from tabulae.spec import read_spec

METHOD = '[detailed]\ngroups = "groups.csv"'
DRAWN = f'[method]\nestimate = "posterior"\nseed = 4\n\n{METHOD}'
BUDGET = 'budget = "3"\nledger'


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws and sweeps, and credible intervals whatever the draws are worth."""
    few_draws(monkeypatch, posterior, burnt=20, every=1)


def _spec(guild: Path, *changes: tuple[str, str]) -> Path:
    return changed(guild, (METHOD, DRAWN), *changes)


def test_whole_tables_of_groups_add_up_and_check_finds_what_was_altered(
    guild: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One release, because it takes seconds."""
    release = tb.run(_spec(guild), guild.parent / "release")
    assert release.verify() == []
    totals = release.tables["totals"].to_pandas()
    tables = {name: rows.to_pandas() for name, rows in release.tables.items() if name != "totals"}
    for rows in (totals, *tables.values()):
        assert (rows["estimate"] >= 0).all()
        assert (rows["estimate"] == rows["estimate"].round()).all()
        for low, high in (("ci_low", "ci_high"), ("credible_low", "credible_high")):
            assert ((rows[low] <= rows["estimate"]) & (rows["estimate"] <= rows[high])).all()
    place = ["region_type", "region", "group"]
    whole = totals.set_index(place)["estimate"]
    assert tables
    for rows in tables.values():  # cells add up to totals
        sums = rows.groupby(place)["estimate"].sum()
        assert (sums.to_numpy() == whole.loc[sums.index].to_numpy()).all()
    for group in ("bakers", "cooks", "tailors", "tailors only"):  # towns add up to shires
        assert whole["town", "a1", group] + whole["town", "a2", group] == whole["shire", "A", group]
        assert whole["town", "b1", group] == whole["shire", "B", group]
    rows = pq.read_table(release.path / "implicates.parquet").to_pandas()
    assert rows.columns.tolist() == ["draw", "group", "nation", "shire", "town", "sex", "age2", "count"]
    assert rows["draw"].unique().tolist() == list(range(1, 41))
    assert (rows["count"] > 0).all()
    for kind in ("nation", "shire", "town"):
        some = totals[totals["region_type"] == kind].set_index(["group", "region"])
        drawn = (
            rows.groupby(["draw", "group", kind], observed=True)["count"].sum().unstack("draw", fill_value=0)
        )
        low, high = (np.sort(drawn.to_numpy())[:, at] for at in (0, -1))
        told = some.loc[drawn.index]
        assert (told["credible_low"] == np.minimum(low, told["estimate"])).all()
        assert (told["credible_high"] == np.maximum(high, told["estimate"])).all()
    report = (release.path / "report.html").read_text()
    assert "Two kinds of interval" in report
    assert "Type of region" in report
    assert "groups by town" in report
    stored = pq.read_table(release.path / "implicates.parquet")
    count = stored["count"].to_numpy().copy()
    count[7] += 1
    altered = stored.set_column(stored.num_columns - 1, "count", pa.array(count))
    pq.write_table(altered, release.path / "implicates.parquet")
    about = json.loads((release.path / "posterior.json").read_text())
    f.write_json(release.path / "posterior.json", {**about, "seed": 5, "measurements": "0"})
    f.write_sums(release.path)
    worth_at_least(monkeypatch, 1000)  # not what the release was made with
    faults = "\n".join(tb.Release.read(release.path).verify())
    for told in (
        "implicates.parquet: draw 1 is not the one that the measurements and the seed give",
        "posterior.json: its seed is not that of spec.toml",
        "posterior.json: its measurements are not those of this release",
        "tables/totals.parquet: credible_low, credible_high are not what the measurements say",
    ):
        assert told in faults


@pytest.mark.long
@pytest.mark.parametrize("definition", ["zcdp", "pure"])
def test_with_much_budget_draws_are_the_people_who_are_there(
    guild: Path, quick: None, definition: str
) -> None:
    """Noise of next to nothing, Gaussian and Laplace: every total is the true one, and every cell of a table.

    Under Laplace noise a chain can stay where two people of a town stand in each other's cells: draws are one off.
    """
    text = _spec(guild, (BUDGET, BUDGET.replace('"3"', '"2000"'))).read_text()
    for budget in ("1", "1/2"):
        text = text.replace(f'budget = "{budget}"\nthresholds', 'budget = "600"\nthresholds')
    text = text.replace('"zcdp"', f'"{definition}"').replace('"ledger.db"', '"much.db"')
    guild.write_text(text)
    tb.Ledger.create(guild.parent / "much.db", 2000, definition)
    tables = tb.run(guild, guild.parent / "release").tables
    told = Counter[str]()
    for name, rows in tables.items():
        for row in rows.to_pylist():
            cell = row.get("sex", "FM"), *map(int, row.get("age2", "0-9").split("-"))
            some = [each for each in people(400) if each[1] in cell[0] and cell[1] <= each[2] <= cell[2]]
            true = counted(some)[row["region_type"], row["region"], row["group"]]
            off = 1 if definition == "pure" and name != "totals" else 0
            assert abs(row["estimate"] - true) <= off, row
            told[name] += row["estimate"] > 0
    assert len(told) == 3
    assert min(told.values()) > 5


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        (("seed = 4", "seed = 4\ntime_limit = 3"), "method.time_limit", "follow from"),
        (('estimate = "posterior"\nseed = 4', 'estimate = "bluedown"'), "method.estimate", "no method for groups"),
        (('estimate = "posterior"', 'estimate = "two-stage"'), "method.seed", "follow from"),
    ],
)  # fmt: skip
def test_a_method_that_groups_do_not_have_is_refused_with_its_key(
    guild: Path, change: tuple[str, str], path: str, says: str
) -> None:
    with pytest.raises(SpecError) as refused:
        read_spec(_spec(guild, change))
    assert any(each.path == path and says in each.message for each in refused.value.problems), refused.value


def test_regions_that_do_not_nest_are_refused_by_name() -> None:
    """Places lie across states; each group's own region types are looked at."""
    states = Regions("state", ("s", "t"), np.array([0, 0, 1, 1]))
    places = Regions("place", ("p", "q", "r"), np.array([0, 1, 1, 2]))
    counties = Regions("county", ("a", "b", "c"), np.array([0, 1, 2, -1]))
    with pytest.raises(
        Unsupported, match="place 'q' lies in several regions of a larger type: leave place out"
    ):
        posterior._region_tree([states, places], (states, places))
    parent, region = posterior._region_tree([states, counties], (states, counties))
    assert parent.tolist() == [-1, 0, 0, 1, 1, 2, 2]  # what is left of state t lies in no county
    assert region.tolist() == [[-1, -1], [0, -1], [1, -1], [0, 0], [0, 1], [1, 2], [1, -1]]


def test_what_cannot_be_drawn_of_groups_is_refused_in_plan(
    guild: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spec(guild)
    monkeypatch.setattr(posterior, "LARGEST", 10)
    with pytest.raises(Unsupported, match="up to 10 are drawn"):
        tb.plan(guild)
