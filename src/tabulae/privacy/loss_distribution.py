"""The privacy loss of noise as a random variable, and the (epsilon, delta) of sums of such losses.

If neighbours shift an answer by v, the loss of the output k is L(k) = ln P(k) - ln P(k - v), where P is
the law of the noise. Losses of independent answers add, and with X the total loss

    delta(epsilon) = E (1 - e^{epsilon - X})+          over outputs drawn from the first neighbour.

The law of X is computed on a grid. An atom between two grid points is split so that its mass under
either neighbour is kept: a mean-preserving spread of the likelihood ratio, after which every
divergence is at least what it was, so the result is an upper bound, with an error of the order of
the grid step squared. Sums are taken by Fourier transform of the law tilted by e^{t X}, with t at the
saddle point: there rounding errors are relative to the delta sought, however small it is, and are
allowed for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..errors import InvalidArgument, Unsupported
from .convolution import (
    Floats,
    Part,
    Total,
    log_sum,
    total_loss,
)
from .definitions import (
    Exact,
    float_up,
    positive,
    probability,
)
from .laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    RoundedGaussian,
)

_LOG_TILTS = np.linspace(math.log(1e-2), math.log(60.0), 37)  # times the deviation of the total loss
_DEVIATIONS = 14.0  # of the noise on either side: what lies beyond weighs less than 1e-40
_MOST_ATOMS = 1 << 24
_MOST_TILTS, _SMALL_SLACK = 12, 1e-4


@dataclass(frozen=True)
class Use:
    """``count`` answers with independent noise of one law, each shifted by at most ``shift`` by one record.

    >>> Use(DiscreteGaussian(9)).count
    1
    """

    law: NoiseLaw
    shift: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if self.shift < 1 or self.count < 1:
            raise InvalidArgument(f"shift is {self.shift} and count is {self.count}; both must be positive")

    def atoms(self, tilt: float) -> tuple[Floats, Floats]:
        """Log probabilities and losses, wide enough for the law tilted by e^{tilt L}."""
        if isinstance(self.law, DiscreteLaplace):
            return _laplace_atoms(float(self.law.parameter), self.shift)
        deviation = math.sqrt(self.law.parameter)
        reach = _DEVIATIONS * deviation + 4 * self.shift + 4
        low, high = -math.ceil(reach + (tilt + 1) * self.shift), math.ceil(reach)
        if high - low > _MOST_ATOMS:
            raise Unsupported(
                f"the loss of {self.law!r} has too many values to be tabulated; "
                "use ZCDP, whose conversion is close for noise this large"
            )
        k = np.arange(low, high + 1, dtype=np.float64)
        if isinstance(self.law, DiscreteGaussian):
            twice = 2 * float(self.law.parameter)
            log_p = -k * k / twice
            return log_p - log_sum(log_p), self.shift * (self.shift - 2 * k) / twice
        if isinstance(self.law, RoundedGaussian):
            log_p = _log_mass(k, deviation)
            return log_p - log_sum(log_p), log_p - _log_mass(k - self.shift, deviation)
        raise Unsupported(f"the loss of {type(self.law).__name__} is not tabulated")

    def spread(self) -> float:
        """The standard deviation of one loss, roughly."""
        parameter = float(self.law.parameter)
        return self.shift / (parameter if isinstance(self.law, DiscreteLaplace) else math.sqrt(parameter))

    def cumulant(self, tilt: float) -> float:
        """ln E e^{tilt L} times the count, for the choice of a tilt: that of the normal where it is close."""
        if isinstance(self.law, DiscreteLaplace):
            log_p, loss = self.atoms(tilt)
            return self.count * log_sum(log_p + tilt * loss)
        return self.count * tilt * (tilt + 1) * self.shift**2 / (2 * float(self.law.parameter))


@dataclass(frozen=True)
class NoiseComposition:
    """Independent noisy answers, all seen together.

    Args:
        uses: at least one.
        cells: the least number of points of the grid. Fewer are faster, and a bound that is a little larger.

    Privacy: an upper bound on the hockey-stick divergence between neighbours, by numerical convolution
    of dominating privacy loss distributions (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022),
    tilted for relative accuracy (Gopi, Lee and Wutschitz 2021 bound the same without the tilt).

    Reference: https://arxiv.org/abs/2207.04380

    >>> noise = NoiseComposition((Use(DiscreteGaussian(100), count=50),))
    >>> round(noise.epsilon("1e-10"), 3)
    4.492
    """

    uses: tuple[Use, ...]
    cells: int = 1 << 17

    def __post_init__(self) -> None:
        if not self.uses:
            raise InvalidArgument("a composition needs at least one use of noise")

    def epsilon(self, delta: Exact) -> float:
        """The least epsilon that holds at delta, up to the error of the grid; at least 0.

        Raises:
            InvalidArgument: a delta outside (0, 1).
            Unsupported: noise whose loss takes too many values.

        Privacy: an upper bound; see the class.
        """
        log_delta = _log(probability(delta, "delta"))
        tilt = _least(lambda t: (self._cumulant(t) - log_delta) / t, self._deviation())
        found = self._best(tilt, lambda total: total.epsilon(log_delta))
        if all(isinstance(use.law, DiscreteLaplace) for use in self.uses):  # no loss exceeds shift / scale
            largest = sum((use.count * use.shift / use.law.parameter for use in self.uses), Fraction(0))
            found = min(found, float_up(largest))
        return found

    def delta(self, epsilon: Exact) -> float:
        """The least delta that holds at epsilon, up to the error of the grid.

        Raises:
            InvalidArgument: an epsilon that is not positive.
            Unsupported: noise whose loss takes too many values.

        Privacy: an upper bound; see the class.
        """
        target = float(positive(epsilon, "epsilon"))
        tilt = _least(lambda t: self._cumulant(t) - target * t, self._deviation())
        return self._best(tilt, lambda total: total.delta(target))

    def _best(self, tilt: float, answer: Callable[[Total], tuple[float, float]]) -> float:
        """The least answer over falling tilts, until the slack is a small part of delta; each is a bound."""
        best = math.inf
        for _ in range(_MOST_TILTS):
            value, slack = answer(self._total(tilt))
            improved, best = value < best * (1 - 1e-6), min(best, value)
            if slack < _SMALL_SLACK or (math.isfinite(value) and not improved):
                break
            tilt /= 3
        return best

    def _deviation(self) -> float:
        """The standard deviation of the total loss, roughly."""
        return math.sqrt(sum(use.count * use.spread() ** 2 for use in self.uses))

    def _cumulant(self, tilt: float) -> float:
        return sum(use.cumulant(tilt) for use in self.uses)

    def _total(self, tilt: float) -> Total:
        return total_loss([Part.of(use.count, *use.atoms(tilt), tilt) for use in self.uses], tilt, self.cells)


def _laplace_atoms(scale: float, shift: int) -> tuple[Floats, Floats]:
    """The losses (|k - v| - |k|) / b: one value for all k <= 0, one for all k >= v, and those between."""
    k = np.arange(1.0, shift)
    log_mass = math.log(-math.expm1(-1 / scale)) - math.log1p(math.exp(-1 / scale))
    end = -math.log1p(math.exp(-1 / scale))
    log_p = np.concatenate([[end], log_mass - k / scale, [end - shift / scale]])
    return log_p, np.concatenate([[shift], shift - 2 * k, [-shift]]) / scale


def _log_mass(k: Floats, deviation: float) -> Floats:
    """ln P(a normal variable rounds to k), by the tails on its far side."""
    from scipy.special import log_ndtr

    far = -np.abs(k)
    upper, lower = log_ndtr((far + 0.5) / deviation), log_ndtr((far - 0.5) / deviation)
    return upper + np.log1p(-np.exp(lower - upper))


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _least(bound: Callable[[float], float], deviation: float) -> float:
    """The tilt where a bound is least, by a scan and golden sections on its logarithm; any tilt is sound."""
    places = _LOG_TILTS - math.log(deviation)
    values = [bound(math.exp(place)) for place in places]
    best = int(np.argmin(values))
    low, high = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(20):
        one, two = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, two) if bound(math.exp(one)) < bound(math.exp(two)) else (one, high)
    return math.exp((low + high) / 2)
