"""The lazily refined decisions, forced by sources that give exactly the ambiguous words."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabulae.errors import Unsupported
from tabulae.privacy import DiscreteGaussian, DiscreteLaplace, Insecure
from tabulae.privacy.noise.enclosure import GaussianWeights, GeometricWeights
from tabulae.privacy.noise.samplers import DigitSampler, FilteredSampler, TableSampler, draw

ONES = (1 << 64) - 1


def expansion(real, words, oracle):
    """The first 64 * words bits of a number in [0, 1), as words."""
    whole = int(oracle.mp.floor(real * oracle.mp.mpf(2) ** (64 * words)))
    return [(whole >> 64 * (words - 1 - i)) & ONES for i in range(words)]


@pytest.fixture
def deep(oracle):
    old, oracle.mp.dps = oracle.mp.dps, 250
    yield oracle
    oracle.mp.dps = old


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("k", [-3, 0, 1, 7])
def test_table_decides_on_either_side_of_a_threshold(k, depth, deep, scripted):
    """U agrees with F(k) for 64 * depth bits, and then is all zeros or all ones."""
    sampler = TableSampler(GeometricWeights(Fraction(5, 2)), two_sided=True)
    word, *further = expansion(deep.laplace_cdf("5/2", k), depth + 1, deep)
    further[-1] = 0
    assert sampler.thresholds[k - sampler.first] == word
    for end, expected in ((0, k), (ONES, k + 1)):
        source = scripted([[word]], [*further[:-1], end, end, end])
        out = np.empty(1, np.int64)
        sampler.fill(out, source)
        assert out[0] == expected
        assert len(source.further) < 3, "the word alone must not have decided it"


def test_tails_continue_exactly(deep, scripted):
    """A word of zeros (or ones) lies in a tail; further bits find the very symbol there."""
    scale = Fraction(3)
    sampler = TableSampler(GeometricWeights(scale), two_sided=True)
    for further in ([1 << 60], [12345], [0, 1 << 50], [0, 0, 99]):
        u = deep.mp.mpf(0)
        for i, bits in enumerate([0, *further, 1 << 63]):
            u += deep.mp.mpf(bits) * deep.mp.mpf(2) ** (-64 * (i + 1))
        expected = next(k for k in range(-700, 0) if u < deep.laplace_cdf(scale, k))
        rest = [*further, 1 << 63, 0, 0]
        assert sampler.refine(0, scripted([], rest)) == expected
        mirrored = [bits ^ ONES for bits in rest]
        assert sampler.refine(ONES, scripted([], mirrored)) == -expected
        assert expected < sampler.first


def test_refined_draws_follow_the_conditional_law(deep):
    """Given a word equal to a threshold, the draw stays at or below it with the fraction left over."""
    sampler = TableSampler(GeometricWeights(Fraction(5, 2)), two_sided=True)
    source, n = Insecure(3), 300
    for k in (-2, 0, 3):
        scaled = deep.laplace_cdf("5/2", k) * deep.mp.mpf(2) ** 64
        word, chance = int(scaled), float(scaled - deep.mp.floor(scaled))
        draws = [sampler.refine(word, source) for _ in range(n)]
        assert set(draws) <= {k, k + 1}
        assert abs(draws.count(k) - n * chance) < 5 * (n * chance * (1 - chance)) ** 0.5 + 1


NARROW, WIDE = (FilteredSampler(Fraction(2000, 3), shift=shift, rounded=False) for shift in (30, 40))


@pytest.mark.parametrize("sampler", [NARROW, WIDE])
@pytest.mark.parametrize("depth", [1, 3])
def test_filter_decides_on_either_side_of_the_exponential(sampler, depth, deep, scripted):
    """U agrees with e^-x for 32 + 64 * depth bits, and then is all zeros or all ones."""
    block, offset = 70, (1 << sampler.shift) * 5 // 8 + 12345
    w = deep.mp.mpf(offset) / (1 << sampler.shift)
    x = w * (140 + w) * 3 / 4000
    bits = int(deep.mp.exp(-x) * deep.mp.mpf(2) ** (32 + 64 * depth))
    coin = bits >> (64 * depth) << 32
    further = [(bits >> 64 * (depth - 1 - i)) & ONES for i in range(depth)]
    word = offset << (64 - sampler.shift) | 77
    assert sampler.decide(block, word, coin, scripted([], [*further, 0, 0])) is True
    assert sampler.decide(block, word, coin, scripted([], [*further, ONES, ONES])) is False


def test_filter_refines_the_place_of_a_rounded_draw(deep, scripted):
    """The place in the block is real: x is an interval, which further bits narrow."""
    sampler = FilteredSampler(Fraction(2000), shift=-3, rounded=True)
    block, word, more = 40, 0xA5A5_0000_1234_5678, 0x9999_8888_7777_6666
    w = deep.mp.mpf((word << 64) + more) / deep.mp.mpf(2) ** 128
    bits = int(deep.mp.exp(-w * (2 * block + w) / 4000) * deep.mp.mpf(2) ** 96)
    coin, rest = bits >> 64 << 32, bits & ONES
    for step, expected in ((-(1 << 40), True), (1 << 40, False)):
        source = scripted([], [rest + step, more])
        assert sampler.decide(block, word, coin, source) is expected


class Spy(FilteredSampler):
    """Counts the draws whose decision is left to exact arithmetic."""

    refined = 0

    def decide(self, block, word, coin, source):
        type(self).refined += 1
        return super().decide(block, word, coin, source)


@given(st.integers(0, 2**32), st.sampled_from([3, 4, 2**10, -3, -4, -(2**11)]))
def test_the_float_filter_is_never_wrong_just_outside_its_margin(seed, distance):
    """Coins placed at a small distance from e^-x: what floats decide there is what mpmath decides."""
    import mpmath

    mp = mpmath.mp.clone()
    mp.dps = 50
    rng = np.random.default_rng(seed)
    blocks, words = rng.integers(0, 400, 20), rng.integers(0, 2**64, 20, np.uint64)
    for sampler in (NARROW, WIDE):
        coins, expected = [], []
        for j, word in zip(blocks.tolist(), words.tolist(), strict=True):
            w = mp.mpf(word >> (64 - sampler.shift)) / (1 << sampler.shift)
            x = w * (2 * j + w) * 3 / 4000
            edge = int(mp.exp(-x) * 2**32)
            u = min(max(edge + distance, 0), 2**32 - 1)
            coins.append(u << 32)
            expected.append(u < edge)
        kept = sampler._keep(blocks, words, np.array(coins, np.uint64), Insecure(0))
        assert kept.tolist() == expected


def test_inside_the_margin_the_decision_is_exact(deep):
    Spy.refined = 0
    sampler = Spy(Fraction(2000, 3), shift=30, rounded=False)
    j, word = 33, (1 << 63) + 99
    w = deep.mp.mpf(word >> 34) / 2**30
    edge = int(deep.mp.exp(-w * (2 * j + w) * 3 / 4000) * 2**32)
    coins = np.array([(edge + step) << 32 for step in (-1, 1)] * 50, np.uint64)
    shape = (coins.size,)
    kept = sampler._keep(np.full(shape, j), np.full(shape, word, np.uint64), coins, Insecure(1))
    assert Spy.refined == coins.size
    assert kept.tolist() == [True, False] * 50


def test_float_exponentials_keep_their_promise(deep):
    """|float e^-x - e^-x| <= 2^-48 over every place and block, for extreme unit scales too."""
    rng = np.random.default_rng(8)
    blocks, places = rng.integers(0, 2000, 400), rng.random(400)
    for variance in (Fraction(1024), Fraction(65535), Fraction(10**40 + 1, 10**36)):
        x = FilteredSampler(variance, shift=9, rounded=False).fall(blocks, places)
        v = deep.real(variance)
        for value, j, w in zip(np.exp(-x).tolist(), blocks.tolist(), places.tolist(), strict=True):
            true = deep.mp.exp(-deep.mp.mpf(w) * (2 * j + deep.mp.mpf(w)) / (2 * v))
            assert abs(value - true) < 2**-48


def test_rounded_values_follow_the_bits_of_the_place():
    """y = (j + w) 2^shift rounds to the nearest integer, for blocks wider and narrower than 1."""
    rng = np.random.default_rng(2)
    blocks, words = rng.integers(0, 500, 200), rng.integers(0, 2**64, 200, np.uint64)
    for shift in (-40, -3, -1, 0, 1, 7, 45):
        sampler = FilteredSampler(Fraction(2000), shift=shift, rounded=True)
        got = blocks.copy()
        sampler._spread(got, words)
        for value, j, word in zip(got.tolist(), blocks.tolist(), words.tolist(), strict=True):
            y = (j + Fraction(word, 2**64)) * Fraction(2) ** shift
            assert abs(value - y) <= Fraction(1, 2)


@pytest.mark.parametrize("rounded", [False, True])
def test_the_clear_decisions_are_those_of_the_exponential(rounded, deep):
    """A coin below a block's mark keeps the draw at every place: the mark is below 2^32 e^-x at its least."""
    variance = Fraction(128**2 * 3, 2)
    sampler = FilteredSampler(variance, shift=5, rounded=rounded)
    marks = sampler.clear.tolist()
    assert len(marks) == len(sampler.blocks.thresholds) + 1
    assert marks[-1] == 0, "a block beyond the listed ones is never clear"
    for j, mark in list(enumerate(marks))[1 - rounded : -1]:
        least = deep.mp.exp(-(2 * j + 1) / (2 * deep.real(variance))) * 2**32
        assert mark <= least
        assert mark > least - 2**32 * ((2 * j + 1) / (2 * float(variance))) ** 2 - 4, "and not idly low"
    assert (marks[0] == 0) is not rounded, "zero must be looked at, where it has one sign"


