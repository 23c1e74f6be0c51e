"""Whole runs in which a person may stand in several records."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.cli.test_cli import _call, _fails, _json
from tests.passages import changed

import tabulae as tb
from tabulae.products.product import row_key
from tabulae.products.tables.plan import Plan
from tabulae.products.tables.product import prepare
from tabulae.spec import read_spec

K = 3
KEY = bytes(range(32))


@pytest.fixture
def visits(village: Path) -> Path:
    """The village with a person's id on each of its 400 records: 2.7 each on average, up to 9."""
    path = village.parent / "people.csv"
    rng = np.random.default_rng(11)
    header, *rows = path.read_text().split()
    ids = np.sort(rng.integers(0, 150, len(rows)))
    path.write_text(
        "\n".join([f"{header},PID", *(f"{r},p{i}" for r, i in zip(rows, ids, strict=True))]) + "\n"
    )
    changed(village, ('unit = "person"', f'unit = "person"\nunit_id = "PID"\nrows_per_unit = {K}'))
    return village


def _with(spec: Path, text: str) -> Plan:
    """The plan of the same spec with another bound, and the same strategy as far as the method allows."""
    source = spec.read_text().replace(f"rows_per_unit = {K}", text)
    return tb.plan(tb.spec.Spec.from_text(source, spec.parent))


def test_plan_run_report_and_ledger_state_the_unit(visits: Path) -> None:
    folder, out = visits.parent, visits.parent / "release"
    plan = _json(_call("plan", visits, "--save", folder / "plan.json", "--json"))
    assert plan["promise"]["unit"] == "person"
    assert plan["promise"]["rows_per_unit"] == K
    assert "add-remove one person, at most 3 rows of each counted" in _call("plan", visits).stdout
    run = _call("run", visits, "--out", out, "--plan", folder / "plan.json")
    assert run.exit_code == 0, run.output
    assert "at most 3 rows of each counted" in run.stdout
    release = tb.Release.read(out)
    assert release.verify() == []
    assert (release.spec.unit_id, release.spec.rows_per_unit) == ("PID", K)
    page = " ".join((out / "report.html").read_text().split())
    assert "At most 3 of each person are counted" in page
    assert "adding or removing one person’s records" in page
    ledger = tb.Ledger.open(folder / "ledger.db")
    assert (ledger.unit, ledger.spent) == ("person", Fraction(1, 2))
    key = row_key(read_spec(visits), ledger)
    for path in (p for p in out.rglob("*") if p.is_file()):
        assert key not in path.read_bytes()
        assert key.hex().encode() not in path.read_bytes()
    total = release.query("SELECT COUNT(*) FROM people").to_pylist()[0]
    people = {}
    for line in (folder / "people.csv").read_text().split()[1:]:
        people[line.split(",")[3]] = people.get(line.split(",")[3], 0) + 1
    kept = sum(min(K, n) for n in people.values())
    assert kept < 400
    assert abs(total["estimate"] - kept) < 6 * total["std_error"]


@pytest.mark.parametrize("unit", ["", '\nunit_id = "PID"'])
def test_one_row_reads_as_before(visits: Path, unit: str) -> None:
    changed(visits, (f'\nunit_id = "PID"\nrows_per_unit = {K}', unit))
    out = visits.parent / "release"
    shown = _call("run", visits, "--out", out)
    page = (out / "report.html").read_text()
    assert ("at most 1 row of each counted" in shown.stdout) == bool(unit)
    assert ("<strong>At most 1 of each person is counted</strong>" in page) == bool(unit)
    assert "person’s record\n" in page


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_planned_errors_and_bounds_grow_by_k(visits: Path, neighbours: str) -> None:
    """Identity measures every cell, where a pair is never below a column: exactly k times the standard error."""
    text = visits.read_text().replace('delta = "1e-10"', f'delta = "1e-10"\nneighbours = "{neighbours}"')
    visits.write_text(text + '\n[method]\nselect = "identity"\n')
    one, several = _with(visits, "rows_per_unit = 1"), _with(visits, f"rows_per_unit = {K}")
    for a, b in zip(one.table_errors, several.table_errors, strict=True):
        # the variance of the discrete law drawn is that of its parameter to 1e-8 only
        assert b.rmse == pytest.approx(K * a.rmse, rel=1e-6)
        assert b.margin == pytest.approx(K * a.margin, rel=0.2), "margins are whole steps of the noise"
        assert b.margin > b.rmse
        assert a.identity is not None
        assert b.identity == pytest.approx(K * a.identity, rel=1e-6)
        if a.bound is not None:
            assert b.bound == pytest.approx(K * a.bound, rel=1e-6)
            assert b.bound <= b.rmse * (1 + 1e-9)
    assert several.rmse == pytest.approx(K * one.rmse, rel=1e-6)


