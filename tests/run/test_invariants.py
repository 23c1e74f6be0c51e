"""Runs with exact counts: planned, charged, published, verified; nothing but what the spec names is exact."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.each import each
from tests.run.exact import ADULTS, TABLES, TOTAL, YOUNG, hamlet, text
from tests.run.stops import kill

import tabulae as tb
from tabulae.errors import InvalidArgument, ReleaseError, SpecError
from tabulae.products.tables.product import prepare, reconstruct
from tabulae.release import seal
from tabulae.spec import Spec
from tabulae.strategy import law_variances

NEIGHBOURS = ("add-remove", "replace", "replace-within-invariants")


def truth(folder: Path) -> np.ndarray:
    """The histogram of the records, (2, 8, 3)."""
    counts = np.zeros((2, 8, 3), dtype=np.int64)
    with (folder / "people.csv").open() as file:
        for row in csv.DictReader(file):
            counts["FM".index(row["sex"]), int(row["age"]), "abc".index(row["race"])] += 1
    return counts


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release under the exact total and the age groups; not to be changed."""
    spec = hamlet(tmp_path_factory.mktemp("hamlet"), text(TOTAL, YOUNG))
    tb.run(spec, spec.parent / "release")
    return spec.parent / "release"


@pytest.fixture
def copy(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "copy"))


# the plan ------------------------------------------------------------------------------------------------


def projected(strategy: tb.Strategy, table: tb.Table, variances: tuple[float, ...]) -> np.ndarray:
    """diag(W Pi_N P^+ Pi_N W') by dense linear algebra."""
    domain = strategy.domain
    C = np.concatenate([t.operator(domain).dense() for t in strategy.invariants]).astype(float)
    open_part = np.eye(domain.size) - np.linalg.pinv(C) @ C
    P = sum(
        block.query.dense().T.astype(float) @ block.query.dense() * 4.0**-block.exponent / v
        for block, v in zip(strategy.blocks, variances, strict=True)
    )
    left = table.operator(domain).dense() @ open_part
    return np.einsum("ij,jk,ik->i", left, np.linalg.pinv(P, hermitian=True), left)


KINDS = {"margins": (TOTAL, YOUNG), "crossing": (ADULTS, YOUNG)}


@each(
    "kind, neighbours",
    [("crossing", NEIGHBOURS[0]), ("margins", NEIGHBOURS[1]), ("crossing", NEIGHBOURS[2])],
    long=itertools.product(KINDS, NEIGHBOURS),
)
def test_planned_errors_are_those_of_the_projected_estimator(kind: str, neighbours: str) -> None:
    invariants = KINDS[kind]
    spec = Spec.from_text(text(*invariants, neighbours=neighbours))
    made = tb.plan(spec)
    strategy = made.strategy
    variances = law_variances(strategy, strategy.laws(spec.loss, neighbours))
    rows = {row.table: row for row in made.table_errors}
    total = 0.0
    for table in spec.workload.tables:
        expected = projected(strategy, table, variances)
        row = rows[table.name]
        total += expected.sum()
        assert row.rmse == pytest.approx(np.sqrt(expected.mean()), rel=1e-6, abs=1e-9)
        assert row.exact == (expected < 1e-9).sum()
        assert (row.margin == 0) == (row.exact == row.queries)
        assert 1.9 * np.sqrt(expected.max()) - 1e-9 <= row.margin <= 2.5 * np.sqrt(expected.max()) + 1
        if row.bound is not None:
            assert row.bound <= row.rmse * (1 + 1e-9)
        for other in (row.identity, row.workload):
            assert other is not None
            assert (other == 0) == (row.exact == row.queries)
    assert made.rmse == pytest.approx(np.sqrt(total / spec.workload.queries), rel=1e-6)
    assert rows["everybody"].rmse == rows["everybody"].bound == 0 or ADULTS in invariants
    if neighbours == "replace-within-invariants":
        assert made.bound is None
    else:
        assert made.bound is not None
        assert 0 < made.bound <= made.rmse * (1 + 1e-9)
    nominal = strategy.error(spec.workload, spec.loss, neighbours)
    assert nominal.rmse == pytest.approx(made.rmse, rel=1e-3)
    assert nominal.tables["sex_by_age"] == pytest.approx(rows["sex_by_age"].rmse, rel=1e-3)


