"""``tabulae convert``: what it prints, where it writes, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.test_cli import _call, _fails, _json

import tabulae as tb


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.village import village

    spec = village.__wrapped__(tmp_path_factory.mktemp("village"))
    tb.run(spec, spec.parent / "release")
    return spec.parent / "release"


@pytest.mark.parametrize("to", ["csv", "sdmx-csv", "json-stat"])
def test_the_folder_stands_beside_the_release(release: Path, to: str) -> None:
    document = _json(_call("convert", release, "--to", to, "--json"))
    folder = release.parent / f"release-{to}"
    assert document["folder"] == str(folder)
    assert document["format"] == to
    assert sorted(document["files"]) == sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    _fails(_call("convert", release, "--to", to), 1, "exists: name another folder with --out")


def test_words_for_people(release: Path, tmp_path: Path) -> None:
    shown = _call("convert", release, "--to", "csv", "--out", tmp_path / "out")
    assert shown.exit_code == 0
    assert f"Wrote {tmp_path / 'out'}" in shown.stdout
    assert "README.md" in shown.stdout


def test_refusals(release: Path, tmp_path: Path) -> None:
    _fails(_call("convert", release, "--to", "ods", "--out", tmp_path / "out"), 1, "no format 'ods'")
    _fails(_call("convert", tmp_path, "--to", "csv"), 1, "is not a complete release")
    _fails(_call("convert", release), 2, "--to")
    _fails(_call("convert", release, "--to", "csv", "--out", release / "out"), 1, "lies in the release")
    assert tb.Release.read(release).verify() == []
