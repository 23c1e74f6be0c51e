"""Intervals of linear forms of an area's counts, and of their ratios."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from ..estimation.fieller import (
    RatioSet,
    fieller,
    ratio_variance,
)
from ..estimation.ratio_factor import uniform_factor
from ..privacy import NoiseLaw
from .intervals import (
    HALF_STEP,
    area_half_widths,
    costs_half_step,
)

_ROUNDS = 4
_LARGEST = 1e9  # a factor that stands for none
_MOST_VALUES = 32  # different coefficients of a denominator that are looked at one by one


def form_half_widths(
    variance: np.ndarray, spread: np.ndarray, laws: Sequence[NoiseLaw], level: float
) -> np.ndarray:
    """Half-widths of intervals about linear forms of an area's counts.

    A form with coefficients between -b and a is the sum of counts, each weighted, of the cells with coefficients of t
    or more, t from 0 to a, less those of -t or less. So where no noise has a weight above 1 in a count, none has a
    weight above w = a + b in the form, and its interval is w times that of :func:`area_half_widths` at variance over
    w². It is the one that holds whatever the weights are, where that is shorter and w is above 1.

    Args:
        variance: of the forms; 0 where they are exact.
        spread: w, which broadcasts with ``variance``.
        laws: of the noise, all of one kind.
        level: of the intervals.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> found = form_half_widths(np.array([100.0, 100.0]), np.array([1.0, 2.0]), [DiscreteGaussian(100)], 0.95)
    >>> found.round(2).tolist()
    [20.1, 20.6]
    """
    grid = spread * area_half_widths(variance / spread**2, laws, level)
    free = min(uniform_factor(laws, level), _LARGEST) * np.sqrt(variance)
    return np.where((spread > 1) & (free < grid), free, grid)


def extreme_pairs(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Pairs of coefficients among which those of ``a - R b`` are largest and smallest, whatever R: shape (2, pairs).

    Args:
        above, below: coefficients of a and b in the same cells, any shape.
    """
    a, b = above.ravel(), below.ravel()
    values = np.unique(b)
    if values.size > _MOST_VALUES:
        corners = [(x, y) for x in (a.min(), a.max(), 0.0) for y in (values[0], values[-1], 0.0)]
        return np.array(corners).T
    ends = [(end(a[b == value]), value) for value in values for end in (np.min, np.max)]
    return np.array([*ends, (0.0, 0.0)]).T


def area_ratios(
    estimates: tuple[np.ndarray, np.ndarray],
    moments: tuple[np.ndarray, np.ndarray, np.ndarray],
    pairs: np.ndarray,
    laws: Sequence[NoiseLaw],
    level: float,
) -> RatioSet:
    """Fieller's sets of ratios of linear forms, with a factor that holds on all of each set.

    For every R the half-width of a - R b is at most ``c sd``, c as of :func:`uniform_factor`, and where noise is
    Gaussian with variance 1 or more at most ``z sd + w(R) / 2``, w(R) how far its coefficients spread. On an interval
    of R the latter is at most ``(z + max w / (2 min sd)) sd``; w is convex, so that its maximum is at an end.

    Args:
        estimates: a and b.
        moments: Var a, Var b and their covariance, of the same shape.
        pairs: of :func:`extreme_pairs`.
        laws: of the noise, all of one kind.
        level: of the tests.
    """
    a, b = estimates
    factor = np.full(a.shape, min(uniform_factor(laws, level), _LARGEST))
    found = fieller(a, b, *moments, factor)
    if not costs_half_step(laws):
        return found
    quantile = float(ndtri((1 + level) / 2))
    _, below, covariance = moments
    for _ in range(_ROUNDS):
        low, high = (np.where(found.bounded, end, 0.0) for end in (found.low, found.high))
        turn = np.divide(covariance, below, out=np.copy(low), where=below > 0)
        least = np.sqrt(ratio_variance(np.clip(turn, low, high), *moments))
        wide = np.maximum(_spread(pairs, low), _spread(pairs, high))
        grid = np.divide(HALF_STEP * wide, least, out=np.full(a.shape, np.inf), where=least > 0)
        factor = np.where(found.bounded, np.minimum(factor, quantile + grid), factor)
        found = fieller(a, b, *moments, factor)
    return found


def _spread(pairs: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """w(R): the largest coefficient of a - R b less the smallest, 0 among them."""
    top, bottom = np.zeros(ratio.shape), np.zeros(ratio.shape)
    for above, below in pairs.T:
        value = above - ratio * below
        top, bottom = np.maximum(top, value), np.minimum(bottom, value)
    return top - bottom
