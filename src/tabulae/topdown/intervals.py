"""How wide intervals of areas' counts are, in standard deviations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from ..errors import InvalidArgument
from ..estimation.bounded import bounded_half_widths
from ..privacy import DiscreteLaplace, NoiseLaw


def interval_factor(level: float, laws: Sequence[NoiseLaw]) -> float:
    """Half the width of an interval about an estimate that is linear in the noise, in its standard deviations.

    Under Gaussian noise the error is normal but for the grid of whole numbers, and this is the normal quantile: where
    an estimate rests on one draw of a standard deviation near 1, what is covered may be some percent less or more than
    the level. Under Laplace noise it is a factor with which the coverage is at least the level, for every linear
    combination of draws of these laws.

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
    if any(isinstance(law, DiscreteLaplace) for law in laws):
        return float(bounded_half_widths(np.ones(1), laws, level)[0])
    return float(ndtri((1 + level) / 2))
