"""Whole runs that say how many records were left out, for a share of the budget."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.schemas import fits
from tests.cli.test_cli import _call, _fails, _json
from tests.passages import changed
from tests.run.stops import kill

import tabulae as tb
from tabulae._run import check_release
from tabulae.errors import DataError, ReleaseError, SpecError
from tabulae.products.tables import count
from tabulae.products.tables.product import prepare
from tabulae.release import seal
from tabulae.report.plan_page.page import plan_view
from tabulae.spec import Spec, read_spec

K, MOST = 3, 4
LEFT_OUT = f'left_out = {{ share = "1/10", at_most = {MOST} }}'
DEFINITIONS = {
    "zcdp": 'definition = "zcdp"\nbudget = "1/2"\ndelta = "1e-10"',
    "pure": 'definition = "pure"\nbudget = "1/2"',
    "approx": 'definition = "approx"\nbudget = "1/2"\ndelta = "1e-10"',
}


@pytest.fixture
def visits(village: Path) -> Path:
    """The village with a person's id on each of its 400 records: up to 9 of each, of which 3 are counted."""
    path = village.parent / "people.csv"
    ids = np.sort(np.random.default_rng(11).integers(0, 150, 400))
    header, *rows = path.read_text().split()
    lines = [f"{header},PID", *(f"{row},p{i}" for row, i in zip(rows, ids, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    units = f'unit = "person"\nunit_id = "PID"\nrows_per_unit = {K}'
    text = village.read_text().replace('unit = "person"', units)
    text = text.replace(
        'queries = { age = "ranges" }', 'attributes = ["age"]'
    )  # of 210 ranges plans take long
    method = '[method]\nselect = "identity"\n'
    village.write_text(text.replace('ledger = "ledger.db"', f'ledger = "ledger.db"\n{LEFT_OUT}\n{method}'))
    return village


def _truth(spec: Path) -> tuple[int, int]:
    lines = (spec.parent / "people.csv").read_text().split()[1:]
    over = [n - K for n in Counter(line.split(",")[3] for line in lines).values() if n > K]
    return len(over), sum(min(n, MOST) for n in over)


@pytest.mark.parametrize(
    ("definition", "neighbours"),
    [
        pytest.param(
            definition, neighbours, marks=pytest.mark.long if (i + j) % 2 or definition == "approx" else []
        )
        for i, definition in enumerate(DEFINITIONS)
        for j, neighbours in enumerate(("add-remove", "replace"))
    ],
)
def test_a_release_says_how_many(visits: Path, definition: str, neighbours: str) -> None:
    """The whole budget is promised and charged; the tables have nine tenths of it, and both counts a twentieth each."""
    promise = f'{DEFINITIONS[definition]}\nneighbours = "{neighbours}"'
    changed(visits, (DEFINITIONS["zcdp"], promise))
    ledger = visits.parent / "ledger.db"
    ledger.unlink()
    spec = read_spec(visits)
    tb.Ledger.create(ledger, spec.loss, neighbours=neighbours)
    release = tb.run(visits, visits.parent / "release")
    assert check_release(release) == []
    assert [charge.loss for charge in tb.Ledger.open(ledger).charges()] == [spec.loss]
    (measured,) = release.measurements
    assert measured.budget == spec.loss
    assert measured.laws == measured.strategy.laws(spec.loss.scaled("9/10"), neighbours, K)
    told = measured.left_out
    assert told is not None
    expected = [
        type(measured.laws[0]).parameter_for(
            spec.loss.scaled("1/20"), Fraction(most) ** measured.laws[0].power
        )
        for most in (1, MOST)
    ]
    assert [law.parameter for law in told.laws] == expected
    for value, truth, law in zip(told.values, _truth(visits), told.laws, strict=True):
        assert law.tail(abs(value - truth) - 1) > 1e-9
    page = " ".join((release.path / "report.html").read_text().split())
    assert f"About {max(0, told.values[0])} units (person) have more than 3 records (95%: " in page
    assert "How many they are is not published" not in page


def test_every_command_says_it(visits: Path) -> None:
    out, page = visits.parent / "release", visits.parent / "plan.html"
    plan = _json(_call("plan", visits, "--json"))
    fits("plan", plan)
    assert [(row["count"], row["at_most"], row["margin"]) for row in plan["left_out"]] == [
        ("units", 4, 9),
        ("rows", 4, 35),
    ]
    words = "1/10 of the budget says how much is left out: how many units (person) have more than 3 records, "
    shown = _call("plan", visits, "--html", page).stdout
    assert f"Left out  {words}to within 9 (95%)" in shown
    assert f"At the plan’s own budget {words}" in " ".join(page.read_text().split())
    run = _json(_call("run", visits, "--out", out, "--json"))
    fits("run", run)
    release = tb.Release.read(out)
    (measured,) = release.measurements
    assert measured.left_out is not None
    assert run["left_out"] == release.about["left_out"]
    for name, value, margin in zip(("units", "rows"), measured.left_out.values, (9, 35), strict=True):
        counted, ends = run["left_out"][name], [max(0, value - margin), max(0, value + margin)]
        assert [counted[key] for key in ("estimate", "ci_low", "ci_high")] == [value, *ends]


def test_without_it_nothing_is_said(visits: Path) -> None:
    changed(visits, (LEFT_OUT, ""))
    assert "left_out" not in _json(_call("plan", visits, "--json"))
    assert "Left out" not in _call("plan", visits).stdout
    release = tb.run(visits, visits.parent / "release")
    assert "left_out" not in release.about
    assert "left_out" not in (release.path / "measurements/measurement.json").read_text()
    assert "How many they are is not published" in (release.path / "report.html").read_text()


def test_only_records_that_are_counted_can_be_left_out(visits: Path) -> None:
    """A condition comes first: records that it keeps out are not too many."""
    changed(visits, ("[source]", '[source]\nwhere = "AGE < 12"'))
    header, *lines = (visits.parent / "people.csv").read_text().split()
    counted = prepare(tb.plan(visits), bytes(32))._counts.left_out
    kept = [line for line in lines if int(line.split(",")[1]) < 12]
    (visits.parent / "people.csv").write_text("\n".join([header, *kept]) + "\n")
    assert counted is not None
    assert tuple(counted) == _truth(visits)
    assert 0 < len(kept) < len(lines)


def test_the_published_copy_says_the_same(visits: Path) -> None:
    spec = read_spec(visits)
    again = Spec.from_text(spec.published_text())
    assert (again.left_out, again.digest()) == (spec.left_out, spec.digest())
    changed(visits, ('share = "1/10"', 'share = "1/9"'))
    assert read_spec(visits).digest() != spec.digest()


def _json_edited(name: str, change: Callable[[Any], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        change(document)
        (folder / name).write_text(json.dumps(document))

    return edit


def _measured(change: Callable[[Any], object]) -> Callable[[Path], None]:
    return _json_edited("measurements/measurement.json", change)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.village import write_village

    spec = visits.__wrapped__(write_village(tmp_path_factory.mktemp("released")))  # type: ignore[attr-defined]
    return tb.run(spec, spec.parent / "release").path


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            _measured(lambda d: d["left_out"]["rows"].update(value=1000)),
            "how many rows are left out does not follow",
        ),
        (
            _measured(lambda d: d["left_out"]["units"]["law"].update(parameter="1")),
            "rows left out are not measured as",
        ),
        (_measured(lambda d: d["left_out"].update(at_most=5)), "rows left out are not measured as"),
        (_measured(lambda d: d.pop("left_out")), "rows left out are not measured as"),
        (
            _json_edited(
                "datapackage.json", lambda d: d["tabulae"]["left_out"]["rows"].update(ci_high=10**6)
            ),
            "how many rows are left out does not follow",
        ),
        (
            _json_edited("datapackage.json", lambda d: d["tabulae"].pop("left_out")),
            "how many rows are left out does not follow",
        ),
    ],
)
def test_edited_numbers_are_found(
    released: Path, tmp_path: Path, edit: Callable[[Path], None], said: str
) -> None:
    folder = shutil.copytree(released, tmp_path / "release")
    edit(folder)
    seal(folder)
    assert any(said in fault for fault in check_release(tb.Release.read(folder)))


@pytest.mark.parametrize("value", ["12", 12.5, None, [3]])
def test_numbers_that_are_none_cannot_be_read(released: Path, tmp_path: Path, value: object) -> None:
    folder = shutil.copytree(released, tmp_path / "release")
    _measured(lambda d: d["left_out"]["rows"].update(value=value))(folder)
    seal(folder)
    with pytest.raises(ReleaseError, match="cannot be read"):
        _ = tb.Release.read(folder).measurements


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(1, id="the tables", marks=pytest.mark.long),
        pytest.param(2, id="units", marks=pytest.mark.long),
        pytest.param(3, id="rows"),
    ],
)
def test_killed_between_two_draws_all_noise_is_lost(visits: Path, call: int) -> None:
    """One block of tables is drawn, then the two counts: what was charged for all of them is void."""
    out, ledger = visits.parent / "release", tb.Ledger.open(visits.parent / "ledger.db")
    kill("tabulae.products.tables.measure._noisy", visits, out, call=call)
    assert [charge.state for charge in ledger.charges()] == ["charged"]
    with pytest.raises(ReleaseError, match="void"):
        tb.run(visits, out, resume=True)
    assert [charge.state for charge in ledger.charges()] == ["void"]
    assert check_release(tb.run(visits, out)) == []
    assert (ledger.spent, [charge.state for charge in ledger.charges()]) == (
        Fraction(1),
        ["void", "published"],
    )


