"""Counts of tables that equal those of an earlier release: met exactly, stated, refused where they cannot be had."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import duckdb
import numpy as np
import pytest
from tests.cli.schemas import fits
from tests.net.frozen import frozen
from tests.run.earlier import counts, hold, mistakes

import tabulae as tb
from tabulae.cli.tables import plan_document
from tabulae.errors import InvalidArgument
from tabulae.products.tables.product import TablesProduct
from tabulae.spec import read_spec

SPEC = """
title = "People"
[source]
path = "people.csv"
[attributes]
sex = { categories = ["F", "M"] }
age = { categories = ["0-17", "18-64", "65+"] }
region = { categories = ["N", "E", "S"] }
[recodes]
minor = { of = "age", map = "minor.csv" }
[privacy]
definition = "zcdp"
budget = "1/100"
neighbours = "add-remove"
ledger = "ledger.db"
[method]
select = "identity"
estimate = "least-squares"
[[table]]
name = "sex_by_age"
attributes = ["sex", "age"]
[[table]]
name = "regions"
attributes = ["region"]
"""
BEFORE = SPEC.replace('["sex", "age"]', '["sex", "age"]\ntotals = true')
ENTRY = """
[[earlier]]
release = "before"
table = "regions"
attributes = ["region"]
"""


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records, and a release of them whose counts are whole and 0 or more; never changed."""
    folder, pick = tmp_path_factory.mktemp("tables-before"), random.Random(2)
    rows = [
        (pick.choice("FM"), pick.choice(["0-17", "18-64", "65+"]), pick.choice("NES")) for _ in range(900)
    ]
    with (folder / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("sex", "age", "region"), *rows])
    (folder / "minor.csv").write_text("code,class,label\n0-17,1,yes\n18-64,2,no\n65+,2,no\n")
    (folder / "before.toml").write_text(BEFORE)
    tb.Ledger.create(folder / "ledger.db", tb.ZCDP(1), neighbours="add-remove", unit="person")
    tb.run(folder / "before.toml", folder / "before")
    return folder


@pytest.fixture
def spec(tmp_path: Path, before: Path) -> Path:
    """The spec of a second release, beside the first; without an entry yet."""
    shutil.copytree(before, tmp_path, dirs_exist_ok=True)
    (tmp_path / "spec.toml").write_text(SPEC.replace("least-squares", "non-negative"))
    return tmp_path / "spec.toml"


def test_counts_are_those_of_the_release_before(spec: Path) -> None:
    folder = spec.parent
    release = tb.run(hold(spec, ENTRY), folder / "after")
    assert release.verify() == []
    assert counts(folder / "after", "regions") == counts(folder / "before", "regions")
    assert sum(counts(folder / "after", "sex_by_age").values()) == sum(
        counts(folder / "before", "regions").values()
    )
    equal = """select count(*) from '{}/tables/regions.parquet' a full join '{}/tables/regions.parquet' b
        using (region) where a.estimate is distinct from b.estimate"""
    assert duckdb.connect().execute(equal.format(release.path, folder / "before")).fetchone() == (0,)


def test_nothing_is_charged_for_them_and_the_release_says_where_they_are_from(spec: Path) -> None:
    folder = spec.parent
    made = tb.plan(hold(spec, ENTRY))
    planned = {**plan_document(made), "needs": asdict(made.needs)}
    release = tb.run(spec, folder / "after")
    [told] = release.about["earlier"]
    assert told == planned["earlier"][0]
    assert (told["counts"], told["table"]) == ("region", "regions")
    assert told["release_id"] == tb.Release.read(folder / "before").about["release_id"]
    assert [entry["kind"] for entry in release.ledger] == ["charge"]
    assert tb.Ledger.open(folder / "ledger.db").spent == 2 * release.spec.loss.amount
    page = (folder / "after/report.html").read_text()
    assert "Counts of an earlier release" in page
    assert told["release_id"] in page.replace("<wbr>", "")
    fits("plan", {**planned, "saved": None, "series": None, "ledger": None, "html": None})


