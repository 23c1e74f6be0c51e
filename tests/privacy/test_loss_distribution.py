"""Numerical privacy losses against closed forms, direct convolution and dp-accounting."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabulae.errors import InvalidArgument, Unsupported
from tabulae.privacy import ApproxDP, DiscreteGaussian, DiscreteLaplace, RoundedGaussian, calibrate
from tabulae.privacy.loss.conversions import zcdp_epsilon
from tabulae.privacy.noise.loss_distribution import NoiseComposition, Use


def one(law, shift=1, count=1):
    return NoiseComposition((Use(law, shift, count),))


def repeated_response(count, epsilon, at, mp):
    """delta of ``count`` uses of randomised response: a binomial sum."""
    p = mp.exp(epsilon) / (1 + mp.exp(epsilon))
    total = mp.mpf(0)
    for k in range(count + 1):
        loss = epsilon * (2 * k - count)
        if loss > at:
            total += mp.binomial(count, k) * p**k * (1 - p) ** (count - k) * (1 - mp.exp(at - loss))
    return total


@pytest.mark.parametrize(
    ("count", "epsilon", "at"),
    [
        (1, "0.5", 0.3),
        (1, "2", 1.9),
        (3, "0.1", 0.2),
        (50, "0.1", 2.0),
        (500, "0.05", 5.5),
        (500, "0.05", 15.5),
    ],
)
def test_geometric_noise_is_randomised_response(count, epsilon, at, oracle):
    true = repeated_response(count, oracle.real(epsilon), oracle.mp.mpf(at), oracle.mp)
    noise = one(DiscreteLaplace(1 / Fraction(epsilon)), count=count)
    assert true <= noise.delta(at) <= true * (1 + 6e-3)
    assert at <= noise.epsilon(Fraction(float(true))) * (1 + 1e-12) <= at * (1 + 2e-4)


@pytest.mark.parametrize(
    ("variance", "count", "shift"), [("4", 1, 1), ("4", 6, 1), ("1/2", 3, 1), ("30", 8, 3)]
)
def test_discrete_gaussian_by_direct_convolution(variance, count, shift, oracle):
    """The total loss depends on the sum of the draws alone, whose law is a convolution of mass functions."""
    v, last = float(Fraction(variance)), int(40 * math.sqrt(float(Fraction(variance)))) + 30
    k = np.arange(-last, last + 1)
    mass = np.exp(-(k**2) / (2 * v))
    mass /= mass.sum()
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, mass)
    s = np.arange(-last * count, last * count + 1)
    loss = (count * shift**2 - 2 * shift * s) / (2 * v)
    noise = one(DiscreteGaussian(Fraction(variance)), shift, count)
    rho = count * shift**2 / (2 * v)
    for at in (rho, rho + math.sqrt(2 * rho), rho + 3 * math.sqrt(2 * rho)):
        true = float((total * -np.expm1(np.minimum(at - loss, 0))).sum())
        assert true * (1 - 1e-12) <= noise.delta(at) <= true * (1 + 1e-3)


def test_rounding_normal_noise_only_helps():
    """(1, 1e-6) by the analytic Gaussian: rounded draws lose a little less."""
    variance = calibrate(ApproxDP(1, "1e-6"), "gaussian", Fraction(1))
    delta = one(RoundedGaussian(variance)).delta(1)
    assert 0.9e-6 < delta <= 1e-6
    large = calibrate(ApproxDP("0.01", "1e-6"), "gaussian", Fraction(1))
    assert one(RoundedGaussian(large)).delta("0.01") == pytest.approx(1e-6, rel=1e-3)


def safetab(law, stages):
    """Seven levels, nine groups a record: their budgets exact, not as printed."""
    uses = []
    for margin in (6, 6, 11, 11, 50, 50, 50):
        epsilon = Fraction(math.log(20)) / (margin + 1) / Fraction(9, 10)
        rho = Fraction(192, 100) / margin**2 / Fraction(9, 10)
        for stage in stages:
            noise = DiscreteLaplace(1 / (stage * epsilon)) if law is DiscreteLaplace else None
            uses.append(Use(noise or DiscreteGaussian(1 / (2 * stage * rho)), count=9))
    return NoiseComposition(tuple(uses))


@pytest.mark.parametrize(
    ("law", "stages", "epsilon"),
    [
        (DiscreteGaussian, (Fraction(1, 10), Fraction(9, 10)), 11.666),
        (DiscreteLaplace, (Fraction(1),), 14.045),
        (DiscreteLaplace, (Fraction(1, 10), Fraction(9, 10)), 12.741),
    ],
)
def test_the_safetab_composition(law, stages, epsilon):
    assert safetab(law, stages).epsilon("1e-10") == pytest.approx(epsilon, abs=6e-3)


def test_agrees_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as theirs

    step = 1e-4
    gaussian = theirs.from_discrete_gaussian_mechanism(3.0, value_discretization_interval=step)
    laplace = theirs.from_discrete_laplace_mechanism(0.2, value_discretization_interval=step)
    both = gaussian.self_compose(20).compose(laplace.self_compose(30))
    ours = NoiseComposition((Use(DiscreteGaussian(9), count=20), Use(DiscreteLaplace(5), count=30)))
    for delta in (1e-4, 1e-8, 1e-10):
        assert ours.epsilon(delta) == pytest.approx(both.get_epsilon_for_delta(delta), rel=1e-3)


@given(st.fractions("1/2", 200), st.integers(1, 60), st.integers(2, 60))
@settings(max_examples=8)
def test_numerical_losses_lie_below_the_concentrated_bound(variance, count, exponent):
    """For the discrete Gaussian rho is an upper bound, however small delta is."""
    delta = Fraction(1, 10**exponent)
    assert one(DiscreteGaussian(variance), count=count).epsilon(delta) <= zcdp_epsilon(
        count / (2 * variance), delta
    )


@pytest.mark.parametrize("exponent", [20, 100, 300])
def test_there_is_no_floor_below_which_delta_fails(exponent):
    noise = one(DiscreteGaussian(4), count=10)
    delta = Fraction(1, 10**exponent)
    epsilon = noise.epsilon(delta)
    assert math.isfinite(epsilon)
    assert noise.delta(epsilon) == pytest.approx(float(delta), rel=1e-2)
    assert epsilon < zcdp_epsilon(Fraction(10, 8), delta)


@given(st.fractions("1/10", 50), st.integers(1, 5), st.integers(1, 8))
@settings(max_examples=settings().max_examples // 3)
def test_pure_losses_never_exceed_their_sum(scale, shift, count):
    bound = float(shift * count / scale)
    assert one(DiscreteLaplace(scale), shift, count).epsilon("1e-9") <= bound * (1 + 1e-15)


def test_large_noise_is_condensed_soundly():
    """A standard deviation of 10^5: the normal limit, by Balle and Wang's formula, is within 1e-3."""
    noise = one(DiscreteGaussian(10**10), count=100)
    from tabulae.privacy.loss.conversions import enclose_delta

    epsilon = noise.epsilon("1e-6")
    assert float(enclose_delta(Fraction(epsilon), Fraction(10**8))[1]) == pytest.approx(1e-6, rel=1e-2)


