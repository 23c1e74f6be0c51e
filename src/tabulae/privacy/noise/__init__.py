"""Exact integer noise, and the sources that it is drawn from.

A size is a number of draws or a shape; bits are the operating system's where there is no source. Sizes and parameters
outside their range raise `InvalidArgument`.

>>> discrete_gaussian(3, variance="5/2", source=Insecure(7)).dtype
dtype('int64')
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..loss.exact_numbers import Exact
from .laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from .random_bits import Insecure, KeyedSource, RandomBits, SystemSource

__all__ = [
    "Insecure",
    "KeyedSource",
    "RandomBits",
    "SystemSource",
    "discrete_gaussian",
    "discrete_laplace",
    "rounded_gaussian",
]


def discrete_gaussian(
    size: int | tuple[int, ...], variance: Exact, source: RandomBits | None = None
) -> NDArray[np.int64]:
    """Draws with P(k) proportional to e^{-k^2 / (2 variance)}, exactly.

    The variance is the parameter of the mass function, between 10^-30 and 10^30.

    Privacy: added to integer queries of L2 sensitivity d, (d^2 / (2 variance))-zCDP (Canonne, Kamath
    and Steinke 2020, Corollary 16). The draw has statistical distance 0 from the law, given ideal bits.

    Reference: https://arxiv.org/abs/2004.00010

    >>> discrete_gaussian((2, 2), variance=1000).shape
    (2, 2)
    """
    return DiscreteGaussian(variance).sample(size, source)


def discrete_laplace(
    size: int | tuple[int, ...], scale: Exact, source: RandomBits | None = None
) -> NDArray[np.int64]:
    """Draws with P(k) proportional to e^{-|k| / scale}, exactly.

    The scale is between 10^-30 and 2^53.

    Privacy: added to integer queries of L1 sensitivity d, (d / scale)-DP (Ghosh, Roughgarden and
    Sundararajan 2009). The draw has statistical distance 0 from the law, given ideal bits.

    >>> discrete_laplace(0, scale="1/3").size
    0
    """
    return DiscreteLaplace(scale).sample(size, source)


def rounded_gaussian(
    size: int | tuple[int, ...], variance: Exact, source: RandomBits | None = None
) -> NDArray[np.int64]:
    """Draws of a normal variable rounded to the nearest integer, exactly.

    The variance is that of the normal variable, between 10^-30 and 10^30.

    Privacy: added to integer queries of L2 sensitivity d, (epsilon, delta)-DP wherever the analytic
    Gaussian inequality holds for variance / d^2 (Balle and Wang 2018, Theorem 8), since rounding is
    post-processing. The draw has statistical distance 0 from the law, given ideal bits.

    Reference: https://arxiv.org/abs/1805.06530

    >>> rounded_gaussian(5, variance="2.5").shape
    (5,)
    """
    return RoundedGaussian(variance).sample(size, source)
