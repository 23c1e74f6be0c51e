"""Derived figures of areas from end to end: spec, plan, run, check, report and convert."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.test_cli import _call, _fails
from tests.passages import changed
from tests.release.area_figure_cases import FIGURES, write_isles

import tabulae as tb
from tabulae.errors import SpecError
from tabulae.spec import Spec, read_spec


def test_from_spec_to_converted_files(tmp_path: Path) -> None:
    spec, out = write_isles(tmp_path), tmp_path / "release"
    assert _call("plan", spec).exit_code == 0
    assert ", 5 derived figures" in _call("check", spec).stdout
    assert "Published" in _call("run", spec, "--out", out).stdout
    assert "every number follows" in _call("check", out).stdout
    release = tb.Release.read(out)
    assert list(release.tables) == ["total"]
    assert set(release.derived) == {"minors", "apart", "mean_age", "median_age", "means_apart"}
    assert release.derived["minors"].num_rows == (1 + 3 + 12 + 1) * 2
    assert release.derived["minors"].column_names[:3] == ["area_type", "area", "sex"]
    again = read_spec(out / "spec.toml")
    assert again.digest() == read_spec(spec).digest()
    assert again.derived[1].areas == ("parish", "lake")
    page = (out / "report.html").read_text()
    assert 'id="derived"' in page
    assert "Percentage under 3, by sex" in page
    assert re.search(r"<th scope=\"row\">parish</th><th scope=\"row\">p0</th>", page)
    resources = json.loads((out / "datapackage.json").read_text())["resources"]
    assert resources[1]["title"] == "Percentage under 3, by sex"
    assert resources[1]["schema"]["primaryKey"] == ["area_type", "area", "sex"]
    for to in ("csv", "sdmx-csv", "json-stat"):
        _call("convert", out, "--to", to, "--out", tmp_path / to)
    assert (tmp_path / "csv/derived/minors.csv").read_text().count("\n") == 1 + 34
    assert (tmp_path / "json-stat/derived/minors.parish.json").exists()


def test_a_release_without_figures_has_none(tmp_path: Path) -> None:
    spec = write_isles(tmp_path, "")
    tb.run(spec, tmp_path / "release")
    assert not (tmp_path / "release/derived").exists()
    assert 'id="derived"' not in (tmp_path / "release/report.html").read_text()
    assert pq.read_table(tmp_path / "release/tables/total.parquet").num_rows == 17


@pytest.mark.parametrize(
    ("more", "path", "told"),
    [
        (
            '[[derived]]\nname = "x"\nsql = "SELECT AVG(age) FROM t"\nareas = ["lakes"]\n',
            "derived[0].areas[0]",
            "no level",
        ),
        (
            '[[derived]]\nname = "x"\nsql = "SELECT AVG(age) FROM t"\nareas = ["lake", "lake"]\n',
            "derived[0].areas[1]",
            "twice",
        ),
        ('[[derived]]\nname = "x"\nsql = "SELECT AVG(age) FROM t"\nareas = []\n', "derived[0].areas", ""),
        ('[[derived]]\nname = "x"\nsql = "SELECT AVG(sex) FROM t"\n', "derived[0].sql", "are not numbers"),
        ('[[derived]]\nname = "Total"\nsql = "SELECT AVG(age) FROM t"\n', "derived[0].name", "table[0]"),
        (FIGURES + "[release]\nmax_rows = 20\n", "release.max_rows", "the derived figures have"),
    ],
)
def test_mistakes_are_told_with_their_paths(tmp_path: Path, more: str, path: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(write_isles(tmp_path, more))
    assert [(p.path, told in p.message) for p in caught.value.problems if p.path == path] == [(path, True)]


def test_whole_numbers_and_specs_without_areas_are_refused(tmp_path: Path) -> None:
    spec = write_isles(tmp_path, estimate="topdown")
    _fails(
        _call("run", spec, "--out", tmp_path / "release"), 1, "errors have no known law", 'estimate = "gls"'
    )
    assert not (tmp_path / "release").exists()
    plain = '[[derived]]\nname = "x"\nsql = "SELECT AVG(age) FROM t"\nareas = ["lake"]\n'
    text = (
        '[source]\npath = "p.csv"\n[attributes]\nage = { range = [0, 9] }\n[privacy]\ndefinition = "zcdp"\n'
        'budget = "1"\nledger = "l.db"\n[[table]]\nname = "a"\nattributes = ["age"]\n'
    )
    with pytest.raises(SpecError) as caught:
        Spec.from_text(text + plain)
    assert [p.path for p in caught.value.problems] == ["derived[0].areas"]


def test_what_is_too_large_to_be_written_out_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    more = '[[derived]]\nname = "x"\nsql = "SELECT sex, faith, MEDIAN(age) FROM t GROUP BY sex, faith"\n'
    spec = write_isles(tmp_path, more)
    changed(
        spec,
        ("range = [0, 4]", "range = [0, 120]"),
        ("home = { categories", "home = { column = 'home', categories"),
    )
    with pytest.raises(SpecError) as caught:
        read_spec(spec)
    assert any("too many numbers" in p.message or "256" in p.message for p in caught.value.problems)
