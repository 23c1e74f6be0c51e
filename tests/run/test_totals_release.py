"""Releases of tables with totals: every total is the sum of its categories, and what follows from them still holds."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from tests.village import SPEC, write_village

import tabulae as tb
from tabulae.export import convert_release

_HERE = SPEC[
    : SPEC.index('[[table]]\nname = "ages"')
]  # the others have no totals, and take long to search for
METHOD = '[method]\nselect = "residual"\n'
EXACT = '[[invariant]]\nname = "sexes"\nattributes = ["sex"]\nreason = "register"\n'
SPECS = {
    "least squares": _HERE + METHOD,
    "exact": _HERE + METHOD + EXACT,
    "non-negative": _HERE + METHOD + 'estimate = "non-negative"\n',
    "exact, non-negative": _HERE + METHOD + 'estimate = "non-negative"\n' + EXACT,
}


@pytest.fixture(scope="module", params=SPECS)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    folder = tmp_path_factory.mktemp("village")
    write_village(folder)
    text = SPECS[request.param]
    for attributes, totals in (('["sex", "age"]', '["age", "sex"]'), ('["race", "young"]', "true")):
        text = text.replace(f"attributes = {attributes}\n", f"attributes = {attributes}\ntotals = {totals}\n")
    text = text.replace(
        'queries = { age = "ranges" }', 'attributes = ["age"]'
    )  # 210 ranges take long to search
    (folder / "spec.toml").write_text(text)
    return tb.run(folder / "spec.toml", out=folder / "release")


def grid(release: tb.Release, name: str, column: str = "estimate") -> np.ndarray:
    """A column of a table of two attributes, the total of each last."""
    table = release.tables[name]
    words = [list(dict.fromkeys(table[heading].to_pylist())) for heading in table.column_names[:2]]
    assert [each[-1] for each in words] == ["_T", "_T"]
    return table[column].to_numpy().reshape([len(each) for each in words])


@pytest.mark.parametrize("name", ["sex_by_age", "race_by_young"])
def test_totals_are_the_sums_of_their_categories(release: tb.Release, name: str) -> None:
    counts = grid(release, name)
    np.testing.assert_allclose(counts[-1], counts[:-1].sum(axis=0), rtol=0, atol=1e-6)
    np.testing.assert_allclose(counts[:, -1], counts[:, :-1].sum(axis=1), rtol=0, atol=1e-6)
    if release.spec.method.estimate == "non-negative":
        assert counts.min() >= 0


def test_what_is_published_follows_from_the_measurements(release: tb.Release) -> None:
    assert release.verify() == []


def test_a_total_is_as_wrong_as_the_same_question(release: tb.Release) -> None:
    """No noise is added for totals: an answer from the measurements is the published row."""
    table = release.tables["sex_by_age"]
    rows = [row for row in table.to_pylist() if row["age"] == "_T" and row["sex"] != "_T"]
    asked = release.query("SELECT sex, COUNT(*) FROM people GROUP BY sex").to_pylist()
    for row, answer in zip(rows, asked, strict=True):
        assert row["sex"] == answer["sex"]
        for column in ("estimate", "std_error"):
            assert row[column] == pytest.approx(answer[column], abs=1e-6)


def test_totals_that_are_exact_say_so(release: tb.Release) -> None:
    exact = grid(release, "sex_by_age", "obs_status") == "E"
    wanted = np.zeros(exact.shape, dtype=bool)
    wanted[:, -1] = bool(release.spec.invariants)
    assert (exact == wanted).all()
    assert (grid(release, "sex_by_age", "std_error")[wanted] == 0).all()


def test_every_format_has_the_total(release: tb.Release, tmp_path: Path) -> None:
    out = convert_release(release, "sdmx-csv", tmp_path / "sdmx")
    sdmx = pyarrow.csv.read_csv(out / "tables/sex_by_age.csv")
    assert sdmx["SEX"].to_pylist()[-1] == sdmx["AGE"].to_pylist()[-1] == "_T"
    for words in ('"id": "_T"', '"name": "total"'):
        assert (out / "structure.json").read_text().count(words) == 4  # sex, age, race and young
    plain = convert_release(release, "csv", tmp_path / "csv")
    stored = pyarrow.csv.read_csv(plain / "tables/sex_by_age.csv")
    assert stored["sex"].to_pylist() == release.tables["sex_by_age"]["sex"].to_pylist()
    json_stat = convert_release(release, "json-stat", tmp_path / "json")
    assert '"_T": "total"' in (json_stat / "tables/sex_by_age.json").read_text()


def totalled(size: int) -> tb.LinearOperator:
    return tb.Stack([tb.Identity(size), tb.Total(size)])


DOMAIN = tb.Domain({"a": 2, "b": 7, "c": 4, "d": 3})


@pytest.mark.parametrize("method", ["residual", "kron"])
def test_one_table_costs_what_its_margins_do(method: str) -> None:
    """The optimum of a table with totals is that of all its margins as tables, which ask for the same rows."""
    names, budget = ("a", "b", "c"), tb.ZCDP("1/2")
    whole = tb.Workload(DOMAIN, [tb.Table("t", {name: totalled(DOMAIN[name].size) for name in names})])
    kept = [each for k in range(4) for each in itertools.combinations(names, k)]
    margins = tb.Workload(
        DOMAIN,
        [tb.Table("-".join(each) or "all", {n: tb.Identity(DOMAIN[n].size) for n in each}) for each in kept],
    )
    assert whole.queries == margins.queries
    strategy = tb.select(whole, method=method, tolerance=1e-6)
    found = strategy.error(whole, budget).rmse
    best = tb.select(margins, method="residual", tolerance=1e-6).error(margins, budget).rmse
    assert found == pytest.approx(best, rel=1e-4)
    noise = [law.variance_of_law for law in strategy.laws(budget)]
    answers = [block.query.dense() * 2.0**-block.exponent for block in strategy.blocks]
    information = sum((a**2).sum(axis=0) / float(v) for a, v in zip(answers, noise, strict=True))
    assert information.max() / 2 <= float(Fraction(budget.rho)) * (1 + 1e-9)