@pytest.mark.parametrize(
    "step", ["stored", *(pytest.param(step, marks=pytest.mark.long) for step in ("published", "sealed"))]
)
def test_killed_later_the_same_counts_are_published(visits: Path, step: str) -> None:
    out, ledger = visits.parent / "release", tb.Ledger.open(visits.parent / "ledger.db")
    kill(step, visits, out)
    stored = json.loads((visits.parent / ".release.partial/measurements/measurement.json").read_text())
    (visits.parent / "people.csv").unlink()
    release = tb.run(visits, out, resume=True)
    assert check_release(release) == []
    told = release.about["left_out"]
    assert [told[name]["estimate"] for name in ("units", "rows")] == [
        stored["left_out"][name]["value"] for name in ("units", "rows")
    ]
    assert (ledger.spent, [charge.state for charge in ledger.charges()]) == (Fraction(1, 2), ["published"])


TARGET = ('name = "sex_by_age"', 'name = "sex_by_age"\ntarget = { rmse = 6 }')


@pytest.mark.parametrize(
    "definition", [pytest.param(d, marks=() if d == "zcdp" else pytest.mark.long) for d in DEFINITIONS]
)
def test_targets_find_the_whole_budget(visits: Path, definition: str) -> None:
    """The tables get what they need without the share, to the last digit, and the line to write is exact."""
    privacy = DEFINITIONS[definition].replace('"1/2"', '"targets"')
    changed(visits, (DEFINITIONS["zcdp"], privacy), TARGET)
    made = tb.plan(visits)
    alone = Spec.from_text(
        visits.read_text().replace(LEFT_OUT, "").replace("1e-10", "0.9e-10"), visits.parent
    )
    assert made.spec.tables_loss == tb.plan(alone).spec.loss
    assert made.spec.loss == made.spec.tables_loss.scaled("10/9")
    assert made.smallest is not None
    assert made.smallest.loss == made.spec.loss
    shown = _call("plan", visits).stdout
    line = next(part for part in shown.split("\n") if "To release, write " in part).split("write ", 1)[1]
    changed(visits, ('budget = "targets"', line))
    again = tb.plan(visits)
    assert again.spec.loss == made.spec.loss
    assert next(row for row in again.table_errors if row.target).met


