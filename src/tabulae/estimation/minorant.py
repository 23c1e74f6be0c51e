"""Selberg's minorant: from bounds on a characteristic function to a proven coverage.

For a symmetric S and any T > 0, Selberg's minorant of the indicator of [-h, h] has Fourier support
in [-T, T], so that

    P(|S| <= h) >= int_0^1 K_h(u) phi(u T) du,
    K_h(u) = 2 J(u) / (pi u) * sin(u T h) - 2 (1 - u) cos(u T h),
    J(u)   = pi u (1 - u) cot(pi u) + u,

and only phi on [0, T] matters. Where only ``lo <= phi <= hi`` is known, the midpoint is integrated and
``|K_h| (hi - lo) / 2`` taken off. (Vaaler, "Some extremal functions in Fourier analysis", 1985, Theorem 8
and section 2.) S is taken in units of its standard deviation throughout.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .coverage import _Scaled

_ERROR = 1e-8  # charged to the level: quadrature, and aliasing of discrete Gaussians, which is kept below it
_GAUSSIAN_END = 7.5  # exp(-7.5^2 / 2) = 6e-13
_LAPLACE_CUT = 400.0


def kernel_weights(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors of sin(u T h) and -cos(u T h) in K_h(u); u strictly between 0 and 1."""
    j = np.pi * u * (1 - u) / np.tan(np.pi * u) + u
    return 2 * j / (np.pi * u), 2 * (1 - u)


def _nodes(end: float, panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [0, end], 16 a panel."""
    x, w = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(0.0, end, panels + 1)
    half = np.diff(edges)[:, None] / 2
    middle = (edges[:-1] + edges[1:])[:, None] / 2
    return (middle + half * x).ravel(), (half * w).ravel()


def _solve(t: np.ndarray, w: np.ndarray, cut: float, lo: np.ndarray, hi: np.ndarray, level: float) -> float:
    """Smallest h found, in standard deviations, with coverage at least ``level``; infinite if none below 50."""
    sine, cosine = kernel_weights(t / cut)
    middle, half = w * (lo + hi) / 2, w * (hi - lo) / 2
    certain = not half.any()

    def coverage(h: float) -> float:
        k = sine * np.sin(t * h) - cosine * np.cos(t * h)
        return float(k @ middle - (0.0 if certain else np.abs(k) @ half)) / cut - _ERROR

    low, high = 0.0, 50.0
    if coverage(high) < level:
        return math.inf
    for _ in range(30):
        mid = (low + high) / 2
        low, high = (low, mid) if coverage(mid) >= level else (mid, high)
    return high


@lru_cache(maxsize=4096)
def _gaussian(cut: float, level: float) -> float:
    end = min(_GAUSSIAN_END, cut)
    t, w = _nodes(end, 24)
    phi = np.exp(-t * t / 2)
    return _solve(t, w, cut, phi, phi, level)


def gaussian_half_width(scaled: _Scaled, level: float) -> np.ndarray:
    """Half-widths by the normal limit for discrete and rounded Gaussian noise; infinite where it does not hold.

    A coordinate's characteristic function at angle ``theta = z g t`` is the normal one up to its aliases, at most
    ``4 exp(-sigma^2 (2 pi - |theta|)^2 / 2)``; T keeps the sum of aliases over all terms below 1e-9.
    Rounding (for the rounded Gaussian) multiplies it by ``sinc(theta / 2)``, within ``theta^4 / 2880`` of
    the normal factor that the variance 1/12 stands for; that is negligible from sigma = 20 on, else refused.
    """
    out = np.full(scaled.deviation.shape, np.inf)
    cut = np.full(out.shape, 1e4)
    for law, step in zip(scaled.laws, scaled.step, strict=True):
        sigma = math.sqrt(float(law.parameter))
        alias = np.sqrt(2 * np.log(4e9 * np.maximum(scaled.terms, 1.0))) / sigma
        usable = (alias < np.pi) & (sigma >= (20.0 if law.name == "rounded-gaussian" else 1.5))
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(step > 0, (2 * np.pi - alias) * scaled.deviation / step, np.inf)
        cut = np.where(usable | (step == 0), np.minimum(cut, reach), 0.0)
    for value in np.unique(_rounded_down(cut[(cut > 1) & (scaled.deviation > 0)])):
        rows = (_rounded_down(cut) == value) & (scaled.deviation > 0)
        out[rows] = _gaussian(float(value), level) * scaled.deviation[rows]
    return out


def _rounded_down(values: np.ndarray) -> np.ndarray:
    """To three significant binary digits below, so that few distinct values are solved for."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.floor(mantissa * 64) / 64, exponent)


@lru_cache(maxsize=4096)
def _laplace(least: float, most: float, share: float, cut: float, shrink: float, level: float) -> float:
    t, w = _nodes(cut, max(24, int(cut)))
    x = t * t / 2
    largest = share * x
    lo = np.exp(-x * (1 - least / share * (1 - np.log1p(largest) / largest)))
    hi = np.exp(-np.log1p(shrink * most * x) / most)
    return _solve(t, w, cut, np.minimum(lo, hi), hi, level)


def laplace_half_width(scaled: _Scaled, level: float) -> np.ndarray:
    """Half-widths for sums of discrete Laplace variables, from the spread of their variances v_j.

    With ``x_j = v_j t^2 / 2``, ``-log phi = sum log(1 + x_j (1 - O(theta_j^2 / 12)))``. As log(1+x)/x is convex and
    decreasing, weights x_j / X put the sum between ``X log(1 + kappa X) / (kappa X)`` and ``X (1 - kappa/rho
    (1 - log(1 + rho X) / (rho X)))`` with ``X = t^2 s^2 / 2``, kappa = sum v_j^2 / s^4 and rho = max v_j / s^2.
    """
    out = np.full(scaled.deviation.shape, np.inf)
    step = scaled.step.max(axis=0)
    live = scaled.deviation > 0
    with np.errstate(divide="ignore"):
        cut = _rounded_down(np.minimum(_LAPLACE_CUT, np.where(live, scaled.deviation / np.where(step > 0, step, 1), 0.0)))
    grid = 32.0  # peakedness is bracketed on a geometric grid of ratio 2^(1/32)
    with np.errstate(divide="ignore"):
        kappa = np.floor(np.log2(np.maximum(scaled.kurtosis, 1e-12)) * grid)
        rho = np.ceil(np.log2(np.maximum(scaled.share, 1e-12)) * grid)
    live &= cut >= 4
    keys = np.stack([kappa, rho, cut])[:, live]
    for k, r, c in np.unique(keys, axis=1).T:
        rows = live & (kappa == k) & (rho == r) & (cut == c)
        least, most, share = 2 ** (k / grid), min(1.0, 2 ** ((k + 1) / grid)), min(1.0, 2 ** (r / grid))
        theta = (c * step[rows] / scaled.deviation[rows]).max()
        width = _laplace(min(least, share), most, share, float(c), float(1 - math.ceil(theta * 64) ** 2 / 4096 / 12), level)
        out[rows] = width * scaled.deviation[rows]
    return out
