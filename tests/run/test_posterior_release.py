"""Releases with estimate = "posterior": implicates that add up to what is published, limits, checks, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.duchy import houses, plots
from tests.passages import changed
from tests.run.drawn import few_draws, worth_at_least

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.products.areas import posterior
from tabulae.release import folder as f
from tabulae.spec import read_spec

COARSER = """level = "parish"
reason = "the duke counts heads"

[[invariant]]
attributes = ["kind"]
level = "duchy"
reason = "and houses"
"""
METHOD = '[method]\nestimate = "posterior"\nseed = 4\n[release]\nmicrodata = true'


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws and sweeps, and credible intervals whatever the draws are worth."""
    few_draws(monkeypatch, posterior, burnt=10, every=1)


def _posterior(spec: Path, *changes: tuple[str, str]) -> Path:
    return changed(spec, ("[release]\nmicrodata = true", METHOD), *changes)


def test_implicates_are_whole_tables_that_published_intervals_come_from(duchy: Path, quick: None) -> None:
    """One release, because it takes seconds: sums, limits, intervals, and what check finds."""
    release = tb.run(_posterior(duchy), duchy.parent / "release")
    assert release.verify() == []
    about = json.loads((release.path / "posterior.json").read_text())
    rows = pq.read_table(release.path / "implicates.parquet").to_pandas()
    assert rows["draw"].unique().tolist() == list(range(1, about["implicates"] + 1))
    assert (rows["count"] > 0).all()
    assert (rows.groupby("draw")["count"].sum() == 500).all()  # the duke's exact count
    assert not ((rows["kind"] == "abbey") & (rows["age"] == "child")).any()
    lived = rows.groupby(["draw", "plot", "kind"])["count"].sum()
    for (plot, kind), least in houses().items():
        if least:
            assert (lived.xs((plot, kind), level=("plot", "kind")) >= least).all()
    where = {plot["plot"]: plot for plot in plots()}
    for kind in ("shire", "parish", "market"):
        rows[kind] = [where[plot][kind] for plot in rows["plot"]]
    total = release.tables["total"].to_pandas().set_index(["area_type", "area"])
    assert (
        (total["credible_low"] <= total["estimate"]) & (total["estimate"] <= total["credible_high"])
    ).all()
    for kind in ("duchy", "shire", "parish", "market", "plot"):
        if kind == "duchy":
            rows[kind] = "D"
        assert about["credible"][kind]
        drawn = rows.groupby(["draw", kind])["count"].sum().unstack(fill_value=0)
        for area, counts in drawn.items():
            if area != "none":
                rank = int((len(counts) + 1) * 0.025 + 1e-9)
                ordered, row = np.sort(counts), total.loc[kind, area]
                assert row["credible_low"] == min(ordered[rank - 1], row["estimate"])
                above = max(rank // 2, 1) if ordered[rank - 1] == 0 else rank
                assert row["credible_high"] == max(ordered[-above], row["estimate"])
    report = (release.path / "report.html").read_text()
    assert "Two kinds of interval" in report
    assert "people more or fewer than published" in report


@pytest.mark.long
def test_check_finds_what_was_altered(duchy: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    release = tb.run(_posterior(duchy), duchy.parent / "release")
    worth_at_least(monkeypatch, 1000)  # not what the release was made with
    stored = pq.read_table(release.path / "implicates.parquet")
    count = stored["count"].to_numpy().copy()
    count[7] += 1
    other = stored.set_column(stored.num_columns - 1, "count", pa.array(count))
    pq.write_table(other, release.path / "implicates.parquet")
    about = json.loads((release.path / "posterior.json").read_text())
    f.write_json(
        release.path / "posterior.json", {**about, "seed": 5, "measurements": "0", "sweeps_between": 4}
    )
    f.write_sums(release.path)
    faults = "\n".join(tb.Release.read(release.path).verify())
    for told in (
        "implicates.parquet: draw 1 is not the one that the measurements and the seed give",
        "posterior.json: its seed is not that of spec.toml",
        "posterior.json: its measurements are not those of this release",
        "posterior.json: says 100 sweeps before the first draw and 4 between two, and this version of tabulae makes",
        "posterior.json: does not say how these implicates are drawn",
        "tables/total.parquet: credible_low, credible_high are not what the measurements say",
    ):
        assert told in faults


@pytest.mark.long
def test_draws_are_made_under_laplace_noise(duchy: Path, quick: None) -> None:
    """They keep the exact count, are near to what was measured with much budget, and check makes them again."""
    _posterior(
        duchy,
        ('definition = "zcdp"', 'definition = "pure"'),
        ('budget = "2"\ndelta = "1e-10"', 'budget = "40"'),
        ('ledger = "ledger.db"', 'ledger = "pure.db"'),
    )
    tb.Ledger.create(duchy.parent / "pure.db", 40, "pure", neighbours="replace", unit="person")
    release = tb.run(duchy, duchy.parent / "release")
    assert release.verify() == []
    rows = pq.read_table(release.path / "implicates.parquet").to_pandas()
    assert (rows.groupby("draw")["count"].sum() == 500).all()
    drawn = rows.groupby(["draw", "plot"])["count"].sum().groupby("plot").mean()
    told = release.tables["total"].to_pandas().set_index(["area_type", "area"]).loc["plot"]
    assert np.abs(drawn - told["estimate"].reindex(drawn.index)).mean() < 1


def test_an_entity_that_no_leaf_is_in_has_no_areas(duchy: Path, quick: None) -> None:
    file = duchy.parent / "plots.csv"
    file.write_text(file.read_text().replace("oak", ""))
    release = tb.run(_posterior(duchy), duchy.parent / "release")
    assert release.verify() == []
    assert "forest" not in release.tables["faith"]["area_type"].to_pylist()
    assert "forest" not in json.loads((release.path / "posterior.json").read_text())["effective_draws"]


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        (('path = "people.csv"', 'path = "people.parquet"\nengine = "spark"'), "method.estimate", "one process"),
        (
            ('level = "duchy"\nreason = "the duke counts heads"\n', COARSER),
            "method.estimate", "leave tables that it cannot reach",
        ),
        (("seed = 4", "seed = 4\ntime_limit = 3"), "method.time_limit", "chooses queries"),
        (('estimate = "posterior"', 'estimate = "bluedown"'), "method.seed", "chooses queries"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_in_plan(
    duchy: Path, change: tuple[str, str], path: str, says: str
) -> None:
    with pytest.raises(SpecError) as refused:
        read_spec(_posterior(duchy, change))
    assert any(problem.path == path and says in problem.message for problem in refused.value.problems)
