"""The laws of released noise, on the integers, and which of them a budget pays for.

A law knows all that is particular to it: its words, the budgets that pay for it and how much of it they buy, its
sampler, true variance, tail, characteristic function and privacy loss, and what intervals need. To add one, write the
class and enter it into ``LAWS``; nothing else names the laws one by one but the audit, which derives them anew.

The parameter decides privacy, the variance of the law decides accuracy; they differ (for the discrete
Gaussian below a standard deviation of 1, for the discrete Laplace always, by 1/12 for the rounded
Gaussian). Figures about accuracy are floats: ``tail`` is an upper bound within 10^-12 of the truth.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidArgument, Unsupported
from ..loss.conversions import analytic_gaussian_variance
from ..loss.definitions import ZCDP, ApproxDP, PrivacyLoss, PureDP
from ..loss.exact_numbers import ABSURD, Exact, exact, positive, probability, round_digits
from .enclosure import GaussianWeights, GeometricWeights
from .random_bits import RandomBits
from .samplers import DigitSampler, FilteredSampler, Sampler, TableSampler, draw

_SMALLEST = Fraction(1, 10**30)
_UPWARDS = 1 + 5e-13  # covers the float error of every tail below
_UNDERFLOW = 745.0  # e^-745 is the smallest positive float
_SUMMED_VARIANCE = 1 << 20  # up to here sums over the integers are short; above, normal limits are exact
_NORMAL_VARIANCE = 4  # from here on a discrete Gaussian's variance is its parameter, in floats
_DUAL_VARIANCE = 0.16  # above: the dual series of Poisson's formula converges faster than the direct one
_DUAL_TERMS = np.arange(-6, 7)
_SMALLEST_FLOAT = math.ulp(0.0)
_SAMPLERS = 128
_LARGEST_TABLE_VARIANCE, _LARGEST_TABLE_SCALE = Fraction(1 << 20), Fraction(1 << 8)
_SMOOTH = 2.6  # exp(-2 pi^2 2.6) is so small that 2^32 variables multiply a probability by 1 + 1e-12 at most
_DEVIATIONS = 14.0  # of the noise on either side: what lies beyond weighs less than 1e-40
_MOST_ATOMS = 1 << 24
_BUDGET_DIGITS, _BUDGET_HALVINGS = 12, 60

Floats = NDArray[np.float64]
NoiseKind = Literal["gaussian", "laplace"]


@dataclass(frozen=True, init=False, repr=False)
class NoiseLaw(ABC):
    """A symmetric law on the integers, named by one exact parameter.

    Attributes:
        name: in files.
        words: in reports, before the number ``size``.
        word: what the parameter is called.
        kind: the noise as a strategy is chosen for it; intervals of one kind are computed alike.
        power: the parameter grows with this power of the size of the noise, and so does the sensitivity that it pays
            for: 2 for a variance and the squared L2 norm, 1 for a scale and the L1 norm.
        budgets: the losses that can be spent on it.
        normal_from: the least ``size`` from which the normal limit of a sum is used, where its error is proven small.
        steepest_at_zero: whether ``-log characteristic(t) / t^2`` is known to fall on [0, 2 pi].
        largest: the greatest parameter.
        parameter: exact.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    word: ClassVar[str]
    kind: ClassVar[NoiseKind]
    power: ClassVar[int]
    budgets: ClassVar[tuple[type[PrivacyLoss], ...]]
    normal_from: ClassVar[float] = math.inf
    steepest_at_zero: ClassVar[bool] = True
    largest: ClassVar[int] = ABSURD
    parameter: Fraction

    def __init__(self, parameter: Exact) -> None:
        value = positive(parameter, self.word)
        if value < _SMALLEST:
            raise InvalidArgument(f"{self.word} is below 10^-30, which is no noise; choose a larger one")
        object.__setattr__(self, "parameter", value)
        if value > self.largest:
            raise InvalidArgument(f"{self.word} is above {self.largest}, where 64 bits may not hold a draw")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.word}='{self.parameter}')"

    @staticmethod
    @abstractmethod
    def parameter_for(budget: PrivacyLoss, sensitivity_power: Fraction) -> Fraction:
        """The parameter that spends one of ``budgets`` on queries of this sensitivity, to the ``power``.

        Privacy: exact, or rounded towards more noise; the theorem stands with the law.
        """

    @cached_property
    def variance_of_law(self) -> float:
        """The true variance."""
        return max(self._variance(), _SMALLEST_FLOAT)

    @cached_property
    def size(self) -> float:
        """The standard deviation sigma, or the scale b, as papers state it."""
        return math.sqrt(self.parameter) if self.power == 2 else float(self.parameter)

    @property
    def nominal_variance(self) -> float:
        """The variance as papers state it, of the continuous law: sigma^2, or 2 b^2."""
        return float(self.parameter) if self.kind == "gaussian" else 2 * float(self.parameter) ** 2

    @property
    @abstractmethod
    def sub_gaussian_proxy(self) -> float:
        """The least known t^2 with E e^{s X} <= e^{s^2 t^2 / 2} for every s; infinite where there is none."""

    @abstractmethod
    def continuous_part(self) -> tuple[float, float]:
        """Of X as a continuous variable C and a rest D: Var(C), and the sub-Gaussian proxy of D.

        C is normal or Laplace, as the ``kind`` says, and D independent from one variable to the next. What is left
        between X and C + D multiplies a probability about 2^32 variables by 1 + 1e-12 at most. Both are infinite
        where no such parts are known.
        """

    @abstractmethod
    def loss_atoms(self, shift: int, tilt: float) -> tuple[Floats, Floats]:
        """Log probabilities and losses ``ln P(k) - ln P(k - shift)``, wide enough for the law tilted by e^{tilt L}."""

    def loss_cumulant(self, shift: int, tilt: float) -> float:
        """ln E e^{tilt L}, roughly, for the choice of a tilt: that of the normal."""
        return tilt * (tilt + 1) * shift**2 / (2 * self.nominal_variance)

    def largest_loss(self, shift: int) -> Fraction | None:
        """The largest loss that any output can have; None where there is none."""
        return None

    @abstractmethod
    def _variance(self) -> float: ...

    @abstractmethod
    def _sampler(self) -> Sampler: ...

    @abstractmethod
    def _tail(self, k: int) -> float: ...

    @abstractmethod
    def characteristic(self, t: ArrayLike) -> Floats:
        """E cos(t X), which for a symmetric law is its characteristic function."""

    def sample(self, size: int | tuple[int, ...], source: RandomBits | None = None) -> NDArray[np.int64]:
        """Independent exact draws; from the operating system's randomness unless a source is given."""
        return draw(self.sampler(), size, source)

    def sampler(self) -> Sampler:
        """The route that draws it, which depends on the law alone; the tables of the last laws are kept."""
        return _sampler_of(self)

    def tail(self, k: int) -> float:
        """An upper bound on P(|X| > k), within 10^-12 of it relatively, for any integer k."""
        if k < 0:
            return 1.0
        return min(1.0, max(self._tail(int(k)) * _UPWARDS, _SMALLEST_FLOAT))

    def margin(self, level: Exact) -> int:
        """The least k for which P(|X| <= k) is at least ``level``.

        Raises :class:`~tabulae.errors.InvalidArgument` for a level that is not between 0 and 1, or too near to 1.

        >>> DiscreteLaplace(10).margin("0.95")
        30
        """
        wanted = exact(level, "level")
        if not 0 < wanted < 1:
            raise InvalidArgument(f"level is {level}; it must lie strictly between 0 and 1")
        if 1 - wanted < Fraction(1, 10**300):
            raise InvalidArgument(
                "level is nearer to 1 than 10^-300, where floats do not tell tails: ask for less"
            )
        return _margin(self, wanted)

    def law_on_grid(self, exponent: int) -> Self:
        """The same law in units of 2^-exponent: noise of this size for answers multiplied by 2^exponent."""
        return type(self)(self.parameter * Fraction(2) ** (self.power * exponent))


