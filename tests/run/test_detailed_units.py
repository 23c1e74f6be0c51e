"""Units of groups: what a spec says of rows is what is counted, one row a unit included."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.guild import counted, people
from tests.passages import changed

import tabulae as tb


@pytest.mark.parametrize(
    ("rows", "counted_rows"), [("", 100), ("\nrows_per_unit = 1", 100), ("\nrows_per_unit = 3", 300)]
)
def test_rows_beyond_those_of_the_spec_are_left_out(guild: Path, rows: str, counted_rows: int) -> None:
    """100 people of four rows each; noise on the total of the nation is below 25 but for less than 1e-6."""
    records = people(400)
    lines = [f"{','.join(map(str, row))},{i % 100}" for i, row in enumerate(records)]
    (guild.parent / "people.csv").write_text("TOWN,SEX,AGE,ONE,TWO,ID\n" + "\n".join(lines) + "\n")
    changed(guild, ('unit = "person"', f'unit = "person"\nunit_id = "ID"{rows}'))
    release = tb.run(guild, guild.parent / "release")
    food = next(row for row in release.tables["totals"].to_pylist() if row["group"] == "food")
    truth = counted(records)["nation", "nation", "food"]
    assert truth > 350
    assert food["estimate"] == pytest.approx(truth * counted_rows / 400, abs=25 + 0.1 * counted_rows)
