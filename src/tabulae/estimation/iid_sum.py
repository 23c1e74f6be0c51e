"""The law of a sum of n equal discrete variables, from its characteristic function."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ..privacy import NoiseLaw

_WIDEST = (
    2.0**16
)  # standard deviations (in grid steps) above this use the limit, whose price is then invisible
_ROUNDING = 1e-12


@lru_cache(maxsize=4096)
def smallest_half_width(law: NoiseLaw, count: int, level: float) -> float:
    """Smallest integer q with ``P(|e_1 + ... + e_n| <= q) >= level``; infinite where the law is too wide.

    The probabilities are the Fourier coefficients of ``phi(t)^n``, by a sum over L >= 40 standard deviations
    points; what wraps round is below 1e-15 and is charged, with rounding, as 1e-12 to the level.

    >>> from fractions import Fraction
    >>> from tabulae.privacy import DiscreteGaussian
    >>> smallest_half_width(DiscreteGaussian(Fraction(1)), 1, 0.95)
    2.0
    """
    if count == 1:
        return float(law.margin(level))
    deviation = math.sqrt(law.variance_of_law * count)
    if deviation > _WIDEST:
        return math.inf
    length = 2 ** max(8, math.ceil(math.log2(80 * deviation + 64)))
    points = 2 * np.pi * np.arange(length // 2 + 1) / length
    probability = np.fft.irfft(law.characteristic(points) ** count, length)
    symmetric = np.concatenate([probability[:1], 2 * probability[1 : length // 2]])
    covered = np.cumsum(np.maximum(symmetric, 0.0))
    reached = np.flatnonzero(covered >= level + _ROUNDING)
    return float(reached[0]) if reached.size else math.inf
