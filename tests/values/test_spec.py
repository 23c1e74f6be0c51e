"""Sums and means in a spec: what is published, what it costs, what is refused."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.audit.specs import fails
from tests.each import each

import tabulae as tb
from tabulae.audit import audit
from tabulae.errors import DataError, SpecError, TabulaeError
from tabulae.products.tables import count as counting
from tabulae.products.tables.changes import comparable
from tabulae.products.tables.figures import publish_derived
from tabulae.products.tables.publish import publish
from tabulae.report.plan_page import plan_page
from tabulae.spec import Spec
from tabulae.strategy import Strategy

HEAD = """
[source]
path = "people.csv"
[attributes]
region = { categories = ["N", "S"] }
sex = { categories = ["F", "M"] }
"""
VALUES = """
[values]
income = { column = "INC", range = [0, 200], step = 2, outside = "clamp", null = 0 }
"""
PRIVACY = """
[privacy]
definition = "zcdp"
budget = "50"
ledger = "ledger.db"
"""
TABLE = """
[[table]]
name = "pay"
attributes = ["region", "sex"]
totals = true
measures = ["count", { sum = "income" }, { mean = "income", near = 60, weight = 2 }]
"""
DERIVED = """
[[derived]]
name = "women"
sql = "SELECT AVG(income) FILTER (WHERE sex = 'F') FROM people"
"""
INCOMES = [0, 17.9, 59, 61, 300, "", 144, 3, 88.5, 120, -7, 60]
WHOLE = HEAD + VALUES + PRIVACY + TABLE + DERIVED


def people() -> list[tuple[str, str, object]]:
    return [("NS"[k % 2], "FM"[k // 2 % 2], INCOMES[k % len(INCOMES)]) for k in range(400)]


def on_grid(income: object) -> int:
    return 2 * int(min(max(float(str(income or 0)), 0), 200) / 2 + 0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("income")
    with (where / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("region", "sex", "INC"), *people()])
    (where / "spec.toml").write_text(WHOLE)
    tb.Ledger.create(where / "ledger.db", tb.ZCDP(10**6), neighbours="add-remove", unit="person")
    return where


@pytest.fixture(scope="module")
def release(folder: Path) -> tb.Release:
    return tb.run(folder / "spec.toml", folder / "release")


def test_counts_sums_and_means_are_published(release: tb.Release) -> None:
    """With little noise they are those of the numbers that count: clamped, rounded to the grid, NULL as 0."""
    pay = [(r, s, on_grid(i)) for r, s, i in people()]
    assert sorted(release.tables) == ["pay_count", "pay_sum_income"]
    assert sorted(release.derived) == ["pay_mean_income", "women"]
    found = [
        release.tables["pay_count"],
        release.tables["pay_sum_income"],
        release.derived["pay_mean_income"],
    ]
    for row, (count, total, mean) in enumerate(zip(*(t.to_pylist() for t in found), strict=True)):
        key = count["region"], count["sex"]
        kept = [i for r, s, i in pay if key[0] in (r, "_T") and key[1] in (s, "_T")]
        assert (total["region"], mean["sex"]) == key, row
        assert count["estimate"] == pytest.approx(len(kept), abs=2)
        assert total["estimate"] == pytest.approx(sum(kept), abs=300)
        assert mean["ci_low"] < mean["estimate"] < mean["ci_high"]
        assert mean["estimate"] == pytest.approx(np.mean(kept), abs=5 * mean["std_error"])
        assert mean["estimate"] == pytest.approx(total["estimate"] / count["estimate"])
    women = [i for _, s, i in pay if s == "F"]
    assert release.derived["women"]["estimate"].to_pylist() == pytest.approx([np.mean(women)], abs=1)


def test_a_release_follows_from_its_measurements(release: tb.Release) -> None:
    assert release.verify() == []
    about = json.loads((release.path / "datapackage.json").read_text())
    told = {each["title"]: each.get("description") for each in about["resources"]}
    assert told["pay_sum_income"] == (
        "Sum of income: income from 0 to 200 in steps of 2, of which those beyond count as the nearest end"
    )
    assert "income" not in {path.stem for path in (release.path / "codes").iterdir()}
    law = json.loads((release.path / "strategy" / "strategy.json").read_text())["blocks"][0]["law"]
    assert law["step"].endswith("/100")
    assert "<circle" in (release.path / "report.html").read_text()


def test_a_release_answers_sums_and_means(release: tb.Release) -> None:
    published = release.tables["pay_sum_income"].to_pylist()
    asked = release.query("SELECT region, SUM(income) FROM people GROUP BY region")
    totals = [row["estimate"] for row in published if row["sex"] == "_T" and row["region"] != "_T"]
    assert asked["estimate"].to_pylist() == pytest.approx(totals)
    mean = release.query("SELECT AVG(income) FROM people WHERE region = 'N' AND sex = 'M'")
    assert mean["estimate"].to_pylist() == [release.derived["pay_mean_income"]["estimate"][1].as_py()]
    with pytest.raises(TabulaeError, match="'income' is a value, which is summed only"):
        release.query("SELECT COUNT(*) FROM people WHERE income = 0")


def test_changes_of_sums_say_that_values_are_bounded_otherwise(folder: Path, release: tb.Release) -> None:
    (folder / "wider.toml").write_text(WHOLE.replace("[0, 200]", "[0, 300]"))
    later = tb.run(folder / "wider.toml", folder / "wider")
    told = "income counts from 0 to 200 in 100 steps in the earlier release, and from 0 to 300 in 150 steps in the"
    assert [told in note for note in comparable(release, later)] == [False, True]


def test_the_published_copy_means_the_same(release: tb.Release) -> None:
    spec = Spec.from_text(WHOLE)
    copy = Spec.from_text((release.path / "spec.toml").read_text(), release.path)
    assert copy.digest() == spec.digest()
    assert [t.name for t in copy.workload.tables] == ["pay_count", "pay_sum_income", "pay_mean_income"]
    others = [
        WHOLE.replace("[0, 200]", "[0, 202]"),
        WHOLE.replace("step = 2", "step = 1"),
        WHOLE.replace('"clamp"', '"refuse"'),
    ]
    assert len({Spec.from_text(text).digest() for text in [WHOLE, *others]}) == 4


def test_a_plan_has_errors_of_sums_and_of_means(folder: Path) -> None:
    """What stands for a mean is the error of it times the number of records of its group."""
    made = tb.plan(folder / "spec.toml")
    rows = {row.table: row for row in made.table_errors}
    assert list(rows) == ["pay_count", "pay_sum_income", "pay_mean_income"]
    assert made.spec.units["pay_mean_income"] == "mean of income, times the number of records"
    assert rows["pay_mean_income"].rmse < rows["pay_sum_income"].rmse
    assert "pay_sum_income is in other units: sum of income." in plan_page(made)


@pytest.mark.long
@pytest.mark.parametrize(
    ("neighbours", "definition"),
    [("add-remove", "zcdp"), ("replace", "pure")],
)
def test_an_audit_finds_nothing(neighbours: str, definition: str) -> None:
    text = WHOLE.replace('"zcdp"', f'"{definition}"\nneighbours = "{neighbours}"').replace('"50"', '"1"')
    done = audit(Spec.from_text(text), seconds=0.05)
    assert done.failed == ()
    assert done["sensitivity"].observed == 1


@each(
    "fault,check",
    [("noise for one part", "law"), ("too many parts", "add one"), ("low for high", "noise")],
)
def test_an_audit_finds_what_is_planted(fault: str, check: str) -> None:
    plan = tb.plan(Spec.from_text(WHOLE))
    with pytest.MonkeyPatch.context() as patch:
        if fault == "noise for one part":
            laws = Strategy.laws
            patch.setattr(
                Strategy, "laws", lambda s, *a: tuple(type(x)(x.parameter / 100) for x in laws(s, *a))
            )
        elif fault == "too many parts":
            real = counting._by_cell
            patch.setattr(counting, "_by_cell", lambda *a: (real(*a)[0], real(*a)[1] * 2))
            patch.setattr(counting, "check_counted", lambda *a: None)
        else:
            patch.setattr(counting, "_by_cell", _swapped(counting._by_cell))
        fails(plan, check)


SQUARED = WHOLE.replace("null = 0", "null = 0, squares = true").replace(
    "weight = 2 }", 'weight = 2 }, { variance = "income" }'
)


@pytest.mark.long
@each("planted", [False, True])
def test_an_audit_of_values_with_squares(planted: bool) -> None:
    """Nothing is found, and where the two inner categories are mistaken for each other the answers differ."""
    plan = tb.plan(Spec.from_text(SQUARED))
    with pytest.MonkeyPatch.context() as patch:
        if planted:
            shares = tb.Attribute.shares
            patch.setattr(tb.Attribute, "shares", lambda *a: tuple(shares(*a)[i] for i in (0, 2, 1, 3)))
            fails(plan, "noise")
        else:
            fails(plan, passes=("noise", "sensitivity", "law"))


def _swapped(by_cell: Callable) -> Callable:
    def swapped(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        cells, parts = by_cell(*given)
        return cells, np.roll(parts, len(parts) // 2)

    return swapped


def _with(change: str, to: str, text: str = WHOLE) -> str:
    assert change in text
    return text.replace(change, to)


def _beside(section: str, sql: str, name: str = "m") -> str:
    return PLAIN + f'[[{section}]]\nname = "{name}"\nsql = "{sql}"\n'


PLAIN = WHOLE.replace(DERIVED, "")
LARGE = "{} = {{ range = [0, 9999999] }}\n"
BINS = '[recodes]\nbins = { of = "income", edges = [5] }\n'
MEDIAN, NO_VALUES = (
    '[{ quantiles = ["1/2"], of = "age" }]',
    HEAD + "age = { range = [0, 9] }\n" + PRIVACY + TABLE,
)
EXACT = '[[invariant]]\nattributes = []\nreason = "law"\n'
HALVES = '[[invariant]]\nname = "x"\nsql = "SELECT SUM(income) FROM p"\nreason = "law"\n'
REFUSED: list[tuple[str, str]] = [
    (_with("range = [0, 200], ", ""), r"values.income.range .*is missing"),
    (_with("[0, 200]", "[200, 0]"), r"values.income .*value 'income': its range must rise"),
    (_with("[0, 200]", "[5, 5]"), r"its range must rise"),
    (_with("[0, 200]", "[0, 200.5]"), r"values.income.range"),
    (_with("[0, 200]", "[0, 100, 200]"), r"range must be \[lowest, highest\]"),
    (_with("[0, 200]", '["a", "b"]'), r"values.income.range"),
    (_with("[0, 200]", "[0, inf]"), r"values.income.range"),
    (_with("[0, 200]", "[0, nan]"), r"values.income.range\[1\] .*must be an integer, not NaN"),
    (_with("step = 2", "step = 400"), r"divides 200 into .*, not 400"),
    (_with("[0, 200]", "[0, 99999999999999999]"), r"whole numbers up to 2\^53"),
    (_with("step = 2", "step = 3"), r"divides 200 into at most"),
    (_with("step = 2", "step = 0"), r"divides 200"),
    (_with("step = 2", "step = -2"), r"divides 200"),
    (_with("step = 2", "step = 0.5"), r'values.income.step .*must be exact, and 0.5 is not: write "0.5"'),
    (_with("step = 2", 'step = "1/3"'), r"'1/3' is no number"),
    (_with("step = 2", 'step = "two"'), r"'two' is no number"),
    (_with("step = 2", 'step = "0.000000001"'), r"a step of more than 8 decimals"),
    (_with('"clamp"', '"drop"'), r"values.income.outside"),
    (_with("null = 0", "null = 201"), r"takes NULL for 201, which is outside 0 to 200"),
    (_with("null = 0", "null = 1"), r"takes NULL for 1, which is none of its numbers: 0 and 2 are"),
    (_with("null = 0", 'null = "other"'), r"values.income.null"),
    (_with("null = 0", "rounding = 1"), r"values.income.rounding .*unknown key"),
    (_with("income = { c", f"{LARGE.format('a')}{LARGE.format('b')}income = {{ c"), r"values .*choose larger steps"),
    (_with("income = { c", "sex = { c"), r"values.sex .*is the name of one of \[attributes\], too"),
    (_with("income = { c", '"in/come" = { c'), r"cannot name an attribute"),
    (_with(', { sum = "income" }', ', { sum = "incom" }'), r'there is no value "incom"; did you mean "income"'),
    (_with(', { sum = "income" }', ', { sum = "sex" }'), r"it is an attribute, and sums are of values"),
    (_with(', { sum = "income" }', ', { median = "income" }'), r"measures\[1\].median .*unknown key"),
    (_with(', { sum = "income" }', ', "sum"'), r'"sum" is no measure; write "count"'),
    (_with(', { sum = "income" }', ", 3"), r"3 is no measure"),
    (_with("{ sum =", '{ mean = "income", sum ='), r"one of count, sum, mean, variance, clamping or quantiles"),
    (_with(', { sum = "income" }', ', "count"'), r"measures has count twice"),
    (_with('"count", ', ""), r'add "count"'),
    (_with("near = 60", "near = 201"), r"near is a whole number from 0 to 200"),
    (_with("near = 60", 'near = "sixty"'), r"near goes with mean, a whole number"),
    (_with("near = 60", "near = 60.5"), r'must be exact, and 60.5 is not'),
    (_with("weight = 2", "weight = 0"), r"weight"),
    (_with("weight = 2", "weight = 1e200"), r"table\[0\].measures .*a weight must be .* not 1e\+200"),
    (_with('["count", { sum = "income" }, { mean = "income", near = 60, weight = 2 }]', MEDIAN, NO_VALUES),
     r'table\[0\].measures .*quantiles alone in every table.* add "count"'),
    (_with('{ sum = "income" }', '{ quantiles = ["1/2"], of = "income" }'), r'"income" is a value, of which sums'),
    (_with('{ sum = "income" }', '{ variance = "income" }'), r"'income' is multiplied by itself: write squares = true"),
    (_with('{ mean = "income", near = 60, weight = 2 }', '{ variance = "income" }'), r'a variance is about a mean'),
    (_with('{ sum = "income" }', '{ sum = "income * income" }'), r"multiplied by itself"),
    (_with('{ sum = "income" }', '{ sum = "income * sex" }'), r"it is an attribute, and sums are of values"),
    (_with('{ sum = "income" }', '{ sum = "income * " }'), r'there is no value ""'),
    (_with('{ mean = "income",', '{ mean = "income * income",'), r"is a product, and products have sums only"),
    (_with("null = 0", "null = 0, squares = 3"), r"values.income.squares"),
    (_with("null = 0", 'null = 0, squares = true').replace("step = 2", 'step = "0.0001"'), r"choose larger steps"),
    (_beside("table", "SELECT SUM(income * income) FROM p"), r"multiplied by itself"),
    (_beside("table", "SELECT SUM(income * sex) FROM p"), r"COUNT\(\*\), nothing else"),
    (_beside("derived", "SELECT VAR_POP(income) FROM p"), r"write squares = true"),
    (_beside("derived", "SELECT STDDEV(income) FROM p"), r"of spread there is VAR_POP"),
    (_with("weight = 2", "target = { rmse = 5 }"), r"give its sum a target instead"),
    (_with('["region", "sex"]', '["region", "income"]'), r'"income" is a value, of which sums and means are published'),
    (_with("measures = [", "measures = [] # ["), r"measures"),
    (_with(TABLE, '[[table]]\nname = "n"\nattributes = []\n', PLAIN), r"values.income .*is in no table"),
    (_with(VALUES, "", PLAIN), r'there is no value "income"; declare it under \[values\]'),
    (_beside("derived", "SELECT MEDIAN(income) FROM p"), r"'income' is a value, which is summed only"),
    (_beside("derived", "SELECT COUNT(*) FROM p WHERE income < 5"), r"summed only"),
    (_beside("derived", "SELECT income, COUNT(*) FROM p GROUP BY income"), r"summed only"),
    (_beside("derived", "SELECT AVG(income) FROM p", "pay_mean_income"), r"table\[0\] is named"),
    (_beside("table", "SELECT COUNT(*) FROM p", "pay_count"), r"table\[0\] is named"),
    (_beside("table", "SELECT AVG(income) FROM p"), r"a mean is a ratio"),
    (_beside("table", "SELECT SUM(income) FROM p") + 'measures = ["count"]\n', r"ask for COUNT\(\*\)"),
    (_with("step = 2", 'step = "0.5"') + HALVES, r"invariant\[0\].sql .*sums that need not be whole numbers"),
    (_with(PRIVACY, BINS + PRIVACY), r"it is a value: under \[attributes\] declare bins"),
    (_with('"zcdp"', '"zcdp"\nneighbours = "replace-within-invariants"') + EXACT, r"'income' is a measured value"),
]  # fmt: skip


@each("text,told", REFUSED, ids=[told for _, told in REFUSED])
def test_what_is_refused(text: str, told: str) -> None:
    with pytest.raises(TabulaeError, match=told):
        tb.plan(Spec.from_text(text))


AREAS = """
[geography]
column = "block"
file = "spine.csv"
levels = ["county", "block"]
"""


@each(
    "section,told",
    [("[detailed]\n", r"values .*is of \[\[table\]\]s"), (AREAS, r"values .*is of tables without areas")],
)
def test_other_kinds_of_release_have_no_values(section: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        Spec.from_text(WHOLE.replace(TABLE, "") + section)


@each(
    "rows,told",
    [
        ([("N", "F", 7), ("S", "M", "x")], "numbers outside its range, or no numbers"),
        ([("N", "F", 201)], "outside"),
        ([("N", "F", "")], "NULL"),
    ],
)
def test_records_that_do_not_fit_cost_nothing(tmp_path: Path, rows: list, told: str) -> None:
    with (tmp_path / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("region", "sex", "INC"), *rows])
    (tmp_path / "spec.toml").write_text(WHOLE.replace(', outside = "clamp", null = 0', ""))
    (tmp_path / "ledger.db").unlink(missing_ok=True)
    ledger = tb.Ledger.create(tmp_path / "ledger.db", tb.ZCDP(100), neighbours="add-remove", unit="person")
    with pytest.raises(DataError, match=told):
        tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert ledger.spent == 0
    assert not (tmp_path / "release").exists()


QUANTILES = (
    HEAD
    + """