@lru_cache(maxsize=_SAMPLERS)
def _sampler_of(law: NoiseLaw) -> Sampler:
    return law._sampler()


@lru_cache(maxsize=2**16)
def _margin(law: NoiseLaw, level: Fraction) -> int:
    """The least k; remembered, because every table of a plan asks it of the same laws.

    From where the continuous law would have it, in steps that double, until two neighbours in that search enclose it.
    """
    miss = float(1 - level)
    beyond = -math.log(miss)
    guess = int(law.size * (math.sqrt(2 * beyond) if law.power == 2 else beyond))
    step = 1
    if law.tail(guess) > miss:
        low, high = guess, guess + 1
        while law.tail(high) > miss:
            step *= 2
            low, high = high, high + step
    else:
        low, high = guess - 1, guess
        while low >= 0 and law.tail(low) <= miss:
            step *= 2
            low, high = max(low - step, -1), low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if law.tail(middle) > miss else (low, middle)
    return high


@lru_cache(maxsize=8)
def _gaussian_weights(variance: Fraction) -> tuple[Floats, Floats]:
    """k = 1, 2, ... and e^{-k^2 / (2 variance)}; the last few are remembered, as a margin asks for many tails."""
    last = int(math.sqrt(2 * _UNDERFLOW * float(variance))) + 2
    k = np.arange(1.0, last + 1)
    weights = np.exp(-(k * k) * float(1 / (2 * variance)))
    for array in (k, weights):
        array.flags.writeable = False
    return k, weights


