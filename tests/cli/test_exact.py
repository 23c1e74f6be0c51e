"""The command line under exact counts: what is said first, what is refused, and the example from end to end."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.test_cli import _call, _fails, _json
from tests.run.exact import ADULTS, TOTAL, YOUNG, hamlet, text
from tests.run.stops import kill

import tabulae as tb

EXAMPLE = Path(__file__).parents[2] / "examples" / "exact.toml"
WITHIN = "replace-within-invariants"


def invariant(name: str, body: str) -> str:
    return f'\n[[invariant]]\nname = "{name}"\n{body}\nreason = "law"\n'


def test_the_plan_says_first_what_is_exact(tmp_path: Path) -> None:
    spec = hamlet(tmp_path, text(TOTAL, YOUNG))
    shown = _call("plan", spec).stdout
    assert shown.startswith("Exact     4 counts are published without noise; no promise covers what they say")
    assert shown.index("exact young: young (3). Why: apportionment") < shown.index("Promise")
    assert "3 of them are independent; the other follows from these" in shown
    assert "Warning   'exact total' follows from 'exact young'" in shown
    assert "It covers what the exact counts leave open" in shown
    document = _json(_call("plan", spec, "--json"))
    assert isinstance(document, dict)
    assert document["exact"]["independent"] == 3
    assert document["exact"]["published"] == {"ages": 6, "everybody": 1}
    assert len(document["warnings"]) == 2
    everybody = next(row for row in document["tables"] if row["table"] == "everybody")
    assert (everybody["rmse"], everybody["margin"], everybody["bound"], everybody["exact"]) == (0, 0, 0, 1)


def test_a_plan_without_exact_counts_says_nothing_of_them(village: Path) -> None:
    shown = _call("plan", village).stdout
    assert shown.startswith("Promise")
    assert "xact" not in shown.split("Strategy")[0]
    document = _json(_call("plan", village, "--json"))
    assert isinstance(document, dict)
    assert (document["exact"], document["warnings"]) == (None, [])


def test_within_invariants_is_said_in_words(tmp_path: Path) -> None:
    ages = invariant("ages exact", 'attributes = ["age"]')
    spec = hamlet(tmp_path, text(ages, neighbours=WITHIN), WITHIN)
    shown = _call("plan", spec).stdout
    assert "only where every exact count stays as it is" in shown
    assert "no promise covers 'age'" in shown
    assert _call("run", spec, "--out", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "no promise covers age" in page
    assert "whichever of two records one person has" in page


def test_run_check_query_and_ledger_show(tmp_path: Path) -> None:
    spec, out = hamlet(tmp_path, text(TOTAL, YOUNG)), tmp_path / "out"
    assert "2 sets of exact counts" in _call("check", spec).stdout
    assert (
        "Exact, outside the promise: exact young. Why: apportionment"
        in _call("run", spec, "--out", out).stdout
    )
    assert "every sum that is exact holds exactly" in _call("check", out).stdout
    asked = _call("query", out, "SELECT young, COUNT(*) FROM p GROUP BY young").stdout
    assert asked.count("exact") == 3
    shown = _call("ledger", "show", tmp_path / "ledger.db").stdout
    assert "apportionment" in shown
    again = _call("plan", spec).stdout
    assert "Earlier   releases of this ledger have stated exactly:" in again
    assert "exact young (Hamlet). Why: apportionment" in again


REFUSED = {
    "the whole table": (
        text(invariant("whole", 'attributes = ["sex", "age", "race"]')),
        "determine every table",
    ),
    "an unknown category": (
        text(invariant("x", "sql = \"SELECT COUNT(*) FROM p WHERE sex = 'X'\"")),
        "invariant[0].sql",
    ),
    "an unknown attribute": (text(invariant("x", 'attributes = ["aeg"]')), "invariant[0].attributes[0]"),
    "a graphical model": (text(TOTAL, estimate="pgm"), "cannot keep counts exact"),
    "nobody protected": (
        text(
            *(invariant(f"by {n}", f'attributes = ["{n}"]') for n in ("sex", "age", "race")),
            neighbours=WITHIN,
        ),
        "nobody would be protected",
    ),
    "within nothing": (text(neighbours=WITHIN), "no count is exact"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_charge_and_write_nothing(tmp_path: Path, case: str) -> None:
    document, words = REFUSED[case]
    neighbours = WITHIN if WITHIN in document else "add-remove"
    spec = hamlet(tmp_path, document, neighbours)
    for call in (("plan", spec), ("run", spec, "--out", tmp_path / "out")):
        _fails(_call(*call), 1, words)
    assert tb.Ledger.open(tmp_path / "ledger.db").charges() == []
    assert tb.Ledger.open(tmp_path / "ledger.db").disclosures() == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.db", "people.csv", "spec.toml"]


def test_an_exact_count_over_the_cap_is_not_read(tmp_path: Path) -> None:
    """The ledger refuses the charge: then nothing is disclosed either."""
    spec = hamlet(tmp_path, text(TOTAL, YOUNG).replace('budget = "1/2"', 'budget = "3"'))
    _fails(_call("run", spec, "--out", tmp_path / "out"), 3)
    assert tb.Ledger.open(tmp_path / "ledger.db").disclosures() == []
    assert not (tmp_path / "out").exists()


# the example ----------------------------------------------------------------------------------------------


def float_sum(values: list[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example beside 5,000 invented people, with a ledger."""
    from tabulae.demo import write_population

    folder = tmp_path_factory.mktemp("demo")
    write_population(folder / "people.parquet", people=5000)
    (folder / "exact.toml").write_text(EXAMPLE.read_text())
    ledger = folder / "exact-ledger.db"
    made = _call("ledger", "init", ledger, "--budget", "1", "--definition", "zcdp", "--unit", "person")
    assert made.exit_code == 0
    return folder


