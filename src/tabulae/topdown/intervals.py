"""How wide the intervals of areas' counts are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from ..errors import InvalidArgument
from ..estimation.bounded import bounded_half_widths
from ..privacy import DiscreteLaplace, NoiseLaw

HALF_STEP = 0.5
"""What the grid of whole numbers costs under Gaussian noise, in counts."""


def interval_factor(level: float, laws: Sequence[NoiseLaw]) -> float:
    """The part of a half-width that grows with the standard error, in standard errors.

    Args:
        level: of the interval.
        laws: of the noise, all of one kind.

    Raises:
        InvalidArgument: a level outside (0, 1), or no laws.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> round(interval_factor(0.95, [DiscreteGaussian(4)]), 3)
    1.96
    >>> round(interval_factor(0.95, [DiscreteLaplace(1000)]), 2)
    2.16
    """
    if not 0 < level < 1:
        raise InvalidArgument(f"the level of an interval lies between 0 and 1, not {level!r}")
    if not laws:
        raise InvalidArgument("an interval needs the laws of the noise, and there are none")
    if costs_half_step(laws):
        return float(ndtri((1 + level) / 2))
    return float(bounded_half_widths(np.ones(1), laws, level)[0])


def costs_half_step(laws: Sequence[NoiseLaw]) -> bool:
    """Whether noise is Gaussian with a standard deviation of 1 or more: normal, but for the grid."""
    return not any(isinstance(law, DiscreteLaplace) or law.parameter < 1 for law in laws)


def area_half_widths(variance: np.ndarray, laws: Sequence[NoiseLaw], level: float) -> np.ndarray:
    """Half the width of an interval about estimates ``sum_j z_j e_j`` of counts, e the noise of the laws.

    Under Laplace noise, and where some Gaussian noise has a variance below 1, a factor times the standard error s
    covers at least the level, whatever the weights z. Under other Gaussian noise it is the normal quantile times s, and
    half a count more: what the grid of whole numbers costs at most where no weight exceeds 1 (Selberg's minorant:
    Vaaler 1985). Least squares gives counts of areas no weight above 1 on any spine that was tried; that none is
    possible is not proven.

    Args:
        variance: s squared, any shape; 0 where a count is exact.
        laws: of the noise, all of one kind.
        level: of the intervals.

    Returns:
        The same shape; 0 where the variance is 0.

    Raises:
        InvalidArgument: as :func:`interval_factor`.

    >>> from tabulae.privacy import DiscreteGaussian
    >>> area_half_widths(np.array([0.0, 1.0, 100.0]), [DiscreteGaussian(1)], 0.95).round(2).tolist()
    [0.0, 2.46, 20.1]
    """
    factor = interval_factor(level, laws)
    step = HALF_STEP if costs_half_step(laws) else 0.0
    return np.where(variance > 0, factor * np.sqrt(variance) + step, 0.0)
