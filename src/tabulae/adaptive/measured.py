"""Noisy counts of groups: what the two stages of an adaptive tabulation gave. Public."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from .plan import AdaptivePlan


@dataclass(frozen=True, eq=False)
class GroupMeasurement:
    """Both stages for all groups of some consecutive regions of one level.

    Arrays have shape (regions * groups,): places in C order, region by region.

    Args:
        level: position in the plan.
        first: position of the first region.
        regions: how many regions.
        stage_one: noisy counts (int64) that chose the table; 0 where none was drawn, for a group that is total only.
        rung: the table that each group got (int8); TOTAL_ONLY, TOTAL or a position on the ladder.
        totals: the count of stage two; where a table was measured, the sum of its cells.
        cells: rung -> (places, shape (m,) rising; noisy cells, int64, shape (m, cells)).
    """

    level: int
    first: int
    regions: int
    stage_one: np.ndarray
    rung: np.ndarray
    totals: np.ndarray
    cells: Mapping[int, tuple[np.ndarray, np.ndarray]] = field(repr=False)


@dataclass(frozen=True, eq=False)
class GroupMeasurements:
    """The stream of an adaptive tabulation: to be read once, level by level, in the plan's order.

    ``rehearsal`` marks what no ledger paid for or an insecure source drew: a release refuses it.
    """

    plan: AdaptivePlan
    rehearsal: bool
    release_id: str | None
    chunks: Iterator[GroupMeasurement] = field(repr=False)

    def __iter__(self) -> Iterator[GroupMeasurement]:
        return self.chunks
