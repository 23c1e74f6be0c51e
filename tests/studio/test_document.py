"""A text comes back from its file as it went in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabulae.errors import ReleaseError
from tabulae.studio.document import SpecText


@pytest.mark.parametrize("content", ["a = 1\nb = 2\n", "a = 1\r\nb = 2\r\n", "", "title = 'Zürich'"])
def test_saved_unchanged_is_unchanged(tmp_path: Path, content: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(content.encode())
    document = SpecText(path)
    document.edit(document.text)
    assert not document.unsaved
    assert document.save()
    assert path.read_bytes() == content.encode()


def test_a_removed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text("a = 1\n")
    document = SpecText(path)
    path.unlink()
    assert document.changed
    assert not document.save()
    assert not path.exists()


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, words in (("bytes", "UTF-8"), ("absent", "tabulae init"), (".", "no file")):
        with pytest.raises(ReleaseError, match=words):
            SpecText(tmp_path / name)
