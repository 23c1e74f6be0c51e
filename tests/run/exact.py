"""A small release with exact counts, for the tests of runs, command line and report."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tabulae as tb

PRIVACY = """
[privacy]
definition = "zcdp"
budget = "1/2"
delta = "1e-10"
neighbours = "{neighbours}"
ledger = "ledger.db"
"""

HEAD = """
title = "Hamlet"

[source]
path = "people.csv"
unit = "person"

[attributes]
sex = { categories = ["F", "M"] }
age = { range = [0, 7] }
race = { categories = ["a", "b", "c"] }

[recodes]
young = { of = "age", edges = [3, 5] }
"""

TABLES = """
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
name = "everybody"
attributes = []

[[table]]
name = "some"
sql = "SELECT sex, COUNT(*) FROM people WHERE age < 5 OR race = 'b' GROUP BY sex"

[method]
select = "kron"
estimate = "{estimate}"
"""

TOTAL = """
[[invariant]]
attributes = []
reason = "the register publishes it"
"""

YOUNG = """
[[invariant]]
attributes = ["young"]
reason = "apportionment"
"""

ADULTS = """
[[invariant]]
name = "adults"
sql = "SELECT sex, COUNT(*) FROM people WHERE age >= 5 GROUP BY sex"
reason = "the electoral roll"
"""


def text(
    *invariants: str,
    neighbours: str = "add-remove",
    tables: str = TABLES,
    estimate: str = "least-squares",
) -> str:
    """The document with these invariants."""
    privacy = PRIVACY.format(neighbours=neighbours)
    return HEAD + privacy + tables.replace("{estimate}", estimate) + "".join(invariants)


def hamlet(folder: Path, document: str, neighbours: str = "add-remove") -> Path:
    """The records, the spec and a ledger with budget for four releases; returns the spec."""
    rng = np.random.default_rng(7)
    rows = [f"{'FM'[rng.integers(2)]},{rng.integers(8)},{'abc'[rng.integers(3)]}" for _ in range(300)]
    (folder / "people.csv").write_text("sex,age,race\n" + "\n".join(rows) + "\n")
    (folder / "spec.toml").write_text(document)
    tb.Ledger.create(folder / "ledger.db", 2, "zcdp", neighbours=neighbours)
    return folder / "spec.toml"