def test_clear_and_careful_decisions_draw_the_same(monkeypatch):
    """Every draw left to the exponential gives what the quick decision gave, word for word."""
    for rounded in (False, True):
        quick = FilteredSampler(Fraction(20000), shift=3, rounded=rounded)
        careful = FilteredSampler(Fraction(20000), shift=3, rounded=rounded)
        careful.clear[:] = 0
        one, two = (draw(sampler, 200_000, Insecure(4)) for sampler in (quick, careful))
        assert np.array_equal(one, two)


def test_negative_zero_is_drawn_again(scripted):
    """Both signs of zero would give it twice its mass: with a negative sign it is rejected."""
    sampler = FilteredSampler(Fraction(2000), shift=4, rounded=False)
    low = np.uint64(1)  # block 0
    out = np.empty(2, np.int64)
    first = ([low, low], [0, 1])  # U = 0 (kept) and offset 0, signs + and -
    again = ([low], [3 << 28 | 1])  # the same block, offset 3 of 16
    sampler.fill(out, scripted([*first, *again]))
    assert out.tolist() == [0, -3]


@pytest.mark.parametrize(
    ("sampler", "symbol"),
    [
        (FilteredSampler(Fraction(2000), shift=48, rounded=False), 1 << 15),
        (DigitSampler(Fraction(2**53), shift=48), 1 << 14),
    ],
)
def test_a_draw_that_64_bits_cannot_hold_is_refused(sampler, symbol, monkeypatch):
    def far(self, out, words, missing, source):
        out.fill(symbol)
        return np.empty(0, np.intp)

    monkeypatch.setattr(TableSampler, "read", far)
    with pytest.raises(Unsupported, match="smaller scale"):
        sampler.fill(np.empty(3, np.int64), Insecure(1))


