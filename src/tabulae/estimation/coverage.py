"""Half-widths of intervals whose coverage, under the law drawn, is at least what they say.

An answer's error is ``S = sum_j z_j e_j`` with independent discrete noise e_j. Three ways, the best valid:

* **exact** - all non-zero |z_j| equal, on one grid: S is |z| times a sum of n integer variables. Its law
  follows from the characteristic function by a finite Fourier sum; the smallest half-width is taken.
* **limit** - bounds on the characteristic function of S on ``|t| <= T``, turned into a lower bound on
  ``P(|S| <= h)`` by Selberg's minorant of an interval (see :mod:`.minorant`): a normal (or Laplace-mixture)
  limit with its error proven and paid for. Its price is about ``pi / T`` added to the half-width: half a step
  of the grid for Gaussian noise.
* **conservative** - a Chernoff bound, valid always; and what holds where the coefficients are not known, only a bound
  on the variance (see :mod:`.bounded`).

Selberg's minorant: from bounds on a characteristic function to a proven coverage.

For a symmetric S and any T > 0, Selberg's minorant of the indicator of [-h, h] has Fourier support
in [-T, T], so that

    P(|S| <= h) >= int_0^1 K_h(u) phi(u T) du,
    K_h(u) = 2 J(u) / (pi u) * sin(u T h) - 2 (1 - u) cos(u T h),
    J(u)   = pi u (1 - u) cot(pi u) + u,

and only phi on [0, T] matters. Where only ``lo <= phi <= hi`` is known, the midpoint is integrated and
``|K_h| (hi - lo) / 2`` taken off. (Vaaler, "Some extremal functions in Fourier analysis", 1985, Theorem 8
and section 2.) S is taken in units of its standard deviation throughout.

Half-widths where of an answer's error only a bound V on its variance is known.

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

Gaussian noise of few steps has better. Of the discrete Gaussian, and of the discrete Laplace, ``-log phi(theta) /
theta^2`` falls on [0, 2 pi]. (Laplace: ``log(1 + 2 V sin^2(theta / 2))`` is concave in the square of a sine that
falls against theta. Gaussian, by Jacobi's product over n with ``w = sigma theta``, ``a = 2 pi sigma``, ``Q_n =
exp(-(2 n - 1) a^2 / 2)`` and ``C_n = 4 Q_n / (1 + Q_n)^2``: ``log phi + w^2 / 2 = sum_n log(1 + C_n sinh^2(a w /
2))``, and each term over w^2 grows up to about ``w = (2 n - 1) a``.) So the characteristic function of S lies, at t <
2 pi sigma / s, between the normal one and that of one variable of the smallest noise alone, whatever the coefficients
are: two bounds for a minorant that knows nothing else of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import optimize, special

from ..errors import InvalidArgument
from ..privacy import NoiseLaw
from ..strategy import Profile, VarianceBound

_NOTHING = (
    1e-100  # sums of squared coefficients below this move no number, and the cubes of others are no zeros
)


@dataclass(frozen=True)
class Spread:
    """Error ``S = sum_j z_j e_j`` per query: its size, and how much of it few variables carry.

    With v_j the variance of ``z_j e_j``: ``deviation`` is s, the standard deviation of S in counts;
    ``kappa2 = sum v_j^2 / s^4``, ``kappa3 = sum v_j^3 / s^6`` and ``share = max v_j / s^2``. ``step`` (blocks, m)
    is the largest |z| times the grid's step; ``terms`` (m,) the number of variables; ``laws`` by block;
    ``exact`` says that kappa2, kappa3 and share are no mere upper bounds.
    """

    deviation: np.ndarray
    kappa2: np.ndarray
    kappa3: np.ndarray
    share: np.ndarray
    step: np.ndarray
    terms: np.ndarray
    laws: tuple[NoiseLaw, ...]
    exact: bool

    @classmethod
    def of(cls, profile: Profile, laws: Sequence[NoiseLaw], steps: Sequence[float]) -> Spread:
        variance = np.array([law.variance_of_law * g * g for law, g in zip(laws, steps, strict=True)])[
            :, None
        ]
        part = profile.power2 > _NOTHING
        total = (np.where(part, profile.power2, 0.0) * variance).sum(axis=0)
        # Ratios of at most 1 before any power is taken: variances may differ by hundreds of orders of magnitude.
        safe = np.where(part, profile.power2, 1.0)
        weight = np.divide(safe * variance, total, out=np.zeros_like(safe), where=part & (total > 0))
        return cls(
            deviation=np.sqrt(total),
            kappa2=np.minimum((profile.power4 / safe**2 * weight**2).sum(axis=0), 1.0),
            kappa3=np.minimum((profile.power6 / safe**3 * weight**3).sum(axis=0), 1.0),
            share=np.minimum((profile.largest**2 / safe * weight).max(axis=0), 1.0),
            step=profile.largest * np.array(steps)[:, None],
            terms=profile.count.sum(axis=0),
            laws=tuple(laws),
            exact=profile.exact,
        )


def gaussian_bound(spread: Spread, level: float) -> np.ndarray:
    """``h = tau sqrt(2 log(2 / alpha))`` with tau^2 the sub-Gaussian proxy of S."""
    factor = gaussian_factor(spread.laws, level)  # infinite where a law is nearly always 0
    return np.where(spread.deviation > 0, factor, 0.0) * spread.deviation


def gaussian_factor(laws: Sequence[NoiseLaw], level: float) -> float:
    """h in standard deviations of S, whatever its coefficients: ``sqrt(2 r log(2 / alpha))``.

    The proxy of S is s^2 times the largest ratio r, among the blocks, of a law's sub-Gaussian proxy to its variance.
    """
    largest = max(law.sub_gaussian_proxy / law.variance_of_law for law in laws)
    return math.sqrt(2 * math.log(2 / (1 - level)) * largest)


def tail_bound(
    profile: Profile, laws: Sequence[NoiseLaw], steps: Sequence[float], level: float, below: np.ndarray
) -> np.ndarray:
    """``h = sum_b k_b g_b sum_j |z_j|`` where no noise variable of block b exceeds k_b steps, except with
    probability alpha / B (union bound); ``sum |z_j| <= sqrt(count sum z_j^2)``.

    Crude, except for noise so small that it is nearly always 0: then it is the bound that still holds. It is infinite
    where it cannot be ``below`` what is known otherwise: that is seen without a margin of any law.
    """
    miss = (1 - level) / len(laws)
    largest = np.array(steps)[:, None] * np.sqrt(profile.count * profile.power2)
    wanted = (_least_margins(laws, miss / np.maximum(profile.count, 1)) * largest).sum(axis=0) < below
    total = np.where(wanted, 0.0, np.inf)
    if not wanted.any():
        return total
    for b, law in enumerate(laws):
        for count in np.unique(profile.count[b, wanted]):
            if count > 0:
                rows = wanted & (profile.count[b] == count)
                total[rows] += law.margin(1 - miss / count) * largest[b, rows]
    return total


def _least_margins(laws: Sequence[NoiseLaw], miss: np.ndarray) -> np.ndarray:
    """Lower bounds on the margins of laws of one kind, a row each, at what may be missed.

    Beyond k a discrete Gaussian has at least the weight of a normal beyond k + 1, and all of it weighs at most 1 more
    than the normal; a rounded Gaussian has more. Beyond k a discrete Laplace variable is at least as often as one with
    ``P(|X| > x) = e^{-x / b}`` is beyond k + 1.
    """
    size = np.array([law.size for law in laws])[:, None]
    if laws[0].kind == "laplace":
        least = size * -np.log(miss)
    else:
        least = size * -special.ndtri(np.minimum(miss * (1 + 1 / (size * math.sqrt(2 * math.pi))), 1) / 2)
    return np.maximum(least - 1 - 1e-9 * size, 0.0)


def laplace_bound(spread: Spread, level: float, below: np.ndarray | None = None) -> np.ndarray:
    """``min over lambda of (log mgf(lambda) + log(2 / alpha)) / lambda`` for sums of discrete Laplace variables.

    A variable of variance v has ``mgf(theta) = 1 / (1 - v (cosh theta - 1))``. With y the largest
    ``v_j (cosh theta_j - 1)``, convexity of -log(1 - y) / y bounds ``log mgf(S)`` by
    ``s^2 lambda^2 / 2 * c * (-log(1 - y) / y)``, c = 2 (cosh theta - 1) / theta^2 at the largest angle. It is never
    less than ``s sqrt(2 log(2 / alpha))``; where that is not ``below``, infinite.
    """
    out = np.where(spread.deviation > 0, np.inf, 0.0)
    penalty = math.log(2 / (1 - level))
    least = math.sqrt(2 * penalty) * (1 - 1e-9) * spread.deviation
    rows = np.flatnonzero((spread.deviation > 0) & (True if below is None else least < below))
    if not rows.size:
        return out
    deviation, share = spread.deviation[rows], spread.share[rows]
    angle = spread.step[:, rows].max(axis=0) / deviation  # largest theta at lambda = 1/s
    best = np.full(rows.size, np.inf)
    # y = share lambda^2 / 2 * c must stay below 1, so lambda below sqrt(2 / share)
    fractions = np.linspace(0.02, 0.999, 200)[:, None]
    for part in (slice(k, k + 2**12) for k in range(0, rows.size, 2**12)):
        size = fractions * np.sqrt(2 / np.maximum(share[part], 1e-12))
        theta = size * angle[part]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            c = np.where(
                theta < 1e-4, 1 + theta**2 / 12, 2 * (np.cosh(theta) - 1) / np.maximum(theta, 1e-300) ** 2
            )
            y = share[part] * size**2 / 2 * c
            logarithm = np.where(y < 1, size**2 / 2 * c * -np.log1p(-y) / y, np.inf)
        best[part] = np.fmin.reduce((logarithm + penalty) / size, axis=0)
    out[rows] = best * deviation
    return out


_ERROR = 1e-8  # charged to the level: quadrature, and aliasing of discrete Gaussians, which is kept below it
_GAUSSIAN_END = 7.5  # exp(-7.5^2 / 2) = 6e-13
_LAPLACE_CUT = 300.0
_WIDEST = 15.0  # half-widths sought, in standard deviations
_SECANTS = 12
_INVISIBLE = (
    1e-14  # of a characteristic function: what all of it adds to a coverage is far below what is charged
)


def kernel_weights(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors of sin(u T h) and -cos(u T h) in K_h(u); u strictly between 0 and 1."""
    j = np.pi * u * (1 - u) / np.tan(np.pi * u) + u
    return 2 * j / (np.pi * u), 2 * (1 - u)


