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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidArgument, Unsupported
from ..loss.exact_numbers import Exact, float_up, positive, probability
from .laws import Floats, NoiseLaw, log_sum

_LEAST_CELLS, _MOST_CELLS = 1 << 17, 1 << 20
_SPREAD = 4e-7  # of the variance of the total may come from splitting atoms
_OUTSIDE = 1e-17  # mass of the tilted total outside the window
_LARGEST = 1e6  # deviation of a total loss that is worked out: rho is half its square
_RESOLUTION = 1e-9  # of the largest loss: steps of the grid are no finer
_ALLOWANCE = 1e-9  # of the Chernoff bound, for the errors of floats; they are below 1e-12 of it


@dataclass(frozen=True)
class RepeatedLoss:
    """The losses of equal uses, with probabilities, and with those of the law tilted by e^{tilt L}."""

    count: int
    losses: Floats
    log_p: Floats
    log_tilted: Floats
    mean: float
    variance: float

    @classmethod
    def of(cls, count: int, log_p: Floats, losses: Floats, tilt: float) -> RepeatedLoss:
        """The part of ``count`` equal uses with these atoms; very many are spread over a grid first."""
        log_p, losses = _condensed(log_p, losses, tilt)
        log_tilted = log_p + tilt * losses
        log_tilted -= log_sum(log_tilted)
        tilted = np.exp(log_tilted)
        mean = float(tilted @ losses)
        return cls(count, losses, log_p, log_tilted, mean, float(tilted @ (losses - mean) ** 2))

    def centred_cumulant(self, rate: float) -> float:
        """ln E e^{rate (L - mean)} under the tilted law."""
        return log_sum(self.log_tilted + rate * (self.losses - self.mean))


