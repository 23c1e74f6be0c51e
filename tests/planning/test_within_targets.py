"""With a budget, targets are limits: met, and the rest errs least; met already, they change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.passages import replaced

import tabulae as tb
from tabulae.products.tables.plan import Plan
from tabulae.spec import Spec

SPEC = """
[source]
path = "people.csv"
[attributes]
age = { range = [0, 9] }
sex = { categories = ["F", "M"] }
race = { categories = ["a", "b", "c", "d", "e"] }
[privacy]
definition = "zcdp"
budget = "1/8"
neighbours = "add-remove"
ledger = "ledger.db"
[method]
select = "kron"
[[table]]
name = "races"
attributes = ["sex", "race"]
RACES
[[table]]
name = "ages"
attributes = ["age", "sex"]
AGES
"""


def _plan(races: str = "", ages: str = "", *changes: tuple[str, str]) -> Plan:
    text = SPEC.replace("RACES", races).replace("AGES", ages)
    made = tb.plan(Spec.from_text(replaced(text, *changes), Path.cwd()))
    assert isinstance(made, Plan)
    return made


def _errors(plan: Plan) -> dict[str, float]:
    return {row.table: row.rmse for row in plan.table_errors}


@pytest.mark.parametrize("target", ["{ margin = 100 }", "{ rmse = 4.7 }"])
def test_what_is_met_changes_nothing(target: str) -> None:
    plain, aimed = _plan(), _plan(f"target = {target}")
    assert _errors(aimed) == _errors(plain)
    assert aimed.strategy.method == plain.strategy.method
    assert aimed.strategy.certificate == plain.strategy.certificate
    assert aimed.aim == "total"


@pytest.mark.parametrize(
    ("definition", "kind", "share"),
    [
        ("zcdp", "rmse", 0.7),
        pytest.param("zcdp", "margin", 0.8, marks=pytest.mark.long),
        pytest.param("pure", "rmse", 0.97, marks=pytest.mark.long),
        pytest.param("zcdp", "rmse", 0.97, marks=pytest.mark.long),
        pytest.param("pure", "rmse", 0.7, marks=pytest.mark.long),
        ("pure", "margin", 0.8),
    ],
)
def test_targets_are_met_and_the_rest_errs_least(definition: str, kind: str, share: float) -> None:
    """Between the plan without targets and the one that serves the targets alone, the one that just meets them."""
    change = ('definition = "zcdp"', f'definition = "{definition}"')
    plain = _plan("", "", change)
    now = next(getattr(row, kind) for row in plain.table_errors if row.table == "races")
    allowed = round(now * share, 3)
    aimed = _plan(f"target = {{ {kind} = {allowed} }}", "", change)
    row = next(row for row in aimed.table_errors if row.table == "races")
    assert row.met
    assert aimed.aim == "total"
    if definition == "zcdp":  # else the best strategies for nearby weights may lie apart
        assert row.rmse >= 0.97 * now * share or kind == "margin"
    alone = _plan(f"target = {{ {kind} = {allowed} }}", "", change, ('budget = "1/8"', 'budget = "targets"'))
    nearest = _errors(Plan(aimed.spec, alone.strategy))
    assert _errors(plain)["ages"] <= _errors(aimed)["ages"] * (1 + 1e-9)
    assert _errors(aimed)["ages"] <= nearest["ages"] * (1 + 1e-9)


def test_a_strategy_for_the_smallest_budget_keeps_no_certificate_of_another_aim() -> None:
    """Where no weights meet the targets but those of the smallest budget do, what is proven is not of the total."""
    smallest = _plan(
        "target = { rmse = 3 }", "target = { rmse = 3 }", ('budget = "1/8"', 'budget = "targets"')
    )
    budget = f'budget = "{smallest.spec.loss.amount}"'
    plan = _plan("target = { rmse = 3 }", "target = { rmse = 3 }", ('budget = "1/8"', budget))
    assert all(row.met for row in plan.table_errors)
    assert plan.aim == "total"
    assert plan.strategy.certificate is None


def test_two_targets_of_which_one_binds() -> None:
    plan = _plan("target = { rmse = 3 }", "target = { rmse = 50 }")
    found = {row.table: row for row in plan.table_errors}
    assert found["races"].met
    assert found["ages"].met
    assert found["races"].rmse >= 2.97
    assert _errors(plan)["ages"] == pytest.approx(_errors(_plan("target = { rmse = 3 }"))["ages"], rel=0.02)


def test_what_cannot_be_met_is_missed_by_as_little_as_can_be() -> None:
    plan = _plan("target = { rmse = 1 }", "target = { rmse = 1 }")
    ratios = [row.rmse / 1 for row in plan.table_errors]
    assert not any(row.met for row in plan.table_errors)
    assert ratios[0] == pytest.approx(ratios[1], rel=0.01)
    assert plan.aim == "targets"
    assert plan.smallest is not None
    assert plan.smallest.enough is False
    assert [row.reached for row in plan.smallest.targets] == [row.rmse for row in plan.table_errors]
