"""SDMX-CSV: read by pysdmx with its structures, and the published numbers letter by letter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pysdmx.io import get_datasets, read_sdmx
from pysdmx.model import Role
from tests.convert.stored import lines, published, with_figure

import tabulae as tb
from tabulae.export import convert_release

COLUMNS = {
    "estimate": "OBS_VALUE",
    "gls_estimate": "GLS_ESTIMATE",
    "std_error": "STD_ERROR",
    "ci_low": "CI_LOW",
    "ci_high": "CI_HIGH",
    "obs_status": "RELEASE_STATUS",
}


def _structures(out: Path) -> dict[str, Any]:
    """The message as pysdmx reads it, after a check against the schema of SDMX-JSON 2.0."""
    message = read_sdmx(out / "structure.json", validate=True)
    return {item.short_urn: item for item in message.structures}


def test_numbers_and_statuses_are_the_published_ones(released: tb.Release, tmp_path: Path) -> None:
    out = convert_release(released, "sdmx-csv", tmp_path / "out")
    for name, rows in published(released.path).items():
        made = lines(out / "tables" / f"{name}.csv")
        assert [list(row)[:3] for row in made[:1]] == [["STRUCTURE", "STRUCTURE_ID", "ACTION"]]
        assert {row["ACTION"] for row in made} == {"I"}
        for ours, theirs in COLUMNS.items():
            if ours in rows[0]:
                assert [row[theirs] for row in made] == [row[ours] for row in rows]
        assert {row["OBS_STATUS"] for row in made} == {"A"}


def test_pysdmx_reads_data_and_structure(released: tb.Release, tmp_path: Path) -> None:
    out = convert_release(released, "sdmx-csv", tmp_path / "out")
    found = _structures(out)
    for name, stored in released.tables.items():
        path = out / "tables" / f"{name}.csv"
        (dataset,) = get_datasets(path, out / "structure.json")
        components = dataset.structure.components
        assert {c.id for c in components} >= set(dataset.data.columns)
        assert [c.id for c in components if c.role is Role.MEASURE] == ["OBS_VALUE"]
        assert dataset.structure.short_urn in found
        dimensions = [c for c in components if c.role is Role.DIMENSION]
        rows = lines(path)
        for component in dimensions:
            codes = {code.id for code in component.local_codes.items}
            assert {row[component.id] for row in rows} <= codes
        keys = [tuple(row[c.id] for c in dimensions) for row in rows]
        assert len(set(keys)) == len(keys) == stored.num_rows
        assert dataset.data["OBS_VALUE"].astype(float).tolist() == pytest.approx(
            stored["estimate"].to_pylist()
        )


def test_identifiers_are_those_that_sdmx_allows(releases: dict[str, Path], tmp_path: Path) -> None:
    out = convert_release(tb.Release.read(releases["hamlet"]), "sdmx-csv", tmp_path / "out")
    found = _structures(out)
    towers = found["Codelist=TABULAE:CL_TARN_BY(1.0.0)"]
    assert [(code.id, code.name) for code in towers.items] == [
        ("001", 'Øst, "old"'),
        ("1", "Vest"),
        ("_T1", "total?"),
    ]
    words = found["Codelist=TABULAE:CL_SEX_2(1.0.0)"]
    assert [(code.id, code.name) for code in words.items] == [
        ("1_1", "=1+1"),
        ("two_or_more", "two or more"),
        ("two_or_more_2", "two, or more"),
    ]
    assert "Dataflow=TABULAE:DF_SEX_BY_TOWER(1.0.0)" in found
    assert "Dataflow=TABULAE:DF_SEX_BY_TOWER_2(1.0.0)" in found
    for item in found.values():
        for part in getattr(item, "items", ()):
            assert re.fullmatch(r"[A-Za-z0-9_@$-]+", part.id)


def test_totals_and_exact_counts(releases: dict[str, Path], tmp_path: Path) -> None:
    """A total is ``_T``; a table that is nothing but a total has a dimension of its own, since one is needed."""
    out = convert_release(tb.Release.read(releases["hamlet"]), "sdmx-csv", tmp_path / "out")
    assert [(row["SEX"], row["MEASURE"]) for row in lines(out / "tables" / "either.csv")] == [
        ("F", "_T"),
        ("M", "_T"),
    ]
    (heads,) = lines(out / "tables" / "heads.csv")
    assert (heads["TOTAL"], heads["OBS_VALUE"]) == ("_T", "90")
    assert (heads["OBS_STATUS"], heads["RELEASE_STATUS"]) == ("A", "E")


def test_groups_have_names_and_their_table_beside(releases: dict[str, Path], tmp_path: Path) -> None:
    out = convert_release(tb.Release.read(releases["guild"]), "sdmx-csv", tmp_path / "out")
    groups = _structures(out)["Codelist=TABULAE:CL_GROUP(1.0.0)"]
    assert ("food_only", "Food only") in {(code.id, code.name) for code in groups.items}
    row = lines(out / "tables" / "totals.csv")[0]
    assert row["TABLE"] == "sex_by_age2"
    assert "LABEL" not in row


def test_what_is_not_estimable_is_a_missing_value(copy: Path, tmp_path: Path) -> None:
    """A derived figure without a value has the status of a missing value, and an empty cell."""
    nan, inf = float("nan"), float("inf")
    with_figure(copy, [0.5, nan], [0.3, -inf], [0.7, inf])
    out = convert_release(tb.Release.read(copy), "sdmx-csv", tmp_path / "out")
    good, none = lines(out / "derived" / "figure.csv")
    assert (good["OBS_VALUE"], good["OBS_STATUS"], good["CI_HIGH"]) == ("0.5", "A", "0.7")
    assert [none[key] for key in ("OBS_VALUE", "STD_ERROR", "CI_LOW", "CI_HIGH")] == [""] * 4
    assert (none["OBS_STATUS"], none["RELEASE_STATUS"]) == ("O", "Q")


def test_the_same_release_gives_the_same_bytes(releases: dict[str, Path], tmp_path: Path) -> None:
    release = tb.Release.read(releases["hamlet"])
    sums = [
        (convert_release(release, "sdmx-csv", tmp_path / name) / "SHA256SUMS").read_bytes() for name in "ab"
    ]
    assert sums[0] == sums[1]
