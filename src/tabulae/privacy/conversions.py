"""From zero-concentrated privacy to (epsilon, delta), and back.

A mechanism that is rho-zCDP is (epsilon, delta)-DP for every order a > 1 and

    epsilon = rho a + ln(1 - 1/a) + ln(1 / (a delta)) / (a - 1)

(Canonne, Kamath and Steinke 2020, Proposition 12 with the Renyi divergence bounded by rho a). The
derivative in a is rho - ln(1 / (a delta)) / (a - 1)^2, which changes sign once, so the infimum over
all real orders is found by bisection rather than on a grid. Any order gives a valid bound: only the
last evaluation decides soundness, and it is made with 40 digits and rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ..errors import InvalidArgument
from .definitions import (
    Exact,
    positive,
    probability,
)

_DIGITS = 40
_HALVINGS = 400


@lru_cache(maxsize=1)
def reals() -> Any:
    """A private mpmath context of 40 digits: the shared one may be changed by anybody.

    Privacy: none is spent.
    """
    from mpmath.ctx_mp import MPContext

    context = MPContext()
    context.dps = _DIGITS
    return context


def to_real(value: Fraction) -> Any:
    """A fraction to 40 digits.

    Privacy: none is spent.
    """
    mp = reals()
    return mp.mpf(value.numerator) / value.denominator


def upwards(value: Any) -> float:
    """A float at least ``value``, for a value computed to 40 digits, of which 8 may be wrong.

    Privacy: statements about a loss are rounded towards more loss.
    """
    raised = value + abs(value) * reals().mpf(10) ** (8 - _DIGITS)
    nearest = float(raised)
    return nearest if nearest >= raised else math.nextafter(nearest, math.inf)


def _root(increasing: Callable[[Any], Any], low: Any, high: Any) -> Any:
    """The point of (low, high) where an increasing function changes sign, found on a log scale from low."""
    mp = reals()
    left, right = mp.ln(mp.mpf(10) ** -60), mp.ln(high - low)
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        if right - left < mp.mpf(10) ** -25:
            break
        if increasing(low + mp.exp(middle)) < 0:
            left = middle
        else:
            right = middle
    return low + mp.exp((left + right) / 2)


def zcdp_epsilon(rho: Exact, delta: Exact) -> float:
    """The infimum over all orders of the epsilon that rho-zCDP implies at delta, rounded up.

    Args:
        rho: positive.
        delta: strictly between 0 and 1.

    Raises:
        InvalidArgument: a parameter outside its range.

    Privacy: Canonne, Kamath and Steinke (2020), Proposition 12, minimised over a in (1, inf).

    Reference: https://arxiv.org/abs/2004.00010

    >>> round(zcdp_epsilon("542/339", "1e-10"), 4) < round(zcdp_epsilon("2.5562", "1e-10"), 4)
    True
    """
    r, d = to_real(positive(rho, "rho")), to_real(probability(delta, "delta"))
    mp = reals()
    order = _root(lambda a: r * (a - 1) ** 2 + mp.ln(a * d), mp.mpf(1), 1 / d)
    bound = r * order + mp.ln(1 - 1 / order) - mp.ln(order * d) / (order - 1)
    return upwards(bound) if bound > 0 else 0.0


def zcdp_delta(rho: Exact, epsilon: Exact) -> float:
    """The infimum over all orders of the delta that rho-zCDP implies at epsilon, rounded up.

    Args:
        rho: positive.
        epsilon: positive.

    Raises:
        InvalidArgument: a parameter outside its range.

    Privacy: Canonne, Kamath and Steinke (2020), Proposition 12, minimised over a in (1, inf).

    >>> 0.99e-10 < zcdp_delta("2.5562", "17.1436") < 1.01e-10
    True
    """
    r, e = to_real(positive(rho, "rho")), to_real(positive(epsilon, "epsilon"))
    mp = reals()
    highest = 2 + (e + 60) / r
    order = _root(lambda a: (2 * a - 1) * r - e + mp.ln(1 - 1 / a), mp.mpf(1), highest)
    exponent = (order - 1) * (order * r - e) - mp.ln(order - 1) + order * mp.ln(1 - 1 / order)
    return min(1.0, upwards(mp.exp(exponent)))


def zcdp_budget(epsilon: Exact, delta: Exact) -> Fraction:
    """The largest rho, to 12 digits and rounded down, whose zCDP implies (epsilon, delta).

    Args:
        epsilon: positive.
        delta: strictly between 0 and 1.

    Raises:
        InvalidArgument: a parameter outside its range.

    Privacy: the inverse of ``zcdp_epsilon``; the rho returned is checked against it, so it is sound.

    >>> zcdp_budget(1, "1e-6") < zcdp_budget(1, "1e-5")
    True
    """
    target, small = positive(epsilon, "epsilon"), probability(delta, "delta")
    low, high = Fraction(0), target * 2 + 1
    while zcdp_epsilon(high, small) <= target:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        middle = round_digits(middle, 15)
        if middle in (low, high) or (low and (high - low) * 10**13 < low):
            break
        low, high = (middle, high) if zcdp_epsilon(middle, small) <= target else (low, middle)
    if low == 0:
        raise InvalidArgument(
            f"no rho implies epsilon {float(target):.3g} at delta {float(small):.3g}; allow a larger delta"
        )
    rounded = round_digits(low, 12)
    while zcdp_epsilon(rounded, small) > target:
        rounded = round_digits(rounded * (1 - Fraction(1, 10**12)), 12)
    return rounded


def rounded_up(value: float, digits: int = 4) -> float:
    """A bound as it is told: not below what was proven.

    Privacy: none is spent; a bound stays one when it is made larger.

    >>> rounded_up(9.50343), rounded_up(24.4), rounded_up(0.0)
    (9.504, 24.4, 0.0)
    """
    if not 0 < value < math.inf:
        return value
    return float(round_digits(Fraction(repr(float(value))), digits, up=True))


def round_digits(value: Fraction, digits: int, *, up: bool = False) -> Fraction:
    """A positive number rounded down (or up) to a decimal of so many significant digits.

    Privacy: none is spent; the direction is chosen by the caller towards more noise or less budget.

    >>> round_digits(Fraction(2, 3), 3), round_digits(Fraction(2, 3), 3, up=True)
    (Fraction(333, 500), Fraction(667, 1000))
    """
    exponent = len(str(value.numerator)) - len(str(value.denominator)) - digits
    step = Fraction(10) ** exponent
    while value / step >= 10**digits:
        step *= 10
    count = value / step
    return step * (-(-count.numerator // count.denominator) if up else count.numerator // count.denominator)
