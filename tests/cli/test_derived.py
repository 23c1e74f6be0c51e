"""Derived figures from end to end: spec, plan, run, check, report and query."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.test_cli import _call, _fails, _json
from tests.village import write_village

import tabulae as tb
from tabulae.release.folder import write_sums

DERIVED = """
[[derived]]
name = "minors"
title = "Under 15 <by> sex"
sql = "SELECT sex, 100.0 * COUNT(*) FILTER (WHERE age < 15) / COUNT(*) AS percent FROM people GROUP BY sex"

[[derived]]
name = "median_age"
sql = "SELECT MEDIAN(age) FROM people"

[[derived]]
name = "nobody"
sql = "SELECT race, COUNT(*) / COUNT(*) FILTER (WHERE young = '15-19') FROM people GROUP BY race"
"""
RESIDUAL = '\n[method]\nselect = "residual"\n'


def without_some(spec: Path) -> str:
    """The village's spec without the table that counts by race and age together."""
    return spec.read_text().split('[[table]]\nname = "some"')[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with derived figures, beside its spec."""
    spec = write_village(tmp_path_factory.mktemp("derived"))
    spec.write_text(without_some(spec).replace('"1/2"', '"1/20"') + DERIVED + RESIDUAL)
    out = spec.parent / "release"
    assert "Published" in _call("run", spec, "--out", out).stdout
    return out


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may alter."""
    return Path(shutil.copytree(made, tmp_path / "release"))


def test_from_spec_to_report(made: Path, release: Path) -> None:
    assert _call("plan", made.parent / "spec.toml").exit_code == 0
    assert ", 3 derived figures, zcdp" in _call("check", made.parent / "spec.toml").stdout
    assert "every number follows" in _call("check", release).stdout
    found = tb.Release.read(release)
    assert list(found.derived) == ["minors", "median_age", "nobody"]
    assert not set(found.derived) & set(found.tables)
    with (release / "derived" / "minors.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = ["sex", "estimate", "std_error", "ci_low", "ci_high", "obs_status"]
    assert list(rows[0]) == names == found.derived["minors"].column_names
    for row in rows:
        assert 0 < float(row["ci_low"]) < float(row["estimate"]) < float(row["ci_high"])
    entries = {e["path"]: e for e in json.loads((release / "datapackage.json").read_text())["resources"]}
    entry = entries["derived/minors.csv"]
    assert (entry["title"], entry["schema"]["primaryKey"]) == ("Under 15 <by> sex", ["sex"])
    assert entry["description"] == found.spec.derived[0].figure.sql
    page = (release / "report.html").read_text()
    assert 'href="#derived"' in page
    assert "Under 15 &lt;by&gt; sex" in page
    assert "<by>" not in page
    assert "Fieller" in page
    assert "Woodruff" in page
    before = page.encode()
    assert _call("report", release).exit_code == 0
    assert (release / "report.html").read_bytes() == before


def test_a_query_says_what_the_spec_said(release: Path) -> None:
    found = tb.Release.read(release)
    for derived in found.spec.derived:
        assert (
            _json(_call("query", release, derived.figure.sql, "--json"))
            == found.derived[derived.name].to_pylist()
        )
    count = found.query("SELECT sex, COUNT(*) FROM people GROUP BY sex")
    double = found.query("SELECT sex, COUNT(*) + COUNT(*) FROM people GROUP BY sex")
    assert double["estimate"].to_pylist() == [2 * value for value in count["estimate"].to_pylist()]
    shown = _call("query", release, "SELECT AVG(age) FROM people").stdout
    assert re.search(r"\d\.\d{2,} to \d+\.\d{2,}", shown)
    everybody = round(found.query("SELECT COUNT(*) FROM people")["estimate"].to_pylist()[0])
    assert (
        "not estimable"
        in _call("query", release, f"SELECT COUNT(*) / (COUNT(*) - {everybody}) FROM people").stdout
    )


def test_a_release_without_figures_has_no_folder_and_no_section(village: Path) -> None:
    out = village.parent / "plain"
    _call("run", village, "--out", out)
    assert not (out / "derived").exists()
    assert 'id="derived"' not in (out / "report.html").read_text()
    assert dict(tb.Release.read(out).derived) == {}


@pytest.mark.parametrize("column", ["estimate", "std_error", "ci_low", "ci_high", "obs_status", "sex"])
def test_a_tampered_figure_is_found_even_where_the_sums_are_made_again(release: Path, column: str) -> None:
    path = release / "derived" / "minors"
    table = pq.read_table(f"{path}.parquet")
    values = table[column].to_pylist()
    values[0] = values[0] + 0.01 if isinstance(values[0], float) else {"A": "E", "F": "M"}[values[0]]
    altered = table.set_column(table.column_names.index(column), column, [values])
    pq.write_table(altered, f"{path}.parquet")
    _fails(_call("check", release), 1, "derived/minors.parquet was altered")
    write_sums(release)
    _fails(_call("check", release), 1, "derived/minors")


@pytest.mark.parametrize("name", ["minors.csv", "minors.parquet"])
def test_a_missing_or_broken_figure_is_found(release: Path, name: str) -> None:
    (release / "derived" / name).write_text("nothing")
    write_sums(release)
    _fails(_call("check", release), 1, "derived/minors" if name.endswith("csv") else "cannot be read")
    (release / "derived" / name).unlink()
    write_sums(release)
    _fails(_call("check", release), 1, "minors")


def test_what_is_not_measured_is_refused_before_anything_is_charged(village: Path) -> None:
    sql = "SELECT race, COUNT(*) FILTER (WHERE sex = 'F') / COUNT(*) FROM people GROUP BY race"
    wrong = f'\n[[derived]]\nname = "a"\nsql = "{sql}"\n'
    village.write_text(without_some(village) + RESIDUAL + wrong + wrong.replace('"a"', '"b"'))
    out = village.parent / "release"
    for result in (_call("plan", village), _call("run", village, "--out", out)):
        _fails(result, 1, "derived[0].sql", "derived[1].sql", "sex with race", "Add a [[table]]")
    assert not out.exists()
    assert tb.Ledger.open(village.parent / "ledger.db").charges() == []


def test_mistakes_of_a_statement_are_told_by_check(village: Path) -> None:
    village.write_text(
        village.read_text() + '\n[[derived]]\nname = "a"\nsql = "SELECT AVG(race) FROM people"\n'
    )
    _fails(_call("check", village), 1, "derived[0].sql (line", "are not numbers")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT COUNT(*) / 0 FROM t", "divides by 0"),
        ("SELECT AVG(COUNT(*)) FROM t", "aggregates do not nest"),
        ("SELECT AVG(race) FROM t", "are not numbers"),
        ("SELECT AVG(height) FROM t", "no attribute"),
        (
            "SELECT race, AVG(age) FROM t WHERE sex = 'F' GROUP BY race",
            "Not measured together: sex with race",
        ),
    ],
)
def test_queries_that_are_no_figures_are_refused(release: Path, sql: str, words: str) -> None:
    _fails(_call("query", release, sql), 1, words)


