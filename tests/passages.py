"""Passages of texts that tests give another wording."""

from __future__ import annotations

from pathlib import Path


def replaced(text: str, *passages: tuple[str, str], most: int = -1) -> str:
    """The text with passages replaced that are there; of each the first ``most`` times."""
    for old, new in passages:
        assert old in text, old
        text = text.replace(old, new, most)
    return text


def changed(file: Path, *passages: tuple[str, str]) -> Path:
    """The file, with passages replaced that are there."""
    file.write_text(replaced(file.read_text(encoding="utf-8"), *passages), encoding="utf-8")
    return file