def test_routes():
    kinds = [
        type(sampler).__name__
        for sampler in (
            DiscreteGaussian(2**20).sampler(),
            DiscreteGaussian(2**20 + 1).sampler(),
            DiscreteLaplace(2**8).sampler(),
            DiscreteLaplace(2**8 + 1).sampler(),
        )
    ]
    assert kinds == ["TableSampler", "FilteredSampler", "TableSampler", "DigitSampler"]


@pytest.mark.parametrize(
    ("weights", "other"),
    [
        (GeometricWeights(Fraction(130)), DigitSampler(Fraction(130), shift=2)),
        (GeometricWeights(Fraction(13)), DigitSampler(Fraction(13), shift=15)),
        (GaussianWeights(Fraction(130**2)), FilteredSampler(Fraction(130**2, 16), shift=2, rounded=False)),
    ],
)
def test_both_routes_draw_the_same_law(weights, other):
    """At one scale, a table and the other route agree in distribution (two-sample chi-square)."""
    from scipy.stats import chi2_contingency

    n = 1 << 19
    one = draw(TableSampler(weights, two_sided=True), n, Insecure(1))
    two = draw(other, n, Insecure(2))
    edges = np.quantile(one, np.linspace(0.01, 0.99, 60)).astype(int)
    counts = [np.bincount(np.searchsorted(edges, x), minlength=61) for x in (one, two)]
    assert chi2_contingency(np.array(counts)[:, np.sum(counts, axis=0) > 0]).pvalue > 1e-4
