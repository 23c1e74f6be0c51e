"""Half-widths where of an answer's error only a bound V on its variance is known.

The error is ``S = sum_j z_j e_j`` with unknown z and ``sum z_j^2 Var(e_j) <= V``. Each discrete law is a continuous
one C, normal or Laplace, and a small rest D, independent from one noise variable to the next:

==================  ======================================  ================================================
discrete Laplace    ``floor X - floor Y``, X and Y            D: difference of two fractional parts, proxy 1/2
                    exponential; C = X - Y
rounded Gaussian    the nearest integer to C                 D: at most 1/2, proxy 1/4
discrete Gaussian   ``e + u``, u normal of variance t^2,      D = -u, proxy t^2
                    has a density of at most 1 + a times
                    that of C, normal of variance s^2 + t^2
==================  ======================================  ================================================

(By Poisson's formula the density of e + u is that of C times ``1 + 2 sum_k exp(-2 pi^2 w k^2) cos(..)`` over the same
at 0, with ``w = s^2 t^2 / (s^2 + t^2)``.) With c and d the largest ratios among the laws of Var(C) and of D's
sub-Gaussian proxy to Var(e), for any split ``a1 + a2`` of what may be missed

    P(|S| > h1 + h2) <= P(|sum z C| > h1) + P(|sum z D| > h2),   h2 = sqrt(2 d V log(2 / a2)),

and h1 is a multiple of ``sqrt(c V)``: the normal quantile, or the one of :func:`_laplace_quantile`. Both terms grow
with the variance, so that a bound on it is enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import integrate, optimize, special

from ..privacy import NoiseLaw
from .chernoff import gaussian_factor

_ALIASES = 1e-11  # charged to the level for densities of C that are not exactly so, and for quadrature
_SPLITS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4)


def bounded_half_widths(variance: np.ndarray, laws: Sequence[NoiseLaw], level: float) -> np.ndarray:
    """Half-widths h with ``P(|S| <= h) >= level`` for every S of a variance at most ``variance`` (m,), squared counts.

    Gaussian noise of few steps is not near a continuous law; a Chernoff bound takes over there.

    >>> from fractions import Fraction
    >>> from tabulae.privacy import DiscreteGaussian
    >>> fine = DiscreteGaussian(Fraction(10) ** 12)
    >>> bounded_half_widths(np.array([1.0]), [fine], 0.95).round(2).tolist()
    [1.96]
    """
    miss = 1 - level - _ALIASES
    laplace = laws[0].kind == "laplace"
    factor = math.inf if laplace else gaussian_factor(laws, level)
    continuous, rest = (max(column) for column in zip(*map(_coupling, laws), strict=True))
    if miss > 0 and math.isfinite(continuous):
        quantile = _laplace_quantile if laplace else _normal_quantile
        for share in _SPLITS:
            spread = math.sqrt(2 * rest * math.log(2 / (share * miss)))
            factor = min(factor, math.sqrt(continuous) * quantile((1 - share) * miss) + spread)
    return factor * np.sqrt(np.maximum(variance, 0.0))


def _coupling(law: NoiseLaw) -> tuple[float, float]:
    """Var(C) / Var(e) and the sub-Gaussian proxy of D over Var(e)."""
    continuous, rest = law.continuous_part()
    return continuous / law.variance_of_law, rest / law.variance_of_law


def _normal_quantile(miss: float) -> float:
    return float(-special.ndtri(miss / 2))


@lru_cache(maxsize=256)
def _laplace_quantile(miss: float) -> float:
    """The h at which sums of independent Laplace variables of total variance 1 exceed h with at most this probability.

    A Laplace variable of variance w is normal of variance w E, with E exponential of mean 1. So the probability is the
    mean of ``g(Q) = 2 Phi(-h / sqrt Q)`` with Q a mixture of such E. g is convex up to ``q = h^2 / 3`` and concave
    beyond; continued by its tangent there it is convex, increasing and nowhere below g, and its mean is largest
    when all variance is on one E (Jensen). At 95 % this is within 2 % of a single Laplace variable.

    >>> round(_laplace_quantile(0.05), 3)
    2.161
    """

    def exceeded(h: float) -> float:
        turn = h * h / 3
        at_turn = 2 * special.ndtr(-math.sqrt(3))
        slope = h * turn**-1.5 * math.exp(-1.5) / math.sqrt(2 * math.pi)
        below, _ = integrate.quad(lambda q: 2 * special.ndtr(-h / math.sqrt(q)) * math.exp(-q), 0, turn)
        return below + math.exp(-turn) * (at_turn + slope)

    high = 4.0
    while exceeded(high) > miss:
        high *= 2
    root: Any = optimize.brentq(lambda h: exceeded(h) - miss, 1e-3, high, xtol=1e-12)
    return float(root) * (1 + 1e-9)
