"""The table route: inversion of a distribution function known to 64 bits, refined until decided.

Let U be uniform on [0, 1) with bits revealed as needed, u its first 64, and T(k) = floor(2^64 F(k)).
u < T(k) proves U < F(k), and u > T(k) proves U >= F(k); only u = T(k) leaves the question open. The
draw is the least k with U < F(k). Where u equals a threshold (with probability about the number of
thresholds over 2^64) more bits of U are drawn and F is enclosed more tightly, until one symbol is
left: so the draw follows the law exactly, tails included.

Most draws are decided by their leading bits alone: ``slots`` maps those to a symbol wherever the
whole slot lies between two thresholds. The rest are searched for.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .enclosure import Weights, enclose_distribution
from .source import Source

_WORD = 64
_OPEN = np.iinfo(np.int64).min
_LEAST_SLOT_BITS, _MOST_SLOT_BITS, _SLOTS_PER_THRESHOLD = 12, 18, 6


@dataclass(frozen=True, eq=False)
class TableSampler:
    """Exact draws from the law proportional to ``weights``, on k >= 0 or mirrored where ``two_sided``.

    Privacy: the law drawn is exactly the one named, given ideal bits: no mass is cut off or rounded.

    >>> from fractions import Fraction
    >>> from tabulae.privacy.enclosure import GeometricWeights
    >>> from tabulae.privacy.source import Insecure
    >>> sampler = TableSampler(GeometricWeights(Fraction(3)), two_sided=True)
    >>> out = np.empty(4, np.int64)
    >>> sampler.fill(out, Insecure(1))
    >>> out.shape
    (4,)
    """

    weights: Weights
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

    def fill(self, out: NDArray[np.int64], source: Source) -> None:
        """Fill a contiguous one-dimensional array with independent draws."""
        self.read(out, source.u64(out.size), 0, source)

    def read(
        self, out: NDArray[np.int64], words: NDArray[np.uint64], missing: int, source: Source
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

    def _search(self, words: NDArray[np.uint64], source: Source) -> NDArray[np.int64]:
        index = np.searchsorted(self.thresholds, words)
        found = index + self.first
        for tie in np.flatnonzero(self.thresholds[index] == words):
            found[tie] = self.refine(int(words[tie]), source)
        return found

    def refine(self, word: int, source: Source) -> int:
        """The draw whose first 64 bits are ``word``: reveal more bits until one symbol is left."""
        value, bits = word, _WORD
        while True:
            value, bits = value << _WORD | source.bits(_WORD), bits + _WORD
            known = enclose_distribution(self.weights, bits, two_sided=self.two_sided)
            i = bisect_left(known.lower, value + 1)
            if i < len(known.lower) and (i == 0 or known.upper[i - 1] <= value):
                return known.first + i


def table(weights: Weights, *, two_sided: bool) -> tuple[int, NDArray[np.uint64]]:
    """The first symbol and the thresholds floor(2^64 F(k)), each proven by an enclosure of F(k).

    Symbols beyond the last threshold of 0 and the first of 2^64 - 1 are left out: a word that meets
    either is refined.

    Privacy: none is spent; an entry is taken only where both ends of its enclosure have the same floor.

    >>> from fractions import Fraction
    >>> from tabulae.privacy.enclosure import GeometricWeights
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
