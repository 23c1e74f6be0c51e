"""How an answer's error is spread over its noise variables, in the units that the bounds need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..privacy import NoiseLaw
from ..strategy import Profile

_NOTHING = 1e-60  # sums of squared coefficients below this are rounding, not coefficients


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
        """The spread of a profile under the blocks' laws on their grids."""
        variance = np.array([law.variance_of_law * g * g for law, g in zip(laws, steps, strict=True)])[
            :, None
        ]
        total = (profile.power2 * variance).sum(axis=0)
        # Ratios of at most 1 before any power is taken: variances may differ by hundreds of orders of magnitude.
        part = profile.power2 > _NOTHING
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
