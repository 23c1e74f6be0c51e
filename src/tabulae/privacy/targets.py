"""From a target to the budget: the least loss that meets a margin of error.

The margin of a noisy count at a level is the least k for which P(|noise| <= k) reaches the level. That
probability falls as the noise grows, so the least budget is found by bisection; it is rounded up, and
the margin is checked, with a proven bound on the tail, at the budget returned. The largest budget
within an (epsilon, delta) is ``conversions.zcdp_budget``.
"""

from __future__ import annotations

from fractions import Fraction

from ..errors import InvalidArgument
from .conversions import round_digits
from .definitions import (
    ZCDP,
    Exact,
    PureDP,
    probability,
)
from .laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
)

_DIGITS = 12
_HALVINGS = 60


def budget_for_margin(margin: int, noise: str, level: Exact = "0.95") -> PureDP | ZCDP:
    """The least budget, rounded up at 12 digits, whose noise on one count has this margin of error.

    Args:
        margin: a non-negative integer; at least ``level`` of draws lie within it.
        noise: ``"laplace"`` for a pure budget, ``"gaussian"`` for a zero-concentrated one.
        level: strictly between 0 and 1.

    Raises:
        InvalidArgument: an argument outside its range.

    Privacy: noise of scale 1/epsilon on a count is epsilon-DP (Ghosh, Roughgarden and Sundararajan
    2009); noise of variance 1/(2 rho) is rho-zCDP (Canonne, Kamath and Steinke 2020, Theorem 4).

    >>> [round(float(budget_for_margin(m, "laplace").amount), 7) for m in (6, 11, 50)]
    [0.4569017, 0.259767, 0.0593127]
    >>> [round(float(budget_for_margin(m, "gaussian").amount), 9) for m in (6, 11, 50)]
    [0.04511941, 0.014488411, 0.000753059]
    """
    if isinstance(margin, bool) or not isinstance(margin, int) or margin < 0:
        raise InvalidArgument(f"margin is {margin!r}; it must be an integer, 0 or more")
    if noise not in ("laplace", "gaussian"):
        raise InvalidArgument(f'noise is {noise!r}; it must be "gaussian" or "laplace"')
    miss = 1 - probability(level, "level")
    amount = _least_amount(margin, noise, miss)
    return PureDP(amount) if noise == "laplace" else ZCDP(amount)


def _law(noise: str, amount: Fraction) -> NoiseLaw:
    return DiscreteLaplace(1 / amount) if noise == "laplace" else DiscreteGaussian(1 / (2 * amount))


def _least_amount(margin: int, noise: str, miss: Fraction) -> Fraction:
    def met(amount: Fraction) -> bool:
        return Fraction(_law(noise, amount).tail(margin)) <= miss

    high = Fraction(1, (margin + 1) ** (1 if noise == "laplace" else 2))
    while not met(high):
        high *= 2
    low = high
    while met(low):
        low /= 2
    for _ in range(_HALVINGS):
        middle = round_digits((low + high) / 2, _DIGITS + 4)
        low, high = (low, middle) if met(middle) else (middle, high)
    amount = round_digits(high, _DIGITS, up=True)
    assert met(amount), "the tail falls as the budget grows"
    return amount
