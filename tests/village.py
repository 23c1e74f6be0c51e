"""A small release: its records, its spec and its ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tabulae as tb

SPEC = """
title = "Village"

[source]
path = "people.csv"
unit = "person"

[attributes]
sex = { column = "SEX", categories = ["F", "M"] }
age = { column = "AGE", range = [0, 19] }
race = { column = "RACE", categories = ["a", "b", "c"] }

[recodes]
young = { of = "age", edges = [5, 15] }

[privacy]
definition = "zcdp"
budget = "1/2"
delta = "1e-10"
ledger = "ledger.db"

[[table]]
name = "sex_by_age"
attributes = ["sex", "age"]

[[table]]
name = "race_by_young"
attributes = ["race", "young"]

[[table]]
name = "ages"
queries = { age = "ranges" }

[[table]]
name = "some"
sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 OR race = 'b' GROUP BY sex"
"""


def write_village(folder: Path) -> Path:
    """Write records, spec.toml and a ledger with budget for two releases; returns the spec."""
    rng = np.random.default_rng(7)
    rows = [
        f"{'FM'[rng.integers(2)]},{rng.integers(20)},{'abc'[rng.choice(3, p=[0.7, 0.25, 0.05])]}"
        for _ in range(400)
    ]
    (folder / "people.csv").write_text("SEX,AGE,RACE\n" + "\n".join(rows) + "\n")
    (folder / "spec.toml").write_text(SPEC)
    tb.Ledger.create(folder / "ledger.db", 1, "zcdp")
    return folder / "spec.toml"


@pytest.fixture
def village(tmp_path: Path) -> Path:
    """A folder with people.csv, spec.toml and a ledger with budget for two releases; returns the spec."""
    return write_village(tmp_path)
