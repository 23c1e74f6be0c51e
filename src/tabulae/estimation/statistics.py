"""Statistics of counts: ratios, medians and combinations, from estimates, their covariances and their half-widths.

Intervals for ratios of counts: all R at which a test of ``a - R b = 0`` does not refuse.

For the true counts (alpha, beta) with ``R = alpha / beta`` the number ``a - R b`` is nothing but noise, so that the set
of all R with ``|a - R b| <= h(R)`` covers the ratio with the probability at which noise stays within h(R). Nothing is
linearised, and counts may be small (Fieller 1954).

Quantiles of an ordered attribute within groups, by inverting tests of cumulative counts (Woodruff 1952).

The p-quantile is the smallest value v with ``T(v) = N(<= v) - p N >= 0``. With t the estimates of T and h(v) the
half-widths of intervals of level 1 - alpha about them, a value is kept where neither ``T(v) >= 0`` nor ``T(u) < 0``,
u the value before, is refused by a one-sided test of level alpha / 2:

    t(v) >= -h(v)  and  t(u) <= h(u).

Of the true quantile both hold, except with probability alpha: the noise is symmetric. All values from the first kept
one to the last are the interval.

Estimates of T need not rise from value to value. The estimate of the quantile is where the non-decreasing sequence
closest to them first reaches 0, which is the v with the least ``sum of t(u) over u < v``: the p-quantile of the
estimated distribution as the minimum of the quantile loss. It always lies in the interval.

Half-widths of ``a - R b`` in its standard deviations, for all R of an interval at once.

Whatever its coefficients, noise of variance V stays within ``c sqrt V`` with a c of :func:`uniform_factor`. Where
no noise variable matters much, the normal limit gives a smaller c. It needs bounds on the coefficients z of
``a - R b``: with ``z = z_a - R z_b``, Minkowski's inequality bounds ``(sum z^4)^(1/4)`` by ``|u| (sum z_1^4)^(1/4) +
|v| (sum z_2^4)^(1/4)`` for each of the three ways to write it,

    z = z_a - R z_b = z_(a-b) + (1 - R) z_b = (1 - R) z_a + R z_(a-b),

and so it does for sixth powers, the largest coefficient and how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..domain import Table, table_difference
from ..privacy import NoiseLaw
from ..strategy import LeftOpen, Profile
from .coverage import (
    CONSERVATIVE,
    LIMIT,
    Spread,
    gaussian_half_width,
    laplace_bound,
    laplace_half_width,
    uniform_factor,
)
from .least_squares import Estimate, LeastSquares

Variance = Callable[[Table], np.ndarray]


def covariance_of(variance_of: Variance, one: Table, other: Table) -> np.ndarray:
    """Covariances of the answers of two tables of m rows each, row by row, (m,), in squared counts.

    By ``Cov(a, b) = (Var a + Var b - Var(a - b)) / 2``: what it takes is variances of tables, never one of all cells.

    >>> import tabulae as tb
    >>> from tabulae.linalg import Identity
    >>> strategy = tb.select(tb.Workload.of(tb.Identity(2)), method="identity")
    >>> found = tb.estimate(tb.measure(np.array([5, 9]), strategy, tb.ZCDP("1/2")))
    >>> cells, both = Table("cells", {"x": Identity(2)}), Table("both", {"x": tb.Dense([[1, 1], [1, 1]])})
    >>> covariance_of(found.variance_of, cells, both).round(6).tolist()
    [1.0, 1.0]
    """
    if one == other:
        return variance_of(one)
    rest = table_difference(one, other)
    apart = 0.0 if rest is None else variance_of(rest)
    return (variance_of(one) + variance_of(other) - apart) / 2


@dataclass(frozen=True, eq=False)
class RatioSet:
    """Ends of the sets of ratios that are not refused, (m,); NaN where ``bounded`` is False."""

    low: np.ndarray
    high: np.ndarray
    bounded: np.ndarray


def delta_error(slopes: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Standard errors of a smooth function by its slopes (k, ...) at k counts of covariance (k, k, ...)."""
    return np.sqrt(np.maximum(np.einsum("i...,ij...,j...->...", slopes, covariance, slopes), 0.0))


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


def interpolated(t: np.ndarray, values: np.ndarray, share: float) -> np.ndarray:
    """The quantile that lies between two values, (groups,), from the non-decreasing sequence closest to t.

    Arguments:
        t: estimates of ``N(<= v) - p N`` (groups, values).
        values: rising.
        share: p, between 0 and 1.

    >>> interpolated(np.array([[0.5, 1.5, 2.5]]) - 0.5, np.array([10.0, 20.0, 30.0]), 0.5).tolist()  # of 1, 2 and 3
    [15.0]
    """
    from scipy.optimize import isotonic_regression

    rising = np.array([isotonic_regression(row).x for row in t]).reshape(t.shape)
    below = np.clip(rising + share, 0, 1)
    below[:, -1] = 1
    return np.diff(below, axis=1, prepend=0) @ values


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


WIDEST = 50.0
"""Standard deviations: beyond, the factor of a test is of no use."""

_ROUNDS = 3
_NEAR = 1.01  # a uniform factor that is as small as the normal limit's is no wider than need be
_SLACK = 1 + 1e-9  # covers rounding in the coefficients, which are floats
_POWERS = (("power4", 4), ("power6", 6))