class _GaussianLaw(NoiseLaw):
    """A law whose parameter is the variance of a normal, between 10^-30 and 10^30."""

    word = "variance"
    kind = "gaussian"
    power = 2

    def __init__(self, variance: Exact) -> None:
        super().__init__(variance)

    def characteristic(self, t: ArrayLike) -> Floats:
        """The sum over the integers, or by Poisson's formula over u = t + 2 pi m, whichever is shorter.

        >>> float(DiscreteGaussian(4).characteristic(0.0)), float(RoundedGaussian(4).characteristic(0.0))
        (1.0, 1.0)
        """
        angle = _principal(t)
        if float(self.parameter) < _DUAL_VARIANCE:
            return self._direct(angle)
        return self._by_poisson(angle[..., None] + 2 * np.pi * _DUAL_TERMS)

    @abstractmethod
    def _direct(self, angle: Floats) -> Floats: ...

    @abstractmethod
    def _by_poisson(self, angles: Floats) -> Floats: ...


class DiscreteGaussian(_GaussianLaw):
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

    name = "discrete-gaussian"
    words = "discrete Gaussian, sigma"
    budgets = (ZCDP,)
    normal_from = 1.5

    @staticmethod
    def parameter_for(budget: PrivacyLoss, sensitivity_power: Fraction) -> Fraction:
        """D / (2 rho) (Canonne, Kamath and Steinke 2020, Corollary 16)."""
        return sensitivity_power / (2 * budget.amount)

    @property
    def sub_gaussian_proxy(self) -> float:
        """sigma^2 (Canonne, Kamath and Steinke 2020, Fact 19)."""
        return self.size**2

    def continuous_part(self) -> tuple[float, float]:
        """X + u, with u normal of variance t^2: nearly normal of variance sigma^2 + t^2; D = -u."""
        parameter = float(self.parameter)
        if parameter <= 2 * _SMOOTH:
            return math.inf, math.inf
        smooth = parameter * _SMOOTH / (parameter - _SMOOTH)
        return parameter + smooth, smooth

    def loss_atoms(self, shift: int, tilt: float) -> tuple[Floats, Floats]:
        k, twice = _outcomes(self, shift, tilt), 2 * float(self.parameter)
        log_p = -k * k / twice
        return log_p - log_sum(log_p), shift * (shift - 2 * k) / twice

    def _sampler(self) -> Sampler:
        if self.parameter <= _LARGEST_TABLE_VARIANCE:
            return TableSampler(GaussianWeights(self.parameter), two_sided=True)
        return FilteredSampler.of(self.parameter, rounded=False)

    def _weights(self) -> tuple[Floats, Floats]:
        return _gaussian_weights(self.parameter)

    def _variance(self) -> float:
        """The sum, or the parameter: by Poisson's formula it is less by a share ``8 pi^2 s^2 e^{-2 pi^2 s^2}``.

        From a parameter s^2 of 4 on that is below 2^-105.
        """
        if self.parameter >= _NORMAL_VARIANCE:
            return float(self.parameter)
        k, weight = self._weights()
        return float((k * k) @ weight / (0.5 + weight.sum()))

    def _tail(self, k: int) -> float:
        if self.parameter > _SUMMED_VARIANCE:
            return _gaussian_sum(self.parameter, k)
        _, weight = self._weights()
        return float(weight[k:].sum() / (0.5 + weight.sum()))

    def _direct(self, angle: Floats) -> Floats:
        k, weight = self._weights()
        return (0.5 + np.cos(np.multiply.outer(angle, k)) @ weight) / (0.5 + weight.sum())

    def _by_poisson(self, angles: Floats) -> Floats:
        """Of both theta series: the lower one is the value of the upper one at angle 0."""
        variance = float(self.parameter)
        norm = np.exp(-variance * (2 * np.pi * _DUAL_TERMS) ** 2 / 2).sum()
        return np.exp(-variance * angles**2 / 2).sum(axis=-1) / norm


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

    name = "discrete-laplace"
    words = "discrete Laplace, scale"
    word = "scale"
    kind = "laplace"
    power = 1
    budgets = (PureDP, ApproxDP)
    largest = 1 << 53

    def __init__(self, scale: Exact) -> None:
        super().__init__(scale)

    @staticmethod
    def parameter_for(budget: PrivacyLoss, sensitivity_power: Fraction) -> Fraction:
        """D / epsilon (Ghosh, Roughgarden and Sundararajan 2009)."""
        return sensitivity_power / budget.amount

    @property
    def sub_gaussian_proxy(self) -> float:
        """None: the tail falls as e^{-k / scale}."""
        return math.inf

    def continuous_part(self) -> tuple[float, float]:
        """X = floor Y - floor Z, with Y and Z exponential; C = Y - Z, D a difference of two fractional parts."""
        return self.nominal_variance, 0.5

    def loss_atoms(self, shift: int, tilt: float) -> tuple[Floats, Floats]:
        """(|k - shift| - |k|) / scale: one value for all k <= 0, one for all k >= shift, and those between."""
        scale, k = float(self.parameter), np.arange(1.0, shift)
        log_mass = math.log(-math.expm1(-1 / scale)) - math.log1p(math.exp(-1 / scale))
        end = -math.log1p(math.exp(-1 / scale))
        log_p = np.concatenate([[end], log_mass - k / scale, [end - shift / scale]])
        return log_p, np.concatenate([[shift], shift - 2 * k, [-shift]]) / scale

    def loss_cumulant(self, shift: int, tilt: float) -> float:
        log_p, loss = self.loss_atoms(shift, tilt)
        return log_sum(log_p + tilt * loss)

    def largest_loss(self, shift: int) -> Fraction:
        return shift / self.parameter

    def _sampler(self) -> Sampler:
        if self.parameter <= _LARGEST_TABLE_SCALE:
            return TableSampler(GeometricWeights(self.parameter), two_sided=True)
        return DigitSampler.of(self.parameter)

    def _variance(self) -> float:
        half = float(1 / (2 * self.parameter))
        return 2 * math.exp(-2 * half) / math.expm1(-2 * half) ** 2

    def _tail(self, k: int) -> float:
        return 2 * math.exp(-float((k + 1) / self.parameter)) / (1 + math.exp(-float(1 / self.parameter)))

    def characteristic(self, t: ArrayLike) -> Floats:
        """1 / (1 + 2 sin^2(t/2) Var X).

        >>> float(DiscreteLaplace(4).characteristic(0.0))
        1.0
        """
        return 1 / (1 + 2 * np.sin(_principal(t) / 2) ** 2 * self.variance_of_law)


