"""Releases of tables with estimate = "posterior": implicates, intervals, exact counts, checks, refusals."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.run.drawn import few_draws, worth_at_least
from tests.village import SPEC as VILLAGE
from tests.village import write_village

import tabulae as tb
from tabulae.errors import SpecError, Unsupported
from tabulae.estimation import whole_tables
from tabulae.products.tables import product
from tabulae.release import folder as f
from tabulae.spec import read_spec

SPEC = (
    VILLAGE[: VILLAGE.index("[privacy]")]
    + """
[privacy]
definition = "zcdp"
budget = "1/10"
delta = "1e-10"
neighbours = "replace-within-invariants"
ledger = "drawn.db"
[[table]]
name = "sex_by_young"
attributes = ["sex", "young"]
totals = true
[[table]]
name = "race_by_young"
attributes = ["race", "young"]
[[invariant]]
attributes = ["sex"]
reason = "the register publishes it"
[method]
select = "residual"
estimate = "posterior"
seed = 4
"""
)
EXACT = 'attributes = ["sex"]'
SECOND, LAST = 'name = "race_by_young"', "[method]"


@pytest.fixture
def town(tmp_path: Path) -> Path:
    write_village(tmp_path)
    tb.Ledger.create(
        tmp_path / "drawn.db", tb.ZCDP(10), neighbours="replace-within-invariants", unit="person"
    )
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws and sweeps, and credible intervals whatever the draws are worth."""
    few_draws(monkeypatch, whole_tables, burnt=10, every=1, rounds=1)


