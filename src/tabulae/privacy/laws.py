"""The laws of released noise, on the integers: parameter, true variance, tail, characteristic function.

The parameter decides privacy, the variance of the law decides accuracy; they differ (for the discrete
Gaussian below a standard deviation of 1, for the discrete Laplace always, by 1/12 for the rounded
Gaussian). Figures about accuracy are floats: ``tail`` is an upper bound within 10^-12 of the truth.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidArgument
from .definitions import (
    ABSURD,
    Exact,
    exact,
    positive,
)
from .samplers import (
    Sampler,
    discrete_gaussian_sampler,
    discrete_laplace_sampler,
    draw,
    rounded_gaussian_sampler,
)
from .source import Source

_SMALLEST = Fraction(1, 10**30)
_UPWARDS = 1 + 5e-13  # covers the float error of every tail below
_UNDERFLOW = 745.0  # e^-745 is the smallest positive float
_SUMMED_VARIANCE = 1 << 20  # up to here sums over the integers are short; above, normal limits are exact
_DUAL_VARIANCE = 0.16  # above: the dual series of Poisson's formula converges faster than the direct one
_DUAL_TERMS = np.arange(-6, 7)
_SMALLEST_FLOAT = math.ulp(0.0)


@dataclass(frozen=True, init=False, repr=False)
class NoiseLaw(ABC):
    """A symmetric law on the integers, named by one exact parameter."""

    name: ClassVar[str]
    word: ClassVar[str]
    grid_base: ClassVar[int]
    largest: ClassVar[int] = ABSURD
    parameter: Fraction
    variance_of_law: float = field(compare=False)

    def __init__(self, parameter: Exact) -> None:
        value = positive(parameter, self.word)
        if value < _SMALLEST:
            raise InvalidArgument(f"{self.word} is below 10^-30, which is no noise; choose a larger one")
        object.__setattr__(self, "parameter", value)
        if value > self.largest:
            raise InvalidArgument(f"{self.word} is above {self.largest}, where 64 bits may not hold a draw")
        object.__setattr__(self, "variance_of_law", max(self._variance(), _SMALLEST_FLOAT))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.word}='{self.parameter}')"

    @abstractmethod
    def _variance(self) -> float: ...

    @abstractmethod
    def _sampler(self) -> Sampler: ...

    @abstractmethod
    def _tail(self, k: int) -> float: ...

    @abstractmethod
    def characteristic(self, t: ArrayLike) -> NDArray[np.float64]:
        """E cos(t X), which for a symmetric law is its characteristic function."""

    def sample(self, size: int | tuple[int, ...], source: Source | None = None) -> NDArray[np.int64]:
        """Independent exact draws; from the operating system's randomness unless a source is given."""
        return draw(self._sampler(), size, source)

    def tail(self, k: int) -> float:
        """An upper bound on P(|X| > k), within 10^-12 of it relatively, for any integer k."""
        if k < 0:
            return 1.0
        return min(1.0, max(self._tail(int(k)) * _UPWARDS, _SMALLEST_FLOAT))

    def margin(self, level: Exact) -> int:
        """The least k for which P(|X| <= k) is at least ``level``.

        >>> DiscreteLaplace(10).margin("0.95")
        30
        """
        wanted = exact(level, "level")
        if not 0 < wanted < 1:
            raise InvalidArgument(f"level is {level}; it must lie strictly between 0 and 1")
        return _margin(self, wanted)

    def law_on_grid(self, exponent: int) -> Self:
        """The same law in units of 2^-exponent: noise of this size for answers multiplied by 2^exponent."""
        return type(self)(self.parameter * Fraction(self.grid_base) ** exponent)


@lru_cache(maxsize=2**16)
def _margin(law: NoiseLaw, level: Fraction) -> int:
    """The least k; remembered, because every table of a plan asks it of the same laws."""
    miss = float(1 - level)
    high = 1
    while law.tail(high) > miss:
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if law.tail(middle) > miss else (low, middle)
    return high