def test_the_published_copy_means_the_same_without_the_earlier_release(spec: Path) -> None:
    read = read_spec(hold(spec, ENTRY))
    release = tb.run(spec, spec.parent / "after")
    shutil.rmtree(spec.parent / "before")
    assert release.spec.digest() == read.digest()
    assert tb.Release.read(release.path).verify() == []


def test_intervals_are_those_without_them_widened_to_the_estimates(spec: Path) -> None:
    release = tb.run(hold(spec, ENTRY), spec.parent / "after")
    (measured,) = release.measurements
    plain = tb.estimate(measured, method="non-negative").linear  # type: ignore[attr-defined]
    for table in release.spec.workload.tables:
        rows = release.tables[table.name]
        low, high = plain.interval_of(table, release.level)[0].ends()
        estimate = rows["estimate"].to_numpy()
        assert (rows["ci_low"].to_numpy() == np.minimum(low, np.floor(estimate))).all()
        assert (rows["ci_high"].to_numpy() == np.maximum(high, np.ceil(estimate))).all()
        assert (rows["std_error"].to_numpy() == np.sqrt(plain.variance_of(table))).all()
        assert set(rows["obs_status"].to_pylist()) == {"A"}


def test_rows_and_columns_choose_the_counts(spec: Path) -> None:
    """Of a table with totals, added up over a column that is not asked for; and by another name, a recode."""
    entry = ENTRY.replace('"regions"', '"sex_by_age"').replace('["region"]', '["sex"]')
    entry += 'rows = { sex = ["F", "M"], age = ["0-17", "18-64", "65+"] }\n'
    release = tb.run(hold(spec, entry), spec.parent / "after")
    found: list[dict[str, float]] = [{"F": 0, "M": 0}, {"F": 0, "M": 0}]
    for kept, folder in zip(found, (spec.parent / "before", release.path), strict=True):
        for (sex, age), n in counts(folder, "sex_by_age").items():
            if "_T" not in (sex, age):
                kept[sex] += n
    assert found[0] == found[1]