def test_invariants_lower_the_error_of_every_table() -> None:
    plain = {r.table: r for r in tb.plan(Spec.from_text(text())).table_errors}
    bound = {r.table: r for r in tb.plan(Spec.from_text(text(TOTAL, YOUNG))).table_errors}
    assert sum(r.rmse**2 * r.queries for r in bound.values()) < sum(
        r.rmse**2 * r.queries for r in plain.values()
    )
    for name in plain:
        assert bound[name].identity < plain[name].identity  # type: ignore[operator]


@pytest.mark.long
def test_targets_on_exact_tables_are_met_by_themselves() -> None:
    target = 'name = "everybody"\ntarget = { rmse = 1 }'
    tables = TABLES.replace('name = "everybody"', target).replace('"kron"', '"identity"')
    made = tb.plan(Spec.from_text(text(TOTAL, tables=tables)))
    row = next(r for r in made.table_errors if r.table == "everybody")
    assert (row.rmse, row.target, row.met) == (0.0, 1.0, True)
    open_budget = text(TOTAL, tables=tables).replace('budget = "1/2"', 'budget = "targets"')
    with pytest.raises(SpecError, match="exact already"):
        tb.plan(Spec.from_text(open_budget))
    both = open_budget.replace('name = "sex_by_age"', 'name = "sex_by_age"\ntarget = { margin = 4 }')
    found = tb.plan(Spec.from_text(both))
    rows = {r.table: r for r in found.table_errors}
    assert rows["sex_by_age"].met
    assert rows["everybody"].met
    assert 3.9 < rows["sex_by_age"].margin <= 4 * (1 + 2e-9)


def test_a_saved_plan_keeps_its_invariants(tmp_path: Path) -> None:
    spec = Spec.from_text(text(TOTAL, YOUNG))
    made = tb.plan(spec)
    made.save(tmp_path / "plan.json")
    again = tb.Plan.load(tmp_path / "plan.json", spec)
    assert again.strategy.blocks == made.strategy.blocks
    assert again.strategy.invariants == made.strategy.invariants
    assert again.rmse == made.rmse
    document = json.loads((tmp_path / "plan.json").read_text())
    document["strategy"]["invariants"][1]["rows"]["terms"][0]["factors"]["age"]["classes"][0] = 1
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(ReleaseError, match="other invariants"):
        tb.Plan.load(tmp_path / "plan.json", spec)


# what is given away ------------------------------------------------------------------------------------------


def invariant(name: str, body: str) -> str:
    return f'\n[[invariant]]\nname = "{name}"\n{body}\nreason = "law"\n'


def test_what_the_invariants_say_together() -> None:
    made = tb.plan(Spec.from_text(text(TOTAL, YOUNG))).exact
    assert made is not None
    assert [(t.name, t.what, t.counts) for t in made.tables] == [
        ("exact total", "one count", 1),
        ("exact young", "young (3)", 3),
    ]
    assert (made.stated, made.independent) == (4, 3)
    assert made.following == ("'exact young' (young=5-7)",)
    # of the 36 ranges of ages those that begin and end at the edges of groups are exact
    assert made.published == {"ages": 6, "everybody": 1}
    assert any("every count of table 'everybody' is exact" in w for w in made.warnings)
    assert any("'exact total' follows from 'exact young'" in w for w in made.warnings)
    assert len(made.warnings) == 2
    assert tb.plan(Spec.from_text(text())).exact is None
    assert tb.plan(Spec.from_text(text())).warnings == ()


def test_a_single_cell_is_warned_of() -> None:
    """The cell where two groups cross, of all attributes, is one exact count: of one person, maybe."""
    tables = '[[table]]\nname = "all"\nattributes = ["sex", "age"]\n'
    cross = invariant("cross", 'sql = "SELECT sex, COUNT(*) FROM p WHERE age = 7 GROUP BY sex"')
    made = tb.plan(Spec.from_text(text(cross, tables=tables)))
    warned = [w for w in made.warnings if "single cell" in w]
    assert len(warned) == 1
    assert "2 single cells of sex x age" in warned[0]
    assert "sex = F and age = 7; sex = M and age = 7" in warned[0]
    groups = invariant("groups", 'attributes = ["sex", "young"]')
    assert not [w for w in tb.plan(Spec.from_text(text(groups, tables=tables))).warnings if "single" in w]


