"""The example of households: production's budgets and thresholds, and an independent count of what a run publishes."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from benchmarks.detailed_households import EXAMPLE, examine
from examples.households.invent import write
from tests.safetab.households import PRODUCTION
from tests.safetab.world import needs_shared

import tabulae as tb

SPEC = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
REGIONS = {"nation": "USA", "area": "AIANNH"}


def test_the_budget_is_that_of_the_2020_run() -> None:
    levels = SPEC["detailed"]["level"]
    assert Fraction(SPEC["privacy"]["budget"]) == sum(Fraction(level["budget"]) for level in levels)
    assert sum(Fraction(level["budget"]) for level in levels) == Fraction("8.895302")


@needs_shared
def test_levels_budgets_and_thresholds_are_those_of_the_2020_run() -> None:
    told = tomllib.loads((PRODUCTION / "tables.toml").read_text(encoding="utf-8"))
    for ladder, table in zip(("household_type", "tenure"), told["table"], strict=True):
        found = {
            f"{REGIONS.get(level['region'], level['region'].upper())}, {level['group_level']}": level
            for level in SPEC["detailed"]["level"]
            if level["ladder"] == ladder
        }
        rho = {name: Fraction(rho) for name, rho in table["rho"]["us"].items() if Fraction(rho)}
        assert {name: Fraction(level["budget"]) for name, level in found.items()} == rho
        assert {name: level["thresholds"] for name, level in found.items()} == {
            name: table["thresholds"][name] for name in rho
        }
        assert len(SPEC["detailed"]["ladders"][ladder]) == len(table["ladder"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example over 8,000 households, released."""
    folder = tmp_path_factory.mktemp("households")
    write(folder / "households", 8_000)
    spec = folder / "households.toml"
    spec.write_text(EXAMPLE.read_text(encoding="utf-8"))
    tb.Ledger.create(folder / "households.db", 9, "zcdp", unit="household")
    release = tb.run(spec, folder / "release")
    assert release.verify() == []
    assert tb.Ledger.open(folder / "households.db").spent == Fraction("8.895302")
    return folder


def test_sql_of_its_own_finds_every_group_table_and_sum(folder: Path) -> None:
    found = examine(folder / "households.toml", folder / "release")
    assert [f.budget for f in found] == ["0.006915", "0.142869", "1.9208"]
    for level in found:
        assert level.violated == 0
        assert level.counts > 300
        assert level.mean_error == pytest.approx(level.expected, rel=0.2)
        assert level.covered > 0.92


def test_what_is_planted_is_found(folder: Path, tmp_path: Path) -> None:
    """A total of another group's table, one too many, and a cell that is not added: each is counted."""
    tables = tmp_path / "tables"
    tables.mkdir()
    for path in (folder / "release/tables").glob("*.parquet"):
        (tables / path.name).write_bytes(path.read_bytes())
    totals, cells = (pq.read_table(tables / f"{name}.parquet") for name in ("totals", "tenure3"))
    more = totals.filter(pa.compute.equal(totals["table"], "total")).slice(0, 1)  # type: ignore[attr-defined]
    more = more.set_column(
        more.schema.get_field_index("region"), "region", pa.array(["99"]).dictionary_encode()
    )
    pq.write_table(pa.concat_tables([totals.slice(1), more.cast(totals.schema)]), tables / "totals.parquet")
    pq.write_table(cells.slice(1), tables / "tenure3.parquet")
    found = examine(folder / "households.toml", tmp_path)
    broken = {level.budget: level.violated for level in found if level.violated}
    assert broken.pop("not listed") == 1
    assert sum(broken.values()) == 2  # the group without its total, and the sum that falls short
