"""Integer enclosures against mpmath, and every entry of the sampling tables recomputed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.each import each

from tabulae.privacy import DiscreteGaussian, DiscreteLaplace
from tabulae.privacy.noise.enclosure import (
    GaussianWeights,
    GeometricWeights,
    enclose_distribution,
    enclose_exp,
)
from tabulae.privacy.noise.samplers import table

WORD = 1 << 64


@given(
    st.fractions(0, 300) | st.fractions(0, "1/1000000") | st.fractions(0, 10**6),
    st.sampled_from([20, 64, 128, 333]),
)
def test_exp_is_enclosed_within_two_units(x, precision):
    import mpmath

    mp = mpmath.mp.clone()
    mp.prec = precision + 100
    low, high = enclose_exp(x, precision)
    true = mp.exp(-mp.mpf(x.numerator) / x.denominator) * mp.mpf(2) ** precision
    assert low <= true <= high
    assert high - low <= 2


@each("make", [GaussianWeights, GeometricWeights])
@each("parameter", ["1/1000", "1/3", "7/2", "100", "12345/7"])
@each("precision", [40, 128, 200])
def test_weights_are_enclosed(make, parameter, precision, oracle):
    known = make(Fraction(parameter)).enclose(precision)
    value, unit = oracle.real(parameter), oracle.mp.mpf(2) ** known.precision
    for k in {*range(0, len(known.lower), max(1, len(known.lower) // 50)), len(known.lower) - 1}:
        true = oracle.mp.exp(-(k * k / (2 * value) if make is GaussianWeights else k / value)) * unit
        slack = oracle.mp.mpf(2) ** -20 * unit * oracle.mp.mpf(10) ** -40
        assert known.lower[k] <= true + slack
        assert true <= known.lower[k] + known.errors[k] + slack
    n = len(known.lower)
    if make is GeometricWeights:
        rest = oracle.mp.exp(-n / value) / -oracle.mp.expm1(-1 / value)
    else:
        later = range(n, n + 20 + int(60 * value**0.5))
        rest = oracle.mp.fsum(oracle.mp.exp(-(k * k) / (2 * value)) for k in later)
    assert rest * unit <= known.rest(), "what was left out is inside the bound"
    assert known.rest() < 4 * unit * oracle.mp.mpf(2) ** -precision * (1 + value) + 20


@pytest.mark.parametrize("two_sided", [False, True])
def test_distribution_is_enclosed_tightly(two_sided, oracle):
    q = oracle.mp.exp(-1 / oracle.real("10/3"))
    known = enclose_distribution(GeometricWeights(Fraction(10, 3)), 150, two_sided=two_sided)
    for i, (low, high) in enumerate(zip(known.lower, known.upper, strict=True)):
        k = known.first + i
        true = oracle.laplace_cdf("10/3", k) if two_sided else 1 - q ** (k + 1)
        assert low <= true * oracle.mp.mpf(2) ** 150 <= high
        assert high - low <= 40  # the tail that was left out weighs about scale * 2^-150


def laplace_thresholds(scale, count, first, oracle):
    return [min(int(oracle.laplace_cdf(scale, first + i) * WORD), WORD - 1) for i in range(count)]


def gaussian_thresholds(variance, count, first, oracle):
    last = max(-first, first + count)
    masses, norm = oracle.gaussian_masses(variance, last + int(2 * last) + 60)
    upper = [oracle.mp.mpf(0)] * (len(masses) + 1)
    for k in range(len(masses) - 1, -1, -1):
        upper[k] = upper[k + 1] + masses[k] / norm  # P(X >= k)
    cdf = {k: upper[-k] if k < 0 else 1 - upper[k + 1] for k in range(first, first + count)}
    return [min(int(cdf[first + i] * WORD), WORD - 1) for i in range(count)]


CASES = [("laplace", s) for s in ("1/1000", "3/10", "1", "10", "100", "256")]
CASES += [("gaussian", v) for v in ("1/1000000", "9/100", "1", "100", "10000", "1048576")]
LAWS = {"laplace": DiscreteLaplace, "gaussian": DiscreteGaussian}
THRESHOLDS = {"laplace": laplace_thresholds, "gaussian": gaussian_thresholds}


@pytest.mark.long
@each(("law", "parameter"), CASES)
def test_every_threshold_recomputed(law, parameter, oracle):
    sampler = LAWS[law](parameter).sampler()
    count = len(sampler.thresholds)
    again = THRESHOLDS[law](parameter, count, sampler.first, oracle)
    assert sampler.thresholds.tolist() == again
    assert again[0] == 0, "a word of 64 zeros must be refined: it may lie in the lower tail"
    assert again[-1] == WORD - 1, "a word of 64 ones must be refined: it may lie in the upper tail"


@pytest.mark.parametrize(("law", "parameter"), [("laplace", "10"), ("gaussian", "100")])
def test_any_flipped_bit_is_noticed(law, parameter, oracle):
    sampler = LAWS[law](parameter).sampler()
    thresholds = sampler.thresholds.tolist()
    again = THRESHOLDS[law](parameter, len(thresholds), sampler.first, oracle)
    for entry in range(len(thresholds)):
        for bit in (0, 31, 63):
            thresholds[entry] ^= 1 << bit
            assert thresholds != again
            thresholds[entry] ^= 1 << bit


@each(("law", "parameter"), CASES)
def test_every_slot_recomputed(law, parameter):
    sampler = LAWS[law](parameter).sampler()
    thresholds, bits = sampler.thresholds, sampler.slot_bits
    low = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    high = low | np.uint64((1 << (64 - bits)) - 1)
    # decided: every word of the slot lies strictly between the same two neighbouring thresholds
    above = np.searchsorted(thresholds, low)
    padded = np.append(thresholds, np.uint64(0))
    decided = (padded[above] > high) & (above < len(thresholds))
    marked = sampler.slots != np.iinfo(np.int64).min
    assert np.array_equal(decided, marked)
    assert np.array_equal(sampler.slots[marked], (above + sampler.first)[marked])
    assert marked.mean() > 0.5


def test_a_table_raises_its_precision_until_every_entry_is_proven(monkeypatch):
    from tabulae.privacy.noise import samplers as table_sampler

    asked = []

    def vague(weights, precision, *, two_sided):
        asked.append(precision)
        known = enclose_distribution(weights, precision, two_sided=two_sided)
        if len(asked) == 1:
            known.upper[len(known.upper) // 2] += 1 << (precision - 64)
        return known

    monkeypatch.setattr(table_sampler, "enclose_distribution", vague)
    first, thresholds = table(GeometricWeights(Fraction(3)), two_sided=True)
    assert asked == [128, 192]
    monkeypatch.undo()
    expected = table(GeometricWeights(Fraction(3)), two_sided=True)
    assert first == expected[0]
    assert np.array_equal(thresholds, expected[1])
