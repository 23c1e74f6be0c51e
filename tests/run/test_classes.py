"""A release whose strategy is made of contrasts over classes: written, read, verified, queried, reported, audited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tabulae as tb
from tabulae.errors import NotEstimable
from tabulae.linalg import Contrasts, Stack

SPEC = """
title = "Districts"

[source]
path = "people.csv"
unit = "person"

[attributes]
sex = { column = "SEX", categories = ["F", "M"] }
age = { column = "AGE", range = [0, 19] }
district = { column = "DISTRICT", range = [1, 30] }

[recodes]
young = { of = "age", edges = [5, 15] }

[privacy]
definition = "zcdp"
budget = "1/2"
delta = "1e-10"
ledger = "ledger.db"

[method]
select = "opt0"

[[table]]
name = "sex_by_young"
attributes = ["sex", "young", "district"]

[[table]]
name = "age"
attributes = ["age"]
"""


@pytest.fixture
def released(tmp_path: Path) -> tb.Release:
    rng = np.random.default_rng(8)
    rows = [f"{'FM'[rng.integers(2)]},{rng.integers(20)},{rng.integers(1, 31)}" for _ in range(500)]
    (tmp_path / "people.csv").write_text("SEX,AGE,DISTRICT\n" + "\n".join(rows) + "\n")
    (tmp_path / "spec.toml").write_text(SPEC)
    tb.Ledger.create(tmp_path / "ledger.db", 1, "zcdp")
    return tb.run(tmp_path / "spec.toml", out=tmp_path / "release")


def test_a_release_by_classes(released: tb.Release, tmp_path: Path):
    query = released.measurements[0].strategy.blocks[0].query
    assert isinstance(query, Stack)
    assert all(isinstance(op, Contrasts) for op in query.ops)
    again = tb.Release.read(tmp_path / "release")
    assert again.verify() == []
    assert again.measurements[0].strategy.blocks == released.measurements[0].strategy.blocks
    women = again.query("SELECT COUNT(*) FROM people WHERE sex = 'F' AND district = 7")
    assert women["estimate"].to_numpy().shape == (1,)
    with pytest.raises(NotEstimable):
        again.query("SELECT COUNT(*) FROM people WHERE sex = 'F' AND age = 7")
    page = (tmp_path / "release" / "report.html").read_text()
    assert "What is asked together" in page
    assert page.count(">compared</span>") == sum(
        within is not None for op in query.ops for within in op.within
    )
