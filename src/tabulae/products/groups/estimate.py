"""Estimates of adaptively tabulated groups: both stages combined, the selection of the first taken into account."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...errors import InvalidArgument
from .levels import TOTAL, TOTAL_ONLY, PopulationLevel
from .two_stage_laws import TwoStages, plain_margin, sum_law, total_interval

_STEPS = 32  # points of the table in one deviation of y given z
_BEYOND, _INSIDE = 40, 10  # deviations outside and inside the interval that the table covers
_TERMS = 9  # deviations that a sum covers
_FINEST = 256.0  # above this deviation of y given z the integers are merged


class SelectedGaussian:
    """What selection takes from ``z``: ``T = z + shift`` and ``Var T = Var z + excess``, both functions of z.

    Given z, y is discrete Gaussian of mean z and variance ``tau^2 = v1^2 / (v1 + m v2)``, cut to the interval, and
    ``S = z + (m v2 / v1)(z - y)``. So ``T = E[S | z, y in I] = z + (m v2 / v1)(z - E[y | z, y in I])`` and

        Var T  is estimated by  m v2 - (m v2 / v1)^2 Var(y | z, y in I).

    which is never below Var z. Both sums run over the integers of I, relative to the nearest one, so that nothing
    underflows however far out z is; they are tabulated and interpolated.

    Args:
        stages: both laws, of variance 1 or more.
        width: I = {0, ..., width - 1}, or {0, 1, ...} where it is None.
    """

    def __init__(self, stages: TwoStages, width: int | None) -> None:
        v1 = float(stages.first.parameter)
        self._ratio, self._share = float(stages.ratio), stages.share
        self._variance = v1 / (1 + self._ratio)
        self._merged = max(1.0, math.sqrt(self._variance) / _FINEST)
        if width is not None:
            self._merged = width / math.ceil(width / self._merged)
        self._last = None if width is None else round(width / self._merged) - 1
        self._tau = math.sqrt(self._variance) / self._merged
        high = _INSIDE * self._tau if self._last is None else self._last + _BEYOND * self._tau
        points = np.linspace(-_BEYOND * self._tau, high, math.ceil((high / self._tau + _BEYOND) * _STEPS) + 1)
        mean, variance = self._moments(points)
        self._ends = float(points[0]), float(points[-1])
        from scipy.interpolate import CubicSpline  # heavy

        self._table = CubicSpline(points, np.column_stack([points - mean, variance]))

    def __call__(self, y: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shift and excess, for float arrays y and s relative to the interval's low end."""
        z = (s + self._share * (y - s) + 0.5) / self._merged - 0.5
        missing, variance = np.zeros_like(z), np.full_like(z, self._tau**2)
        near = (z >= self._ends[0]) & (z <= self._ends[1])
        missing[near], variance[near] = self._table(z[near]).T
        far = z < self._ends[0]
        missing[far], variance[far] = self._far(z[far])
        if self._last is not None:
            far = z > self._ends[1]
            missing[far], variance[far] = self._far(self._last - z[far])
            missing[far] *= -1
        shift = self._ratio * missing * self._merged
        excess = self._ratio**2 * (self._variance - variance * self._merged**2)
        return shift, np.maximum(excess, 0.0)

    def _moments(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of y given z, by sums over the integers of the interval near its most likely one."""
        terms = 2 * math.ceil(_TERMS * self._tau) + 3
        latest = np.inf
        if self._last is not None:
            terms = min(terms, self._last + 1)
            latest = self._last + 1 - terms
        start = np.clip(np.floor(z - _TERMS * self._tau), 0, latest)
        y = start[:, None] + np.arange(terms)
        weight = -((y - z[:, None]) ** 2) / (2 * self._tau**2)
        weight = np.exp(weight - weight.max(axis=1, keepdims=True))
        total = weight.sum(axis=1)
        mean = (weight * y).sum(axis=1) / total
        return mean, (weight * (y - mean[:, None]) ** 2).sum(axis=1) / total

    def _far(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z minus the mean, and the variance, far below the interval: y is geometric there, cut at the other end."""
        angle = (0.5 - z) / self._tau**2
        odds = np.exp(-angle) / -np.expm1(-angle)
        if self._last is None:
            return z - odds, odds * (1 + odds)
        n = self._last + 1
        cut = n * np.exp(-n * angle) / -np.expm1(-n * angle)
        return z - (odds - cut), odds * (1 + odds) - cut * (n + cut)


@lru_cache(maxsize=1024)
def selected_gaussian(stages: TwoStages, width: int | None) -> SelectedGaussian:
    """The table for these laws, made once."""
    return SelectedGaussian(stages, width)


_FITTED_FINEST = 48.0  # above this standard deviation of either count the integers are merged
_KNOTS = 5  # for a standard deviation of stage one, or for two of S
_PENALTY = 5e3  # of a squared bias, in units of variance
_OUTSIDE, _FITTED_INSIDE = 3.0, 11.0  # standard deviations outside and inside the interval in which knots lie
_WIDER = 4.0  # standard deviations of S inside, where these are the larger ones
_RIDGE = 1e-12
_TINY = 1e-13
_BENDING, _LEAST = 0.3, 0.5  # of estimated variances


class FittedSelection:
    """``T = S + b(S) (y - S) - r(S)``: what a selected y adds to the plain S, less what its selection is worth.

    Far inside the interval b is y's weight without selection. Far below it, Laplace noise leaves y without any
    information on N (geometric laws have no memory), and b is 0. Given N, y and S are independent, so the mean and the
    variance of T are quadratic in the values of b and r at knots, and those that minimise

        sum over N of  Var_N(T) + penalty * (E_N T - N)^2

    solve one linear system. Called with y and S, relative to the low end of the interval, it returns what has to be
    added to the combination z without selection, and to its variance.

    Args:
        stages: both laws.
        width: I = {0, ..., width - 1}, or {0, 1, ...} where it is None.
    """

    def __init__(self, stages: TwoStages, width: int | None) -> None:
        widest = math.sqrt(max(stages.first.variance_of_law, stages.plain_variance))
        self._merged = max(1.0, widest / _FITTED_FINEST)
        if width is not None:
            self._merged = width / math.ceil(width / self._merged)
        self._last = None if width is None else round(width / self._merged) - 1
        self._stages = merged = stages.shrunk(self._merged)
        self._far = merged.first.margin(1 - _TINY)
        first, second = math.sqrt(merged.first.variance_of_law), math.sqrt(merged.plain_variance)
        start = -math.ceil(_OUTSIDE * (first + second))
        end = math.ceil(_FITTED_INSIDE * first + _WIDER * max(second - first, 0.0))
        end = end if self._last is None else self._last - start
        gap = max(1.0, first / _KNOTS, second / (2 * _KNOTS))
        self._knots = np.linspace(start, end, math.ceil((end - start) / gap) + 1)
        law = sum_law(merged.second, merged.cells)
        reach = min(math.ceil(8 * second) + 2, len(law) // 2)
        self._noise = np.arange(-reach, reach + 1)
        self._chance = law[len(law) // 2 - reach : len(law) // 2 + reach + 1]
        beyond = math.ceil(4 * second)
        grid = np.linspace(start - beyond, end + beyond, 2 * len(self._knots))
        self._totals = np.unique(np.rint(grid))
        means = np.array([self._chance @ self._hats(n + self._noise) for n in self._totals])
        self._weight, self._bias = self._fit()
        self._variance = self._fit_variance(means)

    def __call__(self, y: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shift and excess, for float arrays y and s relative to the interval's low end."""
        y, s = ((x + 0.5) / self._merged - 0.5 for x in (y, s))
        weight, bias = (np.interp(s, self._knots, values) for values in (self._weight, self._bias))
        shift = (weight - self._stages.share) * (y - s) - bias
        excess = np.interp(s, self._knots, self._variance) - self._stages.combined_variance
        return self._merged * shift, self._merged**2 * excess

    def _first(self, total: float) -> tuple[float, float]:
        """Mean and variance of y given its selection."""
        last = math.inf if self._last is None else self._last
        near = min(max(total, 0.0), last)
        y = np.arange(max(near - self._far, 0.0), min(near + self._far, last) + 1)
        weight = self._stages.log_weight(y - total)
        weight = np.exp(weight - weight.max())
        mean = float(weight @ y / weight.sum())
        return mean, float(weight @ (y - mean) ** 2 / weight.sum())

    def _spread(self, total: float) -> float:
        """Var T, for one N."""
        mean, variance = self._first(total)
        s = total + self._noise
        weight, bias = (np.interp(s, self._knots, values) for values in (self._weight, self._bias))
        given = s + weight * (mean - s) - bias
        centre = self._chance @ given
        return float(self._chance @ ((given - centre) ** 2 + weight**2 * variance))

    def _fit(self) -> tuple[np.ndarray, np.ndarray]:
        """b and r at the knots: the minimum of the sum over N, with b and r given at both ends."""
        k = len(self._knots)
        matrix, right = np.zeros((2 * k, 2 * k)), np.zeros(2 * k)
        for total in self._totals:
            mean, variance = self._first(total)
            s = total + self._noise
            hats = self._hats(s)
            weighted = hats * self._chance[:, None]
            apart = mean - s
            both = weighted.T @ (hats * apart[:, None])
            square = weighted.T @ (hats * (apart**2 + variance)[:, None])
            matrix += np.block([[square, -both], [-both.T, weighted.T @ hats]])
            error = s - total
            right += np.concatenate([weighted.T @ (apart * error), -(weighted.T @ error)])
            slope = np.concatenate([weighted.T @ apart, -weighted.sum(axis=0)])
            matrix += _PENALTY * np.outer(slope, slope)
            right += _PENALTY * slope * (self._chance @ error)
        solution = np.zeros(2 * k)
        solution[k - 1] = self._stages.share if self._last is None else 0.0
        free = np.setdiff1d(np.arange(2 * k), [0, k - 1, k, 2 * k - 1])
        right += matrix @ solution
        matrix = matrix[np.ix_(free, free)]
        matrix += _RIDGE * np.trace(matrix) / len(free) * np.eye(len(free))
        solution[free] = -np.linalg.solve(matrix, right[free])
        return solution[:k], solution[k:]

    def _fit_variance(self, means: np.ndarray) -> np.ndarray:
        """Values at the knots of a function of S whose mean is Var T: least squares, bending penalised."""
        true = np.array([self._spread(n) for n in self._totals])
        bending = _BENDING / self._stages.plain_variance * np.diff(np.eye(len(self._knots)), 2, axis=0)
        wanted = np.concatenate([np.ones(len(true)), np.zeros(len(bending))])
        fitted = np.linalg.lstsq(np.vstack([means / true[:, None], bending]), wanted, rcond=None)[0]
        return np.clip(fitted, true.min() * _LEAST, true.max() / _LEAST)

    def _hats(self, s: np.ndarray) -> np.ndarray:
        """Weights of the knots in linear interpolation at s, constant beyond the ends: shape (s, knots)."""
        last = len(self._knots) - 1
        place = np.clip((s - self._knots[0]) / (self._knots[1] - self._knots[0]), 0, last)
        left = np.minimum(place.astype(np.int64), last - 1)
        hats, rows = np.zeros((s.size, last + 1)), np.arange(s.size)
        hats[rows, left] = 1 - (place - left)
        hats[rows, left + 1] = place - left
        return hats


@lru_cache(maxsize=1024)
def fitted_selection(stages: TwoStages, width: int | None) -> FittedSelection:
    """The fit for these laws, made once."""
    return FittedSelection(stages, width)


# In standard deviations of stage one, plus a third of S's: ends of an interval farther apart are treated one by one.
_NEAR = 24
# From this variance on, Gaussian noise on integers is as good as continuous.
_SMOOTH = 1
# Below this variance of one count, the plain count is taken.
_QUIET = 0.25


@dataclass(frozen=True, eq=False)
class GroupEstimates:
    """Arrays of one shape: estimates, their variances, and ends of intervals that hold the estimates."""

    estimate: np.ndarray
    variance: np.ndarray
    ci_low: np.ndarray
    ci_high: np.ndarray


def total_estimates(
    level: PopulationLevel, rung: int, stage_one: np.ndarray, second: np.ndarray, confidence: float
) -> GroupEstimates:
    """Totals of groups of one rung, from both stages.

    With y the count of stage one, S that of stage two (the sum of m cells), v1 and m v2 their variances, and
    ``z = (m v2 y + v1 S) / (v1 + m v2)``, the estimate is ``T = E[S | z, y chose this rung]``. Under Gaussian noise z
    is sufficient, so T is unbiased given the rung for every true total, and of least variance; far from the thresholds
    it is z. Under Laplace noise, and Gaussian noise of a variance below 1, T is fitted: its bias given the rung is
    below half a percent of the standard deviation of S for production's shares, and of the order of 1 % for others.

    Arguments:
        level: public: laws and thresholds.
        rung: the table, TOTAL, or TOTAL_ONLY: one count at the whole budget, and ``stage_one`` is not read; nor is it
            where public counts chose the tables, so that S is all that there is.
        stage_one, second: noisy counts, int64, shape (n,).
        confidence: of the intervals, between 0 and 1, given the rung, whatever the true total.

    Raises:
        InvalidArgument: a rung that the level does not have, or counts of different lengths.

    Reference: Cohen and Sackrowitz 1989; Bowden and Glimm 2008, for trials that drop treatments half-way.

    Privacy:
        Post-processing: reads public measurements alone.

    >>> from fractions import Fraction
    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.domain.groups import CodeFamily, Group, GroupMap
    >>> from tabulae.domain.groups import Ladder
    >>> from tabulae.domain.groups import Regions
    >>> groups = GroupMap((CodeFamily("origin", ("a",)),), (Group("A", "1", "origin", "any"),), [("A", "a")])
    >>> ladder = Ladder.of({"sex": 2}, [("sex", {"sex": (["F", "M"], [0, 1])})])
    >>> states = Regions("state", ("s",), np.array([0]))
    >>> budget, threshold = ZCDP(Fraction(1, 100)), 100
    >>> level = PopulationLevel(
    ...     states, "1", groups.at("1", "state"), ladder, (threshold,), budget, Fraction(1, 2)
    ... )
    >>> got = total_estimates(level, 1, np.array([105, 505]), np.array([90, 490]), 0.95)
    >>> got.estimate.round(1).tolist(), np.sqrt(got.variance).round(1).tolist()
    ([91.4, 500.0], [12.2, 8.2])
    """
    y, s = np.asarray(stage_one, np.int64), np.asarray(second, np.int64)
    if rung == TOTAL_ONLY or level.first is None:
        law, cells = (level.whole, 1) if rung == TOTAL_ONLY else (level.second, _cells(level, rung))
        margin, plain = plain_margin(law, cells, confidence), s.astype(float)
        variance = np.full_like(plain, cells * law.variance_of_law)
        return GroupEstimates(plain, variance, plain - margin, plain + margin)
    if y.shape != s.shape or y.ndim != 1:
        raise InvalidArgument(f"one count of each stage for each group: shapes {y.shape} and {s.shape}")
    stages, (low, high) = TwoStages(level.first, level.second, _cells(level, rung)), level.interval_of(rung)
    estimate, variance = combined(stages, low, high, y, s)
    first, last = total_interval(stages, low, high, y, s, confidence)
    return GroupEstimates(estimate, variance, np.minimum(first, estimate), np.maximum(last, estimate))


def cell_estimates(
    level: PopulationLevel, rung: int, stage_one: np.ndarray, cells: np.ndarray, confidence: float
) -> GroupEstimates:
    """Cells of the tables of one rung, shifted alike so that they add up to the estimate of the total.

    ``c_j + (T - S) / m`` is what the estimate of :func:`total_estimates` says of a cell: given the rung it is as
    unbiased as T is, and its variance is ``v2 - (m v2 - Var T) / m^2``. The interval is the one of c_j, whose noise is
    independent of the selection, and is lengthened where it does not hold the estimate.

    Arguments:
        level, rung, stage_one, confidence: as for :func:`total_estimates`; not TOTAL_ONLY.
        cells: noisy cells, int64, shape (n, m).

    Raises:
        InvalidArgument: as there, or cells that do not fit the rung.

    Privacy:
        Post-processing: reads public measurements alone.
    """
    cells = np.asarray(cells, np.int64)
    m = _cells(level, rung)
    if cells.ndim != 2 or cells.shape[1] != m:
        raise InvalidArgument(
            f"{level.name}: the table of rung {rung} has {m} cells, not shape {cells.shape}"
        )
    s = cells.sum(axis=1)
    total = total_estimates(level, rung, stage_one, s, confidence)
    estimate = cells + ((total.estimate - s) / m)[:, None]
    v2, margin = level.second.variance_of_law, plain_margin(level.second, 1, confidence)
    variance = np.broadcast_to((v2 - (m * v2 - total.variance) / m**2)[:, None], estimate.shape).copy()
    ends = np.minimum(cells - margin, estimate), np.maximum(cells + margin, estimate)
    return GroupEstimates(estimate, variance, *ends)


def _cells(level: PopulationLevel, rung: int) -> int:
    if not TOTAL <= rung <= len(level.ladder.rungs):
        raise InvalidArgument(
            f"{level.name}: there is no rung {rung}; the highest is {len(level.ladder.rungs)}"
        )
    return 1 if rung == TOTAL else level.ladder.rungs[rung - 1].cells


def combined(
    stages: TwoStages, low: int | None, high: int | None, y: np.ndarray, s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The estimate T of each total, and an estimate of its variance, given that y chose the rung.

    Where the ends of [low, high) are far apart their corrections of z add up. Plain S is taken for noise so quiet that
    integers are coarse beside it, and for an interval so narrow that a y in it says nothing of N.

    Arguments:
        stages: the laws.
        low, high: ends of the selecting interval, None where there is none.
        y, s: both measurements, int64.
    """
    ends = [] if low is None else [(1, low)]
    if high is not None:
        ends.append((-1, high - 1))
    width = None
    wider = max(stages.first.variance_of_law, stages.plain_variance) ** 0.5
    far = _NEAR * (stages.first.variance_of_law**0.5 + stages.plain_variance**0.5 / 3)
    if low is not None and high is not None and high - low <= far:
        width, ends = high - low, ends[:1]
    quiet = min(stages.first.variance_of_law, stages.second.variance_of_law) < _QUIET
    if ends and (quiet or (width is not None and _NEAR * width < wider)):
        return s.astype(float), np.full(s.shape, stages.plain_variance)
    estimate = s + stages.share * (y - s)
    variance = np.full(s.shape, stages.combined_variance)
    for sign, end in ends:
        correction = _correction(stages, width)
        shift, excess = correction(sign * (y - end).astype(float), sign * (s - end).astype(float))
        estimate += sign * shift
        variance += excess
    return estimate, variance


def _correction(stages: TwoStages, width: int | None) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """The estimate from z where it is as good as sufficient, a fitted one elsewhere."""
    if stages.gaussian and min(stages.first.parameter, stages.second.parameter) >= _SMOOTH:
        return selected_gaussian(stages, width)
    return fitted_selection(stages, width)