@dataclass(frozen=True)
class SummedLoss:
    """The law of the total loss: mass m_j e^{log_scale - tilt (g_j - centre)} at each grid point g_j."""

    grid: Floats
    masses: Floats
    centre: float
    tilt: float
    log_scale: float

    def _above(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Grid points; for each the integrals of 1 and of e^{centre - X} over X above it; the slack there."""
        reach = 600 / (self.tilt + 1)  # exponentials beyond would overflow; nothing is asked for there
        inside = np.abs(self.grid - self.centre) < reach
        offset, masses = self.grid[inside] - self.centre, self.masses[inside]
        first, second = masses * np.exp(-self.tilt * offset), masses * np.exp(-(self.tilt + 1) * offset)
        slack = _ALLOWANCE * np.exp(-self.tilt * offset)
        return offset, _sums_after(first), _sums_after(second), slack

    def epsilon(self, log_delta: float) -> tuple[float, float]:
        """The least epsilon whose delta, with the slack, is at most the one given; the slack's part in it."""
        target = math.exp(min(log_delta - self.log_scale, 700.0))
        offset, first, second, slack = self._above()
        values = first - np.exp(offset) * second + slack
        i = int(np.argmax(values <= target))
        if values[i] > target:
            return math.inf, math.inf
        best, before = float(offset[i]), max(i - 1, 0)
        if i > 0 and second[before] > 0 and target > slack[before]:
            crossing = math.log((first[before] - target + slack[before]) / second[before])
            best = min(best, max(crossing, float(offset[before])))
        return max(0.0, math.nextafter(self.centre + best, math.inf)), float(slack[before]) / target

    def delta(self, epsilon: float) -> tuple[float, float]:
        """The delta at epsilon, with the slack; the slack's part in it."""
        offset, first, second, slack = self._above()
        place = epsilon - self.centre
        if place < offset[0]:
            return 1.0, math.inf
        i = int(np.searchsorted(offset, place, side="right")) - 1
        value = float(first[i] - math.exp(place) * second[i] + slack[i])
        log_delta = self.log_scale + math.log(value)
        return math.exp(min(log_delta, 0.0)), float(slack[i]) / value


def total_loss(parts: Sequence[RepeatedLoss], tilt: float, cells: int = _LEAST_CELLS) -> SummedLoss:
    """The tilted law of the sum, on a grid whose step and window suit it.

    Privacy: dominates the true law of the sum, up to the slack that ``Total`` adds to every answer.
    """
    count = sum(part.count for part in parts)
    variance = sum(part.count * part.variance for part in parts)
    spread = _SPREAD * (_LEAST_CELLS / cells) ** 2
    step = min(math.sqrt(4 * spread * variance / count), 0.02 / tilt)
    step = max(step, _RESOLUTION * max(float(np.abs(part.losses).max()) for part in parts))
    window = _window(parts)
    step = min(step, 2 * window / cells)
    cells = 1 << math.ceil(math.log2(2 * window / step + 4 * count + 1024))
    while cells > _MOST_CELLS:
        cells, step = cells // 2, 2 * step
    return _convolve(parts, tilt, step, cells)


def _convolve(parts: Sequence[RepeatedLoss], tilt: float, step: float, cells: int) -> SummedLoss:
    """Split every atom between its neighbours on the grid, tilt, and multiply the transforms."""
    spectrum, shift, cumulant = np.ones(cells // 2 + 1, np.complex128), 0, 0.0
    for part in parts:
        middle = round(part.mean / step)
        top, pieces = _split(part.log_p, part.losses, tilt, step)
        masses = np.zeros(cells)
        for places, weights in pieces:
            masses += np.bincount((places - middle) % cells, weights, cells)
        total = float(masses.sum())
        spectrum *= _power(np.fft.rfft(masses / total), part.count)
        shift += part.count * middle
        cumulant += part.count * (top + math.log(total))
    folded = np.fft.irfft(spectrum, cells)
    masses = np.maximum(np.concatenate([folded[cells // 2 :], folded[: cells // 2]]), 0.0)
    grid = step * (shift + np.arange(-(cells // 2), cells - cells // 2)).astype(np.float64)
    centre = float(masses @ grid)
    return SummedLoss(grid, masses, centre, tilt, cumulant - tilt * centre)


def _split(
    log_p: Floats, losses: Floats, tilt: float, step: float
) -> tuple[float, list[tuple[NDArray[np.int64], Floats]]]:
    """Each atom as two on the grid that keep its mass under both neighbours; tilted, in units of e^top."""
    index = np.floor(losses / step)
    upper = np.expm1(index * step - losses) / math.expm1(-step)
    scale = log_p + tilt * losses
    top = float(scale.max())
    return top, [
        (places.astype(np.int64), share * np.exp(scale - top + tilt * (places * step - losses)))
        for places, share in ((index, 1 - upper), (index + 1, upper))
    ]


def _condensed(log_p: Floats, losses: Floats, tilt: float) -> tuple[Floats, Floats]:
    """The same atoms, or where they are very many their spread over a fine grid."""
    if losses.size <= _LEAST_CELLS:
        return log_p, losses
    step = float(np.ptp(losses)) / _LEAST_CELLS
    top, pieces = _split(log_p, losses, tilt, step)
    low = min(int(places.min()) for places, _ in pieces)
    masses = np.zeros(_LEAST_CELLS + 4)
    for places, weights in pieces:
        masses += np.bincount(places - low, weights, masses.size)
    kept = np.flatnonzero(masses)
    grid = step * (low + kept).astype(np.float64)
    return np.log(masses[kept]) + top - tilt * grid, grid


def _window(parts: Sequence[RepeatedLoss]) -> float:
    """Half the width of a window around the mean of the tilted total, by Chernoff's bound on either side."""
    # At a loss of thousands and more the tilted law is one atom to a float: its deviation rounds to 0.
    least = _RESOLUTION * max(float(np.abs(part.losses).max()) for part in parts)
    deviation = max(math.sqrt(sum(part.count * part.variance for part in parts)), least)
    highest = sum(part.count * (float(part.losses.max()) - part.mean) for part in parts)
    lowest = sum(part.count * (part.mean - float(part.losses.min())) for part in parts)
    widest = 0.0
    for sign in (-1.0, 1.0):
        bounds = [math.inf]
        for rate in np.geomspace(0.3, 30, 21) / deviation:
            tail = sum(part.count * part.centred_cumulant(sign * rate) for part in parts)
            bounds.append((tail - math.log(_OUTSIDE)) / rate)
        widest = max(widest, min(bounds))
    return min(max(highest, lowest), widest)


def _sums_after(values: Floats) -> Floats:
    """For each entry, the sum of those after it."""
    return np.append(np.cumsum(values[:0:-1])[::-1], 0.0)


def _power(values: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    result = np.ones_like(values)
    while count:
        if count & 1:
            result *= values
        values, count = values * values, count >> 1
    return result


_LOG_TILTS = np.linspace(math.log(1e-2), math.log(60.0), 37)  # times the deviation of the total loss
_MOST_TILTS, _SMALL_SLACK = 12, 1e-4


@dataclass(frozen=True)
class Use:
    """``count`` answers with independent noise of one law, each shifted by at most ``shift`` by one record.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> Use(DiscreteGaussian(9)).count
    1
    """

    law: NoiseLaw
    shift: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if self.shift < 1 or self.count < 1:
            raise InvalidArgument(f"shift is {self.shift} and count is {self.count}; both must be positive")


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

    >>> from tabulae.privacy import DiscreteGaussian
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
            Unsupported: noise whose loss takes too many values, or is too large for floats.

        Privacy: an upper bound; see the class.
        """
        log_delta = _log(probability(delta, "delta"))
        tilt = _least(lambda t: (self._cumulant(t) - log_delta) / t, self._deviation())
        least = self._best(tilt, lambda total: total.epsilon(log_delta))
        largest = [use.law.largest_loss(use.shift) for use in self.uses]
        if None not in largest:
            total = sum(
                (use.count * one for use, one in zip(self.uses, largest, strict=True) if one), Fraction(0)
            )
            least = min(least, float_up(total))
        return least

    def delta(self, epsilon: Exact) -> float:
        """The least delta that holds at epsilon, up to the error of the grid.

        Raises:
            InvalidArgument: an epsilon that is not positive.
            Unsupported: noise whose loss takes too many values, or is too large for floats.

        Privacy: an upper bound; see the class.
        """
        target = float(positive(epsilon, "epsilon"))
        tilt = _least(lambda t: self._cumulant(t) - target * t, self._deviation())
        return self._best(tilt, lambda total: total.delta(target))

    def _best(self, tilt: float, answer: Callable[[SummedLoss], tuple[float, float]]) -> float:
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
        """The standard deviation of the total loss, roughly.

        Raises:
            Unsupported: it is beyond what floats can resolve.
        """
        deviation = math.sqrt(sum(use.count * (use.shift / use.law.size) ** 2 for use in self.uses))
        if deviation > _LARGEST:
            raise Unsupported(
                f"the noise is so small that its privacy loss is about {deviation**2:.0e}: it hides nothing, and no "
                "epsilon is worked out for it; ask for less budget"
            )
        return deviation

    def _cumulant(self, tilt: float) -> float:
        return sum(use.count * use.law.loss_cumulant(use.shift, tilt) for use in self.uses)

    def _total(self, tilt: float) -> SummedLoss:
        return total_loss(
            [RepeatedLoss.of(use.count, *use.law.loss_atoms(use.shift, tilt), tilt) for use in self.uses],
            tilt,
            self.cells,
        )


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
