"""A nearly unbiased estimate of a selected total, where no statistic is sufficient: fitted to the exact laws."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .two_stage_laws import TwoStages, sum_law

_FINEST = 48.0  # above this standard deviation of either count the integers are merged
_KNOTS = 5  # for a standard deviation of stage one, or for two of S
_PENALTY = 5e3  # of a squared bias, in units of variance
_OUTSIDE, _INSIDE = 3.0, 11.0  # standard deviations outside and inside the interval in which knots lie
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
        self._merged = max(1.0, widest / _FINEST)
        if width is not None:
            self._merged = width / math.ceil(width / self._merged)
        self._last = None if width is None else round(width / self._merged) - 1
        self._stages = merged = stages.shrunk(self._merged)
        self._far = merged.first.margin(1 - _TINY)
        first, second = math.sqrt(merged.first.variance_of_law), math.sqrt(merged.plain_variance)
        start = -math.ceil(_OUTSIDE * (first + second))
        end = math.ceil(_INSIDE * first + _WIDER * max(second - first, 0.0))
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
