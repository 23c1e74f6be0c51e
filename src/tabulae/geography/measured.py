"""The noisy counts of a spine's units, and those that are exact: what was measured. Public."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from .spine_plan import SpinePieceValues, SpinePlan


@dataclass(frozen=True, eq=False)
class SpineMeasurements:
    """The stream of a measured spine: to be read once, in the order of ``plan.pieces``.

    Attributes:
        plan: what was measured, and with which noise.
        exact: for each margin that is exact, shape (units of its level, margin.classes), int64.
        rehearsal: marks what no ledger paid for or an insecure source drew: a release refuses it.
        release_id: the charge.
    """

    plan: SpinePlan
    exact: tuple[np.ndarray, ...]
    rehearsal: bool
    release_id: str | None
    pieces: Iterator[SpinePieceValues] = field(repr=False)

    def __iter__(self) -> Iterator[SpinePieceValues]:
        return self.pieces