@pytest.mark.long
def test_the_example_from_end_to_end(demo: Path) -> None:
    spec, out = demo / "exact.toml", demo / "release"
    plan = _json(_call("plan", spec, "--save", demo / "plan.json", "--json"))
    assert isinstance(plan, dict)
    assert (plan["exact"]["stated"], plan["exact"]["independent"]) == (101, 100)
    assert 0 < plan["bound"] <= plan["rmse"]
    assert _call("run", spec, "--out", out, "--plan", demo / "plan.json").exit_code == 0
    assert "every sum that is exact holds exactly" in _call("check", out).stdout
    people = pq.read_table(demo / "people.parquet")
    ages = np.bincount(people["age"].to_numpy(), minlength=100)
    with (out / "tables" / "sex_by_age.csv").open() as file:
        written = list(csv.DictReader(file))
    for age in range(100):
        assert float_sum([float(r["estimate"]) for r in written if r["age"] == str(age)]) == ages[age]
    with (out / "tables" / "county_by_age5.csv").open() as file:
        written = list(csv.DictReader(file))
    assert float_sum([float(r["estimate"]) for r in written if r["age5"] == "0-4"]) == ages[:5].sum()
    assert float_sum([float(r["estimate"]) for r in written]) == 5000
    with (out / "tables" / "adults_by_county.csv").open() as file:
        adults = [float(r["estimate"]) for r in csv.DictReader(file)]
    assert float_sum(adults) == ages[18:].sum()
    (total,) = json.loads(_call("query", out, "SELECT COUNT(*) FROM people WHERE age >= 65", "--json").stdout)
    assert (total["estimate"], total["std_error"], total["obs_status"]) == (ages[65:].sum(), 0.0, "E")
    page = (out / "report.html").read_text()
    assert page.index("What is exact</h2>") < page.index("What this release promises</h2>")
    before = page
    assert _call("report", out).exit_code == 0
    assert (out / "report.html").read_text() == before


@pytest.mark.long
def test_the_example_survives_a_kill_between_charge_and_storing(demo: Path) -> None:
    spec, out, saved = demo / "exact.toml", demo / "killed", demo / "saved.json"
    assert _call("plan", spec, "--save", saved).exit_code == 0
    kill("charged", spec, out, plan_file=str(saved))
    _fails(_call("run", spec, "--out", out, "--resume"), 1, "void", "exact counts", "stay in the ledger")
    assert not out.exists()
    assert _call("run", spec, "--out", out).exit_code == 0
    assert "every sum that is exact" in _call("check", out).stdout


@pytest.mark.long
def test_an_invariant_that_crosses_the_tables(tmp_path: Path) -> None:
    """Exact adults by sex: no margin, and neither the ranges nor the groups of the tables nest with it."""
    spec, out = hamlet(tmp_path, text(ADULTS, YOUNG)), tmp_path / "out"
    assert _call("run", spec, "--out", out).exit_code == 0
    assert "every sum that is exact" in _call("check", out).stdout
    asked = "SELECT sex, COUNT(*) FROM p WHERE age >= 5 GROUP BY sex"
    rows = _json(_call("query", out, asked, "--json"))
    stored = pq.read_table(out / "invariants" / "adults.parquet")["value"].to_pylist()
    assert isinstance(rows, list)
    assert [(r["estimate"], r["obs_status"]) for r in rows] == [(v, "E") for v in stored]
    release = tb.Release.read(out)
    older = [r for r in release.tables["sex_by_age"].to_pylist() if int(r["age"]) >= 5]
    for sex, exact in zip("FM", stored, strict=True):
        assert float_sum([r["estimate"] for r in older if r["sex"] == sex]) == exact
