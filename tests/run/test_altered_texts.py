"""Texts of a release that were edited, and the checksums with them: a check finds them all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tabulae as tb
from tabulae._run import check_release, pages_are_compared
from tabulae.privacy.ledger.store import link
from tabulae.release import seal


def _appended(name: str, text: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write(text)

    return edit


def _descriptor(key: str, value: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "datapackage.json"
        document = json.loads(path.read_text())
        document[key] = value if key != "tabulae" else {**document[key], **dict([value])}  # type: ignore[list-item]
        path.write_text(json.dumps(document))

    return edit


def _title_of_spec(folder: Path) -> None:
    path = folder / "spec.toml"
    title = tb.Release.read(folder).spec.title
    text = path.read_text()
    assert text.count(f'"{title}"') == 1
    path.write_text(text.replace(f'"{title}"', '"Other"'))


def _title_of_ledger(folder: Path) -> None:
    """With hashes made anew, as somebody who knows how would."""
    entries, own = json.loads((folder / "ledger.json").read_text()), ("sequence", "kind", "previous", "hash")
    previous = entries[0]["previous"]
    for entry in entries:
        if entry["kind"] == "charge":
            entry["title"] = "Other"
        content = {key: value for key, value in entry.items() if key not in own}
        entry["previous"] = previous
        entry["hash"] = previous = link(entry["sequence"], entry["kind"], content, previous).hash
    (folder / "ledger.json").write_text(json.dumps(entries))


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "report": (_appended("report.html", "<p>All counts are exact.</p>\n"), "report.html: differs from"),
    "title": (_descriptor("title", "Other"), "datapackage.json: its title is not that of spec.toml"),
    "title of the spec": (_title_of_spec, "datapackage.json: its title is not that of spec.toml"),
    "title of the charge": (_title_of_ledger, "ledger.json: the title of the charge"),
    "a remark in the spec": (_appended("spec.toml", "# exact\n"), "spec.toml: is not written as"),
    "a code": (_appended("codes/age.csv", '"x","exact",""\n'), "codes/age.csv: its codes and labels"),
}
OF_AREAS: dict[str, tuple[Callable[[Path], None], str]] = {
    "README": (_appended("README.md", "All counts are exact.\n"), "README.md: is not the one"),
    "rows": (_descriptor("tabulae", ("rows", {"total": 1})), "datapackage.json: does not describe"),
    "columns": (_descriptor("resources", []), "datapackage.json: does not describe"),
    "no README": (lambda folder: (folder / "README.md").unlink(), "README.md is missing"),
}


FEW = {
    "village": [*EDITS],
    "guild": ["report", "title of the charge", "a code"],
    "duchy": [*OF_AREAS, "a code"],
}


@pytest.mark.parametrize(
    ("kind", "edits"),
    [
        *FEW.items(),
        pytest.param("guild", [*EDITS], marks=pytest.mark.long),
        pytest.param("duchy", [*EDITS, *OF_AREAS], marks=pytest.mark.long),
    ],
)
def test_edited_texts_are_found(kind: str, edits: list[str], request: pytest.FixtureRequest) -> None:
    spec: Path = request.getfixturevalue(kind)
    release = tb.run(spec, spec.parent / "release")
    assert check_release(release) == []
    for name in edits:
        edit, words = (EDITS | OF_AREAS)[name]
        copy = spec.parent / f"copy of {name}"
        shutil.copytree(release.path, copy)
        edit(copy)
        seal(copy)
        faults = check_release(tb.Release.read(copy))
        assert any(words in fault for fault in faults), (name, faults)


def test_pages_of_another_version_are_left_out(village: Path) -> None:
    out = tb.run(village, village.parent / "release").path
    _descriptor("tabulae", ("version", "0.0.1"))(out)
    _appended("report.html", "<p>In other words.</p>\n")(out)
    seal(out)
    release = tb.Release.read(out)
    assert not pages_are_compared(release)
    assert check_release(release) == []
