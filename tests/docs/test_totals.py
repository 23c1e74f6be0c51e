"""The commands of the pages on totals and classifications, and on reliability, do what these show."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from docs.walk import same_shape, walk
from tests.docs.test_walk import in_process

GUIDE = Path(__file__).parents[2] / "docs/guide"


def follow(name: str, folder: Path) -> None:
    for command, printed in walk((GUIDE / name).read_text(encoding="utf-8"), folder, in_process):
        assert same_shape(command.printed, printed), "\n".join([command.line, *printed])


def test_totals_are_sums(tmp_path: Path) -> None:
    follow("totals.md", tmp_path)
    with (tmp_path / "release/tables/industries.csv").open(newline="") as file:
        rows = {(row["sex"], row["industry"]): float(row["estimate"]) for row in csv.DictReader(file)}
    for sex in ("F", "M", "_T"):
        sections = rows[sex, "Agriculture and forestry"] + rows[sex, "Water and waste"]
        assert rows[sex, "_T"] == pytest.approx(sections, abs=1e-6)
    for (sex, industry), count in rows.items():
        if sex == "_T":
            assert count == pytest.approx(rows["F", industry] + rows["M", industry], abs=1e-6)


def test_counts_of_the_last_class_are_left_out(tmp_path: Path) -> None:
    """Counts of 1,000, 250, 9 and 0 lie 4.5 standard errors and more from a threshold: the page's classes stay."""
    follow("reliability.md", tmp_path)
    with (tmp_path / "release/tables/villages.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert (row["estimate"] == "") == (row["reliability"] == "unreliable")
