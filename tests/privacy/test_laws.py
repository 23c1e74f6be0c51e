"""Variance, tail, characteristic function and margin of each law, against mpmath."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.errors import InvalidArgument
from tabulae.privacy import (
    ZCDP,
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    PureDP,
    RoundedGaussian,
    calibrate,
    law_for,
    law_type,
)

KIND = {DiscreteGaussian: "gaussian", DiscreteLaplace: "laplace", RoundedGaussian: "rounded"}
LAWS = list(KIND)
PARAMETERS = ["1/100", "1/4", "0.159", "0.161", "1", "7/3", "100", "2500"]
FEW = [(law, parameter) for law in LAWS for parameter in ("1/100", "0.161", "7/3", "100")]


@each("law", LAWS)
@each("parameter", PARAMETERS)
@each("k", [0, 1, 2, 5, 30, 200])
def test_tail_is_an_upper_bound_within_1e12(law, parameter, k, oracle):
    ours, true = law(parameter).tail(k), oracle.tail(KIND[law], parameter, k)
    if true < 1e-300:
        assert ours <= 1e-299
    else:
        assert true <= ours <= true * (1 + 1e-12)


def test_large_gaussian_tails_by_euler_maclaurin(oracle):
    """Just above the standard deviation where sums are replaced by the normal integral."""
    variance = Fraction((1 << 20) + 7)
    masses, norm = oracle.gaussian_masses(variance, 45000)
    for k in (0, 5000, 37900):
        true = 2 * oracle.mp.fsum(masses[k + 1 :]) / norm
        ours = DiscreteGaussian(variance).tail(k)
        assert true <= ours <= true * (1 + 1e-12), k


@each("law", LAWS)
@each("parameter", [*PARAMETERS, "3999/1000", "4"])
def test_variance_is_that_of_the_law(law, parameter, oracle):
    last = int(12 * math.sqrt(Fraction(parameter)) + 60) if law is not DiscreteLaplace else 60 * 60
    if law is DiscreteLaplace:
        q = oracle.mp.exp(-1 / oracle.real(parameter))
        true = 2 * q / (1 - q) ** 2
    elif law is DiscreteGaussian:
        masses, norm = oracle.gaussian_masses(parameter, last)
        true = 2 * oracle.mp.fsum(k * k * m for k, m in enumerate(masses)) / norm
    else:
        true = oracle.mp.fsum((2 * k + 1) * oracle.tail("rounded", parameter, k) for k in range(last))
    assert law(parameter).variance_of_law == pytest.approx(float(true), rel=1e-12)


@each("law, parameter", FEW, long=itertools.product(LAWS, PARAMETERS))
def test_characteristic_is_the_sum_over_the_masses(law, parameter, oracle):
    t = np.array([0.0, 0.1, 1.0, 2.5, math.pi, 5.0, -1.0, 100.0])
    last = int(12 * math.sqrt(Fraction(parameter)) + 30) if law is not DiscreteLaplace else 40 * 100
    if law is DiscreteLaplace and Fraction(parameter) > 100:
        last = 40 * 2500
    tails = np.array([1.0] + [law(parameter).tail(k) for k in range(last)])
    mass = -np.diff(tails)
    true = mass[0] + np.cos(np.multiply.outer(t, np.arange(1, last))) @ mass[1:]
    assert law(parameter).characteristic(t) == pytest.approx(true, abs=1e-11)
    assert law(parameter).characteristic(t.reshape(2, 4)).shape == (2, 4)


@pytest.mark.parametrize("law", LAWS)
def test_the_second_derivative_of_the_characteristic_is_the_variance(law):
    for parameter in (Fraction(1, 5), Fraction(1), Fraction(90)):
        noise, step = law(parameter), 1e-4
        assert 2 * (1 - noise.characteristic(step)) / step**2 == pytest.approx(
            noise.variance_of_law, rel=1e-4
        )


LEVELS = st.one_of(
    st.fractions("1/2", "999999/1000000"),
    st.integers(1, 25).flatmap(lambda k: st.sampled_from([Fraction(1, 10**k), 1 - Fraction(1, 10**k)])),
)


@given(st.sampled_from(LAWS), st.fractions("1/1000000", 10**5), LEVELS)
def test_margin_is_the_least(law, parameter, level):
    noise = law(parameter)
    k = noise.margin(level)
    assert noise.tail(k) <= float(1 - level)
    assert k == 0 or noise.tail(k - 1) > float(1 - level)


@each("law", LAWS)
def test_a_level_that_floats_do_not_tell_from_1_has_no_margin(law):
    assert law(100).margin(1 - Fraction(1, 10**300)) > law(100).margin(1 - Fraction(1, 10**299))
    for level in ("0", "1", 1 - Fraction(1, 10**301), 1 - Fraction(1, 10**400)):
        with pytest.raises(InvalidArgument, match="level is"):
            law(100).margin(level)


def test_margins_of_the_census_tables():
    """Exact base budgets for margins 6, 11 and 50 at 95 %."""
    printed = ((6, ".456902", ".0451194"), (11, ".259767", ".0144884"), (50, ".0593127", ".000753059"))
    for margin, epsilon, rho in printed:
        for slack in (Fraction(1, 10**5), -Fraction(1, 10**5)):
            expected = margin if slack > 0 else margin + 1
            assert DiscreteLaplace(1 / Fraction(epsilon) / (1 + slack)).margin("0.95") == expected
            assert DiscreteGaussian(1 / (2 * Fraction(rho)) / (1 + slack)).margin("0.95") == expected


@pytest.mark.parametrize("law", LAWS)
def test_the_grid_multiplies_the_noise(law):
    noise = law("7/3")
    factor = Fraction(2**10 if law is DiscreteLaplace else 4**10)
    assert noise.law_on_grid(10) == law(Fraction(7, 3) * factor)
    assert noise.law_on_grid(0) == noise
    assert noise.law_on_grid(10).variance_of_law / 4**10 == pytest.approx(
        2 * (7 / 3) ** 2 if law is DiscreteLaplace else 7 / 3, rel=1e-3
    )


@pytest.mark.parametrize("law", LAWS)
def test_noise_that_all_but_vanishes_keeps_a_positive_variance(law):
    noise = law("1e-6")
    assert 0 < noise.variance_of_law < 1e-300
    assert 0 < noise.tail(0) < 1e-300
    assert not noise.sample(1000).any()


@each("law", LAWS)
@each("bad", [0, -1, "0", float("nan"), float("inf"), 10**30, "1e31", "1e-31", True, "wide"])
def test_absurd_parameters_are_refused(law, bad):
    with pytest.raises(InvalidArgument):
        law(bad)


def test_a_laplace_scale_that_64_bits_cannot_hold_is_refused():
    with pytest.raises(InvalidArgument, match="64 bits"):
        DiscreteLaplace(2**53 + 1)
    assert abs(DiscreteLaplace(2**53).sample(1000)).max() > 2**53


def test_the_law_follows_from_the_budget():
    assert law_type(PureDP(1), "laplace") is DiscreteLaplace
    assert law_type(ZCDP(1), "gaussian") is DiscreteGaussian
    assert law_type(ApproxDP(1, "1e-6"), "gaussian") is RoundedGaussian
    assert law_type(ApproxDP(1, "1e-6"), "laplace") is DiscreteLaplace
    for budget, noise in ((PureDP(1), "gaussian"), (ZCDP(1), "laplace"), (ZCDP(1), "normal")):
        with pytest.raises(InvalidArgument):
            law_type(budget, noise)


def test_calibration_is_exact():
    assert calibrate(PureDP("1/3"), "laplace", Fraction(2)) == 6
    assert calibrate(ApproxDP("1/3", "1e-6"), "laplace", Fraction(2)) == 6
    assert calibrate(ZCDP("542/339"), "gaussian", Fraction(2)) == Fraction(339, 542)
    for bad in (Fraction(0), Fraction(-1)):
        with pytest.raises(InvalidArgument):
            calibrate(ZCDP(1), "gaussian", bad)


@given(st.fractions("1/100", 100), st.fractions("1/10", 100))
def test_pure_noise_keeps_its_promise_exactly(epsilon, sensitivity):
    """ln P(k)/P(k + d) <= epsilon: the mass function falls by e^(-1/scale) a step, and d/scale is epsilon."""
    scale = calibrate(PureDP(epsilon), "laplace", sensitivity)
    assert sensitivity / scale == epsilon


@pytest.mark.parametrize("kind", LAWS)
def test_a_law_owns_what_others_ask_of_it(kind):
    for parameter in ("3/10", 3, 50):
        law = kind(parameter)
        k = np.arange(-400, 401)
        mass = np.array(
            [(law.tail(abs(int(i)) - 1) - law.tail(abs(int(i)))) / (1 if i == 0 else 2) for i in k]
        )
        proxy = law.sub_gaussian_proxy
        if np.isfinite(proxy):
            for s in (0.01, 0.1, 0.5):
                assert mass @ np.exp(s * k) <= np.exp(s * s * proxy / 2) * (1 + 1e-9)
        continuous, rest = law.continuous_part()
        assert continuous + rest >= law.variance_of_law * (1 - 1e-9)
        log_p, losses = law.loss_atoms(1, 0.5)
        assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-9)
        assert np.exp(log_p - losses).sum() == pytest.approx(1, abs=1e-6)  # the other neighbour's law
        worst = law.largest_loss(1)
        assert worst is None or losses.max() <= float(worst) * (1 + 1e-12)
        budget = ApproxDP(1, "1e-6") if ApproxDP in law.budgets else ZCDP(1)
        assert type(law_for(budget, law.kind, Fraction(1))) is kind