def test_published_counts_are_of_whole_tables_and_check_finds_what_was_altered(
    town: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One release, because it takes seconds."""
    release = tb.run(town / "spec.toml", town / "release")
    assert release.verify() == []
    rows = pq.read_table(release.path / "implicates.parquet").to_pandas()
    about = json.loads((release.path / "posterior.json").read_text())
    assert about["sets"] == [["age", "race"], ["sex", "age"]]
    assert sorted(rows["attributes"].unique()) == ["age race", "sex age"]
    assert (rows["count"] > 0).all()
    of_sex, of_race = (rows[rows["attributes"] == each] for each in ("sex age", "age race"))
    assert of_sex["race"].isna().all()
    assert of_race["sex"].isna().all()
    for name in ("age", "draw"):  # sets agree on what they share
        one, other = (
            each.groupby(["draw", name] if name == "age" else "draw")["count"].sum()
            for each in (of_sex, of_race)
        )
        assert one.equals(other)
    truth = pa.csv.read_csv(town / "people.csv").to_pandas()["SEX"].value_counts()
    drawn = of_sex.groupby(["draw", "sex"])["count"].sum().unstack(fill_value=0)
    assert (drawn["F"] == truth["F"]).all()
    assert (drawn["M"] == truth["M"]).all()
    sexes, races = (release.tables[name].to_pandas() for name in ("sex_by_young", "race_by_young"))
    assert (sexes["estimate"] >= 0).all()
    for table in (sexes, races):
        assert (table["estimate"] == table["estimate"].round()).all()
        assert (
            (table["credible_low"] <= table["estimate"]) & (table["estimate"] <= table["credible_high"])
        ).all()
        assert ((table["ci_low"] <= table["estimate"]) & (table["estimate"] <= table["ci_high"])).all()
    whole = sexes.set_index(["sex", "young"])["estimate"]
    assert whole["_T"].drop("_T").sum() == whole["_T", "_T"] == races["estimate"].sum() == 400
    assert whole["F", "_T"] == truth["F"]
    (young,) = {*about["credible"].values()}
    assert young
    cell = races.iloc[0]
    some = of_race[
        (of_race["race"] == cell["race"]) & of_race["age"].eq(cell["young"])
    ]  # ages are told apart as the recode does
    counts = some.groupby("draw")["count"].sum().reindex(range(1, 41), fill_value=0).sort_values().to_numpy()
    assert cell["credible_low"] == min(counts[0], cell["estimate"])
    assert cell["credible_high"] == max(counts[-1], cell["estimate"])
    assert "Two kinds of interval" in (release.path / "report.html").read_text()
    with monkeypatch.context() as stored:  # a question is answered from stored draws
        stored.delattr(whole_tables, "sample")
        asked = "SELECT race, young, COUNT(*) FROM people GROUP BY race, young"
        answer = tb.Release.read(release.path).query(asked)
    assert answer["estimate"].to_pylist() == races["estimate"].tolist()
    _alter(release.path, monkeypatch)


def _alter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worth_at_least(monkeypatch, 1000)  # not what the release was made with
    stored = pq.read_table(path / "implicates.parquet")
    count = stored["count"].to_numpy().copy()
    count[7] += 1
    other = stored.set_column(stored.num_columns - 1, "count", pa.array(count))
    pq.write_table(other, path / "implicates.parquet")
    about = json.loads((path / "posterior.json").read_text())
    f.write_json(path / "posterior.json", {**about, "seed": 5, "measurements": "0"})
    f.write_sums(path)
    faults = "\n".join(tb.Release.read(path).verify())
    for told in (
        "implicates.parquet: draw 1 is not the one that the measurements and the seed give",
        "posterior.json: its seed is not that of spec.toml",
        "posterior.json: its measurements are not those of this release",
        "tables/race_by_young: credible_low does not follow from the measurements",
    ):
        assert told in faults


def test_a_run_that_stops_while_it_draws_is_finished_and_pays_once(
    town: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    with monkeypatch.context() as broken:
        broken.setattr(product, "write_draws", stop)
        with pytest.raises(Stopped):
            tb.run(town / "spec.toml", town / "release")
    release = tb.run(town / "spec.toml", town / "release", resume=True)
    assert release.verify() == []
    assert tb.Ledger.open(town / "drawn.db").spent == Fraction(1, 10)


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        (('definition = "zcdp"', 'definition = "approx"'), "method.estimate", "discrete noise"),
        ((SECOND, SECOND + '\nmeasures = ["count"]'), "table[1].measures", "records"),
        ((SECOND, SECOND + '\nsurvey_weight = "w"'), "table[1].survey_weight", "records"),
        ((LAST, '[[derived]]\nname = "share"\nsql = "SELECT COUNT(*) FROM people"\n[method]'), "derived", "implicates"),
        ((SECOND, SECOND + '\ncounts = "units"'), "method.estimate", "units"),
        ((SECOND, SECOND + '\nsurvey_weight = "w"\nsampling = { b = 5 }'), "table[1].sampling", "counts of records"),
        ((LAST, '[[earlier]]\nrelease = "r"\ntable = "t"\nattributes = ["sex"]\n[method]'), "earlier", "not keep to"),
    ],
)  # fmt: skip
def test_what_is_not_drawn_is_refused_with_its_key(
    town: Path, change: tuple[str, str], path: str, says: str
) -> None:
    assert change[0] in SPEC
    (town / "spec.toml").write_text(SPEC.replace(*change))
    with pytest.raises(SpecError) as refused:
        read_spec(town / "spec.toml")
    assert any(each.path == path and says in each.message for each in refused.value.problems), refused.value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("", ""), "join attributes to 15 cells, most of them of age, race"),
        ((EXACT, 'name = "grown"\nsql = "SELECT COUNT(*) FROM people WHERE age >= 15"'), "everybody once"),
        (("race = {", "draw = {"), "name of a column"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_in_plan(
    town: Path, change: tuple[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SPEC.replace(*change)
    if not change[0]:
        monkeypatch.setattr(whole_tables, "LARGEST", 10)
    if "draw =" in text:
        text = text.replace('["race"', '["draw"')
    (town / "spec.toml").write_text(text)
    with pytest.raises(Unsupported, match=says):
        tb.plan(town / "spec.toml")


def test_counts_far_apart_in_size_are_drawn(quick: None) -> None:
    """Numbers of many digits: starts are not lists of people."""
    workload = tb.Workload.of(tb.Identity(4))
    measured = tb.measure(
        np.array([3_000_000_000, 0, 12, 40_000]), tb.select(workload, method="identity"), tb.ZCDP("1/2")
    )
    made = whole_tables.Posterior(measured, workload)
    answers = made.answer(workload)["x"]
    spread = np.sqrt(2)  # of the noise, and of the draw about what was measured
    assert np.abs(answers - [3_000_000_000, 0, 12, 40_000]).max() < 6 * spread  # false alarm: 1e-8


@pytest.mark.parametrize("tables", ['attributes = ["all"]', "attributes = []"])
def test_one_cell_is_drawn(tables: str, tmp_path: Path, quick: None) -> None:
    """An attribute of one category, and no attribute at all: the only cell is everybody."""
    (tmp_path / "people.csv").write_text("ALL,SEX\n" + "x,F\n" * 40)
    (tmp_path / "spec.toml").write_text(f"""
source = {{ path = "people.csv" }}
attributes = {{ all = {{ column = "ALL", categories = ["x"] }}, sex = {{ column = "SEX", categories = ["F"] }} }}
privacy = {{ definition = "zcdp", budget = "1/2", ledger = "ledger.db" }}
method = {{ estimate = "posterior" }}
table = [{{ name = "one", {tables} }}]
""")
    tb.Ledger.create(tmp_path / "ledger.db", tb.ZCDP(1))
    release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert release.verify() == []
    assert abs(release.tables["one"]["estimate"].to_pylist()[0] - 40) < 8
