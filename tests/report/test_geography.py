"""The report of a release of areas: one page from the folder alone, the same each time, with one script of its own."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.duchy import houses, plots, write_duchy, write_plots
from tests.passages import changed
from tests.report.page import Page, check_script

import tabulae as tb
from tabulae._run import write_report
from tabulae.products.areas.descent import admm, projected_gradient
from tabulae.products.areas.plan import GeographyPlan
from tabulae.products.areas.spec.section import geography_of
from tabulae.report import report_of
from tabulae.report.areas import (
    SIZES,
    AreaNumbers,
    LimitsView,
    area_numbers,
    by_class,
    geography_view,
    limits_of,
)
from tabulae.report.spine import COLOURS, GroupsMap, GroupsStrip, colours_of, drawing_of, fans
from tabulae.spec import read_spec

HOSTILE = '<script>alert("x")</script>'


def _page(folder: Path) -> str:
    return re.sub(r"\s+", " ", (folder / "report.html").read_text())


def test_the_page_is_whole_and_the_same_each_time(duchy_release: Path, tmp_path: Path) -> None:
    shutil.copytree(duchy_release, tmp_path / "copy")
    stored = (duchy_release / "report.html").read_text()
    sums = (duchy_release / "SHA256SUMS").read_bytes()
    copy = tb.Release.read(tmp_path / "copy")
    assert report_of(copy) == stored
    assert write_report(copy).read_text() == stored
    assert (copy.path / "SHA256SUMS").read_bytes() == sums
    page = Page(stored)
    assert page.open == []
    check_script(stored)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not [link for link in page.links if not link.startswith("#")]
    assert "http://" not in stored
    assert len(stored.encode()) < 2_000_000


def test_the_page_says_what_was_promised_and_what_is_exact(duchy_release: Path) -> None:
    text, release = _page(duchy_release), tb.Release.read(duchy_release)
    view = geography_view(release)
    assert "zero-concentrated differential privacy with ρ = 2" in text
    assert "the duke counts heads" in text
    assert view.promise.statements[0].epsilon == pytest.approx(release.spec.loss.epsilon("1e-10"))
    assert (view.areas, view.counts, view.people) == (78, 78 + 78 + 204, 500)
    assert [level.name for level in view.levels] == ["duchy", "shire", "parish", "hamlet", "plot"]
    assert [row.entity_type for row in view.distances if row.entity_type in ("market", "forest")] == [
        "market", "forest",
    ]  # fmt: skip
    assert all(row.mean <= row.conventional_mean for row in view.distances if row.entity_type == "market")
    assert "Nobody can be in 3 areas of type plot" in text
    assert "the errors and intervals of <code>gls</code> are not theirs" in text
    assert "Bias by size" in text
    assert '<td class="n strong">500</td>' in text


def test_expected_errors_are_those_of_the_tables(duchy_release: Path) -> None:
    release = tb.Release.read(duchy_release)
    view = geography_view(release)
    for row in view.errors:
        table = release.tables[row.table].to_pylist()
        told = [r for r in table if r["area_type"] == row.kind]
        errors = [r["std_error"] for r in told if r["obs_status"] == "A"]
        assert len(told) == row.areas * row.cells
        if errors:
            assert row.rmse == pytest.approx(np.sqrt(np.mean(np.square(errors))))
        else:
            assert np.isnan(row.rmse)
    planned = {(row.table, row.area_type): row.rmse for row in GeographyPlan(release.spec).table_errors}
    for row in view.errors:
        assert planned[row.table, row.kind] == pytest.approx(0 if np.isnan(row.rmse) else row.rmse)
    sized = [row for row in view.by_size if row.kind == "plot"]
    assert sum(row.areas for row in sized) == 45  # those of three plots are exactly 0
    for row in sized:
        if row.label in ("0", "1 to 9"):
            assert row.bias == pytest.approx(row.raised, abs=1e-9)
    total = [r for r in release.tables["total"].to_pylist() if r["area_type"] == "plot"]
    apart = sum(r["estimate"] - r["gls_estimate"] for r in total)
    assert sum(row.areas * row.bias for row in sized) == pytest.approx(apart)
    assert {row.kind for row in view.by_distance} == {"hamlet", "market", "forest"}


def test_many_expected_errors_are_folded(duchy_release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = tb.Release.read(duchy_release)
    whole, rows = report_of(release), len(geography_view(release).errors)
    monkeypatch.setattr("tabulae.report.areas._ERRORS_SHOWN", 3)
    folded = report_of(release)
    assert "<details>" not in whole
    assert f"<summary>{rows - 3} more rows</summary>" in folded
    assert Page(folded).open == []
    assert folded.count("<tr>") == whole.count("<tr>") + 1  # a second heading


def test_tables_are_read_in_any_step(duchy_release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [("shire", 2), ("plot", 48), ("forest", 1)]
    whole = area_numbers(duchy_release, "faith", kinds, 4)
    monkeypatch.setattr("tabulae.report.areas._ROWS", 9)
    for a, b in zip(whole, area_numbers(duchy_release, "faith", kinds, 4), strict=True):
        assert (a.kind, a.codes, a.rmse) == (b.kind, b.codes, pytest.approx(b.rmse))
        assert np.allclose(a.published, b.published)


def test_classes_hold_every_area_once() -> None:
    people = np.array([0.0, 0, 1, 9, 10, 99, 1e6, 5e7])
    none = np.zeros(8)
    numbers = AreaNumbers(
        "town", tuple("abcdefgh"), 1, people, people - 1, none + 4, none + 1, none, none, none
    )
    rows = list(by_class(numbers, people, SIZES))
    assert [(row.label, row.areas) for row in rows] == [
        ("0", 2), ("1 to 9", 2), ("10 to 99", 2), ("1,000,000 or more", 2),
    ]  # fmt: skip
    assert all((row.rmse, row.bias, row.bias_error) == (2, 1, 0) for row in rows)
    assert all(np.isnan(row.raised) for row in rows)
    exact = replace(numbers, noisy=np.array([0.0, 1, 1, 1, 0, 0, 1, 1]))
    assert [(row.label, row.areas) for row in by_class(exact, people, SIZES)] == [
        ("0", 1), ("1 to 9", 2), ("1,000,000 or more", 2),
    ]  # fmt: skip


def test_names_are_escaped_wherever_they_stand(tmp_path: Path) -> None:
    spec = write_duchy(tmp_path)
    rows = [{**plot, "parish": f"{plot['parish']}{HOSTILE.replace(',', '')}"} for plot in plots()]
    for row in rows:
        row["market"] = row["market"].replace("M1", HOSTILE)
        row["duchy"] = HOSTILE
    write_plots(tmp_path / "plots.csv", [{k: _quoted(v) for k, v in row.items()} for row in rows])
    changed(
        spec,
        ('title = "Duchy"', f"title = '{HOSTILE}'"),
        ('reason = "the duke counts heads"', f"reason = '{HOSTILE}'"),
    )
    release = tb.run(spec, tmp_path / "release")
    page = (release.path / "report.html").read_text()
    assert HOSTILE not in page
    check_script(page)
    assert "&lt;script&gt;" in page


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_a_release_of_gls_alone_says_so(tmp_path: Path) -> None:
    """And a file without places is drawn as a strip."""
    spec = write_duchy(tmp_path)
    write_plots(tmp_path / "plots.csv", [{k: v for k, v in p.items() if k not in "xy"} for p in plots()])
    changed(spec, ("[release]\nmicrodata = true", '[method]\nestimate = "gls"'))
    release = tb.run(spec, tmp_path / "release")
    text = _page(release.path)
    assert "Bias by size" not in text
    assert "gls_estimate" not in text
    assert "microdata" not in text
    assert "Squares that stand together are one hamlet" in text
    assert Page(text).open == []


def test_searches_that_stopped_early_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admm, "STEPS", 1)
    monkeypatch.setattr(projected_gradient, "STEEPEST", 1e-12)
    release = tb.run(write_duchy(tmp_path), tmp_path / "release")
    assert release.about["unconverged"] > 1
    assert f"For {release.about['unconverged']} areas the search" in _page(release.path)
    assert release.verify() == []
    converged = {**release.descriptor, "tabulae": {**release.about, "unconverged": 0}}
    assert "stopped early" not in report_of(replace(release, descriptor=converged))


def test_every_leaf_of_the_area_is_drawn_once(duchy_release: Path) -> None:
    geography = tb.Release.read(duchy_release).spec.geography
    assert geography is not None
    entities = {"market": geography.entities["market"]}
    for place in (None, np.argwhere(np.ones((9, 5))).astype(float)):
        drawing = drawing_of(geography.conventional, geography.spine, entities, place)
        assert drawing is not None
        assert (drawing.area, drawing.group, drawing.leaves) == ("duchy D", "hamlet", 45)
        for picture in (drawing.given, drawing.measured):
            squares = re.findall(r'class="m(\d)" d="([^"]*)"', str(picture.svg()))
            counts = {int(colour): path.count("z") for colour, path in squares}
            assert sum(counts.values()) == 45
            assert counts[0] == sum(one is None for one in entities["market"])


def test_pictures_keep_their_width() -> None:
    rng = np.random.default_rng(2)
    group = np.sort(rng.integers(0, 150, 2000))
    group = np.unique(group, return_inverse=True)[1]
    colour = rng.integers(0, COLOURS + 1, 2000)
    strip = str(GroupsStrip(group // 10, group, colour, "many").svg())
    places = [tuple(map(int, one)) for one in re.findall(r"M(\d+) (\d+)h6", strip)]
    assert len(set(places)) == 2000
    assert max(x for x, _ in places) + 6 <= 620
    drawn = str(GroupsMap(rng.random((2000, 2)), group, colour, "many").svg())
    assert drawn.count("L") == 2000
    assert len(drawn) < 120_000
    one = GroupsMap(np.zeros((1, 2)), np.zeros(1, int), np.zeros(1, int), "one").svg()
    assert "nan" not in str(one)


def test_entities_beyond_the_colours_share_one() -> None:
    entity = [None, *"aaabbccddeeffgghh"]
    colour, named = colours_of(entity)
    assert named == tuple("abcde")
    assert set(colour.tolist()) == set(range(COLOURS + 1))
    assert colours_of([None])[1] == ()


def test_fans_count_measured_units() -> None:
    codes = {"town": list("AAAB"), "street": ["A1", "A1", "A2", "B1"], "house": list("wxyz")}
    spine = tb.Spine.from_codes(codes, levels=["town", "street", "house"])
    assert {name: (f.units, f.mean, f.most) for name, f in fans(spine).items()} == {
        "root": (1, 2, 2), "town": (2, 1.5, 2), "street": (3, 4 / 3, 2), "house": (4, None, None),
    }  # fmt: skip
    measured = spine.bypass({"root": "0", "town": "1/3", "street": "1/3", "house": "1/3"})
    assert {name: f.units for name, f in fans(measured).items()} == {
        "root": 1,
        "town": 2,
        "street": 2,
        "house": 2,
    }


def test_limits_of_public_files_are_told(duchy_release: Path, tmp_path: Path) -> None:
    text, spec = _page(duchy_release), write_duchy(tmp_path)
    assert geography_view(tb.Release.read(duchy_release)).limits == LimitsView("plot", 3, 7, 0, 0)
    assert "limit counts of 3 kinds in areas of type plot: 7 from below and 0 from above" in text
    assert "whatever the records say" in text
    assert "no news about anybody" not in text
    assert "one limit from below and from above" not in text
    lines = [f"{plot},{kind},{least},{least or 30}" for (plot, kind), least in houses().items()]
    (tmp_path / "houses.csv").write_text("plot,kind,at_least,at_most\n" + "\n".join(lines) + "\n")
    tb.run(spec, tmp_path / "release")
    text = _page(tmp_path / "release")
    assert "7 from below and 52 from above" in text
    assert "7 of these counts have one limit from below and from above" in text
    changed(spec, ("[release]\nmicrodata = true", '[method]\nestimate = "gls"'))
    assert limits_of(geography_of(read_spec(spec))) is None