income = { column = "INC", bins = [-100, 0, 20, 60, 61, 100, 400], null = "other" }
age = { range = [0, 9] }
"""
    + PRIVACY
    + """
[[table]]
name = "pay"
attributes = ["region"]
totals = true
measures = ["count", { quantiles = ["1/4", "1/2", "0.9"], of = "age" }, { quantiles = ["2/3"], of = "income" }]
"""
)


def test_quantiles_of_numbers_and_of_bins(tmp_path: Path) -> None:
    """Of numbers the smallest with enough records at or below it, of bins the end of its bin; with intervals around."""
    drawn = np.random.default_rng(4).integers([0, -90, 0], [2, 390, 10], size=(600, 3))
    with (tmp_path / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerow(("region", "sex", "INC", "age"))
        csv.writer(file).writerows(("NS"[r], "F", i, a * a // 9) for r, i, a in drawn.tolist())
    text = QUANTILES.replace(', null = "other"', "")
    (tmp_path / "spec.toml").write_text(text)
    tb.Ledger.create(tmp_path / "ledger.db", tb.ZCDP(10**6), neighbours="add-remove", unit="person")
    release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert sorted(release.derived) == ["pay_q0.25_age", "pay_q0.5_age", "pay_q0.9_age", "pay_q2-3_income"]
    assert sorted(release.tables) == ["pay_count"]
    assert release.verify() == []
    steps = re.findall(r'stroke="currentColor" d="(M0 [^"]*)"', (release.path / "report.html").read_text())
    assert [path.count("V") for path in steps] == [
        3
    ] * 9  # three shares of ages; one share alone has no steps
    for row, regions in enumerate(([0], [1], [0, 1])):
        some = drawn[np.isin(drawn[:, 0], regions)]
        for share in ("0.25", "0.5", "0.9"):
            found = release.derived[f"pay_q{share}_age"].to_pylist()[row]
            truth = np.sort(some[:, 2] ** 2 // 9)[math.ceil(float(share) * len(some)) - 1]
            assert found["ci_low"] <= truth <= found["ci_high"]
        found = release.derived["pay_q2-3_income"].to_pylist()[row]
        truth = np.sort(some[:, 1])[math.ceil(2 * len(some) / 3) - 1]
        assert (found["ci_low"], found["ci_high"], found["estimate"]) == (100, 400, 400)
        assert 100 <= truth < 400


@each(
    "change,to,told",
    [
        ('"1/4", "1/2"', '"1/4", "0.25"', r"lists a share twice"),
        ('"1/4", "1/2"', '"1/4", "1"', r"measures\[1\].quantiles"),
        ('"1/4", "1/2"', '"1/3000001"', r"at most 6 decimals"),
        ('"1/4", "1/2"', '"1.5"', r"the share is 1.5; it must lie strictly between 0 and 1"),
        ('"1/4", "1/2"', "0.25", r"measures\[1\].quantiles"),
        (', of = "age"', "", r"of goes with quantiles"),
        ('of = "age"', 'of = "ages"', r'"ages" is no attribute; did you mean "age"'),
        ('of = "age"', 'of = "region"', r"'region' is counted by itself"),
        ('of = "age"', 'of = "sex"', r"'sex' has categories that are no numbers in order"),
        ('of = "age"', 'of = "income"', r"'income' has categories that are no numbers in order"),
        ('of = "age"', 'of = "age", near = 5', r"near goes with mean"),
        ('of = "age"', 'of = "age", target = { rmse = 1 }', r"no target can say it"),
    ],
)
def test_quantiles_that_are_refused(change: str, to: str, told: str) -> None:
    assert change in QUANTILES
    with pytest.raises(SpecError, match=told):
        Spec.from_text(
            QUANTILES.replace(', { quantiles = ["2/3"], of = "income" }', "").replace(change, to, 1)
        )


SURVEY = (
    HEAD
    + """
