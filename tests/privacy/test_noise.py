"""Drawn noise against its law. Together the random tests below raise a false alarm with probability
below 1e-6: each p-value is compared with 1e-6 divided by the number of comparisons."""

import itertools
import math
import threading
import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.each import each, pairwise

from tabulae.errors import InvalidArgument
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, Insecure, RoundedGaussian, SystemSource, noise

LAWS = [DiscreteGaussian, DiscreteLaplace, RoundedGaussian]
SCALES = ["3/10", "1", "10", "100", "257", "1024", "1500", "10000"]
COMPARISONS = 200
LEVEL = 1e-6 / COMPARISONS
DRAWS = 1 << 18
LEAST_EXPECTED = 400  # large enough for the chi-square limit at p-values of 1e-9


def law_at(law, scale, factor=Fraction(1)):
    deviation = Fraction(scale) * factor
    return law(deviation if law is DiscreteLaplace else deviation**2)


def fit(draws, noise_law):
    """The chi-square p-value of draws against the law, over signed bins of about equal mass."""
    margins = sorted({noise_law.margin(Fraction(i, 24)) for i in range(1, 24)})
    tails = np.array([noise_law.tail(m) for m in margins])
    half = -np.diff(np.append(tails, 0.0)) / 2
    expected = draws.size * np.concatenate([half[::-1], [1 - tails[0]], half])
    edges = np.concatenate([-np.array(margins[::-1]) - 0.5, np.array(margins) + 0.5])
    observed = np.bincount(np.searchsorted(edges, draws), minlength=expected.size).astype(float)
    small = expected < LEAST_EXPECTED
    if small.any():
        observed = np.append(observed[~small], observed[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
        if expected[-1] < LEAST_EXPECTED:
            observed, expected = observed[:-1], expected[:-1] * observed[:-1].sum() / expected[:-1].sum()
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


@each("law, scale", itertools.product(LAWS, SCALES[::2]), long=itertools.product(LAWS, SCALES))
def test_draws_follow_the_law(law, scale):
    noise_law = law_at(law, scale)
    assert fit(noise_law.sample(DRAWS), noise_law) > LEVEL


WRONG = [Fraction(9, 10), Fraction(11, 10)]


@each(*pairwise(scale=SCALES, law=LAWS, factor=WRONG), long=itertools.product(SCALES, LAWS, WRONG))
def test_the_fit_notices_a_tenth_more_or_less(law, scale, factor):
    assert fit(law_at(law, scale, factor).sample(DRAWS), law_at(law, scale)) < LEVEL


EXTREME = ["1/1000", "1/50", "1000000", "1000000000", "35184372088832"]
ENDS = [(law, scale) for law in LAWS for scale in ("1/50", "35184372088832")]


@each("law, scale", ENDS, long=itertools.product(LAWS, EXTREME))
def test_extreme_scales_have_the_right_spread(law, scale):
    """Beyond the chi-square scales: the fit where there is spread, silence where there is none."""
    noise_law = law_at(law, scale)
    draws = noise_law.sample(DRAWS)
    if Fraction(scale) < 1:
        assert not draws.any(), "a non-zero draw has probability below 1e-10"
        return
    assert fit(draws, noise_law) > LEVEL
    assert fit(law_at(law, scale, Fraction(11, 10)).sample(DRAWS), noise_law) < LEVEL
    low = np.bincount(draws & 15, minlength=16)
    assert stats.chisquare(low).pvalue > LEVEL, "far below the scale, the low bits are uniform"


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", ["1", "100", "10000"])
def test_tails(law, scale):
    noise_law, n = law_at(law, scale), 1 << 20
    draws = noise_law.sample(n)
    for level in ("0.999", "0.99999"):
        k = noise_law.margin(level)
        for side in (draws > k, draws < -k):
            assert stats.binomtest(int(side.sum()), n, noise_law.tail(k) / 2).pvalue > LEVEL
    assert stats.binomtest(int((abs(draws) > k).sum()), n, 2 * noise_law.tail(k) + 60 / n).pvalue < LEVEL


def dependence(one, other):
    edges = np.quantile(one, [0.25, 0.5, 0.75])
    table = np.zeros((4, 4))
    np.add.at(table, (np.searchsorted(edges, one), np.searchsorted(edges, other)), 1)
    table = table[:, table.sum(axis=0) > 0][table.sum(axis=1) > 0]
    return stats.chi2_contingency(table).pvalue


# By table, and by the other route of each law.
FEW = [("2", DiscreteLaplace), *(("5000", law) for law in LAWS)]
REST = [(scale, law) for scale in ("2", "5000") for law in LAWS if (scale, law) not in FEW]


@pytest.mark.parametrize(
    ("scale", "law"), [*FEW, *(pytest.param(*case, marks=pytest.mark.long) for case in REST)]
)
def test_draws_are_independent_of_the_ones_before(law, scale):
    noise_law, n = law_at(law, scale), 1 << 17
    draws = noise_law.sample(4 * n + 7)
    for lag in (1, 2, 7):
        assert dependence(draws[: 4 * n], draws[lag : 4 * n + lag]) > LEVEL
    assert dependence(draws[:n], noise_law.sample(n)) > LEVEL, "across calls"
    assert dependence(draws[: 4 * n], draws[: 4 * n] + draws[1 : 4 * n + 1]) < LEVEL, "the test has power"


def test_draws_are_independent_across_threads():
    law, found = DiscreteGaussian(10**6), {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: law.sample(1 << 17)})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(3):
        assert fit(found[i], law) > LEVEL
        assert dependence(found[i], found[(i + 1) % 3]) > LEVEL


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [pytest.param("100", marks=pytest.mark.long), "100000"])
def test_time_says_nothing_about_the_noise(law, scale):
    noise_law, source, n = law_at(law, scale), SystemSource(), 4000
    noise_law.sample(100, source)
    times, sizes = np.empty(n), np.empty(n)
    for i in range(n):
        start = time.perf_counter_ns()
        (value,) = noise_law.sample(1, source)
        times[i], sizes[i] = time.perf_counter_ns() - start, abs(value)
    assert abs(stats.spearmanr(times, sizes).statistic) < 0.1


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", ["10", "100000"])
def test_memory_beyond_the_output_is_a_chunk(law, scale):
    noise_law = law_at(law, scale)
    noise_law.sample(10)
    tracemalloc.start()
    out = noise_law.sample(3_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - out.nbytes < 16e6


def test_a_seed_repeats_the_draws_whatever_was_drawn_before():
    for call in (
        lambda source: noise.discrete_gaussian((3, 5), variance="17/3", source=source),
        lambda source: noise.discrete_laplace(1000, scale=10**6, source=source),
        lambda source: noise.rounded_gaussian(1000, variance="0.3", source=source),
    ):
        first = call(Insecure(12))
        noise.discrete_gaussian(1000, variance=5)
        assert np.array_equal(first, call(Insecure(12)))
        assert not np.array_equal(call(Insecure(12)), call(Insecure(13)))


def test_shapes_and_types():
    assert noise.discrete_gaussian(0, variance=1).shape == (0,)
    assert noise.discrete_laplace((2, 0, 3), scale=1).shape == (2, 0, 3)
    assert noise.rounded_gaussian((), variance=1).shape == ()
    assert noise.discrete_laplace(np.int64(4), scale=Fraction(1, 3)).dtype == np.int64


@pytest.mark.parametrize("size", [-1, 1.5, (2, -1), "3", None, [2, 3], True])
def test_bad_sizes(size):
    with pytest.raises(InvalidArgument):
        noise.discrete_laplace(size, scale=1)


@each("bad", [0, -1, "-1/2", math.nan, math.inf, 10**30, "1e30", "wide", None, True])
def test_bad_parameters(bad):
    for draw in (
        lambda: noise.discrete_gaussian(1, variance=bad),
        lambda: noise.discrete_laplace(1, scale=bad),
        lambda: noise.rounded_gaussian(1, variance=bad),
    ):
        with pytest.raises(InvalidArgument):
            draw()
