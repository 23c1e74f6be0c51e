"""How many noisy answers a plan may ask for: one product of matrices is solved in place, and may ask for more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tabulae as tb
from tabulae.errors import Unsupported
from tabulae.linalg import Kron, Prefix
from tabulae.products.tables.plan import plan_tables
from tabulae.products.tables.product import rehearse

SPEC = """
title = "Cube"
source = {{ path = "people.parquet" }}
attributes = {{ a = {{ range = [1, {n}] }}, b = {{ range = [1, {n}] }}, c = {{ range = [1, {n}] }} }}
privacy = {{ definition = "zcdp", budget = "1/2", neighbours = "add-remove", ledger = "ledger.db" }}
table = [{{ name = "by_a", queries = {{ a = "prefix" }} }}]
method = {{ select = "identity", estimate = "{estimate}" }}
"""


def spec(folder: Path, n: int, estimate: str = "least-squares") -> Path:
    path = folder / "spec.toml"
    path.write_text(SPEC.format(n=n, estimate=estimate))
    return path


def test_one_product_may_ask_for_a_thousand_million_answers(tmp_path: Path) -> None:
    assert plan_tables(spec(tmp_path, 1000)).strategy.rows == 10**9


def test_more_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"asks for 1,728,000,000 noisy answers.*at most 1,250,000,000"):
        plan_tables(spec(tmp_path, 1200))


def test_a_method_that_lists_the_cells_several_times_keeps_the_lower_limit(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"asks for 64,000,000 noisy answers.*at most 50,000,000"):
        plan_tables(spec(tmp_path, 400, "non-negative"))


def test_rehearsed_values_contradict_each_other_at_every_length(tmp_path: Path) -> None:
    """The pattern 1, 0, -1, 0, 0: prefixes of what is estimated from it rise and fall again."""
    made = rehearse(plan_tables(spec(tmp_path, 4)))
    values = made.measurement.values
    assert values[:7].tolist() == [1, 0, -1, 0, 0, 1, 0]
    table = made.answer(plan_tables(tmp_path / "spec.toml").spec.workload)
    expected = Kron([Prefix(4), tb.Total(4), tb.Total(4)]) @ values
    assert np.allclose(table["by_a"], expected)
