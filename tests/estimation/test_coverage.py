"""The bounds behind the intervals, against exact laws computed another way."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.each import each, pairwise

from tabulae.estimation.coverage import (
    Spread,
    _gaussian,
    _least_margins,
    half_widths,
    laplace_bound,
    smallest_half_width,
    tail_bound,
)
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from tabulae.strategy import Profile

LAWS = [
    DiscreteGaussian(Fraction(1, 4)),
    DiscreteGaussian(Fraction(9)),
    DiscreteGaussian(Fraction(400)),
    DiscreteLaplace(Fraction(1, 2)),
    DiscreteLaplace(Fraction(7, 2)),
    DiscreteLaplace(Fraction(40)),
    RoundedGaussian(Fraction(9)),
    RoundedGaussian(Fraction(900)),
]


def _pmf(law: object) -> np.ndarray:
    """P(X = -K..K), by differences of a Fourier sum of a long period."""
    length = 2**15
    t = 2 * np.pi * np.arange(length // 2 + 1) / length
    half = np.fft.irfft(law.characteristic(t), length)[: length // 2]  # type: ignore[attr-defined]
    return np.concatenate([half[:0:-1], half])


def _exact_coverage(law: object, coefficients: list[int], h: float) -> float:
    """P(|sum z_j e_j| <= h) by convolution of the laws of the integers z_j e_j."""
    total = np.ones(1)
    for z in coefficients:
        pmf = _pmf(law)
        keep = slice(len(pmf) // 2 - 1500, len(pmf) // 2 + 1501)
        spread = np.zeros(3000 * z + 1)
        spread[::z] = pmf[keep]
        total = np.convolve(total, spread)
    middle = len(total) // 2
    reach = int(np.floor(h + 1e-9))
    return float(total[max(0, middle - reach) : middle + reach + 1].sum())


SUMS = [[1], [1, 1], [1, 2], [3, 2], [1, 1, 5]]
LEVELS = [0.8, 0.95, 0.99]


@each(
    *pairwise(law=LAWS, coefficients=SUMS, level=LEVELS),
    long=itertools.product(LAWS, SUMS, LEVELS),
    ids=str,
)
def test_coverage_is_at_least_the_level_by_exact_convolution(
    law: object, coefficients: list[int], level: float
) -> None:
    z = np.array(coefficients, float)
    profile = Profile(
        *(np.array([[value]]) for value in ((z**2).sum(), (z**4).sum(), (z**6).sum(), z.max(), float(len(z))))
    )
    got = half_widths(profile, [law], [1.0], level)  # type: ignore[list-item]
    assert _exact_coverage(law, coefficients, float(got.values[0])) >= level
    if len(set(coefficients)) == 1:
        assert got.ways[0] == "exact"
        assert _exact_coverage(law, coefficients, float(got.values[0]) - 1) < level


def _profile_of(sums: list[list[int]]) -> Profile:
    powers = [
        [float((z**2).sum()), float((z**4).sum()), float((z**6).sum()), float(z.max()), float(len(z))]
        for z in map(np.array, sums)
    ]
    return Profile(*np.array(powers).T[:, None])


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_queries_told_together_are_covered_as_each_alone(law: NoiseLaw) -> None:
    """Alike ones share the widest of their bounds and the least of their T."""
    sums = [[1] * k + [2] * (12 - k) for k in range(2, 7)]
    together = half_widths(_profile_of(sums), [law], [1.0], 0.95).values
    alone = np.array([half_widths(_profile_of([z]), [law], [1.0], 0.95).values[0] for z in sums])
    assert (together >= alone * (1 - 1e-7)).all()
    assert together == pytest.approx(alone, rel=0.03)
    for z, h in zip(sums[::4], together[::4], strict=True):
        assert _exact_coverage(law, z, float(h)) >= 0.95


def test_the_half_width_of_one_query_changes_smoothly_with_its_noise() -> None:
    """Under Laplace noise: no step of what it costs that the grid is coarse."""
    profile = _profile_of([[1] * 20 + [2] * 10])
    scales = [Fraction(8) * Fraction(101, 100) ** k for k in range(12)]
    widths = [float(half_widths(profile, [DiscreteLaplace(s)], [1.0], 0.95).values[0] / s) for s in scales]
    assert np.abs(np.diff(widths, 2)).max() < 1e-5 * widths[0]


@pytest.mark.parametrize(
    ("law", "wide"), [(DiscreteLaplace(Fraction(1, 4)), True), (DiscreteLaplace(Fraction(1, 100)), False)]
)
def test_noise_that_is_mostly_nothing_is_left_out_only_where_it_is_all_but_surely_so(
    law: NoiseLaw, wide: bool
) -> None:
    """It moves an answer by 50 where it is not 0: with more than a hundredth of probability, or with next to none."""
    loud = DiscreteLaplace(Fraction(1))
    one, fifty = np.ones((1, 1)), np.full((1, 1), 50.0)
    profile = Profile(*(np.vstack([fifty**p, one]) for p in (2, 4, 6, 1, 0)))
    width = float(half_widths(profile, [law, loud], [1.0, 1.0], 0.99).values[0])
    alone = float(half_widths(Profile(*[one] * 5), [loud], [1.0], 0.99).values[0])
    assert (width >= 50) if wide else width == alone


def test_one_variable_agrees_with_the_laws_own_tail() -> None:
    for law in LAWS:
        for level in (0.5, 0.9, 0.999):
            assert smallest_half_width(((law, 1),), level) == law.margin(str(level))


@each("law", LAWS, ids=str)
def test_bounds_that_are_left_out_would_not_have_been_smaller(law: DiscreteGaussian) -> None:
    """What is said of a bound before it is computed is below it: of the margin of a law, and of a Chernoff bound."""
    for miss in (0.5, 0.2, 0.05, 1e-3, 1e-9):
        assert _least_margins([law], np.array([[miss]])) <= law.margin(Fraction(1) - Fraction(miss))
    ones = np.ones((1, 1))
    for count in (1.0, 2.0, 50.0):
        profile = Profile(*(np.array([[value]]) for value in (count, count, count, 1.0, count)))
        spread = Spread.of(profile, [law], [1.0])
        if law.kind == "laplace":
            bound, least = laplace_bound(spread, 0.95), np.sqrt(2 * np.log(40)) * spread.deviation
            assert bound >= least
            assert np.isinf(laplace_bound(spread, 0.95, 0.9 * least))
        whole = tail_bound(profile, [law], [1.0], 0.95, np.inf * ones[0])
        assert tail_bound(profile, [law], [1.0], 0.95, 1.001 * whole) == whole


def test_the_normal_limit_is_reached_as_the_grid_vanishes() -> None:
    assert _gaussian(1e4, 0.95) == pytest.approx(stats.norm.ppf(0.975), rel=3e-4)
    assert _gaussian(50.0, 0.95) > _gaussian(500.0, 0.95) > stats.norm.ppf(0.975)


def test_selberg_bound_stays_below_the_truth() -> None:
    """The coverage that the bound proves for a normal variable is below its exact coverage, at every cut."""
    for cut in (3.0, 10.0, 100.0):
        h = _gaussian(cut, 0.9)
        assert stats.norm.cdf(h) - stats.norm.cdf(-h) >= 0.9


@pytest.mark.parametrize("level", [0.55, 0.62, 0.9])
@pytest.mark.parametrize("apart", [1e-4, 1e-5, 1e-6])
def test_nearly_equal_coefficients_are_not_taken_for_equal(apart: float, level: float) -> None:
    """Sums of three that share a value when equal stand apart when not; coverage by listing all of them."""
    law, z = DiscreteGaussian(Fraction(1)), np.array([1, 1, 1 - apart])
    powers = [(z**p).sum() for p in (2, 4, 6)]
    profile = Profile(*(np.array([[value]]) for value in (*powers, z.max(), float(len(z)))))
    width = float(half_widths(profile, [law], [1.0], level).values[0])
    reach = np.arange(-8, 9)
    pmf = np.exp(-(reach**2) / 2)
    sums = np.add.outer(np.add.outer(z[0] * reach, z[1] * reach), z[2] * reach)
    mass = np.multiply.outer(np.multiply.outer(pmf, pmf), pmf) / pmf.sum() ** 3
    assert mass[np.abs(sums) <= width].sum() >= level - 1e-9


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(4)), DiscreteGaussian(Fraction(16))])
@pytest.mark.parametrize("size", [1e-12, 1e-31, 1e-41])
def test_coefficients_of_next_to_nothing_are_no_rounding(law: NoiseLaw, size: float) -> None:
    """The total of records that are only replaced, beside a weight that makes it nearly exact."""

    def width(factor: float) -> float:
        z = factor * np.array([1.0, 0.5, 0.1])
        powers = [(z**p).sum() for p in (2, 4, 6)]
        profile = Profile(*(np.array([[value]]) for value in (*powers, z.max(), float(len(z)))))
        return float(half_widths(profile, [law], [1.0], 0.95).values[0])

    assert width(size) == pytest.approx(size * width(1.0), rel=1e-9)
