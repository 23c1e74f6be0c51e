"""Zero suppression: below which noisy count a total is not published, so that most totals of nobody are not."""

from __future__ import annotations

from fractions import Fraction

from ...privacy import NoiseLaw


def suppression_threshold(law: NoiseLaw, chance: Fraction) -> int | None:
    """The least integer t with ``P(X <= t) >= chance``; a total is kept if it is above t. None for a chance of 0.

    The law's tail is an upper bound within 10^-12 of the truth, so that t is never too small, and too large only where
    a probability agrees with the chance to 12 digits.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> suppression_threshold(DiscreteGaussian(100), Fraction("0.5"))
    0
    """
    if chance <= 0:
        return None
    miss, high = 1 - chance, 1
    while not _reached(law, high, miss):
        high *= 2
    low = -1
    while _reached(law, low, miss):
        low *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _reached(law, middle, miss) else (middle, high)
    return high


def _reached(law: NoiseLaw, t: int, miss: Fraction) -> bool:
    """Whether ``P(X > t) <= miss``, for a law that is symmetric around 0."""
    if t >= 0:
        return Fraction(law.tail(t)) / 2 <= miss
    return 1 - Fraction(law.tail(-t - 1)) / 2 <= miss
