"""From zero-concentrated privacy to (epsilon, delta), and the least Gaussian noise for (epsilon, delta).

A mechanism that is rho-zCDP is (epsilon, delta)-DP for every order a > 1 and

    epsilon = rho a + ln(1 - 1/a) + ln(1 / (a delta)) / (a - 1)

(Canonne, Kamath and Steinke 2020, Proposition 12 with the Renyi divergence bounded by rho a). The
derivative in a is rho - ln(1 / (a delta)) / (a - 1)^2, which changes sign once, so the infimum over
all real orders is found as its root rather than on a grid. Any order gives a valid bound: only the
last evaluation decides soundness, and it is made with 40 digits and rounded up.

Adding normal noise of standard deviation s to a query of L2 sensitivity 1 is (epsilon, delta)-DP if
and only if, with a = 1/(2s) - epsilon s and b = 1/(2s) + epsilon s,

    Phi(a) - e^epsilon Phi(-b) <= delta

(Balle and Wang 2018, Theorem 8; HDMM, Proposition 2). The variance is found with ordinary
multiprecision arithmetic, rounded up, and then proven by interval arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from .exact_numbers import Exact, positive, probability, round_digits

_DIGITS = 40


@lru_cache(maxsize=1)
def reals() -> Any:
    """A private mpmath context of 40 digits: the shared one may be changed by anybody. Privacy: none is spent."""
    from mpmath.ctx_mp import MPContext

    context = MPContext()
    context.dps = _DIGITS
    return context


def to_real(value: Fraction) -> Any:
    """A fraction to 40 digits. Privacy: none is spent."""
    mp = reals()
    return mp.mpf(value.numerator) / value.denominator


def upwards(value: Any) -> float:
    """A float at least ``value``, for a value computed to 40 digits, of which 8 may be wrong.

    Privacy: statements about a loss are rounded towards more loss.
    """
    raised = value + abs(value) * reals().mpf(10) ** (8 - _DIGITS)
    nearest = float(raised)
    return nearest if nearest >= raised else math.nextafter(nearest, math.inf)


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
    return _zcdp_epsilon(positive(rho, "rho"), probability(delta, "delta"))


@lru_cache(maxsize=1 << 10)  # a page states the same promise in many places
def _zcdp_epsilon(rho: Fraction, delta: Fraction) -> float:
    r, d = to_real(rho), to_real(delta)
    mp = reals()
    order = 1 + _best_order_above_one(r, mp.ln(d))
    bound = r * order + mp.ln(1 - 1 / order) - mp.ln(order * d) / (order - 1)
    return upwards(bound) if bound > 0 else 0.0


def _best_order_above_one(r: Any, log_delta: Any) -> Any:
    """The root t of ``h = r t^2 + ln(1 + t) + ln(delta)``, by Newton's method in ln(t).

    There h is convex and increases, so from above the root the method steps down to it, and never past it.
    """
    mp = reals()
    least = mp.mpf(10) ** -30
    t = max(mp.sqrt(-log_delta / r), least)  # h = ln(1 + t) > 0
    while t > least:
        step = (r * t**2 + mp.ln(1 + t) + log_delta) / (2 * r * t**2 + t / (1 + t))
        t *= mp.exp(-step)
        if step < mp.mpf(10) ** -18:  # the error that is left is its square
            break
    return max(t, least)


_GAUSSIAN_DIGITS = 60
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
    return _least_variance(positive(epsilon, "epsilon"), probability(delta, "delta"))


@lru_cache(maxsize=256)
def _least_variance(epsilon: Fraction, delta: Fraction) -> Fraction:
    root = _variance_root(epsilon, delta)
    variance = round_digits(root, _RESULT_DIGITS, up=True)
    while enclose_delta(epsilon, variance)[1] > delta:
        variance = round_digits(variance * (1 + Fraction(1, 10**_RESULT_DIGITS)), _RESULT_DIGITS, up=True)
    return variance


def _variance_root(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The root, to about 20 digits, by bisection on the logarithm of the standard deviation."""
    from mpmath.ctx_mp import MPContext

    mp: Any = MPContext()
    mp.dps = _GAUSSIAN_DIGITS + len(str(int(epsilon)))
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
    iv.dps = _GAUSSIAN_DIGITS + len(str(int(epsilon)))
    e = iv.mpf(epsilon.numerator) / epsilon.denominator
    s = iv.sqrt(iv.mpf(variance.numerator) / variance.denominator)
    a, b = 1 / (2 * s) - e * s, 1 / (2 * s) + e * s
    first = _normal_tail(iv, -a) if a.b <= 0 else 1 - _normal_tail(iv, a)
    bound = first - iv.exp(e) * _normal_tail(iv, b)
    return _fraction(bound.a), _fraction(bound.b)


def _normal_tail(iv: Any, x: Any) -> Any:
    """Enclose P(Z > x) for a standard normal Z and an interval x that reaches above 0."""
    density = iv.exp(-x * x / 2) / iv.sqrt(2 * iv.pi)
    if x.b < _NEAR:
        return iv.mpf(1) / 2 - density * _series(iv, x)
    return density * _mills(iv, x)


def _series(iv: Any, x: Any) -> Any:
    """Sum of x^(2k+1) / (2k+1)!!; once the ratio of terms is below 1/2 the rest is below the last."""
    term = total = x
    k = 0
    while k < 8 or term.b > iv.mpf(10).a ** -_GAUSSIAN_DIGITS:
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