@lru_cache(maxsize=1)
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(16)


def _nodes(end: float, panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [0, end], 16 a panel."""
    x, w = _legendre()
    edges = np.linspace(0.0, end, panels + 1)
    half = np.diff(edges)[:, None] / 2
    middle = (edges[:-1] + edges[1:])[:, None] / 2
    return (middle + half * x).ravel(), (half * w).ravel()


def _solve(t: np.ndarray, w: np.ndarray, cut: float, lo: np.ndarray, hi: np.ndarray, level: float) -> float:
    """Smallest h found, in standard deviations, with coverage at least ``level``; infinite if none below 15.

    Of the multiples of 15 / 2^30 the least, between two neighbours: those around where secants lead, or by halving.
    """
    seen = hi > _INVISIBLE
    t, w, lo, hi = t[seen], w[seen], lo[seen], hi[seen]
    sine, cosine = kernel_weights(t / cut)
    middle, half = w * (lo + hi) / 2, w * (hi - lo) / 2
    certain = not half.any()

    def coverage(h: float) -> float:
        k = sine * np.sin(t * h) - cosine * np.cos(t * h)
        return float(k @ middle - (0.0 if certain else np.abs(k) @ half)) / cut - _ERROR

    if coverage(_WIDEST) < level:
        return math.inf
    low, high, step = 0, 1 << 30, _WIDEST / (1 << 30)
    near = math.ceil(_secant(lambda h: coverage(h) - level) / step)
    for mid in (near, near - 1):
        if low < mid < high:
            low, high = (low, mid) if coverage(mid * step) >= level else (mid, high)
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (low, mid) if coverage(mid * step) >= level else (mid, high)
    return high * step


def _secant(excess: Callable[[float], float]) -> float:
    """About where a function crosses 0, from where most half-widths lie; anywhere if that leads astray."""
    before, here = 1.9, 2.2
    value = excess(before)
    for _ in range(_SECANTS):
        last, value = value, excess(here)
        if abs(here - before) < 1e-9 or value == last:
            break
        before, here = here, min(max(here - value * (here - before) / (value - last), 0.0), _WIDEST)
    return here


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
    sigma = np.array([law.size for law in spread.laws])[:, None]
    alias = np.sqrt(2 * np.log(4e9 * np.maximum(spread.terms, 1.0))) / sigma
    usable = (alias < np.pi) & (sigma >= spread.laws[0].normal_from)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where(spread.step > 0, (2 * np.pi - alias) * spread.deviation / spread.step, np.inf)
    cut = np.where(usable | (spread.step == 0), np.minimum(reach, 1e4), 0.0).min(axis=0)
    live = np.flatnonzero((cut > 1) & (spread.deviation > 0))
    values, of = np.unique(_rounded_down(cut[live]), return_inverse=True)
    factors = np.array([_gaussian(float(value), level) for value in values])
    out[live] = factors[of] * spread.deviation[live]
    return out


def _rounded_down(values: np.ndarray) -> np.ndarray:
    """To three significant binary digits below, so that few distinct values are solved for."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.floor(mantissa * 64) / 64, exponent)


def laplace_half_width(spread: Spread, level: float) -> np.ndarray:
    """Half-widths for sums of discrete Laplace variables, from bounds on their characteristic function.

    Queries whose bounds are alike share one solution: the lower and upper envelopes of their bounds, up to the least of
    their T. So that of one query alone changes smoothly with its noise.
    """
    out = np.full(spread.deviation.shape, np.inf)
    step = spread.step.max(axis=0)
    live = np.flatnonzero(spread.deviation > 0)
    angle = step[live] / spread.deviation[live]  # largest angle at t = 1
    cut = np.minimum(_LAPLACE_CUT, 1 / np.maximum(angle, 1e-12))
    live, cut = live[cut >= 4], cut[cut >= 4]
    kappas = np.stack([spread.kappa2[live], spread.kappa3[live], spread.share[live]])
    # Alike means: within a ratio of 2^(1/16) in each number that shapes the law.
    keys = np.vstack([np.floor(np.log2(np.maximum(kappas, 1e-15)) * 16), _rounded_down(cut)])
    index = np.unique(keys, axis=1, return_inverse=True)[1].ravel() if live.size > 1 else np.zeros(live.size)
    for g in range(int(index.max(initial=-1)) + 1):
        alike = index == g
        rows, least = live[alike], float(cut[alike].min())
        out[rows] = _laplace_group(spread, rows, least, level) * spread.deviation[rows]
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


_LONGEST = (
    2.0**16
)  # standard deviations (in grid steps) above this use the limit, whose price is then invisible
_ROUNDING = 1e-12


@lru_cache(maxsize=4096)
def smallest_half_width(noise: tuple[tuple[NoiseLaw, int], ...], level: float) -> float:
    """Smallest integer q with ``P(|e_1 + ... + e_n| <= q) >= level``; infinite where the laws are too wide.

    ``noise`` says how many variables of each law are added up. The probabilities are the Fourier coefficients of the
    product of ``phi(t)^n``, by a sum over L >= 40 standard deviations points; what wraps round is below 1e-15 and is
    charged, with rounding, as 1e-12 to the level.

    >>> from fractions import Fraction
    >>> from tabulae.privacy import DiscreteGaussian
    >>> smallest_half_width(((DiscreteGaussian(Fraction(1)), 1),), 0.95)
    2.0
    """
    if [count for _, count in noise] == [1]:
        return float(noise[0][0].margin(level))
    deviation = math.sqrt(sum(law.variance_of_law * count for law, count in noise))
    if deviation > _LONGEST:
        return math.inf
    length = 2 ** max(8, math.ceil(math.log2(80 * deviation + 64)))
    points = 2 * np.pi * np.arange(length // 2 + 1) / length
    phi = np.prod([law.characteristic(points) ** count for law, count in noise], axis=0)
    probability = np.fft.irfft(phi, length)
    symmetric = np.concatenate([probability[:1], 2 * probability[1 : length // 2]])
    covered = np.cumsum(np.maximum(symmetric, 0.0))
    reached = np.flatnonzero(covered >= level + _ROUNDING)
    return float(reached[0]) if reached.size else math.inf


_ALIASES = 1e-11  # charged to the level for densities of C that are not exactly so, and for quadrature
_SPLITS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4)
_CUTS = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)  # of 2 pi standard deviations of the smallest noise
_RATES = np.geomspace(0.05, 30, 200)


def bounded_half_widths(variance: np.ndarray, laws: Sequence[NoiseLaw], level: float) -> np.ndarray:
    """Half-widths h with ``P(|S| <= h) >= level`` for every S of a variance at most ``variance`` (m,), squared counts.

    >>> from fractions import Fraction
    >>> from tabulae.privacy import DiscreteGaussian
    >>> fine = DiscreteGaussian(Fraction(10) ** 12)
    >>> bounded_half_widths(np.array([1.0]), [fine], 0.95).round(2).tolist()
    [1.96]
    """
    return uniform_factor(laws, level) * np.sqrt(np.maximum(variance, 0.0))


def uniform_factor(laws: Sequence[NoiseLaw], level: float, variances: Sequence[float] | None = None) -> float:
    """A c with ``P(|S| <= c s) >= level`` for every linear ``S = sum_j z_j e_j`` of the noise, ``s^2 = sum z_j^2 v_j``.

    Arguments:
        laws: of the noise, all of one kind.
        level: of the interval.
        variances: the v of each law, no smaller than its variance; None: just that.

    Returns:
        The least of what a Chernoff bound, a continuous law and a rest, and Selberg's minorant give; infinite for
        noise that is nearly always 0 where v is its variance.

    Raises:
        InvalidArgument: a level outside (0, 1), or no laws.

    >>> from tabulae.privacy import DiscreteGaussian, DiscreteLaplace
    >>> round(uniform_factor([DiscreteGaussian(4)], 0.95), 2), round(uniform_factor([DiscreteGaussian(400)], 0.95), 2)
    (2.26, 1.99)
    >>> round(uniform_factor([DiscreteLaplace(1000)], 0.95), 2)
    2.16
    """
    if not 0 < level < 1:
        raise InvalidArgument(f"the level of an interval lies between 0 and 1, not {level!r}")
    if not laws:
        raise InvalidArgument("an interval needs the laws of the noise, and there are none")
    used = [law.variance_of_law for law in laws] if variances is None else variances
    return _uniform(tuple(dict.fromkeys(zip(laws, used, strict=True))), level)


_Accounted = tuple[tuple[NoiseLaw, float], ...]


@lru_cache(maxsize=512)
def _uniform(laws: _Accounted, level: float) -> float:
    return min(_chernoff(laws, level), _continuous(laws, level), _minorant(laws, level))


def _chernoff(laws: _Accounted, level: float) -> float:
    """``min over lambda of (log mgf + log(2 / alpha)) / lambda``, for the worst S with s = 1.

    Of discrete Laplace noise ``log mgf(theta) / theta^2`` grows with theta, and no theta is above ``lambda / sqrt v``:
    the worst is one variable with all of the variance.
    """
    penalty = math.log(2 / (1 - level))
    if laws[0][0].kind == "gaussian":
        return math.sqrt(2 * penalty * max(law.sub_gaussian_proxy / v for law, v in laws))
    worst = np.zeros(_RATES.shape)
    for law, v in laws:
        with np.errstate(over="ignore"):
            y = law.variance_of_law * (np.cosh(_RATES / math.sqrt(v)) - 1)
        worst = np.maximum(worst, np.where(y < 1, -np.log1p(-np.minimum(y, 1 - 1e-15)), np.inf))
    return float(((worst + penalty) / _RATES).min())


def _continuous(laws: _Accounted, level: float) -> float:
    """The quantile of the continuous parts, and a bound on the rest."""
    parts = [(law.continuous_part(), v) for law, v in laws]
    continuous, rest = (max(part[i] / v for part, v in parts) for i in range(2))
    miss = 1 - level - _ALIASES
    if miss <= 0 or not math.isfinite(continuous):
        return math.inf
    quantile = _laplace_quantile if laws[0][0].kind == "laplace" else _normal_quantile
    return min(
        math.sqrt(continuous) * quantile((1 - share) * miss)
        + math.sqrt(2 * rest * math.log(2 / (share * miss)))
        for share in _SPLITS
    )


def _minorant(laws: _Accounted, level: float) -> float:
    """By Selberg's minorant, between the normal characteristic function and that of one variable alone.

    Where ``-log phi(theta) / theta^2`` of every law falls from ``Var / 2`` on as theta grows to 2 pi, no angle being
    above ``t / sqrt v``, the sum of ``-log phi(z_j t)`` lies for s = 1 between ``t^2 / 2`` and the least of
    ``-log phi(t / sqrt v)``.
    """
    if not all(law.steepest_at_zero for law, _ in laws):
        return math.inf
    widest = 2 * math.pi * math.sqrt(min(v for _, v in laws))
    best = math.inf
    for cut in (share * widest for share in _CUTS if share * widest > 1):
        t, w = _nodes(min(cut, _GAUSSIAN_END), 24)
        if (
            cut > _GAUSSIAN_END
        ):  # what stands between both ends is below 1e-12; the grid shows again at the far one
            far, wide = _nodes(min(_GAUSSIAN_END, cut - _GAUSSIAN_END), 24)
            t, w = np.append(t, cut - far), np.append(w, wide)
        low = np.exp(-t * t / 2)
        high = np.max([low, *(law.characteristic(t / math.sqrt(v)) for law, v in laws)], axis=0)
        best = min(best, _solve(t, w, cut, low, high, level))
    return best


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

    from scipy import integrate  # heavy

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


EXACT, LIMIT, CONSERVATIVE = "exact", "limit", "conservative"
_SURE = 1e-12  # probability with which noise that is called 0 may be something else
_SLACK = 1 + 1e-9  # covers rounding in the coefficients, which are floats


@dataclass(frozen=True)
class HalfWidths:
    """Half-widths in counts, shape (m,), and per query the way each was found."""

    values: np.ndarray
    ways: np.ndarray


def half_widths(
    profile: Profile | VarianceBound, laws: Sequence[NoiseLaw], steps: Sequence[float], level: float
) -> HalfWidths:
    """Half-widths h with ``P(|S| <= h) >= level`` for each query of a profile.

    ``profile`` holds the coefficients' statistics by block (in counts); ``laws`` are the blocks' laws on their
    integer grids and ``steps`` the grids' steps in counts.

    Raises :class:`~tabulae.errors.InvalidArgument` unless 0 < level < 1.
    """
    if not 0 < level < 1:
        raise InvalidArgument(f"the level of an interval lies between 0 and 1, not {level!r}")
    if isinstance(profile, VarianceBound):
        widths = bounded_half_widths(profile.variance, laws, level)
        return HalfWidths(widths * _SLACK, np.full(widths.shape, CONSERVATIVE, dtype="<U12"))
    if profile.blocks is not None:
        laws, steps = [laws[b] for b in profile.blocks], [steps[b] for b in profile.blocks]
    profile, laws, steps, level = _without_quiet(profile, laws, steps, level)
    laplace = laws[0].kind == "laplace"
    spread = Spread.of(profile, laws, steps)
    limit = (laplace_half_width if laplace else gaussian_half_width)(spread, level)
    values = laplace_bound(spread, level, limit) if laplace else gaussian_bound(spread, level)
    values = np.fmin(values, tail_bound(profile, laws, steps, level, np.fmin(values, limit)))
    values[spread.deviation == 0] = 0.0
    ways = np.full(values.shape, CONSERVATIVE, dtype="<U12")
    _improve(values, ways, limit, LIMIT)
    _improve(values, ways, _exact(profile, laws, steps, level, values), EXACT)
    every = slice(None) if profile.inverse is None else profile.inverse
    return HalfWidths((values * _SLACK)[every], ways[every])


def _without_quiet(
    profile: Profile, laws: Sequence[NoiseLaw], steps: Sequence[float], level: float
) -> tuple[Profile, Sequence[NoiseLaw], Sequence[float], float]:
    """The profile without blocks whose noise is all but surely 0, and the level that pays for leaving them out.

    A block of c variables contributes nothing except with probability ``c P(X != 0)``. Laws that are nearly always 0
    (what no neighbour changes is measured with such) fit none of the bounds: these would be far too wide.
    """
    most = profile.count.max(axis=1, initial=0)
    # From a size of 1 on a law is not 0 more often than it is.
    small = [b for b, law in enumerate(laws) if law.size < 1 or not most[b]]
    chances = {b: float(most[b]) * _chance(laws[b]) for b in small}
    quiet = [b for b, chance in chances.items() if chance <= _SURE]
    if len(quiet) in (0, len(laws)):
        return profile, laws, steps, level
    loud = [b for b in range(len(laws)) if b not in quiet]
    arrays = ("power2", "power4", "power6", "largest", "count")
    kept = {name: getattr(profile, name)[loud] for name in arrays}
    paid = level + sum(chances[b] for b in quiet)
    return replace(profile, **kept, blocks=None), [laws[b] for b in loud], [steps[b] for b in loud], paid


@lru_cache(maxsize=4096)
def _chance(law: NoiseLaw) -> float:
    """Of a variable that is not 0."""
    return law.tail(0)


def _improve(values: np.ndarray, ways: np.ndarray, candidate: np.ndarray, way: str) -> None:
    better = candidate <= values
    values[better] = candidate[better]
    ways[better] = way


def _exact(
    profile: Profile, laws: Sequence[NoiseLaw], steps: Sequence[float], level: float, otherwise: np.ndarray
) -> np.ndarray:
    """Smallest half-widths where S is a multiple of a sum of integer variables; infinite elsewhere."""
    out = np.full(otherwise.shape, np.inf)
    out[(profile.count == 0).all(axis=0)] = 0.0
    if not profile.exact:
        return out
    there = profile.count > 0
    # Of first order in what coefficients differ by: unequal ones would split the values that sums share.
    equal = ~there | (profile.count * profile.largest**2 <= (1 + 1e-9) * profile.power2)
    size = profile.largest * np.array(steps)[:, None]
    most = size.max(axis=0)
    equal &= ~there | (size >= (1 - 1e-12) * most)
    chosen = np.flatnonzero(equal.all(axis=0) & there.any(axis=0))
    if not chosen.size:
        return out
    counts, group = np.unique(profile.count[:, chosen].astype(np.int64), axis=1, return_inverse=True)
    for g, row in enumerate(counts.T):
        noise = tuple((law, int(count)) for law, count in zip(laws, row, strict=True) if count)
        width = smallest_half_width(noise, level)
        if math.isfinite(width):
            rows = chosen[group.ravel() == g]
            out[rows] = width * most[rows]
    return out
