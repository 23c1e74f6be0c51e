"""Whether targets of areas are met at a stop: yes, no, or not told where variances are only known between limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...privacy import NoiseLaw
from ...products.areas.passes.forms import (
    HALF_STEP,
    area_half_widths,
    costs_half_step,
    interval_factor,
)
from ...products.smallest import TargetRow


def met_at(
    target: TargetRow, own: Sequence[NoiseLaw], laws: Sequence[NoiseLaw], growth: tuple[float, float]
) -> bool | None:
    """Whether a target is met by other noise than that which its ``reached`` is for.

    Arguments:
        target: with what the plan's own budget reaches.
        own: the laws of the plan's own budget.
        laws: those of the other.
        growth: the least and the largest ratio of a variance to that at the plan's own budget.
    """
    if target.confidence is None:
        low, high = (math.sqrt(ratio) * target.reached for ratio in growth)
    else:
        step = HALF_STEP if costs_half_step(own) else 0.0
        factor = interval_factor(target.confidence, own)
        if not (math.isfinite(factor) and math.isfinite(target.reached)):
            return None  # no variance follows from the half-width
        deviation = max(0.0, target.reached - step) / factor
        squares = np.array(growth) * deviation**2
        low, high = area_half_widths(squares, laws, target.confidence).tolist()
    allowed = target.target * (1 + 1e-9)
    if high <= allowed:
        return True
    return False if low > allowed else None