def test_the_smallest_budget_and_its_bound_are_whole(visits: Path) -> None:
    changed(visits, TARGET)
    own = tb.plan(visits).smallest
    alone = tb.plan(Spec.from_text(visits.read_text().replace(LEFT_OUT, ""), visits.parent)).smallest
    assert own is not None
    assert alone is not None
    assert own.loss == alone.loss.scaled("10/9")
    assert own.lower is not None
    assert alone.lower is not None
    assert float(own.lower.amount) == pytest.approx(float(alone.lower.amount) * 10 / 9, rel=1e-3)
    assert own.lower.amount <= own.loss.amount


def test_errors_are_those_of_nine_tenths(visits: Path) -> None:
    """In the plan, and on its page at every budget."""
    text = visits.read_text()
    less = Spec.from_text(text.replace(LEFT_OUT, "").replace('"1/2"', '"9/20"'), visits.parent)
    made, same = tb.plan(visits), tb.plan(less)
    assert made.table_errors == same.table_errors
    assert (made.rmse, made.bound) == (same.rmse, same.bound)
    view, plain = plan_view(made), plan_view(same)
    assert view.stops[0].loss.amount / plain.stops[0].loss.amount == pytest.approx(10 / 9, rel=0.06)
    at = next(i for i, stop in enumerate(view.stops) if "own" in stop.kind)
    assert view.stops[at].loss == tb.ZCDP("1/2")
    for row, errors in zip(view.errors.rows, made.table_errors, strict=True):
        assert row.errors[at].numbers[0] == pytest.approx(errors.rmse)


