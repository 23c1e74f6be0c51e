"""Two measurements of one total, of which the first was selected: the setting, and the laws behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ...errors import InvalidArgument
from ...estimation.coverage import half_widths
from ...privacy import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from ...strategy import Profile

_SURE = 1e-9  # the chance with which noise of stage one exceeds `reach`
_WEIGHT = (
    1_000  # above, or below its inverse, one of the two measurements says next to nothing beside the other
)


@dataclass(frozen=True)
class TwoStages:
    """``y = N + e`` with the law ``first``, and ``S = N + e_1 + ... + e_cells`` with ``second``, all independent.

    y is seen only where it falls in an interval; S is drawn in any case.

    Raises:
        InvalidArgument: laws that are not both discrete Gaussian or both discrete Laplace.
    """

    first: NoiseLaw
    second: NoiseLaw
    cells: int

    def __post_init__(self) -> None:
        kinds = {type(self.first), type(self.second)}
        if kinds not in ({DiscreteGaussian}, {DiscreteLaplace}):
            raise InvalidArgument("both stages have discrete Gaussian noise, or both discrete Laplace noise")

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian."""
        return isinstance(self.first, DiscreteGaussian)

    @property
    def ratio(self) -> Fraction:
        """Var(S) / Var(y), from the parameters: the weight of y in the best combination, for a weight 1 of S."""
        quotient = self.second.parameter / self.first.parameter
        return self.cells * (quotient if self.gaussian else quotient**2)

    @property
    def plain_variance(self) -> float:
        """Var(S)."""
        return self.cells * self.second.variance_of_law

    @property
    def share(self) -> float:
        """The weight of y in ``z = (1 - share) S + share y``."""
        return float(self.ratio / (1 + self.ratio))

    @property
    def combined_variance(self) -> float:
        """Var(z), without selection."""
        return self.share**2 * self.first.variance_of_law + (1 - self.share) ** 2 * self.plain_variance

    @property
    def weights(self) -> tuple[int, int]:
        """Small integers (a, b) with a / b near ``ratio``: ``a y + b S`` is as good as z for intervals."""
        near = min(self.ratio, Fraction(_WEIGHT)).limit_denominator(_WEIGHT)
        return near.numerator, near.denominator

    @property
    def reach(self) -> int:
        """What the noise of stage one exceeds with a chance of at most 1e-9."""
        return self.first.margin(1 - Fraction(_SURE))

    def shrunk(self, factor: float) -> TwoStages:
        """The same setting in units of ``factor`` counts."""
        power = Fraction(factor) ** (2 if self.gaussian else 1)
        kind = type(self.first)
        return TwoStages(kind(self.first.parameter / power), kind(self.second.parameter / power), self.cells)

    def log_weight(self, k: np.ndarray) -> np.ndarray:
        """log P(e = k) of stage one, but for a constant."""
        parameter = float(self.first.parameter)
        return -(k * k) / (2 * parameter) if self.gaussian else -np.abs(k) / parameter


