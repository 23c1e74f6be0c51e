"""Randomness that can be drawn twice, with a list of what was asked of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..privacy import Insecure


class Recorded(Insecure):
    """The same words for the same seed, and what was asked for, in order.

    It is an insecure source: nothing drawn from it can be charged to a ledger or published.

    Arguments:
        seed: equal seeds give equal words.

    Privacy:
        None; see :class:`tabulae.privacy.Insecure`.

    >>> source = Recorded(1)
    >>> _ = source.u64(3), source.bits(5)
    >>> source.requests
    [('u64', 3), ('bits', 5)]
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.requests: list[tuple[str, int]] = []

    def u64(self, n: int) -> NDArray[np.uint64]:
        """n words of 64 bits."""
        self.requests.append(("u64", n))
        return super().u64(n)

    def bits(self, k: int) -> int:
        """An integer of k bits."""
        self.requests.append(("bits", k))
        return super().bits(k)
