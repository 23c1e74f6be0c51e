"""The non-negative least-squares problem ``min ||B u - y||^2, u >= 0``, solved to a proven gap.

The alternating direction method of multipliers splits the quadratic from the sign:

    x = argmin ||B x - y||^2 / 2 + r ||x - z + w||^2 / 2,   z = max(x + w, 0),   w = w + x - z.

The first step is one division in a basis Q where ``B'B`` is diagonal; where it is only nearly so, ``B'B`` is replaced
by an upper bound M that is diagonal, and what is missing is taken from the step before (proximal linearisation).

It stops on a duality gap. For any v with ``B'v >= 0`` the least value is at least ``-||v||^2 / 2 - v'y``. With d such
that ``c = B'd > 0`` on all counted cells and ``e = max_j (-g_j / c_j)``, ``g = B'(B x - y)``, the vector
``v = B x - y + e d`` will do, and

    gap = ||B z - y - v||^2 / 2 + (g + e c)'z >= ||B z - B z*||^2 / 2.

An answer ``w'u = t'B u`` whose least-squares deviation is ``||t||`` then lies within ``sqrt(2 gap)`` such deviations
of the optimum.

Reference: Boyd, Parikh, Chu, Peleato, Eckstein, Distributed optimization and statistical learning via the alternating
direction method of multipliers (2011), sections 3 and 3.4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .merged_cells import MergedCells

GAP = 5e-5
"""The gap to stop at: every answer is then within 1 % of its own standard error of the optimum."""

_STEPS, _CHECKED = 3000, 20
_RELAXED = 1.6
_PENALTY = 0.05  # r in units of the middle eigenvalue of B'B
_POWER_STEPS, _ROOM = 30, 1.1
_NOTHING = 1e-9  # of the largest eigenvalue: rounding


@dataclass(frozen=True)
class Certificate:
    """A vector d by what the gap needs of it: ``c = B'd``, positive on the cells counted, and ``||d||^2``."""

    direction: np.ndarray
    norm2: float


@dataclass(frozen=True)
class Solution:
    """Non-negative cells and the duality gap that proves how near the optimum they are."""

    cells: np.ndarray
    gap: float


def solve(problem: MergedCells, y: Sequence[np.ndarray], certificate: Certificate) -> Solution:
    """The non-negative cells closest to the answers y (whitened, block by block); deterministic."""
    basis, spectrum, exact = problem.basis()
    spectrum = spectrum if exact else spectrum * largest_ratio(problem, basis, spectrum)
    back, target = basis.T, problem.adjoint(y)
    penalty = _PENALTY * float(np.median(spectrum[spectrum > _NOTHING * spectrum.max()]))
    x, z, w = np.zeros((3, problem.cells))
    best = Solution(z, np.inf)
    for step in range(_STEPS):
        pull = target + penalty * (z - w)
        if not exact:
            pull -= problem.adjoint(problem.apply(x))
        moved = basis @ pull
        if not exact:
            moved += spectrum * (basis @ x)
        x = back @ (moved / (spectrum + penalty))
        relaxed = _RELAXED * x + (1 - _RELAXED) * z
        z = np.maximum(relaxed + w, 0.0)
        w += relaxed - z
        if step % _CHECKED == _CHECKED - 1:
            gap = _gap(problem, y, x, z, certificate)
            if gap < best.gap:
                best = Solution(z, gap)
            if gap <= GAP:
                break
    return best


def _gap(
    problem: MergedCells, y: Sequence[np.ndarray], x: np.ndarray, z: np.ndarray, certificate: Certificate
) -> float:
    """The duality gap between z and the multipliers that belong to x."""
    of_x, of_z = problem.apply(x), problem.apply(z)
    gradient = problem.adjoint([a - b for a, b in zip(of_x, y, strict=True)])
    c = certificate.direction
    counted = c > 0
    short = max(0.0, float((-gradient[counted] / c[counted]).max(initial=0.0)))
    apart = sum(float(np.square(a - b).sum()) for a, b in zip(of_z, of_x, strict=True))
    away = apart - 2 * short * float(c @ (z - x)) + short**2 * certificate.norm2
    return max(0.0, away / 2) + max(0.0, float((gradient + short * c) @ z))


def largest_ratio(problem: MergedCells, basis, spectrum: np.ndarray) -> float:
    """How far B'B exceeds a diagonal in a basis: the largest eigenvalue of one against the other, a little above."""
    root = np.where(spectrum > 0, 1 / np.sqrt(np.where(spectrum > 0, spectrum, 1.0)), 0.0)
    vector = 1.0 + np.arange(problem.cells) % 7 / 7
    largest = 1.0
    for _ in range(_POWER_STEPS):
        vector = vector / np.linalg.norm(vector)
        vector = root * (basis @ problem.adjoint(problem.apply(basis.T @ (root * vector))))
        largest = max(largest, float(np.linalg.norm(vector)))
    return _ROOM * largest
