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

import numpy as np

from .spread import Spread

_ERROR = 1e-8  # charged to the level: quadrature, and aliasing of discrete Gaussians, which is kept below it
_GAUSSIAN_END = 7.5  # exp(-7.5^2 / 2) = 6e-13
_LAPLACE_CUT = 300.0
_WIDEST = 15.0  # half-widths sought, in standard deviations


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
    """Smallest h found, in standard deviations, with coverage at least ``level``; infinite if none below 15."""
    sine, cosine = kernel_weights(t / cut)
    middle, half = w * (lo + hi) / 2, w * (hi - lo) / 2
    certain = not half.any()

    def coverage(h: float) -> float:
        k = sine * np.sin(t * h) - cosine * np.cos(t * h)
        return float(k @ middle - (0.0 if certain else np.abs(k) @ half)) / cut - _ERROR

    low, high = 0.0, _WIDEST
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


def gaussian_half_width(spread: Spread, level: float) -> np.ndarray:
    """Half-widths by the normal limit for discrete and rounded Gaussian noise; infinite where it does not hold.

    A coordinate's characteristic function at angle ``theta = z g t`` is the normal one up to its aliases, at most
    ``4 exp(-sigma^2 (2 pi - |theta|)^2 / 2)``; T keeps the sum of aliases over all terms below 1e-9.
    Rounding (for the rounded Gaussian) multiplies it by ``sinc(theta / 2)``, within ``theta^4 / 2880`` of
    the normal factor that the variance 1/12 stands for; that is negligible from sigma = 20 on, else refused.
    """
    out = np.full(spread.deviation.shape, np.inf)
    cut = np.full(out.shape, 1e4)
    for law, step in zip(spread.laws, spread.step, strict=True):
        sigma = law.size
        alias = np.sqrt(2 * np.log(4e9 * np.maximum(spread.terms, 1.0))) / sigma
        usable = (alias < np.pi) & (sigma >= law.normal_from)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(step > 0, (2 * np.pi - alias) * spread.deviation / step, np.inf)
        cut = np.where(usable | (step == 0), np.minimum(cut, reach), 0.0)
    for value in np.unique(_rounded_down(cut[(cut > 1) & (spread.deviation > 0)])):
        rows = (_rounded_down(cut) == value) & (spread.deviation > 0)
        out[rows] = _gaussian(float(value), level) * spread.deviation[rows]
    return out


def _rounded_down(values: np.ndarray) -> np.ndarray:
    """To three significant binary digits below, so that few distinct values are solved for."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.floor(mantissa * 64) / 64, exponent)


def laplace_half_width(spread: Spread, level: float) -> np.ndarray:
    """Half-widths for sums of discrete Laplace variables, from bounds on their characteristic function.

    Queries whose bounds are alike share one solution: the lower and upper envelopes of their bounds.
    """
    out = np.full(spread.deviation.shape, np.inf)
    step = spread.step.max(axis=0)
    live = np.flatnonzero(spread.deviation > 0)
    angle = step[live] / spread.deviation[live]  # largest angle at t = 1
    cut = _rounded_down(np.minimum(_LAPLACE_CUT, 1 / np.maximum(angle, 1e-12)))
    live, cut = live[cut >= 4], cut[cut >= 4]
    kappas = np.stack([spread.kappa2[live], spread.kappa3[live], spread.share[live]])
    # Alike means: within a ratio of 2^(1/16) in each number that shapes the law.
    keys = np.vstack([np.floor(np.log2(np.maximum(kappas, 1e-15)) * 16), cut])
    groups, index = np.unique(keys, axis=1, return_inverse=True)
    for g in range(groups.shape[1]):
        rows = live[index.ravel() == g]
        out[rows] = _laplace_group(spread, rows, float(groups[3, g]), level) * spread.deviation[rows]
    return out


def _laplace_group(spread: Spread, rows: np.ndarray, cut: float, level: float) -> float:
    t, w = _nodes(cut, max(12, math.ceil(cut / 3)))
    lo, hi = np.full(t.shape, np.inf), np.zeros(t.shape)
    for part in np.array_split(rows, math.ceil(len(rows) / 256)):
        least, most = _laplace_bounds(spread, part, t)
        np.minimum(lo, least.min(axis=0), out=lo)
        np.maximum(hi, most.max(axis=0), out=hi)
    return _solve(t, w, cut, np.minimum(lo, hi), hi, level)


def _laplace_bounds(spread: Spread, rows: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds on phi(t), each (queries, nodes), for sums of discrete Laplace variables.

    ``-log phi = sum_j log(1 + x_j c_j)`` with ``x_j = v_j t^2 / (2 s^2)`` and ``1 - theta^2 / 12 <= c_j <= 1``. With
    ``X = t^2 / 2`` and weights x_j / X the sum is X times the mean of h(x) = log(1 + x) / x, which is completely
    monotone. Where the mean kappa2 X, second moment kappa3 X^2 and maximum rho X of x are known, the mean of h
    lies between two two-point laws (Chebyshev, Markov): on {eta, rho X} below, on {0, xi} above. Where they are
    only bounded, the mean of h lies between h(kappa2 X) and 1.
    """
    kappa2, kappa3, rho = (a[rows][:, None] for a in (spread.kappa2, spread.kappa3, spread.share))
    x = (t * t / 2)[None]
    theta = spread.step.max(axis=0)[rows][:, None] / spread.deviation[rows][:, None] * t
    shrink = np.maximum(1 - theta**2 / 12, 0.0)
    if not spread.exact:
        return np.exp(-x), np.exp(-np.log1p(kappa2 * x * shrink) / kappa2)
    # Rounding must not make moments inconsistent: kappa2^2 <= kappa3 <= rho kappa2 and kappa2 <= rho.
    rho = np.maximum(rho, kappa2)
    kappa3 = np.clip(kappa3, kappa2**2, rho * kappa2)
    xi = kappa3 / kappa2
    above = 1 - kappa2 / xi * (1 - _h(xi * x))
    gap = rho - kappa2
    eta = np.where(gap > 1e-12, (rho * kappa2 - kappa3) / np.where(gap > 1e-12, gap, 1.0), kappa2)
    spreading = gap**2 + np.maximum(kappa3 - kappa2**2, 0.0)
    share = np.where(spreading > 1e-24, gap**2 / np.where(spreading > 1e-24, spreading, 1.0), 1.0)
    below = share * _h(eta * x * shrink) + (1 - share) * _h(rho * x * shrink)
    return np.exp(-x * above), np.exp(-x * shrink * below)


def _h(x: np.ndarray) -> np.ndarray:
    """log(1 + x) / x, with h(0) = 1."""
    return np.where(x > 1e-8, np.log1p(x) / np.where(x > 1e-8, x, 1.0), 1 - x / 2)