def test_refusals():
    with pytest.raises(InvalidArgument):
        NoiseComposition(())
    for shift, count in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(InvalidArgument):
            Use(DiscreteGaussian(1), shift, count)
    with pytest.raises(Unsupported, match="ZCDP"):
        one(DiscreteGaussian(10**14)).epsilon("1e-6")
    for bad in (0, 1, -1, float("nan")):
        with pytest.raises(InvalidArgument):
            one(DiscreteGaussian(1)).epsilon(bad)


@pytest.mark.parametrize(
    "digits", [pytest.param(n, marks=[] if n in (4, 11) else pytest.mark.long) for n in range(4, 12)]
)
def test_noise_that_hides_nothing_has_a_loss_that_is_no_less_than_it_is(digits: int) -> None:
    variance = Fraction(1, 10**digits)
    noise = NoiseComposition((Use(DiscreteGaussian(variance)), Use(DiscreteGaussian(3 * variance))))
    certain = float(
        Fraction(4, 3) / (2 * variance)
    )  # the loss of the answer without noise, which is all but certain
    assert noise.epsilon("1e-10") >= certain
    assert noise.delta(1) == 1.0


def test_a_loss_beyond_what_floats_resolve_is_refused() -> None:
    noise = NoiseComposition((Use(DiscreteGaussian(Fraction(1, 10**30))),))
    with pytest.raises(Unsupported, match="hides nothing"):
        noise.epsilon("1e-10")