class RoundedGaussian(_GaussianLaw):
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

    name = "rounded-gaussian"
    words = "rounded Gaussian, sigma"
    budgets = (ApproxDP,)
    normal_from = 20.0
    steepest_at_zero = False

    @staticmethod
    def parameter_for(budget: PrivacyLoss, sensitivity_power: Fraction) -> Fraction:
        """D times the analytic Gaussian variance (Balle and Wang 2018, Theorem 8)."""
        assert isinstance(budget, ApproxDP)
        return sensitivity_power * analytic_gaussian_variance(budget.amount, budget.delta)

    @property
    def sub_gaussian_proxy(self) -> float:
        """(sigma + 1/2)^2: rounding adds at most half a step."""
        return (self.size + 0.5) ** 2

    def continuous_part(self) -> tuple[float, float]:
        """C is the normal variable; rounding moves it by 1/2 at most."""
        return float(self.parameter), 0.25

    def loss_atoms(self, shift: int, tilt: float) -> tuple[Floats, Floats]:
        k = _outcomes(self, shift, tilt)
        log_p = _log_mass(k, self.size)
        return log_p - log_sum(log_p), log_p - _log_mass(k - shift, self.size)

    def _sampler(self) -> Sampler:
        return FilteredSampler.of(self.parameter, rounded=True)

    def _variance(self) -> float:
        if self.parameter > _SUMMED_VARIANCE >> 10:
            return float(self.parameter + Fraction(1, 12))
        last = int(math.sqrt(2 * _UNDERFLOW * float(self.parameter))) + 2
        return math.fsum((2 * k + 1) * self._tail(k) for k in range(last))  # E X^2 = sum (2k+1) P(|X| > k)

    def _tail(self, k: int) -> float:
        return math.erfc(math.sqrt(Fraction(2 * k + 1) ** 2 / (8 * self.parameter)))

    def _direct(self, angle: Floats) -> Floats:
        tails = np.array([self._tail(k) for k in range(40)])
        return 1 - tails[0] + np.cos(np.multiply.outer(angle, np.arange(1.0, 40))) @ -np.diff(tails)

    def _by_poisson(self, angles: Floats) -> Floats:
        """The normal's characteristic function u -> e^{-variance u^2 / 2}, times sin(u/2) / (u/2)."""
        normal = np.exp(-float(self.parameter) * angles**2 / 2)
        return (normal * np.sinc(angles / (2 * np.pi))).sum(axis=-1)