@lru_cache(maxsize=8)
def _gaussian_weights(variance: Fraction) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """k = 1, 2, ... and e^{-k^2 / (2 variance)}; the last few are remembered, as a margin asks for many tails."""
    last = int(math.sqrt(2 * _UNDERFLOW * float(variance))) + 2
    k = np.arange(1.0, last + 1)
    weights = np.exp(-(k * k) * float(1 / (2 * variance)))
    for array in (k, weights):
        array.flags.writeable = False
    return k, weights


class DiscreteGaussian(NoiseLaw):
    """P(X = k) proportional to e^{-k^2 / (2 variance)}.

    Args:
        variance: the parameter of the mass function, between 10^-30 and 10^30; the law's own variance
            is ``variance_of_law``.

    Raises:
        InvalidArgument: a variance outside that range.

    Privacy: on integer queries of L2 sensitivity d, (d^2 / (2 variance))-zCDP (Canonne, Kamath and
    Steinke 2020, Theorem 4 and, for vectors, Corollary 16).

    Reference: https://arxiv.org/abs/2004.00010

    >>> round(DiscreteGaussian(variance="1/4").variance_of_law, 6)
    0.215013
    """

    name: ClassVar[str] = "discrete-gaussian"
    word: ClassVar[str] = "variance"
    grid_base: ClassVar[int] = 4

    def __init__(self, variance: Exact) -> None:
        super().__init__(variance)

    def _sampler(self) -> Sampler:
        return discrete_gaussian_sampler(self.parameter)

    def _weights(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _gaussian_weights(self.parameter)

    def _variance(self) -> float:
        if self.parameter > _SUMMED_VARIANCE:
            return float(self.parameter)
        k, weight = self._weights()
        return float((k * k) @ weight / (0.5 + weight.sum()))

    def _tail(self, k: int) -> float:
        if self.parameter > _SUMMED_VARIANCE:
            return _gaussian_sum(self.parameter, k)
        _, weight = self._weights()
        return float(weight[k:].sum() / (0.5 + weight.sum()))

    def characteristic(self, t: ArrayLike) -> NDArray[np.float64]:
        """The ratio of two theta series, direct or by Poisson's formula.

        >>> float(DiscreteGaussian(4).characteristic(0.0))
        1.0
        """
        angle = _principal(t)
        variance = float(self.parameter)
        if variance < _DUAL_VARIANCE:
            k, weight = self._weights()
            return (0.5 + np.cos(np.multiply.outer(angle, k)) @ weight) / (0.5 + weight.sum())
        shifted = angle[..., None] + 2 * np.pi * _DUAL_TERMS
        norm = np.exp(-variance * (2 * np.pi * _DUAL_TERMS) ** 2 / 2).sum()
        return np.exp(-variance * shifted**2 / 2).sum(axis=-1) / norm


class DiscreteLaplace(NoiseLaw):
    """P(X = k) proportional to e^{-|k| / scale}: the two-sided geometric law.

    Args:
        scale: between 10^-30 and 2^53.

    Raises:
        InvalidArgument: a scale outside that range.

    Privacy: on integer queries of L1 sensitivity d, (d / scale)-DP (Ghosh, Roughgarden and
    Sundararajan 2009).

    >>> round(DiscreteLaplace(scale=10).variance_of_law, 3)
    199.833
    """

    name: ClassVar[str] = "discrete-laplace"
    word: ClassVar[str] = "scale"
    grid_base: ClassVar[int] = 2
    largest: ClassVar[int] = 1 << 53

    def __init__(self, scale: Exact) -> None:
        super().__init__(scale)

    def _sampler(self) -> Sampler:
        return discrete_laplace_sampler(self.parameter)

    def _variance(self) -> float:
        half = float(1 / (2 * self.parameter))
        return 2 * math.exp(-2 * half) / math.expm1(-2 * half) ** 2

    def _tail(self, k: int) -> float:
        return 2 * math.exp(-float((k + 1) / self.parameter)) / (1 + math.exp(-float(1 / self.parameter)))

    def characteristic(self, t: ArrayLike) -> NDArray[np.float64]:
        """1 / (1 + 2 sin^2(t/2) Var X).

        >>> float(DiscreteLaplace(4).characteristic(0.0))
        1.0
        """
        return 1 / (1 + 2 * np.sin(_principal(t) / 2) ** 2 * self.variance_of_law)


class RoundedGaussian(NoiseLaw):
    """A normal variable of the given variance, rounded to the nearest integer.

    Args:
        variance: of the normal variable, between 10^-30 and 10^30; the law's own is ``variance_of_law``.

    Raises:
        InvalidArgument: a variance outside that range.

    Privacy: on integer queries, rounding the noise is rounding the noisy answer: post-processing, so
    the analytic Gaussian guarantee (Balle and Wang 2018, Theorem 8) holds as it stands.

    >>> round(RoundedGaussian(variance=4).variance_of_law, 6)
    4.083333
    """

    name: ClassVar[str] = "rounded-gaussian"
    word: ClassVar[str] = "variance"
    grid_base: ClassVar[int] = 4

    def __init__(self, variance: Exact) -> None:
        super().__init__(variance)

    def _sampler(self) -> Sampler:
        return rounded_gaussian_sampler(self.parameter)

    def _variance(self) -> float:
        if self.parameter > _SUMMED_VARIANCE >> 10:
            return float(self.parameter + Fraction(1, 12))
        last = int(math.sqrt(2 * _UNDERFLOW * float(self.parameter))) + 2
        return math.fsum((2 * k + 1) * self._tail(k) for k in range(last))  # E X^2 = sum (2k+1) P(|X| > k)

    def _tail(self, k: int) -> float:
        return math.erfc(math.sqrt(Fraction(2 * k + 1) ** 2 / (8 * self.parameter)))

    def characteristic(self, t: ArrayLike) -> NDArray[np.float64]:
        """Sum of the normal's characteristic function times sin(u/2)/(u/2) over u = t + 2 pi m.

        >>> float(RoundedGaussian(4).characteristic(0.0))
        1.0
        """
        angle = _principal(t)
        variance = float(self.parameter)
        if variance < _DUAL_VARIANCE:
            tails = np.array([self._tail(k) for k in range(40)])
            mass = -np.diff(tails)
            return 1 - tails[0] + np.cos(np.multiply.outer(angle, np.arange(1.0, 40))) @ mass
        shifted = angle[..., None] + 2 * np.pi * _DUAL_TERMS
        return (np.exp(-variance * shifted**2 / 2) * np.sinc(shifted / (2 * np.pi))).sum(axis=-1)


def _principal(t: ArrayLike) -> NDArray[np.float64]:
    """The angle in [-pi, pi] that is equal to t up to whole turns."""
    angle = np.asarray(t, np.float64)
    return angle - 2 * np.pi * np.round(angle / (2 * np.pi))


def _gaussian_sum(variance: Fraction, k: int) -> float:
    """P(|X| > k) for a discrete Gaussian of large variance, by the midpoint Euler-Maclaurin formula.

    With f(x) = e^{-x^2/(2 variance)}, the sum of f over j > k is the integral from k + 1/2 plus
    f'/24 - 7 f'''/5760 + 31 f^(5)/967680 there. Above a standard deviation of 1024 and before
    underflow the next term is below 10^-15 of the sum.
    """
    deviation = math.sqrt(variance)
    start = Fraction(2 * k + 1, 2)
    if start * start > 2 * int(_UNDERFLOW) * variance:
        return 0.0
    z, height = float(start) / deviation, math.exp(-float(start * start / (2 * variance)))
    slope = -z * height / deviation
    third = -(z**3 - 3 * z) * height / deviation**3
    fifth = -(z**5 - 10 * z**3 + 15 * z) * height / deviation**5
    integral = deviation * math.sqrt(math.pi / 2) * math.erfc(math.sqrt(start * start / (2 * variance)))
    total = integral + slope / 24 - 7 * third / 5760 + 31 * fifth / 967680
    return 2 * total / (deviation * math.sqrt(2 * math.pi))
