"""The smallest budget of tables and of groups: enough, none smaller, and not below what is proven."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from tests.guild import write_guild
from tests.passages import replaced

import tabulae as tb
from tabulae.products.groups.plan import DetailedPlan, plan_detailed
from tabulae.products.smallest import Smallest
from tabulae.products.tables.plan import Plan, plan_tables
from tabulae.spec import Spec

TABLES = """
[source]
path = "people.csv"
[attributes]
sex = { categories = ["F", "M"] }
age = { range = [0, 19] }
[privacy]
definition = "zcdp"
budget = "BUDGET"
ledger = "ledger.db"
[[table]]
name = "sex"
attributes = ["sex"]
target = { SEX }
[[table]]
name = "ages"
queries = { age = "prefix" }
target = { AGES }
[[table]]
name = "both"
attributes = ["sex", "age"]
[method]
select = "opt0"
"""
AIMS = [
    pytest.param("rmse = 3", "rmse = 6", marks=pytest.mark.long),
    ("margin = 9", "margin = 15, confidence = 0.9"),
    ("rmse = 2", "margin = 40"),
]


def planned(budget: str, sex: str, ages: str, *changes: tuple[str, str]) -> tuple[Plan, Smallest]:
    """A plan of tables and what it says of its targets."""
    text = TABLES.replace("BUDGET", budget).replace("SEX }", f"{sex} }}").replace("AGES", ages)
    plan = plan_tables(Spec.from_text(replaced(text, *changes)))
    assert plan.smallest is not None
    return plan, plan.smallest


def step(amount: Fraction) -> Fraction:
    """One step of the fourth digit."""
    unit = Fraction(1)
    while amount / unit >= 10_000:
        unit *= 10
    while amount / unit < 1000:
        unit /= 10
    return unit


@pytest.mark.parametrize(("sex", "ages"), AIMS)
def test_the_smallest_budget_of_tables_is_enough_and_one_step_less_is_not(sex: str, ages: str) -> None:
    found, smallest = planned("targets", sex, ages)
    assert smallest.loss == found.spec.loss
    assert smallest.written is smallest.enough is None
    assert all(row.met for row in smallest.targets)
    amount = found.spec.loss.amount
    for budget, enough in ((amount, True), (amount - 2 * step(amount), False), (2 * amount, True)):
        plan, told = planned(str(budget), sex, ages)
        assert told.enough is enough
        assert told.written == plan.spec.loss == tb.ZCDP(budget)
        assert told.loss is not None
        assert smallest.loss is not None
        if budget > amount:  # another strategy, of less error in all
            assert amount <= told.loss.amount <= budget
        else:
            assert told.loss == smallest.loss
        assert [row.reached <= row.target * (1 + 1e-8) for row in told.targets] == [
            row.met for row in told.targets
        ]
    assert (smallest.lower is None) is ("rmse" not in sex)
    if smallest.lower is None:
        assert smallest.gap is None
        return
    assert smallest.lower.amount <= amount
    assert smallest.gap == pytest.approx(float(amount / smallest.lower.amount) - 1)


@pytest.mark.parametrize("method", ["identity", "hierarchical", "kron", "marginals"])
@pytest.mark.parametrize("definition", ["zcdp", pytest.param("approx", marks=pytest.mark.long)])
def test_no_strategy_needs_less_than_the_bound(method: str, definition: str) -> None:
    """Bounds come from one strategy's certificate, and hold for what any other needs."""
    changes = (('definition = "zcdp"', f'definition = "{definition}"'),)
    changes += (('budget = "1"', 'budget = "1"\ndelta = "1e-6"'),) if definition == "approx" else ()
    _, best = planned("1", "rmse = 3", "rmse = 6", *changes)
    other, told = planned("1", "rmse = 3", "rmse = 6", *changes, ('"opt0"', f'"{method}"'))
    assert best.lower is not None
    assert told.loss is not None
    assert best.lower.amount <= told.loss.amount
    assert other.spec.loss.definition == told.loss.definition == definition


def test_more_rows_of_a_unit_need_their_square(tmp_path: Path) -> None:
    _, one = planned("targets", "rmse = 3", "rmse = 6")
    rows = ('path = "people.csv"', 'path = "people.csv"\nunit_id = "id"\nrows_per_unit = 3')
    _, three = planned("targets", "rmse = 3", "rmse = 6", rows)
    assert one.lower is not None
    assert three.lower is not None
    assert one.loss is not None
    assert three.loss is not None
    assert float(three.loss.amount / one.loss.amount) == pytest.approx(9, rel=2e-3)
    assert float(three.lower.amount / one.lower.amount) == pytest.approx(9, rel=2e-3)
    assert three.lower.amount <= three.loss.amount


def test_a_margin_of_few_counts_has_no_bound() -> None:
    """Half-widths of whole numbers may be far below the normal ones: a bound by these is above what is needed."""
    text = TABLES.replace("BUDGET", "targets").replace("SEX }", "margin = 1 }")
    text = text[: text.index('[[table]]\nname = "ages"')].replace("age = { range = [0, 19] }\n", "")
    smallest = plan_tables(Spec.from_text(text + '[method]\nselect = "identity"\n')).smallest
    assert smallest is not None
    assert smallest.loss == tb.ZCDP("0.7489")
    assert smallest.lower is smallest.gap is None
    assert "margins give none" in smallest.note


