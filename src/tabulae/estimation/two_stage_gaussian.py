"""The conditionally unbiased estimate of a selected total, under Gaussian noise."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

from .two_stage_laws import TwoStages

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
