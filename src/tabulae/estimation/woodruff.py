"""Quantiles of an ordered attribute within groups, by inverting tests of cumulative counts (Woodruff 1952).

The p-quantile is the smallest value v with ``T(v) = N(<= v) - p N >= 0``. With t the estimates of T and h(v) the
half-widths of intervals of level 1 - alpha about them, a value is kept where neither ``T(v) >= 0`` nor ``T(u) < 0``,
u the value before, is refused by a one-sided test of level alpha / 2:

    t(v) >= -h(v)  and  t(u) <= h(u).

Of the true quantile both hold, except with probability alpha: the noise is symmetric. All values from the first kept
one to the last are the interval.

Estimates of T need not rise from value to value. The estimate of the quantile is where the non-decreasing sequence
closest to them first reaches 0, which is the v with the least ``sum of t(u) over u < v``: the p-quantile of the
estimated distribution as the minimum of the quantile loss. It always lies in the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_STEPS = 20  # binary digits of a count that are kept where sums are compared


@dataclass(frozen=True, eq=False)
class QuantileSet:
    """Positions among the values: of the estimate, and of the first and last value that are not refused, (groups,)."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray


def crossing(t: np.ndarray) -> np.ndarray:
    """Where the non-decreasing sequence closest to t (groups, values) first reaches 0.

    >>> crossing(np.array([[-3.0, 1.0, -2.0, 2.0, 5.0]])).tolist()
    [3]
    """
    before = np.cumsum(
        np.rint(np.ldexp(t[:, :-1], _STEPS)), axis=1
    )  # exact, so that ties are ties everywhere
    return np.concatenate([np.zeros((len(t), 1)), before], axis=1).argmin(axis=1)


def woodruff(t: np.ndarray, half_width: np.ndarray) -> QuantileSet:
    """The values that the tests keep, and the estimate, from t and half-widths, (groups, values).

    Arguments:
        t: estimates of ``N(<= v) - p N``, or of a positive multiple; the last value's is that of ``(1 - p) N`` and
            positive.
        half_width: of intervals about them.

    Reference: Woodruff, "Confidence intervals for medians and other position measures", JASA 47 (1952).

    >>> t = np.array([[-9.0, -1.0, 4.0, 10.0]])
    >>> found = woodruff(t, np.full(t.shape, 2.0))
    >>> found.low.tolist(), found.estimate.tolist(), found.high.tolist()
    ([1], [2], [2])
    """
    starts = np.concatenate([np.ones((len(t), 1), dtype=bool), t[:, :-1] <= half_width[:, :-1]], axis=1)
    kept = starts & (t >= -half_width)
    last = t.shape[1] - 1
    return QuantileSet(crossing(t), kept.argmax(axis=1), last - kept[:, ::-1].argmax(axis=1))
