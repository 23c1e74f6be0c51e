"""The reader shows the published numbers, each with its interval, and nothing else."""

from __future__ import annotations

import pytest
from tests.planning.test_quick_margins import _county
from tests.village import SPEC

import tabulae as tb
from tabulae.report.numbers import fixed
from tabulae.studio.reader import read
from tabulae.studio.server import _templates


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    folder = tmp_path_factory.mktemp("read")
    people = "".join(f"{'FM'[i % 2]},{i % 20},{'abc'[i % 3]}\n" for i in range(3000))
    (folder / "people.csv").write_text(f"SEX,AGE,RACE\n{people}")
    text = SPEC.replace('attributes = ["race", "young"]', 'attributes = ["race", "young"]\ntotals = true')
    (folder / "spec.toml").write_text(text + '\n[method]\nselect = "residual"\n')
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    return tb.run(folder / "spec.toml", folder / "release")


def test_rows_are_those_of_the_table(release: tb.Release) -> None:
    shown = read(release, {"table": ["race_by_young"]}).shown
    assert shown is not None
    published = release.tables["race_by_young"].to_pylist()
    (panel,) = shown.panels
    assert len(panel.rows) == shown.rows == len(published) == 16
    for row, whole in zip(panel.rows, published, strict=True):
        assert row.labels == tuple(str(whole[n]).replace("_T", "all") for n in ("young", "race"))
        assert row.interval == "{} to {}".format(*(fixed(whole[end]) for end in ("ci_low", "ci_high")))
        assert row.picture.startswith("<svg")


def test_rows_are_found_by_words_and_split_by_a_column(release: tb.Release) -> None:
    found = read(release, {"table": ["sex_by_age"], "find": ["f 1"]}).shown
    assert found is not None
    assert found.rows == 11
    split = read(release, {"table": ["sex_by_age"], "split": ["sex"]}).shown
    assert split is not None
    assert [(panel.name, len(panel.rows)) for panel in split.panels] == [("F", 20), ("M", 20)]
    assert split.columns == ("age",)
    other = read(release, {"table": ["none"], "split": ["none"]}).shown
    assert other is not None
    assert other.name == "sex_by_age"


def test_sql_is_answered_or_refused_in_words(release: tb.Release) -> None:
    sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 GROUP BY sex"
    answer = read(release, {"sql": [sql]}).shown
    assert answer is not None
    assert [row.labels for row in answer.panels[0].rows] == [("F",), ("M",)]
    told = read(release, {"sql": ["SELECT <b>"]})
    assert told.trouble
    page = _templates().get_template("read.html").render(reading=told, release="<i>")
    assert "<b>" not in page
    assert "<i>" not in page


def test_tiles_are_rows_coloured_by_their_estimates_alike_in_all_pictures(release: tb.Release) -> None:
    shown = read(release, {"table": ["sex_by_age"], "draw": ["tiles"], "split": ["sex"]}).shown
    assert shown is not None
    assert shown.tiles
    assert len(shown.shades) == 5
    rows = sorted(
        (float(row.estimate.replace("−", "-")), row.shade) for panel in shown.panels for row in panel.rows
    )
    assert [shade for _, shade in rows] == sorted(shade for _, shade in rows)
    assert rows[-1][1] == 5
    page = (
        _templates()
        .get_template("read.html")
        .render(
            reading=read(release, {"table": ["sex_by_age"], "draw": ["tiles"], "split": ["sex"]}), release="r"
        )
    )
    assert page.count('<li class="tile q') == 5 + 40
    assert "outlines" not in page


@pytest.fixture(scope="module")
def areas(tmp_path_factory: pytest.TempPathFactory) -> tb.Release:
    folder = tmp_path_factory.mktemp("areas")
    spec = _county(folder, "tract", "1/5", "3/5").text.replace(
        'areas = ["tract"]', 'areas = ["tract", "block"]'
    )
    spec = spec.replace('attributes = ["age"]', 'attributes = ["sex"]')
    people = "".join(f"{'FM'[i % 2]},{i % 10},t{i % 23 % 5}b{i % 23}\n" for i in range(900))
    (folder / "people.csv").write_text(f"sex,age,block\n{people}")
    (folder / "spec.toml").write_text(spec)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    return tb.run(folder / "spec.toml", folder / "release")


def test_a_map_has_a_tile_for_each_area_of_one_kind(areas: tb.Release) -> None:
    reading = read(areas, {"table": ["ages"], "draw": ["tiles"], "split": ["sex"], "kind": ["block"]})
    shown = reading.shown
    assert shown is not None
    assert shown.kinds == ("tract", "block")
    assert [(panel.name, len(panel.rows)) for panel in shown.panels] == [("F", 23), ("M", 23)]
    assert shown.columns == ("area",)
    page = _templates().get_template("read.html").render(reading=reading, release="r")
    assert "a tile stands by its code and not by its place" in page
    first = read(areas, {"table": ["ages"], "draw": ["tiles"]}).shown
    assert first is not None
    assert (first.kind, first.rows) == ("tract", 10)  # areas of one kind do not overlap
    every = read(areas, {"table": ["ages"]}).shown
    assert every is not None
    assert (every.kind, every.rows) == ("", 56)