def test_published_errors_are_those_of_the_plan(visits: Path) -> None:
    """Mean squared standardised error over 60 rehearsals with one choice of rows is 1; tolerance over 5 sigma."""
    made = tb.plan(visits)
    prepared, workload = prepare(made, KEY), made.spec.workload
    truth = {t.name: prepared._counts.answer(t.operator(workload.domain)) for t in workload.tables}
    squares = []
    for seed in range(60):
        estimate = tb.estimate(prepared.measure(None, tb.noise.Insecure(seed)))
        answers, variances = estimate.answer(workload), estimate.variance(workload)
        squares += [((answers[n] - truth[n]) ** 2 / variances[n]).mean() for n in truth]
    assert np.mean(squares) == pytest.approx(1, abs=0.12)


people = st.lists(
    st.tuples(st.sampled_from("FM"), st.integers(0, 19), st.sampled_from("abc")), min_size=1, max_size=9
)


@settings(max_examples=3, phases=(Phase.explicit, Phase.generate))  # shrinking would take minutes
@given(mine=people, instead=people)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_replayed_measurements_move_no_further_than_declared(
    tmp_path_factory: pytest.TempPathFactory, neighbours: str, mine: list, instead: list
) -> None:
    """Record and replay: with the same noise and key, neighbours differ by at most the declared sensitivity."""
    folder = tmp_path_factory.mktemp("replay")
    made, one = _replayed(_people(folder, "one", mine), neighbours)
    _, other = (
        _replayed(_people(folder, "other", instead), neighbours)
        if neighbours == "replace"
        else _replayed_without()
    )
    p = made.strategy.norm
    moved = sum(
        Fraction(int((abs(a - b).astype(object) ** p).sum()), 2 ** (p * block.exponent)) / block.scale
        for a, b, block in zip(one, other, made.strategy.blocks, strict=True)
    )
    assert moved <= made.strategy.sensitivity(neighbours, made.spec.rows_per_unit).power


def test_the_declared_sensitivity_is_reached(village: Path) -> None:
    """A unit with all its rows in the cell that moves the answers most: the bound is met, and not by a row more."""
    made, without = _replayed_without()
    strategy = made.strategy
    columns = [block.query.dense().astype(object) for block in strategy.blocks]
    powers = sum(
        (c**2).sum(axis=0) * (Fraction(1, 4**b.exponent) / b.scale)
        for c, b in zip(columns, strategy.blocks, strict=True)
    )
    sex, age, race = np.unravel_index(int(np.argmax(powers)), made.spec.domain.shape)
    rows = [("FM"[sex], int(age), "abc"[race])] * 9
    _, one = _replayed(_people(village.parent, "one", rows), "add-remove")
    moved = sum(
        Fraction(int(((a - b).astype(object) ** 2).sum()), 4**block.exponent) / block.scale
        for a, b, block in zip(one, without, strategy.blocks, strict=True)
    )
    assert moved == strategy.sensitivity("add-remove", K).power == K**2 * max(powers)


def test_the_noise_drawn_is_for_k_rows(visits: Path) -> None:
    release = tb.run(visits, visits.parent / "release")
    drawn = release.measurements[0]
    one = drawn.strategy.laws(drawn.budget, drawn.neighbours)
    assert [law.parameter for law in drawn.laws] == [law.parameter * K**2 for law in one]