class = { column = "INC", bins = [0, 60, 120, 150, 200, 300, 1000] }
[values]
income = { column = "INC", range = [20, 120], step = 1, outside = "clamp", squares = true }
design = { column = "W", range = [0, 30], step = "0.5" }
hours = { column = "H", range = [-4, 60], step = 2, outside = "clamp" }
"""
    + PRIVACY.replace('"50"', '"40000"')
    + """
[[table]]
name = "pay"
attributes = ["region"]
totals = true
survey_weight = "design"
measures = ["count", { sum = "income" }, { mean = "income", near = 60 }, { variance = "income" },
            { quantiles = ["1/2"], of = "class" }, { clamping = "income", of = "class" }]
[[table]]
name = "people"
attributes = ["region", "sex"]
measures = ["count", { sum = "income * hours" }, { mean = "income" }, { clamping = "income", of = "class" }]
[[table]]
name = "squares"
sql = "SELECT sex, SUM(income * income) FROM p GROUP BY sex"
[[derived]]
name = "rate"
sql = "SELECT region, 2 * SUM(design * income) / SUM(design) FROM p GROUP BY region"
[[derived]]
name = "spread"
sql = "SELECT sex, VAR_POP(income) FROM p GROUP BY sex"
"""
)


def test_products_variances_weights_and_what_clamping_takes(tmp_path: Path) -> None:
    """All from one strategy, each as by hand within its interval, and from the published copy, too."""
    draw = np.random.default_rng(3)
    drawn = draw.integers([0, 0, 0, -20, 0], [2, 2, 61, 90, 1], size=(400, 5))
    income = np.rint(draw.gamma(2, 40, 400)).astype(int)
    with (tmp_path / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerow(("region", "sex", "INC", "W", "H"))
        rows = zip(drawn.tolist(), income.tolist(), strict=True)
        csv.writer(file).writerows(("NS"[r], "FM"[s], i, w / 2, h) for (r, s, w, h, _), i in rows)
    (tmp_path / "spec.toml").write_text(SURVEY)
    tb.Ledger.create(tmp_path / "ledger.db", tb.ZCDP(10**6), neighbours="add-remove", unit="person")
    release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert release.verify() == []
    region, sex, weight, hours = (
        drawn[:, 0],
        drawn[:, 1],
        drawn[:, 2] / 2,
        np.floor((np.clip(drawn[:, 3], -4, 60) + 4) / 2 + 0.5) * 2 - 4,
    )
    pay, found = np.clip(income, 20, 120), {**release.tables, **release.derived}

    def within(name: str, truths: list[float]) -> None:
        rows = found[name].to_pylist()
        for row, truth in zip(rows, truths, strict=True):
            more = 5 * row["std_error"]  # a false alarm in 10^11
            assert row["ci_low"] - more <= truth <= row["ci_high"] + more, (name, row, truth)

    regions = [region == 0, region == 1, region < 2]
    means = [np.average(pay[m], weights=weight[m]) for m in regions]
    within("pay_count", [weight[m].sum() for m in regions])
    within("pay_sum_income", [(weight * pay)[m].sum() for m in regions])
    within("pay_mean_income", means)
    spread = [np.average((pay[m] - u) ** 2, weights=weight[m]) for m, u in zip(regions, means, strict=True)]
    within("pay_variance_income", spread)
    within("pay_clamping_income", [(weight * (income - pay))[m].sum() for m in regions])
    order = np.argsort(income)
    running = [np.cumsum((weight * m)[order]) for m in regions]
    middle = [income[order][np.argmax(2 * total >= total[-1])] for total in running]
    within("pay_q0.5_class", middle)
    cells = [(region == r) & (sex == s) for r in (0, 1) for s in (0, 1)]
    within("people_sum_income_hours", [(pay * hours)[m].sum() for m in cells])
    within("people_clamping_income", [(income - pay)[m].sum() for m in cells])
    sexes = [sex == 0, sex == 1]
    within("squares", [(pay.astype(float) ** 2)[m].sum() for m in sexes])
    within("rate", [2 * mean for mean in means[:2]])
    within("spread", [pay[m].var() for m in sexes])
    about = json.loads((release.path / "datapackage.json").read_text())
    told = {each["title"]: each.get("description", "") for each in about["resources"]}
    assert told["pay_count"].startswith("Records, each counted design times; intervals are about the noise")
    assert told["squares"].startswith("Sum of income squared")
    answer = release.query("SELECT region, SUM(design * income) FROM p GROUP BY region")[
        "estimate"
    ].to_pylist()
    assert answer == pytest.approx(found["pay_sum_income"]["estimate"].to_pylist()[:2])
    copy = Spec.from_text((release.path / "spec.toml").read_text(), release.path)
    assert copy.digest() == Spec.from_text(SURVEY).digest()


SAMPLED = SURVEY.replace('"design"\n', '"design"\nsampling = { a = -0.0001, b = 40 }\n', 1)


def measured(spec: Spec, codes: np.ndarray) -> tb.Estimate:
    """With little noise, by the strategy of all cells."""
    strategy = tb.select(spec.workload, method="identity")
    counts = tb.Counts.from_records(spec.domain, codes)
    return tb.estimate(tb.measure(counts, strategy, tb.ZCDP(100), source=tb.noise.Insecure(1)))


def test_sampling_is_in_the_intervals_of_counts_sums_and_means() -> None:
    """Variances add up, and so do the squares of half-widths; nothing else of the table moves."""
    plain, spec = Spec.from_text(SURVEY), Spec.from_text(SAMPLED)
    assert (sorted(spec.sampling), plain.sampling) == (["pay_count", "pay_mean_income", "pay_sum_income"], {})
    assert "sampling is not in them" in plain.units["pay_count"]
    assert (
        "about noise and sampling, whose variance at a count n is -0.0001 n² + 40 n"
        in spec.units["pay_count"]
    )
    for name, held in (("mean_income", True), ("variance_income", False), ("q0.5_class", False)):
        (title,) = (d.title for d in spec.derived if d.name == f"pay_{name}")
        assert title.endswith(f"times, sampling {'' if held else 'not '}in the interval")
    draw = np.random.default_rng(5)
    codes = np.stack([draw.integers(0, attribute.codes, 300) for attribute in spec.domain.attributes], axis=1)
    found = measured(spec, codes)
    was, now = ({t.name: t for t in publish(found, s.published, 0.9, s.sampling)} for s in (plain, spec))
    count, total = now["pay_count"].estimate, now["pay_sum_income"].estimate
    before, after = (
        {figure.name: figure for figure in publish_derived(found, s, 0.9)} for s in (plain, spec)
    )
    variance, mean = after["pay_variance_income"].estimate, after["pay_mean_income"].estimate
    spread = {
        "pay_count": 40 * count - 0.0001 * count**2,
        "pay_sum_income": 40 * count * (variance + mean**2) - 0.0001 * total**2,
        "pay_mean_income": 40 * variance / count,
    }
    for name, one in {**was, **before}.items():
        other = {**now, **after}[name]
        assert (other.estimate == one.estimate).all()
        more = spread.get(name, np.zeros(len(one.estimate)))
        assert other.std_error**2 == pytest.approx(one.std_error**2 + more)
        wide = stats.norm.ppf(0.95) * np.sqrt(more)
        assert other.ci_high == pytest.approx(one.estimate + np.hypot(one.ci_high - one.estimate, wide))
        low = one.estimate - np.hypot(one.estimate - one.ci_low, wide)
        assert other.ci_low == pytest.approx(np.maximum(low, 0) if more.any() else low)


def test_sampling_of_sums_is_that_of_all_samples() -> None:
    """Of one simple random sample out of every one that could be drawn, in fractions: for counts and for sums."""
    population, drawn = [Fraction(v) for v in (3, 9, 4, 20, 7, 7)], 3
    size, weight = Fraction(6), Fraction(6, drawn)
    b = weight * (1 - Fraction(drawn, 6)) * size / (size - 1)
    for rows in ([0, 1, 2], [3], [0, 1, 2, 3, 4, 5]):  # the domain of a row of the table
        for power in (0, 1):
            worth = [v**power if i in rows else Fraction(0) for i, v in enumerate(population)]
            sums = [weight * sum(sample) for sample in itertools.combinations(worth, drawn)]
            total = sum(worth)
            assert sum(sums) / len(sums) == total
            found = sum((s - total) ** 2 for s in sums) / len(sums)
            assert found == b * sum(w * w for w in worth) - b / size * total**2


@pytest.mark.long
def test_intervals_with_sampling_hold_what_the_population_has() -> None:
    """Of simple random samples of 150 from 3,000 people: at 90 % at least 86.4 % of 600 hold (a false alarm in 400)."""
    spec = Spec.from_text(SAMPLED.replace("a = -0.0001, b = 40", f"a = {-19 / 2999}, b = {19 * 3000 / 2999}"))
    draw, held, seen = np.random.default_rng(8), np.zeros(3), 0
    names = [a.name for a in spec.domain.attributes]
    people = np.stack([draw.integers(0, a.codes, 3000) for a in spec.domain.attributes], axis=1)
    people[:, names.index("design")] = 40  # 20, in steps of 1/2
    pay, south = 20 + people[:, names.index("income")], people[:, names.index("region")] == 1
    truths = [south.sum(), pay[south].sum(), pay[south].mean()]
    for _ in range(600):
        found = measured(spec, people[draw.choice(3000, 150, replace=False)])
        told = {t.name: t for t in publish(found, spec.published, 0.9, spec.sampling)}
        told |= {figure.name: figure for figure in publish_derived(found, spec, 0.9)}
        ends = [told[f"pay_{name}"] for name in ("count", "sum_income", "mean_income")]
        held += [each.ci_low[1] <= t <= each.ci_high[1] for each, t in zip(ends, truths, strict=True)]
        seen += 1
    assert (held / seen >= 0.864).all(), held / seen


@each(
    "change,to,told",
    [
        ('survey_weight = "design"', 'sampling = { b = 3 }', r"sampling .*goes with survey_weight"),
        ('"design"', '"design"\nsampling = { a = 3 }', r"sampling.b .*is missing"),
        ('"design"', '"design"\nsampling = { b = -3 }', r"sampling.b"),
        ('"design"', '"design"\nsampling = { b = nan }', r"sampling.b .*finite number, not NaN"),
        ('survey_weight = "design"', 'survey_weight = "hours"', r'survey_weight .*"hours" may be negative'),
        ('survey_weight = "design"', 'survey_weight = "income"', r'"income" is the weight of this table'),
        ('survey_weight = "design"', 'survey_weight = "sex"', r"it is an attribute, and sums are of values"),
        ('survey_weight = "design"', 'survey_weight = "w"', r'there is no value "w"'),
        ('name = "squares"\n', 'name = "squares"\nsurvey_weight = "income"\n', r'"income" is the weight of this'),
        (', of = "class" }]\n[[table]]', " }]\n[[table]]", r"clamping needs classes of the same numbers"),
        ('{ clamping = "income", of = "class" }]\n[[table]]', '{ clamping = "income", of = "sex" }]\n[[table]]',
         r'"sex" does not say how large the numbers of income are'),
        ('{ clamping = "income", of = "class" }]\n[[table]]', '{ clamping = "hours", of = "class" }]\n[[table]]',
         r'"class" does not say how large the numbers of hours are'),
        ('{ clamping = "income", of = "class" }]\n[[table]]', '{ clamping = "income", of = "clas" }]\n[[table]]',
         r'"clas" is no attribute; did you mean "class"'),
        ("300, 1000] }", '300, 1000], open = "above" }', r"bins of whole numbers that are not open"),
        ("bins = [0, 60, 120, 150, 200, 300, 1000]", "bins = [20, 60, 120]", r'no class of "class" reaches beyond'),
        ('outside = "clamp", squares', "squares", r"nothing of income is clamped"),
        ('{ clamping = "income", of = "class" }]\n[[table]]',
         '{ clamping = "income", of = "class", target = { rmse = 3 } }]\n[[table]]', r"and no target"),
    ],
)  # fmt: skip
def test_weights_and_clamping_that_are_refused(change: str, to: str, told: str) -> None:
    assert change in SURVEY
    with pytest.raises(SpecError, match=told):
        Spec.from_text(SURVEY.replace(change, to))


def test_invariants_beside_values(folder: Path, tmp_path: Path) -> None:
    text = WHOLE.replace('"ledger.db"', '"own.db"\nneighbours = "replace"')
    text += '[[invariant]]\nattributes = ["region"]\nreason = "known"\n'
    (tmp_path / "people.csv").write_bytes((folder / "people.csv").read_bytes())
    (tmp_path / "spec.toml").write_text(text)
    tb.Ledger.create(tmp_path / "own.db", tb.ZCDP(100), neighbours="replace", unit="person")
    release = tb.run(tmp_path / "spec.toml", tmp_path / "release")
    assert release.tables["exact region"]["estimate"].to_pylist() == [200, 200]
    counts = release.tables["pay_count"].to_pylist()
    assert [row["estimate"] for row in counts if row["sex"] == "_T"] == [200, 200, 400]
    assert release.verify() == []
