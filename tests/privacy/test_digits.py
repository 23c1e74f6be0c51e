"""The digit route: the groups make up the discrete Laplace law, and no bit of a word serves twice."""

from bisect import bisect_left
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tabulae.privacy import DiscreteLaplace, Insecure
from tabulae.privacy.noise import samplers as digit_sampler
from tabulae.privacy.noise.enclosure import DigitWeights
from tabulae.privacy.noise.samplers import DigitSampler, TableSampler

WORD = 1 << 64


def symbols(sampler, top):
    """For each group, the weights of its symbols by definition, the unbounded one up to ``top``."""
    sizes = [1 << (high - low) for low, high in zip(sampler.cuts, sampler.cuts[1:], strict=False)]
    lowest = [abs(i) for i in range(-sizes[0], sizes[0])]
    return [
        lowest,
        *([d << low for d in range(n)] for low, n in zip(sampler.cuts[1:], [*sizes[1:], top], strict=True)),
    ]


@pytest.mark.parametrize(("shift", "group_bits"), [(1, 11), (3, 11), (3, 2), (6, 2), (5, 1)])
def test_the_groups_make_up_the_law(shift, group_bits, monkeypatch, oracle):
    """Every integer comes from one choice of symbols, of total distance |k|: so of weight e^{-|k| / scale}."""
    monkeypatch.setattr(digit_sampler, "_GROUP_BITS", group_bits)
    sampler, top = DigitSampler(Fraction(7, 3), shift), 3
    distance = symbols(sampler, top)
    choices = np.array(list(product(*(range(len(d)) for d in distance))), np.int64)
    columns = iter(choices.T)

    def chosen(self, out, words, missing, source):
        out[:] = next(columns)
        return np.empty(0, np.intp)

    monkeypatch.setattr(TableSampler, "read", chosen)
    out = np.empty(len(choices), np.int64)
    sampler.fill(out, Insecure(0))
    reach = top << shift
    assert sorted(out.tolist()) == list(range(-reach, reach))
    for value, choice in zip(out.tolist(), choices.tolist(), strict=True):
        assert abs(value) == sum(d[c] for d, c in zip(distance, choice, strict=True))


@pytest.mark.parametrize("scale", ["257", "1000", "10000", "31415926/7", "1000000000", str(2**53)])
def test_every_threshold_recomputed(scale, oracle):
    """By the geometric series in multiprecision, each group with the scale that its bits leave it."""
    sampler = DiscreteLaplace(scale).sampler()
    assert isinstance(sampler, DigitSampler)
    mp = oracle.mp
    for low, high, table in zip(sampler.cuts, [*sampler.cuts[1:], None], sampler.groups, strict=True):
        q = mp.exp(-mp.mpf(1 << low) / oracle.real(scale))
        if high is None:
            cdf = [1 - q ** (d + 1) for d in range(len(table.thresholds))]
        elif low:
            count = 1 << (high - low)
            cdf = [(1 - q ** (d + 1)) / (1 - q**count) for d in range(count)]
        else:
            m = 1 << high
            total = (1 + q) * (1 - q**m) / (1 - q)
            below = [q ** (m - d) * (1 - q ** (d + 1)) / (1 - q) / total for d in range(m)]
            cdf = [*below, *(below[-1] + (1 - q ** (d + 1)) / (1 - q) / total for d in range(m))]
        assert table.first == 0
        assert table.thresholds.tolist() == [min(int(value * WORD), WORD - 1) for value in cdf]


