"""`tabulae plan --html`: a page for every kind of spec, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.passages import changed
from typer.testing import CliRunner

from tabulae.cli import app


def _ran(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize("kind", ["village", "guild", pytest.param("duchy", marks=pytest.mark.long)])
def test_every_kind_of_plan_has_a_page(request: pytest.FixtureRequest, kind: str) -> None:
    spec: Path = request.getfixturevalue(kind)
    page = spec.with_name("plan.html")
    (spec.parent / "people.csv").unlink()  # no record is needed
    assert f"Wrote {page}" in _ran("plan", spec, "--html", page).replace("\n", "")
    text = page.read_text(encoding="utf-8")
    assert text.endswith("</html>\n")
    assert str(spec.parent) not in text
    assert len(text.encode()) < 2_000_000


def test_the_document_says_where_the_page_is_and_an_old_one_is_replaced(guild: Path) -> None:
    page = guild.with_name("plan.html")
    assert json.loads(_ran("plan", guild, "--html", page, "--json"))["html"] == str(page)
    changed(page, ("</body>", "<p>old</p></body>"))
    _ran("plan", guild, "--html", page)
    assert "<p>old</p>" not in page.read_text(encoding="utf-8")
    assert json.loads(_ran("plan", guild, "--json"))["html"] is None


def test_a_folder_is_refused_before_anything_is_computed(village: Path) -> None:
    assert "is a folder: name the file to write" in _ran("plan", village, "--html", village.parent, code=1)
    missing = village.parent / "nowhere" / "plan.html"
    assert "make it first" in _ran("plan", village, "--html", missing, code=1)
    assert not missing.parent.exists()


def test_a_full_disk_leaves_the_old_page_alone(guild: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    page = guild.with_name("plan.html")
    _ran("plan", guild, "--html", page)
    old = page.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in _ran("plan", guild, "--html", page, code=1)
    assert page.read_bytes() == old
    assert sorted(guild.parent.glob(".*draft")) == []


@pytest.mark.parametrize("option", ["--html", "--save"])
def test_no_file_but_an_earlier_output_is_replaced(village: Path, option: str) -> None:
    for other in ("spec.toml", "people.csv", "ledger.db"):
        path = village.with_name(other)
        before = path.read_bytes()
        assert "so it is not replaced: name another file" in _ran("plan", village, option, path, code=1)
        assert path.read_bytes() == before
    plan = village.with_name("plan.json")
    assert "name two files" in _ran("plan", village, "--html", plan, "--save", plan, code=1)
    assert not plan.exists()
    for _ in range(2):
        _ran("plan", village, option, plan)
