"""Passages of files that tests give another text."""

from __future__ import annotations

from pathlib import Path


def changed(file: Path, *passages: tuple[str, str]) -> Path:
    """The file, with passages replaced that are there."""
    text = file.read_text(encoding="utf-8")
    for old, new in passages:
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return file
