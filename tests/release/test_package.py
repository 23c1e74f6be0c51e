"""The release folder is a Data Package that Frictionless finds clean, whatever tables and categories are called."""

from __future__ import annotations

import json
from pathlib import Path

import frictionless
import pyarrow as pa
import pyarrow.csv
import pytest
from tests.convert.hamlet import make_hamlet

import tabulae as tb


def _package(release: Path) -> frictionless.Package:
    return frictionless.Package(str(release / "datapackage.json"))


def _clean(release: Path) -> None:
    report = _package(release).validate()
    assert report.valid, report.flatten(["name", "type", "message"])
    read = tb.Release.read(release)
    assert report.stats["tasks"] == len(read.tables) + len(read.derived)


def test_a_release_of_tables(village: Path) -> None:
    tb.run(village, village.parent / "release")
    _clean(village.parent / "release")


def test_a_release_of_groups(guild_release: Path) -> None:
    _clean(guild_release)


def test_a_release_of_areas(duchy_release: Path) -> None:
    _clean(duchy_release)


@pytest.fixture(scope="module")
def hamlet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hamlet(tmp_path_factory.mktemp("hamlet"))


def test_awkward_names_and_exact_counts(hamlet: Path) -> None:
    _clean(hamlet)
    names = [resource.name for resource in _package(hamlet).resources]
    assert names[:2] == ["sex-by-tower", "sex-by-tower-2"]
    assert tb.Release.read(hamlet).verify() == []


def test_the_package_reads_as_the_tables(hamlet: Path) -> None:
    """What Frictionless reads, by the types that the package declares, are the published rows."""
    release = tb.Release.read(hamlet)
    for resource in _package(hamlet).resources:
        folder, _, file = str(resource.path).partition("/")
        stored = (release.tables if folder == "tables" else release.derived)[file.removesuffix(".csv")]
        rows = resource.read_rows()
        assert [row["obs_status"] for row in rows] == stored["obs_status"].to_pylist()
        assert [float(row["estimate"]) for row in rows] == stored["estimate"].to_pylist()
        assert resource.schema.primary_key == [
            f for f in stored.column_names if f not in _beside_the_key(stored)
        ]


def _beside_the_key(stored: pa.Table) -> set[str]:
    return {"obs_status", *(f.name for f in stored.schema if pa.types.is_floating(f.type))}


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("obs_status", "Z", "constraint-error"),
        ("estimate", "many", "type-error"),
        ("Sex", "F", "primary-key"),
    ],
)
def test_what_is_wrong_is_found(hamlet: Path, tmp_path: Path, column: str, value: str, fault: str) -> None:
    """The description is strict enough that a spoilt file is noticed."""
    document = json.loads((hamlet / "datapackage.json").read_text())
    resource = document["resources"][0]
    table = pyarrow.csv.read_csv(hamlet / resource["path"])
    spoilt = [*table.column(column).cast(pa.string()).to_pylist()[:-1], value]
    table = table.set_column(table.column_names.index(column), column, pa.array(spoilt))
    (tmp_path / "tables").mkdir()
    pyarrow.csv.write_csv(table, tmp_path / resource["path"])
    (tmp_path / "datapackage.json").write_text(json.dumps({**document, "resources": [resource]}))
    report = _package(tmp_path).validate()
    assert fault in {error[0] for error in report.flatten(["type"])}


def test_a_table_is_looked_up_without_being_read(hamlet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tb.Release.read(hamlet).tables
    monkeypatch.setattr("tabulae.release.read.pq.read_table", None)
    assert next(iter(tables)) in tables
    assert "nope" not in tables
