"""Half-widths in standard deviations: normal for Gaussian noise, enough for every mixture of Laplace noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.errors import InvalidArgument
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace
from tabulae.products.areas.passes.forms import area_half_widths, interval_factor


def test_gaussian_noise_has_normal_quantiles() -> None:
    assert interval_factor(0.95, [DiscreteGaussian(3)]) == pytest.approx(1.959964, abs=1e-6)


@given(st.floats(0.5, 0.999), st.fractions(Fraction(1, 4), 50))
def test_one_draw_is_covered(level: float, scale: Fraction) -> None:
    law = DiscreteLaplace(scale)
    wide = interval_factor(level, [law]) * law.variance_of_law**0.5
    assert law.tail(int(wide)) <= 1 - level


@given(st.floats(0.8, 0.999), st.integers(1, 9), st.integers(1, 9))
def test_sums_of_two_draws_are_covered(level: float, a: int, b: int) -> None:
    """The error a X + b Y of two independent draws, summed exactly."""
    law = DiscreteLaplace(2)
    wide = interval_factor(level, [law]) * ((a * a + b * b) * law.variance_of_law) ** 0.5
    far = range(-60, 61)
    mass = {x: (law.tail(abs(x) - 1) - law.tail(abs(x))) / (2 if x else 1) for x in far}
    inside = sum(mass[x] * mass[y] for x in far for y in far if abs(a * x + b * y) <= wide)
    assert inside >= level - 1e-9


@pytest.mark.parametrize("level", [0, 1, -1, 1.5])
def test_levels_lie_between_0_and_1(level: float) -> None:
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        interval_factor(level, [DiscreteLaplace(1)])


def test_an_interval_needs_laws() -> None:
    with pytest.raises(InvalidArgument, match="laws"):
        interval_factor(0.95, [])


@given(st.floats(0.5, 0.999), st.fractions(Fraction(1, 10), 50))
def test_one_draw_of_gaussian_noise_is_covered(level: float, variance: Fraction) -> None:
    law = DiscreteGaussian(variance)
    wide = area_half_widths(np.array([law.variance_of_law]), [law], level)[0]
    assert law.tail(int(wide)) <= 1 - level + 1e-9
    assert variance >= 1 or wide >= interval_factor(level, [DiscreteGaussian(1)]) * law.variance_of_law**0.5


@given(st.floats(0.8, 0.999), st.integers(1, 4), st.integers(1, 4), st.fractions(Fraction(1, 2), 4))
def test_means_of_gaussian_draws_are_covered(level: float, a: int, b: int, variance: Fraction) -> None:
    """The error (a X + b Y) / (a + b) of two independent draws, summed exactly."""
    law = DiscreteGaussian(variance)
    wide = area_half_widths(np.array([(a * a + b * b) / (a + b) ** 2 * law.variance_of_law]), [law], level)[0]
    far = range(-30, 31)
    mass = {x: (law.tail(abs(x) - 1) - law.tail(abs(x))) / (2 if x else 1) for x in far}
    inside = sum(mass[x] * mass[y] for x in far for y in far if abs(a * x + b * y) <= wide * (a + b))
    assert inside >= level - 1e-9


def test_exact_counts_have_no_width() -> None:
    for law in (DiscreteGaussian(2), DiscreteLaplace(2)):
        assert area_half_widths(np.zeros(2), [law], 0.95).tolist() == [0, 0]
