"""Estimates of adaptively tabulated groups: both stages combined, the selection of the first taken into account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgument
from ..products.groups.levels import TOTAL, TOTAL_ONLY, PopulationLevel
from .two_stage_fitted import fitted_selection
from .two_stage_gaussian import selected_gaussian
from .two_stage_interval import plain_margin, total_interval
from .two_stage_laws import TwoStages

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
        rung: the table, TOTAL, or TOTAL_ONLY: one count at the whole budget, and ``stage_one`` is not read.
        stage_one, second: noisy counts, int64, shape (n,).
        confidence: of the intervals, between 0 and 1, given the rung, whatever the true total.

    Raises:
        InvalidArgument: a rung that the level does not have, or counts of different lengths.

    Reference: Cohen and Sackrowitz 1989; Bowden and Glimm 2008, for trials that drop treatments half-way.

    Privacy:
        Post-processing: reads public measurements alone.

    >>> from fractions import Fraction
    >>> from tabulae.privacy import ZCDP
    >>> from tabulae.domain.groups import Family, Group, GroupMap
    >>> from tabulae.domain.groups import Ladder
    >>> from tabulae.domain.groups import Regions
    >>> groups = GroupMap((Family("origin", ("a",)),), (Group("A", "1", "origin", "any"),), [("A", "a")])
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
    if rung == TOTAL_ONLY:
        margin = plain_margin(level.whole, 1, confidence)
        whole = s.astype(float)
        return GroupEstimates(
            whole, np.full_like(whole, level.whole.variance_of_law), whole - margin, whole + margin
        )
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
