"""The published accounting tables of SafeTab, from its formulas and from the right ones."""

import math
from fractions import Fraction

import pytest

from tabulae.privacy import ZCDP, PureDP
from tabulae.privacy.loss.composition import RDP, generalised_parallel, sequential

MARGINS = (6, 6, 11, 11, 50, 50, 50)
STABILITY, FIRST, DELTA = 9, Fraction(1, 10), Fraction(1, 10**10)
EPSILONS = [STABILITY * Fraction(math.log(20)) / (m + 1) / (1 - FIRST) for m in MARGINS]
RHOS = [STABILITY * Fraction(192, 100) / m**2 / (1 - FIRST) for m in MARGINS]


@pytest.mark.parametrize(
    ("level", "epsilon", "rho"),
    [
        (0, (3.8517, 4.2796), (0.48, 0.53333)),
        (2, (2.2468, 2.4964), (0.14281, 0.15868)),
        (4, (0.52866, 0.5874), (0.00691, 0.00768)),
    ],
)
def test_tables_1_and_4(level, epsilon, rho):
    """Step two and total; printed 3.84/4.27, 2.24/2.49, .531/.59 and .481/.534, .143/.159, .007/.008."""
    for amounts, (step, total) in ((EPSILONS, epsilon), (RHOS, rho)):
        assert float(amounts[level] * (1 - FIRST)) == pytest.approx(step, rel=1e-3)
        assert float(amounts[level]) == pytest.approx(total, rel=1e-3)


def curve(amount, stages):
    parts = [RDP.of(PureDP(amount * stage / STABILITY)) for stage in stages]
    return sequential(parts).loss


def whole(*kinds):
    levels = [
        generalised_parallel([curve(e, s) for s in kinds] * STABILITY, STABILITY).loss for e in EPSILONS
    ]
    return sequential(levels).loss


def test_table_2():
    """Printed 15.3, 13.2, 12.8, 12.2."""
    assert float(sequential([PureDP(e) for e in EPSILONS]).loss.amount) == pytest.approx(15.3143, abs=5e-5)
    rho = sequential([ZCDP(r) for r in RHOS]).loss
    assert float(rho.rho) == pytest.approx(1.40706, abs=5e-6)
    assert rho.epsilon(DELTA) == pytest.approx(12.1629, abs=5e-5)
    analytical = float(rho.rho) + 2 * math.sqrt(float(rho.rho) * math.log(1e10))
    assert analytical == pytest.approx(12.7911, abs=5e-5)


def test_the_renyi_cell_of_table_2_with_the_right_lemma():
    """14.194: totals only are the worse kind; 12.928 if every group has two stages."""
    once, twice = (Fraction(1),), (FIRST, 1 - FIRST)
    assert whole(once, twice).epsilon(DELTA) == pytest.approx(14.194, abs=5e-4)
    assert whole(once).epsilon(DELTA) == pytest.approx(14.194, abs=5e-4)
    assert whole(twice).epsilon(DELTA) == pytest.approx(12.928, abs=5e-4)


def test_the_renyi_cell_as_printed_is_not_reproducible():
    """The printed lemma over the printed grid of orders gives 13.574, not 13.2; and it is no bound."""

    def printed(order, amount):
        inside = 2 * order * math.exp((order - 1) * amount) + 2 * (order - 1) * math.exp(-order * amount)
        return math.log(math.tanh(amount / 2) * inside / (amount * (2 * order - 1))) / (order - 1)

    def epsilon(order):
        total = 0.0
        for amount in EPSILONS:
            each = float(amount) / STABILITY
            total += STABILITY * max(
                printed(order, each), printed(order, 0.1 * each) + printed(order, 0.9 * each)
            )
        return total + (math.log(1e10) - math.log(order)) / (order - 1) + math.log1p(-1 / order)

    assert min(epsilon(1 + i / 100) for i in range(1, 901)) == pytest.approx(13.574, abs=5e-4)


def test_the_production_budgets():
    """2020, persons: rho = (542/339)^2 gives 17.1436 at 1e-10 (published 17.14)."""
    assert ZCDP(Fraction(542, 339) ** 2) == ZCDP("293764/114921")
    assert ZCDP("293764/114921").epsilon("1e-10") == pytest.approx(17.1436, abs=5e-5)
