"""What a spec's tolerance asks of the plan: `auto` ends at a proven percent, or goes on to the optimum."""

from __future__ import annotations

from pathlib import Path

import pytest

import tabulae as tb
from tabulae.products.tables.plan import Plan, error_bound
from tabulae.spec import Spec

SPEC = """
[source]
path = "people.csv"
[attributes]
a = { range = [0, 5] }
b = { range = [0, 5] }
c = { range = [0, 5] }
[privacy]
definition = "zcdp"
budget = "1/2"
ledger = "ledger.db"
[method]
METHOD
[[table]]
name = "ab"
queries = { a = "prefix", b = "prefix" }
[[table]]
name = "bc"
queries = { b = "prefix", c = "prefix" }
[[table]]
name = "ac"
queries = { a = "prefix", c = "prefix" }
"""


def _plan(method: str) -> Plan:
    made = tb.plan(Spec.from_text(SPEC.replace("METHOD", method), Path.cwd()))
    assert isinstance(made, Plan)
    return made


def test_a_tolerance_goes_on_to_the_optimum() -> None:
    """216 cells: the residual planner errs 0.35 % more than the optimum, and is proven within 0.46 %."""
    first, finer = _plan(""), _plan("tolerance = 0.001")
    assert [first.strategy.method, finer.strategy.method] == ["residual", "opt0"]
    assert finer.rmse < first.rmse < 1.0047 * finer.rmse
    assert first.bound is not None
    assert finer.bound is not None
    assert first.bound <= finer.bound * (1 + 1e-9) <= finer.rmse * (1 + 1e-9)


@pytest.mark.parametrize("method", ["", "tolerance = 0.001"])
def test_the_bound_of_a_plan_is_that_of_its_certificate(method: str) -> None:
    """No other is searched for; the best known is no further off than the certificate says."""
    plan = _plan(method)
    assert plan.strategy.certificate is not None
    assert plan.bound == pytest.approx(plan.rmse / (1 + plan.strategy.certificate) ** 0.5, rel=1e-6)
    best = error_bound(plan.spec, plan.spec.workload)
    assert best is not None
    assert plan.bound <= best * (1 + 1e-5)
