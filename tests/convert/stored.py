"""What a release says, read from its files without the code under test."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tabulae.release.folder import write_sums

NUMBERS = ("estimate", "gls_estimate", "std_error", "ci_low", "ci_high")


def lines(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def published(release: Path, folder: str = "tables") -> dict[str, list[dict[str, str]]]:
    """Table -> its rows as they are published in CSV."""
    return {path.stem: lines(path) for path in sorted((release / folder).glob("*.csv"))}


def values(release: Path, name: str, folder: str = "tables") -> list[dict[str, object]]:
    """The rows of a table, with its numbers as they are stored."""
    return pq.read_table(release / folder / f"{name}.parquet").to_pylist()


def with_figure(release: Path, estimate: list[float], low: list[float], high: list[float]) -> None:
    """Put a derived figure by ``Sex`` into a release, with a value for each, of which those without one are Q."""
    known = [value == value for value in estimate]
    with_table(
        release,
        {
            "Sex": ["F", "M"],
            "estimate": estimate,
            "std_error": [0.1 if each else float("nan") for each in known],
            "ci_low": low,
            "ci_high": high,
            "obs_status": ["A" if each else "Q" for each in known],
        },
    )


def with_table(release: Path, columns: dict[str, object]) -> None:
    """Put a derived figure of these columns into a release."""
    (release / "derived").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), release / "derived" / "figure.parquet")
    descriptor = json.loads((release / "datapackage.json").read_text())
    descriptor["tabulae"]["derived"] = {**descriptor["tabulae"].get("derived", {}), "figure": 0}
    (release / "datapackage.json").write_text(json.dumps(descriptor))
    write_sums(release)