def _principal(t: ArrayLike) -> Floats:
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


def _outcomes(law: NoiseLaw, shift: int, tilt: float) -> Floats:
    """The integers that matter to the loss of a law with Gaussian tails, tilted by e^{tilt L}."""
    reach = _DEVIATIONS * law.size + 4 * shift + 4
    low, high = -math.ceil(reach + (tilt + 1) * shift), math.ceil(reach)
    if high - low > _MOST_ATOMS:
        raise Unsupported(
            f"the loss of {law!r} has too many values to be tabulated; "
            "use ZCDP, whose conversion is close for noise this large"
        )
    return np.arange(low, high + 1, dtype=np.float64)


def _log_mass(k: Floats, deviation: float) -> Floats:
    """ln P(a normal variable rounds to k), by the tails on its far side."""
    from scipy.special import log_ndtr

    far = -np.abs(k)
    upper, lower = log_ndtr((far + 0.5) / deviation), log_ndtr((far - 0.5) / deviation)
    return upper + np.log1p(-np.exp(lower - upper))


def log_sum(values: Floats) -> float:
    """ln of the sum of exponentials. Privacy: none is spent.

    >>> log_sum(np.zeros(1))
    0.0
    """
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).sum()))


LAWS: dict[str, type[NoiseLaw]] = {
    law.name: law for law in (DiscreteGaussian, DiscreteLaplace, RoundedGaussian)
}
"""Every law, by its name in files."""


