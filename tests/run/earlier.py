"""What tests of [[earlier]] share: an entry added to a spec, the mistakes that are told of it, and published counts."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.passages import replaced

import tabulae as tb
from tabulae.errors import SpecError

_BESIDE = ("area_type", "estimate", "gls_estimate", "std_error", "ci_low", "ci_high", "obs_status")


def hold(spec: Path, entry: str, *changes: tuple[str, str]) -> Path:
    """Add an entry to a spec, and change passages of it."""
    spec.write_text(replaced(spec.read_text(), *changes) + entry)
    return spec


def mistakes(spec: Path) -> list[str]:
    """Path and message of each problem."""
    with pytest.raises(SpecError) as caught:
        tb.plan(spec)
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


def counts(folder: Path, table: str, level: str | None = None) -> dict[tuple[str, ...], float]:
    """The estimates of a table by its key; of the areas of a level, where it has areas."""
    rows = pq.read_table(folder / f"tables/{table}.parquet").to_pylist()
    return {
        tuple(value for name, value in row.items() if name not in _BESIDE): row["estimate"]
        for row in rows
        if row.get("area_type") == level
    }
