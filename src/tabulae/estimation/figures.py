"""Derived figures: sums, ratios and quantiles of counts with errors and intervals, whichever product made the counts.

The product says what least squares knows of the tables (:class:`KnownCounts`); the rules here are Fieller's for
ratios, Woodruff's for quantiles, and the delta method for the standard errors of sums. A table's answers stand in its
own units throughout: what a figure multiplies them by comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np

from ..domain import Bracket, Domain, Figure, Linear, Quantile, Ratio, Table, Variance
from .statistics import RatioSet, box_ratios, crossing, delta_error, interpolated, ratio_variance, woodruff

_ESTIMATED, _EXACT, _NOT_ESTIMABLE = range(3)


class OtherCounts(Protocol):
    """Estimates that are published instead of those of least squares, with intervals that contain them."""

    def estimate(self, table: Table) -> np.ndarray:
        """Answers of a table, (..., m)."""
        ...

    def half_widths(self, table: Table, level: float) -> np.ndarray:
        """Half-widths about these answers, (..., m)."""
        ...

    def never_negative(self, linear: Linear) -> np.ndarray:
        """Rows of which it is known that no record counts negatively, (..., m)."""
        ...


class KnownCounts(Protocol):
    """What least squares knows of the tables of one figure, row by row: arrays are (..., m), m rows of a table."""

    @property
    def domain(self) -> Domain: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the figure's numbers."""
        ...

    @property
    def other(self) -> OtherCounts | None:
        """The estimates that are published, where they are others."""
        ...

    @property
    def only_bounds(self) -> bool:
        """Whether no more is known of variances than upper bounds, and nothing of covariances."""
        ...

    def estimate(self, table: Table) -> np.ndarray: ...

    def exact(self, table: Table) -> np.ndarray:
        """Which of them are known without noise."""
        ...

    def covariance(self, one: Table, other: Table) -> np.ndarray:
        """Covariances of two tables' answers; 0 where either is exact."""
        ...

    def half_widths(self, table: Table, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Half-widths of intervals about the answers, 0 where these are exact; and which are wider than need be."""
        ...

    def ratio_set(
        self,
        ratio: Ratio,
        estimates: tuple[np.ndarray, np.ndarray],
        moments: tuple[np.ndarray, np.ndarray, np.ndarray],
        level: float,
    ) -> tuple[RatioSet, np.ndarray] | None:
        """Fieller's set, and where it is wider than need be; None where half-widths alone are of use.

        ``moments`` are the variances of numerator and denominator and their covariance.
        """
        ...


@dataclass(frozen=True, eq=False)
class Summand:
    """One summand of a figure, of the figure's shape each: NaN where it is not estimable."""

    estimate: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    exact: np.ndarray
    conservative: np.ndarray

    def times(self, factor: float) -> Summand:
        low, high = (self.low, self.high) if factor > 0 else (self.high, self.low)
        error = abs(factor) * self.std_error
        return Summand(
            factor * self.estimate, error, factor * low, factor * high, self.exact, self.conservative
        )


@dataclass(frozen=True, eq=False)
class FigureNumbers:
    """The numbers of a figure; ``status`` is 0 estimated, 1 exact, 2 not estimable: then the others are NaN.

    ``conservative`` is how many of the intervals are wider than need be.
    """

    estimate: np.ndarray
    std_error: np.ndarray
    ci_low: np.ndarray
    ci_high: np.ndarray
    status: np.ndarray
    conservative: int


def linears_of(figure: Figure) -> list[Linear]:
    """The linear functions that a figure is made from: its own, then those of each ratio and of each variance."""
    ends = [linear for ratio in figure.ratios for linear in (ratio.numerator, ratio.denominator)]
    ends += [linear for variance in figure.variances for linear in variance.linears]
    return [*([figure.linear] if figure.linear.table else []), *ends]


def figure_numbers(figure: Figure, known: KnownCounts, level: float) -> FigureNumbers:
    """A figure with standard errors and intervals, each of which covers the true figure with at least this level.

    A sum of J counts, ratios and quantiles has the sums of their intervals at level ``1 - (1 - level) / J``.
    """
    own = figure.linear.table is not None
    shaped = (figure.ratios, figure.quantiles, figure.variances, figure.brackets)
    count = own + sum(map(len, shaped))
    level = 1 - (1 - level) / count
    parts = [_count(known, figure.linear, level)] if own else []
    parts += [_ratio(known, ratio, level) for ratio in figure.ratios]
    parts += [_quantile(known, each, level).times(float(each.coefficient)) for each in figure.quantiles]
    parts += [_variance(known, each, level).times(float(each.coefficient)) for each in figure.variances]
    parts += [_bracket(known, each, level) for each in figure.brackets]
    shift = float(figure.linear.constant) * (not own)
    exact = np.all([part.exact for part in parts], axis=0)
    total, low, high = (
        np.sum([getattr(part, name) for part in parts], axis=0) + shift
        for name in ("estimate", "low", "high")
    )
    error = parts[0].std_error if count == 1 else _joint_error(figure, known, parts)
    there = np.isfinite(total) & np.isfinite(low) & np.isfinite(high)
    wide = np.any([part.conservative for part in parts], axis=0) | (count > 1)
    total, error, low, high = (
        np.where(there, column, np.nan)
        for column in (
            total,
            np.where(exact, 0.0, error),
            np.where(exact, total, low),
            np.where(exact, total, high),
        )
    )
    status = np.where(there, np.where(exact, _EXACT, _ESTIMATED), _NOT_ESTIMABLE)
    return FigureNumbers(total, error, low, high, status, int((wide & there & ~exact).sum()))


def _count(known: KnownCounts, linear: Linear, level: float) -> Summand:
    """Sums and differences of counts, as tables of counts are published."""
    table, other = linear.table, known.other
    assert table is not None
    exact = known.exact(table)
    if other is None:
        (wide, conservative), middle = known.half_widths(table, level), _value(known, linear)
    else:
        wide, conservative = np.where(exact, 0.0, other.half_widths(table, level)), ~exact
        middle = _value(other, linear)
    error = np.sqrt(known.covariance(table, table))
    return Summand(middle, error, middle - wide, middle + wide, exact, conservative).times(
        float(linear.scale)
    )


def _value(counts: KnownCounts | OtherCounts, linear: Linear, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Estimates in units of the table, with the constant; of that alone in this shape."""
    constant = float(linear.constant / linear.scale)
    return np.full(shape, constant) if linear.table is None else counts.estimate(linear.table) + constant


def _exact(known: KnownCounts, linear: Linear) -> np.ndarray:
    return np.ones(known.shape, bool) if linear.table is None else known.exact(linear.table)


def _covariance(known: KnownCounts, one: Linear, other: Linear) -> np.ndarray:
    if one.table is None or other.table is None:
        return np.zeros(known.shape)
    return known.covariance(one.table, other.table)


def _ratio(known: KnownCounts, ratio: Ratio, level: float) -> Summand:
    """A ratio of counts, with Fieller's interval; NaN where no bounded set of ratios is left."""
    above, below = ratio.numerator, ratio.denominator
    a, b = (_value(known, each, known.shape) for each in (above, below))
    fixed = _exact(known, below)
    exact = fixed & _exact(known, above)
    moments = (
        _covariance(known, above, above),
        _covariance(known, below, below),
        _covariance(known, above, below),
    )
    sets = known.ratio_set(ratio, (a, b), moments, level)
    if sets is None:
        half = [
            np.zeros(known.shape) if each.table is None else known.half_widths(each.table, (1 + level) / 2)[0]
            for each in (above, below)
        ]
        found, wide = box_ratios(a, b, *half), np.ones(known.shape, bool)
    else:
        found, wide = sets
    whole = fixed & (b != 0)
    if known.other is None and above.table is not None and whole.any():
        found, wide = _over_exact(found, wide, known.half_widths(above.table, level), a, b, whole)
    point = np.divide(a, b, out=np.full(known.shape, np.nan), where=found.bounded)
    at = np.where(found.bounded, point, 0.0)
    spread = np.sqrt(ratio_variance(at, *moments))
    if sets is None:
        spread = np.sqrt(moments[0]) + np.abs(at) * np.sqrt(moments[1])
    error = np.divide(spread, np.abs(b), out=np.full(known.shape, np.nan), where=found.bounded)
    part = Summand(point, error, found.low, found.high, exact, wide)
    part = part if known.other is None else _about(part, known, known.other, ratio)
    return part.times(float(above.scale / below.scale))


def _over_exact(
    found: RatioSet,
    wide: np.ndarray,
    linear: tuple[np.ndarray, np.ndarray],
    a: np.ndarray,
    b: np.ndarray,
    whole: np.ndarray,
) -> tuple[RatioSet, np.ndarray]:
    """Where the denominator is exact and not 0 (``whole``) the ratio is linear, as wide as its numerator."""
    safe = np.where(whole, b, 1.0)
    middle, half = a / safe, linear[0] / np.abs(safe)
    low, high = np.where(whole, middle - half, found.low), np.where(whole, middle + half, found.high)
    return RatioSet(low, high, found.bounded | whole), np.where(whole, linear[1], wide)


def _about(part: Summand, known: KnownCounts, other: OtherCounts, ratio: Ratio) -> Summand:
    """Other estimates with a ratio's interval: cut at 0 where nothing counts negatively, then widened to hold them."""
    above, below = (_value(other, each, known.shape) for each in (ratio.numerator, ratio.denominator))
    there = ~np.isnan(part.low) & (below != 0)
    point = np.divide(above, below, out=np.full(known.shape, np.nan), where=there)
    cut = other.never_negative(ratio.numerator) & other.never_negative(ratio.denominator)
    low, high = (np.where(cut, np.maximum(end, 0.0), end) for end in (part.low, part.high))
    if ratio.within is not None:
        least, most = (float(end) for end in ratio.within)
        low, high = np.clip(low, least, most), np.clip(high, least, most)
    low, high = np.minimum(low, point), np.maximum(high, point)
    return Summand(point, part.std_error, low, high, part.exact, np.ones(known.shape, bool))


def _quantile(known: KnownCounts, quantile: Quantile, level: float) -> Summand:
    """A quantile in each group, with Woodruff's interval, without its coefficient; NaN where there may be nobody."""
    table, other = quantile.table, known.other

    def by_value(answers: np.ndarray) -> np.ndarray:
        """Answers, (..., rows), as (groups, values)."""
        counts = table.row_counts(known.domain)
        axis = answers.ndim - 1 + list(counts).index(quantile.attribute)
        shaped = answers.reshape(*answers.shape[:-1], *counts.values())
        return np.moveaxis(shaped, axis, -1).reshape(-1, len(quantile.values))

    wide, conservative = known.half_widths(table, level)
    sure, t, half = by_value(known.exact(table)), by_value(known.estimate(table)), by_value(wide)
    values = np.array(quantile.values, dtype=float)
    starts = values if quantile.starts is None else np.array(quantile.starts, dtype=float)
    told = t if other is None else by_value(other.estimate(table))
    if quantile.between:
        # It lies between the records of ranks floor(h) and ceil(h), where h - 1 = p N - p: N(<= v) - p N passes -p at
        # the first of them or before, and 1 - p at the second or after.
        each, share = quantile.share.denominator, float(quantile.share)
        point = interpolated(told / each, values, share)
        low = starts[woodruff(t + each * share, half).low]
        high = values[woodruff(t - each * (1 - share), half).high]
    else:
        kept, place = woodruff(t, half), crossing(told)
        point, low, high = values[place], starts[np.minimum(kept.low, place)], values[kept.high]
    low, high = np.minimum(low, point), np.maximum(high, point)
    some = t[:, -1] > half[:, -1]
    point, low, high = (np.where(some, each, np.nan).reshape(known.shape) for each in (point, low, high))
    error = (high - low) / (2 * NormalDist().inv_cdf((1 + level) / 2))
    conservative = np.any(by_value(conservative) & ~sure, axis=1) | (other is not None)
    return Summand(
        point, error, low, high, np.all(sure, axis=1).reshape(known.shape), conservative.reshape(known.shape)
    )


def _variance(known: KnownCounts, variance: Variance, level: float) -> Summand:
    """The mean of squares less the square of the mean, whose intervals hold together with the level of the whole."""
    square, mean = (_ratio(known, ratio, (1 + level) / 2) for ratio in (variance.square, variance.mean))
    least = np.where((mean.low <= 0) & (mean.high >= 0), 0.0, np.minimum(mean.low**2, mean.high**2))
    most = np.maximum(mean.low**2, mean.high**2)
    low, high = np.maximum(square.low - most, 0), np.maximum(square.high - least, 0)
    if variance.mean.within is not None:
        ends = variance.mean.within
        high = np.minimum(high, float(ends[1] - ends[0]) ** 2 / 4)
    point = np.clip(square.estimate - mean.estimate**2, 0, None)
    if known.only_bounds:
        error = square.std_error + 2 * np.abs(mean.estimate) * mean.std_error
    else:
        error = _delta(known, variance.linears, _variance_slopes(known, variance))
    low, high, exact = np.minimum(low, point), np.maximum(high, point), square.exact & mean.exact
    return Summand(point, error, low, high, exact, np.ones(known.shape, bool))


def _bracket(known: KnownCounts, bracket: Bracket, level: float) -> Summand:
    """The middle of two linear functions; the interval from the lower end of one to the upper end of the other.

    It holds what lies between them where neither end fails, each with half of the chance.
    """
    least, most = _count(known, bracket.least, level), _count(known, bracket.most, level)
    middle, error = (least.estimate + most.estimate) / 2, (least.std_error + most.std_error) / 2
    same = least.exact & most.exact & (least.estimate == most.estimate)
    low, high = least.low, most.high
    if bracket.never_negative:
        middle, low, high = (np.maximum(each, 0) for each in (middle, low, high))
    return Summand(middle, error, low, high, same, least.conservative | most.conservative)


def _variance_slopes(known: KnownCounts, variance: Variance) -> list[np.ndarray]:
    """What the variance moves with the tables of squares, of sums and of counts, in units of each."""
    square, first, count = (float(each.scale) * _value(known, each, known.shape) for each in variance.linears)
    scales = [float(each.scale) for each in variance.linears]
    inverse = np.divide(1.0, count, out=np.full(known.shape, np.nan), where=count != 0)
    mean = first * inverse
    by = (inverse, -2 * mean * inverse, (2 * mean**2 - square * inverse) * inverse)
    return [scale * slope for scale, slope in zip(scales, by, strict=True)]


@dataclass(frozen=True)
class Sampling:
    """What one weighted figure varies by over samples: ``a n^2 + b n`` of a count n, the survey's variance function.

    Of a sum S of weight times value it is ``a S^2 + b Q``, with Q the sum of weight times value squared, and of a mean
    ``b V / n``, with V the weighted variance of the values: what one simple random sample of equal weights gives, where
    the function is exact, and the same for every design of which the two numbers sum up the effect.

    Args:
        a, b: public numbers, never made of the records.
        of: the variance whose sums say what Q, S and V are; None for a count.
        near: the number that its squares are about.
        mean: whether the figure is a mean.

    Reference: Wolter, "Introduction to Variance Estimation" (2007), chapter 7.
    """

    a: float
    b: float
    of: Variance | None = None
    near: int = 0
    mean: bool = False

    def variance(self, estimate: np.ndarray, answer: Callable[[Table], np.ndarray]) -> np.ndarray:
        """At the estimate, from the answers of tables; never negative, and infinite where a mean is of nobody."""
        if self.of is None:
            size = np.maximum(estimate, 0)
            return np.maximum(self.a * size**2 + self.b * size, 0)
        square, first, count = (
            float(each.scale) * answer(each.table) for each in self.of.linears if each.table is not None
        )
        if not self.mean:
            squares = np.maximum(square + 2 * self.near * first + self.near**2 * count, 0)
            return np.maximum(self.a * estimate**2 + self.b * squares, 0)
        inverse = np.divide(1.0, count, out=np.full(count.shape, np.inf), where=count > 0)
        around = np.maximum(square - np.where(count > 0, first, 0) ** 2 * np.where(count > 0, inverse, 0), 0)
        return self.b * np.where(count > 0, around * inverse**2, np.inf)


def _joint_error(figure: Figure, known: KnownCounts, parts: Sequence[Summand]) -> np.ndarray:
    """Standard errors of a sum of parts by the delta method; for quantiles the sum of theirs, which bounds it."""
    if figure.quantiles or known.only_bounds:
        return np.sum([part.std_error for part in parts], axis=0)
    slopes = [np.full(known.shape, float(figure.linear.scale))] if figure.linear.table else []
    for ratio in figure.ratios:
        a, b = (_value(known, each, known.shape) for each in (ratio.numerator, ratio.denominator))
        scale, none = float(ratio.numerator.scale / ratio.denominator.scale), np.full(known.shape, np.nan)
        inverse = np.divide(scale, b, out=none.copy(), where=b != 0)
        slopes += [inverse, np.divide(-a * inverse, b, out=none, where=b != 0)]
    for variance in figure.variances:
        slopes += [float(variance.coefficient) * slope for slope in _variance_slopes(known, variance)]
    return _delta(known, linears_of(figure), slopes)


def _delta(known: KnownCounts, linears: Sequence[Linear], slopes: Sequence[np.ndarray]) -> np.ndarray:
    """The standard error of a function with these slopes in the tables of linear functions."""
    held = [slope for slope, each in zip(slopes, linears, strict=True) if each.table is not None]
    tables = [each.table for each in linears if each.table is not None]
    return delta_error(
        np.array(held), np.array([[known.covariance(one, other) for other in tables] for one in tables])
    )