@dataclass(frozen=True, eq=False)
class PairProfile:
    """Coefficients of two tables' answers and of their difference, (blocks, m) each, in units of the answers."""

    above: Profile
    below: Profile
    difference: Profile
    laws: tuple[NoiseLaw, ...]
    steps: np.ndarray

    @classmethod
    def of(cls, estimate: LeastSquares, above: Table, below: Table) -> PairProfile | None:
        rest = table_difference(above, below)
        tables = (above, below) if rest is None else (above, below, rest)
        found = [profile_by_block(estimate, table) for table in tables]
        profiles = [profile for profile in found if profile is not None]
        if len(profiles) < len(tables):
            return None
        strategy = estimate.measurement.strategy
        steps = np.array(strategy.steps)
        if rest is None:
            profiles.append(_nothing(len(steps), profiles[0].power2.shape[1]))
        one, other, both = profiles
        return cls(one, other, both, tuple(estimate.measurement.laws), steps)

    def spread(self, low: np.ndarray, high: np.ndarray, least: np.ndarray) -> Spread:
        """Bounds on how ``a - R b`` is made up, for every R from low to high, its variance at least ``least``, (m,)."""
        far = np.maximum(np.abs(low), np.abs(high))
        rest = np.maximum(np.abs(1 - low), np.abs(1 - high))
        one = np.ones_like(far)
        ways = (
            (one, self.above, far, self.below),
            (one, self.difference, rest, self.below),
            (rest, self.above, far, self.difference),
        )
        powers = {
            name: np.min([_joined(u, p, v, q, name, k) for u, p, v, q in ways], axis=0) for name, k in _POWERS
        }
        largest = np.min([u * p.largest + v * q.largest for u, p, v, q in ways], axis=0)
        count = np.min([p.count + q.count for _, p, _, q in ways], axis=0)
        variances = [law.variance_of_law * g * g for law, g in zip(self.laws, self.steps, strict=True)]
        # Variances of the noise in units of that of the answer; where that is 0 nothing needs a bound.
        part = np.divide(np.array(variances)[:, None], least, out=np.ones_like(largest), where=least > 0)
        return Spread(
            deviation=np.sqrt(least),
            kappa2=np.minimum((part**2 * powers["power4"]).sum(axis=0), 1.0),
            kappa3=np.minimum((part**3 * powers["power6"]).sum(axis=0), 1.0),
            share=np.minimum((part * largest**2).max(axis=0), 1.0),
            step=largest * self.steps[:, None],
            terms=count.sum(axis=0),
            laws=self.laws,
            exact=False,
        )


def ratio_set(
    estimates: tuple[np.ndarray, np.ndarray],
    moments: tuple[np.ndarray, np.ndarray, np.ndarray],
    profile: PairProfile | None,
    laws: Sequence[NoiseLaw],
    level: float,
) -> tuple[RatioSet, np.ndarray]:
    """Fieller's set with as small a factor as holds on all of it, and how each factor was found, (m,).

    The set under the uniform factor is an interval; the factor that holds on all of that interval gives a smaller one,
    and so on. What is left holds every R at which a test with the best factor known for that R does not refuse.

    Arguments:
        estimates: a and b, (m,).
        moments: Var a, Var b and their covariance, (m,).
    """
    a, b = estimates
    factor = np.full(a.shape, uniform_factor(laws, level))
    found = fieller(a, b, *moments, factor)
    ways = np.full(a.shape, CONSERVATIVE, dtype="<U12")
    if profile is None or not found.bounded.any():
        return found, ways
    for _ in range(_ROUNDS):
        low, high = np.where(found.bounded, found.low, 0.0), np.where(found.bounded, found.high, 0.0)
        better = np.where(found.bounded, _factor(profile, low, high, moments, level), np.inf)
        improved = better < _NEAR * factor
        ways[improved] = LIMIT
        factor = np.minimum(factor, better)
        found = fieller(a, b, *moments, factor)
    return found, ways


def _factor(
    profile: PairProfile, low: np.ndarray, high: np.ndarray, moments: tuple[np.ndarray, ...], level: float
) -> np.ndarray:
    """A factor that holds for every R from low to high."""
    _, below, covariance = moments
    turn = np.divide(covariance, below, out=np.copy(low), where=below > 0)
    least = ratio_variance(np.clip(turn, low, high), *moments)
    spread = profile.spread(low, high, least)
    laplace = profile.laws[0].kind == "laplace"
    width = laplace_half_width(spread, level) if laplace else gaussian_half_width(spread, level)
    if laplace:
        width = np.fmin(width, laplace_bound(spread, level))
    return _SLACK * np.divide(width, spread.deviation, out=np.full(least.shape, np.inf), where=least > 0)


def _joined(u: np.ndarray, p: Profile, v: np.ndarray, q: Profile, name: str, power: int) -> np.ndarray:
    return (u * getattr(p, name) ** (1 / power) + v * getattr(q, name) ** (1 / power)) ** power


def profile_by_block(estimate: Estimate, table: Table) -> Profile | None:
    """A table's coefficients, one column a row of the table and one row a block; None where they are not known."""
    strategy = estimate.measurement.strategy
    left = LeftOpen.of(strategy, table)
    found = left.profile(estimate.information)
    blocks, rows = len(strategy.blocks), len(left.exact)
    if found is None:
        return _nothing(blocks, rows)
    if not isinstance(found, Profile):
        return None
    present = slice(None) if found.blocks is None else list(found.blocks)
    columns = slice(None) if found.inverse is None else found.inverse

    def spread_out(values: np.ndarray, divisor: float) -> np.ndarray:
        out = np.zeros((blocks, rows))
        out[present] = values[:, columns] / divisor
        return out

    d = float(left.divisor)
    return Profile(
        spread_out(found.power2, d**2),
        spread_out(found.power4, d**4),
        spread_out(found.power6, d**6),
        spread_out(found.largest, d),
        spread_out(found.count, 1.0),
        exact=found.exact,
    )


def _nothing(blocks: int, rows: int) -> Profile:
    none = np.zeros((blocks, rows))
    return Profile(none, none, none, none, none, exact=True)
