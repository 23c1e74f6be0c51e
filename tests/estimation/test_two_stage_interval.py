"""Intervals from two stages: coverage given the rung, by sums over all outcomes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.each import each
from tests.estimation.groups_of_one_level import Oracle, level

from tabulae.privacy import ZCDP, DiscreteLaplace, Insecure, PureDP
from tabulae.products.groups.estimate import total_estimates
from tabulae.products.groups.levels import PopulationLevel
from tabulae.products.groups.two_stage_laws import plain_margin

NATION = (471, 971, 6971)
STEPS = (-9, -6.2, -4, -2, -1, -0.5, 0, 0.3, 0.7, 1, 1.5, 2, 3, 5, 6.2, 9)


def _coverage(oracle: Oracle, total: int, confidence: float) -> float:
    y, s, chance = oracle.outcomes(total)
    got = total_estimates(oracle.level, oracle.rung, y, s, confidence)
    return float(chance @ ((got.ci_low <= total) & (total <= got.ci_high)))


def _covers_everywhere(
    released: PopulationLevel, rung: int, confidence: float, steps: tuple[float, ...]
) -> None:
    oracle = Oracle(released, rung)
    ends = [end for end in released.interval_of(rung) if end is not None]
    for end in ends:
        for step in steps:
            total = round(end + step * oracle.first_sd)
            assert _coverage(oracle, total, confidence) >= confidence


@pytest.mark.long
@each("rung", [0, 1, 2, 3])
@each("confidence", [0.5, 0.9, 0.95, 0.99])
@each("budget", [ZCDP(Fraction("2.134")), ZCDP(Fraction("0.534")), PureDP(20)], ids=str)
def test_coverage_is_at_least_the_level_around_every_threshold(
    budget: ZCDP | PureDP, rung: int, confidence: float
) -> None:
    _covers_everywhere(level(budget, NATION), rung, confidence, STEPS)


@pytest.mark.parametrize(
    ("budget", "rung", "stage_one"),
    [
        (ZCDP(Fraction("0.159")), 1, "1/10"),
        (ZCDP(Fraction("0.159")), 2, "1/10"),
        (ZCDP(Fraction("0.534")), 1, "1/2"),
        (ZCDP(Fraction("0.534")), 2, "137/1000"),
        (ZCDP(20), 1, "9/10"),
        (ZCDP(500), 2, "1/10"),
        (PureDP(Fraction("5.4")), 1, "1/10"),
        (PureDP(20), 2, "1/2"),
        (PureDP(100), 1, "9/10"),
    ],
    ids=str,
)
def test_coverage_with_other_budgets_and_shares(budget: ZCDP | PureDP, rung: int, stage_one: str) -> None:
    _covers_everywhere(level(budget, NATION, stage_one), rung, 0.95, (-7, -2.5, -1, 0, 0.5, 1, 2, 7))


def test_coverage_where_noise_is_wide_and_the_table_is_coarse() -> None:
    """Variance 5,625 of stage one, as production's regional groups have it: every other total is tabulated."""
    _covers_everywhere(level(ZCDP(Fraction("0.008")), (4971, 19971, 149971)), 0, 0.95, (-3, -0.01, 0.02, 2))
    _covers_everywhere(level(ZCDP(Fraction("0.02")), (4971, 19971, 149971)), 1, 0.95, (-1, 0, 1.01))


@pytest.mark.parametrize("width", [1, 3, 20, 90])
@pytest.mark.parametrize("budget", [ZCDP(Fraction("0.534")), PureDP(20)], ids=str)
def test_coverage_of_a_narrow_rung(budget: ZCDP | PureDP, width: int) -> None:
    released = level(budget, (50, 50 + width, 500))
    oracle = Oracle(released, 1)
    for total in range(0, 110 + width, 7):
        assert _coverage(oracle, total, 0.9) >= 0.9


def test_intervals_are_not_wider_than_need_be() -> None:
    """At 95 % they miss at least 4 % of the time, and far inside they are as short as z's deviation promises."""
    oracle = Oracle(level(ZCDP(Fraction("0.159")), NATION), 2)
    assert _coverage(oracle, 971, 0.95) < 0.96
    got = total_estimates(oracle.level, 2, np.array([3000]), np.array([3000]), 0.95)
    assert got.ci_high[0] - got.ci_low[0] < 2 * 2.05 * got.variance[0] ** 0.5
    plain = plain_margin(oracle.level.second, 18, 0.95)
    y, s, chance = oracle.outcomes(971)
    near = total_estimates(oracle.level, 2, y, s, 0.95)
    assert chance @ (near.ci_high - near.ci_low) < 0.85 * 2 * plain


def test_one_stage_is_left_alone_where_the_other_says_nothing() -> None:
    """Laplace noise and one count each: y has a weight of 1/82, and the plain interval is the shorter one."""
    released = level(PureDP(Fraction("5.4")), NATION)
    got = total_estimates(released, 0, np.array([10]), np.array([12]), 0.95)
    margin = released.second.margin(0.95)
    assert (got.ci_low[0], got.ci_high[0]) == (12 - margin, 12 + margin)


def test_counts_that_contradict_each_other_get_the_plain_interval() -> None:
    released = level(ZCDP(1), NATION)
    plain = plain_margin(released.second, 8, 0.95)
    got = total_estimates(released, 1, np.array([500]), np.array([-(10**6)]), 0.95)
    assert got.ci_low[0] <= -(10**6) - plain
    assert got.ci_high[0] >= -(10**6) + plain
    assert got.ci_high[0] - got.ci_low[0] < 10**4


@pytest.mark.parametrize("count", [1, 46])
def test_a_plain_margin_is_finite_for_any_noise(count: int) -> None:
    assert plain_margin(DiscreteLaplace(2**53), count, 0.999999) > 2**53
    assert plain_margin(DiscreteLaplace(Fraction(1, 10**6)), count, 0.95) == 0


def test_simulated_intervals_cover() -> None:
    """200,000 groups spread over thresholds, samplers' noise; the count of misses is below its mean by 5 deviations."""
    released, source = level(ZCDP(Fraction("0.159")), NATION), Insecure(5)
    total = np.linspace(440, 1000, 200_000).astype(np.int64)
    y = total + released.first.sample(total.size, source)
    s = total + released.second.sample((total.size, 8), source).sum(axis=1)
    kept = released.choose(y) == 1
    got = total_estimates(released, 1, y[kept], s[kept], 0.9)
    missed = np.mean((got.ci_low > total[kept]) | (got.ci_high < total[kept]))
    assert missed < 0.1 + 5 * (0.09 / kept.sum()) ** 0.5
    assert missed > 0.085
