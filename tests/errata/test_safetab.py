"""Formulas of SafeTab's appendices that do not hold as printed (docs/errata.md)."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

STABILITY, FIRST = 9, Fraction(1, 10)


def geometric_miss(epsilon: float, margin: int) -> float:
    """P(|Y| > margin) for two-sided geometric noise with ratio e^-epsilon."""
    return 2 * math.exp(-epsilon * margin) / (1 + math.exp(epsilon))


def gaussian_miss(sigma: float, margin: int) -> float:
    """P(|Y| > margin) for discrete Gaussian noise."""
    weights = {k: math.exp(-(k**2) / (2 * sigma**2)) for k in range(-60, 61)}
    return sum(w for k, w in weights.items() if abs(k) > margin) / sum(weights.values())


def test_the_tail_is_that_of_the_law() -> None:
    epsilon = 0.3
    mass = [math.exp(-epsilon * abs(k)) for k in range(-400, 401)]
    tail = sum(m for k, m in zip(range(-400, 401), mass, strict=True) if abs(k) > 5) / sum(mass)
    assert geometric_miss(epsilon, 5) == pytest.approx(tail, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.5, 1.0])
def test_equations_35_and_36_need_a_ceiling(epsilon: float) -> None:
    """The margin rounded down is missed too often, rounded up it is kept."""
    margin = math.log(40 / (1 + math.exp(epsilon))) / epsilon
    assert geometric_miss(epsilon, math.floor(margin)) > 0.05
    assert geometric_miss(epsilon, math.ceil(margin)) <= 0.05


def test_margins_of_the_discrete_gaussian_need_a_ceiling() -> None:
    """Appendix E.2: within floor(1.96 sigma) "with probability at least 95%" misses 11 % at sigma = 1."""
    assert gaussian_miss(1.0, math.floor(1.96)) > 0.11
    assert gaussian_miss(1.0, math.ceil(1.96)) <= 0.05


@pytest.mark.parametrize(("margin", "step", "total"), [(6, 0.481, 0.534), (11, 0.143, 0.159)])
def test_appendix_f_1_divides_by_the_share_of_the_second_stage(
    margin: int, step: float, total: float
) -> None:
    """rho = rho_base / gamma makes ten times the budget of Table 4; rho_base / (1 - gamma) makes Table 4."""
    base = STABILITY * Fraction(192, 100) / margin**2
    assert float(base) == pytest.approx(step, rel=5e-3)
    assert float(base / (1 - FIRST)) == pytest.approx(total, rel=5e-3)
    assert float(base / FIRST) > 8 * total


def test_definition_2_must_be_over_sets_of_outputs() -> None:
    """Over single outputs it holds for a mechanism whose outputs tell two data sets apart with certainty."""
    count, delta = 1000, 1e-3
    here, there = range(count), range(count, 2 * count)
    for output in (*here, *there):
        p, q = (output in here) / count, (output in there) / count
        assert p <= math.exp(0) * q + delta
    assert sum(1 / count for _ in here) == pytest.approx(1), (
        "the set of outputs that the other data set never has"
    )


@pytest.mark.parametrize("order", [0.25, 0.5, 1.0])
def test_orders_up_to_1_have_no_conversion(order: float) -> None:
    """Equation 40 takes log(1 - 1/alpha): the infimum is over (1, inf), not over (0, inf)."""
    with pytest.raises(ValueError, match=r"domain|positive"):
        math.log(1 - 1 / order)
