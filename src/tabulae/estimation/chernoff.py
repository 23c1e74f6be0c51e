"""Chernoff bounds on the noise of an answer: wider than need be, valid always."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..privacy import NoiseLaw
from ..strategy import Profile
from .spread import Spread


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
    profile: Profile, laws: Sequence[NoiseLaw], steps: Sequence[float], level: float
) -> np.ndarray:
    """``h = sum_b k_b g_b sum_j |z_j|`` where no noise variable of block b exceeds k_b steps, except with
    probability alpha / B (union bound); ``sum |z_j| <= sqrt(count sum z_j^2)``.

    Crude, except for noise so small that it is nearly always 0: then it is the bound that still holds.
    """
    total = np.zeros(profile.power2.shape[1])
    miss = (1 - level) / len(laws)
    for b, (law, step) in enumerate(zip(laws, steps, strict=True)):
        for count in np.unique(profile.count[b]):
            if count > 0:
                rows = profile.count[b] == count
                largest = law.margin(1 - miss / count)
                total[rows] += largest * step * np.sqrt(count * profile.power2[b, rows])
    return total


def laplace_bound(spread: Spread, level: float) -> np.ndarray:
    """``min over lambda of (log mgf(lambda) + log(2 / alpha)) / lambda`` for sums of discrete Laplace variables.

    A variable of variance v has ``mgf(theta) = 1 / (1 - v (cosh theta - 1))``. With y the largest
    ``v_j (cosh theta_j - 1)``, convexity of -log(1 - y) / y bounds ``log mgf(S)`` by
    ``s^2 lambda^2 / 2 * c * (-log(1 - y) / y)``, c = 2 (cosh theta - 1) / theta^2 at the largest angle.
    """
    deviation = np.where(spread.deviation > 0, spread.deviation, 1.0)
    angle = spread.step.max(axis=0) / deviation  # largest theta at lambda = 1/s
    best = np.full(deviation.shape, np.inf)
    penalty = math.log(2 / (1 - level))
    # y = share lambda^2 / 2 * c must stay below 1, so lambda below sqrt(2 / share)
    for fraction in np.linspace(0.02, 0.999, 200):
        size = fraction * np.sqrt(2 / np.maximum(spread.share, 1e-12))
        theta = size * angle
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            c = np.where(
                theta < 1e-4, 1 + theta**2 / 12, 2 * (np.cosh(theta) - 1) / np.maximum(theta, 1e-300) ** 2
            )
            y = spread.share * size**2 / 2 * c
            logarithm = np.where(y < 1, size**2 / 2 * c * -np.log1p(-y) / y, np.inf)
        best = np.fmin(best, (logarithm + penalty) / size)
    return np.where(spread.deviation > 0, best, 0.0) * spread.deviation
