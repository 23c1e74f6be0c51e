"""Releases of each kind, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.convert.hamlet import make_hamlet
from tests.guild import guild
from tests.village import village

import tabulae as tb

KINDS = ("village", "guild", "duchy", "hamlet")


def _released(folder: Path, fixture: object) -> Path:
    """Run what a fixture of a spec writes."""
    spec = fixture.__wrapped__(folder)  # type: ignore[attr-defined]
    tb.run(spec, folder / "release")
    return folder / "release"


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory, duchy_release: Path) -> dict[str, Path]:
    """One release of tables, one of groups, one of areas, one with awkward names: to be looked at and never changed."""
    return {
        "village": _released(tmp_path_factory.mktemp("village"), village),
        "guild": _released(tmp_path_factory.mktemp("guild"), guild),
        "duchy": duchy_release,
        "hamlet": make_hamlet(tmp_path_factory.mktemp("hamlet")),
    }


@pytest.fixture(params=KINDS)
def released(request: pytest.FixtureRequest, releases: dict[str, Path]) -> tb.Release:
    """Each of them."""
    return tb.Release.read(releases[request.param])


@pytest.fixture
def copy(releases: dict[str, Path], tmp_path: Path) -> Path:
    """The release with awkward names, to be changed."""
    shutil.copytree(releases["hamlet"], tmp_path / "release")
    return tmp_path / "release"