def test_a_single_cell_that_only_differences_tell_is_warned_of() -> None:
    tables = '[[table]]\nname = "all"\nattributes = ["sex", "age"]\n'
    seven = invariant("from 6", "sql = \"SELECT COUNT(*) FROM p WHERE sex = 'F' AND age >= 6\"")
    six = invariant("from 7", "sql = \"SELECT COUNT(*) FROM p WHERE sex = 'F' AND age >= 7\"")
    warned = [
        w for w in tb.plan(Spec.from_text(text(seven, six, tables=tables))).warnings if "single cell" in w
    ]
    assert len(warned) == 1
    assert "2 single cells" in warned[0]
    assert "sex = F and age = 6; sex = F and age = 7" in warned[0]


def test_one_free_count_is_warned_of() -> None:
    tables = '[[table]]\nname = "all"\nattributes = ["sex", "race"]\n'
    margins = (invariant("s", 'attributes = ["sex"]'), invariant("r", 'attributes = ["race"]'))
    made = tb.plan(Spec.from_text(text(*margins, tables=tables)))
    assert not [w for w in made.warnings if "single free count" in w]  # (2 - 1) (3 - 1) are left
    two = text(*margins, tables=tables).replace('["a", "b", "c"]', '["a", "b"]')
    warned = [w for w in tb.plan(Spec.from_text(two)).warnings if "single free count" in w]
    assert warned == [w for w in warned if "sex (2) by race (2)" in w]
    assert len(warned) == 1
    tables += '[[table]]\nname = "everybody"\nattributes = []\n'  # one count to begin with: no margin
    some = invariant("two of three", "sql = \"SELECT race, COUNT(*) FROM p WHERE race <> 'c' GROUP BY race\"")
    left = [
        w for w in tb.plan(Spec.from_text(text(some, tables=tables))).warnings if "single free count" in w
    ]
    assert len(left) == 1
    assert "race (3)" in left[0]


def test_what_no_promise_covers_within_invariants_is_named() -> None:
    ages = invariant("ages exact", 'attributes = ["age"]')
    made = tb.plan(Spec.from_text(text(ages, neighbours=NEIGHBOURS[2])))
    assert made.exact is not None
    assert made.exact.unprotected == ("age",)
    assert any("no promise covers 'age'" in w for w in made.warnings)
    for neighbours, told in (("replace", ages), (NEIGHBOURS[2], YOUNG)):
        plan = tb.plan(Spec.from_text(text(told, neighbours=neighbours)))
        assert plan.exact is not None
        assert plan.exact.unprotected == ()


def test_a_crossing_that_tells_all_but_pairs_apart() -> None:
    """Each attribute is told apart by some exact table, yet sex can still change together with age."""
    tables = '[[table]]\nname = "all"\nattributes = ["sex", "age"]\n'
    odd = invariant(
        "odd",
        "sql = \"SELECT COUNT(*) FROM p WHERE (sex = 'F' AND age < 4) OR (sex = 'M' AND age >= 4)\"",
    )
    made = tb.plan(Spec.from_text(text(odd, tables=tables, neighbours=NEIGHBOURS[2])))
    assert made.exact is not None
    assert made.exact.unprotected == ()


def test_earlier_releases_of_the_ledger_are_joined(tmp_path: Path) -> None:
    """Adults by sex in one release and everybody by sex in another make children by sex exact."""
    tables = '[[table]]\nname = "by_group"\nsql = "SELECT sex, COUNT(*) FROM p WHERE age < 5 GROUP BY sex"\n'
    tables += '[[table]]\nname = "sex_by_race"\nattributes = ["sex", "race"]\n'
    spec = hamlet(tmp_path, text(ADULTS, tables=tables))
    alone = tb.plan(spec)
    assert alone.exact is not None
    assert alone.exact.joint is None
    tb.run(spec, tmp_path / "first")
    second = tmp_path / "second.toml"
    second.write_text(text(invariant("by sex", 'attributes = ["sex"]'), tables=tables))
    made = tb.plan(second)
    assert made.exact is not None
    assert [e.name for e in made.exact.earlier] == ["adults"]
    assert (made.exact.independent, made.exact.joint) == (2, 4)
    assert made.exact.published == {}
    assert made.exact.joint_published == {"by_group": 2}
    assert any("every count of table 'by_group' is exact" in w and "earlier" in w for w in made.warnings)
    release = tb.run(second, tmp_path / "out")
    assert release.about["exact"] == json.loads(json.dumps(made.exact.document()))
    first = tb.Release.read(tmp_path / "first").about["exact"]
    assert first["earlier"] == []
    page = (release.path / "report.html").read_text()
    assert "Together with earlier releases" in page
    assert "4 independent counts in all" in page


