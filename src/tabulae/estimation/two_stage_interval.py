"""Intervals for a total of which one of two measurements was selected: exact coverage given the selection."""

from __future__ import annotations

import math

import numpy as np

from ..privacy import NoiseLaw
from ..strategy import Profile
from .coverage import half_widths
from .two_stage_laws import TwoStages
from .two_stage_quantiles import ConditionalQuantiles, conditional_quantiles

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