def test_a_source_that_changes_is_refused(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are written to between two looks; the message holds no number."""
    real = count.left_out

    def later(table: Any, unit: Any) -> Any:
        found = real(table, unit)
        return found.mutate(rows=found.rows + 1000)

    monkeypatch.setattr(count, "left_out", later)
    with pytest.raises(DataError, match="changed while it was read") as caught:
        prepare(tb.plan(visits), bytes(32))
    assert not any(character.isdigit() for character in str(caught.value))


MISTAKES = {
    "nothing": ('"1/10"', '"0"', "privacy.left_out.share", "strictly between 0 and 1"),
    "all": ('"1/10"', '"1"', "privacy.left_out.share", "strictly between 0 and 1"),
    "more": ('"1/10"', '"3/2"', "privacy.left_out.share", "strictly between 0 and 1"),
    "negative": ('"1/10"', '"-1/10"', "privacy.left_out.share", "strictly between 0 and 1"),
    "float": ('"1/10"', "0.1", "privacy.left_out.share", 'write "0.1"'),
    "words": ('"1/10"', '"½ of it"', "privacy.left_out.share", "share"),
    "no rows": (f"at_most = {MOST}", "at_most = 0", "privacy.left_out.at_most", "must be 1 or more"),
    "huge": (f"at_most = {MOST}", "at_most = 1000001", "privacy.left_out.at_most", "at most 1,000,000"),
    "half a row": (f"at_most = {MOST}", "at_most = 1.5", "privacy.left_out.at_most", "must be an integer"),
    "true": (f"at_most = {MOST}", "at_most = true", "privacy.left_out.at_most", "must be an integer"),
    "one key": (f", at_most = {MOST}", "", "privacy.left_out.at_most", "at_most = 20"),
    "unknown key": ("at_most", "at_mots", "privacy.left_out.at_mots", "at_most"),
    "a number": (LEFT_OUT, "left_out = 3", "privacy.left_out", "must be"),
    "an empty list": (LEFT_OUT, "left_out = []", "privacy.left_out", "must be"),
    "no unit": (f'unit_id = "PID"\nrows_per_unit = {K}', "", "privacy.left_out", "unit_id"),
    "exact counts": (
        '[[table]]\nname = "ages"',
        '[[invariant]]\nattributes = []\nreason = "known"\n\n[[table]]\nname = "ages"',
        "privacy.left_out",
        "invariant",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(visits: Path, mistake: str) -> None:
    old, new, path, words = MISTAKES[mistake]
    changed(visits, (old, new))
    with pytest.raises(SpecError) as caught:
        read_spec(visits)
    assert [(p.path, words in p.message) for p in caught.value.problems if p.path == path] == [(path, True)]
    _fails(_call("run", visits, "--out", visits.parent / "release"), 1, path)
    assert tb.Ledger.open(visits.parent / "ledger.db").spent == 0
    assert not list(visits.parent.glob("*release*"))


@pytest.mark.parametrize("kind", ["guild", "duchy"])
def test_it_is_of_tables_alone(request: pytest.FixtureRequest, kind: str) -> None:
    spec: Path = request.getfixturevalue(kind)
    text = spec.read_text().replace("ledger = ", f"{LEFT_OUT}\nledger = ", 1)
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text, spec.parent)
    (problem,) = caught.value.problems
    assert problem.path == "privacy.left_out"
    assert "without areas and groups" in problem.message


def test_a_share_too_small_for_any_noise(visits: Path) -> None:
    """Refused before anything is charged: 64 bits hold no draw."""
    changed(visits, ('"1/10"', '"1e-40"'))
    _fails(_call("run", visits, "--out", visits.parent / "release"), 1, "left_out", "a larger share")
    assert tb.Ledger.open(visits.parent / "ledger.db").spent == 0
    assert not list(visits.parent.glob("*release*"))
