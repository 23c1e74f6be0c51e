"""Budgets of levels from margins: met, least, and those of the published tables."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adaptive.plans import level, touching
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, PureDP
from tabulae.products.groups.plan import level_budget

PRINTED = [
    (6, (3.8517, 4.2796), (0.48, 0.53333)),
    (11, (2.2468, 2.4964), (0.14281, 0.15868)),
    (50, (0.52866, 0.5874), (0.00691, 0.00768)),
]


@pytest.mark.parametrize(("margin", "epsilon", "rho"), PRINTED)
def test_tables_1_and_4(margin, epsilon, rho):
    """Step two and total, to the last digit: stability 9, a tenth for stage one, 95 %."""
    for definition, (step, total), digits in (("pure", epsilon, 4), ("zcdp", rho, 5)):
        found = level_budget(margin, "0.95", "1/10", 9, definition, "paper").amount
        if definition == "pure" and margin == 50:
            digits = 5
        assert round(float(found), digits) == total
        assert round(float(found * 9 / 10), digits) == step


@pytest.mark.parametrize(
    ("margin", "epsilon", "rho"),
    [(6, 0.456902, 0.0451194), (11, 0.259767, 0.0144884), (50, 0.0593127, 0.000753059)],
)
def test_exact_budgets(margin, epsilon, rho):
    """Nine counts at nine tenths: ten times what one count needs."""
    for definition, base in (("pure", epsilon), ("zcdp", rho)):
        found = level_budget(margin, "0.95", "1/10", 9, definition)
        assert float(found.amount) == pytest.approx(10 * base, rel=2e-6)


@given(
    st.integers(0, 80),
    st.sampled_from(["0.5", "0.9", "0.95", "0.999"]),
    st.sampled_from(["1/10", "1/3", "0.5"]),
    st.integers(1, 12),
    st.sampled_from(["pure", "zcdp"]),
    st.sampled_from(["add-remove", "replace"]),
    st.integers(1, 3),
)
def test_the_level_meets_the_margin_and_a_smaller_budget_does_not(
    margin, confidence, stage_one, stability, definition, neighbours, rows
):
    budget = level_budget(
        margin, confidence, stage_one, stability, definition, neighbours=neighbours, rows_per_unit=rows
    )
    assert isinstance(budget, PureDP if definition == "pure" else ZCDP)
    assert Fraction(f"{float(budget.amount):.8g}") == budget.amount, "it can be written down"
    miss = 1 - Fraction(confidence)

    def tail(amount):
        found = level(
            groups=touching(stability),
            budget=type(budget)(amount),
            stage_one=Fraction(stage_one),
            neighbours=neighbours,
            rows_per_unit=rows,
        )
        return Fraction(found.second.tail(margin))

    assert tail(budget.amount) <= miss
    assert tail(budget.amount * (1 - Fraction(3, 10**7))) > miss


def test_other_confidences_by_the_formulas_of_the_paper():
    assert float(level_budget(9, "0.9", "1/2", 1, "pure", "paper").amount) == pytest.approx(
        0.2 * 2.302585, rel=1e-6
    )
    assert float(level_budget(10, "0.9", "1/2", 1, "zcdp", "paper").amount) == pytest.approx(
        0.01 * 2.705543, rel=1e-6
    )


@each(
    "changes",
    [
        {"margin": -1},
        {"margin": 1.5},
        {"margin": 0, "definition": "zcdp", "formula": "paper"},
        {"margin": -1, "formula": "paper"},
        {"confidence": 1},
        {"stage_one": 0},
        {"stability": 0},
        {"rows_per_unit": 0},
        {"definition": "renyi"},
        {"formula": "printed"},
        {"neighbours": "replace-within-invariants"},
    ],
)
def test_bad_arguments_are_refused(changes):
    arguments = {"margin": 6, "confidence": "0.95", "stage_one": "1/10", "stability": 9, "definition": "pure"}
    with pytest.raises(InvalidArgument):
        level_budget(**(arguments | changes))
