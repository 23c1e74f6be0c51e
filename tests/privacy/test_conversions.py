"""zCDP to (epsilon, delta) against published figures, dp-accounting, and a search by another road."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.privacy import ApproxDP, calibrate
from tabulae.privacy.loss.conversions import analytic_gaussian_variance, enclose_delta, zcdp_epsilon
from tabulae.privacy.loss.exact_numbers import round_digits

RHOS = st.fractions("1/10000", 1000)
DELTAS = st.integers(1, 40).map(lambda n: Fraction(1, 10**n))


@pytest.mark.parametrize(
    ("rho", "delta", "epsilon"),
    [
        (Fraction(293764, 114921), "1e-10", 17.1436),  # the 2020 production run, persons (published: 17.14)
        ("2.5562", "1e-10", 17.1434),  # the same rho as published, rounded
        ("1.40706", "1e-10", 12.1629),  # SafeTab, Table 2 (printed 12.2)
        ("0.008", "1e-10", 0.770),  # where the paper's grid of orders gives 2.277
    ],
)
def test_published_figures(rho, delta, epsilon):
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, abs=6e-5 if epsilon > 1 else 6e-4)


def by_scipy(rho, delta):
    def bound(log_excess):
        a = 1 + np.exp(log_excess)
        return rho * a + np.log1p(-1 / a) - np.log(a * delta) / (a - 1)

    top = np.log(1 / delta)
    grid = np.linspace(-20, top, 4001)
    start = grid[np.argmin(bound(grid))]
    step = grid[1] - grid[0]
    return max(0.0, minimize_scalar(bound, bounds=(start - step, start + step), options={"xatol": 1e-12}).fun)


@given(RHOS, st.integers(1, 12))
def test_the_infimum_is_found(rho, exponent):
    ours, theirs = zcdp_epsilon(rho, Fraction(1, 10**exponent)), by_scipy(float(rho), 10.0**-exponent)
    assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-7)


def test_agrees_with_dp_accounting():
    from dp_accounting.rdp import compute_epsilon

    orders = 1 + np.exp(np.linspace(-6, 8, 60001))
    for rho in (0.01, 0.5, 2.5562, 40.0):
        theirs, _ = compute_epsilon(orders, rho * orders, 1e-10)
        assert zcdp_epsilon(rho, 1e-10) == pytest.approx(theirs, rel=1e-6)
        assert zcdp_epsilon(rho, 1e-10) <= theirs * (1 + 1e-12)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_bad_parameters(bad):
    for call in (
        lambda: zcdp_epsilon(bad, "1e-6"),
        lambda: zcdp_epsilon(1, bad),
        lambda: analytic_gaussian_variance(bad, "1e-6"),
        lambda: analytic_gaussian_variance(1, bad),
    ):
        with pytest.raises(InvalidArgument):
            call()


@given(st.fractions("1/1000000000", 10**9), st.integers(1, 20))
def test_rounding_goes_the_way_it_says(value, digits):
    low, high = round_digits(value, digits), round_digits(value, digits, up=True)
    assert low <= value <= high
    assert high - low <= value * Fraction(1, 10 ** (digits - 1))
    assert len(str(low.numerator * 10**40 // low.denominator).rstrip("0")) <= max(digits, 1)


def test_analytic_gaussian_golden():
    variance = analytic_gaussian_variance(1, "1e-6")  # Balle and Wang's own code agrees
    assert float(variance) ** 0.5 == pytest.approx(4.224678889326836, rel=3e-16)
    assert calibrate(ApproxDP(1, "1e-6"), "gaussian", Fraction(3, 2)) == variance * Fraction(3, 2)


EPSILONS, DELTAS = ["0.001", "0.1", 1, 10, 1000], ["1e-15", "1e-6", "0.1", "0.9"]


@each(
    "epsilon, delta",
    [("0.001", "1e-6"), ("0.1", "0.9"), (1, "1e-15"), (10, "0.1"), (1000, "1e-6")],
    long=itertools.product(EPSILONS, DELTAS),
)
def test_analytic_gaussian_is_sound_and_tight(epsilon, delta):
    variance, bound = analytic_gaussian_variance(epsilon, delta), Fraction(delta)
    assert enclose_delta(Fraction(epsilon), variance)[1] <= bound
    assert enclose_delta(Fraction(epsilon), variance * (1 - Fraction(1, 10**12)))[0] > bound


@given(st.fractions("1/100", 20), st.fractions("1/100", 100))
def test_interval_contains_the_float_value(epsilon, variance):
    from scipy.stats import norm

    low, high = enclose_delta(epsilon, variance)
    s, e = float(variance) ** 0.5, float(epsilon)
    value = norm.cdf(1 / (2 * s) - e * s) - np.exp(e + norm.logcdf(-1 / (2 * s) - e * s))
    assert 0 <= high - low < Fraction(1, 10**25)
    assert float(low) == pytest.approx(value, abs=1e-12)
