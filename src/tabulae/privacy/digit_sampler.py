"""The digit route: a discrete Laplace of any scale out of a few small tables, one for each group of bits.

Write the magnitude of a draw as k = j 2^s + d_n 2^(s_n) + ... + d_1 2^(s_1) + r, groups of its bits. Then

    e^{-k / b} = e^{-j / (b / 2^s)} ... e^{-d_1 / (b / 2^(s_1))} e^{-r / b}

so the groups are independent, each with a geometric law of its own: j on all whole numbers, the others on
finitely many. The sign goes with the lowest group: let i be r or, for negative draws, -1 - r, with
probability proportional to e^{-|i| / b}. Then k xor i, with k the sum without r, is k + r or -(k + r) - 1, of
probability proportional to e^{-(k + r) / b} and e^{-(k + r + 1) / b}: the discrete Laplace law, with one zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import Unsupported
from .enclosure import (
    DigitWeights,
    GeometricWeights,
    Weights,
)
from .source import Source
from .table_sampler import TableSampler

_GROUP_BITS = 11  # tables of up to 2^12 symbols, which the slots of a table decide for 98 % of draws
_WORD, _RESULT_BITS = 64, 62


@dataclass(frozen=True, eq=False)
class DigitSampler:
    """Exact draws with P(k) proportional to e^{-|k| / scale}, with the last ``shift`` > 0 bits in groups.

    Privacy: the law drawn is exactly the one named, given ideal bits: every group is drawn by an exact table.

    >>> from tabulae.privacy.source import Insecure
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
        laws: list[Weights] = [
            DigitWeights(self.scale / (1 << low), 1 << (high - low), signed=low == 0)
            for low, high in pairwise(cuts)
        ]
        laws.append(GeometricWeights(self.scale / (1 << self.shift)))
        object.__setattr__(self, "cuts", cuts)
        object.__setattr__(self, "groups", tuple(TableSampler(law, two_sided=False) for law in laws))

    def fill(self, out: NDArray[np.int64], source: Source) -> None:
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