def sum_law(law: NoiseLaw, count: int) -> np.ndarray:
    """P(e_1 + ... + e_count = k) for k = -M..M, within 1e-14: Fourier coefficients of the characteristic function.

    What lies beyond M, 40 standard deviations of the sum or more, is below 1e-15.

    >>> round(float(sum_law(DiscreteGaussian(1), 2).max()), 6)
    0.282124
    """
    deviation = math.sqrt(law.variance_of_law * count)
    length = 2 ** max(8, math.ceil(math.log2(80 * deviation + 64)))
    points = 2 * np.pi * np.arange(length // 2 + 1) / length
    half = np.fft.irfft(law.characteristic(points) ** count, length)[: length // 2]
    return np.maximum(np.concatenate([half[:0:-1], half]), 0.0)


_PAID = (
    1e-8  # of coverage: for a selection that is nearly sure, for what lies beyond the sums, and for rounding
)
_TINY = 1e-13
_GRID = 28  # points for a standard deviation of y
_FINE = 400  # steps of W for a standard deviation


class ConditionalQuantiles:
    """Bounds ``low(N) <= W <= high(N)`` on ``W = a y + b S`` given that y is in an interval I.

    y given its selection, S, and W rise stochastically with N, both laws being log-concave. So bounds for one N hold,
    if wider, for all N between it and its neighbour on a grid. y is taken at the far end of lumps, W rounded away.

    Everything is relative to the low end of I. ``totals`` is the grid: up to ``reach`` outside I, and to ``reach``
    inside it where I has one end, or all of it. Elsewhere inside, ``|W - (a + b) N| <= margin``: selection is sure but
    for 2e-9 there.

    Args:
        stages: the laws.
        width: I = {0, ..., width - 1}, or {0, 1, ...} where it is None.
        miss: the chance that may be missed on each side, 1e-6 or more.
    """

    def __init__(self, stages: TwoStages, width: int | None, miss: float) -> None:
        self.a, self.b = stages.weights
        self.width = width
        self._miss = miss - _PAID
        self._step = max(1, int(math.sqrt(stages.first.variance_of_law) / _GRID))
        self._far = stages.first.margin(1 - _TINY)
        self._reach = 2 * self._far + stages.reach + 2 * self._step
        weight = np.exp(stages.log_weight(np.arange(-self._reach, self._reach + 1.0)))
        self._first = np.append(
            np.cumsum(weight[::-1])[::-1], 0.0
        )  # P(e >= k) but for a constant, from -reach
        second = sum_law(stages.second, stages.cells)
        self._most = len(second) // 2
        self._second = np.append(np.cumsum(second[::-1])[::-1], 0.0)
        deviation = math.sqrt(stages.plain_variance * (1 - stages.share))
        self._tolerance = max(1, int((self.a + self.b) * deviation / _FINE))
        end = stages.reach + (0 if width is None else width - 1)
        self.totals = np.arange(-stages.reach, end + self._step, self._step)
        self.high = self._upper(self.totals, 0, width)
        self.low = -self._upper(-self.totals[::-1], None if width is None else 1 - width, 1)[::-1]
        self.margin = int(self._upper(np.zeros(1, np.int64), None, None)[0])

    def range(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last N near I that W does not exclude; first > last where it excludes all."""
        before = np.concatenate([self.totals[:1] - 1, self.totals])
        after = np.concatenate([self.totals, self.totals[-1:] + 1])
        first = before[np.searchsorted(self.high, w, side="left")] + 1
        return first, after[np.searchsorted(self.low, w, side="right")] - 1

    def _upper(self, totals: np.ndarray, low: int | None, end: int | None) -> np.ndarray:
        """For rising N, rising x with P_N(W > x | low <= y < end) <= miss.

        Leaving out y far below, and dividing by the rest, makes W larger; what lies far above is paid for.
        """
        middle = totals if low is None else np.maximum(totals, low)
        middle = middle if end is None else np.minimum(middle, end - 1)
        start = middle - self._far if low is None else np.maximum(middle - self._far, low)
        stop = middle + self._far if end is None else np.minimum(middle + self._far, end - 1)
        bottom = start[:, None] + self._step * np.arange(int((stop - start).max()) // self._step + 1)
        top = np.minimum(bottom + self._step - 1, stop[:, None])
        mass = np.where(bottom <= top, self._between(bottom - totals[:, None], top - totals[:, None]), 0.0)
        mass /= mass.sum(axis=1, keepdims=True)
        good = self.a * stop + self.b * (totals + self._most)
        bad = self.a * start + self.b * (totals - self._most - 1)
        while np.any(good - bad > self._tolerance):
            x = (good + bad) // 2
            least = (x[:, None] - self.a * top) // self.b + 1 - totals[:, None]
            above = self._second[np.clip(least + self._most, 0, 2 * self._most + 1)]
            over = np.einsum("ij,ij->i", mass, above) > self._miss
            bad, good = np.where(over, x, bad), np.where(over, good, x)
        return np.maximum.accumulate(good)

    def _between(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """P(first <= e <= last) of stage one but for a constant, right in relative terms in either tail."""
        flip = first + last < 0
        first, last = np.where(flip, -last, first), np.where(flip, -first, last)
        ends = (np.clip(k + self._reach, 0, 2 * self._reach + 1) for k in (first, last + 1))
        return np.subtract(*(self._first[k] for k in ends))


@lru_cache(maxsize=1024)
def conditional_quantiles(stages: TwoStages, width: int | None, miss: float) -> ConditionalQuantiles:
    """The table for these laws, made once."""
    return ConditionalQuantiles(stages, width, miss)


_WIDEST = 2.0**16  # standard deviations above which the plain interval is taken
_RAREST = 1e-6
_FAR = 1 << 62


def plain_margin(law: NoiseLaw, count: int, confidence: float) -> int:
    """The least margin that is proven: ``P(|e_1 + ... + e_count| <= margin) >= confidence``.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> plain_margin(DiscreteGaussian(100), 1, 0.95), plain_margin(DiscreteGaussian(100), 8, 0.95)
    (20, 55)
    """
    number, one = np.array([[float(count)]]), np.ones((1, 1))
    profile = Profile(number, number, number, one, number)
    return math.floor(half_widths(profile, [law], [1.0], confidence).values[0])


def total_interval(
    stages: TwoStages, low: int | None, high: int | None, y: np.ndarray, s: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers l <= u with ``P_N(l <= N <= u | low <= y < high) >= confidence`` for every N.

    For each N a set of outcomes that has this probability given the selection is fixed beforehand; the interval is the
    hull of all N whose set holds the outcome (Neyman 1937). With ``W = a y + b S`` the sets are

    * near an end of the selecting interval, W between quantiles of its conditional law;
    * farther inside, the same with the law of W;
    * farther outside, where selection has a chance below 1e-9, ``|S - N| <= h``: S is independent of the selection.

    An outcome that is in no set gets ``S -+ h``. All N have the last set where there are no quantiles (noise of a
    standard deviation above 2^16, a confidence within 2e-6 of 1), and where W far inside is no better than S.

    Arguments:
        stages: the laws.
        low, high: ends of the selecting interval, None where there is none.
        y, s: both measurements, whole numbers.
        confidence: between 0 and 1.
    """
    h = plain_margin(stages.second, stages.cells, confidence)
    widest = math.sqrt(max(stages.first.variance_of_law, stages.plain_variance))
    miss = (1 - confidence) / 2
    empty = low is not None and high is not None and low >= high
    if empty or widest > _WIDEST or miss < _RAREST:
        return s - float(h), s + float(h)
    table = conditional_quantiles(stages, _narrow_width(stages, low, high), miss)
    if table.margin >= h * (table.a + table.b):
        return s - float(h), s + float(h)
    pieces, (below, above) = _near_and_inside(table, low, high, y, s)
    pieces += [(s - h, np.minimum(s + h, below)), (np.maximum(s - h, above), s + h)]
    first, last = np.full_like(s, _FAR), np.full_like(s, -_FAR)
    for start, stop in pieces:
        there = start <= stop
        np.minimum(first, start, out=first, where=there)
        np.maximum(last, stop, out=last, where=there)
    none = first > last
    return np.where(none, s - h, first), np.where(none, s + h, last)


def _near_and_inside(
    table: ConditionalQuantiles, low: int | None, high: int | None, y: np.ndarray, s: np.ndarray
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[int, int]]:
    """Ranges of N that W does not exclude, and the nearest N outside that they leave to others."""
    least, most = int(table.totals[0]), int(table.totals[-1])
    if table.width is not None and low is not None:
        return [_range(table, y - low, s - low, low, 1)], (low + least - 1, low + most + 1)
    pieces, inside, outside = [], [-_FAR, _FAR], [-_FAR, _FAR]
    if low is not None:
        pieces.append(_range(table, y - low, s - low, low, 1))
        inside[0], outside[0] = low + most + 1, low + least - 1
    if high is not None:
        last = high - 1
        pieces.append(_range(table, last - y, last - s, last, -1))
        inside[1], outside[1] = last - most - 1, last - least + 1
    w, unit = table.a * y + table.b * s, table.a + table.b
    start, stop = -((table.margin - w) // unit), (w + table.margin) // unit
    pieces.append((np.maximum(start, inside[0]), np.minimum(stop, inside[1])))
    return pieces, (outside[0], outside[1])


def _range(
    table: ConditionalQuantiles, y: np.ndarray, s: np.ndarray, origin: int, sign: int
) -> tuple[np.ndarray, np.ndarray]:
    first, last = table.range(table.a * y + table.b * s)
    return (origin + first, origin + last) if sign > 0 else (origin - last, origin - first)


def _narrow_width(stages: TwoStages, low: int | None, high: int | None) -> int | None:
    """The width of an interval whose ends are so near each other that both matter at once; else None."""
    if low is None or high is None:
        return None
    return high - low if high - low <= 3 * stages.reach + 2 else None
