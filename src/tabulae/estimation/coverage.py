"""Half-widths of intervals whose coverage, under the law drawn, is at least what they say.

An answer's error is ``S = sum_j z_j e_j`` with independent discrete noise e_j. Three ways, the best valid:

* **exact** - all non-zero |z_j| equal, one block: S is |z| times a sum of n equal integer variables. Its law
  follows from the characteristic function by a finite Fourier sum; the smallest half-width is taken.
* **limit** - bounds on the characteristic function of S on ``|t| <= T``, turned into a lower bound on
  ``P(|S| <= h)`` by Selberg's minorant of an interval (see :mod:`.minorant`): a normal (or Laplace-mixture)
  limit with its error proven and paid for. Its price is about ``pi / T`` added to the half-width: half a step
  of the grid for Gaussian noise.
* **conservative** - a Chernoff bound, valid always; and what holds where the coefficients are not known, only a bound
  on the variance (see :mod:`.bounded`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import InvalidArgument
from ..privacy import NoiseLaw
from ..strategy import Profile, VarianceBound
from .bounded import bounded_half_widths
from .chernoff import (
    gaussian_bound,
    laplace_bound,
    tail_bound,
)
from .iid_sum import smallest_half_width
from .minorant import gaussian_half_width, laplace_half_width
from .spread import Spread

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
    bound = laplace_bound if laplace else gaussian_bound
    values = np.fmin(bound(spread, level), tail_bound(profile, laws, steps, level))
    values[spread.deviation == 0] = 0.0
    ways = np.full(values.shape, CONSERVATIVE, dtype="<U12")
    limit = (laplace_half_width if laplace else gaussian_half_width)(spread, level)
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
    chances = [float(c.max(initial=0)) * law.tail(0) for c, law in zip(profile.count, laws, strict=True)]
    loud = [b for b, chance in enumerate(chances) if chance > _SURE]
    if len(loud) in (0, len(laws)):
        return profile, laws, steps, level
    arrays = ("power2", "power4", "power6", "largest", "count")
    kept = {name: getattr(profile, name)[loud] for name in arrays}
    paid = level + sum(chance for b, chance in enumerate(chances) if b not in loud)
    return replace(profile, **kept, blocks=None), [laws[b] for b in loud], [steps[b] for b in loud], paid


def _improve(values: np.ndarray, ways: np.ndarray, candidate: np.ndarray, way: str) -> None:
    better = candidate <= values
    values[better] = candidate[better]
    ways[better] = way


def _exact(
    profile: Profile, laws: Sequence[NoiseLaw], steps: Sequence[float], level: float, otherwise: np.ndarray
) -> np.ndarray:
    """Smallest half-widths where S is a multiple of a sum of equal integer variables; infinite elsewhere."""
    out = np.full(otherwise.shape, np.inf)
    out[(profile.count == 0).all(axis=0)] = 0.0
    if not profile.exact:
        return out
    for b, (law, step) in enumerate(zip(laws, steps, strict=True)):
        alone = (profile.count[b] > 0) & (np.delete(profile.count, b, axis=0) == 0).all(axis=0)
        # Of first order in what coefficients differ by: unequal ones would split the values that sums share.
        equal = profile.count[b] * profile.largest[b] ** 2 <= (1 + 1e-9) * profile.power2[b]
        chosen = np.flatnonzero(alone & equal)
        for count in np.unique(profile.count[b, chosen]):
            width = smallest_half_width(law, int(count), level)
            if math.isfinite(width):
                rows = chosen[profile.count[b, chosen] == count]
                out[rows] = width * step * profile.largest[b, rows]
    return out
