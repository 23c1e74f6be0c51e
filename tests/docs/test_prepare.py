"""The commands of the page on preparing records do what it shows, and count what the page says."""

from __future__ import annotations

import csv
import datetime
from collections import Counter
from pathlib import Path

from docs.walk import same_shape, walk
from tests.docs.test_walk import in_process

import tabulae as tb

PAGE = (Path(__file__).parents[2] / "docs/guide/prepare.md").read_text(encoding="utf-8")


def test_the_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    for command, printed in walk(PAGE, tmp_path, in_process):
        assert same_shape(command.printed, printed), "\n".join([command.line, *printed])
    with (tmp_path / "register.csv").open(encoding="utf-8") as file:
        records = list(csv.DictReader(file, delimiter=";"))
    end = datetime.date(2024, 6, 30)
    kept = [
        record
        for record in records
        if record["STATUS"] == "resident"
        and (not record["LEFT"] or datetime.date.fromisoformat(record["LEFT"]) > end)
    ]
    counts = Counter(record["HEATING"].strip().lower() for record in kept)
    assert len(kept) < len(records)
    for row in tb.Release.read(tmp_path / "release").tables["heating"].to_pylist():
        assert abs(row["estimate"] - counts[row["heating"].lower()]) < 6 * row["std_error"]