def test_what_the_ledger_as_a_whole_still_covers_is_told(tmp_path: Path) -> None:
    """Ages were exact before; with the sexes no exchange of either is left that keeps all exact counts."""
    within = NEIGHBOURS[2]
    ages, sexes = (
        invariant("ages exact", 'attributes = ["age"]'),
        invariant("sexes exact", 'attributes = ["sex"]'),
    )
    tb.run(hamlet(tmp_path, text(ages, neighbours=within), within), tmp_path / "first")
    second = tmp_path / "second.toml"
    second.write_text(text(sexes, neighbours=within))
    made = tb.plan(second)
    assert made.exact is not None
    assert made.exact.unprotected == ("sex",)
    assert any("the ledger as a whole does not cover 'age'" in w for w in made.warnings)
    races = invariant("races exact", 'attributes = ["race"]')
    second.write_text(text(sexes, races, neighbours=within))
    assert any("the ledger as a whole protects nobody" in w for w in tb.plan(second).warnings)
    (tmp_path / "ledger.db").unlink()
    assert not any("as a whole" in w for w in tb.plan(second).warnings)


# the release ---------------------------------------------------------------------------------------------------


def float_sum(values: list[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def check_sums(folder: Path, counts: np.ndarray) -> None:
    """Sums of what the CSV files say are exact in rational numbers, and in floating point in any order."""
    groups = [counts[:, :3].sum(), counts[:, 3:5].sum(), counts[:, 5:].sum()]
    found: dict[str, list[float]] = {"0-2": [], "3-4": [], "5-7": []}
    for row in rows_of(folder, "sex_by_age"):
        group = "0-2" if int(row["age"]) < 3 else "3-4" if int(row["age"]) < 5 else "5-7"
        found[group].append(float(row["estimate"]))
    assert [float_sum(v) for v in found.values()] == groups
    assert [sum(reversed(v)) for v in found.values()] == groups
    found = {"0-2": [], "3-4": [], "5-7": []}
    for row in rows_of(folder, "race_by_young"):
        found[row["young"]].append(float(row["estimate"]))
    assert [float_sum(v) for v in found.values()] == groups
    ranges = {row["age"]: row for row in rows_of(folder, "ages")}
    exact = {"0-2": groups[0], "3-4": groups[1], "5-7": groups[2], "0-4": groups[0] + groups[1]}
    exact |= {"3-7": groups[1] + groups[2], "0-7": sum(groups)}
    for label, row in ranges.items():
        assert row["obs_status"] == ("E" if label in exact else "A")
        if label in exact:
            assert Fraction(float(row["estimate"])) == exact[label]
            assert float(row["std_error"]) == 0
    lower, upper = ranges["0"], ranges["1-2"]
    assert float_sum([float(lower["estimate"]), float(upper["estimate"])]) == groups[0]
    assert [float(r["estimate"]) for r in rows_of(folder, "everybody")] == [counts.sum()]


@pytest.mark.parametrize(
    ("neighbours", "estimate"),
    [
        (NEIGHBOURS[0], "least-squares"),
        pytest.param(NEIGHBOURS[1], "non-negative", marks=pytest.mark.long),
        (NEIGHBOURS[2], "non-negative"),
        pytest.param(NEIGHBOURS[0], "non-negative", marks=pytest.mark.long),
        pytest.param(NEIGHBOURS[1], "least-squares", marks=pytest.mark.long),
        pytest.param(NEIGHBOURS[2], "least-squares", marks=pytest.mark.long),
    ],
)
def test_exact_sums_hold_exactly_in_what_is_written(tmp_path: Path, neighbours: str, estimate: str) -> None:
    spec = hamlet(tmp_path, text(TOTAL, YOUNG, neighbours=neighbours, estimate=estimate), neighbours)
    release = tb.run(spec, tmp_path / "out")
    assert release.verify() == []
    check_sums(release.path, truth(tmp_path))
    for name in release.tables:
        stored = release.tables[name]
        for column in ("estimate", "std_error", "ci_low", "ci_high"):
            written = [float(row[column]) for row in rows_of(release.path, name)]
            assert written == stored[column].to_pylist()
        if estimate == "non-negative":
            assert min(stored["estimate"].to_pylist()) >= 0


def test_invariants_are_published_as_tables_with_their_reason(published: Path) -> None:
    release = tb.Release.read(published)
    counts = truth(published.parent)
    assert [*release.tables][-2:] == ["exact total", "exact young"]
    young = release.tables["exact young"].to_pylist()
    assert [r["young"] for r in young] == ["0-2", "3-4", "5-7"]
    assert [r["estimate"] for r in young] == [counts[:, :3].sum(), counts[:, 3:5].sum(), counts[:, 5:].sum()]
    assert {(r["std_error"], r["obs_status"]) for r in young} == {(0.0, "E")}
    stored = pq.read_table(published / "invariants/exact young.parquet")
    assert stored["value"].to_pylist() == [r["estimate"] for r in young]
    assert str(stored["value"].type) == "int64"
    told = {r["title"]: r.get("description") for r in release.descriptor["resources"]}
    assert told["exact young"] == "Published exactly, without noise: apportionment"
    assert told["sex_by_age"] is None
    kinds = [entry["kind"] for entry in release.ledger]
    assert kinds[:3] == ["charge", "disclosure", "disclosure"]
    assert [e["reason"] for e in release.ledger[1:3]] == ["the register publishes it", "apportionment"]
    ledger = tb.Ledger.open(published.parent / "ledger.db")
    assert ledger.spent == Fraction(1, 2)
    assert [d.table for _, d in ledger.disclosures()] == ["exact total", "exact young"]


def test_queries_know_what_is_exact(published: Path) -> None:
    release, counts = tb.Release.read(published), truth(published.parent)
    rows = release.query("SELECT young, COUNT(*) FROM p GROUP BY young").to_pylist()
    assert [r["obs_status"] for r in rows] == ["E"] * 3
    assert [r["estimate"] for r in rows] == [counts[:, :3].sum(), counts[:, 3:5].sum(), counts[:, 5:].sum()]
    rows = release.query("SELECT sex, COUNT(*) FROM p WHERE age < 3 GROUP BY sex").to_pylist()
    assert [r["obs_status"] for r in rows] == ["A"] * 2
    assert float_sum([r["estimate"] for r in rows]) == counts[:, :3].sum()
    assert all(r["std_error"] > 0 for r in rows)


def test_the_measurements_read_back(published: Path) -> None:
    release, counts = tb.Release.read(published), truth(published.parent)
    (measurement,) = release.measurements
    assert [e.tolist() for e in measurement.exact] == [
        [counts.sum()],
        [counts[:, :3].sum(), counts[:, 3:5].sum(), counts[:, 5:].sum()],
    ]
    assert measurement.strategy.invariants == tuple(given.table for given in release.spec.invariants)


# tampering -----------------------------------------------------------------------------------------------------


def change(path: Path, column: str, change) -> None:
    """Change a column of a Parquet file, its CSV file where it has one, and the checksums."""
    table = pq.read_table(path)
    values = change(np.array(table[column].to_pylist()))
    table = table.set_column(table.column_names.index(column), column, [values.tolist()])
    table = table.cast(pq.read_schema(path))
    pq.write_table(table, path)
    if path.with_suffix(".csv").exists():
        pyarrow.csv.write_csv(table, path.with_suffix(".csv"))
    seal(next(parent for parent in path.parents if (parent / "SHA256SUMS").exists()))


def plus(*steps: float):
    return lambda values: (
        values + np.concatenate([steps, np.zeros(len(values) - len(steps))]).astype(values.dtype)
    )


def test_an_exact_count_that_contradicts_others_is_found(copy: Path) -> None:
    change(copy / "invariants/exact young.parquet", "value", plus(1))
    faults = tb.Release.read(copy).verify()
    assert len(faults) == 1
    assert "contradicts" in faults[0]
    assert "exact total" in faults[0]


def test_exact_counts_changed_consistently_are_found(copy: Path) -> None:
    change(copy / "invariants/exact young.parquet", "value", plus(1, -1))
    faults = tb.Release.read(copy).verify()
    assert {"tables/exact young: estimate does not follow from the measurements"} < set(faults)
    assert any("sex_by_age" in fault for fault in faults)
    assert not any("everybody" in fault for fault in faults)


def test_a_sum_that_is_off_by_less_than_any_tolerance_is_found(copy: Path) -> None:
    change(copy / "tables/sex_by_age.parquet", "estimate", plus(2.0**-28))
    assert tb.Release.read(copy).verify() == [
        "tables/sex_by_age: its sums are not the exact counts of invariants/"
    ]
    change(copy / "tables/sex_by_age.parquet", "estimate", plus(0, 1e-9))
    assert tb.Release.read(copy).verify() == [
        "tables/sex_by_age: its sums are not the exact counts of invariants/"
    ]


def test_an_exact_row_that_is_off_by_a_little_is_found(copy: Path) -> None:
    change(copy / "tables/exact young.parquet", "estimate", plus(1e-7))
    assert tb.Release.read(copy).verify() == [
        "tables/exact young: estimate does not follow from the measurements"
    ]


def test_a_mark_that_hides_what_is_exact_is_found(copy: Path) -> None:
    change(copy / "tables/exact young.parquet", "obs_status", lambda marks: np.array(["A", *marks[1:]]))
    assert tb.Release.read(copy).verify() == [
        "tables/exact young: obs_status does not follow from the measurements"
    ]


def test_a_csv_file_that_says_something_else_is_found(copy: Path) -> None:
    path = copy / "tables/exact total.csv"
    lines = path.read_text().splitlines()
    lines[-1] = lines[-1].replace(",", "1,", 1) if lines[-1][0].isdigit() else lines[-1] + "0"
    path.write_text("\n".join(lines) + "\n")
    seal(copy)
    assert tb.Release.read(copy).verify() == [
        "tables/exact total.csv: does not say what tables/exact total.parquet says"
    ]
    path.unlink()
    seal(copy)
    assert any("exact total.csv" in fault for fault in tb.Release.read(copy).verify())


@pytest.mark.parametrize("how", ["left out", "reason", "amount"])
def test_entries_of_the_ledger_that_say_something_else_are_found(copy: Path, how: str) -> None:
    path = copy / "ledger.json"
    entries = json.loads(path.read_text())
    if how == "left out":
        entries = [e for e in entries if e["kind"] != "disclosure"]
    elif how == "reason":
        next(e for e in entries if e["kind"] == "disclosure")["reason"] = "no reason at all"
    else:
        next(e for e in entries if e["kind"] == "charge")["loss"] = {"rho": "1/20000"}
    path.write_text(json.dumps(entries))
    seal(copy)
    faults = tb.Release.read(copy).verify()
    assert any("ledger.json" in fault for fault in faults)
    assert any("hash" in fault for fault in faults) == (how != "left out")
    assert any("disclosed" in fault for fault in faults) == (how != "amount")
    assert any("charged" in fault for fault in faults) == (how == "amount")


def test_an_exact_count_cannot_be_left_out(copy: Path) -> None:
    about = json.loads((copy / "measurements/measurement.json").read_text())
    about["exact"] = about["exact"][:1]
    (copy / "measurements/measurement.json").write_text(json.dumps(about))
    seal(copy)
    with pytest.raises(ReleaseError, match="exact counts"):
        tb.Release.read(copy).verify()


# crashes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "phase",
    [pytest.param("counted", marks=pytest.mark.long), "charged", "stored"],
)
def test_exact_counts_are_neither_lost_nor_read_for_nothing(tmp_path: Path, phase: str) -> None:
    document = text(TOTAL, YOUNG).replace('"kron"', '"identity"')  # what is killed chooses by itself
    spec, out = hamlet(tmp_path, document), tmp_path / "release"
    kill(phase, spec, out)
    ledger = tb.Ledger.open(tmp_path / "ledger.db")
    assert len(ledger.disclosures()) == (0 if phase == "counted" else 2)
    if phase == "charged":
        with pytest.raises(
            ReleaseError, match=r"void and stays spent, and its exact counts.* stay in the ledger"
        ):
            tb.run(spec, out, resume=True)
        assert [c.state for c in ledger.charges()] == ["void"]
        assert [charge.state for charge, _ in ledger.disclosures()] == ["void"] * 2
        assert not out.exists()
        release = tb.run(spec, out)
        assert len(release.about["exact"]["earlier"]) == 2
    else:
        release = tb.run(spec, out, resume=True)
        assert ledger.spent == Fraction(1, 2)
        assert release.about["exact"]["earlier"] == []
    assert release.verify() == []
    check_sums(out, truth(tmp_path))


# errors as published ---------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_published_errors_are_those_of_the_plan_under_invariants(tmp_path: Path, neighbours: str) -> None:
    """Mean squared standardised error over 200 rehearsals is 1, no bias; false alarm below 1e-4.

    The mean over a table of 200 x (rows) correlated squares is spread most where there is one row: by a tenth. It
    exceeds 1.49 with probability below 1e-5 then, and noise of half or of twice the variance is outside. A mean of
    200 standardised errors lies within 6 / sqrt(200) but for 2e-9 a row.
    """
    spec = hamlet(tmp_path, text(TOTAL, YOUNG, neighbours=neighbours), neighbours)
    made = tb.plan(spec)
    prepared, wl, counts = prepare(made), made.spec.workload, truth(tmp_path).ravel()
    errors: dict[str, list[np.ndarray]] = {table.name: [] for table in wl.tables}
    true = {table.name: table.operator(made.spec.domain) @ counts for table in wl.tables}
    for seed in range(200):
        estimate = reconstruct(made, prepared.measure(None, tb.noise.Insecure(seed)))
        for table in wl.tables:
            errors[table.name].append(estimate.answer_of(table) - true[table.name])
    for row in made.table_errors:
        found = np.array(errors[row.table])
        if row.exact == row.queries:
            assert not found.any()
            continue
        assert np.mean(found**2) / row.rmse**2 == pytest.approx(1, abs=0.49)
        table = next(t for t in wl.tables if t.name == row.table)
        deviation = np.sqrt(estimate.variance_of(table))
        assert (np.abs(found.mean(axis=0)) <= 6 / np.sqrt(200) * deviation).all()
        assert not found[:, deviation == 0].any()


# refusals --------------------------------------------------------------------------------------------------------


def test_every_table_exact_is_refused_with_its_path(tmp_path: Path) -> None:
    whole = invariant("whole", 'attributes = ["sex", "age", "race"]')
    spec = hamlet(tmp_path, text(whole))
    with pytest.raises(SpecError, match="determine every table") as caught:
        tb.run(spec, tmp_path / "out")
    assert caught.value.problems[0].path == "invariant"
    within = text(whole, neighbours=NEIGHBOURS[2])
    with pytest.raises(SpecError, match="determine every table"):
        tb.plan(Spec.from_text(within))
    assert tb.Ledger.open(tmp_path / "ledger.db").spent == 0
    assert not (tmp_path / "out").exists()


def test_a_promise_to_nobody_is_refused(tmp_path: Path) -> None:
    """Every pair of different records is told apart by some invariant, yet the tables are not all exact."""
    ways = [invariant(f"by {n}", f'attributes = ["{n}"]') for n in ("sex", "age", "race")]
    spec = hamlet(tmp_path, text(*ways, neighbours=NEIGHBOURS[2]), NEIGHBOURS[2])
    with pytest.raises(SpecError, match="nobody would be protected") as caught:
        tb.run(spec, tmp_path / "out")
    assert caught.value.problems[0].path == "privacy.neighbours"
    assert tb.Ledger.open(tmp_path / "ledger.db").spent == 0
    assert tb.plan(Spec.from_text(text(*ways, neighbours="replace"))).rmse > 0


def test_a_ledger_whose_promise_would_become_empty_refuses_the_release(tmp_path: Path) -> None:
    """Ages exact, then sexes and races exact: nobody could change anything, and the first release's promise is kept."""
    within = NEIGHBOURS[2]
    first = hamlet(tmp_path, text(invariant("ages exact", 'attributes = ["age"]'), neighbours=within), within)
    tb.run(first, tmp_path / "first")
    spent = tb.Ledger.open(tmp_path / "ledger.db").spent
    others = [invariant(f"{n} exact", f'attributes = ["{n}"]') for n in ("sex", "race")]
    second = tmp_path / "second.toml"
    second.write_text(text(*others, neighbours=within))
    with pytest.raises(SpecError, match="the ledger as a whole would be empty"):
        tb.run(second, tmp_path / "second")
    assert tb.Ledger.open(tmp_path / "ledger.db").spent == spent
    assert not (tmp_path / "second").exists()


def test_contradictions_cannot_come_from_one_set_of_records_only_from_constraints(published: Path) -> None:
    """What a run reads is consistent; what a person states may not be."""
    exact = tb.Release.read(published).measurements[0].strategy.exact
    assert exact is not None
    assert exact.contradictions(tb.Release.read(published).measurements[0].exact) == ()
    with pytest.raises(InvalidArgument, match="contradict"):
        exact.check_values([np.array([3]), np.array([1, 1, 2])])
