"""Records prepared inside the spec: what each key takes, what it refuses, and what is published of it."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.duchy import write_duchy
from tests.guild import write_guild

import tabulae as tb
from tabulae.audit import audit
from tabulae.errors import DataError, SpecError
from tabulae.products.product import rules_of
from tabulae.products.tables.plan import plan_tables
from tabulae.products.tables.product import prepare
from tabulae.sources.values import exact_number, least_float
from tabulae.spec import Spec

SPEC = """
[source]
path = "people.csv"
where = "STATUS = 'resident'"

[attributes]
age = { column = "AGE", ENTRY }

[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"

[[table]]
name = "ages"
attributes = ["age"]
"""


def spec_with(entry: str, **changes: str) -> Spec:
    text = SPEC.replace("ENTRY", entry)
    for before, after in changes.items():
        text = text.replace({"where": "STATUS = 'resident'", "budget": 'budget = "1/2"'}[before], after)
    return Spec.from_text(text)


@pytest.mark.parametrize(
    ("entry", "labels"),
    [
        ('bins = [0, 18, 65], open = "above"', ("0-17", "18-64", "65+")),
        ('bins = [0, 18, 19, 65], open = "both"', ("under 0", "0-17", "18", "19-64", "65+")),
        ("bins = [-10, 0, 5]", ("-10 to -1", "0 to 4")),
        ('bins = ["0", "0.5", "1.25"]', ("0 to under 0.5", "0.5 to under 1.25")),
        ('bins = [0, "0.5"], open = "below"', ("under 0", "0 to under 0.5")),
        ('bins = [18], open = "both"', ("under 18", "18+")),
        ('bins = [0, 18, 65], labels = ["minor", "adult"]', ("minor", "adult")),
        ('bins = [0, 18], unknown = "other"', ("0-17", "other")),
        ("years = [2019, 2021]", ("2019", "2020", "2021")),
        ('quarters = ["2019-Q4", "2020-Q1"]', ("2019-Q4", "2020-Q1")),
        ('months = ["2019-12", "2020-02"], format = "DD.MM.YYYY"', ("2019-12", "2020-01", "2020-02")),
        ('years = [2020, 2020], format = "YYYY"', ("2020",)),
        ('categories = ["Ö", "x"], case = "ignore"', ("Ö", "x")),
    ],
)
def test_the_labels_that_an_entry_makes(entry: str, labels: tuple[str, ...]) -> None:
    spec = spec_with(entry)
    attribute = spec.domain["age"]
    assert attribute.labels == labels
    assert attribute.ordered == ("categories" not in entry and "other" not in labels)
    again = Spec.from_text(spec.published_text())
    assert again.digest() == spec.digest()
    assert again.domain == spec.domain
    assert rules_of(again) == rules_of(spec)
    assert again.source.where == spec.source.where


@pytest.mark.parametrize(
    ("entry", "path", "words"),
    [
        ("bins = []", "bins", "leaves no class"),
        ("bins = [5]", "bins", "leaves no class"),
        ("bins = [5, 5]", "bins", "must increase"),
        ('bins = ["1", "0.5"]', "bins", "must increase"),
        ("bins = [0, 1.5]", "bins", 'write "1.5"'),
        ("bins = [0, true]", "bins", "must be exact numbers"),
        ('bins = [0, "1e3"]', "bins", "is no number"),
        ('bins = [0, "ten"]', "bins", "is no number"),
        ('bins = [0, "１８"]', "bins", "is no number"),
        (f"bins = [0, {10**18}]", "bins", "more than 15 digits"),
        ('bins = ["0", "0.0000000001"]', "bins", "more than 9 decimals"),
        (f"bins = {list(range(1002))}", "bins", "1,002 edges"),
        ('bins = "0, 18"', "bins", "must be an array"),
        ('bins = [0, 18], open = "up"', "open", 'must be "below", "above" or "both"'),
        ('range = [0, 18], open = "above"', "", "open goes with bins"),
        ("bins = [0, 18], labels = []", "labels", "is empty"),
        ('bins = [0, 18], labels = ["a", "b"]', "labels", "has 2 labels, and the bins are 1"),
        ('bins = [0, 18, 65], labels = ["a", "a"]', "", "twice"),
        ('bins = [0, 18, 65], labels = ["a", "_T"]', "", "stands for the total"),
        ("bins = [0, 18], range = [0, 18]", "", "needs exactly one of"),
        ('bins = [0, 18], outside = "clamp"', "", "outside goes with"),
        ('range = [0, 18], outside = "other"', "outside", 'must be "clamp"'),
        ('categories = ["a"], outside = "clamp"', "", "outside goes with"),
        ("years = [2020]", "", "years must be [lowest, highest]"),
        ("years = [2021, 2020]", "years", "must be [first, last]"),
        ("years = [0, 2020]", "years", "years from 1 to 9999"),
        ("years = [2020, 99999]", "years", "years from 1 to 9999"),
        ('years = ["2020", "2021"]', "years[0]", "must be an integer"),
        ('months = ["2020-13", "2021-01"]', "months", "must be months"),
        ('months = ["0000-01", "2021-01"]', "months", "must be months"),
        ("months = [1, 12]", "months[0]", "must be a string"),
        ('quarters = ["2020-Q5", "2021-Q1"]', "quarters", "must be quarters"),
        ('quarters = ["2021-Q1", "2020-Q1"]', "quarters", "must be [first, last]"),
        ('years = [2020, 2021], format = "DD.MM"', "format", "where the year stands"),
        ('years = [2020, 2021], format = "YYYY-YYYY"', "format", "no way to write dates"),
        ('years = [2020, 2021], format = "%d.%m.%Y"', "format", "where the year stands"),
        ('years = [2020, 2021], format = "YYYY.*"', "format", "no way to write dates"),
        ('years = [2020, 2021], format = ""', "format", "is empty"),
        ('months = ["2020-01", "2020-02"], format = "YYYY"', "months", "do not tell the month"),
        ('bins = [0, 18], format = "YYYY"', "", "format goes with"),
        ('categories = ["a", "A"], case = "ignore"', "case", 'makes "a" and "A" one'),
        ('categories = [1, 2], case = "ignore"', "", "case is of text"),
        ('range = [0, 9], case = "ignore"', "", "case goes with"),
        ('categories = ["a"], case = "exact"', "case", 'must be "ignore"'),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_taken(entry: str, path: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_with(entry)
    told = [f"{problem.path}: {problem.message}" for problem in caught.value.problems]
    assert any(
        each.startswith(f"attributes.age{'.' if path else ''}{path}") and words in each for each in told
    ), told


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("", "is empty"),
        ("STATUS", "it is no comparison"),
        ("STATUS = ", "does not parse"),
        ("STATUS = 'a'; DROP TABLE people", "one condition, without a semicolon"),
        ("1 = 1", "does not compare one column"),
        ("TRUE", "it is no comparison"),
        ("LOWER(STATUS) = 'a'", "does not compare one column"),
        ("STATUS LIKE 'a%'", "it is no comparison"),
        ("STATUS IN (SELECT STATUS FROM people)", "IN takes a list of literals"),
        ("STATUS IN ()", "IN takes a list of literals"),
        ("STATUS IN ('a', 1)", "it mixes numbers, text and dates"),
        ("STATUS IN ('a', NULL)", "write IS NULL"),
        ("STATUS = NULL", "write IS NULL"),
        ("STATUS = ''", "write IS NULL"),
        ("STATUS = ' a'", "blanks around text"),
        ("STATUS < 'b'", "text has no order here"),
        ("STATUS = OTHER", "columns are not compared with one another"),
        ("people.STATUS = 'a'", "a column stands by its name alone"),
        ("AGE + 1 = 2", "does not compare one column"),
        ("AGE = 1e3", "is no number"),
        ("AGE = 1234567890123456", "more than 15 digits"),
        ("BORN = DATE '2023-02-29'", "no date of the calendar"),
        ("BORN = DATE '9999-12-31'", "no day after it"),
        ("BORN BETWEEN DATE '2020-01-01' AND 5", "one end is a number"),
        ("AGE = 5 -- adults", "holds a comment"),
        ("AGE = ?", "does not compare a column with literals"),
        ("EXISTS (SELECT 1)", "it is no comparison"),
        ("NOT " * 300 + "A = 1", "nested too deeply"),
    ],
)
def test_a_condition_that_cannot_be_taken(where: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_with("range = [0, 9]", where=where)
    assert [problem.path for problem in caught.value.problems] == ["source.where"]
    assert words in caught.value.problems[0].message


def test_a_condition_is_text() -> None:
    with pytest.raises(SpecError, match="must be a string"):
        Spec.from_text(SPEC.replace("\"STATUS = 'resident'\"", "5").replace("ENTRY", "range = [0, 9]"))


def test_within_invariants_takes_no_condition() -> None:
    text = SPEC.replace("ENTRY", "range = [0, 9]").replace(
        '"1/2"', '"1/2"\nneighbours = "replace-within-invariants"'
    )
    text += '[[invariant]]\nsql = "SELECT COUNT(*) FROM t WHERE age < 5"\nname = "few"\nreason = "law"\n'
    with pytest.raises(SpecError, match="only some records are counted"):
        Spec.from_text(text)
    Spec.from_text(text.replace("where =", "# where ="))


def test_every_part_is_in_the_digest() -> None:
    entries = [
        "range = [1, 9]", 'range = [1, 9], outside = "clamp"', "years = [1, 9]", 'years = [1, 9], format = "YYYY"',
        "bins = [1, 10]", 'bins = [1, 10], open = "above"', 'bins = [1, 10], labels = ["x"]', 'bins = [1, "10"]',
        'categories = ["a"]', 'categories = ["a"], case = "ignore"',
    ]  # fmt: skip
    digests = {spec_with(entry).digest() for entry in entries}
    digests |= {spec_with(entries[0], where=where).digest() for where in ("A = 1", "A = '1'", "B = 1")}
    assert len(digests) == len(entries) + 3


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_least_float_of_a_number(kind: type[np.floating]) -> None:
    """Floats around an edge, one after the other: those below mean less, whatever their bits are."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        edge = exact_number(f"{rng.integers(-(10**6), 10**6)}.{rng.integers(10**4):04}")
        for above in (False, True):
            least = kind(least_float(edge, kind, above=above))
            before = np.nextafter(least, kind(-np.inf))
            meant = [Fraction(str(least)), Fraction(str(before))]
            assert meant[0] > edge if above else meant[0] >= edge
            assert meant[1] <= edge if above else meant[1] < edge


STATUSES = ("resident", "abroad")
PEOPLE = [(age, status) for age in range(3) for status in STATUSES]
TABLE = 'attributes = ["age"]\n[[table]]\nname = "all"\nattributes = []'


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("select", ["workload", "auto", pytest.param("identity", marks=pytest.mark.long)])
def test_no_neighbour_of_the_records_moves_the_answers_further(
    tmp_path: Path, neighbours: str, select: str
) -> None:
    """Every record that there is, among others, against every other: counted as a run does, without noise."""
    text = SPEC.replace("ENTRY", "range = [0, 2]").replace('attributes = ["age"]', TABLE)
    text = text.replace('"1/2"', f'"1/2"\nneighbours = "{neighbours}"')
    spec = Spec.from_text(text + f'[method]\nselect = "{select}"\n', tmp_path)
    plan = plan_tables(spec)

    def answers(people: list[tuple[int, str]]) -> list[np.ndarray]:
        rows = [f"{age},{status}" for age, status in people]
        (tmp_path / "people.csv").write_text("\n".join(["AGE,STATUS", *rows]) + "\n")
        counts = prepare(plan)._counts
        return [counts.answer(block.query) for block in plan.strategy.blocks]

    base = [(0, "resident"), (1, "resident"), (1, "abroad")]
    found = [answers([*base, one]) for one in PEOPLE]
    changes = [(a, b) for a, b in itertools.combinations(found, 2)] if neighbours == "replace" else []
    if neighbours == "add-remove":
        before_any = answers(base)
        changes = [(before_any, one) for one in found]
    weights = [1 / (b.scale * Fraction(4) ** b.exponent) for b in plan.strategy.blocks]
    worst = max(
        sum(w * int(((after - before) ** 2).sum()) for w, before, after in zip(weights, a, b, strict=True))
        for a, b in changes
    )
    assert worst == plan.strategy.sensitivity(*spec.change).power
    pairs = plan.strategy.sensitivity(neighbours).power
    assert worst >= pairs
    if neighbours == "replace" and select == "workload":  # the total, which no pair moves
        assert worst > 0
    laws = prepare(plan).measure(None).laws
    assert laws == plan.strategy.laws(spec.loss, *spec.change)


def test_under_replace_the_number_of_counted_records_takes_noise(tmp_path: Path) -> None:
    """A total is public where one record replaces another, and is not where only some of them are counted."""
    text = SPEC.replace("ENTRY", "range = [0, 2]").replace('attributes = ["age"]', "attributes = []")
    text += '[method]\nselect = "workload"\n'
    text = text.replace('"1/2"', '"1/2"\nneighbours = "replace"')
    with pytest.raises(tb.TabulaeError, match="number of records is public"):
        plan_tables(Spec.from_text(text.replace("where =", "# where ="))).table_errors  # noqa: B018
    (table,) = plan_tables(Spec.from_text(text)).table_errors
    assert table.rmse == pytest.approx(1, rel=1e-6)  # rho 1/2: variance 1, as where records come and go


@pytest.mark.long
def test_an_audit_finds_the_promise_kept(tmp_path: Path) -> None:
    text = SPEC.replace("ENTRY", "bins = [0, 18, '65.5'], open = 'both', unknown = 'other'").replace(
        '"1/2"', '"1/2"\nneighbours = "replace"'
    )
    text = text.replace(
        "[privacy]", "born = { quarters = ['2019-Q4', '2020-Q2'], outside = 'clamp' }\n[privacy]"
    )
    text = text.replace(
        "[privacy]", "n = { range = [0, 2], outside = 'clamp', unknown = 'other' }\n[privacy]"
    )
    text = text.replace('attributes = ["age"]', 'attributes = ["age", "born", "n"]')
    done = audit(Spec.from_text(text, tmp_path), seconds=0.2)
    assert done.failed == ()
    assert {check.name for check in done.checks} >= {"replace one", "remove one", "add one"}


@pytest.mark.parametrize(
    ("write", "measure", "status", "kept"),
    [
        (write_duchy, "tabulae.products.areas.product.measure_spine", lambda row: row[-1], "a"),
        (write_guild, "tabulae.products.groups.product.measure_groups", lambda row: row[1], "F"),
    ],
    ids=["areas", "groups"],
)
def test_areas_and_groups_count_the_same_records(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], Path],
    measure: str,
    status: Callable[[list[str]], str],
    kept: str,
) -> None:
    """With a condition on a column of their own what they count is what a file of these records alone would give."""
    seen = []

    def stop(counts: Any, *_: object, **__: object) -> None:
        seen.append(counts.fingerprint())
        raise DataError("counted")

    monkeypatch.setattr(measure, stop)
    spec = write(tmp_path)
    header, *rows = (tmp_path / "people.csv").read_text().splitlines()
    some = [row for row in rows if status(row.split(",")) == kept]
    assert 0 < len(some) < len(rows)
    for lines, where in ((rows, f"where = \"STATUS = '{kept}'\"\n"), (some, ""), (rows, "")):
        told = [f"{header},STATUS", *(f"{row},{status(row.split(','))}" for row in lines)]
        (tmp_path / "people.csv").write_text("\n".join(told) + "\n")
        text = spec.read_text()
        (tmp_path / "again.toml").write_text(
            text.replace('path = "people.csv"\n', f'path = "people.csv"\n{where}')
        )
        with pytest.raises(DataError, match="counted"):
            tb.run(tmp_path / "again.toml", tmp_path / f"out{len(seen)}")
    assert seen[0] == seen[1] != seen[2]