def test_check_sees_a_count_that_is_not_the_one_before(spec: Path) -> None:
    release = tb.run(hold(spec, ENTRY), spec.parent / "after")
    product = TablesProduct(release.spec)
    product._estimate(release)
    release.spec.earlier[0].held.at_least[1] += 1
    assert [told for told in product.faults(release) if "published before" in told] == [
        "tables/sex_by_age: its sums are not the counts published before",
        "tables/regions: its sums are not the counts published before",
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: shutil.rmtree(f / "before"), "earlier[0].release"),
        (lambda f: (f / "before/tables/regions.csv").write_text("x"), "tables/regions.csv was altered"),
        (lambda f: (f / "before/SHA256SUMS").unlink(), "has no SHA256SUMS"),
    ],
)  # fmt: skip
def test_a_damaged_release_is_refused(spec: Path, change: Callable[[Path], object], told: str) -> None:
    change(spec.parent)
    [found] = mistakes(hold(spec, ENTRY))
    assert told in found


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"regions"', '"region"', 'earlier[0].table: there is no such table in it; did you mean "regions"?'),
        ('"before"', "3", "earlier[0].release: must be the folder of a release"),
        ('["region"]', '["regoin"]', 'earlier[0].attributes[0]: there is no attribute or recode "regoin"'),
        ('["region"]', '["age", "minor"]', 'earlier[0].attributes[1]: "minor" is of an attribute that is'),
        ('["region"]', '["sex"]', 'earlier[0].attributes: table "regions" has no column "sex"'),
        ('["region"]', '["sex"]\ncolumns = { sex = "region" }', 'that table counts "N", and sex has'),
        ('["region"]', '["region"]\nrows = { region = ["N"] }', 'has no count of E: use a recode without such a class'),
        ('["region"]', '["region"]\nlevel = "block"', "earlier[0].level: is of a geography"),
        ('["region"]', '["region"]\nfile = "x.csv"', "earlier[0].file: is of published copies alone"),
        ('"regions"\nattributes = ["region"]', '"sex_by_age"\nattributes = []',
         'earlier[0].rows: table "sex_by_age" has rows that count the same records twice'),
        ('"regions"\nattributes = ["region"]', '"sex_by_age"\nattributes = ["sex"]\nrows = { age = ["_T"] }',
         'earlier[0].rows: table "sex_by_age" has rows that count the same records twice'),
        ("[[earlier]]", "[[earlier]]\n" + ENTRY.split("\n", 2)[2] + "[[earlier]]", "earlier[1]: is about the same"),
        ("[[earlier]]", '[[invariant]]\nattributes = ["sex"]\nreason = "law"\n[[earlier]]',
         "earlier: stands beside [[invariant]]"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_with_its_key(spec: Path, old: str, new: str, told: str) -> None:
    assert old in ENTRY
    found = mistakes(hold(spec, ENTRY.replace(old, new)))
    assert any(told in each for each in found), found


def test_estimates_that_may_be_negative_do_not_go_with_them(spec: Path) -> None:
    [told] = mistakes(hold(spec, ENTRY, ("non-negative", "least-squares")))
    assert 'earlier: goes with estimate = "non-negative" under [method]' in told
    measured = tb.measure(np.arange(4), tb.select(tb.Workload.of(tb.Identity(4))), tb.ZCDP(1))
    everybody = tb.Constraint.equal(tb.Table("total", {}), 3)
    with pytest.raises(InvalidArgument, match="does not keep to counts that may not be true"):
        tb.estimate(measured, held=[everybody])


def test_counts_with_fractions_or_below_zero_are_refused(spec: Path) -> None:
    folder = spec.parent
    (folder / "half.toml").write_text(SPEC.replace('"identity"', '"residual"').replace('"1/100"', '"1/50"'))
    with frozen("half"):  # some draws of the noise give whole numbers
        tb.run(folder / "half.toml", folder / "half")
    [told] = mistakes(hold(spec, ENTRY.replace('"before"', '"half"')))
    assert "has estimates that are no whole numbers of 0 or more" in told


def test_counts_that_contradict_each_other_are_refused_before_any_record_is_read(spec: Path) -> None:
    """Two releases; ten times as many people in the second, so that no noise makes the totals equal."""
    folder = spec.parent
    header, *rows = (folder / "people.csv").read_text().splitlines(keepends=True)
    (folder / "people.csv").write_text("".join([header, *rows * 10]))
    text = (folder / "before.toml").read_text().replace('["sex", "age"]\ntotals = true', '["sex", "age"]')
    (folder / "other.toml").write_text(text)
    tb.run(folder / "other.toml", folder / "other")
    totals = [sum(counts(folder / name, "regions").values()) for name in ("before", "other")]
    assert totals[1] - totals[0] > 4000  # 8,100 but for noise of 30 in each
    (folder / "people.csv").unlink()
    second = ENTRY.replace('"before"', '"other"').replace('["region"]', "[]")
    [told] = mistakes(hold(spec, ENTRY + second))
    assert told.startswith("earlier: the constraints contradict each other")


def test_groups_have_no_earlier_counts(spec: Path) -> None:
    text = spec.read_text().split("[method]")[0] + "[detailed]\n" + ENTRY
    spec.write_text(text)
    assert any(told.startswith("earlier: is of tables") for told in mistakes(spec))


def test_the_descriptor_says_them(spec: Path) -> None:
    release = tb.run(hold(spec, ENTRY), spec.parent / "after")
    assert json.loads((release.path / "datapackage.json").read_text())["tabulae"]["earlier"]
    release.about["earlier"][0]["table"] = "x"
    told = TablesProduct(release.spec).faults(release)
    assert told == ["datapackage.json: the counts published before are not those of spec.toml"]
