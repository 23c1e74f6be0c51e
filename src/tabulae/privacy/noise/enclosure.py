"""Integer intervals around the weights and distribution functions of the noise laws.

A number x in [0, 1] is enclosed at precision p by integers with lower <= 2^p x <= upper. Everything
here is integer arithmetic with directed rounding, so an enclosure is a proof: no floating point, no
shared state, the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, repeat
from typing import Protocol

_GUARD = 32
_MARGIN = 64  # weights carry this many bits beyond what their sums must show


def enclose_exp(x: Fraction, precision: int) -> tuple[int, int]:
    """Enclose e^-x for x >= 0: integers with lower <= 2^precision e^-x <= upper, upper - lower <= 2.

    The argument is halved until it is below 2^-8, the alternating series is summed with its first
    omitted term as the bound on the rest, and the result is squared back.

    Privacy: none is spent; the enclosure is a proof by directed rounding.

    >>> enclose_exp(Fraction(1), 20)
    (385749, 385750)
    """
    if x >= precision:  # e^-p < 2^-p
        return 0, 1
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 9)
    working = precision + _GUARD + 2 * halvings
    unit = 1 << working
    scaled = x.numerator << (working - halvings)
    least, most = scaled // x.denominator, -(-scaled // x.denominator)
    low_sum, high_sum = unit, unit
    low_term, high_term, k = unit, unit, 0
    while high_term > 1:
        k += 1
        low_term = low_term * least // (k << working)
        high_term = -(-high_term * most // (k << working))
        step_low, step_high = (-high_term, -low_term) if k % 2 else (low_term, high_term)
        low_sum, high_sum = low_sum + step_low, high_sum + step_high
    low_sum, high_sum = low_sum - high_term, high_sum + high_term
    for _ in range(halvings):
        low_sum = low_sum * low_sum >> working
        high_sum = -(-high_sum * high_sum >> working)
    shift = working - precision
    return low_sum >> shift, min(-(-high_sum >> shift), 1 << precision)


@dataclass(frozen=True)
class WeightList:
    """Weights w_0 = 1 > w_1 > ... > w_n in units of 2^-precision, each known from below.

    ``errors[k]`` bounds 2^p w_k - lower[k]; ``ratio`` is an upper bound, in the same units, of
    w_{k+1} / w_k for every k >= n, so that the rest of the series is at most w_{n+1} / (1 - ratio).
    """

    precision: int
    lower: list[int]
    errors: list[int]
    ratio: int

    def rest(self) -> int:
        """An upper bound, in the same units, on the sum of all weights after the last."""
        unit = 1 << self.precision
        following = (self.lower[-1] + self.errors[-1]) * self.ratio // unit + 1
        return -(-following * unit // (unit - self.ratio))


class DecreasingWeights(Protocol):
    """A sequence of decreasing positive weights with decreasing ratios."""

    def enclose(self, precision: int) -> WeightList:
        """The weights up to the first below 2^-precision."""
        ...


@dataclass(frozen=True)
class GeometricWeights:
    """w_k = e^{-k / scale}."""

    scale: Fraction

    def enclose(self, precision: int) -> WeightList:
        """The weights above 2^-precision, by w_{k+1} = w_k q with q known to 2 units.

        Each step multiplies the error by q < 1 and adds at most 2 for q and 1 for rounding down.
        """
        working = precision + _MARGIN + 2 * _size(self.scale)
        q, q_above = enclose_exp(1 / self.scale, working)
        weight, lower, errors = 1 << working, [], []
        limit = 1 << (working - precision)
        while weight >= limit:
            lower.append(weight)
            errors.append(3 * len(errors))
            weight = weight * q >> working
        return WeightList(working, lower, errors, q_above)


@dataclass(frozen=True)
class DigitWeights:
    """w_d = e^{-d / scale} for 0 <= d < count; where ``signed``, e^{-|i| / scale} for i = d - count < count."""

    scale: Fraction
    count: int
    signed: bool

    def enclose(self, precision: int) -> WeightList:
        """All the weights, whatever their size: nothing follows them. The errors are those of a geometric law."""
        working = precision + _MARGIN + 2 * _size(self.scale)
        q, _ = enclose_exp(1 / self.scale, working)
        powers = list(accumulate(repeat(q, self.count), lambda w, q: w * q >> working, initial=1 << working))
        distance = [*range(self.count, 0, -1)] * self.signed + [*range(self.count)]
        return WeightList(working, [powers[k] for k in distance], [3 * k for k in distance], 0)


@dataclass(frozen=True)
class GaussianWeights:
    """w_k = e^{-k^2 / (2 variance)}."""

    variance: Fraction

    def enclose(self, precision: int) -> WeightList:
        """The weights above 2^-precision, by w_{k+1} = w_k r_k and r_{k+1} = r_k q.

        q = e^{-1/variance} and r_0 = e^{-1/(2 variance)} are known to 2 units, so r_k is known to
        2 + 3k and w_k to the sum of 3 + 3i over i < k.
        """
        working = precision + _MARGIN + 2 * _size(self.variance)
        q, _ = enclose_exp(1 / self.variance, working)
        ratio, _ = enclose_exp(1 / (2 * self.variance), working)
        weight, lower, errors = 1 << working, [], []
        limit, error, ratio_error, ratio_above = 1 << (working - precision), 0, 2, 0
        while weight >= limit:
            lower.append(weight)
            errors.append(error)
            ratio_above = ratio + ratio_error
            weight = weight * ratio >> working
            error += ratio_error + 1
            ratio = ratio * q >> working
            ratio_error += 3
        return WeightList(working, lower, errors, ratio_above)


def _size(value: Fraction) -> int:
    return max(1, value.numerator.bit_length() - value.denominator.bit_length() + 1)


@dataclass(frozen=True)
class Distribution:
    """2^precision F(k) enclosed for k = first, first + 1, ...: lower[i] <= 2^p F(first + i) <= upper[i]."""

    precision: int
    first: int
    lower: list[int]
    upper: list[int]


def enclose_distribution(weights: DecreasingWeights, precision: int, *, two_sided: bool) -> Distribution:
    """Enclose the distribution function of the law proportional to the weights.

    The law is P(k) proportional to w_k on k >= 0, or to w_|k| on all integers where ``two_sided``. The
    symbols listed have weight above 2^-precision, and where ``two_sided`` one more stands before them,
    so that every integer below lies left of a listed one; the mass of the others is in the enclosures.

    Privacy: none is spent; every rounding is directed, so the enclosure is a proof.

    >>> enclose_distribution(GeometricWeights(Fraction(1)), 8, two_sided=False).lower[0]  # 256 (1 - 1/e)
    161
    """
    known = weights.enclose(precision)
    rest = known.rest()
    count = len(known.lower)
    below, above, run_low, run_high = ([0], [rest], 0, rest) if two_sided else ([], [], 0, 0)
    for k in [*range(count - 1, 0, -1), *range(count)] if two_sided else range(count):
        run_low += known.lower[k]
        run_high += known.lower[k] + known.errors[k]
        below.append(run_low)
        above.append(run_high)
    total_low, total_high = run_low, run_high + rest
    unit = 1 << precision
    lower = [(value << precision) // total_high for value in below]
    upper = [min(unit, -(-(value << precision) // total_low)) for value in above]
    return Distribution(precision, -count if two_sided else 0, lower, upper)