def test_a_run_with_all_of_it(tmp_path: Path) -> None:
    """The tables are those of the records prepared by hand; the report says what is counted."""
    rng = np.random.default_rng(5)
    born = [datetime.date(1950, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 27000, 800)]
    income = [f"{v:.2f}".replace(".", ",") for v in rng.integers(-500, 400000, 800) / 100]
    rows = [
        f"{b:%d.%m.%Y};{i};{['Öl', 'öl', 'ÖL', 'x'][int(rng.integers(4))]};{STATUSES[int(rng.integers(2))]}"
        for b, i in zip(born, income, strict=True)
    ]
    (tmp_path / "people.csv").write_text("BORN;INCOME;HEAT;STATUS\n" + "\n".join(rows) + "\n")
    text = SPEC.replace('path = "people.csv"', 'path = "people.csv"\ndelimiter = ";"\ndecimal = ","').replace(
        'age = { column = "AGE", ENTRY }',
        'born = { column = "BORN", years = [1960, 2010], format = "DD.MM.YYYY", outside = "clamp" }\n'
        'income = { column = "INCOME", bins = ["0", "999.50", 2000], open = "both" }\n'
        'heat = { column = "HEAT", categories = ["öl", "X"], case = "ignore" }',
    )
    text = text.replace('"1/2"', '"100000000"').replace(
        'attributes = ["age"]', 'attributes = ["income", "heat"]'
    )
    text += '[[table]]\nname = "years"\nattributes = ["born"]\n'
    (tmp_path / "spec.toml").write_text(text)
    tb.Ledger.create(tmp_path / "ledger.db", 10**8, "zcdp")
    release = tb.run(tmp_path / "spec.toml", tmp_path / "out")
    kept = [row.split(";") for row in rows if row.endswith("resident")]
    found = {(r["income"], r["heat"]): round(r["estimate"]) for r in release.tables["ages"].to_pylist()}
    by_hand = dict.fromkeys(found, 0)
    for _, amount, heat, _ in kept:
        value = Fraction(amount.replace(",", "."))
        at = sum(value >= edge for edge in (0, Fraction("999.5"), 2000))
        by_hand[release.spec.domain["income"].labels[at], "X" if heat == "x" else "öl"] += 1
    assert found == by_hand
    years = {r["born"]: round(r["estimate"]) for r in release.tables["years"].to_pylist()}
    assert sum(years.values()) == len(kept)
    assert years["1960"] == sum(int(row[0][-4:]) <= 1960 for row in kept)
    page = (tmp_path / "out/report.html").read_text()
    assert "STATUS = &#39;resident&#39;" in page
    moved = release.spec.with_source(tmp_path / "people.parquet")
    assert moved.source.where == release.spec.source.where
    assert moved.digest() == release.spec.digest()