def _people(folder: Path, name: str, rows: list) -> Path:
    """Two people of nine rows each, and person 99 with the rows given."""
    rng = np.random.default_rng(1)
    others = [(i, "FM"[rng.integers(2)], int(rng.integers(20)), "abc"[rng.integers(3)]) for i in range(2)] * 9
    columns = zip(*others, *((99, *row) for row in rows), strict=True)
    table = dict(zip(("PID", "SEX", "AGE", "RACE"), map(pa.array, columns), strict=True))
    pq.write_table(pa.table(table), folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


@cache
def _planned(neighbours: str) -> Plan:
    from tests.village import SPEC

    text = SPEC.replace('unit = "person"', f'unit = "person"\nunit_id = "PID"\nrows_per_unit = {K}')
    text = text.replace('delta = "1e-10"', f'delta = "1e-10"\nneighbours = "{neighbours}"')
    return tb.plan(tb.spec.Spec.from_text(text + '\n[method]\nselect = "kron"\ntime_limit = 5\n'))


def _replayed(source: Path, neighbours: str) -> tuple[Plan, list[np.ndarray]]:
    planned = _planned(neighbours)
    made = Plan(planned.spec.with_source(source), planned.strategy)
    return made, prepare(made, KEY).measure(None, tb.noise.Insecure(5)).block_values()


@cache
def _replayed_without() -> tuple[Plan, list[np.ndarray]]:
    """Without any row of person 99."""
    with TemporaryDirectory() as folder:
        return _replayed(_people(Path(folder), "without", []), "add-remove")


def test_the_rows_that_are_counted_are_those_of_the_ledger_and_of_no_order_or_file(visits: Path) -> None:
    visits.write_text(visits.read_text() + '\n[method]\nselect = "identity"\n')
    made, ledger = tb.plan(visits), tb.Ledger.open(visits.parent / "ledger.db")

    def counted(plan: Plan, key: bytes | None = None) -> bytes:
        return prepare(plan, key)._counts.fingerprint()

    counts = counted(made, row_key(made.spec, ledger))
    path = visits.parent / "people.csv"
    header, *rows = path.read_text().split()
    columns = zip(*(row.split(",") for row in reversed(rows)), strict=True)
    moved = visits.parent / "people.parquet"
    pq.write_table(pa.table(dict(zip(header.split(","), map(list, columns), strict=True))), moved)
    again = Plan(made.spec.with_source(moved), made.strategy)
    assert counted(again, row_key(again.spec, ledger)) == counts
    other = tb.Ledger.create(visits.parent / "other.db", 1, "zcdp")
    assert counted(made, row_key(made.spec, other)) != counts
    assert counted(made) != counted(made), "without a key a fresh one is drawn"


# bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "-1", "2.5", '"2"', "true", "1000001"])
def test_bounds_that_mean_nothing(visits: Path, value: str) -> None:
    changed(visits, (f"rows_per_unit = {K}", f"rows_per_unit = {value}"))
    for command in (["check"], ["plan"], ["run", "--out", visits.parent / "out"]):
        _fails(_call(command[0], visits, *command[1:]), 1, "source.rows_per_unit")


def test_several_rows_need_an_id(visits: Path) -> None:
    changed(visits, ('unit_id = "PID"\n', ""))
    _fails(_call("plan", visits), 1, "source.rows_per_unit", "unit_id")


@pytest.mark.parametrize(
    ("old", "new", "word"), [("PID", "pid", "'PID' (unit_id)"), (",p7\n", ",\n", "NULL values")]
)
def test_records_without_ids_are_refused_before_anything_is_spent(
    visits: Path, old: str, new: str, word: str
) -> None:
    path = visits.parent / "people.csv"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    _fails(_call("run", visits, "--out", visits.parent / "out"), 1, word)
    assert tb.Ledger.open(visits.parent / "ledger.db").spent == 0
    assert not (visits.parent / "out").exists()


@pytest.mark.parametrize(
    ("definition", "noise", "power"),
    [("zcdp", "gaussian", 2), ("pure", "laplace", 1), ("approx", "gaussian", None)],
)
def test_the_plan_says_what_other_bounds_cost(
    visits: Path, definition: str, noise: str, power: int | None
) -> None:
    """The factors are those of plans that are made with the other bound, and with the other budget."""
    text = visits.read_text().replace('definition = "zcdp"', f'definition = "{definition}"')
    if definition == "pure":
        text = text.replace('delta = "1e-10"\n', "")
    visits.write_text(text + f'\n[method]\nselect = "identity"\nnoise = "{noise}"\n')
    rows = {each["rows"]: each for each in _json(_call("plan", visits, "--json"))["row_bounds"]}
    assert list(rows) == [1, 2, K, 5, 10, 20]
    assert (rows[K]["noise"], rows[K]["budget"]) == ("1", None if power is None else "1")
    own = _with(visits, f"rows_per_unit = {K}")
    for bound, row in rows.items():
        assert Fraction(row["noise"]) == Fraction(bound, K)
        other = _with(visits, f"rows_per_unit = {bound}")
        assert other.rmse == pytest.approx(float(Fraction(row["noise"])) * own.rmse, rel=1e-2)
        if power is None:
            assert row["budget"] is None
            continue
        text = visits.read_text().replace(f"rows_per_unit = {K}", f"rows_per_unit = {bound}")
        paid = text.replace('budget = "1/2"', f'budget = "{Fraction(row["budget"]) / 2}"')
        same = tb.plan(tb.spec.Spec.from_text(paid, visits.parent))
        assert same.rmse == pytest.approx(own.rmse, rel=1e-2)
    shown = _call("plan", visits).stdout
    assert "3 of one person at most: more need more noise, fewer leave more rows out" in shown
    assert ("x 11.1" in shown) == (power == 2)


def test_where_units_are_replaced_one_row_is_not_compared(visits: Path) -> None:
    """A single row can only be exchanged, so that noise for one may be less than a k-th of that for k."""
    text = visits.read_text().replace('delta = "1e-10"', 'delta = "1e-10"\nneighbours = "replace"')
    text += '\n[method]\nselect = "identity"\n'
    visits.write_text(text)
    assert [each["rows"] for each in _json(_call("plan", visits, "--json"))["row_bounds"]] == [
        2,
        K,
        5,
        10,
        20,
    ]
    visits.write_text(text.replace(f"rows_per_unit = {K}", "rows_per_unit = 1"))
    assert "row_bounds" not in _json(_call("plan", visits, "--json"))


def test_the_report_says_what_its_intervals_leave_out(visits: Path) -> None:
    out = visits.parent / "release"
    assert _call("run", visits, "--out", out).exit_code == 0
    page = " ".join((out / "report.html").read_text().split())
    assert "The intervals are about the records that are counted" in page
    assert "no interval holds what those left out would add" in page
