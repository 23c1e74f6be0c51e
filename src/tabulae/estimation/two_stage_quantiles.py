"""Quantiles of a combination of two measurements given the selection of one of them."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .two_stage_laws import TwoStages, sum_law

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
