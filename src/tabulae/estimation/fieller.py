"""Intervals for ratios of counts: all R at which a test of ``a - R b = 0`` does not refuse.

For the true counts (alpha, beta) with ``R = alpha / beta`` the number ``a - R b`` is nothing but noise, so that the set
of all R with ``|a - R b| <= h(R)`` covers the ratio with the probability at which noise stays within h(R). Nothing is
linearised, and counts may be small (Fieller 1954).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class RatioSet:
    """Ends of the sets of ratios that are not refused, (m,); NaN where ``bounded`` is False."""

    low: np.ndarray
    high: np.ndarray
    bounded: np.ndarray


def ratio_variance(
    ratio: np.ndarray, above: np.ndarray, below: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """``Var(a - R b)`` from the variances of a and b and their covariance, all (m,)."""
    return np.maximum(above - 2 * ratio * covariance + ratio**2 * below, 0.0)


def fieller(
    a: np.ndarray,
    b: np.ndarray,
    above: np.ndarray,
    below: np.ndarray,
    covariance: np.ndarray,
    factor: np.ndarray | float,
) -> RatioSet:
    """``{R : (a - R b)^2 <= c^2 Var(a - R b)}`` with c the ``factor``: an interval where ``|b| > c sd(b)``.

    Arguments:
        a, b: estimates of numerator and denominator, (m,).
        above, below, covariance: their variances and covariance, (m,).
        factor: half-widths of a - R b in its standard deviations, (m,) or one.

    Reference: Fieller, "Some problems in interval estimation", JRSS B 16 (1954).

    >>> found = fieller(*map(np.array, ([30.0], [60.0], [4.0], [9.0], [0.0])), 2.0)
    >>> found.low.round(3).tolist(), found.high.round(3).tolist()
    ([0.421], [0.589])
    """
    square = np.asarray(factor, dtype=float) ** 2
    leading = b**2 - square * below
    bounded = (b != 0) & (leading > 0)
    safe_b, safe = np.where(bounded, b, 1.0), np.where(bounded, leading, 1.0)
    ratio = np.where(bounded, a / safe_b, 0.0)
    at = ratio_variance(ratio, above, below, covariance)
    slope = square * (covariance - ratio * below)
    root = np.sqrt(slope**2 + safe * square * at)
    low, high = ratio - (slope + root) / safe, ratio - (slope - root) / safe
    return RatioSet(np.where(bounded, low, np.nan), np.where(bounded, high, np.nan), bounded)


def box_ratios(a: np.ndarray, b: np.ndarray, wide_a: np.ndarray, wide_b: np.ndarray) -> RatioSet:
    """``{R : |a - R b| <= h_a + |R| h_b}``: an interval where ``|b| > h_b``.

    Covers where both half-widths hold at once, however the errors of a and b depend on each other.

    >>> found = box_ratios(*map(np.array, ([30.0], [60.0], [4.0], [6.0])))
    >>> found.low.round(3).tolist(), found.high.round(3).tolist()
    ([0.394], [0.63])
    """
    bounded = np.abs(b) > wide_b
    sign = np.where(b < 0, -1.0, 1.0)
    top, bottom, middle = sign * a + wide_a, sign * a - wide_a, sign * b
    less, more = np.where(bounded, middle - wide_b, 1.0), np.where(bounded, middle + wide_b, 1.0)
    high = np.where(top >= 0, top / less, top / more)
    low = np.where(bottom >= 0, bottom / more, bottom / less)
    return RatioSet(np.where(bounded, low, np.nan), np.where(bounded, high, np.nan), bounded)