def test_a_median_has_an_interval_and_no_standard_error(made: Path) -> None:
    told = _call("query", made, "SELECT MEDIAN(age) FROM people").stdout
    estimate, error, interval = (cell.strip() for cell in re.findall(r"│([^│]*)│([^│]*)│([^│]*)│", told)[0])
    low, high = interval.split(" to ")
    assert error == "-"
    assert int(low) <= int(estimate) <= int(high)
    assert "A median or another quantile has no standard error" in told
    page = (made / "report.html").read_text()
    row = page[page.index("median_age") :]
    assert re.search(r'<td class="n strong">\d+</td><td class="n">\d+ to \d+</td>', row)
    assert "standard error of 0" not in page
    figure = "SELECT sex, 100.0 * COUNT(*) FILTER (WHERE age < 15) / COUNT(*) FROM people GROUP BY sex"
    assert not re.search(r"│\s+-\s+│", _call("query", made, figure).stdout)


def test_check_tells_of_a_figure_over_attributes_that_no_table_has_together(tmp_path: Path) -> None:
    spec = write_village(tmp_path)
    share = "100.0 * COUNT(*) FILTER (WHERE sex = 'F') / COUNT(*)"
    figure = '[[derived]]\nname = "women"\nsql = "SELECT {0}, {1} FROM people GROUP BY {0}"\n'
    text = without_some(spec)
    spec.write_text(text + figure.format("race", share) + RESIDUAL)
    assert "'women' needs 'sex', 'race' together, which no table counts" in _call("check", spec).stdout
    _fails(_call("plan", spec), 1, "together")
    spec.write_text(text + figure.format("age", share) + RESIDUAL)
    assert "Warning" not in _call("check", spec).stdout
    assert _call("plan", spec).exit_code == 0


@pytest.mark.parametrize(
    ("asked", "warned"),
    [
        ("AVG(age)", True),
        ("MEDIAN(age)", True),
        ("COUNT(*) FILTER (WHERE age < 4) / COUNT(*)", True),
        ("COUNT(*) FILTER (WHERE age < 5) / COUNT(*)", False),
        ("COUNT(*) FILTER (WHERE young = '5-14') / COUNT(*)", False),
    ],
)
def test_check_tells_of_a_figure_in_more_detail_than_a_recode_has(
    tmp_path: Path, asked: str, warned: bool
) -> None:
    """What `plan` refuses, `check` warns of: classes of ages do not say the mean of ages."""
    spec = write_village(tmp_path)
    figure = f'[[derived]]\nname = "figure"\nsql = "SELECT race, {asked} FROM people GROUP BY race"\n'
    text = spec.read_text().replace('[[table]]\nname = "sex_by_age"\nattributes = ["sex", "age"]\n', "")
    spec.write_text(text.split('[[table]]\nname = "ages"')[0] + figure + RESIDUAL)
    told = (
        "'figure' needs 'age', 'race' in more detail than any table counts them"
        in _call("check", spec).stdout
    )
    assert told == warned
    assert (_call("plan", spec).exit_code == 1) == warned