def test_margins_under_laplace_noise_have_no_bound() -> None:
    pure = (('"zcdp"', '"pure"'), ('"opt0"', '"identity"'))
    known = planned("1", "rmse = 3", "rmse = 6", *pure)[1]
    assert known.lower is not None
    assert known.loss is not None
    assert known.lower.amount <= known.loss.amount
    _, told = planned("1", "margin = 9", "margin = 15", *pure)
    assert told.lower is told.gap is None
    assert "No bound" in told.note


def test_a_certificate_about_all_tables_gives_a_near_bound() -> None:
    text = TABLES.replace("BUDGET", "targets").replace("SEX }", "rmse = 1 }").replace("AGES", "rmse = 2")
    text = text.replace('[[table]]\nname = "both"\nattributes = ["sex", "age"]\n', "")
    plan = plan_tables(Spec.from_text(text))
    assert plan.strategy.certificate is not None
    assert plan.smallest is not None
    assert plan.smallest.gap == pytest.approx(plan.strategy.certificate, abs=2e-3)


def test_exact_tables_need_nothing() -> None:
    exact = ("[[table]]", '[[invariant]]\nattributes = ["sex"]\nreason = "r"\n[[table]]')
    text = TABLES.replace("BUDGET", "1").replace("SEX }", "rmse = 1e-3 }").replace("target = { AGES }", "")
    plan = plan_tables(Spec.from_text(text.replace(*exact, 1)))
    assert plan.smallest is None
    both = text.replace(*exact, 1).replace('"prefix" }', '"prefix" }\ntarget = { rmse = 6 }')
    told = plan_tables(Spec.from_text(both)).smallest
    assert told is not None
    assert told.enough
    assert [row.table for row in told.targets] == ["sex", "ages"]


def test_a_plan_without_targets_has_no_smallest_budget() -> None:
    text = TABLES.replace("BUDGET", "1").replace("target = { SEX }", "").replace("target = { AGES }", "")
    assert plan_tables(Spec.from_text(text)).smallest is None


GROUPS = {"nation": 6, "shire": 9, "town": None}


def of_groups(folder: Path, budget: str, *budgets: str | None) -> DetailedPlan:
    """The guilds, with targets for two of three levels."""
    text = write_guild(folder).read_text().replace('budget = "3"', f'budget = "{budget}"')
    for (region, margin), old, new in zip(GROUPS.items(), ("1", "1/2", "1"), budgets, strict=True):
        at = text.index(f'region = "{region}"')
        given = f'budget = "{new}"\n' if new else ""
        aimed = f"target = {{ margin = {margin} }}\n" if margin else ""
        text = text[:at] + text[at:].replace(f'budget = "{old}"\n', given + aimed, 1)
    (folder / "spec.toml").write_text(text)
    return plan_detailed(folder / "spec.toml")


def test_levels_of_groups_need_what_their_targets_ask(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    found = of_groups(tmp_path / "a", "targets", None, None, "1")
    assert found.smallest is not None
    assert found.smallest.loss == found.loss
    assert found.smallest.enough is None
    least = [level.smallest for level in found.smallest.levels]
    assert [level.level for level in found.smallest.levels] == [row.name for row in found.adaptive.levels]
    assert least[2] is None
    exact = [None if loss is None else str(loss.amount) for loss in least]
    assert [str(budget.amount) for budget in found.budgets] == [*exact[:2], "1"]
    enough = of_groups(tmp_path / "b", "9", exact[0], exact[1], "1").smallest
    assert enough is not None
    assert enough.enough
    assert enough.loss == found.loss
    below = str(Fraction(str(exact[1])) * Fraction(9_999_999, 10_000_000))
    missed = of_groups(tmp_path / "c", "9", exact[0], below, "1").smallest
    assert missed is not None
    assert [row.met for row in missed.targets] == [True, False]
    assert missed.enough is False
    assert missed.loss == found.loss


def test_groups_without_targets_have_no_smallest_budget(tmp_path: Path) -> None:
    assert plan_detailed(write_guild(tmp_path)).smallest is None


def test_the_formula_of_the_paper_is_not_judged(tmp_path: Path) -> None:
    text = write_guild(tmp_path).read_text()
    aimed = text.replace('budget = "1"\n', 'budget = "1"\ntarget = { margin = 6, formula = "paper" }\n', 1)
    (tmp_path / "spec.toml").write_text(aimed)
    smallest = plan_detailed(tmp_path / "spec.toml").smallest
    assert smallest is not None
    assert smallest.targets[0].met is smallest.enough is None


def test_documents_are_plain_values() -> None:
    _, smallest = planned("1", "rmse = 3", "margin = 15")
    document = smallest.document()
    assert document["enough"] is True
    assert Fraction(document["budget"]) == smallest.loss.amount  # type: ignore[union-attr]
    assert document["targets"][1] == {**vars(smallest.targets[1])}
    assert document["levels"] == []
    assert document["best_shares"] is None
