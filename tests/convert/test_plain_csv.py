"""Plain CSV: the published numbers, codes beside labels, and a package that Frictionless finds clean."""

from __future__ import annotations

from pathlib import Path

import frictionless
from tests.convert.stored import lines, published

import tabulae as tb
from tabulae.export import convert_release
from tabulae.export.stored import unique


def test_every_published_cell_is_there_letter_by_letter(released: tb.Release, tmp_path: Path) -> None:
    out = convert_release(released, "csv", tmp_path / "out")
    for folder in ("tables", "derived"):
        for name, rows in published(released.path, folder).items():
            made = lines(out / folder / f"{name}.csv")
            assert [{key: row[key] for key in rows[0]} for row in made] == rows


def test_the_package_is_clean(released: tb.Release, tmp_path: Path) -> None:
    out = convert_release(released, "csv", tmp_path / "out")
    report = frictionless.Package(str(out / "datapackage.json")).validate()
    assert report.valid, report.flatten(["name", "type", "message"])
    assert report.stats["tasks"] == len(released.tables) + len(released.derived)
    assert (out / "SHA256SUMS").exists()


def test_codes_stand_beside_labels_where_they_differ(releases: dict[str, Path], tmp_path: Path) -> None:
    out = convert_release(tb.Release.read(releases["hamlet"]), "csv", tmp_path / "out")
    rows = lines(out / "tables" / "Sex by tower.csv")
    pairs = {row["tårn by"]: row["tårn by_code"] for row in rows}
    assert pairs == {'Øst, "old"': "001", "Vest": "1", "total?": "_T1"}
    assert "Sex_code" not in rows[0]
    assert lines(out / "codes" / "tårn by.csv")[0] == {"code": "001", "label": 'Øst, "old"', "parent": "old"}


def test_areas_and_groups_have_no_codes_of_their_own(releases: dict[str, Path], tmp_path: Path) -> None:
    for kind in ("duchy", "guild"):
        out = convert_release(tb.Release.read(releases[kind]), "csv", tmp_path / kind)
        for path in (out / "tables").glob("*.csv"):
            assert not {"area_code", "region_code", "group_code"} & set(lines(path)[0])


def test_a_column_that_is_called_like_codes_keeps_its_name() -> None:
    assert unique(["town_code"], taken={"town", "town_code"}) == ["town_code_2"]
