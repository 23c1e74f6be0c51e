"""Budgets from margins of error: sound, least, and those of the published tables."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.errors import InvalidArgument
from tabulae.privacy import ZCDP, DiscreteGaussian, DiscreteLaplace, PureDP
from tabulae.privacy.noise.laws import budget_for_margin

SLACK = 1 - Fraction(1, 10**9)


def miss(kind, amount, margin, oracle):
    if kind == "laplace":
        return oracle.tail("laplace", 1 / amount, margin)
    return oracle.tail("gaussian", 1 / (2 * amount), margin)


@given(
    st.integers(0, 60),
    st.sampled_from(["0.5", "0.9", "0.95", "0.9999"]),
    st.sampled_from(["laplace", "gaussian"]),
)
def test_the_budget_is_the_least_that_meets_the_margin(margin, level, kind):
    budget, wanted = budget_for_margin(margin, kind, level), 1 - Fraction(level)

    def tail(amount):
        law = DiscreteLaplace(1 / amount) if kind == "laplace" else DiscreteGaussian(1 / (2 * amount))
        return law.tail(margin)

    assert tail(budget.amount) <= float(wanted)
    assert tail(budget.amount * SLACK) > float(wanted)


@pytest.mark.parametrize(
    ("margin", "epsilon", "rho"),
    [(6, ".456902", ".0451194"), (11, ".259767", ".0144884"), (50, ".0593127", ".000753059")],
)
def test_exact_base_budgets(margin, epsilon, rho, oracle):
    """What Corollaries 2 and 4 of SafeTab miss or overpay."""
    pure, concentrated = budget_for_margin(margin, "laplace"), budget_for_margin(margin, "gaussian")
    assert float(pure.amount) == pytest.approx(float(epsilon), rel=2e-6)
    assert float(concentrated.amount) == pytest.approx(float(rho), rel=2e-6)
    assert miss("laplace", pure.amount, margin, oracle) <= Fraction(1, 20)
    assert miss("gaussian", concentrated.amount, margin, oracle) <= Fraction(1, 20)
    assert isinstance(pure, PureDP)
    assert isinstance(concentrated, ZCDP)


@pytest.mark.parametrize(
    ("margin", "pure", "concentrated"), [(6, 6.05, 3.30), (11, 5.62, 4.02), (50, 5.15, 4.78)]
)
def test_the_printed_corollaries_miss_and_overpay(margin, pure, concentrated, oracle):
    """In percent: Corollary 2 misses 95 % although it promises it; Corollary 4 is conservative."""
    mp = oracle.mp
    epsilon = Fraction(mp.nstr(mp.ln(20) / (margin + 1), 30))
    rho = Fraction(192, 100) / margin**2
    assert 100 * float(miss("laplace", epsilon, margin, oracle)) == pytest.approx(pure, abs=5e-3)
    assert 100 * float(miss("gaussian", rho, margin, oracle)) == pytest.approx(concentrated, abs=5e-3)


@pytest.mark.parametrize("margin", [-1, 1.5, "6", None, True])
def test_a_margin_is_a_non_negative_integer(margin):
    with pytest.raises(InvalidArgument):
        budget_for_margin(margin, "laplace")


def test_other_refusals():
    for level in (0, 1, "1.5", float("nan")):
        with pytest.raises(InvalidArgument):
            budget_for_margin(6, "laplace", level)
    with pytest.raises(InvalidArgument):
        budget_for_margin(6, "uniform")