def law_type(budget: PrivacyLoss, noise: str | None = None) -> type[NoiseLaw]:
    """The law that a budget pays for.

    Args:
        budget: ``PureDP``, ``ApproxDP`` or ``ZCDP``.
        noise: ``"gaussian"`` or ``"laplace"``; where None, what the budget pays for first.

    Raises:
        InvalidArgument: Gaussian noise under pure privacy, Laplace noise under zero-concentrated
            privacy, or an unknown name.

    Privacy: none is spent; a pair for which no theorem is used here is refused.

    >>> law_type(ZCDP(1), "gaussian").__name__
    'DiscreteGaussian'
    """
    if noise not in (None, *get_args(NoiseKind)):
        raise InvalidArgument(f'noise is {noise!r}; it must be "gaussian" or "laplace"')
    for law in LAWS.values():
        if isinstance(budget, law.budgets) and noise in (None, law.kind):
            return law
    if isinstance(budget, PureDP):
        raise InvalidArgument(
            "Gaussian noise never gives pure differential privacy: "
            'use noise "laplace", or a budget of ZCDP or ApproxDP'
        )
    if isinstance(budget, ZCDP):
        raise InvalidArgument(
            'a ZCDP budget is spent on Gaussian noise: use noise "gaussian", '
            "or a budget of PureDP or ApproxDP"
        )
    raise InvalidArgument(f"a budget of {type(budget).__name__} draws no noise; use PureDP, ApproxDP or ZCDP")


def calibrate(budget: PrivacyLoss, noise: str, sensitivity_power: Fraction) -> Fraction:
    """The parameter of the law that spends a budget on queries of the given sensitivity.

    ZCDP: variance = D / (2 rho). ApproxDP, Gaussian: variance = D c, with c the analytic Gaussian
    variance. Laplace: scale = D / epsilon. D is the squared L2 sensitivity for Gaussian noise and the
    L1 sensitivity for Laplace noise, exact or an upper bound.

    Args:
        budget: what is spent.
        noise: ``"gaussian"`` or ``"laplace"``.
        sensitivity_power: D, positive.

    Raises:
        InvalidArgument: a pair refused by ``law_type``, or a sensitivity that is not positive.

    Privacy: Canonne, Kamath and Steinke (2020), Corollary 16; Balle and Wang (2018), Theorem 8;
    Ghosh, Roughgarden and Sundararajan (2009). Exact, or rounded towards more noise.

    >>> calibrate(ZCDP("1/2"), "gaussian", Fraction(3))
    Fraction(3, 1)
    """
    return law_type(budget, noise).parameter_for(budget, positive(sensitivity_power, "sensitivity"))


def law_for(budget: PrivacyLoss, noise: str | None, sensitivity_power: Fraction) -> NoiseLaw:
    """The law that spends a budget on queries of the given sensitivity: see ``law_type`` and ``calibrate``.

    Privacy: as ``calibrate``.

    >>> law_for(PureDP(2), None, Fraction(3))
    DiscreteLaplace(scale='3/2')
    """
    kind = law_type(budget, noise)
    return kind(kind.parameter_for(budget, positive(sensitivity_power, "sensitivity")))


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
    loss = PureDP if noise == "laplace" else ZCDP
    miss = 1 - probability(level, "level")

    def met(amount: Fraction) -> bool:
        return Fraction(law_for(loss(amount), noise, Fraction(1)).tail(margin)) <= miss

    high = Fraction(1, (margin + 1) ** law_type(loss(1), noise).power)
    while not met(high):
        high *= 2
    low = high
    while met(low):
        low /= 2
    for _ in range(_BUDGET_HALVINGS):
        middle = round_digits((low + high) / 2, _BUDGET_DIGITS + 4)
        low, high = (low, middle) if met(middle) else (middle, high)
    amount = round_digits(high, _BUDGET_DIGITS, up=True)
    assert met(amount), "the tail falls as the budget grows"
    return loss(amount)