@pytest.mark.parametrize("scale", ["10000", str(2**53)])
def test_every_slot_recomputed(scale):
    """A slot holds a symbol only if its first and its last word lie strictly between the same thresholds."""
    for table in DiscreteLaplace(scale).sampler().groups:
        edges = [-1, *table.thresholds.tolist(), WORD]
        width = 1 << (64 - table.slot_bits)
        for slot, symbol in list(enumerate(table.slots.tolist()))[:: max(1, len(table.slots) // 20_000)]:
            first, last = slot * width, (slot + 1) * width - 1
            i = bisect_left(edges, first)
            assert (symbol == i - 1) == (last < edges[i])
            assert symbol in (i - 1, np.iinfo(np.int64).min)


@pytest.mark.parametrize("signed", [False, True])
def test_weights_of_a_group_are_enclosed(signed, oracle):
    known = DigitWeights(Fraction(1234, 5), 40, signed).enclose(128)
    distance = [*range(40, 0, -1)] * signed + [*range(40)]
    for k, low, error in zip(distance, known.lower, known.errors, strict=True):
        true = oracle.mp.exp(-k / oracle.real("1234/5")) * oracle.mp.mpf(2) ** known.precision
        assert low <= true <= low + error + oracle.mp.mpf(10) ** -20
    assert known.rest() <= 1, "nothing follows the last symbol"


def inside(table, symbol, *, slot):
    """A word of this symbol: in a slot that is decided, or in one that is open."""
    bits = np.uint64(64 - table.slot_bits)
    below, above = (int(table.thresholds[symbol + i]) for i in (-1, 0))
    word = (below + above) // 2 if slot == "decided" else below + 1
    is_open = table.slots[int(np.uint64(word) >> bits)] == np.iinfo(np.int64).min
    assert is_open == (slot == "open")
    return word


def drawn(sampler, scripted, *words):
    """The draw that these words give."""
    out, source = np.empty(1, np.int64), scripted([[word] for word in words])
    sampler.fill(out, source)
    assert source.words == [], "every word was asked for"
    return int(out[0])


def test_the_bits_behind_a_decision_serve_the_next_group(scripted):
    sampler = DigitSampler(Fraction(10_000), shift=8)
    lowest, top = sampler.groups
    assert lowest.slot_bits + top.slot_bits <= 64
    head = inside(lowest, 256 + 77, slot="decided") >> (64 - lowest.slot_bits) << (64 - lowest.slot_bits)
    tail = inside(top, 5, slot="decided")
    assert drawn(sampler, scripted, head | tail >> lowest.slot_bits) == 5 * 256 + 77


def test_a_word_that_was_needed_whole_is_replaced(scripted):
    sampler = DigitSampler(Fraction(10_000), shift=8)
    lowest, top = sampler.groups
    fresh = inside(top, 5, slot="decided") >> lowest.slot_bits
    assert drawn(sampler, scripted, inside(lowest, 256 - 77, slot="open"), fresh) == -5 * 256 - 77


def test_missing_bits_are_drawn_when_the_whole_word_is_needed(scripted):
    """The second group has 48 bits of the word; the other 16 come from a fresh one and decide."""
    sampler = DigitSampler(Fraction(10_000), shift=8)
    lowest, top = sampler.groups
    missing = lowest.slot_bits
    head = inside(lowest, 256 + 77, slot="decided") >> (64 - missing) << (64 - missing)
    edge = int(top.thresholds[5])  # between the symbols 5 and 6
    assert 0 < edge & ((1 << missing) - 1) < (1 << missing) - 1
    for low_bits, expected in ((0, 5), ((1 << missing) - 1, 6)):
        fresh = low_bits << (64 - missing) | 12345
        assert drawn(sampler, scripted, head | edge >> missing, fresh, 99) == expected * 256 + 77


def test_many_groups_take_a_new_word_when_the_bits_run_out():
    """Five groups of 17 or 18 bits do not fit one word of 64; the second word is drawn for all at once."""

    class Counting(Insecure):
        asked = 0

        def u64(self, n):
            type(self).asked += n == 1 << 12
            return super().u64(n)

    sampler = DiscreteLaplace(2**53).sampler()
    assert len(sampler.groups) > 4
    out = np.empty(1 << 12, np.int64)
    sampler.fill(out, Counting(1))
    assert Counting.asked == 2
