"""The analytic Gaussian mechanism: the least variance that gives (epsilon, delta).

Adding normal noise of standard deviation s to a query of L2 sensitivity 1 is (epsilon, delta)-DP if
and only if, with a = 1/(2s) - epsilon s and b = 1/(2s) + epsilon s,

    Phi(a) - e^epsilon Phi(-b) <= delta

(Balle and Wang 2018, Theorem 8; HDMM, Proposition 2). The variance is found with ordinary
multiprecision arithmetic, rounded up, and then proven by interval arithmetic.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from .conversions import round_digits
from .definitions import (
    Exact,
    positive,
    probability,
)

_DIGITS = 60
_RESULT_DIGITS = 16
_NEAR = 2  # below: power series; above: continued fraction
_MOST_TERMS = 4000


def analytic_gaussian_variance(epsilon: Exact, delta: Exact) -> Fraction:
    """The least variance, rounded up at 16 digits, of Gaussian noise at L2 sensitivity 1.

    Args:
        epsilon: positive.
        delta: strictly between 0 and 1.

    Raises:
        InvalidArgument: a parameter outside its range.

    Privacy: Balle and Wang (2018), Theorem 8; the inequality is proven for the returned variance by
    interval arithmetic.

    Reference: https://arxiv.org/abs/1805.06530

    >>> round(float(analytic_gaussian_variance(1, "1e-6")) ** 0.5, 12)
    4.224678889327
    """
    return _variance(positive(epsilon, "epsilon"), probability(delta, "delta"))


@lru_cache(maxsize=256)
def _variance(epsilon: Fraction, delta: Fraction) -> Fraction:
    root = _search(epsilon, delta)
    variance = round_digits(root, _RESULT_DIGITS, up=True)
    while enclose_delta(epsilon, variance)[1] > delta:
        variance = round_digits(variance * (1 + Fraction(1, 10**_RESULT_DIGITS)), _RESULT_DIGITS, up=True)
    return variance


def _search(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The root, to about 20 digits, by bisection on the logarithm of the standard deviation."""
    from mpmath.ctx_mp import MPContext

    mp: Any = MPContext()
    mp.dps = _DIGITS + len(str(int(epsilon)))
    e, d = mp.mpf(epsilon.numerator) / epsilon.denominator, mp.mpf(delta.numerator) / delta.denominator

    def excess(log_s: Any) -> Any:
        s = mp.exp(log_s)
        a, b = 1 / (2 * s) - e * s, 1 / (2 * s) + e * s
        return mp.ncdf(a) - mp.exp(e) * mp.ncdf(-b) - d

    low, high = mp.mpf(0), mp.mpf(0)
    while excess(low) < 0:
        low -= 2
    while excess(high) > 0:
        high += 2
    while high - low > mp.mpf(10) ** -22:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return Fraction(int(mp.exp(2 * high) * mp.mpf(10) ** 60)) / 10**60


def enclose_delta(epsilon: Fraction, variance: Fraction) -> tuple[Fraction, Fraction]:
    """An interval that contains Phi(a) - e^epsilon Phi(-b) for noise of this variance.

    Privacy: the left-hand side of Balle and Wang (2018), Theorem 8, by interval arithmetic.

    >>> low, high = enclose_delta(Fraction(1), Fraction(18))
    >>> 0 < low <= high < Fraction(1, 10**6)
    True
    """
    from mpmath.ctx_iv import MPIntervalContext

    iv: Any = MPIntervalContext()
    iv.dps = _DIGITS + len(str(int(epsilon)))
    e = iv.mpf(epsilon.numerator) / epsilon.denominator
    s = iv.sqrt(iv.mpf(variance.numerator) / variance.denominator)
    a, b = 1 / (2 * s) - e * s, 1 / (2 * s) + e * s
    first = _tail(iv, -a) if a.b <= 0 else 1 - _tail(iv, a)
    bound = first - iv.exp(e) * _tail(iv, b)
    return _fraction(bound.a), _fraction(bound.b)


def _tail(iv: Any, x: Any) -> Any:
    """Enclose P(Z > x) for a standard normal Z and an interval x that reaches above 0."""
    density = iv.exp(-x * x / 2) / iv.sqrt(2 * iv.pi)
    if x.b < _NEAR:
        return iv.mpf(1) / 2 - density * _series(iv, x)
    return density * _mills(iv, x)


def _series(iv: Any, x: Any) -> Any:
    """Sum of x^(2k+1) / (2k+1)!!; once the ratio of terms is below 1/2 the rest is below the last."""
    term = total = x
    k = 0
    while k < 8 or term.b > iv.mpf(10).a ** -_DIGITS:
        k += 1
        term = term * x * x / (2 * k + 1)
        total += term
    return total + iv.mpf([-1, 1]) * term


def _mills(iv: Any, x: Any) -> Any:
    """The Mills ratio 1/(x+ 1/(x+ 2/(x+ ...))): consecutive convergents lie on either side of it."""
    terms = 64
    while True:
        ends = []
        for count in (terms, terms + 1):
            value = x
            for k in range(count, 0, -1):
                value = x + k / value
            ends.append(1 / value)
        enclosure = iv.mpf([min(ends[0].a, ends[1].a), max(ends[0].b, ends[1].b)])
        if terms >= _MOST_TERMS or enclosure.delta < enclosure.b * iv.mpf(10).a ** -30:
            return enclosure
        terms *= 2


def _fraction(end: Any) -> Fraction:
    from mpmath.libmp import to_rational

    return Fraction(*to_rational(end._mpi_[0]))
