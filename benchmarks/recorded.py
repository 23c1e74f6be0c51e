"""Recorded results: a CSV is replaced whole, in one step, and only by a run that is no smaller."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def record(
    path: Path, columns: Sequence[str], rows: Sequence[Any], *, size: str | None = None, force: bool = False
) -> None:
    """Write rows, mappings or sequences, in the place of those that are recorded.

    Args:
        path: the CSV.
        columns: its headings.
        rows: by column.
        size: the column that says how large the run behind a row was, such as its repetitions.
        force: replace a larger run, too.

    Raises:
        SystemExit: what is recorded has more rows, or is of larger runs; it stays.
    """
    texts = [
        {c: _text(row.get(c)) for c in columns}
        if isinstance(row, Mapping)
        else dict(zip(columns, map(_text, row), strict=True))
        for row in rows
    ]
    if not force and (fault := _smaller(path, texts, size)):
        raise SystemExit(f"{path.name} stays as it is: {fault}. Give --force to replace it")
    partial = path.with_suffix(".part")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(texts)
    partial.replace(path)


def add_force(parser: argparse.ArgumentParser) -> None:
    """The option that replaces a larger run."""
    parser.add_argument("--force", action="store_true", help="replace what a larger run recorded")


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _smaller(path: Path, rows: Sequence[Mapping[str, str]], size: str | None) -> str:
    """In what these rows are less than those of a file; empty where they are not."""
    if not path.exists():
        return ""
    with path.open(newline="", encoding="utf-8") as file:
        before = list(csv.DictReader(file))
    if len(rows) < len(before):
        return f"this run has {len(rows)} rows, and it has {len(before)}"
    if size is None or not before or size not in before[0]:
        return ""
    largest, now = (max(float(row[size] or 0) for row in some) for some in (before, rows))
    return f"this run has at most {now:g} {size}, and it has {largest:g}" if now < largest else ""
