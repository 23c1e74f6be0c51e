"""The commands of the page on totals and classifications do what it shows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from docs.walk import same_shape, walk
from tests.docs.test_walk import in_process

PAGE = (Path(__file__).parents[2] / "docs/guide/totals.md").read_text(encoding="utf-8")


def test_the_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    for command, printed in walk(PAGE, tmp_path, in_process):
        assert same_shape(command.printed, printed), "\n".join([command.line, *printed])
    with (tmp_path / "release/tables/industries.csv").open(newline="") as file:
        rows = {(row["sex"], row["industry"]): float(row["estimate"]) for row in csv.DictReader(file)}
    for sex in ("F", "M", "_T"):
        sections = rows[sex, "Agriculture and forestry"] + rows[sex, "Water and waste"]
        assert rows[sex, "_T"] == pytest.approx(sections, abs=1e-6)
    for (sex, industry), count in rows.items():
        if sex == "_T":
            assert count == pytest.approx(rows["F", industry] + rows["M", industry], abs=1e-6)
