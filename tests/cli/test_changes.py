"""`tabulae changes`: two folders in, changes with intervals out; what cannot be compared is named or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from tests.passages import changed
from tests.run.series import run, write_people, write_series, write_spec
from typer.testing import CliRunner, Result

import tabulae as tb
from tabulae.cli import app, commands
from tabulae.errors import InvalidArgument, ReleaseError, Unsupported


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A series of three releases, to be looked at and never changed."""
    return write_series(tmp_path_factory.mktemp("changes") / "town")


def _call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["changes", *(str(a) for a in arguments)])


def _refused(*arguments: object) -> str:
    result = _call(*arguments)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


def test_all_rows_of_a_table_with_changes_and_intervals(made: Path, tmp_path: Path) -> None:
    result = _call(made / "2025", made / "2026", "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["tables"]
    assert (found["table"], found["level"], found["notes"], len(found["rows"])) == (
        "sex_by_age",
        0.95,
        [],
        10,
    )
    before, now = (tb.Release.read(made / year).tables["sex_by_age"].to_pylist() for year in ("2025", "2026"))
    for row, old, new in zip(found["rows"], before, now, strict=True):
        assert (row["sex"], row["age"]) == (old["sex"], old["age"])
        for part, published in (("before", old), ("now", new)):
            assert row[part] == published["estimate"]
            assert row[f"{part}_ci_low"] == published["ci_low"]
        assert row["change"] == pytest.approx(new["estimate"] - old["estimate"])
        assert row["change_std_error"] == pytest.approx(np.hypot(old["std_error"], new["std_error"]))
        assert row["change_ci_low"] < row["change"] < row["change_ci_high"]
        if row["percent_status"] == "A":
            assert row["percent"] == pytest.approx(100 * new["estimate"] / old["estimate"] - 100)
            assert row["percent_ci_low"] < row["percent"] < row["percent_ci_high"]
    assert {row["percent_status"] for row in found["rows"]} == {"A", "Q"}  # ages 2 and 3 have nobody
    out = tmp_path / "changes.csv"
    assert _call(made / "2025", made / "2026", "--out", out).exit_code == 0
    assert pyarrow.csv.read_csv(out).num_rows == 10
    assert _call(made / "2025", made / "2026", "--out", tmp_path / "changes.xlsx").exit_code == 0
    assert _call(made / "2025", made / "2026", "--out", tmp_path / "changes.parquet").exit_code == 0
    assert "exists" in _refused(made / "2025", made / "2026", "--out", out)
    for year in ("2025", "2026"):
        assert "lies in" in _refused(made / "2025", made / "2026", "--out", made / year / "changes.csv")
    assert "end its name in" in _refused(made / "2025", made / "2026", "--out", tmp_path / "changes.txt")


def test_a_correction_says_that_noise_is_in_the_change(made: Path) -> None:
    said = " ".join(_call(made / "2026", made / "2026b").stdout.split())
    assert "where its interval holds 0 noise alone explains it" in said
    assert "not estimable" in said


def test_what_is_refused(made: Path, tmp_path: Path) -> None:
    assert "follows" in _refused(made / "2026", made / "2025")
    assert "are the same release" in _refused(made / "2025", made / "2025")
    assert 'no table "sex"' in _refused(made / "2025", made / "2026", "--table", "sex").replace("'", '"')
    assert "is not a folder" in _refused(made / "2025", made / "2099")
    altered = Path(shutil.copytree(made / "2025", tmp_path / "2025"))
    (altered / "tables/sex_by_age.csv").write_text("")
    assert "sex_by_age.csv was altered" in _refused(altered, made / "2026")
    other = Path(shutil.copytree(made / "2025", tmp_path / "other"))
    (other / "more").write_text("")
    sums = other / "SHA256SUMS"
    sums.write_text(
        sums.read_text() + f"{'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'}  more\n"
    )
    assert "is not the release that" in _refused(other, made / "2026")


def test_releases_of_no_series_and_of_a_fork_say_so(made: Path, tmp_path: Path) -> None:
    alone = run(write_people(tmp_path / "elsewhere"), "alone")
    first = tb.Release.read(made / "2025")
    later = tb.Release(alone.path, {**alone.descriptor, "created": "2999-01-01T00:00:00+00:00"})
    notes = first.changes_since(later, "sex_by_age").notes
    assert any("not of one series" in note for note in notes)
    assert any("made after the other" in note for note in notes)
    town = Path(shutil.copytree(made, tmp_path / "town"))
    fork = run(town, "2026c", "1/6", follows="2025", kind="next")
    (note,) = fork.changes_since(tb.Release.read(town / "2026"), "sex_by_age").notes
    assert "their series forks" in note


def test_only_rows_that_count_the_same_are_compared(tmp_path: Path) -> None:
    """Ages up to 5 in the later year, in which the classes 'middle' and 'old' unite other ages."""
    town = write_people(tmp_path / "town")
    more = '[[table]]\nname = "old"\nattributes = ["old"]\n[[table]]\nname = "some"\nattributes = ["sex"]\n'
    classes = {"2025": "young middle middle old old", "2026": "young middle old old old new"}
    for year, words in classes.items():
        path, named = write_spec(town, year), words.split()
        coded = "".join(f"{age},{name}\n" for age, name in enumerate(named))
        (town / f"{year}.csv").write_text(f"code,class\n{coded}")
        text = path.read_text().replace("range = [0, 4]", f"range = [0, {len(named) - 1}]")
        text = text.replace(
            "[privacy]", f'[recodes]\nold = {{ of = "age", map = "{year}.csv" }}\n\n[privacy]'
        )
        path.write_text(text.replace("[method]", more + "[method]"))
    before, now = (tb.run(town / f"{year}.toml", town / year) for year in ("2025", "2026"))
    found = now.changes_since(before, "sex_by_age")
    assert found.rows.num_rows == 10
    assert "age: 5 in the later release only." in found.notes
    found = now.changes_since(before, "old")
    assert found.rows["old"].to_pylist() == ["young"]
    assert any("count something else under one label: middle, old." in note for note in found.notes)
    found = now.changes_since(before, "some")
    assert any("Of age, which is added up: 5 in the later release only" in note for note in found.notes)


def test_tables_of_other_columns_or_conditions_are_refused(tmp_path: Path) -> None:
    town = write_people(tmp_path / "town")
    spec = write_spec(town, "2025")
    text = spec.read_text()
    spec.write_text(text.replace('attributes = ["sex", "age"]', 'attributes = ["sex"]'))
    less = tb.run(spec, town / "2025")
    whole = run(town, "2026")
    with pytest.raises(InvalidArgument, match="has the columns sex in the earlier release, and sex, age in"):
        whole.changes_since(less, "sex_by_age")
    spec = write_spec(town, "2027")
    spec.write_text(
        text.replace(
            'attributes = ["sex", "age"]', 'sql = "SELECT sex, COUNT(*) FROM t WHERE age < 3 GROUP BY sex"'
        )
    )
    some = tb.run(spec, town / "2027")
    with pytest.raises(InvalidArgument, match="it does not count the same"):
        some.changes_since(less, "sex_by_age")
    assert "it does not count the same" in _refused(less.path, some.path)


def test_one_table_that_cannot_be_compared_hides_no_other(tmp_path: Path) -> None:
    town = write_people(tmp_path / "town")
    for year, attributes in (("2025", '["sex"]'), ("2026", '["age"]')):
        spec = write_spec(town, year)
        more = f'[[table]]\nname = "other"\nattributes = {attributes}\n[method]'
        changed(spec, ("[method]", more))
        tb.run(spec, town / year)
    found = json.loads(_call(town / "2025", town / "2026", "--json").stdout)
    assert [each["table"] for each in found["tables"]] == ["sex_by_age"]
    assert len(found["left_out"]) == 1
    assert "Left out table 'other' has the columns sex" in " ".join(
        _call(town / "2025", town / "2026").stdout.split()
    )
    assert "has the columns sex" in _refused(town / "2025", town / "2026", "--table", "other")


def test_a_bound_on_rows_that_changed_is_told(tmp_path: Path) -> None:
    town = write_people(tmp_path / "town")
    (town / "people.csv").write_text("SEX,AGE,ID\n" + "".join(f"F,{i % 5},{i // 2}\n" for i in range(60)))
    years = []
    for year, rows in (("2025", 1), ("2026", 2)):
        spec = write_spec(town, year)
        bound = f'path = "people.csv"\nunit_id = "ID"\nrows_per_unit = {rows}\n'
        changed(spec, ('path = "people.csv"\n', bound))
        years.append(tb.run(spec, town / year))
    notes = years[1].changes_since(years[0], "sex_by_age").notes
    assert any("at most 1 rows of each person, and the later one at most 2 rows" in note for note in notes)


def test_exact_tables_change_exactly(tmp_path: Path) -> None:
    town = write_people(tmp_path / "town")
    years = []
    for year in ("2025", "2026"):
        spec = write_spec(town, year)
        exact = '[[invariant]]\nname = "total"\nsql = "SELECT COUNT(*) FROM t"\nreason = "is known"\n[method]'
        changed(spec, ("[method]", exact))
        years.append(tb.run(spec, town / year))
        with (town / "people.csv").open("a") as file:
            file.write("F,1\n" * 30)
    rows = years[1].changes_since(years[0], "total").rows.to_pylist()
    assert [(row["before"], row["now"], row["change"], row["percent"]) for row in rows] == [(60, 90, 30, 50)]
    assert {rows[0][f"{part}_status"] for part in ("before", "now", "change", "percent")} == {"E"}


def test_areas_and_groups_are_refused(made: Path, duchy_release: Path) -> None:
    from tabulae.products.groups.product import GroupsProduct

    earlier, later = tb.Release.read(made / "2025"), tb.Release.read(made / "2026")
    with pytest.raises(Unsupported, match="releases of groups are not computed"):
        GroupsProduct(later.spec).changes(earlier, later, "t")
    with pytest.raises(ReleaseError, match="same release"):
        later.changes_since(later, "sex_by_age")
    areas = tb.Release.read(duchy_release)
    with pytest.raises(Unsupported, match="noises are independent"):
        areas.changes_since(areas, "faith")
    with pytest.raises(ReleaseError, match="different kinds"):
        later.changes_since(areas, "sex_by_age")


def test_what_rounds_to_nothing_has_no_sign() -> None:
    row = {"a": "x", "estimate": -0.01, "std_error": 1.0, "ci_low": -2.0, "ci_high": 2.0, "obs_status": "A"}
    assert commands._cells(row, 1)[0] == "0.0"
    assert commands._number(-0.04, 1) == "0.0"
