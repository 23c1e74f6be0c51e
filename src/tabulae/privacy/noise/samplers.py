"""Exact samplers of integers, each by a route that needs few random bits.

The table route: inversion of a distribution function known to 64 bits, refined until decided.

Let U be uniform on [0, 1) with bits revealed as needed, u its first 64, and T(k) = floor(2^64 F(k)).
u < T(k) proves U < F(k), and u > T(k) proves U >= F(k); only u = T(k) leaves the question open. The
draw is the least k with U < F(k). Where u equals a threshold (with probability about the number of
thresholds over 2^64) more bits of U are drawn and F is enclosed more tightly, until one symbol is
left: so the draw follows the law exactly, tails included.

Most draws are decided by their leading bits alone: ``slots`` maps those to a symbol wherever the
whole slot lies between two thresholds. The rest are searched for.

The digit route: a discrete Laplace of any scale out of a few small tables, one for each group of bits.

Write the magnitude of a draw as k = j 2^s + d_n 2^(s_n) + ... + d_1 2^(s_1) + r, groups of its bits. Then

    e^{-k / b} = e^{-j / (b / 2^s)} ... e^{-d_1 / (b / 2^(s_1))} e^{-r / b}

so the groups are independent, each with a geometric law of its own: j on all whole numbers, the others on
finitely many. The sign goes with the lowest group: let i be r or, for negative draws, -1 - r, with
probability proportional to e^{-|i| / b}. Then k xor i, with k the sum without r, is k + r or -(k + r) - 1, of
probability proportional to e^{-(k + r) / b} and e^{-(k + r + 1) / b}: the discrete Laplace law, with one zero.

The filtered route: a Gaussian of any variance, by a coarse block, a uniform place in it, and one exact decision.

Let g(y) = e^{-y^2 / (2 (s m)^2)} on y >= 0, and cut the half line into blocks of width m = 2^shift. A block
j is drawn with probability proportional to g(jm), its greatest value, a place w in [0, 1) uniformly, and
y = (j + w) m is kept with probability

    g(y) / g(jm) = e^-x,    x = w (2 j + w) / (2 s^2)

which is rejection sampling from g. The shift is chosen so that s, the scale in blocks, lies in [128, 256):
the block then comes from a small table, itself an exact sampler, and over 99 % are kept.

Whether U < e^-x is settled at once where U is below 1 - x for every place in the block, which is nearly
always: 1 - x <= e^-x. Otherwise it is settled in float64 where that is clear: U is known by its first 32
bits, and the float value of e^-x is within 2^-48 of the true one (``docs/methods/exact-noise.md``). Where
they come within 2^-31 of each other the same U and w are decided again with exact x and further bits, until
an integer enclosure of e^-x excludes one answer.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidArgument, Unsupported
from .enclosure import (
    DecreasingWeights,
    DigitWeights,
    GaussianWeights,
    GeometricWeights,
    enclose_distribution,
    enclose_exp,
)
from .random_bits import RandomBits, SystemSource

_WORD, _RESULT_BITS = 64, 62
_OPEN = np.iinfo(np.int64).min
_LEAST_SLOT_BITS, _MOST_SLOT_BITS, _SLOTS_PER_THRESHOLD = 12, 18, 6
_GROUP_BITS = 11  # tables of up to 2^12 symbols, which the slots of a table decide for 98 % of draws
_TOP_GROUP = 32  # the highest group of bits has a scale in [32, 64)
_BLOCKS = 128  # a filtered sampler has a standard deviation of [128, 256) blocks
_U_BITS = 32
_UNIT = float(1 << _U_BITS)
_MARGIN = 2.0  # in units of 2^-32: one for the bits of U not yet drawn, one for the errors of floats
_FARTHEST = 1 << 20  # blocks; beyond it lies less than 2^-20000 of the law
_CHUNK = 1 << 17
_COMPANY = 64  # at least so many are drawn at once and the rest thrown away, so that time tells little of one


class Sampler(Protocol):
    """Fills arrays with exact draws."""

    def fill(self, out: NDArray[np.int64], source: RandomBits) -> None:
        """Fill a contiguous one-dimensional array."""
        ...


@dataclass(frozen=True, eq=False)
class TableSampler:
    """Exact draws from the law proportional to ``weights``, on k >= 0 or mirrored where ``two_sided``.

    Privacy: the law drawn is exactly the one named, given ideal bits: no mass is cut off or rounded.

    >>> from fractions import Fraction
    >>> from tabulae.privacy.noise.enclosure import GeometricWeights
    >>> from tabulae.privacy.noise.random_bits import Insecure
    >>> sampler = TableSampler(GeometricWeights(Fraction(3)), two_sided=True)
    >>> out = np.empty(4, np.int64)
    >>> sampler.fill(out, Insecure(1))
    >>> out.shape
    (4,)
    """

    weights: DecreasingWeights
    two_sided: bool
    first: int = field(init=False)
    thresholds: NDArray[np.uint64] = field(init=False, repr=False)
    slots: NDArray[np.int64] = field(init=False, repr=False)
    slot_bits: int = field(init=False)

    def __post_init__(self) -> None:
        first, thresholds = table(self.weights, two_sided=self.two_sided)
        wanted = len(thresholds).bit_length() + _SLOTS_PER_THRESHOLD
        slot_bits = min(max(wanted, _LEAST_SLOT_BITS), _MOST_SLOT_BITS)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "thresholds", thresholds)
        object.__setattr__(self, "slot_bits", slot_bits)
        object.__setattr__(self, "slots", _slots(thresholds, first, slot_bits))

    def fill(self, out: NDArray[np.int64], source: RandomBits) -> None:
        self.read(out, source.u64(out.size), 0, source)

    def read(
        self, out: NDArray[np.int64], words: NDArray[np.uint64], missing: int, source: RandomBits
    ) -> NDArray[np.intp]:
        """Fill from given words, whose last ``missing`` bits are zeros in place of bits that were used before.

        Returns the indices of the draws that needed the whole word. The others looked at its leading
        ``slot_bits`` bits alone, so that what follows those may serve another draw.
        """
        index = (words >> np.uint64(_WORD - self.slot_bits)).view(np.int64)
        np.take(self.slots, index, out=out, mode="clip")
        unsettled = np.flatnonzero(out == _OPEN)
        if unsettled.size:
            whole = words[unsettled]
            if missing:
                whole |= source.u64(unsettled.size) >> np.uint64(_WORD - missing)
            out[unsettled] = self._search(whole, source)
        return unsettled

    def _search(self, words: NDArray[np.uint64], source: RandomBits) -> NDArray[np.int64]:
        index = np.searchsorted(self.thresholds, words)
        found = index + self.first
        for tie in np.flatnonzero(self.thresholds[index] == words):
            found[tie] = self.refine(int(words[tie]), source)
        return found

    def refine(self, word: int, source: RandomBits) -> int:
        """The draw whose first 64 bits are ``word``: reveal more bits until one symbol is left."""
        value, bits = word, _WORD
        while True:
            value, bits = value << _WORD | source.bits(_WORD), bits + _WORD
            known = enclose_distribution(self.weights, bits, two_sided=self.two_sided)
            i = bisect_left(known.lower, value + 1)
            if i < len(known.lower) and (i == 0 or known.upper[i - 1] <= value):
                return known.first + i


def table(weights: DecreasingWeights, *, two_sided: bool) -> tuple[int, NDArray[np.uint64]]:
    """The first symbol and the thresholds floor(2^64 F(k)), each proven by an enclosure of F(k).

    Symbols beyond the last threshold of 0 and the first of 2^64 - 1 are left out: a word that meets
    either is refined.

    Privacy: none is spent; an entry is taken only where both ends of its enclosure have the same floor.

    >>> from fractions import Fraction
    >>> from tabulae.privacy.noise.enclosure import GeometricWeights
    >>> table(GeometricWeights(Fraction(1, 1000)), two_sided=True)
    (-1, array([                   0, 18446744073709551615], dtype=uint64))
    """
    precision, greatest = 2 * _WORD, (1 << _WORD) - 1
    while True:
        known = enclose_distribution(weights, precision, two_sided=two_sided)
        shift = precision - _WORD
        floors = [value >> shift for value in known.lower]
        others = [min(value >> shift, greatest) for value in known.upper]  # F < 1
        if floors == others:
            break
        precision += _WORD
    zeros, full = bisect_left(floors, 1), bisect_left(floors, greatest)
    start = max(zeros - 1, 0)
    return known.first + start, np.array(floors[start : full + 1], np.uint64)


def _slots(thresholds: NDArray[np.uint64], first: int, slot_bits: int) -> NDArray[np.int64]:
    """For each value of the leading bits: the symbol that they decide, or the mark of an open slot."""
    width = np.uint64(_WORD - slot_bits)
    low = np.arange(1 << slot_bits, dtype=np.uint64) << width
    high = low + np.uint64((1 << int(width)) - 1)
    index = np.searchsorted(thresholds, low)
    decided = index == np.searchsorted(thresholds, high, side="right")
    return np.where(decided, index + first, _OPEN).astype(np.int64)


@dataclass(frozen=True, eq=False)
class DigitSampler:
    """Exact draws with P(k) proportional to e^{-|k| / scale}, with the last ``shift`` > 0 bits in groups.

    Privacy: the law drawn is exactly the one named, given ideal bits: every group is drawn by an exact table.

    >>> from tabulae.privacy.noise.random_bits import Insecure
    >>> sampler = DigitSampler(Fraction(10**6), shift=14)
    >>> out = np.empty(1000, np.int64)
    >>> sampler.fill(out, Insecure(1))
    >>> bool(4 * 10**6 < abs(out).max() < 2 * 10**7)
    True
    """

    scale: Fraction
    shift: int
    cuts: tuple[int, ...] = field(init=False)
    groups: tuple[TableSampler, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        count = -(-self.shift // _GROUP_BITS)
        cuts = tuple(self.shift * i // count for i in range(count + 1))
        laws: list[DecreasingWeights] = [
            DigitWeights(self.scale / (1 << low), 1 << (high - low), signed=low == 0)
            for low, high in pairwise(cuts)
        ]
        laws.append(GeometricWeights(self.scale / (1 << self.shift)))
        object.__setattr__(self, "cuts", cuts)
        object.__setattr__(self, "groups", tuple(TableSampler(law, two_sided=False) for law in laws))

    @classmethod
    def of(cls, scale: Fraction) -> DigitSampler:
        """Groups such that the law of the highest has a scale in [32, 64)."""
        return cls(scale, _shift(scale, _TOP_GROUP, 2))

    def fill(self, out: NDArray[np.int64], source: RandomBits) -> None:
        """Fill a contiguous one-dimensional array with independent draws.

        A word serves several groups where its leading bits decide the first: the bits behind them are
        independent of what they decided.
        """
        words, used = source.u64(out.size), 0
        digit = np.empty_like(out)
        for table, low in zip(self.groups, self.cuts, strict=True):
            if used + table.slot_bits > _WORD:
                words, used = source.u64(out.size), 0
            whole = table.read(digit if low else out, words, used, source)
            used += table.slot_bits
            words <<= np.uint64(table.slot_bits)
            if whole.size:  # nothing is left of these words
                words[whole] = source.u64(whole.size) << np.uint64(used)
            if low:
                self._join(out, digit, low)
            else:
                out -= 1 << self.cuts[1]

    def _join(self, out: NDArray[np.int64], digit: NDArray[np.int64], low: int) -> None:
        if int(digit.max()) >> (_RESULT_BITS - low):
            raise Unsupported("a draw fell so far out that 64 bits may not hold it; choose a smaller scale")
        digit <<= low
        out ^= digit


@dataclass(frozen=True, eq=False)
class FilteredSampler:
    """Exact draws of a Gaussian of variance ``variance`` 4^shift, which is given in blocks of 2^shift.

    Where ``rounded`` is false the law is P(k) proportional to g(|k|) on the integers, and ``shift`` is
    not negative. Where it is true a real y with density proportional to g(|y|) is drawn, as far as
    needed, and rounded to the nearest integer; ``shift`` may then be negative.

    Privacy: rejection sampling with every decision made exactly: the law drawn is the one named.

    >>> from tabulae.privacy.noise.random_bits import Insecure
    >>> sampler = FilteredSampler(Fraction(2000), shift=20, rounded=False)
    >>> out = np.empty(1000, np.int64)
    >>> sampler.fill(out, Insecure(1))
    >>> bool(2**24 < abs(out).max() < 2**29)
    True
    """

    variance: Fraction
    shift: int
    rounded: bool
    blocks: TableSampler = field(init=False, repr=False)
    clear: NDArray[np.uint64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", TableSampler(GaussianWeights(self.variance), two_sided=False))
        object.__setattr__(self, "clear", self._clear())

    @classmethod
    def of(cls, variance: Fraction, *, rounded: bool) -> FilteredSampler:
        """Blocks of which a standard deviation holds between 128 and 256."""
        shift = _shift(variance, _BLOCKS**2, 4)
        return cls(variance / Fraction(4) ** shift, shift, rounded)

    def fill(self, out: NDArray[np.int64], source: RandomBits) -> None:
        pending = np.flatnonzero(~self._propose(out, source))
        while pending.size:
            again = np.empty(pending.size, np.int64)
            kept = self._propose(again, source)
            out[pending] = again
            pending = pending[~kept]

    def _propose(self, out: NDArray[np.int64], source: RandomBits) -> NDArray[np.bool_]:
        """Write a proposal into every entry; say which are kept."""
        self.blocks.fill(out, source)
        if int(out.max()) > min(_FARTHEST, (1 << _RESULT_BITS - max(self.shift, 0)) - 1):
            raise Unsupported("a draw fell so far out that 64 bits may not hold it; choose a smaller scale")
        coins = source.u64(out.size)
        words = self._places(coins, source)
        kept = (coins >> np.uint64(_WORD - _U_BITS)) < np.take(self.clear, out, mode="clip")
        rest = np.flatnonzero(~kept)
        if rest.size:
            kept[rest] = self._keep(out[rest], words[rest], coins[rest], source)
        self._spread(out, words)
        negative = (coins & np.uint64(1)).view(np.int64)
        if not self.rounded:
            kept[rest] &= (out[rest] | (negative[rest] ^ 1)) != 0  # zero has one sign only
        out ^= -negative
        out += negative
        return kept

    def _clear(self) -> NDArray[np.uint64]:
        """For each block, the integer below which the first bits of U keep a draw wherever in it w lies.

        That is 2^32 (1 - x) less the margin, with x at its greatest, w = 1. None is clear in block 0 where
        a negative zero must be looked for, nor beyond the listed blocks, which all read the last entry.
        """
        block = np.arange(len(self.blocks.thresholds) + 1)
        x = self.fall(block, np.ones(block.size))
        clear = np.maximum(_UNIT * (1.0 - x) - _MARGIN, 0.0).astype(np.uint64)
        clear[-1] = 0
        clear[0] *= np.uint64(self.rounded)
        return clear

    def _places(self, coins: NDArray[np.uint64], source: RandomBits) -> NDArray[np.uint64]:
        """Words whose leading bits are w: the lower half of the coin but its last bit, if that is enough."""
        if not self.rounded and self.shift < _WORD - _U_BITS:
            return coins << np.uint64(_U_BITS)
        return source.u64(coins.size)

    def _spread(self, block: NDArray[np.int64], words: NDArray[np.uint64]) -> None:
        """Put floor(y), or floor(y + 1/2) where rounded, in place of the block; the leading bits of w decide."""
        if not self.rounded:
            block <<= self.shift
            block |= self._offset(words)
        elif self.shift < 0:
            block += 1 << (-self.shift - 1)
            block >>= -self.shift
        else:
            halves = (words >> np.uint64(_WORD - 1 - self.shift)).view(np.int64)
            halves += 1
            halves >>= 1
            block <<= self.shift
            block += halves

    def _offset(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        if self.shift == 0:
            return np.zeros(1, np.int64)
        return (words >> np.uint64(_WORD - self.shift)).view(np.int64)

    def _place(self, words: NDArray[np.uint64]) -> NDArray[np.float64]:
        bits, width = (words, _WORD) if self.rounded else (self._offset(words), self.shift)
        place = bits.astype(np.float64)
        place *= 2.0**-width
        return place

    def _keep(
        self,
        block: NDArray[np.int64],
        words: NDArray[np.uint64],
        coins: NDArray[np.uint64],
        source: RandomBits,
    ) -> NDArray[np.bool_]:
        """Decide U < e^-x for every entry; the upper half of a coin begins U, its last bit is the sign."""
        x = self.fall(block, self._place(words))
        gap = _UNIT * np.exp(-x) - (coins >> np.uint64(_WORD - _U_BITS)).astype(np.float64)
        kept = gap > _MARGIN
        for i in np.flatnonzero(np.abs(gap) <= _MARGIN):
            kept[i] = self.decide(int(block[i]), int(words[i]), int(coins[i]), source)
        return kept

    def fall(self, block: NDArray[np.int64], place: NDArray[np.float64]) -> NDArray[np.float64]:
        """x = w (2 j + w) / (2 variance) in float64, of relative error below 2^-50."""
        x = block.astype(np.float64)
        x *= 2.0
        x += place
        x *= place
        x *= float(1 / (2 * self.variance))
        return x

    def exact_fall(self, block: int, place: Fraction) -> Fraction:
        """The same x, exactly."""
        return place * (2 * block + place) / (2 * self.variance)

    def decide(self, block: int, word: int, coin: int, source: RandomBits) -> bool:
        """U < e^-x, exactly: draw further bits of U, and of w where rounded, until it is decided."""
        u, precision = coin >> (_WORD - _U_BITS), _U_BITS
        place = word if self.rounded else (word >> (_WORD - self.shift) if self.shift else 0)
        place_bits = _WORD if self.rounded else self.shift
        while True:
            u, precision = u << _WORD | source.bits(_WORD), precision + _WORD
            if self.rounded:
                place, place_bits = place << _WORD | source.bits(_WORD), place_bits + _WORD
            least = Fraction(place, 1 << place_bits)
            most = Fraction(place + 1, 1 << place_bits) if self.rounded else least
            if u + 1 <= enclose_exp(self.exact_fall(block, most), precision)[0]:
                return True
            if u >= enclose_exp(self.exact_fall(block, least), precision)[1]:
                return False


def _shift(parameter: Fraction, least: int, base: int) -> int:
    """The power of ``base`` that brings the parameter into [least, least * base)."""
    shift = 0
    while parameter >= least * base:
        parameter, shift = parameter / base, shift + 1
    while parameter < least:
        parameter, shift = parameter * base, shift - 1
    return shift


@lru_cache(maxsize=1)
def _system_source() -> SystemSource:
    return SystemSource()


def draw(sampler: Sampler, size: int | tuple[int, ...], source: RandomBits | None) -> NDArray[np.int64]:
    """An int64 array of independent draws, filled a chunk at a time.

    Args:
        sampler: what to draw.
        size: the number of draws, or a shape.
        source: where the bits come from; the operating system's where None.

    Raises:
        InvalidArgument: a size that is not made of non-negative integers.

    Privacy: each draw uses fresh bits.

    >>> draw(DigitSampler.of(Fraction(1000)), (2, 3), None).shape
    (2, 3)
    """
    shape = (size,) if isinstance(size, (int, np.integer)) else size
    if not isinstance(shape, tuple) or any(
        isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in shape
    ):
        raise InvalidArgument(f"size is {size!r}; give a non-negative integer or a tuple of them")
    count = prod(int(n) for n in shape)
    out = np.empty(max(count, _COMPANY) if count else 0, np.int64)
    bits = _system_source() if source is None else source
    for start in range(0, out.size, _CHUNK):
        sampler.fill(out[start : start + _CHUNK], bits)
    return (out if out.size == count else out[:count].copy()).reshape(shape)
