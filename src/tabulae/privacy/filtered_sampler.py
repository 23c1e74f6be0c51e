"""The filtered route: a Gaussian of any variance, by a coarse block, a uniform place in it, and one exact decision.

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

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..errors import Unsupported
from .enclosure import GaussianWeights, enclose_exp
from .source import Source
from .table_sampler import TableSampler

_WORD, _U_BITS = 64, 32
_UNIT = float(1 << _U_BITS)
_MARGIN = 2.0  # in units of 2^-32: one for the bits of U not yet drawn, one for the errors of floats
_FARTHEST = 1 << 20  # blocks; beyond it lies less than 2^-20000 of the law
_RESULT_BITS = 62


@dataclass(frozen=True, eq=False)
class FilteredSampler:
    """Exact draws of a Gaussian of variance ``variance`` 4^shift, which is given in blocks of 2^shift.

    Where ``rounded`` is false the law is P(k) proportional to g(|k|) on the integers, and ``shift`` is
    not negative. Where it is true a real y with density proportional to g(|y|) is drawn, as far as
    needed, and rounded to the nearest integer; ``shift`` may then be negative.

    Privacy: rejection sampling with every decision made exactly: the law drawn is the one named.

    >>> from tabulae.privacy.source import Insecure
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

    def fill(self, out: NDArray[np.int64], source: Source) -> None:
        """Fill a contiguous one-dimensional array with independent draws."""
        pending = np.flatnonzero(~self._propose(out, source))
        while pending.size:
            again = np.empty(pending.size, np.int64)
            kept = self._propose(again, source)
            out[pending] = again
            pending = pending[~kept]

    def _propose(self, out: NDArray[np.int64], source: Source) -> NDArray[np.bool_]:
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

    def _places(self, coins: NDArray[np.uint64], source: Source) -> NDArray[np.uint64]:
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
        self, block: NDArray[np.int64], words: NDArray[np.uint64], coins: NDArray[np.uint64], source: Source
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

    def decide(self, block: int, word: int, coin: int, source: Source) -> bool:
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
